"""Curves -> draws of the whole sweep: every configuration's curve, jointly.

Hypotheses (scales of the prior, sizes of the noise, whether scores decline) are weighed by their
Laplace evidence, adaptively: a first set from the prior, further ones from where the weight is.
Draws are randomised modes: data and prior mean are perturbed by their own covariance and the mode
is found again, which is exact where curves are linear in their parameters and follows bent
posteriors where they are not. `docs/model.md` has how close this comes to full sampling.

Shape legend: D draws, J configurations, K positions, H hypotheses, P parameters, X budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Configuration, Curve
from isocompute.errors import RefusalError
from isocompute.model.data import SweepData, reduce_curves
from isocompute.model.form import Form
from isocompute.model.hypotheses import Hypotheses
from isocompute.model.noise import (
    MISFIT_LENGTH,
    Noise,
    Reference,
    noise_hypotheses,
    white_variance,
)
from isocompute.model.prior import SCALES, Prior, matern
from isocompute.model.solve import Problem, linear_evidence, solve_modes
from isocompute.model.walk import Walkers, walk

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Select = Literal["best", "final"]

ROUNDS, TRIED, LEAST_TRIED = 3, 36, 16  # hypotheses; the first round from the prior
DECLINE = 0.1  # prior probability that scores fall after a peak
WEIGHTLESS = 0.01  # posterior share below which a form gets no draws
BEYOND = 1.3  # decades beyond the data over which scores may be asked for
DRAWN_IN = 3  # iterations of a randomised mode; the walk does the rest
STEP = 0.06  # decades between the positions at which the misfit is drawn


class _Drawn(NamedTuple):
    """Draws of one form."""

    prior: Prior
    form: Form
    parameters: FloatArray  # (D, P)
    log_scales: FloatArray  # (D, scales)
    setting: IntArray  # (D,)


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Equally weighted joint draws of a sweep.

    Args:
        data: the reduced sweep.
        curves: as they were given.
        unit: of x.
        select: "best" scores a budget by the best checkpoint so far, "final" by the last.
        seed: of the draws.
    """

    data: SweepData
    curves: tuple[Curve, ...]
    unit: str
    select: Select
    seed: int
    noise: Noise
    parts: tuple[_Drawn, ...]

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Those with data, sorted by (B_p, n)."""
        return self.data.configurations

    @property
    def draws(self) -> int:
        """Number of draws."""
        return sum(len(part.parameters) for part in self.parts)

    def _own(self, index: int) -> FloatArray:
        J = len(self.configurations)
        return np.concatenate([p.parameters[:, index * J : (index + 1) * J] for p in self.parts])

    def _shared(self, index: int) -> FloatArray:
        return np.concatenate([p.parameters[:, index - 3] for p in self.parts])

    @cached_property
    def floor_D(self) -> FloatArray:
        """Score of the base model."""
        return np.asarray(_sigma(self._shared(0)))

    @cached_property
    def ceiling_DJ(self) -> FloatArray:
        """Score that each configuration tends to."""
        floor = self.floor_D[:, None]
        return np.asarray(floor + (1 - floor) * _sigma(self._own(0)))

    @cached_property
    def slope_DJ(self) -> FloatArray:
        """Slope per decade."""
        return np.asarray(np.exp(self._own(1)))

    @cached_property
    def log10_midpoint_DJ(self) -> FloatArray:
        """log10 position at which half of the rise is made."""
        half = np.concatenate([_half_way(p) for p in self.parts])
        return self._own(2) + half[:, None] / self.slope_DJ

    @property
    def first_J(self) -> FloatArray:
        """log10 position of the first evaluation with 20 steps; infinity where there is none."""
        return self.data.first_J

    @property
    def last_J(self) -> FloatArray:
        """log10 position of the last evaluation."""
        return self.data.last_J

    def scores(self, log10_x_X: FloatArray) -> FloatArray:
        """Mean score (D, J, X) of every configuration: no run's luck, no evaluation noise."""
        x = np.atleast_1d(np.asarray(log10_x_X, dtype=np.float64))
        lattice, misfit = self._misfit
        out = np.concatenate(
            [self._curves(part, part.parameters, x, self.data.log2_n_J) for part in self.parts]
        )
        out += _interpolate(lattice, misfit, x)
        return np.clip(out, 0.0, 1.0)

    def smooth_scores(
        self, problems_per_batch: float | FloatArray, log2_n_F: FloatArray, log10_x_X: FloatArray
    ) -> FloatArray:
        """Smooth part (D, F, X) of the same draws at any n: what neighbours share.

        Args:
            problems_per_batch: B_p of every point, or one for all.
            log2_n_F: log2 of the rollouts per problem; need not have been trained.
            log10_x_X: budgets.
        """
        n = np.asarray(log2_n_F, dtype=np.float64)
        bp = np.broadcast_to(np.log2(np.asarray(problems_per_batch, dtype=np.float64)), n.shape)
        x = np.atleast_1d(np.asarray(log10_x_X, dtype=np.float64))
        rng = np.random.default_rng((self.seed, 3))
        return np.clip(
            np.concatenate(
                [self._curves(p, _between(p, n, bp, rng), x, n) for p in self.parts]
            ),
            0.0,
            1.0,
        )

    def _curves(
        self, part: _Drawn, parameters: FloatArray, x: FloatArray, places: FloatArray
    ) -> FloatArray:
        """Parametric curves (D, len(places), X), best so far where they may fall."""
        D, F = len(parameters), len(places)
        own = parameters.T[: part.form.own * F].reshape(part.form.own, F, D)
        shared = part.parameters.T[-3:]
        if not part.form.declines or self.select == "final":
            return part.form.value(own, shared, x[None]).transpose(2, 0, 1)
        start = float(self.data.x_JK[self.data.has_JK].min())
        fine = np.arange(start, max(float(x.max()), start) + STEP, STEP)
        every = np.unique(np.concatenate([fine, x]))
        best = np.maximum.accumulate(part.form.value(own, shared, every[None]), axis=1)
        return best[:, np.searchsorted(every, x)].transpose(2, 0, 1)

    @cached_property
    def _misfit(self) -> tuple[FloatArray, FloatArray]:
        """Positions (L,) and draws (D, J, L) of the misfit given what the curves leave."""
        data, rng = self.data, np.random.default_rng((self.seed, 2))
        low, high = float(data.x_JK[data.has_JK].min()), float(data.last_J.max()) + BEYOND
        lattice = np.arange(low - STEP, high + STEP, STEP)
        among = matern(lattice[:, None] - lattice, MISFIT_LENGTH)
        out = []
        for part in self.parts:
            J = len(data.configurations)
            own = part.parameters.T[: part.form.own * J].reshape(part.form.own, J, -1)
            fitted = part.form.value(own, part.parameters.T[-3:], data.x_JK)  # (J, K, D)
            drawn = np.zeros((len(part.parameters), J, len(lattice)))
            for s in np.unique(part.setting):
                rows = np.flatnonzero(part.setting == s)
                square = self.noise.misfit[s] ** 2
                for j in range(J):
                    at = np.flatnonzero(data.has_JK[j])
                    cross = square * matern(lattice[:, None] - data.x_JK[j, at], MISFIT_LENGTH)
                    gain = cross @ np.linalg.inv(self.noise.covariance[s, j][np.ix_(at, at)])
                    rest = square * among - gain @ cross.T
                    rest += 1e-9 * max(square, 1e-12) * np.eye(len(lattice))
                    left = data.score_JK[j, at][:, None] - fitted[j, at][:, rows]
                    luck = rng.standard_normal((len(rows), len(lattice)))
                    drawn[rows, j] = (gain @ left).T + luck @ np.linalg.cholesky(rest).T
            out.append(drawn)
        return lattice, np.concatenate(out)


