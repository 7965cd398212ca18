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
    then, after = (error.then, error.after) if isinstance(error, AskedError) else ((), ())
    if len(told) == 1 and not then:
        return told  # with its option
    typed = ["isocompute", *(sys.argv[1:] if argv is None else argv), *error.options]
    told += [f"To paste{only_if(asked)}{yours(typed)}:", f"  {shlex.join(typed)}"]
    return [*told, f"then{only_if(after)}{yours(then)}:", f"  {shlex.join(then)}"] if then else told


def only_if(asked: Sequence[InputError]) -> str:
    """The middle of a line above a command: what must hold for the answers that it gives.

    >>> only_if([InputError("", condition="`G` holds the seed"), InputError("")])
    ', only if `G` holds the seed'
    """
    held = " and ".join(dict.fromkeys(one.condition for one in asked if one.condition))
    return f", only if {held}" if held else ""


def yours(words: Sequence[str]) -> str:
    """The end of a line above a command: what only the user knows of it.

    >>> yours(["--set", "problems_per_batch=B_P", "--map", "acc=avg"]), yours(["--metric", "avg"])
    (', with your own B_P', '')
    """
    from isocompute.importers.words.asking import open_part

    own = list(dict.fromkeys(part for word in words if (part := open_part(word))))
    return f", with your own {' and '.join(own)}" if own else ""
