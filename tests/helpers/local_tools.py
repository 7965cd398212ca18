"""A small world and an untrained small model, shared by the tests of the embedded engine."""

from __future__ import annotations

from pathlib import Path

import torch

from isocompute.engines.local.model import ModelConfig, Transformer
from isocompute.engines.local.worlds import BitRuleWorld
from supervised import Phase, Supervision, save_base

WORLD = BitRuleWorld(prompt_bits=8, answer_bits=12, agree=7, hidden=8)


def tiny_config(**changes: object) -> ModelConfig:
    sizes: dict[str, object] = {
        "vocab_size": len(WORLD.tokenizer()), "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 8, "max_position_embeddings": 32, "initializer_range": 0.3,
    }  # fmt: skip
    return ModelConfig(**{**sizes, **changes})  # type: ignore[arg-type]


def tiny_model(seed: int = 0, **changes: object) -> Transformer:
    return Transformer(tiny_config(**changes), torch.Generator().manual_seed(seed))


def tiny_folder(folder: Path) -> Path:
    """A model that says hexadecimal digits only, so that rewards are not always 0."""
    model = tiny_model(initializer_range=0.05)
    words = WORLD.tokenizer()
    with torch.no_grad():
        # The final norm's output has unit size: a shared direction in the head is a bias.
        model.embed[:, 0] += 1.0
        for word in range(len(words)):
            model.head[word, 0] += 4.0 if words.vocabulary[word] in "0123456789abcdef" else -4.0
    save_base(model, WORLD, Supervision(phases=(Phase(steps=0),)), folder)
    return folder
