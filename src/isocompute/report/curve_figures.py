"""Figures for papers of the scores themselves: learning curves, and the frontier over them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from isocompute.errors import InputError
from isocompute.report.canvas import budget_axis, canvas, end_labels, house
from isocompute.report.reading import Line, curve_points, lines_of, metric_of, pair_of, styles_of
from isocompute.report.style import BAND, SeriesStyle
from isocompute.report.words import chance, setting_name

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit

_BEYOND = (0, (1, 2))  # dashes of what is extrapolated


@house
def learning_curves(fit: Fit, *, title: str | None = None) -> Figure:
    """Scores against budget: every evaluation faint, the fitted curves with their intervals.

    A curve is thin and dotted beyond its configuration's own data.

    Args:
        fit: the fit to draw.
        title: None: what it shows.

    Raises:
        InputError: if no curve could be fitted.
    """
    document = fit.document
    figure, axes = canvas(title or "Learning curves", setting_name(document))
    styles, lines = styles_of(fit), _lines(fit)
    for curve in fit.curves:
        style = styles[(curve.problems_per_batch, curve.rollouts_per_problem)]
        x, y = curve_points(document, curve)
        axes.plot(x, y, ".", color=style.light, alpha=0.2, markersize=2.6, markeredgewidth=0)
    labels: list[tuple[float, SeriesStyle]] = []
    for pair, line in lines.items():
        style = styles[pair]
        alpha = 0.1 if len(lines) <= 8 else 0.05  # more of them lie over each other
        axes.fill_between(line.x, line.low, line.high, color=style.light, alpha=alpha, linewidth=0)
        _curve(axes, line, style, linewidth=1.5, alpha=1.0)
        labels.append((float(line.score[-1]), style))
    budget_axis(axes, document)
    axes.set_ylabel(f"{metric_of(document)}, validation")
    end_labels(axes, labels)
    return figure


@house
def frontier(fit: Fit, *, title: str | None = None) -> Figure:
    """The upper envelope of the fitted curves, in the colour of the configuration that leads.

    The surer it is that the leader is best, the wider the line. It is dashed at budgets at which
    some configurations that may be best have no data. Vertical bands are the crossovers' intervals.

    Args:
        fit: the fit to draw.
        title: None: what it shows.

    Raises:
        InputError: if no curve could be fitted.
    """
    document = fit.document
    figure, axes = canvas(title or "Frontier", setting_name(document))
    styles, lines = styles_of(fit), _lines(fit)
    for crossover in document.get("crossovers") or []:
        lo, hi = crossover.get("interval") or (None, None)
        if lo and hi:
            axes.axvspan(lo, hi, color=BAND, alpha=0.45, linewidth=0, zorder=0)
    for pair, line in lines.items():
        _curve(axes, line, styles[pair], linewidth=0.8, alpha=0.55)
    bottom, top = axes.get_ylim()
    parts = document.get("frontier", [])
    whole = math.log(parts[-1]["to"] / parts[0]["from"]) if parts else 0.0
    for part in parts:
        style, line = styles[pair_of(part)], lines[pair_of(part)]
        low, high = max(part["from"], line.x[0]), min(part["to"], line.x[-1])
        if not low < high:
            continue
        here, sure = line.between(low, high), float(part["probability_best"])
        axes.plot(
            here.x,
            here.score,
            color=style.light,
            linewidth=2.2 + 2.8 * sure,
            linestyle=(0, (2, 1)) if part.get("extrapolated") else "-",
        )
        if part.get("extrapolated") or math.log(high / low) < 0.045 * whole:
            continue  # marked, not ranked; or no room for a name
        middle = math.sqrt(low * high)
        axes.annotate(
            f"{style.label}\n{chance(sure)}",
            (middle, float(np.interp(math.log(middle), np.log(here.x), here.score))),
            xytext=(-4, 7),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            fontweight="bold",
            color=style.light,
            linespacing=1.15,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
    axes.set_ylim(bottom, top + 0.12 * (top - bottom))
    budget_axis(axes, document)
    axes.set_ylabel(f"{metric_of(document)}, validation")
    return figure


def _lines(fit: Fit) -> dict[tuple[int, int], Line]:
    lines = lines_of(fit)
    if not lines:
        raise InputError("a figure of curves needs fitted curves, but got 0; add evaluations.")
    return lines


def _curve(axes: Axes, line: Line, style: SeriesStyle, *, linewidth: float, alpha: float) -> None:
    """The curve over its own data; thin and dotted from its last evaluation on."""
    known = np.flatnonzero(~line.extrapolated)
    last = int(known[-1]) if known.size else 0
    for part, dashes, share in (
        (slice(0, last + 1), style.linestyle, 1.0),
        (slice(last, None), _BEYOND, 0.7),
    ):
        x, y = line.x[part], line.score[part]
        if len(x) > 1:
            axes.plot(
                x, y, color=style.light, linestyle=dashes, linewidth=share * linewidth,
                alpha=share * alpha,
            )  # fmt: skip
