"""Which process this is, and whether another one is known to have died."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path


def this_process() -> str:
    """Identity of this process on this machine: JSON [host, boot, pid namespace, pid, start]."""
    pid = os.getpid()
    return json.dumps([socket.gethostname(), *_machine(), pid, _start_of(pid)])


def has_died(process: str) -> bool:
    """True if that process is known to be gone; False also where that cannot be known."""
    try:
        _, boot, namespace, pid, start = json.loads(process)
    except (ValueError, TypeError):
        return False
    if not boot or [boot, namespace] != _machine():
        return False
    return bool(_start_of(int(pid)) != start)


def _machine() -> list[str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return [boot, os.readlink("/proc/self/ns/pid")]
    except OSError:
        return ["", ""]


def _start_of(pid: int) -> str:
    """Start of a process in ticks since boot ("" if it is gone or a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
