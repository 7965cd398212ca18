"""The command that designs a sweep. Heavy modules load inside."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute.cli.design_budget import budget_of, check_hours, in_time, rates_of
from isocompute.cli.output import check_target, show, write_json
from isocompute.errors import InputError

if TYPE_CHECKING:
    from isocompute.allocation import Budget, Rates
    from isocompute.answers.price import Price
    from isocompute.design import Limits, Trainer, Worlds
    from isocompute.design.choose import Runs
    from isocompute.design.kept import Kept
    from isocompute.domain import Configuration, Curve, Notice

Options = argparse.Namespace

SPEND = 0.15  # of the budget, for the sweep: the share with which the losses below were tested
# What guesses lost, and plans after sweeps, in planted worlds that have nothing to do with the
# shipped sweeps: 0.0181 in 76 designs, 0.0177 in 67, by the shipped prior (docs/lab-log.md).
_PUBLISHED_MODEL, _BOTH_LOST = "Qwen2.5-7B-Instruct", 0.018
_FEW = 100  # validation problems, 4 answers each: below, one evaluation is off by 0.025 and more
_MEASURED_S = 2.0  # seconds in which the embedded engine is timed


@dataclass(frozen=True, kw_only=True)
class _Case:
    """What a design is for."""

    options: Options
    budget: Budget
    source: str | None  # of the prior, narrowed by --where; None: the shipped sweeps
    rates: Rates
    origin: dict[str, str]  # of rates that nobody gave
    difficulty: str | None
    trainer: Trainer
    problems: int | None  # of the training set
    notices: list[Notice]


def design(options: Options) -> int:
    """Budget + prior -> a sweep with its price and worth, as a study file."""
    check_target(options.json, [options.prior] if options.prior else [])
    problem_files = [file for file in (options.train, options.validation) if file]
    check_target(options.output, problem_files, beside=options.json)
    from isocompute.answers.machines import on_gpus
    from isocompute.design import Asked, Limits, design_lines, design_sweep, with_recipe
    from isocompute.domain import Configuration

    case = _given(options)
    worlds, curves = _prior(case)
    curves = on_gpus(curves, case.trainer.gpus)
    case, price = _priced(case, curves)
    trainer = case.trainer
    limits = Limits(
        budget=case.budget.amount, unit=case.budget.unit, price=price, spend=options.spend,
        n_F=worlds.n_F, max_batch=options.max_batch, problems=case.problems,
        evaluated=trainer.evaluated, recipe=None if trainer.rate_known else trainer.recipe,
        slices=trainer.slices, share=trainer.share,
    )  # fmt: skip
    asked = Asked(
        limits=limits, problems_per_batch=options.problems_per_batch,
        draws=options.draws, seed=options.seed, notices=(*case.notices, *_doubts(case)),
        writes_sweep=options.sweep, plan=_planner(case, worlds),
    )  # fmt: skip
    runs, document = design_sweep(worlds, asked)
    chosen = Configuration(*(document["final"][k] for k in Configuration._fields))
    trainer = replace(trainer, kept=_kept(case, chosen, curves))
    document |= with_recipe(document, trainer.kept)
    document |= {
        "engine": trainer.engine, "gpus": trainer.gpus, "difficulty": case.difficulty,
        "written": None, "lacks": None, "time": None, "wall_s": None,
        "learning_rate": trainer.learning_rate,
    }  # fmt: skip
    document["worth"]["across_models"] = None if case.source else {
        "without": _BOTH_LOST,  # sweeps of another part of the budget were not tried
        "after": _BOTH_LOST if options.spend == SPEND else None}  # fmt: skip
    for part in filter(None, (document[name] for name in ("sweep", "lr_sweep", "final"))):
        paid = part["cost"]["gpu_hours"]
        part["hours"] = None if trainer.gpus is None or paid is None else paid / trainer.gpus
    if options.output is not None:
        document |= _written(options, document, runs, limits, trainer)
    write_json(document, options.json)
    shown = {**document, "study": options.output and shlex.quote(options.output)}
    show(design_lines(shown, why=options.why), quiet=options.json == "-")
    return 0


def _given(options: Options) -> _Case:
    """What the options say, checked as far as that needs no simulation."""
    from isocompute.design import Trainer
    from isocompute.domain import notice

    if options.sweep and options.output is None:
        raise InputError("--sweep needs a file to write, but there is no -o; add -o sweep.yaml.")
    budget, notices = budget_of(options), list[Any]()
    source = _source(options)
    rates, origin = rates_of(options, source)
    difficulty = _difficulty(options, notices)
    own = "local" if options.trained_by is None else "command"
    trainer = Trainer(
        engine=options.engine or own, model=options.model, train=options.train,
        command=options.trained_by, resume=options.resumed_by,
        validation=options.validation, gpus=options.gpus[0] if options.gpus else budget.gpus,
        difficulty=difficulty or "easy", verifier=options.verifier, tokens=rates.tokens_per_rollout,
    )  # fmt: skip
    held = trainer.problems
    if options.problems is not None and held and options.problems > held:
        raise InputError(
            f"--problems must be at most what --train holds ({held}), but got {options.problems}; "
            "lower it."
        )
    problems = options.problems or held or None
    if options.output is not None:
        _check_file(options, trainer, problems)
    if difficulty is None:
        notices.append(notice("prior_alone" if source is None else "difficulty_assumed"))
    if source is None:  # no data of its own tells more: refused before worlds are made
        _check_budget(options, budget, rates, problems)
    return _Case(options=options, budget=budget, source=source, rates=rates, origin=origin,
                 difficulty=difficulty, trainer=trainer, problems=problems,
                 notices=notices)  # fmt: skip


def _priced(case: _Case, curves: Sequence[Curve]) -> tuple[_Case, Price]:
    """What rollouts cost; and the case with what is affordable and the prior's own recipe."""
    from isocompute.answers.machines import times_scaled
    from isocompute.answers.price import priced

    if case.rates.rollouts_per_gpu_hour is None:
        case.notices.extend(times_scaled(curves, case.trainer.gpus))
    price = priced(curves, case.rates, case.origin)
    check_hours(case.budget, price.rates)
    budget = in_time(case.options, case.budget, price.rates, case.notices)
    first = curves[0].configuration if curves else None
    trainer = replace(case.trainer, kept=_kept(case, first, curves))
    return replace(case, budget=budget, trainer=trainer), price


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

    check_hours(budget, rates)
    limits = Limits(
        budget=budget.amount, unit=budget.unit, price=priced([], rates, {}), spend=options.spend,
        n_F=SHIPPED_N, max_batch=options.max_batch, problems=problems,
    )  # fmt: skip
    check_limits(limits, options.problems_per_batch or starting_bp(SHIPPED_BP, problems))


