"""What starts of a trainer take, by the clock of a study's own slices."""

from __future__ import annotations

from statistics import median

from isocompute.store.store import Store, StoredRun

_IN_PROCESS = ("local", "simulator")


def start_s(store: Store, run: StoredRun) -> float | None:
    """What each slice of a run takes beside updates and evaluations, where it starts a trainer.

    Runs of the embedded engine train side by side in one process: what one of them waits for is
    work of another.
    """
    idle = [] if run.spec["engine"] in _IN_PROCESS else store.idle_s(run.hash)
    return median(idle) if idle else None


def study_start_s(store: Store) -> float | None:
    """One figure for a study: the middle one of its runs; None: no slice has ended yet."""
    known = [each for run in store.runs() if (each := start_s(store, run)) is not None]
    return median(known) if known else None
