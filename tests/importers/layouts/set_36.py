"""Fourteen folders of logs as teams have them, written blind, with the truth planted in each.

`make(root)` writes them; `TRUTH[folder]` holds, per run, (problems per batch, n, seed, [(rollouts, score)]).
Only the score of the run's own evaluation counts. Standard library and pyarrow alone.
"""

# ruff: noqa: E501 (lines of logs stand as trainers write them)

from __future__ import annotations

import csv
import json
import math
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

Points = list[tuple[int, float]]
TRUTH: dict[str, list[dict[str, Any]]] = {}


def score(n: int, rollouts: float, seed: int, step: int) -> float:
    noise = random.Random(f"{n}/{seed}/{step}").gauss(0, 0.006)
    return round(0.28 + 0.42 * (1 - math.exp(-rollouts / (9000 * (n / 8) ** 0.7))) + noise, 4)


def train(*of: Any) -> float:
    """A training reward: noisy, another in every run and every part of it; the last of `of` is the progress."""
    return round(0.3 + 0.3 * of[-1] + random.Random(repr(of)).gauss(0, 0.02), 5)


def plant(folder: str, bp: float, n: int, seed: int | None, steps: list[int], per_step: float | None = None) -> Points:
    """The scores of one run at its steps; recorded as the truth of its folder."""
    per_step = bp * n if per_step is None else per_step
    points = [(step, score(n, per_step * step, seed or 0, step)) for step in steps]
    TRUTH.setdefault(folder, []).append(
        {"bp": bp, "n": n, "seed": seed, "points": [(round(per_step * s), v) for s, v in points]}
    )
    return points


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_csv(path: Path, header: list[str], rows: list[list[Any]], quote: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL)
        writer.writerow(header)
        writer.writerows(rows)


# -- binary writers ------------------------------------------------------------------------------


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    out = b""
    while True:
        out += bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
        value >>= 7
        if not value:
            return out


def _field(number: int, data: bytes | str | int) -> bytes:
    if isinstance(data, int):
        return _varint(number << 3) + _varint(data)
    data = data.encode() if isinstance(data, str) else data
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def tfevents(path: Path, scalars: list[tuple[int, str, float]], start: float = 1.77e9) -> None:
    """A TensorBoard event file."""
    events = [_varint(1 << 3 | 1) + struct.pack("<d", start) + _field(3, "brain.Event:2")]
    for index, (step, tag, value) in enumerate(scalars):
        summary = _field(1, _field(1, tag) + _varint(2 << 3 | 5) + struct.pack("<f", value))
        head = _varint(1 << 3 | 1) + struct.pack("<d", start + 10 * index)
        events.append(head + _field(2, step) + _field(5, summary))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for event in events:
            length = struct.pack("<Q", len(event))
            file.write(length + struct.pack("<I", _crc32c(length)) + event + struct.pack("<I", _crc32c(event)))


def wandb_file(path: Path, run_id: str, name: str, config: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """A .wandb file of an offline run (records of protobuf in LevelDB's log)."""
    import zlib

    def item(key: str, value: Any) -> bytes:
        return _field(1, _field(1, key) + _field(16, json.dumps(value)))

    settings = b"".join(item(key, value) for key, value in config.items())
    records = [_field(17, _field(1, run_id) + _field(3, "grpo-n-sweep") + _field(4, settings) + _field(8, name))]
    for index, row in enumerate(rows):
        items = b"".join(item(k, v) for k, v in {**row, "_step": index, "_timestamp": 1.77e9 + index}.items())
        records.append(_field(2, items + _field(2, _field(1, index))))
    out = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for number, record in enumerate(records, 1):
        data = _field(1, number) + record
        kind, first = 1, True
        while True:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += b"\0" * left
                continue
            part, data = data[: left - 7], data[left - 7 :]
            kind = (1 if first else 4) if not data else (2 if first else 3)
            crc = zlib.crc32(bytes([kind]) + part) & 0xFFFFFFFF
            out += struct.pack("<IHB", crc, len(part), kind) + part
            first = False
            if not data:
                break
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)


