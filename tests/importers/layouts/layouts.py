"""Fourteen layouts of logs with one trap each, and the truth behind each.

They were written and committed before the readers were tried on them. Every layout is a sweep of
three runs; `first` is what a user would type, `second` what the error of the first try asks for.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

B_P, UPDATES, EVERY = 8, 12, 2
LENGTH = 50.0  # tokens of a response, in every run

Points = dict[float, float]
Ask = dict[str, Any]  # settings (as `--set`), where, score_range, metric


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Arguments: the truth by (n, seed), what is typed first and second, what is mended between."""

    truth: dict[tuple[int, int | None], Points]
    first: Ask = field(default_factory=dict)
    second: Ask | None = None
    mend: Callable[[Path], None] | None = None


def score(n: int, step: int, seed: int = 0) -> float:
    """A planted curve: distinct at every step, n and seed."""
    return 0.2 + 0.05 * step * n / (step + n) + 0.0017 * seed + 0.0003 * (step * 7 % 5)


def planted(
    n: int, seed: int | None = None, *, b_p: int = B_P, scale: Callable[[float], float] = float,
    every: int = EVERY, last: int = UPDATES,
) -> Points:
    """Rollouts -> score of one run."""
    return {
        float(b_p * n * step): scale(score(n, step, seed or 0))
        for step in range(0, last + 1, every)
    }


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def history_csv(folder: Path) -> Layout:
    """W&B's run.history() of TRL: `_step` counts calls of log, `train/global_step` updates."""
    for n in (4, 8, 16):
        rows = ["_step,_runtime,train/global_step,train/loss,eval/reward"]
        call = 0
        for step in range(UPDATES + 1):
            if step:
                rows.append(f"{call},{call * 2.5},{step},{0.1 / step},")
                call += 1
            if step % EVERY == 0:
                rows.append(f"{call},{call * 2.5},{step},,{score(n, step)}")
                call += 1
        (folder / f"trl_bp8_n{n}.csv").write_text("\n".join(rows) + "\n")
    return Layout(
        truth={(n, None): planted(n) for n in (4, 8, 16)},
        first={"settings": {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}},
    )


def chart_percent(folder: Path) -> Layout:
    """A W&B chart in percent."""
    names = {n: f"qwen-bp8-n{n}" for n in (4, 8, 16)}
    header = ["train/global_step"]
    for name in names.values():
        header += [f"{name} - eval/accuracy", f"{name} - eval/accuracy__MIN",
                   f"{name} - eval/accuracy__MAX"]
    rows = [",".join(f'"{cell}"' for cell in header)]
    for step in range(0, UPDATES + 1, EVERY):
        cells = [str(step)]
        for n in names:
            cells += [str(100 * score(n, step))] * 3
        rows.append(",".join(f'"{cell}"' for cell in cells))
    (folder / "wandb_export.csv").write_text("\n".join(rows) + "\n")
    asked = {
        "settings": {
            "pattern": "bp{problems_per_batch}-n{rollouts_per_problem}",
            "columns": {"eval/accuracy": "avg"},
        }
    }
    return Layout(
        truth={(n, None): planted(n) for n in names},
        first=asked,
        second={**asked, "score_range": (0.0, 100.0)},
    )


def long_table(folder: Path) -> Layout:
    """One row per number: run, metric, step, value; losses and lengths among them."""
    rows = ["run,metric,step,value"]
    for n in (4, 8, 16):
        for step in range(UPDATES + 1):
            if step:
                rows.append(f"bp8_n{n},actor/pg_loss,{step},{-0.01 * step}")
                rows.append(f"bp8_n{n},response_length/mean,{step},{LENGTH}")
            if step % EVERY == 0:
                rows.append(f"bp8_n{n},val-core/math/acc/mean@4,{step},{score(n, step)}")
                rows.append(f"bp8_n{n},val-aux/math/acc/std@4,{step},0.3")
    (folder / "all_metrics.csv").write_text("\n".join(rows) + "\n")
    return Layout(
        truth={(n, None): planted(n) for n in (4, 8, 16)},
        first={"settings": {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}},
    )


def two_trackers(folder: Path) -> Layout:
    """Every run was logged to a file and to W&B, and both lie in the folder."""
    wandb = [["Step"]]
    for n in (4, 8, 16):
        lines(folder / f"grpo_bp8_n{n}.jsonl", [
            {"step": step, "data": {"val-core/math/acc/mean@4": score(n, step)}}
            for step in range(0, UPDATES + 1, EVERY)
        ])
        wandb[0].append(f"grpo_bp8_n{n} - val-core/math/acc/mean@4")
    for step in range(0, UPDATES + 1, EVERY):
        wandb.append([str(step), *(str(score(n, step)) for n in (4, 8, 16))])
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in wandb)
    (folder / "wandb_chart.csv").write_text(text + "\n")
    return Layout(
        truth={(n, None): planted(n) for n in (4, 8, 16)},
        first={"settings": {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}},
    )


