"""Every record bears a hash of itself, as every checkpoint does: a flipped bit is found and named.

Triggers of the writing connection seal each row that it inserts or changes, whoever wrote the
statement. They are not part of the file, so another program may open it; what that program
changes counts as damage.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from isocompute.errors import InputError

FIRST = 4  # the version of the file from which rows are sealed
SINCE = {"decisions": 5}  # tables that came later
SMALL = ("study", "problem_sets", "runs", "attempts", "checkpoints", "ledger", "decisions")
OF_A_RUN = ("steps", "evaluations", "unjudged")
TABLES = (*SMALL, *OF_A_RUN, "problems")
_PIECE = 20_000  # rows per query: nobody's commit waits for a whole check
_NAMES = {"study": "key", "runs": "hash", "steps": "'run ' || run || ', step ' || step",
          "evaluations": "'run ' || run || ', step ' || step",
          "decisions": "'look ' || look"}  # fmt: skip

Read = Callable[[str, tuple[Any, ...]], list[Any]]


def seal_of(*values: int | float | bytes | None) -> bytes:
    """Eight bytes that a row's table and values determine.

    >>> seal_of(b"study", 1, None).hex() == seal_of(b"study", 2, None).hex()
    False
    """
    words = [v if isinstance(v, bytes) else repr(v).encode() for v in values]
    return blake2b(b"\x1f".join(words), digest_size=8).digest()


def prepare(connection: sqlite3.Connection) -> None:
    """Make `seal_of` known to a connection."""
    connection.create_function("seal_of", -1, seal_of, deterministic=True)


def install(connection: sqlite3.Connection) -> None:
    """Seal whatever this connection writes from now on."""
    for table in TABLES:
        for event in ("INSERT", "UPDATE"):
            connection.execute(
                f"CREATE TEMP TRIGGER IF NOT EXISTS seal_{event}_{table} AFTER {event} "
                f"ON main.{table} BEGIN UPDATE {table} SET seal = "
                f"{_expression(connection, table, 'NEW.')} WHERE rowid = NEW.rowid; END"
            )


def seal_all(connection: sqlite3.Connection) -> None:
    """Seal the rows that an older version wrote."""
    for table in TABLES:
        connection.execute(f"UPDATE {table} SET seal = {_expression(connection, table)}")


def broken(
    connection: sqlite3.Connection, read: Read, tables: Sequence[str] = TABLES,
    run: int | None = None,
) -> list[str]:
    """Rows that are not as they were committed, as `table (row)`; at most four of a table.

    Args:
        connection: of the file, for the names of its columns.
        read: how to read it.
        tables: which.
        run: of `OF_A_RUN`, only this run's rows.
    """
    found = []
    for table in tables:
        try:
            found += [f"{table} ({row})" for row in _broken(connection, read, table, run)]
        # The table itself cannot be read.
        except (sqlite3.Error, UnicodeDecodeError, InputError) as error:
            found.append(f"{table} ({' '.join(str(error).split())[:200]})")
    return found


def _broken(
    connection: sqlite3.Connection, read: Read, table: str, run: int | None
) -> list[str]:
    name = _NAMES.get(table, "'row ' || rowid")
    sql = (
        f"SELECT quote(CAST({name} AS BLOB)), rowid FROM {table} "
        f"WHERE seal IS NOT {_expression(connection, table)} AND "
    )
    if run is not None:
        rows = read(sql + "run = ? LIMIT 4", (run,))
    else:  # a seal cannot tell that a row is gone; the table's own structure can
        faults = [row[0] for row in read(f"PRAGMA integrity_check({table})", ())]
        if faults != ["ok"]:
            return [" ".join(str(fault).split())[:200] for fault in faults[:4]]
        last = read(f"SELECT coalesce(max(rowid), -1) FROM {table}", ())[0][0]
        rows = []
        for start in range(0, last + 1, _PIECE):
            rows += read(sql + "rowid BETWEEN ? AND ? LIMIT 4", (start, start + _PIECE - 1))
    words = [bytes.fromhex(row[0][2:-1]).decode("utf-8", "replace") if row[0] != "NULL"
             else f"row {row[1]}" for row in rows[:4]]  # fmt: skip
    return ["".join(c if c.isprintable() else "?" for c in word) for word in words]


def refuse_broken(rows: Sequence[str], where: str) -> None:
    """Raise if there are any.

    Raises:
        InputError: names them.
    """
    if rows:
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
        raise InputError(
            f"records must be as they were committed, but {where} is damaged at "
            f"{', '.join(rows[:3])}{more}; restore it from a copy (`isocompute doctor` lists all)."
        )


def _expression(connection: sqlite3.Connection, table: str, prefix: str = "") -> str:
    """`seal_of` of a row; text as bytes, which need not be valid UTF-8 to be compared."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    values = [
        f"CAST({prefix}{name} AS BLOB)" if kind == "TEXT" else f"{prefix}{name}"
        for _, name, kind, *_ in columns if name != "seal"
    ]  # fmt: skip
    return f"seal_of(CAST('{table}' AS BLOB), {', '.join(values)})"
