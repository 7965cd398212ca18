"""Keys and values that were computed once: of prompts, and of sampled tokens.

Shape legend: P prompts, N rows, L cached response tokens, S prompt tokens (padded to the
longest), K key/value heads, E head size.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class PromptCache(NamedTuple):
    """Keys and values of prompts, per layer, and what is needed to continue them.

    `mask_PS` is None where all prompts have the same length; otherwise 0 for prompt tokens and
    -inf for padding.
    """

    key_LPKES: list[Tensor]
    value_LPKSE: list[Tensor]
    length_P: Tensor
    mask_PS: Tensor | None


class ResponseCache:
    """Keys and values of sampled tokens, in tensors of fixed size that are written in place."""

    def __init__(
        self, layers: int, heads: int, size: int, rows: int, tokens: int, like: Tensor
    ) -> None:
        self.key = [like.new_empty(rows, heads, size, tokens) for _ in range(layers)]
        self.value = [like.new_empty(rows, heads, tokens, size) for _ in range(layers)]
        self.rows = rows
        self.length = 0

    def append(self, layer: int, key_NKE1: Tensor, value_NK1E: Tensor) -> tuple[Tensor, Tensor]:
        """Write one token's keys and values; returns those of all tokens so far."""
        n, t = self.rows, self.length
        self.key[layer][:n, :, :, t : t + 1] = key_NKE1
        self.value[layer][:n, :, t : t + 1] = value_NK1E
        return self.key[layer][:n, :, :, : t + 1], self.value[layer][:n, :, : t + 1]

    def branch(self, parent_N: Tensor) -> None:
        """Row i becomes a copy of row `parent_N[i]`; the number of rows may grow or shrink."""
        t = self.length
        for store in (self.key, self.value):
            for i, old in enumerate(store):
                if parent_N.numel() > old.shape[0]:
                    new = old.new_empty(parent_N.numel(), *old.shape[1:])
                    new[..., :] = 0
                    store[i] = new
                along = old[:, :, :, :t] if store is self.key else old[:, :, :t]
                picked = along.index_select(0, parent_N)
                target = store[i][: parent_N.numel()]
                (target[:, :, :, :t] if store is self.key else target[:, :, :t]).copy_(picked)
        self.rows = int(parent_N.numel())