def fit_posterior(
    curves: Sequence[Curve],
    *,
    unit: str = "rollouts",
    select: Select = "best",
    draws: int = 400,
    seed: int = 0,
) -> Posterior:
    """Fit the model of a sweep.

    Args:
        curves: runs of one metric on one problem set, scores in 0..1.
        unit: "rollouts" or "tokens".
        select: see `Posterior`.
        draws: number of draws.
        seed: of every random number used.

    Raises:
        RefusalError: no curve has a score beyond step 0.
    """
    if not any((c.position(unit) > 0).any() for c in curves):
        raise RefusalError(
            f"a fit needs at least 1 evaluation after step 0, but {len(curves)} curves have none; "
            "train further or check what was read.",
            [],
        )
    rng = np.random.default_rng((seed, 1))
    data = reduce_curves(curves, unit)
    reference, white, start = _reference(data)
    noise = noise_hypotheses(data, reference, white, _evidence(data, white[0], start), rng)
    lower = np.linalg.cholesky(noise.covariance)
    whiten = np.linalg.inv(lower)
    log_det = np.log(np.diagonal(lower, axis1=2, axis2=3)).sum(axis=(1, 2))
    found = []
    for form in (Form(), Form(declines=True)):
        prior = _prior(data, form, white[0])
        begin = _begin(prior, start, len(data.configurations))
        found.append(Hypotheses(data, form, prior, noise, whiten, log_det, begin))
    for round_ in range(ROUNDS):
        share = _shares(found) if round_ else np.full(2, 0.5)
        for hypotheses, weight in zip(found, share, strict=True):
            if weight > 0:
                hypotheses.explore(max(int(weight * TRIED), LEAST_TRIED), rng)
    count = rng.multinomial(draws, _shares(found))
    parts = tuple(
        _draw(hypotheses, lower, int(size), rng)
        for hypotheses, size in zip(found, count, strict=True)
        if size
    )
    return Posterior(
        data=data,
        curves=tuple(curves),
        unit=unit,
        select=select,
        seed=seed,
        noise=noise,
        parts=parts,
    )


