"""What is judged, behind one face: the estimator that stood before, and the model.

Shape legend: D draws, J configurations, F values of n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from isocompute.domain import Configuration, Curve
from isocompute.errors import IsocomputeError

Key = tuple[int, int]  # (B_p, n)


class Choice(NamedTuple):
    """What a plan names: a configuration, its score, the 95% interval of that score."""

    configuration: Key
    score: float
    low: float
    high: float


class BestN(NamedTuple):
    """The best n as a continuous quantity, with an interval."""

    n: float
    low: float
    high: float


class Rise(NamedTuple):
    """Whether a rise of n* is claimed, and its one-sided 95% bound in octaves."""

    claimed: bool
    bound: float


class Answers(Protocol):
    """What one fitted sweep says; None where it says nothing. Levels are shares, 0.90."""

    verdict: str  # "ok", "caution", "stop"

    def chosen(self, budget: float) -> Choice | None:
        """The plan at a budget; where the verdict is stop, what the draws would choose."""

    def refused(self, budget: float) -> bool:
        """Whether a user would get no plan there."""

    def n_star(self, budget: float, level: float) -> BestN | None:
        """The best n inside the n tested."""

    def p_best(self, budget: float) -> Mapping[Key, float]:
        """Chance of each tested configuration to be the best."""

    def curve_interval(
        self, configuration: Key, budget: float, level: float
    ) -> tuple[float, float] | None:
        """Interval for the mean score of a configuration, tested or beside a tested one."""

    def rise(self) -> Rise:
        """The claim of a rise over the budgets compared."""


class Adapter(Protocol):
    """An estimator under its name."""

    name: str

    def fit(self, curves: Sequence[Curve], seed: int) -> Answers:
        """Fit one sweep; an `IsocomputeError` where it gives no fit at all."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The hierarchical model, its answers read off the draws."""

    name: str = "model"
    draws: int = 400

    def fit(self, curves: Sequence[Curve], seed: int) -> Answers:
        """Draws of the posterior."""
        from isocompute.model import fit_posterior

        return ModelAnswers(fit_posterior(curves, draws=self.draws, seed=seed))


