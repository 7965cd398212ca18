"""What the run of a plan should score on its way, so that a wrong trend shows early.

Beyond the budgets that were compared, the run of the plan is the cheapest test of the trend: it
passes through the next ones anyway.

Shape legend: D draws.
"""

from __future__ import annotations

from typing import Any

from isocompute.answers.best import interval
from isocompute.answers.prescribe import Question
from isocompute.answers.price import per_rollout
from isocompute.domain import Configuration

# Times what the choice was trained to. Half of it tells nothing new, twice of it costs twice as
# much before a wrong trend shows.
FURTHER = 2.0
_STEP = 1.1  # between the two budgets that give the slope of a curve


def check_on_the_way(q: Question, chosen: Configuration) -> dict[str, Any] | None:
    """The score that one evaluation of one run should have at twice what is known of the choice.

    Returns:
        `x` in the unit of the fit, `rollouts`, `step`, `score` and its `interval`, which holds a
        run's own luck and the noise of its evaluation. None where the plan ends before.
    """
    fit = q.fit
    own = [c.position(fit.unit)[-1] for c in fit.curves if c.configuration == chosen]
    x = FURTHER * max(*map(float, own), fit.support[1], 0.0)
    if q.x <= x:
        return None
    score_D, further_D = (fit.scores_of([chosen], at)[:, 0] for at in (x, x * _STEP))
    run_D = fit.posterior.of_one_run(score_D, further_D - score_D, _STEP)
    step = max(int(x / per_rollout(q.rates_of(chosen), fit.unit)) // chosen.batch_size, 1)
    return {
        "x": x, "rollouts": step * chosen.batch_size, "step": step, "score": score_D.mean(),
        "interval": interval(run_D, fit.level),
    }  # fmt: skip
