"""Train the base model that the package ships, and say how well it knows its world.

    python scripts/make_base_model.py [--out FOLDER]

Takes a few minutes on one thread. The result is written as a Hugging Face folder (safetensors).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from isocompute.engines.local.engine import stream
from isocompute.engines.local.model import ModelConfig
from isocompute.engines.local.policy import Policy
from isocompute.engines.local.supervised import Supervision, save_base, train_base
from isocompute.engines.local.worlds import BitRuleWorld

WORLD = BitRuleWorld()
SUPERVISION = Supervision(steps=1300)
SHIPPED = Path(__file__).parents[1] / "src" / "isocompute" / "data" / "base" / "bits"


def model_config(world: BitRuleWorld) -> ModelConfig:
    """Two layers of 64, about 85,000 parameters."""
    return ModelConfig(
        vocab_size=len(world.tokenizer()),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=32,
        initializer_range=0.1,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--steps", type=int, default=SUPERVISION.steps)
    options = parser.parse_args()
    torch.set_num_threads(1)
    supervision = Supervision(steps=options.steps)

    def report(step: int, loss: float) -> None:
        if step % 100 == 0:
            print(f"step {step:5d}  loss {loss:.3f} nats/token", flush=True)

    model = train_base(WORLD, model_config(WORLD), supervision, report)
    save_base(model, WORLD, supervision, options.out)
    policy = Policy(options.out)
    problems = policy.tokenize(WORLD.problems("probe", 2000, seed=1))
    successes, _ = policy.count_successes(problems, 16, stream(0), temperature=1.0)
    rate = successes.double() / 16
    easy = ((rate >= 0.3) & (rate <= 0.6)).double().mean()
    parameters = sum(p.numel() for p in policy.model.parameters())
    print(f"{parameters} parameters; avg@16 {rate.mean():.3f}; easy (0.3 to 0.6) {easy:.3f}")


if __name__ == "__main__":
    main()
