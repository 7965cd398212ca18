"""What a sweep is worth: the score that is lost by planning with it, in simulated worlds.

A budget pays for the sweep and for the final run. In each world the sweep is simulated, fitted by
the project's own model and planned with; what the final run then scores on what is left of the
budget is judged by the world's truth, against the best n with the whole budget.

Shape legend: W worlds, F values of n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isocompute.answers.best import AS_GOOD, FloatArray, IntArray, choice
from isocompute.design.candidates import Limits
from isocompute.design.prior import Worlds
from isocompute.design.simulate import Sweep, simulate
from isocompute.model import fit_posterior
from isocompute.model.data import MIN_STEPS

# Draws of the fits of simulated sweeps: the choice needs means alone. With half and with twice of
# them the loss of 32 sweeps stays within its error (0.004); half saves a tenth of the time.
DRAWS = 40
KEPT = 3  # candidates that see as many worlds again
# A sweep is judged in twice as many worlds until its gain lies three standard errors above zero or
# one below, or is known to a quarter of what counts as good; then it is recommended if it lies two
# above: of what is as good, running none is cheaper.
ABOVE, BELOW, SURE, PRECISE = 3.0, 1.0, 2.0, AS_GOOD / 4
MOST, TIMES = 320, 8  # worlds at most: half a minute; times the draws asked for


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
        if (max_batch is None or b_p * n <= max_batch) and rollouts_F[f] >= MIN_STEPS * b_p * n
    ]  # fmt: skip


def best_guess(worlds: Worlds, rollouts: ArrayLike, among: Sequence[int]) -> int:
    """Index of the n of largest expected score without a sweep."""
    mean_F = worlds.at(rollouts).mean(axis=0)
    return among[choice(mean_F[list(among)])]


class Guess(NamedTuple):
    """An n that may be run without a sweep."""

    rollouts_per_problem: int
    loss: float  # against the best n of each world
    standard_error: float
    behind: float  # what it loses against the guess, in the same worlds
    behind_error: float
    as_good: bool  # that is below 0.002, as in a plan, or within two of its standard errors


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
        final: rollouts of the final run, or those of each n (F,).
        among: indices of the n that the limits leave.
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


@dataclass(frozen=True)
class Lost:
    """What planning after a sweep loses, and what it chooses: (W,) each."""

    total_W: FloatArray
    chosen_W: IntArray

    def and_(self, other: Lost) -> Lost:
        """In the worlds of both."""
        return Lost(np.append(self.total_W, other.total_W),
                    np.append(self.chosen_W, other.chosen_W))  # fmt: skip


def most_judged(draws: int) -> int:
    """Worlds in which a sweep is judged at most."""
    return max(draws, min(TIMES * draws, MOST))


def pays(gain: Loss) -> bool:
    """Whether a gain is surely above zero, by the error of the simulation."""
    return gain.loss > SURE * gain.standard_error


def nothing_lost(gain: Loss) -> bool:
    """Whether it cannot be told from zero."""
    return abs(gain.loss) <= SURE * gain.standard_error


@dataclass(frozen=True)
class Judge:
    """Losses in the worlds of one question."""

    worlds: Worlds
    limits: Limits
    b_p: int  # of sweep and final run
    seed: int
    # Rollouts of each n without a sweep; None: of the whole budget, no evaluations.
    whole_F: FloatArray | None = None
    alone_bp: int | None = None  # B_p of a run without a sweep; None: the same

    def bought(self, amount: float) -> FloatArray:
        """Rollouts of each n that an amount buys, (F,)."""
        return np.array([self.limits.buys(self.b_p, n, amount) for n in self.worlds.n_F])

    def left(self, sweep: Sweep, *, swept: bool = True) -> FloatArray:
        """Rollouts of a final run of each n after a sweep, or without it, (F,)."""
        amount = self.limits.left(sweep, swept=swept)
        final = [self.limits.final(sweep, n, amount) for n in self.worlds.n_F]
        return np.array([float(run.rollouts) for run in final])

    @property
    def whole(self) -> FloatArray:
        """Rollouts of each n without a sweep."""
        return self.bought(self.limits.budget) if self.whole_F is None else self.whole_F

    def _among(self, rollouts_F: FloatArray) -> list[int]:
        return allowed(self.worlds, self.b_p, rollouts_F, self.limits.max_batch)

    @property
    def _free(self) -> list[int]:
        """Indices of the n that a run without a sweep may have."""
        return allowed(self.worlds, self.alone_bp or self.b_p, self.whole, self.limits.max_batch)

    def lost(self, sweep: Sweep, which: slice) -> Lost:
        """By the sweep, in some of the worlds."""
        some, left_F = self.worlds.take(which), self.left(sweep)
        chosen_W = planned(some, sweep, left_F, self._among(left_F), self.seed, which.start)
        return Lost(self._lost_by(chosen_W, left_F, which), chosen_W)

    def _lost_by(
        self, chosen_W: IntArray | int, rollouts_F: FloatArray, which: slice
    ) -> FloatArray:
        return lost_by(self.worlds.take(which), chosen_W, rollouts_F, self.whole, self._free)

    def screen(self, every: list[Sweep], size: int) -> Sweep:
        """The candidate that loses least: all on some worlds, the best three on as many again."""
        first, second = slice(0, size), slice(size, 2 * size)
        seen = {sweep: self.lost(sweep, first).total_W for sweep in every}
        kept = sorted(every, key=lambda sweep: seen[sweep].mean())[:KEPT]
        more = {s: np.append(seen[s], self.lost(s, second).total_W) for s in kept}
        return min(kept, key=lambda sweep: more[sweep].mean())

    def decided(self, sweep: Sweep, guess: Guess, first: int, draws: int) -> tuple[Lost, slice]:
        """Losses by a sweep, in so many worlds that its gain over a guess is clear, and in which.

        Args:
            first: the first world that has not been seen yet.
            draws: worlds to begin with.
        """
        which, most = slice(first, first + draws), first + most_judged(draws)
        lost = self.lost(sweep, which)
        while which.stop < most:
            gain, error = self.gain(guess, lost.total_W, which)
            if error <= PRECISE or gain > ABOVE * error or gain < -BELOW * error:
                break
            more = slice(which.stop, min(2 * which.stop - first, most))
            lost, which = lost.and_(self.lost(sweep, more)), slice(first, more.stop)
        return lost, which

    def guesses(self) -> list[Guess]:
        """Every n that may be run without a sweep, in all worlds, the best guess first."""
        return guesses(self.worlds, self.whole, self._free)

    def without(self, which: slice) -> tuple[FloatArray, int]:
        """By the best guess with the whole budget, and its n."""
        return self._of_one(best_guess, which)

    def steadied(self, lost_W: FloatArray, which: slice) -> Loss:
        """A loss in some of the worlds as it would be in all, by what the guess loses in both.

        Hard worlds are hard for both: of what the guess loses less in these worlds than in all, so
        much is added as goes with it.
        """
        none_W, everywhere = self.without(which)[0], self.guesses()[0].loss
        return Loss.of(lost_W + _share(lost_W, none_W) * (everywhere - none_W))

    def gain(self, guess: Guess, lost_W: FloatArray, which: slice) -> Loss:
        """What a sweep that loses so much in some of the worlds saves over a guess.

        Of the error of the guess's loss only that part counts that the sweep's does not share.
        """
        after = self.steadied(lost_W, which)
        apart = (1 - _share(lost_W, self.without(which)[0])) * guess.standard_error
        return Loss(guess.loss - after.loss, float(np.hypot(after.standard_error, apart)))

    def one(self, which: slice) -> tuple[FloatArray, int]:
        """By the n that is best on average over all budgets, and that n."""
        return self._of_one(one_for_all, which)

    def _of_one(self, choose: Callable[..., int], which: slice) -> tuple[FloatArray, int]:
        at = choose(self.worlds, self.whole, self._free)
        return self._lost_by(at, self.whole, which), self.worlds.n_F[at]

    def choice_alone(self, which: slice, lost: Lost) -> FloatArray:
        """Of the loss the part of the choice, as if the sweep had cost nothing."""
        return self._lost_by(lost.chosen_W, self.whole, which)

    def best_of(self, sweep: Sweep, which: slice) -> FloatArray:
        """Of the loss the part of the choice, if it were known which n of the sweep is best."""
        some, at_F = self.worlds.take(which), list(self._free)
        score_WF = some.at(self.whole)
        own = [f for f in at_F if self.worlds.n_F[f] in sweep.rollouts_per_problem]
        return np.asarray(score_WF[:, at_F].max(axis=1) - score_WF[:, own].max(axis=1))

    def scaled(
        self, sweep: Sweep, times: float, which: slice, after: Loss, after_W: FloatArray
    ) -> dict[str, Any] | None:
        """The worth of the same sweep with shorter or longer runs; None where it cannot be run.

        Args:
            after: the loss by the sweep itself.
            after_W: that in these worlds.
        """
        other = sweep.at(int(sweep.rollouts_per_run * times))
        short = other.steps(sweep.rollouts_per_problem[-1]) < MIN_STEPS
        if short or not self._among(self.left(other)):
            return None
        behind = Loss.of(self.lost(other, which).total_W - after_W)
        error = float(np.hypot(after.standard_error, behind.standard_error))
        return {"loss": after.loss + behind.loss, "standard_error": error,
                "rollouts": other.rollouts, "behind": behind.loss,
                "behind_error": behind.standard_error}  # fmt: skip


def _share(lost_W: FloatArray, none_W: FloatArray) -> float:
    """How much of a loss goes with what the guess loses in the same worlds, from 0 to 1."""
    spread = float(none_W.var())
    share = float(np.cov(lost_W, none_W, ddof=0)[0, 1]) / spread if spread > 0 else 0.0
    return min(max(share, 0.0), 1.0)
