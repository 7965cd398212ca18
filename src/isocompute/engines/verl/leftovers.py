"""Shared memory of a trainer on this machine, which outlives processes that are killed.

Ray and vLLM keep objects and weights as files in memory; nobody else removes those of a killed
attempt, and a few of them fill a machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from isocompute.process_tree import tree_of

_MEMORY = "/dev/shm/"


class Leftovers:
    """The shared memory of one attempt.

    Args:
        file: where the names are kept, for the attempt that follows a killed runner.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: set[str] = set()

    def note(self, root: int) -> None:
        """Remember what a process and its descendants hold now."""
        found = set(_held(tree_of(root))) - self._known
        if found:
            self._known |= found
            with self._file.open("a", encoding="utf-8") as handle:
                handle.writelines(f"{name}\n" for name in sorted(found))

    def remove(self) -> None:
        """Remove what was noted and no living process holds."""
        with contextlib.suppress(OSError):
            self._known |= set(self._file.read_text(encoding="utf-8").split("\n")) - {""}
        there = {name for name in self._known if name.startswith(_MEMORY) and os.path.exists(name)}
        if there:
            there -= set(_held(int(name) for name in os.listdir("/proc") if name.isdecimal()))
        for name in there:
            with contextlib.suppress(OSError):
                os.unlink(name)
        self._file.unlink(missing_ok=True)


def _held(processes: Iterable[int]) -> Iterator[str]:
    for process in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/maps").read_text("utf-8", "replace").splitlines():
                if _MEMORY in line and not line.endswith(" (deleted)"):
                    yield _MEMORY + line.partition(_MEMORY)[2]
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(entry.path)
                    if target.startswith(_MEMORY) and not target.endswith(" (deleted)"):
                        yield target
