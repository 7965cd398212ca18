"""Two sweeps at equal compute: which is better, by how much, and how sure that is.

Shape legend: C configurations (B_p, n) that both sides trained; S seeds of one configuration;
X budgets.

What is compared: the score at the same number of rollouts of the same configuration, paired by
seed where both sides used the same seeds. What is held fixed: the set of configurations; the
interval says what other seeds would change, not other configurations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve, Notice, documented, notice
from isocompute.errors import InputError, RefusalError

FloatArray = NDArray[np.float64]
Config = tuple[int, int]

DOCUMENT_VERSION = 1
# Scores closer than this are ties: three repeats of one RL run differ by as much
# (Khatri et al., arXiv 2510.13786: +-0.02 on the ceiling).
TIE = 0.02


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sweeps side by side; differences are B - A.

    Args:
        document: the `compare --json` contract of docs/compare.md.
    """

    document: dict[str, Any] = field(repr=False)


class _Difference(NamedTuple):
    """Mean of B - A over configurations, at X budgets, with its standard error."""

    mean_X: FloatArray
    error_X: FloatArray | None
    dof_X: FloatArray | None


def compare_curves(
    a: Sequence[Curve],
    b: Sequence[Curve],
    *,
    names: tuple[str, str] = ("A", "B"),
    level: float = 0.95,
    n_budgets: int = 9,
) -> Comparison:
    """Compare two sweeps at equal rollouts.

    Args:
        a, b: curves of each side, one metric.
        names: what the document calls them.
        level: of the intervals (Student t over seeds, Welch's degrees of freedom).
        n_budgets: budgets compared, even in log over the range that every pair covers.

    Raises:
        InputError: different metrics, or a level outside (0, 1).
        RefusalError: no configuration in common, or no budget that all pairs cover.
    """
    _check(a, b, level, n_budgets)
    sides = (_by_config(a), _by_config(b))
    configs = sorted(set(sides[0]) & set(sides[1]))
    if not configs:
        raise RefusalError(
            "two sweeps need configurations (B_p, n) in common to be compared at equal compute, "
            f"but {names[0]} has {_listed(sides[0])} and {names[1]} has {_listed(sides[1])}; "
            "train the same ones.",
            [f"the configurations of {names[0]} with the settings of {names[1]}"],
        )
    budgets_X = _budgets(sides, configs, n_budgets)
    notices: list[Notice] = []
    paired = [_paired_seeds(sides[0][c], sides[1][c]) for c in configs]
    if not all(paired):
        notices.append(notice("seeds_unpaired"))
    if apart := _other_exams(a, b):
        notices.append(notice("problems_differ", names=apart))
    difference = _difference(sides, configs, budgets_X, notices)
    rows = _rows(difference, sides, configs, budgets_X, level)
    return Comparison(
        document={
            "version": DOCUMENT_VERSION,
            "a": names[0],
            "b": names[1],
            "metric": a[0].metric,
            "level": level,
            "tie": TIE,
            "configurations": [
                {
                    "problems_per_batch": b_p,
                    "rollouts_per_problem": n,
                    "n_runs": [len(side[(b_p, n)]) for side in sides],
                    "paired_by_seed": pair,
                }
                for (b_p, n), pair in zip(configs, paired, strict=True)
            ],
            "at": rows,
            "verdict": rows[-1]["verdict"],
            **documented(notices),
        }
    )


def _check(a: Sequence[Curve], b: Sequence[Curve], level: float, n_budgets: int) -> None:
    if not 0 < level < 1:
        raise InputError(f"`0 < level < 1` must hold, but got {level!r}; use for example 0.95.")
    if n_budgets < 1:
        raise InputError(f"`n_budgets >= 1` must hold, but got {n_budgets!r}; raise it.")
    if not a or not b:
        raise InputError(
            f"both sides of a comparison need curves, but got {len(a)} and {len(b)}; add runs."
        )
    metrics = sorted({c.metric for c in (*a, *b)})
    if len(metrics) > 1:
        raise InputError(
            f"both sides must be measured by one metric, but got {', '.join(map(repr, metrics))}; "
            "choose one with --metric."
        )


def _other_exams(a: Sequence[Curve], b: Sequence[Curve]) -> str:
    """The validation sets of sides that do not validate on the same problems, else ""."""
    exams = [{c.validated_on for c in side} - {""} for side in (a, b)]
    names = dict.fromkeys(repr(c.problem_set) for c in (*a, *b))
    return " and ".join(names) if all(exams) and exams[0] != exams[1] else ""


def _by_config(curves: Sequence[Curve]) -> dict[Config, list[Curve]]:
    sides: dict[Config, list[Curve]] = {}
    for c in curves:
        if int((c.rollouts_K > 0).sum()) >= 2:
            sides.setdefault((c.problems_per_batch, c.rollouts_per_problem), []).append(c)
    return sides


def _listed(side: dict[Config, list[Curve]]) -> str:
    return ", ".join(f"({b_p}, {n})" for b_p, n in sorted(side)) or "none with two scores"


