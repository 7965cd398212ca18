"""What is true of a planted sweep: learning curves, the sweeps drawn from them, their answers.

A world is a list of arms, one per configuration, each a true learning curve in log10 C. A sweep
draws runs from it: seeds move the ceiling and the midpoint of a run, evaluations are binomial on
a common grid evenly spaced in log C. `truth` gives what an estimator should find.

Shape legend: J arms, V budgets, K evaluations of one run.

Definitions: the true score of an arm is the mean over seeds of its curve, best so far where the
curve falls (the method selects the best checkpoint). A collapse is a fault of one run: the
truth is that of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.allocation import evaluation_index
from isocompute.domain import Curve as Curve  # for all of `testing`
from isocompute.errors import InputError
from isocompute.testing.forms import FORMS, Surface
from isocompute.testing.noises import Noise, dipped, drifted, evaluated

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_GRID_PER_DECADE = 400  # of the truth: crossovers to 0.0025 decades before interpolation
_QUADRATURE = 15  # Gauss-Hermite points for the mean over seeds


@dataclass(frozen=True, kw_only=True)
class Arm:
    """The true curve of one configuration.

    Args:
        problems_per_batch, rollouts_per_problem: the configuration.
        floor, ceiling: scores at C = 0 and beyond all data.
        slope: per decade of C.
        midpoint: log10 C.
        shape: a name of `testing.forms.FORMS`; all but "logistic" and "gompertz" are forms that
            no estimator here contains.
        falls_from: log10 C from which the score falls (overfitting), or None.
        fall: score lost per decade from there.
        collapses_at: log10 C at which the first seed's score drops to 0, or None.
        seeds: number of runs where it differs from the sweep's.
    """

    problems_per_batch: int
    rollouts_per_problem: int
    floor: float
    ceiling: float
    slope: float
    midpoint: float
    shape: str = "logistic"
    falls_from: float | None = None
    fall: float = 0.0
    collapses_at: float | None = None
    seeds: int | None = None

    @property
    def batch_size(self) -> int:
        """B = B_p * n."""
        return self.problems_per_batch * self.rollouts_per_problem

    def score(
        self,
        log10_rollouts: ArrayLike,
        ceiling_shift: float = 0.0,
        midpoint_shift: float = 0.0,
        slope_shift: float = 0.0,
    ) -> FloatArray:
        """True score of one seed's checkpoint, any shape; `slope_shift` in log."""
        x = np.asarray(log10_rollouts, dtype=np.float64)
        z = self.slope * np.exp(slope_shift) * (x - self.midpoint - midpoint_shift)
        score = self.floor + (self.ceiling + ceiling_shift - self.floor) * FORMS[self.shape](z)
        if self.falls_from is not None:
            score = score - self.fall * np.maximum(x - self.falls_from, 0.0)
        out: FloatArray = np.clip(score, 0.0, 1.0)
        return out

    def mean(self, log10_rollouts: ArrayLike, noise: Noise) -> FloatArray:
        """True score, averaged over seeds."""
        return seed_mean(lambda m, s: self.score(log10_rollouts, 0.0, m, s), noise)

    def run(
        self, log10_rollouts: FloatArray, noise: Noise, seed: int, rng: np.random.Generator
    ) -> FloatArray:
        """True score of one run's checkpoints, drawn over seeds."""
        shifts = rng.standard_normal(2) * (noise.ceiling_sd, noise.midpoint_sd)
        slope_shift = rng.normal(0.0, noise.slope_sd) if noise.slope_sd else 0.0
        p = self.score(log10_rollouts, shifts[0], shifts[1], slope_shift)
        if self.collapses_at is not None and seed == 0:
            p = np.where(log10_rollouts > self.collapses_at, 0.0, p)
        return p


