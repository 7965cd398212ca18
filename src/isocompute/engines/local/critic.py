"""PPO's value model: the base model with a scalar head, trained beside the policy.

Shape legend: N distinct responses, R rows of one chunk, T response tokens.

A network of its own with an optimizer of its own, as verl, TRL and OpenRLHF have it: no
coefficient weighs its loss against the policy's.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from isocompute.engines.local import advantages, objectives
from isocompute.engines.local.experience import Chunk, Experience
from isocompute.engines.local.folders import load_model
from isocompute.engines.local.gradient import evaluate_tokens, rows_that_fit
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.mlp import BitMlp, BitMlpValue
from isocompute.engines.local.model import Transformer
from isocompute.engines.local.optimizer import FlatAdamW
from isocompute.engines.local.precision import trained_in
from isocompute.recipe import Recipe


def load_value_model(folder: Path) -> PolicyModel:
    """The base model with a head of one output, which starts at 0: V = 0 everywhere."""
    model = load_model(folder)
    if isinstance(model, BitMlp):
        return BitMlpValue(model)
    assert isinstance(model, Transformer)
    model.head = nn.Parameter(torch.zeros(1, model.config.hidden_size))
    return model


class Critic:
    """Values of states, and their training.

    Args:
        folder: of the base model.
        recipe: what is read are the fields of ppo, and those of the optimizer.
        device, dtype: where, and in what, it computes.
    """

    def __init__(self, folder: Path, recipe: Recipe, device: torch.device, dtype: str) -> None:
        plain = load_value_model(folder).to(device)
        self.recipe = recipe
        self.model = trained_in(plain, dtype)
        self.optimizer = FlatAdamW(
            plain, weight_decay=recipe.weight_decay, max_grad_norm=recipe.max_grad_norm
        )

    def _values(self, chunk: Chunk) -> Tensor:
        return self.model.response_logits(*chunk.given).squeeze(-1)

    def judge(self, experience: Experience, reward_N: Tensor) -> dict[str, Tensor]:
        """Values, returns and whitened advantages, as fields of an `Experience`."""
        e, recipe = experience, self.recipe
        value_NT = evaluate_tokens(
            e, self._values, rows_per_chunk=rows_that_fit(self.model, e)
        )
        advantage_NT, return_NT = advantages.generalised_advantages(
            value_NT, reward_N, e.length_N, recipe.gae_gamma, recipe.gae_lambda
        )
        advantage_NT = advantages.whitened(
            advantage_NT, e.mask_NT * e.count_N[:, None], recipe.advantage_std
        )
        return {"advantage_NT": advantage_NT, "value_NT": value_NT, "return_NT": return_NT}

    def update(
        self, experience: Experience, rate: float, *, rows_per_chunk: int | None = None
    ) -> float:
        """One step on the clipped squared error; returns its value before the step."""
        loss = self.accumulate(experience, rows_per_chunk=rows_per_chunk)
        self.optimizer.step(rate)
        return loss

    def accumulate(self, experience: Experience, *, rows_per_chunk: int | None = None) -> float:
        """Add the gradient of the value loss; returns the loss."""
        e = experience
        assert e.value_NT is not None
        assert e.return_NT is not None
        weight_N = objectives.token_weights(e.length_N, e.count_N, self.recipe.aggregation)
        losses: list[Tensor] = []
        most = rows_per_chunk or rows_that_fit(self.model, e)
        for chunk in e.chunks(weight_N.nonzero().squeeze(-1), most):
            error_RT = objectives.value_loss(
                self._values(chunk), chunk.cut(e.value_NT), chunk.cut(e.return_NT),
                self.recipe.value_clip,
            )  # fmt: skip
            total = (error_RT * chunk.mask_RT * weight_N[chunk.rows, None]).sum()
            total.backward()  # type: ignore[no-untyped-call]
            losses.append(total.detach())
        return float(torch.stack(losses).sum()) if losses else 0.0
