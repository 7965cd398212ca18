"""What a command would train of a study that has a folder already; nothing there is touched."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from isocompute.runner.course import Course, Decide
from isocompute.runner.execute import slice_of
from isocompute.store.begun import KEPT
from isocompute.store.database import Database, EmptyStudyError
from isocompute.store.decisions import load_looks, why_ended
from isocompute.store.files import checkpoint_folder
from isocompute.store.register import register
from isocompute.study.spec import RunSpec
from isocompute.study.sweep import Study

# What a next step follows from.
_COPIED = ("study", "problem_sets", "runs", "attempts", "decisions")


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What is trained already, and what comes next.

    Args:
        study: under the recipes that it was begun with.
        steps: committed of each run of the study, by hash.
        trains: runs that train next, each as far as it does; all that is left of a full grid.
        states: number of the study's runs in each state.
        goes_on: whether more is decided after that.
        thawed: n that `--thaw` sends to their end.
        notes: one line each.
        ended: why an adaptive sweep trains nothing more; "" of one that goes on.
    """

    study: Study
    steps: Mapping[str, int]
    trains: Sequence[RunSpec]
    states: Mapping[str, int]
    goes_on: bool
    thawed: Sequence[int] = ()
    notes: Sequence[str] = ()
    ended: str = ""

    @property
    def rollouts(self) -> int:
        """Training rollouts of the study that are committed."""
        return sum(self.steps[s.hash] * s.allocation.batch_size for s in self.study.runs)


def preview(
    study: Study, folder: Path, decide: Decide | None = None, *,
    thaw: Sequence[int] | bool = False, retry_failed: bool = False,
) -> Preview | None:  # fmt: skip
    """What `run_study` would train, from a copy of the tables that it goes by.

    Returns:
        None where nothing was begun there.

    Raises:
        InputError: as `run_study` would, of the study, its folder, or an n to thaw.
    """
    if not (folder / "study.db").is_file():
        return None
    with (
        tempfile.TemporaryDirectory(prefix="isocompute-") as scratch,
        contextlib.closing(Database(scratch, create=True)) as copy,
    ):
        try:
            with contextlib.closing(Database(folder)) as database:
                _fill(copy, database)
                gone = _gone(database)
        except EmptyStudyError:
            return None
        begun = register(copy, study, retry_failed=retry_failed)
        course = Course(copy, begun, decide)
        before = course.refresh()
        if thaw is not False:
            course.thaw(None if thaw is True else thaw)
        after = course.refresh()
        rows = {h: (state, done) for h, state, done in copy.read(
            "SELECT hash, state, steps_done FROM runs")}  # fmt: skip
        pending, mine = course.pending(), [rows[spec.hash] for spec in begun.runs]
        gone = {h: step for h, step in gone.items() if h in pending}
        return Preview(
            study=begun, steps={h: gone.get(h, done) for h, (_, done) in rows.items()},
            trains=[slice_of(s, course.specs[s.hash].allocation.steps) for s in begun.runs
                    if s.hash in pending
                    and course.specs[s.hash].allocation.steps > rows[s.hash][1]],
            states={state: sum(one == state for one, _ in mine)
                    for state in ("done", "failed", "invalid")},
            goes_on=not course.has_ended,
            thawed=() if before is None or after is None else sorted(
                c.rollouts_per_problem for c, row in after.of_configurations.items()
                if row != before.of_configurations.get(c)),
            notes=[*(() if begun is study else (KEPT,)), *(
                f"The newest checkpoint of run {h} has gone: of {rows[h][1]:,} steps that are "
                f"trained it goes on from step {step:,}; put it back to keep them."
                for h, step in sorted(gone.items()))],
            ended="" if begun.adaptive is None else why_ended(load_looks(copy), begun.rollouts),
        )  # fmt: skip


def _gone(database: Database) -> dict[str, int]:
    """Where runs go on whose newest checkpoint is no longer there, by hash; 0: they start anew."""
    newest, there = dict[str, bool](), dict[str, int]()
    for run_hash, step, token, serial in database.read(
        "SELECT r.hash, c.step, c.token, c.serial FROM checkpoints c JOIN runs r ON r.run = c.run "
        "WHERE r.steps_done > 0 ORDER BY c.token DESC, c.serial DESC"
    ):
        found = checkpoint_folder(database.folder, run_hash, token, serial).is_dir()
        newest.setdefault(run_hash, found)
        if found:
            there.setdefault(run_hash, step)
    return {run_hash: there.get(run_hash, 0) for run_hash, found in newest.items() if not found}


def _fill(copy: Database, database: Database) -> None:
    with copy.write() as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        for table in _COPIED:
            columns = [row[1] for row in copy.read(f"PRAGMA table_info({table})")
                       if row[1] != "seal"]  # fmt: skip
            names = ", ".join(columns)
            rows = database.read(f"SELECT {names} FROM {table}")
            places = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)
