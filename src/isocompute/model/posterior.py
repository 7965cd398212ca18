"""Draws of a whole sweep: every configuration's curve, jointly, at any budget and any n.

Positions are log10 of rollouts. Where they differ by configuration (a budget in GPU-hours buys some
more than others) they are rows: (J, X) in place of (X,).

Shape legend: D draws, J configurations, K positions, P parameters, X budgets, F values of n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Configuration, Curve
from isocompute.intervals import FloatArray
from isocompute.model.data import SweepData
from isocompute.model.form import Form, sigma
from isocompute.model.lattice import at_places, interpolate, keep_best
from isocompute.model.noise import LEAST_VARIANCE, MISFIT_LENGTH, Noise
from isocompute.model.prior import SCALES, Prior, matern, similarity
from isocompute.model.threads import one_thread

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Select = Literal["best", "final"]

HALF = float(np.log10(2))
BEYOND = 1.3  # decades beyond the data over which scores may be asked for
STEP = 0.1  # decades between the positions at which the misfit is drawn


class Drawn(NamedTuple):
    """Draws of one form."""

    prior: Prior
    form: Form
    parameters: NDArray[np.floating[Any]]  # (D, P)
    log_scales: NDArray[np.floating[Any]]  # (D, scales)
    setting: IntArray  # (D,)


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Equally weighted joint draws of a sweep.

    Args:
        data: the reduced sweep.
        curves: as they were given.
        select: "best" scores a budget by the best checkpoint so far, "final" by the last.
        seed: of the draws.
    """

    data: SweepData
    curves: tuple[Curve, ...]
    select: Select
    seed: int
    noise: Noise
    parts: tuple[Drawn, ...]

    @property
    def unit(self) -> str:
        """Of x; `answers.metered` counts in others."""
        return "rollouts"

    @property
    def in_rollouts(self) -> Posterior:
        """The same draws by rollouts."""
        return self

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
        return np.concatenate([p.parameters[:, index - p.form.shared] for p in self.parts])

    @cached_property
    def floor_D(self) -> FloatArray:
        """Score of the base model."""
        return np.asarray(sigma(self._shared(0)))

    @cached_property
    def ceiling_DJ(self) -> FloatArray:
        """Score that each configuration tends to."""
        floor = self.floor_D[:, None]
        return np.asarray(floor + (1 - floor) * sigma(self._own(0)))

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

    @property
    def n_runs_J(self) -> IntArray:
        """Runs of each configuration."""
        return self.data.runs_J

    @property
    def n_points_J(self) -> IntArray:
        """Evaluations of each configuration, step 0 left out."""
        return self.data.points_J

    @property
    def state_J(self) -> tuple[str, ...]:
        """Whether a run lost what it had learnt ("broken"), or ended short of half the longest.

        "frozen" where an adaptive sweep ended it.
        """
        broken = {configuration for configuration, _ in self.data.broken}
        frozen = {c.configuration for c in self.curves if c.is_frozen}
        reached: dict[Configuration, float] = {}
        for curve in self.curves:  # in rollouts, whatever x is: a run of a small n takes longer
            end = float(curve.rollouts_K.max(initial=reached.get(curve.configuration, 0.0)))
            reached[curve.configuration] = end
        half = max(reached.values()) / 2
        return tuple(
            "broken" if c in broken
            else "frozen" if c in frozen
            else "stopped" if reached[c] < half
            else "complete"
            for c in self.configurations
        )  # fmt: skip

    @one_thread
    def scores(self, log10_x_X: FloatArray) -> FloatArray:
        """Mean score (D, J, X) of every configuration: no run's luck, no evaluation noise.

        Of the best checkpoint so far no draw ever falls with the budget.

        Args:
            log10_x_X: positions, (X,) or (J, X).
        """
        x = np.atleast_1d(np.asarray(log10_x_X, dtype=np.float64))
        asked = x.shape, x.tobytes()
        if asked not in self._latest:  # several answers ask for one budget, one after the other
            out = self._so_far(x)
            out.setflags(write=False)
            self._latest.clear()
            self._latest[asked] = out
        return self._latest[asked]

    @cached_property
    def _latest(self) -> dict[tuple[tuple[int, ...], bytes], FloatArray]:
        """Scores at the positions that were asked for last."""
        return {}

    def _so_far(self, x: FloatArray) -> FloatArray:
        """Scores (D, J, X), of the best checkpoint so far where that is what counts."""
        out = self._plain(x)
        if self.select == "final":
            return out
        lattice, best = self._best_on_lattice
        before = np.searchsorted(lattice, x, side="right") - 1
        out = np.maximum(out, np.where(before >= 0, at_places(best, np.maximum(before, 0)), 0.0))
        order = np.argsort(x, axis=-1, kind="stable")
        known = at_places(np.where(self._has_begun(x), out, 0.0), order)
        so_far = np.maximum.accumulate(known, axis=2)
        return np.asarray(np.maximum(out, at_places(so_far, np.argsort(order, axis=-1))))

    def of_one_run(
        self, score_D: FloatArray, gained_D: FloatArray, factor: float, which: int = 0
    ) -> FloatArray:
        """Draws (D,) of one evaluation of one new run of a configuration.

        Args:
            score_D: its mean score at a budget.
            gained_D: what it gains from there to `factor` times that budget.
            factor: above 1.
            which: of several runs, each of which has its own luck.
        """
        setting_D = np.concatenate([part.setting for part in self.parts])
        white, ceiling, midpoint, lasting, _ = self.noise.sizes[setting_D].T
        outcome = np.maximum(score_D * (1 - score_D), LEAST_VARIANCE)
        variance = (white + lasting**2) * outcome
        variance += (ceiling * (score_D - self.floor_D)) ** 2
        variance += (midpoint * gained_D / np.log10(factor)) ** 2
        luck = np.random.default_rng((self.seed, 4, which)).standard_normal(len(score_D))
        return np.asarray(np.clip(score_D + luck * np.sqrt(variance), 0.0, 1.0))

    def _has_begun(self, x: FloatArray) -> BoolArray:
        """(J, X): a configuration has been evaluated at that budget or before.

        What lies before has no data: its highest draws are no checkpoints that anyone kept.
        """
        first_J = np.where(self.data.has_JK, self.data.x_JK, np.inf).min(axis=1)
        return np.asarray(x >= first_J[:, None] - 1e-9)

    def _plain(self, x: FloatArray) -> FloatArray:
        """Scores (D, J, X) of curves and misfit, as they are at each budget."""
        out = np.concatenate(
            [self._curves(part, part.parameters, x, self.data.log2_n_J) for part in self.parts]
        )
        out += interpolate(*self._misfit, x)
        return np.asarray(np.clip(out, 0.0, 1.0))

    @cached_property
    def _best_on_lattice(self) -> tuple[FloatArray, FloatArray]:
        """Positions (L,) and the best score so far (D, J, L) from the first evaluation on."""
        lattice = self._misfit[0]
        known = np.where(self._has_begun(lattice), self._plain(lattice), 0.0)
        return lattice, np.maximum.accumulate(known, axis=2)

    @one_thread
    def smooth_scores(
        self, problems_per_batch: float | FloatArray, log2_n_F: FloatArray, log10_x_X: FloatArray
    ) -> FloatArray:
        """Scores (D, F, X) of the same draws at any n, through those of the tested ones.

        The smooth part of the curves, plus each tested n's own deviation, which fades to nothing at
        the next tested n or an octave away.

        Args:
            problems_per_batch: B_p of every point, or one for all.
            log2_n_F: log2 of the rollouts per problem; need not have been trained.
            log10_x_X: positions, (X,), or (F + J, X): of the points, then of the tested.
        """
        n = np.asarray(log2_n_F, dtype=np.float64)
        bp = np.broadcast_to(np.log2(np.asarray(problems_per_batch, dtype=np.float64)), n.shape)
        x = np.atleast_1d(np.asarray(log10_x_X, dtype=np.float64))
        data, F = self.data, len(n)
        every_n, every_bp = np.append(n, data.log2_n_J), np.append(bp, data.log2_bp_J)
        places = every_n.tobytes() + every_bp.tobytes()
        if places not in self._drawn_at:
            rng = np.random.default_rng((self.seed, 3))
            self._drawn_at[places] = [_between(p, every_n, every_bp, rng) for p in self.parts]
        drawn_at = zip(self.parts, self._drawn_at[places], strict=True)
        smooth = np.concatenate(
            [self._curves(part, drawn, x, every_n) for part, drawn in drawn_at]
        )
        own = self.scores(x if x.ndim == 1 else x[F:]) - smooth[:, F:]
        share = _nearness(n, bp, data.log2_n_J, data.log2_bp_J)
        out = smooth[:, :F] + np.einsum("fj,djx->dfx", share, own)
        return np.asarray(np.clip(out, 0.0, 1.0))

    @cached_property
    def _drawn_at(self) -> dict[bytes, list[FloatArray]]:
        """Smooth parts of the parameters by the points at which they were asked for."""
        return {}

    def _curves(
        self, part: Drawn, parameters: NDArray[Any], x: FloatArray, places: FloatArray
    ) -> FloatArray:
        """Parametric curves (D, len(places), X), best so far where they may fall.

        In single precision, as they were fitted.
        """
        D, F = len(parameters), len(places)
        own = parameters.T[: part.form.own * F].reshape(part.form.own, F, D).astype(np.float32)
        shared = part.parameters.T[-part.form.shared :].astype(np.float32)
        rows = np.atleast_2d(x)
        if not part.form.declines or self.select == "final":
            return np.asarray(part.form.value(own, shared, rows).transpose(2, 0, 1), np.float64)
        order = np.argsort(rows, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
        best = part.form.value(own, shared, rows)
        keep_best(best)
        # Also of what lies between the positions that were asked for.
        start = float(self.data.x_JK[self.data.has_JK].min())
        lattice = np.arange(start, max(float(x.max()), start) + STEP, STEP)
        known = self._peaks.get(id(parameters), np.empty((F, 0, D), best.dtype))
        if (have := known.shape[1]) < len(lattice):
            more = part.form.value(own, shared, lattice[None, have:])
            known = np.concatenate([known, more], axis=1)
            keep_best(known)
            self._peaks[id(parameters)] = known
        after = np.broadcast_to(np.searchsorted(lattice, rows, side="right"), best.shape[:2])
        peak = known[np.arange(F)[:, None], np.maximum(after - 1, 0)]
        peak[after == 0] = -np.inf
        np.maximum(best, peak, out=best)
        place = np.argsort(order, axis=1).reshape(x.shape)
        return np.asarray(at_places(best.transpose(2, 0, 1), place), np.float64)

    @cached_property
    def _peaks(self) -> dict[int, NDArray[Any]]:
        """Best score so far (F, L, D) on a lattice of `_curves`, by the parameters' identity."""
        return {}

    @cached_property
    def _misfit(self) -> tuple[FloatArray, FloatArray]:
        """Positions (L,) and draws (D, J, L) of the misfit given what the curves leave."""
        data, rng = self.data, np.random.default_rng((self.seed, 2))
        low, high = float(data.x_JK[data.has_JK].min()), float(data.last_J.max()) + BEYOND
        lattice = np.arange(low - STEP, high + STEP, STEP)
        among = matern(lattice[:, None] - lattice, MISFIT_LENGTH)
        apart = lattice[:, None] - data.x_JK[:, None, :]
        alike = matern(apart, MISFIT_LENGTH) * data.has_JK[:, None, :]  # (J, L, K)
        J, out = len(data.configurations), []
        for part in self.parts:
            own = part.parameters.T[: part.form.own * J].reshape(part.form.own, J, -1)
            shared = part.parameters.T[-part.form.shared :]
            left_JKD = data.score_JK[:, :, None] - part.form.value(own, shared, data.x_JK)
            drawn = np.zeros((len(part.parameters), J, len(lattice)))
            for s in np.unique(part.setting):
                rows = np.flatnonzero(part.setting == s)
                square = self.noise.misfit[s] ** 2
                cross = square * alike
                gain = cross @ np.linalg.inv(self.noise.covariance[s])
                rest = square * among - gain @ cross.transpose(0, 2, 1)
                rest += 1e-9 * max(square, 1e-12) * np.eye(len(lattice))
                luck = rng.standard_normal((J, len(rows), len(lattice)))
                mean = gain @ left_JKD[:, :, rows]
                drawn[rows] = (
                    mean + np.linalg.cholesky(rest) @ luck.transpose(0, 2, 1)
                ).transpose(2, 0, 1)
            out.append(drawn)
        return lattice, np.concatenate(out)


def _between(
    part: Drawn, log2_n: FloatArray, log2_bp: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Smooth parts of the draws' parameters at other points, (D, own * F).

    A draw of the prior everywhere, corrected by what it misses at the tested configurations
    (Matheron's rule): exact, and smooth however close the points lie.
    """
    prior, F = part.prior, len(log2_n)
    J, D = len(prior.log2_n_J), len(part.parameters)
    n, bp = np.append(log2_n, prior.log2_n_J), np.append(log2_bp, prior.log2_bp_J)
    from_n, from_bp = n - prior.log2_n_J.mean(), bp - prior.log2_bp_J.mean()
    lower = np.linalg.cholesky(similarity((n, bp), (n, bp)) + 1e-6 * np.eye(F + J))
    out = np.empty((D, prior.own * F))
    for i in range(prior.own):
        scale = SCALES[i]
        line_n, line_bp, rough, nugget = np.exp(part.log_scales[:, 4 * i : 4 * i + 4]).T[..., None]
        luck = rng.standard_normal((3, D, 1))
        anywhere = scale.constant * luck[0] + line_n * luck[1] * from_n
        anywhere += line_bp * luck[2] * from_bp
        anywhere += rough * (rng.standard_normal((D, F + J)) @ lower.T)
        mean = prior.centre[i] + scale.mean_line_n * from_n + scale.mean_line_bp * from_bp
        # Few draws differ in the scales of one parameter, where they walked among a pool of them.
        own_scales = np.zeros_like(part.log_scales)
        own_scales[:, 4 * i : 4 * i + 4] = part.log_scales[:, 4 * i : 4 * i + 4]
        distinct, back = np.unique(own_scales, axis=0, return_inverse=True)
        inside = prior.smooth(i, distinct, prior.places, prior.places)
        inside += np.exp(2 * distinct[:, 4 * i + 3])[:, None, None] * np.eye(J)
        across = prior.smooth(i, distinct, (log2_n, log2_bp), prior.places)
        gain = across @ np.linalg.inv(inside)
        missed = part.parameters[:, i * J : (i + 1) * J] - mean[F:] - anywhere[:, F:]
        missed -= nugget * rng.standard_normal((D, J))
        out[:, i * F : (i + 1) * F] = (
            mean[:F] + anywhere[:, :F] + (gain[back] @ missed[..., None])[..., 0]
        )
    return out


def _nearness(n_F: FloatArray, bp_F: FloatArray, n_J: FloatArray, bp_J: FloatArray) -> FloatArray:
    """How much of what each tested n has of its own another one shares, (F, J)."""
    out = np.zeros((len(n_F), len(n_J)))
    for j, (n, bp) in enumerate(zip(n_J, bp_J, strict=True)):
        apart = n_F - n
        same = np.isclose(bp_F, bp)
        others = n_J[np.isclose(bp_J, bp)] - n
        for side in (-1, 1):
            gaps = side * others[side * others > 1e-9]
            reach = min(float(gaps.min()), 1.0) if len(gaps) else 1.0
            here = same & (side * apart >= -1e-12)
            out[here, j] = np.maximum(1 - side * apart[here] / reach, 0.0)
    return out


def _half_way(part: Drawn) -> FloatArray:
    """Z at which g is one half, (D,)."""
    k = part.form.shared
    nu, q = np.exp(part.parameters[:, 1 - k]), np.exp(part.parameters[:, 2 - k])
    # Half of the rise of a tail this slow lies beyond any budget; larger figures overflow.
    hazard = np.minimum(np.expm1(np.minimum(q * np.log(2.0), 100.0)) / q, 500.0)
    log_g = np.log1p(-np.exp(-hazard))
    out: FloatArray = -np.log(np.expm1(-nu * log_g) / nu)
    return out
