"""What may be claimed: that n* rises, which B_p is enough, how scores spread, n or the batch.

Does the optimum follow n or the batch? The slope of log n* in log B_p at equal budget tells: if n
is what counts, the best n is the same at every B_p, slope 0; if the batch is, it halves when B_p
doubles, slope -1.

Shape legend: D draws, J configurations, P values of B_p, X budgets (ascending, in log10).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from isocompute.answers.best import (
    AS_GOOD,
    DOUBT,
    BoolArray,
    FloatArray,
    Ridge,
    confidence_set,
    interval,
    probability_best,
)
from isocompute.answers.frontier import Frontier
from isocompute.domain import Configuration
from isocompute.domain.text import fold

# Of the frontier's rise from the floor: before that all curves lie together and which of them
# leads is chance. Half or twice of it moved rises by 0.04 octaves on average and no claim (18
# sweeps of six planted worlds).
OFF_THE_FLOOR = 0.2
SURE = 1 - DOUBT
Follows = Literal["n", "batch", "between"]

_UNKNOWN = "Whether the optimum follows n or the batch cannot be told"
_SENTENCES = {
    "n": "The optimum follows n, not the batch",
    "batch": "The optimum follows the batch, not n",
    "between": "The optimum follows neither n nor the batch alone",
    None: _UNKNOWN,
}


class Rise(NamedTuple):
    """How far n* moves over the support."""

    start: float  # log10 budget from which it is judged
    octaves: float  # median change of log2 n*
    lower_bound: float  # one-sided 95% bounds of that change
    upper_bound: float

    @property
    def claimed(self) -> bool:
        """Whether n* rises in 95% of the draws."""
        return self.lower_bound > 1e-9

    @property
    def falls(self) -> bool:
        """Whether n* falls in 95% of the draws."""
        return self.upper_bound < -1e-9


def rise(x_X: FloatArray, log2_n_DX: FloatArray, score_DJX: FloatArray, floor: float) -> Rise:
    """Change of log2 n* from where the frontier has left its floor to the last budget.

    A draw in which what was best at the start is as good at the end has no change: where several n
    end level, which of them is best is chance.

    Args:
        x_X, log2_n_DX: log10 budgets of the support, and the best n of every draw there.
        score_DJX: scores of the configurations tested.
        floor: score before training.
    """
    top_X = score_DJX.mean(axis=0).max(axis=0)
    start = int(np.argmax(top_X - floor >= OFF_THE_FLOOR * (top_X[-1] - floor)))
    end_DJ, first_D = score_DJX[:, :, -1], score_DJX[:, :, start].argmax(axis=1)
    gain_D = end_DJ.max(axis=1) - np.take_along_axis(end_DJ, first_D[:, None], axis=1)[:, 0]
    change_D = np.where(gain_D > AS_GOOD, log2_n_DX[:, -1] - log2_n_DX[:, start], 0.0)
    # A quantile of so few draws has luck of its own, and n* moves by whole octaves: the bounds lie
    # further out by what the share of draws beyond them may be off (one-sided, 95%).
    tail = 1 - SURE
    tail -= 1.645 * np.sqrt(tail * SURE / len(change_D))
    low, high = interval(change_D, 1 - 2 * max(tail, 0.0))
    return Rise(float(x_X[start]), float(np.median(change_D)), low, high)


def smallest_stable(
    scores: Mapping[Configuration, float], unhealthy: Container[Configuration], n: float
) -> Configuration:
    """Smallest tested B_p at an n whose expected score is within 0.002 of the best B_p's.

    Args:
        scores: expected scores at the budget.
        unhealthy: those with a health failure: passed over where another B_p has none.
        n: rollouts per problem; where it was not tested, the tested n nearest to it.

    >>> arms = {Configuration(b, 64): s for b, s in ((16, 0.49), (32, 0.499), (64, 0.5))}
    >>> smallest_stable(arms, {}, 60).problems_per_batch
    32
    """
    near = min(sorted({c[1] for c in scores}), key=lambda one: abs(np.log2(one / max(n, 1.0))))
    there = [c for c in scores if c.rollouts_per_problem == near]
    sound = [c for c in there if c not in unhealthy] or there
    best = max(scores[c] for c in sound)
    return min(c for c in sound if scores[c] > best - AS_GOOD)


def compare(frontier: Frontier, chosen_J: BoolArray, level: float) -> dict[str, Any] | None:
    """Scores of some configurations at the largest budget that all of them reached.

    One that had not made its 20th step there takes part in nothing; None where two are not left.

    Returns:
        {"at", "scores": one row each with "interval" and "probability_best" among them, "spread"
        (largest minus smallest), its "interval", "noise"}. A spread is a maximum minus a minimum,
        so noise alone makes it positive: "noise" is what it would be if all were equal.
    """
    has_J = chosen_J & np.isfinite(frontier.first_J) & np.isfinite(frontier.last_J)
    at = float(frontier.last_J[has_J].min(initial=np.inf))
    rows = np.flatnonzero(has_J & (frontier.first_J <= at + 1e-9))
    if len(rows) < 2:
        return None
    score_DJ = frontier.scores_at(at)[:, rows]
    mean_J, best_J = score_DJ.mean(axis=0), probability_best(score_DJ[:, :, None])[:, 0]
    named = [frontier.configurations[j]._asdict() for j in rows]
    # Of equal ones every draw has a largest and a smallest: how far these two are apart may be 0.
    apart_D = score_DJ[:, mean_J.argmax()] - score_DJ[:, mean_J.argmin()]
    low, high = interval(apart_D, level)[0], interval(np.ptp(score_DJ, axis=1), level)[1]
    return {
        "at": 10**at,
        "scores": [
            {**c, "score": mean, "interval": interval(score_D, level), "probability_best": best}
            for c, mean, score_D, best in zip(named, mean_J, score_DJ.T, best_J, strict=True)
        ],
        "spread": np.ptp(mean_J),
        "interval": (max(low, 0.0), high),
        "noise": np.ptp(score_DJ - mean_J, axis=1).mean(),
    }


def compare_by(frontier: Frontier, shared: str, level: float) -> list[dict[str, Any]]:
    """`compare` for every value of "problems_per_batch", "rollouts_per_problem" or "batch_size".

    Source: arXiv 2603.12151, section 4.3 (spread over B_p and over n); intervals are ours.
    """
    value_J = np.array([getattr(c, shared) for c in frontier.configurations])
    found = ((int(v), compare(frontier, value_J == v, level)) for v in np.unique(value_J))
    return [{shared: value, **row} for value, row in found if row is not None]


def best_n_rows(metric: str, rows: Sequence[dict[str, Any]], level: float) -> list[dict[str, Any]]:
    """The best n at the largest budget, by B_p, with what cannot be told from it.

    Args:
        rows: `compare_by` B_p.
        level: of the confidence set.
    """
    out = []
    for row in rows:
        best = max(row["scores"], key=lambda one: one["score"])
        names = "probability_best", "rollouts_per_problem"
        share_J, n_J = (np.array([one[name] for one in row["scores"]]) for name in names)
        out.append({
            "metric": metric,
            "problems_per_batch": row["problems_per_batch"],
            "at": row["at"],
            "rollouts_per_problem": best["rollouts_per_problem"],
            "score": best["score"],
            "probability": best["probability_best"],
            "confidence_set": confidence_set(share_J, n_J, level),
        })  # fmt: skip
    return out


def confounded(configurations: Sequence[Configuration]) -> bool:
    """Whether every n has one B_p only, so that n and the batch change together."""
    b_p = defaultdict(set)
    for c in configurations:
        b_p[c.rollouts_per_problem].add(c.problems_per_batch)
    return max(map(len, b_p.values())) < 2


def direction(frontier: Frontier, ridge: Ridge, level: float) -> dict[str, Any]:
    """D log n* / d log B_p at equal budget, what it says, and comparisons at equal batch.

    Args:
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
        only = len({c.rollouts_per_problem for c in frontier.configurations}) == 1
        why = " from one n" if only else ": the best n lies at an end of those tested"
        sentence = f"{_UNKNOWN}{why}."
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
