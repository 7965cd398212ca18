"""From what a person knows to a sweep, its price and its worth: the `design --json` document.

Candidates are screened on some worlds, the best is judged on fresh ones, so that its loss is not
that of a lucky winner. Half and twice of the sweep are judged on the same worlds with the same
luck.

Shape legend: W worlds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isocompute.answers.plan import FEWER
from isocompute.answers.price import Price
from isocompute.design.candidates import Limits, candidates, check_limits, starting_bp
from isocompute.design.prior import Worlds
from isocompute.design.simulate import Sweep
from isocompute.design.worth import (
    LEAST_STEPS,
    FloatArray,
    IntArray,
    Loss,
    allowed,
    best_guess,
    lost_by,
    one_for_all,
    planned,
)
from isocompute.domain import Configuration, Notice, documented, notice
from isocompute.domain.text import plain

# Worlds that every candidate sees, and candidates that see as many again: a third of the time.
SCREENED, KEPT = 8, 3
PRIOR_TIMES = 10.0  # beyond ten times the longest known run a prior is mostly the form's tail


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked of a design.

    Args:
        limits: to keep to.
        price: of rollouts, as far as it is known.
        problems_per_batch: B_p; None: the prior's, or less if the budget is too small for it.
        draws: simulated sweeps behind every loss.
        seed: seed of the simulation.
        notices: to carry into the document.
    """

    limits: Limits
    price: Price = field(default_factory=Price)
    problems_per_batch: int | None = None
    draws: int = 40
    seed: int = 0
    notices: tuple[Notice, ...] = ()


def worlds_needed(draws: int) -> int:
    """Number of worlds for screening and for judging; the first never exceeds the second."""
    return 2 * min(SCREENED, draws) + draws


