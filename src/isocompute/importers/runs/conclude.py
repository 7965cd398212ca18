"""What was collected of a run -> an ImportedRun: its unit of steps, its B_p and n, what it costs.

Here all rows are known. The steps of its series become updates (`updates`), the counts beside them
are held against B_p * n (`checks`), and what contradicts that is refused.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from isocompute.importers.runs import checks, doubts, placing, updates
from isocompute.importers.runs.changing import (
    join_renamed,
    refuse_changed,
    refuse_renamed_on_the_way,
    refuse_samples,
    refuse_several,
)
from isocompute.importers.runs.collected import Collected
from isocompute.importers.runs.own_words import own_words
from isocompute.importers.runs.points import (
    Compute,
    Points,
    after_rows,
    descends,
    of_two_kinds,
    refuse_still,
    series_of,
    told_of_order,
)
from isocompute.importers.runs.steps import EARLIEST_FIRST, FROM_ZERO
from isocompute.importers.values.imported import (
    ImportedRun,
    Provenance,
    Series,
    UnclearError,
    provenance_of,
)
from isocompute.importers.values.reading import clean_text, whole
from isocompute.importers.values.spent import Each, Spent
from isocompute.importers.values.timing import (
    ALIKE,
    EPOCH,
    gpus_by_throughput,
    rate_span,
    share_at_the_end,
    times_of,
)
from isocompute.importers.words.called import (
    counts_problems,
    is_batch,
    is_called,
    may_be_batch,
    may_be_n,
)
from isocompute.importers.words.configuration import facts_of, gpus_of, highest_reward, problems_of
from isocompute.importers.words.fresh import Found, device_batch, processes_of, sharing
from isocompute.importers.words.paths import measured
from isocompute.importers.words.plain_words import RESPONSES, unit_of
from isocompute.importers.words.recorded import logged_rate
from isocompute.importers.words.scale import of_errors
from isocompute.importers.words.scored import OF_PASSES
from isocompute.importers.words.splits import split_of

MAX_UNREAD = 200
_N = "rollouts_per_problem"
_REWARDS = re.compile(r"(?:train/|eval/|eval_)?rewards/([^/]+)(?:/mean)?")
_VALUES = ("problems_per_batch", _N, "steps", "seed", "evaluation_samples")


def conclude(
    c: Collected, path: Path, source: str, provenance: Provenance | None = None
) -> ImportedRun:
    """The run, with cumulative rollouts and tokens at every point.

    Raises:
        UnclearError: where what counts updates is not clear, or B_p * n contradicts the tokens.
    """
    what = f"{path}: run {c.name}"
    doubts.refuse_of_tables(c, what)
    join_renamed(c)
    refuse_renamed_on_the_way(c, what)
    unit = updates.unit_of(c)
    found, cadence = unit.found, unit.cadence
    _take_scale(c, path)
    _told_by_name(c, path)
    doubts.refuse_problems(c, what)
    _note_batches(c, found)
    values = {name: doubts.merged(c, name, getattr(found, name)) for name in _VALUES}
    is_backward = _is_newest_first(c, what)
    _average_passes(c)
    ticks = updates.by_unit(c, unit, what)
    _leave_out_repeats(c)
    b_p, n = _take_batch(c, values)
    refuse_changed(c, what, b_p, n)
    values["steps"] = values["steps"] or cadence.planned
    own_plan = found.steps or cadence.planned
    batch = None if b_p is None or n is None else b_p * n
    begins = updates.place(c, what, cadence, batch, own_plan)
    if begins and values["steps"] is not None and values["steps"] > begins:
        values["steps"] -= begins
    if not c.settings.assumed:
        given = None in found.design[:2] or c.settings.processes is not None
        checks.check_batch(c, b_p, n, given=given)
    compute = Compute(
        batch=batch, window=-(-found.window // ticks),
        tokens=after_rows(c.side["tokens"]), lengths=c.side["length"],
        rollouts=after_rows(c.side["rollouts"]), batches=checks.batches_of(c, found, b_p),
    )
    _as_mapped(c)
    redone = placing.trained_again(c.points, c.redone)
    series = _series(c, found, compute, values["evaluation_samples"], redone)
    _tell_order(c, what, redone, is_backward)
    provenance = provenance or provenance_of(path, source)
    return _run(c, values, series, provenance, _spent(c, compute), begins)


def _take_scale(c: Collected, path: Path) -> None:
    """Make scores of errors, and shares of what is percent, as told."""
    for points in (p for p in c.points if p.column.errors):
        points.value = array("d", of_errors(np.array(points.value), f"{path}: {points.key}"))
    if c.name in (c.settings.percent or "").split(","):
        for points in (p for p in c.points if p.column.split != "train"):
            points.value = array("d", [value / 100 for value in points.value])
        c.counters.infer("score: percent, as told")


def _told_by_name(c: Collected, path: Path) -> None:
    """Take the split and the problem set of the file's name for keys that do not say theirs."""
    of = measured(path)
    trains = set(c.evidence.likely([p.key for p in c.points])[1]) if of.beside else None
    for points in c.points:
        told = c.settings.split if of.split == "train" else None  # an evaluation's name says more
        is_of = trains is None or points.key in trains  # a log may hold evaluations, too
        if of.split and is_of and not (told or c.says_split or split_of(points.key)):
            points.column = replace(points.column, split=of.split)
        if of.problem_set and not points.column.problem_set:
            points.column = replace(points.column, problem_set=clean_text(of.problem_set))


