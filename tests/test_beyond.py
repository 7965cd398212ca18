"""Beyond the data: slopes shared, nearer to planted truth where alike; draws of both forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isocompute.curves.beyond import between_variance, curves_beyond, share_slopes
from isocompute.curves.fits import CurveFits, fit_curves, in_other_form
from isocompute.intervals import draw_interval
from isocompute.laws.backtest import backtest, until
from isocompute.testing.planted import NOISE, WORLDS, World

SEEDS = range(701_000, 701_006)


def quarter(world: World) -> World:
    return world.until(world.max_rollouts / 4)


def fitted(world: World, noise: str, seed: int, draws: int = 100) -> CurveFits:
    curves = world.sample(NOISE[noise], 3, np.random.default_rng(seed))
    return fit_curves(curves, draws=draws, seed=seed)


def error_beyond(world: World, fits: CurveFits, noise: str) -> float:
    """Mean absolute error of the expected scores at ten times the sweep."""
    x = 10 * world.max_rollouts
    truth = world.truth(NOISE[noise]).score(x)[:, 0]
    found = fits.draw_value(np.log10([x]))[:, :, 0].mean(axis=0)
    return float(np.abs(found - truth).mean())


def test_the_spread_of_true_values_is_found_and_noise_is_not_taken_for_it() -> None:
    rng = np.random.default_rng(1)
    variance = np.array([0.01, 0.04, 0.02, 0.09, 0.03, 0.01])
    line = np.stack([np.ones(6), np.arange(6.0)], axis=1)
    noise = rng.standard_normal((4000, 6)) * np.sqrt(variance)
    for spread in (0.0, 0.3):
        true = 1.0 - 0.2 * np.arange(6) + spread * rng.standard_normal((4000, 6))
        found = [between_variance(row, variance, line) for row in true + noise]
        # Never below 0, so that it is a little too large on average where there is none.
        assert np.mean(found) == pytest.approx(spread**2, abs=0.01)
    assert between_variance(1.0 - 0.2 * np.arange(6), variance, line) == pytest.approx(0.0)


def test_scores_beyond_a_sweep_are_predicted_better_where_slopes_are_alike() -> None:
    world = quarter(WORLDS["rising"])
    before, after, slopes = [], [], []
    for seed in SEEDS:
        fits = fitted(world, "middle", seed)
        shared = share_slopes(fits, seed=seed)
        before.append(error_beyond(world, fits, "middle"))
        after.append(error_beyond(world, shared, "middle"))
        slopes.append([np.abs(np.log(f.fit.slope / 3.0)).mean() for f in (fits, shared)])
    assert np.mean(after) < 0.85 * np.mean(before)
    off, off_shared = np.mean(slopes, axis=0)
    assert off_shared < 0.85 * off


@pytest.mark.parametrize(
    "slopes",
    [(3.0, 2.0, 4.5, 2.5, 5.0, 2.2, 4.0), (5.0, 4.4, 3.9, 3.4, 3.0, 2.6, 2.3)],
    ids=["scattered", "falling with n"],
)
def test_slopes_that_differ_are_not_made_equal(slopes: tuple[float, ...]) -> None:
    arms = zip(WORLDS["rising"].arms, slopes, strict=True)
    world = quarter(replace(WORLDS["rising"], arms=tuple(replace(a, slope=s) for a, s in arms)))
    before, after, off = [], [], []
    for seed in SEEDS:
        fits = fitted(world, "low", seed)
        shared = share_slopes(fits, seed=seed)
        before.append(error_beyond(world, fits, "low"))
        after.append(error_beyond(world, shared, "low"))
        off.append(np.log(shared.fit.slope / slopes))
    assert np.mean(after) < 1.05 * np.mean(before)
    assert np.abs(np.mean(off, axis=0)).max() < 0.1


@pytest.mark.long
def test_intervals_beyond_the_sweep_hold_where_slopes_scatter() -> None:
    """Arms whose slopes are drawn anew for each sweep, as the estimator assumes."""
    held: list[bool] = []
    for seed in range(701_010, 701_030):
        slopes = 3.0 * np.exp(0.15 * np.random.default_rng(seed).standard_normal(7))
        arms = zip(WORLDS["rising"].arms, slopes, strict=True)
        world = quarter(replace(WORLDS["rising"], arms=tuple(replace(a, slope=s) for a, s in arms)))
        x = 4 * world.max_rollouts
        truth = world.truth(NOISE["middle"]).score(x)[:, 0]
        shared = share_slopes(fitted(world, "middle", seed), seed=seed)
        low, high = draw_interval(shared.draw_value(np.log10([x]))[:, :, 0], 0.9)
        held.extend((low <= truth) & (truth <= high))
    assert 0.82 <= np.mean(held) <= 0.98  # seven configurations each of twenty sweeps


def test_what_cannot_be_shared_comes_back_as_it_is() -> None:
    few = fitted(quarter(WORLDS["late_winner"]), "middle", 701_000)
    assert share_slopes(few) is few
    undrawn = fitted(quarter(WORLDS["rising"]), "middle", 701_000, draws=0)
    assert share_slopes(undrawn) is undrawn


def test_a_slope_that_is_not_identified_neither_counts_nor_moves() -> None:
    fits = fitted(quarter(WORLDS["rising"]), "middle", 701_000)
    slope = fits.fit.slope.copy()
    slope[0] = 30.0  # the bound of the search
    wild = fits.draw_J[6]._replace(slope=np.geomspace(1, 30, 100))
    shared = share_slopes(
        replace(fits, fit=fits.fit._replace(slope=slope), draw_J=(*fits.draw_J[:6], wild))
    )
    assert shared.fit.slope[0] == 30.0
    assert shared.fit.slope[6] == slope[6]
    assert np.abs(np.log(shared.fit.slope[1:6] / slope[1:6])).max() < 0.3
    assert (shared.fit.slope[1:6] != slope[1:6]).all()
    bounds = replace(fits, fit=fits.fit._replace(slope=np.full(7, 30.0)))
    assert share_slopes(bounds) is bounds


def gompertz_draws(fits: CurveFits) -> int:
    """Draws of Gompertz curves; a draw has one form for all configurations."""
    counted = np.stack([one.gompertz for one in fits.draw_J])
    assert (counted == counted[0]).all()
    return int(counted[0].sum())


@pytest.mark.parametrize(
    ("gain", "share"), [(-400.0, 0), (-2.0, 27), (0.0, 50), (2.0, 73), (2 * np.log(19), 95)]
)
def test_draws_beyond_the_sweep_are_of_each_form_as_often_as_it_is_likely(
    gain: float, share: int
) -> None:
    """Shares of 100 draws: 1 / (1 + exp(-gain / 2))."""
    fits = replace(fitted(quarter(WORLDS["rising"]), "high", 701_000), gompertz_gain=gain)
    assert fits.form == "logistic"
    beyond = curves_beyond(fits)
    assert gompertz_draws(beyond) == share
    assert beyond.form == "logistic"
    of_gompertz = replace(in_other_form(fits), gompertz_gain=gain)
    assert of_gompertz.form == "gompertz"
    assert gompertz_draws(curves_beyond(of_gompertz)) == share


def test_curves_that_may_only_be_logistic_stay_so_beyond_the_sweep() -> None:
    curves = quarter(WORLDS["gompertz"]).sample(NOISE["middle"], 3, np.random.default_rng(1))
    fits = fit_curves(curves, draws=20, logistic_only=True)
    assert fits.gompertz_gain > 10
    assert gompertz_draws(curves_beyond(fits)) == 0
    assert gompertz_draws(curves_beyond(replace(fits, logistic_only=False))) == 20


def test_one_draw_has_no_regression_and_stays_as_it_is() -> None:
    fits = fitted(quarter(WORLDS["rising"]), "middle", 701_000, draws=1)
    assert np.isfinite(curves_beyond(fits).draw_value(np.array([7.0]))).all()


def test_the_other_form_is_what_a_fit_of_that_form_is() -> None:
    world = quarter(WORLDS["gompertz"])
    curves = world.sample(NOISE["low"], 3, np.random.default_rng(701_000))
    fits = fit_curves(curves, draws=20, seed=3)
    assert fits.form == "gompertz"
    other, asked = in_other_form(fits), fit_curves(curves, draws=20, seed=3, logistic_only=True)
    x = np.linspace(4.5, 7.5, 20)
    np.testing.assert_array_equal(other.draw_value(x), asked.draw_value(x))
    np.testing.assert_array_equal(other.value(x), asked.value(x))
    np.testing.assert_array_equal(in_other_form(other).draw_value(x), fits.draw_value(x))


@pytest.mark.long
def test_scores_are_predicted_better_where_the_form_cannot_be_told() -> None:
    """Gompertz worlds at high noise, in sweeps whose curves are taken for logistic ones."""
    world = quarter(WORLDS["gompertz"])
    one_form, both = [], []
    for seed in range(701_000, 701_040):
        fits = fitted(world, "high", seed, draws=50)
        if fits.form == "logistic":
            one_form.append(error_beyond(world, share_slopes(fits, seed=seed), "high"))
            both.append(error_beyond(world, curves_beyond(fits, seed=seed), "high"))
    assert len(both) >= 5
    assert np.mean(both) < np.mean(one_form)


def test_a_small_dip_before_the_rise_says_nothing_about_the_form() -> None:
    """Dips of 0.04, three to four standard errors of a bin, too shallow to be replaced."""
    world = quarter(WORLDS["rising"])
    fits = []
    for seed in range(701_000, 701_008):
        curves = world.sample(NOISE["high"], 3, np.random.default_rng(seed))
        dipped = []
        for c in curves:
            x = np.log10(np.maximum(c.rollouts_K, 1.0))
            score = c.score_K - 0.04 * np.exp(-(((x - 4.2) / 0.25) ** 2))
            dipped.append(c.replace(score_K=np.clip(score, 0.0, 1.0)))
        fits.append(fit_curves(dipped, draws=0))
    assert sum(fit.form == "gompertz" for fit in fits) <= 1  # 3 while such dips had a say
    assert np.mean([1 / (1 + np.exp(-fit.gompertz_gain / 2)) for fit in fits]) < 0.5


@pytest.mark.long
def test_the_back_test_predicts_as_a_plan_does() -> None:
    """The mean of draws of both forms, where the curves before the cut are taken for logistic."""
    world = quarter(WORLDS["gompertz"])
    curves = world.sample(NOISE["high"], 1, np.random.default_rng(910_009))
    full = fit_curves(curves, draws=20)
    rows = backtest(curves, full, unit="rollouts", level=0.95, seed=0)["rows"]
    cut = rows[-1]["cut"]
    early = fit_curves([until(c, cut, "rollouts") for c in curves], draws=200, seed=0)
    beyond = curves_beyond(early, seed=0)
    assert 0 < gompertz_draws(beyond) < 200
    for row in (row for row in rows if row["cut"] == cut):
        j = list(early.rollouts_per_problem_J).index(row["rollouts_per_problem"])
        x = np.log10([row["x"]])
        assert row["predicted"] == pytest.approx(beyond.draw_J[j].value(x).mean())
