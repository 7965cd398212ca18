"""What rows tell of a step that none of their keys counts: parts of an update, calls of log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from isocompute.importers.values.reading import whole

FEW = 3  # rows in which a count of samples is the step: at 2 it may be chance, at 6 runs are short
# Rows beside each other that share no key: two of a short phase are none, at eight a run with two
# evaluations is read over.
_APART = 4


def are_calls(rows: Sequence[tuple[int, Collection[str]]]) -> bool:
    """Whether rows, one step after the other, hold what a trainer logs by several calls of a step.

    Under a step that is handed over such rows are one.

    Args:
        rows: step and keys of each.

    >>> are_calls([(2 * i + j, "ab"[j]) for i in range(4) for j in (0, 1)])
    True
    >>> are_calls([(i, "a" if i % 2 else "ab") for i in range(8)])
    False
    """
    sets = [(step, frozenset(keys)) for step, keys in rows]
    shared = frozenset[str].intersection(*(keys for _, keys in sets)) if sets else frozenset()
    apart = sum(
        step - before == 1 and one > shared < other and one & other == shared
        for (before, one), (step, other) in pairwise(sets)
    )
    return apart > _APART


class Epochs:
    """Counts on steps that begin anew with every epoch, where the log has each that trained.

    Where epochs are more than their steps, each may be a batch, and its steps parts of an update.

    >>> epochs = Epochs()
    >>> [epochs.at(step, epoch, True) for epoch in (0, 1, 2) for step in (1, 2, 3)]
    [1, 2, 3, 4, 5, 6, 7, 8, 9]
    >>> epochs.at(0, 3, False), epochs.are_batches  # an evaluation ahead of the fourth
    (9, True)
    >>> gaps = Epochs()  # the last step of an epoch may be another
    >>> [gaps.at(step, epoch, True) for epoch in (0, 1) for step in (2, 4, 6)]
    [2, 4, 6, 2, 4, 6]
    """

    def __init__(self) -> None:
        self.before: dict[int, int] = {}  # steps of the epochs before one, by its number
        self.are_batches = False
        self._now = -1
        self._high = 0  # the last step of this one, of whatever row
        self._first: int | None = None  # its first that trained
        self._top = 0  # and the last
        self._each = False  # it began with the first, and none was left out

    def at(self, step: int, epoch: int, trains: bool) -> int:
        """A step of an epoch, counted on; `trains`: its row is of training."""
        if epoch not in self.before:
            count, begins = self.before.get(self._now, 0), step <= min(self._high, 1)
            each = 0 if self._first is None else self._top + 1 - self._first
            if begins and self._each and epoch == self._now + 1 and each >= FEW:
                count += each  # fewer may be passes over one batch
                self.are_batches |= len(self.before) >= each
            self.before[epoch] = count
            self._each = begins or self._first is None  # an epoch 0 may be an evaluation alone
            self._first, self._top, self._high = None, step, step
        if trains:
            self._first = step if self._first is None else self._first
            self._each = self._each and self._first < 2 and step <= self._top + 1
            self._top = max(step, self._top)
        self._now, self._high = epoch, max(step, self._high)
        return step + self.before[epoch]

    def beside(self, step: int) -> int | None:
        """A step of a row that says no epoch: that of the row before; None where it is unclear."""
        before = self.before.get(self._now, 0)
        if step == self._high:
            return step + before
        return None if before and step < self._high else step


class Parts(NamedTuple):
    """A counter of parts, how many an update has, and which rows have nothing but whole updates."""

    key: str
    each: int
    step: str  # the counter of updates
    shapes: frozenset[tuple[str, ...]]

    def at(self, row: Mapping[str, object]) -> int | None:
        """The update that a row stands at; None where another counter or a part says it."""
        if self.step in row or tuple(row) not in self.shapes:
            return None
        count = whole(row.get(self.key))
        return None if count is None or count % self.each else count // self.each

    @property
    def told(self) -> str:
        """What is inferred."""
        return (f"step: {self.key} is {self.each} times {self.step} wherever both stand, so rows "
                f"without {self.step} stand at {self.key} / {self.each}")  # fmt: skip


def parts_of(rows: Iterable[Mapping[str, object]], steps: Sequence[str]) -> Parts | None:
    """How rows without a counter of updates are placed; None where all have one, or none can.

    Args:
        rows: the first of a log.
        steps: keys that may count updates; the first that a row has counts.

    >>> rows = [{"update": u, "micro": 4 * u} for u in (1, 2, 3)]
    >>> parts_of([*rows, {"micro": 8, "acc": 0.5}], ["update"])[:3]
    ('micro', 4, 'update')
    """
    each: dict[str, set[int]] = {}
    both, own = Counter[str](), dict[str, None]()
    rest: dict[tuple[str, ...], list[Mapping[str, object]]] = {}
    for row in rows:
        said = next((key for key in steps if key in row), None)
        if said is None:
            rest.setdefault(tuple(row), []).append(row)
            continue
        own[said] = None
        if (at := whole(row[said])) is None:
            continue
        for key, value in row.items():
            if key != said and type(value) is int and (at or value):
                each.setdefault(key, set()).add(value // at if at and value % at == 0 else 0)
                both[key] += at > 0
    found = [(key, max(times)) for key, times in each.items()
             if len(times) == 1 and max(times) > 1 and both[key] >= FEW]  # fmt: skip
    if len(found) != 1 or len(own) != 1 or not rest:
        return None
    key, many = found[0]
    shapes = frozenset(
        shape for shape, like in rest.items()
        if all((count := whole(row.get(key))) is not None and count % many == 0 for row in like)
    )
    return Parts(key, many, next(iter(own)), shapes) if shapes else None
