"""From a source and a question to a plan: which law answers, and what to know about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from isocompute.allocation import Budget, Rates
from isocompute.errors import InputError, RefusalError
from isocompute.plan.budget import (
    MIN_STEPS,
    Plan,
    plan_budget,
    plan_fixed_batch,
    refused_plan,
)
from isocompute.plan.law import LawFit, Notice
from isocompute.recipe import Difficulty, Recipe
from isocompute.sources.studies import study_recipes, unhealthy, with_study_rates

if TYPE_CHECKING:
    from isocompute.curves.bins import Select
    from isocompute.domain import Curve
    from isocompute.importers import Settings

# Validation curves of Qwen2.5-7B-Instruct at B_p = 32 (arXiv 2603.12151), fitted when asked.
# No law of mixtures was published; mixtures train with the recipe of Hard (appendix A).
PUBLISHED = {
    "easy": "published:qwen2.5-7b-easy",
    "hard": "published:qwen2.5-7b-hard",
    "mixed": "published:qwen2.5-7b-hard",
}


@dataclass(frozen=True, kw_only=True)
class PlanningLaw:
    """A fitted law with what the plan has to know about it.

    Args:
        fit: the fit.
        source: what it was fitted on.
        difficulty: given, or taken from the source's name, or assumed easy (with a warning).
        recipe: that the source's study trained with, unless a difficulty asks for another; None:
            that of the difficulty.
        unhealthy: (B_p, n) of a study whose runs failed a health rule, with the rules.
        warnings: about the choice of the law.
    """

    fit: LawFit
    source: str
    difficulty: Difficulty
    recipe: Recipe | None
    unhealthy: Mapping[tuple[int, int], str]
    warnings: tuple[Notice, ...]


def plan_from_source(
    source: str | None = None,
    *,
    budget: Budget | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    difficulty: Difficulty | None = None,
    metric: str | None = None,
    problem_set: str | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    select: Select = "best",
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
    rates: Rates | None = None,
    max_batch_size: int | None = None,
    min_steps: int | None = None,
    fit: LawFit | None = None,
) -> Plan:
    """Fit the law of a source and plan with it.

    Args:
        source: a SOURCE; None: the published law of that difficulty.
        budget: what may be spent; or
        batch_size, steps: B and M of a fixed batch, whose split is asked for.
        difficulty: of the problem set to be trained on; None: as the source's name says.
        metric, problem_set: which score, on which set; None: the only one there is.
        score_range: of the scores in a tidy file.
        select: which checkpoint counts at a budget, see `laws.fit_sweep`; of `fit`, as it was.
        settings: what a log does not say.
        say: hears what was left out of a log.
        rates: what a rollout costs; what is missing comes from the source's study file.
        max_batch_size, min_steps: limits, see `plan_budget`.
        fit: of the source, where it is at hand already.

    Raises:
        InputError: not exactly one of budget and fixed batch; an unknown difficulty or source.
    """
    fixed_batch = batch_size is not None or steps is not None
    if fixed_batch == (budget is not None):
        raise InputError(
            "a plan needs either a budget or a batch size with steps, but got "
            f"{'both' if fixed_batch else 'neither'}; give one of the two."
        )
    if fixed_batch and (max_batch_size is not None or min_steps is not None):
        raise InputError(
            "limits belong to a budget, but got max_batch or min_steps with a fixed batch; "
            "leave them out."
        )
    rates = with_study_rates(source, rates or Rates())
    try:
        law = planning_law(
            source,
            difficulty=difficulty,
            metric=metric,
            problem_set=problem_set,
            batch_size=batch_size,
            score_range=score_range,
            select=select,
            settings=settings,
            say=say,
            fit=fit,
        )
    except RefusalError as refusal:
        return refused_plan(
            refusal,
            rollouts=budget.amount if budget and budget.unit == "rollouts" else None,
            recipe=Recipe.for_difficulty(difficulty or "easy"),
            law={"source": source},
        )
    if budget is None:
        if batch_size is None or steps is None:
            raise InputError(
                f"a fixed batch needs both batch size and steps, but got batch_size={batch_size}, "
                f"steps={steps}; add the other."
            )
        return plan_fixed_batch(
            law.fit,
            batch_size,
            steps,
            difficulty=law.difficulty,
            source=law.source,
            recipe=law.recipe,
            rates=rates,
            unhealthy=law.unhealthy,
            warnings=law.warnings,
        )
    return plan_budget(
        law.fit,
        budget,
        difficulty=law.difficulty,
        source=law.source,
        recipe=law.recipe,
        rates=rates,
        unhealthy=law.unhealthy,
        max_batch_size=max_batch_size,
        min_steps=MIN_STEPS if min_steps is None else min_steps,
        warnings=law.warnings,
    )


def planning_law(
    source: str | None = None,
    *,
    difficulty: Difficulty | None = None,
    metric: str | None = None,
    problem_set: str | None = None,
    batch_size: int | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    select: Select = "best",
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
    fit: LawFit | None = None,
) -> PlanningLaw:
    """Load the curves of `source` and fit the law that a plan needs.

    Args:
        source: a SOURCE; None: the published law of that difficulty.
        difficulty: of the problem set to be trained on; None: read off the source's name.
        metric, problem_set: which score, on which set; None: the only one there is.
        batch_size: for a fixed batch, whose own law is used where the sweep has one.
        score_range: of the scores in a tidy file.
        select: which checkpoint counts at a budget, see `laws.fit_sweep`; of `fit`, as it was.
        settings: what a log does not say.
        say: hears what was left out of a log.
        fit: of the source, where it is at hand already.

    Raises:
        InputError: an unknown difficulty or source.
        RefusalError: no law can be fitted.
    """
    if difficulty is not None and difficulty not in get_args(Difficulty):
        raise InputError(
            f"difficulty must be one of easy, hard, mixed, but got {difficulty!r}; "
            "measure it with `isocompute difficulty`."
        )
    warnings: list[Notice] = []
    named = _difficulty_in_name(source)
    recipes = [] if source is None else study_recipes(source)
    recipe = recipes[0] if len(recipes) == 1 else None
    if len(recipes) > 1:
        warnings.append(
            {
                "code": "recipes_mixed",
                "message": "the runs of this study differ in their recipes; the plan takes that "
                "of the difficulty. Choose the learning-rate anchor yourself.",
            }
        )
    resolved = difficulty or named or "easy"
    if recipe is not None and difficulty is not None:
        # The regularisers follow the difficulty asked for; the learning rate follows the model.
        regularised = Recipe.for_difficulty(difficulty)
        recipe = recipe.replace(kl_coef=regularised.kl_coef, entropy_coef=regularised.entropy_coef)
    if recipe is None and difficulty is None and named is None:
        warnings.append(
            {
                "code": "difficulty_assumed",
                "message": "no difficulty was given, so the recipe is that of an easy set (pass "
                "rates of the base model 0.3 to 0.6); a hard or mixed set takes neither KL nor "
                "entropy bonus. Measure it with `isocompute difficulty`, pass --difficulty.",
            }
        )
    chosen = source or PUBLISHED[resolved]
    if chosen.startswith("published:"):
        warnings.append(_another_models(chosen, resolved))
    elif recipe is None:
        warnings.append(
            {
                "code": "anchor_assumed",
                "message": "the source holds no single recipe, so the learning rate is scaled from "
                "the anchor of Qwen2.5-7B-Instruct (1e-06 at B=1024); an anchor belongs to a "
                "model: take yours, scaled by the square root of the batch, or find it with "
                "`isocompute lr-sweep`.",
            }
        )
    curves: Sequence[Curve] = ()
    if fit is None:
        from isocompute.sources import load_curves

        curves = load_curves(
            [chosen], metric=metric, problem_set=problem_set, score_range=score_range,
            settings=settings, say=say,
        )
    return PlanningLaw(
        fit=fit or _fit(curves, chosen, batch_size, select),
        source=chosen,
        difficulty=resolved,
        recipe=recipe,
        unhealthy={} if source is None else dict(unhealthy(source).items()),
        warnings=tuple(warnings),
    )


def _difficulty_in_name(source: str | None) -> Difficulty | None:
    """Published sources carry the difficulty in their name."""
    if source is None or not source.startswith("published:"):
        return None
    if "easy" in source:
        return "easy"
    return "hard" if "hard" in source else None


def _another_models(source: str, difficulty: Difficulty) -> Notice:
    of_set = " and of a hard set, since none was published for mixtures" * (difficulty == "mixed")
    return {
        "code": "law_of_another_model",
        "message": f"{source} is the law of another model (Qwen2.5-7B-Instruct, math, arXiv "
        f"2603.12151){of_set}; where n saturates, and the learning rate, differ between models. "
        "Sweep yours and pass --law.",
    }


def _fit(
    curves: Sequence[Curve], source: str, batch_size: int | None, select: Select
) -> LawFit:
    from isocompute.laws import fit_sweep

    if batch_size is not None and _has_batch(curves, batch_size):
        try:
            return fit_sweep(
                curves, fix=("batch_size", batch_size), select=select, sources=[source]
            )
        except RefusalError:
            pass  # too little at this batch: n*(C) answers, and the plan says so
    return fit_sweep(curves, select=select, sources=[source])


def _has_batch(curves: Sequence[Curve], batch_size: int) -> bool:
    """At least two splits of this batch were trained."""
    splits = {
        c.rollouts_per_problem
        for c in curves
        if c.problems_per_batch * c.rollouts_per_problem == batch_size
    }
    return len(splits) >= 2
