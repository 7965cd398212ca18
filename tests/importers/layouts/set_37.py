# ruff: noqa: E501
"""The thirty-seventh blind set: fourteen folders of usual people, with the curves planted in them.

Key names and line forms were read at the trainers' sources:
- verl-project/verl: verl/utils/tracking.py (file logger, MLflow keys), verl/utils/logger/
  aggregate_logger.py (console); a printed `np.float64(...)` and `val-core/SET/VAR/mean@k` in logs.
- huggingface/trl: trl/trainer/grpo_trainer.py, grpo_config.py (generation_batch_size).
- THUDM/slime: slime/observability/rollout_metrics.py (`eval ID: {...}`), train.py (when it evaluates).
- NVIDIA-NeMo/RL: nemo_rl/algorithms/grpo.py (headers by epoch, validation by total step).
- OpenRLHF/OpenRLHF: openrlhf/utils/logging_utils.py, trainer/ppo_trainer.py (`eval_SET_pass1`).
- NovaSky-AI/SkyRL: skyrl-train/skyrl_train/utils/tracking.py (pprint by loguru), evaluate.py.
- Unsloth's notebooks: the table of transformers' notebook callback; W&B's documented export of runs.
- huggingface/lighteval: `results/ORG/MODEL/results_TIME.json`.

TRUTH[layout] has one entry a run: bp, n, seed, M, points [(rollouts, score)], and where step 0 may
rightly be there or not, `optional` has it. Scores are as a user wants them, in 0..1, or on `scale`.
"""

from __future__ import annotations

import csv
import io
import json
import pprint
import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TRUTH: dict[str, list[dict[str, Any]]] = {}


def curve(bp: int, n: int, step: int, seed: int = 0, low: float = 0.31, high: float = 0.74) -> float:
    """A rising score, a little noisy; what is planted is this, rounded as the log rounds it."""
    x = bp * n * step
    half = 900 * n**0.8
    noise = random.Random(f"{bp}-{n}-{step}-{seed}-{low}").uniform(-0.006, 0.006)
    return low + (high - low) * x / (x + half) + noise


