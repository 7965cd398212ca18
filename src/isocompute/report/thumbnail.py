"""The small chart of the first screen: the curves by n with the choice marked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.answers.logged import fit_as_logged
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
_NAMES = 11  # that the height of the box holds


def picture(fit: Fit, plan: Document | None) -> dict[str, Any] | None:
    """Lines, names of n at their ends, numbers of both axes, and the mark of the choice."""
    lines, styles = lines_of(fit), styles_of(fit)
    if not lines:
        return None
    last = words.last_row(fit_as_logged(fit.document))
    pair = (
        None if last is None else (last["problems_per_batch"], last["tested_rollouts_per_problem"])
    )
    at, height = (None, None) if last is None else (last["x"], last["score"])
    if plan is not None:
        pair = (plan.get("problems_per_batch"), plan.get("rollouts_per_problem"))
        at = words.planned_at(fit.document, plan)
        height = plan.get("predicted_score")
    # Each to the end of its own data; what lies beyond is drawn of the choice alone, dotted.
    beyond = None if pair is None else lines.get(pair)
    lines = {one: line.known() for one, line in lines.items()}
    x = np.log10(np.concatenate([line.x for line in lines.values()]))
    y = np.concatenate([line.score for line in lines.values()])
    left, right = float(x.min()), max(float(x.max()), math.log10(at) if at else -math.inf)
    top, bottom = max(float(y.max()), height or -math.inf), float(y.min())
    across, up = max(right - left, 1e-9), max(top - bottom, 1e-9)

    def place(log10_x: float, value: float) -> tuple[float, float]:
        return (
            round(float(LEFT + (RIGHT - LEFT) * (log10_x - left) / across), 1),
            round(float(BOTTOM - (BOTTOM - TOP) * (value - bottom) / up), 1),
        )

    choice = None if not at or height is None else place(math.log10(at), float(height))
    bold = None if pair is None else lines.get(pair)
    ahead = None
    if choice and pair and bold is not None and math.log10(at or 1.0) > math.log10(bold.x[-1]):
        assert beyond is not None
        more = (beyond.x > bold.x[-1]) & (beyond.x < (at or 0.0))
        way = [(bold.x[-1], bold.score[-1]), *zip(beyond.x[more], beyond.score[more], strict=True)]
        points = [*(place(math.log10(a), float(b)) for a, b in way), choice]
        ahead = {"points": _points(points), "light": styles[pair].light, "dark": styles[pair].dark}
    ring = "" if not choice else f" Ring: {'the best' if plan is None else 'this plan'}."
    return {
        "says": "Score by n, the rollouts per problem."
        + ring + ("" if ahead is None else " Dotted: predicted."),
        "lines": [
            {
                "points": _points(
                    [place(math.log10(a), b) for a, b in zip(line.x, line.score, strict=True)]
                ),
                "light": styles[one].light,
                "dark": styles[one].dark,
                "chosen": one == pair,
            }
            for one, line in lines.items()
        ],
        "names": _names(
            lines, styles, pair, lambda value: place(left, value)[1], choice if ahead else None
        ),
        "scores": [(place(left, v)[1], words.score(v)) for v in (top, bottom)],
        "budgets": [compact(float(f"{10**v:.2g}")) for v in (left, right)],
        "unit": f"{words.budget_unit(fit.document)} (log scale)",
        "choice": choice,
        "ahead": ahead,  # from where the bold line ends to the choice: beyond the data
    }  # fmt: skip


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join("{},{}".format(*one) for one in places)


def _names(
    lines: Mapping[Pair, Line], styles: Mapping[Pair, SeriesStyle], chosen: Pair | None, place: Any,
    ring: tuple[float, float] | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One name per n beside the ends of its lines, the upper first, none over another.

    The name of the choice stands beside its ring, where its line is drawn that far.
    """
    ends: dict[int, list[float]] = {}
    for (_, n), line in lines.items():
        ends.setdefault(n, []).append(float(place(line.score[-1])))
    if ring is not None and chosen is not None:
        ends[chosen[1]] = [ring[1]]
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
