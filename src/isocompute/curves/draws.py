"""What the curves would be had other runs been drawn; see `curves.fits` for the units.

Shape legend: R runs of one configuration, X bins, D draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


class Pool(NamedTuple):
    """Standardised deviations of whole runs from their configurations' means.

    Args:
        deviation_PX: P runs; 0 outside a run's data.
        first_P, last_P: bins between which a run has data.
        midpoint_P: bin of the midpoint of each run's configuration, inside its data.
        freedom: degrees of freedom.
    """

    deviation_PX: FloatArray
    first_P: NDArray[np.int64]
    last_P: NDArray[np.int64]
    midpoint_P: NDArray[np.int64]
    freedom: float


def deviation_pool(
    binned: Sequence[BinnedRuns],
    mean_JX: FloatArray,
    midpoint_J: FloatArray,
    run_variance: float,
    seeds_known: bool,
) -> Pool:
    """The deviations that draws are made of.

    Without seeds there are none: what a run leaves over of its own fit is orthogonal to it, so
    that a refit would not move. The pool is then empty.
    """
    pool: list[FloatArray] = []
    place: list[tuple[int, int, int]] = []
    freedom = 0.0
    for one, mean, midpoint in zip(binned, mean_JX, midpoint_J, strict=True):
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
                nearest = known[np.abs(np.arange(len(row))[:, None] - known[None]).argmin(axis=1)]
                pool.append(row[nearest])
                first, last = int(known[0]), int(known[-1])
                place.append((first, last, min(max(nearest_bin(one.x_X, midpoint), first), last)))
    X = binned[0].best_RX.shape[1]
    first_P, last_P, middle_P = np.array(place, dtype=np.int64).reshape(len(pool), 3).T
    return Pool(np.array(pool).reshape(len(pool), X), first_P, last_P, middle_P, max(freedom, 1.0))


def nearest_bin(x_X: FloatArray, x: float) -> int:
    """Index of the bin nearest to a log10 x."""
    return int(np.abs(x_X - x).argmin())


def aligned(pool: Pool, midpoint: int) -> FloatArray:
    """The pool's deviations moved so that midpoints meet, (P, X); what is missing is mirrored.

    Seeds part in one way where a curve is steep and in another on its plateau, so a deviation
    belongs to a phase of the curve. Mirrored, not repeated: one bin again and again would turn
    its evaluation noise into a shift of a whole plateau.
    """
    X = pool.deviation_PX.shape[1]
    span = np.maximum(pool.last_P - pool.first_P, 1)[:, None]
    place = np.arange(X) - (midpoint - pool.midpoint_P)[:, None] - pool.first_P[:, None]
    place = place % (2 * span)
    place = pool.first_P[:, None] + np.minimum(place, 2 * span - place)
    return np.take_along_axis(pool.deviation_PX, np.minimum(place, X - 1), axis=1)


def draw_fits(
    one: BinnedRuns,
    fit: SigmoidFits,
    weight_X: FloatArray,
    anchor: tuple[FloatArray, FloatArray],
    pool: Pool,
    run_variance: float,
    draws: int,
    rng: np.random.Generator,
    bounds: Bounds = CURVE_BOUNDS,
) -> SigmoidFits:
    """Curves of one configuration fitted to what its runs might have scored, D of them."""
    R, x_X = len(one.runs), one.x_X
    # A draw lies near the fit, so a coarser set of starts finds it.
    span = float(x_X[-1] - x_X[0]) + 2 * bounds.midpoint_margin
    grid = candidate_grid(x_X, bounds, n_slopes=8, midpoint_step=span / 30)
    has = np.isfinite(one.best_RX)
    if len(pool.midpoint_P):
        middle = nearest_bin(x_X, float(fit.midpoint[0]))
        has_X = np.flatnonzero(has.any(axis=0))
        donors = aligned(pool, int(np.clip(middle, has_X[0], has_X[-1])))
        sd = np.where(has, expected_sd(one, run_variance), 0.0)
        donor = rng.integers(len(donors), size=(draws, R))
        sign = rng.choice((-1.0, 1.0), size=(draws, R, 1))
        deviation = np.einsum("drx,rx->dx", sign * donors[donor], sd)
        deviation /= np.maximum(has.sum(axis=0), 1)
    else:
        deviation = _noise_within_run(one, has[0], run_variance, draws, rng)
    widen = np.sqrt(pool.freedom / rng.chisquare(pool.freedom, size=(draws, 1)))
    y_DX = fit.value(x_X) + widen * deviation
    value, weight = anchor
    jitter = rng.standard_normal(draws) * widen[:, 0] / np.sqrt(np.maximum(weight, 1e-12))
    base = np.clip(value + jitter, 0.0, 1.0)
    drawn = fit_sigmoids(x_X, y_DX, weight_X[None], bounds, grid=grid, anchor=(base, weight))
    return drawn._replace(held=np.full(draws, fit.held[0]))


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
