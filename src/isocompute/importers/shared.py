"""What the scores of two records have in common: whether they are of one run.

Shape legend: K points of one series.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from isocompute.importers.merging import Key
from isocompute.importers.repetitions import SETTINGS
from isocompute.importers.runs import ImportedRun

ENOUGH = 3  # distinct equal scores after step 0 that two runs of chance do not have
# The same where one record is a console that prints three digits (verl before 0.2): of two runs of
# chance one score in fifty agrees. At half, a pair among a hundred runs is taken for one; at twice,
# runs of fewer than eight evaluations count twice.
ENOUGH_ROUNDED = 4
_ROUNDED = range(3, 6)  # digits of a console; fewer agree by chance, more are those of float32
_SERIES, _POINTS, _MIXER = 2, 16, 2_654_435_761  # where another record of a run is looked for
_CROWD = 8  # a score that more runs share at one step (0, 1) tells nothing


def scores_of(run: ImportedRun) -> dict[Key, dict[int, float]]:
    """The scores of every series by step."""
    return {
        (s.metric, s.problem_set, s.split): dict(
            zip(s.step_K.tolist(), s.score_K.tolist(), strict=True)
        )
        for s in run.series
    }


def pairs(runs: Sequence[ImportedRun], decided: frozenset[int]) -> list[tuple[int, int]]:
    """Places of two runs that share scores at some steps and were not settled before."""
    holders: dict[tuple[str, int, float], list[int]] = defaultdict(list)
    digits = [_digits(run) for run in runs]
    coarse = {d for d in digits if d is not None}
    for i, run in enumerate(runs):
        for split, step, value in _marks(run):
            for d in {5, *coarse} if digits[i] is None else {digits[i]}:
                holders[split, step, round(value, d)].append(i)
    count: Counter[tuple[int, int]] = Counter()
    for found in holders.values():
        if 1 < len(found) <= _CROWD:
            count.update(combinations(sorted(set(found)), 2))
    return [
        (i, j) for (i, j), hits in sorted(count.items())
        if hits >= 2 and not {id(runs[i]), id(runs[j])} <= decided
    ]


def _marks(run: ImportedRun) -> Iterator[tuple[str, int, float]]:
    """Some means of a run, by which another record of it may be found.

    Of long series the same steps in every run: those of the smallest hash.
    """
    taken: Counter[str] = Counter()
    for s in run.series:
        if s.metric.kind != "avg" or taken[s.split] == _SERIES:
            continue
        taken[s.split] += 1
        after = np.flatnonzero(s.step_K > 0)
        if after.size > _POINTS:
            order = np.argsort(s.step_K[after] * _MIXER % (1 << 31), kind="stable")
            after = after[order[:_POINTS]]
        for step, value in zip(s.step_K[after].tolist(), s.score_K[after].tolist(), strict=True):
            yield s.split, step, value


def _digits(run: ImportedRun) -> int | None:
    """To how many digits a console rounds its scores; None where it does not."""
    if not run.provenance.format.endswith("console"):
        return None
    value_K = np.concatenate([s.score_K for s in run.series] or [np.empty(0)])
    return next((d for d in _ROUNDED if np.array_equal(np.round(value_K, d), value_K)), None)


def may_be_one(a: ImportedRun, b: ImportedRun) -> bool:
    """Whether nothing that two records say of their runs tells them apart."""
    if any(
        None not in (getattr(a, n), getattr(b, n)) and getattr(a, n) != getattr(b, n)
        for n in SETTINGS[:2]
    ):
        return False
    if all(getattr(r, n) is None for r in (a, b) for n in SETTINGS[:2]):
        return False  # two configurations may be meant: they are asked for first
    rates = [r.provenance.facts.get("learning_rate") for r in (a, b)]
    # two runs by their own word: the rate is asked for
    return None in rates or rates[0] == rates[1]


class Shared(NamedTuple):
    """What the scores of two records have in common, step 0 apart."""

    equal: set[float]  # distinct scores that are the same, before any that is not
    enough: bool  # more of them than chance gives
    until: int  # the last step of those
    differ: int | None  # the first step at which they differ


def shared(a: ImportedRun, b: ImportedRun) -> Shared:
    """The scores of two records, held against each other.

    Trackers name metrics differently (avg, avg@4; a problem set or none), so every series of one
    kind, k and split is held against each of the other's that says no other.
    """
    scores_a, scores_b = scores_of(a), scores_of(b)
    rounded = [d for d in (_digits(a), _digits(b)) if d is not None]
    # trackers round to float32
    rtol, atol = (0.0, 0.501 * 10.0 ** -min(rounded)) if rounded else (1e-5, 1e-7)
    same: list[tuple[int, float]] = []
    differ: int | None = None
    for (metric, problem_set, split), points in scores_a.items():
        for (other, other_set, other_split), others in scores_b.items():
            if (metric.kind, metric.variable, split) != (other.kind, other.variable, other_split):
                continue
            if None not in (metric.samples, other.samples) and metric.samples != other.samples:
                continue  # best@2 is another number than best@4
            if problem_set and other_set and problem_set != other_set:
                continue
            common = sorted(points.keys() & others.keys() - {0})
            x_K = np.array([points[s] for s in common])
            alike_K = np.isclose(x_K, [others[s] for s in common], rtol=rtol, atol=atol)
            first = int(alike_K.argmin()) if not alike_K.all() else len(common)
            if first < len(common):
                differ = min(common[first], differ if differ is not None else common[first])
            same += zip(common[:first], x_K[:first].tolist(), strict=True)
    same = [(at, v) for at, v in same if differ is None or at < differ]
    equal = {round(v, min(rounded, default=7)) for _, v in same}
    enough = len(equal) >= (ENOUGH_ROUNDED if rounded else ENOUGH)
    return Shared(equal, enough, max((at for at, _ in same), default=0), differ)
