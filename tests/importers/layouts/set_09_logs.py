"""The ninth set of invented logs: consoles, checkpoints and trackers. See `set_09`."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

from set_09 import Layout, Run, run, score


def _at(each: Run) -> dict[int, float]:
    return dict(zip(each.steps, each.scores, strict=True))


# 4. The console of verl, teed and appended to by a run that crashed and went on.

CONSOLE = tuple(run(f"train_n{n}", 256, n, range(0, 41, 10)) for n in (4, 8, 16))


def console(folder: Path) -> None:
    folder.joinpath("logs").mkdir()
    for each in CONSOLE:
        lines = [
            "nohup: ignoring input",
            "2025-10-02 21:02:59,766\tINFO worker.py:1843 -- Started a local Ray instance.",
            *_verl_config(each),
            *_verl_steps(each, 0, 27),
            "\x1b[36m(TaskRunner pid=4211)\x1b[0m Error executing job with overrides: []",
            "ray.exceptions.OutOfMemoryError: Task was killed, the node ran low on memory.",
            "nohup: ignoring input",
            *_verl_config(each),
            "\x1b[36m(TaskRunner pid=977)\x1b[0m Setting global step to 20",
            "\x1b[36m(TaskRunner pid=977)\x1b[0m Resuming from checkpoints/n/global_step_20",
            *_verl_steps(each, 20, 41, resumed=True),
        ]
        (folder / "logs" / f"{each.name}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _verl_config(each: Run) -> list[str]:
    mark = "\x1b[36m(TaskRunner pid=4211)\x1b[0m "
    return [
        mark + "{'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,",
        mark + "                                 'ppo_mini_batch_size': 64,",
        mark + "                                 'rollout_n': 1},",
        mark + f"                       'rollout': {{'n': {each.rollouts_per_problem},",
        mark + "                                   'name': 'vllm',",
        mark + "                                   'val_kwargs': {'do_sample': True, 'n': 4}}},",
        mark + " 'data': {'seed': None, 'train_batch_size': 256, 'val_batch_size': None},",
        mark + " 'trainer': {'resume_mode': 'auto', 'test_freq': 10, 'total_training_steps': 40}}",
    ]


def _verl_steps(each: Run, begin: int, end: int, *, resumed: bool = False) -> list[str]:
    at, lines = _at(each), []
    mark = f"\x1b[36m(TaskRunner pid={977 if resumed else 4211})\x1b[0m "
    key = "val-core/openai/gsm8k/acc/mean@4"
    for step in range(begin, end):
        parts = []
        if step > begin or (resumed and step > 20):
            parts.append(f"critic/score/mean:np.float64({0.3 + step / 100})")
            parts.append(f"training/global_step:{step}")
        if step in at:
            parts.append(f"{key}:np.float64({at[step]})")
            parts.append(f"val-core/openai/gsm8k/acc/best@4/mean:np.float64({at[step] + 0.1:.4f})")
        if step == begin:
            pprinted = f"('Initial validation metrics: {{'{key}': {at[step]}}}')"
            lines.append(mark + pprinted)
        bar = f"Training Progress:  {step}%|█         | {step}/40 [03:22<1:10:20, 81.49s/it]"
        if parts:
            lines.append(mark + (bar if step else "") + f"step:{step} - " + " - ".join(parts))
    return lines


# 5. The file logger of verl: two evaluation sets, each with mean, best and maj.

JSONL = tuple(run(f"qwen3_4b_bs128_n{n}", 128, n, range(0, 61, 15)) for n in (8, 16, 32))


def jsonl(folder: Path) -> None:
    folder.joinpath("dapo-sweep").mkdir()
    for each in JSONL:
        at, lines = _at(each), []
        for step in range(0, 61):
            data: dict[str, object] = {}
            if step:
                data |= {"training/global_step": step, "critic/rewards/mean": round(step / 90, 4)}
            if step in at:
                aime = round(at[step] / 3, 4)
                data |= {
                    "val-core/math500/acc/mean@4": at[step],
                    "val-core/math500/acc/maj@4/mean": round(at[step] + 0.04, 4),
                    "val-core/math500/acc/best@4/mean": round(at[step] + 0.11, 4),
                    "val-aux/math500/reward/mean@4": round(2 * at[step] - 1, 4),
                    "val-core/aime_2025/acc/mean@32": aime,
                    "val-core/aime_2025/acc/best@32/mean": round(3 * aime, 4),
                    "val-aux/num_turns/mean": 2.0,
                }
            if data:
                lines.append(json.dumps({"step": step, "data": data}))
        text = "\n".join(lines) + "\n"
        (folder / "dapo-sweep" / f"{each.name}.jsonl").write_text(text, encoding="utf-8")


# 6. Output folders of TRL: a trainer_state.json in every checkpoint, each repeats the ones before.

CHECKPOINTS = tuple(
    run(f"grpo-n{n}-seed{seed}", 32, n, range(0, 151, 50), seed=seed)
    for n in (4, 8, 16)
    for seed in (0, 1)
)


def checkpoints(folder: Path) -> None:
    for each in CHECKPOINTS:
        at, history = _at(each), []
        for step in range(0, 151, 10):
            epoch = round(step / 300, 4)
            if step:
                history.append(
                    {"epoch": epoch, "learning_rate": 1e-06, "loss": 0.001, "reward": 0.5,
                     "num_tokens": 4096.0 * step, "step": step}
                )  # fmt: skip
            if step in at:
                history.append(
                    {"epoch": epoch, "eval_loss": 0.0, "eval_reward": at[step],
                     "eval_rewards/accuracy_reward/mean": at[step], "eval_reward_std": 0.31,
                     "eval_runtime": 33.1, "step": step}
                )  # fmt: skip
            if step in (50, 100, 150):
                state = {
                    "best_metric": None, "epoch": epoch, "eval_steps": 50, "global_step": step,
                    "is_world_process_zero": True, "log_history": list(history),
                    "logging_steps": 10, "max_steps": 150, "num_train_epochs": 1,
                    "train_batch_size": 8, "trial_name": None,
                }  # fmt: skip
                place = folder / "outputs" / each.name / f"checkpoint-{step}"
                place.mkdir(parents=True)
                (place / "trainer_state.json").write_text(json.dumps(state, indent=2))
                (place / "config.json").write_text('{"model_type": "qwen2", "vocab_size": 151936}')


# 7. The console of TRL: dictionaries between progress bars; the lines hold an epoch and no step.

PRINTED = tuple(run(f"g{n}", 8, n, range(50, 201, 50)) for n in (4, 8, 16))


def printed(folder: Path) -> None:
    folder.joinpath("slurm").mkdir()
    for each in PRINTED:
        at, text = _at(each), _bar(0, 200)
        for step in range(1, 201):
            text += "\r" + _bar(step, 200)
            if step % 10 == 0:
                line = {"loss": 0.0012, "grad_norm": 0.41, "learning_rate": 1e-06,
                        "reward": round(score(8, step, seed=each.rollouts_per_problem), 4),
                        "reward_std": 0.21, "epoch": round(step / 400, 2)}  # fmt: skip
                text += f"\r{' ' * 60}\r{line}\n\r{_bar(step, 200)}"
            if step in at:  # a bar of its own, which ends at 16 of 16
                text += "".join(f"\n\r{_bar(batch, 16)}\x1b[A" for batch in range(0, 17, 4))
                line = {"eval_loss": 0.0004, "eval_runtime": 21.4, "eval_samples_per_second": 6.0,
                        "eval_reward": at[step], "eval_reward_std": 0.33,
                        "epoch": round(step / 400, 2)}  # fmt: skip
                text += f"\r{' ' * 60}\r{line}\n\r{_bar(step, 200)}\n\r{_bar(16, 16)}\x1b[A"
        text += "\n{'train_runtime': 801.5, 'train_loss': 0.0011, 'epoch': 0.5}\n"
        (folder / "slurm" / f"slurm-{each.name}.out").write_text(text, encoding="utf-8")


def _bar(step: int, total: int) -> str:
    done = "█" * (10 * step // total)
    return (
        f"{100 * step // total:3d}%|{done:<10}| {step}/{total} [{step % 60:02d}:11<1:40, 3.1s/it]"
    )


# 8. Event files of OpenRLHF in TensorBoard folders; one run was resumed in a second file.

EVENTS = tuple(run(f"rbs128_n{n}", 128, n, range(10, 61, 10)) for n in (4, 8, 16))


def events(folder: Path) -> None:
    for each in EVENTS:
        at = _at(each)
        place = folder / "tb_logs" / each.name
        place.mkdir(parents=True)
        parts = [(1, 60)] if each.rollouts_per_problem != 16 else [(1, 38), (31, 60)]
        for number, (begin, end) in enumerate(parts):
            found: list[tuple[int, str, float]] = []
            for step in range(begin, end + 1):
                found.append((step, "train/reward", 0.3 + step / 200 + 0.01 * number))
                found.append((step, "train/global_step", float(step)))
                if step in at:
                    found.append((step, "eval/eval_math_pass1", at[step]))
                    found.append((step, "eval/eval_math_pass4", at[step] + 0.15))
            clock = 1758000000 + 90000 * number
            name = f"events.out.tfevents.{clock}.gpu07.{4000 + number}.0"
            (place / name).write_bytes(event_file(found, clock))


def event_file(found: Sequence[tuple[int, str, float]], clock: int) -> bytes:
    """Scalars as TensorBoard keeps them: records of protocol buffers with masked checksums."""
    events = [_double(1, clock) + _bytes(3, b"brain.Event:2")]
    for place, (step, tag, value) in enumerate(found):
        scalar = _bytes(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)
        body = _double(1, clock + place) + bytes([2 << 3]) + _varint(step)
        events.append(body + _bytes(5, _bytes(1, scalar)))
    return b"".join(_record(event) for event in events)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _bytes(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


# 9. A folder of MLflow written by verl: one run failed early, one was deleted by its user.

MLRUNS = tuple(run(f"gsm8k_n{n}", 64, n, range(0, 101, 20)) for n in (4, 8, 16))


def mlruns(folder: Path) -> None:
    made = [
        *((each, each.scores, "3", "active") for each in MLRUNS),
        (MLRUNS[0], MLRUNS[0].scores[:1], "4", "active"),
        (MLRUNS[1], tuple(one / 2 for one in MLRUNS[1].scores), "3", "deleted"),
    ]
    root = folder / "mlruns" / "486712345678901234"
    root.mkdir(parents=True)
    (root / "meta.yaml").write_text(
        "experiment_id: '486712345678901234'\nlifecycle_stage: active\nname: gsm8k\n"
    )
    for number, (each, scores, status, stage) in enumerate(made):
        place = root / f"{number:02d}aa0c4e5b7d4f0f9a1b2c3d4e5f60{number:02d}"
        values: dict[str, object] = {
            "params/data/train_batch_size": 64,
            "params/actor_rollout_ref/rollout/n": each.rollouts_per_problem,
            "params/actor_rollout_ref/rollout/val_kwargs/n": 4,
            "params/actor_rollout_ref/actor/ppo_mini_batch_size": 32,
            "params/trainer/experiment_name": each.name,
            "tags/mlflow.runName": each.name,
            "tags/mlflow.user": "ana",
        }
        for name, value in values.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(str(value))
        metric = place / "metrics" / "val-core" / "openai" / "gsm8k" / "acc" / "mean_at_4"
        metric.parent.mkdir(parents=True)
        metric.write_text(
            "".join(
                f"{1757000000000 + 60000 * step} {value} {step}\n"
                for step, value in zip(each.steps, scores, strict=False)
            )
        )
        (place / "meta.yaml").write_text(
            f"artifact_uri: mlflow-artifacts:/x/{place.name}/artifacts\nend_time: 1757006000000\n"
            f"experiment_id: '486712345678901234'\nlifecycle_stage: {stage}\n"
            f"run_id: {place.name}\nrun_name: {each.name}\nstart_time: 1757000000000\n"
            f"status: {status}\nuser_id: ana\n"
        )


# 14. W&B runs of SkyRL, fetched one by one: config.yaml and history.csv in a folder each.

FETCHED = tuple(run(name, 64, n, range(0, 51, 10)) for name, n in (
    ("gentle-river-12", 4), ("dry-moon-13", 8), ("brisk-fog-14", 16)
))  # fmt: skip


def fetched(folder: Path) -> None:
    for each in FETCHED:
        place = folder / "wandb_runs" / each.name
        place.mkdir(parents=True)
        (place / "config.yaml").write_text(
            "_wandb:\n    value:\n        cli_version: 0.21.0\n        python_version: 3.12.11\n"
            "generator:\n    value:\n        backend: vllm\n        eval_n_samples_per_prompt: 1\n"
            f"        n_samples_per_prompt: {each.rollouts_per_problem}\n"
            "        num_inference_engines: 4\n"
            "trainer:\n    value:\n        epochs: 20\n        eval_before_train: true\n"
            "        eval_batch_size: 1024\n        eval_interval: 10\n"
            "        micro_train_batch_size_per_gpu: 4\n        policy_mini_batch_size: 32\n"
            "        seed: 42\n        train_batch_size: 64\n"
        )
        at = _at(each)
        lines = [",_step,trainer/global_step,trainer/epoch,reward/avg_raw_reward,"
                 "eval/all/avg_score,eval/all/pass_at_1,timing/eval"]  # fmt: skip
        for step in range(0, 51):
            value = f"{at[step]},{at[step]},14.2" if step in at else ",,"
            train = f"{step},{step // 8},{score(8, step, seed=7)}" if step else ",,"
            lines.append(f"{step},{step},{train},{value}")
        (place / "history.csv").write_text("\n".join(lines) + "\n")


LOGS = (
    Layout(
        "verl_console", "import", "logs", CONSOLE, console,
        "the run crashed after step 26 and went on from 20 in the same file",
        "nothing more: the console says batch and n; the score is mean@4",
    ),
    Layout(
        "verl_jsonl", "import", "dapo-sweep", JSONL, jsonl,
        "two evaluation sets, three ways to count each, and a reward from -1 to 1",
        "128 prompts; n and bs are in the file's name; the score is math500 mean@4",
    ),
    Layout(
        "trl_checkpoints", "import", "outputs", CHECKPOINTS, checkpoints,
        "each checkpoint repeats the history; train_batch_size is of one device",
        "32 prompts per step; n and seed are in the folder's name",
    ),
    Layout(
        "trl_console", "import", "slurm", PRINTED, printed,
        "lines hold an epoch and no step, only the progress bar has it",
        "8 prompts per step, n is in the file's name; 200 steps, evaluated every 50",
    ),
    Layout(
        "openrlhf_events", "import", "tb_logs", EVENTS, events,
        "a resumed run repeats steps 31 to 38 in a second file; pass4 is best of 4",
        "rollout_batch_size 128 prompts; both are in the folder's name",
    ),
    Layout(
        "mlflow", "import", "mlruns", MLRUNS, mlruns,
        "a failed run with only step 0 and a deleted run lie in the same folder",
        "nothing more: params say batch and n; the deleted run is not to be read",
    ),
    Layout(
        "wandb_fetched", "import", "wandb_runs", FETCHED, fetched,
        "names do not say n; the config holds four batch sizes; a key of the evaluation ends alike",
        "nothing more: config.yaml says batch and n",
    ),
)  # fmt: skip
