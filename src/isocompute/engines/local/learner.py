"""The updates that one batch gives: objective, value model, base model and optimizers.

Shape legend: P prompts, N distinct responses, T response tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isocompute.engines.base import DivergedError
from isocompute.engines.local import objectives
from isocompute.engines.local.critic import Critic
from isocompute.engines.local.experience import Experience, make_experience
from isocompute.engines.local.folders import load_model
from isocompute.engines.local.gradient import GradientReport, accumulate, token_logprobs
from isocompute.engines.local.interface import PolicyModel
from isocompute.engines.local.optimizer import FlatAdamW, warmed_up
from isocompute.engines.local.precision import trained_in
from isocompute.engines.local.sampling import Samples
from isocompute.recipe import Recipe

# Without the KL term, KL to the base model is measured on so few rollouts, once in so many: in
# every step it cost 5 to 14% at n = 4 and 16.
PROBE_PROMPTS, PROBE_ROLLOUTS, PROBE_EVERY = 4, 16, 2048


class Learner:
    """Everything that an update changes, and how.

    Args:
        model: the policy, on its device.
        folder: of the base model.
        recipe: objective, coefficients, optimizer.
        dtype: of matrix products.
        sampler_differs: whether the samples' log-probabilities are another program's.
    """

    def __init__(
        self, model: PolicyModel, folder: Path, recipe: Recipe, *, dtype: str = "float32",
        sampler_differs: bool = False,
    ) -> None:  # fmt: skip
        self.recipe, self.sampler_differs = recipe, sampler_differs
        self.device = next(model.parameters()).device
        self.model = trained_in(model, dtype)
        self.optimizer = FlatAdamW(
            model, weight_decay=recipe.weight_decay, max_grad_norm=recipe.max_grad_norm
        )
        base = load_model(folder).to(self.device).requires_grad_(False)
        self.reference = trained_in(base, dtype)
        self.critic: Critic | None = None
        if recipe.objective == "ppo":
            self.critic = Critic(folder, recipe, self.device, dtype)

    def learn(
        self,
        prompt_PS: Tensor,
        length_P: Tensor,
        samples: Samples,
        reward_N: Tensor,
        *,
        step: int,
        learning_rate: float,
        value_learning_rate: float,
        generator: torch.Generator,
    ) -> dict[str, float]:
        """All updates of one batch; returns health numbers.

        Args:
            prompt_PS, length_P: prompts of the batch.
            samples: their responses.
            reward_N: rewards; NaN where the verifier failed.
            step: 1-based number of the batch, for the warm-up.
            learning_rate, value_learning_rate: after the warm-up.
            generator: of whatever is drawn here.

        Raises:
            DivergedError: if the gradient is not finite.
        """
        recipe = self.recipe
        health: dict[str, float] = {}
        rollouts = int(samples.count_N.sum())
        whole = self._experience(prompt_PS, length_P, samples, reward_N, generator)
        if is_probed(recipe, step, rollouts):
            health["kl"] = probed_kl(
                self.reference, prompt_PS, length_P, samples, generator, recipe.temperature
            )
        if samples.prompts < rollouts:  # n = 1 has no variance to speak of
            health["zero_variance_share"] = 1 - float(whole.varies_P.float().mean())
        rate = warmed_up(learning_rate, step, recipe.warmup_steps)
        value_rate = warmed_up(value_learning_rate, step, recipe.warmup_steps)
        health["learning_rate"] = rate
        reports, norms, value_losses = [], [], []
        for part in self._parts(whole):
            if self.critic is not None:
                value_losses.append(self.critic.update(part, value_rate))
            reports.append(accumulate(self.model, self.reference, part, recipe))
            norms.append(self.optimizer.step(rate))
            if not np.isfinite(norms[-1]):
                raise DivergedError(
                    f"gradients must be finite, but their norm is {norms[-1]} at step {step}; "
                    "lower the learning rate."
                )
        health["grad_norm"] = max(norms)
        health |= _averaged(reports)
        if value_losses:
            health["value_loss"] = sum(value_losses) / len(value_losses)
        return health

    def _experience(
        self, prompt_PS: Tensor, length_P: Tensor, samples: Samples, reward_N: Tensor,
        generator: torch.Generator,
    ) -> Experience:  # fmt: skip
        recipe = self.recipe
        made = make_experience(
            prompt_PS, length_P, samples, reward_N, recipe,
            sampler_differs=self.sampler_differs, generator=generator,
        )  # fmt: skip
        if recipe.updates_per_batch > 1:
            made = replace(made, old_NT=token_logprobs(self.model, made, recipe.temperature))
        if self.critic is not None:
            judged_N = reward_N[~reward_N.isnan()]
            made = replace(made, **self.critic.judge(made, judged_N))
        return made

    def _parts(self, whole: Experience) -> Iterator[Experience]:
        """The responses of each update: a share of the problems each, or all of them."""
        updates = self.recipe.updates_per_batch
        if updates == 1 or self.recipe.update_split == "epoch":
            yield from (whole for _ in range(updates))
            return
        size = whole.prompts // updates  # the batch is in random order already
        yield from (whole.part(size * i, size * (i + 1)) for i in range(updates))

    def save(self, folder: Path) -> None:
        """Write weights and moments as safetensors."""
        self.optimizer.save(folder / "training.safetensors")
        if self.critic is not None:
            self.critic.optimizer.save(folder / "value.safetensors")

    def load(self, folder: Path) -> None:
        """Read what `save` wrote, bit for bit."""
        self.optimizer.load(folder / "training.safetensors")
        if self.critic is not None:
            self.critic.optimizer.load(folder / "value.safetensors")


def is_probed(recipe: Recipe, step: int, rollouts: int) -> bool:
    """Whether KL to the base model is measured at this step of so many rollouts."""
    return recipe.kl_coef == 0 and (step - 1) * rollouts % PROBE_EVERY < rollouts


@torch.no_grad()
def probed_kl(
    reference: PolicyModel, prompt_PS: Tensor, length_P: Tensor, samples: Samples,
    generator: torch.Generator, temperature: float,
) -> float:  # fmt: skip
    """KL to the base model (k3) over a few of the rollouts, from the sampler's numbers."""
    prompts = min(PROBE_PROMPTS, samples.prompts)
    rows = int((samples.prompt_N < prompts).sum())
    weight = samples.count_N[:rows].cpu().double()
    picked = torch.multinomial(weight, PROBE_ROLLOUTS, replacement=True, generator=generator)
    picked = picked.sort().values.to(samples.prompt_N.device)
    few = Experience(
        prompt_PS=prompt_PS[:prompts], length_P=length_P[:prompts],
        token_NT=samples.token_NT[picked], length_N=samples.length_N[picked],
        prompt_N=samples.prompt_N[picked], count_N=torch.ones_like(picked),
        advantage_NT=samples.logprob_NT[picked], varies_P=length_P[:prompts],  # not read
    )  # fmt: skip
    total = tokens = 0.0
    for chunk in few.chunks(torch.arange(len(picked), device=picked.device), len(picked)):
        reference_RT, _ = reference.response_logprobs(*chunk.given, temperature)
        logprob_RT = chunk.cut(samples.logprob_NT[picked])
        kl_RT = objectives.kl_estimate(logprob_RT, reference_RT, "k3")
        total += float((kl_RT * chunk.mask_RT).sum())
        tokens += float(chunk.mask_RT.sum())
    return total / tokens


def _averaged(reports: list[GradientReport]) -> dict[str, float]:
    """Loss over the updates, and means per token of what was measured."""
    total = GradientReport(loss=sum(r.loss for r in reports) / len(reports))
    for report in reports:
        total.tokens += report.tokens
        for name, value in report.sums.items():
            total.sums[name] = total.sums.get(name, 0.0) + value
    return {"loss": total.loss, **total.means}
