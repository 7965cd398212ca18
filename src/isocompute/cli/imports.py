"""`import`: logs of others -> study folder; what was read and concluded, as a table and as JSON."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isocompute.cli.asking import only_if, yours
from isocompute.cli.cells import indented, table
from isocompute.cli.output import check_target, show, warn, write_json
from isocompute.errors import AskedError, InputError

if TYPE_CHECKING:
    from isocompute.importers import ImportedRun
    from isocompute.importers.archive import ImportSummary
    from isocompute.importers.values.imported import Series

_MOST = 24  # runs in the table
_MOST_LINES = 8  # inferences, metrics
_PLAIN = (0.0, 1.0)
_OF_FIT = ("--metric", "--problem-set", "--where", "--split", "--range")


def import_runs(options: argparse.Namespace) -> int:
    """Logs of others -> study folder, or a look at what would be read."""
    check_target(options.json, options.source)
    from isocompute.importers import load_imported, load_settings, note_lines, read_logs, store_runs
    from isocompute.importers.archive import ready_runs
    from isocompute.importers.runs.repetitions import unsaid
    from isocompute.importers.words.asking import collected

    if options.output is None and not options.preview:
        raise InputError(
            "an import must have a study folder, but got none; add -o DIR, or --preview."
        )
    score_range = None if options.range is None else (options.range[0], options.range[1])
    settings = load_settings(options.set, options.map)

    def read(words: Sequence[str]) -> list[ImportedRun]:
        return ready_runs(options.source, options.output or "", settings, words, score_range)

    runs, asked = collected(read)
    later = fit_asks(runs or (), options)
    if asked and options.preview:  # what was read without an answer
        with contextlib.suppress(InputError):
            runs = read_logs(options.source, settings=settings, score_range=score_range)
            later = later if any(run.series for run in runs) else []
            return _preview(runs, [*asked, *later], options)
    if asked or runs is None:
        then = fit_words(options.output or "study", later, options) if later else ()
        raise AskedError(asked, then, later)
    if options.preview:
        return _preview(runs, later, options)
    for line in unsaid([run for run in runs if run.series]):
        warn(line)
    summary = store_runs(runs, options.output, settings)
    for line in note_lines(summary.notes):
        warn(line)
    stored = load_imported(options.output)
    write_json(import_document(stored, summary), options.json)
    lines = stored_lines(runs, summary, options, fit_asks(stored, options))
    show(lines, quiet=options.json == "-")
    return 0


def _preview(
    runs: Sequence[ImportedRun], asked: Sequence[InputError], options: argparse.Namespace
) -> int:
    from isocompute.importers import note_lines
    from isocompute.importers.runs.repetitions import unsaid

    for line in unsaid([run for run in runs if run.series]):
        warn(line)
    for line in note_lines((run.name, note) for run in runs for note in run.notes):
        warn(line)
    write_json(import_document(runs), options.json)
    show(preview_lines(runs, asked, options), quiet=options.json == "-")
    return 0


def fit_asks(runs: Sequence[ImportedRun], options: argparse.Namespace) -> list[InputError]:
    """What `fit` will ask of runs: which metric, problem set or model is meant, and the range."""
    from isocompute.importers.words.asking import collected
    from isocompute.sources.load import curves_of_runs

    if not any(run.series for run in runs):
        return []
    known = _split_of(options)
    return collected(lambda words: curves_of_runs(runs, options.output or "study", words), known)[1]


def _split_of(options: argparse.Namespace) -> list[str]:
    """What a fit must be told of scores that the import was told are of training."""
    return ["--split", "train"] if "split=train" in options.set else []


def fit_words(study: str, asked: Sequence[InputError], options: argparse.Namespace) -> list[str]:
    """The `fit` of a study with what it asks; what an import settles is not its."""
    words = ["isocompute", "fit", study, *_split_of(options)]
    for one in asked:
        if not {"--map", "--set"} & {*one.options}:
            words += one.options
    return words


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
    runs: Sequence[ImportedRun], summary: ImportSummary, options: argparse.Namespace,
    asked: Sequence[InputError] = (),
) -> list[str]:
    """What an import wrote, and the next command with all that it asks."""
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
        lines.append("GPU-hours: times are logged, but not on how many GPUs; add --set gpus=GPUS "
                     "with your own number")  # fmt: skip
    lines += _seeds(runs)
    open_ones = [one for one in asked if not _is_settled(one)]
    lines += [f"It will be asked: {one}" for one in open_ones]
    words = fit_words(options.output, asked, options)
    return [*lines, f"Next{only_if(open_ones)}{yours(words)}: {shlex.join(words)}"]


def _seeds(runs: Sequence[ImportedRun]) -> list[str]:
    """What to add where runs have no seed."""
    from isocompute.importers.words.names import pattern_for, perhaps_of

    none = [run for run in runs if run.series and run.seed is None]
    if not none:
        return []
    if "{seed}" in (named := pattern_for(runs, seed_alone=True) or ""):
        told = perhaps_of(named) or "as the names seem to say them"
        return [f"Seeds: none is logged; add --set pattern={shlex.quote(named)}, {told}"]
    alike = Counter((run.problems_per_batch, run.rollouts_per_problem) for run in none)
    if max(alike.values()) > 1:  # one seed for all would make two runs of it one
        return ["Seeds: none is logged, and runs of one configuration count as repetitions; "
                "runs.csv beside the logs may say theirs (run,seed)"]  # fmt: skip
    which = "none is logged" if len(none) == len(runs) else f"{len(none)} runs log none"
    return [f"Seeds: {which}; add --set seed=SEED, if they share one"]


def _is_settled(asked: InputError) -> bool:
    """Whether the next command names the only likely answer: a success rate beside a reward."""
    return asked.options[:1] == ("--metric",) and not yours(asked.options)


def preview_lines(
    runs: Sequence[ImportedRun], asked: Sequence[InputError], options: argparse.Namespace
) -> list[str]:
    """What an import would write, all that will be asked, and the line that does."""
    words = ["isocompute", "import", *options.source, "-o", options.output or "study"]
    for pair in options.set:
        words += ["--set", pair]
    for one in options.map:
        words += ["--map", one]
    if options.range is not None:
        words += ["--range", *(f"{value:g}" for value in options.range)]
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'} read; nothing was written"
    lines = [count, *_read_lines(runs), *_seeds(runs)]
    lines += [f"It will be asked: {one}" for one in asked]
    later = [one for one in asked if {*one.options} & {*_OF_FIT}]
    now = [one for one in asked if one not in later]
    words += [word for one in now for word in one.options]
    lines.append(f"To import{only_if(now)}{yours(words)}: {shlex.join(words)}")
    if later:
        then = fit_words(options.output or "study", later, options)
        lines.append(f"Then{only_if(later)}{yours(then)}: {shlex.join(then)}")
    return lines


def _read_lines(runs: Sequence[ImportedRun]) -> list[str]:
    from isocompute.importers.convert import rate_beside_reward
    from isocompute.importers.words.scored import unread_lines

    wanted = rate_beside_reward(runs)  # the score that a fit would ask for
    scored = [run for run in runs if run.series] or runs
    mains = _alike(scored, wanted)
    rows = [_row(run, s, named=len({_key(s)[1:] for s in mains if s}) > 1)
            for run, s in zip(scored[:_MOST], mains, strict=False)]  # fmt: skip
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
    lines += [line[0].upper() + line[1:] for line in unread_lines(runs)]
    unread = list(dict.fromkeys(key for run in runs for key in run.provenance.unread))
    if unread and not any(s.split == "validation" for run in runs for s in run.series):
        lines += _section("Keys that were not read:", unread)
    return lines


def _section(title: str, told: Sequence[str]) -> list[str]:
    if not told:
        return []
    more = [f"and {len(told) - _MOST_LINES} more"] if len(told) > _MOST_LINES else []
    return [title, *indented([*told[:_MOST_LINES], *more])]


def _key(s: Series) -> tuple[str, str, str]:
    return s.metric.label, s.split, s.problem_set


def _alike(runs: Sequence[ImportedRun], wanted: str | None) -> list[Series | None]:
    """The series of each run that a table shows: of one metric and set, where runs have that."""
    mains = [_main(run, wanted) for run in runs]
    first = [_key(s) for s in mains if s is not None]
    held = Counter(key for run in runs for key in {*map(_key, run.series)} & {*first})
    most = max(first, key=lambda key: held[key], default=None)
    return [next((s for s in run.series if _key(s) == most), main)
            for run, main in zip(runs, mains, strict=True)]  # fmt: skip


def _row(run: ImportedRun, main: Series | None, *, named: bool) -> tuple[str, ...]:
    """A row of the table; `named`: other rows are of another set."""
    name = run.name if len(run.name) <= 32 else f"{run.name[:15]}...{run.name[-14:]}"
    settings = (run.problems_per_batch, run.rollouts_per_problem, _last(run), run.seed)
    cells = tuple("?" if value is None else str(value) for value in settings)
    if main is None or not main.score_K.size:
        return (name, *cells, "0", "none", "", "")
    of = ", ".join(word for word in (main.problem_set, main.split) if word)
    metric = f"{main.metric.label} ({of})" if named else main.metric.label
    return (
        name, *cells, str(main.score_K.size), metric,
        f"{main.score_K.min():.4g}", f"{main.score_K.max():.4g}",
    )  # fmt: skip


def _main(run: ImportedRun, wanted: str | None = None) -> Series | None:
    """The validation mean of a label, else the one that a fit would take, else the first series."""
    named = [s for s in run.series if s.metric.label == wanted and s.split == "validation"]
    means = named or [s for s in run.series if s.metric.kind == "avg" and s.metric.core]
    ordered = [s for s in means if s.split == "validation"] or means or list(run.series)
    return ordered[0] if ordered else None


def _last(run: ImportedRun) -> int | None:
    from isocompute.importers.runs.steps import LATER

    # a row of training stands before its update, where the first is step 0
    later = LATER in run.provenance.inferred
    steps = [
        int(s.step_K[-1]) + (s.split == "train" and (
            later or (s.step_K[0] == 0 and int(s.step_K[-1]) != run.steps)
        )) for s in run.series if s.step_K.size
    ]  # fmt: skip
    steps += [run.provenance.trained] if run.provenance.trained else []
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
