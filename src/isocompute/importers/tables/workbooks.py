r"""Workbooks (.xlsx, .xls, .ods), databases, LaTeX: every sheet that holds a table, as a CSV.

The CSV lie in a folder of their own that goes with the process; what they are is read as any
other table. A sheet without a column of numbers is a note.

Of a database each table is a sheet (`databases`). Of a paper each `tabular` is one, its cells
without their markup; a count under `\times 10^3` is so many thousands.
"""

from __future__ import annotations

import csv
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from html import unescape
from pathlib import Path
from typing import Any

from isocompute.errors import InputError, NotInstalledError
from isocompute.importers.beside.listed import NAMING, describing
from isocompute.importers.tables.databases import is_database, tables_in
from isocompute.importers.values.reading import number

LATEX = ".tex"
SEED = re.compile(r"\bseed\s*[=:]?\s*([0-9]{1,12})\b", re.I)
_MOST_BYTES = 1 << 22
_TABLE = re.compile(r"\\begin\{(tabular[*xy]?|longtable)\}(.*?)\\end\{\1\}", re.S)
_FORM = re.compile(r"\s*(?:\[[^\]]*\]|\{(?:[^{}]|\{[^{}]*\})*\})")  # of its columns
_LINE = re.compile(r"\\(?:(?:top|mid|bottom|cmid)rule|[hc]line)(?:\([lr]*\))?(?:\{[^{}]*\})?")
_MARKUP = re.compile(r"\\(?:math|text)?(?:bf|it|rm|tt|boldsymbol|underline|emph|text)\{([^{}]*)\}")
_TIMES = re.compile(r"\(?\s*\\times\s*10\^\{?([0-9])\}?\s*\)?")
_COUNTS = re.compile("rollout|step|update|iteration|sample|trajector", re.I)
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")
_MAX_BYTES = 256 << 20  # of a part, unpacked: a zip expands a thousand times
_FEW = 2  # numbers under each other: fewer are chance
# Beside a sheet, or all of a folder: where, and what
_said: dict[Path, tuple[str, dict[str, str]]] = {}


def has_tables(path: Path) -> bool:
    """Whether a file is LaTeX with a table."""
    return path.suffix == LATEX and path.is_file() and path.stat().st_size <= _MOST_BYTES and (
        _TABLE.search(path.read_text("utf-8", "replace")) is not None
    )


def tables_of(path: Path) -> dict[str, list[list[Any]]]:
    """Its tables by their place: the names of the columns, then the rows."""
    text = re.sub(r"(?<!\\)%.*", "", path.read_text("utf-8", "replace"))
    seeds = {*SEED.findall(_TABLE.sub("", text))}
    found = dict[str, list[list[Any]]]()
    for at, match in enumerate(_TABLE.finditer(text), 1):
        body = match[2]
        while form := _FORM.match(body):
            body = body[form.end() :]
        lines = re.split(r"\\\\(?:\[[^\]]*\])?", _LINE.sub("", body))
        cells = [[_plain(cell) for cell in re.split(r"(?<!\\)&", line)] for line in lines]
        width = Counter(map(len, cells)).most_common(1)[0][0]
        names, *rows = [row for row in cells if len(row) == width]
        powers = [10 ** int(m[1]) if (m := _TIMES.search(name)) and _COUNTS.search(name) else 1
                  for name in names]  # fmt: skip
        plain = [name if power == 1 else _TIMES.sub("", name).strip()
                 for name, power in zip(names, powers, strict=True)]  # fmt: skip
        values: list[list[Any]] = [
            [cell if (value := number(cell)) is None else round(value * power, 9)
             for cell, power in zip(row, powers, strict=True)] for row in rows
        ]  # fmt: skip
        if len(seeds) == 1 and not any(re.search("seed", name, re.I) for name in plain):
            plain, values = [*plain, "seed"], [[*row, int(min(seeds))] for row in values]
        found[f"table {at}"] = [plain, *values]
    return found


def _plain(cell: str) -> str:
    r"""A cell without its markup.

    >>> _plain(r" $\mathbf{0.346}$ "), _plain(r"\textbf{12.5}\%"), _plain(r"$n=4$")
    ('0.346', '12.5%', 'n=4')
    """
    while (bare := _MARKUP.sub(r"\1", cell)) != cell:
        cell = bare
    return " ".join(re.sub(r"\\[,;! ]|~", " ", cell.replace(r"\%", "%").replace("$", "")).split())


def is_workbook(path: Path) -> bool:
    """Whether a file is a workbook, by its name; not the lock that an open one has."""
    named = path.suffix.lower() in WORKBOOKS and not path.name.startswith(("~$", "."))
    return named or is_database(path) or has_tables(path)


