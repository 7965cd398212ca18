"""A design as text: the sweep, its price, its worth, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from isocompute.domain.text import compact

Row = Mapping[str, Any]

WIDTH, LINES = 80, 12
_LABEL = 8  # columns of the names at the left
_SEEN, _NO_ERROR = 0.005, 0.0005  # what rounds to 0% and to 0.000 is not printed
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
        size = f"{b_p} problems x {n} rollouts x {final['steps']:,} steps"
        lines += [f"No sweep: run {size}   ({compact(final['rollouts'])} rollouts)"]
        lines += _as_good(d)
        lines += _row("Cost", f"{_run_cost(final)}{_rate(final)}")
    else:
        lines += _row("Sweep", f"{runs}, up to {compact(sweep['rollouts_per_run'])} rollouts each")
        lines += _row("Cost", f"at most {_cost(sweep)} ({_share(sweep)})")
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
    after = _written(d)
    # A second note where it finds room: a budget of lines, not of notes.
    both = _notes(d, 2)
    fits = len(lines) + len(both) + len(after) <= LINES
    return [*lines, *(both if fits else _notes(d, 1)), *after]


def _as_good(d: Row) -> list[str]:
    """The n that cannot be told from the guess."""
    near = sorted(g["rollouts_per_problem"] for g in d["worth"]["guesses"][1:] if g["as_good"])
    return _row("As good", f"n = {', '.join(map(str, near))}") if near else []


def _written(d: Row) -> list[str]:
    """The file, and what to do with it, first things first."""
    lines = list[str]()
    if d["study"] is not None:
        toys = [x["remedy"] for x in d["notices"] if x["code"] == "stand_ins"]
        which = "" if d["answer"] == "sweep" else ": the sweep"
        held = f"{d['study']} ({d['engine']}{', placeholders' if toys else ''}){which}"
        lines += _row("Wrote", f"{held}. {toys[0]}" if toys else held)
        if d.get("lacks") is not None:
            lines += _row("", f"To train it here: {d['lacks']}")
    if d["lr_sweep"] is not None:
        file = d["study"] or "study.yaml"
        rate = f"isocompute lr-sweep {file}" if d["study"] else "the learning rate (write -o FILE)"
        lines += _row("First", f"{rate}   ({_drawn(d['lr_sweep'])})")
    if d["study"] is not None and d["answer"] == "sweep":
        lines += _row("Run", f"isocompute run {d['study']}   (it stops by itself)")
    elif d["study"] is not None:
        lines += _start(d)
    return lines


def _start(d: Row) -> list[str]:
    """The command that trains the final run from the file of the sweep, to be copied whole."""
    final = d["final"]
    words = ["isocompute", "run", str(d["study"]), "adaptive=false",
             f"grid.rollouts_per_problem={final['rollouts_per_problem']}",
             *(["grid.seeds=1"] if d["sweep"]["seeds"] > 1 else []),
             f"budget={final['rollouts']}"]  # fmt: skip
    rows = textwrap.wrap(" ".join(words), WIDTH - _LABEL - 2, break_on_hyphens=False,
                         break_long_words=False)  # fmt: skip
    said = [f"{row} \\" for row in rows[:-1]] + rows[-1:]
    return [f"{'Start' if i == 0 else '':<{_LABEL}}{row}" for i, row in enumerate(said)]


def _notes(d: Row, shown: int) -> list[str]:
    """So many of the notices that no other line says, what may turn the answer first."""
    notes = [one for one in d["notices"] if one["code"] not in _SAID]
    notes.sort(key=lambda one: one["code"] != "prior_of_others" or d["answer"] == "sweep")
    left, lines = len(notes) - shown, list[str]()
    for i, one in enumerate(notes[:shown]):
        more = f" ({left} more: --json -)" if left > 0 and i == shown - 1 else ""
        lines += _row("Note" if i == 0 else "", f"{one['text']} {one['remedy']}{more}")
    return lines


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{name:<{_LABEL}}",
                         subsequent_indent=" " * _LABEL, break_on_hyphens=False)  # fmt: skip


def _share(part: Row) -> str:
    """Of the budget: what --spend bounds, and evaluations."""
    apart = part["evaluation_share"]
    evaluated = f" + {apart:.0%} for evaluation" if apart >= _SEEN else ""
    return f"{part['share']:.0%} of the budget{evaluated}"


def _paid(part: Row) -> list[str]:
    """Hours, money and tokens, as far as they are known, evaluations included."""
    known = (("gpu_hours", "{} GPU-hours"), ("usd", "${}"), ("tokens", "{} tokens"))
    cost = part["cost"]
    return [form.format(compact(cost[k])) for k, form in known if cost[k] is not None]


def _cost(part: Row) -> str:
    drawn = f"{compact(part['rollouts'])} rollouts + {compact(part['evaluation_rollouts'])}"
    return ", ".join([f"{drawn} for evaluation", *_paid(part)])


def _run_cost(part: Row) -> str:
    """Of a run whose rollouts are said already."""
    evaluated = f"{compact(part['evaluation_rollouts'])} for evaluation"
    return ", ".join([*_paid(part), "evaluation included"] if _paid(part) else [f"and {evaluated}"])


def _spent(part: Row) -> str:
    """What a sweep that is not advised would take, as short as it can be said."""
    paid = [one for one in _paid(part) if not one.endswith("tokens")]
    drawn = part["rollouts"] + part["evaluation_rollouts"]
    return ", ".join(paid) or f"{compact(drawn)} rollouts"


def _drawn(part: Row) -> str:
    """What the learning rates take, evaluations included."""
    return f"{_spent(part)}, {part['share'] + part['evaluation_share']:.0%} of the budget"


def _rate(part: Row) -> str:
    """Where the rate comes from, and how far off it may be."""
    found = part["cost"]["source"].get("rollouts_per_gpu_hour")
    if found is None:
        return "; GPU-hours: give --rollouts-per-gpu-hour"
    whose = {"study": "the study's rate", "sweep": "the rate of its runs"}
    off = f", within {max(found['off'], 0.01):.0%}" if found.get("off") is not None else ""
    return f" ({whose.get(found['from'], 'your rate')}{off})"


def _worth(d: Row) -> str:
    worth, sweep = d["worth"], d["sweep"]
    after, none = worth["after"], worth["without"]
    if d["answer"] != "sweep":
        listed = ", ".join(map(str, sweep["rollouts_per_problem"]))
        best = f"n = {listed}; {_spent(sweep)}, {_share(sweep).replace(' of the budget', '')}"
        return f"score lost to the best n: {_loss(none)}; with a sweep {_loss(after)} ({best})"
    guessed = f"{_loss(none)} with the guess n = {none['rollouts_per_problem']}"
    scaled = [
        f"{words}: {worth[key]['loss']:.3f}"
        for key, words in (("half", "half as long"), ("twice", "twice"))
        if worth[key] is not None
    ]
    aside = f" ({', '.join(scaled)})" if scaled else ""
    return f"score lost against the best n: {_loss(after)} after the sweep{aside}, {guessed}"


def _loss(row: Row) -> str:
    error = row["standard_error"]
    seen = error is not None and error >= _NO_ERROR
    return f"{row['loss']:.3f}" + (f" +- {error:.3f}" if seen else "")
