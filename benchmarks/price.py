r"""What a run takes, foretold by a probe of a minute, beside what it then took.

    python benchmarks/price.py FOLDER [--trl-python .venv-trainers/bin/python]

Five studies of the embedded engine (three worlds, GRPO, PPO, CISPO) and two of TRL, one run each
of several batch sizes. Each is probed (`isocompute run --calibrate 60` does the same) and then
trained, one run after the other; prints every run and the share that lies within a quarter. On an
idle machine: half an hour. Resumes: a study that was trained is not probed again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from isocompute.runner import calibrate, open_study, run_study
from isocompute.store import Store
from isocompute.study.cost import run_seconds

PROBE_S = 60.0
WITHIN = 0.25


def study(world: str, model: str, n: list[int], budget: int, **recipe: Any) -> dict[str, Any]:
    """A study of one world: B_p = 16, one seed, GRPO unless the recipe says otherwise."""
    problems = {"generated": "world", "options": {"world": world, "size": 200, "part": "train"}}
    held_out = {**problems, "options": {**problems["options"], "part": "validation"}}
    return {
        "name": f"{world}-{recipe.get('objective', 'grpo')}", "engine": "local",
        "engine_options": {"model": model},
        "problems": {"train": problems, "validation": {"held-out": held_out}},
        "recipe": {"difficulty": "easy", "learning_rate": 1e-3, "temperature": 1.0, **recipe},
        "grid": {"problems_per_batch": 16, "rollouts_per_problem": n, "seeds": 1},
        "budget": budget, "evaluation": {"samples": 4, "per_octave": 1, "first": 1024},
    }  # fmt: skip


def studies(trl_python: Path | None) -> dict[str, dict[str, Any]]:
    """By name."""
    found = {
        "bits": study("bits", "bits", [4, 16, 64, 256], 49152),
        "bits, feed-forward": study("bits", "bits-mlp", [4, 16, 64, 256], 262144),
        "bits, PPO": study("bits", "bits", [4, 16, 64], 32768,
                           objective="ppo", value_learning_rate=1e-3),
        "bits, CISPO, 4 updates": study("bits", "bits", [4, 16, 64], 32768,
                                        objective="cispo", updates_per_batch=4),
        "machine": study("machine", "machine", [4, 16, 64], 24576),
    }  # fmt: skip
    if trl_python is not None:
        trl = {"engine": "trl",
               "engine_options": {"model": "bits", "python": str(trl_python), "device": "cpu"}}
        found["TRL, bits"] = study("bits", "bits", [4, 16, 64], 8192) | trl
        found["TRL, bits, no KL"] = study("bits", "bits", [4, 16, 64], 8192,
                                          kl_coef=0.0, entropy_coef=0.0) | trl
    return found


def measure(name: str, content: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Probe and train one study; a row for each of its runs."""
    folder.mkdir(parents=True, exist_ok=True)
    file, rows = folder / "study.yaml", folder / "rows.json"
    if rows.exists():
        return list(json.loads(rows.read_text()))
    file.write_text(json.dumps(content))  # JSON is YAML
    opened = open_study(file)
    probe = calibrate(opened, seconds=PROBE_S)
    run_study(opened, folder / "study", workers=1)
    found = []
    with Store(folder / "study") as store:
        took = {stored.hash: stored.wall_s for stored in store.runs()}
    for spec in opened.runs:
        found.append({
            "study": name, "n": spec.allocation.rollouts_per_problem,
            "steps": spec.allocation.steps, "probe_s": probe.wall_s,
            "foretold_s": run_seconds(opened, spec, probe), "took_s": took[spec.hash],
        })  # fmt: skip
    rows.write_text(json.dumps(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trl-python", type=Path)
    parser.add_argument("--only", help="this study alone")
    given = parser.parse_args()
    python = given.trl_python and given.trl_python.absolute()
    print("| study | n | steps | probe, s | foretold, s | took, s | took / foretold |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for name, content in studies(python).items():
        if given.only in (None, name):
            for row in measure(name, content, given.folder / name.replace(", ", "-")):
                ratios.append(row["took_s"] / row["foretold_s"])
                print(f"| {name} | {row['n']} | {row['steps']:,} | {row['probe_s']:.0f} | "
                      f"{row['foretold_s']:.1f} | {row['took_s']:.1f} | {ratios[-1]:.2f} |",
                      flush=True)  # fmt: skip
    right = sum(1 / (1 + WITHIN) <= ratio <= 1 + WITHIN for ratio in ratios)
    print(f"\n{right} of {len(ratios)} runs within {WITHIN:.0%}")


if __name__ == "__main__":
    main()
