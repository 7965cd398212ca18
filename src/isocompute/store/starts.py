"""What starts of a trainer take, by the clock of a study's own slices."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from isocompute.store.store import Store, StoredRun

_IN_PROCESS = ("local", "simulator")


class Starts(NamedTuple):
    """Worker seconds of one start, and of all so far."""

    each_s: float
    all_s: float


def start_s(store: Store, run: StoredRun) -> float | None:
    """What each slice of a run takes beside updates and evaluations, where it starts a trainer.

    Runs of the embedded engine train side by side in one process: what one of them waits for is
    work of another.
    """
    idle = [] if run.spec["engine"] in _IN_PROCESS else store.idle_s(run.hash)
    return median(idle) if idle else None


def study_starts(store: Store, runs: list[StoredRun]) -> Starts | None:
    """One figure for a study, the middle one of its runs; None: no slice has ended yet.

    A slice that did not end may have trained what was never committed: its start took what others
    did, or as long as it lasted.
    """
    known = [each for run in runs if (each := start_s(store, run)) is not None]
    if not known:
        return None
    each = median(known)
    trains = [run for run in runs if run.spec["engine"] not in _IN_PROCESS]
    took = sum(sum(store.idle_s(run.hash)) for run in trains)
    cut_off = (one for run in trains for one in store.idle_s(run.hash, ended=False))
    return Starts(each, took + sum(min(one, each) for one in cut_off))
