"""Numbers and findings in words: what the page says of a fit, and how figures are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from isocompute.answers.logged import digits_of, score_text
from isocompute.answers.paper import PrintedLaw, printed_law
from isocompute.answers.words import n_words
from isocompute.credentials import hide, secret_name
from isocompute.domain.text import at_least_fold, compact, fold, unit_words, visible

Document = Mapping[str, Any]


def redact(value: Any, key: str = "") -> Any:
    """The same JSON value with everything that looks like a secret replaced by "(hidden)"."""
    if secret_name(key):
        return "(hidden)"
    if isinstance(value, Mapping):
        return {visible(k): redact(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact(v, key) for v in value]
    if isinstance(value, str):
        return hide(value)
    return value


def score(value: float | None, digits: int = 3) -> str:
    """A score with three decimals, or so many; a dash for None.

    >>> score(0.5), score(-0.0002), score(None)
    ('0.500', '0.000', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}"


def scores_of(fit: Document) -> Callable[[float | None], str]:
    """How scores of a fit are written, as they were logged."""
    return partial(score, digits=digits_of(fit))


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
    return visible(unit_words(variable))


def budget_unit(fit: Document) -> str:
    """Unit of the budgets of a fit in words."""
    return unit_words(fit.get("unit") or "rollouts")


def planned_at(fit: Document, plan: Document | None) -> float | None:
    """Where the budget of a plan lies on the axes of a fit; None where nobody knows."""
    spent = {"rollouts": (plan or {}).get("budget_rollouts"), **((plan or {}).get("cost") or {})}
    at = spent.get(str(fit.get("unit") or "rollouts").replace("-", "_"))
    return None if at is None else float(at)


def setting_name(fit: Document) -> str:
    """What was held fixed, in words."""
    setting = fit.get("setting") or {}
    value = setting.get("value")
    return {
        "fixed_problems_per_batch": f"Bₚ = {value} held fixed",
        "fixed_batch_size": f"batch of {compact(value)} rollouts held fixed",
        "joint": "Bₚ and n swept together",
    }.get(str(setting.get("kind")), "")


# Below this no n is named as the best: it is more likely that another one is.
_LIKELY = 0.5
_FEW = 0.05  # chances below it are added up: what is left in doubt, one-sided

RULES = {
    "model": "this model",
    "best_so_far": "the best so far",
    "largest_n": "the largest n",
    "next_n": "the next n after the leader",
    "paper": "the paper's method",
}


def extrapolation(decades: float | None) -> str:
    """How far a budget lies past the data; nothing inside them.

    >>> extrapolation(0.3)
    '2 times the largest at which n were compared'
    """
    if decades is None or not math.isfinite(decades) or abs(decades) < 0.02:
        return ""
    times = compact(10 ** abs(decades))
    where = "the largest" if decades > 0 else "below the smallest"
    return f"{times} times {where} at which n were compared"


def passes(times: float | None) -> str:
    """How often a budget goes over the training problems; "" where their number is not known."""
    return "" if times is None else f"{compact(times)} passes over the training problems"


def metric(name: str | None) -> str:
    """A metric with what it means: "avg@4, the mean over answers, 4 to a problem".

    >>> metric("best@8"), metric("avg:reward")
    ('best@8, problems solved in at least one of 8 answers', 'avg:reward, the mean over answers')
    """
    kind, _, k = (name or "").partition(":")[0].partition("@")
    meaning = {
        "avg": "the mean over answers" + (f", {k} to a problem" if k else ""),
        "best": f"problems solved in at least one of {k} answers",
        "worst": f"problems solved in all of {k} answers",
    }.get(kind)
    if meaning:
        return f"{name}, {meaning}"
    return "as logged" if name in (None, "", "score") else str(name)


def inside_rows(fit: Document) -> list[dict[str, Any]]:
    """Rows of `best` at budgets at which all that could be best were compared."""
    return [dict(row) for row in fit.get("best") or [] if not row.get("extrapolated")]


