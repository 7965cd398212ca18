"""Base models: a few hundred supervised steps on noisy answers, so that a rule is half known.

Shape legend: P problems of a batch, D prompt bits, T answer bits, L tokens of a sequence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from isocompute.engines.local.folders import save_model
from isocompute.engines.local.model import ModelConfig, Transformer
from isocompute.engines.local.optimizer import FlatAdamW, warmed_up
from isocompute.engines.local.worlds import BitRuleWorld, answer_texts, prompt_texts

_STREAM_BASE = 9


@dataclass(frozen=True, kw_only=True)
class Supervision:
    """How a base model is trained.

    Args:
        steps: updates.
        batch: sequences per update; every sequence is a new problem.
        learning_rate: after 20 warm-up steps, constant.
        flip: share of the answer's bits that are flipped, so that the rule is never certain.
        seed: of weights, problems and flips.
    """

    steps: int
    batch: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    flip: float = 0.3
    seed: int = 0


def train_base(
    world: BitRuleWorld,
    config: ModelConfig,
    supervision: Supervision,
    report: Callable[[int, float], None] | None = None,
) -> Transformer:
    """Train a model on prompt and noisy answer, next token by next token.

    Args:
        world: where problems come from.
        config: sizes of the model.
        supervision: how long and on how noisy answers.
        report: called with (step, loss) after every step.
    """
    s = supervision
    words = world.tokenizer()
    model = Transformer(config, torch.Generator().manual_seed(s.seed))
    optimizer = FlatAdamW(model, weight_decay=s.weight_decay, max_grad_norm=1e9)
    rng = np.random.default_rng([s.seed, _STREAM_BASE])
    for step in range(1, s.steps + 1):
        bit_PD = rng.integers(0, 2, size=(s.batch, world.prompt_bits), dtype=np.int8) > 0
        bit_PT = world.answers(bit_PD)
        bit_PT ^= rng.random(bit_PT.shape) < s.flip
        texts = zip(prompt_texts(bit_PD), answer_texts(bit_PT), strict=True)
        token_PL = torch.tensor([words.encode(prompt + answer) for prompt, answer in texts])
        answered = world.answer_tokens
        hidden, _ = model.prompt(token_PL[:, :-1])
        logits = model.logits(hidden[:, -answered:])
        loss = F.cross_entropy(logits.flatten(0, 1), token_PL[:, -answered:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(warmed_up(s.learning_rate, step, 20))
        if report is not None:
            report(step, float(loss.detach()))
    return model


def save_base(
    model: Transformer, world: BitRuleWorld, supervision: Supervision, folder: Path
) -> None:
    """A Hugging Face folder with tokenizer, and `world.json`: where it came from."""
    save_model(model, folder)
    world.tokenizer().save(folder)
    generation = {"max_new_tokens": world.answer_tokens, "do_sample": True, "temperature": 1.0,
                  "top_k": 0, "pad_token_id": model.config.pad_token_id}  # fmt: skip
    origin = {"world": "bits", **asdict(world), "supervision": asdict(supervision)}
    for name, data in (("generation_config.json", generation), ("world.json", origin)):
        (folder / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
