"""What the page says in words and tables: one plain dictionary per section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isocompute.answers.logged import as_logged
from isocompute.answers.plan import OF_ITS_END
from isocompute.domain.text import compact, visible
from isocompute.health import METRICS as HEALTH_METRICS
from isocompute.health.advice import OF_RUNS
from isocompute.report import words
from isocompute.report.before import told
from isocompute.report.evidence import Say, fit_tables, progress_tables
from isocompute.report.figures import FIGURES
from isocompute.report.first_screen import verdict_of
from isocompute.report.words import Document, interval, percent, scores_of
from isocompute.study.cost import duration

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit
    from isocompute.report.study_data import StudyView
    from isocompute.study.adaptive import Look

Section = dict[str, Any]

_LEVELS = ("stop", "caution", "note")


def fit_section(name: str, fit: Fit, plan: Document | None = None) -> Section:
    """Sentences, figures and tables of one fit, as far as the budget of a plan with it."""
    document = as_logged(fit.document)
    score = scores_of(document)
    return {
        "name": visible(name),
        "setting": words.setting_name(document),
        "metric": str(document.get("metric") or "score"),
        "unit": words.budget_unit(document),
        "verdict": verdict_of(document),
        "summary": words.summary(document),
        "level": percent(document.get("level") or 0.95),
        "figures": [
            {
                "kind": one.kind,
                "title": one.title,
                "says": one.says(document, plan),
                "marks": one.marks,
            }
            for one in FIGURES
            if one.on_page and one.there(document)
        ],
        "printed": words.printed_sentences(document),
        "curves": [_curve_row(row, score) for row in document.get("curves", [])],
        "frontier": [_frontier_row(row, score) for row in document.get("frontier", [])],
        "tables": fit_tables(document),
        "notices": told(document),
    }


def _curve_row(row: Document, score: Say) -> Section:
    return {
        "b_p": row["problems_per_batch"],
        "n": row["rollouts_per_problem"],
        "runs": row.get("n_runs"),
        "points": row.get("n_points"),
        "state": str(row.get("state") or "–"),
        "ceiling": score(row.get("ceiling")),
        "interval": interval(row.get("ceiling_interval"), score),
    }


def _frontier_row(row: Document, score: Say) -> Section:
    return {
        "from": compact(row["from"]),
        "to": compact(row["to"]),
        "b_p": row["problems_per_batch"],
        "n": row["rollouts_per_problem"],
        "score": f"{score(row.get('score_from'))} to {score(row.get('score_to'))}",
        "probability": words.chance(row.get("probability_best")),
        "extrapolated": bool(row.get("extrapolated")),
    }


def notices(
    fits: Sequence[tuple[str, Fit]], plan: Document | None, study: StudyView | None
) -> list[Section]:
    """What limits the subject: groups {"level", "rows"}, the gravest first.

    A row is {"code", "level", "texts", "todo"}: what the runs of a study say by one code, with one
    remedy, stands together. What limits the fits beside the subject stands with them.
    """
    rows = told(plan) if plan is not None else []
    of_fit = told(fits[0][1].document) if fits else []
    # An answer says for its budget what a fit says for its own, and at its own price.
    answered = plan is not None and not plan.get("refusal")
    said = {*OF_ITS_END, *(row["code"] for row in rows)} if answered else set()
    rows += [row for row in of_fit if row["code"] not in said]
    for warning in study.warnings if study is not None else ():
        code, text = str(warning.get("code", "")), str(warning.get("message", ""))
        rows.append({"code": code, "level": "caution", "text": text, "todo": OF_RUNS.get(code, "")})
    by_code: dict[tuple[str, ...], Section] = {}
    for row in rows:
        key = row["level"], row["code"], row["todo"]
        found = by_code.setdefault(key, row | {"texts": []})
        if row["text"] not in found["texts"]:
            found["texts"].append(row["text"])
    return [
        {"level": level, "rows": mine}
        for level in _LEVELS
        if (mine := [row for (of, *_), row in by_code.items() if of == level])
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
        "looks": [_look_row(look) for look in study.looks],
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


def _loss(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _look_row(look: Look) -> Section:
    """What one look of an adaptive study saw and decided."""
    numbers = look.of_sweep.numbers
    by_action: dict[str, list[str]] = {}
    for c, d in look.of_configurations.items():
        what = f"{c.rollouts_per_problem}" + (
            f" ({len(d.rollouts)} seeds)" if len(d.rollouts) > 1 else ""
        )
        by_action.setdefault(d.action, []).append(what)
    return {
        "number": look.number,
        "spent": compact(numbers.get("spent")),
        "at_target": _loss(numbers.get("loss_at_target")),
        "on_path": _loss(numbers.get("loss_on_path")),
        "decided": ("the sweep ends; " if look.has_ended else "")
        + "; ".join(f"{action} n = {', '.join(n)}" for action, n in by_action.items()),
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
    return "–" if seconds is None else duration(seconds)
