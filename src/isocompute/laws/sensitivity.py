"""The law by other rules: bin widths, strict records, the other form, no early evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.bins import BIN_WIDTH, position
from isocompute.curves.fits import fit_curves
from isocompute.domain import Curve
from isocompute.errors import RefusalError
from isocompute.frontier import fit_frontier
from isocompute.laws.backtest import part_of
from isocompute.laws.estimate import estimate_law

if TYPE_CHECKING:
    from isocompute.laws.sweep import Fit

FloatArray = NDArray[np.float64]


WINDOWS = (0.03, 0.1)  # of the largest budget: evaluations before it are left out


def sensitivity(fit: Fit) -> list[dict[str, Any]]:
    """Rows {"rule", "x", "rollouts_per_problem", "refused"}: the law at five budgets.

    Without the early evaluations, at those of the five that what is left compares. How much of the
    start is fitted moves ceilings by more than their intervals in other studies (ScaleRL, arXiv
    2510.13786, leaves out about one epoch).
    """
    x = np.geomspace(*fit.support, 5)
    top = max(float(position(c, fit.unit).max()) for c in fit.curves)
    rules: list[tuple[str, Sequence[Curve], dict[str, Any]]] = [
        (f"{8 * f:g} bins per doubling", fit.curves, {"width": BIN_WIDTH / f})
        for f in (0.25, 0.5, 2.0)
    ]
    rules.append(("record-breaking bins only", fit.curves, {"strict_records": True}))
    if fit.curve_fits.form == "gompertz":
        rules.append(("logistic curves", fit.curves, {"logistic_only": True}))
    for share in WINDOWS:
        late = [c for c in (since(c, share * top, fit.unit) for c in fit.curves) if len(c.score_K)]
        rules.append((f"from {100 * share:g}% of the largest budget on", late, {}))
    return [_row(fit, x, *rule) for rule in rules]


def _row(
    fit: Fit, x: FloatArray, name: str, curves: Sequence[Curve], options: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {"rule": name, "x": [float(v) for v in x]}
    fixed_batch = fit.setting["value"] if fit.variable == "steps" else None
    try:
        fits = fit_curves(curves, unit=fit.unit, select=fit.curve_fits.select, draws=0, **options)
        frontier = fit_frontier(fits)
        law = estimate_law(
            frontier,
            fits.rollouts_per_problem_J,
            variable=fit.law.law.variable,
            batch_size=fixed_batch,
        ).law
    except RefusalError as refusal:
        return row | {"rollouts_per_problem": None, "refused": refusal.reason}
    if curves is not fit.curves:
        x = x[x >= frontier.support[0] * (1 - 1e-9)]
        if not len(x):
            reason = "what is left compares none of the five budgets"
            return row | {"rollouts_per_problem": None, "refused": reason}
        row["x"] = [float(v) for v in x]
    n = [float(v) for v in law.predict([fit.law_x(v) for v in x])]
    return row | {"rollouts_per_problem": n, "refused": None}


def since(curve: Curve, cut: float, unit: str) -> Curve:
    """The part of a curve from a budget on."""
    return part_of(curve, position(curve, unit) >= cut)
