"""From what a person knows to a sweep, its price and its worth: the `design --json` document.

Candidates are screened on some worlds, the best is judged on fresh ones, so that its loss is not
that of a lucky winner. Half and twice of the sweep are judged on the same worlds with the same
luck. An n is guessed in many more worlds, which costs nothing.

Shape legend: W worlds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isocompute.answers.beside import FEWER
from isocompute.design.candidates import Limits, candidates, check_limits, starting_bp
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
from isocompute.domain import Configuration, Notice, documented, notice
from isocompute.domain.text import plain

# Worlds that every candidate sees, and candidates that see as many again: a third of the time.
SCREENED, KEPT = 8, 3
# Worlds in which n is guessed: scores alone are read off them. With 56 the guess for a hard set at
# 4.6M rollouts was n = 64, 128 or 256 by the seed, with 500 or 2,000 it is 128 in every one.
GUESSED = 1000
PRIOR_TIMES = 10.0  # beyond ten times the longest known run a prior is mostly the form's tail


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked of a design.

    Args:
        limits: to keep to.
        problems_per_batch: B_p; None: the prior's, or less if the budget is too small for it.
        draws: simulated sweeps behind every loss.
        seed: seed of the simulation.
        notices: to carry into the document.
        writes_sweep: the sweep is wanted, also where none pays.
    """

    limits: Limits
    problems_per_batch: int | None = None
    draws: int = 40
    seed: int = 0
    notices: tuple[Notice, ...] = ()
    writes_sweep: bool = False


def worlds_needed(draws: int) -> int:
    """Number of worlds: to screen and to judge, and to guess in."""
    return max(GUESSED, 2 * min(SCREENED, draws) + draws)


def design_sweep(worlds: Worlds, asked: Asked) -> tuple[Sweep, dict[str, Any]]:
    """The best sweep that a budget holds, and the `design --json` document without `study`.

    Args:
        worlds: the prior, `worlds_needed` of them.
        asked: what is known.

    Raises:
        InputError: limits that hold no sweep, or a rate that the budget's unit needs.
    """
    limits, seed, screened = asked.limits, asked.seed, min(SCREENED, asked.draws)
    b_p = asked.problems_per_batch or starting_bp(worlds.problems_per_batch, limits.problems)
    check_limits(limits, b_p)
    left_F = Judge(worlds, limits, b_p, seed).bought(limits.budget * (1 - limits.spend))
    among = allowed(worlds, b_p, left_F, limits.max_batch)
    guess = best_guess(worlds, left_F, among) if among else 0
    every = candidates(limits, b_p, worlds.n_F[guess], fixed=asked.problems_per_batch is not None)
    judge = Judge(worlds, limits, every[0].problems_per_batch, seed)
    sweep = judge.screen(every, screened)
    judge = replace(judge, whole_F=judge.left(sweep, swept=False))
    fresh = slice(2 * screened, 2 * screened + asked.draws)
    none = judge.guesses()
    one_W, one_n = judge.one(fresh)
    lost = judge.lost(sweep, fresh)
    after = judge.steadied(lost.total_W, fresh)
    spending = float((lost.total_W - judge.choice_alone(fresh, lost)).mean())
    worth = {
        "simulated_sweeps": asked.draws,
        "after": _row(
            after, choice=after.loss - spending, spending=spending,
            choice_at_best=judge.steadied(judge.best_of(sweep, fresh), fresh).loss,
            largest_n=max(one.rollouts_per_problem[-1] for one in every),
        ),
        "without": _row(
            Loss(none[0].loss, none[0].standard_error),
            rollouts_per_problem=none[0].rollouts_per_problem,
        ),
        "guesses": [one._asdict() for one in none],
        "one_n": _row(Loss.of(one_W), rollouts_per_problem=one_n),
        "gain": _row(Loss(
            none[0].loss - after.loss, float(np.hypot(after.standard_error, none[0].standard_error))
        )),
        **{
            name: judge.scaled(sweep, times, fresh)
            for name, times in (("half", 0.5), ("twice", 2.0))
        },
    }  # fmt: skip
    return sweep, _document(worlds, asked, sweep, lost.chosen_W, worth)


@dataclass(frozen=True)
class Lost:
    """What planning after a sweep loses, and what it chooses: (W,) each."""

    total_W: FloatArray
    chosen_W: IntArray


