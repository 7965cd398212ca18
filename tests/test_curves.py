"""Curves by hand: bins, records, noise, declines, broken runs, what is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isocompute.curves import fit_curves
from isocompute.curves.bins import Bins, bin_runs, common_bins, noise_scale
from isocompute.domain import Curve
from isocompute.errors import RefusalError
from isocompute.testing.planted import NOISE, WORLDS, Noise

QUIET = Noise(problems=10_000, samples=1000, ceiling_sd=0.0, midpoint_sd=0.0)


def curve(x, score, *, n=8, run="r", b_p=1, seed=None, tokens=None) -> Curve:
    return Curve(
        problems_per_batch=b_p,
        rollouts_per_problem=n,
        run=run,
        seed=seed,
        rollouts_K=10.0 ** np.asarray(x, dtype=float),
        score_K=np.asarray(score, dtype=float),
        tokens_K=tokens,
    )


def plateau(n_points=24, level=0.6, noise=0.0, seed=0):
    x = np.linspace(4, 7, n_points)
    y = 0.3 + (level - 0.3) / (1 + np.exp(-4 * (x - 4.8)))
    return x, y + np.random.default_rng(seed).normal(0, noise, n_points)


def sweep(name, seed=0, seeds=3, noise=None):
    return WORLDS[name].sample(noise or NOISE["middle"], seeds, np.random.default_rng(seed))


def test_an_evaluation_on_a_point_stays_there_and_one_between_is_shared() -> None:
    bins = Bins(40, 4, 0.1)  # points at 4.0, 4.1, 4.2, 4.3
    binned = bin_runs([curve([4.0, 4.1, 4.15, 4.2], [0.1, 0.2, 0.5, 0.3])], bins, 0.001)
    # 4.15 belongs half to 4.1 and half to 4.2: (0.2 + 0.5 * 0.5) / 1.5 = 0.3
    assert binned.mean_RX[0, :3] == pytest.approx([0.1, 0.3, (0.3 + 0.25) / 1.5])
    assert np.isnan(binned.mean_RX[0, 3])
    assert binned.x_X[1] == pytest.approx((4.1 + 0.5 * 4.15) / 1.5)
    p = binned.mean_RX[0, 1]
    assert binned.variance_RX[0, 1] == pytest.approx(0.001 * p * (1 - p) / 1.5)


def test_shared_evaluations_count_once() -> None:
    rng = np.random.default_rng(0)
    run = curve(np.sort(rng.uniform(4, 6, 50)), rng.uniform(0.4, 0.41, 50))
    bins = common_bins([run])
    total = sum(share.sum() for _, share in bins.shares(np.log10(run.rollouts_K)))
    assert total == pytest.approx(50)
    binned = bin_runs([run], bins, 0.001)
    p = np.clip(binned.mean_RX, 0, 1)
    with np.errstate(invalid="ignore"):
        count = np.nansum(0.001 * p * (1 - p) / binned.variance_RX)
    assert count <= 50 + 1e-6


def test_bins_hold_every_evaluation_and_do_not_move_with_the_data() -> None:
    a, b = curve([4.03, 5.0], [0.1, 0.2]), curve([4.33, 6.7], [0.1, 0.2])
    both, one = common_bins([a, b]), common_bins([a])
    assert both.centre_X[0] <= 4.03
    assert both.centre_X[-1] >= 6.7
    assert np.isclose(both.centre_X[:, None], one.centre_X[None]).any(axis=0).all()


def test_record_breaking_points_are_those_above_every_earlier_bin() -> None:
    score = [0.1, 0.3, 0.2, 0.4, 0.35, 0.5]
    x = [4.0, 4.1, 4.2, 4.3, 4.4, 4.5]
    binned = bin_runs([curve(x, score)], Bins(40, 7, 0.1), 1e-6)
    assert binned.record_score == pytest.approx([0.1, 0.3, 0.4, 0.5])
    assert np.log10(binned.record_rollouts) == pytest.approx([4.0, 4.1, 4.3, 4.5])


def test_strict_records_hold_the_record() -> None:
    score = [0.1, 0.3, 0.2, 0.4, 0.35, 0.5]
    x = [4.0, 4.1, 4.2, 4.3, 4.4, 4.5]
    binned = bin_runs([curve(x, score)], Bins(40, 7, 0.1), 1e-6, strict_records=True)
    assert binned.best_RX[0, :6] == pytest.approx([0.1, 0.3, 0.3, 0.4, 0.4, 0.5])
    assert binned.dominated_RX[0, :6].tolist() == [False, False, True, False, True, False]


def test_step_0_is_in_no_bin() -> None:
    x, y = plateau()
    run = curve(x, y)
    with_zero = run.replace(
        rollouts_K=np.append(0.0, run.rollouts_K), score_K=np.append(0.9, run.score_K)
    )
    bins = common_bins([run])
    a, b = (bin_runs([r], bins, 0.001) for r in (run, with_zero))
    assert np.array_equal(a.mean_RX, b.mean_RX, equal_nan=True)


@pytest.mark.parametrize("m", [300, 1200, 4800])
def test_noise_scale_of_binomial_evaluations_is_one_over_m(m: int) -> None:
    rng = np.random.default_rng(m)
    x = np.linspace(4, 7, 150)
    p = 0.3 + 0.3 / (1 + np.exp(-3 * (x - 5.3)))
    runs = [curve(x, rng.binomial(m, p) / m, run=str(i)) for i in range(10)]
    assert noise_scale(runs) == pytest.approx(1 / m, rel=0.25)


def test_noise_scale_survives_a_collapse_and_needs_three_evaluations() -> None:
    rng = np.random.default_rng(5)
    x = np.linspace(4, 7, 150)
    y = rng.binomial(1200, 0.5, 150) / 1200
    broken = np.where(x > 6.5, 0.0, y)
    assert noise_scale([curve(x, broken)]) == pytest.approx(1 / 1200, rel=0.5)
    assert noise_scale([curve(x[:2], y[:2])]) == 0.0


def test_a_decline_gives_way_to_the_best_so_far_and_noise_does_not() -> None:
    x, y = plateau(60, noise=0.005)
    falling = y - 0.3 * np.maximum(x - 6.2, 0)
    level, fallen = (
        bin_runs([curve(x, v)], common_bins([curve(x, v)]), 1e-4) for v in (y, falling)
    )
    known = np.isfinite(fallen.best_RX[0])
    late = known & (fallen.x_X > 6.7)
    assert fallen.dominated_RX[0, late].all()
    assert fallen.best_RX[0, late] == pytest.approx(np.full(late.sum(), 0.6), abs=0.01)
    assert fallen.mean_RX[0, late].max() < 0.5
    assert level.dominated_RX.mean() < 0.25


def test_a_broken_run_is_left_out_from_where_it_breaks_and_its_siblings_stay() -> None:
    x, y = plateau(60, noise=0.005)
    fine = [curve(x, plateau(60, noise=0.005, seed=s)[1], run=str(s)) for s in (1, 2)]
    broken = curve(x, np.where(x > 6.0, 0.0, y), run="broken")
    binned = bin_runs([broken, *fine], common_bins(fine), 1e-4)
    assert binned.collapsed_R.tolist() == [True, False, False]
    assert np.isnan(binned.best_RX[0, binned.x_X > 6.1]).all()
    known = np.isfinite(binned.best_RX[0]) & (binned.x_X > 5.6)
    assert binned.best_RX[0, known].min() > 0.55
    fit = fit_curves([broken, *fine], draws=0)
    assert fit.value(np.array([6.9]))[0, 0] == pytest.approx(0.6, abs=0.01)


def test_where_every_run_breaks_the_best_checkpoint_stands() -> None:
    x, y = plateau(60, noise=0.005)
    runs = [curve(x, np.where(x > 6.0, 0.0, y), run=str(s)) for s in range(2)]
    binned = bin_runs(runs, common_bins(runs), 1e-4)
    assert not binned.collapsed_R.any()
    late = np.isfinite(binned.best_RX[0]) & (binned.x_X > 6.3)
    assert binned.best_RX[0, late].min() > 0.55


def test_a_curve_that_falls_for_good_is_fitted_to_its_peak_and_held_there() -> None:
    # The true curve has a corner at its peak, at 6.0, which a smooth one cuts by 0.005.
    arm = WORLDS["overfit"].arms[0]
    arm = replace(arm, ceiling=0.7, midpoint=5.3, falls_from=6.0, fall=0.1)
    world = replace(WORLDS["overfit"], arms=(arm,))
    truth = world.truth(QUIET)
    fits = fit_curves(world.sample(QUIET, 1, np.random.default_rng(0)), draws=20)
    (one,) = fits.binned
    assert 5.9 < one.held_from < 6.3
    x = np.linspace(4.5, 6.9, 50)
    error = np.abs(fits.value(x) - truth.score(10**x))[0]
    assert error[x < 5.7].max() < 0.001
    assert error.max() < 0.006
    late = np.array([one.held_from, 6.9, 8.0])
    for held in (fits.value(late)[0], *fits.draw_value(late)[:, 0]):
        assert held == pytest.approx(np.full(3, held[0]))
    final = fit_curves(world.sample(QUIET, 1, np.random.default_rng(0)), draws=0, select="final")
    assert final.binned[0].held_from == np.inf  # there a fall counts


@pytest.mark.parametrize("noise", ["low", "middle", "high"])
def test_curves_that_do_not_fall_are_not_held(noise: str) -> None:
    for name in ("rising", "equal", "falling"):
        for seeds in (1, 3):
            fits = fit_curves(sweep(name, seeds=seeds, noise=NOISE[noise]), draws=0)
            assert [one.held_from for one in fits.binned] == [np.inf] * len(fits.binned)


def test_a_curve_that_only_falls_is_not_held() -> None:
    x = np.linspace(4, 6, 30)
    runs = [curve(x, 0.6 - 0.1 * (x - 4))]
    assert bin_runs(runs, common_bins(runs), 1e-6).held_from == np.inf  # no bins to fit before it


def test_a_run_that_ends_early_does_not_bend_the_mean() -> None:
    x, y = plateau(60)
    high = curve(x[x < 6.0], y[x < 6.0] + 0.03, run="a")
    low = curve(x, y - 0.03, run="b")
    fit = fit_curves([high, low], draws=0)
    assert fit.value(np.array([5.8, 6.9]))[0] == pytest.approx([0.596, 0.6], abs=0.006)


def test_noiseless_sweeps_give_back_their_curves() -> None:
    world = WORLDS["rising"]
    truth = world.truth(QUIET)
    fits = fit_curves(sweep("rising", seeds=2, noise=QUIET), draws=0)
    x = np.array([5.3, 6.0, 6.9])
    assert np.abs(fits.value(x) - truth.score(10**x)).max() < 0.003
    assert np.abs(fits.fit.ceiling - truth.ceilings).max() < 0.005


def test_draws_spread_like_the_estimate_does() -> None:
    """The bootstrap's standard error of the ceiling is the spread over sweeps, within a third."""
    estimates, widths = [], []
    for seed in range(12):
        fits = fit_curves(sweep("late_winner", seed), draws=60, seed=seed)
        estimates.append(fits.fit.ceiling)
        widths.append([d.ceiling.std() for d in fits.draw_J])
    spread = np.sqrt(np.mean(np.var(estimates, axis=0, ddof=1)))
    assert np.mean(widths) == pytest.approx(spread, rel=1 / 3)


