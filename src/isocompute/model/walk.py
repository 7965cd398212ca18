"""From approximate draws to the posterior: every draw walks a few steps of its own Markov chain.

One round takes the parts of a draw in turn, each given the others: the setting of the noise and the
scales of the prior exactly, from what is possible (Gibbs), the curves by Hamiltonian steps with a
Metropolis test (Neal 2011, arXiv 1206.1901). The posterior is what such rounds leave as it is,
whatever the approximation they start from; that one decides only how few are enough.

Shape legend: D draws, J configurations, K positions, P parameters, S settings, M sets of scales.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isocompute.model.form import BEFORE_BUMPS, FloatArray, IntArray
from isocompute.model.prior import Blocks, Prior
from isocompute.model.solve import Problem, assembled, batches, products_at, slope

# Rounds times configurations, and fewest and most rounds: small sweeps start further from their
# posterior and walk longer. docs/validation.md has how close that comes to full sampling, and what
# more rounds would cost.
WORK, LEAST_ROUNDS, MOST_ROUNDS = 36, 4, 13
# Leaps of one round, and a leap in units of the curvature's own length. A ceiling far from the data
# has a longer tail than the curvature says, so four leaps leave scores there 0.2 posterior standard
# deviations off, six 0.17, eight 0.12. But eight end as a mirror of the start: bumps stay small.
LEAPS, LEAP = 6, 0.35
SMALL = 8  # matrices that are inverted whole; 4 and 16 take up to a tenth and a half longer
POSSIBLE = 200  # sets of scales of one parameter, from their prior


class Walkers(NamedTuple):
    """Draws on their way."""

    parameters: FloatArray  # (D, P)
    log_scales: FloatArray  # (D, own * 4)
    setting: IntArray  # (D,) ascending
    accepted: float = 1.0  # share of Hamiltonian steps, of the last round


def walk(
    problem: Problem,
    start: Walkers,
    score_JK: FloatArray,
    prior: Prior,
    log_weight_S: FloatArray,
    rng: np.random.Generator,
) -> Walkers:
    """Walk as many rounds as the sweep is worth.

    Args:
        problem: curves and noise; its groups are those of `start`.
        start: draws near the posterior.
        score_JK: the data.
        prior: of parameters.
        log_weight_S: of the settings of the noise: prior less half the log determinants.
        rng: of all luck.
    """
    pool = _Pool(prior, rng)
    now = start
    score_JK = score_JK.astype(np.float32)
    # What curves each draw's posterior, where its walk begins; the scores do not matter to that.
    products = products_at(problem, start.parameters, np.zeros((1, *score_JK.shape)))
    curved = np.arange(len(products))  # which of these is each draw's
    # A form with more parameters of each configuration has further to walk, too.
    rounds = WORK * prior.own // (3 * len(score_JK))
    for _ in range(int(np.clip(rounds, LEAST_ROUNDS, MOST_ROUNDS))):
        setting = _settings(problem, now, score_JK, log_weight_S, rng)
        row = pool.choose(now.parameters, rng)
        order = np.argsort(setting, kind="stable")
        setting, row, curved = setting[order], row[order], curved[order]
        problem = problem.grouped(setting)
        now = _leap(
            problem,
            Walkers(now.parameters[order], pool.log_scales(row), setting),
            products,
            curved,
            score_JK,
            prior.mean(),
            pool.precision(row),
            rng,
        )
    return now


def _settings(
    problem: Problem,
    now: Walkers,
    score_JK: FloatArray,
    log_weight_S: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """A setting of the noise for every draw's residuals, (D,)."""
    value = problem.form.value(*problem.split(now.parameters), problem.x_JK)
    left = score_JK[:, :, None] - value
    squares = np.array([((whiten @ left) ** 2).sum(axis=(0, 1)) for whiten in problem.whiten])
    return _drawn(log_weight_S - 0.5 * squares.T, rng)


