"""How far runs are that train now: told while they do, and no part of a study."""

from __future__ import annotations

import struct
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from isocompute.store.database import Database
from isocompute.store.leases import PROGRESS, progress_file
from isocompute.study.cost import duration

AT = struct.Struct("<q")  # the step, behind what an attempt has drawn


class UnderWay(NamedTuple):
    """An attempt at work.

    Args:
        hash: of its run.
        since_utc: when it began.
        from_step, step, target_steps: where it began, how far its trainer is (None: it says
            nothing), where its slice ends.
        committed: steps of the run that are kept.
    """

    hash: str
    since_utc: str
    from_step: int
    step: int | None
    target_steps: int
    committed: int

    def line(self, run: str) -> str:
        """For people; of a trainer that has said nothing for long, since when it runs."""
        since = (datetime.now(UTC) - datetime.fromisoformat(self.since_utc)).total_seconds()
        at = (f"no step seen yet, {self.committed:,} kept" if self.step is None
              else f"step {self.step:,} of {self.target_steps:,}")  # fmt: skip
        kept = "" if self.step in (None, self.committed) else f", {self.committed:,} kept"
        return f"training: {run}: {at}{kept}; for {duration(max(since, 0.0))}"


def under_way(database: Database, alive: Collection[str]) -> list[UnderWay]:
    """The attempts of runners that are alive."""
    rows = database.read(
        "SELECT a.attempt, a.runner, r.hash, a.started_utc, a.from_step, a.target_steps, "
        "r.steps_done FROM attempts a JOIN runs r ON r.run = a.run WHERE a.outcome = 'running' "
        "ORDER BY a.attempt"
    )
    return [
        UnderWay(name, since, begun, _step(database.folder, attempt, begun), target, done)
        for attempt, runner, name, since, begun, target, done in rows if runner in alive
    ]  # fmt: skip


def _step(folder: Path, attempt: int, begun: int) -> int | None:
    """What its trainer has said since it began."""
    try:
        (step,) = AT.unpack(progress_file(folder, attempt).read_bytes()[PROGRESS.size:])
    except (OSError, struct.error):
        return None
    return step if step > begun else None
