"""What a law is worth, for people: back-test, what was left out, spread, smoothness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.cli.cells import indented, number, table, wrapped
from isocompute.plan.words import compact_number

Row = Mapping[str, Any]


def backtest_lines(test: Row | None) -> list[str]:
    """Errors by cut beside the baselines, the blend, and the law without its largest parts."""
    if not test or test.get("mae_law") is None:
        return ["Back-test: not possible on this sweep."]
    lines = ["Back-test, mean error of scores beyond a cut of the budget:"]
    by_cut = test.get("by_cut", ())
    rows = [(compact_number(r["cut"]), *_errors(r)) for r in by_cut]
    if len(rows) != 1:
        rows.append(("all", *_errors(test)))
    header = ("cut", "values", "law", "best so far", "power law", "blend", "intervals held")
    lines += indented(table(header, rows))
    blend = test.get("blend") or {}
    if blend.get("weight") is not None:
        verdict = "better than both" if blend["better"] else "not better than both"
        lines += wrapped(
            f"Blend of law and best so far, weighted by earlier cuts: {verdict}; weight of the law "
            f"{blend['weight']:.2f} for what lies beyond the data."
        )
    return lines + _left_out_lines(test.get("left_out", ()))


def _errors(row: Row) -> tuple[str, ...]:
    names = ("mae_law", "mae_best_so_far", "mae_power_law", "mae_blend")
    coverage = row.get("coverage")
    return (
        str(row.get("n_held_out", "")),
        *(number(row.get(name), 4) for name in names),
        "?" if coverage is None else f"{coverage:.0%}",
    )


def _left_out_lines(rows: Sequence[Row]) -> list[str]:
    """One line per part left out: n* at the largest budget by each rule, and its cost in score."""
    lines = []
    for row in rows:
        what = (
            f"what lies beyond {compact_number(row['beyond'])}"
            if row["left_out"] == "budget"
            else f"n={row['value']}"
        )
        if row["refused"] is not None:
            lines += wrapped(f"Without {what} no law could be fitted.")
            continue
        said, lost = row["rollouts_per_problem"], row["score_lost"]
        rules = ", ".join(
            f"{name} {number(said[key], 0)} ({number(lost[key])})"
            for name, key in (
                ("law", "law"),
                ("best so far", "best_so_far"),
                ("power law", "power_law"),
            )
        )
        lines += wrapped(
            f"Without {what}, n* at {compact_number(row['at'])} (score lost): {rules}; "
            f"all data say {number(said['full'], 0)}."
        )
    return lines
