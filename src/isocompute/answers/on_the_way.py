"""The run of a plan on its way: the score at which to stop it, and what checks leave of it.

Shape legend: D draws, K evaluations of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from isocompute.answers.best import FloatArray, interval
from isocompute.answers.logged import score_text
from isocompute.answers.prescribe import Question
from isocompute.answers.reading import Reading
from isocompute.answers.spending import solved
from isocompute.answers.step_lines import checks, share_paid
from isocompute.domain import Configuration, Curve
from isocompute.domain.text import fitting

# Times what the choice was trained to. Half of it tells nothing new, twice of it costs twice as
# much before a wrong trend shows.
FURTHER = 2.0
# A check must find a run that has stopped learning in so many of the cases. At half it would pass
# most of those, at 0.95 few plans have a check before they end.
POWER = 0.8
_STEP = 1.1  # between the two budgets that give the slope of a curve
# Of the distances between evaluations: a run that was cut off has one of another length at its end.
_REGULAR = 0.9


def one_run(
    fit: Reading, c: Configuration, x: float, which: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Draws (D,) of a score at a budget, and of one evaluation of one new run there.

    Args:
        fit, c, x: what is asked of which configuration, at which budget.
        which: of several new runs.
    """
    score_D, further_D = (fit.scores_of([c], one)[:, 0] for one in (x, x * _STEP))
    return score_D, fit.posterior.of_one_run(score_D, further_D - score_D, _STEP, which)


class Every(NamedTuple):
    """Evaluations at `first`, `first + steps`, ..."""

    steps: int
    first: int


def evaluated_every(curves: Sequence[Curve], c: Configuration) -> Every | None:
    """The interval at which runs are evaluated, those of a configuration where there are some.

    Returns:
        None where their logs show no regular one.
    """
    with_steps = [r for r in curves if r.steps_K is not None]
    of = [r for r in with_steps if r.configuration == c] or with_steps
    step_RK = [np.unique(np.rint(r.steps_K[r.steps_K > 0])).astype(int) for r in of
               if r.steps_K is not None]  # fmt: skip
    gaps = Counter(int(gap) for step_K in step_RK for gap in np.diff(step_K))
    every, times = max(gaps.items(), key=lambda one: one[1], default=(0, 0))
    if times < max(2, _REGULAR * gaps.total()):
        return None
    offsets = Counter(int(step) % every for step_K in step_RK for step in step_K)
    return Every(every, max(offsets, key=lambda one: offsets[one]))


def check_on_the_way(q: Question, chosen: Configuration) -> dict[str, Any] | None:
    """The score that one evaluation of one run should have, where that finds a run that stalls.

    At twice what is known of the choice, or at the first doubling from there at which a run that
    stayed where its data end would fall below the interval in four of five cases; then at the next
    evaluation, where those of the runs are regular.

    Returns:
        `x` in the unit of the fit, `rollouts`, `step`, `score` and its `interval`, which holds a
        run's own luck and the noise of its evaluation. None where no such budget lies in the first
        half of the plan's own: later, a stop saves less than was spent.
    """
    fit = q.fit
    known = max(fit.reached(chosen), fit.support[1])
    now_D, x = fit.scores_of([chosen], known)[:, 0], FURTHER * known
    stalled_D = fit.posterior.of_one_run(now_D, np.zeros_like(now_D), _STEP)
    every = evaluated_every(fit.curves, chosen)
    while 2 * x <= q.x:
        step, at = max(int(q.rollouts(chosen, x)) // chosen.batch_size, 1), x
        if every is not None:
            step = every.first + -(-(step - every.first) // every.steps) * every.steps
            at = budget_of(q, chosen, step * chosen.batch_size)
        if at >= q.x:
            return None
        score_D, run_D = one_run(fit, chosen, at)
        ends = interval(run_D, fit.level)
        if (stalled_D < ends[0]).mean() >= POWER:
            return {"x": at, "rollouts": step * chosen.batch_size, "step": step,
                    "score": score_D.mean(), "interval": ends}  # fmt: skip
        x *= FURTHER
    return None


def budget_of(q: Question, c: Configuration, rollouts: float) -> float:
    """What some rollouts of a configuration take, in the unit of the fit."""
    if q.fit.unit == "rollouts":
        return rollouts
    return solved(partial(q.rollouts, c), rollouts, q.x)


def check_words(d: Mapping[str, Any]) -> str:
    """One line of it, with the log's word for the score; nothing where there is none."""
    if not (check := d.get("check")):
        return ""
    low, at = score_text(d, check["interval"][0]), f"at step {check['step']:,}"
    key = (d.get("logged") or {}).get("key") or ""
    text, expected = f"below {low} {at}", f" (expected: {score_text(d, check['score'])})"
    short = "/".join(key.rsplit("/", 2)[-2:])
    ends = [f"{expected}; fit again", expected]
    # With all its checks the run may end before that step.
    left = [row["steps"] for row in d.get("after_checks") or ()]
    if left and left[-1] <= check["step"]:
        tail = " (if you skip the checks)"
        ends = [expected + tail, tail]
    names = (f"{key} ", f"{short} ") if key else ()
    forms = [f"{name}{text}{end}" for name in (*names, "") for end in ends]
    return fitting(forms)


def after_checks(
    q: Question, chosen: Configuration, d: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """What is left of the run once its checks are paid from its budget.

    Args:
        q, chosen: the question and its answer.
        d: the document of the plan, with its steps.

    Returns:
        A row for the first check, one for the first two, ...: `checks` (how many), `steps` of the
        run, its `rollouts`, `predicted_score` and its interval. No row where a run is left as it
        is, or nothing is left of it; None at a fixed batch, whose steps no check shortens.
    """
    if q.steps is not None:
        return None
    first, rows = checks(d), list[dict[str, Any]]()
    for many in range(1, len(first) + 1):
        share = share_paid(d, first[:many])
        if share is None or not (left := _steps_of_the_rest(q, chosen, d, share)):
            continue
        rollouts = left * chosen.batch_size
        x = budget_of(q, chosen, rollouts)
        score_D = q.fit.scores_of([chosen], x)[:, 0]
        rows.append({
            "checks": many, "steps": left, "rollouts": rollouts,
            "predicted_score": score_D.mean(),
            "predicted_score_interval": q.fit.ends(chosen, x, score_D),
        })  # fmt: skip
    return rows


def _steps_of_the_rest(q: Question, c: Configuration, d: Mapping[str, Any], share: float) -> int:
    """Steps of the run that the rest of its price pays for, once checks have a share of it."""
    whole = d["cost"].get(unit := q.fit.unit.replace("-", "_"))
    if whole is None:
        return max(int((1 - share) * d["steps"]), 0)
    left = (1 - share) * whole - q.price.started(unit)
    return int(q.rollouts(c, left) * (1 + 1e-12) // c.batch_size) if left > 0 else 0
