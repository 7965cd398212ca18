"""How far the answers hang on the seed of the draws: scores of one sweep by eight seeds.

    python benchmarks/seeds.py [SOURCE[@SHARE] ...]

One line per sweep, cut at a share of its largest budget: how far mean scores of the configurations
lie apart by the seed, in posterior standard deviations (root mean square over configurations; 400
draws alone make 0.05), the largest of them, how far their spreads differ, seconds of CPU of a fit.
Scores are asked for at the largest budget of the whole sweep and at four times it.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from isocompute.domain import Curve
from isocompute.model import fit_posterior
from isocompute.sources import load_curves

SEEDS = range(8)
SWEEPS = (
    "published:qwen2.5-7b-hard", "published:qwen2.5-7b-hard@0.5", "published:qwen2.5-7b-hard@0.25",
    "published:qwen2.5-7b-easy@0.5", "published:qwen2.5-7b-easy@0.25", "grid:hard", "grid:easy",
)  # fmt: skip


def cut(curves: list[Curve], share: float) -> list[Curve]:
    """The evaluations up to a share of the largest budget."""
    most = share * max(float(c.rollouts_K.max()) for c in curves)
    return [early for c in curves if len((early := c.until(most)).score_K)]


def line(source: str) -> str:
    name, _, share = source.partition("@")
    whole = load_curves(name)
    top = np.log10(max(float(c.rollouts_K.max()) for c in whole))
    curves, began = cut(whole, float(share or 1)), time.process_time()
    draws = [fit_posterior(curves, seed=seed).scores(top + np.array([0, 0.6])) for seed in SEEDS]
    took = (time.process_time() - began) / len(SEEDS)
    mean, spread = (np.array([f(d, axis=0) for d in draws]) for f in (np.mean, np.std))
    within = np.sqrt((spread**2).mean(axis=0))
    apart = mean.std(axis=0, ddof=1) / within
    differ = (spread.std(axis=0, ddof=1) / within).mean()
    return (
        f"| {source} | {np.sqrt((apart**2).mean()):.2f} | {apart.max():.2f} | {differ:.2f} "
        f"| {took:.2f} |"
    )


if __name__ == "__main__":
    print("| sweep | apart, sd | largest | spreads differ by | CPU s |\n|---|---|---|---|---|")
    for source in sys.argv[1:] or SWEEPS:
        print(line(source), flush=True)
