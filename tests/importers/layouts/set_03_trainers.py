"""Trainers' own logs and consoles of the third set; see `set_03.py`."""

from __future__ import annotations

import pprint
from pathlib import Path

from layouts_blind import EVALUATED_AT, SWEEP, Truth, put, put_json, put_lines, score, truth
from layouts_blind_tables import table
from set_03 import TRAINED, layout, runs, trl_arguments


@layout("a dictionary over many lines, its numbers are strings, the step stands above it")
def skyrl_console(root: Path) -> list[Truth]:
    """SkyRL skyrl_train/utils/tracking.py ConsoleLogger: loguru, then pprint of strings."""
    for bp, n, seed in SWEEP:
        text = ""
        for step in range(0, 61, 5):
            row: dict[str, object] = {}
            if step:
                row |= {"reward/avg_raw_reward": "0.5000", "trainer/global_step": step}
            if step in EVALUATED_AT:
                row |= {"eval/all/avg_score": f"{score(n, seed, step):.4f}",
                        "eval/all/pass_at_1": "0.9000", "trainer/global_step": step}
            text += ("2026-09-01 10:00:00.000 | INFO     | skyrl_train.utils.tracking:log:94 - "
                     f"Step {step}: \n{pprint.pformat(row)}\n")
        put(root / f"tbs{bp}_nspp{n}_seed{seed}.log", text)
    return runs()


@layout("evaluations are printed with the rollout's index from 0, one before training as well")
def slime_console(root: Path) -> list[Truth]:
    """slime slime/ray/rollout.py: `eval {rollout_id}: {log_dict}` and `rollout {id}: {...}`."""
    for bp, n, seed in SWEEP:
        lines = ["rollout_batch_size ............................ " + str(bp),
                 "n_samples_per_prompt .......................... " + str(n),
                 "global_batch_size ............................. " + str(bp * n),
                 "seed .......................................... " + str(seed)]
        for step in range(61):
            if step:
                lines.append(f"(RolloutManager pid=99) rollout {step - 1}: "
                             "{'rollout/raw_reward': 0.5, 'rollout/response_lengths': 900.0}")
            if step in EVALUATED_AT:
                shown = {"eval/aime24": score(n, seed, step), "eval/aime24-truncated_ratio": 0.1}
                lines.append(f"(RolloutManager pid=99) eval {max(step - 1, 0)}: {shown}")
        put(root / f"slime-{n}.log", "\n".join(lines) + "\n")
    return runs()


@layout("the accuracy stands on a line of its own below the banner of the step")
def nemo_rl_console(root: Path) -> list[Truth]:
    """NeMo-RL nemo_rl/algorithms/grpo.py prints banners and bullets, not keys."""
    for bp, n, seed in SWEEP:
        text = f"num_prompts_per_step: {bp}\nnum_generations_per_prompt: {n}\n"
        for step in range(0, 61, 10):
            if step:
                text += f"\n{'=' * 25} Step {step}/60 {'=' * 25}\n"
            text += ("▶ Starting validation at step " + str(step) + "...\n"
                     "\n📊 Validation Results:\n"
                     f"    • Accuracy: {score(n, seed, step):.4f}\n"
                     "    • Average response length: 812.3 tokens\n    • Samples processed: 256\n")
        put(root / f"bp{bp}_n{n}_seed{seed}" / "ray-driver.log", text)
    return runs()


@layout("the evaluation is printed before the step line of the same number")
def prime_rl_console(root: Path) -> list[Truth]:
    """prime-rl orchestrator log: `Evaluated NAME in 9.00s (Avg@8=..., Pass@1: ...)`, `Step N |`."""
    for bp, n, seed in SWEEP:
        lines = []
        for step in range(61):
            if step in EVALUATED_AT:
                lines.append("10:00:00    INFO Evaluated math500 in 9.00s (Avg@8="
                             f"{score(n, seed, step):.4f}, Pass@1: 0.3000, Pass@8: 0.8000, "
                             "Completion Length: 900.00 (±90.00, ∈[10.00, 2000.00]), "
                             "Truncated: 1.0%)")
            lines.append(f"10:00:01 SUCCESS Step {step} | Time: 30.00s | Reward: 0.5000 | "
                         "Throughput: 9000.0 tokens/s | Seq. Length: 900.0 tokens/sample")
        put(root / f"bp{bp}_n{n}_seed{seed}" / "logs" / "orchestrator.log", "\n".join(lines) + "\n")
    return runs()


