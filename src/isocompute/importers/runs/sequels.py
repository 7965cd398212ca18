"""Logs that go on with other logs: the later part of a run, in a file of its own.

Shape legend: K points of one series.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isocompute.importers.runs.checks import UNCOUNTED
from isocompute.importers.runs.repetitions import differing
from isocompute.importers.runs.shared import scores_of
from isocompute.importers.runs.starts import NOT_NOISE, noise_of
from isocompute.importers.values.imported import (
    FloatArray,
    ImportedRun,
    IntArray,
    Outcomes,
    UnclearError,
    distinct,
)
from isocompute.importers.values.spent import Each, Spent, kept_of, known_at

RESUMED, APART = ("--set", "resumed=JOIN_OR_APART"), ("--set", "resumed=apart")


def join_counted_anew(
    runs: list[ImportedRun], resumed: str | None, decided: frozenset[int]
) -> list[ImportedRun]:
    """Logs that begin at step 0 with the score another ends on, joined to it.

    All runs of a configuration begin with the same model. One that begins where another has
    arrived went on from its checkpoint, and its counter began anew.

    Raises:
        UnclearError: unless `resumed` is "join".
    """
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        if run.problems_per_batch is not None and run.series:
            alike[run.design].append(i)
    out: dict[int, ImportedRun] = dict(enumerate(runs))
    for group in alike.values():
        left = group if len(group) <= _MOST_PARTS else []
        while found := _nearest_end({i: out[i] for i in left}, decided):
            i, j, ends, begins = found
            if resumed != "join":
                raise UnclearError(
                    f"runs of one configuration must begin alike, but {named(out[j])} begins with "
                    f"the score {begins:.3g} that {named(out[i])} has reached ({ends:.3g}), as if "
                    "it went on from its checkpoint; if it did, add --set resumed=join, if it is a "
                    "run of its own (of another model, say) resumed=apart.",
                    options=RESUMED, trial=APART,
                )
            out[i] = _joined(out[i], _after(out.pop(j), out[i]))
            left = [k for k in left if k != j]
    return list(out.values())


_NUMBERS = re.compile("[0-9]+")
_SEQUEL = re.compile("part|resum|contin|cont(?![a-z])|restart|phase|stage|again|retry", re.I)
# A model by its public name; of a path to weights a run may have gone on with its own.
_PUBLIC = re.compile(r"(?!.*(check|ckpt|step|iter|out|run|save|exp|actor))[\w-]+/[\w.-]+", re.I)
# Parts and repetitions of one configuration: more are compared in minutes, and nobody has them.
_MOST_PARTS = 64


def _nearest_end(
    runs: dict[int, ImportedRun], decided: frozenset[int]
) -> tuple[int, int, float, float] | None:
    """Of runs that begin where another ends, the surest: both, that end, that beginning."""
    found = [
        (abs(ends[1] - ends[0]), i, j, *ends)
        for i, j in permutations(runs, 2) if not {id(runs[i]), id(runs[j])} <= decided
        if (ends := _ends_where(runs[i], runs[j])) is not None
    ]  # fmt: skip
    return min(found)[1:] if found else None


def _ends_where(whole: ImportedRun, part: ImportedRun) -> tuple[float, float] | None:
    """The last score of a run and the first of another, where the other goes on from there."""
    if any((span := span_of(run)) is None or span.is_late for run in (whole, part)):
        return None
    models = {run.provenance.facts.get("model", "") for run in (whole, part)}
    if len(models) > 1 and all(map(_PUBLIC.fullmatch, models)):
        return None
    names = {re.sub("[0-9]+", "", run.name) for run in (whole, part)}
    if len(names) > 1 and not any(map(_SEQUEL.search, names)):
        return None  # another model, say
    theirs = {(s.metric, s.problem_set): s for s in part.series if s.split == "validation"}
    for s in whole.series:
        other = theirs.get((s.metric, s.problem_set))
        if s.split != "validation" or other is None or min(s.score_K.size, other.score_K.size) < 4:
            continue
        noise = noise_of(s.score_K, other.score_K)
        first, last, begins = float(s.score_K[0]), float(s.score_K[-1]), float(other.score_K[0])
        if abs(begins - first) > max(NOT_NOISE * noise, 2 * abs(begins - last)):
            return last, begins
    return None


def _after(part: ImportedRun, whole: ImportedRun) -> ImportedRun:
    """A log with its steps, rollouts and tokens counted on from the end of another."""
    last = whole.last

    def on(name: str) -> float:
        return max(float(getattr(s, name)[-1]) for s in whole.series if s.step_K.size)

    series = tuple(
        replace(
            s, step_K=s.step_K + last, rollouts_K=s.rollouts_K + on("rollouts_K"),
            tokens_K=s.tokens_K + on("tokens_K"),
        ) for s in part.series
    )  # fmt: skip
    steps = None if part.steps is None else part.steps + last
    outcomes = tuple(replace(o, step=o.step + last) for o in part.outcomes)
    spent, trained = part.spent.after(last), part.provenance.trained
    told = replace(part.provenance, trained=trained and trained + last)
    return replace(part, series=series, outcomes=outcomes, steps=steps, spent=spent,
                   provenance=told)  # fmt: skip


def named(run: ImportedRun) -> str:
    """A run and its log, for a message."""
    return f"{run.name!r} ({run.provenance.path})"


class Span(NamedTuple):
    """First step, last step and the usual distance of a run's scores."""

    first: int
    last: int
    width: float

    @property
    def is_late(self) -> bool:
        """Whether it begins beyond the first evaluation that a run can have."""
        return self.first > 1.5 * self.width


