"""Means over the runs of each configuration, the curves through them, and which form these have.

Shape legend: J configurations, R runs of one, X bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.bins import MIN_POINTS, BinnedRuns, position
from isocompute.curves.draws import CURVE_BOUNDS, expected_sd
from isocompute.sigmoid import Bounds, SigmoidFits, fit_each

FloatArray = NDArray[np.float64]

HUBER = 2.5  # standardised residuals beyond this count linearly
_OFFSET_ROUNDS = 10
GOMPERTZ_BOUNDS = replace(CURVE_BOUNDS, gompertz=True)
# Gompertz curves are taken where all curves together are 20 times as likely under them: twice the
# log of that in the summed loss.
LIKELIER = 2 * float(np.log(20))
# A bin this many standard errors below the score at step 0 is a dip. Some 50 early bins are looked
# at: 2 would find one in most sweeps without any.
DIP_Z = 2.5


class Means(NamedTuple):
    """Curves fitted to the means over runs; the anchor's parts have the shape (J,).

    `strict_records`: whether bins that broke no record were left out of the means.
    """

    x_JX: FloatArray
    mean_JX: FloatArray
    weight_JX: FloatArray
    anchor: tuple[FloatArray, FloatArray]
    fit: SigmoidFits
    run_variance: float
    seeds_known: bool
    bounds: Bounds
    strict_records: bool


def fit_means(
    binned: Sequence[BinnedRuns], unit: str, *, strict_records: bool, logistic_only: bool
) -> tuple[Means, float]:
    """Curves of the likelier form, and by how much less the loss is with Gompertz curves."""
    base = _measured_start(binned, unit)
    logistic = _fitted(binned, base, strict_records, CURVE_BOUNDS)
    gain = _gompertz_gain(binned, logistic, base)
    if logistic_only or gain <= LIKELIER:
        return logistic, gain
    return _fitted(binned, base, strict_records, GOMPERTZ_BOUNDS), gain


def means_in_other_form(binned: Sequence[BinnedRuns], of: Means, unit: str) -> Means:
    """Logistic curves in place of Gompertz ones, or the reverse."""
    bounds = CURVE_BOUNDS if of.bounds.gompertz else GOMPERTZ_BOUNDS
    return _fitted(binned, _measured_start(binned, unit), of.strict_records, bounds)


def _gompertz_gain(binned: Sequence[BinnedRuns], of: Means, start: float | None) -> float:
    """By how much less the summed loss is with Gompertz curves, early dips left out.

    A dip before the rise, or the level that stands in for it, looks like a late take-off, which is
    how Gompertz curves begin; it says nothing of how a curve bends towards its ceiling.
    """
    weight_JX, anchor_weight_J = of.weight_JX.copy(), of.anchor[1].copy()
    for j, one in enumerate(binned):
        early = one.x_X < of.fit.half_way[j]
        dip = np.flatnonzero(early & _dips(one, start, of.run_variance))
        if len(dip) and np.count_nonzero(weight_JX[j, dip[-1] + 1 :]) >= MIN_POINTS:
            weight_JX[j, : dip[-1] + 1] = anchor_weight_J[j] = 0.0
    logistic, gompertz = (
        fit_each(of.x_JX, of.mean_JX, weight_JX, bounds, (of.anchor[0], anchor_weight_J))
        for bounds in (CURVE_BOUNDS, GOMPERTZ_BOUNDS)
    )
    return float(logistic.loss.sum() - gompertz.loss.sum())


def _dips(one: BinnedRuns, start: float | None, run_variance: float) -> NDArray[np.bool_]:
    """Bins (X,) dominated in some run, or whose mean over runs surely lies below the start."""
    has = np.isfinite(one.mean_RX)
    n = np.maximum(has.sum(axis=0), 1)
    mean = np.where(has, one.mean_RX, 0.0).sum(axis=0) / n
    sd = np.sqrt(np.where(has, expected_sd(one, run_variance) ** 2, 0.0).sum(axis=0)) / n
    limit = -np.inf if start is None else start - DIP_Z * sd
    found: NDArray[np.bool_] = one.dominated_RX.any(axis=0) | (has.any(axis=0) & (mean < limit))
    return found


def _fitted(
    binned: Sequence[BinnedRuns], base: float | None, strict: bool, bounds: Bounds
) -> Means:
    x_JX = np.stack([one.x_X for one in binned])
    seeds_known = any(len(b.runs) > 1 for b in binned)
    run_variance = _between_run_variance(binned) if seeds_known else 0.0
    held_J = np.array([one.held_from for one in binned])
    for _ in range(1 if seeds_known else 2):
        # Without seeds the misfit of the first fit stands for the spread between runs.
        curves_of = [_mean_curve(one, run_variance, strict) for one in binned]
        mean_JX, variance_JX = (np.stack(part) for part in zip(*curves_of, strict=True))
        anchor = _anchor(base, variance_JX)
        fit, weight_JX = _robust_fits(x_JX, mean_JX, variance_JX, anchor, bounds, held_J)
        if not seeds_known and run_variance == 0.0:
            run_variance = _misfit_variance(binned, mean_JX, fit)
    return Means(x_JX, mean_JX, weight_JX, anchor, fit, run_variance, seeds_known, bounds, strict)


def _measured_start(binned: Sequence[BinnedRuns], unit: str) -> float | None:
    """Mean score at step 0: every run starts from the same base model."""
    scores = [c.score_K[position(c, unit) == 0] for one in binned for c in one.runs]
    found = np.concatenate(scores)
    return float(found.mean()) if len(found) else None


def _anchor(start: float | None, variance_JX: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The score at step 0 as one more point, of the weight of one bin, where log C is -infinity."""
    J = len(variance_JX)
    weight_J = np.zeros(J) if start is None else 1.0 / np.nanmedian(variance_JX, axis=1)
    return np.full(J, start or 0.0), weight_J


