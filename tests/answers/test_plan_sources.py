"""Which curves, recipe and rates a plan takes from its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isocompute.allocation import Budget, Rates, parse_budget
from isocompute.answers import advice_lines, plan_from_source
from isocompute.answers import plan as planning
from isocompute.answers.fit import Fit
from isocompute.domain import Configuration
from isocompute.engines import problem_generators
from isocompute.errors import InputError, RefusalError
from isocompute.runner import run_study
from isocompute.study import load_study
from test_plan import FOUR, failed, planted

FIT = planted()
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
    return [one["code"] for one in document["notices"]]


def test_a_study_brings_its_recipe_and_its_rates(tmp_path: Path) -> None:
    source = study_folder(tmp_path, ONE)
    d = plan_from_source(source, budget=BUDGET, fit=FIT).document
    assert d["recipe"]["learning_rate"] == 0.5
    assert d["learning_rate"] == pytest.approx(0.5 * d["batch_size"] / 16)
    assert d["recipe"]["kl_coef"] == 0
    assert d["cost"]["gpu_hours"] == pytest.approx(d["rollouts"] / 1000)
    assert d["cost"]["source"]["rollouts_per_gpu_hour"] == {"value": 1000, "from": "study"}
    assert d["learning_rate_from"] == "study"
    assert "difficulty_assumed" not in codes(d)
    assert "law_of_another_model" not in codes(d)
    assert "anchor_assumed" not in codes(d)


def test_a_rate_that_is_given_comes_first(tmp_path: Path) -> None:
    source = study_folder(tmp_path, ONE)
    rates = Rates(tokens_per_rollout=100.0)
    d = plan_from_source(source, budget=parse_budget("4e8tok"), rates=rates, fit=FIT).document
    assert d["budget_rollouts"] == pytest.approx(4e6)
    assert d["cost"]["gpu_hours"] == pytest.approx(d["rollouts"] / 1000)
    assert d["cost"]["source"]["tokens_per_rollout"] == {"value": 100, "from": "given"}


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
    steps = [step["settles"] for step in d["run_next"]]
    assert steps[:2] == ["law_of_another_model", "anchor_assumed"]
    said = next(w["text"] for w in d["notices"] if w["code"] == "law_of_another_model")
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
    d = plan_from_source("sweep.csv", batch_size=1024, steps=256, fit=FIT).document
    assert (d["batch_size"], d["steps"]) == (1024, 256)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What every fit was asked for; it answers with the planted one."""
    seen: list[dict[str, Any]] = []

    def fit_sweep(curves: Any, **options: Any) -> Fit:
        seen.append({"n": sorted({c.rollouts_per_problem for c in curves}), **options})
        return FIT

    monkeypatch.setattr(planning, "fit_sweep", fit_sweep)
    return seen


def table(tmp_path: Path) -> str:
    file = tmp_path / "s.csv"
    rows = ["problems_per_batch,rollouts_per_problem,rollouts,score,metric"]
    for b_p, n in ((32, 32), (16, 64), (32, 8)):
        for metric in ("avg@4", "best@4"):
            rows += [f"{b_p},{n},{x},{0.1 * i},{metric}" for i, x in enumerate((0, 2e5, 4e5))]
    file.write_text("\n".join(rows))
    return str(file)


