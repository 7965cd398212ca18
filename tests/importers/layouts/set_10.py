"""A tenth blind set: logs as users keep them, one trap each, with the truth beside them.

Written and committed before the first try, by one who had read the user pages alone.
`LAYOUTS` maps a name to a layout; a layout writes its files and returns what they hold.
"""

import csv
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Run:
    """One run of the truth: its shape, and (rollouts, score) of each evaluation."""

    bp: int
    n: int
    seed: int | None = None
    lr: float | None = None
    points: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Truth:
    """All runs of a layout; `argv` is what its owner would say at once."""

    runs: list[Run]
    argv: tuple[str, ...] = ()


def curve(run: Run, steps: Iterable[int], *, per_step: int | None = None) -> list[float]:
    """Scores of a run at these steps; fills `run.points`. No two runs have the same ones."""
    draws = random.Random(run.bp * 7919 + run.n * 104729 + (run.seed or 0) * 31)
    scores = []
    for step in steps:
        rollouts = step * (per_step if per_step is not None else run.bp * run.n)
        level = 0.31 + 0.3 * rollouts / (rollouts + 900 * run.n**0.7)
        scores.append(round(level + draws.uniform(-0.004, 0.004), 4))
        run.points.append((rollouts, scores[-1]))
    return scores


def write_csv(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], sep: str = ","
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle, delimiter=sep)
        writer.writerow(header)
        writer.writerows(rows)


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


def wandb_api_project(folder: Path) -> Truth:
    """W&B's own snippet wrote project.csv (summary, config, name); histories are concatenated.

    Trap: the configuration is a Python dict in a cell, and holds a second n (of validation).
    """
    runs = [Run(32, n, s) for n in (4, 8, 16) for s in (1, 2)]
    table, history = [], []
    for run in runs:
        name = f"grpo-math-{'abcdef'[runs.index(run)]}"
        config = {
            "data": {"train_batch_size": run.bp, "seed": run.seed, "val_batch_size": None},
            "actor_rollout_ref": {
                "rollout": {"n": run.n, "val_kwargs": {"n": 4, "do_sample": True}},
                "actor": {"optim": {"lr": 1e-6}, "ppo_mini_batch_size": 16},
            },
            "trainer": {"total_training_steps": 120, "experiment_name": name, "test_freq": 20},
        }
        steps = range(0, 121, 20)
        scores = curve(run, steps)
        summary = {"_step": 120, "val-core/math/acc/mean@4": scores[-1], "_runtime": 5123.2}
        table.append([len(table), summary, config, name])
        for step, score in zip(steps, scores, strict=True):
            history.append([len(history), step, 1.7e9 + step * 40, score, name])
    write_csv(folder / "project.csv", ["", "summary", "config", "name"], table)
    header = ["", "_step", "_timestamp", "val-core/math/acc/mean@4", "name"]
    write_csv(folder / "histories.csv", header, history)
    return Truth(runs)


def wandb_panels_twice(folder: Path) -> Truth:
    """Panels of the W&B page as CSV: one was exported again when the runs had gone on.

    Trap: the runs of both exports are the same ones.
    """
    runs = [Run(64, n, 0) for n in (8, 16, 32, 64)]
    steps = list(range(0, 161, 20))
    scores = [curve(run, steps) for run in runs]
    names = [f"bp64_n{run.n}" for run in runs]

    def panel(file: str, key: str, rows: list[list[object]]) -> None:
        header = ["Step"]
        for name in names:
            header += [f"{name} - {key}", f"{name} - {key}__MIN", f"{name} - {key}__MAX"]
        write_csv(folder / file, header, rows)

    def rows(count: int, values: list[list[float]]) -> list[list[object]]:
        return [[steps[i], *(v[i] for v in values for _ in range(3))] for i in range(count)]

    key = "val-core/openai/gsm8k/reward/mean@4"
    panel("wandb_export_2026-11-18T09_12_44.102+01_00.csv", key, rows(6, scores))
    panel("wandb_export_2026-11-20T18_30_01.771+01_00.csv", key, rows(9, scores))
    lengths = [[round(700 + 3.1 * s + run.n, 2) for s in steps] for run in runs]
    panel(
        "wandb_export_2026-11-20T18_31_20.008+01_00.csv", "response_length/mean", rows(9, lengths)
    )
    return Truth(runs, ("--set", "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"))


def mlflow_search_runs(folder: Path) -> Truth:
    """mlflow.search_runs().to_csv(): one row per run, the last value of every metric.

    Trap: there is one score per run, at its last step; a failed run has none.
    """
    runs, rows = [], []
    for number, (n, last) in enumerate((n, last) for n in (4, 8, 16) for last in (50, 100, 200)):
        run = Run(32, n, number % 3)
        score = curve(run, [last])[0]
        runs.append(run)
        rows.append(
            [f"{number:032x}", "1", "FINISHED", "2026-11-10 09:00:00+00:00", score, last, 512.4]
            + [run.bp, run.n, last, run.seed, f"sweep-{number}"]
        )
    rows.append(
        [
            f"{99:032x}",
            "1",
            "FAILED",
            "2026-11-11 09:00:00+00:00",
            "",
            "",
            "",
            32,
            16,
            200,
            0,
            "sweep-x",
        ]
    )
    header = ["run_id", "experiment_id", "status", "start_time", "metrics.eval/accuracy"]
    header += ["metrics.train/global_step", "metrics.completions/mean_length"]
    header += [
        "params.num_prompts_per_step",
        "params.num_generations_per_prompt",
        "params.max_steps",
    ]
    header += ["params.seed", "tags.mlflow.runName"]
    write_csv(folder / "runs.csv", header, rows)
    return Truth(runs)


