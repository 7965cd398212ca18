"""Where the points of a run stand: counters that move otherwise than its updates, set right."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from isocompute.importers.runs.collected import Collected
from isocompute.importers.runs.points import Points, back_to, last_step
from isocompute.importers.runs.steps import EARLIER, FROM_ZERO, LAST, LATER
from isocompute.importers.values.imported import (
    SAMPLED,
    STOPPED,
    FloatArray,
    IntArray,
    UnclearError,
    distinct,
)
from isocompute.importers.values.timing import SECONDS

# Distances between scores that a log begins late. Half of it doubts a log with one score missing;
# twice of it believes one that goes on from the fifth evaluation of another run.
LATE = 3.0
_LEAST_ROWS, _CHANGES, _APART = 20, 4, 3  # see `without_repeats`
REPEATS = "score: rows that repeat the last evaluation count once"

Side = Mapping[str, Mapping[int, float]]  # numbers beside scores: kind -> step -> value


def own_evaluations(score_K: FloatArray, *, trains: bool = False) -> tuple[IntArray | None, str]:
    """Places of the scores that are evaluations of their own, and a line; None: all of them.

    Some loops write the last score into every row, or 0 where nothing was evaluated. Then scores
    change at even distances alone. Fewer than five changes, or distances of two rows, are chance
    where most problems are unsolved; at ten short logs stay as they are.

    Args:
        score_K: in the order of compute.
        trains: of batches of training, which may be 0 where no problem was solved.
    """
    if score_K.size < _LEAST_ROWS:
        return None, ""
    few = score_K.size / 2
    there = np.flatnonzero(score_K != 0)
    if not trains and there.size < few and _is_even(there):
        return there, "score: 0 in the rows between two evaluations is taken for none"
    new = np.flatnonzero(score_K[1:] != score_K[:-1]) + 1
    if new.size < few and _is_even(new):
        every = int(np.gcd.reduce(new))
        own = np.append(0, new) if every < _APART else np.arange(0, new[-1] + 1, every)
        return own, REPEATS  # two evaluations may have one score
    return None, ""


def without_repeats(points: Points) -> str:
    """Leave out rows of a series that are no evaluations of their own; a line that says so."""
    step_K, score_K = points.steps_K, points.scores_K
    if (step_K[1:] < step_K[:-1]).any():
        order = np.argsort(step_K, kind="stable")
        step_K, score_K = step_K[order], score_K[order]
    kept, told = None, ""
    if points.axis is not None:  # their own counter says whose
        again = (step_K[1:] == step_K[:-1]) & (score_K[1:] == score_K[:-1])
        if again.sum() > step_K.size / 2:
            kept, told = np.append(0, np.flatnonzero(~again) + 1), REPEATS
    if kept is None:
        kept, told = own_evaluations(score_K, trains=points.column.split == "train")
    if kept is not None:
        points.step = array("q", step_K[kept].tolist())
        points.value = array("d", score_K[kept].tolist())
    return told


def mean_of_passes(points: Points, key: str, numbers: set[int | None]) -> str:
    """Make one score of those of several passes over the problems, in place; a line that says so.

    Each step has a row for each number, one after the other. Scores that rise with it everywhere
    are best of so many, and stay as they are.
    """
    count = len(numbers)
    if count < 2 or len(points.step) % count or not {*range(1, count)} < numbers:
        return ""
    each, own = points.steps_K.reshape(-1, count), points.scores_K.reshape(-1, count)
    alone = (each == each[:, :1]).all() and len({*each[:, 0].tolist()}) == len(each)
    if not alone or (np.diff(own) >= 0).all():
        return ""
    points.step = array("q", each[:, 0].tolist())
    points.value = array("d", own.mean(axis=1).tolist())
    return f"score: the mean of {count} rows at each step, which {key} numbers"


def _is_even(place_K: IntArray) -> bool:
    """Whether places lie at distances that share a factor of three or more."""
    gaps = np.diff(place_K)
    return gaps.size >= _CHANGES and int(np.gcd.reduce(gaps)) >= _APART


def to_updates(
    points: Collection[Points], side: Side, ticks: int, per_tick: int = 1
) -> dict[str, dict[int, float]]:
    """Set points of counters that do not move by one in an update; the numbers beside them.

    Args:
        points: of the run; changed in place.
        side: lengths, tokens and seconds by step.
        ticks: what the counters move in one update.
        per_tick: updates in which they move by one.
    """
    for one in points:
        step_K, score_K = one.steps_K, one.scores_K
        at = -(-step_K * per_tick // ticks)
        begins = np.append(True, (at[1:] != at[:-1]) | (step_K[1:] <= step_K[:-1]))[: at.size]
        if not begins.all():  # a batch in parts; of evaluations within an update the last
            first = np.flatnonzero(begins)
            last = np.append(first[1:], at.size) - 1
            means = np.add.reduceat(score_K, first) / (last - first + 1)
            at, own = at[first], means if one.column.split == "train" else score_K[last]
            one.value = array("d", own.tolist())
        one.step = array("q", at.tolist())
    found = {
        kind: {-(-step * per_tick // ticks): value for step, value in by_step.items()}
        for kind, by_step in side.items()
    }
    if ticks > 1:  # each row has the time of one tick, or their mean
        found[SECONDS] = {step: value * ticks for step, value in found.get(SECONDS, {}).items()}
    return found


def own_beginning(points: Collection[Points]) -> int | None:
    """The first step of a log that begins where logs do; None where it is far beyond step 0."""
    steps = [p.steps_K for p in points if p.step]
    first = min((int(step_K.min()) for step_K in steps), default=None)
    if first is None or first <= LATE:  # no two steps are less than one apart
        return first
    step_K = np.sort(np.concatenate(steps))
    gaps = np.diff(step_K)
    width = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1.0
    return first if first <= LATE * width else None


def begin_at(points: Collection[Points], side: Side, begins: int) -> dict[str, dict[int, float]]:
    """Count steps from the one that a run begins at; what stands before it is another run's.

    Args:
        points: of the run; changed in place.
        side: numbers beside scores.
        begins: that step.

    Raises:
        UnclearError: the log ends before it.
    """
    last = last_step(points)
    if begins > last:
        raise UnclearError(
            f"`begins` must be a step of the log, but the log ends at step {last}, before "
            f"{begins}; correct --set begins."
        )
    for one in points:
        own = one.steps_K >= begins
        one.value = array("d", one.scores_K[own].tolist())
        one.step = array("q", (one.steps_K[own] - begins).tolist())
    return {
        kind: {step - begins: value for step, value in by_step.items() if step >= begins}
        for kind, by_step in side.items()
    }


def trained_again(points: Collection[Points], lengths: int | None) -> int | None:
    """The lowest step that rows of training go back to; None where they never do.

    Args:
        points: of the run.
        lengths: the lowest step that rows with a length go back to.
    """
    back = [back_to(p.steps_K) for p in points if p.column.split == "train"]
    return min((step for step in (lengths, *back) if step is not None), default=None)


def count_from_one(
    points: Collection[Points], side: Side, *, at_zero: bool, first_length: int,
    planned: int | None = None, calls: bool = False, lag: int | None = None,
    trained: int = 0,
) -> list[str]:  # fmt: skip
    """Set evaluations that are counted from 0, and say which.

    Args:
        points: of the run; changed in place.
        side: numbers beside scores.
        at_zero: whether a row of step 0 is there.
        first_length: the first row with a length.
        planned: updates; a log from 0 ends one before.
        calls: steps count calls of a tracker, which begin at 0 whatever a trainer does.
        trained: the last step of rows that tell of training.
        lag: by how much evaluations stand after the update whose policy they are of, if known.
    """
    if lag is not None:
        for one in (p for p in points if p.column.split != "train" and lag):
            one.step = array("q", (one.steps_K - lag).tolist())
        return [EARLIER] * (lag > 0)
    training = [p for p in points if p.column.split == "train" and p.step]
    trained = max([trained, *side["length"], last_step(training)])
    zero = 0 in side["length"] or any(p.zero_rows for p in training)
    first = min([p.first_row for p in training] + [first_length])
    told: list[str] = []
    seen: dict[tuple[object, ...], array[int] | None] = {}  # metrics mostly share their steps
    for one in points:
        if one.column.split == "train" or not one.step:
            continue
        trainer = one.column.trainer
        if calls and trainer not in ("", *FROM_ZERO):
            continue
        key = (trainer, one.step.tobytes(), *one.zero_rows)
        if key in seen:
            one.step = seen[key] or one.step
            continue
        steps, lines = as_updates(
            one.steps_K, trainer, one.zero_rows, first, counted=side["rollouts"], trained=trained,
            planned=planned,
            trains_at_zero=zero if trainer in FROM_ZERO else at_zero,
        )
        seen[key] = None if steps is None else array("q", steps.tolist())
        one.step = seen[key] or one.step
        told += lines
    return told


def as_updates(
    step_K: IntArray, trainer: str, zero_rows: Sequence[int], first_training_row: int | None,
    *, trains_at_zero: bool, counted: Mapping[int, float], trained: int, planned: int | None = None,
) -> tuple[IntArray | None, list[str]]:
    """Steps of evaluations as updates, None where they are right as they are; and what was done.

    Args: see `from_one` and `at_last_update`; `planned`: updates, None where they are not known.
    """
    before = before_update(step_K, trainer, trained)
    if before is not None and before.max() + 1 != planned:
        return before, [EARLIER]
    placed = at_last_update(step_K, trainer, trained)
    told = [] if placed is None else [LAST]
    alone = not trained and not trains_at_zero and trainer in ("verl", "areal")
    shifted = None if trained == planned else from_one(  # no row of training says the first step
        step_K if placed is None else placed, "" if alone else trainer, zero_rows,
        first_training_row, trains_at_zero=trains_at_zero or alone, counted=counted,
    )
    if shifted is not None:
        told.append(LATER if shifted[-1] > step_K[-1] or told else EARLIER)
    return (placed if shifted is None else shifted), told


def from_one(
    step_K: IntArray, trainer: str, zero_rows: Sequence[int], first_training_row: int | None,
    *, trains_at_zero: bool, counted: Mapping[int, float],
) -> IntArray | None:
    """Steps of evaluations as updates, where the trainer's first update is its step 0.

    An evaluation before training is step 0 as well, and stays there: it stands in a row above
    the first of training. Evaluations at k, 2k, 3k are counted from 1 whatever stands at 0.
    `counted`: what training rows say that was drawn (prime-rl).

    Returns:
        None where the steps are right as they are.
    """
    if trainer not in FROM_ZERO and step_K.size and _before_multiples(step_K) and (
        trains_at_zero or step_K.min() > 0  # Lightning 2: the tenth update is logged as step 9
    ):  # a loop of one's own, which may use a trainer's key
        return np.where(step_K == 0, 0, step_K + 1)
    if trainer not in FROM_ZERO or not step_K.size:
        return None
    if trainer == "slime":
        after = step_K[step_K > 0]
        between = np.diff(distinct(after))
        if between.size and between.min() > 1 and not (after % between.min()).any():
            return None  # counted from 1, whether one is missing or not
        # every k updates, evaluations stand at k-1, 2k-1, ..., and at 0 before training; every
        # single one at 0 twice, or at 0 once where the one before training was left out
        gaps = np.diff(distinct(step_K))
        before = len(zero_rows) > 1 or gaps.size < 2 or gaps[0] != gaps[1]
        late: IntArray = step_K + 1
        if before and step_K[0] == 0:
            late[0] = 0
        return late
    if trainer == "prime-rl":
        late_by_one = counted and min(counted) == 1 and step_K.min() > 0
        return step_K - 1 if late_by_one else None
    if not trains_at_zero or _on_multiples(step_K):
        return None
    shifted: IntArray = step_K + 1
    zeros = np.flatnonzero(step_K == 0)
    for place, row in zip(zeros, zero_rows, strict=False):
        if first_training_row is not None and row < first_training_row:
            shifted[place] = 0
    return shifted


def at_last_update(step_K: IntArray, trainer: str, trained: int) -> IntArray | None:
    """Steps of evaluations with the one after training at the last update; None: right as they are.

    verl 0.2 (trainer/ppo/ray_trainer.py, fit) and rLLM (2026-08) count on before they validate a
    last time.

    Args:
        step_K: of evaluations, as logged.
        trainer: whose words they are.
        trained: the last step with a row of training; 0 where there is none.
    """
    if trainer not in ("verl", "rllm") or not trained or not (step_K == trained + 1).any():
        return None
    return np.where(step_K == trained + 1, trained, step_K)


def before_update(step_K: IntArray, trainer: str, trained: int) -> IntArray | None:
    """Steps of evaluations that a loop makes above the update of the same row; None: right as is.

    `if (update - 1) % k == 0: evaluate()` stands at 1, k+1, 2k+1, ...; that it comes before the
    update is seen where the last stands in a row of its own, one beyond the last update.

    Args: as of `at_last_update`.

    >>> before_update(np.array([1, 21, 41, 61]), "", 60)
    array([ 0, 20, 40, 60])
    >>> before_update(np.array([1, 21, 41, 61]), "", 61)  # all may be after their updates
    """
    at = distinct(step_K)
    if trainer in FROM_ZERO or at.size < 3 or at[0] != 1 or at[-1] != trained + 1:
        return None
    gaps = np.diff(at)[:-1]  # the last evaluation may stand anywhere
    return step_K - 1 if gaps[0] > 1 and (gaps == gaps[0]).all() else None


def _before_multiples(step_K: IntArray) -> bool:
    """Whether evaluations stand at k-1, 2k-1, 3k-1, ... with k above 1, as if counted from 0.

    Behind three of them the last may stand anywhere, after the last update.
    """
    after = distinct(step_K[step_K > 0]) + 1
    if after.size > 3 and after[-1] < after[-2] + after[0]:
        after = after[:-1]
    return after.size > 2 and after[0] > 1 and bool((np.diff(after) == after[0]).all())


def _on_multiples(step_K: IntArray) -> bool:
    """Whether evaluations stand at k, 2k, 3k, ... with k above 1; the last may stand anywhere."""
    after = distinct(step_K[step_K > 0])
    if after.size < 3 or after[0] == 1:
        return False
    return bool(np.all(after[:-1] % after[0] == 0))


def last_update(c: Collected, planned: int | None, begins: int) -> int | None:
    """Updates that rows of training tell of, within the plan; None without any."""
    rows = [p.steps_K for p in c.points if p.column.split == "train" and len(p.step) > 1]
    if SAMPLED in c.counters.inferred and planned and rows:  # the last row may be left out
        reach = max(int(K.max() + np.diff(np.sort(K)).max()) for K in rows)
        if reach >= planned and not any(note.endswith(STOPPED) for note in c.notes):
            return planned
    if not c.trained or c.counters.calls:
        return None
    own = c.trained - begins  # and where it is not that, the row of step 0 is an update as well
    own += c.trains_from == 0 and own != planned
    return own if planned is None else min(own, planned)
