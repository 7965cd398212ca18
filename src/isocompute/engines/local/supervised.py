"""Base models: a few hundred supervised steps on noisy answers, so that a rule is half known.

Shape legend: P problems of a batch, D prompt bits, T answer bits, L tokens of a sequence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from isocompute.engines.local.folders import save_model
from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.model import Transformer
from isocompute.engines.local.optimizer import FlatAdamW, warmed_up
from isocompute.engines.local.worlds import BitRuleWorld, answer_texts, prompt_texts

_STREAM_BASE = 9
WARMUP_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One stretch of supervised training.

    Args:
        steps: updates.
        problems: size of a fixed set that is gone through again and again, flipped bits and
            all; None: every sequence is a new problem.
        batch: sequences per update.
        learning_rate: after 20 warm-up steps, constant.
    """

    steps: int
    problems: int | None = None
    batch: int = 128
    learning_rate: float = 3e-3


@dataclass(frozen=True, kw_only=True)
class Supervision:
    """How a base model is trained.

    Args:
        phases: one after another, each with a fresh optimizer.
        flip: share of the answers' bits that are flipped: the rule is never certain.
        weight_decay: AdamW's.
        seed: of problems and flips.
    """

    phases: tuple[Phase, ...]
    flip: float = 0.3
    weight_decay: float = 0.01
    seed: int = 0


def train_base(
    world: BitRuleWorld,
    model: PolicyModel,
    supervision: Supervision,
    report: Callable[[int, int, float], None] | None = None,
) -> None:
    """Train a new model on prompts and noisy answers, next token by next token.

    Args:
        world: where problems come from.
        model: freshly initialised; changed in place.
        supervision: how long, on what, and how noisy.
        report: called with (phase, step, loss in nats per answer token) after every step.
    """
    for number, phase in enumerate(supervision.phases):
        rng = np.random.default_rng([supervision.seed, _STREAM_BASE, number])
        optimizer = FlatAdamW(
            model, weight_decay=supervision.weight_decay, max_grad_norm=math.inf
        )
        fixed_PL = None
        if phase.problems is not None:
            fixed_PL = _noisy_sequences(world, phase.problems, supervision.flip, rng)
        for step in range(1, phase.steps + 1):
            if fixed_PL is None:
                token_PL = _noisy_sequences(world, phase.batch, supervision.flip, rng)
            else:
                token_PL = fixed_PL[torch.from_numpy(rng.integers(len(fixed_PL), size=phase.batch))]
            logits = _answer_logits(model, token_PL, world.answer_tokens)
            target = token_PL[:, -world.answer_tokens :]
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step(warmed_up(phase.learning_rate, step, WARMUP_STEPS))
            if report is not None:
                report(number, step, float(loss.detach()))


def _answer_logits(model: PolicyModel, token_PL: Tensor, answer_tokens: int) -> Tensor:
    """Logits (P, T, V) of the answer's tokens, each from what stands before it."""
    if isinstance(model, Transformer):
        hidden, _ = model.prompt(token_PL[:, :-1])
        return model.logits(hidden[:, -answer_tokens:])
    prompt_PS, answer_PT = token_PL[:, :-answer_tokens], token_PL[:, -answer_tokens:]
    length_P = torch.full((len(token_PL),), prompt_PS.shape[1])
    one_each = Grouping(torch.ones_like(length_P))
    return model.response_logits(prompt_PS, length_P, answer_PT, one_each)


def _noisy_sequences(
    world: BitRuleWorld, size: int, flip: float, rng: np.random.Generator
) -> Tensor:
    """Prompts followed by answers with flipped bits, as tokens (P, L)."""
    bit_PD = rng.integers(0, 2, size=(size, world.prompt_bits), dtype=np.int8) > 0
    bit_PT = world.answers(bit_PD) ^ (rng.random((size, world.answer_bits)) < flip)
    words = world.tokenizer()
    texts = zip(prompt_texts(bit_PD), answer_texts(bit_PT), strict=True)
    return torch.tensor([words.encode(prompt + answer) for prompt, answer in texts])


def save_base(
    model: PolicyModel, world: BitRuleWorld, supervision: Supervision, folder: Path
) -> None:
    """A Hugging Face folder with tokenizer, and `world.json`: where it came from."""
    save_model(model, folder)
    world.tokenizer().save(folder)
    generation = {"max_new_tokens": world.answer_tokens, "do_sample": True, "temperature": 1.0,
                  "top_k": 0, "pad_token_id": model.sizes.pad_token_id}  # fmt: skip
    origin = {"world": "bits", **asdict(world), "supervision": asdict(supervision)}
    for name, data in (("generation_config.json", generation), ("world.json", origin)):
        (folder / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
