"""What every command's options share."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable
from typing import NoReturn

from isocompute.errors import InputError

_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)'(?P<rest> \(choose from (?P<choices>.*)\))")


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line, like every other."""

    def error(self, message: str) -> NoReturn:
        """Raise what the command line turns into exit code 2."""
        if message.endswith("required: COMMAND"):
            message = "a command must be named; begin with `isocompute quickstart` or `fit`"
        if message == "argument --budget: expected one argument":  # a shell's $5 is nothing
            message += ", such as 2e6, or '$5000' in quotes"
        found = _CHOICE.search(message)
        if found is not None:  # the nearest choice alone, where one is near
            choices = re.findall(r"'([^']+)'", found["choices"])
            near = difflib.get_close_matches(found["word"], choices, n=1)
            if near:
                kept = message[: found.start("rest")]
                raise InputError(f"{kept}, did you mean {near[0]!r}? See `{self.prog} --help`.")
        raise InputError(f"{message}; see `{self.prog} --help`.")


def stage(
    stages: argparse._SubParsersAction[Parser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    summary: str,
    epilog: str = "",
) -> Parser:
    """A command: its name, what it calls, one sentence."""
    parser = stages.add_parser(name, help=summary, description=summary, epilog=epilog)
    parser.set_defaults(command=command, parser=parser)
    return parser


def add_where(parser: Parser) -> None:
    """`--where KEY=VALUE`."""
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="use only these runs: of a study with several recipes or problem sets recipe=NAME, "
        "recipe.kl_coef=0, problems=NAME, train.size=500, seed=0; of a table, any column; of "
        "logs, model=NAME, run=PATTERN (!PATTERN: all others), or what their configurations say "
        "(learning_rate=1e-6, kl_coef=0.001, lora_rank=0); may be repeated. Also written "
        "STUDY[recipe=NAME]",
    )


def add_json(parser: Parser) -> None:
    """`--json FILE`."""
    parser.add_argument("--json", metavar="FILE", help="write the numbers as JSON; - prints them")
