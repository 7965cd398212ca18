"""Element-wise parts of the model with hand-written gradients: fewer passes over memory.

Shape legend: H features of a row, I feed-forward size, T tokens, V vocabulary, `...` rows.

Each is checked against plain autograd in `tests/test_local_model.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        scale = _inverse_rms(x, epsilon)
        ctx.save_for_backward(x, weight, scale)
        return x * scale * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        grad_weight = (grad * normed).flatten(0, -2).sum(0)
        weighted = grad * weight
        along = (weighted * normed).mean(-1, keepdim=True)
        return torch.addcmul(weighted, normed, along, value=-1).mul_(scale), grad_weight, None


def _inverse_rms(x: Tensor, epsilon: float) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.rsqrt(norm * norm / x.shape[-1] + epsilon)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    r"""Root-mean-square normalisation of the last dimension.

    .. math:: y = w \, x / \sqrt{\mathrm{mean}(x^2) + \epsilon}

    Source: arXiv 1910.07467, equation 4.
    """
    if torch.is_grad_enabled():
        out: Tensor = _RmsNorm.apply(x, weight, epsilon)  # type: ignore[no-untyped-call]
        return out
    return torch.rms_norm(x, weight.shape, weight, epsilon)


class _GatedUnit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        # With s = sigmoid(g), silu = g s, and its slope is s + silu (1 - s) = s + silu - s silu.
        slope = torch.sigmoid(gate)
        silu = gate * slope
        to_up = grad * silu
        slope.addcmul_(slope, silu, value=-1).add_(silu)
        return slope.mul_(up).mul_(grad), to_up


def gated_unit(gate: Tensor, up: Tensor) -> Tensor:
    r"""SwiGLU's product, silu(gate) * up. Without a gradient it overwrites `gate`.

    Two tensors rather than halves of one: element-wise passes over rows that do not lie side by
    side take twice as long.

    Source: arXiv 2002.05202, equation 6.
    """
    if torch.is_grad_enabled():
        out: Tensor = _GatedUnit.apply(gate, up)  # type: ignore[no-untyped-call]
        return out
    return F.silu(gate, inplace=True).mul_(up)


class _Logprob(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, token: Tensor) -> Tensor:
        logprob = torch.log_softmax(logits, dim=-1)
        ctx.save_for_backward(logprob, token)
        return logprob.gather(-1, token[..., None]).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logprob, token = ctx.saved_tensors
        grad = grad[..., None]
        return logprob.exp().mul_(-grad).scatter_add_(-1, token[..., None], grad), None


def token_logprob(logits: Tensor, token: Tensor) -> Tensor:
    r"""Log-probability of given tokens: (..., V) logits and (...) tokens -> (...).

    .. math:: \partial \log\pi_t / \partial z = \mathrm{onehot}_t - \pi
    """
    out: Tensor = _Logprob.apply(logits, token)  # type: ignore[no-untyped-call]
    return out


class _LogprobAndEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        # A word that cannot be said has probability 0 and contributes 0, not 0 * -inf.
        logprob = torch.log_softmax(logits, dim=-1).clamp_(min=-1e30)
        probability = logprob.exp()
        entropy = -(probability * logprob).sum(-1)
        ctx.save_for_backward(logprob, probability, token, entropy)
        return logprob.gather(-1, token[..., None]).squeeze(-1), entropy

    @staticmethod
    def backward(ctx: Any, grad_logprob: Tensor, grad_entropy: Tensor) -> tuple[Tensor, None]:
        logprob, probability, token, entropy = ctx.saved_tensors
        grad_logprob, grad_entropy = grad_logprob[..., None], grad_entropy[..., None]
        grad = (logprob + entropy[..., None]).mul_(grad_entropy).add_(grad_logprob)
        grad.mul_(probability).neg_()
        return grad.scatter_add_(-1, token[..., None], grad_logprob), None


def token_logprob_and_entropy(logits: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    r"""Log-probability of given tokens, and the entropy of the distributions in nats.

    .. math:: \partial H / \partial z_v = -\pi_v (\log\pi_v + H)
    """
    out: tuple[Tensor, Tensor] = _LogprobAndEntropy.apply(  # type: ignore[no-untyped-call]
        logits, token
    )
    return out
