"""Lines of a CSV -> the cells of its rows, in one order and with the point of decimals."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from isocompute.importers.ledger import Errors
from isocompute.importers.reading import number
from isocompute.importers.torn import decimals, may_be_cut

Rows = Iterator[tuple[int, list[str]]]  # number of the line, its cells

# A decimal comma, where semicolons or tabs part the cells; 1,234 may be thousands and stays.
_POINT = re.compile(r"^\s*(-?(?:0|[0-9]+(?!,[0-9]{3}\s*$))),([0-9]+)\s*$")
_WRITTEN = 3  # numbers of a column that are kept to tell whether its last one is cut


def cells_of(line: str, separator: str) -> list[str]:
    """The cells of one line; none where its quotes are torn."""
    try:
        return next(csv.reader([line.replace("\0", "")], delimiter=separator, strict=True), [])
    except csv.Error:
        return []


def rows_of(
    lines: Iterator[tuple[int, bytes | None]], header: list[str], separator: str, errors: Errors
) -> Rows:
    """Cells in the order of the header, whatever order a later header has."""
    width, names, place = len(header), sorted(header), list[int]()
    for line, data in lines:
        cells = cells_of(data.decode("utf-8", "replace"), separator) if data is not None else []
        if separator in ";\t":
            cells = [_POINT.sub(r"\1.\2", cell) for cell in cells]
        if cells[:1] and cells[0] in names and sorted(cells) == names:
            place = [] if cells == header else [cells.index(name) for name in header]
        elif len(cells) == width:
            cells = [_of_hundred(cell) if "%" in cell else cell for cell in cells]
            yield line, [cells[i] for i in place] if place else cells
        elif data is None or data.strip():
            errors.add(line, f"a row must have {width} cells, but got {len(cells)}")


def without_cut(rows: Rows, errors: Errors) -> Rows:
    """Rows of a file that ends within a line: a last number that seems cut is left out."""
    held: tuple[int, list[str]] | None = None
    written: list[str] = []  # the shortest number of the last column is enough, once there are some
    for row in rows:
        if held is not None:
            yield held
            if number(held[1][-1]) is not None:
                written = sorted((*written, held[1][-1]), key=decimals)[:_WRITTEN]
        held = row
    if held is None:
        return
    line, cells = held
    is_last = not errors.kept or errors.kept[-1].line < line
    if is_last and may_be_cut(cells[-1], written):
        errors.add(line, f"the file ends within this line: its last number, {cells[-1]:.20}, was "
                         "left out")  # fmt: skip
        cells = [*cells[:-1], ""]
    yield line, cells


def _of_hundred(cell: str) -> str:
    """A share that a sheet shows as 43.2%, as 0.432; other cells as they are."""
    share = number(cell.strip().removesuffix("%"))
    return cell if share is None else repr(share / 100)
