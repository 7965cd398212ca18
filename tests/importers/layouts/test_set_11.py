"""An eleventh blind set: fourteen layouts of logs, written from the manual before any was tried."""

from __future__ import annotations

import csv
import json
import math
import random
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isocompute.domain.curve import Curve
from isocompute.errors import InputError
from isocompute.importers import import_logs, load_settings
from isocompute.sources.load import load_curves


@dataclass(frozen=True)
class Run:
    """What a run truly was: B_p, n, seed (None: not in the log), scores in 0..1 by step."""

    bp: int
    n: int
    seed: int | None
    scores: Mapping[int, float]


def score(n: int, seed: int, step: int, bp: int = 32) -> float:
    """A made score: rises with the rollouts, differs by seed."""
    noise = random.Random(n * 1000003 + seed * 1009 + step).gauss(0, 0.008)
    reached = 1 - math.exp(-bp * n * step / (1500.0 * n**0.6))
    return round(0.31 + 0.35 * reached + noise, 4)


def curve(n: int, seed: int, steps: Iterable[int], bp: int = 32) -> dict[int, float]:
    return {step: score(n, seed, step, bp) for step in steps}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def table(path: Path, header: list[str], rows: list[list[Any]], delimiter: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = _crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def events(path: Path, start: float, scalars: list[tuple[int, str, float]]) -> None:
    """A TensorBoard event file as torch's SummaryWriter writes it."""
    records = [struct.pack("<Bd", 9, start) + _field(3, b"brain.Event:2")]
    for index, (step, tag, value) in enumerate(scalars):
        plain = _field(1, tag.encode()) + struct.pack("<Bf", 0x15, value)
        body = struct.pack("<Bd", 9, start + index) + b"\x10" + _varint(step)
        records.append(body + _field(5, _field(1, plain)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as handle:
        for record in records:
            length = struct.pack("<Q", len(record))
            handle.write(length + _masked(length) + record + _masked(record))


# 1 verl's console, appended to by a resume after a crash
def verl_console(root: Path) -> list[Run]:
    runs = []
    for n in (4, 8, 16):
        lines = [
            "+ python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
            "data.train_batch_size=32 data.max_response_length=1024 "
            f"actor_rollout_ref.rollout.n={n} actor_rollout_ref.actor.optim.lr=1e-6 "
            "actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B-Instruct "
            f"trainer.experiment_name=qwen_n{n} trainer.test_freq=5 trainer.save_freq=20"
        ]
        command = list(lines)

        def val(step: int, value: float) -> str:
            return (
                f"(TaskRunner pid=8123) step:{step} - val-aux/openai/gsm8k/reward/mean@1:"
                f"{value - 0.05:.4f} - val-core/openai/gsm8k/acc/mean@1:{value:.4f}"
            )

        def train(step: int, value: float, n: int = n) -> str:
            return (
                f"(TaskRunner pid=8123) step:{step} - actor/entropy:0.31 - actor/lr:1e-06 - "
                f"critic/score/mean:{value + 0.02:.4f} - response_length/mean:312.5 - "
                f"training/global_step:{step} - perf/total_num_tokens:{32 * n * 400}"
            )

        first = curve(n, 0, range(0, 36))
        again = curve(n, 7, range(0, 61))
        lines.append(
            "(TaskRunner pid=8123) (\"Initial validation metrics: {'val-core/openai/gsm8k/acc/"
            f"mean@1': {first[0]:.4f}}}\")"
        )
        lines.append(val(0, first[0]))
        for step in range(1, 33):
            body = train(step, first[step])
            if step % 5 == 0:
                tail = val(step, first[step]).split(" - ", 1)[1]
                body += " - " + tail
            lines.append(body)
        lines.append("(TaskRunner pid=8123) torch.OutOfMemoryError: CUDA out of memory.")
        lines += command
        lines.append("(TaskRunner pid=9001) Setting global step to 20")
        lines.append("(TaskRunner pid=9001) Resuming from checkpoints/qwen/global_step_20")
        for step in range(21, 61):
            body = train(step, again[step])
            if step % 5 == 0:
                body += " - " + val(step, again[step]).split(" - ", 1)[1]
            lines.append(body)
        write(root / f"qwen_n{n}.log", "\n".join(lines) + "\n")
        scores = {s: first[s] for s in range(0, 21, 5)} | {s: again[s] for s in range(25, 61, 5)}
        runs.append(Run(32, n, None, scores))
    return runs


# 2 verl's file logger, one n at a second learning rate
def verl_jsonl(root: Path) -> list[Run]:
    runs = []
    for n, seed, rate in ((4, 0, 1e-6), (8, 0, 1e-6), (16, 0, 1e-6), (8, 3, 5e-6)):
        lines = []
        steps = range(0, 101)
        for step in steps:
            data: dict[str, Any] = {}
            if step:
                data |= {
                    "training/global_step": step,
                    "actor/lr": rate * min(1, step / 5),
                    "critic/rewards/mean": score(n, seed, step) + 0.01,
                    "response_length/mean": 400.0,
                }
            if step % 10 == 0:
                data["val-core/math_dapo/acc/mean@8"] = score(n, seed, step)
                data["val-core/math_dapo/acc/best@8/mean"] = score(n, seed, step) + 0.1
                data["val-aux/math_dapo/reward/mean@8"] = 2 * score(n, seed, step) - 1
            lines.append(json.dumps({"step": step, "data": data}))
        name = f"bp32_n{n}_lr{'1e-6' if rate == 1e-6 else '5e-6'}"
        write(root / name / "metrics.jsonl", "\n".join(lines) + "\n")
        if rate == 1e-6:
            runs.append(Run(32, n, None, curve(n, seed, range(0, 101, 10))))
    return runs


# 3 W&B's chart of runs grouped by n: the mean of three seeds, with the range
def wandb_chart(root: Path) -> list[Run]:
    header = ["Step"]
    steps = list(range(0, 121, 20))
    columns: list[list[float]] = []
    runs = []
    for n in (4, 8, 16, 32):
        label = f"actor_rollout_ref.rollout.n: {n} - val-core/gsm8k/acc/mean@4"
        header += [label, label + "__MIN", label + "__MAX"]
        seeds = [curve(n, seed, steps) for seed in range(3)]
        mean = {s: round(sum(one[s] for one in seeds) / 3, 6) for s in steps}
        columns += [
            [mean[s] for s in steps],
            [min(one[s] for one in seeds) for s in steps],
            [max(one[s] for one in seeds) for s in steps],
        ]
        runs.append(Run(64, n, None, mean))
    rows = [[s, *[column[i] for column in columns]] for i, s in enumerate(steps)]
    path = root / "wandb_export_2026-02-11T10_22_41.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        csv.writer(handle, quoting=csv.QUOTE_ALL).writerows([header, *rows])
    return runs


# 4 W&B's API, all runs in one CSV; two seeds carry one name and differ in their id
def wandb_concat(root: Path) -> list[Run]:
    rows: list[list[Any]] = []
    runs = []
    for index, (n, seed) in enumerate(((4, 0), (4, 1), (8, 0), (8, 1), (16, 0), (16, 1))):
        ident = f"{'abcdef'[index]}7k2q0x{index}"
        for step in range(0, 81):
            if step % 10 == 0:
                value: Any = score(n, seed, step)
            else:
                value = ""
            reward = "" if step == 0 else round(score(n, seed, step) + 0.03, 4)
            rows.append([f"grpo-n{n}", ident, 32, n, step, 1.7e9 + 60 * step, reward, value])
        runs.append(Run(32, n, None, curve(n, seed, range(0, 81, 10))))
    header = ["run_name", "run_id", "config.train_batch_size", "config.rollout_n", "_step"]
    header += ["_timestamp", "critic/rewards/mean", "val/test_score/gsm8k"]
    table(root / "all_runs.csv", header, rows)
    return runs


# 5 TRL's checkpoints: a format reward beside accuracy, logging every 10 steps, evaluated at 0
def trl_checkpoints(root: Path) -> list[Run]:
    runs = []
    for n, bp in ((4, 32), (8, 16), (16, 8)):
        folder = root / f"grpo_bp{bp}_n{n}"
        for last in (100, 200):
            history: list[dict[str, Any]] = []
            for step in range(0, last + 1, 10):
                value = score(n, 0, step, bp)
                if step:
                    history.append(
                        {
                            "completions/mean_length": 220.0,
                            "epoch": step / 500,
                            "grad_norm": 0.3,
                            "learning_rate": 1e-6,
                            "loss": 0.01,
                            "num_tokens": step * bp * n * 300.0,
                            "reward": value + 0.9,
                            "rewards/accuracy_reward/mean": value + 0.01,
                            "rewards/format_reward/mean": 0.89,
                            "step": step,
                        }
                    )
                if step % 20 == 0:
                    history.append(
                        {
                            "epoch": step / 500,
                            "eval_loss": 0.02,
                            "eval_reward": value + 0.8,
                            "eval_rewards/accuracy_reward/mean": value,
                            "eval_rewards/format_reward/mean": 0.8,
                            "eval_runtime": 33.0,
                            "step": step,
                        }
                    )
            state = {
                "best_metric": None,
                "epoch": last / 500,
                "eval_steps": 20,
                "global_step": last,
                "is_world_process_zero": True,
                "log_history": history,
                "logging_steps": 10,
                "max_steps": 200,
                "num_train_epochs": 1,
                "save_steps": 100,
                "train_batch_size": 8,
            }
            write(folder / f"checkpoint-{last}" / "trainer_state.json", json.dumps(state))
        runs.append(Run(bp, n, None, curve(n, 0, range(0, 201, 20), bp)))
    return runs


# 6 a loop's own CSV in nN/seedS; a killed run ends within its last number
def own_csv(root: Path) -> list[Run]:
    runs = []
    for n, seed in ((4, 0), (4, 1), (8, 0), (8, 1), (16, 0), (16, 1)):
        lines = ["step,train_reward,lr,val_acc"]
        last = 90 if (n, seed) == (8, 1) else 120
        for step in range(0, last + 1):
            train = "" if step == 0 else f"{score(n, seed, step) + 0.02:.4f}"
            value = f"{score(n, seed, step):.4f}" if step % 10 == 0 else ""
            lines.append(f"{step},{train},1e-06,{value}")
        scores = curve(n, seed, range(0, last + 1, 10))
        text = "\n".join(lines) + "\n"
        if last == 90:
            text = text[:-4]  # 0.5123 is cut to 0.5 and the line has no end
            del scores[90]
        write(root / f"n{n}" / f"seed{seed}" / "log.csv", text)
        runs.append(Run(32, n, seed, scores))
    return runs


# 7 a results sheet: a row per evaluation, percent, two benchmarks, a comment
def sheet(root: Path) -> list[Run]:
    rows: list[list[Any]] = []
    runs = []
    for n in (8, 16, 32):
        for seed in (1, 2):
            for step in (0, 50, 100, 150, 200, 250):
                value = score(n, seed, step)
                note = "looks noisy" if step == 150 else ""
                percent = round(100 * value, 1)
                rows.append([f"r{n}-{seed}", 32, n, seed, step, percent, percent / 4, note])
            scores = {
                s: round(100 * score(n, seed, s), 1) / 100 for s in (0, 50, 100, 150, 200, 250)
            }
            runs.append(Run(32, n, seed, scores))
    header = ["Exp", "Batch size", "n", "Seed", "Step", "MATH500 (%)", "AIME24 (%)", "Notes"]
    table(root / "results.tsv", header, rows, "\t")
    return runs


# 8 MLflow's metric histories in one long CSV; asynchronous logging wrote them out of order
def mlflow_csv(root: Path) -> list[Run]:
    rows: list[list[Any]] = []
    runs = []
    for index, (n, seed) in enumerate(((4, 42), (8, 42), (16, 42), (16, 43))):
        ident = f"{index}f3c9a7be0d14e6c8a5512{index}7"
        for step in range(0, 101, 10):
            stamp = 1771000000000 + 60000 * step
            rows.append([ident, f"n{n}-s{seed}", "eval/acc", score(n, seed, step), step, stamp])
            rows.append([ident, f"n{n}-s{seed}", "train/lr", 1e-6, step, stamp + 3])
        runs.append(Run(64, n, seed, curve(n, seed, range(0, 101, 10))))
    random.Random(5).shuffle(rows)
    table(
        root / "mlflow_metrics.csv",
        ["run_id", "run_name", "key", "value", "step", "timestamp"],
        rows,
    )
    return runs


# 9 OpenRLHF's TensorBoard: crashed at step 34, resumed from step 20 into the same folder
def openrlhf_tb(root: Path) -> list[Run]:
    runs = []
    for n in (4, 8, 16):
        folder = root / f"openrlhf_rbs128_n{n}"
        parts = [(0, range(1, 35), 0), (1, range(21, 61), 9)]
        if n != 8:
            parts = [(0, range(1, 61), 0)]
        scores: dict[int, float] = {}
        for part, steps, seed in parts:
            rows: list[tuple[int, str, float]] = []
            for step in steps:
                value = score(n, seed, step, 128)
                rows.append((step, "train/reward", value + 0.02))
                rows.append((step, "train/response_length", 512.0))
                rows.append((step, "train/actor_lr", 5e-7))
                if step % 10 == 0:
                    rows.append((step, "eval/eval_aime24_pass4", value + 0.1))
                    rows.append((step, "eval/eval_aime24_pass1", value))
                    scores[step] = value
            stamp = 1771000000 + 90000 * part
            events(folder / f"events.out.tfevents.{stamp}.node1.77.0", float(stamp), rows)
        runs.append(Run(128, n, None, dict(sorted(scores.items()))))
    return runs


# 10 JSON lines with nested config and metrics, appended to by runs side by side
def nested_jsonl(root: Path) -> list[Run]:
    rows = []
    runs = []
    for n, seed in ((4, 0), (8, 0), (8, 1), (16, 0)):
        for step in range(0, 101, 10):
            row = {
                "time": f"2026-03-0{1 + step // 50}T1{(step // 10) % 5}:02:{n:02d}",
                "config": {
                    "model": "Qwen/Qwen3-1.7B",
                    "prompts_per_batch": 16,
                    "rollouts_per_prompt": n,
                    "seed": seed,
                    "lr": 2e-6,
                },
                "metrics": {
                    "step": step,
                    "val": {"accuracy": score(n, seed, step, 16), "mean_length": 310 + step},
                    "train": {"reward": score(n, seed, step, 16) + 0.02},
                },
            }
            rows.append((step, n, seed, json.dumps(row)))
        runs.append(Run(16, n, seed, curve(n, seed, range(0, 101, 10), 16)))
    rows.sort()
    write(root / "experiments.jsonl", "\n".join(line for *_, line in rows) + "\n")
    return runs


# 11 one JSON of W&B's API: runs with config and history; TRL's train/global_step beside _step
def wandb_json(root: Path) -> list[Run]:
    document = []
    runs = []
    for n, seed, state in ((4, 1, "finished"), (8, 1, "finished"), (16, 1, "crashed")):
        history = []
        calls = 0
        last = 200 if state == "finished" else 120
        for step in range(0, last + 1, 10):
            if step:
                history.append(
                    {
                        "_step": calls,
                        "_runtime": 30.0 * step,
                        "train/global_step": step,
                        "train/reward": score(n, seed, step, 16) + 0.02,
                        "train/completions/mean_length": 200.0,
                        "train/learning_rate": 1e-6,
                    }
                )
                calls += 1
            if step % 20 == 0:
                history.append(
                    {
                        "_step": calls,
                        "_runtime": 30.0 * step + 5,
                        "train/global_step": step,
                        "eval/reward": score(n, seed, step, 16),
                        "eval/loss": 0.01,
                    }
                )
                calls += 1
        document.append(
            {
                "id": f"x{n}zq81",
                "name": f"grpo-{n}",
                "state": state,
                "config": {
                    "num_generations": n,
                    "per_device_train_batch_size": n,
                    "gradient_accumulation_steps": 16,
                    "learning_rate": 1e-6,
                    "max_completion_length": 512,
                    "seed": seed,
                },
                "summary": {"eval/reward": score(n, seed, last, 16)},
                "history": history,
            }
        )
        runs.append(Run(16, n, seed, curve(n, seed, range(0, last + 1, 20), 16)))
    write(root / "wandb_runs.json", json.dumps(document, indent=1))
    return runs


# 12 histories of W&B beside its table of runs: one run had longer responses
def wandb_histories(root: Path) -> list[Run]:
    runs = []
    listing: list[list[Any]] = []
    for n, seed, length in ((4, 0, 2048), (8, 0, 2048), (16, 0, 2048), (8, 5, 8192)):
        name = f"math-n{n}" + ("-long" if length == 8192 else "")
        rows: list[list[Any]] = []
        for index, step in enumerate(range(0, 101, 5)):
            value: Any = score(n, seed, step) if step % 10 == 0 else ""
            length_mean = "" if step == 0 else 700.0
            rows.append([index, step, 1.77e9 + step, length_mean, step if step else "", value])
        header = ["", "_step", "_timestamp", "response_length/mean", "training/global_step"]
        table(root / f"{name}.csv", [*header, "val-core/MATH/acc/mean@1"], rows)
        listing.append([name, "finished", "", "2026-03-01T00:00:00.000Z", 48211, 1e-6, n, 32])
        listing[-1] += [length, "Qwen/Qwen2.5-7B", score(n, seed, 100)]
        if length == 2048:
            runs.append(Run(32, n, None, curve(n, seed, range(0, 101, 10))))
    header = ["Name", "State", "Notes", "Created", "Runtime"]
    header += ["actor_rollout_ref.actor.optim.lr", "actor_rollout_ref.rollout.n"]
    header += ["data.train_batch_size", "data.max_response_length"]
    header += ["actor_rollout_ref.model.path", "val-core/MATH/acc/mean@1"]
    table(root / "wandb_runs_table.csv", header, listing)
    return runs


# 13 TRL's console: printed rows without a step, the bar beside them, logging every 10 steps
def trl_console(root: Path) -> list[Run]:
    runs = []
    for n in (4, 8, 16):
        text = "INFO: starting GRPO\n\r  0%|          | 0/100 [00:00<?, ?it/s]"
        for step in range(0, 101):
            value = score(n, 2, step, 8)
            done = f"{step:3d}%|{'#' * (step // 10):10s}| {step}/100 [0{step // 60}:{step % 60:02d}"
            if step:
                text += f"\r{done}<01:00,  1.02s/it]"
            if step and step % 10 == 0:
                text += (
                    f"\n{{'loss': 0.0012, 'grad_norm': 0.31, 'learning_rate': 1e-06, "
                    f"'num_tokens': {step * 8 * n * 250}.0, 'completions/mean_length': 180.5, "
                    f"'rewards/accuracy/mean': {value + 0.02:.4f}, 'reward': {value + 0.02:.4f}, "
                    f"'reward_std': 0.2, 'epoch': {step / 250:.2f}}}\n"
                )
                text += f"\r{done}<01:00,  1.02s/it]"
            if step % 20 == 0:
                text += "\n\r  0%|          | 0/4 [00:00<?, ?it/s]\r100%|####| 4/4 [00:09<00:00]"
                text += (
                    f"\n{{'eval_loss': 0.001, 'eval_runtime': 12.1, 'eval_rewards/accuracy/mean': "
                    f"{value:.4f}, 'eval_reward': {value:.4f}, 'eval_reward_std': 0.2, "
                    f"'epoch': {step / 250:.2f}}}\n\r{done}<01:00,  1.02s/it]"
                )
        text += "\n{'train_runtime': 812.1, 'train_loss': 0.0011, 'epoch': 0.4}\n"
        write(root / f"train_n{n}.log", text)
        runs.append(Run(8, n, None, curve(n, 2, range(0, 101, 20), 8)))
    return runs


# 14 verl's TensorBoard: two data sets, one of them the wanted; validation every 10, at 0 too
def verl_tb(root: Path) -> list[Run]:
    runs = []
    for n, seed in ((4, 0), (8, 0), (16, 0), (16, 1)):
        rows: list[tuple[int, str, float]] = []
        for step in range(0, 51):
            value = score(n, seed, step, 64)
            if step:
                rows.append((step, "training/global_step", float(step)))
                rows.append((step, "critic/score/mean", value + 0.03))
                rows.append((step, "response_length/mean", 300.0))
            if step % 10 == 0:
                rows.append((step, "val-core/openai/gsm8k/reward/mean@1", value + 0.2))
                rows.append((step, "val-core/lighteval/MATH/reward/mean@1", value))
        folder = root / "tensorboard_log" / "grpo" / f"qwen3b_bs64_n{n}_seed{seed}"
        events(folder / "events.out.tfevents.1771000000.node1.77.0", 1771000000.0, rows)
        runs.append(Run(64, n, seed, curve(n, seed, range(0, 51, 10), 64)))
    return runs


LAYOUTS: dict[str, Callable[[Path], list[Run]]] = {
    "verl_console": verl_console,
    "verl_jsonl": verl_jsonl,
    "wandb_chart": wandb_chart,
    "wandb_concat": wandb_concat,
    "trl_checkpoints": trl_checkpoints,
    "own_csv": own_csv,
    "sheet": sheet,
    "mlflow_csv": mlflow_csv,
    "openrlhf_tb": openrlhf_tb,
    "nested_jsonl": nested_jsonl,
    "wandb_json": wandb_json,
    "wandb_histories": wandb_histories,
    "trl_console": trl_console,
    "verl_tb": verl_tb,
}


_BY_NAME = ("pattern=bp{problems_per_batch}_n{rollouts_per_problem}",)


@dataclass(frozen=True)
class Asked:
    """What a user adds after the lines that the tool prints."""

    sets: tuple[str, ...] = ()
    maps: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


ASKED = {
    "verl_console": Asked(),
    "verl_jsonl": Asked(_BY_NAME, options={"where": ("learning_rate=1e-6",)}),
    "wandb_chart": Asked(("pattern=n: {rollouts_per_problem}", "problems_per_batch=64")),
    "wandb_concat": Asked(
        maps=(
            "config.rollout_n=rollouts_per_problem",
            "config.train_batch_size=problems_per_batch",
        )
    ),
    "trl_checkpoints": Asked(_BY_NAME, options={"metric": "avg:accuracy_reward"}),
    "sheet": Asked(
        maps=("n=rollouts_per_problem", "Batch size=problems_per_batch", "MATH500 (%)=score"),
        options={"score_range": (0.0, 100.0)},
    ),
    "mlflow_csv": Asked(
        ("pattern=n{rollouts_per_problem}-s{seed}", "problems_per_batch=64"), ("eval/acc=avg",)
    ),
    "openrlhf_tb": Asked(("pattern=rbs{problems_per_batch}_n{rollouts_per_problem}",)),
    "nested_jsonl": Asked(maps=("val/accuracy=avg",)),
    "wandb_json": Asked(("problems_per_batch=16",)),
    "wandb_histories": Asked(options={"where": ("max_response_length=2048",)}),
    "trl_console": Asked(("pattern=n{rollouts_per_problem}", "problems_per_batch=8")),
    "verl_tb": Asked(
        ("pattern=bs{problems_per_batch}_n{rollouts_per_problem}_seed{seed}",),
        options={"problem_set": "lighteval/MATH"},
    ),
}
_OWN = Asked(
    ("pattern=n{rollouts_per_problem}/seed{seed}", "problems_per_batch=32"), ("val_acc=score",)
)


def curves_of(path: Path, asked: Asked) -> list[Curve]:
    options = {"settings": load_settings(asked.sets, asked.maps), **asked.options}
    return load_curves(str(path), **options)


def is_read(curves: list[Curve], truth: list[Run]) -> None:
    """B_p, n, seed, rollouts and scores of every run, and no run beside them."""

    def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return sorted(rows, key=repr)

    said = any(run.seed is not None for run in truth)
    wanted = in_order(
        (
            run.bp,
            run.n,
            run.seed if said else None,
            tuple(float(run.bp * run.n * step) for step in run.scores),
            tuple(round(value, 5) for value in run.scores.values()),
        )
        for run in truth
    )
    found = in_order(
        (
            curve.problems_per_batch,
            curve.rollouts_per_problem,
            curve.seed if said else None,
            tuple(float(x) for x in curve.rollouts_K),
            tuple(round(float(x), 5) for x in curve.score_K),
        )
        for curve in curves
    )
    assert found == wanted


@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_layout_is_read_as_it_was_trained(name: str, tmp_path: Path) -> None:
    truth = LAYOUTS[name](tmp_path / "logs")
    is_read(curves_of(tmp_path / "logs", ASKED[name]), truth)


@pytest.mark.parametrize("name", sorted(set(ASKED) - {"sheet"}))
def test_a_study_keeps_every_run_of_a_layout(name: str, tmp_path: Path) -> None:
    truth = LAYOUTS[name](tmp_path / "logs")
    asked = ASKED[name]
    for _ in range(2):  # the second import changes nothing
        settings = load_settings(asked.sets, asked.maps)
        import_logs([tmp_path / "logs"], tmp_path / "study", settings=settings)
        is_read(load_curves(str(tmp_path / "study"), **asked.options), truth)


def test_runs_of_one_name_have_names_of_their_own_in_a_study(tmp_path: Path) -> None:
    wandb_concat(tmp_path / "logs")
    settings = load_settings((), ASKED["wandb_concat"].maps)
    summary = import_logs([tmp_path / "logs"], tmp_path / "study", settings=settings)
    assert sorted(summary.stored)[:3] == ["grpo-n16", "grpo-n16 (2)", "grpo-n4"]


@pytest.mark.heavy
def test_a_table_cut_within_its_last_number_is_asked_about(tmp_path: Path) -> None:
    truth = own_csv(tmp_path / "logs")
    with pytest.raises(InputError, match="ends within a line, and its last 'val_acc' is 0.6"):
        curves_of(tmp_path / "logs", _OWN)
    cut = tmp_path / "logs" / "n8" / "seed1" / "log.csv"
    cut.write_text(cut.read_text().rsplit("\n", 1)[0] + "\n")
    is_read(curves_of(tmp_path / "logs", _OWN), truth)


def test_a_whole_table_without_a_last_end_of_line_is_read(tmp_path: Path) -> None:
    truth = sheet(tmp_path / "logs")
    path = tmp_path / "logs" / "results.tsv"
    lines = path.read_text().rstrip("\n").split("\n")
    path.write_text("\n".join(line.rsplit("\t", 2)[0] for line in lines))  # ends in the scores
    is_read(curves_of(tmp_path / "logs", ASKED["sheet"]), truth)


def test_a_history_cut_within_its_last_number_loses_it(tmp_path: Path) -> None:
    truth = wandb_histories(tmp_path / "logs")
    path = tmp_path / "logs" / "math-n4.csv"
    path.write_bytes(path.read_bytes()[:-3])
    short = [
        Run(r.bp, r.n, r.seed, {s: v for s, v in r.scores.items() if s < 100}) if r.n == 4 else r
        for r in truth
    ]
    is_read(curves_of(tmp_path / "logs", ASKED["wandb_histories"]), short)


@pytest.mark.parametrize("form", ["names", "one line", "names in one line", "lines", "runs"])
def test_json_of_several_runs_is_never_pooled(form: str, tmp_path: Path) -> None:
    truth = wandb_json(tmp_path)
    path = tmp_path / "wandb_runs.json"
    document = json.loads(path.read_text())
    by_name = {one["name"]: {k: v for k, v in one.items() if k != "name"} for one in document}
    if form == "lines":
        path.unlink()
        path = path.with_suffix(".jsonl")
    path.write_text(
        {
            "names": json.dumps(by_name, indent=1),
            "one line": json.dumps(document),
            "names in one line": json.dumps(by_name),
            "lines": "".join(json.dumps(one) + "\n" for one in document),
            "runs": json.dumps({"project": "grpo", "runs": document}),
        }[form]
    )
    is_read(curves_of(tmp_path, ASKED["wandb_json"]), truth)


def test_one_run_as_one_line_of_json_is_read(tmp_path: Path) -> None:
    truth = wandb_json(tmp_path)
    path = tmp_path / "wandb_runs.json"
    path.write_text(json.dumps(json.loads(path.read_text())[0]))
    is_read(curves_of(tmp_path, ASKED["wandb_json"]), truth[:1])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("form", ["one after another", "step outside", "flat"])
def test_rows_that_repeat_their_settings_are_told_apart(form: str, tmp_path: Path) -> None:
    truth = nested_jsonl(tmp_path)
    path = tmp_path / "experiments.jsonl"
    rows = _lines(path)
    maps: tuple[str, ...] = ("val/accuracy=avg",)
    if form == "one after another":
        rows.sort(key=lambda r: (r["config"]["rollouts_per_prompt"], r["config"]["seed"]))
    elif form == "step outside":
        rows = [{"step": r["metrics"].pop("step"), **r} for r in rows]
        maps = ("metrics/val/accuracy=avg",)
    else:
        rows = [{**r["config"], "step": r["metrics"]["step"], "val/accuracy":
                 r["metrics"]["val"]["accuracy"]} for r in rows]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    is_read(curves_of(tmp_path, Asked(maps=maps)), truth)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("batch", "must have one prompts_per_batch, but the rows .* have 16 and 32"),
        ("unknown n", "have num_rollouts_per_q 4 and 8 from step 0 on"),
    ],
)
def test_rows_of_one_run_or_several_are_asked_about(change: str, told: str, tmp_path: Path) -> None:
    nested_jsonl(tmp_path)
    path = tmp_path / "experiments.jsonl"
    rows = _lines(path)
    if change == "batch":
        rows = [r for r in rows if r["config"]["rollouts_per_prompt"] == 4]
        for row in rows[6:]:
            row["config"]["prompts_per_batch"] = 32
    else:
        for row in rows:
            row["config"]["num_rollouts_per_q"] = row["config"].pop("rollouts_per_prompt")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=told):
        curves_of(tmp_path, ASKED["nested_jsonl"])


