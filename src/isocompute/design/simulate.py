"""A sweep as it would look in a world: runs with their luck, evaluations with their noise.

Shape legend: K evaluations, W worlds, F values of n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocompute.allocation import (
    Allocation,
    evaluation_index,
    even_evaluations,
    even_interval,
)
from isocompute.design.prior import Worlds
from isocompute.domain import Curve
from isocompute.intervals import FloatArray
from isocompute.lr_sweep import FACTORS, anchored_at
from isocompute.recipe import Recipe
from isocompute.study.evaluated import PER_OCTAVE, PROBLEMS, SAMPLES

# How runs of one configuration differ: medians of the model's own prior (model/noise.py), so that
# the noise of a designed sweep is the noise that its fit expects.
CEILING_SD, MIDPOINT_SD = 0.03, 0.04  # shares of what is gained; decades
LEAST_FIRST = 1024  # rollouts before the first evaluation
OCTAVES_SEEN = 8  # from the first evaluation to the last: 25 evaluations tell a curve


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Which runs to train.

    Args:
        problems_per_batch: B_p.
        rollouts_per_problem: the n, ascending.
        seeds: runs of each.
        rollouts_per_run: of every run, at most.
        evaluated: problems of an evaluation.
        per_octave: evaluations while the rollouts double.
        first: rollouts before the first evaluation; None: by the length of the runs.
        share: of training, at most, that evaluations every so many steps draw; None: the trainer
            evaluates on the grid alone.
    """

    problems_per_batch: int
    rollouts_per_problem: tuple[int, ...]
    seeds: int
    rollouts_per_run: int
    evaluated: int = PROBLEMS
    per_octave: int = PER_OCTAVE
    first: int | None = None
    share: float | None = None

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self.rollouts_per_problem) * self.seeds

    def steps(self, n: int) -> int:
        """M of a run."""
        return self.rollouts_per_run // (self.problems_per_batch * n)

    @property
    def rollouts(self) -> int:
        """Of all runs together: whole batches."""
        return self.seeds * sum(
            self.steps(n) * n * self.problems_per_batch for n in self.rollouts_per_problem
        )

    def evaluation_rollouts(self, n: int) -> int:
        """Rollouts that the evaluations of one run draw; not part of its compute."""
        draws, steps = self.evaluated * SAMPLES, self.steps(n)
        if self.share is None:
            return len(evaluated_at(self, n)) * draws
        every = even_interval(
            self.problems_per_batch * n, steps, per_octave=self.per_octave,
            first=self.first_evaluation, draws=draws, share=self.share,
        )  # fmt: skip
        return even_evaluations(steps, every) * draws

    @property
    def evaluations(self) -> int:
        """Rollouts that the evaluations of all runs draw."""
        return self.seeds * sum(map(self.evaluation_rollouts, self.rollouts_per_problem))

    @property
    def first_evaluation(self) -> int:
        """Rollouts before the first evaluation: a power of two."""
        if self.first is not None:
            return self.first
        early = self.rollouts_per_run / 2**OCTAVES_SEEN
        return max(LEAST_FIRST, 1 << math.floor(math.log2(max(early, 1.0))))

    def at(self, rollouts_per_run: int) -> Sweep:
        """The same runs, shorter or longer."""
        return replace(self, rollouts_per_run=rollouts_per_run)

    def single(self, n: int, rollouts: float) -> Sweep:
        """One run of one n, evaluated as the runs of this sweep are."""
        return replace(
            self, rollouts_per_problem=(n,), seeds=1, rollouts_per_run=int(rollouts),
            first=self.first_evaluation,
        )

    def of_rates(self, recipe: Recipe, n_F: Sequence[int], steps: int) -> Sweep:
        """Learning rates tried at this B_p, with the n whose batch is nearest to the recipe's.

        Their runs are evaluated at both ends alone.
        """
        at = anchored_at([
            Allocation(problems_per_batch=self.problems_per_batch, rollouts_per_problem=n, steps=1)
            for n in n_F
        ], recipe)  # fmt: skip
        one = self.single(at.rollouts_per_problem, steps * at.batch_size)
        return replace(one, seeds=len(FACTORS) * self.seeds, per_octave=1,
                       first=one.rollouts_per_run)  # fmt: skip


def evaluated_at(sweep: Sweep, n: int) -> FloatArray:
    """Cumulative rollouts at which a run is evaluated, step 0 included, (K,)."""
    first, batch = sweep.first_evaluation, sweep.problems_per_batch * n
    last = evaluation_index(sweep.rollouts_per_run, per_octave=sweep.per_octave, first=first)
    points = first * 2.0 ** (np.arange(last) / sweep.per_octave)  # the common grid
    passed = np.maximum(np.ceil(points / batch - 1e-9), 1.0)
    steps = np.unique(np.append(passed, sweep.steps(n)))
    return np.append(0.0, batch * steps[(steps > 0) & (steps <= sweep.steps(n))])


def simulate(worlds: Worlds, world: int, sweep: Sweep, seed: int) -> list[Curve]:
    """The curves of a sweep in one world.

    The luck of a run and of its evaluations belongs to (seed, world, n, number of the run): sweeps
    that are compared have it in common.
    """
    return [
        _run(worlds, world, sweep, n, run, seed)
        for n in sweep.rollouts_per_problem
        for run in range(sweep.seeds)
    ]


def _run(worlds: Worlds, world: int, sweep: Sweep, n: int, run: int, seed: int) -> Curve:
    rng = np.random.default_rng((seed, world, n, run))
    better, later = rng.standard_normal(2) * (CEILING_SD, MIDPOINT_SD)
    rollouts_K = evaluated_at(sweep, n)
    mean_X = worlds.score_WFX[world, worlds.n_F.index(n)]
    x_K = np.log10(np.maximum(rollouts_K, 1.0))
    score_K = np.interp(x_K - later, worlds.x_X, mean_X)
    floor = mean_X[0]
    trials = sweep.evaluated * SAMPLES
    p_K = np.clip(floor + (score_K - floor) * (1 + better), 0.0, 1.0)
    # One uniform number per outcome and evaluation would be exact and slow; the normal
    # approximation of a thousand outcomes is as good wherever scores are not at 0 or 1.
    seen_K = p_K + np.sqrt(p_K * (1 - p_K) / trials) * rng.standard_normal(len(p_K))
    return Curve(
        problems_per_batch=sweep.problems_per_batch, rollouts_per_problem=n, run=f"{n}-{run}",
        seed=run, rollouts_K=rollouts_K, score_K=np.clip(seen_K, 0.0, 1.0),
        metric=worlds.metric, steps_K=rollouts_K / (sweep.problems_per_batch * n), trials=trials,
    )  # fmt: skip
