"""From a law and a budget to one allocation, with everything that limits its meaning.

Source: arXiv 2603.12151, section 4.4 (the playbook): n from the law, capped by its plateau and
by B_max / B_p; the smallest stable B_p; M takes the rest. docs/plan.md argues the rules below
that the paper does not give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from isocompute.allocation import Allocation, Budget, Rates
from isocompute.errors import InputError, RefusalError
from isocompute.plan.choose import Choice, choose, cost_of_choice
from isocompute.plan.law import LawFit, Notice, expected_regrets, support_of
from isocompute.plan.question import (
    Question,
    distance_notices,
    extrapolation_log10,
    require_carried,
    require_one_batch,
)
from isocompute.recipe import Difficulty, Recipe
from isocompute.trainers import TRAINERS, trainer_settings

# 2: n is chosen by expected score, and `expected_regret` is that of the choice.
DOCUMENT_VERSION = 2
# Budgets are compared where every n has at least this many steps (DESIGN.md), so a plan with
# fewer would sit where no comparison was ever made.
MIN_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A prescription, or the reason why there is none.

    Args:
        allocation: (B_p, n, M); None in a refusal.
        recipe: with its anchor learning rate.
        document: the `plan --json` contract of docs/contracts.md.
        refusal: None, or why the data cannot carry an answer.
    """

    allocation: Allocation | None
    recipe: Recipe
    document: dict[str, Any] = field(repr=False)
    refusal: RefusalError | None = None

    @property
    def learning_rate(self) -> float | None:
        """After warm-up, scaled to the plan's batch; None in a refusal."""
        if self.allocation is None:
            return None
        return self.recipe.learning_rate_at(self.allocation.batch_size)


def plan_budget(
    fit: LawFit,
    budget: Budget | float,
    *,
    difficulty: Difficulty = "easy",
    source: str = "",
    recipe: Recipe | None = None,
    rates: Rates | None = None,
    max_batch_size: int | None = None,
    min_steps: int = MIN_STEPS,
    unhealthy: Mapping[tuple[int, int], str] | None = None,
    warnings: Sequence[Notice] = (),
) -> Plan:
    """How to spend a budget: B_p * n * M <= C always holds.

    Args:
        fit: the law (in rollouts).
        budget: rollouts, or a `Budget` in tokens, GPU-hours or money.
        difficulty: of the problem set; chooses the recipe.
        source: what the law was fitted on, for the record.
        recipe: instead of the recipe of that difficulty; its learning rate is the anchor.
        rates: what a rollout costs; a missing tokens_per_rollout is measured on the sweep.
        max_batch_size: B_max, rollouts per batch that the hardware holds.
        min_steps: smallest M worth running.
        unhealthy: (B_p, n) -> health failures of its runs; such a B_p is not called stable.
        warnings: notices to carry into the document (for example, whose law it is).

    Raises:
        InputError: a limit below 1, a budget that needs a rate nobody gave, or a budget that
            does not buy one batch of the smallest configuration tested.
    """
    _require_limit("max_batch_size", max_batch_size)
    _require_limit("min_steps", min_steps)
    measured, notes = _with_measured_tokens(fit, rates or Rates())
    amount = budget if isinstance(budget, Budget) else Budget(amount=float(budget), unit="rollouts")
    question = Question(
        fit=fit,
        source=source,
        rollouts=measured.rollouts(amount),
        recipe=recipe or Recipe.for_difficulty(difficulty),
        rates=measured,
        max_batch_size=max_batch_size,
        min_steps=min_steps,
        unhealthy=unhealthy or {},
        warnings=(*warnings, *notes),
    )
    require_one_batch(question)
    try:
        require_carried(question)
        return _answer(question, choose(question))
    except RefusalError as refusal:
        return refused_plan(
            refusal,
            rollouts=question.rollouts,
            recipe=question.recipe,
            law=_law_summary(question),
            warnings=(*question.warnings, *fit.warnings),
        )