def test_a_run_of_a_document_that_failed_at_once_is_left_out(tmp_path: Path) -> None:
    truth = wandb_json(tmp_path)
    path = tmp_path / "wandb_runs.json"
    document = json.loads(path.read_text())
    failed = {**document[0], "state": "failed", "history": []}
    path.write_text(json.dumps([*document, failed]))
    is_read(curves_of(tmp_path, ASKED["wandb_json"]), truth)


_KEY = "val-core/math/acc/mean@4"


@pytest.mark.parametrize("indent", [None, 1])
def test_lists_of_rows_under_names_that_say_n_are_runs(indent: int | None, tmp_path: Path) -> None:
    truth = [Run(32, n, None, curve(n, 0, range(0, 101, 10))) for n in (4, 8, 16)]
    document = {
        f"n{run.n}": [{"step": step, _KEY: value} for step, value in run.scores.items()]
        for run in truth
    }
    write(tmp_path / "results.json", json.dumps(document, indent=indent))
    asked = Asked(("pattern=n{rollouts_per_problem}", "problems_per_batch=32"))
    is_read(curves_of(tmp_path, asked), truth)


def _appended(path: Path, runs: list[tuple[int, int]]) -> list[Run]:
    """A line of settings above the rows of each run, all in one file."""
    truth, lines = [], []
    for n, seed in runs:
        config = {"prompts_per_batch": 32, "rollouts_per_prompt": n, "seed": seed}
        scores = curve(n, seed, range(0, 101, 10))
        lines.append({"config": config})
        lines += [{"step": step, _KEY: value} for step, value in scores.items()]
        truth.append(Run(32, n, seed, scores))
    write(path, "".join(json.dumps(line) + "\n" for line in lines))
    return truth


