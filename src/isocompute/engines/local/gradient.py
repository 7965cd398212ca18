"""From what a batch is worth to the gradient of one update.

Shape legend: N distinct responses, R rows of one chunk, T response tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isocompute.engines.local import objectives
from isocompute.engines.local.experience import Chunk, Experience
from isocompute.engines.local.interface import PolicyModel
from isocompute.recipe import Recipe

# Numbers kept by one forward and backward pass, 1 GiB of them in float32. A small model's batch of
# 512 responses to each of 32 problems is then one pass, and kernels do not grow with n; half as
# many, and it is two; twice as many, and two runs at once fill a small machine.
FLOATS_PER_CHUNK = 1 << 28


def rows_that_fit(model: PolicyModel, experience: Experience) -> int:
    """Responses of one forward and backward pass, by the memory of their tokens."""
    tokens = experience.token_NT.shape[1]
    each = model.floats_per_token(experience.prompt_PS.shape[1], tokens) * tokens
    return max(1, FLOATS_PER_CHUNK // each)


@dataclass(kw_only=True)
class GradientReport:
    """Numbers of one gradient: what was minimised, and what was measured on the way.

    Args:
        loss: value of the loss.
        sums: name -> sum over the computed tokens of all rollouts; names of `health.METRICS`.
        tokens: how many there are.
    """

    loss: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    tokens: float = 0.0

    @property
    def means(self) -> dict[str, float]:
        """Mean per token; empty where nothing was computed."""
        return {k: v / self.tokens for k, v in self.sums.items()} if self.tokens else {}


class _Sums:
    """Sums of a gradient's chunks, kept where they are computed and read once."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Tensor]] = {}

    def add(self, name: str, value_RT: Tensor, weight_RT: Tensor) -> None:
        """Count a number of each token."""
        self.total(name, (value_RT * weight_RT).sum())

    def total(self, name: str, value: Tensor) -> None:
        """Count a sum."""
        self.parts.setdefault(name, []).append(value)

    def read(self) -> GradientReport:
        """The numbers; the one moment that waits for the device."""
        if not self.parts:
            return GradientReport()
        found = torch.stack([torch.stack(v).double().sum() for v in self.parts.values()]).tolist()
        sums = dict(zip(self.parts, found, strict=True))
        return GradientReport(loss=sums.pop("loss"), tokens=sums.pop("tokens"), sums=sums)


def accumulate(
    model: PolicyModel,
    reference: PolicyModel | None,
    experience: Experience,
    recipe: Recipe,
    *,
    rows_per_chunk: int | None = None,
) -> GradientReport:
    """Add the gradient of the recipe's loss to the parameters' `.grad`.

    loss = sum over tokens of weight * (policy loss + kl_coef * kl - entropy_coef * entropy),
    with weights by the recipe's aggregation. Rows that cannot contribute (no advantage, no
    regulariser) are not computed; they count in the means nevertheless.

    Args:
        model: the policy.
        reference: the base model; needed where `kl_coef > 0`.
        experience: responses and advantages.
        recipe: objective and coefficients.
        rows_per_chunk: how many responses are computed together; None: as many as memory allows.
    """
    e = experience
    weight_N, regular_N = row_weights(e, recipe)
    active_N = active_rows(e, recipe, weight_N, regular_N)
    report, most = _Sums(), rows_per_chunk or rows_that_fit(model, e)
    for chunk in e.chunks(active_N.nonzero().squeeze(-1), most):
        rows = chunk.rows
        counted_RT = chunk.mask_RT * e.count_N[rows, None]
        logprob_RT, entropy_RT = model.response_logprobs(
            *chunk.given, recipe.temperature, entropies=recipe.entropy_coef > 0
        )
        term_RT = _policy_term(logprob_RT, chunk, e, recipe, report) * weight_N[rows, None]
        if recipe.kl_coef > 0 and reference is not None:
            with torch.no_grad():
                reference_RT, _ = reference.response_logprobs(*chunk.given, recipe.temperature)
            kl_RT = objectives.kl_estimate(logprob_RT, reference_RT, recipe.kl_estimator)
            term_RT = term_RT + recipe.kl_coef * kl_RT * regular_N[rows, None]
            report.add("kl", kl_RT.detach(), counted_RT)
        if entropy_RT is not None:
            term_RT = term_RT - recipe.entropy_coef * entropy_RT * regular_N[rows, None]
        total = (term_RT * chunk.mask_RT).sum()
        total.backward()  # type: ignore[no-untyped-call]
        report.total("loss", total.detach())
        report.total("tokens", counted_RT.sum())
    return report.read()


