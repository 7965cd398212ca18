"""How far a learning curve is from smooth in C.

Shape legend: K checkpoints.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
    from scipy.optimize import isotonic_regression

    score: NDArray[np.float64] = np.asarray(score_K, dtype=np.float64)
    score = score[np.isfinite(score)]
    spread = float(np.sum((score - score.mean()) ** 2)) if score.size else 0.0
    if score.size < 4 or spread <= 1e-24 * score.size:
        return None
    fitted = isotonic_regression(score).x
    return round(1.0 - float(np.sum((score - fitted) ** 2)) / spread, 12)
