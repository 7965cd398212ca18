"""Tables whose rows no column names a run for: told apart by the settings that they repeat.

A table that was made of several runs and has no column `run` still says in every row which B_p, n,
seed or model it is of; rows that differ there are of different runs. A batch that changes within
one run looks alike, but its parts follow each other: those are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from isocompute.importers.configuration import IN_ROWS, MODELS
from isocompute.importers.reading import clean_text, run_name, whole
from isocompute.importers.runs import UnclearError
from isocompute.importers.settings import Settings

_SETTING = re.compile(r"^(?:run|config)\.(?:hparams\.)?")  # Aim 3.29, sdk/sequences/metric.py


class _Named(Protocol):
    def rename(self, name: str) -> None: ...


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


def two_runs(path: Path, name: str, column: str, first: str, other: str) -> UnclearError:
    """The refusal of rows that say two things of one run."""
    return UnclearError(
        f"{path}: a run must have one {column.strip()}, but the rows of {name!r} have "
        f"{clean_text(first)} and {clean_text(other)}; give each run a name of its own in a column "
        "`run` (a batch that changes within a run is not read)."
    )


class Unnamed:
    """The runs of a table without a column that names them."""

    def __init__(self, path: Path, header: Sequence[str], settings: Settings) -> None:
        self._path, self._name = path, run_name(path)
        self._columns = [(i, c) for i, c in enumerate(header) if says_one(c, settings)]
        self._said: dict[str, tuple[str, ...]] = {}
        self._range: dict[str, tuple[int, int]] = {}

    def key(self, cells: Sequence[str], step: str) -> str:
        """What tells the run of a row from others of the table."""
        if not self._columns:
            return self._name
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

    def settle(self, collectors: Mapping[str, _Named]) -> str:
        """Name the runs by what differs between them; what was inferred, in words.

        Raises:
            UnclearError: where the parts may be of one run.
        """
        if len(self._said) < 2:
            return ""
        differ = [j for j in range(len(self._columns))
                  if len({said[j] for said in self._said.values()}) > 1]  # fmt: skip
        first, other = list(self._said.values())[:2]
        at = next(j for j in differ if first[j] != other[j])
        blank = any(not said[j] for said in self._said.values() for j in differ)
        begins = [first for first, _ in self._range.values()]
        ends = [last for _, last in self._range.values()]
        if blank or (begins and max(begins) > min(ends)):
            raise two_runs(
                self._path, self._name, self._columns[at][1], first[at] or "none",
                other[at] or "none",
            )
        for key, one in ((k, c) for k, c in collectors.items() if k in self._said):
            words = " ".join(f"{self._columns[j][1].strip()}={self._said[key][j]}" for j in differ)
            one.rename(f"{self._name} {words}")
        listed = ", ".join(self._columns[j][1].strip() for j in differ)
        return f"run: no column names it; rows that differ in {listed} are of different runs"