def sheets_of(path: Path) -> list[Path]:
    """The sheets of a workbook that hold a table, as CSV.

    Raises:
        NotInstalledError: without the package that reads workbooks.
        InputError: if the file is no workbook, or no sheet of it holds a table.
    """
    state = path.stat()
    return _sheets(path, state.st_mtime_ns, state.st_size)


def of_sheets(tables: list[Path]) -> list[Path]:
    """Tables without those that only say what the columns of another are, or its runs."""
    said = describing(tables)
    return [path for path in tables if path not in said]


def shown(text: str) -> str:
    """A message with the names of sheets in place of the files that stand for them."""
    return re.sub(rf"{re.escape(_home())}/[0-9]+/([^/]*)/([^/]*?)\.csv", r"\1, sheet \2", text)


def said_beside(path: Path) -> tuple[str, dict[str, str]] | None:
    """Which sheets hold names and values beside a sheet's table, and what they say."""
    return _said.get(path) or _said.get(path.parent)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="isocompute-")


def _home() -> str:
    """A folder so deep that nothing above it is taken for a hint or a configuration of a sheet."""
    home = Path(_folder().name, "sheets", "read")
    home.mkdir(parents=True, exist_ok=True)
    return str(home)


@cache
def _sheets(path: Path, _time: int, _size: int) -> list[Path]:
    of_latex = path.suffix == LATEX
    sheets = tables_of(path) if of_latex else (
        tables_in(path) if is_database(path) else _read(path)
    )
    taken = sum(1 for one in Path(_home()).iterdir())
    home = Path(_home(), str(taken), path.name)
    found = []
    percents = _percents(path)
    for name in [name for name, rows in sheets.items() if _of_others(rows, sheets, name)]:
        each = _of_others(sheets.pop(name), sheets, name)
        _said.update({_file(home, own): (f"sheet {name}", said) for own, said in each.items()})
    said = {name: pairs for name, rows in sheets.items() if (pairs := _pairs(rows))}
    if any(_is_table(rows) for name, rows in sheets.items() if name not in said):
        sheets = {name: rows for name, rows in sheets.items() if name not in said}
        values = {key: {one.get(key, value) for one in said.values()}
                  for pairs in said.values() for key, value in pairs.items()}  # fmt: skip
        if said:
            _said[home] = f"sheet {', '.join(said)}", {
                key: found.pop() for key, found in values.items() if len(found) == 1
            }
    for name, rows in sheets.items():
        shares = percents.get(name, set())
        cells = [[_text(cell, (i, k) in shares) for k, cell in enumerate(row)]
                 for i, row in enumerate(rows)]  # fmt: skip
        if not _is_table(rows):
            continue
        home.mkdir(parents=True, exist_ok=True)
        found.append(_file(home, name))
        with found[-1].open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(cells)
    if not found:
        raise InputError(
            f"{path}: a workbook must hold a table, but none of its {len(sheets)} sheets has a "
            "column of numbers under a name; give the one that has."
        )
    return found


def _file(home: Path, name: str) -> Path:
    """The CSV of a sheet."""
    return home / f"{name.replace('/', '_')}.csv"


def _of_others(
    rows: list[list[Any]], sheets: Mapping[str, list[list[Any]]], name: str
) -> dict[str, dict[str, str]]:
    """What a sheet of settings says of each sheet that a column of it is named for.

    >>> table = [["step", "acc"], [0.0, 0.5], [10.0, 0.6]]
    >>> _of_others([["", "a", "b"], ["seed", 1.0, 2.0]], {"s": [], "a": table, "b": table}, "s")
    {'a': {'seed': '1'}, 'b': {'seed': '2'}}
    """
    header = [_text(cell) for cell in rows[0]] if rows else []
    others = [own for own, table in sheets.items() if own != name and _is_table(table)]
    named = {own: header.index(own) for own in others if header.count(own) == 1}
    words = [row[0] for row in rows[1:] if row[0] != ""]
    if len(named) < _FEW or not all(isinstance(word, str) for word in words) or _are_steps(words):
        return {}
    return {own: {row[0]: _text(row[k]) for row in rows[1:] if "" not in (row[0], row[k])}
            for own, k in named.items()}  # fmt: skip


def _read(path: Path) -> dict[str, list[list[Any]]]:
    """The rows of the sheets of a workbook, by name."""
    try:
        import python_calamine as calamine
    except ImportError:
        raise NotInstalledError(
            f"{path}: a workbook needs the package python-calamine, which is not installed; pip "
            "install 'isocompute[excel]', or save its sheets as CSV."
        ) from None
    try:
        book = calamine.CalamineWorkbook.from_path(str(path))
        return {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False)
                for name in book.sheet_names}  # fmt: skip
    except (calamine.CalamineError, OSError, ValueError) as error:
        detail = " ".join(str(error).split())[:100]
        raise InputError(
            f"{path}: a workbook must be readable, but gives {detail}; save it again."
        ) from None


