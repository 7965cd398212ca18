"""`fit --full`: curves, frontier, law, back-test, the published method, every note."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from isocompute.answers.logged import as_logged, digits_of, score_text
from isocompute.answers.step_lines import note_lines
from isocompute.answers.words import n_words
from isocompute.cli.cells import indented, number, span, table, wrapped
from isocompute.cli.evidence import (
    backtest_lines,
    best_n_lines,
    gap_lines,
    group_lines,
    spread_lines,
)
from isocompute.cli.fit_short import fit_lines, setting_words, whole
from isocompute.domain.text import compact, unit_words

Row = Mapping[str, Any]

_BARS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 50
_LAW_ROWS = 7
_LISTED = 6


def full_lines(document: Row, options: str = "", *, target: float | None = None) -> list[str]:
    """The short answer, then all of the `fit --json` document that people read."""
    lines = [*fit_lines(document, options, pointers=False, target=target), "", "Curves:"]
    document = as_logged(document)
    unit, other = document["unit"], document["law_problems_per_batch"]
    lines += indented(_curve_table(document))
    lines += group_lines(document["curves"])
    several = len({row["rollouts_per_problem"] for row in document["curves"]}) > 1
    if several:
        lines += ["", f"Frontier, by {unit_words(unit)}:"]
        lines += indented([*_sparkline(document), *_frontier_table(document)])
        lines += ["", *_law(document["law"], digits_of(document) + 1)]
    if other:
        lines += ["", "Problems per batch at this fixed batch:"]
        lines += indented(_law_table(other, "problems_per_batch", "B_p*"))
    at = [b["x"] for b in document["best"] if not b["extrapolated"]][-1]
    at_end = f"{compact(at)} {unit_words(unit)}"
    lines += _neighbour_lines(document, at_end)
    lines += ["", *wrapped(document["direction"]["sentence"], indent="")] if several else []
    lines += spread_lines(document)
    lines += best_n_lines(document.get("best_n", ()), digits_of(document))
    lines += gap_lines(document["train_test"], digits_of(document))
    lines += ["", *backtest_lines(document)]
    lines += ["", *_paper_beside(document)] if several else []
    return [*lines, "", *note_lines(document)]


def paper_lines(document: Row) -> list[str]:
    """What `fit --method paper` prints: the published method's answers, under its own name."""
    document = as_logged(document)
    said, digits = document["paper"], digits_of(document)
    curves = said["curves"]
    rows = [
        (
            str(c["problems_per_batch"]), str(c["rollouts_per_problem"]), str(c["n_records"]),
            number(c["floor"], digits), number(c["ceiling"], digits), number(c["slope"], 2),
            compact(10 ** c["log10_midpoint"]),
        )
        for c in curves
    ]  # fmt: skip
    lines = [
        f"{document['metric']} by the published method (arXiv 2603.12151)",
        f"{setting_words({**document, 'curves': curves})}; it has no intervals",
        "",
        "Sigmoids through the records of each configuration:",
        *indented(table(("B_p", "n", "records", "floor", "ceiling", "slope", "half way"), rows)),
    ]
    if said["left_out"]:
        left = ", ".join(str(c["rollouts_per_problem"]) for c in said["left_out"])
        lines += wrapped(f"Left out, with fewer than 4 records: n = {left}.")
    return [*lines, "", *_paper(said), *_printed(document)]


def _paper_beside(document: Row) -> list[str]:
    said = document["paper"]
    if "refused" in said:
        return wrapped(f"Published method: {said['refused']}", indent="")
    return [*_paper(said), *_printed(document)]


def _paper(said: Row) -> list[str]:
    """The path of the published method at each bin width, and its law."""
    from isocompute.answers import Law

    law = said["law"]
    lines = [f"Published method, reward in bins of {said['bin_width']:g}:"]
    lines += wrapped(_path(said))
    terms = {name: law[name] for name in ("form", "variable", "L", "k", "x0", "b")}
    ends = said["frontier"][0]["from"], said["frontier"][-1]["to"]
    budgets = (ends[0], math.sqrt(ends[0] * ends[1]), ends[1])
    path = ", ".join(f"{whole(float(Law(**terms).predict(x)))} at {compact(x)}" for x in budgets)
    lines += wrapped(f"Its law: n = {path}; levels off at {whole(law['plateau'])}.")
    for width in said["by_bin_width"]:
        text = f"no answer: {width['refused']}" if "refused" in width else _path(width)
        lines += wrapped(f"In bins of {width['bin_width']:g}: {text}")
    return lines


def _path(said: Row) -> str:
    several = len({s["problems_per_batch"] for s in said["frontier"]}) > 1
    steps = [
        (f"{s['problems_per_batch']} x " if several else "") + str(s["rollouts_per_problem"])
        for s in said["frontier"]
    ]
    ends = [f" to {compact(s['to'])}" for s in said["frontier"][:-1]] + [""]
    name = "B_p x n" if several else "n"
    return f"{name} = " + ", ".join(map("".join, zip(steps, ends, strict=True))) + "."


def _printed(document: Row) -> list[str]:
    """What the study printed of its own panel."""
    from isocompute.answers import printed_law

    sources = document["provenance"]["sources"]
    printed = printed_law(sources[0]) if len(sources) == 1 else None
    if printed is None:
        return []
    compared = [b["x"] for b in document.get("best", ()) if not b["extrapolated"]]
    compared = compared or [s["to"] for s in document["paper"]["frontier"]]  # of its method alone
    return ["", "As the study printed it:", *wrapped(*printed.sentences(compared[-1]))]


