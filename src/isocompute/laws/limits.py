"""What the numbers of a fit rest on too little for: bounds, unshared budgets, n that all tie.

Shape legend: X bins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from isocompute.curves.draws import CURVE_BOUNDS
from isocompute.curves.fits import CurveFits
from isocompute.laws.estimate import confidence_set

if TYPE_CHECKING:
    from isocompute.curves.bins import BinnedRuns
    from isocompute.domain import Curve
    from isocompute.laws.sweep import Fit

WORTH_SAYING = float(np.log10(2))  # decades of budgets that some runs reached and others did not
FEWEST_N = 3
FELL_SURELY = 3.0  # standard errors of evaluation noise between first and last quarter decade
WELL_HELD = 2 / 3  # planted sweeps of the fitted forms hold 0.9 and more, of falling ones 0.7
FEWEST_HELD_OUT = 20
_EDGE = 1e-9

Warning_ = dict[str, str]


def limit_warnings(fit: Fit) -> list[Warning_]:
    """What limits the law: too few n, ties, unshared budgets, sick runs, intervals that failed."""
    found = (
        few_n_warning(fit.curve_fits),
        undecided_warning(fit),
        unshared_warning(fit),
        failed_health_warning(fit),
        missed_warning(fit.backtest, fit.level),
    )
    return [w for w in found if w]


def name_of(fits: CurveFits, j: int) -> str:
    """One configuration in words: its n, and its B_p where several were fitted."""
    one = fits.binned[j]
    several = len(set(fits.problems_per_batch_J.tolist())) > 1
    return f"B_p={one.problems_per_batch} " * several + f"n={one.rollouts_per_problem}"


def failed_health_warning(fit: Fit) -> Warning_ | None:
    """Warning `failed_health`: runs of a study that failed a health rule while they trained."""
    failed: dict[tuple[int, int], list[Curve]] = {}
    for curve in fit.curves:
        if curve.failed_rules:
            key = curve.problems_per_batch, curve.rollouts_per_problem
            failed.setdefault(key, []).append(curve)
    if not failed:
        return None
    listed = [
        f"B_p={b_p} n={n} ({', '.join(sorted({r for c in runs for r in c.failed_rules}))}; "
        f"{len(runs)} run{'s' * (len(runs) > 1)})"
        for (b_p, n), runs in sorted(failed.items())
    ]
    return {
        "code": "failed_health",
        "message": f"{sum(map(len, failed.values()))} of {len(fit.curves)} runs failed a health "
        f"rule: {', '.join(listed[:6])}"
        f"{f' and {len(listed) - 6} more configurations' if len(listed) > 6 else ''}. They stay in "
        "the fit, and what a healthy recipe would score there is not known; mend the recipe before "
        "relying on n* where these configurations lead or are near.",
    }


def on_bound(fits: CurveFits, j: int) -> list[str]:
    """Which parameters of one curve ended on a bound of the search."""
    fit, x_X = fits.fit.row(j), fits.binned[j].x_X
    log_slope = np.log(fit.slope[0])
    low, high = (np.log(v) for v in CURVE_BOUNDS.slope)
    margin = CURVE_BOUNDS.midpoint_margin
    reached = {
        "floor": fit.floor[0] <= CURVE_BOUNDS.low + _EDGE,
        "ceiling": fit.ceiling[0] >= CURVE_BOUNDS.high - _EDGE,
        "slope": log_slope <= low + _EDGE or log_slope >= high - _EDGE,
        "midpoint": not x_X.min() - margin + _EDGE < fit.midpoint[0] < x_X.max() + margin - _EDGE,
    }
    return [name for name, there in reached.items() if there]


def few_n_warning(fits: CurveFits) -> Warning_ | None:
    """Warning `few_n`: two values of n, which a law can only step between."""
    tested = np.unique(fits.rollouts_per_problem_J)
    if len(tested) >= FEWEST_N:
        return None
    return {
        "code": "few_n",
        "message": f"the law rests on {len(tested)} n ({', '.join(map(str, tested))}): it says "
        "which of them leads at a budget, and nothing about those between and beyond. Sweep "
        f"{FEWEST_N} or more.",
    }


def unshared_warning(fit: Fit) -> Warning_ | None:
    """Warning `budgets_not_shared`: runs go on beyond the budgets that were compared."""
    fits, top = fit.curve_fits, fit.support[1]
    last_J = np.where(np.isfinite(fits.end_J), fits.end_J, -np.inf)
    beyond = float(last_J.max() - np.log10(top))
    if beyond < WORTH_SAYING:
        return None
    short = [
        f"n={b.rollouts_per_problem} (B_p={b.problems_per_batch})"
        for b, last in zip(fits.binned, last_J, strict=True)
        if last <= np.log10(top) + WORTH_SAYING / 2
    ]
    return {
        "code": "budgets_not_shared",
        "message": f"some runs go on for {beyond:.2f} decades beyond {top:,.0f} {fit.unit}, where "
        "what could be best was last compared; the frontier out there is extrapolated and the law "
        f"does not use it. Train further: {', '.join(short[:6]) or 'the shorter runs'}"
        f"{f' and {len(short) - 6} more' if len(short) > 6 else ''}.",
    }


def undecided_warning(fit: Fit) -> Warning_ | None:
    """Warning `n_not_told_apart`: most n tested may be best at the largest budget compared.

    Most are more than half, and two of three are not: neighbours often cannot be told apart where a
    law is well known. Where all n are equal the draws still put half of them out of the set.
    """
    n_J = fit.curve_fits.rollouts_per_problem_J
    last = int(np.flatnonzero(fit.frontier.supported_V)[-1])
    share_J = fit.frontier.probability_JV[:, last]
    tested = np.unique(n_J)
    may_be_best = confidence_set(share_J, n_J, fit.level)
    if 2 * len(may_be_best) <= len(tested) or len(may_be_best) == 2 < len(tested):
        return None
    return {
        "code": "n_not_told_apart",
        "message": f"at {fit.support[1]:,.0f} {fit.unit}, the largest budget compared, "
        f"{len(may_be_best)} of the {len(tested)} n tested may be the best "
        f"({', '.join(map(str, may_be_best))}): the n given is one of these, not a finding. "
        "What tells them apart is more seeds, larger evaluation sets, or a larger budget.",
    }


def missed_warning(backtest: Mapping[str, Any], level: float) -> Warning_ | None:
    """Warning `intervals_missed`: a third or more of what the back-test held out lies outside."""
    held, of = backtest.get("coverage"), backtest.get("n_held_out") or 0
    if held is None or held >= WELL_HELD or of < FEWEST_HELD_OUT:
        return None
    return {
        "code": "intervals_missed",
        "message": f"of {of} values that the back-test held out, {held:.0%} lay inside their "
        f"{level:.0%} intervals: beyond what was fitted these curves go another way, so what is "
        "said beyond the data, ceilings too, is less sure than its intervals.",
    }


def bend_warning(fits: CurveFits) -> Warning_ | None:
    """Warning `bends_late`: the curves are no logistic ones."""
    if fits.form == "logistic":
        return None
    return {
        "code": "bends_late",
        "message": "Gompertz curves, which bend towards their ceiling later, fit this sweep better "
        f"than the logistic ones of the method (summed loss lower by {fits.gompertz_gain:.0f}) and "
        "stand in for them: ceilings are higher than logistic curves would say.",
    }


def fall_of(one: BinnedRuns) -> Literal["", "falls", "dips"]:
    """Whether scores surely end lower than a level before, or dip below one and end above it.

    Neither where a level stands in for what noise may have done: two standard errors among some
    sixty pairs of windows, as in a tenth of the curves that never fall.
    """
    if not one.dominated_RX.any():
        return ""
    if _recovers(one):
        return "dips" if _deep(one) else ""
    return "falls" if _ends_lower(one) else ""


def fall_warning(fits: CurveFits) -> Warning_ | None:
    """Warning `falls_after_peak`: scores below an earlier level, to the end or for a while."""
    kinds = {name_of(fits, j): fall_of(one) for j, one in enumerate(fits.binned)}
    found = []
    if fallen := [name for name, kind in kinds.items() if kind == "falls"]:
        found.append(
            f"scores of {', '.join(fallen)} fall below an earlier level by more than noise; the "
            "best checkpoint so far stands in for them. Look for overfitting or collapse."
        )
    if dipped := [name for name, kind in kinds.items() if kind == "dips"]:
        found.append(
            f"scores of {', '.join(dipped)} dip below an earlier level by more than noise and end "
            "above it: no overfitting. The level before the dip stands in for it."
        )
    if not found:
        return None
    message = " ".join(text[0].upper() + text[1:] if i else text for i, text in enumerate(found))
    return {"code": "falls_after_peak", "message": message}


def _recovers(one: BinnedRuns) -> bool:
    """Whether the last quarter decade needs no level, and surely lies above each that stood in."""
    x_X = one.x_X[np.isfinite(one.mean_RX).any(axis=0)]
    if (one.dominated_RX.any(axis=0) & (one.x_X >= x_X[-1] - 0.25)).any():
        return False
    last, variance = _mean(one, x_X[-1] - 0.25, x_X[-1])
    level = float(one.best_RX[one.dominated_RX].max())
    return last - level > FELL_SURELY * float(np.sqrt(variance))


def _deep(one: BinnedRuns) -> bool:
    """Whether the bins that gave way surely lie below the level, all of them together."""
    lower = one.dominated_RX & np.isfinite(one.mean_RX)
    of_bin = float(np.nanmedian(one.variance_RX[~one.dominated_RX]))
    drop = float((one.best_RX - one.mean_RX)[lower].mean())
    of_level = float(one.variance_RX[lower].mean()) / len(one.best_RX)
    return drop > FELL_SURELY * float(np.sqrt(of_bin / lower.sum() + of_level))


def _ends_lower(one: BinnedRuns) -> bool:
    """Whether the last quarter decade surely lies below the level that stands in at the end."""
    known = np.flatnonzero(np.isfinite(one.best_RX).any(axis=0))
    last, variance = _mean(one, one.x_X[known[-1]] - 0.25, one.x_X[known[-1]])
    level = float(np.nanmean(one.best_RX[:, known[-1]]))
    of_level = float(np.nanmean(one.variance_RX[:, known[-1]])) / len(one.best_RX)
    return level - last > FELL_SURELY * float(np.sqrt(variance + of_level))


def change_warning(fits: CurveFits) -> Warning_ | None:
    """Warnings `scores_fall`: most configurations surely end lower; `scores_flat`: none higher."""
    change = [_change(one) for one in fits.binned]
    fallen = sum(z < -FELL_SURELY for z in change)
    if 2 * fallen > len(change):
        return {
            "code": "scores_fall",
            "message": f"{fallen} of {len(change)} configurations end lower than they began, by "
            "more than noise: these runs unlearn, and the law only says who began best. If the "
            "values are losses or errors, give 1 - value: a score is better where it is larger.",
        }
    if any(z > FELL_SURELY for z in change):
        return None
    return {
        "code": "scores_flat",
        "message": "no configuration ends higher than it began by more than noise: what these runs "
        "learned, if anything, is not in these data, and a law of them says little. Train further, "
        "evaluate on more problems, or take an easier set.",
    }


def _change(one: BinnedRuns) -> float:
    """Last minus first quarter decade, in standard errors; infinite for a rise within one."""
    x_X = one.x_X[np.isfinite(one.mean_RX).any(axis=0)]
    first, first_variance = _mean(one, x_X[0], x_X[0] + 0.25)
    last, last_variance = _mean(one, x_X[-1] - 0.25, x_X[-1])
    if last > first and ((x_X <= x_X[0] + 0.25) & (x_X >= x_X[-1] - 0.25)).any():
        return np.inf
    error = np.sqrt(first_variance + last_variance)
    return float((last - first) / max(float(error), 1e-6 / FELL_SURELY))


def _mean(one: BinnedRuns, start: float, end: float) -> tuple[float, float]:
    """Mean of all runs over the bins from start to end, in log10 x, and its variance."""
    has = np.isfinite(one.mean_RX)
    known = np.flatnonzero(has.any(axis=0) & (one.x_X >= start) & (one.x_X <= end))
    n_X = has.sum(axis=0)[known]
    mean_X = np.where(has, one.mean_RX, 0.0).sum(axis=0)[known] / n_X
    variance_X = np.nan_to_num(one.variance_RX).sum(axis=0)[known] / n_X**2
    return float(mean_X.mean()), float(variance_X.sum()) / len(known) ** 2
