"""Notebooks: their code, the text that it printed, and the trainings that follow each other there.

Cells run one after the other: a variable has its last number, a function those that it was last
called with. Where the steps that were printed go back to their first under another n, B_p or seed,
another training began; what was printed since is its own.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from isocompute.importers.beside.launched import said_in
from isocompute.importers.formats.printed import settings_in
from isocompute.importers.values.reading import parse_json
from isocompute.importers.words.configuration import configuration

_MOST_BYTES = 256 << 20
_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)[ \t]*=[ \t]*([0-9][0-9.e+-]*)[ \t]*(?:#.*)?$", re.M)
_MAGIC = re.compile(r"^[ \t]*[!%].*$", re.M)
_NEXT = "\n\f\n"  # between cells
_CALL = re.compile(r"[\w.]+\([^()\n]{0,40}\)")


class Cell(NamedTuple):
    """A cell of code, and the lines that it printed."""

    code: str
    printed: list[str]


class Training(NamedTuple):
    """A training of a notebook: what it is called, its last line, and what is said of it."""

    name: str
    last: int
    said: dict[str, object]


def cells_of(path: Path) -> list[Cell] | None:
    """The cells of a notebook that hold code; None for any other file."""
    if path.suffix != ".ipynb" or path.stat().st_size > _MOST_BYTES:
        return None
    found = parse_json(path.read_bytes())[0]
    cells = found.get("cells") if isinstance(found, dict) else None
    code = [cell for cell in cells or () if isinstance(cell, dict)
            and cell.get("cell_type") == "code"]  # fmt: skip
    return [Cell("".join(cell.get("source") or ()), "\n".join(
        "".join(text) for one in cell.get("outputs") or ()
        if isinstance(one, dict) and (text := one.get("text"))
    ).splitlines()) for cell in code]  # fmt: skip


def trainings_of(cells: Sequence[Cell], rows: Sequence[tuple[int, int]]) -> list[Training]:
    """The trainings of a notebook in their order; one where all rows may be of one.

    Args:
        cells: of the notebook.
        rows: line and step of each that it printed.
    """
    ends = [line for (line, step), (_, then) in pairwise(rows) if then < step and (
        then <= rows[0][1])]  # fmt: skip
    whole = Training("", 1 << 62, _said(cells, 0, len(cells) - 1, 0, 1 << 62))
    if not ends:
        return [whole]
    found, began, cell = list[Training](), 0, 0
    for end in (*ends, rows[-1][0]):
        last = _cell_at(cells, end)
        name = cells[last].code.strip().rpartition("\n")[2]
        found.append(Training(name, end, _said(cells, cell, last, began, end)))
        began, cell = end, last + (_cell_at(cells, end + 1) > last)
    designs = [configuration(one.said).design for one in found]
    if len({*designs}) < 2:
        return [whole]
    names = [one.name for one in found]
    called = len({*names}) == len(names) and all(map(_CALL.fullmatch, names))
    return [one if called else one._replace(name=str(at)) for at, one in enumerate(found, 1)]


def _cell_at(cells: Sequence[Cell], line: int) -> int:
    """The cell that printed a line, from 1."""
    for at, cell in enumerate(cells):
        line -= len(cell.printed)
        if line <= 0:
            return at
    return len(cells)


def _said(
    cells: Sequence[Cell], first: int, last: int, began: int, end: int
) -> dict[str, object]:
    """What code says up to a cell, cells of a training say anew, and lines of it print."""
    code = [cell.code for cell in cells[: last + 1]]
    own = with_values(_NEXT.join(code)).split(_NEXT)[first:]
    said = said_in(with_values("\n".join(code))) | said_in("\n".join(own))
    said |= said_in("\n".join(map(with_values, _called(code, code[first:]))))
    printed = [line for cell in cells for line in cell.printed]
    for text in printed[began:end]:
        said |= settings_in(text)
    return said


def _called(code: Sequence[str], own: Sequence[str]) -> Iterator[str]:
    r"""Bodies of functions below the numbers that cells of one's own call them with.

    >>> list(_called(["def f(n, m=3):\n    g(k=n)", "f(8)"], ["f(8)"]))
    ['m = 3\nn = 8\ng(k=n)']
    """
    functions = {one.name: one for tree in map(_tree, code) for one in ast.walk(tree)
                 if isinstance(one, ast.FunctionDef)}  # fmt: skip
    for call in (one for tree in map(_tree, own) for one in ast.walk(tree)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if (of := functions.get(call.func.id)) is None:
            continue
        names = [one.arg for one in of.args.args]
        given: dict[str | None, ast.expr] = dict(
            zip(names[len(names) - len(of.args.defaults) :], of.args.defaults, strict=True)
        )
        given |= dict(zip(names, call.args, strict=False))
        given |= {one.arg: one.value for one in call.keywords}
        numbers = [f"{name} = {value.value!r}" for name, value in given.items()
                   if isinstance(value, ast.Constant) and type(value.value) in (int, float)]
        yield "\n".join((*numbers, *map(ast.unparse, of.body)))


def _tree(code: str) -> ast.AST:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(_MAGIC.sub("", code))
    return ast.Module([], [])


def with_values(code: str) -> str:
    r"""Code with the number of a variable where a keyword takes it: cells run one after the other.

    >>> with_values("G = 8\nG = 4\nf(n = G, m = 2)\nG = 2").splitlines()[2]
    'f(n = 4, m = 2)'
    """
    set_at = [(one.end(), one[1], one[2]) for one in _ASSIGNED.finditer(code)]

    def known(use: re.Match[str]) -> str:
        last = [value for at, name, value in set_at if at <= use.start() and name == use[2]]
        return use[1] + (last or [use[2]])[-1]

    return re.sub(r"(\w\s*=\s*)([A-Za-z_]\w*)(?=\s*[,)])", known, code)
