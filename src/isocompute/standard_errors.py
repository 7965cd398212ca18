"""Standard errors of one sigmoid fit; intervals of whole sweeps come from draws, not from here.

Shape legend: X positions.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    known: Sequence[str] = (),
) -> dict[str, float]:
    """Asymptotic standard errors of one fit's parameters, logistic or Gompertz.

    The Gauss-Newton covariance s^2 (J'WJ)^-1 with s^2 = loss / (points - parameters).

    Args:
        x_X, y_X, weight_X: the data of the fit, weight 0 leaves a point out.
        fit: one row.
        known: which of "floor", "ceiling", "slope", "midpoint" were held (by an anchor, or by a
            bound that they lie on), so that they are no parameters.

    Returns:
        Of those that are not known; infinity where they are not identified.
    """
    (floor,), (ceiling,), (slope,), (midpoint,) = (
        fit.floor, fit.ceiling, fit.slope, fit.midpoint
    )  # fmt: skip
    z_X = np.clip(slope * (x_X - midpoint), -500, 500)
    if fit.gompertz[0]:
        s_X = np.exp(-np.exp(-z_X))
        bend_X = (ceiling - floor) * s_X * np.exp(-z_X)
    else:
        s_X = 1 / (1 + np.exp(-z_X))
        bend_X = (ceiling - floor) * s_X * (1 - s_X)
    columns = {"floor": 1 - s_X, "ceiling": s_X, "slope": bend_X * (x_X - midpoint),
               "midpoint": -bend_X * slope}  # fmt: skip
    for name in known:
        del columns[name]
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
