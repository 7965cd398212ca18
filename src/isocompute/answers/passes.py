"""How often a plan goes over its training problems, beside what the sweep saw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from isocompute.allocation import Allocation
from isocompute.answers.prescribe import Question
from isocompute.domain import Notice, notice
from isocompute.domain.text import compact

# A twelfth of the problems halves the n that is best (arXiv 2603.12151, section 5): a quarter is
# worth a word; half of it would miss that case's milder kin, twice of it would name every subset.
FEWER = 4


class Passes(NamedTuple):
    """Passes over the problems: of the plan, and of the sweep's runs (None: not known)."""

    plan: float | None
    sweep: dict[str, float] | None  # `of_n`: of the plan's n, `most`, over so many `problems`
    notices: list[Notice]


def passes_of(q: Question, a: Allocation) -> Passes:
    """Passes of an allocation, over the problems said, else over those of the sweep's own logs."""
    known = [(c.rollouts_per_problem, c.trained_on) for c in q.fit.curves if c.trained_on]
    mine = [d for n, d in known if n == a.rollouts_per_problem]
    of_logs = round(median(mine or [d for _, d in known])) if known else None
    swept, problems = of_logs or q.trained_on, q.problems or of_logs
    if not problems:
        return Passes(None, None, [])
    passes = a.steps * a.problems_per_batch / problems
    by_n = dict[int, float]()
    for c in q.fit.curves:
        n, over = c.rollouts_per_problem, c.trained_on or swept
        if over:
            by_n[n] = max(by_n.get(n, 0.0), float(c.rollouts_K[-1]) / n / over)
    seen, notices = None, list[Notice]()
    if by_n and swept:
        seen = {"of_n": by_n.get(a.rollouts_per_problem, 0.0), "most": max(by_n.values()),
                "problems": swept}  # fmt: skip
    drawn = max(float(c.rollouts_K[-1]) / c.rollouts_per_problem for c in q.fit.curves)
    if passes > max(1.0, seen["most"] if seen else drawn / problems):
        notices.append(notice("passes_over_data", passes=passes, problems=problems))
    if q.problems and swept and q.problems < swept / FEWER:
        notices.append(notice("problems_fewer", problems=q.problems, known=swept))
    return Passes(passes, seen, notices)


def passes_words(d: Mapping[str, Any]) -> str:
    """Passes of a plan that goes over its problems more often than the sweep did; else ""."""
    if all(one["code"] != "passes_over_data" for one in d.get("notices", ())):
        return ""
    passes, seen = d["passes_over_data"], d.get("passes_in_sweep")
    problems = d["steps"] * d["problems_per_batch"] / passes
    text = f"{_times(passes)} passes over {compact(round(problems))} problems"
    if not seen:
        return text
    over = f" over {compact(seen['problems'])}" if seen["problems"] != round(problems) else ""
    return f"{text}; so far n = {d['rollouts_per_problem']} made {_times(seen['of_n'])}{over}"


def _times(value: float) -> str:
    return compact(math.floor(value + 0.5)) if value >= 10 else f"{value:.1f}"
