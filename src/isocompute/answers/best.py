"""Which n is best at a budget, and how sure that is, from the draws.

Shape legend: D draws, J configurations, X budgets, F values of n (even in log2), P values of B_p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Configuration
from isocompute.intervals import draw_interval

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# A difference of score that nobody pays for: seeds of one recipe differ by five times as much
# (ScaleRL, arXiv 2510.13786). Half of it names fewer n as good as the choice, twice of it more; it
# moved no best n, support or rise of 18 sweeps of six planted worlds.
AS_GOOD = 0.002
# What may be left in doubt, one-sided, whatever the level of intervals: what is claimed holds in
# the other draws, and a configuration that is best in fewer ends no comparison by ending early.
# Half of it takes 0.08 decades of support (mean of those sweeps), twice adds 0.10.
DOUBT = 0.05
STEPS_PER_OCTAVE = 4  # the parabola finds the place between two of them
_LEVEL = 1e-9  # scores that differ by less are one score


class Best(NamedTuple):
    """What is best at one budget: a row of `best` in the document.

    The choice is the configuration of largest expected score.
    """

    x: float
    rollouts_per_problem: float  # the best n, continuous, inside the n tested
    interval: tuple[float, float]  # of it
    probability: dict[int, float]  # chance of being best, by n (all of its B_p together)
    expected_regret: dict[int, float]  # score lost on average, by n (at its best B_p)
    as_good: list[int]  # n whose expected loss against the choice is below 0.002
    confidence_set: list[int]  # fewest n whose chances add up to the level
    problems_per_batch: int  # of the choice, as all that follows
    tested_rollouts_per_problem: int
    score: float
    score_interval: tuple[float, float]
    extrapolated: bool  # outside the budgets at which all were compared

    @property
    def configuration(self) -> Configuration:
        """The choice."""
        return Configuration(self.problems_per_batch, self.tested_rollouts_per_problem)


def interval(draw: FloatArray, level: float) -> tuple[float, float]:
    """Equal-tailed interval of draws of one number."""
    low, high = draw_interval(draw, level)
    return float(low), float(high)


def guess_row(
    c: Configuration, score_D: FloatArray, chosen_D: FloatArray, level: float
) -> dict[str, Any]:
    """A row of a document's `neighbours`: an untested configuration against the choice."""
    gain_D = score_D - chosen_D
    return {
        **c._asdict(),
        "score": score_D.mean(),
        "interval": interval(score_D, level),
        "gain": gain_D.mean(),
        "gain_interval": interval(gain_D, level),
    }


def probability_best(score_DJX: FloatArray) -> FloatArray:
    """Share of the draws in which each configuration scores most, (J, X); ties are shared.

    >>> import numpy as np
    >>> probability_best(np.array([[[0.5], [0.4]], [[0.3], [0.3]]])).ravel().tolist()
    [0.75, 0.25]
    """
    top_DJX = score_DJX >= score_DJX.max(axis=1, keepdims=True) - _LEVEL
    share: FloatArray = (top_DJX / top_DJX.sum(axis=1, keepdims=True)).mean(axis=0)
    return share


def expected_regret(score_DJX: FloatArray) -> FloatArray:
    """Mean over the draws of what each configuration scores below the best of the draw, (J, X).

    >>> import numpy as np
    >>> expected_regret(np.array([[[0.5], [0.4]], [[0.3], [0.5]]])).ravel().round(2).tolist()
    [0.1, 0.05]
    """
    lost: FloatArray = score_DJX.max(axis=1).mean(axis=0) - score_DJX.mean(axis=0)
    return lost


def choice(mean_J: FloatArray) -> int:
    """The configuration of largest expected score; of equals the first, the smallest batch."""
    return int(np.flatnonzero(mean_J >= mean_J.max() - _LEVEL)[0])


def as_good(mean_J: FloatArray, chosen: int) -> IntArray:
    """Those whose expected loss against the chosen one is below 0.002, itself included."""
    return np.flatnonzero(mean_J > mean_J[chosen] - AS_GOOD)


def first_to_try(gain_DF: FloatArray, n_F: IntArray) -> int:
    """Of what nobody ran, what is expected to improve most on a choice; of equals the largest n.

    >>> import numpy as np
    >>> first_to_try(np.array([[0.10, 0.02, 0.04], [-0.06, 0.04, 0.0]]), np.array([4, 16, 32]))
    0
    >>> first_to_try(np.array([[0.063, 0.02, 0.04], [-0.06, 0.04, 0.0]]), np.array([4, 16, 32]))
    1
    """
    worth_F = np.maximum(gain_DF, 0.0).mean(axis=0)
    alike = np.flatnonzero(worth_F > worth_F.max() - AS_GOOD)
    return int(alike[n_F[alike].argmax()])


