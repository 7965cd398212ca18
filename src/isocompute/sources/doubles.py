"""One run in two sources counts once, and so does one problem set under two names.

Shape legend: K points of one curve.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocompute.domain import Curve
from isocompute.importers.runs.shared import ENOUGH

_ALL = "all"  # problem sets, or answers


def without_doubles(sources: Sequence[Sequence[Curve]]) -> tuple[list[Curve], list[str]]:
    """Curves of several sources, each run once, and what was left out: one line each."""
    kept: list[Curve] = []
    lines: list[str] = []
    for curves in sources:
        twins = {id(c): twin for c in curves if (twin := _twin(c, kept)) is not None}
        if twins:
            first = next(c for c in curves if id(c) in twins)
            lines.append(
                f"{len(twins)} runs stand in more than one source and are counted once (the first: "
                f"{first.run!r}, as {twins[id(first)].run!r})"
            )
        kept += [c for c in curves if id(c) not in twins]
    return kept, lines


def _twin(curve: Curve, others: Sequence[Curve]) -> Curve | None:
    """The curve of the same configuration with the same scores."""
    for other in others:
        if (
            curve.configuration != other.configuration or curve.split != other.split
            or curve.arm != other.arm or (None not in (curve.seed, other.seed)
            and curve.seed != other.seed)
        ):
            continue
        _, mine, its = np.intersect1d(curve.rollouts_K, other.rollouts_K, return_indices=True)
        after = curve.rollouts_K[mine] > 0
        x_K, y_K = curve.score_K[mine][after], other.score_K[its][after]
        if np.allclose(x_K, y_K, rtol=1e-5, atol=1e-7) and np.unique(x_K).size >= ENOUGH:
            return other
    return None


def of_one_set(curves: list[Curve]) -> list[Curve]:
    """Curves without those of `all` problem sets (SkyRL's) where one set alone is all of them.

    So are all answers of a set (prime-rl's `math500/all`) where `math500/effective` is.
    """
    named = {_but_set(c) for c in curves if not _is_whole(c)}
    return [c for c in curves if not _is_whole(c) or _but_set(c) not in named]


def _is_whole(c: Curve) -> bool:
    return c.problem_set.rpartition("/")[2] == _ALL


def _but_set(c: Curve) -> tuple[object, ...]:
    scores = c.score_K.tobytes(), c.rollouts_K.tobytes()
    return c.configuration, c.run, c.seed, c.metric, c.split, *scores