def row_weights(e: Experience, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Weight of a token in the policy loss, and in the KL and entropy terms, per response (N,)."""
    drop = recipe.zero_variance_filter
    kept_N = e.count_N * e.varies_P[e.prompt_N]
    weight_N = objectives.token_weights(
        e.length_N, kept_N if drop == "loss" else e.count_N, recipe.aggregation
    )
    regular_N = objectives.token_weights(
        e.length_N, e.count_N if drop == "none" else kept_N, recipe.aggregation
    )
    return weight_N, regular_N


def active_rows(e: Experience, recipe: Recipe, weight_N: Tensor, regular_N: Tensor) -> Tensor:
    """Which responses (N,) can contribute to the gradient, given those weights."""
    active_N = (weight_N > 0) & (e.advantage_NT != 0).any(1)
    if recipe.kl_coef > 0 or recipe.entropy_coef > 0:
        active_N |= regular_N > 0
    return active_N


def _policy_term(
    logprob_RT: Tensor, chunk: Chunk, e: Experience, recipe: Recipe, report: _Sums
) -> Tensor:
    """Loss of each token of a chunk, importance weights included."""
    advantage_RT = e.advantage_NT[chunk.rows]
    if advantage_RT.shape[1] > 1:
        advantage_RT = advantage_RT[:, : chunk.token_RT.shape[1]]
    counted_RT = chunk.mask_RT * e.count_N[chunk.rows, None]
    now_RT = logprob_RT.detach()
    old_RT = now_RT if e.old_NT is None else chunk.cut(e.old_NT)
    bounds = (recipe.clip_low, recipe.clip_high)
    if recipe.objective == "cispo":
        loss_RT, clipped_RT = objectives.cispo_loss(logprob_RT, old_RT, advantage_RT, *bounds)
    elif e.old_NT is None:
        loss_RT, clipped_RT = objectives.policy_loss(logprob_RT, advantage_RT), None
    else:
        loss_RT, clipped_RT = objectives.clipped_surrogate(
            logprob_RT, old_RT, advantage_RT, *bounds
        )
    if e.old_NT is not None and clipped_RT is not None:
        report.add("ratio", (now_RT - old_RT).exp(), counted_RT)
        report.add("ratio_clipped_share", clipped_RT, counted_RT)
        # k3 from the old policy, which drew the tokens, to the new one.
        report.add("kl_old", objectives.kl_estimate(old_RT, now_RT, "k3"), counted_RT)
    if e.sampler_NT is not None:
        ratio_RT = objectives.importance_weights(
            old_RT, chunk.cut(e.sampler_NT), chunk.mask_RT, recipe.importance_level
        )
        report.add("importance_ratio", ratio_RT, counted_RT)
        if recipe.importance_cap is not None:
            cap = recipe.importance_cap
            report.add("importance_capped_share", ratio_RT > cap, counted_RT)
            loss_RT = loss_RT * ratio_RT.clamp(max=cap)
    return loss_RT


@torch.no_grad()
def evaluate_tokens(
    experience: Experience,
    of_chunk: Callable[[Chunk], Tensor],
    *,
    rows_per_chunk: int,
) -> Tensor:
    """A number of every response token (N, T), computed chunk by chunk without a gradient."""
    like_NT = experience.token_NT
    out_NT = torch.zeros(like_NT.shape, device=like_NT.device)
    every = torch.arange(like_NT.shape[0], device=like_NT.device)
    for chunk in experience.chunks(every, rows_per_chunk):
        out_NT[chunk.rows, : chunk.token_RT.shape[1]] = of_chunk(chunk)
    return out_NT


def token_logprobs(model: PolicyModel, experience: Experience, temperature: float) -> Tensor:
    """Log-probability (N, T) of every response token under the policy as it is now."""

    def of_chunk(chunk: Chunk) -> Tensor:
        return model.response_logprobs(*chunk.given, temperature)[0]

    return evaluate_tokens(
        experience, of_chunk, rows_per_chunk=rows_that_fit(model, experience)
    )
