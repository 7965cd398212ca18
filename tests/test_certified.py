"""The sigmoid solver and its standard errors against certified and 50-digit answers.

Of the 27 nonlinear problems of NIST's Statistical Reference Datasets (StRD,
https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml) two are of a form that this solver fits:
Rat42, b1 / (1 + exp(b2 - b3 x)), a logistic curve whose floor is 0, and Misra1d,
b1 b2 x / (1 + b2 x), a logistic curve of log x whose floor is 0 and whose slope is 1. Rat43 has a
power of a logistic curve, the others are sums of exponentials, powers, peaks or rational functions:
they cannot be expressed.

With a floor, as Gompertz curves, with an end held by a bound or with weights, the data of Rat42 and
Rat43 have no certified answer. Theirs were found by damped Gauss-Newton steps with 50 digits
(mpmath), until no parameter moved by 1e-35 of itself; the same program gives Rat42's certified
values and standard errors to all 11 digits. That they are stationary points is tested here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import least_squares

from isocompute.laws.form import averaged, fit_paths
from isocompute.sigmoid import Bounds, SigmoidFits, fit_sigmoids
from isocompute.standard_errors import standard_errors

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
HELD = (np.array([0.0]), np.array([1e9]))  # a point at x = -infinity that holds the floor at 0


class Answer(NamedTuple):
    """Parameters and their standard errors, the sum of squares, and how the problem is put."""

    value: dict[str, float]
    error: dict[str, float]
    loss: float
    gompertz: bool = False
    high: float = 1e4
    weights: bool = False


def answer(
    names: str, value: tuple[float, ...], error: tuple[float, ...], loss: float, **more: Any
) -> Answer:
    order = names.split()
    return Answer(
        dict(zip(order, value, strict=True)), dict(zip(order, error, strict=True)), loss, **more
    )


THREE, FOUR = "ceiling slope midpoint", "floor ceiling slope midpoint"
PROBLEMS = {
    "rat42": (RAT42, {
        "logistic, floor 0": answer(
            THREE, (72.462237576, 0.067359200066, 38.867398034),
            (1.7340283401, 0.0034465663377, 1.1794406322), 8.0565229338),
        "logistic": answer(
            FOUR, (2.6455544138, 71.21231542, 0.07354639224, 39.647288459),
            (2.9516146019, 2.1695567015, 0.0086603281456, 1.4017904535), 7.1635610772),
        "Gompertz, floor 0": answer(
            THREE, (82.832189597, 0.037074911568, 33.006517351),
            (5.6975077411, 0.0043526372565, 2.5409023905), 21.793990018, gompertz=True),
        "Gompertz": answer(
            FOUR, (7.8506909741, 75.525722352, 0.050013906537, 35.696110452),
            (2.3405768919, 3.8311594979, 0.0071431199345, 1.6878176015), 11.882796862,
            gompertz=True),
        "logistic, ceiling at a bound": answer(
            "floor slope midpoint", (3.7454888991, 0.077997492169, 39.548372878),
            (1.9182389206, 0.0043481755465, 1.2229091627), 7.6891129141, high=70.0),
        "logistic, weights 1/y": answer(
            FOUR, (1.0572697771, 72.209994261, 0.069136346985, 39.377645747),
            (3.3022393398, 3.6720859964, 0.010646899698, 1.7378240146), 0.33759452027,
            weights=True),
    }),
    "rat43": (RAT43, {
        "logistic, floor 0": answer(
            THREE, (702.87143057, 0.68856589411, 6.451907942),
            (13.939726061, 0.057371985872, 0.14322596257), 8929.8829725),
        "logistic": answer(
            FOUR, (3.5203575907, 702.31528216, 0.69639003297, 6.4700621503),
            (25.939924702, 15.261983798, 0.08737565689, 0.19507783242), 8914.6028705),
        "Gompertz, floor 0": answer(
            THREE, (723.10862346, 0.45010312409, 5.5546915299),
            (22.060467267, 0.051776147905, 0.1679196437), 13606.142708, gompertz=True),
        "Gompertz": answer(
            FOUR, (34.828900173, 714.95520311, 0.50002385937, 5.7935137772),
            (20.070150812, 19.867428902, 0.063467142549, 0.19868112521), 11088.706977,
            gompertz=True),
        "logistic, ceiling at a bound": answer(
            "floor slope midpoint", (12.159307044, 0.76152181597, 6.3897986353),
            (24.408384757, 0.086683923836, 0.18960410291), 10896.94698, high=680.0),
        "logistic, weights 1/y": answer(
            FOUR, (1.2758308283, 701.04349107, 0.69065746151, 6.4585943695),
            (7.8367919073, 16.386303481, 0.055698637597, 0.13690313699), 17.570766205,
            weights=True),
    }),
}  # fmt: skip
EACH = [(data, form) for data, (_, forms) in PROBLEMS.items() for form in forms]


def data_of(name: str, form: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, Answer]:
    (x, y), forms = PROBLEMS[name]
    known = forms[form]
    return x, y, 1 / y if known.weights else np.ones(len(y)), known


@pytest.mark.parametrize(("name", "form"), EACH)
def test_the_answers_are_stationary(name: str, form: str) -> None:
    x, y, w, known = data_of(name, form)
    p = {"floor": 0.0, "ceiling": known.high} | known.value

    def residual(**changed: float) -> np.ndarray:
        q = {k: np.longdouble(v) for k, v in (p | changed).items()}
        z = q["slope"] * (x - q["midpoint"])
        s = np.exp(-np.exp(-z)) if known.gompertz else 1 / (1 + np.exp(-z))
        return np.sqrt(w) * (y - q["floor"] - (q["ceiling"] - q["floor"]) * s)

    r = residual()
    assert float(r @ r) == pytest.approx(known.loss, rel=1e-9)
    for key, value in known.value.items():
        h = np.longdouble(1e-5) * abs(value)
        column = (residual(**{key: value + h}) - residual(**{key: value - h})) / (2 * h)
        # the cosine between the residuals and what moving the parameter changes
        assert abs(float(r @ column)) < 1e-6 * float(np.sqrt((r @ r) * (column @ column)))


def fitted(x: np.ndarray, y: np.ndarray, w: np.ndarray, known: Answer) -> SigmoidFits:
    span = float(np.ptp(x))
    bounds = Bounds(
        low=-1e3 if "floor" in known.value else 0.0, high=known.high,
        slope=(0.5 / span, 100 / span), midpoint_margin=span, gompertz=known.gompertz,
    )  # fmt: skip
    anchor = None if "floor" in known.value else HELD
    return fit_sigmoids(x, y[None], w[None], bounds, anchor=anchor)


@pytest.mark.parametrize(("name", "form"), EACH)
def test_values_and_standard_errors(name: str, form: str) -> None:
    x, y, w, known = data_of(name, form)
    fit = fitted(x, y, w, known)
    assert fit.loss[0] == pytest.approx(known.loss, rel=1e-7)
    held = tuple(k for k in ("floor", "ceiling", "slope", "midpoint") if k not in known.value)
    errors = standard_errors(x, y, w, fit, known=held)
    assert set(errors) == set(known.error)
    for key, value in known.value.items():
        # a parameter is known to a fraction of its standard error, not of itself
        assert abs(float(getattr(fit, key)[0]) - value) < 1e-3 * known.error[key], key
        assert errors[key] == pytest.approx(known.error[key], rel=2e-3), key


def test_nist_rat42_to_its_digits() -> None:
    """Certified: b1, b2, b3, their standard deviations and the residual sum of squares."""
    fit = fitted(*data_of("rat42", "logistic, floor 0"))
    assert fit.ceiling[0] == pytest.approx(72.462237576, rel=1e-5)
    assert fit.slope[0] == pytest.approx(0.067359200066, rel=1e-5)
    assert fit.slope[0] * fit.midpoint[0] == pytest.approx(2.6180768402, rel=1e-5)
    assert fit.loss[0] == pytest.approx(8.0565229338, rel=1e-6)
    error = standard_errors(*RAT42, np.ones(9), fit, known=("floor",))
    assert error["ceiling"] == pytest.approx(1.7340283401, rel=1e-4)
    assert error["slope"] == pytest.approx(3.4465663377e-3, rel=1e-4)


def test_nist_misra1d_to_its_digits() -> None:
    """b1 b2 x / (1 + b2 x) = b1 / (1 + exp(-(log x + log b2))): slope 1, midpoint -log b2."""
    x, y = np.log(MISRA1D[0]), MISRA1D[1]
    bounds = Bounds(low=0.0, high=1e4, slope=(1.0, 1.0), midpoint_margin=5.0)
    fit = fit_sigmoids(x, y[None], np.ones((1, len(x))), bounds, anchor=HELD)
    b2 = float(np.exp(-fit.midpoint[0]))
    assert fit.ceiling[0] == pytest.approx(4.3736970754e02, rel=1e-4)
    assert b2 == pytest.approx(3.0227324449e-04, rel=1e-4)
    assert fit.loss[0] == pytest.approx(5.6419295283e-02, rel=1e-6)
    error = standard_errors(x, y, np.ones(len(x)), fit, known=("floor", "slope"))
    assert error["ceiling"] == pytest.approx(3.6489174345, rel=1e-3)
    assert error["midpoint"] * b2 == pytest.approx(2.9334354479e-06, rel=1e-3)


@pytest.mark.long
def test_scipy_finds_no_better_law_within_the_same_bounds() -> None:
    """Floor and plateau of a law lie on bounds as a rule: the smallest and largest n tested."""
    rng = np.random.default_rng(0)
    u = np.linspace(4.2, 6.6, 116)
    scale = float(np.ptp(u)) / 2
    excess = []
    for _ in range(20):
        cuts = np.sort(rng.uniform(4.3, 6.5, rng.integers(1, 5)))
        steps = 3.0 + np.searchsorted(cuts, u) * float(rng.integers(1, 3))
        path = averaged(u, steps[None])
        low, high = 3.0, max(float(path.max()), 4.0) + float(rng.integers(0, 2))
        ours = float(fit_paths(u, path, limits=(low, high)).loss[0])

        def residual(p: np.ndarray, path: np.ndarray = path) -> np.ndarray:
            return p[0] + (p[1] - p[0]) / (1 + np.exp(-np.exp(p[2]) * (u - p[3]))) - path[0]

        best = 2 * min(
            least_squares(
                residual,
                (low + 0.1, high - 0.1, np.log(k / scale), m),
                bounds=(
                    [low, low, np.log(0.5 / scale), u[0] - 0.75 * scale],
                    [high, high, np.log(80 / scale), u[-1] + 0.75 * scale],
                ),
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
