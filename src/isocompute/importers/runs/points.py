"""The points of one metric of one run, as they were logged -> a series against compute.

Shape legend: K points of one series.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from isocompute.importers.values.imported import FloatArray, IntArray, Series, UnclearError
from isocompute.importers.values.reading import whole
from isocompute.importers.values.spent import Each, known_at
from isocompute.importers.words.called import is_alike
from isocompute.importers.words.settings import Column
from isocompute.importers.words.vocabulary import EVALUATED_SET

_TWICE = 3  # steps with two scores: a trainer evaluates its last one twice, or a first one


@dataclass(slots=True)
class Points:
    """Scores in the order of the log.

    Args:
        column: what they are.
        key: the first key of the log that they went by.
        step, value: of every score.
        n_missing: rows whose score was NaN, infinite or null.
        axis: the key that counts their updates; None: the tracker's own step.
        n_elsewhere: scores placed by the tracker's step although there is an axis.
        zero_rows: rows whose step was 0.
        first_row: the row of the first score.
    """

    column: Column
    key: str = ""
    step: array[int] = field(default_factory=lambda: array("q"))
    value: array[float] = field(default_factory=lambda: array("d"))
    n_missing: int = 0
    axis: str | None = None
    n_elsewhere: int = 0
    zero_rows: list[int] = field(default_factory=list)
    first_row: int = 0

    @property
    def steps_K(self) -> IntArray:
        """Steps, in the order of the log; a view."""
        return np.frombuffer(self.step, np.int64) if self.step else np.zeros(0, np.int64)

    @property
    def scores_K(self) -> FloatArray:
        """Scores, in the order of the log; a view."""
        return np.frombuffer(self.value) if self.value else np.zeros(0)


def last_step(found: Iterable[Points]) -> int:
    """The highest step of some scores; 0 without any."""
    return max((int(points.steps_K.max()) for points in found if points.step), default=0)


def of_one_set(
    plan: Sequence[tuple[str, Points | str]], keys: Sequence[str],
    series: Callable[[Column, str], Points | None],
) -> Sequence[tuple[str, Points | str]]:
    """What is read of TRL's rows, by the evaluation set that the row's loss or runtime names.

    With several sets TRL logs a row for each, and calls its reward the same in all.

    Args:
        plan: the keys that are read, and as what.
        keys: all keys of such a row.
        series: gives the points of a column and key.
    """
    matches = (EVALUATED_SET.fullmatch(key) for key in keys if isinstance(key, str))
    name = next((match[1] for match in matches if match), None)
    if name is None:
        return plan
    told: list[tuple[str, Points | str]] = []
    for key, kind in plan:
        own = None
        if isinstance(kind, Points) and (
            (kind.column.trainer, kind.column.split) == ("trl", "validation")
        ):
            own = series(replace(kind.column, problem_set=name), key)
        told.append((key, own or kind))
    return told


def of_problems(
    plan: Sequence[tuple[str, Points | str]], row: Mapping[str, object], keys: Iterable[str],
    of: int,
) -> Sequence[tuple[str, Points | str]]:
    """A plan without scores of another number of problems."""
    if all(is_alike(count, of) for key in keys if (count := whole(row.get(key))) is not None):
        return plan
    return [(k, kind) for k, kind in plan if isinstance(kind, str) or kind.column.split == "train"]


def at_policy(
    step: object, values: Mapping[str, object], counter: str,
    kinds: Mapping[str, Points | str | None],
) -> list[tuple[object, Mapping[str, object]]]:
    """A row's scores at the update that was evaluated, and all else at the row's own.

    None of it where scores stand in a row without that update, but for those before training.
    """
    scores = {key: value for key, value in values.items()
              if isinstance(kind := kinds.get(key), Points) and kind.column.split != "train"}
    if scores and counter not in values:
        return [] if whole(step) else [(step, values)]
    rest = {k: v for k, v in values.items() if k not in scores and k != counter}
    apart = [(values.get(counter), scores), (step, rest)]
    return [(at, part) for at, part in apart if part]


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What a run's steps cost.

    Args:
        batch: B_p * n; None where it is not known.
        window: updates that a row of lengths is a mean over.
        tokens: generated tokens of a step, by step.
        lengths: mean generated length of a window of steps, by its last step.
        rollouts: cumulative rollouts, by step, where the trainer counts them.
        batches: batches that every update drew, where they are not one each.
    """

    batch: int | None
    window: int
    tokens: Mapping[int, float]
    lengths: Mapping[int, float]
    rollouts: Mapping[int, float]
    batches: Mapping[int, float] = field(default_factory=dict)

    _known: dict[bytes, tuple[FloatArray, FloatArray]] = field(default_factory=dict, init=False)

    def at(self, step_K: IntArray) -> tuple[FloatArray, FloatArray]:
        """Cumulative rollouts and tokens; the metrics of a run mostly share their steps."""
        key = step_K.tobytes()
        if key not in self._known:
            self._known[key] = self.rollouts_at(step_K), self.tokens_at(step_K)
        return self._known[key]

    @property
    def drawn(self) -> Each:
        """Rollouts of every update, where they are not B_p * n."""
        batch = np.nan if self.batch is None else float(self.batch)
        return Each.of({step: count * batch for step, count in self.batches.items()})

    def rollouts_at(self, step_K: IntArray) -> FloatArray:
        """Cumulative rollouts drawn before each step's policy."""
        batch = np.nan if self.batch is None else float(self.batch)
        drawn = np.asarray(step_K * batch, np.float64)
        if 1 in self.batches:  # else a sequel's: from where it begins
            total = np.concatenate(([0.0], np.cumsum([self.batches[s] for s in sorted(
                self.batches)])))
            beyond = step_K >= total.size  # an evaluation behind the last update that is logged
            drawn = np.where(beyond, np.nan, total[np.where(beyond, 0, step_K)]) * batch
        if self.rollouts:
            logged = self.rollouts
            drawn = np.array([
                logged.get(int(s), 0.0 if s == 0 else float(r))
                for s, r in zip(step_K, drawn, strict=True)
            ], np.float64)
        return drawn

    @cached_property
    def each(self) -> Each:
        """Generated tokens of an update, by the rows that say them."""
        if self.tokens:
            source, scale, width = self.tokens, 1.0, 1
        elif self.lengths and self.batch is not None:
            source, scale = self.lengths, float(self.batch)
            width = self.window
        else:
            return Each()
        step = np.array(sorted(source), np.int64)
        value = np.array([source[int(s)] for s in step]) * scale
        if step[0] == 0:  # a length beside an evaluation before training
            step, value = step[1:], value[1:]
        if self.batches and not self.tokens:  # what was drawn is taken to be as long as what stays
            value = value * np.array([self.batches.get(int(s), np.nan) for s in step])
        return Each(step, value, width)

    def tokens_at(self, step_K: IntArray) -> FloatArray:
        """Cumulative generated tokens; NaN where the log does not say."""
        return known_at(*self.each.totals(), step_K)


