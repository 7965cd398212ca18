"""What is one run: decided here, by what the logs say of it and by its scores.

Two records of one run (two trackers, a copy) are one; a log that begins where another ends goes
on with it. What is joined is said and kept as inferred; what could be either stops with both and
the option that settles it. Which runs are repetitions of each other: `repetitions`.

Shape legend: K points of one series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isocompute.importers.merging import merged
from isocompute.importers.placing import LATE
from isocompute.importers.repetitions import SETTINGS, differing
from isocompute.importers.runs import ImportedRun, Outcomes, Series, UnclearError
from isocompute.importers.shared import ENOUGH, may_be_one, pairs, scores_of, shared
from isocompute.importers.steps import BEFORE


def settle_runs(
    runs: Sequence[ImportedRun], *, resumed: str | None = None, decided: Sequence[ImportedRun] = ()
) -> list[ImportedRun]:
    """Runs without doubles, resumed logs joined.

    Args:
        runs: of any number of logs.
        resumed: "join" or "apart" where it is not clear whether a log goes on with another.
        decided: those of the runs that an earlier import settled among themselves.

    Raises:
        UnclearError: one run at different steps or under different seeds; a log that may go on
            with several others.
    """
    if len(runs) > 1:
        before = frozenset(map(id, decided))
        once = _merge_doubles(list(runs), before)
        if resumed != "apart":
            once = _leave_branches(once, before)
            once = _last_starts(once, resumed, before)
        runs = _join_resumed(once, resumed, before)
    return [_telling_its_beginning(run) for run in runs]


def _telling_its_beginning(run: ImportedRun) -> ImportedRun:
    """With a line where its steps are even, and the first is far beyond one of them."""
    first, _, width = _span(run) or (0, 0, 1.0)
    even = [  # where budgets grow by a factor, so does the distance
        np.mean(np.diff(s.step_K) == width) > 0.5 for s in run.series if s.step_K.size > 1
    ]
    if not any(even) or first <= LATE * width:
        return run
    return run.inferring(f"step: the log begins at step {first}, {BEFORE}")


def _merge_doubles(runs: list[ImportedRun], decided: frozenset[int]) -> list[ImportedRun]:
    _refuse_shifted(runs, decided)
    parent = list(range(len(runs)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, j in pairs(runs, decided):
        if _one_run(runs[i], runs[j]):
            parent[root(j)] = root(i)
    groups: dict[int, list[ImportedRun]] = defaultdict(list)
    for i, run in enumerate(runs):
        groups[root(i)].append(run)
    return [merged(group) for group in groups.values()]


def _one_run(a: ImportedRun, b: ImportedRun) -> bool:
    """Whether all scores that two records share are the same, and enough of them."""
    if not may_be_one(a, b):
        return False
    found = shared(a, b)
    copied = a.provenance.sha256 == b.provenance.sha256 and a.provenance.path != b.provenance.path
    if found.differ is not None or not (found.enough or (found.equal and copied)):
        return False
    if a.seed is not None and b.seed is not None and a.seed != b.seed:
        raise UnclearError(
            f"runs of two seeds must differ, but {_named(a)} (seed {a.seed}) and {_named(b)} (seed "
            f"{b.seed}) have the same {len(found.equal)} scores; leave one out, with --where seed="
            f"{a.seed} or its file."
        )
    return True


def _leave_branches(runs: list[ImportedRun], decided: frozenset[int]) -> list[ImportedRun]:
    """Of two runs with one beginning, the one that went on further: it holds that beginning.

    A run that goes on from a checkpoint elsewhere takes its history along; what the first did
    after that checkpoint is no run of its own.

    Raises:
        UnclearError: where both end at one step.
    """
    kept, left_out = list(runs), set[int]()
    for i, j in pairs(runs, decided):
        a, b = runs[i], runs[j]
        found = shared(a, b) if may_be_one(a, b) else None
        if found is None or found.differ is None or not found.enough:
            continue
        ends = [(_span(run) or (0, 0, 1.0))[1] for run in (a, b)]
        if ends[0] == ends[1]:
            raise UnclearError(
                f"runs must not share their first scores, but {_named(a)} and {_named(b)} have the "
                f"same ones up to step {found.until}, as if one went on from a checkpoint of the "
                "other; leave one out (--where run=NAME), or keep both with --set resumed=apart."
            )
        stays, leaves = (i, j) if ends[0] > ends[1] else (j, i)
        told = (f"goes on from step {found.until} of {runs[leaves].provenance.path}, whose later "
                "scores are left out (--set resumed=apart keeps both)")
        kept[stays] = replace(kept[stays], notes=(*kept[stays].notes, told))
        left_out.add(leaves)
    return [run for k, run in enumerate(kept) if k not in left_out]


def _last_starts(
    runs: list[ImportedRun], resumed: str | None, decided: frozenset[int]
) -> list[ImportedRun]:
    """Of event files in one folder that all begin at the start, the last.

    TensorBoard takes a folder for a run.

    Raises:
        UnclearError: unless `resumed` is "join".
    """
    folders: dict[tuple[object, ...], list[ImportedRun]] = defaultdict(list)
    for run in runs:
        span = _span(run)
        if run.provenance.format == "tensorboard" and span and span[0] <= 1.5 * span[2]:
            settings = tuple(getattr(run, name) for name in SETTINGS)
            folders[(Path(run.provenance.path).parent, *settings)].append(run)
    left_out = set[int]()
    for several in folders.values():
        if len(several) < 2 or {id(run) for run in several} <= decided:
            continue
        *before, last = sorted(several, key=lambda run: Path(run.provenance.path).name)
        if not any(scores_of(run).keys() & scores_of(last).keys() for run in before):
            continue  # each has series of its own
        if resumed != "join":
            raise UnclearError(
                f"a folder of event files must be one run, but {_named(last)} and "
                f"{_named(before[-1])} both begin at the start; if one is a new start of the "
                "other, add --set resumed=join (the last start counts), else resumed=apart."
            )
        left_out |= {id(run) for run in before}
    return [run for run in runs if id(run) not in left_out]


def _refuse_shifted(runs: Sequence[ImportedRun], decided: frozenset[int]) -> None:
    """One run whose two records count different things as steps."""
    seen: dict[tuple[object, ...], list[tuple[ImportedRun, Series]]] = defaultdict(list)
    for run in runs:
        for s in run.series:
            if s.metric.kind != "avg" or len(set(s.score_K.tolist())) <= ENOUGH:
                continue
            # trackers round to float32, so the sum may fall into the next thousandth
            place = round(1e3 * float(s.score_K.sum()))
            kind = (s.metric.kind, s.metric.variable, s.split, s.score_K.size)
            near = [one for d in (-1, 0, 1) for one in seen[(*kind, place + d)]]
            for other, twin in near:
                if {id(other), id(run)} <= decided:
                    continue
                if other is run or np.array_equal(twin.step_K, s.step_K):
                    continue
                if not np.allclose(twin.score_K, s.score_K, rtol=1e-5, atol=1e-7):
                    continue
                raise UnclearError(
                    f"one run must have its scores at the same steps in every log, but "
                    f"{_named(other)} has them up to {int(twin.step_K[-1])} and {_named(run)} up "
                    f"to {int(s.step_K[-1])}; give one of the two, or name the key that counts "
                    "updates with --set step=KEY."
                )
            seen[(*kind, place)].append((run, s))


def _named(run: ImportedRun) -> str:
    return f"{run.name!r} ({run.provenance.path})"


def _span(run: ImportedRun) -> tuple[int, int, float] | None:
    """First step, last step and the usual distance of a run's validation scores."""
    steps = [s.step_K for s in run.series if s.step_K.size and s.split == "validation"]
    steps = steps or [s.step_K for s in run.series if s.step_K.size]
    if not steps:
        return None
    step_K = np.unique(np.concatenate(steps), return_index=True)[0]  # alone it loads numpy.ma
    gaps = np.sort(np.diff(step_K))
    width = float(gaps[(gaps.size - 1) // 2] + gaps[gaps.size // 2]) / 2 if gaps.size else 1.0
    return int(step_K[0]), int(step_K[-1]), width


def _join_resumed(
    runs: list[ImportedRun], resumed: str | None, decided: frozenset[int]
) -> list[ImportedRun]:
    """Logs that begin in the middle, joined to the one that they go on with."""
    if resumed == "apart":
        return runs
    spans = {id(run): _span(run) for run in runs}
    alike: dict[tuple[object, ...], list[ImportedRun]] = defaultdict(list)
    for run in runs:
        if run.problems_per_batch is not None and spans[id(run)] is not None:
            alike[tuple(getattr(run, name) for name in SETTINGS)].append(run)
    joins: dict[int, ImportedRun | None] = {}  # a run -> what it became; None: a part of another
    for group in alike.values():
        left = list(group)
        for part in sorted(group, key=lambda r: (spans[id(r)] or (0,))[0], reverse=True):
            part = joins.get(id(part)) or part  # itself joined by what goes on with it
            before = [run for run in left if run is not part and _follows(part, run, spans)]
            kept_apart = id(part) in decided and any(id(run) in decided for run in before)
            if not before or kept_apart:
                continue
            whole = _whole(part, before, spans, resumed)
            joined = _joined(whole, part)
            spans[id(joined)] = _span(joined)
            left = [joined if run is whole else run for run in left if run is not part]
            joins[id(whole)] = joined
            for run in group:
                if run is part or joins.get(id(run)) is part:
                    joins[id(run)] = None
    kept = (joins.get(id(run), run) for run in runs)
    return [run for run in kept if run is not None]


_Spans = dict[int, "tuple[int, int, float] | None"]


def _whole(
    part: ImportedRun, before: Sequence[ImportedRun], spans: _Spans, resumed: str | None
) -> ImportedRun:
    """The one that a log goes on with.

    Raises:
        UnclearError: where that may be several, or none.
    """
    # of a chain of parts, the one that it follows is the latest to begin
    latest = max((spans[id(run)] or (0,))[0] for run in before)
    before = [run for run in before if (spans[id(run)] or (0,))[0] == latest]
    if len(before) == 1 and (resumed == "join" or _begins_late(part, before[0])):
        return before[0]
    raise UnclearError(
        f"a log must begin at the start or go on with one other, but {_named(part)} begins at step "
        f"{(spans[id(part)] or (0,))[0]} and may go on with "
        f"{' or '.join(_named(run) for run in before[:3])}; "
        + ("tell the runs apart (a seed in `pattern`), or add --set resumed=apart."
           if len(before) > 1 else "add --set resumed=join, or resumed=apart.")
    )


def _follows(part: ImportedRun, whole: ImportedRun, spans: _Spans) -> bool:
    """Whether a log can be the sequel of another of its configuration, by place and steps."""
    mine, its = spans[id(part)], spans[id(whole)]
    if mine is None or its is None or not (
        its[0] < mine[0] <= its[1] + 1.5 * max(mine[2], its[2]) and its[1] < mine[1]
    ):
        return False
    # the same folder, or one beside it: ms-swift starts v1-DATE when it goes on with v0-DATE
    here, there = Path(part.provenance.path), Path(whole.provenance.path)
    near = here.parent == there.parent or here.parent.parent == there.parent.parent
    return (
        (near or part.name == whole.name)
        and part.provenance.path != whole.provenance.path
        and not differing([part, whole])
    )


def _begins_late(part: ImportedRun, whole: ImportedRun) -> bool:
    """Whether a log surely is a sequel: it begins beyond the first place where a run can begin.

    A run that was not evaluated before training begins at its first evaluation. One whose first
    score is the other's at that step, or whose training rows begin late, does not.
    """
    first, _, width = _span(part) or (0, 0, 1.0)
    if first > 1.5 * width:
        return True
    for s in part.series:
        if s.split == "train" and s.step_K.size > 1:
            return bool(s.step_K[0] > 1.5 * np.median(np.diff(s.step_K)))
    theirs = scores_of(whole)
    return any(
        theirs.get(key, {}).get(step) == value
        for key, points in scores_of(part).items() for step, value in points.items()
    )


def _joined(first: ImportedRun, then: ImportedRun) -> ImportedRun:
    """A run and its sequel: from where the sequel begins, its scores count."""
    kept = {(s.metric, s.problem_set, s.split): s for s in first.series}
    for s in then.series:
        key = (s.metric, s.problem_set, s.split)
        old = kept.get(key)
        if old is None or not s.step_K.size:
            kept.setdefault(key, s)
            continue
        stays = old.step_K < s.step_K[0]
        kept[key] = replace(
            old, n_missing=old.n_missing + s.n_missing,
            step_K=np.concatenate((old.step_K[stays], s.step_K)),
            rollouts_K=np.concatenate((old.rollouts_K[stays], s.rollouts_K)),
            tokens_K=np.concatenate((old.tokens_K[stays], s.tokens_K)),
            score_K=np.concatenate((old.score_K[stays], s.score_K)),
        )
    begins, ends = _span(then), _span(first)
    assert begins is not None
    assert ends is not None
    lost = ends[1] - begins[0]
    again = f", {lost} steps done twice count once" if lost > 0 else ""
    joined = replace(
        first, series=tuple(kept.values()), outcomes=_outcomes(first, then, begins[0]),
        errors=(*first.errors, *then.errors), n_errors=first.n_errors + then.n_errors,
        n_rows=first.n_rows + then.n_rows, steps=then.steps or first.steps,
        notes=tuple(dict.fromkeys((*first.notes, *then.notes))),
    )
    return joined.inferring(
        *then.provenance.inferred,
        f"joined with {then.provenance.path}, which goes on from step {begins[0]}{again}",
    )


def _outcomes(first: ImportedRun, then: ImportedRun, begins: int) -> tuple[Outcomes, ...]:
    there = {(o.step, o.problem_set, o.split) for o in first.outcomes if o.step < begins}
    return (
        *(o for o in first.outcomes if o.step < begins),
        *(o for o in then.outcomes if (o.step, o.problem_set, o.split) not in there),
    )
