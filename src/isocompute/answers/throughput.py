"""Whether a choice wins by what its large batches save, which no smaller n was given."""

from __future__ import annotations

from isocompute.answers.best import AS_GOOD
from isocompute.answers.direction import confounded
from isocompute.answers.effort import longest
from isocompute.answers.prescribe import Question
from isocompute.domain import Configuration, Notice, notice


def won_by_batch(q: Question, chosen: Configuration) -> list[Notice]:
    """The notice that a smaller n would lead at as many rollouts, and which of its batches to try.

    At equal GPU-hours n and the batch change together twice: in what is learnt from a rollout, and
    in how many an hour makes.
    """
    fit = q.fit
    if fit.unit != "gpu-hours" or not confounded(fit.configurations):
        return []
    rollouts = q.rollouts(chosen)
    score = fit.again("rollouts").expected_scores(rollouts)
    other = max(score, key=lambda c: score[c])
    n = other.rollouts_per_problem
    if n >= chosen.rollouts_per_problem or score[other] - score[chosen] < AS_GOOD:
        return []
    wide = Configuration(chosen.batch_size // n, n)
    trains = {wide: min(longest(fit), rollouts)}
    return [notice("won_by_batch", n=chosen.rollouts_per_problem, other=n,
                   bp=wide.problems_per_batch, trains=trains)]  # fmt: skip
