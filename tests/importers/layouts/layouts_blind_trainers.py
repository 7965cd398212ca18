"""More trainers' logs, invented without a look at the readers; see `layouts_blind.py`."""

from __future__ import annotations

import gzip
from pathlib import Path

from layouts_blind import (
    EVALUATED_AT,
    SWEEP,
    Truth,
    layout,
    put,
    put_json,
    put_lines,
    score,
    truth,
    yaml_of,
)


@layout("val/... are statistics of training; episode counts rollouts, training_step updates")
def open_instruct_metrics(root: Path) -> list[Truth]:
    """open-instruct open_instruct/grpo_fast.py: training_step, episode, val/* of the batch."""
    for bp, n, seed in SWEEP:
        folder = root / f"grpo_fast__{n}__{seed}__1754000000"
        args = {
            "num_unique_prompts_rollout": bp,
            "num_samples_per_prompt_rollout": n,
            "num_mini_batches": 1,
            "num_epochs": 1,
            "total_episodes": 60 * bp * n,
            "seed": seed,
            "exp_name": "grpo_fast",
            "eval_pass_at_k": 1,
        }
        put_json(folder / "args.json", args)
        rows = []
        for step in range(61):
            row: dict = {"training_step": step, "episode": step * bp * n}
            if step:
                row |= {"val/stop_rate": 0.97, "val/num_total_tokens": step * 512 * bp * n}
                row |= {"objective/verifiable_correct_rate": 0.44, "val/advantages_mean": 0.0}
            if step in EVALUATED_AT:
                row["eval/objective/verifiable_correct_rate"] = score(n, seed, step)
                row["eval/sequence_lengths"] = 900.0
            rows.append(row)
        put_lines(folder / "metrics.jsonl", rows)
    return [truth(*run) for run in SWEEP]


@layout("a console log whose Train step is one ahead of the counter; evaluation in a table")
def areal_console(root: Path) -> list[Truth]:
    """AReaL areal/utils/stats_logger.py: 'Train step 10/60 done.', then a table of stats."""
    for bp, n, seed in SWEEP:
        folder = root / "areal" / "logs" / "user" / "gsm8k-grpo" / f"trial{n}"
        config = {
            "seed": seed,
            "total_train_epochs": 1,
            "gconfig": {"n_samples": n, "max_new_tokens": 1024},
            "train_dataset": {"batch_size": bp, "path": "openai/gsm8k"},
        }
        put(folder / "config.yaml", yaml_of(config))
        lines = []
        for step in range(1, 61):
            lines.append(
                f"20260803-12:{step:02d}:07.123 StatsLogger INFO: Epoch 1/1 Step {step}/60 "
                f"Train step {step}/60 done."
            )
            lines.append("20260803-12:00:07.124 StatsLogger INFO: Stats (1/1):")
            lines.append("│ grpo_actor/task_reward/avg │ 3.1e-01 │ timeperf/train_step │ 7.1e+00 │")
            if step in EVALUATED_AT:
                lines.append(f"│ eval-rollout/reward          │ {score(n, seed, step):.4e} │")
        put(folder / "main.log", "\n".join(lines) + "\n")
    return [
        Truth(
            problems_per_batch=bp,
            rollouts_per_problem=n,
            seed=seed,
            scores={s: score(n, seed, s) for s in EVALUATED_AT if s},
            rollouts={s: s * bp * n for s in EVALUATED_AT if s},
        )
        for bp, n, seed in SWEEP
    ]


