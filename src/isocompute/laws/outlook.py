"""What each configuration is expected to score at a budget, by (B_p, n), over the draws.

Beyond the budgets compared slopes are shared (`curves.beyond`): curves that end before they bend
borrow from those that do not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.fits import CurveFits

FloatArray = NDArray[np.float64]
ByConfiguration = dict[tuple[int, int], float]


def expected_scores(fits: CurveFits, x: float) -> ByConfiguration:
    """Mean score of every configuration."""
    return _named(fits, _scores_DJ(fits, x).mean(axis=0))


def expected_regrets(fits: CurveFits, x: float) -> ByConfiguration:
    """Mean score lost against the best of each draw; least where `expected_scores` is largest."""
    scores_DJ = _scores_DJ(fits, x)
    return _named(fits, (scores_DJ.max(axis=1, keepdims=True) - scores_DJ).mean(axis=0))


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