def mlflow_store(folder: Path) -> Layout:
    """MLflow's file store of verl: a folder per run, a file per metric, `@` written as `_at_`."""
    for i, n in enumerate((4, 8, 16)):
        run = folder / "mlruns" / "475" / f"{i:032x}"
        (run / "params").mkdir(parents=True)
        (run / "tags").mkdir()
        (run / "meta.yaml").write_text(
            f"artifact_uri: file:///x\nend_time: null\nexperiment_id: '475'\nlifecycle_stage: "
            f"active\nrun_id: {i:032x}\nrun_name: verl-{n}\nstatus: 3\n"
        )
        (run / "tags" / "mlflow.runName").write_text(f"verl-{n}")
        for key, value in {
            "data/train_batch_size": B_P, "actor_rollout_ref/rollout/n": n,
            "trainer/total_training_steps": UPDATES, "data/seed": 5,
        }.items():
            path = run / "params" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(value))
        metric = run / "metrics" / "val-core" / "math" / "acc" / "mean_at_4"
        metric.parent.mkdir(parents=True)
        metric.write_text("".join(
            f"{1_700_000_000_000 + step} {score(n, step, 5)} {step}\n"
            for step in range(0, UPDATES + 1, EVERY)
        ))
    return Layout(truth={(n, 5): planted(n, 5) for n in (4, 8, 16)})


def verl_from_zero(folder: Path) -> Layout:
    """verl's first releases counted the first update as step 0, and validated after it."""
    for n in (4, 8, 16):
        text = [f"+ python3 -m verl.trainer.main_ppo data.train_batch_size={B_P} "
                f"actor_rollout_ref.rollout.n={n}"]
        for step in range(UPDATES):
            line = (f"step:{step} - critic/score/mean:0.4 - actor/pg_loss:0.1 - "
                    f"response_length/mean:{LENGTH}")
            if (step + 1) % EVERY == 0:
                line += f" - val/test_score/math:{score(n, step + 1)}"
            text.append(line)
        (folder / f"run{n}.log").write_text("\n".join(text) + "\n")
    truth = {(n, None): planted(n) for n in (4, 8, 16)}
    for points in truth.values():
        del points[0.0]
    return Layout(truth=truth)


def mlflow_database(
    path: Path, runs: dict[str, tuple[dict[str, Any], list[tuple[str, int, float, int]]]]
) -> None:
    """Runs -> (params, [(key, step, value, timestamp)]) in the tables of MLflow."""
    with sqlite3.connect(path) as c:
        c.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT)")
        c.execute("CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT)")
        c.execute("CREATE TABLE metrics (key TEXT, value DOUBLE, timestamp BIGINT, run_uuid TEXT, "
                  "step BIGINT, is_nan BOOLEAN)")
        for name, (params, rows) in runs.items():
            c.execute("INSERT INTO runs VALUES (?, ?)", (f"id-{name}", name))
            for key, value in params.items():
                c.execute("INSERT INTO params VALUES (?, ?, ?)", (key, str(value), f"id-{name}"))
            for key, step, number, time in rows:
                c.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)",
                          (key, number, time, f"id-{name}", step))
    c.close()


def trl_params(n: int, **more: Any) -> dict[str, Any]:
    """Arguments of TRL whose batch holds B_p problems, over two accumulated micro-batches."""
    return {
        "num_generations": n, "per_device_train_batch_size": B_P * n // 2,
        "gradient_accumulation_steps": 2, "generation_batch_size": B_P * n,
        "steps_per_generation": 2, "num_iterations": 1, "max_steps": UPDATES, "seed": 3,
        "learning_rate": 1e-6, "model_name_or_path": "Qwen/Qwen2.5-1.5B", **more,
    }


def generations_sweep(folder: Path) -> Layout:
    """TRL evaluates with as many samples as it trains with, so every run has another k."""
    mlflow_database(folder / "mlflow.db", {
        f"n{n}": (trl_params(n), [
            ("eval_reward", step, score(n, step), 1000 + step)
            for step in range(0, UPDATES + 1, EVERY)
        ])
        for n in (2, 4, 8)
    })
    return Layout(truth={(n, 3): planted(n) for n in (2, 4, 8)})


def resumed(folder: Path) -> Layout:
    """Every run stopped at 8 and went on from its checkpoint at 6, in a second file."""
    for n in (4, 8, 16):
        row = {step: {"step": step, "val-core/math/acc/mean@4": score(n, step)}
               for step in range(0, UPDATES + 1, EVERY)}
        lines(folder / f"bp8_n{n}" / "metrics.jsonl", [row[s] for s in (0, 2, 4, 6)] + [
            {"step": 8, "val-core/math/acc/mean@4": 0.9}
        ])
        lines(folder / f"bp8_n{n}" / "metrics-resumed.jsonl", [row[s] for s in (8, 10, 12)])
    return Layout(
        truth={(n, None): planted(n) for n in (4, 8, 16)},
        first={"settings": {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}},
        second={"settings": {
            "pattern": "bp{problems_per_batch}_n{rollouts_per_problem}", "resumed": "join"}},
    )


