"""What is read off the draws of a sweep: every number from the same ones.

Shape legend: D draws, J configurations, X budgets, V budgets of the frontier's grid, F values of
n, P values of B_p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.answers.backtest import CUTS, Backtest, backtest
from isocompute.answers.best import (
    Ridge,
    as_good,
    choice,
    confidence_set,
    expected_regret,
    interval,
    log2_n_grid,
    probability_best,
    ridge,
)
from isocompute.answers.claims import Rise, rise, smallest_stable
from isocompute.answers.direction import direction
from isocompute.answers.frontier import Frontier, budget_grid, fit_frontier
from isocompute.domain import Configuration, Curve, Notice, notice
from isocompute.errors import InputError
from isocompute.model import Posterior, fit_posterior

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DRAWS = 400
REPORTED = 25  # budgets of the support at which the best n is said
# Draws of a back-test's fits: its figures are means over configurations and cuts, so half of the
# draws costs them a tenth of their standard error.
BACKTEST_DRAWS = 200
# Of a budget beyond the data by which draws are widened in full: what the first cut tests.
_TESTED_DISTANCE = -float(np.log10(CUTS[0]))


class Best(NamedTuple):
    """What is best at one budget.

    Attributes:
        x: the budget.
        rollouts_per_problem: the best n as a continuous quantity, inside the n tested.
        interval: one for it.
        probability: chance of being best, by n (all of its B_p together).
        expected_regret: score lost on average, by n (at its best B_p).
        as_good: n whose expected loss against the choice is below 0.002, the choice included.
        confidence_set: fewest n whose chances add up to the level.
        configuration: of largest expected score.
        score, score_interval: of that configuration.
        extrapolated: whether the budget lies outside those at which all were compared.
    """

    x: float
    rollouts_per_problem: float
    interval: tuple[float, float]
    probability: dict[int, float]
    expected_regret: dict[int, float]
    as_good: list[int]
    confidence_set: list[int]
    configuration: Configuration
    score: float
    score_interval: tuple[float, float]
    extrapolated: bool


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a sweep says, with how sure it is.

    Args:
        posterior: of its curves.
        setting: {"kind", "value"} as in the JSON.
        metric: name of the score.
        level: of all intervals.
        sources: where the curves came from.
        draws, seed: of the posterior.
        train: curves of the same runs on their training batches, where they are known.
    """

    posterior: Posterior
    setting: dict[str, Any]
    metric: str
    level: float
    sources: tuple[str, ...] = ()
    draws: int = DRAWS
    seed: int = 0
    train: tuple[Curve, ...] = ()

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The runs used."""
        return self.posterior.curves

    @property
    def unit(self) -> str:
        """Of every x: "rollouts" or "tokens"."""
        return self.posterior.unit

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """J of them, sorted by (B_p, n)."""
        return self.posterior.configurations

    @cached_property
    def _n_J(self) -> IntArray:
        return np.array([c.rollouts_per_problem for c in self.configurations])

    @cached_property
    def _bp_J(self) -> IntArray:
        return np.array([c.problems_per_batch for c in self.configurations])

    @cached_property
    def batch_size(self) -> int | None:
        """The batch, where it was fixed."""
        fixed = self.setting["kind"] == "fixed_batch_size"
        return int(self.setting["value"]) if fixed else None

    @property
    def variable(self) -> str:
        """What the law is a function of: rollouts, tokens or steps."""
        return self.unit if self.batch_size is None else "steps"

    def law_x(self, x: float) -> float:
        """The law's own variable at a budget: M = C / B for a fixed batch, else the budget."""
        return x if self.batch_size is None else x / self.batch_size

    @cached_property
    def backtest(self) -> Backtest:
        """How well a part of the sweep predicts the rest."""

        def refit(curves: Sequence[Curve]) -> Posterior:
            of = self.posterior
            draws = min(self.draws, BACKTEST_DRAWS)
            return fit_posterior(curves, unit=of.unit, select=of.select, draws=draws, seed=of.seed)

        # Rules are judged where the most budget was spent on the runs that were not stopped.
        at = float(self.posterior.last_J.max())
        return backtest(self.posterior, refit, judged_at=at, level=self.level)

    def scores_at(self, x: ArrayLike) -> FloatArray:
        """Draws of every configuration's score at budgets, (D, J, X); (D, J) for one number.

        Beyond a configuration's data the draws stand as far apart as the back-test says they must:
        `backtest.widened_by`, in full from the distance on that its first cut tested.

        Raises:
            InputError: a budget that is not finite and > 0.
        """
        amount = np.atleast_1d(np.asarray(x, dtype=np.float64))
        for one in amount:
            require_budget(float(one), self.unit)
        out = self._scores(np.log10(amount))
        return out if np.ndim(x) else out[:, :, 0]

    def _scores(self, x_X: FloatArray) -> FloatArray:
        score_DJX = self.posterior.scores(x_X)
        beyond_JX = np.clip((x_X - self.posterior.last_J[:, None]) / _TESTED_DISTANCE, 0.0, 1.0)
        if (beyond_JX > 1e-6).any() and self.backtest.widened_by > 1:
            mean_JX = score_DJX.mean(axis=0)
            wider_JX = 1 + (self.backtest.widened_by - 1) * beyond_JX
            score_DJX = np.clip(mean_JX + (score_DJX - mean_JX) * wider_JX, 0.0, 1.0)
        return score_DJX

    @cached_property
    def frontier(self) -> Frontier:
        """What leads by budget, and where all that could lead was compared."""
        of = self.posterior
        every = np.concatenate([c.position(self.unit) for c in of.curves])
        low, high = float(np.log10(every[every > 0].min())), float(of.last_J.max())
        x_V = budget_grid(low, high, of.first_J, of.last_J)
        score_DJV = self._scores(x_V)
        return fit_frontier(of.configurations, of.first_J, of.last_J, x_V, score_DJV, self.level)

    @property
    def support(self) -> tuple[float, float]:
        """Budgets between which all that could be best were compared."""
        low, high = self.frontier.support
        return 10**low, 10**high

    @cached_property
    def reported_X(self) -> FloatArray:
        """log10 of the budgets that are reported: 25 of the support, and beyond as far apart."""
        low, high = self.frontier.support
        first, last = float(self.frontier.x_V[0]), float(self.frontier.x_V[-1])
        if high - low < 1e-6:
            return np.array([low])
        step = (high - low) / (REPORTED - 1)
        before = min(int((low - first) / step + 1e-6), REPORTED)
        after = min(int((last - high) / step + 1e-6), REPORTED)
        return low + step * np.arange(-before, REPORTED + after)

    def _ridge(self, x_X: FloatArray, score_DJX: FloatArray) -> Ridge:
        """Best n of every draw at log10 budgets; along the fixed batch, where there is one."""
        grid_F = log2_n_grid(self._n_J)
        if self.batch_size is not None:
            score = self.posterior.smooth_scores(self.batch_size / 2**grid_F, grid_F, x_X)
            none_DX = np.zeros((len(score), len(x_X)), dtype=np.int64)
            found = ridge(
                score[None], grid_F, np.zeros(1, int), np.ones((1, len(grid_F)), bool), none_DX
            )
            bp_DX = self.batch_size / 2**found.log2_n_DX
            return found._replace(bp_DX=bp_DX)
        tested_P = np.unique(self._bp_J)
        ends_P2 = np.array(
            [(n.min(), n.max()) for n in (self._n_J[self._bp_J == b] for b in tested_P)]
        )
        inside_PF = (2**grid_F >= ends_P2[:, :1] - 1e-6) & (2**grid_F <= ends_P2[:, 1:] + 1e-6)
        # One call for all B_p: the draws of what lies between tested n are joint.
        every = self.posterior.smooth_scores(
            np.repeat(tested_P, len(grid_F)).astype(float), np.tile(grid_F, len(tested_P)), x_X
        )
        score_PDFX = every.reshape(len(every), len(tested_P), len(grid_F), -1).swapaxes(0, 1)
        best_DX = self._bp_J[score_DJX.argmax(axis=1)]
        return ridge(score_PDFX, grid_F, tested_P, inside_PF, best_DX)

    @cached_property
    def _reported(self) -> tuple[FloatArray, Ridge]:
        score_DJX = self._scores(self.reported_X)
        return score_DJX, self._ridge(self.reported_X, score_DJX)

    @cached_property
    def best(self) -> list[Best]:
        """What is best at every reported budget."""
        return self._best(self.reported_X, *self._reported)

    def best_at(self, x: float) -> Best:
        """What is best at one budget.

        Raises:
            InputError: if the budget is not finite and > 0.
        """
        require_budget(x, self.unit)
        at = np.log10([x])
        score_DJX = self._scores(at)
        return self._best(at, score_DJX, self._ridge(at, score_DJX))[0]

    def _best(self, x_X: FloatArray, score_DJX: FloatArray, of: Ridge) -> list[Best]:
        probability_JX, regret_JX = probability_best(score_DJX), expected_regret(score_DJX)
        low, high = self.frontier.support
        ends = np.log2([self._n_J.min(), self._n_J.max()])
        out = []
        for i, x in enumerate(x_X):
            mean_J = score_DJX[:, :, i].mean(axis=0)
            at = choice(mean_J)
            log2_n_D, middle = of.log2_n_DX[:, i], float(np.median(of.log2_n_DX[:, i]))
            if x > high + 1e-6:
                share = min(1.0, (float(x) - high) / _TESTED_DISTANCE)
                wider = 1 + (self.backtest.widened_by - 1) * share
                log2_n_D = np.clip(middle + wider * (log2_n_D - middle), *ends)
            n_low, n_high = interval(log2_n_D, self.level)
            probability, regret = {}, {}
            for n in np.unique(self._n_J):
                rows = self._n_J == n
                probability[int(n)] = float(probability_JX[rows, i].sum())
                regret[int(n)] = float(regret_JX[rows, i].min())
            out.append(
                Best(
                    x=float(10**x),
                    rollouts_per_problem=2**middle,
                    interval=(2**n_low, 2**n_high),
                    probability=probability,
                    expected_regret=regret,
                    as_good=sorted(set(self._n_J[as_good(mean_J, at)].tolist())),
                    confidence_set=confidence_set(probability_JX[:, i], self._n_J, self.level),
                    configuration=self.configurations[at],
                    score=float(mean_J[at]),
                    score_interval=interval(score_DJX[:, at, i], self.level),
                    extrapolated=not low - 1e-6 <= x <= high + 1e-6,
                )
            )
        return out

    @cached_property
    def inside_X(self) -> NDArray[np.bool_]:
        """Which reported budgets lie in the support."""
        low, high = self.frontier.support
        return (self.reported_X >= low - 1e-6) & (self.reported_X <= high + 1e-6)

    @cached_property
    def path(self) -> tuple[FloatArray, FloatArray]:
        """log10 budgets of the support (X), and log2 n* of every draw there (D, X)."""
        return self.reported_X[self.inside_X], self._reported[1].log2_n_DX[:, self.inside_X]

    @cached_property
    def rise(self) -> Rise:
        """How far n* moves over the support."""
        top_X = self._reported[0].mean(axis=0).max(axis=0)[self.inside_X]
        return rise(*self.path, top_X, float(self.posterior.floor_D.mean()))

    @cached_property
    def direction(self) -> dict[str, Any]:
        """Whether the optimum follows n or the batch: `answers.direction`."""
        of, inside = self._reported[1], self.inside_X
        within = of._replace(
            log2_n_DX=of.log2_n_DX[:, inside],
            bp_DX=of.bp_DX[:, inside],
            log2_n_PDX=of.log2_n_PDX[:, :, inside],
            edge_PDX=of.edge_PDX[:, :, inside],
        )
        return direction(self.frontier, within, self.level)

    def expected_scores(self, x: float) -> dict[Configuration, float]:
        """Mean over the draws of every configuration's score at a budget.

        Raises:
            InputError: if the budget is not finite and > 0.
        """
        mean_J = self.scores_at(x).mean(axis=0)
        return dict(zip(self.configurations, mean_J.tolist(), strict=True))

    def score_at(
        self, problems_per_batch: int, rollouts_per_problem: int, x: float
    ) -> tuple[float, float, float] | None:
        """(expected score, low, high) of a configuration at a budget; None where it has no curve.

        Raises:
            InputError: if the budget is not finite and > 0.
        """
        which = Configuration(problems_per_batch, rollouts_per_problem)
        if which not in self.configurations:
            return None
        score_D = self.scores_at(x)[:, self.configurations.index(which)]
        return (float(score_D.mean()), *interval(score_D, self.level))

    @cached_property
    def unhealthy(self) -> dict[Configuration, str]:
        """Configurations with a run that failed a health rule or broke, and what it failed."""
        failed: dict[Configuration, set[str]] = {}
        for curve in self.curves:
            if curve.failed_rules:
                failed.setdefault(curve.configuration, set()).update(curve.failed_rules)
        for c, state in zip(self.configurations, self.posterior.state_J, strict=True):
            if state == "broken":
                failed.setdefault(c, set()).add("broken_run")
        return {c: ", ".join(sorted(rules)) for c, rules in failed.items()}

    def stable_problems_per_batch(
        self,
        rollouts_per_problem: float,
        x: float,
        unhealthy: Mapping[Configuration, str] | None = None,
    ) -> tuple[int, list[Notice]]:
        """Smallest tested B_p at this n whose expected score is within 0.002 of the best B_p's.

        Args:
            rollouts_per_problem: n; where it was not tested, the tested n nearest to it.
            x: the budget.
            unhealthy: configurations that failed, with the rules; None: those of the runs.

        Returns:
            B_p, and what limits it: `bp_untested`, `bp_unhealthy` or `bp_unstable`.
        """
        sick = self.unhealthy if unhealthy is None else unhealthy
        mean_J = self.scores_at(x).mean(axis=0)
        sick_J = np.array([c in sick for c in self.configurations])
        found = smallest_stable(self.configurations, mean_J, sick_J, rollouts_per_problem)
        n = found.rollouts_per_problem
        would = smallest_stable(self.configurations, mean_J, np.zeros_like(sick_J), n)
        b_p, notices = found.problems_per_batch, []
        if (self._n_J == n).sum() == 1:
            notices.append(notice("bp_untested", bp=b_p, n=n))
        if found in sick:
            notices.append(notice("bp_unstable", bp=b_p, n=n, rules=sick[found]))
        elif would in sick:
            before = would.problems_per_batch
            notices.append(notice("bp_unhealthy", bp=before, n=n, rules=sick[would], taken=b_p))
        return b_p, notices


def require_budget(amount: float, unit: str) -> None:
    """Raise InputError unless an amount is finite and > 0."""
    if not (np.isfinite(amount) and amount > 0):
        raise InputError(
            f"`{unit} > 0` must hold for a budget, but got {amount!r}; give a positive number."
        )
