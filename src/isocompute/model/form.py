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
from itertools import pairwise
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
        return self._evaluate(own, shared, x, None)

    def value_and_jacobian(
        self, own: FloatArray, shared: FloatArray, x: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Scores (J, K, B) and their derivatives (J, K, C, B)."""
        J, B = own.shape[1:]
        jacobian = np.empty((self.own + self.shared, x.shape[1], J, B), own.dtype)
        return self._evaluate(own, shared, x, jacobian), jacobian.transpose(2, 1, 0, 3)

    def _evaluate(
        self, own: FloatArray, shared: FloatArray, x: FloatArray, jacobian: FloatArray | None
    ) -> FloatArray:
        """In blocks of positions and configurations, each with its whole batch.

        Blocks stay in a cache. Positions come first in them: what belongs to a configuration then
        meets all of its block in few long loops, where each row of a small batch would be one.
        """
        J, B = own.shape[1:]
        K = x.shape[1]
        kind = own.dtype
        own, shared = np.ascontiguousarray(own), np.ascontiguousarray(shared)
        x_KJ1 = np.broadcast_to(x.astype(kind), (J, K)).T[:, :, None]
        value = np.empty((J, K, B), kind)
        parts_J = _stretches(J, BLOCK // max(B, 1))
        for of in parts_J:
            for at in _stretches(K, BLOCK // max(parts_J[0].stop * B, 1)):
                part = None if jacobian is None else jacobian[:, at, of]
                score = self._fill(part, own[:, of], shared, x_KJ1[at, of])
                value[of, at] = score.transpose(1, 0, 2)
        return value

    def _fill(
        self, jacobian: FloatArray | None, own: FloatArray, shared: FloatArray, x: FloatArray
    ) -> FloatArray:
        """Scores (K, J, B) of one block, and into `jacobian` (C, K, J, B) their derivatives."""
        J, B = own.shape[1:]
        a, k, m = own[:3]
        floor, nu, q = (
            np.broadcast_to(one, (J, B)).copy()
            for one in (sigma(shared[0]), np.exp(shared[1]), np.exp(shared[2]))
        )
        slope, height = np.exp(k), sigma(a)
        rise = (1 - floor) * height
        x = np.broadcast_to(x, (len(x), J, B)).copy()
        scaled = x - m
        scaled *= slope
        # Trajectories of draws may leave the numbers (fmax makes -30 of a nan); they are then not
        # taken.
        z = np.fmax(np.clip(scaled, -30.0, 30.0), np.full_like(scaled, -30.0))
        e = np.exp(-z)
        ve = nu * e
        log_base = np.log1p(ve)
        log_base /= nu
        rest = -np.expm1(-log_base)  # 1 - G
        np.clip(rest, np.finfo(rest.dtype).tiny, np.inf, out=rest)
        hazard = -np.log(rest)
        tail = q * hazard
        tail += 1
        log_tail = np.log(tail)
        log_tail /= q
        survive = np.exp(-log_tail)
        spline, dspline = _spline(z, shared[BEFORE_BUMPS:], derivative=jacobian is not None)
        g = 1 - survive
        g += spline
        value: FloatArray = rise * g
        value += floor
        if self.declines:
            fall, onset = np.exp(own[3]), own[4]
            u = (x - onset) / HINGE
            # log(1 + exp(u)), an eighth of the time of logaddexp
            hinge = np.clip(u, 0.0, np.inf) + np.log1p(np.exp(-np.abs(u)))
            hinge *= fall * HINGE
            value -= hinge
            if jacobian is not None:
                np.negative(hinge, out=jacobian[3])
                np.multiply(fall, sigma(u), out=jacobian[4])
        if jacobian is None:
            return value
        of_shared = jacobian[self.own :]
        ve += 1
        share = e / ve
        dg = survive / (tail * rest)
        dg *= 1 - rest
        dz = dg * share
        dz += dspline
        dz *= rise
        np.multiply(rise * (1 - height), g, out=jacobian[0])
        np.multiply(dz, scaled, out=jacobian[1])
        np.multiply(dz, -slope, out=jacobian[2])
        g *= height
        np.multiply(floor * (1 - floor), 1 - g, out=of_shared[0])
        dg *= rise
        log_base -= share
        np.multiply(dg, log_base, out=of_shared[1])
        survive *= -rise
        hazard /= tail
        log_tail -= hazard
        np.multiply(survive, log_tail, out=of_shared[2])
        _bumps(z, rise, of_shared[BEFORE_BUMPS:])
        return value


def _stretches(length: int, most: int) -> list[slice]:
    """The fewest stretches of at most so many, about as long as each other."""
    count = max(-(-length // max(most, 1)), 1)
    ends = [length * i // count for i in range(count + 1)]
    return [slice(*between) for between in pairwise(ends)]


def _bumps(z: FloatArray, scale: FloatArray, out: FloatArray) -> None:
    """Cubic B-splines at z, times a scale, one after the other."""
    near, far, nothing = np.empty_like(z), np.empty_like(z), np.zeros_like(z)
    quarter = 0.25 * scale
    for of, knot in zip(out, KNOTS, strict=True):
        np.subtract(z, knot, out=near)
        np.abs(near, out=near)
        near *= 1 / SPACING
        np.subtract(1, near, out=near)
        np.add(near, 1, out=far)
        np.maximum(far, nothing, out=far)  # of an array: a quarter of the time of a number
        np.maximum(near, nothing, out=near)
        np.multiply(far, far, out=of)
        of *= far
        np.multiply(near, near, out=far)
        far *= near
        far *= 4
        of -= far
        of *= quarter


def _spline(
    z: FloatArray, weights: FloatArray, *, derivative: bool
) -> tuple[FloatArray, FloatArray | float]:
    """The weighted sum of the bumps at z (K, J, B), and its slope, from the four not 0 there."""
    place = z - KNOTS[0]
    place *= 1 / SPACING
    np.clip(place, -2.0, len(KNOTS) + 0.999, out=place)
    left = np.floor(place)
    u = np.subtract(place, left, out=place)
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
    at = left.astype(np.int64)
    at *= B
    at += np.arange(2 * B, 3 * B)
    c0, c1, c2, c3 = ((0.25 * piece).ravel().take(at) for piece in pieces)
    value = c3 * u
    for c in (c2, c1):
        value += c
        value *= u
    value += c0
    if not derivative:
        return value, 0.0
    c3 *= 3
    c3 *= u
    c2 *= 2
    c3 += c2
    c3 *= u
    c3 += c1
    c3 *= 1 / SPACING
    return value, c3


def sigma(z: FloatArray) -> FloatArray:
    """The logistic function."""
    out: FloatArray = 0.5 * (1 + np.tanh(0.5 * z))
    return out
