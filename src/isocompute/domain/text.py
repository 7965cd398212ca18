"""Values as text: one way to write a count, JSON, and a name that somebody else chose."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_FEWEST = 1e4  # smaller counts are written out
ROOM = 67  # of a line of 80, beside the names at the left


def takes(rollouts: float) -> str:
    """What a run costs, in words.

    >>> takes(8_388_608)
    '8.39M rollouts'
    """
    return f"{compact(rollouts)} rollouts"


def two_digits(value: float) -> int:
    """A count rounded down.

    >>> two_digits(4134.0), two_digits(0.5)
    (4100, 0)
    """
    if value < 1:
        return 0
    digit = 10 ** max(math.floor(math.log10(value)) - 1, 0)
    return int(value / digit) * int(digit)


def some_of(words: Iterable[str], most: int = 8) -> str:
    """A list for one line, cut where it grows long.

    >>> some_of("abcd", most=2)
    'a, b and 2 more'
    """
    listed = list(words)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def none_of(what: str, known: Iterable[str], got: str) -> str:
    """What is said where a name is none of those that there are.

    >>> none_of("metric", {"b", "a"}, "c")
    "the metric must be one of 'a', 'b', but got 'c'; choose one of them."
    >>> none_of("metric", {""}, "b").partition("; ")[2]
    'leave it out (of several sources say whose it is: SOURCE[metric=b]).'
    """
    if not (named := sorted(filter(None, known))):
        own = f"SOURCE[{what.replace(' ', '_')}={got}]"
        return (f"no {what} has a name here, but got {got!r}; leave it out (of several sources say "
                f"whose it is: {own}).")  # fmt: skip
    listed = some_of(map(repr, named))
    return f"the {what} must be one of {listed}, but got {got!r}; choose one of them."


def unit_words(unit: object) -> str:
    """A unit of compute or of a law as people write it; another word stays as it is.

    >>> unit_words("gpu-hours"), unit_words("tokens")
    ('GPU-hours', 'tokens')
    """
    return {"gpu-hours": "GPU-hours", "steps": "update steps"}.get(str(unit), str(unit))


def compact(value: float | None) -> str:
    """A count in a few digits: 488, 8,192, 53.1k, 153k, 2M, 6.4B; a dash for no value.

    >>> [compact(x) for x in (0.5, 52.3, 8192, 53_099, 999_999, 3_997_696, 6.4e9, None)]
    ['0.5', '52', '8,192', '53.1k', '1M', '4M', '6.4B', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    for unit, letter in _SIZES:
        if size >= 0.9995 * max(unit, _FEWEST):
            return f"{value / unit:.3g}{letter}"
    return f"{value:,.0f}" if size >= 10 else f"{value:.2g}"


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Two shares in percent with as many digits as tell them apart, four at most.

    >>> told_apart(0.1512, 0.15)
    ('15.1%', '15.0%')
    """
    digits = next((d for d in range(4) if f"{one:.{d}%}" != f"{other:.{d}%}"), 4)
    return f"{one:.{digits}%}", f"{other:.{digits}%}"


def fold(octaves: float) -> str:
    """A move along log2 n as people say it: how many times as large.

    >>> [fold(x) for x in (6.0, 3.6, 1.0, 0.4, -1.0)]
    ['64-fold', '12-fold', '2-fold', '1.3-fold', '0.5-fold']
    """
    times = 2**octaves
    return f"{times:,.0f}-fold" if times >= 10 else f"{times:.2g}-fold"


def at_least_fold(octaves: float) -> str:
    """A lower bound of such a move, down to the doubling: its draws tell no more.

    >>> [at_least_fold(x) for x in (5.7, 4.04, 1.0, 0.4)]
    ['32-fold', '16-fold', '2-fold', '1.3-fold']
    """
    return fold(math.floor(octaves + 1e-6) if octaves > 1 - 1e-6 else octaves)


def pasted(command: str, width: int, first: str, then: str) -> list[str]:
    r"""A command over several lines that can be pasted as they stand.

    An option stays beside its value, and nothing in single quotes is cut.

    Args:
        command: as it would stand in one line.
        width: of a line with its backslash.
        first, then: what the first line and the others begin with.

    >>> pasted("isocompute plan runs --budget 2e6", 24, "Next: ", "  ")
    ['Next: isocompute plan \\', '  runs --budget 2e6']
    """
    parts = re.findall(r"(?:--\S+ )?(?:'[^']*'|[^\s'])+", command)
    rows = [first + parts[0]]
    for i, part in enumerate(parts[1:], 2):
        last = i == len(parts)
        if len(f"{rows[-1]} {part}") > width - (0 if last else 2):
            rows[-1] += " \\"
            rows.append(then + part)
        else:
            rows[-1] += f" {part}"
    return rows


def fitting(forms: Sequence[str], room: float = ROOM) -> str:
    """The first of some forms that has room, else the last, which is the shortest.

    >>> fitting(["a long form", "short"], 6)
    'short'
    """
    return next((one for one in forms if len(one) <= room), forms[-1])


def singular(text: str) -> str:
    """A text in which one thing is said as one.

    >>> singular("train 1 problems x 21 rollouts x 1 steps")
    'train 1 problem x 21 rollouts x 1 step'
    >>> singular("1 passes over 1,001 problems")
    '1 pass over 1,001 problems'
    """
    return re.sub(r"(?<![\w.,])1 (problem|rollout|step|pass)(?:e?s)\b", r"1 \1", text)


def of_runs(some: int, every: int) -> str:
    """How many of so many runs.

    >>> of_runs(1, 1), of_runs(1, 3), of_runs(2, 2), of_runs(3, 3)
    ('its only run', '1 of 3 runs', 'both runs', 'all 3 runs')
    """
    if some < every:
        return f"{some} of {every} runs"
    return {1: "its only run", 2: "both runs"}.get(every, f"all {every} runs")


def plain(value: Any, limit: int | None = None) -> Any:
    """A JSON value: numpy's become Python's, NaN and infinity None, what JSON has not its text.

    Args:
        limit: make every text `visible` and cut it to so many characters; None: leave it as it is.
    """
    if type(value) is float:  # most values are one
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy scalars and arrays, without importing numpy
        value = value.tolist()
    if isinstance(value, Mapping):
        return {_text(key, limit): plain(inner, limit) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner, limit) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    return _text(value, limit)


def _text(value: object, limit: int | None) -> str:
    return str(value) if limit is None else visible(value, limit)


def visible(value: object, limit: int | None = 400) -> str:
    r"""Text in which nothing acts: control and direction characters are written out.

    Line breaks and tabs become spaces; longer texts end in an ellipsis after `limit` characters.

    >>> visible("a\x1b[31m")
    'a\\u001b[31m'
    """
    text = "".join(
        " "
        if char in "\n\r\t\u2028\u2029"
        else f"\\u{ord(char):04x}"
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co")
        else char
        for char in str(value)
    )
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
