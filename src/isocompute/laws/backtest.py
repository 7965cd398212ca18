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

from isocompute.curves.bins import WINDOW, position
from isocompute.curves.fits import CurveFits, fit_curves
from isocompute.errors import RefusalError
from isocompute.importers.base import Curve

FloatArray = NDArray[np.float64]

CUTS = (0.25, 0.5)  # of the largest budget
_DRAWS = 200


def backtest(
    curves: Sequence[Curve], full: CurveFits, *, unit: str, level: float, seed: int
) -> dict[str, Any]:
    """Expanding-window back-test of the fitted curves.

    Returns:
        {"cuts", "mae_law", "mae_best_so_far", "mae_power_law", "skill", "coverage", "n_held_out",
        "rows"}; null where no cut leaves enough to fit and to hold out.
    """
    top = max(float(position(c, unit).max()) for c in curves)
    rows: list[dict[str, Any]] = []
    used: list[float] = []
    for share in CUTS:
        cut = share * top
        found = _one_cut(curves, full, cut, unit, level, seed)
        if found:
            used.append(cut)
            rows += found
    if not rows:
        return dict.fromkeys(
            ("mae_law", "mae_best_so_far", "mae_power_law", "skill", "coverage")
        ) | {"cuts": [], "n_held_out": 0, "rows": []}
    error = {
        k: float(np.mean([abs(r[k] - r["observed"]) for r in rows]))
        for k in ("predicted", "best_so_far", "power_law")
    }
    inside = [r["interval"][0] <= r["observed"] <= r["interval"][1] for r in rows]
    return {
        "cuts": used,
        "mae_law": error["predicted"],
        "mae_best_so_far": error["best_so_far"],
        "mae_power_law": error["power_law"],
        "skill": 1 - error["predicted"] / error["best_so_far"]
        if error["best_so_far"] > 0
        else None,
        "coverage": float(np.mean(inside)),
        "n_held_out": len(rows),
        "rows": rows,
    }


def _one_cut(
    curves: Sequence[Curve], full: CurveFits, cut: float, unit: str, level: float, seed: int
) -> list[dict[str, Any]]:
    early = [c for c in (_until(c, cut, unit) for c in curves) if len(c.score_K)]
    if not early:
        return []
    try:
        fits = fit_curves(early, unit=unit, width=full.bins.width, draws=_DRAWS, seed=seed)
    except RefusalError:
        return []
    rows: list[dict[str, Any]] = []
    position_of = {
        (b.problems_per_batch, b.rollouts_per_problem): j for j, b in enumerate(fits.binned)
    }
    tail = (1 - level) / 2
    for one in full.binned:
        j = position_of.get((one.problems_per_batch, one.rollouts_per_problem))
        if j is None:
            continue
        with np.errstate(invalid="ignore"):
            has = np.isfinite(one.best_RX)
            n = np.maximum(has.sum(axis=0), 1)
            observed = np.where(has, one.best_RX, 0.0).sum(axis=0) / n
            noise = np.where(has, one.variance_RX + full.run_sd**2, 0.0).sum(axis=0) / n**2
        held = np.flatnonzero(has.any(axis=0) & (one.x_X > np.log10(cut)))
        if not len(held):
            continue
        x = one.x_X[held]
        seen = has.any(axis=0) & (one.x_X <= np.log10(cut))
        last = seen & (one.x_X > one.x_X[seen].max() - WINDOW)
        so_far = float(max(observed[last].mean(), 0.0))
        rng = np.random.default_rng(seed)
        draw = fits.draw_J[j].value(x)
        draw = draw + rng.standard_normal(draw.shape) * np.sqrt(noise[held])
        lo, hi = np.quantile(draw, [tail, 1 - tail], axis=0)
        predicted = fits.fit.row(j).value(x)[0]
        error = np.log(np.clip(1 - observed[seen], 1e-4, None))
        slope, level_0 = np.polyfit(one.x_X[seen], error, 1)
        power = 1 - np.exp(
            level_0
            + min(float(slope), 0.0) * x
            + (0.0 if slope < 0 else slope * one.x_X[seen].mean())
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


def _until(curve: Curve, cut: float, unit: str) -> Curve:
    keep = position(curve, unit) <= cut
    return curve.replace(
        rollouts_K=curve.rollouts_K[keep],
        score_K=curve.score_K[keep],
        tokens_K=None if curve.tokens_K is None else curve.tokens_K[keep],
        steps_K=None if curve.steps_K is None else curve.steps_K[keep],
    )
