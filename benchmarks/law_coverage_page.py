"""Puts the finished cells of `law_coverage.py` into docs/coverage.md, between its markers.

`python benchmarks/law_coverage_page.py docs/coverage.md`: tables, what they cost, and every check
that lies outside the tolerance. The words around them are written by hand.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from law_coverage import cell_of, parser, tasks_of
from law_coverage_rows import (
    COVERAGE_HEAD,
    FACTORS,
    LEVELS,
    PROBABILITY_HEAD,
    REGRET_HEAD,
    RISES_HEAD,
    SCORES_HEAD,
    Cell,
    Task,
    percent,
    probability_rows,
    rows_of,
    score_rows,
)

TOLERANCE = {0.90: 0.03, 0.95: 0.02}
MEDIAN, TAIL, REFUSED = 0.005, 0.02, 0.25  # what a plan may lose, and how often it may refuse
# Name of a tally -> its level, and what was covered in words.
CHECKED = {
    f"{what} {level:.2f}": (level, word)
    for what, word in (
        ("law", "law"),
        ("ceiling", "ceiling"),
        ("crossing", "crossover"),
        ("midpoint", "midpoint"),
    )
    for level in LEVELS
} | {f"score {factor}x": (0.95, f"score of a plan at {factor}x") for factor in FACTORS}

Cells = list[tuple[Task, Cell]]


def blocks(cells: Cells) -> dict[str, str]:
    """Name of a marker -> what stands there."""
    of = {part: [c for c in cells if c[0].part == part] for part in ("coverage", "rises", "regret")}
    rising = [c for c in of["coverage"] if c[0].world == "rising"]
    other = [c for c in of["coverage"] if c[0].world != "rising"]
    plans = [*of["regret"], *pooled(of["regret"])]
    # Where all n are equal none is the best.
    differ = pooled([c for c in of["rises"] if c[0].world != "equal"])
    return {
        "cost": cost(of),
        "rising": "\n".join([COVERAGE_HEAD, *rows_of(rising)]),
        "other": "\n".join([COVERAGE_HEAD, *rows_of(other)]),
        "rises": "\n".join([RISES_HEAD, *rows_of(of["rises"])]),
        "probabilities": "\n".join(
            [
                PROBABILITY_HEAD,
                *(row for t, c in differ for row in probability_rows(t.noise, c)),
            ]
        ),
        "plans": "\n".join([REGRET_HEAD, *rows_of(plans)]),
        "scores": "\n".join(
            [
                SCORES_HEAD,
                *(row for t, c in plans for row in score_rows(t.world, t.noise, t.seeds, c)),
            ]
        ),
        "outside": outside([*of["coverage"], *of["rises"]]),
        "scores outside": outside(of["regret"]),
        "plans outside": plans_outside(of["regret"]),
    }


def cost(of: dict[str, Cells]) -> str:
    """How many sweeps there are of each kind of cell, and what all of them took."""

    def sweeps(cells: Cells) -> str:
        counts = sorted({c.sweeps for _, c in cells})
        return " to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))

    several = [c for c in of["coverage"] if c[0].seeds > 1]
    hours = sum(c.seconds for cells in of.values() for _, c in cells) / 3600
    return (
        f"Sweeps in a cell: {sweeps(several)} for coverage"
        f" ({sweeps([c for c in of['coverage'] if c[0].seeds == 1])} with one seed),"
        f" {sweeps(of['rises'])} for rises, {sweeps(of['regret'])} for plans; {hours:.2f} core"
        " hours in all, of 200 bootstrap draws a sweep."
    )


def pooled(cells: Cells) -> Cells:
    """The worlds of each noise as one cell: what a plan loses where the world is not known."""
    every: dict[tuple[str, int], Cell] = defaultdict(Cell)
    task_of = {}
    for t, cell in cells:
        key = t.noise, t.seeds
        every[key].add(cell)
        task_of[key] = t._replace(world="all")
    return [(task_of[key], cell) for key, cell in every.items()]


def outside(cells: Cells) -> str:
    """Every check beyond its tolerance, after how many there are by number of seeds."""
    count: dict[str, int] = defaultdict(int)
    found: dict[str, list[str]] = defaultdict(list)
    for t, cell in cells:
        seeds = {1: "one seed", 2: "two seeds"}.get(t.seeds, "three or five seeds")
        for name, (level, word) in CHECKED.items():
            covered = cell.mean(name)
            if np.isnan(covered):
                continue
            count[seeds] += 1
            if abs(covered - level) > TOLERANCE[level] + 1e-9:
                found[seeds].append(
                    f"| {seeds} | {t.world} | {t.noise} | {t.seeds} | {word} |"
                    f" {100 * level:.0f} | {percent(covered)} |"
                )
    order = [s for s in ("three or five seeds", "two seeds", "one seed") if count[s]]
    said = "; ".join(f"with {s} {len(found[s])} of {count[s]}" for s in order)
    head = "| of | world | noise | seeds | what | level | covered |\n" + "|---" * 7 + "|"
    # One seed is conditional on its run: the count says enough.
    rows = [row for s in order if s != "one seed" for row in found[s]]
    return "\n".join([f"Outside the tolerance: {said}.", "", head, *rows])


def plans_outside(cells: Cells) -> str:
    """Cells in which plans lose more than they may."""
    rows, checked = [], 0
    for t, cell in cells:
        for factor in FACTORS:
            lost = cell.tally[f"plan {factor}x"]
            median, tail = float(np.median(lost)), float(np.quantile(lost, 0.95))
            refused, more = cell.mean(f"refused {factor}x"), float(np.mean(np.array(lost) > TAIL))
            checked += 1
            if median > MEDIAN or tail > TAIL or refused > REFUSED:
                rows.append(
                    f"| {t.world} | {t.noise} | {factor}x | {median:.4f} | {tail:.4f} |"
                    f" {percent(more)} |"
                )
    head = "| world | noise | budget | median | 95th percentile | lose more than 0.02, % |"
    said = f"Plans miss the target in {len(rows)} of {checked} cells."
    return "\n".join([said, "", head, "|---" * 6 + "|", *rows] if rows else [said])


def main(argv: list[str]) -> int:
    page, *rest = argv
    options = parser().parse_args(rest)
    cells = [(t, c) for t in tasks_of(options) if (c := cell_of(t, options.cells)).sweeps]
    path = Path(page)
    text = path.read_text(encoding="utf-8")
    for name, block in blocks(cells).items():
        pattern = rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)"
        text, n = re.subn(pattern, lambda m, b=block: m[1] + b + m[2], text, flags=re.DOTALL)
        if n != 1:
            print(f"{page}: `<!-- {name} -->` must occur once, but does {n} times", file=sys.stderr)
            return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
