"""The tables of study.db, their version, and how older files are brought up to date.

Everything is plain SQL types, so that any SQLite reader can open the file:
counts of problems by number of successes are JSON text ("[12,3,0,1,284]": 12 problems with 0
successes, 284 with all 4), and per-problem arrays are little-endian unsigned integers of
equal width (bytes / problems = width). `runs.findings` is what the health rules found up to a step:
{"step": 120, "findings": [...]}; where it is missing or of another step, steps say the same.
`seal`, the last column of every table but `runners`, is a hash of the row (see `seals`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from isocompute.errors import InputError
from isocompute.files import drafted
from isocompute.store import seals
from isocompute.store.processes import has_died

APPLICATION_ID = 0x69736F63  # "isoc", so that another program's database is told apart
SCHEMA_VERSION = 5
_WATCH_S = 30.0  # a runner that works raises its counter every two seconds

# problem_set is '' for the training set, position the place in the set.
_UNJUDGED = """
CREATE TABLE unjudged (
    run INTEGER NOT NULL REFERENCES runs (run), step INTEGER NOT NULL,
    problem_set TEXT NOT NULL, position INTEGER NOT NULL, rollouts INTEGER NOT NULL,
    message TEXT NOT NULL, response TEXT NOT NULL,
    UNIQUE (run, step, problem_set, position));
"""

# 0, 0 is the sweep itself; rollouts are a JSON list, those of each seed that trains, and numbers
# what the decision follows from.
_DECISIONS = """
CREATE TABLE decisions (
    look INTEGER NOT NULL, problems_per_batch INTEGER NOT NULL,
    rollouts_per_problem INTEGER NOT NULL, action TEXT NOT NULL,
    rollouts TEXT NOT NULL, numbers TEXT NOT NULL, seal BLOB,
    UNIQUE (look, problems_per_batch, rollouts_per_problem));
"""

_TABLES = """
CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE problem_sets (
    sha256 TEXT PRIMARY KEY, verifier TEXT NOT NULL, size INTEGER NOT NULL);
CREATE TABLE problems (
    set_sha256 TEXT NOT NULL REFERENCES problem_sets (sha256), position INTEGER NOT NULL,
    id TEXT NOT NULL, prompt TEXT NOT NULL, answer TEXT NOT NULL, source TEXT NOT NULL,
    pass_rate REAL, pass_rate_samples INTEGER, PRIMARY KEY (set_sha256, position));
CREATE TABLE runs (
    run INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, spec TEXT NOT NULL,
    target_steps INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'done', 'failed', 'invalid')),
    reason TEXT NOT NULL DEFAULT '',
    steps_done INTEGER NOT NULL DEFAULT 0,
    rollouts INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0,
    evaluation_rollouts INTEGER NOT NULL DEFAULT 0,
    evaluation_tokens INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    first_weights TEXT NOT NULL DEFAULT '', findings TEXT,
    lease_runner TEXT, lease_token INTEGER NOT NULL DEFAULT 0);
CREATE TABLE runners (
    runner TEXT PRIMARY KEY, process TEXT NOT NULL, beat INTEGER NOT NULL DEFAULT 0);
CREATE TABLE attempts (
    attempt INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES runs (run),
    token INTEGER NOT NULL, runner TEXT NOT NULL,
    from_step INTEGER NOT NULL, target_steps INTEGER NOT NULL,
    outcome TEXT NOT NULL, detail TEXT NOT NULL DEFAULT '',
    rollouts INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0,
    evaluation_rollouts INTEGER NOT NULL DEFAULT 0,
    evaluation_tokens INTEGER NOT NULL DEFAULT 0,
    wall_s REAL NOT NULL DEFAULT 0, started_utc TEXT NOT NULL,
    host TEXT NOT NULL, versions TEXT NOT NULL);
CREATE TABLE steps (
    run INTEGER NOT NULL REFERENCES runs (run), step INTEGER NOT NULL, attempt INTEGER NOT NULL,
    rollouts INTEGER NOT NULL, tokens INTEGER NOT NULL, samples INTEGER NOT NULL,
    wall_s REAL NOT NULL, health TEXT NOT NULL,
    size INTEGER NOT NULL, problems BLOB NOT NULL, successes BLOB NOT NULL,
    UNIQUE (run, step));