def test_order_and_names_of_runs_do_not_matter() -> None:
    runs = sweep("capped")
    a, b = fit_curves(runs, draws=0), fit_curves(runs[::-1], draws=0)
    assert np.allclose(a.value(np.array([5.0, 6.5])), b.value(np.array([5.0, 6.5])), atol=1e-9)


def test_unit_width_seed_and_draws_each_change_something() -> None:
    runs = sweep("capped")
    x = np.array([6.5])
    plain = fit_curves(runs, draws=20)
    assert plain.draw_value(x).shape == (20, 5, 1)
    tokens = fit_curves(runs, draws=0, unit="tokens")
    assert tokens.value(x + 3) == pytest.approx(plain.value(x), abs=1e-3)  # 1000 tokens each
    assert not np.array_equal(fit_curves(runs, draws=0, width=0.1).value(x), plain.value(x))
    assert not np.array_equal(fit_curves(runs, draws=20, seed=1).draw_value(x), plain.draw_value(x))
    assert np.array_equal(fit_curves(runs, draws=20).draw_value(x), plain.draw_value(x))
    assert not np.array_equal(
        fit_curves(runs, draws=0, strict_records=True).value(x), plain.value(x)
    )


def test_without_seeds_ceilings_are_given_the_assumed_spread() -> None:
    runs = sweep("capped", seeds=1)
    assumed, bare = (fit_curves(runs, draws=200, unseen_seed_sd=s) for s in (0.05, 0.0))
    assert not bare.seeds_known
    assert assumed.draw_J[0].ceiling.std() > 1.5 * bare.draw_J[0].ceiling.std()


