"""The command that designs a sweep. Heavy modules load inside."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute.cli.output import check_target, show, write_json
from isocompute.errors import InputError

if TYPE_CHECKING:
    from isocompute.allocation import Budget, Rates
    from isocompute.answers.price import Price
    from isocompute.design import Sweep, Trainer, Worlds
    from isocompute.design.kept import Kept
    from isocompute.domain import Configuration, Curve, Notice

Options = argparse.Namespace

# What guesses lost, and plans after sweeps, in planted worlds that have nothing to do with the
# shipped sweeps: 0.0181 and 0.0182, of 200 designs with 24 sweeps each (docs/lab-log.md).
_PUBLISHED_MODEL, _BOTH_LOST = "Qwen2.5-7B-Instruct", 0.018
_FEW = 100  # validation problems, 4 answers each: below, one evaluation is off by 0.025 and more
_MEASURED_S = 2.0  # seconds in which the embedded engine is timed


def design(options: Options) -> int:
    """Budget + prior -> a sweep with its price and worth, as a study file."""
    check_target(options.json, [options.prior] if options.prior else [])
    problem_files = [file for file in (options.train, options.validation) if file]
    check_target(options.output, problem_files, beside=options.json)
    from isocompute.answers.machines import on_gpus, times_scaled
    from isocompute.answers.price import priced
    from isocompute.design import (
        Asked,
        Limits,
        Trainer,
        design_lines,
        design_sweep,
        with_recipe,
    )
    from isocompute.design.simulate import SAMPLES
    from isocompute.domain import Configuration, notice

    if options.sweep and options.output is None:
        raise InputError("--sweep needs a file to write, but there is no -o; add -o sweep.yaml.")
    budget, notices = _budget(options), list[Any]()
    gpus = options.gpus[0] if options.gpus else budget.gpus
    source = _source(options)
    rates, origin = _rates(options, source)
    difficulty = _difficulty(options, notices)
    trainer = Trainer(
        engine=options.engine or "local", model=options.model, train=options.train,
        validation=options.validation, gpus=gpus, difficulty=difficulty or "easy",
        verifier=options.verifier, tokens=rates.tokens_per_rollout,
    )  # fmt: skip
    own = trainer.problems
    if options.problems is not None and own and options.problems > own:
        raise InputError(
            f"--problems must be at most what --train holds ({own}), but got {options.problems}; "
            "lower it."
        )
    problems = options.problems or own or None
    if options.output is not None:
        _check_file(options, trainer, problems)
    if difficulty is None:
        notices.append(notice("prior_alone" if source is None else "difficulty_assumed"))
    if source is None:  # no data of its own tells more: refused before worlds are made
        _check_budget(options, budget, rates, problems)
    worlds, curves = _prior(options, source, difficulty, notices)
    curves = on_gpus(curves, gpus)
    if rates.rollouts_per_gpu_hour is None:
        notices += times_scaled(curves, gpus)
    price = priced(curves, rates, origin)
    _check_hours(budget, price.rates)
    budget = _in_time(options, budget, price.rates, notices)
    trainer = replace(trainer, kept=_kept(
        options, source, difficulty, curves[0].configuration if curves else None, curves))
    limits = Limits(
        budget=budget.amount, unit=budget.unit, price=price, spend=options.spend, n_F=worlds.n_F,
        max_batch=options.max_batch, problems=problems, evaluated=trainer.evaluated,
        recipe=None if trainer.rate_known else trainer.recipe, slices=trainer.slices,
        share=trainer.share,
    )  # fmt: skip
    if options.output is not None and trainer.stands_in:
        notices.append(_stand_ins(trainer, options.engine is None))
    if trainer.train is not None and trainer.evaluated < _FEW:
        noise = 0.5 / (trainer.evaluated * SAMPLES) ** 0.5
        few: dict[str, Any] = {"problems": trainer.evaluated, "noise": noise, "wanted": _FEW}
        notices.append(notice("few_validation", **few))
    if options.output is not None and trainer.is_cut_later:
        notices.append(notice("longer_responses", limit=trainer.cut))
    asked = Asked(
        limits=limits, problems_per_batch=options.problems_per_batch,
        draws=options.draws, seed=options.seed, notices=tuple(notices),
        writes_sweep=options.sweep,
        plan=_planner(options, source, difficulty, worlds, rates, budget),
    )  # fmt: skip
    runs, document = design_sweep(worlds, asked)
    chosen = Configuration(*(document["final"][k] for k in Configuration._fields))
    trainer = replace(trainer, kept=_kept(options, source, difficulty, chosen, curves))
    document |= with_recipe(document, trainer.kept)
    document["worth"]["across_models"] = None if source else {
        "without": _BOTH_LOST, "after": _BOTH_LOST}  # fmt: skip
    document |= {
        "engine": trainer.engine, "gpus": gpus, "difficulty": difficulty, "written": None,
        "learning_rate": trainer.learning_rate,
    }  # fmt: skip
    for part in filter(None, (document[name] for name in ("sweep", "lr_sweep", "final"))):
        paid = part["cost"]["gpu_hours"]
        part["hours"] = None if gpus is None or paid is None else paid / gpus
    if options.output is not None:
        swept = document["answer"] == "sweep" or options.sweep
        document["written"] = "sweep" if swept else "run"
        n = document["final"]["rollouts_per_problem"]
        written = runs.sweep if swept else runs.final
        final = limits.final(runs.sweep, n, limits.left(runs.sweep)) if swept else runs.final
        document |= _written(
            options, runs.sweep, trainer, price=price, problems=options.problems,
            final=final.rollouts if swept else final,
            tried=runs.tried or limits.tried(written, trainer.recipe),
        )  # fmt: skip
    write_json(document, options.json)
    shown = {**document, "study": options.output and shlex.quote(options.output)}
    show(design_lines(shown, why=options.why), quiet=options.json == "-")
    return 0


def _source(options: Options) -> str | None:
    """The prior, narrowed by --where."""
    if options.prior is None and options.where:
        raise InputError(
            f"--where chooses runs of --prior, but got --where {options.where[0]} without it; add "
            "--prior, or drop --where."
        )
    from isocompute.store.arms import with_where

    return None if options.prior is None else with_where(options.prior, options.where)


def _difficulty(options: Options, notices: list[Notice]) -> str | None:
    """As it was said, else by the pass rates that the training problems bring, all of them."""
    asked = str(options.difficulty) if options.difficulty else None
    if options.train is None:
        return asked
    from isocompute.difficulty import recommend
    from isocompute.domain import notice
    from isocompute.problems import load_problems

    rates = [p.pass_rate for p in load_problems(options.train, verifier=options.verifier).problems]
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        return asked
    advice = recommend(known)
    mean = sum(known) / len(known)
    if asked is not None:
        if asked != advice.name:
            against: dict[str, Any] = {"difficulty": asked, "found": advice.name, "rate": mean}
            notices.append(notice("difficulty_against_file", **against))
        return asked
    notices.append(notice("difficulty_of_file", difficulty=advice.name, rate=mean))
    notices += advice.notices
    return advice.name


def _check_file(options: Options, trainer: Trainer, problems: int | None) -> None:
    """What needs no simulation, before it: engine, machines, problem files, verifier.

    Raises:
        InputError: as `run` would of the file that will be written.
    """
    from isocompute.answers.price import Price
    from isocompute.design import Sweep, write_study
    from isocompute.design.candidates import check_problems, starting_bp
    from isocompute.design.prior import SHIPPED_BP, SHIPPED_N
    from isocompute.runner import planned_study

    # Any machines that divide a batch of the study divide the largest.
    b_p, n = starting_bp(options.problems_per_batch or SHIPPED_BP, problems), SHIPPED_N[-1]
    check_problems(problems, b_p)
    probe = Sweep(problems_per_batch=b_p, rollouts_per_problem=(n,), seeds=1,
                  rollouts_per_run=b_p * n)  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="isocompute-") as folder:
        path = Path(folder) / Path(options.output).name
        write_study(path, probe, trainer, final=probe, problems=options.problems, price=Price())
        planned_study(path)


def _check_budget(
    options: Options, budget: Budget, rates: Rates, problems: int | None
) -> None:
    """What holds no final run at all, of the shipped sweeps.

    Raises:
        InputError: as `design_sweep` would, seconds later.
    """
    from isocompute.answers.price import priced
    from isocompute.design import Limits
    from isocompute.design.candidates import check_limits, starting_bp
    from isocompute.design.prior import SHIPPED_BP, SHIPPED_N

    _check_hours(budget, rates)
    limits = Limits(
        budget=budget.amount, unit=budget.unit, price=priced([], rates, {}), spend=options.spend,
        n_F=SHIPPED_N, max_batch=options.max_batch, problems=problems,
    )  # fmt: skip
    check_limits(limits, options.problems_per_batch or starting_bp(SHIPPED_BP, problems))


def _budget(options: Options) -> Budget:
    """Of --budget, else of --gpus and --hours."""
    from isocompute.allocation import Budget, parse_budget

    given = {"--gpus": options.gpus, "--hours": options.hours}
    missing = [name for name, value in given.items() if value is None]
    if options.budget is not None:
        if options.hours is not None and options.gpus is None:
            raise InputError(
                "a deadline is that of machines, but got --hours without --gpus; add --gpus."
            )
        return parse_budget(options.budget)
    if missing:
        there = "".join(set(given) - set(missing)) or "neither"
        raise InputError(
            f"a design needs --budget, or --gpus and --hours, but got {there}; add "
            f"{'--budget' if there == 'neither' else missing[0]}."
        )
    count, kind = options.gpus
    if options.rollouts_per_gpu_hour is None and options.prior is None:
        raise InputError(
            f"GPU-hours need the rollouts that a GPU trains on in an hour, but none is known for "
            f"{kind or 'these GPUs'}; add --rollouts-per-gpu-hour (B_p x n x steps / (GPUs x "
            "hours) of your last run, or of ten steps), or --prior with a study whose runs were "
            "timed."
        )
    return Budget(amount=count * options.hours, unit="gpu_hours")


def _in_time(options: Options, budget: Budget, rates: Rates, notices: list[Notice]) -> Budget:
    """The budget, or what the machines train in their hours, if that is less."""
    from isocompute.allocation import Budget
    from isocompute.domain import notice

    if options.budget is None or options.hours is None:
        return budget
    (gpus, _), hours = options.gpus, options.hours
    time = Budget(amount=gpus * hours, unit="gpu_hours")
    _check_hours(time, rates)
    share = rates.rollouts(time) / rates.rollouts(budget)
    if share >= 1:
        return budget
    notices.append(notice("deadline_binds", gpus=gpus, hours=hours, share=share))
    return time


def _check_hours(budget: Budget, rates: Rates) -> None:
    """Refuse GPU-hours and money where nobody knows what a rollout takes of them."""
    said = {"gpu_hours": "GPU-hours", "usd": "money"}.get(budget.unit)
    unpriced = budget.unit == "usd" and rates.usd_per_gpu_hour is None
    if said and rates.rollouts_per_gpu_hour is None:
        also, none, and_add = (
            (" and the price of a GPU-hour", "neither", " and --usd-per-gpu-hour")
            if unpriced else ("", "none", ""))  # fmt: skip
        raise InputError(
            f"a budget in {said} needs the rollouts that a GPU trains on in an hour{also}, but "
            f"{none} is known; add --rollouts-per-gpu-hour (your last run: B_p x n x steps / GPUs "
            f"/ hours){and_add}, name a --prior whose runs were timed, or give the budget in "
            "rollouts."
        )


def _rates(options: Options, source: str | None) -> tuple[Rates, dict[str, str]]:
    """Rates given, then those of the prior's study file."""
    from isocompute.allocation import Rates
    from isocompute.sources.studies import with_study_rates

    names = ("tokens_per_rollout", "rollouts_per_gpu_hour", "usd_per_gpu_hour")
    given = Rates(**{name: getattr(options, name) for name in names})
    filled = with_study_rates(source, given)
    of_study = [n for n in names if getattr(filled, n) != getattr(given, n)]
    return filled, dict.fromkeys(of_study, "study")


