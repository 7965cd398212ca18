"""Figures for papers of how sure a fit is: P(best), what the wrong n costs, the back-test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from isocompute.answers.logged import as_logged
from isocompute.errors import InputError
from isocompute.report.canvas import budget_axis, canvas, end_labels, house
from isocompute.report.reading import metric_of, pair_of, styles_of
from isocompute.report.style import MUTED, SeriesStyle
from isocompute.report.words import Document, setting_name, with_plan

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit


@house
def probability_best(
    fit: Fit, *, plan: Document | None = None, title: str | None = None
) -> Figure:
    """How probable it is, at each budget, that each configuration is the best one.

    Args:
        fit: the fit to draw.
        plan: a `plan --json` document; the budgets go on to its own.
        title: None: what it shows.

    Raises:
        InputError: if fewer than two budgets were compared.
    """
    document = with_plan(fit.document, plan)
    x, shares, pairs = _draws(document, "best")
    figure, axes = canvas(title or "Probability of being best", setting_name(document))
    styles = styles_of(fit)
    axes.stackplot(
        x, shares, colors=[styles[p].light for p in pairs], edgecolor="white", linewidth=0.6
    )
    top = np.cumsum(shares, axis=0)
    taken: list[tuple[float, float]] = []
    for i in np.argsort(-shares.max(axis=1)):
        j = int(np.argmax(shares[i]))
        place, height = j / max(x.size - 1, 1), float(top[i, j] - shares[i, j] / 2)
        free = all(abs(place - a) > 0.12 or abs(height - b) > 0.07 for a, b in taken)
        if shares[i, j] > 0.22 and free:
            taken.append((place, height))
            side = "left" if place < 0.12 else "right" if place > 0.88 else "center"
            axes.text(
                x[j],
                height,
                f" {styles[pairs[i]].label} ",
                ha=side,
                va="center",
                color="white",
                fontsize=8,
                fontweight="bold",
            )
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _beyond(axes, document, x)
    budget_axis(axes, document)
    axes.set_ylabel("probability of being best")
    return figure


@house
def loss_by_n(
    fit: Fit, *, plan: Document | None = None, title: str = "What the wrong n costs"
) -> Figure:
    """Expected score that every configuration loses against the true best, by budget.

    Args:
        fit: the fit to draw.
        plan: a `plan --json` document; the budgets go on to its own.
        title: of the figure.

    Raises:
        InputError: if fewer than two budgets were compared.
    """
    document = with_plan(as_logged(fit.document), None if plan is None else as_logged(plan))
    x, lost, pairs = _draws(document, "regret")
    figure, axes = canvas(title, setting_name(document))
    styles = styles_of(fit)
    labels: list[tuple[float, SeriesStyle]] = []
    for pair, y in zip(pairs, lost, strict=True):
        style = styles[pair]
        axes.plot(x, y, color=style.light, linestyle=style.linestyle, linewidth=1.6)
        labels.append((float(y[-1]), style))
    axes.set_ylim(bottom=0)
    axes.invert_yaxis()
    axes.set_xlim(x[0], x[-1])
    _beyond(axes, document, x)
    budget_axis(axes, document)
    axes.set_ylabel(f"{metric_of(document)} lost, expected")
    end_labels(axes, labels)
    return figure


def _beyond(axes: Axes, document: Document, x: Any) -> None:
    """A line where all were last compared; what is right of it leads to the plan."""
    end = document["support"][1]
    if end < x[-1] * 0.999:
        axes.axvline(end, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))


def _draws(document: Document, what: str) -> tuple[Any, Any, list[tuple[int, int]]]:
    """Budgets (V,), one row of them per configuration, and the configurations."""
    full = document.get("probabilities") or {}
    x = np.asarray(full.get("x") or [], dtype=np.float64)
    if x.size < 2:
        raise InputError(
            f"this figure needs at least 2 budgets that were compared, but got {x.size}; train "
            "the runs further."
        )
    rows = np.nan_to_num(np.asarray(full[what], dtype=np.float64))
    return x, rows, [(int(b), int(n)) for b, n in full["configurations"]]


@house
def backtest(fit: Fit, *, title: str = "Predictions for budgets not seen") -> Figure:
    """Predicted minus observed score of every held-out score, with its interval.

    Filled marks are the model, hollow ones no change since the cut.

    Args:
        fit: the fit to draw.
        title: of the figure.

    Raises:
        InputError: if the sweep was too short for a back-test.
    """
    document = as_logged(fit.document)
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
        mine = [r for r in rows if pair_of(r) == pair]
        if not mine:
            continue
        # Held-out budgets are shared: neighbours stand a little apart.
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
    budget_axis(axes, document["backtest"], few=True)
    axes.set_ylabel("predicted minus observed score")
    handles, names = axes.get_legend_handles_labels()
    if len(names) <= 12:  # more would cover the axes; colour and shape are those of the curves
        figure.legend(
            handles, names, loc="outside lower center", ncols=min(len(names), 8),
            handletextpad=0.2, columnspacing=1.0,
        )  # fmt: skip
    return figure
