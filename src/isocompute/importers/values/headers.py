"""The names of the columns of a CSV: in one line, or in several as pandas and sheets have them."""

from __future__ import annotations

import csv
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from isocompute.domain.text import some_of
from isocompute.errors import InputError
from isocompute.importers.values.cells import cells_of
from isocompute.importers.values.reading import encoding_of, in_utf8, number

_HEAD = 1 << 20
ARROW = (".feather", ".arrow")  # pandas' to_feather; Arrow's own file
COLUMNAR = (".parquet", *ARROW)
RECORDS = (".json", ".jsonl", ".ndjson")
SEPARATORS = ",;\t"
_TELLING = ({b"problems_per_batch", b"rollouts_per_problem"}, {b"rollouts", b"score"})
_TITLES = 20  # lines that may stand above a header by mistake; at half a long note hides it
_LEVELS = 5  # of the columns of a pivoted frame; at half a sweep over three settings is refused


# Below the names of a Markdown table: |---|:---:|
_RULER = re.compile(rb"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?")
_SPREAD = re.compile(r"[0-9.]+ *(?:±|\+/-|\+-) *[0-9.]+")


_NAMED = re.compile(r"\s*([^\W\d][^:=]*?)\s*[:= ]\s*([0-9]+)\s*")


class Head(NamedTuple):
    """What stands above the rows: how many lines, the separator, the names, the encoding.

    `said`: what lines of a name and a value above the names say of all rows; `title`: all of them.
    """

    lines: int
    separator: str
    names: list[str]
    encoding: str
    said: Mapping[str, str] = MappingProxyType({})
    title: str = ""


def arrow_file(path: Path) -> Any:
    """A columnar file, mapped; Arrow itself refuses a name that is no UTF-8.

    Raises:
        pa.ArrowException, OSError: if it cannot be opened, or is empty.
    """
    import pyarrow as pa

    return pa.memory_map(os.fsencode(path))


def has_lines(path: Path) -> bool:
    """Whether a table is text, with the names of its columns in a line above its rows."""
    return path.is_file() and path.suffix not in (*COLUMNAR, *RECORDS)


def require_unique(names: Sequence[str], path: Path) -> None:
    """Refuse columns of one name.

    Raises:
        InputError: names them.
    """
    doubles = sorted(c for c, count in Counter(names).items() if count > 1 and c.strip())
    if doubles:
        raise InputError(
            f"{path}: column names must be unique, but {some_of(map(ascii, doubles))} occurs more "
            "than once; rename or drop one."
        )


def head_of(path: Path) -> Head:
    """What stands above the rows of a CSV.

    Raises:
        InputError: if the names are not in the first line, or one occurs twice.
    """
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as file:
        data: bytes = file.read(_HEAD)
    encoding = encoding_of(data)
    lines = in_utf8(data).splitlines() or [b""]
    skipped = next((i for i, line in enumerate(lines) if not line.startswith(b"#")), 0)
    if (at := _header_below(lines[skipped:])) is not None:
        raise InputError(
            f"{path}: the names of the columns must stand in the first line, but stand in line "
            f"{skipped + at + 1}; delete the lines above it."
        )
    refuse_markdown(path, lines[skipped:])
    header = lines[skipped].decode("utf-8", "replace")
    separator = separator_of(header)
    for mark in ";\t":  # as often in every line: a comma is of a text then: K=4, seed 1;;;
        counts = {line.count(mark.encode()) for line in lines[skipped : skipped + _LEVELS]}
        separator = mark if len(counts) == 1 and min(counts) > 1 else separator
    above, said = _block(lines[skipped:], separator)
    title = b" ".join(lines[skipped : skipped + above]).decode("utf-8", "replace")
    skipped += above
    cells = [_cells(line, separator) for line in lines[skipped : skipped + _LEVELS + 1]]
    names, deep = pivoted(cells) or levelled(cells) or (cells[0], 1)
    require_unique(names, path)
    return Head(skipped + deep, separator, names, encoding, said, title.strip(f' "{separator}'))


