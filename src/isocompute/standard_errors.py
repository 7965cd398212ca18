"""Standard errors of one sigmoid fit; intervals of whole sweeps come from draws, not from here.

Shape legend: X positions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute.sigmoid import SigmoidFits

FloatArray = NDArray[np.float64]


def standard_errors(
    x_X: FloatArray,
    y_X: FloatArray,
    weight_X: FloatArray,
    fit: SigmoidFits,
    *,
    floor_known: bool = False,
) -> dict[str, float]:
    """Asymptotic standard errors of one fit's parameters, conditional on what lies on no bound.

    The Gauss-Newton covariance s^2 (J'WJ)^-1 with s^2 = loss / (points - parameters).

    Args:
        x_X, y_X, weight_X: the data of the fit, weight 0 leaves a point out.
        fit: one row.
        floor_known: the floor was held, so it is no parameter.

    Returns:
        Of "floor" (unless known), "ceiling", "slope", "midpoint"; infinity where they are not
        identified.
    """
    (floor,), (ceiling,), (slope,), (midpoint,) = (
        fit.floor, fit.ceiling, fit.slope, fit.midpoint
    )  # fmt: skip
    s_X = 1 / (1 + np.exp(-np.clip(slope * (x_X - midpoint), -500, 500)))
    bend_X = (ceiling - floor) * s_X * (1 - s_X)
    columns = {"floor": 1 - s_X, "ceiling": s_X, "slope": bend_X * (x_X - midpoint),
               "midpoint": -bend_X * slope}  # fmt: skip
    if floor_known:
        del columns["floor"]
    jacobian = np.stack(list(columns.values()), axis=1) * np.sqrt(weight_X)[:, None]
    freedom = int((weight_X > 0).sum()) - len(columns)
    residual_X = y_X - floor - (ceiling - floor) * s_X
    # Singular values, not the normal equations: the columns differ by orders of magnitude.
    _, singular, right = np.linalg.svd(jacobian, full_matrices=False)
    if freedom < 1 or singular[-1] <= 1e-12 * singular[0]:
        return dict.fromkeys(columns, float("inf"))
    variance = float((weight_X * residual_X**2).sum()) / freedom
    errors = np.sqrt(variance * ((right.T / singular) ** 2).sum(axis=1))
    return dict(zip(columns, errors.tolist(), strict=True))