@pytest.mark.parametrize("runs", [[(4, 0), (8, 0), (16, 0)], [(8, 0), (8, 1), (8, 2)]])
def test_runs_appended_to_one_file_are_not_the_last_of_them(
    runs: list[tuple[int, int]], tmp_path: Path
) -> None:
    _appended(tmp_path / "log.jsonl", runs)
    with pytest.raises(InputError, match="give each run a log of its own"):
        curves_of(tmp_path, Asked())


def test_a_resume_that_says_its_settings_again_is_one_run(tmp_path: Path) -> None:
    truth = _appended(tmp_path / "log.jsonl", [(8, 0)])
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    again = json.loads(lines[0])
    again["config"]["model"] = "out/checkpoint-60"
    lines.insert(8, json.dumps(again))
    write(tmp_path / "log.jsonl", "\n".join(lines) + "\n")
    is_read(curves_of(tmp_path, Asked()), truth)


def test_rows_that_differ_in_the_learning_rate_of_their_config_are_two_runs(
    tmp_path: Path,
) -> None:
    truth = nested_jsonl(tmp_path)
    path = tmp_path / "experiments.jsonl"
    rows = [row for row in _lines(path) if row["config"]["rollouts_per_prompt"] == 8]
    for row in rows:
        row["config"]["lr"] = (1e-6, 5e-6)[row["config"]["seed"]]
        row["config"]["seed"] = 0
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = Asked(maps=("val/accuracy=avg",), options={"where": ("learning_rate=1e-6",)})
    is_read(curves_of(tmp_path, asked), [run for run in truth if (run.n, run.seed) == (8, 0)])