def rows_of(path: Path, most: int | None = None) -> list[list[str]]:
    """The cells of the first rows of a CSV, without what stands above them; `most`: so many.

    None of one with a cell longer than `csv` takes: it is of answers.
    """
    head = head_of(path)
    with path.open(encoding=head.encoding, errors="replace", newline="") as file:
        rows = csv.reader(file, delimiter=head.separator)
        try:
            return [*islice(rows, head.lines, None if most is None else head.lines + most)]
        except csv.Error:
            return []


def _cells(line: bytes, separator: str) -> list[str]:
    return cells_of(line.decode("utf-8", "replace"), separator, strict=False)


def refuse_markdown(path: Path, lines: Sequence[bytes]) -> None:
    """Refuse a Markdown table, with the command that writes it as CSV.

    Raises:
        InputError: names what parts its cells, and a cell of two numbers.
    """
    if len(lines) < 2 or not _RULER.fullmatch(lines[1].strip()):
        return
    cells = b"\n".join(lines[2:_TITLES]).decode("utf-8", "replace")
    two = _SPREAD.search(cells)
    both = f", and hold two numbers ({two[0].strip()}), of which the first is taken" if two else ""
    new = path.with_name(f"{path.stem}-plain.csv")
    spread = r"; s/ *(±|\+\/-|\+-) *[0-9.]+//g" if two else ""
    mark = ";" if any(b"," in line for line in lines) else ","
    script = rf"2d; s/^ *\| *//; s/ *\| *$//; s/ *\| */{mark}/g{spread}"
    raise InputError(
        f"{path}: a table must be CSV, but its cells stand between | as in Markdown{both}; write "
        f"it as CSV and give that: sed -E '{script}' {shlex.quote(str(path))} > "
        f"{shlex.quote(str(new))} && isocompute fit {shlex.quote(str(new))}"
    )


def separator_of(header: str) -> str:
    """What parts the cells of a line of names."""
    return next((s for s in SEPARATORS if s in header), ",")


def _block(lines: Sequence[bytes], separator: str) -> tuple[int, dict[str, str]]:
    """Lines of a name and a value that a sheet has above its table, and what they say.

    >>> _block([b"Seed,4,", b",,", b"Update,acc,loss", b"0,0.2,1.5"], ",")
    (2, {'Seed': '4'})
    >>> _block([b"Bsz;8;;a note", b"Schritt;Reward;Quote", b"5;0,1;0,2"], ";")
    (1, {'Bsz': '8'})
    >>> _block([b"A sweep;;", b"B: 40;;", b"Seed 3, 9 runs;;", b"Step;n=2;n=6", b"0;1;2"], ";")
    (3, {'B': '40', 'Seed': '3'})
    >>> _block([b"Run,n4,n8", b"n,4,8", b"B_p,32,32", b"Step,n4,n8", b"0,0.1,0.2"], ",")
    (3, {'B_p': '32'})
    """
    said: dict[str, str] = {}
    rows = [_cells(line, separator) for line in lines[:_TITLES]]
    for i, row in enumerate(rows[:-1]):
        if levelled(rows[i : i + _LEVELS + 1]) is not None:
            return i, said
        filled = [cell.strip() for cell in row if cell.strip()]
        pairs = _pairs(row) if len(filled) > 2 else dict([filled][: len(filled) - 1])
        if len(filled) > 2:
            below = sum(map(_is_number, rows[i + 1]))
            is_header = below > 1 and not any(map(_is_number, filled)) and not _pairs(rows[i + 1])
            again = [j for j, one in enumerate(rows) if j > i and one[1:] == row[1:] and one != row]
            if is_header and again:  # what differs from column to column stands between
                alike = (one for one in rows[i + 1 : again[-1]] if len({*one[1:]}) == 1)
                return again[-1], said | {one[0]: one[1] for one in alike if one[1].strip()}
            if is_header or not pairs:
                return (i, said) if is_header else (0, {})
        if pairs and row[0].strip():
            said |= pairs
        elif filled:
            said.update(filter(None, map(_named_number, filled[0].split(","))))
    return 0, {}


