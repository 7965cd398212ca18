"""Notebooks: their code, the text that it printed, and the trainings that follow each other there.

Cells run one after the other: a variable has its last number, a function those that it was last
called with. Where the steps that were printed go back to their first under another n, B_p or seed,
another training began; what was printed since is its own. What a variable, a call or the order in
which cells were run leaves open is said by none.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from isocompute.importers.beside.launched import said_in
from isocompute.importers.formats.printed import settings_in
from isocompute.importers.values.imported import ImportedRun
from isocompute.importers.values.reading import number, parse_json, whole
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.settings import Settings

_MOST_BYTES = 256 << 20
_BOUND = re.compile(r"^[ \t]*([A-Za-z_]\w*)[ \t]*[-+*/]{0,2}=(?!=)")
_MAGIC = re.compile(r"^[ \t]*[!%].*$", re.M)
_CALL = re.compile(r"[\w.]+\([^()\n]{0,40}\)")
RESUMES = re.compile(r"resume_from_checkpoint\s*=\s*(?!None|False)")  # what a cell does
# transformers' table of a training, utils/notebook.py; Unsloth's has all metrics, `kl`, `a / b`
_DRAWN = re.compile(r"<thead>(.*?)</thead>\s*<tbody>(.*?)</tbody>", re.S)
_DRAWN_CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.S)


class Cell(NamedTuple):
    """A cell of code, the lines that it printed, and as which it was run, where that is known."""

    code: str
    printed: list[str]
    run: int | None = None


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
        _shown(one) for one in cell.get("outputs") or () if isinstance(one, dict)
    ).splitlines(), whole(cell.get("execution_count"))) for cell in code]  # fmt: skip


def read_cells(path: Path, settings: Settings) -> list[ImportedRun]:
    """The runs of a trainer's console that cells printed; none where they print none."""
    from isocompute.importers.formats.console import read_console  # slow to compile

    printed = "\n".join(line for cell in cells_of(path) or () for line in cell.printed)
    return [run for run in read_console(path, settings, printed.encode()) if run.n_rows]


def _shown(output: dict[str, Any]) -> str:
    """What an output printed, or a line for each row of the table that it drew."""
    if text := output.get("text"):
        return "".join(text)
    data = output.get("data")
    html = data.get("text/html") if isinstance(data, dict) else None
    return "\n".join(_drawn("".join(html or ())))


def _drawn(html: str) -> Iterator[str]:
    r"""The rows of the table that a training draws, as lines that end in an object.

    A column that evaluations alone have says so: transformers names `eval_reward` Reward.

    >>> cells = "<thead><th>Step</th><th>{}</th></thead><tbody><tr><td>5</td><td>0.2</td></tr>{}"
    >>> [*_drawn(cells.format("reward / mean", "</tbody>"))]
    ['Step 5 {"step": 5, "reward/mean": 0.2}']
    >>> [*_drawn(cells.format("Rewards/accuracy Reward/mean", "</tbody>"))]
    ['Step 5 {"step": 5, "eval_rewards/accuracy_reward/mean": 0.2}']
    """
    for head, body in _DRAWN.findall(html):
        names = [unescape(name).strip() for name in _DRAWN_CELL.findall(head)]
        if names[:1] != ["Step"]:
            continue
        keys = [name.replace(" / ", "/") if name[:1].islower()
                else f"eval_{name.replace(' ', '_').lower()}" for name in names[1:]]  # fmt: skip
        if all(key.endswith("_loss") for key in keys):
            continue  # of SFT, or of a training whose rewards it does not show
        for row in body.split("</tr>"):
            step, *values = [number(cell) for cell in _DRAWN_CELL.findall(row)] or [None]
            if step is not None and len(values) == len(keys):
                said = {key: value for key, value in zip(keys, values, strict=True)
                        if value is not None and not key.endswith("_loss")}  # fmt: skip
                yield f"Step {step:.0f} {json.dumps({'step': int(step), **said})}"


