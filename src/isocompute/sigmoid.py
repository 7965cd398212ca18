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
        s = np.empty_like(z)
        for form in np.unique(self.gompertz):
            rows = self.gompertz == form
            s[rows] = _rise(z[rows], bool(form))
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
        out: FloatArray = np.exp(-np.exp(-z)) if gompertz else 1.0 / (1.0 + np.exp(-z))
    return out


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


@lru_cache(maxsize=32)
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
    weight_WX = np.atleast_2d(np.asarray(weight_DX, dtype=np.float64))  # W: D, or 1 for all
    y_DX = np.where(weight_WX > 0, y_DX, 0.0)
    D = len(y_DX)
    base, base_weight = (np.zeros(1), np.zeros(1)) if anchor is None else anchor
    W = max(len(weight_WX), len(base_weight))
    # A column at s = 0 for every candidate is a point at x = -infinity.
    y_DX = np.column_stack([y_DX, np.broadcast_to(base, (D,))])
    weight_WX = np.column_stack(
        [np.broadcast_to(weight_WX, (W, y_DX.shape[1] - 1)), np.broadcast_to(base_weight, (W,))]
    )
    grid = grid._replace(s_QX=np.column_stack([grid.s_QX, np.zeros(len(grid.s_QX))]))
    x_X = np.append(np.asarray(x_X, dtype=np.float64), -np.inf)
    step = max(1, _CHUNK // max(grid.slope_Q.size, 5 * len(x_X)))
    parts = [
        _fit_chunk(x_X, y_DX[i : i + step], _rows(weight_WX, slice(i, i + step)), bounds, grid)
        for i in range(0, D, step)
    ]
    return SigmoidFits(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def _rows(w_WX: FloatArray, index: slice | NDArray[Any]) -> FloatArray:
    """Rows of the weights; the one row that all data sets share stays."""
    return w_WX if len(w_WX) == 1 else w_WX[index]


def _fit_chunk(
    x_X: FloatArray, y_DX: FloatArray, w_DX: FloatArray, bounds: Bounds, grid: Grid
) -> SigmoidFits:
    # Centred values keep the sums of squares from cancelling.
    total = w_DX.sum(axis=1)
    centre = (w_DX * y_DX).sum(axis=1) / total
    y = np.where(w_DX > 0, y_DX - centre[:, None], 0.0)
    low, high = bounds.low - centre, bounds.high - centre
    best = _best_start(y, w_DX, low, high, grid)
    log_slope, midpoint, floor, rise, loss = _polish(
        x_X, y, w_DX, np.log(grid.slope_Q[best]), grid.midpoint_Q[best], low, high, bounds
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
        floor + centre,
        floor + rise + centre,
        np.exp(log_slope),
        midpoint,
        loss,
        on_bound,
        np.full(len(loss), bounds.gompertz),
    )


def _best_start(
    y_DX: FloatArray, w_DX: FloatArray, low: FloatArray, high: FloatArray, grid: Grid
) -> NDArray[np.int64]:
    """Index of the candidate with the smallest loss, for centred values."""
    s, s_square = grid.s_QX.T, (grid.s_QX**2).T
    total = w_DX.sum(axis=1, keepdims=True)
    ws, wss, wsy = w_DX @ s, w_DX @ s_square, (w_DX * y_DX) @ s
    spread = wss - ws**2 / total
    flat = spread <= 1e-12 * wss + _TINY
    # Without bounds the loss falls by wsy^2 / spread, as the values have mean 0.
    gain = np.maximum(wsy, 0.0)
    gain *= gain
    gain *= np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, spread))
    best = gain.argmax(axis=1)
    rows = np.arange(len(y_DX))
    at = np.zeros(len(y_DX), dtype=np.int64) if len(w_DX) == 1 else rows
    rise = np.where(flat[at, best], 0.0, np.maximum(wsy[rows, best], 0.0)) / np.where(
        flat[at, best], 1.0, spread[at, best]
    )
    floor = -rise * ws[at, best] / total[at, 0]
    outside = np.flatnonzero((floor < low) | (floor + rise > high))
    if len(outside):
        w, wy = _rows(w_DX, outside), _rows(w_DX, outside) * y_DX[outside]
        moments = _Moments(
            w.sum(axis=1)[:, None],
            w @ s,
            w @ s_square,
            wy.sum(axis=1)[:, None],
            wsy[outside],
            (wy * y_DX[outside]).sum(axis=1)[:, None],
        )
        loss = _solve_linear(moments, low[outside, None], high[outside, None])[2]
        best[outside] = loss.argmin(axis=1)
    return np.asarray(best, dtype=np.int64)


