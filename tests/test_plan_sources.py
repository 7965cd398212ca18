"""Which law, recipe and rates a plan takes from its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute.allocation import Budget, Rates, parse_budget
from isocompute.engines import problem_generators
from isocompute.errors import InputError
from isocompute.plan import plan_from_source
from isocompute.runner import run_study
from isocompute.study import load_study
from planted_law import PlantedFit

FIT = PlantedFit()
BUDGET = Budget(amount=4e6, unit="rollouts")

STUDY = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 8}}
  validation:
    main: {generated: simulated, options: {size: 6}}
RECIPES
grid: {problems_per_batch: 4, rollouts_per_problem: [4]}
budget: 320
evaluation: {samples: 4, per_octave: 2, first: 32}
rates: {rollouts_per_gpu_hour: 1000, tokens_per_rollout: 7}
"""
ONE = "recipe: {learning_rate: 0.5, base_batch_size: 16, learning_rate_scaling: linear}"
TWO = "recipes: {a: {learning_rate: 0.5}, b: {learning_rate: 0.25}}"


def study_folder(tmp_path: Path, recipes: str) -> str:
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.replace("RECIPES", recipes))
    study = load_study(file, generators=problem_generators())
    run_study(study, tmp_path / "s", workers=0)
    return str(tmp_path / "s")


def codes(document: dict[str, list[dict[str, str]]]) -> list[str]:
    return [warning["code"] for warning in document["warnings"]]


def test_a_study_brings_its_recipe_and_its_rates(tmp_path: Path) -> None:
    source = study_folder(tmp_path, ONE)
    d = plan_from_source(source, budget=BUDGET, fit=FIT).document
    assert d["recipe"]["learning_rate"] == 0.5
    assert d["learning_rate"] == pytest.approx(0.5 * d["batch_size"] / 16)
    assert d["recipe"]["kl_coef"] == 0
    assert d["cost"]["gpu_hours"] == pytest.approx(d["rollouts"] / 1000)
    assert "difficulty_assumed" not in codes(d)
    assert "law_of_another_model" not in codes(d)
    assert "anchor_assumed" not in codes(d)


def test_a_rate_that_is_given_comes_first(tmp_path: Path) -> None:
    source = study_folder(tmp_path, ONE)
    rates = Rates(tokens_per_rollout=100.0)
    d = plan_from_source(source, budget=parse_budget("4e8tok"), rates=rates, fit=FIT).document
    assert d["budget_rollouts"] == pytest.approx(4e6)
    assert d["cost"]["gpu_hours"] == pytest.approx(d["rollouts"] / 1000)


def test_a_difficulty_exchanges_the_regularisers_only(tmp_path: Path) -> None:
    source = study_folder(tmp_path, ONE)
    d = plan_from_source(source, budget=BUDGET, difficulty="easy", fit=FIT).document
    assert d["recipe"]["kl_coef"] > 0
    assert d["recipe"]["entropy_coef"] > 0
    assert d["recipe"]["learning_rate"] == 0.5


def test_mixed_recipes_are_not_averaged(tmp_path: Path) -> None:
    d = plan_from_source(study_folder(tmp_path, TWO), budget=BUDGET, fit=FIT).document
    assert "recipes_mixed" in codes(d)
    assert "anchor_assumed" in codes(d)
    assert d["recipe"]["learning_rate"] == 1e-6


@pytest.mark.parametrize(
    ("difficulty", "source", "kl"),
    [("easy", "published:qwen2.5-7b-easy", True), ("hard", "published:qwen2.5-7b-hard", False),
     ("mixed", "published:qwen2.5-7b-hard", False)],
)  # fmt: skip
def test_without_a_source_the_published_law_of_the_difficulty(
    difficulty: str, source: str, kl: bool
) -> None:
    d = plan_from_source(budget=BUDGET, difficulty=difficulty, fit=FIT).document  # type: ignore[arg-type]
    assert d["law"]["source"] == source
    assert (d["recipe"]["kl_coef"] > 0) is kl
    assert "law_of_another_model" in codes(d)
    assert "anchor_assumed" not in codes(d)  # said there
    said = next(w["message"] for w in d["warnings"] if w["code"] == "law_of_another_model")
    assert ("none was published for mixtures" in said) is (difficulty == "mixed")


def test_the_difficulty_is_in_the_name_of_a_published_law() -> None:
    d = plan_from_source("published:qwen2.5-7b-hard", budget=BUDGET, fit=FIT).document
    assert d["recipe"]["kl_coef"] == 0
    assert "difficulty_assumed" not in codes(d)


def test_a_file_without_a_difficulty_is_taken_for_easy_and_says_so() -> None:
    d = plan_from_source("sweep.csv", budget=BUDGET, fit=FIT).document
    assert d["recipe"]["kl_coef"] > 0
    assert "difficulty_assumed" in codes(d)
    assert "anchor_assumed" in codes(d)  # its learning rate is the published model's
    said = plan_from_source("sweep.csv", budget=BUDGET, difficulty="easy", fit=FIT).document
    assert "difficulty_assumed" not in codes(said)


def test_a_fixed_batch_goes_its_own_way() -> None:
    d = plan_from_source("sweep.csv", batch_size=8192, steps=256, fit=FIT).document
    assert (d["batch_size"], d["steps"]) == (8192, 256)


def test_bad_questions_are_named() -> None:
    with pytest.raises(InputError, match="but got neither"):
        plan_from_source(fit=FIT)
    with pytest.raises(InputError, match="but got both"):
        plan_from_source(budget=BUDGET, steps=3, fit=FIT)
    with pytest.raises(InputError, match="needs both batch size and steps, but got batch_size=8"):
        plan_from_source(batch_size=8, fit=FIT)
    with pytest.raises(InputError, match="limits belong to a budget"):
        plan_from_source(batch_size=8192, steps=3, min_steps=5, fit=FIT)
    with pytest.raises(InputError, match="difficulty must be one of easy, hard, mixed"):
        plan_from_source(budget=BUDGET, difficulty="odd", fit=FIT)  # type: ignore[arg-type]


def test_limits_reach_the_plan() -> None:
    d = plan_from_source("x.csv", budget=BUDGET, max_batch_size=1024, fit=FIT).document
    assert d["batch_size"] == 1024
    d = plan_from_source("x.csv", budget=BUDGET, min_steps=3000, fit=FIT).document
    assert d["steps"] >= 3000


def test_a_recipe_stored_by_an_older_version_is_read() -> None:
    from isocompute.sources.studies import stored_recipe

    stored = {"learning_rate": 3e-4, "a_word_of_version_0": None}
    assert stored_recipe(stored).learning_rate == 3e-4
