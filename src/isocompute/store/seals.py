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
# Made by the first import; those that an older version made bear no seals until the next one.
IMPORTED = ("imports", "import_series", "import_scores", "import_outcomes", "import_errors")
_PIECE = 20_000  # rows per query: nobody's commit waits for a whole check
_NAMES = {"study": "key", "runs": "hash", "steps": "'run ' || run || ', step ' || step",
          "evaluations": "'run ' || run || ', step ' || step",
          "decisions": "'look ' || look", "imports": "name",
          "import_scores": "'series ' || series || ', step ' || step"}  # fmt: skip
_KEYS = {"import_scores": ("series", "step")}  # of a table without row numbers

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
    tables = imported(lambda sql, values: connection.execute(sql, values).fetchall())
    for table in (*TABLES, *tables):
        row = " AND ".join(f"{key} = NEW.{key}" for key in _KEYS.get(table, ("rowid",)))
        values = ", ".join(name for name in _columns(connection, table) if name != "seal")
        for event in ("INSERT", f"UPDATE OF {values}"):  # the seal's own update needs no seal
            connection.execute(
                f"CREATE TEMP TRIGGER IF NOT EXISTS seal_{event[:6]}_{table} AFTER {event} "
                f"ON main.{table} BEGIN UPDATE {table} SET seal = "
                f"{_expression(connection, table, 'NEW.')} WHERE {row}; END"
            )


def imported(read: Read) -> list[str]:
    """Those of `IMPORTED` that the file has and that bear seals."""
    names = {t: {row[1] for row in read(f"PRAGMA main.table_info({t})", ())} for t in IMPORTED}
    return [table for table in IMPORTED if "seal" in names[table]]


def has_imports(read: Read, where: str) -> bool:
    """Whether runs were imported into the file.

    Raises:
        InputError: if some of their tables are gone.
    """
    names = ", ".join(f"'{table}'" for table in IMPORTED)
    there = {r[0] for r in read(f"SELECT name FROM sqlite_schema WHERE name IN ({names})", ())}
    if there:
        refuse_broken([f"{t} (the table is gone)" for t in IMPORTED if t not in there], where)
    return bool(there)


def adopt(connection: sqlite3.Connection) -> None:
    """Give `IMPORTED` their seals where they have none yet, and keep them from now on."""
    for table in IMPORTED:
        if "seal" not in _columns(connection, table):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN seal BLOB")
            connection.execute(f"UPDATE {table} SET seal = {_expression(connection, table)}")
    install(connection)


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
    row = _KEYS.get(table, ("rowid",))[0]
    name = _NAMES.get(table, "'row ' || rowid")
    sql = (
        f"SELECT quote(CAST({name} AS BLOB)), {row} FROM {table} "
        f"WHERE seal IS NOT {_expression(connection, table)} AND "
    )
    if run is not None:
        rows = read(sql + "run = ? LIMIT 4", (run,))
    else:  # a seal cannot tell that a row is gone; the table's own structure can
        faults = [one[0] for one in read(f"PRAGMA integrity_check({table})", ())]
        if faults != ["ok"]:
            return [" ".join(str(fault).split())[:200] for fault in faults[:4]]
        last = read(f"SELECT coalesce(max({row}), -1) FROM {table}", ())[0][0]
        piece = _PIECE if row == "rowid" else _PIECE // 100
        rows = []
        for start in range(0, last + 1, piece):
            rows += read(sql + f"{row} BETWEEN ? AND ? LIMIT 4", (start, start + piece - 1))
    words = [bytes.fromhex(one[0][2:-1]).decode("utf-8", "replace") if one[0] != "NULL"
             else f"row {one[1]}" for one in rows[:4]]  # fmt: skip
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


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]


def _expression(connection: sqlite3.Connection, table: str, prefix: str = "") -> str:
    """`seal_of` of a row; text as bytes, which need not be valid UTF-8 to be compared."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    values = [
        f"CAST({prefix}{name} AS BLOB)" if kind == "TEXT" else f"{prefix}{name}"
        for _, name, kind, *_ in columns if name != "seal"
    ]  # fmt: skip
    return f"seal_of(CAST('{table}' AS BLOB), {', '.join(values)})"
