"""The commands that answer: fit, plan, report. Heavy modules load inside."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute.cli.output import check_target, show, warn, write_json
from isocompute.cli.scores import metric_names, narrowed, repeated, scores
from isocompute.cli.values import rates_given
from isocompute.errors import InputError, RefusalError
from isocompute.files import not_found, refuse_file

if TYPE_CHECKING:
    from isocompute.answers import Fit, Plan
    from isocompute.domain import Curve

Options = argparse.Namespace

_DESIGNED = ("trl", "verl")  # trainers for which `design` writes a study


def fit(options: Options) -> int:
    """Curves -> what is best when, or the published method's answers."""
    check_target(options.json, options.source)
    sources = [narrowed(source, options) for source in options.source]
    if options.method == "paper":
        return _fit_by_the_paper(options, sources)
    if options.bin_width is not None:
        raise InputError(
            f"--bin-width belongs to --method paper, but got --bin-width {options.bin_width:g} "
            "without it; drop it, or add the method."
        )
    from isocompute.allocation import Rates
    from isocompute.answers import fit_sweep
    from isocompute.answers.claims import best_n_rows
    from isocompute.answers.logged import as_logged, digits_of
    from isocompute.cli.evidence import best_n_lines
    from isocompute.cli.fit_full import full_lines
    from isocompute.cli.fit_short import fit_lines
    from isocompute.sources import load_with_train
    from isocompute.sources.studies import study_facts, with_study_rates

    asked, metrics = scores(options), _metrics(options)
    whole = options.json is not None or options.full or len(metrics) > 1
    documents = []
    for metric in metrics:
        asked["metric"] = metric
        curves, train = load_with_train(sources, **asked)
        found = fit_sweep(
            curves,
            fix=options.fix,
            joint=options.joint,
            unit=options.unit or "rollouts",
            select=options.select,
            sources=sources,
            train=train,
            rates=with_study_rates(sources[0], Rates()),
        )
        documents.append(found.document if whole else found.short_document)
    document, rows = documents[0], []
    if len(documents) > 1:
        for each in documents:
            by_bp = each["spread"]["rollouts_per_problem"]
            rows += best_n_rows(each["metric"], by_bp, each["level"])
        document = {**document, "best_n": rows, "by_metric": documents}
    write_json(document, options.json)
    again = repeated(options)
    lines = full_lines if options.full else fit_lines
    shown = as_logged(document).get("best_n", ()) if rows else ()
    more = [] if options.full else best_n_lines(shown, digits_of(document))
    target = study_facts(sources[0]).target if len(sources) == 1 else None
    show([*lines(document, again, target=target), *more], quiet=options.json == "-")
    return 0


def _metrics(options: Options) -> Sequence[str | None]:
    if options.metric is None:
        return [None]
    words = metric_names(options.metric)
    if not all(words):
        raise InputError(
            f"--metric must name scores with commas between them, but got {options.metric!r}; "
            "write for example avg@4,best@4."
        )
    return list(dict.fromkeys(words))


def _fit_by_the_paper(options: Options, sources: list[str]) -> int:
    """The published method alone, under its own name."""
    from isocompute.answers import paper_fit, select_curves
    from isocompute.answers.logged import range_of
    from isocompute.answers.paper import BIN_WIDTH
    from isocompute.cli.fit_full import paper_lines
    from isocompute.sources import load_curves

    curves, setting = select_curves(
        load_curves(sources, **scores(options)), fix=options.fix, joint=options.joint
    )
    width = BIN_WIDTH if options.bin_width is None else options.bin_width
    found = paper_fit(curves, unit=options.unit or "rollouts", bin_width=width)
    document = {
        "version": 2,
        "method": "paper",
        "setting": setting,
        "metric": curves[0].metric or "score",
        "unit": options.unit or "rollouts",
        "provenance": {"sources": sources, "score_range": list(range_of(curves))},
        "paper": found.to_dict(),
    }
    write_json(document, options.json)
    show(paper_lines(document), quiet=options.json == "-")
    return 0


