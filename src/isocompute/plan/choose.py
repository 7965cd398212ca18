"""n from expected scores (or the law alone) under the limits; B_p that was stable; M the rest.

docs/plan.md has the measurements behind the rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from isocompute.allocation import Allocation, floor_power_of_two
from isocompute.domain.text import compact
from isocompute.errors import RefusalError
from isocompute.plan.law import (
    Notice,
    Regrets,
    ScoredFit,
    expected_regrets,
    smallest_stable,
    support_of,
    tested,
)
from isocompute.plan.question import Question, extrapolation_log10
from isocompute.plan.words import NOTICEABLE_LOG10

# A sigmoid reaches its plateau only in the limit, and no sweep resolves an eighth of an octave:
# a law at 0.92 of a power of two or above counts as that power.
ROUNDING_OCTAVES = 0.125
# Beyond the budgets compared, an n that at least two draws in five put level with the best or
# ahead of it ties with it: nearly the toss of a coin (docs/plan.md has what other shares lose).
COIN_TOSS = 0.4
SHOWN = 0.0005  # scores are printed with three digits


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A feasible allocation, what would have been chosen otherwise, and what was learnt.

    Args:
        allocation: what to run.
        wanted: n without the limits.
        chosen_by: "expected_score"; "tie_by_trend" or "tie_by_law" where it decided among n of
            equal expected score; "law" where no curves are known.
        chosen_from: (B_p, n) of every n that the limits admit, where scores decided; else none.
        by_law: n that the law alone gives, rounded down, under the same limits; None where no
            batch of the law's is feasible.
        expected_regret: mean score lost by the choice against the best tested n in each draw;
            None where only a law is known.
        law_expected_regret: the same of `by_law`.
        warnings: notices.
    """

    allocation: Allocation
    wanted: int
    chosen_by: str
    chosen_from: frozenset[tuple[int, int]]
    by_law: int | None
    expected_regret: float | None
    law_expected_regret: float | None
    warnings: tuple[Notice, ...]