@pytest.mark.parametrize("form", ["lines", "csv", "long"])
def test_ids_tell_apart_what_has_one_name(form: str, tmp_path: Path) -> None:
    truth, rows = [], []
    for n in (4, 8, 16):
        for seed in (0, 1):
            scores = curve(n, seed, range(0, 101, 10))
            rows += [(f"n{n}", f"i{n}x{seed}", step, value) for step, value in scores.items()]
            truth.append(Run(32, n, None, scores))
    rows.sort(key=lambda row: row[2])
    if form == "lines":
        keys = ("run", "run_id", "step", _KEY)
        lines = (json.dumps(dict(zip(keys, row, strict=True))) for row in rows)
        write(tmp_path / "runs.jsonl", "\n".join(lines) + "\n")
    elif form == "csv":
        table(tmp_path / "runs.csv", ["name", "id", "_step", _KEY], [list(r) for r in rows])
    else:
        cells = [[name, own, _KEY, step, value] for name, own, step, value in rows]
        table(tmp_path / "runs.csv", ["name", "id", "metric", "step", "value"], cells)
    asked = Asked(("pattern=n{rollouts_per_problem}", "problems_per_batch=32"))
    is_read(curves_of(tmp_path, asked), truth)


def test_an_id_that_counts_rows_tells_no_runs_apart(tmp_path: Path) -> None:
    truth = [Run(32, n, None, curve(n, 0, range(0, 101, 10))) for n in (4, 8)]
    rows = [[f"n{r.n}", step, _KEY, v] for r in truth for step, v in r.scores.items()]
    cells = [[i, *row] for i, row in enumerate(rows)]
    table(tmp_path / "runs.csv", ["id", "name", "step", "metric", "value"], cells)
    asked = Asked(("pattern=n{rollouts_per_problem}", "problems_per_batch=32"))
    is_read(curves_of(tmp_path, asked), truth)


