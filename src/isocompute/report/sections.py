"""What the page says in words and tables: one plain dictionary per section."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isocompute.domain.text import compact, visible
from isocompute.health import METRICS as HEALTH_METRICS
from isocompute.plan.words import NOTICEABLE_LOG10
from isocompute.report import words
from isocompute.report.advice import todo
from isocompute.report.evidence import fit_tables, progress_tables
from isocompute.report.words import Document, interval, percent, score

if TYPE_CHECKING:
    from isocompute.laws import Fit
    from isocompute.report.study_data import StudyView

Section = dict[str, Any]


def answer(fit: Document | None, plan: Document | None) -> Section | None:
    """The first screen: the prescription, or what the law says where there is no plan."""
    if plan is None:
        return None if fit is None else _reading(fit)
    refusal = plan.get("refusal")
    if refusal:
        return {
            "kind": "refusal",
            "headline": "No prescription: the data cannot carry one.",
            "lead": str(refusal.get("reason", "")),
            "run_next": [str(step) for step in refusal.get("run_next") or []],
            "strip": None,
            "facts": [],
            "changes": [],
            "trainers": [],
        }
    n, b_p, steps = (plan.get(k) for k in _THREE)
    cost = plan.get("cost") or {}
    facts = [
        (
            "Rollouts spent",
            f"{compact(plan.get('rollouts'))} of {compact(plan.get('budget_rollouts'))}",
        ),
        ("Batch", f"{compact(plan.get('batch_size'))} rollouts per update"),
        ("Expected score", _expected(plan)),
        ("Learning rate", _learning_rate(plan)),
        ("Cost", _cost(cost)),
        ("Extrapolation", words.extrapolation(plan.get("extrapolation_log10"))),
    ]
    return {
        "kind": "plan",
        "three": {"n": n, "b_p": b_p, "steps": steps},
        "lead": f"For {compact(plan.get('budget_rollouts'))} rollouts.",
        "interval": interval(plan.get("rollouts_per_problem_interval")),
        "law": words.law_sentence(plan),
        "level": percent((fit or {}).get("level") or 0.95),
        "strip": _strip(fit, plan),
        "facts": [fact for fact in facts if fact[1]],
        "recipe": [(str(k), str(v)) for k, v in (plan.get("recipe") or {}).items()],
        "changes": words.what_would_change(fit, plan),
        "trainers": [
            {"name": str(name), "settings": [(str(k), str(v)) for k, v in settings.items()]}
            for name, settings in (plan.get("trainer") or {}).items()
            if isinstance(settings, Mapping) and settings
        ],
    }


_THREE = ("rollouts_per_problem", "problems_per_batch", "steps")


def _reading(fit: Document) -> Section:
    rows = (fit.get("law") or {}).get("at") or []
    last = rows[-1] if rows else None
    headline = "What these curves say"
    if last is not None:
        n, x = compact(last["rollouts_per_problem"]), compact(last["x"])
        headline = f"n* = {n} at {x} {words.unit_name(fit)}"
    return {
        "kind": "reading",
        "headline": headline,
        "lead": words.summary_of_law(fit),
        "run_next": [],
        "strip": None
        if last is None
        else _strip(
            fit,
            {
                "rollouts_per_problem": last["rollouts_per_problem"],
                "rollouts_per_problem_interval": last.get("interval"),
                "budget_rollouts": last["x"],
            },
        ),
        "facts": [],
        "changes": [],
        "trainers": [],
    }


def _expected(plan: Document) -> str:
    value = plan.get("predicted_score")
    if value is None:
        return "not estimated"
    return f"{score(value)} ({interval(plan.get('predicted_score_interval'), score)})"


def _learning_rate(plan: Document) -> str:
    rate = plan.get("learning_rate")
    return "" if rate is None else f"{rate:.2e}".replace("e-0", "e-")


def _cost(cost: Document) -> str:
    parts = []
    if cost.get("tokens") is not None:
        parts.append(f"{compact(cost['tokens'])} tokens")
    if cost.get("gpu_hours") is not None:
        parts.append(f"{compact(cost['gpu_hours'])} GPU-hours")
    if cost.get("usd") is not None:
        parts.append(f"{compact(cost['usd'])} USD")
    return ", ".join(parts) or "rollouts only; no rates were given for tokens, hours or money"


def _strip(fit: Document | None, plan: Document) -> Section | None:
    """Positions in per cent, on a log2 axis of n, of the tested n, the interval and the choice."""
    chosen = plan.get("rollouts_per_problem")
    if not chosen:
        return None
    wide = plan.get("rollouts_per_problem_interval") or [None, None]
    tested = sorted({int(row["rollouts_per_problem"]) for row in (fit or {}).get("curves", [])})
    known = [v for v in (*tested, chosen, *wide) if v]
    low = math.floor(math.log2(min(known)) + 1e-9)
    high = max(math.ceil(math.log2(max(known)) - 1e-9), low + 1)

    def place(value: float) -> float:
        return round(4 + 92 * (math.log2(value) - low) / (high - low), 2)

    row = words.law_at(fit, float(plan.get("budget_rollouts") or 0)) if fit else None
    sure = plan.get("confidence_set") or (row or {}).get("confidence_set") or []
    allowed = {int(m) for m in sure}
    outside = float(plan.get("extrapolation_log10") or 0.0) >= NOTICEABLE_LOG10
    return {
        "ticks": [
            {"n": 2**i, "at": place(2**i), "tested": 2**i in tested, "allowed": 2**i in allowed}
            for i in range(low, high + 1)
        ],
        "from": place(wide[0]) if wide[0] else 0,
        "to": place(wide[1]) if wide[1] else 100,
        "chosen": place(chosen),
        "label": compact(chosen),
        "any_allowed": bool(allowed),
        "allowed_where": "where all n were last compared" if outside else "given the data",
    }


def fit_section(name: str, fit: Fit) -> Section:
    """Sentences and tables of one fit."""
    document = fit.document
    return {
        "name": visible(name),
        "setting": words.setting_name(document),
        "metric": str(document.get("metric") or "score"),
        "unit": words.unit_name(document),
        "summary": words.summary_of_law(document),
        "backtest": words.backtest_sentence(document),
        "backtest_caption": "Prediction minus what was observed; filled marks are the predictions "
        "with their intervals, hollow marks the best so far. Nearer to zero is better."
        if (document.get("backtest") or {}).get("rows")
        else "Mean absolute error in score; shorter is better.",
        "level": percent(document.get("level") or 0.95),
        "curves": [_curve_row(row) for row in document.get("curves", [])],
        "frontier": [_frontier_row(row) for row in document.get("frontier", [])],
        "at": _sample((document.get("law") or {}).get("at") or [], 9),
        "has_law": bool((document.get("law") or {}).get("form")),
        "sensitivity": _sensitivity_rows(document.get("sensitivity") or []),
        "tables": fit_tables(document),
        "has_law_bp": bool((document.get("law_problems_per_batch") or {}).get("at")),
        "flags": [str(f) for f in (document.get("law") or {}).get("flags") or []],
    }


def _sensitivity_rows(rows: Sequence[Document]) -> list[Section]:
    """A later start of the curves leaves out the smallest budgets: dashes stand for them."""
    most = max((len(row.get("x") or []) for row in rows), default=0)
    out = []
    for row in rows:
        said = [compact(n) for n in row.get("rollouts_per_problem") or []]
        out.append(
            {
                "rule": str(row.get("rule", "")),
                "n": ", ".join([*["–"] * (most - len(said)), *said] if said else []),
                "refused": str(row.get("refused") or ""),
            }
        )
    return out


def _curve_row(row: Document) -> Section:
    return {
        "b_p": row["problems_per_batch"],
        "n": row["rollouts_per_problem"],
        "runs": row.get("n_runs"),
        "points": row.get("n_points"),
        "records": row.get("n_records"),
        "smooth": "–" if row.get("smoothness") is None else f"{row['smoothness']:.2f}",
        "ceiling": score(row.get("ceiling")),
        "interval": interval(row.get("ceiling_interval"), score)
        if row.get("ceiling_interval")
        else "not bounded",
        "flags": ", ".join(str(f) for f in row.get("flags") or []),
    }


def _frontier_row(row: Document) -> Section:
    return {
        "from": compact(row["from"]),
        "to": compact(row["to"]),
        "b_p": row["problems_per_batch"],
        "n": row["rollouts_per_problem"],
        "score": f"{score(row.get('score_from'))} to {score(row.get('score_to'))}",
        "probability": percent(row.get("probability_best")),
        "extrapolated": bool(row.get("extrapolated")),
    }


def _sample(rows: Sequence[Document], most: int) -> list[Section]:
    if len(rows) > most:
        step = (len(rows) - 1) / (most - 1)
        rows = [rows[round(i * step)] for i in range(most)]
    return [
        {
            "x": compact(row["x"]),
            "n": compact(row.get("rollouts_per_problem")),
            "interval": interval(row.get("interval")),
            "set": ", ".join(str(m) for m in row.get("confidence_set") or []) or "–",
            "regret": score(row.get("expected_regret")),
        }
        for row in rows
    ]


def warnings(
    fits: Sequence[tuple[str, Fit]], plan: Document | None, study: StudyView | None
) -> list[Section]:
    """Warnings by code: what to do, and every message once with where it comes from."""
    origins = [(name, fit.document.get("warnings") or []) for name, fit in fits]
    if plan is not None:
        origins.insert(0, ("plan", plan.get("warnings") or []))
    if study is not None:
        origins.append((study.name, list(study.warnings)))
    codes: dict[str, dict[str, list[str]]] = {}
    for origin, given in origins:
        for warning in given:
            messages = codes.setdefault(str(warning.get("code", "")), {})
            found = messages.setdefault(str(warning.get("message", "")), [])
            if origin not in found:
                found.append(origin)
    return [
        {
            "code": code,
            "todo": todo(code),
            "messages": [
                {"text": text, "from": ", ".join(found)} for text, found in messages.items()
            ],
        }
        for code, messages in codes.items()
    ]


def provenance(fits: Sequence[tuple[str, Fit]], study: StudyView | None) -> list[Section]:
    """Versions, hashes, seeds and commands, as rows of key and value, without secrets."""
    groups = [(name, fit.document.get("provenance") or {}) for name, fit in fits]
    if study is not None and study.provenance:
        groups.append((study.name, study.provenance))
    return [
        {"name": name, "rows": _flatten(words.redact(values))} for name, values in groups if values
    ]


def _flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [
            row
            for key, item in value.items()
            for row in _flatten(item, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list | tuple):
        return [(prefix, ", ".join(str(item) for item in value))]
    return [(prefix, "–" if value is None else str(value))]


def study_section(study: StudyView | None) -> Section | None:
    """Which figures the study can feed, and its accounting."""
    if study is None:
        return None
    return {
        "name": study.name,
        "problem_set": study.problem_set,
        "runs": [
            {
                "run": run.get("run"),
                "b_p": run.get("problems_per_batch"),
                "n": run.get("rollouts_per_problem"),
                "seed": "–" if run.get("seed") is None else run.get("seed"),
                "state": run.get("state") or "–",
                "rollouts": compact(run.get("rollouts")),
                "evaluation": compact(run.get("evaluation_rollouts")),
                "wasted": compact(run.get("wasted_rollouts")),
                "tokens": compact(run.get("tokens")),
                "wall": _duration(run.get("wall_s")),
            }
            for run in study.runs
        ],
        "spent": _spent(study),
        "run_time": _duration(_account(study).get("wall_s")),
        "health": [{"name": name, "meaning": _meaning(name)} for name in study.health],
        "has_landscapes": bool(study.landscapes),
        "has_scores": bool(study.scores),
        "scores_at": compact(study.scores_at),
        "has_train_test": bool(study.train_test),
        "tables": progress_tables(study.interference),
        "difficulty": None
        if study.difficulty is None
        else {
            "name": study.difficulty.get("name"),
            "samples": study.difficulty.get("samples"),
            "problems": compact(sum(study.difficulty.get("counts") or [])),
        },
    }


def _meaning(name: str) -> str:
    unit, meaning = HEALTH_METRICS.get(name, ("", ""))
    return f"{meaning[:1].upper()}{meaning[1:]}{f' ({unit})' if unit else ''}"


def _account(study: StudyView) -> Mapping[str, Any]:
    if study.accounting:
        return study.accounting
    keys = ("rollouts", "tokens", "evaluation_rollouts", "wasted_rollouts", "wall_s")
    return {key: sum(float(run.get(key) or 0) for run in study.runs) for key in keys}


def _spent(study: StudyView) -> list[tuple[str, str, str]]:
    """Rows of (what for, rollouts, tokens); training is what C counts, the rest stands apart."""
    account = _account(study)
    rows = [("Training (C)", account.get("rollouts"), account.get("tokens"))]
    for what, prefix in (
        ("Evaluation", "evaluation"),
        ("Training, lost to crashes", "wasted"),
        ("Evaluation, lost to crashes", "wasted_evaluation"),
    ):
        rows.append((what, account.get(f"{prefix}_rollouts"), account.get(f"{prefix}_tokens")))
    for purpose, amounts in (account.get("other") or {}).items():
        rows.append((str(purpose).capitalize(), amounts.get("rollouts"), amounts.get("tokens")))
    return [(what, compact(drawn), compact(tokens)) for what, drawn, tokens in rows if drawn]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
