"""What a sweep says: answers read off the model's draws, and the published method beside them."""

from isocompute.answers.fit import Fit, fit_sweep, select_curves
from isocompute.answers.law import Law, fit_law
from isocompute.answers.paper import PaperFit, paper_fit, printed_law
from isocompute.answers.plan import Plan, plan_budget, plan_fixed_batch, plan_from_source
from isocompute.answers.words import advice_lines

__all__ = [
    "Fit",
    "Law",
    "PaperFit",
    "Plan",
    "advice_lines",
    "fit_law",
    "fit_sweep",
    "paper_fit",
    "plan_budget",
    "plan_fixed_batch",
    "plan_from_source",
    "printed_law",
    "select_curves",
]
