"""What the paper figures read out of a fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.answers.law import Law
from isocompute.answers.logged import as_logged, logged_scores
from isocompute.report.canvas import label_text
from isocompute.report.payload import configurations
from isocompute.report.style import SeriesStyle, series_styles
from isocompute.report.words import Document

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit

FloatArray = NDArray[np.float64]
Row = Mapping[str, Any]


class Line(NamedTuple):
    """A fitted curve at the budgets of the document, with its interval."""

    x: FloatArray
    score: FloatArray
    low: FloatArray
    high: FloatArray
    extrapolated: NDArray[np.bool_]

    def known(self) -> Line:
        """The part up to the end of the data."""
        kept = ~self.extrapolated
        if not kept.any():
            return self
        one, of, low, high, beyond = self
        return Line(one[kept], of[kept], low[kept], high[kept], beyond[kept])

    def between(self, low: float, high: float) -> Line:
        """The part between two budgets, which become its ends."""
        ends = np.clip([low, high], self.x[0], self.x[-1])
        x = np.unique([*ends, *self.x[(self.x > ends[0]) & (self.x < ends[1])]])
        u, own = np.log10(x), np.log10(self.x)
        score, lower, upper = (np.interp(u, own, v) for v in self[1:4])
        beyond = np.interp(u, own, self.extrapolated.astype(float)) > 0.5
        return Line(x, score, lower, upper, beyond)


def metric_of(document: Document) -> str:
    """Name of the score, as text."""
    return label_text(document.get("metric") or "score")


def styles_of(fit: Fit) -> Mapping[tuple[int, int], SeriesStyle]:
    """Style of every configuration of a fit."""
    return series_styles(configurations([("", fit)], None))


def pair_of(row: Row) -> tuple[int, int]:
    """(B_p, n) of a row."""
    return int(row["problems_per_batch"]), int(row["rollouts_per_problem"])


def lines_of(fit: Fit) -> dict[tuple[int, int], Line]:
    """The fitted curve of every configuration, from its own first evaluation on."""
    found = {}
    for row in as_logged(fit.document)["curves"]:
        at, first = row["at"], data_span(fit, pair_of(row))[0]
        ends = np.array([one["interval"] for one in at], dtype=np.float64)
        line = Line(
            np.array([one["x"] for one in at], dtype=np.float64),
            np.array([one["score"] for one in at], dtype=np.float64),
            ends[:, 0],
            ends[:, 1],
            np.array([one["extrapolated"] for one in at], dtype=bool),
        )
        found[pair_of(row)] = line.between(first, line.x[-1])
    return found


def curve_points(document: Document, curve: Any) -> tuple[FloatArray, FloatArray]:
    """(x, score) of a run in the unit of the fit, without step 0."""
    x = np.asarray(curve.position(str(document.get("unit") or "rollouts")), dtype=np.float64)
    return x[x > 0], logged_scores(curve)[x > 0]


def data_span(fit: Fit, pair: tuple[int, int]) -> tuple[float, float]:
    """Budgets of the first and the last evaluation of a configuration."""
    mine = [
        curve_points(fit.document, c)[0]
        for c in fit.curves
        if (c.problems_per_batch, c.rollouts_per_problem) == pair
    ]
    x = np.concatenate([np.zeros(0), *mine])
    return (float(x.min()), float(x.max())) if x.size else (0.0, math.inf)


def tested_n(document: Document) -> list[int]:
    """The values of n, ascending."""
    return sorted({int(row["rollouts_per_problem"]) for row in document.get("curves") or []})


def finite_or_nan(items: Any) -> FloatArray:
    """Numbers as an array, NaN for None."""
    return np.array([math.nan if v is None else v for v in items], dtype=np.float64)


def ends_of(rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of the rows' intervals, NaN where open."""
    bounds = [row.get("interval") or (None, None) for row in rows]
    return finite_or_nan(b[0] for b in bounds), finite_or_nan(b[1] for b in bounds)


def rollouts_per_step(document: Document) -> float:
    """Rollouts per unit of the law's variable: a fixed batch has its law in update steps."""
    steps = (document.get("law") or {}).get("variable") == "steps"
    return float((document.get("setting") or {}).get("value") or 1) if steps else 1.0


def law_values(row: Row | None, x: ArrayLike) -> FloatArray:
    """A law as it stands in a document (`law`, `paper.law`): n at x of its own variable."""
    at = np.asarray(x, dtype=np.float64)
    if not row or not row.get("form"):
        return np.full(at.shape, math.nan)
    names = ("form", "variable", "L", "k", "x0", "b")
    return Law(**{name: row[name] for name in names}).predict(at)


def paper_laws(document: Document) -> list[tuple[str, Row]]:
    """The published pipeline's laws: with its own bins, and with half and twice their width."""
    paper = document.get("paper") or {}
    rows = [paper, *(paper.get("by_bin_width") or [])]
    return [(f"bins of {row['bin_width']:g}", row["law"]) for row in rows if row.get("law")]
