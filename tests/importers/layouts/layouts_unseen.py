"""Ten layouts more, written before a reader was tried on them or on `layouts_foreign`.

Every layout is a sweep of three runs or more, with one trap.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from layouts import B_P, EVERY, LENGTH, UPDATES, Ask, Layout, lines, planted, score
from layouts_foreign import EVALUATED, NAMED, SIZES, sweep, table, wandb_config

KEY = "val-core/math/acc/mean@4"


def mapped(key: str, metric: str) -> Ask:
    """The pattern, and the key that an error asked for."""
    return {"settings": {**NAMED["settings"], "columns": {key: metric}}}


def ranks(folder: Path) -> Layout:
    """Every process of a run wrote the same file: two ranks are one run."""
    for n in SIZES:
        for rank in range(2):
            lines(folder / f"bp8_n{n}" / f"metrics_rank{rank}.jsonl", [
                {"step": step, "rank": rank, "time": 100 * step + rank, KEY: score(n, step)}
                for step in EVALUATED
            ])
    return Layout(truth=sweep(), first=NAMED)


def comet_strings(folder: Path) -> Layout:
    """Comet's metrics as one JSON array a run: a row per number, and numbers are strings."""
    for n in SIZES:
        rows = []
        for step in range(UPDATES + 1):
            if step % EVERY == 0:
                rows.append({"metricName": "eval/accuracy", "metricValue": str(score(n, step)),
                             "timestamp": 1_700_000_000_000 + step, "step": step, "epoch": 0,
                             "experimentKey": f"key{n}", "runContext": "validate"})
            rows.append({"metricName": "train/loss", "metricValue": str(0.1 + step), "step": step,
                         "timestamp": 1_700_000_000_000 + step, "epoch": 0,
                         "experimentKey": f"key{n}", "runContext": "train"})
        (folder / f"bp8_n{n}.json").write_text(json.dumps(rows))
    return Layout(truth=sweep(), first=NAMED, second=mapped("eval/accuracy", "avg"))


def sheet_percent(folder: Path) -> Layout:
    """A table from a sheet: numbers written as 43.2%."""
    rows = [[f"bp8_n{n}", step, f"{100 * score(n, step):.2f}%"] for n in SIZES
            for step in EVALUATED]
    table(folder / "results.csv", ["run", "step", "accuracy"], rows)
    return Layout(
        truth={(n, None): planted(n, scale=lambda x: round(100 * x, 2) / 100) for n in SIZES},
        first=NAMED,
        second=mapped("accuracy", "score"),
    )


def started_over(folder: Path) -> Layout:
    """The job died at 4 before its first checkpoint and began anew in the same file."""
    for n in SIZES:
        rows = [{"step": step, KEY: score(n, step) - (0.01 if step else 0.0)} for step in (0, 2, 4)]
        rows += [{"step": step, KEY: score(n, step)} for step in EVALUATED]
        lines(folder / f"bp8_n{n}.jsonl", rows)
    return Layout(truth=sweep(), first=NAMED)


