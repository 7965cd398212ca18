"""Numbers and findings in words: what the first screen says, and how figures are written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isocompute.domain.text import compact, visible

Document = Mapping[str, Any]

_UNIT_NAMES = {"rollouts": "rollouts", "tokens": "tokens", "steps": "update steps"}
_SECRET_KEY = re.compile(
    r"(?:^|[_.-])(?:token|secret|password|passwd|credential|api_?key|access_?key|auth)"
    r"(?:$|[_.-])",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abp]-[A-Za-z0-9-]{10,})"
    r"|(?<=:)[^\s:@/]+(?=@)"  # the password of scheme://user:password@host
    r"|(?i:(?<=api-key )|(?<=api_key=)|(?<=password=)|(?<=token=)|(?<=secret=))\S+"
)


def redact(value: Any, key: str = "") -> Any:
    """The same JSON value with everything that looks like a secret replaced by "(hidden)"."""
    if _SECRET_KEY.search(key):
        return "(hidden)"
    if isinstance(value, Mapping):
        return {visible(k): redact(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact(v, key) for v in value]
    if isinstance(value, str):
        return _SECRET_VALUE.sub("(hidden)", value)
    return value


def score(value: float | None) -> str:
    """A score in 0..1 with three decimals; a dash for None."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}"


def interval(pair: Sequence[float | None] | None, form: Any = compact) -> str:
    """In words: lo to hi, at least lo, at most hi, not bounded; equal ends are one value."""
    lo, hi = pair if pair is not None and len(pair) == 2 else (None, None)
    if lo is None and hi is None:
        return "not bounded"
    if hi is None:
        return f"at least {form(lo)}"
    if lo is None:
        return f"at most {form(hi)}"
    return form(lo) if form(lo) == form(hi) else f"{form(lo)} to {form(hi)}"


def percent(share: float | None) -> str:
    """A share as whole per cent, never rounded to certainty: 0.999 is ">99%"."""
    if share is None or not math.isfinite(share):
        return "–"
    if 0.99 < share < 1:
        return ">99%"
    return "<1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"


def unit_name(fit: Document) -> str:
    """Unit of the budget axis in words."""
    variable = (fit.get("law") or {}).get("variable") or fit.get("unit") or "rollouts"
    return _UNIT_NAMES.get(str(variable), visible(variable))


def setting_name(fit: Document) -> str:
    """What was held fixed, in words."""
    setting = fit.get("setting") or {}
    value = setting.get("value")
    return {
        "fixed_problems_per_batch": f"Bₚ = {value} held fixed",
        "fixed_batch_size": f"batch of {compact(value)} rollouts held fixed",
        "joint": "Bₚ and n swept together",
    }.get(str(setting.get("kind")), "")


def extrapolation(decades: float | None) -> str:
    """How far a budget lies past the data.

    >>> extrapolation(0.3)
    '2.0 times past the measured budgets (0.30 decades)'
    """
    if decades is None or not math.isfinite(decades):
        return "distance from the measured budgets is not known"
    if abs(decades) < 5e-3:
        return "inside the measured budgets"
    side = "past" if decades > 0 else "below"
    ratio = 10 ** abs(decades)
    times = f"{ratio:.1f}" if ratio < 10 else compact(ratio)
    return f"{times} times {side} the measured budgets ({abs(decades):.2f} decades)"


_CHOSEN = {
    "expected_score": "has the best expected score",
    "tie_by_trend": "is tied with the best, on the side to which n* moves",
    "tie_by_law": "is tied with the best, and nearest to the law",
}


def law_sentence(plan: Document) -> str:
    """How the chosen n follows from the law's own value, where the plan names it."""
    value, n = plan.get("rollouts_per_problem_law"), plan.get("rollouts_per_problem")
    if not value or not n:
        return ""
    by_law = plan.get("law_rollouts_per_problem")
    if str(plan.get("chosen_by", "law")) != "law":
        if by_law == n:
            return (
                f"The law puts n* at {compact(value)}; n={compact(n)} has the best expected score."
            )
        lost = plan.get("law_expected_regret")
        cost = "" if lost is None else f", which would lose {score(lost)} of score"
        rounded = "" if by_law is None else f", rounded down {compact(by_law)}{cost}"
        why = _CHOSEN.get(str(plan["chosen_by"]), _CHOSEN["expected_score"])
        return f"The law puts n* at {compact(value)}{rounded}; n={compact(n)} {why}."
    if n <= value < 2 * n:
        return f"The law puts n* at {compact(value)}; n is the power of two below it."
    return f"The law puts n* at {compact(value)}; the warnings say what holds n at {compact(n)}."


def law_at(fit: Document, x: float) -> dict[str, Any] | None:
    """The row of `law.at` nearest to x in log; None outside the table by more than 2 per cent."""
    rows = ((fit.get("law") or {}).get("at")) or []
    if not rows or x <= 0:
        return None
    xs = [row["x"] for row in rows]
    if not min(xs) * 0.98 <= x <= max(xs) * 1.02:
        return None
    return dict(min(rows, key=lambda row: abs(math.log(row["x"] / x))))


