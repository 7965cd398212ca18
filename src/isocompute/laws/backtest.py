"""Back-test: fit the first part of every curve, predict the rest, beside simple baselines.

The held-out values are the seed-mean, best-so-far bins of each configuration beyond the cut.
Baselines: the level at the cut stays ("best so far"), and a power law of the error,
1 - score = a C^-b. On public RL curves best-so-far beat every parametric fit of their first
half, so a law that does not beat it here should not be extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.beyond import curves_beyond
from isocompute.curves.bins import WINDOW, BinnedRuns, position
from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.domain import Curve
from isocompute.errors import RefusalError
from isocompute.intervals import draw_interval

FloatArray = NDArray[np.float64]

CUTS = (0.125, 0.25, 0.5)  # of the largest budget
_DRAWS = 200
_MIN_BLEND = 8  # held-out values from which a weight is taken
_PREDICTORS = (
    ("mae_law", "predicted"),
    ("mae_best_so_far", "best_so_far"),
    ("mae_power_law", "power_law"),
    ("mae_blend", "blend"),
)


def backtest(
    curves: Sequence[Curve], full: CurveFits, *, unit: str, level: float, seed: int
) -> dict[str, Any]:
    """Expanding-window back-test of the fitted curves.

    Returns:
        {"cuts", "mae_law", "mae_best_so_far", "mae_power_law", "skill", "coverage", "n_held_out",
        "by_cut", "blend", "rows"}; null where no cut leaves enough to fit and to hold out. The
        blend is weight * law + (1 - weight) * best so far; at each cut its weight comes from what
        earlier cuts predicted up to this one, so that it never sees what it is judged on.
    """
    top = max(float(position(c, unit).max()) for c in curves)
    rows: list[dict[str, Any]] = []
    by_cut: list[dict[str, Any]] = []
    for share in CUTS:
        cut = share * top
        found = _one_cut(curves, full, cut, unit, level, seed)
        if found:
            weight = _weight([r for r in rows if r["x"] <= cut])
            for row in found:
                row["blend"] = None if weight is None else _blended(row, weight)
            by_cut.append({"cut": cut, "blend_weight": weight, **_errors(found)})
            rows += found
    judged = [r for r in rows if r["blend"] is not None]
    return {
        "cuts": [row["cut"] for row in by_cut],
        **_errors(rows),
        "by_cut": by_cut,
        # Beside the others on the same held-out values; `weight` is for what lies beyond the data.
        "blend": {**_errors(judged), "weight": _weight(rows), "better": _blend_wins(judged)},
        "rows": rows,
    }


def _errors(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean absolute errors over held-out values, skill against best so far, coverage."""
    if not rows:
        names = ("mae_law", "mae_best_so_far", "mae_power_law", "mae_blend", "skill", "coverage")
        return {**dict.fromkeys(names), "n_held_out": 0}
    mae = {
        name: float(np.mean([abs(r[key] - r["observed"]) for r in rows]))
        for name, key in _PREDICTORS
        if all(r[key] is not None for r in rows)
    }
    inside = [r["interval"][0] <= r["observed"] <= r["interval"][1] for r in rows]
    baseline = mae["mae_best_so_far"]
    return {
        "mae_blend": None,
        **mae,
        "skill": 1 - mae["mae_law"] / baseline if baseline > 0 else None,
        "coverage": float(np.mean(inside)),
        "n_held_out": len(rows),
    }


def _weight(rows: Sequence[dict[str, Any]]) -> float | None:
    """Weight of the law that would have predicted these values best (least squares, 0..1)."""
    if len(rows) < _MIN_BLEND:
        return None
    base = np.array([r["best_so_far"] for r in rows])
    lead = np.array([r["predicted"] for r in rows]) - base
    gain = np.array([r["observed"] for r in rows]) - base
    square = float(lead @ lead)
    return float(np.clip(lead @ gain / square, 0.0, 1.0)) if square > 0 else None


