"""What separates an evaluation from the score it estimates.

    evaluation = mean curve + run effects + noise that lasts in the run + white evaluation noise
    mean curve = form + misfit of the form

Run effects shift a run's ceiling and midpoint. Noise that lasts (the same problems every time, a
policy's own turns) and the misfit are smooth in log C; the first belongs to a run and averages out
over runs, the second belongs to the configuration and is part of its true score. Their sizes are
hypotheses like the prior's scales: runs of one configuration weigh the first ones, the mean curves
all of them.

Shape legend: J configurations, K positions, S hypotheses of the noise, R runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.model.data import TYPICAL_TRIALS, SweepData
from isocompute.model.form import FloatArray, IntArray
from isocompute.model.importance import Sampler, systematic, worth
from isocompute.model.prior import matern

MISFIT_LENGTH = 0.5  # decades of C over which a misfit of the form keeps its sign
LASTING_LENGTH = 0.7  # decades of C over which a run's own noise lasts
LEAST_VARIANCE = 0.01  # of p (1 - p): a set of mostly unsolved problems still has some
# Medians and standard deviations (of the logarithm) of the sizes: ceiling shift in shares of the
# rise and midpoint shift in decades of a run (ScaleRL saw ceilings of repeats within 0.02), lasting
# noise in units of one evaluation's binomial noise, misfit in shares of the rise.
SIZES = ((0.03, 0.6), (0.04, 0.6), (0.3, 1.0), (0.012, 1.3))
# Candidates of a round; how many of them all are kept; most rounds, where weights stay uneven. The
# rounds end when the weights are worth twice as many even ones as are kept: with two rounds, two or
# three settings of a sweep of many runs stood for all, and answers hung on the seed.
CANDIDATES, SETTINGS, MOST_ROUNDS = 96, 48, 16
# Seeds that make the best of those kept less likely than another by so much, in logarithms, rule
# all of them out: by three standard errors, as a fall is sure. None of 602 sweeps of the validation
# page and of 6 real ones came above 1.8; two whose n scored very differently came to 17 and 20. So
# half and twice of it change none of these.
RULED_OUT = 3.0**2 / 2


class Reference(NamedTuple):
    """The curves around which noise is measured: value and effects of a run, (J, K)."""

    score_JK: FloatArray
    ceiling_JK: FloatArray  # derivative by the share of the rise
    midpoint_JK: FloatArray
    rise: float

    @property
    def binomial_JK(self) -> FloatArray:
        """Variance p (1 - p) of one outcome."""
        return np.maximum(self.score_JK * (1 - self.score_JK), LEAST_VARIANCE)


class Noise(NamedTuple):
    """S hypotheses of how large the noise is."""

    sizes: FloatArray  # (S, 5) white variance per p (1 - p); ceiling, midpoint, lasting, misfit
    weight_S: FloatArray  # prior probability, summing to 1
    covariance: FloatArray  # (S, J, K, K) of the mean curves
    misfit: FloatArray  # (S,) standard deviation of the misfit, in score


class Scaling(NamedTuple):
    """Covariances ready for use."""

    lower: FloatArray  # (S, J, K, K) Cholesky factors
    whiten: FloatArray  # their inverses, zero where there are no data
    log_det: FloatArray  # (S,) half the log determinants


def scaling_of(covariance: FloatArray, has_JK: NDArray[np.bool_]) -> Scaling:
    """Factors of covariances (S, J, K, K) of mean curves."""
    lower = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    log_det: FloatArray = np.log(np.diagonal(lower, axis1=2, axis2=3)).sum(axis=(1, 2))
    whiten = np.asarray(np.linalg.inv(lower) * has_JK[:, :, None], dtype=np.float32)
    return Scaling(lower, whiten, log_det)


def white_variance(data: SweepData, fitted_JK: FloatArray) -> tuple[float, float]:
    """White variance of one evaluation per p (1 - p), and the relative error of that figure.

    From second differences of what a fit leaves of each run, so that whatever is smooth drops out.
    """
    found = []
    for j, runs in enumerate(data.of_runs):
        k = runs.score_RK.shape[1]
        p = fitted_JK[j, :k]
        x = data.x_JK[j, :k]
        for score, rows in zip(runs.score_RK, runs.rows_RK, strict=True):
            at = np.flatnonzero(rows > 0)
            if len(at) < 3:
                continue
            r, u = (score - p)[at], x[at]
            w = (u[1:-1] - u[:-2]) / np.maximum(u[2:] - u[:-2], 1e-12)
            d = r[1:-1] - (1 - w) * r[:-2] - w * r[2:]
            v = np.maximum(p * (1 - p), LEAST_VARIANCE)[at] / rows[at]
            found.append(d / np.sqrt(v[1:-1] + (1 - w) ** 2 * v[:-2] + w**2 * v[2:]))
    prior, prior_count = 1 / (data.trials or TYPICAL_TRIALS), 4.0
    every = np.abs(np.concatenate(found)) if found else np.zeros(0)
    if not len(every):
        return prior, 0.5
    # The median is deaf to the few that a jump of a run makes; neighbours share two of three
    # evaluations, so a median of N differences is worth about N / 4 of the normal kind.
    seen, count = float(np.median(every) / 0.6745) ** 2, len(every) / 4
    total = count + prior_count
    return max((count * seen + prior_count * prior) / total, 1e-8), float(np.sqrt(2 / total))


def noise_hypotheses(
    data: SweepData,
    reference: Reference,
    white: tuple[float, float],
    evidences: Sequence[Callable[[FloatArray], FloatArray]],
    rng: np.random.Generator,
) -> Noise:
    """Hypotheses of the sizes, weighed by how the runs of one configuration differ.

    Few of many candidates are kept, chosen by what the mean curves say of them, too, so that most
    of those kept matter; `weight_S` has that part of the choice taken out again. Where n matters
    more than a prior expects, its mean curves call for run effects that seeds which agree rule out:
    then those of a wider one choose.

    Args:
        white: variance of one evaluation per p (1 - p), and its relative error.
        evidences: log evidence (S,) of the mean curves under covariances (S, J, K, K), by priors
            ever wider.
        rng: of candidates and choice.
    """
    median, spread = (np.array(part) for part in zip(*SIZES, strict=True))
    # Lasting noise counts in units of the binomial noise that an evaluation would have.
    median[2] *= np.sqrt(max(white[0], 1 / (data.trials or TYPICAL_TRIALS)))
    centre, scale = np.append(white[0], median), np.append(white[1], spread)
    for evidence in evidences:
        sampler = Sampler(len(SIZES) + 1, np.ones(1))
        of_runs, of_means = np.zeros(0), np.zeros(0)
        weight, log_weight = np.zeros(0), None
        while len(weight) < MOST_ROUNDS * CANDIDATES and worth(weight) < 2 * SETTINGS:
            z, _ = sampler.propose(CANDIDATES, rng, log_weight)
            tried = centre * np.exp(scale * z)
            of_runs = np.append(of_runs, _run_evidence(data, reference, tried))
            of_means = np.append(of_means, evidence(_mean_covariance(data, reference, tried)))
            log_weight = of_runs + of_means + sampler.log_ratio()
            weight = np.exp(log_weight - log_weight.max())
        kept, count = np.unique(systematic(weight, SETTINGS, rng), return_counts=True)
        if of_runs[kept].max() > of_runs.max() - RULED_OUT:
            break
    sizes = centre * np.exp(scale * sampler.z_HZ[kept])
    covariance = _mean_covariance(data, reference, sizes)
    prior = count * np.exp(of_means[kept].min() - of_means[kept])
    return Noise(sizes, prior / prior.sum(), covariance, sizes[:, 4] * reference.rise)


def _run_evidence(data: SweepData, reference: Reference, sizes: FloatArray) -> FloatArray:
    """Log likelihood (S,) of the deviations of runs from their configuration's mean."""
    out = np.zeros(len(sizes))
    for j, runs in enumerate(data.of_runs):
        if len(runs.score_RK) < 2:
            continue
        k = runs.score_RK.shape[1]
        there = runs.rows_RK > 0
        long = there.sum(axis=1) * 2 >= there.sum(axis=1).max()
        at = np.flatnonzero(there[long].all(axis=0))
        if long.sum() < 2 or not len(at):
            continue
        own = runs.score_RK[long][:, at]
        apart = own - own.mean(axis=0)
        white = reference.binomial_JK[j, :k][at] / runs.rows_RK[long][:, at].mean(axis=0)
        covariance = sizes[:, 0, None, None] * np.diag(white) + _of_run(
            reference, data.x_JK[j, :k], j, at, sizes
        )
        lower = np.linalg.cholesky(covariance)
        scaled = np.linalg.solve(lower, np.broadcast_to(apart.T, (len(sizes), *apart.T.shape)))
        logdet = 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        out -= 0.5 * ((len(own) - 1) * logdet + (scaled**2).sum(axis=(1, 2)))
    return out


