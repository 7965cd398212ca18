"""The cost of a plan, and the steps before it, as lines: what they cost and leave of the run."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.answers.logged import score_text
from isocompute.answers.machines import doubt_words, gpus_words
from isocompute.answers.price import UNITS_PAID
from isocompute.answers.steps import ALIKE, SPEND, WIDTH, amounts, in_vain
from isocompute.domain.text import compact, pasted, takes

_SHOWS = 0.05  # of a run: less than that of its steps is not worth a word
TO_TRAIN = " to train"  # of hours without evaluations and checkpoints
_WHOLE = 0.9  # of a run: what is left of it scores next to nothing


def step_cost(step: Mapping[str, Any]) -> list[str]:
    """What a step takes, in words, the longest form first: "8.39M rollouts, $23.1k"."""
    if not step.get("rollouts"):
        return ["16 answers a problem" if step.get("settles") == "difficulty_assumed" else ""]
    paid = amounts(step["cost"])
    money = [one for one in paid if one.startswith("$")]
    spent = takes(step["rollouts"])
    if step.get("settles") == "extrapolated":  # beside the budget to which each is trained
        spent = f"{spent.removesuffix(' rollouts')} more"
    forms = [", ".join([spent, *some]) for some in (paid, money or paid[:1])]
    return [*forms, *(money or paid[:1]), spent]


def checks(d: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Steps of a plan that are worth taking first.

    Each can gain what it costs, where that is known; together they do not cost more than the run.
    """
    left, worth = 1 + ALIKE, list[Mapping[str, Any]]()
    for step in d["run_next"]:
        paid = step.get("rollouts")
        share = _times(d, step.get("cost") or {}, paid) if paid else 0.0
        of_rates = step["settles"] == "anchor_assumed"
        if of_rates and (d.get("trained") or share > SPEND):
            continue  # what is trained needs no rate, and `design` pays no more for one
        if share <= left and not _in_vain(step, d):
            worth.append(step)
            left -= share
    return worth


def _in_vain(step: Mapping[str, Any], d: Mapping[str, Any]) -> bool:
    """Whether a step costs a run that is still to be trained as much score as it can gain."""
    return not d.get("trained") and in_vain(step)


def with_checks(d: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], most: int = 2) -> str:
    """What some steps cost, and what they leave of the run of a plan; "" where none has a price.

    A plan spends its budget: what checks take of it the run loses, if it is not trained already.

    Args:
        most: how many units it may be said in.
    """
    if not (paid := _priced(steps)):
        return ""
    total, spent = _together(paid)
    # Of tokens there is no need beside hours and money.
    shown = {**total, "tokens": None} if total["gpu_hours"] is not None else total
    said = ", ".join(amounts(shown)[:most]) or takes(spent)
    # How much a gauge of unknown problems samples is not known.
    open_ = any(one.get("settles") == "difficulty_assumed" and one not in paid for one in steps)
    less = ""
    if share_paid(d, steps) is not None:  # without a row for as many, the first ones, none is left
        row = next((row for row in d["after_checks"] if row["checks"] == len(steps)), None)
        less = "; nothing is left for the run" if row is None else (
            f"; leaves a run of {row['steps']:,} steps, "
            f"score {score_text(d, row['predicted_score'])}")  # fmt: skip
    return f"{'at least ' * open_}{said}{less}"


def whole_steps(steps: float) -> int:
    """Steps that are paid for in whole; a price of so many in whole stays so.

    >>> whole_steps((1 - 131_072 / 499_712) * 976)
    720
    """
    return max(int(steps * (1 + 1e-12)), 0)


def share_paid(d: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> float | None:
    """What some checks take of the price of a plan's run; None: nothing that shows."""
    if d.get("after_checks") is None:
        return None
    paid = _priced(steps)
    if d.get("trained") or not paid or (share := _times(d, *_together(paid))) < _SHOWS:
        return None
    return share


def _priced(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in steps if one.get("rollouts")]


def _together(paid: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], float]:
    """Cost and rollouts of steps that have some."""
    parts = [one.get("cost") or {} for one in paid]
    whose = next((part["device"] for part in parts if part.get("device")), "")
    cost = {"device": whose} | {
        name: None if any(part.get(name) is None for part in parts)
        else math.fsum(part[name] for part in parts)
        for name in UNITS_PAID
    }  # fmt: skip
    return cost, sum(one["rollouts"] for one in paid)


