"""A study's records -> what the report shows of them.

Shape legend: K evaluations, P validation problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """Everything of a study that the report draws, as plain values.

    Args:
        name: of the study.
        runs: per run: run, problems_per_batch, rollouts_per_problem, seed, state, rollouts,
            evaluation_rollouts, tokens, wall_s, cost_usd, attempts.
        health: per metric name, per run: {"bp", "n", "run", "x": rollouts, "y": values}.
        landscapes: per budget: {"rollouts", "groups": [{"bp", "n", "samples", "problems",
            "counts": problems by number of successes 0..samples}]}.
        scores: per metric name: [{"bp", "n", "value", "interval", "n_runs"}] at `scores_at`.
        scores_at: rollouts at which `scores` compares.
        train_test: per configuration: {"bp", "n", "x", "train", "validation"}.
        difficulty: {"name", "samples", "counts"} of the base model, or None.
        provenance: versions, hashes, seeds, commands.
        warnings: {"code", "message"} rows of the study itself.
    """

    name: str
    runs: Sequence[Mapping[str, Any]] = ()
    health: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    landscapes: Sequence[Mapping[str, Any]] = ()
    scores: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    scores_at: float | None = None
    train_test: Sequence[Mapping[str, Any]] = ()
    difficulty: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[Mapping[str, str]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the page; provenance and warnings are written as words instead."""
        return {
            "name": self.name,
            "runs": list(self.runs),
            "health": dict(self.health),
            "landscapes": list(self.landscapes),
            "scores": dict(self.scores),
            "scores_at": self.scores_at,
            "train_test": list(self.train_test),
            "difficulty": self.difficulty,
        }


def study_view(study: Any) -> StudyView:
    """The view of a study: a `StudyView` as it is, or read from a store."""
    if isinstance(study, StudyView):
        return study
    return StudyView(name=str(study))
