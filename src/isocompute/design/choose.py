"""From what a person knows to a sweep, its price and its worth: the `design --json` document.

Candidates are screened on some worlds, the best is judged on fresh ones, so that its loss is not
that of a lucky winner, and on more of them while its gain is not told from zero: an answer must not
depend on the seed. Half and twice of the sweep are judged on the same worlds with the same luck. An
n is guessed in many more worlds, which costs nothing.

Shape legend: W worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from isocompute.answers.beside import FEWER
from isocompute.answers.best import IntArray
from isocompute.design.candidates import LEAST_BP, Limits, candidates, check_limits, starting_bp
from isocompute.design.judge import (
    Guess,
    Judge,
    Loss,
    allowed,
    best_guess,
    most_judged,
    nothing_lost,
    pays,
)
from isocompute.design.prior import Worlds
from isocompute.design.simulate import Sweep
from isocompute.domain import Configuration, Notice, documented, notice
from isocompute.domain.text import plain, told_apart
from isocompute.errors import RefusalError
from isocompute.recipe import Recipe

# Worlds that every candidate sees; the best three see as many again: a third of the time.
SCREENED = 8
# Worlds in which n is guessed: scores alone are read off them. With 56 the guess for a hard set at
# 4.6M rollouts was n = 64, 128 or 256 by the seed, with 500 or 2,000 it is 128 in every one.
GUESSED = 1000
# A batch so many times smaller or larger than any known takes another time for a rollout: updates
# have a part that no batch shortens.
FAR = 4
LEAST_N = 2  # a smaller group has no advantages
PRIOR_TIMES = 10.0  # beyond ten times the longest known run a prior is mostly the form's tail


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked of a design.

    Args:
        limits: to keep to.
        problems_per_batch: B_p; None: the prior's, or less if the budget is too small for it.
        draws: simulated sweeps behind every loss; more where the answer is not clear.
        seed: seed of the simulation.
        notices: to carry into the document.
        writes_sweep: the sweep is wanted, also where none pays.
        plan: what `plan` makes of the same prior with an amount of the budget; None: nothing.
    """

    limits: Limits
    problems_per_batch: int | None = None
    draws: int = 40
    seed: int = 0
    notices: tuple[Notice, ...] = ()
    writes_sweep: bool = False
    plan: Callable[[float], Configuration | None] | None = None


def worlds_needed(draws: int) -> int:
    """Number of worlds: to screen and to judge, and to guess in."""
    return max(GUESSED, 2 * min(SCREENED, draws) + most_judged(draws))


class Runs(NamedTuple):
    """What is trained: the best sweep, the run in its place, the rates before one of them."""

    sweep: Sweep
    final: Sweep
    tried: Sweep | None


def design_sweep(worlds: Worlds, asked: Asked) -> tuple[Runs, dict[str, Any]]:
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
    alone = _alone(worlds, limits, sweep, b_p, fixed=asked.problems_per_batch is not None)
    whole_F = judge.left(alone, swept=False)
    judge = replace(judge, whole_F=whole_F, alone_bp=alone.problems_per_batch)
    none, alone, refused = _as_planned(judge.guesses(), alone, asked)
    lost, fresh = judge.decided(sweep, none[0], 2 * screened, asked.draws)
    one_W, one_n = judge.one(fresh)
    after, gain = judge.steadied(lost.total_W, fresh), judge.gain(none[0], lost.total_W, fresh)
    few = slice(fresh.start, fresh.start + asked.draws)
    spending = float((lost.total_W - judge.choice_alone(fresh, lost)).mean())
    worth = {
        "simulated_sweeps": len(lost.total_W),
        "after": {
            **after._asdict(), "choice": after.loss - spending, "spending": spending,
            "choice_at_best": judge.steadied(judge.best_of(sweep, fresh), fresh).loss,
            "largest_n": max(one.rollouts_per_problem[-1] for one in every),
        },
        "without": {"loss": none[0].loss, "standard_error": none[0].standard_error,
                    "rollouts_per_problem": none[0].rollouts_per_problem},
        "guesses": [one._asdict() for one in none],
        "one_n": {**Loss.of(one_W)._asdict(), "rollouts_per_problem": one_n},
        "gain": {**gain._asdict(), "sure": pays(gain), "nothing": nothing_lost(gain)},
        **{
            name: judge.scaled(sweep, times, few, after, lost.total_W[: asked.draws])
            for name, times in (("half", 0.5), ("twice", 2.0))
        },
    }  # fmt: skip
    if not pays(gain):  # a plan before the sweep that is advised was not asked for
        asked = replace(asked, notices=(*asked.notices, *refused))
    return _document(worlds, asked, sweep, alone, lost.chosen_W, worth)


