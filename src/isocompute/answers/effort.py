"""What it would take to train more of a sweep, and which of it to train more."""

from __future__ import annotations

import math
from collections.abc import Sequence

from isocompute.allocation import Allocation
from isocompute.answers.reading import Reading
from isocompute.domain import Configuration, Effort

LEADERS = 3  # n that are named: more of them is a sweep, not a step


def longest(fit: Reading, c: Configuration | None = None) -> float:
    """Rollouts of the longest run, of a configuration or of all."""
    own = [r for r in fit.curves if c in (None, r.configuration)]
    return max((float(r.rollouts_K[-1]) for r in own), default=0.0)


def went_as_far(fit: Reading, a: Allocation) -> dict[str, int] | None:
    """Runs of an allocation that there are already: {"runs", "step"}; None where there is none."""
    of = Configuration(a.problems_per_batch, a.rollouts_per_problem)
    own = [c for c in fit.curves if c.configuration == of and c.rollouts_K[-1] >= a.rollouts]
    return {"runs": len(own), "step": a.steps} if own else None


def compared(fit: Reading, c: Configuration | None = None) -> float:
    """Rollouts of the longest run, of a configuration or of all, to where all n were compared.

    What lies beyond tells nothing of one n against another.
    """
    end, of = fit.support[1], 0.0
    for r in fit.curves:
        reached = float(r.position(fit.unit)[-1])
        if c in (None, r.configuration) and reached > 0:
            of = max(of, float(r.rollouts_K[-1]) * min(end / reached, 1.0))
    return of


def seeds(
    fit: Reading, which: Sequence[Configuration], more: int = 2, most: float = math.inf
) -> Effort:
    """So many more runs of each configuration, as far as all n were compared.

    Args:
        more: runs of each.
        most: of a run, where a plan needs no more.
    """
    return {c: more * min(compared(fit, c), most) for c in which}


def further(fit: Reading, which: Sequence[Configuration], to: float) -> Effort:
    """One run of each configuration on to a budget, in the fit's unit."""
    left = dict[Configuration, float]()
    for c in which:
        own = [r for r in fit.curves if r.configuration == c]
        ends = [(float(r.position(fit.unit)[-1]), float(r.rollouts_K[-1])) for r in own]
        reached, spent = max(ends, default=(0.0, 0.0))
        left[c] = spent / reached * max(to - reached, 0.0) if reached > 0 else 0.0
    return left


def nearest(fit: Reading, n: Sequence[int], chosen: Configuration, x: float) -> list[Configuration]:
    """The three of some tested n that lie nearest to a choice, at its B_p or their best one."""
    near = sorted(n, key=lambda m: abs(math.log2(m / chosen.rollouts_per_problem)))[:LEADERS]
    at_best = dict(zip(near, at_their_best(fit, near, x), strict=True))
    own = {m: Configuration(chosen.problems_per_batch, m) for m in near}
    return [own[m] if own[m] in fit.configurations else at_best[m] for m in sorted(near)]


def at_their_best(fit: Reading, n: Sequence[int], x: float) -> list[Configuration]:
    """Some tested n, each at the B_p that scores best at a budget."""
    scores = fit.expected_scores(x)
    return [
        max((c for c in scores if c.rollouts_per_problem == m), key=lambda c: scores[c]) for m in n
    ]


def leaders(fit: Reading) -> list[Configuration]:
    """What may be best at the largest budget compared: the nearest three n, at their best B_p."""
    last = [b for b, inside in zip(fit.best, fit.inside_X, strict=True) if inside][-1]
    n = last.tested_rollouts_per_problem
    near = sorted(last.confidence_set, key=lambda m: abs(math.log2(m / n)))[:LEADERS]
    return at_their_best(fit, sorted(near), last.x)


def named(fit: Reading, which: Sequence[Configuration]) -> str:
    """Configurations in words: n = 8, 16; with their B_p where several were fitted."""
    if len({c.problems_per_batch for c in fit.configurations}) > 1:
        return ", ".join(map(str, which)) + " (B_p x n)"
    return "n = " + ", ".join(str(c.rollouts_per_problem) for c in which)
