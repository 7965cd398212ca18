"""What is believed of a sweep before it is seen: scales, and how configurations are alike.

Every parameter of a configuration's curve is a smooth function of (log2 n, log2 B_p) and a nugget:

    parameter = constant + line in log2 n + line in log2 B_p + smooth part + nugget

Its scales are hyperparameters, each log-normal around what the shipped sweeps have: one standard
deviation is a factor e (docs/model.md has the prior-predictive figure). The model weighs them by
evidence, so pooling is as strong as a sweep bears out.

Shape legend: J configurations, H hypotheses (hyperparameters), P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from isocompute.model.form import FloatArray, IntArray

OCTAVES = 3.0  # n (or B_p) within which curves resemble each other; docs/validation.md: half, twice

Places = tuple[FloatArray, FloatArray]  # log2 n and log2 B_p of some points


class Scale(NamedTuple):
    """Prior of one parameter: standard deviation of its constant, medians of its other scales."""

    constant: float
    line_n: float
    line_bp: float
    smooth: float
    nugget: float
    mean_line_n: float = 0.0
    mean_line_bp: float = 0.0


# Medians over octaves. Learnt from the shipped sweeps by benchmarks/prior_scales.py.
SCALES: tuple[Scale, ...] = (
    Scale(1.2, 0.13, 0.05, 0.08, 0.045, 0.10),  # logit of the ceiling above the floor
    Scale(0.6, 0.07, 0.04, 0.07, 0.06),  # log slope per decade
    Scale(1.0, 0.065, 0.10, 0.065, 0.045, 0.10, 0.10),  # midpoint, decades
    Scale(1.0, 0.10, 0.05, 0.10, 0.20),  # log of the fall per decade
    Scale(0.3, 0.05, 0.05, 0.05, 0.05),  # onset of the fall, decades
)
BUMP = 0.02  # of the form, in shares of the rise
SHARED = ((-0.7, 1.0), (-1.0, 1.0))  # log nu, log q: mean and standard deviation


class Blocks(NamedTuple):
    """Matrices over all parameters of a sweep, in which different parameters do not meet."""

    own: FloatArray  # (H, own, J, J): one parameter at all configurations
    shared: FloatArray  # (H, shared): the diagonal of those that they share

    def times(self, vector_HP: FloatArray) -> FloatArray:
        """Products with vectors, (H, P)."""
        H, (own, J) = len(vector_HP), self.own.shape[1:3]
        of_own = self.own @ vector_HP[:, : own * J].reshape(H, own, J, 1)
        of_shared = self.shared * vector_HP[:, own * J :]
        return np.concatenate([of_own.reshape(H, own * J), of_shared], axis=1)

    def take(self, row: IntArray | slice) -> Blocks:
        """Those of some rows."""
        return Blocks(self.own[row], self.shared[row])

    def inverse(self) -> Blocks:
        """Their inverses."""
        return Blocks(np.linalg.inv(self.own), 1 / self.shared)

    def log_det(self) -> FloatArray:
        """Logarithms of their determinants, (H,)."""
        own: FloatArray = np.linalg.slogdet(self.own)[1].sum(axis=1)
        return np.asarray(own + np.log(self.shared).sum(axis=1))

    def normal(self, size: int, rng: np.random.Generator, back: IntArray) -> FloatArray:
        """Normal draws (size, P) of mean 0, the covariance of each the row `back` of these."""
        own, J = self.own.shape[1:3]
        luck = rng.standard_normal((size, own * J + self.shared.shape[1], 1))
        of_own = np.linalg.cholesky(self.own)[back] @ luck[:, : own * J].reshape(size, own, J, 1)
        of_shared = np.sqrt(self.shared)[back] * luck[:, own * J :, 0]
        return np.concatenate([of_own.reshape(size, own * J), of_shared], axis=1)


@dataclass(frozen=True)
class Prior:
    """Priors of a sweep's curves under H hypotheses."""

    log2_n_J: FloatArray  # the configurations
    log2_bp_J: FloatArray
    centre: FloatArray  # mean of each parameter at the centre of the sweep, (own + shared,)
    floor_sd: float  # standard deviation of the logit of the floor
    own: int  # parameters per configuration

    @property
    def places(self) -> Places:
        """Where the configurations lie."""
        return self.log2_n_J, self.log2_bp_J

    @property
    def scales(self) -> int:
        """Hyperparameters of one hypothesis."""
        return self.own * 4 + 1

    def log_scales(self, z: FloatArray) -> FloatArray:
        """Log scales (H, scales) at points of a standard normal.

        For each parameter line in n, line in B_p, smooth part, nugget; then that of the bumps.
        """
        out: FloatArray = self.median() + z
        return out

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Log scales from their prior, (size, scales)."""
        return self.log_scales(rng.standard_normal((size, self.scales)))

    def median(self) -> FloatArray:
        """Log scales at their medians, (scales,)."""
        rows = [(s.line_n, s.line_bp, s.smooth, s.nugget) for s in SCALES[: self.own]]
        out: FloatArray = np.log(np.append(np.array(rows).ravel(), BUMP))
        return out

    def mean(self) -> FloatArray:
        """Prior mean of all parameters, (P,)."""
        n, bp = self.log2_n_J - self.log2_n_J.mean(), self.log2_bp_J - self.log2_bp_J.mean()
        own = [
            self.centre[i] + s.mean_line_n * n + s.mean_line_bp * bp
            for i, s in enumerate(SCALES[: self.own])
        ]
        return np.concatenate([*own, self.centre[self.own :]])

    def covariance(self, log_scales: FloatArray) -> Blocks:
        """Prior covariance of all parameters under H hypotheses."""
        J = len(self.log2_n_J)
        own = np.stack(
            [
                self.smooth(i, log_scales, self.places, self.places)
                + np.exp(2 * log_scales[:, 4 * i + 3])[:, None, None] * np.eye(J)
                for i in range(self.own)
            ],
            axis=1,
        )
        shared = np.empty((len(log_scales), len(self.centre) - self.own))
        shared[:, 0] = self.floor_sd**2
        shared[:, 1:3] = SHARED[0][1] ** 2, SHARED[1][1] ** 2
        shared[:, 3:] = np.exp(2 * log_scales[:, -1:])
        return Blocks(own, shared)

    def smooth(
        self, parameter: int, log_scales: FloatArray, here: Places, there: Places
    ) -> FloatArray:
        """Covariance of the smooth part of a parameter between two sets of points, (H, ., .)."""
        line_n, line_bp, rough, _ = (
            np.exp(2 * log_scales[:, 4 * parameter + i])[:, None, None] for i in range(4)
        )
        lines_n, lines_bp = (
            np.outer(a - own.mean(), b - own.mean())
            for a, b, own in zip(here, there, self.places, strict=True)
        )
        constant = SCALES[parameter].constant ** 2
        alike = similarity(here, there)
        out: FloatArray = constant + line_n * lines_n + line_bp * lines_bp + rough * alike
        return out


def similarity(here: Places, there: Places) -> FloatArray:
    """Correlation of the smooth part of a parameter between two sets of points."""
    square_n, square_bp = ((a[:, None] - b) ** 2 for a, b in zip(here, there, strict=True))
    out: FloatArray = np.exp(-0.5 * (square_n + square_bp) / OCTAVES**2)
    return out


def matern(distance: FloatArray, length: float) -> FloatArray:
    """Matern-3/2 correlation."""
    d = np.sqrt(3.0) * np.abs(distance) / length
    out: FloatArray = (1 + d) * np.exp(-d)
    return out