def design_sweep(worlds: Worlds, asked: Asked) -> tuple[Sweep, dict[str, Any]]:
    """The best sweep that a budget holds, and the `design --json` document without `study`.

    Args:
        worlds: the prior, `worlds_needed` of them.
        asked: what is known.

    Raises:
        InputError: limits that hold no sweep.
    """
    limits, seed = asked.limits, asked.seed
    b_p = asked.problems_per_batch or starting_bp(worlds.problems_per_batch, limits.problems)
    check_limits(limits, b_p)
    among = allowed(worlds, b_p, limits.final, limits.max_batch)
    guess = best_guess(worlds, limits.final, among) if among else 0
    every = candidates(limits, b_p, worlds.n_F[guess], fixed=asked.problems_per_batch is not None)
    judge = Judge(worlds, limits, every[0].problems_per_batch, seed)
    sweep = judge.screen(every, min(SCREENED, asked.draws))
    fresh = slice(worlds_needed(asked.draws) - asked.draws, worlds_needed(asked.draws))
    lost = judge.lost(sweep, fresh)
    none_W, none_n = judge.without(fresh)
    one_W, one_n = judge.one(fresh)
    of_choice = judge.choice_alone(fresh, lost)
    after = Loss.of(lost.total_W)
    worth = {
        "simulated_sweeps": asked.draws,
        "after": _row(after, choice=of_choice, spending=after.loss - of_choice),
        "without": _row(Loss.of(none_W), rollouts_per_problem=none_n),
        "one_n": _row(Loss.of(one_W), rollouts_per_problem=one_n),
        "gain": _row(Loss.of(none_W - lost.total_W)),
        **{
            name: judge.scaled(sweep, times, fresh)
            for name, times in (("half", 0.5), ("twice", 2.0))
        },
    }
    return sweep, _document(worlds, asked, judge, sweep, lost.chosen_W, worth)


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
    """

    worlds: Worlds
    limits: Limits
    b_p: int
    seed: int

    def _among(self, rollouts: float) -> list[int]:
        return allowed(self.worlds, self.b_p, rollouts, self.limits.max_batch)

    def final(self, sweep: Sweep) -> float:
        """Rollouts that a sweep and its evaluations leave."""
        return self.limits.budget - sweep.rollouts - sweep.evaluations

    def lost(self, sweep: Sweep, which: slice) -> Lost:
        """By the sweep, in some of the worlds."""
        some, final = self.worlds.take(which), self.final(sweep)
        chosen_W = planned(some, sweep, final, self._among(final), self.seed, which.start)
        among = self._among(self.limits.budget)
        return Lost(lost_by(some, chosen_W, final, self.limits.budget, among), chosen_W)

    def screen(self, every: list[Sweep], size: int) -> Sweep:
        """The candidate that loses least: all on some worlds, the best three on as many again."""
        first, second = slice(0, size), slice(size, 2 * size)
        seen = {sweep: self.lost(sweep, first).total_W for sweep in every}
        kept = sorted(every, key=lambda sweep: seen[sweep].mean())[:KEPT]
        more = {s: np.append(seen[s], self.lost(s, second).total_W) for s in kept}
        return min(kept, key=lambda sweep: more[sweep].mean())

    def without(self, which: slice) -> tuple[FloatArray, int]:
        """By the best guess with the whole budget, and its n."""
        whole = self.limits.budget
        among = self._among(whole)
        at = best_guess(self.worlds, whole, among)
        return lost_by(self.worlds.take(which), at, whole, whole, among), self.worlds.n_F[at]

    def one(self, which: slice) -> tuple[FloatArray, int]:
        """By the n that is best on average over all budgets, and that n."""
        whole = self.limits.budget
        among = self._among(whole)
        at = one_for_all(self.worlds, whole, among)
        return lost_by(self.worlds.take(which), at, whole, whole, among), self.worlds.n_F[at]

    def choice_alone(self, which: slice, lost: Lost) -> float:
        """Of the loss the part of the choice, as if the sweep had cost nothing."""
        whole, some = self.limits.budget, self.worlds.take(which)
        return float(lost_by(some, lost.chosen_W, whole, whole, self._among(whole)).mean())

    def scaled(self, sweep: Sweep, times: float, which: slice) -> dict[str, Any] | None:
        """The worth of the same sweep with shorter or longer runs; None where it cannot be run."""
        other = sweep.at(int(sweep.rollouts_per_run * times))
        short = other.steps(sweep.rollouts_per_problem[-1]) < LEAST_STEPS
        if short or not self._among(self.final(other)):
            return None
        loss = Loss.of(self.lost(other, which).total_W)
        return _row(loss, rollouts=other.rollouts)


def _row(loss: Loss, **more: Any) -> dict[str, Any]:
    return {**loss._asdict(), **more}


def _document(
    worlds: Worlds, asked: Asked, judge: Judge, sweep: Sweep, chosen_W: IntArray,
    worth: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    limits, price = asked.limits, asked.price
    saves, guess = worth["gain"]["loss"] > 0, worth["without"]["rollouts_per_problem"]
    likely = worlds.n_F[int(np.median(chosen_W))] if saves else guess
    final = judge.final(sweep) if saves else limits.budget
    rows = [Configuration(sweep.problems_per_batch, n) for n in sweep.rollouts_per_problem]
    chosen = Configuration(sweep.problems_per_batch, likely)
    passes = None
    if limits.problems is not None:
        drawn = sweep.rollouts_per_run / rows[0].rollouts_per_problem, final / likely
        passes = {k: p / limits.problems for k, p in zip(("sweep", "final"), drawn, strict=True)}
    notices = [*_limits_of(worlds, limits, sweep, passes), *asked.notices]
    if not saves:
        notices.append(notice("no_sweep", n=guess))
    evaluated = [sweep.seeds * sweep.evaluation_rollouts(c.rollouts_per_problem) for c in rows]
    spent = _sum(
        price.of(c).cost(
            sweep.seeds * sweep.steps(c.rollouts_per_problem) * c.batch_size + evaluation
        )
        for c, evaluation in zip(rows, evaluated, strict=True)
    )
    document: dict[str, Any] = plain({
        "version": 1,
        "answer": "sweep" if saves else "no_sweep",
        "budget_rollouts": limits.budget,
        "sweep": {
            "problems_per_batch": sweep.problems_per_batch,
            "rollouts_per_problem": list(sweep.rollouts_per_problem),
            "configurations": [
                {**c._asdict(), "steps": sweep.steps(c.rollouts_per_problem)} for c in rows
            ],
            "seeds": sweep.seeds, "rollouts_per_run": sweep.rollouts_per_run,
            "rollouts": sweep.rollouts, "evaluation_rollouts": sum(evaluated),
            "share": sweep.rollouts / limits.budget,
            "cost": {**spent, "source": price.to_dict(rows[-1])},
        },
        "final": {
            "problems_per_batch": chosen.problems_per_batch, "rollouts_per_problem": likely,
            "rollouts": final,
            "cost": {**price.of(chosen).cost(final), "source": price.to_dict(chosen)},
        },
        "worth": worth,
        "passes_over_data": passes,
        "prior": {"sources": list(worlds.sources), "metric": worlds.metric},
        "study": None,
        **documented(notices),
    })  # fmt: skip
    return document


def _limits_of(
    worlds: Worlds, limits: Limits, sweep: Sweep, passes: dict[str, float] | None
) -> Iterator[Notice]:
    """What limits a worth: problems that are few, and what the prior does not hold."""
    if passes is not None and passes["final"] > max(1.0, passes["sweep"]):
        yield notice("passes_over_data", passes=passes["final"], problems=limits.problems)
    if limits.problems and worlds.problems and limits.problems < worlds.problems / FEWER:
        yield notice("problems_fewer_than_prior", problems=limits.problems, known=worlds.problems)
    if sweep.problems_per_batch != worlds.problems_per_batch:
        b_p, known = sweep.problems_per_batch, worlds.problems_per_batch
        yield notice("bp_of_prior", bp=b_p, known=known)
    if limits.budget > PRIOR_TIMES * worlds.longest:
        yield notice("beyond_prior", times=limits.budget / worlds.longest)


def _sum(costs: Any) -> dict[str, float | None]:
    total: dict[str, float | None] = {}
    for cost in costs:
        for name, value in cost.items():
            before = total.get(name, 0.0)
            total[name] = None if value is None or before is None else before + value
    return total

