"""A fit for people: aligned lines, plain text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isocompute.cli.cells import indented, number, span, table
from isocompute.cli.evidence import backtest_lines, best_n_lines, gap_lines, spread_lines
from isocompute.domain.text import compact
from isocompute.plan.words import WIDTH, advice_lines

if TYPE_CHECKING:
    from isocompute.health import Finding
    from isocompute.quickstart import Result as QuickstartResult
    from isocompute.runner import Summary
    from isocompute.store import StoredRun

_BARS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 60
_LAW_ROWS = 7

Row = Mapping[str, Any]


def fit_lines(document: Row) -> list[str]:
    """The `fit --json` document as lines: setting, curves, frontier, law, back-test, warnings."""
    unit = document["unit"]
    lines = [_setting(document), "", "Curves:"]
    lines += indented(_curve_table(document["curves"], unit))
    lines += ["", f"Frontier, by {unit}:"]
    lines += indented([*_sparkline(document["frontier"]), *_frontier_table(document)])
    lines += ["", *_law(document)]
    other = document.get("law_problems_per_batch")
    if other and other["form"] is not None:
        lines += ["", "Problems per batch at this fixed batch:"]
        lines += indented(_law_table(other, "problems_per_batch", "B_p*"))
    lines += spread_lines(document)
    lines += best_n_lines(document.get("best_n", ()))
    lines += gap_lines(document.get("train_test", ()))
    lines += ["", *backtest_lines(document["backtest"])]
    return lines + warning_lines(document["warnings"])


def compare_lines(document: Row) -> list[str]:
    """The `compare --json` document as lines: verdict, differences by budget, warnings."""
    a, b = document["a"], document["b"]
    verdict = {
        "a": f"{a} is better",
        "b": f"{b} is better",
        "tie": f"a tie (surely within {document['tie']:.2f})",
        "undecided": "undecided",
    }
    lines = [
        f"B - A of {document['metric'] or 'score'} at equal rollouts; A is {a}, B is {b}",
        f"At the largest budget both cover: {verdict[document['verdict']]}.",
        "",
    ]
    rows = [
        (
            compact(row["rollouts"]),
            f"{row['difference']:+.3f}",
            span(row["interval"]),
            row["verdict"],
            _best(row["best_a"]),
            _best(row["best_b"]),
        )
        for row in document["at"]
    ]
    lines += indented(
        table(("rollouts", "B - A", "interval", "better", "best of A", "best of B"), rows)
    )
    return lines + warning_lines(document["warnings"])


def _best(best: Row) -> str:
    return (
        f"{best['score']:.3f} (B_p={best['problems_per_batch']}, n={best['rollouts_per_problem']})"
    )


def warning_lines(warnings: Sequence[Mapping[str, str]]) -> list[str]:
    """One wrapped paragraph per warning."""
    lines: list[str] = []
    for warning in warnings:
        lines += textwrap.wrap(
            f"! {warning['code']}: {warning['message']}",
            WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
    return lines


def summary_lines(summary: Summary, folder: str) -> list[str]:
    """How a call of `run` ended, what it cost, and what to do next."""
    spent = summary.accounting
    total = summary.done + summary.failed + summary.invalid + summary.pending
    lines = [
        f"{folder}: {summary.done} of {total} runs done, {summary.failed} failed, "
        f"{summary.invalid} invalid, {summary.pending} to go",
        f"  training {compact(spent.rollouts)} rollouts, evaluation "
        f"{compact(spent.evaluation_rollouts)}, lost to crashes "
        f"{compact(spent.wasted_rollouts + spent.wasted_evaluation_rollouts)}",
        f"  {spent.wall_s / 60:.1f} worker minutes, {summary.elapsed_s / 60:.1f} minutes this time",
    ]
    if summary.pending:
        lines.append("Run the same command again to continue.")
    elif summary.done:
        lines.append(f"Next: isocompute fit {folder}")
    return lines


def quickstart_lines(result: QuickstartResult) -> list[str]:
    """What the playbook found, and where to look."""
    lines = [*summary_lines(result.summary, str(result.folder / "study"))[:3]]
    if result.fit is not None:
        lines += ["", *fit_lines(result.fit.document)]
    if result.refusal is not None:
        lines += ["", f"No law: {result.refusal}"]
    if result.plan is not None:
        lines += ["", *advice_lines(result.plan)]
    return [*lines, "", f"report: {result.report}"]


def difficulty_lines(document: Row) -> list[str]:
    """Histogram of successes, sets, and the recipe that goes with them."""
    from isocompute.recipe import Recipe
    from isocompute.store.unjudged import unjudged_text

    trained = Recipe().temperature
    histogram = document["histogram"]
    width = max(1, *histogram)
    lines = [
        f"{document['n_problems']} problems, {document['samples']} samples each "
        f"({compact(document['rollouts'])} rollouts in all): mean pass rate "
        f"{number(document['mean_pass_rate'])} {span(document['mean_pass_rate_interval'])}",
        "",
    ]
    for successes, problems in enumerate(histogram):
        bar = "#" * round(40 * problems / width)
        lines.append(f"  {successes:>3}/{document['samples']}  {problems:>6}  {bar}")
    lines.append("")
    rows = [
        (name.replace("_", " "), f"{band['low']:g} to {band['high']:g}", str(band["n_problems"]))
        for name, band in document["bands"].items()
    ]
    lines += table(("set", "pass rate", "problems"), rows, left=2)
    lines += ["", f"recipe: {document['recipe']} ({document['reason']})"]
    if (temperature := document.get("temperature", trained)) != trained:
        lines.append(
            f"measured at temperature {temperature:g}: train at the same (recipe: temperature: "
            f"{temperature:g}), or measure with --temperature {trained:g}, a study's default"
        )
    if document["errors"]:
        told = [(row["id"], row["samples"], row["message"]) for row in document["unjudged"]]
        lines += textwrap.wrap(
            f"{document['errors']:,} of {document['rollouts']:,} samples could not be judged and "
            f"count in no rate: {unjudged_text(told)}",
            WIDTH, subsequent_indent="  ",
        )  # fmt: skip
    return lines + warning_lines(document["warnings"])


def lr_sweep_lines(document: Row) -> list[str]:
    """The rates side by side, the anchor and why."""
    lines = [
        f"{document['folder']}: {len(document['rates'])} rates at B_p="
        f"{document['problems_per_batch']}, n={document['rollouts_per_problem']}, "
        f"{document['steps']} steps, {document['n_seeds']} seed"
        f"{'' if document['n_seeds'] == 1 else 's'}",
        "",
    ]
    rows = []
    for row in document["rates"]:
        broken = [f"{f['code']} ({f['n_runs']}, step {f['first_step']})" for f in row["findings"]]
        broken += [f"run {failed['run']} {failed['state']}" for failed in row["failed"]]
        rows.append([
            f"{row['learning_rate']:g}", number(row["score"]), span(row["interval"]),
            number(row["behind_best"]), "yes" if row["healthy"] else "NO", "; ".join(broken),
        ])  # fmt: skip
    header = ["rate", document["metric"], f"{document['level']:.0%} interval", "behind best",
              "healthy", "rules broken (runs, first step)"]  # fmt: skip
    lines += [*indented(table(header, rows, left=1)), ""]
    anchor = document["anchor"]
    if anchor is not None:
        lines += [
            f"anchor: learning_rate {anchor['learning_rate']:g} at {anchor['base_batch_size']} "
            f"rollouts per batch: {document['reason']}",
            f"in the study file: recipe: {{learning_rate: {anchor['learning_rate']:g}, "
            f"base_batch_size: {anchor['base_batch_size']}}}",
        ]
    return [*lines, *warning_lines(document["warnings"])]


def health_lines(runs: Sequence[StoredRun], health: Mapping[str, Sequence[Finding]]) -> list[str]:
    """Health in one line, and one line per configuration and rule that it broke."""
    broken: dict[tuple[int, int, str, str], list[int]] = {}
    for run in runs:
        for f in health.get(run.hash, ()):
            b_p, n = run.spec["problems_per_batch"], run.spec["rollouts_per_problem"]
            broken.setdefault((b_p, n, f.severity, f.code), []).append(f.step)
    healthy = sum(not health.get(run.hash) for run in runs)
    lines = [f"health: {healthy} of {len(runs)} runs without a finding"]
    for (b_p, n, severity, code), steps in sorted(broken.items()):
        seeds = f"{len(steps)} runs" if len(steps) > 1 else "1 run"
        lines.append(
            f"{'!' if severity == 'failure' else ' '} {severity}: {code} at B_p={b_p}, n={n} in "
            f"{seeds}, first at step {min(steps)}"
        )
    return lines


def _setting(document: Row) -> str:
    setting = document["setting"]
    kind = {
        "fixed_problems_per_batch": "{} problems per batch",
        "fixed_batch_size": "batch of {} rollouts",
        "joint": "all problems per batch together",
    }[setting["kind"]].format(setting["value"])
    runs = sum(curve["n_runs"] for curve in document["curves"])
    return (
        f"{document['metric']} against {document['unit']}, {kind}: "
        f"{len(document['curves'])} configurations, {runs} runs"
    )


def _curve_table(curves: Sequence[Row], unit: str) -> list[str]:
    to = "to" if unit == "rollouts" else "to rollouts"
    header = ("B_p", "n", "runs", "points", "records", to, "smooth", "ceiling", "interval",
              "flags")  # fmt: skip
    rows = [
        (
            str(c["problems_per_batch"]),
            str(c["rollouts_per_problem"]),
            str(c["n_runs"]),
            str(c["n_points"]),
            str(c["n_records"]),
            compact(c["max_rollouts"]),
            number(c.get("smoothness"), 2),
            number(c["ceiling"]),
            span(c["ceiling_interval"]),
            ", ".join(f"{f}: {bounds}" if f == "on_bound" else f for f in c["flags"]),
        )
        for c in curves
        for bounds in [" and ".join(c["on_bound"])]
    ]
    return table(header, rows, left=1)


def _sparkline(frontier: Sequence[Row]) -> list[str]:
    """Height: predicted score of the frontier; below it, where each n takes over."""
    known = [s for s in frontier if s["score_from"] is not None and s["from"] > 0]
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
        f"score  {bars}  {low:.3f} to {high:.3f}",
        f"n      {owners.rstrip()}",
        f"       {compact(known[0]['from'])}".ljust(_SPARK_WIDTH)
        + compact(known[-1]["to"]),
    ]


def _frontier_table(document: Row) -> list[str]:
    header = ("from", "to", "n", "B_p", "best with", "begins between", "")
    begins = {
        round(math.log10(c["at"]), 9): c["interval"] for c in document["crossovers"] if c["at"] > 0
    }
    rows = []
    for s in document["frontier"]:
        interval = begins.get(round(math.log10(s["from"]), 9)) if s["from"] > 0 else None
        between = (
            ""
            if interval is None
            else " and ".join("?" if v is None else compact(v) for v in interval)
        )
        rows.append(
            (
                compact(s["from"]),
                compact(s["to"]),
                str(s["rollouts_per_problem"]),
                str(s["problems_per_batch"]),
                "?" if s["probability_best"] is None else f"{s['probability_best']:.0%}",
                between,
                "extrapolated" if s["extrapolated"] else "",
            )
        )
    return table(header, rows, left=1)


def _law(document: Row) -> list[str]:
    law = document["law"]
    if law["form"] is None:
        # The frontier goes up and down, or is not known: n* without a form, where there is one.
        title = "Law: none could be identified" + ("; n* off the frontier:" if law["at"] else ".")
        return [title, *indented(_law_table(law, "rollouts_per_problem", "n*", of="frontier"))]
    plateau = "no plateau identified"
    if law["plateau"] is not None and (law.get("identified") or {}).get("plateau", True):
        plateau = f"plateau n={law['plateau']:.0f} {span(law['plateau_interval'], 0)}"
    rising = law["rising"]
    rise = "a rise is not claimed"
    if rising["claimed"]:
        rise = f"rises by {rising['octaves']:.1f} octaves (at least {rising['lower_bound']:.1f})"
    flags = f"; {', '.join(law['flags'])}" if law["flags"] else ""
    title = f"Law, {law['form']} in {law['variable']}; {plateau}; {rise}{flags}:"
    return [title, *indented(_law_table(law, "rollouts_per_problem", "n*"))]


def _law_table(law: Row, quantity: str, name: str, *, of: str = "law") -> list[str]:
    at = law["at"]
    if not at:
        return []
    steps = max(len(at) - 1, 1)
    picked = [at[round(i * steps / (_LAW_ROWS - 1))] for i in range(_LAW_ROWS)]
    rows = [
        (
            compact(p["x"]),
            number(p[quantity], 0),
            span(p["interval"], 0),
            number(p["expected_regret"], 4),
            ", ".join(str(n) for n in p["confidence_set"] or ()),
        )
        for p in picked
    ]
    header = (law["variable"], f"{of}'s {name}", "its interval", "regret", "n that may be best")
    if quantity == "problems_per_batch":  # the set and the regret are those of n
        return table(header[:3], [row[:3] for row in rows])
    return table(header, rows, left=1)
