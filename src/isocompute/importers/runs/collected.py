"""What the rows of one run and the files beside it said, before anything is concluded.

Scores are kept by `points`; here are the numbers beside them, lengths, tokens, counts and seconds
of a step, and all of it together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from isocompute.importers.runs.points import Points
from isocompute.importers.runs.steps import Counters
from isocompute.importers.values.imported import Errors, Outcomes
from isocompute.importers.values.reading import number
from isocompute.importers.values.timing import PARTS, SECONDS, THROUGHPUT
from isocompute.importers.words.fresh import Found
from isocompute.importers.words.meanings import KINDS
from isocompute.importers.words.scored import Evidence
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.vocabulary import PROMPT_KEY, TOTAL_TOKENS_KEY

MAX_STEPS = 500_000  # of one kind; a long run has 1e5
MAX_TIMED = 10_000  # steps whose seconds are averaged, 1 MB; long runs have fewer

# held against B_p * n, so the first rows will do
_CHECKS = {
    "total": TOTAL_TOKENS_KEY, "prompt": PROMPT_KEY, THROUGHPUT: "perf/throughput",
    **{f"part {name}": f"timing_s/{name}" for name in PARTS},
}  # fmt: skip
_ENOUGH = 20  # at half one odd step counts for two, at twice 100 logs take 2% longer


Spans = dict[int, tuple[int, int]]  # the first and the last step of each value that rows have


@dataclass(kw_only=True)
class Collected:
    """All that the rows of one run and the files beside them said; `conclude` uses it up."""

    name: str
    settings: Settings
    errors: Errors
    notes: list[str]
    note: Callable[[str], None]  # adds to them
    counters: Counters
    config: dict[str, object]
    found: Found  # in that configuration
    beside: str  # the file that it was read from, where that is not the log
    n_rows: int
    points: list[Points]
    side: dict[str, dict[int, float]]  # the numbers beside the scores, by kind and step
    outcomes: list[Outcomes]
    extras: dict[str, str]
    unread: list[str]  # keys of rows that were not understood
    evidence: Evidence  # what they hold
    problems: dict[str, Counter[int]]  # of how many the scores of a row are, in how many rows
    perhaps: dict[str, Spans]  # what may be B_p or n
    drawn_by: str  # the key of a count that B_p * n * step is held against
    says_split: bool  # its rows do, in a key of their own
    at_zero: bool  # it has a row of step 0
    first: int | None  # the first step of rows of any shape
    first_length: int | None  # the first row with a length
    latest: int  # the last step of rows without any score
    redone: int | None  # the lowest step that rows of training went back to
    trained: int  # the last step of rows that tell of training, and the first
    trains_from: int

    @property
    def start(self) -> int | None:
        """The step that it begins at: before the first row, if each update has one of training.

        Series of training scores say it better, and are asked where there are any.
        """
        alone = not any(p.column.split == "train" for p in self.points)
        each = alone and self.first == self.trains_from and (
            self.n_rows > self.trained - self.trains_from
        )
        return self.first - 1 if each and self.first else self.first

    def count_by(self, ticks: int) -> None:
        """Count the steps of rows by updates, of which each has so many."""
        self.latest, self.trained = -(-self.latest // ticks), -(-self.trained // ticks)
        self.first = self.first and -(-self.first // ticks)


class Sides:
    """The numbers beside the scores of one run.

    Args:
        note: takes a line for a reader of the result.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.by_kind: dict[str, dict[int, float]] = {kind: {} for kind in KINDS}
        self.first_length: int | None = None  # the first row with a length
        self.redone: int | None = None  # the lowest step that rows of training went back to
        self._trained = {"length": 0, SECONDS: 0}  # the last step that has them
        self._evicted = False
        self._note = note

    def take(self, kind: str, step: int, value: object, row: int) -> str | None:
        """Take one number; a key is returned of which no further one is wanted."""
        result = value if type(value) is float and 0.0 <= value < inf else number(value)
        if result is None or result < 0:
            return None
        if kind == "evicted":
            if result > 0 and not self._evicted:
                self._evicted = True
                self._note("batches were refilled after filtering: more rollouts were drawn than "
                           "B_p * n * step counts")  # fmt: skip
            return None
        side = self.by_kind.setdefault(kind, {})
        if kind in self._trained:
            if step < self._trained[kind]:
                self.trained_again(step)
            self._trained[kind] = step
        if kind == "length" and not side:
            self.first_length = row
        if self.redone is not None and step >= self.redone and step in side:
            side[step] = result  # what is done again is what the scores come of
        elif len(side) < (MAX_TIMED if kind == SECONDS else MAX_STEPS):
            side.setdefault(step, result)
        return _CHECKS[kind] if kind in _CHECKS and len(side) >= _ENOUGH else None

    def trained_again(self, step: int) -> None:
        """Take a step that rows of training went back to."""
        self.redone = step if self.redone is None else min(step, self.redone)
