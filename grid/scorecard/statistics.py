"""What is measured of sweeps: curves in, an estimate with its 95% interval out.

Two kinds of interval. Of n* and of whatever else the model of a sweep says: its draws (runs are
the unit). Of scores at equal rollouts: Student's t over seeds, paired by (B_p, n, seed), one
number per seed, so that configurations of one seed never count as independent.

Shape legend: D draws, X budgets, J configurations, S seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from isocompute.answers import Fit, fit_sweep
from isocompute.domain import Curve
from scorecard.verdicts import Estimate

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Sweep = Sequence[Curve]
Key = tuple[int, int]  # (B_p, n)
Runs = Mapping[tuple[int, int, int], float]  # (B_p, n, seed) -> a number of that run

LEVEL = 0.95
SMALL, LARGE = (
    4,
    64,
)  # the two n that every world has; sixteen times apart, as the paper's 8 and 128
LAST = 0.2  # of a run's rollouts: the mean of its evaluations there is its final score. Half of it
# leaves one evaluation at the largest n (noise of a single one, 0.014); twice averages over a rise.
TAIL = 4.0  # the last factor of budget, over which n* is asked to be level
PILOT = 16.0  # a pilot ends at the budget divided by this
WINDOW = 0.25  # decades of the moving mean in which a peak is looked for


def spent(*sweeps: Sweep) -> float:
    """Rollouts of all runs."""
    return float(sum(c.rollouts_K[-1] for sweep in sweeps for c in sweep))


def seeds_of(*sweeps: Sweep) -> int:
    """Runs of the configuration that has fewest."""
    counts: list[int] = []
    for sweep in sweeps:
        of: dict[Key, int] = defaultdict(int)
        for c in sweep:
            of[c.configuration] += 1
        counts += of.values()
    return min(counts, default=0)


def one_n(sweep: Sweep) -> bool:
    """Whether only one n is there, so that none can be best."""
    return len({c.rollouts_per_problem for c in sweep}) < 2


_ONE_N = "one n only so far"


def _drawn(
    draw_D: FloatArray, *sweeps: Sweep, note: str = "",
    too_low_D: BoolArray | None = None, too_high_D: BoolArray | None = None,
) -> Estimate:  # fmt: skip
    """Median and equal-tailed interval of draws.

    Args:
        draw_D: the draws.
        sweeps: what they are of.
        note: what limits them.
        too_low_D, too_high_D: draws that are bounds, as an n* at an end of those tested is: the
            truth may lie anywhere above, or below. An end of the interval beyond them is open.
    """
    low_D = draw_D if too_high_D is None else np.where(too_high_D, -np.inf, draw_D)
    high_D = draw_D if too_low_D is None else np.where(too_low_D, np.inf, draw_D)
    low = np.quantile(low_D, (1 - LEVEL) / 2, method="inverted_cdf")
    high = np.quantile(high_D, (1 + LEVEL) / 2, method="inverted_cdf")
    return Estimate(
        float(np.median(draw_D)), float(low), float(high), seeds_of(*sweeps), spent(*sweeps), note
    )


def unknown(note: str) -> Estimate:
    """No estimate, and why."""
    return Estimate(math.nan, -math.inf, math.inf, 0, 0.0, note)


# n* and its path


def rise(sweep: Sweep, unit: str = "rollouts") -> Estimate:
    """Octaves by which n* rises from where the frontier has left its floor to the largest budget.

    The bounds are the package's own for a rise (one-sided 95% each).
    """
    if one_n(sweep):
        return unknown(_ONE_N)
    return _rise(fit_sweep(sweep, unit=unit), sweep)


def _rise(fit: Fit, sweep: Sweep) -> Estimate:
    of, note = fit.rise, _edge(fit)
    high = math.inf if note else of.upper_bound
    return Estimate(of.octaves, of.lower_bound, high, seeds_of(sweep), spent(sweep), note)


def rise_at_fixed_batch(sweep: Sweep, batch_size: int) -> Estimate:
    """Octaves by which n* rises with M at one batch size; B_p* = B / n* falls by as much."""
    chosen = [c for c in sweep if c.configuration.batch_size == batch_size]
    return _rise(fit_sweep(chosen, fix=("batch_size", batch_size)), chosen)


def turn_at_fixed_batch(sweep: Sweep, batch_size: int) -> Estimate:
    """Octaves by which n*(M) turns back at one batch size.

    log2 n* at the start, in the middle (log) and at the end of the support. Where the two moves
    have opposite signs: the smaller of them; else minus the smaller.
    """
    fit = fit_sweep(sweep, fix=("batch_size", batch_size))
    _, log2_n_DX = fit.path
    first_D, middle_D, last_D = (log2_n_DX[:, i] for i in (0, log2_n_DX.shape[1] // 2, -1))
    up_D, on_D = middle_D - first_D, last_D - middle_D
    least_D = np.minimum(abs(up_D), abs(on_D))
    chosen = [c for c in sweep if c.configuration.batch_size == batch_size]
    return _drawn(np.where(up_D * on_D < 0, least_D, -least_D), chosen)


def loss_of_staying(sweep: Sweep) -> Estimate:
    """Score lost at the largest budget by the n that was best at a quarter of it.

    Where n* has levelled off nothing is lost. Each draw's own best is the yardstick, so noise alone
    makes the loss positive: levelling off is not claimed too soon. An n* that is the largest tested
    leaves open what a larger one would have gained. Where n* never rose there is no answer.
    """
    fit = fit_sweep(sweep)
    if one_n(sweep) or not fit.rise.claimed:
        return unknown("n* is not seen to rise, so there is nothing to level off")
    at = fit.support[1]
    stayed = fit.configurations.index(fit.best_at(at / TAIL).configuration)
    score_DJ = fit.scores_at(at)
    found = _drawn(score_DJ.max(axis=1) - score_DJ[:, stayed], sweep, note=_edge(fit))
    return found._replace(high=math.inf) if found.note else found


def shift(a: Sweep, b: Sweep, unit: str = "rollouts") -> Estimate:
    """log2 n* of b minus that of a, at the largest budget that both compared.

    The draws of both are taken as independent. Where both are of the same runs under two metrics
    they are not, and the interval is wider than it need be.
    """
    if one_n(a) or one_n(b):
        return unknown(_ONE_N)
    fits = [fit_sweep(one, unit=unit) for one in (a, b)]
    at = min(fit.support[1] for fit in fits)
    log2_DS = [_log2_n(fit, at) for fit in fits]
    (a_small_D, a_large_D), (b_small_D, b_large_D) = map(_at_end, fits, log2_DS)
    note = "; ".join(filter(None, (_edge(fit) for fit in fits)))
    return _drawn(
        log2_DS[1] - log2_DS[0], a, b, note=note,
        too_low_D=a_small_D | b_large_D, too_high_D=a_large_D | b_small_D,
    )  # fmt: skip


def shift_of_rise(sweep: Sweep) -> Estimate:
    """The rise in octaves by tokens minus that by rollouts."""
    changes_D = []
    for unit in ("tokens", "rollouts"):
        fit = fit_sweep(sweep, unit=unit)
        x_X, log2_n_DX = fit.path
        changes_D.append(log2_n_DX[:, -1] - log2_n_DX[:, np.abs(x_X - fit.rise.start).argmin()])
    return _drawn(changes_D[0] - changes_D[1], sweep)


def direction(sweep: Sweep) -> Estimate:
    """D log n* / d log B_p at equal budget: 0 where n counts, -1 where the batch does."""
    found = fit_sweep(sweep, joint=True).direction
    if found["d_log_n_d_log_bp"] is None:
        return unknown("the best n lies at an end of those tested")
    low, high = found["interval"]
    return Estimate(found["d_log_n_d_log_bp"], low, high, seeds_of(sweep), spent(sweep))


def _log2_n(fit: Fit, at: float) -> FloatArray:
    """log2 n* of every draw at a budget of the support."""
    x_X, log2_n_DX = fit.path
    return np.array([np.interp(np.log10(at), x_X, n_X) for n_X in log2_n_DX])


def _at_end(fit: Fit, log2_n_D: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Which draws of log2 n* are the smallest n tested, and which the largest."""
    log2_n_J = np.log2([c.rollouts_per_problem for c in fit.configurations])
    return log2_n_D < log2_n_J.min() + 1e-6, log2_n_D > log2_n_J.max() - 1e-6


