"""Simulated GRPO: learning curves with a mechanism of their own, not a form.

Each problem q has a policy that succeeds with probability sigmoid(theta_q). One step of GRPO on
B_p problems with n rollouts each moves theta by

    signal   rate * [(1 - shared) * s(n, p_q) + shared * mean of s], at most `largest_step`;
             s(n, p) = E sqrt(k/n (1 - k/n) (n-1)/n), k ~ Binomial(n, p), is the exact gradient of a
             group with advantages (r - mean) / std; a group without both outcomes gives none, so a
             hard problem needs a large n
    lost     - rate * forgetting * sqrt(128 / B) * tanh((theta_q - theta_q at the start) / 2):
             what noisy steps undo, less with larger batches
    noise    rate * noise / sqrt(B), `common` of its variance the same for all problems of a run

and the score is `solvable` times the mean success: the other problems are beyond the model.
Here rate = `rate` * sqrt(B / 128). Small batches learn sooner per rollout and end lower; large ones
are limited by the size of a step. Steps are taken in blocks short against every change.

Shape legend: R runs, Q problems, K evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri
from scipy.stats import binom

from isocompute.testing.noises import Noise
from isocompute.testing.truth import Arm

FloatArray = NDArray[np.float64]

_MEAN_RUNS = 96  # runs behind a true mean curve
_MEAN_SEED = 20261122
_PROBLEMS = 200
_BLOCK = 0.05  # of the steps so far, in one block
_STIFF = 0.6  # rate times steps of one block, at most
_LOGITS = np.linspace(-14.0, 14.0, 281)


@dataclass(frozen=True, kw_only=True)
class Grpo:
    """The mechanism's numbers; see the top of the file."""

    base_mean: float
    base_sd: float
    rate: float = 0.0064
    shared: float = 0.6
    forgetting: float = 0.30
    noise: float = 6.0
    common: float = 0.3
    largest_step: float = 0.012
    solvable: float = 0.8


@dataclass(frozen=True, kw_only=True)
class SimulatedArm(Arm):
    """A configuration of simulated GRPO.

    `floor`, `ceiling`, `slope` and `midpoint` are unused. Runs differ by the mechanism's own
    noise; `ceiling_sd`, `midpoint_sd` and `slope_sd` of a `Noise` do not apply.

    Args:
        grpo: the mechanism.
    """

    grpo: Grpo
    floor: float = 0.0
    ceiling: float = 1.0
    slope: float = 1.0
    midpoint: float = 0.0

    def score(
        self,
        log10_rollouts: ArrayLike,
        ceiling_shift: float = 0.0,
        midpoint_shift: float = 0.0,
        slope_shift: float = 0.0,  # noqa: ARG002 (a mechanism has no slope)
    ) -> FloatArray:
        """The mean curve, shifted."""
        steps = 10 ** (np.asarray(log10_rollouts, dtype=np.float64) - midpoint_shift)
        steps_K, mean_K = mean_curve(self.problems_per_batch, self.rollouts_per_problem, self.grpo)
        score = np.interp(np.log1p(steps / self.batch_size), np.log1p(steps_K), mean_K)
        out: FloatArray = np.clip(score + ceiling_shift, 0.0, 1.0)
        return out

    def mean(self, log10_rollouts: ArrayLike, noise: Noise) -> FloatArray:  # noqa: ARG002
        """True score, averaged over runs of the mechanism."""
        return self.score(log10_rollouts)

    def run(
        self,
        log10_rollouts: FloatArray,
        noise: Noise,  # noqa: ARG002 (runs differ by the mechanism)
        seed: int,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> FloatArray:
        """True scores of one run's checkpoints."""
        steps_K = 10**log10_rollouts / self.batch_size
        score_RK = simulate(
            self.problems_per_batch, self.rollouts_per_problem, self.grpo, steps_K, 1, rng
        )
        score_K: FloatArray = score_RK[0]
        return score_K


@cache
def signal_table(rollouts_per_problem: int) -> FloatArray:
    """s(n, p) at the logits of the table."""
    n = rollouts_per_problem
    k = np.arange(n + 1)
    size = np.sqrt(k / n * (1 - k / n) * (n - 1) / n)
    table: FloatArray = np.array([float(binom.pmf(k, n, p) @ size) for p in expit(_LOGITS)])
    return table


def simulate(
    problems_per_batch: int,
    rollouts_per_problem: int,
    grpo: Grpo,
    steps_K: FloatArray,
    runs: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Mean score over problems at ascending steps, shape (R, K)."""
    batch = problems_per_batch * rollouts_per_problem
    rate = grpo.rate * np.sqrt(batch / 128)
    lost = rate * grpo.forgetting * np.sqrt(128 / batch)
    sd = rate * grpo.noise / np.sqrt(batch)
    own_sd, common_sd = sd * np.sqrt(1 - grpo.common), sd * np.sqrt(grpo.common)
    table = signal_table(rollouts_per_problem)
    start_Q = grpo.base_mean + grpo.base_sd * ndtri((np.arange(_PROBLEMS) + 0.5) / _PROBLEMS)
    theta = np.repeat(start_Q[None], runs, axis=0)
    out, now = np.empty((runs, len(steps_K))), 0.0
    for k, target in enumerate(steps_K):
        while now < target - 1e-9:
            block = min(max(1.0, _BLOCK * now), _STIFF / rate, target - now)
            s = np.interp(theta, _LOGITS, table)
            moved = rate * ((1 - grpo.shared) * s + grpo.shared * s.mean(axis=1, keepdims=True))
            drift = np.minimum(moved, grpo.largest_step) - lost * np.tanh((theta - start_Q) / 2)
            shocks = own_sd * rng.standard_normal(theta.shape)
            shocks += common_sd * rng.standard_normal((runs, 1))
            theta = theta + block * drift + np.sqrt(block) * shocks
            now += block
        out[:, k] = grpo.solvable * expit(theta).mean(axis=1)
    return out


@cache
def mean_curve(
    problems_per_batch: int, rollouts_per_problem: int, grpo: Grpo
) -> tuple[FloatArray, FloatArray]:
    """Steps and the mean score of many runs at them."""
    last = 2.0**21 * 10.5 / (problems_per_batch * rollouts_per_problem)
    steps_K = np.concatenate([[0.0], np.geomspace(0.25, last, 160)])
    rng = np.random.default_rng(_MEAN_SEED)
    mean_K = simulate(
        problems_per_batch, rollouts_per_problem, grpo, steps_K, _MEAN_RUNS, rng
    ).mean(axis=0)
    return steps_K, mean_K
