"""Figures for papers: one function per figure, matplotlib, one house style (`report.style`).

Every function takes a `Fit` (or a `StudyView`), returns a `matplotlib.figure.Figure`, and needs
no display: figures are made without pyplot, so that nothing global is touched.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import PercentFormatter

from isocompute.errors import InputError
from isocompute.report.canvas import budget_axis, canvas, end_labels, house
from isocompute.report.check_figures import backtest, loss_by_n, sensitivity
from isocompute.report.law_figures import law, law_problems_per_batch
from isocompute.report.reading import (
    curve_points,
    curve_row,
    data_span,
    grid,
    metric_of,
    sigmoid,
    styles_of,
)
from isocompute.report.study_figures import (
    difficulty,
    health,
    landscape,
    scores,
    train_test_gap,
)
from isocompute.report.style import BAND, MATPLOTLIB, SeriesStyle
from isocompute.report.words import Document, percent, setting_name

if TYPE_CHECKING:
    from isocompute.laws import Fit
    from isocompute.report.study_data import StudyView

__all__ = [
    "backtest",
    "difficulty",
    "frontier",
    "health",
    "landscape",
    "law",
    "law_problems_per_batch",
    "learning_curves",
    "loss_by_n",
    "probability_best",
    "save_figures",
    "scores",
    "sensitivity",
    "train_test_gap",
]

FORMATS = ("pdf", "svg", "png")


@house
def learning_curves(fit: Fit, *, title: str | None = None) -> Figure:
    """Scores against budget: every evaluation faint, record points marked, fits as lines.

    Args:
        fit: the fit to draw.
        title: None: what it shows.
    """
    document = fit.document
    figure, axes = canvas(title or "Learning curves", setting_name(document))
    styles = styles_of(fit)
    for curve in fit.curves:
        style = styles[(curve.problems_per_batch, curve.rollouts_per_problem)]
        x, y = curve_points(document, curve)
        axes.plot(x, y, ".", color=style.light, alpha=0.18, markersize=2.6, markeredgewidth=0)
    labels: list[tuple[float, SeriesStyle]] = []
    for pair, (x, y) in sorted(fit.records.items(), key=lambda item: item[0][1]):
        style, row = styles[pair], curve_row(document, pair)
        if x.size == 0:
            continue
        end = float(y[-1])
        if row is not None:
            x_line = grid(*data_span(fit, pair, x))
            line = sigmoid(row, x_line)
            axes.plot(x_line, line, color=style.light, linestyle=style.linestyle, linewidth=1.4)
            end = float(line[-1])
        axes.plot(
            x,
            y,
            linestyle="none",
            marker=style.marker,
            color=style.light,
            markersize=4.6,
            markeredgecolor="white",
            markeredgewidth=0.5,
        )
        labels.append((end, style))
    budget_axis(axes, document)
    axes.set_ylabel(f"{metric_of(document)}, validation")
    end_labels(axes, labels)
    return figure


@house
def frontier(fit: Fit, *, title: str | None = None) -> Figure:
    """The upper envelope of the fitted curves, in the colour of the configuration that leads.

    The fits are drawn thin over their own data; a stretch is the wider and the more solid, the
    more probable it is that its leader is best. Vertical bands are the crossovers' intervals.

    Args:
        fit: the fit to draw.
        title: None: what it shows.
    """
    document = fit.document
    figure, axes = canvas(title or "Frontier", setting_name(document))
    styles = styles_of(fit)
    for crossover in document.get("crossovers") or []:
        lo, hi = crossover.get("interval") or (None, None)
        if lo and hi:
            axes.axvspan(lo, hi, color=BAND, alpha=0.55, linewidth=0, zorder=0)
    for pair, style in styles.items():
        row = curve_row(document, pair)
        if row is not None:
            x_line = grid(*data_span(fit, pair, fit.records.get(pair, (np.array([]),))[0]))
            axes.plot(x_line, sigmoid(row, x_line), color=style.light, linewidth=0.8, alpha=0.55)
    bottom, top = axes.get_ylim()
    parts = document.get("frontier", [])
    whole = math.log(parts[-1]["to"] / parts[0]["from"]) if parts else 0.0
    for part in parts:
        pair = (part["problems_per_batch"], part["rollouts_per_problem"])
        row = curve_row(document, pair)
        if row is None or not part["from"] < part["to"]:
            continue
        probability = part.get("probability_best")
        sure = 0.6 if probability is None else probability
        # A curve is known over its own data only, and so is the frontier that it carries.
        first, last = data_span(fit, pair, np.array([part["from"], part["to"]]))
        if not max(part["from"], first) < min(part["to"], last):
            continue
        x_line = grid(max(part["from"], first), min(part["to"], last))
        y = sigmoid(row, x_line)
        axes.plot(
            x_line,
            y,
            color=styles[pair].light,
            linewidth=2.2 + 2.8 * sure,
            linestyle=(0, (2, 1)) if part.get("extrapolated") else "-",
        )
        share = math.log(x_line[-1] / x_line[0]) / whole if whole > 0 else 1.0
        if part.get("extrapolated") or share < 0.045:
            continue  # marked, not ranked; or no room for a name
        middle = len(x_line) // 2
        text = styles[pair].label + ("" if probability is None else f"\n{percent(probability)}")
        axes.annotate(
            text,
            (x_line[middle], y[middle]),
            xytext=(-4, 7),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            fontweight="bold",
            color=styles[pair].light,
            linespacing=1.15,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
    axes.set_ylim(bottom, top + 0.12 * (top - bottom))
    budget_axis(axes, document)
    axes.set_ylabel(f"{metric_of(document)}, validation")
    return figure


@house
def probability_best(fit: Fit, *, title: str | None = None) -> Figure:
    """How probable it is, at each budget, that each configuration is the best one.

    Args:
        fit: the fit to draw; its document's `probabilities` where there are any, otherwise the
            probability of the leader of each stretch of the frontier.
        title: None: what it shows.
    """
    document = fit.document
    figure, axes = canvas(title or "Probability of being best", setting_name(document))
    styles = styles_of(fit)
    full = document.get("probabilities")
    if full:
        x = np.asarray(full["x"], dtype=np.float64)
        shares = np.nan_to_num(np.asarray(full["best"], dtype=np.float64))
        pairs = [(int(b), int(n)) for b, n in full["configurations"]]
        axes.stackplot(
            x, shares, colors=[styles[p].light for p in pairs], edgecolor="white", linewidth=0.6
        )
        top = np.cumsum(shares, axis=0)
        taken: list[tuple[float, float]] = []
        for i, pair in enumerate(pairs):
            j = int(np.argmax(shares[i]))
            place, height = j / max(x.size - 1, 1), float(top[i, j] - shares[i, j] / 2)
            free = all(abs(place - a) > 0.1 or abs(height - b) > 0.07 for a, b in taken)
            if shares[i, j] > 0.22 and free:
                taken.append((place, height))
                side = "left" if place < 0.12 else "right" if place > 0.88 else "center"
                axes.text(
                    x[j],
                    height,
                    f" {styles[pair].label} ",
                    ha=side,
                    va="center",
                    color="white",
                    fontsize=8,
                    fontweight="bold",
                )
        axes.set_xlim(x[0], x[-1])
    else:
        for part in document.get("frontier", []):
            probability = part.get("probability_best")
            if probability is None:
                continue
            style = styles[(part["problems_per_batch"], part["rollouts_per_problem"])]
            axes.fill_between(
                [part["from"], part["to"]],
                0,
                probability,
                color=style.light,
                alpha=0.8,
                edgecolor="white",
            )
            axes.text(
                math.sqrt(part["from"] * part["to"]),
                probability + 0.015,
                style.label,
                ha="center",
                va="bottom",
                fontsize=8,
                fontweight="bold",
                color=style.light,
            )
    axes.set_ylim(0, 1 if full else 1.1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    budget_axis(axes, document)
    axes.set_ylabel("probability of being best")
    return figure


def save_figures(
    fits: Sequence[tuple[str, Fit]],
    folder: str | Path,
    formats: Sequence[str] = FORMATS,
    *,
    plan: Document | None = None,
    study: StudyView | None = None,
) -> list[Path]:
    """Write every figure that the data support, in every format.

    Args:
        fits: (name, fit); files are numbered by fit: `1-law.pdf`, `2-law.pdf`.
        folder: made if it is missing.
        formats: of "pdf", "svg", "png".
        plan: marked in the law of the first fit.
        study: adds the figures of what its records hold: `study-scores`, `study-health`, ...

    Returns:
        The files written, in order.

    Raises:
        InputError: on another format.
    """
    unknown = [f for f in formats if f not in FORMATS]
    if unknown or not formats:
        raise InputError(
            f"formats must be some of {', '.join(FORMATS)}, but got {list(formats)!r}; "
            "choose from these."
        )
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    made: list[tuple[str, Figure]] = []
    for i, (_, fit) in enumerate(fits, start=1):
        made.append((f"{i}-learning-curves", learning_curves(fit)))
        made.append((f"{i}-frontier", frontier(fit)))
        if (fit.document.get("law") or {}).get("form"):
            others = [pair for j, pair in enumerate(fits, start=1) if j != i]
            figure = law(fit, others=others, plan=plan if i == 1 else None)
            made.append((f"{i}-law", figure))
        if (fit.document.get("law_problems_per_batch") or {}).get("at"):
            made.append((f"{i}-law-problems-per-batch", law_problems_per_batch(fit)))
        made.append((f"{i}-probability-best", probability_best(fit)))
        made.append((f"{i}-loss-by-n", loss_by_n(fit)))
        if (fit.document.get("backtest") or {}).get("rows"):
            made.append((f"{i}-backtest", backtest(fit)))
        if fit.document.get("sensitivity") and (fit.document.get("law") or {}).get("form"):
            made.append((f"{i}-sensitivity", sensitivity(fit)))
    if study is not None:
        made += _of_study(study)
    return [_save(figure, target / f"{stem}.{form}") for stem, figure in made for form in formats]


def _of_study(study: StudyView) -> list[tuple[str, Figure]]:
    made = []
    if study.scores:
        made.append(("study-scores", scores(study)))
    if study.landscapes:
        made.append(("study-landscape", landscape(study)))
    if study.train_test:
        made.append(("study-train-test-gap", train_test_gap(study)))
    if study.difficulty is not None:
        made.append(("study-difficulty", difficulty(study)))
    if study.health:
        made.append(("study-health", health(study)))
    return made


def _save(figure: Figure, path: Path) -> Path:
    # No date inside, so that equal data make equal files.
    no_date: dict[str, dict[str, datetime.datetime | str | None]] = {
        "pdf": {"CreationDate": None},
        "svg": {"Date": None},
        "png": {},
    }
    with mpl.rc_context(MATPLOTLIB):
        figure.savefig(path, metadata=no_date[path.suffix[1:]])
    return path
