"""Every figure of the paper, by our code, from what is there: docs/figures.md and its pictures.

    make figures
    python -m scorecard.figures --runs OTHER/grid/runs --only 5,6

In the paper's order; numbers are those of its project page. A row of panels per model or world;
where no data can show a figure, the page says which arm of the grid will.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from isocompute.errors import IsocomputeError
from scorecard import panels
from scorecard.evidence import ARMS, ROOT, Evidence, MissingError, columns
from scorecard.figure_list import FIGURES, PaperFigure

FOLDER = ROOT / "docs" / "figures"
DPI = 100  # tens of kilobytes a picture
WIDEST = 2  # panels side by side: more would be shrunk on a page until nothing can be read


def draw(one: PaperFigure, found: Sequence[Evidence]) -> tuple[Figure | None, list[str]]:
    """The figure, a row per column that has data, and what the others lack."""
    rows, lacks = [], []
    for column in found:
        if column.name not in ("qwen7b", "grid", *one.also):
            continue
        good = []
        for panel in one.panels:
            try:  # on a canvas of its own first: a row has the panels that can be drawn
                panel.draw(Figure().subplots(), column)
                good.append(panel)
            except (MissingError, IsocomputeError) as error:
                lacks.append(f"{column.title}, {panel.title}: {str(error).split(';')[0]}")
        if good:
            rows.append((column, good))
    if not rows:
        return None, lacks
    wide = min(WIDEST, max(len(good) for _, good in rows))
    lines = [
        (column, good[i : i + wide]) for column, good in rows for i in range(0, len(good), wide)
    ]
    figure = Figure(figsize=(4.6 * wide, 2.9 * len(lines)), layout="constrained")
    grid_of_axes = figure.subplots(len(lines), wide, squeeze=False)
    for (column, good), line in zip(lines, grid_of_axes, strict=True):
        for panel, axes in zip(good, line, strict=False):
            axes.set_title(f"{column.title}: {panel.title}", fontsize=9)
            panel.draw(axes, column)
            axes.set_xlabel(panel.x, fontsize=8)
            axes.set_ylabel(panel.y, fontsize=8)
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
        for axes in line[len(good) :]:
            axes.set_axis_off()
    return figure, lacks


def section(one: PaperFigure, image: str | None, found: Sequence[Evidence]) -> str:
    """What the page says of a figure."""
    head = f"## Figure {one.number}: {one.title}\n\n{one.see}"
    column = next(e for e in found if e.name == "grid")
    lines = []
    for arm in one.needs:
        try:
            there = column.progress((arm,))
        except IsocomputeError:
            there = None
        if there is not None and there[0] < there[1]:
            lines.append(f"{ARMS[arm][0]} ({there[0]} of {there[1]} runs are there)")
    coming = f"\n\nThe grid adds to it: {', '.join(lines)}." if lines else ""
    body = f"\n\n![{one.title}](figures/{image})" if image else "\n\nNo data yet."
    return f"{head}{body}{coming}"


def main() -> None:
    """Draw, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "grid" / "runs")
    parser.add_argument("--only", help="numbers, with commas: the other pictures stay as they are")
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    options = parser.parse_args()
    found = columns(folder=options.runs)
    options.output.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else [one.number for one in FIGURES]
    parts = []
    for one in FIGURES:
        image = options.output / f"figure-{one.number.replace(' ', '-')}.png"
        if one.number in wanted:
            figure, lacks = draw(one, found)
            if figure is None:
                image.unlink(missing_ok=True)
            else:
                panels.save(figure, image, DPI)
            print(one.number, image.name if figure else "no data", *lacks, sep="\n  ", flush=True)
        parts.append(section(one, image.name if image.exists() else None, found))
    head = (
        "# The paper's figures by our code\n\n"
        "In the paper's order, numbered as on its project page, from the published curves of "
        "Qwen2.5-7B (read off that study's figures), from the grid, and from the worlds "
        "before it. Shaded: the range of the seeds, or a 95% interval. What the rows of the "
        "[scorecard](scorecard.md) say in numbers. Make them again: `make figures`."
    )
    page = options.output.with_suffix(".md")
    page.write_text("\n\n".join([head, *parts]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
