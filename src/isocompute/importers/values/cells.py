"""Cells of tables as people and sheets write them: decimal commas, units, thousands, a torn end.

A file that breaks off within its last number, as a killed run leaves it, has 0.5 of 0.5123: nothing
in the number says so; the missing end of line and the digits of the others do.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from isocompute.errors import InputError
from isocompute.importers.values.imported import Errors
from isocompute.importers.values.reading import in_utf8, number

if TYPE_CHECKING:
    import pyarrow as pa

_ENOUGH = 3  # other numbers of the column
Rows = Iterator[tuple[int, list[str]]]  # number of the line, its cells

# A decimal comma, where semicolons or tabs part the cells, as Python and Arrow find it, and what it
# becomes; 1,234 may be thousands and stays.
DECIMAL = r"^\s*(?:(-?0),([0-9]+)|(-?[0-9]+),([0-9]{1,2}|[0-9]{4,}))(\s*%?)\s*$"
WITH_POINT = r"\1\3.\2\4\5"
# in a file that writes fractions with a comma alone, 1,234 is one as well
_SURE = r"^\s*()()(-?[0-9]+),([0-9]+)(\s*%?)\s*$"
_WRITTEN = 3  # numbers of a column that are kept to tell whether its last one is cut
_COUNTS = ("rollouts", "steps", "tokens", "problems_per_batch", "rollouts_per_problem")
_FRACTION = re.compile(
    r'[\s"]*-?(?:0([.,])[0-9]+|[0-9]+([.,])(?:[0-9]{1,2}|[0-9]{4,}))(?:E-?[0-9]+)?\s*%?[\s"]*', re.I
)
# Words for a model before or after its training, where others have the update.
_STAGE = re.compile("base|init|start|before|untrained|final|last|end", re.I)
_CHECKPOINT = re.compile(
    r"((?:global_?step|step|checkpoint|ckpt|iter|iteration|update)[-_ ]?)([0-9]{1,9})", re.I
)
_LOOKED_AT = 1 << 20  # bytes; a sheet has fewer
# A mean and what people write behind it: 64.2 \u00b1 0.8, 64.2% +- 0.8%, 64.2 (0.8), 64.2 [63, 65]
_PLAIN = r"-?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)"
_WITH_WIDTH = re.compile(
    rf"\$?\s*(?P<mean>{_PLAIN})\s*(?P<own>\\?%?)\s*"
    rf"(?:(?:\u00b1|\+\s?/?\s?[-\u2212\u2013]|\\pm)\s*{_PLAIN}\s*(?P<both>\\?%?)|"
    rf"\(\s*(?P<round>{_PLAIN})\s*(?P=own)\s*\)|"
    rf"\[\s*{_PLAIN}\s*(?P=own)\s*[,;\u2013-]\s*{_PLAIN}\s*(?P=own)\s*\])\s*\$?"
)
_WITH_COUNTS = re.compile(  # 62.5% (25/40)
    r"(?P<share>[0-9]{0,3}\.?[0-9]{1,9}%?)\s*\(\s*(?P<part>[0-9]{1,9})\s*/\s*(?P<of>[0-9]{1,9})\s*\)"
)
_IN_UNITS = 3  # numbers in brackets that tell whether they are those before them in another unit


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


def cells_of(line: str, separator: str, *, strict: bool = True) -> list[str]:
    """The cells of one line; none where one is too long for `csv` or, `strict`, quotes are torn."""
    line = line.replace("\0", "")
    if line and '"' not in line and "\r" not in line and len(line) <= csv.field_size_limit():
        return line.split(separator)  # as `csv` reads it, at a fifth of the time
    try:
        return next(csv.reader([line], delimiter=separator, strict=strict), [])
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
            cells = [re.sub(DECIMAL, WITH_POINT, cell) for cell in cells]
        if cells[:1] and cells[0] in names and sorted(cells) == names:
            place = [] if cells == header else [cells.index(name) for name in header]
        elif len(cells) == width:
            if data is not None and b"%" in data:
                cells = [of_hundred(cell) for cell in cells]
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


def of_hundred(cell: str) -> str:
    """A share that a sheet shows as 43.2%, as 0.432; other cells as they are."""
    share = number(cell.strip().removesuffix("%")) if "%" in cell else None
    return cell if share is None else repr(share / 100)


def means_of(cells: Iterable[str | None]) -> dict[str, str]:
    """Cells that hold a mean and its width -> the mean, as it is written.

    Not where numbers in brackets are those before them in another unit, as 32 (0.64) of 50 solved.

    >>> means_of(["64.2 \u00b1 0.8", "64,2% +- 0,8%", ".642 (.008)", "16", "32 (64%)"])
    {'64.2 \u00b1 0.8': '64.2', '64,2% +- 0,8%': '64.2%', '.642 (.008)': '.642'}
    >>> means_of(["62.5% (25/40)", "0.625 (25/40)", "3 (25/40)"])
    {'62.5% (25/40)': '62.5%', '0.625 (25/40)': '0.625'}
    >>> means_of(["17 (0.57)", "20 (0.67)", "24 (0.80)"])
    {}
    """
    there = [cell for cell in cells if cell]
    shares = {cell: m["share"] for cell in there if (m := _WITH_COUNTS.fullmatch(cell.strip()))
              and _is_of(m["share"], int(m["part"]), int(m["of"]))}  # fmt: skip
    found = {cell: m for cell in there if (m := _WITH_WIDTH.fullmatch(cell.strip()))}
    beside = {(m["mean"], m["round"]) for m in found.values() if m["round"]}
    if len({width for _, width in beside}) >= _IN_UNITS:
        low, high = 0.0, math.inf  # of the units, as the digits leave it open
        for mean, width in beside:
            one, of = (float(text.replace(",", ".")) for text in (mean, width))
            half = 0.5 * 10.0 ** -decimals(width)
            low, high = max(low, one / (of + half)), min(high, one / max(of - half, 1e-9))
        if low <= high:
            return shares
    return shares | {
        cell: re.sub(DECIMAL, WITH_POINT, m["mean"]) + "%" * ("%" in f"{m['own']}{m['both']}")
        for cell, m in found.items()
    }


def _is_of(share: str, part: int, of: int) -> bool:
    """Whether a share is that of a part, as far as its digits say it."""
    each = 0.01 if share.endswith("%") else 1.0
    plain = share.removesuffix("%")
    return of > 0 and abs(float(plain) * each - part / of) <= each * 10.0 ** -decimals(plain)


def of_means(means: Mapping[str, str]) -> list[str]:
    """The line of a reader that took means of cells alone; none where there were none."""
    return [f"score: the mean of cells such as {cell.strip()!r:.40}; what stands behind it is not "
            "used as noise" for cell in [*means][:1]]  # fmt: skip


def without_units(table: pa.Table, names: dict[str, str]) -> pa.Table:
    """A table without a line of units below its header: no number in it, where counts stand."""
    if table.num_rows < 2:
        return table
    first = {names[c]: str(table.column(c)[0]).strip() for c in table.column_names}
    counts = [first[name] for name in _COUNTS if name in first]
    digits = any(char.isdigit() for cell in first.values() for char in cell)
    return table if digits or not any(counts) else table.slice(1)


def without_highest(table: pa.Table, names: dict[str, str]) -> pa.Table:
    """A table without a last row that has no step, and the highest number of each column or none.

    A workbook holds no number of a formula that was never computed.
    """
    step = next((c for c in table.column_names if names[c] == "steps"), None)
    word = "" if step is None or not table.num_rows else str(table.column(step)[-1]).strip()
    if not word or any(char.isdigit() for char in word):
        return table
    columns = [[number(str(cell).strip().removesuffix("%")) for cell in table.column(c).to_pylist()]
               for c in table.column_names if c != step]  # fmt: skip
    highest = not _STAGE.search(word) and all(
        last is not None and last == max((x for x in above if x is not None), default=None)
        for *above, last in columns
    )
    empty = all(not str(table.column(c)[-1]).strip() for c in table.column_names if c != step)
    return table.slice(0, table.num_rows - 1) if highest or empty else table


def has_decimal_commas(path: Path, separator: str) -> bool:
    """Whether cells of a file, be their columns read or not, are fractions with a comma alone.

    1,234 and 1.234 may be thousands; 0,234 and 1,2 are none.
    """
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as file:
        data: bytes = file.read(_LOOKED_AT)
    lines = in_utf8(data).decode("utf-8", "replace").splitlines()
    found = {
        match[1] or match[2] for line in lines for cell in line.split(separator)
        if (match := _FRACTION.fullmatch(cell))
    }
    return found == {","}


def with_points(table: pa.Table, names: dict[str, str], commas: bool) -> pa.Table:
    """A table whose fractions are written with a point. Args: as of `plain_thousands`."""
    import pyarrow.compute as pc

    for i, name in enumerate(table.column_names):
        fraction = _SURE if commas and names[name] not in _COUNTS else DECIMAL
        plain = pc.replace_substring_regex(table.column(i), fraction, WITH_POINT)
        table = table.set_column(i, name, plain)
    return table


def plain_thousands(
    table: pa.Table, names: dict[str, str], path: Path, commas: bool
) -> pa.Table:
    """A table whose counts are plain: 1.280 is a thousand where decimals are written with commas.

    Args:
        table: as text.
        names: column -> the name that it goes by.
        path: for the message.
        commas: whether the file has fractions with a comma.

    Raises:
        InputError: nothing in the table says whether it is a thousand or a fraction.
    """
    import pyarrow.compute as pc

    for name in table.column_names:
        if names[name] not in _COUNTS:
            continue
        text = pc.utf8_trim_whitespace(table.column(name))
        dotted = pc.match_substring(text, ".")
        grouped = pc.match_substring_regex(text, r"^[1-9][0-9]{0,2}(\.[0-9]{3})+$")
        if pc.any(dotted).as_py() and pc.all(pc.or_(pc.invert(dotted), grouped)).as_py():
            if commas:
                plain = pc.replace_substring(text, ".", "")
                table = table.set_column(table.column_names.index(name), name, plain)
                continue
            row = pc.index(dotted, True).as_py()
            cell = text[row].as_py()
            raise InputError(
                f"{path}: column {name} must hold plain numbers, but row {row + 1} has "
                f"{ascii(cell)[:60]}, a fraction or thousands; write {cell.replace('.', '')[:60]}."
            )
    return table


def steps_named(values: list[str | None], path: Path) -> list[str | None]:
    """Updates that stand as the names of checkpoints, global_step_20, as numbers.

    Raises:
        InputError: under two words, as checkpoints of two trainers have them.
    """
    found = [None if value is None else _CHECKPOINT.fullmatch(value) for value in values]
    words = {m[1]: m[0] for m in found if m is not None}
    if len(words) > 1:
        one, other = list(words.values())[:2]
        raise InputError(
            f"{path}: steps must count the updates of one trainer, but rows have {one!r} and "
            f"{other!r}; choose the rows of your runs with --where COLUMN=VALUE."
        )
    return [value if m is None else m[2] for value, m in zip(values, found, strict=True)]


def cure_of(name: str, cell: str) -> str:
    """What to do about a cell of a column of numbers that holds none.

    >>> cure_of("steps", "base")
    'write the update that it means: 0 for the model before training, the last for a final one'
    """
    if any(c.isdigit() for c in cell):
        return "write plain numbers, such as 1152 or 0.25"
    if name == "steps" and _STAGE.search(cell):
        return ("write the update that it means: 0 for the model before training, the last for a "
                "final one")  # fmt: skip
    return "correct or empty that cell, or drop its row if it sums up others"
