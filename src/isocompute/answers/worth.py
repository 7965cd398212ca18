"""What a check can gain, and what paying for it out of the budget loses.

Both in score, from the draws of the plan. A check that costs more than it can gain is not asked
for.

Shape legend: D draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isocompute.answers.best import FloatArray
from isocompute.answers.on_the_way import one_run
from isocompute.answers.prescribe import Prescription, Question
from isocompute.domain import Configuration, Effort

# Steps that compare what was tested: they gain at most what not knowing the best n loses.
_AMONG_TESTED = ("n_not_told_apart", "seeds_missing")
# Steps that try one run of something else.
_PROBES = ("capped_by_tested_n", "n_at_smallest_tested", "won_by_batch", "bp_untested")


def stakes(q: Question, found: Prescription, code: str, trains: Effort) -> dict[str, float | None]:
    """`gain`: expected, at most, by what a check may change; `lost` where the budget pays for it.

    None where the draws do not say: they know nothing of a learning rate, say.
    """
    gain = None
    if code in _AMONG_TESTED:
        gain = float(found.answers["expected_regret"])
    elif code in _PROBES and trains:
        gain = max(probe(q, found, c) for c in trains)
    return {"gain": gain, "lost": None if gain is None else _lost(q, found, trains)}


def probe(q: Question, found: Prescription, other: Configuration) -> float:
    """Mean gain where one run of another configuration decides whether to change to it.

    The run is as long as what it is compared with. It has its own luck, and tells of the budget of
    the plan only as far as the draws of the two go together.
    """
    fit, at = q.fit, q.fit.compared(found.configuration, q.x)
    more_D = fit.scores_of([other], q.x)[:, 0] - found.score_D
    seen_D = one_run(fit, other, at)[1] - fit.scores_of([found.configuration], at)[:, 0]
    return float(np.maximum(_told(more_D, seen_D), 0.0).mean())


def _told(value_D: FloatArray, seen_D: FloatArray) -> FloatArray:
    """What is expected of a value once something else is seen: the line through the draws."""
    away_D = seen_D - seen_D.mean()
    spread = float((away_D**2).mean())
    slope = float((away_D * value_D).mean()) / spread if spread > 0 else 0.0
    return np.asarray(value_D.mean() + slope * away_D)


def _lost(q: Question, found: Prescription, trains: Effort) -> float | None:
    """What the best run scores less that the rest of the budget pays for."""
    fit, unit = q.fit, q.fit.unit
    paid: float | None = sum(trains.values())
    if unit != "rollouts":
        paid = q.price.cost(trains)[unit.replace("-", "_")]
    if q.steps is not None or paid is None:  # a fixed batch is paid by no budget
        return None
    left, chosen = q.x - paid, found.score_D.mean()
    if left <= 0:
        return float(chosen)
    part = replace(q, x=left)
    scores = fit.expected_scores(left)
    free = [score for c, score in scores.items() if part.blocked(c) is None]
    return float(chosen - max(free, default=0.0))