def _edge(fit: Fit) -> str:
    n = sorted({c.rollouts_per_problem for c in fit.curves})
    last = 2 ** np.median(fit.path[1][:, -1])
    return f"n* is the largest tested, {n[-1]}: a bound" if last > n[-1] * 0.99 else ""


# What B_p and n are worth


def spread_share(sweep: Sweep) -> Estimate:
    """(spread over n - spread over B_p) / their sum, at the largest budget compared.

    1/3 says that n moves the score twice as much as B_p does, 0 that both move it alike. Spreads
    are largest minus smallest score. Configurations that ended before that budget, or had fewer
    than 20 updates by then, are left out.
    """
    fit = fit_sweep(sweep, joint=True)
    last = fit.support[1]
    keys = [tuple(c) for c in fit.configurations]
    ended_J = 10**fit.posterior.last_J < 0.9 * last
    trained = [j for j, (b_p, n) in enumerate(keys) if 20 * b_p * n <= last and not ended_J[j]]
    score_DJ = fit.scores_at(last)

    def mean_spread(shared: int) -> FloatArray:
        groups = defaultdict(list)
        for j in trained:
            groups[keys[j][shared]].append(j)
        several = [js for js in groups.values() if len(js) > 1]
        spread_D: FloatArray = np.mean([np.ptp(score_DJ[:, js], axis=1) for js in several], axis=0)
        return spread_D

    over_n_D, over_bp_D = mean_spread(0), mean_spread(1)
    return _drawn((over_n_D - over_bp_D) / np.maximum(over_n_D + over_bp_D, 1e-9), sweep)