def last_row(fit: Document) -> dict[str, Any] | None:
    """The row of `best` at the largest budget at which all that could be best were compared."""
    rows = inside_rows(fit) or [dict(row) for row in fit.get("best") or []]
    return rows[-1] if rows else None


def best_of(fit: Document, last: Document) -> str:
    """What may be best in a row of `best`: of n, or of B_p where one n alone was tested."""
    if len({row["rollouts_per_problem"] for row in fit.get("curves") or []}) == 1:
        return f"{last['problems_per_batch']} problems per batch (Bₚ)"
    n = [str(m) for m in last.get("confidence_set") or []]
    if len(n) > 1:
        return f"n = {', '.join(n[:-1])} or {n[-1]}"
    return f"{last['tested_rollouts_per_problem']} rollouts per problem (n)"


def best_at(fit: Document, x: float) -> dict[str, Any] | None:
    """The row of `best` nearest to x in log; None beyond the rows by more than 2 per cent."""
    rows = fit.get("best") or []
    if not rows or x <= 0 or not rows[0]["x"] * 0.98 <= x <= rows[-1]["x"] * 1.02:
        return None
    return dict(min(rows, key=lambda row: abs(math.log(row["x"] / x))))


def whole(n: float) -> str:
    """An n as a whole number, as `fit` prints it."""
    return compact(round(n))


def summary(fit: Document) -> str:
    """What a fit found, in two or three sentences."""
    last = last_row(fit)
    if last is None:
        return "Nothing can be said of the best n: no budget has scores."
    end = f"{compact(last['x'])} {budget_unit(fit)}"
    tested = sorted({int(row["rollouts_per_problem"]) for row in fit.get("curves") or []})
    if len(tested) == 1:
        return f"Only n = {tested[0]} was tested, up to {end}."
    first = (inside_rows(fit) or [last])[0]
    before, now = _best_n(first), _best_n(last)
    text = f"The best n is {now} at {end}"
    if first["x"] < last["x"]:
        begin = compact(first["x"])
        text = f"The best n is {now} from {begin} to {end}" if before == now else (
            f"The best n is {before} at {begin}, and {now} at {end}")  # fmt: skip
    return f"{text}. {rise_sentence(fit)}".strip()


def _best_n(row: Document) -> str:
    """The best n of a row of `best`; where several may be it, the interval alone."""
    ends = [end for end in row.get("interval") or () if end is not None]
    if len(row.get("confidence_set") or []) < 2 or len(ends) < 2 or len({*map(whole, ends)}) < 2:
        return n_words(row)
    return " to ".join(map(whole, ends))


def rise_sentence(fit: Document) -> str:
    """Whether the best n rises, and where it levels off."""
    law = fit.get("law") or {}
    rising = law.get("rising") or {}
    if not rising:
        return ""
    if not rising.get("claimed"):
        return "These runs do not establish that it rises with the budget."
    # The claim rests on a one-sided 95% bound, whatever the level of the intervals.
    text = (
        f"It rises {fold(rising['octaves'])}, at least {at_least_fold(rising['lower_bound'])} "
        "(one-sided 95% bound)"
    )
    if (law.get("identified") or {}).get("plateau") and law.get("plateau") is not None:
        return f"{text}, and levels off at n = {compact(law['plateau'])}."
    return f"{text}; where it levels off is not known."


def backtest_sentence(fit: Document) -> str | None:
    """How well a part of the sweep predicts the rest; None where nothing could be held out."""
    test = fit.get("backtest") or {}
    error, base = test.get("mae_model"), test.get("mae_best_so_far")
    if error is None or base is None:
        return None
    cuts = " and at ".join(compact(cut) for cut in test.get("cuts") or [])
    text = (
        f"Cut at {cuts} rollouts, the sweep predicts later scores within "
        f"{score_text(fit, error)} on average; assuming no further change misses by "
        f"{score_text(fit, base)}."
    )
    if test.get("coverage") is not None:
        text += (
            f" Of {test.get('n_held_out') or 0:,} held-out scores, {percent(test['coverage'])} lie "
            f"inside their {percent(fit.get('level') or 0.95)} intervals."
        )
    if round(test.get("widened_by") or 1, 1) > 1:
        text += f" So intervals beyond the data are {test['widened_by']:.1f} times as wide."
    return text


