"""A trainer's logged configuration -> B_p, n, M, seed, and what repetitions have to share.

Keys are those of each trainer's own sources, at the versions that `docs/trainers.md` lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from isocompute.importers.values.imported import UnclearError
from isocompute.importers.values.reading import flatten, number, whole
from isocompute.importers.words.called import LOG2, raised
from isocompute.importers.words.fresh import Found, of_torchtune, of_trl
from isocompute.importers.words.plain_words import (
    GROUPS,
    OWN,
    RESPONSES,
    by_unit,
    in_plain_words,
    pairs_in,
    plain_keys,
)
from isocompute.importers.words.recorded import recorded_of


class _Words(NamedTuple):
    """A trainer's keys: batch, group, steps; whether the batch counts completions."""

    batch: str
    group: str
    steps: str | None
    completions: bool
    samples: str | None = None
    mark: str | None = None  # a key that must be there as well, where the others are common words


_N = "rollouts_per_problem"
_TRAINERS = (
    # forks of verl that leave rollout.n at 1: RAGEN (2025-09), Search-R1 (2025-03)
    _Words("es_manager.train.env_groups", "es_manager.train.group_size",
           "trainer.total_training_steps", False, "es_manager.val.group_size"),
    _Words("data.train_batch_size", "actor_rollout_ref.rollout.n_agent",
           "trainer.total_training_steps", False, "actor_rollout_ref.rollout.val_kwargs.n"),
    # NeMo-Aligner 0.7, REINFORCE: its samples are prompts
    _Words("model.reinforce.num_rollout_samples", "trainer.reinforce.num_rollouts_per_prompt",
           None, False),
    _Words("data.train_batch_size", "actor_rollout_ref.rollout.n",
           "trainer.total_training_steps", False, "actor_rollout_ref.rollout.val_kwargs.n"),
    # rLLM (2026-08) with Tinker; with verl its words are verl's
    _Words("data.train_batch_size", "training.group_size", "rllm.trainer.total_batches", False,
           "validation.group_size"),
    # EasyR1 0.3.2, verl/trainer/config.py and workers/rollout/config.py
    _Words("data.rollout_batch_size", "worker.rollout.n", "trainer.max_steps", False,
           "worker.rollout.val_override_config.n"),
    _Words("orchestrator.batch_size", "orchestrator.group_size", "max_steps", True),
    _Words("orchestrator.batch_size", "orchestrator.rollouts_per_example", "max_steps", True),
    _Words("trainer.train_batch_size", "generator.n_samples_per_prompt",
           "trainer.max_training_steps", False, "generator.eval_n_samples_per_prompt"),
    _Words("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt",
           "grpo.max_num_steps", False, "grpo.val_num_generations_per_prompt"),
    _Words("rollout.batch_size", "rollout.n_samples_per_prompt", None, False,
           "eval.n_samples_per_prompt"),
    _Words("rollout_batch_size", "n_samples_per_prompt", "num_rollout", False,
           "n_samples_per_eval_prompt"),
    _Words("train_dataset.batch_size", "gconfig.n_samples", "total_train_steps", False),
    # ROLL (2025-11), agentic_config.py: rollout_batch_size counts trajectories, in groups
    _Words("rollout_batch_size", "train_env_manager.group_size", "max_steps", True),
    # and rlvr_config.py, where it counts prompts
    _Words("rollout_batch_size", "num_return_sequences_in_group", "max_steps", False),
    _Words("num_unique_prompts_rollout", "num_samples_per_prompt_rollout", "num_training_steps",
           False, "eval_pass_at_k"),
    # Trinity-RFT (2026-08), docs/tutorial/trinity_configs.md
    _Words("buffer.batch_size", "algorithm.repeat_times", "buffer.total_steps", False),
    # tinker-cookbook (2026-08), rl/train.py: config.json holds the data set's builder; asynchronous
    # training waits for groups_per_batch, whatever batch the data set comes in
    *(_Words(batch, "dataset_builder.group_size", "max_steps", False) for batch in (
        "async_config.groups_per_batch", "dataset_builder.batch_size",
        "dataset_builder.groups_per_batch",
    )),
    # a loop of one's own: groups of an update, each of one problem
    _Words("num_groups", "group_size", "max_steps", False),
    # a table of runs in the words of this package
    _Words("problems_per_batch", "rollouts_per_problem", "steps", False),
)
# prime-rl's orchestrator logs its configuration without the prefix
_LAST = _Words("batch_size", "group_size", "max_steps", True, mark="max_off_policy_steps")
# GPUs of a node and nodes: verl 0.9 and EasyR1 0.3.2 (trainer), NeMo-RL (cluster).
_GPUS = (
    ("trainer.n_gpus_per_node", "trainer.nnodes"), ("cluster.gpus_per_node", "cluster.num_nodes"),
)
# slime 0.3.1 leaves `seed` at Megatron's 1234: what its rollouts draw with goes before
_SEEDS = ("rollout_seed", "seed", "trainer.seed", "train.seed", "data.seed", "grpo.seed",
          "dataset_builder.seed", "orchestrator.seed", "rng", "rng_seed")