@layout("per-GPU batch, accumulation, eight GPUs; two iterations over each generated batch")
def swift_logging_jsonl(root: Path) -> list[Truth]:
    """ms-swift: logging.jsonl with 'global_step/max_steps', args.json beside it; TRL's batches."""
    runs = []
    for bp, n, seed in SWEEP:
        folder = root / "output" / "Qwen2.5-7B" / f"v{n}-20260803-120000"
        args = {
            "rlhf_type": "grpo",
            "per_device_train_batch_size": bp * n // 16,
            "gradient_accumulation_steps": 2,
            "global_world_size": 8,
            "num_generations": n,
            "num_iterations": 2,
            "steps_per_generation": 2,
            "generation_batch_size": bp * n,
            "max_steps": 120,
            "seed": seed,
        }
        put_json(folder / "args.json", args)
        rows: list[dict] = []
        for step in range(0, 121, 10):
            done = {"global_step/max_steps": f"{step}/120", "percentage": f"{step / 1.2:.2f}%"}
            if step:
                rows.append({"loss": 0.01, "reward": 0.5, "epoch": step / 400} | done)
            if step % 20 == 0:
                right = score(n, seed, step // 2)
                rows.append({"eval_reward": right, "eval_rewards/MathAccuracy/mean": right} | done)
        rows.append({"train_runtime": 3600.0, "global_step": 120, "last_model_checkpoint": "x"})
        put_lines(folder / "logging.jsonl", rows)
        runs.append(
            Truth(
                problems_per_batch=bp,
                rollouts_per_problem=n,
                seed=seed,
                scores={2 * s: score(n, seed, s) for s in EVALUATED_AT},
                rollouts={2 * s: s * bp * n for s in EVALUATED_AT},
            )
        )
    return runs


@layout("batch_size counts rollouts; the settings are TOML in a folder beside the metrics")
def prime_rl_run(root: Path) -> list[Truth]:
    """prime-rl: orchestrator's batch_size and group_size, progress/total_*, avg@k, pass@k."""
    for bp, n, seed in SWEEP:
        folder = root / "outputs" / f"math-g{n}"
        put(
            folder / "configs" / "orchestrator.toml",
            f"max_steps = 60\nbatch_size = {bp * n}\ngroup_size = {n}\nseed = {seed}\n\n"
            "[eval]\ninterval = 10\n\n[[eval.env]]\nname = 'math500'\ngroup_size = 4\n",
        )
        rows = []
        for step in range(61):
            row: dict = {"step": step, "_timestamp": 1.7e9 + 30 * step}
            if step:
                row |= {"progress/total_rollouts": step * bp * n, "progress/rollouts": bp * n}
                row |= {"progress/total_tokens": step * bp * n * 700, "reward/all/mean": 0.4}
            if step in EVALUATED_AT:
                right = score(n, seed, step)
                row["eval/math500/all/solver/avg@4"] = right
                row["eval/math500/effective/solver/avg@4"] = right
                row["eval/math500/effective/solver/pass@4"] = min(1.0, right + 0.2)
                row["eval/math500/policy_version"] = float(step)
            rows.append(row)
        put_lines(folder / "metrics.jsonl", rows)
    return [truth(*run) for run in SWEEP]


@layout("a reward of 0 to 2, checkpoints that repeat the history, settings only in folder names")
def unsloth_checkpoints(root: Path) -> list[Truth]:
    """Unsloth's GRPO notebooks on TRL: trainer_state.json in each checkpoint-N."""
    for bp, n, seed in SWEEP:
        for last in (30, 60):
            history = []
            for step in range(0, last + 1, 10):
                epoch = round(step / 900, 4)
                if step:
                    history.append({"step": step, "epoch": epoch, "reward": 2.1, "loss": 0.0})
                value = round(2 * score(n, seed, step), 4)
                history.append(
                    {
                        "step": step,
                        "epoch": epoch,
                        "eval_rewards/correctness_reward_func/mean": value,
                        "eval_runtime": 12.5,
                    }
                )
            state = {
                "global_step": last,
                "max_steps": 60,
                "train_batch_size": bp * n // 4,
                "logging_steps": 10,
                "log_history": history,
            }
            name = f"llama3_bp{bp}_gen{n}_seed{seed}"
            put_json(root / "outputs" / name / f"checkpoint-{last}" / "trainer_state.json", state)
    return [truth(*run) for run in SWEEP]


@layout("each generated batch is trained on twice, so an update costs half a batch of rollouts")
def trl_reused_batches(root: Path) -> list[Truth]:
    """TRL GRPOConfig.num_iterations = 2, saved by to_json_string beside trainer_state.json."""
    runs = []
    for bp, n, seed in SWEEP:
        folder = root / f"mu2-g{n}"
        args = {
            "output_dir": "mu2",
            "per_device_train_batch_size": bp * n // 4,
            "gradient_accumulation_steps": 4,
            "steps_per_generation": 4,
            "num_generations": n,
            "num_iterations": 2,
            "generation_batch_size": bp * n,
            "world_size": 1,
            "seed": seed,
            "max_steps": 60,
            "eval_steps": 10,
        }
        put_json(folder / "training_args.json", args)
        history = [
            {"step": s, "epoch": s / 100, "eval_reward": score(n, seed, s), "eval_loss": 0.0}
            for s in EVALUATED_AT
        ]
        put_json(folder / "trainer_state.json", {"global_step": 60, "log_history": history})
        runs.append(truth(bp, n, seed, per_step=bp * n // 2))
    return runs


@layout("numbers as np.float64(...), a restart that repeats ten steps in a second file")
def verl_console_resumed(root: Path) -> list[Truth]:
    """verl's ConsoleLogger line 'step:10 - key:value - ...', the config printed before it."""
    for bp, n, seed in SWEEP:
        head = (
            "{'actor_rollout_ref': {'actor': {'ppo_mini_batch_size': 4},\n"
            f"                       'rollout': {{'n': {n}, 'val_kwargs': {{'n': 4}}}}}},\n"
            f" 'data': {{'seed': {seed}, 'train_batch_size': {bp}}},\n"
            " 'trainer': {'total_training_steps': 60}}\n"
        )
        for part, (first, last) in enumerate(((0, 35), (31, 60))):
            lines = [head] if part == 0 else [head, "Setting global step to 30\n"]
            for step in range(first, last + 1):
                line = f"\x1b[36m(TaskRunner pid=4711)\x1b[0m step:{step}"
                if step in EVALUATED_AT:
                    right = score(n, seed, step)
                    line += f" - val-core/openai/gsm8k/acc/mean@4:np.float64({right})"
                    line += f" - val-core/openai/gsm8k/acc/best@4/mean:np.float64({right + 0.2})"
                    line += f" - val-core/openai/gsm8k/acc/maj@4/mean:np.float64({right + 0.1})"
                if step:
                    line += f" - training/global_step:{step} - actor/entropy:np.float64(nan)"
                    line += f" - perf/total_num_tokens:{bp * n * 300}"
                lines.append(line + "\n")
            put(root / f"run_n{n}" / f"train_part{part + 1}.log", "".join(lines))
    return [truth(*run) for run in SWEEP]


@layout("gzipped job output; batch from the command line; dicts of strings, steps in the bar only")
def trl_slurm_output(root: Path) -> list[Truth]:
    """TRL printed by transformers' PrinterCallback, between tqdm's bars."""
    for index, (bp, n, seed) in enumerate(SWEEP):
        text = (
            "+ accelerate launch --num_processes 4 grpo.py --per_device_train_batch_size "
            f"{bp * n // 8} --gradient_accumulation_steps 2 --num_generations {n} --seed {seed} "
            "--max_steps 60 --eval_steps 10 --logging_steps 10\n"
        )
        for step in EVALUATED_AT:
            if step:
                text += f"\r{step * 100 // 60:3d}%|█████     | {step}/60 [12:00<10:00, 9.9s/it]\n"
                text += f"{{'loss': '0.0', 'reward': '0.4', 'epoch': '{step / 100}'}}\n"
            right = score(n, seed, step)
            text += f"{{'eval_loss': '0.0', 'eval_reward': '{right}', 'epoch': '{step / 100}'}}\n"
        root.mkdir(parents=True, exist_ok=True)
        (root / f"slurm-99120_{index}.out.gz").write_bytes(gzip.compress(text.encode()))
    return [truth(*run) for run in SWEEP]


@layout("a reward of -1 to 1 is the only score")
def verl_signed_reward(root: Path) -> list[Truth]:
    """verl with reward_manager=dapo: score is 1 or -1."""
    for bp, n, seed in SWEEP:
        rows = [
            {
                "step": step,
                "data": {
                    "val-core/math_dapo/reward/mean@8": round(2 * score(n, seed, step) - 1, 4)
                },
            }
            for step in EVALUATED_AT
        ]
        put_lines(root / f"tbs{bp}-n{n}-seed{seed}.jsonl", rows)
    return [truth(*run) for run in SWEEP]


@layout("checkpoints scored by another program; the step is a folder's name; stderr stands beside")
def lm_eval_folders(root: Path) -> list[Truth]:
    """lm-evaluation-harness results.json for each checkpoint of each run."""
    for bp, n, seed in SWEEP:
        for step in EVALUATED_AT:
            values = {
                "alias": "gsm8k",
                "exact_match,strict-match": score(n, seed, step),
                "exact_match_stderr,strict-match": 0.013,
            }
            folder = root / "evals" / f"bp{bp}_n{n}_seed{seed}" / f"checkpoint-{step}"
            put_json(
                folder / "results.json", {"results": {"gsm8k": values}, "n-shot": {"gsm8k": 5}}
            )
    return [truth(*run) for run in SWEEP]