def chance(share: float | None) -> str:
    """A share of draws as per cent: all of some hundred draws are no certainty.

    >>> chance(1.0)
    '>99%'
    """
    return percent(None if share is None else min(share, 0.9999))


def chances_of(fit: Document, plan: Document | None) -> Document:
    """`chances` of a plan; {} where they are of other configurations, or in another unit."""
    found = (plan or {}).get("chances") or {}
    known = {tuple(pair) for pair in found.get("configurations") or ()}
    mine = {(row["problems_per_batch"], row["rollouts_per_problem"])
            for row in fit.get("curves") or ()}  # fmt: skip
    unit = ((plan or {}).get("law") or {}).get("unit")
    return found if known == mine and unit == (fit.get("unit") or "rollouts") else {}


def at_its_end(fit: Document, plan: Document | None = None) -> dict[str, Any] | None:
    """Who may be best, and what each n loses, at the plan's budget, else at the last compared.

    Returns:
        `x`, `probability` and `expected_regret` by n, and `confidence_set`, as in a row of `best`.
    """
    found = chances_of(fit, plan)
    if plan is None or not found:
        return last_row(fit)
    share, lost = dict[int, float](), dict[int, float]()
    for (_, n), best, regret in zip(
        found["configurations"], found["best"], found["regret"], strict=True
    ):
        share[n] = share.get(n, 0.0) + best[-1]
        lost[n] = min(lost.get(n, math.inf), regret[-1])
    return {"x": found["x"][-1], "probability": share, "expected_regret": lost,
            "confidence_set": plan["confidence_set"]}  # fmt: skip


def with_plan(fit: Document, plan: Document | None) -> dict[str, Any]:
    """A fit whose chances and regrets by budget go on to the plan's."""
    known, more = fit.get("probabilities") or {}, chances_of(fit, plan)
    if not known or len(more.get("x") or []) < 2:
        return dict(fit)
    rows = {name: [[*one, *then[1:]] for one, then in zip(known[name], more[name], strict=True)]
            for name in ("best", "regret")}  # fmt: skip
    return {**fit, "probabilities": {**known, "x": [*known["x"], *more["x"][1:]], **rows}}


def probability_sentence(fit: Document, plan: Document | None = None) -> str:
    """How sure the leader is at the plan's budget, or the largest compared."""
    last = at_its_end(fit, plan)
    if last is None or not last.get("probability"):
        return ""
    share = {int(n): p for n, p in last["probability"].items()}
    top = max(share, key=lambda n: share[n])
    at = f"{compact(last['x'])} {budget_unit(fit)}"
    known = [str(n) for n in last.get("confidence_set") or []]
    left = f"Only n = {top} is"
    if len(known) > 1:
        left = f"n = {', '.join(known[:-1])} and {known[-1]} are"
    says = f"n = {top} is best with probability {chance(share[top])}"
    if share[top] < _LIKELY:
        says = f"no n is best with a probability above {chance(share[top])}"
    return f"At {at}, {says}. {left} still in contention there."


def chances_words(fit: Document, plan: Document) -> str:
    """The chance of each n to be best at a plan's budget; "" where nobody knows it."""
    if not chances_of(fit, plan) or (last := at_its_end(fit, plan)) is None:
        return ""
    share = last["probability"]
    if plan.get("rollouts_per_problem") not in share or len(share) < 2:
        return ""
    said = {n: p for n, p in sorted(share.items()) if p >= _FEW}
    each = [f"{'' if i else 'n = '}{n}{'' if i else ' is best'} with {chance(p)}"
            for i, (n, p) in enumerate(said.items())]  # fmt: skip
    rest = 1 - sum(said.values())
    return ", ".join([*each, *([f"others {chance(rest)}"] if rest > 1e-6 else [])])


