"""Is a study folder sound? Every check says what it found and what to do."""

from __future__ import annotations

import functools
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from isocompute.errors import InputError
from isocompute.store import schema, seals
from isocompute.store.database import Database, EmptyStudyError
from isocompute.store.files import checkpoint_folder, fault
from isocompute.store.leases import beats, owner_of
from isocompute.store.pack import fits
from isocompute.store.processes import has_died


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a check found.

    Args:
        code: stable word for it.
        severity: "error": records or checkpoints are damaged; "warning": repaired by the next
            runner, or worth knowing; "info".
        message: one line.
    """

    code: str
    severity: Literal["error", "warning", "info"]
    message: str


def examine(folder: str | Path) -> list[Finding]:
    """Check the file, the rows against each other, and the checkpoints against their hashes.

    Returns:
        Findings, errors first; empty for a sound study.

    Raises:
        InputError: if there is no study there, or it is from a newer version.
    """
    try:
        database = Database(folder, verify=False)
    except EmptyStudyError as error:
        return [Finding(code="not_begun", severity="warning", message=str(error))]
    except InputError as error:
        newer = isinstance(error, schema.NewerVersionError)
        if newer or not (Path(folder) / "study.db").is_file():
            raise
        return [Finding(code="damaged_file", severity="error", message=str(error))]
    try:
        found = _file(database) or _records(database)
        if not any(f.severity == "error" for f in found):
            found = [*found, *_rows(database), *_checkpoints(database), *_leases(database),
                     *_versions(database)]  # fmt: skip
    except (InputError, sqlite3.Error, ValueError, TypeError, KeyError) as error:
        found = [Finding(code="damaged_file", severity="error", message=str(error))]
    finally:
        database.close()
    return sorted(found, key=lambda f: ("error", "warning", "info").index(f.severity))


def _file(database: Database) -> list[Finding]:
    return [
        Finding(code="damaged_file", severity="error",
                message=f"study.db must pass SQLite's integrity check, but: {row}; restore it "
                "from a copy, or recover it with `sqlite3 study.db .recover`.")
        for row in database.faults()
    ]  # fmt: skip


def _records(database: Database) -> list[Finding]:
    """Every row against its seal."""
    if database.version < seals.FIRST:
        return [Finding(
            code="older_version", severity="info",
            message=f"study.db is of version {database.version}, which has no hashes of records: "
            "only their agreement was checked; `isocompute run` brings it up to date.",
        )]  # fmt: skip
    imported = seals.imported(database.read)
    rows = seals.broken(database.connection, database.read, (*database.sealed(), *imported))
    if not rows:
        there = seals.has_imports(database.read, str(database.path))
        if there and len(imported) < len(seals.IMPORTED):
            return [Finding(
                code="unsealed_imports", severity="info",
                message="the imported runs bear no hashes: an older version imported them; "
                "`isocompute import` of any log into this folder gives them theirs.",
            )]  # fmt: skip
        return []
    return [Finding(
        code="damaged_records", severity="error",
        message="records must be as they were committed, but these are not: "
        f"{', '.join(rows[:20])}{f' and {len(rows) - 20} more' if len(rows) > 20 else ''}; restore "
        "study.db from a copy.",
    )]  # fmt: skip


_RULES = (
    ("steps_missing", "the steps of a run must be 1, 2, ... without gaps up to its last commit",
     "SELECT r.hash FROM runs r LEFT JOIN steps s ON s.run = r.run GROUP BY r.run "
     "HAVING count(s.step) != r.steps_done OR coalesce(max(s.step), 0) != r.steps_done"),
    ("totals_differ", "a run's rollouts and tokens must be those of its last step",
     "SELECT r.hash FROM runs r JOIN steps s ON s.run = r.run AND s.step = r.steps_done "
     "WHERE s.rollouts != r.rollouts OR s.tokens != r.tokens"),
    ("evaluation_totals_differ", "a run's evaluation rollouts must be the sum of its evaluations",
     "SELECT r.hash FROM runs r LEFT JOIN evaluations e ON e.run = r.run GROUP BY r.run "
     "HAVING coalesce(sum(e.sampled_rollouts), 0) != r.evaluation_rollouts "
     "OR coalesce(sum(e.sampled_tokens), 0) != r.evaluation_tokens"),
    ("overcounted", "no run may have used more rollouts than its attempts drew",
     "SELECT r.hash FROM runs r LEFT JOIN attempts a ON a.run = r.run GROUP BY r.run "
     "HAVING r.rollouts > coalesce(sum(a.rollouts), 0)"),
    ("evaluation_beyond_commit", "no evaluation may lie beyond the run's last commit",
     "SELECT DISTINCT r.hash FROM runs r JOIN evaluations e ON e.run = r.run "
     "WHERE e.step > r.steps_done"),
    ("checkpoint_missing", "a run with steps must have a checkpoint of its last step",
     "SELECT r.hash FROM runs r WHERE r.steps_done > 0 AND NOT EXISTS "
     "(SELECT 1 FROM checkpoints c WHERE c.run = r.run AND c.step = r.steps_done)"),
    ("done_too_early", "a run that is done must have reached its budget",
     "SELECT hash FROM runs WHERE state = 'done' AND steps_done < target_steps"),
)  # fmt: skip


def _rows(database: Database) -> list[Finding]:
    found = []
    for code, rule, sql in _RULES:
        hashes = [row[0] for row in database.read(sql)]
        if hashes:
            found.append(Finding(
                code=code, severity="error",
                message=f"{rule}, but {len(hashes)} do not: {', '.join(hashes[:3])}; restore "
                "study.db from a copy, or remove these runs.",
            ))  # fmt: skip
    bad = 0
    for counts, size, samples in database.read(
        "SELECT DISTINCT e.counts, p.size, e.samples FROM evaluations e "
        "JOIN runs r ON r.run = e.run JOIN problem_sets p ON p.sha256 = json_extract(r.spec, "
        "'$.validation.\"' || replace(e.problem_set, '\"', '\\\"') || '\".sha256')"
    ):
        bad += not fits(size, sum(json.loads(counts)), samples)
    if bad:
        found.append(Finding(
            code="counts_differ", severity="error",
            message=f"counts must add up to the problems of the set, but {bad} do not; restore "
            "study.db from a copy.",
        ))  # fmt: skip
    return found


def _checkpoints(database: Database) -> list[Finding]:
    found, known = [], set()
    for run_hash, step, token, serial, sha256 in database.read(
        "SELECT r.hash, c.step, c.token, c.serial, c.sha256 FROM checkpoints c "
        "JOIN runs r ON r.run = c.run ORDER BY r.hash, c.token, c.serial"
    ):
        folder = checkpoint_folder(database.folder, run_hash, token, serial)
        known.add(folder)
        problem = fault(folder, sha256, functools.partial(owner_of, database))
        if problem:
            found.append(Finding(
                code="checkpoint_unusable", severity="warning",
                message=f"checkpoint of step {step} of run {run_hash} must be as committed, but "
                f"{problem}; the next runner goes back to the one before it.",
            ))  # fmt: skip
    held = {row[0] for row in database.read("SELECT hash FROM runs WHERE lease_runner NOTNULL")}
    orphans = [p for p in (database.folder / "checkpoints").glob("*/*")
               if p not in known and p.parent.name not in held]  # fmt: skip
    if orphans:
        found.append(Finding(
            code="orphan_folders", severity="info",
            message=f"{len(orphans)} checkpoint folders were never committed; the next runner "
            "removes them.",
        ))  # fmt: skip
    return found


def _leases(database: Database) -> list[Finding]:
    runners = beats(database)
    gone = [runner for runner, (process, _) in runners.items() if has_died(process)]
    if not gone:
        return []
    many = "s" * (len(gone) != 1)
    return [Finding(
        code="dead_runners", severity="info",
        message=f"{len(gone)} runner{many} died without leaving; `isocompute run` takes over their "
        "runs at once.",
    )]  # fmt: skip


def _versions(database: Database) -> list[Finding]:
    seen = {row[0] for row in database.read("SELECT DISTINCT versions FROM attempts")}
    if len(seen) < 2:
        return []
    return [Finding(
        code="mixed_versions", severity="warning",
        message=f"attempts ran under {len(seen)} sets of versions ({'; '.join(sorted(seen))}); a "
        "resumed run equals the uninterrupted one only under the same versions.",
    )]  # fmt: skip
