"""What a plan needs of a fitted law; `laws.Fit` has it, and so may anything planted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from isocompute.errors import RefusalError

if TYPE_CHECKING:
    from isocompute.domain import Curve

# Expected scores closer than this count as equal when the smallest B_p is looked for.
TIE = 0.002

Regrets = Mapping[tuple[int, int], float]
"""(B_p, n) -> mean over the draws of the score lost against the best configuration tested."""

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
        self,
        problems_per_batch: int,
        rollouts_per_problem: int,
        rollouts: float,
        chosen_from: Collection[tuple[int, int]] = (),
    ) -> tuple[float, float, float] | None:
        """(score, low, high), or None where not known; without luck if it was `chosen_from`."""

    def stable_problems_per_batch(self, rollouts_per_problem: int) -> tuple[int, Sequence[Notice]]:
        """The smallest stable B_p at one n, and what to know about it."""


@runtime_checkable
class ScoredFit(Protocol):
    """A law whose curves are known too (`laws.Fit`), so that n can be chosen by score."""

    @property
    def trend(self) -> int:
        """1 where n* is known to rise with the budget, -1 where to fall, else 0."""

    def expected_regrets(self, rollouts: float) -> Regrets:
        """Expected loss of score of every configuration tested."""

    def shares_ahead(self, rollouts: float) -> Mapping[tuple[int, int], float]:
        """Share of the draws in which each is at least as good as the best of them."""

    def gompertz_share(self, rollouts: float) -> float:
        """Share of the draws whose curves are Gompertz ones."""


def expected_regrets(fit: LawFit, rollouts: float) -> Regrets | None:
    """See `ScoredFit`; None where only a law is known."""
    return fit.expected_regrets(rollouts) if isinstance(fit, ScoredFit) else None


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


def smallest_stable(
    fit: LawFit,
    rollouts_per_problem: int,
    unhealthy: Mapping[tuple[int, int], str],
    regrets: Regrets | None = None,
) -> tuple[int, Sequence[Notice]]:
    """The smallest stable B_p at one n without a health failure.

    Args:
        fit: the law; knows which B_p reach the score of the best.
        rollouts_per_problem: n.
        unhealthy: (B_p, n) -> which health failures its runs had.
        regrets: of the budget; the B_p must then be within `TIE` of the best one there.

    Returns:
        B_p and what to know about it. Where every B_p tested at or above the one with a good
        score failed, that one, with warning `bp_unstable`.
    """
    n = rollouts_per_problem
    b_p, notes = fit.stable_problems_per_batch(n)
    here = {b: loss for (b, m), loss in (regrets or {}).items() if m == n}
    if here:
        b_p = min(b for b, loss in here.items() if loss <= min(here.values()) + TIE)
    if (b_p, n) not in unhealthy:
        return b_p, notes
    larger = [b for m, b in tested(fit) if m == n and b > b_p and (b, n) not in unhealthy]
    cause = unhealthy[(b_p, n)]
    if larger:
        text = f"B_p={b_p} at n={n} ended in {cause}; B_p={larger[0]} is the next that did not."
        return larger[0], [*notes, {"code": "bp_unhealthy", "message": text}]
    text = (
        f"B_p={b_p} at n={n} ended in {cause}, and no larger B_p was tested that did not; "
        "try a larger B_p or a smaller learning rate before relying on this plan."
    )
    return b_p, [*notes, {"code": "bp_unstable", "message": text}]