def _prior(data: SweepData, form: Form, white: float) -> Prior:
    """The prior of one form, centred on the range of the scores and of the budgets."""
    scores, x = data.score_JK[data.has_JK], data.x_JK[data.has_JK]
    least = 0.5 * min(white, 0.02)
    low = data.floor if data.floor is not None else float(np.quantile(scores, 0.05))
    low = float(np.clip(low, least, 0.98))
    high = float(np.quantile(scores, 0.95))
    height = float(np.clip((high - low) / (1 - low), 0.02, 0.95))
    known = data.floor is not None
    sd = np.sqrt(white / (max(data.floor_evaluations, 1) * low * (1 - low))) if known else 1.0
    rise = height * (1 - low)
    decline = [np.log(0.1 * rise), float(data.last_J.max()) - 0.4] if form.declines else []
    centre = [_logit(height), np.log(2.5), float(np.median(x)), *decline, _logit(low), 0.0, -2.0]
    return Prior(
        data.log2_n_J, data.log2_bp_J, np.array(centre), float(np.clip(sd, 0.02, 1.0)), form.own
    )


def _reference(data: SweepData) -> tuple[Reference, tuple[float, float], FloatArray]:
    """A first fit, around which noise is measured."""
    form, white = Form(), 1 / (data.trials or 1200.0)
    prior = _prior(data, form, white)
    J, K = data.x_JK.shape
    y = data.score_JK
    for _ in range(2):
        variance = white * np.maximum(y * (1 - y), 0.01) * data.white_JK + 0.005**2
        whiten = np.zeros((1, J, K, K))
        whiten[0, :, np.arange(K), np.arange(K)] = (1 / np.sqrt(variance)).T
        starts = _starts(prior, J)
        problem = Problem(
            form=form, x_JK=data.x_JK, has_JK=data.has_JK, whiten=whiten,
            group_B=np.zeros(len(starts), np.int64),
        )  # fmt: skip
        precision = np.linalg.inv(prior.covariance(prior.sample(1, _Median())))
        mean = np.broadcast_to(prior.mean(), starts.shape)
        mode = solve_modes(
            problem, starts, data.score_JK[None], mean,
            np.broadcast_to(precision, (len(starts), *precision.shape[1:])), iterations=30,
        )  # fmt: skip
        best = mode.parameters[[int(mode.loss.argmin())]]
        value, jacobian = form.value_and_jacobian(*problem.split(best), data.x_JK)
        y = np.clip(value[:, :, 0], 0.0, 1.0)
        found = white_variance(data, y)
        white = found[0]
    own, shared = problem.split(best)
    floor = float(_sigma(shared[0, 0]))
    gained = y - floor
    rise = float(np.clip(gained[data.has_JK].max(), 0.01, 1.0))
    # A run's ceiling moves by a share of the sweep's rise, in proportion to what is gained.
    height = (1 - floor) * _sigma(own[0, :, 0])[:, None]
    ceiling = rise * gained / np.maximum(height, 1e-6)
    return Reference(y, ceiling, -jacobian[:, :, 2, 0], rise), found, best[0]


