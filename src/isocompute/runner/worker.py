"""A worker process: waits for tasks on a socket, trains, reports.

It ignores Ctrl-C and SIGTERM (its runner decides), and ends at once when its runner is gone.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from isocompute.errors import IsocomputeError
from isocompute.runner.execute import Ending, Outcome, Task, execute
from isocompute.store.database import Database, StorageError
from isocompute.store.leases import Spent

READY = "ready"
STOPS = (signal.SIGINT, signal.SIGTERM)
_REPORT_EVERY_S = 0.5


def main(descriptor: int) -> None:
    """Serve tasks until the runner closes the connection."""
    for number in STOPS:  # the runner says when to stop; a trainer started here inherits SIG_IGN
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)  # blocked by the runner until here
    os.dup2(2, 1)  # what an engine prints must not mix with a command's own output
    connection: Connection = Connection(descriptor)
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    stop = threading.Event()

    def listen() -> None:
        while True:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                os._exit(0)  # the runner has gone; what is committed is safe
            if isinstance(message, Task):
                tasks.put(message)
            else:
                stop.set()

    connection.send(READY)
    threading.Thread(target=listen, daemon=True).start()
    databases: dict[Path, Database] = {}
    while True:
        task = tasks.get()
        last = 0.0

        def report(step: int, rollouts: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _REPORT_EVERY_S:
                last = now
                connection.send((step, rollouts))

        try:
            if task.folder not in databases:
                databases[task.folder] = Database(task.folder, write=True)
            outcome = execute(task, databases[task.folder], stop=stop.is_set, on_step=report,
                              on_note=connection.send)  # fmt: skip
        except IsocomputeError as error:
            ending: Ending = "storage" if isinstance(error, StorageError) else "crashed"
            outcome = Outcome(ending=ending, detail=str(error), spent=Spent())
        connection.send(outcome)
