"""What goes with a source: difficulty, recipe, rates, and whose sweep it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, get_args

from isocompute.allocation import Rates
from isocompute.domain import Notice, notice
from isocompute.errors import InputError
from isocompute.recipe import Difficulty, Recipe
from isocompute.sources.grid import GRID, grid_problem_set
from isocompute.sources.studies import study_facts, with_study_rates
from isocompute.store.arms import split_source

# Validation curves of Qwen2.5-7B-Instruct at B_p = 32 (arXiv 2603.12151), fitted when asked.
# No sweep of mixtures was published; mixtures train with the recipe of Hard (appendix A).
PUBLISHED = {name: f"published:qwen2.5-7b-{panel}" for name, panel in
             (("easy", "easy"), ("hard", "hard"), ("mixed", "hard"))}  # fmt: skip
PUBLISHED_MODEL, PUBLISHED_PROBLEMS = "Qwen2.5-7B-Instruct", 6000
GRID_MODEL = "a transformer of 118,000 parameters in a small world"


def around_source(
    source: str | None, difficulty: Difficulty | None, given: Rates
) -> dict[str, Any]:
    """Recipe, rates and notices that go with a source."""
    if difficulty is not None and difficulty not in get_args(Difficulty):
        raise InputError(
            f"difficulty must be one of easy, hard, mixed, but got {difficulty!r}; "
            "measure it with `isocompute difficulty`."
        )
    notices: list[Notice] = []
    published = source is None or source.startswith("published:")
    grid = (source or "").startswith(GRID)
    known = _difficulty_of(source) if source and (published or grid) else None
    resolved = difficulty or known or "easy"
    chosen = source or PUBLISHED[difficulty or "easy"]
    facts = study_facts(chosen)
    recipe = facts.recipes[0] if len(facts.recipes) == 1 else None
    if len(facts.recipes) > 1:
        notices.append(notice("recipes_mixed"))
    if recipe is not None and difficulty is not None:
        # The regularisers follow the difficulty asked for; the learning rate follows the model.
        healthy = Recipe.for_difficulty(difficulty)
        recipe = recipe.replace(kl_coef=healthy.kl_coef, entropy_coef=healthy.entropy_coef)
    if recipe is None and difficulty is None and known is None:
        notices.append(notice("difficulty_assumed"))
    if published:
        unlike = " (a hard set: none was published for mixtures)" if resolved == "mixed" else ""
        model = f"{PUBLISHED_MODEL}, math{unlike}"
        notices.append(notice("law_of_another_model", source=chosen, model=model))
    elif grid:
        notices.append(notice("law_of_another_model", source=chosen, model=GRID_MODEL))
    elif recipe is None:
        notices.append(notice("anchor_assumed", model=PUBLISHED_MODEL))
    rates = with_study_rates(source, given)
    filled = [name for name, rate in asdict(rates).items() if rate != getattr(given, name)]
    return {
        "source": chosen,
        "study": "study.yaml" if published or grid else facts.file,
        "difficulty": resolved,
        "difficulty_given": difficulty is not None,
        "recipe": recipe,
        "rates": rates,
        "rates_from": dict.fromkeys(filled, "study"),
        "trained_on": PUBLISHED_PROBLEMS if published else facts.problems,
        "notices": notices,
    }



def _difficulty_of(source: str) -> Difficulty | None:
    """Of a source that is shipped: its name says it, or its file does."""
    if source.startswith(GRID):
        name = grid_problem_set(split_source(source)[0].removeprefix(GRID))
        return "easy" if name in ("easy", "very_easy") else None if name is None else "hard"
    return "easy" if "easy" in source else "hard" if "hard" in source else None
