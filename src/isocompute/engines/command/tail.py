"""How far a growing log is, by its end alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from isocompute.importers.formats.console import ANSI, PREFIX, STEP
from isocompute.importers.formats.printed import row_in
from isocompute.importers.formats.progress import BAR
from isocompute.importers.formats.whose import STEP_COLUMNS
from isocompute.importers.values.cells import cells_of
from isocompute.importers.values.headers import separator_of
from isocompute.importers.values.reading import number

_END = 1 << 16  # bytes of a log that are looked at: dozens of rows; a longer row tells nothing


class Tail:
    """The last step of a log of rows, or of a console.

    A line that is half written is none yet, so a look in between only tells less.

    Args:
        log: the file, which need not be there yet.
        reader: what it is, as `engine_options.reader` says.
        steps: of the run, to which a progress bar of training counts.
        column: that holds the step, where it was named.
    """

    def __init__(self, log: Path, reader: str, steps: int = 0, column: str | None = None) -> None:
        self._log, self._reader, self._steps = log, reader, steps
        self._names = [*([] if column is None else [column]), *STEP_COLUMNS]
        self._size, self._step = -1, 0

    def step(self) -> int:
        """Of the last line that has one; 0 where none was seen."""
        try:
            size = self._log.stat().st_size if self._log.is_file() else -1
            if size != self._size:
                self._size = size
                with self._log.open("rb") as file:
                    head = file.readline(_END) if self._reader == "csv" else b""
                    file.seek(max(len(head), size - _END))
                    self._step = self._last(file.read(_END), _text(head)) or self._step
        except OSError:
            pass  # it is being written anew
        return self._step

    def _last(self, data: bytes, head: str) -> int:
        whole = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
        lines = map(_text, reversed(whole.splitlines()))
        return next(filter(None, self._steps_of(lines, head)), 0)

    def _steps_of(self, lines: Iterable[str], head: str) -> Iterable[int]:
        if self._reader == "console":
            return map(self._printed, lines)
        if self._reader != "csv":
            return (self._of(_document(line)) for line in lines)
        separator = separator_of(head)
        names = [c.strip() for c in cells_of(head, separator)]
        names = [c if c == self._names[0] else c.lower() for c in names]
        return (self._of(dict(zip(names, cells_of(line, separator), strict=False)))
                for line in lines)  # fmt: skip

    def _of(self, row: Mapping[str, object]) -> int:
        """The step in a row, 0 where there is none."""
        found = [number(row[name]) for name in self._names if name in row]
        return int(found[0]) if found and found[0] is not None and found[0] >= 0 else 0

    def _printed(self, line: str) -> int:
        text = PREFIX.sub("", ANSI.sub("", line), count=1)
        if match := STEP.search(text):
            return int(match[1])
        if (bar := BAR.search(text)) and int(bar[2]) == self._steps:
            return int(bar[1])
        row = row_in(text)
        return 0 if row is None else int(row.step)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip("\ufeff\r\n")


def _document(line: str) -> Mapping[str, object]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
