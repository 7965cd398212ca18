"""What each configuration is expected to score at a budget, by (B_p, n), over the draws.

What leads in one sweep leads in part by luck: its own score overstates it ("winner's curse").

Beyond the budgets compared slopes are shared (`curves.beyond`): curves that end before they bend
borrow from those that do not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.fits import CurveFits
from isocompute.intervals import draw_interval

FloatArray = NDArray[np.float64]
ByConfiguration = dict[tuple[int, int], float]

_NEVER_DIFFERS = 1e-9  # standard deviation of draws that are all the same


def expected_scores(fits: CurveFits, x: float) -> ByConfiguration:
    """Mean score of every configuration."""
    return _named(fits, _scores_DJ(fits, x).mean(axis=0))


def expected_regrets(fits: CurveFits, x: float) -> ByConfiguration:
    """Mean score lost against the best of each draw; least where `expected_scores` is largest."""
    scores_DJ = _scores_DJ(fits, x)
    return _named(fits, (scores_DJ.max(axis=1, keepdims=True) - scores_DJ).mean(axis=0))


def score_with_interval(
    fits: CurveFits,
    which: tuple[int, int],
    x: float,
    level: float,
    *,
    mean: bool,
    chosen_from: Collection[tuple[int, int]] = (),
) -> tuple[float, float, float] | None:
    """Score of one configuration at x with its interval, less what luck adds to a choice.

    Args:
        fits: curves.
        which: (B_p, n); the result is None where it has no curve.
        x: budget.
        level: of the interval.
        mean: the score is the mean of the draws instead of the fitted curve's.
        chosen_from: (B_p, n) of those among which it was chosen for its score; none for one that
            was named beforehand.
    """
    at, every = np.log10([x]), _keys(fits)
    if which not in every:
        return None
    j = every.index(which)
    value = float(fits.fit.row(j).value(at)[0, 0])
    if not fits.draw_J:
        return value, value, value
    draw_D = fits.draw_J[j].value(at)[:, 0]
    lo, hi = draw_interval(draw_D, level)
    value = float(draw_D.mean()) if mean else value
    low, high = min(float(lo), value), max(float(hi), value)
    among = [i for i, key in enumerate(every) if key in chosen_from]
    luck = _luck(_scores_DJ(fits, x), j, among) if among else 0.0
    return max(value - luck, 0.0), max(low - luck, 0.0), max(high - luck, 0.0)


def _luck(score_DJ: FloatArray, j: int, among: Sequence[int]) -> float:
    """By how much a choice among some configurations overstates its score.

    The bootstrap's estimate of a bias: were the means of the draws the truth, each draw would be a
    sweep that names the score of its best (Efron and Tibshirani, An Introduction to the Bootstrap
    (1993), 10). It is taken in standard deviations, since a rare winner that is hardly known wins
    by far more than a choice that is well known ever could. A choice that lies below the best
    mean had so much less of it.

    Args:
        score_DJ: of every draw.
        j: the choice.
        among: what it was chosen from.
    """
    score_DI = score_DJ[:, among]
    best_D, mean_I = score_DI.argmax(axis=1), score_DI.mean(axis=0)
    z_D = (score_DI.max(axis=1) - mean_I[best_D]) / (score_DI.std(axis=0)[best_D] + _NEVER_DIFFERS)
    own_D = score_DJ[:, j]
    behind = max(0.0, float(mean_I.max() - own_D.mean()))
    return max(0.0, float(own_D.std() * z_D.mean()) - behind)


def shares_ahead(fits: CurveFits, x: float) -> ByConfiguration:
    """Share of the draws in which each scores no less than the one of the largest mean."""
    scores_DJ = _scores_DJ(fits, x)
    best = int(scores_DJ.mean(axis=0).argmax())
    return _named(fits, (scores_DJ >= scores_DJ[:, [best]]).mean(axis=0))


def _scores_DJ(fits: CurveFits, x: float) -> FloatArray:
    return fits.draw_value(np.log10([x]))[:, :, 0]


def _named(fits: CurveFits, value_J: FloatArray) -> ByConfiguration:
    return dict(zip(_keys(fits), value_J.tolist(), strict=True))


def _keys(fits: CurveFits) -> list[tuple[int, int]]:
    return [(one.problems_per_batch, one.rollouts_per_problem) for one in fits.binned]
