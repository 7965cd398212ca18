"""What was collected of a run -> an ImportedRun: its unit of steps, its B_p and n, what it costs.

Here all rows are known. The steps of its series become updates, the counts beside them are held
against B_p * n, and what contradicts that is refused; `placing`, `cadence`, `points` and `checks`
know how, this module in which order.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from isocompute.importers.runs import checks, doubts, placing
from isocompute.importers.runs.cadence import (
    Cadence,
    as_evaluations,
    as_planned,
    cadence_of,
    counts_responses,
    micro_batches,
    spread,
)
from isocompute.importers.runs.collected import Collected
from isocompute.importers.runs.points import (
    Compute,
    after_rows,
    descends,
    of_two_kinds,
    refuse_still,
    series_of,
    told_of_order,
)
from isocompute.importers.runs.steps import BEFORE, EARLIEST_FIRST, FROM_ZERO
from isocompute.importers.values.imported import (
    COUNTED_BY,
    ImportedRun,
    Provenance,
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
from isocompute.importers.words.called import counts_problems, is_batch, is_called
from isocompute.importers.words.configuration import facts_of, gpus_of, highest_reward, problems_of
from isocompute.importers.words.fresh import device_batch, processes_of, sharing
from isocompute.importers.words.meanings import PROBLEMS_SAMPLED, SPLIT_IN_KEY
from isocompute.importers.words.paths import measured
from isocompute.importers.words.plain_words import RESPONSES, unit_of
from isocompute.importers.words.recorded import logged_rate
from isocompute.importers.words.scale import of_errors
from isocompute.importers.words.scored import OF_PASSES
from isocompute.importers.words.vocabulary import TRACKER_STEPS

MAX_UNREAD = 200
_N = "rollouts_per_problem"


def conclude(
    c: Collected, path: Path, source: str, provenance: Provenance | None = None
) -> ImportedRun:
    """The run, with cumulative rollouts and tokens at every point.

    Raises:
        UnclearError: where what counts updates is not clear, or B_p * n contradicts the tokens.
    """
    doubts.refuse_of_tables(c, f"{path}: run {c.name}")
    found, iterations = c.found, doubts.iterations_of(c)
    cadence = cadence_of(c.config, c.settings.eval_every)
    parts, told = micro_batches(c.points, c.config, cadence)
    if parts == 1 and (parts := doubts.parts_of_update(c)) > 1:
        found = found._replace(problems_per_batch=(found.problems_per_batch or 0) * parts)
        cadence, iterations = cadence.by(parts), parts
    if found.steps and iterations > found.ticks:  # as told: the log plans the optimizer's steps
        found = found._replace(steps=-(-found.steps // iterations))
    for points in (p for p in c.points if p.column.errors):
        points.value = array("d", of_errors(np.array(points.value), f"{path}: {points.key}"))
    if c.name in (c.settings.percent or "").split(","):
        for points in (p for p in c.points if p.column.split != "train"):
            points.value = array("d", [value / 100 for value in points.value])
        c.counters.infer("score: percent, as told")
    _told_by_name(c, path)
    doubts.refuse_problems(c, f"{path}: run {c.name}")
    for text in found.notes:
        if c.settings.problems_per_batch is None or not text.startswith("B_p is "):
            c.note(text)
        elif (each := doubts.told_processes(c.config, c.settings, found)) is not None:
            c.counters.infer(each)
    refilling = checks.refills(c.config)
    if refilling is not None and not c.side["batches"] and not c.side["sampled"]:
        c.note(checks.refilled(refilling, c.unread))
    values = {
        name: doubts.merged(c, name, getattr(found, name))
        for name in ("problems_per_batch", "rollouts_per_problem", "steps", "seed",
                     "evaluation_samples")
    }
    newest_first = any(descends(p.steps_K) for p in c.points if len(p.step) > 1)
    at_zero = {p.column.split for p in c.points
               if p.zero_rows and p.column.trainer in FROM_ZERO}  # fmt: skip
    if newest_first and at_zero >= {"train", "validation"}:
        raise UnclearError(
            f"{path}: run {c.name}: rows must follow each other in time where a trainer "
            f"calls its first update step 0{EARLIEST_FIRST}"
        )
    for key in filter(OF_PASSES.fullmatch, c.unread):
        for points in (p for p in c.points if p.column.split != "train"):
            if line := placing.mean_of_passes(points, key, c.evidence.numbers(key)):
                c.counters.infer(line)
                c.unread = [other for other in c.unread if other != key]
    if c.counters.calls and not c.counters.seen and c.settings.step is None and not any(
        c.side.values()
    ) and (line := as_planned(c.points, c.config, cadence)):
        c.counters.calls = False
        c.counters.infer(line)
    known = c.settings.num_iterations is not None or iterations > 1
    own = 1 if known else placing.own_ticks(c.points, c.config, f"{path}: run {c.name}")
    if (ticks := max(iterations, parts, own)) > 1:
        held_out = [p for p in c.points if p.column.split != "train"]
        before = sum(len(p.step) for p in held_out)
        c.side = placing.to_updates(c.points, c.side, ticks)
        c.count_by(ticks)
        c.redone = c.redone and -(-c.redone // ticks)
        c.counters.infer(told or f"step: the log's counters move by {ticks} in an update")
        if within := before - sum(len(p.step) for p in held_out):
            c.counters.infer(f"score: {within} taken within an update are left out")
    if found.per_tick > 1 and c.settings.step in (None, *TRACKER_STEPS):
        c.counters.agree(found.per_tick)
        c.side = placing.to_updates(c.points, c.side, 1, found.per_tick)
        c.counters.infer(f"step: one of the log is {found.per_tick} updates")
    for points in c.points:
        if points.column.split == "validation" and (told := placing.without_repeats(points)):
            c.counters.infer(told)
    b_p, n = values["problems_per_batch"], values["rollouts_per_problem"]
    if b_p is None and n is not None and n in c.settings.by_n:
        b_p = values["problems_per_batch"] = c.settings.by_n[n]
    if b_p is None and n and (whole_batch := whole(c.config.get(RESPONSES))):
        b_p = values["problems_per_batch"] = problems_of(whole_batch, n, f"run {c.name}")
        c.counters.infer(f"problems_per_batch: a batch of responses / {_N}")
    if n is None and b_p and (whole_batch := whole(c.config.get(RESPONSES))):
        n = values[_N] = problems_of(whole_batch, b_p, f"run {c.name}", "B_p")
        c.counters.infer(f"{_N}: a batch of responses / problems_per_batch")
    b_p = values["problems_per_batch"] = b_p or doubts.counted_problems(c, n)
    values["steps"] = values["steps"] or cadence.planned
    planned = c.settings.steps or found.steps or cadence.planned
    what = f"{path}: run {c.name}"
    batch = None if b_p is None or n is None else b_p * n
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
    _settle_steps(
        c, path, planned, None if c.settings.begins else found.steps or cadence.planned
    )
    if begins:
        c.side = placing.begin_at(c.points, c.side, begins)
        if values["steps"] is not None and values["steps"] > begins:
            values["steps"] -= begins
    if not c.settings.assumed:
        _check_batch(c, b_p, n, given=None in (
            found.problems_per_batch, found.rollouts_per_problem
        ))  # fmt: skip
    compute = Compute(
        batch=batch, window=-(-found.window // ticks),
        tokens=after_rows(c.side["tokens"]), lengths=c.side["length"],
        rollouts=after_rows(c.side["rollouts"]), batches=checks.batches_of(c, found, b_p),
    )
    redone = placing.trained_again(c.points, c.redone)
    k = values["evaluation_samples"]
    assumed = found.samples_assumed and c.settings.evaluation_samples is None
    series = tuple(
        made for points in c.points
        if (made := series_of(
            points, compute, None if assumed and not points.column.trainer else k, redone
        )) is not None
    )
    notes, inferred = told_of_order(c.points, redone)
    backward = c.counters.backward or newest_first
    if backward and (inferred or any(" left out" in line for line in notes)):
        raise UnclearError(
            f"{path}: run {c.name}: rows must follow each other in time where a step has "
            f"several scores{EARLIEST_FIRST}"
        )
    if inferred or any(" with another score" in line for line in notes):
        refuse_still(c.points, f"{path}: run {c.name}")
        doubts.refuse_several(c.name, c.perhaps)
        if told := of_two_kinds(c.points):
            beside = f" (beside them: {', '.join(c.unread[:5])})" if c.unread else ""
            raise UnclearError(
                f"{path}: run {c.name}: scores of a run at one step must be of one kind, but "
                f"{told} steps{beside}; keep the rows of one kind, or give each a key of its own."
            )
    for line in notes:
        c.note(line)
    for line in inferred:
        c.counters.infer(line)
    provenance, gpus = provenance or provenance_of(path, source), c.settings.gpus
    times, gpus = times_of(c.side), gpus or gpus_of(c.config)
    devices = None if sharing(c.config)[0] else processes_of(c.config)
    if gpus is None and (gpus := devices) and times:
        c.counters.infer(f"gpus={gpus}: one for each process")
    spent = Spent(times=times, gpus=gpus or gpus_by_throughput(c.side), tokens=compute.each,
                  drawn=compute.drawn, epochs=Each.of(c.side[EPOCH]))  # fmt: skip
    several = {key for key, rows in c.problems.items() if len(rows) > 1 or rows.total() < c.n_rows}
    unread = [key for key in c.unread if key not in several  # what is of scores, not of a batch
              and not (counts_problems(key) and c.evidence.is_aside(key))]
    keys = unread[:MAX_UNREAD]
    of_units = [one for key in c.config if (unit := unit_of(key, c.config)) for one in (key, unit)]
    for name in (name for name in ("problems_per_batch", "rollouts_per_problem")
                 if values[name] is None):  # what may be meant, in the configuration
        unread += [key for key in c.config if is_called(key, name)
                   or (name == _N and is_batch(key)) or key in of_units]  # fmt: skip
    of = {p.key for p in c.points if p.column.split != "train"}
    highest = highest_reward(c.config) if of == {"eval/scores"} else None
    if highest:
        c.counters.infer(f"score: 0..{highest:g} is the range, by verification_reward")
    return ImportedRun(
        name=clean_text(c.settings.run or c.name),
        problems_per_batch=b_p, rollouts_per_problem=n, steps=values["steps"],
        seed=values["seed"], series=series, outcomes=tuple(c.outcomes),
        errors=tuple(c.errors.kept), n_errors=c.errors.count, n_rows=c.n_rows, notes=tuple(c.notes),
        provenance=replace(
            provenance,
            facts={**c.settings.facts, **c.extras, **logged_rate(c.side["rate"]),
                   **facts_of(c.config)},
            evaluation_problems=c.settings.evaluation_problems,
            score_range=provenance.score_range or ((0.0, highest) if highest else None),
            unread=tuple(clean_text(k, 80) for k in unread[:MAX_UNREAD]),
            likely=tuple(clean_text(k, 80) for k in c.evidence.likely(keys)),
            beside_loss=tuple(clean_text(k, 80) for k in c.evidence.beside_loss(keys)),
            begins=None if c.start is None else max(c.start - begins, 0),
            trained=placing.last_update(c, values["steps"], begins), **spent.said(),
            passes_per_step=spent.passes_per_step, rates=rate_span(c.side["rate"]),
            micro_batch=device_batch(c.config),
            inferred=(*c.settings.inferred, *c.counters.inferred),
            alike=share_at_the_end(c.side[ALIKE]),
        ), spent=spent,
    )  # fmt: skip


def _told_by_name(c: Collected, path: Path) -> None:
    """Take the split and the problem set of the file's name for keys that do not say theirs."""
    of = measured(path)
    for points in c.points:
        if of.split and not (
            c.settings.split or c.says_split or SPLIT_IN_KEY.search(points.key)
        ):
            points.column = replace(points.column, split=of.split)
        if of.problem_set and not points.column.problem_set:
            points.column = replace(points.column, problem_set=clean_text(of.problem_set))


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
            c.counters.infer(placing.OWN_BEGINNING.format(first))
        return 0, planned
    first, last = (f(int(f(p.steps_K)) for p in points) for f in (min, max))
    if said:
        return said, planned + said if planned is not None and planned < last else planned
    if said == 0:
        c.counters.infer(f"begins: 0, as told; the log begins at step {first}, {BEFORE}")
    elif planned is not None and planned < last and c.start is not None:
        earliest = min(first, c.start)
        rows = [p.steps_K for p in points if p.column.split == "train"]
        begins = doubts.own_start(earliest, rows)
        if last - planned in (begins, earliest):
            c.counters.infer(placing.BEGUN.format(last - planned, planned, last))
            return last - planned, last
        if earliest > planned:
            raise doubts.late_error(what, earliest, last, begins, planned)
    return 0, planned


