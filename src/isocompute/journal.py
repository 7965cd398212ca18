"""A file of JSON lines that one process appends to, whatever happens to it or to the disk.

A line is one write to the system, so it survives the death of the process. What is there is never
changed: a line that was torn is closed by a line break, and a reader drops it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

fcntl: Any = None  # where a system has no locks, two processes on one file are not noticed
with contextlib.suppress(ImportError):
    fcntl = importlib.import_module("fcntl")

_SYNC_S = 1.0  # between two writes to the disk itself; half or twice: what a power cut may take
_MOST_WAITING = 100_000  # lines kept while the disk refuses them, about 20 MB; then the oldest go


class Journal:
    """One file, held from `open` to `close`, never across a fork.

    Args:
        path: made with its folder when it is first opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held_elsewhere = False
        self._file: IO[bytes] | None = None
        self._owner = 0
        self._torn = False
        self._waiting: list[bytes] = []
        self._synced_at = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether this process holds the file."""
        return self._file is not None and self._owner == os.getpid()

    def open(self) -> None:
        """Take the file; `held_elsewhere` says whether another process has it.

        Raises:
            OSError: the file cannot be made or opened.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a+b", buffering=0)
        self.held_elsewhere = not _hold(file)
        if self.held_elsewhere:
            file.close()
            return
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            self._torn = file.read(1) != b"\n"
        self._file, self._owner = file, os.getpid()

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None and self._owner == os.getpid():
            self._file.close()
        self._file = None

    def move(self, path: Path) -> None:
        """Go on with another file; what waits goes there."""
        self.close()
        self.path = path

    def rows(self) -> Iterator[dict[str, Any]]:
        """The objects of the file as it is now; broken lines are passed over."""
        for line in self.path.read_bytes().splitlines() if self.path.is_file() else ():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row

    def append(self, row: Mapping[str, Any], *, first: bool = False) -> None:
        """Write one line, and those that wait since the disk refused them.

        Args:
            row: JSON values; others are written as their text.
            first: before the lines that wait.

        Raises:
            OSError: the disk refuses; the line waits for the next call.
        """
        line = json.dumps(row, allow_nan=False, default=repr).encode() + b"\n"
        self._waiting.insert(0 if first else len(self._waiting), line)
        del self._waiting[:-_MOST_WAITING]
        if self._file is None:
            return
        while self._waiting:
            line = b"\n" * self._torn + self._waiting[0]
            done = self._file.write(line)
            self._torn = done != len(line)
            if self._torn:
                raise OSError(f"{done} of {len(line)} bytes written")
            del self._waiting[0]
        if time.monotonic() - self._synced_at > _SYNC_S:
            os.fsync(self._file.fileno())
            self._synced_at = time.monotonic()


def _hold(file: IO[bytes]) -> bool:
    """Take the file for this process; False where another has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
