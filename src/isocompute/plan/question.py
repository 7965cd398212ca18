"""What is asked of a plan, and whether the sweep can carry an answer.

docs/plan.md argues the rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isocompute.allocation import Rates
from isocompute.domain.text import compact
from isocompute.errors import InputError, RefusalError
from isocompute.plan.law import LawFit, Notice, ScoredFit, support_of, tested
from isocompute.plan.words import NOTICEABLE_LOG10
from isocompute.recipe import Recipe

if TYPE_CHECKING:
    from isocompute.domain import Curve

# How far past the sweep a plan may reach: never more than a decade, and no more than twice the
# span in which the ranking was observed (docs/plan.md).
MAX_EXTRAPOLATION_LOG10 = 1.0
MAX_EXTRAPOLATION_SPANS = 2.0

# Share of the draws from which on the rarer form of curve is worth a warning.
FORM_UNSURE = 0.05

# Warnings of a fit that explain why it has no law.
NO_LAW = ("non_monotone", "rise_not_claimed")

# Warnings of a fit whose runs did not learn, and what to run instead. Where scores are flat no n is
# better than another, and curves without a ceiling would give regrets of several points out there.
_NOT_LEARNED = {
    "scores_fall": ["the same sweep with 1 - value as the score",
                    "one run under a recipe that learns"],
    "scores_flat": ["one run that surely learns: longer, evaluated on more problems, or on an "
                    "easier set", "then the sweep under that recipe"],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Question:
    """One planning question with the defaults resolved."""

    fit: LawFit
    source: str
    rollouts: float
    recipe: Recipe
    rates: Rates
    max_batch_size: int | None
    min_steps: int
    unhealthy: Mapping[tuple[int, int], str] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()


def require_one_batch(q: Question) -> None:
    """Raise InputError where the budget, or the largest batch, is below any batch tested."""
    smallest = min(n * b_p for n, b_p in tested(q.fit))
    if q.rollouts < smallest:
        raise InputError(
            f"a budget must buy at least one batch, but got {compact(q.rollouts)} "
            f"rollouts and the smallest batch tested has {smallest}; raise the budget."
        )
    if q.max_batch_size is not None and q.max_batch_size < smallest:
        raise InputError(
            f"the largest batch must hold the smallest one tested ({smallest} rollouts), but got "
            f"{q.max_batch_size}; raise it, or sweep smaller batches."
        )


def require_carried(q: Question) -> None:
    """Refuse what the sweep says nothing about.

    Raises:
        RefusalError: no law; runs that did not learn; a budget below every observation; a budget
            too far from the common support.
    """
    law = q.fit.document.get("law") or {}
    if law.get("form") is None:
        why = [w["message"] for w in q.fit.warnings if w["code"] in NO_LAW]
        raise RefusalError(
            "a plan needs a law n*(C), but none could be identified on this sweep; "
            + (why[0] if why else "add values of n, budget or seeds."),
            [
                f"`isocompute fit {q.source or 'SOURCE'}` shows the frontier",
                "at least 3 seeds of the n that lead it, over a wider range of budgets",
            ],
        )
    said = {w["code"]: w["message"] for w in q.fit.warnings}
    for code, run_next in _NOT_LEARNED.items():
        if code in said:
            raise RefusalError(
                f"a plan needs scores that training raises, but {said[code]}", run_next
            )
    observed = min(_first_rollouts(c) for c in q.fit.curves)
    if q.rollouts < observed:
        raise RefusalError(
            f"a plan needs observations at or below its budget, but the first score of the sweep "
            f"is at {compact(observed)} rollouts and the budget is "
            f"{compact(q.rollouts)}; evaluate earlier.",
            [f"the same sweep with evaluations from {compact(q.rollouts / 2)} rollouts on"],
        )
    low, high = support_of(q.fit)
    distance = extrapolation_log10(q.rollouts, (low, high))
    limit = min(MAX_EXTRAPOLATION_LOG10, MAX_EXTRAPOLATION_SPANS * math.log10(high / low))
    if distance > limit:
        needed = q.rollouts / 10**limit if q.rollouts > high else q.rollouts * 10**limit
        raise RefusalError(
            f"a plan may lie at most {limit:.2f} decades outside the budgets compared "
            f"({compact(low)} to {compact(high)} rollouts), but "
            f"{compact(q.rollouts)} lies {distance:.2f} outside; "
            f"extend the sweep to {compact(needed)} rollouts.",
            [f"every n that is still in question, to {compact(needed)} rollouts or beyond"],
        )


def extrapolation_log10(rollouts: float, support: tuple[float, float]) -> float:
    """Decades between a budget and the common support; 0 inside it."""
    low, high = support
    return max(0.0, math.log10(rollouts / high), math.log10(low / rollouts))


def _first_rollouts(curve: Curve) -> float:
    positive = curve.rollouts_K[curve.rollouts_K > 0]
    return float(positive[0]) if positive.size else math.inf


def distance_notices(q: Question) -> list[Notice]:
    """Warnings `extrapolated`, `form_unsure` for a budget outside the common support."""
    low, high = support_of(q.fit)
    distance = extrapolation_log10(q.rollouts, (low, high))
    if distance < NOTICEABLE_LOG10:
        return []
    side = "above" if q.rollouts > high else "below"
    skill = (q.fit.document.get("backtest") or {}).get("skill")
    doubt = (
        " Held-out scores of this very sweep were predicted worse than by 'it stays as it is'."
        if skill is not None and skill < 0
        else ""
    )
    return [
        {
            "code": "extrapolated",
            "message": f"the budget lies {distance:.2f} decades {side} the budgets at which every "
            f"n was compared ({compact(low)} to {compact(high)} rollouts); the "
            f"intervals do not cover a change of the law out there.{doubt}",
        },
        *_form_notice(q),
    ]


def _form_notice(q: Question) -> list[Notice]:
    share = q.fit.gompertz_share(q.rollouts) if isinstance(q.fit, ScoredFit) else 0.0
    if not FORM_UNSURE <= share <= 1 - FORM_UNSURE:
        return []
    return [
        {
            "code": "form_unsure",
            "message": "the sweep does not tell how its curves bend towards their ceilings: "
            f"{share:.0%} of the draws are Gompertz curves, which go on rising where logistic ones "
            "have bent. Expected scores and intervals at this budget hold both, the ceilings of "
            "`isocompute fit` one.",
        }
    ]
