"""Train base models, and say how well each knows its world.

    python scripts/make_base_model.py [bits|bits-mlp|machine|products|countdown] [--out FOLDER]
    python scripts/make_base_model.py verbs|verbs-long [--out FOLDER]
    python scripts/make_base_model.py machine-sure|bits-64 --out FOLDER

Each takes seconds to minutes on one thread and is written as a Hugging Face folder
(safetensors). Those of the first line are shipped with the package, the others are made where they
are wanted (`benchmarks/engine.py`). All are stopped where they know their world partly. The two
shipped models of `bits` and `machine-sure` are trained at last on a small fixed set again and
again, errors and all, until they are confident and often wrong, as after fine-tuning on few
examples.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from isocompute.engines.local.engine import stream
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.mlp import BitMlp, MlpConfig
from isocompute.engines.local.model import ModelConfig, Transformer
from isocompute.engines.local.policy import Policy
from isocompute.engines.local.worlds import (
    BitRuleWorld,
    CountdownWorld,
    MachineWorld,
    ProductWorld,
    VerbWorld,
    World,
)
from supervised import Phase, Supervision, save_base, train_base

SHIPPED = Path(__file__).parents[1] / "src" / "isocompute" / "data" / "base"


def transformer(world: World, *, layers: int, width: int, hidden: int = 64) -> PolicyModel:
    """A Llama-type model for a world's vocabulary."""
    words = world.tokenizer()
    config = ModelConfig(
        vocab_size=len(words), hidden_size=hidden, intermediate_size=width,
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=hidden // 4, max_position_embeddings=32, initializer_range=0.1,
        eos_token_id=words.end,
    )  # fmt: skip
    return Transformer(config, torch.Generator().manual_seed(0))


def feed_forward(world: World) -> PolicyModel:
    """Two hidden layers of 256, about 95,000 parameters; for the bit-rule world only."""
    config = MlpConfig(prompt_words=len(world.tokenizer()), answer_tokens=world.max_new_tokens)
    return BitMlp(config, torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Recipe:
    """How one base model is made, and whether the package ships it."""

    world: World
    model: Callable[[World], PolicyModel]
    supervision: Supervision
    shipped: bool = True


MODELS = {
    "bits": Recipe(
        BitRuleWorld(),
        lambda world: transformer(world, layers=1, width=384),
        Supervision(phases=(Phase(steps=1300), Phase(steps=240, problems=1000))),
    ),
    # Knows the same rule better, and is judged by one bit more.
    "bits-mlp": Recipe(
        BitRuleWorld(agree=21),
        feed_forward,
        Supervision(phases=(Phase(steps=600, problems=1000, batch=256, learning_rate=1e-3),)),
    ),
    "machine": Recipe(
        MachineWorld(),
        lambda world: transformer(world, layers=1, width=192),
        Supervision(phases=(Phase(steps=800),), noise=0.3),
    ),
    # A move longer, with a truer idea of the table, and its 500 examples known by heart (loss 0):
    # responses that repeat.
    "machine-sure": Recipe(
        MachineWorld(longest=8),
        lambda world: transformer(world, layers=1, width=192),
        Supervision(phases=(Phase(steps=1000), Phase(steps=800, problems=500)), noise=0.06),
        shipped=False,
    ),
    # Half taught: nearly all responses differ.
    "bits-64": Recipe(
        BitRuleWorld(answer_bits=64, agree=37),
        lambda world: transformer(world, layers=1, width=384),
        Supervision(phases=(Phase(steps=300),)),
        shipped=False,
    ),
    "products": Recipe(
        ProductWorld(),
        lambda world: transformer(world, layers=2, width=160),
        Supervision(phases=(Phase(steps=500),), noise=0.2),
    ),
    "countdown": Recipe(
        CountdownWorld(),
        lambda world: transformer(world, layers=2, width=160),
        Supervision(phases=(Phase(steps=1200),), noise=0.3),
    ),
    "verbs": Recipe(
        VerbWorld(),
        lambda world: transformer(world, layers=1, width=384),
        Supervision(phases=(Phase(steps=2500),), noise=0.1),
    ),
    # The same rule; answers take 5 to 17 tokens instead of 5 to 8.
    "verbs-long": Recipe(
        VerbWorld(way=4),
        lambda world: transformer(world, layers=1, width=384),
        Supervision(phases=(Phase(steps=2500),), noise=0.1),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MODELS, nargs="?", default="bits")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipe = MODELS[options.name]
    if options.out is None and not recipe.shipped:
        parser.error(f"{options.name} is not shipped: give --out FOLDER")
    folder = options.out or SHIPPED / options.name

    def report(phase: int, step: int, loss: float) -> None:
        if step % 100 == 0:
            print(f"phase {phase + 1} step {step:5d}  loss {loss:.3f} nats/token", flush=True)

    model = recipe.model(recipe.world)
    train_base(recipe.world, model, recipe.supervision, report)
    save_base(model, recipe.world, recipe.supervision, folder)
    policy = Policy(folder)
    problems = policy.tokenize(recipe.world.problems("probe", 1000, seed=1))
    drawn = policy.count_successes(problems, 16, stream(0), temperature=1.0)
    rate = drawn.successes_P.double() / 16
    easy = ((rate >= 0.3) & (rate <= 0.6)).double().mean()
    hard = (rate <= 0.0625).double().mean()
    parameters = sum(p.numel() for p in policy.model.parameters())
    print(
        f"{parameters} parameters; avg@16 {rate.mean():.3f}; easy (0.3 to 0.6) {easy:.3f}; "
        f"hard (to 0.0625) {hard:.3f}; {drawn.tokens / 16000:.1f} tokens a response"
    )


if __name__ == "__main__":
    main()
