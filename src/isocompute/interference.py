"""How progress spreads over problems at equal compute: landscapes and interference of a study.

Shape legend: G configurations, R runs of one, P problems, D draws.

Every configuration is compared with its own step 0 at the same cumulative rollouts, because a
run that has moved further is more polarised for that alone. Draws resample problems, the same
ones for every configuration (common random numbers), and the runs of each.
Source: arXiv 2603.12151, section 5; the indices are those of `metrics.progress`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.intervals import draw_interval
from isocompute.spread import landscape, loss_evidence, progress
from isocompute.store import Store, StoredRun
from isocompute.store.arms import require_one_arm, select_runs, split_source

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

INDICES = (
    "score", "never", "always", "near_one", "interference", "rich_get_richer", "uniform_progress",
)  # fmt: skip
_BUDGETS = 5  # over training, even in log C
_LEAST_MEASURED = 0.8  # of the draws must give an index, or it has no interval


class OutcomeRun(NamedTuple):
    """One run: rollouts of its evaluations, the first before training, successes, samples."""

    rollouts_K: IntArray
    successes_KP: IntArray
    samples: int

    def reaches(self, rollouts: float) -> bool:
        """Whether it was evaluated there or later: one that ended before is of less compute."""
        return bool(self.rollouts_K[-1] >= rollouts * (1 - 1e-9))


Key = tuple[int, int]  # (B_p, n)
Groups = dict[Key, list[OutcomeRun]]
Outcome = tuple[int, IntArray, IntArray, int]  # of a run at a budget, see `_at`


def study_outcomes(source: str | Path, problem_set: str | None = None) -> tuple[str, Groups]:
    """The problem set and the outcomes per problem of a study's runs.

    Args:
        source: a study folder, with a selection where it holds several arms.
        problem_set: None: the only one there is.

    Raises:
        InputError: several arms or problem sets and none chosen.
    """
    path, where = split_source(str(source))
    with Store(path) as store:
        chosen = select_runs(path, [r for r in store.runs() if r.state != "invalid"], where)
        require_one_arm(path, chosen)
        name = _the_set(chosen, problem_set or where.get("problem_set"), path)
        return name, _groups(store, chosen, name)


def study_interference(
    source: str | Path, *, problem_set: str | None = None, **options: Any
) -> dict[str, Any]:
    """`interference_of` a study; see there and `study_outcomes`."""
    name, groups = study_outcomes(source, problem_set)
    return interference_of(groups, source=str(source), problem_set=name, **options)


def interference_of(
    groups: Groups,
    *,
    source: str,
    problem_set: str,
    rollouts: float | None = None,
    level: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> dict[str, Any]:
    """Landscapes and interference of every configuration at one budget.

    Args:
        groups: outcomes by (B_p, n).
        source, problem_set: what they are of, for messages and the answer.
        rollouts: None: the largest budget that every configuration reached, with a run at least;
            runs that ended before are left out.
        level: of the intervals.
        draws, seed: of the bootstrap.

    Returns:
        {"version", "problem_set", "at", "level", "groups": [{"problems_per_batch",
        "rollouts_per_problem", "n_runs", "at" (of the evaluation used), and each of `INDICES` as
        {"value", "interval"}}], "differences": [largest minus smallest n, per B_p],
        "bins": [[low, high]] of pass@1 (exactly 0, ten between, exactly 1), "over_training": [per
        budget and configuration: "rollouts" (the budget), "at", each of `INDICES` and "share",
        the share of problems in each bin]}.

    Raises:
        InputError: no evaluations, other problems in some runs, or a budget before the first one.
    """
    if not groups:
        raise InputError(
            f"{source}: interference needs runs with an evaluation after step 0, but none has "
            "one; run the study further."
        )
    first, at = _budgets(groups, rollouts)
    runs = {
        key: [_at(run, at) for run in group if run.reaches(at)] for key, group in groups.items()
    }
    n_problems = {before.size for group in runs.values() for _, before, _, _ in group}
    if len(n_problems) != 1:
        raise InputError(
            f"{source}: {problem_set!r} must hold the same problems in every run, but runs have "
            f"{sorted(n_problems)} problems; select one arm with --where."
        )
    table = {key: _indices(group, None, None) for key, group in runs.items()}
    drawn = _drawn(runs, n_problems.pop(), draws, np.random.default_rng(seed))
    return {
        "version": 1,
        "problem_set": problem_set,
        "at": at,
        "level": level,
        "groups": [
            {
                "problems_per_batch": key[0],
                "rollouts_per_problem": key[1],
                "n_runs": len(group),
                "at": float(np.mean([run[0] for run in group])),
                **_of_group(group, table[key], drawn[key], level),
            }
            for key, group in runs.items()
        ],
        "differences": _differences(
            table, {key: d for key, d in drawn.items() if len(runs[key]) > 1}, level
        ),
        "bins": np.column_stack(landscape(np.zeros(1, dtype=int), 1)[:2]).tolist(),
        "over_training": [
            row
            for budget in np.geomspace(first, at, _BUDGETS)
            for row in _landscapes(groups, float(budget))
        ],
    }


def _budgets(groups: Groups, rollouts: float | None) -> tuple[int, float]:
    """The first budget that every configuration was evaluated at, and the one that is asked for."""
    last = min(max(int(run.rollouts_K[-1]) for run in runs) for runs in groups.values())
    first = max(min(int(run.rollouts_K[1]) for run in runs) for runs in groups.values())
    at = float(last if rollouts is None else rollouts)
    if not first <= at <= last:
        raise InputError(
            "the budget must be one that every configuration was evaluated at, from "
            f"{first} to {last} rollouts, but got {at:g}; choose one between."
        )
    return first, at


def _drawn(
    runs: Mapping[Key, Sequence[Outcome]], size: int, draws: int, rng: np.random.Generator
) -> dict[Key, FloatArray]:
    """Indices of every draw of the problems, which all share, and of a configuration's runs."""
    drawn: dict[Key, list[FloatArray]] = {key: [] for key in runs}
    for _ in range(draws):
        problems_P = rng.integers(size, size=size)
        for key, group in runs.items():
            which = rng.integers(len(group), size=len(group))
            drawn[key].append(_indices(group, problems_P, which))
    return {key: np.array(rows) for key, rows in drawn.items()}


