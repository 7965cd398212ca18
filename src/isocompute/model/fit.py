"""Curves -> draws of the whole sweep.

Hypotheses (scales of the prior, sizes of the noise, whether scores decline) are weighed by their
Laplace evidence, adaptively: a first set from the prior, further ones from where the weight is.
Each draw starts at a randomised mode (data and prior mean perturbed by their own covariance) and
walks a few rounds of an exact Markov chain. docs/validation.md has how close this comes to full
sampling.

Shape legend: D draws, H hypotheses, J configurations, K positions, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from isocompute.domain import Curve
from isocompute.errors import RefusalError
from isocompute.model.data import TYPICAL_TRIALS, SweepData, reduce_curves
from isocompute.model.form import KNOTS, FloatArray, Form, IntArray, sigma
from isocompute.model.importance import Sampler, flattened, systematic
from isocompute.model.noise import (
    LEAST_VARIANCE,
    Noise,
    Reference,
    Scaling,
    noise_hypotheses,
    scaling_of,
    white_variance,
)
from isocompute.model.posterior import Drawn, Posterior, Select
from isocompute.model.prior import SHARED, Prior
from isocompute.model.solve import Problem, gauss_newton, linear_evidence, solve_modes
from isocompute.model.threads import one_thread
from isocompute.model.walk import Walkers, walk

# Standard deviations of the scales by which sizes of the noise are chosen; at half and twice of it
# a steep sweep is fitted alike (off by 0.004 to 0.007), with the first alone not (0.03 to 0.04).
WIDER = 0.0, 2.0
ROUNDS = 3  # of hypotheses, the first from the prior
TRIED, LEAST_TRIED = 64, 8  # hypotheses of one round; fewer where few draws are asked for
DECLINE = 0.1  # prior probability that scores fall after a peak
COMPARED = 8  # hypotheses, the likeliest, under which two starts are compared
WEIGHTLESS = 0.02  # posterior share below which a form gets no draws
DRAWN_IN = 3  # iterations of a randomised mode; the walk does the rest


@one_thread
def fit_posterior(
    curves: Sequence[Curve], *, select: Select = "best", draws: int = 400, seed: int = 0
) -> Posterior:
    """Fit the model of a sweep.

    Args:
        curves: runs of one metric on one problem set, scores in 0..1.
        select: see `Posterior`.
        draws: number of draws.
        seed: of every random number used.

    Raises:
        RefusalError: no curve has a score beyond step 0.
    """
    if not any((c.rollouts_K > 0).any() for c in curves):
        raise RefusalError(
            f"a fit needs at least 1 evaluation after step 0, but got 0 (runs: {len(curves)}); "
            "train further or check what was read.",
            [],
        )
    rng = np.random.default_rng((seed, 1))
    data = reduce_curves(curves)
    reference, white, start = _reference(data)
    prior = _prior(data, Form(), white[0])
    of = Form(), data.x_JK, data.has_JK, data.score_JK, start, prior.mean()
    scales = prior.median()[None] + np.array(WIDER)[:, None]
    each = prior.covariance(scales).inverse()
    evidences = [partial(linear_evidence, *of, each.take(slice(i, i + 1)))
                 for i in range(len(WIDER))]  # fmt: skip
    noise = noise_hypotheses(data, reference, white, evidences, rng)
    scaling = scaling_of(noise.covariance, data.has_JK)
    tried = min(TRIED, max(draws // 5, LEAST_TRIED))
    plain, declining = (
        Hypotheses(data, form, prior, noise, scaling, _begin(prior, start, len(data.x_JK)))
        for form in (Form(), Form(declines=True))
        for prior in (_prior(data, form, white[0]),)
    )
    plain.explore(ROUNDS, tried, rng)
    odds = DECLINE / (1 - DECLINE) * np.exp(min(declining.extend(plain, tried, rng), 50.0))
    share = odds / (1 + odds)
    share = 0.0 if share < WEIGHTLESS else 1.0 if share > 1 - WEIGHTLESS else share
    count = rng.binomial(draws, share)
    parts = tuple(
        _draw(hypotheses, int(size), rng)
        for hypotheses, size in ((plain, draws - count), (declining, count))
        if size
    )
    return Posterior(
        data=data, curves=tuple(curves), select=select, seed=seed, noise=noise, parts=parts
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
    centre = [_logit(height), np.log(2.5), float(np.median(x)), *decline]
    centre += [_logit(low), SHARED[0][0], SHARED[1][0], *[0.0] * len(KNOTS)]
    return Prior(
        data.log2_n_J, data.log2_bp_J, np.array(centre), float(np.clip(sd, 0.02, 1.0)), form.own
    )


def _reference(data: SweepData) -> tuple[Reference, tuple[float, float], FloatArray]:
    """A first fit, around which noise is measured."""
    form, white = Form(), 1 / (data.trials or TYPICAL_TRIALS)
    prior = _prior(data, form, white)
    J, K = data.x_JK.shape
    y, starts = data.score_JK, _starts(prior, J)
    for _ in range(2):
        variance = white * np.maximum(y * (1 - y), LEAST_VARIANCE) * data.white_JK + 0.005**2
        whiten = np.zeros((1, J, K, K), np.float32)
        whiten[0, :, np.arange(K), np.arange(K)] = (data.has_JK / np.sqrt(variance)).T
        problem = Problem(
            form=form, x_JK=data.x_JK, whiten=whiten,
            group_B=np.zeros(len(starts), np.int64),
        )  # fmt: skip
        same = np.broadcast_to(prior.median(), (len(starts), prior.scales))
        precision = prior.covariance(same).inverse()
        mean = np.broadcast_to(prior.mean(), starts.shape)
        mode = solve_modes(problem, starts, data.score_JK[None], mean, precision, iterations=30)
        best = starts = mode.parameters[[int(mode.loss.argmin())]]
        value, jacobian = form.value_and_jacobian(*problem.split(best), data.x_JK)
        y = np.clip(value[:, :, 0], 0.0, 1.0)
        found = white_variance(data, y)
        white = found[0]
    own, shared = problem.split(best)
    floor = float(sigma(shared[0, 0]))
    gained = y - floor
    rise = float(np.clip(gained[data.has_JK].max(), 0.01, 1.0))
    # A run's ceiling moves by a share of the sweep's rise, in proportion to what is gained.
    height = (1 - floor) * sigma(own[0, :, 0])[:, None]
    ceiling = rise * gained / np.maximum(height, 1e-6)
    return Reference(y, ceiling, -jacobian[:, :, 2, 0], rise), found, best[0]


def _starts(prior: Prior, J: int) -> FloatArray:
    """First parameters: the prior's centre with other slopes and midpoints."""
    out = np.tile(prior.mean(), (6, 1))
    out[:, J : 2 * J] += np.repeat([0.0, 0.7], 3)[:, None]
    out[:, 2 * J : 3 * J] += np.tile([-0.7, 0.0, 0.7], 2)[:, None]
    return out