def _prior(
    options: Options, source: str | None, difficulty: str | None, notices: list[Notice]
) -> tuple[Worlds, list[Any]]:
    """Worlds, and the curves of an earlier study."""
    from isocompute.design import shipped_worlds, worlds_needed, worlds_of
    from isocompute.domain import notice
    from isocompute.sources import load_curves

    wanted, size = options.metric, worlds_needed(options.draws)
    if source is None:
        if wanted not in (None, "avg@4"):
            raise InputError(
                f"the shipped sweeps hold avg@4, but got --metric {wanted}; name a study that "
                "holds it with --prior."
            )
        notices.append(notice("prior_of_others", model=_PUBLISHED_MODEL, lost=_BOTH_LOST))
        return shipped_worlds(difficulty, size, options.seed, options.problems_per_batch), []
    curves = load_curves([source], metric=wanted, problem_set=options.problem_set)
    metric = curves[0].metric
    if wanted is None and metric.startswith(("best", "worst")):
        raise InputError(
            f"a prior must hold the metric to plan for, avg@k, but {source} holds {metric}; "
            f"add --metric {metric} to plan for that, or name another study."
        )
    b_p = options.problems_per_batch
    return worlds_of(curves, source, size, options.seed, b_p), curves


def _kept(
    options: Options, source: str | None, difficulty: str | None, chosen: Configuration | None,
    curves: Sequence[Curve],
) -> Kept:  # fmt: skip
    """The recipe of the prior's runs."""
    from isocompute.design.kept import Kept, kept_recipe

    if chosen is None:
        return Kept()
    given = options.difficulty is not None
    return kept_recipe(curves, source, difficulty, chosen, given=given)


