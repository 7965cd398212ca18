"""What `--set` gives for several runs at once: a pattern of their names, a B_p by n."""

from __future__ import annotations

import re

from isocompute.errors import InputError
from isocompute.importers.reading import whole

PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")
_BEGINS = "(?:(?<![A-Za-z])|(?<=[0-9]x))"  # a word; 32xn8 has a sign for "times"
_ABSENT = re.compile(r"(.*\})\[([^][{}]*[^][{}]\{seed\}[^][{}]*)\]")  # in a pattern, at its end


def regex_of(pattern: str) -> str:
    """What a pattern matches: a star is anything within a name, `[_s{seed}]` may be absent.

    A placeholder alone is a whole name: the "0" of a folder "run0" is no step.

    >>> re.search(regex_of("n{a}[*s{seed}]"), "q-n8-steps300-s2")["seed"]
    '2'
    >>> [re.search(regex_of("{a}"), name) is not None for name in ("run0/x.csv", "x/20.csv", "20")]
    [False, True, True]
    """
    if alone := PLACEHOLDER.fullmatch(pattern):
        return rf"(?<![^/])(?P<{alone[1]}>[0-9]{{1,12}})(?![^/.])"
    absent = _ABSENT.fullmatch(pattern)
    pattern, may_be = (pattern, "") if absent is None else absent.groups()
    regexes = []
    for text in (pattern, may_be):
        parts = PLACEHOLDER.split(text)
        for i in range(0, len(parts), 2):  # a word is not the end of another
            words = parts[i].split("*")
            parts[i] = "".join(
                f"{'[^/]*?' * (k > 0)}{_BEGINS * word[:1].isalpha()}{re.escape(word)}"
                if k or (i == 0 and text == pattern) else re.escape(word)
                for k, word in enumerate(words)
            )
        parts[1::2] = [f"(?P<{name}>[0-9]{{1,12}})" for name in parts[1::2]]
        regexes.append("".join(parts))
    return f"{regexes[0]}(?:{regexes[1]})?" if may_be else regexes[0]


def parse_by_n(text: str) -> dict[int, int]:
    """`4:128,8:64` -> the B_p of every n."""
    pairs = [one.partition(":") for one in text.split(",")]
    numbers = {whole(n): whole(b_p) for n, _, b_p in pairs}
    found = {n: b_p for n, b_p in numbers.items() if n and b_p}
    if len(found) < len(pairs):
        raise InputError(
            f"problems_per_batch by n must look like 4:128,8:64, but got {text!r}; write an n, a "
            "colon and its B_p for each, once."
        )
    return found
