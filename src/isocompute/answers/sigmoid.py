"""Monotone sigmoids by least squares, many rows at once.

value(x) = floor + height / (1 + exp(-slope (x - midpoint))), height >= 0. Given slope and midpoint,
the best floor and height within bounds follow in closed form (variable projection). Every pair of
a grid is a start, and damped Gauss-Newton steps polish the best one of each row.

Shape legend: D rows, X positions that all share, Q starts, 2: log slope and midpoint.
Source: Golub and Pereyra, SIAM J. Numer. Anal. 10 (1973) 413.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from isocompute.intervals import FloatArray

Range = tuple[float, float]

_STARTS = 14, 48  # slopes, midpoints; a coarser set of starts ends in other local minima
_ROWS = 32  # at a time over the starts: what fits a processor's cache
_STEPS = 60
_SHIFT = 1e-6  # of (log slope, midpoint), for the Jacobian
_CONVERGED = 1e-9  # relative gain of the loss at which a row is left
_GIVE_UP = 1e4  # damping at which a row that no step helps is left


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Where the parameters may lie, each as (smallest, largest)."""

    level: Range  # floor, and ceiling = floor + height
    slope: Range  # > 0, per unit of x
    midpoint: Range


class Sigmoids(NamedTuple):
    """Fitted curves, each field of shape (D,); `loss` is the weighted sum of squares."""

    floor: FloatArray
    height: FloatArray
    slope: FloatArray
    midpoint: FloatArray
    loss: FloatArray

    def value(self, x_X: FloatArray) -> FloatArray:
        """Values at positions (X,), shape (D, X)."""
        at_D2 = np.stack([np.log(self.slope), self.midpoint], axis=1)
        out: FloatArray = self.floor[:, None] + self.height[:, None] * _unit(at_D2, x_X)
        return out


def fit_sigmoids(
    x_X: FloatArray, y_DX: FloatArray, bounds: Bounds, *, weight_X: FloatArray | None = None
) -> Sigmoids:
    """The least-squares sigmoid of every row.

    Args:
        x_X: positions, finite, shape (X,).
        y_DX: values, finite, shape (D, X).
        bounds: where parameters may lie.
        weight_X: weights >= 0 of the positions, not all 0; None: all alike.
    """
    w_X = np.ones(len(x_X)) if weight_X is None else np.asarray(weight_X, dtype=np.float64)
    limits_22 = np.array([np.log(bounds.slope), bounds.midpoint]).T
    axes = [np.linspace(low, high, n) for low, high, n in zip(*limits_22, _STARTS, strict=True)]
    start_Q2 = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    s_QX = _unit(start_Q2, x_X)
    some = [y_DX[i : i + _ROWS] for i in range(0, len(y_DX), _ROWS)]
    best_D = np.concatenate([_loss(s_QX, y, w_X, bounds.level).argmin(axis=1) for y in some])
    at_D2 = start_Q2[best_D]
    done = [at_D2, *_residuals(x_X, y_DX, w_X, at_D2, bounds.level)]
    rows, here, damping = np.arange(len(y_DX)), list(done), np.full(len(y_DX), 1e-3)
    for _ in range(_STEPS):
        (at_D2, _, _, r_DX, loss), y = here, y_DX[rows]
        moved = (_residuals(x_X, y, w_X, at_D2 + e, bounds.level)[2] for e in _SHIFT * np.eye(2))
        J_2DX = np.stack([(r_DX - m_DX) / _SHIFT for m_DX in moved])  # floor and height follow
        new_D2 = np.clip(at_D2 + _step(J_2DX, r_DX, damping, at_D2, limits_22), *limits_22)
        new = [new_D2, *_residuals(x_X, y, w_X, new_D2, bounds.level)]
        better = new[4] < loss
        going = np.where(better, loss - new[4] > _CONVERGED * loss, damping < _GIVE_UP)
        damping = np.where(better, damping * 0.2, damping * 8)[going]
        for whole, fresh in zip(done, new, strict=True):
            whole[rows[better]] = fresh[better]
        rows = rows[going]
        if not len(rows):
            break
        here = [part[rows] for part in done]
    at_D2, floor, height, _, loss = done
    return Sigmoids(floor, height, np.exp(at_D2[:, 0]), at_D2[:, 1], loss)