def what_would_change(fit: Document | None, plan: Document) -> list[str]:
    """Sentences that name what would move the prescription, nearest first."""
    said: list[str] = []
    n = plan.get("rollouts_per_problem")
    budget = plan.get("budget_rollouts") or plan.get("rollouts")
    if fit is not None and budget and str(fit.get("unit")) == "rollouts":
        said += _leader_sentence(fit, float(budget), n)
        said += _crossover_sentences(fit, float(budget))
        for factor, words in ((0.5, "Half the budget"), (2.0, "Twice the budget")):
            row = law_at(fit, factor * float(budget))
            if row is not None and row.get("rollouts_per_problem"):
                said.append(
                    f"{words}: n* = {compact(row['rollouts_per_problem'])} "
                    f"({interval(row.get('interval'))})."
                )
    wide = plan.get("rollouts_per_problem_interval")
    if wide and None not in wide and n and wide[0] != wide[1]:
        said.append(
            f"More seeds: the law's n* may lie anywhere from {compact(wide[0])} to "
            f"{compact(wide[1])}; "
            "repeats near the optimum narrow that."
        )
    flags = {str(w.get("code")) for w in plan.get("warnings") or []}
    if "bp_untested" in flags:
        said.append(f"Another Bₚ: only Bₚ = {plan.get('problems_per_batch')} was tested.")
    return said


def _leader_sentence(fit: Document, budget: float, n: int | None) -> list[str]:
    for part in fit.get("frontier") or []:
        if part["from"] <= budget <= part["to"] and part["rollouts_per_problem"] != n:
            probability = part.get("probability_best")
            sure = "" if probability is None else f" with probability {percent(probability)}"
            return [
                f"Trust in the curves rather than the law: n = {part['rollouts_per_problem']} "
                f"leads them at this budget{sure}."
            ]
    return []


def _crossover_sentences(fit: Document, budget: float) -> list[str]:
    crossovers: Iterable[Document] = fit.get("crossovers") or []
    said = []
    usable = [c for c in crossovers if c.get("at")]
    below = max((c for c in usable if c["at"] <= budget), key=lambda c: c["at"], default=None)
    above = min((c for c in usable if c["at"] > budget), key=lambda c: c["at"], default=None)
    for side, crossover, which in (
        ("Below", below, "from_rollouts_per_problem"),
        ("Above", above, "to_rollouts_per_problem"),
    ):
        if crossover is not None:
            said.append(
                f"{side} {compact(crossover['at'])} {unit_name(fit)} "
                f"({interval(crossover.get('interval'))}): n = {crossover[which]} leads "
                "in the measured curves."
            )
    return said


def summary_of_law(fit: Document) -> str:
    """One or two sentences that say what a fit found."""
    law = fit.get("law") or {}
    rows = law.get("at") or []
    if not law.get("form") or not rows:
        return "No law could be fitted to these curves; the warnings say why."
    first, last = rows[0], rows[-1]
    unit = unit_name(fit)
    text = (
        f"The best n, n*, goes from {compact(first['rollouts_per_problem'])} at "
        f"{compact(first['x'])} {unit} to {compact(last['rollouts_per_problem'])} "
        f"({interval(last.get('interval'))}) at {compact(last['x'])}."
    )
    rising = law.get("rising") or {}
    if rising.get("claimed"):
        # The claim rests on a one-sided 95% bound, whatever the level of the intervals.
        text += (
            f" The rise is real: n* doubles {rising['octaves']:.1f} times, at least "
            f"{rising['lower_bound']:.1f} (one-sided 95% bound)."
        )
    elif rising:
        text += " These data do not establish that n* rises with the budget."
    if law.get("plateau") is None:
        return text
    where = interval(law.get("plateau_interval"))
    if (law.get("identified") or {}).get("plateau", True):
        return f"{text} Plateau: n = {compact(law['plateau'])} ({where})."
    return f"{text} Where it levels off is not known: {where}."


def backtest_sentence(fit: Document) -> str | None:
    """What the back-test found, beside its no-fit baselines; None where there is none."""
    test = fit.get("backtest") or {}
    error, baseline = test.get("mae_law"), test.get("mae_best_so_far")
    if error is None:
        return None
    text = (
        "Fitted on the first part of every curve and asked about the rest, the fit misses by "
        f"{error:.4f} in score"
    )
    if baseline is not None:
        verdict = "better than" if error < baseline else "no better than"
        text += f", {verdict} taking the best so far ({baseline:.4f})"
    if test.get("mae_power_law") is not None:
        text += f"; a power law misses by {test['mae_power_law']:.4f}"
    text += "."
    blend = test.get("blend") or {}
    if blend.get("better") and blend.get("mae_blend") is not None:
        text += (
            f" A blend of both ({percent(blend.get('weight'))} fit) misses by "
            f"{blend['mae_blend']:.4f} on the {blend.get('n_held_out', 0):,} values it could be "
            "judged by."
        )
    if test.get("coverage") is not None:
        of = f" {test['n_held_out']:,}" if test.get("n_held_out") else ""
        text += f" The intervals held {percent(test['coverage'])} of the{of} held-out values."
    if baseline is not None and error >= baseline:
        text += " Do not extrapolate the scores of these curves."
    if (test.get("blend") or {}).get("better"):
        text += " A blend of the two predicts better than either."
    for row in test.get("left_out", ()):
        if row["refused"] is None:
            what = "the last doubling of the budget"
            if row["left_out"] != "budget":
                what = f"n = {row['value']}"
            said = row["rollouts_per_problem"]
            text += (
                f" Without {what} the law would have said n* = {compact(said['law'])} at "
                f"{compact(row['at'])} (all data: {compact(said['full'])}), which loses "
                f"{row['score_lost']['law']:.3f} of score."
            )
    return text
