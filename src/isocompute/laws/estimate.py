"""Frontier -> law, with what its draws say about every number.

Shape legend: D draws, V budgets, A budgets at which the law is reported, J configurations.

The law is fitted to the mean over the draws of log2 of the frontier-attaining n, under the
running average of the method and without what noise takes; so are the laws of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from isocompute.frontier import Frontier
from isocompute.intervals import draw_interval
from isocompute.laws.form import Law, Variable, averaged, fit_paths, law_of
from isocompute.laws.rise import not_excluded, off_the_floor
from isocompute.sigmoid import SigmoidFits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

N_REPORTED = 24
RISE_LEVEL = 0.95  # one-sided
END_LEVEL = 0.975  # of what is best at the end: where a rise begins may be wrong as well


@dataclass(frozen=True, kw_only=True)
class LawEstimate:
    """A law and its uncertainty.

    Args:
        law: the law.
        draws: the same form fitted to every draw; None where the law is a constant in all.
        u_V: positions of the fit (log10 x, or x for a linear law), inside the common support.
        path_V: log2 of the best value on the merged frontier.
        draw_path_DV: log2 of the best value in every draw.
        judged_from: budget from which a change is judged: where the frontier is off its floor.
        octaves, lower_bound: change of log2 n* from there to the end, and its one-sided 95%
            lower bound (upper bound for a falling law, as a negative number of octaves): what
            95% of the draws reach, and no more than up to the first n that may be best at the end.
        claimed: the change is beyond its bound.
        decreasing: whether the falling form was fitted.
        linear: whether x enters linearly.
        non_monotone: the path goes against the form somewhere.
        edge: "" or the side ("largest", "smallest") at which the last optimum lies.
        plateau_interval: None where not known; either end may be None.
        flags: stable words.
    """

    law: Law
    draws: SigmoidFits | None
    u_V: FloatArray
    path_V: FloatArray
    draw_path_DV: FloatArray
    judged_from: float
    octaves: float
    lower_bound: float | None
    claimed: bool
    non_monotone: bool
    edge: str
    plateau_interval: tuple[float | None, float | None] | None
    identified: dict[str, bool]
    flags: tuple[str, ...]
    decreasing: bool
    linear: bool

    @property
    def monotone(self) -> bool:
        """Whether the path goes one way, up to reversals of less than half its change."""
        return "no_form" not in self.flags

    @property
    def trend(self) -> int:
        """Sign of the change over the common support that 95% of the draws confirm, or 0."""
        if not len(self.draw_path_DV):
            return 0
        change = self.draw_path_DV[:, -1] - self.draw_path_DV[:, 0]
        return int((change > 0).mean() >= RISE_LEVEL) - int((change < 0).mean() >= RISE_LEVEL)

    def predict(self, x: float) -> float:
        """The law at x, in n; where the path is no law of the form, the path itself."""
        if self.monotone:
            return float(self.law.predict(x))
        return float(2.0 ** self.path_V[self._nearest(x)])

    def _nearest(self, x: float) -> int:
        u = x if self.linear else np.log10(x)
        return int(np.abs(self.u_V - u).argmin())

    def interval(self, x: float, level: float) -> tuple[float, float] | None:
        """Of the law at x, in n; None without draws."""
        if not len(self.draw_path_DV):
            return None
        lo, hi = draw_interval(2.0 ** self.draw_values(x), level)
        return float(lo), float(hi)

    def draw_values(self, x: float) -> FloatArray:
        """log2 n of every draw's law at x, shape (D,)."""
        if self.draws is None or not self.monotone:
            return np.asarray(self.draw_path_DV[:, self._nearest(x)], dtype=np.float64)
        u = np.array([x if self.linear else np.log10(x)])
        value = self.draws.value(u)[:, 0]
        return -value if self.decreasing else value


