"""Models as Hugging Face folders: config.json and safetensors, in both directions."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.mlp import BitMlp, MlpConfig
from isocompute.engines.local.model import ModelConfig, Transformer
from isocompute.errors import InputError

MLP_TYPE = "isocompute_bits"


def _to_hugging_face(model: Transformer) -> dict[str, Tensor]:
    c = model.config
    out: dict[str, Tensor] = {
        "model.embed_tokens.weight": model.embed,
        "model.norm.weight": model.norm,
    }
    if not c.tie_word_embeddings:
        out["lm_head.weight"] = model.head
    sizes = [c.num_attention_heads * c.head_dim] + [c.num_key_value_heads * c.head_dim] * 2
    for i, layer in enumerate(model.blocks()):
        base = f"model.layers.{i}."
        q, k, v = torch.split(layer.qkv.data, sizes)
        gate, up = layer.gate_up.data.chunk(2)
        out |= {
            base + "input_layernorm.weight": layer.input_norm,
            base + "self_attn.q_proj.weight": q,
            base + "self_attn.k_proj.weight": k,
            base + "self_attn.v_proj.weight": v,
            base + "self_attn.o_proj.weight": layer.out,
            base + "post_attention_layernorm.weight": layer.post_norm,
            base + "mlp.gate_proj.weight": gate,
            base + "mlp.up_proj.weight": up,
            base + "mlp.down_proj.weight": layer.down,
        }
        if layer.qkv_bias is not None and layer.out_bias is not None:
            parts = torch.split(layer.qkv_bias.data, sizes)
            out |= {
                base + f"self_attn.{x}_proj.bias": part
                for x, part in zip("qkvo", (*parts, layer.out_bias), strict=True)
            }
        if layer.gate_up_bias is not None and layer.down_bias is not None:
            parts = (*layer.gate_up_bias.data.chunk(2), layer.down_bias)
            out |= {
                base + f"mlp.{x}_proj.bias": part
                for x, part in zip(("gate", "up", "down"), parts, strict=True)
            }
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in out.items()}


def _from_hugging_face(model: Transformer, state: dict[str, Tensor]) -> None:
    def put(target: Tensor, *names: str) -> None:
        missing = [n for n in names if n not in state]
        if missing:
            raise InputError(
                f"model.safetensors must hold every weight of its config.json, but {missing[0]!r} "
                "is missing; save the model again with its configuration."
            )
        value = torch.cat([state.pop(n) for n in names])
        if value.shape != target.shape:
            raise InputError(
                f"weight {names[0]!r} must have the shape that config.json gives, "
                f"{tuple(target.shape)}, but got {tuple(value.shape)}; save the model again."
            )
        target.copy_(value)

    with torch.no_grad():
        put(model.embed, "model.embed_tokens.weight")
        put(model.norm, "model.norm.weight")
        if not model.config.tie_word_embeddings:
            put(model.head, "lm_head.weight")
        for i, layer in enumerate(model.blocks()):
            base = f"model.layers.{i}."
            put(layer.input_norm, base + "input_layernorm.weight")
            put(layer.qkv, *(base + f"self_attn.{x}_proj.weight" for x in "qkv"))
            put(layer.out, base + "self_attn.o_proj.weight")
            put(layer.post_norm, base + "post_attention_layernorm.weight")
            put(layer.gate_up, base + "mlp.gate_proj.weight", base + "mlp.up_proj.weight")
            put(layer.down, base + "mlp.down_proj.weight")
            if layer.qkv_bias is not None and layer.out_bias is not None:
                put(layer.qkv_bias, *(base + f"self_attn.{x}_proj.bias" for x in "qkv"))
                put(layer.out_bias, base + "self_attn.o_proj.bias")
            if layer.gate_up_bias is not None and layer.down_bias is not None:
                put(layer.gate_up_bias, *(base + f"mlp.{x}_proj.bias" for x in ("gate", "up")))
                put(layer.down_bias, base + "mlp.down_proj.bias")
    state.pop("lm_head.weight", None)
    if state:
        raise InputError(
            f"model.safetensors must hold only the weights that its config.json names, but "
            f"got {sorted(state)[0]!r} too; convert the model first."
        )


def config_to_json(config: ModelConfig) -> dict[str, Any]:
    """The contents of `config.json`, readable by transformers 4 and 5."""
    rope = {"rope_theta": config.rope_theta, "rope_type": "default"}
    fields = {name: getattr(config, name) for name in config.__dataclass_fields__}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **fields,
        "rope_parameters": rope,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "use_cache": True,
        "torch_dtype": "float32",
    }


def config_from_json(data: dict[str, Any]) -> ModelConfig:
    """`config.json` of a Llama model -> `ModelConfig`.

    Raises:
        InputError: for another architecture, scaled rotary positions or a missing size.
    """
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    rules = (
        ("model_type", data.get("model_type"), "llama"),
        ("hidden_act", data.get("hidden_act", "silu"), "silu"),
        ("rope_type", kind, "default"),
    )
    for name, got, want in rules:
        if got != want:
            raise InputError(
                f"config.json must have {name}={want!r} for the embedded engine, but got {got!r}; "
                "use a plain Llama model."
            )
    try:
        heads = data["num_attention_heads"]
        known = {
            "vocab_size": data["vocab_size"],
            "hidden_size": data["hidden_size"],
            "intermediate_size": data["intermediate_size"],
            "num_hidden_layers": data["num_hidden_layers"],
            "num_attention_heads": heads,
        }
    except KeyError as error:
        raise InputError(
            f"config.json must give {error.args[0]}, but it is missing; save the model again."
        ) from None
    eos = data.get("eos_token_id")
    return ModelConfig(
        **known,
        num_key_value_heads=data.get("num_key_value_heads") or heads,
        head_dim=data.get("head_dim") or data["hidden_size"] // heads,
        max_position_embeddings=data.get("max_position_embeddings", 2048),
        rms_norm_eps=data.get("rms_norm_eps", 1e-6),
        rope_theta=rope.get("rope_theta", data.get("rope_theta", 10000.0)),
        initializer_range=data.get("initializer_range", 0.02),
        tie_word_embeddings=data.get("tie_word_embeddings", False),
        attention_bias=data.get("attention_bias", False),
        mlp_bias=data.get("mlp_bias", False),
        pad_token_id=data.get("pad_token_id") or 0,
        bos_token_id=data.get("bos_token_id"),
        eos_token_id=tuple(eos) if isinstance(eos, list) else eos,
    )


def generation_config(folder: Path) -> dict[str, Any]:
    """`generation_config.json` of a model folder; empty where there is none."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    return dict(json.loads(path.read_text(encoding="utf-8")))


