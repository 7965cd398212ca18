"""A configuration (B_p, n), the learning curve of one run of it, and work that is to be trained.

Shape legend: K evaluations.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from isocompute.errors import InputError

if TYPE_CHECKING:  # `isocompute --help` needs no numpy
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


UNITS = ("rollouts", "tokens", "gpu-hours")  # what a budget may be counted in
_UNCOUNTED = {
    "tokens": "a fit by tokens needs a `tokens` column on every row, but the run of {} lacks it; "
    "add it or fit by rollouts.",
    "gpu-hours": "a fit by GPU-hours needs the time of every run, but that of {} has none; if its "
    "log has times, say --set gpus=N, else fit by rollouts.",
}


class Configuration(NamedTuple):
    """Problems per batch B_p and rollouts per problem n; sorts, hashes and equals as (B_p, n).

    >>> str(Configuration(32, 256)), Configuration(32, 256).batch_size
    ('32 x 256', 8192)
    """

    problems_per_batch: int
    rollouts_per_problem: int

    @property
    def batch_size(self) -> int:
        """B = B_p n, in rollouts."""
        return self.problems_per_batch * self.rollouts_per_problem

    def __str__(self) -> str:
        return f"{self.problems_per_batch} x {self.rollouts_per_problem}"


class Groups(NamedTuple):
    """Shares of groups at the end of a run.

    Args:
        teach: of training groups whose rewards differ.
        all_right, all_wrong: of validation problems with `samples` answers, that all or none solve.
    """

    teach: float | None = None
    all_right: float | None = None
    all_wrong: float | None = None
    samples: int | None = None


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
        problem_set, split: what the score was measured on.
        arm: of a tidy file whose runs differ in recipe or data; "" where there is one.
        tokens_K, steps_K, gpu_hours_K: of training alone; None where they are not known.
        trials: independent 0/1 outcomes behind each score (problems times samples for avg@k,
            problems for best@k and worst@k); None where the source does not say.
        n_missing: rows of this run left out because their score was missing.
        n_repeated: rows left out because the run has another score at the same rollouts; if
            they are many, several runs probably share a name.
        failed_rules: health rules that the run failed, where the source has its steps.
        is_frozen: an adaptive sweep stopped the run because its n can no longer be best.
        recorded: settings of training that the source records, in the words of `recipe.RECORDED`
            and `recipe.TRAINED`.
        steps_assumed: a tracker's own step is taken for updates, and nothing beside it says so.
        gpus: of which its GPU-hours are counted; None where that is not known.
        device: "CPU" where its hours are of processors alone; "" for GPUs, and where nobody knows.
        timed_on: GPUs that it trained on, where its GPU-hours are scaled to another number.
        fixed_s: then the seconds of an update that are taken not to shrink with GPUs.
        clocked: its GPU-hours are those of a clock, which ran on while it was evaluated and saved.
        start_s: seconds in which its trainer starts and ends, once for each of its slices.
        trained_on: problems that it trained on, where the log counts its passes over them.
        micro_batch: completions per device and micro-step; None where it is not said.
        response_limit: tokens at which responses are cut; None where it is not said.
        rate_left: the learning rate at its end over the largest; None where it is not logged.
        score_range: what its scores could be where they were read, before they became 0..1.
        key: what the log calls its scores; "" where that is not known.
        groups: what is known of its groups at its end.
        seen: share of the validation prompts that it trained on, where nobody said that this is
            meant.
        validated_on: hash of the validation problems behind its scores; "" where it is not known.
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
    gpu_hours_K: FloatArray | None = None
    trials: int | None = None
    n_missing: int = 0
    n_repeated: int = 0
    failed_rules: tuple[str, ...] = ()
    is_frozen: bool = False
    recorded: Mapping[str, float | str] = field(default_factory=dict)
    steps_assumed: bool = False
    gpus: int | None = None
    device: str = ""
    timed_on: int | None = None
    fixed_s: float = 0.0
    clocked: bool = False
    start_s: float | None = None
    trained_on: int | None = None
    micro_batch: int | None = None
    response_limit: int | None = None
    rate_left: float | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    key: str = ""
    groups: Groups | None = None
    seen: float = 0.0
    validated_on: str = ""

    @property
    def configuration(self) -> Configuration:
        """(B_p, n)."""
        return Configuration(self.problems_per_batch, self.rollouts_per_problem)

    def position(self, unit: str = "rollouts") -> FloatArray:
        """Budget spent at each evaluation, shape (K,), in one of `UNITS`.

        Raises:
            InputError: another unit, or tokens or GPU-hours of a run that has none.
        """
        spent_K = self.spent(unit)
        if spent_K is None:
            who = (
                f"problems_per_batch={self.problems_per_batch}, "
                f"rollouts_per_problem={self.rollouts_per_problem}"
            )
            raise InputError(_UNCOUNTED[unit].format(who))
        return spent_K

    def spent(self, unit: str) -> FloatArray | None:
        """As `position`; None where it is not known."""
        if unit not in UNITS:
            raise InputError(
                f"unit must be one of {', '.join(UNITS)}, but got {unit!r}; choose one of them."
            )
        spent_K: FloatArray | None = getattr(self, f"{unit.replace('-', '_')}_K")
        return spent_K

    def until(self, limit: float) -> Curve:
        """The part of the curve up to so many rollouts; it may be empty."""
        keep_K = self.rollouts_K <= limit
        arrays = {name: value for name, value in vars(self).items() if name.endswith("_K")}
        return self.replace(**{k: v[keep_K] for k, v in arrays.items() if v is not None})

    def replace(self, **changes: Any) -> Curve:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


class Work(float):
    """Rollouts of a configuration in all, and the runs that train them.

    What a rollout takes changes along a run.

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
