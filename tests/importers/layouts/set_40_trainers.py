"""Set 40, layouts 1 to 7: trainers' own files."""

import json
import struct
from pathlib import Path

from set_40_truth import (
    Layout,
    Truth,
    curve,
    put,
    put_lines,
    reward,
    rollouts,
    score,
)


def trl_reused_batches(folder: Path) -> Truth:
    """TRL: every generated batch serves two updates (num_iterations 2); the launch line says so."""
    curves = {}
    for n in (4, 8, 16):
        run = folder / f"outputs/Qwen2.5-1.5B-GRPO-G{n}"
        batch = 256 // n
        put(
            run / "train.sh",
            "#!/bin/bash\nexport WANDB_MODE=offline\naccelerate launch --config_file zero2.yaml "
            "--num_processes 4 train_grpo.py \\\n  --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct "
            "\\\n  --dataset_name openai/gsm8k --output_dir " + run.name + " \\\n"
            f"  --num_generations {n} --num_iterations 2 --beta 0.0 \\\n"
            "  --per_device_train_batch_size 8 --gradient_accumulation_steps 8 \\\n"
            "  --learning_rate 1e-6 --max_steps 400 --logging_steps 5 --eval_strategy steps "
            "--eval_steps 50 --eval_on_start --seed 42 --save_steps 200\n",
        )
        history: list[dict[str, float]] = []
        points = {}
        for step in range(0, 401, 5):
            if step % 50 == 0:
                made = step // 2 * 256  # 256 completions for two updates
                points[made] = score(batch, n, made)
                history.append({
                    "epoch": round(step / 934, 4), "eval_completions/mean_length": 201.5,
                    "eval_frac_reward_zero_std": 0.41, "eval_loss": 0.0012,
                    "eval_num_tokens": float(step * 61000), "eval_reward": points[made],
                    "eval_reward_std": 0.22, "eval_rewards/accuracy_reward/mean": points[made],
                    "eval_rewards/accuracy_reward/std": 0.45, "eval_runtime": 95.21,
                    "eval_samples_per_second": 5.3, "step": step,
                })
            if step:
                history.append({
                    "clip_ratio/region_mean": 0.0007, "completions/mean_length": 212.2,
                    "epoch": round(step / 934, 4), "frac_reward_zero_std": 0.35, "grad_norm": 0.31,
                    "learning_rate": 1e-6, "loss": 0.0031, "num_tokens": float(step * 61000),
                    "reward": reward(n, step), "reward_std": 0.21,
                    "rewards/accuracy_reward/mean": reward(n, step), "step": step,
                })
        for saved in (200, 400):
            put(
                run / f"checkpoint-{saved}/trainer_state.json",
                json.dumps({
                    "best_global_step": None, "best_metric": None, "epoch": round(saved / 934, 4),
                    "eval_steps": 50, "global_step": saved, "is_hyper_param_search": False,
                    "is_local_process_zero": True, "is_world_process_zero": True,
                    "log_history": [row for row in history if row["step"] <= saved],
                    "logging_steps": 5, "max_steps": 400, "num_input_tokens_seen": saved * 61000,
                    "num_train_epochs": 1, "save_steps": 200, "train_batch_size": 8,
                }, indent=2),
            )
        curves[(batch, n, "")] = points
    return Truth(curves, "num_iterations 2: a step is half a batch of rollouts")