def _planner(
    options: Options, source: str | None, difficulty: str | None, worlds: Worlds, rates: Rates,
    budget: Budget,
) -> Callable[[float], Configuration | None]:  # fmt: skip
    """What `plan` makes of an amount, from the same prior."""
    from isocompute.answers.around import PUBLISHED
    from isocompute.answers.plan import plan_from_source
    from isocompute.domain import Configuration

    of_panel = len(worlds.sources) == 1 and source is None
    panel = worlds.sources[0] if of_panel else PUBLISHED[difficulty or "easy"]

    def plan(amount: float) -> Configuration | None:
        with contextlib.suppress(InputError):
            found = plan_from_source(
                source or panel, budget=replace(budget, amount=amount), rates=rates,
                fit=worlds.fit, problems=options.problems, max_batch_size=options.max_batch,
            )  # fmt: skip
            if found.refusal is not None:
                raise found.refusal
            if found.allocation is not None:
                a = found.allocation
                return Configuration(a.problems_per_batch, a.rollouts_per_problem)
        return None

    return plan


def _stand_ins(trainer: Trainer, any_engine: bool) -> Notice:
    from isocompute.domain import notice

    lacks = {"problems": trainer.train is None, "the model": trainer.model is None}
    flags = {"--engine": any_engine, "--train": lacks["problems"], "--model": lacks["the model"]}
    return notice(
        "stand_ins",
        what=" and ".join(word for word, is_missing in lacks.items() if is_missing),
        options=", ".join(flag for flag, is_missing in flags.items() if is_missing),
    )


