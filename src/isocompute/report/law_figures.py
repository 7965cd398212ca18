"""Figures for papers of the best n: n*(C), n*(M), B_p*(M), the paper's method, the direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullLocator

from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.report.canvas import budget_axis, canvas, house, label_text
from isocompute.report.reading import (
    FloatArray,
    Row,
    ends_of,
    finite_or_nan,
    law_values,
    metric_of,
    pair_of,
    paper_laws,
    rollouts_per_step,
    styles_of,
    tested_n,
)
from isocompute.report.style import ACCENT, INK, MUTED
from isocompute.report.words import Document, inside_rows, planned_at, printed_of, setting_name

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit

_LEGEND_WIDTH = 100  # characters side by side; a handle takes six
_DASHES: tuple[Any, ...] = ((0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
_BEYOND = (0, (1, 1.5))  # where not all that could be best were compared


@house
def law(
    fit: Fit,
    *,
    others: Sequence[tuple[str, Fit]] = (),
    plan: Document | None = None,
    title: str | None = None,
) -> Figure:
    """n*(C): the best n with its interval, the paper's sigmoid through it, who leads below it.

    Args:
        fit: the fit to draw.
        others: (name, fit) whose best n over the same variable are drawn as thin dark lines.
        plan: a `plan --json` document; its budget and choice are marked.
        title: None: what it shows.

    Raises:
        InputError: if the best n is known at fewer than two budgets.
    """
    document = fit.document
    figure, axes = canvas(
        title or f"Best rollouts per problem for {metric_of(document)}", setting_name(document)
    )
    scale, tested = rollouts_per_step(document), tested_n(document)
    _best_n(axes, document)
    _bars(axes, fit, "rollouts_per_problem")
    for crossover in document.get("crossovers") or []:
        _whisker(axes, crossover, scale)
    found = document.get("law") or {}
    known = np.array([row["x"] for row in inside_rows(document)]) / scale
    if found.get("L") and len(known) > 1:  # it is fitted there, and nowhere else
        style: Any = {"color": ACCENT, "linewidth": 1.0, "linestyle": (0, (8, 2))}
        axes.plot(known, law_values(found, known), **style, label="the paper's sigmoid")
    for i, (name, other) in enumerate(others):
        rows = inside_rows(other.document)
        if rows and (other.document.get("law") or {}).get("variable") == found.get("variable"):
            axes.plot(
                np.array([row["x"] for row in rows]) / rollouts_per_step(other.document),
                finite_or_nan(row.get("rollouts_per_problem") for row in rows),
                color=INK,
                linewidth=1.1,
                linestyle=_DASHES[i % len(_DASHES)],
                zorder=4,
                label=label_text(f"best n of {name}"),
            )
    chosen = (plan or {}).get("rollouts_per_problem")
    at = planned_at(document, plan)
    if plan is not None and chosen and at:
        wide: Any = plan.get("rollouts_per_problem_interval") or (None, None)
        if None not in wide:
            axes.plot([at / scale] * 2, wide, color=ACCENT, linewidth=1.4, marker="_", markersize=8)
        axes.plot(
            [at / scale],
            [chosen],
            "o",
            markersize=9,
            markerfacecolor="white",
            markeredgecolor=ACCENT,
            markeredgewidth=2.4,
            zorder=6,
            label=f"plan: n={chosen}",
        )
    octaves(axes)
    axes.set_ylim(min([*tested, chosen or tested[0]]) / 1.5, max([*tested, chosen or 1]) * 1.5)
    budget_axis(axes, document, law=True)
    axes.set_ylabel("rollouts per problem, n")
    _legend(figure, axes)
    return figure


@house
def paper_method(fit: Fit, *, title: str = "Beside the paper's own method") -> Figure:
    """The best n with its interval, and the law of the published pipeline by width of its bins.

    For a published sweep, the law that the paper printed is drawn too.

    Args:
        fit: the fit to draw.
        title: of the figure.

    Raises:
        InputError: if the published pipeline gives no law.
    """
    document = fit.document
    laws = paper_laws(document)
    if not laws:
        raise InputError(
            "a figure of the paper's method needs its law, but got none: "
            f"{(document.get('paper') or {}).get('refused') or 'it was not asked for'}"
        )
    figure, axes = canvas(title, setting_name(document))
    tested, scale = tested_n(document), rollouts_per_step(document)
    x = _best_n(axes, document)
    for (name, row), dashes in zip(laws, _DASHES, strict=False):
        line: Any = {"color": INK, "linewidth": 1.1, "linestyle": dashes}
        axes.plot(x, law_values(row, x * scale), **line, label=f"paper's method, {name}")
    printed = printed_of(document)
    if printed is not None and scale == 1:
        label = "as the study printed it"
        axes.plot(x, printed.law.predict(x), color=MUTED, linewidth=2.0, label=label)
    octaves(axes)
    axes.set_ylim(tested[0] / 1.5, tested[-1] * 1.5)
    budget_axis(axes, document, law=True)
    axes.set_ylabel("rollouts per problem, n")
    _legend(figure, axes)
    return figure


@house
def law_problems_per_batch(fit: Fit, *, title: str | None = None) -> Figure:
    """B_p*(M) of a fixed batch: the best B_p with its interval, who leads below it.

    Args:
        fit: the fit to draw.
        title: None: what it shows.

    Raises:
        InputError: if no batch was fixed.
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
    x = np.array([row["x"] for row in at], dtype=np.float64)
    axes.fill_between(x, *ends_of(at), color=ACCENT, alpha=0.16, linewidth=0)
    _bars(axes, fit, "problems_per_batch")
    b_p = finite_or_nan(row.get("problems_per_batch") for row in at)
    axes.plot(x, b_p, color=ACCENT, linewidth=2.2, zorder=5)
    octaves(axes)
    budget_axis(axes, document, law=True)
    axes.set_ylabel("problems per batch, Bₚ")
    return figure


