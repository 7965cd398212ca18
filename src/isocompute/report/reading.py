"""What the paper figures read out of a fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.projection import unit_curve
from isocompute.report.canvas import label_text
from isocompute.report.payload import configurations
from isocompute.report.style import SeriesStyle, series_styles
from isocompute.report.words import Document

if TYPE_CHECKING:
    from isocompute.laws import Fit

FloatArray = NDArray[np.float64]
Row = Mapping[str, Any]


def metric_of(document: Document) -> str:
    """Name of the score, as text."""
    return label_text(document.get("metric") or "score")


def styles_of(fit: Fit) -> Mapping[tuple[int, int], SeriesStyle]:
    """Style of every configuration of a fit."""
    return series_styles(configurations([("", fit)], None))


def curve_row(document: Document, pair: tuple[int, int]) -> Row | None:
    """The fitted curve of a configuration, None where it has no finite parameters."""
    for row in document.get("curves", []):
        if (row["problems_per_batch"], row["rollouts_per_problem"]) == pair:
            keys = ("floor", "ceiling", "slope", "log10_midpoint")
            return row if all(row.get(key) is not None for key in keys) else None
    return None


def sigmoid(row: Row, x: FloatArray) -> FloatArray:
    """The fitted curve at x."""
    x = np.minimum(x, row.get("held_from") or np.inf)  # documents of older versions lack it
    z = row["slope"] * (np.log10(x) - row["log10_midpoint"])
    s = unit_curve(z, row.get("form") == "gompertz")
    return np.asarray(row["floor"] + (row["ceiling"] - row["floor"]) * s, dtype=np.float64)


def grid(low: float, high: float) -> FloatArray:
    """120 budgets from low to high, evenly spaced in log."""
    return np.geomspace(low, high, 120)


def curve_points(document: Document, curve: Any) -> tuple[FloatArray, FloatArray]:
    """(x, score) of a run in the unit of the fit, without step 0."""
    tokens = document.get("unit") == "tokens" and curve.tokens_K is not None
    x = np.asarray(curve.tokens_K if tokens else curve.rollouts_K, dtype=np.float64)
    return x[x > 0], np.asarray(curve.score_K, dtype=np.float64)[x > 0]


def data_span(fit: Fit, pair: tuple[int, int], fallback: FloatArray) -> tuple[float, float]:
    """Budgets over which a configuration has data: a fit is drawn nowhere else."""
    mine = [
        curve_points(fit.document, c)[0]
        for c in fit.curves
        if (c.problems_per_batch, c.rollouts_per_problem) == pair
    ]
    x = np.concatenate([part for part in mine if part.size] or [fallback])
    return (float(x.min()), float(x.max())) if x.size else (1.0, 10.0)


def finite_or_nan(items: Any) -> FloatArray:
    """Numbers as an array, NaN for None."""
    return np.array([math.nan if v is None else v for v in items], dtype=np.float64)


def rollouts_per_step(document: Document) -> float:
    """Rollouts per unit of the law's variable: a fixed batch has its law in update steps."""
    steps = (document.get("law") or {}).get("variable") == "steps"
    return float((document.get("setting") or {}).get("value") or 1) if steps else 1.0
