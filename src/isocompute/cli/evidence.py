"""Evidence as text: back-test, spread of scores, train-test gap, interference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.answers.logged import digits_of
from isocompute.cli.cells import indented, number, span, table, wrapped
from isocompute.domain.text import compact
from isocompute.report.words import RULES

Row = Mapping[str, Any]


def backtest_lines(document: Row) -> list[str]:
    """What the model said of what it was not shown, and what other rules would have lost."""
    test, digits = document["backtest"], digits_of(document)
    if test["mae_model"] is None:
        return ["Back-test: not possible on this sweep."]
    cuts = " and ".join(compact(cut) for cut in test["cuts"])
    skill = "" if test["skill"] is None else f" (skill {test['skill']:.2f})"
    widened = "not widened"
    if test["widened_by"] > 1.005:
        widened = f"widened {test['widened_by']:.2f} times"
    lines = [f"Back-test, fitted to the evaluations before {cuts} rollouts:"]
    lines += wrapped(
        f"It misses {test['n_held_out']} later scores by {number(test['mae_model'], digits + 1)} "
        "on average; to assume no further change misses them by "
        f"{number(test['mae_best_so_far'], digits + 1)}{skill}; "
        f"{test['coverage']:.0%} lie inside their intervals. Intervals beyond the data are "
        f"{widened}."
    )
    rules = ", ".join(
        f"{RULES.get(name, name)} {number(lost, digits)}" for name, lost in test["rules"].items()
    )
    if len({c["rollouts_per_problem"] for c in document["curves"]}) == 1:
        return lines  # there was nothing to choose
    return lines + wrapped(f"Score lost at the end by choosing n at the cut: {rules}.")


def spread_lines(document: Row) -> list[str]:
    """How far the score moves with B_p at a fixed n, and with n at a fixed B_p."""
    spread = document.get("spread") or {}
    if not spread.get("problems_per_batch"):
        return []  # one B_p: the frontier says it all
    names = {"problems_per_batch": "B_p", "rollouts_per_problem": "n"}
    rows, digits = [], digits_of(document)
    for varied, fixed in (tuple(names), tuple(reversed(names))):
        for row in spread[varied]:
            scores = row["scores"]
            best = max(scores, key=lambda s: s["score"])
            rows.append(
                (
                    f"{names[varied]} {', '.join(str(s[varied]) for s in scores)}",
                    f"{names[fixed]}={row[fixed]}",
                    compact(row["at"]),
                    number(row["spread"], digits),
                    span(row["interval"], digits),
                    number(row["noise"], digits),
                    f"{names[varied]}={best[varied]}",
                )
            )
    header = ("varied", "at", "budget", "spread", "interval", "noise alone", "best")
    return [
        "",
        "Spread of the best score (largest minus smallest):",
        *indented(table(header, rows, left=0)),
    ]


def best_n_lines(rows: Sequence[Row], digits: int) -> list[str]:
    """The best n at the largest budget, one row per metric and B_p."""
    if not rows:
        return []
    cells = [
        (
            row["metric"],
            str(row["problems_per_batch"]),
            compact(row["at"]),
            str(row["rollouts_per_problem"]),
            number(row["score"], digits),
            f"{row['probability']:.0%}",
            ", ".join(map(str, row["confidence_set"])),
        )
        for row in rows
    ]
    header = ("metric", "B_p", "budget", "n", "score", "best with", "still in contention")
    return ["", "Best n at the largest budget:", *indented(table(header, cells, left=1))]


def gap_lines(rows: Sequence[Row], digits: int) -> list[str]:
    """Train minus validation per configuration, and what validation lost since its best."""
    if not rows:
        return []
    cells = [
        (
            str(row["problems_per_batch"]),
            str(row["rollouts_per_problem"]),
            number(row["gap_at_peak"], digits),
            number(row["gap"], digits),
            compact(row["from"]),
            number(row["validation_lost"], digits),
            number(row["train_gained"], digits),
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


def group_lines(curves: Sequence[Mapping[str, Any]]) -> list[str]:
    """What groups were like at the end of the runs, by n, where logs say it."""
    said = [(c, c["groups"]) for c in curves if c.get("groups")]
    several = len({c["problems_per_batch"] for c in curves}) > 1

    def each(*names: str) -> str:
        found = []
        for c, groups in said:
            if all(groups.get(name) is not None for name in names):
                batch = f"{c['problems_per_batch']} x " if several else ""
                shares = ", ".join(f"{groups[name]:.0%}" for name in names)
                found.append(f"{batch}{c['rollouts_per_problem']}: {shares}")
        return "; ".join(found)

    lines = []
    what = "B_p x n" if several else "n"
    if teach := each("teach"):
        lines.append(f"Groups that teach at the end (their rewards differ), by {what}: {teach}.")
    if both := each("all_right", "all_wrong"):
        most = max(groups["samples"] for _, groups in said if groups.get("samples"))
        lines.append(f"Validation problems at the end that all answers solve, and none, of n or "
                     f"{most:.0f}, by {what}: {both}.")  # fmt: skip
    return [line for one in lines for line in ("", *wrapped(one, indent=""))]
