"""The learning-rate anchor: one batch size, several rates, the best that is stable.

The paper finds its anchor, 1e-6 at B = 1024, on such a grid: the rate above it is noisy, those
beyond collapse (arXiv 2603.12151, appendix A). Here the same is read off health rules and scores.

Shape legend: S seeds, P validation problems.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isocompute.allocation import Allocation
from isocompute.domain import Notice, documented, notice
from isocompute.errors import InputError
from isocompute.lr_scores import Rate, add_intervals, rate_of
from isocompute.metrics import parse_metric
from isocompute.recipe import Recipe
from isocompute.store import Store, StoredRun
from isocompute.store.database import EmptyStudyError
from isocompute.study import RunSpec, Study

LEVEL = 0.95
MARGIN = 2  # between the anchor and the first rate that breaks, as in the paper's grid
FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)  # of the recipe's rate: what is tried by default
# What these rates may draw together, of what an adaptive sweep may spend. At a quarter, a run at
# 2,048 rollouts a batch ends within its warm-up; at twice, the rate costs as much as the sweep.
SHARE = 1 / 2
# Updates of a run of a designed sweep, and the fewest: the rate that 20 choose, scaled to the run's
# length, loses 0.009 of score at most, that of 50 as much, of 200 no less (docs/lab-log.md).
STEPS, LEAST = 50, 20
# Fewest updates of a run, in times of its warm-up: a rate is only reached when that is over.
_WARM_UPS = 2
# A longer run wants a lower rate: the best falls with the square root of the steps, as averaging
# noise out would have it. Less than a tenth lower is no change.
_LOWER = 0.9
# Where a grid goes on, in times of its end: nearby, or far where no rate has moved a score.
_LOWER_RATES, _HIGHER, _FAR_HIGHER = (1 / 8, 1 / 4, 1 / 2), (2, 4, 8), (4, 16, 64)
_TIMES = 4  # as many updates, where no rate has moved a score
# Warnings that come of too large a rate. The others (dead batches, clipped responses) are of
# the problems or the length limit, and smaller rates share them.
_NOISY = ("gradient_spikes", "kl_drift")


def lr_study(
    study: Study,
    rates: Sequence[float] | None = None,
    folder: str | Path | None = None,
    *,
    whole: bool = False,
) -> Study:
    """The study that sweeps the learning rate at one batch size.

    The batch is the one that the study says, else that of the grid that is nearest to the
    recipe's `base_batch_size`, where its learning rate is meant (the smaller one of two). Rates
    that `folder` has already trained stay in the sweep, so that a grid is extended by naming the
    new rates alone. Where the study says what its sweep may spend, seven rates spend half of that.
    Such runs, and those whose length the study says, are evaluated at both ends alone: scores count
    at the last. Others are evaluated once an octave.

    Args:
        study: one recipe, one training set; its seeds are kept.
        rates: learning rates after warm-up, at that batch; None: eighth to eightfold of the
            recipe's own, in factors of 2, or those of `folder` where it exists.
        folder: the sweep's own study folder.
        whole: train each run to the budget of the study, whatever its sweep may spend.

    Raises:
        InputError: if the study holds several recipes or training sets, or a rate is not > 0.
    """
    first = study.runs[0]
    for what, values in (
        ("recipe", [spec.recipe for spec in study.runs]),
        ("training set", [spec.train.sha256 for spec in study.runs]),
    ):
        if any(value != values[0] for value in values):
            raise InputError(
                f"a learning-rate sweep must have one {what}, but the study has several; "
                "write a study file with one of them."
            )
    of = first.allocation
    if study.rates_at is None:
        of = anchored_at([spec.allocation for spec in study.runs], first.recipe)
    allocation = study.rates_at or of
    batch = allocation.batch_size
    own = first.recipe.learning_rate_at(batch)
    known = _known_rates(folder)
    asked = sorted({*known, *(rates or ())} or {_tidy(own * factor) for factor in FACTORS})
    bad = [rate for rate in asked if not (math.isfinite(rate) and rate > 0)]
    if bad:
        raise InputError(
            f"a learning rate must be finite and > 0, but got {bad[0]!r}; correct the rates."
        )
    chosen = [spec for spec in study.runs if spec.allocation == of]
    spend = None if whole or study.adaptive is None else study.adaptive.spend
    if spend is not None and study.rates_at is None:
        steps = fewer_steps(allocation, spend, len(chosen), first.recipe)
    else:
        steps = max(of.rollouts // batch, 1) if whole else allocation.steps
    short = not whole and (study.rates_at is not None or spend is not None)
    runs = [
        replace(
            spec,
            recipe=spec.recipe.replace(learning_rate=rate, base_batch_size=batch),
            allocation=replace(allocation, steps=steps), evaluations_per_octave=1,
            first_evaluation=steps * batch if short else spec.first_evaluation,
        )
        for rate in asked
        for spec in chosen
    ]
    named = f"{study.name}: learning rate"
    # An adaptive study is sliced for its looks: here nobody looks, and a slice may take minutes.
    kept = study.adaptive is None or "slices" in study.source
    slices = study.slices if kept else (1.0,)
    return replace(study, name=named, runs=runs, slices=slices, adaptive=None, rates_at=None,
                   left_out=())  # fmt: skip


def anchored_at(allocations: Sequence[Allocation], recipe: Recipe) -> Allocation:
    """The allocation at which rates are tried: its batch is nearest to that of the recipe's own."""
    return min(
        allocations,
        key=lambda a: (abs(math.log(a.batch_size / recipe.base_batch_size)), a.batch_size,
                       a.rollouts_per_problem),
    )  # fmt: skip


