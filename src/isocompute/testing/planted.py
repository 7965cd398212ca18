"""Planted worlds: sweeps whose truth is known, for tests of curves, frontiers and laws.

A world is a list of arms, one per configuration, each a true learning curve in log10 C. A sweep
draws runs from it: seeds move the ceiling and the midpoint of a run, evaluations are binomial on
a common grid evenly spaced in log C. `truth` gives what an estimator should find.

Shape legend: J arms, V budgets, K evaluations of one run.

Definitions: the true score of an arm is the mean over seeds of its curve, best so far where the
curve falls (the method selects the best checkpoint). A collapse is a fault of one run: the
truth is that of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.allocation import evaluation_index
from isocompute.errors import InputError
from isocompute.importers.base import Curve
from isocompute.laws.form import Law, averaged, law_of

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
        shape: "logistic", or "gompertz" for a curve that the fitted form cannot follow exactly.
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
    shape: Literal["logistic", "gompertz"] = "logistic"
    falls_from: float | None = None
    fall: float = 0.0
    collapses_at: float | None = None
    seeds: int | None = None

    @property
    def batch_size(self) -> int:
        """B = B_p * n."""
        return self.problems_per_batch * self.rollouts_per_problem

    def score(
        self, log10_rollouts: ArrayLike, ceiling_shift: float = 0.0, midpoint_shift: float = 0.0
    ) -> FloatArray:
        """True score of one seed's checkpoint, any shape."""
        x = np.asarray(log10_rollouts, dtype=np.float64)
        z = self.slope * (x - self.midpoint - midpoint_shift)
        s = 1 / (1 + np.exp(-z)) if self.shape == "logistic" else np.exp(-np.exp(-z))
        score = self.floor + (self.ceiling + ceiling_shift - self.floor) * s
        if self.falls_from is not None:
            score = score - self.fall * np.maximum(x - self.falls_from, 0.0)
        out: FloatArray = np.clip(score, 0.0, 1.0)
        return out


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How well a sweep sees.

    Args:
        problems, samples: of one evaluation; a score is Binomial(problems * samples, p) / both.
        ceiling_sd: of seeds, in score.
        midpoint_sd: of seeds, in decades.
    """

    problems: int = 300
    samples: int = 4
    ceiling_sd: float = 0.007
    midpoint_sd: float = 0.03


NOISE: Mapping[str, Noise] = {
    "low": Noise(problems=300, samples=16, ceiling_sd=0.003, midpoint_sd=0.015),
    "middle": Noise(),  # ScaleRL saw ceilings of repeats within 0.02 of each other
    "high": Noise(problems=150, samples=4, ceiling_sd=0.012, midpoint_sd=0.05),
}


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
    """

    name: str
    arms: tuple[Arm, ...]
    max_rollouts: float = 2.0**23
    first: int = 8192
    per_octave: int = 3

    def until(self, rollouts: float) -> World:
        """The same world with a smaller sweep budget."""
        return replace(self, max_rollouts=rollouts)

    def evaluated_at(self, arm: Arm) -> FloatArray:
        """Cumulative rollouts at which a run of the arm is evaluated, step 0 included."""
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
        shifts = rng.standard_normal(2) * (noise.ceiling_sd, noise.midpoint_sd)
        p = arm.score(x, *shifts)
        if arm.collapses_at is not None and seed == 0:
            p = np.where(x > arm.collapses_at, 0.0, p)
        m = noise.problems * noise.samples
        return Curve(
            problems_per_batch=arm.problems_per_batch,
            rollouts_per_problem=arm.rollouts_per_problem,
            run=f"{arm.problems_per_batch}-{arm.rollouts_per_problem}-{seed}",
            seed=seed,
            rollouts_K=rollouts,
            score_K=rng.binomial(m, p) / m,
            metric=f"avg@{noise.samples}",
            tokens_K=rollouts * 1000.0,
            steps_K=rollouts / arm.batch_size,
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
        nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE)
        weights = weights / weights.sum()
        mean = np.array(
            [
                sum(
                    w * arm.score(x, midpoint_shift=self.noise.midpoint_sd * z)
                    for z, w in zip(nodes, weights, strict=True)
                )
                for arm in self.arms
            ]
        )
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

    def law(self, low: float, high: float, points: int = 400) -> Law:
        """The law of the noiseless frontier between two budgets, in rollouts.

        The same form and the same running average as in `laws.estimate`.
        """
        x = np.linspace(np.log10(low), np.log10(high), points)
        log2_J = np.log2(self.rollouts_per_problem_J.astype(float))
        path = log2_J[self.best(10**x)]
        limits = float(log2_J.min()), float(log2_J.max())
        falls = bool(path[-1] < path[0])
        path = averaged(x, path)
        return law_of(x, path, variable="rollouts", linear=False, decreasing=falls, limits=limits)

    @property
    def support(self) -> tuple[float, float]:
        """Budgets at which every arm has 20 steps and an evaluation."""
        start = max(20 * a.batch_size for a in self.arms)
        return float(start), float(min(self.world.evaluated_at(a)[-1] for a in self.arms))