def plan(options: Options) -> int:
    """Sweep + budget -> prescription; exit code 3 where the data cannot carry one."""
    from isocompute.allocation import parse_budget
    from isocompute.answers import advice_lines
    from isocompute.answers.assumed import recipe_unsaid
    from isocompute.trainers import on_processes, with_comments

    law = [*options.source, *([options.law] if options.law else [])]
    if len(law) > 1:
        given = ", ".join(law[:3]) + (", ..." if len(law) > 3 else "")
        cure = "name one, or the folder that holds them"
        with contextlib.suppress(InputError):
            parse_budget(law[-1])
            cure = f"a budget stands behind its option: --budget {shlex.quote(law[-1])}"
        raise InputError(f"a plan rests on one SOURCE, but got {given}; {cure}.")
    check_target(options.json, law)
    source = narrowed(law[0], options) if law else None
    answer = _planned(options, source, score=options.score, batch_size=options.batch_size,
                      steps=options.steps)  # fmt: skip
    _for_engine(answer.document, options.trainer)
    document = on_processes(answer.document, options.processes, options.trainer)
    if answer.refusal is not None:
        raise RefusalError(answer.refusal.reason, answer.refusal.run_next, document)
    write_json(document, options.json)
    lines = advice_lines(
        with_comments(document), trainer=options.trainer, why=options.why, quiet=options.quiet
    )
    show(lines, quiet=options.json == "-")
    if options.quiet and options.trainer and (unsaid := recipe_unsaid(document, options.trainer)):
        warn(unsaid)  # beside the keys, which are copied alone
    return 0


def _for_engine(document: dict[str, Any], trainer: str | None) -> None:
    """Name the trainer that was asked for in the command that designs a sweep, if it has one."""
    if trainer in _DESIGNED:
        for step in document.get("run_next") or ():
            if step["command"].startswith("isocompute design "):
                step["command"] = step["command"].replace(" -o ", f" --engine {trainer} -o ")


def _planned(options: Options, source: str | None, **more: Any) -> Plan:
    """The plan that the options ask for."""
    from isocompute.allocation import parse_budget
    from isocompute.answers import plan_from_source

    return plan_from_source(
        source,
        budget=None if options.budget is None else parse_budget(options.budget),
        difficulty=options.difficulty,
        **scores(options),
        select=options.select,
        fix=options.fix,
        joint=options.joint,
        unit=options.unit,
        rates=rates_given(options),
        max_batch_size=options.max_batch,
        min_steps=options.min_steps,
        current=options.current,
        problems=options.problems,
        only_n=options.only_n,
        **more,
    )


def report(options: Options) -> int:
    """One self-contained HTML file, and figures for papers."""
    check_target(options.output, options.source)
    if options.figures is not None:
        refuse_file(Path(options.figures))
    from isocompute.allocation import Rates, parse_budget
    from isocompute.answers import fit_sweep
    from isocompute.answers.machines import on_gpus
    from isocompute.report import render_report
    from isocompute.report.figures import save_figures
    from isocompute.report.study_data import study_view
    from isocompute.sources import load_with_train
    from isocompute.sources.studies import with_study_rates
    from isocompute.store.arms import split_source

    asked = scores(options)
    setting = {"fix": options.fix, "joint": options.joint}
    fits: list[tuple[str, Fit]] = []
    for source in (narrowed(given, options) for given in options.source):
        curves, train = load_with_train([source], **asked)
        # what stands beside the subject has a setting of its own
        of = {} if fits else {**setting, "unit": _unit_of_a_report(options, source, curves)}
        if of.get("unit") == "gpu-hours":
            of["rates"] = with_study_rates(source, Rates())
            gpus = parse_budget(options.budget).gpus if options.budget else None
            curves = on_gpus(curves, gpus)
        fits.append(
            (source, fit_sweep(curves, select=options.select, sources=[source], train=train, **of))
        )
    _require_sweeps(fits)
    first = fits[0][0]
    answer = _plan_of_a_report(options, *fits[0])
    is_study = (Path(split_source(first)[0]) / "study.db").is_file()
    study = study_view(first, problem_set=options.problem_set) if is_study else None
    title = {} if options.title is None else {"title": options.title}
    fits = _shown(fits)
    path = render_report(fits, answer, options.output, study=study, **title)
    show([f"Report: {path}"])
    if options.figures is not None:
        files = save_figures(fits, options.figures, plan=answer, study=study)
        show([f"figures: {len(files)} files in {options.figures}"])
    return 0


