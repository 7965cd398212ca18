"""`import`: logs of others -> study folder; what was read and concluded, as a table and as JSON."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isocompute.cli.cells import indented, table
from isocompute.cli.output import check_target, show, warn, write_json
from isocompute.errors import InputError

if TYPE_CHECKING:
    from isocompute.importers import ImportedRun
    from isocompute.importers.archive import ImportSummary
    from isocompute.importers.runs import Series

_MOST = 24  # runs in the table
_MOST_LINES = 8  # inferences, metrics
_PLAIN = (0.0, 1.0)
_ASKED = ("problems_per_batch", "rollouts_per_problem")


def import_runs(options: argparse.Namespace) -> int:
    """Logs of others -> study folder, or a look at what would be read."""
    check_target(options.json, options.source)
    from isocompute.importers import load_imported, load_settings, note_lines, read_logs, store_runs
    from isocompute.importers.repetitions import unsaid

    if options.output is None and not options.preview:
        raise InputError(
            "an import must have a study folder, but got none; add -o DIR, or --preview."
        )
    score_range = None if options.range is None else (options.range[0], options.range[1])
    settings = load_settings(options.set, options.map)
    runs = read_logs(options.source, settings=settings, score_range=score_range)
    for line in unsaid([run for run in runs if run.series]):
        warn(line)
    if options.preview:
        for line in note_lines((run.name, note) for run in runs for note in run.notes):
            warn(line)
        write_json(import_document(runs), options.json)
        show(preview_lines(runs, options), quiet=options.json == "-")
        return 0
    summary = store_runs(runs, options.output, settings)
    for line in note_lines(summary.notes):
        warn(line)
    document = import_document(load_imported(options.output), summary)
    write_json(document, options.json)
    show(stored_lines(runs, summary, options), quiet=options.json == "-")
    return 0


def import_document(
    runs: Sequence[ImportedRun], summary: ImportSummary | None = None
) -> dict[str, Any]:
    """Version 1 of `import --json`."""
    return {
        "version": 1,
        "stored": [] if summary is None else summary.stored,
        "known": [] if summary is None else summary.known,
        "replaced": [] if summary is None else [name for name, _ in summary.replaced],
        "n_errors": sum(run.n_errors for run in runs) if summary is None else summary.n_errors,
        "runs": [
            {
                "name": run.name,
                "problems_per_batch": run.problems_per_batch,
                "rollouts_per_problem": run.rollouts_per_problem,
                "seed": run.seed,
                "steps": _last(run),
                "metrics": sorted({s.metric.label for s in run.series}),
                "ranges": {
                    f"{s.metric.label} {s.split}": [float(s.score_K.min()), float(s.score_K.max())]
                    for s in run.series if s.score_K.size
                },
                "n_missing": sum(s.n_missing for s in run.series),
                "source": run.provenance.path,
                "inferred": list(run.provenance.inferred),
                "facts": dict(run.provenance.facts),
                "score_range": run.provenance.score_range,
                "unread": list(run.provenance.unread),
            }
            for run in runs
        ],
    }


def stored_lines(
    runs: Sequence[ImportedRun], summary: ImportSummary, options: argparse.Namespace
) -> list[str]:
    """What an import wrote."""
    known, count = len(summary.known), len(summary.replaced)
    lines = []
    if summary.stored or not (known or count):
        lines.append(f"{len(summary.stored)} runs imported into {options.output}")
    if count:
        why = next((why for _, why in summary.replaced if why), "")
        lines.append(
            f"{count} run{'' if count == 1 else 's'} of {options.output} read anew"
            f"{f' ({why})' if why else ''}"
        )
    if known:
        lines.append(
            f"{known} run{' was' if known == 1 else 's were'} in {options.output} already"
        )
    if summary.n_errors:
        lines.append(f"{summary.n_errors} rows were not used: see import_errors in study.db")
    lines += _read_lines(runs)
    timed = [run.provenance for run in runs if run.provenance.s_per_step is not None]
    if timed and all(one.gpu_s_per_step is None for one in timed):
        lines.append("GPU-hours: times are logged, but not on how many GPUs; add --set gpus=8 with "
                     "your own number")  # fmt: skip
    from isocompute.importers.convert import rate_beside_reward

    rate = rate_beside_reward(runs)
    metric = "" if rate is None else f" --metric {shlex.quote(rate)}"
    return [*lines, f"Next: isocompute fit {shlex.quote(options.output)}{metric}"]


def preview_lines(runs: Sequence[ImportedRun], options: argparse.Namespace) -> list[str]:
    """What an import would write, and the line that does."""
    words = ["isocompute", "import", *options.source, "-o", options.output or "study"]
    for pair in options.set:
        words += ["--set", pair]
    for one in options.map:
        words += ["--map", one]
    if options.range is not None:
        words += ["--range", *(f"{value:g}" for value in options.range)]
    from isocompute.importers.asking import in_place, pattern_for, per_rollout
    from isocompute.importers.called import YOURS
    from isocompute.importers.convert import convert_runs
    from isocompute.importers.doubts import refuse_doubts
    from isocompute.importers.scored import likely_score

    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'} read; nothing was written"
    lines = [count, *_read_lines(runs)]
    pattern = pattern_for(runs)
    missing = {name: YOURS[name] for name in _ASKED if any(
        getattr(run, name) is None for run in runs)}  # fmt: skip
    if pattern is not None and not any(pair.startswith("pattern=") for pair in options.set):
        words += ["--set", f"pattern={pattern}"]
        lacks_bp = [run for run in runs if run.problems_per_batch is None]
        if (b_p := per_rollout(lacks_bp)) is not None:
            missing["problems_per_batch"] = str(b_p)
        missing = {name: own for name, own in missing.items() if f"{{{name}}}" not in pattern}
    asked = in_place([*missing], runs, pattern)
    missing = {name: missing.get(name, YOURS.get(name, "")) for name in asked}
    for name, own in missing.items():
        words += ["--set", f"{name}={own}"]
    if not any(run.series for run in runs):
        lines.append("No score is known by its name: see --map in the line below")
        words += shlex.split(likely_score(runs))
    else:
        said = [pair.partition("=")[2] for pair in options.set if pair.startswith("split=")]
        try:
            refuse_doubts(runs, training=bool(said))
            convert_runs(runs, split=said[0] if said else "validation")
        except InputError as error:  # which metric, B_p or n is meant
            told = str(error).replace("--split ", "--set split=")
            lines.append(f"It will be asked: {told}")
    yours = " and ".join(own for own in missing.values() if own in YOURS.values())
    head = f"To import, with your own number for {yours}" if yours else "To import"
    return [*lines, f"{head}: {shlex.join(words)}"]


def _read_lines(runs: Sequence[ImportedRun]) -> list[str]:
    from isocompute.importers.convert import rate_beside_reward

    wanted = rate_beside_reward(runs)  # the score that a fit would ask for
    scored = [run for run in runs if run.series] or runs
    rows = [_row(run, wanted) for run in scored[:_MOST]]
    header = ("run", "B_p", "n", "updates", "seed", "scores", "metric", "from", "to")
    lines = indented(table(header, rows))
    if len(scored) > _MOST:
        lines.append(f"  and {len(scored) - _MOST} more runs")
    if len(scored) < len(runs):
        lines.append(f"  and {len(runs) - len(scored)} logs without a metric that is known")
    metrics: dict[str, list[Series]] = {}
    for run in runs:
        for s in run.series:
            where = ", ".join(word for word in (s.split, s.problem_set) if word)
            metrics.setdefault(f"{s.metric.label} ({where})", []).append(s)
    told = [_metric_line(name, found) for name, found in sorted(metrics.items())]
    lines += _section("Metrics:", told)
    outside = [
        run for run in runs
        if (main := _main(run, wanted)) is not None
        and not _inside(main, run.provenance.score_range or _PLAIN)
    ]
    if outside:
        lines.append(
            f"  ! scores of {len(outside)} run{'s' * (len(outside) > 1)} lie outside "
            f"{_range_text(outside[0])}: add --range LOW HIGH, the least and most it can be"
        )
    inferred: dict[str, list[str]] = {}  # lines that say the same with other numbers: one
    for run in runs:
        for line in run.provenance.inferred:
            inferred.setdefault(re.sub("[0-9]+", "#", line), []).append(line)
    lines += _section("Inferred, not read:", [
        alike[0] + (f" ({len(alike)} runs alike)" if len(alike) > 1 else "")
        for alike in inferred.values()
    ])
    unread = list(dict.fromkeys(key for run in runs for key in run.provenance.unread))
    if unread and not any(s.split == "validation" for run in runs for s in run.series):
        lines += _section("Keys that were not read:", unread)
    return lines


def _section(title: str, told: Sequence[str]) -> list[str]:
    if not told:
        return []
    more = [f"and {len(told) - _MOST_LINES} more"] if len(told) > _MOST_LINES else []
    return [title, *indented([*told[:_MOST_LINES], *more])]


def _row(run: ImportedRun, wanted: str | None) -> tuple[str, ...]:
    main = _main(run, wanted)
    name = run.name if len(run.name) <= 32 else f"{run.name[:15]}...{run.name[-14:]}"
    settings = (run.problems_per_batch, run.rollouts_per_problem, _last(run), run.seed)
    cells = tuple("?" if value is None else str(value) for value in settings)
    if main is None or not main.score_K.size:
        return (name, *cells, "0", "none", "", "")
    return (
        name, *cells, str(main.score_K.size), main.metric.label,
        f"{main.score_K.min():.4g}", f"{main.score_K.max():.4g}",
    )  # fmt: skip


def _main(run: ImportedRun, wanted: str | None = None) -> Series | None:
    """The validation mean of a label, else the one that a fit would take, else the first series."""
    named = [s for s in run.series if s.metric.label == wanted and s.split == "validation"]
    means = named or [s for s in run.series if s.metric.kind == "avg" and s.metric.core]
    ordered = [s for s in means if s.split == "validation"] or means or list(run.series)
    return ordered[0] if ordered else None


def _last(run: ImportedRun) -> int | None:
    from isocompute.importers.steps import LATER

    # a row of training stands before its update, where the first is step 0
    later = LATER in run.provenance.inferred
    steps = [int(s.step_K[-1]) + (later and s.split == "train") for s in run.series
             if s.step_K.size]  # fmt: skip
    return max(steps) if steps else None


def _inside(s: Series, score_range: tuple[float, float]) -> bool:
    low, high = score_range
    room = 1e-9 * (high - low)
    return not s.score_K.size or bool(
        s.score_K.min() >= low - room and s.score_K.max() <= high + room
    )


def _range_text(run: ImportedRun) -> str:
    low, high = run.provenance.score_range or _PLAIN
    return f"{low:g}..{high:g}"


def _metric_line(name: str, found: Sequence[Series]) -> str:
    scored = [s for s in found if s.score_K.size]
    if not scored:
        return f"{name}: no score"
    low = min(float(s.score_K.min()) for s in scored)
    high = max(float(s.score_K.max()) for s in scored)
    runs = f"{len(scored)} run{'' if len(scored) == 1 else 's'}"
    missing = sum(s.n_missing for s in found)
    return f"{name}: {low:.4g} to {high:.4g} in {runs}" + (
        f", {missing} missing" if missing else ""
    )