def chained_arms(
    rollouts_per_problem: tuple[int, ...],
    ceilings: tuple[float, ...],
    crossings: tuple[float, ...],
    *,
    problems_per_batch: int = 16,
    floor: float = 0.40,
    slope: float = 3.0,
    first_midpoint: float = 4.9,
) -> tuple[Arm, ...]:
    """Arms of one slope whose neighbours cross at given budgets.

    Args:
        rollouts_per_problem: n, in the order in which they lead.
        ceilings: rising along that order.
        crossings: log10 C at which each hands over to the next, one fewer.

    Raises:
        InputError: if the three do not fit each other or the ceilings do not rise.
    """
    lengths = len(rollouts_per_problem), len(ceilings), len(crossings) + 1
    if len(set(lengths)) != 1 or not (np.diff(ceilings) > 0).all():
        raise InputError(
            "chained arms need one ceiling per n, rising, and one crossing fewer, but got "
            f"{lengths[0]} n, ceilings {ceilings}, {len(crossings)} crossings; make them fit."
        )
    midpoint, arms = first_midpoint, []
    for j, (n, ceiling) in enumerate(zip(rollouts_per_problem, ceilings, strict=True)):
        if j:
            share = (ceilings[j - 1] - floor) / (ceiling - floor)
            s = share / (1 + np.exp(-slope * (crossings[j - 1] - midpoint)))
            midpoint = crossings[j - 1] - float(np.log(s / (1 - s))) / slope
        arms.append(
            Arm(
                problems_per_batch=problems_per_batch,
                rollouts_per_problem=n,
                floor=floor,
                ceiling=ceiling,
                slope=slope,
                midpoint=midpoint,
            )
        )
    return tuple(arms)


_N = (8, 16, 32, 64, 128, 256, 512)
_RISING = chained_arms(
    _N, (0.600, 0.620, 0.641, 0.662, 0.683, 0.704, 0.725), (5.5, 5.7, 5.9, 6.1, 6.3, 6.5)
)
_EQUAL = Arm(
    problems_per_batch=16, rollouts_per_problem=8, floor=0.40, ceiling=0.65, slope=3.0, midpoint=5.2
)


def _ladder(ceilings: tuple[float, ...]) -> tuple[Arm, ...]:
    """The same curve with one ceiling per n: the order never changes."""
    return tuple(
        replace(_EQUAL, rollouts_per_problem=n, ceiling=c)
        for n, c in zip(_N, ceilings, strict=True)
    )


def _joint() -> tuple[Arm, ...]:
    """Three B_p, each a little worse away from 64, under a cap B <= 16,384."""
    return tuple(
        replace(
            arm,
            problems_per_batch=b_p,
            ceiling=arm.ceiling - 0.006 * abs(np.log2(b_p / 64)),
        )
        for b_p in (16, 64, 256)
        for arm in _RISING
        if b_p * arm.rollouts_per_problem <= 16384
    )


WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        World(name="rising", arms=_RISING),
        World(
            name="late_winner",
            arms=chained_arms((8, 128, 512), (0.60, 0.66, 0.72), (5.8, 6.4)),
        ),
        World(
            name="three_octaves",
            arms=(
                *chained_arms((8, 16, 32, 64), (0.600, 0.625, 0.650, 0.675), (5.6, 5.85, 6.1)),
                replace(_RISING[-1], rollouts_per_problem=128, ceiling=0.665, midpoint=5.75),
            ),
        ),
        World(name="equal", arms=_ladder((0.65,) * 7)),
        World(  # one n starts sooner and all reach one plateau: it never ceases to be best
            name="meeting",
            arms=tuple(
                replace(a, slope=4.0, midpoint=4.8 if a.rollouts_per_problem == 8 else 5.0)
                for a in _ladder((0.65,) * 7)
            ),
        ),
        World(name="constant_small", arms=_ladder((0.68, 0.66, 0.65, 0.64, 0.63, 0.62, 0.61))),
        World(name="constant_large", arms=_ladder((0.61, 0.62, 0.63, 0.64, 0.65, 0.66, 0.68))),
        World(
            name="falling",
            arms=chained_arms((512, 128, 32, 8), (0.60, 0.63, 0.66, 0.69), (5.6, 5.95, 6.3)),
        ),
        World(
            name="overfit",
            arms=tuple(
                replace(a, falls_from=6.2, fall=0.04 * (1 + (a.rollouts_per_problem <= 64)))
                for a in _RISING
            ),
        ),
        World(
            name="collapse",
            arms=tuple(
                replace(a, collapses_at=6.0) if a.rollouts_per_problem in (32, 256) else a
                for a in _RISING
            ),
        ),
        World(
            name="unequal_seeds",
            arms=tuple(
                replace(a, seeds=s) for a, s in zip(_RISING, (5, 1, 3, 2, 5, 2, 3), strict=True)
            ),
        ),
        World(name="capped", arms=tuple(a for a in _RISING if a.batch_size <= 2048)),
        World(name="joint_capped", arms=_joint()),
        World(name="gompertz", arms=tuple(replace(a, shape="gompertz") for a in _RISING)),
    )
}
NULL_WORLDS = ("equal", "meeting", "constant_small", "constant_large", "falling")