def verl_fewer_samples(folder: Path) -> Truth:
    """verl's file logger: validation drew 8 samples in some runs and 4 in the others."""
    curves = {}
    for n, samples in ((4, 8), (8, 8), (16, 4), (32, 4)):
        name = f"qwen2.5-3b_gsm8k_n{n}"
        put(
            folder / f"scripts/{name}.sh",
            "set -x\npython3 -m verl.trainer.main_ppo \\\n    algorithm.adv_estimator=grpo \\\n"
            "    data.train_files=$HOME/data/gsm8k/train.parquet \\\n"
            "    data.train_batch_size=64 \\\n    data.max_response_length=1024 \\\n"
            "    actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \\\n"
            "    actor_rollout_ref.actor.ppo_mini_batch_size=64 \\\n"
            "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\\n"
            f"    actor_rollout_ref.rollout.n={n} \\\n"
            f"    actor_rollout_ref.rollout.val_kwargs.n={samples} \\\n"
            "    trainer.logger='[\"console\",\"file\"]' trainer.n_gpus_per_node=8 \\\n"
            f"    trainer.project_name=gsm8k trainer.experiment_name={name} \\\n"
            "    trainer.test_freq=20 trainer.total_training_steps=160 $@\n",
        )
        points = curve(64, n, range(0, 161, 20))
        rows = []
        for step in range(161):
            data: dict[str, float] = {}
            if step:
                data |= {
                    "actor/entropy": 0.21, "actor/lr": 1e-6, "actor/pg_loss": 0.003,
                    "critic/rewards/mean": reward(n, step), "critic/score/mean": reward(n, step),
                    "perf/throughput": 2210.4, "response_length/mean": 233.1,
                    "timing_s/step": 41.2, "training/epoch": 0, "training/global_step": step,
                }
            if step in points:
                key = "openai/gsm8k/reward"
                value = points[step]
                data |= {
                    f"val-core/{key}/mean@{samples}": value,
                    f"val-aux/{key}/std@{samples}": 0.19,
                    f"val-aux/{key}/best@{samples}/mean": round(value + 0.12, 4),
                    f"val-aux/{key}/worst@{samples}/mean": round(value - 0.14, 4),
                    "val-aux/num_turns/mean": 2.0,
                }
            rows.append({"step": step, "data": data})
        put_lines(folder / f"logs/gsm8k/{name}.jsonl", rows)
        curves[(64, n, "")] = rollouts(64, n, points)
    return Truth(curves, "mean@8 in two runs, mean@4 in two: one score under two names")


def openrlhf_two_batches(folder: Path) -> Truth:
    """OpenRLHF: TensorBoard; rollout_batch_size counts prompts, train_batch_size samples."""
    curves = {}
    for n in (4, 8, 16):
        run = folder / f"ckpt/llama3-8b-rlvr-n{n}"
        put(
            run / "launch.sh",
            "ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli."
            "train_ppo_ray \\\n   --pretrain meta-llama/Llama-3.1-8B-Instruct \\\n"
            "   --micro_train_batch_size 4 \\\n   --train_batch_size 256 \\\n"
            "   --micro_rollout_batch_size 8 \\\n   --rollout_batch_size 128 \\\n"
            f"   --n_samples_per_prompt {n} \\\n   --max_epochs 1 --num_episodes 2 \\\n"
            "   --advantage_estimator group_norm --eval_steps 10 \\\n"
            "   --eval_n_samples_per_prompt 4 --actor_learning_rate 5e-7 \\\n"
            f"   --use_tensorboard {run.name}/tb --remote_rm_url http://localhost:5000/get_reward\n",
        )
        points = curve(128, n, range(10, 81, 10))
        events = []
        for step in range(1, 81):
            for tag, value in (
                ("train/reward", reward(n, step)), ("train/policy_loss", -0.002),
                ("train/response_length", 512.0), ("train/kl", 0.001 * step),
                ("train/actor_lr", 5e-7),
            ):
                events.append((step, tag, value))
            if step in points:
                events += [
                    (step, "eval/eval_math500_pass4", round(points[step] + 0.11, 4)),
                    (step, "eval/eval_math500_pass1", points[step]),
                    (step, "eval/eval_num_samples", 2000.0),
                ]
        tensorboard(run / "tb/ppo_1003T10:11/events.out.tfevents.1759486279.node7.11", events)
        curves[(128, n, "")] = rollouts(128, n, points)
    return Truth(curves, "train_batch_size is samples; the batch of prompts is rollout_batch_size")


def validation(value: float) -> list[str]:
    return [
        "", "📊 Validation Results:", f"    • Accuracy: {value:.4f}",
        "    • Average response length: 611.2 tokens", "    • Samples processed: 256", "",
        "  ⏱️  Validation Timing:", "    • Total validation time: 33.10s",
    ]


