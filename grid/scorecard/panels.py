"""What one panel of a figure shows: learning curves, a path of n*, arms side by side.

Shape legend: X budgets, K evaluations of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter
from PIL import Image

from isocompute.answers import Fit, PaperFit, printed_law
from isocompute.domain import Curve
from isocompute.domain.text import compact
from isocompute.report.style import ramp_color
from scorecard.statistics import FloatArray

Sweep = Sequence[Curve]
Key = tuple[int, int]

DENSE = 40  # evaluations of a run beyond which its curve is drawn as a moving mean,
SMOOTHED = 0.15  # over so many decades: single seeds evaluated often are a scribble otherwise
LEAST_STEPS = 20  # updates from which a configuration may lead
SMALLEST = 8  # points: letters smaller than this cannot be read on a page
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
_WIDTHS = (3.6, 2.2, 1.1)  # arms in the order they are drawn: an arm that covers another shows it
_ARMS = ("#1e1b4b", "#c2255c", "#d97706", "#2a9d8f", "#6b7280")


def mean_curves(sweep: Sweep) -> dict[Key, tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """Budgets, mean, lowest and highest score over the runs of each configuration.

    At the evaluations of its first run, as far as every run of it has come.
    """
    runs: dict[Key, list[Curve]] = defaultdict(list)
    for c in sweep:
        runs[c.configuration].append(c)
    out = {}
    for key, peers in sorted(runs.items()):
        end = min(c.rollouts_K[-1] for c in peers)
        x_K = peers[0].rollouts_K
        x_K = x_K[(x_K > 0) & (x_K <= end)]
        if len(x_K) < 2:
            continue
        score_SK = np.array([np.interp(x_K, c.rollouts_K, c.score_K) for c in peers])
        if len(x_K) > DENSE:
            score_SK = np.array([_smooth(np.log10(x_K), score_K) for score_K in score_SK])
        out[key] = (x_K, score_SK.mean(axis=0), score_SK.min(axis=0), score_SK.max(axis=0))
    return out


def _smooth(x_K: FloatArray, score_K: FloatArray) -> FloatArray:
    near_KK = np.abs(x_K[:, None] - x_K) <= SMOOTHED / 2
    out: FloatArray = near_KK @ score_K / near_KK.sum(axis=1)
    return out


def budget_axis(axes: Axes) -> None:
    """Logarithmic, with labels such as 200k that do not run into each other."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    subs = (1, 2, 5) if high / low < 30 else (1, 3) if high / low < 300 else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(lambda value, _: compact(value) if value >= 1 else f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def legend(axes: Axes, handles: Sequence[Line2D] | None = None) -> None:
    """Right of the panel, where it covers no curve."""
    given = {} if handles is None else {"handles": handles}
    axes.legend(**given, fontsize=SMALLEST, frameon=False, loc="center left",
                bbox_to_anchor=(1.0, 0.5), borderaxespad=0.2, handlelength=1.8,
                labelspacing=0.35)  # fmt: skip


def _colours(keys: Sequence[Key]) -> dict[int, str]:
    n = sorted({key[1] for key in keys})
    return {one: ramp_color(i / max(len(n) - 1, 1), "light") for i, one in enumerate(n)}


