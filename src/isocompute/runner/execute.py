"""One attempt at one slice of one run: engine and sink together, every ending named."""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from isocompute.engines import load_engine
from isocompute.engines.base import DivergedError, StopRequested
from isocompute.errors import InputError, IsocomputeError
from isocompute.health import Finding
from isocompute.store.database import BusyError, Database, FencedError, StorageError
from isocompute.store.leases import Claim, Spent, is_fenced, progress_file
from isocompute.store.writer import RunWriter
from isocompute.study.spec import RunSpec

Ending = Literal["done", "stopped", "crashed", "failed", "fenced", "storage"]

_ROOM = 1 << 20  # bytes; a file system with less than this is full for every purpose


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a worker is asked to do: `spec` already ends at the claim's slice."""

    engine: str
    spec: RunSpec
    claim: Claim
    folder: Path
    checkpoint_every_s: float
    commit_share: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an attempt ended, in one line, and what it drew."""

    ending: Ending
    detail: str
    spent: Spent


def slice_of(spec: RunSpec, steps: int, end: int | None = None) -> RunSpec:
    """The same run with the budget of one slice; it ends where it did, or at `end`."""
    allocation = replace(spec.allocation, steps=steps)
    return replace(spec, allocation=allocation, end=spec.last_step if end is None else end)


def finding_line(finding: Finding) -> str:
    """What a health rule found, in one line for the progress."""
    return f"{finding.severity} {finding.code} at step {finding.step}: {finding.message}"


def execute(
    task: Task,
    database: Database,
    *,
    stop: Callable[[], bool],
    on_step: Callable[[int, int], None],
    on_note: Callable[[str], None] | None = None,
) -> Outcome:
    """Train one slice. Never raises for anything that the engine does."""
    writer = open_writer(task, database, stop=stop, on_step=on_step, on_note=on_note)
    if isinstance(writer, Outcome):
        return writer
    try:
        engine = load_engine(task.engine)  # its `check` was asked before anything started
        if task.claim.from_step < task.claim.target_steps or task.claim.resume is None:
            engine.run(task.spec, task.claim.resume, writer)
    except Exception as error:  # noqa: BLE001  # a run ends here, whatever the engine raised
        return ended(task, database, writer, error)
    return ended(task, database, writer, None)


def open_writer(
    task: Task,
    database: Database,
    *,
    stop: Callable[[], bool],
    on_step: Callable[[int, int], None],
    on_note: Callable[[str], None] | None = None,
) -> RunWriter | Outcome:
    """The sink of a task; how it ended where the task cannot begin."""
    try:
        return RunWriter(
            database, task.claim,
            {name: len(problems) for name, problems in task.spec.validation.items()},
            stop=stop, on_step=on_step,
            on_finding=None if on_note is None else lambda f: on_note(finding_line(f)),
            checkpoint_every_s=task.checkpoint_every_s,
            commit_share=task.commit_share,
        )  # fmt: skip
    except StorageError as error:
        return Outcome(ending="storage", detail=str(error), spent=Spent())
    except FencedError as error:
        return Outcome(ending="fenced", detail=str(error), spent=Spent())


def ended(
    task: Task, database: Database, writer: RunWriter, error: Exception | None
) -> Outcome:  # fmt: skip
    """Name what the engine raised, or its end without an error, and close the sink."""
    ending: Ending
    detail: str
    ending, detail = ("done", "") if error is None else _named(error, task.folder)
    if isinstance(error, DivergedError):
        with contextlib.suppress(FencedError, StorageError, BusyError):
            writer.diverged(detail)
    if ending in ("failed", "crashed"):
        with contextlib.suppress(IsocomputeError):
            if is_fenced(database, task.claim):
                ending = "fenced"  # its checkpoints are another runner's now, and may have gone
    spent = writer.spent
    writer.close()
    return Outcome(ending=ending, detail=detail, spent=spent)


def as_killed(outcome: Outcome, killed: tuple[str, bool] | None) -> Outcome:
    """How a task ended that was asked to stop for a reason; whether that passed a limit."""
    if killed is None or outcome.ending != "stopped":
        return outcome
    reason, limit = killed
    return replace(outcome, ending="failed" if limit else "stopped", detail=reason)


def cut_off(task: Task, began: float) -> Spent:
    """What an attempt drew that cannot say it itself, and all of its time, also without a word."""
    spent = Spent.load(progress_file(task.folder, task.claim.attempt))
    return replace(spent, wall_s=max(spent.wall_s, time.monotonic() - began))


def _named(error: Exception, folder: Path) -> tuple[Ending, str]:
    if isinstance(error, StopRequested):
        return "stopped", "asked to stop"
    if isinstance(error, FencedError):
        return "fenced", str(error)
    if isinstance(error, StorageError):
        return "storage", str(error)
    if isinstance(error, (InputError, DivergedError)):
        return "failed", str(error)
    return _crash(error, folder)


def _crash(error: Exception, folder: Path) -> tuple[Ending, str]:
    """A crash, unless the disk is full: libraries wrap that error in their own types."""
    detail = " ".join(str(error).split())[:500]
    if not isinstance(error, IsocomputeError):  # ours say all in their own words
        where = traceback.extract_tb(error.__traceback__)[-1]
        detail = (f"{type(error).__name__}: {detail} "
                  f"({Path(where.filename).name}:{where.lineno})")  # fmt: skip
    number = error.errno if isinstance(error, OSError) else None
    full = number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
    try:
        full = full or shutil.disk_usage(folder).free < _ROOM
    except OSError:
        full = True
    if full:
        return "storage", (
            f"the study folder must be writable and have room, but a write failed with {detail}; "
            "make room, then run the same command again: nothing committed is lost."
        )
    return "crashed", detail
