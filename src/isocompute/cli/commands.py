"""Each command: options in, one library call, output. Heavy modules load inside."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute.cli.output import check_target, show, warn, write_json
from isocompute.cli.scores import narrowed, scores
from isocompute.errors import InputError, NotInstalledError, RefusalError
from isocompute.files import refuse_file

if TYPE_CHECKING:
    from isocompute.runner import Summary
    from isocompute.study import Study
    from isocompute.study.cost import Cost

Options = argparse.Namespace


def compare(options: Options) -> int:
    """Two sweeps at equal compute."""
    given = [options.a, options.a if options.b is None else options.b]
    check_target(options.json, given)
    from isocompute.cli.tables import compare_lines
    from isocompute.compare import compare_curves
    from isocompute.sources import load_curves

    first = narrowed(given[0], options, *options.where_a)
    second = narrowed(given[1], options, *options.where_b)
    if options.b is None and first == second:
        raise InputError(
            f"a comparison needs two sides, but there is only {first!r}; name a second source, or "
            "choose with --where-a and --where-b."
        )
    a, b = (load_curves([source], **scores(options)) for source in (first, second))
    comparison = compare_curves(a, b, names=(first, second))
    write_json(comparison.document, options.json)
    show(compare_lines(comparison.document), quiet=options.json == "-")
    return 0


def interference(options: Options) -> int:
    """How progress spreads over problems at equal compute."""
    check_target(options.json, [options.folder])
    from isocompute.cli.evidence import interference_lines
    from isocompute.interference import interference_of
    from isocompute.sources.outcomes import load_outcomes
    from isocompute.store.arms import with_where

    name, groups = load_outcomes(
        with_where(options.folder, options.where), options.problem_set
    )
    document = interference_of(
        groups, source=options.folder, problem_set=name, rollouts=options.at
    )
    write_json(document, options.json)
    show(interference_lines(document), quiet=options.json == "-")
    return 0


def run_quickstart(options: Options) -> int:
    """The whole playbook, with a line per stage."""
    from isocompute.cli.live import LiveLine
    from isocompute.cli.tables import quickstart_lines
    from isocompute.quickstart import quickstart

    with LiveLine() as progress:
        result = quickstart(
            options.folder, workers=options.workers, say=progress.say, progress=progress
        )
    for line in result.summary.warnings:
        warn(line)
    show(quickstart_lines(result))
    return 0


def difficulty(options: Options) -> int:
    """Pass rates of a base model on a problem set."""
    check_target(options.json, [options.problems])
    check_target(options.output, beside=options.json)
    from isocompute.cli.tables import difficulty_lines
    from isocompute.cli.values import world_options
    from isocompute.difficulty import Draws, measure_difficulty
    from isocompute.engines import embedded_success_counter, problem_generators
    from isocompute.problems import load_problems, save_problems
    from isocompute.problems.files import require_jsonl

    if options.output is not None:
        require_jsonl(options.output)
    counter = embedded_success_counter()
    if options.problems.startswith("world:"):
        name, given = world_options(options.problems)
        problems = problem_generators()["world"](name, **given)
    else:
        problems = load_problems(options.problems, verifier=options.verifier)
    count = counter(
        options.model, problems, max_new_tokens=options.max_new_tokens,
        temperature=options.temperature, seed=options.seed, device=options.device,
    )  # fmt: skip

    def sample(index_P: Any, samples: int) -> Draws:
        return Draws(*count(index_P, samples))

    measured = measure_difficulty(
        sample, problems, samples=options.samples, second_stage=options.second_stage
    )
    if options.output is not None:
        save_problems(measured.problems, options.output)
    document = {**measured.document, "temperature": options.temperature}
    write_json(document, options.json)
    show(difficulty_lines(document), quiet=options.json == "-")
    return 0


def run(options: Options) -> int:
    """Run or resume a study."""
    check_target(options.json, [options.study])
    from isocompute.cli.tables import summary_lines
    from isocompute.runner import open_study, planned_study

    folder = _folder(options)
    if options.dry_run:
        study, lacks = planned_study(options.study, options.overrides, folder)
        return _dry_run(study, lacks, folder, options)
    study = open_study(options.study, options.overrides, folder)
    summary, cost = _train(study, folder, options)
    counted = {"version": 1, **summary.accounting.to_dict(), "estimate": cost.to_dict()}
    write_json(counted, options.json)
    show([*summary_lines(summary, str(folder)), *_why_ended(study, folder)],
         quiet=options.json == "-")  # fmt: skip
    return summary.exit_code


def _why_ended(study: Study, folder: Path) -> list[str]:
    """Of an adaptive sweep that is over: whether it has found what it was to find."""
    from isocompute.cli.cells import wrapped
    from isocompute.store import Database
    from isocompute.store.decisions import load_looks, why_ended

    if study.adaptive is None:
        return []
    with contextlib.closing(Database(folder)) as database:
        why = why_ended(load_looks(database), study.rollouts)
    return wrapped(f"The sweep {why}.", indent="") if why else []


def _folder(options: Options, ending: str = "") -> Path:
    """Where a study trains: as it is asked, else beside its file, under the same name."""
    path = Path(options.study)
    beside = path.with_name(path.stem + ending) if path.name else path
    folder = Path(options.output) if options.output is not None else beside
    refuse_file(folder)
    return folder


def _dry_run(
    study: Study, lacks: str | None, folder: Path, options: Options, more: Sequence[str] = ()
) -> int:
    """What would be run, its cost, and what it lacks here; nothing is measured or written.

    Raises:
        InputError: as the command would: an edit of runs that have results, an n that is not
            frozen.
    """
    from isocompute.answers.own_rates import with_own_rates
    from isocompute.cli.resumed import resumed_lines
    from isocompute.cli.tables import study_lines
    from isocompute.engines import evaluations_drawn
    from isocompute.runner import missing_trainer, preview
    from isocompute.study.cost import study_cost

    lacks = missing_trainer(study) if lacks is None else lacks
    decide, found, thaw = None, None, getattr(options, "thaw", None)
    if study.adaptive is not None:
        from isocompute.design.decider import decider

        decide = decider(study, folder)  # refuses what it could not decide by
    with contextlib.suppress(NotInstalledError):  # an engine that is not here keeps its word
        found = preview(study, folder, decide, thaw=False if thaw is None else thaw,
                        retry_failed=options.retry_failed)  # fmt: skip
    if found is None:
        cost, lines = study_cost(study, evaluations=evaluations_drawn), list[str]()
        lines += study_lines(study, cost, str(folder))
    else:
        left = found.study.runs if found.goes_on else found.trains
        priced = with_own_rates(found.study, folder, found.steps)
        cost = study_cost(priced, runs=left, steps=found.steps, evaluations=evaluations_drawn)
        lines = resumed_lines(found, cost, str(folder))
    if thaw is not None and not (found and found.thawed):
        study.grid()  # refuses a study that is not adaptive
        lines.append("Would thaw nothing: no n is frozen.")
    write_json({"version": 1, "estimate": cost.to_dict()}, options.json)
    lines += more
    if lacks is not None:
        lines += textwrap.wrap(f"To train it here: {lacks}", 80, subsequent_indent="  ",
                               break_on_hyphens=False, break_long_words=False)  # fmt: skip
    show(lines, quiet=options.json == "-")
    return 0


def lr_sweep(options: Options) -> int:
    """The learning-rate anchor; exit code 3 where no rate is healthy."""
    check_target(options.json, [options.study])
    from isocompute.cli.tables import lr_sweep_lines, summary_lines
    from isocompute.lr_sweep import check_scores, find_anchor, lr_study, steps_meant
    from isocompute.runner import open_study, planned_study

    path, folder = Path(options.study), _folder(options, "-lr")
    whole = any(word.startswith("budget=") for word in options.overrides)
    opened, lacks = (
        planned_study(path, options.overrides, folder) if options.dry_run
        else (open_study(path, options.overrides, folder), None)
    )  # fmt: skip
    study = lr_study(opened, options.rates, folder, whole=whole)
    scores = {"metric": options.metric, "problem_set": options.problem_set}
    names = sorted(study.runs[0].validation)
    if options.dry_run and options.problem_set is None and len(names) > 1:
        check_scores(study, metric=options.metric, problem_set=names[0])
        which = [f"To train it, say which validation set decides: --problem-set {'|'.join(names)}"]
        return _dry_run(study, lacks, folder, options, which)
    check_scores(study, **scores)
    if options.dry_run:
        return _dry_run(study, lacks, folder, options)
    summary, _ = _train(study, folder, options)
    if summary.pending:
        show(summary_lines(summary, str(folder)), quiet=options.json == "-")
        return summary.exit_code
    again = [options.study, *options.overrides]
    again += [] if options.output is None else ["-o", options.output]
    document = find_anchor(
        folder, study, **scores, command=shlex.join(["isocompute", "lr-sweep", *again]),
        run_steps=steps_meant(_own(opened, options, folder) if whole else opened),
    )  # fmt: skip
    show(lr_sweep_lines(document), quiet=options.json == "-")
    if document["anchor"] is None:
        raise RefusalError(document["reason"], document["run_next"], document)
    write_json(document, options.json)
    return 0


def _own(opened: Study, options: Options, folder: Path) -> Study:
    """The study under its file's own budget: the rates are tried for the length of its runs."""
    from isocompute.runner import planned_study

    kept = [word for word in options.overrides if not word.startswith("budget=")]
    with contextlib.suppress(InputError):  # a file may leave its budget to the command line
        return planned_study(options.study, kept, folder)[0]
    return opened


