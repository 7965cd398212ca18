"""A ninth set of invented logs: fourteen things that ordinary users keep, with the planted truth.

Written before a reader was tried. Weighted to what is common: exports of W&B, consoles that were
teed, folders of checkpoints, tables made by hand. Each has one trap that a user would not notice.
This file holds the truth and the tables; `layouts_ninth_logs` holds logs of trainers and trackers.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One training run as it was: what a reader must give back."""

    name: str
    problems_per_batch: int
    rollouts_per_problem: int
    steps: tuple[int, ...]
    scores: tuple[float, ...]
    seed: int | None = None
    model: str | None = None

    @property
    def rollouts(self) -> tuple[int, ...]:
        """Cumulative rollouts at each evaluation."""
        size = self.problems_per_batch * self.rollouts_per_problem
        return tuple(size * step for step in self.steps)


@dataclass(frozen=True)
class Layout:
    """A way to keep logs, what its user knows, and what was planted."""

    name: str
    command: str  # "import" or "fit"
    path: str  # what the user names, inside the folder that `write` fills
    runs: tuple[Run, ...]
    write: Callable[[Path], None]
    trap: str
    knows: str
    low: float = 0.0
    high: float = 1.0


def score(
    n: int, step: int, *, seed: int = 0, start: float = 0.21, top: float = 0.68, digits: int = 4
) -> float:
    """A smooth curve with a ripple of its own for each n and seed; step 0 is the same for all."""
    if step == 0:
        return round(start, digits)
    reach = (top - start) * (1 - 1 / (1 + 0.35 * math.log2(n)))
    rise = 1 - math.exp(-step / (18 + 6 * math.log2(n)))
    ripple = 0.006 * math.sin(1.7 * step + 2.3 * n + 5.1 * seed)
    return round(start + reach * rise + ripple, digits)


def run(
    name: str,
    problems: int,
    n: int,
    steps: Sequence[int],
    *,
    seed: int | None = None,
    model: str | None = None,
    **shape: float,
) -> Run:
    """A run whose scores follow `score`."""
    scores = tuple(score(n, step, seed=seed or 0, **shape) for step in steps)  # type: ignore[arg-type]
    return Run(name, problems, n, tuple(steps), scores, seed, model)