def steps_meant(study: Study) -> int:
    """Updates of the run that the rates are for: the study's own at the batch nearest to theirs."""
    first = study.runs[0]
    return anchored_at([spec.allocation for spec in study.runs], first.recipe).steps


def fewer_steps(allocation: Allocation, spend: float, seeds: int, recipe: Recipe) -> int:
    """Updates with which the rates together draw their share of what the sweep may spend."""
    each = SHARE * spend / len(FACTORS) / seeds
    least = _WARM_UPS * recipe.warmup_steps
    return min(allocation.steps, max(int(each / allocation.batch_size), least, 1))


def _known_rates(folder: str | Path | None) -> list[float]:
    if folder is None or not (Path(folder) / "study.db").is_file():
        return []
    try:
        with Store(folder) as store:
            return [float(run.spec["recipe"]["learning_rate"]) for run in store.runs()]
    except EmptyStudyError:
        return []


def _tidy(value: float) -> float:
    """Three digits: a grid is read by people, and a run is known by its rate."""
    return float(f"{value:.3g}")


def find_anchor(
    folder: str | Path,
    study: Study,
    *,
    metric: str | None = None,
    problem_set: str | None = None,
    command: str = "isocompute lr-sweep STUDY.yaml",
    run_steps: int | None = None,
) -> dict[str, Any]:
    """Score, interval and health of every rate of a finished sweep, and the rate to take.

    The anchor has the best final score among the stable rates: healthy in every seed, without a
    warning of instability, and at most half of the smallest rate that is not healthy. Of rates
    within noise of each other a larger one is not preferred: longer runs and larger batches, to
    which the rate is scaled up, only bring it nearer to collapse. For a run that is longer, the
    rate is lower by the square root of the steps. Noise is that of the seeds,
    pooled over the healthy rates; with one seed that of the validation problems, paired.

    Noise makes no anchor: there is none where no rate surely ends above its start, nor where the
    best is the smallest or largest tried and surely better than its neighbour.

    Args:
        folder: that `run_study` filled.
        study: what `lr_study` made.
        metric: of the final evaluation; default: avg@ all samples.
        problem_set: which validation set; may be left out where there is one.
        command: to name in the advice, without `--rates`.
        run_steps: updates of the run that the rate is for; None: as many.

    Returns:
        The document of `lr-sweep --json`; "anchor" is None where none is found.

    Raises:
        InputError: unknown metric or validation set.
    """
    spec = study.runs[0]
    wanted, name = check_scores(study, metric=metric, problem_set=problem_set)
    with Store(folder) as store:
        stored = {run.hash: run for run in store.runs()}
        by_rate: dict[float, list[StoredRun]] = {}
        for one in study.runs:
            by_rate.setdefault(one.recipe.learning_rate, []).append(stored[one.hash])
        found = [
            rate_of(store, rate, runs, name, wanted) for rate, runs in sorted(by_rate.items())
        ]
        cost = store.accounting().to_dict()
    seeds = len({one.seed for one in study.runs})
    add_intervals(found, seeds, LEVEL)
    document: dict[str, Any] = {
        "version": 1, "study": study.name, "folder": str(folder),
        "problems_per_batch": spec.allocation.problems_per_batch,
        "rollouts_per_problem": spec.allocation.rollouts_per_problem,
        "batch_size": spec.allocation.batch_size, "steps": spec.allocation.steps,
        "n_seeds": seeds, "metric": wanted, "problem_set": name, "level": LEVEL,
        "rates": [one.row for one in found], "accounting": cost,
    }  # fmt: skip
    return {**document, **_choice(found, spec, seeds, command, run_steps, str(folder))}