def seed_mean(score: Callable[[float, float], FloatArray], noise: Noise) -> FloatArray:
    """Mean of `score(midpoint shift, log slope shift)` over seeds; ceilings add nothing to it."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE)
    weights = weights / weights.sum()
    slopes = [(0.0, 1.0)]
    if noise.slope_sd:
        slopes = [(noise.slope_sd * z, w) for z, w in zip(nodes, weights, strict=True)]
    total: FloatArray = sum(
        w * v * score(noise.midpoint_sd * z, slope)
        for z, w in zip(nodes, weights, strict=True)
        for slope, v in slopes
    )
    return total


class TrueCrossover(NamedTuple):
    """Where the best arm changes from one index to another."""

    before: int
    after: int
    at: float


@dataclass(frozen=True, kw_only=True)
class World:
    """A planted sweep.

    Args:
        name: of the world.
        arms: in any order.
        max_rollouts: to which every run trains.
        first, per_octave: of the evaluation grid.
        linear: where set, evaluations are evenly spaced in C instead, this many a run.
        surface: of which the arms are samples, where the score is smooth in n.
    """

    name: str
    arms: tuple[Arm, ...]
    max_rollouts: float = 2.0**23
    first: int = 8192
    per_octave: int = 3
    linear: int | None = None
    surface: Surface | None = None

    def until(self, rollouts: float) -> World:
        """The same world with a smaller sweep budget."""
        return replace(self, max_rollouts=rollouts)

    def evaluated_at(self, arm: Arm) -> FloatArray:
        """Cumulative rollouts at which a run of the arm is evaluated, step 0 included."""
        if self.linear is not None:
            grid = self.max_rollouts * (1 + np.arange(self.linear)) / self.linear
        else:
            points = evaluation_index(
                int(self.max_rollouts), per_octave=self.per_octave, first=self.first
            )
            grid = self.first * 2.0 ** (np.arange(points) / self.per_octave)
        steps = np.unique(np.ceil(grid / arm.batch_size - 1e-9))
        rollouts = steps[steps * arm.batch_size <= self.max_rollouts] * arm.batch_size
        return np.concatenate([[0.0], rollouts])

    def sample(self, noise: Noise, seeds: int, rng: np.random.Generator) -> list[Curve]:
        """One sweep: `seeds` runs of every arm.

        Raises:
            InputError: if seeds < 1.
        """
        if seeds < 1:
            raise InputError(f"`seeds >= 1` must hold, but got seeds={seeds}; give at least 1.")
        return [
            self._run(arm, noise, seed, rng)
            for arm in self.arms
            for seed in range(arm.seeds if arm.seeds is not None else seeds)
        ]

    def _run(self, arm: Arm, noise: Noise, seed: int, rng: np.random.Generator) -> Curve:
        rollouts = self.evaluated_at(arm)
        with np.errstate(divide="ignore"):
            x = np.log10(rollouts)
        p = arm.run(x, noise, seed, rng)
        p = drifted(dipped(p, rollouts / arm.batch_size, noise, rng), x, noise, rng)
        return Curve(
            problems_per_batch=arm.problems_per_batch,
            rollouts_per_problem=arm.rollouts_per_problem,
            run=f"{arm.problems_per_batch}-{arm.rollouts_per_problem}-{seed}",
            seed=seed,
            rollouts_K=rollouts,
            score_K=evaluated(p, noise, rng),
            metric=f"avg@{noise.samples}",
            tokens_K=rollouts * 1000.0,
            steps_K=rollouts / arm.batch_size,
            trials=noise.problems * noise.samples if noise.told else None,
        )

    def truth(self, noise: Noise) -> Truth:
        """What an estimator should find under this noise (seeds' midpoints blur the mean)."""
        return Truth(world=self, noise=noise)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The noiseless answers of a world; arms in order of (B_p, n)."""

    world: World
    noise: Noise
    arms: tuple[Arm, ...] = field(init=False)

    def __post_init__(self) -> None:
        arms = sorted(self.world.arms, key=lambda a: (a.problems_per_batch, a.rollouts_per_problem))
        object.__setattr__(self, "arms", tuple(arms))

    @property
    def rollouts_per_problem_J(self) -> IntArray:
        """Parallel samples n of each arm."""
        return np.array([a.rollouts_per_problem for a in self.arms])

    @cached_property
    def _peak(self) -> tuple[FloatArray, FloatArray]:
        """A fine grid up to 10 times the largest budget and the best-so-far mean curves on it."""
        low, high = np.log10(self.world.first), np.log10(self.world.max_rollouts) + 1.0
        x = np.linspace(low, high, int((high - low) * _GRID_PER_DECADE) + 1)
        mean = np.array([arm.mean(x, self.noise) for arm in self.arms])
        return x, np.maximum.accumulate(mean, axis=1)

    def score(self, rollouts: ArrayLike) -> FloatArray:
        """Seed-mean best-so-far score, shape (J, V)."""
        x, best = self._peak
        at = np.log10(np.atleast_1d(np.asarray(rollouts, dtype=np.float64)))
        return np.array([np.interp(at, x, row) for row in best])

    def best(self, rollouts: ArrayLike) -> IntArray:
        """Index of the best arm at each budget, shape (V,)."""
        return np.asarray(self.score(rollouts).argmax(axis=0), dtype=np.int64)

    def good(self, rollouts: ArrayLike, within: float = 0.005) -> list[set[int]]:
        """Every n within `within` of the best score, at each budget."""
        score = self.score(rollouts)
        near = score >= score.max(axis=0) - within
        return [set(self.rollouts_per_problem_J[column].tolist()) for column in near.T]

    def best_n(self, rollouts: float) -> float:
        """The best n as a continuous quantity, inside the n of the arms.

        Raises:
            InputError: if the world is no surface.
        """
        surface = self.world.surface
        if surface is None:
            raise InputError(
                f"a continuous best n needs a world that is a surface, but got {self.world.name}; "
                "take one of SURFACES."
            )
        x = np.log10(rollouts)
        log2_J = np.log2(self.rollouts_per_problem_J.astype(float))

        def at(log2_n: FloatArray) -> FloatArray:
            return seed_mean(lambda m, s: surface.score(log2_n, x, m, s), self.noise)

        low, high = float(log2_J.min()), float(log2_J.max())
        for _ in range(5):  # each pass narrows the bracket 100 times
            grid = np.linspace(low, high, 201)
            top = int(at(grid).argmax())
            low, high = float(grid[max(top - 1, 0)]), float(grid[min(top + 1, 200)])
        return float(2.0 ** grid[top])

    @property
    def ceilings(self) -> FloatArray:
        """Ceiling of each arm, shape (J,)."""
        return np.array([a.ceiling for a in self.arms])

    def crossovers(self, low: float, high: float) -> list[TrueCrossover]:
        """Changes of the best arm between two budgets."""
        x = np.linspace(np.log10(low), np.log10(high), 2000)
        score = self.score(10**x)
        path = score.argmax(axis=0)
        found = []
        for i in np.flatnonzero(np.diff(path)):
            before, after = int(path[i]), int(path[i + 1])
            lead = score[after] - score[before]
            share = -lead[i] / (lead[i + 1] - lead[i])
            at = float(10 ** (x[i] + share * (x[i + 1] - x[i])))
            found.append(TrueCrossover(before, after, at))
        return found

    @property
    def support(self) -> tuple[float, float]:
        """Budgets at which every arm has 20 steps and an evaluation."""
        start = max(20 * a.batch_size for a in self.arms)
        return float(start), float(min(self.world.evaluated_at(a)[-1] for a in self.arms))
