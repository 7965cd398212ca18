"""Intervals of success probabilities, and of whatever bootstrap draws were made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.errors import InputError

FloatArray = NDArray[np.float64]


def binomial_interval(
    successes: ArrayLike,
    samples: ArrayLike,
    *,
    level: float = 0.95,
) -> tuple[FloatArray, FloatArray]:
    """Jeffreys' interval of a success probability from counts, element by element.

    Equal tails of Beta(s + 1/2, n - s + 1/2), 0 and 1 at the ends where nothing or everything
    succeeded; being Bayesian it stays right when a second stage depends on the first.

    Args:
        successes, samples: counts; 0 samples give (0, 1).
        level: of the interval, between 0 and 1.

    Returns:
        (low, high), each of the common shape.

    Raises:
        InputError: level outside 0..1, or counts outside 0..samples.

    Source: Brown, Cai, DasGupta, Statistical Science 16 (2001) 101, section 4.1.
    """
    from scipy import stats

    s, n = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    )
    if not 0 < level < 1:
        raise InputError(f"`0 < level < 1` must hold, but got level={level!r}; take 0.95.")
    if np.any(s < 0) or np.any(s > n) or not np.all(np.isfinite(n)):
        raise InputError(
            "`0 <= successes <= samples` must hold, but got successes in "
            f"{s.min():g}..{s.max():g} and samples in {n.min():g}..{n.max():g}; check the counts."
        )
    tail = (1 - level) / 2
    low = np.where(s == 0, 0.0, stats.beta.ppf(tail, s + 0.5, n - s + 0.5))
    high = np.where(s == n, 1.0, stats.beta.ppf(1 - tail, s + 0.5, n - s + 0.5))
    return low, high


def draw_interval(draw: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Equal-tailed interval of draws along the first axis.

    The p-quantile is the (D + 1) p-th smallest: a new draw of the same kind then falls inside
    with probability `level` exactly, where numpy's default loses a point with 200 draws.
    """
    tail = (1 - level) / 2
    low, high = np.quantile(draw, [tail, 1 - tail], axis=0, method="weibull")
    return low, high


@dataclass(frozen=True)
class Noise:
    """Variance of one score, and the degrees of freedom that it was estimated with."""

    variance: float
    freedom: int

    @classmethod
    def of_seeds(cls, scores_of: Sequence[Sequence[float]]) -> Noise:
        """Of a score, pooled over the seeds of several rates."""
        freedom = sum(len(one) - 1 for one in scores_of)
        total = sum(float(np.var(one)) * len(one) for one in scores_of)
        return cls(total / max(freedom, 1), freedom)

    @classmethod
    def of_problems(cls, value_P: NDArray[np.float64]) -> Noise:
        """Of a mean over problems."""
        freedom = len(value_P) - 1
        return cls(float(np.var(value_P)) / max(freedom, 1), freedom)

    def half_width(self, factor: float, level: float) -> float | None:
        """Of the interval of a quantity with `factor` times the variance; None if unknown."""
        from scipy import stats

        if self.freedom < 1:
            return None
        quantile = float(stats.t.ppf((1 + level) / 2, self.freedom))
        return quantile * math.sqrt(self.variance * factor)