def put(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(text, encoding="utf-8")


def plant(
    name: str, bp: int, n: int, steps: Iterable[int], scores: Iterable[float], seed: int | None = None,
    **more: Any,
) -> None:  # fmt: skip
    points = [(bp * n * step, score) for step, score in zip(steps, scores, strict=True)]
    TRUTH.setdefault(name, []).append(
        {"bp": bp, "n": n, "seed": seed, "M": max(r for r, _ in points) // (bp * n),
         "points": points, **more}
    )  # fmt: skip


# 1. Slurm's stdout of verl: one job was preempted, and went on in the same file.


def slurm_verl(root: Path) -> None:
    bp = 64
    for job, n in ((48211, 4), (48212, 8), (48213, 16)):
        command = (
            "+ python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
            "data.train_files=/data/gsm8k/train.parquet data.val_files=/data/gsm8k/test.parquet "
            f"data.train_batch_size={bp} data.max_prompt_length=512 data.max_response_length=1024 "
            "actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B-Instruct "
            "actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
            f"actor_rollout_ref.rollout.n={n} trainer.n_gpus_per_node=4 trainer.nnodes=1 "
            "trainer.save_freq=20 trainer.test_freq=10 trainer.total_training_steps=60 "
            f"'trainer.logger=[\"console\"]' trainer.experiment_name=gsm8k_grpo\n"
        )
        out = [f"Job {job} on gpu-a07\n", command]

        def line(step: int, score: float | None, n: int = n) -> str:
            rng = random.Random(step * 7 + n)
            train = curve(bp, n, step) + rng.uniform(-0.05, 0.02)
            text = f"(TaskRunner pid=20{n}11) step:{step}"
            if step:
                text += f" - actor/entropy:{0.4 - step / 400} - actor/grad_norm:np.float64(0.21)"
                text += " - perf/mfu/actor:np.float64(0.31) - actor/lr:np.float64(1e-06)"
            if score is not None:
                text += f" - val-core/openai/gsm8k/reward/mean@1:np.float64({score})"
                text += " - val-aux/num_turns/min:np.int32(2) - val-aux/num_turns/mean:np.float64(2.0)"
            if step:
                text += f" - training/global_step:{step} - training/epoch:0"
                text += f" - critic/score/mean:{train} - critic/rewards/mean:{train}"
                text += " - response_length/mean:231.4 - response_length/clip_ratio:0.0"
                text += f" - timing_s/step:np.float64({31.2 + n}) - perf/throughput:np.float64(2210.5)"
            return text + "\n"

        steps = list(range(0, 61, 10))
        scores = {s: curve(bp, n, s, low=0.42, high=0.8) for s in steps}
        if n == 8:
            for s in range(35):
                first = scores[s] + (0.0113 if s == 30 else 0) if s in scores else None
                out.append(line(s, first))
            out.append(
                f"slurmstepd: error: *** JOB {job} ON gpu-a07 CANCELLED AT 2026-03-02T04:11:09 "
                "DUE TO PREEMPTION ***\n"
            )
            out += [f"Job {job} on gpu-b02\n", command]
            out.append("(TaskRunner pid=9120) Found checkpoint: checkpoints/global_step_20\n")
            out.append("(TaskRunner pid=9120) Setting global step to 20\n")
            out.append(line(20, scores[20]))
            out += [line(s, scores.get(s)) for s in range(21, 61)]
        else:
            out += [line(s, scores.get(s)) for s in range(61)]
        put(root / "slurm_verl" / "logs" / f"slurm-{job}.out", "".join(out))
        plant("slurm_verl", bp, n, steps, [scores[s] for s in steps])


# 2. verl's file logger: two validation sets, a reward of -1..1 beside the accuracy, two seeds.


def verl_file(root: Path) -> None:
    bp = 128
    for n in (4, 8, 16):
        for seed in (1, 2):
            rows = []
            for step in range(0, 81):
                data: dict[str, Any] = {}
                if step:
                    data |= {"training/global_step": step, "critic/score/mean": -0.2 + step / 100,
                             "response_length/mean": 900.5, "actor/entropy": 0.31}  # fmt: skip
                if step % 16 == 0:
                    acc = curve(bp, n, step, seed)
                    data |= {
                        "val-core/HuggingFaceH4/MATH-500/acc/mean@4": acc,
                        "val-aux/HuggingFaceH4/MATH-500/reward/mean@4": 2 * acc - 1,
                        "val-aux/HuggingFaceH4/MATH-500/acc/std@4": 0.11,
                        "val-core/HuggingFaceH4/MATH-500/acc/best@4/mean": acc + 0.1,
                        "val-core/math-ai/aime24/acc/mean@4": acc - 0.3,
                        "val-aux/math-ai/aime24/reward/mean@4": 2 * (acc - 0.3) - 1,
                        "val-core/math-ai/aime24/acc/best@4/mean": acc - 0.2,
                    }
                rows.append(json.dumps({"step": step, "data": data}) + "\n")
            put(root / "verl_file" / "dapo-qwen3-4b" / f"qwen3-4b-bs{bp}-n{n}-seed{seed}.jsonl", "".join(rows))
            steps = list(range(0, 81, 16))
            plant("verl_file", bp, n, steps, [curve(bp, n, s, seed) for s in steps], seed)


# 3. TRL's output folders: a batch of 64 completions, so that B_p falls as G rises; the script is there.


def trl_checkpoints(root: Path) -> None:
    base = root / "trl_checkpoints"
    put(base / "run.sh", """#!/bin/bash
for G in 4 8 16; do
  accelerate launch --num_processes 2 --mixed_precision bf16 grpo_gsm8k.py \\
    --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct \\
    --output_dir outputs/qwen2.5-1.5b-gsm8k-G${G} \\
    --per_device_train_batch_size 8 --gradient_accumulation_steps 4 \\
    --num_generations ${G} --num_generations_eval 4 \\
    --learning_rate 1e-6 --max_steps 300 --seed 42 \\
    --eval_strategy steps --eval_steps 50 --eval_on_start --logging_steps 10 --save_steps 100
done
""")  # fmt: skip
    for n in (4, 8, 16):
        bp = 64 // n
        history: list[dict[str, Any]] = []
        steps = list(range(0, 301, 50))
        scores = []
        for step in range(0, 301, 10):
            if step:
                history.append({
                    "epoch": round(step / 300, 4), "step": step, "loss": 0.0021, "grad_norm": 0.18,
                    "learning_rate": 1e-6, "num_tokens": 64.0 * 410 * step,
                    "completions/mean_length": 310.0, "reward": 0.9 + step / 900,
                    "rewards/accuracy_reward/mean": 0.4 + step / 1000,
                    "rewards/format_reward/mean": 0.5 + step / 1000, "kl": 0.0, "entropy": 0.3,
                })  # fmt: skip
            if step in steps:
                acc = curve(bp, n, step)
                scores.append(acc)
                history.append({
                    "epoch": round(step / 300, 4), "step": step, "eval_loss": 0.001,
                    "eval_num_tokens": 64.0 * 410 * step, "eval_reward": acc + 0.9,
                    "eval_rewards/accuracy_reward/mean": acc,
                    "eval_rewards/format_reward/mean": 0.9, "eval_runtime": 31.5,
                })  # fmt: skip
            if step in (100, 200, 300):
                put(
                    base / "outputs" / f"qwen2.5-1.5b-gsm8k-G{n}" / f"checkpoint-{step}" / "trainer_state.json",
                    json.dumps({"best_metric": None, "epoch": step / 300, "eval_steps": 50,
                                "global_step": step, "is_world_process_zero": True,
                                "log_history": history, "logging_steps": 10, "max_steps": 300,
                                "num_train_epochs": 1, "save_steps": 100, "train_batch_size": 8}, indent=2),
                )  # fmt: skip
        plant("trl_checkpoints", bp, n, steps, scores, None)


# 4. W&B: a history per run, and the documented `project.csv`, whose configs are Python dicts.


def wandb_history(root: Path) -> None:
    base = root / "wandb_history"
    runs = []
    for i, (n, seed) in enumerate(((4, 11), (8, 11), (8, 12), (16, 11))):
        bp = 32
        name = ("eager-fog-3", "driven-sun-4", "misty-dew-7", "lucky-oath-9")[i]
        columns = ["_step", "_runtime", "_timestamp", "train/global_step", "train/reward",
                   "train/rewards/accuracy_reward/mean", "eval/rewards/accuracy_reward/mean",
                   "eval/reward", "train/epoch"]  # fmt: skip
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(["", *columns])
        count = 0
        scores, steps = [], list(range(0, 121, 20))
        for step in range(0, 121, 5):
            if step:
                writer.writerow([count, count, 41.5 * step + 3, 1772000000 + 41 * step, step,
                                 1.1, 0.4 + step / 500, "", "", step / 120])  # fmt: skip
                count += 1
            if step in steps:
                acc = curve(bp, n, step, seed)
                scores.append(acc)
                writer.writerow([count, count, 41.5 * step + 20, 1772000020 + 41 * step, step,
                                 "", "", acc, acc + 0.95, step / 120])  # fmt: skip
                count += 1
        put(base / "histories" / f"{name}.csv", out.getvalue())
        config = {"num_generations": n, "per_device_train_batch_size": 16,
                  "gradient_accumulation_steps": bp * n // 64, "steps_per_generation": bp * n // 64,
                  "generation_batch_size": bp * n, "learning_rate": 2e-06, "seed": seed, "beta": 0.0,
                  "max_steps": 120, "model_name_or_path": "Qwen/Qwen3-1.7B", "temperature": 1}  # fmt: skip
        summary = {"train/global_step": 120, "eval/reward": scores[-1] + 0.95, "_runtime": 5000.0,
                   "eval/rewards/accuracy_reward/mean": scores[-1]}  # fmt: skip
        runs.append((summary, config, name))
        plant("wandb_history", bp, n, steps, scores, seed)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["", "summary", "config", "name"])
    for i, row in enumerate(runs):
        writer.writerow([i, *row])
    put(base / "project.csv", out.getvalue())


