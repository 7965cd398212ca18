"""The embedded engine beside TRL's GRPOTrainer on equal work, and where its time goes.

    python benchmarks/engine.py [--trainers-python PATH] [-o benchmarks/engine]

Same weights, problems, B_p and n, the Easy recipe (KL and entropy bonus) at temperature 1, one
thread each, updates of both sides in turn within one run, for a base policy and a trained one.
Prints tables and, with -o, writes OUT.json and OUT.md. Without a Python that has TRL its side is
left out, and the tables say so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isocompute.allocation import Allocation
from isocompute.engines.local import engine
from isocompute.engines.local.folders import save_model
from isocompute.engines.local.policy import base_folder
from isocompute.engines.local.worlds import BitRuleWorld, MachineWorld, World
from isocompute.problems import ProblemSet, save_problems
from isocompute.recipe import Recipe
from isocompute.study.spec import RunSpec

SIDE = Path(__file__).with_name("engine_side.py")
MAKE_BASE = Path(__file__).parents[1] / "scripts" / "make_base_model.py"
PROBLEMS_PER_BATCH = 32
GROWTH = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
PARTS = ("sampling", "forward", "base model", "backward", "optimiser", "verifier", "rest")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A world with its base policy, and what is asked of the engine there.

    Args:
        title: of its tables.
        world: where problems come from.
        base: a model that `scripts/make_base_model.py` makes.
        shipped: whether the package has it; otherwise it is made first.
        compared: n -> (aim, floor), ratios of rollouts per second to TRL's.
        grown: largest n whose cost is measured.
        training: (n, updates, learning rate at B=1024) of the trained policy.
    """

    title: str
    world: World
    base: str
    shipped: bool
    compared: dict[int, tuple[float, float]]
    grown: int
    training: tuple[int, int, float]


REPEATING = {8: (10, 5), 128: (50, 20), 512: (100, 50)}
CASES = {
    "repeating": Case(
        title="Responses that repeat: `machine` with eight moves, base `machine-sure`",
        world=MachineWorld(shortest=8, longest=8), base="machine-sure", shipped=False,
        compared=REPEATING, training=(32, 80, 2e-3), grown=2048,
    ),
    "between": Case(
        title="Between the two: `machine` with seven moves, base `machine`",
        world=MachineWorld(shortest=7), base="machine", shipped=True,
        compared=REPEATING, training=(32, 80, 2e-3), grown=2048,
    ),
    "distinct": Case(
        title="Nearly all distinct: `bits` with 64 answer bits, base `bits-64`",
        world=BitRuleWorld(answer_bits=64, agree=37), base="bits-64", shipped=False,
        compared=dict.fromkeys((4, 8, 32, 128, 512), (3, 2)), training=(16, 40, 5e-4), grown=512,
    ),
}  # fmt: skip


