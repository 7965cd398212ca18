"""A process and everything that it started: what they hold, and how they are ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

# Of /proc, for processes that start others while they are looked for: half finds a daemon on an
# idle machine, twice waits for 0.4 s where one cannot be killed.
_SWEEPS = 20


def tree_of(root: int) -> list[int]:
    """A process and its descendants as they are now; the root alone where /proc is missing."""
    children: dict[int, list[int]] = {}
    for entry in _numbers():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # After the name in brackets, which may hold anything: state, parent, ...
            fields = Path(f"/proc/{entry}/stat").read_text("utf-8", "replace").rpartition(")")[2]
            children.setdefault(int(fields.split()[1]), []).append(entry)
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def memory_bytes(root: int) -> int | None:
    """Memory of a process and its descendants, a page that k share counted 1/k; None: not known."""
    tree = tree_of(root)
    if _resident(root) is None:
        return None
    if len(tree) == 1:
        return _resident(root)
    return sum(_proportional(process) or 0 for process in tree)


def end_tree(leader: int) -> None:
    """SIGKILL for a process group and for descendants of its leader that have left it.

    The leader must not have been waited for yet: its number then still means it.
    """
    others = [process for process in tree_of(leader) if process != leader]
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    for process in others:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def end_marked(mark: str, *, but: int | None = None) -> None:
    """SIGKILL for every other process whose environment holds `mark`, a NAME=value.

    It finds what has left the tree: a daemon has neither the parent nor the group of who started
    it, but its environment. Nothing is found where /proc is missing.

    Args:
        mark: what to look for.
        but: a process to spare, beside the caller.
    """
    wanted = mark.encode()
    for _ in range(_SWEEPS):
        found = False
        for process in _numbers():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if process not in (os.getpid(), but) and wanted in words:
                    os.kill(process, signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(0.01)  # the killed ones are seen until they have ended


def has_ended(child: int) -> bool:
    """Whether a child of this process has ended; it stays a zombie, so its number stays its own."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _numbers() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _resident(process: int) -> int | None:
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _proportional(process: int) -> int | None:
    """Resident size in which a page that k processes share counts 1/k."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return _resident(process)
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(process)
