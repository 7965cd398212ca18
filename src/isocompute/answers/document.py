"""`fit --json`, version 2, and the summaries of the path of the best n that stand in it.

Shape legend: D draws, J configurations, X reported budgets, V budgets of the frontier's grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from isocompute.answers.best import interval
from isocompute.answers.claims import compare_by
from isocompute.answers.law import law_of_paths
from isocompute.answers.provenance import provenance
from isocompute.answers.reading import Reading
from isocompute.answers.verdict import Verdict, unbounded
from isocompute.domain import Notice, as_warnings
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
            "frontier": _frontier(fit),
            "crossovers": _crossovers(fit),
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
    return {
        **summary.to_dict(),
        "rising": {
            "from": 10**start,
            "octaves": octaves,
            "lower_bound": low,
            "claimed": fit.rise.claimed,
        },
        "at": [_law_row(fit, i, quantity) for i, inside in enumerate(fit.inside_X) if inside],
    }


def _law_row(fit: Reading, i: int, quantity: Quantity) -> dict[str, Any]:
    best = fit.best[i]
    row: dict[str, Any] = {"x": fit.law_x(best.x)}
    if quantity == "problems_per_batch":
        batch = float(fit.batch_size or 1)
        low, high = best.interval
        return row | {
            quantity: batch / best.rollouts_per_problem,
            "interval": [batch / high, batch / low],
        }
    return row | {
        quantity: best.rollouts_per_problem,
        "interval": list(best.interval),
        "confidence_set": best.confidence_set,
        "expected_regret": best.expected_regret[best.tested_rollouts_per_problem],
        "problems_per_batch": best.problems_per_batch,
    }


def _curves(fit: Reading) -> list[dict[str, Any]]:
    of, x_V, score_DJV = fit.posterior, fit.frontier.x_V, fit.frontier.score_DJV
    low_JV, high_JV = draw_interval(score_DJV, fit.level)
    mean_JV, open_ = score_DJV.mean(axis=0), unbounded(fit)
    longest = dict.fromkeys(fit.configurations, 0.0)
    for curve in fit.curves:
        if curve.configuration in longest:
            reached = float(curve.rollouts_K.max())
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


def _frontier(fit: Reading) -> list[dict[str, Any]]:
    of = fit.frontier
    mean_JV = of.score_DJV.mean(axis=0)
    return [
        {
            "from": 10**s.start,
            "to": 10**s.end,
            **fit.configurations[s.configuration]._asdict(),
            "score_from": np.interp(s.start, of.x_V, mean_JV[s.configuration]),
            "score_to": np.interp(s.end, of.x_V, mean_JV[s.configuration]),
            "probability_best": s.probability_best,
            "extrapolated": s.extrapolated,
        }
        for s in of.stretches
    ]


def _crossovers(fit: Reading) -> list[dict[str, Any]]:
    ends = (("from", "before"), ("to", "after"))
    return [
        {
            "at": 10**c.at,
            # 10**-inf is 0, but where it began is not known
            "interval": [10**x if np.isfinite(x) else None for x in c.interval],
            **{
                f"{word}_{name}": value
                for word, side in ends
                for name, value in fit.configurations[getattr(c, side)]._asdict().items()
            },
        }
        for c in fit.frontier.crossovers
    ]


def _probabilities(fit: Reading) -> dict[str, Any]:
    of = fit.frontier
    inside = (of.x_V >= of.support[0] - 1e-6) & (of.x_V <= of.support[1] + 1e-6)
    return {
        "x": 10 ** of.x_V[inside],
        "configurations": fit.configurations,
        "best": of.probability_JV[:, inside],
        "regret": of.regret_JV[:, inside],
    }
