"""The log that a command left -> what the store takes.

Shape legend: P problems of a validation set; S steps, 0 among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.engines.base import IntArray
from isocompute.engines.command.options import READERS, CommandOptions
from isocompute.errors import InputError
from isocompute.importers.read import read_log
from isocompute.importers.values.imported import ImportedRun, Series, UnclearError
from isocompute.importers.values.timing import FloatArray, Times, gpu_hours, said_of
from isocompute.importers.words.scored import keys_there, likely_key, metric_named
from isocompute.study.spec import RunSpec


def read_run(spec: RunSpec, options: CommandOptions, folder: Path) -> ImportedRun:
    """The run that the log in a folder is of.

    Args:
        spec: what was asked.
        options: of the engine.
        folder: the run's own.

    Raises:
        InputError: a log that cannot be read, of another reader, of several runs, or of another
            run than was asked.
    """
    path, a = folder / options.log, spec.allocation
    if not path.exists():
        raise InputError(
            f"the command must leave its log at {path}, but there is none; let it write there, or "
            f"correct engine_options.log, which is {options.log!r} below {{folder}}."
        )
    settings = replace(
        options.columns, problems_per_batch=a.problems_per_batch, seed=spec.seed,
        rollouts_per_problem=a.rollouts_per_problem, evaluation_samples=spec.evaluation_samples,
    )  # fmt: skip
    try:  # a log that ends where it was asked to counts updates, and its step 0 is none of them
        runs = read_log(path, settings=replace(settings, steps=a.steps))
    except UnclearError:
        ends = [last_of(run) for run in read_log(path, settings=settings)]
        if max(ends, default=0) <= a.steps:
            raise
        raise InputError(
            f"the trainer must train {a.steps} updates, but {path} counts to {max(ends)}; name the "
            "key that counts updates in engine_options.map ({KEY: steps}), or let the command stop "
            "at {steps}, then add --retry-failed."
        ) from None
    runs = [r for r in runs if r.provenance.format in READERS[options.reader]]
    if len(runs) != 1:
        raise InputError(
            f"{path} must hold one run that the reader {options.reader!r} reads, but "
            f"holds {len(runs)}; correct engine_options.log or reader."
        )
    found = runs[0]
    asked = {"problems_per_batch": a.problems_per_batch, "seed": spec.seed,
             "rollouts_per_problem": a.rollouts_per_problem}  # fmt: skip
    for name, value in asked.items():
        if getattr(found, name) != value:
            raise InputError(
                f"the trainer must train with {name}={value}, but its log says "
                f"{getattr(found, name)}; correct the command."
            )
    return found


def nothing_measured(found: ImportedRun, spec: RunSpec, path: Path) -> str:
    """Why a log has no score for the study, and the cure: its keys that were not understood."""
    sets = {s.problem_set for s in found.series if s.split == "validation"}
    if sets:
        return (
            f"the log's validation sets must be those of the study, but {path} scores "
            f"{', '.join(sorted(map(repr, sets)))} and the study has "
            f"{', '.join(map(repr, spec.validation))}; name them so under problems.validation."
        )
    key = likely_key(found.provenance.candidates)
    meaning = metric_named(key) if key != "KEY" else f"avg@{spec.evaluation_samples}"
    return (
        f"a log must hold a held-out score, but {path} has none{keys_there([found])}; where a key "
        f"holds it, write engine_options.map: {{{key}: {meaning}}} into the study file and add "
        "--retry-failed, else let the trainer evaluate sooner."
    )


def last_of(found: ImportedRun) -> int:
    """The last update that a log tells of."""
    return max((int(s.step_K[-1]) for s in found.series if s.step_K.size), default=0)


def tokens_of(found: ImportedRun) -> dict[int, int]:
    """Cumulative training tokens where the log says them."""
    return {
        int(step): round(float(tokens)) for s in found.series
        for step, tokens in zip(s.step_K, s.tokens_K, strict=True) if np.isfinite(tokens)
    }  # fmt: skip


def seconds_of(found: ImportedRun, steps: int) -> list[float]:
    """Seconds of each update up to `steps`; none where the log has none of training alone."""
    times = found.spent.times
    until_S = _until(times and times.of_training, steps)
    return [] if until_S is None else [float(each) for each in np.diff(until_S)]


def evaluated_s(found: ImportedRun, steps: int) -> Callable[[int, int], float]:
    """Seconds of evaluations after one step, up to another, as far as the log tells them apart."""
    times = found.spent.times
    until_S = _until(times, steps)
    alone_S = _until(times and times.of_training, steps)
    if until_S is None or alone_S is None or times is None or not times.clocked:
        return lambda _, __: 0.0
    tested_S = until_S - alone_S
    return lambda after, step: max(float(tested_S[step] - tested_S[after]), 0.0)


def _until(times: Times | None, steps: int) -> FloatArray | None:
    """Seconds up to each step, 0 to `steps`; None where there are none."""
    told = said_of(times, None)
    if not told:
        return None
    return gpu_hours(np.arange(steps + 1.0), told["s_per_step"], told["pace"]) * 3600


def scores_of(
    found: ImportedRun, spec: RunSpec, metric: str | None
) -> Iterator[tuple[int, str, int, IntArray]]:
    """(step, set, samples, successes) of every evaluation.

    A log that has outcomes under the study's problem ids gives them by problem. A mean over P
    problems and k samples gives P k single outcomes, of problems that are not known.

    Raises:
        InputError: scores that are no shares of successes, or several that could be meant.
    """
    for name, problems in spec.validation.items():
        series = _series(found, name, spec.validation, metric)
        if series is None:
            continue
        place = {p.id: i for i, p in enumerate(problems.problems)}
        outcomes = {
            o.step: o for o in found.outcomes
            if o.problem_set == series.problem_set and o.split == "validation"
            and len(o.problem_P) == len(place) and set(o.problem_P) == set(place)
        }
        k = series.metric.samples or spec.evaluation_samples
        for step, score in zip(series.step_K.tolist(), series.score_K.tolist(), strict=True):
            if not 0 <= score <= 1:
                raise InputError(
                    f"a score must be a share of successes in 0..1, but step {step} has "
                    f"{score:g}; log the accuracy (engine_options.metric names it)."
                )
            if step in outcomes:
                found_P = np.zeros(len(place), np.int64)
                for problem, count in zip(
                    outcomes[step].problem_P, outcomes[step].successes_P, strict=True
                ):
                    found_P[place[problem]] = count
                yield step, name, outcomes[step].samples, found_P
            else:
                drawn = k * len(problems)
                yield step, name, 1, (np.arange(drawn) < round(score * drawn)).astype(np.int64)


def _series(
    found: ImportedRun, name: str, sets: Mapping[str, Any], metric: str | None
) -> Series | None:
    """The mean on one validation set."""
    means = [s for s in found.series if s.split == "validation" and s.metric.kind == "avg"]
    named = [s for s in means if s.problem_set == name]
    if not named and len(sets) == 1 and len({s.problem_set for s in means}) == 1:
        named = means
    chosen = [s for s in named if metric in (None, s.metric.label)]
    if len(chosen) > 1 or (named and not chosen):
        labels = ", ".join(sorted(s.metric.label for s in named))
        raise InputError(
            f"one mean on {name!r} must be chosen, but the log has {labels} and "
            f"engine_options.metric is {metric!r}; name one of them there."
        )
    return chosen[0] if chosen else None
