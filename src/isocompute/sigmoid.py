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
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.projection import Data, Moments, polish, solve_linear, unit_curve

FloatArray = NDArray[np.float64]

_CHUNK = 2_000_000  # elements of one D x Q work array: about 16 MB each, 10 at a time
_TINY = 1e-200  # no shape at all: a curve far below its midpoint


class SigmoidFits(NamedTuple):
    """Fitted curves, one per data set, each field of shape (D,).

    value(x) = floor + (ceiling - floor) * s(slope * (x - midpoint)), with the logistic
    s(z) = 1 / (1 + exp(-z)), or where `gompertz` s(z) = exp(-exp(-z)), whose bend towards the
    ceiling is the slower one. Beyond `held` (infinity as fitted) the value stays what it is there.
    """

    floor: FloatArray
    ceiling: FloatArray
    slope: FloatArray
    midpoint: FloatArray
    loss: FloatArray
    on_bound: NDArray[np.bool_]
    gompertz: NDArray[np.bool_]
    held: FloatArray

    def value(self, x_X: FloatArray) -> FloatArray:
        """Fitted values, shape (D, X), at positions (X,) or, one row per data set, (D, X)."""
        x = np.minimum(np.atleast_2d(x_X), self.held[:, None])
        z = self.slope[:, None] * (x - self.midpoint[:, None])
        some, every = bool(self.gompertz.any()), bool(self.gompertz.all())
        s = unit_curve(z, some)
        if some and not every:
            s = np.where(self.gompertz[:, None], s, unit_curve(z, False))
        return self.floor[:, None] + (self.ceiling - self.floor)[:, None] * s

    @property
    def half_way(self) -> FloatArray:
        """Position (D,) at which half of the rise is made: the midpoint of a logistic curve."""
        log_half = np.where(self.gompertz, -np.log(np.log(2.0)), 0.0)
        out: FloatArray = self.midpoint + log_half / self.slope
        return out

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
        gompertz: fit Gompertz curves instead of logistic ones.
    """

    low: float = 0.0
    high: float = 1.0
    slope: tuple[float, float] = (1.0, 30.0)
    midpoint_margin: float = 0.75
    gompertz: bool = False


class Grid(NamedTuple):
    """Candidate starts (slope, midpoint) and their shapes s (Q, X)."""

    slope_Q: FloatArray
    midpoint_Q: FloatArray
    s_QX: FloatArray


def candidate_grid(
    x_X: FloatArray, bounds: Bounds, *, n_slopes: int = 14, midpoint_step: float | None = None
) -> Grid:
    """All pairs of slopes (geometric) and midpoints (even) within the bounds."""
    x = np.ascontiguousarray(x_X, dtype=np.float64)
    return _grid(x.tobytes(), bounds, n_slopes, midpoint_step)


@lru_cache(maxsize=128)
def _grid(x_bytes: bytes, bounds: Bounds, n_slopes: int, midpoint_step: float | None) -> Grid:
    """The same positions come again in every sweep of one design."""
    x_X = np.frombuffer(x_bytes, dtype=np.float64)
    low, high = float(x_X.min()) - bounds.midpoint_margin, float(x_X.max()) + bounds.midpoint_margin
    step = midpoint_step if midpoint_step is not None else max((high - low) / 60, 1e-12)
    midpoints = np.arange(low, high + step / 2, step)
    slopes = np.geomspace(*bounds.slope, n_slopes)
    slope_Q, midpoint_Q = (a.ravel() for a in np.meshgrid(slopes, midpoints, indexing="ij"))
    s_QX = unit_curve(slope_Q[:, None] * (x_X[None, :] - midpoint_Q[:, None]), bounds.gompertz)
    return Grid(slope_Q, midpoint_Q, s_QX)


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
    x_X = np.asarray(x_X, dtype=np.float64)
    y_DX = np.atleast_2d(np.asarray(y_DX, dtype=np.float64))
    weight_WX = np.atleast_2d(np.asarray(weight_DX, dtype=np.float64))  # W: D, or 1 for all
    base, base_weight = (np.zeros(1), np.zeros(1)) if anchor is None else anchor
    D, W = len(y_DX), max(len(weight_WX), len(base_weight))
    weight_WX = np.broadcast_to(weight_WX, (W, y_DX.shape[1]))
    data = _centred(x_X[None], y_DX, weight_WX, np.broadcast_to(base, (D,)), base_weight, bounds)
    step = max(1, _CHUNK // max(grid.slope_Q.size, 5 * len(x_X)))
    parts = []
    for i in range(0, D, step):
        chunk = data.take(slice(i, i + step))
        best = _best_start(chunk, grid)
        parts.append(_polished(chunk, grid.slope_Q[best], grid.midpoint_Q[best], bounds))
    return SigmoidFits(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def fit_each(
    x_DX: FloatArray,
    y_DX: FloatArray,
    weight_DX: FloatArray,
    bounds: Bounds,
    anchor: tuple[FloatArray, FloatArray],
) -> SigmoidFits:
    """`fit_sigmoids` of a few data sets, each on positions of its own."""
    data = _centred(x_DX, y_DX, weight_DX, *anchor, bounds)
    slope, midpoint = np.empty(len(y_DX)), np.empty(len(y_DX))
    for d, x_X in enumerate(x_DX):
        grid = candidate_grid(x_X, bounds)
        best = _best_start(data.take(slice(d, d + 1)), grid)[0]
        slope[d], midpoint[d] = grid.slope_Q[best], grid.midpoint_Q[best]
    return _polished(data, slope, midpoint, bounds)


def _centred(
    x_DX: FloatArray,
    y_DX: FloatArray,
    w_DX: FloatArray,
    base_D: FloatArray,
    base_weight_D: FloatArray,
    bounds: Bounds,
) -> Data:
    y_DX = np.where(w_DX > 0, y_DX, 0.0)
    total = w_DX.sum(axis=1) + base_weight_D
    centre = ((w_DX * y_DX).sum(axis=1) + base_weight_D * base_D) / total
    y_DX = np.where(w_DX > 0, y_DX - centre[:, None], 0.0)
    return Data(
        x_DX,
        y_DX,
        w_DX,
        total_D=total,
        square_D=(w_DX * y_DX**2).sum(axis=1) + base_weight_D * (base_D - centre) ** 2,
        left_D=x_DX.min(axis=1) - bounds.midpoint_margin,
        right_D=x_DX.max(axis=1) + bounds.midpoint_margin,
        low_D=bounds.low - centre,
        high_D=bounds.high - centre,
        centre_D=centre,
    )


def _polished(
    data: Data, slope_D: FloatArray, midpoint_D: FloatArray, bounds: Bounds
) -> SigmoidFits:
    limits = float(np.log(bounds.slope[0])), float(np.log(bounds.slope[1]))
    log_slope, midpoint, floor, height, loss = polish(
        data, np.log(slope_D), midpoint_D, limits, bounds.gompertz
    )
    edge = 1e-9
    on_bound = (
        (log_slope <= limits[0] + edge)
        | (log_slope >= limits[1] - edge)
        | (midpoint <= data.left_D + edge)
        | (midpoint >= data.right_D - edge)
        | (floor <= data.low_D + edge)
        | (floor + height >= data.high_D - edge)
    )
    return SigmoidFits(
        floor + data.centre_D,
        floor + height + data.centre_D,
        np.exp(log_slope),
        midpoint,
        loss,
        on_bound,
        np.full(len(loss), bounds.gompertz),
        np.full(len(loss), np.inf),
    )


def _best_start(data: Data, grid: Grid) -> NDArray[np.int64]:
    """Index of the candidate with the smallest loss."""
    s, s_square = grid.s_QX.T, (grid.s_QX**2).T
    total = data.total_D[:, None]
    ws, wss, wsy = data.w_DX @ s, data.w_DX @ s_square, (data.w_DX * data.y_DX) @ s
    spread = wss - ws**2 / total
    flat = spread <= 1e-12 * wss + _TINY
    # Without bounds the loss falls by wsy^2 / spread.
    gain = np.maximum(wsy, 0.0)
    gain *= gain
    gain *= np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, spread))
    best = gain.argmax(axis=1)

    def bounded(row: NDArray[np.int64], q: NDArray[np.int64]) -> tuple[FloatArray, ...]:
        """Floor, rise and loss of pairs of data set and candidate, within the bounds."""
        w = row if len(total) > 1 else np.zeros_like(row)
        moments = Moments(total[w, 0], ws[w, q], wss[w, q], wsy[row, q], data.square_D[row])
        return solve_linear(moments, data.low_D[row], data.high_D[row])

    rows = np.arange(len(best))
    loss = bounded(rows, best)[2]
    # Bounds only add to a loss, so only candidates that are better without them are worth a look.
    slack = 1e-9 * data.square_D
    least = data.square_D - gain[rows, best]
    rows = np.flatnonzero(loss > least + slack)
    if len(rows):
        row, q = np.nonzero(gain[rows] >= (data.square_D - loss - slack)[rows, None])
        row = rows[row]
        order = np.lexsort((bounded(row, q)[2], row))
        first = order[np.flatnonzero(np.diff(row, prepend=-1))]
        best[rows] = q[first]
    return np.asarray(best, dtype=np.int64)
