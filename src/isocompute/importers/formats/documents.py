"""JSON documents of several runs: each with its settings and its history, as W&B's API gives them.

| file | runs |
|---|---|
| `[{name, config, history: [...]}, ...]` | one for each entry |
| `{NAME: {config, history: [...]}, ...}` | one for each name |
| `{n8: [{step, KEY: ...}, ...], ...}` | one for each name, where all say their n |
| JSON lines of such entries | one for each line |
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import Errors, ImportedRun
from isocompute.importers.values.reading import clean_text, parse_json
from isocompute.importers.values.series import SETTINGS, STEPS, points_of, settings_of
from isocompute.importers.words.names import written_in
from isocompute.importers.words.settings import Settings

_NAMES = ("name", "run_name", "display_name", "run")
_IDS = ("id", "run_id", "run_uuid")  # where nothing else names a run
_LISTS = ("runs", "experiments")
_MAX_BYTES = 256 << 20


def runs_in(document: object) -> list[tuple[str, dict[str, Any]]]:
    """The runs of a document of several, with their names; none where it is something else.

    >>> one = {"config": {"n": 4}, "history": [{"step": 0, "acc": 0.5}]}
    >>> [name for name, _ in runs_in([{"name": "a", **one}, one])]
    ['a', 'run 2']
    >>> [name for name, _ in runs_in({"a": one, "b": one})], runs_in([{"step": 1, "acc": 0.5}])
    (['a', 'b'], [])
    """
    if isinstance(document, list):
        if not all(map(_may_be_run, document)) or not any(map(_is_run, document)):
            return []
        keys = (*_NAMES, *_IDS)
        return [(_name(one, keys) or f"run {i}", one) for i, one in enumerate(document, start=1)]
    if not isinstance(document, dict):
        return []
    for key in _LISTS:
        if found := runs_in(document.get(key)):
            return found
    if len(document) > 1 and all(map(_is_listed, document, document.values())):
        return [(str(key), {"history": rows}) for key, rows in document.items()]
    several = (
        len(document) > 1 and all(map(_has_settings, document.values()))
        and any(map(_is_run, document.values()))
    )  # fmt: skip
    return [(_name(one) or str(key), one) for key, one in document.items()] if several else []


def document_of(path: Path) -> object:
    """What JSON lines that are no rows hold: one document, or one for each line; None for rows."""
    if path.suffix not in (".json", ".jsonl") or path.stat().st_size > _MAX_BYTES:
        return None
    with path.open("rb") as handle:
        first, _ = parse_json(handle.readline().removeprefix(b"\xef\xbb\xbf"))
        if not isinstance(first, dict) or ("data" in first and "step" in first):
            return None
        if not _is_run(first) and not runs_in(first):
            return None
        rest = [line for line in handle if line.strip()]
    if not rest:
        return first
    documents = [first]
    for line in rest:
        value, _ = parse_json(line)
        if not _may_be_run(value):
            return None
        documents.append(value)
    return documents


def read_documents(
    found: list[tuple[str, dict[str, Any]]], path: Path, settings: Settings
) -> list[ImportedRun]:
    """Those runs, each with its own settings."""
    errors = Errors(str(path))
    return [
        take_document(one, Collector(clean_text(name), errors, settings.for_run(name)), path)
        .finish(path, "series-json")
        for name, one in found
    ]  # fmt: skip


def take_document(
    state: Mapping[str, object], collector: Collector, path: Path, *, alone: bool = False
) -> Collector:
    """Give a collector all that a document of one run says."""
    collector.configure(settings_of(state))
    collector.configure_beside(path, alone=alone)
    for number, point in enumerate(points_of(state), start=1):
        collector.row(point.step, point.values, number, calls=point.calls)
    return collector


def _is_run(one: object) -> bool:
    """Whether a value holds series, and is no row of one."""
    return (
        isinstance(one, dict) and not any(key in one for key in STEPS)
        and next(islice(points_of(one), 1), None) is not None
    )


def _is_listed(name: object, rows: object) -> bool:
    """Whether a list of rows stands under a name that says its n: a run, and no set or split."""
    return (
        isinstance(rows, list) and written_in(str(name), "rollouts_per_problem") is not None
        and all(isinstance(row, dict) and any(key in row for key in STEPS) for row in rows)
    )  # fmt: skip


def _has_settings(one: object) -> bool:
    """Whether a value holds settings, and is no row; a run that failed at once has no series."""
    return (
        isinstance(one, dict) and not any(key in one for key in STEPS)
        and any(isinstance(one.get(key), dict) for key in SETTINGS)
    )  # fmt: skip


def _may_be_run(one: object) -> bool:
    return _has_settings(one) or _is_run(one)


def _name(one: Mapping[str, Any], keys: tuple[str, ...] = _NAMES) -> str:
    """The name that a document gives its run; "" where it has none."""
    info = one.get("info")
    for place in (one, info if isinstance(info, dict) else {}):
        for key in keys:
            if isinstance(name := place.get(key), str) and name:
                return name
    return ""
