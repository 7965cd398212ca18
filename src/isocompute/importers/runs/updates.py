"""The steps of a log become updates: what they count is found, and all points are set by it.

`cadence` and `doubts` know what a counter may count, `placing` how points are set, this module in
which order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from isocompute.importers.runs import doubts, placing
from isocompute.importers.runs.cadence import (
    Cadence,
    as_evaluations,
    as_planned,
    cadence_of,
    counts_responses,
    micro_batches,
    own_ticks,
    refuse_reused,
    spread,
)
from isocompute.importers.runs.collected import Collected
from isocompute.importers.runs.points import last_step
from isocompute.importers.runs.steps import BEFORE
from isocompute.importers.values.imported import TAKEN_ONCE, UnclearError, distinct
from isocompute.importers.values.reading import whole
from isocompute.importers.words.configuration import of_another
from isocompute.importers.words.fresh import Found
from isocompute.importers.words.vocabulary import TRACKER_STEPS

_LEAST = 4  # gaps between batches that are alike by no chance


class Unit(NamedTuple):
    """What its configuration and the user say of an update, in steps of the log.

    `found`, `cadence`: what is configured, by updates. `iterations`: steps that a batch serves.
    `parts`: steps that a batch is split into, and a line that says so.
    """

    found: Found
    cadence: Cadence
    iterations: int
    parts: int
    told: str


def unit_of(c: Collected) -> Unit:
    """What an update is, before the points are looked at."""
    found, (iterations, served) = c.found, _iterations_of(c)
    cadence = cadence_of(c.config, c.settings.eval_every)
    parts, told = micro_batches(c.points, c.config, cadence)
    if parts == 1 and (parts := doubts.parts_of_update(c)) > 1:
        found = found._replace(problems_per_batch=(found.problems_per_batch or 0) * parts)
        cadence, iterations = cadence.by(parts), parts
    if found.steps and iterations > found.ticks:  # as told: the log plans the optimizer's steps
        found = found._replace(steps=-(-found.steps // iterations))
    return Unit(found, cadence, iterations, parts, told or served)


def _iterations_of(c: Collected) -> tuple[int, str]:
    """Steps of the log that a batch serves, and a line; TRL counts the optimizer's."""
    told = c.settings.num_iterations
    if "num_generations" in c.config or c.found.ticks > 1:
        own = whole(c.config.get("num_iterations")) or c.found.ticks
        if told not in (None, own):
            c.note(f"the log says num_iterations={own}, the setting {told}: the log's is used")
        return c.found.ticks, ""
    by = {p.column.trainer for p in c.points if p.step}  # OpenRLHF's train/reward is as TRL's
    # a loop that logs an n of its own words is none of TRL, which logs all arguments or none
    ours = c.found.rollouts_per_problem is not None and not c.beside
    if told is None and not (of_another(c.config) or ours) and by & {"trl", "openrlhf"} == {"trl"}:
        if (served := _served(c))[0] > 1:
            return served
        c.counters.infer(
            f"{TAKEN_ONCE}, since no arguments of TRL are there; where a batch of rollouts "
            "serves several steps, add --set num_iterations=K with your own number"
        )
    return told or 1, ""


def _served(c: Collected) -> tuple[int, str]:
    """Steps of the log that a batch serves, where one row of training in so many has rewards.

    TRL logs what rollouts say where they were drawn, and the optimizer's numbers at every step.

    Raises:
        UnclearError: a loop of one's own may as well log its rewards now and then.
    """
    drawn_K = distinct(np.concatenate([
        p.steps_K for p in c.points if p.column.trainer == "trl" and p.column.split == "train"
        and p.step
    ] or [np.zeros(0, np.int64)]))  # fmt: skip
    gaps, steps_K = np.diff(drawn_K), np.fromiter(c.side["rate"], np.int64)
    if gaps.size < _LEAST or not (gaps == gaps[0]).all() or not (
        np.isin(drawn_K, steps_K).all() and steps_K.size >= 2 * drawn_K.size - 1
    ):
        return 1, ""
    count = int(gaps[0])
    told = f"rewards stand at one in {count} of its steps, and learning rates between them"
    if {*map(int, drawn_K)} != {*c.side["length"]} or "reward_std" not in c.unread:
        raise UnclearError(
            f"run {c.name}: updates must be known, but {told}; add --set num_iterations={count} if "
            f"a batch of rollouts serves {count} steps, --set num_iterations=1 if each step has "
            "rollouts of its own.", options=("--set", "num_iterations=K"),
            trial=("--set", f"num_iterations={count}"),
        )
    return count, f"step: {count} of the log's are an update, as {told}"


def by_unit(c: Collected, unit: Unit, what: str) -> int:
    """Set counters that move otherwise than by one in an update; by how many they do."""
    if c.counters.calls and not c.counters.seen and c.settings.step is None and not any(
        c.side.values()
    ) and (line := as_planned(c.points, c.config, unit.cadence)):
        c.counters.calls = False
        c.counters.infer(line)
    known = c.settings.num_iterations is not None or unit.iterations > 1
    own = 1 if known else own_ticks(c.points, c.config, what)
    ours = c.settings.step is None and not of_another(c.config)
    if ours and not known and own == unit.parts == 1:
        refuse_reused(c.points, c.config, what)
    if (ticks := max(unit.iterations, unit.parts, own)) > 1:
        _count_by(c, ticks, unit.told or f"step: the log's counters move by {ticks} in an update")
    if unit.found.per_tick > 1 and c.settings.step in (None, *TRACKER_STEPS):
        c.counters.agree(unit.found.per_tick)
        c.side = placing.to_updates(c.points, c.side, 1, unit.found.per_tick)
        c.counters.infer(f"step: one of the log is {unit.found.per_tick} updates")
    return ticks