# 5. W&B's charts, three of them exported into one folder, by names that say the time alone.


def wandb_charts(root: Path) -> None:
    base = root / "wandb_charts"
    runs = [(64, n, seed) for n in (4, 16) for seed in (0, 1)] + [(64, 8, 0)]
    name = {run: f"q3-1.7b_bp{run[0]}_n{run[1]}_s{run[2]}" for run in runs}
    keys = {
        "2026-03-09T10_02_11.301+01_00": "val-core/MATH500/acc/mean@1",
        "2026-03-09T10_02_40.118+01_00": "response_length/mean",
        "2026-03-09T10_03_02.745+01_00": "critic/score/mean",
    }
    for stamp, key in keys.items():
        out = io.StringIO()
        writer = csv.writer(out, quoting=csv.QUOTE_ALL)
        head = ["Step"]
        for run in reversed(runs):
            head += [f"{name[run]} - {key}{end}" for end in ("", "__MIN", "__MAX")]
        writer.writerow(head)
        for step in range(0, 101):
            if key.startswith("val-core") and step % 20:
                continue
            if not key.startswith("val-core") and step == 0:
                continue
            row: list[Any] = [step]
            for bp, n, seed in reversed(runs):
                if key.startswith("val-core"):
                    value = curve(bp, n, step, seed)
                elif key.startswith("response"):
                    value = 700 + step + n
                else:
                    value = 0.3 + step / 400
                if (n, seed) == (16, 1) and step > 80:  # it died
                    row += ["", "", ""]
                else:
                    row += [value] * 3
            writer.writerow(row)
        put(base / f"wandb_export_{stamp}.csv", out.getvalue())
    for bp, n, seed in runs:
        steps = list(range(0, 81 if (n, seed) == (16, 1) else 101, 20))
        plant("wandb_charts", bp, n, steps, [curve(bp, n, s, seed) for s in steps], seed)


