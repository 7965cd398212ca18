"""Rows of responses and the prompts that they share.

Shape legend: P prompts, N rows, G slots per prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isocompute.engines.local.kernels import picked, placed

if TYPE_CHECKING:
    from isocompute.engines.local.tree import PrefixTree

# Slots per row above which copies of the prompts' matrices cost less than empty slots.
MOSTLY_EMPTY = 2


class Grouping:
    """Which prompt each response row belongs to; rows of one prompt stand together.

    With the same number of rows for every prompt, grouping is a view; otherwise rows are
    spread over `G = max count` slots per prompt and gathered back, or, where most slots would be
    empty, each gets a copy of what belongs to its prompt.

    Attributes:
        known: responses that were given with it, and their prefix tree: policy and base model
            read the same ones.
    """

    known: tuple[Tensor, PrefixTree | None] | None = None

    def __init__(self, counts_P: Tensor, rows: int | None = None, slots: int | None = None) -> None:
        self.counts_P = counts_P
        self.prompts = int(counts_P.numel())
        # Sum and maximum of the counts; reading them from the device means waiting for it.
        self.rows = int(counts_P.sum()) if rows is None else rows
        if slots is None:
            slots = int(counts_P.max()) if self.prompts else 0
        self.slots = slots
        self.regular = self.rows == self.slots * self.prompts
        self.prompt_N = torch.repeat_interleave(
            torch.arange(self.prompts, device=counts_P.device), counts_P, output_size=self.rows
        )
        if not self.regular:
            first_P = torch.cumsum(counts_P, 0) - counts_P
            rank_N = torch.arange(self.rows, device=counts_P.device) - first_P[self.prompt_N]
            self.slot_N = self.prompt_N * self.slots + rank_N

    def spread(self, value_NX: Tensor) -> Tensor:
        """(N, ...) -> (P, G, ...), zero in empty slots."""
        shape = (self.prompts, self.slots, *value_NX.shape[1:])
        if self.regular:
            return value_NX.view(shape)
        return placed(value_NX, self.slot_N, self.prompts * self.slots).view(shape)

    def gather(self, value_PGX: Tensor) -> Tensor:
        """(P, G, ...) -> (N, ...)."""
        flat = value_PGX.reshape(-1, *value_PGX.shape[2:])
        return flat if self.regular else picked(flat, self.slot_N)

    def product(self, left_NKXY: Tensor, right_PKYZ: Tensor) -> Tensor:
        """Each row's matrices times those of its prompt: (N, K, X, Y) and (P, K, Y, Z)."""
        if self.slots * self.prompts > MOSTLY_EMPTY * self.rows:
            return torch.matmul(left_NKXY, right_PKYZ.index_select(0, self.prompt_N))
        k, x, y = left_NKXY.shape[1:]
        spread = self.spread(left_NKXY.contiguous()).transpose(1, 2)
        out = torch.matmul(spread.reshape(self.prompts, k, -1, y), right_PKYZ)
        return self.gather(out.view(self.prompts, k, self.slots, x, -1).transpose(1, 2))
