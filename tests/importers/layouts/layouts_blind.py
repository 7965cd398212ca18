"""Logs as users of eleven trainers keep them, invented without a look at the readers.

Keys and names of settings are facts of the trainers' sources as of August 2026 (each function says
which). Every layout has three runs or more, one trap, and a planted truth that the import must give
back; `right` is None where the log does not hold the answer, so that only a refusal is right.
`layouts_blind_trainers.py` has more trainers, `layouts_blind_tables.py` the exports of trackers and
spreadsheets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

EVALUATED_AT = (0, 10, 20, 30, 40, 50, 60)
# (problems per batch, rollouts per problem, seed)
SWEEP = ((8, 4, 0), (8, 16, 0), (8, 64, 1))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """One run as it was: its allocation, and at each update the score and the rollouts so far."""

    problems_per_batch: int
    rollouts_per_problem: int
    seed: int | None
    scores: dict[int, float]
    rollouts: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Blind:
    """A layout: what is special in it, how it is written, and whether it can be answered at all."""

    trap: str
    write: Callable[[Path], list[Truth] | None]
    metric: str | None = None


LAYOUTS: dict[str, Blind] = {}


def layout(trap: str, *, metric: str | None = None) -> Callable[[Callable[..., object]], object]:
    """Enter the function under its own name."""

    def enter(write):  # type: ignore[no-untyped-def]
        LAYOUTS[write.__name__] = Blind(trap=trap, write=write, metric=metric)
        return write

    return enter


def score(n: int, seed: int, step: int) -> float:
    """A curve that rises faster where n is larger, to four digits."""
    return round(0.2 + 0.5 * (1 - math.exp(-step * (math.log2(n) + 1) / 150)) + 0.004 * seed, 4)


def truth(bp: int, n: int, seed: int | None, *, per_step: int | None = None) -> Truth:
    """The planted run; ``per_step`` where an update costs other than B_p x n rollouts."""
    cost = bp * n if per_step is None else per_step
    return Truth(
        problems_per_batch=bp,
        rollouts_per_problem=n,
        seed=seed,
        scores={step: score(n, seed or 0, step) for step in EVALUATED_AT},
        rollouts={step: cost * step for step in EVALUATED_AT},
    )


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def put_json(path: Path, value: object) -> None:
    put(path, json.dumps(value, indent=1))


def put_lines(path: Path, rows: list[dict]) -> None:
    put(path, "".join(json.dumps(row) + "\n" for row in rows))


def nested(flat: dict[str, object]) -> dict:
    """{"a.b": 1} as {"a": {"b": 1}}."""
    tree: dict = {}
    for name, value in flat.items():
        at = tree
        *folders, leaf = name.split(".")
        for folder in folders:
            at = at.setdefault(folder, {})
        at[leaf] = value
    return tree


def yaml_of(tree: dict, depth: int = 0) -> str:
    lines = []
    for name, value in tree.items():
        if isinstance(value, dict):
            lines.append("  " * depth + f"{name}:\n" + yaml_of(value, depth + 1))
        else:
            lines.append("  " * depth + f"{name}: {json.dumps(value)}\n")
    return "".join(lines)


@layout("four updates per rollout batch and generation in parts; three rewards beside each other")
def easyr1_experiment_log(root: Path) -> list[Truth]:
    """EasyR1 verl/utils/logger/logger.py FileLogger: nested values, the config beside the log."""
    for bp, n, seed in SWEEP:
        folder = root / "checkpoints" / "easy_r1" / f"qwen2_5_vl_3b_geo_{n}"
        settings = {
            "data.rollout_batch_size": bp,
            "data.mini_rollout_batch_size": bp // 2,
            "data.seed": seed,
            "worker.rollout.n": n,
            "worker.actor.global_batch_size": bp // 4,
            "worker.rollout.val_override_config": {"temperature": 0.6, "n": 1},
            "trainer.total_epochs": 15,
            "trainer.val_freq": 10,
            "trainer.val_before_train": True,
            "trainer.save_checkpoint_path": "checkpoints/easy_r1/x",
        }
        put_json(folder / "experiment_config.json", nested(settings))
        rows = []
        for step in range(61):
            row: dict = {"step": step}
            if step:
                row["reward"] = {"overall": 0.3, "format": 0.9, "accuracy": 0.25}
                row["actor"] = {"pg_loss": -0.01, "lr": 1e-6}
                row["perf"] = {"total_num_tokens": 7000, "time_per_step": 30.5}
            if step in EVALUATED_AT:
                right = score(n, seed, step)
                row["val"] = {
                    "reward_score": round(0.9 * right + 0.1, 4),
                    "overall_reward": round(0.9 * right + 0.1, 4),
                    "format_reward": 1.0,
                    "accuracy_reward": right,
                }
            rows.append(row)
        put_lines(folder / "experiment_log.jsonl", rows)
        put(folder / "generations.log", "[prompt] what is 2+2\n[output] 4\n")
    return [truth(*run) for run in SWEEP]


@layout("W&B's _step counts calls of log; the update is in train/global_step and eval/global_step")
def openrlhf_run_history(root: Path) -> list[Truth]:
    """OpenRLHF openrlhf/utils/logging_utils.py and trainer/ppo_trainer.py (eval_DS_pass1)."""
    for bp, n, seed in SWEEP:
        folder = root / f"openrlhf_grpo_{n}"
        config = {
            "rollout": {"batch_size": bp, "n_samples_per_prompt": n, "micro_batch_size": 4},
            "train": {"batch_size": bp * n, "num_episodes": 1, "seed": seed},
            "eval": {"n_samples_per_prompt": 4, "steps": 10},
        }
        put_json(folder / "config.json", config)
        columns = (
            "_step,_timestamp,train/global_step,train/reward,eval/global_step,"
            "eval/eval_aime_pass4,eval/eval_aime_pass1,eval/eval_num_samples"
        )
        lines, calls = [columns], 0
        for step in range(61):
            if step:
                lines.append(f"{calls},{1.7e9 + 60 * calls},{step},0.41,,,,")
                calls += 1
            if step in EVALUATED_AT:
                right = score(n, seed, step)
                best = round(1 - (1 - right) ** 2, 4)
                lines.append(f"{calls},{1.7e9 + 60 * calls},,,{step},{best},{right},120.0")
                calls += 1
        put(folder / "history.csv", "\n".join(lines) + "\n")
    return [truth(*run) for run in SWEEP]


@layout("train reward, validation accuracy and pass_k side by side; 1e6 planned steps")
def nemo_rl_history(root: Path) -> list[Truth]:
    """NeMo-RL nemo_rl/algorithms/grpo.py: prefixes train/ and validation/, config grpo.*."""
    for bp, n, seed in SWEEP:
        folder = root / "logs" / f"exp_00{n}" / "wandb" / f"run-2026080{seed + 1}_120000-abc{n}"
        grpo = {
            "num_prompts_per_step": bp,
            "num_generations_per_prompt": n,
            "max_num_steps": 1000000,
            "val_period": 10,
            "val_at_start": True,
            "max_val_samples": 256,
            "val_num_generations_per_prompt": 4,
            "batch_multiplier": 1,
            "use_dynamic_sampling": False,
            "seed": seed,
        }
        policy = {"train_global_batch_size": bp * n, "train_micro_batch_size": 4}
        text = "wandb_version: 1\n" + yaml_of(
            {"grpo": {"value": grpo}, "policy": {"value": policy}}
        )
        put(folder / "files" / "config.yaml", text)
        rows: list[dict] = []
        for step in range(61):
            if step:
                rows.append(
                    {"_step": step, "train/reward": 0.6, "train/total_num_tokens": 1000 * n}
                )
            if step in EVALUATED_AT:
                right = score(n, seed, step)
                values = {"accuracy": right, "pass_k": min(1.0, right + 0.2), "avg_length": 512.0}
                rows.append({"_step": step} | {f"validation/{k}": v for k, v in values.items()})
        put_lines(folder / "files" / "history.jsonl", rows)
    return [truth(*run) for run in SWEEP]


@layout("dynamic sampling: the batches generated per update vary and are more than those trained")
def verl_dapo_file_logger(root: Path) -> list[Truth]:
    """verl's FileLogger and hydra's folder; train/num_gen_batches of DAPO."""
    runs = []
    for bp, n, seed in SWEEP:
        folder = root / "outputs" / "2026-08-03" / f"1{n % 10}-12-0{seed}"
        settings = {
            "data.train_batch_size": bp,
            "data.gen_batch_size": 3 * bp,
            "data.seed": seed,
            "actor_rollout_ref.rollout.n": n,
            "actor_rollout_ref.rollout.val_kwargs.n": 32,
            "actor_rollout_ref.actor.ppo_mini_batch_size": bp // 4,
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.metric": "acc",
            "trainer.total_training_steps": 60,
            "trainer.experiment_name": f"dapo-n{n}",
        }
        put(folder / ".hydra" / "config.yaml", yaml_of(nested(settings)))
        put(folder / ".hydra" / "overrides.yaml", f"- data.train_batch_size={bp}\n")
        rows, generated = [], {0: 0}
        for step in range(61):
            data: dict = {}
            if step:
                batches = 1 + step % 2
                generated[step] = generated[step - 1] + batches * 3 * bp * n
                data = {"training/global_step": step, "train/num_gen_batches": batches}
                data["critic/score/mean"] = -0.2
            if step in EVALUATED_AT:
                right = score(n, seed, step)
                data["val-core/math_dapo/acc/mean@32"] = right
                data["val-core/math_dapo/acc/best@32/mean"] = min(1.0, right + 0.2)
                data["val-core/math_dapo/acc/maj@32/mean"] = min(1.0, right + 0.1)
                data["val-aux/math_dapo/score/mean@32"] = round(2 * right - 1, 4)
            rows.append({"step": step, "data": data})
        put_lines(folder / "logs" / "DAPO" / f"dapo-n{n}.jsonl", rows)
        base = truth(bp, n, seed)
        counted = {step: generated[step] for step in EVALUATED_AT}
        runs.append(
            Truth(
                problems_per_batch=bp,
                rollouts_per_problem=n,
                seed=seed,
                scores=base.scores,
                rollouts=counted,
            )
        )
    return runs


@layout("two optimizer steps per rollout batch; eval/step counts batches, train/step updates")
def slime_api_dump(root: Path) -> list[Truth]:
    """slime slime/observability: eval/step, rollout/step, train/step; arguments of its parser."""
    for bp, n, seed in SWEEP:
        config = {
            "rollout_batch_size": bp,
            "n_samples_per_prompt": n,
            "global_batch_size": bp * n // 2,
            "num_steps_per_rollout": 2,
            "num_rollout": 60,
            "eval_interval": 10,
            "n_samples_per_eval_prompt": 16,
            "rollout_seed": seed,
        }
        history: list[dict] = []
        for batch in range(61):
            if batch in EVALUATED_AT:
                right = score(n, seed, batch)
                values = {"eval/step": batch, "eval/aime": right, "eval/aime-truncated_ratio": 0.1}
                history.append(values)
            if batch < 60:
                history.append({"rollout/step": batch, "rollout/raw_reward": 0.4})
                history += [{"train/step": 2 * batch + i, "train/grad_norm": 0.2} for i in (0, 1)]
        rows = [{"_step": call} | row for call, row in enumerate(history)]
        dump = {"name": f"qwen3-4B-{n}", "id": f"x{n}", "config": config, "history": rows}
        put_json(root / f"x{n}.json", dump)
    return [truth(*run) for run in SWEEP]


@layout("columns __MIN and __MAX of a chart; B_p and n stand in the run's name only")
def skyrl_chart_csv(root: Path) -> list[Truth]:
    """SkyRL skyrl/train/utils/trainer_utils.py: eval/all/avg_score, trainer/global_step."""
    names = [f"gsm8k-tbs{bp}-nspp{n}-s{seed}" for bp, n, seed in SWEEP]
    key = "eval/all/avg_score"
    ends = ("", "__MIN", "__MAX")
    header = ["trainer/global_step"] + [f"{name} - {key}{end}" for name in names for end in ends]
    lines = [",".join(f'"{h}"' for h in header)]
    for step in EVALUATED_AT:
        cells = [str(step)]
        for _, n, seed in SWEEP:
            cells += [str(score(n, seed, step))] * 3
        lines.append(",".join(f'"{c}"' for c in cells))
    put(root / "wandb_export_2026-08-21T10_11_12.123+02_00.csv", "\n".join(lines) + "\n")
    return [truth(*run) for run in SWEEP]
