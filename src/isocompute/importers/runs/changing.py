"""Rows whose B_p, n or score becomes another on the way, under keys that nobody mapped."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from isocompute.importers.runs.collected import Collected, Spans
from isocompute.importers.runs.points import Points
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.words.called import COUNTS, is_batch, is_called, mapping

_FEW = 4  # values of a setting: what has more is measured, as the samples that a filter leaves
_MANY = 4  # scores of one step: of fewer, some may be a row that was written again


def refuse_several(run: str, perhaps: Mapping[str, Spans]) -> None:
    """Rows that begin again with another n, under a key that nobody mapped: other runs."""
    for key, spans in perhaps.items():
        if len(spans) > 1 and len({first for first, _ in spans.values()}) == 1:
            first, other = list(spans)[:2]
            raise UnclearError(
                f"a run must have one {key}, but the rows of {run!r} have {first} and "
                f"{other} and hold the same steps again; give each run a log of its own, or "
                "its rows a name in `run`."
            )


def refuse_samples(found: Sequence[Points], what: str) -> None:
    """Refuse held-out scores of which many stand at one step, row after row: single answers.

    Raises:
        UnclearError: with the step; the first of them would count as the score of all.
    """
    for points in (p for p in found if p.column.split != "train"):
        step_K, score_K = points.steps_K, points.scores_K
        begins = np.flatnonzero(np.diff(step_K, prepend=-1))
        several = [part for part in np.split(score_K, begins[1:]) if part.size >= _MANY
                   and np.count_nonzero(np.diff(part)) > 1]  # fmt: skip
        if len(several) > 1:
            most = max(part.size for part in several)
            raise UnclearError(
                f"{what}: a step must have one score, but {points.key} has up to {most}, row after "
                f"row, at {len(several)} of {len(begins)} steps, as single answers have; write "
                "the mean of each step: a CSV of run, problems_per_batch, rollouts_per_problem, "
                "step, score."
            )


def refuse_changed(c: Collected, what: str, b_p: int | None, n: int | None) -> None:
    """Refuse rows whose B_p or n becomes another on the way, each for several steps."""
    batch = b_p * n if b_p and n else None
    own = {"B_p": {b_p, batch}, "n": {n}, "B_p and n": {n, batch}}
    called = dict(zip(COUNTS, own, strict=False))  # what the first two are called
    held = [(key, next((called[one] for one in COUNTS if is_called(key, one)),
                       "B_p" if is_batch(key) else ""), spans)
            for key, spans in c.perhaps.items()]  # fmt: skip
    for key, name, spans in (*held, (c.drawn_by, "B_p and n", _spans_of(c.side["drawn"]))):
        ordered = sorted(spans.items(), key=lambda one: one[1])
        apart = all(one[1][1] < other[1][0] for one, other in pairwise(ordered))
        if name and 1 < len(spans) <= _FEW and apart and not own[name].isdisjoint(spans) and all(
            first < last for first, last in spans.values()  # not a last batch, of what was left
        ):
            (before, _), (after, (begins, _)), *_ = ordered
            none = "neither" if " " in name else f"no {name}"
            raise UnclearError(
                f"{what}: a run must have one {name}, but {key} is {before} and from step "
                f"{begins} on {after}: no curve holds both; move its log away, or add "
                f"{mapping(key, 'other')} if {key} is {none}."
            )


def _spans_of(counted: Mapping[int, float]) -> Spans:
    """The first and the last step of every number of a count; none where they are many."""
    spans: Spans = {}
    for step in sorted(counted):
        if len(spans) > _FEW:
            return {}
        now = int(counted[step])
        spans[now] = spans.get(now, (step, step))[0], step
    return spans


def refuse_renamed_on_the_way(c: Collected, what: str) -> None:
    """Refuse a score that ends where another of its kind begins, which was not read."""
    for points in (p for p in c.points if p.column.split == "validation" and p.step):
        last = int(points.steps_K.max())
        if other := c.evidence.in_its_place(points.key, last, c.unread):
            maps = [word for key in (points.key, other) for word in shlex.split(
                mapping(key, points.column.metric.label))]  # fmt: skip
            raise UnclearError(
                f"{what}: a score must be read to its end, but {points.key} ends at step {last} "
                f"and {other} begins behind it, which was not read; if it is the same under "
                f"another name, add {shlex.join(maps)}, else {mapping(other, 'other')}.",
                options=maps, condition=f"`{points.key}` and `{other}` are one score",
            )


def join_renamed(c: Collected) -> None:
    """Make one series of keys that the user mapped to one score, of which each goes on another."""
    first = dict[tuple[str, str, str], Points]()
    for points in sorted((p for p in c.points if p.step and p.key in c.settings.columns),
                         key=lambda p: min(p.step)):  # fmt: skip
        of = points.column
        own = first.setdefault((of.metric.label, of.problem_set or "", of.split), points)
        if own is not points and max(own.step) < min(points.step):
            c.counters.infer(f"score: {own.key} goes on as {points.key}")
            own.step.extend(points.step)
            own.value.extend(points.value)
            own.n_missing += points.n_missing
            c.points = [one for one in c.points if one is not points]