def _prior(case: _Case) -> tuple[Worlds, list[Curve]]:
    """Worlds, and the curves of an earlier study."""
    from isocompute.design import shipped_worlds, worlds_needed, worlds_of
    from isocompute.domain import notice
    from isocompute.sources import load_curves

    options, source = case.options, case.source
    wanted, size, b_p = options.metric, worlds_needed(options.draws), options.problems_per_batch
    if source is None:
        if wanted not in (None, "avg@4"):
            raise InputError(
                f"the shipped sweeps hold avg@4, but got --metric {wanted}; name a study that "
                "holds it with --prior."
            )
        case.notices.append(notice("prior_of_others", model=_PUBLISHED_MODEL, lost=_BOTH_LOST))
        return shipped_worlds(case.difficulty, size, options.seed, b_p), []
    curves = load_curves([source], metric=wanted, problem_set=options.problem_set)
    metric = curves[0].metric
    if wanted is None and metric.startswith(("best", "worst")):
        raise InputError(
            f"a prior must hold the metric to plan for, avg@k, but {source} holds {metric}; "
            f"add --metric {metric} to plan for that, or name another study."
        )
    return worlds_of(curves, source, size, options.seed, b_p), curves


def _kept(case: _Case, chosen: Configuration | None, curves: Sequence[Curve]) -> Kept:
    """The recipe of the prior's runs."""
    from isocompute.design.kept import Kept, kept_recipe

    if chosen is None:
        return Kept()
    given = case.options.difficulty is not None
    return kept_recipe(curves, case.source, case.difficulty, chosen, given=given)


