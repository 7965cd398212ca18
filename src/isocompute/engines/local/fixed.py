"""Sampling and updates of several runs in fixed shapes: no branch, no wait, no state but weights.

Shape legend: R runs, P prompts of each, S prompt slots, N rows (rollouts) of each run, T response
tokens, L slots, V vocabulary, W numbers of a run's parameters, K sums.

Every rollout is a row; a row that has ended is computed on and masked. Where `sampling.py` and
`gradient.py` save arithmetic by asking what was drawn, this saves waiting by never asking. Their
tokens, log-probabilities and gradients are the same, which the tests hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from isocompute.engines.local import objectives
from isocompute.engines.local.interface import is_end, scaled
from isocompute.engines.local.kernels import token_logprob, token_logprob_and_entropy
from isocompute.engines.local.optimizer import BETA_1, BETA_2, EPSILON
from isocompute.engines.local.sampling import nucleus
from isocompute.engines.local.stacked import StackedTransformer, Weights

# Numbers that one forward and backward pass keeps, about: 1 GiB on a CPU, 8 GiB on a GPU.
FLOATS_PER_PASS = {"cpu": 1 << 28, "cuda": 1 << 31}


class Drawn(NamedTuple):
    """Responses to the prompts of every run.

    Attributes:
        token_RNT: response tokens, the model's pad token after the end.
        logprob_RNT: of each token at the sampling temperature (before top-p); 0 after the end.
        length_RN: tokens of each, the end-of-text token included.
        ended_RN: whether it ended before the limit, or at it, by an end-of-text token.
        entropy_R: sum over all tokens of the entropy of their distributions, nats, float64.
    """

    token_RNT: Tensor
    logprob_RNT: Tensor
    length_RN: Tensor
    ended_RN: Tensor
    entropy_R: Tensor


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How responses are drawn: one setting for all runs.

    Args:
        limit: T.
        temperature, top_p: of the distributions.
        rows: rows of one pass, at most.
    """

    limit: int
    temperature: float
    top_p: float
    rows: int


