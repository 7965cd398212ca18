"""What rollouts cost by configuration, as a study file says it: large batches cost less each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from isocompute.allocation import Allocation, Rates


@dataclass(frozen=True, kw_only=True)
class BatchRate:
    """Rates of one configuration.

    Args:
        problems_per_batch, rollouts_per_problem: the configuration.
        rollouts: of the run that they are the mean of; None: any.
        tokens_per_rollout, rollouts_per_gpu_hour: as in `Rates`; None: the study's own.
    """

    problems_per_batch: int
    rollouts_per_problem: int
    rollouts: float | None = None
    tokens_per_rollout: float | None = None
    rollouts_per_gpu_hour: float | None = None


@dataclass(frozen=True, kw_only=True)
class RatesByBatch:
    """Rates that hold for some configurations, and what else a clock has shown.

    Args:
        known: of each configuration.
        of_runs: of what is left of runs, by hash; they go before.
        gpus: that each run has, where its engine is not told how many; None: not known.
        gpu_hours_per_start: what a start of the trainer takes; None: not known.
        evaluations_timed: the GPU-hours hold evaluations already.
    """

    known: Sequence[BatchRate] = ()
    of_runs: Mapping[str, BatchRate] = field(default_factory=dict)
    gpus: int | None = None
    gpu_hours_per_start: float | None = None
    evaluations_timed: bool = False

    def at(self, allocation: Allocation, usual: Rates, run: str = "") -> Rates:
        """Of a run, else of the nearest batch that is known, there of the nearest in length."""
        if run in self.of_runs:
            return _filled(usual, self.of_runs[run])
        if not self.known:
            return usual

        def distance(one: BatchRate) -> tuple[float, bool, float]:
            batch = one.problems_per_batch * one.rollouts_per_problem
            other = one.rollouts_per_problem != allocation.rollouts_per_problem
            length = one.rollouts or allocation.rollouts
            return (abs(math.log(batch / allocation.batch_size)), other,
                    abs(math.log(length / allocation.rollouts)))  # fmt: skip

        return _filled(usual, min(self.known, key=distance))


def _filled(usual: Rates, one: BatchRate) -> Rates:
    said = {name: getattr(one, name) for name in ("tokens_per_rollout", "rollouts_per_gpu_hour")}
    return replace(usual, **{name: value for name, value in said.items() if value is not None})
