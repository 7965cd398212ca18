"""One connection to study.db: how it is opened, and what a transaction means.

`journal_mode=DELETE` and `synchronous=FULL`: a commit that returned survives a power cut.
(WAL in library versions before 3.51.3 can corrupt a database with several connections.)
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isocompute.errors import InputError, RunError
from isocompute.files import refuse_file
from isocompute.store import schema, seals

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_STORAGE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}  # fmt: skip
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class BusyError(RunError):
    """Another program held study.db locked for longer than this writer waits."""


class StorageError(RunError):
    """The folder cannot be written: full, read-only, quota, failing disk."""


class EmptyStudyError(InputError):
    """A study.db without tables: its first start was cut short."""


class FencedError(RunError):
    """This run was given to another runner; late rows of this one are refused."""


def storage_error(error: OSError) -> StorageError:
    """One line about a file operation that failed, for whoever has to make room."""
    reason = error.strerror or str(error)
    where = f" at {error.filename}" if error.filename else ""
    return StorageError(
        f"the study folder must be writable and have room, but the system says {reason!r}{where}; "
        "make room or set its permissions, then run the same command again: nothing committed "
        "is lost."
    )


def moved_line(copy: Path) -> str:
    """One line about a study that was brought up to date."""
    return f"study.db was brought up to date from an older version; as it was it is kept in {copy}"


class Database:
    """study.db of a study folder.

    Args:
        folder: the study folder.
        create: write; make the folder and the tables where they are missing, and bring those of
            an older version up to date, after a copy (`copy` says where).
        write: write to a file of this version.
        verify: refuse a file whose small tables are damaged; rows of runs are verified as they are
            read.

    Without `create` or `write` nothing is written, and an older file is read as it is.

    Raises:
        InputError: if there is no study, or a file in the folder's place, or it is from a newer
            isocompute, or damaged.
        StorageError: if the folder cannot be written although `create` asks for it.
    """

    def __init__(
        self, folder: str | Path, *, create: bool = False, write: bool = False, verify: bool = True
    ) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "study.db"
        self.copy: Path | None = None
        self.version = schema.SCHEMA_VERSION
        if create:
            refuse_file(self.folder)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                if not os.access(self.folder, os.W_OK):
                    raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(self.folder))
            except OSError as error:
                raise storage_error(error) from error
        elif not self.path.is_file():
            raise InputError(
                f"a study folder must hold study.db, but {str(self.folder)!r} does not; "
                "give one that `isocompute run` or `import` wrote."
            )
        try:
            with self._translated():
                self.connection = self._open(create=create, write=write)
        except OSError as error:
            raise storage_error(error) from error
        if verify:
            try:
                self.refuse_damage(seals.SMALL)
            except BaseException:
                self.close()
                raise

    def _open(self, *, create: bool, write: bool) -> sqlite3.Connection:
        # A reader, too, opens a file for writing where it may: a commit that was cut off is then
        # taken back. Nothing else is written (`query_only`).
        allowed = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        mode = "rwc" if create else ("rw" if allowed else "ro")
        uri = self.path.absolute().as_uri() + f"?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30.0)
        try:
            seals.prepare(connection)
            version = schema.check(connection)
            if version == 0 and not create:
                raise EmptyStudyError(
                    f"study.db must hold a study, but {str(self.path)!r} is empty; run the study "
                    "file again, which starts it anew."
                )
            if create or write:
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                self.copy = schema.create(connection)
            else:
                schema.read_as_now(connection, version)
                connection.execute("PRAGMA query_only = ON")
                self.version = version
        except BaseException:
            connection.close()
            raise
        return connection

    def faults(self) -> list[str]:
        """What is wrong with the file's structure."""
        checked = self.read("PRAGMA integrity_check(10)")
        rows = [" ".join(str(row[0]).split()) for row in checked]  # SQLite quotes whole schemas
        found = [row for row in rows if row != "ok"]
        if not found and self.version == schema.SCHEMA_VERSION:
            with self._translated():
                missing = schema.missing_columns(self.connection)
            found = [f"column {column} is missing" for column in missing]
        return found

    def refuse_damage(self, tables: Sequence[str], run: int | None = None) -> None:
        """Compare rows with their seals; older files have none.

        Args:
            tables: which.
            run: only this run's rows.

        Raises:
            InputError: names the rows that are not as they were committed.
        """
        rows = seals.broken(self.connection, self.read, self.sealed(tables), run)
        seals.refuse_broken(rows, str(self.path))

    def sealed(self, tables: Sequence[str] = seals.TABLES) -> list[str]:
        """Those of the tables whose rows bear seals in a file of this version."""
        return [t for t in tables if self.version >= seals.SINCE.get(t, seals.FIRST)]

    def refuse_moved(self) -> None:
        """Refuse to go on in a folder that was moved: it would be begun anew where it was.

        Raises:
            StorageError: says where it was.
        """
        if not self.path.is_file():
            raise StorageError(
                "the study folder must stay where it is while it is trained in, but "
                f"{str(self.path)!r} has gone; run it again with -o FOLDER, where it is now: "
                "nothing committed is lost."
            )

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @contextlib.contextmanager
    def write(self, *, patience_s: float = 60.0) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing.

        Args:
            patience_s: how long to wait for other programs' locks.

        Raises:
            BusyError: if the lock was not free in time; nothing was written.
            StorageError: if the disk refuses, or a newer isocompute has changed the tables;
                nothing was written.
        """
        connection = self.connection
        with self._translated():
            connection.execute(f"PRAGMA busy_timeout = {int(patience_s * 1000)}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version != schema.SCHEMA_VERSION:
                    raise StorageError(
                        f"study.db must stay at schema {schema.SCHEMA_VERSION} while in use by "
                        f"this isocompute, but another version upgraded it to {version}; continue "
                        "with that version: nothing committed is lost."
                    )
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back by itself after some errors.
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def spend(
        self, purpose: str, rollouts: int, *, tokens: int, wall_s: float, detail: str = ""
    ) -> None:
        """Book rollouts that no run drew."""
        with self.write() as connection:
            connection.execute(
                "INSERT INTO ledger (purpose, rollouts, tokens, wall_s, detail) "
                "VALUES (?, ?, ?, ?, ?)", (purpose, rollouts, tokens, wall_s, detail),
            )  # fmt: skip

    def entry(self, key: str) -> Any:
        """What the study says under a key of its own; None where it does not."""
        row = self.read("SELECT value FROM study WHERE key = ?", (key,))
        return json.loads(row[0][0]) if row else None

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of one query; the lock is held only while they are fetched."""
        deadline = time.monotonic() + 60.0
        while True:
            try:
                with self._translated():
                    return self.connection.execute(sql, parameters).fetchall()
            except BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            primary = None if code is None else code & 0xFF
            if primary in _BUSY:
                raise BusyError(
                    "study.db must be free within the waiting time, but another program holds "
                    "it locked; close that program's query and try again."
                ) from error
            if primary in _STORAGE:
                if hasattr(self, "connection"):
                    self.refuse_moved()
                raise StorageError(
                    f"the study folder must be writable and have room, but SQLite says {error}; "
                    "make room or set its permissions, then run the same command again: nothing "
                    "committed is lost."
                ) from error
            if primary in _DAMAGED or not isinstance(
                error, (sqlite3.ProgrammingError, sqlite3.IntegrityError)
            ):
                raise InputError(
                    f"study.db must be an intact SQLite file, but SQLite says "
                    f"{' '.join(str(error).split())}; run "
                    "`isocompute doctor` on its folder, or restore it from a copy."
                ) from error
            raise
