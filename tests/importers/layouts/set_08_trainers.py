"""The eighth set: what trainers write (verl, Unsloth, ms-swift, ROLL, torchtune, slime)."""

from __future__ import annotations

import json
from pathlib import Path

from set_08_base import Run, curve, to_csv, to_json, to_wandb_config

# 1. verl with DAPO's dynamic sampling: each step draws batches of gen_batch_size, keeps 64 groups.

DAPO = tuple(Run(64, n, curve(n, range(0, 101, 10)), 1) for n in (4, 8, 16))


def dapo(folder: Path) -> Path:
    for run in DAPO:
        home = folder / "dapo" / f"dapo-qwen7b-n{run.n}"
        to_wandb_config(
            home / "config.yaml",
            {
                "data": {
                    "train_batch_size": 64,
                    "gen_batch_size": 192,
                    "seed": run.seed,
                    "max_prompt_length": 2048,
                },
                "algorithm": {
                    "adv_estimator": "grpo",
                    "filter_groups": {"enable": True, "metric": "acc", "max_num_gen_batches": 10},
                },
                "actor_rollout_ref": {
                    "actor": {"ppo_mini_batch_size": 32, "ppo_epochs": 1},
                    "rollout": {"n": run.n, "val_kwargs": {"n": 32, "temperature": 1.0}},
                },
                "trainer": {"total_training_steps": 100, "val_before_train": True, "test_freq": 10},
            },
        )
        rows: list[dict[str, object]] = []
        for step in range(101):
            row: dict[str, object] = {"_step": step, "training/global_step": step}
            if step:
                row["train/num_gen_batches"] = 1 + (step % 3)
                row["critic/rewards/mean"] = round(-0.3 + step / 200, 4)
            if step in run.scores:
                row["val-core/math_dapo/acc/mean@32"] = run.scores[step]
                row["val-aux/math_dapo/acc/best@32/mean"] = min(1.0, run.scores[step] + 0.21)
            rows.append(row)
        to_csv(home / "history.csv", rows)
    return folder / "dapo"


# 2. verl's fully asynchronous trainer: train_batch_size is 0, a log step is a sync of the weights.

ASYNC = tuple(Run(128, n, curve(n, range(0, 161, 16)), 7) for n in (4, 8, 16))


