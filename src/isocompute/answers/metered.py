"""A sweep read by what is paid: the same draws, at the rollouts that a budget buys of each.

The score of a run depends on its rollouts, not on what they are counted in. So the model is fitted
to rollouts once, and tokens or GPU-hours only say how far each configuration gets with a budget.

Shape legend: D draws, J configurations, F other (B_p, n), X budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from isocompute.answers.price import update_takes
from isocompute.answers.spending import filled, lines
from isocompute.domain import Configuration, Curve
from isocompute.intervals import FloatArray
from isocompute.model import Posterior


class Meter:
    """Rollouts and what they take of a unit, by configuration.

    As `answers.spending` has it, beyond the data at the upper end. Raises as `Curve.position`.

    Args:
        curves: that counted the unit.
        configurations: J of them, all with curves.
        unit: one of `domain.curve.UNITS`.
    """

    def __init__(
        self, curves: Sequence[Curve], configurations: Sequence[Configuration], unit: str
    ) -> None:
        self.batch_J = np.array([c.batch_size for c in configurations], dtype=np.float64)
        for c in curves:
            c.position(unit)
        found = lines(curves, unit)
        self._lines = [found[one] for one in configurations]

    def rollouts(self, x_X: FloatArray) -> FloatArray:
        """log10 of the rollouts that budgets buy of each configuration, (J, X)."""
        return np.stack([line.buys(x_X) for line in self._lines])

    def rollouts_of(self, batch_F: FloatArray, x_X: FloatArray) -> FloatArray:
        """The same at other batches, (F, X): the time of an update is a line in its batch."""
        each_JX = 10 ** (x_X - self.rollouts(x_X))  # of one rollout
        takes = [update_takes(self.batch_J, self.batch_J * each_J, batch_F) for each_J in each_JX.T]
        return x_X - np.log10(np.stack(takes, axis=1) / batch_F[:, None])

    def spent(self, j: int, at: FloatArray) -> FloatArray:
        """log10 of what log10 rollouts of the j-th configuration take; infinity stays."""
        known = np.isfinite(at)
        return np.where(known, self._lines[j].of(np.where(known, at, 0)), at)


@dataclass(frozen=True, kw_only=True)
class Metered(Posterior):
    """Draws of a sweep against another unit than rollouts."""

    fitted: Posterior = field(repr=False)  # the draws in rollouts
    counted: str  # the unit
    meter: Meter = field(repr=False)  # what the rollouts take of it

    @property
    def unit(self) -> str:
        """Of x."""
        return self.counted

    @property
    def in_rollouts(self) -> Posterior:
        """The draws as they were fitted."""
        return self.fitted

    @cached_property
    def first_J(self) -> FloatArray:
        """log10 of what was spent at the first evaluation with 20 steps; infinity: none."""
        return self._spent_J(self.data.first_J)

    @cached_property
    def last_J(self) -> FloatArray:
        """log10 of what was spent at the last evaluation."""
        return self._spent_J(self.data.last_J)

    def buys(self, c: Configuration, x: float) -> float:
        """Rollouts of a configuration that a budget buys; of an untested one by its batch."""
        at, same = np.log10([float(x)]), self.configurations
        if c in same:
            return float(10 ** self.meter.rollouts(at)[same.index(c), 0])
        return float(10 ** self.meter.rollouts_of(np.array([float(c.batch_size)]), at)[0, 0])

    def _spent_J(self, at_J: FloatArray) -> FloatArray:
        return np.array([self.meter.spent(j, at) for j, at in enumerate(at_J)], dtype=np.float64)

    @cached_property
    def log10_midpoint_DJ(self) -> FloatArray:
        """log10 of what half of the rise takes."""
        middle_DJ = self.fitted.log10_midpoint_DJ
        return np.stack([self.meter.spent(j, d) for j, d in enumerate(middle_DJ.T)], axis=1)

    def scores(self, log10_x_X: FloatArray) -> FloatArray:
        """As `Posterior.scores`, at budgets of the unit."""
        return self.fitted.scores(self.meter.rollouts(_row(log10_x_X)))

    def smooth_scores(
        self, problems_per_batch: float | FloatArray, log2_n_F: FloatArray, log10_x_X: FloatArray
    ) -> FloatArray:
        """As `Posterior.smooth_scores`, at budgets of the unit."""
        n, x = np.asarray(log2_n_F, dtype=np.float64), _row(log10_x_X)
        bp = np.broadcast_to(np.asarray(problems_per_batch, dtype=np.float64), n.shape)
        rows = self.meter.rollouts_of(bp * 2**n, x), self.meter.rollouts(x)
        return self.fitted.smooth_scores(bp, n, np.concatenate(rows))


def _row(x: FloatArray) -> FloatArray:
    return np.atleast_1d(np.asarray(x, dtype=np.float64))


def metered(posterior: Posterior, unit: str) -> Posterior:
    """The draws of a posterior against a unit.

    Raises:
        InputError: a run that did not count it.
    """
    fitted = posterior.in_rollouts
    if unit == "rollouts":
        return fitted
    same = {f.name: getattr(fitted, f.name) for f in fields(Posterior)}
    same["curves"] = tuple(filled(fitted.curves, unit))
    meter = Meter(same["curves"], fitted.configurations, unit)
    return Metered(**same, fitted=fitted, counted=unit, meter=meter)
