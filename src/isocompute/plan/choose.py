"""n from the law, under the limits; B_p from what was stable; M from what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isocompute.allocation import Allocation, floor_power_of_two
from isocompute.errors import RefusalError
from isocompute.plan.law import Notice, smallest_stable, tested
from isocompute.plan.question import Question
from isocompute.plan.words import compact_number

# A sigmoid reaches its plateau only in the limit, and no sweep resolves an eighth of an octave:
# a law at 0.92 of a power of two or above counts as that power.
ROUNDING_OCTAVES = 0.125


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A feasible allocation, what the law alone would have chosen, and what was learnt."""

    allocation: Allocation
    wanted: int
    warnings: tuple[Notice, ...]


def choose(q: Question, *, split_of: int | None = None) -> Choice:
    """The largest power of two at or below n*(C) that every limit admits.

    Args:
        q: the question.
        split_of: a batch whose own law was fitted: B_p is then batch / n, and no stability
            of B_p at that n is asked for beyond what the sweep at that batch tested.
    """
    notes: list[Notice] = []
    target = _law_target(q, notes)
    n_tested = sorted({n for n, _ in tested(q.fit)})
    smallest = n_tested[0]
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
    candidates = candidates[::-1] or [smallest]
    blocked: dict[int, str] = {}
    for n in candidates:
        if split_of is None:
            b_p, about = smallest_stable(q.fit, n, q.unhealthy)
        else:
            b_p, about = max(split_of // n, 1), ()
        reason = _limit_that_blocks(q, b_p, n)
        if reason is None:
            allocation = Allocation(
                problems_per_batch=b_p,
                rollouts_per_problem=n,
                steps=int(q.rollouts // (b_p * n)),
            )
            notes.extend(about)
            notes.extend(_cap_notices(q, allocation, candidates[0], blocked))
            return Choice(allocation=allocation, wanted=candidates[0], warnings=tuple(notes))
        blocked[n] = reason
    raise _nothing_feasible(q, candidates[-1], blocked[candidates[-1]])


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


def _limit_that_blocks(q: Question, b_p: int, n: int) -> str | None:
    if q.max_batch_size is not None and b_p * n > q.max_batch_size:
        return "max_batch"
    return "min_steps" if q.rollouts // (b_p * n) < q.min_steps else None


def _cap_notices(
    q: Question, chosen: Allocation, wanted: int, blocked: Mapping[int, str]
) -> list[Notice]:
    """One warning per limit that moved n, with what the move costs in predicted score."""
    n, b_p = chosen.rollouts_per_problem, chosen.problems_per_batch
    cost = cost_of_choice(q, b_p, n, wanted)
    notices: list[Notice] = []
    for limit in sorted(set(blocked.values())):
        rule = (
            f"a largest batch of {q.max_batch_size}"
            if limit == "max_batch"
            else f"at least {q.min_steps} steps"
        )
        notices.append(
            {
                "code": f"capped_by_{limit}",
                "message": f"{rule} holds n at {n} instead of {wanted}: {cost}",
            }
        )
    return notices


def cost_of_choice(q: Question, b_p: int, n: int, wanted: int) -> str:
    """The predicted scores at both n, and their difference, in words."""
    other_b_p, _ = smallest_stable(q.fit, wanted, q.unhealthy)
    there = q.fit.score_at(other_b_p, wanted, q.rollouts)
    here = q.fit.score_at(b_p, n, q.rollouts)
    if there is None or here is None:
        return "what that costs is not known, since one of the two was not tested at this budget."
    return (
        f"predicted score {_scored(here)} instead of {_scored(there)}, "
        f"a cost of {there[0] - here[0]:.3f}."
    )


def _nothing_feasible(q: Question, n: int, limit: str) -> RefusalError:
    b_p, _ = smallest_stable(q.fit, n, q.unhealthy)
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
        f"{compact_number(q.rollouts)}; raise the budget or lower min_steps.",
        [f"a sweep with smaller batches than {b_p * n} rollouts, if the budget is fixed"],
    )


def _scored(score: tuple[float, float, float]) -> str:
    return f"{score[0]:.3f} [{score[1]:.3f}, {score[2]:.3f}]"