def after_rows(by_step: Mapping[int, float]) -> Mapping[int, float]:
    """What rows of training say, by the updates done after them.

    prime-rl before 2026-06 and tinker-cookbook (2026-08) count updates from 0, and evaluate before
    the update of the same number. A count of 0 at step 0 stands where it belongs; where it is 0 at
    step 1 (prime-rl since), rows say what was drawn before them.

    >>> after_rows({0: 32.0, 1: 64.0}), after_rows({0: 0.0, 10: 320.0}), after_rows({1: 0, 2: 32})
    ({1: 32.0, 2: 64.0}, {0: 0.0, 10: 320.0}, {0: 0, 1: 32})
    """
    if by_step.get(1) == 0 and 0 not in by_step:
        return {step - 1: value for step, value in by_step.items()}
    return {step + 1: value for step, value in by_step.items()} if by_step.get(0) else by_step


def _ascends(step_K: IntArray) -> bool:
    """The usual case: rows in order, each step once."""
    return bool((step_K[1:] > step_K[:-1]).all())


def repeated(step_K: IntArray, score_K: FloatArray) -> tuple[int, int]:
    """Rows of a step that was there already, and those of them with another score.

    >>> repeated(np.array([0, 1, 1, 1]), np.array([0.0, 0.5, 0.5, 0.6]))
    (2, 1)
    """
    unique, first = np.unique(step_K, return_index=True)
    changed = int(np.sum(score_K != score_K[first][np.searchsorted(unique, step_K)]))
    return int(step_K.size - unique.size), changed


def descends(step_K: IntArray) -> bool:
    """Whether rows go back more often than on, as those of a file with the newest first.

    >>> descends(np.array([4, 2, 0])), descends(np.array([0, 2, 4, 2, 4]))
    (True, False)
    """
    move = np.diff(step_K)
    return int((move < 0).sum()) > int((move > 0).sum())


def started_over(step_K: IntArray, score_K: FloatArray) -> int:
    """The place where a log begins anew at its first step with other scores; 0 where it does not.

    A trainer that resumes goes back to a checkpoint; one that is started again, to the beginning.

    >>> started_over(np.array([0, 2, 4, 0, 2]), np.array([0.1, 0.2, 0.3, 0.1, 0.4]))
    3
    """
    if _ascends(step_K):
        return 0
    back = np.flatnonzero(np.diff(step_K) < 0) + 1
    if not back.size or step_K[back[-1]] != step_K[0]:
        return 0
    parts = np.split(step_K, back)
    at = int(back[-1])
    if any(part[0] != step_K[0] for part in parts) or not repeated(step_K, score_K)[1]:
        return 0
    return at


def back_to(step_K: IntArray) -> int | None:
    """The lowest step that a log goes back to; None where it never does.

    >>> back_to(np.array([0, 2, 4, 2, 4]))
    2
    """
    back = np.flatnonzero(np.diff(step_K) < 0)
    return int(step_K[back + 1].min()) if back.size else None


