"""The law of a path of best n: the published form, intervals, what the draws identify."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.answers import law as laws
from isocompute.answers.law import Law, averaged, fit_law

X = np.geomspace(1e5, 1e7, 49)
U = np.log10(X)
TESTED = (4.0, 4096.0)


def law(u, L, k, x0, b):
    return L / (1 + np.exp(-k * (u - x0))) + b


def law_of_paths(x_V, path_DV, far_D=None, **how):
    """As it is; a path rests where it ends unless another best is given far out."""
    return laws.law_of_paths(x_V, path_DV, path_DV[:, -1] if far_D is None else far_D, **how)


def as_law(found) -> Law:
    names = ("form", "variable", "L", "k", "x0", "b")
    return Law(**{name: found[name] for name in names})


def planted(D: int = 200, sd: tuple[float, float, float, float] = (0.2, 0.3, 0.05, 0.1), seed=0):
    """Paths of draws whose parameters vary about L=6, k=4, x0=6, b=3."""
    rng = np.random.default_rng(seed)
    p_4D = np.array([[6.0], [4.0], [6.0], [3.0]]) + np.array(sd)[:, None] * rng.normal(size=(4, D))
    L, k, x0, b = p_4D[:, :, None]
    return law(U, L, k, x0, b), p_4D


def test_parameters_and_intervals_are_those_of_the_draws() -> None:
    path_DV, p_4D = planted()
    found = law_of_paths(X, path_DV, tested=TESTED, share=0.0)
    for name, truth, value_D in zip(("L", "k", "x0", "b"), (6, 4, 6, 3), p_4D, strict=True):
        assert found[name] == pytest.approx(truth, rel=0.05)
        low, high = found[f"{name}_interval"]
        assert (low, high) == pytest.approx(np.quantile(value_D, [0.025, 0.975]), rel=0.03)
    assert found["identified"] == {"slope": True, "plateau": True}
    assert found["flags"] == []
    # from the last of the path to where the law goes on to
    ends = path_DV[:, -1], p_4D[0] + p_4D[3]
    quantiles = np.quantile(ends[0], 0.025), np.quantile(ends[1], 0.975)
    assert np.log2(found["plateau_interval"]) == pytest.approx(quantiles, abs=0.05)


def test_the_level_is_that_of_the_intervals() -> None:
    path_DV, _ = planted()
    wide, narrow = (law_of_paths(X, path_DV, tested=TESTED, level=v) for v in (0.95, 0.5))
    for name in ("L", "k", "x0", "b"):
        assert wide[f"{name}_interval"][0] < narrow[f"{name}_interval"][0]
        assert wide[f"{name}_interval"][1] > narrow[f"{name}_interval"][1]


def test_a_falling_path_has_the_falling_form() -> None:
    path_DV, _ = planted()
    found = law_of_paths(X, 12 - path_DV, tested=TESTED, share=0.0)
    assert found["flags"] == ["falling"]
    assert found["k"] == pytest.approx(-4, rel=0.05)
    assert found["k_interval"][0] < -4 < found["k_interval"][1] < 0
    assert (found["L"], found["b"]) == pytest.approx((6, 3), rel=0.05)  # 12 - 3 - 6 = 3
    assert found["b_interval"][0] < 3 < found["b_interval"][1]
    assert found["plateau"] == pytest.approx(8, rel=0.1)
    assert found["plateau_interval"][0] < 8 < found["plateau_interval"][1] < 32  # it began at 512


def test_a_law_of_steps_is_linear_in_them() -> None:
    steps = np.linspace(20, 700, 40)
    path = law(steps, 7.1, 0.01, 91.7, 2.0)
    path_DV = path + np.random.default_rng(1).normal(0, 0.02, (60, 1))
    found = law_of_paths(steps, path_DV, tested=TESTED, variable="steps", share=0.0)
    assert found["form"] == "sigmoid_linear"
    assert np.log2(as_law(found).predict(steps)) == pytest.approx(path, abs=0.05)


def test_near_steps_at_unlike_places_identify_little() -> None:
    rng = np.random.default_rng(2)
    at = rng.uniform(5.3, 6.7, (200, 1))
    found = law_of_paths(X, np.where(at > U, 3.0, 9.0), tested=TESTED, share=0.0)
    assert "slope_not_identified" in found["flags"]
    assert found["identified"]["plateau"]


def test_draws_that_do_not_rise_leave_k_and_x0_unknown() -> None:
    path_DV, _ = planted()
    path_DV[:20] = 5.0
    found = law_of_paths(X, path_DV, tested=TESTED)
    assert found["k_interval"] is found["x0_interval"] is None
    assert found["k"] is not None
    assert found["L_interval"][0] == pytest.approx(0, abs=1e-6)
    few = path_DV.copy()
    few[5:20] = planted()[0][5:20]  # 5 of 200 are within what the level leaves out
    low, high = law_of_paths(X, few, tested=TESTED, share=0.0)["k_interval"]
    assert 3 < low < high < 5  # of the 195 that rise


def test_a_slope_that_may_be_a_step_is_not_identified() -> None:
    k = np.geomspace(2.0, 10.0, 100)[:, None]
    assert law_of_paths(X, law(U, 6, k, 6, 3), tested=TESTED, share=0.0)["identified"]["slope"]
    k = np.geomspace(2.0, 500.0, 100)[:, None]
    wide = law_of_paths(X, law(U, 6, k, 6, 3), tested=TESTED, share=0.0)
    assert not wide["identified"]["slope"]
    assert "slope_not_identified" in wide["flags"]


def test_a_path_that_does_not_change_is_a_constant() -> None:
    found = law_of_paths(X, np.full((50, 49), 5.0), tested=TESTED)
    assert (found["form"], found["L"], found["k"]) == ("constant", 0.0, None)
    assert found["plateau_interval"] == pytest.approx((32, 32))
    assert found["flags"] == []


@pytest.mark.parametrize(
    ("tested", "flags", "known"),
    [
        ((4.0, 4096.0), (), (True, True)),
        ((4.0, 512.0), ("optimum_at_edge",), (True, False)),  # 2**9 is the largest tested
        ((512.0, 4096.0), ("optimum_at_edge",), (False, True)),
    ],
)
def test_a_plateau_at_the_edge_of_what_was_tested_is_open(tested, flags, known) -> None:
    path = np.full((50, 49), 9.0) if tested[0] == 512 else law(U, 6, 8, 5.5, 3) + np.zeros((50, 1))
    path = path + np.random.default_rng(3).normal(0, 0.01, (50, 1))
    path = np.clip(path, *np.log2(tested))
    found = law_of_paths(X, path, tested=tested)
    assert tuple(end is not None for end in found["plateau_interval"]) == known
    assert found["identified"]["plateau"] == all(known)
    assert tuple(f for f in found["flags"] if f == "optimum_at_edge") == flags


def test_a_path_that_goes_on_rising_has_no_known_plateau() -> None:
    path_DV, _ = planted()  # levels off at 2**9
    alone = law_of_paths(X, path_DV, tested=TESTED)
    higher = law_of_paths(X, path_DV, tested=TESTED, far_D=path_DV[:, -1] + 1)
    low, high = higher["plateau_interval"]
    assert low == alone["plateau_interval"][0]
    assert np.log2(high) == pytest.approx(np.quantile(path_DV[:, -1] + 1, 0.975), abs=0.05)
    # A level is where plans beyond the data stay: within half an octave.
    moved = {
        by: law_of_paths(X, path_DV, tested=TESTED, far_D=path_DV[:, -1] + by)
        for by in (-0.6, -0.4, 0.0, 0.4, 0.6)
    }
    assert [found["identified"]["plateau"] for found in moved.values()] == [
        False, True, True, True, False
    ]  # fmt: skip
    edge = np.full(len(path_DV), np.log2(TESTED[1]))
    beyond = law_of_paths(X, path_DV, tested=TESTED, far_D=edge)
    assert beyond["plateau_interval"][1] is None
    assert not beyond["identified"]["plateau"]
    down = 14 - path_DV  # to 2**5
    falls = law_of_paths(X, down, tested=TESTED, far_D=down[:, -1] - 1)
    assert falls["plateau_interval"][0] < 16 < 32 < falls["plateau_interval"][1]


def test_the_law_does_not_leave_what_was_tested() -> None:
    path_DV, _ = planted(sd=(0.0, 0.0, 0.0, 0.0))  # rises to 2**9 with 2**8 tested at most
    found = law_of_paths(X, np.minimum(path_DV, 8.0), tested=(16.0, 256.0))
    assert found["b"] >= 4.0 - 1e-9
    assert found["b"] + found["L"] <= 8.0 + 1e-9


def test_a_path_that_comes_back_is_named() -> None:
    hump = 3 + 5 * np.exp(-((U - 6) ** 2) / 0.1) + 1.0 * (U - 5)
    found = law_of_paths(X, np.tile(hump, (20, 1)), tested=TESTED, share=0.0)
    assert "non_monotone" in found["flags"]
    assert "falling" not in found["flags"]


def test_paths_are_averaged_over_a_share_of_their_span() -> None:
    step = np.where(U < 6, 3.0, 9.0)[None] + np.zeros((20, 1))
    sharp, soft = (law_of_paths(X, step, tested=TESTED, share=s) for s in (0.0, 0.3))
    assert sharp["k"] > 4 * soft["k"]
    assert law_of_paths(X, step, tested=TESTED) == soft


def test_a_running_average_by_hand() -> None:
    u = np.array([0.0, 1.0, 2.0, 3.0])
    path = np.array([[0.0, 3.0, 6.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert averaged(u, path, 2.0).tolist() == [[1.5, 3.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0]]
    assert averaged(u, path, 1.9).tolist() == path.tolist()
    assert averaged(u, path[0], 2.0).tolist() == [1.5, 3.0, 3.0, 3.0]


def test_the_mean_of_ones_is_one() -> None:
    # Seventy shares of 1/70 add up to a hair less, and an n below 1 is refused.
    u = np.linspace(4.0, 6.0, 200)
    n = averaged(u, np.ones(200), 0.7)
    assert n.tolist() == [1.0] * 200
    assert fit_law(10**u, n).predict(1e5) == 1.0


def test_the_document() -> None:
    path_DV, _ = planted()
    found = law_of_paths(X, path_DV, tested=TESTED, variable="tokens")
    assert found["form"] == "sigmoid_log10"
    assert found["variable"] == "tokens"
    assert found["plateau"] == pytest.approx(2 ** (found["L"] + found["b"]))
    assert found["rms"] < 0.05
    flat = law_of_paths(X, np.full((50, 49), 5.0), tested=TESTED)
    assert flat["k"] is flat["k_interval"] is flat["x0"] is None


def test_two_points_at_one_budget_are_both_points() -> None:
    found = fit_law([1e5, 1e5, 1e6, 1e6, 1e7], [8, 8, 64, 256, 512])
    assert found.rms == pytest.approx(np.sqrt(2 / 5), rel=1e-3)  # 6 and 8 about 7, in log2 n


def test_the_mean_path_is_what_fit_law_would_fit() -> None:
    path_DV, _ = planted()
    points = fit_law(X, 2 ** path_DV.mean(axis=0), smooth=0.6)
    found = law_of_paths(X, path_DV, tested=(1.0, 1e6), share=0.3)
    assert as_law(found).predict(X) == pytest.approx(points.predict(X), rel=0.01)