def _note_batches(c: Collected, found: Found) -> None:
    """Note what the configuration says of a batch, but for a B_p that is told otherwise."""
    for text in found.notes:
        if c.settings.problems_per_batch is None or not text.startswith("B_p is "):
            c.note(text)
        elif (each := doubts.told_processes(c.config, c.settings, found)) is not None:
            c.counters.infer(each)
    refilling = checks.refills(c.config)
    if refilling is not None and not c.side["batches"] and not c.side["sampled"]:
        c.note(checks.refilled(refilling, c.unread))


def _is_newest_first(c: Collected, what: str) -> bool:
    """Whether its rows go back in time; refused where that decides what a row of step 0 is."""
    is_backward = any(descends(p.steps_K) for p in c.points if len(p.step) > 1)
    at_zero = {p.column.split for p in c.points
               if p.zero_rows and p.column.trainer in FROM_ZERO}  # fmt: skip
    if is_backward and at_zero >= {"train", "validation"}:
        raise UnclearError(
            f"{what}: rows must follow each other in time where a trainer calls its first update "
            f"step 0{EARLIEST_FIRST}"
        )
    return is_backward


def _average_passes(c: Collected) -> None:
    """Make one score of those of several passes over the problems, which a key numbers."""
    for key in filter(OF_PASSES.fullmatch, c.unread):
        for points in (p for p in c.points if p.column.split != "train"):
            if line := placing.mean_of_passes(points, key, c.evidence.numbers(key)):
                c.counters.infer(line)
                c.unread = [other for other in c.unread if other != key]


def _leave_out_repeats(c: Collected) -> None:
    """Leave out scores that repeat an evaluation, or what a batch has scored, and say so."""
    for points in c.points:
        if told := placing.without_repeats(points):
            c.counters.infer(told)


def _take_batch(c: Collected, values: dict[str, int | None]) -> tuple[int | None, int | None]:
    """B_p and n, one by the other where a batch of both or a count of problems is known."""
    b_p, n = values["problems_per_batch"], values[_N]
    if b_p is None and n is not None:
        b_p = c.settings.by_n.get(n)
    responses = whole(c.config.get(RESPONSES))
    if b_p is None and n and responses:
        b_p = problems_of(responses, n, f"run {c.name}")
        c.counters.infer(f"problems_per_batch: a batch of responses / {_N}")
    if n is None and b_p and responses:
        n = problems_of(responses, b_p, f"run {c.name}", "B_p")
        c.counters.infer(f"{_N}: a batch of responses / problems_per_batch")
    if b_p and n and (told := doubts.other_batch(c, b_p, n)):
        c.note(told)
    values["problems_per_batch"], values[_N] = b_p or doubts.counted_problems(c, n), n
    return values["problems_per_batch"], n


def _series(
    c: Collected, found: Found, compute: Compute, k: int | None, redone: int | None
) -> tuple[Series, ...]:
    """Every metric at the compute of its evaluations, of k samples each."""
    assumed = found.samples_assumed and c.settings.evaluation_samples is None
    made = (series_of(points, compute, None if assumed and not points.column.trainer else k, redone)
            for points in c.points)  # fmt: skip
    return tuple(one for one in made if one is not None)


def _tell_order(c: Collected, what: str, redone: int | None, is_backward: bool) -> None:
    """Tell of rows out of order, or refuse them where they may be of two kinds."""
    notes, inferred = told_of_order(c.points, redone)
    is_backward = c.counters.backward or is_backward
    others = any(" left out" in line and "(0 with" not in line for line in notes)
    if is_backward and (inferred or others):
        raise UnclearError(
            f"{what}: rows must follow each other in time where a step has several scores"
            f"{EARLIEST_FIRST}"
        )
    if inferred or any(" with another score" in line for line in notes):
        refuse_still(c.points, what)
        refuse_samples(c.points, what)
        refuse_several(c.name, c.perhaps)
        doubts.refuse_going_on(c, what)
        if told := of_two_kinds(c.points):
            beside = f" (beside them: {', '.join(c.unread[:5])})" if c.unread else ""
            raise UnclearError(
                f"{what}: scores of a run at one step must be of one kind, but {told} steps"
                f"{beside}; keep the rows of one kind, or give each a key of its own."
            )
    for line in notes:
        c.note(line)
    for line in inferred:
        c.counters.infer(line)


