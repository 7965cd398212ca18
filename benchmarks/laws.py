"""Speed of fits and laws, beside a plain scipy loop in the same run.

`python benchmarks/laws.py` prints one line per figure: what, seconds, target. One process; set
OMP_NUM_THREADS to the cores that may be used.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.optimize import curve_fit

from isocompute.curves.draws import CURVE_BOUNDS
from isocompute.curves.fits import fit_curves
from isocompute.frontier import fit_frontier
from isocompute.laws.estimate import estimate_law
from isocompute.sigmoid import candidate_grid, fit_sigmoids
from isocompute.testing.planted import NOISE, WORLDS

CURVES, POINTS, PER_BIN = 10_000, 1_000, 20
SCIPY_CURVES = 50


def say(what: str, wall_s: float, cpu_s: float, target: str) -> None:
    print(f"{what}: {wall_s:.2f} s wall, {cpu_s:.2f} s cpu (target {target})", flush=True)


def many_curves(rng: np.random.Generator) -> None:
    x = np.linspace(4.0, 7.0, POINTS)
    truth = [rng.uniform(*r, (CURVES, 1)) for r in ((0.1, 0.4), (0.5, 0.9), (2, 8), (4.8, 6.2))]
    floor, ceiling, slope, midpoint = truth
    y = floor + (ceiling - floor) / (1 + np.exp(-slope * (x - midpoint)))
    y += rng.normal(0, 0.01, y.shape)
    wall, cpu = time.perf_counter(), time.process_time()
    binned_x = x.reshape(-1, PER_BIN).mean(axis=1)  # what `curves` does: the mean of each bin
    binned = y.reshape(CURVES, -1, PER_BIN).mean(axis=2)
    grid = candidate_grid(binned_x, CURVE_BOUNDS, n_slopes=8, midpoint_step=0.15)
    fit = fit_sigmoids(binned_x, binned, np.ones((1, len(binned_x))), CURVE_BOUNDS, grid=grid)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    say(f"{CURVES} curves of {POINTS} points", *spent, "1 s")
    print(f"  largest error of a ceiling {np.abs(fit.ceiling - ceiling[:, 0]).max():.3f}")

    def model(x: np.ndarray, f: float, c: float, k: float, m: float) -> np.ndarray:
        return f + (c - f) / (1 + np.exp(-k * (x - m)))

    wall, cpu = time.perf_counter(), time.process_time()
    for row in y[:SCIPY_CURVES]:
        curve_fit(model, x, row, p0=(0.2, 0.7, 4.0, 5.5), maxfev=5000)
    each = (time.perf_counter() - wall) / SCIPY_CURVES, (time.process_time() - cpu) / SCIPY_CURVES
    say(
        f"  scipy curve_fit in a loop, scaled from {SCIPY_CURVES}", *(CURVES * s for s in each), "-"
    )


def whole_law() -> None:
    world, noise = WORLDS["rising"], NOISE["middle"]
    curves = world.sample(noise, 15, np.random.default_rng(0))[:100]
    wall, cpu = time.perf_counter(), time.process_time()
    fits = fit_curves(curves, draws=1000)
    estimate_law(fit_frontier(fits), fits.rollouts_per_problem_J, variable="rollouts")
    spent = time.perf_counter() - wall, time.process_time() - cpu
    say(f"law of {len(curves)} runs, 1000 draws of the whole pipeline", *spent, "5 s")


def large_csv() -> None:
    rows = 1_000_000
    rng = np.random.default_rng(0)
    n = np.repeat([8, 16, 32, 64, 128, 256, 512, 1024], rows // 8)
    rollouts = np.tile(np.geomspace(1e4, 1e7, rows // 8), 8)
    ceiling = 0.6 + 0.01 * np.log2(n)
    middle = 4.8 + 0.1 * np.log2(n)
    score = 0.3 + (ceiling - 0.3) / (1 + np.exp(-3 * (np.log10(rollouts) - middle)))
    score = np.clip(score + rng.normal(0, 0.01, rows), 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "curves.csv"
        table = np.column_stack([np.full(rows, 32), n, rollouts, score])
        np.savetxt(path, table, fmt="%d,%d,%.1f,%.5f", comments="",
                   header="problems_per_batch,rollouts_per_problem,rollouts,score")  # fmt: skip
        command = [sys.executable, "-m", "isocompute", "fit", str(path), "--json", f"{folder}/f"]
        wall = time.perf_counter()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        say(f"fit of a CSV with {rows} rows", time.perf_counter() - wall, cpu, "5 s")
        print(f"  peak memory {after.ru_maxrss / 2**20:.2f} GiB (target 0.93)")


if __name__ == "__main__":
    many_curves(np.random.default_rng(0))
    whole_law()
    large_csv()
