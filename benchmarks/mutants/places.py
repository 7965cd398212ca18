"""Where a line can be broken on purpose: every such change of a source file, and a sample of them.

A change stays within one line, so that it can be read, found again after other lines have moved,
and undone. Docstrings, annotations, imports, decorators and the words of errors are left alone:
tests need not hold them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_BINARY = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "+"), ast.Pow: ("**", "*"), ast.MatMult: ("@", "+"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
_COMPARE = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_NEGATED = {
    ast.Lt: ("<", ">="), ast.LtE: ("<=", ">"), ast.Gt: (">", "<="), ast.GtE: (">=", "<")
}  # fmt: skip
_NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax",
    "argmax": "argmin", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor",
    "sum": "mean", "mean": "sum", "cumsum": "cumprod", "exp": "log", "log": "exp",
    "log2": "log10", "log10": "log2", "zeros": "ones", "ones": "zeros",
    "zeros_like": "ones_like", "ones_like": "zeros_like",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Place:
    """One way to break one line.

    Args:
        path: source file, from the root of the repository.
        function: qualified name of what the line stands in; "" at the top of the module.
        kind: what is changed.
        before, after: the line as it is, and broken.
        nth: which of the equal lines of that function.
    """

    path: str
    function: str
    kind: str
    before: str
    after: str
    nth: int = 0


def broken(source: str, place: Place) -> str | None:
    """The source with that line broken; None where the line is no longer there."""
    spans = _spans(ast.parse(source))
    lines, seen = source.splitlines(keepends=True), 0
    for number, line in enumerate(lines, 1):
        if line.rstrip("\n") == place.before and _function(spans, number) == place.function:
            if seen == place.nth:
                return "".join([*lines[: number - 1], place.after + "\n", *lines[number:]])
            seen += 1
    return None


def line_of(source: str, place: Place) -> int:
    """Number of the line, from 1."""
    spans, seen = _spans(ast.parse(source)), 0
    for number, line in enumerate(source.splitlines(), 1):
        if line == place.before and _function(spans, number) == place.function:
            if seen == place.nth:
                return number
            seen += 1
    raise LookupError(place)


def places(root: Path, path: str) -> list[Place]:
    """Every place of one file, in the order of its lines."""
    source = (root / path).read_text()
    tree = ast.parse(source)
    lines, spans = source.splitlines(), _spans(tree)
    seen: dict[tuple[str, str], dict[int, int]] = {}
    found = {}
    for number, kind, after in sorted(_edits(tree, lines)):
        before, function = lines[number - 1], _function(spans, number)
        same = seen.setdefault((function, before), {
            n: k for k, n in enumerate(
                n for n, line in enumerate(lines, 1)
                if line == before and _function(spans, n) == function
            )
        })  # fmt: skip
        place = Place(path=path, function=function, kind=kind, before=before, after=after,
                      nth=same[number])  # fmt: skip
        if after != before:
            found[place] = None
    return list(found)


def draw(
    root: Path, strata: dict[str, list[str]], sizes: dict[str, int], seed: int
) -> list[tuple[str, Place]]:
    """(stratum, place) pairs in the order in which they are to be tried.

    Within a stratum lines are drawn without replacement, and of each one of its changes.
    """
    rng, drawn = np.random.default_rng(seed), []
    for name, paths in strata.items():
        lines: dict[tuple[str, str, str, int], list[Place]] = {}
        for place in (place for path in paths for place in places(root, path)):
            key = (place.path, place.function, place.before, place.nth)
            lines.setdefault(key, []).append(place)
        several, taken = list(lines.values()), 0
        for i in rng.permutation(len(several)).tolist():
            place = several[i][rng.integers(len(several[i]))]
            if taken < sizes[name] and _parses((root / place.path).read_text(), place):
                taken += 1
                drawn.append((name, place))
    return drawn


def _parses(source: str, place: Place) -> bool:
    text = broken(source, place)
    try:
        ast.parse(text or "(")
    except SyntaxError:
        return False
    return True


def _spans(tree: ast.AST) -> list[tuple[int, int, str]]:
    """(first line, last line, qualified name) of every function and class, inner ones last."""
    found = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                found.append((child.lineno, child.end_lineno or child.lineno, name))
            walk(child, name)

    walk(tree, "")
    return found


def _function(spans: list[tuple[int, int, str]], number: int) -> str:
    inside = [(last - first, name) for first, last, name in spans if first <= number <= last]
    return min(inside)[1] if inside else ""


def _edits(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """(line number, kind, the line broken)."""
    for node in _code(tree):
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            yield from _between(lines, node.left, node.right, "operator", *_BINARY[type(node.op)])
        elif isinstance(node, ast.Compare):
            left = node.left
            for op, right in zip(node.ops, node.comparators, strict=True):
                yield from _between(lines, left, right, "comparison", *_COMPARE[type(op)])
                if type(op) in _NEGATED:
                    yield from _between(lines, left, right, "comparison", *_NEGATED[type(op)])
                left = right
        elif isinstance(node, ast.BoolOp):
            words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from _between(lines, left, right, "and/or", *words)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            if node.lineno == node.operand.lineno:
                yield _cut(lines, node.lineno, "sign", node.col_offset, node.operand.col_offset, "")
        elif isinstance(node, ast.Constant):
            yield from _constant(lines, node)
        elif isinstance(node, ast.IfExp | ast.If | ast.While):
            test = node.test
            if test.lineno == test.end_lineno:
                for word in ("True", "False"):
                    if not (isinstance(node, ast.While) and word == "True"):
                        yield _cut(lines, test.lineno, "condition", test.col_offset,
                                   test.end_col_offset, word)  # fmt: skip
        elif isinstance(node, ast.Call):
            yield from _call(lines, node)
        if _alone(lines, node):
            indent = len(lines[node.lineno - 1]) - len(lines[node.lineno - 1].lstrip())
            yield node.lineno, "statement", " " * indent + "pass"


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes whose change tests ought to notice."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
                continue
            if isinstance(value, list):
                waiting += [v for v in value if isinstance(v, ast.AST)]
            elif isinstance(value, ast.AST):
                waiting.append(value)


def _call(lines: list[str], node: ast.Call) -> Iterator[tuple[int, str, str]]:
    name = node.func
    word = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    if word in _NAMES and name.end_col_offset is not None and name.end_lineno is not None:
        end = name.end_col_offset
        yield _cut(lines, name.end_lineno, "function", end - len(word), end, _NAMES[word])
    for left, right in zip(node.args, node.args[1:], strict=False):
        if isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
            continue
        if left.lineno == right.end_lineno:
            text = lines[left.lineno - 1].encode()
            a = text[left.col_offset : left.end_col_offset]
            b = text[right.col_offset : right.end_col_offset]
            between = text[left.end_col_offset : right.col_offset]
            yield _cut(lines, left.lineno, "arguments swapped", left.col_offset,
                       right.end_col_offset, (b + between + a).decode())  # fmt: skip
    for keyword in node.keywords:
        value = keyword.value
        if keyword.arg is None or keyword.lineno != value.end_lineno:
            continue
        text = lines[keyword.lineno - 1].encode()
        end = value.end_col_offset or 0
        rest = text[end:]
        stop = end + (len(rest) - len(rest.lstrip(b", ")) if rest[:1] == b"," else 0)
        yield _cut(lines, keyword.lineno, "argument dropped", keyword.col_offset, stop, "")


def _constant(lines: list[str], node: ast.Constant) -> Iterator[tuple[int, str, str]]:
    value = node.value
    if isinstance(value, bool):
        words = [str(not value)]
    elif isinstance(value, int):
        words = [str(value + 1)] + ([str(value - 1)] if value > 0 else [])
    elif isinstance(value, float):
        words = [repr(2 * value), repr(value / 2)] if value else ["1.0"]
    else:
        return
    for word in words:
        yield _cut(lines, node.lineno, "number", node.col_offset, node.end_col_offset, word)


def _between(
    lines: list[str], left: ast.expr, right: ast.expr, kind: str, old: str, new: str
) -> Iterator[tuple[int, str, str]]:
    """The operator between two operands that share a line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    text = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
    if old in text:
        yield _cut(lines, right.lineno, kind, left.end_col_offset, right.col_offset,
                   text.replace(old, new, 1))  # fmt: skip


def _alone(lines: list[str], node: ast.AST) -> bool:
    """Whether a statement does something and fills its line, so that `pass` can stand for it."""
    if isinstance(node, ast.Expr):
        if not isinstance(node.value, ast.Call):
            return False
    elif not isinstance(node, ast.AugAssign | ast.Continue | ast.Break):
        return False
    return node.lineno == node.end_lineno and (
        lines[node.lineno - 1].encode()[: node.col_offset].strip() == b""
    )


def _cut(
    lines: list[str], number: int, kind: str, start: int, end: int | None, new: str
) -> tuple[int, str, str]:
    text = lines[number - 1].encode()
    return number, kind, (text[:start] + new.encode() + text[end:]).decode()
