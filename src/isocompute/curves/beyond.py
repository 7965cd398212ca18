"""Curves for budgets beyond the data: of either form, with slopes that configurations share.

Inside the data both forms fit; beyond them Gompertz curves go on rising where logistic ones have
bent. A curve that ends before it bends says little about its slope, and so about where it goes: a
steeper one with a lower ceiling fits as well. The other curves of the sweep know.

Shape legend: J configurations, I of them with an identified slope, D draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.draws import CURVE_BOUNDS
from isocompute.curves.fits import CurveFits, in_other_form
from isocompute.sigmoid import SigmoidFits

FloatArray = NDArray[np.float64]

# A 95% interval shorter than a factor 4, as of a law's slope: standard deviation of log slope.
IDENTIFIED_SD = float(np.log(4)) / (2 * 1.96)
# Estimates that give way to their own mean or line gain where three more are known than it has
# parameters (Efron and Morris, JASA 68 (1973) 117).
SPARE = 3


def curves_beyond(fits: CurveFits, *, seed: int = 0) -> CurveFits:
    """Curves with shared slopes; as many draws of each form as it is likely.

    Both forms count as equally likely before the data, so that the odds of Gompertz curves are
    exp(gain / 2), by how much less the loss of all curves together is with them. The fitted
    curves stay of the form that they have.

    Args:
        fits: curves.
        seed: of `share_slopes`.
    """
    shared = share_slopes(fits, seed=seed)
    if fits.logistic_only:
        return shared
    gompertz = 0.5 * (1 + float(np.tanh(fits.gompertz_gain / 4)))
    k = round(fits.drawing.draws * (1 - gompertz if fits.form == "gompertz" else gompertz))
    if not k:
        return shared
    other = share_slopes(in_other_form(fits), seed=seed)
    both = zip(other.draw_J, shared.draw_J, strict=True)
    return replace(shared, draw_J=tuple(_joined(a, b, k) for a, b in both))


def _joined(first: SigmoidFits, rest: SigmoidFits, k: int) -> SigmoidFits:
    """Draws of one configuration: k of the first, the others of the rest."""
    parts = [np.concatenate([a[:k], b[k:]]) for a, b in zip(first, rest, strict=True)]
    return SigmoidFits(*parts)


def share_slopes(fits: CurveFits, *, seed: int = 0) -> CurveFits:
    """The same curves, slopes moved towards a line in log n as far as the sweep bears it out.

    True log slopes are taken as random about the line. Their spread tau is what fitted ones
    scatter beyond the variance of their draws; a slope goes variance / (variance + tau^2) of the
    way, and midpoint, floor and ceiling follow by their regression on it in the draws. So where
    slopes differ or are well known little moves. Every draw has its own line, and misses it by
    tau. Slopes that are not identified neither count nor move.

    Args:
        fits: curves; they come back as they are where fewer than 4 slopes are identified. With
            4 the line is a constant.
        seed: of the misses.
    """
    if fits.drawing.draws < 2:  # the regression is one over draws
        return fits
    draw_DJ = np.stack([np.log(one.slope) for one in fits.draw_J], axis=1)
    low, high = CURVE_BOUNDS.slope
    inside = (fits.fit.slope > low * 1.001) & (fits.fit.slope < high / 1.001)
    known = np.flatnonzero(inside & (draw_DJ.std(axis=0) < IDENTIFIED_SD))
    if len(known) <= SPARE:
        return fits
    log_I, draw_DI = np.log(fits.fit.slope[known]), draw_DJ[:, known]
    variance_I = draw_DI.var(axis=0) + 1e-12
    log2_n_I = np.log2(fits.rollouts_per_problem_J[known])
    design = np.stack([np.ones(len(known)), log2_n_I], axis=1)[:, : len(known) - SPARE]
    tau_square = between_variance(log_I, variance_I, design)
    line = _projection(1 / (variance_I + tau_square), design)
    miss = np.random.default_rng(seed).standard_normal(draw_DI.shape) * np.sqrt(tau_square)
    excess_I, excess_DI = log_I - line @ log_I, draw_DI - draw_DI @ line.T - miss
    rows, draws = [fits.fit.row(j) for j in range(len(fits.binned))], list(fits.draw_J)
    for i, j in enumerate(known):
        one = draws[j]
        columns = np.stack([one.floor, one.ceiling, draw_DI[:, i], one.midpoint])
        follow = np.cov(columns)[2] / (variance_I[i] + tau_square)
        rows[j] = _less(rows[j], follow, excess_I[[i]])
        draws[j] = _less(one, follow, excess_DI[:, i])
    fit = SigmoidFits(*(np.concatenate(field) for field in zip(*rows, strict=True)))
    return replace(fits, fit=fit, draw_J=tuple(draws))


def between_variance(value_I: FloatArray, variance_I: FloatArray, design: FloatArray) -> float:
    """How much true values vary about a regression; 0 where the variances explain all.

    Args:
        value_I: estimates.
        variance_I: of each.
        design: of the regression, (I, parameters).

    Source: DerSimonian and Laird, Controlled Clinical Trials 7 (1986) 177, with a regression in
    place of the mean.
    """
    weight = 1 / variance_I
    line = _projection(weight, design)
    scatter = float(weight @ (value_I - line @ value_I) ** 2)
    scale = float(weight @ (1 - np.diag(line)))
    return max(0.0, (scatter - (len(value_I) - float(np.trace(line)))) / scale)


def _projection(weight_I: FloatArray, design: FloatArray) -> FloatArray:
    """Matrix (I, I) from values to those of their weighted regression."""
    root = np.sqrt(weight_I)[:, None]
    out: FloatArray = design @ np.linalg.pinv(design * root) * root.T
    return out


def _less(one: SigmoidFits, follow: FloatArray, excess_D: FloatArray) -> SigmoidFits:
    """Curves without the `excess_D` of their log slopes, each parameter by its share of it."""
    floor = np.clip(one.floor - follow[0] * excess_D, CURVE_BOUNDS.low, CURVE_BOUNDS.high)
    return one._replace(
        floor=floor,
        ceiling=np.clip(one.ceiling - follow[1] * excess_D, floor, CURVE_BOUNDS.high),
        slope=one.slope * np.exp(-follow[2] * excess_D),
        midpoint=one.midpoint - follow[3] * excess_D,
    )
