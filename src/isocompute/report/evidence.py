"""Tables of what a law is worth: back-test by cut and by part left out, spread, gap, progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.domain.text import compact
from isocompute.report.words import Document, interval, percent, score

Table = dict[str, Any]

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
        document: the `fit --json` document.
    """
    test = document.get("backtest") or {}
    spread = document.get("spread") or {}
    found = [
        _table(
            "Back-test by cut: mean error of scores beyond it",
            ("Cut", "Held out", "Law", "Best so far", "Power law", "Blend", "Intervals held"),
            [_cut_row(row) for row in test.get("by_cut") or []],
        ),
        _table(
            "What the law says without its largest budget, or its largest n",
            ("Left out", "At", "All data", "Law", "Best so far", "Power law"),
            [_left_out_row(row) for row in test.get("left_out") or []],
            "In brackets: score lost by that n.",
        ),
        _table(
            "Spread of the best score with Bₚ and with n",
            ("Varied", "Held", "Budget", "Largest minus smallest", "Interval", "Noise alone"),
            [*_spread_rows(spread, "problems_per_batch", "rollouts_per_problem"),
             *_spread_rows(spread, "rollouts_per_problem", "problems_per_batch")]
            if spread.get("problems_per_batch") else [],
        ),
        _table(
            "Train minus validation, success per rollout",
            ("n", "Bₚ", "Gap at the best", "Gap now", "Best at", "Validation lost", "Verdict"),
            [_gap_row(row) for row in document.get("train_test") or []],
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


def _cut_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("mae_law", "mae_best_so_far", "mae_power_law", "mae_blend")
    errors = ("–" if row.get(n) is None else f"{row[n]:.4f}" for n in names)
    return compact(row["cut"]), compact(row["n_held_out"]), *errors, percent(row.get("coverage"))


def _left_out_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    what = f"budgets above {compact(row.get('beyond'))}"
    if row["left_out"] != "budget":
        what = f"n = {row.get('value')}"
    if row.get("refused") is not None:
        return what, "no law could be fitted", "", "", "", ""
    said, lost = row["rollouts_per_problem"], row["score_lost"]
    rules = (
        f"{compact(said.get(key))} ({score(lost.get(key))})"
        for key in ("law", "best_so_far", "power_law")
    )
    return what, compact(row.get("at")), compact(said.get("full")), *rules


def _spread_rows(spread: Mapping[str, Any], varied: str, fixed: str) -> list[tuple[str, ...]]:
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


def _gap_row(row: Mapping[str, Any]) -> tuple[str, ...]:
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
