"""Logs of training and of evaluation side by side: the names of the files say which is which."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

_TRAIN = frozenset(("train", "training"))
_EVAL = frozenset(("eval", "evals", "evaluation", "evaluations", "val", "validation", "test"))
_GENERAL = frozenset(("log", "logs", "metrics", "history", "results", "scores"))


def split_beside(path: Path) -> str:
    """The split of a log, where one of the other split lies beside it; else "".

    A lone `train.jsonl` may hold everything.
    """
    side, rest = _told(path.name)
    if not side:
        return ""
    others = _sides(path.parent, path.parent.stat().st_mtime_ns).get(rest, frozenset())
    return side if others - {side} else ""


@lru_cache(maxsize=8)
def _sides(folder: Path, _changed: int) -> dict[tuple[str, ...], frozenset[str]]:
    """What a folder has: by the names of its files without their split, which splits."""
    found: dict[tuple[str, ...], frozenset[str]] = {}
    for file in folder.iterdir():
        side, rest = _told(file.name)
        if side:
            found[rest] = found.get(rest, frozenset()) | {side}
    return found


def _told(name: str) -> tuple[str, tuple[str, ...]]:
    """The split that a file's name says, and what else it says.

    >>> _told("bp32_n8_eval.jsonl"), _told("train_log.jsonl"), _told("history.jsonl")
    (('validation', ('bp32', 'n8', 'jsonl')), ('train', ('jsonl',)), ('', ('jsonl',)))
    """
    words = [word for word in re.split(r"[-_. ]+", name.lower()) if word not in _GENERAL]
    sides = {"train" for word in words if word in _TRAIN}
    sides |= {"validation" for word in words if word in _EVAL}
    rest = tuple(word for word in words if word not in _TRAIN | _EVAL)
    return (sides.pop() if len(sides) == 1 else ""), rest