def loss_sentence(fit: Document, plan: Document | None = None) -> str:
    """What the worst n costs of those out of contention; of the others nobody knows it."""
    last = at_its_end(fit, plan) or {}
    known = last.get("confidence_set") or []
    every = {int(n): v for n, v in (last.get("expected_regret") or {}).items()}
    lost = {n: v for n, v in every.items() if n not in known}
    if not known or not lost:
        return ""
    worst = max(lost, key=lambda n: lost[n])
    at = f"{compact(last['x'])} {budget_unit(fit)}"
    return f"At {at}, n = {worst} is expected to lose {score_text(fit, lost[worst])} of score."


def printed_of(fit: Document) -> PrintedLaw | None:
    """What the study itself printed, where this is one of its panels and stands alone."""
    sources = (fit.get("provenance") or {}).get("sources") or []
    alone = len(sources) == 1 and fit.get("unit") == "rollouts"
    return printed_law(str(sources[0])) if alone else None


def paper_sentence(fit: Document) -> str:
    """What the published pipeline says of these runs."""
    paper = fit.get("paper") or {}
    if paper.get("refused"):
        return f"The paper's own method gives no answer here: {paper['refused']}"
    rows = groupby(paper.get("frontier") or [], key=lambda row: row["rollouts_per_problem"])
    path = [(n, next(of)["from"]) for n, of in rows]
    if not path or path != sorted(path):  # it jumps about, and names several
        return ""
    later = [f"n = {n} from {compact(at)}" for n, at in path[1:]]
    unit = unit_words(paper.get("unit") or fit.get("unit") or "rollouts")
    then = f" at first, {', '.join(later)} {unit} on" if later else " throughout"
    return f"By the paper's own method n = {path[0][0]} is best{then}."


def printed_sentences(fit: Document) -> list[str]:
    """What the study itself printed of this panel, where it is one."""
    printed, last = printed_of(fit), last_row(fit)
    return [] if printed is None else printed.sentences(float(last["x"]) if last else None)


def changes(fit: Document | None, plan: Document) -> list[str]:
    """What would change the plan: half and twice the budget, the nearest crossovers."""
    budget = plan.get("budget_rollouts") or plan.get("rollouts")
    if fit is None or not budget or str(fit.get("unit")) != "rollouts":
        return []
    said = []
    for factor, name in ((0.5, "Half the budget"), (2.0, "Twice the budget")):
        row = best_at(fit, factor * float(budget))
        if row is not None:
            beyond = ", beyond the data" if row.get("extrapolated") else ""
            said.append(f"{name}: best n {_best_n(row)}{beyond}.")
    told_apart = plan.get("not_told_apart") is None
    usable = [c for c in fit.get("crossovers") or [] if c.get("at") and told_apart]
    if overtaken := plan.get("overtakes"):  # beyond the data, where fits have no crossover
        said.append(f"Below {compact(overtaken['x'])} rollouts: "
                    f"n = {overtaken['rollouts_per_problem']} leads.")  # fmt: skip
    for side, inside, other in (("Below", "to", "from"), ("Above", "from", "to")):
        # the nearest on each side, where it is to or from the n of the plan
        there = [c for c in usable if (c["at"] <= budget) == (side == "Below")]
        nearest: Mapping[str, Any] = min(there, key=lambda c: abs(c["at"] - budget), default={})
        own, n = (nearest.get(f"{which}_rollouts_per_problem") for which in (inside, other))
        if n is not None and own == plan.get("rollouts_per_problem") != n:
            wide = interval(nearest.get("interval"))
            said.append(f"{side} {compact(nearest['at'])} rollouts ({wide}): n = {n} leads.")
    return said
