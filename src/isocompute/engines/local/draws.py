"""Responses to some problems of every run, drawn on the device from one table of inputs.

Shape legend: R runs, P prompts of each (fewer are filled up with empty ones), S prompt slots, N
rows of each, T response tokens, X columns of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isocompute.engines.base import IntArray
from isocompute.engines.local import fixed
from isocompute.engines.local.counters import uniforms
from isocompute.engines.local.graphs import Captured
from isocompute.engines.local.member import Rows
from isocompute.engines.local.policy import TokenizedProblems
from isocompute.engines.local.sampling import not_finite
from isocompute.engines.local.stacked import StackedTransformer, to_the_right


class Asked(NamedTuple):
    """What one run is asked for in one pass: problems of a set, and the key of the numbers."""

    data: TokenizedProblems
    problem_P: IntArray
    key: tuple[int, int]


class Draws:
    """Draws n responses to each of P prompts for every run; inputs come as one table.

    Args:
        model: of all runs.
        prompts: P.
        counts_R: pairs of each run: prompts that it asks for, and responses to each.
        slots: S.
        how: of sampling.
        graphs: whether to capture it.
    """

    def __init__(
        self, model: StackedTransformer, prompts: int, counts_R: Sequence[tuple[int, int]],
        slots: int, how: fixed.Sampling, *, graphs: bool,
    ) -> None:  # fmt: skip
        self.model, self.how, self.slots = model, how, slots
        device = model.flat.device
        rows = [torch.arange(p).repeat_interleave(n) for p, n in counts_R]
        self.place_RN = torch.stack(rows).to(device)
        self.sample_RN = torch.stack([torch.arange(n).repeat(p) for p, n in counts_R]).to(device)
        self.host_place_RN: IntArray = torch.stack(rows).numpy()
        self.weights = model.views(model.flat)
        # Columns: prompt, its first slot, number of the problem, two words of the key.
        self.asked_RPX = torch.zeros(len(rows), prompts, slots + 4, dtype=torch.long, device=device)
        self.call = Captured(self._draw, graphs=graphs)

    @property
    def prompt_RPS(self) -> Tensor:
        """Prompts of the last call."""
        return self.asked_RPX[..., : self.slots]

    @property
    def start_RP(self) -> Tensor:
        """Their first slots."""
        return self.asked_RPX[..., self.slots]

    def _draw(self) -> tuple[fixed.Drawn, Tensor]:
        place, x = self.place_RN, self.asked_RPX
        uniform = uniforms(
            fixed.of_rows(x[..., self.slots + 2 :], place),
            x[..., self.slots + 1].gather(1, place), self.sample_RN, self.how.limit,
        )  # fmt: skip
        found = fixed.draw(
            self.model, self.weights, self.prompt_RPS, self.start_RP, place, uniform, self.how
        )
        broken_RN = found.logprob_RNT.isnan().any(-1)
        ends = torch.stack([found.length_RN, found.ended_RN.long(), broken_RN.long()], -1)
        return found, torch.cat([found.token_RNT, ends], -1).int()

    def __call__(self, asked: Mapping[int, Asked]) -> tuple[fixed.Drawn, IntArray]:
        """Draw for the runs that ask; also their tokens, lengths, ends and faults, on the host."""
        table = torch.zeros(self.asked_RPX.shape, dtype=torch.long)
        table[..., self.slots] = self.slots - 1  # an empty prompt is one word long
        for run, (data, problem_P, key) in asked.items():
            index = torch.from_numpy(problem_P)
            filled, length_P = table[run, : len(index)], data.length_P[index]
            filled[:, : self.slots] = to_the_right(data.token_PS[index], length_P, self.slots)
            filled[:, self.slots] = self.slots - length_P
            filled[:, self.slots + 1] = index
            filled[:, self.slots + 2 :] = torch.tensor(key)
        self.asked_RPX.copy_(table)
        found, packed = self.call()
        return found, packed.cpu().numpy()

    def rows(self, host: IntArray, run: int, logprob_RNT: Tensor | None = None) -> Rows:
        """The responses of one run; fewer where `host` holds only the first of them.

        Raises:
            DivergedError: if they were drawn from what are no probabilities.
        """
        limit = self.how.limit
        if host[run, :, limit + 2].any():
            raise not_finite()
        return Rows(
            self.host_place_RN[run, : host.shape[1]], host[run, :, :limit], host[run, :, limit],
            host[run, :, limit + 1], None if logprob_RNT is None else logprob_RNT[run],
        )  # fmt: skip
