"""A study's records -> what the report shows of them.

Budgets are compared only where every configuration has data: the common budgets run from the
first evaluation after step 0 to the least of the configurations' largest budgets.

Shape legend: K evaluations or steps, C = samples + 1 possible numbers of successes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.health import METRICS as HEALTH_METRICS
from isocompute.interference import study_interference
from isocompute.metrics import score_from_histogram
from isocompute.store.arms import select_runs, split_source
from isocompute.store.decisions import load_looks, resting_states
from isocompute.store.health import steps_health

if TYPE_CHECKING:
    from isocompute.store import Evaluations, Steps, Store, StoredRun
    from isocompute.study.adaptive import Look

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Pair = tuple[int, int]

_HEALTH_POINTS = 80  # means per line of a health panel, evenly spaced in log rollouts
_LANDSCAPE_STEPS = 16


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """Everything of a study that the report draws, as plain values.

    Args:
        name: of the study.
        runs: per run: run, problems_per_batch, rollouts_per_problem, seed, state, rollouts,
            evaluation_rollouts, tokens, wall_s, cost_usd, attempts.
        health: per metric name, per run: {"bp", "n", "run", "x": rollouts, "y": values}.
        landscapes: per budget: {"rollouts", "groups": [{"bp", "n", "samples", "problems",
            "counts": problems by number of successes 0..samples}]}.
        scores: per metric name: [{"bp", "n", "value", "interval", "n_runs"}] at `scores_at`.
        scores_at: rollouts at which `scores` compares.
        train_test: per configuration: {"bp", "n", "x", "train", "validation"}.
        interference: document of `interference.study_interference`, or None.
        difficulty: {"name", "samples", "counts"} of the base model, or None.
        accounting: `Store.accounting().to_dict()`, or {}.
        problem_set: validation set behind landscapes and scores.
        provenance: versions, hashes, seeds, commands.
        warnings: {"code", "message"} rows of the study itself.
        looks: what an adaptive study has decided.
    """

    name: str
    runs: Sequence[Mapping[str, Any]] = ()
    health: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    landscapes: Sequence[Mapping[str, Any]] = ()
    scores: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    scores_at: float | None = None
    train_test: Sequence[Mapping[str, Any]] = ()
    interference: Mapping[str, Any] | None = None
    difficulty: Mapping[str, Any] | None = None
    accounting: Mapping[str, Any] = field(default_factory=dict)
    problem_set: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[Mapping[str, str]] = ()
    looks: Sequence[Look] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the page; provenance and warnings are written as words instead."""
        return {
            "name": self.name,
            "runs": list(self.runs),
            "health": dict(self.health),
            "landscapes": list(self.landscapes),
            "scores": dict(self.scores),
            "scores_at": self.scores_at,
            "train_test": list(self.train_test),
            "difficulty": self.difficulty,
        }


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One run's records of one validation set, step 0 first."""

    stored: StoredRun
    pair: Pair
    label: str
    steps: Steps
    rollouts_K: IntArray
    step_K: IntArray
    counts_KC: IntArray

    def reaches(self, rollouts: float) -> bool:
        """Whether it was evaluated there or later: one that ended before is of less compute."""
        return bool(self.rollouts_K[-1] >= rollouts * (1 - 1e-9))

    def at(self, rollouts: float) -> IntArray:
        """Counts of the last evaluation at or before `rollouts`."""
        index = int(np.searchsorted(self.rollouts_K, rollouts * (1 + 1e-9), side="right")) - 1
        return np.asarray(self.counts_KC[max(index, 0)], dtype=np.int64)


def study_view(study: Any, *, problem_set: str | None = None) -> StudyView:
    """The view of a study: a `StudyView` as it is, or read from a store or its folder.

    Args:
        study: view, store, or folder of a study, with a selection of its runs where wanted.
        problem_set: validation set to show; None: the first by name that was evaluated most.

    Raises:
        InputError: if there is no study in the folder.
    """
    if isinstance(study, StudyView):
        return study
    if isinstance(study, str | Path):
        from isocompute.store import Store

        path, where = split_source(str(study))
        with Store(path) as store:
            view = _read(store, problem_set or where.get("problem_set"), where)
        return replace(view, interference=_interference(study, view.problem_set))
    view = _read(study, problem_set, {})
    return replace(view, interference=_interference(study.folder, view.problem_set))


def _interference(source: str | Path, problem_set: str) -> Mapping[str, Any] | None:
    """None where the records do not say how progress spreads, or hold several arms."""
    try:
        return study_interference(source, problem_set=problem_set or None)
    except InputError:
        return None


