"""What a law is worth, for people: back-test, what was left out, spread, smoothness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.cli.cells import indented, number, span, table, wrapped
from isocompute.domain.text import compact

Row = Mapping[str, Any]


def backtest_lines(test: Row | None) -> list[str]:
    """Errors by cut beside the baselines, the blend, and the law without its largest parts."""
    if not test or test.get("mae_law") is None:
        return ["Back-test: not possible on this sweep."]
    lines = ["Back-test, mean error of scores beyond a cut of the budget:"]
    by_cut = test.get("by_cut", ())
    rows = [(compact(r["cut"]), *_errors(r)) for r in by_cut]
    if len(rows) != 1:
        rows.append(("all", *_errors(test)))
    header = ("cut", "values", "law", "best so far", "power law", "blend", "skill",
              "intervals held")  # fmt: skip
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
        number(row.get("skill"), 2),
        "?" if coverage is None else f"{coverage:.0%}",
    )


def _left_out_lines(rows: Sequence[Row]) -> list[str]:
    """One line per part left out: n* at the largest budget by each rule, and its cost in score."""
    lines = []
    for row in rows:
        what = (
            f"what lies beyond {compact(row['beyond'])}"
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
            f"Without {what}, n* at {compact(row['at'])} (score lost): {rules}; "
            f"all data say {number(said['full'], 0)}."
        )
    return lines


def spread_lines(document: Row) -> list[str]:
    """How far the score moves with B_p at a fixed n, and with n at a fixed B_p."""
    spread = document.get("spread") or {}
    if not spread.get("problems_per_batch"):
        return []  # one B_p: the frontier says it all
    names = {"problems_per_batch": "B_p", "rollouts_per_problem": "n"}
    rows = []
    for varied, fixed in (tuple(names), tuple(reversed(names))):
        for row in spread[varied]:
            scores = row["scores"]
            best = max(scores, key=lambda s: s["score"])
            rows.append(
                (
                    f"{names[varied]} {', '.join(str(s[varied]) for s in scores)}",
                    f"{names[fixed]}={row[fixed]}",
                    compact(row["at"]),
                    number(row["spread"]),
                    span(row["interval"]),
                    number(row["noise"]),
                    f"{names[varied]}={best[varied]}",
                )
            )
    header = ("varied", "at", "budget", "spread", "interval", "noise alone", "best")
    return [
        "",
        "Spread of the best score (largest minus smallest):",
        *indented(table(header, rows, left=0)),
    ]


def best_n_lines(rows: Sequence[Row]) -> list[str]:
    """The best n at the largest budget, one row per metric and B_p."""
    if not rows:
        return []
    cells = [
        (
            row["metric"],
            str(row["problems_per_batch"]),
            compact(row["at"]),
            str(row["rollouts_per_problem"]),
            number(row["score"]),
            f"{row['probability']:.0%}",
            ", ".join(map(str, row["confidence_set"])),
        )
        for row in rows
    ]
    header = ("metric", "B_p", "budget", "n", "score", "best with", "cannot be told from it")
    return ["", "Best n at the largest budget:", *indented(table(header, cells, left=1))]


def gap_lines(rows: Sequence[Row]) -> list[str]:
    """Train minus validation per configuration, and what validation lost since its best."""
    if not rows:
        return []
    cells = [
        (
            str(row["problems_per_batch"]),
            str(row["rollouts_per_problem"]),
            number(row["gap_at_peak"]),
            number(row["gap"]),
            compact(row["from"]),
            number(row["validation_lost"]),
            number(row["train_gained"]),
            "overfits" if row["overfits"] else "",
        )
        for row in rows
    ]
    header = ("B_p", "n", "gap at best", "gap", "best at", "validation lost", "train gained", "")
    return ["", "Train minus validation, success per rollout:", *indented(table(header, cells, 1))]


def interference_lines(document: Row) -> list[str]:
    """How progress spreads over problems, one row per configuration, and large against small n."""
    names = {
        "score": "pass@1",
        "never": "never",
        "always": "always",
        "interference": "interference",
        "rich_get_richer": "rich get richer",
        "uniform_progress": "uniform",
    }
    rows = [
        (
            str(group["problems_per_batch"]),
            str(group["rollouts_per_problem"]),
            str(group["n_runs"]),
            *(f"{number(group[k]['value'])} {span(group[k]['interval'], 2)}" for k in names),
        )
        for group in document["groups"]
    ]
    header = ("B_p", "n", "runs", *names.values())
    lines = [
        f"Progress over the problems of {document['problem_set']} since step 0, at "
        f"{compact(document['at'])} rollouts:",
        *indented(table(header, rows)),
    ]
    for row in document["differences"]:
        parts = ", ".join(
            f"{label} {row[k]['value']:+.3f} {span(row[k]['interval'], 2)}"
            for k, label in names.items()
            if row[k]["value"] is not None
        )
        lines += wrapped(
            f"n={row['to']} minus n={row['from']} at B_p={row['problems_per_batch']}: {parts}."
        )
    rows = [
        (
            compact(row["rollouts"]),
            str(row["problems_per_batch"]),
            str(row["rollouts_per_problem"]),
            *(number(row[k]) for k in (*names, "near_one")),
            _bars(row["share"]),
        )
        for row in document["over_training"]
    ]
    header = ("rollouts", "B_p", "n", *names.values(), "near 1", "0, between, 1")
    return [*lines, "Over training, at equal compute:", *indented(table(header, rows))]


def _bars(share: Sequence[float]) -> str:
    """A histogram in one line: exactly 0, the open interval, exactly 1; the fullest bin is high."""
    top = max(share)
    bars = "".join("·▁▂▃▄▅▆▇█"[math.ceil(8 * s / top)] for s in share)
    return f"{bars[0]} {bars[1:-1]} {bars[-1]}"
