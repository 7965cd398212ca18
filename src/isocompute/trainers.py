"""An allocation in the words of each trainer, and back.

Trainers disagree on what a batch counts: prompts (verl, SkyRL, NeMo-RL, slime, AReaL,
OpenRLHF's rollout batch) or completions (TRL, prime-rl). This module is the one place that
knows. `trainer_settings` writes keys, `read_allocation` reads them back.

Source: each trainer's own configuration reference at the versions in docs/trainers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from isocompute.allocation import Allocation
from isocompute.errors import InputError
from isocompute.recipe import Recipe

# The steps must end the run, not the passes over the data: verl stops at whichever is first.
_MANY_EPOCHS = 1_000_000
# Completions per device and micro-step offered for TRL; only the product has a meaning.
_TRL_MICRO_BATCH = 16

Keys = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """One allocation in one trainer's words.

    Args:
        trainer: its name.
        keys: configuration keys as the trainer spells them, with values.
        units: one sentence: what its batch counts, and what to mind.
    """

    trainer: str
    keys: Mapping[str, Any]
    units: str


def key_lines(keys: Mapping[str, Any]) -> list[str]:
    """Keys as a person would paste them: `--option value` or `key=value`."""
    return [
        (f"{key} {_text(value)}" if key.startswith("--") else f"{key}={_text(value)}").strip()
        for key, value in keys.items()
    ]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def updates_in_verl(a: Allocation, r: Recipe) -> tuple[int, int]:
    """(ppo_mini_batch_size in prompts, ppo_epochs) of the recipe's updates per batch."""
    if r.update_split == "epoch":
        return a.problems_per_batch, r.updates_per_batch
    return max(1, a.problems_per_batch // r.updates_per_batch), 1


def schedule_in_verl(role: str, warmup_steps: int) -> Keys:
    """Step i of the warm-up has i / warmup_steps of the learning rate, then it is constant."""
    # verl's `constant` counts from 0 and loses the first update; `cosine` to 1 is constant too
    return {
        f"{role}.optim.lr_warmup_steps": warmup_steps,
        f"{role}.optim.lr_scheduler_type": "cosine",
        f"{role}.optim.min_lr_ratio": 1.0,
        f"{role}.optim.zero_indexed_step": False,
    }


def _verl(a: Allocation, r: Recipe) -> Keys:
    mini_batch, epochs = updates_in_verl(a, r)
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    keys: Keys = {
        "data.train_batch_size": a.problems_per_batch,
        f"{rollout}.n": a.rollouts_per_problem,
        "trainer.total_training_steps": a.steps,
        "trainer.total_epochs": _MANY_EPOCHS,
        f"{actor}.ppo_mini_batch_size": mini_batch,
        f"{actor}.ppo_epochs": epochs,
        f"{actor}.optim.lr": r.learning_rate_at(a.batch_size),
        **schedule_in_verl(actor, r.warmup_steps),
        f"{actor}.use_kl_loss": r.kl_coef > 0,
        f"{actor}.kl_loss_coef": r.kl_coef,
        f"{actor}.entropy_coeff": r.entropy_coef,
        f"{actor}.loss_agg_mode": r.aggregation,
        "algorithm.adv_estimator": "gae" if r.objective == "ppo" else "grpo",
        "algorithm.norm_adv_by_std_in_grpo": r.advantage_std != "none",
        f"{rollout}.temperature": r.temperature,
        f"{rollout}.top_p": r.top_p,
    }
    if r.objective == "cispo":
        keys[f"{actor}.policy_loss.loss_mode"] = "cispo"
    return keys


def _trl(a: Allocation, r: Recipe) -> Keys:
    micro = _TRL_MICRO_BATCH
    while a.batch_size % micro:
        micro //= 2
    loss_types = {
        "token-mean": "dapo",
        "seq-mean-token-mean": "grpo",
        "seq-mean-token-sum": "dr_grpo",
    }
    return {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": a.batch_size // micro,
        "num_generations": a.rollouts_per_problem,
        "max_steps": a.steps,
        "num_iterations": 1,
        "learning_rate": r.learning_rate_at(a.batch_size),
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": r.warmup_steps,
        "beta": r.kl_coef,
        "entropy_coef": r.entropy_coef,
        "loss_type": "cispo" if r.objective == "cispo" else loss_types[r.aggregation],
        "scale_rewards": "none" if r.advantage_std == "none" else "group",
        "temperature": r.temperature,
        "top_p": r.top_p,
    }


def _prime_rl(a: Allocation, r: Recipe) -> Keys:
    return {
        "orchestrator.batch_size": a.batch_size,
        "orchestrator.group_size": a.rollouts_per_problem,
        "max_steps": a.steps,
        "orchestrator.max_off_policy_steps": 0,
        "trainer.optim.lr": r.learning_rate_at(a.batch_size),
    }


def _skyrl(a: Allocation, r: Recipe) -> Keys:
    return {
        "trainer.train_batch_size": a.problems_per_batch,
        "generator.n_samples_per_prompt": a.rollouts_per_problem,
        "trainer.max_training_steps": a.steps,
        "trainer.policy_mini_batch_size": a.problems_per_batch,
        "trainer.update_epochs_per_batch": 1,
        "trainer.policy.optimizer_config.lr": r.learning_rate_at(a.batch_size),
        "trainer.algorithm.use_kl_loss": r.kl_coef > 0,
        "trainer.algorithm.kl_loss_coef": r.kl_coef,
    }


def _openrlhf(a: Allocation, r: Recipe) -> Keys:
    return {
        "--rollout.batch_size": a.problems_per_batch,
        "--rollout.n_samples_per_prompt": a.rollouts_per_problem,
        "--train.batch_size": a.batch_size,
        "--train.num_episodes": 1,
        "--data.max_samples": a.steps * a.problems_per_batch,
        "--actor.adam.lr": r.learning_rate_at(a.batch_size),
        "--actor.lr_scheduler": "constant",
        "--algo.kl.init_coef": r.kl_coef,
    }


def _nemo_rl(a: Allocation, r: Recipe) -> Keys:
    return {
        "grpo.num_prompts_per_step": a.problems_per_batch,
        "grpo.num_generations_per_prompt": a.rollouts_per_problem,
        "grpo.max_num_steps": a.steps,
        "policy.train_global_batch_size": a.batch_size,
        "policy.optimizer.kwargs.lr": r.learning_rate_at(a.batch_size),
        "loss_fn.reference_policy_kl_penalty": r.kl_coef,
    }


def _slime(a: Allocation, r: Recipe) -> Keys:
    keys: Keys = {
        "--rollout-batch-size": a.problems_per_batch,
        "--n-samples-per-prompt": a.rollouts_per_problem,
        "--num-rollout": a.steps,
        "--num-steps-per-rollout": 1,
        "--lr": r.learning_rate_at(a.batch_size),
        "--lr-decay-style": "constant",
        "--entropy-coef": r.entropy_coef,
        "--rollout-temperature": r.temperature,
    }
    if r.kl_coef > 0:
        keys |= {"--use-kl-loss": "", "--kl-loss-coef": r.kl_coef}
    return keys


def _areal(a: Allocation, r: Recipe) -> Keys:
    return {
        "train_dataset.batch_size": a.problems_per_batch,
        "gconfig.n_samples": a.rollouts_per_problem,
        "total_train_steps": a.steps,
        "total_train_epochs": _MANY_EPOCHS,
        "actor.ppo_n_minibatches": 1,
        "rollout.max_head_offpolicyness": 0,
        "actor.optimizer.lr": r.learning_rate_at(a.batch_size),
        "actor.optimizer.lr_scheduler_type": "constant",
        "actor.kl_ctl": r.kl_coef,
        "gconfig.temperature": r.temperature,
    }


def _open_instruct(a: Allocation, r: Recipe) -> Keys:
    return {
        "--num_unique_prompts_rollout": a.problems_per_batch,
        "--num_samples_per_prompt_rollout": a.rollouts_per_problem,
        "--total_episodes": a.rollouts,
        "--num_mini_batches": 1,
        "--num_epochs": 1,
        "--learning_rate": r.learning_rate_at(a.batch_size),
        "--lr_scheduler_type": "constant",
        "--beta": r.kl_coef,
        "--temperature": r.temperature,
    }


@dataclass(frozen=True, kw_only=True)
class _Trainer:
    """How one trainer is written and read; `counts` is "prompts" or "completions"."""

    write: Callable[[Allocation, Recipe], Keys]
    counts: str
    units: str
    problems: str | None = None
    group: str
    steps: str | None = None


_TRAINERS: dict[str, _Trainer] = {
    "verl": _Trainer(
        write=_verl,
        counts="prompts",
        problems="data.train_batch_size",
        group="actor_rollout_ref.rollout.n",
        steps="trainer.total_training_steps",
        units="data.train_batch_size and ppo_mini_batch_size count prompts; verl multiplies both "
        "by rollout.n. Equal values mean one update per batch.",
    ),
    "trl": _Trainer(
        write=_trl,
        counts="completions",
        group="num_generations",
        steps="max_steps",
        units="the batch counts completions: per_device_train_batch_size x processes x "
        "gradient_accumulation_steps = B_p x n; the values are for one process, divide "
        "gradient_accumulation_steps by the number of processes. Leave steps_per_generation unset.",
    ),
    "prime-rl": _Trainer(
        write=_prime_rl,
        counts="completions",
        group="orchestrator.group_size",
        steps="max_steps",
        units="orchestrator.batch_size counts completions (B_p x n). Training is asynchronous; "
        "max_off_policy_steps 0 drops rollouts of older weights.",
    ),
    "skyrl": _Trainer(
        write=_skyrl,
        counts="prompts",
        problems="trainer.train_batch_size",
        group="generator.n_samples_per_prompt",
        steps="trainer.max_training_steps",
        units="train_batch_size and policy_mini_batch_size count prompts. Equal values mean one "
        "update per batch.",
    ),
    "openrlhf": _Trainer(
        write=_openrlhf,
        counts="prompts",
        problems="--rollout.batch_size",
        group="--rollout.n_samples_per_prompt",
        units="--rollout.batch_size counts prompts, --train.batch_size completions. There is no "
        "option for steps: one episode over B_p x M prompts ends at M, so the data must hold that "
        "many prompts (repeat the file where it does not).",
    ),
    "nemo-rl": _Trainer(
        write=_nemo_rl,
        counts="prompts",
        problems="grpo.num_prompts_per_step",
        group="grpo.num_generations_per_prompt",
        steps="grpo.max_num_steps",
        units="num_prompts_per_step counts prompts, train_global_batch_size completions. A global "
        "batch of B_p x n means one update per batch.",
    ),
    "slime": _Trainer(
        write=_slime,
        counts="prompts",
        problems="--rollout-batch-size",
        group="--n-samples-per-prompt",
        steps="--num-rollout",
        units="--rollout-batch-size counts prompts; --num-rollout is M because "
        "--num-steps-per-rollout is 1.",
    ),
    "areal": _Trainer(
        write=_areal,
        counts="prompts",
        problems="train_dataset.batch_size",
        group="gconfig.n_samples",
        steps="total_train_steps",
        units="train_dataset.batch_size counts prompts. ppo_n_minibatches 1 means one update per "
        "batch, max_head_offpolicyness 0 that it is on-policy. It has no entropy bonus.",
    ),
    "open-instruct": _Trainer(
        write=_open_instruct,
        counts="prompts",
        problems="--num_unique_prompts_rollout",
        group="--num_samples_per_prompt_rollout",
        units="num_unique_prompts_rollout counts prompts; total_episodes counts completions over "
        "the whole run (B_p x n x M).",
    ),
}

TRAINERS = tuple(_TRAINERS)


def _find(trainer: str) -> _Trainer:
    if trainer not in _TRAINERS:
        raise InputError(
            f"a trainer must be one of {', '.join(TRAINERS)}, but got {trainer!r}; "
            "choose one of them."
        )
    return _TRAINERS[trainer]


def trainer_settings(trainer: str, allocation: Allocation, recipe: Recipe) -> TrainerSettings:
    """The allocation and the recipe in one trainer's configuration keys.

    Keys that the trainer has no word for are left out; nothing is renamed or guessed.

    Raises:
        InputError: for an unknown trainer.

    >>> a = Allocation(problems_per_batch=32, rollouts_per_problem=256, steps=488)
    >>> trainer_settings("trl", a, Recipe()).keys["num_generations"]
    256
    """
    found = _find(trainer)
    return TrainerSettings(trainer=trainer, keys=found.write(allocation, recipe), units=found.units)


def read_allocation(trainer: str, keys: Mapping[str, Any], *, processes: int = 1) -> Allocation:
    """(B_p, n, M) from a trainer's configuration keys.

    Args:
        trainer: its name.
        keys: at least the keys of the allocation; others are ignored.
        processes: data-parallel processes (TRL's batch is per device).

    Raises:
        InputError: for an unknown trainer, a key that is missing, or a batch of completions
            that is not a multiple of the group.
    """
    found = _find(trainer)

    def value(key: str) -> int:
        if key not in keys:
            raise InputError(
                f"{trainer} needs the key `{key}` to know its allocation, but got "
                f"{', '.join(sorted(keys)) or 'no keys'}; add the key."
            )
        number = float(keys[key])
        if not number.is_integer():
            raise InputError(
                f"{trainer} `{key}` must be a whole number, but got {keys[key]!r}; correct it."
            )
        return int(number)

    group = value(found.group)
    if found.problems is not None:
        problems = value(found.problems)
    else:
        batch = (
            value("per_device_train_batch_size") * value("gradient_accumulation_steps") * processes
            if trainer == "trl"
            else value("orchestrator.batch_size")
        )
        problems = _exact(trainer, batch, group, "batch of completions", "group")
    if found.steps is not None:
        steps = value(found.steps)
    elif trainer == "openrlhf":
        prompts = value("--data.max_samples") * value("--train.num_episodes")
        steps = _exact(trainer, prompts, problems, "number of prompts", "rollout batch")
    else:
        steps = _exact(
            trainer, value("--total_episodes"), problems * group, "number of episodes", "batch"
        )
    return Allocation(problems_per_batch=problems, rollouts_per_problem=group, steps=steps)


def _exact(trainer: str, whole: int, part: int, whole_name: str, part_name: str) -> int:
    """Quotient of two counts that must divide without rest."""
    if part < 1 or whole % part:
        raise InputError(
            f"{trainer}'s {whole_name} must be a multiple of its {part_name}, but got {whole} and "
            f"{part}; correct the configuration."
        )
    return whole // part
