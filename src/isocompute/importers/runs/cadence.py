"""Steps that count otherwise than updates, by what is said of a run and where its points stand."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from isocompute.importers.runs.points import Points, last_step
from isocompute.importers.values.imported import IntArray, Series, UnclearError, distinct
from isocompute.importers.values.reading import whole
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.vocabulary import STEP_KEYS

# By the last part of a key, or the last two: eval_every, trainer.test_freq, eval.interval
_EVERY = re.compile(
    r"(?:^|[._/])(?:eval|evaluate|evaluation|val|validate|validation|test)[._/]?"
    r"(?:every|interval|freq|frequency|period|steps)(?:_n)?(?:_(?:steps|updates|iters|batches))?$",
    re.I,
)
# An agent's `env.max_steps` are turns, and `num_steps` may be those of an episode.
_PLANNED = re.compile(
    r"(?:(?:train|trainer|training|algo|algorithm|rl|grpo|ppo)[._/])?"
    r"(?:(?:max|total)_(?:train_|training_)?(?:steps|updates|iters)"
    r"|(?:n|num)_(?:train_|training_)(?:steps|updates|iters)"
    r"|(?:n|num)_updates|total_iterations|training_steps|updates|rl_(?:steps|updates|iters))",
    re.I,
)
_ACCUMULATED = re.compile(
    r"(?:^|[._/])(?:grad(?:ient)?s?_?)?accum(?:ulat(?:e|ion))?(?:_?(?:steps|iters|(?:grad_)?batches))?$",
    re.I,
)
# Updates of the optimizer that a batch of rollouts serves, in the words of a loop of one's own
_REUSED = re.compile(
    r"(?:^|[._/])(?:(?:num|n)_)?(?:(?:ppo|inner|update|policy|optimization)_epochs|mini_?batches|"
    r"(?:\w+_)?(?:updates|epochs|iterations)_per_(?:rollout|generation|batch|step|iteration))"
    r"(?:_(?:num|count))?$", re.I,
)
_BATCHES = re.compile(r"(?:.*[._/])?(?:(?:num|n|total|max)_)?(?:train(?:ing)?_)?batches", re.I)
# Whether the first evaluation is before training: verl, TRL, SkyRL, anybody
_BEFORE = re.compile(
    r"(?:^|[._/])(?:(?:eval|val|test|validate)[._/]?(?:before|on_start|at_start|base_model)"
    r"|before_train)(?:_?train(?:ing)?)?$", re.I,
)
FEWEST = 3  # evaluations one by one: two may stand side by side, at six a short run is read over
# Of a plan, in evaluations of one update each: a fifth. At two, runs under way are asked about; at
# ten, a sweep with few evaluations is read over.
FEW = 5
# Evaluations one by one that no plan confirms: beyond so many they are a number of every update. At
# half long sweeps are read over, at twice short runs of such numbers are asked about.
_MOST = 100
# Batches of which steps are multiples by no chance: at half, evaluations every 64 updates are
# asked about; at twice, responses in batches of 128 are read over.
BATCH = 100


class Cadence(NamedTuple):
    """What a configuration says of the course of a run; None where it does not.

    `every`: updates from one evaluation to the next, and its key. `planned`: updates in all.
    `before`: whether it evaluates before training.
    """

    every: int | None = None
    key: str = ""
    planned: int | None = None
    before: bool | None = None

    def by(self, ticks: int) -> Cadence:
        """In updates, where the plan is in steps of which each has so many."""
        return self._replace(every=self.every and -(-self.every // ticks),
                             planned=self.planned and -(-self.planned // ticks))  # fmt: skip


def cadence_of(config: Mapping[str, object], told: int | None = None) -> Cadence:
    """How often a run is evaluated and how many updates it has, in the words of any loop.

    `told`: how often, as the user says it where the configuration does not.

    >>> cadence_of({"eval.every": 25, "num_updates": 200})
    Cadence(every=25, key='eval.every', planned=200, before=None)
    """
    said = [(key, v) for key, value in config.items() if (v := whole(value)) and v > 0]
    key, every = next(((k, v) for k, v in said if _EVERY.search(k)), ("eval_every", told))
    planned = next((v for k, v in said if _PLANNED.fullmatch(k)), None)
    before = next((str(v).lower() for k, v in config.items() if _BEFORE.search(k)), "")
    return Cadence(every, key, planned, {"true": True, "false": False}.get(before))


def accumulated(config: Mapping[str, object]) -> list[tuple[str, int]]:
    """Over how many gradients a step of the optimizer is taken: keys that say more than one.

    >>> accumulated({"optim.grad_accum": 4, "gradient_accumulation_steps": 1})
    [('optim.grad_accum', 4)]
    """
    return [(key, count) for key, value in config.items()
            if _ACCUMULATED.search(key) and (count := whole(value) or 0) > 1]  # fmt: skip


def micro_batches(
    points: Collection[Points], config: Mapping[str, object], cadence: Cadence
) -> tuple[int, str]:
    """How many steps of a loop of one's own make an update, and a line; (1, "") where one does.

    The configuration says over how many gradients are accumulated, and the log ends at that many
    times the plan, or evaluates at that many times the distance that is said.

    Args:
        points: of the run.
        config: flat.
        cadence: what it says.
    """
    own = [p.steps_K for p in points if p.column.split != "train" and p.step]
    each = accumulated(config)
    if len(each) != 1 or not own or "num_generations" in config or any(
        p.column.trainer not in ("", "trl") for p in points if p.step  # `reward` may be anybody's
    ):
        return 1, ""
    ((key, count),) = each
    step_K = distinct(np.concatenate(own))
    last = last_step(points)
    plans = {cadence.planned, *(whole(v) for k, v in config.items() if _BATCHES.fullmatch(k))}
    planned = last in {count * plan for plan in plans if plan}
    gaps = np.diff(step_K)
    spaced = gaps.size >= FEWEST and cadence.every and (gaps == count * cadence.every).all()
    if not (planned or spaced) or (step_K % count).any():
        return 1, ""
    what = "the plan" if planned else cadence.key
    return count, f"step: {count} of the log's are an update, by {key} and {what}"


def own_ticks(points: Collection[Points], config: Mapping[str, object], what: str) -> int:
    """What AReaL's counter or slime's moves in one update; 1 for other trainers.

    AReaL logs the numbers of every mini-batch at a step of their own, and those of the rollouts
    with the first (1.0.4, utils/stats_logger.py, commit). slime may count the optimizer's steps
    (`--wandb-always-use-train-step`; 2026-08, observability/metric_utils.py): a batch stands at its
    number times the g steps that it serves. All steps are multiples of g then, and evaluations
    stand at (k-1)g, (2k-1)g, ...; counted by batches, at k-1, 2k-1, ..., which share no factor.
    Where k is 1, two of them stand at 0: before training, and after the first batch.

    Raises:
        UnclearError: steps share a factor otherwise, which a fork or a thinned log may have, too.
    """
    rollout = [p.steps_K for p in points if p.key in ("rollout/reward", "rollout/raw_reward")]
    own = [p.steps_K for p in points if p.column.trainer == "slime" and p.column.split != "train"]
    switch = str(config.get("wandb_always_use_train_step")).lower()
    if switch != "false" and any((K > 0).any() for K in own):
        return _ticks_of_slime(own, rollout, what)
    if not rollout or rollout[0].size <= 2 or all(p.column.trainer != "areal" for p in points):
        return 1
    gaps = _gaps(rollout)
    return int(gaps[0]) if gaps.size == 1 else 1


def refuse_reused(points: Collection[Points], config: Mapping[str, object], what: str) -> None:
    """Ask what a step is where a loop of one's own makes several updates with a batch.

    Its steps count batches where rewards differ within what would be one, or evaluations stand
    elsewhere than behind whole ones.

    Raises:
        UnclearError: neither is so.
    """
    said = {key: count for key, value in config.items()
            if _REUSED.search(key) and (count := whole(value) or 0) > 1}  # fmt: skip
    own = [p for p in points if p.step]
    ticks = int(np.prod([*said.values()], dtype=np.int64))
    if not said or "num_generations" in config or any(
        p.column.trainer not in ("", "trl") for p in own
    ):
        return
    for one in own:
        step_K = one.steps_K
        if one.column.split != "train" and (step_K % ticks).any():
            return
        if one.column.split == "train" and all(
            np.any((np.diff(block) == 0) & (np.diff(one.scores_K) != 0))
            for block in (step_K // ticks, (step_K - 1) // ticks)
        ):
            return
    keys = ", ".join(f"{key} is {count}" for key, count in said.items())
    raise UnclearError(
        f"{what}: updates must be known, but {keys}, and all scores stand at multiples of {ticks}: "
        f"steps of the optimizer, or batches; add --set num_iterations={ticks} if a batch serves "
        f"{ticks} steps, --set num_iterations=1 if the steps count batches.",
        options=("--set", "num_iterations=K"), trial=("--set", "num_iterations=1"),
    )


def _gaps(steps: Sequence[IntArray]) -> IntArray:
    """Distances between steps of several series, each once."""
    return np.unique(np.diff(np.unique(np.concatenate(steps)))) if steps else np.zeros(0, int)


def _ticks_of_slime(own: Sequence[IntArray], rollout: Sequence[IntArray], what: str) -> int:
    """See `own_ticks`; `own`: evaluations, some after step 0; `rollout`: those of training."""
    after = np.unique(np.concatenate([K[K > 0] for K in own]))
    ticks = int(np.gcd.reduce(np.concatenate([*own, *rollout])))
    between = np.diff(after if after.size < 4 else after[:-1])
    width, first = int(np.gcd.reduce(between)), int(after[0])  # no gaps: width is 0
    # two at 0, and no more than one elsewhere: rows that repeat a score are no evaluations
    twice = any((K == 0).sum() == 2 and np.unique(K).size == K.size - 1 for K in own)
    if ticks == 1 or (width == ticks and twice) or (
        width > ticks and first % width == width - ticks
    ):
        return ticks
    every = ticks == _gaps(rollout).max(initial=0) and bool((rollout[0] == 0).any())
    if not every and (width in (0, first) or width in between):
        return 1
    at = ", ".join(map(str, after[:4].tolist()))
    raise UnclearError(
        f"{what}: updates must be known, but slime's steps are all multiples of {ticks} "
        f"(evaluations at {at}): those of the optimizer, or batches of which few were logged; add "
        f"--set num_iterations={ticks} if a batch serves {ticks} steps of the optimizer, --set "
        "num_iterations=1 if the steps count batches.",
        options=("--set", "num_iterations=K"), trial=("--set", "num_iterations=1"),
    )


def as_planned(points: Collection[Points], config: Mapping[str, object], cadence: Cadence) -> str:
    """Set evaluations that stand at calls of log where the plan has them, in place; a line.

    transformers evaluates every `eval_steps` and, with `eval_on_start`, before training: where a
    log has as many evaluations as the whole plan, at even distances (the first step may have a
    call of its own), each has its place.
    """
    every, planned = cadence.every, cadence.planned
    if not every or not planned or cadence.before is None or planned % every or any(
        p.column.split == "train" or p.column.trainer != "trl" for p in points if p.step
    ) or str(config.get("eval_strategy", "steps")) != "steps":
        return ""
    place = np.arange(0 if cadence.before else every, planned + 1, every)
    for step_K in (p.steps_K for p in points if p.step):
        if step_K.size != place.size or step_K.size <= FEWEST or (step_K[0] == 0) != (
            cadence.before
        ) or (np.diff(step_K, 2)[1:] != 0).any() or step_K[-1] in (step_K[0], place[-1]):
            return ""
    for one in (p for p in points if p.step):
        one.step = array("q", place.tolist())
    return (f"step: the log counts calls; its {place.size} evaluations are those of the whole plan,"
            f" one in {every} of {planned} steps ({cadence.key})")


def _numbers(step_K: IntArray) -> int | None:
    """The last of steps that stand one by one from 0 or 1 on; None of others.

    >>> _numbers(np.array([1, 2, 3])), _numbers(np.array([0, 2, 4]))
    (3, None)
    """
    few = step_K.size < FEWEST or step_K[0] > 1
    return None if few or step_K[-1] - step_K[0] != step_K.size - 1 else int(step_K[-1])


def numbered(series: Sequence[Series]) -> int | None:
    """The last step of evaluations of which each has the number after the one before."""
    return _numbers(distinct(np.concatenate([s.step_K for s in series])))


def as_evaluations(
    points: Collection[Points], cadence: Cadence, trained: int, what: str, from_zero: bool = False
) -> tuple[int, int] | None:
    """How many updates a step is, where steps count evaluations, and at which the step 0 stands.

    None where they do not.

    Args:
        points: of the run.
        cadence: what its configuration says.
        trained: the last step with a row of training.
        what: the log and the run, for the message.
        from_zero: the first update is step 0.

    Raises:
        UnclearError: evaluations stand one by one, against the configuration, and no number of
            updates confirms either.
    """
    every, own = cadence.every, [p for p in points if p.column.split != "train" and p.step]
    if not own or any(p.column.trainer for p in own):
        return None
    step_K = distinct(np.concatenate([p.steps_K for p in own]))
    if (last := _numbers(step_K)) is None:
        return None
    end = trained + from_zero if trained > last else cadence.planned
    few = end is not None and end // last >= FEW
    if every is None and few and end is not None and (
        trained > last or end % last == 0  # without rows of training it may be under way
    ):
        raise UnclearError(
            f"{what}: steps must be updates, but {step_K.size} evaluations stand one by one to "
            f"step {last} of {end}; if they are counted, add the updates from one to the next "
            f"(--set eval_every={end // last}, say), else --set step=step.",
            options=("--set", "eval_every=EVERY"), trial=("--set", "step=step"),
        )
    if every is not None and end is not None and few and trained > last and end < last * every:
        raise UnclearError(
            f"{what}: evaluations must lie within a run, but of {step_K.size}, one in {every} "
            f"updates ({cadence.key}), the last is at {last * every}, and the training ends at "
            f"{end}; correct {cadence.key}, or add --set step=step if their steps are updates.",
            trial=("--set", "step=step"),
        )
    if every is None or every < 2 or (end is not None and end < last * every):
        return None
    if end is not None and end - last * every < every:
        return every, 0
    if end is not None and end - last * every < 2 * every and step_K[0] == 0:
        if cadence.before is not None:
            return every, 0 if cadence.before else every
        raise UnclearError(
            f"{what}: the first evaluation must be known, but steps count {step_K.size} of them, "
            f"one in {every} updates ({cadence.key}) of {end}: they may stand at 0 to "
            f"{last * every} or at {every} to {(last + 1) * every}; write a table of them with a "
            "column `steps` of your updates.",
            trial=("--set", "step=step"),
        )
    if last > _MOST:
        return None
    raise UnclearError(
        f"{what}: steps must be updates, but {step_K.size} evaluations stand one by one to step "
        f"{last}, and {cadence.key} says one in {every} updates; if steps count evaluations, add "
        f"the updates in all (--set steps={last * every}), else --set step=step.",
        options=("--set", f"steps={last * every}"), condition="the log's steps count evaluations",
    )


def counts_responses(
    points: Collection[Points], batch: int | None, planned: int | None, settings: Settings,
    what: str, axis: str = "", *, told: bool = False,
) -> str:
    """The key of steps that count responses, B_p * n in an update; "" where they do not.

    It is said (`--set step=KEY --map KEY=rollouts`), or they end where the plan's responses do.

    Args:
        points: of the run.
        batch: B_p * n; None where it is not known.
        planned: updates.
        settings: of the user.
        what: the log and the run, for the message.
        axis: of a chart, where it counts rollouts by its name.
        told: the trainer's own counter says that it does.

    Raises:
        UnclearError: steps are no whole batches under such a name; or evaluations are whole
            batches and nothing decides; with what settles it.
    """
    own = [p for p in points if p.column.split != "train" and p.step]
    if batch is None or batch < 2 or not own:
        return ""
    key = axis or settings.step or own[0].axis or "step"
    column = settings.columns.get(key)
    if column is not None and column.metric.label == "rollouts" and key == settings.step:
        return key
    step_K = distinct(np.concatenate([p.steps_K for p in own]))
    after = step_K[step_K > 0]
    if axis and (odd := after[after % batch > 0]).size:
        raise UnclearError(
            f"{what}: {axis} on the x axis must be a multiple of B_p * n = {batch}, but is "
            f"{int(odd[0])}; correct B_p or n, or put {STEP_KEYS[0]} on the axis of the chart."
        )
    if axis or not after.size or (after % batch).any():
        return axis
    last = last_step(points)
    trainers = {p.column.trainer for p in own} - {""}
    if told:
        return "step"
    if last == batch * (planned or 0) or (key == "global_step" and trainers == {"open-instruct"}):
        return key
    beyond = planned is not None and last > planned
    every_K = np.concatenate([p.steps_K for p in points])
    if settings.step is None and batch >= BATCH and after.size >= FEWEST and (
        beyond or not trainers or not (every_K % batch).any()
    ):
        raise UnclearError(
            f"{what}: steps must be updates, but all of them, to {int(after[-1])}, are multiples "
            f"of B_p * n = {batch}, as a count of responses is; if they are, add --set step={key} "
            f"--map {key}=rollouts, else --set step={key}.",
            options=("--set", f"step={key}", "--map", f"{key}=rollouts"),
            condition=f"`{key}` counts responses",
        )
    return ""


def spread(points: Collection[Points], every: int, first: int) -> None:
    """Set evaluations at their updates; changes the points in place. `first`: of step 0."""
    for one in points:
        if one.column.split != "train":
            one.step = array("q", (one.steps_K * every + first).tolist())