def test_a_ceiling_is_open_until_the_midpoint_is_passed() -> None:
    x = plateau(40)[0]
    whole = [curve(x, plateau(40, noise=0.004, seed=s)[1], run=str(s)) for s in range(3)]
    early = [c.replace(rollouts_K=c.rollouts_K[x < 4.7], score_K=c.score_K[x < 4.7]) for c in whole]
    assert fit_curves(early, draws=100).ceiling_interval(0, 0.95)[1] is None
    lo, hi = fit_curves(whole, draws=100).ceiling_interval(0, 0.95)
    assert lo is not None
    assert hi is not None
    assert lo - 0.005 < 0.6 < hi + 0.005
    lo_x, hi_x = fit_curves(whole, draws=100).midpoint_interval(0, 0.95)
    assert lo_x is not None
    assert hi_x is not None
    assert lo_x - 0.05 < 4.8 < hi_x + 0.05
    assert 0 < hi_x - lo_x < 0.2
    assert fit_curves(early, draws=100).midpoint_interval(0, 0.95)[1] is None
    assert fit_curves(whole, draws=0).midpoint_interval(0, 0.95) == (None, None)
    narrow = fit_curves(whole, draws=100).ceiling_interval(0, 0.5)
    assert narrow[0] > lo
    assert narrow[1] < hi
    assert fit_curves(whole, draws=0).ceiling_interval(0, 0.95) == (None, None)


