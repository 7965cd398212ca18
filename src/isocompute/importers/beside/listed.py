"""A table of runs as JSON: what each was called, and its settings; their histories lie elsewhere.

| file | a run |
|---|---|
| YAML, runs by name under `runs` | what stands above them holds for all |
| JSON lines, as scripts of W&B's and Comet's API write them | `{id, name, config: {...}, ...}` |
| one JSON list of the same | |
| one JSON object of the same, by run | `{ID: {config: {...}, ...}}` |

A list of rows with steps is a log, and one of runs with their histories is (`documents`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.values.reading import MAX_LINE_BYTES, parse_json
from isocompute.importers.values.series import SETTINGS, STEPS, points_of, settings_of
from isocompute.importers.words.called import may_be_setting

NAMING = ("name", "run", "run_name", "experiment", "sys/id", "sys/name", "run_id", "run id", "id",
          "display_name", "displayname", "experiment_key", "uuid", "run_uuid")  # fmt: skip
_LOOKED_AT = 1 << 16  # bytes; of a list of rows the first row


def runs_listed(file: Path) -> dict[str, dict[str, object]]:
    """Settings by the names of runs; empty where a file is no table of runs."""
    if file.stat().st_size > MAX_LINE_BYTES:
        return {}
    found = _entries(file)
    if not found or not all(map(_is_entry, found)):
        return {}
    said = [{**settings_of(one), **_names(one)} for one in found]
    if not any(may_be_setting(key.rpartition(".")[2]) for one in said for key in one):
        return {}
    by_name: dict[str, dict[str, object]] = {}
    for word in reversed(NAMING):
        names = [str(one[word]) for one in said if one.get(word)]
        if len(names) == len(set(names)):  # one that repeats names what runs share
            by_name |= {str(one[word]): one for one in said if one.get(word)}
    return by_name


def _entries(file: Path) -> list[dict[str, object]]:
    if file.suffix in (".yaml", ".yml"):
        return _in_yaml(file)
    with file.open("rb") as handle:
        head = handle.read(_LOOKED_AT)
        first, _ = parse_json(head.split(b"\n", 1)[0])
        if _is_entry(_opened(first)):  # JSON lines
            lines = [line for line in (head + handle.read()).splitlines() if line.strip()]
            return [_opened(parse_json(line)[0]) for line in lines]
        if file.suffix != ".json" or not _names_first(head.lower()):
            return []
        value, _ = parse_json(head + handle.read())
    if isinstance(value, list):
        return [_opened(one) for one in value]
    if isinstance(value, dict):
        named = [_opened(one) for one in value.values()]
        if all(any(isinstance(one.get(key), dict) for key in SETTINGS) for one in named):
            return [{"id": key, **one} for key, one in zip(value, named, strict=True)]
    return []


def _in_yaml(file: Path) -> list[dict[str, object]]:
    """Runs by name under `runs`, each with what stands above them all."""
    if not re.search(r"^runs\s*:", file.read_text("utf-8", "replace"), re.M):
        return []
    from isocompute.study.yaml12 import read_yaml

    try:
        said = read_yaml(file)
    except InputError:
        return []
    runs = said.get("runs") if isinstance(said, dict) else None
    if not isinstance(runs, dict) or not all(isinstance(one, dict) for one in runs.values()):
        return []
    shared = {key: value for key, value in said.items() if key != "runs"}
    return [{"name": str(name), "config": {**shared, **one}} for name, one in runs.items()]


def _names_first(head: bytes) -> bool:
    """Whether a document names a run before its first step: a list of rows is not parsed twice."""
    named, steps = ([at for word in words if (at := head.find(f'"{word}"'.encode())) >= 0]
                    for words in ((*NAMING, *SETTINGS), STEPS))  # fmt: skip
    return bool(named) and min(named) < min(steps, default=len(head))


def _opened(one: object) -> dict[str, object]:
    """An entry with settings that it holds as text, as W&B's own API does; {} for no object."""
    if not isinstance(one, dict):
        return {}
    texts = {k: v for k, v in one.items() if k in SETTINGS and isinstance(v, str) and v[:1] == "{"}
    return {**one, **{key: parse_json(text)[0] for key, text in texts.items()}}


def _is_entry(one: Mapping[str, object]) -> bool:
    """Whether an object says what a run was, and nothing of its course."""
    plain = {key.lower() for key in one}
    return (
        not plain.isdisjoint(NAMING) and plain.isdisjoint(STEPS)
        and (any(isinstance(one.get(key), dict) for key in SETTINGS)
             or any(map(may_be_setting, one)))
        and next(islice(points_of(one), 1), None) is None
    )  # fmt: skip


def _names(one: Mapping[str, object]) -> dict[str, str]:
    return {key.lower(): value for key, value in one.items()
            if key.lower() in NAMING and isinstance(value, str)}  # fmt: skip
