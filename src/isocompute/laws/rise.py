"""What a claim that the best value changes rests on: where it is judged from, what may be best.

Shape legend: J configurations, V budgets, D draws, I losers, W winners of one comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Of the frontier's rise from the floor: before that all curves lie together and which of them leads
# is chance. Chosen on planted sweeps that begin on the floor, see docs/laws.md.
OFF_THE_FLOOR = 0.2
_EQUAL = 1e-9  # standard error of configurations that never differ


def off_the_floor(top_V: FloatArray, floor: float) -> int:
    """Index of the first budget at which a frontier has made a fifth of its rise."""
    return int(np.argmax(top_V - floor >= OFF_THE_FLOOR * (top_V[-1] - floor)))


def not_excluded(
    score_J: FloatArray, draw_DJ: FloatArray, value_J: IntArray, level: float
) -> tuple[int, int]:
    """Smallest and largest value (n, or B_p) that is not excluded from being best.

    The values up to m are excluded where each of their configurations is beaten by one and the
    same larger one, beyond what the best of so many larger ones would beat it by in centred draws.
    The share of draws in which a configuration leads is no test of this: among equals every
    draw has another leader, so one of seven equal n leads in a seventh of them, and a claim that
    it does not lead comes easily.

    Args:
        score_J: fitted scores at one budget.
        draw_DJ: of every draw.
        value_J: value of each configuration.
        level: of each of the two bounds, one-sided.

    Source: after Hsu's multiple comparisons with the best, Ann. Statist. 9 (1981) 1026, with
    the quantile of the largest of the centred draws.
    """
    values = np.unique(value_J)
    low = high = 0
    while low < len(values) - 1 and _beaten(score_J, draw_DJ, value_J <= values[low], level):
        low += 1
    while high < len(values) - 1 and _beaten(score_J, draw_DJ, value_J >= values[-1 - high], level):
        high += 1
    return int(values[low]), int(values[-1 - high])


def _beaten(
    score_J: FloatArray, draw_DJ: FloatArray, loser_J: NDArray[np.bool_], level: float
) -> bool:
    """Whether one configuration beats all of these."""
    lead_IW = score_J[None, ~loser_J] - score_J[loser_J, None]
    draw_DIW = draw_DJ[:, None, ~loser_J] - draw_DJ[:, loser_J, None]
    error_IW = draw_DIW.std(axis=0) + _EQUAL
    largest_DI = ((draw_DIW - lead_IW) / error_IW).max(axis=2)
    critical_I = np.quantile(largest_DI, level, axis=0, method="weibull")
    return bool((lead_IW / error_IW > critical_I[:, None]).all(axis=0).any())