def save_model(model: PolicyModel, folder: Path, tokenizer_from: Path | None = None) -> None:
    """Write `config.json` and `model.safetensors`, and copy the tokenizer's files."""
    from safetensors.torch import save_file

    if isinstance(model, Transformer):
        config, state = config_to_json(model.config), _to_hugging_face(model)
    else:
        assert isinstance(model, BitMlp)
        config = {"model_type": MLP_TYPE, **asdict(model.config)}
        state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if tokenizer_from is not None and (tokenizer_from / name).exists():
            shutil.copyfile(tokenizer_from / name, folder / name)


def load_model(folder: Path) -> PolicyModel:
    """Read a model folder (safetensors only), in float32.

    A Hugging Face folder of a Llama model gives a `Transformer`; the type "isocompute_bits", this
    package's own, a `BitMlp`.

    Raises:
        InputError: if files are missing or the model is of another architecture.
    """
    from safetensors.torch import load_file

    files = sorted(folder.glob("model*.safetensors"))
    if not (folder / "config.json").is_file() or not files:
        raise InputError(
            "a model folder must hold config.json and model.safetensors, but got "
            f"{folder}; give a Hugging Face folder saved with safetensors."
        )
    data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    state = {k: v.float() for file in files for k, v in load_file(file).items()}
    if data.get("model_type") == MLP_TYPE:
        del data["model_type"]
        mlp = BitMlp(MlpConfig(**data))
        mlp.load_state_dict(state)
        return mlp
    # As transformers have it: the tokens that end a response are those of generation, where it
    # names its own.
    generation = generation_config(folder)
    if generation.get("eos_token_id") is not None:
        data["eos_token_id"] = generation["eos_token_id"]
    model = Transformer(config_from_json(data))
    _from_hugging_face(model, state)
    return model