CREATE TABLE evaluations (
    run INTEGER NOT NULL REFERENCES runs (run), step INTEGER NOT NULL,
    problem_set TEXT NOT NULL, attempt INTEGER NOT NULL,
    rollouts INTEGER NOT NULL, tokens INTEGER NOT NULL, samples INTEGER NOT NULL,
    sampled_rollouts INTEGER NOT NULL, sampled_tokens INTEGER NOT NULL, wall_s REAL NOT NULL,
    counts TEXT NOT NULL, successes BLOB NOT NULL,
    UNIQUE (run, step, problem_set));
CREATE TABLE checkpoints (
    run INTEGER NOT NULL REFERENCES runs (run), step INTEGER NOT NULL, token INTEGER NOT NULL,
    serial INTEGER NOT NULL, sha256 TEXT NOT NULL, weights_sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL, UNIQUE (run, token, serial));
CREATE TABLE ledger (
    entry INTEGER PRIMARY KEY AUTOINCREMENT, purpose TEXT NOT NULL,
    rollouts INTEGER NOT NULL, tokens INTEGER NOT NULL, wall_s REAL NOT NULL,
    detail TEXT NOT NULL);
""" + _UNJUDGED

# Made by the first import; what they hold is said in `importers.archive`.
_IMPORTS = """
CREATE TABLE IF NOT EXISTS imports (
    import INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL,
    problems_per_batch INTEGER NOT NULL, rollouts_per_problem INTEGER NOT NULL,
    steps INTEGER, seed INTEGER, n_rows INTEGER NOT NULL, n_errors INTEGER NOT NULL,
    notes TEXT NOT NULL, provenance TEXT NOT NULL, UNIQUE (name, sha256));
