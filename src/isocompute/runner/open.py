"""A study file with every generator of problems known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from isocompute.engines import (
    engine_target,
    load_engine,
    problem_generators,
    takes_whole_machine,
)
from isocompute.errors import InputError, NotInstalledError
from isocompute.runner.preflight import check_trainers
from isocompute.store.shared import pairs_begun
from isocompute.study import Study, load_study
from isocompute.study.held_out import refuse_shared_prompts
from isocompute.study.spec import on_cpu
from isocompute.study.sweep import QUARTERED


def open_study(
    path: str | Path, overrides: Sequence[str] = (), folder: str | Path | None = None
) -> Study:
    """Read a study file and ask every run's engine whether it can do it.

    Args:
        path: a YAML file.
        overrides: "key=value", dotted keys, YAML values.
        folder: where it trains. What was begun there goes on, even if it validates on prompts that
            it trains on; a new study may not, unless it allows it.

    Raises:
        InputError: one line, before anything is written or computed.
    """
    study = _read(path, overrides, folder)
    for name in sorted({spec.engine for spec in study.runs}):
        engine = load_engine(engine_target(name))
        for spec in study.runs:
            if spec.engine == name:
                engine.check(spec)
        if study.rates_at is not None and study.runs[0].engine == name:
            engine.check(replace(study.runs[0], allocation=study.rates_at))
    _refuse_other_gpus(study)
    study = _sliced(study)
    for spec in study.runs if len(study.slices) > 1 else ():
        if not getattr(load_engine(engine_target(spec.engine)), "goes_on", lambda _: True)(spec):
            raise InputError(
                "runs of a study in slices must go on where they stopped, but the engine "
                f"{spec.engine!r} is not told how; give engine_options.resume ([] if your trainer "
                "does so by itself), or write `slices: [1]` to train every run whole."
            )
    return study


def _refuse_other_gpus(study: Study) -> None:
    """The options of most engines say on how many GPUs a run trains; `rates` alone, of a command.

    Raises:
        InputError: both say it, and not alike.
    """
    said, spec = study.rates_by_batch.gpus, study.runs[0]
    by_cpu = on_cpu(spec.engine, spec.engine_options)
    if said is None or said == spec.gpus or (spec.gpus is None and not by_cpu):
        return
    where = "on the CPU" if by_cpu else f"on {spec.gpus}"
    raise InputError(
        f"`rates.gpus` must be the GPUs that a run trains on, but got {said}, and by "
        f"`engine_options` of {spec.engine!r} it trains {where}; remove `rates.gpus`, or make "
        "both equal."
    )


def _sliced(study: Study) -> Study:
    """With the slices of its engines, where its file names none."""
    if "slices" not in study.source and takes_whole_machine(s.engine for s in study.runs):
        # An adaptive sweep that trains whole runs could stop none of them.
        return replace(study, slices=(1.0,) if study.adaptive is None else QUARTERED)
    return study


def missing_trainer(study: Study) -> str | None:
    """What the Python that trains a study lacks on this machine; None: nothing."""
    try:
        check_trainers(study)
    except NotInstalledError as error:
        return str(error)
    return None


def planned_study(
    path: str | Path, overrides: Sequence[str] = (), folder: str | Path | None = None
) -> tuple[Study, str | None]:
    """The study of `open_study`, trained here or not, and what is missing to train it here.

    An engine that is not installed cannot say whether it can do the runs.

    Raises:
        InputError: as `open_study`.
    """
    try:
        return open_study(path, overrides, folder), None
    except NotInstalledError as error:
        return _read(path, overrides, folder), str(error)


def _read(path: str | Path, overrides: Sequence[str], folder: str | Path | None) -> Study:
    study = load_study(path, overrides=overrides, generators=problem_generators())
    refuse_shared_prompts(study, pairs_begun(folder))
    return study
