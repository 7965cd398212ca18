"""How far a growing log is, by its end alone."""

from __future__ import annotations

import json
from pathlib import Path

from isocompute.importers.formats.console import ANSI, PREFIX, STEP
from isocompute.importers.formats.printed import row_in
from isocompute.importers.formats.progress import BAR
from isocompute.importers.values.series import STEPS

_END = 1 << 16  # bytes of a log that are looked at: dozens of rows; a longer row tells nothing


class Tail:
    """The last step of a log of JSON rows, or of a console.

    A line that is half written is none yet, so a look in between only tells less.

    Args:
        log: the file, which need not be there yet.
        steps: of the run, to which a progress bar of training counts; None: of no console.
    """

    def __init__(self, log: Path, steps: int | None = None) -> None:
        self._log, self._steps, self._size, self._step = log, steps, -1, 0

    def step(self) -> int:
        """Of the last line that has one; 0 where none was seen."""
        try:
            size = self._log.stat().st_size if self._log.is_file() else -1
            if size != self._size:
                self._size = size
                with self._log.open("rb") as file:
                    file.seek(max(0, size - _END))
                    self._step = self._last(file.read(_END)) or self._step
        except OSError:
            pass  # it is being written anew
        return self._step

    def _last(self, data: bytes) -> int:
        of = _step_of_row if self._steps is None else self._step_printed
        whole = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
        return next(filter(None, map(of, reversed(whole.splitlines()))), 0)

    def _step_printed(self, line: bytes) -> int:
        text = PREFIX.sub("", ANSI.sub("", line.decode("utf-8", "replace")), count=1)
        if match := STEP.search(text):
            return int(match[1])
        if (bar := BAR.search(text)) and int(bar[2]) == self._steps:
            return int(bar[1])
        row = row_in(text)
        return 0 if row is None else int(row.step)


def _step_of_row(line: bytes) -> int:
    try:
        row = json.loads(line)
    except ValueError:
        return 0
    found = [row[key] for key in STEPS if key in row] if isinstance(row, dict) else []
    return int(found[0]) if found and isinstance(found[0], (int, float)) and found[0] >= 0 else 0
