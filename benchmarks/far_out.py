"""How often the scores of plans hold, by how far they lie beyond the sweep.

    python benchmarks/far_out.py [SWEEPS]     # of each world and cut; 9: half an hour of CPU

Planted sweeps have three seeds of each n and end at a sixteenth or a sixty-fourth of a world's
budget. A plan is asked for 1 to 100 times that; what it names for its choice is compared with the
truth. `held`: of the plans that were given, the share whose 95% interval holds it.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from isocompute.answers.fit import fit_sweep
from isocompute.answers.plan import plan_budget
from isocompute.errors import IsocomputeError
from isocompute.testing.families import FAMILIES
from isocompute.testing.planted import NOISE, WORLDS

CUTS, FACTORS = (16, 64), (1, 4, 10, 30, 60, 100)
# Worlds in which nothing is to be chosen, or a run breaks: what is far out is no question there.
APART = {"equal", "constant_small", "constant_large", "falling", "overfit", "collapse",
         "unequal_seeds", "fails_late"}  # fmt: skip


def main(sweeps: int = 9) -> None:
    """Print plans asked for and given, the share that held, loss, width and error, by factor."""
    worlds = {name: w for name, w in {**WORLDS, **FAMILIES}.items() if name not in APART}
    noise, asked = NOISE["middle"], defaultdict[int, int](int)
    rows: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for w, world in enumerate(worlds.values()):
        truth = world.truth(noise)
        keys = [(a.problems_per_batch, a.rollouts_per_problem) for a in truth.arms]
        for cut in CUTS:
            part = world.until(world.max_rollouts / cut)
            for i in range(sweeps):
                try:
                    fit = fit_sweep(part.sample(noise, 3, np.random.default_rng((w, cut, i))))
                except IsocomputeError:
                    continue
                for factor in FACTORS:
                    budget = part.max_rollouts * factor
                    asked[factor] += 1
                    d = plan_budget(fit, budget).document
                    if d["refusal"] is not None:
                        continue
                    score_J = truth.score(budget)[:, 0]
                    true = score_J[keys.index((d["problems_per_batch"], d["rollouts_per_problem"]))]
                    low, high = d["predicted_score_interval"]
                    rows[factor].append((low <= true <= high, score_J.max() - true, high - low,
                                         abs(d["predicted_score"] - true)))  # fmt: skip
    for factor, found in rows.items():
        held, loss, width, error = np.mean(found, axis=0)
        spread = np.sqrt(held * (1 - held) / len(found))
        print(f"{factor:>4}x  asked {asked[factor]:>5}  given {len(found):>5}  held {held:.2f} "
              f"± {spread:.2f}  loss {loss:.4f}  width {width:.3f}  error {error:.3f}")  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
