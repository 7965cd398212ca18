"""Overfitting: validation falls while training rises; where, by how much, and what it caps.

Shape legend: K evaluations of all runs of one configuration, in order of log10 x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.bins import WINDOW, noise_scale, position
from isocompute.domain import Curve

FloatArray = NDArray[np.float64]

SURE = 3.0  # standard errors between the best window and the last one
LEAST_FALL = 0.01  # of score: less caps nothing


class _Windows(NamedTuple):
    """Means over a quarter of a decade around each evaluation, with their variances."""

    x_K: FloatArray
    mean_K: FloatArray
    variance_K: FloatArray

    def at(self, x: float) -> float:
        """Mean nearest to log10 x."""
        return float(self.mean_K[np.abs(self.x_K - x).argmin()])


def overfitting(
    validation: Sequence[Curve], train: Sequence[Curve], *, unit: str = "rollouts"
) -> list[dict[str, Any]]:
    """Train-test gap of every configuration, and where its validation turned.

    Args:
        validation, train: curves of the same runs on both splits; configurations without train
            curves are left out.
        unit: of x.

    Returns:
        Rows {"problems_per_batch", "rollouts_per_problem", "gap" (train minus validation at the
        end), "gap_at_peak", "from" (budget of the best validation), "validation_lost" since then,
        "standard_errors", "train_gained" since then, "overfits"}. It overfits where validation
        lost at least 0.01 and 3 standard errors of evaluation noise, and train did not fall.
    """
    if not train:
        return []
    phi = noise_scale(validation, unit=unit)
    rows = []
    for b_p, n in sorted({(c.problems_per_batch, c.rollouts_per_problem) for c in validation}):
        seen, trained = (
            _windows(
                [c for c in s if (c.problems_per_batch, c.rollouts_per_problem) == (b_p, n)],
                phi,
                unit,
            )
            for s in (validation, train)
        )
        if seen is None or trained is None:
            continue
        top, last = int(seen.mean_K.argmax()), len(seen.x_K) - 1
        fall = float(seen.mean_K[top] - seen.mean_K[last])
        error = float(np.sqrt(seen.variance_K[top] + seen.variance_K[last]))
        start, end = seen.x_K[top], seen.x_K[last]
        gain = trained.at(end) - trained.at(start)
        sure = fall / error if error > 0 else (np.inf if fall > 0 else 0.0)
        rows.append(
            {
                "problems_per_batch": b_p,
                "rollouts_per_problem": n,
                "gap": trained.at(end) - float(seen.mean_K[last]),
                "gap_at_peak": trained.at(start) - float(seen.mean_K[top]),
                "from": float(10**start),
                "validation_lost": fall,
                "standard_errors": float(sure),
                "train_gained": gain,
                "overfits": bool(fall >= LEAST_FALL and sure > SURE and gain >= 0),
            }
        )
    return rows


def _windows(curves: Sequence[Curve], phi: float, unit: str) -> _Windows | None:
    x = np.concatenate([position(c, unit) for c in curves]) if curves else np.zeros(0)
    if (x > 0).sum() < 2:
        return None
    y = np.concatenate([c.score_K for c in curves])[x > 0]
    x = np.log10(x[x > 0])
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    first = np.searchsorted(x, x - WINDOW / 2, side="left")
    after = np.searchsorted(x, x + WINDOW / 2, side="right")
    total = np.concatenate([[0.0], np.cumsum(y)])
    count = after - first
    mean = (total[after] - total[first]) / count
    p = np.clip(mean, 0.002, 0.998)
    return _Windows(x, mean, phi * p * (1 - p) / count)


def overfit_warning(rows: Sequence[dict[str, Any]]) -> dict[str, str] | None:
    """Warning `overfitting`: where, by how much, and that it caps n*."""
    found = [row for row in rows if row["overfits"]]
    if not found:
        return None
    worst = max(found, key=lambda row: row["validation_lost"])
    names = ", ".join(
        f"B_p={r['problems_per_batch']} n={r['rollouts_per_problem']}" for r in found[:6]
    ) + (f" and {len(found) - 6} more" if len(found) > 6 else "")
    capped = "n* is capped by it: beyond that budget more of the same problems buys nothing."
    if len(found) < len(rows):
        capped = (
            "n* is capped by it where these lead: beyond that budget more of the same problems "
            f"buys them nothing; {len(rows) - len(found)} of {len(rows)} configurations go on."
        )
    return {
        "code": "overfitting",
        "message": f"validation falls while training does not, for {names}; at worst from "
        f"{worst['from']:,.0f} on (B_p={worst['problems_per_batch']} "
        f"n={worst['rollouts_per_problem']}): validation loses {worst['validation_lost']:.3f}, "
        f"training gains {worst['train_gained']:.3f}. {capped} Add problems, or stop there.",
    }