def _spent(c: Collected, compute: Compute) -> Spent:
    """What its updates took: time, GPUs, tokens, passes over the problems."""
    evaluated = {step for p in c.points if p.column.split != "train" for step in p.steps_K.tolist()}
    times, gpus = times_of(c.side, evaluated), c.settings.gpus or gpus_of(c.config)
    devices = None if sharing(c.config)[0] else processes_of(c.config)
    if gpus is None and (gpus := devices) and times:
        c.counters.infer(f"gpus={gpus}: one for each process")
    return Spent(times=times, gpus=gpus or gpus_by_throughput(c.side), tokens=compute.each,
                 drawn=compute.drawn, epochs=Each.of(c.side[EPOCH]))  # fmt: skip


def _as_mapped(c: Collected) -> None:
    """Of two keys that are one score of a split, keep the one that the user says is."""

    def place(one: Points) -> tuple[str, str, str]:
        return one.column.metric.label, one.column.problem_set, one.column.split

    own = {place(p): p.key for p in c.points if p.step and p.key in c.settings.columns}
    for other in [p for p in c.points if p.key not in c.settings.columns and place(p) in own]:
        c.points.remove(other)
        if other.step:
            c.counters.infer(f"{other.column.metric.label}: {own[place(other)]}, as --map says, "
                             f"and not {other.key}")  # fmt: skip


def _unread(c: Collected) -> list[str]:
    """Keys that were not read, but for those that say of how many problems a score is."""
    several = {key for key, rows in c.problems.items() if len(rows) > 1 or rows.total() < c.n_rows}
    return [key for key in c.unread if key not in several
            and not (counts_problems(key) and c.evidence.is_aside(key))]  # fmt: skip


def _of_batch(c: Collected, values: Mapping[str, int | None]) -> list[str]:
    """Keys of the configuration that may mean B_p or n, where these are not known."""
    of_units = [one for key in c.config if (unit := unit_of(key, c.config)) for one in (key, unit)]
    return [
        key for name in ("problems_per_batch", _N) if values[name] is None for key in c.config
        if (whole(c.config[key]) is not None and (
            is_called(key, name) or (name == _N and (is_batch(key) or may_be_n(key)))
            or (name != _N and may_be_batch(key)))
        ) or key in of_units
    ]  # fmt: skip


def _rewarded(c: Collected) -> dict[str, str]:
    """The functions whose rewards TRL adds up, as the reward of another sum is another score."""
    keys = {*c.unread, *(p.key for p in c.points if p.column.trainer == "trl" and p.step)}
    names = {found[1] for key in keys if (found := _REWARDS.fullmatch(key))}
    return {"reward_function": "+".join(sorted(names))[:200]} if names else {}


def _range(c: Collected) -> float | None:
    """The highest score, where the configuration says what a right answer gives."""
    of = {p.key for p in c.points if p.column.split != "train"}
    highest = highest_reward(c.config) if of == {"eval/scores"} else None
    if highest:
        c.counters.infer(f"score: 0..{highest:g} is the range, by verification_reward")
    return highest


def _run(
    c: Collected, values: Mapping[str, int | None], series: tuple[Series, ...],
    provenance: Provenance, spent: Spent, begins: int,
) -> ImportedRun:  # fmt: skip
    """All of it."""
    unread, highest = _unread(c), _range(c)
    likely, beside_loss = c.evidence.likely(unread[:MAX_UNREAD])
    unread = (unread + _of_batch(c, values))[:MAX_UNREAD]
    return ImportedRun(
        name=clean_text(c.settings.run or c.name),
        problems_per_batch=values["problems_per_batch"], rollouts_per_problem=values[_N],
        steps=values["steps"], seed=values["seed"],
        series=series, outcomes=tuple(c.outcomes), errors=tuple(c.errors.kept),
        n_errors=c.errors.count, n_rows=c.n_rows, notes=tuple(c.notes), spent=spent,
        own=own_words(c.config),
        provenance=replace(
            provenance,
            facts={**c.settings.facts, **c.extras, **logged_rate(c.side["rate"]),
                   **_rewarded(c), **facts_of(c.config)},
            evaluation_problems=c.settings.evaluation_problems,
            score_range=provenance.score_range or ((0.0, highest) if highest else None),
            unread=tuple(clean_text(k, 80) for k in unread),
            likely=tuple(clean_text(k, 80) for k in likely),
            beside_loss=tuple(clean_text(k, 80) for k in beside_loss),
            begins=None if c.start is None else max(c.start - begins, 0),
            trained=placing.last_update(c, values["steps"], begins), **spent.said(),
            passes_per_step=spent.passes_per_step, rates=rate_span(c.side["rate"]),
            micro_batch=device_batch(c.config),
            inferred=(*c.settings.inferred, *c.counters.inferred),
            alike=share_at_the_end(c.side[ALIKE]),
        ),
    )  # fmt: skip
