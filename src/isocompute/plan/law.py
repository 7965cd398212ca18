"""What a plan needs of a fitted law; `laws.Fit` has it, and so may anything planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from isocompute.errors import RefusalError

if TYPE_CHECKING:
    from isocompute.importers.base import Curve

Notice = Mapping[str, str]
"""A warning: {"code", "message"}; codes are listed in docs/warnings.md."""


class LawReading(Protocol):
    """What a law says at one budget (`laws.LawPoint`)."""

    @property
    def rollouts_per_problem(self) -> float:
        """n*(C), not rounded."""

    @property
    def interval(self) -> Sequence[float] | None:
        """Of n*(C); None where it could not be estimated."""

    @property
    def confidence_set(self) -> Sequence[int]:
        """Values of n tested that cannot be told from the best."""

    @property
    def expected_regret(self) -> float | None:
        """Expected loss of score by following the law."""


class LawFit(Protocol):
    """A fitted law (`laws.Fit`)."""

    @property
    def document(self) -> Mapping[str, Any]:
        """The `fit --json` contract."""

    @property
    def curves(self) -> Sequence[Curve]:
        """The runs it was fitted on."""

    @property
    def support(self) -> tuple[float, float] | None:
        """Rollouts between which every n was compared."""

    @property
    def warnings(self) -> Sequence[Notice]:
        """About the fit."""

    def at(self, rollouts: float) -> LawReading:
        """The law at one budget."""

    def score_at(
        self, problems_per_batch: int, rollouts_per_problem: int, rollouts: float
    ) -> tuple[float, float, float] | None:
        """(score, low, high) of a configuration, or None where it is not known."""

    def stable_problems_per_batch(self, rollouts_per_problem: int) -> tuple[int, Sequence[Notice]]:
        """The smallest stable B_p at one n, and what to know about it."""


def tested(fit: LawFit) -> list[tuple[int, int]]:
    """(n, B_p) of every configuration, ascending."""
    return sorted({(c.rollouts_per_problem, c.problems_per_batch) for c in fit.curves})


def support_of(fit: LawFit) -> tuple[float, float]:
    """The common support.

    Raises:
        RefusalError: there is none.
    """
    if fit.support is None:
        raise RefusalError(
            "a plan needs budgets at which every n was trained, but the curves share none; "
            "extend the shorter runs.",
            ["every n of the sweep up to the same number of rollouts"],
        )
    return float(fit.support[0]), float(fit.support[1])
