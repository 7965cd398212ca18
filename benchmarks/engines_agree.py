"""The same small study through `local` and through `trl`: same accounting, same final score.

    python benchmarks/engines_agree.py DIR --trl-python .venv-trainers/bin/python

Runs `isocompute run` twice on engines_agree.yaml, on the Easy problems of the shipped base model,
and prints the paired difference of the final avg@4 with its 95% interval (Student t over seeds:
both engines draw the same problems in the same order, and nothing else alike). Exits with 1 where
the interval is not within --within, or the accounts differ. Both studies resume.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from isocompute.difficulty import Draws, measure_difficulty
from isocompute.engines import embedded_success_counter, problem_generators
from isocompute.problems import save_problems
from isocompute.store import Store

STUDY = Path(__file__).with_name("engines_agree.yaml")
CANDIDATES, TRAIN = 6000, 200  # the Easy ones among the candidates beyond TRAIN are validation
WORLD_SEED = 21
SAMPLES = 4  # per validation problem
ACCOUNTS = ("rollouts", "tokens", "evaluation_rollouts", "evaluation_tokens", "wasted_rollouts")


def make_problems(folder: Path) -> None:
    """Easy problems by the base model's own pass rate, once."""
    if (folder / "validation.jsonl").exists():
        return
    candidates = problem_generators()["world"]("candidates", size=CANDIDATES, seed=WORLD_SEED)
    count = embedded_success_counter()("bits", candidates)

    def sample(index_P: object, samples: int) -> Draws:
        return Draws(*count(index_P, samples))

    easy = measure_difficulty(sample, candidates, second_stage=0).select("easy")
    train, validation = easy.problems[:TRAIN], easy.problems[TRAIN:]
    save_problems(easy.replace(name="train", problems=train), folder / "train.jsonl")
    save_problems(easy.replace(name="easy", problems=validation), folder / "validation.jsonl")


def run(study: Path, folder: Path, overrides: list[str]) -> None:
    command = [sys.executable, "-m", "isocompute", "run", str(study), "-o", str(folder)]
    subprocess.run([*command, *overrides], check=True)


def outcome(folder: Path) -> tuple[dict[int, float], dict[str, int], dict[str, float]]:
    """Final avg@4 by seed, what the store counted, and means of what the updates logged."""
    scores: dict[int, float] = {}
    health: dict[str, list[float]] = {}
    with Store(folder) as store:
        for stored in store.runs():
            _, successes_KP = store.successes(stored.hash, "easy")
            scores[stored.spec["seed"]] = float(successes_KP[-1].mean()) / SAMPLES
            for name, value_K in store.steps(stored.hash).health.items():
                health.setdefault(name, []).append(float(np.nanmean(value_K)))
        counted = store.accounting().to_dict()
    accounts = {name: int(counted[name]) for name in ACCOUNTS}
    return scores, accounts, {name: float(np.mean(v)) for name, v in health.items()}


def paired(first: dict[int, float], second: dict[int, float]) -> tuple[float, float]:
    """Mean of second - first over the seeds, and half its 95% interval."""
    if set(first) != set(second):
        raise SystemExit(f"the engines must have the same seeds: {sorted(first)}, {sorted(second)}")
    difference_S = np.array([second[seed] - first[seed] for seed in sorted(first)])
    error = difference_S.std(ddof=1) / np.sqrt(difference_S.size)
    return float(difference_S.mean()), float(stats.t.ppf(0.975, difference_S.size - 1) * error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trl-python", default=sys.executable, help="a Python that has TRL")
    parser.add_argument("--within", type=float, default=0.02)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE",
                        help="overrides of the study, for both engines")  # fmt: skip
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    make_problems(folder)
    study = Path(shutil.copy(STUDY, folder))
    trl = ["engine=trl", f"engine_options.python={options.trl_python}", "engine_options.device=cpu"]
    run(study, folder / "local", options.set)
    run(study, folder / "trl", [*options.set, *trl])
    (local, local_counts, local_health), (other, other_counts, other_health) = (
        outcome(folder / name) for name in ("local", "trl")
    )
    print(f"{'':24}{'local':>12}{'trl':>12}")
    for name in ACCOUNTS:
        print(f"{name:24}{local_counts[name]:12,}{other_counts[name]:12,}")
    for seed in sorted(local):
        print(f"final avg@4, seed {seed:<6}{local[seed]:12.4f}{other[seed]:12.4f}")
    for name in sorted(set(local_health) & set(other_health)):
        print(f"mean {name:19}{local_health[name]:12.4g}{other_health[name]:12.4g}")
    mean, half = paired(local, other)
    low, high = mean - half, mean + half
    agree = -options.within <= low and high <= options.within and local_counts == other_counts
    print(f"trl - local, paired over {len(local)} seeds: {mean:+.4f} [{low:+.4f}, {high:+.4f}], "
          f"{'within' if agree else 'NOT within'} {options.within:g} and the same accounts")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
