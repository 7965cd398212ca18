"""Settings of TRL 1.16 (GRPOConfig), read and trained: see docs/trainers.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isocompute.errors import InputError
from isocompute.trainers.rows import PLAN, Asked, Keys, Row, word_of_updates

# Completions per device and micro-step offered for a plan; only the product has a meaning.
MICRO_BATCH = 16
# "dr_grpo" divides by the length limit, not by the tokens: it is not the sum over them.
LOSS = {"token-mean": "dapo", "seq-mean-token-mean": "grpo"}
OWN_LOSS = ("bnpo", "dr_grpo", "sapo", "luspo", "vespo")  # words of a log that are TRL's own
MASKED = "truncated are masked"  # as `length_penalty`
_SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine", "inverse_sqrt")
# What GRPOTrainer does without being told.
BY_ITSELF: Mapping[str, Any] = {
    "zero_variance_filter": "none", "gradient_rollouts": None, "kl_estimator": "k3",
    "update_split": "mini-batch",
}  # fmt: skip


def trl_rows(asked: Asked, *, micro_batch: int = MICRO_BATCH, processes: int = 1) -> Iterator[Row]:
    """Keys for one of `processes` processes.

    Args:
        asked: the plan.
        micro_batch: completions per device and micro-step, at most.
        processes: data-parallel ones, which share the batch.

    Raises:
        InputError: if the processes cannot share the batch evenly.
    """
    a, r = asked.allocation, asked.recipe
    if a.batch_size % processes:
        raise InputError(
            f"B_p * n must be a multiple of the processes, but got {a.batch_size} rollouts for "
            f"{processes}; change the allocation or the number of processes."
        )
    most = asked.micro_batch or micro_batch
    # A recipe's own mini-batches are not written; those that the runs' logs say are.
    minis, passes = (1, 1) if asked.said is None else asked.updates
    minis = minis if a.batch_size // processes % minis == 0 else 1
    micro = _micro_steps(a.batch_size // processes // minis, most)
    for key, value in micro.items():
        yield Row(PLAN, key, value)
    if minis > 1:
        yield Row(PLAN, "steps_per_generation", micro["gradient_accumulation_steps"] * minis)
    yield Row(PLAN, "num_generations", a.rollouts_per_problem)
    yield Row(PLAN, "max_steps", a.steps * minis * passes)
    yield Row(word_of_updates(asked, minis * passes), "num_iterations", passes)
    yield Row("passes_per_batch", "num_iterations", passes)
    if asked.response_tokens is not None:
        yield Row("response_tokens", "max_completion_length", asked.response_tokens)
    yield Row("learning_rate", "learning_rate", asked.rate)
    # transformers' default falls linearly to 0. Where the warm-up is not known it is the user's,
    # which "constant" would drop; without one the two are the same.
    kind = asked.told("lr_schedule", "constant")
    if kind == "constant":
        kind = "constant_with_warmup" if r.warmup_steps else kind
    if kind in _SCHEDULES and asked.told("lr_least", 0.0) == 0:
        yield Row("lr_schedule", "lr_scheduler_type", kind)
        yield Row("lr_least", "lr_scheduler_type", kind)
    yield Row("warmup_steps", "warmup_steps", r.warmup_steps * minis * passes)
    yield Row("weight_decay", "weight_decay", r.weight_decay)
    yield Row("max_grad_norm", "max_grad_norm", r.max_grad_norm)
    yield Row("kl_coef", "beta", r.kl_coef)
    if not r.entropy_coef or _is_token_mean(asked):  # its bonus is, and a study refuses others
        yield Row("entropy_coef", "entropy_coef", r.entropy_coef)
    yield from _loss(asked)
    if (delta := asked.told("clip_dual", None)) is not None:
        yield Row("clip_dual", "delta", delta)
    yield Row("clip_low", "epsilon", r.clip_low)
    # TRL's CISPO caps the ratio itself, its GRPO the distance from 1
    cispo = asked.told("objective", r.objective) == "cispo"
    yield Row("clip_high", "epsilon_high", r.clip_high + (1.0 if cispo else 0.0))
    std = asked.told("advantage_std", r.advantage_std)
    word = "advantage_std" if std != "population" else PLAN
    yield Row(word, "scale_rewards", std if std in ("none", "batch") else "group")
    yield Row("temperature", "temperature", r.temperature)
    yield Row("top_p", "top_p", r.top_p)
    yield Row("top_k", "top_k", max(0, int(asked.told("top_k", 0))))
    if asked.told("length_penalty", "none") == MASKED:
        yield Row("length_penalty", "mask_truncated_completions", True)
    if (share := asked.told("token_share", None)) is not None:
        yield Row("token_share", "top_entropy_quantile", share)
    if (share := asked.told("warmup_share", None)) is not None:
        yield Row("warmup_share", "warmup_steps", share)
    # of a vLLM sampler; where the trainer samples itself the ratio is 1. TRL's own default masks
    # whole responses at 3
    yield Row("importance_cap", "vllm_importance_sampling_correction", r.importance_cap is not None)
    if r.importance_cap is not None:
        yield Row("importance_level", "vllm_importance_sampling_mode",
                  f"{r.importance_level}_truncate")  # fmt: skip
        yield Row("importance_cap", "vllm_importance_sampling_clip_max", r.importance_cap)
    if asked.seed is not None:
        yield Row("seed", "seed", asked.seed)


def _is_token_mean(asked: Asked) -> bool:
    """Whether its loss is a mean over tokens."""
    objective = asked.told("objective", asked.recipe.objective)
    aggregation = asked.told("aggregation", asked.recipe.aggregation)
    return bool(objective == "cispo" or aggregation == "token-mean")


def _loss(asked: Asked) -> Iterator[Row]:
    """TRL's loss, where it has the objective and its aggregation."""
    objective = asked.told("objective", asked.recipe.objective)
    aggregation = asked.told("aggregation", asked.recipe.aggregation)
    if objective == "cispo":
        yield Row("objective", "loss_type", "cispo")
        if aggregation == "token-mean":
            yield Row("aggregation", "importance_sampling_level", "token")
    elif objective in OWN_LOSS:
        yield Row("objective", "loss_type", objective)
    elif aggregation in LOSS:
        yield Row("aggregation", "loss_type", LOSS[aggregation])
    if objective in ("grpo", "gspo"):
        level = "token" if objective == "grpo" else "sequence"
        yield Row("objective", "importance_sampling_level", level)