# What runs have to share to be repetitions of each other: name -> keys of the trainers.
_FACTS: dict[str, tuple[str, ...]] = {
    "model": (
        "actor_rollout_ref.model.path", "worker.actor.model.model_path", "model_name_or_path",
        "actor.model_name_or_path", "policy.model_name", "trainer.policy.model.path",
        "model.name", "hf_checkpoint", "actor.path", "model_name", "_name_or_path", "model",
        "base_model", "pretrain",
    ),
    "learning_rate": (
        "actor_rollout_ref.actor.optim.lr", "worker.actor.optim.lr", "learning_rate",
        "actor.adam.lr", "policy.optimizer.kwargs.lr", "trainer.policy.optimizer_config.lr",
        "actor.optimizer.lr", "optim.lr", "trainer.optim.lr", "lr",
    ),
    "max_response_length": (
        "data.max_response_length", "max_completion_length", "rollout.max_new_tokens",
        "policy.generation.max_new_tokens", "generator.sampling_params.max_generate_length",
        "rollout_max_response_len", "gconfig.max_new_tokens", "response_length",
        "orchestrator.sampling.max_tokens", "max_tokens", "max_response_length", "max_new_tokens",
        "sampling.max_new_tokens", "sampling.max_tokens", "generation.max_new_tokens",
    ),
    "temperature": (
        "actor_rollout_ref.rollout.temperature", "worker.rollout.temperature", "temperature",
        "rollout.temperature", "policy.generation.temperature", "rollout_temperature",
        "gconfig.temperature",
    ),
    "train_set": (
        "data.train_files", "dataset_name", "data.prompt_dataset", "prompt_data",
        "train_dataset.path", "data.train_data", "dataset_mixer_list", "train_file", "train_files",
        "train_data", "train_dataset", "train_set", "data.train", "data.train_file", "dataset",
    ),
    "evaluation_set": (  # of a loop of one's own: a trainer's keys of scores say theirs
        *(f"{of}{_}{what}" for of in ("eval", "val", "validation", "test") for _ in "_."
          for what in ("file", "files", "set", "data", "dataset")),
        "data.eval", "data.val", "data.eval_file", "data.val_file",
    ),
    "reward_function": ("reward_funcs",),  # open-r1, ms-swift; TRL's rows name them
    "evaluation_temperature": (
        "actor_rollout_ref.rollout.val_kwargs.temperature",
        "worker.rollout.val_override_config.temperature",
        *(f"{of}{_}temperature" for of in ("eval", "val", "validation") for _ in "_."),
    ),
}
FACTS = tuple(_FACTS)
MODELS = frozenset(_FACTS["model"])
KNOWN = frozenset(key for keys in _FACTS.values() for key in keys)
# Facts that are scaled with the batch on purpose: they bind repetitions, not the whole sweep.
SCALED = ("learning_rate",)


def configuration(config: Mapping[str, object]) -> Found:
    """What a configuration says, where none of its words contradicts another; see `_said`."""
    config = {**config, **raised(config)}
    found = _said(config)
    ours = {word: whole(config.get(word)) for word in ("problems_per_batch", _N)}
    read = {"problems_per_batch": found.problems_per_batch, _N: found.rollouts_per_problem}
    for word, plain in (("problems_per_batch", OWN), (_N, GROUPS)):
        if ours[word]:  # the user's word for it, or ours
            read[word] = ours[word]
            continue
        for key, value in plain_keys(config, plain):
            if read[word] is not None and whole(value) not in (None, 0, read[word]):
                found = found._replace(notes=(*found.notes, (
                    f"the configuration says {read[word]}, but {key} {value}: which is "
                    f"{'B_p' if word != _N else 'n'} is not known"
                )))
                read[word] = None
    return found._replace(**read)  # type: ignore[arg-type]  # the fields' own values


