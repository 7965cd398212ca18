"""Advantages as pure functions: of the group (grpo, cispo), and of a value model (ppo).

Shape legend: N distinct responses (each drawn `count_N` times), T tokens, P prompts,
R rollouts (the responses, repeated by their counts).
"""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute.errors import InputError

STD_EPSILON = 1e-6  # added to the standard deviation, as in verl's GRPO
_WHITEN_EPSILON = 1e-8  # added to the variance, as in verl's masked_whiten


def group_advantages(
    reward_N: Tensor, count_N: Tensor, prompt_N: Tensor, prompts: int, std: str = "sample"
) -> tuple[Tensor, Tensor]:
    r"""Group-relative advantages, one value per distinct response.

    .. math:: A_i = (r_i - \mathrm{mean}(r)) / (\mathrm{std}(r) + 10^{-6})

    over the rollouts of one prompt; 0 where all rewards of the prompt agree, and where fewer
    than two rollouts are left to compare.

    Args:
        reward_N: reward of each response.
        count_N: rollouts that drew it.
        prompt_N: its prompt.
        prompts: number of prompts P.
        std: "sample" (ddof 1), "population" (ddof 0), or "none" (no division; arXiv 2503.20783).

    Returns:
        advantage_N, and varies_P: whether the rewards of a prompt differ.

    Raises:
        InputError: for another word.

    Source: arXiv 2402.03300, section 4.1.2.

    >>> reward, count = torch.tensor([1.0, 0.0]), torch.tensor([1, 3])
    >>> group_advantages(reward, count, torch.tensor([0, 0]), 1)[0].round(decimals=4).tolist()
    [1.5, -0.5]
    """
    weight_N = count_N.to(reward_N.dtype)
    zero_P = torch.zeros(prompts, dtype=reward_N.dtype, device=reward_N.device)
    size_P = zero_P.index_add(0, prompt_N, weight_N)
    mean_P = zero_P.index_add(0, prompt_N, weight_N * reward_N) / size_P.clamp(min=1)
    centred_N = reward_N - mean_P[prompt_N]
    square_P = zero_P.index_add(0, prompt_N, weight_N * centred_N**2)
    some_P = zero_P.index_copy(0, prompt_N, reward_N)  # the reward of one of its responses
    varies_P = zero_P.index_add(0, prompt_N, (reward_N != some_P[prompt_N]).to(zero_P.dtype)) > 0
    if std == "none":
        scale_P = torch.ones_like(zero_P)
    elif std in ("sample", "population"):
        ddof = 1 if std == "sample" else 0
        scale_P = (square_P / (size_P - ddof).clamp(min=1)).sqrt() + STD_EPSILON
    else:
        raise InputError(
            f"`advantage_std` must be sample, population or none, but got {std!r}; choose one."
        )
    advantage_N = centred_N / scale_P[prompt_N]
    return advantage_N * varies_P[prompt_N], varies_P


def random_subset(
    count_N: Tensor, prompt_N: Tensor, size: int, generator: torch.Generator
) -> Tensor:
    """Counts of `size` rollouts per prompt, drawn without replacement from `count_N`.

    A prompt with fewer rollouts keeps them all.

    Source: arXiv 2603.12151, appendix G: n_train rollouts of n_est in the gradient.
    """
    n = count_N.numel()
    row_R = torch.repeat_interleave(torch.arange(n, device=count_N.device), count_N)
    key_R = torch.rand(row_R.numel(), generator=generator, dtype=torch.float64)
    key_R = key_R.to(count_N.device) + prompt_N[row_R]  # sorted by prompt, at random within
    row_R = row_R[torch.sort(key_R).indices]
    prompt_R = prompt_N[row_R]
    size_P = torch.bincount(prompt_R, minlength=1)
    first_P = torch.cumsum(size_P, 0) - size_P
    rank_R = torch.arange(row_R.numel(), device=count_N.device) - first_P[prompt_R]
    return torch.bincount(row_R[rank_R < size], minlength=n)


def generalised_advantages(
    value_NT: Tensor, reward_N: Tensor, length_N: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    r"""Advantages and returns of every token from the values of the states before them.

    .. math:: A_t = \sum_{l \ge 0} (\gamma\lambda)^l \delta_{t+l}, \qquad
              \delta_t = r_t + \gamma V_{t+1} - V_t, \qquad R_t = A_t + V_t

    The reward comes with the last token, after which the value is 0, cut off or not.

    Args:
        value_NT: value of the state in which each token was chosen.
        reward_N: outcome reward of each response.
        length_N: its tokens; what stands after them is ignored and gets 0.
        gamma, lam: discount, and weight of longer look-ahead.

    Returns:
        advantage_NT and return_NT.

    Source: arXiv 1506.02438, equations 11 to 16.

    >>> one = torch.tensor([[0.5, 0.25]]), torch.tensor([1.0]), torch.tensor([2])
    >>> generalised_advantages(*one, 1.0, 0.5)[0].tolist()  # 0.75, and -0.25 + 0.5 * 0.75
    [[0.125, 0.75]]
    """
    n, t = value_NT.shape
    place_T = torch.arange(t, device=value_NT.device)
    mask_NT = place_T < length_N[:, None]
    value_NT = value_NT * mask_NT
    reward_NT = reward_N[:, None] * (place_T == length_N[:, None] - 1)
    after_NT = torch.nn.functional.pad(value_NT[:, 1:], (0, 1))
    delta_NT = reward_NT + gamma * after_NT - value_NT
    running_N = value_NT.new_zeros(n)
    columns = []
    for i in range(t - 1, -1, -1):
        running_N = delta_NT[:, i] + gamma * lam * running_N
        columns.append(running_N)
    advantage_NT = torch.stack(columns[::-1], 1) * mask_NT
    return advantage_NT, (advantage_NT + value_NT) * mask_NT


def whitened(advantage_NT: Tensor, weight_NT: Tensor, std: str = "sample") -> Tensor:
    r"""Advantages with mean 0 and, unless `std` is "none", variance 1 over the batch's tokens.

    .. math:: A \leftarrow (A - \mathrm{mean}) / \sqrt{\mathrm{var} + 10^{-8}}

    "none" returns them as they are.

    Args:
        advantage_NT: of each token.
        weight_NT: rollouts that drew it; 0 for padding.
        std: "sample" (ddof 1), "population" (ddof 0) or "none".

    Raises:
        InputError: for another word.

    Source: verl's `masked_whiten`, which its GAE applies to every batch.
    """
    if std == "none":
        return advantage_NT
    if std not in ("sample", "population"):
        raise InputError(
            f"`advantage_std` must be sample, population or none, but got {std!r}; choose one."
        )
    size = weight_NT.sum().clamp(min=1)
    mean = (advantage_NT * weight_NT).sum() / size
    ddof = 1 if std == "sample" else 0
    square = ((advantage_NT - mean) ** 2 * weight_NT).sum()
    variance = square / (size - ddof).clamp(min=1)
    return (advantage_NT - mean) * torch.rsqrt(variance + _WHITEN_EPSILON) * (weight_NT > 0)
