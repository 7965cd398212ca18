"""Fits, plan and study -> the plain data that the page draws.

Everything here is JSON: numbers, and texts that the page sets as text only. Nothing that can be
seen is dropped: values are rounded below a pixel, and a curve is thinned only where one column
of pixels holds more than its first, lowest, highest and last point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.answers.logged import as_logged, logged_scores
from isocompute.domain.text import plain, visible
from isocompute.report.style import SeriesStyle, series_styles
from isocompute.report.words import Document, planned_at, printed_of, redact, with_plan

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit
    from isocompute.report.study_data import StudyView

FloatArray = NDArray[np.float64]

_COLUMNS = 1500  # more columns of pixels than any figure of the page has


def thin(x: FloatArray, y: FloatArray, columns: int = _COLUMNS) -> tuple[FloatArray, FloatArray]:
    """Points that can be told apart when x spans `columns` pixels on a log axis.

    Per column the first, lowest, highest and last point stay. Curves with no more points than
    columns are returned unchanged.
    """
    if x.size <= columns:
        return x, y
    place = np.log10(np.maximum(x, 1.0))
    span = float(place.max() - place.min()) or 1.0
    column = np.minimum((place - place.min()) / span * columns, columns - 1).astype(int)
    keep: set[int] = set()
    edges = np.flatnonzero(np.diff(column)) + 1
    for block in np.split(np.arange(x.size), edges):
        keep |= {
            int(block[0]),
            int(block[-1]),
            int(block[np.argmin(y[block])]),
            int(block[np.argmax(y[block])]),
        }
    index = np.array(sorted(keep))
    return x[index], y[index]


def numbers(values: FloatArray | Sequence[float], digits: int = 5) -> list[float | int | None]:
    """JSON numbers with `digits` significant figures; None where not finite."""
    result: list[float | int | None] = []
    for value in np.asarray(values, dtype=np.float64).tolist():
        if not math.isfinite(value):
            result.append(None)
            continue
        short = float(f"{value:.{digits}g}")
        result.append(int(short) if short.is_integer() else short)
    return result


TEXT_LIMIT = 2_000  # characters: our own sentences are whole, foreign texts bounded


def configurations(
    fits: Sequence[tuple[str, Fit]], study: StudyView | None
) -> set[tuple[int, int]]:
    """Every (B_p, n) that any part of the report draws."""
    pairs = {
        (int(row["problems_per_batch"]), int(row["rollouts_per_problem"]))
        for _, fit in fits
        for row in fit.document.get("curves", [])
    }
    pairs |= {(c.problems_per_batch, c.rollouts_per_problem) for _, fit in fits for c in fit.curves}
    if study is not None:
        pairs |= {
            (int(r["problems_per_batch"]), int(r["rollouts_per_problem"])) for r in study.runs
        }
    return pairs


def varies_problems_per_batch(fits: Sequence[tuple[str, Fit]], study: StudyView | None) -> bool:
    """Whether one sweep has several B_p; two sweeps at one B_p each do not count."""
    sweeps = [configurations([pair], None) for pair in fits] + [configurations([], study)]
    return any(len({b_p for b_p, _ in pairs}) > 1 for pairs in sweeps)


def fit_payload(name: str, fit: Fit, plan: Document | None = None) -> dict[str, Any]:
    """One fit, ready to draw: document, with chances up to a plan's budget, and raw curves."""
    document = with_plan(as_logged(fit.document), plan and as_logged(plan))
    unit = str(document.get("unit") or "rollouts")
    runs, dropped, drawn = [], 0, 0
    for curve in fit.curves:
        x, y = np.asarray(curve.position(unit), dtype=np.float64), logged_scores(curve)
        positive = x > 0  # step 0 has no place on a log axis; the page's tables keep its score
        x_thin, y_thin = thin(x[positive], y[positive])
        dropped += int(positive.sum() - x_thin.size)
        drawn += int(x_thin.size)
        runs.append(
            {
                "bp": curve.problems_per_batch,
                "n": curve.rollouts_per_problem,
                "run": visible(curve.run),
                "seed": curve.seed,
                "x": numbers(x_thin),
                "y": numbers(y_thin, 4),
                "last": numbers(y[-1:], 4)[0] if y.size else None,
                "points": int(x.size),
                "missing": curve.n_missing,
            }
        )
    shown = {k: v for k, v in document.items() if k not in _TOLD}
    printed = printed_of(document)
    return {
        "name": visible(name),
        "document": plain(shown, TEXT_LIMIT),
        "runs": runs,
        "printed": None if printed is None else asdict(printed.law),
        "thinned": {"dropped": dropped, "drawn": drawn},
    }


def page_payload(
    fits: Sequence[tuple[str, Fit]], plan: Document | None, study: StudyView | None
) -> dict[str, Any]:
    """All data of the page."""
    several = varies_problems_per_batch(fits, study)
    styles = series_styles(configurations(fits, study), several=several)
    # Where no sweep varies B_p, one n is one series, whatever the B_p of its sweep.
    shown = {(s.problems_per_batch if several else 0, n): s for (_, n), s in styles.items()}
    return {
        "several": several,
        "series": [_series(style) for style in shown.values()],
        "fits": [fit_payload(*pair, None if i else plan) for i, pair in enumerate(fits)],
        "plan": None
        if plan is None
        else plain(
            {k: v for k in _PLAN_KEYS if (v := as_logged(plan).get(k)) is not None}
            | {"at": planned_at(fits[0][1].document, plan) if fits else None},
            TEXT_LIMIT,
        ),
        "study": None if study is None else plain(redact(study.to_dict()), TEXT_LIMIT),
    }


# Told in words and tables, and drawn nowhere.
_TOLD = ("provenance", "warnings", "notices", "spread", "train_test", "verdict")
_PLAN_KEYS = (
    "budget_rollouts",
    "problems_per_batch",
    "rollouts_per_problem",
    "rollouts_per_problem_interval",
    "steps",
    "predicted_score",
    "predicted_score_interval",
)


def _series(style: SeriesStyle) -> dict[str, Any]:
    return {
        "bp": style.problems_per_batch,
        "n": style.rollouts_per_problem,
        "label": style.label,
        "light": style.light,
        "dark": style.dark,
        "symbol": style.symbol,
        "dash": style.dash,
    }