def _said(config: Mapping[str, object]) -> Found:
    """B_p, n, M and the seed in the flattened configuration of any trainer that is known.

    A batch that stands alone (a command line that leaves n at its default) is kept; n is then
    asked for.
    """
    config = {**in_plain_words(config), **config}
    seed = next((whole(config[k]) for k in _SEEDS if whole(config.get(k)) is not None), None)
    if "num_generations" in config and "num_prompts_per_step" not in config:
        return of_trl(config, seed)
    if n := whole(config.get("grpo_samples")):
        return of_torchtune(config, n, seed)
    part: Found | None = None
    own = (_Words(batch, group, None, False) for batch, group in pairs_in(config))
    for words in (*_TRAINERS, *own, _LAST):
        batch, group = whole(config.get(words.batch)), whole(config.get(words.group))
        if not (batch or group) or (words.mark is not None and words.mark not in config):
            continue
        found = _known(config, words, batch or None, group or None, seed)
        if (batch or found.problems_per_batch) and group:
            return found
        # `batch_size` alone may be anything; a dotted key belongs to its trainer
        if part is None and not words.completions and (
            "." in words.batch or words.batch in OWN
            or (words.group in GROUPS and not batch and not _evaluates(config))
        ):
            part = found
    # transformers' trainer_state.json and ms-swift say the plan and nothing of the batch
    planned = whole(config.get("max_steps")) or None
    return part or Found(seed=seed, steps=planned, window=whole(config.get("logging_steps")) or 1)


def _evaluates(config: Mapping[str, object]) -> bool:
    """Whether a configuration is of an evaluation: it samples a data set, and says no rate.

    >>> _evaluates({"samples_per_question": 4, "temperature": 0.6}), _evaluates({"group_size": 4})
    (True, False)
    """
    said = {key.rpartition(".")[2] for key in config}
    return not said.isdisjoint(("temperature", "dataset", "benchmark", "ckpt", "checkpoint")) and (
        said.isdisjoint(("lr", "learning_rate", "kl_coef", "beta", "seed", "max_steps", "steps"))
    )


def _asynchronous(config: Mapping[str, object], n: int | None, seed: int | None) -> Found | None:
    """What verl's fully asynchronous trainer has for a batch; None for any other.

    `train_batch_size` is 0, an update takes `require_batches` mini-batches of prompts, and the
    log's step counts syncs of the weights (0.7,
    experimental/fully_async_policy/fully_async_trainer.py).
    """
    batches = whole(config.get("async_training.require_batches"))
    updates = whole(config.get("async_training.trigger_parameter_sync_step"))
    prompts = whole(config.get("actor_rollout_ref.actor.ppo_mini_batch_size"))
    if not (batches and updates and prompts):
        return None
    planned = (whole(config.get("rollout.total_rollout_steps")) or 0) // (batches * prompts)
    return Found(
        problems_per_batch=batches * prompts, rollouts_per_problem=n, steps=planned or None,
        seed=seed, evaluation_samples=whole(config.get("actor_rollout_ref.rollout.val_kwargs.n")),
        window=updates, per_tick=updates,
    )


def _known(
    config: Mapping[str, object], words: _Words, batch: int | None, group: int | None,
    seed: int | None,
) -> Found:
    if words.batch == "data.train_batch_size" and batch is None and (
        found := _asynchronous(config, group, seed)
    ):
        return found
    if config.get("algorithm.adv_estimator") == "gae":
        group = group or 1  # verl's default; 0.1 has no word for it
    if words.completions:
        batch = batch // group if batch and group and batch % group == 0 else None
    return Found(
        problems_per_batch=batch, rollouts_per_problem=group, seed=seed,
        steps=(whole(config.get(words.steps)) or None) if words.steps else None,
        evaluation_samples=(whole(config.get(words.samples)) or None) if words.samples else None,
        drawn_problems=_drawn(config, batch),
        ticks=_ticks(config, batch, group),
    )


