"""The embedded engine on a GPU: rollouts per second in fixed shapes, alone and several at once.

    python benchmarks/engine_gpu.py [--device cuda] [--seconds 150] [-o benchmarks/engine_gpu]

The grid's world, Easy, with its KL term and entropy bonus, B_p = 32; wall time of whole updates
(sampling, verifier, gradient, AdamW) after three that are not counted. Beside it the engine's own
way on that machine's CPU, one thread. Prints a table and, with -o, writes OUT.json and OUT.md.
Rows stop where the seconds are used up.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from engine_side import NEVER, LastSink

from isocompute.allocation import Allocation
from isocompute.engines.local.engine import _Run
from isocompute.engines.local.together import Together
from isocompute.runner import open_study
from isocompute.study import RunSpec

HERE = Path(__file__).parents[1]
PROBLEMS_PER_BATCH = 32
WARM, LEAST, MOST = 3, 3, 30  # updates before the clock runs; updates counted
LEARNING_RATE = 1e-9  # the weights stay what they are: every update is the same work
# Side, n, runs at once.
CASES = [
    (side, n, runs)
    for n, several in ((4, (1, 8, 32)), (32, (1, 8, 32)), (128, (1, 8)), (512, (1, 4)))
    for side in ("plain", "graphs")
    for runs in several
    if side == "graphs" or runs == 1
]


class Quiet(LastSink):
    """A sink that keeps nothing, checkpoints neither."""

    @contextlib.contextmanager
    def checkpoint(self, _: int) -> Any:
        """A folder that is thrown away."""
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)

    def evaluation(self, record: Any) -> None:
        """Drop it."""


@functools.cache
def a_run_of_the_grid() -> RunSpec:
    """The first run of its Easy study."""
    return open_study(HERE / "grid" / "easy.yaml", []).runs[0]


def spec_of(n: int, options: dict[str, Any], seed: int = 0) -> RunSpec:
    """A run of the grid's Easy study that is never evaluated after its start."""
    spec = a_run_of_the_grid()
    few = {name: replace(p, problems=p.problems[:8]) for name, p in
           list(spec.validation.items())[:1]}  # fmt: skip
    return replace(
        spec, seed=seed, first_evaluation=NEVER * 100_000, evaluation_samples=4, validation=few,
        recipe=spec.recipe.replace(learning_rate=LEARNING_RATE),
        allocation=Allocation(problems_per_batch=PROBLEMS_PER_BATCH, rollouts_per_problem=n,
                              steps=NEVER),
        engine_options={"model": spec.engine_options["model"], **options},
    )  # fmt: skip


def seconds_of(update: Callable[[], Any], wait: Callable[[], Any], most_s: float) -> list[float]:
    """Wall seconds of some updates."""
    for _ in range(WARM):
        update()
    wait()
    found: list[float] = []
    while len(found) < LEAST or (len(found) < MOST and sum(found) < most_s):
        started = time.perf_counter()
        update()
        wait()
        found.append(time.perf_counter() - started)
    return found


def measured(side: str, n: int, runs: int, device: str) -> dict[str, Any]:
    """One row."""
    on_gpu = device.startswith("cuda")
    wait = torch.cuda.synchronize if on_gpu and side != "cpu" else lambda: None
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    if side == "cpu":
        torch.set_num_threads(1)
        one = _Run(spec_of(n, {}), Quiet())  # type: ignore[arg-type]  # all that a run asks of it
        seconds = seconds_of(one.update, wait, 3.0)
    else:
        options = {"device": device, "shapes": "fixed", "graphs": side == "graphs"}
        specs = [spec_of(n, options, seed) for seed in range(runs)]
        together = Together(specs, [None] * runs, [Quiet() for _ in specs])  # type: ignore[misc]
        together.advance()
        seconds = seconds_of(together.advance, wait, 2.0)
    middle = statistics.median(seconds)
    return {
        "side": side, "rollouts_per_problem": n, "runs": runs, "ms_per_update": 1000 * middle,
        "rollouts_per_second": PROBLEMS_PER_BATCH * n * runs / middle, "updates": len(seconds),
        "gpu_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else 0.0,
    }  # fmt: skip


def main() -> int:
    """Measure the cases in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("-o", "--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else options.device
    rows: list[dict[str, Any]] = []
    lines = [f"{name}, torch {torch.__version__}", "",
             "| side | n | runs at once | ms per update | rollouts/s | GPU GB |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    print("\n".join(lines), flush=True)
    until = time.monotonic() + options.seconds
    for case in [*CASES, *(("cpu", n, 1) for n in (4, 32, 128, 512))]:
        if time.monotonic() > until:
            print("the seconds are used up")
            break
        try:
            row = measured(*case, options.device)
        except torch.OutOfMemoryError:
            print(f"| {case[0]} | {case[1]} | {case[2]} | out of memory | | |", flush=True)
            continue
        rows.append(row)
        numbers = f"{row['ms_per_update']:.1f} | {row['rollouts_per_second']:,.0f}"
        lines.append(f"| {case[0]} | {case[1]} | {case[2]} | {numbers} | {row['gpu_gb']:.1f} |")
        print(lines[-1], flush=True)
    if options.out:
        options.out.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        found = {"device": name, "torch": torch.__version__, "rows": rows}
        options.out.with_suffix(".json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
