"""verl's console: `step:5 - KEY:VALUE - ...`, with Ray's prefixes and the printed configuration."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from isocompute.importers.collect import Collector, Errors
from isocompute.importers.reading import iter_lines, open_log
from isocompute.importers.runs import ImportedRun
from isocompute.importers.settings import Settings

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^\([A-Za-z_][^()]{0,200}\) ?")  # (TaskRunner pid=123, ip=10.0.0.1)
_STEP = re.compile(r"(?:^|\s)step:([0-9]{1,15}) - (.*)", re.DOTALL)
_MAX_CONFIG_LINES = 3_000


def read_console(path: Path, settings: Settings) -> list[ImportedRun]:
    """The run that a console log tells of; no rows if it is no such log."""
    errors = Errors(str(path))
    collector = Collector(path.name.split(".")[0], errors, settings)
    config: list[str] = []
    with open_log(path) as handle:
        for number, data in iter_lines(handle, str(path)):
            if data is None:
                errors.add(number, "a line is too long or cannot be unpacked")
                continue
            # a progress bar rewrites its line: what follows the last return is what stood there
            text = _ANSI.sub("", data.decode("utf-8", "replace")).rsplit("\r", 1)[-1]
            text = _PREFIX.sub("", text)
            match = _STEP.search(text)
            if match:
                collector.row(match.group(1), _pairs(match.group(2)), number)
            elif config or text.startswith("{'"):
                config = _configuration(config, text, number, collector)
    if errors.count:
        collector.note(f"{errors.count} lines were not used")
    return [collector.finish(path, "verl-console")]


def _pairs(text: str) -> dict[str, object]:
    """`a:1.0 - b:np.float64(2.0)` -> {"a": "1.0", ...}."""
    values: dict[str, object] = {}
    for part in text.split(" - "):
        key, colon, value = part.rpartition(":")
        if colon:
            values[key.strip()] = value.strip()
    return values


def _configuration(lines: list[str], text: str, number: int, collector: Collector) -> list[str]:
    """Gather the printed configuration (a Python literal over many lines) until it is whole."""
    lines = [*lines, text] if len(lines) < _MAX_CONFIG_LINES else []
    if not lines or not text.rstrip().endswith("}"):
        return lines
    joined = "\n".join(lines)
    if joined.count("{") > joined.count("}"):
        return lines
    try:
        value = ast.literal_eval(joined)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return []  # another process printed in between: its numbers are asked for instead
    if isinstance(value, dict):
        collector.configure(value, number)
    return []
