"""Someone's own TRL script, with the recorder's callback in it and nothing else of isocompute.

    python trl_script.py --record runs/a --folder out --steps 6 [--resume] [--learning-rate 1e-3]
        [--problems 4] [--rollouts 8] [--seed 0] [--state trainer_state.json]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import datasets
import torch
import transformers
import trl

from isocompute.hooks.trl import RecorderCallback

MODEL = str(Path(__file__).resolve().parents[2] / "src/isocompute/data/base/bits")


def agree(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Whether at least 17 of 32 bits are right."""
    rewards = []
    for text, right in zip(completions, answer, strict=True):
        digits = text.replace(" ", "")
        try:
            wrong = (int(digits, 16) ^ int(right, 16)).bit_count()
        except ValueError:
            wrong = 32
        rewards.append(float(32 - wrong >= 17))
    return rewards


def problems(size: int, first: int) -> datasets.Dataset:
    rows = []
    for i in range(first, first + size):
        code = [(i * (j + 3) + j) % 4 for j in range(16)]
        rows.append({
            "prompt": "".join(f"{'ABCDEFGHIJKLMNOP'[j]}{c}" for j, c in enumerate(code)),
            "answer": f"{(i * 2654435761) % 2**32:08x}",
        })  # fmt: skip
    return datasets.Dataset.from_list(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--problems", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    tokenizer.eos_token = tokenizer.pad_token
    world = int(os.environ.get("WORLD_SIZE", "1"))
    config = trl.GRPOConfig(
        output_dir=options.folder, use_cpu=True, bf16=False, report_to="none", seed=options.seed,
        per_device_train_batch_size=options.rollouts,
        gradient_accumulation_steps=options.problems // world,
        num_generations=options.rollouts, num_generations_eval=4, per_device_eval_batch_size=8,
        max_steps=options.steps, learning_rate=options.learning_rate, max_completion_length=8,
        generation_kwargs={"min_new_tokens": 8}, logging_steps=1, eval_strategy="steps",
        eval_steps=2, eval_on_start=True, save_strategy="steps", save_steps=2, disable_tqdm=True,
        lr_scheduler_type="constant",
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=MODEL, reward_funcs=agree, args=config, train_dataset=problems(32, 0),
        eval_dataset=problems(8, 100), processing_class=tokenizer,
        callbacks=[RecorderCallback(options.record)],
    )
    saved = options.resume and any(Path(options.folder).glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=True if saved else None)
    if trainer.is_world_process_zero():
        trainer.state.save_to_json(str(Path(options.folder) / "trainer_state.json"))
    print(json.dumps({"step": trainer.state.global_step}))


if __name__ == "__main__":
    main()
