"""Figures for papers of the laws themselves: n*(C), n*(M) and B_p*(M)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from isocompute.errors import InputError
from isocompute.report.canvas import budget_axis, canvas, house, label_text
from isocompute.report.reading import (
    Row,
    finite_or_nan,
    metric_of,
    rollouts_per_step,
    styles_of,
)
from isocompute.report.style import ACCENT, INK, MUTED
from isocompute.report.words import Document, setting_name

if TYPE_CHECKING:
    from isocompute.laws import Fit

_LEGEND_WIDTH = 100  # characters side by side; a handle takes six


@house
def law(
    fit: Fit,
    *,
    others: Sequence[tuple[str, Fit]] = (),
    plan: Document | None = None,
    title: str | None = None,
) -> Figure:
    """n*(C): the law with its interval, the measured frontier under it, others' laws beside it.

    Args:
        fit: the fit to draw.
        others: (name, fit) whose laws of the same variable are drawn as thin dark lines.
        plan: a `plan --json` document; its budget and choice are marked.
        title: None: what it shows.

    Raises:
        InputError: if the fit holds no law.
    """
    document = fit.document
    found = document.get("law") or {}
    at = found.get("at") or []
    if not found.get("form") or not at:
        raise InputError(
            f"a figure of the law needs a fitted law, but got form={found.get('form')!r} with "
            f"{len(at)} points; draw frontier(fit), or add budgets or configurations."
        )
    figure, axes = canvas(
        title or f"Best rollouts per problem for {metric_of(document)}", setting_name(document)
    )
    styles = styles_of(fit)
    scale = rollouts_per_step(document)
    x = np.array([row["x"] for row in at], dtype=np.float64)
    n = finite_or_nan(row.get("rollouts_per_problem") for row in at)
    tested = [row["rollouts_per_problem"] for row in document.get("curves", [])]
    low, high = min([*tested, *n[np.isfinite(n)]]), max([*tested, *n[np.isfinite(n)]])
    bounds = [row.get("interval") or (None, None) for row in at]
    lo = finite_or_nan(b[0] if b[0] is not None else low / 1.4 for b in bounds)
    hi = finite_or_nan(b[1] if b[1] is not None else high * 1.4 for b in bounds)
    axes.fill_between(x, lo, hi, color=ACCENT, alpha=0.16, linewidth=0)
    for part in document.get("frontier", []):
        style = styles[(part["problems_per_batch"], part["rollouts_per_problem"])]
        probability = part.get("probability_best")
        axes.plot(
            [part["from"] / scale, part["to"] / scale],
            [style.rollouts_per_problem] * 2,
            color=style.light,
            linewidth=5,
            alpha=(0.8 if probability is None else 0.25 + 0.75 * probability)
            * (0.4 if part.get("extrapolated") else 1.0),
            solid_capstyle="butt",
        )
    for crossover in document.get("crossovers") or []:
        _whisker(axes, crossover, scale)
    axes.plot(x, n, color=ACCENT, linewidth=2.2, zorder=5, label="law")
    lines = ((0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
    for i, (name, other) in enumerate(others):
        rows = (other.document.get("law") or {}).get("at") or []
        if rows and (other.document["law"].get("variable") == found.get("variable")):
            axes.plot(
                [row["x"] for row in rows],
                finite_or_nan(row.get("rollouts_per_problem") for row in rows),
                color=INK,
                linewidth=1.1,
                linestyle=lines[i % len(lines)],
                zorder=4,
                label=label_text(f"law of {name}"),
            )
    if plan is not None and plan.get("rollouts_per_problem") and scale == 1:
        wide: Any = plan.get("rollouts_per_problem_interval") or (None, None)
        if None not in wide:
            at_budget = [plan["budget_rollouts"]] * 2
            axes.plot(at_budget, wide, color=ACCENT, linewidth=1.4, marker="_", markersize=8)
        axes.plot(
            [plan["budget_rollouts"]],
            [plan["rollouts_per_problem"]],
            "o",
            markersize=9,
            markerfacecolor="white",
            markeredgecolor=ACCENT,
            markeredgewidth=2.4,
            zorder=6,
            label=f"plan: n={plan['rollouts_per_problem']}",
        )
    octaves(axes)
    axes.set_ylim(low / 1.5, high * 1.5)
    budget_axis(axes, document, law=True)
    axes.set_ylabel("rollouts per problem, n")
    if others or plan is not None:  # below the axes: inside, bars and laws may be anywhere
        handles, names = axes.get_legend_handles_labels()
        columns = max(1, min(len(names), _LEGEND_WIDTH // (max(map(len, names)) + 6)))
        figure.legend(
            handles, names, loc="outside lower center", ncols=columns, handlelength=2.4
        )
    return figure


@house
def law_problems_per_batch(fit: Fit, *, title: str | None = None) -> Figure:
    """B_p*(M) of a fixed batch: the law with its interval, the measured frontier under it.

    Args:
        fit: the fit to draw.
        title: None: what it shows.

    Raises:
        InputError: if the fit holds no such law.
    """
    document = fit.document
    at = (document.get("law_problems_per_batch") or {}).get("at") or []
    if not at:
        raise InputError(
            "a figure of B_p*(M) needs a law of problems_per_batch, but this fit holds none; fit "
            "with --fix batch_size=B."
        )
    figure, axes = canvas(
        title or f"Best problems per batch for {metric_of(document)}", setting_name(document)
    )
    styles, scale = styles_of(fit), rollouts_per_step(document)
    x = np.array([row["x"] for row in at], dtype=np.float64)
    b_p = finite_or_nan(row.get("problems_per_batch") for row in at)
    bounds = [row.get("interval") or (None, None) for row in at]
    lo, hi = (finite_or_nan(b[side] for b in bounds) for side in (0, 1))
    axes.fill_between(x, lo, hi, color=ACCENT, alpha=0.16, linewidth=0)
    for part in document.get("frontier", []):
        style = styles[(part["problems_per_batch"], part["rollouts_per_problem"])]
        ends = [part["from"] / scale, part["to"] / scale]
        level = [style.problems_per_batch] * 2
        axes.plot(ends, level, color=style.light, linewidth=5, solid_capstyle="butt")
    axes.plot(x, b_p, color=ACCENT, linewidth=2.2, zorder=5)
    octaves(axes)
    budget_axis(axes, document, law=True)
    axes.set_ylabel("problems per batch, Bₚ")
    return figure


def octaves(axes: Axes) -> None:
    """A log2 axis of n or B_p with plain numbers."""
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _whisker(axes: Axes, crossover: Row, scale: float) -> None:
    lo, hi = crossover.get("interval") or (None, None)
    if not (lo and hi and crossover.get("at")):
        return
    pair = crossover["from_rollouts_per_problem"], crossover["to_rollouts_per_problem"]
    y = math.sqrt(pair[0] * pair[1])
    axes.plot(
        [lo / scale, hi / scale], [y, y], color=MUTED, linewidth=1.0, marker="|", markersize=6
    )
    axes.plot([crossover["at"] / scale], [y], marker="d", color=MUTED, markersize=4)
