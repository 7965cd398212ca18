"""AdamW over one flat vector: every parameter and gradient is a view of it."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # defaults of torch and of the trainers


class FlatAdamW:
    r"""AdamW with decoupled weight decay and clipping of the global gradient norm.

    .. math:: \theta \leftarrow (1 - \eta\lambda)\,\theta
              - \eta\, \hat m / (\sqrt{\hat v} + \epsilon)

    Decay acts on matrices alone, not on the weights of norms, nor on biases, unless `decay_vectors`
    (as the shipped base models were made).

    Building it moves the model's parameters into one vector, so that an update is a dozen
    operations whatever the number of layers.

    Source: arXiv 1711.05101, algorithm 2, with the schedule multiplier in the learning rate.
    """

    def __init__(
        self, model: nn.Module, *, weight_decay: float, max_grad_norm: float,
        decay_vectors: bool = False,
    ) -> None:  # fmt: skip
        # What decays stands in front: one slice of the vector.
        parameters = sorted(model.parameters(), key=lambda p: p.ndim < 2)
        self.weight_decay, self.max_grad_norm = weight_decay, max_grad_norm
        self.flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.grad = torch.zeros_like(self.flat)
        self.first = torch.zeros_like(self.flat)
        self.second = torch.zeros_like(self.flat)
        self.steps = 0
        decayed = sum(p.numel() for p in parameters if p.ndim > 1 or decay_vectors)
        self.decayed = self.flat[:decayed]
        start = 0
        for p in parameters:
            view = slice(start, start + p.numel())
            p.data = self.flat[view].view(p.shape)
            p.grad = self.grad[view].view(p.shape)
            start += p.numel()

    def step(self, learning_rate: float) -> float:
        """One update from the gradients that `backward` has summed; clears them.

        Returns:
            The global gradient norm before clipping.
        """
        self.steps += 1
        grad = self.grad
        norm = float(torch.linalg.vector_norm(grad))
        if norm > self.max_grad_norm:
            grad.mul_(self.max_grad_norm / (norm + 1e-6))
        self.first.lerp_(grad, 1 - BETA_1)
        self.second.mul_(BETA_2).addcmul_(grad, grad, value=1 - BETA_2)
        correction_1, correction_2 = 1 - BETA_1**self.steps, 1 - BETA_2**self.steps
        if self.weight_decay:
            self.decayed.mul_(1 - learning_rate * self.weight_decay)
        scale = (self.second.sqrt() / math.sqrt(correction_2)).add_(EPSILON)
        self.flat.addcdiv_(self.first, scale, value=-learning_rate / correction_1)
        grad.zero_()
        return norm

    def state(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint keeps."""
        return {"parameters": self.flat, "first_moment": self.first, "second_moment": self.second}

    def save(self, path: Path) -> None:
        """Write parameters and moments as safetensors."""
        from safetensors.torch import save_file

        state = {name: value.cpu() for name, value in self.state().items()}
        save_file(state, path, metadata={"steps": str(self.steps)})

    def load(self, path: Path) -> None:
        """Read what `save` wrote, bit for bit."""
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            self.steps = int(file.metadata()["steps"])
            for name, value in self.state().items():
                value.copy_(file.get_tensor(name))


def warmed_up(learning_rate: float, step: int, warmup_steps: int) -> float:
    """Linear warm-up, then constant; `step` is 1-based and step i of w has i/w.

    Source: arXiv 2603.12151, appendix A (10 steps).

    >>> [warmed_up(1.0, step, 4) for step in (1, 4, 9)]
    [0.25, 1.0, 1.0]
    """
    return learning_rate * min(1.0, step / warmup_steps) if warmup_steps else learning_rate