def trainings_of(cells: Sequence[Cell], rows: Sequence[tuple[int, int]]) -> list[Training]:
    """The trainings of a notebook in their order; one where all rows may be of one.

    Args:
        cells: of the notebook.
        rows: line and step of each that it printed.
    """
    ends = [line for (line, step), (_, then) in pairwise(rows) if then < step and (
        then <= rows[0][1])]  # fmt: skip
    last_row = rows[-1][0] if rows else 1 << 62
    every = Training("", 1 << 62, _said(cells, 0, _cell_at(cells, last_row), 0, last_row))
    if not ends:
        return [every]
    found, began, cell = list[Training](), 0, 0
    for end in (*ends, rows[-1][0]):
        last = _cell_at(cells, end)
        name = cells[last].code.strip().rpartition("\n")[2]
        found.append(Training(name, end, _said(cells, cell, last, began, end)))
        began, cell = end, last + (_cell_at(cells, end + 1) > last)
    designs = [configuration(one.said).design for one in found]
    if any(one == then for one, then in pairwise(designs)):
        return [every]
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
    above = cells[: last + 1]
    said = _told(above, cells[first : last + 1])
    at = above[-1].run if above else None
    if at is not None:  # what it says in the order in which cells were run, too
        ran = sorted((one for one in cells if one.run is not None and one.run <= at),
                     key=lambda one: one.run or 0)  # fmt: skip
        before = (cells[first - 1].run if first else None) or 0
        then = _told(ran, [one for one in ran if (one.run or 0) > before])
        said = {key: value for key, value in said.items() if then.get(key) == value}
    printed = [line for cell in cells for line in cell.printed]
    for text in printed[began:end]:
        said |= settings_in(text)
    return said


def _told(cells: Sequence[Cell], own: Sequence[Cell]) -> dict[str, object]:
    """What cells say one after the other; those of a training, the last of them, say it anew."""
    code, since = with_values([cell.code for cell in cells]), len(cells) - len(own)
    made = _made(code[since:])
    said = said_in("\n".join([_without(text, made) for text in code[:since]] + code[since:]))
    said |= said_in("\n".join(code[since:]))
    bodies = (with_values([body])[0] for body in _called(code, code[since:]))
    return said | said_in("\n".join(bodies))


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


def _tree(code: str) -> ast.Module:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(_MAGIC.sub("", code))
    return ast.Module([], [])


def _made(code: Sequence[str]) -> set[str]:
    """What cells call with all of its keywords: an earlier call of it says nothing of this one."""
    calls = [one for tree in map(_tree, code) for one in ast.walk(tree)
             if isinstance(one, ast.Call) and one.keywords]  # fmt: skip
    return {ast.unparse(one.func) for one in calls if all(of.arg for of in one.keywords)} - {"dict"}


def _without(code: str, made: Collection[str]) -> str:
    """Code without the calls of some functions."""
    lines = code.encode().split(b"\n")
    for call in (one for one in ast.walk(_tree(code)) if isinstance(one, ast.Call)):
        if call.keywords and ast.unparse(call.func) in made:
            lines[call.lineno - 1 : call.end_lineno] = [b""] * (
                (call.end_lineno or call.lineno) - call.lineno + 1)  # fmt: skip
    return b"\n".join(lines).decode()


def with_values(code: Sequence[str]) -> list[str]:
    r"""Cells with the number of a variable where a keyword takes it: they run one after the other.

    What anything but numbers is bound to there, as by a loop, keeps its name. Below stands as a
    call what is set in place, and what a keyword computes twice, as nothing.

    >>> with_values(["G = 8\nG = 4", "f(n = G, m = 2)\nG = 2"])[1].splitlines()[0]
    'f(n = 4, m = 2)'
    >>> with_values(["G = 8\nG *= 2\nf(n = G)\na.k = 3\nf(m=2*G)"])[0].splitlines()[2:]
    ['f(n = G)', 'a.k = 3', 'f(m=2*G)', '_(m = _, m = __)', '_(k = 3)']
    """
    trees = [*map(_tree, code)]
    bound = [((at, *place), name, number) for at, tree in enumerate(trees)
             for place, name, number in (_bound(tree) if tree.body else _by_lines(code[at]))]
    keywords = {one.arg for tree in trees for one in ast.walk(tree) if isinstance(one, ast.keyword)}
    out = list[str]()
    for at, (tree, text) in enumerate(zip(trees, code, strict=True)):
        lines, below = text.encode().split(b"\n"), list[str]()
        for key, value, in_function in reversed([*_taken(tree, frozenset(), False)]):
            if not isinstance(value, ast.Name):
                below.append(f"_({key} = _, {key} = __)")
                continue
            its = [(place < (at, value.lineno, value.col_offset), number)
                   for place, name, number in bound if name == value.id]  # fmt: skip
            numbers = {number for is_before, number in its if not is_before and in_function}
            numbers |= {*[number for is_before, number in its if is_before][-1:]}
            if len(numbers) == 1 and (number := numbers.pop()) is not None:
                line = lines[value.lineno - 1]
                lines[value.lineno - 1] = (
                    line[: value.col_offset] + number.encode() + line[value.end_col_offset :]
                )
        below += [f"_({key} = {of})" for key, of in _set_in_place(tree)]
        below += [f"_({key} = {of})" for key, of in _in_dictionaries(tree) if key in keywords]
        out.append("\n".join((b"\n".join(lines).decode(), *below)))
    return out


