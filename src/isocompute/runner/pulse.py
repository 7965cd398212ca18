"""A runner's heartbeat, and which other runners have stopped beating."""

from __future__ import annotations

import contextlib
import time

from isocompute.store import leases
from isocompute.store.database import BusyError, Database
from isocompute.store.processes import has_died, this_process


class Pulse:
    """Beats for one runner and watches the others.

    No clocks are compared: another runner's counter is measured in this one's own successful
    beats, so a file that nobody can write expires nobody.

    Args:
        database: of the study.
        runner: who beats.
        beat_s: seconds between beats, on the monotonic clock.
        lease_beats: another runner is given up after so many beats of this one without any of its
            own.
        patience_s: how long a beat waits for a file that another program holds.
    """

    def __init__(
        self, database: Database, runner: str, beat_s: float, lease_beats: int,
        *, patience_s: float = 2.0,
    ) -> None:  # fmt: skip
        self._database, self._runner = database, runner
        self._beat_s, self._lease_beats = beat_s, lease_beats
        self._process = this_process()
        self._patience_s = patience_s
        self._made = 0
        self._last = -1e9
        self._others: dict[str, tuple[int, int]] = {}  # runner -> (beat, my beats when it moved)

    def beat(self) -> None:
        """Raise the counter if it is time."""
        now = time.monotonic()
        if now - self._last < self._beat_s:
            return
        self._last = now
        with contextlib.suppress(BusyError):
            leases.beat(
                self._database, self._runner, self._process, patience_s=self._patience_s
            )
            self._made += 1

    def dead(self) -> set[str]:
        """Runners whose runs may be taken over."""
        dead = set()
        known = leases.beats(self._database)
        for runner, (process, count) in known.items():
            if runner == self._runner:
                continue
            seen, since = self._others.get(runner, (-1, 0))
            if count != seen:
                self._others[runner] = (count, self._made)
                since = self._made
            if self._made - since >= self._lease_beats or has_died(process):
                dead.add(runner)
        return dead | self._unknown(known)

    def _unknown(self, known: dict[str, tuple[str, int]]) -> set[str]:
        """Lease holders that have left without freeing their runs."""
        rows = self._database.read("SELECT DISTINCT lease_runner FROM runs")
        return {row[0] for row in rows if row[0] is not None and row[0] not in known} - {
            self._runner
        }