def two_models(folder: Path) -> Layout:
    """Three runs of one configuration and different seeds, one of them of another model."""
    rows = {seed: [("eval_reward", step, score(8, step, seed), 1000 + step)
                   for step in range(0, UPDATES + 1, EVERY)] for seed in (0, 1, 2)}
    mlflow_database(folder / "mlflow.db", {
        f"seed{seed}": (trl_params(8, seed=seed, model_name_or_path=model), rows[seed])
        for seed, model in ((0, "Qwen/Qwen2.5-1.5B"), (1, "Qwen/Qwen2.5-1.5B"),
                            (2, "Qwen/Qwen2.5-7B"))
    })
    return Layout(
        truth={(8, seed): planted(8, seed) for seed in (0, 1)},
        second={"where": ["model=Qwen/Qwen2.5-1.5B"]},
    )


def summed_rewards(folder: Path) -> Layout:
    """Rewards of several parts, from -0.5 to 3."""
    def scale(x: float) -> float:
        return 3.5 * x - 0.5

    for n in (4, 8, 16):
        lines(folder / f"bp8_n{n}.jsonl", [
            {"step": step, "eval/all/avg_score": scale(score(n, step))}
            for step in range(0, UPDATES + 1, EVERY)
        ])
    asked = {"settings": {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}}
    return Layout(
        truth={(n, None): planted(n) for n in (4, 8, 16)},
        first=asked, second={**asked, "score_range": (-0.5, 3.0)},
    )


def logged_every_five(folder: Path) -> Layout:
    """TRL's state with logging every 5 steps, evaluation every 4, in the newest checkpoint."""
    for n in (4, 8, 16):
        for upto in (10, 20):
            history: list[dict[str, Any]] = []
            for step in range(upto + 1):
                if step and step % 5 == 0:
                    history.append({"step": step, "loss": 0.1, "reward": 0.4,
                                    "completions/mean_length": LENGTH, "epoch": step / 10})
                if step % 4 == 0:
                    history.append({"step": step, "eval_reward": score(n, step),
                                    "eval_completions/mean_length": 3 * LENGTH})
            path = folder / f"n{n}_bp8" / f"checkpoint-{upto}" / "trainer_state.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps({
                "global_step": upto, "max_steps": 20, "logging_steps": 5, "log_history": history,
            }))
    return Layout(
        truth={(n, None): planted(n, every=4, last=20) for n in (4, 8, 16)},
        first={"settings": {"pattern": "n{rollouts_per_problem}_bp{problems_per_batch}"}},
    )


def deep_folders(folder: Path) -> Layout:
    """What a run is stands in three folders above its log, whose own name has dots."""
    for n in (4, 8, 16):
        lines(folder / "bs8" / f"n{n}" / "seed1" / "qwen2.5-lr1e-6.v2.jsonl", [
            {"step": step, "val-core/math/acc/mean@4": score(n, step, 1)}
            for step in range(0, UPDATES + 1, EVERY)
        ])
    return Layout(
        truth={(n, 1): planted(n, 1) for n in (4, 8, 16)},
        first={"settings": {
            "pattern": "bs{problems_per_batch}/n{rollouts_per_problem}/seed{seed}"}},
    )


def samples_axis(folder: Path) -> Layout:
    """`step` counts samples; the updates stand beside it, and their plan in the configuration."""
    for n in (4, 8, 16):
        lines(folder / f"run-{n}.jsonl", [
            {"config": {"data": {"train_batch_size": B_P},
                        "actor_rollout_ref": {"rollout": {"n": n}},
                        "trainer": {"total_training_steps": UPDATES}}},
            *({"step": B_P * n * step, "update": step, "val-core/math/acc/mean@4": score(n, step)}
              for step in range(0, UPDATES + 1, EVERY)),
        ])
    return Layout(
        truth={(n, None): planted(n) for n in (4, 8, 16)},
        second={"settings": {"step": "update"}},
    )


def clock(folder: Path) -> Layout:
    """The clock went back by an hour; step 6 was evaluated twice, the first time counts."""
    runs = {}
    for n in (4, 8, 16):
        rows = [("eval_reward", step, score(n, step), 5_000_000 + 1000 * step)
                for step in (0, 2, 4, 6)]
        rows += [("eval_reward", step, score(n, step), 1_400_000 + 1000 * step)
                 for step in (8, 10, 12)]
        rows.insert(4, ("eval_reward", 6, 0.95, 1_400_000 + 5500))
        runs[f"n{n}"] = (trl_params(n, num_generations_eval=4), rows)
    mlflow_database(folder / "mlflow.db", runs)
    return Layout(truth={(n, 3): planted(n) for n in (4, 8, 16)})


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    f.__name__: f
    for f in (
        history_csv, chart_percent, long_table, two_trackers, mlflow_store, verl_from_zero,
        generations_sweep, resumed, two_models, summed_rewards, logged_every_five, deep_folders,
        samples_axis, clock,
    )
}
