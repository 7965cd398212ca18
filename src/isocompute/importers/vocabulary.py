"""The words of the trainers: which logged key is which metric, which setting is B_p, n, M.

Every reading was checked against the trainer's own source or a file that it wrote, at the
versions that `docs/trainers.md` lists; a key that is not here is left alone, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from isocompute.importers.reading import whole
from isocompute.importers.runs import Metric
from isocompute.importers.settings import Column

_K = r"(?P<k>[1-9][0-9]{0,5})"
_SET = r"(?P<set>.{1,300}?)"

# verl 0.9.1, trainer/ppo/ray_trainer.py and metric_utils.py: SOURCE/VARIABLE/METRIC@N.
# best, worst and maj are means of 1,000 bootstrap draws with replacement.
_VERL = re.compile(
    rf"val-(?P<part>core|aux)/{_SET}/(?P<var>[^/]+)/(?P<kind>mean|best|worst|maj)@{_K}(?P<mean>/mean)?"
)
_VERL_OLD = re.compile(r"val/test_score/(?P<set>.{1,300})")  # before 0.3: the mean score
# TRL 1.16, GRPOTrainer.log; trainer_state.json says eval_reward, the trackers eval/reward.
_TRL_EVAL = re.compile(r"eval[_/](?:reward|rewards/(?P<var>.{1,300})/mean)")
_TRL_TRAIN = re.compile(r"(?:train/)?(?:reward|rewards/(?P<var>.{1,300})/mean)")
# prime-rl, orchestrator: unbiased pass@k and pass^k (all k correct).
_PRIME = re.compile(rf"eval/{_SET}(?:/(?P<var>[^/@^]+))?/(?P<kind>avg@|pass@|pass\^){_K}")
# SkyRL 0.3, train/utils/trainer_utils.py: any of N samples right, N all there are.
_SKYRL = re.compile(rf"eval/{_SET}/(?:(?P<avg>avg_score)|pass_at_{_K})")


def column_of(key: str) -> Column | None:
    """What a logged key means, or None where it is no score that is known.

    >>> column_of("val-core/math/acc/best@4/mean").metric.label
    'best@4:bootstrap'
    """
    if len(key) > 400:
        return None
    if key.startswith("val-"):
        return _verl(key)
    if match := _VERL_OLD.fullmatch(key):
        return Column(metric=Metric(kind="avg", variable="score"), problem_set=match["set"])
    if key.startswith("eval/"):
        if match := _PRIME.fullmatch(key):
            kind = {"avg@": "avg", "pass@": "best", "pass^": "worst"}[match["kind"]]
            return Column(
                metric=Metric(
                    kind=kind, samples=int(match["k"]), variable=match["var"] or "reward",
                    estimator="mean" if kind == "avg" else "unbiased",
                ),
                problem_set=match["set"],
            )
        if match := _SKYRL.fullmatch(key):
            metric = (
                Metric(kind="avg", variable="score") if match["avg"] else
                Metric(kind="best", samples=int(match["k"]), estimator="unbiased",
                       variable="score")
            )
            return Column(metric=metric, problem_set=match["set"])
    if match := _TRL_EVAL.fullmatch(key):
        return _trl(match["var"], "validation")
    if match := _TRL_TRAIN.fullmatch(key):
        return _trl(match["var"], "train")
    if key == "critic/score/mean":  # verl: mean reward of the batch that the update uses
        return Column(metric=Metric(kind="avg", variable="score"), split="train")
    if key == "reward/all/mean":  # prime-rl: mean over problems of the batch
        return Column(metric=Metric(kind="avg", variable="reward"), split="train")
    if key == "reward/avg_raw_reward":  # SkyRL
        return Column(metric=Metric(kind="avg", variable="reward"), split="train")
    return None


def _verl(key: str) -> Column | None:
    match = _VERL.fullmatch(key)
    if match is None:
        return None
    kind = match["kind"]
    # mean@N stands alone; best, worst and maj come as .../mean and .../std
    if (kind == "mean") == (match["mean"] is not None):
        return None
    # worst@N is always in val-aux, also for the core variable: acc, or reward without acc
    core = match["part"] == "core" or match["var"] == "acc"
    return Column(
        metric=Metric(
            kind="avg" if kind == "mean" else kind,
            samples=int(match["k"]),
            estimator="mean" if kind == "mean" else "bootstrap",
            variable=match["var"],
            core=core,
        ),
        problem_set=match["set"],
    )


def _trl(variable: str | None, split: str) -> Column:
    return Column(
        metric=Metric(kind="avg", variable=variable or "reward", core=variable is None),
        split=split,
    )


# Mean generated length of the window of steps that a row covers, in tokens.
LENGTH_KEYS = ("response_length/mean", "completions/mean_length", "train/completions/mean_length")
# Generated tokens of one step, and cumulative rollouts, where a trainer logs them (prime-rl).
TOKENS_KEY = "progress/decode_tokens"
ROLLOUTS_KEY = "progress/total_samples"
EVICTED_KEY = "training/filter_groups/evicted_samples"  # verl: drawn, not trained on


class Found(NamedTuple):
    """Configuration found in a log; None where it is not there."""

    problems_per_batch: int | None = None
    rollouts_per_problem: int | None = None
    steps: int | None = None
    seed: int | None = None
    evaluation_samples: int | None = None
    window: int = 1
    notes: tuple[str, ...] = ()


class _Words(NamedTuple):
    """A trainer's keys: batch, group, steps; whether the batch counts completions."""

    batch: str
    group: str
    steps: str | None
    completions: bool
    samples: str | None = None
    mark: str | None = None  # a key that must be there as well, where the others are common words