def _landscapes(groups: Groups, rollouts: float) -> list[dict[str, Any]]:
    """The landscape of every configuration at one budget, means over its runs."""
    rows = []
    for (b_p, n), group in groups.items():
        runs = [_at(run, rollouts) for run in group if run.reaches(rollouts)]
        shares = [landscape(after, samples).share_B for _, _, after, samples in runs]
        values = _indices(runs, None, None)
        rows.append(
            {
                "rollouts": rollouts,
                "problems_per_batch": b_p,
                "rollouts_per_problem": n,
                "at": float(np.mean([run[0] for run in runs])),
                **{
                    name: float(v) if np.isfinite(v) else None
                    for name, v in zip(INDICES, values, strict=True)
                },
                "share": np.mean(shares, axis=0).tolist(),
            }
        )
    return rows


def _the_set(runs: Sequence[StoredRun], wanted: str | None, path: str) -> str:
    if not runs:
        raise InputError(
            f"{path}: interference needs runs of a study, which hold outcomes by problem, but it "
            "has none (imported ones have scores alone); train one with `isocompute run`."
        )
    names: list[str] = sorted({name for run in runs for name in run.spec["validation"]})
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted is None or wanted not in names:
        raise InputError(
            f"{path}: the problem set must be one of {', '.join(map(repr, names))}, but "
            f"{'none was named' if wanted is None else f'got {wanted!r}'}; choose one with "
            "--problem-set."
        )
    return wanted


