"""What the curves would be had other runs been drawn; see `curves.fits` for the units.

Shape legend: R runs of one configuration, X bins, D draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.bins import WINDOW, BinnedRuns
from isocompute.sigmoid import Bounds, SigmoidFits, candidate_grid, fit_sigmoids

FloatArray = NDArray[np.float64]

CURVE_BOUNDS = Bounds(low=0.0, high=1.0, slope=(1.0, 30.0), midpoint_margin=0.75)
_NEGLIGIBLE = 1e-4  # floor of a bin's standard deviation: a score is read to four digits


def expected_sd(one: BinnedRuns, run_variance: float) -> FloatArray:
    """Expected spread of a run's bins about the truth, shape (R, X)."""
    return np.sqrt(one.variance_RX + run_variance + _NEGLIGIBLE**2)


def deviation_pool(
    binned: Sequence[BinnedRuns],
    means: Sequence[FloatArray],
    run_variance: float,
    seeds_known: bool,
) -> tuple[FloatArray, float]:
    """Standardised deviations of whole runs, shape (number of runs, X), and their freedom.

    Without seeds there are none: what a run leaves over of its own fit is orthogonal to it, so
    that a refit would not move. The pool is then empty.
    """
    pool, freedom = [], 0.0
    for one, mean in zip(binned, means, strict=True):
        R = len(one.runs)
        if R < 2:
            freedom += 0.0 if seeds_known else max(one.n_points - 4, 0)
            continue
        deviation = (one.best_RX - mean) / expected_sd(one, run_variance)
        n = np.isfinite(deviation).sum(axis=0)
        deviation = deviation * np.sqrt(np.where(n > 1, n / np.maximum(n - 1, 1), np.nan))
        freedom += R - 1
        for row in deviation:
            known = np.flatnonzero(np.isfinite(row))
            if len(known):
                # Bins that the donor lacks take its nearest value: deviations have run-length.
                nearest = known[np.abs(np.arange(len(row))[:, None] - known[None]).argmin(axis=1)]
                pool.append(row[nearest])
    return np.array(pool).reshape(len(pool), binned[0].best_RX.shape[1]), max(freedom, 1.0)


def draw_fits(
    one: BinnedRuns,
    fit: SigmoidFits,
    weight_X: FloatArray,
    anchor: tuple[FloatArray, FloatArray],
    pool: FloatArray,
    freedom: float,
    run_variance: float,
    draws: int,
    rng: np.random.Generator,
) -> SigmoidFits:
    """Curves of one configuration fitted to what its runs might have scored, D of them."""
    R, x_X = len(one.runs), one.x_X
    # A draw lies near the fit, so a coarser set of starts finds it.
    span = float(x_X[-1] - x_X[0]) + 2 * CURVE_BOUNDS.midpoint_margin
    grid = candidate_grid(x_X, CURVE_BOUNDS, n_slopes=8, midpoint_step=span / 30)
    has = np.isfinite(one.best_RX)
    if len(pool):
        sd = np.where(has, expected_sd(one, run_variance), 0.0)
        donor = rng.integers(len(pool), size=(draws, R))
        sign = rng.choice((-1.0, 1.0), size=(draws, R, 1))
        deviation = np.einsum("drx,rx->dx", sign * pool[donor], sd)
        deviation /= np.maximum(has.sum(axis=0), 1)
    else:
        deviation = _noise_within_run(one, has[0], run_variance, draws, rng)
    widen = np.sqrt(freedom / rng.chisquare(freedom, size=(draws, 1)))
    y_DX = fit.value(x_X) + widen * deviation
    value, weight = anchor
    jitter = rng.standard_normal(draws) * widen[:, 0] / np.sqrt(np.maximum(weight, 1e-12))
    anchor = (np.clip(value + jitter, 0.0, 1.0), np.broadcast_to(weight, (draws,)))
    return fit_sigmoids(x_X, y_DX, weight_X[None], CURVE_BOUNDS, grid=grid, anchor=anchor)


def _noise_within_run(
    one: BinnedRuns,
    has_X: NDArray[np.bool_],
    misfit_variance: float,
    draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Evaluation noise, new in each bin, and misfit, which lasts for a window, shape (D, X)."""
    noise = np.sqrt(np.where(has_X, one.variance_RX[0], 0.0) + _NEGLIGIBLE**2)
    n_blocks = int(np.ptp(one.x_X) / WINDOW) + 3
    block = ((one.x_X - one.x_X[0]) / WINDOW + rng.uniform(size=(draws, 1))).astype(np.int64)
    wave = np.take_along_axis(rng.standard_normal((draws, n_blocks)), block, axis=1)
    out: FloatArray = np.where(
        has_X,
        noise * rng.standard_normal((draws, len(noise))) + np.sqrt(misfit_variance) * wave,
        0.0,
    )
    return out


def spread_ceilings(draws: SigmoidFits, sd: float, rng: np.random.Generator) -> SigmoidFits:
    """Ceilings moved by an assumed spread between seeds, in units of sqrt(p (1 - p))."""
    p = np.clip(draws.ceiling, 0.002, 0.998)
    ceiling = draws.ceiling + sd * np.sqrt(p * (1 - p)) * rng.standard_normal(len(p))
    return draws._replace(ceiling=np.clip(ceiling, draws.floor, CURVE_BOUNDS.high))
