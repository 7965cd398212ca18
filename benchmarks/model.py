"""Speed of the model: from a file to a plan, many draws, a large file, many runs.

    python benchmarks/model.py

One line per figure: what, wall and CPU seconds, target. One process and one thread each; set
OMP_NUM_THREADS=1. Imports are not counted but where a whole command is timed.
"""

from __future__ import annotations

import csv
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.csv  # noqa: F401  # before the clock starts

from isocompute.allocation import parse_budget
from isocompute.answers import fit_sweep, plan_from_source
from isocompute.answers.sigmoid import Bounds, fit_sigmoids
from isocompute.domain import Curve
from isocompute.model import fit_posterior
from isocompute.testing.planted import NOISE, WORLDS

RUNS = (10, 100, 1_000, 10_000)
ROWS = 1_000_000


@contextmanager
def timed(what: str, target: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    say(what, time.perf_counter() - wall, time.process_time() - cpu, target)


def say(what: str, wall_s: float, cpu_s: float, target: str) -> None:
    print(f"{what}: {wall_s:.2f} s wall, {cpu_s:.2f} s CPU (target {target})", flush=True)


def planted(seeds: int) -> list[Curve]:
    """Runs of a sweep of seven n, each n once, then each n again."""
    curves: list[Curve] = WORLDS["rising"].sample(NOISE["middle"], seeds, np.random.default_rng(0))
    return sorted(curves, key=lambda c: (c.seed, c.configuration))


def write(path: Path, curves: Sequence[Curve]) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("problems_per_batch", "rollouts_per_problem", "rollouts", "score", "seed"))
        for c in curves:
            for x, y in zip(c.rollouts_K, c.score_K, strict=True):
                rows.writerow((*c.configuration, x, y, c.seed))


def file_to_plan(folder: Path) -> None:
    curves = planted(3)
    write(folder / "sweep.csv", curves)
    budget = parse_budget("4e6")
    with timed(f"{len(curves)} runs, from a file to a plan", "1 s of CPU"):
        plan_from_source(str(folder / "sweep.csv"), budget=budget)


def many_draws() -> None:
    curves = planted(15)[:100]
    with timed("100 runs, 1,000 draws, the whole document", "5 s"):
        _ = fit_sweep(curves, draws=1_000).document


def large_csv(folder: Path) -> None:
    rng = np.random.default_rng(0)
    n = np.repeat([8, 16, 32, 64, 128, 256, 512, 1024], ROWS // 8)
    rollouts = np.tile(np.geomspace(1e4, 1e7, ROWS // 8), 8)
    ceiling, middle = 0.6 + 0.01 * np.log2(n), 4.8 + 0.1 * np.log2(n)
    score = 0.3 + (ceiling - 0.3) / (1 + np.exp(-3 * (np.log10(rollouts) - middle)))
    score = np.clip(score + rng.normal(0, 0.01, ROWS), 0, 1)
    table = np.column_stack([np.full(ROWS, 32), n, rollouts, score])
    path = folder / "curves.csv"
    np.savetxt(path, table, fmt="%d,%d,%.1f,%.5f", comments="",
               header="problems_per_batch,rollouts_per_problem,rollouts,score")  # fmt: skip
    command = [sys.executable, "-m", "isocompute", "fit", str(path), "--json", f"{folder}/fit"]
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    what = f"`isocompute fit` of a CSV with {ROWS:,} rows, imports included"
    say(what, time.perf_counter() - wall, cpu, "3 s")
    print(f"  peak memory {after.ru_maxrss / 2**20:.2f} GiB (target 0.5)", flush=True)


def many_paths() -> None:
    rng = np.random.default_rng(0)
    u = np.linspace(4.8, 6.6, 49)
    rows = (rng.uniform(2, 8, (400, 1)), rng.uniform(5, 6.3, (400, 1)))
    y = 3 + 6 / (1 + np.exp(-rows[0] * (u - rows[1]))) + rng.normal(0, 0.1, (400, 49))
    bounds = Bounds(level=(3.0, 9.0), slope=(0.5, 90.0), midpoint=(4.1, 7.3))
    with timed("sigmoids of 400 paths of n*", "0.05 s of CPU"):
        fit_sigmoids(u, y, bounds)


def by_runs() -> None:
    curves = planted(-(-RUNS[-1] // 7))
    for runs in RUNS:
        with timed(f"posterior of {runs:,} runs", "about linear in runs"):
            fit_posterior(curves[:runs])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        large_csv(Path(name))  # first: a child's peak memory counts what its parent holds
        file_to_plan(Path(name))
    many_draws()
    many_paths()
    by_runs()