def lab_sheet(folder: Path) -> Truth:
    """A sheet of a lab notebook: the run and its numbers stand in the first row of its block alone.

    Trap: the empty cells mean "as above" (a merged cell of Excel); rollouts are in k.
    """
    runs = [Run(16, n, 0) for n in (8, 16, 32)]
    rows: list[list[object]] = []
    for run in runs:
        steps = list(range(0, 251, 50))
        for i, (step, score) in enumerate(zip(steps, curve(run, steps), strict=True)):
            head = [f"exp{run.n}", run.bp, run.n] if i == 0 else ["", "", ""]
            rows.append([*head, f"{run.bp * run.n * step / 1000:g}k", score, ""])
        rows[-1][-1] = "crashed once, restarted"
    header = ["run", "problems_per_batch", "rollouts_per_problem", "rollouts", "score", "comment"]
    write_csv(folder / "sheet.csv", header, rows)
    return Truth(runs)


def tidy_batch(folder: Path) -> Truth:
    """A tidy CSV of one's own: batch_size counts samples, as in a fixed-batch sweep.

    Trap: B_p is batch_size / G, not batch_size.
    """
    runs = [Run(512 // g, g, s) for g in (4, 8, 16, 32) for s in (0, 1)]
    rows = []
    for run in runs:
        name = f"qwen3b_lr1e-6_G{run.n}_bs512_s{run.seed}"
        steps = list(range(0, 101, 20))
        for step, score in zip(steps, curve(run, steps), strict=True):
            rows.append([name, run.seed, step, 512, run.n, score, 0.011])
    header = ["run_name", "seed", "step", "batch_size", "G", "test_acc", "test_acc_stderr"]
    write_csv(folder / "results.csv", header, rows)
    return Truth(runs)


def wide_mean(folder: Path) -> Truth:
    """A wide sheet: one column per n and seed, and the mean of the seeds after them.

    Trap: the mean is no run.
    """
    runs = [Run(32, n, s) for n in (8, 16, 32) for s in (0, 1)]
    steps = list(range(0, 201, 25))
    scores = [curve(run, steps) for run in runs]
    header, columns = ["step"], []
    for first in range(0, len(runs), 2):
        n = runs[first].n
        header += [f"n{n}_s0", f"n{n}_s1", f"n{n}_mean", f"n{n}_std"]
        pairs = list(zip(scores[first], scores[first + 1], strict=True))
        means = [round((a + b) / 2, 5) for a, b in pairs]
        spreads = [round(abs(a - b) / math.sqrt(2), 5) for a, b in pairs]
        columns += [scores[first], scores[first + 1], means, spreads]
    rows = [[step, *(c[i] for c in columns)] for i, step in enumerate(steps)]
    write_csv(folder / "val_acc.csv", header, rows)
    said = ("--set", "pattern=n{rollouts_per_problem}_s{seed}", "--set", "problems_per_batch=32")
    return Truth(runs, said)


def neptune_series(folder: Path) -> Truth:
    """Neptune: fetch_runs_table() as CSV, and fetch_values() of each run and series.

    Trap: RUN-16 is an id, not n = 16; the table says what ran.
    """
    runs = [Run(48, n, s) for n, s in ((4, 0), (8, 0), (16, 0), (8, 1))]
    table = []
    for run, number in zip(runs, (16, 8, 21, 4), strict=True):
        steps = list(range(0, 181, 30))
        scores = curve(run, steps)
        key = f"RUN-{number}"
        table.append([key, "2026-11-02", run.bp, run.n, run.seed, 2e-6, scores[-1]])
        rows = [
            [i, step, s, f"2026-11-02 1{i}:00:00"]
            for i, (step, s) in enumerate(zip(steps, scores, strict=True))
        ]
        write_csv(folder / f"{key}_eval_pass@1.csv", ["", "step", "value", "timestamp"], rows)
        loss = [
            [i, s, round(0.02 / (i + 1), 5), f"2026-11-02 1{i}:00:00"] for i, s in enumerate(steps)
        ]
        write_csv(folder / f"{key}_train_kl.csv", ["", "step", "value", "timestamp"], loss)
    header = [
        "sys/id",
        "sys/creation_time",
        "parameters/prompts_per_batch",
        "parameters/group_size",
    ]
    header += ["parameters/seed", "parameters/learning_rate", "eval/pass@1"]
    write_csv(folder / "runs_table.csv", header, table)
    return Truth(runs)


Layout = Callable[[Path], Truth]
TABLES: tuple[Layout, ...] = (
    wandb_api_project,
    wandb_panels_twice,
    mlflow_search_runs,
    lab_sheet,
    tidy_batch,
    wide_mean,
    neptune_series,
)
