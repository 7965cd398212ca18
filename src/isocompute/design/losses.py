"""What an n loses that is guessed, or found by a sweep, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

WIDTH = 80
_NO_ERROR = 0.0005  # what rounds to 0.000 is not printed
_MODEL = "Qwen2.5-7B"  # of the shipped sweeps


def why_lines(d: Row, spent: str) -> list[str]:
    """What the losses consist of; `spent` is what the sweep takes."""
    worth, sweep = d["worth"], d["sweep"]
    after, none, guesses = worth["after"], worth["without"], worth["guesses"]
    listed = ", ".join(map(str, sweep["rollouts_per_problem"]))
    n = none["rollouts_per_problem"]
    said = [] if worth.get("across_models") is None else [
        f"In worlds like the published sweeps of {_MODEL}, which flatter both:"]  # fmt: skip
    said += [
        f"Without a sweep: n = {n} loses {none['loss']:.3f} of score on average to the n that is "
        "best in each of the simulated worlds.",
        f"After the sweep: {after['loss']:.3f}. A plan then knows its runs alone and takes one of "
        f"n = {listed}: that loses {after['choice']:.3f}, or {after['choice_at_best']:.3f} if it "
        f"were sure which is best. Its cost ({spent}) loses {after['spending']:.3f}.",
    ]
    lost = {one["rollouts_per_problem"]: one["loss"] for one in guesses}
    near = [f"n = {k} loses {_against(lost[k] - lost[n])}" for k in (n // 2, 2 * n) if k in lost]
    said += [f"Against n = {n}: {', '.join(near)}."] if near else []
    scaled = _scaled(worth)
    said += [f"After the same sweep: {', '.join(scaled)}."] if scaled else []
    return [line for one in said for line in textwrap.wrap(one, WIDTH, subsequent_indent="  ")]


def _against(more: float) -> str:
    size = f"{abs(more):.3f}"
    return "as much" if float(size) == 0 else f"{size} {'more' if more > 0 else 'less'}"


def worth_words(d: Row, took: str) -> str:
    """What a guess loses at this budget, and a sweep; and both where no prior fits."""
    worth, sweep = d["worth"], d["sweep"]
    after, none = worth["after"], worth["without"]
    edge = {"capped_by_tested_n", "n_at_smallest_tested"} & {one["code"] for one in d["notices"]}
    like = "" if worth.get("across_models") is None else f", on models like {_MODEL}"
    lead = f"score lost to the best n{' tested' if edge else ''}{like}:"
    elsewhere = _elsewhere(d)
    if d["answer"] != "sweep":
        swept = f"a sweep of n = {', '.join(map(str, sweep['rollouts_per_problem']))} ({took})"
        if worth["gain"]["nothing"]:
            return (f"{lead} {_loss(none)}; {swept} would neither gain nor lose "
                    f"({_signed(worth['gain'])}){elsewhere}")
        return f"{lead} {_loss(none)}; with {swept}, {_too_little(d)}, {_loss(after)}{elsewhere}"
    scaled = _scaled(worth)
    aside = f" ({', '.join(scaled)})" if scaled else ""
    guessed = f"{_loss(none)} with the guess n = {none['rollouts_per_problem']}"
    return f"{lead} {_loss(after)} after the sweep{aside}, {guessed}{elsewhere}"


def _elsewhere(d: Row) -> str:
    """What was lost in tests where the prior, which flatters both, does not hold."""
    across = d["worth"].get("across_models")
    if across is None:
        return ""
    if across["after"] == across["without"]:
        return f"; on others {across['without']:.3f} either way"
    return f"; on others {across['without']:.3f} guessed, {across['after']:.3f} swept"


def _too_little(d: Row) -> str:
    """Why a sweep loses more than the guess."""
    none, after, sweep = d["worth"]["without"], d["worth"]["after"], d["sweep"]
    n = none["rollouts_per_problem"]
    if after["choice"] <= none["loss"]:
        return "which costs more than it finds"
    if n > after["largest_n"]:
        return f"which cannot reach n = {n}"
    if n not in sweep["rollouts_per_problem"]:
        return f"which does not try n = {n}"
    return "whose runs are too short to tell"


def _scaled(worth: Row) -> list[str]:
    """Losses after runs half and twice as long, or that they are alike."""
    out = list[str]()
    for key, words in (("half", "half as long"), ("twice", "twice")):
        if (row := worth[key]) is not None:
            alike = abs(row["behind"]) <= 2 * row["behind_error"]
            out.append(f"{words}: {'alike' if alike else _loss(row)}")
    return out


def _signed(row: Row) -> str:
    """What is saved, below zero lost, with its error."""
    return f"{row['loss']:+.3f} +- {row['standard_error']:.3f}"


def _loss(row: Row) -> str:
    error = row["standard_error"] or 0.0
    return f"{row['loss']:.3f}" + (f" +- {error:.3f}" if error >= _NO_ERROR else "")
