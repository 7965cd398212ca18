"""Sampling n responses per prompt, each distinct prefix computed once.

Shape legend: P prompts, R rollouts (P times n), N distinct prefixes or responses, T tokens,
V vocabulary.

Every rollout draws its tokens from its own uniform numbers by inversion, and rollouts that
share a prefix share the computation. The result is therefore the same, rollout by rollout, as
n independent samples; the counts of a prefix's children are multinomial by construction.
Where all prefixes differ, the tree degenerates to one row per rollout at no cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from isocompute.engines.base import DivergedError
from isocompute.engines.local.interface import PolicyModel, is_end, scaled
from isocompute.engines.local.objectives import token_entropy

# A decoding pass takes prompts together up to so many distinct responses, fewer where the
# vocabulary is so large that their logits would fill memory.
MOST_ROWS, LEAST_ROWS, LOGITS_PER_PASS = 16384, 1024, 1 << 22


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Distinct responses with how often each was drawn.

    Args:
        token_NT: response tokens, padded with the model's pad token after the end.
        length_N: tokens of each response, the end-of-text token included.
        prompt_N: prompt of each response, ascending.
        count_N: rollouts that drew it; they sum to n for every prompt.
        logprob_NT: log-probability of each token under the sampling temperature (before
            top-p); 0 after the end.
        clipped_N: whether the response met the token limit without an end-of-text token.
        prompts: number of prompts P.
        entropy: mean entropy in nats of the token distributions that rollouts drew from.
    """

    token_NT: Tensor
    length_N: Tensor
    prompt_N: Tensor
    count_N: Tensor
    logprob_NT: Tensor
    clipped_N: Tensor
    prompts: int
    entropy: float

    @property
    def distinct_P(self) -> Tensor:
        """Number of distinct responses of each prompt."""
        return torch.bincount(self.prompt_N, minlength=self.prompts)

    @property
    def tokens(self) -> int:
        """Generated tokens of all rollouts."""
        return int((self.length_N * self.count_N).sum())


def nucleus(probability_NV: Tensor, top_p: float) -> Tensor:
    """Keeps the smallest set of likeliest tokens whose mass reaches `top_p`, renormalised.

    Source: arXiv 1904.09751, section 3.1.
    """
    if top_p >= 1.0:
        return probability_NV
    ordered, index = probability_NV.sort(dim=-1, descending=True, stable=True)
    ordered = ordered * (ordered.cumsum(-1) - ordered < top_p)
    kept = torch.zeros_like(probability_NV).scatter(-1, index, ordered)
    return kept / kept.sum(-1, keepdim=True)


def not_finite() -> DivergedError:
    """What to say of a policy whose probabilities are no numbers any more."""
    return DivergedError(
        "the policy's probabilities must be finite, but they are not; lower the learning rate."
    )