def neptune_parquet(folder: Path) -> Layout:
    """Neptune's export: a long Parquet table in which parameters are rows without a step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for n in SIZES:
        head = {"project_id": "team/rl", "run_id": f"RL-{n}"}
        empty = {"step": None, "int_value": None, "float_value": None, "string_value": None}
        for key, value in (("data/train_batch_size", B_P), ("actor_rollout_ref/rollout/n", n),
                           ("data/seed", 7)):
            rows.append({**head, **empty, "attribute_path": f"parameters/{key}",
                         "attribute_type": "int", "int_value": value})
        for step in EVALUATED:
            for key, value in ((KEY, score(n, step, 7)), ("critic/score/mean", 0.3)):
                rows.append({**head, **empty, "attribute_path": f"metrics/{key}",
                             "attribute_type": "float_series", "step": float(step),
                             "float_value": value})
    pq.write_table(pa.Table.from_pylist(rows), folder / "rl_part_0.parquet")
    return Layout(truth={(n, 7): planted(n, 7) for n in SIZES})


def areal_history(folder: Path) -> Layout:
    """The first update is step 0, and its evaluation stands in the same row."""
    header = ["_step", "_runtime", "ppo_actor/task_reward/avg", "ppo_actor/update/lr",
              "rollout/reward", "eval-rollout/reward", "timeperf/train_step"]
    for n in SIZES:
        run = folder / f"trial{n}"
        wandb_config(run / "config.yaml", {
            "experiment_name": "gsm8k-grpo", "trial_name": f"trial{n}", "seed": 1,
            "train_dataset": {"batch_size": B_P, "path": "openai/gsm8k"},
            "valid_dataset": {"batch_size": 256}, "gconfig": {"n_samples": n, "temperature": 1.0},
            "actor": {"group_size": n, "ppo_n_minibatches": 1},
            "evaluator": {"freq_steps": EVERY}, "total_train_steps": UPDATES,
        })
        rows = [[step, 30.0 * step, 0.03 * step, 1e-6, 0.03 * step,
                 score(n, step + 1, 1) if (step + 1) % EVERY == 0 else None, 29.0]
                for step in range(UPDATES)]
        table(run / "history.csv", header, rows)
    truth = {(n, 1): planted(n, 1) for n in SIZES}
    for points in truth.values():
        del points[0.0]
    return Layout(truth=truth)


def normalized_verl(folder: Path) -> Layout:
    """verl's rows through pandas' `json_normalize`: every key has `data.` before it."""
    header = ["step", f"data.{KEY}", "data.val-aux/math/acc/best@4/mean",
              "data.training/global_step", "data.response_length/mean",
              "data.perf/total_num_tokens"]
    for n in SIZES:
        rows = []
        for step in range(UPDATES + 1):
            scored = [score(n, step), score(n, step) + 0.1] if step % EVERY == 0 else [None] * 2
            trained = [step, LENGTH, B_P * n * (LENGTH + 10)] if step else [None] * 3
            rows.append([step, *scored, *trained])
        table(folder / f"bp8_n{n}.csv", header, rows)
    return Layout(truth=sweep(), first=NAMED)


def trl_printed(folder: Path) -> Layout:
    """The console of TRL on Transformers 5, which prints numbers as strings and no step."""
    for n in SIZES:
        text = []
        for step in range(1, UPDATES + 1):
            epoch = f"{step / UPDATES:.4g}"
            text.append(f"\r {100 * step // UPDATES:3d}%|###       | {step}/{UPDATES} "
                        f"[00:{step:02d}<00:30,  1.01it/s]")
            text.append(f"{{'loss': '0.001', 'grad_norm': '0.2', 'learning_rate': '1e-06', "
                        f"'reward': '0.{step:02d}', 'completions/mean_length': '50', "
                        f"'epoch': '{epoch}'}}")
            if step % EVERY == 0:
                text.append(f"{{'eval_loss': '0.01', 'eval_reward': '{score(n, step)}', "
                            f"'eval_runtime': '3.2', 'epoch': '{epoch}'}}")
        (folder / f"bp8_n{n}.log").write_text("\n".join(text) + "\n")
    truth = sweep()
    for points in truth.values():
        del points[0.0]
    return Layout(truth=truth, first=NAMED)


def exported_twice(folder: Path) -> Layout:
    """The same chart, exported at half time and at the end."""
    for day, last in (("2026-01-01", 6), ("2026-01-03", UPDATES)):
        header = ["train/global_step"]
        header += [f"bp8_n{n} - eval/accuracy" for n in SIZES]
        rows = [[step, *(score(n, step) for n in SIZES)] for step in range(0, last + 1, EVERY)]
        text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows])
        (folder / f"wandb_export_{day}T10_00_00.000+01_00.csv").write_text(text + "\n")
    return Layout(truth=sweep(), first=NAMED, second=mapped("eval/accuracy", "avg"))


def thousands(folder: Path) -> Layout:
    """A table by hand whose samples are counted in thousands, beside the update."""
    rows = [[n, B_P, step, B_P * n * step / 1000, score(n, step)] for n in SIZES
            for step in EVALUATED]
    table(folder / "sweep.csv",
          ["rollouts_per_problem", "problems_per_batch", "steps", "rollouts", "score"], rows)

    def mend(folder: Path) -> None:
        table(folder / "sweep.csv",
              ["rollouts_per_problem", "problems_per_batch", "steps", "score"],
              [[*row[:3], row[4]] for row in rows])

    return Layout(truth=sweep(), mend=mend)


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    f.__name__: f
    for f in (
        ranks, comet_strings, sheet_percent, started_over, neptune_parquet, areal_history,
        normalized_verl, trl_printed, exported_twice, thousands,
    )
}
