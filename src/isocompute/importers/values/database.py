"""Databases of others (SQLite): opened for reading only, with limits on every query."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from isocompute.importers.values.reading import MAX_LINE_BYTES

_STEPS_PER_CALLBACK = 1_000_000
MAX_CALLBACKS = 200_000  # virtual machine steps / 1e6: hours, but a planted view ends


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database for reading alone, that no planted schema or endless view can misuse."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=10)
    calls = 0

    def stop() -> int:
        nonlocal calls
        calls += 1
        return int(calls > MAX_CALLBACKS)

    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LINE_BYTES)
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA trusted_schema=OFF")  # no functions from a planted schema
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.set_progress_handler(stop, _STEPS_PER_CALLBACK)
        yield connection
    finally:
        connection.close()


def columns_of(connection: sqlite3.Connection, table: str) -> Set[str]:
    """Columns of a real table in their order; none for a view, which may never end."""
    kind = connection.execute(
        "SELECT type FROM sqlite_master WHERE name = ?", (table,)
    ).fetchone()
    if kind is None or kind[0] != "table":
        return {}.keys()
    rows = connection.execute(f'PRAGMA table_info("{table}")')
    return {str(row[1]): None for row in rows}.keys()
