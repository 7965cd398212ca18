"""The sigmoid solver against certified answers, 50 digits and scipy, and what must not change one.

Of the 27 nonlinear problems of NIST's Statistical Reference Datasets (StRD,
https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml) two are of a form that this solver fits:
Rat42, b1 / (1 + exp(b2 - b3 x)), a logistic curve whose floor is 0, and Misra1d,
b1 b2 x / (1 + b2 x), a logistic curve of log x whose floor is 0 and whose slope is 1.

With a floor, with a ceiling held by a bound or with weights, the data of Rat42 and Rat43 have no
certified answer. Theirs were found by damped Gauss-Newton steps with 50 digits (mpmath), until no
parameter moved by 1e-35 of itself; the same program gives Rat42's certified values to all 11
digits. That they are stationary points is tested here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import least_squares

from isocompute.answers.sigmoid import (
    Bounds,
    Sigmoids,
    _levels,
    _loss,
    _residuals,
    _unit,
    fit_sigmoids,
)

WIDE = Bounds(level=(0.0, 1.0), slope=(0.5, 30.0), midpoint=(3.25, 7.75))
X = np.linspace(4.0, 7.0, 25)
TRUTH = (0.2, 0.7, 4.0, 5.5)


def curve(x, floor, ceiling, slope, midpoint):
    return floor + (ceiling - floor) / (1 + np.exp(-slope * (x - midpoint)))


def one(y, bounds=WIDE, x=X, **more) -> Sigmoids:
    return fit_sigmoids(x, y[None], bounds, **more)


def parameters(fit: Sigmoids, row: int = 0) -> dict[str, float]:
    return {
        "floor": float(fit.floor[row]),
        "ceiling": float(fit.floor[row] + fit.height[row]),
        "slope": float(fit.slope[row]),
        "midpoint": float(fit.midpoint[row]),
    }


def on_bound(fit: Sigmoids, bounds: Bounds, row: int = 0) -> bool:
    found, level = parameters(fit, row), bounds.level
    ends = {"floor": level, "ceiling": level, "slope": bounds.slope, "midpoint": bounds.midpoint}
    return any(min(np.abs(np.subtract(found[k], end))) < 1e-9 for k, end in ends.items())


RAT42 = (
    np.array([9.0, 14, 21, 28, 42, 57, 63, 70, 79]),
    np.array([8.93, 10.80, 18.59, 22.33, 39.35, 56.11, 61.73, 64.62, 67.08]),
)
RAT43 = (
    np.arange(1.0, 16.0),
    np.array([16.08, 33.83, 65.80, 97.20, 191.55, 326.20, 386.87, 520.53, 590.03, 651.92, 724.93,
              699.56, 689.96, 637.56, 717.41]),
)  # fmt: skip
MISRA1D = (
    np.array([77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1,
              689.1, 760.0]),
    np.array([10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40,
              75.47, 81.78]),
)  # fmt: skip


class Answer(NamedTuple):
    """Parameters with their standard errors, the sum of squares, and how the problem is put."""

    value: dict[str, float]
    error: dict[str, float]
    loss: float
    high: float = 1e4
    weights: bool = False


def answer(names: str, value: tuple[float, ...], error: tuple[float, ...], loss, **more) -> Answer:
    order = names.split()
    return Answer(
        dict(zip(order, value, strict=True)), dict(zip(order, error, strict=True)), loss, **more
    )


THREE, FOUR = "ceiling slope midpoint", "floor ceiling slope midpoint"
PROBLEMS = {
    "rat42, floor 0": (RAT42, answer(
        THREE, (72.462237576, 0.067359200066, 38.867398034),
        (1.7340283401, 0.0034465663377, 1.1794406322), 8.0565229338)),
    "rat42": (RAT42, answer(
        FOUR, (2.6455544138, 71.21231542, 0.07354639224, 39.647288459),
        (2.9516146019, 2.1695567015, 0.0086603281456, 1.4017904535), 7.1635610772)),
    "rat42, ceiling at a bound": (RAT42, answer(
        "floor slope midpoint", (3.7454888991, 0.077997492169, 39.548372878),
        (1.9182389206, 0.0043481755465, 1.2229091627), 7.6891129141, high=70.0)),
    "rat42, weights 1/y": (RAT42, answer(
        FOUR, (1.0572697771, 72.209994261, 0.069136346985, 39.377645747),
        (3.3022393398, 3.6720859964, 0.010646899698, 1.7378240146), 0.33759452027, weights=True)),
    "rat43, floor 0": (RAT43, answer(
        THREE, (702.87143057, 0.68856589411, 6.451907942),
        (13.939726061, 0.057371985872, 0.14322596257), 8929.8829725)),
    "rat43": (RAT43, answer(
        FOUR, (3.5203575907, 702.31528216, 0.69639003297, 6.4700621503),
        (25.939924702, 15.261983798, 0.08737565689, 0.19507783242), 8914.6028705)),
    "rat43, ceiling at a bound": (RAT43, answer(
        "floor slope midpoint", (12.159307044, 0.76152181597, 6.3897986353),
        (24.408384757, 0.086683923836, 0.18960410291), 10896.94698, high=680.0)),
    "rat43, weights 1/y": (RAT43, answer(
        FOUR, (1.2758308283, 701.04349107, 0.69065746151, 6.4585943695),
        (7.8367919073, 16.386303481, 0.055698637597, 0.13690313699), 17.570766205, weights=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_answers_are_stationary(name: str) -> None:
    (x, y), known = PROBLEMS[name]
    w = 1 / y if known.weights else np.ones(len(y))
    p = {"floor": 0.0, "ceiling": known.high} | known.value

    def residual(**changed: float) -> np.ndarray:
        q = {k: np.longdouble(v) for k, v in (p | changed).items()}
        return np.sqrt(w) * (y - curve(x, **q))

    r = residual()
    assert float(r @ r) == pytest.approx(known.loss, rel=1e-9)
    for key, value in known.value.items():
        h = np.longdouble(1e-5) * abs(value)
        column = (residual(**{key: value + h}) - residual(**{key: value - h})) / (2 * h)
        # the cosine between the residuals and what moving the parameter changes
        assert abs(float(r @ column)) < 1e-6 * float(np.sqrt((r @ r) * (column @ column)))


def fitted(x: np.ndarray, y: np.ndarray, known: Answer) -> Sigmoids:
    span = float(np.ptp(x))
    bounds = Bounds(
        level=(-1e3, known.high),
        slope=(0.5 / span, 100 / span),
        midpoint=(float(x.min()) - span, float(x.max()) + span),
    )
    weight = 1 / y if known.weights else np.ones(len(y))
    if "floor" not in known.value:  # one more point, far to the left, holds the floor at 0
        x, y, weight = np.r_[-1e6, x], np.r_[0.0, y], np.r_[1e9, weight]
    return fit_sigmoids(x, y[None], bounds, weight_X=weight)


@pytest.mark.parametrize("name", PROBLEMS)
def test_certified_values(name: str) -> None:
    data, known = PROBLEMS[name]
    fit = fitted(*data, known)
    assert fit.loss[0] == pytest.approx(known.loss, rel=1e-7)
    for key, value in known.value.items():
        # a parameter is known to a fraction of its standard error, not of itself
        assert abs(parameters(fit)[key] - value) < 1e-3 * known.error[key], key


def test_nist_rat42_to_its_digits() -> None:
    fit = fitted(*RAT42, PROBLEMS["rat42, floor 0"][1])
    assert parameters(fit)["ceiling"] == pytest.approx(72.462237576, rel=1e-5)
    assert fit.slope[0] == pytest.approx(0.067359200066, rel=1e-5)
    assert fit.slope[0] * fit.midpoint[0] == pytest.approx(2.6180768402, rel=1e-5)
    assert fit.loss[0] == pytest.approx(8.0565229338, rel=1e-6)


def test_nist_misra1d_to_its_digits() -> None:
    """b1 b2 x / (1 + b2 x) = b1 / (1 + exp(-(log x + log b2))): slope 1, midpoint -log b2."""
    x, y = np.r_[-1e6, np.log(MISRA1D[0])], np.r_[0.0, MISRA1D[1]]
    bounds = Bounds(level=(-1.0, 1e4), slope=(1.0, 1.0), midpoint=(0.0, 12.0))
    fit = one(y, bounds, x, weight_X=np.r_[1e9, np.ones(14)])
    assert parameters(fit)["ceiling"] == pytest.approx(4.3736970754e02, rel=1e-4)
    assert np.exp(-fit.midpoint[0]) == pytest.approx(3.0227324449e-04, rel=1e-4)
    assert fit.loss[0] == pytest.approx(5.6419295283e-02, rel=1e-6)


def test_noiseless_curves_are_recovered() -> None:
    rng = np.random.default_rng(0)
    floor, ceiling = rng.uniform(0.05, 0.4, 60), rng.uniform(0.5, 0.95, 60)
    slope, midpoint = np.exp(rng.uniform(0.5, 2.5, 60)), rng.uniform(4.5, 6.5, 60)
    y = np.array([curve(X, *p) for p in zip(floor, ceiling, slope, midpoint, strict=True)])
    fit = fit_sigmoids(X, y, WIDE)
    assert np.allclose(fit.value(X), y, atol=1e-6)
    assert np.allclose(fit.floor + fit.height, ceiling, atol=1e-5)
    assert np.allclose(fit.floor, floor, atol=1e-5)
    assert np.allclose(fit.midpoint, midpoint, atol=1e-4)
    assert np.allclose(fit.slope, slope, rtol=1e-3)
    assert not any(on_bound(fit, WIDE, row) for row in range(60))


def test_scipy_on_the_same_loss_finds_nothing_better() -> None:
    rng = np.random.default_rng(1)
    for _ in range(8):
        truth = (rng.uniform(0.1, 0.3), rng.uniform(0.5, 0.8), rng.uniform(2, 8), rng.uniform(5, 6))
        y = curve(X, *truth) + rng.normal(0, 0.02, len(X))
        w = rng.uniform(0.2, 2.0, len(X))
        best = min(
            least_squares(
                lambda p, y=y, w=w: np.sqrt(w) * (curve(X, *p) - y),
                (0.2, 0.6, k, m),
                bounds=([0, 0, 0.5, 3.25], [1, 1, 30, 7.75]),
            ).cost
            for k in (1.5, 6.0)
            for m in (4.8, 5.5, 6.2)
        )
        assert one(y, weight_X=w).loss[0] <= 2 * best * (1 + 1e-5)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(2)
    y = curve(X, *TRUTH) + rng.normal(0, 0.02, (70, len(X)))
    together = fit_sigmoids(X, y, WIDE)
    for d in (0, 31, 32, 69):
        assert np.allclose(one(y[d]).value(X)[0], together.value(X)[d], atol=1e-6)


def test_shift_and_scale_of_x_move_the_parameters_with_them() -> None:
    y = curve(X, *TRUTH) + np.random.default_rng(3).normal(0, 0.01, len(X))
    plain = parameters(one(y))
    moved = parameters(one(y, replace(WIDE, midpoint=(6.25, 10.75)), X + 3.0))
    assert moved["midpoint"] == pytest.approx(plain["midpoint"] + 3.0, abs=1e-3)
    assert moved["ceiling"] == pytest.approx(plain["ceiling"], abs=1e-4)
    wider = Bounds(level=WIDE.level, slope=(0.05, 3.0), midpoint=(32.5, 77.5))
    assert one(y, wider, 10 * X).slope[0] == pytest.approx(plain["slope"] / 10, rel=1e-3)


def test_weight_decides_and_zero_weight_means_absent() -> None:
    y = curve(X, *TRUTH)
    spoiled, there = y.copy(), np.ones(len(X))
    spoiled[10], there[10] = 0.9, 0.0
    assert np.allclose(one(spoiled, weight_X=there).value(X)[0], y, atol=1e-6)
    spoiled[10], spoiled[-1] = y[10], 0.1
    heavy = one(spoiled).value(X)[0]
    light = one(spoiled, weight_X=np.where(X < 7, 1.0, 1e-3)).value(X)[0]
    assert abs(light[-2] - y[-2]) < abs(heavy[-2] - y[-2]) / 10


def test_the_loss_is_a_weighted_sum() -> None:
    y = curve(X, *TRUTH) + np.random.default_rng(4).normal(0, 0.02, len(X))
    fit, double = one(y), one(y, weight_X=np.full(len(X), 2.0))
    assert fit.loss[0] == pytest.approx(((y - fit.value(X)[0]) ** 2).sum(), rel=1e-9)
    assert double.loss[0] == pytest.approx(2 * fit.loss[0], rel=1e-6)


@pytest.mark.parametrize(
    ("truth", "bounds"),
    [
        ((0.2, 0.7, 40.0, 5.5), WIDE),  # steeper than allowed
        ((0.2, 0.7, 4.0, 5.5), replace(WIDE, level=(0.0, 0.6))),  # ceiling cut
        ((0.2, 0.7, 4.0, 5.5), replace(WIDE, level=(0.3, 1.0))),  # floor cut
        ((0.2, 0.7, 4.0, 5.5), replace(WIDE, level=(0.3, 0.6))),  # both cut
        ((0.2, 0.7, 4.0, 7.6), replace(WIDE, midpoint=(3.9, 7.1))),  # midpoint beyond
    ],
)
def test_a_parameter_on_its_bound_is_flagged_kept_and_the_rest_is_best(truth, bounds) -> None:
    y = curve(X, *truth) + np.random.default_rng(5).normal(0, 0.01, len(X))
    fit = one(y, bounds)
    found = parameters(fit)
    assert on_bound(fit, bounds)
    assert bounds.level[0] - 1e-9 <= found["floor"] <= found["ceiling"] <= bounds.level[1] + 1e-9
    assert bounds.slope[0] - 1e-9 <= found["slope"] <= bounds.slope[1] + 1e-9
    (low, high), k, m = bounds.level, bounds.slope, bounds.midpoint
    best = least_squares(
        lambda p: curve(X, *p) - y,
        (0.4, 0.55, 4.0, 5.5),
        bounds=([low, low, k[0], m[0]], [high, high, k[1], m[1]]),
    )
    assert fit.loss[0] <= 2 * best.cost * (1 + 1e-5)


def test_floor_and_height_are_the_best_within_their_bounds() -> None:
    """Beside every pair of a fine grid, whichever bounds hold: none, one, both, no rise at all."""
    rng = np.random.default_rng(6)
    low, high = 0.2, 0.7
    levels = np.linspace(low, high, 126)
    floor_G, ceiling_G = (a.ravel() for a in np.meshgrid(levels, levels))
    floor_G, ceiling_G = floor_G[ceiling_G >= floor_G], ceiling_G[ceiling_G >= floor_G]
    seen = set()
    for _ in range(300):
        s, w = np.sort(rng.uniform(0, 1, 8)), rng.uniform(0.2, 2, 8)
        y = rng.uniform(-0.3, 1.2) + rng.uniform(-0.5, 1.5) * s + rng.normal(0, 0.1, 8)
        sums = (np.array([v]) for v in (w @ s, w @ s**2, w @ y, w @ (s * y)))
        floor, height = (float(v[0]) for v in _levels(w.sum(), *sums, low, high))
        assert low - 1e-12 <= floor <= floor + height <= high + 1e-12
        loss = w @ (y - floor - height * s) ** 2
        grid = (y - floor_G[:, None] - (ceiling_G - floor_G)[:, None] * s) ** 2 @ w
        assert loss <= grid.min() + 1e-9
        seen.add((floor < low + 1e-9, floor + height > high - 1e-9, height < 1e-9))
    assert len(seen) >= 6


def test_starts_are_ranked_by_what_they_leave() -> None:
    rng = np.random.default_rng(8)
    y, w, level = rng.uniform(0, 1, (3, len(X))), rng.uniform(0.2, 2, len(X)), (0.3, 0.6)
    start_Q2 = np.stack([rng.uniform(0, 3, 20), rng.uniform(4, 7, 20)], axis=1)
    ranked_DQ = _loss(_unit(start_Q2, X), y, w, level)
    for row, ranked_Q in zip(y, ranked_DQ, strict=True):
        left_Q = _residuals(X, np.tile(row, (20, 1)), w, start_Q2, level)[3]
        assert np.ptp(left_Q - ranked_Q) < 1e-9  # up to a constant of the row


@pytest.mark.parametrize("level", [(0.0, 1.0), (0.0, 0.5), (0.6, 1.0)])
def test_a_falling_curve_becomes_flat(level) -> None:
    fit = one(0.7 - 0.1 * (X - 4.0), replace(WIDE, level=level))
    assert fit.height[0] < 1e-6
    assert fit.value(X)[0] == pytest.approx(np.full(len(X), np.clip(0.55, *level)), abs=1e-6)


@pytest.mark.heavy
def test_scipy_finds_no_better_law_within_the_same_bounds() -> None:
    """Floor and plateau of a law lie on bounds as a rule: the smallest and largest n tested."""
    rng = np.random.default_rng(0)
    u = np.linspace(4.2, 6.6, 116)
    near = np.abs(u[:, None] - u) <= 0.36
    excess = []
    for _ in range(20):
        cuts = np.sort(rng.uniform(4.3, 6.5, rng.integers(1, 5)))
        steps = 3.0 + np.searchsorted(cuts, u) * float(rng.integers(1, 3))
        path = near @ steps / near.sum(axis=1)
        low, high = 3.0, max(float(path.max()), 4.0) + float(rng.integers(0, 2))
        bounds = Bounds(level=(low, high), slope=(0.42, 67.0), midpoint=(3.3, 7.5))
        ours = float(one(path, bounds, u).loss[0])
        ends = zip(
            *(bounds.level, bounds.level, np.log(bounds.slope), bounds.midpoint), strict=True
        )
        limits = [list(end) for end in ends]
        best = 2 * min(
            least_squares(
                lambda p, path=path: curve(u, p[0], p[1], np.exp(p[2]), p[3]) - path,
                (low + 0.1, high - 0.1, np.log(k / 1.2), m),
                bounds=limits,
                xtol=1e-12,
                ftol=1e-12,
                gtol=1e-12,
            ).cost
            for k in (1.0, 4.0, 16.0)
            for m in (4.6, 5.4, 6.2)
        )
        excess.append(ours / best - 1)
    assert np.median(excess) < 1e-6
    assert max(excess) < 0.01


@pytest.mark.long
def test_the_best_of_several_valleys_is_found() -> None:
    """Two steps, the higher one late: from a start near the first, Gauss-Newton stays there."""
    rng = np.random.default_rng(7)
    early, late = rng.uniform(4.3, 5.0, 40), rng.uniform(6.0, 6.7, 40)
    rise = rng.uniform(1.2, 3.0, (40, 1))
    y = 1.0 * (early[:, None] < X) + rise * (late[:, None] < X)
    bounds = Bounds(level=(-5.0, 9.0), slope=(0.3, 60.0), midpoint=(3.0, 8.0))
    fit = fit_sigmoids(X, y, bounds)
    near = [replace(bounds, midpoint=(m, m + 0.1)) for m in np.arange(3.0, 8.0, 0.1)]
    apart = np.min([fit_sigmoids(X, y, b).loss for b in near], axis=0)
    assert (fit.loss <= apart * 1.01).mean() >= 0.95
