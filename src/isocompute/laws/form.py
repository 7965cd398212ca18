"""The law itself: log2 n* as a sigmoid of log10 C (or of M), fitted to frontier points.

Source: arXiv 2603.12151, section 4: log2 n*(C) = L / (1 + exp(-k (log10 C - x0))) + b; at a
fixed batch the same with M in place of log10 C, and decreasing (k < 0) for B_p*(M).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.errors import InputError, RefusalError
from isocompute.sigmoid import Bounds, SigmoidFits, candidate_grid, fit_sigmoids

FloatArray = NDArray[np.float64]
Form = Literal["sigmoid_log10", "sigmoid_linear", "constant"]
Variable = Literal["rollouts", "tokens", "steps"]

MIN_POINTS = 4
# Of the span of the fit, in log10 x. A sigmoid through the raw steps of a frontier jumps between a
# near-step and a wide curve when a crossover moves by 0.05 decades (docs/laws.md).
AVERAGED_SHARE = 0.3
_HEADROOM = 6.0  # octaves that floor and plateau may lie beyond the points


@dataclass(frozen=True, kw_only=True)
class Law:
    """log2 n(x) = L / (1 + exp(-k (u - x0))) + b, u = log10 x or x.

    Args:
        form: "sigmoid_log10", "sigmoid_linear" or "constant" (then L = 0).
        variable: what x is.
        L, k, x0, b: the parameters; k < 0 falls. A near-step's k is not identified, so laws are
            compared by their values, never by parameters.
        rms: root mean square of the residuals, in octaves of n.
        on_bound: a parameter ended on a bound of the search.
        flags: "non_monotone" where the points fall although the form rises (or the reverse).
    """

    form: Form
    variable: Variable
    L: float
    k: float | None
    x0: float | None
    b: float
    rms: float = 0.0
    on_bound: bool = False
    flags: tuple[str, ...] = ()

    def predict(self, x: ArrayLike) -> NDArray[np.float64]:
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
        if self.form == "constant" or self.k is None or self.x0 is None:
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
    rollouts: ArrayLike,
    rollouts_per_problem: ArrayLike,
    *,
    smooth: float = 0.0,
    variable: Variable = "rollouts",
    linear: bool = False,
    decreasing: bool = False,
) -> Law:
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
        x = np.asarray(rollouts, dtype=np.float64)
        n = np.asarray(rollouts_per_problem, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`rollouts` and `rollouts_per_problem` must be numbers, but numpy says: {error}; pass "
            "one number per frontier point."
        ) from error
    if x.ndim != 1 or x.shape != n.shape:
        raise InputError(
            "`rollouts` and `rollouts_per_problem` must be 1-D arrays of one length, but got "
            "shapes "
            f"{x.shape} and {n.shape}; pass one n per budget."
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
    order = np.argsort(u, kind="stable")
    u, y = u[order], np.log2(n)[order]
    if smooth > 0:
        y = _running_mean(u, y, smooth)
    return law_of(u, y, variable=variable, linear=linear, decreasing=decreasing)


def law_of(
    u_V: FloatArray,
    log2n_V: FloatArray,
    *,
    variable: Variable,
    linear: bool,
    decreasing: bool,
    limits: tuple[float, float] | None = None,
) -> Law:
    """The law through points (u, log2 n), u ascending; `limits` as in `fit_paths`."""
    form: Form = "sigmoid_linear" if linear else "sigmoid_log10"
    y = log2n_V
    if np.ptp(y) < 1e-12 or np.ptp(u_V) == 0:
        return Law(form="constant", variable=variable, L=0.0, k=None, x0=None, b=float(y.mean()))
    fit = fit_paths(u_V, y[None], decreasing=decreasing, limits=limits)
    return _law(fit, u_V, y, form, variable, decreasing)


def averaged(log10_x_V: FloatArray, path_DV: FloatArray) -> FloatArray:
    """The method's running average of frontier paths, over `AVERAGED_SHARE` of their span.

    Source: arXiv 2603.12151, section 4 (points are a running average of the frontier-attaining n).
    """
    width = AVERAGED_SHARE * float(np.ptp(log10_x_V))
    near = (np.abs(log10_x_V[:, None] - log10_x_V[None]) <= width / 2 + 1e-12).astype(np.float64)
    out: FloatArray = path_DV @ (near / near.sum(axis=1, keepdims=True)).T
    return out


def fit_paths(
    u_V: FloatArray,
    log2n_DV: FloatArray,
    *,
    decreasing: bool = False,
    limits: tuple[float, float] | None = None,
) -> SigmoidFits:
    """The same fit for many paths on the same positions, shape (D, V).

    A falling path is fitted as the rising one of -log2 n.

    Args:
        limits: log2 of the smallest and largest value tested, when floor and plateau may not
            leave them (a sweep says nothing about an n that it did not run).
    """
    scale = float(np.ptp(u_V)) / 2 or 1.0  # two "decades": one search grid serves log C and M
    y = -log2n_DV if decreasing else log2n_DV
    low, high = float(y.min()) - _HEADROOM, float(y.max()) + _HEADROOM
    if not decreasing:
        low = max(low, min(0.0, float(y.min())))  # n >= 1
    else:
        high = min(high, max(0.0, float(y.max())))
    if limits is not None:
        low, high = (-limits[1], -limits[0]) if decreasing else limits
    bounds = Bounds(low=low, high=high, slope=(0.5, 80.0), midpoint_margin=0.75)
    u = u_V / scale
    # A coarser set of starts ends in other local minima: it cost the intervals 3 points.
    grid = candidate_grid(u, bounds, n_slopes=16)
    fit = fit_sigmoids(u, y, np.ones((1, len(u))), bounds, grid=grid)
    return fit._replace(slope=fit.slope / scale, midpoint=fit.midpoint * scale)


def _law(
    fit: SigmoidFits, u: FloatArray, y: FloatArray, form: Form, variable: Variable, decreasing: bool
) -> Law:
    floor, ceiling = float(fit.floor[0]), float(fit.ceiling[0])
    k, x0 = float(fit.slope[0]), float(fit.midpoint[0])
    rms = float(np.sqrt(fit.loss[0] / len(u)))
    if ceiling - floor < 1e-9:
        # No rise at all describes the points best: they fall, or go up and down.
        return Law(
            form="constant",
            variable=variable,
            L=0.0,
            k=None,
            x0=None,
            b=float(y.mean()),
            rms=rms,
            flags=("non_monotone",),
        )
    if decreasing:  # -(floor + rise s(u)) = -ceiling + rise (1 - s(u))
        floor, ceiling, k = -ceiling, -floor, -k
    return Law(
        form=form,
        variable=variable,
        L=ceiling - floor,
        k=k,
        x0=x0,
        b=floor,
        rms=rms,
        on_bound=bool(fit.on_bound[0]),
    )


def _running_mean(u: FloatArray, y: FloatArray, width: float) -> FloatArray:
    near = np.abs(u[:, None] - u[None]) <= width / 2
    out: FloatArray = (near * y).sum(axis=1) / near.sum(axis=1)
    return out
