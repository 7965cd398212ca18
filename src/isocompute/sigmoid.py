"""Monotone sigmoids fitted in batches by variable projection.

One solver for learning curves (score against log10 rollouts) and for laws (log2 n against
log10 rollouts). Given slope and midpoint, floor and ceiling follow in closed form, which
leaves a two-dimensional search (conditioning about 11 against 3.5e11 for four free
parameters; source: arXiv 2603.22339). Every pair of a grid is a start, so no start can be
missed, and the best one is polished by Gauss-Newton on the projected problem.

Shape legend: D data sets (bootstrap draws or curves), X positions, Q candidate (slope,
midpoint) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_CHUNK = 2_000_000  # elements of one D x Q work array: about 16 MB each, 10 at a time
_POLISH_STEPS = 12


class SigmoidFits(NamedTuple):
    """Fitted curves, one per data set, each field of shape (D,).

    value(x) = floor + (ceiling - floor) / (1 + exp(-slope * (x - midpoint)))
    """

    floor: FloatArray
    ceiling: FloatArray
    slope: FloatArray
    midpoint: FloatArray
    loss: FloatArray
    on_bound: NDArray[np.bool_]

    def value(self, x_X: FloatArray) -> FloatArray:
        """Fitted values, shape (D, X)."""
        s = _logistic(self.slope[:, None] * (np.asarray(x_X)[None, :] - self.midpoint[:, None]))
        return self.floor[:, None] + (self.ceiling - self.floor)[:, None] * s

    def row(self, index: int) -> SigmoidFits:
        """The fit of one data set, with D = 1."""
        parts: list[Any] = [field[index : index + 1] for field in self]
        return SigmoidFits(*parts)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Where the parameters may lie.

    Args:
        low, high: the curve's floor and ceiling lie in [low, high].
        slope: range of the slope, per unit of x.
        midpoint_margin: how far the midpoint may lie outside the data, in units of x.
    """

    low: float = 0.0
    high: float = 1.0
    slope: tuple[float, float] = (1.0, 30.0)
    midpoint_margin: float = 0.75


def _logistic(z: FloatArray) -> FloatArray:
    out: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * z))
    return out


class Grid(NamedTuple):
    """Candidate starts (slope, midpoint) and their shapes s (Q, X)."""

    slope_Q: FloatArray
    midpoint_Q: FloatArray
    s_QX: FloatArray


def candidate_grid(
    x_X: FloatArray, bounds: Bounds, *, n_slopes: int = 14, midpoint_step: float | None = None
) -> Grid:
    """All pairs of slopes (geometric) and midpoints (even) within the bounds."""
    low, high = float(x_X.min()) - bounds.midpoint_margin, float(x_X.max()) + bounds.midpoint_margin
    step = midpoint_step if midpoint_step is not None else max((high - low) / 60, 1e-12)
    midpoints = np.arange(low, high + step / 2, step)
    slopes = np.geomspace(*bounds.slope, n_slopes)
    slope_Q, midpoint_Q = (a.ravel() for a in np.meshgrid(slopes, midpoints, indexing="ij"))
    s_QX = _logistic(slope_Q[:, None] * (x_X[None, :] - midpoint_Q[:, None]))
    return Grid(slope_Q, midpoint_Q, s_QX)


class _Moments(NamedTuple):
    """Weighted sums that the linear problem needs; arrays broadcast against each other."""

    w: FloatArray
    ws: FloatArray
    wss: FloatArray
    wy: FloatArray
    wsy: FloatArray
    wyy: FloatArray


