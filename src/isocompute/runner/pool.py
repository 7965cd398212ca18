"""Where tasks are carried out: worker processes on this machine, or this process itself.

A pool takes a `Task` per free place and hands back events; it knows nothing about studies.
"""

from __future__ import annotations

import json
import multiprocessing.connection
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

from isocompute.errors import RunError
from isocompute.process_tree import memory_bytes
from isocompute.runner.execute import Ending, Outcome, Task, as_killed, cut_off, execute
from isocompute.runner.worker import READY, STOPS
from isocompute.store.database import Database

# One thread per worker: two processes with two threads each on two cores were measured at a
# thirtieth of the speed (spinning threads); passive waiting is the second line of defence.
# The module path comes as an argument: in PYTHONPATH it would reach every trainer that a worker
# starts, and give another Python this one's packages.
_MAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from isocompute.runner.worker import main; main(int(sys.argv[1]))"
)
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that a task reports: a step, a note, or its end (`outcome`)."""

    task: Task
    step: int = 0
    note: str = ""
    outcome: Outcome | None = None


class Pool(Protocol):
    """Places for tasks."""

    @property
    def free(self) -> int:
        """How many tasks could be started now."""

    def start(self, task: Task) -> None:
        """Start a task in a free place."""

    def events(self, timeout_s: float) -> list[Event]:
        """What has happened, waiting at most so long for something to happen."""

    def kill(self, task: Task, reason: str, *, limit: bool) -> None:
        """End a task at once; its event follows, "failed" if it passed a limit."""

    def memory_bytes(self, task: Task) -> int | None:
        """Memory of the task's process and all that it started; None where it is not known."""

    def stop(self) -> None:
        """Ask every task to end at its next checkpoint."""

    def close(self) -> None:
        """End everything that still runs, at once."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    task: Task | None = None
    since: float = 0.0  # when it took the task
    killed: tuple[str, bool] | None = None
    ready: bool = False


class ProcessPool:
    """Worker processes with one thread each.

    Args:
        size: how many.
    """

    def __init__(self, size: int) -> None:
        self._workers = [self._spawn() for _ in range(size)]

    @property
    def free(self) -> int:
        """How many tasks could be started now."""
        return sum(worker.task is None for worker in self._workers)

    def start(self, task: Task) -> None:
        """Start a task in a free worker, a new one where the old one has died."""
        worker = next(w for w in self._workers if w.task is None)
        worker.task, worker.since = task, time.monotonic()
        try:
            worker.connection.send(task)
        except OSError:
            if not worker.ready:
                raise self._no_start(worker) from None
            self._replace(worker)  # it died between two tasks
            try:
                worker.connection.send(task)
            except OSError:
                raise self._no_start(worker) from None

    def events(self, timeout_s: float) -> list[Event]:
        """Reports and ends of tasks; a worker that died is replaced."""
        by_connection = {w.connection: w for w in self._workers if w.task is not None}
        if not by_connection:
            time.sleep(timeout_s)
            return []
        found = []
        for ready in multiprocessing.connection.wait(list(by_connection), timeout_s):
            worker = by_connection[ready]  # type: ignore[index]  # wait returns what it was given
            # All that has come: a runner that someone's query held up must not fall behind.
            while worker.task is not None:
                event = self._read(worker)
                found += [] if event is None else [event]
                if worker.task is None or not worker.connection.poll():
                    break
        return found

    def kill(self, task: Task, reason: str, *, limit: bool) -> None:
        """SIGKILL the task's worker."""
        for worker in self._workers:
            if worker.task is task:
                worker.killed = (reason, limit)
                worker.process.kill()

    def memory_bytes(self, task: Task) -> int | None:
        """Of the task's worker with verifiers and trainers, from /proc; None elsewhere."""
        for worker in self._workers:
            if worker.task is task:
                return memory_bytes(worker.process.pid)
        return None

    def stop(self) -> None:
        """Ask every worker to end its task at the next checkpoint."""
        for worker in self._workers:
            if worker.task is not None:
                try:
                    worker.connection.send("stop")
                except OSError:
                    continue  # it has died; its event says so

    def close(self) -> None:
        """Kill what still runs and wait for it."""
        for worker in self._workers:
            worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.wait()

    def _read(self, worker: _Worker) -> Event | None:
        task = worker.task
        assert task is not None
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            if not worker.ready and worker.killed is None:
                raise self._no_start(worker) from None
            return self._died(worker, task)
        if message == READY:
            worker.ready = True
            return None
        if isinstance(message, Outcome):
            worker.task = None
            return Event(task=task, outcome=message)
        if isinstance(message, str):
            return Event(task=task, note=message)
        return Event(task=task, step=message[0])

    def _died(self, worker: _Worker, task: Task) -> Event:
        code = worker.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason, limit = worker.killed or (f"its process died with {how}", False)
        spent = cut_off(task, worker.since)
        self._replace(worker)
        worker.task = None
        ending: Ending = "failed" if limit else "crashed"
        return Event(task=task, outcome=Outcome(ending=ending, detail=reason, spent=spent))

    @staticmethod
    def _no_start(worker: _Worker) -> RunError:
        return RunError(
            "a worker process must be able to start, but it ended with exit code "
            f"{worker.process.wait()} before it took a task; see its message above, and try "
            "workers=0."
        )

    def _replace(self, worker: _Worker) -> None:
        worker.connection.close()
        worker.process.kill()
        worker.process.wait()
        fresh = self._spawn()
        worker.process, worker.connection = fresh.process, fresh.connection
        worker.killed, worker.ready = None, False

    @staticmethod
    def _spawn() -> _Worker:
        # Not multiprocessing: it would import the caller's main script in every worker.
        ours, theirs = socket.socketpair()
        path = json.dumps([p or os.getcwd() for p in sys.path])
        # A Ctrl-C reaches a worker while Python starts, too: it must not die of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _MAIN, str(theirs.fileno()), path],
                    pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                    env={**os.environ, **_ONE_THREAD},
                )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _Worker(process=process, connection=Connection(ours.detach()))


