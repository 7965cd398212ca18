"""Forms of true learning curves, and surfaces that are smooth in n.

A form maps z = slope * (log10 C - midpoint) to the share of the rise that has been made. The
logistic and Gompertz are what estimators know; the others are there because they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

_APART = 2.0  # in z, of each half of a double rise from the midpoint
_STEEPER = 1.8  # each half of a double rise, against a single one
_SLOW = 4.0  # z at which slow growth has made about one rise


def _logistic(z: FloatArray) -> FloatArray:
    s: FloatArray = 1 / (1 + np.exp(-z))
    return s


def _gompertz(z: FloatArray) -> FloatArray:
    s: FloatArray = np.exp(-np.exp(-z))
    return s


def _weibull(z: FloatArray) -> FloatArray:
    """1 - exp(-(C / scale)^shape), half of it at z = 0."""
    s: FloatArray = -np.expm1(-np.log(2) * np.exp(np.minimum(z, 50.0)))
    return s


def _double(z: FloatArray) -> FloatArray:
    """Two rises of equal height with a shelf between."""
    early, late = _logistic(_STEEPER * (z + _APART)), _logistic(_STEEPER * (z - _APART))
    return (early + late) / 2


def _slow(z: FloatArray) -> FloatArray:
    """Grows linearly in log C past the midpoint, without a ceiling (scores end at 1)."""
    s: FloatArray = np.logaddexp(0.0, z) / _SLOW
    return s


FORMS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "logistic": _logistic,
    "gompertz": _gompertz,
    "weibull": _weibull,
    "double": _double,
    "slow": _slow,
}


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A score that is a closed form of (log2 n, log10 C) at one B_p.

    Args:
        rise: coefficients of the rise above the floor in u = log2 n - `centre`: constant, linear,
            square.
        centre: log2 n at which u = 0.
        midpoint: log10 C of half the rise at u = 0.
        per_octave: by which the midpoint moves per octave of n ("trend").
        noise_n: n below which more rollouts save steps ("steps"): half the rise takes
            steps * (1 + noise_n / n) steps, thus C = steps * B_p * (n + noise_n).
        timing: which of the two says where the midpoint is.
        steps, problems_per_batch: of "steps"; `midpoint` and `per_octave` are then unused.
    """

    shape: str = "logistic"
    floor: float = 0.40
    rise: tuple[float, float, float] = (0.25, 0.0, 0.0)
    centre: float = 6.0
    slope: float = 3.0
    midpoint: float = 5.2
    per_octave: float = 0.0
    timing: Literal["trend", "steps"] = "trend"
    noise_n: float = 32.0
    steps: float = 60.0
    problems_per_batch: int = 16

    def ceiling(self, log2_n: ArrayLike) -> FloatArray:
        """Score that a run at n approaches."""
        u = np.asarray(log2_n, dtype=np.float64) - self.centre
        return self.floor + self.rise[0] + self.rise[1] * u + self.rise[2] * u**2

    def log10_midpoint(self, log2_n: ArrayLike) -> FloatArray:
        """Where half the rise has been made."""
        log2_n = np.asarray(log2_n, dtype=np.float64)
        if self.timing == "steps":
            out: FloatArray = np.log10(
                self.steps * self.problems_per_batch * (2.0**log2_n + self.noise_n)
            )
            return out
        return self.midpoint + self.per_octave * (log2_n - self.centre)

    def score(
        self,
        log2_n: ArrayLike,
        log10_rollouts: ArrayLike,
        midpoint_shift: float = 0.0,
        slope_shift: float = 0.0,
    ) -> FloatArray:
        """True score of one seed; arguments broadcast."""
        x = np.asarray(log10_rollouts, dtype=np.float64)
        slope = self.slope * np.exp(slope_shift)
        z = slope * (x - self.log10_midpoint(log2_n) - midpoint_shift)
        share = FORMS[self.shape](z)
        out: FloatArray = np.clip(
            self.floor + (self.ceiling(log2_n) - self.floor) * share, 0.0, 1.0
        )
        return out
