"""The steps of a log become updates: what they count is found, and all points are set by it.

`cadence` and `doubts` know what a counter may count, `placing` how points are set, this module in
which order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

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
from isocompute.importers.words.configuration import of_another
from isocompute.importers.words.fresh import Found
from isocompute.importers.words.vocabulary import TRACKER_STEPS


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
    found, iterations = c.found, doubts.iterations_of(c)
    cadence = cadence_of(c.config, c.settings.eval_every)
    parts, told = micro_batches(c.points, c.config, cadence)
    if parts == 1 and (parts := doubts.parts_of_update(c)) > 1:
        found = found._replace(problems_per_batch=(found.problems_per_batch or 0) * parts)
        cadence, iterations = cadence.by(parts), parts
    if found.steps and iterations > found.ticks:  # as told: the log plans the optimizer's steps
        found = found._replace(steps=-(-found.steps // iterations))
    return Unit(found, cadence, iterations, parts, told)


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
