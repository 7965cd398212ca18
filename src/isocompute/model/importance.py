"""Adaptive importance sampling: a first set from the prior, further ones from where the weight is.

Sets are weighed over the mixture of every proposal (Cappe et al. 2004, J. Comput. Graph. Stat.
13:907; balance heuristic, Veach and Guibas 1995).

Shape legend: H points, Z their coordinates (standard normal in the prior), S settings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isocompute.model.form import FloatArray, IntArray

FROM_PRIOR = 0.15  # of later proposals, so that no region of the prior is forgotten
# Weights are flattened until they are worth this share of their number, or so many points for each
# coordinate: all of many rounds would hold on to where the first ones looked. Half as many points
# a coordinate take as many rounds, twice as many a fifth more.
LEAST_WORTH, POINTS = 0.2, 3
# A fitted normal is this much wider than the weighted points, which are few, and never narrower
# than this variance of the prior: half or twice of either moves no score by 0.1 of its spread.
WIDER, NARROWEST = 1.3, 0.05


class _Proposal(NamedTuple):
    """Where a set came from."""

    size: int
    share_S: FloatArray
    normal: tuple[FloatArray, FloatArray] | None  # mean and Cholesky factor; None: the prior alone

    def log_density(self, z_HZ: FloatArray, setting_H: IntArray) -> FloatArray:
        density = -0.5 * (z_HZ**2).sum(axis=1)
        if self.normal is not None:
            mean, lower = self.normal
            apart = np.linalg.solve(lower, (z_HZ - mean).T)
            own = -0.5 * (apart**2).sum(axis=0) - np.log(np.diagonal(lower)).sum()
            density = np.logaddexp(np.log(1 - FROM_PRIOR) + own, np.log(FROM_PRIOR) + density)
        return np.asarray(density + np.log(self.share_S[setting_H]))


class Sampler:
    """Points proposed so far, of so many coordinates; `prior_S` of each setting of a point."""

    def __init__(self, coordinates: int, prior_S: FloatArray) -> None:
        self.prior_S = prior_S
        self.z_HZ = np.zeros((0, coordinates))
        self.setting_H = np.zeros(0, np.int64)
        self._proposals: list[_Proposal] = []

    def propose(
        self, size: int, rng: np.random.Generator, log_weight_H: FloatArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        """Further points, ascending in their setting.

        Args:
            log_weight_H: of those proposed before; None before there are any.
        """
        coordinates = self.z_HZ.shape[1]
        z, share, normal = rng.standard_normal((size, coordinates)), self.prior_S, None
        if log_weight_H is not None:
            w = flattened(log_weight_H, POINTS * coordinates)
            mean = w @ self.z_HZ
            apart = self.z_HZ - mean
            covariance = WIDER * (apart * w[:, None]).T @ apart
            covariance += NARROWEST * np.eye(coordinates)
            normal = mean, np.linalg.cholesky(covariance)
            moved = rng.random(size) >= FROM_PRIOR
            z[moved] = mean + z[moved] @ normal[1].T
            seen = np.bincount(self.setting_H, w, minlength=len(share))
            share = (1 - FROM_PRIOR) * seen + FROM_PRIOR * share
        self._proposals.append(_Proposal(size, share, normal))
        setting = np.sort(rng.choice(len(share), size, p=share / share.sum()))
        self.z_HZ = np.concatenate([self.z_HZ, z])
        self.setting_H = np.concatenate([self.setting_H, setting])
        return z, setting

    def log_ratio(self) -> FloatArray:
        """Prior over mixture of the proposals, of every point (H,), in logarithms."""
        mixture = [
            np.log(p.size / len(self.z_HZ)) + p.log_density(self.z_HZ, self.setting_H)
            for p in self._proposals
        ]
        prior = -0.5 * (self.z_HZ**2).sum(axis=1) + np.log(self.prior_S[self.setting_H])
        return np.asarray(prior - np.logaddexp.reduce(mixture, axis=0))


def flattened(log_weight_H: FloatArray, enough: float = np.inf) -> FloatArray:
    """Weights that sum to 1, raised to a power below 1 until enough of them count."""
    power, w = 1.0, np.zeros(0)
    for _ in range(12):
        w = np.exp(power * (log_weight_H - log_weight_H.max()))
        w /= w.sum()
        if worth(w) >= min(enough, LEAST_WORTH * len(w)):
            break
        power *= 0.7
    return w


def worth(weight_H: FloatArray) -> float:
    """How many even weights say as much: Kish's effective number."""
    return float(weight_H.sum() ** 2 / max((weight_H**2).sum(), 1e-300))


def systematic(weight_H: FloatArray, size: int, rng: np.random.Generator) -> IntArray:
    """Indices drawn by weight with one random number: less noise than a multinomial."""
    at = (np.arange(size) + rng.random()) / size
    total = np.cumsum(weight_H)
    return np.minimum(np.searchsorted(total / total[-1], at), len(weight_H) - 1)
