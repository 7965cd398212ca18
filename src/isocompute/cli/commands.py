"""Each command: options in, one library call, output. Heavy modules load inside."""

from __future__ import annotations

import argparse

from isocompute.cli.output import check_target, show, write_json

Options = argparse.Namespace


def fit(options: Options) -> int:
    """Curves -> frontier -> law."""
    check_target(options.json, options.source)
    from isocompute.cli.tables import fit_lines
    from isocompute.curves import load_curves
    from isocompute.laws import fit_sweep

    curves = load_curves(options.source, metric=options.metric, score_range=tuple(options.range))
    fitted = fit_sweep(
        curves, fix=options.fix, joint=options.joint, unit=options.unit, metric=options.metric
    )
    write_json(fitted.document, options.json)
    show(fit_lines(fitted.document), quiet=options.json == "-")
    return 0


def plan(options: Options) -> int:
    """Law + budget -> prescription; exit code 3 where the data cannot carry one."""
    check_target(options.json, [options.law] if options.law else [])
    from isocompute.allocation import Rates, parse_budget
    from isocompute.plan import advice_lines, plan_from_source

    answer = plan_from_source(
        options.law,
        budget=None if options.budget is None else parse_budget(options.budget),
        batch_size=options.batch_size,
        steps=options.steps,
        difficulty=options.difficulty,
        metric=options.metric,
        score_range=tuple(options.range),
        rates=Rates(
            tokens_per_rollout=options.tokens_per_rollout,
            rollouts_per_gpu_hour=options.rollouts_per_gpu_hour,
            usd_per_gpu_hour=options.usd_per_gpu_hour,
        ),
        max_batch_size=options.max_batch,
        min_steps=options.min_steps,
    )
    write_json(answer.document, options.json)
    if answer.refusal is not None:
        raise answer.refusal
    show(advice_lines(answer.document, trainer=options.trainer), quiet=options.json == "-")
    return 0


def compare(options: Options) -> int:
    """Two sweeps at equal compute."""
    sources = [options.a, options.b]
    check_target(options.json, sources)
    from isocompute.cli.tables import compare_lines
    from isocompute.compare import compare_curves
    from isocompute.curves import load_curves

    a, b = (
        load_curves([source], metric=options.metric, score_range=tuple(options.range))
        for source in sources
    )
    comparison = compare_curves(a, b, names=(options.a, options.b))
    write_json(comparison.document, options.json)
    show(compare_lines(comparison.document), quiet=options.json == "-")
    return 0