def loss_of_smallest_bp(sweep: Sweep) -> tuple[FloatArray, FloatArray]:
    """Draws of what the smallest B_p scores below the best of all, and of that best."""
    fit = fit_sweep(sweep, joint=True)
    score_DJ = fit.scores_at(fit.support[1])
    least = min(c.problems_per_batch for c in fit.configurations)
    own = [j for j, c in enumerate(fit.configurations) if c.problems_per_batch == least]
    best_D = score_DJ.max(axis=1)
    return best_D - score_DJ[:, own].max(axis=1), best_D


def bp_minimum(easy: Sweep, hard: Sweep) -> Estimate:
    """Share of the best score that the smallest B_p loses: on Hard minus on Easy."""
    lost_DS = [lost_D / best_D for lost_D, best_D in map(loss_of_smallest_bp, (easy, hard))]
    return _drawn(lost_DS[1] - lost_DS[0], easy, hard)


# Scores at equal rollouts


def final_scores(sweep: Sweep) -> dict[tuple[int, int, int], float]:
    """Mean score of every run over the last fifth of the rollouts that all its peers reached."""
    end = min(c.rollouts_K[-1] for c in sweep)
    out = {}
    for c in sweep:
        kept_K = c.rollouts_K <= end * (1 + 1e-9)
        late_K = kept_K & (c.rollouts_K > (1 - LAST) * end)
        late_K[np.flatnonzero(kept_K)[-1]] = True
        out[(*c.configuration, c.seed or 0)] = float(c.score_K[late_K].mean())
    return out


def over_seeds(values: Sequence[float], rollouts: float = 0.0, note: str = "") -> Estimate:
    """Mean over seeds with Student's interval; one seed has none."""
    value_S = np.array([v for v in values if math.isfinite(v)])
    if not len(value_S):
        return unknown("no runs in common")
    mean = float(np.mean(value_S))
    if len(value_S) < 2:
        return Estimate(mean, -math.inf, math.inf, 1, rollouts, "one seed has no interval")
    error = float(np.std(value_S, ddof=1)) / math.sqrt(len(value_S))
    half = float(student.ppf((1 + LEVEL) / 2, len(value_S) - 1)) * error
    return Estimate(mean, mean - half, mean + half, len(value_S), rollouts, note)


def per_seed(difference: Runs) -> list[float]:
    """One number per seed: the mean over its configurations."""
    by_seed = defaultdict(list)
    for (_, _, seed), value in difference.items():
        by_seed[seed].append(value)
    return [float(np.mean(values)) for _, values in sorted(by_seed.items())]


def contrast_runs(a: Runs, b: Runs, rollouts: float = 0.0) -> Estimate:
    """Number of b minus that of a, paired by (B_p, n, seed)."""
    return over_seeds(per_seed({key: b[key] - a[key] for key in b if key in a}), rollouts)


def contrast(a: Sweep, b: Sweep) -> Estimate:
    """Final score of b minus that of a, at equal rollouts, paired by (B_p, n, seed)."""
    end = min(c.rollouts_K[-1] for c in (*a, *b))
    both = [final_scores([c.until(end) for c in one]) for one in (a, b)]
    return contrast_runs(both[0], both[1], spent(a, b))


def pair_runs(
    runs: Runs, small: int = SMALL, large: int = LARGE, rollouts: float = 0.0
) -> Estimate:
    """Number at the large n minus that at the small n, paired by (B_p, seed)."""
    at = {(b_p, seed): v for (b_p, n, seed), v in runs.items() if n == small}
    both = {
        (b_p, n, seed): v - at[b_p, seed]
        for (b_p, n, seed), v in runs.items()
        if n == large and (b_p, seed) in at
    }
    return over_seeds(per_seed(both), rollouts)