def check_scores(
    study: Study, *, metric: str | None = None, problem_set: str | None = None
) -> tuple[str, str]:
    """Which score a sweep is judged by, asked before anything is trained.

    Returns:
        (metric, validation set).

    Raises:
        InputError: unknown metric or validation set, or a metric of more samples than are drawn.
    """
    spec = study.runs[0]
    wanted = parse_metric(metric or f"avg@{spec.evaluation_samples}")
    if wanted.k > spec.evaluation_samples:
        raise InputError(
            f"a metric must need at most the {spec.evaluation_samples} samples of an evaluation, "
            f"but got {wanted}; lower its k or raise evaluation.samples."
        )
    names = sorted(spec.validation)
    if problem_set is None and len(names) == 1:
        return str(wanted), names[0]
    if problem_set not in names:
        raise InputError(
            f"one validation set of {', '.join(map(repr, names))} must decide, but "
            f"{'none was named' if problem_set is None else f'got {problem_set!r}'}; choose one "
            "with --problem-set."
        )
    return str(wanted), problem_set


class _Sorted(NamedTuple):
    """Rates by what became of their runs, each part within the one before."""

    below: list[Rate]  # healthy, and below the first that is not
    stable: list[Rate]  # with a margin to that, where there are any
    calm: list[Rate]  # without warnings of instability, where there are any
    first_bad: float


def _sorted(found: Sequence[Rate]) -> _Sorted:
    first_bad = min((one.rate for one in found if not one.healthy), default=math.inf)
    below = [one for one in found if one.healthy and one.scores and one.rate < first_bad]
    stable = [one for one in below if one.rate <= first_bad / MARGIN] or below
    calm = [one for one in stable if not _noisy(one)] or stable
    return _Sorted(below, stable, calm, first_bad)


def _choice(
    found: Sequence[Rate], spec: RunSpec, seeds: int, command: str, run_steps: int | None,
    folder: str,
) -> dict[str, Any]:  # fmt: skip
    """The anchor, why, whether it was at an edge, and what to run then."""
    of, rates = _sorted(found), [one.rate for one in found]
    notices = _doubts(spec, seeds)
    if not of.calm:
        reason = (f"a rate must be healthy in every seed, but none of {len(rates)} from "
                  f"{min(rates):g} to {max(rates):g} is; try smaller ones.")  # fmt: skip
        return _none(notices, "low", reason, [_extension(command, min(rates), _LOWER_RATES)])
    # Each of the rates tried might rise by luck alone.
    if not any(one.learned(1 - (1 - LEVEL) / len(found)) for one in of.calm):
        return _none(notices, *_unlearned(of, rates, spec, command, folder))
    chosen = max(of.calm, key=lambda one: (float(np.mean(one.scores)), -one.rate))
    edge = "high" if chosen.rate == rates[-1] else "low" if chosen.rate == rates[0] else None
    run_next: list[str] = []
    if edge is not None:
        end, more = ("largest", _HIGHER) if edge == "high" else ("smallest", _LOWER_RATES)
        run_next = [_extension(command, chosen.rate, more)]
        others = [one for one in of.below if one is not chosen]
        beside = min(others, key=lambda one: abs(math.log(one.rate / chosen.rate)), default=None)
        if beside is None or not beside.row["within_noise"]:
            than = "" if beside is None else f", surely above {beside.rate:g}"
            reason = (f"the best rate must lie within those tried, but of {len(rates)} the {end}, "
                      f"{chosen.rate:g}, scores best{than}; try {edge}er ones.")  # fmt: skip
            return _none(notices, edge, reason, run_next)
        notices.append(notice("anchor_at_edge", rate=chosen.rate, end=end, command=run_next[0]))
    reason, steps = _why(of, chosen, len(rates)), spec.allocation.steps
    meant = run_steps or steps
    shrunk = math.sqrt(min(1.0, steps / meant))
    rate = _tidy(chosen.rate * shrunk) if shrunk < _LOWER else chosen.rate
    if rate < chosen.rate:
        reason += f"; {chosen.rate:g} did best in {steps} steps, {meant:,} steps need a lower"
    return {
        "anchor": {
            "learning_rate": rate, "base_batch_size": spec.allocation.batch_size,
            "tried_rate": chosen.rate, "run_steps": meant,
            "learning_rate_scaling": spec.recipe.learning_rate_scaling,
        },
        "edge": edge, "reason": reason, "run_next": run_next, **documented(notices),
    }  # fmt: skip


