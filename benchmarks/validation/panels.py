"""Real panels: choose n for the whole budget from the first part of published curves.

Truth of an n: the mean of its dots between 0.75 and 1.03 of the largest budget that all n reach.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.domain import Curve
from isocompute.testing.families import cut_to
from validation.adapters import REFUSALS, Adapter, Key
from validation.rows import so_far

CUTS = (0.7, 0.5, 0.35)
OTHER_CUTS = (0.8, 0.6, 0.45, 0.3)  # that the model was never looked at with
NAMES = tuple(
    f"qwen2.5-7b-{kind}{size}" for kind in ("easy", "hard") for size in ("", "-bp64", "-bp256")
)
_NEAR = (0.75, 1.03)


def published(name: str) -> list[Curve]:
    """A panel that is shipped with the package."""
    from isocompute.sources import load_curves

    return list(load_curves([f"published:{name}"]))


def of_file(path: Path) -> list[Curve]:
    """A panel in a tidy CSV, one run per configuration."""
    runs: dict[Key, list[tuple[float, float]]] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            key = int(line["problems_per_batch"]), int(line["rollouts_per_problem"])
            runs.setdefault(key, []).append((float(line["rollouts"]), float(line["score"])))
    return [
        Curve(
            problems_per_batch=b,
            rollouts_per_problem=n,
            run=f"{b}-{n}",
            rollouts_K=np.array([x for x, _ in sorted(dots)]),
            score_K=np.array([y for _, y in sorted(dots)]),
        )
        for (b, n), dots in sorted(runs.items())
    ]


def panels_of(folder: Path | None) -> Mapping[str, list[Curve]]:
    """Every panel: of a folder of tidy files, or those that are shipped."""
    if folder is None:
        return {name: published(name) for name in NAMES}
    return {path.stem: of_file(path) for path in sorted(folder.glob("*.csv"))}


def thinned(panels: Mapping[str, list[Curve]]) -> dict[str, list[Curve]]:
    """Every panel, and both halves of its n, in turn, where it has more than four."""
    found = dict(panels)
    for name, curves in panels.items():
        tested = sorted({c.rollouts_per_problem for c in curves})
        for half, which in enumerate(("odd", "even")):
            if len(tested) > 4:
                kept = tested[half::2]
                found[f"{name}, {which} n"] = [c for c in curves if c.rollouts_per_problem in kept]
    return found


def truth_at(curves: Sequence[Curve], budget: float) -> tuple[dict[Key, float], dict[Key, float]]:
    """Mean and best dot of every configuration near a budget."""
    mean, best = {}, {}
    for c in curves:
        near = (c.rollouts_K >= _NEAR[0] * budget) & (c.rollouts_K <= _NEAR[1] * budget)
        if near.any():
            key = (c.problems_per_batch, c.rollouts_per_problem)
            mean[key], best[key] = float(c.score_K[near].mean()), float(c.score_K[near].max())
    return mean, best


def panel_rows(
    adapter: Adapter, panels: Mapping[str, list[Curve]], cuts: Sequence[float] = CUTS
) -> list[dict[str, Any]]:
    """One row per panel and cut."""
    return [
        panel_row(adapter, name, curves, cut) for name, curves in panels.items() for cut in cuts
    ]


def panel_row(adapter: Adapter, name: str, curves: Sequence[Curve], cut: float) -> dict[str, Any]:
    """What a fit of the first part chooses, and what that was worth at the whole budget."""
    budget = float(min(c.rollouts_K[-1] for c in curves))
    mean, dot = truth_at(curves, budget)
    part = [cut_to(c, budget * cut) for c in curves if (c.rollouts_K <= budget * cut).sum() >= 2]
    top, top_dot = max(mean.values()), max(dot.values())
    seen = so_far(part)
    leader, order = max(seen, key=lambda key: seen[key]), sorted(mean, key=lambda key: key[1])
    following = order[min(order.index(leader) + 1, len(order) - 1)] if leader in order else leader
    row: dict[str, Any] = {
        "panel": name,
        "cut": cut,
        "budget": budget,
        "best": max(mean, key=lambda key: mean[key])[1],
        "rules": {
            "largest n": top - mean[order[-1]],
            "best so far": top - mean.get(leader, np.nan),
            "next n after the leader": top - mean[following],
        },
    }
    try:
        answers = adapter.fit(part, 0)
        choice, refused = answers.chosen(budget), answers.refused(budget)
    except REFUSALS as refusal:
        return {**row, "verdict": "refused", "why": str(refusal)[:200]}
    row |= {"verdict": "refused" if refused else answers.verdict}
    if choice is None:
        return row
    true = mean[choice.configuration]
    return {
        **row,
        "chosen": choice.configuration[1],
        "loss": top - true,
        "loss by best dot": top_dot - dot[choice.configuration],
        "score": choice.score,
        "low": choice.low,
        "high": choice.high,
        "true": true,
        "held": choice.low <= true <= choice.high,
    }
