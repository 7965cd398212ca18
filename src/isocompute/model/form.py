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

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# A fall sets in over this many decades: half of the spacing of usual evaluation grids. Half and
# twice of it move no score of the planted worlds that fall by more than 0.001.
HINGE = 0.15
# Bumps of the form, in z: from before its foot to well past its bend.
SPACING = 3.0
KNOTS = np.arange(-3.0, 9.1, SPACING)


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

    shared = 3 + len(KNOTS)  # logit of the floor, log nu, log q, then the bumps of the form

    def value(self, own: FloatArray, shared: FloatArray, x: FloatArray) -> FloatArray:
        """Scores, shape (J, K, B).

        Args:
            own: (own, J, B).
            shared: (3, B).
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
        x = x[:, :, None]
        a, k, m = (own[i][:, None, :] for i in range(3))
        nu, q = np.exp(shared[1]), np.exp(shared[2])
        slope = np.exp(k)
        far = x - m
        z = np.clip(slope * far, -30.0, 30.0)
        e = np.exp(-z)
        ve = nu * e
        log_base = np.log1p(ve) / nu
        log_g = -log_base
        rest = -np.expm1(log_g)  # 1 - G
        hazard = -np.log(np.maximum(rest, 1e-300))
        tail = 1 + q * hazard
        log_tail = np.log(tail)
        survive = np.exp(-log_tail / q)
        g = 1 - survive
        g = g + _spline(z, shared[3:])
        floor, height = _sigma(shared[0]), _sigma(a)
        rise = (1 - floor) * height
        value = floor + rise * g
        fall = None
        if self.declines:
            u = (x - own[4][:, None, :]) / HINGE
            fall = np.exp(own[3][:, None, :]) * HINGE * np.logaddexp(0.0, u)
            value = value - fall
        if not derivatives:
            return value, None
        dg_dhazard = survive / tail
        dg_dG = dg_dhazard / np.maximum(rest, 1e-300)
        G = np.exp(log_g)
        share = e / (1 + ve)
        dg_dz = dg_dG * G * share
        bump, dbump = _bumps(z)
        for part, weight in zip(dbump, shared[3:], strict=True):
            dg_dz += part * weight
        dg_dlognu = dg_dG * G * (log_base - share)
        dg_dlogq = -survive * (log_tail / q - hazard / tail)
        J, K, B = value.shape
        out = np.empty((J, K, self.own + self.shared, B))
        out[:, :, 0] = rise * (1 - height) * g
        out[:, :, 1] = rise * dg_dz * slope * far
        out[:, :, 2] = -rise * dg_dz * slope
        if self.declines and fall is not None:
            out[:, :, 3] = -fall
            out[:, :, 4] = np.exp(own[3][:, None, :]) * _sigma(u)
        o = self.own
        out[:, :, o] = floor * (1 - floor) * (1 - height * g)
        out[:, :, o + 1] = rise * dg_dlognu
        out[:, :, o + 2] = rise * dg_dlogq
        out[:, :, o + 3 :] = (rise * bump).transpose(1, 2, 0, 3)
        return value, out


def _bumps(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Cubic B-splines at z and their derivatives, (knots, *z.shape)."""
    t = (z - KNOTS.reshape(-1, *[1] * z.ndim)) * (1 / SPACING)
    u = np.abs(t)
    far = np.maximum(2 - u, 0.0)
    near = np.maximum(1 - u, 0.0)
    far_square, near_square = far * far, near * near
    value = 0.25 * (far_square * far - 4 * near_square * near)
    slope = np.sign(t) * (near_square * 4 - far_square) * (0.75 / SPACING)
    return value, slope


def _spline(z: FloatArray, weights: FloatArray) -> FloatArray:
    """The weighted sum of the bumps at z (J, K, B), from the four that are not 0 there."""
    place = np.clip((z - KNOTS[0]) / SPACING, -2.0, len(KNOTS) + 0.999)
    left = np.floor(place)
    u = place - left
    v = 1 - u
    padded = np.pad(weights, ((3, 4), (0, 0))).ravel()
    at = (left.astype(np.int64) + 2) * weights.shape[1] + np.arange(weights.shape[1])
    uuu, vvv = u * u * u, v * v * v
    out = padded[at] * vvv
    at += weights.shape[1]
    out += padded[at] * ((1 + v) ** 2 * (1 + v) - 4 * vvv)
    at += weights.shape[1]
    out += padded[at] * ((1 + u) ** 2 * (1 + u) - 4 * uuu)
    at += weights.shape[1]
    out += padded[at] * uuu
    out *= 0.25
    return out


def _sigma(z: FloatArray) -> FloatArray:
    out: FloatArray = 0.5 * (1 + np.tanh(0.5 * z))
    return out
