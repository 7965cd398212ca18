"""Which configuration a budget is best spent on within the limits, and what would do as well.

Source: arXiv 2603.12151, section 4.4 (the playbook): n by budget and largest batch, the smallest
stable B_p, M takes the rest. Departure: n has the largest expected score; no law is rounded.

Shape legend: D draws, F candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from isocompute.allocation import Budget, powers_of_two
from isocompute.answers import best
from isocompute.answers.best import FloatArray
from isocompute.answers.broke import broke_words, came_to
from isocompute.answers.claims import SURE
from isocompute.answers.fit import Fit
from isocompute.answers.logged import in_words
from isocompute.answers.paper import printed_law
from isocompute.answers.price import Price, per_rollout
from isocompute.answers.target import Reached
from isocompute.answers.verdict import ENOUGH_N, named, open_choice
from isocompute.domain import Configuration, Notice, notice
from isocompute.domain.text import compact, two_digits
from isocompute.errors import InputError
from isocompute.model.data import MIN_STEPS
from isocompute.recipe import Difficulty, Recipe
from isocompute.sources.studies import NO_STUDY_YET, Extension

# Why a choice is not the best one, where both are as good: `chosen_by` in words.
AS_GOOD = {"trained": "is trained already", "today": "is what you run today"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """One planning question."""

    fit: Fit
    x: float  # the budget, in the unit of the fit
    source: str = ""  # what was fitted, for the record
    study: Extension | None = NO_STUDY_YET  # None: another trainer made the runs
    difficulty: Difficulty | None = "easy"  # of the problem set; chooses the recipe, if none is set
    difficulty_given: bool = False  # then the regularisers are its own, not those of the runs
    recipe: Recipe | None = None  # instead of that; its learning rate is the anchor
    price: Price = field(default_factory=Price)  # of every configuration
    current: Configuration | int | None = None  # today's (B_p, n), or n alone
    gpus: int | None = None  # where the budget is said as so many for so long
    target: Reached | None = None  # a score that the budget is to reach
    problems: int | None = None  # D: no batch holds more, and passes are counted
    trained_on: int | None = None  # problems that the sweep trained on, where that is known
    notices: Sequence[Notice] = ()  # to carry into the document: whose sweep it is
    max_batch_size: int | None = None
    min_steps: int = MIN_STEPS
    only_n: Sequence[int] = ()  # n that may be chosen; (): every one
    batch_size: int | None = None  # of a fixed batch, as steps; None: B_p and M are free
    steps: int | None = None

    @property
    def of_another_model(self) -> bool:
        """Whether what was fitted is the sweep of another model: its runs are not the asker's."""
        return any(one.code == "law_of_another_model" for one in self.notices)

    def cost(self, c: Configuration, rollouts: float) -> dict[str, Any]:
        """What one run costs; its trainer starts once."""
        return self.price.cost({c: rollouts}, starts=1, runs={c: rollouts})

    def rollouts(self, c: Configuration | None = None, x: float | None = None) -> float:
        """What the budget, or another amount of its unit, buys with a configuration."""
        x, unit = self.x if x is None else x, self.fit.unit
        if unit in self.price.spent:
            return self.price.buys(Budget(amount=x, unit=unit.replace("-", "_")), c)
        return x / per_rollout(self.price.rates if c is None else self.price.of(c), unit)

    def steps_of(self, c: Configuration) -> int:
        """M: what is left of the budget, or the steps of a fixed batch."""
        return self.steps or int(self.rollouts(c) * (1 + 1e-12) // c.batch_size)

    def blocked(self, c: Configuration) -> str | None:
        """The limit that forbids a configuration."""
        if self.only_n and c.rollouts_per_problem not in self.only_n:
            return "n"
        if self.problems is not None and c.problems_per_batch > self.problems:
            return "problems"
        if self.max_batch_size is not None and c.batch_size > self.max_batch_size:
            return "max_batch"
        if self.steps_of(c) < self.min_steps:
            return "min_steps"
        return "broken" if self.steps_of(c) * c.batch_size > came_to(self.fit, c) else None


class Prescription(NamedTuple):
    """What to run."""

    configuration: Configuration
    score_D: FloatArray  # draws of its score at the budget
    answers: dict[str, Any]  # what the document says of it
    settles: Configuration | None  # of one or two n, the untested one to train first
    notices: list[Notice]  # what limits the choice


def prescribe(q: Question) -> Prescription:
    """The candidate of the largest expected score within the limits, at its smallest stable B_p.

    Candidates are the configurations tested. An untested one (of one or two n: powers of two at
    most an octave beyond; at a fixed batch: B_p = B / n; n that were asked for) is chosen only
    where no tested one may be, or where it scores more than those tested in 95% of the draws, by
    0.002 or more on average: what a model says of n that nobody ran is mostly its prior. Of those
    that score at most 0.002 less, what is trained already is taken, else what is run today.

    Raises:
        InputError: no candidate within the limits.
    """
    contest = _Contest(q)
    if not contest.free:
        raise _nothing_within(q, contest.which)
    at, top, chosen_by, notes = _choose(contest)
    chosen, n_F, wanted = contest.which[at], contest.n_F, contest.best(range(len(contest.n_F)))
    n = chosen.rollouts_per_problem
    limit = contest.blocked[wanted] if n_F[wanted] != n else None
    if limit is None:
        notes += _edges(q, contest.which[top])  # beyond the best, whichever as good is taken
    elif contest.mean_F[wanted] - contest.mean_F[at] > best.AS_GOOD:
        notes.append(_capped(contest, limit, wanted, at))
    best_n, interval = _best_n(q, n_F, chosen.problems_per_batch)
    if contest.ran:
        contended = contest.confidence_set(contest.ran)
        tested = len({*n_F[contest.ran].tolist()})
        notes += open_choice(q.fit, contended, [n], n, tested, q.x)
    guessed, score_DF = _guessed(contest, at), contest.score_DF
    answers = {
        "runner_up": _runner_up(contest, at),
        "chosen_by": chosen_by,
        "as_good": sorted({*n_F[contest.as_good(at)].tolist(), n}),
        "neighbours": [
            best.guess_row(contest.which[f], score_DF[:, f], score_DF[:, at], q.fit.level)
            for f in guessed if f != at
        ],
        "confidence_set": contest.confidence_set(slice(None)),
        "expected_regret": (score_DF.max(axis=1) - score_DF[:, at]).mean(),
        "rollouts_per_problem_law": best_n,
        "rollouts_per_problem_interval": interval,
    }  # fmt: skip
    settles = contest.which[guessed[0]] if guessed and q.batch_size is None else None
    return Prescription(chosen, score_DF[:, at], answers, settles, notes)


class _Contest:
    """The candidates of a question, their scores at its budget, and what forbids them."""

    def __init__(self, q: Question) -> None:
        self.q, self.which = q, candidates(q)
        self.n_F = np.array([c.rollouts_per_problem for c in self.which])
        self.score_DF = q.fit.scores_of(self.which, q.x)
        self.mean_F: FloatArray = self.score_DF.mean(axis=0)
        self.tested = [c in q.fit.configurations for c in self.which]
        self.blocked = [q.blocked(c) for c in self.which]
        self.free = [f for f, limit in enumerate(self.blocked) if limit is None]
        self.ran = [f for f in self.free if self.tested[f]]

    def best(self, among: Sequence[int]) -> int:
        """Of the largest mean; an untested one must surely score more than those tested."""
        top = among[best.choice(self.mean_F[list(among)])]
        known = [f for f in among if self.tested[f]]
        kept = known[best.choice(self.mean_F[known])] if known else top
        gain_D = self.score_DF[:, top] - self.score_DF[:, kept]
        sure = gain_D.mean() > best.AS_GOOD and (gain_D > 0).mean() >= SURE
        return top if sure else kept

    def as_good(self, at: int) -> list[int]:
        """Those tested within the limits that score hardly less than one of them."""
        return [f for f in self.ran if self.mean_F[f] > self.mean_F[at] - best.AS_GOOD]

    def confidence_set(self, among: Sequence[int] | slice) -> list[int]:
        """The n that may be best of some candidates."""
        share_F = best.probability_best(self.score_DF[:, among, None])[:, 0]
        return best.confidence_set(share_F, self.n_F[among], self.q.fit.level)


def _choose(contest: _Contest) -> tuple[int, int, str, list[Notice]]:
    """The choice, the best that may be run (as good at most), why it is that, and its notices."""
    q, fit, which, n_F = contest.q, contest.q.fit, contest.which, contest.n_F
    top = contest.best(contest.free)
    n = which[top].rollouts_per_problem
    if not contest.tested[top]:
        if q.batch_size is None and n not in q.only_n:
            return top, top, "neighbours", []
        trains = {which[top]: fit.buys(which[top], min(q.x, fit.support[1]))}
        b_p = which[top].problems_per_batch
        return top, top, "neighbours", [notice("split_untested", bp=b_p, n=n, trains=trains)]
    good = sorted(contest.as_good(top), key=lambda f: -contest.mean_F[f])
    if q.batch_size is not None:
        at, chosen_by = _at_no_cost(q, which, top, good)
        return at, top, chosen_by, []
    ran, alike = [which[f] for f in contest.ran], {*n_F[good].tolist()}
    stable = {m: fit.stable_problems_per_batch(m, q.x, ran) for m in alike}
    top = which.index(Configuration(stable[n][0], n))
    good = [f for f in good if which[f].problems_per_batch == stable[n_F[f]][0]]
    at, chosen_by = _at_no_cost(q, which, top, good)
    return at, top, chosen_by, stable[which[at].rollouts_per_problem][1]


def _capped(contest: _Contest, limit: str, wanted: int, at: int) -> Notice:
    """That a limit forbids what would score most, and what that costs."""
    q, best_one = contest.q, contest.which[wanted]
    lost = in_words(q.fit, contest.mean_F[wanted] - contest.mean_F[at], difference=True)
    size = {"max_batch": q.max_batch_size, "min_steps": q.min_steps, "problems": q.problems}
    about: dict[str, Any] = {"wanted": best_one.rollouts_per_problem}
    if limit in size:
        n = contest.which[at].rollouts_per_problem
        about |= {"limit": size[limit], "n": n, "cost": f"{lost} lower"}
    else:
        about["more"] = lost
    if limit == "n":
        about["asked"] = list(q.only_n)
    if limit == "broken":
        end = came_to(q.fit, best_one)
        about |= {"step": int(end // best_one.batch_size), "trains": {best_one: end}}
    return notice(f"capped_by_{limit}", **about)


def _guessed(contest: _Contest, at: int) -> list[int]:
    """Untested candidates by what they may gain; first the one to train first, or the choice."""
    gain_DF = contest.score_DF - contest.score_DF[:, [at]]
    guessed = [f for f in contest.free if not contest.tested[f]]
    guessed.sort(key=lambda f: -np.maximum(gain_DF[:, f], 0.0).mean())
    if guessed:
        first = (best.first_to_try(gain_DF[:, guessed], contest.n_F[guessed])
                 if contest.tested[at] else guessed.index(at))  # fmt: skip
        guessed.insert(0, guessed.pop(first))
    return guessed


def _runner_up(contest: _Contest, at: int) -> dict[str, Any] | None:
    """The best tested one of another n, and what it loses."""
    score_DF, mean_F = contest.score_DF, contest.mean_F
    others = [f for f in contest.ran if contest.n_F[f] != contest.n_F[at]]
    second = max(others, key=lambda f: mean_F[f], default=None)
    if second is None:
        return None
    lost_D = score_DF[:, at] - score_DF[:, second]
    return {**contest.which[second]._asdict(), "lost": mean_F[at] - mean_F[second],
            "interval": best.interval(lost_D, contest.q.fit.level)}  # fmt: skip


def _at_no_cost(
    q: Question, which: Sequence[Configuration], top: int, good: Sequence[int]
) -> tuple[int, str]:
    """Of candidates as good as the best one what is trained already, else today's, and why.

    A change from it would cost a run, or a new setting, for nothing that anyone would see.
    """
    fit, now = q.fit, q.current
    trained = [] if q.of_another_model else [
        f for f in good if which[f] not in fit.unhealthy
        and fit.trained(which[f]) >= q.steps_of(which[f]) * which[f].batch_size
    ]  # fmt: skip
    today = [f for f in good if now in (which[f], which[f].rollouts_per_problem)]
    both = [f for f in trained if f in today]
    for why, those in (("trained", both), ("trained", trained), ("today", today)):
        if those:
            return (top, "expected_score") if top in those else (those[0], why)
    return top, "expected_score"


def none_came_so_far(q: Question) -> list[Notice]:
    """The notice that what was trained broke before the budget, where nothing else may be chosen.

    What a neighbour would score is no answer then: it is guessed from these runs.
    """
    of = {c: q.blocked(c) for c in candidates(q) if c in q.fit.configurations}
    dead = [c for c, limit in of.items() if limit == "broken"]
    if not dead or None in of.values():
        return []
    last = max(dead, key=lambda c: came_to(q.fit, c))
    end = came_to(q.fit, last)
    which = [f"{named(q.fit, [c])} {broke_words(q.fit, c)}" for c in dead]
    return [notice("broke_before", which=which, last=named(q.fit, [last]),
                   smaller=two_digits(end), trains={last: end})]  # fmt: skip


def candidates(q: Question) -> list[Configuration]:
    """What may be prescribed: see `prescribe`."""
    fit, known = q.fit, q.fit.tested_n
    low, high = max(1, known[0] // 2), 2 * known[-1]
    if far := [n for n in q.only_n if not low <= n <= high]:
        raise InputError(
            f"n must lie within an octave of those tested ({low} to {high}), but got "
            f"{', '.join(map(str, far))}; train it once, or leave --n out.")  # fmt: skip
    if q.batch_size is not None:
        ns = sorted({*known, *q.only_n})
        every = [Configuration(q.batch_size // n, n) for n in ns if n <= q.batch_size]
        # Below the smallest B_p tested nothing says that training is stable.
        smallest = min(c.problems_per_batch for c in fit.configurations)
        return [c for c in every if c.problems_per_batch >= smallest] or every
    out = list(fit.configurations)
    more = list(q.only_n)
    if len(known) < ENOUGH_N:
        more += powers_of_two(max(low, 2), high)  # one rollout of a problem has no group
    b_p = out[best.choice(fit.scores_at(q.x).mean(axis=0))].problems_per_batch
    out += [Configuration(b_p, n) for n in {*more} - {*known}]
    return sorted(out)


def _best_n(q: Question, n_F: FloatArray, b_p: int) -> tuple[float, tuple[float, float] | None]:
    """n*(C) with its interval; over the candidates where these are not those tested."""
    if q.batch_size is None and len(q.fit.tested_n) >= ENOUGH_N:
        at = q.fit.best_at(q.x)
        return at.rollouts_per_problem, at.interval
    if n_F.min() == n_F.max():
        return float(n_F[0]), None
    grid_F = best.log2_n_grid(n_F.astype(np.int64))
    b_p_F = np.full(len(grid_F), b_p) if q.batch_size is None else q.batch_size / 2**grid_F
    score_DF = q.fit.scores_of(list(zip(b_p_F, 2**grid_F, strict=True)), q.x)
    best_D = best.continuous_best(score_DF[:, :, None], grid_F)[:, 0]
    return 2 ** float(np.median(best_D)), best.interval(2**best_D, q.fit.level)


def _edges(q: Question, chosen: Configuration) -> list[Notice]:
    """Whether the choice is the largest or smallest n tested, and one beyond could be run."""
    known, (b_p, n) = q.fit.tested_n, chosen
    fixed = (q.batch_size or q.fit.batch_size) is not None  # then problems make up for n
    twice = Configuration(b_p // 2 if fixed else b_p, 2 * n)
    more = n == known[-1] and twice.problems_per_batch and q.blocked(twice) is None
    half = Configuration(2 * b_p if fixed else b_p, n // 2)
    fewer = n == known[0] > 2 and q.blocked(half) != "n"
    code = "capped_by_tested_n" if more else "n_at_smallest_tested" if fewer else ""
    other = twice if more else half
    if not code or len(known) < ENOUGH_N:
        return []
    published = more and not fixed
    printed = printed_law(q.source.split("[")[0]) if published else None
    if printed is not None and printed.beyond:  # they ran it, and say what it gave
        return []
    trains = q.fit.check_of(other, chosen, q.x)
    return [notice(code, trains=trains, n=n, other=other.rollouts_per_problem)]


def _nothing_within(q: Question, which: Sequence[Configuration]) -> InputError:
    which = [c for c in which if q.blocked(c) not in ("n", "broken")]
    if not which:
        return InputError(
            f"a batch of {q.batch_size} rollouts must hold as many problems as were tested, but "
            f"got n = {', '.join(map(str, q.only_n))}; raise the batch or lower n.")  # fmt: skip
    tested = [c for c in which if c in q.fit.configurations]
    small = min(tested or which, key=lambda c: (c.batch_size, c))
    takes = f"{compact(q.min_steps * small.batch_size)} rollouts"
    rule = {
        "problems": "the problems must fill a batch (B_p = "
        f"{min(c.problems_per_batch for c in tested or which)} is the smallest one), but got "
        f"{q.problems}; add problems, or sweep smaller B_p.",
        "max_batch": f"the largest batch must hold the smallest one tested ({small.batch_size} "
        f"rollouts), but got {q.max_batch_size}; raise it, or sweep smaller batches.",
        "min_steps": f"`steps >= {q.min_steps}` must hold, which takes {takes} with the smallest "
        f"batch, but got a budget of {compact(q.rollouts(small))} rollouts; raise it or lower "
        "--min-steps.",
    }
    return InputError(rule[q.blocked(small) or ""])
