"""Figures for papers: one function per figure, matplotlib, one house style (`report.style`).

Every function takes a `Fit` (or a `StudyView`), returns a `matplotlib.figure.Figure`, and needs
no display: figures are made without pyplot, so that nothing global is touched.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.report.payload import configurations
from isocompute.report.style import BAND, INK, MATPLOTLIB, MUTED, SeriesStyle, series_styles
from isocompute.report.words import Document, count, percent, setting_name, unit_name, visible

if TYPE_CHECKING:
    from isocompute.laws import Fit
    from isocompute.report.study_view import StudyView

FloatArray = NDArray[np.float64]
Row = Mapping[str, Any]

ACCENT = "#0f766e"
FORMATS = ("pdf", "svg", "png")
P = ParamSpec("P")


def _house(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draws in the house style and leaves the caller's own settings alone."""

    @functools.wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(MATPLOTLIB):
            return draw(*args, **kwargs)

    return styled


@_house
def learning_curves(fit: Fit, *, title: str | None = None) -> Figure:
    """Scores against budget: every evaluation faint, record points marked, fits as lines.

    Args:
        fit: the fit to draw.
        title: None: the metric and what was held fixed.
    """
    document = fit.document
    figure, axes = _canvas(title or _title("Learning curves", document))
    styles = _styles(fit)
    for curve in fit.curves:
        style = styles[(curve.problems_per_batch, curve.rollouts_per_problem)]
        x, y = _xy(document, curve)
        axes.plot(x, y, ".", color=style.light, alpha=0.18, markersize=2.6, markeredgewidth=0)
    labels: list[tuple[float, SeriesStyle]] = []
    for pair, (x, y) in sorted(fit.records.items(), key=lambda item: item[0][1]):
        style, row = styles[pair], _row(document, pair)
        if x.size == 0:
            continue
        end = float(y[-1])
        if row is not None:
            grid = _grid(*_span(fit, pair, x))
            line = _sigmoid(row, grid)
            axes.plot(grid, line, color=style.light, linestyle=style.linestyle, linewidth=1.4)
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
    _budget_axis(axes, document)
    axes.set_ylabel(f"{_metric(document)}, validation")
    _end_labels(axes, labels)
    return figure


