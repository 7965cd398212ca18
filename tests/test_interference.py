"""Interference of a study at equal compute: by hand, with intervals, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.engines import problem_generators
from isocompute.errors import InputError
from isocompute.interference import (
    INDICES,
    OutcomeRun,
    _differences,
    _indices,
    interference_of,
    study_interference,
)
from isocompute.runner import run_study
from isocompute.sources.outcomes import load_outcomes
from isocompute.spread import landscape, progress
from isocompute.store import Database, Store
from isocompute.study import load_study

STUDY = """
engine: simulator
engine_options: {interference: 0.9, knowledge: 0.3}
problems:
  train: {generated: simulated, options: {size: 24}}
  validation:
    near: {generated: simulated, options: {size: 40}}
recipe: {learning_rate: 8.0, warmup_steps: 0}
grid: {problems_per_batch: 8, rollouts_per_problem: [4, 32], seeds: [0, 1]}
budget: 20480
evaluation: {samples: 8, per_octave: 2, first: 256}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interference")
    file = folder / "s.yaml"
    file.write_text(STUDY)
    run_study(load_study(file, generators=problem_generators()), folder / "s", workers=0)
    return folder / "s"


@pytest.mark.heavy
def test_a_run_that_ended_before_the_budget_is_left_out(study: Path, tmp_path: Path) -> None:
    """Its last score is one of less compute."""
    whole = load_study(study.with_suffix(".yaml"), generators=problem_generators())
    short = [
        replace(s, allocation=replace(s.allocation, steps=s.allocation.steps // 8))
        if s.seed == 1 else s for s in whole.runs
    ]  # fmt: skip
    run_study(replace(whole, runs=short), tmp_path / "s", workers=0)
    document = study_interference(tmp_path / "s", draws=20)
    assert document["at"] == 20480  # the end, behind the last point of the grid
    assert [group["n_runs"] for group in document["groups"]] == [1, 1]
    alone = study_interference(f"{study}[seed=0]", draws=20)
    assert [g["score"]["value"] for g in document["groups"]] == [
        g["score"]["value"] for g in alone["groups"]
    ]
    assert document["over_training"][-1] == alone["over_training"][-1]


def test_indices_by_hand() -> None:
    """Two of four problems gain all, one loses all, one stays at 0 of 4."""
    before, after = np.array([0, 0, 4, 0]), np.array([4, 4, 0, 0])
    score, never, always, near, interference, *_ = _indices([(10, before, after, 4)], None, None)
    assert (score, never, always, near) == pytest.approx((0.5, 0.5, 0.5, 0.5))
    assert interference == pytest.approx(1 / 3)
    # a draw takes the same problems before and after: here only those that gained
    drawn = _indices([(10, before, after, 4)], np.array([0, 1, 0, 1]), np.array([0]))
    assert drawn[0] == 1.0
    assert drawn[4] == pytest.approx(0.0)
    # 15 of 16 is near 1 and not 1
    _, _, always, near, *_ = _indices([(1, np.array([0, 0]), np.array([15, 14]), 16)], None, None)
    assert (always, near) == pytest.approx((0.0, 0.5))


@pytest.mark.heavy
def test_every_index_is_that_of_metrics_at_the_matched_budget(study: Path) -> None:
    document = study_interference(study, rollouts=5120, draws=50)
    assert [g["rollouts_per_problem"] for g in document["groups"]] == [4, 32]
    with Store(study) as store:
        for group in document["groups"]:
            found = []
            for run in store.runs():
                if run.spec["rollouts_per_problem"] == group["rollouts_per_problem"]:
                    evaluations = store.evaluations(run.hash)
                    last = np.flatnonzero(evaluations.rollouts_K <= 5120)[-1]
                    _, successes = store.successes(run.hash, "near")
                    found.append(progress(successes[0], successes[last], 8, 8))
            assert group["n_runs"] == len(found) == 2
            mean = np.mean([f.rich_get_richer for f in found])
            assert group["rich_get_richer"]["value"] == pytest.approx(mean)
    for group in document["groups"]:
        for name in ("score", "never", "always"):
            low, high = group[name]["interval"]
            assert low <= group[name]["value"] <= high
    (row,) = document["differences"]
    assert (row["from"], row["to"]) == (4, 32)
    values = [g["score"]["value"] for g in document["groups"]]
    assert row["score"]["value"] == pytest.approx(values[1] - values[0])
    assert set(INDICES) <= set(row)


def test_landscapes_over_training_are_matched_in_compute(study: Path) -> None:
    """At every budget each configuration by its own last evaluation until then."""
    document = study_interference(study, rollouts=5120, draws=2)
    rows = document["over_training"]
    budgets = sorted({row["rollouts"] for row in rows})
    assert len(budgets) == 5
    assert budgets[-1] == 5120
    assert [row["rollouts_per_problem"] for row in rows] == [4, 32] * 5
    assert document["bins"][0] == [0.0, 0.0]
    assert document["bins"][-1] == [1.0, 1.0]
    with Store(study) as store:
        for row in rows:
            found = []
            for run in store.runs():
                if run.spec["rollouts_per_problem"] == row["rollouts_per_problem"]:
                    evaluations = store.evaluations(run.hash)
                    last = np.flatnonzero(evaluations.rollouts_K <= row["rollouts"] + 1e-6)[-1]
                    assert evaluations.rollouts_K[last] == row["at"]
                    _, successes = store.successes(run.hash, "near")
                    found.append(landscape(successes[last], 8).share_B)
            assert row["share"] == pytest.approx(np.mean(found, axis=0))
            assert row["never"] == pytest.approx(row["share"][0])
            assert row["always"] == pytest.approx(row["share"][-1])
            assert 0 <= row["near_one"] <= row["share"][-1] + row["share"][-2] + 0.01
    last = [row["score"] for row in rows if row["rollouts"] == 5120]
    assert last == pytest.approx([g["score"]["value"] for g in document["groups"]])


@pytest.mark.heavy
def test_level_seed_and_draws_each_change_the_intervals(study: Path) -> None:
    def width(**options: float) -> float:
        document = study_interference(study, **options)  # type: ignore[arg-type]
        low, high = document["groups"][0]["score"]["interval"]
        return float(high - low)

    assert width(level=0.5, draws=100) < width(draws=100)
    assert width(draws=100) != width(draws=20)
    assert width(draws=100) != width(draws=100, seed=1)


def test_one_n_has_no_difference() -> None:
    value = {(8, 4): np.zeros(len(INDICES))}
    assert _differences(value, {(8, 4): [np.zeros(len(INDICES))]}, 0.95) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rollouts": 10}, "the budget must be one that every configuration was evaluated at"),
        ({"rollouts": 1e9}, "but got 1e"),
        ({"problem_set": "far"}, "must be one of 'near', but got 'far'"),
    ],
)
def test_what_is_refused(study: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study_interference(study, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rollouts_per_problem must be one of"):
        study_interference(f"{study}[rollouts_per_problem=5]")


def test_a_study_that_has_not_begun_is_refused(study: Path) -> None:
    file = study.parent / "s.yaml"
    fresh = study.parent / "fresh"
    run_study(
        load_study(file, generators=problem_generators(), overrides=["budget=256"]),
        fresh,
        workers=0,
    )
    with pytest.raises(InputError, match="needs runs with an evaluation after step 0|every config"):
        study_interference(fresh, rollouts=100)


def test_imported_runs_are_said_to_hold_no_outcomes(tmp_path: Path) -> None:
    Database(tmp_path, create=True).close()
    with pytest.raises(InputError, match="but it has none .imported ones have scores alone."):
        study_interference(tmp_path)


@pytest.mark.heavy
def test_the_command_prints_and_writes(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interference", str(study), "--at", "5120"]) == 0
    text = capsys.readouterr().out
    assert "Progress over the problems of near since step 0, at 5,120 rollouts:" in text
    assert "n=32 minus n=4 at B_p=8" in text
    over = text.split("Over training, at equal compute:\n")[1].splitlines()
    assert len(over) == 1 + 2 * 5
    assert over[-1].split()[:3] == ["5,120", "8", "32"]
    assert len(over[-1].split()[-2]) == 10  # the histogram between 0 and 1
    assert main(["interference", str(study), "--json", "-", "--where", "seed=0"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert all(g["n_runs"] == 1 for g in document["groups"])


def test_one_run_has_no_interval_and_no_loss_a_lower_end_of_zero(study: Path) -> None:
    alone = study_interference(f"{study}[seed=0]", draws=20)
    for row in (*alone["groups"], *alone["differences"]):
        assert {row[name]["interval"] is None for name in INDICES} == {True}
    rng = np.random.default_rng(0)
    p0 = rng.beta(0.3, 8, 300)
    up = 1 / (1 + (1 / np.maximum(p0, 1e-9) - 1) * np.exp(-1.5))
    runs = [
        OutcomeRun(np.array([0, 10]), np.array([rng.binomial(4, p0), rng.binomial(4, up)]), 4)
        for _ in range(2)
    ]
    found = interference_of({(8, 4): runs}, source="s", problem_set="p", draws=50)
    of = found["groups"][0]["interference"]
    assert of["interval"][0] == 0.0 < of["value"]


def test_a_study_of_the_grid_by_name() -> None:
    name, groups = load_outcomes("grid:hard")
    assert name == "hard"
    assert [key for key in groups if key[0] != 32] == []
    assert {len(of) for of in groups.values()} == {3}
    assert groups[32, 4][0].rollouts_K[0] == 0
    assert (np.diff(groups[32, 4][0].rollouts_K) > 0).all()  # no training problems among them
    assert groups[32, 4][0].successes_KP.max() <= groups[32, 4][0].samples == 16
    assert {key[0] for key in load_outcomes("grid:hard-joint")[1]} == {8, 32, 128}
    assert list(load_outcomes("grid:hard[rollouts_per_problem=64]", "easy")[1]) == [(32, 64)]
    with pytest.raises(InputError, match="a grid must be one of grid:anchor.*got 'grid:nix'"):
        load_outcomes("grid:nix")
    with pytest.raises(InputError, match="the problem set must be one of 'easy'.*got 'nix'"):
        load_outcomes("grid:hard", "nix")
    with pytest.raises(InputError, match=r"the arm must be one of .*choose one with --where arm="):
        load_outcomes("grid:anchor")
    with pytest.raises(InputError, match="told apart by arm.*but got foo"):
        load_outcomes("grid:hard[foo=1]")
