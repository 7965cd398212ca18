"""Write docs/cli.md from the parser, so that page and `--help` cannot disagree.

Run: python scripts/make_cli_docs.py [FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from isocompute.cli.parser import build_parser

SHARED = 2  # commands that have an option alike: it is described once
HEAD = """# Command line

<!-- Written by scripts/make_cli_docs.py; edit src/isocompute/cli/parser.py instead. -->

How to spend the rollouts of LLM reinforcement learning, and how sure to be.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | a run failed; what it had committed is kept |
| 2 | bad input: one line with the rule, the values seen and the cure; nothing was written |
| 3 | a refusal: the data cannot carry an answer; the line says what to run next |
| 130, 143 | stopped by Ctrl-C, by SIGTERM |

Numbers go to standard output, progress and complaints to standard error. `--json FILE` writes
the same numbers for programs (`-` for standard output); values that cannot be estimated are
null. `NO_COLOR` is respected, and a pipe gets plain text. With `ISOCOMPUTE_DEBUG=1` an
unexpected failure shows its traceback.

Shell completion: install the extra `[completion]` and put
`eval "$(register-python-argcomplete isocompute)"` into the shell's start file.
"""


def cli_page() -> str:
    """The page as text."""
    (stages,) = (
        a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    lines = [HEAD]
    seen = Counter(row for command in stages.choices.values() for row in set(_rows(command)))
    shared = [row for row, times in seen.items() if times >= SHARED and row.startswith("- `-")]
    for name, command in stages.choices.items():
        lines += _section(name, command, shared)
    lines += ["## Options that several commands share", "", *sorted(shared)]
    return "\n".join(lines).rstrip() + "\n"


def _arguments(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in command._actions if not isinstance(a, argparse._HelpAction)]


def _row(action: argparse.Action) -> str:
    meaning = (action.help or "").replace("%%", "%")  # argparse's own escape
    return f"- `{_spelling(action)}`: {meaning}"


def _rows(command: argparse.ArgumentParser) -> list[str]:
    return [_row(action) for action in _arguments(command)]


def _section(name: str, command: argparse.ArgumentParser, shared: list[str]) -> list[str]:
    arguments = _arguments(command)
    places = [_spelling(a) for a in arguments if not a.option_strings]
    usage = " ".join(["isocompute", name, *places, "[options]"])
    lines = [f"## {name}", "", _sentence(command.description or ""), "", f"    {usage}", ""]
    own = [row for row in _rows(command) if row not in shared]
    if own:
        lines += [*own, ""]
    if elsewhere := [a.option_strings[-1] for a in arguments if _row(a) in shared]:
        also = ", ".join(f"`{flag}`" for flag in elsewhere)
        lines += [f"[Shared](#options-that-several-commands-share): {also}.", ""]
    if command.epilog:
        lines += [_sentence(command.epilog, end=""), ""]
    return lines


def _spelling(action: argparse.Action) -> str:
    """`--range LOW HIGH`, `SOURCE...`, `[DIR]`."""
    metavar = action.metavar
    if metavar is None and action.choices is not None:
        metavar = "|".join(str(choice) for choice in action.choices)
    if metavar is None:
        metavar = action.dest.upper()
    value = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    if not action.option_strings:
        return {"+": f"{value}...", "?": f"[{value}]", "*": f"[{value}...]"}.get(
            str(action.nargs), value
        )
    flag = ", ".join(action.option_strings)
    return flag if action.nargs == 0 else f"{flag} {value}"


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:] + end


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/cli.md")
    target.write_text(cli_page(), encoding="utf-8")
    print(target)