def _read(store: Store, problem_set: str | None, where: Mapping[str, str]) -> StudyView:
    every, looks = store.runs(), load_looks(store.database)
    stored, rests = select_runs(store.folder, every, where), resting_states(looks, every)
    evaluations = store.evaluations()
    chosen = problem_set or _most_evaluated(evaluations)
    runs = [_run(store, run, evaluations, chosen) for run in stored]
    shown = [run for run in runs if len(run.rollouts_K)]
    budgets = _common_budgets(shown)
    accounting = store.accounting().to_dict()
    return StudyView(
        name=store.name or Path(store.folder).name,
        runs=[_row(run, rests.get(run.stored.hash)) for run in runs],
        health=_health(runs),
        landscapes=_landscapes(shown, budgets),
        scores=_scores(shown, budgets[-1]) if budgets else {},
        scores_at=budgets[-1] if budgets else None,
        train_test=_train_test(shown),
        difficulty=_difficulty(store, stored),
        accounting=accounting,
        problem_set=chosen or "",
        provenance=_provenance(stored),
        warnings=_warnings(runs),
        looks=looks,
    )


def _most_evaluated(evaluations: Evaluations) -> str | None:
    names = [str(name) for name in evaluations.problem_set_K]
    return max(sorted(set(names)), key=names.count) if names else None


def _run(store: Store, run: StoredRun, evaluations: Evaluations, problem_set: str | None) -> _Run:
    mine = (evaluations.run_K == run.hash) & (evaluations.problem_set_K == problem_set)
    spec = run.spec
    pair = (int(spec["problems_per_batch"]), int(spec["rollouts_per_problem"]))
    return _Run(
        stored=run,
        pair=pair,
        label=f"{pair[0]} × {pair[1]}, seed {spec.get('seed')} ({run.hash[:6]})",
        steps=store.steps(run.hash),
        rollouts_K=evaluations.rollouts_K[mine],
        step_K=evaluations.step_K[mine],
        counts_KC=_trimmed(evaluations.counts_KC[mine], evaluations.samples_K[mine]),
    )


def _trimmed(counts_KC: IntArray, samples_K: IntArray) -> IntArray:
    size = int(samples_K.max()) + 1 if samples_K.size else counts_KC.shape[1]
    return np.asarray(counts_KC[:, :size], dtype=np.int64)


def _row(run: _Run, rests: str | None) -> dict[str, Any]:
    stored = run.stored
    state = rests or stored.state
    return {
        "run": run.label,
        "problems_per_batch": run.pair[0],
        "rollouts_per_problem": run.pair[1],
        "seed": stored.spec.get("seed"),
        "state": state + (f": {stored.reason}" if stored.reason else ""),
        "rollouts": stored.rollouts,
        "evaluation_rollouts": stored.evaluation_rollouts,
        "wasted_rollouts": stored.wasted_rollouts,
        "tokens": stored.tokens,
        "wall_s": stored.wall_s,
        "attempts": stored.attempts,
    }


def _means(x: FloatArray, y: FloatArray) -> tuple[list[float], list[float | None]]:
    """Means over at most `_HEALTH_POINTS` stretches of steps, evenly spaced in log x."""
    place = np.log(np.maximum(x, 1.0))
    edges = np.linspace(place[0], place[-1], _HEALTH_POINTS)[1:-1]
    blocks = np.split(np.arange(x.size), np.searchsorted(place, edges, side="right"))
    kept = [block for block in blocks if block.size]
    means = [float(np.mean(y[block])) for block in kept]
    return (
        [float(x[block[-1]]) for block in kept],
        [m if math.isfinite(m) else None for m in means],
    )


def _health(runs: Iterable[_Run]) -> dict[str, list[dict[str, Any]]]:
    panels: dict[str, list[dict[str, Any]]] = {}
    for name in HEALTH_METRICS:
        for run in runs:
            values = run.steps.health.get(name)
            if values is None or not np.isfinite(values).any():
                continue
            there = ~np.isnan(values)  # some numbers are not measured in every step
            x, y = _means(run.steps.rollouts_K[there].astype(np.float64), values[there])
            panels.setdefault(name, []).append(
                {"bp": run.pair[0], "n": run.pair[1], "run": run.label, "x": x, "y": y}
            )
    return panels


def _common_budgets(runs: Sequence[_Run]) -> list[float]:
    """Up to 16 budgets, evenly spaced in log, at which every configuration has data."""
    first: dict[Pair, float] = {}
    last: dict[Pair, float] = {}
    for run in runs:
        positive = run.rollouts_K[run.rollouts_K > 0]
        if positive.size:
            first[run.pair] = min(first.get(run.pair, math.inf), float(positive[0]))
            last[run.pair] = max(last.get(run.pair, 0.0), float(positive[-1]))
    if not first:
        return []
    low, high = max(first.values()), min(last.values())
    if low >= high:
        return [high]
    inside = sorted(
        {float(v) for run in runs for v in run.rollouts_K if low <= v <= high} | {low, high}
    )
    wanted = np.geomspace(low, high, min(len(inside), _LANDSCAPE_STEPS))
    nearest = {min(inside, key=lambda v, w=w: abs(math.log(v / w))) for w in wanted}  # type: ignore[misc]
    return sorted(nearest)


