"""The exports of trackers and spreadsheets, invented without a look at the readers.

Entered into the same `LAYOUTS` as the trainers' own logs in `layouts_blind.py`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

from layouts_blind import EVALUATED_AT, SWEEP, Truth, layout, put, put_json, put_lines, score, truth


def table(path: Path, header: list[str], rows: list[list[object]], delimiter: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(header)
        writer.writerows(rows)


def runs() -> list[Truth]:
    return [truth(*run) for run in SWEEP]


@layout("the axis is a relative time: no step is in the file, only a refusal is right")
def wandb_chart_by_time(root: Path) -> None:
    names = [f"bp{bp}_n{n}_seed{seed}" for bp, n, seed in SWEEP]
    header = ["Relative Time (Process)"] + [f"{name} - eval/accuracy" for name in names]
    rows = [
        [61.5 * step + 3.25] + [score(n, seed, step) for _, n, seed in SWEEP]
        for step in EVALUATED_AT
    ]
    table(root / "wandb_export.csv", header, rows)


@layout("semicolons, a mark at the start, decimal commas, dots in thousands, percent signs")
def excel_european(root: Path) -> list[Truth]:
    lines = ["problems_per_batch;rollouts_per_problem;seed;rollouts;score"]
    for bp, n, seed in SWEEP:
        for step in EVALUATED_AT:
            percent = f"{100 * score(n, seed, step):.2f}".replace(".", ",")
            rollouts = f"{bp * n * step:,}".replace(",", ".")
            lines.append(f"{bp};{n};{seed};{rollouts};{percent} %")
    root.mkdir(parents=True, exist_ok=True)
    (root / "Ergebnisse.csv").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig")
    return runs()


@layout("commas in thousands, percent signs, a blank row and a row of totals at the end")
def excel_american(root: Path) -> list[Truth]:
    rows: list[list[object]] = []
    for bp, n, seed in SWEEP:
        for step in EVALUATED_AT:
            percent = f"{100 * score(n, seed, step):.2f}%"
            rows.append([bp, n, seed, f"{bp * n * step:,}", percent])
    rows += [["", "", "", "", ""], ["Total", "", "", "", ""]]
    header = ["problems_per_batch", "rollouts_per_problem", "seed", "rollouts", "score"]
    table(root / "sweep.csv", header, rows)
    return runs()


@layout("one row a run with the last value of each metric: a point each, not a curve")
def mlflow_search_runs(root: Path) -> list[Truth]:
    header = [
        "run_id",
        "status",
        "params.data.train_batch_size",
        "params.actor_rollout_ref.rollout.n",
        "params.data.seed",
        "metrics.training/global_step",
        "metrics.val-core/openai/gsm8k/acc/mean_at_4",
    ]
    rows = [[f"f00{n}", "FINISHED", bp, n, seed, 60.0, score(n, seed, 60)] for bp, n, seed in SWEEP]
    table(root / "runs.csv", header, rows)
    return [
        Truth(
            problems_per_batch=bp,
            rollouts_per_problem=n,
            seed=seed,
            scores={60: score(n, seed, 60)},
            rollouts={60: 60 * bp * n},
        )
        for bp, n, seed in SWEEP
    ]


@layout("params are strings; a metric is a list of steps and values under its key")
def mlflow_metric_history(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        series = [
            {
                "key": "val/acc",
                "step": s,
                "value": score(n, seed, s),
                "timestamp": 1754000000000 + s,
            }
            for s in EVALUATED_AT
        ]
        params = {
            "data.train_batch_size": str(bp),
            "actor_rollout_ref.rollout.n": str(n),
            "data.seed": str(seed),
        }
        run = {
            "info": {"run_id": f"f00{n}", "run_name": f"grpo-{n}", "status": "FINISHED"},
            "data": {"params": params, "tags": {}},
            "metrics": {"val-core/openai/gsm8k/acc/mean_at_4": series},
        }
        put_json(root / f"f00{n}.json", run)
    return runs()


@layout("the same metric's name for training and validation, told apart by context only")
def aim_dataframe(root: Path) -> list[Truth]:
    header = [
        "run.hash",
        "run.hparams.rollout_batch_size",
        "run.hparams.num_generations",
        "run.hparams.seed",
        "metric.name",
        "metric.context",
        "step",
        "value",
        "epoch",
        "time",
    ]
    rows: list[list[object]] = []
    for bp, n, seed in SWEEP:
        for step in EVALUATED_AT:
            for subset, shift in (("train", 0.15), ("val", 0.0)):
                context = json.dumps({"subset": subset})
                value = round(score(n, seed, step) + shift, 4)
                rows.append(
                    [f"a{n}", bp, n, seed, "accuracy", context, step, value, "nan", 1.7e9 + step]
                )
    table(root / "metrics.csv", header, rows)
    return runs()


@layout("values are strings, times in milliseconds, the settings in a second file by key")
def comet_export(root: Path) -> list[Truth]:
    metrics, parameters = [], []
    for bp, n, seed in SWEEP:
        key = f"9f{n:03d}"
        for step in EVALUATED_AT:
            metrics.append(
                {
                    "experimentKey": key,
                    "metricName": "eval_accuracy",
                    "metricValue": str(score(n, seed, step)),
                    "timestamp": 1754000000000 + 60000 * step,
                    "step": step,
                    "epoch": None,
                }
            )
        for name, value in (("num_prompts", bp), ("group_size", n), ("seed", seed)):
            parameters.append({"experimentKey": key, "name": name, "valueCurrent": str(value)})
    put_json(root / "metrics.json", metrics)
    put_json(root / "parameters.json", parameters)
    return runs()


@layout("every curve has a column of times beside it")
def swanlab_chart(root: Path) -> list[Truth]:
    names = [f"bp{bp}-n{n}-seed{seed}" for bp, n, seed in SWEEP]
    header = ["step"]
    for name in names:
        header += [f"{name}-val/accuracy", f"{name}-val/accuracy_timestamp"]
    rows: list[list[object]] = []
    for step in EVALUATED_AT:
        cells: list[object] = [step]
        for _, n, seed in SWEEP:
            cells += [score(n, seed, step), 1754000000000 + 60000 * step]
        rows.append(cells)
    table(root / "swanlab-export.csv", header, rows)
    return runs()


@layout("curves as x and y lists by title and series; settings are strings under Args/")
def clearml_scalars(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        steps = list(EVALUATED_AT)
        values = [score(n, seed, s) for s in steps]
        scalars = {
            "validation": {"accuracy": {"name": "accuracy", "x": steps, "y": values}},
            ":monitor:gpu": {"gpu_0_utilization": {"name": "gpu", "x": [0, 60], "y": [10.0, 99.0]}},
        }
        task = {
            "id": f"c{n}",
            "name": f"grpo n={n}",
            "hyperparameters": {
                "Args": {
                    "prompts_per_batch": str(bp),
                    "samples_per_prompt": str(n),
                    "seed": str(seed),
                }
            },
            "scalars": scalars,
        }
        put_json(root / f"task_c{n}.json", task)
    return runs()


@layout("step counts calls of log in one table of all runs; global_step stands beside it")
def trackio_rows(root: Path) -> list[Truth]:
    rows = []
    for bp, n, seed in SWEEP:
        call = 0
        config = {"num_generations": n, "generation_batch_size": bp * n, "seed": seed}
        for step in range(0, 61, 5):
            rows.append(
                {
                    "run": f"happy-forest-{n}",
                    "timestamp": f"2026-08-03T12:{step:02d}:00",
                    "step": call,
                    "train/global_step": step,
                    "train/reward": 0.5,
                    **config,
                }
            )
            call += 1
            if step in EVALUATED_AT:
                rows.append(
                    {
                        "run": f"happy-forest-{n}",
                        "timestamp": f"2026-08-03T12:{step:02d}:30",
                        "step": call,
                        "train/global_step": step,
                        "eval/reward": score(n, seed, step),
                        **config,
                    }
                )
                call += 1
    put_json(root / "trackio.json", rows)
    return runs()


@layout("two header rows, as pandas writes columns with levels")
def pandas_two_headers(root: Path) -> list[Truth]:
    lines = [
        "problems_per_batch," + ",".join(str(bp) for bp, _, _ in SWEEP),
        "rollouts_per_problem," + ",".join(str(n) for _, n, _ in SWEEP),
        "step," + "," * (len(SWEEP) - 1),
    ]
    for step in EVALUATED_AT:
        lines.append(f"{step}," + ",".join(str(score(n, seed, step)) for _, n, seed in SWEEP))
    put(root / "pivot.csv", "\n".join(lines) + "\n")
    return [
        Truth(
            problems_per_batch=t.problems_per_batch,
            rollouts_per_problem=t.rollouts_per_problem,
            seed=None,
            scores=t.scores,
            rollouts=t.rollouts,
        )
        for t in runs()
    ]


@layout("a long table with four spellings of a missing value, pass@k and maj@k among the metrics")
def long_with_gaps(root: Path) -> list[Truth]:
    header = ["run_id", "prompts_per_step", "group_size", "seed", "step", "metric", "value"]
    rows: list[list[object]] = []
    gaps = ["NaN", "#N/A", "-", "null"]
    for bp, n, seed in SWEEP:
        for index, step in enumerate(EVALUATED_AT):
            right = score(n, seed, step)
            for metric, value in (
                ("mean@4", right),
                ("maj@4", round(right + 0.1, 4)),
                ("pass@4", round(right + 0.2, 4)),
            ):
                rows.append([f"run-{n}", bp, n, seed, step, metric, value])
            rows.append([f"run-{n}", bp, n, seed, step, "kl", gaps[index % 4]])
        rows.append([f"run-{n}", bp, n, seed, 70, "mean@4", gaps[seed]])
    table(root / "long.tsv", header, rows, "\t")
    return runs()


@layout("the axis is the epoch; an epoch is 640 prompts, which stands in no key of a trainer")
def epochs_for_steps(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        rows = [[round(step * bp / 640, 5), score(n, seed, step)] for step in EVALUATED_AT]
        table(root / f"bp{bp}_n{n}_seed{seed}.csv", ["epoch", "val_accuracy"], rows)
    return runs()


@layout("one run in two folders of W&B after a restart; config.yaml of W&B with value:")
def wandb_folders_resumed(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        for part, steps in enumerate((EVALUATED_AT[:5], EVALUATED_AT[4:])):
            stamp = f"202608{part + 3:02d}_120000"
            files = root / f"sweep-n{n}" / "wandb" / f"run-{stamp}-k{n:03d}" / "files"
            put(
                files / "config.yaml",
                "wandb_version: 1\n"
                f"data:\n  desc: null\n  value:\n    train_batch_size: {bp}\n    seed: {seed}\n"
                f"actor_rollout_ref:\n  desc: null\n  value:\n    rollout:\n      n: {n}\n",
            )
            rows = [
                {
                    "_step": step,
                    "training/global_step": step,
                    "val-core/openai/gsm8k/acc/mean@1": score(n, seed, step),
                }
                for step in steps
            ]
            put_lines(files / "wandb-history.jsonl", rows)
    return runs()


@layout("the index is a time, seeds are three per n, and the score's key is nobody's")
def timestamps_as_index(root: Path) -> list[Truth]:
    sweep = [(bp, n, seed) for bp, n, _ in SWEEP for seed in (0, 1, 2)]
    header = ["", "run", "seed", "batch_prompts", "n_samples", "update", "solve_rate"]
    rows: list[list[object]] = []
    for bp, n, seed in sweep:
        for step in EVALUATED_AT:
            when = f"2026-08-03 12:{step % 60:02d}:0{seed}"
            rows.append([when, f"r{n}-{seed}", seed, bp, n, step, score(n, seed, step)])
    table(root / "frame.csv", header, rows)
    return [truth(*run) for run in sweep]


@layout("two data sets and their mean in one log: three scores at each step")
def two_sets_and_their_mean(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        put_json(root / f"run{n}" / "config.json", {"train_batch_size": bp, "n": n, "seed": seed})
        rows = []
        for step in EVALUATED_AT:
            right = score(n, seed, step)
            rows.append(
                {
                    "step": step,
                    "eval/aime24/accuracy": round(right - 0.1, 4),
                    "eval/math500/accuracy": round(right + 0.1, 4),
                    "eval/average/accuracy": right,
                }
            )
        put_lines(root / f"run{n}" / "log.jsonl", rows)
    return runs()
