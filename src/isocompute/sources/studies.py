"""What is read out of a study folder: learning curves, recipes, rates.

Shape legend: K evaluations, C = samples + 1 possible numbers of successes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from isocompute.allocation import Rates, parse_budget
from isocompute.domain import Configuration, Curve
from isocompute.errors import InputError
from isocompute.importers.values.imported import ImportedRun
from isocompute.metrics import metric_table, parse_metric, score_from_counts
from isocompute.recipe import Recipe
from isocompute.store import Store, StoredRun
from isocompute.store.arms import Where, arm_labels, require_one_arm, select_runs, split_source
from isocompute.store.decisions import load_looks, resting_states
from isocompute.store.health import failed_rules
from isocompute.store.hours import gpu_hours_of, gpus_of, is_on_cpu, tested_s
from isocompute.store.sampled import samples_of
from isocompute.store.shared import pair_of, stored_shared
from isocompute.store.starts import start_s
from isocompute.study.evaluated import Evaluated
from isocompute.study.sweep import Study


class Found(NamedTuple):
    """Curves of the split that was asked for, those of the training batches, and their runs."""

    curves: list[Curve]
    train: Sequence[Curve] = ()
    runs: Sequence[StoredRun] = ()
    logs: Sequence[ImportedRun] = ()


def is_study(path: str | Path) -> bool:
    """Whether a folder is that of a study."""
    return (Path(path) / "study.db").is_file()


def study_curves(
    path: str | Path, where: Where, *, metric: str | None = None, problem_set: str | None = None,
    split: str | None = None, train: bool = False, gpus: int | None = None,
) -> Found:  # fmt: skip
    """One curve per run and problem set; a run whose weights never moved has none.

    Args:
        where: which runs, see `store.arms.select_runs`.
        metric: None: avg@ all samples; of training batches avg@1.
        problem_set: None: a curve on every one.
        split: "train": those of the training batches; else of validation.
        train: whether to give those of the training batches, too.
        gpus: of a run, where nothing says them.

    Raises:
        InputError: a selection of nothing, runs of several recipes, a metric of more samples
            than were drawn.
    """
    with Store(path) as store:
        every = store.runs()
        rests = resting_states(load_looks(store.database), every)
        runs = [run for run in every if run.state != "invalid"]
        runs = select_runs(path, runs, where)
        if len(set(arm_labels(runs))) > 1:  # one that was edited may have left runs without results
            runs = [run for run in runs if run.steps_done] or runs
        require_one_arm(path, runs)
        if split == "train":
            curves = list(_train_curves(store, runs, metric))
        else:
            seen = {(one.pair, one.validation): one.shared / one.validated
                    for one in stored_shared(store.database)}  # fmt: skip
            curves = [
                c.replace(is_frozen=rests.get(run.hash) == "frozen",
                          seen=seen.get((pair_of(run.spec, c.problem_set), c.problem_set), 0.0))
                for run in runs
                for c in _run_curves(store, run, metric, problem_set, gpus)
            ]  # fmt: skip
        return Found(curves, list(_train_curves(store, runs, None)) if train else [], runs)


def _run_curves(
    store: Store, run: StoredRun, metric: str | None, problem_set: str | None,
    usual: int | None = None,
) -> Iterator[Curve]:  # fmt: skip
    found = store.evaluations(run.hash, problem_set=problem_set)
    failed, hours_K = failed_rules(store, run), gpu_hours_of(store, run, usual)
    gpus = None if hours_K is None else gpus_of(store, run, usual)
    tested = None if hours_K is None else tested_s(store, run)
    if hours_K is not None and tested is not None:
        hours_K = hours_K + tested[: len(hours_K)] * (gpus or 1) / 3600
    begins_s = None if hours_K is None else start_s(store, run)
    for name in sorted(set(found.problem_set_K.tolist())):
        rows_K = np.flatnonzero(found.problem_set_K == name)
        samples = int(found.samples_K[rows_K].min())
        if int(found.samples_K[rows_K].max()) != samples:
            raise InputError(
                f"evaluations of one run must draw the same number of samples, but run {run.hash} "
                f"has {samples} and {int(found.samples_K[rows_K].max())}; ask for a new study."
            )
        counts_KC = found.counts_KC[rows_K, : samples + 1]
        problems = int(counts_KC.sum(axis=1).min())
        k = samples_of(run.spec, name, samples, problems)
        wanted = parse_metric(metric or f"avg@{k}")
        # Of single outcomes the mean is that of as many samples as there are, and nothing else is.
        table = metric_table(samples, "avg@1" if wanted.kind == "avg" and wanted.k <= k else wanted)
        yield Curve(
            **_identity(run),
            rollouts_K=found.rollouts_K[rows_K].astype(np.float64),
            score_K=counts_KC @ table / counts_KC.sum(axis=1),
            metric=str(wanted),
            problem_set=name,
            tokens_K=found.tokens_K[rows_K].astype(np.float64),
            steps_K=found.step_K[rows_K].astype(np.float64),
            gpu_hours_K=None if hours_K is None else hours_K[found.step_K[rows_K]],
            gpus=gpus,
            clocked=tested is not None,
            device="CPU" if hours_K is not None and is_on_cpu(run) else "",
            start_s=begins_s,
            trials=problems * (samples if wanted.kind == "avg" else 1),
            failed_rules=failed,
            validated_on=run.spec["validation"][name]["sha256"],
        )


def _train_curves(store: Store, runs: list[StoredRun], metric: str | None) -> Iterator[Curve]:
    """Scores on the training batches between two evaluations, where those rollouts were drawn.

    On-policy batches are samples of the policy before each update, so a window's mean stands at
    the mean of the rollouts drawn before its updates. A run without updates has none.
    """
    if not runs:  # of logs alone, whose metrics have names of their own
        return
    wanted = parse_metric(metric or "avg@1")
    for run in runs:
        steps = store.steps(run.hash)
        due_K = np.unique(store.evaluations(run.hash).step_K)
        window_K = np.searchsorted(due_K, steps.step_K, side="left")
        batch = configuration_of(run).batch_size
        points = []
        for window in np.unique(window_K):
            rows = np.flatnonzero(window_K == window)
            counts = np.concatenate([steps.successes[i] for i in rows])
            judged = np.concatenate([steps.judged[i] for i in rows])
            enough = judged >= min(wanted.k, int(steps.samples_K[rows].max(initial=0)))
            if not enough.any():
                continue
            points.append((
                (steps.rollouts_K[rows] - batch).mean(),
                score_from_counts(counts[enough], judged[enough], wanted),
                steps.tokens_K[rows].mean(),
                steps.step_K[rows].mean() - 1,
            ))  # fmt: skip
        if not points:
            continue
        rollouts_K, score_K, tokens_K, steps_K = np.array(points, dtype=np.float64).T
        yield Curve(
            **_identity(run),
            rollouts_K=rollouts_K,
            score_K=score_K,
            metric=str(wanted),
            problem_set=str(run.spec["train"]["name"]),
            split="train",
            tokens_K=tokens_K,
            steps_K=steps_K,
        )


def configuration_of(run: StoredRun) -> Configuration:
    """(B_p, n) of a stored run."""
    return Configuration(run.spec["problems_per_batch"], run.spec["rollouts_per_problem"])


def _identity(run: StoredRun) -> dict[str, Any]:
    return {**configuration_of(run)._asdict(), "run": run.hash, "seed": run.spec["seed"]}


class Extension(NamedTuple):
    """What adds runs to a study: its file, and what its runs say of the grid there."""

    path: str = "study.yaml"  # as a shell takes it
    problems_per_batch: frozenset[int] = frozenset()
    seeds: int = 0
    rollouts: float = 0.0  # that the longest run is to train
    is_adaptive: bool = False
    of_batches: bool = False  # its grid has `batch_size` instead
    evaluated: Evaluated | None = None  # how runs that it adds are


NO_STUDY_YET = Extension()  # the file of a sweep of one's own, which is not written yet


class StudyFacts(NamedTuple):
    """What the runs that a source selects of a study say beside their curves."""

    recipes: Sequence[Recipe] = ()  # the different ones
    file: Extension | None = None  # None: nothing of isocompute adds to the runs
    problems: int | None = None  # of their largest training set
    rates: Mapping[str, Any] = {}  # what the study file says of costs
    response_limit: int | None = None  # tokens at which responses are cut, where it says so
    target: float | None = None  # rollouts of the run that an adaptive sweep was to plan


def study_facts(source: str) -> StudyFacts:
    """Facts of a study; empty where a source holds no run that was trained here.

    The file is NAME.yaml beside the folder NAME, else a word for it.
    """
    path, where = split_source(source)
    if not is_study(path):
        return StudyFacts()
    with Store(path) as store:
        specs = [run.spec for run in select_runs(path, store.runs(), where)]
        content = store.info().get("source") or {}
        is_adaptive = bool(content.get("adaptive") or load_looks(store.database))
    rates = content.get("rates") or {}
    if not specs:
        return StudyFacts(rates=rates)
    records = [spec["recipe"] for spec in specs]
    beside = Path(f"{Path(path)}.yaml")
    return StudyFacts(
        recipes=[stored_recipe(r) for i, r in enumerate(records) if r not in records[:i]],
        file=Extension(
            path=shlex.quote(str(beside)) if beside.is_file() else "STUDY.yaml",
            problems_per_batch=frozenset(int(spec["problems_per_batch"]) for spec in specs),
            seeds=len({spec["seed"] for spec in specs}),
            rollouts=max(float(spec["steps"] * spec["problems_per_batch"]
                               * spec["rollouts_per_problem"]) for spec in specs),
            is_adaptive=is_adaptive,
            of_batches="batch_size" in (content.get("grid") or {}),
            evaluated=_evaluated(specs[0]),
        ),
        problems=max(int(spec["train"]["size"]) for spec in specs),
        rates=rates,
        response_limit=max((int(spec["engine_options"].get(word) or 0) for spec in specs
                            for word in ("max_new_tokens", "max_response_tokens")), default=0)
        or None,
        target=_target(content),
    )


def _evaluated(spec: Mapping[str, Any]) -> Evaluated:
    share = None
    if spec["engine"] == "verl":  # it evaluates every so many steps
        from isocompute.engines.verl import VerlOptions

        share = (spec.get("engine_options") or {}).get("validation_share")
        share = VerlOptions.validation_share if share is None else float(share)
    return Evaluated.of(spec, share)


def _target(content: Mapping[str, Any]) -> float | None:
    """None where the file gives none in rollouts."""
    given = content.get("adaptive")
    found = given.get("target") if isinstance(given, Mapping) else None
    budget = None if found is None else parse_budget(str(found))
    return budget.amount if budget is not None and budget.unit == "rollouts" else None


def stored_recipe(record: Mapping[str, Any]) -> Recipe:
    """A stored recipe; words that an older version wrote and this one has not are left out."""
    known = {f.name for f in fields(Recipe)}
    return Recipe(**{name: value for name, value in record.items() if name in known})


def with_study_rates(source: str | None, rates: Rates) -> Rates:
    """Fill the rates that nobody gave from the study file of a study folder.

    Rates by batch are those of earlier runs: what the study's own runs take says more of its
    batches than their mean does.
    """
    known = study_facts(source).rates if source else {}
    if known.get("by_batch"):
        known = {"usd_per_gpu_hour": known.get("usd_per_gpu_hour")}
    missing = {f.name: known.get(f.name) for f in fields(rates) if getattr(rates, f.name) is None}
    return replace(rates, **missing)


def with_own_start(study: Study, folder: str | Path) -> Study:
    """Fill what a start of the trainer takes, where the study file does not say, from its runs."""
    if study.rates_by_batch.gpu_hours_per_start is not None:
        return study
    with Store(folder) as store:
        known = [each * (gpus_of(store, run) or 1) / 3600 for run in store.runs()
                 if (each := start_s(store, run)) is not None]  # fmt: skip
    if not known:
        return study
    rates = replace(study.rates_by_batch, gpu_hours_per_start=median(known))
    return replace(study, rates_by_batch=rates)