# 6. Unsloth's notebooks: the reward adds up to 3, the correctness is what a user wants.


def unsloth_notebooks(root: Path) -> None:
    for n, accumulation in ((4, 2), (8, 4), (16, 8)):
        bp = 4  # 8 a device, times the accumulation, over n
        total = 8 * accumulation
        head = ["Step", "Training Loss", "reward", "reward_std", "completions / mean_length", "kl",
                "rewards / match_format_exactly / mean", "rewards / match_format_exactly / std",
                "rewards / correctness_reward_func / mean", "rewards / correctness_reward_func / std"]  # fmt: skip
        html = [
            "\n    <div>\n      \n      <progress value='100' max='100' style='width:300px;'></progress>\n"
            "      [100/100 41:12, Epoch 0/1]\n    </div>\n"
            '    <table border="1" class="dataframe">\n  <thead>\n'
            ' <tr style="text-align: left;">\n'
        ]
        html += [f"      <th>{word}</th>\n" for word in head]
        html.append("    </tr>\n  </thead>\n  <tbody>\n")
        steps, scores = list(range(1, 101)), []
        for step in steps:
            acc = round(curve(bp, n, step, low=0.2, high=0.9) * 64) / 64
            scores.append(acc)
            cells = [str(step), "0.000300", f"{acc + 1.5:.6f}", "0.402113", "201.500000", "0.000411",
                     "1.500000", "0.000000", f"{acc:.6f}", "0.410000"]  # fmt: skip
            html.append("    <tr>\n" + "".join(f"      <td>{c}</td>\n" for c in cells) + "    </tr>\n")
        html.append("  </tbody>\n</table><p>")
        source = [
            "from trl import GRPOConfig, GRPOTrainer\n", "training_args = GRPOConfig(\n",
            "    learning_rate = 5e-6,\n", "    per_device_train_batch_size = 8,\n",
            f"    gradient_accumulation_steps = {accumulation}, # Increase to 4 for smoother training\n",
            f"    num_generations = {n}, # Decrease if out of memory\n", "    max_prompt_length = 256,\n",
            "    max_steps = 100,\n", "    logging_steps = 1,\n", '    report_to = "none",\n',
            '    output_dir = "outputs",\n', ")",
        ]  # fmt: skip
        banner = (
            "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1\n"
            "   \\\\   /|    Num examples = 7,473 | Num Epochs = 1 | Total steps = 100\n"
            f"O^O/ \\_/ \\    Batch size per device = 8 | Gradient accumulation steps = {accumulation}\n"
            f"\\        /    Data Parallel GPUs = 1 | Total batch size (8 x {accumulation} x 1) = {total}\n"
            ' "-____-"     Trainable parameters = 119,734,272 of 3,119,734,272 (3.84% trained)\n'
        )
        cells = [
            {"cell_type": "markdown", "metadata": {}, "source": [f"# GRPO on GSM8K, {n} generations"]},
            {"cell_type": "code", "execution_count": 7, "metadata": {}, "outputs": [], "source": source},
            {"cell_type": "code", "execution_count": 8, "metadata": {}, "source": ["trainer.train()"],
             "outputs": [
                {"output_type": "stream", "name": "stderr", "text": banner.splitlines(keepends=True)},
                {"output_type": "display_data", "metadata": {},
                 "data": {"text/html": ["".join(html)], "text/plain": ["<IPython.core.display.HTML object>"]}},
             ]},
        ]  # fmt: skip
        put(
            root / "unsloth_notebooks" / f"Qwen3_GRPO_gsm8k_{n}gen.ipynb",
            json.dumps({"cells": cells, "metadata": {"language_info": {"name": "python"}},
                        "nbformat": 4, "nbformat_minor": 5}, indent=1),
        )  # fmt: skip
        plant("unsloth_notebooks", bp, n, steps, scores)


# 7. MLflow's file store of verl: one run failed after three steps and was begun anew, one is deleted.