def _doubts(spec: RunSpec, seeds: int) -> list[Notice]:
    """What is not known of any rate: how seeds spread, what comes after the warm-up."""
    notices: list[Notice] = []
    if seeds == 1:
        spread = "unknown, intervals are those of the problems"
        notices.append(notice("seeds_missing", what="Every rate has", spread=spread, which="each"))
    steps, warm_up = spec.allocation.steps, spec.recipe.warmup_steps
    if steps < (least := max(LEAST, _WARM_UPS * warm_up)):
        notices.append(notice("probe_in_warm_up", steps=steps, warm_up=min(warm_up, steps),
                              least=least, budget=least * spec.allocation.batch_size))  # fmt: skip
    return notices


def _unlearned(
    of: _Sorted, rates: Sequence[float], spec: RunSpec, command: str, folder: str
) -> tuple[str | None, str, list[str]]:
    """Where no rate has moved a score: the edge to look beyond, why, and what to run next."""
    start = float(np.mean([one.problem_start_P.mean() for one in of.calm]))
    reason = (f"a rate must surely score above the start ({start:.3f}), but none of "
              f"{len(rates)} from {min(rates):g} to {max(rates):g} does")  # fmt: skip
    if of.first_bad == math.inf:
        reason += "; try larger ones, then more updates, or easier problems."
        return "high", reason, [_extension(command, max(rates), _FAR_HIGHER)]
    steps = spec.allocation.steps
    # Runs of another length are other runs, in a folder of their own.
    other = shlex.quote(f"{folder}-longer")
    longer = f"{command} budget={_TIMES * steps * spec.allocation.batch_size} -o {other}"
    reason += f"; train for more than {steps} updates, or on easier problems."
    return None, reason, [_extension(longer, 1, [one.rate for one in of.calm][-3:])]


def _why(of: _Sorted, chosen: Rate, tried: int) -> str:
    reason = f"the best score of the stable ones of {tried} rates"
    equal = [f"{one.rate:g}" for one in of.below
             if one.row["within_noise"] and one is not chosen]  # fmt: skip
    if equal:
        reason += f"; within noise of the best: {', '.join(equal)}"
    noisy = [f"{one.rate:g}" for one in of.stable if _noisy(one) and one not in of.calm]
    if noisy:
        reason += f"; warnings of instability: {', '.join(noisy)}"
    if of.first_bad < math.inf:
        reason += f"; the first that is not healthy: {of.first_bad:g}"
    return reason


def _noisy(one: Rate) -> bool:
    return any(finding["code"] in _NOISY for finding in one.row["findings"])


def _none(
    notices: Sequence[Notice], edge: str | None, reason: str, run_next: Sequence[str]
) -> dict[str, Any]:
    """No anchor: why, and what to run instead."""
    return {"anchor": None, "edge": edge, **documented(notices), "reason": reason,
            "run_next": list(run_next)}  # fmt: skip


def _extension(command: str, rate: float, factors: Sequence[float]) -> str:
    rates = ",".join(f"{_tidy(rate * factor):g}" for factor in factors)
    return f"{command} --rates {shlex.quote(rates)}"
