"""Monotone sigmoids per configuration, and what they would be had other runs been drawn.

Shape legend: J configurations, R runs of one, X bins, D bootstrap draws, V values of log10 x.

The draws resample whole runs, never checkpoints of a run. With two seeds or more the deviation
of each run from its configuration's mean is a unit; with few seeds per configuration a
resample within one is far too narrow, so deviations, standardised by their expected size, are
drawn from all configurations, and a draw is widened by the chi-square of their degrees of
freedom. With one run each, a draw holds evaluation noise and the misfit of the curves; what
another seed would have done is not in the data, so the spread of ceilings that others have
seen is assumed (`UNSEEN_SEED_SD`) and said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.bins import (
    BIN_WIDTH,
    MIN_POINTS,
    BinnedRuns,
    Bins,
    Select,
    bin_runs,
    common_bins,
    noise_scale,
    position,
    separate_points,
)
from isocompute.curves.draws import (
    CURVE_BOUNDS,
    deviation_pool,
    draw_fits,
    spread_ceilings,
)
from isocompute.curves.means import Means, fit_means, means_in_other_form
from isocompute.domain import Curve
from isocompute.errors import RefusalError
from isocompute.intervals import draw_interval
from isocompute.sigmoid import SigmoidFits

FloatArray = NDArray[np.float64]

MIN_STEPS = 20  # a configuration is compared from its 20th step on
# ScaleRL calls ceilings within 0.02 of each other ties (three repeats, scores about 0.6): two
# standard deviations of 0.01, here in units of sqrt(p (1 - p)). Source: arXiv 2510.13786.
UNSEEN_SEED_SD = 0.01 / float(np.sqrt(0.6 * 0.4))


class Drawing(NamedTuple):
    """How the draws were made: their number, their seed, `unseen_seed_sd` of `fit_curves`."""

    draws: int
    seed: int
    unseen_seed_sd: float


@dataclass(frozen=True, kw_only=True)
class CurveFits:
    """Fitted curves of all configurations, in order of (B_p, n).

    Args:
        binned: one entry per configuration.
        bins: the common bins of log10 x.
        unit: of x, "rollouts" or "tokens".
        phi: evaluation noise, see `noise_scale`.
        run_sd: standard deviation between runs (seeds), of a bin's score; with one run per
            configuration, of a run's departure from its fitted curve beyond noise.
        fit: J fitted curves.
        draw_J: for each configuration D fitted curves.
        start_J, end_J: log10 x between which a configuration has data and at least 20 steps.
        seeds_known: False where every configuration has one run.
        excluded: configurations left out, with the reason.
        select: which checkpoint counted at a budget.
        means: what the curves were fitted to.
        drawing: how the draws were made.
        gompertz_gain: by how much less the summed loss would be with Gompertz curves, at the
            weights of the logistic ones.
        logistic_only: Gompertz curves were not to be taken.
    """

    binned: tuple[BinnedRuns, ...]
    bins: Bins
    unit: str
    phi: float
    run_sd: float
    fit: SigmoidFits
    draw_J: tuple[SigmoidFits, ...]
    start_J: FloatArray
    end_J: FloatArray
    seeds_known: bool
    excluded: tuple[tuple[int, int, str], ...]
    means: Means
    drawing: Drawing
    select: Select = "best"
    gompertz_gain: float = 0.0
    logistic_only: bool = False

    @property
    def form(self) -> str:
        """Of the fitted curves: "logistic" or "gompertz"."""
        return "gompertz" if self.fit.gompertz.any() else "logistic"

    @property
    def problems_per_batch_J(self) -> NDArray[np.int64]:
        """B_p of each configuration."""
        return np.array([b.problems_per_batch for b in self.binned])

    @property
    def rollouts_per_problem_J(self) -> NDArray[np.int64]:
        """N of each configuration."""
        return np.array([b.rollouts_per_problem for b in self.binned])

    def ceiling_interval(self, j: int, level: float) -> tuple[float | None, float | None]:
        """Of one configuration's ceiling; the upper end is None where the data do not bound it.

        A ceiling is known only when the curve has made half of its rise within the data in
        nearly all draws.
        """
        if not self.draw_J:
            return None, None
        draws, one = self.draw_J[j], self.binned[j]
        ends = draw_interval(np.column_stack([draws.ceiling, draws.half_way]), level)
        (lo, _), (hi, half_way) = (end.tolist() for end in ends)
        last = float(one.x_X[np.isfinite(one.best_RX).any(axis=0)].max())
        past = half_way <= last
        return lo, hi if past and hi < CURVE_BOUNDS.high - 1e-6 else None

    def midpoint_interval(self, j: int, level: float) -> tuple[float | None, float | None]:
        """Of one configuration's log10 midpoint; no upper end where the ceiling has none."""
        if not self.draw_J:
            return None, None
        lo, hi = (end.item() for end in draw_interval(self.draw_J[j].midpoint, level))
        return lo, None if self.ceiling_interval(j, level)[1] is None else hi

    def value(self, x_V: FloatArray) -> FloatArray:
        """Fitted scores, shape (J, V)."""
        return self.fit.value(x_V)

    def draw_value(self, x_V: FloatArray) -> FloatArray:
        """Scores of every draw, shape (D, J, V); the fit itself where none was drawn."""
        if not self.draw_J:
            return self.value(x_V)[None]
        return np.stack([draws.value(x_V) for draws in self.draw_J], axis=1)