def confidence_set(probability_J: FloatArray, n_J: IntArray, level: float) -> list[int]:
    """Fewest n whose chances of being best add up to `level`, ascending.

    >>> import numpy as np
    >>> confidence_set(np.array([0.01, 0.6, 0.39]), np.array([8, 16, 32]), 0.95)
    [16, 32]
    """
    values, place_J = np.unique(n_J, return_inverse=True)
    share = np.bincount(place_J, probability_J)
    order = np.argsort(-share, kind="stable")
    enough = int(np.searchsorted(np.cumsum(share[order]), level - _LEVEL)) + 1
    return sorted(values[order[:enough]].tolist())


def log2_n_grid(n_J: IntArray) -> FloatArray:
    """log2 n from the smallest to the largest tested, four steps an octave."""
    low, high = np.log2([n_J.min(), n_J.max()])
    return np.linspace(low, high, int(np.ceil((high - low) * STEPS_PER_OCTAVE)) + 1)


def continuous_best(score_DFX: FloatArray, log2_n_F: FloatArray) -> FloatArray:
    """log2 of the best n of every draw, (D, X), from scores on an even grid of log2 n.

    The largest of the grid, moved to the top of the parabola through it and its neighbours; at an
    end of the grid it stays there, and is a bound.

    >>> import numpy as np
    >>> grid = np.arange(5.0)
    >>> continuous_best(-((grid - 1.8) ** 2)[None, :, None], grid).round(6).item()
    1.8
    """
    at_DX = score_DFX.argmax(axis=1)
    if len(log2_n_F) < 3:
        return np.asarray(log2_n_F[at_DX])
    mid_DX = np.clip(at_DX, 1, len(log2_n_F) - 2)
    before, peak, after = (
        np.take_along_axis(score_DFX, (mid_DX + i)[:, None], axis=1)[:, 0] for i in (-1, 0, 1)
    )
    bend_DX = np.minimum(before - 2 * peak + after, -1e-15)
    move_DX = np.clip(0.5 * (before - after) / bend_DX, -1.0, 1.0)
    return np.asarray(log2_n_F[mid_DX] + (log2_n_F[1] - log2_n_F[0]) * move_DX)


class Ridge(NamedTuple):
    """The best (B_p, n) of every draw, n a continuous quantity."""

    log2_n_DX: FloatArray  # of the best n, inside those tested at its B_p
    bp_DX: FloatArray  # B_p of the tested configuration that is best in that draw
    tested_P: IntArray  # the B_p
    log2_n_PDX: FloatArray  # best n at each B_p, inside the n tested at any
    edge_PDX: IntArray  # where that is the smallest (-1) or largest (1) tested at any

    def at(self, which_X: BoolArray) -> Ridge:
        """At some of the budgets."""
        kept = {name: getattr(self, name)[..., which_X] for name in self._fields if name[-1] == "X"}
        return self._replace(**kept)


def ridge(
    score_PDFX: FloatArray, log2_n_F: FloatArray, tested_P: IntArray, inside_PF: BoolArray,
    best_bp_DX: FloatArray,
) -> Ridge:  # fmt: skip
    """The best n of every draw at every B_p, and at the B_p that is best in the draw.

    Args:
        score_PDFX: smooth scores at each B_p of `tested_P`.
        log2_n_F: even grid over all n tested.
        inside_PF: the n between those tested at each B_p.
        best_bp_DX: B_p of the best tested configuration of each draw.
    """
    n_PDX = np.stack([continuous_best(score, log2_n_F) for score in score_PDFX])
    lowest, highest = log2_n_F[0], log2_n_F[-1]  # of one n, which is both, nothing is inside
    edge_PDX = (n_PDX >= highest).astype(int) - ((n_PDX <= lowest) & (lowest < highest))
    inside_PDX = np.stack([
        continuous_best(score_DFX[:, inside_F], log2_n_F[inside_F])
        for score_DFX, inside_F in zip(score_PDFX, inside_PF, strict=True)
    ])  # fmt: skip
    place_DX = np.searchsorted(tested_P, best_bp_DX)
    n_DX = np.take_along_axis(inside_PDX, place_DX[None], axis=0)[0]
    return Ridge(n_DX, best_bp_DX, tested_P, n_PDX, edge_PDX)