def mlflow_verl(root: Path) -> None:
    base = root / "mlflow_verl" / "mlruns"
    put(base / "0" / "meta.yaml", "artifact_location: file:///w/mlruns/0\ncreation_time: 1772000000000\n"
        "experiment_id: '0'\nlast_update_time: 1772000000000\nlifecycle_stage: active\nname: Default\n")  # fmt: skip
    exp = "417093385162209914"
    put(base / exp / "meta.yaml", f"artifact_location: file:///w/mlruns/{exp}\n"
        f"creation_time: 1772000000000\nexperiment_id: '{exp}'\nlast_update_time: 1772000000000\n"
        "lifecycle_stage: active\nname: math_rl\n")  # fmt: skip
    bp = 32
    jobs = [(4, 0, "ok"), (8, 0, "failed"), (8, 0, "ok"), (16, 0, "ok"), (16, 0, "deleted"), (32, 0, "ok")]
    for i, (n, seed, fate) in enumerate(jobs):
        run = f"{i}f3c9d2a7b1e4c58{i}a60e9d1c2b3f48"[:32].ljust(32, "e")
        folder = base / exp / run
        start = 1772000000000 + i * 90_000_000
        last = 3 if fate == "failed" else 50
        put(folder / "meta.yaml",
            f"artifact_uri: file:///w/mlruns/{exp}/{run}/artifacts\nend_time: {start + 9_000_000}\n"
            f"entry_point_name: ''\nexperiment_id: '{exp}'\n"
            f"lifecycle_stage: {'deleted' if fate == 'deleted' else 'active'}\n"
            f"run_id: {run}\nrun_name: qwen3_n{n}\nrun_uuid: {run}\nsource_name: ''\nsource_type: 4\n"
            f"source_version: ''\nstart_time: {start}\nstatus: {4 if fate == 'failed' else 3}\n"
            "tags: []\nuser_id: lena\n")  # fmt: skip
        put(folder / "tags" / "mlflow.runName", f"qwen3_n{n}")
        params = {"actor_rollout_ref/rollout/n": n, "data/train_batch_size": bp, "data/seed": "None",
                  "actor_rollout_ref/model/path": "Qwen/Qwen3-1.7B", "trainer/test_freq": 10,
                  "actor_rollout_ref/actor/optim/lr": 1e-06, "trainer/n_gpus_per_node": 8,
                  "actor_rollout_ref/rollout/val_kwargs/n": 4, "actor_rollout_ref/actor/ppo_mini_batch_size": 32,
                  "trainer/nnodes": 1, "trainer/total_training_steps": 50}  # fmt: skip
        for key, value in params.items():
            put(folder / "params" / key, str(value))
        val, reward = [], []
        for step in range(0, last + 1):
            stamp = start + step * 60_000
            if step % 10 == 0:
                add = 0.02 if fate == "deleted" else 0.009 if fate == "failed" else 0
                val.append(f"{stamp} {curve(bp, n, step, seed) + add} {step}\n")
            if step:
                reward.append(f"{stamp} {0.3 + step / 200} {step}\n")
        put(folder / "metrics" / "val-core" / "math500" / "reward" / "mean_at_4", "".join(val))
        put(folder / "metrics" / "critic" / "score" / "mean", "".join(reward))
        put(folder / "metrics" / "training" / "global_step", "".join(
            f"{start + s * 60_000} {s} {s}\n" for s in range(1, last + 1)))  # fmt: skip
        if fate == "ok":
            steps = list(range(0, 51, 10))
            plant("mlflow_verl", bp, n, steps, [curve(bp, n, s, seed) for s in steps])


# 8. OpenRLHF's TensorBoard: colons in the names, and one run resumed into a second event file.


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def record(data: bytes) -> bytes:
    def masked(part: bytes) -> bytes:
        crc = crc32c(part)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def event(wall: float, step: int, tag: str, value: float) -> bytes:
    name = tag.encode()
    inner = b"\x0a" + varint(len(name)) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + varint(len(inner)) + inner
    return record(b"\x09" + struct.pack("<d", wall) + b"\x10" + varint(step) + b"\x2a"
                  + varint(len(summary)) + summary)  # fmt: skip


def openrlhf_tb(root: Path) -> None:
    bp = 128
    for n in (4, 8, 16):
        folder = root / "openrlhf_tb" / "tensorboard" / f"qwen2.5-7b_rbs{bp}_nspp{n}_0{n // 4}14T09:30"

        def chunk(start: int, begin: int, end: int, shift: float = 0.0, n: int = n) -> bytes:
            data = record(b"\x09" + struct.pack("<d", start) + b"\x1a\x0dbrain.Event:2")
            for step in range(begin, end + 1):
                wall = start + 61.5 * (step - begin)
                for tag, value in (("reward", 0.2 + step / 300), ("response_length", 811.0),
                                   ("kl", 0.001), ("actor_lr", 5e-7), ("return", 0.2)):  # fmt: skip
                    data += event(wall, step, f"train/{tag}", value)
                if step % 10 == 0:
                    acc = curve(bp, n, step) + shift
                    data += event(wall, step, "eval/eval_math500_pass4", acc + 0.12)
                    data += event(wall, step, "eval/eval_math500_pass1", acc)
                    data += event(wall, step, "eval/eval_response_length_mean", 790.0)
                    data += event(wall, step, "eval/eval_num_samples", 2000.0)
            return data

        name = f"events.out.tfevents.{1772000000 + n}.node{n}.2214.0"
        if n == 8:
            put(folder / name, chunk(1772000000, 1, 47))
            put(folder / "events.out.tfevents.1772090001.node3.811.0", chunk(1772090001, 41, 70))
        else:
            put(folder / name, chunk(1772000000, 1, 70))
        steps = list(range(10, 71, 10))
        plant("openrlhf_tb", bp, n, steps, [curve(bp, n, s) for s in steps])


