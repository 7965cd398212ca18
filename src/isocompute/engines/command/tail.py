"""How far a growing log of rows is, by its end alone."""

from __future__ import annotations

import json
from pathlib import Path

from isocompute.importers.values.series import STEPS

_END = 1 << 16  # bytes of a log that are looked at: dozens of rows; a longer row tells nothing


class Tail:
    """The last step of a log of JSON rows; nothing of any other.

    A row that is half written is no row yet, so a look in between only tells less.

    Args:
        log: the file, which need not be there yet.
    """

    def __init__(self, log: Path) -> None:
        self._log, self._size, self._step = log, -1, 0

    def step(self) -> int:
        """Of the last row that has one; 0 where none was seen."""
        try:
            size = self._log.stat().st_size if self._log.is_file() else -1
            if size != self._size:
                self._size = size
                with self._log.open("rb") as file:
                    file.seek(max(0, size - _END))
                    self._step = _last(file.read(_END)) or self._step
        except OSError:
            pass  # it is being written anew
        return self._step


def _last(data: bytes) -> int:
    for line in reversed(data[: data.rfind(b"\n") + 1].splitlines()):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found = [row[key] for key in STEPS if key in row] if isinstance(row, dict) else []
        if found and isinstance(found[0], (int, float)) and found[0] >= 0:
            return int(found[0])
    return 0