def _times(d: Mapping[str, Any], cost: Mapping[str, Any], rollouts: float) -> float:
    """Some cost over that of the run alone, in the unit in which the budget is counted."""
    unit = d["law"]["unit"].replace("-", "_")
    if (paid := cost.get(unit)) and (own := d["cost"].get(unit)):
        return float(paid / own)
    return rollouts / (d.get("rollouts") or math.inf)


def step_lines(
    steps: Sequence[Mapping[str, Any]], d: Mapping[str, Any], room: float = math.inf
) -> list[str]:
    """Steps in so many lines; a command that is too long has one of its own."""
    wide = max((len(step["do"]) for step in steps if step["command"]), default=0)
    rows, shown = list[str](), 0
    for i, step in enumerate(steps, 1):
        left = room - len(rows)
        forms = _forms(i, step, wide)
        # in one line of its own, else without its command, which --why has
        own = f"  {i}. {step['do']}   {step['command']}".rstrip()
        forms += [*([[own]] if len(own) <= WIDTH else []), forms[-1][:1]]
        row = next((row for row in forms if len(row) <= left), None)
        if row is None:
            break
        rows, shown = rows + row, i
    if not rows:
        return []
    totals = [with_checks(d, steps[:shown], most) for most in (2, 1)]
    totals += [totals[-1].partition(", score")[0], totals[-1].partition(";")[0]]
    head = "Nothing is left to train. To learn more" if d.get("trained") else "Before you spend"
    heads = [f"{head}{f' ({one})' if one else ''}:" for one in totals]
    return [next((head for head in heads if len(head) <= WIDTH), heads[-1]), *rows]