def _counting(step_K: IntArray, redone: int | None) -> tuple[IntArray, IntArray]:
    """Steps in order, and the place of the score of each that counts.

    The first does, since a trainer may evaluate twice; but what a log goes back to and does again
    is the policy that went on, from the step on that it resumes with.

    Args:
        step_K: steps in the order of the log.
        redone: the first step that was trained again, where rows of training say so.
    """
    unique, first = np.unique(step_K, return_index=True)
    own = back_to(step_K)
    later = np.zeros(unique.size, bool)
    if own is not None:
        at = int(np.flatnonzero((np.diff(step_K) < 0) & (step_K[1:] == own))[-1]) + 1
        resumed = own in step_K[:at] and bool((step_K[at:] > own).any())
        later = unique >= own if resumed else unique > own
    if redone is not None:
        later |= unique >= redone
    last = step_K.size - 1 - np.unique(step_K[::-1], return_index=True)[1]
    return unique, np.where(later, last, first)


def told_of_order(
    found: Sequence[Points], redone: int | None
) -> tuple[list[str], list[str]]:
    """What a reader should know of the order of a run's rows: notes, and what was concluded."""
    notes: list[str] = []
    inferred: list[str] = []
    repeats: dict[str, tuple[int, int]] = {}
    for points in found:
        step = points.steps_K
        if _ascends(step):
            continue
        label = points.column.metric.label
        if at := started_over(step, points.scores_K):
            inferred.append(
                f"rows: the log starts over at step {step[0]}; what stands before that, to step "
                f"{step[:at].max()}, is left out"
            )
            continue
        count, changed = repeated(step, points.scores_K)
        score = points.scores_K
        first = np.unique(step, return_index=True)[1]
        at_last = score[_counting(step, redone)[1]] != score[first]
        if at_last.any():
            back = min(r for r in (redone, back_to(step)) if r is not None)
            inferred.append(
                f"rows: the log goes back to step {back} and does it again; {int(at_last.sum())} "
                "scores are those of the later time"
            )
        elif count:
            repeats[label] = count, changed
        else:
            notes.append(f"{label}: rows out of order were sorted by step")
    if repeats:
        count, changed = (max(pair) for pair in zip(*repeats.values(), strict=True))
        notes.append(
            f"{count} further rows of a step that was there already were left out ({changed} with "
            f"another score; of {', '.join(sorted(repeats)):.80}); the first counts"
        )
    return notes, inferred


def of_two_kinds(found: Sequence[Points]) -> str:
    """What tells that scores are of two kinds (of a sampler, a grader); "" where nothing does.

    Most steps have another score in the row after: a run that went back has them later, and few.
    """
    for points in found:
        step_K, score_K = points.steps_K, points.scores_K
        twice = step_K[1:][(np.diff(step_K) == 0) & (np.diff(score_K) != 0)]
        steps, several = (np.unique(K, return_index=True)[0].size for K in (step_K, twice))
        if points.column.split != "train" and several >= _TWICE and 2 * several > steps:
            return f"{points.key} has several in rows one after the other at {several} of {steps}"
    return ""


def refuse_still(found: Sequence[Points], what: str) -> None:
    """Refuse many scores at one step: nothing was counted where a tracker got no step.

    Raises:
        UnclearError: with their step and what settles it.
    """
    for points in found:
        step_K, score_K = points.steps_K, points.scores_K
        if points.column.split != "train" and (step_K == step_K[:1]).all() and (
            np.count_nonzero(np.diff(score_K)) > _TWICE
        ):
            raise UnclearError(
                f"{what}: steps must count updates, but all {score_K.size} scores of "
                f"{points.key or points.column.metric.label} stand at step {step_K[0]}; name "
                "what counts updates with --set step=KEY, or write a CSV of run, "
                "problems_per_batch, rollouts_per_problem, step, score."
            )


def series_of(
    points: Points, compute: Compute, samples: int | None, redone: int | None = None
) -> Series | None:
    """The series of what was logged; None where nothing was.

    Args:
        points: scores in the order of the log; of two of a step see `_counting`, of
            a run that was started over those of its last start count.
        compute: what steps cost.
        samples: k of a validation metric whose key does not say it.
        redone: the first step that was trained again, where rows of training say so.
    """
    step_K, score_K = points.steps_K, points.scores_K
    if step_K.size == 0 and points.n_missing == 0:
        return None
    if not _ascends(step_K):
        at = started_over(step_K, score_K)
        step_K, place = _counting(step_K[at:], None if at else redone)
        score_K = score_K[at:][place]
    else:  # the arrays of the log, and the room that they keep for more, go
        step_K, score_K = step_K.copy(), score_K.copy()
    metric = points.column.metric
    if metric.samples is None and samples is not None and metric.kind in ("avg", "best"):
        # a training score is of the batch, not of k samples
        metric = replace(metric, samples=samples if points.column.split == "validation" else None)
    rollouts_K, tokens_K = compute.at(step_K)
    return Series(
        metric=metric, problem_set=points.column.problem_set, split=points.column.split,
        step_K=step_K, rollouts_K=rollouts_K, tokens_K=tokens_K, score_K=score_K,
        n_missing=points.n_missing, key="1 - " * points.column.errors + points.key,
    )
