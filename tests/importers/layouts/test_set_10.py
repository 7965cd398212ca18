"""The tenth set: each layout is read right, or refused in one line that says how it is."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.sources import load_curves
from set_10 import Run, Truth
from set_10_trainers import LAYOUTS

Row = tuple[int, int, int, list[tuple[int, float]]]
MLFLOW = {
    "params.num_prompts_per_step": "problems_per_batch",
    "params.num_generations_per_prompt": "rollouts_per_problem",
    "metrics.eval/accuracy": "score",
}


class Answer(NamedTuple):
    """What each try says, and what the user knows in the end."""

    lines: Sequence[tuple[str, dict[str, Any]]]
    settings: dict[str, Any]


NAMED = {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}
ASKED = {
    "wandb_panels_twice": Answer([(r"pattern='bp\{problems_per_batch\}_n\{roll", {})], NAMED),
    "mlflow_search_runs": Answer(
        [(r"--map metrics.eval/accuracy=score if they hold these; .* KEY=steps for one", {})],
        {"columns": {**MLFLOW, "metrics.train/global_step": "steps"}},
    ),
    "tidy_batch": Answer(
        [(r"G=rollouts_per_problem --map test_acc=score if they hold these; and --map batch_size="
          r"problems_per_batch if it counts problems, --map batch_size=batch_size if it cou", {})],
        {"columns": {"batch_size": "batch_size", "G": "rollouts_per_problem",
                     "test_acc": "score"}},
    ),
    "wide_mean": Answer(
        [(r"pattern='n\{rollouts_per_problem\}_s\{seed\}', as the names of the columns seem", {}),
         (r"'n8_s0' and 'n8_s1' both say .* or a \{seed\} that tells them apart",
          {"pattern": "n{rollouts_per_problem}", "problems_per_batch": 32})],
        {"pattern": "n{rollouts_per_problem}_s{seed}", "problems_per_batch": 32},
    ),
    "neptune_series": Answer(
        [(r"eval_pass@1.*--map", {})], {"columns": {"eval_pass@1": "avg"}},
    ),
    "json_evals": Answer(
        [(r"evals/math500/accuracy", {})], {"columns": {"evals/math500/accuracy": "avg"}}
    ),
    "slurm_requeue": Answer(
        [(r"--map val_accuracy=avg", {})], {"columns": {"val_accuracy": "avg"}}
    ),
    "lightning_resume": Answer([(r"--map val_acc=avg", {})], {"columns": {"val_acc": "avg"}}),
    "own_eval_index": Answer([(r"--map val_acc=avg", {})], {"columns": {"val_acc": "avg"}}),
    "tensorboard_names": Answer(
        [(r"--map eval_accuracy=avg\)",
          {"pattern": "n{rollouts_per_problem}", "problems_per_batch": 32})],
        {"pattern": "n{rollouts_per_problem}-s{seed}", "problems_per_batch": 32,
         "columns": {"eval_accuracy": "avg"}},
    ),
    "micro_batch": Answer(
        [(r"eval/accuracy=avg\).*`problems_per_batch` must be .* --set problems_per_batch", {})],
        {"columns": {"eval/accuracy": "avg"}, "problems_per_batch": 64},
    ),
}  # fmt: skip
AT_ONCE = ["wandb_api_project", "trl_iterations"]


def wanted(runs: Sequence[Run]) -> list[Row]:
    return sorted((r.bp, r.n, r.seed or 0, [(x, round(y, 6)) for x, y in r.points]) for r in runs)


def read(path: Path, settings: dict[str, Any] | None = None, say: Any = None) -> list[Row]:
    """What stands in a folder: B_p, n, seed, and every (rollouts, score)."""
    return sorted(
        (c.problems_per_batch, c.rollouts_per_problem, c.seed or 0,
         [(int(x), round(float(y), 6)) for x, y in zip(c.rollouts_K, c.score_K, strict=True)])
        for c in load_curves(path, settings=settings_from(settings or {}), say=say)
    )  # fmt: skip


def make(name: str, folder: Path) -> Truth:
    folder.mkdir()
    return LAYOUTS[name](folder)


@pytest.mark.parametrize("name", [*AT_ONCE, *ASKED])
def test_a_layout_is_read_right_or_asked_about_in_a_line_that_works(
    name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    truth = make(name, folder)
    answer = ASKED.get(name, Answer([], {}))
    for line, said in answer.lines:
        with pytest.raises(InputError, match=line):
            read(folder, said)
    assert read(folder, answer.settings) == wanted(truth.runs)


def test_a_sheet_with_merged_cells_and_thousands_is_read_once_plain(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    truth = make("lab_sheet", folder)
    sheet = folder / "sheet.csv"
    with pytest.raises(InputError, match="row 1 has '0k'; write plain numbers, such as 1152"):
        read(folder)
    header, *rows = list(csv.reader(sheet.open()))
    for row in rows:
        row[3] = str(round(float(row[3][:-1]) * 1000))
    write(sheet, [header, *rows])
    assert read(folder) == wanted(truth.runs)


def write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows(rows)


def test_a_run_without_a_score_is_left_out_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    truth = make("mlflow_search_runs", folder)
    said: list[str] = []
    settings = {"columns": {**MLFLOW, "params.max_steps": "steps"}}
    assert read(folder, settings, said.append) == wanted(truth.runs)
    assert any(line.endswith("1 run holds no score; left out") for line in said)


def test_what_was_concluded_is_said(tmp_path: Path) -> None:
    for name, line in {
        "trl_iterations": "run grpo-gen16: configuration: read from training_args.json beside",
        "own_eval_index": "step: the log's counts evaluations; eval_every says one in 25 updates",
        "slurm_requeue": "rows: the log goes back to step 101 and does it again; 1 scores are",
        "lightning_resume": "version_3/metrics.csv, which goes on from step 120",
        "neptune_series": "configuration: read from runs_table.csv beside the log",
    }.items():
        make(name, tmp_path / name)
        said: list[str] = []
        read(tmp_path / name, ASKED[name].settings if name in ASKED else None, said.append)
        assert any(line in one for one in said), (name, said)
