"""The form of a learning curve: score of one configuration against log10 of what was spent.

    score(x) = floor + (1 - floor) sigma(a) g(exp(k) (x - m); nu, q)  [- exp(e) h(x - t)]

`g` rises from 0 to 1. With H the cumulative hazard of Richards' curve
G(z) = (1 + nu exp(-z))^(-1/nu), H = -log(1 - G), it is g = 1 - (1 + q H)^(-1/q): Gompertz as
nu -> 0, logistic at nu = 1 (both as q -> 0), and with growing q an approach to the ceiling that is
algebraic in log C, slower than any power of C. `h` is a smooth hinge: after its onset t the score
falls by exp(e) per decade.

Everything that a form needs stands here: another form is another `Form` with the same methods.

Shape legend: J configurations, K positions, B batch (hypotheses or draws), C parameters of one
configuration's curve (its own first, then the shared ones). Arrays are (J, K, B): batch last.

Source: Richards 1959 (J. Exp. Bot. 10:290) for G; the tail is ours (docs/model.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.int64]

# A fall sets in over this many decades: half of the spacing of usual evaluation grids. Half and
# twice of it move no score of the planted worlds that fall by more than 0.001.
HINGE = 0.15
# Bumps of the form, in z: from before its foot to well past its bend.
SPACING = 3.0
KNOTS = (-3.0, 0.0, 3.0, 6.0, 9.0)
BLOCK = 16384  # numbers of one work array; 8,192 and 32,768 are as fast
BEFORE_BUMPS = 3  # shared parameters before the bumps: logit of the floor, log nu, log q


@dataclass(frozen=True)
class Form:
    """The curve and its derivatives.

    Args:
        declines: whether scores may fall after a peak (parameters e and t).
    """

    declines: bool = False

    @property
    def own(self) -> int:
        """Parameters of each configuration: a, k, m, and of a decline e, t."""
        return 5 if self.declines else 3

    shared = BEFORE_BUMPS + len(KNOTS)

    def value(self, own: FloatArray, shared: FloatArray, x: FloatArray) -> FloatArray:
        """Scores, shape (J, K, B).

        Args:
            own: (own, J, B).
            shared: (shared, B).
            x: log10 of the budget, (J, K) or (1, K).
        """
        return self._evaluate(own, shared, x, derivatives=False)[0]

    def value_and_jacobian(
        self, own: FloatArray, shared: FloatArray, x: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Scores (J, K, B) and their derivatives (J, K, C, B)."""
        value, jacobian = self._evaluate(own, shared, x, derivatives=True)
        assert jacobian is not None
        return value, jacobian

    def _evaluate(
        self, own: FloatArray, shared: FloatArray, x: FloatArray, *, derivatives: bool
    ) -> tuple[FloatArray, FloatArray | None]:
        """In blocks of configurations, each with its whole batch: they stay in a cache."""
        J, B = own.shape[1:]
        K = x.shape[1]
        kind, C = own.dtype, self.own + self.shared
        x_JK = np.broadcast_to(x.astype(kind), (J, K))
        value = np.empty((J, K, B), kind)
        jacobian = np.empty((J, K, C, B), kind) if derivatives else None
        block = max(BLOCK // max(K * B, 1), 1)
        for low in range(0, J, block):
            part = slice(low, low + block)
            self._fill(
                value[part],
                None if jacobian is None else jacobian[part],
                own[:, part],
                shared,
                x_JK[part, :, None],
            )
        return value, jacobian

    def _fill(
        self,
        value: FloatArray,
        jacobian: FloatArray | None,
        own: FloatArray,
        shared: FloatArray,
        x: FloatArray,
    ) -> None:
        a, k, m = (own[i][:, None, :] for i in range(3))
        nu, q = np.exp(shared[1]), np.exp(shared[2])
        slope = np.exp(k)
        far = x - m
        # Trajectories of draws may leave the numbers (fmin and fmax make -30 of a nan); they are
        # then not taken.
        z = np.fmin(np.fmax(slope * far, -30.0), 30.0)
        e = np.exp(-z)
        ve = nu * e
        log_base = np.log1p(ve) / nu
        rest = -np.expm1(-log_base)  # 1 - G
        np.maximum(rest, np.finfo(rest.dtype).tiny, out=rest)
        hazard = -np.log(rest)
        tail = 1 + q * hazard
        log_tail = np.log(tail) / q
        survive = np.exp(-log_tail)
        spline, dspline = _spline(z, shared[BEFORE_BUMPS:], derivative=jacobian is not None)
        g = 1 - survive + spline
        floor, height = sigma(shared[0]), sigma(a)
        rise = (1 - floor) * height
        np.multiply(rise, g, out=value)
        value += floor
        fall = None
        if self.declines:
            u = (x - own[4][:, None, :]) / HINGE
            # log(1 + exp(u)), an eighth of the time of logaddexp
            hinge = np.maximum(u, 0.0) + np.log1p(np.exp(-np.abs(u)))
            fall = np.exp(own[3][:, None, :]) * HINGE * hinge
            value -= fall
        if jacobian is None:
            return
        dg_dG = survive / (tail * rest)
        share = e / (1 + ve)
        dg = dg_dG * (1 - rest)
        dz = rise * (dg * share + dspline)
        jacobian[:, :, 0] = rise * (1 - height) * g
        jacobian[:, :, 2] = dz * -slope
        jacobian[:, :, 1] = dz * (slope * far)
        if fall is not None:
            jacobian[:, :, 3] = -fall
            jacobian[:, :, 4] = np.exp(own[3][:, None, :]) * sigma(u)
        o = self.own
        jacobian[:, :, o] = floor * (1 - floor) * (1 - height * g)
        jacobian[:, :, o + 1] = rise * dg * (log_base - share)
        jacobian[:, :, o + 2] = rise * -survive * (log_tail - hazard / tail)
        for r, knot in enumerate(KNOTS):
            jacobian[:, :, o + BEFORE_BUMPS + r] = rise * _bump(z, knot)


def _bump(z: FloatArray, knot: float) -> FloatArray:
    """One cubic B-spline at z."""
    near = 1 - np.abs(z - knot) * (1 / SPACING)
    far = np.maximum(near + 1, 0.0)
    np.maximum(near, 0.0, out=near)
    out: FloatArray = far * far * far
    out -= 4 * (near * near * near)
    out *= 0.25
    return out


def _spline(
    z: FloatArray, weights: FloatArray, *, derivative: bool
) -> tuple[FloatArray, FloatArray | float]:
    """The weighted sum of the bumps at z (J, K, B), and its slope, from the four not 0 there."""
    place = np.clip((z - KNOTS[0]) * (1 / SPACING), -2.0, len(KNOTS) + 0.999)
    left = np.floor(place)
    u = place - left
    B = weights.shape[1]
    padded = np.zeros((len(KNOTS) + 7, B), weights.dtype)
    padded[3:-4] = weights
    # Of each piece the cubic in u that its four bumps add up to.
    w0, w1, w2, w3 = (padded[i : i - 3 or None] for i in range(4))
    pieces = (
        w0 + 4 * w1 + w2,
        3 * (w2 - w0),
        3 * (w0 + w2) - 6 * w1,
        w3 - w0 + 3 * (w1 - w2),
    )
    at = (left.astype(np.int64) + 2) * B + np.arange(B)
    c0, c1, c2, c3 = ((0.25 * piece).ravel().take(at) for piece in pieces)
    value = ((c3 * u + c2) * u + c1) * u + c0
    if not derivative:
        return value, 0.0
    slope = ((3 * c3 * u + 2 * c2) * u + c1) * (1 / SPACING)
    return value, slope


def sigma(z: FloatArray) -> FloatArray:
    """The logistic function."""
    out: FloatArray = 0.5 * (1 + np.tanh(0.5 * z))
    return out
