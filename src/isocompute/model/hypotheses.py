"""Which scales, which noise: hypotheses weighed by their evidence.

The evidence of one hypothesis is Laplace's, at the mode of its curves.

Shape legend: H hypotheses, S settings of the noise, J configurations, K positions, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from isocompute.model.data import SweepData
from isocompute.model.form import FloatArray, Form, IntArray
from isocompute.model.importance import Sampler, flattened, systematic
from isocompute.model.noise import Noise, Scaling
from isocompute.model.prior import Prior
from isocompute.model.solve import Problem, gauss_newton, solve_modes


@dataclass
class Hypotheses:
    """Hypotheses about one form of curves."""

    data: SweepData
    form: Form
    prior: Prior  # of the curves' parameters and their scales
    noise: Noise  # its settings
    scaling: Scaling  # factors of the settings' covariances
    start: FloatArray  # parameters to begin from, (P,)
    log_scales: FloatArray = field(init=False)
    setting: IntArray = field(init=False)
    evidence: FloatArray = field(init=False)
    mode: FloatArray = field(init=False)
    log_weight: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.log_scales = np.zeros((0, self.prior.scales))
        self.setting = np.zeros(0, np.int64)
        self.evidence = np.zeros(0)
        self.mode = np.zeros((0, len(self.start)))

    def explore(self, rounds: int, size: int, rng: np.random.Generator) -> None:
        """Try hypotheses, `size` a round: from the prior first, then where the weight is."""
        sampler = Sampler(self.prior.scales, self.noise.weight_S)
        for round_ in range(rounds):
            z, setting = sampler.propose(size, rng, self.log_weight if round_ else None)
            self._try(self.prior.log_scales(z), setting)
            self.log_weight = self.evidence + sampler.log_ratio()

    def extend(self, simpler: Hypotheses, size: int, rng: np.random.Generator) -> float:
        """Take the hypotheses of a simpler form, with scales of what is new from the prior.

        Returns:
            Logarithm of the evidence of this form over that of the simpler one. Both are seen
            under the same hypotheses, so chance in what these are drops out.
        """
        row = np.sort(systematic(flattened(simpler.log_weight), size, rng))
        row = row[np.argsort(simpler.setting[row], kind="stable")]
        log_scales = self.prior.log_scales(rng.standard_normal((size, self.prior.scales)))
        known = simpler.prior.scales - 1
        log_scales[:, :known] = simpler.log_scales[row, :known]
        log_scales[:, -1] = simpler.log_scales[row, -1]
        self._try(log_scales, simpler.setting[row])
        self.log_weight = self.evidence - simpler.evidence[row]
        return float(np.logaddexp.reduce(self.log_weight) - np.log(size))

    def _try(self, log_scales: FloatArray, setting: IntArray) -> None:
        covariance = self.prior.covariance(log_scales)
        problem = Problem(
            form=self.form, x_JK=self.data.x_JK, whiten=self.scaling.whiten, group_B=setting
        )
        precision = covariance.inverse()
        shape = (len(setting), len(self.start))
        found = solve_modes(
            problem,
            np.broadcast_to(self.start, shape),
            self.data.score_JK[None],
            np.broadcast_to(self.prior.mean(), shape),
            precision,
            iterations=12,
        )
        curvature = gauss_newton(problem, found.parameters, precision)
        evidence = (
            -0.5 * found.loss
            - self.scaling.log_det[setting]
            - 0.5 * covariance.log_det()
            - 0.5 * np.linalg.slogdet(curvature)[1]
        )
        self.start = found.parameters[int(evidence.argmax())]
        self.log_scales = np.concatenate([self.log_scales, log_scales])
        self.setting = np.concatenate([self.setting, setting])
        self.evidence = np.concatenate([self.evidence, evidence])
        self.mode = np.concatenate([self.mode, found.parameters])
