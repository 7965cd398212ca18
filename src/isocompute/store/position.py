"""Where a run stands: its totals up to an update, and the way back to one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Position:
    """Cumulative totals of the run up to some row."""

    step: int = 0
    rollouts: int = 0
    tokens: int = 0
    evaluation_rollouts: int = 0
    evaluation_tokens: int = 0

    @classmethod
    def at(cls, read: Callable[[str, tuple[Any, ...]], list[Any]], run: int, step: int) -> Position:
        """Of what is committed up to a step; -1: nothing."""
        training = read("SELECT rollouts, tokens FROM steps WHERE run = ? AND step <= ? "
                        "ORDER BY step DESC LIMIT 1", (run, step))  # fmt: skip
        (drawn,) = read("SELECT coalesce(sum(sampled_rollouts), 0), "
                        "coalesce(sum(sampled_tokens), 0) FROM evaluations "
                        "WHERE run = ? AND step <= ?", (run, step))  # fmt: skip
        rollouts, tokens = training[0] if training else (0, 0)
        return cls(step=max(step, 0), rollouts=rollouts, tokens=tokens,
                   evaluation_rollouts=drawn[0], evaluation_tokens=drawn[1])  # fmt: skip


def take_back(connection: sqlite3.Connection, run: int, attempt: int, step: int) -> None:
    """Drop what a run has committed beyond a step, from which the attempt goes on; -1: all."""
    for table in ("steps", "evaluations", "unjudged"):
        connection.execute(f"DELETE FROM {table} WHERE run = ? AND step > ?", (run, step))
    connection.execute(
        "UPDATE attempts SET from_step = ? WHERE attempt = ?", (max(step, 0), attempt)
    )