def _planner(case: _Case, worlds: Worlds) -> Callable[[float], Configuration | None]:
    """What `plan` makes of an amount, from the same prior."""
    from isocompute.answers.around import PUBLISHED
    from isocompute.answers.plan import plan_from_source
    from isocompute.domain import Configuration

    of_panel = len(worlds.sources) == 1 and case.source is None
    panel = worlds.sources[0] if of_panel else PUBLISHED[case.difficulty or "easy"]
    options = case.options

    def plan(amount: float) -> Configuration | None:
        with contextlib.suppress(InputError):
            found = plan_from_source(
                case.source or panel, budget=replace(case.budget, amount=amount), rates=case.rates,
                fit=worlds.fit, problems=options.problems, max_batch_size=options.max_batch,
            )  # fmt: skip
            if found.refusal is not None:
                raise found.refusal
            if found.allocation is not None:
                a = found.allocation
                return Configuration(a.problems_per_batch, a.rollouts_per_problem)
        return None

    return plan


def _doubts(case: _Case) -> Iterator[Notice]:
    """What to know of the problems, the model and the lengths that the study will have."""
    from isocompute.domain import notice
    from isocompute.study.evaluated import SAMPLES

    options, trainer = case.options, case.trainer
    if options.output is not None and trainer.stands_in:
        own = trainer.engine == "command"
        problems = "the sizes of your problem sets" if own else "problems"
        lacks = {problems: trainer.train is None, "the model": not own and trainer.model is None}
        flags = {"--engine": not own and options.engine is None, "--train": lacks[problems],
                 "--model": lacks["the model"]}  # fmt: skip
        what, cure = ([word for word, lacking in of.items() if lacking] for of in (lacks, flags))
        yield notice("stand_ins", what=" and ".join(what), options=", ".join(cure))
    if trainer.train is not None and trainer.evaluated < _FEW:
        noise = 0.5 / (trainer.evaluated * SAMPLES) ** 0.5
        yield notice("few_validation", problems=trainer.evaluated, noise=noise, wanted=_FEW)
    if options.output is not None and trainer.is_cut_later:
        yield notice("longer_responses", limit=trainer.cut)


def _written(
    options: Options, document: dict[str, Any], runs: Runs, limits: Limits, trainer: Trainer
) -> dict[str, Any]:
    """Write the study file, read it back as `run` would, and time the embedded engine."""
    from isocompute.design import write_study
    from isocompute.runner import calibrate, missing_trainer, planned_study
    from isocompute.study.cost import study_cost, time_words

    swept = document["answer"] == "sweep" or options.sweep
    written = runs.sweep if swept else runs.final
    n = document["final"]["rollouts_per_problem"]
    final = limits.final(runs.sweep, n, limits.left(runs.sweep)) if swept else runs.final
    path = Path(options.output)
    before = path.read_bytes() if path.is_file() else None
    write_study(
        path, runs.sweep, trainer, price=limits.price, problems=options.problems,
        final=final.rollouts if swept else final,
        tried=runs.tried or limits.tried(written, trainer.recipe),
    )  # fmt: skip
    found: dict[str, Any] = {"written": "sweep" if swept else "run", "study": options.output}
    try:
        study, found["lacks"] = planned_study(path)
        if found["lacks"] is None and trainer.engine == "command":
            found["lacks"] = missing_trainer(study)  # what is still to be filled in
    except Exception:
        # Never leave a file that `run` refuses, nor lose the one that was there.
        path.unlink() if before is None else path.write_bytes(before)
        raise
    # With a rate the cost is in GPU-hours already, of other machines than this one.
    timed = trainer.engine == "local" and found["lacks"] is None
    if timed and limits.price.rates.rollouts_per_gpu_hour is None:
        workers = os.cpu_count() or 1
        with contextlib.suppress(Exception):  # the price alone would be missing
            cost = study_cost(study, calibrate(study, seconds=_MEASURED_S), workers=workers)
            long = time_words(cost.wall_s or 0.0)
            found["time"] = f"{long} on the {workers} cores of this machine, by a short probe"
            found["wall_s"] = cost.wall_s
    return found
