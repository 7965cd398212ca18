"""How far a learning curve is from smooth in C.

Shape legend: K checkpoints.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# A run is too rough to fit where less than this share of its variance is a rise or noise, and
# that by more standard errors than this.
LEAST_SMOOTH = 0.85
BEYOND_NOISE = 3.0
_ENOUGH = 512  # checkpoints show a shape; more are averaged


def smoothness(score_K: ArrayLike) -> float | None:
    """Share of a learning curve's variance that a rise explains; 1 for a curve that never falls.

    1 - SS(curve - best non-decreasing fit) / SS(curve - mean). Checkpoints must be spaced evenly
    in log rollouts, as the common evaluation grid is: then this is smoothness in C. Noise around
    a plateau lowers it little where the rise was large; a peak and a fall lower it much.

    Args:
        score_K: scores in the order of rollouts.

    Returns:
        None where fewer than 4 finite scores, or no variation, leave nothing to explain.

    >>> smoothness([0.1, 0.2, 0.3, 0.4]), smoothness([0.4, 0.3, 0.2, 0.1])
    (1.0, 0.0)
    """
    score: NDArray[np.float64] = np.asarray(score_K, dtype=np.float64)
    score = score[np.isfinite(score)]
    spread = float(np.sum((score - score.mean()) ** 2)) if score.size else 0.0
    if score.size < 4 or spread <= 1e-24 * score.size:
        return None
    fitted = _rising(score)
    return round(1.0 - float(np.sum((score - fitted) ** 2)) / spread, 12)


class Roughness(NamedTuple):
    """What a rise and evaluation noise leave of a learning curve.

    Attributes:
        smoothness: share of its variance that the best non-decreasing fit or noise explains, 0..1.
        z: how far the residuals of that fit exceed what noise gives, in standard errors of a
            chi-square of as many degrees of freedom as checkpoints. The fit takes some of the
            noise, so a smooth curve has z below 0.
    """

    smoothness: float
    z: float

    @property
    def too_rough(self) -> bool:
        """Too unhealthy to fit: beyond noise, and by a share that no best checkpoint hides."""
        return self.smoothness < LEAST_SMOOTH and self.z > BEYOND_NOISE


def roughness(score_K: ArrayLike, noise: float, *, fell: bool = False) -> Roughness | None:
    """How far a curve is from smooth in C, with evaluation noise taken out.

    Args:
        score_K: scores in the order of rollouts, spaced evenly in log rollouts.
        noise: phi, the variance of one evaluation of mean p being phi p (1 - p); 1/m for m
            independent 0/1 outcomes.
        fell: whether a fall from its best score on is no roughness, as the rise before it is none.

    Returns:
        None for fewer than 4 finite scores.

    >>> roughness([0.2, 0.3, 0.4, 0.5, 0.6], 1e-4).smoothness
    1.0
    >>> roughness([0.2, 0.6, 0.1, 0.7, 0.0, 0.6], 1e-4).too_rough
    True
    >>> [roughness([0.2, 0.4, 0.6, 0.4, 0.2], 1e-4, fell=f).too_rough for f in (False, True)]
    [True, False]
    """
    score: NDArray[np.float64] = np.asarray(score_K, dtype=np.float64)
    score = score[np.isfinite(score)]
    if score.size < 4:
        return None
    block = score.size // _ENOUGH
    if block > 1:  # means of neighbours have the same shape and less noise
        score = score[: score.size // block * block].reshape(-1, block).mean(axis=1)
        noise /= block
    top = int(score.argmax()) + 1 if fell else score.size
    fitted = np.concatenate([_rising(score[:top]), -_rising(-score[top:])])
    p = np.clip(fitted, 0.002, 0.998)
    variance = np.maximum(noise * p * (1 - p), 1e-12)
    residual = (score - fitted) ** 2
    spread = float(np.sum((score - score.mean()) ** 2))
    left = max(0.0, float(np.sum(residual - variance)))
    z = float((np.sum(residual / variance) - score.size) / np.sqrt(2 * score.size))
    return Roughness(1.0 - min(left / spread, 1.0) if spread > 0 else 1.0, z)


def _rising(score_K: NDArray[np.float64]) -> NDArray[np.float64]:
    """Best non-decreasing fit, by pooling adjacent violators.

    scipy has it in `scipy.optimize`, which takes longer to load than a sweep to fit.
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in score_K.tolist():
        mean, size = value, 1
        while means and means[-1] > mean:
            before, weight = means.pop(), sizes.pop()
            mean = (before * weight + mean * size) / (weight + size)
            size += weight
        means.append(mean)
        sizes.append(size)
    return np.repeat(np.array(means, dtype=np.float64), np.array(sizes, dtype=np.int64))
