"""Which configuration a budget is best spent on within the limits, and what would do as well.

Source: arXiv 2603.12151, section 4.4 (the playbook): n by the budget and the largest batch, the
smallest stable B_p, M takes the rest. Departure: n is that of the largest expected score, not the
law's rounded down.

Shape legend: D draws, F candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.allocation import powers_of_two
from isocompute.answers.best import (
    AS_GOOD,
    STEPS_PER_OCTAVE,
    choice,
    confidence_set,
    probability_best,
)
from isocompute.answers.fit import Fit
from isocompute.domain import Configuration, Notice, notice
from isocompute.domain.text import compact
from isocompute.errors import InputError

FloatArray = NDArray[np.float64]

# Budgets are compared where every n has at least this many steps (DESIGN.md), so a plan with
# fewer would sit where no comparison was ever made.
MIN_STEPS = 20
ENOUGH_N = 3  # with fewer n tested, untested ones at most an octave away are candidates, too


@dataclass(frozen=True, kw_only=True)
class Question:
    """One planning question with the defaults resolved.

    Args:
        fit: of the sweep.
        x: the budget, in the fit's unit.
        tokens: by configuration, tokens of one rollout; for a fit by tokens.
        max_batch_size, min_steps, problems: limits; None: none.
        batch_size, steps: of a fixed batch; None: B_p and M are free.
        unhealthy: configurations that failed a health rule, and the rules.
    """

    fit: Fit
    x: float
    tokens: Mapping[Configuration, float] = field(default_factory=dict)
    tokens_per_rollout: float | None = None
    max_batch_size: int | None = None
    min_steps: int = MIN_STEPS
    problems: int | None = None
    batch_size: int | None = None
    steps: int | None = None
    unhealthy: Mapping[Configuration, str] = field(default_factory=dict)

    def tokens_of(self, c: Configuration) -> float | None:
        """Tokens of one rollout of a configuration; None where nobody knows."""
        return self.tokens.get(c, self.tokens_per_rollout)

    def rollouts(self, c: Configuration) -> float:
        """What the budget buys with a configuration."""
        each = self.tokens_of(c) if self.fit.unit == "tokens" else 1.0
        assert each is not None  # a fit by tokens has measured them
        return self.x / each

    def steps_of(self, c: Configuration) -> int:
        """M: what is left of the budget, or the steps of a fixed batch."""
        return self.steps or int(self.rollouts(c) * (1 + 1e-12) // c.batch_size)

    def blocked(self, c: Configuration) -> str | None:
        """The limit that forbids a configuration."""
        if self.problems is not None and c.problems_per_batch > self.problems:
            return "problems"
        if self.max_batch_size is not None and c.batch_size > self.max_batch_size:
            return "max_batch"
        return "min_steps" if self.steps_of(c) < self.min_steps else None


class Prescription(NamedTuple):
    """What to run.

    Attributes:
        configuration: the choice.
        score_D: draws of its score at the budget.
        tested: whether it was trained in the sweep.
        as_good: n whose expected loss against the choice is below 0.002, the choice included.
        confidence_set: fewest n whose chances of being best add up to the level.
        expected_regret: score lost on average to the best candidate of every draw.
        best_n, interval: the best n as a continuous quantity; None with one candidate.
        settles: with one or two n tested, the untested one to train first.
        notices: what limits the choice.
    """

    configuration: Configuration
    score_D: FloatArray
    tested: bool
    as_good: list[int]
    confidence_set: list[int]
    expected_regret: float
    best_n: float
    interval: tuple[float, float] | None
    settles: Configuration | None
    notices: list[Notice]


def prescribe(q: Question) -> Prescription:
    """The candidate of the largest expected score within the limits, at its smallest stable B_p.

    Candidates are the configurations tested. An untested one (of one or two n: powers of two at
    most an octave beyond; at a fixed batch: B_p = B / n) is chosen only where it is expected to
    score more than 0.002 above those tested.

    Raises:
        InputError: no candidate within the limits.
    """
    which, fit = _candidates(q), q.fit
    score_DF = fit.scores_of(which, q.x)
    mean_F = score_DF.mean(axis=0)
    tested = [c in fit.configurations for c in which]
    blocked = [q.blocked(c) for c in which]
    free = [f for f, limit in enumerate(blocked) if limit is None]
    if not free:
        raise _nothing_within(q, which)
    at = _best(mean_F, tested, free)
    wanted = _best(mean_F, tested, range(len(which)))
    n, notes = which[at].rollouts_per_problem, []
    if q.batch_size is None and tested[at]:
        among = [which[f] for f in free if tested[f]]
        b_p, notes = fit.stable_problems_per_batch(n, q.x, q.unhealthy, among)
        at = which.index(Configuration(b_p, n))
    elif q.batch_size is not None and not tested[at]:
        notes = [notice("split_untested", bp=which[at].problems_per_batch, n=n)]
    if which[wanted].rollouts_per_problem != n:
        cost = f"score {mean_F[at]:.3f} instead of {mean_F[wanted]:.3f}"
        limit = {"max_batch": q.max_batch_size, "min_steps": q.min_steps, "problems": q.problems}
        name = blocked[wanted] or ""
        about = {"limit": limit[name], "n": n, "wanted": which[wanted].rollouts_per_problem}
        notes.append(notice(f"capped_by_{name}", **about, cost=cost))
    else:
        notes += _edges(q, which[at])
    n_F = np.array([c.rollouts_per_problem for c in which])
    best_n, interval = _best_n(q, which, which[at].problems_per_batch)
    if interval and not interval[0] * (1 - 1e-6) <= n <= interval[1] * (1 + 1e-6):
        low, high = interval
        why = "n between them scores lower than this n does by itself"
        if which[wanted].rollouts_per_problem != n:
            why = "the limits hold it there"
        elif not any(low <= one <= high for one in n_F):
            why = "no n inside was tested"
        notes.append(notice("outside_interval", n=n, low=low, high=high, why=why))
    level = [f for f in free if mean_F[f] > mean_F[at] - AS_GOOD]
    lead_F = (score_DF > score_DF[:, [at]]).mean(axis=0)
    open_ = [f for f in free if not tested[f]] if q.batch_size is None else []
    first = at if not tested[at] else max(open_, key=lambda f: lead_F[f], default=None)
    return Prescription(
        configuration=which[at],
        score_D=score_DF[:, at],
        tested=tested[at],
        as_good=sorted(set(n_F[level].tolist())),
        confidence_set=confidence_set(
            probability_best(score_DF[:, :, None])[:, 0], n_F, fit.level
        ),
        expected_regret=float((score_DF.max(axis=1) - score_DF[:, at]).mean()),
        best_n=best_n,
        interval=interval,
        settles=None if first is None or not open_ else which[first],
        notices=notes,
    )


def tested_n(fit: Fit) -> list[int]:
    """The n of a sweep, ascending."""
    return sorted({c.rollouts_per_problem for c in fit.configurations})


def _candidates(q: Question) -> list[Configuration]:
    """What may be prescribed: see `prescribe`."""
    fit, known = q.fit, tested_n(q.fit)
    if q.batch_size is not None:
        every = [Configuration(q.batch_size // n, n) for n in known if n <= q.batch_size]
        # Below the smallest B_p tested nothing says that training is stable.
        smallest = min(c.problems_per_batch for c in fit.configurations)
        return [c for c in every if c.problems_per_batch >= smallest] or every
    out = list(fit.configurations)
    if len(known) < ENOUGH_N:
        scores = fit.expected_scores(q.x)
        leader = out[choice(np.array(list(scores.values())))]
        more = powers_of_two(max(known[0] // 2, 1), 2 * known[-1])
        out += [Configuration(leader.problems_per_batch, n) for n in more if n not in known]
    return sorted(out)


def _best(mean_F: FloatArray, tested: Sequence[bool], free: Sequence[int]) -> int:
    """Of the largest mean; an untested one must gain more than 0.002."""
    top = free[choice(mean_F[list(free)])]
    known = [f for f in free if tested[f]]
    if not known:
        return top
    best = known[choice(mean_F[known])]
    return top if mean_F[top] > mean_F[best] + AS_GOOD else best


def _best_n(
    q: Question, which: Sequence[Configuration], b_p: int
) -> tuple[float, tuple[float, float] | None]:
    """n*(C) with its interval; over the candidates where these are not those tested."""
    if q.batch_size is None and len(tested_n(q.fit)) >= ENOUGH_N:
        best = q.fit.best_at(q.x)
        return best.rollouts_per_problem, best.interval
    n = [c.rollouts_per_problem for c in which]
    low, high = np.log2([min(n), max(n)])
    if low == high:
        return float(n[0]), None
    grid_F = np.linspace(low, high, int(np.ceil((high - low) * STEPS_PER_OCTAVE)) + 1)
    along_F = np.full(len(grid_F), float(b_p))
    if q.batch_size is not None:
        along_F = q.batch_size / 2**grid_F
    return q.fit.best_n_along(along_F, grid_F, q.x)


def _edges(q: Question, chosen: Configuration) -> list[Notice]:
    """Whether the choice is the largest or smallest n tested, and more of it could be run."""
    known, n = tested_n(q.fit), chosen.rollouts_per_problem
    if len(known) < ENOUGH_N:
        return []
    b_p = chosen.problems_per_batch
    twice = Configuration(b_p if q.batch_size is None else b_p // 2, 2 * n)
    if n == known[-1] and twice.problems_per_batch and q.blocked(twice) is None:
        return [notice("capped_by_tested_n", n=n)]
    return [notice("n_at_smallest_tested", n=n)] if n == known[0] > 1 else []


def _nothing_within(q: Question, which: Sequence[Configuration]) -> InputError:
    small = min(which, key=lambda c: (c.batch_size, c))
    limit = q.blocked(small)
    if limit == "problems":
        fewest = min(c.problems_per_batch for c in which)
        return InputError(
            f"the problems must fill a batch (B_p = {fewest} is the smallest one), but got "
            f"{q.problems}; add problems, or sweep smaller B_p."
        )
    if limit == "max_batch":
        return InputError(
            f"the largest batch must hold the smallest one tested ({small.batch_size} rollouts), "
            f"but got {q.max_batch_size}; raise it, or sweep smaller batches."
        )
    return InputError(
        f"a budget must buy at least {q.min_steps} steps of the smallest batch, which take "
        f"{compact(q.min_steps * small.batch_size)} rollouts, but got "
        f"{compact(q.rollouts(small))}; raise the budget or lower --min-steps."
    )
