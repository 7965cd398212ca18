"""A run that was edited before it had results becomes what it was edited to.

What its attempts drew stays in the books, as lost. The entry `replaced` of the study says, by run,
which hashes it had and the newest claim before the edit: no older one may write it, and its time
is not that of the run.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocompute.store.database import Database
from isocompute.store.files import remove, run_folder
from isocompute.store.leases import Claim
from isocompute.store.processes import has_died
from isocompute.study.sweep import Study

_Replaced = dict[str, dict[str, Any]]
Stored = Mapping[str, tuple[dict[str, Any], int]]  # hash -> (specification, steps done)


def coordinates(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """What an edit leaves: (B_p, n) and seed."""
    return spec["problems_per_batch"], spec["rollouts_per_problem"], spec["seed"]


def replace_edited(connection: sqlite3.Connection, stored: Stored, study: Study) -> None:
    """Give a new run the place of one that it was edited from, if that has no results.

    A runner at work may be about to train the old one, so then both stay. Folders go once this is
    committed, by `remove_replaced`.

    Args:
        connection: in a transaction.
        stored: every run in the store.
        study: whose edits of runs with results were refused.
    """
    processes = connection.execute("SELECT process FROM runners").fetchall()
    if not all(has_died(process) for (process,) in processes):
        return
    asked, left = {spec.hash for spec in study.runs}, dict[tuple[Any, ...], list[str]]()
    for run_hash, (content, _) in stored.items():
        if run_hash not in asked:  # those with results were refused
            left.setdefault(coordinates(content), []).append(run_hash)
    said = connection.execute("SELECT value FROM study WHERE key = 'replaced'").fetchone()
    replaced: _Replaced = json.loads(said[0]) if said else {}
    for spec in study.runs:
        olds = [] if spec.hash in stored else left.get(coordinates(spec.to_dict()), [])
        if not olds:
            continue
        old = olds.pop(0)
        run, token = connection.execute(
            "SELECT run, lease_token FROM runs WHERE hash = ?", (old,)
        ).fetchone()
        for table in ("evaluations", "unjudged", "checkpoints"):  # of step 0
            connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
        connection.execute(
            "UPDATE runs SET hash = ?, state = 'pending', reason = '', failures = 0, "
            "evaluation_rollouts = 0, evaluation_tokens = 0, first_weights = '', findings = NULL, "
            "lease_runner = NULL, lease_token = lease_token + 1 WHERE run = ?",
            (spec.hash, run),
        )
        hashes = {old, *replaced.get(str(run), {}).get("hashes", ())}
        replaced[str(run)] = {"hashes": sorted(hashes), "token": token}
    if replaced:
        connection.execute(
            "INSERT OR REPLACE INTO study (key, value) VALUES ('replaced', ?)",
            (json.dumps(replaced, sort_keys=True),),
        )


def remove_replaced(database: Database) -> None:
    """Remove what runs that were replaced have left on the disk."""
    replaced: _Replaced = database.entry("replaced") or {}
    gone = {h for said in replaced.values() for h in said["hashes"]}
    there = {h for (h,) in database.read("SELECT hash FROM runs")} if gone else set()
    folder: Path = database.folder
    for run_hash in gone - there:
        remove(run_folder(folder, run_hash))


def used_s(database: Database, claim: Claim) -> float:
    """Seconds of a run's attempts before this one; not those before the run was edited."""
    replaced: _Replaced = database.entry("replaced") or {}
    since = replaced.get(str(claim.run), {}).get("token", 0)
    rows = database.read(
        "SELECT coalesce(sum(wall_s), 0) FROM attempts WHERE run = ? AND attempt < ? "
        "AND token > ?",
        (claim.run, claim.attempt, since),
    )
    return float(rows[0][0])
