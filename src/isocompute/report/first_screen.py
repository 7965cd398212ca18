"""The first screen: what to run, how far to trust it, what it costs, what to do first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from isocompute.answers.around import PUBLISHED_MODEL, known_words
from isocompute.answers.assumed import settings_kept
from isocompute.answers.beside import lead_words, less_words, passes_words
from isocompute.answers.broke import fell_words, trained_words
from isocompute.answers.cost_words import (
    is_training_alone,
    other_amounts,
    paid_words,
    source_words,
)
from isocompute.answers.logged import as_logged, score_text
from isocompute.answers.machines import clock_words
from isocompute.answers.on_the_way import check_words
from isocompute.answers.step_lines import checks, in_full, step_cost, with_checks
from isocompute.answers.steps import plain_rate
from isocompute.answers.target import target_words
from isocompute.answers.tied import open_words
from isocompute.answers.words import (
    NO_GAIN,
    TOO_DEAR,
    best_n_words,
    doubts,
    is_today,
    rate_origin,
    runner_up_words,
    span_words,
    trend_only,
)
from isocompute.domain.text import compact, unit_words
from isocompute.report import words
from isocompute.report.words import Document, interval, score
from isocompute.trainers import with_comments

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit
    from isocompute.report.study_data import StudyView

Section = dict[str, Any]

_FIRST = 3  # things to do before spending
_NOTHING = "No check is needed: run it."
_SOUND = "Nothing in the sweep speaks against this answer."
_ROLLOUT = "A rollout is one sampled answer to a problem."
_THREE = {"n": "rollouts_per_problem", "b_p": "problems_per_batch", "steps": "steps"}


def answer(
    fit: Document | None, plan: Document | None, picture: Section | None = None, cautions: int = 0
) -> Section | None:
    """The first screen: what to run, or what the curves say where there is no plan.

    Args:
        fit: the `fit --json` document of the subject.
        plan: the `plan --json` document.
        picture: `picture` of the subject.
        cautions: how many the page lists.
    """
    document = fit if plan is None else plan
    if document is None:
        return None
    plan = None if plan is None else as_logged(plan)
    refusal = (plan or {}).get("refusal")
    section: Section = {
        "kind": "reading" if plan is None else "refusal" if refusal else "plan",
        "verdict": _verdict(fit or {}, document),
        "about": _about(fit),
        "more": _more(document, cautions - 1),
        "first": _do_first(document),
        "first_head": "Do first" if plan is None or refusal else "To learn more"
        if plan.get("trained") else "Checks before you spend",
        "together": "",
        "strip": None,
        "picture": None if refusal else picture,
        "facts": [],
        "changes": [],
        "recipe": [],
        "trainers": [],
        "rules": [],
    }
    if refusal:
        return section | {
            "headline": "No plan yet",
            # Beside a verdict that says it, the reason would stand there twice.
            "lead": "" if section["verdict"] else str(refusal.get("reason", "")),
        }
    if plan is not None:
        return section | _plan(fit, plan)
    assert fit is not None
    last = words.last_row(fit)
    headline, chosen = "What these curves say", None
    if last is not None:
        chosen = last["tested_rollouts_per_problem"]
        at = f"{compact(last['x'])} {words.budget_unit(fit)}"
        headline = f"Best at {at}: {words.best_of(fit, last)}"
    return section | {
        "headline": headline,
        "lead": f"{words.summary(fit)} {_ROLLOUT}",
        "strip": None if last is None else _strip(fit, last, chosen),
    }


def _plan(fit: Document | None, plan: Document) -> Section:
    n, as_good = plan.get("rollouts_per_problem"), plan.get("as_good") or []
    equals = [str(m) for m in as_good if m != n]
    here = best_n_words(plan).replace("The best n", "At this budget the best n", 1)
    known = "" if plan.get("rollouts_per_problem_interval") is None else f" {here}"
    have, (fell, how) = trained_words(plan, math.inf), fell_words(plan)
    facts = [
        ("Score", _expected(plan)),
        ("Gain", _gain(plan)),
        ("Today", _today(plan)),
        ("n", open_words(plan)),
        ("As good", f"n = {', '.join(equals)}" if equals else ""),
        ("Runner-up", "" if equals else runner_up_words(plan)),
        ("Best", lead_words(plan, math.inf)),
        (fell.capitalize(), how),
        ("Target", target_words(plan)),
        ("For less", less_words(plan)),
        ("Stop if", check_words(plan)),
        ("Learning rate", _learning_rate(plan)),
        ("Other settings", settings_kept(plan)),
        ("Cost", _cost(plan.get("cost") or {}, clock_words(plan))),
        ("Budget", _beyond(plan)),
        ("Data", passes_words(plan) or words.passes(plan.get("passes_over_data"))),
    ]
    return {
        "three": {name: _exact(plan.get(key)) for name, key in _THREE.items()},
        "eyebrow": "What to use: it is trained already" if plan.get("trained") else "What to run",
        "lead": f"{_spent(plan)} rollouts in all. {_ROLLOUT}{known}" + (have and f" {have}."),
        "strip": _strip(fit, plan, n),
        "together": _with_checks(plan),
        "facts": [fact for fact in facts if fact[1]],
        "recipe": _recipe(plan),
        "changes": words.changes(fit, plan),
        "trainers": [
            {"name": str(name), "text": str(settings)}
            for name, settings in with_comments(plan)["trainer"].items()
            if settings
        ],
        "rules": _rules(plan),
    }


def _recipe(plan: Document) -> list[tuple[str, str]]:
    """Words of the recipe with their values; of logs that hold a part of it, that part."""
    known = known_words(plan)
    every = (plan.get("recipe") or {}).items()
    return [(str(k), str(v)) for k, v in every if known is None or k in known]


def page_title(fits: Sequence[tuple[str, Fit]], study: StudyView | None) -> str:
    """Model, data and metric of the subject; for a model that nobody named, its source."""
    if not fits:
        return "How to spend the rollouts" if study is None else study.name
    name, fit = fits[0]
    model = ""
    if study is not None:
        model = str((study.provenance.get("engine_options") or {}).get("model") or "")
        name = study.name
    elif name.startswith("published:"):
        model = PUBLISHED_MODEL
    sets = {curve.problem_set for curve in fit.curves}
    data = sets.pop() if len(sets) == 1 else ""
    parts = (model or PurePath(name).name, data, str(fit.document.get("metric") or "score"))
    return ", ".join(part for part in parts if part)


def _spent(plan: Document) -> str:
    """Rollouts of a plan, beside those of a budget in rollouts where they differ."""
    spent, of = compact(plan.get("rollouts")), compact(plan.get("budget_rollouts"))
    counted = (plan.get("law") or {}).get("unit", "rollouts") == "rollouts"
    return spent if spent == of or not counted else f"{spent} of {of}"


def verdict_of(document: Document) -> Section | None:
    """Level and reason; None where the document has no verdict."""
    said = document.get("verdict")
    if not said:
        return None
    level = str(said.get("level") or "caution")
    return {"level": level, "reason": str(said.get("reason") or (_SOUND if level == "ok" else ""))}


def _verdict(fit: Document, document: Document) -> Section | None:
    """Of the plan; of the fit where that stopped it: the cure stands below, not in the reason."""
    if (fit.get("verdict") or {}).get("level") == "stop":
        return verdict_of(fit)
    return verdict_of(document) or verdict_of(fit)


def _more(document: Document, left: int) -> str:
    """How many cautions stand below beside the one that is named."""
    if (document.get("verdict") or {}).get("level") != "caution" or left < 1:
        return ""
    return f"Read {left} more caution{'s' * (left != 1)} below"


def _about(fit: Document | None) -> str:
    """What was swept: metric, n, B_p, runs."""
    if fit is None:
        return ""
    rows = fit.get("curves") or []
    n = sorted({int(r["rollouts_per_problem"]) for r in rows})
    b_p = sorted({int(r["problems_per_batch"]) for r in rows})
    if not n:
        return ""
    runs = sum(int(r.get("n_runs") or 0) for r in rows)
    reach = max(float(r.get("max_rollouts") or 0) for r in rows)
    return (
        f"{runs} run{'s' * (runs != 1)} of up to {compact(reach)} rollouts: "
        f"{', '.join(map(str, b_p))} problems × n = {span_words(n)}. "
        f"Score: {words.metric(fit.get('metric'))}.{_scale(fit)}"
    )


def _scale(fit: Document) -> str:
    """What scores may be, where that is not 0 to 1; "" where it is."""
    low, high = (fit.get("provenance") or {}).get("score_range") or (0, 1)
    said = f" Scores may be {low:g} to {high:g}, as logged."
    return "" if (low, high) == (0, 1) else said


def _exact(value: int | None) -> str:
    """A count that somebody types into a trainer: every digit."""
    return "–" if value is None else f"{value:,}"


def _do_first(document: Document) -> list[Section]:
    """At most three things to do before spending, with the command where one settles it."""
    steps = document.get("run_next") or (document.get("refusal") or {}).get("run_next") or []
    if document.get("rollouts") and document.get("run_next"):
        steps = checks(document) or [{"do": TOO_DEAR}]
    if not steps:
        steps = [{"do": row["todo"], "why": row["text"]} for row in told(document)
                 if row["level"] != "note" and row["todo"]]  # fmt: skip
    if not steps and (document.get("verdict") or {}).get("level") == "ok":
        steps = [{"do": _NOTHING}]
    reason = str((document.get("verdict") or {}).get("reason"))  # stands above already
    why = {row["code"]: row["text"] for row in told(document) if row["text"] not in reason}
    rows = [one if isinstance(one, Mapping) else {"do": one} for one in steps[:_FIRST]]
    return [
        {
            "do": _sentence(_with_cost(row)),
            "command": str(row.get("command") or ""),
            "why": str(row.get("why") or why.get(str(row.get("settles")), "")),
        }
        for row in rows
    ]


def _with_cost(step: Mapping[str, Any]) -> str:
    # Hours or money: there is no room for tokens, too.
    text, cost = in_full(step), step_cost(step)[:2][-1]
    return f"{text} ({cost})" if cost else text


def _sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "`")) else ".")


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


def _cost(cost: Document, clock: str) -> str:
    known = {**dict.fromkeys(("gpu_hours", "usd", "tokens")), **cost}
    if known["gpu_hours"] is not None:  # of tokens there is no need beside hours and money
        known["tokens"] = None
    parts = [*paid_words(known), *([clock] if clock else [])]
    # Why it is a range stands among the notes: here it would take a second line.
    whose = source_words(cost, trend=False).replace("your runs' times", "measured")
    said = ", ".join(parts) + (f" ({whose})" if whose else "")
    said += "; evaluations are extra" if is_training_alone(cost) else ""
    return said or "not known; give --rollouts-per-gpu-hour"


def _with_checks(plan: Document) -> str:
    """What the run costs together with the steps that stand beside it."""
    return with_checks(plan, checks(plan)[:_FIRST]) if plan.get("run_next") else ""


def _beyond(plan: Document) -> str:
    """How far beyond the sweep the budget is; "" where the verdict says it."""
    told = str((plan.get("verdict") or {}).get("reason")).startswith("All n were compared only")
    return "" if told else words.extrapolation(plan.get("extrapolation_log10"))


def _rules(plan: Document) -> list[tuple[str, str, str, str]]:
    """Rows of what other rules would choose, its score, and what they lost in the back-test."""
    return [
        (
            words.RULES.get(str(name), str(name)).capitalize(),
            f"{row.get('problems_per_batch')} × {row.get('rollouts_per_problem')}",
            _score(plan, row.get("score")),
            _score(plan, row.get("lost")),
        )
        for name, row in (plan.get("rules") or {}).items()
        if isinstance(row, Mapping)
    ]


def _score(plan: Document, value: float | None) -> str:
    return score(value) if value is None else score_text(plan, value)


def _strip(fit: Document | None, row: Document, chosen: float | None) -> Section | None:
    """Positions in per cent, on a log2 axis of n, of the tested n, the interval and the choice."""
    wide = row.get("rollouts_per_problem_interval") or row.get("interval") or [None, None]
    tested = sorted({int(r["rollouts_per_problem"]) for r in (fit or {}).get("curves", [])})
    if not chosen or tested == [chosen]:  # no axis has one place
        return None
    known = [v for v in (*tested, chosen, *wide) if v]
    low = math.floor(math.log2(min(known)) + 1e-9)
    high = max(math.ceil(math.log2(max(known)) - 1e-9), low + 1)

    def place(value: float) -> float:
        return round(4 + 92 * (math.log2(value) - low) / (high - low), 2)

    good = {int(m) for m in row.get("as_good") or []}
    marked = sorted({*tested, *(2**i for i in range(low, high + 1))})
    return {
        "ticks": [
            {"n": m, "at": place(m), "tested": m in tested, "good": m in good} for m in marked
        ],
        "from": place(wide[0]) if wide[0] else 0,
        "to": place(wide[1]) if wide[1] else 100,
        "chosen": place(chosen),
        "label": compact(chosen),
        "any_good": len(good) > 1,
        "bar": f"interval of the {'trend over n' if trend_only(row) else 'best n'}",
    }


def told(document: Document) -> list[Section]:
    """Notices of a document as rows {"code", "level", "text", "todo"}."""
    return [
        {
            "code": str(row.get("code", "")),
            "level": str(row.get("level") or "caution"),
            "text": str(row.get("text") or row.get("message") or ""),
            "todo": str(row.get("remedy") or ""),
        }
        for row in document.get("notices") or document.get("warnings") or []
    ]
