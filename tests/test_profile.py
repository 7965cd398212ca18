"""Profile intervals of ceilings: the least loss there is, and what the draws let it cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from isocompute.curves.draws import CURVE_BOUNDS
from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.curves.means import GOMPERTZ_BOUNDS
from isocompute.curves.profile import _crossing, ceiling_profile, profile_loss
from isocompute.laws import fit_sweep
from isocompute.testing.planted import NOISE, WORLDS


def fitted(world: str, *, rollouts: float | None = None, draws: int = 200) -> CurveFits:
    planted = WORLDS[world] if rollouts is None else WORLDS[world].until(rollouts)
    return fit_curves(planted.sample(NOISE["middle"], 3, np.random.default_rng(5)), draws=draws)


@pytest.mark.long
@pytest.mark.parametrize("world", ["rising", "gompertz"])
def test_the_loss_at_a_ceiling_is_the_least_there_is(world: str) -> None:
    """Against scipy on the same loss, from several starts; and never below the free fit's."""
    fits = fitted(world, draws=0)
    of, j = fits.means, 3
    x, weight = of.x_JX[j], of.weight_JX[j]
    y = np.where(weight > 0, of.mean_JX[j], 0.0)
    anchor = float(of.anchor[0][j]), float(of.anchor[1][j])
    assert (of.bounds == GOMPERTZ_BOUNDS) == (world == "gompertz")
    best = float(fits.fit.ceiling[j])
    ceilings = np.array([best - 0.02, best, best + 0.03])
    found = profile_loss(x, y, weight, ceilings, of.bounds, anchor)
    assert found[1] == pytest.approx(fits.fit.loss[j], rel=1e-6)
    for ceiling, ours in zip(ceilings, found, strict=True):

        def loss(p: np.ndarray, ceiling: float = ceiling) -> float:
            z = np.exp(p[1]) * (x - p[2])
            s = np.exp(-np.exp(-z)) if of.bounds.gompertz else 1 / (1 + np.exp(-z))
            square = weight * (y - p[0] - (ceiling - p[0]) * s) ** 2
            return float(square.sum() + anchor[1] * (p[0] - anchor[0]) ** 2)

        starts = [(0.4, np.log(3.0), m) for m in (4.9, 5.5)]
        tight = {"maxiter": 4000, "xatol": 1e-8, "fatol": 1e-9}
        theirs = min(minimize(loss, s, method="Nelder-Mead", options=tight).fun for s in starts)
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_wider_levels_are_wider_and_hold_the_fit() -> None:
    fits = fitted("rising")
    for j in range(len(fits.binned)):
        narrow, wide = ceiling_profile(fits, j, 0.5), ceiling_profile(fits, j, 0.95)
        assert narrow is not None
        assert wide is not None
        assert wide[0] < narrow[0] < fits.fit.ceiling[j] < narrow[1] < wide[1]  # type: ignore[operator]
        lo, hi = fits.ceiling_interval(j, 0.95)
        assert wide[1] - wide[0] == pytest.approx(hi - lo, rel=0.5)  # type: ignore[operator]


@pytest.mark.long
def test_a_ceiling_that_nothing_excludes_is_open() -> None:
    """Trained to 65,000 rollouts, where the steep part begins."""
    open_ends = fit_sweep(
        WORLDS["rising"].until(2.0**19).sample(NOISE["middle"], 3, np.random.default_rng(0)),
        draws=100,
    ).document["curves"]
    assert any(c["ceiling_interval"][1] is None for c in open_ends)
    for row in open_ends:
        if row["ceiling_interval"][1] is None:
            assert row["ceiling_profile_interval"][1] is None
    assert _crossing(np.array([0.6, 0.7, 1.0]), np.array([0.0, 1.0, 1.5]), 2.0) is None
    assert _crossing(np.array([0.6, 0.7, 1.0]), np.array([0.0, 1.0, 2.0]), 1.5) == 0.85
    assert ceiling_profile(fitted("rising", draws=0), 0, 0.95) is None


@pytest.mark.long
def test_on_planted_ceilings_it_holds_as_often_as_the_draws_do() -> None:
    """30 sweeps of 3 ceilings, 90%: three standard errors are 9.5 points."""
    world = WORLDS["late_winner"]
    held = []
    for seed in range(30):
        fits = fit_curves(
            world.sample(NOISE["middle"], 3, np.random.default_rng(710_000 + seed)), draws=100
        )
        for j, arm in enumerate(world.arms):
            low, high = ceiling_profile(fits, j, 0.90) or (None, None)
            assert low is not None
            assert high is not None
            held.append(low <= arm.ceiling <= high)
    assert 0.80 <= np.mean(held) <= 0.99


def test_gompertz_ceilings_are_profiled_in_their_own_form() -> None:
    fits = fitted("gompertz", rollouts=2.0**23)
    assert fits.form == "gompertz"
    interval = ceiling_profile(fits, 0, 0.95)
    assert interval is not None
    logistic = replace(
        fits, means=fits.means._replace(bounds=replace(GOMPERTZ_BOUNDS, gompertz=False))
    )
    assert ceiling_profile(logistic, 0, 0.95) != interval


def test_a_start_that_is_flat_over_the_data_is_no_division_by_zero() -> None:
    """A large n has no data in the first bins, and a steep curve there has no shape further on."""
    x = np.linspace(3.0, 9.0, 60)
    y = 0.4 + 0.2 / (1 + np.exp(-3.0 * (x - 6.0)))
    weight = np.where(x > 5.0, 1.0, 0.0)
    with np.errstate(all="raise", under="ignore", over="ignore"):
        found = profile_loss(x, y, weight, np.array([0.58, 0.6, 0.62]), CURVE_BOUNDS)
    assert np.isfinite(found).all()
    assert found[1] == pytest.approx(0.0, abs=1e-9)
    assert found[[0, 2]].min() > 1e-4