def fit_curves(
    curves: Sequence[Curve],
    *,
    unit: str = "rollouts",
    width: float = BIN_WIDTH,
    strict_records: bool = False,
    select: Select = "best",
    logistic_only: bool = False,
    draws: int = 1000,
    seed: int = 0,
    unseen_seed_sd: float = UNSEEN_SEED_SD,
) -> CurveFits:
    """Fit every configuration and draw what other runs might have given.

    Curves are logistic, as in the method, or Gompertz where those are the likelier by `LIKELIER`,
    all configurations together: one curve alone cannot tell.

    Args:
        curves: all runs of all configurations, one metric, one problem set.
        unit: "rollouts" or "tokens".
        width: of the bins, in decades.
        strict_records: keep record-breaking bins only (the paper's rule to the letter).
        select: which checkpoint counts at a budget, see `bin_runs`.
        logistic_only: never take Gompertz curves (the paper's form). For the sensitivity table.
        draws: bootstrap draws D; 0 for none.
        seed: of the draws.
        unseen_seed_sd: spread of ceilings between seeds, in units of sqrt(p (1 - p)), assumed
            where every configuration has one run; 0 makes intervals conditional on these runs.

    Raises:
        RefusalError: if no configuration has enough evaluations for a curve.
    """
    groups: dict[tuple[int, int], list[Curve]] = {}
    for curve in sorted(curves, key=lambda c: (c.run, -1 if c.seed is None else c.seed)):
        if (position(curve, unit) > 0).any():
            key = (curve.problems_per_batch, curve.rollouts_per_problem)
            groups.setdefault(key, []).append(curve)
    phi = noise_scale(curves, unit=unit)
    binned, excluded = [], []
    every = [c for group in groups.values() for c in group]
    bins = common_bins(every, width=width, unit=unit) if every else None
    for key in sorted(groups):
        assert bins is not None
        one = bin_runs(
            groups[key], bins, phi, unit=unit, strict_records=strict_records, select=select
        )
        n_points = separate_points(one, bins, unit)
        if n_points < MIN_POINTS:
            excluded.append(
                (
                    *key,
                    f"it was evaluated at {n_points} budgets {width:.2g} decades apart, and a "
                    f"curve needs {MIN_POINTS}",
                )
            )
        else:
            binned.append(one)
    if bins is None or not binned:
        raise RefusalError(
            f"a curve needs evaluations at {MIN_POINTS} or more budgets at least {width:.2g} "
            f"decades of {unit} apart, but no configuration has them ({len(excluded)} seen); "
            "evaluate more often or train longer.",
            ["the same configurations with evaluations evenly spaced in log C, to a larger budget"],
        )
    of, gain = fit_means(binned, unit, strict_records=strict_records, logistic_only=logistic_only)
    start, end = zip(*(_support(one, unit) for one in binned), strict=True)
    drawing = Drawing(draws, seed, unseen_seed_sd)
    return CurveFits(
        binned=tuple(binned),
        bins=bins,
        unit=unit,
        phi=phi,
        run_sd=float(np.sqrt(of.run_variance)),
        fit=of.fit,
        draw_J=_draws(binned, of, drawing),
        start_J=np.array(start),
        end_J=np.array(end),
        seeds_known=of.seeds_known,
        excluded=tuple(excluded),
        means=of,
        drawing=drawing,
        select=select,
        gompertz_gain=gain,
        logistic_only=logistic_only,
    )


def in_other_form(fits: CurveFits) -> CurveFits:
    """The same runs under logistic curves in place of Gompertz ones, or the reverse."""
    of = means_in_other_form(fits.binned, fits.means, fits.unit)
    return replace(
        fits,
        run_sd=float(np.sqrt(of.run_variance)),
        fit=of.fit,
        draw_J=_draws(fits.binned, of, fits.drawing),
        means=of,
    )


def _draws(binned: Sequence[BinnedRuns], of: Means, drawing: Drawing) -> tuple[SigmoidFits, ...]:
    draws, seed, unseen_seed_sd = drawing
    if not draws:
        return ()
    rng = np.random.default_rng(seed)
    pool = deviation_pool(binned, of.mean_JX, of.fit.midpoint, of.run_variance, of.seeds_known)
    draw_J = tuple(
        draw_fits(
            one,
            of.fit.row(j),
            of.weight_JX[j],
            (of.anchor[0][j : j + 1], of.anchor[1][j : j + 1]),
            pool,
            of.run_variance,
            draws,
            rng,
            of.bounds,
        )
        for j, one in enumerate(binned)
    )
    if not of.seeds_known and unseen_seed_sd > 0:
        draw_J = tuple(spread_ceilings(one, unseen_seed_sd, rng) for one in draw_J)
    return draw_J


def _support(one: BinnedRuns, unit: str) -> tuple[float, float]:
    """log10 x from the 20th step (and the first data) to where half of the runs still have data."""
    first, last = [], []
    for curve in one.runs:
        x = position(curve, unit)
        reached = (curve.rollouts_K >= MIN_STEPS * one.batch_size) & (x > 0)
        if reached.any():
            first.append(float(x[reached].min()))
            last.append(float(x[reached].max()))
    if not first:
        return np.inf, -np.inf
    # The 20th step itself lies between two evaluations: in rollouts its place is known.
    start = float(np.median(first))
    if unit == "rollouts":
        earlier = min(
            float(c.rollouts_K[c.rollouts_K > 0].min())
            for c in one.runs
            if (c.rollouts_K > 0).any()
        )
        start = max(MIN_STEPS * one.batch_size, earlier)
    return float(np.log10(start)), float(np.log10(np.median(last)))
