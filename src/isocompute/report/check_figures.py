"""Figures for papers of what a fit is worth: back-test, sensitivity, what another n would lose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from isocompute.errors import InputError
from isocompute.report.canvas import budget_axis, canvas, end_labels, house, label_text
from isocompute.report.law_figures import octaves
from isocompute.report.reading import (
    curve_row,
    data_span,
    finite_or_nan,
    grid,
    metric_of,
    rollouts_per_step,
    sigmoid,
    styles_of,
)
from isocompute.report.style import ACCENT, INK, MUTED, SeriesStyle
from isocompute.report.words import setting_name

if TYPE_CHECKING:
    from isocompute.laws import Fit

# One per rule of the sensitivity table, which has up to seven.
_LINES = (
    (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (9, 3)),
    (0, (6, 2, 1, 2, 1, 2)), (0, (2, 4)), (0, (12, 2, 4, 2)),
)  # fmt: skip


@house
def backtest(fit: Fit, *, title: str = "Predictions for budgets not seen") -> Figure:
    """Predicted minus observed score of every held-out evaluation, with its interval.

    Filled marks are the fitted curves, hollow ones the best score so far.

    Args:
        fit: the fit to draw.
        title: of the figure.

    Raises:
        InputError: if the sweep was too short for a back-test.
    """
    document = fit.document
    rows = (document.get("backtest") or {}).get("rows") or []
    if not rows:
        raise InputError(
            "a figure of the back-test needs held-out evaluations, but got 0; train the runs "
            "further."
        )
    figure, axes = canvas(title, setting_name(document))
    axes.axhline(0, color=MUTED, linewidth=0.8)
    styles = styles_of(fit)
    for i, (pair, style) in enumerate(styles.items()):
        mine = [r for r in rows if (r["problems_per_batch"], r["rollouts_per_problem"]) == pair]
        if not mine:
            continue
        # Evaluations share their budgets: neighbours stand a little apart.
        x = np.array([r["x"] for r in mine]) * 10 ** ((i - (len(styles) - 1) / 2) * 0.006)
        observed = np.array([r["observed"] for r in mine])
        for at, row in zip(x, mine, strict=True):
            ends = np.array(row["interval"]) - row["observed"]
            axes.plot([at, at], ends, color=style.light, alpha=0.35, linewidth=0.7)
        naive = np.array([r["best_so_far"] for r in mine]) - observed
        predicted = np.array([r["predicted"] for r in mine]) - observed
        mark: dict[str, Any] = {"linestyle": "none", "marker": style.marker, "color": style.light}
        axes.plot(x, naive, **mark, fillstyle="none", markersize=3.2, alpha=0.5)
        axes.plot(x, predicted, **mark, markersize=4, label=style.label, markeredgewidth=0)
    budget_axis(axes, document)
    axes.set_ylabel("predicted minus observed score")
    axes.legend(ncols=4, loc="upper left", handletextpad=0.2, columnspacing=1.0)
    return figure


@house
def sensitivity(fit: Fit, *, title: str = "The law under other rules of reading") -> Figure:
    """The law with its interval, and the law under other bin widths and under strict records.

    Args:
        fit: the fit to draw.
        title: of the figure.

    Raises:
        InputError: if the fit holds no law under other rules.
    """
    document = fit.document
    at = (document.get("law") or {}).get("at") or []
    rules = [r for r in document.get("sensitivity") or [] if r.get("rollouts_per_problem")]
    if not at or not rules:
        raise InputError(
            f"a figure of sensitivity needs a law under other rules, but got {len(rules)} rules "
            f"and {len(at)} points of the law; draw frontier(fit)."
        )
    figure, axes = canvas(title, setting_name(document))
    scale = rollouts_per_step(document)
    x = [row["x"] for row in at]
    bounds = [row.get("interval") or (None, None) for row in at]
    lo, hi = (finite_or_nan(b[side] for b in bounds) for side in (0, 1))
    axes.fill_between(x, lo, hi, color=ACCENT, alpha=0.16, linewidth=0)
    law = finite_or_nan(row.get("rollouts_per_problem") for row in at)
    axes.plot(x, law, color=ACCENT, linewidth=2.2, label="as fitted", zorder=5)
    for i, rule in enumerate(rules):
        axes.plot(
            np.array(rule["x"]) / scale,
            rule["rollouts_per_problem"],
            color=INK,
            linewidth=1.0,
            marker=".",
            markersize=4,
            linestyle=_LINES[i % len(_LINES)],
            label=label_text(rule["rule"]),
        )
    octaves(axes)
    budget_axis(axes, document, law=True)
    axes.set_ylabel("rollouts per problem, n")
    axes.legend(loc="upper left", handlelength=4.5)  # two periods of the longest dash
    return figure


@house
def loss_by_n(fit: Fit, *, title: str = "What another n loses") -> Figure:
    """Fitted score below the frontier, for every configuration over its own data.

    Args:
        fit: the fit to draw.
        title: of the figure.

    Raises:
        InputError: if no curve could be fitted.
    """
    document = fit.document
    styles = styles_of(fit)
    spans = {
        pair: (row, data_span(fit, pair, np.array([])))
        for pair in styles
        if (row := curve_row(document, pair)) is not None
    }
    if not spans:
        raise InputError("a figure of losses needs fitted curves, but got 0; add evaluations.")
    x = grid(min(s[0] for _, s in spans.values()), max(s[1] for _, s in spans.values()))
    scores = {
        pair: np.where((x >= span[0]) & (x <= span[1]), sigmoid(row, x), np.nan)
        for pair, (row, span) in spans.items()
    }
    if fit.support is not None:  # elsewhere the best n may have no data
        inside = (x >= fit.support[0]) & (x <= fit.support[1])
        x, scores = x[inside], {pair: y[inside] for pair, y in scores.items()}
    best = np.nanmax(np.stack(list(scores.values())), axis=0)
    figure, axes = canvas(title, setting_name(document))
    labels: list[tuple[float, SeriesStyle]] = []
    for pair, y in scores.items():
        style, lost = styles[pair], best - y
        axes.plot(x, lost, color=style.light, linestyle=style.linestyle, linewidth=1.6)
        known = np.flatnonzero(np.isfinite(lost))
        if known.size:
            labels.append((float(lost[known[-1]]), style))
    axes.invert_yaxis()
    budget_axis(axes, document)
    axes.set_ylabel(f"{metric_of(document)} lost against the frontier")
    end_labels(axes, labels)
    return figure