class InlinePool:
    """One place, in this process: for debugging and for tests that count system calls.

    Args:
        database: of the study.
        tick: called after each update, so that heartbeats and progress go on.
    """

    def __init__(self, database: Database, tick: Callable[[Task, int], None]) -> None:
        self._database, self._tick = database, tick
        self._task: Task | None = None
        self._stopping = False
        self._killed: tuple[str, bool] | None = None

    @property
    def free(self) -> int:
        """1 or 0."""
        return int(self._task is None)

    def start(self, task: Task) -> None:
        """Keep the task for the next call of `events`."""
        self._task = task

    def events(self, timeout_s: float) -> list[Event]:
        """Carry the task out."""
        task = self._task
        if task is None:
            time.sleep(timeout_s)
            return []
        notes: list[Event] = []
        outcome = execute(
            task, self._database, stop=lambda: self._stopping or self._killed is not None,
            on_step=lambda step, _: self._tick(task, step),
            on_note=lambda note: notes.append(Event(task=task, note=note)),
        )  # fmt: skip
        outcome = as_killed(outcome, self._killed)
        self._task = self._killed = None
        return [*notes, Event(task=task, outcome=outcome)]

    def kill(self, task: Task, reason: str, *, limit: bool) -> None:
        """This process does not kill itself: the task ends at its next checkpoint."""
        if task is self._task:
            self._killed = reason, limit

    def memory_bytes(self, task: Task) -> int | None:
        """Of this process, and what it started, while the task runs in it."""
        return memory_bytes(os.getpid()) if task is self._task else None

    def stop(self) -> None:
        """End at the next checkpoint."""
        self._stopping = True

    def close(self) -> None:
        """Nothing is left to end."""
