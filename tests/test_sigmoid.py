"""The sigmoid solver against scipy, and what must not change an answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares

from isocompute.sigmoid import Bounds, SigmoidFits, candidate_grid, fit_sigmoids
from isocompute.standard_errors import standard_errors

WIDE = Bounds(low=0.0, high=1.0, slope=(0.5, 30.0), midpoint_margin=0.75)
X = np.linspace(4.0, 7.0, 25)


def curve(x, floor, ceiling, slope, midpoint):
    return floor + (ceiling - floor) / (1 + np.exp(-slope * (x - midpoint)))


def one(y, weight=None, bounds=WIDE, x=X, **more):
    weight = np.ones(len(x)) if weight is None else weight
    return fit_sigmoids(x, y[None], weight[None], bounds, **more)


def test_noiseless_curves_are_recovered() -> None:
    rng = np.random.default_rng(0)
    floor, ceiling = rng.uniform(0.05, 0.4, 60), rng.uniform(0.5, 0.95, 60)
    slope, midpoint = np.exp(rng.uniform(0.5, 2.5, 60)), rng.uniform(4.5, 6.5, 60)
    y = np.array([curve(X, *p) for p in zip(floor, ceiling, slope, midpoint, strict=True)])
    fit = fit_sigmoids(X, y, np.ones((1, len(X))), WIDE)
    assert np.allclose(fit.value(X), y, atol=1e-6)
    assert np.allclose(fit.ceiling, ceiling, atol=1e-5)
    assert np.allclose(fit.floor, floor, atol=1e-5)
    assert np.allclose(fit.midpoint, midpoint, atol=1e-4)
    assert np.allclose(fit.slope, slope, rtol=1e-3)
    assert not fit.on_bound.any()


def test_standard_errors_are_the_spread_of_refits() -> None:
    rng = np.random.default_rng(3)
    truth = curve(X, 0.2, 0.7, 4.0, 5.3)
    y = truth + rng.normal(0, 0.01, (2000, len(X)))
    fits = fit_sigmoids(X, y, np.ones((1, len(X))), WIDE)
    errors = standard_errors(X, y[0], np.ones(len(X)), fits.row(0))
    for name in ("floor", "ceiling", "slope", "midpoint"):
        assert errors[name] == pytest.approx(np.std(getattr(fits, name)), rel=0.35)


def test_standard_errors_need_more_points_than_parameters() -> None:
    y = curve(X, 0.2, 0.7, 4.0, 5.3)
    weight = np.where(np.arange(len(X)) % 7 == 0, 1.0, 0.0)
    fit = one(y, weight)
    assert set(standard_errors(X, y, weight, fit).values()) == {float("inf")}
    flat = one(np.full(len(X), 0.5))
    assert set(standard_errors(X, np.full(len(X), 0.5), np.ones(len(X)), flat).values()) == {
        float("inf")
    }


def test_scipy_on_the_same_loss_finds_nothing_better() -> None:
    rng = np.random.default_rng(1)
    for _ in range(8):
        truth = (rng.uniform(0.1, 0.3), rng.uniform(0.5, 0.8), rng.uniform(2, 8), rng.uniform(5, 6))
        y = curve(X, *truth) + rng.normal(0, 0.02, len(X))
        w = rng.uniform(0.2, 2.0, len(X))
        ours = one(y, w)
        best = min(
            least_squares(
                lambda p, y=y, w=w: np.sqrt(w) * (curve(X, *p) - y),
                (0.2, 0.6, k, m),
                bounds=([0, 0, 0.5, 3.25], [1, 1, 30, 7.75]),
            ).cost
            for k in (1.5, 6.0)
            for m in (4.8, 5.5, 6.2)
        )
        assert ours.loss[0] <= 2 * best * (1 + 1e-5)


def gompertz(x, floor, ceiling, slope, midpoint):
    return floor + (ceiling - floor) * np.exp(-np.exp(-slope * (x - midpoint)))


def test_gompertz_curves_are_recovered_and_scipy_finds_nothing_better() -> None:
    bounds = replace(WIDE, gompertz=True)
    rng = np.random.default_rng(4)
    for _ in range(8):
        truth = (rng.uniform(0.1, 0.3), rng.uniform(0.5, 0.8), rng.uniform(2, 8), rng.uniform(5, 6))
        exact = one(gompertz(X, *truth), bounds=bounds)
        found = [float(getattr(exact, k)[0]) for k in ("floor", "ceiling", "slope", "midpoint")]
        assert found == pytest.approx(truth, rel=1e-3)
        assert exact.gompertz.all()
        y = gompertz(X, *truth) + rng.normal(0, 0.02, len(X))
        best = min(
            least_squares(
                lambda p, y=y: gompertz(X, *p) - y,
                (0.2, 0.6, k, m),
                bounds=([0, 0, 0.5, 3.25], [1, 1, 30, 7.75]),
            ).cost
            for k in (1.5, 6.0)
            for m in (4.8, 5.5, 6.2)
        )
        assert one(y, bounds=bounds).loss[0] <= 2 * best * (1 + 1e-5)


def test_fits_of_both_forms_stand_side_by_side() -> None:
    y = curve(X, 0.2, 0.7, 4.0, 5.5)
    two = one(y), one(y, bounds=replace(WIDE, gompertz=True))
    both = type(two[0])(*(np.concatenate(field) for field in zip(*two, strict=True)))
    assert np.array_equal(both.value(X), np.concatenate([fit.value(X) for fit in two]))
    assert two[0].loss[0] < 1e-9 < two[1].loss[0]


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(2)
    y = curve(X, 0.2, 0.7, 4.0, 5.5) + rng.normal(0, 0.02, (7, len(X)))
    w = rng.uniform(0.5, 1.5, (7, len(X)))
    together = fit_sigmoids(X, y, w, WIDE)
    for d in range(7):
        alone = fit_sigmoids(X, y[d : d + 1], w[d : d + 1], WIDE)
        assert np.allclose(alone.value(X), together.row(d).value(X), atol=1e-6)


def test_shift_and_scale_of_x_move_the_parameters_with_them() -> None:
    y = curve(X, 0.2, 0.7, 4.0, 5.5) + np.random.default_rng(3).normal(0, 0.01, len(X))
    plain, moved = one(y), one(y, x=X + 3.0)
    assert moved.midpoint[0] == pytest.approx(plain.midpoint[0] + 3.0, abs=1e-3)
    assert moved.ceiling[0] == pytest.approx(plain.ceiling[0], abs=1e-4)


def test_weight_decides_and_zero_weight_means_absent() -> None:
    y = curve(X, 0.2, 0.7, 4.0, 5.5)
    spoiled = y.copy()
    spoiled[10] = np.nan
    weight = np.ones(len(X))
    weight[10] = 0.0
    assert np.allclose(one(spoiled, weight).value(X)[0], y, atol=1e-6)
    outlier = y.copy()
    outlier[-1] = 0.1
    heavy, light = one(outlier).value(X)[0], one(outlier, np.where(X < 7, 1.0, 1e-3)).value(X)[0]
    assert abs(light[-2] - y[-2]) < abs(heavy[-2] - y[-2]) / 10


def test_the_loss_is_a_weighted_sum() -> None:
    y = curve(X, 0.2, 0.7, 4.0, 5.5) + np.random.default_rng(4).normal(0, 0.02, len(X))
    fit, double = one(y), one(y, np.full(len(X), 2.0))
    assert fit.loss[0] == pytest.approx(((y - fit.value(X)[0]) ** 2).sum(), rel=1e-6)
    assert double.loss[0] == pytest.approx(2 * fit.loss[0], rel=1e-6)


@pytest.mark.parametrize(
    ("truth", "bounds"),
    [
        ((0.2, 0.7, 40.0, 5.5), WIDE),  # steeper than allowed
        ((0.2, 0.7, 4.0, 5.5), Bounds(low=0.0, high=0.6, slope=(0.5, 30.0))),  # ceiling cut
        ((0.2, 0.7, 4.0, 5.5), Bounds(low=0.3, high=1.0, slope=(0.5, 30.0))),  # floor cut
        ((0.2, 0.7, 4.0, 7.6), Bounds(slope=(0.5, 30.0), midpoint_margin=0.1)),  # midpoint beyond
    ],
)
def test_a_parameter_on_its_bound_is_flagged_and_kept(truth, bounds) -> None:
    fit = one(curve(X, *truth), bounds=bounds)
    assert fit.on_bound[0]
    assert bounds.low - 1e-9 <= fit.floor[0] <= fit.ceiling[0] <= bounds.high + 1e-9
    assert bounds.slope[0] - 1e-9 <= fit.slope[0] <= bounds.slope[1] + 1e-9


def test_a_falling_curve_becomes_flat() -> None:
    fit = one(0.7 - 0.1 * (X - 4.0))
    assert fit.ceiling[0] - fit.floor[0] < 1e-6
    assert fit.value(X)[0] == pytest.approx(np.full(len(X), 0.55), abs=1e-6)


def test_an_anchor_sets_the_floor() -> None:
    late = X[X > 5.6]
    y = curve(late, 0.3, 0.7, 4.0, 5.5)
    free = one(y, x=late)
    low = one(y, x=late, anchor=(np.array([0.1]), np.array([100.0])))
    held = one(y, x=late, anchor=(np.array([0.3]), np.array([100.0])))
    assert abs(held.floor[0] - 0.3) < 1e-3
    assert low.floor[0] < held.floor[0] - 0.05
    assert low.loss[0] > free.loss[0]


def test_a_given_grid_is_used() -> None:
    y = curve(X, 0.2, 0.7, 4.0, 5.5)
    coarse = candidate_grid(X, WIDE, n_slopes=4, midpoint_step=0.5)
    assert len(coarse.slope_Q) < len(candidate_grid(X, WIDE).slope_Q)
    assert np.allclose(one(y, grid=coarse).value(X), y, atol=1e-5)


@pytest.mark.parametrize("form", ["logistic", "gompertz"])
def test_half_of_the_rise_is_made_half_way(form: str) -> None:
    fit = SigmoidFits(*(np.array([v]) for v in (0.2, 0.8, 3.0, 5.0, 0.0, False)),
                      np.array([form == "gompertz"]), np.array([np.inf]))  # fmt: skip
    assert fit.value(fit.half_way)[0, 0] == pytest.approx(0.5)