def test_too_little_data_takes_part_in_nothing() -> None:
    x, y = plateau(40)
    short = curve([4.0, 5.0], [0.3, 0.5], n=16)
    fits = fit_curves([curve(x, y), short], draws=0)
    assert [(b, n) for b, n, _ in fits.excluded] == [(1, 16)]
    assert "evaluated at 2 budgets" in fits.excluded[0][2]
    with pytest.raises(RefusalError, match="a curve needs evaluations at 5 or more") as info:
        fit_curves([short], draws=0)
    assert info.value.run_next
    with pytest.raises(RefusalError, match="no configuration has them"):
        fit_curves([short.replace(rollouts_K=np.zeros(2))], draws=0)


@pytest.mark.parametrize("offset", [0.0, 0.0137])  # on points of the bins, and between them
def test_five_budgets_make_a_curve_and_four_do_not_wherever_they_lie(offset: float) -> None:
    x = np.log10(2.0) * np.array([12.0, 14, 16, 18, 20]) + offset
    y = 0.3 + 0.3 / (1 + np.exp(-4 * (x - 4.8)))
    assert len(fit_curves([curve(x, y)], draws=0).binned) == 1
    with pytest.raises(RefusalError, match="5 or more budgets"):
        fit_curves([curve(x[:4], y[:4])], draws=0)
    again = np.r_[x[:4], x[:4] + 0.004]  # another look at the same budget is no other budget
    with pytest.raises(RefusalError, match="5 or more budgets"):
        fit_curves([curve(again, np.r_[y[:4], y[:4]])], draws=0)


def test_scores_that_never_change_neither_fall_nor_break() -> None:
    steps = np.r_[0, np.unique(np.round(np.geomspace(1, 6250, 25)))]
    for n in (4, 8, 16, 32, 64):
        reached = steps[steps * 16 * n <= 400_000] * 16 * n
        runs = [
            Curve(
                problems_per_batch=16, rollouts_per_problem=n, run=str(i), rollouts_K=reached,
                score_K=np.full(len(reached), 0.5),
            )
            for i in range(3)
        ]  # fmt: skip
        for factor in (1, 2, 3):
            bins = common_bins(runs)
            wider = Bins(bins.first // factor, bins.n // factor + 2, bins.width * factor)
            binned = bin_runs(runs, wider, 0.0)
            assert not binned.collapsed_R.any()
            assert not binned.dominated_RX.any()


def test_an_early_dip_does_not_make_curves_gompertz() -> None:
    """The level that stands in for a dip looks like the late take-off of a Gompertz curve."""
    arms = ((8, 0.58, 5.2), (16, 0.61, 5.4), (32, 0.635, 5.6), (64, 0.65, 5.85))
    x = np.linspace(3.9, 6.5, 30)
    for shape, sweep in (("logistic", 0), ("gompertz", 2)):
        rng, curves = np.random.default_rng(sweep), []
        for n, ceiling, midpoint in arms:
            for seed in range(3):
                z = 3.5 * (x - midpoint)
                s = 1 / (1 + np.exp(-z)) if shape == "logistic" else np.exp(-np.exp(-z))
                p = 0.4 + (ceiling + 0.005 * rng.standard_normal() - 0.4) * s
                p -= 0.08 * np.exp(-(((x - 4.4) / 0.35) ** 2))
                score = np.concatenate([[0.4], rng.binomial(2000, p) / 2000])
                rollouts = np.concatenate([[0.0], 10**x])
                curves.append(
                    Curve(problems_per_batch=16, rollouts_per_problem=n, run=f"{n}-{seed}",
                          seed=seed, rollouts_K=rollouts, score_K=score)
                )  # fmt: skip
        fits = fit_curves(curves, draws=0)
        assert any(one.dominated_RX.any() for one in fits.binned)
        assert fits.form == shape