def _count_by(c: Collected, ticks: int, told: str) -> None:
    held_out = [p for p in c.points if p.column.split != "train"]
    before = sum(len(p.step) for p in held_out)
    c.side = placing.to_updates(c.points, c.side, ticks)
    c.count_by(ticks)
    c.redone = c.redone and -(-c.redone // ticks)
    c.counters.infer(told)
    if within := before - sum(len(p.step) for p in held_out):
        c.counters.infer(f"score: {within} taken within an update are left out")


def place(
    c: Collected, what: str, cadence: Cadence, batch: int | None, own_plan: int | None
) -> int:
    """Set points that count rollouts, evaluations or from 0; the step that the run begins at.

    `batch`: B_p * n; `own_plan`: the updates that its configuration plans.
    """
    planned = c.settings.steps or own_plan
    if batch and not c.settings.assumed and (key := counts_responses(
        c.points, batch, planned, c.settings, what, c.counters.rollouts,
        told=c.counters.counts(batch),
    )):  # fmt: skip
        c.counters.agree(Fraction(1, batch))
        c.side = placing.to_updates(c.points, c.side, batch)
        c.count_by(batch)
        c.counters.infer(f"step: {key} counts rollouts, B_p * n = {batch} in an update")
    begins, planned = _beginning(c, what, planned)
    _count_evaluations(c, what, cadence._replace(planned=planned))
    _settle_steps(c, what, planned, None if c.settings.begins else own_plan)
    if begins:
        c.side = placing.begin_at(c.points, c.side, begins)
    return begins


def _beginning(c: Collected, what: str, planned: int | None) -> tuple[int, int | None]:
    """The step from which updates are its own, and the plan in the log's steps.

    Raises:
        UnclearError: the log begins beyond its plan, and does not end where that would.
    """
    said = c.settings.begins
    points = [p for p in c.points if p.step]
    first = placing.own_beginning(points)
    if first is not None or not points:
        if said:
            c.counters.infer(f"begins: not used, since the log begins at step {first}")
        return 0, planned
    first, last = (f(int(f(p.steps_K)) for p in points) for f in (min, max))
    if said:
        return said, planned + said if planned is not None and planned < last else planned
    if said == 0:
        c.counters.infer(f"begins: 0, as told; the log begins at step {first}, {BEFORE}")
    elif own := _own_checkpoint(c.config, first):
        c.counters.infer(f"begins: 0, since it loads {own} of its own folder; the log begins at "
                         f"step {first}, {BEFORE}")  # fmt: skip
    elif planned is not None and planned < last and c.start is not None:
        earliest = min(first, c.start)
        rows = [p.steps_K for p in points if p.column.split == "train"]
        begins = doubts.own_start(earliest, rows)
        if last - planned in (begins, earliest):
            c.counters.infer(f"begins: step {last - planned}, since {planned} updates are planned "
                             f"and the log ends at step {last}")  # fmt: skip
            return last - planned, last
        if earliest > planned:
            raise doubts.late_error(what, earliest, last, begins, planned)
    return 0, planned


_LOADS = re.compile(r"load|resume|restore", re.I)
_SAVES = re.compile(r"save|output|local_dir|(?:ckpt|checkpoint)_?(?:dir|path|root)", re.I)


def _own_checkpoint(config: Mapping[str, object], first: int) -> str:
    """The checkpoint of its own that a run goes on with, by its settings; "" without one.

    >>> _own_checkpoint({"load_path": "out/a/step_40", "output_dir": "out/a"}, 45)
    'step_40'
    """
    homes = {str(value).rstrip("/") for key, value in config.items()
             if _SAVES.search(key) and not _LOADS.search(key) and value}  # fmt: skip
    for key, value in config.items():
        home, _, name = str(value).rstrip("/").rpartition("/")
        step = re.fullmatch(r"[a-z_-]*?([0-9]+)", name, re.I)
        if _LOADS.search(key) and home in homes and step and 0 < int(step[1]) <= first:
            return name
    return ""


def _count_evaluations(c: Collected, what: str, cadence: Cadence) -> None:
    """Set evaluations at their updates, where the log counts evaluations."""
    if c.settings.step is not None:
        return
    rows = last_step(p for p in c.points if p.column.split == "train")
    trained = max([c.latest, rows, *c.side["length"]])
    found = as_evaluations(c.points, cadence, trained, what, c.trains_from == 0)
    if found is None:
        return
    every, first = found
    if first or trained > last_step(p for p in c.points if p.column.split != "train"):
        spread(c.points, every, first)
    else:  # one counter of all rows
        c.side = placing.to_updates(c.points, c.side, 1, every)
    c.counters.infer(
        f"step: the log's counts evaluations; {cadence.key} says one in {every} updates"
        + (f", the first after {first}" if first else "")
    )


def _settle_steps(c: Collected, what: str, planned: int | None, own_plan: int | None) -> None:
    """One unit for all steps, checked against the plan; counters from 0 begin at 1."""
    last = last_step(c.points)
    elsewhere = [
        (p.key, p.axis, p.n_elsewhere) for p in c.points
        if p.n_elsewhere and p.axis is not None
    ]
    trainers = {p.column.trainer for p in c.points if p.step}
    used = next((p.axis for p in c.points if p.axis and p.column.split != "train"), None)
    both = sum(len(p.step) - p.n_elsewhere for p in c.points if p.axis)
    c.counters.settle(what, last, planned, elsewhere, trainers, both, used, own_plan)
    for line in placing.count_from_one(
        c.points, c.side, at_zero=c.at_zero,
        first_length=c.first_length or c.n_rows + 1, planned=planned, calls=c.counters.calls,
        lag=c.counters.lag(trainers), trained=c.trained,
    ):
        c.counters.infer(line)