def fully_async(folder: Path) -> Path:
    for run in ASYNC:
        home = folder / "async" / f"fully-async-n{run.n}"
        to_json(
            home / "config.json",
            {
                "data": {"train_batch_size": 0, "gen_batch_size": 1, "seed": run.seed},
                "actor_rollout_ref": {
                    "hybrid_engine": False,
                    "actor": {"ppo_mini_batch_size": 32},
                    "rollout": {"n": run.n, "mode": "async"},
                },
                "rollout": {"total_rollout_steps": 160 * 128, "nnodes": 2, "n_gpus_per_node": 8},
                "async_training": {
                    "staleness_threshold": 0.5,
                    "trigger_parameter_sync_step": 4,
                    "require_batches": 4,
                    "partial_rollout": True,
                },
                "trainer": {"val_before_train": True, "test_freq": 4},
            },
        )
        lines = []
        for version in range(0, 41):
            data: dict[str, object] = {
                "fully_async/count/current_param_version": version,
                "actor/lr": 1e-6,
            }
            if version * 4 in run.scores:
                data["val-core/openai/gsm8k/acc/mean@1"] = run.scores[version * 4]
            lines.append(json.dumps({"step": version, "data": data}))
        (home / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "async"


# 3. Unsloth raises the batch size per device to num_generations and says so in the console only.

UNSLOTH = tuple(Run(4, n, curve(n, range(50, 251, 50), digits=8), 3407) for n in (4, 8, 16))


def unsloth(folder: Path) -> Path:
    home = folder / "unsloth"
    home.mkdir(parents=True)
    for run in UNSLOTH:
        lines = [
            "Unsloth: Will patch your computer to enable 2x faster free finetuning.",
            "Unsloth 2025.11.1 patched 28 layers with 28 QKV layers and 28 MLP layers.",
            'config: {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, '
            f'"num_generations": {run.n}, "max_steps": 250, "eval_steps": 50, "seed": {run.seed}}}',
            "Unsloth: We now expect `per_device_train_batch_size` to be a multiple of "
            "`num_generations`.",
            f"We will change the batch size of 1 to the `num_generations` of {run.n}",
            "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1",
            "   \\\\   /|    Num examples = 7,473 | Num Epochs = 1 | Total steps = 250",
            f"O^O/ \\_/ \\    Batch size per device = {run.n} | Gradient accumulation steps = 4",
            "\\        /    Data Parallel GPUs = 1 | "
            f"Total batch size ({run.n} x 4 x 1) = {run.n * 4}",
            ' "-____-"     Trainable parameters = 119,734,272 of 3,205,672,960 (3.74% trained)',
        ]
        for step in range(1, 251):
            if step % 10 == 0:
                lines.append(
                    str(
                        {
                            "loss": 0.0012,
                            "grad_norm": 0.21,
                            "reward": round(0.3 + step / 1000, 4),
                            "reward_std": 0.31,
                            "completion_length": 212.5,
                            "epoch": round(step / 1868, 2),
                        }
                    )
                )
                lines.append(
                    f" {step * 100 // 250}%|####      | {step}/250 "
                    f"[{step // 10}:00<20:00,  6.01s/it]"
                )
            if step in run.scores:
                lines.append(
                    str(
                        {
                            "eval_loss": 0.0,
                            "eval_reward": run.scores[step],
                            "eval_reward_std": 0.2,
                            "eval_runtime": 61.2,
                            "eval_samples_per_second": 8.17,
                            "epoch": round(step / 1868, 2),
                        }
                    )
                )
        lines.append(
            str(
                {
                    "train_runtime": 1534.2,
                    "train_samples_per_second": 5.2,
                    "train_loss": 0.01,
                    "epoch": 0.13,
                }
            )
        )
        (home / f"train_G{run.n}.log").write_text("\n".join(lines) + "\n")
    return home


# 4. ms-swift: steps are "50/200"; completions are generated for eight passes, a step has four.

SWIFT = tuple(
    Run(
        256 // n,
        n,
        {step // 2: score for step, score in curve(n, range(50, 201, 50), digits=8).items()},
        42,
    )
    for n in (8, 16, 32)
)


def swift(folder: Path) -> Path:
    for run in SWIFT:
        home = folder / "swift" / f"grpo_n{run.n}" / "v0-20250911-101500"
        to_json(
            home / "args.json",
            {
                "rlhf_type": "grpo",
                "model": "Qwen/Qwen2.5-7B-Instruct",
                "per_device_train_batch_size": 8,
                "per_device_eval_batch_size": 8,
                "gradient_accumulation_steps": 4,
                "steps_per_generation": 8,
                "num_generations": run.n,
                "num_iterations": 1,
                "generation_batch_size": None,
                "global_world_size": 4,
                "world_size": 4,
                "max_steps": 200,
                "eval_steps": 50,
                "seed": run.seed,
            },
        )
        lines = []
        for step in range(5, 201, 5):
            progress = {
                "global_step/max_steps": f"{step}/200",
                "percentage": f"{step / 2:.2f}%",
                "elapsed_time": f"{step}m 3s",
                "remaining_time": f"{200 - step}m 3s",
            }
            lines.append(
                {
                    "loss": 0.0,
                    "reward": round(0.3 + step / 900, 6),
                    "rewards/MathAccuracy/mean": round(0.2 + step / 900, 6),
                    "rewards/Format/mean": 0.1,
                    "epoch": round(step / 467, 4),
                    **progress,
                }
            )
            if step // 2 in run.scores and step % 50 == 0:
                lines.append(
                    {
                        "eval_loss": 0.0,
                        "eval_rewards/MathAccuracy/mean": run.scores[step // 2],
                        "eval_rewards/MathAccuracy/std": 0.4,
                        "eval_runtime": 41.0,
                        "epoch": round(step / 467, 4),
                        **progress,
                    }
                )
        lines.append(
            {
                "train_runtime": 9000.1,
                "train_loss": 0.0,
                "epoch": 0.43,
                "global_step/max_steps": "200/200",
            }
        )
        (home / "logging.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (home / "completions.jsonl").write_text(
            "".join(
                json.dumps(
                    {
                        "step": [str(step)] * 2,
                        "prompt": ["What is 2+2?"] * 2,
                        "completion": ["4", "5"],
                        "MathAccuracy": [1.0, 0.0],
                        "advantages": [1.0, -1.0],
                    }
                )
                + "\n"
                for step in range(1, 6)
            )
        )
    return folder / "swift"


# 5. ROLL, agentic: rollout_batch_size counts trajectories; in its other pipeline it counts prompts.

ROLL = tuple(Run(128 // n, n, curve(n, range(0, 201, 20)), 42) for n in (4, 8, 16))


def roll_agentic(folder: Path) -> Path:
    for run in ROLL:
        home = folder / "roll" / f"frozen_lake_group{run.n}"
        home.mkdir(parents=True)
        (home / "agent_val_frozen_lake.yaml").write_text(
            "defaults:\n  - ../config/envs@_here_\n\n"
            f'exp_name: "frozen_lake_group{run.n}"\nseed: {run.seed}\ntrack_with: wandb\n'
            "num_gpus_per_node: 8\n\nmax_steps: 200\neval_steps: 20\nlogging_steps: 1\n\n"
            "rollout_batch_size: 128\nval_batch_size: 256\nsequence_length: 8192\n\n"
            "adv_estimator: grpo\nppo_epochs: 1\n\n"
            "actor_train:\n  training_args:\n    per_device_train_batch_size: 2\n"
            "    gradient_accumulation_steps: 8\n\n"
            "train_env_manager:\n  max_env_num_per_worker: 16\n"
            f"  num_env_groups: {run.bp}\n  group_size: {run.n}\n  tags: [FrozenLake]\n\n"
            "val_env_manager:\n  max_env_num_per_worker: 32\n"
            "  num_env_groups: 256\n  group_size: 1\n"
            "  tags: [FrozenLake]\n"
        )
        rows: list[dict[str, object]] = []
        for step in range(0, 201):
            row: dict[str, object] = {
                "_step": step,
                "system/step": step,
                "env/FrozenLake/success": 0.3,
            }
            row["rollout/score/mean"] = round(0.2 + step / 500, 4)
            if step in run.scores:
                row["val/env/FrozenLake/success/mean"] = run.scores[step]
            rows.append(row)
        to_csv(home / "wandb_history.csv", rows)
    return folder / "roll"


# 10. torchtune: batch_size is prompts on each of eight GPUs, and the number of GPUs is in no file.

TORCHTUNE = tuple(Run(8, n, curve(n, range(20, 201, 20)), 1234) for n in (4, 8, 16))


def torchtune(folder: Path) -> Path:
    for run in TORCHTUNE:
        home = folder / "torchtune" / f"qwen3b_grpo_g{run.n}" / "logs"
        home.mkdir(parents=True)
        (home / "torchtune_config.yaml").write_text(
            f"output_dir: ./torchtune/qwen3b_grpo_g{run.n}\nseed: {run.seed}\n"
            f"batch_size: 1\nnum_steps: 200\ngrpo_samples: {run.n}\n"
            "forward_batch_size: 1\n"
            "max_generated_tokens: 512\ntemperature: 1.0\nppo_epochs: 1\nclip_grad_norm: null\n"
            "steps_before_sync: 1\nmetric_logger:\n"
            "  _component_: torchtune.training.metric_logging.DiskLogger\n"
            "  log_dir: ${output_dir}/logs\nlog_every_n_steps: 1\n"
        )
        lines = []
        for step in range(1, 201):
            line = f"Step {step} | loss:0.0123 rewards:{0.4 + step / 900:.6f} "
            line += f"successes:{0.2 + step / 900:.6f} lr:1e-05"
            if step in run.scores:
                line += f" val/successes:{run.scores[step]}"
            lines.append(line + " ")
        (home / "log_1757500000.txt").write_text("\n".join(lines) + "\n")
    return folder / "torchtune"


# 11. slime in W&B: evaluation k comes after rollout k is trained on, but for the very first.

SLIME = tuple(Run(32, n, curve(n, [0, 20, 40, 60, 80, 100]), 42) for n in (8, 16, 32))


def slime(folder: Path) -> Path:
    for run in SLIME:
        home = folder / "slime" / f"qwen3-4b-n{run.n}"
        to_wandb_config(
            home / "files" / "config.yaml",
            {
                "rollout_batch_size": run.bp,
                "n_samples_per_prompt": run.n,
                "global_batch_size": run.bp * run.n // 2,
                "num_rollout": 100,
                "num_steps_per_rollout": 2,
                "eval_interval": 20,
                "n_samples_per_eval_prompt": 16,
                "seed": run.seed,
                "rollout_seed": 42,
                "wandb_always_use_train_step": False,
            },
        )
        rows: list[dict[str, object]] = []

        def log(rows: list[dict[str, object]] = rows, **values: object) -> None:
            rows.append(
                {"_step": len(rows)}
                | {key.replace("__", "/"): value for key, value in values.items()}
            )

        for rollout in range(100):
            if rollout == 0:
                log(eval__aime=run.scores[0], eval__step=0)
            log(rollout__raw_reward=round(0.2 + rollout / 300, 4), rollout__step=rollout)
            for inner in range(2):
                log(train__loss=0.01, train__step=rollout * 2 + inner)
            if (rollout + 1) % 20 == 0:
                log(eval__aime=run.scores[rollout + 1], eval__step=rollout)
        to_csv(home / "history.csv", rows)
    return folder / "slime"


# 14. SLURM array logs of verl: one job was killed while it wrote its last number.

SLURM = tuple(
    Run(128, n, curve(n, range(0, 81, 20) if n != 8 else range(0, 61, 20)), 1) for n in (4, 8, 16)
)


def slurm(folder: Path) -> Path:
    home = folder / "slurm"
    home.mkdir(parents=True)
    for number, run in enumerate(SLURM, 1):
        prefix = f"\x1b[36m(TaskRunner pid=21{number}4)\x1b[0m "
        lines = [
            "+ module load cuda/12.4",
            f"+ python3 -m verl.trainer.main_ppo data.train_batch_size={run.bp} data.seed=1 "
            f"actor_rollout_ref.rollout.n={run.n} actor_rollout_ref.actor.ppo_mini_batch_size=64 "
            "trainer.test_freq=20 trainer.total_training_steps=80 trainer.logger=['console']",
        ]
        for step in range(0, 81):
            line = f"{prefix}step:{step}"
            if step:
                line += (
                    f" - training/global_step:{step} - critic/rewards/mean:{0.2 + step / 300:.4f}"
                )
            if step in run.scores:
                line += f" - val-aux/gsm8k/reward/mean@1:{run.scores[step]}"
                line += f" - val-core/gsm8k/acc/mean@1:{run.scores[step]}"
            elif run.n == 8 and step == 80:
                line += " - val-aux/gsm8k/reward/mean@1:0.7318 - val-core/gsm8k/acc/mean@1:0.7"
                lines.append(line)
                break
            if step or step in run.scores:
                lines.append(line)
        end = "" if run.n == 8 else "\n"
        (home / f"slurm-88121_{number}.out").write_text("\n".join(lines) + end)
    return home
