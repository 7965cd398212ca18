"""With what runs begin: all of a sweep begin with one model, graded alike."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isocompute.errors import InputError
from isocompute.importers.runs.grids import Design
from isocompute.importers.runs.meant import without
from isocompute.importers.values.imported import FloatArray, ImportedRun
from isocompute.store.arms import matches

# Standard deviations of noise between what the same model scores twice: at half seeds that learn
# fast before their first evaluation are taken for sequels, at twice sequels of noisy runs are not.
NOT_NOISE = 6.0
_ENOUGH = 3  # scores that tell a run's noise


def noise_of(*scores: FloatArray) -> float:
    """The standard deviation of noise in the scores of runs, by how their curves bend."""
    bends = np.concatenate([np.diff(score_K, 2) for score_K in scores])
    return float(np.median(np.abs(bends))) / (0.6745 * 6**0.5)


def refuse_another_start(runs: Sequence[ImportedRun], problem_set: str | None) -> None:
    """All runs of a sweep begin with one model: it scores alike before training, but for noise."""
    starts: dict[tuple[str, str, str], _Starts] = defaultdict(dict)
    for i, run in enumerate(runs):
        for s in run.series:
            if s.split == "validation" and s.step_K.size > _ENOUGH and s.step_K[0] == 0 and (
                problem_set is None or matches(s.problem_set, problem_set)
            ):
                first, last = float(s.score_K[0]), float(s.score_K[-1])
                key = s.metric.kind, s.metric.variable, s.problem_set
                one = _Start(i, run.name, run.design)
                starts[key][one] = first, abs(last - first), noise_of(s.score_K)
    # what another model scores, its mean tells first
    means = {key: of for key, of in starts.items() if key[0] == "avg"} or starts
    apart = {key: groups for key, of in means.items() if (groups := _apart(of)) is not None}
    if not apart:
        return
    (key, (odd, left)), of = next(iter(apart.items())), means[next(iter(apart))]
    other, gap = {name for *_, name in apart}, abs(of[odd[0]][0] - of[left[0]][0])
    alike = [of_set[2] for of_set, its in means.items()  # at nothing all models are alike
             if of_set[2] not in other and len(its) >= len(of)
             and min(first for first, *_ in its.values()) > gap / 2]
    text = (
        f"runs of one sweep must begin with one model, but {odd[0].name!r} scores "
        f"{of[odd[0]][0]:.3g} before training where {left[0].name!r} scores {of[left[0]][0]:.3g}"
    )
    if alike:  # one model, and one set whose problems are others in some runs: "all"
        raise InputError(
            f"{text} on {key[2]!r}; all begin alike on {alike[0]!r}: where {key[2]!r} holds other "
            f"problems in some runs, choose that one with --problem-set {shlex.quote(alike[0])}, "
            "or keep all with --where 'run=*'.",
            options=("--problem-set", alike[0]), trial=("--problem-set", alike[0]),
            condition=f"{key[2]!r} holds other problems in some runs",
        )
    fewer, more = ([one.name for one in part] for part in (odd, left))
    if {*fewer} & {*more}:
        homes = [os.path.commonpath([os.path.dirname(runs[one.at].provenance.path) for one in part])
                 for part in (odd, left)]  # fmt: skip
        raise InputError(f"{text}, and runs of both bear one name; give the folder of those that "
                         f"count ({' or '.join(homes)}), or keep all with --where 'run=*'.")
    raise without(text, fewer, more)


class _Start(NamedTuple):
    """A run by its place and its name, which others may have, too."""

    at: int
    name: str
    design: Design


_Starts = dict[_Start, tuple[float, float, float]]  # the first score, the gain, the noise, by run


def _apart(of: _Starts) -> tuple[list[_Start], list[_Start]] | None:
    """The fewer and the more of runs that begin apart from each other; None where they do not."""
    gain, noise = (float(np.median([one[i] for one in of.values()])) for i in (1, 2))
    order = sorted(of, key=lambda one: of[one][0])
    gaps = np.diff([of[one][0] for one in order])
    if not gaps.size:
        return None
    at = int(gaps.argmax()) + 1
    # Half of what training brings is no noise of an evaluation, but another model.
    least = max(NOT_NOISE * noise, gain / 2)
    if {run.design for run in order[:at]} & {run.design for run in order[at:]} and (
        2 <= at <= len(order) - 2
    ):  # what was done twice begins alike on either side: another grader, prompt or set
        least = min(least, NOT_NOISE * max(noise, *np.delete(gaps, at - 1)))
    if gaps[at - 1] <= least:
        return None
    odd, left = sorted((order[:at], order[at:]), key=len)
    return odd, left
