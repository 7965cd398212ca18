"""A study under what its own runs take, as a plan from it prices what it adds."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from isocompute.allocation import Allocation, Rates
from isocompute.answers.price import Price, priced
from isocompute.domain import Configuration
from isocompute.errors import InputError
from isocompute.sources import load_curves
from isocompute.sources.studies import with_own_start, with_study_rates
from isocompute.study.rates import BatchRate
from isocompute.study.sweep import Study


def with_own_rates(study: Study, folder: str | Path, steps: Mapping[str, int]) -> Study:
    """Rates of a study's runs by what they took so far; where that is not known, as they are.

    Args:
        study: what would be trained.
        folder: with what it has trained.
        steps: that are trained of each run, by hash: a rate is of what is left.
    """
    study, source = with_own_start(study, folder), str(folder)
    with contextlib.suppress(InputError):  # nothing is scored yet, or several validation sets are
        price = priced(load_curves([source]), with_study_rates(source, Rates()))
        if price.spent:
            own = {spec.hash: _of_the_rest(price, spec.allocation, steps.get(spec.hash, 0))
                   for spec in study.runs}  # fmt: skip
            by_batch = replace(study.rates_by_batch, of_runs=own, evaluations_timed=price.clocked)
            return replace(study, rates_by_batch=by_batch)
    return study


def _of_the_rest(price: Price, a: Allocation, done: int) -> BatchRate:
    """What a rollout of a run takes from where it stands to its end."""
    c = Configuration(a.problems_per_batch, a.rollouts_per_problem)
    begun = min(done, a.steps - 1) * a.batch_size
    ends = [price.of(c, rollouts=at).cost(at) for at in (begun, a.rollouts)]
    takes = {name: None if ends[1][name] is None else
             ((ends[1][name] or 0.0) - (ends[0][name] or 0.0)) / (a.rollouts - begun)
             for name in ("tokens", "gpu_hours")}  # fmt: skip
    hours = takes["gpu_hours"]
    return BatchRate(**c._asdict(), rollouts=a.rollouts, tokens_per_rollout=takes["tokens"],
                     rollouts_per_gpu_hour=1 / hours if hours else None)  # fmt: skip
