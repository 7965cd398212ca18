"""Numbers, intervals and aligned columns as text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

WIDTH = 80  # of everything printed


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Aligned columns, numbers to the right; the last `left` columns to the left."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    first_left = len(header) - left
    return [
        "  ".join(
            cell.ljust(width) if i >= first_left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [header, *rows]
    ]


def number(value: float | None, digits: int = 3) -> str:
    """Fixed digits, or "?" for what could not be estimated."""
    if value is None or not math.isfinite(value):
        return "?"
    return f"{round(value, digits) + 0.0:.{digits}f}"  # no minus before nothing


def span(interval: Sequence[float | None] | None, digits: int = 3) -> str:
    """[low, high]; an end that is not bounded is "?"."""
    return "?" if interval is None else f"[{', '.join(number(v, digits) for v in interval)}]"


def indented(lines: Sequence[str]) -> list[str]:
    """Two spaces before every line."""
    return [f"  {line}" for line in lines]


def wrapped(*texts: str, indent: str = "  ") -> list[str]:
    """A paragraph of each text."""
    return [line for text in texts for line in textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent="  ", break_on_hyphens=False,
        break_long_words=False,
    )]  # fmt: skip
