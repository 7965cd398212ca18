"""Renew the outputs that README.md shows: each block after `<!-- output of: COMMAND -->`.

    python scripts/update_readme.py [--quickstart DIR]

Commands run in an empty folder. The block of `make quickstart` is renewed only from a finished
quickstart folder, whose last lines are printed again by the same command.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- output of: (?P<command>[^\n]*?) -->\n```\n)(?P<body>.*?)(?=\n```)", re.S)


def output_of(command: str, quickstart: Path | None) -> str | None:
    """What the block shows; None leaves it as it is."""
    if command == "make quickstart":
        if quickstart is None:
            return None
        command = f"isocompute quickstart {quickstart}"
    words = shlex.split(command)
    words[0] = str(Path(sys.executable).with_name(words[0]))
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.replace(str(quickstart), "quickstart").strip("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quickstart", type=Path, metavar="DIR")
    options = parser.parse_args()
    folder = options.quickstart.resolve() if options.quickstart else None

    def renew(match: re.Match[str]) -> str:
        new = output_of(match["command"], folder)
        return match[1] + (match["body"] if new is None else new)

    README.write_text(BLOCK.sub(renew, README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
