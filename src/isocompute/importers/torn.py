"""A file that breaks off within its last number, as a killed run leaves it: 0.5 of 0.5123.

Nothing in the number says so; the missing end of line and the digits of the others do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from isocompute.importers.reading import number

_ENOUGH = 3  # other numbers of the column


def ends_within_line(path: Path) -> bool:
    """Whether a plain file has no end of line behind its last line."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read(1) not in (b"\n", b"\r")


def may_be_cut(last: str, others: Iterable[str]) -> bool:
    """Whether the last number of a column has fewer decimals than every other one.

    >>> may_be_cut("0.5", ["0.3102", "0.414", "", "0.5031"])
    True
    >>> may_be_cut("0.5", ["0.3102", "0.4", "0.5031"]), may_be_cut("30", ["10", "20", "25"])
    (False, False)
    """
    if number(last) is None:
        return False
    digits = [decimals(cell) for cell in others if number(cell) is not None]
    return len(digits) >= _ENOUGH and decimals(last) < min(digits)


def decimals(cell: str) -> int:
    """Digits behind the point of a number as it is written, and of its exponent."""
    mantissa, _, exponent = cell.strip().strip('"').lower().partition("e")
    return len(mantissa.replace(",", ".").partition(".")[2]) + len(exponent.lstrip("+-"))
