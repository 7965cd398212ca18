"""Losses of policy-gradient RL as pure functions of tensors.

Shape legend: N distinct responses (each drawn `count_N` times), T tokens, P prompts.

A response that was drawn c times enters with weight c: the gradient equals that of c copies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute.errors import InputError

STD_EPSILON = 1e-6  # added to the standard deviation, as in verl's GRPO
LOG_RATIO_LIMIT = 10.0  # verl clamps the log ratio of its low-variance KL, and the result


def group_advantages(
    reward_N: Tensor, count_N: Tensor, prompt_N: Tensor, prompts: int, std: str = "sample"
) -> tuple[Tensor, Tensor]:
    r"""Group-relative advantages, one value per distinct response.

    .. math:: A_i = (r_i - \mathrm{mean}(r)) / (\mathrm{std}(r) + 10^{-6})

    over the rollouts of one prompt; 0 where all rewards of the prompt agree.

    Args:
        reward_N: reward of each response.
        count_N: rollouts that drew it.
        prompt_N: its prompt.
        prompts: number of prompts P.
        std: "sample" (ddof 1), "population" (ddof 0), or "none" (no division; arXiv 2503.20783).

    Returns:
        advantage_N, and varies_P: whether the rewards of a prompt differ.

    Raises:
        InputError: for another word, or for fewer than 2 rollouts of a prompt.

    Source: arXiv 2402.03300, section 4.1.2.

    >>> reward, count = torch.tensor([1.0, 0.0]), torch.tensor([1, 3])
    >>> group_advantages(reward, count, torch.tensor([0, 0]), 1)[0].round(decimals=4).tolist()
    [1.5, -0.5]
    """
    weight_N = count_N.to(reward_N.dtype)
    zero_P = torch.zeros(prompts, dtype=reward_N.dtype, device=reward_N.device)
    size_P = zero_P.index_add(0, prompt_N, weight_N)
    if bool((size_P < 2).any()):
        raise InputError(
            "a group baseline needs at least 2 rollouts of every prompt, but got "
            f"{int(size_P.min())}; raise rollouts_per_problem."
        )
    mean_P = zero_P.index_add(0, prompt_N, weight_N * reward_N) / size_P
    centred_N = reward_N - mean_P[prompt_N]
    square_P = zero_P.index_add(0, prompt_N, weight_N * centred_N**2)
    some_P = zero_P.index_copy(0, prompt_N, reward_N)  # the reward of one of its responses
    varies_P = zero_P.index_add(0, prompt_N, (reward_N != some_P[prompt_N]).to(zero_P.dtype)) > 0
    if std == "none":
        scale_P = torch.ones_like(zero_P)
    elif std in ("sample", "population"):
        ddof = 1 if std == "sample" else 0
        scale_P = (square_P / (size_P - ddof)).sqrt() + STD_EPSILON
    else:
        raise InputError(
            f"`advantage_std` must be sample, population or none, but got {std!r}; choose one."
        )
    advantage_N = centred_N / scale_P[prompt_N]
    return advantage_N * varies_P[prompt_N], varies_P


def token_weights(length_N: Tensor, count_N: Tensor, aggregation: str) -> Tensor:
    """Weight of each token of a response in the loss; the loss is the weighted sum.

    Args:
        length_N: tokens of each response.
        count_N: rollouts that drew it; 0 leaves it out of sum and mean.
        aggregation: "token-mean" (every token of the batch alike; arXiv 2503.14476),
            "seq-mean-token-sum" (tokens summed, responses averaged), or "seq-mean-token-mean"
            (each response's mean, averaged; arXiv 2402.03300).

    Returns:
        weight_N; all zero for an empty batch.

    Raises:
        InputError: for another word.

    >>> token_weights(torch.tensor([2, 6]), torch.tensor([1, 1]), "token-mean").tolist()
    [0.125, 0.125]
    """
    count = count_N.double()
    if aggregation == "token-mean":
        weight = count / (count * length_N).sum().clamp(min=1)
    elif aggregation == "seq-mean-token-sum":
        weight = count / count.sum().clamp(min=1)
    elif aggregation == "seq-mean-token-mean":
        weight = count / count.sum().clamp(min=1) / length_N
    else:
        raise InputError(
            "`aggregation` must be token-mean, seq-mean-token-sum or seq-mean-token-mean, but got "
            f"{aggregation!r}; choose one."
        )
    return weight.float()


def policy_loss(logprob_NT: Tensor, advantage_N: Tensor) -> Tensor:
    r"""Strictly on-policy surrogate per token, -A * ratio with ratio = 1.

    .. math:: \ell_{it} = -A_i \, \exp(\log\pi_{it} - \mathrm{sg}[\log\pi_{it}])

    Its gradient is that of REINFORCE, -A grad log pi; its value is -A.

    Source: arXiv 2402.03300, equation 3, at one update per batch, where clipping never acts.
    """
    return -advantage_N[:, None] * torch.exp(logprob_NT - logprob_NT.detach())


def kl_estimate(logprob_NT: Tensor, reference_NT: Tensor, estimator: str = "k3") -> Tensor:
    r"""Per-token estimate of KL(policy || reference) from tokens that the policy drew.

    .. math:: k_1 = \log\pi - \log\pi_{ref}, \qquad
              k_3 = e^{d} - d - 1, \; d = \log\pi_{ref} - \log\pi

    Both are unbiased; k3 is never negative. As a loss, differentiated as it stands (as
    trainers do), k1 has an expected gradient of zero: use it to measure, k3 to regularise.

    Args:
        logprob_NT: of the policy.
        reference_NT: of the base model.
        estimator: "k1" or "k3" (verl's low_var_kl, with its clamps).

    Raises:
        InputError: for another word.

    Source: Schulman, "Approximating KL divergence" (2020); arXiv 2402.03300, equation 4.
    """
    if estimator == "k1":
        return logprob_NT - reference_NT
    if estimator == "k3":
        d = (reference_NT - logprob_NT).clamp(-LOG_RATIO_LIMIT * 2, LOG_RATIO_LIMIT * 2)
        return (d.exp() - d - 1).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    raise InputError(f"`kl_estimator` must be k1 or k3, but got {estimator!r}; choose one.")


def token_entropy(logprob_NTV: Tensor) -> Tensor:
    """Entropy in nats of each token's distribution: (..., V) log-probabilities -> (...)."""
    return -(logprob_NTV.exp() * logprob_NTV.clamp(min=-1e30)).sum(-1)
