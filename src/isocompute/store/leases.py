"""Who works on which run: claims, heartbeats, fencing tokens, and the end of attempts.

No clock is compared with another one. A runner's heartbeat is a counter; whoever watches it
counts its own successful heartbeats meanwhile, so a database that nobody can write expires
nobody. A runner on the same machine whose process has gone is known dead at once.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import json
import platform
import socket
import sqlite3
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from isocompute.credentials import hide
from isocompute.store import seals
from isocompute.store.database import Database, FencedError
from isocompute.store.files import checkpoint_folder, fault, remove, run_folder
from isocompute.store.position import Position, take_back

PROGRESS = struct.Struct("<5q")  # rollouts, tokens, the same for evaluation, wall time in ns


@dataclass(frozen=True, kw_only=True)
class PendingRun:
    """A run that nobody holds: what a scheduler chooses from."""

    run: int
    hash: str
    steps_done: int
    target_steps: int


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to write one run, until someone else claims it.

    Args:
        run, hash: which run.
        token: fencing token; every commit checks that it is still the run's newest.
        attempt: number of this attempt.
        from_step: step of the checkpoint that it resumes from; 0 at the start.
        target_steps: where this slice ends.
        last_step: where the run ends, as the newest start of the study asks.
        resume: folder of that checkpoint, or None at the start.
        notes: what had to be repaired (checkpoints that could not be used).
    """

    run: int
    hash: str
    token: int
    attempt: int
    from_step: int
    target_steps: int
    last_step: int
    resume: Path | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What an attempt drew, kept or not: rollouts and tokens of training and of evaluation."""

    rollouts: int = 0
    tokens: int = 0
    evaluation_rollouts: int = 0
    evaluation_tokens: int = 0
    wall_s: float = 0.0

    def pack(self) -> bytes:
        """40 bytes for the attempt's progress file."""
        return PROGRESS.pack(self.rollouts, self.tokens, self.evaluation_rollouts,
                             self.evaluation_tokens, int(self.wall_s * 1e9))  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> Spent:
        """From a progress file; nothing where there is none."""
        try:
            values = PROGRESS.unpack(path.read_bytes()[: PROGRESS.size])
        except (OSError, struct.error):
            return cls()
        return cls(rollouts=values[0], tokens=values[1], evaluation_rollouts=values[2],
                   evaluation_tokens=values[3], wall_s=values[4] / 1e9)  # fmt: skip


def progress_file(folder: Path, attempt: int) -> Path:
    """Where an attempt writes what it has drawn, so that a SIGKILL does not hide its cost."""
    return folder / "progress" / str(int(attempt))


def beat(database: Database, runner: str, process: str, *, patience_s: float = 5.0) -> None:
    """Raise this runner's heartbeat counter (its first beat makes it known)."""
    with database.write(patience_s=patience_s) as connection:
        connection.execute(
            "INSERT INTO runners (runner, process, beat) VALUES (?, ?, 1) "
            "ON CONFLICT (runner) DO UPDATE SET beat = beat + 1",
            (runner, process),
        )


def leave(database: Database, runner: str, dead: Collection[str] = ()) -> None:
    """Forget this runner, and others that died, and free what they hold.

    One that was only paused is fenced where its run was taken, and known again at its next beat.
    """
    with database.write() as connection:
        for name in (runner, *dead):
            connection.execute(
                "UPDATE runs SET lease_runner = NULL WHERE lease_runner = ?", (name,)
            )
            connection.execute("DELETE FROM runners WHERE runner = ?", (name,))


def beats(database: Database) -> dict[str, tuple[str, int]]:
    """Every runner that has not left: {runner: (process, beat)}."""
    return {row[0]: (row[1], row[2]) for row in
            database.read("SELECT runner, process, beat FROM runners")}  # fmt: skip


