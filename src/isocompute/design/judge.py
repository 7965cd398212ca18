"""What planning loses, with a sweep and without, in the worlds of one question.

Shape legend: W worlds, F values of n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isocompute.answers.best import AS_GOOD
from isocompute.design.candidates import Limits
from isocompute.design.prior import Worlds
from isocompute.design.simulate import Sweep
from isocompute.design.worth import (
    LEAST_STEPS,
    FloatArray,
    Guess,
    IntArray,
    Loss,
    allowed,
    best_guess,
    guesses,
    lost_by,
    one_for_all,
    planned,
)

KEPT = 3  # candidates that see as many worlds again
# A sweep is judged in twice as many worlds until its gain lies three standard errors above zero or
# one below, or is known to a quarter of what counts as good; then it is recommended if it lies two
# above: of what is as good, running none is cheaper.
ABOVE, BELOW, SURE, PRECISE = 3.0, 1.0, 2.0, AS_GOOD / 4
MOST, TIMES = 320, 8  # worlds at most: half a minute; times the draws asked for


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
    """Losses in the worlds of one question.

    Args:
        worlds: the prior.
        limits: to keep to.
        b_p: of sweep and final run.
        seed: of everything random.
        whole_F: rollouts of each n without a sweep; None: of the whole budget, no evaluations.
        alone_bp: B_p of a run without a sweep; None: the same.
    """

    worlds: Worlds
    limits: Limits
    b_p: int
    seed: int
    whole_F: FloatArray | None = None
    alone_bp: int | None = None

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
        among = self._free
        return Lost(lost_by(some, chosen_W, left_F, self.whole, among), chosen_W)

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
            sweep: the candidate.
            guess: what is run without it.
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
        among = self._free
        at = best_guess(self.worlds, self.whole, among)
        some = self.worlds.take(which)
        return lost_by(some, at, self.whole, self.whole, among), self.worlds.n_F[at]

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
        among = self._free
        at = one_for_all(self.worlds, self.whole, among)
        some = self.worlds.take(which)
        return lost_by(some, at, self.whole, self.whole, among), self.worlds.n_F[at]

    def choice_alone(self, which: slice, lost: Lost) -> FloatArray:
        """Of the loss the part of the choice, as if the sweep had cost nothing."""
        some = self.worlds.take(which)
        return lost_by(some, lost.chosen_W, self.whole, self.whole, self._free)

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
            sweep, times: what is scaled.
            which: the worlds.
            after: the loss by the sweep itself.
            after_W: that in these worlds.
        """
        other = sweep.at(int(sweep.rollouts_per_run * times))
        short = other.steps(sweep.rollouts_per_problem[-1]) < LEAST_STEPS
        if short or not self._among(self.left(other)):
            return None
        behind = Loss.of(self.lost(other, which).total_W - after_W)
        error = float(np.hypot(after.standard_error, behind.standard_error))
        return loss_row(Loss(after.loss + behind.loss, error), rollouts=other.rollouts,
                        behind=behind.loss, behind_error=behind.standard_error)  # fmt: skip


def _share(lost_W: FloatArray, none_W: FloatArray) -> float:
    """How much of a loss goes with what the guess loses in the same worlds, from 0 to 1."""
    spread = float(none_W.var())
    share = float(np.cov(lost_W, none_W, ddof=0)[0, 1]) / spread if spread > 0 else 0.0
    return min(max(share, 0.0), 1.0)


def loss_row(loss: Loss, **more: Any) -> dict[str, Any]:
    """A loss as the document has it."""
    return {**loss._asdict(), **more}