class ModelAnswers:
    """Functionals of one array of draws."""

    verdict = "ok"

    def __init__(self, posterior: Any) -> None:
        self.posterior = posterior
        self.keys = [tuple(c) for c in posterior.configurations]
        self._scores: dict[float, np.ndarray] = {}

    def score_DJ(self, budget: float) -> np.ndarray:
        """Score of every tested configuration in every draw."""
        if budget not in self._scores:
            at = np.array([np.log10(budget)])
            self._scores[budget] = self.posterior.scores(at)[:, :, 0]
        return self._scores[budget]

    def _beside(self, key: Key, budget: float) -> np.ndarray:
        """Draws of a configuration; of one that was not tested, the smooth part."""
        if key in self.keys:
            return self.score_DJ(budget)[:, self.keys.index(key)]
        at, log2_n = np.array([np.log10(budget)]), np.array([np.log2(key[1])])
        drawn: np.ndarray = self.posterior.smooth_scores(float(key[0]), log2_n, at)[:, 0, 0]
        return drawn

    def candidates(self) -> list[Key]:
        """What a plan may name: with one or two n, their neighbours too."""
        n = sorted({n for _, n in self.keys})
        if len(n) > 2:
            return self.keys
        near = {(b, m) for b, _ in self.keys for m in (max(n[0] // 2, 2), n[-1] * 2)}
        return sorted({*self.keys, *near})

    def chosen(self, budget: float) -> Choice:
        """Largest expected score."""
        drawn = {key: self._beside(key, budget) for key in self.candidates()}
        best = max(drawn, key=lambda key: float(drawn[key].mean()))
        low, high = np.quantile(drawn[best], (0.025, 0.975))
        return Choice(best, float(drawn[best].mean()), float(low), float(high))

    def refused(self, budget: float) -> bool:  # noqa: ARG002 (a verdict is of the whole sweep)
        """Where the verdict is stop."""
        return self.verdict == "stop"

    def log2_best_D(self, budget: float) -> np.ndarray:
        """log2 n of the best n in every draw, inside the n tested at the best B_p."""
        at = np.array([np.log10(budget)])
        of_draw_D = np.array([b for b, _ in self.keys])[self.score_DJ(budget).argmax(axis=1)]
        out_D = np.empty(len(of_draw_D))
        for b_p in np.unique(of_draw_D):
            log2_n = np.log2([n for b, n in self.keys if b == b_p])
            grid_F = np.arange(log2_n.min(), log2_n.max() + 1e-9, 0.125)
            mine_D = of_draw_D == b_p
            score_DF = self.posterior.smooth_scores(float(b_p), grid_F, at)[mine_D, :, 0]
            out_D[mine_D] = refined_peak(grid_F, score_DF)
        return out_D

    def n_star(self, budget: float, level: float) -> BestN:
        """Median and quantiles of the best n of the draws."""
        log2_D = self.log2_best_D(budget)
        low, mid, high = 2 ** np.quantile(log2_D, ((1 - level) / 2, 0.5, (1 + level) / 2))
        return BestN(float(mid), float(low), float(high))

    def p_best(self, budget: float) -> dict[Key, float]:
        """Share of the draws in which each is the argmax."""
        score_DJ = self.score_DJ(budget)
        count_J = np.bincount(score_DJ.argmax(axis=1), minlength=len(self.keys))
        return dict(zip(self.keys, (count_J / len(score_DJ)).tolist(), strict=True))

    def curve_interval(
        self, configuration: Key, budget: float, level: float
    ) -> tuple[float, float]:
        """Quantiles of its draws."""
        drawn_D = self._beside(configuration, budget)
        low, high = np.quantile(drawn_D, ((1 - level) / 2, (1 + level) / 2))
        return float(low), float(high)

    def rise(self) -> Rise:
        """From the draws of the best n at both ends of the budgets that all were compared at."""
        low = float(10 ** np.max(self.posterior.first_J))
        high = float(10 ** np.min(self.posterior.last_J))
        bound = float(np.quantile(self.log2_best_D(high) - self.log2_best_D(low), 0.05))
        return Rise(bound > 0, bound)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The model as its users see it: plans, verdicts, intervals that the back-test widens."""

    name: str = "answers"
    draws: int = 400

    def fit(self, curves: Sequence[Curve], seed: int) -> Answers:
        """A fit of `isocompute.answers`."""
        from isocompute.answers import fit_sweep

        return ShownAnswers(fit_sweep(list(curves), draws=self.draws, seed=seed))


class ShownAnswers(ModelAnswers):
    """Answers from where a user reads them; those of the draws where there is no plan."""

    def __init__(self, fit: Any) -> None:
        super().__init__(fit.posterior)
        self.fit = fit
        self._plans: dict[float, Any] = {}

    @property
    def verdict(self) -> str:  # type: ignore[override]
        """Of the whole fit."""
        return str(self.fit.verdict.level)

    def score_DJ(self, budget: float) -> np.ndarray:
        """Draws as the answers have them: wider beyond the data where the back-test says so."""
        if budget not in self._scores:
            self._scores[budget] = self.fit.scores_at(budget)
        return self._scores[budget]

    def _beside(self, key: Key, budget: float) -> np.ndarray:
        drawn: np.ndarray = self.fit.scores_of([Configuration(*key)], budget)[:, 0]
        return drawn

    def _plan(self, budget: float) -> Any:
        from isocompute.answers import plan_budget

        if budget not in self._plans:
            self._plans[budget] = plan_budget(self.fit, budget)
        return self._plans[budget]

    def refused(self, budget: float) -> bool:
        """Whether `plan` gives none."""
        return self._plan(budget).allocation is None

    def chosen(self, budget: float) -> Choice:
        """What `plan` says; where it refuses, the largest expected score of the draws."""
        plan = self._plan(budget)
        if plan.allocation is None:
            return super().chosen(budget)
        low, high = plan.document["predicted_score_interval"]
        key = (plan.allocation.problems_per_batch, plan.allocation.rollouts_per_problem)
        return Choice(key, plan.document["predicted_score"], low, high)

    def rise(self) -> Rise:
        """The claim of the fit."""
        return Rise(bool(self.fit.rise.claimed), float(self.fit.rise.lower_bound))


def refined_peak(grid_F: np.ndarray, score_DF: np.ndarray) -> np.ndarray:
    """Where each row peaks: a parabola through the best point and its neighbours."""
    top_D = score_DF.argmax(axis=1)
    inner_D = np.clip(top_D, 1, max(len(grid_F) - 2, 1))
    if len(grid_F) < 3:
        return grid_F[top_D]
    rows = np.arange(len(score_DF))
    left, mid, right = (score_DF[rows, inner_D + i] for i in (-1, 0, 1))
    bend = left - 2 * mid + right
    shift = np.where(bend < 0, (left - right) / (2 * np.minimum(bend, -1e-300)), 0.0)
    refined: np.ndarray = grid_F[inner_D] + np.clip(shift, -1, 1) * (grid_F[1] - grid_F[0])
    at_edge = (top_D == 0) | (top_D == len(grid_F) - 1)
    return np.where(at_edge, grid_F[top_D], refined)


ADAPTERS: Mapping[str, Adapter] = {
    "answers": Shown(),
    "model": Model(),
}
REFUSALS = (IsocomputeError,)

__all__ = [
    "ADAPTERS", "REFUSALS", "Adapter", "Answers", "BestN", "Choice", "Configuration", "Model",
    "Rise", "Shown",
]  # fmt: skip
