"""What half of a budget would reach, in the same draws: the last doubling may buy nothing.

Shape legend: D draws, F candidates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isocompute.answers.best import AS_GOOD, choice, interval
from isocompute.answers.prescribe import Prescription, Question


def half_the_budget(q: Question, found: Prescription) -> dict[str, Any] | None:
    """The best tested configuration of half the budget, beside the choice of the whole one.

    Both scores come from the same draws, so that what they share cannot hide or make a difference.

    Returns:
        Configuration, `predicted_score`, `lost` (mean of what it scores less) with its `interval`,
        and `as_good`: that mean is below 0.002. None at a fixed batch, below the budgets compared,
        and where no configuration keeps within the limits.
    """
    fit, half = q.fit, replace(q, x=q.x / 2)
    which = [c for c in fit.configurations if half.blocked(c) is None]
    if q.steps is not None or half.x < fit.support[0] or not which:
        return None
    score_DF = fit.scores_of(which, half.x)
    at = choice(score_DF.mean(axis=0))
    lost_D = found.score_D - score_DF[:, at]
    return {
        **which[at]._asdict(), "predicted_score": score_DF[:, at].mean(), "lost": lost_D.mean(),
        "interval": interval(lost_D, fit.level), "as_good": bool(lost_D.mean() < AS_GOOD),
    }  # fmt: skip


def half_words(half: dict[str, Any] | None) -> str:
    """One line where half the budget does as well, else nothing."""
    if half is None or not half["as_good"]:
        return ""
    score, n = half["predicted_score"], half["rollouts_per_problem"]
    most = max(half["interval"][1], 0.0)
    return f"the budget does as well: {score:.3f} with n = {n} (at most {most:.3f} less)"