def nemo_epochs(folder: Path) -> Truth:
    """NeMo-RL: Slurm's output; the step counter starts again at every epoch."""
    curves = {}
    for job, n in enumerate((8, 16, 32)):
        points = curve(32, n, range(0, 121, 20))
        lines = [
            "Loaded configuration from: examples/configs/grpo_math_1B.yaml",
            f"Overrides: ['grpo.num_generations_per_prompt={n}', 'grpo.max_num_epochs=3']",
            "Final config:",
            "{'checkpointing': {'checkpoint_dir': 'results/grpo', 'enabled': True,",
            "                   'metric_name': 'val:accuracy', 'save_period': 20},",
            " 'grpo': {'max_num_epochs': 3, 'max_num_steps': 1000000,",
            "          'max_val_samples': 256, 'normalize_rewards': True,",
            f"          'num_generations_per_prompt': {n},",
            "          'num_prompts_per_step': 32, 'seed': 42, 'val_at_start': True,",
            "          'val_batch_size': 256, 'val_period': 20},",
            " 'policy': {'model_name': 'Qwen/Qwen2.5-1.5B',",
            "            'train_global_batch_size': 512, 'train_micro_batch_size': 4}}",
            "📊 Using log directory: logs/exp_001",
            "",
            "🔍 Running initial validation...",
        ]

        lines += validation(points[0])
        total = 0
        for epoch in range(1, 4):
            lines += ["", f"{'=' * 25} Epoch {epoch}/3 {'=' * 25}"]
            for step in range(1, 41):
                total += 1
                lines += [
                    "", f"{'=' * 25} Step {step}/40 {'=' * 25}", "▶ Preparing batch...",
                    f"▶ Generating responses for batch of size {32 * n}...",
                    "▶ Processing rewards...,", "▶ Computing advantages...",
                    "▶ Preparing for logprob inference...", "▶ Computing logprobs...",
                    "▶ Preparing for training...", "▶ Training policy...",
                ]
                if total in points:
                    lines += validation(points[total])
                lines += [
                    "", "📊 Training Results:", "  • Loss: 0.0123",
                    "  • Generation KL Error: 0.0011", f"  • Avg Reward: {reward(n, total):.4f}",
                    "  • Mean Generation Length: 598.1100", "", "⏱️  Timing:",
                    "  • Total step time: 41.22s", "  • policy_training: 12.10s (29.4%)",
                ]
        put(folder / f"slurm/grpo-n{n}-{88112 + job}.out", "\n".join(lines) + "\n")
        curves[(32, n, "")] = rollouts(32, n, points)
    return Truth(curves, "step 1/40 three times over: one epoch after the other")


MANAGER = "\x1b[36m(RolloutManager pid=4121)\x1b[0m [2026-10-03 11:%02d:%02d] "


def slime_evaluation(rollout: int, value: float) -> str:
    told = {
        "eval/aime": value, "eval/aime/response_len/mean": 5111.25,
        "eval/aime/truncated_ratio": 0.21, "eval/aime-truncated_ratio": 0.21,
    }
    return MANAGER % (rollout % 60, 30) + f"rollout_metrics.py:247 - eval {rollout}: {told}"


