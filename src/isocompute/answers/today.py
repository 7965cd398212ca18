"""What a plan gains over the setting of today, at the same budget and in the same draws."""

from __future__ import annotations

import math
from typing import Any

from isocompute.answers.best import interval
from isocompute.answers.prescribe import Prescription, Question, tested_n
from isocompute.domain import Configuration
from isocompute.domain.text import compact
from isocompute.errors import InputError
from isocompute.model.prior import OCTAVES


def parse_current(text: str) -> Configuration | int:
    """Today's setting in words: n=16,bp=32, or n=16; raises ValueError for others.

    >>> parse_current("n=16,bp=32"), parse_current("n=16")
    (Configuration(problems_per_batch=32, rollouts_per_problem=16), 16)
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        name = {"rollouts_per_problem": "n", "problems_per_batch": "bp"}.get(name, name)
        if name not in ("n", "bp") or name in found:
            raise ValueError(f"must be n=16 or n=16,bp=32, but got {text!r}")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (number >= 1 and number.is_integer()):
            raise ValueError(f"must hold whole numbers >= 1, but got {text!r}")
        found[name] = int(number)
    if "n" not in found:
        raise ValueError(f"must name n, as in n=16,bp=32, but got {text!r}")
    return Configuration(found["bp"], found["n"]) if "bp" in found else found["n"]


def gain_over_today(q: Question, found: Prescription) -> dict[str, Any] | None:
    """Score of the choice less that of today's setting; None where no setting was given.

    Today's n alone stands at the B_p of the choice, or at its own smallest stable one.

    Raises:
        InputError: an n that nothing tested resembles, or a batch above the budget.
    """
    if q.current is None:
        return None
    fit, now = q.fit, _today(q, found.configuration.problems_per_batch)
    known = tested_n(fit)
    n = now.rollouts_per_problem
    apart = min(abs(math.log2(n / other)) for other in known)
    if apart > OCTAVES:
        raise InputError(
            f"the current n must lie within a factor of {2**OCTAVES:.0f} of a tested n, but got "
            f"n = {n} and n = {known[0]} to {known[-1]} were tested; train it, or "
            "correct --current."
        )
    steps = int(q.rollouts(now) // now.batch_size)
    if steps < 1:
        raise InputError(
            f"the current batch must fit into the budget, but {now} takes {now.batch_size:,} "
            f"rollouts and the budget is {compact(q.rollouts(now))}; correct --current."
        )
    score_D = fit.scores_of([now], q.x)[:, 0]
    gain_D = found.score_D - score_D
    return {
        **now._asdict(), "tested": now in fit.configurations, "score": gain_D.mean(),
        "interval": interval(gain_D, fit.level), "predicted_score": score_D.mean(),
        "predicted_score_interval": interval(score_D, fit.level),
        "steps": steps, "cost": q.rates_of(now).cost(steps * now.batch_size),
    }  # fmt: skip


def _today(q: Question, b_p: int) -> Configuration:
    """Today's (B_p, n)."""
    if not isinstance(q.current, int):
        assert q.current is not None
        return Configuration(*q.current)
    now, fit = q.current, q.fit
    here = [c.problems_per_batch for c in fit.configurations if c.rollouts_per_problem == now]
    if q.batch_size is not None:
        b_p = max(q.batch_size // now, 1)
    elif here and b_p not in here:
        b_p = fit.stable_problems_per_batch(now, q.x, q.unhealthy)[0]
    return Configuration(b_p, now)
