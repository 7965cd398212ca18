"""Health of the runs of a study, from its records.

Shape legend: K steps, Q problems of one batch.
"""

from __future__ import annotations

import numpy as np

from isocompute.health import Finding, Thresholds, check_arrays
from isocompute.store.findings import dead_share
from isocompute.store.store import Steps, Store, StoredRun


def steps_health(steps: Steps, thresholds: Thresholds | None = None) -> list[Finding]:
    """Findings of one run. Reward and dead groups come from the counts, whatever was logged."""
    columns = dict(steps.health)
    columns["reward"] = np.array([
        s.sum() / n.sum() if n.sum() else np.nan
        for s, n in zip(steps.successes, steps.judged, strict=True)
    ])
    columns["zero_variance_share"] = np.array([
        dead_share(s, n, steps.objective) if s.size else np.nan
        for s, n in zip(steps.successes, steps.judged, strict=True)
    ])
    ppo = steps.objective == "ppo"
    columns["groups"] = np.array([1 if ppo else len(s) for s in steps.successes])
    return check_arrays(steps.step_K, columns, thresholds)


def study_health(store: Store) -> dict[str, list[Finding]]:
    """Findings of every run by its hash; a healthy run has an empty list.

    Findings are kept with the run; steps are read only where an older version wrote it.
    """
    return {run.hash: run_health(store, run) for run in store.runs()}


def run_health(store: Store, run: StoredRun) -> list[Finding]:
    """Findings of one run, as in `study_health`."""
    return steps_health(store.steps(run.hash)) if run.findings is None else run.findings


def failed_rules(store: Store, run: StoredRun) -> tuple[str, ...]:
    """Codes of the health rules that a run failed (warnings left out), in order."""
    return tuple(sorted({f.code for f in run_health(store, run) if f.severity == "failure"}))