def rows_of_a_pass(model: StackedTransformer, runs: int, slots: int) -> int:
    """Rows of each run in one forward and backward pass, by the memory of their tokens."""
    c = model.config
    token = 8 * c.hidden_size + 6 * c.intermediate_size + 4 * c.num_attention_heads * slots
    each = slots * (c.num_hidden_layers * token + 6 * c.vocab_size)
    most = FLOATS_PER_PASS.get(model.flat.device.type, FLOATS_PER_PASS["cpu"])
    return max(1, most // (each * runs))


def passes(rows: int, most: int) -> Iterator[slice]:
    """Slices of so many rows, as equal as can be."""
    number = -(-rows // most)
    edges = [rows * i // number for i in range(number + 1)]
    return (slice(a, b) for a, b in pairwise(edges))


def drawn_by_inversion(probability: Tensor, uniform: Tensor) -> Tensor:
    """The token (...) in whose part of the cumulative distribution (..., V) a number lies."""
    ladder = probability.double().cumsum(-1)
    passed = (ladder / ladder[..., -1:] <= uniform[..., None]).sum(-1)
    return passed.clamp_(max=probability.shape[-1] - 1)


@torch.no_grad()
def draw(
    model: StackedTransformer, w: Weights, prompt_RPS: Tensor, start_RP: Tensor, place_RN: Tensor,
    uniform_RNT: Tensor, how: Sampling,
) -> Drawn:  # fmt: skip
    """Draw one response per row, T steps for all of them.

    Args:
        model, w: architecture, and weights (R, ...).
        prompt_RPS: prompts at the right end of their slots.
        start_RP: slot of each prompt's first token.
        place_RN: prompt of each row.
        uniform_RNT: number in [0, 1) of each token, float64.
        how: temperature and the like.
    """
    state, found = model.states(w, prompt_RPS, start_RP, 1)
    first_RPV = model.logits(w, state[:, :, 0])
    parts = []
    for rows in passes(place_RN.shape[1], how.rows):
        place = place_RN[:, rows]
        cache = [(_room(k, place, how.limit), _room(v, place, how.limit)) for k, v in found]
        start = start_RP.gather(1, place)
        parts.append(
            _decoded(model, w, of_rows(first_RPV, place), start, cache, uniform_RNT[:, rows],
                     prompt_RPS.shape[2], how)
        )  # fmt: skip
    token, logprob, length, ended = (
        torch.cat(x, 1) for x in zip(*(part[:4] for part in parts), strict=True)
    )
    entropy_R = torch.stack([part.entropy_R for part in parts]).sum(0)
    return Drawn(token, logprob, length, ended, entropy_R)


def of_rows(value_RPX: Tensor, place_RN: Tensor) -> Tensor:
    """(R, P, ...) -> (R, N, ...): each row gets what belongs to its prompt."""
    index = place_RN.view(*place_RN.shape, *[1] * (value_RPX.dim() - 2))
    return value_RPX.gather(1, index.expand(*place_RN.shape, *value_RPX.shape[2:]))


def _room(value: Tensor, place_RN: Tensor, limit: int) -> Tensor:
    """Keys or values (R, N, K, all slots, E) of each row's prompt, and room for its response."""
    return F.pad(of_rows(value, place_RN), (0, 0, 0, limit - 1))


def _decoded(
    model: StackedTransformer, w: Weights, logits: Tensor, start_RN: Tensor,
    cache: list[tuple[Tensor, Tensor]], uniform_RNT: Tensor, slots: int, how: Sampling,
) -> Drawn:  # fmt: skip
    c = model.config
    alive = torch.ones_like(start_RN, dtype=torch.bool)
    tokens, logprobs, lengths = [], [], torch.zeros_like(start_RN)
    entropy_R = torch.zeros(len(start_RN), dtype=torch.float64, device=start_RN.device)
    for t in range(how.limit):
        logprob_RNV = torch.log_softmax(scaled(logits, how.temperature), -1)
        probability = logprob_RNV.exp()
        entropy = objectives.token_entropy(probability, logprob_RNV)
        entropy_R += entropy.masked_fill(~alive, 0.0).sum(1, dtype=torch.float64)
        token = drawn_by_inversion(nucleus(probability, how.top_p), uniform_RNT[..., t])
        logprob = logprob_RNV.gather(-1, token[..., None]).squeeze(-1)
        tokens.append(token.masked_fill(~alive, c.pad_token_id))
        logprobs.append(logprob.masked_fill(~alive, 0.0))
        lengths += alive
        alive = alive & ~is_end(token, c.end_tokens)
        if t < how.limit - 1:
            state = model.continued(w, tokens[-1], start_RN, slots + t, cache)
            logits = model.logits(w, state[:, :, 0])
    return Drawn(torch.stack(tokens, -1), torch.stack(logprobs, -1), lengths, ~alive, entropy_R)


def response_logprobs(
    model: StackedTransformer, w: Weights, prompt_RNS: Tensor, start_RN: Tensor,
    token_RNT: Tensor, temperature: float, *, entropies: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Log-probability (R, N, T) of every response token; entropies, too, where they are wanted."""
    sequence = torch.cat([prompt_RNS, token_RNT[..., :-1]], -1)
    state, _ = model.states(w, sequence, start_RN, token_RNT.shape[2])
    logits = scaled(model.logits(w, state), temperature)
    if entropies:
        return token_logprob_and_entropy(logits, token_RNT)
    return token_logprob(logits, token_RNT), None


@dataclass(frozen=True, kw_only=True)
class Pushes:
    """What the rows of an update are worth; of `gradient.accumulate`, row by row.

    Args:
        advantage_RN, weight_RN: of the policy loss.
        regular_RN: weight in the KL and entropy terms.
        counted_RN: how much of the row is in the reported sums.
        kl_coef_R, entropy_coef_R: coefficients of each run.
        regularised: whether any of them is above 0.
    """

    advantage_RN: Tensor
    weight_RN: Tensor
    regular_RN: Tensor
    counted_RN: Tensor
    kl_coef_R: Tensor
    entropy_coef_R: Tensor
    regularised: bool


def gradients(
    model: StackedTransformer, base: StackedTransformer, prompt_RPS: Tensor, start_RP: Tensor,
    place_RN: Tensor, token_RNT: Tensor, length_RN: Tensor, pushes: Pushes, temperature: float,
    rows: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradient (R, W) of the GRPO loss of every run, and sums (R, 3): loss, tokens, KL (k3).

    Args:
        model, base: the policies, and the base model (one for all).
        prompt_RPS, start_RP: prompts at the right end of their slots, and where they begin.
        place_RN: prompt of each row.
        token_RNT, length_RN: the responses, and their tokens.
        pushes: what they are worth.
        temperature: of the policies.
        rows: of one pass, at most.
    """
    grad_RW = torch.zeros_like(model.flat)
    sums_RK = torch.zeros(len(grad_RW), 3, dtype=torch.float64, device=grad_RW.device)
    slot_T = torch.arange(token_RNT.shape[2], device=token_RNT.device)
    for part in passes(token_RNT.shape[1], rows):
        place, token = place_RN[:, part], token_RNT[:, part]
        given = of_rows(prompt_RPS, place), start_RP.gather(1, place), token, temperature
        mask = slot_T < length_RN[:, part, None]
        # Leaves that are new in every pass: autograd ties a leaf to the stream that it first saw.
        leaf_RW = model.flat.detach().requires_grad_()
        logprob, entropy = response_logprobs(
            model, model.views(leaf_RW), *given, entropies=pushes.regularised
        )
        term = objectives.policy_loss(logprob, pushes.advantage_RN[:, part, None])
        term = term * pushes.weight_RN[:, part, None]
        kl_sum_R = sums_RK.new_zeros(len(sums_RK))
        counted = pushes.counted_RN[:, part, None] * mask
        if entropy is not None:
            kl = objectives.kl_estimate(logprob, _of_base(base, *given), "k3")
            regular = pushes.regular_RN[:, part, None]
            term = term + pushes.kl_coef_R[:, None, None] * kl * regular
            term = term - pushes.entropy_coef_R[:, None, None] * entropy * regular
            kl_sum_R = (kl.detach() * counted).sum((1, 2), dtype=torch.float64)
        loss_R = (term * mask).sum((1, 2))
        grad_RW += torch.autograd.grad(loss_R.sum(), leaf_RW)[0]
        loss_R = loss_R.detach().double()
        tokens_R = counted.sum((1, 2), dtype=torch.float64)
        sums_RK += torch.stack([loss_R, tokens_R, kl_sum_R], 1)
    return grad_RW, sums_RK


@torch.no_grad()
def _of_base(
    base: StackedTransformer, prompt_RNS: Tensor, start_RN: Tensor, token_RNT: Tensor,
    temperature: float,
) -> Tensor:  # fmt: skip
    """Log-probabilities (R, N, T) under the base model: its rows are those of all runs."""
    found, _ = response_logprobs(
        base, base.views(base.flat), prompt_RNS.flatten(0, 1)[None], start_RN.flatten()[None],
        token_RNT.flatten(0, 1)[None], temperature, entropies=False,
    )  # fmt: skip
    return found.view(token_RNT.shape)


class StackedAdamW:
    """`optimizer.FlatAdamW` of every run; rates and corrections come as tensors (R,).

    Args:
        model: whose parameters are updated in place.
        weight_decay_R, max_grad_norm_R: of each run.
    """

    def __init__(
        self, model: StackedTransformer, weight_decay_R: Tensor, max_grad_norm_R: Tensor
    ) -> None:
        self.flat, self.decayed = model.flat, model.flat[:, : model.decayed]
        self.first, self.second = torch.zeros_like(model.flat), torch.zeros_like(model.flat)
        self.weight_decay_R, self.max_grad_norm_R = weight_decay_R, max_grad_norm_R

    def step(
        self, grad_RW: Tensor, rate_R: Tensor, correction_1_R: Tensor, correction_2_R: Tensor
    ) -> Tensor:
        """One update; returns the gradient norms (R,) before clipping.

        Args:
            grad_RW: gradients; scaled in place where they are clipped.
            rate_R: learning rates.
            correction_1_R, correction_2_R: 1 - beta ** steps.
        """
        norm_R: Tensor = torch.linalg.vector_norm(grad_RW, dim=1)
        most = self.max_grad_norm_R
        clip_R = (most / (norm_R + 1e-6)).masked_fill(~(norm_R > most), 1.0)
        grad_RW.mul_(clip_R[:, None])
        self.first.lerp_(grad_RW, 1 - BETA_1)
        self.second.mul_(BETA_2).addcmul_(grad_RW, grad_RW, value=1 - BETA_2)
        self.decayed.mul_((1 - rate_R * self.weight_decay_R)[:, None])
        scale = (self.second.sqrt() / correction_2_R.sqrt()[:, None]).add_(EPSILON)
        self.flat.sub_(self.first / scale * (rate_R / correction_1_R)[:, None])
        return norm_R