def choose(q: Question, *, split_of: int | None = None) -> Choice:
    """The feasible n of the largest expected score; by the law alone where no curves are known.

    Args:
        q: the question.
        split_of: a batch whose own law was fitted: B_p is then batch / n, and no stability
            of B_p at that n is asked for beyond what the sweep at that batch tested.
    """
    regrets = expected_regrets(q.fit, q.rollouts)
    notes: list[Notice] = []
    law_notes: list[Notice] = []
    by_law = _candidates_of_law(q, law_notes)
    if regrets is None:
        notes, order, chosen_by = law_notes, by_law, "law"
    else:
        order, chosen_by = _candidates_of_scores(q, regrets, split_of)
        notes.extend(_edge_notices(q, order[0]))
    blocked: dict[int, str] = {}
    for n in order:
        b_p, about = _problems_per_batch(q, n, regrets, split_of)
        reason = _limit_that_blocks(q, b_p, n)
        if reason is not None:
            blocked[n] = reason
            continue
        allocation = Allocation(
            problems_per_batch=b_p, rollouts_per_problem=n, steps=int(q.rollouts // (b_p * n))
        )
        admitted = frozenset(
            pair for pair in regrets or () if _feasible(q, pair[1], regrets, split_of)
        )
        notes.extend(about)
        notes.extend(_cap_notices(q, allocation, order[0], blocked, regrets, admitted))
        followed = next((m for m in by_law if _feasible(q, m, regrets, split_of)), None)
        return Choice(
            allocation=allocation,
            wanted=order[0],
            chosen_by=chosen_by,
            chosen_from=admitted,
            by_law=followed,
            expected_regret=_regret(q, n, regrets, split_of),
            law_expected_regret=None
            if followed is None
            else _regret(q, followed, regrets, split_of),
            warnings=tuple(notes),
        )
    raise _nothing_feasible(q, min(order), blocked[min(order)], regrets)


def _candidates_of_scores(
    q: Question, regrets: Regrets, split_of: int | None
) -> tuple[list[int], str]:
    """The n tested, the one to take first, and what put it there (`Choice.chosen_by`).

    The largest expected score decides. Beyond the budgets compared, a toss of a coin goes the
    way in which n* is known to move with the budget; where none is known, to the n nearest to
    the law's.
    """
    values = sorted({n for n, _ in tested(q.fit)})
    found = {n: _regret(q, n, regrets, split_of) for n in values}
    loss = {n: value for n, value in found.items() if value is not None}
    order = sorted(loss, key=lambda n: (loss[n], n))
    low, high = support_of(q.fit)
    assert isinstance(q.fit, ScoredFit)  # it has regrets
    if q.rollouts <= high or extrapolation_log10(q.rollouts, (low, high)) < NOTICEABLE_LOG10:
        return order, "expected_score"
    trend, by_law = q.fit.trend, float(q.fit.at(q.rollouts).rollouts_per_problem)
    ahead = q.fit.shares_ahead(q.rollouts)
    pair = {n: (_problems_per_batch(q, n, regrets, split_of)[0], n) for n in order}
    tied = [n for n in order if n == order[0] or ahead[pair[n]] >= COIN_TOSS]
    tied.sort(key=lambda n: -trend * n if trend else abs(math.log2(n / by_law)))
    basis = "expected_score"
    if tied[0] != order[0]:
        basis = "tie_by_trend" if trend else "tie_by_law"
    return [*tied, *(n for n in order if n not in tied)], basis


def _candidates_of_law(q: Question, notes: list[Notice]) -> list[int]:
    """Powers of two from n*(C) down to the smallest n tested."""
    target = _law_target(q, notes)
    smallest = min(n for n, _ in tested(q.fit))
    if target < smallest:
        notes.append(
            {
                "code": "n_at_smallest_tested",
                "message": f"the law gives n={target:.3g}, below the smallest n tested; n="
                f"{smallest} is a bound, not an optimum. Test smaller n to know.",
            }
        )
    top = max(floor_power_of_two(max(target, 1.0) * 2**ROUNDING_OCTAVES), smallest)
    candidates = [1 << e for e in range(top.bit_length()) if smallest <= 1 << e <= top]
    return candidates[::-1] or [smallest]


def _law_target(q: Question, notes: list[Notice]) -> float:
    """n*(C), held at the plateau, or at the largest n tested where no plateau is known."""
    target = float(q.fit.at(q.rollouts).rollouts_per_problem)
    law = q.fit.document["law"]
    largest = max(n for n, _ in tested(q.fit))
    plateau = law.get("plateau")
    known = plateau is not None and (law.get("identified") or {}).get("plateau", True)
    cap = float(plateau) if known and plateau is not None else float(largest)
    if target <= cap * (1 + 1e-9):
        return target
    notes.append(
        {
            "code": "capped_by_plateau" if known else "capped_by_tested_n",
            "message": f"the law gives n={target:.0f} at this budget; held at "
            + (f"its plateau {cap:.0f}. " if known else f"n={largest}, the largest tested. ")
            + "What larger n would gain is not known"
            + (": every n beyond the plateau was no better." if known else "; test them."),
        }
    )
    return cap


def _edge_notices(q: Question, wanted: int) -> list[Notice]:
    """The n of the largest expected score is the smallest or largest tested."""
    values = sorted({n for n, _ in tested(q.fit)})
    if wanted == values[-1]:
        return [
            {
                "code": "capped_by_tested_n",
                "message": f"n={wanted} is the largest tested and expected to score best here; "
                "what larger n would gain is not known; test them.",
            }
        ]
    if wanted == values[0]:
        return [
            {
                "code": "n_at_smallest_tested",
                "message": f"n={wanted} is the smallest tested and expected to score best here: a "
                "bound, not an optimum. Test smaller n to know.",
            }
        ]
    return []


def _problems_per_batch(
    q: Question, n: int, regrets: Regrets | None, split_of: int | None
) -> tuple[int, tuple[Notice, ...]]:
    if split_of is not None:
        return max(split_of // n, 1), ()
    b_p, about = smallest_stable(q.fit, n, q.unhealthy, regrets)
    return b_p, tuple(about)


def _feasible(q: Question, n: int, regrets: Regrets | None, split_of: int | None) -> bool:
    return _limit_that_blocks(q, _problems_per_batch(q, n, regrets, split_of)[0], n) is None


def _regret(q: Question, n: int, regrets: Regrets | None, split_of: int | None) -> float | None:
    if regrets is None:
        return None
    return regrets.get((_problems_per_batch(q, n, regrets, split_of)[0], n))


def _limit_that_blocks(q: Question, b_p: int, n: int) -> str | None:
    if q.max_batch_size is not None and b_p * n > q.max_batch_size:
        return "max_batch"
    return "min_steps" if q.rollouts // (b_p * n) < q.min_steps else None


def _cap_notices(
    q: Question,
    chosen: Allocation,
    wanted: int,
    blocked: Mapping[int, str],
    regrets: Regrets | None,
    admitted: frozenset[tuple[int, int]],
) -> list[Notice]:
    """One warning per limit that moved n, with what the move costs in predicted score."""
    n, b_p = chosen.rollouts_per_problem, chosen.problems_per_batch
    notices: list[Notice] = []
    for limit in sorted(set(blocked.values())):
        rule = (
            f"a largest batch of {q.max_batch_size}"
            if limit == "max_batch"
            else f"at least {q.min_steps} steps"
        )
        cost = cost_of_choice(q, b_p, n, wanted, regrets, admitted)
        notices.append(
            {
                "code": f"capped_by_{limit}",
                "message": f"{rule} holds n at {n} instead of {wanted}: {cost}",
            }
        )
    return notices


def cost_of_choice(
    q: Question,
    b_p: int,
    n: int,
    wanted: int,
    regrets: Regrets | None = None,
    chosen_from: frozenset[tuple[int, int]] = frozenset(),
) -> str:
    """The predicted scores at both n, and their difference, in words."""
    other_b_p, _ = smallest_stable(q.fit, wanted, q.unhealthy, regrets)
    # What a limit forbids was the best of all that was tested.
    there = q.fit.score_at(other_b_p, wanted, q.rollouts, frozenset(regrets or ()))
    here = q.fit.score_at(b_p, n, q.rollouts, chosen_from)
    if there is None or here is None:
        return "what that costs is not known, since one of the two was not tested at this budget."
    # What is better known owes less to luck: the best of all can end up below it.
    cost = there[0] - here[0]
    lost = f"a cost of {cost:.3f}" if cost >= SHOWN else "no cost that is known"
    return f"predicted score {_scored(here)} instead of {_scored(there)}, {lost}."


def _nothing_feasible(q: Question, n: int, limit: str, regrets: Regrets | None) -> RefusalError:
    b_p, _ = smallest_stable(q.fit, n, q.unhealthy, regrets)
    if limit == "max_batch":
        return RefusalError(
            f"a batch must hold B_p={b_p} problems of at least n={n} rollouts, the smallest "
            f"tested, but the largest batch allowed is {q.max_batch_size}; raise it or sweep "
            "smaller B_p.",
            [f"a sweep with B_p <= {max((q.max_batch_size or 1) // n, 1)} at n={n}"],
        )
    return RefusalError(
        f"a plan needs at least {q.min_steps} steps of B_p={b_p}, n={n}, the smallest batch that "
        f"is stable, which take {b_p * n * q.min_steps:,} rollouts, but the budget is "
        f"{compact(q.rollouts)}; raise the budget or lower min_steps.",
        [f"a sweep with smaller batches than {b_p * n} rollouts, if the budget is fixed"],
    )


def _scored(score: tuple[float, float, float]) -> str:
    return f"{score[0]:.3f} [{score[1]:.3f}, {score[2]:.3f}]"
