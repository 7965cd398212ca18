r"""Tables of a paper (LaTeX): each `tabular` as a sheet, its cells without their markup.

A count under `\times 10^3` is so many thousands. A seed that the text says is of all rows.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from isocompute.importers.reading import number

ENDING = ".tex"
SEED = re.compile(r"\bseed\s*[=:]?\s*([0-9]{1,12})\b", re.I)
_MOST_BYTES = 1 << 22
_TABLE = re.compile(r"\\begin\{(tabular[*xy]?|longtable)\}(.*?)\\end\{\1\}", re.S)
_FORM = re.compile(r"\s*(?:\[[^\]]*\]|\{(?:[^{}]|\{[^{}]*\})*\})")  # of its columns
_LINE = re.compile(r"\\(?:(?:top|mid|bottom|cmid)rule|[hc]line)(?:\([lr]*\))?(?:\{[^{}]*\})?")
_MARKUP = re.compile(r"\\(?:math|text)?(?:bf|it|rm|tt|boldsymbol|underline|emph|text)\{([^{}]*)\}")
_TIMES = re.compile(r"\(?\s*\\times\s*10\^\{?([0-9])\}?\s*\)?")
_COUNTS = re.compile("rollout|step|update|iteration|sample|trajector", re.I)


def has_tables(path: Path) -> bool:
    """Whether a file is LaTeX with a table."""
    return path.suffix == ENDING and path.is_file() and path.stat().st_size <= _MOST_BYTES and (
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
