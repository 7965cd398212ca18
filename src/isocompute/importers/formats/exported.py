"""A console as a log service gives it out: a table, or JSON, of lines and their times.

Cloud Logging (textPayload), CloudWatch (@message; its command line: `events` of message), Loki
(line), journald (MESSAGE), Fluentd (log). The newest may come first.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from isocompute.importers.formats.whose import STEP_COLUMNS
from isocompute.importers.values.cells import cells_of
from isocompute.importers.values.headers import separator_of
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.values.reading import (
    CLOCKS,
    clean_text,
    number,
    open_log,
    parse_json,
)

_LINES = ("line", "textpayload", "message", "@message", "log")
_IN_JSON = re.compile(rf'"(?:{"|".join(_LINES)})"\s*:\s*"'.encode(), re.I)
_TIMES = (*CLOCKS, "@timestamp", "ts", "date", "__realtime_timestamp")
_ZONE = re.compile(r"(?<=[0-9])(?:Z| ?UTC|[+-][0-9]{2}:[0-9]{2})$")
# the job, or the process, that wrote a line
_STREAMS = ("@logstream", "logstreamname", "stream_name", "pod", "pod_name", "container_id")
_MOST = 1 << 28  # bytes that are held; a console of so many is none of one run


def console_in(path: Path, head: bytes) -> bytes | None:
    """The lines of the console, the earliest first; None where a file is no such export.

    Args:
        path: of the file.
        head: how it begins.

    Raises:
        UnclearError: they are of several jobs.
    """
    rows: Iterable[object]
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if path.name.removesuffix(".gz").endswith((".csv", ".tsv")):
        separator = separator_of(first)
        if not names_lines(cells_of(first, separator)) or (text := _text_of(path)) is None:
            return None
        rows = csv.DictReader(StringIO(text, newline=""), delimiter=separator)
    elif first[:1] in ("{", "[") and _IN_JSON.search(head) and (text := _text_of(path)) is not None:
        rows = _objects(text)
    else:
        return None
    try:
        found = [row for row in rows if isinstance(row, dict)]
    except csv.Error:
        return None
    if not found or (key := _key_of(found[0])) is None:
        return None
    _refuse_several(path, found)
    lines = (str(row.get(key) or "").rstrip("\r\n") for row in _by_time(found))
    return "".join(f"{line}\n" for line in lines).encode()


def names_lines(header: Iterable[str]) -> bool:
    """Whether a table may hold a console: lines and their times, and nothing of curves.

    >>> names_lines(["@timestamp", "@message"]), names_lines(["rollouts", "score", "message"])
    (True, False)
    """
    plain = {name.strip().lower() for name in header}
    timed = not plain.isdisjoint(_TIMES) and plain.isdisjoint(("rollouts", "score"))
    return timed and _key_of(plain) is not None


def _key_of(row: Iterable[object]) -> str | None:
    """The key of a row's line, where the row has no step of its own."""
    plain = {str(key).lower(): str(key) for key in row}
    if not plain.keys().isdisjoint(STEP_COLUMNS):
        return None
    return next((plain[key] for key in _LINES if key in plain), None)


def _text_of(path: Path) -> str | None:
    with open_log(path) as handle:
        data = handle.read(_MOST + 1)
    return None if len(data) > _MOST else data.decode("utf-8-sig", "replace")


def _objects(text: str) -> Iterator[object]:
    """The rows of JSON lines, of a list, or of a list in an object."""
    first, _ = parse_json(text.split("\n", 1)[0])
    if isinstance(first, dict) and _key_of(first) is not None:
        yield from (parse_json(line)[0] for line in text.splitlines() if line.strip())
        return
    value, _ = parse_json(text)
    if isinstance(value, dict):
        value = next((one for one in value.values() if isinstance(one, list)), None)
    yield from value if isinstance(value, list) else ()


def _by_time(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows in the order of their times, where each has one; those of one time as they stand.

    >>> rows = [{"ts": "9:00:00.12Z"}, {"ts": "9:00:00.1234Z"}, {"ts": "9:00:00Z"}]
    >>> [row["ts"] for row in _by_time(rows)]
    ['9:00:00Z', '9:00:00.12Z', '9:00:00.1234Z']
    """
    key = next((k for k in rows[0] if k.lower() in _TIMES), None)
    if key is None:
        return rows
    # without the zone, 09:00:00.5Z comes behind 09:00:00Z, and .1234Z behind .12Z
    texts = [_ZONE.sub("", str(row.get(key) or "")) for row in rows]
    if "" in texts:
        return rows
    numbers = [number(text) for text in texts]
    times: list[Any] = texts if None in numbers else numbers
    if times[0] > times[-1]:
        rows, times = rows[::-1], times[::-1]
    return [rows[i] for i in sorted(range(len(rows)), key=times.__getitem__)]


def _refuse_several(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        for key, value in row.items():
            if str(key).lower() in _STREAMS and value:
                other = seen.setdefault(str(key), str(value))
                if other != str(value):
                    raise UnclearError(
                        f"{path}: lines of a console must be of one job, but {key} is "
                        f"{clean_text(other, 40)} and {clean_text(str(value), 40)}; give out "
                        "those of each apart."
                    )