def _groups(store: Store, runs: Sequence[StoredRun], name: str) -> Groups:
    found: Groups = {}
    for run in runs:
        evaluations = store.evaluations(run.hash, problem_set=name)
        if len(evaluations) > 1:
            _, successes_KP = store.successes(run.hash, name)
            key = (run.spec["problems_per_batch"], run.spec["rollouts_per_problem"])
            found.setdefault(key, []).append(
                OutcomeRun(evaluations.rollouts_K, successes_KP, int(evaluations.samples_K[0]))
            )
    return dict(sorted(found.items()))


def _at(run: OutcomeRun, rollouts: float) -> Outcome:
    """(rollouts, successes at step 0, successes at the last evaluation by then, samples)."""
    index = int(np.searchsorted(run.rollouts_K, rollouts * (1 + 1e-9), side="right")) - 1
    index = max(index, 1)
    return int(run.rollouts_K[index]), run.successes_KP[0], run.successes_KP[index], run.samples


def _indices(
    runs: Sequence[Outcome],
    problems_P: IntArray | None,
    which: IntArray | None,
) -> FloatArray:
    """`INDICES` as means over runs; NaN where none of them measures one."""
    rows = []
    for i in range(len(runs)) if which is None else which:
        _, before, after, samples = runs[i]
        if problems_P is not None:
            before, after = before[problems_P], after[problems_P]
        found = progress(before, after, samples, samples)
        rows.append(
            [float(after.mean()) / samples, float((after == 0).mean()),
             float((after == samples).mean()), found.near_one, found.interference,
             found.rich_get_richer, found.uniform_progress]
        )  # fmt: skip
    array = np.array(rows, dtype=np.float64)  # None: NaN
    measured = np.isfinite(array).sum(axis=0)
    total = np.where(np.isfinite(array), array, 0.0).sum(axis=0)
    return np.where(measured > 0, total / np.maximum(measured, 1), np.nan)


def _of_group(
    runs: Sequence[Outcome], value: FloatArray, drawn: FloatArray,
    level: float,
) -> dict[str, Any]:  # fmt: skip
    """Indices with intervals: none of one run, which says nothing of how far runs lie apart.

    Draws of a share that cannot be negative never reach 0, so where gains alone explain the
    counts as well, the interval of `interference` begins at 0.
    """
    from scipy.stats import chi2

    if len(runs) < 2:
        return _with_intervals(value, np.full((1, len(INDICES)), np.nan), level)
    found = _with_intervals(value, drawn, level)
    seen = sum(loss_evidence(before, after, k, k) for _, before, after, k in runs)
    span = found["interference"]["interval"]
    if span is not None and seen < chi2.ppf(level, len(runs)):
        span[0] = 0.0
    return found


def _with_intervals(value: FloatArray, drawn: FloatArray, level: float) -> dict[str, Any]:
    return {
        name: {
            "value": float(value[i]) if np.isfinite(value[i]) else None,
            "interval": _interval(drawn[:, i], level) if np.isfinite(value[i]) else None,
        }
        for i, name in enumerate(INDICES)
    }


def _interval(drawn: FloatArray, level: float) -> list[float] | None:
    known = drawn[np.isfinite(drawn)]
    if len(known) < _LEAST_MEASURED * len(drawn) or not len(known):
        return None
    return [float(v) for v in draw_interval(known, level)]


def _differences(
    table: Mapping[Key, FloatArray], drawn: Mapping[Key, FloatArray | list[FloatArray]],
    level: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """Largest minus smallest n at each B_p, on common draws."""
    rows = []
    for b_p in sorted({key[0] for key in table}):
        n = sorted(key[1] for key in table if key[0] == b_p)
        if len(n) < 2:
            continue
        small, large = (b_p, n[0]), (b_p, n[-1])
        none = [np.full(len(INDICES), np.nan)]  # of a configuration with one run
        spread = np.array(drawn.get(large, none)) - np.array(drawn.get(small, none))
        rows.append(
            {
                "problems_per_batch": b_p,
                "from": n[0],
                "to": n[-1],
                **_with_intervals(table[large] - table[small], spread, level),
            }
        )
    return rows
