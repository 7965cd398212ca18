"""The law under other bin widths and under the paper's strict record rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.curves.bins import BIN_WIDTH
from isocompute.curves.fits import fit_curves
from isocompute.errors import RefusalError
from isocompute.frontier import fit_frontier
from isocompute.laws.estimate import estimate_law

if TYPE_CHECKING:
    from isocompute.laws.sweep import Fit


def sensitivity(fit: Fit) -> list[dict[str, Any]]:
    """Rows {"rule", "x", "rollouts_per_problem", "refused"}: the law at five budgets."""
    x = np.geomspace(*fit.support, 5)
    fixed_batch = fit.setting["value"] if fit.variable == "steps" else None
    rules: list[tuple[str, dict[str, Any]]] = [
        (f"{8 * f:g} bins per doubling", {"width": BIN_WIDTH / f}) for f in (0.25, 0.5, 2.0)
    ]
    rules.append(("record-breaking bins only", {"strict_records": True}))
    out = []
    for name, options in rules:
        row: dict[str, Any] = {"rule": name, "x": [float(v) for v in x]}
        try:
            fits = fit_curves(
                fit.curves, unit=fit.unit, select=fit.curve_fits.select, draws=0, **options
            )
            law = estimate_law(
                fit_frontier(fits),
                fits.rollouts_per_problem_J,
                variable=fit.law.law.variable,
                batch_size=fixed_batch,
            ).law
            n = [float(v) for v in law.predict([fit.law_x(v) for v in x])]
            row |= {"rollouts_per_problem": n, "refused": None}
        except RefusalError as refusal:
            row |= {"rollouts_per_problem": None, "refused": refusal.reason}
        out.append(row)
    return out
