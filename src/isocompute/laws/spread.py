"""How much the score moves with B_p at a fixed n, and with n at a fixed B_p.

Shape legend: J configurations, D draws. Source: arXiv 2603.12151, section 4.3 (the joint setting);
intervals are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.intervals import draw_interval
from isocompute.laws.estimate import confidence_set

if TYPE_CHECKING:
    from isocompute.curves.fits import CurveFits
    from isocompute.laws.sweep import Fit

IntArray = NDArray[np.int64]


def spread_tables(fits: CurveFits, level: float) -> dict[str, list[dict[str, Any]]]:
    """Spread of the best score so far along each axis, the other one fixed.

    Returns:
        {"problems_per_batch": rows, "rollouts_per_problem": rows}; a row holds the fixed value,
        "at" (the largest budget that all of its configurations reached), "scores" along the axis
        with intervals, "spread" (largest minus smallest) and its "interval". A spread is a
        maximum minus a minimum, so noise alone makes it positive: "noise" is what it would be
        on average if all were equal, drawn from the same deviations.
    """
    axes = {
        "problems_per_batch": (fits.problems_per_batch_J, fits.rollouts_per_problem_J),
        "rollouts_per_problem": (fits.rollouts_per_problem_J, fits.problems_per_batch_J),
    }
    other = {
        "problems_per_batch": "rollouts_per_problem",
        "rollouts_per_problem": "problems_per_batch",
    }
    return {
        name: [
            _row(fits, name, varied_J, {other[name]: int(value)}, *compared, level)
            for value in np.unique(fixed_J)
            if len((compared := _compared(fits, fixed_J == value))[0]) > 1
        ]
        for name, (varied_J, fixed_J) in axes.items()
    }


def _compared(fits: CurveFits, chosen_J: NDArray[np.bool_]) -> tuple[IntArray, float]:
    """Which of them can be ranked, and at what log10 budget: the largest that all reached.

    A configuration that had not made its 20th step there takes part in nothing.
    """
    rows = np.flatnonzero(chosen_J & np.isfinite(fits.end_J))
    x = float(fits.end_J[rows].min(initial=np.inf))
    return rows[fits.start_J[rows] <= x + 1e-9], x


def _row(
    fits: CurveFits,
    name: str,
    varied_J: IntArray,
    fixed: dict[str, int],
    rows: IntArray,
    x: float,
    level: float,
) -> dict[str, Any]:
    score = fits.value(np.array([x]))[rows, 0]
    draws = fits.draw_value(np.array([x]))[:, rows, 0]
    low, high = draw_interval(draws, level)
    spread_D = np.ptp(draws, axis=1)
    noise = float(np.ptp(draws - draws.mean(axis=0), axis=1).mean())
    return {
        **fixed,
        "at": float(10**x),
        "scores": [
            {name: int(varied_J[j]), "score": float(s), "interval": [float(a), float(b)]}
            for j, s, a, b in zip(rows, score, low, high, strict=True)
        ],
        "spread": float(np.ptp(score)),
        "interval": [float(v) for v in draw_interval(spread_D, level)],
        "noise": noise,
    }


def best_n_rows(fits: Sequence[Fit]) -> list[dict[str, Any]]:
    """The best n at the largest budget, by metric and B_p, with what cannot be told from it.

    Returns:
        Rows {"metric", "problems_per_batch", "at", "rollouts_per_problem", "score",
        "probability", "confidence_set"}, in order of metric and B_p; B_p with one n are left out.
    """
    out = []
    for fit in fits:
        of = fit.curve_fits
        for b_p in np.unique(of.problems_per_batch_J):
            rows, at = _compared(of, of.problems_per_batch_J == b_p)
            if len(rows) < 2:
                continue
            x = np.array([at])
            n_J = of.rollouts_per_problem_J[rows]
            winner = of.draw_value(x)[:, rows, 0].argmax(axis=1)
            share_J = np.bincount(winner, minlength=len(rows)) / len(winner)
            score = of.value(x)[rows, 0]
            best = int(score.argmax())
            out.append(
                {
                    "metric": fit.metric,
                    "problems_per_batch": int(b_p),
                    "at": float(10**at),
                    "rollouts_per_problem": int(n_J[best]),
                    "score": float(score[best]),
                    "probability": float(share_J[best]),
                    "confidence_set": confidence_set(share_J, n_J, fit.level),
                }
            )
    return out