def span_of(run: ImportedRun) -> Span | None:
    """Where the held-out scores of a run stand, or those of training; None without any."""
    steps = [s.step_K for s in run.series if s.step_K.size and s.split == "validation"]
    steps = steps or [s.step_K for s in run.series if s.step_K.size]
    if not steps:
        return None
    step_K = distinct(np.concatenate(steps))
    gaps = np.sort(np.diff(step_K))
    width = float(gaps[(gaps.size - 1) // 2] + gaps[gaps.size // 2]) / 2 if gaps.size else 1.0
    return Span(int(step_K[0]), int(step_K[-1]), width)


def join_resumed(
    runs: list[ImportedRun], resumed: str | None, decided: frozenset[int]
) -> list[ImportedRun]:
    """Logs that begin in the middle, joined to the one that they go on with."""
    if resumed == "apart":
        return runs
    spans = {id(run): span for run in runs if (span := span_of(run)) is not None}
    alike: dict[tuple[object, ...], list[ImportedRun]] = defaultdict(list)
    for run in runs:
        if run.problems_per_batch is not None and id(run) in spans:
            alike[run.problems_per_batch, run.rollouts_per_problem].append(run)
    joins: dict[int, ImportedRun | None] = {}  # a run -> what it became; None: a part of another
    for group in alike.values():
        left = list(group)
        for part in sorted(group, key=lambda run: spans[id(run)].first, reverse=True):
            part = joins.get(id(part)) or part  # itself joined by what goes on with it
            others = [run for run in left if run is not part]
            before = [run for run in others if _follows(part, run, spans)] or [
                run for run in others if _follows(part, run, spans, anywhere=True)
            ]
            kept_apart = id(part) in decided and any(id(run) in decided for run in before)
            if not before or kept_apart:
                continue
            whole = _whole(part, before, spans, resumed)
            joined = _joined(whole, part)
            spans[id(joined)] = span_of(joined) or spans[id(part)]
            left = [joined if run is whole else run for run in left if run is not part]
            joins[id(whole)] = joined
            for run in group:
                if run is part or joins.get(id(run)) is part:
                    joins[id(run)] = None
    kept = (joins.get(id(run), run) for run in runs)
    return [run for run in kept if run is not None]


def _whole(
    part: ImportedRun, before: Sequence[ImportedRun], spans: dict[int, Span], resumed: str | None
) -> ImportedRun:
    """The one that a log goes on with.

    Raises:
        UnclearError: where that may be several, or none.
    """
    # of a chain of parts, the one that it follows is the latest to begin
    latest = max(spans[id(run)].first for run in before)
    before = [run for run in before if spans[id(run)].first == latest]
    sure = len(before) == 1 and _follows(part, before[0], spans) and _begins_late(part, before[0])
    if sure or (len(before) == 1 and resumed == "join"):
        return before[0]
    raise UnclearError(
        f"a log must begin at the start or go on with one other, but {named(part)} begins at step "
        f"{spans[id(part)].first} and may go on with "
        f"{' or '.join(named(run) for run in before[:3])}; "
        + ("tell the runs apart (a seed in `pattern`), or add --set resumed=apart."
           if len(before) > 1 else "add --set resumed=join, or resumed=apart."),
        options=RESUMED, trial=APART,
    )


def _follows(
    part: ImportedRun, whole: ImportedRun, spans: dict[int, Span], *, anywhere: bool = False
) -> bool:
    """Whether a log can be the sequel of another of its configuration, by place and steps.

    `anywhere`: it lies elsewhere, but is of the same seed and begins late.
    """
    mine, its = spans[id(part)], spans[id(whole)]
    reach = its.last + 1.5 * max(mine.width, its.width)
    if not (its.first < mine.first <= reach and its.last < mine.last):
        return False
    if trains_late(part) is False:  # evaluated late, begun at the start
        return False
    # the same folder, or one beside it: ms-swift starts v1-DATE when it goes on with v0-DATE
    here, there = Path(part.provenance.path), Path(whole.provenance.path)
    near = here.parent == there.parent or here.parent.parent == there.parent.parent
    # or a folder for every job, exp_001/tensorboard/...: paths that differ in numbers alone
    near = near or _NUMBERS.sub("", str(here)) == _NUMBERS.sub("", str(there))
    near = near or (anywhere and part.seed is not None and _begins_late(part, whole))
    unsaid = here.parent == there.parent and (part.seed is None or whole.seed is None)
    # a column of a chart goes on with another where its owner says so: n16, n16_resumed
    rest = part.name.removeprefix(whole.name)
    apart = here != there or part.name == whole.name or (
        rest != part.name and _SEQUEL.search(rest) is not None)
    return (
        (near or part.name == whole.name) and (part.seed == whole.seed or unsaid) and apart
        and not differing([part, whole])
    )


def trains_late(run: ImportedRun) -> bool | None:
    """Whether the training rows of a log begin beyond where a run does; None without such rows."""
    rows = (s.step_K for s in run.series if s.split == "train" and s.step_K.size > 1)
    return next((bool(K[0] > 1.5 * np.median(np.diff(K))) for K in rows), None)


def _begins_late(part: ImportedRun, whole: ImportedRun) -> bool:
    """Whether a log surely is a sequel: it begins beyond the first place where a run can begin.

    A run that was not evaluated before training begins at its first evaluation. One whose first
    score is the other's at that step, or whose training rows begin late, does not.
    """
    if (span := span_of(part)) is not None and span.is_late:
        return True
    if (late := trains_late(part)) is not None:
        return late
    theirs = scores_of(whole)
    return any(
        theirs.get(key, {}).get(step) == value
        for key, points in scores_of(part).items() for step, value in points.items()
    )


def _joined(first: ImportedRun, then: ImportedRun) -> ImportedRun:
    """A run and its sequel: from where the sequel begins, its scores count."""
    span, ends = span_of(then), span_of(first)
    assert span is not None
    assert ends is not None
    begins = then.spent.begins(span.first)
    before, its_own = kept_of(first), then.spent
    spent = before.then(its_own, begins)
    kept = {s.of: s for s in first.series}
    for s in then.series:
        if s.step_K.size:
            s = replace(
                s,
                rollouts_K=_counted_on(s.rollouts_K, s.step_K, before.drawn, its_own.drawn, begins),
                tokens_K=_counted_on(s.tokens_K, s.step_K, before.tokens, its_own.tokens, begins),
            )
        old = kept.setdefault(s.of, s)
        if old is s or not s.step_K.size:
            continue
        stays = old.step_K < s.step_K[0]
        kept[s.of] = replace(
            old, n_missing=old.n_missing + s.n_missing,
            step_K=np.concatenate((old.step_K[stays], s.step_K)),
            rollouts_K=np.concatenate((old.rollouts_K[stays], s.rollouts_K)),
            tokens_K=np.concatenate((old.tokens_K[stays], s.tokens_K)),
            score_K=np.concatenate((old.score_K[stays], s.score_K)),
        )
    lost = max(ends.last, before.last()) - begins
    again = f", {lost} steps done twice count once" if lost > 0 else ""
    own, its = first.provenance, then.provenance
    rates = its.rates and (its.rates[0], max(its.rates[1], (own.rates or its.rates)[1]))
    joined = replace(
        first, provenance=replace(
            own, rates=rates or own.rates, trained=its.trained, **spent.said(),
            passes_per_step=(spent.passes_per_step or its.passes_per_step
                             or own.passes_per_step),
            alike=own.alike if its.alike is None else its.alike,
        ), spent=spent, series=tuple(kept.values()), outcomes=_outcomes(first, then, span.first),
        errors=(*first.errors, *then.errors), n_errors=first.n_errors + then.n_errors,
        n_rows=first.n_rows + then.n_rows, steps=then.steps or first.steps,
        seed=then.seed if first.seed is None else first.seed,
        notes=tuple(dict.fromkeys((*first.notes, *_still(then, before)))),
    )
    return joined.inferring(
        *then.provenance.inferred,
        f"joined with {then.provenance.path}, which goes on from step {begins}{again}",
    )


def _counted_on(
    own_K: FloatArray, step_K: IntArray, before: Each, its: Each, begins: int
) -> FloatArray:
    """Sums of a sequel, from the beginning of what it goes on with; as they were if not known."""
    until = known_at(*before.totals(), np.array([begins]))
    counted_K = until + known_at(*its.totals(begins), step_K)
    return np.where(np.isfinite(counted_K), counted_K, own_K)


def _still(then: ImportedRun, before: Spent) -> list[str]:
    """Notes of a sequel that hold of the whole, too: what it drew is counted from there on."""
    is_counted = bool(before.drawn.step_L.size and then.spent.drawn.step_L.size)
    return [note for note in then.notes if not (is_counted and note == UNCOUNTED)]


def _outcomes(first: ImportedRun, then: ImportedRun, begins: int) -> tuple[Outcomes, ...]:
    there = {(o.step, o.problem_set, o.split) for o in first.outcomes if o.step < begins}
    return (
        *(o for o in first.outcomes if o.step < begins),
        *(o for o in then.outcomes if (o.step, o.problem_set, o.split) not in there),
    )
