"""Rollouts that are to be trained, and by what runs: what a rollout takes changes along a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from isocompute.domain.curve import Configuration


class Work(float):
    """Rollouts of a configuration in all, trained by runs that are alike.

    >>> Work(3000.0, runs=2, after=500.0).span
    (500.0, 2000.0)
    """

    runs: int  # that share them
    after: float  # rollouts that each of them has trained before

    def __new__(cls, rollouts: float, *, runs: int = 1, after: float = 0.0) -> Self:
        """Rollouts; of one new run unless said."""
        new = super().__new__(cls, rollouts)
        new.runs, new.after = runs, after
        return new

    @property
    def span(self) -> tuple[float, float]:
        """From how many rollouts to how many each of the runs goes."""
        return self.after, self.after + float(self) / self.runs


Effort = Mapping[Configuration, float]  # rollouts to train, by configuration: see `Work`
