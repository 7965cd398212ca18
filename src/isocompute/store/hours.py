"""Hours that runs of a study trained, and on how many GPUs.

Shape legend: K updates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute.store.store import Store, StoredRun
from isocompute.study.spec import gpus_asked, on_cpu


def trained_s(store: Store, run: StoredRun) -> NDArray[np.float64] | None:
    """Seconds of training by updates done, evaluations apart; None where no time was stored.

    What the simulator takes is nobody's price.
    """
    if run.spec["engine"] == "simulator":
        return None
    steps = store.steps(run.hash)
    if not len(steps.step_K) or not (steps.wall_s_K > 0).any():
        return None
    took = np.zeros(int(steps.step_K.max()) + 1)
    took[steps.step_K] = steps.wall_s_K
    return np.asarray(np.cumsum(took))


def gpu_hours_of(
    store: Store, run: StoredRun, usual: int | None = None
) -> NDArray[np.float64] | None:
    """GPU-hours of the same; a worker without GPUs counts as one.

    None of a command that nobody gave GPUs: its own are not known.
    """
    took, gpus = trained_s(store, run), gpus_of(store, run, usual)
    if took is None or (gpus is None and run.spec["engine"] == "command"):
        return None
    return took * (gpus or 1) / 3600


def tested_s(store: Store, run: StoredRun) -> NDArray[np.float64] | None:
    """Seconds of evaluations by updates done, of a command whose log tells them.

    It evaluates as often as it does, and the study keeps those of its grid: a plan's run pays for
    all of them. Of other engines a study says how often.
    """
    if run.spec["engine"] != "command":
        return None
    found = store.evaluations(run.hash)
    if not (found.wall_s_K > 0).any():
        return None
    took = np.bincount(found.step_K, found.wall_s_K, run.steps_done + 1)
    return np.asarray(np.cumsum(took))


def gpus_of(store: Store, run: StoredRun, usual: int | None = None) -> int | None:
    """GPUs that a run trains on, where its engine, or else `rates.gpus`, says how many.

    Args:
        usual: where neither says it.
    """
    asked = gpus_asked(run.spec["engine"], run.spec.get("engine_options") or {})
    if asked is None and not is_on_cpu(run):
        rates = (store.info().get("source") or {}).get("rates") or {}
        return rates.get("gpus") or usual
    return asked


def is_on_cpu(run: StoredRun) -> bool:
    """Whether it is known to train on processors alone: see `on_cpu`."""
    return on_cpu(run.spec["engine"], run.spec.get("engine_options") or {})
