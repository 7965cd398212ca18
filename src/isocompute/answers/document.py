"""`fit --json`, version 2, and the summaries of the path of the best n that stand in it.

Shape legend: D draws, J configurations, X reported budgets, V budgets of the frontier's grid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from isocompute.answers.best import interval
from isocompute.answers.claims import compare_by
from isocompute.answers.law import law_of_paths
from isocompute.answers.provenance import provenance
from isocompute.answers.reading import Best, Reading
from isocompute.answers.verdict import Verdict, unbounded
from isocompute.domain import Configuration, Notice, as_warnings
from isocompute.domain.text import plain
from isocompute.intervals import draw_interval

Quantity = Literal["rollouts_per_problem", "problems_per_batch"]


def fit_document(
    fit: Reading,
    *,
    law: Mapping[str, Any],
    paper: Mapping[str, Any],
    gaps: Sequence[Mapping[str, Any]],
    notices: Sequence[Notice],
    verdict: Verdict,
) -> dict[str, Any]:
    """The JSON document; every number finite or null."""
    out: dict[str, Any] = plain(
        {
            "version": 2,
            "setting": fit.setting,
            "metric": fit.metric,
            "unit": fit.unit,
            "level": fit.level,
            "verdict": verdict._asdict(),
            "provenance": provenance(fit),
            "curves": _curves(fit),
            "best": [best._asdict() for best in fit.best],
            "neighbours": fit.neighbours(fit.support[1]),
            "frontier": fit.frontier.stretches,
            "crossovers": fit.frontier.crossovers,
            "support": fit.support,
            "law": law,
            "law_problems_per_batch": None
            if fit.batch_size is None
            else law_of(fit, "problems_per_batch"),
            "direction": fit.direction,
            "paper": paper,
            "backtest": {**asdict(fit.backtest), "n_held_out": len(fit.backtest.rows)},
            "spread": {
                "problems_per_batch": compare_by(fit.frontier, "rollouts_per_problem", fit.level),
                "rollouts_per_problem": compare_by(fit.frontier, "problems_per_batch", fit.level),
            },
            "probabilities": _probabilities(fit),
            "train_test": gaps,
            "notices": [one.to_dict() for one in notices],
            "warnings": as_warnings(notices),
        }
    )
    return out


def law_of(fit: Reading, quantity: Quantity) -> dict[str, Any]:
    """The paper's sigmoid through the path of the best n (or B_p, at a fixed batch).

    `at` is filled from `best`, never from the sigmoid: it summarises, it does not predict.
    """
    x_X, log2_n_DX = fit.path
    variable: Any = fit.variable
    tested = sorted({getattr(c, quantity) for c in fit.configurations})
    path_DX = log2_n_DX
    if quantity == "problems_per_batch" and fit.batch_size is not None:
        path_DX = np.log2(fit.batch_size) - log2_n_DX
    budget_X = np.array([fit.law_x(x) for x in 10**x_X])
    summary = law_of_paths(
        budget_X, path_DX, tested=(tested[0], tested[-1]), variable=variable, level=fit.level
    )
    start, octaves, low, _ = fit.rise
    rising = {"octaves": octaves, "lower_bound": low, "claimed": fit.rise.claimed}
    rows = [best for best in fit.best if not best.extrapolated]
    return {
        **summary,
        "rising": {"from": 10**start, **rising},
        "at": [{"x": fit.law_x(best.x), **_at(best, quantity, fit.batch_size)} for best in rows],
    }


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
    mean_JV, open_ = score_DJV.mean(axis=0), unbounded(fit)
    longest: dict[Configuration, float] = defaultdict(float)
    for curve in fit.curves:
        reached = float(curve.rollouts_K.max(initial=0.0))
        longest[curve.configuration] = max(longest[curve.configuration], reached)
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
            "max_rollouts": longest[c],
            "state": of.state_J[j],
        }
        for name, draw_DJ in parameters.items():
            row[name] = np.median(draw_DJ[:, j])
            row[f"{name}_interval"] = list(interval(draw_DJ[:, j], fit.level))
        if c in open_:
            row["ceiling_interval"][1] = row["log10_midpoint_interval"][1] = None
        flags = {"ceiling_unbounded": c in open_, "one_run": of.n_runs_J[j] == 1}
        row["flags"] = [name for name, is_set in flags.items() if is_set]
        row["at"] = [
            {
                "x": 10**x,
                "score": mean_JV[j, v],
                "interval": [low_JV[j, v], high_JV[j, v]],
                "extrapolated": x > of.last_J[j] + 1e-6,
            }
            for v, x in enumerate(x_V)
        ]
        rows.append(row)
    return rows


def _probabilities(fit: Reading) -> dict[str, Any]:
    of = fit.frontier
    inside = (of.x_V >= of.support[0] - 1e-6) & (of.x_V <= of.support[1] + 1e-6)
    return {
        "x": 10 ** of.x_V[inside],
        "configurations": fit.configurations,
        "best": of.probability_JV[:, inside],
        "regret": of.regret_JV[:, inside],
    }