def slime_from_zero(folder: Path) -> Truth:
    """slime: its log lines; rollouts are counted from 0, so `eval 19` comes after 20 steps."""
    curves = {}
    for n in (8, 16, 32):
        run = folder / f"qwen3-4B-n{n}"
        put(
            run / "run-qwen3-4B.sh",
            "ROLLOUT_ARGS=(\n   --prompt-data data/dapo-math-17k.jsonl\n"
            "   --input-key prompt\n   --rollout-shuffle\n   --num-rollout 100\n"
            f"   --rollout-batch-size 32\n   --n-samples-per-prompt {n}\n"
            "   --rollout-max-response-len 8192\n   --rollout-temperature 1\n"
            f"   --global-batch-size {32 * n}\n   --balance-data\n)\nEVAL_ARGS=(\n"
            "   --eval-interval 20\n   --eval-prompt-data aime data/aime-2024.jsonl\n"
            "   --n-samples-per-eval-prompt 16\n)\nray job submit -- python3 train.py "
            "${ROLLOUT_ARGS[@]} ${EVAL_ARGS[@]} 2>&1 | tee train.log\n",
        )
        points = curve(32, n, range(0, 101, 20))
        actor = "\x1b[36m(MegatronTrainRayActor pid=5002)\x1b[0m [2026-10-03 11:%02d:%02d] "
        lines = ["[2026-10-03 11:00:01] train.py:14 - start"]
        for rollout in range(100):
            if rollout == 0:
                lines.append(slime_evaluation(0, points[0]))
            told = {"rollout/response_len/mean": 3301.5, "rollout/raw_reward": reward(n, rollout)}
            lines.append(MANAGER % (rollout % 60, 1) + f"rollout_metrics.py:268 - perf {rollout}: "
                         + str({**told, "perf/rollout_time": 61.2}))
            lines.append(actor % (rollout % 60, 9) + f"data.py:91 - rollout {rollout}: "
                         + str({"rollout/rewards": 0.0, "rollout/raw_reward": told[
                             "rollout/raw_reward"], "rollout/response_lengths": 3301.5}))
            lines.append(actor % (rollout % 60, 20) + f"model.py:611 - step {rollout}: "
                         + str({"train/loss": 0.001, "train/pg_loss": 0.001, "train/kl_loss": 0.0,
                                "train/grad_norm": 0.11, "train/step": rollout}))
            if (rollout + 1) % 20 == 0:
                lines.append(slime_evaluation(rollout, points[rollout + 1]))
        put(run / "train.log", "\n".join(lines) + "\n")
        curves[(32, n, "")] = rollouts(32, n, points)
    return Truth(curves, "eval 0 is before the first step, eval 19 after the twentieth")


def prime_counts_rollouts(folder: Path) -> Truth:
    """prime-rl: batch_size is rollouts, so one batch_size holds fewer problems at a larger n."""
    curves = {}
    for n in (8, 16, 32):
        run = folder / f"outputs/hendrycks-g{n}"
        batch = 256 // n
        put(
            run / "configs/rl.toml",
            'max_steps = 120\n\n[model]\nname = "Qwen/Qwen3-1.7B"\n\n[orchestrator]\n'
            f"batch_size = 256\ngroup_size = {n}\nseq_len = 4096\n\n"
            '[[orchestrator.train.source]]\nname = "hendrycks-math"\n\n[orchestrator.eval]\n'
            'interval = 20\n\n[[orchestrator.eval.source]]\nname = "math500"\ngroup_size = 4\n\n'
            "[trainer.optim]\nlr = 1e-6\n",
        )
        points = curve(batch, n, range(0, 121, 20))
        rows: list[dict[str, float]] = []
        for step in range(121):
            if step in points:
                rows.append({
                    "step": step, "time": 1790000000.5 + 60 * step,
                    "eval/math500/all/default/avg@4": points[step],
                    "eval/math500/all/default/num_turns/mean": 1.0,
                    "eval/math500/effective/default/avg@4": points[step],
                    "eval/math500/effective/default/pass@1": points[step],
                    "eval/math500/effective/default/pass@4": round(points[step] + 0.13, 4),
                    "eval/math500/policy_version": float(step),
                })
            if step < 120:
                rows.append({
                    "step": step, "time": 1790000030.5 + 60 * step,
                    "train/all/default/reward/mean": reward(n, step),
                    "train/effective/default/reward/mean": reward(n, step),
                    "train/effective/default/solved_none": 0.2,
                    "progress/tokens": 410222, "progress/total_tokens": 410222 * (step + 1),
                    "time/step": 58.0,
                })
        put_lines(run / "metrics.jsonl", rows)
        curves[(batch, n, "")] = rollouts(batch, n, points)
    return Truth(curves, "batch_size 256 counts rollouts: B_p is 256 / n")


