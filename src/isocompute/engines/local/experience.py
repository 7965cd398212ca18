"""What a batch of rewarded responses is worth to an update, fixed before its first one.

Shape legend: P prompts, S prompt tokens, N distinct responses, T response tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from isocompute.engines.local import advantages
from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.sampling import Samples
from isocompute.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Experience:
    """Responses with what they are pushed towards.

    Args:
        prompt_PS, length_P: prompts, padded on the right, and their tokens.
        token_NT, length_N, prompt_N: responses in the order of their prompts.
        count_N: rollouts of each that enter the gradient.
        advantage_NT: (N, T), or (N, 1) where a response has one advantage.
        varies_P: whether the rewards of a prompt differ.
        sampler_NT: log-probabilities of the sampler; None where it is the trainer itself.
        old_NT: log-probabilities of the policy before the first update; None: on-policy.
        value_NT, return_NT: of ppo's value model, before the first update.
    """

    prompt_PS: Tensor
    length_P: Tensor
    token_NT: Tensor
    length_N: Tensor
    prompt_N: Tensor
    count_N: Tensor
    advantage_NT: Tensor
    varies_P: Tensor
    sampler_NT: Tensor | None = None
    old_NT: Tensor | None = None
    value_NT: Tensor | None = None
    return_NT: Tensor | None = None

    @property
    def prompts(self) -> int:
        """Number of prompts P."""
        return int(self.prompt_PS.shape[0])

    @property
    def mask_NT(self) -> Tensor:
        """True for tokens, False after the end."""
        place_T = torch.arange(self.token_NT.shape[1], device=self.token_NT.device)
        return place_T < self.length_N[:, None]

    def part(self, first: int, stop: int) -> Experience:
        """Prompts first..stop with their responses."""
        edge = torch.tensor([first, stop], device=self.prompt_N.device)
        start, end = torch.searchsorted(self.prompt_N, edge).tolist()
        changes: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                rows = slice(first, stop) if field.name.endswith(("_P", "_PS")) else slice(
                    start, end
                )
                changes[field.name] = value[rows]
        return replace(self, **{**changes, "prompt_N": changes["prompt_N"] - first})

    def chunks(self, rows: Tensor, rows_per_chunk: int) -> Iterator[Chunk]:
        """Some of the rows, whole prompts together, up to `rows_per_chunk` of them at once.

        One prompt that alone has more is one chunk.
        """
        if not rows.numel():
            return
        per_prompt: list[int] = torch.bincount(
            self.prompt_N[rows], minlength=self.prompts
        ).tolist()
        start = first = held = 0
        for prompt, number in enumerate(per_prompt):
            if held and held + number > rows_per_chunk:
                yield self._chunk(rows[start : start + held], first, per_prompt[first:prompt])
                start, first, held = start + held, prompt, 0
            held += number
        if held:
            yield self._chunk(rows[start : start + held], first, per_prompt[first:])

    def _chunk(self, rows: Tensor, first: int, counts: list[int]) -> Chunk:
        length_R, stop = self.length_N[rows], first + len(counts)
        token_RT = self.token_NT[rows, : int(length_R.max())]
        groups = Grouping(torch.tensor(counts, device=rows.device), sum(counts), max(counts))
        mask_RT = torch.arange(token_RT.shape[1], device=rows.device) < length_R[:, None]
        given = (self.prompt_PS[first:stop], self.length_P[first:stop], token_RT, groups)
        return Chunk(rows=rows, given=given, mask_RT=mask_RT)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows of one forward and backward pass, R of the N.

    Args:
        rows: which ones.
        given: arguments of `PolicyModel.response_logits`.
        mask_RT: True for tokens, False after the end.
    """

    rows: Tensor
    given: tuple[Tensor, Tensor, Tensor, Grouping]
    mask_RT: Tensor

    @property
    def token_RT(self) -> Tensor:
        """Response tokens."""
        return self.given[2]

    def cut(self, value_NT: Tensor) -> Tensor:
        """The chunk's rows and tokens of a tensor of all."""
        return value_NT[self.rows, : self.token_RT.shape[1]]


def make_experience(
    prompt_PS: Tensor,
    length_P: Tensor,
    samples: Samples,
    reward_N: Tensor,
    recipe: Recipe,
    *,
    sampler_differs: bool = False,
    generator: torch.Generator | None = None,
) -> Experience:
    """Group-relative advantages of a batch.

    Responses without a reward (NaN: the verifier failed) are left out of mean, std and gradient.

    Args:
        prompt_PS, length_P: prompts of the batch.
        samples: their responses.
        reward_N: rewards; NaN where there is none.
        recipe: `advantage_std` and `gradient_rollouts` are read.
        sampler_differs: whether the samples' log-probabilities are another program's.
        generator: picks the subset, where `gradient_rollouts` asks for one.
    """
    judged_N = ~reward_N.isnan()
    kept = slice(None) if bool(judged_N.all()) else judged_N.nonzero().squeeze(-1)
    prompt_N, count_N = samples.prompt_N[kept], samples.count_N[kept]
    advantage_N, varies_P = advantages.group_advantages(
        reward_N[kept], count_N, prompt_N, samples.prompts, recipe.advantage_std
    )
    if recipe.gradient_rollouts is not None and generator is not None:
        count_N = advantages.random_subset(count_N, prompt_N, recipe.gradient_rollouts, generator)
    return Experience(
        prompt_PS=prompt_PS, length_P=length_P, token_NT=samples.token_NT[kept],
        length_N=samples.length_N[kept], prompt_N=prompt_N, count_N=count_N,
        advantage_NT=advantage_N[:, None], varies_P=varies_P,
        sampler_NT=samples.logprob_NT[kept] if sampler_differs else None,
    )  # fmt: skip