def _begin(prior: Prior, start: FloatArray, J: int) -> FloatArray:
    """Parameters to begin from: those of the first fit, and the prior's mean of a decline."""
    out = prior.mean()
    out[: 3 * J], out[-Form.shared :] = start[: 3 * J], start[-Form.shared :]
    return out


def _draw(hypotheses: Hypotheses, size: int, rng: np.random.Generator) -> Drawn:
    """Draws of one form: randomised modes, then a short walk."""
    data, prior, form = hypotheses.data, hypotheses.prior, hypotheses.form
    row = systematic(np.exp(hypotheses.log_weight - hypotheses.log_weight.max()), size, rng)
    row = row[np.argsort(hypotheses.setting[row], kind="stable")]
    setting = hypotheses.setting[row]
    luck = rng.standard_normal((size, *data.x_JK.shape, 1))
    score = data.score_JK + (hypotheses.scaling.lower[setting] @ luck)[..., 0] * data.has_JK
    distinct, back = np.unique(row, return_inverse=True)
    covariance = prior.covariance(hypotheses.log_scales[distinct])
    precision = covariance.inverse().take(back)
    mean = prior.mean() + covariance.normal(size, rng, back)
    problem = Problem(form=form, x_JK=data.x_JK, whiten=hypotheses.scaling.whiten, group_B=setting)
    found = solve_modes(
        problem, hypotheses.mode[row], score, mean, precision, iterations=DRAWN_IN
    )
    begun = Walkers(found.parameters, hypotheses.log_scales[row], setting)
    log_weight_S = np.log(hypotheses.noise.weight_S) - hypotheses.scaling.log_det
    walked = walk(problem, begun, data.score_JK, prior, log_weight_S, rng)
    return Drawn(prior, form, walked.parameters, walked.log_scales, walked.setting)


def _logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


@dataclass
class Hypotheses:
    """Hypotheses about one form of curves; the evidence of each is Laplace's, at its mode."""

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
        chosen = flattened(simpler.log_weight)
        row = np.sort(systematic(chosen, size, rng))
        row = row[np.argsort(simpler.setting[row], kind="stable")]
        log_scales = self.prior.sample(size, rng)
        known = simpler.prior.scales - 1
        log_scales[:, :known] = simpler.log_scales[row, :known]
        log_scales[:, -1] = simpler.log_scales[row, -1]
        # Curves that fall may be bent otherwise than the simpler form's: that one leads to a lesser
        # mode in some sweeps, the prior's mean in others.
        some = np.sort(np.argsort(-simpler.log_weight[row])[:COMPARED])
        tried = log_scales[some], simpler.setting[row][some]
        found = [self._solve(*tried, start) for start in (self.start, self.prior.mean())]
        evidence, mode = max(found, key=lambda each: float(np.logaddexp.reduce(each[0])))
        self.start = mode[int(evidence.argmax())]
        self._try(log_scales, simpler.setting[row])
        # Flattened weights chose them: what that added is taken out again.
        taken = simpler.log_weight[row] - np.log(chosen[row])
        self.log_weight = self.evidence - simpler.evidence[row] + taken
        return float(np.logaddexp.reduce(self.log_weight) - np.logaddexp.reduce(taken))

    def _try(self, log_scales: FloatArray, setting: IntArray) -> None:
        evidence, mode = self._solve(log_scales, setting, self.start)
        self.start = mode[int(evidence.argmax())]
        self.log_scales = np.concatenate([self.log_scales, log_scales])
        self.setting = np.concatenate([self.setting, setting])
        self.evidence = np.concatenate([self.evidence, evidence])
        self.mode = np.concatenate([self.mode, mode])

    def _solve(
        self, log_scales: FloatArray, setting: IntArray, start: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Evidence (H,) of hypotheses at the modes (H, P) that a start leads to."""
        covariance = self.prior.covariance(log_scales)
        problem = Problem(
            form=self.form, x_JK=self.data.x_JK, whiten=self.scaling.whiten, group_B=setting
        )
        precision = covariance.inverse()
        shape = (len(setting), len(start))
        found = solve_modes(
            problem,
            np.broadcast_to(start, shape),
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
        return evidence, found.parameters
