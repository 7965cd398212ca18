"""Rows of any log -> an ImportedRun: the rules that hold for every source are here once.

Rules: a step is a whole number >= 0, and counts updates (`steps` decides which of a log's counters
does); of two scores of one metric at one step the first counts (a trainer that resumes evaluates
again), of steps that the log goes back to and does again the last; rows may come in any order;
NaN, infinite, null and "NaN" are missing, counted, never 0; unknown keys are left alone, and named
where nothing else was found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from isocompute.importers.asking import also_asked_of
from isocompute.importers.beside import (
    configuration_beside,
    configuration_in_table,
    configuration_named,
)
from isocompute.importers.cadence import (
    Cadence,
    as_evaluations,
    cadence_of,
    refuse_responses,
    spread,
)
from isocompute.importers.called import is_batch, is_called, may_be_setting
from isocompute.importers.checks import (
    B_P_OFF,
    BATCHED,
    PROBLEMS,
    REFILLED,
    ROLLOUTS_OFF,
    UNCOUNTED,
    batches_drawn,
    counted,
    counts_batch,
    counts_problems,
    refills,
    rollouts_disagree,
    sampled_anew,
    tokens_disagree,
)
from isocompute.importers.configuration import (
    IN_ROWS,
    MODELS,
    RESPONSES,
    Found,
    configuration,
    facts_of,
    gpus_of,
    problems_of,
)
from isocompute.importers.doubts import late_text, own_start
from isocompute.importers.ledger import Errors, provenance_of
from isocompute.importers.placing import (
    BEGUN,
    OWN_BEGINNING,
    begin_at,
    count_from_one,
    own_beginning,
    own_ticks,
    to_updates,
    trained_again,
    without_repeats,
)
from isocompute.importers.points import (
    Compute,
    Points,
    after_rows,
    descends,
    of_one_set,
    series_of,
    told_of_order,
)
from isocompute.importers.reading import (
    clean_text,
    flatten,
    is_missing_word,
    number,
    refuse_grouped,
    whole,
)
from isocompute.importers.recorded import logged_rate
from isocompute.importers.runs import ImportedRun, Outcomes, Provenance, UnclearError
from isocompute.importers.settings import Column, Settings
from isocompute.importers.split_names import measured
from isocompute.importers.steps import BEFORE, EARLIEST_FIRST, FROM_ZERO, OWN, Counters
from isocompute.importers.timing import (
    SECONDS,
    THROUGHPUT,
    TIMING_KEYS,
    gpu_seconds_per_step,
    seconds_per_step,
)
from isocompute.importers.vocabulary import (
    BATCHES_KEYS,
    EVICTED_KEYS,
    LENGTH_KEYS,
    POLICY,
    PROMPT_KEY,
    RATE_KEYS,
    ROLLOUTS,
    ROLLOUTS_KEYS,
    SAMPLED,
    SLIME_MARKS,
    STEP_KEYS,
    TOKENS_KEYS,
    TOTAL_TOKENS_KEY,
    column_of,
    counts_updates,
)

# what the scores of a row are of: a log has one of each
_OF_ROWS = frozenset(("split", "dataset", "data_source", "problem_set", "benchmark", "eval_set",
                      "subset", "mode", "phase"))  # fmt: skip
# what may say the split of a row, the most telling first, and how
_OF_SPLIT = ("split", "subset", "mode", "phase", "kind", "type", "stage", "event")
_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("eval", "evaluation", "val", "valid", "validation", "test", "dev", "heldout",
                     "held_out", "held-out"), "validation"),
}  # fmt: skip
_N = "rollouts_per_problem"
SPLIT_IN_KEY = re.compile("train|val|eval|test", re.I)
OF_EVALUATION = re.compile("val|eval|test", re.I)
MAX_SERIES = 2_000  # a log has tens; a hostile one has as many as it has rows
MAX_KEYS = 50_000
MAX_POINTS = 4_000_000  # of one run over all series, 64 MB; a long run has 1e5 steps
MAX_UNREAD = 200
# Sets of keys whose reading is kept: a trainer writes two or three. At half nothing changes; beyond
# it, and for rows of more keys, every row is looked up key by key, three times as slow.
MAX_SHAPES, MAX_SHAPE = 64, 1_000
MAX_TIMED = 10_000  # steps whose seconds are averaged, 1 MB; long runs have fewer
_NOTES = 50

# held against B_p * n, so the first rows will do
_CHECKS = {"total": TOTAL_TOKENS_KEY, "prompt": PROMPT_KEY, THROUGHPUT: "perf/throughput"}
_ENOUGH = 20  # at half one odd step counts for two, at twice 100 logs take 2% longer

_SIDES = {
    **dict.fromkeys(LENGTH_KEYS, "length"), **dict.fromkeys(TOKENS_KEYS, "tokens"),
    **dict.fromkeys(ROLLOUTS_KEYS, "rollouts"), **dict.fromkeys(BATCHES_KEYS, "batches"),
    **dict.fromkeys(EVICTED_KEYS, "evicted"), **dict.fromkeys(RATE_KEYS, "rate"),
    TOTAL_TOKENS_KEY: "total", PROMPT_KEY: "prompt", **TIMING_KEYS,
}
_KINDS = {*_SIDES.values(), "drawn", "sampled"}
_PASSED = {*STEP_KEYS, *_SIDES, *_OF_SPLIT, "step", "Step"}  # understood, though no scores


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
        self.passed: list[str] = []  # keys of rows that were none of a log, for a message
        self.extras: dict[str, str] = {}  # what a table says of the run beside its configuration
        self.n_rows = 0
        self._config: dict[str, object] = {}
        self._words: dict[str, str] = {}  # what all of its rows say of themselves
        self.folder_split = ""  # of keys that do not say theirs: its folder's
        self._found: Found | None = None
        self._kinds: dict[str, Points | str | None] = {}
        self._plans: dict[tuple[str, ...], Sequence[tuple[str, Points | str]]] = {}
        self._points: dict[Column, Points] = {}
        self._side: dict[str, dict[int, float]] = {kind: {} for kind in _KINDS}
        self._held: dict[str, int] = {}
        self._perhaps: dict[str, dict[int, int]] = {}  # what may be B_p or n: value -> first step
        self._n_points = 0
        self._evicted = False
        self._beside = ""
        self._drawn_by = ""  # the key of a count that B_p * n * step is held against
        self._first_length: int | None = None  # the first row with a length
        self._trained = 0  # the last step with a row of training
        self._redone: int | None = None  # the lowest one that such rows went back to
        self._latest: dict[tuple[str, ...], int] = {}  # of rows without any score, by their keys
        self._at_zero = False  # a row of step 0
        self._first: int | None = None  # the first step of rows of any shape
        self._splits: list[str] = []  # keys of rows that may say their split
        self._said: dict[str, str] = {}  # the split that they say of a key that names one
        self._waiting: list[tuple[object, Mapping[str, object], int]] = []  # for the named counter
        self._policy = ""  # the key of the update whose policy was evaluated
        self.counters = Counters(settings.step)

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
        flat = flatten(config)
        for key, column in self.settings.columns.items():  # the user's names for B_p, n, the seed
            if key in flat and column.metric.label in IN_ROWS:
                flat[column.metric.label] = flat[key]
        before = configuration(self._config)
        self._config.update(flat)
        after = configuration(self._config)
        for name in ("problems_per_batch", "rollouts_per_problem"):
            old, new = getattr(before, name), getattr(after, name)
            if old is not None and new != old:
                self.errors.add(line, f"the configuration changes {name} from {old} to {new}")
                self.note(f"the log changes {name} from {old} to {new} within one run")
                self._found = Found()  # neither value holds for the whole run

    @property
    def configured(self) -> dict[str, object]:
        """What is known of its configuration, flat."""
        return dict(self._config)

    def configure_beside(self, path: Path, *, alone: bool = True) -> None:
        """Take the configuration beside a log that is of this run, `alone` in it or one of many."""
        own = configuration_beside(path) if alone else None
        beside = own or configuration_in_table(path, self.name) or configuration_named(
            path, self.name
        )
        if beside is not None:
            self._beside, config = beside
            self.configure(config)
            self.counters.infer(f"configuration: read from {self._beside} beside the log")

    def row(
        self, step: object, values: Mapping[str, object], line: int, *, calls: bool = False
    ) -> None:
        """Take one logged row: the tracker's step and its numbers.

        `calls`: that step counts calls of the tracker, so any key that counts updates is better.
        """
        counters = self.counters
        if counters.busy:
            if counters.waits(step, values, calls) and len(self._waiting) < MAX_POINTS:
                self._waiting.append((step, values, line))
                return
            step = counters.place(step, values, calls)
        self.n_rows += 1
        at = whole(step)
        if at is None or (type(step) is str and "." in step):
            refuse_grouped(step, self.name)
        if at is None:
            self.errors.add(line, f"a step must be a whole number >= 0, but got {step!r:.60}")
            return
        goes_back = counters.follow(at, values)
        if calls:
            counters.calls = True
        elif not at:
            self._at_zero = True
        elif counters.rivals:
            counters.hold(at, values)
        for key, kind in self._plan(at, values, goes_back):
            value = values[key]
            if isinstance(kind, str):
                place = at if not calls else counters.side(at, values)
                self._take_side(kind, place, value)
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
                if own is not None and own != place and number(value) is not None:
                    counters.differ(self._policy, place, own)

    def _plan(
        self, step: int, values: Mapping[str, object], goes_back: bool
    ) -> Sequence[tuple[str, Points | str]]:
        """The keys of a row that are read, and as what; rows of a log come in few shapes."""
        shape = tuple(values)
        if self._splits:
            shape = *shape, self._split_of(values)
        plan = self._plans.get(shape)
        if plan is None:
            kinds = self._kinds
            if any(key not in kinds for key in values):
                self._learn(values)
            plan = [(key, kind) for key in values if (kind := kinds.get(key)) is not None]
            plan = of_one_set(plan, tuple(values), self._series)
            if self._splits:
                shape = *tuple(values), self._split_of(values)
                plan = [(key, self._in_split(kind, key, shape[-1])) for key, kind in plan]
            if len(self._plans) < MAX_SHAPES and len(shape) <= MAX_SHAPE:
                self._plans[shape] = plan
                self._first = step if self._first is None else min(step, self._first)
                if shape not in self._latest:
                    self._watch(shape, plan)
        if (latest := self._latest.get(shape)) is not None:
            if goes_back and step <= latest:
                self._trained_again(step)
            self._latest[shape] = step
        return plan

    def _split_of(self, values: Mapping[str, object]) -> str:
        """The split that a row says it is of; "" where it does not."""
        said = (_SPLITS.get(str(values.get(key)).lower()) for key in self._splits)
        return next((split for split in said if split), "")

    def _in_split(self, kind: Points | str, key: str, split: str) -> Points | str:
        """What is read of a key in rows of a split: a series of that split."""
        if isinstance(kind, str) or not split:
            return kind
        if SPLIT_IN_KEY.search(key):
            if (before := self._said.setdefault(key, split)) != split:
                raise UnclearError(
                    f"rows that hold one key must be of one split, but those of {self.name!r} with "
                    f"{key} are of {before!r} and {split!r}; write a file for each."
                )
            return kind
        if split == kind.column.split or self.settings.split or self.folder_split:
            return kind
        return self._series(replace(kind.column, split=split), key) or kind

    def _watch(self, shape: tuple[str, ...], plan: Sequence[tuple[str, Points | str]]) -> None:
        """Watch the steps of rows without any score: where they go back, they are trained again."""
        if any(kind == "length" or isinstance(kind, Points) for _, kind in plan):
            return  # its steps are kept
        if len(self._latest) < MAX_SHAPES and not any(OF_EVALUATION.search(k) for k in shape):
            self._latest[shape] = 0

    def _trained_again(self, step: int) -> None:
        self._redone = step if self._redone is None else min(step, self._redone)

    def expect(self, keys: Mapping[str, object]) -> None:
        """Take keys that rows will have, where a row holds one alone (TensorBoard)."""
        self._learn(keys)

    def score(self, column: Column, step: int, value: float, line: int) -> None:
        """Take one score whose meaning is known already."""
        self._take(self._series(column), step, value, line, column.metric.label)

    def _learn(self, values: Mapping[str, object]) -> None:
        """Decide what the keys of a row mean that no row before it had."""
        before, counters_wanted = len(self.counters.seen), self.counters.wanted
        for key in values:
            if isinstance(key, str) and key in STEP_KEYS and key not in self.settings.columns:
                self.counters.seen.setdefault(key, None)
        if found := [key for key in _OF_SPLIT if key in values and key not in self._splits]:
            self._splits = [key for key in _OF_SPLIT if key in (*self._splits, *found)]
            self._plans.clear()
        if self.n_rows == 1:
            self.counters.look_for_rivals(values)
        for key in values:
            if isinstance(key, str) and key not in self._kinds:
                if counters_wanted is None and POLICY.search(key):
                    self._policy = key
                kind = self._meaning(key)
                if kind is None and key in STEP_KEYS and len(values) == 1 and not (
                    self.counters.calls
                ):  # a series of its own
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
        if key in self.settings.columns:
            mapped = self.settings.columns[key]
            if mapped.metric.label == "rollouts":
                return "rollouts"
            held = mapped.metric.label in IN_ROWS  # a name for B_p, n or the seed, no score
            return f"+{mapped.metric.label}" if held else self._series(mapped, key)
        if key in IN_ROWS:
            return f"={key}"
        if key in MODELS:
            return f"^{key}"
        if key in _OF_ROWS:
            return f"~{key}"
        if key in _SIDES:
            return _SIDES[key]
        column = column_of(key, self.counters.seen)
        if column is None and SAMPLED.search(key):
            return "sampled"
        if column is None and ROLLOUTS.search(key) and not self._drawn_by:
            self._drawn_by = key
            return "drawn"
        if column is None and may_be_setting(key):
            return f"?{key}"
        if column is None and key not in (*OWN, *STEP_KEYS) and counts_updates(key):
            return f"#{key}"
        return None if column is None else self._series(self.settings.beside(column, key), key)

    def _series(self, column: Column, key: str = "") -> Points | None:
        split = self.settings.split or column.split
        if self.folder_split and not SPLIT_IN_KEY.search(key):
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

    def _take_side(self, kind: str, step: int, value: object) -> None:
        if kind[0] in "=+^?~#":
            self._take_word(kind[0], kind[1:], step, value)
            return
        result = value if type(value) is float and 0.0 <= value < inf else number(value)
        if result is None or result < 0:
            return
        if kind == "evicted":
            if result > 0 and not self._evicted:
                self._evicted = True
                self.note("batches were refilled after filtering: more rollouts were drawn than "
                          "B_p * n * step counts")
            return
        side = self._side[kind]
        if kind == "length":
            if step < self._trained:
                self._trained_again(step)
            self._trained = step
            if not side:
                self._first_length = self.n_rows
        if len(side) < (MAX_TIMED if kind == SECONDS else MAX_POINTS // 8):
            side.setdefault(step, result)
        if kind in _CHECKS and len(side) >= _ENOUGH:
            self._kinds[_CHECKS[kind]] = None
            self._plans.clear()

    def _take_word(self, mark: str, key: str, step: int, value: object) -> None:
        """Take what a key of a row says of its run, or may say."""
        if mark in "=+":
            self._hold(key, value)
        elif mark == "^":
            self._of_model(key, value)
        elif mark == "~":
            self._of_one(key, value)
        elif mark == "?":
            values = self._perhaps.setdefault(key, {})
            if (now := whole(value)) is not None and (now in values or len(values) < MAX_SHAPES):
                values[now] = min(step, values.get(now, step))
        elif not self.counters.compare(key, step, value):
            self._kinds[key] = None
            self._plans.clear()

    def _hold(self, name: str, value: object) -> None:
        """A setting that rows repeat: one that changes has no B_p, n or seed to be read."""
        if (now := whole(value)) is None:
            return
        if (before := self._held.setdefault(name, now)) != now:
            raise UnclearError(
                f"a run must have one {name}, but the rows of {self.name!r} have {before} and "
                f"{now}; give each run a log of its own, or its rows a name in `run` (a batch that "
                "changes within a run is not read)."
            )
        if name not in self._config:
            self.configure({name: now})

    def _of_model(self, key: str, value: object) -> None:
        """The model that rows name; one whose name changes on the way is a checkpoint of it."""
        if not isinstance(value, str) or not value.strip():
            return
        if self._words.setdefault(key, value) == value:
            self._config.setdefault(key, value)
        else:
            self._words[key] = ""
            self._config.pop(key, None)

    def _of_one(self, word: str, value: object) -> None:
        """Take what a row says of itself; rows that say several things are of several logs."""
        if not isinstance(value, str) or not value.strip():
            return
        split = _SPLITS.get(value.lower(), "")
        if (before := self._words.setdefault(f"{word} {split}", value)) != value:
            raise UnclearError(
                f"the rows of a log must be of one {word}, but those of {self.name!r} have "
                f"{before!r} and {value!r}; write a file for each, or put the word into the keys "
                f"({value}/accuracy)."
            )

    def finish(self, path: Path, source: str, provenance: Provenance | None = None) -> ImportedRun:
        """The run, with cumulative rollouts and tokens at every point.

        Raises:
            UnclearError: where what counts updates is not clear, or B_p * n contradicts the tokens.
        """
        self._place_waiting()
        found = self._found or configuration(self._config)
        self._told_by_name(path)
        for text in found.notes:
            if self.settings.problems_per_batch is None or not text.startswith("B_p is "):
                self.note(text)
        refilled = refills(self._config)
        if refilled is not None and not self._side["batches"]:
            self.note(REFILLED.format(refilled))
        values = {
            name: self._merge(name, getattr(found, name))
            for name in ("problems_per_batch", "rollouts_per_problem", "steps", "seed",
                         "evaluation_samples")
        }
        newest_first = any(descends(p.steps_K) for p in self._points.values() if len(p.step) > 1)
        at_zero = {p.column.split for p in self._points.values()
                   if p.zero_rows and p.column.trainer in FROM_ZERO}  # fmt: skip
        if newest_first and at_zero >= {"train", "validation"}:
            raise UnclearError(
                f"{path}: run {self.name}: rows must follow each other in time where a trainer "
                f"calls its first update step 0{EARLIEST_FIRST}"
            )
        if (ticks := max(found.ticks, own_ticks(self._points.values()))) > 1:
            self._side = to_updates(self._points.values(), self._side, ticks)
            self.counters.infer(f"step: the log's counters move by {ticks} in an update")
        if found.per_tick > 1 and self.settings.step in (None, *OWN):
            self.counters.agree(found.per_tick)
            self._side = to_updates(self._points.values(), self._side, 1, found.per_tick)
            self.counters.infer(f"step: one of the log is {found.per_tick} updates")
        for points in self._points.values():
            if points.column.split == "validation" and (told := without_repeats(points)):
                self.counters.infer(told)
        b_p, n = values["problems_per_batch"], values["rollouts_per_problem"]
        if b_p is None and n and (whole_batch := whole(self._config.get(RESPONSES))):
            b_p = values["problems_per_batch"] = problems_of(whole_batch, n, f"run {self.name}")
            self.counters.infer(f"problems_per_batch: a batch of responses / {_N}")
        if n is None and b_p and (whole_batch := whole(self._config.get(RESPONSES))):
            n = values[_N] = problems_of(whole_batch, b_p, f"run {self.name}", "B_p")
            self.counters.infer(f"{_N}: a batch of responses / problems_per_batch")
        try:
            cadence = cadence_of(self._config)
            planned = self.settings.steps or found.steps or cadence.planned
            what = f"{path}: run {self.name}"
            begins, planned = self._beginning(what, planned)
            self._count_evaluations(what, cadence._replace(planned=planned))
            if self.settings.step is None:
                refuse_responses(self._points.values(), b_p and n and b_p * n, what)
            self._settle_steps(path, planned)
        except UnclearError as error:  # everything that will be asked for, in one line
            held_out = any(p.column.split != "train" and p.step for p in self._points.values())
            keys = [*self._unread(), *self._config]
            more = also_asked_of(path, self.name, b_p, n, keys, scored=held_out)
            raise UnclearError(f"{error}{more}") from None
        if begins:
            self._side = begin_at(self._points.values(), self._side, begins)
            if values["steps"] is not None and values["steps"] > begins:
                values["steps"] -= begins
        batch = None if b_p is None or n is None else b_p * n
        self._check_batch(b_p, n, given=None in (found.problems_per_batch,
                                                found.rollouts_per_problem))
        compute = Compute(
            batch=batch, updates_per_batch=found.updates_per_batch, window=found.window,
            tokens=after_rows(self._side["tokens"]), lengths=self._side["length"],
            rollouts=after_rows(self._side["rollouts"]), batches=self._batches(found, b_p),
        )
        redone = trained_again(self._points.values(), self._redone)
        k = values["evaluation_samples"]
        assumed = found.samples_assumed and self.settings.evaluation_samples is None
        series = tuple(
            made for points in self._points.values()
            if (made := series_of(
                points, compute, None if assumed and not points.column.trainer else k, redone
            )) is not None
        )
        notes, inferred = told_of_order(list(self._points.values()), redone)
        backward = self.counters.backward or newest_first
        if backward and (inferred or any(" left out" in line for line in notes)):
            raise UnclearError(
                f"{path}: run {self.name}: rows must follow each other in time where a step has "
                f"several scores{EARLIEST_FIRST}"
            )
        if inferred or any(" with another score" in line for line in notes):
            self._refuse_several()
        for line in notes:
            self.note(line)
        for line in inferred:
            self.counters.infer(line)
        provenance, gpus = provenance or provenance_of(path, source), gpus_of(self._config)
        unread = self._unread()
        for name in (name for name in ("problems_per_batch", "rollouts_per_problem")
                     if values[name] is None):  # what may be meant, in the configuration
            unread += [key for key in self._config if is_called(key, name)
                       or (name == _N and is_batch(key))]  # fmt: skip
        return ImportedRun(
            name=clean_text(self.settings.run or self.name),
            problems_per_batch=b_p, rollouts_per_problem=n, steps=values["steps"],
            seed=values["seed"], series=series, outcomes=tuple(self.outcomes),
            errors=tuple(self.errors.kept), n_errors=self.errors.count, n_rows=self.n_rows,
            notes=tuple(self.notes),
            provenance=replace(
                provenance,
                facts={**self.settings.facts, **self.extras, **logged_rate(self._side["rate"]),
                       **facts_of(self._config)},
                evaluation_problems=self.settings.evaluation_problems,
                unread=tuple(clean_text(k, 80) for k in unread[:MAX_UNREAD]),
                begins=None if self._first is None else max(self._first - begins, 0),
                s_per_step=seconds_per_step(self._side),
                gpu_s_per_step=gpu_seconds_per_step(self._side, self.settings.gpus or gpus),
                inferred=(*self.settings.inferred, *self.counters.inferred),
            ),
        )

    def _place_waiting(self) -> None:
        """Take the rows of series that are apart from the named counter, by the step they share."""
        self.counters.found()
        self.counters.held_against()
        for step, values, line in self._waiting:
            self.row(self.counters.at(step), values, line)

    def _unread(self) -> list[str]:
        """Keys of its rows that were not understood."""
        return [
            key for key, kind in self._kinds.items()
            if kind in (None, f"?{key}", f"#{key}") and key not in _PASSED and key[:1] != "_"
        ]

    def _told_by_name(self, path: Path) -> None:
        """Take the split and the problem set of the file's name for keys that do not say theirs."""
        of = measured(path)
        for points in self._points.values():
            if of.split and not (
                self.settings.split or self._splits or SPLIT_IN_KEY.search(points.key)
            ):
                points.column = replace(points.column, split=of.split)
            if of.problem_set and not points.column.problem_set:
                points.column = replace(points.column, problem_set=clean_text(of.problem_set))

    def _refuse_several(self) -> None:
        """Rows that begin again with another n, under a key that nobody mapped: other runs."""
        for key, values in self._perhaps.items():
            if len(values) > 1 and len(set(values.values())) == 1:
                first, other = list(values)[:2]
                raise UnclearError(
                    f"a run must have one {key}, but the rows of {self.name!r} have {first} and "
                    f"{other} and hold the same steps again; give each run a log of its own, or "
                    "its rows a name in `run`."
                )

    def _beginning(self, what: str, planned: int | None) -> tuple[int, int | None]:
        """The step from which updates are its own, and the plan in the log's steps.

        Raises:
            UnclearError: the log begins beyond its plan, and does not end where that would.
        """
        said = self.settings.begins
        points = [p for p in self._points.values() if p.step]
        first = own_beginning(points)
        if first is not None or not points:
            if said:
                self.counters.infer(OWN_BEGINNING.format(first))
            return 0, planned
        first, last = (f(int(f(p.steps_K)) for p in points) for f in (min, max))
        if said:
            return said, planned + said if planned is not None and planned < last else planned
        if said == 0:
            self.counters.infer(f"begins: 0, as told; the log begins at step {first}, {BEFORE}")
        elif planned is not None and planned < last and self._first is not None:
            earliest = min(first, self._first)
            begins = own_start(earliest, [p.steps_K for p in points if p.column.split == "train"])
            if last - planned in (begins, earliest):
                self.counters.infer(BEGUN.format(last - planned, planned, last))
                return last - planned, last
            if earliest > planned:
                raise UnclearError(late_text(what, earliest, last, begins, planned))
        return 0, planned

    def _count_evaluations(self, what: str, cadence: Cadence) -> None:
        """Set evaluations at their updates, where the log counts evaluations."""
        if self.settings.step is not None:
            return
        rows = [int(p.steps_K.max()) for p in self._points.values()
                if p.column.split == "train" and p.step]  # fmt: skip
        trained = max([0, *rows, *self._side["length"], *self._latest.values()])
        every = as_evaluations(self._points.values(), cadence, trained, what)
        if every is None:
            return
        last = max(int(p.steps_K.max()) for p in self._points.values() if p.column.split != "train"
                   and p.step)  # fmt: skip
        if trained > last:
            spread(self._points.values(), every)
        else:  # one counter of all rows
            self._side = to_updates(self._points.values(), self._side, 1, every)
        self.counters.infer(
            f"step: the log's counts evaluations; {cadence.key} says one in {every} updates"
        )

    def _settle_steps(self, path: Path, planned: int | None) -> None:
        """One unit for all steps, checked against the plan; counters from 0 begin at 1."""
        last = max((int(p.steps_K.max()) for p in self._points.values() if p.step), default=0)
        elsewhere = [
            (p.key, p.axis, p.n_elsewhere) for p in self._points.values()
            if p.n_elsewhere and p.axis is not None
        ]
        trainers = {p.column.trainer for p in self._points.values() if p.step}
        both = sum(len(p.step) - p.n_elsewhere for p in self._points.values() if p.axis)
        self.counters.settle(f"{path}: run {self.name}", last, planned, elsewhere, trainers, both)
        for line in count_from_one(
            list(self._points.values()), self._side, at_zero=self._at_zero,
            first_length=self._first_length or self.n_rows + 1,
        ):
            self.counters.infer(line)

    def _check_batch(self, b_p: int | None, n: int | None, *, given: bool) -> None:
        """B_p * n against the tokens of a step, where a log has both (verl), and its counts."""
        side, batch = self._side, None if b_p is None or n is None else b_p * n
        text = tokens_disagree(batch, side["total"], side["prompt"], side["length"])
        if text is not None and given:
            raise UnclearError(f"run {self.name}: {B_P_OFF.format(text)}")
        if text is not None:
            self.note(text)
        if (text := counts_batch(b_p, n, side["rollouts"] or side["drawn"])) is not None:
            raise UnclearError(f"run {self.name}: {BATCHED.format(text)}")
        mapped = any(c.metric.label == "rollouts" for c in self.settings.columns.values())
        if mapped and (text := counts_problems(b_p, n, side["rollouts"])) is not None:
            raise UnclearError(f"run {self.name}: {PROBLEMS.format(text)}")
        if side["rollouts"] or side["batches"] or self.settings.step is not None:
            return  # it is counted, or said what counts
        if (text := rollouts_disagree(b_p, n, side["drawn"])) is not None:
            raise UnclearError(
                f"run {self.name}: {ROLLOUTS_OFF.format(text, key=self._drawn_by)}"
            )

    def _batches(self, found: Found, b_p: int | None) -> dict[int, float]:
        """Batches that each update drew, in batches of B_p * n; empty where that is one each."""
        drawn, problems = self._side["batches"], found.drawn_problems
        if not drawn and b_p and sampled_anew(self._side["sampled"], b_p):
            drawn, problems = self._side["sampled"], 1
        if not any(count > 1 for count in drawn.values()):
            return {}
        batches = batches_drawn(drawn, problems, b_p)
        if batches is None:
            self.note(UNCOUNTED)
            return {}
        self.counters.infer(counted(problems))
        return batches

    def _merge(self, name: str, found: int | None) -> int | None:
        given: int | None = getattr(self.settings, name)
        if found is not None and given is not None and found != given:
            if self._beside:
                raise UnclearError(
                    f"run {self.name}: {name} must be one number, but {self._beside} beside the "
                    f"log says {found} and the setting or pattern {given}; drop the setting, or "
                    "move the file away."
                )
            if name in self.settings.named and name in ("problems_per_batch", _N):
                raise UnclearError(
                    f"run {self.name}: {name} must be one number, but the log says {found} and the "
                    f"name by the pattern {given}; drop that part of the pattern, and the log's "
                    "is used."
                )
            self.note(f"the log says {name}={found}, the setting {given}: the log's is used")
        return given if found is None else found
