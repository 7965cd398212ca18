"""What the steps before a plan would train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isocompute.answers.advice import SPEND
from isocompute.answers.effort import longest, seeds
from isocompute.answers.prescribe import Question
from isocompute.answers.price import per_rollout
from isocompute.domain import Configuration, Effort
from isocompute.lr_sweep import FACTORS

SAMPLES = 16  # what `difficulty` draws unless told otherwise


def first_to(q: Question, c: Configuration) -> dict[str, Any]:
    """Fields of a remedy: train one run of a configuration on, at most to twice its data."""
    own = [r.position(q.fit.unit)[-1] for r in q.fit.curves if r.configuration == c]
    reached = float(max(own, default=0.0))
    to = min(q.x, 2 * max(reached, q.fit.support[1]))
    left = to - reached if to > reached else to
    trains = {c: left / per_rollout(q.rates_of(c), q.fit.unit)}
    return {"to": to, "unit": q.fit.unit, "trains": trains}


def steps_take(
    q: Question, chosen: Configuration, settles: int | None, bought: float,
    near: Sequence[Configuration],
) -> dict[str, Effort]:  # fmt: skip
    """What the steps train that no notice knows, by code.

    Args:
        chosen: the prescription.
        settles: of one or two n, the untested one that tells most.
        bought: rollouts of the plan.
        near: the configurations that a step trains on or adds seeds to.
    """
    fit = q.fit
    reach = min(bought, 2 * longest(fit))
    out: dict[str, Effort] = {"law_of_another_model": {chosen: SPEND * bought}}
    if settles is not None:
        tried = chosen._replace(rollouts_per_problem=settles)
        out |= {one.code: {tried: one.rollouts} for one in fit.notices
                if one.code == "one_or_two_n" and one.rollouts}  # fmt: skip
    if q.study is None:
        out["anchor_assumed"] = {chosen: 2 * reach / 4}  # half and twice the rate, a quarter as far
        out["seeds_missing"] = seeds(fit, near, most=bought)
        out["extrapolated"] = {c: max(reach - longest(fit, c), 0.0) for c in near}
    else:
        # A command takes an n at every B_p of the study, with every seed.
        n, repeats = {c.rollouts_per_problem for c in near}, int(max(fit.posterior.n_runs_J))
        on = dict[Configuration, float]()
        for run in (c for c in fit.curves if c.rollouts_per_problem in n):
            left = max(reach - float(run.rollouts_K[-1]), 0.0)
            on[run.configuration] = on.get(run.configuration, 0.0) + left
        again = [c for c in fit.configurations if c.rollouts_per_problem in n]
        out |= {"seeds_missing": {c: 2 * longest(fit, c) for c in again}, "extrapolated": on}
        if q.recipe is not None:
            out["anchor_assumed"] = {chosen: len(FACTORS) * repeats * longest(fit)}
    if q.problems:
        out["difficulty_assumed"] = {chosen: SAMPLES * float(q.problems)}
    return out