class Side:
    """A process that makes an update when told to."""

    def __init__(
        self, python: str, name: str, script: Path = SIDE, source: Path | None = None
    ) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
                       "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
        if source is not None:  # the package of another checkout
            environment["PYTHONPATH"] = str(source)
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the process)
        self.process = subprocess.Popen(
            [python, str(script), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, env=environment,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.told, self.heard = self.process.stdin, self.process.stdout

    def ask(self, line: str) -> dict[str, Any]:
        """Say a line, and return the answer."""
        self.told.write(line + "\n")
        self.told.flush()
        answer = self.heard.readline()
        if not answer:
            self.log.seek(0)
            raise SystemExit(f"a side of the benchmark ended early: {self.log.read()[-2000:]}")
        return dict(json.loads(answer))

    def close(self) -> None:
        """End the process."""
        self.told.write("\n")
        self.told.close()
        self.process.wait()
        self.log.close()


@contextmanager
def opened(*wanted: tuple[str, str]) -> Iterator[dict[str, Side]]:
    """Sides by name, ended afterwards."""
    sides = {name: Side(python, name) for name, python in wanted}
    try:
        yield sides
    finally:
        for side in sides.values():
            side.close()


class Nothing:
    """A sink that keeps the last record only."""

    wants_checkpoint = False

    def step(self, record: Any) -> None:
        """Take a record."""
        self.record = record


def train(case: Case, model: str, problems: ProblemSet, folder: Path) -> None:
    """A policy trained by the engine from the base model."""
    n, steps, rate = case.training
    recipe = Recipe.for_difficulty("easy", temperature=1.0, learning_rate=rate)
    allocation = Allocation(
        problems_per_batch=PROBLEMS_PER_BATCH, rollouts_per_problem=n, steps=steps
    )
    spec = RunSpec(
        engine="local", allocation=allocation, recipe=recipe, train=problems,
        validation={"none": problems}, seed=0, engine_options={"model": model},
    )  # fmt: skip
    sink = Nothing()
    run = engine._Run(spec, sink)  # type: ignore[arg-type]
    for _ in range(steps):
        run.update()
    base = base_folder(model)
    save_model(run.policy.model, folder, tokenizer_from=base)
    shutil.copyfile(base / "generation_config.json", folder / "generation_config.json")


def compare(sides: dict[str, Side], work: dict[str, Any], updates: int) -> dict[str, Any]:
    """Updates in turn; the first of each is left out."""
    for side in sides.values():
        side.ask(json.dumps(work))
        side.ask("step")
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(updates):
        for name, side in sides.items():
            told[name].append(side.ask("step"))
    rollouts = work["problems_per_batch"] * work["rollouts_per_problem"]
    mine = told["isocompute"]
    out: dict[str, Any] = {
        "rollouts_per_problem": work["rollouts_per_problem"], "updates": updates,
        "distinct_share": statistics.mean(t["distinct"] for t in mine),
        "entropy_nats_per_token": statistics.mean(t["entropy"] for t in mine),
        "score": statistics.mean(t["score"] for t in mine),
        "mixed_share": statistics.mean(t["mixed"] for t in mine),
        "grad_norm": statistics.mean(t["grad_norm"] for t in mine),
    }  # fmt: skip
    for name, answers in told.items():
        median = statistics.median(t["wall_s"] for t in answers)
        out[name] = {
            "seconds_per_update": median, "rollouts_per_second": rollouts / median,
            "cpu_seconds_per_update": statistics.median(t["cpu_s"] for t in answers),
            "tokens_per_rollout": statistics.mean(t["tokens"] for t in answers),
            "peak_memory_mib": answers[-1]["memory"],
        }  # fmt: skip
    if "trl" in told:
        out["cpu_ratio"] = (statistics.median(t["cpu_s"] for t in told["trl"])
                            / statistics.median(t["cpu_s"] for t in mine))  # fmt: skip
        ratios = sorted(t["wall_s"] / m["wall_s"] for t, m in zip(told["trl"], mine, strict=True))
        out["ratio"], out["ratio_range"] = statistics.median(ratios), [ratios[0], ratios[-1]]
    seconds = sum(t["cpu_s"] for t in mine)
    shares = {p: sum(t["parts"].get(p, 0.0) for t in mine) / seconds for p in PARTS}
    out["share_of_time"] = shares | {"rest": 1 - sum(shares.values())}
    return out


def growth(work: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """CPU cost of one update against n; each n in a process of its own, for its peak memory."""
    rows = []
    for n in [n for n in GROWTH if n <= most]:
        with opened(("isocompute", sys.executable)) as sides:
            side = sides["isocompute"]
            ready = side.ask(json.dumps({**work, "rollouts_per_problem": n}))
            told = [side.ask("step") for _ in range(6 if n <= 64 else 3)]
            counted = side.ask("count")["gigaflop"]
        seconds = min(t["cpu_s"] for t in told)
        rows.append({
            "rollouts_per_problem": n, "cpu_seconds_per_update": seconds,
            "distinct_share": told[-1]["distinct"], "peak_memory_mib": told[-1]["memory"],
            "gigaflop_per_update": counted, "matmul_gigaflop_per_second": ready["matmul"],
            "fraction_of_matmul": counted / seconds / ready["matmul"],
        })  # fmt: skip
    return rows


def measure(key: str, python: str | None, folder: Path, quick: bool) -> dict[str, Any]:
    """Everything about one case."""
    case = CASES[key]
    base, trained, file = folder / f"{key}-base", folder / f"{key}-trained", folder / f"{key}.jsonl"
    problems = case.world.problems(key, 320, seed=1)
    save_problems(problems, file)
    if not case.shipped:
        command = [sys.executable, str(MAKE_BASE), case.base, "--out", str(base)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    first = case.base if case.shipped else str(base)
    train(case, first, problems, trained)
    found: dict[str, Any] = {"title": case.title, "compared": []}
    wanted = [("isocompute", sys.executable), *([("trl", python)] if python else [])]
    for policy, model in (("base", first), ("trained", str(trained))):
        work = {"model": model, "problems": str(file), "problems_per_batch": PROBLEMS_PER_BATCH}
        with opened(*wanted) as sides:
            for n, (aim, floor) in case.compared.items():
                updates = 2 if quick else 5
                row = compare(sides, {**work, "rollouts_per_problem": n}, updates)
                found["compared"].append({"policy": policy, "aim": aim, "floor": floor, **row})
                print(comparison_row(found["compared"][-1]), flush=True)
        if policy == "base":
            found["growth"] = growth(work, case.grown)
    return found


def share_or_dash(row: dict[str, Any], name: str) -> str:
    """A share in percent; a dash in rows of an OUT that did not have it yet."""
    return f"{row[name]:.0%}" if name in row else "-"


def comparison_row(row: dict[str, Any]) -> str:
    """A line of the first table."""
    mine, share = row["isocompute"], row["distinct_share"]
    text = (f"| {row['policy']} | {row['rollouts_per_problem']} | {share:.1%} | "
            f"{row['entropy_nats_per_token']:.2f} | {mine['tokens_per_rollout']:.1f} | "
            f"{share_or_dash(row, 'score')} | {share_or_dash(row, 'mixed_share')} | "
            f"{mine['rollouts_per_second']:,.0f} | ")
    goal = f"{row['aim']:g}x, {row['floor']:g}x"
    if "ratio" not in row:
        return text + f"- | - | - | {goal} | - |"
    ratio, (low, high) = row["ratio"], row["ratio_range"]

    def reached(value: float) -> str:
        return "aim" if value >= row["aim"] else "floor" if value >= row["floor"] else "missed"

    text += f"{row['trl']['rollouts_per_second']:,.0f} | "
    text += f"{ratio:.1f}x [{low:.1f}, {high:.1f}] | {row['cpu_ratio']:.1f}x | "
    return text + f"{goal} | {reached(ratio)}; {reached(row['cpu_ratio'])} |"


def render(document: dict[str, Any]) -> str:
    """The tables as Markdown."""
    lines = [
        "# Speed of the embedded engine", "",
        f"Written by `make bench`. Machine: {document['machine']}; {document['date']}; one thread",
        f"each; {document['beside']}. B_p = {PROBLEMS_PER_BATCH}, Easy recipe (KL and entropy",
        "bonus), temperature 1. What it means: `docs/benchmarks.md`.",
    ]  # fmt: skip
    for found in document["cases"].values():
        lines += [
            "", f"## {found['title']}", "",
            "Rollouts per second of whole updates, by the wall clock; ratio: median over pairs of"
            " updates,", "[least, most]; by CPU time: the same without what other programs took"
            " from either side.", "`nats`: entropy per token; `tokens`: sampled per response;"
            " `mixed`: problems whose rewards differ.", "",
            "| policy | n | distinct | nats | tokens | score | mixed | isocompute | TRL | ratio "
            "| by CPU time | aim, floor | reached: by the clock; by CPU time |",
            "|---" * 13 + "|",
            *map(comparison_row, found["compared"]), "",
            "Share of the engine's time:", "",
            f"| policy | n | {' | '.join(PARTS)} |", "|---" * (len(PARTS) + 2) + "|",
        ]  # fmt: skip
        for row in found["compared"]:
            shares = " | ".join(f"{row['share_of_time'][p]:.0%}" for p in PARTS)
            lines.append(f"| {row['policy']} | {row['rollouts_per_problem']} | {shares} |")
        lines += [
            "", "How the base policy's cost grows with n (CPU seconds, fastest of a few updates;"
            " `of matmul`:", "operations of all matrix products of an update, per second, against"
            " a 1024 x 1024 product", "in the same process):", "",
            "| n | CPU s per update | rollouts/CPU s | distinct | GFLOP | of matmul | peak MiB |",
            "|---|---|---|---|---|---|---|",
        ]  # fmt: skip
        for row in found["growth"]:
            n, seconds = row["rollouts_per_problem"], row["cpu_seconds_per_update"]
            lines.append(
                f"| {n} | {seconds:.3f} | {PROBLEMS_PER_BATCH * n / seconds:,.0f} | "
                f"{row['distinct_share']:.1%} | {row['gigaflop_per_update']:.2f} | "
                f"{row['fraction_of_matmul']:.0%} | {row['peak_memory_mib']:.0f} |"
            )
    return "\n".join(lines) + "\n"


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


def trainer_versions(python: str | None) -> str:
    """What stands on the other side, or why nothing does."""
    if python is None or not Path(python).is_file():
        return "TRL left out: no Python with TRL was given or found"
    command = "import trl, transformers; print(trl.__version__, transformers.__version__)"
    done = subprocess.run([python, "-c", command], capture_output=True, text=True)
    if done.returncode:
        return f"TRL left out: {done.stderr.strip().splitlines()[-1]}"
    trl, transformers = done.stdout.split()[-2:]
    return f"TRL {trl} with transformers {transformers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers-python", help="a Python that has TRL")
    parser.add_argument("--case", choices=CASES, action="append",
                        help="default: all; the others stay in OUT as they are")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="two updates each")
    parser.add_argument("-o", "--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    beside, started = trainer_versions(options.trainers_python), time.monotonic()
    print(f"{machine()}; {beside}", flush=True)
    python = None if beside.startswith("TRL left out") else options.trainers_python
    document: dict[str, Any] = {
        "machine": machine(), "date": str(datetime.date.today()), "beside": beside, "cases": {},
    }  # fmt: skip
    if options.case and options.out and options.out.with_suffix(".json").exists():
        document["cases"] = json.loads(options.out.with_suffix(".json").read_text())["cases"]
    with tempfile.TemporaryDirectory() as folder:
        for key in options.case or CASES:
            document["cases"][key] = measure(key, python, Path(folder), options.quick)
    document["wall_s"] = round(time.monotonic() - started)
    print(render(document))
    if options.out:
        options.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(render(document))


if __name__ == "__main__":
    main()
