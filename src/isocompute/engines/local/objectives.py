"""Losses of policy-gradient RL as pure functions of tensors.

Shape legend: N distinct responses (each drawn `count_N` times), T tokens, P prompts.

A response that was drawn c times enters with weight c: the gradient equals that of c copies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute.errors import InputError

LOG_RATIO_LIMIT = 10.0  # verl clamps the log ratio of its low-variance KL, and the result


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


def policy_loss(logprob_NT: Tensor, advantage_NT: Tensor) -> Tensor:
    r"""Strictly on-policy surrogate per token, -A * ratio with ratio = 1.

    .. math:: \ell_{it} = -A_i \, \exp(\log\pi_{it} - \mathrm{sg}[\log\pi_{it}])

    Its gradient is that of REINFORCE, -A grad log pi; its value is -A.

    Source: arXiv 2402.03300, equation 3, at one update per batch, where clipping never acts.
    """
    return -advantage_NT * torch.exp(logprob_NT - logprob_NT.detach())


def clipped_surrogate(
    logprob_NT: Tensor, old_NT: Tensor, advantage_NT: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    r"""PPO's clipped surrogate per token, which GRPO shares, for several updates per batch.

    .. math:: \ell = -\min(\rho A,\ \mathrm{clip}(\rho, 1 - \epsilon_{low},
              1 + \epsilon_{high}) A), \qquad \rho = e^{\log\pi - \log\pi_{old}}

    Args:
        logprob_NT: of the policy.
        old_NT: of the policy before the batch's first update.
        advantage_NT: (N, T), or (N, 1) where a response has one.
        low, high: the two epsilons.

    Returns:
        loss_NT, and whether clipping took a token out of the gradient.

    Source: arXiv 1707.06347, equation 7; two epsilons: arXiv 2503.14476, equation 10.
    """
    ratio_NT = torch.exp(logprob_NT - old_NT)
    plain_NT = ratio_NT * advantage_NT
    bounded_NT = ratio_NT.clamp(1 - low, 1 + high) * advantage_NT
    return -torch.minimum(plain_NT, bounded_NT), bounded_NT < plain_NT


def cispo_loss(
    logprob_NT: Tensor, old_NT: Tensor, advantage_NT: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor]:
    r"""CISPO per token: REINFORCE weighted by the clipped ratio, which carries no gradient.

    .. math:: \ell = -\mathrm{sg}[\mathrm{clip}(\rho, 1 - \epsilon_{low},
              1 + \epsilon_{high})]\, A \log\pi

    No token leaves the gradient; a clipped one has a bounded weight.

    Args:
        logprob_NT, old_NT, advantage_NT, low, high: as of `clipped_surrogate`.

    Returns:
        loss_NT, and whether the ratio of a token was clipped.

    Source: arXiv 2506.13585, equations 4 and 5.
    """
    ratio_NT = torch.exp(logprob_NT.detach() - old_NT)
    bounded_NT = ratio_NT.clamp(1 - low, 1 + high)
    return -bounded_NT * advantage_NT * logprob_NT, bounded_NT != ratio_NT


def importance_weights(
    trainer_NT: Tensor, sampler_NT: Tensor, mask_NT: Tensor, level: str = "token"
) -> Tensor:
    r"""Ratio of the trainer's to the sampler's probability, before truncation.

    .. math:: w_t = \pi_{trainer}(y_t) / \pi_{sampler}(y_t) \quad \text{or} \quad
              w = \prod_t w_t

    Args:
        trainer_NT: log-probabilities at training precision, before the first update.
        sampler_NT: log-probabilities of the sampler that drew the tokens.
        mask_NT: True for tokens, False after the end.
        level: "token", or "sequence": the product, the same for every token of a response.

    Raises:
        InputError: for another word.

    Source: "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (Yao et
    al., 2025), truncated importance sampling; verl's `rollout_is`.
    """
    log_NT = (trainer_NT - sampler_NT) * mask_NT
    if level == "sequence":
        log_NT = log_NT.sum(1, keepdim=True).expand_as(log_NT)
    elif level != "token":
        raise InputError(
            f"`importance_level` must be token or sequence, but got {level!r}; choose one."
        )
    return log_NT.exp()


def value_loss(value_NT: Tensor, old_NT: Tensor, return_NT: Tensor, clip: float) -> Tensor:
    r"""Clipped squared error of the value model per token.

    .. math:: \tfrac12 \max\big((V - R)^2,\
              (\mathrm{clip}(V, V_{old} - \epsilon, V_{old} + \epsilon) - R)^2\big)

    Source: arXiv 2005.12729, section 3, as verl and TRL have it.
    """
    bounded_NT = torch.clamp(value_NT, old_NT - clip, old_NT + clip)
    return 0.5 * torch.maximum((value_NT - return_NT) ** 2, (bounded_NT - return_NT) ** 2)


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


def token_entropy(probability_NTV: Tensor, logprob_NTV: Tensor) -> Tensor:
    """Entropy in nats of each token's distribution, given twice: (..., V) -> (...)."""
    return -(probability_NTV * logprob_NTV.clamp(min=-1e30)).sum(-1)