@dataclass(frozen=True)
class Judge:
    """Losses in the worlds of one question.

    Args:
        worlds: the prior.
        limits: to keep to.
        b_p: of sweep and final run.
        seed: of everything random.
        whole_F: rollouts of each n without a sweep; None: of the whole budget, no evaluations.
    """

    worlds: Worlds
    limits: Limits
    b_p: int
    seed: int
    whole_F: FloatArray | None = None

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

    def lost(self, sweep: Sweep, which: slice) -> Lost:
        """By the sweep, in some of the worlds."""
        some, left_F = self.worlds.take(which), self.left(sweep)
        chosen_W = planned(some, sweep, left_F, self._among(left_F), self.seed, which.start)
        among = self._among(self.whole)
        return Lost(lost_by(some, chosen_W, left_F, self.whole, among), chosen_W)

    def screen(self, every: list[Sweep], size: int) -> Sweep:
        """The candidate that loses least: all on some worlds, the best three on as many again."""
        first, second = slice(0, size), slice(size, 2 * size)
        seen = {sweep: self.lost(sweep, first).total_W for sweep in every}
        kept = sorted(every, key=lambda sweep: seen[sweep].mean())[:KEPT]
        more = {s: np.append(seen[s], self.lost(s, second).total_W) for s in kept}
        return min(kept, key=lambda sweep: more[sweep].mean())

    def guesses(self) -> list[Guess]:
        """Every n that may be run without a sweep, in all worlds, the best guess first."""
        return guesses(self.worlds, self.whole, self._among(self.whole))

    def without(self, which: slice) -> tuple[FloatArray, int]:
        """By the best guess with the whole budget, and its n."""
        among = self._among(self.whole)
        at = best_guess(self.worlds, self.whole, among)
        some = self.worlds.take(which)
        return lost_by(some, at, self.whole, self.whole, among), self.worlds.n_F[at]

    def steadied(self, lost_W: FloatArray, which: slice) -> Loss:
        """A loss in some of the worlds as it would be in all, by what the guess loses in both.

        Hard worlds are hard for both: of what the guess loses less in these worlds than in all, so
        much is added as goes with it.
        """
        none_W, everywhere = self.without(which)[0], self.guesses()[0].loss
        spread = float(none_W.var())
        share = float(np.cov(lost_W, none_W, ddof=0)[0, 1]) / spread if spread > 0 else 0.0
        share = min(max(share, 0.0), 1.0)
        return Loss.of(lost_W + share * (everywhere - none_W))

    def one(self, which: slice) -> tuple[FloatArray, int]:
        """By the n that is best on average over all budgets, and that n."""
        among = self._among(self.whole)
        at = one_for_all(self.worlds, self.whole, among)
        some = self.worlds.take(which)
        return lost_by(some, at, self.whole, self.whole, among), self.worlds.n_F[at]

    def choice_alone(self, which: slice, lost: Lost) -> FloatArray:
        """Of the loss the part of the choice, as if the sweep had cost nothing."""
        some = self.worlds.take(which)
        return lost_by(some, lost.chosen_W, self.whole, self.whole, self._among(self.whole))

    def best_of(self, sweep: Sweep, which: slice) -> FloatArray:
        """Of the loss the part of the choice, if it were known which n of the sweep is best."""
        some, at_F = self.worlds.take(which), list(self._among(self.whole))
        score_WF = some.at(self.whole)
        own = [f for f in at_F if self.worlds.n_F[f] in sweep.rollouts_per_problem]
        return np.asarray(score_WF[:, at_F].max(axis=1) - score_WF[:, own].max(axis=1))

    def scaled(self, sweep: Sweep, times: float, which: slice) -> dict[str, Any] | None:
        """The worth of the same sweep with shorter or longer runs; None where it cannot be run."""
        other = sweep.at(int(sweep.rollouts_per_run * times))
        short = other.steps(sweep.rollouts_per_problem[-1]) < LEAST_STEPS
        if short or not self._among(self.left(other)):
            return None
        loss = self.steadied(self.lost(other, which).total_W, which)
        return _row(loss, rollouts=other.rollouts)


def _row(loss: Loss, **more: Any) -> dict[str, Any]:
    return {**loss._asdict(), **more}


