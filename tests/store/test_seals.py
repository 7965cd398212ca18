"""Every record bears a seal, and is sealed once for each time it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute.runner import run_study
from isocompute.store import seals
from isocompute.store.database import Database
from study_helpers import FAST, small_study


def test_a_row_is_sealed_once_when_written_and_once_when_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(small_study(ns=(2,), rollouts=64), tmp_path, workers=0, settings=FAST)
    sealed, seal_of = [], seals.seal_of

    def counted(*values: int | float | bytes | None) -> bytes:
        sealed.append(values[0])
        return seal_of(*values)

    monkeypatch.setattr(seals, "seal_of", counted)
    database = Database(tmp_path, write=True, verify=False)
    with database.write() as connection:
        for i in range(5):
            connection.execute(
                "INSERT INTO ledger (purpose, rollouts, tokens, wall_s, detail) "
                "VALUES ('probe', ?, 0, 0.0, '')", (i,),
            )  # fmt: skip
    assert sealed == [b"ledger"] * 5
    with database.write() as connection:
        connection.execute("UPDATE ledger SET detail = 'x' WHERE rollouts < 2")
    assert sealed == [b"ledger"] * 7
    assert seals.broken(database.connection, database.read, ["ledger"]) == []
    database.close()