def _written(
    options: Options, sweep: Sweep, trainer: Trainer, *, price: Price, **more: Any
) -> dict[str, Any]:
    """Write the study file, read it back as `run` would, and time the embedded engine."""
    from isocompute.design import write_study
    from isocompute.runner import calibrate, planned_study
    from isocompute.study.cost import study_cost, time_words

    path = Path(options.output)
    before = path.read_bytes() if path.is_file() else None
    write_study(path, sweep, trainer, price=price, **more)
    found: dict[str, Any] = {"study": options.output, "lacks": None}
    try:
        study, found["lacks"] = planned_study(path)
    except Exception:
        # Never leave a file that `run` refuses, nor lose the one that was there.
        path.unlink() if before is None else path.write_bytes(before)
        raise
    # With a rate the cost is in GPU-hours already, of other machines than this one.
    timed = trainer.engine == "local" and found["lacks"] is None
    if timed and price.rates.rollouts_per_gpu_hour is None:
        workers = os.cpu_count() or 1
        with contextlib.suppress(Exception):  # the price alone would be missing
            cost = study_cost(study, calibrate(study, seconds=_MEASURED_S), workers=workers)
            long = time_words(cost.wall_s or 0.0)
            found["time"] = f"{long} on the {workers} cores of this machine, by a short probe"
            found["wall_s"] = cost.wall_s
    return found
