"""Checks of a plan: what those before its run gain and cost, and the one on its way.

Gain and loss are scores, from the draws of the plan: what is expected of choosing after the check
with what is left of the budget, against the run that its price shortens. A check that costs as much
as it can gain is not asked for; nor one that leaves a run that scores no more than what is trained
already, for there is no run left to choose.

Shape legend: D draws, F candidates, S runs that are seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from isocompute.allocation import Allocation
from isocompute.answers.best import AS_GOOD, FloatArray, interval
from isocompute.answers.broke import went_as_far
from isocompute.answers.logged import score_text
from isocompute.answers.machines import evaluated_every
from isocompute.answers.prescribe import Prescription, Question
from isocompute.answers.reading import Reading
from isocompute.answers.spending import solved
from isocompute.answers.step_lines import checks, share_paid, whole_steps
from isocompute.domain import Configuration, Effort, Work
from isocompute.domain.text import fitting, two_digits
from isocompute.model.data import MIN_STEPS

# Times what the choice was trained to. Half of it tells nothing new, twice of it costs twice as
# much before a wrong trend shows.
FURTHER = 2.0
# A check must find a run that has stopped learning in so many of the cases. At half it would pass
# most of those, at 0.95 few plans have a check before they end.
POWER = 0.8
_STEP = 1.1  # between the two budgets that give the slope of a curve
# Steps that compare what was tested, by two more runs of each, or by those there are, further on.
_AMONG_TESTED = ("n_not_told_apart", "seeds_missing", "extrapolated")
# Steps that try one run of something else, or of a choice that nobody ran.
_PROBES = ("one_or_two_n", "split_untested", "capped_by_tested_n", "n_at_smallest_tested",
           "won_by_batch", "bp_untested")  # fmt: skip


def stakes(
    q: Question, found: Prescription, code: str, trains: Effort, before: Sequence[Effort] = ()
) -> dict[str, float | None]:
    """`gain`: expected, at most, by what a check may change; `lost` where the budget pays for it.

    None where the draws do not say: they know nothing of a learning rate, say.

    Args:
        before: what the checks before it train, whose price the run has lost already.
    """
    gain, left = None, None if _is_trained(q, found) else _left(q, [*before, trains])
    if trains and left is not None and not _is_worth_a_run(q, found, left):
        gain = 0.0
    elif code in _AMONG_TESTED:
        gain = among_tested(q, found, trains, left)
    elif code in _PROBES:
        each = [probe(q, found, c, _reaches(q, c, trains[c]), left) for c in trains]
        gain = max((one for one in each if one is not None), default=None)
    return {"gain": gain, "lost": None if gain is None else _lost(q, found, trains, before)}


def first_run(q: Question, found: Prescription) -> Effort | None:
    """The run of an untested n that comes first, with one or two n; None where none is one.

    It goes as far as what it is compared with, or half, a quarter, ... of that where that gains
    more over its price, and no less far than what counts as compared.
    """
    if (c := found.settles) is None:
        return None
    fit, best, most = q.fit, q.fit.check_of(c, found.configuration, q.x), 0.0
    if _is_trained(q, found):
        return best
    rollouts = best[c]
    while _reaches(q, c, rollouts) >= fit.support[0] and rollouts >= MIN_STEPS * c.batch_size:
        trains = {c: rollouts}
        worth = stakes(q, found, "one_or_two_n", trains)
        more = (worth["gain"] or 0.0) - (worth["lost"] or 0.0)
        if worth["lost"] is not None and more > most:
            best, most = trains, more
        rollouts /= 2
    return best


def probe(
    q: Question, found: Prescription, other: Configuration, at: float, left: float | None = None
) -> float | None:
    """Mean gain where one run of another configuration decides whether to change to it.

    It has its own luck, and tells of the budget only as far as the draws of the two go together.
    Where nobody ran the choice, its own run decides between it and the best of those tested.

    Args:
        left: the budget to choose for; None: that of the question.

    Returns:
        None where nothing else may be chosen.
    """
    fit, chosen, x = q.fit, found.configuration, q.x if left is None else left
    rival = chosen
    if other == chosen:
        score = fit.expected_scores(x)
        free = [c for c in score if q.blocked(c) is None and c != chosen]
        if not free:
            return None
        rival = max(free, key=lambda c: score[c])
    own_D, other_D, rival_D = fit.scores_of([chosen, other, rival], x).T
    seen_D = one_run(fit, other, at)[1] - fit.scores_of([rival], at)[:, 0]
    more_D = (rival_D if other == chosen else other_D) - own_D
    told_D = _told(more_D[:, None], seen_D[:, None])
    return float(np.where(told_D > AS_GOOD, told_D, 0.0).mean())  # for less the plan stays


def among_tested(
    q: Question, found: Prescription, trains: Effort, left: float | None = None
) -> float:
    """Mean gain where more runs of what was tested decide which of it to take.

    They tell of the budget only as far as the draws of where they end go together with it.

    Args:
        trains: rollouts in all, by configuration, and the runs that go as far.
        left: the budget to choose for; None: that of the question.
    """
    fit, chosen, x = q.fit, found.configuration, q.x if left is None else left
    free = [c for c in fit.configurations if q.blocked(c) is None and c != chosen]
    seen, which = list[FloatArray](), count()
    for c, rollouts in trains.items():
        each = [one_run(fit, c, _reaches(q, c, to), next(which))[1]
                for (_, to), runs in Work.of(rollouts).spans.items() for _ in range(runs)]
        seen += [np.mean(each, axis=0)] if each else []
    if not seen:
        return 0.0
    told_DF = _told(fit.scores_of([chosen, *free], x), np.column_stack(seen))
    return float(told_DF.max(axis=1).mean() - told_DF.mean(axis=0).max())


def _told(value_DF: FloatArray, seen_DS: FloatArray) -> FloatArray:
    """What is expected of values once something else is seen: the plane through the draws."""
    mean_F, away_DS = value_DF.mean(axis=0), seen_DS - seen_DS.mean(axis=0)
    slope_SF = np.linalg.lstsq(away_DS, value_DF - mean_F, rcond=None)[0]
    return np.asarray(mean_F + away_DS @ slope_SF)


def _reaches(q: Question, c: Configuration, rollouts: float) -> float:
    """How far a run of so many rollouts goes, in the unit of the fit."""
    if q.fit.unit == "rollouts":
        return rollouts
    return solved(partial(q.fit.buys, c), rollouts, q.x)


def _is_trained(q: Question, found: Prescription) -> bool:
    """Whether runs of the choice went this far, so that no price is taken from it."""
    c = found.configuration
    return went_as_far(q, Allocation(**c._asdict(), steps=q.steps_of(c))) is not None


def _left(q: Question, spent: Sequence[Effort]) -> float | None:
    """What checks leave of the budget; None where they are not paid from it, or at no known rate.

    0 is all that is left where they take more than it.
    """
    paid = [sum(one.values()) if q.fit.unit == "rollouts" else
            q.price.cost(one)[q.fit.unit.replace("-", "_")] for one in spent]  # fmt: skip
    if q.steps is not None or None in paid:  # a fixed batch is paid by no budget
        return None
    return max(q.x - sum(one or 0.0 for one in paid), 0.0)


def _is_worth_a_run(q: Question, found: Prescription, left: float) -> bool:
    """Whether a run of what is left scores more than what the sweep has trained already."""
    fit, chosen = q.fit, found.configuration
    if left <= 0 or q.of_another_model:  # runs of another model are none of ours
        return left > 0
    steps, batch = q.steps_of(chosen), chosen.batch_size
    rest = budget_of(q, chosen, steps * batch) - (q.x - left)
    steps_left = two_digits(q.rollouts(chosen, rest) / batch) if rest > 0 else 0
    if not steps_left:
        return False
    left = budget_of(q, chosen, steps_left * batch)  # what is close to nothing buys no check
    there = max(fit.expected_scores(fit.reached(c))[c] for c in fit.configurations)
    own = float(fit.scores_of([chosen], left).mean())
    # By less than anyone pays for is no more; a price of less than that costs no run.
    return own > there + AS_GOOD or own >= max(there, found.score_D.mean() - AS_GOOD)


def _lost(
    q: Question, found: Prescription, trains: Effort, before: Sequence[Effort]
) -> float | None:
    """What the best run scores less that the rest of the budget pays for."""
    whole, rest = _left(q, before), _left(q, [*before, trains])
    if whole is None or rest is None:
        return None
    return _of_the_rest(q, found, whole) - _of_the_rest(q, found, rest)


def _of_the_rest(q: Question, found: Prescription, left: float) -> float:
    """The score of the best run that some budget pays for; 0 where it pays for none."""
    if left <= 0:
        return 0.0
    fit, part = q.fit, replace(q, x=left)
    which = [found.configuration, *(c for c in fit.configurations if part.blocked(c) is None)]
    return float(fit.scores_of(which, left).mean(axis=0).max())


def one_run(
    fit: Reading, c: Configuration, x: float, which: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Draws (D,) of a score at a budget, and of one evaluation of one new run there.

    Args:
        which: of several new runs.
    """
    score_D, further_D = (fit.scores_of([c], one)[:, 0] for one in (x, x * _STEP))
    return score_D, fit.posterior.of_one_run(score_D, further_D - score_D, _STEP, which)


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
    own = [r for r in fit.curves if r.configuration == chosen and r.steps_K is not None]
    every = evaluated_every(own or fit.curves)
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
        return whole_steps((1 - share) * d["steps"])
    left = (1 - share) * whole - q.price.started(unit)
    return whole_steps(q.rollouts(c, left) / c.batch_size) if left > 0 else 0