def _ticks(config: Mapping[str, object], batch: int | None, group: int | None) -> int:
    """Steps of the optimizer in an update, where slime counts them (0.3.1, rollout_metrics.py)."""
    trained = whole(config.get("global_batch_size"))
    if str(config.get("wandb_always_use_train_step")).lower() != "true" or not (
        batch and group and trained
    ):
        return 1
    return max(1, batch * group // trained)


def _drawn(config: Mapping[str, object], batch: int | None) -> int | None:
    """Problems of a generated batch: verl's recipe/dapo; NeMo-RL, examples/configs."""
    multiplier = number(config.get("grpo.batch_multiplier"))
    if multiplier and batch:
        return round(batch * multiplier)
    return whole(config.get("data.gen_batch_size")) or None


def problems_of(responses: int, n: int, what: str, by: str = "n") -> int:
    """B_p of a batch that counts responses, or n where that is divided by B_p.

    Raises:
        UnclearError: it holds no whole problems.

    >>> problems_of(512, 16, "run a")
    32
    """
    if responses % n:
        raise UnclearError(
            f"{what}: a batch of responses must be a multiple of {by}, but batch_size is "
            f"{responses} and {by} {n}; if it counts problems, map it to problems_per_batch."
        )
    return responses // n


# Settings that rows repeat; a run has one value of each.
IN_ROWS = frozenset(
    {word for words in _TRAINERS for word in (words.batch, words.group)} - {"batch_size"}
    | {key for key in _SEEDS if key.endswith("seed") and not key.startswith("r")}
    | {*OWN, *GROUPS, *LOG2, RESPONSES, "num_generations", "generation_batch_size",
       "num_iterations", "gradient_accumulation_steps", "steps_per_generation",
       "per_device_train_batch_size", "algo", "algorithm"}
)  # fmt: skip


def settings_in_row(row: Mapping[str, object]) -> dict[str, object]:
    """Settings that a tracker repeats in every row: by themselves, or as Ray Tune's `config`.

    >>> settings_in_row({"step": 4, "num_generations": 16, "config": {"seed": 1}})
    {'seed': 1, 'num_generations': 16}
    """
    nested = row.get("config")
    found = flatten(nested) if isinstance(nested, dict) else {}
    return {**found, **by_unit(row), **{key: row[key] for key in IN_ROWS & row.keys()}}


def of_another(config: Mapping[str, object]) -> bool:
    """Whether a configuration has n in the words of a trainer that is not TRL.

    >>> of_another({"grpo.num_generations_per_prompt": 8}), of_another({"group_size": 8})
    (True, False)
    """
    return any(words.group in config for words in _TRAINERS if words.group not in (*GROUPS, _N))


def highest_reward(config: Mapping[str, object]) -> float | None:
    """What open-instruct's `eval/scores` can be at most (2026-08, data_loader.py); None elsewhere.

    >>> highest_reward({"apply_verifiable_reward": True, "verification_reward": 10.0})
    10.0
    """
    told = {key: str(value).lower() for key, value in config.items()}
    others = ("apply_r1_style_format_reward", "non_stop_penalty", "apply_evolving_rubric_reward")
    added = number(config.get("reward_model_multiplier"))  # of older versions
    if told.get("apply_verifiable_reward") != "true" or "true" in map(told.get, others) or added:
        return None
    return number(config.get("verification_reward"))


def gpus_of(config: Mapping[str, object]) -> int | None:
    """GPUs that a run trained on, as far as its configuration says it.

    >>> gpus_of({"trainer.n_gpus_per_node": 8, "trainer.nnodes": 2})
    16
    """
    for each, nodes in _GPUS:
        if per_node := whole(config.get(each)):
            return per_node * (whole(config.get(nodes)) or 1)
    return None


def facts_of(config: Mapping[str, object]) -> dict[str, str]:
    """What repetitions have to share, and words of the recipe, as far as a configuration says it.

    >>> facts_of({"model": "Qwen", "learning_rate": "1e-06", "lr": 5})
    {'model': 'Qwen', 'learning_rate': '1e-06'}
    """
    facts: dict[str, str] = {}
    for name, keys in _FACTS.items():
        for key in keys:
            value = config.get(key)
            if value is None or isinstance(value, (dict, bool)) or value == "":
                continue
            plain = number(value)
            facts[name] = f"{plain:.6g}" if plain is not None else str(value)[:200]
            break
    return facts | recorded_of(config)
