"""The study of engines_agree.py for verl, which trains on the CPU in an environment of its own.

The base model gets heads of 32, the smallest that vLLM's attention on a CPU has, a chat template
and a token for the end, which verl must have: one beyond the model's own, so that it is never drawn
and responses have their full length as in the other engines. It is the same function; its query
weights are larger by the root of two, so that a step of Adam turns them by that much less.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import isocompute
from isocompute.study.yaml12 import read_yaml

ON_CPU = Path(__file__).parents[1] / "tests/verl_cpu"
BASE = Path(isocompute.__file__).parent / "data/base/bits"
PROMPT, RESPONSE = 20, 8  # tokens at most


def verl_study(study: dict[str, Any], folder: Path, python: Path) -> dict[str, Any]:
    """The study as verl runs it; its model and runs lie in `folder`."""
    widen(BASE, folder / "bits32")
    options = read_yaml(ON_CPU / "engine_options.yaml")
    options["environment"]["PYTHONPATH"] = str(ON_CPU)
    options["overrides"]["actor_rollout_ref.rollout.max_model_len"] = PROMPT + RESPONSE
    return {**study, "engine": "verl", "engine_options": {
        **options, "model": str(folder / "bits32"), "python": str(python),
        "folder": str(folder / "verl-runs"), "max_prompt_tokens": PROMPT,
        "max_response_tokens": RESPONSE,
    }}  # fmt: skip


def widen(source: Path, target: Path) -> None:
    """A model with heads of 16 -> the same function with heads of 32, once.

    Rotary frequency i of 16 dimensions is frequency 2i of 32: each dimension moves to its own,
    the others stay 0.
    """
    if (target / "config.json").is_file():
        return
    target.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    weights = load_file(source / "model.safetensors")
    old = config["head_dim"]
    new = 2 * old
    place = [2 * i for i in range(old // 2)] + [2 * i + new // 2 for i in range(old // 2)]

    def wider(weight: torch.Tensor, heads: int, scale: float = 1.0) -> torch.Tensor:
        rows = torch.zeros(heads, new, weight.shape[1])
        rows[:, place] = weight.view(heads, old, -1) * scale
        return rows.reshape(heads * new, -1).contiguous()

    heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}.self_attn.{{}}_proj.weight".format
        # attention divides by the root of the head's size
        weights[name("q")] = wider(weights[name("q")], heads, math.sqrt(2))
        weights[name("k")] = wider(weights[name("k")], keys)
        weights[name("v")] = wider(weights[name("v")], keys)
        weights[name("o")] = wider(weights[name("o")].T.contiguous(), heads).T.contiguous()
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(source / "tokenizer.json", target)
    generation = json.loads((source / "generation_config.json").read_text())
    tokenizer = json.loads((source / "tokenizer_config.json").read_text())
    tokenizer |= {"eos_token": "<end>", "chat_template":
                  "{% for message in messages %}{{ message.content }}{% endfor %}"}  # fmt: skip
    end = config["vocab_size"]  # the number that a tokenizer gives to the first token added
    for file, content in (("generation_config", generation | {"eos_token_id": end}),
                          ("tokenizer_config", tokenizer),
                          ("config", config | {"head_dim": new})):  # fmt: skip
        (target / f"{file}.json").write_text(json.dumps(content, indent=1))
