"""The rows of a log that a command writes anew when it goes on, as verl's file logger does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path


def put_aside(log: Path, kept: Path) -> None:
    """Copy a log before its command starts again."""
    fresh = kept.with_name(kept.name + ".new")
    shutil.copyfile(log, fresh)
    os.replace(fresh, kept)


def keep_rows(log: Path, kept: Path) -> None:
    """Put the rows before a log's first step back in front of it, where the copy has them.

    A log that was appended to has them still, and one that begins at 0 was begun anew.
    """
    if not kept.is_file() or not log.is_file():
        return
    old, now = (path.read_bytes().splitlines() for path in (kept, log))
    first = next((s for s in map(_step, now) if s is not None), None)
    if first is None:
        return
    earlier = [line for line in old if (s := _step(line)) is not None and s < first]
    if earlier:
        fresh = log.with_name(log.name + ".new")
        fresh.write_bytes(b"\n".join([*earlier, *now]) + b"\n")
        os.replace(fresh, log)


def _step(line: bytes) -> float | None:
    """The step of a row, None where it says none."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    step = row.get("step") if isinstance(row, dict) else None
    return step if isinstance(step, (int, float)) else None
