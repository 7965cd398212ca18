"""Text logs of one's own: `(4127) heldout {"update": 40, ...}`, `[eval] step 40 acc 0.5`.

Lines end in an object of JSON or Python, its step in it or before it, or say a step and numbers
in words, some of them of held-out problems; a notebook's stand in its outputs, and its settings in
its code.
Where several jobs write into one file, what stands before the object says whose line it is: the
number of a process, or a name in front of a bar. A run takes its name from an object that has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isocompute.importers.beside.launched import said_in
from isocompute.importers.formats.jsonl import RUN_KEYS, RunsOfRows, take_row
from isocompute.importers.formats.printed import settings_in
from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import Errors, ImportedRun, UnclearError, provenance_of
from isocompute.importers.values.reading import iter_lines, open_log, parse_json, parse_python
from isocompute.importers.values.series import STEPS
from isocompute.importers.words.meanings import SPLIT_IN_KEY, SPLITS
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.settings import Settings

_LINE = re.compile(r"(?P<before>[^{]*[^{\s][^{]*?)\s*(?P<row>\{.*\})\s*")
_PROCESS = re.compile(  # the number behind a file is its line: [pipeline.py (612)], pipeline.py:612
    r"(?<!\.py)(?<!\.py )\((?:pid[ =:]*)?(?P<round>[0-9]+)\)|\bpid[ =:]*(?P<pid>[0-9]+)|"
    r"\[(?:pid[ =:]*)?(?P<square>[0-9]{2,7})\]|^\s*(?P<bar>[\w.:/-]+)\s*\|", re.I,
)  # fmt: skip
_MOST_BYTES = 256 << 20
_SAID = re.compile(r"(?P<word>[A-Za-z][\w-]*)")
_WORD = re.compile(rf"{_SAID.pattern}[\s:=-]*$")
# [held-out] step   20  acc 0.4320
_TOLD = re.compile(
    r"(?P<before>[^{}]{0,80}?)\b(?:step|update|iter(?:ation)?)s?[ =:#]{1,6}(?P<step>[0-9]{1,9})\b"
    r"(?P<rest>[^{}]{1,400})$", re.I,
)  # fmt: skip
_NUMBER = re.compile(
    r"((?:(?:val|eval|test|valid|validation|dev|held-?out) )?"
    r"[A-Za-z_][\w@/.^-]{0,80})\s{0,4}[ =:]\s{0,4}(-?[0-9]*\.?[0-9]+(?:e-?[0-9]+)?%?)"
    r"(?=$|[\s,;|)\]])", re.I,
)  # fmt: skip
# of a line that holds no row, or before one
_STEP = re.compile(
    r"\b(?:global_|train_)?(?:step|update|iter(?:ation)?)[ =:#]{1,3}([0-9]{1,9})\b", re.I
)
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
    rows = _rows(path) or _told(path, settings)
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
    said: dict[str, object] = {}
    for _, text in _lines(path):
        said |= settings_in(text)
    if notebook := outputs_of(path):
        said = {**said_in(notebook.code), **said}
    first.configure(said)
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
    source = "text"
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


class Notebook(NamedTuple):
    """What a notebook holds: its code, and the text that it printed."""

    code: str
    printed: str


def outputs_of(path: Path) -> Notebook | None:
    """The code and the printed text of a notebook; None for any other file."""
    if path.suffix != ".ipynb" or path.stat().st_size > _MOST_BYTES:
        return None
    found = parse_json(path.read_bytes())[0]
    cells = found.get("cells") if isinstance(found, dict) else None
    code = [cell for cell in cells or () if isinstance(cell, dict)
            and cell.get("cell_type") == "code"]  # fmt: skip
    printed = [one.get("text") for cell in code for one in cell.get("outputs") or ()
               if isinstance(one, dict)]  # fmt: skip
    return Notebook(*("\n".join("".join(text) for text in texts if text)
                      for texts in ([cell.get("source") for cell in code], printed)))  # fmt: skip


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if notebook := outputs_of(path):
        yield from enumerate(notebook.printed.splitlines(), 1)
        return
    with open_log(path) as handle:
        for number, data in iter_lines(handle, str(path)):
            if data is not None:
                yield number, data.decode("utf-8", "replace")


def _rows(path: Path) -> list[_Row]:
    """Rows in their order; one without a step takes it of the lines around, where these agree."""
    rows, first, at = list[_Row](), 0, ""
    for number, text in _lines(path):
        match = _LINE.fullmatch(text) if text.rstrip().endswith("}") else None
        if match is None and (said := _STEP.search(text)):
            rows[first:] = [one if said[1] != at or any(key in one.row for key in STEPS)
                            else one._replace(row={"step": int(at), **one.row})
                            for one in rows[first:]]  # fmt: skip
            first, at = len(rows), said[1]
        if match is None:
            continue
        value, _ = parse_json(match["row"])
        if value is None and "{'" in text:
            value = parse_python(match["row"])
        if not isinstance(value, dict) or not value:
            continue
        if (of := _STEP.search(match["before"])) and not any(key in value for key in STEPS):
            value = {"step": int(of[1]), **value}
        process = _PROCESS.search(match["before"])
        own = next((v for key in RUN_KEYS if isinstance(v := value.get(key), str)), "")
        told = own if process is None else next(filter(None, process.groups()), "")
        word = _WORD.search(match["before"]) or next(
            (one for one in _SAID.finditer(match["before"]) if one["word"].lower() in SPLITS), None
        )
        event = {} if word is None or "event" in value else {"event": word["word"]}
        rows.append(_Row(number, told, {**value, **event}))
    return rows


def _told(path: Path, settings: Settings) -> list[_Row]:
    """Rows that lines say in words; none where fewer than three seem to be of held-out problems."""
    rows, held_out = list[_Row](), 0
    for number, text in _lines(path):
        match = _TOLD.match(text)
        found = _NUMBER.findall(f"{match['before']} | {match['rest']}") if match else []
        if match is None or not found:
            continue
        words = _SAID.findall(match["before"])
        word = next((one for one in words if one.lower() in SPLITS), "")
        rows.append(_Row(number, "", {
            "step": int(match["step"]), **({"event": word} if word else {}), **{
                key: f"{float(text[:-1]) / 100:.10g}" if text[-1] == "%" else text
                for key, text in found
            },
        }))  # fmt: skip
        held_out += SPLITS.get(word.lower()) == "validation" or any(
            key in settings.columns or SPLIT_IN_KEY.search(key) for key, _ in found
        )
    return rows if held_out >= _LEAST else []
