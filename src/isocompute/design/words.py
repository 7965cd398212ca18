"""A design as text: the sweep, its price, its worth, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from isocompute.domain.text import compact

Row = Mapping[str, Any]

WIDTH, LINES = 80, 12
_LABEL = 8  # columns of the names at the left
_SAID = ("no_sweep", "passes_over_data", "stand_ins", "prior_alone")  # in lines of their own


def design_lines(d: Row) -> list[str]:
    """The `design --json` document in about a dozen lines of 80 columns."""
    sweep, final = d["sweep"], d["final"]
    listed = ", ".join(map(str, sweep["rollouts_per_problem"]))
    seeds = f"{sweep['seeds']} seed{'s' * (sweep['seeds'] > 1)}"
    runs = f"n = {listed}, B_p = {sweep['problems_per_batch']}, {seeds}"
    n, b_p = final["rollouts_per_problem"], final["problems_per_batch"]
    lines: list[str] = []
    if d["answer"] == "no_sweep":
        steps = int(final["rollouts"] // (n * b_p))
        size = f"{b_p} problems x {n} rollouts x {steps:,} steps"
        lines += [f"No sweep: run {size}   ({compact(final['rollouts'])} rollouts)"]
        lines += _row("Cost", f"{_cost(final)}{_rate(final)}")
        lines += _row("Sweep", f"the best one: {runs}, {_each(sweep)}; {_spent(sweep)} "
                      f"({_share(sweep)} of the budget)")  # fmt: skip
    else:
        lines += _row("Sweep", f"{runs}, up to {_each(sweep)}")
        lines += _row("Cost", f"at most {_cost(sweep)} ({_share(sweep)} of the budget)")
        lines += _row("Then", f"{_cost(final)} for the final run{_rate(final)}")
    lines += _row("Worth", _worth(d))
    if d["passes_over_data"] is not None:
        sweep_passes, final_passes = (d["passes_over_data"][k] for k in ("sweep", "final"))
        lines += _row("Passes", f"over your problems: {compact(final_passes)} in the final run, at "
                      f"most {compact(sweep_passes)} in the sweep")  # fmt: skip
    if any(one["code"] == "prior_alone" for one in d["notices"]):
        said = "--difficulty: it decides the best n (isocompute difficulty measures it)"
        lines += _row("Set", said)
    if d.get("time") is not None and d["answer"] == "sweep":
        lines += _row("Time", d["time"])
    after = list[str]()
    if d["study"] is not None:
        toys = [x["remedy"] for x in d["notices"] if x["code"] == "stand_ins"]
        held = f"{d['engine']}{', placeholders' if toys else ''}"
        which = f"{d['study']} ({held}){'' if d['answer'] == 'sweep' else ', the sweep above'}"
        after += _row("Wrote", f"{which}. {toys[0]}" if toys else which)
        if d.get("lacks") is not None:
            after += _row("", f"To train it here: {d['lacks']}")
        if d.get("lr_sweep") is not None:
            rate = f"isocompute lr-sweep {d['study']}"
            after += _row("First", f"{rate}   (+ {_drawn(d['lr_sweep'])})")
        if d["answer"] == "sweep":
            after += _row("Run", f"isocompute run {d['study']}   (it stops by itself)")
    # A second note where it finds room: a budget of lines, not of notes.
    both = _notes(d, 2)
    fits = len(lines) + len(both) + len(after) <= LINES
    return [*lines, *(both if fits else _notes(d, 1)), *after]


def _notes(d: Row, shown: int) -> list[str]:
    """So many of the notices that no other line says, what may turn the answer first."""
    notes = [one for one in d["notices"] if one["code"] not in _SAID]
    notes.sort(key=lambda one: one["code"] != "prior_of_others" or d["answer"] == "sweep")
    left, lines = len(notes) - shown, list[str]()
    for i, one in enumerate(notes[:shown]):
        text = one["text"]
        if one["code"] == "prior_of_others" and d["answer"] == "no_sweep":
            command = f": isocompute run {d['study']}" if d["study"] is not None else ""
            text += f" Then sweep{command}." if _pays_for_others(d) else " No sweep pays even then."
        more = f" ({left} more: --json -)" if left > 0 and i == shown - 1 else ""
        lines += _row("Note" if i == 0 else "", f"{text} {one['remedy']}{more}")
    return lines


def _pays_for_others(d: Row) -> bool:
    """Whether the answer turns where a guess loses twice as much, as `prior_of_others` says."""
    worth = d["worth"]
    return bool(2 * worth["without"]["loss"] > worth["after"]["loss"])


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{name:<{_LABEL}}",
                         subsequent_indent=" " * _LABEL, break_on_hyphens=False)  # fmt: skip


def _share(sweep: Row) -> str:
    """Of the budget, evaluations included."""
    return f"{sweep['share'] * (1 + sweep['evaluation_rollouts'] / sweep['rollouts']):.0%}"


def _each(sweep: Row) -> str:
    return f"{compact(sweep['rollouts_per_run'])} rollouts each"


def _cost(part: Row) -> str:
    known = (("gpu_hours", "{} GPU-hours"), ("usd", "${}"), ("tokens", "{} tokens"))
    cost = part["cost"]
    more = [form.format(compact(cost[k])) for k, form in known if cost[k] is not None]
    apart = part.get("evaluation_rollouts")
    evaluated = "" if apart is None else f" + {compact(apart)} for evaluation"
    return ", ".join([f"{compact(part['rollouts'])} rollouts{evaluated}", *more])


def _spent(part: Row) -> str:
    """What a sweep that is not advised would take: in hours and money where they are known."""
    cost = part["cost"]
    hours = [f"{compact(cost['gpu_hours'])} GPU-hours"] if cost["gpu_hours"] is not None else []
    hours += [f"${compact(cost['usd'])}"] if cost["usd"] is not None else []
    return ", ".join(hours) or _cost(part)


def _drawn(cost: Row) -> str:
    """What a study takes, evaluations included, as short as it can be said."""
    said = [f"{compact(cost['rollouts'] + cost['evaluation_rollouts'])} rollouts"]
    said += [f"{compact(cost['gpu_hours'])} GPU-hours"] if cost["gpu_hours"] is not None else []
    return ", ".join(said + ([f"${compact(cost['usd'])}"] if cost["usd"] is not None else []))


def _rate(part: Row) -> str:
    """Where the rate comes from, and how far off it may be."""
    found = part["cost"]["source"].get("rollouts_per_gpu_hour")
    if found is None:
        return "; GPU-hours: give --rollouts-per-gpu-hour"
    whose = {"study": "the study's rate", "sweep": "the rate of its runs"}
    off = f", within {found['off']:.0%}" if found.get("off") is not None else ""
    return f" ({whose.get(found['from'], 'your rate')}{off})"


def _worth(d: Row) -> str:
    worth = d["worth"]
    after, none = worth["after"], worth["without"]
    guessed = f"{_loss(none)} with the guess n = {none['rollouts_per_problem']}"
    swept = f"{_loss(after)} after the sweep"
    if d["answer"] != "sweep":
        return f"score lost against the best n: {guessed}, {swept}, its cost included"
    scaled = [
        f"{words}: {worth[key]['loss']:.3f}"
        for key, words in (("half", "half as long"), ("twice", "twice"))
        if worth[key] is not None
    ]
    aside = f" ({', '.join(scaled)})" if scaled else ""
    return f"score lost against the best n: {swept}{aside}, {guessed}"


def _loss(row: Row) -> str:
    error = row["standard_error"]
    return f"{row['loss']:.3f}" + ("" if error is None else f" +- {error:.3f}")
