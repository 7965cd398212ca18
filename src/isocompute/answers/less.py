"""What a part of a budget would reach, in the same draws: the last doubling may buy nothing.

Shape legend: D draws, F candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isocompute.answers.best import AS_GOOD, choice, interval
from isocompute.answers.prescribe import Prescription, Question

PARTS = {"half": 1 / 2, "tenth": 1 / 10}


def part_of_the_budget(q: Question, found: Prescription, share: float) -> dict[str, Any] | None:
    """The best tested configuration of a part of the budget, beside the choice of all of it.

    Both scores come from the same draws, so that what they share cannot hide or make a difference.

    Returns:
        Configuration, `predicted_score`, `lost` (mean of what it scores less) with its `interval`,
        and `as_good`: that mean is below 0.002. None at a fixed batch, below the budgets compared,
        and where no configuration keeps within the limits.
    """
    fit, part = q.fit, replace(q, x=q.x * share)
    which = [c for c in fit.configurations if part.blocked(c) is None]
    if q.steps is not None or part.x < fit.support[0] or not which:
        return None
    score_DF = fit.scores_of(which, part.x)
    at = choice(score_DF.mean(axis=0))
    lost_D = found.score_D - score_DF[:, at]
    return {
        **which[at]._asdict(), "predicted_score": score_DF[:, at].mean(), "lost": lost_D.mean(),
        "interval": interval(lost_D, fit.level), "as_good": bool(lost_D.mean() < AS_GOOD),
    }  # fmt: skip


def less_words(d: Mapping[str, Any]) -> str:
    """What half and a tenth of a plan's budget reach; nothing where nobody knows."""
    half, tenth = (d.get(name) for name in PARTS)
    if half is None:
        return ""
    n, score = half["rollouts_per_problem"], half["predicted_score"]
    more = f", a tenth {tenth['predicted_score']:.3f}" if tenth else ""
    if half["as_good"]:
        most = max(half["interval"][1], 0.0)
        of = "" if n == d["rollouts_per_problem"] else f" with n = {n}"
        return f"half does as well: {score:.3f}{of} (at most {most:.3f} less){more}"
    return f"half the budget: {score:.3f}{more}"