def draw_children(
    probability_NV: Tensor, node_R: Tensor, uniform_R: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One token for each rollout by inversion of its node's distribution.

    Args:
        probability_NV: token distribution at each node.
        node_R: node of each rollout.
        uniform_R: numbers in [0, 1), float64.

    Returns:
        The children as `node * V + token` (ascending), how many rollouts each has, and the
        child of each rollout.
    """
    n, v = probability_NV.shape
    # Node i's cumulative distribution lies in (i, i + 1]: one sorted list serves all nodes.
    ladder = probability_NV.double().cumsum(-1)
    ladder = ladder / ladder[:, -1:] + torch.arange(n, device=ladder.device)[:, None]
    key_R = torch.searchsorted(ladder.view(-1), uniform_R + node_R, right=True)
    count = torch.bincount(key_R, minlength=n * v)
    if count.numel() != n * v:  # beyond the last token: some probability is no number
        raise not_finite()
    child = count.nonzero().squeeze(-1)
    rank = torch.empty_like(count)
    rank.index_copy_(0, child, torch.arange(child.numel(), device=rank.device))
    # `index_select` takes a quarter of the time of indexing by a tensor.
    return child, count.index_select(0, child), rank.index_select(0, key_R)


def sample(
    model: PolicyModel,
    prompt_PS: Tensor,
    length_P: Tensor,
    rollouts_per_prompt: int,
    *,
    max_new_tokens: int,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_p: float = 1.0,
    rows_per_pass: int | None = None,
) -> Samples:
    """Draw `rollouts_per_prompt` responses for each prompt.

    Args:
        model: the policy.
        prompt_PS: prompt tokens, padded on the right.
        length_P: tokens of each prompt.
        rollouts_per_prompt: n.
        max_new_tokens: a response ends there, or at the end-of-text token.
        generator: the only source of randomness; the same state gives the same responses
            (up to rounding, whatever `rows_per_pass` is).
        temperature: divides the logits.
        top_p: nucleus size.
        rows_per_pass: prompts are taken together up to about so many distinct responses; None:
            by the size of the vocabulary.

    Returns:
        The distinct responses, grouped by prompt.
    """
    p, n = prompt_PS.shape[0], rollouts_per_prompt
    if rows_per_pass is None:
        most = LOGITS_PER_PASS // model.sizes.vocab_size
        rows_per_pass = min(MOST_ROWS, max(LEAST_ROWS, most))
    # Numbers below 1 by more than the rounding of `node + uniform` for 2**20 nodes.
    uniform_PRT = torch.rand(
        p, n, max_new_tokens, generator=generator, dtype=torch.float64
    ).clamp_(max=1 - 2.0**-30).to(prompt_PS.device)
    parts: list[Samples] = []
    first: list[int] = []
    start, per_pass = 0, max(1, rows_per_pass // n)
    while start < p:
        taken = slice(start, start + per_pass)
        parts.append(
            _sample_pass(
                model, prompt_PS[taken], length_P[taken], uniform_PRT[taken].flatten(0, 1),
                temperature, top_p,
            )
        )
        first.append(start)
        start += parts[-1].prompts
        # Where responses repeat, rows are far fewer than rollouts: take more prompts together.
        distinct = sum(part.length_N.numel() for part in parts)
        per_pass = max(1, rows_per_pass * start // distinct)
    tokens = [s.tokens for s in parts]
    if not math.isfinite(sum(s.entropy for s in parts)):
        raise not_finite()

    # Made outside inference mode, so that gradients may be computed from them.
    def joined(name: str) -> Tensor:
        return torch.cat([getattr(s, name) for s in parts])

    return Samples(
        token_NT=joined("token_NT"), length_N=joined("length_N"), count_N=joined("count_N"),
        prompt_N=torch.cat([s.prompt_N + i for s, i in zip(parts, first, strict=True)]),
        logprob_NT=joined("logprob_NT"), clipped_N=joined("clipped_N"), prompts=p,
        entropy=sum(s.entropy * t for s, t in zip(parts, tokens, strict=True)) / sum(tokens),
    )


@torch.inference_mode()
def _sample_pass(
    model: PolicyModel,
    prompt_PS: Tensor,
    length_P: Tensor,
    uniform_RT: Tensor,
    temperature: float,
    top_p: float,
) -> Samples:
    config = model.sizes
    device = prompt_PS.device
    p, (r, limit) = prompt_PS.shape[0], uniform_RT.shape
    uniform_TR = uniform_RT.t().contiguous()
    decoder = model.decoder(prompt_PS, length_P, r, limit)
    logits_NV = decoder.first_PV
    node_R = torch.arange(p, device=device).repeat_interleave(r // p)
    prompt_N = torch.arange(p, device=device)
    count_N = torch.full((p,), r // p, device=device)
    token_NT = torch.empty(p, 0, dtype=torch.long, device=device)
    logprob_NT = torch.empty(p, 0, device=device)
    done: list[tuple[Tensor, ...]] = []
    entropies: list[Tensor] = []  # of the distributions that prefixes are continued from
    drawn_from: list[Tensor] = []  # how many rollouts each continues
    alive_R: Tensor | None = None  # rollouts that have not ended; None: all
    for t in range(limit):
        logprob_NV = torch.log_softmax(scaled(logits_NV, temperature), dim=-1)
        probability_NV = logprob_NV.exp()
        entropies.append(token_entropy(probability_NV, logprob_NV))
        drawn_from.append(count_N)
        child, count_N, node_R = draw_children(
            nucleus(probability_NV, top_p), node_R,
            uniform_TR[t] if alive_R is None else uniform_TR[t].index_select(0, alive_R),
        )
        token_N = child % config.vocab_size
        parent: Tensor | None = None  # every prefix is continued: as many children mean one each
        if child.numel() != prompt_N.numel():
            parent = child // config.vocab_size
            prompt_N, token_NT, logprob_NT = (
                prompt_N[parent], token_NT[parent], logprob_NT[parent]
            )
        token_NT = torch.cat([token_NT, token_N[:, None]], 1)
        logprob_NT = torch.cat([logprob_NT, logprob_NV.view(-1)[child, None]], 1)
        ended_N = is_end(token_N, config.end_tokens)
        last = t == limit - 1
        if last or (config.end_tokens and bool(ended_N.any())):
            out = slice(None) if last else ended_N.nonzero().squeeze(-1)
            pad = limit - t - 1
            done.append((
                F.pad(token_NT[out], (0, pad), value=config.pad_token_id),
                torch.full_like(token_N[out], t + 1), prompt_N[out], count_N[out],
                F.pad(logprob_NT[out], (0, pad)), ~ended_N[out],
            ))
            stays_N = ~ended_N
            stay = stays_N.nonzero().squeeze(-1)
            if last or not stay.numel():
                break
            active_R = stays_N.index_select(0, node_R).nonzero().squeeze(-1)
            renumber = torch.cumsum(stays_N, 0) - 1
            node_R = renumber.index_select(0, node_R.index_select(0, active_R))
            alive_R = active_R if alive_R is None else alive_R.index_select(0, active_R)
            parent = stay if parent is None else parent[stay]
            token_N, token_NT, logprob_NT = token_N[stay], token_NT[stay], logprob_NT[stay]
            prompt_N, count_N = prompt_N[stay], count_N[stay]
        logits_NV = decoder.advance(parent, token_N, prompt_N)
    token, length, prompt, count, logprob, clipped = (
        torch.cat(x) for x in zip(*done, strict=True)
    )
    order = torch.sort(prompt, stable=True).indices
    weight = torch.cat(drawn_from).double()
    return Samples(
        token_NT=token[order], length_N=length[order], prompt_N=prompt[order],
        count_N=count[order], logprob_NT=logprob[order], clipped_N=clipped[order], prompts=p,
        entropy=float(torch.cat(entropies).double() @ weight / weight.sum()),
    )
