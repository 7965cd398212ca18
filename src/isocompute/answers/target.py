"""The other way round: what it takes to reach a score.

Shape legend: D draws, J configurations, X budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isocompute.answers.best import FloatArray
from isocompute.answers.logged import in_logs, in_words, range_of, score_text
from isocompute.domain.text import compact, unit_words
from isocompute.errors import InputError
from isocompute.model.data import MIN_STEPS

if TYPE_CHECKING:
    from isocompute.answers.reading import Reading

# Times the largest budget compared: past that intervals hold in four of five simulated sweeps
# (`weight.HELD`). Half of it refuses scores that are a doubling away, twice names budgets that
# nobody checked.
MOST = 100.0
SURE = 0.9  # of the draws: "nine in ten"
_PER_DECADE = 40  # budgets: steps of 6%, between which scores go straight


class Reached(NamedTuple):
    """Budgets, in the unit of a fit, with which the best choice reaches a score."""

    score: float  # in 0..1
    even: float  # where it is what the choice is expected to score
    sure: float | None  # where nine of ten draws of the choice reach it; None: nowhere in reach
    least: bool  # whether it is there at the first budget there is to say something of

    def to_dict(self, unit: str) -> dict[str, Any]:
        """The entry `target` of a plan."""
        return {**self._asdict(), "unit": unit}


def budget_for(fit: Reading, logged: float) -> Reached:
    """The smallest budgets with which the configuration of largest expected score reaches a score.

    Args:
        logged: the score, as the trainer logs it.

    Raises:
        InputError: a score outside its range, below where the runs begin, or not expected at
            100 times the budgets compared.
    """
    low, high = range_of(fit.curves)
    if not low < logged < high:
        raise InputError(
            f"a score must lie between {low:g} and {high:g}, but got {logged:g}; give it as your "
            "trainer logs it."
        )
    if logged <= (floor := in_logs(fit, float(fit.posterior.floor_D.mean()))):
        raise InputError(
            f"a score to reach must lie above {floor:.3g}, where these runs begin, but got "
            f"{logged:g}; give it as your trainer logs it ({low:g} to {high:g})."
        )
    first, last = np.log10(fit.support)
    last += np.log10(MOST)
    x_X = np.linspace(first, last, int((last - first) * _PER_DECADE) + 2)
    # A run of fewer than 20 steps is no plan.
    long_JX = np.array([[fit.buys(c, x) >= MIN_STEPS * c.batch_size for x in 10**x_X]
                        for c in fit.configurations])  # fmt: skip
    x_X, long_JX = x_X[long_JX.any(axis=0)], long_JX[:, long_JX.any(axis=0)]
    score_DJX = fit.scores_at(10**x_X)
    best_X = np.where(long_JX, score_DJX.mean(axis=0), -np.inf).argmax(axis=0)
    score_DX = score_DJX[:, best_X, np.arange(len(x_X))]
    score = (logged - low) / (high - low)
    even = _first(x_X, score_DX.mean(axis=0), score)
    if even is None:
        at = int(score_DX.mean(axis=0).argmax())
        ends = np.quantile(score_DX[:, at], [(1 - fit.level) / 2, (1 + fit.level) / 2])
        most = in_words(fit, float(score_DX[:, at].mean()))
        span = " to ".join(in_words(fit, float(end)) for end in ends)
        raise InputError(
            f"a score must be expected within {MOST:g} times the budgets compared "
            f"({compact(float(10**last))} {unit_words(fit.unit)}), but {logged:g} is not: the most "
            f"there is {most} ({span}); ask for less, or sweep what may raise it."
        )
    sure = _first(x_X, (score_DX >= score).mean(axis=0), SURE)
    return Reached(score, even, sure, even <= 10 ** x_X[0])


def _first(x_X: FloatArray, value_X: FloatArray, wanted: float) -> float | None:
    """The budget from which on a value is reached; on the line between two of them."""
    there = np.flatnonzero(value_X >= wanted)
    if not len(there):
        return None
    i = int(there[0])
    if i == 0:
        return float(10 ** x_X[0])
    share = (wanted - value_X[i - 1]) / (value_X[i] - value_X[i - 1])
    return float(10 ** (x_X[i - 1] + share * (x_X[i] - x_X[i - 1])))


def target_words(d: Mapping[str, Any]) -> str:
    """What a score takes, in one line; "" where none was asked for."""
    if not (found := d.get("target")):
        return ""
    even, unit = compact(found["even"]), unit_words(found["unit"])
    sure = f"90% sure at {compact(found['sure'])}" if found["sure"] else "at no budget 90% sure"
    less = " or fewer" if found["least"] else ""
    return f"{score_text(d, found['score'])} is expected at {even} {unit}{less}, {sure}"
