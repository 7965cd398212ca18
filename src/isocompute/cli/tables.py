"""Documents for people: aligned lines, plain text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isocompute.cli.cells import indented, number, span, table, wrapped
from isocompute.cli.fit_short import fit_lines
from isocompute.domain.text import compact

if TYPE_CHECKING:
    from isocompute.health import Finding
    from isocompute.quickstart import Result as QuickstartResult
    from isocompute.runner import Summary
    from isocompute.store import StoredRun
    from isocompute.study import Study
    from isocompute.study.cost import Cost

Row = Mapping[str, Any]

_LISTED = 6


def compare_lines(document: Row) -> list[str]:
    """The `compare --json` document as lines: verdict, differences by budget, warnings."""
    a, b = document["a"], document["b"]
    verdict = {
        "a": f"{a} is better",
        "b": f"{b} is better",
        "tie": f"a tie (within {document['tie']:.2f})",
        "undecided": "undecided",
    }
    shared, what = len(document["configurations"]), document["metric"] or "score"
    mean = f", mean of the {shared} (B_p, n) of both" if shared > 1 else ""
    lines = [
        f"B - A of {what} at equal rollouts{mean}; A is {a}, B is {b}",
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
    return wrapped(*(f"! {one['code']}: {one['message']}" for one in warnings), indent="")


def summary_lines(summary: Summary, folder: str) -> list[str]:
    """How a call of `run` ended, what it cost, and what to do next."""
    spent = summary.accounting
    total = summary.done + summary.failed + summary.invalid + summary.pending + summary.resting
    lines = [
        f"{folder}: {summary.done} of {total} runs done, {summary.failed} failed, "
        f"{summary.invalid} invalid, {summary.pending} to go"
        + (f", {summary.resting} not needed further" if summary.resting else ""),
        *wrapped(
            f"training {compact(spent.rollouts)} rollouts, evaluation "
            f"{compact(spent.evaluation_rollouts)}, lost to crashes "
            f"{compact(spent.wasted_rollouts + spent.wasted_evaluation_rollouts)}"
            + ", updates that were cut off not counted" * bool(spent.uncertain_steps)),
        f"  {spent.wall_s / 60:.1f} worker minutes, {summary.elapsed_s / 60:.1f} minutes this time",
    ]
    if summary.failed or summary.invalid:
        lines.append("Correct what failed, then run it again with --retry-failed.")
    if summary.pending:
        lines.append("Run the same command again to continue.")
    elif summary.done or summary.resting:
        lines.append(f"Next: isocompute fit {shlex.quote(folder)}")
    return lines


def study_lines(study: Study, cost: Cost, folder: str) -> list[str]:
    """What a study would run, one row per configuration, and what it costs."""
    rows: dict[tuple[int, int, int], int] = {}
    for run in study.runs:
        a = run.allocation
        key = (a.problems_per_batch, a.rollouts_per_problem, a.steps)
        rows[key] = rows.get(key, 0) + 1
    cells = [
        (str(b_p), str(n), str(steps), compact(b_p * n * steps), str(runs))
        for (b_p, n, steps), runs in sorted(rows.items())
    ]
    return [
        *wrapped(cost_line(study, cost), indent=""),
        *indented(table(("B_p", "n", "steps", "rollouts each", "runs"), cells)),
        *wrapped(*grid_lines(study), indent=""),
        *_rates_tried(study),
        *wrapped(
            *_elsewhere(study, cost), *_ends(study),
            f"Nothing was run. Without --dry-run, it trains into the folder {folder}.", indent="",
        ),
    ]  # fmt: skip


def cost_line(study: Study, cost: Cost) -> str:
    """What a study costs; an adaptive one trains no more of its grid than it may spend."""
    from isocompute.study.cost import most_starts

    if study.adaptive is None:
        return f"{study.name}: {cost.line()}"
    limit = study.grid().limit
    share = limit / study.rollouts
    if share >= 1:
        return f"{study.name}: adaptive, at most {cost.line()}"
    paid = cost.paid(share, most_starts(study, limit))
    about = f", about {', '.join(paid)}" if paid else ""
    return (
        f"{study.name}: adaptive, at most {limit:,.0f} rollouts (`adaptive.spend`){about}: "
        f"{share:.0%} of its grid of {cost.line()}"
    )


def grid_lines(study: Study) -> list[str]:
    """Stand-ins that it trains, what it leaves out, what it trains too briefly, and cautions."""
    from isocompute.engines import cautions
    from isocompute.model.data import MIN_STEPS

    lines, out = list[str](), [str(c) for c in study.left_out]
    name, train = study.runs[0].engine, (study.source.get("problems") or {}).get("train")
    if name in ("local", "trl", "verl") and isinstance(train, Mapping) and "generated" in train:
        model = study.runs[0].engine_options.get("model") or "a shipped model"
        todo = "a rehearsal, not your model" if name == "local" else "put yours into the file first"
        lines.append(f"Trains {model} on generated problems: {todo}.")
    if out:
        more = f" and {len(out) - _LISTED} more" if len(out) > _LISTED else ""
        lines.append(
            f"Left out, a batch being above the budget or max_batch: {', '.join(out[:_LISTED])}"
            f"{more} (B_p x n)."
        )
    short = sorted({r.allocation for r in study.runs if r.allocation.steps < MIN_STEPS},
                   key=lambda a: (a.problems_per_batch, a.rollouts_per_problem))  # fmt: skip
    if short:
        told = [f"{a.problems_per_batch} x {a.rollouts_per_problem} ({a.steps})" for a in short]
        more = f" and {len(told) - _LISTED} more" if len(told) > _LISTED else ""
        lines.append(
            f"Fewer than {MIN_STEPS} steps: {', '.join(told[:_LISTED])}{more}. Such runs hardly "
            "count: raise the budget, or leave them out."
        )
    return lines + cautions(study.runs[0])


def sharing_lines(study: Study, places: int) -> list[str]:
    """What hours count where runs train side by side on the same GPUs."""
    from isocompute.study.spec import shares_gpus

    at_once = min(places, len(study.runs))
    if at_once < 2 or not any(shares_gpus(s.engine, s.engine_options) for s in study.runs):
        return []
    return [
        f"! {at_once} runs at a time share the GPUs, and the hours of each count as if it had them "
        f"alone: a plan priced by them may cost up to {at_once} times too much. --workers 1 "
        "measures it."
    ]


def _ends(study: Study) -> list[str]:
    """When an adaptive sweep is over."""
    if study.adaptive is None:
        return []
    if len(study.slices) == 1:
        return ["Every run trains to its end: give several `slices` for it to stop earlier."]
    return ["It stops by itself: when more training would hardly improve the plan."]


def _rates_tried(study: Study) -> list[str]:
    """The learning rates, where runs differ in nothing else."""
    rates = sorted({run.learning_rate for run in study.runs})
    if len(rates) < 2 or len({run.allocation for run in study.runs}) > 1:
        return []
    listed = ", ".join(f"{rate:.3g}".replace("e-0", "e-") for rate in rates)
    return wrapped(f"learning rates: {listed}", indent="")


def _elsewhere(study: Study, cost: Cost) -> list[str]:
    """What is still to be known of a study that another trainer trains."""
    name, options = study.runs[0].engine, study.runs[0].engine_options
    if name in ("local", "simulator"):
        return []
    python = options.get("python") or {"verl": "python3", "trl": "this Python"}.get(name)
    lines = list[str]()
    if python is not None:
        other = "" if options.get("python") else "; set engine_options.python for another"
        lines.append(f"Trains with {name} in {python}{other}.")
    if cost.gpu_hours is None:
        lines.append("GPU-hours: give rates.rollouts_per_gpu_hour.")
    return lines


def quickstart_lines(result: QuickstartResult) -> list[str]:
    """What the quickstart found: the two short answers, and where the report is."""
    from isocompute.answers import advice_lines

    lines = [*summary_lines(result.summary, str(result.folder / "study"))[:3]]
    if result.fit is not None:
        lines += ["", *fit_lines(result.fit.document)]
    if result.refusal is not None:
        lines += ["", *wrapped(f"No fit: {result.refusal}", indent="")]
    if result.plan is not None:
        lines += ["", *advice_lines(result.plan)]
    return [*lines, "", f"Report: {result.report}"]


def difficulty_lines(document: Row) -> list[str]:
    """Histogram of successes, sets, and the recipe that goes with them."""
    from isocompute.problems.selection import BANDS
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
        (name.replace("_", " "), f"{band['low']:g} to {band['high']:g}" if band["high"] else
         f"0 in {BANDS[name].samples} samples", str(band["n_problems"]))
        for name, band in document["bands"].items()
    ]  # fmt: skip
    lines += table(("set", "pass rate", "problems"), rows, left=2)
    if shares := document.get("mixed_groups"):
        listed = ", ".join(f"{n}: {share:.0%}" for n, share in shares.items())
        groups = f"groups with both rewards (only these teach), by n: {listed}"
        lines += ["", *wrapped(groups, indent="")]
    lines += ["", f"recipe: {document['recipe']} ({document['reason']})"]
    if (temperature := document.get("temperature", trained)) != trained:
        lines.append(
            f"measured at temperature {temperature:g}: train at it too (recipe: temperature: "
            f"{temperature:g}), or measure with --temperature {trained:g}, a study's default"
        )
    if document["errors"]:
        failed: list[tuple[str, int, str]] = [
            (row["id"], row["samples"], row["message"]) for row in document["unjudged"]
        ]
        lines += wrapped(
            f"{document['errors']:,} of {document['rollouts']:,} samples could not be judged and "
            f"are left out of the rates: {unjudged_text(failed)}", indent="",
        )  # fmt: skip
    return lines + warning_lines(document["warnings"])


def lr_sweep_lines(document: Row) -> list[str]:
    """The rates side by side, the anchor and why."""
    starts = [row["score_start"] for row in document["rates"] if row["score_start"] is not None]
    begun = f", {sum(starts) / len(starts):.3f} before" if starts else ""
    lines = [
        f"{document['folder']}: {len(document['rates'])} rates at B_p="
        f"{document['problems_per_batch']}, n={document['rollouts_per_problem']}, "
        f"{document['steps']} steps, {document['n_seeds']} seed"
        f"{'' if document['n_seeds'] == 1 else 's'}{begun}",
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
        said = (f"anchor: learning_rate {anchor['learning_rate']:g} at "
                f"{anchor['base_batch_size']} rollouts per batch: {document['reason']}")
        lines += [
            *wrapped(said, indent=""),
            f"in the study file: recipe: {{learning_rate: {anchor['learning_rate']:g}, "
            f"base_batch_size: {anchor['base_batch_size']}}}",
        ]
    return [*lines, *warning_lines(document["warnings"])]


def health_lines(runs: Sequence[StoredRun], health: Mapping[str, Sequence[Finding]]) -> list[str]:
    """Health in one line, and one line per configuration, arm and rule that it broke."""
    broken: dict[tuple[int, int, str, str, str], list[int]] = {}
    for run in runs:
        for f in health.get(run.hash, ()):
            b_p, n = run.spec["problems_per_batch"], run.spec["rollouts_per_problem"]
            arm = "".join(f", {key}={name}" for key, name in run.spec.get("arm", {}).items())
            broken.setdefault((b_p, n, arm, f.severity, f.code), []).append(f.step)
    trained = [run for run in runs if run.steps_done or health.get(run.hash)]
    healthy = sum(not health.get(run.hash) for run in trained)
    lines = [f"health: {healthy} of {len(trained)} runs broke no rule" if trained
             else "health: no run has trained yet"]  # fmt: skip
    for (b_p, n, arm, severity, code), steps in sorted(broken.items()):
        seeds = f"{len(steps)} runs" if len(steps) > 1 else "1 run"
        lines.append(
            f"{'!' if severity == 'failure' else ' '} {severity}: {code} at B_p={b_p}, n={n}{arm} "
            f"in {seeds}, first at step {min(steps)}"
        )
    return lines
