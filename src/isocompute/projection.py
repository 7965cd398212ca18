"""Variable projection of monotone sigmoids: what `isocompute.sigmoid` searches with.

Given slope and midpoint, floor and ceiling follow in closed form; Gauss-Newton on the projected
problem polishes the two that are left.

Shape legend: D data sets, X positions; an array whose first axis is 1 is shared by all data sets.
Source: Golub and Pereyra 1973; Kaufman's approximation in the polish.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_POLISH_STEPS = 40
_CONVERGED = 1e-6  # relative gain of the loss at which a fit is left
_TINY = 1e-200  # a Gompertz curve far below its midpoint is 0 to the last digit
_EDGE = 1e-12  # of floor or ceiling to a bound that holds it
_GIVE_UP = 1e3  # damping at which a fit that no step helps is left


def unit_curve(z: FloatArray, gompertz: bool) -> FloatArray:
    """From 0 to 1: logistic, or Gompertz."""
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


class Moments(NamedTuple):
    """Weighted sums that the linear problem needs, of values with mean 0; arrays broadcast."""

    w: FloatArray
    ws: FloatArray
    wss: FloatArray
    wsy: FloatArray
    wyy: FloatArray


def solve_linear(
    m: Moments, low: FloatArray, high: FloatArray
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


class Data(NamedTuple):
    """Data sets whose weighted mean is 0: sums of squares then do not cancel.

    An anchor, at s = 0 for every curve, is in `total_D` (the weight) and `square_D` (the weighted
    sum of squares) and nowhere else. The midpoint may lie between `left_D` and `right_D`, floor
    and ceiling between `low_D` and `high_D`; `centre_D` was subtracted.
    """

    x_DX: FloatArray
    y_DX: FloatArray
    w_DX: FloatArray
    total_D: FloatArray
    square_D: FloatArray
    left_D: FloatArray
    right_D: FloatArray
    low_D: FloatArray
    high_D: FloatArray
    centre_D: FloatArray

    def take(self, index: slice | NDArray[Any]) -> Data:
        """Some of the data sets."""
        return Data(*(part if len(part) == 1 else part[index] for part in self))


class _State(NamedTuple):
    """A point of the polish: parameters, linear solution and Gram matrix.

    `gram`, (D, 3, 4), holds the inner products of s, ds/dz and (x - midpoint) ds/dz with
    these and with y, after the constant is projected out; `sums`, (D, 3), theirs with it.
    """

    log_slope: FloatArray
    midpoint: FloatArray
    floor: FloatArray
    rise: FloatArray
    loss: FloatArray
    gram: FloatArray
    sums: FloatArray

    def take(self, index: NDArray[Any]) -> _State:
        return _State(*(part[index] for part in self))


def polish(
    data: Data,
    log_slope: FloatArray,
    midpoint: FloatArray,
    limits: tuple[float, float],
    gompertz: bool,
) -> list[FloatArray]:
    """Damped Gauss-Newton on (log slope, midpoint); a step that does not help is taken back.

    Rows leave the iteration when they have converged. `limits` are those of the log slope.

    Returns:
        Log slope, midpoint, floor, rise and loss, each of shape (D,).
    """
    used = data.w_DX.any(axis=0)
    x_DX, y_DX, w_DX = (part[:, used] for part in data[:3])
    data = data._replace(x_DX=x_DX, y_DX=y_DX, w_DX=w_DX)
    here = _state(data, log_slope, midpoint, gompertz)
    done = [np.array(part) for part in here[:5]]
    active = np.arange(len(log_slope))
    damping = np.full(len(log_slope), 1e-3)
    for left in range(_POLISH_STEPS, 0, -1):
        step_1, step_2 = _gauss_newton_step(here, damping, data, limits)
        new = _state(
            data,
            np.clip(here.log_slope + step_1, *limits),
            np.clip(here.midpoint + step_2, data.left_D, data.right_D),
            gompertz,
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


def _state(data: Data, log_slope: FloatArray, midpoint: FloatArray, gompertz: bool) -> _State:
    D, X = data.y_DX.shape
    columns = np.empty((D, 5, X))  # s, ds/dz, (x - midpoint) ds/dz, y, 1
    from_middle = data.x_DX - midpoint[:, None]
    s = unit_curve(np.exp(log_slope)[:, None] * from_middle, gompertz)
    columns[:, 0] = s
    np.multiply(s, _bend(s, gompertz), out=columns[:, 1])
    np.multiply(columns[:, 1], from_middle, out=columns[:, 2])
    columns[:, 3] = data.y_DX
    columns[:, 4] = 1.0
    products = (columns[:, :3] * data.w_DX[:, None, :]) @ columns.transpose(0, 2, 1)
    gram, sums = products[:, :, :4], products[:, :, 4]
    moments = Moments(data.total_D, sums[:, 0], gram[:, 0, 0], gram[:, 0, 3], data.square_D)
    floor, rise, loss = solve_linear(moments, data.low_D, data.high_D)
    gram[:, :, :3] -= sums[:, :, None] * (sums / data.total_D[:, None])[:, None, :]
    return _State(log_slope, midpoint, floor, rise, loss, gram, sums)


def _gauss_newton_step(
    here: _State, damping: FloatArray, data: Data, limits: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Step in (log slope, midpoint), floor and ceiling following (Kaufman's approximation)."""
    gram, spread = here.gram, here.gram[:, 0, 0]
    share = gram[:, 0, 1:] / np.where(spread > 0, spread, np.inf)[:, None]
    # Of ds/dz and (x - midpoint) ds/dz with these and with y, after s is projected out too.
    inner = gram[:, 1:, 1:] - gram[:, 1:, :1] * share[:, None, :]
    ceiling = here.floor + here.rise
    under, over = here.floor <= data.low_D + _EDGE, ceiling >= data.high_D - _EDGE
    held = np.flatnonzero(under | over)
    if len(held):
        total = np.broadcast_to(data.total_D, under.shape)[held]
        inner[held] = _inner_at_bound(here.take(held), total, under[held], over[held])
    slope = np.exp(here.log_slope)
    scale = slope * here.rise  # by the midpoint the curve moves by -scale * ds/dz
    g1, g2 = scale * inner[:, 1, 2], -scale * inner[:, 0, 2]
    square = scale**2
    h11, h22, h12 = square * inner[:, 1, 1], square * inner[:, 0, 0], -square * inner[:, 0, 1]
    h11, h22 = h11 * (1 + damping) + 1e-30, h22 * (1 + damping) + 1e-30
    determinant = np.maximum(h11 * h22 - h12**2, 1e-60)
    step_1, step_2 = (h22 * g1 - h12 * g2) / determinant, (h11 * g2 - h12 * g1) / determinant
    # Where a bound stops one of the two, the other goes alone.
    stop_1 = _stopped(here.log_slope, step_1, *limits)
    stop_2 = _stopped(here.midpoint, step_2, data.left_D, data.right_D) & ~stop_1
    if stop_1.any() or stop_2.any():
        step_1 = np.where(stop_1, 0.0, np.where(stop_2, g1 / h11, step_1))
        step_2 = np.where(stop_2, 0.0, np.where(stop_1, g2 / h22, step_2))
    return step_1, step_2


