"""Rollouts that are to be trained, and by what runs: what a rollout takes changes along a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

from isocompute.domain.curve import Configuration


class Work(float):
    """Rollouts of a configuration in all, and the runs that train them.

    >>> Work(3000.0, runs=2, after=500.0).spans
    {(500.0, 2000.0): 2}
    >>> Work.between([(0.0, 2000.0), (500.0, 2000.0)])
    3500.0
    """

    spans: Mapping[tuple[float, float], int]  # from and to how many rollouts how many runs go
    starts: int  # of the trainer, at least

    def __new__(
        cls, rollouts: float, *, runs: int = 1, after: float = 0.0, starts: int | None = None
    ) -> Self:
        """Rollouts; of one new run unless said, or of runs that are alike."""
        new = super().__new__(cls, rollouts)
        new.spans = {(after, after + float(rollouts) / runs): runs}
        new.starts = runs if starts is None else starts
        return new

    @classmethod
    def of(cls, rollouts: float) -> Self:
        """Work as it is; rollouts alone as one new run."""
        return rollouts if isinstance(rollouts, cls) else cls(rollouts)

    @classmethod
    def between(cls, runs: Iterable[tuple[float, float]]) -> Self:
        """What runs train that go from so many rollouts to so many; from its end none goes on."""
        spans = Counter(run for run in runs if run[1] > run[0])
        new = cls(sum(many * (to - begun) for (begun, to), many in spans.items()))
        new.spans, new.starts = spans, spans.total()
        return new


Effort = Mapping[Configuration, float]  # rollouts to train, by configuration: see `Work`