def xlsx(path: Path, sheets: dict[str, list[list[Any]]]) -> None:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    names = list(sheets)

    def cell(column: int, row: int, value: Any) -> str:
        place = f"{chr(65 + column)}{row}"
        if value is None:
            return ""
        if isinstance(value, str):
            text = value.replace("&", "&amp;").replace("<", "&lt;")
            return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'
        return f'<c r="{place}"><v>{value}</v></c>'

    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        types = "".join(
            f'<Override PartName="/xl/worksheets/sheet{i}.xml" '
            'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>'
            for i, _ in enumerate(names, 1)
        )
        archive.writestr(
            "[Content_Types].xml",
            f'<?xml version="1.0"?><Types xmlns="{package}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" '
            'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
            f"{types}</Types>",
        )
        archive.writestr(
            "_rels/.rels",
            f'<?xml version="1.0"?><Relationships xmlns="{package}/relationships"><Relationship Id="rId1" '
            f'Type="{rel}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        listed = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(names, 1))
        archive.writestr(
            "xl/workbook.xml",
            f'<?xml version="1.0"?><workbook xmlns="{main}" xmlns:r="{rel}"><sheets>{listed}</sheets></workbook>',
        )
        links = "".join(
            f'<Relationship Id="rId{i}" Type="{rel}/worksheet" Target="worksheets/sheet{i}.xml"/>'
            for i, _ in enumerate(names, 1)
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<?xml version="1.0"?><Relationships xmlns="{package}/relationships">{links}</Relationships>',
        )
        for index, rows in enumerate(sheets.values(), 1):
            body = "".join(
                f'<row r="{r}">' + "".join(cell(c, r, v) for c, v in enumerate(row)) + "</row>"
                for r, row in enumerate(rows, 1)
            )
            archive.writestr(
                f"xl/worksheets/sheet{index}.xml",
                f'<?xml version="1.0"?><worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>',
            )


# -- the fourteen --------------------------------------------------------------------------------


def verl_slurm(root: Path) -> None:
    """verl's console in Slurm's files; n=16 was killed and resumed twice, steps logged again."""
    me, bp, last = "verl_slurm", 128, 60
    job = 48211
    for n in (4, 8, 16, 32):
        points = dict(plant(me, bp, n, None, [0, 10, 20, 30, 40, 50, 60]))
        config = {
            "actor_rollout_ref": {
                "actor": {"optim": {"lr": 1e-06}, "ppo_epochs": 1, "ppo_mini_batch_size": 64, "use_kl_loss": True},
                "model": {"path": "Qwen/Qwen2.5-3B-Instruct"},
                "rollout": {"n": n, "name": "vllm", "temperature": 1.0, "val_kwargs": {"n": 1, "do_sample": False}},
            },
            "algorithm": {"adv_estimator": "grpo"},
            "data": {"train_batch_size": bp, "train_files": "~/data/gsm8k/train.parquet", "val_batch_size": None},
            "trainer": {
                "experiment_name": f"qwen2.5-3b_gsm8k_grpo_n{n}", "logger": ["console"], "n_gpus_per_node": 8, "nnodes": 1,
                "project_name": "n_sweep", "resume_mode": "auto", "test_freq": 10, "save_freq": 20,
                "total_epochs": 15, "val_before_train": True,
            },
        }
        parts = [(1, last, 0)] if n != 16 else [(1, 34, 0), (21, 44, 20), (41, last, 40)]
        for first, end, resumed in parts:
            lines = ["==== job starts on gpu-07 ====", "(TaskRunner pid=91733) " + repr(config)]
            key = "val-core/openai/gsm8k/reward/mean@1"
            if resumed:
                lines.append(f"(TaskRunner pid=91733) Setting global step to {resumed}")
                lines.append(f"(TaskRunner pid=91733) Resuming from checkpoints/n_sweep/grpo_n{n}/global_step_{resumed}")
            lines.append(f"(TaskRunner pid=91733) Initial validation metrics: {{'{key}': {points[resumed]}}}")
            lines.append(f"(TaskRunner pid=91733) step:{resumed} - {key}:{points[resumed]}")
            for step in range(first, end + 1):
                row = f"step:{step} - actor/entropy:{0.4 - step / 500:.4f} - actor/lr:1e-06 - training/global_step:{step}"
                row += f" - training/epoch:0 - critic/score/mean:{train(n, first, step, step / last):.4f}"
                if step in points:
                    # what was thrown away when the run went back to its checkpoint had another score
                    value = points[step] if not (n == 16 and (first, step) in ((1, 30), (21, 40))) else points[step] - 0.05
                    row += f" - {key}:{value:.4f}" if (first, step) != (21, 40) else f" - {key}:{points[step]}"
                row += f" - timing_s/step:{40 + n} - perf/total_num_tokens:{bp * n * 300}"
                lines.append("(TaskRunner pid=91733) " + row)
            if end != last:
                lines.append("slurmstepd: error: *** JOB CANCELLED DUE TO TIME LIMIT ***")
            job += 3
            write(root / me / f"slurm-{job}.out", "\n".join(lines) + "\n")


def verl_dapo(root: Path) -> None:
    """W&B's API export of verl's DAPO recipe: dynamic sampling draws up to three batches a step."""
    me, bp, drawn = "verl_dapo", 64, 128
    for n in (8, 16, 32):
        for seed in (1, 2):
            name = f"dapo-qwen3-4b-n{n}-s{seed}"
            batches = [random.Random(f"{n}{seed}{i}").choice((1, 1, 2, 2, 3)) for i in range(1, 81)]
            points: Points = []
            rows = []
            config = {
                "data": {"train_batch_size": bp, "gen_batch_size": drawn, "seed": seed, "train_files": "dapo-math-17k.parquet"},
                "algorithm": {"adv_estimator": "grpo", "filter_groups": {"enable": True, "metric": "acc", "max_num_gen_batches": 10}},
                "actor_rollout_ref": {
                    "rollout": {"n": n, "val_kwargs": {"n": 16, "temperature": 1.0}},
                    "actor": {"ppo_mini_batch_size": 32, "optim": {"lr": 1e-6}},
                    "model": {"path": "Qwen/Qwen3-4B-Base"},
                },
                "trainer": {"experiment_name": name, "project_name": "dapo-n", "test_freq": 20, "n_gpus_per_node": 8, "nnodes": 2},
            }
            write(root / me / name / "config.json", json.dumps(config, indent=1))
            for step in range(0, 81):
                total = sum(batches[:step]) * drawn * n
                value: Any = ""
                if step % 20 == 0:
                    value = score(n, total, seed, step)
                    points.append((total, value))
                rows.append([
                    step, 1.77e9 + 100 * step, step if step else "", batches[step - 1] if step else "",
                    train(n, seed, step, step / 80) if step else "", value, min(1.0, value + 0.2) if value != "" else "", 0.6 if value != "" else "",
                ])
            write_csv(root / me / name / "history.csv", [
                "_step", "_timestamp", "training/global_step", "train/num_gen_batches", "critic/rewards/mean",
                "val-core/math_dapo/acc/mean@16", "val-aux/math_dapo/acc/best@16/mean", "val-aux/math_dapo/score/mean@16",
            ], rows)
            TRUTH.setdefault(me, []).append({"bp": bp, "n": n, "seed": seed, "points": points})


def trl_outputs(root: Path) -> None:
    """TRL's output folders, checkpoint by checkpoint; gradients accumulated; the reward sums three rewards."""
    me, bp = "trl_outputs", 16
    for n in (4, 8, 16):
        for seed in (1, 2):
            folder = root / me / f"Qwen2.5-1.5B-GRPO-G{n}-seed{seed}"
            points = dict(plant(me, bp, n, seed, [0, 50, 100, 150, 200, 250, 300]))
            history: list[dict[str, Any]] = []
            for step in range(0, 301):
                if step in points:
                    history.append({
                        "epoch": step / 467, "eval_completions/mean_length": 210.5, "eval_loss": 0.001,
                        "eval_num_tokens": float(step * bp * n * 300), "eval_reward": points[step] + 0.9, "eval_reward_std": 0.3,
                        "eval_rewards/accuracy_reward/mean": points[step], "eval_rewards/accuracy_reward/std": 0.4,
                        "eval_rewards/format_reward/mean": 0.9, "eval_rewards/format_reward/std": 0.2,
                        "eval_runtime": 77.1, "eval_samples_per_second": 3.2, "eval_steps_per_second": 0.4, "step": step,
                    })
                if step and step % 10 == 0:
                    history.append({
                        "epoch": step / 467, "learning_rate": 1e-6, "loss": 0.002, "grad_norm": 0.2, "reward": train(n, seed, step, step / 300) + 0.8,
                        "reward_std": 0.3, "rewards/accuracy_reward/mean": train(n, seed, step, step / 300), "rewards/format_reward/mean": 0.8,
                        "completions/mean_length": 220.0, "step": step,
                    })
                if step in (100, 200, 300):
                    state = {
                        "best_global_step": None, "best_metric": None, "epoch": step / 467, "eval_steps": 50, "global_step": step,
                        "is_hyper_param_search": False, "is_local_process_zero": True, "is_world_process_zero": True,
                        "log_history": history, "logging_steps": 10, "max_steps": 300, "num_input_tokens_seen": 0,
                        "num_train_epochs": 1, "save_steps": 100, "total_flos": 0.0, "train_batch_size": 8, "trial_name": None,
                    }
                    write(folder / f"checkpoint-{step}" / "trainer_state.json", json.dumps(state, indent=2))
                    write(folder / f"checkpoint-{step}" / "config.json", '{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 1536}')
            write(folder / "README.md", "---\nlibrary_name: transformers\ntags: [trl, grpo]\n---\n# Model Card\n")


def trl_wandb(root: Path) -> None:
    """TRL's offline W&B runs: each generation serves several optimizer steps (steps_per_generation, num_iterations)."""
    me = "trl_wandb"
    for index, (n, seed) in enumerate([(n, s) for n in (4, 8, 16) for s in (42, 43)]):
        # 8 a device x 4 GPUs x 8 = 256 completions a generation; used twice; an optimizer step takes 128 of them
        points = dict(plant(me, 256 / n, n, seed, [0, 100, 200, 300, 400], per_step=64))
        config: dict[str, Any] = {
            "num_generations": n, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 8,
            "generation_batch_size": 256, "num_iterations": 2, "seed": seed, "learning_rate": 1e-6, "beta": 0.0, "loss_type": "dapo",
            "eval_steps": 100, "max_steps": 400, "model_name_or_path": "Qwen/Qwen2.5-3B", "run_name": "grpo-gsm8k", "output_dir": f"out/{index}",
            "per_device_eval_batch_size": 32, "num_train_epochs": 3, "_wandb": {"cli_version": "0.21.0"},
        }
        rows = []
        for step in range(0, 401, 5):
            if step:
                rows.append({"train/global_step": step, "train/epoch": step / 900, "train/reward": train(n, seed, step, step / 400), "train/loss": 0.01,
                             "train/rewards/correctness_reward/mean": train(n, seed, step, step / 400), "train/completions/mean_length": 250.0})
            if step in points:
                rows.append({"train/global_step": step, "train/epoch": step / 900, "eval/reward": points[step], "eval/reward_std": 0.4,
                             "eval/rewards/correctness_reward/mean": points[step], "eval/loss": 0.0, "eval/runtime": 60.2})
        run_id = f"x{index}k9q2a{index}"
        folder = root / me / "wandb" / f"offline-run-2026041{index}_093{index}12-{run_id}"
        wandb_file(folder / f"run-{run_id}.wandb", run_id, "grpo-gsm8k", config, rows)
        write(folder / "files" / "requirements.txt", "trl==0.24.0\nwandb==0.21.0\n")
        write(folder / "files" / "wandb-metadata.json", json.dumps(
            {"os": "Linux", "program": "train.py", "gpu": "NVIDIA H100", "gpu_count": 4, "args": ["--config", "grpo.yaml"]}))


def openrlhf_tb(root: Path) -> None:
    """OpenRLHF's TensorBoard beside the launch scripts; train_batch_size counts samples; one run restarted."""
    me, bp = "openrlhf_tb", 128
    for n in (4, 8, 16):
        points = dict(plant(me, bp, n, None, [5, 10, 15, 20, 25, 30, 35, 40]))
        script = (
            "set -x\nray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray \\\n"
            "   --pretrain Qwen/Qwen2.5-7B --actor_num_gpus_per_node 8 --vllm_num_engines 8 \\\n"
            f"   --micro_train_batch_size 4 --train_batch_size 256 --micro_rollout_batch_size 8 --rollout_batch_size {bp} \\\n"
            f"   --n_samples_per_prompt {n} --max_epochs 1 --num_episodes 4 --eval_steps 5 --eval_n_samples_per_prompt 4 \\\n"
            f"   --advantage_estimator group_norm --actor_learning_rate 5e-7 --use_tensorboard tb --wandb_run_name math_n{n}\n"
        )
        write(root / me / "scripts" / f"math_n{n}.sh", script)
        rows: list[tuple[int, str, float]] = []
        for step in range(1, 41):
            rows += [(step, "train/reward", train(n, step, step / 40)), (step, "train/policy_loss", train(n, step, "p", 0)),
                     (step, "train/response_length", 400.0 + step)]
            if step in points:
                rows += [(step, "eval/eval_math500_pass4", min(1, points[step] + 0.15)), (step, "eval/eval_math500_pass1", points[step])]
        folder = root / me / "tb" / f"math_n{n}"
        if n == 8:
            tfevents(folder / "events.out.tfevents.1770000000.node3.4411.0", [r for r in rows if r[0] <= 23])
            again = [(s, k, v + 0.003 if "train" in k and s < 24 else v) for s, k, v in rows if s > 20]
            tfevents(folder / "events.out.tfevents.1770090000.node3.9200.0", again, 1.77009e9)
        else:
            tfevents(folder / "events.out.tfevents.1770000000.node3.4411.0", rows)


def slime_console(root: Path) -> None:
    """slime's console: rollouts are counted from 0, the evaluation "19" comes after 20 of them."""
    me, bp = "slime_console", 32
    for n in (8, 16, 32):
        points = dict(plant(me, bp, n, None, [0, 20, 40, 60, 80, 100]))
        lines = ["------------------------ arguments ------------------------"]
        for key, value in {
            "advantage_estimator": "grpo", "eval_interval": 20, "eval_prompt_data": "['math500', '/data/math500.jsonl']",
            "global_batch_size": 256, "lr": 1e-06, "n_samples_per_eval_prompt": 4, "n_samples_per_prompt": n, "num_rollout": 100,
            "over_sampling_batch_size": bp, "rollout_batch_size": bp, "rollout_seed": 42, "seed": 1234,
        }.items():
            lines.append(f"  {key} {'.' * (46 - len(key))} {value}")
        lines.append("-------------------- end of arguments ---------------------")
        for rollout in range(100):
            if rollout == 0:
                lines.append(f"(RolloutManager pid=812) [2026-02-11 08:00:01] rollout.py:300 - eval 0: {{'eval/math500': {points[0]}, "
                             "'eval/math500/response_len/mean': 812.1, 'eval/math500-truncated_ratio': 0.11}")
            lines.append(f"(RolloutManager pid=812) [2026-02-11 08:10:01] rollout.py:340 - perf {rollout}: "
                         f"{{'rollout/raw_reward': {train(n, rollout, rollout / 100):.3f}, 'rollout/response_len/mean': 700.2, 'perf/rollout_time': 33.1}}")
            for sub in range(bp * n // 256):
                lines.append(f"(MegatronTrainRayActor pid=99) step {rollout * (bp * n // 256) + sub}: {{'train/loss': 0.01, 'train/grad_norm': 0.2, "
                             f"'train/step': {rollout * (bp * n // 256) + sub}}}")
            if (rollout + 1) % 20 == 0:
                lines.append(f"(RolloutManager pid=812) [2026-02-11 09:00:01] rollout.py:300 - eval {rollout}: {{'eval/math500': {points[rollout + 1]}, "
                             "'eval/math500/response_len/mean': 900.4, 'eval/math500-truncated_ratio': 0.05}")
        write(root / me / f"qwen3-4b-n{n}.log", "\n".join(lines) + "\n")


def nemo_rl(root: Path) -> None:
    """NeMo-RL: exp_001 died at step 60, exp_002 went on from the checkpoint at 50; config beside the checkpoint."""
    me, bp = "nemo_rl", 32
    for n in (8, 16, 32):
        points = dict(plant(me, bp, n, None, [0, 20, 40, 60, 80, 100]))
        name = f"grpo_qwen2.5-1.5b_n{n}"
        for part, (first, last) in enumerate([(0, 60), (51, 100)] if n == 16 else [(0, 100)], 1):
            rows: list[tuple[int, str, float]] = []
            for step in range(first, last + 1):
                if step:
                    rows += [(step, "train/reward", train(n, part, step, step / 100)), (step, "train/loss", train(n, part, step, 0))]
                if step in points:
                    lost = 0.04 if part == 1 and n == 16 and step > 50 else 0.0
                    rows += [(step, "validation/accuracy", points[step] - lost), (step, "validation/avg_length", 420.0)]
            tfevents(root / me / "logs" / name / f"exp_00{part}" / "tensorboard" / f"events.out.tfevents.177000{part}000.dgx.1.0", rows, 1.77e9 + part * 1e4)
        config = (
            f"grpo:\n  num_prompts_per_step: {bp}\n  num_generations_per_prompt: {n}\n  max_num_steps: 100\n  val_period: 20\n"
            "  val_at_start: true\n  max_val_samples: 256\n  seed: 42\n"
            "policy:\n  model_name: Qwen/Qwen2.5-1.5B\n  train_global_batch_size: 512\n  optimizer:\n    kwargs:\n      lr: 5.0e-06\n"
            f"checkpointing:\n  enabled: true\n  checkpoint_dir: results/{name}\n  save_period: 50\nlogger:\n  log_dir: logs/{name}\n"
            "cluster:\n  gpus_per_node: 8\n  num_nodes: 1\n"
        )
        for step in (50, 100):
            write(root / me / "results" / name / f"step_{step}" / "config.yaml", config)
            write(root / me / "results" / name / f"step_{step}" / "training_info.json", json.dumps({"step": step, "consumed_samples": step * bp}))


def easyr1(root: Path) -> None:
    """EasyR1's own JSONL, the same run also in TensorBoard: two trackers, one run."""
    me, bp = "easyr1", 128
    for n in (5, 10, 20):
        name = f"qwen2_5_vl_3b_geo_n{n}"
        points = dict(plant(me, bp, n, 1, [0, 5, 10, 15, 20, 25, 30]))
        config = {
            "data": {"train_files": "hiyouga/geometry3k@train", "rollout_batch_size": bp, "val_batch_size": 512, "seed": 1},
            "algorithm": {"adv_estimator": "grpo", "kl_coef": 0.01},
            "worker": {"actor": {"global_batch_size": 64, "optim": {"lr": 1e-6}, "model": {"model_path": "Qwen/Qwen2.5-VL-3B-Instruct"}},
                       "rollout": {"n": n, "temperature": 1.0, "val_override_config": {"n": 1, "temperature": 0.5}}},
            "trainer": {"total_epochs": 15, "project_name": "easy_r1", "experiment_name": name, "val_freq": 5, "val_before_train": True,
                        "logger": ["file", "tensorboard"], "n_gpus_per_node": 4, "nnodes": 1},
        }
        folder = root / me / "checkpoints" / "easy_r1" / name
        write(folder / "experiment_config.json", json.dumps(config, indent=2))
        rows, scalars = [], []
        for step in range(0, 31):
            row: dict[str, Any] = {"step": step}
            if step:
                row |= {"actor": {"lr": 1e-6, "pg_loss": 0.01}, "reward": {"overall": train(n, step, step / 30), "accuracy": train(n, step, step / 30) - 0.05, "format": 0.9}}
                scalars += [(step, "reward/overall", train(n, step, step / 30)), (step, "actor/pg_loss", 0.01)]
            if step in points:
                overall = round(0.9 * points[step] + 0.1 * 0.97, 5)
                row["val"] = {"reward_score": overall, "overall_reward": overall, "format_reward": 0.97, "accuracy_reward": points[step]}
                scalars += [(step, "val/reward_score", overall), (step, "val/format_reward", 0.97), (step, "val/accuracy_reward", points[step])]
            rows.append(json.dumps(row))
        write(folder / "experiment_log.jsonl", "\n".join(rows) + "\n")
        tfevents(root / me / "tensorboard_log" / "easy_r1" / name / "events.out.tfevents.1770000001.a100.77.0", scalars)


def wandb_chart(root: Path) -> None:
    """Two of W&B's chart exports (two validation sets), several n and seeds; one run is of another recipe (lr)."""
    me, bp = "wandb_chart", 64
    names = [(n, s, "") for n in (8, 16, 32, 64) for s in (1, 2)] + [(8, 1, "-lr5e-6")]
    for which in ("aime24", "math500"):
        header, columns = ["training/global_step"], []
        for n, seed, extra in names:
            metric = f"val-core/{which}/acc/mean@{16 if which == 'aime24' else 4}"
            name = f"qwen3-4b-grpo-bs{bp}-n{n}-s{seed}{extra}"
            steps = list(range(0, 101, 10))
            if which == "math500" and not extra:
                values = [v for _, v in plant(me, bp, n, seed, steps)]
            else:
                values = [score(n, bp * n * s * (0.3 if extra else 1), seed, s) * (0.4 if which == "aime24" else 1) for s in steps]
            header += [f"{name} - {metric}", f"{name} - {metric}__MIN", f"{name} - {metric}__MAX"]
            columns.append(values)
        rows = [[s, *[x for c in columns for x in (c[i],) * 3]] for i, s in enumerate(steps)]
        stamp = "2026-05-02T10_11_12.345+02_00" if which == "aime24" else "2026-05-02T10_12_40.101+02_00"
        write_csv(root / me / f"wandb_export_{stamp}.csv", header, rows, quote=True)


def prime_rl(root: Path) -> None:
    """prime-rl's outputs: batch_size counts rollouts, trained a step behind (async)."""
    me = "prime_rl"
    for n in (8, 16, 32):
        for seed in (0, 1):
            folder = root / me / f"math-g{n}-seed{seed}"
            points = dict(plant(me, 512 // n, n, seed, [0, 20, 40, 60, 80]))
            write(folder / "configs" / "orchestrator.toml", (
                f"batch_size = 512\nrollouts_per_example = {n}\nmax_steps = 80\nmax_async_level = 2\nseq_len = 4096\nseed = {seed}\n"
                '[model]\nname = "Qwen/Qwen3-1.7B"\n[[env]]\nid = "math-env"\n[eval]\ninterval = 20\nnum_examples = -1\n'
                'rollouts_per_example = 4\n[[eval.env]]\nid = "math500"\n'
            ))
            write(folder / "configs" / "trainer.toml", 'max_steps = 80\n[optim]\nlr = 1e-6\n[model]\nname = "Qwen/Qwen3-1.7B"\n')
            lines = []
            for step in range(0, 81):
                if step in points:
                    lines.append(f"10:00:{step % 60:02d}    INFO Running evals for checkpoint step {step}")
                    lines.append(f"10:01:{step % 60:02d} SUCCESS Evaluated math500 in 31.20s (Avg@4={points[step]:.4f}, Pass@1: {points[step]:.4f}, "
                                 f"Pass@4: {min(1, points[step] + 0.1):.4f}, Completion Length: 900.12 (±10.20, ∈[300.00, 4096.00]), Truncated: 3.1%)")
                if step < 80:
                    lines.append(f"10:02:{step % 60:02d} SUCCESS Step {step} | Time: 31.10s | Reward: {train(n, seed, step, step / 80):.4f} | "
                                 "Throughput: 4100.1 tokens/s | Seq. Length: 900.1 tokens/sample | Async Level: 1 | Max. Off-Policy Level: 2")
            write(folder / "logs" / "orchestrator.stdout", "\n".join(lines) + "\n")


def open_instruct(root: Path) -> None:
    """open-instruct's W&B histories in one parquet; _step counts episodes, scores run to 10."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    me, bp = "open_instruct", 48
    configs, rows = {}, []
    for n in (8, 16, 32):
        for seed in (1, 2):
            name = f"qwen25_3b_rlvr_n{n}__{seed}__17700{n:03d}"
            points = dict(plant(me, bp, n, seed, [0, 20, 40, 60, 80]))
            configs[name] = {
                "num_unique_prompts_rollout": bp, "num_samples_per_prompt_rollout": n, "seed": seed, "learning_rate": 5e-7,
                "total_episodes": 80 * bp * n, "local_eval_every": 20, "num_mini_batches": 1, "num_epochs": 1, "beta": 0.01,
                "per_device_train_batch_size": 1, "verification_reward": 10.0, "num_learners_per_node": [6], "exp_name": name.split("__")[0],
            }
            for step in range(0, 81):
                row = {"run_name": name, "_step": step * bp * n, "episode": step * bp * n, "training_step": step,
                       "scores": 10 * train(n, seed, step, step / 80) if step else None, "eval/scores": None,
                       "eval/objective/verifiable_correct_rate": None, "eval/sequence_lengths": None}
                if step in points:
                    row |= {"eval/scores": 10 * points[step], "eval/objective/verifiable_correct_rate": points[step], "eval/sequence_lengths": 333.0}
                rows.append(row)
    (root / me).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), root / me / "history.parquet")
    write(root / me / "configs.json", json.dumps(configs, indent=1))


def mlflow_runs(root: Path) -> None:
    """MLflow's file store of an own loop: scores in percent, a failed try and a deleted run beside the whole ones."""
    me, bp = "mlflow_runs", 24
    base = root / me / "mlruns" / "417203311"
    write(base / "meta.yaml", "artifact_location: mlflow-artifacts:/417203311\nexperiment_id: '417203311'\nlifecycle_stage: active\nname: grpo-loop\n")

    def run(index: int, name: str, n: int, seed: int, points: Points, status: int, stage: str = "active", last: int = 100) -> None:
        folder = base / f"{index:032x}"
        write(folder / "meta.yaml", (
            f"artifact_uri: x\nend_time: 17700{index}5000000\nentry_point_name: ''\nexperiment_id: '417203311'\nlifecycle_stage: {stage}\n"
            f"run_id: {index:032x}\nrun_name: {name}\nrun_uuid: {index:032x}\nsource_name: ''\nsource_type: 4\nsource_version: ''\n"
            f"start_time: 17700{index}0000000\nstatus: {status}\ntags: []\nuser_id: kim\n"))
        params = {"prompts_per_step": bp, "group_size": n, "seed": seed, "lr": 2e-06, "max_steps": 100, "model": "Llama-3.2-3B", "eval_every": 20}
        for key, value in params.items():
            write(folder / "params" / key, str(value))
        write(folder / "tags" / "mlflow.runName", name)
        write(folder / "metrics" / "eval" / "test_acc", "".join(f"{1770000000000 + s * 1000} {round(100 * v, 2)} {s}\n" for s, v in points if s <= last))
        write(folder / "metrics" / "train" / "reward", "".join(f"{1770000000000 + s * 1000} {train(n, seed, status, s, s / 100)} {s}\n" for s in range(1, last + 1)))

    index = 10
    for n in (4, 8, 16, 32):
        for seed in (1, 2):
            points = plant(me, bp, n, seed, [0, 20, 40, 60, 80, 100])
            if (n, seed) == (16, 1):
                index += 1
                run(index, "llama-g16-s1", n, seed, [(s, v - 0.03 if s else v) for s, v in points], 4, last=47)
            index += 1
            run(index, f"llama-g{n}-s{seed}", n, seed, points, 3)
    run(40, "llama-g4-s1", 4, 1, [(s, 0.11) for s in (0, 20)], 5, "deleted", 20)


def workbook(root: Path) -> None:
    """A group's own workbook: percent, headers in words, remarks, a second sheet."""
    me, bp = "workbook", 20
    rows: list[list[Any]] = [["Run", "Model", "Prompts / batch", "Samples / prompt", "Seed", "Train step", "Test acc. (%)", "Remarks"]]
    for n in (4, 8, 16, 32):
        for seed in (0, 1, 2):
            for step, value in plant(me, bp, n, seed, [0, 40, 80, 120, 160]):
                rows.append([f"r{n}-{seed}", "Qwen2.5-1.5B", bp, n, seed, step, round(100 * value, 2), "node crash, restarted" if (n, seed, step) == (8, 1, 80) else None])
    xlsx(root / me / "grpo results (final).xlsx", {"accuracy": rows, "notes": [["lr 1e-6 everywhere"], ["test = 500 MATH problems, greedy"]]})


def lm_eval(root: Path) -> None:
    """TRL's checkpoints evaluated afterwards by lm-eval-harness; the trainer's own log has training rewards alone."""
    me, bp = "lm_eval", 12
    for n in (4, 8, 16):
        for seed in (0, 1):
            name = f"grpo_llama1b_n{n}_bp{bp}_s{seed}"
            points = dict(plant(me, bp, n, seed, [100, 200, 300, 400]))
            history = []
            for step in range(10, 401, 10):
                history.append({"epoch": step / 600, "learning_rate": 1e-6, "loss": 0.01, "reward": train(n, seed, step, step / 400), "reward_std": 0.2, "step": step,
                                "rewards/gsm8k_reward/mean": train(n, seed, step, step / 400) - 0.05})
                if step % 100 == 0:
                    state = {"epoch": step / 600, "global_step": step, "max_steps": 400, "log_history": history, "train_batch_size": 4, "logging_steps": 10}
                    write(root / me / "ckpts" / name / f"checkpoint-{step}" / "trainer_state.json", json.dumps(state))
                    model = f"ckpts/{name}/checkpoint-{step}"
                    result = {
                        "results": {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": points[step], "exact_match_stderr,strict-match": 0.0137,
                                              "exact_match,flexible-extract": round(points[step] + 0.02, 4), "exact_match_stderr,flexible-extract": 0.0137}},
                        "group_subtasks": {"gsm8k": []}, "versions": {"gsm8k": 3.0}, "n-shot": {"gsm8k": 5},
                        "n-samples": {"gsm8k": {"original": 1319, "effective": 1319}}, "higher_is_better": {"gsm8k": {"exact_match": True}},
                        "config": {"model": "vllm", "model_args": f"pretrained={model},dtype=bfloat16", "batch_size": "auto", "limit": None,
                                   "random_seed": 0, "numpy_seed": 1234},
                        "model_name": model, "model_name_sanitized": model.replace("/", "__"), "date": 1.77e9 + step,
                        "total_evaluation_time_seconds": "211.2",
                    }
                    write(root / me / "lm_eval" / model.replace("/", "__") / f"results_2026-04-{10 + step // 100}T10-22-31.918273.json", json.dumps(result, indent=2))


MAKERS = [
    verl_slurm, verl_dapo, trl_outputs, trl_wandb, openrlhf_tb, slime_console, nemo_rl, easyr1, wandb_chart, prime_rl, open_instruct,
    mlflow_runs, workbook, lm_eval,
]


def make(root: Path) -> dict[str, list[dict[str, Any]]]:
    TRUTH.clear()
    for maker in MAKERS:
        maker(root)
    return TRUTH


if __name__ == "__main__":
    import sys

    target = Path(sys.argv[1])
    (target / "truth.json").write_text(json.dumps(make(target), indent=1))
