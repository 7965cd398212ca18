"""Columns of evaluations as arrays: a million rows in seconds, because no object is made per value.

Shape legend: K evaluations, C = K + 1 possible numbers of successes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.store.database import Database

PIECE = 100_000  # rows per query: a reader never holds the file for long
_SQL = (
    "SELECT group_concat(run), group_concat(step), group_concat(rollouts), "
    "group_concat(tokens), group_concat(samples), group_concat(wall_s), "
    "group_concat(substr(counts, 2, length(counts) - 2)) "
    "FROM evaluations WHERE problem_set = ? AND "
)


def last_evaluation(database: Database) -> int:
    """Number of the last row, -1 where there is none."""
    return int(database.read("SELECT coalesce(max(rowid), -1) FROM evaluations")[0][0])


def evaluation_columns(
    database: Database, name: str, run: int | None
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Columns of one set's evaluations, of one run or of all, in pieces.

    SQLite joins each column into one text and numpy parses it.
    """
    last = 0 if run is not None else last_evaluation(database)
    for start in range(0, last + 1, PIECE):
        where, values = (
            ("rowid BETWEEN ? AND ?", (start, start + PIECE - 1))
            if run is None else ("run = ?", (run,))
        )  # fmt: skip
        row = database.read(_SQL + where, (name, *values))[0]
        if row[0] is not None:
            yield tuple(
                np.fromstring(text, sep=",", dtype=np.float64 if i == 5 else np.int64)
                for i, text in enumerate(row)
            )


def spread_counts(flat: NDArray[np.int64], samples_K: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts one after the other -> one array (K, C), 0 beyond a row's samples.

    Raises:
        InputError: if there are not as many counts as the numbers of samples ask for.
    """
    width = int(samples_K.max()) + 1
    counts_KC = np.zeros((len(samples_K), width), dtype=np.int64)
    filled = np.arange(width)[None, :] <= samples_K[:, None]
    if len(flat) != filled.sum():
        raise InputError(
            f"evaluations must hold one count per number of successes, {filled.sum()} in all, but "
            f"got {len(flat)}; study.db is damaged, run `isocompute doctor`."
        )
    counts_KC[filled] = flat
    return counts_KC