def pair(sweep: Sweep, small: int = SMALL, large: int = LARGE) -> Estimate:
    """Final score at the large n minus that at the small n, paired by (B_p, seed)."""
    two = [c for c in sweep if c.rollouts_per_problem in (small, large)]
    if {c.rollouts_per_problem for c in two} != {small, large}:
        return unknown(f"n = {small} and n = {large} are not both there")
    runs: dict[tuple[int, int, int], float] = {}
    for b_p in {c.problems_per_batch for c in two}:  # at equal rollouts within a B_p
        runs |= final_scores([c for c in two if c.problems_per_batch == b_p])
    return pair_runs(runs, small, large, spent(two))


def moved(sweep: Sweep) -> Estimate:
    """Final score minus the score before training, per seed."""
    start = {(*c.configuration, c.seed or 0): float(c.score_K[0]) for c in sweep}
    ends = {
        (*c.configuration, c.seed or 0): final_scores([c])[(*c.configuration, c.seed or 0)]
        for c in sweep
    }
    return contrast_runs(start, ends, spent(sweep))


def fall(sweep: Sweep) -> Estimate:
    """Score lost since the peak, where a run's peak is found in the other seeds' mean.

    A peak sought in the same run would be the largest of its noise; so flat runs fall by 0 here.
    """
    runs: dict[Key, list[Curve]] = defaultdict(list)
    for c in sweep:
        runs[c.configuration].append(c)
    lost: dict[tuple[int, int, int], float] = {}
    for key, peers in runs.items():
        if len(peers) < 2:
            continue
        end = min(c.rollouts_K[-1] for c in peers)
        first = max(c.rollouts_K[c.rollouts_K > 0][0] for c in peers)
        x_X = np.linspace(np.log10(first), np.log10(end), 40)
        smooth_SX = np.array([_smooth(c, x_X) for c in peers])
        for s, c in enumerate(peers):
            others_X = np.delete(smooth_SX, s, axis=0).mean(axis=0)
            peak = int(others_X.argmax())
            lost[(*key, c.seed or 0)] = float(smooth_SX[s, peak] - smooth_SX[s, -1])
    return over_seeds(per_seed(lost), spent(sweep))


def _smooth(curve: Curve, x_X: FloatArray) -> FloatArray:
    """Moving mean over a quarter of a decade; where no evaluation lies, the nearest one."""
    positive_K = curve.rollouts_K > 0
    x_K, y_K = np.log10(curve.rollouts_K[positive_K]), curve.score_K[positive_K]
    near_XK = np.abs(x_X[:, None] - x_K) <= WINDOW / 2
    nearest_X = np.abs(x_X[:, None] - x_K).argmin(axis=1)
    near_XK[np.arange(len(x_X)), nearest_X] = True
    out: FloatArray = near_XK @ y_K / near_XK.sum(axis=1)
    return out


# Beyond the paper


def pilot_loss(sweep: Sweep) -> Estimate:
    """Score lost at the largest budget by the n that a sixteenth of it would have chosen."""
    if one_n(sweep):
        return unknown(_ONE_N)
    fit = fit_sweep(sweep)
    at = fit.support[1]
    pilot = fit_sweep([c.until(at / PILOT) for c in sweep if c.rollouts_K[1] <= at / PILOT])
    chosen = pilot.best_at(at).configuration
    score_DJ = fit.scores_at(at)
    lost_D = score_DJ.max(axis=1) - score_DJ[:, fit.configurations.index(chosen)]
    best = fit.best_at(at).tested_rollouts_per_problem
    note = f"the pilot chose n = {chosen.rollouts_per_problem}, the whole sweep {best}"
    return _drawn(lost_D, sweep, note=note)


def one_seed_loss(sweep: Sweep) -> Estimate:
    """Score lost by choosing n from the final scores of a single seed, by the whole sweep's fit."""
    if one_n(sweep):
        return unknown(_ONE_N)
    fit = fit_sweep(sweep)
    at = fit.support[1]
    expected = fit.expected_scores(at)
    runs = final_scores([c for c in sweep if c.rollouts_K[-1] >= at * 0.99])
    lost = []
    for seed in sorted({s for _, _, s in runs}):
        own = {k: v for k, v in runs.items() if k[2] == seed}
        b_p, n, _ = max(own, key=lambda key: own[key])
        chosen = next(c for c in expected if tuple(c) == (b_p, n))
        lost.append(max(expected.values()) - expected[chosen])
    return over_seeds(lost, spent(sweep))
