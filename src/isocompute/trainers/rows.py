"""What a trainer is told, and which words of a recipe it is not told.

A row is a word of the recipe (or of the plan) and one of the trainer's keys. What no row carries,
and the trainer does not do by itself, is listed: nothing is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from isocompute.allocation import Allocation
from isocompute.recipe import Recipe

# The steps must end the run, not the passes over the data: verl, AReaL, SkyRL and NeMo-RL stop at
# whichever comes first.
MANY_EPOCHS = 1_000_000

Keys = dict[str, Any]
OPEN = ("seed", "response_tokens")  # a plan leaves them open
# What every trainer does that is not told otherwise; how often a problem is sampled for a score
# trains nothing.
_OFF: Mapping[str, Any] = {
    "kl_in_reward": 0.0, "zero_variance_filter": "none", "passes_per_batch": 1.0, "staleness": 0.0,
    "token_share": 1.0, "importance_cap": "none", "lora_rank": 0.0, "length_penalty": "none",
    "shuffled": "no", "top_k": -1.0, "warmup_share": 0.0, "importance_rejection": "none",
}  # fmt: skip
# What is written whatever the logs say: on-policy updates at a constant rate where they do not.
FALLING = "falling"  # a schedule of which logs say only that the rate fell
ALWAYS = ("updates_per_batch", "lr_schedule", "staleness")
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
        said: words of `recipe.TRAINED` as the plan's runs had them, in their logs; None: the
            recipe is the plan's own.
    """

    allocation: Allocation
    recipe: Recipe
    seed: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    learning_rate: float | None = None
    micro_batch: int | None = None
    said: Mapping[str, Any] | None = None

    @property
    def updates(self) -> tuple[int, int]:
        """Mini-batches of a batch, and passes over them."""
        r, said = self.recipe, self.said or {}
        whole = r.updates_per_batch if r.update_split == "epoch" else 1
        passes = int(said.get("passes_per_batch", whole))
        return max(1, r.updates_per_batch // max(passes, 1)), max(passes, 1)

    def told(self, word: str, usual: Any) -> Any:
        """A word as the runs had it; `usual` where their logs do not say it."""
        return usual if self.said is None else self.said.get(word, usual)

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
        if self.said is not None:
            words |= {word: value for word, value in self.said.items()
                      if word != "evaluation_samples" and value != _OFF.get(word, ...)}  # fmt: skip
        return words


def word_of_updates(asked: Asked, written: int) -> str:
    """The word of keys that say so many updates per batch: none if a recipe has others.

    Such keys still keep a trainer to the plan's batch, but stay out beside what runs had.
    """
    if written == asked.recipe.updates_per_batch:
        return "updates_per_batch"
    return PLAN if asked.said is None else "none of the runs'"


def not_set(
    asked: Asked, rows: Iterable[Row], by_itself: Mapping[str, Any],
    known: Collection[str] | None = None,
) -> tuple[str, ...]:
    """Words that a trainer is not told, with their values.

    Args:
        asked: the plan.
        rows: what it is told.
        by_itself: what it does whatever it is told.
        known: words of a recipe that is known in part; None: all are.

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
    off = {word: value for word, value in off.items() if word not in by_itself}
    if known is not None:  # what no log holds is not asked for
        left = {word: value for word, value in left.items() if word in (*known, *OPEN)}
    return tuple(
        word if value is None else f"{word}={value:.6g}" if isinstance(value, float)
        else f"{word}={value}"
        for word, value in left.items() if off.get(word, ...) != value
    )  # fmt: skip
