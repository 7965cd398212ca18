"""The configuration of largest expected score by budget, where it changes, and what was compared.

Shape legend: D draws, J configurations, V budgets (ascending, in log10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from isocompute.answers.best import (
    AS_GOOD,
    DOUBT,
    BoolArray,
    FloatArray,
    IntArray,
    choice,
    interval,
    probability_best,
)
from isocompute.domain import Configuration
from isocompute.model.data import MIN_STEPS

Ends = tuple[float | None, float | None]

# Decades: runs of one sweep end at whole batches, so at budgets that differ by one in twenty steps.
SAME_END = float(np.log10(1 + 1 / MIN_STEPS))


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Scores on a grid of budgets and what leads there."""

    configurations: tuple[Configuration, ...]
    first_J: FloatArray  # log10 budgets between which each has data
    last_J: FloatArray
    x_V: FloatArray  # log10 budgets
    score_DJV: FloatArray
    support: tuple[float, float]  # log10 budgets between which all that could be best were compared
    compared: bool  # whether there are any such budgets
    stretches: list[dict[str, Any]]  # rows of the document's `frontier`, and of its `crossovers`
    crossovers: list[dict[str, Any]]

    def compares(self, x: FloatArray, slack: float = 1e-6) -> BoolArray:
        """Which log10 budgets lie in the support."""
        return (x >= self.support[0] - slack) & (x <= self.support[1] + slack)

    def scores_at(self, x: float) -> FloatArray:
        """Draws of the scores at the budget of the grid nearest to log10 x, (D, J)."""
        return self.score_DJV[:, :, int(np.abs(self.x_V - x).argmin())]


def budget_grid(first: float, top: float, first_J: FloatArray, last_J: FloatArray) -> FloatArray:
    """49 budgets even in log10, and those at which some configuration begins or ends."""
    own = np.concatenate([first_J, last_J])
    own = own[np.isfinite(own) & (own > first) & (own < top)]
    return np.unique(np.round(np.concatenate([np.linspace(first, top, 49), own]), 6))


def fit_frontier(
    configurations: Sequence[Configuration], first_J: FloatArray, last_J: FloatArray,
    x_V: FloatArray, score_DJV: FloatArray, level: float,
) -> Frontier:  # fmt: skip
    """The frontier of draws on a grid; arguments as of `Frontier`, `level` of intervals."""
    mean_JV, probability_JV = score_DJV.mean(axis=0), probability_best(score_DJV)
    has_JV = (x_V >= first_J[:, None] - SAME_END) & (x_V <= last_J[:, None] + SAME_END)
    any_V = np.asarray(has_JV.any(axis=0))
    inside_V = any_V & (has_JV | (probability_JV < DOUBT)).all(axis=0)
    compared = bool(inside_V.any())
    # Where no budget compares all, what was observed at all is the best there is to show.
    ends = longest(inside_V if compared else any_V, x_V)
    support = (_own(ends[0], first_J, last_J), _own(ends[1], first_J, last_J))
    path_V = best_path(x_V, mean_JV)
    changes, stretches = changes_of(x_V, mean_JV, path_V), []
    for j, begin, finish in spans_of(x_V, path_V, changes):
        # Cut again where the support begins and ends.
        cuts = [begin, *(s for s in support if begin + 1e-6 < s < finish - 1e-6), finish]
        for start, end in pairwise(cuts):
            middle, near_V = (start + end) / 2, (x_V >= start - 1e-6) & (x_V <= end + 1e-6)
            near_V[int(np.abs(x_V - middle).argmin())] = True
            stretches.append({
                "from": 10**start,
                "to": 10**end,
                **configurations[j]._asdict(),
                "score_from": float(np.interp(start, x_V, mean_JV[j])),
                "score_to": float(np.interp(end, x_V, mean_JV[j])),
                "probability_best": float(probability_JV[j, near_V].mean()),
                "extrapolated": not support[0] <= middle <= support[1],
            })  # fmt: skip
    return Frontier(
        configurations=tuple(configurations),
        first_J=first_J,
        last_J=last_J,
        x_V=x_V,
        score_DJV=score_DJV,
        support=support,
        compared=compared,
        stretches=stretches,
        crossovers=[
            change_row(configurations, c, interval=_ends(x_V, score_DJV, c, level)) for c in changes
        ],
    )


def _own(x: float, first_J: FloatArray, last_J: FloatArray) -> float:
    """An end of data that the grid holds in six digits, as it is: 131,072, not 131,072.02."""
    own = np.concatenate([first_J, last_J])
    nearest = float(own[np.abs(own - x).argmin()])
    return nearest if abs(nearest - x) < 1e-6 else x


