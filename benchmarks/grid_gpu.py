"""Runs of the grid from a GPU beside those of the same configurations from a CPU.

    python benchmarks/grid_gpu.py        # grid/gpu against grid/runs

Other random numbers, so other runs of the same law: they should differ as seeds do. Prints a table
and two differences over all configurations, each with its standard error: of the final score, and
of the mean score over octaves of rollouts from 4,096 on. A seed's spread is that of the CPU's runs.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

GRID = Path(__file__).parents[1] / "grid"
FIRST = 4096.0  # rollouts of the grid's first evaluation after the start


class Run(NamedTuple):
    """What a run's file says of the set that it was trained on."""

    rollouts_K: np.ndarray
    score_K: np.ndarray


def runs_of(folder: Path) -> dict[tuple[str, int, int], list[Run]]:
    """(study, B_p, n) -> runs, for the studies whose trained set has the study's own name."""
    found = defaultdict(list)
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file)
        head = json.loads(table.schema.metadata[b"isocompute"])
        rows = [r for r in table.to_pylist() if r["problem_set"] == head["study"]]
        split, rows_K = head["spec"], sorted(rows, key=lambda r: r["rollouts"])
        if rows_K and head["state"] == "done":
            key = head["study"], split["problems_per_batch"], split["rollouts_per_problem"]
            score_K = [np.mean(r["successes"]) / r["samples"] for r in rows_K]
            found[key].append(Run(np.array([r["rollouts"] for r in rows_K]), np.array(score_K)))
    return found


def over_octaves(run: Run) -> float:
    """Mean score over log rollouts."""
    inside = run.rollouts_K >= FIRST
    x_K = np.log2(run.rollouts_K[inside])
    return float(np.trapezoid(run.score_K[inside], x_K) / np.ptp(x_K))


def main() -> int:
    """Print the table; 1 where no configuration is on both sides."""
    gpu, cpu = runs_of(GRID / "gpu"), runs_of(GRID / "runs")
    shared = sorted(gpu.keys() & cpu.keys())
    if not shared:
        print("no configuration has runs of both", file=sys.stderr)
        return 1
    print("| study | B_p | n | GPU | CPU |\n|---|---|---|---|---|")
    for key in shared:
        both = (" ".join(f"{r.score_K[-1]:.3f}" for r in side[key]) for side in (gpu, cpu))
        print("|", " | ".join((*map(str, key), *both)), "|")
    measures: dict[str, Callable[[Run], float]] = {
        "final score": lambda run: float(run.score_K[-1]), "mean over octaves": over_octaves,
    }  # fmt: skip
    for name, measure in measures.items():
        sides = [[np.array([measure(r) for r in side[k]]) for k in shared] for side in (gpu, cpu)]
        seed_sd = np.sqrt(np.mean([v.var(ddof=1) for v in sides[1]]))
        gap = np.array([a.mean() - b.mean() for a, b in zip(*sides, strict=True)])
        weight = np.array([1 / (1 / len(a) + 1 / len(b)) for a, b in zip(*sides, strict=True)])
        print(f"{name}: GPU - CPU {np.average(gap, weights=weight):+.4f} "
              f"± {seed_sd / weight.sum() ** 0.5:.4f} (a seed: {seed_sd:.4f})")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
