"""What a fit was made from and by which rules, so that another can repeat it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute import __version__
from isocompute.curves.bins import MIN_POINTS, WINDOW
from isocompute.curves.means import HUBER
from isocompute.domain import Curve
from isocompute.laws.smooth import noise_ratio

if TYPE_CHECKING:
    from isocompute.laws.sweep import Fit


def provenance(fit: Fit) -> dict[str, Any]:
    """Sources, numbers of runs and points, rules, and hashes of data and code."""
    fits = fit.curve_fits
    bounds = fits.means.bounds
    return {
        "isocompute": __version__,
        "code_sha256": code_sha256(),
        "data_sha256": data_sha256(fit.curves),
        "sources": list(fit.sources),
        "n_runs": len(fit.curves),
        "n_points": sum(len(c.score_K) for c in fit.curves),
        "n_missing": sum(c.n_missing for c in fit.curves),
        "n_configurations_left_out": len(fits.excluded),
        "n_bins_dominated": sum(int(b.dominated_RX.sum()) for b in fits.binned),
        "bin_width_log10": fits.bins.width,
        "record_window_log10": WINDOW,
        "min_points": MIN_POINTS,
        "evaluation_noise_phi": fits.phi,
        "evaluation_noise_ratio": noise_ratio(fits),
        "between_run_sd": fits.run_sd if fits.seeds_known else None,
        "misfit_sd": None if fits.seeds_known else fits.run_sd,
        "gompertz_gain": fits.gompertz_gain,
        "loss": "Huber, reweighted least squares, summed",
        "huber_corner_sd": HUBER,
        "weights": "1 / variance of the mean over runs: evaluation noise and spread between runs",
        "bounds": {
            "score": [bounds.low, bounds.high],
            "slope_per_decade": list(bounds.slope),
            "midpoint_decades_outside_data": bounds.midpoint_margin,
        },
        "starts": "every pair of a grid of slopes and midpoints, the best polished",
        "selection": fits.select,
        "draws": fit.draws,
        "seed": fit.seed,
        "method": "arXiv 2603.12151, section 4, with the departures of docs/laws.md",
    }


def data_sha256(curves: Sequence[Curve]) -> str:
    """Of the runs that were fitted, whatever file they came from and in whatever order."""
    rows = []
    for c in curves:
        row = hashlib.sha256(f"{c.problems_per_batch} {c.rollouts_per_problem} {c.seed}".encode())
        tokens = () if c.tokens_K is None else c.tokens_K
        for values in (c.rollouts_K, c.score_K, tokens):
            row.update(np.asarray(values, dtype="<f8").tobytes() + b";")
        rows.append(row.digest())
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()


@cache
def code_sha256() -> str:
    """Of the package's Python files, by name and content."""
    root = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + text + b"\0")
    return found.hexdigest()