def claim(
    database: Database,
    runner: str,
    choose: Callable[[Sequence[PendingRun]], tuple[PendingRun, int] | None],
    *,
    dead: Collection[str] = (),
) -> Claim | None:
    """Take one run.

    Args:
        database: of the study.
        runner: who takes it.
        choose: picks one of the free runs and the step at which this slice of it ends, or None.
        dead: runners whose runs count as free.

    Returns:
        The claim, resumed from the newest checkpoint that is complete, or None.

    Raises:
        FencedError: if it was overtaken (this process paused) before its checkpoint was found.
    """
    with database.write() as connection:
        held_by_dead = ",".join("?" * len(dead))
        rows = connection.execute(
            "SELECT run, hash, steps_done, target_steps FROM runs WHERE state = 'pending' AND "
            f"(lease_runner IS NULL OR lease_runner IN ({held_by_dead})) ORDER BY run",
            tuple(dead),
        ).fetchall()
        free = [PendingRun(run=r[0], hash=r[1], steps_done=r[2], target_steps=r[3]) for r in rows]
        chosen = choose(free)
        if chosen is None:
            return None
        pending, target = chosen
        _close_lost(connection, database.folder, pending.run)
        connection.execute(
            "UPDATE runs SET lease_runner = ?, lease_token = lease_token + 1 WHERE run = ?",
            (runner, pending.run),
        )
        token = connection.execute(
            "SELECT lease_token FROM runs WHERE run = ?", (pending.run,)
        ).fetchone()[0]
        cursor = connection.execute(
            "INSERT INTO attempts (run, token, runner, from_step, target_steps, outcome, "
            "started_utc, host, versions) VALUES (?, ?, ?, ?, ?, 'running', ?, ?, ?)",
            (pending.run, token, runner, pending.steps_done, target, _now(),
             socket.gethostname(), json.dumps(_versions())),
        )  # fmt: skip
        attempt = int(cursor.lastrowid or 0)
    taken = Claim(run=pending.run, hash=pending.hash, token=token, attempt=attempt,
                  from_step=pending.steps_done, target_steps=target,
                  last_step=pending.target_steps)  # fmt: skip
    return _resume(database, taken)


def check_token(connection: sqlite3.Connection, claimed: Claim) -> None:
    """Inside a transaction: refuse to write for a run that someone else has claimed.

    Raises:
        FencedError: if the run's token is newer.
    """
    compare_token(claimed, connection.execute(
        "SELECT lease_token FROM runs WHERE run = ?", (claimed.run,)
    ).fetchone()[0])  # fmt: skip


def compare_token(claimed: Claim, newest: int) -> None:
    """Refuse if `newest`, read with what it guards, is not the claim's own token."""
    if newest != claimed.token:
        raise FencedError(
            f"only the newest claim may write run {claimed.hash}, but it has token {newest} and "
            f"this one {claimed.token}; another runner took it over and continues it."
        )


def refuse_overtaken(database: Database, claimed: Claim) -> None:
    """Outside a transaction: refuse to go on with a run that someone else has claimed since.

    Raises:
        FencedError: if the run's token is newer.
    """
    row = database.read("SELECT lease_token FROM runs WHERE run = ?", (claimed.run,))[0]
    compare_token(claimed, row[0])


def is_fenced(database: Database, claimed: Claim) -> bool:
    """Whether someone else has claimed the run since."""
    try:
        refuse_overtaken(database, claimed)
    except FencedError:
        return True
    return False


def settle(
    database: Database,
    claimed: Claim,
    outcome: str,
    spent: Spent,
    *,
    detail: str = "",
    state: str = "pending",
    reason: str = "",
) -> bool:
    """End an attempt: its outcome and cost, and what becomes of the run.

    Args:
        database: of the study.
        claimed: the attempt.
        outcome: "done" (its slice), "stopped", "crashed", "failed", "fenced".
        spent: everything that it drew.
        detail: one line about the outcome.
        state, reason: the run's state from now on.

    Returns:
        False if the run had been claimed by someone else: then only the cost is added.
    """
    detail, reason = hide(detail), hide(reason)  # an engine's words may quote an address or a key
    with database.write() as connection:
        connection.execute(
            "UPDATE attempts SET outcome = ?, detail = ?, rollouts = ?, tokens = ?, "
            "evaluation_rollouts = ?, evaluation_tokens = ?, wall_s = ? WHERE attempt = ?",
            (outcome, detail, spent.rollouts, spent.tokens, spent.evaluation_rollouts,
             spent.evaluation_tokens, spent.wall_s, claimed.attempt),
        )  # fmt: skip
        try:
            check_token(connection, claimed)
            owner = True
        except FencedError:
            owner = False
        if owner:
            connection.execute(
                "UPDATE runs SET lease_runner = NULL, state = ?, reason = ?, "
                "failures = failures + ? WHERE run = ?",
                (state, reason, int(outcome == "crashed"), claimed.run),
            )
    _forget(progress_file(database.folder, claimed.attempt))
    return owner


def _forget(file: Path) -> None:
    """Remove a progress file whose content is booked; one that stays harms nothing."""
    with contextlib.suppress(OSError):
        file.unlink()