def _document(
    worlds: Worlds, asked: Asked, sweep: Sweep, chosen_W: IntArray, worth: dict[str, Any]
) -> dict[str, Any]:  # fmt: skip
    limits = asked.limits
    saves, guess = worth["gain"]["loss"] > 0, worth["without"]["rollouts_per_problem"]
    likely = worlds.n_F[int(np.median(chosen_W))] if saves else guess
    final = limits.final(sweep, likely, limits.left(sweep, swept=saves))
    rates, b_p = limits.first(sweep, swept=saves or asked.writes_sweep), sweep.problems_per_batch
    passes = None
    if limits.problems is not None:
        smallest = sweep.rollouts_per_problem[0]
        drawn = sweep.rollouts_per_run / smallest, final.rollouts / likely
        passes = {k: p / limits.problems for k, p in zip(("sweep", "final"), drawn, strict=True)}
    notices = [*_limits_of(worlds, asked, sweep, likely, passes), *asked.notices]
    if not saves:
        notices.append(notice("no_sweep", n=guess))
    taken = [limits.taken(one) for one in (rates, sweep if saves else None, final)]
    document: dict[str, Any] = plain({
        "version": 1,
        "answer": "sweep" if saves else "no_sweep",
        "budget": {"amount": limits.budget, "unit": limits.unit},
        "spent": {"amount": sum(taken), "unit": limits.unit},
        "budget_rollouts": limits.buys(b_p, likely, limits.budget),
        "sweep": {
            "problems_per_batch": b_p,
            "rollouts_per_problem": list(sweep.rollouts_per_problem),
            "configurations": [
                {"problems_per_batch": b_p, "rollouts_per_problem": n, "steps": sweep.steps(n)}
                for n in sweep.rollouts_per_problem
            ],
            "seeds": sweep.seeds, "rollouts_per_run": sweep.rollouts_per_run,
            **_spent(limits, sweep),
        },
        "lr_sweep": None if rates is None else {"runs": rates.runs, **_spent(limits, rates)},
        "final": {
            "problems_per_batch": b_p, "rollouts_per_problem": likely, "steps": final.steps(likely),
            **_spent(limits, final),
        },
        "worth": worth,
        "passes_over_data": passes,
        "prior": {"sources": list(worlds.sources), "metric": worlds.metric},
        "study": None,
        **documented(notices),
    })  # fmt: skip
    return document


def _spent(limits: Limits, sweep: Sweep) -> dict[str, Any]:
    """What runs draw and cost, and the shares of the budget that they take, in its own unit."""
    b_p, price = sweep.problems_per_batch, limits.price
    runs = {Configuration(b_p, n): sweep.steps(n) * b_p * n for n in sweep.rollouts_per_problem}
    trained = {c: sweep.seeds * rollouts for c, rollouts in runs.items()}
    drawn = {c: rollouts + sweep.seeds * sweep.evaluation_rollouts(c.rollouts_per_problem)
             for c, rollouts in trained.items()}  # fmt: skip
    starts, last = limits.starts(sweep), list(runs)[-1]
    cost = price.cost(drawn, starts=starts, runs=runs)
    if price.clocked:  # its hours hold the evaluations
        timed = price.cost(trained, starts=starts, runs=runs)
        tokens = {"tokens": cost["tokens"]}, {"tokens": cost["at_least"]["tokens"]}
        cost = {**timed, **tokens[0], "at_least": {**timed["at_least"], **tokens[1]}}
    return {
        "rollouts": sweep.rollouts, "evaluation_rollouts": sweep.evaluations,
        "share": limits.trained(sweep) / limits.budget,
        "evaluation_share": limits.evaluated_for(sweep) / limits.budget,
        "starts": starts,
        "start_share": limits.started_for(sweep) / limits.budget,
        "cost": {**cost, "source": price.to_dict(last, runs[last])},
    }  # fmt: skip


def _limits_of(
    worlds: Worlds, asked: Asked, sweep: Sweep, n: int, passes: dict[str, float] | None
) -> Iterator[Notice]:
    """What limits a worth: problems that are few, and what the prior does not hold."""
    limits, known = asked.limits, worlds.passes(n)
    if passes is not None and known is not None and passes["final"] > FEWER * max(known, 1.0):
        yield notice("passes_beyond_prior", passes=passes["final"], problems=limits.problems, n=n,
                     known=known)  # fmt: skip
    elif passes is not None and passes["final"] > max(1.0, passes["sweep"]):
        yield notice("passes_over_data", passes=passes["final"], problems=limits.problems)
    if limits.problems and worlds.problems and limits.problems < worlds.problems / FEWER:
        yield notice("problems_fewer_than_prior", problems=limits.problems, known=worlds.problems)
    largest = sweep.rollouts_per_problem[-1]
    bought = limits.buys(sweep.problems_per_batch, largest, limits.budget)
    if bought > PRIOR_TIMES * worlds.longest:
        yield notice("beyond_prior", times=bought / worlds.longest)
    b_p, usual = sweep.problems_per_batch, worlds.problems_per_batch
    by_problems = starting_bp(usual, limits.problems) == b_p and asked.problems_per_batch is None
    if b_p != usual and by_problems:
        yield notice("bp_of_problems", bp=b_p, problems=limits.problems, known=usual)
    elif b_p != usual:
        more = "Raise --budget or --spend" if asked.problems_per_batch is None else (
            f"Pass --problems-per-batch {usual}")  # fmt: skip
        yield notice("bp_of_prior", bp=b_p, known=usual, do=more)
