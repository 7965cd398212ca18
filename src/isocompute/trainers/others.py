"""Settings of trainers that were read but not run: see docs/trainers.md."""

from __future__ import annotations

from collections.abc import Iterator

from isocompute.trainers.rows import MANY_EPOCHS, PLAN, Asked, Row, word_of_updates


def prime_rl_rows(asked: Asked) -> Iterator[Row]:
    """Counts completions; asynchronous unless no rollout of older weights is kept."""
    a = asked.allocation
    yield Row(PLAN, "orchestrator.batch_size", a.batch_size)
    yield Row(PLAN, "orchestrator.group_size", a.rollouts_per_problem)
    yield Row(PLAN, "max_steps", a.steps)
    yield Row("staleness", "orchestrator.max_off_policy_steps", int(asked.told("staleness", 0)))
    yield Row("learning_rate", "trainer.optim.lr", asked.rate)


def skyrl_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "trainer.train_batch_size", a.problems_per_batch)
    yield Row(PLAN, "generator.n_samples_per_prompt", a.rollouts_per_problem)
    yield Row(PLAN, "trainer.max_training_steps", a.steps)
    yield Row(PLAN, "trainer.epochs", MANY_EPOCHS)
    minis, passes, word = _updates(asked, passes=True)
    yield Row(word, "trainer.policy_mini_batch_size", a.problems_per_batch // minis)
    yield Row(word, "trainer.update_epochs_per_batch", passes)
    yield Row("passes_per_batch", "trainer.update_epochs_per_batch", passes)
    yield Row("learning_rate", "trainer.policy.optimizer_config.lr", asked.rate)
    yield Row("kl_coef", "trainer.algorithm.use_kl_loss", r.kl_coef > 0)
    yield Row("kl_coef", "trainer.algorithm.kl_loss_coef", r.kl_coef)


def openrlhf_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts for rollouts, completions for training; it has no word for steps."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "--rollout.batch_size", a.problems_per_batch)
    yield Row(PLAN, "--rollout.n_samples_per_prompt", a.rollouts_per_problem)
    minis, passes, word = _updates(asked, passes=True)
    yield Row(word, "--train.batch_size", a.batch_size // minis)
    if passes > 1:
        yield Row(word, "--train.max_epochs", passes)
        yield Row("passes_per_batch", "--train.max_epochs", passes)
    yield Row(PLAN, "--train.num_episodes", 1)
    yield Row(PLAN, "--data.max_samples", a.steps * a.problems_per_batch)
    yield Row("learning_rate", "--actor.adam.lr", asked.rate)
    yield from _schedule(asked, "--actor.lr_scheduler")
    yield Row("kl_coef", "--algo.kl.init_coef", r.kl_coef)
    if r.kl_coef > 0:  # its own: k1, taken from the reward
        yield Row("kl_coef", "--algo.kl.use_loss", "")
        yield Row("kl_estimator", "--algo.kl.estimator",
                  asked.told("kl_estimator", r.kl_estimator))  # fmt: skip


def nemo_rl_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts for rollouts, completions for training."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "grpo.num_prompts_per_step", a.problems_per_batch)
    yield Row(PLAN, "grpo.num_generations_per_prompt", a.rollouts_per_problem)
    yield Row(PLAN, "grpo.max_num_steps", a.steps)
    yield Row(PLAN, "grpo.max_num_epochs", MANY_EPOCHS)
    minis, _, word = _updates(asked)
    yield Row(word, "policy.train_global_batch_size", a.batch_size // minis)
    yield Row("learning_rate", "policy.optimizer.kwargs.lr", asked.rate)
    yield Row("kl_coef", "loss_fn.reference_policy_kl_penalty", r.kl_coef)


def slime_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "--rollout-batch-size", a.problems_per_batch)
    yield Row(PLAN, "--n-samples-per-prompt", a.rollouts_per_problem)
    yield Row(PLAN, "--num-rollout", a.steps)
    minis, _, word = _updates(asked)
    yield Row(word, "--num-steps-per-rollout", minis)
    yield Row("learning_rate", "--lr", asked.rate)
    yield from _schedule(asked, "--lr-decay-style")
    yield Row("entropy_coef", "--entropy-coef", r.entropy_coef)
    yield Row("temperature", "--rollout-temperature", r.temperature)
    if r.kl_coef > 0:
        yield Row("kl_coef", "--use-kl-loss", "")
        yield Row("kl_coef", "--kl-loss-coef", r.kl_coef)
        kind = asked.told("kl_estimator", r.kl_estimator)  # its own is k1, which pulls nowhere
        yield Row("kl_estimator", "--kl-loss-type", "low_var_kl" if kind == "k3" else kind)


def areal_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts; its loss has no KL and no entropy bonus."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "train_dataset.batch_size", a.problems_per_batch)
    yield Row(PLAN, "gconfig.n_samples", a.rollouts_per_problem)
    yield Row(PLAN, "total_train_steps", a.steps)
    yield Row(PLAN, "total_train_epochs", MANY_EPOCHS)
    # its default, a thousandth of all epochs' updates, would never end
    yield Row(PLAN, "actor.optimizer.warmup_steps_proportion", 0.0)
    minis, _, word = _updates(asked)
    yield Row(word, "actor.ppo_n_minibatches", minis)
    yield Row("staleness", "rollout.max_head_offpolicyness", int(asked.told("staleness", 0)))
    yield Row("learning_rate", "actor.optimizer.lr", asked.rate)
    yield from _schedule(asked, "actor.optimizer.lr_scheduler_type")
    for word in ("kl_in_reward", PLAN):  # its default is 0.1
        yield Row(word, "actor.kl_ctl", asked.told("kl_in_reward", 0.0))
    yield Row("temperature", "gconfig.temperature", r.temperature)


def open_instruct_rows(asked: Asked) -> Iterator[Row]:
    """Counts prompts for rollouts, and completions over the whole run."""
    a, r = asked.allocation, asked.recipe
    yield Row(PLAN, "--num_unique_prompts_rollout", a.problems_per_batch)
    yield Row(PLAN, "--num_samples_per_prompt_rollout", a.rollouts_per_problem)
    yield Row(PLAN, "--total_episodes", a.rollouts)
    minis, passes, word = _updates(asked, passes=True)
    yield Row(word, "--num_mini_batches", minis)
    yield Row(word, "--num_epochs", passes)
    yield Row("passes_per_batch", "--num_epochs", passes)
    # it has no synchronous training: 1 is the least, 8 its own
    behind = int(asked.told("staleness", 0))
    yield Row("staleness" if behind else PLAN, "--async_steps", max(behind, 1))
    filtered = asked.told("zero_variance_filter", asked.recipe.zero_variance_filter)
    if filtered in ("none", "loss"):  # it filters unless told otherwise
        yield Row("zero_variance_filter", "--filter_zero_std_samples", filtered == "loss")
    yield Row("learning_rate", "--learning_rate", asked.rate)
    yield from _schedule(asked, "--lr_scheduler_type")
    yield Row("kl_coef", "--beta", r.kl_coef)
    yield Row("temperature", "--temperature", r.temperature)


def _updates(asked: Asked, *, passes: bool = False) -> tuple[int, int, str]:
    """Mini-batches, passes over them, and the word that both carry: none if they are not the runs'.

    Args:
        asked: the plan; of a recipe's own several updates nothing is written.
        passes: whether the trainer has a key for passes.
    """
    a = asked.allocation
    minis, over = asked.updates if asked.said is not None else (1, 1)
    over = over if passes else 1
    minis = minis if a.problems_per_batch % minis == 0 else 1
    return minis, over, word_of_updates(asked, minis * over)


def _schedule(asked: Asked, key: str) -> Iterator[Row]:
    """A constant rate, unless the runs had another."""
    if asked.told("lr_schedule", "constant") == "constant":
        yield Row("lr_schedule", key, "constant")
