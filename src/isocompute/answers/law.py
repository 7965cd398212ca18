"""The law: log2 n* as a sigmoid of log10 C (or of M), of points, or of the draws of a path.

Source: arXiv 2603.12151, section 4: log2 n*(C) = L / (1 + exp(-k (log10 C - x0))) + b; at a
fixed batch the same with M in place of log10 C, and decreasing (k < 0) for B_p*(M).

Shape legend: D draws, V positions of a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from isocompute.answers.best import STEPS_PER_OCTAVE, FloatArray, interval
from isocompute.answers.sigmoid import Bounds, Sigmoids, fit_sigmoids
from isocompute.errors import InputError, RefusalError

Form = Literal["sigmoid_log10", "sigmoid_linear", "constant"]
Variable = Literal["rollouts", "tokens", "gpu-hours", "steps"]

MIN_POINTS = 4
# Of the span of a path. A sigmoid through the raw steps of a frontier jumps between a near-step
# and a wide curve when a crossover moves by 0.05 decades.
AVERAGED_SHARE = 0.3
_HEADROOM = 6.0  # octaves that floor and plateau may lie beyond the points
_SLOPE = 0.5, 80.0  # times half of the span: from nearly a line to a step
NOTHING = 0.5 / STEPS_PER_OCTAVE  # octaves of n that count as none: half a step of the best n
# Octaves that n* may move on over a decade beyond the data and still be level: less than to the
# next power of two. Half of it hides levels that are there, at twice a plan doubles n beyond them.
LEVEL = 0.5


@dataclass(frozen=True, kw_only=True)
class Law:
    """log2 n(x) = L / (1 + exp(-k (u - x0))) + b, u = log10 x or x.

    A near-step's k is not identified, so laws are compared by their values, never by parameters.
    """

    form: Form  # constant: L = 0
    variable: Variable  # what x is
    L: float
    k: float | None  # < 0 falls
    x0: float | None
    b: float
    rms: float = 0.0  # root mean square of the residuals, in octaves of n
    flags: tuple[str, ...] = ()  # "non_monotone": points fall although the form rises, or reverse

    def predict(self, x: ArrayLike) -> FloatArray:
        """n* at x (not log2, not rounded); same shape as x.

        Raises:
            InputError: if an x is not finite and > 0.
        """
        x = np.asarray(x, dtype=np.float64)
        if not (np.isfinite(x) & (x > 0)).all():
            raise InputError(
                f"`{self.variable} > 0` must hold for a prediction, but got "
                f"{np.ravel(x)[~(np.isfinite(x) & (x > 0)).ravel()][0]!r}; give positive numbers."
            )
        if self.k is None or self.x0 is None:
            return np.full(x.shape, 2.0**self.b)
        u = np.log10(x) if self.form == "sigmoid_log10" else x
        s = 0.5 * (1 + np.tanh(0.5 * self.k * (u - self.x0)))
        out: FloatArray = 2.0 ** (self.b + self.L * s)
        return out

    @property
    def plateau(self) -> float:
        """Where n* goes as x grows: 2**(L + b), or 2**b of a falling law."""
        return float(2.0 ** (self.b + (self.L if self.k is None or self.k > 0 else 0.0)))


def fit_law(
    rollouts: ArrayLike, rollouts_per_problem: ArrayLike, *, smooth: float = 0.0,
    variable: Variable = "rollouts", linear: bool = False, decreasing: bool = False,
) -> Law:  # fmt: skip
    """Fit the law to points of a frontier.

    Args:
        rollouts: budgets (or M with `linear`), > 0, shape (N,).
        rollouts_per_problem: the n (or B_p) that attains the frontier there, >= 1, shape (N,).
        smooth: running average over this many units of u (decades) before the fit; the points
            are taken as they are by default.
        variable: what `rollouts` holds.
        linear: x enters linearly (n*(M) at a fixed batch) instead of as log10.
        decreasing: fit the falling form.

    Returns:
        The law; `.predict(rollouts)` gives n.

    Raises:
        InputError: if the arrays are not 1-D of one length with finite positive numbers.
        RefusalError: with fewer than 4 points.

    >>> law = fit_law([1e5, 3e5, 1e6, 3e6, 1e7], [8, 8, 64, 512, 512])
    >>> [round(float(n)) for n in law.predict([1e5, 1e7])]
    [8, 512]
    """
    try:
        x, n = (np.asarray(v, dtype=np.float64) for v in (rollouts, rollouts_per_problem))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`rollouts` and `rollouts_per_problem` must be numbers, but numpy says: {error}; pass "
            "one number per frontier point."
        ) from error
    if x.ndim != 1 or x.shape != n.shape:
        raise InputError(
            "`rollouts` and `rollouts_per_problem` must be 1-D arrays of one length, but got "
            f"shapes {x.shape} and {n.shape}; pass one n per budget."
        )
    if not ((np.isfinite(x) & (x > 0)).all() and (np.isfinite(n) & (n >= 1)).all()):
        raise InputError(
            "`rollouts > 0` and `rollouts_per_problem >= 1` must hold for every point, but got "
            f"minima {x.min():g} and {n.min():g} (or a value that is not finite); drop those "
            "points."
        )
    if len(x) < MIN_POINTS:
        raise RefusalError(
            f"`n_points >= {MIN_POINTS}` must hold for a law of 4 parameters, but got n_points="
            f"{len(x)}; add frontier points."
        )
    u = x if linear else np.log10(x)
    y = averaged(u, np.log2(n), smooth) if smooth > 0 else np.log2(n)
    return _fit(u, y[None], variable, linear, decreasing, None)[0]


def averaged(u_V: FloatArray, path_DV: FloatArray, width: float) -> FloatArray:
    """Running average of paths, over all points within half a width of u on either side."""
    near = (np.abs(u_V[:, None] - u_V) <= width / 2 + 1e-12).astype(np.float64)
    mean = path_DV @ (near / near.sum(axis=1, keepdims=True)).T
    # Rounding takes the mean of ones below 1, where no n is.
    return np.asarray(np.clip(mean, path_DV.min(), path_DV.max()))


def law_of_paths(
    x_V: FloatArray, log2n_DV: FloatArray, far_D: FloatArray, *, tested: tuple[float, float],
    variable: Variable = "rollouts", level: float = 0.95, share: float = AVERAGED_SHARE,
) -> dict[str, Any]:  # fmt: skip
    """The law through the mean path of n*, and through every draw's path for its intervals.

    Args:
        x_V: budgets, ascending, > 0; steps, for a law that is linear in M.
        log2n_DV: log2 of the best n (or B_p) in every draw, shape (D, V).
        far_D: the best of every draw well past the path: the interval of the plateau holds it, so
            that a path which ends while it rises has no known plateau.
        tested: smallest and largest n that were run; the law does not leave them.
        variable: what `x_V` holds; "steps" makes the law linear in x.
        level: of the intervals.
        share: of the span of the path over which it is averaged before the fit; 0 for none.

    Returns:
        The keys of `law` in `fit --json` that are the sigmoid's. `identified`: "slope" (no draw
        of the interval is a step), "plateau" (both ends known; at the smallest or largest n tested
        an end is open; and the best n rests: where the curves let it move on, it has not levelled
        off, however flat its sigmoid ends).
        `flags`: "falling", "non_monotone" (the path goes back by more than half of its change),
        "slope_not_identified", "optimum_at_edge".

    Source: arXiv 2603.12151, section 4 (a running average, then the sigmoid). Intervals are ours.
    """
    linear = variable == "steps"
    u = x_V if linear else np.log10(x_V)
    span = float(np.ptp(u))
    points = averaged(u, np.vstack([log2n_DV.mean(axis=0), log2n_DV]), share * span)
    falls = bool(points[0, -1] - points[0, 0] < -1e-9)
    low, high = float(np.log2(tested[0])), float(np.log2(tested[1]))
    law, fits = _fit(u, points, variable, linear, falls, (low, high))
    floor, height, slope, midpoint, _ = (field[1:] for field in fits)
    moves = height > 1e-6  # a draw that does not change has no slope and no midpoint
    shaped = law.k is not None and moves.mean() >= level
    b = -(floor + height) if falls else floor
    k = interval((-slope if falls else slope)[moves], level) if shaped else None
    x0 = interval(midpoint[moves], level) if shaped else None
    # A draw whose best n at the end is the largest tested says only that the plateau is no lower.
    final, last = b if falls else b + height, log2n_DV[:, -1]
    seen = np.stack([final, last, far_D])
    least = interval(seen.min(axis=0), level)[0]
    most = interval(seen.max(axis=0), level)[1]
    plateau = (
        None if least <= low + NOTHING else 2.0**least,
        None if most >= high - NOTHING else 2.0**most,
    )
    rests = abs(float(np.median(far_D - last))) <= LEVEL
    identified = {
        "slope": k is not None and max(map(abs, k)) * span / 2 < 0.99 * _SLOPE[1],
        "plateau": None not in plateau and rests,
    }
    path = -points[0] if falls else points[0]
    back = float((np.maximum.accumulate(path) - path).max())
    flags = {
        "falling": falls,
        "non_monotone": back > max(float(path[-1] - path[0]) / 2, NOTHING),
        "slope_not_identified": law.k is not None and not identified["slope"],
        "optimum_at_edge": not low + NOTHING < float(np.mean(last)) < high - NOTHING,
    }
    ends = {"L": interval(height, level), "k": k, "x0": x0, "b": interval(b, level),
            "plateau": plateau}  # fmt: skip
    return {
        "form": law.form,
        "variable": law.variable,
        **{name: getattr(law, name) for name in ends},
        **{f"{name}_interval": between for name, between in ends.items()},
        "rms": law.rms,
        "identified": identified,
        "flags": [name for name, is_set in flags.items() if is_set],
    }


def _fit(
    u_V: FloatArray, log2n_DV: FloatArray, variable: Variable, linear: bool, falls: bool,
    limits: tuple[float, float] | None,
) -> tuple[Law, Sigmoids]:  # fmt: skip
    """The law of the first row, and the sigmoids of all; of -log2 n where it falls.

    `limits` are those of floor and plateau, log2 of the smallest and largest n tested.
    """
    scale = float(np.ptp(u_V)) / 2 or 1.0
    least, most = float(log2n_DV.min()), float(log2n_DV.max())
    low, high = limits or (max(least - _HEADROOM, min(0.0, least)), most + _HEADROOM)  # n >= 1
    bounds = Bounds(
        level=(-high, -low) if falls else (low, high),
        slope=(_SLOPE[0] / scale, _SLOPE[1] / scale),
        midpoint=(float(u_V.min()) - 0.75 * scale, float(u_V.max()) + 0.75 * scale),
    )
    fits = fit_sigmoids(u_V, -log2n_DV if falls else log2n_DV, bounds)
    floor, height = float(fits.floor[0]), float(fits.height[0])
    rms, path = float(np.sqrt(fits.loss[0] / len(u_V))), log2n_DV[0]
    still = bool(np.ptp(path) < 1e-12 or np.ptp(u_V) == 0)
    if still or height < 1e-9:
        # Where points change and no rise describes them best, they fall, or go up and down.
        flags, b = () if still else ("non_monotone",), float(path.mean())
        return Law(form="constant", variable=variable, L=0.0, k=None, x0=None, b=b, rms=rms,
                   flags=flags), fits  # fmt: skip
    return Law(
        form="sigmoid_linear" if linear else "sigmoid_log10",
        variable=variable,
        L=height,
        k=float(fits.slope[0]) * (-1 if falls else 1),
        x0=float(fits.midpoint[0]),
        b=-(floor + height) if falls else floor,
        rms=rms,
    ), fits
