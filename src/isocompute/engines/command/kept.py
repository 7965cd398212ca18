"""The rows of a log that a command writes anew when it goes on, as verl's file logger does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# Readers of a file of rows, one line each; what others read is added to, or holds its history.
OF_ROWS = ("jsonl", "csv", "console")


def put_aside(log: Path, kept: Path) -> None:
    """Copy a log before its command starts again."""
    fresh = kept.with_name(kept.name + ".new")
    shutil.copyfile(log, fresh)
    os.replace(fresh, kept)


def keep_rows(log: Path, kept: Path) -> None:
    """Put the rows that a command wrote over back in front of its log, as if it had added to it.

    A log that begins as the copy does has them still. Which of two rows of a step counts, and
    whether a log was begun anew, is for the importers to say, as of every other log.
    """
    if not kept.is_file() or not log.is_file():
        return
    old, now = kept.read_bytes(), log.read_bytes()
    earlier, later = old.splitlines(), now.splitlines()
    head = int(log.suffix in (".csv", ".tsv"))
    if earlier[:head] != later[:head]:
        return  # of other columns: no rows of one table
    if not now.strip() or later[: head + 1] == earlier[: head + 1]:
        return
    fresh = log.with_name(log.name + ".new")
    fresh.write_bytes(b"\n".join([*earlier, *later[head:]]) + b"\n")
    os.replace(fresh, log)