def book_lost(database: Database) -> None:
    """Book what lost attempts drew after they were given up: a paused one may wake and go on."""
    with database.write() as connection:
        for (run,) in connection.execute(
            "SELECT DISTINCT run FROM attempts WHERE outcome = 'lost'"
        ).fetchall():
            _close_lost(connection, database.folder, run, ("lost",))


def _close_lost(
    connection: sqlite3.Connection,
    folder: Path,
    run: int,
    outcomes: tuple[str, ...] = ("running", "lost"),
) -> None:
    """Book what attempts drew whose runner never came back to say so.

    Their progress files stay: 40 bytes each, and a paused attempt may still write to its own.
    """
    places = ",".join("?" * len(outcomes))
    lost = connection.execute(
        f"SELECT attempt FROM attempts WHERE run = ? AND outcome IN ({places})", (run, *outcomes)
    ).fetchall()
    for (attempt,) in lost:
        file = progress_file(folder, attempt)
        spent = Spent.load(file)
        connection.execute(
            "UPDATE attempts SET outcome = 'lost', detail = 'its runner died', "
            "rollouts = max(rollouts, ?), tokens = max(tokens, ?), "
            "evaluation_rollouts = max(evaluation_rollouts, ?), "
            "evaluation_tokens = max(evaluation_tokens, ?), wall_s = max(wall_s, ?) "
            "WHERE attempt = ?",
            (spent.rollouts, spent.tokens, spent.evaluation_rollouts, spent.evaluation_tokens,
             spent.wall_s, attempt),
        )  # fmt: skip


def _resume(database: Database, taken: Claim) -> Claim:
    """Find the newest complete checkpoint; drop what is newer; remove orphans.

    Raises:
        InputError: if the run's rows are not as they were committed.
    """
    database.refuse_damage(seals.OF_A_RUN, taken.run)
    rows = database.read(
        "SELECT step, token, serial, sha256 FROM checkpoints WHERE run = ? "
        "ORDER BY token DESC, serial DESC",
        (taken.run,),
    )
    notes: list[str] = []
    kept: list[Path] = []
    step = 0
    for at, token, serial, sha256 in rows:
        folder = checkpoint_folder(database.folder, taken.hash, token, serial)
        problem = "" if kept else fault(folder, sha256, functools.partial(owner_of, database))
        if problem:
            notes.append(f"checkpoint of step {at} of run {taken.hash} is not used: {problem}")
            continue
        step = step if kept else at
        kept.append(folder)
    if notes:
        notes[-1] += f"; it goes on from step {step}" if kept else "; it starts anew"
        _rewind(database, taken, step if kept else -1, len(notes))
    try:
        found = list(run_folder(database.folder, taken.hash).iterdir())
    except OSError:
        found = []
    for folder in found:
        # A claim that was overtaken meanwhile leaves alone what its successors have made.
        owner = folder.name.partition("-")[0]
        if folder not in kept and not (owner.isdecimal() and int(owner) >= taken.token):
            remove(folder)
    return replace(taken, from_step=step, resume=kept[0] if kept else None, notes=tuple(notes))


def owner_of(database: Database, sha256: str) -> str:
    """Which checkpoint was committed with this hash, in words, or ""."""
    rows = database.read(
        "SELECT c.step, r.hash FROM checkpoints c JOIN runs r ON r.run = c.run WHERE c.sha256 = ?",
        (sha256,),
    )
    return f"the checkpoint of step {rows[0][0]} of run {rows[0][1]}" if rows else ""


def _rewind(database: Database, taken: Claim, step: int, dropped: int) -> None:
    """Take the run back to `step` (-1: to nothing); what is dropped counts as wasted."""
    with database.write() as connection:
        check_token(connection, taken)
        take_back(connection, taken.run, taken.attempt, step)
        connection.execute(
            "DELETE FROM checkpoints WHERE rowid IN (SELECT rowid FROM checkpoints WHERE run = ? "
            "ORDER BY token DESC, serial DESC LIMIT ?)",
            (taken.run, dropped),
        )
        at = Position.at(lambda sql, of: connection.execute(sql, of).fetchall(), taken.run, step)
        connection.execute(
            "UPDATE runs SET steps_done = ?, rollouts = ?, tokens = ?, evaluation_rollouts = ?, "
            "evaluation_tokens = ? WHERE run = ?", (*astuple(at), taken.run),
        )  # fmt: skip


def _now() -> str:
    # For people only; nothing is ordered or measured by it.
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@functools.cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("isocompute", "numpy", "torch"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
