"""Profile intervals of ceilings: the loss at each ceiling, with all else fitted anew.

Shape legend: C ceilings, Q starts (slope, midpoint), N neighbours of a point, X bins, D draws.

The loss of binned means counts bins as independent, and runs of other seeds differ for a stretch;
so how much loss a ceiling may cost is not read off a chi-square but off the draws: as much as the
ceilings of `level` of them cost. What the profile adds is the shape, which draws of a ridge miss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.fits import CurveFits
from isocompute.projection import unit_curve
from isocompute.sigmoid import Bounds, candidate_grid

FloatArray = NDArray[np.float64]

_CEILINGS = 32  # at which the loss is profiled; between them its root is interpolated
_MARGIN = 0.25  # of the range of the draws, beyond it
_ROUNDS = 60  # of the search for slope and midpoint; a step is halved where no neighbour is better
_SMALLEST = 1e-5  # steps, in log slope and decades, at which it ends
_FLAT = 1e-200
_OFFSET_N = np.array([(a, b) for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0)])


def ceiling_profile(
    fits: CurveFits, j: int, level: float
) -> tuple[float | None, float | None] | None:
    """Profile interval of one configuration's ceiling; None without draws.

    An end is None where the loss does not exclude any ceiling on that side, and above where
    `CurveFits.ceiling_interval` is open too (the rise was not seen to its half).
    """
    if not fits.draw_J:
        return None
    best, drawn_D = float(fits.fit.ceiling[j]), fits.draw_J[j].ceiling
    margin = _MARGIN * float(np.ptp(drawn_D)) + 1e-6
    limits = fits.means.bounds
    low, high = float(drawn_D.min()) - margin, float(drawn_D.max()) + margin
    inside = np.linspace(max(low, limits.low), min(high, limits.high), _CEILINGS)
    ceiling_C = np.unique([*inside, best, limits.high])
    of = fits.means
    anchor = float(of.anchor[0][j]), float(of.anchor[1][j])
    loss_C = profile_loss(of.x_JX[j], of.mean_JX[j], of.weight_JX[j], ceiling_C, of.bounds, anchor)
    root_C = np.sqrt(np.maximum(loss_C - loss_C.min(), 0.0))
    allowed = float(np.quantile(np.interp(drawn_D, ceiling_C, root_C), level, method="weibull"))
    at = int(root_C.argmin())
    ends = (
        _crossing(ceiling_C[at::-1], root_C[at::-1], allowed),
        _crossing(ceiling_C[at:], root_C[at:], allowed),
    )
    return ends[0], None if fits.ceiling_interval(j, level)[1] is None else ends[1]


def _crossing(ceiling_C: FloatArray, root_C: FloatArray, allowed: float) -> float | None:
    """Where the loss first exceeds what is allowed, going away from the best ceiling."""
    beyond = np.flatnonzero(root_C > allowed)
    if not len(beyond):
        return None
    k = int(beyond[0])
    if k == 0:
        return float(ceiling_C[0])
    share = (allowed - root_C[k - 1]) / (root_C[k] - root_C[k - 1])
    return float(ceiling_C[k - 1] + share * (ceiling_C[k] - ceiling_C[k - 1]))


def profile_loss(
    x_X: FloatArray,
    y_X: FloatArray,
    weight_X: FloatArray,
    ceiling_C: FloatArray,
    bounds: Bounds,
    anchor: tuple[float, float] = (0.0, 0.0),
) -> FloatArray:
    """Least weighted sum of squares at each ceiling, shape (C,).

    Args:
        x_X, y_X, weight_X: positions, values (ignored where the weight is 0) and weights >= 0.
        ceiling_C: ceilings.
        bounds: where the other parameters may lie, and the form.
        anchor: value and weight of one more point at x = -infinity.
    """
    y_X = np.where(weight_X > 0, y_X, 0.0)
    grid = candidate_grid(x_X, bounds)
    left, right = x_X.min() - bounds.midpoint_margin, x_X.max() + bounds.midpoint_margin
    lowest, steepest = np.log(bounds.slope[0]), np.log(bounds.slope[1])

    def loss_at(short_X: FloatArray) -> FloatArray:
        """Of curves (C, N, X), given by how far they are from their ceiling (1 - s)."""
        gap_CX = ceiling_C[:, None] - y_X
        base = ceiling_C[:, None] - anchor[0]
        square = (short_X**2) @ weight_X + anchor[1]
        along = np.einsum("cnx,cx->cn", short_X, weight_X * gap_CX) + anchor[1] * base
        shape = np.maximum(square, _FLAT)  # a steep curve far before the data has none
        drop = np.clip(along / shape, 0.0, np.maximum(ceiling_C - bounds.low, 0.0)[:, None])
        whole = (weight_X * gap_CX**2).sum(axis=1)[:, None] + anchor[1] * base**2
        out: FloatArray = whole - drop * (2 * along - drop * square)
        return out

    start_C = loss_at(np.broadcast_to(1 - grid.s_QX, (len(ceiling_C), *grid.s_QX.shape)))
    first = start_C.argmin(axis=1)
    point = np.stack([np.log(grid.slope_Q[first]), grid.midpoint_Q[first]], axis=1)
    loss: FloatArray = start_C.min(axis=1)
    step = np.tile([0.15, 0.05], (len(ceiling_C), 1))
    rows = np.arange(len(ceiling_C))
    for _ in range(_ROUNDS):
        near = point[:, None, :] + step[:, None, :] * _OFFSET_N
        near[..., 0] = np.clip(near[..., 0], lowest, steepest)
        near[..., 1] = np.clip(near[..., 1], left, right)
        z = np.exp(near[..., :1]) * (x_X - near[..., 1:])
        found = loss_at(1 - unit_curve(z, bounds.gompertz))
        chosen = found.argmin(axis=1)
        better = found[rows, chosen] < loss * (1 - 1e-12)
        point[better] = near[rows, chosen][better]
        loss = np.minimum(loss, found[rows, chosen])
        step[~better] /= 2
        if step.max() < _SMALLEST:
            break
    return loss
