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
from isocompute.engines.local.supervised import Phase, Supervision, save_base, train_base
from isocompute.engines.local.worlds import BitRuleWorld

WORLD = BitRuleWorld()
# First the rule, weakly: every problem is new. Then a small fixed set again and again, wrong bits
# and all, until the model is confident and often wrong, as after fine-tuning on few examples.
SUPERVISION = Supervision(phases=(Phase(steps=1300), Phase(steps=240, problems=1000)))
SHIPPED = Path(__file__).parents[1] / "src" / "isocompute" / "data" / "base" / "bits"


def model_config(world: BitRuleWorld) -> ModelConfig:
    """One layer of 64 with a wide feed-forward part, about 97,000 parameters."""
    return ModelConfig(
        vocab_size=len(world.tokenizer()),
        hidden_size=64,
        intermediate_size=384,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=32,
        initializer_range=0.1,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    options = parser.parse_args()
    torch.set_num_threads(1)

    def report(phase: int, step: int, loss: float) -> None:
        if step % 100 == 0:
            print(f"phase {phase + 1} step {step:5d}  loss {loss:.3f} nats/token", flush=True)

    model = train_base(WORLD, model_config(WORLD), SUPERVISION, report)
    save_base(model, WORLD, SUPERVISION, options.out)
    policy = Policy(options.out)
    problems = policy.tokenize(WORLD.problems("probe", 2000, seed=1))
    successes, _ = policy.count_successes(problems, 16, stream(0), temperature=1.0)
    rate = successes.double() / 16
    easy = ((rate >= 0.3) & (rate <= 0.6)).double().mean()
    parameters = sum(p.numel() for p in policy.model.parameters())
    print(f"{parameters} parameters; avg@16 {rate.mean():.3f}; easy (0.3 to 0.6) {easy:.3f}")


if __name__ == "__main__":
    main()