def test_what_is_asked_of_a_fit_reaches_it(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    source = table(tmp_path)
    about: dict[str, Any] = {"metric": "avg@4"}
    plan_from_source(source, budget=BUDGET, **about)
    plan_from_source(source, budget=BUDGET, fix=("problems_per_batch", 32), unit="tokens", **about)
    plan_from_source(source, budget=BUDGET, joint=True, select="final", **about)
    assert [(one["fix"], one["joint"], one["unit"], one["select"]) for one in asked] == [
        (None, False, "rollouts", "best"),
        (("problems_per_batch", 32), False, "tokens", "best"),
        (None, True, "rollouts", "final"),
    ]
    assert asked[0]["sources"] == [source]
    assert asked[0]["n"] == [8, 32, 64]
    with pytest.raises(InputError, match="worst@4"):
        plan_from_source(source, budget=BUDGET, metric="worst@4")


def test_a_batch_with_two_splits_is_fitted_by_itself(
    tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    source = table(tmp_path)
    plan_from_source(source, batch_size=1024, steps=300, metric="avg@4")
    plan_from_source(source, batch_size=256, steps=300, metric="avg@4")
    plan_from_source(source, batch_size=1024, steps=300, joint=True, metric="avg@4")
    plan_from_source(source, batch_size=1024, steps=9, fix=("batch_size", 256), metric="avg@4")
    assert [one["fix"] for one in asked] == [("batch_size", 1024), None, None, ("batch_size", 256)]


def test_a_source_without_a_usable_curve_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Fit:
        raise RefusalError("no usable curve; evaluate more often.", ["one longer run"])

    monkeypatch.setattr(planning, "fit_sweep", refuse)
    plan = plan_from_source(table(tmp_path), budget=BUDGET, metric="avg@4")
    assert plan.refusal is not None
    d = plan.document
    assert d["refusal"] == {"reason": "no usable curve; evaluate more often.",
                            "run_next": ["one longer run"]}  # fmt: skip
    assert (d["verdict"]["level"], d["budget_rollouts"]) == ("stop", 4e6)
    assert d["run_next"][0]["do"] == "one longer run"
    stands = plan_from_source("x.csv", budget=BUDGET, fit=FIT).document
    assert set(d) == set(stands)


def test_today_and_problems_reach_the_plan() -> None:
    today = Configuration(32, 64)
    d = plan_from_source("x.csv", budget=BUDGET, current=today, problems=100, fit=FIT)
    assert d.document["gain"]["rollouts_per_problem"] == 64
    assert d.document["passes_over_data"] == pytest.approx(1953 * 32 / 100)


def test_failed_runs_make_a_batch_unstable() -> None:
    one = failed(planted(), (32, 32))
    assert "bp_unstable" in codes(plan_from_source("x.csv", budget=BUDGET, fit=one).document)
    both = failed(planted({**FOUR, (64, 32): (0.0, 0.0)}), (32, 32))
    d = plan_from_source("x.csv", budget=BUDGET, fit=both).document
    assert d["problems_per_batch"] == 64


@pytest.mark.heavy
def test_the_published_plan_fits_one_screen() -> None:
    budget = parse_budget("2e6")
    plan = plan_from_source(budget=budget, current=16, problems=12_000)
    lines = advice_lines(plan.document)
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    assert plan.document["verdict"]["level"] == "caution"
    assert plan.document["printed_law"]["rollouts_per_problem"] == pytest.approx(295, abs=1)
    assert plan.document["gain"]["score"] > 0.01


def test_bad_questions_are_named() -> None:
    with pytest.raises(InputError, match="but got none of them"):
        plan_from_source(fit=FIT)
    with pytest.raises(InputError, match="but got budget and steps"):
        plan_from_source(budget=BUDGET, steps=3, fit=FIT)
    with pytest.raises(InputError, match="both batch size and steps, but got batch_size; give"):
        plan_from_source(batch_size=8, fit=FIT)
    with pytest.raises(InputError, match="limits belong to a budget"):
        plan_from_source(batch_size=1024, steps=3, min_steps=5, fit=FIT)
    with pytest.raises(InputError, match="difficulty must be one of easy, hard, mixed"):
        plan_from_source(budget=BUDGET, difficulty="odd", fit=FIT)  # type: ignore[arg-type]


def test_limits_reach_the_plan() -> None:
    d = plan_from_source("x.csv", budget=BUDGET, max_batch_size=512, fit=FIT).document
    assert d["batch_size"] == 512
    d = plan_from_source("x.csv", budget=BUDGET, min_steps=4000, fit=FIT).document
    assert d["steps"] >= 4000


def test_a_recipe_stored_by_an_older_version_is_read() -> None:
    from isocompute.sources.studies import stored_recipe

    stored = {"learning_rate": 3e-4, "a_word_of_version_0": None}
    assert stored_recipe(stored).learning_rate == 3e-4
