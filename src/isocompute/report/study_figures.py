"""Figures for papers of what only a study's own records can show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from isocompute.domain.text import compact, visible
from isocompute.errors import InputError
from isocompute.report.canvas import budget_axis, canvas, end_labels, house, label_text
from isocompute.report.style import ACCENT, INK, MUTED, series_styles

if TYPE_CHECKING:
    from isocompute.report.study_data import StudyView


@house
def scores(view: StudyView, *, title: str = "Best of k and worst of k") -> Figure:
    """Bars per metric and configuration at equal compute; the best of each panel outlined.

    Args:
        view: a study with `scores`.
        title: of the figure.

    Raises:
        InputError: if the study holds no scores.
    """
    if not view.scores:
        raise InputError(
            f"a figure of scores needs evaluations of a study, but {visible(view.name)!r} has "
            "none; run the study first."
        )
    figure = Figure(figsize=(6.2, 2.9), layout="constrained")
    panels = figure.subplots(1, len(view.scores), squeeze=False)[0]
    figure.suptitle(label_text(title), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    pairs = {(r["bp"], r["n"]) for rows in view.scores.values() for r in rows}
    styles = series_styles(pairs)
    for axes, (metric, rows) in zip(panels, view.scores.items(), strict=True):
        ordered = sorted(rows, key=lambda r: (r["bp"], r["n"]))
        best = max(ordered, key=lambda r: r["value"])
        for i, row in enumerate(ordered):
            axes.bar(
                i,
                row["value"],
                color=styles[(row["bp"], row["n"])].light,
                width=0.74,
                edgecolor=INK if row is best else "none",
                linewidth=1.6,
            )
            if row.get("interval"):
                axes.plot([i, i], row["interval"], color=MUTED, linewidth=1.0)
        axes.set_xticks(range(len(ordered)))
        several = len({b for b, _ in pairs}) > 1
        axes.set_xticklabels(
            [f"{r['bp']}×{r['n']}" if several else str(r["n"]) for r in ordered],
            rotation=90 if several else 0,
        )
        axes.grid(axis="x", visible=False)
        axes.set_title(label_text(metric), fontsize=9, fontweight="normal", pad=6)
        axes.set_xlabel("Bₚ × n" if several else "n")
    return figure


@house
def landscape(view: StudyView, *, step: int = -1, title: str | None = None) -> Figure:
    """Share of problems by the share of their samples that succeed, at equal compute.

    Args:
        view: a study with `landscapes`.
        step: which of the study's budgets; -1 is the last.
        title: None: the budget.

    Raises:
        InputError: if the study holds no landscapes.
    """
    if not view.landscapes:
        raise InputError(
            f"a landscape needs outcomes per problem, but {visible(view.name)!r} has none; run "
            "the study with an engine that records them."
        )
    chosen = view.landscapes[step]
    figure, axes = canvas(title or f"Landscape at {compact(chosen['rollouts'])} rollouts")
    groups = sorted(chosen["groups"], key=lambda g: (g["n"], g["bp"]))
    styles = series_styles((g["bp"], g["n"]) for g in groups)
    width = 0.84 / len(groups)
    for i, group in enumerate(groups):
        style = styles[(group["bp"], group["n"])]
        share = np.asarray(group["counts"], dtype=np.float64) / group["problems"]
        place = np.arange(share.size) + (i - (len(groups) - 1) / 2) * width
        axes.bar(place, share, width=width * 0.92, color=style.light, label=style.label)
    k = groups[0]["samples"]
    axes.set_xticks(range(k + 1))
    axes.set_xticklabels([f"{i}/{k}" for i in range(k + 1)])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("share of a problem's samples that succeed")
    axes.set_ylabel("share of problems")
    axes.legend(ncols=2)
    return figure


@house
def train_test_gap(view: StudyView, *, title: str = "Train-test gap") -> Figure:
    """Success on training batches minus success on validation problems, over training.

    Args:
        view: a study with `train_test`.
        title: of the figure.

    Raises:
        InputError: if the study holds no training outcomes.
    """
    if not view.train_test:
        raise InputError(
            f"a train-test gap needs outcomes of training batches, but {visible(view.name)!r} has "
            "none; run the study with an engine that records them."
        )
    figure, axes = canvas(title)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    styles = series_styles((r["bp"], r["n"]) for r in view.train_test)
    labels = []
    for row in view.train_test:
        style = styles[(row["bp"], row["n"])]
        gap = np.array(row["train"]) - np.array(row["validation"])
        axes.plot(row["x"], gap, color=style.light, linestyle=style.linestyle, linewidth=1.4)
        labels.append((float(gap[-1]), style))
    budget_axis(axes, {})
    axes.set_ylabel("train minus validation")
    end_labels(axes, labels)
    return figure


@house
def difficulty(view: StudyView, *, title: str = "Difficulty under the base model") -> Figure:
    """Training problems by how many samples of the base model succeed.

    Args:
        view: a study with `difficulty`.
        title: of the figure.

    Raises:
        InputError: if the pass rates are not known.
    """
    if view.difficulty is None:
        raise InputError(
            f"a figure of difficulty needs pass rates, but {visible(view.name)!r} has none; "
            "measure them by `isocompute difficulty`."
        )
    samples, counts = view.difficulty["samples"], view.difficulty["counts"]
    figure, axes = canvas(title)
    axes.bar(range(len(counts)), counts, color=ACCENT, width=0.8)
    axes.grid(axis="x", visible=False)
    axes.set_xticks(range(len(counts)))
    axes.set_xlabel(f"successes of {samples}")
    axes.set_ylabel("problems")
    return figure


@house
def health(view: StudyView, *, title: str = "Health of the runs") -> Figure:
    """One small panel per quantity that the steps recorded, a line per run.

    Args:
        view: a study with `health`.
        title: of the figure.

    Raises:
        InputError: if the steps recorded nothing.
    """
    if not view.health:
        raise InputError(
            f"a figure of health needs step records, but {visible(view.name)!r} has none; run "
            "the study with an engine that writes them."
        )
    rows = -(-len(view.health) // 3)
    figure = Figure(figsize=(6.2, 1.9 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, 3, squeeze=False).ravel()
    figure.suptitle(label_text(title), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    styles = series_styles((r["bp"], r["n"]) for lines in view.health.values() for r in lines)
    for axes, (name, lines) in zip(panels, view.health.items(), strict=False):
        for row in lines:
            y = np.array([np.nan if v is None else v for v in row["y"]], dtype=np.float64)
            axes.plot(row["x"], y, color=styles[(row["bp"], row["n"])].light, linewidth=0.8)
        axes.set_title(label_text(name), fontsize=8.5, fontweight="normal", pad=4)
        budget_axis(axes, {}, few=True)
        axes.set_xlabel("")
    for axes in panels[len(view.health) :]:
        axes.set_axis_off()
    return figure