CREATE TABLE IF NOT EXISTS import_series (
    series INTEGER PRIMARY KEY, import INTEGER NOT NULL REFERENCES imports (import),
    metric TEXT NOT NULL, kind TEXT NOT NULL, samples INTEGER, estimator TEXT NOT NULL,
    variable TEXT NOT NULL, core INTEGER NOT NULL, problem_set TEXT NOT NULL,
    split TEXT NOT NULL, n_missing INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS import_scores (
    series INTEGER NOT NULL REFERENCES import_series (series), step INTEGER NOT NULL,
    rollouts REAL, tokens REAL, score REAL NOT NULL, PRIMARY KEY (series, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS import_outcomes (
    import INTEGER NOT NULL REFERENCES imports (import), step INTEGER NOT NULL,
    problem_set TEXT NOT NULL, split TEXT NOT NULL, samples INTEGER NOT NULL,
    counts TEXT NOT NULL, successes BLOB NOT NULL, problems TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS import_errors (
    import INTEGER NOT NULL REFERENCES imports (import), file TEXT NOT NULL,
    line INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS import_errors_of ON import_errors (import);
CREATE INDEX IF NOT EXISTS import_series_of ON import_series (import);
CREATE INDEX IF NOT EXISTS import_outcomes_of ON import_outcomes (import);
"""

# From version k to k + 1, for k = 1, 2, ...; each entry runs in one transaction.
_MIGRATIONS: dict[int, str] = {
    1: "ALTER TABLE runs ADD COLUMN findings TEXT",
    2: _UNJUDGED,
    3: ";".join(f"ALTER TABLE {table} ADD COLUMN seal BLOB" for table in seals.TABLES
                if table not in seals.SINCE),
    4: _DECISIONS,
}  # fmt: skip
# What a reader of version k puts before its tables, so that an old file is read as it is.
_READ_AS_NOW: dict[int, str] = {
    1: "CREATE TEMP VIEW runs AS SELECT *, NULL AS findings FROM main.runs",
    2: _UNJUDGED.replace("CREATE TABLE", "CREATE TEMP TABLE"),
    4: _DECISIONS.replace("CREATE TABLE", "CREATE TEMP TABLE"),
}


class NewerVersionError(InputError):
    """The file is of a newer isocompute, which must read it."""


def create(connection: sqlite3.Connection) -> Path | None:
    """Make the tables in an empty database, in one transaction; bring older ones up to date.

    Returns:
        Where the file was copied before it was brought up to date, or None where nothing was.

    Raises:
        InputError: if the file is another program's, from a newer isocompute, or an older one is
            at work on it.
    """
    version = check(connection)
    copy = None
    if version < SCHEMA_VERSION:
        if version and _at_work(connection):
            raise InputError(
                f"no runner may work on a study of schema {version} while it is upgraded to "
                f"{SCHEMA_VERSION}, but one of an older isocompute does; wait for its end, or stop "
                "it (Ctrl-C) and continue with this version."
            )
        connection.execute("BEGIN IMMEDIATE")
        version = check(connection)  # another runner may have come first
        if version == 0:
            _statements(connection, _TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            version = 3  # what those tables are; the seals are the same for old and new files
        elif version < SCHEMA_VERSION:
            copy = _copy(connection, version)
        for older in range(version, SCHEMA_VERSION):
            _statements(connection, _MIGRATIONS[older])
        if version < seals.FIRST:
            seals.seal_all(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    seals.install(connection)
    return copy


def create_imports(connection: sqlite3.Connection) -> None:
    """Make the tables of imported runs where they are missing."""
    _statements(connection, _IMPORTS)


def read_as_now(connection: sqlite3.Connection, version: int) -> None:
    """Lay over an older file what its tables lack; nothing of it is written to the file."""
    connection.execute("PRAGMA temp_store = MEMORY")
    for older in range(version, SCHEMA_VERSION):
        _statements(connection, _READ_AS_NOW.get(older, ""))


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Columns, as `table.name TYPE`, that a file of this version has under another name or not."""
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    try:
        seals.prepare(fresh)
        create(fresh)
        create_imports(fresh)
        imported = [table for table in seals.IMPORTED if _columns(connection, [table])]
        tables = (*seals.TABLES, "runners", *imported)
        return sorted(_columns(fresh, tables) - _columns(connection, tables))
    finally:
        fresh.close()


def _columns(connection: sqlite3.Connection, tables: Sequence[str]) -> set[str]:
    return {
        f"{table}.{row[1]} {row[2]}"
        for table in tables
        for row in connection.execute(f"PRAGMA main.table_info({table})")
    }


def _copy(connection: sqlite3.Connection, version: int) -> Path:
    """A copy of the file beside it, whole or not there, while its lock is held.

    By SQLite: closing a file of one's own would drop the locks that this process has on it.
    """
    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    copy = path.with_name(f"study.schema-{version}.db")
    with drafted(copy) as draft:
        source = sqlite3.connect(path.as_uri() + "?mode=ro", uri=True)
        target = sqlite3.connect(draft)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()
    return copy


def _at_work(connection: sqlite3.Connection) -> bool:
    """Whether some runner's heartbeat moves; one that is not known dead is watched for a while."""
    first: dict[str, int] = {}
    began = time.monotonic()
    while time.monotonic() - began < _WATCH_S:
        rows = connection.execute("SELECT runner, process, beat FROM runners").fetchall()
        alive = [row for row in rows if not has_died(row[1])]
        if not alive:
            return False
        if any(first.setdefault(runner, beat) != beat for runner, _, beat in alive):
            return True
        time.sleep(0.25)
    return False


def check(connection: sqlite3.Connection) -> int:
    """Schema version of the file; 0 for an empty one.

    Raises:
        InputError: if the file is another program's, or from a newer isocompute.
    """
    # In one transaction: another process may be making the file right now.
    own = not connection.in_transaction
    if own:
        connection.execute("BEGIN")
    try:
        version, application, tables = (
            int(connection.execute(query).fetchone()[0])
            for query in ("PRAGMA user_version", "PRAGMA application_id",
                          "SELECT count(*) FROM sqlite_schema")
        )  # fmt: skip
    finally:
        if own and connection.in_transaction:
            connection.execute("ROLLBACK")
    if version == 0 and application == APPLICATION_ID:
        raise InputError(
            "study.db must name the version of its tables, but it says 0; it is damaged, restore "
            "it from a copy."
        )
    if application != APPLICATION_ID and (tables or application or version):
        raise InputError(
            "study.db must be a study of isocompute (application_id "
            f"{APPLICATION_ID}), but got {application}; choose another folder."
        )
    if version > SCHEMA_VERSION:
        raise NewerVersionError(
            f"this isocompute reads studies up to schema {SCHEMA_VERSION}, but study.db has "
            f"schema {version}; upgrade isocompute. The file was left as it is."
        )
    return version


def _statements(connection: sqlite3.Connection, script: str) -> None:
    # executescript would commit first; these must all be in the transaction that is open.
    for statement in script.split(";"):
        if statement.strip():
            connection.execute(statement)
