"""Judge every claim on what is there, and write the page and its picture.

    make scorecard                                   # docs/scorecard.md, docs/scorecard.png
    python -m scorecard --runs OTHER/grid/runs       # runs of the grid from another folder

Runs of the grid that are missing are no obstacle: cells say what they rest on.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from scorecard import grid
from scorecard.claims import CLAIMS
from scorecard.evidence import ROOT, columns
from scorecard.page import Cell, judge, write


def main() -> None:
    """Read, judge, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "grid" / "runs")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "scorecard.md")
    options = parser.parse_args()
    found = columns(folder=options.runs)
    rate = grid.seconds_per_million(options.runs)
    if rate is not None:  # measured, in the place of the guess
        found = [replace(c, seconds_per_million=rate) if c.name == "grid" else c for c in found]
    table: list[list[Cell]] = []
    for claim in CLAIMS:
        table.append([judge(claim, column) for column in found])
        print(claim.id, *(cell.short or "." for cell in table[-1]), sep=" | ", flush=True)
    write(table, options.output)


if __name__ == "__main__":
    main()
