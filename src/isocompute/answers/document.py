"""`fit --json`, version 2, the law as it stands in it, and what it was made from by which rules.

Shape legend: D draws, J configurations, X reported budgets, V budgets of the frontier's grid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from isocompute import __version__
from isocompute.answers.best import (
    Best,
    FloatArray,
    expected_regret,
    interval,
    probability_best,
)
from isocompute.answers.claims import compare_by
from isocompute.answers.law import law_of_paths
from isocompute.answers.logged import range_of
from isocompute.answers.machines import device_of
from isocompute.answers.price import counted_in
from isocompute.answers.reading import Reading
from isocompute.answers.verdict import unbounded
from isocompute.domain import Curve, Groups, documented
from isocompute.domain.text import plain
from isocompute.errors import RefusalError
from isocompute.intervals import draw_interval

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit

Quantity = Literal["rollouts_per_problem", "problems_per_batch"]


# Keys of the document of which the short answer says nothing: a tenth of the time of a fit.
UNSAID = ("neighbours", "paper", "spread", "probabilities", "train_test")


def fit_document(fit: Fit, *, whole: bool = True) -> dict[str, Any]:
    """The JSON document; every number finite or null. Not `whole`: without `UNSAID` and hashes."""
    frontier, level = fit.frontier, fit.level
    parts: dict[str, Callable[[], Any]] = {
        "version": lambda: 2,
        "setting": lambda: fit.setting,
        "metric": lambda: fit.metric,
        "unit": lambda: fit.unit,
        "level": lambda: level,
        "verdict": lambda: fit.verdict._asdict(),
        "provenance": lambda: provenance(fit) if whole else
            {"sources": fit.sources, "score_range": list(range_of(fit.curves))},
        "curves": lambda: _curves(fit),
        "best": lambda: [_best(fit, best) for best in fit.best],
        "by_gpu_hours": lambda: _by_gpu_hours(fit),
        "neighbours": lambda: fit.neighbours(fit.support[1]),
        "frontier": lambda: frontier.stretches,
        "crossovers": lambda: frontier.crossovers,
        "support": lambda: fit.support,
        "law": lambda: fit.law,
        "law_problems_per_batch":
            lambda: law_of(fit, "problems_per_batch") if fit.batch_size else None,
        "direction": lambda: fit.direction,
        "paper": lambda: {"refused": fit.paper.reason} if isinstance(fit.paper, RefusalError) else
            fit.paper.to_dict(),
        "backtest": lambda: {**asdict(fit.backtest), "n_held_out": len(fit.backtest.rows)},
        "spread": lambda: {
            "problems_per_batch": compare_by(frontier, "rollouts_per_problem", level),
            "rollouts_per_problem": compare_by(frontier, "problems_per_batch", level),
        },
        "probabilities": lambda: _probabilities(fit),
        "train_test": lambda: fit.train_test,
    }  # fmt: skip
    said = {name: part() for name, part in parts.items() if whole or name not in UNSAID}
    out: dict[str, Any] = plain({**said, **documented(fit.notices)})
    return out


def _probabilities(fit: Fit) -> dict[str, Any]:
    frontier = fit.frontier
    inside_V = frontier.compares(frontier.x_V)
    return chances(fit, 10 ** frontier.x_V[inside_V], frontier.score_DJV[:, :, inside_V])


def chances(fit: Reading, x_X: FloatArray, score_DJX: FloatArray) -> dict[str, Any]:
    """How probable it is that each configuration is best at budgets, and what each loses."""
    return {
        "x": x_X,
        "configurations": fit.configurations,
        "best": probability_best(score_DJX),
        "regret": expected_regret(score_DJX),
    }


def _best(fit: Fit, best: Best) -> dict[str, Any]:
    n, x = best.tested_rollouts_per_problem, best.x
    stable, _ = fit.stable_problems_per_batch(n, x)
    return {**best._asdict(), "stable_problems_per_batch": stable}


def _by_gpu_hours(fit: Fit) -> dict[str, Any] | None:
    """The best n where all were last compared at equal GPU-hours; None for runs without times."""
    if fit.unit != "rollouts" or fit.batch_size or "gpu-hours" not in counted_in(fit.curves):
        return None
    paid = fit.again("gpu-hours")
    return {**paid.best_at(paid.support[1])._asdict(), "device": device_of(fit.curves)}


def law_of(fit: Reading, quantity: Quantity) -> dict[str, Any]:
    """The paper's sigmoid through the path of the best n (or B_p, at a fixed batch).

    `at` is filled from `best`, never from the sigmoid: it summarises, it does not predict.
    """
    (x_X, path_DX), far_D, rising = fit.path, fit.path_far, fit.rise
    # At a fixed batch the law is one of steps, M = C / B.
    per_unit, variable = fit.batch_size or 1, "steps" if fit.batch_size else fit.unit
    if quantity == "problems_per_batch":
        path_DX, far_D = np.log2(per_unit) - path_DX, np.log2(per_unit) - far_D
    tested = [getattr(c, quantity) for c in fit.configurations]
    ends = min(tested), max(tested)
    return {
        **law_of_paths(
            10**x_X / per_unit, path_DX, far_D, tested=ends, variable=cast(Any, variable),
            level=fit.level,
        ),
        "rising": {"from": 10**rising.start, "octaves": rising.octaves,
                   "lower_bound": rising.lower_bound, "upper_bound": rising.upper_bound,
                   "claimed": rising.claimed},
        "at": [{"x": best.x / per_unit, **_at(best, quantity, fit.batch_size)}
               for best in fit.best if not best.extrapolated],
    }  # fmt: skip


def _at(best: Best, quantity: Quantity, batch_size: int | None) -> dict[str, Any]:
    if quantity == "problems_per_batch" and batch_size is not None:
        ends = [batch_size / n for n in best.interval[::-1]]
        return {quantity: batch_size / best.rollouts_per_problem, "interval": ends}
    return {
        quantity: best.rollouts_per_problem,
        "interval": best.interval,
        "confidence_set": best.confidence_set,
        "expected_regret": best.expected_regret[best.tested_rollouts_per_problem],
        "problems_per_batch": best.problems_per_batch,
    }


def _curves(fit: Reading) -> list[dict[str, Any]]:
    of, x_V, score_DJV = fit.posterior, fit.frontier.x_V, fit.frontier.score_DJV
    low_JV, high_JV = draw_interval(score_DJV, fit.level)
    mean_JV, open_, state_J = score_DJV.mean(axis=0), unbounded(fit), of.state_J
    parameters = {
        "floor": np.broadcast_to(of.floor_D[:, None], of.ceiling_DJ.shape),
        "ceiling": of.ceiling_DJ,
        "slope": of.slope_DJ,
        "log10_midpoint": of.log10_midpoint_DJ,
    }
    rows = []
    for j, c in enumerate(fit.configurations):
        row: dict[str, Any] = {
            **c._asdict(),
            "n_runs": of.n_runs_J[j],
            "n_points": of.n_points_J[j],
            "max_rollouts": fit.trained(c),
            "state": state_J[j],
            "groups": _groups(r.groups for r in fit.curves if r.configuration == c),
        }
        for name, draw_DJ in parameters.items():
            row[name] = np.median(draw_DJ[:, j])
            row[f"{name}_interval"] = list(interval(draw_DJ[:, j], fit.level))
        if c in open_:
            row["ceiling_interval"][1] = row["log10_midpoint_interval"][1] = None
        flags = {"ceiling_unbounded": c in open_, "one_run": of.n_runs_J[j] == 1}
        row["flags"] = [name for name, is_set in flags.items() if is_set]
        row["at"] = [
            {"x": 10**x, "score": mean, "interval": [low, high],
             "extrapolated": x > of.last_J[j] + 1e-6}
            for x, mean, low, high in zip(x_V, mean_JV[j], low_JV[j], high_JV[j], strict=True)
        ]  # fmt: skip
        rows.append(row)
    return rows


def _groups(of_runs: Iterable[Groups | None]) -> dict[str, float] | None:
    """Means over the runs that say it; None where none does."""
    known = [groups for groups in of_runs if groups is not None]
    found: dict[str, float] = {}
    for name in Groups._fields:
        values = [v for groups in known if (v := getattr(groups, name)) is not None]
        found |= {name: sum(values) / len(values)} if values else {}
    return found or None


def provenance(fit: Reading) -> dict[str, Any]:
    """Sources, numbers of runs and points, options, and hashes of data and code."""
    return {
        "isocompute": __version__,
        "code_sha256": code_sha256(),
        "data_sha256": data_sha256(fit.curves),
        "sources": list(fit.sources),
        "n_runs": len(fit.curves),
        "n_points": sum(len(c.score_K) for c in fit.curves),
        "n_missing": sum(c.n_missing for c in fit.curves),
        "evaluation_noise_phi": fit.noise_phi,
        "score_range": list(range_of(fit.curves)),
        "selection": fit.posterior.select,
        "draws": fit.draws,
        "seed": fit.seed,
        "method": "one hierarchical model of the sweep, docs/model.md; answers are functionals of "
        "its draws, docs/answers.md",
    }


def data_sha256(curves: Sequence[Curve]) -> str:
    """Of the runs that were fitted, whatever file they came from and in whatever order."""
    rows = []
    for c in curves:
        row = hashlib.sha256(f"{c.problems_per_batch} {c.rollouts_per_problem} {c.seed}".encode())
        tokens = () if c.tokens_K is None else c.tokens_K
        for values in (c.rollouts_K, c.score_K, tokens):
            row.update(np.asarray(values, dtype="<f8").tobytes() + b";")
        rows.append(row.digest())
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()


@cache
def code_sha256() -> str:
    """Of the package's Python files, by name and content."""
    root = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + text + b"\0")
    return found.hexdigest()
