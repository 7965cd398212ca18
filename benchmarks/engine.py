"""The embedded engine beside TRL's GRPOTrainer on equal work, and where its time goes.

    python benchmarks/engine.py [--trainers-python PATH] [-o docs/engine-benchmark]

Same weights, problems, B_p and n, the Easy recipe with KL on, temperature 1, one thread each,
updates of both sides in turn within one run. Writes OUT.json and OUT.md and prints the table.
Without a Python that has TRL its side is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isocompute.allocation import Allocation
from isocompute.engines.local import engine
from isocompute.engines.local.folders import save_model
from isocompute.engines.local.policy import base_folder
from isocompute.problems import ProblemSet, save_problems
from isocompute.recipe import Recipe
from isocompute.study.spec import RunSpec

SIDE = Path(__file__).with_name("engine_side.py")
PROBLEMS_PER_BATCH = 32
GROWTH = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
PARTS = ("sampling", "forward", "backward", "optimiser", "verifier", "rest")


@dataclass(frozen=True)
class World:
    """Problems and a base model, and what is asked of the engine there.

    Args:
        name: of the world.
        model: base model.
        rollouts_per_problem: where the two sides are compared.
        aims, floors: required ratio of rollouts per second, in that order.
        training: (n, updates, learning rate anchor) of the trained policy.
    """

    name: str
    model: str
    rollouts_per_problem: tuple[int, ...]
    aims: tuple[float, ...]
    floors: tuple[float, ...]
    training: tuple[int, int, float]

    def problems(self) -> ProblemSet:
        from isocompute.engines.local.worlds import world_problems

        return world_problems(self.name, size=320, seed=1)


WORLDS = {
    "distinct": World("bits", "bits", (4, 8, 32, 128, 512), (3,) * 5, (2,) * 5, (32, 96, 2e-3)),
}


class Side:
    """A process that makes an update when told to."""

    def __init__(self, python: str, name: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
                       "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, str(SIDE), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, env=environment,
        )  # fmt: skip

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.log.seek(0)
            raise SystemExit(f"a side of the benchmark ended early: {self.log.read()[-2000:]}")
        return dict(json.loads(answer))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        self.process.wait()


def train(world: World, problems: ProblemSet, folder: Path) -> None:
    """A policy trained by the engine from the world's base model."""
    n, steps, rate = world.training
    recipe = Recipe.for_difficulty("easy", temperature=1.0, learning_rate=rate)
    allocation = Allocation(
        problems_per_batch=PROBLEMS_PER_BATCH, rollouts_per_problem=n, steps=steps
    )
    spec = RunSpec(
        engine="local", allocation=allocation, recipe=recipe, train=problems,
        validation={"none": problems}, seed=0, engine_options={"model": world.model},
    )  # fmt: skip

    class Nothing:
        wants_checkpoint = False

        def step(self, record: Any) -> None:
            self.record = record

    sink = Nothing()
    run = engine._Run(spec, sink)  # type: ignore[arg-type]
    for _ in range(steps):
        run.update()
    print(f"{world.name}: trained to {sink.record.health['reward']:.2f}", flush=True)
    base = base_folder(world.model)
    save_model(run.policy.model, folder, tokenizer_from=base)
    shutil.copyfile(base / "generation_config.json", folder / "generation_config.json")


def compare(sides: dict[str, Side], case: dict[str, Any], updates: int) -> dict[str, Any]:
    """Updates in turn; medians, with the first of each left out."""
    for side in sides.values():
        side.ask(json.dumps(case))
        side.ask("step")
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(updates):
        for name, side in sides.items():
            told[name].append(side.ask("step"))
    rollouts = case["problems_per_batch"] * case["rollouts_per_problem"]
    mine = told["isocompute"]
    out: dict[str, Any] = {
        "rollouts_per_problem": case["rollouts_per_problem"],
        "updates": updates,
        "distinct_share": statistics.mean(t["distinct"] for t in mine),
        "tokens_per_rollout": statistics.mean(t["tokens"] for t in mine),
        "entropy_nats_per_token": statistics.mean(t["entropy"] for t in mine),
    }
    for name, answers in told.items():
        seconds = [t["wall_s"] for t in answers]
        out[name] = {
            "seconds_per_update": statistics.median(seconds),
            "rollouts_per_second": rollouts / statistics.median(seconds),
            "peak_memory_mib": answers[-1]["memory"],
        }
    if "trl" in told:
        ratios = sorted(t["wall_s"] / m["wall_s"] for t, m in zip(told["trl"], mine, strict=True))
        out["ratio"] = statistics.median(ratios)
        out["ratio_range"] = [ratios[0], ratios[-1]]
        out["trl"]["tokens_per_rollout"] = statistics.mean(t["tokens"] for t in told["trl"])
    seconds = sum(t["wall_s"] for t in mine)
    named = {p: sum(t["parts"].get(p, 0.0) for t in mine) / seconds for p in PARTS}
    out["share_of_time"] = named | {"rest": 1 - sum(named.values())}
    return out