def _alone(worlds: Worlds, limits: Limits, sweep: Sweep, b_p: int, *, fixed: bool) -> Sweep:
    """What stands for a sweep where none is run, at the largest B_p that leaves a run 20 steps.

    A sweep may need a smaller B_p, so that every n has its steps; a run of one n does not.
    """
    least = sweep.problems_per_batch if fixed else min(LEAST_BP, b_p)
    size = b_p
    while True:
        alone = replace(sweep, problems_per_batch=size, rollouts_per_problem=tuple(worlds.n_F),
                        seeds=1)  # fmt: skip
        left = Judge(worlds, limits, size, 0).left(alone, swept=False)
        if size // 2 < least or allowed(worlds, size, left, limits.max_batch):
            return alone
        size //= 2


def _as_planned(
    none: list[Guess], alone: Sweep, asked: Asked
) -> tuple[list[Guess], Sweep, list[Notice]]:
    """The guesses with that of `plan` first, where it is as good, its B_p; or that it refuses."""
    left = asked.limits.left(alone, swept=False)
    try:
        planned = asked.plan(left) if asked.plan and left > 0 else None
    except RefusalError as refusal:
        return none, alone, [notice("plan_refuses", why=refusal.reason.rstrip("."))]
    if planned is None or asked.problems_per_batch not in (None, planned.problems_per_batch):
        return none, alone, []
    first = [g for g in none if g.as_good
             and g.rollouts_per_problem == planned.rollouts_per_problem]  # fmt: skip
    if not first:
        return none, alone, []
    alone = replace(alone, problems_per_batch=planned.problems_per_batch)
    return [*first, *(g for g in none if g not in first)], alone, []


