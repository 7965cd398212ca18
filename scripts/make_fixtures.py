"""Makes tests/fixtures/logs: small log files written by the real trainers and trackers.

Two environments, because their pins conflict; run the part that the environment holds:

    python -m venv .venv-trl && .venv-trl/bin/pip install torch==2.13.0 trl==1.16.0 \
        transformers==5.23.0 datasets wandb==0.31.0 tensorboard mlflow-skinny sqlalchemy alembic \
        trackio==0.43.0
    .venv-trl/bin/python scripts/make_fixtures.py trl

    python -m venv .venv-verl && .venv-verl/bin/pip install torch==2.13.0 'transformers<5.11' \
        hydra-core tensordict codetiming ray orjson pillow uvicorn fastapi aiohttp
    .venv-verl/bin/pip install --no-deps verl==0.9.1
    .venv-verl/bin/python scripts/make_fixtures.py verl

The TRL part trains a Llama of some thousand parameters for 6 updates on one CPU thread and logs
to every tracker at once, so that the same numbers can be looked for in every file. The verl part
cannot train without a GPU: it feeds made outcomes to verl's own validation metrics, file logger,
console logger and dump writer. Prompts that could be private are not in it; host names are
replaced by the trackers' own settings where they allow it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pprint
import shutil
import sys
import tempfile
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "logs"
WORDS = [str(i) for i in range(10)] + ["+", "="]
B_P, N, STEPS, EVAL_N = 2, 4, 6, 4


def tiny_model(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

    vocabulary = {w: i for i, w in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
        padding_side="left",
    )
    set_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=32, pad_token_id=0, eos_token_id=1,
        bos_token_id=1,
    ))
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


def digit_reward(completions: list[str], **_: object) -> list[float]:
    """1 if the completion starts with a low digit: often enough for a new model."""
    return [float(c.strip()[:1] in {"0", "1", "2", "3"}) for c in completions]


def make_trl() -> None:
    os.environ.update(
        WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DISABLE_CODE="true",
        WANDB_DISABLE_GIT="true", WANDB_X_DISABLE_STATS="true", WANDB_X_DISABLE_META="true",
        WANDB_CONSOLE="off", WANDB_HOST="host", WANDB_USERNAME="user",
        MLFLOW_ALLOW_FILE_STORE="true", TRACKIO_AUTO_LOG_GPU="0", HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )
    work = Path(tempfile.mkdtemp())
    os.environ |= {"WANDB_DIR": str(work), "TRACKIO_DIR": str(work / "trackio"),
                   "MLFLOW_TRACKING_URI": f"sqlite:///{work}/mlflow.db",
                   "MLFLOW_EXPERIMENT_NAME": "fixtures", "WANDB_PROJECT": "fixtures",
                   "TENSORBOARD_LOGGING_DIR": str(work / "tensorboard")}
    os.chdir(work)
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    tiny_model(work / "model")
    train = Dataset.from_dict({"prompt": [f"{a}+{b}=" for a in range(4) for b in range(4)]})
    valid = Dataset.from_dict({"prompt": [f"{a}+5=" for a in range(4)]})
    config = GRPOConfig(
        output_dir=str(work / "out"), run_name="trl-bp2-n4", seed=3, use_cpu=True, bf16=False,
        per_device_train_batch_size=4, gradient_accumulation_steps=2, num_generations=N,
        per_device_eval_batch_size=8, num_generations_eval=EVAL_N, max_steps=STEPS,
        max_completion_length=4, learning_rate=1e-2, lr_scheduler_type="constant_with_warmup",
        warmup_steps=2, logging_steps=1, eval_strategy="steps", eval_steps=2, eval_on_start=True,
        save_steps=3, report_to=["wandb", "tensorboard", "mlflow", "trackio"], beta=0.0,
        temperature=1.0, project="fixtures",
    )
    GRPOTrainer(
        model=str(work / "model"), reward_funcs=digit_reward, args=config, train_dataset=train,
        eval_dataset=valid,
    ).train()
    collect_trl(work)
    shutil.rmtree(work)


def collect_trl(work: Path) -> None:
    import mlflow
    import trackio
    import wandb

    wandb.finish()
    mlflow.end_run()
    with contextlib.suppress(RuntimeError):
        trackio.finish()
    out = OUT / "trl"
    shutil.rmtree(out, ignore_errors=True)
    (out / "checkpoint-6").mkdir(parents=True)
    shutil.copy(work / "out" / "checkpoint-6" / "trainer_state.json", out / "checkpoint-6")
    run = next(work.rglob("run-*.wandb"))
    shutil.copy(run, OUT / "trl-offline.wandb")
    events = next(work.rglob("events.out.tfevents.*"))
    shutil.copy(events, OUT / "events.out.tfevents.trl")
    vacuum(work / "mlflow.db", OUT / "mlflow.db")
    vacuum(next((work / "trackio").glob("*.db")), OUT / "trackio.db")


def vacuum(source: Path, target: Path) -> None:
    """Copy with the write-ahead log folded in, and without the tables that nobody reads."""
    import sqlite3

    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))
    keep = {"metrics", "params", "runs", "configs", "experiments"}
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA page_size=1024")
        names = connection.execute(
            "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'trigger', 'view')"
        ).fetchall()
        for kind, name in names:
            if name not in keep and not name.startswith("sqlite_"):
                connection.execute(f'DROP {kind} IF EXISTS "{name}"')
        connection.execute("VACUUM")


def make_verl() -> None:
    import numpy as np

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from verl.trainer.ppo.metric_utils import process_validation_metrics
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.utils.tracking import Tracking

    out = OUT / "verl"
    shutil.rmtree(out, ignore_errors=True)
    (out / "dumps").mkdir(parents=True)
    os.environ["VERL_FILE_LOGGER_PATH"] = str(out / "bp4_n8.jsonl")
    config = {
        "data": {"train_batch_size": 4, "train_files": "train.parquet"},
        "actor_rollout_ref": {"rollout": {"n": 8, "val_kwargs": {"n": 4}}},
        "trainer": {"total_training_steps": 4, "project_name": "demo", "seed": None},
    }
    rng = np.random.default_rng(0)
    shell = RayPPOTrainer.__new__(RayPPOTrainer)
    console = io.StringIO()
    with contextlib.redirect_stdout(console):
        print("(TaskRunner pid=4242) some line before")
        pprint.pprint(config)
        tracking = Tracking("demo", "bp4_n8", default_backend=["console", "file"], config=config)
        for step in range(5):
            if step % 2 == 0:
                right = (rng.random((6, 4)) < 0.3 + 0.1 * step).astype(float)
                right[0] = [1, 0, 0, 0]
                right[1] = [1, 1, 1, 0]
                uids = [f"u{p}" for p in range(6) for _ in range(4)]
                infos = {"reward": right.ravel().tolist(), "acc": right.ravel().tolist()}
                metrics = RayPPOTrainer._val_metrics_update(
                    shell, np.array(["math"] * 24), uids, infos, []
                )
                assert process_validation_metrics(["math"] * 24, uids, infos)
                RayPPOTrainer._write_generations(
                    [f"question {p}" for p in range(6) for _ in range(4)], ["answer"] * 24,
                    [str(p) for p in range(6) for _ in range(4)], right.ravel().tolist(),
                    infos, str(out / "dumps"), step,
                )
                if step == 0:
                    tracking.log(metrics, step=0)
                    continue
            else:
                metrics = {}
            metrics |= {
                "critic/score/mean": float(rng.random()), "actor/entropy": np.float64(1.5),
                "actor/grad_norm": float("nan") if step == 3 else 0.5, "actor/lr": 1e-6 * step,
                "response_length/mean": 100.0 + step, "perf/total_num_tokens": 5000,
                "training/global_step": step,
            }
            tracking.log(metrics, step=step)
    text = console.getvalue().replace(str(OUT), "logs")
    lines = text.splitlines(keepends=True)
    (out / "console.log").write_text("".join(
        f"\x1b[36m(TaskRunner pid=4242)\x1b[0m {line}" if "TaskRunner" not in line else line
        for line in lines
    ))


def describe() -> None:
    sizes = {str(p.relative_to(OUT)): p.stat().st_size for p in sorted(OUT.rglob("*"))
             if p.is_file()}
    print(json.dumps(sizes, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("trl", "verl"):
        sys.exit("usage: make_fixtures.py trl|verl")
    OUT.mkdir(parents=True, exist_ok=True)
    make_trl() if sys.argv[1] == "trl" else make_verl()
    describe()
