"""What every paper figure is drawn on: the house style, axes of budgets, labels at line ends."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from isocompute.domain.text import compact, visible
from isocompute.report.style import MATPLOTLIB, MUTED, SeriesStyle
from isocompute.report.words import Document, unit_name

P = ParamSpec("P")


def house(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draws in the house style and leaves the caller's own settings alone."""

    @functools.wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(MATPLOTLIB):
            return draw(*args, **kwargs)

    return styled


def canvas(title: str, note: str = "") -> tuple[Figure, Axes]:
    """A figure with one pair of axes, its title, and a quiet note at the right of it."""
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.set_title(label_text(title))
    axes.set_title(label_text(note), loc="right", fontsize=8, fontweight="normal", color=MUTED)
    return figure, axes


def label_text(value: object) -> str:
    """A user's text as text: a dollar sign would start matplotlib's own mathematics."""
    return visible(value, 80).replace("$", r"\$")


def budget_axis(axes: Axes, document: Document, *, law: bool = False, few: bool = False) -> None:
    """A log axis in the unit of the fit, or of its law's variable, with round ticks, or few."""
    unit = unit_name(document) if law else str(document.get("unit") or "rollouts")
    words = {"rollouts": "training rollouts", "tokens": "generated tokens",
             "gpu-hours": "GPU-hours"}  # fmt: skip
    axes.set_xscale("log")
    lo, hi = axes.get_xlim()
    decades = math.log10(hi / lo)
    many = (1.0, 2.0, 5.0) if decades < 2.2 else (1.0, 3.0) if decades < 4 else (1.0,)
    subs = (1.0,) if few and decades > 1.2 else many
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: compact(v)))
    axes.set_xlabel(words.get(unit, unit))


def end_labels(axes: Axes, labels: Sequence[tuple[float, SeriesStyle]]) -> None:
    """Names at the right edge, pushed apart so that none covers another."""
    if len(labels) > 12:  # colour follows n: one label per n, at the middle of its lines
        by_n: dict[int, list[tuple[float, SeriesStyle]]] = {}
        for y, style in labels:
            by_n.setdefault(style.rollouts_per_problem, []).append((y, style))
        labels = [
            (sum(y for y, _ in rows) / len(rows), replace(rows[0][1], label=f"n={n}"))
            for n, rows in by_n.items()
        ]
    bottom, top = axes.get_ylim()
    gap = abs(top - bottom) * 0.045
    ordered = sorted(labels, key=lambda item: item[0])
    place = [y for y, _ in ordered]
    for _ in range(60):
        for i in range(1, len(place)):
            overlap = gap - (place[i] - place[i - 1])
            if overlap > 0:
                place[i] += overlap / 2
                place[i - 1] -= overlap / 2
    for y, (_, style) in zip(place, ordered, strict=True):
        axes.annotate(
            style.label,
            (1.01, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            fontweight="bold",
            color=style.light,
            annotation_clip=False,
        )
