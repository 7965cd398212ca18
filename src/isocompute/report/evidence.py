"""Tables of a fit: best n by budget, simple rules, spread, pairs of equal batch, gap, progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isocompute.answers.best import AS_GOOD
from isocompute.answers.logged import span_of
from isocompute.domain.text import compact
from isocompute.report.words import (
    RULES,
    Document,
    budget_unit,
    chance,
    interval,
    score,
    scores_of,
)

Table = dict[str, Any]
Say = Callable[[float | None], str]  # a score, in words

_INDICES = {
    "score": "pass@1",
    "never": "never solved",
    "always": "always solved",
    "interference": "interference",
    "rich_get_richer": "rich get richer",
    "uniform_progress": "uniform progress",
}


def fit_tables(document: Document) -> list[Table]:
    """Tables of one fit, each {"caption", "head", "rows", "note"}; those without rows are left out.

    Args:
        document: the `fit --json` document, its scores as they were logged.
    """
    spread, unit, say = document.get("spread") or {}, budget_unit(document), scores_of(document)
    batches = (document.get("direction") or {}).get("equal_batch") or []
    found = [
        _table(
            "Best n by budget",
            (unit[:1].upper() + unit[1:], "Best n", "Interval", "Still in contention", "As good",
             "Chosen", "Score"),
            [_best_row(row, say) for row in _sample(document.get("best") or [], 9)],
            "Interval: of the best n. As good: expected loss below "
            f"{AS_GOOD * span_of(document):g} against the chosen pair.",
        ),
        _table(
            "What other rules would have lost in the back-test",
            ("Rule", "Score lost at the end"),
            [(RULES.get(name, name).capitalize(), say(lost))
             for name, lost in ((document.get("backtest") or {}).get("rules") or {}).items()],
            "Each chooses at the cut; the choice is judged at the largest budget in rollouts.",
        ),
        _table(
            "Spread of the best score with Bₚ and with n",
            ("Varied", "Held", "Budget", "Largest minus smallest", "Interval", "Noise alone"),
            [*_spread_rows(spread, "problems_per_batch", "rollouts_per_problem", say),
             *_spread_rows(spread, "rollouts_per_problem", "problems_per_batch", say)]
            if spread.get("problems_per_batch") else [],
        ),
        _table(
            "Pairs of equal batch",
            ("Batch", "Budget", "Best pair, Bₚ × n", "Its score", "P(best)", "Other pairs"),
            [_batch_row(row, say) for row in batches],
        ),
        _table(
            "Train minus validation, success per rollout",
            ("n", "Bₚ", "Gap at the best", "Gap now", f"Best at, {unit}", "Validation lost",
             "Verdict"),
            [_gap_row(row, say) for row in document.get("train_test") or []],
        ),
    ]  # fmt: skip
    return [table for table in found if table["rows"]]


def progress_tables(document: Document | None) -> list[Table]:
    """How progress spreads over problems, per configuration and between small and large n.

    Args:
        document: of `interference.study_interference`, or None.
    """
    if document is None:
        return []
    groups = [
        (str(g["rollouts_per_problem"]), str(g["problems_per_batch"]), str(g["n_runs"]),
         *(_index(g[name], signed=False) for name in _INDICES))
        for g in document["groups"]
    ]  # fmt: skip
    differences = [
        (f"n = {d['to']} minus {d['from']}", str(d["problems_per_batch"]), "",
         *(_index(d[name], signed=True) for name in _INDICES))
        for d in document.get("differences") or []
    ]  # fmt: skip
    caption = f"How progress spreads over problems, at {compact(document['at'])} rollouts"
    head = ("n", "Bₚ", "Runs", *(name.capitalize() for name in _INDICES.values()))
    note = (
        "Against step 0. Interference: share of the changes that are losses; rich get richer: "
        "change of polarisation; uniform progress: 1 where every problem gains alike."
    )
    table = _table(caption, head, [*groups, *differences], note)
    return [table] if table["rows"] else []


def _table(caption: str, head: Sequence[str], rows: Sequence[Any], note: str = "") -> Table:
    return {"caption": caption, "head": list(head), "rows": [list(r) for r in rows], "note": note}


def _sample(rows: Sequence[Document], most: int) -> list[Document]:
    if len(rows) <= most:
        return list(rows)
    step = (len(rows) - 1) / (most - 1)
    return [rows[round(i * step)] for i in range(most)]


def _best_row(row: Document, score: Say) -> tuple[str, ...]:
    beyond = " (extrapolated)" if row.get("extrapolated") else ""
    return (
        f"{compact(row['x'])}{beyond}",
        compact(row.get("rollouts_per_problem")),
        interval(row.get("interval")),
        _listed(row.get("confidence_set")),
        _listed(row.get("as_good")),
        f"{row['problems_per_batch']} × {row['tested_rollouts_per_problem']}",
        f"{score(row.get('score'))} ({interval(row.get('score_interval'), score)})",
    )


def _listed(values: Sequence[int] | None) -> str:
    return ", ".join(str(n) for n in values or []) or "–"


def _batch_row(row: Document, score: Say) -> tuple[str, ...]:
    def name(one: Document) -> str:
        return f"{one['problems_per_batch']} × {one['rollouts_per_problem']}"

    best = max(row["scores"], key=lambda one: one["score"])
    others = (f"{name(one)}: {score(one['score'])}" for one in row["scores"] if one is not best)
    return (
        compact(row["batch_size"]),
        compact(row["at"]),
        name(best),
        f"{score(best['score'])} ({interval(best['interval'], score)})",
        chance(best["probability_best"]),
        ", ".join(others),
    )


def _spread_rows(
    spread: Mapping[str, Any], varied: str, fixed: str, score: Say
) -> list[tuple[str, ...]]:
    names = {"problems_per_batch": "Bₚ", "rollouts_per_problem": "n"}
    return [
        (
            f"{names[varied]}: {', '.join(str(s[varied]) for s in row['scores'])}",
            f"{names[fixed]} = {row[fixed]}",
            compact(row["at"]),
            score(row["spread"]),
            interval(row["interval"], score),
            score(row["noise"]),
        )
        for row in spread.get(varied) or []
    ]


def _gap_row(row: Mapping[str, Any], score: Say) -> tuple[str, ...]:
    return (
        str(row["rollouts_per_problem"]),
        str(row["problems_per_batch"]),
        score(row.get("gap_at_peak")),
        score(row.get("gap")),
        compact(row.get("from")),
        score(row.get("validation_lost")),
        "overfits" if row.get("overfits") else "no overfitting seen",
    )


def _index(found: Mapping[str, Any], *, signed: bool) -> str:
    value, wide = found.get("value"), found.get("interval")
    if value is None:
        return "–"
    text = f"{value:+.3f}" if signed else score(value)
    if not wide or None in wide:
        return text
    if signed:
        return f"{text} ({wide[0]:+.2f} to {wide[1]:+.2f})"
    return f"{text} ({wide[0]:.2f}–{wide[1]:.2f})"