_Bound = tuple[tuple[int, int], str, str | None]  # a place, a name, and its number
_OF_OWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp,
           ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip


def _bound(tree: ast.Module) -> Iterator[_Bound]:
    """What statements bind names to: a number, or None for all else, from their begin on."""
    for one in tree.body:
        targets = one.targets if isinstance(one, ast.Assign) else (
            [one.target] if isinstance(one, ast.AnnAssign) and one.value else [])  # fmt: skip
        value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
        plain = {target.id: number for target in targets if isinstance(target, ast.Name)
                 and (number := _number(value)) is not None}  # fmt: skip
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and (
                len(target.elts) == len(value.elts)
            ):
                plain |= {of.id: number for of, its in zip(target.elts, value.elts, strict=True)
                          if isinstance(of, ast.Name) and (number := _number(its)) is not None}
        for name in _stored(one, deep=False):
            yield (one.lineno, one.col_offset), name, plain.get(name)


def _by_lines(code: str) -> Iterator[_Bound]:
    """The names that lines bind of a cell that is no plain Python: to what, is not known."""
    for at, text in enumerate(code.splitlines(), 1):
        if match := _BOUND.match(text):
            yield (at, 0), match[1], None


def _number(value: ast.expr | None) -> str | None:
    is_one = isinstance(value, ast.Constant) and type(value.value) in (int, float)
    return ast.unparse(value) if value is not None and is_one else None


def _stored(tree: ast.AST, *, deep: bool) -> Iterator[str]:
    """Names that code binds, of functions in it only what they say is global unless `deep`."""
    if isinstance(tree, ast.Global):
        yield from tree.names
    elif isinstance(tree, ast.Name) and isinstance(tree.ctx, ast.Store):
        yield tree.id
    elif isinstance(tree, ast.arg):
        yield tree.arg
    elif isinstance(tree, ast.alias):
        yield tree.asname or tree.name
    for one in ast.iter_child_nodes(tree):
        if deep or not isinstance(tree, _OF_OWN):
            yield from _stored(one, deep=deep)
        elif isinstance(tree, ast.FunctionDef):
            yield from (name for of in ast.walk(one) if isinstance(of, ast.Global)
                        for name in of.names)  # fmt: skip


def _taken(
    tree: ast.AST, own: frozenset[str], in_function: bool
) -> Iterator[tuple[str, ast.expr, bool]]:
    """Keywords of calls that take a variable of the notebook or compute a value, in their order."""
    if isinstance(tree, _OF_OWN):
        own |= {*_stored(tree, deep=True)} - {
            name for of in ast.walk(tree) if isinstance(of, ast.Global) for name in of.names}
        in_function = in_function or isinstance(tree, ast.FunctionDef)
    if isinstance(tree, ast.keyword) and tree.arg and (
        isinstance(tree.value, ast.Attribute | ast.BinOp | ast.IfExp | ast.Subscript | ast.Call)
        or (isinstance(tree.value, ast.Name) and tree.value.id not in own)
    ):
        yield tree.arg, tree.value, in_function
    for one in ast.iter_child_nodes(tree):
        yield from _taken(one, own, in_function)


def _in_dictionaries(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names and numbers of `{"num_generations": 8}`, which may go over those of a call."""
    for one in (one for one in ast.walk(tree) if isinstance(one, ast.Dict)):
        for key, value in zip(one.keys, one.values, strict=True):
            number = _number(value)
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and number is not None:
                yield key.value, number


def _set_in_place(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names and numbers of `args.num_generations = 8` and `args["num_generations"] = 8`."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign | ast.AugAssign):
            target = one.targets[0] if isinstance(one, ast.Assign) else one.target
            key = target.attr if isinstance(target, ast.Attribute) else (
                target.slice.value if isinstance(target, ast.Subscript)
                and isinstance(target.slice, ast.Constant) else "")  # fmt: skip
            counts_on = isinstance(one, ast.AugAssign)
            number = None if counts_on else _number(one.value)
            if isinstance(key, str) and key.isidentifier() and (
                number is not None or counts_on or not isinstance(one.value, ast.Constant)
            ):
                yield key, number or f"_, {key} = __"
