"""The training recipe: what must be healthy before a law can be read off the curves.

Source: arXiv 2603.12151, section 2 and appendix A, for every default whose comment names it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from isocompute.errors import InputError

Objective = Literal["grpo", "ppo", "cispo"]
AdvantageStd = Literal["sample", "population", "none"]
Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]
KLEstimator = Literal["k1", "k3"]
ZeroVarianceFilter = Literal["none", "loss", "regularizers"]
UpdateSplit = Literal["mini-batch", "epoch"]
ImportanceLevel = Literal["token", "sequence"]
LearningRateScaling = Literal["sqrt", "linear", "constant"]
Difficulty = Literal["easy", "hard", "mixed"]


# verl's default, and that of the authors of truncated importance sampling (Yao et al. 2025); the
# paper names the method, not its bound. At 1 half of all ratios are cut, at 4 few tokens that
# matter.
TIS_CAP = 2.0
# Words of a recipe that the logs of others may record, as numbers.
RECORDED = (
    "learning_rate", "kl_coef", "entropy_coef", "clip_low", "clip_high", "temperature", "top_p",
    "weight_decay", "max_grad_norm", "warmup_steps",
)  # fmt: skip
# And others, as numbers or text, in the words of `Recipe` where it has them. `objective` may be an
# estimator of advantages or a loss that no recipe here has ("rloo", "gspo", "rloo/gspo").
TRAINED = (
    "objective", "advantage_std", "aggregation", "kl_estimator", "kl_in_reward",
    "zero_variance_filter", "updates_per_batch", "passes_per_batch", "shuffled", "staleness",
    "clip_dual", "token_share", "importance_cap", "importance_level", "importance_rejection",
    "lr_schedule", "lr_least", "warmup_share", "lora_rank", "length_penalty", "top_k",
    "gae_gamma", "gae_lambda", "value_learning_rate", "value_clip",
    "evaluation_temperature", "evaluation_top_p", "evaluation_samples",
)  # fmt: skip
# What makes other runs of them, named as logs do: no recipe sets it.
SHARED = ("model", "max_response_length", "train_set")
# Estimators of advantages of verl 0.9.1 (ppo/core_algos.py); any other objective is a loss.
ADVANTAGES = (
    "grpo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "rloo", "opo",
    "grpo_passk", "gpg", "rloo_vectorized", "grpo_vectorized", "optimal_token_baseline",
    "tir_optimal_token_baseline", "gdpo",
)  # fmt: skip
LARGEST = 1e30  # of a recipe's numbers: trainers compute in single precision, which ends at 3e38


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of training other than the allocation.

    Args:
        objective: "grpo" (group mean and std, clipped ratio), "ppo" (clipped ratio, advantages of
            a learned value model by GAE), "cispo" (group mean and std, clipped stop-gradient
            ratio). At one update per batch the ratio is 1; grpo and cispo are then the same.
        advantage_std: divisor of the advantage: sample std (ddof 1), population, none. Of the
            group for grpo and cispo; of the batch's tokens, with their mean taken off, for ppo.
        aggregation: how token losses become one number, in the trainers' own words.
        kl_coef: weight of KL to the base model; 0 turns it off.
        kl_estimator: "k3" (low variance, verl's low_var_kl) or "k1", which only measures: it is
            refused with `kl_coef > 0`.
        entropy_coef: weight of the entropy bonus; needs `kl_coef > 0` unless forced.
        allow_entropy_without_kl: allows an entropy bonus without KL.
        zero_variance_filter: where to leave out groups in which all rewards agree: nowhere, in the
            whole loss, or only in the KL and entropy terms.
        learning_rate: at `base_batch_size` rollouts per batch.
        base_batch_size: B_base of the scaling rule, in rollouts.
        learning_rate_scaling: sqrt(B / B_base), linear, or constant.
        warmup_steps: linear warm-up, then constant; step i of the warm-up has i/warmup_steps.
        weight_decay: AdamW's; of the matrices in the embedded engine and TRL, of every parameter
            in verl.
        max_grad_norm: clipping of the global gradient norm.
        clip_low, clip_high: bounds of the ratio of new to old policy, 1 - clip_low and
            1 + clip_high; they act only with `updates_per_batch > 1`. No second bound for
            negative advantages (verl's dual clip, `clip_ratio_c`, is put out of reach).
        temperature, top_p: of sampling, in training and in evaluation.
        updates_per_batch: 1 is strictly on-policy.
        update_split: with several updates, whether each takes its share of the batch's problems
            ("mini-batch": verl's ppo_mini_batch_size) or all of them ("epoch": ppo_epochs).
        gradient_rollouts: n_train, a random subset of the n rollouts that enters the gradient;
            mean and std are over all n (n_est = rollouts_per_problem, which the budget counts).
            None: all of them.
        importance_cap: truncation of the trainer/sampler probability ratio; None: off. Where the
            trainer samples for itself the ratio is 1, and a bound of 1 or more does nothing.
        importance_level: ratio of each "token", or of the whole response ("sequence").
        gae_gamma, gae_lambda: of ppo's advantages.
        value_learning_rate: of ppo's value model, at `base_batch_size`; scaled as the policy's.
        value_clip: largest change of a value that one batch's updates are rewarded for (ppo).

    Raises:
        InputError: on a value outside its range, or on entropy without KL.
    """

    objective: Objective = "grpo"
    advantage_std: AdvantageStd = "sample"
    aggregation: Aggregation = "token-mean"
    kl_coef: float = 0.0
    kl_estimator: KLEstimator = "k3"
    entropy_coef: float = 0.0
    allow_entropy_without_kl: bool = False
    zero_variance_filter: ZeroVarianceFilter = "none"
    learning_rate: float = 1e-6  # anchor of the paper, at B = 1024 (appendix A)
    base_batch_size: int = 1024
    learning_rate_scaling: LearningRateScaling = "sqrt"
    warmup_steps: int = 10
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    temperature: float = 0.6  # the paper's, in training and evaluation
    top_p: float = 1.0
    updates_per_batch: int = 1
    update_split: UpdateSplit = "mini-batch"
    gradient_rollouts: int | None = None
    importance_cap: float | None = None
    importance_level: ImportanceLevel = "token"
    gae_gamma: float = 1.0  # this and the three below: verl's defaults
    gae_lambda: float = 1.0
    value_learning_rate: float = 1e-5
    value_clip: float = 0.5

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            allowed = get_args(hints[field.name])
            value = getattr(self, field.name)
            if allowed and isinstance(allowed[0], str) and value not in allowed:
                raise InputError(
                    f"recipe `{field.name}` must be one of {', '.join(allowed)}, but got {value!r};"
                    " choose one of them."
                )
            if hints[field.name] in (int, int | None) and isinstance(value, float):
                raise InputError(
                    f"recipe `{field.name}` must be a whole number, but got {value!r}; correct the "
                    "recipe."
                )
        rules = (
            ("kl_coef", "finite and >= 0", self.kl_coef >= 0),
            ("entropy_coef", "finite and >= 0", self.entropy_coef >= 0),
            ("learning_rate", "finite and > 0", self.learning_rate > 0),
            ("base_batch_size", ">= 1", self.base_batch_size >= 1),
            ("warmup_steps", ">= 0", self.warmup_steps >= 0),
            ("weight_decay", "finite and >= 0", self.weight_decay >= 0),
            ("max_grad_norm", "finite and > 0", self.max_grad_norm > 0),
            ("clip_low", "between 0 and 1", 0 <= self.clip_low <= 1),
            ("clip_high", "finite and >= 0", self.clip_high >= 0),
            ("temperature", "finite and > 0", self.temperature > 0),
            ("top_p", "in (0, 1]", 0 < self.top_p <= 1),
            ("updates_per_batch", ">= 1", self.updates_per_batch >= 1),
            ("gradient_rollouts", ">= 1 or none", self.gradient_rollouts is None
             or self.gradient_rollouts >= 1),
            ("importance_cap", "> 0 or none", self.importance_cap is None
             or self.importance_cap > 0),
            ("gae_gamma", "between 0 and 1", 0 <= self.gae_gamma <= 1),
            ("gae_lambda", "between 0 and 1", 0 <= self.gae_lambda <= 1),
            ("value_learning_rate", "finite and > 0", self.value_learning_rate > 0),
            ("value_clip", "finite and > 0", self.value_clip > 0),
        )
        for name, rule, holds in rules:
            value = getattr(self, name)
            if not holds or (isinstance(value, float) and not abs(value) <= LARGEST):
                most = f" and at most {LARGEST:g}" if holds and math.isfinite(value) else ""
                raise InputError(
                    f"recipe `{name}` must be {rule}{most}, but got {value!r}; correct the recipe."
                )
        if self.kl_coef > 0 and self.kl_estimator == "k1":
            raise InputError(
                "recipe `kl_estimator` must be k3 with `kl_coef > 0`, but got k1 and kl_coef="
                f"{self.kl_coef:g} (the gradient of k1 is 0 on average); use kl_estimator: k3."
            )
        if self.entropy_coef > 0 and self.kl_coef == 0 and not self.allow_entropy_without_kl:
            raise InputError(
                "an entropy bonus needs KL to the base model (`kl_coef > 0`), but got entropy_coef="
                f"{self.entropy_coef}, kl_coef=0; set kl_coef, drop the bonus, or force it with "
                "allow_entropy_without_kl."
            )

    @classmethod
    def for_difficulty(cls, difficulty: Difficulty, **changes: Any) -> Recipe:
        """The healthy recipe of a problem set.

        Easy: KL to the base model and an entropy bonus. Hard and mixed: neither. The paper
        names the terms, not their weights: 0.001 is verl's default for KL, and the bonus is
        given the same weight. All: truncated importance sampling, because a sampler of its own
        (vLLM, SGLang) draws from other probabilities than the trainer computes (section 2).

        Raises:
            InputError: for another word than easy, hard, mixed.
        """
        if difficulty not in get_args(Difficulty):
            raise InputError(
                f"difficulty must be one of easy, hard, mixed, but got {difficulty!r}; "
                "measure it with `isocompute difficulty`."
            )
        regularised = {"kl_coef": 1e-3, "entropy_coef": 1e-3} if difficulty == "easy" else {}
        return cls(**{**regularised, "importance_cap": TIS_CAP, **changes})

    def learning_rate_at(self, batch_size: int) -> float:
        """Learning rate after warm-up for a batch of `batch_size` rollouts.

        >>> round(Recipe().learning_rate_at(4096) / 1e-6, 6)
        2.0
        """
        return self.learning_rate * self._scale(batch_size)

    def value_learning_rate_at(self, batch_size: int) -> float:
        """Learning rate of the value model of ppo, likewise."""
        return self.value_learning_rate * self._scale(batch_size)

    def _scale(self, batch_size: int) -> float:
        power = {"sqrt": 0.5, "linear": 1.0, "constant": 0.0}[self.learning_rate_scaling]
        return float((batch_size / self.base_batch_size) ** power)

    def replace(self, **changes: Any) -> Recipe:
        """A copy with some fields changed; the same checks apply."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, one per field."""
        return asdict(self)


def check_idle_cap(recipe: Recipe, engine: str) -> None:
    """Refuse a bound that would scale every gradient where the sampler is the trainer.

    Raises:
        InputError: an `importance_cap` below 1, the ratio there.
    """
    if recipe.importance_cap is not None and recipe.importance_cap < 1:
        raise InputError(
            f"recipe `importance_cap` must be >= 1 with the engine {engine!r}, because its sampler "
            f"and trainer agree (ratio 1), but got {recipe.importance_cap:g}, which would scale "
            "every gradient; raise or remove it."
        )