@layout("rewards of the batch and evaluations are printed in two forms; the step in each line")
def openrlhf_console(root: Path) -> list[Truth]:
    """OpenRLHF trainer/ppo_trainer.py: `Global step N: {...}`, `Evaluation completed in ...`."""
    for bp, n, seed in SWEEP:
        lines = []
        for step in range(0, 61, 5):
            if step:
                lines.append(f"[INFO] ✨ Global step {step}: "
                             "{'policy_loss': 0.01, 'reward': 0.52, 'response_length': 800.0}")
            if step in EVALUATED_AT:
                shown = {"eval_math_pass4": 0.9, "eval_math_pass1": score(n, seed, step)}
                lines.append("[INFO] ✨ Evaluation completed in 0:00:09, "
                             f"global_step {step}, eval_metrics: {shown}")
        put(root / f"rbs{bp}_nspp{n}_seed{seed}.log", "\n".join(lines) + "\n")
    return runs()


@layout("the settings are echoed as GRPOConfig(...) above the printed rows")
def trl_console_echo(root: Path) -> list[Truth]:
    """print(training_args) of TRL, a name and value a line; then PrinterCallback's rows."""
    for bp, n, seed in SWEEP:
        echo = {"_n_gpu": 1, **trl_arguments(bp, n, seed), "run_name": "grpo"}
        text = "GRPOConfig(\n" + "".join(f"{k}={v!r},\n" for k, v in echo.items()) + ")\n"
        for step in range(0, 61, 5):
            if step:
                text += f"{{'loss': 0.01, 'reward': 0.5, 'epoch': {step / 60:.4f}}}\n"
            if step in EVALUATED_AT:
                text += (f"{{'eval_loss': 0.02, 'eval_reward': {score(n, seed, step)}, "
                         f"'epoch': {step / 60:.4f}}}\n")
            text += f" {100 * step // 60}%|███  | {step}/60 [00:{step:02d}<01:00,  1.00s/it]\n"
        put(root / f"job-{9000 + n}.out", text)
    return runs()


@layout("the settings are echoed in one line of a dataclass; the step is a fraction in words")
def swift_console(root: Path) -> list[Truth]:
    """ms-swift: `[INFO:swift] args: RLHFArguments(...)`, then rows with global_step/max_steps."""
    for bp, n, seed in SWEEP:
        given = ", ".join(f"{k}={v!r}" for k, v in trl_arguments(bp, n, seed).items())
        lines = ["[INFO:swift] Global seed set to 42",
                 f"[INFO:swift] args: RLHFArguments(rlhf_type='grpo', {given}, world_size=1)"]
        for step in range(0, 61, 5):
            row: dict[str, object] = {"epoch": step / 60, "global_step/max_steps": f"{step}/60",
                                      "percentage": f"{100 * step / 60:.2f}%"}
            if step:
                lines.append(str({"loss": 0.01, "reward": 0.5, **row}))
            if step in EVALUATED_AT:
                lines.append(str({"eval_loss": 0.02, "eval_reward": score(n, seed, step), **row}))
        put(root / f"swift_n{n}.log", "\n".join(lines) + "\n")
    return runs()


@layout("two evaluation sets: each has rows of its own, told apart in the middle of the key")
def trl_two_eval_sets(root: Path) -> list[Truth]:
    """TRL with eval_dataset={"math": ..., "code": ...}: eval_math_reward, eval_code_reward."""
    for bp, n, seed in SWEEP:
        folder = root / f"bp{bp}_n{n}_seed{seed}"
        history: list[dict] = []
        for step in range(0, 61, 5):
            if step:
                history.append({"step": step, "loss": 0.01, "reward": 0.5})
            if step in EVALUATED_AT:
                right = score(n, seed, step)
                history.append({"step": step, "eval_code_loss": 0.1,
                                "eval_code_reward": round(right - 0.1, 4)})
                history.append({"step": step, "eval_math_loss": 0.1, "eval_math_reward": right})
        put_json(folder / "trainer_state.json",
                 {"global_step": 60, "max_steps": 60, "log_history": history})
        put_json(folder / "training_args.json", trl_arguments(bp, n, seed))
    return runs()


