"""Shared memory of a trainer on this machine, which outlives processes that are killed.

Ray and vLLM keep objects and weights as files in memory; nobody else removes those of a killed
attempt, and a few of them fill a machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from isocompute.process_tree import tree_of

_MEMORY = "/dev/shm/"
_LOOK_S = 0.5  # between two looks; each reads the maps of all processes, some ms


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

    def remove(self, *, patience_s: float = 0.0) -> None:
        """Remove what was noted and no living process holds; what one holds stays noted.

        Args:
            patience_s: so long processes that hold some may take to end.
        """
        with contextlib.suppress(OSError):
            self._known |= set(self._file.read_text(encoding="utf-8").split("\n")) - {""}
        deadline = time.monotonic() + patience_s
        while True:
            there = {n for n in self._known if n.startswith(_MEMORY) and os.path.exists(n)}
            held = there & set(_held(_processes())) if there else set()
            for name in there - held:
                with contextlib.suppress(OSError):
                    os.unlink(name)
            if not held or time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_S)
        if held:
            self._file.write_text("".join(f"{name}\n" for name in sorted(held)), encoding="utf-8")
        else:
            self._file.unlink(missing_ok=True)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


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
