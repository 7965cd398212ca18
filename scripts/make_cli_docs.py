"""Write docs/cli.md from the parser, so that page and `--help` cannot disagree.

Run: python scripts/make_cli_docs.py [FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from isocompute.cli.parser import build_parser

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
    parser = build_parser()
    lines = [HEAD]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                lines += _section(name, command)
    return "\n".join(lines).rstrip() + "\n"


def _section(name: str, command: argparse.ArgumentParser) -> list[str]:
    arguments = [a for a in command._actions if not isinstance(a, argparse._HelpAction)]
    places = [_spelling(a) for a in arguments if not a.option_strings]
    usage = " ".join(["isocompute", name, *places, "[options]"])
    lines = [f"## {name}", "", _sentence(command.description or ""), "", f"    {usage}", ""]
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{_cell(_spelling(a))}` | {_cell(a.help or '')} |" for a in arguments]
        lines.append("")
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


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:] + end


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/cli.md")
    target.write_text(cli_page(), encoding="utf-8")
    print(target)