def too_dear(
    d: Mapping[str, Any], first: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The checks beyond the first ones that cost something."""
    return [s for s in d.get("run_next") or () if s not in first and (s["rollouts"] or s["cost"])]


def too_dear_lines(d: Mapping[str, Any], first: Sequence[Mapping[str, Any]]) -> list[str]:
    """The checks that `checks` leaves out, with what they could gain."""
    left = too_dear(d, first)
    head = ["Left out, too dear beside this run:"] if left else []
    for step in left:
        cost = step_cost(step)[0]
        if _in_vain(step, d):
            cost += f"; {stake_words(step, d, first)}"
        head += wrapped(f"  - {step['do']}" + (f"   ({cost})" if cost else ""))
        head += pasted(step["command"], WIDTH, " " * 4, " " * 6) if step["command"] else []
    return head


def stake_words(
    step: Mapping[str, Any], d: Mapping[str, Any], first: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The score that a step may gain, and that its price costs; "" where nobody knows.

    Args:
        first: what is paid beside it.
    """
    gain, lost = step.get("gain"), step.get("lost")
    if gain is None or lost is None:
        return ""
    said = f"may gain {score_text(d, gain) if gain > 0 else 'nothing'}"
    share = _times(d, step["cost"], step["rollouts"])
    every = share + _times(d, *_together(paid)) if (paid := _priced(first)) else share
    if every > _WHOLE:
        whole = "the budget" if share > 1 + ALIKE else "is left"
        more = f"more than {whole}" if every > 1 + ALIKE else "most of the run"
        return f"{said}, costs {more}"
    cost = score_text(d, lost)
    return said + (f", costs {cost}" if cost != score_text(d, 0.0) else "")


def _forms(i: int, step: Mapping[str, Any], wide: int) -> list[list[str]]:
    """A step as lines, the best form first: with its cost, in one line, then in two."""
    costs = [f"   ({cost})" if cost else "" for cost in step_cost(step)]
    one = f"  {i}. {step['do']:<{wide}}   {step['command']}".rstrip()
    whole = [[one + cost] for cost in costs]
    if step["command"]:
        two = [f"  {i}. {step['do']}{cost}" for cost in costs]
        whole += [[line, *pasted(step["command"], WIDTH, " " * 5, " " * 7)] for line in two]
    whole.append([one])
    # A command is never cut; where it is wider than the screen it has a line of its own.
    fitting = [rows for rows in whole if len(rows[0]) <= WIDTH]
    return fitting or [whole[-2] if step["command"] else [one]]


def note_lines(d: Mapping[str, Any]) -> list[str]:
    """Every notice of a document in full."""
    said = (f"{x['level']}: {x['text']} {x['remedy']} [{x['code']}]" for x in d["notices"])
    return [line for one in said for line in wrapped(one)]


def wrapped(text: str, lines: int | None = None) -> list[str]:
    """A text in lines of the screen, in so many at most."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False,
                         max_lines=lines, placeholder=" ...")  # fmt: skip


def cost_words(cost: Mapping[str, Any]) -> tuple[list[str], str]:
    """What is spent, tokens last, and where the rate comes from."""
    return paid_words(cost) or ["not known; give --rollouts-per-gpu-hour"], source_words(cost)


def paid_words(cost: Mapping[str, Any]) -> list[str]:
    """Amounts of a cost; "to train" where evaluations and checkpoints come on top of its hours.

    What the start of the trainer takes of the hours is said where they would read otherwise
    without it.
    """
    train = TO_TRAIN if is_training_alone(cost) else ""
    hours = cost["gpu_hours"]
    start = ((cost.get("source") or {}).get("gpu_hours_per_start") or {}).get("value")
    shown = start and hours and compact(hours) != compact(hours - start)
    begin = f" ({compact(start)} to start)" if shown else ""
    return [one + train + begin if "PU-hour" in one else one for one in amounts(cost)]


def is_in_tokens(d: Mapping[str, Any]) -> bool:
    """Whether a plan is paid in tokens, as far as it says."""
    found = (d["cost"].get("source") or {}).get("tokens_per_rollout") or {}
    return bool((d.get("law") or {}).get("unit") == "tokens" or found.get("from") == "given")


def is_training_alone(cost: Mapping[str, Any]) -> bool:
    """Whether hours are those of the updates in the logs."""
    found = (cost.get("source") or {}).get("rollouts_per_gpu_hour") or {}
    return found.get("from") == "sweep" and found.get("clocked") is False


def evaluations_words(cost: Mapping[str, Any]) -> list[str]:
    """Whether evaluations are in a cost, and how many, as far as the logs tell."""
    if is_training_alone(cost):
        return ["The cost is that of training: evaluations and checkpoints come on top."]
    found = (cost.get("source") or {}).get("rollouts_per_gpu_hour") or {}
    if not (every := round(found.get("evaluated_every") or 0)):
        return []
    often = "every update" if every == 1 else f"every {every} updates"
    return [f"The cost holds an evaluation {often}, as in your runs."]


def other_amounts(cost: Mapping[str, Any], than: Mapping[str, Any]) -> list[str]:
    """What a setting costs where that differs from the plan's by more than the last step."""
    here, there = cost["gpu_hours"], than["gpu_hours"]
    if not here or not there:
        here, there = cost["tokens"], than["tokens"]
    same = here and there and abs(here / there - 1) < ALIKE
    return [] if same else amounts(cost)


def source_words(cost: Mapping[str, Any], *, trend: bool = True) -> str:
    """Where a cost comes from, of its hours or its tokens; "" where nothing is to be said.

    Args:
        trend: whether to say why it is a range, where it is one.
    """
    source = cost.get("source") or {}
    found = source.get("rollouts_per_gpu_hour") or {}
    tokens = source.get("tokens_per_rollout") or {}
    if not found and tokens.get("beyond") == "n":
        return f"your runs' tokens, {doubt_words(tokens)}"
    by_one = found.get("beyond") == "n"  # which is more than that they differ
    if not by_one and (found.get("trend") or (not found and tokens.get("trend"))):
        return rate_words(found or tokens) if trend else ""
    return rate_words(found) if found else ""


def rate_words(found: Mapping[str, Any]) -> str:
    """Where rollouts per GPU-hour come from, and how far off they may be."""
    if found.get("trend") and found.get("beyond") != "n":
        return f"{found['trend']} in your runs"
    if found.get("timed_on") is not None:
        return f"times of {gpus_words(found['timed_on'])}, scaled"
    if found.get("from") == "sweep" and "off" in found:
        clock = "runs' clock, evaluations in it" if found.get("clocked") else "runs' times"
        clock = "carried on" if found.get("beyond") == "runs" else f"your {clock}"
        return f"{clock}, {doubt_words(found)}"
    whose = {"study": "your study: ", "sweep": "your runs: "}.get(str(found.get("from")), "")
    return f"{whose}{compact(found.get('value'))} rollouts per GPU-hour"
