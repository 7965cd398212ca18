"""Base models: supervised steps on noisy demonstrations, so that a world's rule is half known.

Shape legend: P problems of a batch, L tokens of a sequence, N tokens of all responses, V words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from isocompute.engines.local.folders import save_model
from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.model import Transformer
from isocompute.engines.local.optimizer import FlatAdamW, warmed_up
from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.engines.local.worlds import World

_STREAM_BASE = 9
WARMUP_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One stretch of supervised training.

    Args:
        steps: updates.
        problems: size of a fixed set that is gone through again and again, errors and all;
            None: every sequence is a new problem.
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
        noise: share of the demonstrations that is wrong, in the world's own way.
        weight_decay: AdamW's.
        seed: of the demonstrations.
    """

    phases: tuple[Phase, ...]
    noise: float = 0.3
    weight_decay: float = 0.01
    seed: int = 0


class _Sequences(NamedTuple):
    """Prompts with responses: tokens, and where the responses begin and end."""

    token_PL: Tensor
    start_P: Tensor
    stop_P: Tensor

    def pick(self, index: Tensor) -> _Sequences:
        return _Sequences(*(value[index] for value in self))


def train_base(
    world: World,
    model: PolicyModel,
    supervision: Supervision,
    report: Callable[[int, int, float], None] | None = None,
) -> None:
    """Train a new model on prompts and noisy responses, next token by next token.

    Args:
        world: where problems come from.
        model: freshly initialised; changed in place.
        supervision: how long, on what, and how noisy.
        report: called with (phase, step, loss in nats per response token) after every step.
    """
    words = world.tokenizer()
    for number, phase in enumerate(supervision.phases):
        rng = np.random.default_rng([supervision.seed, _STREAM_BASE, number])
        optimizer = FlatAdamW(
            model, weight_decay=supervision.weight_decay, max_grad_norm=math.inf,
            decay_vectors=True,
        )
        fixed = None
        if phase.problems is not None:
            fixed = _demonstrations(world, words, phase.problems, supervision.noise, rng)
        for step in range(1, phase.steps + 1):
            if fixed is None:
                shown = _demonstrations(world, words, phase.batch, supervision.noise, rng)
            else:
                index = rng.integers(len(fixed.token_PL), size=phase.batch)
                shown = fixed.pick(torch.from_numpy(index))
            logits_NV, target_N = _response_logits(model, shown)
            loss = F.cross_entropy(logits_NV, target_N)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step(warmed_up(phase.learning_rate, step, WARMUP_STEPS))
            if report is not None:
                report(number, step, float(loss.detach()))


def _response_logits(model: PolicyModel, shown: _Sequences) -> tuple[Tensor, Tensor]:
    """Logits (N, V) of the responses' tokens, each from what stands before it, and the tokens."""
    token_PL, start_P, stop_P = shown
    if isinstance(model, Transformer):
        place = torch.arange(1, token_PL.shape[1])
        said_PL = (place >= start_P[:, None]) & (place < stop_P[:, None])
        hidden, _ = model.prompt(token_PL[:, :-1])
        return model.logits(hidden[said_PL]), token_PL[:, 1:][said_PL]
    prompt = int(start_P[0])  # the feed-forward policy reads prompts of one length
    answer_PT = token_PL[:, prompt:]
    one_each = Grouping(torch.ones_like(start_P))
    logits = model.response_logits(token_PL[:, :prompt], start_P, answer_PT, one_each)
    return logits.flatten(0, 1), answer_PT.flatten()


def _demonstrations(
    world: World, words: WordTokenizer, size: int, noise: float, rng: np.random.Generator
) -> _Sequences:
    """Prompts with responses, padded on the right; an end token where the world has one."""
    end = [words.end] if words.end is not None else []
    rows, start, stop = [], [], []
    for prompt, response in world.demonstrate(size, noise, rng):
        row = words.encode(prompt)
        start.append(len(row))
        row += words.encode(response) + end
        stop.append(len(row))
        rows.append(row)
    width = max(stop)
    token_PL = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return _Sequences(token_PL, torch.tensor(start), torch.tensor(stop))


def save_base(model: PolicyModel, world: World, supervision: Supervision, folder: Path) -> None:
    """A Hugging Face folder with tokenizer, and `world.json`: where it came from."""
    save_model(model, folder)
    world.tokenizer().save(folder)
    generation: dict[str, Any] = {"max_new_tokens": world.max_new_tokens, "do_sample": True,
                                  "temperature": 1.0, "top_k": 0,
                                  "pad_token_id": model.sizes.pad_token_id}  # fmt: skip
    ends = model.sizes.end_tokens
    if ends:
        generation["eos_token_id"] = ends[0] if len(ends) == 1 else list(ends)
    rule = asdict(cast("Any", world))
    origin = {"world": world.name, **rule, "supervision": asdict(supervision)}
    for name, data in (("generation_config.json", generation), ("world.json", origin)):
        (folder / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
