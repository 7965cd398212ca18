"""Which scales, which noise: hypotheses weighed by their evidence, by adaptive importance sampling.

A first set comes from the prior, further ones from where the weight is (Cappe et al. 2004, J.
Comput. Graph. Stat. 13:907), all weighed over the mixture of every proposal (balance heuristic,
Veach and Guibas 1995). The evidence of one hypothesis is Laplace's, at the mode of its curves.

Shape legend: H hypotheses, S settings of the noise, J configurations, K positions, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.model.data import SweepData
from isocompute.model.form import Form
from isocompute.model.noise import Noise, Scaling
from isocompute.model.prior import Prior
from isocompute.model.solve import Problem, solve_modes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FROM_PRIOR = 0.15  # of later proposals, so that no region of the prior is forgotten
LEAST_WORTH = 0.2  # weights are flattened until they are worth this share of their number


class _Proposal(NamedTuple):
    """Where a set came from: a normal with some of the prior, or (None) the prior alone."""

    size: int
    mean: FloatArray | None
    covariance: FloatArray | None
    share_S: FloatArray

    def log_density(self, prior: Prior, log_scales: FloatArray, setting: IntArray) -> FloatArray:
        """Of hypotheses, up to the constant of a standard normal, (H,)."""
        density = prior.log_density(log_scales)
        if self.mean is not None and self.covariance is not None:
            lower = np.linalg.cholesky(self.covariance)
            z = np.linalg.solve(lower, (log_scales - self.mean).T)
            own = -0.5 * (z**2).sum(axis=0) - np.log(np.diagonal(lower)).sum()
            density = np.logaddexp(np.log(1 - FROM_PRIOR) + own, np.log(FROM_PRIOR) + density)
        return np.asarray(density + np.log(self.share_S[setting]))


@dataclass
class Hypotheses:
    """Hypotheses about one form of curves, explored step by step.

    Args:
        data: the sweep.
        form: of its curves.
        prior: of their parameters and scales.
        noise: settings of the noise.
        scaling: factors of the settings' covariances.
        start: parameters to begin from, (P,).
    """

    data: SweepData
    form: Form
    prior: Prior
    noise: Noise
    scaling: Scaling
    start: FloatArray
    log_scales: FloatArray = field(init=False)
    setting: IntArray = field(init=False)
    evidence: FloatArray = field(init=False)
    mode: FloatArray = field(init=False)
    _proposals: list[_Proposal] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.log_scales = np.zeros((0, self.prior.scales))
        self.setting = np.zeros(0, np.int64)
        self.evidence = np.zeros(0)
        self.mode = np.zeros((0, len(self.start)))

    def explore(self, size: int, rng: np.random.Generator) -> None:
        """Try further hypotheses: from the prior first, then from where the weight is."""
        log_scales, setting = self._propose(size, rng)
        order = np.argsort(setting, kind="stable")
        log_scales, setting = log_scales[order], setting[order]
        covariance = self.prior.covariance(log_scales)
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        problem = Problem(
            form=self.form,
            x_JK=self.data.x_JK,
            whiten=self.scaling.whiten,
            group_B=setting,
        )
        shape = (size, len(self.start))
        found = solve_modes(
            problem,
            np.broadcast_to(self.start, shape),
            self.data.score_JK[None],
            np.broadcast_to(self.prior.mean(), shape),
            precision,
            iterations=12,
        )
        evidence = (
            -0.5 * found.loss
            - self.scaling.log_det[setting]
            - 0.5 * np.linalg.slogdet(covariance)[1]
            - 0.5 * np.linalg.slogdet(found.precision)[1]
        )
        self.start = found.parameters[int(evidence.argmax())]
        self.log_scales = np.concatenate([self.log_scales, log_scales])
        self.setting = np.concatenate([self.setting, setting])
        self.evidence = np.concatenate([self.evidence, evidence])
        self.mode = np.concatenate([self.mode, found.parameters])

    def _propose(self, size: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
        settings = self.noise.weight_S
        if not self._proposals:
            self._proposals.append(_Proposal(size, None, None, settings))
            return self.prior.sample(size, rng), rng.choice(len(settings), size, p=settings)
        w = _flattened(self.log_weights())
        mean = w @ self.log_scales
        apart = self.log_scales - mean
        covariance = 1.3 * (apart * w[:, None]).T @ apart + 0.05 * np.eye(len(mean))
        seen = np.bincount(self.setting, w, minlength=len(settings))
        share: FloatArray = (1 - FROM_PRIOR) * seen + FROM_PRIOR * settings
        self._proposals.append(_Proposal(size, mean, covariance, share))
        drawn = rng.multivariate_normal(mean, covariance, size)
        wide = rng.random(size) < FROM_PRIOR
        drawn[wide] = self.prior.sample(int(wide.sum()), rng)
        return drawn, rng.choice(len(settings), size, p=share / share.sum())

    def log_weights(self) -> FloatArray:
        """Logarithms of the posterior weights (H,); their sum estimates the form's evidence."""
        total = sum(p.size for p in self._proposals)
        mixture = [
            np.log(p.size / total) + p.log_density(self.prior, self.log_scales, self.setting)
            for p in self._proposals
        ]
        own = self.prior.log_density(self.log_scales) + np.log(self.noise.weight_S[self.setting])
        out: FloatArray = self.evidence + own - np.logaddexp.reduce(mixture, axis=0)
        out -= np.log(len(out))
        return out


def _flattened(log_weight: FloatArray) -> FloatArray:
    power, w = 1.0, np.zeros(0)
    for _ in range(12):
        w = np.exp(power * (log_weight - log_weight.max()))
        w /= w.sum()
        if 1 / (w**2).sum() >= LEAST_WORTH * len(w):
            break
        power *= 0.7
    return w
