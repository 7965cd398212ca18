"""Where and in what numbers a policy computes, in training and in sampling.

Trainers sample with another program, often in lower precision, than they train with; the
sampler's probabilities then differ from the trainer's. The same mismatch is to be had here:
`sampler_dtype` "bfloat16" samples in that arithmetic, "int8" from weights rounded to 8 bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from isocompute.engines.local.folders import load_model
from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.interface import Decoder, PolicyConfig, PolicyModel
from isocompute.errors import InputError

TrainingType = Literal["float32", "bfloat16"]
SamplerType = Literal["float32", "bfloat16", "int8"]


def find_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        InputError: if there is none, or torch cannot use it here.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(
            f"engine_options.device must be a device of torch such as cpu or cuda, but got "
            f"{name!r}; correct it."
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"engine_options.device must be usable on this machine, but got {name!r} and torch "
            "finds no CUDA; use cpu, or install torch for CUDA where a GPU is."
        )
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # noqa: BLE001 - each backend raises something else
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"engine_options.device must be usable on this machine, but torch cannot compute on "
            f"{name!r} ({why}); use cpu or another."
        ) from None
    return device


class Bfloat16(PolicyModel):
    """A policy whose matrix products run in bfloat16; weights and logits stay float32.

    Source: arXiv 1710.03740 (mixed precision), by torch's autocast.
    """

    def __init__(self, model: PolicyModel) -> None:
        super().__init__()
        self.model = model

    @property
    def sizes(self) -> PolicyConfig:
        """Sizes of the model."""
        return self.model.sizes

    def decoder(self, prompt_PS: Tensor, length_P: Tensor, rows: int, limit: int) -> Decoder:
        """Begin to sample."""
        with _autocast(prompt_PS):
            return _Bfloat16Decoder(self.model.decoder(prompt_PS, length_P, rows, limit))

    def response_logits(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping
    ) -> Tensor:
        """Logits (N, T, V) of every token of given responses."""
        with _autocast(prompt_PS):
            return self.model.response_logits(prompt_PS, length_P, token_NT, groups).float()

    def response_logprobs(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping,
        temperature: float = 1.0, *, entropies: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Log-probability (N, T) of every token of given responses, and entropies if wanted."""
        with _autocast(prompt_PS):
            return self.model.response_logprobs(
                prompt_PS, length_P, token_NT, groups, temperature, entropies=entropies
            )

    def floats_per_token(self, prompt_tokens: int, tokens: int) -> int:
        """As of the policy itself: some of them take half the room."""
        return self.model.floats_per_token(prompt_tokens, tokens)


class _Bfloat16Decoder(Decoder):
    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.first_PV = decoder.first_PV.float()

    def advance(self, parent_N: Tensor | None, token_N: Tensor, prompt_N: Tensor) -> Tensor:
        with _autocast(token_N):
            return self.decoder.advance(parent_N, token_N, prompt_N).float()


def _autocast(like: Tensor) -> torch.autocast:
    return torch.autocast(like.device.type, dtype=torch.bfloat16)


def trained_in(model: PolicyModel, dtype: str) -> PolicyModel:
    """The model as it computes in training; the parameters stay float32."""
    return Bfloat16(model) if dtype == "bfloat16" else model


def rounded_to_int8(weight: Tensor) -> Tensor:
    r"""Weights with one scale per row, rounded to 255 levels, and back.

    .. math:: \hat w = s \,\mathrm{round}(w / s), \qquad s = \max|w_{row}| / 127

    Source: arXiv 2208.07339, section 2 (absmax quantisation).

    >>> rounded_to_int8(torch.tensor([[1.27, 0.004, -0.016]])).mul(100).round().tolist()
    [[127.0, 0.0, -2.0]]
    """
    scale = (weight.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-30)
    return (weight / scale).round() * scale


class Sampler:
    """The policy as the sampler computes it.

    Args:
        model: the policy as it is trained.
        dtype: "float32": the very same; "bfloat16": its arithmetic; "int8": a copy whose
            matrices are rounded, brought up to date by `refresh`.
        folder: of the base model, from which the copy gets its shape.
    """

    def __init__(self, model: PolicyModel, dtype: str, folder: Path) -> None:
        self.source, self.rounded = model, dtype == "int8"
        if dtype == "bfloat16":
            self.model: PolicyModel = Bfloat16(model)
        elif self.rounded:
            device = next(model.parameters()).device
            self.model = load_model(folder).to(device).requires_grad_(False)
        else:
            self.model = model

    @torch.no_grad()
    def refresh(self) -> PolicyModel:
        """The sampler's model with the policy's current weights."""
        if self.rounded:
            pairs = zip(self.model.parameters(), self.source.parameters(), strict=True)
            for mine, theirs in pairs:
                mine.copy_(rounded_to_int8(theirs) if theirs.dim() > 1 else theirs)
        return self.model