@_house
def frontier(fit: Fit, *, title: str | None = None) -> Figure:
    """The upper envelope of the fitted curves, in the colour of the configuration that leads.

    The fits are drawn thin over their own data; a stretch is the wider and the more solid, the
    more probable it is that its leader is best. Vertical bands are the crossovers' intervals.

    Args:
        fit: the fit to draw.
        title: None: the metric and what was held fixed.
    """
    document = fit.document
    figure, axes = _canvas(title or _title("Frontier", document))
    styles = _styles(fit)
    for crossover in document.get("crossovers") or []:
        lo, hi = crossover.get("interval") or (None, None)
        if lo and hi:
            axes.axvspan(lo, hi, color=BAND, alpha=0.55, linewidth=0, zorder=0)
    for pair, style in styles.items():
        row = _row(document, pair)
        if row is not None:
            grid = _grid(*_span(fit, pair, fit.records.get(pair, (np.array([]),))[0]))
            axes.plot(grid, _sigmoid(row, grid), color=style.light, linewidth=0.8, alpha=0.55)
    bottom, top = axes.get_ylim()
    for part in document.get("frontier", []):
        pair = (part["problems_per_batch"], part["rollouts_per_problem"])
        row = _row(document, pair)
        if row is None or not part["from"] < part["to"]:
            continue
        probability = part.get("probability_best")
        sure = 0.6 if probability is None else probability
        grid = _grid(part["from"], part["to"])
        y = _sigmoid(row, grid)
        axes.plot(
            grid,
            y,
            color=styles[pair].light,
            linewidth=2.2 + 2.8 * sure,
            linestyle=(0, (2, 1)) if part.get("extrapolated") else "-",
        )
        middle = len(grid) // 2
        text = styles[pair].label + ("" if probability is None else f"\n{percent(probability)}")
        axes.annotate(
            text,
            (grid[middle], y[middle]),
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
    _budget_axis(axes, document)
    axes.set_ylabel(f"{_metric(document)}, validation")
    return figure


@_house
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
        title: None: what was held fixed.

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
    figure, axes = _canvas(title or _title("Best rollouts per problem", document, metric=True))
    styles = _styles(fit)
    scale = _per_step(document)
    x = np.array([row["x"] for row in at], dtype=np.float64)
    n = _values(row.get("rollouts_per_problem") for row in at)
    tested = [row["rollouts_per_problem"] for row in document.get("curves", [])]
    low, high = min([*tested, *n[np.isfinite(n)]]), max([*tested, *n[np.isfinite(n)]])
    bounds = [row.get("interval") or (None, None) for row in at]
    lo = _values(b[0] if b[0] is not None else low / 1.4 for b in bounds)
    hi = _values(b[1] if b[1] is not None else high * 1.4 for b in bounds)
    axes.fill_between(x, lo, hi, color=ACCENT, alpha=0.16, linewidth=0)
    for part in document.get("frontier", []):
        style = styles[(part["problems_per_batch"], part["rollouts_per_problem"])]
        probability = part.get("probability_best")
        axes.plot(
            [part["from"] / scale, part["to"] / scale],
            [style.rollouts_per_problem] * 2,
            color=style.light,
            linewidth=5,
            alpha=0.8 if probability is None else 0.25 + 0.75 * probability,
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
                _values(row.get("rollouts_per_problem") for row in rows),
                color=INK,
                linewidth=1.1,
                linestyle=lines[i % len(lines)],
                zorder=4,
                label=_text(f"law of {name}"),
            )
    if plan is not None and plan.get("rollouts_per_problem") and scale == 1:
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
    axes.set_yscale("log", base=2)
    axes.set_ylim(low / 1.5, high * 1.5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    _budget_axis(axes, document, law=True)
    axes.set_ylabel("rollouts per problem, n")
    if others or plan is not None:
        axes.legend(loc="upper left", handlelength=2.4)
    return figure


@_house
def probability_best(fit: Fit, *, title: str | None = None) -> Figure:
    """How probable it is, at each budget, that each configuration is the best one.

    Args:
        fit: the fit to draw; its document's `probabilities` where there are any, otherwise the
            probability of the leader of each stretch of the frontier.
        title: None: the metric and what was held fixed.
    """
    document = fit.document
    figure, axes = _canvas(title or _title("Probability of being best", document))
    styles = _styles(fit)
    full = document.get("probabilities")
    if full:
        x = np.asarray(full["x"], dtype=np.float64)
        shares = np.nan_to_num(np.asarray(full["best"], dtype=np.float64))
        pairs = [(int(b), int(n)) for b, n in full["configurations"]]
        axes.stackplot(
            x, shares, colors=[styles[p].light for p in pairs], edgecolor="white", linewidth=0.6
        )
        top = np.cumsum(shares, axis=0)
        for i, pair in enumerate(pairs):
            j = int(np.argmax(shares[i]))
            if shares[i, j] > 0.22:
                place = j / max(x.size - 1, 1)
                side = "left" if place < 0.12 else "right" if place > 0.88 else "center"
                axes.text(
                    x[j],
                    top[i, j] - shares[i, j] / 2,
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
    _budget_axis(axes, document)
    axes.set_ylabel("probability of being best")
    return figure


@_house
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
    figure.suptitle(_text(title), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
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
        axes.set_title(_text(metric), fontsize=9, fontweight="normal", pad=6)
        axes.set_xlabel("Bₚ × n" if several else "n")
    return figure


@_house
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
    figure, axes = _canvas(title or f"Landscape at {count(chosen['rollouts'])} rollouts")
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
        study: adds `study-scores` and `study-landscape` where it holds them.

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
        made.append((f"{i}-probability-best", probability_best(fit)))
    if study is not None and study.scores:
        made.append(("study-scores", scores(study)))
    if study is not None and study.landscapes:
        made.append(("study-landscape", landscape(study)))
    return [_save(figure, target / f"{stem}.{form}") for stem, figure in made for form in formats]


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


def _canvas(title: str) -> tuple[Figure, Axes]:
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.set_title(_text(title))
    return figure, axes


def _text(value: object) -> str:
    # A dollar sign would start matplotlib's own mathematics.
    return visible(value, 80).replace("$", r"\$")


def _title(what: str, document: Document, *, metric: bool = False) -> str:
    held = setting_name(document)
    about = f" for {_metric(document)}" if metric else ""
    return f"{what}{about}" + (f" ({held})" if held else "")


def _metric(document: Document) -> str:
    return _text(document.get("metric") or "score")


def _styles(fit: Fit) -> Mapping[tuple[int, int], SeriesStyle]:
    return series_styles(configurations([("", fit)], None))


def _row(document: Document, pair: tuple[int, int]) -> Row | None:
    """The fitted curve of a configuration, None where it has no finite parameters."""
    for row in document.get("curves", []):
        if (row["problems_per_batch"], row["rollouts_per_problem"]) == pair:
            keys = ("floor", "ceiling", "slope", "log10_midpoint")
            return row if all(row.get(key) is not None for key in keys) else None
    return None


def _sigmoid(row: Row, x: FloatArray) -> FloatArray:
    rise = 1 + np.exp(-row["slope"] * (np.log10(x) - row["log10_midpoint"]))
    return np.asarray(row["floor"] + (row["ceiling"] - row["floor"]) / rise, dtype=np.float64)


def _grid(low: float, high: float) -> FloatArray:
    return np.geomspace(low, high, 120)


def _xy(document: Document, curve: Any) -> tuple[FloatArray, FloatArray]:
    tokens = document.get("unit") == "tokens" and curve.tokens_K is not None
    x = np.asarray(curve.tokens_K if tokens else curve.rollouts_K, dtype=np.float64)
    return x[x > 0], np.asarray(curve.score_K, dtype=np.float64)[x > 0]


def _span(fit: Fit, pair: tuple[int, int], fallback: FloatArray) -> tuple[float, float]:
    """Budgets over which a configuration has data: a fit is drawn nowhere else."""
    mine = [
        _xy(fit.document, c)[0]
        for c in fit.curves
        if (c.problems_per_batch, c.rollouts_per_problem) == pair
    ]
    x = np.concatenate([part for part in mine if part.size] or [fallback])
    return (float(x.min()), float(x.max())) if x.size else (1.0, 10.0)


def _values(items: Any) -> FloatArray:
    return np.array([math.nan if v is None else v for v in items], dtype=np.float64)


def _per_step(document: Document) -> float:
    """Rollouts per unit of the law's variable: a fixed batch has its law in update steps."""
    steps = (document.get("law") or {}).get("variable") == "steps"
    return float((document.get("setting") or {}).get("value") or 1) if steps else 1.0


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


def _budget_axis(axes: Axes, document: Document, *, law: bool = False) -> None:
    unit = unit_name(document) if law else str(document.get("unit") or "rollouts")
    words = {"rollouts": "training rollouts", "tokens": "generated tokens"}
    axes.set_xscale("log")
    lo, hi = axes.get_xlim()
    decades = math.log10(hi / lo)
    subs = (1.0, 2.0, 5.0) if decades < 2.2 else (1.0, 3.0) if decades < 4 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _short(v)))
    axes.set_xlabel(words.get(unit, unit))


def _short(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _end_labels(axes: Axes, labels: Sequence[tuple[float, SeriesStyle]]) -> None:
    """Names at the right edge, pushed apart so that none covers another."""
    bottom, top = axes.get_ylim()
    gap = (top - bottom) * 0.045
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
