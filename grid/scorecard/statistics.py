"""What the model of a sweep says: curves in, an estimate with its 95% interval out.

Of n*, and of whatever else is read off the model's draws (runs are the unit). What needs no model
is in `scorecard.scores`.

Shape legend: D draws, X budgets, J configurations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isocompute.answers import Fit, fit_sweep
from isocompute.domain import Curve
from scorecard.verdicts import Estimate

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Sweep = Sequence[Curve]
Key = tuple[int, int]  # (B_p, n)

LEVEL = 0.95
TAIL = 4.0  # the last factor of budget, over which n* is asked to be level
PILOT = 16.0  # a pilot ends at the budget divided by this


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


ONE_N = "one n only so far"
_NO_RISE = "n* is not seen to rise"


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
        return unknown(ONE_N)
    return _rise(fit_sweep(sweep, unit=unit), sweep)


def _rise(fit: Fit, sweep: Sweep) -> Estimate:
    of, note = fit.rise, _edge(fit)
    high, add = (math.inf, (2 * fit.tested_n[-1],)) if note else (of.upper_bound, ())
    return Estimate(of.octaves, of.lower_bound, high, seeds_of(sweep), spent(sweep), note, add)


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
        return unknown(_NO_RISE)
    at = fit.support[1]
    stayed = fit.configurations.index(fit.best_at(at / TAIL).configuration)
    score_DJ = fit.scores_at(at)
    found = _drawn(score_DJ.max(axis=1) - score_DJ[:, stayed], sweep, note=_edge(fit))
    bound = found._replace(high=math.inf, add=(2 * fit.tested_n[-1],))
    return bound if found.note else found


def late_move(sweep: Sweep) -> Estimate:
    """Octaves by which n* moves while the budget doubles for the last time.

    Where n* never rose there is no answer; where a draw's n* is the largest tested, a bound.
    """
    fit = fit_sweep(sweep)
    if one_n(sweep) or not fit.rise.claimed:
        return unknown(_NO_RISE)
    at = fit.support[1]
    last_D = _log2_n(fit, at)
    too_high_D = _at_end(fit, last_D)[1]
    return _bounded(last_D - _log2_n(fit, at / 2), [fit], [last_D], sweep, too_low_D=too_high_D)


def shift(a: Sweep, b: Sweep, unit: str = "rollouts") -> Estimate:
    """log2 n* of b minus that of a, at the largest budget that both compared.

    The draws of both are taken as independent. Where both are of the same runs under two metrics
    they are not, and the interval is wider than it need be.
    """
    if one_n(a) or one_n(b):
        return unknown(ONE_N)
    fits = [fit_sweep(one, unit=unit) for one in (a, b)]
    at = min(fit.support[1] for fit in fits)
    log2_DS = [_log2_n(fit, at) for fit in fits]
    (a_small_D, a_large_D), (b_small_D, b_large_D) = map(_at_end, fits, log2_DS)
    return _bounded(
        log2_DS[1] - log2_DS[0], fits, log2_DS, a, b,
        too_low_D=a_small_D | b_large_D, too_high_D=a_large_D | b_small_D,
    )  # fmt: skip


def _bounded(
    draw_D: FloatArray, fits: Sequence[Fit], log2_n_DS: Sequence[FloatArray], *sweeps: Sweep,
    too_low_D: BoolArray, too_high_D: BoolArray | None = None,
) -> Estimate:  # fmt: skip
    """`_drawn` of what an n* at an end of those tested leaves open, and the n to add there."""
    found = _drawn(draw_D, *sweeps, too_low_D=too_low_D, too_high_D=too_high_D)
    if math.isfinite(found.low) and math.isfinite(found.high):
        return found
    notes, add = list[str](), set[int]()
    for fit, log2_n_D in zip(fits, log2_n_DS, strict=True):
        n, shares = fit.tested_n, [at_D.mean() for at_D in _at_end(fit, log2_n_D)]
        for share, word, end, more in zip(
            shares, ("smallest", "largest"), (n[0], n[-1]), (n[0] // 2, 2 * n[-1]), strict=True
        ):
            if share > (1 - LEVEL) / 2:
                notes.append(f"n* may be the {word} tested, {end}")
                add |= {more} if more > 1 else set()
    note = "; ".join(dict.fromkeys(notes))
    return found._replace(note=note, add=tuple(sorted(add)))


def shift_of_rise(sweep: Sweep) -> Estimate:
    """The rise in octaves by tokens minus that by rollouts; no answer where there is no rise."""
    if one_n(sweep) or not fit_sweep(sweep).rise.claimed:
        return unknown(_NO_RISE)
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


# Beyond the paper


def pilot_loss(sweep: Sweep) -> Estimate:
    """Score lost at the largest budget by the n that a sixteenth of it would have chosen."""
    if one_n(sweep):
        return unknown(ONE_N)
    fit = fit_sweep(sweep)
    at = fit.support[1]
    pilot = fit_sweep([c.until(at / PILOT) for c in sweep if c.rollouts_K[1] <= at / PILOT])
    chosen = pilot.best_at(at).configuration
    score_DJ = fit.scores_at(at)
    lost_D = score_DJ.max(axis=1) - score_DJ[:, fit.configurations.index(chosen)]
    best = fit.best_at(at).tested_rollouts_per_problem
    note = f"the pilot chose n = {chosen.rollouts_per_problem}, the whole sweep {best}"
    return _drawn(lost_D, sweep, note=note)