class _Pool:
    """Sets of scales that each parameter may have, and what they say of its values."""

    def __init__(self, prior: Prior, rng: np.random.Generator) -> None:
        self.prior = prior
        self.scales_M = prior.sample(POSSIBLE, rng)
        covariance = prior.covariance(self.scales_M)
        self.inverse = covariance.inverse()
        self.log_det = np.linalg.slogdet(covariance.own)[1]  # (M, own)

    def choose(self, parameters: FloatArray, rng: np.random.Generator) -> IntArray:
        """One of the sets for each parameter of each draw, and for the bumps, (D, own + 1)."""
        own, J = self.prior.own, len(self.prior.log2_n_J)
        apart = (parameters - self.prior.mean())[:, : own * J].reshape(-1, own, J)
        out = np.empty((len(apart), own + 1), np.int64)
        for i in range(own):
            outer = (apart[:, i, :, None] * apart[:, i, None, :]).reshape(-1, J * J)
            square = outer @ self.inverse.own[:, i].reshape(-1, J * J).T
            out[:, i] = _drawn(-0.5 * (square + self.log_det[:, i]), rng)
        weight = self.inverse.shared[:, -1]  # of the bumps, which are alike
        bumps = parameters[:, own * J + BEFORE_BUMPS :]
        square = (bumps**2).sum(axis=1)[:, None] * weight - bumps.shape[1] * np.log(weight)
        out[:, own] = _drawn(-0.5 * square, rng)
        return out

    def log_scales(self, row: IntArray) -> FloatArray:
        """Log scales (D, scales) of chosen sets."""
        own = self.prior.own
        each = self.scales_M[:, : 4 * own].reshape(len(self.scales_M), own, 4)
        picked = each[row[:, :own], np.arange(own)].reshape(len(row), -1)
        return np.column_stack([picked, self.scales_M[row[:, own], -1]])

    def precision(self, row: IntArray) -> Blocks:
        """Prior precision of chosen sets."""
        own = self.prior.own
        each = self.inverse.own[row[:, :own], np.arange(own)]
        return Blocks(each, self.inverse.shared[row[:, own]])


def _leap(
    problem: Problem,
    now: Walkers,
    products: FloatArray,
    curved: IntArray,
    score_JK: FloatArray,
    mean: FloatArray,
    precision: Blocks,
    rng: np.random.Generator,
) -> Walkers:
    """One Hamiltonian trajectory of every draw, taken or left.

    Its metric takes the data's curvature where the draw's walk began: one that followed the draw
    would not leave the posterior as it is.
    """
    D, P = now.parameters.shape
    leap = LEAP * rng.uniform(0.8, 1.2, (D, 1))
    speed, worth = rng.standard_normal((D, P)), np.log(rng.random(D))
    kept, taken = np.empty_like(now.parameters), np.empty(D, bool)
    room = np.zeros((min(D, next(batches(D, P)).stop), P, P))  # the same for every batch
    for part in batches(D, P):
        of, prior = problem.grouped(now.setting[part]), precision.take(part)
        start = now.parameters[part]
        metric = assembled(problem.form.own, products[curved[part]], prior, room)
        lower = np.linalg.cholesky(metric)
        back = _inverse_of_lower(lower.astype(np.float32))  # (D, P, P): from slopes to velocities
        ahead = back.transpose(0, 2, 1)
        p, v, step = start, speed[part], leap[part]
        loss, down = slope(of, p, score_JK, mean, prior)
        before = 0.5 * loss + 0.5 * (v**2).sum(axis=1)
        with np.errstate(all="ignore"):  # a trajectory that leaves the finite numbers is not taken
            for _ in range(LEAPS):
                v = v + 0.5 * step * _times(back, down)
                p = p + step * _times(ahead, v)
                loss, down = slope(of, p, score_JK, mean, prior)
                v = v + 0.5 * step * _times(back, down)
            after = 0.5 * loss + 0.5 * (v**2).sum(axis=1)
            taken[part] = worth[part] < before - after
        kept[part] = np.where(taken[part, None], p, start)
    return Walkers(kept, now.log_scales, now.setting, float(taken.mean()))


def _inverse_of_lower(lower: FloatArray) -> FloatArray:
    """Inverses of lower triangular matrices by their quarters: half the time of a general one."""
    P = lower.shape[-1]
    if P <= SMALL:
        return np.asarray(np.linalg.inv(lower))
    h = P // 2
    first, last = lower[:, :h, :h], lower[:, h:, h:]
    if 2 * h == P:  # quarters of one size go on together
        first, last = np.split(_inverse_of_lower(np.concatenate([first, last])), 2)
    else:
        first, last = _inverse_of_lower(first), _inverse_of_lower(last)
    out = np.zeros_like(lower)
    out[:, :h, :h], out[:, h:, h:] = first, last
    out[:, h:, :h] = -last @ (lower[:, h:, :h] @ first)
    return out


def _drawn(log_p: FloatArray, rng: np.random.Generator) -> IntArray:
    """One column of every row, by its probability."""
    # Below -60 nothing is ever drawn, and numbers too small for their format are slow.
    ahead = np.maximum(log_p - log_p.max(axis=1, keepdims=True), -60.0)
    total = np.cumsum(np.exp(ahead), axis=1)
    chosen: IntArray = (total < rng.random((len(total), 1)) * total[:, -1:]).sum(axis=1)
    return chosen


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Products in the matrices' precision: to turn these into another one takes longer."""
    return np.asarray((matrix @ vector.astype(matrix.dtype)[..., None])[..., 0])
