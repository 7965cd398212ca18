"""The rows of one run, as any reader gives them: the rules that hold for every source stand once.

Here is what one row means; `meanings` says it of a key, `collected` keeps what stands beside the
scores, `described` what the run says of itself, and `conclude` makes the ImportedRun at the end.

Rules: a step is a whole number >= 0, and counts updates (`steps` decides which of a log's counters
does); of two scores of one metric at one step the first counts (a trainer that resumes evaluates
again), of steps that the log goes back to and does again the last; rows may come in any order;
NaN, infinite, null and "NaN" are missing, counted, never 0; unknown keys are left alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isocompute.importers.beside.described import BESIDE, SIDE, Described
from isocompute.importers.runs.collected import Collected, Sides, Spans
from isocompute.importers.runs.conclude import conclude
from isocompute.importers.runs.points import Points, at_policy, of_one_set, of_problems
from isocompute.importers.runs.steps import Counters
from isocompute.importers.values.imported import (
    Errors,
    ImportedRun,
    Outcomes,
    Provenance,
    UnclearError,
)
from isocompute.importers.values.reading import (
    clean_text,
    is_missing_word,
    number,
    refuse_grouped,
    whole,
)
from isocompute.importers.words import meanings
from isocompute.importers.words.called import counts_problems
from isocompute.importers.words.scored import Evidence
from isocompute.importers.words.settings import Column, Settings
from isocompute.importers.words.splits import OF_SPLIT, split_of, split_said
from isocompute.importers.words.vocabulary import PLAIN, POLICY, SLIME_MARKS, STEP_KEYS, column_of

_OF_MACHINE = re.compile("(?:monitoring|system|sys)[./]")  # Neptune, W&B: on a clock of its own
MAX_SERIES = 2_000  # a log has tens; a hostile one has as many as it has rows
MAX_KEYS = 50_000
MAX_POINTS = 4_000_000  # of one run, 64 MB; a long run has 1e5 steps
# Sets of keys whose reading is kept: a trainer writes two or three. At half nothing changes; for
# more, every row is looked up key by key, three times as slow.
MAX_SHAPES, MAX_SHAPE = 64, 1_000
MAX_RUNS = 10_000  # of one file
MAX_WATCHED = 200  # rows that tell which unread keys may be scores
_NOTES = 50
_Plan = Sequence[tuple[str, Points | str]]  # the keys of a row that are read, and as what
# With the latest step of rows without a score; with the first and the last of training.
_Shape = tuple[_Plan, list[int] | None, list[int] | None]


class Collector:
    """Gathers the rows of one run.

    Args:
        name: the log's name of the run.
        errors: where bad rows go (shared by the runs of one file).
        settings: what the user added.
    """

    def __init__(self, name: str, errors: Errors, settings: Settings) -> None:
        self.name = name
        self.errors = errors
        self.settings = settings
        self.notes: list[str] = []
        self.outcomes: list[Outcomes] = []
        self.passed: dict[str, list[object]] = {}  # of rows without a step: keys, some values
        self.extras: dict[str, str] = {}  # what a table says of the run beside its configuration
        self.n_rows = 0
        self.folder_split = ""  # of keys that do not say theirs: its folder's
        self._kinds: dict[str, Points | str | None] = {}
        self._plans: dict[tuple[str, ...], _Shape] = {}
        self._points: dict[Column, Points] = {}
        self._perhaps: dict[str, Spans] = {}  # what may be B_p or n
        self._problems: dict[str, Counter[int]] = {}  # of how many a row's scores are, in how many
        self._n_points = 0
        self._drawn_by = ""  # the key of a count that B_p * n * step is held against
        self._latest: dict[tuple[str, ...], list[int]] = {}  # of rows without any score: the step
        self._trains: dict[tuple[str, ...], list[int]] = {}  # of training: first and last step
        self._at_zero = False  # a row of step 0
        self._first: int | None = None  # the first step of rows of any shape
        self._splits: list[str] = []  # keys of rows that may say their split
        self._said: dict[str, str] = {}  # the split that they say of a key that names one
        self._waiting: list[tuple[object, Mapping[str, object], int]] = []  # for the named counter
        self._policy = ""  # the key of the update whose policy was evaluated
        self.counters = Counters(settings.step)
        self._sides = Sides(self.note)
        self._evidence = Evidence()
        self._described = Described(errors, self.note, settings.columns)

    def note(self, text: str) -> None:
        """Take one line that a reader of the result should know."""
        text = clean_text(text)
        if text not in self.notes and len(self.notes) < _NOTES:
            self.notes.append(text)

    def rename(self, name: str) -> None:
        """Take the name that the log gives the run; a pattern may find its configuration there."""
        self.name = name
        self.settings = self.settings.for_file(name)

    def configure(self, config: object, line: int = 0) -> None:
        """Take a configuration, nested or flat; a later one may add keys, not change B_p, n."""
        self._described.configure(config, line)

    @property
    def scored(self) -> bool:
        """Whether a row had a key of scores."""
        return bool(self._points)

    @property
    def configured(self) -> dict[str, object]:
        """What is known of its configuration, flat."""
        return dict(self._described.config)

    def configure_beside(self, path: Path, *, alone: bool = True) -> None:
        """Take the configuration beside a log that is of this run, `alone` in it or one of many."""
        self._described.look_beside(path, self.name, self.settings.within, alone=alone)

    def row(
        self, step: object, values: Mapping[str, object], line: int, *, calls: bool = False
    ) -> None:
        """Take one logged row: the tracker's step and its numbers.

        `calls`: that step counts calls of the tracker, so any key that counts updates is better.
        """
        counters = self.counters
        if calls:
            step, calls = counters.own(step, values)
        if counters.busy:
            if counters.evaluated and not calls:
                self.expect(values)
                apart = at_policy(step, values, str(counters.wanted), self._kinds)
                for place, part in apart:
                    self._row(place, part, line)
                if apart:
                    return
            if counters.waits(step, values, calls) and len(self._waiting) < MAX_POINTS:
                self._waiting.append((step, values, line))
                return
            step = counters.place(step, values, calls)
        self._row(step, values, line, calls=calls)

    def _row(
        self, step: object, values: Mapping[str, object], line: int, *, calls: bool = False
    ) -> None:
        counters = self.counters
        self.n_rows += 1
        at = whole(step)
        if at is None or (type(step) is str and "." in step):
            refuse_grouped(step, self.name)
        if at is None:
            self.errors.add(line, f"a step must be a whole number >= 0, but got {step!r:.60}")
            return
        if self.n_rows < MAX_WATCHED or len(values) == 1:
            self._evidence.take(self.n_rows, at, values)
        goes_back = counters.follow(at, values)
        if calls:
            counters.calls = True
        elif not at:
            self._at_zero = True
        elif counters.rivals:
            counters.hold(at, values)
        take_side = self._sides.take
        plan = self._plan(at, values, goes_back)
        if self._problems and (wanted := self.settings.evaluation_problems) is not None:
            plan = of_problems(plan, values, self._problems, wanted)
        for key, kind in plan:
            value = values[key]
            if isinstance(kind, str):
                place = at if not calls else counters.side(at, values)
                if kind[0] in meanings.WORDS:
                    self._take_word(kind[0], kind[1:], place, value)
                elif (done := take_side(kind, place, value, self.n_rows)) is not None:
                    self._stop(done)
                continue
            place, axis = at, kind.axis
            if axis is not None and (raw := values.get(axis)) != at:
                own = counters.value(raw)
                if own is None:
                    kind.n_elsewhere += 1
                elif calls:
                    place = own
                    counters.apart = counters.apart or own != at
                elif own != at:
                    counters.differ(axis, at, own)
            self._take(kind, place, value, line, key)
            if self._policy and kind.column.split != "train":
                own = whole(values.get(self._policy))
                if own is not None and number(value) is not None:
                    counters.at_policy(self._policy, place, own)

    def _plan(self, step: int, values: Mapping[str, object], goes_back: bool) -> _Plan:
        """What is read of a row; rows of a log come in few shapes."""
        shape = tuple(values)
        if self._splits:
            shape = *shape, split_said(values, self._splits)
        if (known := self._plans.get(shape)) is None:
            kinds = self._kinds
            if fresh := [key for key in values if key not in kinds]:
                self.expect(values)
                self._evidence.begin(fresh, self.counters.side(step, values))
            read = [(key, kind) for key in values if (kind := kinds.get(key)) is not None]
            plan = of_one_set(read, tuple(values), self._series)
            if self._splits:
                shape = *tuple(values), split_said(values, self._splits)
                plan = [(key, self._in_split(kind, key, shape[-1])) for key, kind in plan]
            if any(isinstance(k, Points) and k.column.split != "train" for _, k in plan):
                found = [key for key in values if counts_problems(key)]
                plan = [*plan, *((key, f"%{key}") for key in found)]
                self._problems |= {key: self._problems.get(key, Counter()) for key in found}
            if is_kept := len(self._plans) < MAX_SHAPES and len(shape) <= MAX_SHAPE:
                self._first = step if self._first is None else min(step, self._first)
                if shape not in self._latest:
                    self._watch(shape, plan)
                if shape not in self._trains and meanings.tell_of_training(shape):
                    self._trains[shape] = [step or 1, 0]
            known = plan, self._latest.get(shape), self._trains.get(shape)
            if is_kept:
                self._plans[shape] = known
        plan, latest, span = known
        if latest is not None:
            if goes_back and step <= latest[0]:
                self._sides.trained_again(step)
            latest[0] = step
        if span is not None and not span[0] <= step <= span[1] and meanings.trains_at(step, values):
            span[step > span[1]] = step  # the first or the last
        return plan

    def _in_split(self, kind: Points | str, key: str, split: str) -> Points | str:
        """What is read of a key in rows of a split: a series of that split."""
        if isinstance(kind, str) or not split:
            return kind
        if split_of(key):
            if (before := self._said.setdefault(key, split)) != split:
                raise UnclearError(
                    f"rows that hold one key must be of one split, but those of {self.name!r} with "
                    f"{key} are of {before!r} and {split!r}; write a file for each."
                )
            return kind
        known = split == kind.column.split or self.settings.split or self.folder_split
        return kind if known else self._series(replace(kind.column, split=split), key) or kind

    def _watch(self, shape: tuple[str, ...], plan: _Plan) -> None:
        """Watch the steps of rows without any score: where they go back, they are trained again."""
        if any(kind == "length" or isinstance(kind, Points) for _, kind in plan):
            return  # its steps are kept
        if len(self._latest) < MAX_SHAPES and not any(
            split_of(k) == "validation" or _OF_MACHINE.match(k) for k in shape
        ):
            self._latest[shape] = [0]

    def score(self, column: Column, step: int, value: float, line: int) -> None:
        """Take one score whose meaning is known already."""
        self._take(self._series(column), step, value, line, column.metric.label)

    def expect(self, values: Mapping[str, object]) -> None:
        """Decide what keys mean that no row had; ahead of rows that hold one each (TensorBoard)."""
        before, counters_wanted = len(self.counters.seen), self.counters.wanted
        self.counters.see(key for key in values if key not in self.settings.columns)
        if found := [key for key in OF_SPLIT if key in values and key not in self._splits]:
            self._splits = [key for key in OF_SPLIT if key in (*self._splits, *found)]
            self._plans.clear()
        if self.n_rows == 1:
            self.counters.look_for_rivals(values)
        for key in values:
            if isinstance(key, str) and key not in self._kinds:
                if counters_wanted is None and POLICY.search(key):
                    self._policy = key
                kind = self._meaning(key)
                if kind is None and POLICY.search(key) and split_of(key) == "validation":
                    kind = f"#{key}"  # of scores that may stand in rows of their own
                alone = len(values) == 1 and not self.counters.calls  # a series of its own
                second = key in PLAIN and self.counters.axis(key) not in (None, key)
                if kind is None and key in STEP_KEYS and (alone or second):
                    kind = f"#{key}"
                if kind in (None, "?n") and key == "n" and "problems_per_batch" in values:
                    kind = "=n"  # alone it may count anything
                if len(self._kinds) < MAX_KEYS:
                    self._kinds[key] = kind
        if len(self.counters.seen) > before:
            self._plans.clear()
            if any(mark in self.counters.seen for mark in SLIME_MARKS):  # its words are common
                for key, known in self._kinds.items():
                    if known is None and (column := column_of(key, self.counters.seen)) is not None:
                        self._kinds[key] = self._series(column, key)
            for points in self._points.values():
                axis = self.counters.axis(points.key)
                if axis != points.axis:
                    points.axis, points.n_elsewhere = axis, len(points.step)

    def _meaning(self, key: str) -> Points | str | None:
        drawn = bool(self._drawn_by)
        kind = meanings.meaning_of(key, self.settings, self.counters.seen, drawn=drawn)
        if kind == "drawn":
            self._drawn_by = key
        return self._series(kind, key) if isinstance(kind, Column) else kind

    def _series(self, column: Column, key: str = "") -> Points | None:
        split = self.settings.split or column.split
        if self.folder_split and not split_of(key):
            split = self.folder_split
        problem_set = clean_text(column.problem_set or self.settings.problem_set or "")
        column = replace(column, problem_set=problem_set, split=split)
        points = self._points.get(column)
        if points is None:
            if len(self._points) >= MAX_SERIES:
                self.note(f"more than {MAX_SERIES} metrics: the further ones were not read")
                return None
            points = self._points[column] = Points(column, key)
            points.axis = self.counters.axis(key)
        return points

    def _take(
        self, points: Points | None, step: int, value: object, line: int, key: str
    ) -> None:
        if points is None:
            return
        score = number(value)
        if score is None:
            if is_missing_word(value) or isinstance(value, (int, float)):
                points.n_missing += 1
            else:
                self.errors.add(line, f"{key} must be a number, but got {value!r:.60}")
            return
        if self._n_points >= MAX_POINTS:
            self.note(f"more than {MAX_POINTS} scores in one run: the further ones were not read")
            return
        self._n_points += 1
        if not step:
            points.zero_rows.append(self.n_rows)
        if not points.step:
            points.first_row = self.n_rows
        points.step.append(step)
        points.value.append(score)

    def _stop(self, key: str) -> None:
        """Read no more of a key."""
        self._kinds[key] = None
        self._plans.clear()

    def _take_word(self, mark: str, key: str, step: int, value: object) -> None:
        """Take what a key of a row says of its run, or may say."""
        if mark in "=+":
            self._described.hold(key, value, self.name)
        elif mark == "^":
            self._described.of_model(key, value)
        elif mark == "~":
            self._described.of_one(key, value, self.name)
        elif mark == "%":
            self._problems[key].update([now] if (now := whole(value)) is not None else [])
        elif mark == "?":
            values = self._perhaps.setdefault(key, {})
            if (now := whole(value)) is not None and (now in values or len(values) < MAX_SHAPES):
                first, last = values.get(now, (step, step))
                values[now] = min(step, first), max(step, last)
        elif POLICY.search(key):  # the update that was evaluated, for every score
            own = whole(value)
            if own is not None and not self.counters.calls:
                self.counters.at_policy(key, step, own)
        elif not self.counters.compare(key, step, value):
            self._stop(key)

    def finish(self, path: Path, source: str, provenance: Provenance | None = None) -> ImportedRun:
        """The run, with cumulative rollouts and tokens at every point; no row may follow.

        Raises:
            UnclearError: where what counts updates is not clear, or B_p * n contradicts the tokens.
        """
        self.counters.found()
        self.counters.held_against()
        for step, values, line in self._waiting:  # of series apart from the named counter
            self.row(self.counters.at(step), values, line)
        described, sides = self._described, self._sides
        described.trained_in(self.settings.processes)
        if described.beside:
            self.counters.infer(f"{BESIDE}{described.beside}{SIDE}")
        return conclude(Collected(
            name=self.name, settings=self.settings, errors=self.errors, notes=self.notes,
            note=self.note, counters=self.counters, config=described.config,
            found=described.found, beside=described.beside, n_rows=self.n_rows,
            points=list(self._points.values()), side=sides.by_kind, outcomes=self.outcomes,
            extras=self.extras,
            unread=[k for k, kind in self._kinds.items() if meanings.is_unread(k, kind)],
            perhaps=self._perhaps, drawn_by=self._drawn_by, says_split=bool(self._splits),
            at_zero=self._at_zero, first=self._first, first_length=sides.first_length,
            latest=max((last for last, in self._latest.values()), default=0), redone=sides.redone,
            trained=max((last for _, last in self._trains.values()), default=0),
            trains_from=min((first for first, _ in self._trains.values()), default=1),
            evidence=self._evidence, problems=self._problems,
        ), path, source, provenance)  # fmt: skip
