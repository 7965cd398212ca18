"""Settings of verl, read in 0.6 to 0.9, trained with 0.9.1: see docs/trainers.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isocompute.recipe import ADVANTAGES, Recipe
from isocompute.trainers.rows import FALLING, MANY_EPOCHS, PLAN, Asked, Keys, Row

NEWEST = (0, 9)  # the newest release that was read; later ones may move keys again
COUNTS_FROM_ONE = (0, 8)  # from here on a warm-up need not begin with a rate of 0
_NO_DUAL_CLIP = 1e9  # verl bounds the ratio of negative advantages at 3 unless told otherwise
_EVALUATION = {
    "evaluation_temperature": "temperature", "evaluation_top_p": "top_p",
    "evaluation_samples": "n",
}  # fmt: skip
_KL = {"k3": "low_var_kl", "k1": "kl"}
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_CORRECTION = "algorithm.rollout_correction"


def _schedule(role: str, warmup_steps: int, release: tuple[int, int]) -> Keys:
    """Step i of the warm-up has i / warmup_steps of the learning rate, then it is constant.

    verl's own `constant` counts from 0, so that its first update has a rate of 0 and is lost; its
    `cosine` can count from 1 (from verl 0.8 on), and down to a share of 1 it is constant. Earlier
    releases can have no warm-up.
    """
    ratio = {f"{role}.optim.lr_warmup_steps_ratio": 0.0}  # what 0 steps would fall back on
    if release < COUNTS_FROM_ONE:
        return ratio | {
            f"{role}.optim.lr_warmup_steps": 0, f"{role}.optim.lr_scheduler_type": "constant"
        }
    return ratio | {
        f"{role}.optim.lr_warmup_steps": warmup_steps,
        f"{role}.optim.lr_scheduler_type": "cosine",
        f"{role}.optim.min_lr_ratio": 1.0,
        f"{role}.optim.zero_indexed_step": False,
    }


def verl_rows(asked: Asked, release: tuple[int, int] = NEWEST) -> Iterator[Row]:
    """Keys of one release; `population` and a subset of rollouts have none."""
    a, r = asked.allocation, asked.recipe
    minis, epochs = asked.updates
    mini_batch = max(1, a.problems_per_batch // minis)
    yield Row(PLAN, "data.train_batch_size", a.problems_per_batch)
    yield Row(PLAN, f"{_ROLLOUT}.n", a.rollouts_per_problem)
    yield Row(PLAN, "trainer.total_training_steps", a.steps)
    yield Row(PLAN, "trainer.total_epochs", MANY_EPOCHS)
    yield Row("updates_per_batch", f"{_ACTOR}.ppo_mini_batch_size", mini_batch)
    yield Row("update_split", f"{_ACTOR}.ppo_epochs", epochs)
    if minis > 1 and asked.said is None:  # balanced, a mini-batch is responses of like length
        yield Row("update_split", "trainer.balance_batch", False)
    yield Row("passes_per_batch", f"{_ACTOR}.ppo_epochs", epochs)
    yield Row("shuffled", f"{_ACTOR}.shuffle", asked.told("shuffled", "no") == "yes")
    if asked.prompt_tokens is not None:
        yield Row("prompt_tokens", "data.max_prompt_length", asked.prompt_tokens)
    if asked.response_tokens is not None:
        yield Row("response_tokens", "data.max_response_length", asked.response_tokens)
    yield Row("learning_rate", f"{_ACTOR}.optim.lr", asked.rate)
    if asked.said is not None:
        yield from _own_schedule(r.warmup_steps, asked.said)
    else:
        told = "warmup_steps" if release >= COUNTS_FROM_ONE or not r.warmup_steps else PLAN
        for key, value in _schedule(_ACTOR, r.warmup_steps, release).items():
            yield Row(told, key, value)
    yield Row("weight_decay", f"{_ACTOR}.optim.weight_decay", r.weight_decay)
    yield Row("max_grad_norm", f"{_ACTOR}.grad_clip", r.max_grad_norm)
    yield Row("max_grad_norm", f"{_ACTOR}.optim.clip_grad", r.max_grad_norm)
    yield Row("kl_coef", f"{_ACTOR}.use_kl_loss", r.kl_coef > 0)
    yield Row("kl_coef", f"{_ACTOR}.kl_loss_coef", r.kl_coef)
    in_reward = asked.told("kl_in_reward", 0.0)
    yield Row("kl_in_reward", "algorithm.use_kl_in_reward", in_reward > 0)
    if in_reward > 0:
        yield Row("kl_in_reward", "algorithm.kl_ctrl.kl_coef", in_reward)
    estimator = asked.told("kl_estimator", r.kl_estimator)
    yield Row("kl_estimator", f"{_ACTOR}.kl_loss_type", _KL.get(estimator, estimator))
    yield Row("entropy_coef", f"{_ACTOR}.entropy_coeff", r.entropy_coef)
    yield Row("aggregation", f"{_ACTOR}.loss_agg_mode",
              asked.told("aggregation", r.aggregation))  # fmt: skip
    yield Row("clip_low", f"{_ACTOR}.clip_ratio_low", r.clip_low)
    yield Row("clip_high", f"{_ACTOR}.clip_ratio_high", r.clip_high)
    yield Row("clip_dual", f"{_ACTOR}.clip_ratio_c", asked.told("clip_dual", _NO_DUAL_CLIP))
    advantage, loss = _objective(asked.told("objective", r.objective))
    yield Row("objective", "algorithm.adv_estimator", advantage)
    yield Row("objective", f"{_ACTOR}.policy_loss.loss_mode", loss)
    word = "advantage_std" if r.advantage_std != "population" else PLAN
    yield Row(word, "algorithm.norm_adv_by_std_in_grpo", r.advantage_std != "none")
    yield Row("temperature", f"{_ROLLOUT}.temperature", r.temperature)
    yield Row("top_p", f"{_ROLLOUT}.top_p", r.top_p)
    yield Row("top_k", f"{_ROLLOUT}.top_k", int(asked.told("top_k", -1)))
    filtered = asked.told("zero_variance_filter", r.zero_variance_filter)
    if release >= (0, 9) and filtered in ("none", "refill"):
        yield Row("zero_variance_filter", "algorithm.filter_groups.enable", filtered == "refill")
    if rank := asked.told("lora_rank", 0.0):
        yield Row("lora_rank", "actor_rollout_ref.model.lora_rank", int(rank))
    for word, key in _EVALUATION.items():
        if (value := asked.told(word, None)) is not None:
            yield Row(word, f"{_ROLLOUT}.val_kwargs.{key}", value)
    if r.objective == "ppo":
        yield Row("value_learning_rate", "critic.optim.lr",
                  r.value_learning_rate_at(a.batch_size))  # fmt: skip
        if asked.said is None:  # logs say these of the policy alone
            for key, value in _schedule("critic", r.warmup_steps, release).items():
                yield Row("value_learning_rate", key, value)
            yield Row("weight_decay", "critic.optim.weight_decay", r.weight_decay)
            yield Row("max_grad_norm", "critic.grad_clip", r.max_grad_norm)
            yield Row("max_grad_norm", "critic.optim.clip_grad", r.max_grad_norm)
        yield Row("updates_per_batch", "critic.ppo_mini_batch_size", mini_batch)
        yield Row("update_split", "critic.ppo_epochs", epochs)
        yield Row("value_clip", "critic.cliprange_value", r.value_clip)
        yield Row("gae_gamma", "algorithm.gamma", r.gae_gamma)
        yield Row("gae_lambda", "algorithm.lam", r.gae_lambda)
    if asked.seed is not None and release >= (0, 7):
        yield Row("seed", "data.seed", asked.seed)
        yield Row("seed", f"{_ACTOR}.data_loader_seed", asked.seed)
        if release >= (0, 9):
            yield Row("seed", f"{_ROLLOUT}.seed", asked.seed)
    if asked.told("importance_cap", r.importance_cap) == "none":  # their word for off
        yield Row("importance_cap", f"{_CORRECTION}.rollout_is", "null")
    else:
        yield from _importance(r, release)
    if (rejected := asked.told("importance_rejection", "none")) != "none":
        yield Row("importance_rejection", f"{_CORRECTION}.rollout_rs", rejected)


def _objective(word: str) -> tuple[str, str]:
    """The estimator of advantages and the loss of verl, of a word for both.

    >>> _objective("grpo"), _objective("gspo"), _objective("rloo"), _objective("rloo/gspo")
    (('grpo', 'vanilla'), ('grpo', 'gspo'), ('rloo', 'vanilla'), ('rloo', 'gspo'))
    """
    of, _, loss = word.partition("/")
    if not loss and of not in ADVANTAGES:
        of, loss = "grpo", of
    return {"ppo": "gae"}.get(of, of), loss or "vanilla"


def _own_schedule(warmup_steps: int, said: Mapping[str, Any]) -> Iterator[Row]:
    """The schedule as the logs of runs say it."""
    yield Row("warmup_steps", f"{_ACTOR}.optim.lr_warmup_steps", warmup_steps)
    if (share := said.get("warmup_share")) is not None:
        yield Row("warmup_share", f"{_ACTOR}.optim.lr_warmup_steps_ratio", share)
    if (kind := said.get("lr_schedule", FALLING)) != FALLING:
        yield Row("lr_schedule", f"{_ACTOR}.optim.lr_scheduler_type", kind)
    if (least := said.get("lr_least")) is not None:
        yield Row("lr_least", f"{_ACTOR}.optim.min_lr_ratio", least)


def _importance(r: Recipe, release: tuple[int, int]) -> Iterator[Row]:
    """Truncated importance sampling, whose keys moved with 0.7."""
    yield Row("importance_cap", f"{_ROLLOUT}.calculate_log_probs", r.importance_cap is not None)
    if r.importance_cap is None:
        return
    if release >= (0, 7):
        yield Row("importance_level", f"{_CORRECTION}.rollout_is", r.importance_level)
        yield Row("importance_cap", f"{_CORRECTION}.rollout_is_threshold", r.importance_cap)
    else:
        yield Row("importance_cap", "algorithm.rollout_is", True)
        yield Row("importance_level", "algorithm.rollout_is_level", r.importance_level)
        yield Row("importance_cap", "algorithm.rollout_is_threshold", r.importance_cap)
