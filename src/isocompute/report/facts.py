"""What a plan gives and costs: rows of the first screen, what a manager reads first at the top."""

from __future__ import annotations

import math
from functools import partial

from isocompute.answers.assumed import settings_kept
from isocompute.answers.beside import lead_words, less_words, open_words, passes_words
from isocompute.answers.broke import fell_words
from isocompute.answers.logged import score_text
from isocompute.answers.machines import clock_words
from isocompute.answers.step_lines import (
    is_in_tokens,
    is_training_alone,
    other_amounts,
    paid_words,
    source_words,
)
from isocompute.answers.steps import plain_rate
from isocompute.answers.target import target_words
from isocompute.answers.words import NO_GAIN, doubts, is_today, rate_origin
from isocompute.answers.worth import check_words
from isocompute.domain.text import unit_words
from isocompute.report import words
from isocompute.report.words import Document, interval


def facts_of(fit: Document | None, plan: Document) -> list[tuple[str, str]]:
    """Rows of name and value, those without a value left out.

    Args:
        fit: the `fit --json` document of the subject.
        plan: the `plan --json` document, its scores as they are logged.
    """
    fell, how = fell_words(plan)
    told = (plan.get("not_told_apart") or {}).get("why") == "any"  # and that is the caution above
    rows = [
        ("Score", _expected(plan)),
        ("Gain", _gain(plan)),
        ("Cost", _cost(plan)),
        ("Today", _today(plan)),
        ("Which n", "" if told else open_words(plan)),
        ("Chance", words.chances_words(fit or {}, plan)),
        ("In your runs", lead_words(plan, math.inf)),
        (fell.capitalize(), how),
        ("Target", target_words(plan)),
        ("For less", less_words(plan)),
        ("Stop if", check_words(plan)),
        ("Learning rate", _learning_rate(plan)),
        ("Other settings", settings_kept(plan)),
        ("Budget", _beyond(plan)),
        ("Data", passes_words(plan) or words.passes(plan.get("passes_over_data"))),
    ]
    return [row for row in rows if row[1]]


def _expected(plan: Document) -> str:
    value = plan.get("predicted_score")
    if value is None:
        return "not estimated"
    form = partial(score_text, plan)
    key = (plan.get("logged") or {}).get("key")
    ends = interval(plan.get("predicted_score_interval"), form)
    return f"{form(value)} expected ({ends})" + (f", as {key} is logged" if key else "")


def _gain(plan: Document) -> str:
    gain = plan.get("gain")
    if not gain or gain.get("score") is None:
        return ""
    if is_today(plan):
        return NO_GAIN
    wide, form = gain["interval"], partial(score_text, plan, sign="+")
    b_p, n = gain.get("problems_per_batch"), gain.get("rollouts_per_problem")
    by_cost = (plan.get("law") or {}).get("unit") == "gpu-hours"  # then the batch counts
    other = f", Bₚ = {b_p}" if by_cost or b_p != plan.get("problems_per_batch") else ""
    doubt = f" ({said})" if (said := doubts(gain)) else ""
    unit = unit_words((plan.get("law") or {}).get("unit") or "rollouts")
    return (
        f"{form(gain['score'])} ({form(wide[0])} to {form(wide[1])}) over "
        f"today's n\u00a0=\u00a0{n}{other} at equal {unit}{doubt}"
    )


def _today(plan: Document) -> str:
    """Score and cost of today's setting at the same budget."""
    gain = plan.get("gain")
    if not gain or gain.get("predicted_score") is None or is_today(plan):
        return ""
    low, high = gain["predicted_score_interval"]
    spent = ", ".join(other_amounts(gain["cost"], plan["cost"])[:2])
    form = partial(score_text, plan)
    return f"{form(gain['predicted_score'])} ({form(low)} to {form(high)})" + (
        f", {spent}" if spent else ""
    )


def _learning_rate(plan: Document) -> str:
    rate = plan.get("learning_rate")
    if rate is None:
        return ""
    text, whose = plain_rate(rate), rate_origin(plan)
    return f"{text} ({whose})" if whose else text


def _cost(plan: Document) -> str:
    cost, clock = plan.get("cost") or {}, clock_words(plan)
    known = {**dict.fromkeys(("gpu_hours", "usd", "tokens")), **cost}
    # Of tokens there is no need beside hours and money that pay for it.
    if known["gpu_hours"] is not None and not is_in_tokens({**plan, "cost": cost}):
        known["tokens"] = None
    parts = [*paid_words(known), *([clock] if clock else [])]
    # Why it is a range stands among the notes: here it would take a second line.
    whose = source_words(cost, trend=False).replace("your runs' times", "measured")
    whose = whose.replace("carried on, beyond", "extrapolated from")
    said = ", ".join(parts) + (f" ({whose})" if whose else "")
    said += "; evaluations are extra" if is_training_alone(cost) else ""
    return said or "not known; give --rollouts-per-gpu-hour"


def _beyond(plan: Document) -> str:
    """How far beyond the sweep the budget is; "" where the verdict says it."""
    told = str((plan.get("verdict") or {}).get("reason")).startswith("All n were compared only")
    return "" if told else words.extrapolation(plan.get("extrapolation_log10"))
