"""The transformer of several runs at once, in shapes that do not depend on what is drawn.

Shape legend: R runs, N rows (rollouts) of each, S prompt slots, T response tokens, L slots of a
sequence, Q of them that ask, H hidden size, A query heads, K key/value heads, E head size,
V vocabulary, W numbers of a run's parameters.

For accelerators, which wait for kernels rather than for arithmetic: each parameter of R runs is one
tensor, so that R runs take the kernels of one. Nothing is shared between rows in training, and
nothing is read back. Prompts stand at the right end of their S slots, so that every response
begins in slot S; positions are slots, which rotary attention cannot tell from those of `model.py`.
Architecture: that of `model.py`, to which the tests hold it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from isocompute.engines.local.kernels import gated_unit
from isocompute.engines.local.model import Transformer

Weights = Mapping[str, Tensor]  # name of a parameter -> (R, ...)
_HIDDEN = -1e30  # added to what a token must not see; finite, so that padding gives no NaN


def by_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Each run's linear layer: (R, ..., I) and (R, O, I) -> (R, ..., O)."""
    out = torch.matmul(x.flatten(1, -2), weight.transpose(1, 2))
    if bias is not None:
        out = out + bias[:, None]
    return out.view(*x.shape[:-1], -1)


def to_the_right(token_PS: Tensor, length_P: Tensor, slots: int) -> Tensor:
    """Prompts padded on the right, moved to the right end of so many slots."""
    slot = torch.arange(slots, device=token_PS.device) - slots + length_P[:, None]
    return token_PS.gather(1, slot.clamp(min=0)) * (slot >= 0)


