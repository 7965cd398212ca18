"""Rollouts that no run drew: difficulty, calibration."""

from __future__ import annotations

from isocompute.store.database import Database


def spend(
    database: Database, purpose: str, *, rollouts: int, tokens: int, wall_s: float, detail: str = ""
) -> None:
    """Book them; see `Store.spend`."""
    with database.write() as connection:
        connection.execute(
            "INSERT INTO ledger (purpose, rollouts, tokens, wall_s, detail) VALUES (?, ?, ?, ?, ?)",
            (purpose, rollouts, tokens, wall_s, detail),
        )