def _neighbour_lines(document: Row, at: str) -> list[str]:
    """The model's guess of the scores of n that nobody ran, at a budget."""
    if not (rows := document.get("neighbours")):
        return []
    digits = digits_of(document)
    cells = [
        (
            str(r["problems_per_batch"]), str(r["rollouts_per_problem"]),
            number(r["score"], digits), span(r["interval"], digits),
            score_text(document, r["gain"], "+"), span(r["gain_interval"], digits),
        )
        for r in rows
    ]  # fmt: skip
    header = ("B_p", "n", "score", "interval", "gain over the best", "interval")
    title = f"Guessed scores at {at} of n that were not tested:"
    return ["", title, *indented(table(header, cells))]


def _curve_table(document: Row) -> list[str]:
    to = "to" if document["unit"] == "rollouts" else "to rollouts"
    digits = digits_of(document)
    header = ("B_p", "n", "runs", "points", to, "state", "floor", "ceiling", "interval")
    rows = [
        (
            str(c["problems_per_batch"]),
            str(c["rollouts_per_problem"]),
            str(c["n_runs"]),
            str(c["n_points"]),
            compact(c["max_rollouts"]),
            c["state"],
            number(c["floor"], digits),
            number(c["ceiling"], digits),
            span(c["ceiling_interval"], digits),
        )
        for c in document["curves"]
    ]
    return table(header, rows)


def _sparkline(document: Row) -> list[str]:
    """Height: predicted score of the frontier; below it, where each n takes over."""
    known = [s for s in document["frontier"] if s["score_from"] is not None and s["from"] > 0]
    if not known:
        return []
    start, end = math.log(known[0]["from"]), math.log(known[-1]["to"])
    low = min(min(s["score_from"], s["score_to"]) for s in known)
    high = max(max(s["score_from"], s["score_to"]) for s in known)
    bars, owners = "", ""
    last = None
    for i in range(_SPARK_WIDTH):
        x = math.exp(start + (end - start) * i / (_SPARK_WIDTH - 1))
        segment = next((s for s in known if x <= s["to"] * (1 + 1e-9)), known[-1])
        width = math.log(segment["to"] / segment["from"]) if segment["to"] > segment["from"] else 1
        share = min(max(math.log(max(x / segment["from"], 1e-300)) / width, 0.0), 1.0)
        score = segment["score_from"] + share * (segment["score_to"] - segment["score_from"])
        level = 0.0 if high <= low else (score - low) / (high - low)
        bars += _BARS[round(level * (len(_BARS) - 1))]
        name = str(segment["rollouts_per_problem"])
        if name != last and i >= len(owners):
            owners, last = owners.ljust(i) + name + " ", name
    return [
        f"score  {bars}  {score_text(document, low)} to {score_text(document, high)}",
        f"n      {owners.rstrip()}",
        f"       {compact(known[0]['from'])}".ljust(_SPARK_WIDTH) + compact(known[-1]["to"]),
    ]


def _frontier_table(document: Row) -> list[str]:
    header = ("from", "to", "n", "B_p", "best with", "begins (interval)", "")
    begins = {
        round(math.log10(c["at"]), 9): c["interval"] for c in document["crossovers"] if c["at"] > 0
    }
    rows = []
    for s in document["frontier"]:
        interval = begins.get(round(math.log10(s["from"]), 9)) if s["from"] > 0 else None
        rows.append(
            (
                compact(s["from"]),
                compact(s["to"]),
                str(s["rollouts_per_problem"]),
                str(s["problems_per_batch"]),
                f"{s['probability_best']:.0%}",
                "" if interval is None else " to ".join(
                    "?" if v is None else compact(v) for v in interval
                ),
                "extrapolated" if s["extrapolated"] else "",
            )
        )  # fmt: skip
    return table(header, rows, left=1)


def _law(law: Row, digits: int) -> list[str]:
    """The path of n*, and the sigmoid that sums it up."""
    rows = _law_table(law, "rollouts_per_problem", "n*", digits)
    terms = [
        f"{name} = {law[name]:.3g} {span(law[f'{name}_interval'], 2)}"
        for name in ("L", "k", "x0", "b")
        if law[name] is not None
    ]
    x = "M" if law["form"] == "sigmoid_linear" else f"log10 of {law['variable']}"
    text = "The best n does not change."
    if law["form"] != "constant":
        text = f"As a sigmoid, L / (1 + exp(-k (x - x0))) + b of x, {x}: {', '.join(terms)}."
    flags = f" Flags: {', '.join(law['flags'])}." if law["flags"] else ""
    title = f"Law of log2 n* in {law['variable']}, also between the n tested:"
    return [title, *indented(rows), *wrapped(text + flags)]


def _law_table(law: Row, quantity: str, name: str, digits: int = 4) -> list[str]:
    at = law["at"]
    picked = [at[round(i * (len(at) - 1) / (_LAW_ROWS - 1))] for i in range(_LAW_ROWS)]
    rows = []
    for p in dict.fromkeys(row["x"] for row in picked):
        row = next(row for row in picked if row["x"] == p)
        n = n_words({"rollouts_per_problem": row[quantity], "interval": row["interval"]})
        tied = row.get("confidence_set") or ()
        more = f" and {len(tied) - _LISTED} more" if len(tied) > _LISTED else ""
        rows.append(
            (
                compact(row["x"]),
                n,
                number(row.get("expected_regret"), digits),
                ", ".join(map(str, tied[:_LISTED])) + more,
            )
        )
    header = (law["variable"], f"{name} (interval)", "regret", "still in contention")
    if quantity == "problems_per_batch":  # the set and the regret are those of n
        return table(header[:2], [row[:2] for row in rows])
    return table(header, rows, left=1)
