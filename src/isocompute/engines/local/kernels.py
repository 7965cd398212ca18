"""Element-wise parts of the model with hand-written gradients: fewer passes over memory.

Shape legend: H features of a row, I feed-forward size, T tokens, V vocabulary, `...` rows.

Each is checked against plain autograd in `tests/engines/test_local_model.py`.
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
        silu = F.silu(gate)
        ctx.save_for_backward(gate, up, silu)
        return silu * up

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        # Keeping silu(gate) costs a quarter more memory and saves four of seven passes over it.
        gate, up, silu = ctx.saved_tensors
        to_gate: Tensor = torch.ops.aten.silu_backward(grad * up, gate)
        return to_gate, grad * silu


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


class _Placed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, index: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(index)
        return value.new_zeros((rows, *value.shape[1:])).index_copy_(0, index, value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return grad.index_select(0, index), None, None


def placed(value: Tensor, index: Tensor, rows: int) -> Tensor:
    """Row i of `value` at row `index[i]` of zeros; no row is named twice."""
    if not torch.is_grad_enabled():
        return value.new_zeros((rows, *value.shape[1:])).index_copy_(0, index, value)
    out: Tensor = _Placed.apply(value, index, rows)  # type: ignore[no-untyped-call]
    return out


class _Picked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = value.shape
        return value.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_copy_(0, index, grad), None


def picked(value: Tensor, index: Tensor) -> Tensor:
    """Rows of `value`, none twice: the gradient is copied, not added up, in a third of the time."""
    if not torch.is_grad_enabled():
        return value.index_select(0, index)
    out: Tensor = _Picked.apply(value, index)  # type: ignore[no-untyped-call]
    return out


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


class _SharedLogprob(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, row: Tensor, token: Tensor, entropies: bool
    ) -> tuple[Tensor, Tensor]:
        # A word that cannot be said has probability 0 and contributes 0, not 0 * -inf.
        logprob = torch.log_softmax(logits, dim=-1).clamp_(min=-1e30)
        entropy = -(logprob.exp() * logprob).sum(-1) if entropies else logprob.new_zeros(0)
        place = torch.add(token, row, alpha=logits.shape[1])
        ctx.save_for_backward(logprob, row, place, entropy)
        return logprob.view(-1).index_select(0, place), entropy

    @staticmethod
    def backward(
        ctx: Any, grad_logprob: Tensor, grad_entropy: Tensor
    ) -> tuple[Tensor, None, None, None]:
        logprob, row, place, entropy = ctx.saved_tensors
        total = logprob.new_zeros(logprob.shape[0]).index_add_(0, row, grad_logprob)[:, None]
        probability = logprob.exp()
        if entropy.numel():
            grad = (logprob + entropy[:, None]).mul_(grad_entropy[:, None]).add_(total)
            grad = grad.mul_(probability).neg_()
        else:
            grad = probability.mul_(-total)
        grad.view(-1).index_add_(0, place, grad_logprob)
        return grad, None, None, None


def shared_logprob(
    logits: Tensor, row: Tensor, token: Tensor, *, entropies: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of tokens whose distributions are rows that several may share.

    Args:
        logits: (M, V).
        row, token: (K,), the row of each token's distribution, and the token.
        entropies: whether those are wanted.

    Returns:
        logprob (K,), and entropy (M,) in nats; empty where it was not wanted.
    """
    out: tuple[Tensor, Tensor] = _SharedLogprob.apply(  # type: ignore[no-untyped-call]
        logits, row, token, entropies
    )
    return out
