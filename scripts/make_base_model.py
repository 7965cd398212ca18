"""Train a base model that the package ships, and say how well it knows its world.

    python scripts/make_base_model.py [bits|bits-mlp] [--out FOLDER]

Takes a few minutes on one thread. The result is written as a Hugging Face folder (safetensors).
Both models first learn the rule weakly and are then trained on a small fixed set again and
again, wrong bits and all, until they are confident and often wrong, as after fine-tuning on few
examples.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from isocompute.engines.local.engine import stream
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.mlp import BitMlp, MlpConfig
from isocompute.engines.local.model import ModelConfig, Transformer
from isocompute.engines.local.policy import Policy
from isocompute.engines.local.supervised import Phase, Supervision, save_base, train_base
from isocompute.engines.local.worlds import BitRuleWorld

WORLD = BitRuleWorld()
STRICTER = BitRuleWorld(agree=21)  # the feed-forward model knows the same rule better
SHIPPED = Path(__file__).parents[1] / "src" / "isocompute" / "data" / "base"
WORDS = len(WORLD.tokenizer())


def transformer() -> PolicyModel:
    """One layer of 64 with a wide feed-forward part, about 97,000 parameters."""
    config = ModelConfig(
        vocab_size=WORDS,
        hidden_size=64,
        intermediate_size=384,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=32,
        initializer_range=0.1,
    )
    return Transformer(config, torch.Generator().manual_seed(0))


def feed_forward() -> PolicyModel:
    """Two hidden layers of 256, about 95,000 parameters."""
    config = MlpConfig(prompt_words=WORDS, answer_tokens=WORLD.answer_tokens)
    return BitMlp(config, torch.Generator().manual_seed(0))


MODELS: dict[str, tuple[Callable[[], PolicyModel], BitRuleWorld, Supervision]] = {
    "bits": (
        transformer,
        WORLD,
        Supervision(phases=(Phase(steps=1300), Phase(steps=240, problems=1000))),
    ),
    "bits-mlp": (
        feed_forward,
        STRICTER,
        Supervision(phases=(Phase(steps=600, problems=1000, batch=256, learning_rate=1e-3),)),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MODELS, nargs="?", default="bits")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    build, world, supervision = MODELS[options.name]
    folder = options.out or SHIPPED / options.name

    def report(phase: int, step: int, loss: float) -> None:
        if step % 100 == 0:
            print(f"phase {phase + 1} step {step:5d}  loss {loss:.3f} nats/token", flush=True)

    model = build()
    train_base(world, model, supervision, report)
    save_base(model, world, supervision, folder)
    policy = Policy(folder)
    problems = policy.tokenize(world.problems("probe", 2000, seed=1))
    successes, _ = policy.count_successes(problems, 16, stream(0), temperature=1.0)
    rate = successes.double() / 16
    easy = ((rate >= 0.3) & (rate <= 0.6)).double().mean()
    parameters = sum(p.numel() for p in policy.model.parameters())
    print(f"{parameters} parameters; avg@16 {rate.mean():.3f}; easy (0.3 to 0.6) {easy:.3f}")


if __name__ == "__main__":
    main()
