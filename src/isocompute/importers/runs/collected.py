"""What the rows of one run and the files beside it said, before anything is concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from isocompute.importers.runs.points import Points
from isocompute.importers.runs.steps import Counters
from isocompute.importers.values.imported import Errors, Outcomes
from isocompute.importers.words.fresh import Found
from isocompute.importers.words.scored import Evidence
from isocompute.importers.words.settings import Settings


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
    perhaps: dict[str, dict[int, int]]  # what may be B_p or n: value -> first step
    drawn_by: str  # the key of a count that B_p * n * step is held against
    says_split: bool  # its rows do, in a key of their own
    at_zero: bool  # it has a row of step 0
    first: int | None  # the first step of rows of any shape
    first_length: int | None  # the first row with a length
    latest: int  # the last step of rows without any score
    redone: int | None  # the lowest step that rows of training went back to
    trained: int  # the last step of rows that tell of training, and the first
    trains_from: int

    def count_by(self, ticks: int) -> None:
        """Count the steps of rows by updates, of which each has so many."""
        self.latest, self.trained = -(-self.latest // ticks), -(-self.trained // ticks)
        self.first = self.first and -(-self.first // ticks)
