"""What a file was, and the rows of it that were not used."""

from __future__ import annotations

from pathlib import Path

from isocompute import __version__
from isocompute.importers.reading import clean_text, sha256_of
from isocompute.importers.runs import Provenance, RowError

MAX_ERRORS_KEPT = 1_000


class Errors:
    """Rows that were not used: the first ones kept, all of them counted."""

    def __init__(self, file: str) -> None:
        self.file = clean_text(file)
        self.kept: list[RowError] = []
        self.count = 0

    def add(self, line: int, reason: str) -> None:
        """Take one row that was not used."""
        self.count += 1
        if len(self.kept) < MAX_ERRORS_KEPT:
            self.kept.append(RowError(self.file, line, clean_text(reason)))

    def told(self, what: str = "rows") -> str:
        """How many were not used, and why the first was not."""
        return (f"{self.count} {what} were not used; the first: line {self.kept[0].line}: "
                f"{self.kept[0].reason}")  # fmt: skip


def provenance_of(path: Path, source: str, sha256: str | None = None) -> Provenance:
    """Where a run came from."""
    return Provenance(
        path=clean_text(path), sha256=sha256_of(path) if sha256 is None else sha256,
        size_bytes=path.stat().st_size, format=source, version=__version__,
    )
