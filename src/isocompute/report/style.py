"""The house style: how a configuration looks, in every figure, on paper and on screen.

n is an ordered quantity, so its colour is sequential: the larger n, the further from the
background in lightness (darker on white, lighter on black). Lightness is monotone, so the order
survives any colour vision and a grey printer; markers, dashes and labels at the lines' ends
repeat it. Every colour keeps a contrast of at least 4.5 against its background.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Anchors from small n to large n: amber, crimson, magenta, violet, ink.
_RAMP = {
    "light": ("#b45309", "#c2255c", "#86198f", "#4c1d95", "#1e1b4b"),
    "dark": ("#d0761a", "#ef6679", "#ea86cf", "#c9aefc", "#f3efff"),
}

# (matplotlib marker, Plotly symbol), as different in outline as possible for neighbours.
_MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("X", "x"),
    ("p", "pentagon"),
    ("*", "star"),
    ("h", "hexagon"),
)
_DASHES: tuple[tuple[Any, str], ...] = (
    ("-", "solid"),
    ((0, (6, 2)), "10px,3px"),
    ((0, (2, 1.4)), "4px,2px"),
    ((0, (7, 2, 1.5, 2)), "10px,3px,2px,3px"),
)


@dataclass(frozen=True, kw_only=True)
class SeriesStyle:
    """How one configuration (B_p, n) is drawn.

    Args:
        problems_per_batch, rollouts_per_problem: the configuration.
        light, dark: "#rrggbb" on a white and on a dark background; set by n.
        marker, symbol: matplotlib's and Plotly's name of the same marker; set by n.
        linestyle, dash: matplotlib's and Plotly's name of the same dash; set by B_p where
            there are several, otherwise by n.
        label: "n=8", or "32 x 8" (B_p x n) where there are several B_p.
    """

    problems_per_batch: int
    rollouts_per_problem: int
    light: str
    dark: str
    marker: str
    symbol: str
    linestyle: Any
    dash: str
    label: str


def ramp_color(position: float, theme: str) -> str:
    """Colour at `position` in 0..1 (small n to large n) of the theme "light" or "dark"."""
    anchors = _RAMP[theme]
    place = min(max(position, 0.0), 1.0) * (len(anchors) - 1)
    left = min(int(place), len(anchors) - 2)
    share = place - left
    mixed = [
        round(
            (1 - share) * int(anchors[left][i : i + 2], 16)
            + share * int(anchors[left + 1][i : i + 2], 16)
        )
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def series_styles(
    configurations: Iterable[tuple[int, int]], *, several: bool | None = None
) -> Mapping[tuple[int, int], SeriesStyle]:
    """Styles of all (B_p, n) of one report: the same configuration looks the same everywhere.

    Args:
        configurations: every (B_p, n) that is drawn.
        several: whether some sweep varies B_p, so that dashes and labels tell B_p apart;
            None: if more than one B_p occurs.
    """
    pairs = sorted(set(configurations), key=lambda pair: (pair[1], pair[0]))
    ns = sorted({n for _, n in pairs})
    batches = sorted({b for b, _ in pairs})
    apart = len(batches) > 1 if several is None else several
    low, high = (math.log2(ns[0]), math.log2(ns[-1])) if ns else (0.0, 0.0)
    styles: dict[tuple[int, int], SeriesStyle] = {}
    for b_p, n in pairs:
        position = 0.5 if high == low else (math.log2(n) - low) / (high - low)
        marker, symbol = _MARKERS[ns.index(n) % len(_MARKERS)]
        turn = batches.index(b_p) if apart else ns.index(n)
        linestyle, dash = _DASHES[turn % len(_DASHES)]
        styles[(b_p, n)] = SeriesStyle(
            problems_per_batch=b_p,
            rollouts_per_problem=n,
            light=ramp_color(position, "light"),
            dark=ramp_color(position, "dark"),
            marker=marker,
            symbol=symbol,
            linestyle=linestyle,
            dash=dash,
            label=f"n={n}" if not apart else f"{b_p} × {n}",
        )
    return styles


INK, MUTED, RULE, BAND, ACCENT = "#1b1b2b", "#6b7080", "#d9dbe3", "#dfe3f2", "#0f766e"

# Any keys: matplotlib names its settings in a literal type that a plain dict does not meet.
MATPLOTLIB: dict[Any, Any] = {
    "figure.figsize": (6.2, 4.0),
    "figure.dpi": 150,
    "savefig.dpi": 220,
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 18,
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "isocompute",
}