def _pairs(row: Sequence[str]) -> dict[str, str]:
    """Names and values beside each other, a gap behind each; {} where a row is of anything else.

    >>> _pairs(["n", "8", "", "seed", "4", "a note"]), _pairs(["step", "acc", "loss"])
    ({'n': '8', 'seed': '4'}, {})
    """
    groups = [[cell.strip() for cell in group] for is_there, group in groupby(
        row, lambda cell: bool(cell.strip())) if is_there]  # fmt: skip
    said = {group[0]: group[1] for group in groups if len(group) > 1}
    plain = ([False], [False, False], [False, True], [False, True, False])
    return said if all([*map(_is_number, one[:3])] in plain for one in groups) else {}


def _named_number(text: str) -> tuple[str, str] | None:
    """The name and the number that a title says: `Seed 11`, `prompts per batch: 40`."""
    match = _NAMED.fullmatch(text)
    return match and (match[1], match[2])


def _is_number(cell: str) -> bool:
    """Also as sheets show it: 0,5 or 28,7 %."""
    return number(cell.replace(",", ".").strip().removesuffix("%").strip()) is not None


def pivoted(lines: Sequence[Sequence[str]]) -> tuple[list[str], int] | None:
    """Names of the columns of a frame with several levels of them, and its lines above the rows.

    pandas writes a line for each level, its name first, and below them the name of the index alone.

    >>> pivoted([["n", "8", "16"], ["seed", "0", "0"], ["step", "", ""], ["20", "0.1", "0.2"]])
    (['step', 'n8_seed0', 'n16_seed0'], 3)
    """
    alone = [i for i, line in enumerate(lines) if len(line) > 1 and line[0].strip() and not any(
        cell.strip() for cell in line[1:]
    )]  # fmt: skip
    if not alone or (deep := alone[0]) < 2:
        return None
    levels, index = lines[:deep], lines[deep][0]
    first = lines[0][1:]  # of a plain table: a text of its own for every column
    if len(set(first)) == len(first) and not any(number(cell) is not None for cell in first):
        return None
    if number(index) is not None or any(len(one) != len(lines[deep]) for one in levels):
        return None
    telling = [one for one in levels if number(one[1]) is not None or len(set(one[1:])) > 1]
    parts = zip(*(
        [cell if number(cell) is None else f"{one[0].strip()}{cell}" for cell in one[1:]]
        for one in telling or levels[:1]
    ), strict=True)  # fmt: skip
    return [index, *("_".join(part) for part in parts)], deep + 1


def levelled(rows: Sequence[Sequence[str]]) -> tuple[list[str], int] | None:
    """Names of columns that stand in several lines, as a sheet merges cells, and those lines.

    A name holds for the empty cells behind it, where there are names below them; of the last line
    it is one of every group.

    >>> levelled([["", "n=4", "", "n=8", ""], ["step", "a", "b", "a", "b"], ["0"]])
    (['step', 'n=4 a', 'n=4 b', 'n=8 a', 'n=8 b'], 2)
    >>> levelled([["step", "score", ""], ["a", "none", "a note"], ["0", "0.1", ""]])
    """
    deep = next((i for i, row in enumerate(rows) if any(map(_is_number, row))), 0)
    width = max(map(len, rows), default=0)
    lines = [[*map(str.strip, row), *[""] * (width - len(row))] for row in rows[:deep] if any(row)]
    own = [cell for cell in lines[-1] if cell] if lines else []
    if len(lines) < 2 or len({*own}) == len(own):
        return None
    names = [list[str]() for _ in range(width)]
    for i, line in enumerate(lines):
        below = [any(other[k] for other in lines[i + 1 :]) for k in range(width)]
        groups = {cell for cell, is_over in zip(line, below, strict=True) if is_over and cell}
        if any(below) and not 1 < len(groups) < sum(below):
            return None
        group = ""
        for k, cell in enumerate(line):
            group = (cell or group) if below[k] else ""
            names[k] += filter(None, [cell or group])
    joined = [" ".join(parts) for parts in names]
    named = [*filter(None, joined)]
    return None if len({*named}) < len(named) else (joined, deep)


def _header_below(lines: list[bytes]) -> int | None:
    """Where the header of tidy curves stands, if that is not the first of some lines.

    Excel writes `sep=;` above it, people a title.
    """
    for i, line in enumerate(lines[:_TITLES]):
        words = {w.strip(b' "').lower() for w in line.replace(b";", b",").split(b",")}
        if any(pair <= words for pair in _TELLING):
            return i or None
    return None