def curves(axes: Axes, sweep: Sweep, *, leader: bool = True, by_bp: bool = False) -> None:
    """Mean score of every configuration, the runs' range shaded, and who leads underneath.

    Args:
        axes: to draw on.
        sweep: its runs.
        leader: whether the best so far of all is drawn, broad, in the colour of its n.
        by_bp: colour by B_p, where n is one.
    """
    found = mean_curves(sweep)
    swapped = [(n, b) for b, n in found] if by_bp else list(found)
    colours = _colours(swapped)
    b_p = sorted({key[0] for key in swapped})
    one_each = len(b_p) > 1 and len(swapped) == len(colours)  # a fixed batch
    if leader:
        _leader(axes, found, colours)
    for key, label in zip(found, swapped, strict=True):
        x_K, mean_K, low_K, high_K = found[key]
        dash = _DASHES[0 if one_each else b_p.index(label[0]) % len(_DASHES)]
        axes.plot(x_K, mean_K, color=colours[label[1]], linestyle=dash, linewidth=1.2)
        axes.fill_between(x_K, low_K, high_K, color=colours[label[1]], alpha=0.10, linewidth=0)
    budget_axis(axes)
    # Colours and dashes apart: one entry for every pair would be a list of twenty.
    one, other = ("B_p", "n") if by_bp else ("n", "B_p")
    also = {k: f", {other}={b}" for b, k in swapped} if one_each else dict.fromkeys(colours, "")
    handles = [
        Line2D([], [], color=colours[k], label=f"{one}={k}{also[k]}") for k in sorted(colours)
    ]
    if len(b_p) > 1 and not one_each:
        handles += [
            Line2D([], [], color="#374151", linestyle=_DASHES[i % len(_DASHES)], linewidth=1.2,
                   label=f"{other}={k}") for i, k in enumerate(b_p)
        ]  # fmt: skip
    legend(axes, handles)


def _leader(
    axes: Axes,
    found: Mapping[Key, tuple[FloatArray, FloatArray, FloatArray, FloatArray]],
    colours: Mapping[int, str],
) -> None:
    """Envelope of the best scores so far, where a configuration has had its updates."""
    low = min(x[0] for x, *_ in found.values())
    high = max(x[-1] for x, *_ in found.values())
    x_X = np.geomspace(low, high, 120)
    keys, best = list(found), []
    for b_p, n in keys:
        x_K, mean_K, *_ = found[b_p, n]
        so_far_K = np.maximum.accumulate(mean_K)
        value_X = np.interp(np.log(x_X), np.log(x_K), so_far_K, left=-1.0)
        value_X[x_X < LEAST_STEPS * b_p * n] = -1.0
        best.append(value_X)
    best_JX = np.array(best)
    first_X, top_X = best_JX.argmax(axis=0), best_JX.max(axis=0)
    for j in np.unique(first_X[top_X >= 0]):
        here_X = (first_X == j) & (top_X >= 0)
        wide_X = here_X | np.roll(here_X, 1) & (top_X >= 0)
        axes.plot(x_X, np.where(wide_X, top_X, np.nan), color=colours[keys[j][1]], linewidth=6,
                  alpha=0.30, solid_capstyle="butt", zorder=0)  # fmt: skip


def path(axes: Axes, fit: Fit, source: str | None = None, name: str = "", colour: int = 0) -> None:
    """n* and its interval over the budgets compared; dashed: what the study printed.

    Dotted: the paper's method by our code, where it gives a law of n.
    """
    x_X, log2_n_DX = fit.path
    low_X, middle_X, high_X = 2 ** np.quantile(log2_n_DX, (0.025, 0.5, 0.975), axis=0)
    tint = _ARMS[colour % len(_ARMS)]
    axes.plot(10**x_X, middle_X, color=tint, linewidth=1.4, label=name or "best n")
    axes.fill_between(10**x_X, low_X, high_X, color=tint, alpha=0.15, linewidth=0)
    printed = printed_law(source)
    if printed is not None:
        axes.plot(10**x_X, printed.law.predict(10**x_X), color="#555555", linewidth=1.0,
                  linestyle=(0, (5, 2)), label="as printed")  # fmt: skip
    if isinstance(fit.paper, PaperFit):
        axes.plot(10**x_X, fit.paper.law.predict(10**x_X), color="#d97706", linewidth=1.0,
                  linestyle=(0, (1.5, 1.5)), label="paper's method")  # fmt: skip
    _octaves(axes)
    budget_axis(axes)
    legend(axes)