def _of_run(
    reference: Reference, x: FloatArray, j: int, at: IntArray, sizes: FloatArray
) -> FloatArray:
    """Covariance (S, K, K) of what a run has of its own."""
    k = len(x)
    c, m = reference.ceiling_JK[j, :k][at], reference.midpoint_JK[j, :k][at]
    sd = np.sqrt(reference.binomial_JK[j, :k][at])
    lasting = np.outer(sd, sd) * matern(x[at][:, None] - x[at], LASTING_LENGTH)
    square = sizes[:, 1:4, None, None] ** 2
    out: FloatArray = (
        square[:, 0] * np.outer(c, c) + square[:, 1] * np.outer(m, m) + square[:, 2] * lasting
    )
    return out


def _mean_covariance(data: SweepData, reference: Reference, sizes: FloatArray) -> FloatArray:
    """Covariance (S, J, K, K) of the mean curves around their form; identity where padded."""
    J, K = data.x_JK.shape
    out = np.zeros((len(sizes), J, K, K))
    out[:] = np.eye(K)
    for j in range(J):
        k = int(data.has_JK[j].sum())  # what has data comes first
        at = np.arange(k)
        x = data.x_JK[j, at]
        white = reference.binomial_JK[j, at] * data.white_JK[j, at]
        misfit = (sizes[:, 4] * reference.rise)[:, None, None] ** 2
        out[:, j, :k, :k] = (
            sizes[:, 0, None, None] * np.diag(white)
            + data.overlap_JKK[j, :k, :k] * _of_run(reference, data.x_JK[j], j, at, sizes)
            + misfit * matern(x[:, None] - x, MISFIT_LENGTH)
        )
    return out
