"""What the report reads out of a study: a small simulated one, counted again by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from isocompute.allocation import Allocation
from isocompute.engines.simulator import simulated_problems
from isocompute.errors import InputError
from isocompute.recipe import Recipe
from isocompute.report import StudyView, study_view
from isocompute.report.study_data import _health, _interval, _means
from isocompute.runner import run_study
from isocompute.store import Store
from isocompute.study import RunSpec, Study
from report_fixtures import page_of, short_bundle  # noqa: F401  (the latter acts on every test)
from study_helpers import FAST, edit, small_study

NAME = "world <b>1</b>"
RECIPE = Recipe(learning_rate=0.3, base_batch_size=64, temperature=1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    train, main, side = (simulated_problems(n, 12) for n in ("train", "main", "side"))
    runs = [
        RunSpec(
            engine="simulator",
            allocation=Allocation(problems_per_batch=4, rollouts_per_problem=n, steps=512 // n),
            recipe=RECIPE,
            train=train,
            validation={"main": main, "side": side},
            seed=seed,
            evaluations_per_octave=1,
            first_evaluation=256,
        )
        for n in (4, 16)
        for seed in (0, 1, 2)
    ]
    target = tmp_path_factory.mktemp("study") / "s"
    run_study(Study(name=NAME, runs=runs, slices=(1.0,)), target, workers=0)
    return target


@pytest.fixture(scope="module")
def view(folder: Path) -> StudyView:
    return study_view(folder, problem_set="main")


def test_runs_are_listed_with_what_they_drew(view: StudyView) -> None:
    assert view.name == NAME
    assert [
        (r["problems_per_batch"], r["rollouts_per_problem"], r["seed"]) for r in view.runs
    ] == [(4, n, seed) for n in (4, 16) for seed in (0, 1, 2)]
    assert {r["state"] for r in view.runs} == {"done"}
    assert {r["rollouts"] for r in view.runs} == {2048}
    assert view.accounting["rollouts"] == 6 * 2048


def test_landscapes_add_up_over_seeds_at_equal_compute(folder: Path, view: StudyView) -> None:
    assert [v["rollouts"] for v in view.landscapes] == [0, 256, 512, 1024, 2048]
    last = view.landscapes[-1]["groups"]
    assert [(g["bp"], g["n"], g["problems"]) for g in last] == [(4, 4, 36), (4, 16, 36)]
    with Store(folder) as store:
        runs = [r.hash for r in store.runs() if r.spec["rollouts_per_problem"] == 16]
        final = np.concatenate([store.successes(run, "main")[1][-1] for run in runs])
    assert last[1]["counts"] == np.bincount(final, minlength=5).tolist()


def test_scores_are_means_over_seeds_at_the_largest_common_budget(
    folder: Path, view: StudyView
) -> None:
    assert view.scores_at == 2048
    assert list(view.scores) == ["avg@4", "best@4", "worst@4"]
    with Store(folder) as store:
        runs = [r.hash for r in store.runs() if r.spec["rollouts_per_problem"] == 4]
        final_RP = np.array([store.successes(run, "main")[1][-1] for run in runs])
    row = view.scores["best@4"][0]
    per_seed = (final_RP > 0).mean(axis=1)
    assert row["value"] == pytest.approx(per_seed.mean())
    half = 4.302653 * per_seed.std(ddof=1) / math.sqrt(3)
    assert row["interval"][0] == pytest.approx(max(per_seed.mean() - half, 0))
    assert view.scores["worst@4"][0]["value"] == pytest.approx((final_RP == 4).mean())
    assert row["n_runs"] == 3


def test_a_run_that_ended_before_the_budget_is_left_out(folder: Path, tmp_path: Path) -> None:
    """Its last score is one of less compute."""
    sets = {name: simulated_problems(name, 12) for name in ("train", "main")}
    runs = [
        RunSpec(
            engine="simulator", recipe=RECIPE, train=sets["train"],
            allocation=Allocation(problems_per_batch=4, rollouts_per_problem=4, steps=steps),
            validation={"main": sets["main"]}, seed=seed, evaluations_per_octave=1,
            first_evaluation=256,
        )
        for seed, steps in ((0, 128), (1, 16))
    ]  # fmt: skip
    run_study(Study(name="s", runs=runs, slices=(1.0,)), tmp_path, workers=0)
    view = study_view(tmp_path)
    assert view.scores_at == 2048
    (row,) = view.scores["avg@4"]
    with Store(tmp_path) as store:
        final = store.successes(runs[0].hash, "main")[1][-1]
    assert (row["n_runs"], row["value"]) == (1, pytest.approx(final.mean() / 4))
    assert [v["groups"][0]["problems"] for v in view.landscapes] == [24, 24, 12, 12, 12]


@pytest.mark.heavy
def test_a_divergence_that_no_step_shows_is_told(tmp_path: Path) -> None:
    run_study(small_study(ns=(2,)), tmp_path, workers=0, settings=FAST)
    with Store(tmp_path) as store:
        (run,) = store.runs()
    finding = {"code": "divergence", "severity": "failure", "step": run.steps_done, "values": {},
               "message": "weights must be finite"}  # fmt: skip
    kept = {"step": run.steps_done, "findings": [finding]}
    edit(tmp_path, "UPDATE runs SET findings = ?", json.dumps(kept))
    assert [row["code"] for row in study_view(tmp_path).warnings] == ["divergence"]


def test_the_interval_of_many_seeds_is_students() -> None:
    low, high = _interval(np.repeat([0.4, 0.6], 15)) or (0, 0)
    half = 2.04523 * 0.1 * math.sqrt(30 / 29) / math.sqrt(30)  # 29 degrees of freedom
    assert (low, high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))


def test_interval_needs_three_seeds_and_stays_in_range() -> None:
    assert _interval(np.array([0.4, 0.6])) is None
    assert _interval(np.array([0.0, 0.0, 0.3])) == [0.0, pytest.approx(0.1 + 4.303 * 0.1, abs=1e-3)]
    wide = _interval(np.array([1.0, 1.0, 0.7]))
    assert wide is not None
    assert wide[1] == 1.0


def test_train_test_gap_is_counted_from_the_batches(folder: Path, view: StudyView) -> None:
    row = view.train_test[1]
    assert (row["bp"], row["n"], row["x"]) == (4, 16, [256, 512, 1024, 2048])
    with Store(folder) as store:
        runs = [r.hash for r in store.runs() if r.spec["rollouts_per_problem"] == 16]
        means = []
        for run in runs:
            steps = store.steps(run)
            late = [i for i, c in enumerate(steps.rollouts_K) if 1024 < c <= 2048]
            means.append(np.mean([steps.successes[i].sum() / (4 * 16) for i in late]))
    assert row["train"][-1] == pytest.approx(np.mean(means))
    assert row["validation"][-1] == pytest.approx(view.scores["avg@4"][1]["value"])


def test_numbers_that_not_every_step_has_are_drawn() -> None:
    steps = SimpleNamespace(
        rollouts_K=np.array([256, 512, 768]), health={"kl": np.array([0.1, math.nan, 0.3])}
    )
    (line,) = _health([SimpleNamespace(pair=(32, 8), label="r", steps=steps)])["kl"]  # type: ignore[list-item]
    assert (line["x"], line["y"]) == ([256.0, 768.0], [0.1, 0.3])


def test_health_is_thinned_to_means(view: StudyView) -> None:
    lines = view.health["entropy"]
    assert len(lines) == 6
    assert all(1 < len(line["x"]) <= 80 for line in lines)
    x, y = _means(np.arange(1.0, 1001.0), np.full(1000, 2.5))
    assert len(x) <= 80
    assert x[-1] == 1000.0
    assert set(y) == {2.5}
    assert _means(np.array([4.0]), np.array([math.nan])) == ([4.0], [None])


@pytest.mark.heavy
def test_validation_set_can_be_chosen(folder: Path, view: StudyView) -> None:
    assert view.problem_set == "main"
    other = study_view(folder, problem_set="side")
    assert other.problem_set == "side"
    assert other.scores != view.scores
    assert study_view(folder).problem_set == "main"  # equally often: the first by name


@pytest.mark.heavy
def test_store_and_view_are_taken_as_they_are(folder: Path, view: StudyView) -> None:
    assert study_view(view) is view
    with Store(folder) as store:
        assert study_view(store, problem_set="main") == view


def test_no_study_in_the_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="study"):
        study_view(tmp_path)


@pytest.mark.heavy
def test_page_shows_every_part_of_the_study(folder: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, [], None, study=folder)
    kinds = {attrs.get("data-kind") for _, attrs in page.tags}
    assert {"scores", "landscape", "gap", "health"} <= kinds
    assert f"Study: {NAME}" in page.text
    assert "Where the rollouts of 6 runs went" in page.text
    assert "Training (C) 12.3k" in page.text
    assert "simulator" in page.text  # provenance: the engine
