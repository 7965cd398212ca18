"""The validated sweep: what to run, within which limits, in which slices of budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isocompute.allocation import Rates
from isocompute.errors import InputError
from isocompute.study.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run may use before it is stopped and marked failed.

    Args:
        wall_s: seconds over all attempts of a run; None: no limit.
        memory_gb: resident memory of the worker process, in 1e9 bytes; None: no limit.
        retries: how often a run whose process died is started again without having committed
            anything in between.

    Raises:
        InputError: if a limit is not finite and > 0, or retries is negative.
    """

    wall_s: float | None = None
    memory_gb: float | None = None
    retries: int = 2

    def __post_init__(self) -> None:
        for name in ("wall_s", "memory_gb"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(
                    f"limit `{name}` must be finite and > 0, or none, but got {value!r}; "
                    "correct the limits."
                )
        if self.retries < 0:
            raise InputError(
                f"limit `retries >= 0` must hold, but got {self.retries!r}; correct the limits."
            )


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that `run_study` needs.

    Args:
        name: shown to people; data, never a path.
        runs: at least one, no two with the same identity.
        limits: per run.
        slices: fractions of each run's steps, ascending, the last one 1. All runs finish a
            slice before any run starts the next, so that an interrupted sweep is already a
            usable one at a smaller budget. Nothing is ever pruned.
        rates: what a rollout costs, where it is known.
        source: the validated content of the study file, kept with the records.

    Raises:
        InputError: if it holds no run, a run twice, or slices that do not ascend to 1.
    """

    name: str
    runs: Sequence[RunSpec] = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    slices: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0)
    rates: Rates = field(default_factory=Rates)
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", tuple(self.runs))
        object.__setattr__(self, "slices", tuple(float(s) for s in self.slices))
        if not self.runs:
            raise InputError(
                f"study {self.name!r} must hold at least 1 run, but its grid is empty; "
                "raise max_batch or the budget."
            )
        seen: dict[str, RunSpec] = {}
        for spec in self.runs:
            if spec.hash in seen:
                allocation, other = spec.allocation, seen[spec.hash].arm
                same = "".join(
                    f" ({word} {other[word]!r} and {name!r} say the same)"
                    for word, name in spec.arm.items() if other.get(word, name) != name
                )
                raise InputError(
                    "no run may occur twice in a study, but problems_per_batch="
                    f"{allocation.problems_per_batch}, rollouts_per_problem="
                    f"{allocation.rollouts_per_problem}, seed={spec.seed} does{same}; "
                    "drop the repeated seed, recipe or problem set."
                )
            seen[spec.hash] = spec
        ascending = all(a < b for a, b in zip((0.0, *self.slices), self.slices, strict=False))
        if not self.slices or not ascending or self.slices[-1] != 1.0:
            raise InputError(
                "`slices` must be ascending fractions in (0, 1] that end at 1, but got "
                f"{list(self.slices)}; write for example [0.25, 0.5, 1]."
            )

    @property
    def rollouts(self) -> int:
        """Training rollouts of all runs together, evaluation apart."""
        return sum(spec.allocation.rollouts for spec in self.runs)

    @property
    def evaluation_rollouts(self) -> int:
        """Rollouts that the evaluations of all runs draw."""
        return sum(spec.evaluations * spec.evaluation_rollouts for spec in self.runs)

    def slice_steps(self, steps: int) -> tuple[int, ...]:
        """Steps at which a run of `steps` steps hands over to the others, ascending."""
        return tuple(sorted({max(1, int(steps * s)) for s in self.slices} | {steps}))