def longest(inside_V: BoolArray, x_V: FloatArray) -> tuple[float, float]:
    """Ends of the longest stretch of budgets that are inside; of the whole where none is."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside_V, [False]]).astype(int)))
    if not len(edges):
        return float(x_V[0]), float(x_V[-1])
    start, end = edges[::2], edges[1::2] - 1
    widest = int((x_V[end] - x_V[start]).argmax())
    return float(x_V[start[widest]]), float(x_V[end[widest]])


def best_path(x_V: FloatArray, mean_JV: FloatArray) -> IntArray:
    """The leader by budget: the fewest changes that never lose 0.002 to the best, then least loss.

    Dynamic programming (Viterbi): a change stands where the two curves cross, and curves that lie
    together, as on their floor, do not trade places.
    """
    lost_JV = mean_JV.max(axis=0) - mean_JV
    if len(x_V) < 2:
        return np.array([choice(mean_JV[:, 0])])
    cost_JV = np.where(lost_JV < AS_GOOD, lost_JV * np.gradient(x_V) / np.ptp(x_V), np.inf)
    total_J, came_JV = cost_JV[:, 0], np.zeros(cost_JV.shape, dtype=np.int64)
    stay_J = np.arange(len(cost_JV))
    for v in range(1, len(x_V)):
        cheapest = int(total_J.argmin())
        changes_J = total_J[cheapest] + 1.0 < total_J  # a change costs more than all loss together
        came_JV[:, v] = np.where(changes_J, cheapest, stay_J)
        total_J = np.where(changes_J, total_J[cheapest] + 1.0, total_J) + cost_JV[:, v]
    path = [int(total_J.argmin())]
    for v in range(len(x_V) - 1, 0, -1):
        path.append(int(came_JV[path[-1], v]))
    return np.array(path[::-1])


class Change(NamedTuple):
    """The log10 budget at which the lead goes from one configuration (its index) to another."""

    at: float
    before: int
    after: int


def changes_of(x_V: FloatArray, score_JV: FloatArray, path_V: IntArray) -> list[Change]:
    """Where the leader changes along a path: where the two curves cross between two budgets."""
    changes = []
    for v in np.flatnonzero(np.diff(path_V)):
        before, after = int(path_V[v]), int(path_V[v + 1])
        lead_1V = (score_JV[after] - score_JV[before])[None]
        changes.append(Change(float(_zero(x_V, lead_1V, np.array([v]))[0]), before, after))
    return changes


def spans_of(
    x_V: FloatArray, path_V: IntArray, changes: Sequence[Change]
) -> list[tuple[int, float, float]]:
    """Who leads along a path, and from which log10 budget to which."""
    leaders = [int(path_V[0]), *(c.after for c in changes)]
    ends = pairwise([float(x_V[0]), *(c.at for c in changes), float(x_V[-1])])
    return [(j, start, end) for j, (start, end) in zip(leaders, ends, strict=True)]


def change_row(
    configurations: Sequence[Configuration], change: Change, **more: Any
) -> dict[str, Any]:
    """A row of the document's `crossovers`."""
    sides = {"from": configurations[change.before], "to": configurations[change.after]}
    named = {f"{s}_{name}": v for s, c in sides.items() for name, v in c._asdict().items()}
    return {"at": 10**change.at, **more, **named}


def _ends(x_V: FloatArray, score_DJV: FloatArray, change: Change, level: float) -> Ends:
    """Interval of a change."""
    at_D = overtakes(x_V, score_DJV[:, change.after] - score_DJV[:, change.before])
    low, high = interval(np.clip(at_D, x_V[0] - 1, x_V[-1] + 1), level)
    # Where draws do not cross at all the quantile lies beyond the grid: an open end.
    return (
        None if low < x_V[0] else 10 ** min(low, change.at),
        None if high > x_V[-1] else 10 ** max(high, change.at),
    )


def overtakes(x_V: FloatArray, lead_DV: FloatArray) -> FloatArray:
    """Where a lead turns positive for good, per draw: the change that contradicts it least.

    -inf where it leads from the first budget on, inf where it never does.
    """
    weight_V = np.gradient(x_V)
    too_late_DV = np.cumsum(np.maximum(lead_DV, 0) * weight_V, axis=1)
    too_soon_DV = np.cumsum((np.maximum(-lead_DV, 0) * weight_V)[:, ::-1], axis=1)[:, ::-1]
    cost_DV = np.zeros((len(lead_DV), len(x_V) + 1))  # of leading from budget v on
    cost_DV[:, 1:] += too_late_DV
    cost_DV[:, :-1] += too_soon_DV
    at_D = cost_DV.argmin(axis=1)
    place_D = _zero(x_V, lead_DV, np.clip(at_D - 1, 0, len(x_V) - 2))
    return np.where(at_D == 0, -np.inf, np.where(at_D == len(x_V), np.inf, place_D))


def _zero(x_V: FloatArray, lead_DV: FloatArray, v_D: IntArray) -> FloatArray:
    """Where the line between budgets v and v + 1 is zero, kept between them."""
    row_D = np.arange(len(lead_DV))
    low_D, high_D = lead_DV[row_D, v_D], lead_DV[row_D, v_D + 1]
    rise_D = np.where(high_D == low_D, 1.0, high_D - low_D)
    return x_V[v_D] + np.clip(-low_D / rise_D, 0.0, 1.0) * (x_V[v_D + 1] - x_V[v_D])
