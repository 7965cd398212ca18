"""Decides for a running study, from its curves up to the budgets that the last look set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from isocompute.design.adaptive import next_look
from isocompute.errors import InputError
from isocompute.metrics import parse_metric
from isocompute.sources.studies import study_curves
from isocompute.study.adaptive import Look
from isocompute.study.sweep import Study


def decider(study: Study, folder: str | Path) -> Callable[[Look], Look]:
    """The function that `runner.run_study` calls for the next look of an adaptive study.

    Args:
        study: adaptive.
        folder: of its records.

    Raises:
        InputError: if the study is not adaptive, or its metric is none or needs more samples than
            an evaluation draws.
    """
    grid, bounds = study.grid(), study.adaptive
    samples = study.runs[0].evaluation_samples
    metric = None if bounds is None else bounds.metric
    if metric is not None and parse_metric(metric).k > samples:
        raise InputError(
            f"`adaptive.metric` must need at most the {samples} samples of an evaluation, but got "
            f"{metric!r}; raise evaluation.samples, or choose another metric."
        )
    problem_set = (bounds and bounds.problem_set) or next(iter(study.runs[0].validation))
    mine = {spec.hash for spec in study.runs}
    seeds = sorted({spec.seed for spec in study.runs})

    def decide(last: Look) -> Look:
        found = study_curves(folder, {}, metric=metric, problem_set=problem_set).curves
        rows, curves = last.of_configurations, []
        for curve in found:
            row = rows.get(curve.configuration)
            if row is None or curve.run not in mine:
                continue  # of what another study file asked for in the same folder
            place = seeds.index(curve.seed or 0)
            if place < len(row.rollouts):
                curves.append(curve.until(row.rollouts[place]))
        return next_look(grid, curves, last)

    return decide