def _solve_linear(
    m: _Moments, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Best (floor, rise >= 0) with low <= floor and floor + rise <= high, and its loss."""
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = m.w * m.wss - m.ws**2
        flat = determinant <= 1e-12 * m.w * m.wss
        rise = np.where(flat, 0.0, (m.w * m.wsy - m.ws * m.wy) / np.where(flat, 1.0, determinant))
        rise = np.maximum(rise, 0.0)
        floor = (m.wy - rise * m.ws) / m.w
        # An active bound leaves one free parameter: the other end of the curve.
        over = floor + rise > high
        w1 = m.w - m.ws  # sum of w (1 - s)
        w11 = m.w - 2 * m.ws + m.wss  # sum of w (1 - s)^2
        drop = (high * w1 - (m.wy - m.wsy)) / np.where(w11 > 0, w11, 1.0)
        floor = np.where(over, np.clip(high - np.maximum(drop, 0.0), low, high), floor)
        rise = np.where(over, high - floor, rise)
        under = floor < low
        free = (m.wsy - low * m.ws) / np.where(m.wss > 0, m.wss, 1.0)
        floor = np.where(under, low, floor)
        rise = np.where(under, np.clip(free, 0.0, high - low), rise)
        loss = (
            m.wyy
            - 2 * floor * m.wy
            - 2 * rise * m.wsy
            + floor**2 * m.w
            + 2 * floor * rise * m.ws
            + rise**2 * m.wss
        )
    return floor, rise, np.maximum(loss, 0.0)


def fit_sigmoids(
    x_X: FloatArray,
    y_DX: FloatArray,
    weight_DX: FloatArray,
    bounds: Bounds | None = None,
    *,
    grid: Grid | None = None,
    anchor: tuple[FloatArray, FloatArray] | None = None,
) -> SigmoidFits:
    """Least-squares monotone sigmoids for many data sets on the same positions.

    Args:
        x_X: positions, shape (X,), finite.
        y_DX: values, shape (D, X); ignored where the weight is 0.
        weight_DX: weights >= 0, shape (D, X) or (1, X); each row needs some weight.
        bounds: where parameters may lie.
        grid: starts, when the caller fits the same positions again and again.
        anchor: values and weights, each (D,), of one more point at x = -infinity.

    Returns:
        SigmoidFits with D rows. `loss` is the weighted sum of squares (a sum, never a mean).

    Source: variable projection, Golub and Pereyra 1973; Kaufman's approximation in the polish.
    """
    bounds = bounds or Bounds()
    grid = grid or candidate_grid(x_X, bounds)
    y_DX = np.atleast_2d(np.asarray(y_DX, dtype=np.float64))
    weight_DX = np.broadcast_to(np.atleast_2d(weight_DX), y_DX.shape)
    y_DX = np.where(weight_DX > 0, y_DX, 0.0)
    D = len(y_DX)
    zero = np.zeros(D)
    base, base_weight = (
        (zero, zero) if anchor is None else (np.broadcast_to(a, (D,)) for a in anchor)
    )
    # A column at s = 0 for every candidate is a point at x = -infinity.
    y_DX = np.concatenate([y_DX, base[:, None]], axis=1)
    weight_DX = np.concatenate([weight_DX, base_weight[:, None]], axis=1)
    grid = grid._replace(s_QX=np.concatenate([grid.s_QX, np.zeros((len(grid.s_QX), 1))], axis=1))
    x_X = np.append(np.asarray(x_X, dtype=np.float64), -np.inf)
    step = max(1, _CHUNK // grid.slope_Q.size)
    parts = [
        _fit_chunk(x_X, y_DX[i : i + step], weight_DX[i : i + step], bounds, grid)
        for i in range(0, D, step)
    ]
    return SigmoidFits(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def _fit_chunk(
    x_X: FloatArray, y_DX: FloatArray, w_DX: FloatArray, bounds: Bounds, grid: Grid
) -> SigmoidFits:
    # Centred values keep the sums of squares from cancelling.
    total = w_DX.sum(axis=1)
    centre = (w_DX * y_DX).sum(axis=1) / total
    y = np.where(w_DX > 0, y_DX - centre[:, None], 0.0)
    low, high = bounds.low - centre, bounds.high - centre

    wy = w_DX * y
    moments = _Moments(
        total[:, None],
        w_DX @ grid.s_QX.T,
        w_DX @ (grid.s_QX**2).T,
        wy.sum(axis=1)[:, None],
        wy @ grid.s_QX.T,
        (wy * y).sum(axis=1)[:, None],
    )
    loss_DQ = _solve_linear(moments, low[:, None], high[:, None])[2]
    best = loss_DQ.argmin(axis=1)
    log_slope, midpoint = np.log(grid.slope_Q[best]), grid.midpoint_Q[best]
    log_slope, midpoint, floor, rise, loss = _polish(
        x_X, y, w_DX, log_slope, midpoint, low, high, bounds
    )
    edge = 1e-9
    lo_mid, hi_mid = x_X[:-1].min() - bounds.midpoint_margin, x_X.max() + bounds.midpoint_margin
    on_bound = (
        (log_slope <= np.log(bounds.slope[0]) + edge)
        | (log_slope >= np.log(bounds.slope[1]) - edge)
        | (midpoint <= lo_mid + edge)
        | (midpoint >= hi_mid - edge)
        | (floor <= low + edge)
        | (floor + rise >= high - edge)
    )
    return SigmoidFits(
        floor + centre, floor + rise + centre, np.exp(log_slope), midpoint, loss, on_bound
    )


def _polish(
    x_X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    log_slope: FloatArray,
    midpoint: FloatArray,
    low: FloatArray,
    high: FloatArray,
    bounds: Bounds,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Damped Gauss-Newton on (log slope, midpoint); a step that does not help is taken back."""
    limits = np.log(bounds.slope[0]), np.log(bounds.slope[1])
    finite = x_X[:-1]  # the last is the anchor
    middle = finite.min() - bounds.midpoint_margin, finite.max() + bounds.midpoint_margin

    def project(
        a: FloatArray, m: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        s = _logistic(np.exp(a)[:, None] * (x_X[None, :] - m[:, None]))
        ws, wy = w * s, w * y
        sums = _Moments(
            w.sum(1), ws.sum(1), (ws * s).sum(1), wy.sum(1), (wy * s).sum(1), (wy * y).sum(1)
        )
        floor, rise, _ = _solve_linear(sums, low, high)
        residual = y - floor[:, None] - rise[:, None] * s
        return s, floor, rise, (w * residual**2).sum(1)

    s, floor, rise, loss = project(log_slope, midpoint)
    damping = np.full(len(y), 1e-3)
    for _ in range(_POLISH_STEPS):
        slope = np.exp(log_slope)[:, None]
        curvature = rise[:, None] * s * (1 - s)
        distance = np.where(np.isfinite(x_X), x_X, 0.0)[None, :] - midpoint[:, None]
        columns = (curvature * slope * distance, -curvature * slope)
        j1, j2 = (_project_out(column, s, w) for column in columns)
        residual = y - floor[:, None] - rise[:, None] * s
        g1, g2 = (w * j1 * residual).sum(1), (w * j2 * residual).sum(1)
        h11, h22, h12 = (w * j1**2).sum(1), (w * j2**2).sum(1), (w * j1 * j2).sum(1)
        h11, h22 = h11 * (1 + damping) + 1e-30, h22 * (1 + damping) + 1e-30
        determinant = np.maximum(h11 * h22 - h12**2, 1e-60)
        new_slope = np.clip(log_slope + (h22 * g1 - h12 * g2) / determinant, *limits)
        new_middle = np.clip(midpoint + (h11 * g2 - h12 * g1) / determinant, *middle)
        s_new, floor_new, rise_new, loss_new = project(new_slope, new_middle)
        better = loss_new < loss
        damping = np.where(better, damping * 0.2, damping * 8)
        log_slope, midpoint = (
            np.where(better, new_slope, log_slope),
            np.where(better, new_middle, midpoint),
        )
        floor, rise = np.where(better, floor_new, floor), np.where(better, rise_new, rise)
        s = np.where(better[:, None], s_new, s)
        change = np.where(better, loss - loss_new, 0.0)
        loss = np.where(better, loss_new, loss)
        if not (better & (change > 1e-10 * loss)).any() and (damping > 1e2).all():
            break
    return log_slope, midpoint, floor, rise, loss


def _project_out(column: FloatArray, s: FloatArray, w: FloatArray) -> FloatArray:
    """Remove the part of `column` that floor and rise can take up (weighted)."""
    total = w.sum(1, keepdims=True)
    s_mean = (w * s).sum(1, keepdims=True) / total
    centred = s - s_mean
    norm = (w * centred**2).sum(1, keepdims=True)
    column = column - (w * column).sum(1, keepdims=True) / total
    along = (w * column * centred).sum(1, keepdims=True) / np.where(norm > 0, norm, 1.0)
    out: FloatArray = column - np.where(norm > 0, along, 0.0) * centred
    return out
