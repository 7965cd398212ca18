"""Curves -> what the model sees: one mean curve per configuration, and how its runs differ.

Shape legend: J configurations, K positions of one configuration (padded), R its runs.

A run's evaluations are averaged over narrow bins of log C, runs of one configuration over each
bin. `overlap_JKK` carries which runs stand behind which bin, so that runs of any length add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Configuration, Curve
from isocompute.intervals import FloatArray

IntArray = NDArray[np.int64]

MIN_STEPS = 20  # where budgets are compared (a configuration's first updates are warm-up)
# Bins of one configuration. Finer ones cost time and tell nothing: a curve of slope 4 per decade
# moves by less than 0.001 inside a bin. Twice as many change no score by more than 0.0005.
POSITIONS = 20
TYPICAL_TRIALS = 1200.0  # 300 problems, 4 samples (arXiv 2603.12151), where a source says nothing
BROKEN_SHARE = 0.5  # a run that lost more than half of its rise for good is broken, not noisy
# Sizes of one evaluation's noise that such a rise must have: of 840 runs that stay level, 266 seem
# to break without it and none with it.
PLAIN = 6.0


class Runs(NamedTuple):
    """Runs of one configuration on its bins; NaN where a run has nothing."""

    score_RK: FloatArray
    rows_RK: FloatArray


@dataclass(frozen=True, kw_only=True)
class SweepData:
    """A sweep as the model sees it."""

    configurations: tuple[Configuration, ...]  # J, sorted by (B_p, n)
    x_JK: FloatArray  # log10 of rollouts
    score_JK: FloatArray  # mean score there
    has_JK: NDArray[np.bool_]  # where there is one
    white_JK: FloatArray  # variance of the mean score per unit of one evaluation's variance
    overlap_JKK: FloatArray  # share of a run's own (lasting) variance in the covariance of two bins
    runs_J: IntArray  # number of runs
    points_J: IntArray  # number of evaluations, step 0 left out
    of_runs: tuple[Runs, ...]  # per configuration its runs, for what differs between them
    floor: float | None  # mean score at step 0; None where nobody evaluated it
    floor_evaluations: int  # how many such evaluations
    trials: float | None  # outcomes behind one evaluation (median); None where no source says
    broken: tuple[tuple[Configuration, str], ...]  # runs that lost what they had learnt
    first_J: FloatArray  # log10 of rollouts of the first evaluation with 20 steps; inf: none
    last_J: FloatArray  # log10 of rollouts of the last evaluation

    @property
    def log2_n_J(self) -> FloatArray:
        """log2 of rollouts per problem."""
        return np.log2([c.rollouts_per_problem for c in self.configurations])

    @property
    def log2_bp_J(self) -> FloatArray:
        """log2 of problems per batch."""
        return np.log2([c.problems_per_batch for c in self.configurations])


class _Run(NamedTuple):
    x: FloatArray  # log10 of rollouts
    y: FloatArray
    rollouts: FloatArray


def reduce_curves(curves: Sequence[Curve]) -> SweepData:
    """Average runs over bins and configurations.

    Args:
        curves: of one metric; at least one with a score beyond step 0.
    """
    whole, curves = curves, counted(curves)
    groups: dict[Configuration, list[Curve]] = defaultdict(list)
    for curve in curves:
        groups[curve.configuration].append(curve)
    zero = _at_step_0(curves)
    trials = [c.trials for c in curves if c.trials]
    broken = [one for one, kept in zip(whole, curves, strict=True) if kept is not one]
    configurations, parts = [], []
    first, last, points = [], [], []
    for configuration in sorted(groups):
        runs = [run for run in map(_after_step_0, groups[configuration]) if len(run.x)]
        if not runs:
            continue
        configurations.append(configuration)
        parts.append(_binned(runs))
        points.append(sum(len(run.x) for run in runs))
        first.append(_first(groups[configuration]))
        last.append(max(float(run.x[-1]) for run in runs))
    J, K = len(parts), max(len(x) for x, _ in parts)
    x_JK, y_JK, white = np.zeros((J, K)), np.zeros((J, K)), np.ones((J, K))
    has, overlap = np.zeros((J, K), bool), np.zeros((J, K, K))
    for j, (x, of) in enumerate(parts):
        k, there = len(x), np.isfinite(of.score_RK)
        n = there.sum(axis=0)
        x_JK[j, :k], x_JK[j, k:] = x, x[-1]
        y_JK[j, :k] = np.where(there, of.score_RK, 0.0).sum(axis=0) / n
        has[j, :k] = True
        white[j, :k] = np.where(there, 1 / np.maximum(of.rows_RK, 1), 0.0).sum(axis=0) / n**2
        share = there / n
        overlap[j, :k, :k] = share.T @ share
    return SweepData(
        configurations=tuple(configurations),
        x_JK=x_JK,
        score_JK=y_JK,
        has_JK=has,
        white_JK=white,
        overlap_JKK=overlap,
        runs_J=np.array([len(of.score_RK) for _, of in parts]),
        points_J=np.array(points),
        of_runs=tuple(of for _, of in parts),
        floor=float(zero.mean()) if len(zero) else None,
        floor_evaluations=len(zero),
        trials=float(np.median(trials)) if trials else None,
        broken=tuple(sorted((c.configuration, c.run) for c in broken)),
        first_J=np.array(first),
        last_J=np.array(last),
    )


def counted(curves: Sequence[Curve]) -> list[Curve]:
    """Every run as far as it counts: one that broke ends before its fall, others stay as they are.

    Args:
        curves: of one sweep, whose scores at step 0 are one floor.
    """
    zero, out = _at_step_0(curves), list[Curve]()
    for curve in curves:
        run = _after_step_0(curve)
        at = _breaks_at(run.y, float(zero.mean()) if len(zero) else None)
        out.append(curve if at is None else curve.until(run.rollouts[at - 1]))
    return out


def _at_step_0(curves: Sequence[Curve]) -> FloatArray:
    return np.concatenate([np.zeros(0), *(c.score_K[c.rollouts_K <= 0] for c in curves)])


def _after_step_0(curve: Curve) -> _Run:
    order = np.argsort(curve.rollouts_K, kind="stable")
    order = order[curve.rollouts_K[order] > 0]
    rollouts = curve.rollouts_K[order]
    return _Run(np.log10(rollouts), curve.score_K[order], rollouts)


def _breaks_at(y: FloatArray, floor: float | None) -> int | None:
    """Index from which a run never again reaches half of its rise."""
    if len(y) < 4:
        return None
    low = min(floor if floor is not None else float(y[0]), float(y[0]))
    # The third largest: one lucky evaluation is no level that a run had reached.
    high = float(np.sort(y)[-3])
    above = np.flatnonzero(y >= low + BROKEN_SHARE * (high - low))
    after = int(above[-1]) + 1 if len(above) else len(y)
    bent = np.abs(y[1:-1] - (y[:-2] + y[2:]) / 2)  # 0.6745: median |z| of a standard normal
    noise = float(np.median(bent)) / 0.6745 / np.sqrt(1.5)
    if len(y) - after < 3 or high - low < max(0.02, PLAIN * noise):
        return None
    return after


def _binned(runs: Sequence[_Run]) -> tuple[FloatArray, Runs]:
    """Common bins of the runs of one configuration: mean position, and each run's mean score."""
    every = np.concatenate([run.x for run in runs])
    low, high = float(every.min()), float(every.max())
    width = max((high - low) / POSITIONS, 1e-6)
    distinct = np.unique(np.round(every, 6))
    if len(distinct) <= POSITIONS:
        place = [np.searchsorted(distinct, np.round(run.x, 6)) for run in runs]
        bins = len(distinct)
    else:
        place = [np.minimum(((run.x - low) / width).astype(int), POSITIONS - 1) for run in runs]
        bins = POSITIONS
    rows = np.array([np.bincount(p, minlength=bins) for p in place], dtype=np.float64)
    total = np.array(
        [np.bincount(p, run.y, minlength=bins) for p, run in zip(place, runs, strict=True)]
    )
    where = sum(np.bincount(p, run.x, minlength=bins) for p, run in zip(place, runs, strict=True))
    used = rows.sum(axis=0) > 0
    rows, total, where = rows[:, used], total[:, used], np.asarray(where)[used]
    with np.errstate(invalid="ignore", divide="ignore"):
        score = total / rows
    return where / rows.sum(axis=0), Runs(score, rows)


def _first(curves: Sequence[Curve]) -> float:
    """log10 of the rollouts at the first evaluation with 20 steps; infinity: none."""
    first = np.inf
    for c in curves:
        steps_K = c.rollouts_K / c.configuration.batch_size if c.steps_K is None else c.steps_K
        enough_K = (steps_K >= MIN_STEPS) & (c.rollouts_K > 0)
        first = min(first, float(c.rollouts_K[enough_K].min(initial=np.inf)))
    return float(np.log10(first))
