"""Every key of a trainer, for a plan that is worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from isocompute.allocation import Allocation
from isocompute.recipe import Recipe
from isocompute.trainers import read_allocation, trainer_settings
from isocompute.trainers.trl import MASKED

# 8 problems x 4 rollouts: 32 completions, 320 in 10 batches.
PLAN = Allocation(problems_per_batch=8, rollouts_per_problem=4, steps=10)
# Four updates per batch, which the logs tell apart: two mini-batches, twice each.
RECIPE = Recipe(
    learning_rate=1e-5, learning_rate_scaling="constant", updates_per_batch=4, kl_coef=0.01,
    temperature=0.9, entropy_coef=0.002,
)  # fmt: skip
SAID = {"updates_per_batch": 4.0, "passes_per_batch": 2.0, "staleness": 3.0, "kl_estimator": "k2"}
KNOWN = ("learning_rate", "kl_coef", "temperature", "entropy_coef", *SAID)
OPEN = ("seed", "response_tokens")

OFF_POLICY: dict[str, dict[str, Any]] = {
    "prime-rl": {
        "orchestrator.batch_size": 32, "orchestrator.group_size": 4, "max_steps": 10,
        "orchestrator.max_off_policy_steps": 3, "trainer.optim.lr": 1e-5,
    },
    "skyrl": {
        "trainer.train_batch_size": 8, "generator.n_samples_per_prompt": 4,
        "trainer.max_training_steps": 10, "trainer.epochs": 1_000_000,
        "trainer.policy_mini_batch_size": 4, "trainer.update_epochs_per_batch": 2,
        "trainer.policy.optimizer_config.lr": 1e-5, "trainer.algorithm.use_kl_loss": True,
        "trainer.algorithm.kl_loss_coef": 0.01,
    },
    "openrlhf": {
        "--rollout.batch_size": 8, "--rollout.n_samples_per_prompt": 4, "--train.batch_size": 16,
        "--train.max_epochs": 2, "--train.num_episodes": 1, "--data.max_samples": 80,
        "--actor.adam.lr": 1e-5, "--actor.lr_scheduler": "constant", "--algo.kl.init_coef": 0.01,
        "--algo.kl.use_loss": "", "--algo.kl.estimator": "k2",
    },
    # nemo-rl, slime and areal have no passes: two mini-batches would be half of what the runs had
    "nemo-rl": {
        "grpo.num_prompts_per_step": 8, "grpo.num_generations_per_prompt": 4,
        "grpo.max_num_steps": 10, "grpo.max_num_epochs": 1_000_000,
        "policy.optimizer.kwargs.lr": 1e-5, "loss_fn.reference_policy_kl_penalty": 0.01,
    },
    "slime": {
        "--rollout-batch-size": 8, "--n-samples-per-prompt": 4, "--num-rollout": 10, "--lr": 1e-5,
        "--lr-decay-style": "constant", "--entropy-coef": 0.002, "--rollout-temperature": 0.9,
        "--use-kl-loss": "", "--kl-loss-coef": 0.01, "--kl-loss-type": "k2",
    },
    "areal": {
        "train_dataset.batch_size": 8, "gconfig.n_samples": 4, "total_train_steps": 10,
        "total_train_epochs": 1_000_000, "actor.optimizer.warmup_steps_proportion": 0.0,
        "rollout.max_head_offpolicyness": 3, "actor.optimizer.lr": 1e-5,
        "actor.optimizer.lr_scheduler_type": "constant", "actor.kl_ctl": 0.0,  # one in the reward
        "gconfig.temperature": 0.9,
    },
    "open-instruct": {
        "--num_unique_prompts_rollout": 8, "--num_samples_per_prompt_rollout": 4,
        "--total_episodes": 320, "--num_mini_batches": 2, "--num_epochs": 2, "--async_steps": 3,
        "--learning_rate": 1e-5, "--lr_scheduler_type": "constant", "--beta": 0.01,
        "--temperature": 0.9,
    },
    "trl": {
        "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1,
        "steps_per_generation": 2, "num_generations": 4, "max_steps": 40, "num_iterations": 2,
        "learning_rate": 1e-5, "lr_scheduler_type": "constant_with_warmup", "beta": 0.01,
        "entropy_coef": 0.002, "temperature": 0.9,
    },
    "verl": {
        "data.train_batch_size": 8, "actor_rollout_ref.rollout.n": 4,
        "trainer.total_training_steps": 10, "trainer.total_epochs": 1_000_000,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4, "actor_rollout_ref.actor.ppo_epochs": 2,
        "actor_rollout_ref.actor.optim.lr": 1e-5, "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.01,
        "actor_rollout_ref.actor.kl_loss_type": "k2",
        "actor_rollout_ref.actor.entropy_coeff": 0.002,
        "actor_rollout_ref.rollout.temperature": 0.9,
    },
}  # fmt: skip
# What of it changes where the plan's own recipe has one update per batch and no KL.
PLAIN: dict[str, dict[str, Any]] = {
    "prime-rl": {"orchestrator.max_off_policy_steps": 0},
    "skyrl": {"trainer.policy_mini_batch_size": 8, "trainer.update_epochs_per_batch": 1,
              "trainer.algorithm.use_kl_loss": False, "trainer.algorithm.kl_loss_coef": 0.0},
    "openrlhf": {"--train.batch_size": 32, "--algo.kl.init_coef": 0.0},
    "nemo-rl": {"policy.train_global_batch_size": 32, "loss_fn.reference_policy_kl_penalty": 0.0},
    "slime": {"--num-steps-per-rollout": 1, "--entropy-coef": 0.0},
    "areal": {"actor.ppo_n_minibatches": 1, "rollout.max_head_offpolicyness": 0,
              "actor.kl_ctl": 0.0},
    "open-instruct": {"--num_mini_batches": 1, "--num_epochs": 1, "--async_steps": 1,
                      "--beta": 0.0, "--filter_zero_std_samples": False},
}  # fmt: skip
GONE = ("--train.max_epochs", "--algo.kl.use_loss", "--algo.kl.estimator", "--use-kl-loss",
        "--kl-loss-coef", "--kl-loss-type")  # fmt: skip


@pytest.mark.parametrize("trainer", OFF_POLICY)
def test_off_policy_runs_are_repeated_key_by_key(trainer: str) -> None:
    found = trainer_settings(trainer, PLAN, RECIPE, known=KNOWN, said=SAID)
    assert found.keys == OFF_POLICY[trainer]
    assert read_allocation(trainer, found.keys) == PLAN
    has_none = trainer in ("prime-rl", "nemo-rl", "slime", "areal")
    assert ("passes_per_batch=2" in found.not_set) == has_none


@pytest.mark.parametrize("trainer", PLAIN)
def test_a_plans_own_recipe_is_told_key_by_key(trainer: str) -> None:
    plain = RECIPE.replace(updates_per_batch=1, kl_coef=0.0, entropy_coef=0.0)
    kept = {key: value for key, value in OFF_POLICY[trainer].items() if key not in GONE}
    assert trainer_settings(trainer, PLAN, plain).keys == {**kept, **PLAIN[trainer]}


def told(trainer: str, said: dict[str, Any], recipe: Recipe = RECIPE) -> dict[str, Any]:
    """The keys that a trainer is told beside those of the allocation and the updates."""
    found = trainer_settings(trainer, PLAN, recipe, known=list(said), said=said)
    none = trainer_settings(trainer, PLAN, recipe, known=[], said={})
    assert found.not_set == OPEN
    return {key: value for key, value in found.keys.items() if none.keys.get(key, ...) != value}


def test_words_of_logs_in_verls_keys() -> None:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    assert told("verl", {
        "objective": "rloo/gspo", "aggregation": "seq-mean-token-sum-norm", "kl_in_reward": 0.05,
        "shuffled": "yes", "clip_dual": 10.0, "lr_schedule": "cosine", "lr_least": 0.1,
        "warmup_share": 0.03, "lora_rank": 32.0, "top_k": 50.0, "zero_variance_filter": "refill",
        "importance_cap": "none", "importance_rejection": "token",
        "evaluation_temperature": 0.6, "evaluation_top_p": 0.95, "evaluation_samples": 4,
    }) == {
        "algorithm.adv_estimator": "rloo", f"{actor}.policy_loss.loss_mode": "gspo",
        f"{actor}.loss_agg_mode": "seq-mean-token-sum-norm",
        "algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": 0.05,
        f"{actor}.shuffle": True, f"{actor}.clip_ratio_c": 10.0,
        f"{actor}.optim.lr_scheduler_type": "cosine", f"{actor}.optim.min_lr_ratio": 0.1,
        f"{actor}.optim.lr_warmup_steps_ratio": 0.03,
        "actor_rollout_ref.model.lora_rank": 32, f"{rollout}.top_k": 50,
        "algorithm.filter_groups.enable": True,
        "algorithm.rollout_correction.rollout_is": "null",
        "algorithm.rollout_correction.rollout_rs": "token",
        f"{rollout}.val_kwargs.temperature": 0.6, f"{rollout}.val_kwargs.top_p": 0.95,
        f"{rollout}.val_kwargs.n": 4,
    }  # fmt: skip


def test_words_of_logs_in_trls_keys() -> None:
    assert told("trl", {
        "objective": "bnpo", "lr_schedule": "linear", "lr_least": 0.0, "clip_dual": 4.0,
        "top_k": 50.0, "length_penalty": MASKED, "token_share": 0.2, "warmup_share": 0.1,
    }) == {
        "loss_type": "bnpo", "lr_scheduler_type": "linear", "delta": 4.0, "top_k": 50,
        "mask_truncated_completions": True, "top_entropy_quantile": 0.2, "warmup_steps": 0.1,
    }  # fmt: skip


@pytest.mark.parametrize("said", [{"lr_schedule": "cosine", "lr_least": 0.1},
                                  {"lr_schedule": "wsd"}])  # fmt: skip
def test_a_schedule_that_trl_cannot_be_told_is_listed(said: dict[str, Any]) -> None:
    found = trainer_settings("trl", PLAN, RECIPE, known=list(said), said=said)
    assert "lr_scheduler_type" not in found.keys
    assert found.not_set == (*OPEN, *(f"{word}={value}" for word, value in said.items()))
