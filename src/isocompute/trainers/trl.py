"""Settings of TRL 1.16 (GRPOConfig), read and trained: see docs/trainers.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isocompute.errors import InputError
from isocompute.trainers.rows import PLAN, Asked, Keys, Row

# Completions per device and micro-step offered for a plan; only the product has a meaning.
MICRO_BATCH = 16
# "dr_grpo" divides by the length limit, not by the tokens: it is not the sum over them.
LOSS = {"token-mean": "dapo", "seq-mean-token-mean": "grpo"}
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
    for key, value in _micro_steps(a.batch_size // processes, most).items():
        yield Row(PLAN, key, value)
    yield Row(PLAN, "num_generations", a.rollouts_per_problem)
    yield Row(PLAN, "max_steps", a.steps)
    yield Row("updates_per_batch" if r.updates_per_batch == 1 else PLAN, "num_iterations", 1)
    if asked.response_tokens is not None:
        yield Row("response_tokens", "max_completion_length", asked.response_tokens)
    yield Row("learning_rate", "learning_rate", asked.rate)
    # transformers' default falls linearly to 0. Where the warm-up is not known it is the user's,
    # which "constant" would drop; without one the two are the same.
    schedule = "constant_with_warmup" if r.warmup_steps else "constant"
    yield Row(PLAN, "lr_scheduler_type", schedule)
    yield Row("warmup_steps", "warmup_steps", r.warmup_steps)
    yield Row("weight_decay", "weight_decay", r.weight_decay)
    yield Row("max_grad_norm", "max_grad_norm", r.max_grad_norm)
    yield Row("kl_coef", "beta", r.kl_coef)
    yield Row("entropy_coef", "entropy_coef", r.entropy_coef)
    if r.objective == "cispo":
        yield Row("objective", "loss_type", "cispo")
        if r.aggregation == "token-mean":
            yield Row("aggregation", "importance_sampling_level", "token")
    elif r.aggregation in LOSS:
        yield Row("aggregation", "loss_type", LOSS[r.aggregation])
    if r.objective == "grpo":
        yield Row("objective", "importance_sampling_level", "token")
    yield Row("clip_low", "epsilon", r.clip_low)
    # TRL's CISPO caps the ratio itself, its GRPO the distance from 1
    cispo = r.objective == "cispo"
    yield Row("clip_high", "epsilon_high", r.clip_high + (1.0 if cispo else 0.0))
    word = "advantage_std" if r.advantage_std != "population" else PLAN
    yield Row(word, "scale_rewards", "none" if r.advantage_std == "none" else "group")
    yield Row("temperature", "temperature", r.temperature)
    yield Row("top_p", "top_p", r.top_p)
    yield Row("top_p", "top_k", 0)
    # of a vLLM sampler; where the trainer samples itself the ratio is 1. TRL's own default masks
    # whole responses at 3
    yield Row("importance_cap", "vllm_importance_sampling_correction", r.importance_cap is not None)
    if r.importance_cap is not None:
        yield Row("importance_level", "vllm_importance_sampling_mode",
                  f"{r.importance_level}_truncate")  # fmt: skip
        yield Row("importance_cap", "vllm_importance_sampling_clip_max", r.importance_cap)
    if asked.seed is not None:
        yield Row("seed", "seed", asked.seed)


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
    return _micro_steps(batch // processes, keys["per_device_train_batch_size"])


def process_words(processes: int) -> str:
    """Whose the values are, for a sentence."""
    if processes == 1:
        return (
            "the values are for one process, divide gradient_accumulation_steps by the number of "
            "processes (--processes N does)"
        )
    return f"the values are for each of {processes} processes"


def _micro_steps(share: int, most: int) -> Keys:
    micro = max(d for d in range(1, min(share, most) + 1) if share % d == 0)
    return {"per_device_train_batch_size": micro, "gradient_accumulation_steps": share // micro}
