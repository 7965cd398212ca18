"""What every importer returns: learning curves of runs that others trained."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One run's scores under one metric on one problem set.

    Args:
        problems_per_batch, rollouts_per_problem: the configuration.
        run: name of the run (data, never a path).
        seed: None where it is not known.
        rollouts_K: cumulative training rollouts, ascending, >= 0.
        score_K: finite scores in 0..1.
        metric: "avg@4", "best@4", ...; "" where the source does not name it.
        problem_set, split: on what it was measured.
        arm: of a tidy file whose runs differ in recipe or data; "" where there is one.
        tokens_K, steps_K: None where they are not known.
        trials: independent 0/1 outcomes behind each score (problems times samples for avg@k,
            problems for best@k and worst@k); None where the source does not say.
        n_missing: rows of this run left out because their score was missing.
        n_repeated: rows at rollouts that this run has another score for; nobody's run, where
            they are many, but several under one name.
        failed_rules: health rules that the run failed, where the source has its steps.
    """

    problems_per_batch: int
    rollouts_per_problem: int
    run: str
    rollouts_K: FloatArray
    score_K: FloatArray
    seed: int | None = None
    metric: str = ""
    problem_set: str = ""
    split: str = "validation"
    arm: str = ""
    tokens_K: FloatArray | None = None
    steps_K: FloatArray | None = None
    trials: int | None = None
    n_missing: int = 0
    n_repeated: int = 0
    failed_rules: tuple[str, ...] = ()

    def replace(self, **changes: Any) -> Curve:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)
