"""Settings of trainers that were read but not run: see docs/trainers.md."""

from __future__ import annotations

from collections.abc import Iterator

from isocompute.trainers.rows import MANY_EPOCHS, PLAN, Asked, Row


def prime_rl_rows(asked: Asked) -> Iterator[Row]:
    """Counts completions; asynchronous unless no rollout of older weights is kept."""
    a = asked.allocation
    yield Row(PLAN, "orchestrator.batch_size", a.batch_size)
    yield Row(PLAN, "orchestrator.group_size", a.rollouts_per_problem)
    yield Row(PLAN, "max_steps", a.steps)
    yield Row(PLAN, "orchestrator.max_off_policy_steps", 0)
    yield Row("learning_rate", "trainer.optim.lr", asked.rate)


def skyrl_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "trainer.train_batch_size", a.problems_per_batch)
    yield Row(PLAN, "generator.n_samples_per_prompt", a.rollouts_per_problem)
    yield Row(PLAN, "trainer.max_training_steps", a.steps)
    yield Row(_updates(asked), "trainer.policy_mini_batch_size", a.problems_per_batch)
    yield Row(PLAN, "trainer.update_epochs_per_batch", 1)
    yield Row("learning_rate", "trainer.policy.optimizer_config.lr", asked.rate)
    yield Row("kl_coef", "trainer.algorithm.use_kl_loss", r.kl_coef > 0)
    yield Row("kl_coef", "trainer.algorithm.kl_loss_coef", r.kl_coef)


def openrlhf_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts for rollouts, completions for training; it has no word for steps."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "--rollout.batch_size", a.problems_per_batch)
    yield Row(PLAN, "--rollout.n_samples_per_prompt", a.rollouts_per_problem)
    yield Row(_updates(asked), "--train.batch_size", a.batch_size)
    yield Row(PLAN, "--train.num_episodes", 1)
    yield Row(PLAN, "--data.max_samples", a.steps * a.problems_per_batch)
    yield Row("learning_rate", "--actor.adam.lr", asked.rate)
    yield Row(PLAN, "--actor.lr_scheduler", "constant")
    yield Row("kl_coef", "--algo.kl.init_coef", r.kl_coef)


def nemo_rl_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts for rollouts, completions for training."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "grpo.num_prompts_per_step", a.problems_per_batch)
    yield Row(PLAN, "grpo.num_generations_per_prompt", a.rollouts_per_problem)
    yield Row(PLAN, "grpo.max_num_steps", a.steps)
    yield Row(_updates(asked), "policy.train_global_batch_size", a.batch_size)
    yield Row("learning_rate", "policy.optimizer.kwargs.lr", asked.rate)
    yield Row("kl_coef", "loss_fn.reference_policy_kl_penalty", r.kl_coef)


def slime_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "--rollout-batch-size", a.problems_per_batch)
    yield Row(PLAN, "--n-samples-per-prompt", a.rollouts_per_problem)
    yield Row(PLAN, "--num-rollout", a.steps)
    yield Row(_updates(asked), "--num-steps-per-rollout", 1)
    yield Row("learning_rate", "--lr", asked.rate)
    yield Row(PLAN, "--lr-decay-style", "constant")
    yield Row("entropy_coef", "--entropy-coef", r.entropy_coef)
    yield Row("temperature", "--rollout-temperature", r.temperature)
    if r.kl_coef > 0:
        yield Row("kl_coef", "--use-kl-loss", "")
        yield Row("kl_coef", "--kl-loss-coef", r.kl_coef)


def areal_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts; it has no entropy bonus."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "train_dataset.batch_size", a.problems_per_batch)
    yield Row(PLAN, "gconfig.n_samples", a.rollouts_per_problem)
    yield Row(PLAN, "total_train_steps", a.steps)
    yield Row(PLAN, "total_train_epochs", MANY_EPOCHS)
    yield Row(_updates(asked), "actor.ppo_n_minibatches", 1)
    yield Row(PLAN, "rollout.max_head_offpolicyness", 0)
    yield Row("learning_rate", "actor.optimizer.lr", asked.rate)
    yield Row(PLAN, "actor.optimizer.lr_scheduler_type", "constant")
    yield Row("kl_coef", "actor.kl_ctl", r.kl_coef)
    yield Row("temperature", "gconfig.temperature", r.temperature)


def open_instruct_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts for rollouts, and completions over the whole run."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "--num_unique_prompts_rollout", a.problems_per_batch)
    yield Row(PLAN, "--num_samples_per_prompt_rollout", a.rollouts_per_problem)
    yield Row(PLAN, "--total_episodes", a.rollouts)
    yield Row(_updates(asked), "--num_mini_batches", 1)
    yield Row(PLAN, "--num_epochs", 1)
    yield Row("learning_rate", "--learning_rate", asked.rate)
    yield Row(PLAN, "--lr_scheduler_type", "constant")
    yield Row("kl_coef", "--beta", r.kl_coef)
    yield Row("temperature", "--temperature", r.temperature)


def _updates(asked: Asked) -> str:
    """The word of a key that says one update per batch: it carries that number and no other."""
    return "updates_per_batch" if asked.recipe.updates_per_batch == 1 else PLAN