def _evidence(
    data: SweepData, white: float, start: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """Evidence of the mean curves under covariances of the noise, around a first fit."""
    prior = _prior(data, Form(), white)
    precision = np.linalg.inv(prior.covariance(prior.sample(1, _Median())))[0]

    nothing = np.zeros(0, np.int64)
    problem = Problem(
        form=Form(), x_JK=data.x_JK, has_JK=data.has_JK, whiten=np.zeros(0), group_B=nothing
    )
    return partial(linear_evidence, problem, start, data.score_JK, prior.mean(), precision)


class _Median:
    """Stands for a generator where the prior's median is wanted."""

    def standard_normal(self, shape: tuple[int, ...]) -> FloatArray:
        return np.zeros(shape)


def _starts(prior: Prior, J: int) -> FloatArray:
    """First parameters: the prior's centre with other slopes and midpoints."""
    mean = prior.mean()
    out = []
    for slope in (0.0, 0.7):
        for shift in (-0.7, 0.0, 0.7):
            p = mean.copy()
            p[J : 2 * J] += slope
            p[2 * J : 3 * J] += shift
            out.append(p)
    return np.array(out)


def _begin(prior: Prior, start: FloatArray, J: int) -> FloatArray:
    """Parameters to begin from: those of the first fit, and the prior's mean of a decline."""
    out = prior.mean()
    out[: 3 * J], out[-3:] = start[: 3 * J], start[-3:]
    return out


def _shares(found: Sequence[Hypotheses]) -> FloatArray:
    """Posterior share of each form; nothing where it is next to nothing."""
    log_mass = np.array([np.logaddexp.reduce(h.log_weights()) for h in found])
    mass = np.exp(log_mass - log_mass.max()) * (1 - DECLINE, DECLINE)
    mass /= mass.sum()
    mass = np.where(mass < WEIGHTLESS, 0.0, mass)
    return np.asarray(mass / mass.sum())


def _draw(
    hypotheses: Hypotheses, lower: FloatArray, size: int, rng: np.random.Generator
) -> _Drawn:
    """Randomised modes of one form."""
    data, prior, form = hypotheses.data, hypotheses.prior, hypotheses.form
    log_weight = hypotheses.log_weights()
    weight = np.exp(log_weight - log_weight.max())
    at = (np.arange(size) + rng.random()) / size
    row = np.minimum(np.searchsorted(np.cumsum(weight / weight.sum()), at), len(weight) - 1)
    row = row[np.argsort(hypotheses.setting[row], kind="stable")]
    setting = hypotheses.setting[row]
    luck = rng.standard_normal((size, *data.x_JK.shape, 1))
    score = data.score_JK + (lower[setting] @ luck)[..., 0] * data.has_JK
    distinct, back = np.unique(row, return_inverse=True)
    covariance = prior.covariance(hypotheses.log_scales[distinct])
    luck = rng.standard_normal((size, covariance.shape[1], 1))
    mean = prior.mean() + (np.linalg.cholesky(covariance)[back] @ luck)[..., 0]
    problem = Problem(
        form=form,
        x_JK=data.x_JK,
        has_JK=data.has_JK,
        whiten=hypotheses.whiten,
        group_B=setting,
    )
    found = solve_modes(
        problem,
        hypotheses.mode[row],
        score,
        mean,
        np.linalg.inv(covariance)[back],
        iterations=DRAWN_IN,
    )
    begun = Walkers(found.parameters, hypotheses.log_scales[row], setting)
    walked = walk(
        problem, begun, data.score_JK, prior, hypotheses.noise, hypotheses.log_det, rng
    )
    return _Drawn(prior, form, walked.parameters, walked.log_scales, walked.setting)


def _between(
    part: _Drawn, log2_n: FloatArray, log2_bp: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Smooth parts of the draws' parameters at other points, (D, own * F)."""
    prior, F = part.prior, len(log2_n)
    J, D = len(prior.log2_n_J), len(part.parameters)
    mean_J = prior.mean()
    shift_n, shift_bp = prior.log2_n_J.mean(), prior.log2_bp_J.mean()
    out = np.empty((D, prior.own * F))
    distinct, back = np.unique(part.log_scales, axis=0, return_inverse=True)
    for i in range(prior.own):
        line = SCALES[i].mean_line_n * (log2_n - shift_n) + SCALES[i].mean_line_bp * (
            log2_bp - shift_bp
        )
        mean_F = prior.centre[i] + line
        inside = prior.smooth(i, distinct, prior.log2_n_J, prior.log2_bp_J)
        inside += np.exp(2 * distinct[:, 4 * i + 3])[:, None, None] * np.eye(J)
        across = prior.smooth(i, distinct, log2_n, log2_bp, prior.log2_n_J, prior.log2_bp_J)
        among = prior.smooth(i, distinct, log2_n, log2_bp)
        gain = across @ np.linalg.inv(inside)
        rest = among - gain @ across.transpose(0, 2, 1) + 1e-8 * np.eye(F)
        lower = np.linalg.cholesky(rest)
        left = part.parameters[:, i * J : (i + 1) * J] - mean_J[i * J : (i + 1) * J]
        luck = rng.standard_normal((D, F, 1))
        out[:, i * F : (i + 1) * F] = (
            mean_F + (gain[back] @ left[..., None])[..., 0] + (lower[back] @ luck)[..., 0]
        )
    return out


def _half_way(part: _Drawn) -> FloatArray:
    """z at which g is one half, (D,)."""
    nu, q = np.exp(part.parameters[:, -2]), np.exp(part.parameters[:, -1])
    hazard = np.expm1(q * np.log(2.0)) / q
    log_g = np.log(-np.expm1(-hazard))
    out: FloatArray = -np.log(np.expm1(-nu * log_g) / nu)
    return out


def _interpolate(lattice: FloatArray, values: FloatArray, x: FloatArray) -> FloatArray:
    """Linear in x, on an even lattice, held at its ends."""
    place = np.clip((x - lattice[0]) / (lattice[1] - lattice[0]), 0, len(lattice) - 1.001)
    left = place.astype(int)
    share = place - left
    out: FloatArray = values[..., left] * (1 - share) + values[..., left + 1] * share
    return out


def _sigma(z: FloatArray) -> FloatArray:
    out: FloatArray = 0.5 * (1 + np.tanh(0.5 * np.asarray(z)))
    return out


def _logit(p: float) -> float:
    return float(np.log(p / (1 - p)))
