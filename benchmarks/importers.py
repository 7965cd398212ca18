"""How fast logs are read, from what size on memory grows, how long 100 of them take to a report.

    python benchmarks/importers.py speed
    python benchmarks/importers.py folder DIR       100 verl logs -> report, one command
    python benchmarks/importers.py large DIR        a 5 GB log and a 1 GB line (needs 6 GB)

Logs are made here: rows as verl 0.9.1 writes them (56 numbers of training, 21 of validation every
tenth step) and rows of few keys. Each figure is the best of three in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

TRAINING = [
    *(f"actor/{k}" for k in ("entropy", "kl_loss", "kl_coef", "pg_loss", "pg_clipfrac", "ppo_kl",
                             "pg_clipfrac_lower", "grad_norm", "lr")),
    *(f"perf/{k}" for k in ("mfu/actor", "max_memory_allocated_gb", "max_memory_reserved_gb",
                            "cpu_memory_used_gb", "total_num_tokens", "time_per_step",
                            "throughput")),
    *(f"critic/{k}/{m}" for k in ("score", "rewards", "advantages", "returns")
      for m in ("mean", "max", "min")),
    *(f"{k}/{m}" for k in ("response_length", "prompt_length", "response_length_non_aborted")
      for m in ("mean", "max", "min", "clip_ratio")),
    *(f"timing_s/{k}" for k in ("start_profile", "generate_sequences", "gen", "reward",
                                "old_log_prob", "ref", "adv", "update_actor", "step")),
    *(f"timing_per_token_ms/{k}" for k in ("gen", "ref", "adv", "update_actor")),
    "training/global_step", "training/epoch", "num_turns/mean",
]  # fmt: skip
VALIDATION = [
    "val-core/math/acc/mean@4",
    *(f"val-{'core' if kind != 'worst' else 'aux'}/math/acc/{kind}@{k}/{stat}"
      for kind in ("best", "worst", "maj") for k in (2, 4) for stat in ("mean", "std")),
    *(f"val-aux/math/reward/{kind}@{k}/mean" for kind in ("best", "worst", "maj") for k in (2, 4)),
    "val-aux/num_turns/mean", "val-aux/math/reward/mean@4",
]  # fmt: skip


def verl_rows(
    steps: int, score: float = 0.4, seed: int = 0, rollouts: int = 512
) -> Iterator[dict[str, object]]:
    """A training run as verl's file logger writes it."""
    rng = np.random.default_rng(seed)
    for step in range(steps + 1):
        data: dict[str, float] = {}
        if step % 10 == 0:
            now = score + rng.normal() * 0.005
            data |= dict(zip(VALIDATION, (now + rng.random(len(VALIDATION)) / 10).tolist(),
                             strict=True))  # fmt: skip
            data["val-core/math/acc/mean@4"] = min(1.0, max(0.0, now))
        if step:
            data |= dict(zip(TRAINING, rng.random(len(TRAINING)).tolist(), strict=True))
            data["training/global_step"] = step
            length = data["prompt_length/mean"] + data["response_length/mean"]
            data["perf/total_num_tokens"] = rollouts * length
        yield {"step": step, "data": data}


def few_keys(rows: int) -> Iterator[dict[str, object]]:
    rng = np.random.default_rng(0)
    for step, (a, b) in enumerate(rng.random((rows, 2)).round(4).tolist()):
        yield {"step": step, "data": {"val-core/math/acc/mean@4": a, "critic/score/mean": b,
                                      "response_length/mean": 512.25, "actor/entropy": 0.31}}


READ = """
import json, sys, time
from isocompute.importers import read_log
from isocompute.importers.values import reading
if sys.argv[2] == "json":
    reading.orjson.loads, reading.orjson.JSONDecodeError = json.loads, json.JSONDecodeError
best = 1e9
for _ in range(int(sys.argv[3])):
    start = time.process_time()
    run = read_log(sys.argv[1], settings={"problems_per_batch": 32, "rollouts_per_problem": 16})[0]
    best = min(best, time.process_time() - start)
print(run.n_rows, best, run.n_errors)
"""


