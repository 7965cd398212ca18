"""Hours that runs of a study trained, and on how many GPUs.

Shape legend: K updates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute.store.store import Store, StoredRun
from isocompute.study.spec import gpus_asked


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


def gpu_hours_of(store: Store, run: StoredRun) -> NDArray[np.float64] | None:
    """GPU-hours of the same; a worker without GPUs counts as one."""
    took = trained_s(store, run)
    return None if took is None else took * (gpus_of(run) or 1) / 3600


def gpus_of(run: StoredRun) -> int | None:
    """GPUs that a run trains on, where its engine is told how many."""
    return gpus_asked(run.spec["engine"], run.spec.get("engine_options") or {})


def is_on_cpu(run: StoredRun) -> bool:
    """Whether it is known to train on processors alone, as the local engine unless told."""
    return run.spec["engine"] in ("local", "trl") and gpus_of(run) is None
