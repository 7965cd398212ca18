"""Law + budget -> the prescription (B_p, n, M) with its recipe, or a refusal."""

from isocompute.plan.budget import Plan, plan_budget, plan_fixed_batch
from isocompute.plan.law import LawFit, LawReading
from isocompute.plan.sources import plan_from_source
from isocompute.plan.words import advice_lines

__all__ = [
    "LawFit",
    "LawReading",
    "Plan",
    "advice_lines",
    "plan_budget",
    "plan_fixed_batch",
    "plan_from_source",
]
