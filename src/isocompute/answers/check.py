"""What the run of a plan should score on its way, so that a wrong trend shows early.

Beyond the budgets that were compared, the run of the plan is the cheapest test of the trend: it
passes through the next ones anyway.

Shape legend: D draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isocompute.answers.best import interval
from isocompute.answers.prescribe import Question
from isocompute.answers.price import per_rollout
from isocompute.domain import Configuration

# Times what the choice was trained to. Half of it tells nothing new, twice of it costs twice as
# much before a wrong trend shows.
FURTHER = 2.0
# A check must find a run that has stopped learning in so many of the cases. At half it would pass
# most of those, at 0.95 few plans have a check before they end.
POWER = 0.8
_STEP = 1.1  # between the two budgets that give the slope of a curve


def check_on_the_way(q: Question, chosen: Configuration) -> dict[str, Any] | None:
    """The score that one evaluation of one run should have, where that finds a run that stalls.

    At twice what is known of the choice, or at the first doubling from there at which a run that
    stayed where its data end would fall below the interval in four of five cases.

    Returns:
        `x` in the unit of the fit, `rollouts`, `step`, `score` and its `interval`, which holds a
        run's own luck and the noise of its evaluation. None where no such budget lies before the
        plan's own.
    """
    fit = q.fit
    own = [c.position(fit.unit)[-1] for c in fit.curves if c.configuration == chosen]
    known = max(*map(float, own), fit.support[1], 0.0)
    now_D, x = fit.scores_of([chosen], known)[:, 0], FURTHER * known
    stalled_D = fit.posterior.of_one_run(now_D, np.zeros_like(now_D), _STEP)
    while x < q.x:
        score_D, further_D = (fit.scores_of([chosen], at)[:, 0] for at in (x, x * _STEP))
        run_D = fit.posterior.of_one_run(score_D, further_D - score_D, _STEP)
        ends = interval(run_D, fit.level)
        if (stalled_D < ends[0]).mean() >= POWER:
            step = max(int(x / per_rollout(q.rates_of(chosen), fit.unit)) // chosen.batch_size, 1)
            return {"x": x, "rollouts": step * chosen.batch_size, "step": step,
                    "score": score_D.mean(), "interval": ends}  # fmt: skip
        x *= FURTHER
    return None


def check_words(check: dict[str, Any] | None) -> str:
    """One line of it; nothing where there is none."""
    if not check:
        return ""
    low = check["interval"][0]
    return f"below {low:.3f} at step {check['step']:,} (expected: {check['score']:.3f}); fit again"