def _octaves(axes: Axes) -> None:
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def splits(axes: Axes, fit: Fit, *, of_bp: bool) -> bool:
    """n*(M), or B_p*(M), at a fixed batch; whether the interval at the end spans every split."""
    x_X, log2_n_DX = fit.path
    batch = fit.batch_size or 1
    n_DX = batch / 2**log2_n_DX if of_bp else 2**log2_n_DX
    low_X, middle_X, high_X = np.quantile(n_DX, (0.025, 0.5, 0.975), axis=0)
    steps_X = 10**x_X / batch
    tint = _ARMS[1 if of_bp else 0]
    axes.plot(steps_X, middle_X, color=tint, linewidth=1.4)
    axes.fill_between(steps_X, low_X, high_X, color=tint, alpha=0.15, linewidth=0)
    budget_axis(axes)
    _octaves(axes)
    return bool(low_X[-1] <= n_DX.min() and high_X[-1] >= n_DX.max())


def arms(axes: Axes, sweeps: Mapping[str, Sweep]) -> None:
    """Arms side by side in one panel, each thinner than the one before; n differ in dash."""
    n = sorted({c.rollouts_per_problem for sweep in sweeps.values() for c in sweep})
    handles = []
    for i, (name, sweep) in enumerate(sweeps.items()):
        colour, width = _ARMS[i % len(_ARMS)], _WIDTHS[min(i, len(_WIDTHS) - 1)]
        handles.append(Line2D([], [], color=colour, linewidth=width, label=name))
        for (_, one), (x_K, mean_K, low_K, high_K) in mean_curves(sweep).items():
            dash = _DASHES[n.index(one) % len(_DASHES)]
            axes.plot(x_K, mean_K, color=colour, linestyle=dash, linewidth=width,
                      dash_capstyle="butt", zorder=2 + i)  # fmt: skip
            axes.fill_between(x_K, low_K, high_K, color=colour, alpha=0.10, linewidth=0)
    budget_axis(axes)
    if len(n) > 1:
        handles += [
            Line2D([], [], color="#374151", linestyle=_DASHES[i % len(_DASHES)], linewidth=1.2,
                   label=f"n={one}") for i, one in enumerate(n)
        ]  # fmt: skip
    legend(axes, handles)


def best_n(axes: Axes, rows: Mapping[str, Mapping[int, float]]) -> None:
    """The best n at the largest budget, by B_p, one line per metric."""
    for i, (metric, by_bp) in enumerate(rows.items()):
        axes.plot(list(by_bp), list(by_bp.values()), "os"[i % 2] + "-", color=_ARMS[i],
                  label=metric, markersize=5, linewidth=1.0)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    octave = np.log2([n for by_bp in rows.values() for n in by_bp.values()])
    axes.set_ylim(2 ** (np.floor(octave.min()) - 0.2), 2 ** (np.ceil(octave.max()) + 0.2))
    _octaves(axes)
    legend(axes)


def landscape(axes: Axes, rates: Mapping[str, FloatArray]) -> None:
    """Share of the problems by pass rate, before training and after it at several n."""
    edges = np.linspace(-1 / 32, 1 + 1 / 32, 18)
    for i, (name, rate_P) in enumerate(rates.items()):
        share, _ = np.histogram(rate_P, edges)
        axes.step((edges[1:] + edges[:-1]) / 2, share / len(rate_P), where="mid",
                  color=_ARMS[i % len(_ARMS)], linewidth=1.2, label=name)  # fmt: skip
    legend(axes)


def save(figure: Figure, path: Path, dpi: int) -> None:
    """A PNG of 64 colours: a quarter of the bytes, and lines look as before.

    By an octree: the median cut lets neighbouring n run into one colour.
    """
    drawn = BytesIO()
    figure.savefig(drawn, dpi=dpi, format="png")
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(
            colors=64, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


def rates(axes: Axes, points: Mapping[int, Mapping[float, float]]) -> None:
    """Final score against learning rate, a line per n."""
    colours = _colours([(0, n) for n in points])
    for n, row in sorted(points.items()):
        axes.plot(list(row), list(row.values()), "o-", color=colours[n], label=f"n={n}",
                  linewidth=1.0, markersize=3)  # fmt: skip
    budget_axis(axes)
    legend(axes)