class StackedTransformer:
    """R models of one architecture, parameters in one tensor (R, W).

    Args:
        template: a model of the architecture; gives names, shapes and the first weights.
        runs: R.
        device: where they are.

    Attributes:
        flat: the parameters (R, W), in the order of `optimizer.FlatAdamW`.
        decayed: how many of a run's W numbers belong to matrices; they stand in front.
    """

    def __init__(self, template: Transformer, runs: int, device: torch.device) -> None:
        self.config = c = template.config
        self.group = c.num_attention_heads // c.num_key_value_heads
        named = sorted(template.named_parameters(), key=lambda item: item[1].ndim < 2)
        one = torch.cat([p.detach().reshape(-1) for _, p in named]).to(device)
        self.flat = one.repeat(runs, 1)
        self.decayed = sum(p.numel() for _, p in named if p.ndim > 1)
        self.shapes = [(name, p.shape) for name, p in named]
        self.cos, self.sin = template.cos.to(device), template.sin.to(device)

    def views(self, flat_RW: Tensor) -> dict[str, Tensor]:
        """Each parameter (R, ...) as a view of a tensor like `flat`."""
        sizes = [math.prod(shape) for _, shape in self.shapes]
        parts = flat_RW.split_with_sizes(sizes, 1)
        return {
            name: part.view(-1, *shape)
            for (name, shape), part in zip(self.shapes, parts, strict=True)
        }

    # Parts ------------------------------------------------------------------------------

    def embed(self, w: Weights, token_RNL: Tensor) -> Tensor:
        """Word vectors (R, N, L, H), by a product with ones and zeros.

        The gradient is then a product as well: a sum in one order. That of a lookup adds rows up
        in any order, and for more than 3,072 words it cannot be captured in a CUDA graph
        (pytorch/pytorch issue 82886).
        """
        words = torch.arange(self.config.vocab_size, device=token_RNL.device)
        ones = (token_RNL[..., None] == words).to(w["embed"].dtype)
        return torch.matmul(ones.flatten(1, -2), w["embed"]).view(*token_RNL.shape, -1)

    def normed(self, x: Tensor, weight_RH: Tensor) -> Tensor:
        """Root-mean-square normalisation with each run's weight."""
        plain = F.rms_norm(x, x.shape[-1:], eps=self.config.rms_norm_eps)
        return plain * weight_RH.view(len(weight_RH), *[1] * (x.dim() - 2), -1)

    def turned(self, x: Tensor, first: int) -> Tensor:
        """Rotated (..., L, E) that stand in the slots from `first` on."""
        slots = slice(first, first + x.shape[-2])
        half = self.config.head_dim // 2
        return torch.addcmul(x * self.cos[slots], x.roll(half, -1), self.sin[slots])

    def keys_and_values(
        self, w: Weights, layer: str, normed: Tensor, first: int
    ) -> tuple[Tensor, Tensor]:
        """Rotated keys and values, both (R, N, K, L, E)."""
        c = self.config
        start, bias = c.num_attention_heads * c.head_dim, w.get(layer + "qkv_bias")
        fused = by_product(
            normed, w[layer + "qkv"][:, start:], None if bias is None else bias[:, start:]
        )
        heads = fused.view(*fused.shape[:-1], 2 * c.num_key_value_heads, -1).transpose(2, 3)
        key, value = heads.chunk(2, 2)
        return self.turned(key, first), value

    def attended(
        self, w: Weights, layer: str, normed: Tensor, first: int, key: Tensor, value: Tensor,
        unseen: Tensor,
    ) -> Tensor:  # fmt: skip
        """What the Q tokens from slot `first` on see: (R, N, Q, A * E).

        Args:
            normed: (R, N, Q, H) those tokens.
            key, value: (R, N, K, L, E) of all slots so far.
            unseen: (R, N, 1, 1, Q, L), 0 or minus infinity, about.
        """
        c = self.config
        stop, bias = c.num_attention_heads * c.head_dim, w.get(layer + "qkv_bias")
        asked = by_product(
            normed, w[layer + "qkv"][:, :stop], None if bias is None else bias[:, :stop]
        )
        q = asked.view(*asked.shape[:-1], c.num_attention_heads, -1).transpose(2, 3)
        q = self.turned(q, first) * c.head_dim**-0.5
        rows, asking = q.shape[:2], q.shape[3]
        q = q.reshape(*rows, c.num_key_value_heads, self.group * asking, c.head_dim)
        score = torch.matmul(q, key.transpose(-1, -2))
        score = score.view(*rows, c.num_key_value_heads, self.group, asking, -1)
        weight = torch.softmax(score + unseen, -1).flatten(3, 4)
        mixed = torch.matmul(weight, value).view(*rows, -1, asking, c.head_dim)
        return mixed.transpose(2, 3).flatten(-2)

    def finished(self, w: Weights, layer: str, x: Tensor, mixed: Tensor) -> Tensor:
        """The rest of a block after its attention."""
        x = x + by_product(mixed, w[layer + "out"], w.get(layer + "out_bias"))
        normed = self.normed(x, w[layer + "post_norm"])
        gate, up = w[layer + "gate_up"].chunk(2, 1)
        bias = w.get(layer + "gate_up_bias")
        gate_bias, up_bias = (None, None) if bias is None else bias.chunk(2, 1)
        wide = gated_unit(by_product(normed, gate, gate_bias), by_product(normed, up, up_bias))
        return x + by_product(wide, w[layer + "down"], w.get(layer + "down_bias"))

    def unseen(self, start_RN: Tensor, asking: int, slots: int) -> Tensor:
        """What the last `asking` of so many slots must not see: padding, and what comes later."""
        key = torch.arange(slots, device=start_RN.device)
        query = key[slots - asking :, None]
        allowed = (key >= start_RN[..., None, None]) & (key <= query)
        bias = torch.zeros(allowed.shape, device=start_RN.device)
        return bias.masked_fill_(~allowed, _HIDDEN)[:, :, None, None]

    # Passes -----------------------------------------------------------------------------

    def states(
        self, w: Weights, token_RNL: Tensor, start_RN: Tensor, wanted: int
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Hidden states (R, N, Q, H) of the last `wanted` slots, and every layer's keys and values.

        Args:
            w: weights.
            token_RNL: whole sequences, prompts at the right end of their slots.
            start_RN: slot of the prompt's first token.
            wanted: Q; the last layer computes no others.
        """
        x, slots = self.embed(w, token_RNL), token_RNL.shape[2]
        layers = self.config.num_hidden_layers
        found = []
        for i in range(layers):
            layer, asking = f"layers.{i}.", slots if i < layers - 1 else wanted
            normed, first = self.normed(x, w[layer + "input_norm"]), slots - asking
            key, value = self.keys_and_values(w, layer, normed, 0)
            found.append((key, value))
            mixed = self.attended(
                w, layer, normed[:, :, first:], first, key, value,
                self.unseen(start_RN, asking, slots),
            )  # fmt: skip
            x = self.finished(w, layer, x[:, :, first:], mixed)
        return x, found

    def continued(
        self, w: Weights, token_RN: Tensor, start_RN: Tensor, slot: int,
        cache: Sequence[tuple[Tensor, Tensor]],
    ) -> Tensor:  # fmt: skip
        """Hidden states (R, N, 1, H) of one more token, which is written into the cache.

        Args:
            w: weights.
            token_RN: the tokens.
            start_RN: slot of the prompt's first token.
            slot: where they stand.
            cache: keys and values (R, N, K, all slots, E) of each layer.
        """
        x = self.embed(w, token_RN[..., None])
        unseen = self.unseen(start_RN, 1, slot + 1)
        for i, (keys, values) in enumerate(cache):
            layer = f"layers.{i}."
            normed = self.normed(x, w[layer + "input_norm"])
            key, value = self.keys_and_values(w, layer, normed, slot)
            keys[..., slot : slot + 1, :], values[..., slot : slot + 1, :] = key, value
            mixed = self.attended(
                w, layer, normed, slot, keys[..., : slot + 1, :], values[..., : slot + 1, :], unseen
            )
            x = self.finished(w, layer, x, mixed)
        return x

    def logits(self, w: Weights, state: Tensor) -> Tensor:
        """Final norm and head: (R, ..., H) -> (R, ..., V)."""
        return by_product(self.normed(state, w["norm"]), w.get("head", w["embed"]))
