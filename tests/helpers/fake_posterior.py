"""A posterior whose draws are planted: logistic curves, and what each draw adds to them.

Shape legend: D draws, J configurations, F values of n, X budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Configuration, Curve

FloatArray = NDArray[np.float64]
Surface = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def logistic(
    ceiling: Callable[[FloatArray, FloatArray], FloatArray],
    midpoint: Callable[[FloatArray, FloatArray], FloatArray],
    *,
    floor: float = 0.1,
    slope: float = 4.0,
) -> Surface:
    """score(log2 B_p, log2 n, log10 x) of a logistic curve whose ceiling and midpoint vary."""

    def score(log2_bp: FloatArray, log2_n: FloatArray, x: FloatArray) -> FloatArray:
        z = slope * (x - midpoint(log2_bp, log2_n))
        return floor + (ceiling(log2_bp, log2_n) - floor) / (1 + np.exp(-z))

    return score


def rising(log2_bp: FloatArray, log2_n: FloatArray, x: FloatArray) -> FloatArray:
    """log2 n* = 3 + 2 (x - 4): from 8 at 10^4 to 128 at 10^6, whatever B_p; 0.02 per octave^2."""
    best = 3.0 + 2.0 * (x - 4.0)
    return 0.1 + 0.1 * (x - 3.0) - 0.02 * (log2_n - best) ** 2 + 0.0 * log2_bp


class FakePosterior:
    """Draws of a planted surface.

    Args:
        configurations: (B_p, n) pairs.
        surface: mean score.
        shift_DJ: what every draw adds to each tested configuration, at every budget.
        move_D: octaves by which every draw moves the whole surface along log2 n.
        smooth_D: what every draw adds everywhere.
        first, last: log10 budgets of data, of all or by configuration.
    """

    def __init__(
        self,
        configurations: Sequence[tuple[int, int]],
        surface: Surface,
        *,
        shift_DJ: FloatArray | None = None,
        move_D: FloatArray | None = None,
        first: float | Sequence[float] = 3.0,
        last: float | Sequence[float] = 6.0,
        state: str | Sequence[str] = "complete",
        runs: int = 3,
        floor: float = 0.1,
        curves: Sequence[Curve] = (),
        unit: str = "rollouts",
    ) -> None:
        self.configurations = tuple(sorted(Configuration(*c) for c in configurations))
        J = len(self.configurations)
        given = [x for x in (shift_DJ, move_D) if x is not None]
        D = len(given[0]) if given else 1
        self.surface = surface
        self.shift_DJ = np.zeros((D, J)) if shift_DJ is None else shift_DJ
        self.move_D = np.zeros(D) if move_D is None else move_D
        self.first_J = np.broadcast_to(np.asarray(first, dtype=float), J).copy()
        self.last_J = np.broadcast_to(np.asarray(last, dtype=float), J).copy()
        self.state_J = (state,) * J if isinstance(state, str) else tuple(state)
        self.n_runs_J, self.n_points_J = np.full(J, runs), np.full(J, 30 * runs)
        self.floor_D = np.full(D, floor)
        self.ceiling_DJ = 0.6 + self.shift_DJ
        self.slope_DJ = np.full((D, J), 4.0)
        self.log10_midpoint_DJ = np.full((D, J), 4.5)
        self.curves, self.unit, self.select, self.seed = tuple(curves), unit, "best", 0
        self.calls = 0
        self.in_rollouts = self

    def scores(self, log10_x_X: FloatArray) -> FloatArray:
        self.calls += 1
        bp, n = np.log2(np.array(self.configurations, dtype=float)).T
        moved = n[None, :, None] - self.move_D[:, None, None]
        score = self.surface(bp[None, :, None], moved, np.asarray(log10_x_X)[None, None])
        return score + self.shift_DJ[:, :, None]

    def of_one_run(
        self, score_D: FloatArray, gained_D: FloatArray, factor: float, which: int = 0
    ) -> FloatArray:
        return score_D + np.resize([0.02, -0.02], len(score_D))

    def smooth_scores(
        self, problems_per_batch: float | FloatArray, log2_n_F: FloatArray, log10_x_X: FloatArray
    ) -> FloatArray:
        self.calls += 1
        bp = np.broadcast_to(np.log2(problems_per_batch), len(log2_n_F))
        moved = np.asarray(log2_n_F)[None, :, None] - self.move_D[:, None, None]
        return self.surface(bp[None, :, None], moved, np.asarray(log10_x_X)[None, None])


def runs_of(
    posterior: FakePosterior, rng: np.random.Generator, *, noise: float = 0.005, points: int = 30
) -> list[Curve]:
    """Learning curves whose mean is the planted surface, one seed after the other."""
    curves = []
    for j, c in enumerate(posterior.configurations):
        x = np.linspace(posterior.first_J[j], posterior.last_J[j], points)
        bp, n = np.log2([c.problems_per_batch]), np.log2([c.rollouts_per_problem])
        every = np.reshape(posterior.surface(bp, n, x), (-1, points))  # one row, or one per draw
        mean = np.maximum.accumulate(every.mean(axis=0))
        for seed in range(int(posterior.n_runs_J[j])):
            curves.append(
                Curve(
                    problems_per_batch=c.problems_per_batch,
                    rollouts_per_problem=c.rollouts_per_problem,
                    run=f"{c} seed {seed}",
                    seed=seed,
                    rollouts_K=10**x,
                    score_K=np.clip(mean + noise * rng.standard_normal(points), 0, 1),
                    metric="avg@4",
                    trials=1200,
                )
            )
    return curves