@layout("evaluated with 4 samples, trained with n: num_generations_eval is another k")
def trl_other_k(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        history = [{"step": s, "eval_reward": score(n, seed, s)} for s in EVALUATED_AT]
        folder = root / f"run-{n}"
        put_json(folder / "trainer_state.json",
                 {"global_step": 60, "max_steps": 60, "log_history": history})
        put_json(folder / "training_args.json",
                 trl_arguments(bp, n, seed) | {"num_generations_eval": 4})
    return runs()


@layout("train_batch_size in trainer_state.json is that of one device")
def trl_state_alone(root: Path) -> list[Truth]:
    for _, n, seed in SWEEP:
        history = [{"step": s, "eval_reward": score(n, seed, s)} for s in EVALUATED_AT]
        put_json(root / f"gen{n}-seed{seed}" / "checkpoint-60" / "trainer_state.json",
                 {"global_step": 60, "max_steps": 60, "train_batch_size": 4, "num_train_epochs": 1,
                  "log_history": history})
    return runs()


@layout("the number of devices is not in the arguments: _n_gpu is that of one process")
def trl_devices_unknown(root: Path) -> list[Truth]:
    """TrainingArguments.to_json_string() of a launch on 4 devices, of older TRL."""
    for bp, n, seed in SWEEP:
        history = [{"step": s, "eval_reward": score(n, seed, s)} for s in EVALUATED_AT]
        folder = root / f"run-{n}"
        put_json(folder / "trainer_state.json",
                 {"global_step": 60, "max_steps": 60, "log_history": history})
        put_json(folder / "training_args.json",
                 {"per_device_train_batch_size": n, "gradient_accumulation_steps": bp // 4,
                  "num_generations": n, "_n_gpu": 1, "local_rank": 0, "seed": seed})
    return runs()


@layout("num_generations counts prompts here; samples_per_prompt is n")
def generations_are_prompts(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        folder = root / f"exp{n}"
        put_json(folder / "config.json",
                 {"num_generations": bp, "samples_per_prompt": n, "seed": seed})
        put_lines(folder / "metrics.jsonl",
                  [{"step": s, "eval/accuracy": score(n, seed, s)} for s in EVALUATED_AT])
    return runs()


@layout("global_batch_size counts samples, not problems")
def global_batch_of_samples(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        folder = root / f"exp{n}"
        put_json(folder / "config.json",
                 {"global_batch_size": bp * n, "group_size": n, "seed": seed})
        put_lines(folder / "metrics.jsonl",
                  [{"step": s, "eval/accuracy": score(n, seed, s)} for s in EVALUATED_AT])
    return runs()


@layout("batch_size is a micro-batch; accumulation and devices make the batch")
def micro_batch(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        folder = root / f"exp{n}"
        put_json(folder / "config.json",
                 {"batch_size": 2, "gradient_accumulation_steps": bp * n // 4, "world_size": 2,
                  "num_generations": n, "seed": seed})
        put_lines(folder / "metrics.jsonl",
                  [{"step": s, "eval/accuracy": score(n, seed, s)} for s in EVALUATED_AT])
    return runs()


@layout("score is the training reward; the evaluation is eval_score and comes every tenth row")
def train_score(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        rows = []
        for step in range(61):
            row: dict = {"step": step, "score": 0.55, "kl": 0.01}
            if step in EVALUATED_AT:
                row["eval_score"] = score(n, seed, step)
            rows.append(row)
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)
    return runs()


@layout("greedy and sampled evaluations stand side by side, greedy first")
def greedy_and_sampled(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        rows = [{"step": s, "val": {"greedy": {"accuracy": round(score(n, seed, s) + 0.08, 4)},
                                    "sampled": {"accuracy": score(n, seed, s)}}}
                for s in EVALUATED_AT]
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)
    return runs()


@layout("numbers are printed tensors, and rows of NaN lie between")
def printed_tensors(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        rows: list[dict] = []
        for step in EVALUATED_AT:
            value = f"tensor({score(n, seed, step):.4f}, device='cuda:0', dtype=torch.bfloat16)"
            rows.append({"step": step, "eval_reward": value})
            rows.append({"step": step + 5, "eval_reward": "nan"})
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)
    return runs()


@layout("n and B_p stand in the run's name alone, beside five other numbers")
def names_with_numbers(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        rows = [{"step": s, "data": {"val-core/math/acc/mean@4": score(n, seed, s)}}
                for s in EVALUATED_AT]
        put_lines(root / f"qwen3-4b_2k-8k_G{n}_B{bp}_lr1e-6_T1.0_s{seed}.jsonl", rows)
    return runs()


@layout("Lightning's step is the index of the batch: the tenth update has step 9")
def lightning_csv(root: Path) -> list[Truth]:
    """lightning CSVLogger: lightning_logs/version_N/metrics.csv and hparams.yaml."""
    for index, (bp, n, seed) in enumerate(SWEEP):
        folder = root / "lightning_logs" / f"version_{index}"
        put(folder / "hparams.yaml", f"prompts_per_batch: {bp}\nsamples_per_prompt: {n}\n"
                                     f"seed: {seed}\nlr: 1.0e-06\n")
        rows: list[list[object]] = []
        for step in range(5, 61, 5):
            rows.append([0, step - 1, 0.55, ""])
            if step in EVALUATED_AT:
                rows.append([0, step - 1, "", score(n, seed, step)])
        table(folder / "metrics.csv", ["epoch", "step", "train/reward", "val/accuracy"], rows)
    return runs(after=1)


@layout("every row holds the settings; the update is training_iteration")
def ray_tune(root: Path) -> list[Truth]:
    """Ray Tune result.json: JSON lines with the trial's config in each."""
    for bp, n, seed in SWEEP:
        rows = [
            {"eval/accuracy": score(n, seed, s), "training_iteration": s, "done": s == 60,
             "trial_id": f"a1b2c_{n:05d}", "timestamp": 1756720000 + 30 * s,
             "time_total_s": 30.0 * s, "iterations_since_restore": s, "hostname": "node1",
             "config": {"prompts_per_batch": bp, "samples_per_prompt": n, "seed": seed,
                        "lr": 1e-6}}
            for s in EVALUATED_AT
        ]
        put_lines(root / "tune" / f"train_{n:05d}" / "result.json", rows)
    return runs()


@layout("no evaluation before training: the first is after ten updates")
def no_step_zero(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        rows = []
        for step in range(1, 61):
            data = {"critic/score/mean": 0.5, "training/global_step": step}
            if step in EVALUATED_AT:
                data["val-core/math/acc/mean@4"] = score(n, seed, step)
            rows.append({"step": step, "data": data})
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)
    return runs(after=1)


@layout("one file of one run holds two trainings, the second of another n, both from step 0")
def appended_runs(root: Path) -> None:
    """verl's file logger appends where experiment_name was not changed; nothing says n."""
    rows = [{"step": s, "data": {"val-core/math/acc/mean@4": score(n, 0, s)}}
            for n in (4, 16, 64) for s in EVALUATED_AT]
    put_lines(root / "grpo.jsonl", rows)


@layout("steps are counted in samples: 320 for ten updates of 32, and the key says step")
def steps_of_samples(root: Path) -> list[Truth]:
    """A loop that logs `consumed_samples` beside the step of its own name."""
    for bp, n, seed in SWEEP:
        rows = [{"step": bp * n * s, "consumed_samples": bp * n * s,
                 "eval/accuracy": score(n, seed, s)} for s in EVALUATED_AT]
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)
    return runs()


@layout("the score is an error rate: it falls")
def error_rate(root: Path) -> list[Truth]:
    for bp, n, seed in SWEEP:
        rows = [{"step": s, "eval/error_rate": round(1 - score(n, seed, s), 4)}
                for s in EVALUATED_AT]
        put_lines(root / f"bp{bp}_n{n}_seed{seed}.jsonl", rows)
    return [truth(*run) for run in SWEEP]


# Rows of training alone lie between the evaluations.
assert set(EVALUATED_AT) - {0} <= set(TRAINED)