def _document(
    worlds: Worlds, asked: Asked, sweep: Sweep, alone: Sweep, chosen_W: IntArray,
    worth: dict[str, Any],
) -> tuple[Runs, dict[str, Any]]:  # fmt: skip
    limits = asked.limits
    saves, guess = worth["gain"]["sure"], worth["without"]["rollouts_per_problem"]
    likely = worlds.n_F[int(np.median(chosen_W))] if saves else guess
    before = sweep if saves else alone
    final = limits.final(before, likely, limits.left(before, swept=saves))
    written = sweep if saves or asked.writes_sweep else alone
    rates, b_p = limits.first(written), final.problems_per_batch
    passes = None
    if limits.problems is not None:
        smallest = sweep.rollouts_per_problem[0]
        drawn = sweep.rollouts_per_run / smallest, final.rollouts / likely
        passes = {k: p / limits.problems for k, p in zip(("sweep", "final"), drawn, strict=True)}
    parts = [one for one in (rates, sweep if written is sweep else None, final) if one is not None]
    notices = [*_limits_of(worlds, asked, sweep, parts, passes), *asked.notices]
    if limits.recipe is not None and rates is None:
        share = limits.taken(limits.tried(written, limits.recipe)) / limits.budget
        taken_share, may = told_apart(share, limits.spend)
        rate, usual = limits.recipe.learning_rate, Recipe().learning_rate
        whose = "Qwen2.5-7B's" if rate == usual else "a shipped model's"
        notices.append(notice("rates_unpaid", share=taken_share, spend=may, whose=whose,
                              rate=f"{rate:g}".replace("e-0", "e-")))  # fmt: skip
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
            "problems_per_batch": sweep.problems_per_batch,
            "rollouts_per_problem": list(sweep.rollouts_per_problem),
            "configurations": [
                {"problems_per_batch": sweep.problems_per_batch, "rollouts_per_problem": n,
                 "steps": sweep.steps(n)} for n in sweep.rollouts_per_problem
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
    return Runs(sweep, final, rates), document


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
    worlds: Worlds, asked: Asked, sweep: Sweep, parts: Sequence[Sweep],
    passes: dict[str, float] | None,
) -> Iterator[Notice]:
    """What limits a worth: problems that are few, and what the prior does not hold."""
    limits, n = asked.limits, parts[-1].rollouts_per_problem[0]
    whose = "the published runs" if worlds.fit is None else "your earlier runs"
    known = worlds.passes(n)
    if passes is not None and known is not None and passes["final"] > FEWER * max(known, 1.0):
        yield notice("passes_beyond_prior", passes=passes["final"], problems=limits.problems, n=n,
                     known=known, whose=whose)  # fmt: skip
    elif passes is not None and passes["final"] > max(1.0, passes["sweep"]):
        yield notice("passes_over_data", passes=passes["final"], problems=limits.problems)
    if limits.problems and worlds.problems and limits.problems < worlds.problems / FEWER:
        yield notice("problems_fewer_than_prior", problems=limits.problems, known=worlds.problems,
                     whose=whose)  # fmt: skip
    yield from _beyond_tested(worlds, limits, parts)
    largest = sweep.rollouts_per_problem[-1]
    bought = limits.buys(sweep.problems_per_batch, largest, limits.budget)
    if worlds.fit is None and bought > PRIOR_TIMES * worlds.longest:
        yield notice("beyond_prior", times=bought / worlds.longest)
    batches = sorted(p.problems_per_batch * n for p in parts for n in p.rollouts_per_problem)
    given = not limits.price.hours and limits.price.rates.rollouts_per_gpu_hour is not None
    if given and worlds.batches is not None:
        low, high = worlds.batches
        for batch, far, word in ((batches[0], low / FAR, "smaller"),
                                 (batches[-1], high * FAR, "larger")):  # fmt: skip
            if batch <= far if word == "smaller" else batch >= far:
                yield notice("rate_of_another_batch", batch=batch, than=word, low=low, high=high,
                             whose=whose)  # fmt: skip
    b_p, usual = parts[-1].problems_per_batch, worlds.problems_per_batch
    if any(one is sweep for one in parts):
        b_p = sweep.problems_per_batch
    by_problems = starting_bp(usual, limits.problems) == b_p and asked.problems_per_batch is None
    if b_p == usual or (asked.problems_per_batch is None and b_p in worlds.tested_bp):
        return
    if by_problems:
        yield notice("bp_of_problems", bp=b_p, problems=limits.problems, known=usual)
    else:
        more = "Raise --budget or --spend" if asked.problems_per_batch is None else (
            f"Pass --problems-per-batch {usual}")  # fmt: skip
        yield notice("bp_of_prior", bp=b_p, known=usual, do=more)


def _beyond_tested(worlds: Worlds, limits: Limits, parts: Sequence[Sweep]) -> Iterator[Notice]:
    """What an older study does not hold of the run: a larger or smaller n, and its length.

    In the words of `plan`. Worlds hold the n tested alone: an n beyond, which the model can guess,
    made a guess seem to lose half as much again as it did (docs/lab-log.md).
    """
    if worlds.fit is None:
        return
    final = parts[-1]
    edge, b_p, (n,) = worlds.fit.support[1], final.problems_per_batch, final.rollouts_per_problem
    if (times := final.rollouts / edge) > FAR:
        yield notice("extrapolated", edge=edge, times=times, unit="rollouts", trust="",
                     do="Spend a tenth first")  # fmt: skip
    low, high = worlds.n_F[0], worlds.n_F[-1]
    fits = limits.max_batch is None or 2 * b_p * n <= limits.max_batch
    more, fewer = n == high and fits, n == low > LEAST_N
    if more or fewer:
        code, other = ("capped_by_tested_n", 2 * n) if more else ("n_at_smallest_tested", n // 2)
        trains = {Configuration(b_p, other): min(edge, final.rollouts)}
        yield notice(code, n=n, other=other, trains=trains)