def _is_table(rows: list[list[Any]]) -> bool:
    """Whether a sheet has numbers under each other in a column of several."""
    columns = zip(*rows, strict=False)
    counts = [sum(isinstance(cell, int | float) for cell in column) for column in columns]
    return len(counts) > 1 and max(counts) >= _FEW


def _pairs(rows: list[list[Any]]) -> dict[str, str]:
    """Names and their values, one in a row, a remark behind them; none where a row is another.

    >>> _pairs([["Settings", ""], ["model", "Q3"], ["seed", 4.0]])
    {'model': 'Q3', 'seed': '4'}
    >>> _pairs([["run", "seed"], ["a", 4.0]]), _pairs([["step", "acc"], [0.0, 0.5]])
    ({}, {})
    >>> _pairs([["seed", 4.0], ["group_size", 4.0]])
    {'seed': '4', 'group_size': '4'}
    >>> _pairs([["checkpoint", "acc"], ["step 10", 0.4], ["step 20", 0.5]])
    {}
    """
    filled = [cells for row in rows if (cells := [cell for cell in row if cell != ""])]
    pairs = [cells for cells in filled if len(cells) > 1]
    if any(len(cells) > 3 or not all(isinstance(cell, str) for cell in (cells[0], *cells[2:]))
           for cells in filled) or len({cells[0] for cells in pairs}) < len(pairs):  # fmt: skip
        return {}
    if pairs and pairs[0][0].lower() in NAMING and str(pairs[0][1]).lower() != "value":
        return {}
    if len(pairs) > 2 and _are_steps([cells[0] for cells in pairs[1:]]):
        return {}
    return {_text(cells[0]): _text(cells[1]) for cells in pairs}


def _are_steps(words: list[str]) -> bool:
    """Whether several words are one with other numbers: steps, as text."""
    return len(words) > 1 and len({re.sub("[0-9]+", "", word) for word in words}) == 1


def _percents(path: Path) -> dict[str, set[tuple[int, int]]]:
    """Cells of an Excel workbook that are shown as percent, by sheet: row and column, from 0."""
    found = dict[str, set[tuple[int, int]]]()
    if not zipfile.is_zipfile(path):  # .xls
        return found
    with zipfile.ZipFile(path) as book:
        def part(name: str) -> str:
            there = name in book.namelist() and book.getinfo(name).file_size <= _MAX_BYTES
            return book.read(name).decode("utf-8", "replace") if there else ""

        styles = part("xl/styles.xml")
        forms = {"9", "10", *(one["numFmtId"] for one in _tags(styles, "numFmt")
                              if "%" in one.get("formatCode", ""))}  # fmt: skip
        used = styles.partition("<cellXfs")[2].partition("</cellXfs>")[0]
        shown = {str(i) for i, one in enumerate(_tags(used, "xf")) if one.get("numFmtId") in forms}
        files = {one["Id"]: one["Target"].removeprefix("/xl/") for one in
                 _tags(part("xl/_rels/workbook.xml.rels"), "Relationship")}  # fmt: skip
        for sheet in _tags(part("xl/workbook.xml"), "sheet") if shown else ():
            cells = _tags(part(f"xl/{files.get(sheet.get('r:id', ''), '')}"), "c")
            at = (re.fullmatch("([A-Z]+)([0-9]+)", c.get("r", "")) for c in cells
                  if c.get("s") in shown)  # fmt: skip
            found[unescape(sheet.get("name", ""))] = {
                (int(m[2]) - 1, reduce(lambda n, a: 26 * n + ord(a) - 64, m[1], 0) - 1)
                for m in at if m
            }
    return found


def _tags(text: str, name: str) -> Iterator[dict[str, str]]:
    """The attributes of XML elements of a name."""
    for tag in re.finditer(rf"<(?:\w+:)?{name}\s([^>]*)>", text):
        yield dict(re.findall(r'([\w:]+)="([^"]*)"', tag[1]))


def _text(cell: Any, is_percent: bool = False) -> str:
    """A cell as a CSV has it: whole numbers without a point, a line for a cell of several."""
    if is_percent and isinstance(cell, int | float):
        return f"{_text(round(100 * cell, 9))}%"
    if isinstance(cell, float) and cell == int(cell):
        return str(int(cell))
    return " ".join(str(cell).split())