def _count_evaluations(c: Collected, what: str, cadence: Cadence) -> None:
    """Set evaluations at their updates, where the log counts evaluations."""
    if c.settings.step is not None:
        return
    rows = [int(p.steps_K.max()) for p in c.points
            if p.column.split == "train" and p.step]  # fmt: skip
    trained = max([c.latest, *rows, *c.side["length"]])
    found = as_evaluations(c.points, cadence, trained, what, c.trains_from == 0)
    if found is None:
        return
    every, first = found
    last = max(int(p.steps_K.max()) for p in c.points if p.column.split != "train"
               and p.step)  # fmt: skip
    if trained > last or first:
        spread(c.points, every, first)
    else:  # one counter of all rows
        c.side = placing.to_updates(c.points, c.side, 1, every)
    c.counters.infer(
        f"step: the log's counts evaluations; {cadence.key} says one in {every} updates"
        + (f", the first after {first}" if first else "")
    )


def _settle_steps(
    c: Collected, path: Path, planned: int | None, own_plan: int | None
) -> None:
    """One unit for all steps, checked against the plan; counters from 0 begin at 1."""
    last = max((int(p.steps_K.max()) for p in c.points if p.step), default=0)
    elsewhere = [
        (p.key, p.axis, p.n_elsewhere) for p in c.points
        if p.n_elsewhere and p.axis is not None
    ]
    trainers = {p.column.trainer for p in c.points if p.step}
    used = next((p.axis for p in c.points if p.axis and p.column.split != "train"), None)
    both = sum(len(p.step) - p.n_elsewhere for p in c.points if p.axis)
    c.counters.settle(f"{path}: run {c.name}", last, planned, elsewhere, trainers, both, used,
                      own_plan)  # fmt: skip
    for line in placing.count_from_one(
        c.points, c.side, at_zero=c.at_zero,
        first_length=c.first_length or c.n_rows + 1, planned=planned, calls=c.counters.calls,
        lag=c.counters.lag(trainers), trained=c.trained,
    ):
        c.counters.infer(line)