class _State(NamedTuple):
    """A point of the polish: parameters, linear solution and Gram matrix.

    `gram`, (D, 5, 5), is of the columns 1, s, ds/d(log slope), ds/d(midpoint), y.
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
    x_X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    log_slope: FloatArray,
    midpoint: FloatArray,
    low: FloatArray,
    high: FloatArray,
    bounds: Bounds,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Damped Gauss-Newton on (log slope, midpoint); a step that does not help is taken back.

    Rows leave the iteration when they have converged.
    """
    limits = np.log(bounds.slope[0]), np.log(bounds.slope[1])
    finite = x_X[:-1]  # the last is the anchor
    middle = finite.min() - bounds.midpoint_margin, finite.max() + bounds.midpoint_margin

    gompertz = bounds.gompertz
    here = _state(x_X, y, w, log_slope, midpoint, low, high, gompertz)
    done = _State(*(np.array(part) for part in here))
    active = np.arange(len(y))
    damping = np.full(len(y), 1e-3)
    for _ in range(_POLISH_STEPS):
        step_1, step_2 = _gauss_newton_step(here, damping)
        new = _state(
            x_X,
            y[active],
            _rows(w, active),
            np.clip(here.log_slope + step_1, *limits),
            np.clip(here.midpoint + step_2, *middle),
            low[active],
            high[active],
            gompertz,
        )
        better = new.loss < here.loss
        gain = np.where(better, here.loss - new.loss, np.inf)
        here = _State(
            *(
                np.where(better.reshape(-1, *(1,) * (old.ndim - 1)), fresh, old)
                for old, fresh in zip(here, new, strict=True)
            )
        )
        damping = np.where(better, damping * 0.2, damping * 8)
        going = np.where(better, gain > _CONVERGED * here.loss, damping < _GIVE_UP)
        for whole, part in zip(done[:5], here[:5], strict=True):
            whole[active] = part
        if not going.any():
            break
        if not going.all():
            active, damping, here = active[going], damping[going], here.take(going)
    return done.log_slope, done.midpoint, done.floor, done.rise, done.loss


def _state(
    x_X: FloatArray,
    y: FloatArray,
    w: FloatArray,
    log_slope: FloatArray,
    midpoint: FloatArray,
    low: FloatArray,
    high: FloatArray,
    gompertz: bool,
) -> _State:
    slope = np.exp(log_slope)[:, None]
    s = _rise(slope * (x_X[None, :] - midpoint[:, None]), gompertz)
    by_midpoint = -slope * s * _bend(s, gompertz)
    by_slope = by_midpoint * (midpoint[:, None] - np.where(np.isfinite(x_X), x_X, 0.0)[None, :])
    columns = np.stack([np.ones_like(s), s, by_slope, by_midpoint, y], axis=1)
    gram = (columns * w[:, None, :]) @ columns.transpose(0, 2, 1)
    sums = _Moments(
        gram[:, 0, 0], gram[:, 0, 1], gram[:, 1, 1], gram[:, 0, 4], gram[:, 1, 4], gram[:, 4, 4]
    )
    floor, rise, loss = _solve_linear(sums, low, high)
    return _State(log_slope, midpoint, floor, rise, loss, gram)


def _gauss_newton_step(here: _State, damping: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Step in (log slope, midpoint), floor and ceiling following (Kaufman's approximation)."""
    g, rise = here.gram, here.rise
    total = g[:, 0, 0]

    def inner(i: int, j: int) -> FloatArray:
        """Inner product of two columns after 1 and s are projected out."""
        one_i, one_j, one_s = g[:, 0, i] / total, g[:, 0, j], g[:, 0, 1]
        ss = g[:, 1, 1] - one_s**2 / total
        si, sj = g[:, 1, i] - one_s * one_i, g[:, 1, j] - one_s * one_j / total
        out: FloatArray = (
            g[:, i, j] - one_i * one_j - np.where(ss > 0, si * sj, 0.0) / np.where(ss > 0, ss, 1.0)
        )
        return out

    g1, g2 = (rise * inner(i, 4) for i in (2, 3))
    h11, h22, h12 = rise**2 * inner(2, 2), rise**2 * inner(3, 3), rise**2 * inner(2, 3)
    h11, h22 = h11 * (1 + damping) + 1e-30, h22 * (1 + damping) + 1e-30
    determinant = np.maximum(h11 * h22 - h12**2, 1e-60)
    return (h22 * g1 - h12 * g2) / determinant, (h11 * g2 - h12 * g1) / determinant