# 9. slime's log with the command in it: `eval 19` comes after twenty updates, `eval 0` before any.


def slime_log(root: Path) -> None:
    bp = 32
    for n in (4, 8, 16):
        command = (
            "+ ray job submit --address=http://127.0.0.1:8265 --runtime-env-json={} -- python3 train.py "
            "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --hf-checkpoint /models/Qwen3-4B "
            "--prompt-data /data/dapo-math-17k/dapo-math-17k.jsonl --input-key prompt --rm-type deepscaler "
            f"--num-rollout 100 --rollout-batch-size {bp} --n-samples-per-prompt {n} "
            f"--global-batch-size {bp * n} --rollout-max-response-len 8192 --rollout-temperature 1 "
            "--eval-interval 20 --eval-prompt-data math500 /data/math500.jsonl "
            "--n-samples-per-eval-prompt 4 --lr 1e-6 --advantage-estimator grpo\n"
        )
        out = [command, "Job submission server address: http://127.0.0.1:8265\n"]

        def evaluated(ident: int, score: float) -> str:
            return (
                f"\x1b[36m(RolloutManager pid=4411)\x1b[0m [2026-02-11 10:{ident % 60:02d}:07] "
                f"rollout_metrics.py:247 - eval {ident}: {{'eval/math500': {score}, "
                "'eval/math500/response_len/mean': 2411.5, 'eval/math500/response_len/median': 2011.0, "
                "'eval/math500/truncated_ratio': 0.03, 'eval/math500-truncated_ratio': 0.03}\n"
            )

        out.append(evaluated(0, curve(bp, n, 0)))
        for ident in range(100):
            out.append(
                f"\x1b[36m(RolloutManager pid=4411)\x1b[0m [2026-02-11 10:{ident % 60:02d}:31] "
                f"rollout_metrics.py:268 - perf {ident}: {{'rollout/response_len/mean': 2301.0, "
                "'perf/rollout_time': 71.2, 'perf/tokens_per_gpu_per_sec': 1904.5}\n"
                f"\x1b[36m(MegatronTrainRayActor pid=5120)\x1b[0m [2026-02-11 10:{ident % 60:02d}:41] "
                f"data.py:135 - rollout {ident}: {{'rollout/raw_reward': {0.3 + ident / 400}, "
                f"'rollout/rewards': 0.0, 'rollout/response_lengths': 2301.0, 'rollout/truncated': 0.02}}\n"
                f"\x1b[36m(MegatronTrainRayActor pid=5120)\x1b[0m [2026-02-11 10:{ident % 60:02d}:59] "
                f"model.py:918 - step {ident}: {{'train/loss': 0.001, 'train/grad_norm': 0.09, "
                f"'train/lr-pg_0': 1e-06, 'train/step': {ident}}}\n"
            )
            if (ident + 1) % 20 == 0:
                out.append(evaluated(ident, curve(bp, n, ident + 1)))
        put(root / "slime_log" / f"run_qwen3-4B_n{n}.log", "".join(out))
        steps = list(range(0, 101, 20))
        plant("slime_log", bp, n, steps, [curve(bp, n, s) for s in steps])


# 10. A loop of one's own: percent, the evaluation every 25 steps, its file beside config.json.


