"""From sampled responses and rewards to the gradient of one update.

Shape legend: P prompts, N distinct responses, T response tokens, S prompt tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from isocompute.engines.local import objectives
from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.kernels import token_logprob, token_logprob_and_entropy
from isocompute.engines.local.sampling import Samples, scaled
from isocompute.recipe import Recipe

# Rows of one forward and backward pass: few enough for the cache, enough to fill a product.
ROWS_PER_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class GradientReport:
    """Numbers of one gradient: what was minimised, and what was measured on the way.

    Args:
        loss: value of the loss.
        kl: estimate of KL to the base model in nats per token; None without a base model.
        varies_P: whether the rewards of each prompt differ.
    """

    loss: float
    kl: float | None
    varies_P: Tensor


def accumulate(
    model: PolicyModel,
    reference: PolicyModel | None,
    prompt_PS: Tensor,
    length_P: Tensor,
    samples: Samples,
    reward_N: Tensor,
    recipe: Recipe,
    *,
    rows_per_chunk: int = ROWS_PER_CHUNK,
) -> GradientReport:
    """Add the gradient of the recipe's loss to the parameters' `.grad`.

    loss = sum over tokens of weight * (-A ratio + kl_coef * kl - entropy_coef * entropy), with
    weights by the recipe's aggregation. Rows that cannot contribute (no advantage, no
    regulariser) are not computed; they count in the means nevertheless.

    Args:
        model: the policy.
        reference: the base model; needed where `kl_coef > 0`.
        prompt_PS, length_P: prompts of the batch.
        samples: responses drawn from `model`.
        reward_N: their rewards.
        recipe: objective and coefficients.
        rows_per_chunk: how many responses are computed together.
    """
    count_N = samples.count_N
    advantage_N, varies_P = objectives.group_advantages(
        reward_N, count_N, samples.prompt_N, samples.prompts, recipe.advantage_std
    )
    kept_N = count_N * varies_P[samples.prompt_N]
    drop = recipe.zero_variance_filter
    weight_N = objectives.token_weights(
        samples.length_N, kept_N if drop == "loss" else count_N, recipe.aggregation
    )
    regular_N = objectives.token_weights(
        samples.length_N, count_N if drop == "none" else kept_N, recipe.aggregation
    )
    regularised = recipe.kl_coef > 0 or recipe.entropy_coef > 0
    active_N = (weight_N * advantage_N) != 0
    if regularised:
        active_N |= regular_N > 0
    loss = 0.0
    kl_sum = token_sum = 0.0
    for rows, first, stop in _chunks(active_N.nonzero().squeeze(-1), samples, rows_per_chunk):
        groups = Grouping(torch.bincount(samples.prompt_N[rows] - first, minlength=stop - first))
        length_R = samples.length_N[rows]
        token_RT = samples.token_NT[rows, : int(length_R.max())]
        mask_RT = torch.arange(token_RT.shape[1], device=rows.device) < length_R[:, None]
        given = (prompt_PS[first:stop], length_P[first:stop], token_RT, groups)
        logits_RTV = scaled(model.response_logits(*given), recipe.temperature)
        if recipe.entropy_coef > 0:
            logprob_RT, entropy_RT = token_logprob_and_entropy(logits_RTV, token_RT)
        else:
            logprob_RT = token_logprob(logits_RTV, token_RT)
        term_RT = objectives.policy_loss(logprob_RT, advantage_N[rows]) * weight_N[rows, None]
        if recipe.kl_coef > 0 and reference is not None:
            with torch.no_grad():
                reference_RTV = scaled(reference.response_logits(*given), recipe.temperature)
                reference_RT = token_logprob(reference_RTV, token_RT)
            kl_RT = objectives.kl_estimate(logprob_RT, reference_RT, recipe.kl_estimator)
            term_RT = term_RT + recipe.kl_coef * kl_RT * regular_N[rows, None]
            counted_RT = mask_RT * count_N[rows, None]
            kl_sum += float((kl_RT.detach() * counted_RT).sum())
            token_sum += float(counted_RT.sum())
        if recipe.entropy_coef > 0:
            term_RT = term_RT - recipe.entropy_coef * entropy_RT * regular_N[rows, None]
        total = (term_RT * mask_RT).sum()
        total.backward()  # type: ignore[no-untyped-call]
        loss += float(total.detach())
    kl = kl_sum / token_sum if token_sum else None
    return GradientReport(loss=loss, kl=kl, varies_P=varies_P)


def _chunks(
    rows: Tensor, samples: Samples, rows_per_chunk: int
) -> Iterator[tuple[Tensor, int, int]]:
    """Whole prompts together, up to `rows_per_chunk` rows unless one prompt alone has more."""
    if not rows.numel():
        return
    per_prompt: list[int] = torch.bincount(
        samples.prompt_N[rows], minlength=samples.prompts
    ).tolist()
    start = first = held = 0
    for prompt, number in enumerate(per_prompt):
        if held and held + number > rows_per_chunk:
            yield rows[start : start + held], first, prompt
            start, first, held = start + held, prompt, 0
        held += number
    if held:
        yield rows[start : start + held], first, samples.prompts
