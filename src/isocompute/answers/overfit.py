"""What the scores themselves show, run by run: noise, falls, and overfitting.

Shape legend: K evaluations of all runs of one configuration, in order of log10 x.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isocompute.answers.best import FloatArray
from isocompute.domain import Configuration, Curve
from isocompute.health.rules import LEAST_CHANGE, SURE
from isocompute.model.data import TYPICAL_TRIALS
from isocompute.model.noise import MISFIT_LENGTH

WINDOW = MISFIT_LENGTH / 2  # decades: half of that over which a curve may leave its form


class Windows(NamedTuple):
    """Means over a quarter of a decade around each evaluation, with their variances."""

    x_K: FloatArray
    mean_K: FloatArray
    variance_K: FloatArray
    start: tuple[float, float] | None = None  # mean and variance of the scores at step 0

    def at(self, x: float) -> int:
        """The window nearest to log10 x."""
        return int(np.abs(self.x_K - x).argmin())

    def change(self, start: int, end: int) -> tuple[float, float]:
        """Difference between two windows, and in standard errors."""
        move = float(self.mean_K[end] - self.mean_K[start])
        return move, move / max(self.error(start, end), 1e-9)

    def error(self, start: int, end: int) -> float:
        """Standard error of such a difference."""
        return float(np.sqrt(self.variance_K[start] + self.variance_K[end]))

    def fell(self, start: int, end: int) -> bool:
        """Whether the second window surely lies below the first, by at least 0.01."""
        move, sure = self.change(start, end)
        return move <= -LEAST_CHANGE and sure < -SURE

    @property
    def rises(self) -> bool:
        """Whether it surely ends higher than it began, at step 0 or at its first evaluation.

        True where nothing tells: no step 0, and no two evaluations a window apart.
        """
        move, sure = self.change(0, -1)
        if self.start is None:
            return sure > SURE or (move >= 0 and self.x_K[-1] - self.x_K[0] < WINDOW)
        return max(sure, self._since(self.start)) > SURE

    @property
    def below_start(self) -> bool:
        """Whether it surely ends lower than at step 0; False where there is no such score."""
        return self.start is not None and self._since(self.start) < -SURE

    def _since(self, start: tuple[float, float]) -> float:
        """Change from step 0 to the end, in standard errors."""
        mean, variance = start
        error = float(np.sqrt(variance + self.variance_K[-1]))
        return (float(self.mean_K[-1]) - mean) / max(error, 1e-9)


def within(rate: ArrayLike) -> FloatArray:
    """A mean of successes whose noise is asked for: one that saw none is not sure of 0.

    The same wherever phi is measured and used. Half or twice of the 0.002 moves no more than one
    false alarm in a hundred flat sweeps.
    """
    return np.clip(np.asarray(rate, dtype=np.float64), 0.002, 0.998)


def noise_scale(curves: Sequence[Curve]) -> float:
    """phi, the variance of one evaluation of mean p being phi p (1 - p), from neighbours.

    The median of the residuals from the line in log x through both neighbours: no collapse moves
    it. A curve bends between neighbours further apart than a decade, which is no noise. Where no
    score has two neighbours, that of 300 problems with 4 samples.
    Source: Gasser, Sroka and Jennen-Steinmetz, Biometrika 73 (1986) 625.
    """
    found = [np.zeros(0)]
    for c in curves:
        y, x = c.score_K[c.rollouts_K > 0], np.log10(c.rollouts_K[c.rollouts_K > 0])
        apart = x[2:] - x[:-2]
        near = (apart > 0) & (apart <= 2 * MISFIT_LENGTH)
        a = ((x[2:] - x[1:-1])[near]) / apart[near]  # the weight of the one before
        p = within(((y[:-2] + y[1:-1] + y[2:]) / 3)[near])
        left = y[1:-1][near] - a * y[:-2][near] - (1 - a) * y[2:][near]
        found.append(left / np.sqrt((1 + a**2 + (1 - a) ** 2) * p * (1 - p)))
    rest = np.concatenate(found)
    # 0.6745: median of the absolute value of a standard normal.
    return float((np.median(np.abs(rest)) / 0.6745) ** 2) if len(rest) else 1 / TYPICAL_TRIALS


def windows_of(curves: Sequence[Curve], unit: str) -> dict[Configuration, Windows]:
    """Windows of every configuration that has a score beyond step 0.

    All windows are of the same runs, those that reach the last one, up to where all do: else the
    level of a seed that goes on alone would read as a change.
    """
    phi, runs = noise_scale(curves), defaultdict(list)
    for curve in curves:
        if len(curve.score_K):
            runs[curve.configuration].append(np.stack([curve.position(unit), curve.score_K]))
    out = {}
    for configuration in sorted(runs):
        ends = np.array([run[0, -1] for run in runs[configuration]])
        reach = ends >= ends.max() * 10 ** (-WINDOW / 2)
        x, y = np.concatenate(
            [run for run, kept in zip(runs[configuration], reach, strict=True) if kept], axis=1
        )
        x, y = x[x <= ends[reach].min()], y[x <= ends[reach].min()]
        order = np.argsort(x, kind="stable")
        zero, order = y[x <= 0], order[x[order] > 0]
        if not len(order):
            continue
        x, total = np.log10(x[order]), np.concatenate([[0.0], np.cumsum(y[order])])
        first = np.searchsorted(x, x - WINDOW / 2, side="left")
        after = np.searchsorted(x, x + WINDOW / 2, side="right")
        mean = (total[after] - total[first]) / (after - first)
        p = within(mean)
        start = None
        if len(zero):
            p_0 = float(within(zero.mean()))
            start = float(zero.mean()), phi * p_0 * (1 - p_0) / len(zero)
        out[configuration] = Windows(x, mean, phi * p * (1 - p) / (after - first), start)
    return out


def falls(of: Windows) -> bool:
    """Whether the last window surely lies below an earlier one, by at least 0.01."""
    return of.fell(int(of.mean_K.argmax()), -1)


def overfitting(
    validation: Sequence[Curve], train: Sequence[Curve], *, unit: str = "rollouts"
) -> list[dict[str, Any]]:
    """Train-test gap of every configuration, and where its validation turned.

    Args:
        validation, train: curves of the same runs on both splits; configurations without train
            curves, or with one score beyond step 0, are left out.
        unit: of x.

    Returns:
        Rows {"problems_per_batch", "rollouts_per_problem", "gap" (train minus validation at the
        end), "gap_at_peak", "from" (budget of the best validation), "validation_lost" since then,
        "standard_errors", "train_gained" since then, "overfits"}. It overfits where validation
        lost at least 0.01 and 3 standard errors of noise, and train did not as surely.
    """
    trained_of, rows = windows_of(train, unit), []
    for c, seen in windows_of(validation, unit).items():
        if c not in trained_of or len(seen.x_K) < 2:
            continue
        top = int(seen.mean_K.argmax())
        move, sure = seen.change(top, -1)
        trained = trained_of[c]
        then, last = (trained.at(float(seen.x_K[k])) for k in (top, -1))
        start, end = float(trained.mean_K[then]), float(trained.mean_K[last])
        rows.append({
            **c._asdict(),
            "gap": end - float(seen.mean_K[-1]),
            "gap_at_peak": start - float(seen.mean_K[top]),
            "from": 10 ** float(seen.x_K[top]),
            "validation_lost": -move,
            "standard_errors": -sure,
            "train_gained": end - start,
            "overfits": falls(seen) and not trained.fell(then, last),
        })  # fmt: skip
    return rows
