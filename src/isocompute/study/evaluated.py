"""How often the runs of a study are evaluated, and what that draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from isocompute.allocation import evaluation_index, even_evaluations, even_interval

# Problems of an evaluation, samples of each and evaluations of an octave, unless told otherwise.
PROBLEMS, SAMPLES, PER_OCTAVE = 300, 4, 3


class Evaluated(NamedTuple):
    """Evaluations of a study's runs.

    Args:
        draws: rollouts of one, of all validation sets.
        per_octave, first: the common grid (`allocation.evaluation_index`).
        share: of training, at most, that evaluations every so many steps draw; None: they keep to
            the grid.
    """

    draws: int
    per_octave: int
    first: int
    share: float | None = None

    @classmethod
    def of(cls, spec: Mapping[str, Any], share: float | None = None) -> Self:
        """Of a run as the store has it."""
        size = sum(int(each["size"]) for each in spec["validation"].values())
        return cls(int(spec["evaluation_samples"]) * size, int(spec["evaluations_per_octave"]),
                   int(spec["first_evaluation"]), share)  # fmt: skip

    def drawn(self, batch: int, after: float, to: float) -> int:
        """Rollouts that evaluations of a run draw that goes on from so many to its end."""
        done, steps = round(after / batch), math.ceil(to / batch - 1e-9)
        seen = self.times(batch, done, steps) if done else 0
        return max(self.times(batch, steps, steps) - seen, 0) * self.draws

    def times(self, batch: int, steps: int, last: int) -> int:
        """Evaluations of a run up to some step, 0 included; `last`: where it ends."""
        if self.share is not None:
            grid: dict[str, Any] = {"per_octave": self.per_octave, "first": self.first}
            every = even_interval(batch, steps, **grid, draws=self.draws, share=self.share)
            return even_evaluations(steps if steps == last else steps // every * every, every)
        return on_grid(batch, steps, last, per_octave=self.per_octave, first=self.first)


def on_grid(batch: int, steps: int, last: int, *, per_octave: int, first: int) -> int:
    """How often a run is evaluated up to some step, 0 included, and once more at its last."""

    def passed(step: int) -> int:
        return evaluation_index(step * batch, per_octave=per_octave, first=first)

    seen = 0
    for index in range(1, passed(steps) + 1):
        point = first * 2 ** ((index - 1) / per_octave)
        # A step may jump over several points of the grid: it is one evaluation.
        step = max(1, math.ceil(point / batch - 1e-9))
        seen += passed(step) == index
    apart = steps == last and passed(steps) == passed(steps - 1)
    return 1 + seen + apart
