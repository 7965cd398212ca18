"""Databases of one's own (SQLite): each table is a sheet, joined with what it is of.

A table with a column `run_id` has the settings of the table `run` or `runs` beside its own columns;
a table that others point to is no sheet, nor are rows with a loss where others have none. Counts of
right answers and of all make an accuracy, where no column is one.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isocompute.errors import InputError
from isocompute.importers.values.database import columns_of, opened
from isocompute.importers.words.scored import likely_key

_ENDINGS = (".db", ".sqlite", ".sqlite3")
_OURS = "study.db"  # a study's own records
MAX_ROWS = 1_000_000  # of a table of one's own
_MAGIC = b"SQLite format 3\0"
_RIGHT = re.compile(r"(?:n_|num_)?(?:correct|right|solved|passed|successes)", re.I)
_ALL = re.compile(r"(?:n_|num_)?(?:total|answers|answered|problems|questions|examples)", re.I)
_COUNTER = re.compile("step|update|batch|iter|epoch|rollout", re.I)
_OF_TRACKERS = ({"key", "value", "run_uuid", "step"}, {"key", "value", "run_id", "step"},
                {"run_name", "step", "metrics"})


class _Table(NamedTuple):
    names: list[str]
    rows: Sequence[Sequence[Any]]


def is_database(path: Path) -> bool:
    """Whether a file is a database of no tracker that is known, with a table of scores."""
    named = path.suffix.lower() in _ENDINGS and path.name != _OURS
    if not named or not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    try:
        with opened(path) as connection:
            columns = {name: columns_of(connection, name) for name in _names(connection)}
    except (sqlite3.Error, UnicodeDecodeError):
        return False  # read as a tracker's, and refused as damaged
    if any(words <= columns.get("metrics", set()) for words in _OF_TRACKERS):
        return False
    return any((likely_key([*one]) != "KEY" or right_of([*one])) and any(map(_COUNTER.search, one))
               for one in columns.values())  # fmt: skip


def _names(connection: sqlite3.Connection) -> list[str]:
    return [str(row[0]) for row in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    )]  # fmt: skip


def tables_in(path: Path) -> dict[str, list[list[Any]]]:
    """Its tables by name: the names of the columns, then the rows.

    Raises:
        InputError: if it cannot be read, or a table has more rows than any sweep.
    """
    try:
        with opened(path) as connection:
            read = {name: _Table(
                [*columns_of(connection, name)],
                connection.execute(f'SELECT * FROM "{name}" LIMIT {MAX_ROWS + 1}').fetchall(),
            ) for name in _names(connection)}  # fmt: skip
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: a database must be readable, but gives {str(error)[:80]}; copy it again."
        ) from error
    if large := next((name for name, table in read.items() if len(table.rows) > MAX_ROWS), None):
        raise InputError(
            f"{path}: a table must have at most {MAX_ROWS:,} rows, but {large} has more; write "
            "those of its scores as a CSV."
        )
    read = {name: _with_shares(table) for name, table in read.items()}
    joined = {name: _joined(name, table, read) for name, table in read.items()}
    parents = {parent for _, of in joined.values() for parent in of}
    found = {name: table for name, (table, _) in joined.items() if name not in parents}
    apart = {name: table for name, table in found.items() if "loss" not in table.names}
    return {name: [table.names, *map(list, table.rows)] for name, table in (apart or found).items()}


def right_of(names: Sequence[str]) -> tuple[int, int] | None:
    """The columns of right answers and of all, where no column is of their share.

    >>> right_of(["run_id", "n_correct", "n_total"]), right_of(["n_correct", "total", "acc"])
    ((1, 2), None)
    """
    found = [[i for i, one in enumerate(names) if words.fullmatch(one)] for words in (_RIGHT, _ALL)]
    if list(map(len, found)) != [1, 1]:
        return None
    (right,), (every,) = found
    others = [one for i, one in enumerate(names) if i not in (right, every)]
    return (right, every) if likely_key(others) == "KEY" else None


def _with_shares(table: _Table) -> _Table:
    """A table with the share of right answers, where it counts these and all."""
    if (columns := right_of(table.names)) is None or any(
        not all(isinstance(row[i], int) for i in columns) or not (
            0 <= row[columns[0]] <= row[columns[1]] != 0) for row in table.rows
    ):  # fmt: skip
        return table
    right, every = columns
    rows = [[*row, row[right] / row[every]] for row in table.rows]
    return _Table([*table.names, "accuracy"], rows)


def _joined(name: str, table: _Table, read: Mapping[str, _Table]) -> tuple[_Table, list[str]]:
    """A table with the columns of those that its `*_id` point to, and the names of these."""
    names, rows, of = table.names, [list(row) for row in table.rows], list[str]()
    for at, column in enumerate(table.names):
        base = column.removesuffix("_id")
        there = next((one for one in (base, f"{base}s") if one in read and one != name), None)
        if there is None or column == base or "id" not in read[there].names:
            continue
        parent = read[there]
        key = parent.names.index("id")
        by_id = {row[key]: row for row in parent.rows}
        if len(by_id) < len(parent.rows) or any(row[at] not in by_id for row in table.rows):
            continue
        new = [i for i, one in enumerate(parent.names) if i != key and one not in names]
        names = [*names, *(base if parent.names[i] == "name" else parent.names[i] for i in new)]
        rows = [[*row, *(by_id[row[at]][i] for i in new)] for row in rows]
        of.append(there)
    kept = [i for i, one in enumerate(names) if one != "id" and not (
        one.endswith("_id") and one.removesuffix("_id") in names)]  # fmt: skip
    return _Table([names[i] for i in kept], [[row[i] for i in kept] for row in rows]), of
