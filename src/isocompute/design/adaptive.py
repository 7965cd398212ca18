"""The next look of an adaptive sweep: what to continue, freeze, repeat, and when to end.

A pure function of the curves and of the look before. All configurations start with one seed and
are looked at each time their rollouts have doubled; one that can no longer be best is frozen; the
next slice of a run, or another seed, goes where it lowers the expected loss of the plan most per
rollout.

Shape legend: D draws, J configurations, X budgets, Z nodes of a normal distribution.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from isocompute.answers.best import expected_regret, probability_best
from isocompute.domain import Configuration, Curve
from isocompute.errors import RefusalError
from isocompute.intervals import FloatArray
from isocompute.model.fit import fit_posterior
from isocompute.model.posterior import BEYOND, HALF, Posterior
from isocompute.study.adaptive import Action, Decision, Grid, Look

DRAWS = 200  # of a fit
NEAR = 0.005  # of score: a configuration so close to the best matters
LOOKS = 2  # in a row below the bounds
AHEAD, PATH = 8, 9  # budgets between now and the target; along the whole path
# Steps before an n above the leader may be frozen: until then it is behind because its updates are
# few, which says nothing of where it goes.
EVIDENCE = 60
# A look spends half of what was spent before it, on what is worth most, and on nothing that is
# worth less than 3% of the best. Less at a time would be a little cheaper and much slower: what is
# decided at one look trains side by side.
STEP, SHARE = 0.5, 0.03
# What rises late is not foretold by any curve. So no n is frozen, and no sweep ends, before each
# that may be best has seen a quarter of its run, the leader half of the target or its whole run.
# 14 planted worlds lose 0.0002 along the path for 30% of the grid; with half for all, 0.0000 for
# 33%; with neither, 0.0006 for 21%, and 0.002 and 0.004 in the two whose n rise late.
SEES, LEADER_SEES = 1 / 4, 1 / 2
# Standard deviation of what one slice of a run shows of its curve: three evaluations of some
# hundred problems.
SEEN = 0.006


class _View(NamedTuple):
    """What a fit says of every configuration that has scores."""

    place: dict[Configuration, int]
    near_J: FloatArray  # largest chance to be close to the best at a budget ahead
    improvement_J: FloatArray  # largest expected improvement there
    best_J: FloatArray  # chance to be best at the target
    leader: Configuration
    at_target: float  # expected loss of the plan
    on_path: float  # its root mean square along the path: where it is large counts most
    score_DJX: FloatArray  # along the path
    fit: Posterior


def next_look(grid: Grid, curves: Sequence[Curve], last: Look) -> Look:
    """Decide what every configuration does next.

    Args:
        curves: of the runs that train, up to where the last look sent them.
        last: the look before; its runs have trained, or failed.

    Returns:
        One decision for the sweep, one for every configuration of the grid.
    """
    ordered = sorted(curves, key=lambda c: (c.configuration, c.seed or 0, c.run))
    try:
        fit = fit_posterior(ordered, draws=DRAWS, seed=last.number + 1)
    except RefusalError:  # every run failed before its first evaluation
        rows = {c: _resting(d) for c, d in last.of_configurations.items() if c in grid.steps}
        return _look(grid, last.number + 1, "end", {"spent": grid.spent(rows)}, rows)
    return look_at(grid, fit, last)


def look_at(grid: Grid, fit: Posterior, last: Look) -> Look:
    """The same, from the fit of these curves."""
    before = {c: d for c, d in last.of_configurations.items() if c in grid.steps}
    number = last.number + 1
    view = _view(grid, fit, before)
    judged = {c: _judged(grid, view, c, d) for c, d in before.items()}
    foretold = {c for c, d in judged.items() if _is_foretold(grid, view, c, d)}
    after = None
    if foretold or max(view.at_target, view.on_path) >= grid.bounds.tolerance:
        after = _spend(grid, view, judged, foretold)
    numbers = {
        "loss_at_target": view.at_target, "loss_on_path": view.on_path,
        "spent": grid.spent(before), "leader": view.leader.rollouts_per_problem,
        "foretold": len(foretold),
    }  # fmt: skip
    if after is None:
        if max(view.at_target, view.on_path) >= grid.bounds.tolerance:
            numbers |= _needed(grid, view, judged)
        return _look(grid, number, "end", numbers, {c: _resting(d) for c, d in judged.items()})
    return _look(grid, number, "continue", numbers, after)


def _look(
    grid: Grid,
    number: int,
    action: Action,
    numbers: Mapping[str, float],
    decisions: Mapping[Configuration, Decision],
) -> Look:
    return Look(number, (grid.of_sweep(action, _rounded(numbers)), *decisions.values()))


def _rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    """For people; and so that the last bit of a sum is no difference between two machines."""
    return {
        name: float(value if value == int(value) else f"{value:.6g}")
        for name, value in numbers.items()
    }


def _resting(decision: Decision) -> Decision:
    keeps = decision.action in ("freeze", "thaw")
    return decision if keeps else replace(decision, action="wait")


def _view(grid: Grid, fit: Posterior, before: Mapping[Configuration, Decision]) -> _View:
    target = min(float(np.log10(grid.bounds.target)), float(fit.last_J.max()) + BEYOND)
    now = min(float(np.log10(max(max(d.rollouts) for d in before.values()))), target)
    first = min(float(np.log10(max(grid.levels(c)[0] for c in before))), target)
    ahead_DJX = fit.scores(np.linspace(now, target, AHEAD))
    path_DJX = fit.scores(np.linspace(first, target, PATH))
    top_DX = ahead_DJX.max(axis=1)
    improvement_J = np.array([
        np.maximum(ahead_DJX[:, j] - np.delete(ahead_DJX, j, 1).max(axis=1), 0).mean(axis=0).max()
        if ahead_DJX.shape[1] > 1 else 1.0
        for j in range(ahead_DJX.shape[1])
    ])  # fmt: skip
    mean_J = ahead_DJX[:, :, -1].mean(axis=0)
    return _View(
        place={c: j for j, c in enumerate(fit.configurations)},
        near_J=(ahead_DJX >= top_DX[:, None] - NEAR).mean(axis=0).max(axis=1),
        improvement_J=improvement_J,
        best_J=probability_best(path_DJX)[:, -1],
        leader=fit.configurations[int(mean_J.argmax())],
        at_target=float(expected_regret(ahead_DJX)[:, -1].min()),
        on_path=float(np.sqrt((expected_regret(path_DJX).min(axis=0) ** 2).mean())),
        score_DJX=path_DJX,
        fit=fit,
    )


def _judged(grid: Grid, view: _View, c: Configuration, before: Decision) -> Decision:
    """The decision so far with this look's numbers, frozen where they are low a second time.

    One that was frozen goes on where its numbers have risen since: others may have fallen back.
    """
    j = view.place.get(c)
    if j is None or before.action == "thaw":
        return before
    near, improvement = float(view.near_J[j]), float(view.improvement_J[j])
    low = near < grid.bounds.chance and improvement < grid.bounds.improvement
    above = c.rollouts_per_problem > view.leader.rollouts_per_problem
    few = above and before.rollouts[0] < EVIDENCE * c.batch_size
    whole = min(grid.bounds.target, grid.levels(c)[-1])
    low = low and not few and _has_seen(c, before, SEES * whole)
    looks = before.numbers.get("looks_below", 0) + 1 if low else 0
    numbers = {
        "chance": near, "improvement": improvement, "best_at_target": float(view.best_J[j]),
        "looks_below": looks,
    }  # fmt: skip
    action: Action = "freeze" if looks >= LOOKS else "wait"
    return replace(before, action=action, numbers=_rounded(numbers))


def _is_foretold(grid: Grid, view: _View, c: Configuration, decision: Decision) -> bool:
    """Whether what may be best has shown too little to say where it ends."""
    if decision.action == "thaw":
        return False
    target, whole = grid.bounds.target, grid.levels(c)[-1]
    until = min(LEADER_SEES * target, whole) if c == view.leader else SEES * min(target, whole)
    return _grows(view, c, decision) and not _has_seen(c, decision, until)


def _has_seen(c: Configuration, decision: Decision, rollouts: float) -> bool:
    """Whether its first run trains as far; slices end at a whole update."""
    return decision.rollouts[0] + c.batch_size > rollouts


def _grows(view: _View, c: Configuration, decision: Decision) -> bool:
    """Whether its first run got as far as it was sent; one that failed grows no more."""
    j = view.place.get(c)
    return j is not None and bool(view.fit.last_J[j] > np.log10(decision.rollouts[0]) - HALF)


class _Option(NamedTuple):
    """Rollouts that a configuration may get, and what each is worth."""

    worth: float  # per rollout
    configuration: Configuration
    action: Action
    rollouts: tuple[int, ...]  # of its seeds afterwards


def _spend(
    grid: Grid,
    view: _View,
    judged: Mapping[Configuration, Decision],
    foretold: Collection[Configuration],
) -> dict[Configuration, Decision] | None:
    """More rollouts for those where they lower the expected loss of the plan most; None: nowhere.

    The worth of a longer run is the best per rollout of all its lengths, and it gets one slice of
    it: the first slice of a slow start may decide nothing by itself. What is only foretold so far
    gets its slice, whatever that is worth.
    """
    options = sorted(
        (o for c, d in judged.items() for o in _options(grid, view, c, d)),
        key=lambda o: (-o.worth, o.configuration, o.action),
    )
    after, spent, best = dict(judged), grid.spent(judged), 0.0
    for option in options:
        if grid.spent(after) >= (1 + STEP) * spent:
            break
        decision = judged[option.configuration]
        if after[option.configuration] is not decision:
            continue
        due = option.action == "continue" and option.configuration in foretold
        if not due and option.worth <= SHARE * best:
            continue
        numbers = {**decision.numbers, **_rounded({"worth_per_rollout": option.worth})}
        action = decision.action if decision.is_frozen else option.action
        more = replace(decision, action=action, rollouts=option.rollouts, numbers=numbers)
        if grid.spent({**after, option.configuration: more}) <= grid.limit:
            after[option.configuration] = more
            best = max(best, option.worth)
    return after if grid.spent(after) > spent else None


def _needed(
    grid: Grid, view: _View, judged: Mapping[Configuration, Decision]
) -> dict[str, float]:
    """What the sweep would have to be allowed for its cheapest next step; 0: there is none."""
    costs = [
        grid.spent({**judged, o.configuration: replace(d, rollouts=o.rollouts)})
        for c, d in judged.items() for o in _options(grid, view, c, d) if o.worth > 0
    ]  # fmt: skip
    return {"needed": min(costs, default=0)}


def _options(grid: Grid, view: _View, c: Configuration, decision: Decision) -> list[_Option]:
    """The next slice of the first run, unless it is frozen, and other seeds as far as that one."""
    j, levels, seeds = view.place.get(c), grid.levels(c), decision.rollouts
    if j is None or decision.action == "thaw":
        return []
    # Of another budget, a run may stand between two slices.
    levels = sorted({*levels, seeds[0]})
    reach = levels.index(seeds[0])
    score_DL = view.fit.scores(np.log10(np.asarray(levels, dtype=np.float64)))[:, j]
    found = []
    if not decision.is_frozen and _grows(view, c, decision) and reach + 1 < len(levels):
        worth = max(
            _worth(view.score_DJX, _new_in(score_DL[:, k], score_DL[:, reach]), SEEN**2)
            / (levels[k] - seeds[0])
            for k in range(reach + 1, len(levels))
        )
        grown = (levels[reach + 1], *seeds[1:])
        found.append(_Option(worth, c, "continue", grown))
    for k in range(reach + 1):
        runs = sum(r >= levels[k] for r in seeds)
        noise = runs * float(score_DL[:, k].var())  # of one run: so much of it is left
        gain = _worth(view.score_DJX, score_DL[:, k], noise)
        for place in range(1, min(len(seeds) + 1, grid.seeds)):
            has = seeds[place] if place < len(seeds) else 0
            if has < levels[k]:
                more = (*seeds[:place], levels[k], *seeds[place + 1 :])
                found.append(_Option(gain / (levels[k] - has), c, "repeat", more))
    return found


def _new_in(score_D: FloatArray, known_D: FloatArray) -> FloatArray:
    """What a score says beyond another one of the same run."""
    off_D = known_D - known_D.mean()
    slope = float((score_D * off_D).mean()) / max(float((off_D**2).mean()), 1e-12)
    return np.asarray(score_D - slope * known_D)


def _worth(score_DJX: FloatArray, seen_D: FloatArray, noise: float) -> float:
    """Expected gain of the plan, at the target and along the path, from seeing a quantity.

    Seeing it moves the means of all scores along their covariance with it (the knowledge gradient
    with correlated beliefs).

    Source: Frazier, Powell, Dayanik 2009, INFORMS Journal on Computing 21(4), equation 11.

    Args:
        seen_D: draws of what would be seen.
        noise: variance with which.
    """
    node_Z, weight_Z = np.polynomial.hermite_e.hermegauss(15)
    mean_JX = score_DJX.mean(axis=0)
    off_D = seen_D - seen_D.mean()
    covariance_JX = np.einsum("djx,d->jx", score_DJX, off_D) / len(off_D)
    move_JX = covariance_JX / np.sqrt(max(float((off_D**2).mean()) + noise, 1e-12))
    best_XZ = (mean_JX[..., None] + move_JX[..., None] * node_Z).max(axis=0)
    gain_X = np.maximum(best_XZ @ (weight_Z / weight_Z.sum()) - mean_JX.max(axis=0), 0.0)
    return float(gain_X.mean() + gain_X[-1]) / 2