def _train(study: Study, folder: Path, options: Options) -> tuple[Summary, Cost]:
    """Say what it will cost, then train with progress on stderr, here or on Ray."""
    from isocompute.cli.live import LiveLine
    from isocompute.cli.tables import cost_line, grid_lines, sharing_lines
    from isocompute.engines import evaluations_drawn, takes_whole_machine
    from isocompute.runner import calibrate, check_before_writing, default_workers, run_study
    from isocompute.sources.studies import with_own_start
    from isocompute.store import Database
    from isocompute.store.begun import KEPT
    from isocompute.store.database import moved_line
    from isocompute.store.register import register
    from isocompute.store.shared import stored_shared
    from isocompute.study.cost import study_cost

    pool = None
    if options.ray_address is not None:
        from isocompute.runner.ray import ray_pool

        address = None if options.ray_address == "local" else options.ray_address
        pool = ray_pool(address=address, num_cpus=options.num_cpus, num_gpus=options.num_gpus)
    decide = None
    if study.adaptive is not None:
        from isocompute.design.decider import decider

        decide = decider(study, folder)
    if pool is None:
        check_before_writing(study, folder)
    # An edit that is refused is refused before its cost is told. A first start that was cut short
    # has left a file that is empty or holds no work yet: it is new still.
    with contextlib.closing(Database(folder, create=True)) as database:
        begun = register(database, study)
        if begun is not study:
            warn(KEPT)
        study = begun
        is_new = not database.read("SELECT 1 FROM attempts LIMIT 1")
        if database.copy is not None:
            warn(moved_line(database.copy))
        for one in stored_shared(database):
            warn(one.line())
    with LiveLine() as progress:
        measured = None
        seconds = options.calibrate
        if seconds is None:
            seconds = 0.0 if takes_whole_machine(spec.engine for spec in study.runs) else 3.0
        if is_new and pool is None and seconds > 0:
            try:
                measured = calibrate(study, seconds=seconds)
            except Exception as error:  # noqa: BLE001  # the runs themselves will say what is wrong
                progress.say(f"how long it will take is not known: {error}")
        places = default_workers(study) if options.workers is None else options.workers
        priced = study if is_new else with_own_start(study, folder)
        cost = study_cost(priced, measured, workers=max(places, 1), evaluations=evaluations_drawn)
        shared = sharing_lines(study, places) if pool is None else []  # Ray gives each its own
        for line in (cost_line(study, cost), *grid_lines(study), *shared):
            progress.say(line)
        summary = run_study(
            study,
            folder,
            workers=options.workers,
            progress=progress,
            retry_failed=options.retry_failed,
            pool=pool,
            calibration=measured,
            decide=decide,
            thaw=getattr(options, "thaw", None) or False,
        )
    for line in (*summary.warnings, *(f"run {name}: {why}" for name, why in summary.problems)):
        warn(line)
    return summary, cost