# From each trainer's own configuration (see docs/trainers.md for versions).
_TRAINERS = (
    _Words("data.train_batch_size", "actor_rollout_ref.rollout.n",
           "trainer.total_training_steps", False, "actor_rollout_ref.rollout.val_kwargs.n"),
    _Words("orchestrator.batch_size", "orchestrator.group_size", "max_steps", True),
    _Words("trainer.train_batch_size", "generator.n_samples_per_prompt",
           "trainer.max_training_steps", False, "generator.eval_n_samples_per_prompt"),
    _Words("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt",
           "grpo.max_num_steps", False),
    _Words("rollout.batch_size", "rollout.n_samples_per_prompt", None, False),
    _Words("rollout_batch_size", "n_samples_per_prompt", "num_rollout", False,
           "n_samples_per_eval_prompt"),
    _Words("train_dataset.batch_size", "gconfig.n_samples", "total_train_steps", False),
    _Words("num_unique_prompts_rollout", "num_samples_per_prompt_rollout", None, False),
    # prime-rl's orchestrator logs its configuration without the prefix
    _Words("batch_size", "group_size", "max_steps", True, mark="max_off_policy_steps"),
)


def configuration(config: Mapping[str, object]) -> Found:
    """B_p, n, M and the seed in the flattened configuration of any trainer that is known.

    TRL counts completions: B = generation_batch_size * gradient accumulation /
    steps_per_generation, all processes included.
    """
    seed = next((whole(config[k]) for k in ("seed", "trainer.seed", "data.seed")
                 if whole(config.get(k)) is not None), None)
    if "num_generations" in config:
        return _trl_configuration(config, seed)
    for words in _TRAINERS:
        batch, group = whole(config.get(words.batch)), whole(config.get(words.group))
        if not batch or not group or (words.mark is not None and words.mark not in config):
            continue
        notes: list[str] = []
        problems: int | None = batch
        if words.completions:
            problems = batch // group if batch % group == 0 else None
        if str(config.get("algorithm.filter_groups.enable", "")).lower() == "true":
            notes.append(
                "algorithm.filter_groups refills batches: more rollouts were drawn than "
                "B_p * n * step counts"
            )
        return Found(
            problems_per_batch=problems, rollouts_per_problem=group,
            steps=(whole(config.get(words.steps)) or None) if words.steps else None, seed=seed,
            evaluation_samples=(whole(config.get(words.samples)) or None) if words.samples
            else None,
            notes=tuple(notes),
        )
    return Found(seed=seed)


def _trl_configuration(config: Mapping[str, object], seed: int | None) -> Found:
    n = whole(config.get("num_generations")) or None
    accumulation = whole(config.get("gradient_accumulation_steps")) or None
    generated = whole(config.get("generation_batch_size")) or None
    per_generation = whole(config.get("steps_per_generation")) or accumulation
    iterations = whole(config.get("num_iterations")) or 1
    notes: list[str] = []
    problems: int | None = None
    if n and accumulation and generated and per_generation:
        batch = generated * accumulation
        divisor = per_generation * n
        problems = batch // divisor if batch % divisor == 0 else None
    if iterations > 1:
        notes.append(
            f"num_iterations={iterations}: every batch is used for {iterations} updates, so a "
            "step draws fewer rollouts than B_p * n; not on-policy, left without rollouts"
        )
        problems = None
    elif accumulation and per_generation and per_generation > accumulation:
        notes.append(
            "steps_per_generation is above gradient_accumulation_steps: updates are partly "
            "off-policy"
        )
    window = whole(config.get("logging_steps")) or 1
    return Found(
        problems_per_batch=problems, rollouts_per_problem=n,
        steps=whole(config.get("max_steps")) or None, seed=seed,
        evaluation_samples=whole(config.get("num_generations_eval")) or n,
        window=window, notes=tuple(notes),
    )
