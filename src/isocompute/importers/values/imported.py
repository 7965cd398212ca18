"""What an importer hands over: runs that others trained, with everything that is known of them.

Shape legend: K points of one series; P validation problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from isocompute import __version__
from isocompute.errors import InputError
from isocompute.importers.values.reading import clean_text, sha256_of
from isocompute.importers.values.spent import Spent

_T = TypeVar("_T", bound=np.generic)
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

AGAIN = "name: a run of the same name stands before it in the chart"
SAMPLED = ("score: 500 rows are what run.history() samples of a longer run; run.scan_history() "
           "gives all")  # fmt: skip
COUNTED_BY = "rollouts: counted by {}, as mapped"
OF_CHECKPOINTS = "score: of its checkpoints, "  # begins the line of a run that has their results
TAKEN_ONCE = "num_iterations: taken as 1"
STOPPED = ": it counts up to its last score"  # ends the note of a run that its tracker calls failed
FROM_NAME = "from the name"  # how `inferred` says what a pattern found

# What tells runs of a sweep apart: B_p, n and the seed.
DESIGN = ("problems_per_batch", "rollouts_per_problem", "seed")

Estimator = Literal["mean", "unbiased", "bootstrap", "unknown"]

# The estimator that needs no word after the metric's name: avg@k is a mean whatever k is,
# best@k and worst@k are the unbiased ones that `metrics.score_from_counts` computes.
_PLAIN: dict[str, Estimator] = {"avg": "mean", "best": "unbiased", "worst": "unbiased"}
MAX_ERRORS_KEPT = 1_000


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a logged number estimates.

    Args:
        kind: "avg", "best", "worst", or another word of the log ("maj").
        samples: the k of avg@k; None where the log does not say.
        estimator: "mean" of the samples; "unbiased" (best@k, worst@k from at least k samples
            without replacement); "bootstrap" (verl's best@N and worst@N: with replacement, so
            1 success of 4 reads best@4 = 0.684); "unknown".
        variable: what is averaged, in the log's word: "acc", "reward", "score".
        core: the log presents it as its main number; others carry the variable in their label.

    Raises:
        InputError: on an estimator that is none of the four.
    """

    kind: str
    samples: int | None = None
    estimator: Estimator = "mean"
    variable: str = ""
    core: bool = True

    def __post_init__(self) -> None:
        if self.estimator not in get_args(Estimator):
            raise InputError(
                f"an estimator must be one of {', '.join(get_args(Estimator))}, but got "
                f"{self.estimator!r}; choose one of them."
            )

    @property
    def label(self) -> str:
        """Name under which curves carry it: different estimators never share a label.

        >>> Metric(kind="best", samples=4, estimator="bootstrap").label
        'best@4:bootstrap'
        """
        name = self.kind if self.samples is None else f"{self.kind}@{self.samples}"
        if not self.core and self.variable:
            name = f"{name}:{self.variable}"
        plain = _PLAIN.get(self.kind, "unknown")
        return name if self.estimator == plain else f"{name}:{self.estimator}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of one run on one problem set.

    Args:
        metric: what is estimated, and how.
        problem_set: the log's name of it, "" where there is none.
        split: "validation" or "train". A training score belongs to the rollouts drawn for
            that update, so to the policy before it.
        step_K: updates, ascending, unique.
        rollouts_K: cumulative training rollouts; NaN where the configuration is not known.
        tokens_K: cumulative generated training tokens; NaN where the log does not say.
        score_K: finite.
        n_missing: points left out because their score was NaN, infinite or null.
        key: what the log calls it; "" where that is not known.
    """

    metric: Metric
    problem_set: str
    split: str
    step_K: IntArray = field(repr=False)
    rollouts_K: FloatArray = field(repr=False)
    tokens_K: FloatArray = field(repr=False)
    score_K: FloatArray = field(repr=False)
    n_missing: int = 0
    key: str = ""

    @property
    def of(self) -> tuple[Metric, str, str]:
        """What its scores are of: metric, problem set and split."""
        return self.metric, self.problem_set, self.split


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Per-problem outcomes of one evaluation: successes out of the samples drawn.

    Args:
        step: updates before it.
        problem_set, split: what was evaluated.
        samples: k, the same for every problem.
        problem_P: an id per problem, a hash of its prompt and answer.
        successes_P: how many of k succeeded.
    """

    step: int
    problem_set: str
    split: str
    samples: int
    problem_P: tuple[str, ...] = field(repr=False)
    successes_P: IntArray = field(repr=False)


class UnclearError(InputError):
    """A log that may be read in two ways: stops an import also where bad files are passed over."""