def plan_fixed_batch(
    fit: LawFit,
    batch_size: int,
    steps: int,
    *,
    difficulty: Difficulty = "easy",
    source: str = "",
    recipe: Recipe | None = None,
    rates: Rates | None = None,
    unhealthy: Mapping[tuple[int, int], str] | None = None,
    warnings: Sequence[Notice] = (),
) -> Plan:
    """How to split a fixed batch B into (B_p, n) when M steps will be run.

    With a law of the fixed batch, n comes from it. Otherwise n is n*(C) at C = B * M, held so
    that B_p = B / n stays at or above the smallest stable B_p, with warning
    `fixed_batch_law_missing`. B_p * n <= B always holds.

    Raises:
        InputError: B or M below 1, or B below the smallest batch tested.
    """
    _require_limit("batch_size", batch_size)
    _require_limit("steps", steps)
    measured, notes = _with_measured_tokens(fit, rates or Rates())
    setting = fit.document["setting"]
    own_law = setting["kind"] == "fixed_batch_size" and setting["value"] == batch_size
    extra: list[Notice] = []
    if not own_law:
        extra.append(
            {
                "code": "fixed_batch_law_missing",
                "message": f"no law at a fixed batch of {batch_size} was fitted; n is that of the "
                f"budget {batch_size * steps:,} rollouts and B_p = B / n. Sweep n at B="
                f"{batch_size} to know the split.",
            }
        )
    question = Question(
        fit=fit,
        source=source,
        rollouts=float(batch_size * steps),
        recipe=recipe or Recipe.for_difficulty(difficulty),
        rates=measured,
        max_batch_size=batch_size,
        min_steps=1,
        unhealthy=unhealthy or {},
        warnings=(*warnings, *extra, *notes),
    )
    require_one_batch(question)
    try:
        require_carried(question)
        choice = choose(question, split_of=batch_size if own_law else None)
        n = choice.allocation.rollouts_per_problem
        split = Allocation(problems_per_batch=batch_size // n, rollouts_per_problem=n, steps=steps)
        # Of the splits themselves: B_p was given by the batch, not chosen.
        lost = expected_regrets(fit, question.rollouts) or {}
        by_law = choice.by_law
        choice = replace(
            choice,
            allocation=split,
            expected_regret=lost.get((batch_size // n, n)),
            law_expected_regret=by_law and lost.get((batch_size // by_law, by_law)),
        )
        return _answer(question, choice)
    except RefusalError as refusal:
        return refused_plan(
            refusal,
            rollouts=question.rollouts,
            recipe=question.recipe,
            law=_law_summary(question),
            warnings=(*question.warnings, *fit.warnings),
        )


def refused_plan(
    refusal: RefusalError,
    *,
    rollouts: float | None,
    recipe: Recipe,
    law: Mapping[str, Any] | None = None,
    warnings: Sequence[Notice] = (),
) -> Plan:
    """A plan that says why there is none, in the same contract: every number is None."""
    document: dict[str, Any] = {
        "version": DOCUMENT_VERSION,
        "budget_rollouts": rollouts,
        **dict.fromkeys(
            (
                "problems_per_batch",
                "rollouts_per_problem",
                "steps",
                "batch_size",
                "rollouts",
                "rollouts_per_problem_law",
                "law_rollouts_per_problem",
                "law_expected_regret",
                "chosen_by",
                "rollouts_per_problem_interval",
                "confidence_set",
                "expected_regret",
                "predicted_score",
                "predicted_score_interval",
                "learning_rate",
            )
        ),
        "recipe": recipe.to_dict(),
        "cost": {"tokens": None, "gpu_hours": None, "usd": None},
        "extrapolation_log10": None,
        "law": dict(law or {}),
        "trainer": {},
        "trainer_units": {},
        "refusal": {"reason": refusal.reason, "run_next": list(refusal.run_next)},
        "warnings": _unique(warnings),
    }
    return Plan(allocation=None, recipe=recipe, document=document, refusal=refusal)


def _require_limit(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or value < 1):
        raise InputError(f"`{name} >= 1` must hold, but got {value!r}; raise it or leave it out.")


def _answer(q: Question, choice: Choice) -> Plan:
    """The document of a plan that stands."""
    a = choice.allocation
    b_p, n = a.problems_per_batch, a.rollouts_per_problem
    reading = q.fit.at(q.rollouts)
    # At the budget, as everything else: rounding down may end inside the budgets compared.
    score = q.fit.score_at(b_p, n, q.rollouts, choice.chosen_from)
    warnings = [*q.warnings, *choice.warnings, *distance_notices(q)]
    best = [value for value in reading.confidence_set if value > n]
    by_score = choice.chosen_by != "law"
    if not by_score and n == choice.wanted and best and n not in reading.confidence_set:
        warnings.append(
            {
                "code": "rounded_below_the_best",
                "message": f"the law's {reading.rollouts_per_problem:.0f} is rounded down to {n}, "
                f"but on the grid n={best[0]} is ahead of it at this budget: "
                f"{cost_of_choice(q, b_p, n, best[0])}",
            }
        )
    if score is None:
        warnings.append(
            {
                "code": "score_unknown",
                "message": f"no score is predicted: B_p={b_p}, n={n} was not trained near "
                f"{q.rollouts:,.0f} rollouts in this sweep.",
            }
        )
    trainers = {name: trainer_settings(name, a, q.recipe) for name in TRAINERS}
    document: dict[str, Any] = {
        "version": DOCUMENT_VERSION,
        "budget_rollouts": q.rollouts,
        "problems_per_batch": b_p,
        "rollouts_per_problem": n,
        "steps": a.steps,
        "batch_size": a.batch_size,
        "rollouts": a.rollouts,
        "rollouts_per_problem_law": float(reading.rollouts_per_problem),
        "rollouts_per_problem_interval": _pair(reading.interval),
        "confidence_set": [int(value) for value in reading.confidence_set],
        "chosen_by": choice.chosen_by,
        "law_rollouts_per_problem": choice.by_law,
        "law_expected_regret": choice.law_expected_regret,
        "expected_regret": choice.expected_regret if by_score else reading.expected_regret,
        "predicted_score": None if score is None else float(score[0]),
        "predicted_score_interval": None if score is None else _pair(score[1:]),
        "learning_rate": q.recipe.learning_rate_at(a.batch_size),
        "recipe": q.recipe.to_dict(),
        "cost": q.rates.cost(a.rollouts),
        "extrapolation_log10": extrapolation_log10(q.rollouts, support_of(q.fit)),
        "law": _law_summary(q),
        "trainer": {name: dict(words.keys) for name, words in trainers.items()},
        "trainer_units": {name: words.units for name, words in trainers.items()},
        "refusal": None,
        "warnings": _unique([*warnings, *q.fit.warnings]),
    }
    return Plan(allocation=a, recipe=q.recipe, document=document)


def _law_summary(q: Question) -> dict[str, Any]:
    """The law that was used, without its table."""
    document = q.fit.document
    law = {k: v for k, v in (document.get("law") or {}).items() if k != "at"}
    support = None if q.fit.support is None else [float(v) for v in q.fit.support]
    return {
        "source": q.source,
        **{k: document.get(k) for k in ("setting", "metric", "unit", "level")},
        "support": support,
        "warnings": sorted({warning["code"] for warning in q.fit.warnings}),
        **law,
    }


def _with_measured_tokens(fit: LawFit, rates: Rates) -> tuple[Rates, list[Notice]]:
    """Fill tokens_per_rollout from the sweep where it logged tokens and nobody gave a rate."""
    if rates.tokens_per_rollout is not None:
        return rates, []
    seen = sorted(
        float(c.tokens_K[-1] / c.rollouts_K[-1])
        for c in fit.curves
        if c.tokens_K is not None and c.rollouts_K[-1] > 0 and math.isfinite(c.tokens_K[-1])
    )
    if not seen:
        return rates, []
    median = seen[len(seen) // 2]
    notice: Notice = {
        "code": "tokens_measured",
        "message": f"tokens are counted at {median:.0f} per rollout, the median of the sweep's "
        f"runs ({seen[0]:.0f} to {seen[-1]:.0f}).",
    }
    return replace(rates, tokens_per_rollout=median), [notice]


def _unique(notices: Sequence[Notice]) -> list[dict[str, str]]:
    """In order, each code and message once."""
    return [dict(pairs) for pairs in dict.fromkeys(tuple(n.items()) for n in notices)]


def _pair(values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else [float(values[0]), float(values[1])]
