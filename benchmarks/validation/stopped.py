"""A real sweep whose losers are stopped: does the best n stay what the whole sweep says?

Each n is stopped 1.25 times after its runs' mean best score so far was last within 0.005 of the
best n's, where all have runs; one that never was, after its first 20 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isocompute.domain import Curve
from isocompute.testing.families import stopped_early
from validation.adapters import Adapter, Answers, Key
from validation.figures import Summary
from validation.rows import ONWARD, WITHIN, Tally, compare_stopped

_BUDGETS = 200


def observed_ends(curves: Sequence[Curve]) -> dict[Key, float]:
    """Where the runs of each configuration are stopped, from what they scored."""
    low, high = compared(curves)
    budgets = np.geomspace(low, high, _BUDGETS)
    runs: dict[Key, list[np.ndarray]] = {}
    for c in curves:
        key = (c.problems_per_batch, c.rollouts_per_problem)
        best = np.maximum.accumulate(c.score_K)
        at = np.searchsorted(c.rollouts_K, budgets * (1 + 1e-9), side="right") - 1
        runs.setdefault(key, []).append(best[np.maximum(at, 0)])
    score = {key: np.mean(seen, axis=0) for key, seen in runs.items()}
    best_V = np.max(list(score.values()), axis=0)
    ends = {}
    for key, score_V in score.items():
        near = np.flatnonzero(score_V >= best_V - WITHIN)
        last = budgets[near[-1]] if near.size else 0.0
        ends[key] = float(max(last, 20 * key[0] * key[1])) * ONWARD
    return ends


def compared(curves: Sequence[Curve]) -> tuple[float, float]:
    """Budgets that every configuration has: 20 steps and more, and a run that reaches them."""
    reach: dict[Key, float] = {}
    for c in curves:
        key = (c.problems_per_batch, c.rollouts_per_problem)
        reach[key] = max(reach.get(key, 0.0), float(c.rollouts_K[-1]))
    low = max(20.0 * b * n for b, n in reach)
    return low, max(min(reach.values()), low * 1.01)


def stopped_study(adapter: Adapter, curves: Sequence[Curve]) -> dict[str, Any]:
    """The whole sweep and the stopped one, fitted; what `rows.compare_stopped` counts, as means."""
    whole: Answers = adapter.fit(curves, 0)
    short = stopped_early(curves, observed_ends(curves))
    tally = Tally()
    compare_stopped(tally, whole, adapter.fit(short, 0), np.geomspace(*compared(curves), 9))
    spent = [sum(float(c.rollouts_K[-1]) for c in some) for some in (short, curves)]
    summary = Summary()
    summary.take({"sums": tally, "loss": {}})
    found = {name: summary.figure(name).value for name in tally}
    return {**found, "stopped spent": spent[0] / spent[1]}
