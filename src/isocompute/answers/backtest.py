"""How far the model may be trusted beyond the data: it predicts scores that it was not shown.

The model is fitted to the evaluations before a cut and predicts the later ones. The fit of the
whole sweep stands for the truth, because it is free of the noise of single evaluations. Its own
uncertainty counts in the standardised misses.

Shape legend: D draws, J configurations of the whole sweep, I of the part before a cut, X budgets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.answers.best import choice
from isocompute.answers.paper import paper_choice
from isocompute.domain import Configuration, Curve
from isocompute.errors import RefusalError
from isocompute.intervals import draw_interval

if TYPE_CHECKING:
    from isocompute.model import Posterior

Refit = Callable[[Sequence[Curve]], "Posterior"]

CUTS = (0.5, 0.25)  # of the largest budget
HELD_OUT = (1 / 3, 2 / 3, 1.0)  # of the way from the cut to the end of a configuration's data
# Observations that say more than chance. So many count as predicted rightly before any is, as a
# sweep of two curves would widen by chance, and a test with fewer cannot fail. Seven curves that
# miss by 2 at both cuts widen by 1.83, by 1.90 with half, 1.71 twice.
ENOUGH = 4


@dataclass(frozen=True, kw_only=True)
class Backtest:
    """What the model said of what it was not shown, and what was there.

    A configuration at a cut is one observation, however many of its budgets were held out, as it
    misses all of them alike. `widened_by` is the root mean square of their standardised misses.
    """

    unit: str = "rollouts"  # of every budget in it, whatever the answers are counted in
    cuts: tuple[float, ...] = ()  # the budgets at which the sweep was cut and fitted
    mae_model: float | None = None  # mean absolute error; None where nothing was held out, as all
    mae_best_so_far: float | None = None  # of saying that scores stay where they were at the cut
    skill: float | None = None  # 1 - error of the model / error of best so far
    # Least and most (two standard errors) by which the model misses more than best so far; None for
    # fewer than four observations.
    excess: tuple[float, float] | None = None
    coverage: float | None = None  # share of what was held out that lies inside its interval
    widened_by: float = 1.0  # factor, at least 1, on the spread of draws beyond the data
    rules: dict[str, float] = field(default_factory=dict)  # mean score lost at the end by each
    rows: tuple[dict[str, Any], ...] = ()  # one per held-out score


def backtest(posterior: Posterior, refit: Refit, *, level: float) -> Backtest:
    """Predict what lies beyond half and a quarter of the largest budget.

    Args:
        posterior: of the whole sweep; it judges what was said.
    """
    top = float(posterior.last_J.max())
    rows: list[dict[str, Any]] = []
    losses: dict[float, dict[str, float]] = {}
    for cut in (share * 10**top for share in CUTS):
        early = [c.until(cut) for c in posterior.curves]
        try:
            before = refit([c for c in early if len(c.score_K)])
        except RefusalError:
            continue
        if found := _predicted(before, posterior, cut, level):
            rows += found
            losses[cut] = _lost(before, posterior, float(np.log10(cut)), top)
    return _judged(rows, losses) if rows else Backtest()


def _judged(rows: list[dict[str, Any]], losses: dict[float, dict[str, float]]) -> Backtest:
    observations = defaultdict(list)
    for row in rows:
        key = row["cut"], row["problems_per_batch"], row["rollouts_per_problem"]
        errors = (abs(row[said] - row["observed"]) for said in ("predicted", "best_so_far"))
        observations[key].append((*errors, row["miss"] ** 2))
    model_O, base_O, square_O = np.array([np.mean(o, axis=0) for o in observations.values()]).T
    model, base, count = float(model_O.mean()), float(base_O.mean()), len(model_O)
    more, doubt = model - base, 2 * float((model_O - base_O).std()) / np.sqrt(max(count - 1, 1))
    inside = [row["interval"][0] <= row["observed"] <= row["interval"][1] for row in rows]
    first = next(iter(losses.values()))
    return Backtest(
        cuts=tuple(losses),
        mae_model=model,
        mae_best_so_far=base,
        skill=1 - model / base if base > 0 else None,
        coverage=float(np.mean(inside)),
        excess=(more - doubt, more + doubt) if count >= ENOUGH else None,
        widened_by=float(np.sqrt(max(1.0, (ENOUGH + square_O.sum()) / (ENOUGH + count)))),
        rules={
            name: float(np.mean([one[name] for one in losses.values()]))
            for name in first
            if all(name in one for one in losses.values())
        },
        rows=tuple(rows),
    )


def _predicted(
    before: Posterior, whole: Posterior, cut: float, level: float
) -> list[dict[str, Any]]:
    """Rows of one cut: of every configuration that had begun by then and goes on beyond it."""
    start, place = float(np.log10(cut)), {c: i for i, c in enumerate(before.configurations)}
    held = [
        (c, place[c], j, start + share * (float(whole.last_J[j]) - start))
        for j, c in enumerate(whole.configurations)
        if c in place and whole.first_J[j] <= start < whole.last_J[j] - 1e-6
        for share in HELD_OUT
    ]
    x_X = np.unique([start, *(at for *_, at in held)])
    said_DIX, seen_JX = before.scores(x_X), whole.scores(x_X).mean(axis=0)
    said_IX, sd_IX = said_DIX.mean(axis=0), said_DIX.std(axis=0)
    low_IX, high_IX = draw_interval(said_DIX, level)
    return [
        {
            "cut": cut,
            "x": float(10**at),
            **c._asdict(),
            "predicted": float(said_IX[i, v]),
            "interval": [float(low_IX[i, v]), float(high_IX[i, v])],
            "best_so_far": float(said_IX[i, 0]),
            "observed": float(seen_JX[j, v]),
            "miss": float((seen_JX[j, v] - said_IX[i, v]) / max(sd_IX[i, v], 1e-6)),
        }
        for c, i, j, at in held
        for v in [int(np.searchsorted(x_X, at))]
    ]


def _lost(before: Posterior, whole: Posterior, start: float, end: float) -> dict[str, float]:
    """Score that choices made at the cut lose at the end, by the fit of the whole sweep."""
    mean_J = whole.scores(np.array([end]))[:, :, 0].mean(axis=0)
    of = dict(zip(whole.configurations, mean_J, strict=True))
    said_JX = before.scores(np.array([start, end])).mean(axis=0)
    chosen, leader = (before.configurations[choice(said_J)] for said_J in said_JX.T[::-1])
    rules = simple_rules(whole.configurations, leader, before.curves, 10**end)
    return {name: float(mean_J.max() - of[c]) for name, c in {"model": chosen, **rules}.items()}


def simple_rules(
    configurations: Sequence[Configuration], leader: Configuration,
    curves: Sequence[Curve] = (), amount: float = 1.0, unit: str = "rollouts",
) -> dict[str, Configuration]:  # fmt: skip
    """What others choose: the leader, the largest n, the next n after it, the paper's method.

    Args:
        configurations: all tested.
        leader: the best so far; the other rules keep its B_p.
        curves, amount, unit: what the paper's method reads, and its budget; it is left out where it
            refuses them.

    >>> simple_rules([Configuration(32, n) for n in (8, 16, 64)], Configuration(32, 8))["next_n"]
    Configuration(problems_per_batch=32, rollouts_per_problem=16)
    """
    same = sorted(c for c in configurations if c.problems_per_batch == leader.problems_per_batch)
    paper = paper_choice(curves, same, amount, unit)
    return {
        "best_so_far": leader,
        "largest_n": same[-1],
        "next_n": same[min(same.index(leader) + 1, len(same) - 1)],
        **({} if paper is None else {"paper": paper}),
    }