def _shown(fits: list[tuple[str, Fit]]) -> list[tuple[str, Fit]]:
    """Files and folders by their own names, where these tell them apart: not everybody's paths."""
    from isocompute.store.arms import split_source

    names = list[str]()
    for source, _ in fits:
        path = split_source(source)[0]
        names.append((Path(path).name or path) + source[len(path) :])
    apart = len(set(names)) == len(names)
    return [(name, fit) for name, (_, fit) in zip(names, fits, strict=True)] if apart else fits


def _require_sweeps(fits: list[tuple[str, Fit]]) -> None:
    """Several sources of one configuration each are runs of one sweep, and no comparison."""
    if len(fits) > 2 and all(len(fit.configurations) == 1 for _, fit in fits):
        raise InputError(
            f"a SOURCE of a report must be a whole sweep, but the {len(fits)} sources hold one "
            "(B_p, n) each; put them into one folder and name that."
        )


def _unit_of_a_report(options: Options, source: str, curves: Sequence[Curve]) -> str:
    """The unit asked for, else the one in which the plan's budget is paid."""
    from isocompute.allocation import parse_budget
    from isocompute.answers.price import unit_paid_in
    from isocompute.sources.studies import with_study_rates

    if options.unit or not options.budget or options.fix:
        return str(options.unit or "rollouts")
    rates = with_study_rates(source, rates_given(options))
    return unit_paid_in(parse_budget(options.budget), rates, curves)


def _plan_of_a_report(options: Options, source: str, fit: Fit) -> dict[str, Any] | None:
    """Made for the budget or score, or read from a file; None where nothing was asked for."""
    from isocompute.trainers import on_processes

    if options.plan is not None:
        document = _read_plan(options.plan)
        _require_same_runs(document, options.plan, source, fit)
    elif options.budget is not None or options.score is not None:
        document = _planned(options, source, score=options.score, fit=fit).document
    else:
        return None
    document = on_processes(document, options.processes, options.trainer)
    if options.trainer is None:
        return document
    keys = {name: words for name, words in document["trainer"].items() if name == options.trainer}
    return {**document, "trainer": keys}


def _require_same_runs(document: dict[str, Any], file: str, source: str, fit: Fit) -> None:
    """A plan belongs to the runs that it was made of, as they were then."""
    from isocompute.answers.document import data_sha256

    law = document.get("law") or {}
    kind, value = map((law.get("setting") or {}).get, ("kind", "value"))
    name = str(kind).removeprefix("fixed_")
    runs = [c for c in fit.curves if getattr(c.configuration, name, value) == value]
    if law.get("data_sha256") != data_sha256(runs):
        raise InputError(
            f"--plan must be of the runs of {source} as they are now, but {file} is of others "
            f"(read from {law.get('source')}); write it anew with `isocompute plan {source} ... "
            f"--json {file}`."
        )


def _read_plan(file: str) -> dict[str, Any]:
    """A document of `plan --json`."""
    path = Path(file)
    if not path.is_file():
        raise InputError(not_found(path))
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # of JSON, or of UTF-8
        document = None
    needed = {"version", "run_next", "verdict", "trainer"}
    if not isinstance(document, dict) or not needed <= set(document):
        raise InputError(
            f"--plan must name a file that `isocompute plan --json FILE` wrote, but {file} is "
            "none; write it anew."
        )
    if document["version"] != 2:
        raise InputError(
            f"--plan must be of version 2, but {file} is of version {document['version']}; write "
            "it anew with `isocompute plan --json FILE`."
        )
    return document
