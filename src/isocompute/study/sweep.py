"""The validated sweep: what to run, within which limits, in which slices of budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isocompute.allocation import Allocation, Rates
from isocompute.domain import Configuration
from isocompute.errors import InputError
from isocompute.study.adaptive import Bounds, Grid
from isocompute.study.rates import RatesByBatch
from isocompute.study.spec import RunSpec

# Of an adaptive sweep: its first look is at a 32nd of the budget, where the seven n of a planted
# sweep have cost 1% of the grid with three seeds; at a 16th they cost twice as much.
DOUBLING = tuple(2.0**-k for k in range(5, -1, -1))
# On an engine that takes minutes to start: it starts four times a run at most.
QUARTERED = (0.125, 0.25, 0.5, 1.0)


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
            usable one at a smaller budget.
        rates: what a rollout costs, where it is known.
        rates_by_batch: what it costs at some batches, where it was measured.
        adaptive: bounds of a sweep that looks at its curves after each slice and decides what to
            train next; None: every run goes to its end.
        rates_at: where learning rates are tried; None: at a batch of the grid.
        left_out: pairs that the file asks for and whose batch fits into no run.
        source: the validated content of the study file, kept with the records.

    Raises:
        InputError: if it holds no run, a run twice, or slices that do not ascend to 1; if it is
            adaptive with fewer than 2 configurations, or with several recipes or problem sets.
    """

    name: str
    runs: Sequence[RunSpec] = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    slices: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0)
    rates: Rates = field(default_factory=Rates)
    rates_by_batch: RatesByBatch = field(default_factory=RatesByBatch)
    adaptive: Bounds | None = None
    rates_at: Allocation | None = None
    left_out: tuple[Configuration, ...] = ()
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

        if self.adaptive is not None:
            self._check_adaptive()

    def _check_adaptive(self) -> None:
        first, configurations = self.runs[0], {configuration_of(s) for s in self.runs}
        if len(configurations) < 2:
            raise InputError(
                "an adaptive sweep must compare at least 2 configurations, but its grid holds "
                f"{len(configurations)}; add values of rollouts_per_problem."
            )
        if any((s.recipe, s.train.sha256) != (first.recipe, first.train.sha256)
               for s in self.runs):  # fmt: skip
            raise InputError(
                "an adaptive sweep must have one recipe and one problem set, so that curves can be "
                f"compared, but study {self.name!r} has several; make one study of each, or leave "
                "`adaptive` out."
            )
        self._check_spend()
        sets = sorted(first.validation)
        asked = self.adaptive.problem_set if self.adaptive else None
        if asked not in sets and not (asked is None and len(sets) == 1):
            raise InputError(
                "`adaptive.problem_set` must name a validation set, but got "
                f"{'none' if asked is None else repr(asked)} of {', '.join(sets)}; name one."
            )

    def _check_spend(self) -> None:
        """Refuse a bound that the first slice of every n would break."""
        grid = self.grid()
        spend = grid.bounds.spend
        if spend is not None and spend < (least := grid.first_slices):
            section = self.source.get("adaptive")
            said = section.get("spend") if isinstance(section, Mapping) else None
            more = f" ({said})" if isinstance(said, str) else ""
            raise InputError(
                "`adaptive.spend` must pay for the first slice of every n, "
                f"{least:,} rollouts for {len(grid.steps)} n, but got {spend:,.0f}{more}; write "
                f"spend: {least} or more, or list fewer n."
            )

    def grid(self) -> Grid:
        """What an adaptive sweep chooses from.

        Raises:
            InputError: if the study is not adaptive.
        """
        if self.adaptive is None:
            raise InputError(
                f"only an adaptive study has decisions, but {self.name!r} is none; write "
                "`adaptive: true` into its file."
            )
        steps = {configuration_of(s): s.allocation.steps for s in self.runs}
        seeds = len({s.seed for s in self.runs})
        return Grid(
            steps=steps, seeds=seeds, slices=self.slices, bounds=self.adaptive,
            first_evaluation=self.runs[0].first_evaluation,
        )  # fmt: skip

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


def configuration_of(spec: RunSpec) -> Configuration:
    """(B_p, n) of a run."""
    a = spec.allocation
    return Configuration(a.problems_per_batch, a.rollouts_per_problem)