def estimate_law(
    frontier: Frontier,
    value_J: IntArray,
    *,
    variable: Variable,
    batch_size: int | None = None,
    level: float = 0.95,
    decreasing: bool = False,
) -> LawEstimate:
    """Fit the law of one quantity (n, or B_p) along a frontier.

    Args:
        frontier: the envelope.
        value_J: n (or B_p) of each configuration.
        variable: "steps" makes the law linear in M = x / batch_size.
        batch_size: B, for "steps".
        decreasing: the change that is expected, and claimed or not: falling for B_p*(M). A path
            that ends on the other side of where it began is fitted by the other form.
    """
    inside = frontier.supported_V
    x = frontier.x_V[inside]
    linear = variable == "steps"
    u = 10**x / float(batch_size or 1) if linear else x
    log2_J = np.log2(value_J.astype(np.float64))
    path = log2_J[frontier.best_V[inside]]
    draw_path = (
        log2_J[frontier.draw_best_DV[:, inside]]
        if len(frontier.draw_best_DV)
        else np.zeros((0, len(x)))
    )
    law_bounds = float(log2_J.min()), float(log2_J.max())
    first = off_the_floor(frontier.score_JV[:, inside].max(axis=0), frontier.floor)
    octaves = float(path[-1] - path[first])
    expected = -1.0 if decreasing else 1.0
    sign = float(np.sign(octaves)) or expected
    falls = sign < 0
    points, draw_points = averaged(x, path), averaged(x, draw_path)
    if len(draw_path):
        moved = -2 * averaged(x, (log2_J @ frontier.drift_JV)[inside])
        points, draw_points = _unflattened(draw_points.mean(axis=0), draw_points, moved, law_bounds)
    law = law_of(u, points, variable=variable, linear=linear, decreasing=falls, limits=law_bounds)
    draws = None
    if len(draw_path):
        draws = fit_paths(u, draw_points, decreasing=falls, limits=law_bounds)
    change = expected * (draw_path[:, -1] - draw_path[:, first]) if len(draw_path) else np.zeros(0)
    lower = None
    if len(change):
        score_J = frontier.score_JV[:, np.flatnonzero(inside)[-1]]
        bounds = not_excluded(score_J, frontier.draw_last_DJ, value_J, END_LEVEL)
        end = float(np.log2(bounds[1 if decreasing else 0]))
        among_draws = float(np.quantile(change, 1 - RISE_LEVEL, method="lower"))
        lower = min(among_draws, max(0.0, expected * (end - float(path[first]))))
    claimed = lower is not None and lower > 0 and expected * octaves > 0
    judged = path[first:] * sign
    against = bool((np.diff(judged) < 0).any())
    reversal = float((np.maximum.accumulate(judged) - judged).max())
    if octaves == 0 and not against:
        law = replace(law, form="constant", L=0.0, k=None, x0=None, b=float(path[first]), flags=())
    edge = ""
    if path[-1] == law_bounds[1]:
        edge = "largest"
    elif path[-1] == law_bounds[0]:
        edge = "smallest"
    plateau = _plateau_interval(draws, draw_path, edge, falls, level, law_bounds)
    identified = {
        "plateau": plateau is not None and plateau[1] is not None and plateau[0] is not None,
        "slope": _tight(draws, "slope", level) and law.form != "constant",
        "x0": _tight(draws, "midpoint", level) and law.form != "constant",
        "rise": claimed,
    }
    flags = list(law.flags)
    if law.form != "constant" and not identified["slope"]:
        flags.append("slope_not_identified")
    if edge:
        flags.append("optimum_at_edge")
    if against:
        flags.append("non_monotone")
    if reversal > abs(octaves) / 2:
        flags.append("no_form")
    if octaves * expected < 0:
        flags.append("rising" if decreasing else "falling")
    return LawEstimate(
        law=law,
        draws=draws,
        u_V=u,
        path_V=path,
        draw_path_DV=draw_path,
        judged_from=float(10 ** x[first]),
        octaves=octaves,
        lower_bound=None if lower is None else expected * lower,
        claimed=claimed,
        non_monotone=against,
        edge=edge,
        plateau_interval=plateau,
        identified=identified,
        flags=tuple(dict.fromkeys(flags)),
        decreasing=falls,
        linear=linear,
    )


def _unflattened(
    mean_V: FloatArray, draw_DV: FloatArray, moved_V: FloatArray, limits: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Mean path and paths of the draws without what noise takes from them, within the n tested.

    Noise puts neighbours in the place of the best n, and none beyond the largest: paths are
    flattened. The mean path of the draws carries noise twice, that of the sweep and their own; with
    deviations of twice the variance it carries it three times. The line through both, at no noise,
    is twice their difference away (simulation extrapolation: Cook and Stefanski, J. Am. Stat.
    Assoc. 89 (1994) 1314).

    The draws are stretched away from the limit that the mean moves off. Those at that limit stay:
    moved as one they would exclude an n that many of them say is best.
    """
    low, high = limits
    target = mean_V + moved_V
    up = (target - low) / np.maximum(mean_V - low, 1e-9)
    down = (high - target) / np.maximum(high - mean_V, 1e-9)
    draws = np.where(moved_V > 0, low + (draw_DV - low) * up, high - (high - draw_DV) * down)
    return np.clip(target, low, high), np.clip(draws, low, high)


def _plateau_interval(
    draws: SigmoidFits | None,
    draw_path: FloatArray,
    edge: str,
    decreasing: bool,
    level: float,
    limits: tuple[float, float],
) -> tuple[float | None, float | None] | None:
    """Interval of the value that the law tends to; open where it lies at an edge of the grid."""
    if draws is None or not len(draw_path):
        return None
    end = draw_path[:, -1]
    final = draws.ceiling * (-1 if decreasing else 1)
    lo = float(draw_interval(np.minimum(final, end), level)[0])
    hi = float(draw_interval(np.maximum(final, end), level)[1])
    # A draw whose optimum is the largest n tested says only that the plateau is no lower.
    low = None if lo <= limits[0] + 1e-6 and edge == "smallest" else float(2**lo)
    high = None if hi >= limits[1] - 1e-6 else float(2**hi)
    return low, high


def _tight(draws: SigmoidFits | None, field: str, level: float) -> bool:
    """A parameter is identified when its interval is shorter than a factor 4 (or 0.5 decades)."""
    if draws is None:
        return False
    value = getattr(draws, field)
    lo, hi = draw_interval(value, level)
    if field == "slope":
        return bool(hi / lo < 4)
    return bool(hi - lo < 0.5)


def reported_budgets(frontier: Frontier, n: int = N_REPORTED) -> FloatArray:
    """Budgets at which a law is reported: evenly spaced in log over the common support."""
    low, high = frontier.support
    return np.geomspace(low, high, n)


def confidence_set(probability_J: FloatArray, value_J: IntArray, level: float) -> list[int]:
    """Fewest values whose probabilities of being best add up to the level, ascending."""
    values = np.unique(value_J)
    mass = np.array([probability_J[value_J == v].sum() for v in values])
    order = np.argsort(-mass, kind="stable")
    needed = int(np.searchsorted(np.cumsum(mass[order]), min(level, mass.sum()) - 1e-12)) + 1
    return sorted(int(values[i]) for i in order[:needed])