@house
def direction(fit: Fit, *, title: str = "Does the best follow n, or the batch?") -> Figure:
    """Every tested (B_p, n), and the path of the best one from the smallest budget to the largest.

    Args:
        fit: the fit to draw.
        title: of the figure.

    Raises:
        InputError: if all runs have one B_p, or one n.
    """
    document = fit.document
    pairs = [pair_of(row) for row in document.get("curves") or []]
    for name, values in zip(("B_p", "n"), zip(*pairs, strict=True), strict=True):
        if len({*values}) < 2:
            raise InputError(
                f"a figure of the direction needs at least 2 {name}, but got {len(set(pairs))} "
                f"configurations of one; sweep a second {name}."
            )
    figure, axes = canvas(title, setting_name(document))
    b_p, n = (np.array(values, dtype=np.float64) for values in zip(*pairs, strict=True))
    for batch in sorted({b * m for b, m in pairs}):
        ends = np.array([b_p.min() / 1.6, b_p.max() * 1.6])
        axes.plot(ends, batch / ends, color=MUTED, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
    axes.plot(
        b_p, n, "o", markerfacecolor="white", markeredgecolor=MUTED, markersize=6, linestyle="none"
    )
    rows = [((r["problems_per_batch"], r["tested_rollouts_per_problem"]), r["x"])
            for r in inside_rows(document)]  # fmt: skip
    path = [(pair, [x for _, x in part]) for pair, part in groupby(rows, key=lambda row: row[0])]
    styles = styles_of(fit)
    at = np.array([pair for pair, _ in path], dtype=np.float64)
    axes.plot(at[:, 0], at[:, 1], color=ACCENT, linewidth=1.8, zorder=4)
    said: set[tuple[int, int]] = set()
    for pair, xs in path:
        axes.plot(*pair, "o", color=styles[pair].light, markersize=9, zorder=5)
        if pair not in said:  # where the path comes back, the first visit is named
            axes.annotate(
                f"{compact(xs[0])} to {compact(xs[-1])}" if len(xs) > 1 else compact(xs[0]),
                pair,
                xytext=(8, 4),
                textcoords="offset points",
                fontsize=8,
                color=styles[pair].light,
                fontweight="bold",
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
                zorder=6,
            )
        said.add(pair)
    octaves(axes)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(b_p.min() / 1.6, b_p.max() * 1.9)
    axes.set_ylim(n.min() / 1.6, n.max() * 1.6)
    axes.set_xlabel("problems per batch, Bₚ")
    axes.set_ylabel("rollouts per problem, n")
    return figure


def octaves(axes: Axes) -> None:
    """A log2 axis of n or B_p with plain numbers."""
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _best_n(axes: Axes, document: Document) -> FloatArray:
    """Draws the best n with its interval; returns its budgets in the law's own variable."""
    rows = document.get("best") or []
    if len(rows) < 2:
        raise InputError(
            f"a figure of the best n needs at least 2 budgets, but got {len(rows)}; train the "
            "runs further."
        )
    scale = rollouts_per_step(document)
    x = np.array([row["x"] for row in rows], dtype=np.float64) / scale
    n = finite_or_nan(row.get("rollouts_per_problem") for row in rows)
    beyond = np.array([bool(row.get("extrapolated")) for row in rows])
    lo, hi = ends_of(rows)
    axes.fill_between(x, lo, hi, color=ACCENT, alpha=0.07, linewidth=0)
    axes.fill_between(x[~beyond], lo[~beyond], hi[~beyond], color=ACCENT, alpha=0.13, linewidth=0)
    axes.plot(x, n, color=ACCENT, linewidth=1.6, linestyle=_BEYOND, zorder=5)
    known = np.where(beyond, np.nan, n)
    axes.plot(x, known, color=ACCENT, linewidth=2.2, zorder=5, label="best n")
    return x


def _bars(axes: Axes, fit: Fit, of: str) -> None:
    """Who leads, the paler the less sure."""
    styles, scale = styles_of(fit), rollouts_per_step(fit.document)
    for part in fit.document.get("frontier") or []:
        style = styles[pair_of(part)]
        axes.plot(
            [part["from"] / scale, part["to"] / scale],
            [getattr(style, of)] * 2,
            color=style.light,
            linewidth=5,
            alpha=(0.25 + 0.75 * part["probability_best"])
            * (0.4 if part.get("extrapolated") else 1.0),
            solid_capstyle="butt",
        )


def _whisker(axes: Axes, crossover: Row, scale: float) -> None:
    lo, hi = crossover.get("interval") or (None, None)
    if not crossover.get("at"):
        return
    pair = crossover["from_rollouts_per_problem"], crossover["to_rollouts_per_problem"]
    y = math.sqrt(pair[0] * pair[1])
    if lo and hi:
        axes.plot(
            [lo / scale, hi / scale], [y, y], color=MUTED, linewidth=1.0, marker="|", markersize=6
        )
    axes.plot([crossover["at"] / scale], [y], marker="d", color=MUTED, markersize=4)


def _legend(figure: Figure, axes: Axes) -> None:
    """Below the axes: inside, bars and lines may be anywhere."""
    handles, names = axes.get_legend_handles_labels()
    columns = max(1, min(len(names), _LEGEND_WIDTH // (max(map(len, names)) + 6)))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, handlelength=2.4)
