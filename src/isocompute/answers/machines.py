"""Times on other GPUs than those they were measured on, and a run's hours on a clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isocompute.answers.spending import apart
from isocompute.domain import Configuration, Curve, Notice, notice
from isocompute.domain.text import compact

if TYPE_CHECKING:
    from isocompute.answers.prescribe import Question


# Of the gaps between evaluations have one length: of a grid in log steps few do, and a run that was
# cut off has one of another length at its end.
_EVENLY = 0.5


def update_time(curves: Sequence[Curve]) -> tuple[float, float]:
    """Fixed seconds of an update, and GPU-seconds of work for each rollout; least squares, >= 0.

    Runs of one batch size cannot tell the two apart: all counts as work.

    Args:
        curves: that were timed on known GPUs.
    """
    from scipy.optimize import nnls

    timed: dict[tuple[int, int], list[float]] = {}  # seconds of an update
    for c in curves:
        if c.gpu_hours_K is not None and c.gpus and c.rollouts_K[-1] > 0:
            updates = float(c.rollouts_K[-1]) / c.configuration.batch_size
            took = float(c.gpu_hours_K[-1]) * 3600 / c.gpus / updates
            timed.setdefault((c.configuration.batch_size, c.gpus), []).append(took)
    if len(timed) < 2:
        work = [median(each) * gpus / batch for (batch, gpus), each in timed.items()]
        return 0.0, work[0] if work else 0.0
    took_T = np.array([median(one) for one in timed.values()])
    share_T = np.array([batch / gpus for batch, gpus in timed])
    (fixed, work), _ = nnls(np.stack([1 / took_T, share_T / took_T], axis=1), np.ones(len(took_T)))
    return float(fixed), float(work)


def on_gpus(curves: Sequence[Curve], gpus: int | None) -> list[Curve]:
    """Curves with the GPU-hours that their rollouts would take on so many GPUs.

    Args:
        curves: those that were timed on another number are scaled; times of a CPU say nothing of
            GPUs, and are left out; the others stay.
        gpus: None: as they are.
    """
    if gpus:
        curves = [c.replace(gpu_hours_K=None) if c.device == "CPU" else c for c in curves]
    fixed, work = update_time(curves) if gpus else (0.0, 0.0)
    out = []
    for c in curves:
        if gpus and c.gpus not in (None, gpus) and c.gpu_hours_K is not None and fixed + work > 0:
            done = work * c.configuration.batch_size
            share = (fixed * gpus + done) / (fixed * (c.gpus or gpus) + done)
            hours_K = c.gpu_hours_K * share
            c = c.replace(gpu_hours_K=hours_K, gpus=gpus, timed_on=c.gpus, fixed_s=fixed)
        out.append(c)
    return out


def scaled_notices(q: Question, chosen: Configuration) -> list[Notice]:
    """That the times of a plan are of another number of GPUs."""
    found = q.price.origin.get("rollouts_per_gpu_hour") == "sweep"
    return times_scaled(_runs(q, chosen), q.gpus) if found else []


def times_scaled(curves: Sequence[Curve], gpus: int | None) -> list[Notice]:
    """That times are of another number of GPUs than these, or of nobody knows how many."""
    runs = [c for c in curves if c.gpu_hours_K is not None]
    if gpus is None or not runs:
        return []
    how = "all of an update is taken to be shared"
    if all(c.gpus is None for c in runs):
        known = "a number of GPUs that is not known"
        return [notice("gpus_scaled", known=known, gpus=gpus, how=how)]
    of = Counter((c.timed_on, c.fixed_s) for c in runs if c.timed_on)
    if not of:
        return []
    (timed_on, fixed), _ = of.most_common(1)[0]
    if fixed > 0:
        how = f"the {hours_words(fixed / 3600)} that an update takes whatever its batch are " \
              "taken to stay, and the rest to be shared"  # fmt: skip
    return [notice("gpus_scaled", known=gpus_words(timed_on or 0), gpus=gpus, how=how)]


def _runs(q: Question, chosen: Configuration) -> list[Curve]:
    """The runs with times of a configuration; of one that nobody ran, all."""
    timed = [c for c in q.fit.curves if c.gpu_hours_K is not None]
    return [c for c in timed if c.configuration == chosen] or timed


def wall_clock(
    q: Question, chosen: Configuration, gpu_hours: float | None
) -> dict[str, float] | None:
    """`gpus` and `hours` of a run; None where the one or the other is not known.

    GPUs are those of the budget, else those of most runs of the configuration.
    """
    known = Counter(c.gpus for c in _runs(q, chosen) if c.gpus)
    gpus = q.gpus or (known.most_common(1)[0][0] if known else None)
    return None if gpus is None or gpu_hours is None else {"gpus": gpus, "hours": gpu_hours / gpus}


class Every(NamedTuple):
    """Evaluations at `first`, `first + steps`, ..."""

    steps: int
    first: int


def evaluated_every(curves: Sequence[Curve]) -> Every | None:
    """The updates from one evaluation of some runs to the next; None where they come unevenly."""
    step_RK = [np.unique(np.rint(c.steps_K)).astype(int) for c in curves if c.steps_K is not None]
    gaps = Counter(int(gap) for step_K in step_RK for gap in np.diff(step_K))
    steps, times = max(gaps.items(), key=lambda one: one[1], default=(0, 0))
    if times < max(2, _EVENLY * gaps.total()):
        return None
    offsets = Counter(int(step) % steps for step_K in step_RK for step in step_K[step_K > 0])
    return Every(steps, max(offsets, key=lambda one: offsets[one]))


def cadence(curves: Sequence[Curve]) -> dict[Configuration, int]:
    """That of each configuration whose times hold evaluations: a study keeps those of its grid."""
    runs = defaultdict[Configuration, list[Curve]](list)
    for c in curves:
        if c.clocked:
            runs[c.configuration].append(c)
    return {c: every.steps for c, of in runs.items() if (every := evaluated_every(of))}


def device_of(curves: Sequence[Curve]) -> str:
    """Whose the hours of curves are, where all agree."""
    found = {c.device for c in curves if c.gpu_hours_K is not None}
    return found.pop() if len(found) == 1 else ""


def doubt_words(found: Mapping[str, Any]) -> str:
    """How far off a rate of the runs may be: "within 12%", or why nobody knows."""
    if found.get("off") is not None:
        return f"within {max(found['off'], 0.01):.0%}"
    beyond = {"batches": "at a batch not timed", "runs": "beyond your runs",
              "n": "one rate for all n"}  # fmt: skip
    return beyond.get(str(found.get("beyond")), "error unknown")


def gpus_words(gpus: int) -> str:
    """A number of GPUs."""
    return f"{gpus} GPU{'s' * (gpus != 1)}"


def clock_words(d: Mapping[str, Any]) -> str:
    """Time and GPUs of a plan: "19 days on 4 GPUs"; "" where they are not known."""
    if not (wall := d.get("wall")):
        return ""
    cost = d["cost"]
    most = "up to " * apart((cost.get("at_least") or {}).get("gpu_hours"), cost["gpu_hours"])
    return f"{most}{hours_words(wall['hours'])} on {gpus_words(wall['gpus'])}"


def hours_words(hours: float) -> str:
    """A time in its own unit, to two digits.

    >>> [hours_words(h) for h in (455, 30, 1.5, 0.25, 0.001)]
    ['19 days', '30 hours', '1.5 hours', '15 minutes', '3.6 seconds']
    """
    units = ((36.0, 24.0, "days"), (1.0, 1.0, "hours"), (1 / 60, 1 / 60, "minutes"))
    fits = ((each, name) for least, each, name in units if hours >= least)
    each, name = next(fits, (1 / 3600, "seconds"))
    said = compact(float(f"{hours / each:.2g}"))
    return f"{said} {name.removesuffix('s') if said == '1' else name}"