def _check_batch(c: Collected, b_p: int | None, n: int | None, *, given: bool) -> None:
    """B_p * n against the tokens of a step, where a log has both (verl), and its counts."""
    side, batch = c.side, None if b_p is None or n is None else b_p * n
    text = checks.tokens_disagree(
        batch, side["total"], side["prompt"], side["length"], given=given
    )
    if text is not None and given:
        raise UnclearError(f"run {c.name}: {checks.B_P_OFF.format(text)}")
    if text is not None:
        c.note(text)
    each = checks.of_a_step(side["counted"])
    if given and None not in (batch, each) and batch != each:
        raise UnclearError(f"run {c.name}: {checks.COUNTED_OFF.format(batch, each)}")
    if text := checks.counts_otherwise(b_p, n, side["rollouts"] or side["drawn"])[0]:
        raise UnclearError(f"run {c.name}: {checks.BATCHED.format(text)}")
    counts = {column.metric.label: key for key, column in c.settings.columns.items()}
    for label, kind in (("rollouts", "rollouts"), (PROBLEMS_SAMPLED, "sampled")):
        if label in counts and side[kind]:
            c.counters.infer(COUNTED_BY.format(counts[label]))
    text = checks.counts_otherwise(b_p, n, side["rollouts"])[1]
    if "rollouts" in counts and text:
        raise UnclearError(f"run {c.name}: {checks.PROBLEMS.format(text)}")
    if side["rollouts"] or side["batches"] or c.settings.step is not None:
        return  # it is counted, or said what counts
    if (text := checks.rollouts_disagree(b_p, n, side["drawn"])) is not None:
        raise UnclearError(
            f"run {c.name}: {checks.ROLLOUTS_OFF.format(text, key=c.drawn_by)}"
        )