def write_csv(path: Path, rows: Sequence[Sequence[object]], delimiter: str = ",") -> None:
    """Rows as a spreadsheet or pandas writes them; None is a blank cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    path.write_text(text.getvalue(), encoding="utf-8")


# 1. The CSV of one W&B chart: a column per run, and its MIN and MAX.

CHART = tuple(
    run(f"qwen2.5-1.5b-gsm8k-bs64-n{n}", 64, n, range(0, last + 1, 10))
    for n, last in ((4, 100), (8, 100), (16, 60))
)


def chart(folder: Path) -> None:
    key = "val-core/openai/gsm8k/acc/mean@4"
    head = ["Step"]
    for each in CHART:
        head += [f"{each.name} - {key}{end}" for end in ("", "__MIN", "__MAX")]
    rows: list[list[object]] = [head]
    for step in range(0, 101, 10):
        row: list[object] = [step]
        for each in CHART:
            value = dict(zip(each.steps, each.scores, strict=True)).get(step)
            row += [value, value, value]
        rows.append(row)
    write_csv(folder / "wandb_export_2025-09-14T10_22_31.123+02_00.csv", rows)


# 2. `run.history()` of TRL runs, concatenated with a run column.

HISTORY = tuple(
    run(f"grpo-g{n}-s{seed}", 16, n, range(0, 201, 25), seed=seed)
    for n in (4, 8, 16)
    for seed in (1, 2)
)


def history(folder: Path) -> None:
    head = [
        "", "_step", "_runtime", "_timestamp", "train/global_step", "train/epoch", "train/reward",
        "train/num_tokens", "eval/reward", "eval/rewards/accuracy_reward/mean",
        "eval/rewards/format_reward/mean", "eval/runtime", "run", "seed", "num_generations",
    ]  # fmt: skip
    rows: list[list[object]] = [head]
    for each in HISTORY:
        at = dict(zip(each.steps, each.scores, strict=True))
        n, count = each.rollouts_per_problem, 0
        for step in range(0, 201, 5):
            tail: list[object] = [each.name, each.seed, n]
            clock: list[object] = [60.5 * count, 1757836951.3 + 60.5 * count, step, step / 400]
            if step:  # TRL logs the batch, then the evaluation, each a line of W&B's own
                reward = round(1.1 * score(n, step, seed=9 + (each.seed or 0)), 4)
                rows.append([count, count, *clock, reward, 2048 * step, *[None] * 4, *tail])
                count += 1
            if step in at:
                form = round(0.9 + step / 2500, 4)
                total = round(at[step] + 0.2 * form, 4)
                rows.append([count, count, *clock, None, None, total, at[step], form, 31.2, *tail])
                count += 1
    write_csv(folder / "all_runs.csv", rows)


# 3. The table of runs of a W&B project, and the history of each run beside it.

WORKSPACE = tuple(run(f"sweep-n{n}", 128, n, range(0, 81, 20)) for n in (8, 16, 32))


def workspace(folder: Path) -> None:
    key = "val-core/math/acc/mean@1"
    head = [
        "Name", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep",
        "actor_rollout_ref.rollout.n", "data.train_batch_size", "data.val_batch_size",
        "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.model.path",
        "training/global_step", key, "critic/score/mean",
    ]  # fmt: skip
    table: list[list[object]] = [head]
    for number, each in enumerate(WORKSPACE):
        table.append(
            [each.name, "finished", "-", "ana", "", f"2025-09-1{number}T08:00:00.000Z", 40000, "",
             each.rollouts_per_problem, 128, "", 64, "Qwen/Qwen2.5-7B", each.steps[-1],
             each.scores[-1], 0.71]
        )  # fmt: skip
        rows: list[list[object]] = [["_step", "training/global_step", key, "critic/score/mean"]]
        at = dict(zip(each.steps, each.scores, strict=True))
        for step in range(0, 81):
            rows.append([step, step, at.get(step), None if step == 0 else 0.3 + step / 200])
        write_csv(folder / "export" / f"{each.name}_history.csv", rows)
    table.append(
        ["sweep-n64", "crashed", "-", "ana", "", "2025-09-15T08:00:00.000Z", 61, "", 64, 128, "",
         64, "Qwen/Qwen2.5-7B", "", "", ""]
    )  # fmt: skip
    write_csv(folder / "export" / "runs.csv", table)


# 10. A table made by hand with one column for each n, in percent without the sign.

BY_HAND = (
    *(run(f"n={n}", 64, n, (0, 25, 50, 100, 150), digits=3) for n in (4, 8, 16)),
    run("n=32", 64, 32, (0, 25, 50, 100), digits=3),  # the dearest run was stopped at 100
)


def by_hand(folder: Path) -> None:
    rows: list[list[object]] = [["step", *(each.name for each in BY_HAND)]]
    for step in BY_HAND[0].steps:
        found = [dict(zip(each.steps, each.scores, strict=True)).get(step) for each in BY_HAND]
        rows.append([step, *("-" if one is None else f"{100 * one:.1f}" for one in found)])
    write_csv(folder / "results.csv", rows)


# 11. A sheet saved from Excel: percent signs, thousands separators, a byte order mark.

EXCEL = tuple(
    run(f"Run {letter}", 128, n, (0, 20, 40, 60, 80), digits=3)
    for letter, n in (("A", 8), ("B", 16), ("C", 64))
)


def excel(folder: Path) -> None:
    head = ["Run", "Prompts per batch", "Samples per prompt", "Step", "Total samples", "Accuracy"]
    rows: list[list[object]] = [head]
    for each in EXCEL:
        for step, total, value in zip(each.steps, each.rollouts, each.scores, strict=True):
            n = each.rollouts_per_problem
            rows.append([each.name, 128, n, step, f"{total:,}", f"{100 * value:.1f}%"])
    write_csv(folder / "sheet.csv", rows)
    text = (folder / "sheet.csv").read_text(encoding="utf-8")
    (folder / "sheet.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())


# 12. A long pandas table in Parquet, melted; two models in one project.

PARQUET = tuple(
    run(f"{model}-n{n}", 32, n, range(0, 121, 30), seed=0, model=model, start=start)
    for model, start in (("Qwen2.5-1.5B", 0.21), ("Qwen2.5-7B", 0.44))
    for n in (4, 16, 64)
)


def parquet(folder: Path) -> None:
    import pandas

    rows: list[dict[str, object]] = []
    for each in PARQUET:
        same = {
            "model": each.model,
            "prompts_per_step": 32,
            "group_size": each.rollouts_per_problem,
            "seed": 0,
        }
        for step, value in zip(each.steps, each.scores, strict=True):
            rows.append({**same, "step": step, "metric": "eval/pass@1", "value": value})
        for step in range(10, 121, 10):
            value = round(0.5 + step / 400, 3)
            rows.append({**same, "step": step, "metric": "train/reward", "value": value})
    pandas.DataFrame(rows).to_parquet(folder / "metrics.parquet")


# 13. JSON Lines of a custom loop: samples are counted over the whole batch, rewards are -1 to 1.

CUSTOM = tuple(
    run(f"run_{n}", 32, n, (0, 7, 19, 33, 48, 60), start=-0.62, top=0.55) for n in (4, 8, 16)
)


def custom(folder: Path) -> None:
    for each in CUSTOM:
        at = dict(zip(each.steps, each.scores, strict=True))
        size = 32 * each.rollouts_per_problem
        lines: list[dict[str, object]] = []
        for step in range(0, 61):
            if step:
                lines.append(
                    {"train_step": step, "num_prompts": 32, "num_samples": size,
                     "total_samples": size * step, "loss": round(0.1 / step, 5),
                     "reward_mean": round(-0.6 + step / 70, 4)}
                )  # fmt: skip
            if step in at:
                lines.append({"train_step": step, "eval_reward": at[step], "eval_examples": 500})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "out" / each.name).mkdir(parents=True)
        (folder / "out" / each.name / "log.jsonl").write_text(text, encoding="utf-8")


TABLES = (
    Layout(
        "wandb_chart", "import", ".", CHART, chart,
        "every run has three columns, and they end at different steps",
        "64 prompts per batch; n and 64 are in the run's name",
    ),
    Layout(
        "wandb_history", "fit", "all_runs.csv", HISTORY, history,
        "_step counts lines of W&B, not updates; eval/reward is a sum of two rewards",
        "16 prompts per step; the score is eval/rewards/accuracy_reward/mean",
    ),
    Layout(
        "wandb_workspace", "import", "export", WORKSPACE, workspace,
        "the table of runs repeats the last score; it holds a crashed run without a history",
        "nothing more: the table of runs says batch and n",
    ),
    Layout(
        "by_hand", "fit", "results.csv", BY_HAND, by_hand,
        "scores are 21.0, not 0.21; one cell is a dash",
        "64 prompts per batch; scores are percent",
    ),
    Layout(
        "excel", "fit", "sheet.csv", EXCEL, excel,
        "21.0% is 0.21 and 81,920 is a count",
        "nothing more",
    ),
    Layout(
        "parquet", "fit", "metrics.parquet", PARQUET, parquet,
        "two models have the same n and seed",
        "eval/pass@1 is the score; the models are two sweeps",
    ),
    Layout(
        "custom_jsonl", "import", "out", CUSTOM, custom,
        "num_samples is counted over the batch; scores lie in -1..1",
        "32 prompts, n is in the folder's name; the score is eval_reward, from -1 to 1",
        low=-1.0,
    ),
)  # fmt: skip
