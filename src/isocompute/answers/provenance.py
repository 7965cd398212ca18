"""What a fit was made from and by which rules, so that another can repeat it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from isocompute import __version__
from isocompute.answers.overfit import noise_scale
from isocompute.answers.reading import Reading
from isocompute.domain import Curve

PLAIN = (0.0, 1.0)


def provenance(fit: Reading) -> dict[str, Any]:
    """Sources, numbers of runs and points, options, and hashes of data and code."""
    return {
        "isocompute": __version__,
        "code_sha256": code_sha256(),
        "data_sha256": data_sha256(fit.curves),
        "sources": list(fit.sources),
        "n_runs": len(fit.curves),
        "n_points": sum(len(c.score_K) for c in fit.curves),
        "n_missing": sum(c.n_missing for c in fit.curves),
        "evaluation_noise_phi": noise_scale(fit.curves),
        "score_range": list(next((r for c in fit.curves if (r := c.score_range) != PLAIN), PLAIN)),
        "selection": fit.posterior.select,
        "draws": fit.draws,
        "seed": fit.seed,
        "method": "one hierarchical model of the sweep, docs/model.md; answers are functionals of "
        "its draws, docs/answers.md",
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
