"""How often a new run's evaluation lies in the interval that a plan names on its way.

    python benchmarks/on_the_way.py [SWEEPS]     # of each world and noise; 12: five CPU minutes

Planted sweeps have three seeds of each n and end at a quarter of the world's budget. A fourth run
of the chosen n goes on; its evaluation nearest to the named budget is compared.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from isocompute.answers.fit import fit_sweep
from isocompute.answers.plan import plan_budget
from isocompute.errors import IsocomputeError
from isocompute.testing.families import CONDITIONS, FAMILIES, SURFACES, cut_to
from isocompute.testing.planted import WORLDS

NOISES = ("low", "middle", "high", "greedy")
FACTOR = 4.0  # the budget of the plan, over the largest of the sweep


def main(sweeps: int = 12) -> None:
    """Print the share inside and the share below, by world and by noise."""
    worlds = {
        name: {**WORLDS, **FAMILIES, **SURFACES}[name]
        for name in ("rising", "flat", "weibull", "unbounded", "half_gompertz", "grpo_easy",
                     "grpo_hard", "concave", "no_order", "interior")
        if name in {**WORLDS, **FAMILIES, **SURFACES}
    }  # fmt: skip
    conditions = {name: CONDITIONS[name] for name in NOISES if name in CONDITIONS}
    rows: dict[str, list[tuple[bool, bool, float]]] = defaultdict(list)
    for w, (name, world) in enumerate(worlds.items()):
        for k, (said, condition) in enumerate(conditions.items()):
            for i in range(sweeps):
                rng = np.random.default_rng((w, k, i))
                curves = condition.seen(world).sample(condition.noise, 4, rng)
                end = max(float(c.rollouts_K[-1]) for c in curves) / FACTOR
                sweep = [cut_to(c, end) for c in curves if c.seed != 3]
                try:
                    found = plan_budget(fit_sweep(sweep), FACTOR * end).document
                except IsocomputeError:
                    continue
                check = found.get("check")
                if check is None:
                    continue
                chosen = found["problems_per_batch"], found["rollouts_per_problem"]
                run = next(c for c in curves if c.seed == 3 and c.configuration == chosen)
                at = int(np.abs(np.log(run.rollouts_K[1:] / check["rollouts"])).argmin()) + 1
                score, (low, high) = float(run.score_K[at]), check["interval"]
                row = low <= score <= high, score < low, high - low
                for key in (name, said, "all"):
                    rows[key].append(row)
    for key, found_rows in rows.items():
        inside, below, width = np.mean(found_rows, axis=0)
        print(f"{key:<16}{len(found_rows):>5}  inside {inside:.2f}  below {below:.2f}  "
              f"width {width:.3f}")  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