def _blended(row: dict[str, Any], weight: float) -> float:
    return float(weight * row["predicted"] + (1 - weight) * row["best_so_far"])


def _blend_wins(rows: Sequence[dict[str, Any]]) -> bool | None:
    """Whether the blend missed by less than the law and than best so far."""
    if not rows:
        return None
    errors = _errors(rows)
    return bool(errors["mae_blend"] < min(errors["mae_law"], errors["mae_best_so_far"]))


def _one_cut(
    curves: Sequence[Curve], full: CurveFits, cut: float, unit: str, level: float, seed: int
) -> list[dict[str, Any]]:
    early = [c for c in (until(c, cut, unit) for c in curves) if len(c.score_K)]
    if not early:
        return []
    try:
        fits = fit_curves(
            early,
            unit=unit,
            width=full.bins.width,
            select=full.select,
            draws=_DRAWS,
            seed=seed,
        )
        fits = curves_beyond(fits, seed=seed)
    except RefusalError:
        return []
    rows: list[dict[str, Any]] = []
    position_of = {
        (b.problems_per_batch, b.rollouts_per_problem): j for j, b in enumerate(fits.binned)
    }
    for one in full.binned:
        j = position_of.get((one.problems_per_batch, one.rollouts_per_problem))
        if j is None:
            continue
        has, observed = _means(one)
        n = np.maximum(has.sum(axis=0), 1)
        noise = np.where(has, one.variance_RX + full.run_sd**2, 0.0).sum(axis=0) / n**2
        held = np.flatnonzero(has.any(axis=0) & (one.x_X > np.log10(cut)))
        if not len(held):
            continue
        x = one.x_X[held]
        # Baselines too see only what lies before the cut.
        early_has, reached = _means(fits.binned[j])
        seen, early_x = early_has.any(axis=0), fits.binned[j].x_X
        last = seen & (early_x > early_x[seen].max() - WINDOW)
        so_far = float(max(reached[last].mean(), 0.0))
        rng = np.random.default_rng(seed)
        draw = fits.draw_J[j].value(x)
        predicted = draw.mean(axis=0)  # as a plan predicts
        draw = draw + rng.standard_normal(draw.shape) * np.sqrt(noise[held])
        lo, hi = draw_interval(draw, level)
        error = np.log(np.clip(1 - reached[seen], 1e-4, None))
        slope, level_0 = np.polyfit(early_x[seen], error, 1)
        power = 1 - np.exp(
            level_0
            + min(float(slope), 0.0) * x
            + (0.0 if slope < 0 else slope * early_x[seen].mean())
        )
        rows += [
            {
                "cut": cut,
                "x": float(10 ** x[i]),
                "problems_per_batch": one.problems_per_batch,
                "rollouts_per_problem": one.rollouts_per_problem,
                "predicted": float(predicted[i]),
                "best_so_far": so_far,
                "power_law": float(power[i]),
                "observed": float(observed[b]),
                "interval": [float(lo[i]), float(hi[i])],
            }
            for i, b in enumerate(held)
        ]
    return rows


def _means(one: BinnedRuns) -> tuple[NDArray[np.bool_], FloatArray]:
    """Where runs have data, and the mean over them of their best so far."""
    has = np.isfinite(one.best_RX)
    total = np.where(has, one.best_RX, 0.0).sum(axis=0)
    return has, total / np.maximum(has.sum(axis=0), 1)


def until(curve: Curve, cut: float, unit: str) -> Curve:
    """The part of a curve up to a cut."""
    return part_of(curve, position(curve, unit) <= cut)


def part_of(curve: Curve, keep_K: NDArray[np.bool_]) -> Curve:
    """Some evaluations of a curve."""
    return curve.replace(
        rollouts_K=curve.rollouts_K[keep_K],
        score_K=curve.score_K[keep_K],
        tokens_K=None if curve.tokens_K is None else curve.tokens_K[keep_K],
        steps_K=None if curve.steps_K is None else curve.steps_K[keep_K],
    )
