"""Which runs of a sweep are smooth enough in C for a law to be read off them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from isocompute.curves.fits import CurveFits
from isocompute.domain import Curve
from isocompute.health.shape import LEAST_SMOOTH, Roughness, roughness


class SmoothRun(NamedTuple):
    """One run, and how smooth it is."""

    curve: Curve
    found: Roughness


def smooth_runs(fits: CurveFits) -> list[list[SmoothRun]]:
    """Per configuration, its runs with their smoothness.

    Runs with too few scores are left out, and runs that broke while their siblings did not.

    Evaluation noise is that of as many independent outcomes as the source says, else as the whole
    sweep shows between neighbouring checkpoints: noise that all runs share then passes as noise.
    """
    out = []
    for one in fits.binned:
        rows = []
        for curve, broke in zip(one.runs, one.collapsed_R, strict=True):
            if broke:  # fitted up to there only, and named by `unhealthy_run`
                continue
            noise = fits.phi if curve.trials is None else 1.0 / curve.trials
            found = roughness(curve.score_K, noise)
            if found is not None:
                rows.append(SmoothRun(curve, found))
        out.append(rows)
    return out


def noise_ratio(fits: CurveFits) -> float | None:
    """Noise between neighbouring checkpoints over that of independent outcomes; None: unknown.

    About 1, or below (problems differ, which takes variance out), for a healthy sweep.
    """
    trials = [c.trials for one in fits.binned for c in one.runs]
    known = [t for t in trials if t is not None]
    if len(known) < len(trials) or not known:
        return None
    return fits.phi * sum(known) / len(known)


def smooth_warning(rows: Sequence[Sequence[SmoothRun]]) -> dict[str, str] | None:
    """Warning `not_smooth`, which names the configurations of runs too rough to fit."""
    rough = [row for group in rows for row in group if row.found.too_rough]
    if not rough:
        return None
    total = sum(map(len, rows))
    names = sorted({(r.curve.problems_per_batch, r.curve.rollouts_per_problem) for r in rough})
    listed = ", ".join(f"B_p={b} n={n}" for b, n in names[:6])
    listed += f" and {len(names) - 6} more" if len(names) > 6 else ""
    share = "most runs, so read no law off this sweep" if 2 * len(rough) > total else "they bias it"
    return {
        "code": "not_smooth",
        "message": f"{len(rough)} of {total} runs are too rough to fit, {share}: a rise and "
        f"evaluation noise explain less than {LEAST_SMOOTH:g} of their variance ({listed}; "
        f"{min(r.found.smoothness for r in rough):.2f} at worst). Look at their health, change the "
        "recipe, or leave them out.",
    }


def smoothness_of(rows: Sequence[SmoothRun]) -> dict[str, Any]:
    """Columns of a curve's row: its roughest run's smoothness, and how many are too rough."""
    return {
        "smoothness": min((r.found.smoothness for r in rows), default=None),
        "n_not_smooth": sum(r.found.too_rough for r in rows),
    }


def evaluation_warning(fits: CurveFits) -> dict[str, str] | None:
    """Warning `unequal_evaluations`: runs are scored on different numbers of outcomes."""
    sizes = sorted({c.trials for one in fits.binned for c in one.runs if c.trials is not None})
    if len(sizes) < 2:
        return None
    return {
        "code": "unequal_evaluations",
        "message": f"the scores rest on {sizes[0]} to {sizes[-1]} outcomes, so some are noisier "
        "than others and one noise level is assumed for all; evaluate all runs alike.",
    }
