"""What a trainer is told, and which words of a recipe it is not told.

A row is a word of the recipe (or of the plan) and one of the trainer's keys. What no row carries,
and the trainer does not do by itself, is listed: nothing is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from isocompute.allocation import Allocation
from isocompute.recipe import Recipe

# The steps must end the run, not the passes over the data: verl and AReaL stop at the first.
MANY_EPOCHS = 1_000_000

Keys = dict[str, Any]
PLAN = ""  # the word of rows that carry the allocation, or keep the trainer to it


class Row(NamedTuple):
    """One key of a trainer, and the word of the recipe that it carries."""

    word: str
    key: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be said to a trainer.

    Args:
        allocation, recipe: the plan's.
        seed: None where the plan leaves it open.
        prompt_tokens, response_tokens: length limits; None where they are left open.
        micro_batch: completions per device and micro-step of the runs; None: not known.
        learning_rate: after warm-up; None: the recipe's at the plan's batch.
    """

    allocation: Allocation
    recipe: Recipe
    seed: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    learning_rate: float | None = None
    micro_batch: int | None = None

    @property
    def rate(self) -> float:
        """Learning rate after warm-up."""
        if self.learning_rate is not None:
            return self.learning_rate
        return self.recipe.learning_rate_at(self.allocation.batch_size)

    def words(self) -> dict[str, Any]:
        """Everything that has an effect on training, by its word; None where it is left open."""
        r = self.recipe
        words: dict[str, Any] = {
            "objective": r.objective, "advantage_std": r.advantage_std,
            "aggregation": r.aggregation, "kl_coef": r.kl_coef, "entropy_coef": r.entropy_coef,
            "zero_variance_filter": r.zero_variance_filter, "learning_rate": self.rate,
            "warmup_steps": r.warmup_steps, "weight_decay": r.weight_decay,
            "max_grad_norm": r.max_grad_norm, "temperature": r.temperature, "top_p": r.top_p,
            "updates_per_batch": r.updates_per_batch, "gradient_rollouts": r.gradient_rollouts,
            "importance_cap": r.importance_cap, "seed": self.seed,
            "response_tokens": self.response_tokens,
        }  # fmt: skip
        if r.kl_coef > 0:
            words["kl_estimator"] = r.kl_estimator
        if r.importance_cap is not None:
            words["importance_level"] = r.importance_level
        if r.updates_per_batch > 1:
            words |= {"clip_low": r.clip_low, "clip_high": r.clip_high,
                      "update_split": r.update_split}  # fmt: skip
        if r.objective == "ppo":
            words |= {
                "gae_gamma": r.gae_gamma, "gae_lambda": r.gae_lambda, "value_clip": r.value_clip,
                "value_learning_rate": r.value_learning_rate_at(self.allocation.batch_size),
            }
        return words


def not_set(asked: Asked, rows: Iterable[Row], by_itself: Mapping[str, Any]) -> tuple[str, ...]:
    """Words that a trainer is not told, with their values.

    Args:
        asked: the plan.
        rows: what it is told.
        by_itself: what it does whatever it is told.

    >>> plan = Allocation(problems_per_batch=2, rollouts_per_problem=4, steps=3)
    >>> asked = Asked(allocation=plan, recipe=Recipe(importance_cap=2.0))
    >>> [w for w in not_set(asked, [], {}) if w.startswith(("importance", "seed"))]
    ['importance_cap=2', 'seed', 'importance_level=token']
    """
    told = {row.word for row in rows}
    left = {
        word: value for word, value in asked.words().items()
        if word not in told and (word not in by_itself or by_itself[word] != value)
    }  # fmt: skip
    # off is what every trainer does that is not told of a filter, a subset or a cap
    off = {"zero_variance_filter": "none", "gradient_rollouts": None, "importance_cap": None}
    return tuple(
        word if value is None else f"{word}={value:.6g}" if isinstance(value, float)
        else f"{word}={value}"
        for word, value in left.items() if off.get(word, ...) != value
    )  # fmt: skip