@pytest.mark.parametrize("form", ["csv", "lines", "table", "json"])
def test_the_name_of_a_run_says_more_than_the_folder_of_all(form: str, tmp_path: Path) -> None:
    truth = [Run(32, n, None, curve(n, 0, range(0, 101, 10))) for n in (4, 8, 16)]
    rows = [(f"n{r.n}", step, value) for r in truth for step, value in r.scores.items()]
    folder = tmp_path / "sweep_n2"
    maps: tuple[str, ...] = ()
    if form == "csv":
        table(folder / "runs.csv", ["run", "step", _KEY], [list(row) for row in rows])
    elif form == "table":
        table(folder / "runs.csv", ["run", "step", "score"], [list(row) for row in rows])
    elif form == "lines":
        lines = (json.dumps(dict(zip(("run", "step", _KEY), row, strict=True))) for row in rows)
        write(folder / "runs.jsonl", "\n".join(lines) + "\n")
    else:
        document = {
            f"n{r.n}": [{"step": step, _KEY: value} for step, value in r.scores.items()]
            for r in truth
        }
        write(folder / "runs.json", json.dumps(document))
    asked = Asked(("pattern=n{rollouts_per_problem}", "problems_per_batch=32"), maps)
    is_read(curves_of(tmp_path, asked), truth)
