"""What rate does a short probe choose, and what does the choice lose at the end of a run?

    python benchmarks/lr_probe.py FOLDER

Trains `verbs` on 500 hard problems with eight constant rates. Probes end after 20, 50, 100 and 200
steps, with 10, 2 or no warm-up steps; the long runs warm up for 10. A probe chooses as
`isocompute lr-sweep` does: health rules, then the best of its last scores (4 samples of 300
problems, one seed). Prints the table of docs/lab-log.md. An hour of one core; it resumes.

Shape legend: S seeds; L rates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from isocompute.lr_sweep import find_anchor, lr_study
from isocompute.runner import open_study, run_study

ROOT = Path(__file__).resolve().parent.parent
RATES = tuple(1.25e-4 * 2**i for i in range(-1, 7))
ENDS = {32: (2_097_152,)}  # beyond those of `grid:anchor`
PROBED = (4, 32)
PROBES, WARM_UPS, SEEDS = (20, 50, 100, 200), (10, 2, 0), (0, 1, 2)


def swept(folder: Path, n: int, steps: int, warm_up: int, seed: int, samples: int,
          rates: tuple[float, ...] = RATES) -> Any:  # fmt: skip
    """The rates trained so far, and the document of their anchor."""
    content = {
        "engine": "local", "engine_options": {"model": "verbs"},
        "problems": {
            part: {"path": str(ROOT / "grid" / "problems.parquet"), "verifier": "integer",
                   "held_out": 3500, "part": part, "band": "hard", "size": size}
            for part, size in (("train", 500), ("validation", 300))
        },
        "recipe": {"difficulty": "hard", "temperature": 1.0, "warmup_steps": warm_up,
                   "learning_rate": 1e-3},
        "grid": {"problems_per_batch": 32, "rollouts_per_problem": n, "seeds": [seed]},
        "budget": 32 * n * steps, "evaluation": {"samples": samples, "first": 32 * n * 20},
    }  # fmt: skip
    content["problems"]["validation"] = {"hard": content["problems"]["validation"]}
    file = folder / "study.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in content.items()))
    study = lr_study(open_study(file), rates, whole=True)
    run_study(study, folder / "runs", workers=0)
    return find_anchor(folder / "runs", study)


def main() -> None:
    """Train, choose, compare."""
    base = Path(sys.argv[1])
    for n in PROBED:
        for seed in SEEDS:
            for warm_up in WARM_UPS:
                for steps in PROBES:
                    folder = base / f"probe-{n}-{warm_up}-{seed}"
                    cached = folder / f"{steps}.json"
                    if not cached.exists():
                        found = swept(folder, n, steps, warm_up, seed, 4)
                        cached.write_text(json.dumps(found))
    for n, ends in ENDS.items():
        for seed in SEEDS:
            for end in ends:
                folder = base / f"end-{n}-{seed}"
                cached = folder / f"{end}.json"
                if not cached.exists():
                    found = swept(folder, n, end // (32 * n), 10, seed, 16, RATES[1:6])
                    cached.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
