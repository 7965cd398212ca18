"""How a planted sweep is seen: seeds, evaluations, and noise that lasts.

Shape legend: K evaluations of one run, P validation problems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

FloatArray = NDArray[np.float64]

DRIFT_DECADES = 0.5  # over which lasting noise forgets, in log10 C
_SAME_PROBLEMS = (0.50, 0.35)  # share of a problem's difficulty that all runs, one run share
_DIP_STEPS, _DIP_DECADES = 5.0, 0.15  # where an early dip lies; it is over before 20 steps


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How well a sweep sees.

    Args:
        problems, samples: of one evaluation; a score is Binomial(problems * samples, p) / both.
        ceiling_sd: of seeds, in score.
        midpoint_sd: of seeds, in decades.
        slope_sd: of seeds, in log slope: their curves differ in shape.
        drift_sd: of noise that lasts along a run, in score (an autoregression in log C).
        dip_sd: of a dip after the first steps, in score; over before 20 steps.
        greedy: one greedy answer to each of the same problems, at every evaluation of every run:
            some problems are hard for all runs, some for one run through all its evaluations.
            The problems represent their population exactly. `samples` must be 1.
        told: runs say how many outcomes are behind each score.
    """

    problems: int = 300
    samples: int = 4
    ceiling_sd: float = 0.007
    midpoint_sd: float = 0.03
    slope_sd: float = 0.0
    drift_sd: float = 0.0
    dip_sd: float = 0.0
    greedy: bool = False
    told: bool = False


def dipped(
    p_K: FloatArray, steps_K: FloatArray, noise: Noise, rng: np.random.Generator
) -> FloatArray:
    """Scores with a dip of the run's own depth after its first steps."""
    if not noise.dip_sd:
        return p_K
    depth = abs(rng.normal(0.0, noise.dip_sd))
    away_K = np.log10(np.maximum(steps_K, 1e-9) / _DIP_STEPS) / _DIP_DECADES
    out: FloatArray = np.clip(p_K - depth * np.exp(-(away_K**2) / 2), 0.0, 1.0)
    return out


def drifted(p_K: FloatArray, x_K: FloatArray, noise: Noise, rng: np.random.Generator) -> FloatArray:
    """Scores with noise that neighbouring evaluations share; none at step 0."""
    if not noise.drift_sd:
        return p_K
    out = p_K.copy()
    off = 0.0
    before = -np.inf
    for k, x in enumerate(x_K):
        if not np.isfinite(x):
            continue
        kept = np.exp(-(x - before) / DRIFT_DECADES)
        off = kept * off + np.sqrt(1 - kept**2) * rng.normal(0.0, noise.drift_sd)
        out[k], before = p_K[k] + off, x
    clipped: FloatArray = np.clip(out, 0.0, 1.0)
    return clipped


def evaluated(p_K: FloatArray, noise: Noise, rng: np.random.Generator) -> FloatArray:
    """Measured scores of checkpoints whose true scores are given."""
    if not noise.greedy:
        m = noise.problems * noise.samples
        scores: FloatArray = rng.binomial(m, p_K) / m
        return scores
    of_all, of_run = _SAME_PROBLEMS
    shared_P = ndtri((np.arange(noise.problems) + 0.5) / noise.problems)
    own_P = rng.standard_normal(noise.problems)
    now_KP = rng.standard_normal((len(p_K), noise.problems))
    difficulty_KP = (
        np.sqrt(of_all) * shared_P + np.sqrt(of_run) * own_P + np.sqrt(1 - of_all - of_run) * now_KP
    )
    right_KP = difficulty_KP < ndtri(np.clip(p_K, 0.0, 1.0))[:, None]
    greedy: FloatArray = right_KP.mean(axis=1)
    return greedy
