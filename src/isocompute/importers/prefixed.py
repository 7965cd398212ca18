"""Text logs whose lines end in a JSON object: `[12:04:01] (4127) heldout {"update": 40, ...}`.

Where several jobs write into one file, what stands before the object says whose line it is: the
number of a process, or a name in front of a bar. A run takes its name from an object that has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isocompute.importers.collect import Collector
from isocompute.importers.jsonl import RUN_KEYS, RunsOfRows, take_row
from isocompute.importers.ledger import Errors, provenance_of
from isocompute.importers.reading import iter_lines, open_log, parse_json, run_name
from isocompute.importers.runs import ImportedRun, UnclearError
from isocompute.importers.series import STEPS
from isocompute.importers.settings import Settings

_LINE = re.compile(r"(?P<before>[^{]*[^{\s][^{]*?)\s*(?P<row>\{.*\})\s*")
_PROCESS = re.compile(
    r"\((?:pid[ =:]*)?(?P<round>[0-9]+)\)|\bpid[ =:]*(?P<pid>[0-9]+)|"
    r"\[(?:pid[ =:]*)?(?P<square>[0-9]{2,7})\]|^\s*(?P<bar>[\w.:/-]+)\s*\|", re.I,
)  # fmt: skip
_WORD = re.compile(r"(?P<word>[A-Za-z][\w-]*)[\s:=-]*$")
_LEAST = 3  # lines; one or two may be settings that a log of another kind prints


class _Row(NamedTuple):
    line: int
    process: str  # "" where the line names none
    row: dict[str, object]


def read_prefixed(path: Path, settings: Settings) -> list[ImportedRun]:
    """The runs of the lines that end in a JSON object; none where there are no such lines.

    Raises:
        UnclearError: rows of several jobs, of which some do not say whose they are.
    """
    rows = list(_rows(path))
    if len({one.process for one in rows}) > max(len(rows) / _LEAST, 1):  # of each line a number
        rows = [one._replace(process="") for one in rows]
    named = {one.process for one in rows}
    if len(rows) < _LEAST or not any(key in one.row for one in rows for key in STEPS):
        return []
    lost = [one for one in rows if not one.process]
    if lost and (len(named) > 1 or _goes_back(rows)):
        raise UnclearError(
            f"{path}: every row must say whose it is where several jobs write one log, but line "
            f"{lost[0].line} names no process and no run; write each job a log of its own, or a "
            "key run into its rows."
        )
    errors = Errors(str(path))
    first = Collector(run_name(path), errors, settings)
    first.configure_beside(path)
    runs = RunsOfRows(first, path)
    names: dict[str, str] = {}
    for line, process, row in rows:
        own = next((v for key in RUN_KEYS if isinstance(v := row.get(key), str)), None)
        name = names.get(process, f"{run_name(path)} {process}") if own is None else own
        if process and len(named) > 1:
            names[process] = name
            row = {"run": name, **{k: v for k, v in row.items() if k not in RUN_KEYS}}
        take_row(row, line, runs, {}, path)
    source = "text-json"
    provenance = provenance_of(path, source)
    return [one.finish(path, source, provenance) for one in runs.finish()]


def _goes_back(rows: list[_Row]) -> bool:
    """Whether rows of one kind go back to a step that they had: of two jobs, as it seems."""
    seen = set[str]()
    for one in rows:
        key = next((key for key in STEPS if key in one.row), None)
        if key is not None:
            kind = repr((one.row[key], one.row.get("event"), *one.row))
            if kind in seen:
                return True
            seen.add(kind)
    return False


def _rows(path: Path) -> Iterator[_Row]:
    with open_log(path) as handle:
        for number, data in iter_lines(handle, str(path)):
            if data is None or not data.rstrip().endswith(b"}"):
                continue
            match = _LINE.fullmatch(data.decode("utf-8", "replace"))
            if match is None:
                continue
            value, _ = parse_json(match["row"])
            if not isinstance(value, dict) or not value:
                continue
            process = _PROCESS.search(match["before"])
            own = next((v for key in RUN_KEYS if isinstance(v := value.get(key), str)), "")
            told = own if process is None else next(filter(None, process.groups()), "")
            word = _WORD.search(match["before"])
            event = {} if word is None or "event" in value else {"event": word["word"]}
            yield _Row(number, told, {**value, **event})