def _landscapes(runs: Sequence[_Run], budgets: Sequence[float]) -> list[dict[str, Any]]:
    if not budgets:
        return []
    pairs = sorted({run.pair for run in runs})
    views = []
    for budget in [0.0, *budgets]:
        groups = []
        for pair in pairs:
            mine = (run for run in runs if run.pair == pair and run.reaches(budget))
            counts = sum((run.at(budget) for run in mine), np.int64(0))
            counts_C = np.asarray(counts, dtype=np.int64)
            groups.append(
                {
                    "bp": pair[0],
                    "n": pair[1],
                    "samples": int(counts_C.size - 1),
                    "problems": int(counts_C.sum()),
                    "counts": counts_C.tolist(),
                }
            )
        views.append({"rollouts": budget, "groups": groups})
    return views


def _scores(runs: Sequence[_Run], budget: float) -> dict[str, list[dict[str, Any]]]:
    samples = min(run.counts_KC.shape[1] for run in runs) - 1
    names = [f"avg@{samples}", *(f"{kind}@{samples}" for kind in ("best", "worst"))]
    result: dict[str, list[dict[str, Any]]] = {}
    for name in names if samples > 1 else names[:1]:
        rows = result.setdefault(name, [])
        for pair in sorted({run.pair for run in runs}):
            values = np.array([
                score_from_histogram(run.at(budget), name)
                for run in runs if run.pair == pair and run.reaches(budget)
            ])  # fmt: skip
            rows.append(
                {
                    "bp": pair[0],
                    "n": pair[1],
                    "value": float(values.mean()),
                    "interval": _interval(values),
                    "n_runs": int(values.size),
                }
            )
    return result


def _interval(values: FloatArray) -> list[float] | None:
    """Student's 95% interval of the mean over seeds; None below three seeds."""
    from scipy.stats import t as student

    if values.size < 3:
        return None
    quantile = float(student.ppf(0.975, values.size - 1))
    half = quantile * float(values.std(ddof=1)) / math.sqrt(values.size)
    mean = float(values.mean())
    return [max(mean - half, 0.0), min(mean + half, 1.0)]


def _train_test(runs: Sequence[_Run]) -> list[dict[str, Any]]:
    """Success on the batches between two evaluations beside the avg@k of the later one.

    Means over the seeds of each configuration.
    """
    points: dict[Pair, dict[float, list[tuple[float, float]]]] = {}
    for run in runs:
        samples = run.counts_KC.shape[1] - 1
        for k in range(1, run.step_K.size):
            train = _batch_success(run.steps, int(run.step_K[k - 1]), int(run.step_K[k]))
            if train is not None:
                validation = score_from_histogram(run.counts_KC[k], f"avg@{samples}")
                budgets = points.setdefault(run.pair, {})
                budgets.setdefault(float(run.rollouts_K[k]), []).append((train, validation))
    rows = []
    for pair, budgets in sorted(points.items()):
        means = [np.mean(budgets[x], axis=0) for x in sorted(budgets)]
        rows.append(
            {
                "bp": pair[0],
                "n": pair[1],
                "x": sorted(budgets),
                "train": [float(m[0]) for m in means],
                "validation": [float(m[1]) for m in means],
            }
        )
    return rows


def _batch_success(steps: Steps, after: int, until: int) -> float | None:
    """Share of training rollouts that succeeded in the steps after < step <= until."""
    inside = np.flatnonzero((steps.step_K > after) & (steps.step_K <= until))
    judged = sum(int(steps.judged[i].sum()) for i in inside)
    return sum(float(steps.successes[i].sum()) for i in inside) / judged if judged else None


def _difficulty(store: Store, runs: Sequence[StoredRun]) -> dict[str, Any] | None:
    """Pass rates of the training problems under the base model, in sixteenths."""
    if not runs:
        return None
    reference = runs[0].spec.get("train") or {}
    if not reference.get("sha256"):
        return None
    problems = store.problem_set(str(reference["sha256"]), str(reference.get("name", "")))
    rates = [p.pass_rate for p in problems.problems if p.pass_rate is not None]
    if not rates:
        return None
    counts = np.bincount(np.rint(np.array(rates) * 16).astype(np.int64), minlength=17)
    return {"name": problems.name, "samples": 16, "counts": counts.tolist()}


def _provenance(runs: Sequence[StoredRun]) -> dict[str, Any]:
    if not runs:
        return {}
    spec = runs[0].spec
    return {
        "engine": spec.get("engine"),
        "engine_options": spec.get("engine_options") or {},
        "train": spec.get("train") or {},
        "validation": spec.get("validation") or {},
        "seeds": sorted({run.spec.get("seed") for run in runs}, key=str),
        "runs": [run.hash for run in runs],
    }


def _warnings(runs: Iterable[_Run]) -> list[dict[str, str]]:
    """What the health rules and the states of the runs say, one row per code and run."""
    found: list[dict[str, str]] = []
    for run in runs:
        if run.stored.state in ("failed", "invalid"):
            found.append(
                {"code": f"run_{run.stored.state}", "message": f"{run.label}: {run.stored.reason}"}
            )
        kept = run.stored.findings  # a divergence is told by its error, not by a step
        for finding in steps_health(run.steps) if kept is None else kept:
            found.append({"code": finding.code, "message": f"{run.label}: {finding.message}"})
    return found
