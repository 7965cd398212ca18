"""The small chart of the first screen: the curves by n with the choice marked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.answers.logged import as_logged
from isocompute.domain.text import compact
from isocompute.report import words
from isocompute.report.reading import Line, lines_of, styles_of
from isocompute.report.style import SeriesStyle
from isocompute.report.words import Document

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit

Pair = tuple[int, int]

# Inside a box of 360 by 184: the plot, with numbers at its left and below, names at its right.
LEFT, RIGHT, TOP, BOTTOM = 40.0, 298.0, 26.0, 160.0
_APART = 12.5  # between two names
_SHOWS = 0.02  # of its width: runs of one sweep end at whole batches
_NAMES = 11  # that the height of the box holds


def picture(fit: Fit, plan: Document | None) -> dict[str, Any] | None:
    """Lines, names of n at their ends, numbers of both axes, and the mark of the choice."""
    lines, styles = lines_of(fit), styles_of(fit)
    if not lines:
        return None
    last = words.last_row(as_logged(fit.document))
    pair = (
        None if last is None else (last["problems_per_batch"], last["tested_rollouts_per_problem"])
    )
    at, height = (None, None) if last is None else (last["x"], last["score"])
    if plan is not None:
        pair = (plan.get("problems_per_batch"), plan.get("rollouts_per_problem"))
        at = words.planned_at(fit.document, plan)
        height = plan.get("predicted_score")
        lines = _as_far(lines, words.chances_of(fit.document, plan))
    # What is known is drawn in full, what is predicted as far as the last data or the ring, dotted.
    known = {one: line.known() for one, line in lines.items()}
    right = math.log10(max(at or 0.0, *(line.x[-1] for line in known.values())))
    lines = {one: line.between(line.x[0], 10**right) for one, line in lines.items()}
    left = math.log10(min(line.x[0] for line in lines.values()))
    y = np.concatenate([line.score for line in lines.values()])
    top, bottom = max(float(y.max()), height or -math.inf), float(y.min())
    across, up = max(right - left, 1e-9), max(top - bottom, 1e-9)

    def place(x: float, value: float) -> tuple[float, float]:
        return (
            round(float(LEFT + (RIGHT - LEFT) * (math.log10(x) - left) / across), 1),
            round(float(BOTTOM - (BOTTOM - TOP) * (value - bottom) / up), 1),
        )

    def points(x: Any, scores: Any) -> str:
        each = (place(a, float(b)) for a, b in zip(x, scores, strict=True))
        return " ".join("{},{}".format(*one) for one in each)

    score = words.scores_of(fit.document)
    choice = None if not at or height is None else place(at, float(height))
    beyond = {one: line.between(known[one].x[-1], line.x[-1]) for one, line in lines.items()
              if right - math.log10(known[one].x[-1]) > _SHOWS * across}  # fmt: skip
    ring = "" if not choice else f" Ring: {'the best' if plan is None else 'this plan'}."
    return {
        "says": "Score by n, the rollouts per problem."
        + ring + (" Dotted: predicted." if beyond else ""),
        "lines": [
            {
                "points": points(known[one].x, known[one].score),
                "ahead": points(beyond[one].x, beyond[one].score) if one in beyond else "",
                "light": styles[one].light,
                "dark": styles[one].dark,
                "chosen": one == pair,
            }
            for one in lines
        ],
        "names": _names(lines, styles, pair, lambda value: place(10**left, value)[1]),
        "scores": [(place(10**left, v)[1], score(v)) for v in (top, bottom)],
        "budgets": [compact(float(f"{10**v:.2g}")) for v in (left, right)],
        "unit": f"{words.budget_unit(fit.document)} (log scale)",
        "choice": choice,
    }  # fmt: skip


def _as_far(lines: Mapping[Pair, Line], found: Mapping[str, Any]) -> dict[Pair, Line]:
    """Lines that go on to the budget of a plan, by its `chances`."""
    rows = dict(zip(map(tuple, found.get("configurations") or ()), found.get("score") or (),
                    strict=True))  # fmt: skip
    out = {}
    for one, line in lines.items():
        x, score = (np.asarray(v, dtype=np.float64) for v in (found.get("x"), rows.get(one)))
        more = x > line.x[-1] if one in rows else np.zeros(x.shape, dtype=bool)
        if not more.any():
            out[one] = line
            continue
        parts = zip(line, (x, score, score, score, np.ones(x.shape, dtype=bool)), strict=True)
        out[one] = Line(*(np.concatenate([mine, of[more]]) for mine, of in parts))
    return out


def _names(
    lines: Mapping[Pair, Line], styles: Mapping[Pair, SeriesStyle], chosen: Pair | None, place: Any
) -> list[dict[str, Any]]:
    """One name per n beside the ends of its lines, the upper first, none over another."""
    ends: dict[int, list[float]] = {}
    for (_, n), line in lines.items():
        ends.setdefault(n, []).append(float(place(line.score[-1])))
    every = sorted(ends, reverse=True)
    step = math.ceil(len(every) / _NAMES)
    own = None if chosen is None else chosen[1]
    kept = sorted(
        (n for i, n in enumerate(every) if i % step == 0 or n == own),
        key=lambda n: (np.mean(ends[n]), -n),
    )
    y = [float(np.mean(ends[n])) for n in kept]
    for i in range(1, len(y)):
        y[i] = max(y[i], y[i - 1] + _APART)
    for i in range(len(y)):  # back into the box
        y[-1 - i] = min(y[-1 - i], BOTTOM + 4 - i * _APART)
    style = {n: one for (_, n), one in styles.items()}
    return [
        {"n": n, "y": round(at, 1), "light": style[n].light, "dark": style[n].dark,
         "chosen": n == own}
        for n, at in zip(kept, y, strict=True)
    ]  # fmt: skip
