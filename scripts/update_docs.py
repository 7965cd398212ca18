"""Renew what README.md and docs/ show: every block after `<!-- output of: COMMAND -->`.

    python scripts/update_docs.py [--quickstart DIR] [PAGE...]

Each page is walked as its test walks it (tests/helpers/docs_runner.py): in an empty folder,
commands in order. The block of `make quickstart` is renewed only from a finished quickstart
folder, whose last lines are printed again by the same command.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from docs_runner import PAGES, Walk  # noqa: E402  # the path is set just above


def renewed(page: str, folder: Path, quickstart: Path | None) -> str:
    """The page with every output as it is now."""
    walk, changes = Walk(folder, page), []
    for block, complaints in walk.steps():
        for complaint in complaints:
            print(complaint, file=sys.stderr)
        key, _, command = block.comment.partition(": ")
        if key != "output of":
            continue
        if command == "make quickstart" and quickstart is not None:
            words = [sys.executable, "-m", "isocompute", "quickstart", str(quickstart)]
            done = subprocess.run(words, capture_output=True, text=True, check=True,
                                  env=walk.environment)  # fmt: skip
            printed: str | None = done.stdout.replace(str(quickstart), "quickstart")
        else:
            printed = walk.output_of(command)
        if printed is not None:
            changes.append((block.start, block.end, printed.strip("\n") + "\n"))
    for start, end, text in reversed(changes):
        page = page[:start] + text + page[end:]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quickstart", type=Path, metavar="DIR")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    options = parser.parse_args()
    quickstart = options.quickstart.resolve() if options.quickstart else None
    for page in options.pages or PAGES:
        text = page.read_text(encoding="utf-8")
        if "<!-- output of: " not in text:
            continue
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(renewed(text, Path(folder) / "page", quickstart), encoding="utf-8")


if __name__ == "__main__":
    main()