def divided(keys: Mapping[str, Any], processes: int) -> Keys:
    """The keys of the batch for one of `processes`, from those for one process.

    Raises:
        InputError: if the processes cannot share the batch evenly.

    >>> divided({"per_device_train_batch_size": 16, "gradient_accumulation_steps": 6}, 4)
    {'per_device_train_batch_size': 12, 'gradient_accumulation_steps': 2}
    """
    batch = keys["per_device_train_batch_size"] * keys["gradient_accumulation_steps"]
    if batch % processes:
        raise InputError(
            f"the processes must share the batch of {batch} completions (B_p x n) evenly, but got "
            f"--processes {processes}; give a divisor of {batch}."
        )
    micro = _micro_steps(batch // processes, keys["per_device_train_batch_size"])
    if drawn := keys.get("steps_per_generation"):
        minis = drawn // keys["gradient_accumulation_steps"]
        micro["steps_per_generation"] = micro["gradient_accumulation_steps"] * minis
    return micro


def updates_of(keys: Mapping[str, Any]) -> int:
    """Steps of the optimizer for a batch of rollouts: `max_steps` counts them."""
    accumulated = int(keys["gradient_accumulation_steps"])
    drawn = int(keys.get("steps_per_generation") or accumulated)
    return int(keys.get("num_iterations") or 1) * drawn // accumulated


def process_words(processes: int) -> str:
    """Whose the values are, for a sentence."""
    if processes == 1:
        return (
            "the values are for one process, divide gradient_accumulation_steps (and "
            "steps_per_generation where it stands) by the number of processes (--processes N does)"
        )
    return f"the values are for each of {processes} processes"


def _micro_steps(share: int, most: int) -> Keys:
    micro = max(d for d in range(1, min(share, most) + 1) if share % d == 0)
    return {"per_device_train_batch_size": micro, "gradient_accumulation_steps": share // micro}
