"""A pool that trains its tasks at once, in this process, as one batch of the embedded engine."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from isocompute.process_tree import memory_bytes
from isocompute.runner.execute import Outcome, Task, as_killed, ended, open_writer
from isocompute.runner.pool import Event
from isocompute.store.database import Database
from isocompute.store.writer import RunWriter

if TYPE_CHECKING:
    from isocompute.engines.local.together import Together


class TogetherPool:
    """Places for so many runs of one shape; see `engines.local.together.shape_of`.

    What is started before the first update is trained together; the next batch begins when all of
    these have ended.

    Args:
        database: of the study.
        size: places.
    """

    def __init__(self, database: Database, size: int) -> None:
        self._database, self._size = database, size
        self._tasks: list[Task] = []
        self._writers: list[RunWriter] = []
        self._batch: Together | None = None
        self._fault: Exception | None = None
        self._notes: list[Event] = []
        self._killed: dict[int, tuple[str, bool]] = {}
        self._stopping = False

    @property
    def free(self) -> int:
        """Places left; none while a batch trains."""
        return 0 if self._batch is not None else self._size - len(self._tasks)

    def start(self, task: Task) -> None:
        """Keep the task for the next batch."""
        self._tasks.append(task)

    def events(self, timeout_s: float) -> list[Event]:
        """Train for about so long, an update at least."""
        if not self._tasks:
            time.sleep(timeout_s)
            return []
        gone: list[Event] = []
        if self._batch is None:
            gone = self._begin()
            if not self._tasks:
                return gone
        going, until = True, time.monotonic() + timeout_s
        try:
            while going and self._batch is not None:
                going = self._batch.advance()
                if time.monotonic() > until:
                    break
        except Exception as error:  # noqa: BLE001  # what all runs need failed: all end
            self._fault = error
        notes, self._notes = self._notes, []
        if going and self._fault is None:
            steps = [Event(task=t, step=w.position)
                     for t, w in zip(self._tasks, self._writers, strict=True)]  # fmt: skip
            return [*gone, *notes, *steps]
        return [*gone, *notes, *self._outcomes()]

    def _is_stopped(self, task: Task) -> bool:
        return self._stopping or task.claim.attempt in self._killed

    def _note(self, task: Task, note: str) -> None:
        self._notes.append(Event(task=task, note=note))

    def _begin(self) -> list[Event]:
        """Open the sinks and load the runs; events of tasks that cannot begin."""
        from isocompute.engines.local.together import Together

        asked, self._tasks, gone = self._tasks, [], []
        for task in asked:
            writer = open_writer(
                task, self._database, on_step=lambda *_: None, stop=partial(self._is_stopped, task),
                on_note=partial(self._note, task),
            )  # fmt: skip
            if isinstance(writer, Outcome):
                gone.append(Event(task=task, outcome=writer))
            else:
                self._tasks.append(task)
                self._writers.append(writer)
        if self._tasks:
            try:
                self._batch = Together(
                    [t.spec for t in self._tasks], [t.claim.resume for t in self._tasks],
                    self._writers,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001  # as in `events`
                self._fault = error
        return gone

    def _outcomes(self) -> list[Event]:
        members = self._batch.members if self._batch is not None else [None] * len(self._tasks)
        events = []
        for task, writer, member in zip(self._tasks, self._writers, members, strict=True):
            error = None if member is None else member.error
            if error is None and not (member is not None and member.is_kept):
                error = self._fault
            outcome = ended(task, self._database, writer, error)
            killed = self._killed.pop(task.claim.attempt, None)
            events.append(Event(task=task, outcome=as_killed(outcome, killed)))
        self._tasks, self._writers, self._batch, self._fault = [], [], None, None
        return events

    def kill(self, task: Task, reason: str, *, limit: bool) -> None:
        """This process does not kill itself: the task ends at its next checkpoint."""
        self._killed[task.claim.attempt] = reason, limit

    def memory_bytes(self, task: Task) -> int | None:
        """Of this process, and what it started: all tasks of the batch together."""
        return memory_bytes(os.getpid()) if task in self._tasks else None

    def stop(self) -> None:
        """End all at their next checkpoint."""
        self._stopping = True

    def close(self) -> None:
        """Close the sinks of a batch that was cut off."""
        for writer in self._writers:
            writer.close()
        self._writers = []
