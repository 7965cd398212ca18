"""Workbooks (.xlsx, .xls, .ods): every sheet that holds a table, as a CSV beside the others.

The CSV lie in a folder of their own that goes with the process; what they are is read as any
other table. A sheet without a column of numbers is a note.
"""

from __future__ import annotations

import csv
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from isocompute.errors import InputError, NotInstalledError

WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")
_FEW = 2  # numbers under each other: fewer are chance


def is_workbook(path: Path) -> bool:
    """Whether a file is a workbook, by its name; not the lock that an open one has."""
    return path.suffix.lower() in WORKBOOKS and not path.name.startswith(("~$", "."))


def sheets_of(path: Path) -> list[Path]:
    """The sheets of a workbook that hold a table, as CSV.

    Raises:
        NotInstalledError: without the package that reads workbooks.
        InputError: if the file is no workbook, or no sheet of it holds a table.
    """
    state = path.stat()
    return _sheets(path, state.st_mtime_ns, state.st_size)


def shown(text: str) -> str:
    """A message with the names of sheets in place of the files that stand for them."""
    return re.sub(rf"{re.escape(_home())}/[0-9]+/([^/]*)/([^/]*?)\.csv", r"\1, sheet \2", text)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="isocompute-")


def _home() -> str:
    return _folder().name


@cache
def _sheets(path: Path, _time: int, _size: int) -> list[Path]:
    try:
        import python_calamine as calamine
    except ImportError:
        raise NotInstalledError(
            f"{path}: a workbook needs the package python-calamine, which is not installed; pip "
            "install 'isocompute[excel]', or save its sheets as CSV."
        ) from None
    try:
        book = calamine.CalamineWorkbook.from_path(str(path))
        sheets = {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False)
                  for name in book.sheet_names}  # fmt: skip
    except (calamine.CalamineError, OSError, ValueError) as error:
        detail = " ".join(str(error).split())[:100]
        raise InputError(
            f"{path}: a workbook must be readable, but gives {detail}; save it again."
        ) from None
    taken = sum(1 for one in Path(_home()).iterdir())
    home = Path(_home(), str(taken), path.name)
    found = []
    for name, rows in sheets.items():
        cells = [[_text(cell) for cell in row] for row in rows]
        if not _is_table(rows):
            continue
        home.mkdir(parents=True, exist_ok=True)
        found.append(home / f"{name.replace('/', '_')}.csv")
        with found[-1].open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(cells)
    if not found:
        raise InputError(
            f"{path}: a workbook must hold a table, but none of its {len(sheets)} sheets has a "
            "column of numbers under a name; give the one that has."
        )
    return found


def _is_table(rows: list[list[Any]]) -> bool:
    """Whether a sheet has numbers under each other in a column of several."""
    columns = zip(*rows, strict=False)
    counts = [sum(isinstance(cell, int | float) for cell in column) for column in columns]
    return len(counts) > 1 and max(counts) >= _FEW


def _text(cell: Any) -> str:
    """A cell as a CSV has it: whole numbers without a point, a line for a cell of several."""
    if isinstance(cell, float) and cell == int(cell):
        return str(int(cell))
    return " ".join(str(cell).split())
