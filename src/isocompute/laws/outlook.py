"""What each configuration is expected to score at a budget, by (B_p, n), over the draws.

Beyond the budgets compared slopes are shared (`curves.beyond`): curves that end before they bend
borrow from those that do not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.fits import CurveFits
from isocompute.intervals import draw_interval

FloatArray = NDArray[np.float64]
ByConfiguration = dict[tuple[int, int], float]


def expected_scores(fits: CurveFits, x: float) -> ByConfiguration:
    """Mean score of every configuration."""
    return _named(fits, _scores_DJ(fits, x).mean(axis=0))


def expected_regrets(fits: CurveFits, x: float) -> ByConfiguration:
    """Mean score lost against the best of each draw; least where `expected_scores` is largest."""
    scores_DJ = _scores_DJ(fits, x)
    return _named(fits, (scores_DJ.max(axis=1, keepdims=True) - scores_DJ).mean(axis=0))


def score_with_interval(
    fits: CurveFits, j: int, x: float, level: float, *, mean: bool
) -> tuple[float, float, float]:
    """Score of one configuration at x, of its fitted curve or the `mean` of its draws, and ends."""
    at = np.log10([x])
    value = float(fits.fit.row(j).value(at)[0, 0])
    if not fits.draw_J:
        return value, value, value
    draw_D = fits.draw_J[j].value(at)[:, 0]
    lo, hi = draw_interval(draw_D, level)
    value = float(draw_D.mean()) if mean else value
    return value, min(float(lo), value), max(float(hi), value)


def shares_ahead(fits: CurveFits, x: float) -> ByConfiguration:
    """Share of the draws in which each scores no less than the one of the largest mean."""
    scores_DJ = _scores_DJ(fits, x)
    best = int(scores_DJ.mean(axis=0).argmax())
    return _named(fits, (scores_DJ >= scores_DJ[:, [best]]).mean(axis=0))


def _scores_DJ(fits: CurveFits, x: float) -> FloatArray:
    return fits.draw_value(np.log10([x]))[:, :, 0]


def _named(fits: CurveFits, value_J: FloatArray) -> ByConfiguration:
    pairs = zip(fits.problems_per_batch_J, fits.rollouts_per_problem_J, value_J, strict=True)
    return {(int(b), int(n)): float(value) for b, n, value in pairs}