def swift_rows(
    n: int, points: dict[int, float], first: int, last: int, shift: float = 0.0
) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for step in range(first, last + 1):
        place = {
            "global_step/max_steps": f"{step}/200",
            "percentage": f"{step / 2:.2f}%", "elapsed_time": f"{step // 2}m 3s",
            "remaining_time": f"{(200 - step) // 2}m 1s", "memory(GiB)": 61.2,
            "train_speed(iter/s)": 0.031,
        }
        made.append({
            "loss": 0.001, "grad_norm": 0.2, "learning_rate": 1e-6,
            "completions/mean_length": 401.2, "reward": reward(n, step),
            "reward_std": 0.3, "rewards/MathAccuracy/mean": reward(n, step), **place,
        })
        if step in points:
            value = round(points[step] + shift, 4)
            made.append({
                "eval_loss": 0.0, "eval_reward": value, "eval_reward_std": 0.2,
                "eval_rewards/MathAccuracy/mean": value, "eval_runtime": 71.1, **place,
            })
    return made


def swift_resumed(folder: Path) -> Truth:
    """ms-swift: a run that stopped at 130 goes on in v1-... from checkpoint-100."""
    curves = {}
    for n in (4, 8, 16):
        home = folder / f"output/grpo_g{n}"
        common = {
            "rlhf_type": "grpo", "model": "Qwen/Qwen2.5-7B-Instruct", "dataset": ["MATH-lighteval"],
            "num_generations": n, "per_device_train_batch_size": 16,
            "gradient_accumulation_steps": 4, "generation_batch_size": 512,
            "steps_per_generation": 4, "num_iterations": 1, "global_world_size": 8,
            "learning_rate": 1e-6, "eval_steps": 20, "logging_steps": 1, "max_steps": 200,
            "seed": 42, "resume_from_checkpoint": None,
        }
        batch = 512 // n
        points = curve(batch, n, range(20, 201, 20))

        first = home / "v0-20261001-101112"
        put(first / "args.json", json.dumps(common, indent=2))
        if n == 16:  # out of walltime at 130; step 120 was evaluated before, and is trained anew
            put_lines(first / "logging.jsonl", swift_rows(n, points, 1, 100)
                      + swift_rows(n, points, 101, 130, -0.011))
            again = home / "v1-20261002-090001"
            put(again / "args.json", json.dumps(
                {**common, "resume_from_checkpoint": str(Path("output") / home.name / first.name
                                                         / "checkpoint-100")}, indent=2))
            put_lines(again / "logging.jsonl", swift_rows(n, points, 101, 200))
        else:
            put_lines(first / "logging.jsonl", swift_rows(n, points, 1, 200))
        curves[(batch, n, "")] = rollouts(batch, n, points)
    return Truth(curves, "one run in two folders: v0 to step 130, v1 from checkpoint-100",
                 "v0's step 120, which v1 trained anew")


def tensorboard(path: Path, events: list[tuple[int, str, float]]) -> None:
    """A TensorBoard event file of scalars."""

    def crc(data: bytes) -> int:
        value = 0xFFFFFFFF
        for byte in data:
            value ^= byte
            for _ in range(8):
                value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        value ^= 0xFFFFFFFF
        return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    def varint(value: int) -> bytes:
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    def block(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    def record(data: bytes) -> bytes:
        size = struct.pack("<Q", len(data))
        return size + struct.pack("<I", crc(size)) + data + struct.pack("<I", crc(data))

    out = [record(b"\x09" + struct.pack("<d", 1759486279.0) + block(3, b"brain.Event:2"))]
    for count, (step, tag, number) in enumerate(events):
        value = block(1, tag.encode()) + b"\x15" + struct.pack("<f", number)
        wall = b"\x09" + struct.pack("<d", 1759486280.0 + count)
        out.append(record(wall + b"\x10" + varint(step) + block(5, block(1, value))))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(out))


LAYOUTS = [
    Layout("trl_reused_batches", trl_reused_batches),
    Layout("verl_fewer_samples", verl_fewer_samples),
    Layout("openrlhf_two_batches", openrlhf_two_batches),
    Layout("nemo_epochs", nemo_epochs),
    Layout("slime_from_zero", slime_from_zero),
    Layout("prime_counts_rollouts", prime_counts_rollouts),
    Layout("swift_resumed", swift_resumed),
]