def own_loop(root: Path) -> None:
    for n, seed in ((4, 0), (8, 0), (8, 1), (16, 0)):
        bp = 48
        folder = root / "own_loop" / "runs" / f"countdown_g{n}_seed{seed}"
        put(folder / "config.json", json.dumps({
            "model": "Qwen/Qwen2.5-3B", "lr": 1e-6, "prompts_per_step": bp, "group_size": n,
            "total_steps": 150, "eval_every": 25, "seed": seed, "kl_coef": 0.0, "temperature": 1.0,
            "micro_batch_size": 8, "grad_accum": bp * n // 8,
        }, indent=2))  # fmt: skip
        rows, steps, scores = [], list(range(0, 151, 25)), []
        for step in range(151):
            if step:
                rows.append({"step": step, "loss": 0.01, "train_reward": 0.2 + step / 400,
                             "mean_len": 512.25, "lr": 1e-6, "time": 1772000000.5 + 30 * step})  # fmt: skip
            if step in steps:
                acc = round(100 * curve(bp, n, step, seed, low=0.12, high=0.66), 2)
                scores.append(acc)
                rows.append({"step": step, "eval_acc": acc, "eval_n": 512,
                             "eval_len": 480.5, "time": 1772000010.5 + 30 * step})  # fmt: skip
        put(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        plant("own_loop", bp, n, steps, scores, seed, scale=100)


# 11. A team's table: percent of three benchmarks, a dash where none was run, one row for the base model.


def team_table(root: Path) -> None:
    out = ["Experiment,Group size,Prompts per batch,Step,GSM8K,MATH500,AIME25,Notes\n",
           "Qwen2.5-7B base,,,0,71.2,48.6,3.3,no RL\n"]  # fmt: skip
    for n in (4, 8, 16, 32):
        bp = 64
        steps, scores = list(range(20, 121, 20)), []
        for step in steps:
            acc = round(100 * curve(bp, n, step, low=0.49, high=0.77), 1)
            scores.append(acc)
            aime = f"{acc / 5:.1f}" if step % 40 == 0 else "-"
            note = "best" if step == 120 and n == 16 else ""
            out.append(f"grpo-G{n},{n},{bp},{step},{acc / 2 + 45:.1f},{acc},{aime},{note}\n")
        plant("team_table", bp, n, steps, scores, scale=100, optional=(0, 48.6))
    put(root / "team_table" / "results_march.csv", "".join(out))


# 12. lighteval's results of checkpoints, by organisation and model; `all` repeats the task.


def lighteval(root: Path) -> None:
    for n in (4, 8, 16):
        steps, scores = [50, 100, 150, 200, 250], []
        for i, step in enumerate(steps):
            acc = round(curve(16, n, step) * 500) / 500
            scores.append(acc)
            model = f"mathlab/Qwen2.5-1.5B-GRPO-n{n}-step{step}"
            metrics = {"extractive_match": acc, "extractive_match_stderr": 0.0221}
            put(
                root / "lighteval" / "results" / model / f"results_2026-03-1{i}T08-1{i}-12.54{n:02d}13.json",
                json.dumps({
                    "config_general": {
                        "lighteval_sha": "?", "num_fewshot_seeds": 1, "max_samples": None, "job_id": "",
                        "start_time": 1772.5, "end_time": 2110.25, "total_evaluation_time_secondes": "337.75",
                        "model_name": model, "model_sha": "", "model_dtype": "bfloat16", "model_size": None,
                    },
                    "results": {"lighteval|math_500|0": metrics, "all": metrics},
                    "versions": {"lighteval|math_500|0": 1},
                    "config_tasks": {"lighteval|math_500": {"name": "math_500", "hf_repo": "HuggingFaceH4/MATH-500",
                                     "metric": [{"metric_name": "extractive_match", "higher_is_better": True}],
                                     "evaluation_splits": ["test"], "num_fewshots": 0}},
                    "summary_tasks": {}, "summary_general": {},
                }, indent=2),
            )  # fmt: skip
        plant("lighteval", 16, n, steps, scores)


# 13. NeMo-RL's console: the header's step begins anew with each epoch, the validation's does not.


def nemo_console(root: Path) -> None:
    bp = 32
    for n, seed in ((8, 42), (8, 43), (16, 42), (32, 42)):
        config = {
            "checkpointing": {"checkpoint_dir": f"results/grpo_n{n}_s{seed}", "enabled": True, "save_period": 20},
            "cluster": {"gpus_per_node": 8, "num_nodes": 1},
            "data": {"dataset_name": "OpenMathInstruct-2", "max_input_seq_length": 512},
            "grpo": {"max_num_epochs": 2, "max_num_steps": 60, "max_val_samples": 256,
                     "normalize_rewards": True, "num_generations_per_prompt": n, "num_prompts_per_step": bp,
                     "seed": seed, "val_at_start": True, "val_batch_size": 256, "val_period": 10},
            "policy": {"model_name": "Qwen/Qwen2.5-1.5B", "train_global_batch_size": bp * n,
                       "optimizer": {"kwargs": {"lr": 5e-06}}},
        }  # fmt: skip
        out = ["Loaded configuration from: examples/configs/grpo_math_1B.yaml\n",
               f"Overrides: ['grpo.num_generations_per_prompt={n}', 'grpo.seed={seed}']\n",
               "Applied CLI overrides\nFinal config:\n", pprint.pformat(config) + "\n",
               f"📊 Using log directory: logs/grpo_n{n}_s{seed}/exp_001\n", "=" * 60 + "\n"]  # fmt: skip

        def validated(step: int, acc: float) -> str:
            return (
                f"▶ Starting validation at step {step}...\n\n📊 Validation Results:\n"
                f"    • Accuracy: {acc:.4f}\n    • Average response length: 402.1 tokens\n"
                "    • Samples processed: 256\n\n  ⏱️  Validation Timing:\n"
                "    • Total validation time: 14.02s\n"
            )

        steps = list(range(0, 61, 10))
        scores = [round(curve(bp, n, s, seed), 4) for s in steps]
        out += ["\n🔍 Running initial validation...\n", validated(0, scores[0])]
        for total in range(1, 61):
            if total % 30 == 1:
                out.append(f"\n{'=' * 25} Epoch {(total - 1) // 30 + 1}/2 {'=' * 25}\n")
            out.append(f"\n{'=' * 25} Step {(total - 1) % 30 + 1}/30 {'=' * 25}\n")
            out.append("▶ Preparing batch...\n▶ Generating responses for batch of size "
                       f"{bp * n}...\n▶ Processing rewards...,\n▶ Training policy...\n")  # fmt: skip
            if total % 10 == 0:
                out.append(validated(total, scores[total // 10]))
            out.append(
                f"\n📊 Training Results:\n  • Loss: 0.0012\n  • Generation KL Error: 0.0011\n"
                f"  • Avg Reward: {0.2 + total / 200:.4f}\n  • Mean Generation Length: 411.2500\n"
                "\n⏱️  Timing:\n  • Total step time: 41.50s\n  • generation: 21.10s (50.8%)\n"
            )
        put(root / "nemo_console" / f"{90210 + n + seed}-logs" / "ray-driver.log", "".join(out))
        plant("nemo_console", bp, n, steps, scores, seed)


# 14. SkyRL's console through Ray: every line of the printed dict has the actor's name before it.


def skyrl_console(root: Path) -> None:
    bp = 64
    for n in (5, 10, 20):
        command = (
            "+ uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base "
            "\"data.train_data=['/data/gsm8k/train.parquet']\" \"data.val_data=['/data/gsm8k/validation.parquet']\" "
            "trainer.algorithm.advantage_estimator=grpo trainer.policy.model.path=Qwen/Qwen2.5-1.5B-Instruct "
            "trainer.placement.policy_num_gpus_per_node=4 trainer.epochs=1 trainer.eval_batch_size=1024 "
            "trainer.eval_before_train=true trainer.eval_interval=5 trainer.update_epochs_per_batch=1 "
            f"trainer.train_batch_size={bp} trainer.policy_mini_batch_size={bp} "
            "trainer.policy.optimizer_config.lr=1.0e-6 generator.backend=vllm "
            f"generator.n_samples_per_prompt={n} generator.eval_n_samples_per_prompt=1 "
            "trainer.logger=console trainer.run_name=gsm8k_test\n"
        )
        pre = "\x1b[36m(skyrl_entrypoint pid=31044)\x1b[0m "
        out = [command]

        def logged(step: int, rows: dict[str, str], pre: str = pre) -> str:
            body = [f" '{key}': '{value}'" for key, value in sorted(rows.items())]
            body[0] = "{" + body[0][1:]
            lines = [f"2026-04-02 11:{step % 60:02d}:11.204 | INFO     | skyrl_train.utils.tracking:log:118 - Step {step}: "]
            lines += [line + "," for line in body[:-1]] + [body[-1] + "}"]
            return "".join(pre + line + "\n" for line in lines)

        steps, scores = list(range(0, 41, 5)), []
        for step in range(41):
            if step % 5 == 0:
                acc = round(curve(bp, n, step), 4)
                scores.append(acc)
                evals = {"eval/all/avg_score": f"{acc:.4f}", "eval/all/pass_at_1": f"{acc:.4f}",
                         "eval/openai/gsm8k/avg_score": f"{acc:.4f}",
                         "eval/openai/gsm8k/pass_at_1": f"{acc:.4f}"}  # fmt: skip
            if step == 0:
                out.append(logged(0, evals))
                continue
            rows = {"generate/avg_num_tokens": "231.1000", f"reward/avg_pass_at_{n}": "0.8100",
                    "reward/avg_raw_reward": f"{0.3 + step / 100:.4f}", "policy/policy_lr": "0.0000",
                    "timing/step": "38.2000", "trainer/epoch": "0", "trainer/global_step": str(step)}  # fmt: skip
            rows = {key: value for key, value in rows.items() if key.startswith(("gen", "rew", "pol", "tim"))}
            out.append(logged(step, rows | (evals if step % 5 == 0 else {})))
        put(root / "skyrl_console" / f"gsm8k_n{n}" / "train.log", "".join(out))
        plant("skyrl_console", bp, n, steps, scores)


MAKERS = (
    slurm_verl, verl_file, trl_checkpoints, wandb_history, wandb_charts, unsloth_notebooks, mlflow_verl,
    openrlhf_tb, slime_log, own_loop, team_table, lighteval, nemo_console, skyrl_console,
)  # fmt: skip