def measure_world(
    key: str, world: World, python: str | None, folder: Path, quick: bool
) -> list[dict[str, Any]]:
    problems = world.problems()
    save_problems(problems, folder / f"{key}.jsonl")
    trained = folder / f"{key}-trained"
    train(world, problems, trained)
    results = []
    for policy, model in (("base", world.model), ("trained", str(trained))):
        sides = {"isocompute": Side(sys.executable, "isocompute")}
        if python is not None:
            sides["trl"] = Side(python, "trl")
        shared = {"model": model, "problems": str(folder / f"{key}.jsonl"),
                  "problems_per_batch": PROBLEMS_PER_BATCH}  # fmt: skip
        for n, aim, floor in zip(
            world.rollouts_per_problem, world.aims, world.floors, strict=True
        ):
            updates = 2 if quick else 9 if n <= 32 else 5 if n <= 128 else 3
            found = compare(sides, {**shared, "rollouts_per_problem": n}, updates)
            results.append({"world": key, "policy": policy, "aim": aim, "floor": floor, **found})
            print(line_of(results[-1]), flush=True)
        for side in sides.values():
            side.close()
        if policy == "base":
            results[-1]["growth"] = growth({**shared}, quick)
    return results


def growth(case: dict[str, Any], quick: bool) -> list[dict[str, Any]]:
    """Cost of one update against n; each n in a process of its own, for its peak memory."""
    rows = []
    for n in GROWTH[:: 3 if quick else 1]:
        side = Side(sys.executable, "isocompute")
        ready = side.ask(json.dumps({**case, "rollouts_per_problem": n}))
        side.ask("step")
        told = [side.ask("step") for _ in range(5 if n <= 64 else 2)]
        work = side.ask("count")
        side.close()
        seconds = statistics.median(t["wall_s"] for t in told)
        rows.append({
            "rollouts_per_problem": n, "seconds_per_update": seconds,
            "distinct_share": told[-1]["distinct"], "peak_memory_mib": told[-1]["memory"],
            "gigaflop_per_update": work["gigaflop"],
            "matmul_gigaflops_per_second": ready["peak_gigaflops"],
            "fraction_of_matmul": work["gigaflop"] / seconds / ready["peak_gigaflops"],
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def line_of(row: dict[str, Any]) -> str:
    mine = row["isocompute"]["rollouts_per_second"]
    text = (f"| {row['world']} | {row['policy']} | {row['rollouts_per_problem']} | "
            f"{row['distinct_share']:.1%} | {row['tokens_per_rollout']:.1f} | {mine:,.0f} | ")
    if "ratio" not in row:
        return text + "- | - | - |"
    low, high = row["ratio_range"]
    verdict = "aim" if row["ratio"] >= row["aim"] else (
        "floor" if row["ratio"] >= row["floor"] else "missed")
    return text + (f"{row['trl']['rollouts_per_second']:,.0f} | {row['ratio']:.1f}x "
                   f"[{low:.1f}, {high:.1f}] | {row['aim']:g}x / {row['floor']:g}x: {verdict} |")


def machine() -> str:
    """The machine in words."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{os.cpu_count()} cores, {model}, {platform.system()}, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers-python", help="a Python that has TRL")
    parser.add_argument("--world", choices=WORLDS, action="append")
    parser.add_argument("--quick", action="store_true", help="two updates each")
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    python = options.trainers_python
    started = time.time()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for key in options.world or WORLDS:
            results += measure_world(key, WORLDS[key], python, Path(folder), options.quick)
    document = {"machine": machine(), "seconds": time.time() - started, "results": results}
    if options.out:
        options.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
