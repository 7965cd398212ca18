"""What a set of typical teams' folders found: by construction, with other names."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers.words.asking import _holds
from layout_helpers import load, refused, score


def table(path: Path, header: list[str], rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def chart(path: Path, columns: dict[str, dict[int, float]]) -> None:
    """A chart of W&B: one column per run, empty where it has no point."""
    metric = "eval/all/avg_score"
    steps = sorted({step for of in columns.values() for step in of})
    table(path, ["trainer/global_step", *(f"{name} - {metric}" for name in columns)],
          [[s, *(of.get(s, "") for of in columns.values())] for s in steps])  # fmt: skip


def test_of_two_downloads_of_a_run_the_whole_one_counts(tmp_path: Path) -> None:
    """The first was taken on the way, and only its name stands in the table of the runs."""
    keys = ["_step", "train/global_step", "eval/reward", "eval/rewards/acc/mean", "train/reward",
            "train/completions/mean_length", "train/num_tokens"]  # fmt: skip
    for name, n, last in (("n4", 4, 60), ("n8", 8, 30), ("n8 (1)", 8, 60)):
        rows: list[list[object]] = []
        for s in range(0, last + 1, 10):
            rows += [[2 * s, s, score(s, n), score(s, n), "", "", ""],
                     [2 * s + 1, s + 1, "", "", score(s, n) / 2, 100.0, 6400.0 * (s + 1)]]
        table(tmp_path / f"{name}.csv", keys, rows)
    table(tmp_path / "wandb_runs_table.csv",
          ["Name", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps",
           "generation_batch_size", "seed", "max_steps"],
          [["n4", 4, 8, 2, 64, 3, 60], ["n8", 8, 8, 2, 64, 3, 60]])  # fmt: skip
    found = load(tmp_path, (), ("processes=4",), metric="avg")
    assert {(c.rollouts_per_problem, c.steps_K[-1], len(c.score_K)) for c in found} == {
        (4, 60, 7), (8, 60, 7)
    }  # fmt: skip


def test_a_column_that_goes_on_with_another_of_its_chart_is_joined(tmp_path: Path) -> None:
    whole = {n: {s: score(s, n) for s in range(0, 61, 5)} for n in (4, 16)}
    chart(tmp_path / "wandb_export.csv", {
        "grpo_n16_resumed": {s: v for s, v in whole[16].items() if s >= 30},
        "grpo_n16": {s: v for s, v in whole[16].items() if s <= 30},
        "grpo_n4": whole[4],
    })  # fmt: skip
    said = refused(tmp_path)
    assert "pattern='n{rollouts_per_problem}'" in said
    assert "begins" not in said  # what it goes on with is found once B_p and n are known
    given = ("pattern=n{rollouts_per_problem}", "problems_per_batch=32")
    found = {c.rollouts_per_problem: c for c in load(tmp_path, (), given)}
    for n in (4, 16):
        assert found[n].rollouts_K.tolist() == [32 * n * s for s in whole[n]]
        assert found[n].score_K.tolist() == pytest.approx([*whole[n].values()])
    two = load(tmp_path, (), (*given, "resumed=apart", "begins=30"), where=["run=grpo_n16*"])
    assert sorted(len(c.score_K) for c in two) == [7, 7]


def test_a_run_that_begins_with_another_model_is_no_repetition(tmp_path: Path) -> None:
    begins = {"small_n4": 0.3, "smart_n8": 0.31, "large_n8": 0.6}
    chart(tmp_path / "wandb_export.csv", {
        name: {s: at + score(s, 4) - score(0, 4) for s in range(0, 61, 5)}
        for name, at in begins.items()
    })  # fmt: skip
    given = ("pattern=n{rollouts_per_problem}", "problems_per_batch=32")
    with pytest.raises(InputError, match="must begin with one model, but 'large_n8' scores 0.6 "):
        load(tmp_path, (), given)
    with pytest.raises(InputError, match=r"leave it out with --where run='!large_n8'"):
        load(tmp_path, (), given)
    assert len(load(tmp_path, (), given, where=["run=!large_n8"])) == 2
    assert len(load(tmp_path, (), given, where=["run=*"])) == 3


def test_what_a_log_goes_on_with_is_not_asked_under_an_assumed_batch() -> None:
    assumed = ["--assume", "problems_per_batch"]
    for word, holds in (("begins=BEGINS", False), ("step=iter", True)):
        assert _holds(InputError("asked", options=("--set", word)), assumed) is holds
