"""The first screen: what to run, how far to trust it, what it costs, what to do first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from isocompute.answers.around import PUBLISHED_MODEL, known_words
from isocompute.answers.broke import trained_words
from isocompute.answers.logged import as_logged, score_text
from isocompute.answers.words import best_n_words, span_words
from isocompute.domain.text import compact
from isocompute.report import words
from isocompute.report.before import before
from isocompute.report.facts import facts_of
from isocompute.report.words import Document, score
from isocompute.trainers import with_comments

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit
    from isocompute.report.study_data import StudyView

Section = dict[str, Any]

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
        **before(document if plan is None else plan, plan=plan is not None and not refusal),
        "strip": None,
        "picture": None if refusal else picture,
        "facts": [],
        "changes": [],
        "recipe": [],
        "trainers": [],
        "rules": None,
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
    n = plan.get("rollouts_per_problem")
    here = best_n_words(plan).replace("The best n", "At this budget the best n", 1)
    known = "" if plan.get("rollouts_per_problem_interval") is None else f" {here}"
    have = trained_words(plan, math.inf)
    return {
        "three": {name: _exact(plan.get(key)) for name, key in _THREE.items()},
        "eyebrow": "What to use: it is trained already" if plan.get("trained") else "What to run",
        "lead": f"{_spent(plan)} rollouts in all. {_ROLLOUT}{known}" + (have and f" {have}."),
        "strip": _strip(fit, plan, n),
        "facts": facts_of(fit, plan),
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


def _rules(plan: Document) -> Section | None:
    """What other rules would choose, and its score; what they lost in a back-test of such budgets.

    That is by rollouts: beside a plan by another unit it is the answer to another question.
    """
    rows = {k: row for k, row in (plan.get("rules") or {}).items() if isinstance(row, Mapping)}
    tested = (plan.get("law") or {}).get("unit", "rollouts") == "rollouts"
    return None if not rows else {
        "head": ["Rule", "Bₚ × n", "Score", *(["Lost in the back-test"] if tested else [])],
        "rows": [
            (
                words.RULES.get(str(name), str(name)).capitalize(),
                f"{row.get('problems_per_batch')} × {row.get('rollouts_per_problem')}",
                _score(plan, row.get("score")),
                *([_score(plan, row.get("lost"))] if tested else []),
            )
            for name, row in rows.items()
        ],
    }


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
    apart = None not in wide and not round(wide[0]) <= chosen <= round(wide[1])
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
        "bar": f"interval of the {'trend over n' if apart else 'best n'}",
    }