def read(path: Path, how: str = "orjson", times: int = 3) -> tuple[int, float, int, float]:
    """Rows, seconds of one core, errors and peak memory in GB of reading a log."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run([sys.executable, "-c", READ, str(path), how, str(times)],
                          capture_output=True, text=True, check=True)  # fmt: skip
    rows, seconds, errors = done.stdout.split()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return int(rows), float(seconds), int(errors), (peak if peak > before else before) / 1e6


def speed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.jsonl")
        print("| rows of | bytes per row | json, rows/s | orjson, rows/s | MB/s |")
        print("|---|---|---|---|---|")
        for name, made in (("verl 0.9.1", verl_rows(20_000)), ("four keys", few_keys(300_000))):
            with path.open("w") as file:
                file.writelines(json.dumps(row) + "\n" for row in made)
            size = path.stat().st_size
            rows, json_s, _, _ = read(path, "json")
            _, orjson_s, _, _ = read(path, "orjson")
            print(f"| {name} | {size / rows:,.0f} | {rows / json_s:,.0f} | {rows / orjson_s:,.0f} "
                  f"| {size / orjson_s / 1e6:,.0f} |")  # fmt: skip


def folder_of_runs(folder: Path, runs: int = 100, steps: int = 400) -> None:
    """A sweep over n and seeds as 100 logs of verl."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = (8, 16, 32, 64, 128)
    for i in range(runs):
        n, seed = sizes[i % len(sizes)], i // len(sizes)
        rows = verl_rows(steps, seed=i, rollouts=32 * n)
        with (folder / f"bp32_n{n}_seed{seed}.jsonl").open("w") as file:
            for step, row in enumerate(rows):
                data = row["data"]
                assert isinstance(data, dict)
                if "val-core/math/acc/mean@4" in data:
                    x = np.log10(1 + 32 * n * step)
                    ceiling, middle = 0.55 + 0.03 * np.log2(n / 8), 4.0 + 0.15 * np.log2(n / 8)
                    data["val-core/math/acc/mean@4"] += (ceiling - 0.4) / (
                        1 + np.exp(-3.0 * (x - middle)))  # fmt: skip
                file.write(json.dumps(row) + "\n")


def to_report(folder: Path) -> None:
    logs = folder / "logs"
    if not logs.exists():
        folder_of_runs(logs)
    files = list(logs.iterdir())
    command = [
        sys.executable, "-m", "isocompute", "report", str(logs), "-o", str(folder / "report.html"),
        "--metric", "avg@4",
        "--set", "pattern=bp{problems_per_batch}_n{rollouts_per_problem}_seed{seed}",
    ]  # fmt: skip
    start = time.perf_counter()
    subprocess.run(command, check=True)
    size = sum(f.stat().st_size for f in files) / 1e6
    print(f"{len(files)} logs, {size:.0f} MB -> report: {time.perf_counter() - start:.1f} s")


def large(folder: Path) -> None:
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    if free < 7e9:
        raise SystemExit(f"6 GB must be free in {folder}, but {free / 1e9:.1f} are.")
    path = folder / "isocompute-large.jsonl"
    try:
        piece = "".join(json.dumps(row) + "\n" for row in verl_rows(20_000)).encode()
        with path.open("wb") as file:
            while file.tell() < 5e9:
                file.write(piece)
        size = path.stat().st_size
        start = time.perf_counter()
        rows, seconds, errors, peak = read(path, times=1)
        print(f"{size / 1e9:.2f} GB, {rows:,} rows: {seconds:.0f} s of one core, "
              f"{time.perf_counter() - start:.0f} s, {errors} errors, peak {peak:.2f} GB")
        with path.open("wb") as file:
            file.write(piece[: piece.find(b"\n") + 1] + b'{"step": 1, "data": {"x": "')
            for _ in range(1000):
                file.write(b"y" * 1_000_000)
            file.write(b'"}}\n' + piece[: piece.find(b"\n") + 1])
        rows, seconds, errors, peak = read(path, times=1)
        print(f"a line of 1 GB: {rows} other rows, {errors} error, {seconds:.1f} s, peak so far "
              f"{peak:.2f} GB")
    finally:
        path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "folder", "large"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if options.what == "speed":
        speed()
    else:
        (to_report if options.what == "folder" else large)(options.folder)


if __name__ == "__main__":
    main()