class RowError(NamedTuple):
    """A row that was not used: file, line (or record) number from 1, and why."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a run came from, and what was decided about it.

    Args:
        path, sha256, size_bytes, format, version: the file as given, its hash and size, what it
            was read as, and this package's version.
        inferred: what was concluded rather than read, one line each.
        facts: settings that repetitions of a run share: model, learning_rate, ...
        score_range: what scores may be, as declared at the import; None: 0..1.
        evaluation_problems: how many problems an evaluation has, where scores are successes.
        s_per_step: mean seconds of an update, where the log has times.
        gpu_s_per_step: mean GPU-seconds of an update, where the log has time and GPUs.
        pace: (step, the mean seconds until then over those of all), where the log has them.
        clocked: those times hold evaluations and checkpoints.
        passes_per_step: passes over the training problems in an update, where the log has epochs.
        rates: the learning rate of its last row and the largest, where it is logged.
        micro_batch: completions per device and micro-step, where a configuration says it (TRL).
        alike: share of groups whose rewards were all alike at the end, where the log has it.
        unread: keys of the log that were not understood, the first ones.
        likely: those of them that may hold a score, the likeliest values first.
        beside_loss: those of them that stand in every row with a loss, a KL or a rate.
        begins: the first step of its rows, with scores or without; None where that is not known.
        trained: updates that its rows of training tell of; None where none does.
    """

    path: str
    sha256: str
    size_bytes: int
    format: str
    version: str
    inferred: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    score_range: tuple[float, float] | None = None
    evaluation_problems: int | None = None
    s_per_step: float | None = None
    gpu_s_per_step: float | None = None
    pace: tuple[tuple[int, float], ...] = ()
    clocked: bool = False
    passes_per_step: float | None = None
    rates: tuple[float, float] | None = None
    micro_batch: int | None = None
    alike: float | None = None
    unread: tuple[str, ...] = ()
    likely: tuple[str, ...] | None = None
    beside_loss: tuple[str, ...] = ()
    begins: int | None = None
    trained: int | None = None

    @property
    def candidates(self) -> tuple[str, ...]:
        """Keys that were not read and may hold a score; a study of an earlier version has all."""
        return self.unread if self.likely is None else self.likely


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """A run that others trained.

    Args:
        name: the log's name of it: data, never a path.
        problems_per_batch, rollouts_per_problem, steps: found configuration (steps as planned);
            None where the log does not say and no setting filled it.
        seed: None where it is not known.
        series: every metric that was understood.
        outcomes: per-problem outcomes, where the log has them.
        errors: the first rows that were not used; `n_errors` counts all of them.
        n_rows: rows read.
        notes: what a reader of the result should know, one line each.
        provenance: file, hash, version, and what was inferred.
        spent: what its updates took, for a log that goes on with it; no part of a record.
        own: words of its configuration that no list knows; two records may differ in them.
    """

    name: str
    problems_per_batch: int | None
    rollouts_per_problem: int | None
    steps: int | None
    seed: int | None
    series: tuple[Series, ...]
    outcomes: tuple[Outcomes, ...] = ()
    errors: tuple[RowError, ...] = ()
    n_errors: int = 0
    n_rows: int = 0
    notes: tuple[str, ...] = ()
    provenance: Provenance
    spent: Spent = field(default_factory=Spent, repr=False, compare=False)
    own: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def design(self) -> tuple[int | None, int | None, int | None]:
        """B_p, n and the seed."""
        return self.problems_per_batch, self.rollouts_per_problem, self.seed

    @property
    def last(self) -> int:
        """The last step with a score; 0 without any."""
        return max((int(s.step_K[-1]) for s in self.series if s.step_K.size), default=0)

    @property
    def concluded(self) -> tuple[str, ...]:
        """What was inferred, but for what the user's own pattern found."""
        return tuple(line for line in self.provenance.inferred if FROM_NAME not in line)

    def inferring(self, *lines: str) -> ImportedRun:
        """The run, with more that was concluded rather than read."""
        told = dict.fromkeys((*self.provenance.inferred, *lines))
        return replace(self, provenance=replace(self.provenance, inferred=tuple(told)))


class Errors:
    """Rows that were not used: the first ones kept, all of them counted."""

    def __init__(self, file: str) -> None:
        self.file = clean_text(file)
        self.kept: list[RowError] = []
        self.count = 0

    def add(self, line: int, reason: str) -> None:
        """Take one row that was not used."""
        self.count += 1
        if len(self.kept) < MAX_ERRORS_KEPT:
            self.kept.append(RowError(self.file, line, clean_text(reason)))

    def told(self, what: str = "rows") -> str:
        """How many were not used, and why the first was not."""
        return (f"{self.count} {what} were not used; the first: line {self.kept[0].line}: "
                f"{self.kept[0].reason}")  # fmt: skip


def distinct(values: NDArray[_T]) -> NDArray[_T]:
    """Values in order, each once; without the index numpy would load numpy.ma."""
    found: NDArray[_T] = np.unique(values, return_index=True)[0]
    return found


def disagree(one: object, other: object, names: Iterable[str]) -> bool:
    """Whether two that say these of a run differ in one that both say."""
    said = ((getattr(one, name), getattr(other, name)) for name in names)
    return any(None not in pair and pair[0] != pair[1] for pair in said)


def provenance_of(path: Path, source: str) -> Provenance:
    """Where a run came from."""
    return Provenance(
        path=clean_text(path), sha256=sha256_of(path),
        size_bytes=path.stat().st_size, format=source, version=__version__,
    )