def _stopped(
    at_D: FloatArray, step_D: FloatArray, low: FloatArray | float, high: FloatArray | float
) -> NDArray[np.bool_]:
    return ((at_D <= low) & (step_D < 0)) | ((at_D >= high) & (step_D > 0))


def _inner_at_bound(
    here: _State, total_D: FloatArray, under_D: NDArray[np.bool_], over_D: NDArray[np.bool_]
) -> FloatArray:
    """What `_gauss_newton_step` needs where floor or ceiling is held by a bound, (D, 2, 3).

    The other end follows alone, so only its column is projected out (s, or 1 - s; none where both
    are held), and the residuals are those of the curve as held.
    """
    sums, rise = here.sums, here.rise
    raw = here.gram[:, :, :3] + sums[:, :, None] * (sums / total_D[:, None])[:, None, :]
    with_s = raw[:, :, 0]  # of s, ds/dz and (x - midpoint) ds/dz
    with_free = np.where(over_D[:, None], sums - with_s, with_s)[:, 1:]
    square = np.where(over_D, total_D - 2 * sums[:, 0] + with_s[:, 0], with_s[:, 0])
    square = np.where(under_D & over_D, np.inf, np.maximum(square, 1e-300))
    products = raw[:, 1:, 1:] - with_free[:, :, None] * (with_free / square[:, None])[:, None, :]
    level = here.floor + rise * sums[:, 0] / total_D
    residual = (
        here.gram[:, 1:, 3] - rise[:, None] * here.gram[:, 1:, 0] - sums[:, 1:] * level[:, None]
    )
    return np.concatenate([products, residual[:, :, None]], axis=2)
