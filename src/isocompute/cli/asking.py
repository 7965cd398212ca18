"""What a command must know before it can go on, and the command to paste."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from isocompute.errors import AskedError, InputError


def asking_lines(error: InputError, argv: Sequence[str] | None) -> list[str]:
    """A message of bad input: what is asked, each in a line, and one command with all options."""
    asked = error.asked if isinstance(error, AskedError) else (error,)
    told = [" ".join(str(one).split("\n")) for one in asked]
    if len(told) > 1:
        told = [f"{len(told)} things must be known first:",
                *(f"  {i}. {line}" for i, line in enumerate(told, 1))]  # fmt: skip
    then = error.then if isinstance(error, AskedError) else ()
    if len(told) == 1 and not then:
        return told  # with its option
    typed = ["isocompute", *(sys.argv[1:] if argv is None else argv), *error.options]
    only_if = " and ".join(one.condition for one in asked if one.condition)
    told += [f"To paste{f', only if {only_if}' if only_if else ''}{yours(typed)}:",
             f"  {shlex.join(typed)}"]  # fmt: skip
    return [*told, f"then{yours(then)}:", f"  {shlex.join(then)}"] if then else told


def yours(words: Sequence[str]) -> str:
    """The end of a line above a command: what only the user knows of it.

    >>> yours(["--set", "problems_per_batch=B_P", "--map", "acc=avg"]), yours(["--metric", "avg"])
    (', with your own B_P', '')
    """
    from isocompute.importers.words.asking import open_part

    own = list(dict.fromkeys(part for word in words if (part := open_part(word))))
    return f", with your own {' and '.join(own)}" if own else ""
