"""What every engine promises, and the raw records that it hands over.

Shape legend: P validation problems; Q problems of one training batch.

Engines record raw outcomes only: successes out of `samples`, per problem. Scores are computed
downstream (`metrics`), so that a change of metric never needs a rerun.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import RunError

if TYPE_CHECKING:
    from isocompute.study import RunSpec

IntArray = NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class Unjudged:
    """Responses to one problem that the verifier failed to judge: they are no rewards of 0.

    Args:
        problem: index into the training or validation set.
        rollouts: how many.
        message: why the first of them was not judged, one line.
        response: what it said, the beginning of a long one.
    """

    problem: int
    rollouts: int
    message: str
    response: str = ""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One gradient update.

    Args:
        step: 1-based number of the update.
        rollouts: cumulative training rollouts after it (evaluation apart).
        tokens: cumulative generated training tokens after it.
        problem_Q: index into the training set of each problem of the batch.
        successes_Q: how many of `samples` rollouts succeeded, per problem.
        samples: rollouts per problem.
        health: numbers of this step under the names of `health.METRICS`; a number that the
            engine does not measure is absent, never 0.
        wall_s: seconds of this step, monotonic clock.
        unjudged: what the verifier failed on, at most one entry per problem.
    """

    step: int
    rollouts: int
    tokens: int
    problem_Q: IntArray
    successes_Q: IntArray
    samples: int
    health: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    unjudged: Sequence[Unjudged] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """One evaluation of one validation set.

    Args:
        step, rollouts, tokens: training position (cumulative; 0 before the first update).
        problem_set: name of the validation set.
        samples: k samples per problem.
        successes_P: how many of k succeeded, per problem, in the order of the set; with
            `samples` 1 also single outcomes of problems that are not known, as many for each.
        sampled_tokens: tokens that this evaluation itself drew (not in `tokens`).
        wall_s: seconds it took.
        sampled_rollouts: how many it drew, where that is more than `samples` per problem.
        unjudged: what the verifier failed on, at most one entry per problem, responses that were
            drawn again included.
    """

    step: int
    rollouts: int
    tokens: int
    problem_set: str
    samples: int
    successes_P: IntArray
    sampled_tokens: int = 0
    wall_s: float = 0.0
    sampled_rollouts: int | None = None
    unjudged: Sequence[Unjudged] = ()


class Sink(Protocol):
    """Where an engine's records go. Nothing is kept until a checkpoint commits it."""

    @property
    def wants_checkpoint(self) -> bool:
        """True when the runner wants to stop, or when much work is uncommitted.

        An engine that looks after each update and makes a checkpoint when it is true loses
        little to a stop or a crash; one that never looks is stopped at its next checkpoint.
        """

    def step(self, record: StepRecord) -> None:
        """Take one update's record."""

    def evaluation(self, record: EvaluationRecord) -> None:
        """Take one evaluation's record."""

    def reached(self, step: int) -> None:
        """Hear how far a trainer is whose records come later: told to people, and not kept."""

    def rewind(self, step: int) -> None:
        """Hear, before the first record, that a trainer went on from there, before where it stood.

        What was recorded after that step (-1: anything) gives way, at the next commit, to what is
        recorded from now on.
        """

    def checkpoint(self, step: int) -> AbstractContextManager[Path]:
        """A fresh folder for the engine's own files (safetensors, JSON).

        On a clean exit of the context everything since the last commit is committed with it in
        one transaction; where the last commit was only moments ago this may be left to the
        next checkpoint. Raises RunError if the run was lost to another runner, and
        `StopRequested` if the runner wants to stop: both after, or instead of, the commit.
        """


class StopRequested(Exception):
    """The runner asks the engine to end now; everything up to the last checkpoint is kept."""


class DivergedError(RunError):
    """Numbers of the policy or its gradient are no longer finite: another try ends the same."""


class Engine(Protocol):
    """One way to train. `name` is the word in the study file.

    An engine that takes minutes to start and everything that the machine has sets
    `whole_machine = True`: unless asked otherwise its runs are trained one at a time, in one
    slice (four, if the study is adaptive), and nothing is measured before them.

    An engine whose trainer lives in a Python of its own may have `check_installed(spec)`: it raises
    NotInstalledError where that Python lacks it. It is asked once, before the first attempt.

    One that may be unable to continue a run has `goes_on(spec)`: a study of slices needs it.

    One that trains what a person may not mean has `cautions(spec)`: lines, told before it starts.

    One whose trainer evaluates at other steps than the grid's may have `evaluations(spec)`: how
    often, step 0 included, in one slice. What a study will cost counts them.
    """

    name: str

    def check(self, spec: RunSpec) -> None:
        """Refuse, before any compute, whatever this engine cannot do.

        Raises:
            InputError: names the knob, its value, and what the engine supports.
        """

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Train from the start, or from the files of the checkpoint `resume`, to `spec.steps`.

        Evaluates at step 0 and after each step at which `spec.is_evaluated`, and checkpoints after
        each of these evaluations and at the end (and more often if it likes). Deterministic given
        the specification: a resumed run equals the uninterrupted one.
        """
