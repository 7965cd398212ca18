"""Prompts on which the runs of a study folder both train and validate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocompute.store.database import Database, EmptyStudyError
from isocompute.study.held_out import ALLOWED, Pair, Shared

_ASKED = "CASE answer WHEN '' THEN id ELSE prompt END"  # as `Problem.asked`
_COUNT = (
    f"SELECT count(*) FROM problems WHERE set_sha256 = ? AND {_ASKED} IN "
    f"(SELECT {_ASKED} FROM problems WHERE set_sha256 = ?)"
)


def pairs_begun(folder: str | Path | None) -> set[Pair]:
    """(training set, validation set) of every run that a folder has; none where it has none."""
    if folder is None or not (Path(folder) / "study.db").is_file():
        return set()
    try:
        database = Database(Path(folder))
    except EmptyStudyError:
        return set()
    try:
        return {pair_of(spec, name) for spec in _specs(database) for name in spec["validation"]}
    finally:
        database.close()


def pair_of(spec: Mapping[str, Any], validation: str) -> Pair:
    """Hashes of the training set and of a validation set of a stored run."""
    return spec["train"]["sha256"], spec["validation"][validation]["sha256"]


def stored_shared(database: Database) -> list[Shared]:
    """Pairs of sets that share prompts; none where the study says that this is meant."""
    if ALLOWED in ((database.entry("source") or {}).get("allow") or ()):
        return []
    found: dict[tuple[Pair, str], Shared] = {}
    for spec in _specs(database):
        for name, of in spec["validation"].items():
            pair = pair_of(spec, name)
            if (pair, name) not in found:
                found[pair, name] = Shared(
                    pair=pair, problems=spec.get("arm", {}).get("problems", ""), validation=name,
                    shared=database.read(_COUNT, (pair[1], pair[0]))[0][0],
                    validated=of["size"], trained=spec["train"]["size"],
                )  # fmt: skip
    return [one for one in found.values() if one.shared]


def _specs(database: Database) -> list[dict[str, Any]]:
    return [json.loads(row[0]) for row in database.read("SELECT spec FROM runs ORDER BY run")]
