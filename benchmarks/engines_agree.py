r"""The same small study through `local`, `trl` and `verl`: same accounting, same final score.

    python benchmarks/engines_agree.py DIR --trl-python .venv-trainers/bin/python \
        --verl-python .venv-verl-cpu/bin/python

Runs `isocompute run` on engines_agree.yaml, on Easy problems of the shipped base model: GRPO with
KL and entropy for 40 steps, then CISPO for 20, each with every engine. Prints the paired difference
of the final avg@4 from `local` with its 95% interval (Student t over seeds: the engines draw the
same problems in the same order, verl in an order of its own, and nothing else alike). Exits with 1
where an interval is not within --within, or the accounts differ. Every study resumes: break it off
at any time and start it again; with --report nothing is run, and the seeds that all have are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from engines_agree_verl import verl_study
from scipy import stats

from isocompute.difficulty import Draws, measure_difficulty
from isocompute.engines import embedded_success_counter, problem_generators
from isocompute.problems import save_problems
from isocompute.store import Store
from isocompute.study.yaml12 import read_yaml

STUDY = Path(__file__).with_name("engines_agree.yaml")
CANDIDATES, TRAIN, VALIDATION = 6000, 200, 300  # the first Easy ones among the candidates
WORLD_SEED = 21
SAMPLES = 4  # per validation problem
CISPO: dict[str, Any] = {
    "budget": 10240, "evaluation": {"samples": SAMPLES, "per_octave": 1, "first": 10240},
}  # fmt: skip
ACCOUNTS = ("rollouts", "tokens", "evaluation rollouts", "last step")


def make_problems(folder: Path) -> None:
    """Easy problems by the base model's own pass rate, once."""
    if (folder / "validation.jsonl").exists():
        return
    candidates = problem_generators()["world"]("candidates", size=CANDIDATES, seed=WORLD_SEED)
    count = embedded_success_counter()("bits", candidates)

    def sample(index_P: object, samples: int) -> Draws:
        return Draws(*count(index_P, samples))

    easy = measure_difficulty(sample, candidates, second_stage=0).select("easy")
    train, validation = easy.problems[:TRAIN], easy.problems[TRAIN:][:VALIDATION]
    save_problems(easy.replace(name="train", problems=train), folder / "train.jsonl")
    save_problems(easy.replace(name="easy", problems=validation), folder / "validation.jsonl")


def studies(folder: Path, trl_python: Path | None, verl_python: Path | None) -> dict[str, Any]:
    """Objective -> engine -> content of the study file."""
    grpo = read_yaml(STUDY)
    cispo = grpo | CISPO | {"recipe": grpo["recipe"] | {"objective": "cispo"}}
    found: dict[str, Any] = {}
    for objective, study in (("grpo", grpo), ("cispo", cispo)):
        found[objective] = {"local": study}
        if trl_python is not None:
            options = study["engine_options"] | {"python": str(trl_python), "device": "cpu"}
            found[objective]["trl"] = study | {"engine": "trl", "engine_options": options}
        if verl_python is not None:
            found[objective]["verl"] = verl_study(study, folder, verl_python)
    return found


def run(study: Path, folder: Path) -> None:
    # each engine's Python has its own packages: isocompute alone is on the path
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    command = [sys.executable, "-m", "isocompute", "run", str(study), "-o", str(folder)]
    subprocess.run(command, check=True, env=environment)


class Outcome:
    """Final avg@4, accounts and mean health of the runs of one engine that are done, by seed."""

    def __init__(self, folder: Path) -> None:
        self.scores: dict[int, float] = {}
        self.accounts: dict[int, tuple[int, ...]] = {}
        self.health: dict[str, list[float]] = {}
        with Store(folder) as store:
            for stored in store.runs():
                if stored.state != "done":
                    continue
                seed = stored.spec["seed"]
                steps = store.steps(stored.hash)
                step_K, successes_KP = store.successes(stored.hash, "easy")
                self.scores[seed] = float(successes_KP[-1].mean()) / SAMPLES
                self.accounts[seed] = (
                    int(steps.rollouts_K[-1]), int(steps.tokens_K[-1]),
                    int(successes_KP.size) * SAMPLES, int(step_K[-1]),
                )  # fmt: skip
                for name, value_K in steps.health.items():
                    self.health.setdefault(name, []).append(float(np.nanmean(value_K)))


def paired(first: dict[int, float], second: dict[int, float]) -> tuple[float, float, int]:
    """Mean of second - first over the seeds of both, half its 95% interval, and their number."""
    seeds = sorted(set(first) & set(second))
    difference_S = np.array([second[seed] - first[seed] for seed in seeds])
    if len(seeds) < 2:
        return float(difference_S.mean()) if seeds else np.nan, np.inf, len(seeds)
    error = difference_S.std(ddof=1) / np.sqrt(len(seeds))
    half = float(stats.t.ppf(0.975, len(seeds) - 1) * error)
    return float(difference_S.mean()), half, len(seeds)


def table(objective: str, found: dict[str, Outcome], within: float) -> bool:
    """Print what each engine did; True if they agree."""
    print(f"\n{objective:28}" + "".join(f"{name:>12}" for name in found))
    for seed in sorted({seed for one in found.values() for seed in one.scores}):
        scores = [one.scores.get(seed, np.nan) for one in found.values()]
        print(f"final avg@4, seed {seed:<10}" + "".join(f"{score:12.4f}" for score in scores))
    for i, name in enumerate(ACCOUNTS):
        values = [sorted({a[i] for a in one.accounts.values()}) for one in found.values()]
        print(f"{name:28}" + "".join(f"{', '.join(f'{v:,}' for v in row):>12}" for row in values))
    for name in sorted(set.intersection(*(set(one.health) for one in found.values()))):
        means = [float(np.mean(one.health[name])) for one in found.values()]
        print(f"mean {name:23}" + "".join(f"{value:12.4g}" for value in means))
    agree = len({a for one in found.values() for a in one.accounts.values()}) == 1
    for name, one in found.items():
        if name == "local":
            continue
        mean, half, seeds = paired(found["local"].scores, one.scores)
        inside = -within <= mean - half and mean + half <= within
        agree = agree and inside
        print(f"{name} - local, paired over {seeds} seeds: {mean:+.4f} [{mean - half:+.4f}, "
              f"{mean + half:+.4f}], {'' if inside else 'NOT '}within {within:g}")
    return agree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trl-python", type=Path, help="a Python that has TRL")
    parser.add_argument("--verl-python", type=Path, help="one with verl and vLLM for CPUs")
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("--objectives", nargs="+", default=["grpo", "cispo"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--report", action="store_true", help="show what is there; run nothing")
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    make_problems(folder)
    agree = True
    wanted = studies(folder, options.trl_python, options.verl_python)
    for objective in options.objectives:
        found = {}
        for engine, content in wanted[objective].items():
            name = f"{objective}-{engine}"
            if not options.report:
                content["grid"]["seeds"] = options.seeds
                study = folder / f"{name}.yaml"
                study.write_text(json.dumps(content, indent=1))  # which is YAML
                run(study, folder / name)
            if (folder / name).is_dir():
                found[engine] = Outcome(folder / name)
        agree = table(objective, found, options.within) and agree
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
