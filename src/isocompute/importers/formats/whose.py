"""Whose a row is, in a file of several runs: what a key or a column says, or settings that differ.

Rows that no key names a run for still say in every row which B_p, n, seed or model they are of;
rows that differ there are of different runs. A batch that changes within one run looks alike, but
its parts follow each other: those are refused. Of JSON lines that hold also for what their `config`
says of model and learning rate; what else of a `config` differs from the first step on is no run
that is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from isocompute.importers.beside.described import two_in_rows
from isocompute.importers.runs.begun import OF_BASE
from isocompute.importers.runs.collect import MAX_RUNS, Collector
from isocompute.importers.values.cells import Rows
from isocompute.importers.values.imported import Errors, UnclearError
from isocompute.importers.values.reading import clean_text, number, whole
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import IN_ROWS, MODELS, facts_of, settings_in_row
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.vocabulary import STEP_KEYS

_SETTING = re.compile(r"^(?:run|config)\.(?:hparams\.)?")  # Aim 3.29, sdk/sequences/metric.py
_Said = tuple[tuple[str, str], ...]
_MAX_CONFIGS = 100  # of one run, where a part of its configuration changes
STEP_COLUMNS = ("step", "_step", "global_step", "iteration", "update", "steps", *STEP_KEYS)
_RUN = ("run", "run_name", "experiment", "trial", "name", "run.name")
_ID = ("run_id", "run_uuid", "run.hash", "run id", "wandb_id")  # tells runs of one name apart
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


def _two_runs(path: Path, name: str, column: str, first: str, other: str) -> UnclearError:
    """The refusal of rows that say two things of one run."""
    return UnclearError(
        f"{path}: a run must have one {column.strip()}, but the rows of {name!r} have "
        f"{clean_text(first)} and {clean_text(other)}; give each run a name of its own in a column "
        "`run` (a batch that changes within a run is not read)."
    )


class RunsOfTable:
    """The collectors of a table's runs: by columns that name them, else by settings that differ.

    Args:
        path: of the table.
        header: its columns; "" for one that says nothing of runs.
        rows: below it; `rows` has them all afterwards.
        settings, errors: see `Collector`.
    """

    def __init__(
        self, path: Path, header: Sequence[str], rows: Rows, settings: Settings, errors: Errors
    ) -> None:
        self.named, self.own, self.rows = identity_of(header, rows)
        self.found: dict[str, Collector] = {}  # by what tells them apart
        self._path, self._name, self._settings, self._errors = (
            path, run_name(path), settings, errors
        )  # fmt: skip
        every = [(i, c) for i, c in enumerate(header) if says_one(c, settings)]
        self._columns = every if self.named is None else []
        self._fixed = [(i, c) for i, c in every if setting_of(c) not in MODELS]
        self._held: dict[tuple[str, str], str] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        self._range: dict[str, tuple[int, int]] = {}

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
                raise _two_runs(self._path, clean_text(name), column, before, cells[i])
        named = self.named is not None
        return key, one_of(self.found, key, name, self._errors, self._settings, named=named)

    def _key(self, cells: Sequence[str], step: str) -> str:
        said = tuple(
            steady(cells[i], step) if setting_of(c) in MODELS else cells[i].strip()
            for i, c in self._columns
        )
        key = "\0".join(said)
        self._said.setdefault(key, said)
        at = whole(step)
        if at is not None:
            first, last = self._range.get(key, (at, at))
            self._range[key] = min(first, at), max(last, at)
        return key

    def settle(self) -> dict[str, Collector]:
        """The runs; those that no column names bear what differs between them.

        Raises:
            UnclearError: where the parts may be of one run.
        """
        if len(self._said) < 2:
            return self.found
        differ = [j for j in range(len(self._columns))
                  if len({said[j] for said in self._said.values()}) > 1]  # fmt: skip
        first, other = list(self._said.values())[:2]
        at = next(j for j in differ if first[j] != other[j])
        blank = any(not said[j] for said in self._said.values() for j in differ)
        begins = [first for first, _ in self._range.values()]
        ends = [last for _, last in self._range.values()]
        if blank or (begins and max(begins) > min(ends)):
            raise _two_runs(
                self._path, self._name, self._columns[at][1], first[at] or "none",
                other[at] or "none",
            )
        listed = ", ".join(self._columns[j][1].strip() for j in differ)
        told = f"run: no column names it; rows that differ in {listed} are of different runs"
        for one in self.found.values():
            one.counters.infer(told)
        for key, one in ((k, c) for k, c in self.found.items() if k in self._said):
            words = " ".join(f"{self._columns[j][1].strip()}={self._said[key][j]}" for j in differ)
            one.rename(f"{self._name} {words}")
        return self.found


class UnnamedRows:
    """A collector for every choice of settings that the rows of one file say."""

    def __init__(self, first: Collector, path: Path) -> None:
        self._first, self._path = first, path
        self._runs: dict[_Said, Collector] = {}
        self._steps: dict[_Said, tuple[int, int]] = {}
        self._configs: dict[_Said, dict[str, tuple[int, dict[str, object]]]] = {}
        self._head: dict[str, str] = {}
        self._told: dict[tuple[str, ...], tuple[_Said, dict[str, object]]] = {}  # of like rows
        self._blank = self._at_zero = False  # a row that says nothing of the kind; of step 0

    def of(self, row: Mapping[str, object], step: object) -> Collector:
        """The collector of the run whose settings a row repeats."""
        if IN_ROWS.isdisjoint(row) and "config" not in row:  # nearly every row of a million
            if step == 0:
                self._at_zero = True
            else:
                self._blank = True
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
            self._blank = True
            return self._first
        if said not in self._runs and len(self._runs) < MAX_RUNS:
            own = Collector(self._first.name, self._first.errors, self._first.settings)
            self._runs[said] = own if self._runs else self._first
        at = whole(step)
        if at is not None:
            low, high = self._steps.get(said, (at, at))
            self._steps[said] = min(low, at), max(high, at)
            if "config" in row:
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
        if len(self._runs) < 2:
            return []
        all_said = [dict(said) for said in self._runs]
        keys = list(dict.fromkeys(key for said in all_said for key in said))
        differ = [key for key in keys if len({said.get(key) for said in all_said}) > 1]
        first = next(iter(all_said))
        other, key = next(
            (said, key) for said in all_said[1:] for key in differ
            if said.get(key) != first.get(key)
        )  # fmt: skip
        ends = list(self._steps.values())
        after = len(ends) < len(self._runs) or max(a for a, _ in ends) > min(b for _, b in ends)
        again = self._at_zero and not min((a for a, _ in ends), default=0)  # a run has its own
        blank = self._blank or again or any(k not in said for said in all_said for k in differ)
        if blank or after:
            self._refuse_two(key, first.get(key, "none"), other.get(key, "none"))
        if self._at_zero:
            self._first.counters.infer(OF_BASE)
        name = self._first.name
        for said, collector in self._runs.items():
            collector.rename(f"{name} " + " ".join(f"{k}={v}" for k, v in said if k in differ))
            collector.counters.infer(
                f"run: no key names it; rows that differ in {', '.join(differ)} are of different "
                "runs"
            )
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
