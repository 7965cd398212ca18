"""Whose a row is, in a file of several runs: what a key or a column says, or settings that differ.

Rows that no key names a run for still say in every row which B_p, n, seed or model they are of;
rows that differ there are of different runs. A batch that changes within one run looks alike, but
its parts follow each other: those are refused. Of JSON lines that hold also for what their `config`
says of model and learning rate; what else of a `config` differs from the first step on is no run
that is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from isocompute.importers.beside.described import two_in_rows
from isocompute.importers.runs.begun import OF_BASE
from isocompute.importers.runs.collect import MAX_RUNS, Collector
from isocompute.importers.values.cells import Rows
from isocompute.importers.values.imported import DESIGN, Errors, UnclearError
from isocompute.importers.values.reading import CLOCKS, clean_text, number, whole
from isocompute.importers.values.series import IDS, STEPS
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import IN_ROWS, MODELS, facts_of, settings_in_row
from isocompute.importers.words.meanings import OF_ROWS
from isocompute.importers.words.names import number_in
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.vocabulary import STEP_KEYS

_SETTING = re.compile(r"^(?:run|config)\.(?:hparams\.)?")  # Aim 3.29, sdk/sequences/metric.py
_Said = tuple[tuple[str, str], ...]
_MAX_CONFIGS = 100  # of one run, where a part of its configuration changes
STEP_COLUMNS = (*STEPS, "steps", *STEP_KEYS)
_RUN = ("run", "run_name", "experiment", "trial", "name", "run.name")
_ID = (*map(str.lower, IDS), "run.hash", "run id")  # tells runs of one name apart
_OF_FILES = re.compile(r"dir|path|file|folder|log|run|exp|job|trial|source", re.I)
_OF_STARTS = re.compile(r"host|node|time|date|pid|user|version|commit|slurm", re.I)
_RARELY = 10  # a run that was resumed has steps twice, far fewer than several runs share
_MOST_CELLS = 4_000_000  # that are held to see it, 300 MB
_OWN = "id"  # W&B's, where it is none that counts rows


def setting_of(column: str) -> str:
    """The setting that a column of a table says of its run: without a prefix of the tracker's.

    >>> setting_of("run.hparams.seed")
    'seed'
    """
    return _SETTING.sub("", column.strip().lower())


def says_one(column: str, settings: Settings) -> bool:
    """Whether a run has one value of a column: B_p, n, the seed or the model."""
    name = setting_of(column)
    mapped = settings.columns.get(column)
    return name in IN_ROWS or name in MODELS or (
        mapped is not None and mapped.metric.label in IN_ROWS
    )


def steady(text: str, step: object) -> str:
    """A model's name without the step of its row: a checkpoint is no other model.

    >>> steady("out/checkpoint-100", "100")
    'out/checkpoint-'
    """
    at = whole(step)
    return text if at is None else re.sub(rf"(?<![0-9]){at}(?![0-9])", "", text)


class _Apart:
    """What rows that name no run say of it, and the first and last step of those that say it."""

    def __init__(self) -> None:
        self.is_blank = self.at_zero = False  # a row says nothing of the kind; one of step 0
        self._spans: dict[_Said, tuple[int, int] | None] = {}

    def take(self, said: _Said, step: object) -> None:
        """Take what a row says."""
        span, at = self._spans.setdefault(said, None), whole(step)
        if at is not None and (span is None or not span[0] <= at <= span[1]):
            self._spans[said] = min(at, *span or (at,)), max(at, *span or (at,))

    def differing(self, name: str) -> list[str]:
        """The keys that tell runs apart; none where all rows say the same. `name`: of all rows.

        Raises:
            UnclearError: where the rows may be of one run.
        """
        every = [dict(said) for said in self._spans]
        keys = dict.fromkeys(key for said in every for key in said)
        differ = [key for key in keys if len({said.get(key) for said in every}) > 1]
        spans = [span for span in self._spans.values() if span is not None]
        # rows of step 0 that say nothing are the base model's, unless a run has its own
        again = self.at_zero and not min((first for first, _ in spans), default=0)
        if differ and (
            self.is_blank or again or len(spans) < len(every)
            or max(first for first, _ in spans) > min(last for _, last in spans)
            or any(key not in said for said in every for key in differ)
        ):
            one, other, key = next((every[0], said, key) for said in every[1:] for key in differ
                                   if said.get(key) != every[0].get(key))  # fmt: skip
            raise two_in_rows(name, key, one.get(key, "none"), other.get(key, "none"))
        return differ


def _rename(one: Collector, name: str, said: _Said, differ: Sequence[str]) -> None:
    """Call a run by what tells it from the others."""
    one.rename(f"{name} " + " ".join(f"{k}={v}" for k, v in said if k in differ))
    one.counters.infer(f"run: no key names it; rows that differ in {', '.join(differ)} are of "
                       "different runs")  # fmt: skip


class RunsOfTable:
    """The collectors of a table's runs: by columns that name them, else by settings that differ.

    Args:
        path: of the table.
        header: its columns; "" for one that says nothing of runs.
        rows: below it; `rows` has them all afterwards.
        settings, errors: see `Collector`.
        series: the columns of steps and, in a long table, of metrics.
    """

    def __init__(
        self, path: Path, header: Sequence[str], rows: Rows, settings: Settings, errors: Errors,
        series: Sequence[int],
    ) -> None:
        header, rows, self._told = with_runs(path, [*header], rows, series, settings)
        self.named, self.own, self.rows = identity_of(header, rows)
        self.found: dict[str, Collector] = {}  # by what tells them apart
        self._path, self._name, self._settings, self._errors = (
            path, run_name(path), settings, errors
        )  # fmt: skip
        every = [(i, c) for i, c in enumerate(header) if says_one(c, settings)]
        self._columns = every if self.named is None else []
        self._fixed = [(i, c) for i, c in every if setting_of(c) not in MODELS]
        self._held: dict[tuple[str, str], str] = {}
        self._said: dict[str, _Said] = {}
        self._apart = _Apart()

    def of(self, cells: Sequence[str], step: str | None) -> tuple[str, Collector | None]:
        """What tells the run of a row from others, and its collector; None beyond the most.

        Args:
            cells: of the row.
            step: its cell; None where the row is of none.

        Raises:
            UnclearError: rows of one run say two things of it.
        """
        name = self._name if self.named is None else cells[self.named]
        key = name if self.own is None else cells[self.own]
        if self._columns and step is not None:
            key = self._key(cells, step)
        for i, column in self._fixed:
            if cells[i] and self._held.setdefault((key, column), cells[i]) != cells[i]:
                before = self._held[key, column]
                raise two_in_rows(clean_text(name), column.strip(), before, cells[i])
        named = self.named is not None
        return key, one_of(self.found, key, name, self._errors, self._settings, named=named)

    def _key(self, cells: Sequence[str], step: str) -> str:
        values = [
            steady(cells[i], step) if setting_of(c) in MODELS else cells[i].strip()
            for i, c in self._columns
        ]
        key = "\0".join(values)
        if key not in self._said:
            self._said[key] = tuple((c.strip(), value) for (_, c), value in
                                    zip(self._columns, values, strict=True) if value)  # fmt: skip
        self._apart.take(self._said[key], step)
        return key

    def settle(self) -> dict[str, Collector]:
        """The runs; those that no column names bear what differs between them.

        Raises:
            UnclearError: where the parts may be of one run.
        """
        if differ := self._apart.differing(self._name):
            for key, one in ((k, c) for k, c in self.found.items() if k in self._said):
                _rename(one, self._name, self._said[key], differ)
        for one in self.found.values() if self._told else ():
            one.counters.infer(self._told)
        return self.found


class UnnamedRows:
    """A collector for every choice of settings that the rows of one file say."""

    def __init__(self, first: Collector, path: Path) -> None:
        self._first, self._path = first, path
        self._runs: dict[_Said, Collector] = {}
        self._apart = _Apart()
        self._configs: dict[_Said, dict[str, tuple[int, dict[str, object]]]] = {}
        self._head: dict[str, str] = {}
        self._told: dict[tuple[str, ...], tuple[_Said, dict[str, object]]] = {}  # of like rows

    def of(self, row: Mapping[str, object], step: object) -> Collector:
        """The collector of the run whose settings a row repeats."""
        if IN_ROWS.isdisjoint(row) and "config" not in row:  # nearly every row of a million
            if step == 0:
                self._apart.at_zero = True
            else:
                self._apart.is_blank = True
            return self._first
        config = repr(row.get("config"))
        likeness = config, *(f"{key}={row[key]}" for key in sorted(IN_ROWS & row.keys()))
        if (told := self._told.get(likeness)) is None:
            told = self._read(row)
            if len(self._told) < MAX_RUNS:
                self._told[likeness] = told
        said, found = told
        if step is None:  # a line of settings alone, above the rows
            plain = {key: value for key, value in said if key in found}
            self._head = self._head or plain
            for key in plain.keys() & self._head.keys():
                self._refuse_two(key, self._head[key], plain[key])
            return self._first
        if not said:
            self._apart.is_blank = True
            return self._first
        if said not in self._runs and len(self._runs) < MAX_RUNS:
            own = Collector(self._first.name, self._first.errors, self._first.settings)
            self._runs[said] = own if self._runs else self._first
        self._apart.take(said, step)
        if "config" in row and (at := whole(step)) is not None:
            configs = self._configs.setdefault(said, {})
            if config in configs or len(configs) < _MAX_CONFIGS:
                begins = min(configs.get(config, (at, found))[0], at)
                configs[config] = begins, found
        return self._runs.get(said, self._first)

    def _read(self, row: Mapping[str, object]) -> tuple[_Said, dict[str, object]]:
        """What a row says of its run that tells runs apart, and all that it says of it."""
        found = settings_in_row(row)
        mapped = self._first.settings.columns
        names = sorted(
            key for key in found
            if key in IN_ROWS or may_be_setting(key.rpartition(".")[2]) or (
                key in mapped and mapped[key].metric.label in IN_ROWS
            ) or key.rpartition(".")[2] in ("n", "seed", "train_batch_size")
        )  # fmt: skip
        facts = facts_of(found) if "config" in row else {}
        return (*((key, str(found[key])) for key in names), *sorted(facts.items())), found

    def settle(self) -> list[Collector]:
        """The runs beyond the first, all named by what differs between them.

        Raises:
            UnclearError: where the rows may be of one run.
        """
        self._refuse_side_by_side()
        if not (differ := self._apart.differing(name := self._first.name)):
            return []
        if self._apart.at_zero:
            self._first.counters.infer(OF_BASE)
        for said, collector in self._runs.items():
            _rename(collector, name, said, differ)
            seeds = all(one.endswith("seed") for one in differ)
            collector.configure_beside(self._path, alone=seeds)
            collector.configure({k: v for k, v in said if k in differ})  # the rows' own
        return [one for one in self._runs.values() if one is not self._first]

    def _refuse_side_by_side(self) -> None:
        """Several configurations that begin at one step, under the settings of one run."""
        for configs in self._configs.values():
            (begins, first), *others = configs.values()
            for start, other in others:
                if start != begins:
                    continue
                key = next(k for k in {**first, **other} if first.get(k) != other.get(k))
                one, two = (clean_text(said.get(key, "none"), 40) for said in (first, other))
                raise UnclearError(
                    f"a run must have one configuration, but the rows of {self._first.name!r} have "
                    f"{key} {one} and {two} from step {begins} on; give the rows of each run a "
                    f"name in `run`, or say what it is with --map {key}=rollouts_per_problem."
                )

    def _refuse_two(self, key: str, one: str, other: str) -> None:
        if one != other:
            raise two_in_rows(self._first.name, key, one, other)


def one_of(
    collectors: dict[str, Collector], key: str, name: str, errors: Errors, settings: Settings, *,
    named: bool = True,
) -> Collector | None:
    """The collector of one of a file's runs; None beyond those that a file may have.

    Args:
        collectors: those of the file, by key; a new run is entered.
        key: what tells the run from others.
        name: what it is called; where it is `named`, a pattern may find its settings there.
        errors, settings: see `Collector`.
    """
    if key not in collectors:
        if len(collectors) >= MAX_RUNS:
            return None
        collectors[key] = Collector(name, errors, settings.for_run(name) if named else settings)
    return collectors[key]


def with_runs(
    path: Path, names: list[str], rows: Rows, series: Sequence[int], settings: Settings
) -> tuple[list[str], Rows, str]:
    """The columns, the rows, and a line where a column under another name tells runs apart.

    It holds words, and the steps begin anew with each of them: files and folders (`dir_name` of
    tbparse), or what says an n or a seed. Another may tell scores apart, not runs.

    Args:
        path: of the table.
        names: of the columns; "" for those that say nothing of runs.
        rows: below them.
        series: the columns of steps and, in a long table, of metrics.
        settings: what the user added.
    """
    may = [i for i, name in enumerate(names) if name.strip() and i not in series
           and name.strip().lower() not in (*CLOCKS, *OF_ROWS) and not says_one(name, settings)]
    if not may or identity_of(names, iter(()))[:2] != (None, None):
        return names, rows, ""
    kept = list(islice(rows, 1))
    may = [i for i in may if kept and (cell := kept[0][1][i].strip()) and number(cell) is None]
    if may:
        kept += islice(rows, _MOST_CELLS // len(names))
    rows, further = peeked(rows)
    twice = len(kept) - len({tuple(cells[i] for i in series) for _, cells in kept})
    for i in may if twice and not further else ():
        words = {cells[i].strip() for _, cells in kept}
        if not 1 < len(words) <= MAX_RUNS or not all(one and number(one) is None for one in words):
            continue
        said = {tuple(number_in(one, name) for name in DESIGN[1:]) for one in words}
        of_runs = len(said) > 1 or _OF_FILES.search(names[i])
        rows_of = Counter(cells[i].strip() for _, cells in kept).values()
        still = len(kept) - len({tuple(cells[j] for j in (i, *series)) for _, cells in kept})
        if still * _RARELY > twice or 2 * twice < len(kept) - max(rows_of):
            continue  # it tells no steps apart, or parts of a run that was resumed
        if not of_runs and not _OF_STARTS.search(names[i]):
            one, other = sorted(words)[:2]
            raise UnclearError(
                f"{path}: rows must be of one kind, but {names[i]} is {one} and {other}, and the "
                "steps begin anew with each; keep the rows of one, or call the column run if each "
                "is a run."
            )
        if of_runs:
            told = f"run: by {names[i]}, with whose words the steps begin anew"
            return [*names[:i], "run", *names[i + 1 :]], iter(kept), told
    return names, chain(kept, rows), ""


def peeked(rows: Rows) -> tuple[Rows, bool]:
    """The same rows, and whether there are any."""
    first = list(islice(rows, 1))
    return chain(first, rows), bool(first)


def identity_of(
    header: Sequence[str], rows: Rows
) -> tuple[int | None, int | None, Rows]:
    """The columns that name a run and that tell runs apart, where there are any; and the rows.

    A column `id` tells runs of one name apart, too, if its cells are no numbers.
    """
    plain = [cell.strip().lower() for cell in header]
    named = next((plain.index(c) for c in _RUN if c in plain), None)
    own = next((plain.index(c) for c in _ID if c in plain), None)
    named = own if named is None else named
    if own is not None or named is None or _OWN not in plain:
        return named, own, rows
    at = plain.index(_OWN)
    first = next(rows, None)
    if first is None:
        return named, None, rows
    cell = first[1][at].strip()
    return named, at if cell and number(cell) is None else None, chain([first], rows)