def _budgets(
    sides: tuple[dict[Config, list[Curve]], ...], configs: Sequence[Config], n_budgets: int
) -> FloatArray:
    """Budgets that every curve of every pair covers, even in log."""
    curves = [c for side in sides for config in configs for c in side[config]]
    low = max(float(c.rollouts_K[c.rollouts_K > 0][0]) for c in curves)
    high = min(float(c.rollouts_K[-1]) for c in curves)
    if low > high:
        raise RefusalError(
            "two sweeps need budgets that every run covers, but the latest start is at "
            f"{low:.6g} and the earliest end at {high:.6g} rollouts; extend the shorter runs.",
            [f"every run to {low:.6g} rollouts or beyond"],
        )
    return np.geomspace(low, high, n_budgets) if n_budgets > 1 else np.array([high])


def _score(curve: Curve, budgets_X: FloatArray) -> FloatArray:
    """Score at equal compute: linear in log rollouts between the evaluations."""
    positive = curve.rollouts_K > 0
    log_X = np.log(np.clip(budgets_X, curve.rollouts_K[positive][0], curve.rollouts_K[-1]))
    return np.interp(log_X, np.log(curve.rollouts_K[positive]), curve.score_K[positive])


def _paired_seeds(a: Sequence[Curve], b: Sequence[Curve]) -> bool:
    """The same seeds on both sides, each once."""
    seeds = [sorted(c.seed for c in side if c.seed is not None) for side in (a, b)]
    return (
        seeds[0] == seeds[1]
        and len(seeds[0]) == len(a) == len(b)
        and len(set(seeds[0])) == len(seeds[0])
    )


def _difference(
    sides: tuple[dict[Config, list[Curve]], ...],
    configs: Sequence[Config],
    budgets_X: FloatArray,
    notices: list[Notice],
) -> _Difference:
    """Mean over configurations of B - A; its variance from seeds where there are any."""
    means_CX, variances = [], []
    for config in configs:
        a, b = sides[0][config], sides[1][config]
        a_SX = np.array([_score(c, budgets_X) for c in sorted(a, key=_seed)])
        b_SX = np.array([_score(c, budgets_X) for c in sorted(b, key=_seed)])
        means_CX.append(b_SX.mean(axis=0) - a_SX.mean(axis=0))
        groups = [b_SX - a_SX] if _paired_seeds(a, b) else [a_SX, b_SX]
        variances += [_variance_of_mean(group_SX) for group_SX in groups]
    mean_X = np.mean(means_CX, axis=0)
    known = [v for v in variances if v is not None]
    if len(known) == len(variances):
        shares = [(v_X / len(configs) ** 2, dof) for v_X, dof in known]
        total_X = np.sum([v_X for v_X, _ in shares], axis=0)
        # Welch-Satterthwaite
        spread_X = np.sum([v_X**2 / dof for v_X, dof in shares], axis=0)
        exact = spread_X == 0
        dof_X = np.where(exact, 1e9, total_X**2 / np.where(exact, 1.0, spread_X))
        return _Difference(mean_X, np.sqrt(total_X), dof_X)
    if len(configs) >= 2:
        few = "Some configurations have"
        spread = "not in the interval"
        notices.append(notice("seeds_missing", what=few, spread=spread, which="these"))
        error_X = np.std(means_CX, axis=0, ddof=1) / math.sqrt(len(configs))
        return _Difference(mean_X, error_X, np.full_like(mean_X, len(configs) - 1.0))
    notices.append(notice("no_interval"))
    return _Difference(mean_X, None, None)


def _seed(curve: Curve) -> tuple[int, str]:
    return (-1 if curve.seed is None else curve.seed, curve.run)


def _variance_of_mean(group_SX: FloatArray) -> tuple[FloatArray, float] | None:
    """(variance of the mean, degrees of freedom); None for one run."""
    n_seeds = len(group_SX)
    if n_seeds < 2:
        return None
    return group_SX.var(axis=0, ddof=1) / n_seeds, n_seeds - 1.0


def _rows(
    d: _Difference,
    sides: tuple[dict[Config, list[Curve]], ...],
    configs: Sequence[Config],
    budgets_X: FloatArray,
    level: float,
) -> list[dict[str, Any]]:
    from scipy.stats import t as student

    best = [
        np.array(
            [np.mean([_score(c, budgets_X) for c in side[config]], axis=0) for config in configs]
        )
        for side in sides
    ]
    rows: list[dict[str, Any]] = []
    for x, rollouts in enumerate(budgets_X):
        interval = None
        if d.error_X is not None and d.dof_X is not None:
            half = float(student.ppf((1 + level) / 2, d.dof_X[x]) * d.error_X[x])
            interval = [float(d.mean_X[x]) - half, float(d.mean_X[x]) + half]
        row: dict[str, Any] = {
            "rollouts": float(rollouts),
            "difference": float(d.mean_X[x]),
            "interval": interval,
            "verdict": _verdict(interval),
        }
        for side, best_CX in zip("ab", best, strict=True):
            winner = int(np.argmax(best_CX[:, x]))
            row[f"best_{side}"] = {
                "problems_per_batch": configs[winner][0],
                "rollouts_per_problem": configs[winner][1],
                "score": float(best_CX[winner, x]),
            }
        rows.append(row)
    return rows


def _verdict(interval: Sequence[float] | None) -> str:
    """a, b, tie (surely within `TIE`), or undecided."""
    if interval is None:
        return "undecided"
    low, high = interval
    if low >= -TIE and high <= TIE:
        return "tie"
    if low > 0:
        return "b"
    return "a" if high < 0 else "undecided"
