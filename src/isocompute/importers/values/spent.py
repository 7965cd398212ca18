"""What the updates of a run took, counted on where another log goes on with it.

A crash belongs to no n: of updates that were done twice the later time counts, in one file as in
two, and a run costs what its kept updates did.

Shape legend: K points of one series; L rows that say lengths or tokens, or what was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.importers.values.timing import Times, passes_per_step, said_of

if TYPE_CHECKING:
    from isocompute.importers.values.imported import ImportedRun

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Each:
    """A count of every update, by the rows that say it.

    Args:
        step_L: the last update that a row speaks of.
        value_L: of each of them.
        width: updates of a row.
    """

    step_L: IntArray = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    value_L: FloatArray = field(default_factory=lambda: np.zeros(0), repr=False)
    width: int = 1

    def totals(self, begins: int = 0) -> tuple[IntArray, FloatArray]:
        """Sums from an update on, as far as rows follow each other without a gap.

        >>> [a.tolist() for a in Each(np.array([3, 4, 9]), np.array([2.0, 5.0, 1.0])).totals(2)]
        [[2, 3, 4], [0.0, 2.0, 7.0]]
        """
        later = self.step_L > begins
        step, value = self.step_L[later], self.value_L[later]
        if not step.size:
            return np.zeros(0, np.int64), np.zeros(0)
        span = np.diff(step, prepend=begins)
        gap = np.flatnonzero((span > self.width) if self.width > 1 else (span != 1))
        stop = int(gap[0]) if gap.size else len(step)
        total = np.cumsum(value[:stop] * span[:stop])
        return np.concatenate(([begins], step[:stop])).astype(np.int64), np.concatenate(
            ([0.0], total))  # fmt: skip

    def last(self) -> int:
        """The last update that it says; 0 without any."""
        return int(self.step_L[-1]) if self.step_L.size else 0

    @classmethod
    def of(cls, by_step: Mapping[int, float]) -> Each:
        """What a log says by the update."""
        step = np.array(sorted(by_step), np.int64)
        return cls(step, np.array([by_step[int(s)] for s in step], np.float64))

    def then(self, other: Each, begins: int) -> Each:
        """These up to an update, the other's after it."""
        own, its = self.step_L <= begins, other.step_L > begins
        return Each(np.concatenate((self.step_L[own], other.step_L[its])),
                    np.concatenate((self.value_L[own], other.value_L[its])),
                    max(self.width, other.width))  # fmt: skip


def known_at(step: IntArray, total: FloatArray, step_K: IntArray) -> FloatArray:
    """Sums at some steps; NaN where they are not known.

    >>> known_at(np.array([0, 1, 2]), np.array([0.0, 5.0, 9.0]), np.array([2, 4])).tolist()
    [9.0, nan]
    """
    found = np.full(step_K.size, np.nan)
    if step.size:
        place = np.minimum(np.searchsorted(step, step_K), step.size - 1)
        known = step[place] == step_K
        found[known] = total[place][known]
    return found


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What the updates of a run took.

    Args:
        times: seconds; None where the log has none.
        gpus: that it ran on.
        tokens: generated.
        drawn: rollouts, where they are counted by batches (dynamic sampling).
        epochs: passes over the problems until then.
    """

    times: Times | None = None
    gpus: float | None = None
    tokens: Each = field(default_factory=Each)
    drawn: Each = field(default_factory=Each)
    epochs: Each = field(default_factory=Each)

    def begins(self, first: int) -> int:
        """The update from which on a log that begins in the middle counts.

        Args:
            first: that of its first evaluation, which may stand before its rows or behind.
        """
        rows = [one.step_L for one in (self.tokens, self.drawn) if one.step_L.size]
        if self.times is not None and (self.times.until_T > self.times.updates_T).all():
            rows.append(self.times.until_T.astype(np.int64))
        found = [int(row[0] - (np.median(np.diff(row)) if row.size > 1 else 1)) for row in rows]
        return min([first, *(at for at in found if at > 0)])

    def last(self) -> int:
        """The last update of its rows; 0 without any."""
        timed = 0 if self.times is None else int(self.times.until_T[-1])
        return max(self.tokens.last(), self.drawn.last(), timed)

    def after(self, step: int) -> Spent:
        """The same of a log whose updates are counted on from one."""
        tokens, drawn = (replace(one, step_L=one.step_L + step)
                         for one in (self.tokens, self.drawn))  # fmt: skip
        times = self.times and self.times._replace(until_T=self.times.until_T + step)
        return replace(self, times=times, tokens=tokens, drawn=drawn, epochs=Each())

    def then(self, other: Spent, begins: int) -> Spent:
        """What both took: this until an update, the other after it."""
        times, gpus = self.times or other.times, self.gpus if self.times else other.gpus
        if self.times is not None and other.times is not None:
            parts = self.times.within(0, begins), other.times.within(begins, np.inf)
            until_T, seconds_T, updates_T = (
                np.concatenate(pair) for pair in zip(parts[0][:3], parts[1][:3], strict=True)
            )
            times = Times(until_T, seconds_T, updates_T, any(part.clocked for part in parts))
            if self.gpus and other.gpus:  # what both paid for, by the update
                paid = self.gpus * parts[0].seconds_T.sum() + other.gpus * parts[1].seconds_T.sum()
                gpus = paid / seconds_T.sum()
        return Spent(times=times, gpus=gpus, tokens=self.tokens.then(other.tokens, begins),
                     drawn=self.drawn.then(other.drawn, begins),
                     epochs=self.epochs.then(other.epochs, begins))  # fmt: skip

    @property
    def passes_per_step(self) -> float | None:
        """Passes over the problems in an update; None where the log does not say."""
        return passes_per_step(self.epochs.step_L, self.epochs.value_L)

    def said(self) -> dict[str, Any]:
        """What a record says of its times."""
        return said_of(self.times, self.gpus)


def kept_of(run: ImportedRun) -> Spent:
    """What the updates of a run took; of one that a study holds, as its record says it."""
    told, spent = run.provenance, run.spent
    if spent.times is None and told.s_per_step is not None and told.pace:
        until, share = np.array(told.pace, np.float64).T
        times = Times(until, np.diff(until * share, prepend=0.0) * told.s_per_step,
                      np.diff(until, prepend=0.0), told.clocked)  # fmt: skip
        gpus = told.gpu_s_per_step and told.gpu_s_per_step / told.s_per_step
        spent = replace(spent, times=times, gpus=gpus)
    known = [s for s in run.series if s.step_K.size and np.isfinite(s.tokens_K).all()]
    if not spent.tokens.step_L.size and known:
        s = max(known, key=lambda s: s.step_K.size)
        later = s.step_K > 0
        step, total = s.step_K[later], s.tokens_K[later]
        width = np.diff(step, prepend=0)
        spent = replace(spent, tokens=Each(
            step, np.diff(total, prepend=0.0) / width, int(width.max(initial=1))
        ))  # fmt: skip
    return spent
