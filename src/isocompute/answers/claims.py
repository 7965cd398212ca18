"""What may be claimed of a sweep: that n* rises, which B_p is enough, how far scores spread.

Shape legend: D draws, J configurations, X budgets (ascending, in log10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.answers.best import AS_GOOD, choice, confidence_set, interval, probability_best
from isocompute.domain import Configuration
from isocompute.intervals import draw_interval

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit
    from isocompute.answers.frontier import Frontier
    from isocompute.model import Posterior

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Of the frontier's rise from the floor: before that all curves lie together and which of them
# leads is chance. At half of it sweeps that begin on the floor claim rises that are not there; at
# twice of it the first of three octaves may be gone.
OFF_THE_FLOOR = 0.2
SURE = 0.95  # of a claim, one-sided, whatever the level of intervals


class Rise(NamedTuple):
    """How far n* moves over the support.

    Attributes:
        start: log10 budget from which it is judged.
        octaves: median change of log2 n*.
        lower_bound, upper_bound: one-sided 95% bounds of that change.
    """

    start: float
    octaves: float
    lower_bound: float
    upper_bound: float

    @property
    def claimed(self) -> bool:
        """Whether n* rises in 95% of the draws."""
        return self.lower_bound > 1e-9

    @property
    def falls(self) -> bool:
        """Whether n* falls in 95% of the draws."""
        return self.upper_bound < -1e-9


def rise(x_X: FloatArray, log2_n_DX: FloatArray, top_X: FloatArray, floor: float) -> Rise:
    """Change of log2 n* from where the frontier has left its floor to the last budget.

    Args:
        x_X: log10 budgets of the support.
        log2_n_DX: best n of every draw.
        top_X: expected score of the frontier.
        floor: expected score before training.
    """
    start = int(np.argmax(top_X - floor >= OFF_THE_FLOOR * (top_X[-1] - floor)))
    change_D = log2_n_DX[:, -1] - log2_n_DX[:, start]
    low, high = interval(change_D, 2 * SURE - 1)
    return Rise(float(x_X[start]), float(np.median(change_D)), low, high)


def turns(log2_n_DX: FloatArray) -> bool:
    """Whether n* surely goes one way and then the other: both moves in 95% of the draws.

    The turn is where the mean path is furthest from the line between its ends.
    """
    path_X = log2_n_DX.mean(axis=0)
    line_X = np.linspace(path_X[0], path_X[-1], len(path_X))
    at = int(np.abs(path_X - line_X).argmax())
    first = interval(log2_n_DX[:, at] - log2_n_DX[:, 0], 2 * SURE - 1)
    second = interval(log2_n_DX[:, -1] - log2_n_DX[:, at], 2 * SURE - 1)
    up_down, down_up = first[0] > 0 > second[1], second[0] > 0 > first[1]
    return up_down or down_up


def smallest_stable(
    configurations: Sequence[Configuration], mean_J: FloatArray, unhealthy_J: BoolArray, n: float
) -> Configuration:
    """Smallest tested B_p at an n whose expected score is within 0.002 of the best B_p's.

    Args:
        configurations: all tested.
        mean_J: expected scores at the budget.
        unhealthy_J: those with a health failure: passed over where another B_p has none.
        n: rollouts per problem; where it was not tested, the tested n nearest to it.
    """
    tested = sorted({c.rollouts_per_problem for c in configurations})
    near = min(tested, key=lambda value: abs(np.log2(value / max(n, 1.0))))
    rows = np.array([c.rollouts_per_problem == near for c in configurations])
    sound = rows & ~unhealthy_J
    at = np.flatnonzero(sound if sound.any() else rows)
    good = at[mean_J[at] > mean_J[at].max() - AS_GOOD]
    return min(configurations[j] for j in good)


class Compared(NamedTuple):
    """Configurations that share a value, at the largest budget that all of them reached."""

    rows: IntArray
    at: float


def compared(chosen_J: BoolArray, first_J: FloatArray, last_J: FloatArray) -> Compared:
    """Which of them can be ranked, and at what log10 budget: the largest that all reached.

    A configuration that had not made its 20th step there takes part in nothing.
    """
    rows = np.flatnonzero(chosen_J & np.isfinite(first_J) & np.isfinite(last_J))
    at = float(last_J[rows].min(initial=np.inf))
    return Compared(rows[first_J[rows] <= at + 1e-9], at)


def spread_tables(
    posterior: Posterior, frontier: Frontier, level: float
) -> dict[str, list[dict[str, Any]]]:
    """How far the score moves with B_p at a fixed n, and with n at a fixed B_p.

    Returns:
        {"problems_per_batch": rows, "rollouts_per_problem": rows}; a row holds the fixed value,
        "at" (the largest budget that all of its configurations reached), "scores" along the axis
        with intervals, "spread" (largest minus smallest) and its "interval". A spread is a maximum
        minus a minimum, so noise alone makes it positive: "noise" is what it would be on average
        if all were equal, of the same draws.

    Source: arXiv 2603.12151, section 4.3 (the joint setting); intervals are ours.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, fixed in (
        ("problems_per_batch", "rollouts_per_problem"),
        ("rollouts_per_problem", "problems_per_batch"),
    ):
        fixed_J = np.array([getattr(c, fixed) for c in posterior.configurations])
        tables[name] = []
        for value in np.unique(fixed_J):
            rows, at = compared(fixed_J == value, posterior.first_J, posterior.last_J)
            if len(rows) > 1:
                varied = [getattr(posterior.configurations[j], name) for j in rows]
                row = _spread(frontier.scores_at(at)[:, rows], name, varied, level)
                tables[name].append({fixed: int(value), "at": 10**at, **row})
    return tables


def _spread(score_DJ: FloatArray, name: str, varied: list[int], level: float) -> dict[str, Any]:
    mean_J = score_DJ.mean(axis=0)
    low_J, high_J = draw_interval(score_DJ, level)
    return {
        "scores": [
            {name: value, "score": float(s), "interval": [float(a), float(b)]}
            for value, s, a, b in zip(varied, mean_J, low_J, high_J, strict=True)
        ],
        "spread": float(np.ptp(mean_J)),
        "interval": list(interval(np.ptp(score_DJ, axis=1), level)),
        "noise": float(np.ptp(score_DJ - mean_J, axis=1).mean()),
    }


def best_n_rows(fits: Sequence[Fit]) -> list[dict[str, Any]]:
    """The best n at the largest budget, by metric and B_p, with what cannot be told from it.

    Returns:
        Rows {"metric", "problems_per_batch", "at", "rollouts_per_problem", "score",
        "probability", "confidence_set"}, in order of metric and B_p; B_p with one n are left out.
    """
    out = []
    for fit in fits:
        of = fit.posterior
        bp_J, n_J = np.array(of.configurations).T
        for b_p in np.unique(bp_J):
            rows, at = compared(bp_J == b_p, of.first_J, of.last_J)
            if len(rows) < 2:
                continue
            score_DJ = fit.frontier.scores_at(at)[:, rows]
            share_J = probability_best(score_DJ[:, :, None])[:, 0]
            best = choice(score_DJ.mean(axis=0))
            out.append(
                {
                    "metric": fit.metric,
                    "problems_per_batch": int(b_p),
                    "at": 10**at,
                    "rollouts_per_problem": int(n_J[rows[best]]),
                    "score": float(score_DJ[:, best].mean()),
                    "probability": float(share_J[best]),
                    "confidence_set": confidence_set(share_J, n_J[rows], fit.level),
                }
            )
    return out
