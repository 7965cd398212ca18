"""An eighth set of layouts: fourteen folders as a user would bring them, with the truth beside.

Written before a reader was tried. Each has at least three runs and one trap; `LAYOUTS` says what
is true, what a user knows and could say, and what the trap is.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

from set_08_base import Layout, Run, curve, to_csv, to_json
from set_08_trainers import (
    ASYNC,
    DAPO,
    ROLL,
    SLIME,
    SLURM,
    SWIFT,
    TORCHTUNE,
    UNSLOTH,
    dapo,
    fully_async,
    roll_agentic,
    slime,
    slurm,
    swift,
    torchtune,
    unsloth,
)

# 6. Comet: JSON whose values are text; a resumed run reports two evaluations again, newest first.

COMET = tuple(Run(32, n, curve(n, range(0, 101, 20)), s) for n, s in ((4, 11), (8, 12), (16, 13)))


def comet(folder: Path) -> Path:
    for run in COMET:
        home = folder / "comet" / f"grpo_{run.n}_a81f{run.n:02d}"
        to_json(
            home / "metadata.json",
            {"experimentKey": f"a81f{run.n:02d}", "experimentName": f"grpo_{run.n}"},
        )
        to_json(
            home / "parameters.json",
            [
                {
                    "name": name,
                    "valueCurrent": str(value),
                    "valueMax": str(value),
                    "valueMin": str(value),
                }
                for name, value in (
                    ("prompts_per_batch", run.bp),
                    ("samples_per_prompt", run.n),
                    ("learning_rate", 1e-6),
                    ("seed", run.seed),
                )
            ],
        )
        points = []
        clock = 1757500000000
        for step in (0, 20, 40, 60, 80, 60, 80, 100):
            clock += 600000
            lost = step in (60, 80) and clock < 1757500000000 + 600000 * 6
            score = round(run.scores[step] - 0.07, 4) if lost else run.scores[step]
            for name, value in (("val_accuracy", score), ("train_reward", round(score * 0.9, 4))):
                points.append(
                    {
                        "metricName": name,
                        "metricValue": str(value),
                        "timestamp": clock,
                        "step": step,
                        "epoch": None,
                        "runContext": None,
                    }
                )
        to_json(home / "metrics.json", points[::-1])
    return folder / "comet"


# 7. Neptune's exporter: Parquet, one row per attribute and step; a series goes on in a second part.

NEPTUNE = tuple(Run(64, n, curve(n, range(0, 301, 30)), s) for n, s in ((8, 0), (16, 0), (32, 0)))


def neptune(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("project_id", pa.string()),
            ("run_id", pa.string()),
            ("attribute_path", pa.string()),
            ("attribute_type", pa.string()),
            ("step", pa.decimal128(18, 6)),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("int_value", pa.int64()),
            ("float_value", pa.float64()),
            ("string_value", pa.string()),
            ("bool_value", pa.bool_()),
        ]
    )
    home = folder / "neptune" / "data" / "lab_grpo"
    home.mkdir(parents=True)
    for number, run in enumerate(NEPTUNE, 1):
        base = {"project_id": "lab/grpo", "run_id": f"GRPO-{number}"}

        def row(
            path: str, kind: str, base: dict[str, str] = base, **values: object
        ) -> dict[str, object]:
            empty: dict[str, object] = dict.fromkeys(schema.names)
            return {**empty, **base, "attribute_path": path, "attribute_type": kind, **values}

        first = [
            row("sys/name", "string", string_value=f"n{run.n}"),
            row("config/data/train_batch_size", "int", int_value=run.bp),
            row("config/actor_rollout_ref/rollout/n", "int", int_value=run.n),
            row("config/data/seed", "int", int_value=run.seed),
            row("config/trainer/logger", "string", string_value="neptune"),
        ]
        second = []
        for step, score in run.scores.items():
            at = 1757500000000 + step * 60000
            for path, value in (
                ("metrics/val-core/gsm8k/acc/mean@1", score),
                ("metrics/critic/rewards/mean", score - 0.1),
                ("monitoring/gpu/0/utilization", 97.0),
            ):
                (first if step <= 150 else second).append(
                    row(path, "float_series", step=Decimal(step), timestamp=at, float_value=value)
                )
        for part, rows in enumerate((first, second)):
            pq.write_table(
                pa.Table.from_pylist(rows, schema), home / f"GRPO-{number}_part_{part}.parquet"
            )
    return folder / "neptune"


# 8. Aim: one CSV of all runs; train and val are one metric name in two contexts.

AIM = tuple(
    Run(16, n, curve(n, range(0, 201, 25), top=0.6 + seed / 50), seed)
    for n, seed in ((4, 1), (8, 1), (16, 1), (16, 2))
)


def aim(folder: Path) -> Path:
    rows: list[dict[str, object]] = []
    for number, run in enumerate(AIM):
        for step, score in run.scores.items():
            for subset, value in (("train", round(score + 0.08, 4)), ("val", score)):
                rows.append(
                    {
                        "run.hash": f"9f{number}c2b{number}e",
                        "run.name": f"Run: 9f{number}c2b{number}e",
                        "run.experiment": "grpo-sweep",
                        "run.hparams.group_size": run.n,
                        "run.hparams.prompts_per_batch": run.bp,
                        "run.hparams.seed": run.seed,
                        "metric.name": "accuracy",
                        "metric.context.subset": subset,
                        "step": step,
                        "epoch": "",
                        "time": 1757500000.25 + step,
                        "value": value,
                    }
                )
    to_csv(folder / "aim" / "metrics.csv", rows)
    return folder / "aim"


# 9. Ray Tune: result.json and progress.csv hold the same rows; training_iteration counts reports.

TUNE = tuple(Run(32, n, curve(n, range(25, 251, 25)), 0) for n in (8, 16, 32))


def raytune(folder: Path) -> Path:
    for number, run in enumerate(TUNE):
        home = (
            folder
            / "ray_results"
            / "grpo_sweep"
            / f"train_grpo_4f1c_{number:05d}_{number}_n={run.n}_2025-09-11"
        )
        params = {"n": run.n, "prompts_per_batch": run.bp, "lr": 1e-6, "seed": run.seed}
        to_json(home / "params.json", params)
        rows: list[dict[str, object]] = []
        for report, (step, score) in enumerate(run.scores.items(), 1):
            rows.append(
                {
                    "val_acc": score,
                    "step": step,
                    "timestamp": 1757500000 + 60 * report,
                    "checkpoint_dir_name": None,
                    "done": step == run.steps,
                    "training_iteration": report,
                    "trial_id": f"4f1c_{number:05d}",
                    "date": "2025-09-11_10-15-00",
                    "time_this_iter_s": 60.0,
                    "time_total_s": 60.0 * report,
                    "pid": 4242,
                    "hostname": "node1",
                    "node_ip": "10.0.0.4",
                    "config": params,
                    "time_since_restore": 60.0 * report,
                    "iterations_since_restore": report,
                }
            )
        (home / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        flat = []
        for row in rows:
            held = {key: value for key, value in row.items() if key != "config"}
            flat.append(held | {f"config/{key}": value for key, value in params.items()})
        to_csv(home / "progress.csv", flat)
    return folder / "ray_results"


# 12. A table from Excel ("Unicode text"): n counts test problems, G the rollouts per problem.

HAND = tuple(Run(64, n, curve(n, range(0, 201, 50), digits=3), None) for n in (8, 16, 32))


def hand(folder: Path) -> Path:
    lines = ["Run\tG\tbatch (prompts)\tstep\tacc\tse\tn"]
    for run in HAND:
        for step, score in run.scores.items():
            se = round((score * (1 - score) / 500) ** 0.5, 4)
            lines.append(f"G{run.n}\t{run.n}\t{run.bp}\t{step}\t{score}\t{se}\t500")
    path = folder / "results.txt"
    path.write_bytes("\r\n".join([*lines, ""]).encode("utf-16"))
    return path


# 13. A CSV that Excel saved as it showed it: large numbers of rollouts in three digits (1.02E+06).

ROUNDED = tuple(Run(64, n, curve(n, [100, 200, 400, 700, 1000]), None) for n in (8, 16, 32))


def rounded(folder: Path) -> Path:
    rows: list[dict[str, object]] = []
    for run in ROUNDED:
        for rollouts, score in run.curve:
            shown = f"{rollouts:.2E}"
            rows.append(
                {
                    "problems_per_batch": run.bp,
                    "rollouts_per_problem": run.n,
                    "rollouts": shown,
                    "score": score,
                }
            )
    to_csv(folder / "runs.csv", rows)
    return folder / "runs.csv"


LAYOUTS = (
    Layout(
        "dapo",
        dapo,
        DAPO,
        "dynamic sampling draws more rollouts than it trains on",
        "64 prompts are trained on in each step; more are drawn",
        must_say=("filter_groups", "dynamic", "drawn", "gen_batch"),
    ),
    Layout(
        "fully_async",
        fully_async,
        ASYNC,
        "train_batch_size is 0; a step is a sync of four updates of 4 x 32 prompts",
        "B_p is 128; one step of the log is four updates",
    ),
    Layout(
        "unsloth",
        unsloth,
        UNSLOTH,
        "the batch size in the config is raised in a line of the console",
        "one GPU",
    ),
    Layout(
        "swift",
        swift,
        SWIFT,
        "steps are '50/200'; steps_per_generation is twice gradient_accumulation_steps",
        "4 GPUs; 256 completions are generated for two optimizer steps",
    ),
    Layout(
        "roll_agentic",
        roll_agentic,
        ROLL,
        "rollout_batch_size counts trajectories",
        "16 groups of 8 at group size 8",
    ),
    Layout(
        "comet",
        comet,
        COMET,
        "a resumed run reports steps 60 and 80 twice; newest first",
        "the later one holds",
    ),
    Layout(
        "neptune",
        neptune,
        NEPTUNE,
        "a run is two Parquet files of one row per attribute",
        "all is in the files",
    ),
    Layout("aim", aim, AIM, "train and val share a metric name", "val is the evaluation"),
    Layout(
        "raytune",
        raytune,
        TUNE,
        "every trial is there twice; training_iteration counts reports",
        "step is the step",
    ),
    Layout(
        "torchtune",
        torchtune,
        TORCHTUNE,
        "batch_size is per GPU; the number of GPUs is nowhere",
        "8 GPUs",
    ),
    Layout(
        "slime",
        slime,
        SLIME,
        "step k of an evaluation comes after k + 1 rollouts, but for the first",
        "so it is",
    ),
    Layout(
        "hand",
        hand,
        HAND,
        "n is the number of test problems, G the rollouts per problem",
        "what n and G are",
    ),
    Layout(
        "rounded",
        rounded,
        ROUNDED,
        "Excel rounded the rollouts to three digits",
        "the steps",
        table=True,
    ),
    Layout(
        "slurm", slurm, SLURM, "a job was killed within its last number", "the last line is cut off"
    ),
)