def _unit(at_D2: FloatArray, x_X: FloatArray) -> FloatArray:
    out: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * np.exp(at_D2[:, :1]) * (x_X - at_D2[:, 1:]))
    return out


def _loss(s_QX: FloatArray, y_DX: FloatArray, w_X: FloatArray, level: Range) -> FloatArray:
    """Loss of every start up to a constant of the row, floor and height at their best, (D, Q)."""
    w, ws, wss = w_X.sum(), s_QX @ w_X, (s_QX * s_QX) @ w_X
    centre = (y_DX @ w_X / w)[:, None]  # sums of squares then do not cancel
    wsy = ((y_DX - centre) * w_X) @ s_QX.T
    limits = level[0] - centre, level[1] - centre
    floor, height = _levels(w, ws, wss, np.zeros_like(centre), wsy, *limits)
    out: FloatArray = height * (height * wss - 2 * wsy) + floor * (floor * w + 2 * height * ws)
    return out


def _residuals(
    x_X: FloatArray, y_DX: FloatArray, w_X: FloatArray, at_D2: FloatArray, level: Range
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Floor and height at their best, weighted residuals (D, X) and loss (D,)."""
    s_DX = _unit(at_D2, x_X)
    ws, wss, wy, wsy = s_DX @ w_X, (s_DX * s_DX) @ w_X, y_DX @ w_X, (s_DX * y_DX) @ w_X
    floor, height = _levels(w_X.sum(), ws, wss, wy, wsy, *level)
    r_DX = np.sqrt(w_X) * (y_DX - floor[:, None] - height[:, None] * s_DX)
    return floor, height, r_DX, np.einsum("dx,dx->d", r_DX, r_DX)


def _levels(
    w: float, ws: FloatArray, wss: FloatArray, wy: FloatArray, wsy: FloatArray, low: Any, high: Any
) -> tuple[FloatArray, FloatArray]:
    """Best floor >= low and height >= 0 with floor + height <= high, from weighted sums.

    Exact: a convex problem in two unknowns, so the free solution or one on an edge it breaks.
    """
    spread = wss - ws * ws / w
    height = np.maximum(wsy - ws * wy / w, 0.0)
    height *= np.where(spread > 1e-12 * w, 1.0 / np.maximum(spread, 1e-300), 0.0)
    floor = (wy - height * ws) / w
    over, under = floor + height > high, floor < low
    if over.any() or under.any():  # the other end is free: the ceiling moves s, the floor 1 - s
        w1, w11 = w - ws, w - 2 * ws + wss
        up, down = wsy - low * ws, high * w1 - (wy - wsy)
        lift = np.clip(up / np.maximum(wss, 1e-300), 0.0, high - low)
        drop = np.clip(down / np.maximum(w11, 1e-300), 0.0, high - low)
        loss_low = lift * (lift * wss - 2 * up) + low * (low * w - 2 * wy)
        loss_high = drop * (drop * w11 - 2 * down) + high * (high * w - 2 * wy)
        over &= ~under | (loss_high < loss_low)
        floor = np.where(over, high - drop, np.where(under, low, floor))
        height = np.where(over, drop, np.where(under, lift, height))
    return floor, height


def _step(
    J_2DX: FloatArray, r_DX: FloatArray, damping_D: FloatArray, at_D2: FloatArray, ends: FloatArray
) -> FloatArray:
    """Step in (log slope, midpoint); where a bound stops one of the two, the other goes alone."""
    JJ_22D, Jr_D2 = np.einsum("idx,jdx->ijd", J_2DX, J_2DX), np.einsum("idx,dx->di", J_2DX, r_DX)
    low, high = ends
    free = ~(((at_D2 <= low) & (Jr_D2 < 0)) | ((at_D2 >= high) & (Jr_D2 > 0)))
    a, c = (JJ_22D[i, i] * (1 + damping_D) + 1e-300 for i in (0, 1))
    b = JJ_22D[0, 1] * free.all(axis=1)
    g, h = Jr_D2.T
    step_2D: FloatArray = np.stack([c * g - b * h, a * h - b * g])
    step_2D /= np.maximum(a * c - b * b, 1e-300)
    return step_2D.T
