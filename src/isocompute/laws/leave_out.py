"""What the law would have said without the largest budget, or without the largest n.

Two baselines: the n that led where the fitted data end ("best so far"), and a power law
n* = a C^b through the frontier. What all three are judged by is the fit of the whole sweep at
its largest compared budget: the n* there in octaves, and the score that each choice loses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.curves.fits import fit_curves
from isocompute.domain import Curve
from isocompute.errors import RefusalError
from isocompute.frontier import fit_frontier
from isocompute.intervals import draw_interval
from isocompute.laws.backtest import until
from isocompute.laws.estimate import LawEstimate, estimate_law

if TYPE_CHECKING:
    from isocompute.laws.sweep import Fit

FloatArray = NDArray[np.float64]

BUDGET_LEFT_OUT = 0.5  # beyond this share of the largest compared budget: one doubling
_DRAWS = 200
_FEWEST_N = 3  # a law of what is left needs two


def leave_out(fit: Fit) -> list[dict[str, Any]]:
    """The largest budget, and the largest n, left out in turn.

    Returns:
        Rows {"left_out": "budget" or "rollouts_per_problem", "beyond" or "value", "at", "refused",
        "rollouts_per_problem": {"full", "law", "best_so_far", "power_law"}, "octaves_off":
        {"law", ...}, "score_lost": {"law", ...}}; "octaves_off" is log2 of what was said over the
        full fit's n*. Without the largest n also "gain", what that n adds at the largest budget,
        its "interval", and "edge", whether the reduced law asked for larger n.
    """
    top = fit.support[1]
    cut = BUDGET_LEFT_OUT * top
    early = [c for c in (until(c, cut, fit.unit) for c in fit.curves) if len(c.score_K)]
    rows = [{"left_out": "budget", "beyond": cut, **_judge(fit, early)}]
    n_J = fit.curve_fits.rollouts_per_problem_J
    if len(set(n_J.tolist())) >= _FEWEST_N:
        largest = int(n_J.max())
        rest = [c for c in fit.curves if c.rollouts_per_problem != largest]
        row = {"left_out": "rollouts_per_problem", "value": largest, **_judge(fit, rest)}
        rows.append({**row, **_gain(fit, n_J == largest)})
    return rows


def _judge(fit: Fit, curves: Sequence[Curve]) -> dict[str, Any]:
    """The law of some of the curves, asked for n* at the largest budget of all of them."""
    top = fit.support[1]
    fixed_batch = fit.setting["value"] if fit.variable == "steps" else None
    try:
        fits = fit_curves(
            curves,
            unit=fit.unit,
            width=fit.curve_fits.bins.width,
            select=fit.curve_fits.select,
            draws=_DRAWS,
            seed=fit.seed,
        )
        frontier = fit_frontier(fits, level=fit.level)
        law = estimate_law(
            frontier,
            fits.rollouts_per_problem_J,
            variable=fit.law.law.variable,
            batch_size=fixed_batch,
            level=fit.level,
        )
    except RefusalError as refusal:
        return {"at": top, "refused": refusal.reason}
    x = fit.law_x(top)
    said = {
        "law": law.predict(x),
        "best_so_far": float(2.0 ** law.path_V[-1]),
        "power_law": _power_law(law, x, fits.rollouts_per_problem_J),
    }
    full = fit.law.predict(x)
    scores = fit.expected_scores(top)
    # A configuration that was left out of the reduced fit may still be the better choice.
    best = max(scores.values())
    return {
        "at": top,
        "refused": None,
        "rollouts_per_problem": {"full": full, **said},
        "octaves_off": {name: float(np.log2(n / full)) for name, n in said.items()},
        "score_lost": {name: best - _score_of(scores, n) for name, n in said.items()},
        "edge": law.edge == "largest",
    }


def _power_law(law: LawEstimate, x: float, n_J: NDArray[np.int64]) -> float:
    """n* = a C^b through the frontier's path, within the n tested."""
    u_V = law.u_V if not law.linear else np.log10(law.u_V)
    slope, level = np.polyfit(u_V, law.path_V, 1)
    return float(np.clip(2.0 ** (level + slope * np.log10(x)), n_J.min(), n_J.max()))


def _score_of(scores: dict[tuple[int, int], float], n: float) -> float:
    """Score of the tested n nearest to n on the log scale, at its best B_p."""
    tested = sorted({key[1] for key in scores})
    chosen = min(tested, key=lambda t: abs(np.log2(t / n)))
    return max(score for key, score in scores.items() if key[1] == chosen)


def _gain(fit: Fit, largest_J: NDArray[np.bool_]) -> dict[str, Any]:
    """What the largest n adds to the best score at the largest budget, over the draws."""
    draws_DJ = fit.curve_fits.draw_value(np.array([np.log10(fit.support[1])]))[:, :, 0]
    gain_D = draws_DJ[:, largest_J].max(axis=1) - draws_DJ[:, ~largest_J].max(axis=1)
    low, high = draw_interval(gain_D, fit.level)
    return {"gain": float(gain_D.mean()), "gain_interval": [float(low), float(high)]}
