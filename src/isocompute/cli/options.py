"""What every command's options share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from isocompute.errors import InputError


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line, like every other."""

    def error(self, message: str) -> NoReturn:
        """Raise what the command line turns into exit code 2."""
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
    parser.set_defaults(command=command)
    return parser


def add_json(parser: Parser) -> None:
    """`--json FILE`."""
    parser.add_argument("--json", metavar="FILE", help="write the numbers as JSON; - prints them")
