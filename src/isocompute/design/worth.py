"""What a sweep is worth: the score that is lost by planning with it, in simulated worlds.

A budget pays for the sweep and for the final run. In each world the sweep is simulated, fitted by
the project's own model and planned with; what the final run then scores on what is left of the
budget is judged by the world's truth, against the best n with the whole budget.

Shape legend: W worlds, F values of n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.answers.best import AS_GOOD, choice
from isocompute.design.prior import Worlds
from isocompute.design.simulate import Sweep, simulate
from isocompute.model import fit_posterior

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Draws of the fits of simulated sweeps: the choice needs means alone. With half and with twice of
# them the loss of 32 sweeps stays within its error (0.004); half saves a tenth of the time.
DRAWS = 40
LEAST_STEPS = 20  # of a run that may be compared or planned (answers.prescribe.MIN_STEPS)


class Loss(NamedTuple):
    """An expected loss of score and its Monte Carlo standard error."""

    loss: float
    standard_error: float

    @classmethod
    def of(cls, lost_W: FloatArray) -> Loss:
        """Mean over worlds."""
        spread = lost_W.std(ddof=1) / np.sqrt(len(lost_W)) if len(lost_W) > 1 else np.nan
        return cls(float(lost_W.mean()), float(spread))


def allowed(worlds: Worlds, b_p: int, rollouts: ArrayLike, max_batch: int | None) -> list[int]:
    """Indices of the n that a final run of so many rollouts (of each n) may have."""
    rollouts_F = np.broadcast_to(rollouts, len(worlds.n_F))
    return [
        f for f, n in enumerate(worlds.n_F)
        if (max_batch is None or b_p * n <= max_batch) and rollouts_F[f] >= LEAST_STEPS * b_p * n
    ]  # fmt: skip


def best_guess(worlds: Worlds, rollouts: ArrayLike, among: Sequence[int]) -> int:
    """Index of the n of largest expected score without a sweep."""
    mean_F = worlds.at(rollouts).mean(axis=0)
    return among[choice(mean_F[list(among)])]


class Guess(NamedTuple):
    """An n that may be run without a sweep.

    Args:
        rollouts_per_problem: n.
        loss: against the best n of each world.
        standard_error: of the loss.
        behind: what it loses against the guess, in the same worlds.
        behind_error: standard error of that.
        as_good: that is below 0.002, as in a plan, or within two of its standard errors.
    """

    rollouts_per_problem: int
    loss: float
    standard_error: float
    behind: float
    behind_error: float
    as_good: bool


def guesses(worlds: Worlds, rollouts: ArrayLike, among: Sequence[int]) -> list[Guess]:
    """Every n without a sweep, the one to take first, then by n."""
    score_WF, at = worlds.at(rollouts), best_guess(worlds, rollouts, among)
    best_W, out = score_WF[:, list(among)].max(axis=1), list[Guess]()
    for f in sorted(among, key=lambda f: (f != at, f)):
        loss, behind = (Loss.of(of_W - score_WF[:, f]) for of_W in (best_W, score_WF[:, at]))
        near = behind.loss < max(AS_GOOD, 2 * behind.standard_error)
        out.append(Guess(worlds.n_F[f], *loss, *behind, near))
    return out


def one_for_all(worlds: Worlds, rollouts: ArrayLike, among: Sequence[int]) -> int:
    """Index of the n that loses least on average over all budgets up to this one.

    Budgets are even in log from a hundredth of it on: what a team has that trains with the same n
    whatever the budget.
    """
    lost_F = np.zeros(len(among))
    for share in np.geomspace(0.01, 1, 9):
        score_WF = worlds.at(share * np.asarray(rollouts))[:, list(among)]
        lost_F += (score_WF.max(axis=1, keepdims=True) - score_WF).mean(axis=0)
    return among[int(lost_F.argmin())]


def lost_by(worlds: Worlds, chosen_W: IntArray | int, rollouts: ArrayLike, whole: ArrayLike,
            among: Sequence[int]) -> FloatArray:  # fmt: skip
    """Score lost in each world by a choice with so many rollouts, against the best with all.

    Rollouts are one number, or one for each n.
    """
    best_W = worlds.at(whole)[:, list(among)].max(axis=1)
    score_WF = worlds.at(rollouts)
    at_W = np.broadcast_to(np.asarray(chosen_W, dtype=np.int64), len(worlds))
    return np.asarray(best_W - score_WF[np.arange(len(worlds)), at_W])


def planned(worlds: Worlds, sweep: Sweep, final: ArrayLike, among: Sequence[int], seed: int,
            first: int = 0) -> IntArray:  # fmt: skip
    """Index of the n that a plan chooses in each world after this sweep, (W,).

    As `answers.prescribe` with a tested grid: the tested n of the largest expected score.

    Args:
        worlds: the truths.
        sweep: what is trained.
        final: rollouts of the final run, or those of each n (F,).
        among: indices of the n that the limits leave.
        seed: of all luck.
        first: number of the first world, where the worlds are a part of more.
    """
    out = np.empty(len(worlds), dtype=np.int64)
    kept = [n for f, n in enumerate(worlds.n_F) if f in among]
    x_F = np.log10(np.broadcast_to(final, len(worlds.n_F)))
    for w in range(len(worlds)):
        curves = simulate(worlds, w, sweep, seed + 1000 * (first + w))
        posterior = fit_posterior(curves, draws=DRAWS, seed=seed)
        n_J = [c.rollouts_per_problem for c in posterior.configurations]
        x_U, place_J = np.unique([x_F[worlds.n_F.index(n)] for n in n_J], return_inverse=True)
        mean_JU = posterior.scores(x_U).mean(axis=0)
        mean_J = mean_JU[np.arange(len(n_J)), place_J]
        free = [j for j, n in enumerate(n_J) if n in kept]
        out[w] = worlds.n_F.index(n_J[free[choice(mean_J[free])]])
    return out
