"""A plan as the settings of each trainer, and back; used by `plan --for` and by the engines.

Trainers disagree on what a batch counts: prompts (verl, SkyRL, NeMo-RL, slime, AReaL,
OpenRLHF's rollout batch) or completions (TRL, prime-rl). `trainer_settings` writes keys and lists
what a trainer is not told, `read_allocation` reads an allocation back.

Source: each trainer's own configuration reference at the versions in docs/trainers.md.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isocompute.allocation import Allocation
from isocompute.errors import InputError
from isocompute.recipe import Recipe
from isocompute.trainers import others, trl, verl
from isocompute.trainers.paste import Keys, key_lines, on_processes, with_comments
from isocompute.trainers.rows import ALWAYS, OPEN, PLAN, Asked, Row, not_set

__all__ = [
    "TRAINERS",
    "Asked",
    "Keys",
    "TrainerSettings",
    "find_trainer",
    "key_lines",
    "on_processes",
    "read_allocation",
    "trainer_settings",
    "with_comments",
]


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """One plan in one trainer's words.

    Args:
        trainer: its name.
        keys: configuration keys as the trainer spells them, with values.
        units: one sentence: what its batch counts, and what to mind.
        not_set: words of the plan that it is not told, with their values.
        trained: the version that this project trained with; "" where it was only read.
    """

    trainer: str
    keys: Mapping[str, Any]
    units: str
    not_set: tuple[str, ...] = ()
    trained: str = ""


@dataclass(frozen=True, kw_only=True)
class _Trainer:
    """How one trainer is written and read.

    `warm_up` ends `units` where the keys hold warm-up steps, `alone` where n is 1.
    """

    write: Callable[[Asked], Iterable[Row]]
    units: str
    warm_up: str = ""
    alone: str = ""
    problems: str | None = None
    group: str
    steps: str | None = None
    by_itself: Mapping[str, Any] = field(default_factory=dict)
    trained: str = ""


_TRAINERS: dict[str, _Trainer] = {
    "verl": _Trainer(
        write=verl.verl_rows,
        problems="data.train_batch_size",
        group="actor_rollout_ref.rollout.n",
        steps="trainer.total_training_steps",
        trained="0.9.1",
        units="data.train_batch_size and ppo_mini_batch_size count prompts; verl multiplies both "
        "by rollout.n. Equal values mean one update per batch.",
    ),
    "trl": _Trainer(
        write=trl.trl_rows,
        group="num_generations",
        steps="max_steps",
        by_itself=trl.BY_ITSELF,
        trained="1.16.0",
        units="the batch counts completions: per_device_train_batch_size x processes x "
        f"gradient_accumulation_steps = B_p x n; {trl.process_words(1)}. Keep the "
        "per-device batch that fits your memory, and accumulate more. Leave "
        "steps_per_generation unset unless it stands here.",
        warm_up=" The warm-up of transformers gives the first update a rate of 0.",
        alone=" GRPOTrainer refuses n = 1: its advantage needs a group of 2 or more.",
    ),
    "prime-rl": _Trainer(
        write=others.prime_rl_rows,
        group="orchestrator.group_size",
        steps="max_steps",
        by_itself={"zero_variance_filter": "loss"},
        units="orchestrator.batch_size counts completions (B_p x n). Training is asynchronous; "
        "max_off_policy_steps 0 drops rollouts of older weights.",
    ),
    "skyrl": _Trainer(
        write=others.skyrl_rows,
        problems="trainer.train_batch_size",
        group="generator.n_samples_per_prompt",
        steps="trainer.max_training_steps",
        units="train_batch_size and policy_mini_batch_size count prompts. Equal values mean one "
        "update per batch.",
    ),
    "openrlhf": _Trainer(
        write=others.openrlhf_rows,
        problems="--rollout.batch_size",
        group="--rollout.n_samples_per_prompt",
        units="--rollout.batch_size counts prompts, --train.batch_size completions. There is no "
        "option for steps: one episode over B_p x M prompts ends at M, so the data must hold that "
        "many prompts (repeat the file where it does not).",
    ),
    "nemo-rl": _Trainer(
        write=others.nemo_rl_rows,
        problems="grpo.num_prompts_per_step",
        group="grpo.num_generations_per_prompt",
        steps="grpo.max_num_steps",
        units="num_prompts_per_step counts prompts, train_global_batch_size completions. A global "
        "batch of B_p x n means one update per batch.",
    ),
    "slime": _Trainer(
        write=others.slime_rows,
        problems="--rollout-batch-size",
        group="--n-samples-per-prompt",
        steps="--num-rollout",
        by_itself={"kl_coef": 0.0},
        units="--rollout-batch-size counts prompts; --num-rollout is M because "
        "--num-steps-per-rollout is 1.",
    ),
    "areal": _Trainer(
        write=others.areal_rows,
        problems="train_dataset.batch_size",
        group="gconfig.n_samples",
        steps="total_train_steps",
        by_itself={"kl_coef": 0.0, "entropy_coef": 0.0},
        units="train_dataset.batch_size counts prompts. ppo_n_minibatches 1 means one update per "
        "batch, max_head_offpolicyness 0 that it is on-policy. A warm-up is a share of the updates "
        "of all epochs, hence 0. kl_ctl takes KL from the reward; the loss has no KL, no entropy.",
    ),
    "open-instruct": _Trainer(
        write=others.open_instruct_rows,
        problems="--num_unique_prompts_rollout",
        group="--num_samples_per_prompt_rollout",
        units="num_unique_prompts_rollout counts prompts; total_episodes counts completions over "
        "the whole run (B_p x n x M). Training is asynchronous; async_steps 1 is the least.",
    ),
}

TRAINERS = tuple(_TRAINERS)


def find_trainer(trainer: str) -> _Trainer:
    """A trainer by its name.

    Raises:
        InputError: unknown.
    """
    if trainer not in _TRAINERS:
        raise InputError(
            f"a trainer must be one of {', '.join(TRAINERS)}, but got {trainer!r}; "
            "choose one of them."
        )
    return _TRAINERS[trainer]


def trainer_settings(
    trainer: str, allocation: Allocation, recipe: Recipe, *, seed: int | None = None,
    response_tokens: int | None = None, known: Collection[str] | None = None,
    micro_batch: int | None = None, said: Mapping[str, Any] | None = None,
) -> TrainerSettings:
    """The allocation and the recipe in one trainer's configuration keys.

    Args:
        trainer: its name.
        allocation, recipe: the plan's.
        seed, response_tokens: None where the plan leaves them open; they are listed then.
        micro_batch: completions per device and micro-step of the runs, where they say it.
        known: words of the recipe to write, beside what one update per batch takes; None: all.
        said: what the logs of the plan's runs say beside the recipe, see `Asked`.

    Raises:
        InputError: for an unknown trainer.

    >>> a = Allocation(problems_per_batch=32, rollouts_per_problem=256, steps=488)
    >>> settings = trainer_settings("trl", a, Recipe(zero_variance_filter="loss"))
    >>> settings.keys["num_generations"], settings.not_set
    (256, ('zero_variance_filter=loss', 'seed', 'response_tokens'))
    """
    found = find_trainer(trainer)
    asked = Asked(
        allocation=allocation, recipe=recipe, seed=seed, response_tokens=response_tokens,
        micro_batch=micro_batch, said=None if known is None else said or {},
    )
    rows = list(found.write(asked))
    keys = {row.key: row.value for row in rows if _is_known(row, known)}
    return TrainerSettings(
        trainer=trainer, keys=keys,
        units=found.units + (found.warm_up if keys.get("warmup_steps") else "")
        + (found.alone if allocation.rollouts_per_problem == 1 else ""),
        not_set=not_set(asked, rows, found.by_itself, known), trained=found.trained,
    )


def _is_known(row: Row, known: Collection[str] | None) -> bool:
    return known is None or row.word in (PLAN, *ALWAYS, *OPEN, *known)


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
    found = find_trainer(trainer)

    def value(key: str) -> int:
        if key not in keys:
            raise InputError(
                f"{trainer} needs the key `{key}` to know its allocation, but got "
                f"{', '.join(sorted(keys)) or 'no keys'}; add the key."
            )
        number = math.nan
        with contextlib.suppress(TypeError, ValueError):
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
            value("per_device_train_batch_size") * processes
            * value("steps_per_generation" if "steps_per_generation" in keys else
                    "gradient_accumulation_steps")
            if trainer == "trl"
            else value("orchestrator.batch_size")
        )  # fmt: skip
        problems = _exact(trainer, batch, group, "batch of completions", "group")
    if found.steps is not None:
        steps = value(found.steps)
        if trainer == "trl":
            steps //= trl.updates_of(keys)
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
