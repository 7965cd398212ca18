"""What the steps before a plan would take, in rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isocompute.answers.advice import SPEND
from isocompute.answers.effort import longest, seeds
from isocompute.answers.prescribe import Question
from isocompute.answers.price import per_rollout
from isocompute.domain import Configuration
from isocompute.lr_sweep import FACTORS

SAMPLES = 16  # what `difficulty` draws unless told otherwise


def first_to(q: Question, c: Configuration) -> dict[str, Any]:
    """Fields of a remedy: train one run of a configuration on, at most to twice its data."""
    own = [r.position(q.fit.unit)[-1] for r in q.fit.curves if r.configuration == c]
    reached = float(max(own, default=0.0))
    to = min(q.x, 2 * max(reached, q.fit.support[1]))
    left = to - reached if to > reached else to
    return {"to": to, "unit": q.fit.unit, "rollouts": left / per_rollout(q.rates_of(c), q.fit.unit)}


def steps_take(q: Question, bought: float, near: Sequence[Configuration]) -> dict[str, float]:
    """Rollouts of the steps that no notice knows, by code.

    Args:
        bought: rollouts of the plan.
        near: the configurations that a step trains on or adds seeds to.
    """
    fit = q.fit
    reach = min(bought, 2 * longest(fit))
    out = {"law_of_another_model": SPEND * bought}
    if q.study is None:
        out["anchor_assumed"] = 2 * reach / 4  # half and twice the rate, a quarter as far
        out["seeds_missing"] = seeds(fit, near, most=bought)
        out["extrapolated"] = sum(max(reach - longest(fit, c), 0.0) for c in near)
    else:
        # A command takes an n at every B_p of the study, with every seed.
        n, repeats = {c.rollouts_per_problem for c in near}, int(max(fit.posterior.n_runs_J))
        ends = [float(c.rollouts_K[-1]) for c in fit.curves if c.rollouts_per_problem in n]
        on = sum(max(reach - end, 0.0) for end in ends)
        again = [c for c in fit.configurations if c.rollouts_per_problem in n]
        whole = sum(2 * longest(fit, c) for c in again)
        out |= {"seeds_missing": whole, "extrapolated": on}
        if q.recipe is not None:
            out["anchor_assumed"] = len(FACTORS) * repeats * longest(fit)
    if q.problems:
        out["difficulty_assumed"] = SAMPLES * float(q.problems)
    return out
