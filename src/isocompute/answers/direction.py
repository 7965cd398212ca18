"""Does the optimum follow n or the batch? The slope of log n* in log B_p at equal budget.

If n is what counts, the best n is the same at every B_p: slope 0. If the batch is what counts, the
best n halves when B_p doubles: slope -1.

Shape legend: P values of B_p, D draws, X budgets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from isocompute.answers.best import FloatArray, Ridge, interval
from isocompute.answers.claims import compare_by
from isocompute.answers.frontier import Frontier
from isocompute.domain import Configuration
from isocompute.domain.text import fold

Follows = Literal["n", "batch", "between"]

_UNKNOWN = "Whether the optimum follows n or the batch cannot be told"
_SENTENCES = {
    "n": "The optimum follows n, not the batch",
    "batch": "The optimum follows the batch, not n",
    "between": "The optimum follows neither n nor the batch alone",
    None: _UNKNOWN,
}


def confounded(configurations: Sequence[Configuration]) -> bool:
    """Whether every n has one B_p only, so that n and the batch change together."""
    b_p = defaultdict(set)
    for c in configurations:
        b_p[c.rollouts_per_problem].add(c.problems_per_batch)
    return max(map(len, b_p.values())) < 2


def direction(frontier: Frontier, ridge: Ridge, level: float) -> dict[str, Any]:
    """D log n* / d log B_p at equal budget, what it says, and comparisons at equal batch.

    Args:
        frontier: of the sweep.
        ridge: best n at each B_p, at budgets at which all were compared.
        level: of intervals.

    Returns:
        {"d_log_n_d_log_bp", "interval", "follows": "n" | "batch" | "between" | null, "moves"
        (octaves of n and of B_p from the first to the last budget), "equal_batch", "sentence"}.
        The slope is null where no two B_p have their best n inside the n tested in half of the
        draws: an n at an end is a bound, and bounds agree whatever the optimum does.
    """
    told = not confounded(frontier.configurations)
    slope_D = _slopes(ridge) if told else np.full(1, np.nan)
    known_D = slope_D[np.isfinite(slope_D)]
    slope, span, follows = None, None, None
    sentence = f"{_UNKNOWN} from one B_p per n."
    if 2 * len(known_D) > len(slope_D):
        slope, span = float(np.median(known_D)), interval(known_D, level)
        follows = _follows(*span)
        sentence = (
            f"{_SENTENCES[follows]}: as B_p doubles, the best n changes {fold(slope)} "
            f"({2 ** span[0]:.2g} to {2 ** span[1]:.2g})."
        )
    elif told:
        sentence = f"{_UNKNOWN}: the best n lies at an end of those tested."
    moves = {
        "rollouts_per_problem": ridge.log2_n_DX[:, -1] - ridge.log2_n_DX[:, 0],
        "problems_per_batch": np.log2(ridge.bp_DX[:, -1] / ridge.bp_DX[:, 0]),
    }
    return {
        "d_log_n_d_log_bp": slope,
        "interval": span,
        "follows": follows,
        "moves": {
            name: {"octaves": float(np.median(d)), "interval": interval(d, level)}
            for name, d in moves.items()
        },
        "equal_batch": compare_by(frontier, "batch_size", level),
        "sentence": sentence,
    }


def _slopes(ridge: Ridge) -> FloatArray:
    """Slope of every draw: one line per budget, all of one slope, through the n inside."""
    inside_PDX = (ridge.edge_PDX == 0).astype(float)
    count_DX = np.maximum(inside_PDX.sum(axis=0), 1.0)

    def centred(value_PDX: FloatArray) -> FloatArray:
        mean_DX = (value_PDX * inside_PDX).sum(axis=0) / count_DX
        return np.asarray(inside_PDX * (value_PDX - mean_DX))

    bp_PDX = centred(np.log2(ridge.tested_P)[:, None, None] * inside_PDX)
    square_D = (bp_PDX**2).sum(axis=(0, 2))
    product_D = (bp_PDX * centred(ridge.log2_n_PDX)).sum(axis=(0, 2))
    return np.where(square_D > 0, product_D / np.where(square_D > 0, square_D, 1.0), np.nan)


def _follows(low: float, high: float) -> Follows | None:
    """What an interval of the slope leaves: 0 and what is nearer to it than to -1, or the reverse.

    One that holds neither, but lies between them, is a law of both.
    """
    if -0.5 < low <= 0 <= high:
        return "n"
    if low <= -1 <= high < -0.5:
        return "batch"
    return "between" if low > -1 and high < 0 else None
