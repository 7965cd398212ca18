"""What stands beside the choice of a plan, in the same draws.

Today's setting, a part of the budget, where the choice takes the lead, passes over its problems,
other n that are not told apart from it; each with its words.

Shape legend: D draws, F candidates, J configurations, X budgets.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from isocompute.allocation import Allocation
from isocompute.answers.backtest import simple_rules
from isocompute.answers.best import AS_GOOD, choice, interval
from isocompute.answers.broke import to_its_peak
from isocompute.answers.claims import confounded
from isocompute.answers.logged import in_logs, score_text
from isocompute.answers.prescribe import Prescription, Question, candidates, prescribe
from isocompute.answers.spending import apart
from isocompute.answers.steps import first_to
from isocompute.answers.verdict import named
from isocompute.domain import Configuration, Notice, notice, says
from isocompute.domain.text import ROOM, compact, fitting, singular, unit_words
from isocompute.errors import InputError
from isocompute.model.prior import OCTAVES

# A score whose interval is wider than this is not known. That stops a third of the planted plans
# whose score was off by more than 0.05, and none of 1,294 honest ones. Half of it stops 70% with
# many honest ones, twice of it a fifth. Plans from published panels have up to 0.126.
UNKNOWN = 0.2
_QUARTER = 2**0.25  # of an octave
PARTS = {"half": 1 / 2, "tenth": 1 / 10}  # of a budget
_PLACES = 60  # budgets looked at between the two: 4% apart over a decade
# A twelfth of the problems halves the n that is best (arXiv 2603.12151, section 5): a quarter is
# worth a word; half of it would miss that case's milder kin, twice of it would name every subset.
FEWER = 4


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
    fit, now = q.fit, today(q, found.configuration.problems_per_batch)
    known = fit.tested_n
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
    # Draws of an untested one depend on what is asked for beside it: those that it was chosen by.
    which = one if now in (one := candidates(q)) else [now]
    score_D = fit.scores_of(which, q.x)[:, which.index(now)]
    gain_D = found.score_D - score_D
    return {
        **now._asdict(), "tested": now in fit.configurations, "score": gain_D.mean(),
        "interval": interval(gain_D, fit.level), "predicted_score": score_D.mean(),
        "predicted_score_interval": fit.ends(now, q.x, score_D),
        "steps": steps, "cost": q.cost(now, steps * now.batch_size),
    }  # fmt: skip


def today(q: Question, b_p: int) -> Configuration:
    """Today's (B_p, n)."""
    if not isinstance(q.current, int):
        assert q.current is not None
        return Configuration(*q.current)
    now, fit = q.current, q.fit
    here = [c.problems_per_batch for c in fit.configurations if c.rollouts_per_problem == now]
    if q.batch_size is not None:
        b_p = max(q.batch_size // now, 1)
    elif here and b_p not in here:
        b_p = fit.stable_problems_per_batch(now, q.x)[0]
    return Configuration(b_p, now)


def part_of_the_budget(q: Question, found: Prescription, share: float) -> dict[str, Any] | None:
    """The best tested configuration of a part of the budget, beside the choice of all of it.

    Both scores come from the same draws, so that what they share cannot hide or make a difference.

    Returns:
        Configuration, `predicted_score`, `lost` (mean of what it scores less) with its `interval`,
        and `as_good`: that mean is below 0.002. None at a fixed batch, below the budgets compared,
        and where no configuration keeps within the limits.
    """
    fit, part = q.fit, replace(q, x=q.x * share)
    which = [c for c in fit.configurations if part.blocked(c) is None]
    if q.steps is not None or part.x < fit.support[0] or not which:
        return None
    score_DF = fit.scores_of(which, part.x)
    at = choice(score_DF.mean(axis=0))
    lost_D = found.score_D - score_DF[:, at]
    return {
        **which[at]._asdict(), "predicted_score": score_DF[:, at].mean(), "lost": lost_D.mean(),
        "interval": interval(lost_D, fit.level), "as_good": bool(lost_D.mean() < AS_GOOD),
    }  # fmt: skip


def score_unknown(q: Question, found: Prescription) -> Notice | None:
    """That the interval of a score is too wide, and the largest budget where it is not."""
    fit, chosen = q.fit, found.configuration
    low, high = interval(found.score_D, fit.level)
    if high - low <= UNKNOWN:
        return None
    low, high = (in_logs(fit, end) for end in fit.ends(chosen, q.x, found.score_D))
    swept = chosen.problems_per_batch in {c.problems_per_batch for c in fit.configurations}
    which = named(fit, [chosen]) if swept else f"{chosen} (B_p x n)"
    return notice("score_unknown", which=which, at=q.x, low=low, high=high,
                  smaller=_smaller_budget(q), **first_to(q, chosen))  # fmt: skip


def _smaller_budget(q: Question) -> str:
    """The largest budget below that has a plan, to a quarter octave and two digits, in words."""
    fit, gpus = q.fit, q.gpus or 1
    x = q.x / _QUARTER
    while x > fit.support[0]:
        digit = 10 ** (math.floor(math.log10(x / gpus)) - 1)
        said = x / gpus // digit * digit
        with contextlib.suppress(InputError):  # too small for the limits
            low, high = interval(prescribe(replace(q, x=said * gpus)).score_D, fit.level)
            if high - low <= UNKNOWN:
                unit = f"hours on {gpus} GPUs" if q.gpus else unit_words(fit.unit)
                return f"at most {compact(said)} {unit}"
        x /= _QUARTER
    return "a smaller budget"


def less_words(d: Mapping[str, Any]) -> str:
    """What half and a tenth of a plan's budget reach; nothing where nobody knows."""
    half, tenth = (d.get(name) for name in PARTS)
    more = f", a tenth {score_text(d, tenth['predicted_score'])}" if tenth else ""
    if text := to_its_peak(d, more):
        return text
    if half is None:
        return ""
    n, score = half["rollouts_per_problem"], half["predicted_score"]
    if half["as_good"]:
        most = score_text(d, max(half["interval"][1], 0.0))
        of = "" if n == d["rollouts_per_problem"] else f" with n = {n}"
        said = f"half does as well: {score_text(d, score)}{of}"
        return fitting([f"{said} (at most {most} less){more}", said + more])
    return f"half the budget: {score_text(d, score)}{more}"


def overtakes(q: Question, chosen: Configuration) -> dict[str, Any] | None:
    """Where a choice for a budget takes the lead, if that lies beyond what was compared.

    Returns:
        `x`, from which on it scores best; what scores best at the last budget compared (`at`):
        `problems_per_batch`, `rollouts_per_problem`, and by how much the choice is `behind` it.
        None where it is best there, or as good; `x` is null where it leads at no budget tested.
    """
    fit, known, x = q.fit, q.fit.support[1], q.x
    if x <= known or chosen not in fit.configurations:
        return None
    x_X = np.geomspace(known, x, _PLACES)
    mean_JX = fit.scores_at(x_X).mean(axis=0)
    mine_X, best = mean_JX[fit.configurations.index(chosen)], choice(mean_JX[:, 0])
    behind = float(mean_JX[best, 0] - mine_X[0])
    if behind < AS_GOOD:
        return None
    late = np.flatnonzero(mine_X < mean_JX.max(axis=0) - 1e-9)
    from_ = float(x_X[late[-1] + 1]) if late[-1] + 1 < _PLACES else None
    for one in fit.frontier.stretches if from_ else ():  # which has it to the point
        own = (one["problems_per_batch"], one["rollouts_per_problem"]) == chosen
        if own and known < one["from"] <= x and from_ <= one["to"]:
            from_ = one["from"]
            break
    return {"x": from_, "at": known, "behind": behind, **fit.configurations[best]._asdict()}


def lead_words(d: Mapping[str, Any], room: float = ROOM) -> str:
    """One line of it, why a plan differs from what leads in its data; "" where it does not.

    Of the sweep of another model that is the lesser doubt, and the room is that of what to do.
    """
    found = d.get("overtakes")
    if not found or found["x"] is None or says(d, "law_of_another_model"):
        return ""
    before = found["rollouts_per_problem"]
    if before != d["rollouts_per_problem"] and before in d["confidence_set"]:
        return ""  # it may lead there, too
    first, at = (compact(float(f"{found[name]:.2g}")) for name in ("x", "at"))
    n, unit = "rollouts_per_problem", unit_words(d["law"]["unit"])
    other, own = (f"n = {one[n]}" for one in (found, d))
    if other == own:
        other, own = (f"B_p = {one['problems_per_batch']}" for one in (found, d))
    ends = (", where all were last compared", ", the last compared", "")
    forms = [f"{other} led at {at} {unit}{end}; {own} leads from {first}" for end in ends]
    return fitting(forms, room)


def passes_of(q: Question, a: Allocation) -> tuple[dict[str, Any], list[Notice]]:
    """Passes of an allocation, over the problems said, else over those of the sweep's own logs.

    Returns:
        `passes_over_data` and `passes_in_sweep` of the document, {} where not known; what they say.
    """
    curves, n = q.fit.curves, a.rollouts_per_problem
    known = [(c.rollouts_per_problem, c.trained_on) for c in curves if c.trained_on]
    mine = [d for of, d in known if of == n]
    of_logs = round(median(mine or [d for _, d in known])) if known else None
    swept, problems = of_logs or q.trained_on, q.problems or of_logs
    if not problems:
        return {}, []
    passes, seen, notices = a.steps * a.problems_per_batch / problems, None, list[Notice]()
    drawn = [(c, float(c.rollouts_K[-1]) / c.rollouts_per_problem) for c in curves]
    most = max(x for _, x in drawn) / problems
    if swept:
        over = [(c.rollouts_per_problem, x / (c.trained_on or swept)) for c, x in drawn]
        most = max(x for _, x in over)
        seen = {"of_n": max((x for of, x in over if of == n), default=0.0), "most": most,
                "problems": swept}  # fmt: skip
    few = bool(q.problems and swept and q.problems < swept / FEWER)
    # Of far fewer problems the passes of a smaller n say nothing of this one.
    known_passes = seen["of_n"] if few and seen else most
    if passes > max(1.0, known_passes):
        notices.append(notice("passes_over_data", passes=passes, problems=problems))
    if few:
        notices.append(notice("problems_fewer", problems=q.problems, known=swept))
    return {"passes_over_data": passes, "passes_in_sweep": seen}, notices


def passes_words(d: Mapping[str, Any]) -> str:
    """Passes of a plan that goes over its problems more often than the sweep did; else ""."""
    if not says(d, "passes_over_data"):
        return ""
    passes, seen = d["passes_over_data"], d.get("passes_in_sweep")
    problems = d["steps"] * d["problems_per_batch"] / passes
    text = singular(f"{_times(passes)} passes over {compact(round(problems))} problems")
    if not seen:
        return text
    over = f" over {compact(seen['problems'])}" if seen["problems"] != round(problems) else ""
    return f"{text}; so far n = {d['rollouts_per_problem']} made {_times(seen['of_n'])}{over}"


def _times(value: float) -> str:
    return compact(math.floor(value + 0.5)) if value >= 10 else f"{value:.1f}"


def simple_rules_here(q: Question, chosen: Configuration) -> dict[str, Any]:
    """What others would choose here, and what each lost in the back-test."""
    fit, lost = q.fit, q.fit.backtest.rules
    known = min(q.x, fit.support[1])  # where all were last compared
    leader = fit.configurations[choice(fit.scores_at(known).mean(axis=0))]
    rules = simple_rules(fit.configurations, leader, fit.curves, q.x, fit.unit)
    if batch := q.batch_size:  # of which they take a split, too
        rules = {name: Configuration(max(batch // n, 1), n) for name, (_, n) in rules.items()}
    of = {"model": chosen, **rules}
    score_F = fit.scores_of(list(of.values()), q.x).mean(axis=0)
    return {
        name: {**c._asdict(), "score": score, "lost": lost.get(name)}
        for (name, c), score in zip(of.items(), score_F, strict=True)
    }


def won_by_batch(q: Question, chosen: Configuration) -> list[Notice]:
    """The notice that a smaller n would lead at as many rollouts, and which of its batches to try.

    At equal GPU-hours n and the batch change together twice: in what is learnt from a rollout, and
    in how many an hour makes.
    """
    fit = q.fit
    if fit.unit != "gpu-hours" or not confounded(fit.configurations):
        return []
    rollouts = q.rollouts(chosen)
    score = fit.again("rollouts").expected_scores(rollouts)
    other = max(score, key=lambda c: score[c])
    n = other.rollouts_per_problem
    if n >= chosen.rollouts_per_problem or score[other] - score[chosen] < AS_GOOD:
        return []
    wide = Configuration(chosen.batch_size // n, n)
    trains = {wide: fit.buys(wide, min(q.x, fit.support[1]))}
    return [notice("won_by_batch", n=chosen.rollouts_per_problem, other=n,
                   bp=wide.problems_per_batch, trains=trains)]  # fmt: skip


def not_told_apart(q: Question, found: Prescription) -> dict[str, Any] | None:
    """Where several n may be best, those, the one to take, which is the plan's, and another.

    Returns:
        `rollouts_per_problem`, `take`, `other` (None: there is none), and `why` that one: "today",
        "cheapest", or "any" where they cost alike or nobody knows what they cost; `cost_share`, the
        cost of the cheapest over that of the plan. None where they are told apart.
    """
    open_ = next((one for one in found.notices if one.code == "n_not_told_apart"), None)
    if open_ is None:
        return None
    chosen, n = found.configuration, sorted({c.rollouts_per_problem for c, _ in open_.trains})
    now = None if q.current is None else today(q, chosen.problems_per_batch).rollouts_per_problem
    take, other, why, share = chosen.rollouts_per_problem, None, "any", None
    cost = {c: q.cost(c, q.rollouts(c))["gpu_hours"] for c, _ in open_.trains}
    if now in n and now != take:
        other, why = now, "today"
    elif None not in cost.values() and apart(min(cost.values()), max(cost.values())):
        why, cheapest = "cheapest", min(cost, key=lambda c: cost[c])
        own = q.cost(chosen, q.rollouts(chosen))["gpu_hours"]
        share = cost[cheapest] / own if apart(cost[cheapest], own) else None
        other = cheapest.rollouts_per_problem if share else None
    return {"rollouts_per_problem": n, "take": take, "other": other, "why": why,
            "cost_share": share}  # fmt: skip


def open_words(d: Mapping[str, Any]) -> str:
    """That several n may be best, and which to think of beside the plan's; "" where one is best.

    Of the sweep of another model that is the lesser doubt.
    """
    found = d.get("not_told_apart")
    if not found or says(d, "law_of_another_model"):
        return ""
    n = [*map(str, found["rollouts_per_problem"])]
    take = {"today": f"today's {found['other']} may be best, too",
            "cheapest": f"n = {found['other']} costs {1 - found['cost_share']:.0%} less"
            if found["other"] and found["cost_share"] else f"n = {found['take']} is the cheapest",
            "any": "any of them may be best"}[found["why"]]  # fmt: skip
    forms = [f"{which} are not told apart: {take}" for which in (
        f"{', '.join(n[:-1])} and {n[-1]}", f"{len(n)} n from {n[0]} to {n[-1]}")]  # fmt: skip
    return fitting(forms)
