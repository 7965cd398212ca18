"""Fourteen more layouts, as other trainers and trackers write them, with one trap each.

They were written and committed before the readers were tried on them, from the sources of the
trainers alone. Every layout is a sweep of three runs or more; `first` is what a user would type.
Where the trap cannot be decided without being told, `second` is what the error asks for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from layouts import B_P, EVERY, LENGTH, UPDATES, Layout, lines, planted, score

SIZES = (4, 8, 16)
NAMED = {"settings": {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}}
EVALUATED = range(0, UPDATES + 1, EVERY)


def sweep() -> dict[tuple[int, int | None], Any]:
    return {(n, None): planted(n) for n in SIZES}


def table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A CSV whose empty cells are None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = [",".join(header)]
    text += [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join(text) + "\n")


def wandb_config(path: Path, values: dict[str, Any]) -> None:
    """`config.yaml` as W&B keeps it in a run's folder: every key holds its value."""
    text = "".join(f"{key}:\n    value: {json.dumps(value)}\n" for key, value in values.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("_wandb:\n    value:\n        cli_version: 0.22.0\n" + text)


def openrlhf_history(folder: Path) -> Layout:
    """Training reward, pass@4 and its mean side by side; evaluations carry a step of their own."""
    header = ["", "_step", "_runtime", "train/global_step", "train/reward", "train/return",
              "train/response_length", "eval/global_step", "eval/eval_math500_pass4",
              "eval/eval_math500_pass1", "eval/eval_num_samples"]
    for n in SIZES:
        rows: list[list[Any]] = []
        for step in range(1, UPDATES + 1):
            rows.append([step, 9.5 * step, step, 0.11 + 0.02 * step, 0.1, LENGTH, *[None] * 4])
            if step % EVERY == 0:
                now = score(n, step)
                rows.append([step, 9.5 * step, *[None] * 4, step, now + 0.2, now, 2000.0])
        table(folder / f"ppo-bp8_n{n}.csv", header,
              [[i, i, *row[1:]] for i, row in enumerate(rows)])
    truth = sweep()
    for points in truth.values():
        del points[0.0]
    return Layout(truth=truth, first=NAMED)


def slime_rollouts(folder: Path) -> Layout:
    """`eval/step` is the rollout's index from 0, counted after its update; one before training."""
    for n in SIZES:
        run = folder / f"run-{n}"
        wandb_config(run / "config.yaml", {
            "rollout_batch_size": B_P, "n_samples_per_prompt": n, "global_batch_size": B_P * n,
            "num_rollout": UPDATES, "eval_interval": EVERY, "n_samples_per_eval_prompt": 4,
        })
        rows: list[dict[str, Any]] = [{"eval/step": 0, "eval/math500": score(n, 0)}]
        for index in range(UPDATES):
            rows.append({"rollout/step": index, "rollout/raw_reward": 0.05 + 0.03 * index,
                         "rollout/response_len/mean": LENGTH})
            rows.append({"train/step": index, "train/loss": 0.01, "train/grad_norm": 0.3})
            if (index + 1) % EVERY == 0:
                rows.append({"eval/step": index, "eval/math500": score(n, index + 1)})
        lines(run / "history.jsonl", [{"_step": i, **row} for i, row in enumerate(rows)])
    return Layout(truth=sweep())


def nemo_comma(folder: Path) -> Layout:
    """A W&B chart saved by a spreadsheet whose decimals are commas."""
    header = ["Step"]
    for n in SIZES:
        name = f"grpo-bp8_n{n} - validation/accuracy"
        header += [name, f"{name}__MIN", f"{name}__MAX"]
    text = [";".join(f'"{cell}"' for cell in header)]
    for step in EVALUATED:
        cells = [str(step)]
        for n in SIZES:
            cells += [str(score(n, step)).replace(".", ",")] * 3
        text.append(";".join(cells))
    (folder / "validation.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(text).encode())
    return Layout(truth=sweep(), first=NAMED)


def skyrl_sets(folder: Path) -> Layout:
    """Two problem sets and their sum in one row; positive rewards and pass@4 beside the mean."""
    for n in SIZES:
        rows: list[dict[str, Any]] = []
        for step in range(UPDATES + 1):
            row: dict[str, Any] = {"step": step}
            if step:
                row |= {"trainer/global_step": step, "trainer/epoch": 0, "policy/loss": 0.1,
                        "reward/avg_raw_reward": 0.05 * step,
                        f"reward/avg_pass_at_{n}": 0.9, "generate/avg_num_tokens": LENGTH}
            if step % EVERY == 0:
                now = score(n, step)
                row |= {"eval/aime_24/avg_score": now - 0.15, "eval/aime_24/pass_at_4": now,
                        "eval/math_500/avg_score": now + 0.15, "eval/math_500/pass_at_4": 0.95,
                        "eval/all/avg_score": now, "eval/all/pass_at_4": now + 0.1,
                        "eval/all/mean_positive_reward": now + 0.02}
            rows.append(row)
        lines(folder / f"bp8_n{n}" / "metrics.jsonl", rows)
    return Layout(truth=sweep(), first=NAMED, second={**NAMED, "where": ["problem_set=all"]})


def open_instruct_episodes(folder: Path) -> Layout:
    """`global_step` and `episode` both count rollouts; `training_step` counts updates."""
    header = ["_step", "training_step", "episode", "global_step", "objective/verifiable_reward",
              "val/sequence_lengths", "eval/pass_at_1", "eval/pass_at_2_unbiased",
              "eval/pass_at_4", "eval/sequence_lengths"]
    for n in SIZES:
        run = folder / f"run{n}"
        wandb_config(run / "config.yaml", {
            "num_unique_prompts_rollout": B_P, "num_samples_per_prompt_rollout": n,
            "total_episodes": B_P * n * UPDATES, "seed": 1,
        })
        rows: list[list[Any]] = []
        for step in range(1, UPDATES + 1):
            seen, now = B_P * n * step, score(n, step, 1)
            scored = [now, now + 0.05, now + 0.1, 2 * LENGTH] if step % EVERY == 0 else [None] * 4
            rows.append([step, step, seen, seen, 0.06 * step, LENGTH, *scored])
        table(run / "history.csv", header, rows)
    truth = {(n, 1): planted(n, 1) for n in SIZES}
    for points in truth.values():
        del points[0.0]
    return Layout(truth=truth)


def easyr1_parts(folder: Path) -> Layout:
    """The score logged first is a blend of accuracy and format; accuracy stands beside it."""
    for n in SIZES:
        run = folder / "checkpoints" / "easy_r1" / f"exp{n}"
        run.mkdir(parents=True)
        (run / "experiment_config.json").write_text(json.dumps({
            "data": {"rollout_batch_size": B_P, "val_batch_size": 1024, "seed": 1},
            "worker": {"actor": {"global_batch_size": B_P},
                       "rollout": {"n": n, "val_override_config": {"n": 4}}},
            "trainer": {"max_steps": UPDATES, "val_freq": EVERY},
        }, indent=2))
        rows: list[dict[str, Any]] = []
        for step in range(UPDATES + 1):
            if step:
                rows.append({"step": step, "actor": {"pg_loss": 0.1, "entropy_loss": 0.3},
                             "reward": {"overall": 0.5, "accuracy": 0.04 * step, "format": 1.0},
                             "response_length": {"mean": LENGTH, "max": 99.0}})
            if step % EVERY == 0:
                now = score(n, step, 1)
                rows.append({"step": step, "val": {
                    "reward_score": 0.9 * now + 0.1, "overall_reward": 0.9 * now + 0.1,
                    "format_reward": 1.0, "accuracy_reward": now,
                }, "val_response_length": {"mean": 2 * LENGTH}})
        lines(run / "experiment_log.jsonl", rows)
    return Layout(
        truth={(n, 1): planted(n, 1) for n in SIZES},
        second={"metric": "avg@4:accuracy"},
    )


def tinker_tests(folder: Path) -> Layout:
    """The training batch and the test set log the same keys, apart by a prefix."""
    for n in SIZES:
        run = folder / f"tinker-{n}"
        run.mkdir()
        (run / "config.json").write_text(json.dumps({
            "learning_rate": 1e-5, "model_name": "meta-llama/Llama-3.1-8B", "eval_every": EVERY,
            "dataset_builder": {"batch_size": B_P, "group_size": n, "seed": 0}, "max_tokens": 256,
        }))
        rows: list[dict[str, Any]] = []
        for batch in range(UPDATES + 1):
            row: dict[str, Any] = {"step": batch, "progress/batch": batch, "optim/lr": 1e-5,
                                   "progress/done_frac": (batch + 1) / (UPDATES + 1),
                                   "env/all/correct": 0.03 * batch, "env/all/format": 0.9,
                                   "env/all/reward/total": 0.03 * batch - 0.01,
                                   "env/all/ac_tokens_per_turn": LENGTH,
                                   "env/all/total_episodes": B_P * n}
            if batch % EVERY == 0:
                row |= {"test/env/all/correct": score(n, batch), "test/env/all/format": 0.95,
                        "test/env/all/reward/total": score(n, batch) - 0.005,
                        "test/env/all/total_episodes": 500}
            rows.append(row)
        lines(run / "metrics.jsonl", rows)
    return Layout(truth={(n, 0): planted(n) for n in SIZES}, second={"metric": "avg:correct"})


def prime_batches(folder: Path) -> Layout:
    """`batch_size` counts rollouts, not problems."""
    for n in SIZES:
        run = folder / f"outputs-{n}"
        (run / "configs").mkdir(parents=True)
        (run / "configs" / "orch.toml").write_text(
            f"batch_size = {B_P * n}\ngroup_size = {n}\nmax_steps = {UPDATES}\nseq_len = 2048\n\n"
            '[model]\nname = "Qwen/Qwen3-0.6B"\n\n[eval]\ninterval = 2\n'
        )
        rows: list[dict[str, Any]] = []
        for step in range(UPDATES + 1):
            if step % EVERY == 0:
                rows.append({"step": step, "time": 1e9 + step,
                             "eval/math500/avg@4": score(n, step),
                             "eval/math500/pass@4": score(n, step) + 0.2,
                             "eval/math500/completion_len/mean": 2 * LENGTH})
            if step < UPDATES:
                rows.append({"step": step, "time": 1e9 + step + 0.5, "reward/all/mean": 0.4,
                             "progress/rollouts": B_P * n, "progress/tasks": B_P,
                             "progress/total_rollouts": B_P * n * (step + 1),
                             "progress/total_tasks": B_P * (step + 1)})
        lines(run / "metrics.jsonl", rows)
    return Layout(truth=sweep())


def swift_devices(folder: Path) -> Layout:
    """The step is a fraction in words; the batch is spread over two devices."""
    for n in SIZES:
        run = folder / f"v{n}-20260101-120000"
        run.mkdir()
        (run / "args.json").write_text(json.dumps({
            "model": "Qwen/Qwen2.5-1.5B", "rlhf_type": "grpo", "num_generations": n, "seed": 42,
            "per_device_train_batch_size": n, "gradient_accumulation_steps": B_P // 2,
            "global_world_size": 2, "num_iterations": 1, "max_steps": UPDATES,
            "num_generations_eval": 4,
        }))
        rows: list[dict[str, Any]] = []
        for step in range(1, UPDATES + 1):
            at = {"epoch": step / 100, "global_step/max_steps": f"{step}/{UPDATES}",
                  "elapsed_time": f"{step}m 2s"}
            rows.append({"loss": 0.01, "reward": 0.02 * step, "completions/mean_length": LENGTH,
                         **at, "percentage": f"{step / UPDATES:.2%}", "memory(GiB)": 40.1})
            if step % EVERY == 0:
                rows.append({"eval_loss": 0.01, "eval_reward": score(n, step, 42),
                             "eval_rewards/MathAccuracy/mean": score(n, step, 42),
                             "eval_completions/mean_length": 2 * LENGTH, **at})
        rows.append({"last_model_checkpoint": "checkpoint-12", "best_metric": 0.6,
                     "global_step": UPDATES, "memory": 40.1})
        lines(run / "logging.jsonl", rows)
    truth = {(n, 42): planted(n, 42) for n in SIZES}
    for points in truth.values():
        del points[0.0]
    return Layout(truth=truth)


def trackio_twins(folder: Path) -> Layout:
    """Trackio's Parquet: two runs share a name, and their ids tell them apart."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    runs = [("a1", "grpo", 4, 0), ("b2", "grpo", 8, 0), ("c3", "grpo", 8, 1), ("d4", "n16", 16, 0)]
    rows, configs = [], []
    for number, (run_id, name, n, seed) in enumerate(runs):
        at = f"2026-01-0{number + 1}T10:00:00"
        configs.append({"id": number + 1, "run_id": run_id, "run_name": name, "created_at": at,
                        "data.train_batch_size": B_P, "actor_rollout_ref.rollout.n": n,
                        "data.seed": seed})
        for step in EVALUATED:
            rows.append({"id": len(rows) + 1, "timestamp": f"{at[:-2]}{step:02d}",
                         "run_id": run_id, "run_name": name, "step": step,
                         "val-core/math/acc/mean@4": score(n, step, seed)})
    pq.write_table(pa.Table.from_pylist(rows), folder / "sweep.parquet")
    pq.write_table(pa.Table.from_pylist(configs), folder / "sweep_configs.parquet")
    return Layout(truth={(n, seed): planted(n, seed) for _, _, n, seed in runs})


def mlflow_nan(folder: Path) -> Layout:
    """MLflow's metrics table as CSV: a NaN is kept as 0 with a mark beside it."""
    rows: list[list[Any]] = []
    for n in SIZES:
        for step in EVALUATED:
            lost = step == 6
            rows.append([f"bp8_n{n}", "val-core/math/acc/mean_at_4",
                         0.0 if lost else score(n, step), 1_700_000_000_000 + step, step,
                         int(lost)])
            rows.append([f"bp8_n{n}", "response_length/mean", LENGTH, 1_700_000_000_000, step, 0])
    table(folder / "metrics.csv", ["run_name", "key", "value", "timestamp", "step", "is_nan"], rows)
    truth = sweep()
    for n in SIZES:
        del truth[n, None][float(B_P * n * 6)]
    return Layout(truth=truth, first=NAMED)


def tensorboard_tags(folder: Path) -> Layout:
    """TensorBoard's download: a file for every run and tag, the training reward among them."""
    for n in SIZES:
        for tag, every, value in (
            ("train_reward", 1, lambda s: 0.05 * s), ("eval_accuracy", EVERY, lambda s: None),
        ):
            rows = [[1.7e9 + step, step, score(n, step) if tag == "eval_accuracy" else value(step)]
                    for step in range(0, UPDATES + 1, every)]
            table(folder / f"run-bp8_n{n}-tag-{tag}.csv", ["Wall time", "Step", "Value"], rows)
    mapped = {"settings": {**NAMED["settings"], "columns": {"eval_accuracy": "avg"}}}
    return Layout(truth=sweep(), first=NAMED, second=mapped)


def dapo_batches(folder: Path) -> Layout:
    """Dynamic sampling: an update takes as many batches of rollouts as its filter needs."""
    truth: dict[tuple[int, int | None], Any] = {}
    for n in SIZES:
        rows: list[dict[str, Any]] = []
        spent, points = 0, {}
        for step in range(UPDATES + 1):
            batches = 1 + (step + n // 4) % 3
            data: dict[str, Any] = {}
            if step:
                spent += B_P * n * batches
                data |= {"train/num_gen_batches": batches, "critic/score/mean": 0.5,
                         "training/global_step": step, "response_length/mean": LENGTH}
            if step % EVERY == 0:
                points[float(spent)] = data["val-core/math_dapo/acc/mean@32"] = score(n, step)
                data["val-aux/math_dapo/reward/mean@32"] = 2 * score(n, step) - 1
            rows.append({"step": step, "data": data})
        lines(folder / f"DAPO-bp8_n{n}.jsonl", rows)
        truth[n, None] = points
    return Layout(truth=truth, first=NAMED)


def verl_console(folder: Path) -> Layout:
    """verl under Ray: colours, progress bars, repeated lines, numpy's way to print a number."""
    for n in SIZES:
        pid = f"\x1b[36m(TaskRunner pid={4000 + n})\x1b[0m "
        text = ["+ python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
                f"data.train_batch_size={B_P} actor_rollout_ref.rollout.n={n} "
                f"trainer.total_training_steps={UPDATES}",
                pid + "Initial validation metrics: "
                f"{{'val-core/math/acc/mean@4': np.float64({score(n, 0)})}}",
                pid + f"step:0 - val-core/math/acc/mean@4:np.float64({score(n, 0)})"]
        for step in range(1, UPDATES + 1):
            line = (pid + f"step:{step} - critic/score/mean:0.4 - actor/pg_loss:np.float64(-0.01)"
                    f" - response_length/mean:{LENGTH} - training/global_step:{step}")
            if step % EVERY == 0:
                line += f" - val-core/math/acc/mean@4:np.float64({score(n, step)})"
            text += [f"\rTraining Progress: {step}/{UPDATES} [00:0{step % 10}<01:00]",
                     line, line.replace("\x1b[0m ", "\x1b[0m ") + " [repeated 2x across cluster]"]
        (folder / f"slurm-{n}.out").write_text("\n".join(text) + "\n")
    return Layout(truth=sweep())


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    f.__name__: f
    for f in (
        openrlhf_history, slime_rollouts, nemo_comma, skyrl_sets, open_instruct_episodes,
        easyr1_parts, tinker_tests, prime_batches, swift_devices, trackio_twins, mlflow_nan,
        tensorboard_tags, dapo_batches, verl_console,
    )
}
