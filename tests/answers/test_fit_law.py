"""The public law fit on planted truth: values recovered, invariances, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isocompute import InputError, RefusalError, fit_law

X = np.geomspace(1e5, 1e7, 25)


def planted(x: np.ndarray, L: float, k: float, x0: float, b: float) -> np.ndarray:
    return 2 ** (L / (1 + np.exp(-k * (np.log10(x) - x0))) + b)


EASY = {"L": 6.09, "k": 4.75, "x0": 5.84, "b": 2.73}  # arXiv 2603.12151, project page


def octaves(a: Any, b: Any) -> float:
    return float(np.max(np.abs(np.log2(np.asarray(a) / np.asarray(b)))))


def test_exact_points_give_back_the_law() -> None:
    law = fit_law(X, planted(X, **EASY))
    assert law.form == "sigmoid_log10"
    assert octaves(law.predict(X), planted(X, **EASY)) < 0.05
    assert law.plateau == pytest.approx(2 ** (6.09 + 2.73), rel=0.05)
    assert law.rms < 0.02


def test_a_frontier_in_powers_of_two_gives_back_the_law() -> None:
    steps = 2 ** np.round(np.log2(planted(X, **EASY)))
    law = fit_law(X, steps)
    assert octaves(law.predict(X), planted(X, **EASY)) < 0.6  # rounding alone moves 0.5
    assert np.all(np.diff(law.predict(np.geomspace(1e4, 1e9, 200))) >= -1e-9)


def test_noise_on_the_points_averages_out() -> None:
    rng = np.random.default_rng(0)
    x = np.geomspace(1e5, 1e7, 200)
    law = fit_law(x, planted(x, **EASY) * 2 ** rng.normal(0, 0.5, 200))
    assert octaves(law.predict(X), planted(X, **EASY)) < 0.35
    assert law.rms == pytest.approx(0.5, abs=0.08)


def test_predict_gives_n_not_its_logarithm_in_the_shape_of_x() -> None:
    law = fit_law(X, planted(X, **EASY))
    assert law.predict(1e7).shape == ()
    assert law.predict([[1e5, 1e6], [1e7, 1e8]]).shape == (2, 2)
    assert 400 < float(law.predict(1e8)) < 480


def test_order_and_units_do_not_matter() -> None:
    n = planted(X, **EASY)
    law = fit_law(X, n)
    shuffled = np.random.default_rng(1).permutation(len(X))
    assert octaves(fit_law(X[shuffled], n[shuffled]).predict(X), law.predict(X)) < 1e-9
    tokens = fit_law(X * 512, n, variable="tokens")
    assert tokens.variable == "tokens"
    assert octaves(tokens.predict(X * 512), law.predict(X)) < 0.02


def test_smoothing_is_off_unless_asked_for() -> None:
    n = np.where(X < 1e6, 8.0, 512.0)
    sharp, smooth = fit_law(X, n), fit_law(X, n, smooth=1.0)
    assert octaves(sharp.predict(X[[0, -1]]), [8, 512]) < 0.05
    assert sharp.k is not None
    assert smooth.k is not None
    assert smooth.k < sharp.k


def test_the_linear_and_the_falling_form() -> None:
    steps = np.linspace(20, 700, 30)
    rising = 2 ** (7.1 / (1 + np.exp(-0.01 * (steps - 91.7))) + 2.0)
    law = fit_law(steps, rising, linear=True, variable="steps")
    assert law.form == "sigmoid_linear"
    assert octaves(law.predict(steps), rising) < 0.1
    falling = 8192 / rising
    fall = fit_law(steps, falling, linear=True, variable="steps", decreasing=True)
    assert octaves(fall.predict(steps), falling) < 0.1
    assert fall.k is not None
    assert fall.k < 0
    flat = fit_law(steps, falling, linear=True, variable="steps")
    assert flat.form == "constant"  # no rise describes falling points
    assert flat.flags == ("non_monotone",)


def test_a_constant_frontier_is_a_constant_law() -> None:
    law = fit_law(X, np.full(25, 64.0))
    assert law.form == "constant"
    assert law.L == 0
    assert law.predict([1e3, 1e9]).tolist() == pytest.approx([64, 64])
    assert law.plateau == pytest.approx(64)


def test_one_more_point_on_the_law_changes_nothing() -> None:
    n = planted(X, **EASY)
    again = fit_law(np.r_[X, X[7]], np.r_[n, n[7]])
    assert octaves(again.predict(X), fit_law(X, n).predict(X)) < 0.02


@pytest.mark.parametrize(
    ("x", "n", "message"),
    [
        ([1, 2, 3, 4], [1, 2, 3], r"1-D arrays of one length, but got shapes \(4,\) and \(3,\)"),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]], r"1-D arrays of one length"),
        (["a"], [1], r"must be numbers, but numpy says: could not convert"),
        ([0, 2, 3, 4], [1, 2, 3, 4], "`rollouts > 0` .* must hold for every point"),
        ([1, 2, 3, np.inf], [1, 2, 3, 4], "a value that is not finite"),
        ([1, 2, 3, 4], [1, 2, 3, np.nan], "a value that is not finite"),
        ([1, 2, 3, 4], [0.5, 2, 3, 4], "`rollouts_per_problem >= 1` must hold"),
    ],
)
def test_points_that_are_no_points(x: Any, n: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_law(x, n)


def test_too_few_points_are_refused() -> None:
    with pytest.raises(RefusalError, match="`n_points >= 4` .* but got n_points=3"):
        fit_law([1e5, 1e6, 1e7], [8, 64, 512])


def test_predictions_at_nonsense() -> None:
    law = fit_law(X, planted(X, **EASY))
    for x in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="give positive numbers"):
            law.predict(x)