def _mean_curve(
    one: BinnedRuns, run_variance: float, strict: bool
) -> tuple[FloatArray, FloatArray]:
    """Mean over runs and its variance, shape (X,); NaN where no run has data."""
    value = np.where(one.dominated_RX, np.nan, one.best_RX) if strict else one.best_RX
    has = np.isfinite(value)
    n = has.sum(axis=0)
    safe = np.maximum(n, 1)
    # A run that ends early must not bend the mean where it ends: runs differ by a constant,
    # which is estimated where they overlap (and is zero on average over the runs).
    offset = np.zeros((len(value), 1))
    mean = np.zeros(value.shape[1])
    for _ in range(1 if (has == has[0]).all() else _OFFSET_ROUNDS):
        mean = np.where(has, value - offset, 0.0).sum(axis=0) / safe
        own = np.where(has, value - mean, 0.0).sum(axis=1, keepdims=True)
        offset = own / np.maximum(has.sum(axis=1, keepdims=True), 1)
        offset -= offset.mean()
    variance = np.where(has, expected_sd(one, run_variance) ** 2, 0.0).sum(axis=0) / safe**2
    return np.where(n > 0, mean, np.nan), np.where(n > 0, variance, np.nan)


def _between_run_variance(binned: Sequence[BinnedRuns]) -> float:
    """Spread between runs beyond evaluation noise, pooled over configurations and bins."""
    excess, freedom = 0.0, 0
    for one in binned:
        has = np.isfinite(one.best_RX)
        n = has.sum(axis=0)
        use = n > 1
        if not use.any():
            continue
        best = np.where(has, one.best_RX, 0.0)[:, use]
        mean = best.sum(axis=0) / n[use]
        square = (np.where(has[:, use], best - mean, 0.0) ** 2).sum(axis=0)
        noise = np.where(has, one.variance_RX, 0.0)[:, use].sum(axis=0) / n[use] * (n[use] - 1)
        excess += float((square - noise).sum())
        freedom += int((n[use] - 1).sum())
    return max(excess / max(freedom, 1), 0.0)


def _misfit_variance(binned: Sequence[BinnedRuns], mean_JX: FloatArray, fit: SigmoidFits) -> float:
    excess, freedom = 0.0, 0
    for j, (one, mean) in enumerate(zip(binned, mean_JX, strict=True)):
        has = np.isfinite(mean)
        if (k := int(has.sum())) <= 4:
            continue
        residual = np.where(has, mean - fit.row(j).value(one.x_X)[0], 0.0)
        noise = float(np.nanmean(np.where(np.isfinite(one.best_RX), one.variance_RX, np.nan)))
        excess += float((residual**2).sum()) - noise * (k - 4)
        freedom += k - 4
    return max(excess / max(freedom, 1), 0.0)


def _robust_fits(
    x_JX: FloatArray,
    mean_JX: FloatArray,
    variance_JX: FloatArray,
    anchor: tuple[FloatArray, FloatArray],
    bounds: Bounds,
    held_J: FloatArray,
) -> tuple[SigmoidFits, FloatArray]:
    """Huber's loss by reweighting, its corner tied to the expected noise; and the weights."""
    has = np.isfinite(mean_JX) & (x_JX <= held_J[:, None])
    y_JX = np.where(has, mean_JX, 0.0)
    base_JX = np.where(has, 1.0 / np.where(has, variance_JX, 1.0), 0.0)
    weight_JX = base_JX.copy()
    fit = fit_each(x_JX, y_JX, base_JX, bounds, anchor)
    moved = np.arange(len(y_JX))
    for _ in range(2):
        residual = np.abs(y_JX - fit.value(x_JX)) * np.sqrt(base_JX)
        middle = np.nanmedian(np.where(base_JX > 0, residual, np.nan), axis=1, keepdims=True)
        corner = HUBER * np.maximum(1.0, middle / 0.6745)
        new_JX = base_JX * np.minimum(1.0, corner / np.maximum(residual, 1e-12))
        moved = moved[~np.isclose(new_JX, weight_JX, rtol=1e-3).all(axis=1)[moved]]
        if not len(moved):
            break
        weight_JX[moved] = new_JX[moved]
        of = anchor[0][moved], anchor[1][moved]
        again = fit_each(x_JX[moved], y_JX[moved], weight_JX[moved], bounds, of)
        for whole, part in zip(fit, again, strict=True):
            whole[moved] = part
    return fit._replace(held=held_J), weight_JX
