"""Several n that are not told apart at a budget: the plan's, and which other to think of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocompute.answers.beside import of_another_model, today
from isocompute.answers.prescribe import Prescription, Question
from isocompute.answers.spending import apart
from isocompute.domain.text import fitting


def not_told_apart(q: Question, found: Prescription) -> dict[str, Any] | None:
    """Where several n may be best, those, the one to take, which is the plan's, and another.

    Returns:
        `rollouts_per_problem`, `take`, `other` (None: there is none), and `why` that one: "today",
        "cheapest", or "any" where they cost alike or nobody knows what they cost; `cost_share`, the
        cost of the cheapest over that of the plan. None where they are told apart.
    """
    open_ = next((one for one in found.notices if one.code == "n_not_told_apart"), None)
    if open_ is None:
        return None
    chosen, n = found.configuration, sorted({c.rollouts_per_problem for c, _ in open_.trains})
    now = None if q.current is None else today(q, chosen.problems_per_batch).rollouts_per_problem
    take = chosen.rollouts_per_problem
    if now in n and now != take:
        return {"rollouts_per_problem": n, "take": take, "other": now, "why": "today",
                "cost_share": None}  # fmt: skip
    cost = {c: q.cost(c, q.rollouts(c))["gpu_hours"] for c, _ in open_.trains}
    least, why, share = take, "any", None
    if None not in cost.values() and apart(min(cost.values()), max(cost.values())):
        cheapest = min(cost, key=lambda c: cost[c])
        least, why = cheapest.rollouts_per_problem, "cheapest"
        own = q.cost(chosen, q.rollouts(chosen))["gpu_hours"]
        share = cost[cheapest] / own if apart(cost[cheapest], own) else None
        least = least if share else take
    other = None if least == take else least
    return {"rollouts_per_problem": n, "take": take, "other": other, "why": why,
            "cost_share": share}  # fmt: skip


def open_words(d: Mapping[str, Any]) -> str:
    """That several n may be best, and which to think of beside the plan's; "" where one is best.

    Of the sweep of another model that is the lesser doubt.
    """
    found = d.get("not_told_apart")
    if not found or of_another_model(d):
        return ""
    n = [*map(str, found["rollouts_per_problem"])]
    take = {"today": f"today's {found['other']} may be best, too",
            "cheapest": f"n = {found['other']} costs {1 - found['cost_share']:.0%} less"
            if found["other"] and found["cost_share"] else f"n = {found['take']} is the cheapest",
            "any": "any of them may be best"}[found["why"]]  # fmt: skip
    forms = [f"{which} are not told apart: {take}" for which in (
        f"{', '.join(n[:-1])} and {n[-1]}", f"{len(n)} n from {n[0]} to {n[-1]}")]  # fmt: skip
    return fitting(forms)
