"""An import into a folder that holds runs already: as if all logs were read now.

A log that was read before and says otherwise now (it went on, or other settings read it) gives way
to the new reading; nothing of it stays beside. All else is as with several logs at once: a record
of a run that is there is that run, a sequel is joined to what it goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocompute.importers.runs.identity import settle_runs
from isocompute.importers.runs.shared import ENOUGH, merged, scores_of
from isocompute.importers.values.imported import DESIGN, ImportedRun, disagree

_SAID = ("facts", "score_range", "evaluation_problems", "gpu_s_per_step", "pace", "clocked")


def settle_again(
    new: Sequence[ImportedRun], kept: Sequence[ImportedRun], *, resumed: str | None = None
) -> list[ImportedRun]:
    """What a folder holds after an import, in the order: new, kept.

    Args:
        new: read now, each run once.
        kept: read before.
        resumed: see `settle_runs`.

    Raises:
        UnclearError: as `settle_runs`.
    """
    left, fresh = list(kept), list[ImportedRun]()
    for run in new:
        earlier = [old for old in left if _same_log(run, old)]
        left = [old for old in left if not any(old is one for one in earlier)]
        fresh.append(merged([run, *(old for old in earlier if not _contradicts(run, old))]))
    return settle_runs([*fresh, *left], resumed=resumed, decided=left)


def alike(a: ImportedRun, b: ImportedRun) -> bool:
    """Whether two records say the same of a run, wherever they were read."""
    p, q = a.provenance, b.provenance
    return (
        a.name == b.name
        and all(getattr(a, name) == getattr(b, name) for name in (*DESIGN, "steps"))
        and all(getattr(p, name) == getattr(q, name) for name in _SAID)
        and [s.of for s in a.series] == [s.of for s in b.series]
        and all(
            np.array_equal(getattr(s, name), getattr(t, name), equal_nan=True)
            for s, t in zip(a.series, b.series, strict=True)
            for name in ("step_K", "rollouts_K", "tokens_K", "score_K")
        )
        and len(a.outcomes) == len(b.outcomes)
    )


def changes(new: ImportedRun, old: ImportedRun) -> str:
    """What a new reading of a run says otherwise: "problems_per_batch 32 -> 64"; "" if little."""
    for name in DESIGN:
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            return f"{name} {before} -> {now}"
    for name in ("score_range", "evaluation_problems"):
        before, now = getattr(old.provenance, name), getattr(new.provenance, name)
        if before != now:
            return f"{name} {before} -> {now}"
    if old.last != new.last:
        return f"{old.last} -> {new.last} updates"
    timed = any(getattr(old.provenance, name) != getattr(new.provenance, name)
                for name in ("gpu_s_per_step", "pace", "clocked"))  # fmt: skip
    return "GPU-hours of an update" if timed else ""


def _same_log(new: ImportedRun, old: ImportedRun) -> bool:
    """Whether both were read from one place: the file as it was, or as it has grown."""
    p, q = new.provenance, old.provenance
    if p.sha256 == q.sha256 and new.name == old.name:
        return True
    if p.sha256 == q.sha256 or (new.name == old.name and p.path == q.path):
        return _shared(new, old) >= ENOUGH
    return False


def _shared(a: ImportedRun, b: ImportedRun) -> int:
    """Distinct scores after step 0 that both have; 0 where one says otherwise at a step."""
    theirs, equal = scores_of(b), set[float]()
    for key, points in scores_of(a).items():
        others = theirs.get(key, {})
        for step in (points.keys() & others.keys()) - {0}:
            if not np.isclose(points[step], others[step], rtol=1e-5, atol=1e-7):
                return 0
            equal.add(round(points[step], 7))
    return len(equal)


def _contradicts(new: ImportedRun, old: ImportedRun) -> bool:
    """Whether two readings of one log cannot both hold."""
    if disagree(new, old, DESIGN):
        return True
    rates = {run.provenance.facts.get("learning_rate") for run in (new, old)} - {None}
    if len(rates) > 1:
        return True
    theirs = scores_of(old)
    common = [key for key, points in scores_of(new).items() if points and theirs.get(key)]
    if not common:
        return True
    for key in common:
        points, others = scores_of(new)[key], theirs[key]
        both = points.keys() & others.keys()
        if len(both) < min(len(points), len(others)) or not all(
            np.isclose(points[step], others[step], rtol=1e-5, atol=1e-7) for step in both
        ):
            return True
    return False
