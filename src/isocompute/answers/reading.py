"""The answers of a sweep, all read off the same draws.

Shape legend: D draws, J configurations, X budgets, V budgets of the frontier's grid, F values of
n, P values of B_p.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.answers.backtest import CUTS, Backtest, backtest
from isocompute.answers.best import (
    Best,
    FloatArray,
    IntArray,
    Ridge,
    as_good,
    choice,
    confidence_set,
    expected_regret,
    log2_n_grid,
    probability_best,
    ridge,
)
from isocompute.answers.claims import Rise, direction, rise, smallest_stable
from isocompute.answers.frontier import SAME_END, Frontier, budget_grid, fit_frontier
from isocompute.answers.metered import Metered
from isocompute.answers.overfit import Windows, noise_scale, windows_of
from isocompute.domain import Configuration, Curve, Effort, Notice, notice
from isocompute.domain.text import of_runs
from isocompute.errors import InputError
from isocompute.intervals import draw_interval
from isocompute.model import Posterior, fit_posterior
from isocompute.model.data import MIN_STEPS, counted

DRAWS = 400
# Decades past the support at which a best n that has levels off must still be where it was. Of 128
# sweeps of worlds in which n* goes on rising, all but one, 31 were said to level off without it,
# 29 of them wrongly; with half of it 19 and 11, with it six, all rightly. Twice: not measured.
FAR = 1.0
BACKTEST_DRAWS = 100  # its figures are means over configurations and cuts
REPORTED = 25  # budgets of the support at which the best n is said
# Decades beyond the data from which on draws are widened in full: what the first cut tests.
_TESTED_DISTANCE = -float(np.log10(CUTS[0]))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a sweep says, with how sure it is."""

    posterior: Posterior  # of its curves
    setting: dict[str, Any]  # {"kind", "value"} as in the JSON
    metric: str  # name of the score
    level: float  # of all intervals
    sources: tuple[str, ...] = ()  # where the curves came from
    draws: int = DRAWS  # of the posterior
    seed: int = 0
    train: tuple[Curve, ...] = ()  # the same runs on their training batches, where they are known

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The runs used."""
        return self.posterior.curves

    @cached_property
    def counted(self) -> tuple[Curve, ...]:
        """The runs as far as they count: one that broke has gone no further than to its fall."""
        return tuple(counted(self.curves))

    @cached_property
    def noise_phi(self) -> float:
        """Noise of one evaluation of these runs: see `noise_scale`."""
        return noise_scale(self.curves)

    @cached_property
    def windows(self) -> dict[Configuration, Windows]:
        """What the scores themselves show of each configuration: see `windows_of`."""
        return windows_of(self.counted, self.unit)

    @cached_property
    def broke(self) -> dict[Configuration, list[Curve]]:
        """By configuration the runs that broke, each up to its fall."""
        out = defaultdict(list)
        for run, kept in zip(self.curves, self.counted, strict=True):
            if kept is not run:
                out[run.configuration].append(kept)
        return dict(out)

    @property
    def unit(self) -> str:
        """Of every x: one of `domain.curve.UNITS`."""
        return self.posterior.unit

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """J of them, sorted by (B_p, n)."""
        return self.posterior.configurations

    @property
    def tested_n(self) -> list[int]:
        """The n of the sweep, ascending."""
        return sorted({c.rollouts_per_problem for c in self.configurations})

    @cached_property
    def _bp_n(self) -> tuple[IntArray, IntArray]:
        bp_J, n_J = np.array(self.configurations).T
        return bp_J, n_J

    @property
    def batch_size(self) -> int | None:
        """The batch, where it was fixed."""
        return self.setting["value"] if self.setting["kind"] == "fixed_batch_size" else None

    def at_n(self, c: Configuration, n: int) -> Configuration:
        """A configuration with another n; where the batch was fixed, another split of it."""
        return Configuration(max((self.batch_size or c.problems_per_batch * n) // n, 1), n)

    @cached_property
    def backtest(self) -> Backtest:
        """How well a part of the sweep predicts the rest, to its largest budget."""
        of, draws = self.posterior.in_rollouts, min(self.draws, BACKTEST_DRAWS)
        refit = partial(fit_posterior, select=of.select, draws=draws, seed=of.seed)
        return backtest(of, refit, level=self.level)

    def scores_at(self, x: ArrayLike) -> FloatArray:
        """Draws of every configuration's score at budgets, (D, J, X); (D, J) for one number.

        Beyond a configuration's data the draws are spread by `backtest.widened_by`, in full
        from the distance on that the first cut tested.

        Raises:
            InputError: a budget that is not finite and > 0.
        """
        amount = np.atleast_1d(np.asarray(x, dtype=np.float64))
        if not (np.isfinite(amount) & (amount > 0)).all():
            raise InputError(
                f"`{self.unit} > 0` must hold for a budget, but got {x!r}; give a positive number."
            )
        out = self._scores(np.log10(amount))
        return out if np.ndim(x) else out[:, :, 0]

    def _scores(self, x_X: FloatArray) -> FloatArray:
        return self._widened(self.posterior.scores(x_X), x_X - self.posterior.last_J[:, None])

    def _widened(self, score_D: FloatArray, beyond: ArrayLike) -> FloatArray:
        """Draws of scores (D, ...) as far apart as they must stand so many decades beyond data."""
        wider, mean = self.wider(beyond), score_D.mean(axis=0)
        return np.clip(mean + (score_D - mean) * wider, 0.0, 1.0) if np.any(wider > 1) else score_D

    def wider(self, beyond: ArrayLike) -> FloatArray:
        """Factor on the spread of draws so many decades beyond the data, by the back-test."""
        share = np.clip(np.asarray(beyond) / _TESTED_DISTANCE, 0.0, 1.0)
        # Inside the data there is nothing to ask the back-test for.
        return 1 + share * (self.backtest.widened_by - 1 if (share > 1e-6).any() else 0)

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
        """Smallest and largest budget at which all configurations that may be best have data."""
        low, high = self.frontier.support
        return 10**low, 10**high

    @cached_property
    def reported_X(self) -> FloatArray:
        """log10 of the budgets that are reported: 25 of the support, and beyond as far apart."""
        low, high = self.frontier.support
        step = (high - low) / (REPORTED - 1)
        if step < 1e-6:
            return np.array([low])
        before, after = low - self.frontier.x_V[0], self.frontier.x_V[-1] - high
        more = [min(int(d / step + 1e-6), REPORTED) for d in (before, after)]
        return np.asarray(low + step * np.arange(-more[0], REPORTED + more[1]))

    @cached_property
    def inside_X(self) -> NDArray[np.bool_]:
        """Which reported budgets lie in the support."""
        return self.frontier.compares(self.reported_X)

    def _ridge(self, x_X: FloatArray, score_DJX: FloatArray) -> Ridge:
        """Best n of every draw at log10 budgets; along the fixed batch, where there is one."""
        bp_J, n_J = self._bp_n
        grid_F, smooth = log2_n_grid(n_J), self.posterior.smooth_scores
        if self.batch_size is not None:
            score_DFX = smooth(self.batch_size / 2**grid_F, grid_F, x_X)
            all_1F, none_DX = np.ones((1, len(grid_F)), bool), np.zeros_like(score_DFX[:, 0])
            found = ridge(score_DFX[None], grid_F, np.zeros(1, int), all_1F, none_DX)
            return found._replace(bp_DX=self.batch_size / 2**found.log2_n_DX)
        tested_P = np.unique(bp_J)
        low_P, high_P = np.log2([[f(n_J[bp_J == b]) for b in tested_P] for f in (min, max)])
        inside_PF = (grid_F >= low_P[:, None] - 1e-6) & (grid_F <= high_P[:, None] + 1e-6)
        # One call for all B_p: the draws of what lies between tested n are joint.
        P, F = len(tested_P), len(grid_F)
        every = smooth(np.repeat(tested_P, F).astype(float), np.tile(grid_F, P), x_X)
        score_PDFX = every.reshape(len(every), P, F, -1).swapaxes(0, 1)
        best_DX = bp_J[score_DJX.argmax(axis=1)].astype(float)
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
        """What is best at one budget; raises InputError unless it is finite and > 0."""
        score_DJX, at = self.scores_at([x]), np.log10([float(x)])
        (row,) = self._best(at, score_DJX, self._ridge(at, score_DJX))
        # Budgets are said in round numbers: a step beyond the support is no extrapolation.
        return row._replace(extrapolated=not self.frontier.compares(at, SAME_END)[0])

    def _spread(self, x_X: FloatArray, of: Ridge) -> tuple[FloatArray, FloatArray]:
        """Median log2 n* (X), and its draws (D, X) as far apart as the back-test asks for."""
        middle_X, tested_J = np.median(of.log2_n_DX, axis=0), np.log2(self._bp_n[1])
        spread_DX = (of.log2_n_DX - middle_X) * self.wider(x_X - self.frontier.support[1])
        return middle_X, np.clip(middle_X + spread_DX, tested_J.min(), tested_J.max())

    def _best(self, x_X: FloatArray, score_DJX: FloatArray, of: Ridge) -> list[Best]:
        n_J = self._bp_n[1]
        probability_JX, regret_JX = probability_best(score_DJX), expected_regret(score_DJX)
        middle_X, log2_n_DX = self._spread(x_X, of)
        mean_JX = score_DJX.mean(axis=0)
        at_X = [choice(mean_J) for mean_J in mean_JX.T]
        n_ends = np.stack(draw_interval(2**log2_n_DX, self.level), axis=1).tolist()
        by_n = {int(n): n_J == n for n in np.unique(n_J)}
        return [
            Best(
                x=float(10**x),
                rollouts_per_problem=float(2 ** middle_X[i]),
                interval=tuple(n_ends[i]),
                probability={n: float(probability_JX[j, i].sum()) for n, j in by_n.items()},
                expected_regret={n: float(regret_JX[j, i].min()) for n, j in by_n.items()},
                as_good=sorted(set(n_J[as_good(mean_JX[:, i], at)].tolist())),
                confidence_set=confidence_set(probability_JX[:, i], n_J, self.level),
                problems_per_batch=self.configurations[at].problems_per_batch,
                tested_rollouts_per_problem=self.configurations[at].rollouts_per_problem,
                score=float(mean_JX[at, i]),
                score_interval=self.ends(self.configurations[at], 10**x, score_DJX[:, at, i]),
                extrapolated=not self.frontier.compares(x),
            )
            for i, (x, at) in enumerate(zip(x_X, at_X, strict=True))
        ]

    @cached_property
    def path(self) -> tuple[FloatArray, FloatArray]:
        """log10 budgets of the support (X), and log2 n* of every draw there (D, X)."""
        return self.reported_X[self.inside_X], self._reported[1].log2_n_DX[:, self.inside_X]

    @cached_property
    def path_far(self) -> FloatArray:
        """log2 n* of every draw ten times past the support, (D,), as widened as in `best_at`."""
        far_X = np.array([self.frontier.support[1] + FAR])
        return self._spread(far_X, self._ridge(far_X, self._scores(far_X)))[1][:, 0]

    @cached_property
    def rise(self) -> Rise:
        """How far n* moves over the support."""
        score_DJX = self._reported[0][:, :, self.inside_X]
        return rise(*self.path, score_DJX, float(self.posterior.floor_D.mean()))

    @cached_property
    def direction(self) -> dict[str, Any]:
        """Whether the optimum follows n or the batch: `claims.direction`."""
        return direction(self.frontier, self._reported[1].at(self.inside_X), self.level)

    def trained(self, c: Configuration | None = None, to: float = math.inf) -> float:
        """Rollouts of the longest run, of a configuration or of all, as far as a budget."""
        ends = (float(r.rollouts_K[-1]) for r in self.counted if c in (None, r.configuration))
        longest = max(ends, default=0.0)
        return longest if c is None or to == math.inf else min(longest, self.buys(c, to))

    def buys(self, c: Configuration, x: float) -> float:
        """Rollouts with which a configuration gets as far as a budget, whether tested or not."""
        if not isinstance(self.posterior, Metered):
            return x
        return self.posterior.buys(c, x)

    def reached(self, c: Configuration | None = None) -> float:
        """Largest budget of a run, of a configuration or of all."""
        own = (r for r in self.counted if c in (None, r.configuration))
        return max((float(r.position(self.unit)[-1]) for r in own), default=0.0)

    def check_of(self, other: Configuration, beside: Configuration, x: float) -> Effort:
        """A run of one configuration that compares it with another, which is trained.

        It goes as far as that is known, at most to x; and to 20 steps, before which none counts.
        """
        known = self.buys(other, min(x, self.support[1], self.reached(beside) or x))
        return {other: max(known, float(MIN_STEPS * other.batch_size))}

    def expected_scores(self, x: float) -> dict[Configuration, float]:
        """Mean over the draws of every configuration's score; raises as `scores_at`."""
        mean_J = self.scores_at(x).mean(axis=0)
        return dict(zip(self.configurations, mean_J.tolist(), strict=True))

    def scores_of(self, which: Sequence[tuple[float, float]], x: float) -> FloatArray:
        """Draws of the score of any (B_p, n) at a budget, (D, F), joint with all others.

        Of a tested one its own; of another what its neighbours say, widened as `scores_at`.
        """
        score_DF = self.scores_at(x)
        if untested := [c for c in which if c not in self.configurations]:
            (bp_F, n_F), at = np.array(untested, dtype=np.float64).T, np.log10([float(x)])
            more_DF = self.posterior.smooth_scores(bp_F, np.log2(n_F), at)[:, :, 0]
            more_DF = self._widened(more_DF, at[0] - self.posterior.last_J.max())
            score_DF = np.concatenate([score_DF, more_DF], axis=1)
        every: list[tuple[float, float]] = [*self.configurations, *untested]
        return score_DF[:, [every.index(c) for c in which]]

    @cached_property
    def _reached(self) -> FloatArray:
        """Interval of every score where its data end, (J, 2)."""
        last_J = self.posterior.last_J
        own_DJ = np.einsum("djj->dj", self.posterior.scores(last_J))
        return np.stack(draw_interval(own_DJ, self.level), axis=1)

    def ends(self, c: Configuration, x: float, score_D: FloatArray) -> tuple[float, float]:
        """Interval of a score at a budget; the best so far is no less than what is reached."""
        low, high = draw_interval(score_D, self.level)
        if self.posterior.select == "best" and c in self.configurations:
            j = self.configurations.index(c)
            if math.log10(x) > self.posterior.last_J[j]:
                low, high = np.maximum((low, high), self._reached[j])
        return float(low), float(high)

    @cached_property
    def unhealthy(self) -> dict[Configuration, str]:
        """Configurations with a run that failed a health rule or broke, and what happened."""
        failed: dict[Configuration, set[str]] = defaultdict(set)
        for curve in self.curves:
            if curve.failed_rules:
                failed[curve.configuration].update(curve.failed_rules)
        said = {c: "failed " + ", ".join(sorted(rules)) for c, rules in failed.items()}
        for c, runs in self.broke.items():
            many = sum(r.configuration == c for r in self.curves)
            also = f" and {said[c]}" if c in said else ""
            said[c] = f"broke in {of_runs(len(runs), many)}{also}"
        return said

    def stable_problems_per_batch(
        self, n: float, x: float, among: Sequence[Configuration] | None = None
    ) -> tuple[int, list[Notice]]:
        """Smallest tested B_p at an n whose expected score is within 0.002 of the best B_p's.

        Args:
            n: where it was not tested, the tested n nearest to it.
            x: the budget.
            among: the configurations that limits leave; None: all.

        Returns:
            B_p, and what limits it: `bp_untested`, `bp_unhealthy` or `bp_unstable`.
        """
        sick, scores = self.unhealthy, self.expected_scores(x)
        scores = {c: scores[c] for c in (scores if among is None else among)}
        b_p, n = found = smallest_stable(scores, sick, n)
        wished = smallest_stable(scores, {}, n)
        trains = self.check_of(Configuration(2 * b_p, n), found, x)
        other: dict[str, Any] = {"bp": b_p, "n": n, "other": 2 * b_p, "trains": trains}
        alone = self.batch_size is None and bool((self._bp_n[1] == n).sum() == 1)
        notices = [notice("bp_untested", **other)] * alone
        if found in sick:
            notices.append(notice("bp_unstable", rules=sick[found], **other))
        elif wished in sick:
            about: dict[str, Any] = {"bp": wished.problems_per_batch, "n": n, "taken": b_p}
            notices.append(notice("bp_unhealthy", rules=sick[wished], **about))
        return b_p, notices