def status(options: Options) -> int:
    """How far a study is, and what it has cost."""
    check_target(options.json)
    from isocompute.cli.cells import wrapped
    from isocompute.cli.tables import health_lines
    from isocompute.store import Store
    from isocompute.store.health import study_health
    from isocompute.store.status import study_status

    now = study_status(options.folder)
    with Store(options.folder) as store:
        health = study_health(store)
    findings = {name: [asdict(f) for f in found] for name, found in health.items() if found}
    write_json({**now.to_dict(), "health": findings}, options.json)
    healthy = health_lines(now.runs, health) if now.runs or not now.imported else []
    show([*wrapped(*now.lines(), indent=""), *healthy], quiet=options.json == "-")
    return 0


def watch(options: Options) -> int:
    """The same, again and again, until nothing is at work any more."""
    from isocompute.cli.cells import wrapped
    from isocompute.cli.live import Screen
    from isocompute.store.status import study_status

    screen = Screen()
    while True:
        now = study_status(options.folder)
        screen.draw(wrapped(*now.lines(), indent=""))
        if now.runners == 0:
            return 0
        time.sleep(options.every)


def doctor(options: Options) -> int:
    """Is a study folder sound? Exit code 1 where it is damaged."""
    check_target(options.json)
    from isocompute.cli.cells import wrapped
    from isocompute.store.doctor import examine

    found = examine(options.folder)
    write_json({"version": 1, "findings": [asdict(finding) for finding in found]}, options.json)
    lines = wrapped(*(f"{f.severity}: {f.code}: {f.message}" for f in found), indent="")
    show(lines or [f"{options.folder}: sound"], quiet=options.json == "-")
    return 1 if any(f.severity == "error" for f in found) else 0


def export(options: Options) -> int:
    """Unpack a study to Parquet or CSV."""
    from isocompute.importers import imported_rows
    from isocompute.store.export import export_study

    files = export_study(
        options.folder, options.output, format=options.format, times=not options.no_times,
        imported=list(imported_rows(options.folder, times=not options.no_times)),
    )  # fmt: skip
    show([f"wrote {path}" for path in files])
    return 0
