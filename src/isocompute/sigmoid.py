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

FloatArray = NDArray[np.float64]

_CHUNK = 2_000_000  # elements of one D x Q work array: about 16 MB each, 10 at a time
_POLISH_STEPS = 40
_CONVERGED = 1e-6  # relative gain of the loss at which a fit is left
_TINY = 1e-200  # a Gompertz curve far below its midpoint is 0 to the last digit
_GIVE_UP = 1e3  # damping at which a fit that no step helps is left


class SigmoidFits(NamedTuple):
    """Fitted curves, one per data set, each field of shape (D,).

    value(x) = floor + (ceiling - floor) * s(slope * (x - midpoint)), with the logistic
    s(z) = 1 / (1 + exp(-z)), or where `gompertz` s(z) = exp(-exp(-z)), whose bend towards the
    ceiling is the slower one.
    """

    floor: FloatArray
    ceiling: FloatArray
    slope: FloatArray
    midpoint: FloatArray
    loss: FloatArray
    on_bound: NDArray[np.bool_]
    gompertz: NDArray[np.bool_]

    def value(self, x_X: FloatArray) -> FloatArray:
        """Fitted values, shape (D, X)."""
        z = self.slope[:, None] * (np.asarray(x_X)[None, :] - self.midpoint[:, None])
        some, every = bool(self.gompertz.any()), bool(self.gompertz.all())
        s = _rise(z, some)
        if some and not every:
            s = np.where(self.gompertz[:, None], s, _rise(z, False))
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
        gompertz: fit Gompertz curves instead of logistic ones.
    """

    low: float = 0.0
    high: float = 1.0
    slope: tuple[float, float] = (1.0, 30.0)
    midpoint_margin: float = 0.75
    gompertz: bool = False


def _rise(z: FloatArray, gompertz: bool) -> FloatArray:
    with np.errstate(over="ignore"):
        out: FloatArray = np.exp(-z)
        if gompertz:
            return np.exp(np.negative(out, out=out), out=out)
        out += 1.0
        return np.divide(1.0, out, out=out)


def _bend(s: FloatArray, gompertz: bool) -> FloatArray:
    """(ds/dz) / s, from s itself."""
    if not gompertz:
        return 1 - s
    out: FloatArray = -np.log(np.maximum(s, _TINY))
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
    s_QX = _rise(slope_Q[:, None] * (x_X[None, :] - midpoint_Q[:, None]), bounds.gompertz)
    return Grid(slope_Q, midpoint_Q, s_QX)


class _Moments(NamedTuple):
    """Weighted sums that the linear problem needs, of values with mean 0; arrays broadcast."""

    w: FloatArray
    ws: FloatArray
    wss: FloatArray
    wsy: FloatArray
    wyy: FloatArray


def _solve_linear(
    m: _Moments, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Best (floor, rise >= 0) with low <= floor and floor + rise <= high, and its loss."""
    mean = m.ws / m.w
    spread = m.wss - mean * m.ws
    flat = spread <= 1e-12 * m.wss
    rise = np.where(flat, 0.0, np.maximum(m.wsy, 0.0) / np.where(flat, 1.0, spread))
    floor = -rise * mean
    over = floor + rise > high
    if over.any() or (floor < low).any():
        # An active bound leaves one free parameter: the other end of the curve.
        w1 = m.w - m.ws  # sum of w (1 - s)
        w11 = w1 - m.ws + m.wss  # sum of w (1 - s)^2
        drop = (high * w1 + m.wsy) / np.where(w11 > 0, w11, 1.0)
        floor = np.where(over, np.clip(high - np.maximum(drop, 0.0), low, high), floor)
        rise = np.where(over, high - floor, rise)
        under = floor < low
        free = (m.wsy - low * m.ws) / np.where(m.wss > 0, m.wss, 1.0)
        floor = np.where(under, low, floor)
        rise = np.where(under, np.clip(free, 0.0, high - low), rise)
    level = floor + rise * mean
    loss = m.wyy - rise * (2 * m.wsy - rise * spread) + m.w * level**2
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
    x_X = np.asarray(x_X, dtype=np.float64)
    y_DX = np.atleast_2d(np.asarray(y_DX, dtype=np.float64))
    weight_WX = np.atleast_2d(np.asarray(weight_DX, dtype=np.float64))  # W: D, or 1 for all
    base, base_weight = (np.zeros(1), np.zeros(1)) if anchor is None else anchor
    D, W = len(y_DX), max(len(weight_WX), len(base_weight))
    base = np.broadcast_to(base, (D,))
    weight_WX = np.broadcast_to(weight_WX, (W, len(x_X)))
    base_weight = np.broadcast_to(base_weight, (W,))
    step = max(1, _CHUNK // max(grid.slope_Q.size, 5 * len(x_X)))
    parts = []
    for part in (slice(i, i + step) for i in range(0, D, step)):
        own = part if W > 1 else slice(None)
        data = _centred(y_DX[part], weight_WX[own], base[part], base_weight[own], bounds)
        parts.append(_fit_chunk(x_X, data, bounds, grid))
    return SigmoidFits(*(np.concatenate(field) for field in zip(*parts, strict=True)))


class _Data(NamedTuple):
    """Data sets whose weighted mean is 0: sums of squares then do not cancel.

    The anchor, at s = 0 for every curve, is in `total_W` (the weight) and `square_D` (the weighted
    sum of squares) and nowhere else. W is D, or 1 where all share their weights. `low_D` and
    `high_D` bound floor and ceiling; `centre_D` was subtracted.
    """

    y_DX: FloatArray
    w_WX: FloatArray
    total_W: FloatArray
    square_D: FloatArray
    low_D: FloatArray
    high_D: FloatArray
    centre_D: FloatArray

    def take(self, index: NDArray[Any]) -> _Data:
        shared = len(self.w_WX) == 1
        return _Data(
            self.y_DX[index],
            self.w_WX if shared else self.w_WX[index],
            self.total_W if shared else self.total_W[index],
            *(part[index] for part in self[3:]),
        )


def _centred(
    y_DX: FloatArray,
    w_WX: FloatArray,
    base_D: FloatArray,
    base_weight_W: FloatArray,
    bounds: Bounds,
) -> _Data:
    y_DX = np.where(w_WX > 0, y_DX, 0.0)
    total = w_WX.sum(axis=1) + base_weight_W
    centre = ((w_WX * y_DX).sum(axis=1) + base_weight_W * base_D) / total
    y_DX = np.where(w_WX > 0, y_DX - centre[:, None], 0.0)
    square = (w_WX * y_DX**2).sum(axis=1) + base_weight_W * (base_D - centre) ** 2
    return _Data(y_DX, w_WX, total, square, bounds.low - centre, bounds.high - centre, centre)


def _fit_chunk(x_X: FloatArray, data: _Data, bounds: Bounds, grid: Grid) -> SigmoidFits:
    best = _best_start(data, grid)
    log_slope, midpoint, floor, rise, loss = _polish(
        x_X, data, np.log(grid.slope_Q[best]), grid.midpoint_Q[best], bounds
    )
    edge = 1e-9
    lo_mid, hi_mid = x_X.min() - bounds.midpoint_margin, x_X.max() + bounds.midpoint_margin
    on_bound = (
        (log_slope <= np.log(bounds.slope[0]) + edge)
        | (log_slope >= np.log(bounds.slope[1]) - edge)
        | (midpoint <= lo_mid + edge)
        | (midpoint >= hi_mid - edge)
        | (floor <= data.low_D + edge)
        | (floor + rise >= data.high_D - edge)
    )
    return SigmoidFits(
        floor + data.centre_D,
        floor + rise + data.centre_D,
        np.exp(log_slope),
        midpoint,
        loss,
        on_bound,
        np.full(len(loss), bounds.gompertz),
    )


def _best_start(data: _Data, grid: Grid) -> NDArray[np.int64]:
    """Index of the candidate with the smallest loss."""
    s, s_square = grid.s_QX.T, (grid.s_QX**2).T
    total = data.total_W[:, None]
    ws, wss, wsy = data.w_WX @ s, data.w_WX @ s_square, (data.w_WX * data.y_DX) @ s
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
        moments = _Moments(total[w, 0], ws[w, q], wss[w, q], wsy[row, q], data.square_D[row])
        return _solve_linear(moments, data.low_D[row], data.high_D[row])

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


class _State(NamedTuple):
    """A point of the polish: parameters, linear solution and Gram matrix.

    `gram`, (D, 3, 4), holds the inner products of s, ds/dz and (x - midpoint) ds/dz with
    these and with y, after the constant is projected out.
    """

    log_slope: FloatArray
    midpoint: FloatArray
    floor: FloatArray
    rise: FloatArray
    loss: FloatArray
    gram: FloatArray

    def take(self, index: NDArray[Any]) -> _State:
        return _State(*(part[index] for part in self))


def _polish(
    x_X: FloatArray, data: _Data, log_slope: FloatArray, midpoint: FloatArray, bounds: Bounds
) -> list[FloatArray]:
    """Damped Gauss-Newton on (log slope, midpoint); a step that does not help is taken back.

    Rows leave the iteration when they have converged.

    Returns:
        Log slope, midpoint, floor, rise and loss, each of shape (D,).
    """
    limits = np.log(bounds.slope[0]), np.log(bounds.slope[1])
    middle = x_X.min() - bounds.midpoint_margin, x_X.max() + bounds.midpoint_margin

    used = data.w_WX.any(axis=0)
    x_X, data = x_X[used], data._replace(y_DX=data.y_DX[:, used], w_WX=data.w_WX[:, used])
    here = _state(x_X, data, log_slope, midpoint, bounds.gompertz)
    done = [np.array(part) for part in here[:5]]
    active = np.arange(len(log_slope))
    damping = np.full(len(log_slope), 1e-3)
    for left in range(_POLISH_STEPS, 0, -1):
        step_1, step_2 = _gauss_newton_step(here, damping)
        new = _state(
            x_X,
            data,
            np.clip(here.log_slope + step_1, *limits),
            np.clip(here.midpoint + step_2, *middle),
            bounds.gompertz,
        )
        better = new.loss < here.loss
        gain = np.where(better, here.loss - new.loss, np.inf)
        if better.all():
            here = new
        else:
            for old, fresh in zip(here, new, strict=True):
                old[better] = fresh[better]
        damping = np.where(better, damping * 0.2, damping * 8)
        going = np.where(better, gain > _CONVERGED * here.loss, damping < _GIVE_UP)
        if left == 1 or not going.all():
            for whole, part in zip(done, here, strict=False):
                whole[active] = part
            if not going.any():
                break
            active, damping = active[going], damping[going]
            here, data = here.take(going), data.take(going)
    return done


def _state(
    x_X: FloatArray, data: _Data, log_slope: FloatArray, midpoint: FloatArray, gompertz: bool
) -> _State:
    D = len(midpoint)
    columns = np.empty((D, 5, len(x_X)))  # s, ds/dz, (x - midpoint) ds/dz, y, 1
    from_middle = x_X - midpoint[:, None]
    s = _rise(np.exp(log_slope)[:, None] * from_middle, gompertz)
    columns[:, 0] = s
    np.multiply(s, _bend(s, gompertz), out=columns[:, 1])
    np.multiply(columns[:, 1], from_middle, out=columns[:, 2])
    columns[:, 3] = data.y_DX
    columns[:, 4] = 1.0
    products = (columns[:, :3] * data.w_WX[:, None, :]) @ columns.transpose(0, 2, 1)
    gram, sums = products[:, :, :4], products[:, :, 4]
    moments = _Moments(data.total_W, sums[:, 0], gram[:, 0, 0], gram[:, 0, 3], data.square_D)
    floor, rise, loss = _solve_linear(moments, data.low_D, data.high_D)
    gram[:, :, :3] -= sums[:, :, None] * (sums / data.total_W[:, None])[:, None, :]
    return _State(log_slope, midpoint, floor, rise, loss, gram)


def _gauss_newton_step(here: _State, damping: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Step in (log slope, midpoint), floor and ceiling following (Kaufman's approximation)."""
    gram, spread = here.gram, here.gram[:, 0, 0]
    share = gram[:, 0, 1:] / np.where(spread > 0, spread, np.inf)[:, None]
    # Of ds/dz and (x - midpoint) ds/dz with these and with y, after s is projected out too.
    inner = gram[:, 1:, 1:] - gram[:, 1:, :1] * share[:, None, :]
    slope = np.exp(here.log_slope)
    scale = slope * here.rise  # by the midpoint the curve moves by -scale * ds/dz
    g1, g2 = scale * inner[:, 1, 2], -scale * inner[:, 0, 2]
    square = scale**2
    h11, h22, h12 = square * inner[:, 1, 1], square * inner[:, 0, 0], -square * inner[:, 0, 1]
    h11, h22 = h11 * (1 + damping) + 1e-30, h22 * (1 + damping) + 1e-30
    determinant = np.maximum(h11 * h22 - h12**2, 1e-60)
    return (h22 * g1 - h12 * g2) / determinant, (h11 * g2 - h12 * g1) / determinant
