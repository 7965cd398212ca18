"""Make the grid, run by run, and pack what is there for the package.

    python grid/make.py              # every run that is missing, in an order of usefulness
    python grid/make.py pack         # grid/runs -> src/isocompute/data/grid, one file per study
    python grid/make.py status       # how many runs of each study are there
    python grid/make.py problems     # measures the problems again: two minutes

Stop it at any time: a run goes on from its last checkpoint under build/grid, a finished one is a
file in grid/runs and is never made again, on whatever machine.

Shape legend: K evaluations of a run.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isocompute import __version__
from isocompute.metrics import score_from_counts
from isocompute.runner import open_study, run_study
from isocompute.store import Store
from isocompute.store.pack import unpack
from isocompute.study import RunSpec, Study

GRID = Path(__file__).resolve().parent
ROOT = GRID.parent
RUNS, BUILD = GRID / "runs", ROOT / "build" / "grid"
PACKED = ROOT / "src" / "isocompute" / "data" / "grid"
PROBLEMS = GRID / "problems.parquet"

# (study, B_p or none for all, seeds or none for all): the core at B_p = 32 first, seed by seed.
ORDER: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("hard", (32,), (0,)), ("easy", (32,), (0,)),
    ("hard", (32,), (1,)), ("easy", (32,), (1,)),
    ("hard", (32,), (2,)), ("easy", (32,), (2,)),
    ("easy-plain", (), ()), ("hard-regularised", (), ()), ("tri", (), ()), ("dual", (), ()),
    ("hard", (8, 128), (0,)), ("easy", (8, 128), (0,)),
    ("hard", (8, 128), (1,)), ("easy", (8, 128), (1,)),
    ("hard", (8, 128), (2,)), ("easy", (8, 128), (2,)),
    ("hard-d50", (), ()), ("easy-d50", (), ()), ("hard-d5000", (), ()), ("easy-d5000", (), ()),
    ("easy-filter", (), ()), ("decoupled", (), ()), ("scaling", (), ()), ("ppo", (), ()),
    ("extreme", (), ()), ("anchor", (), ()), ("long", (), ()),
    ("hard-b1024", (), ()), ("easy-b1024", (), ()), ("hard-b8192", (), ()), ("easy-b8192", (), ()),
    ("cispo", (), ()),
)  # fmt: skip
# Of the n of a stage, the cheap ones first, far apart: a stage that is cut short is still a sweep.
FIRST_N = (256, 32, 1024, 64, 16, 4, 512, 128, 8)
# What is shown of a study unless another set is asked for.
SHOWN = {"easy": "easy", "decoupled": "easy", "ppo": "easy", "cispo": "easy", "long": "exceptions",
         "extreme": "extremely_hard"}  # fmt: skip

HEALTH = ("reward", "entropy", "kl", "grad_norm", "length_tokens", "zero_variance_share",
          "distinct_share")  # fmt: skip
KEPT = pa.schema(
    [("steps", pa.int32()), ("rollouts", pa.int64()), ("tokens", pa.int64()),
     ("problem_set", pa.string()), ("samples", pa.int16()), ("response_tokens", pa.float32()),
     *((name, pa.float32()) for name in HEALTH), ("successes", pa.list_(pa.uint8()))]
)  # fmt: skip


class Wanted(NamedTuple):
    """A run of a study."""

    study: Study
    spec: RunSpec

    @property
    def file(self) -> Path:
        """Where it is kept when it is done."""
        return RUNS / f"{self.spec.hash}.parquet"

    @property
    def is_there(self) -> bool:
        """Whether it has gone as far as its study asks."""
        return is_there(self.spec)


def is_there(spec: RunSpec, folder: Path | None = None) -> bool:
    """Whether the file of a run is there, and goes as far as the study asks."""
    file = (folder or RUNS) / f"{spec.hash}.parquet"
    if not file.exists():
        return False
    head = json.loads(pq.read_schema(file).metadata[b"isocompute"])
    return bool(head["state"] == "failed" or head["steps"] >= spec.allocation.steps)


def main() -> int:
    """What the command line asks for; 130 where somebody stopped it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="all",
                        choices=("all", "run", "pack", "status", "problems"))  # fmt: skip
    parser.add_argument("--limit", type=int, help="so many runs at most")
    options = parser.parse_args()
    if options.what == "problems":
        measure()
        return 0
    studies = Studies()
    if options.what == "status":
        for name, study in studies.items():
            there = sum(map(is_there, study.runs))
            print(f"{name:18s} {there:3d} of {len(study.runs):3d} runs")
        return 0
    if options.what in ("all", "run") and not make(studies, options.limit):
        return 130
    if options.what in ("all", "pack"):
        pack(studies)
    return 0


class Studies(Mapping[str, Study]):
    """The studies by name, each read when it is needed: that takes seconds."""

    def __init__(self) -> None:
        self._read: dict[str, Study] = {}

    def __getitem__(self, name: str) -> Study:
        if name not in self._read:
            self._read[name] = open_study(GRID / f"{name}.yaml", [])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _, _ in ORDER))

    def __len__(self) -> int:
        return len(list(iter(self)))


def ordered(
    studies: Mapping[str, Study], can: Callable[[str], bool] = lambda _: True
) -> Iterator[Wanted]:
    """Every run once, the most useful first; of those studies that `can` admits."""
    seen: set[str] = set()
    for name, b_ps, seeds in ORDER:
        if not can(name):
            continue
        stage = [
            spec for spec in studies[name].runs
            if (not b_ps or spec.allocation.problems_per_batch in b_ps)
            and (not seeds or spec.seed in seeds)
        ]  # fmt: skip
        stage.sort(key=lambda s: (s.seed, FIRST_N.index(s.allocation.rollouts_per_problem)))
        for spec in stage:
            if spec.hash not in seen:
                seen.add(spec.hash)
                yield Wanted(studies[name], spec)


def make(studies: Mapping[str, Study], limit: int | None) -> bool:
    """Train what is missing, `limit` runs at most; False where somebody stopped it."""
    for one in islice((one for one in ordered(studies) if not one.is_there), limit):
        with _claim(one) as ours:
            if ours and not _train(one):
                return False
    return True


@contextlib.contextmanager
def _claim(one: Wanted) -> Iterator[bool]:
    """Whether this run is for this process: several may make the grid at once on a machine."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{one.spec.hash}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield not one.is_there


def _train(one: Wanted) -> bool:
    """One run, to its file; False where somebody stopped it."""
    folder = BUILD / one.spec.hash
    alone = Study(name=one.study.name, runs=[one.spec], slices=(1.0,), source=one.study.source)
    cpu_s, ended = _timed(alone, folder)
    if not ended:
        return False
    head = keep(folder, one, cpu_s)
    shutil.rmtree(folder)
    a = one.spec.allocation
    print(f"{time.strftime('%H:%M:%S')} {one.study.name} {a.problems_per_batch} x "
          f"{a.rollouts_per_problem} seed {one.spec.seed} {head['state']} {head['steps']} steps "
          f"{cpu_s:.0f} CPU s {one.file.stat().st_size} bytes", flush=True)  # fmt: skip
    return True


def _timed(study: Study, folder: Path) -> tuple[float, bool]:
    """Train in this process; CPU seconds with those before an interruption, and whether done."""
    clock = folder / "cpu_s"
    before = float(clock.read_text()) if clock.exists() else 0.0
    start = time.process_time()
    run_study(study, folder, workers=0)
    cpu_s = before + time.process_time() - start
    clock.write_text(str(cpu_s))
    with Store(folder) as store:
        ended = all(run.state != "pending" for run in store.runs())
    return cpu_s, ended


def keep(folder: Path, one: Wanted, cpu_s: float, **more: str) -> dict[str, Any]:
    """Write the file of a finished run; returns what stands in its head, with `more`."""
    with Store(folder) as store:
        (run,) = (run for run in store.runs() if run.hash == one.spec.hash)
        steps = store.steps(run.hash)
        found = store.database.read(
            "SELECT step, rollouts, tokens, problem_set, samples, successes, counts, "
            "sampled_tokens, sampled_rollouts FROM evaluations "
            "WHERE run = (SELECT run FROM runs WHERE hash = ?) ORDER BY step, problem_set",
            (run.hash,),
        )
    rows = []
    at = sorted({row[0] for row in found})
    since = dict(zip(at, [0, *at], strict=False))
    for step, rollouts, tokens, name, samples, packed, counts, drawn, responses in found:
        part = slice(since[step], step)  # the updates between the last evaluation and this one
        row = {"steps": step, "rollouts": rollouts, "tokens": tokens, "problem_set": name,
               "samples": samples, "response_tokens": drawn / responses,
               "successes": unpack(packed, sum(json.loads(counts))).tolist()}  # fmt: skip
        for key in HEALTH:
            values = steps.health.get(key, np.empty(0))[part]
            values = values[np.isfinite(values)]
            row[key] = float(values.mean()) if values.size else None
        rows.append(row)
    versions = {"isocompute": __version__, **{name: version(name) for name in ("torch", "numpy")}}
    head = {"run": run.hash, "study": one.study.name, "state": run.state, "reason": run.reason,
            "steps": run.steps_done, "cpu_s": round(cpu_s, 1), "wall_s": round(run.wall_s, 1),
            "spec": run.spec, "versions": versions, **more}  # fmt: skip
    schema = KEPT.with_metadata({b"isocompute": json.dumps(head, sort_keys=True).encode()})
    RUNS.mkdir(parents=True, exist_ok=True)
    draft = one.file.with_suffix(f".{os.getpid()}")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), draft, compression="zstd",
                   compression_level=19)  # fmt: skip
    draft.replace(one.file)
    return head


def pack(studies: Mapping[str, Study]) -> None:
    """One Parquet file per study: tidy curves, with the successes of every problem."""
    shutil.rmtree(PACKED, ignore_errors=True)
    PACKED.mkdir(parents=True)
    for name, study in studies.items():
        shown = SHOWN.get(name.partition("-")[0], "hard")
        tables = [
            table for spec in study.runs
            if (table := _tidy(RUNS / f"{spec.hash}.parquet", spec, shown)) is not None
        ]  # fmt: skip
        if not tables:
            continue
        # At one B_p the name alone is fitted in two seconds; all of them together are "-joint".
        main = 32 if name in ("hard", "easy") else None
        head = {"study": name, "runs": len(tables), "of": len(study.runs), "problem_set": shown,
                "main": main}  # fmt: skip
        table = pa.concat_tables(tables).replace_schema_metadata(
            {b"isocompute": json.dumps(head).encode()}
        )
        pq.write_table(table, PACKED / f"{name}.parquet", compression="zstd", compression_level=22,
                       use_dictionary=False)  # fmt: skip  # a sixth smaller
        size = (PACKED / f"{name}.parquet").stat().st_size
        print(f"{name:18s} {len(tables):3d} of {len(study.runs):3d} runs, {size:,} bytes")


def _tidy(file: Path, spec: RunSpec, shown: str) -> pa.Table | None:
    """The rows of one run; None where it is not there."""
    if not is_there(spec):
        return None
    table = pq.read_table(file)
    head = json.loads(table.schema.metadata[b"isocompute"])
    rows, listed = [], table.to_pylist()
    kept = _kept({row["rollouts"] for row in listed})
    # In `long` the set of that name has 12 of 300 prompts that were trained on: it is no such set.
    asked = {problem.asked for problem in spec.train.problems}
    seen = all(problem.asked in asked for problem in spec.validation["trained"].problems)
    for row in listed:
        trained = row["problem_set"] == "trained" and seen
        if row["problem_set"] == "trained" and not seen:
            row["problem_set"] = f"more_{shown}"
        counts, samples = np.array(row["successes"]), row["samples"]
        rows.append(
            {"run": spec.hash, "arm": spec.arm.get("recipe", ""),
             "problems_per_batch": spec.allocation.problems_per_batch,
             "rollouts_per_problem": spec.allocation.rollouts_per_problem, "seed": spec.seed,
             "problems": len(spec.train), "learning_rate": spec.learning_rate,
             "state": head["state"], "cpu_s": head["cpu_s"],
             "split": "train" if trained else "validation", "metric": "avg@4",
             **{word: score_from_counts(counts, samples, f"{kind}@4")
                for word, kind in (("score", "avg"), ("best", "best"), ("worst", "worst"))},
             **row, "problem_set": shown if trained else row["problem_set"],
             "successes": row["successes"] if row["rollouts"] in kept else None}
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TIDY)


def _kept(rollouts: set[int]) -> set[int]:
    """Of the evaluations of a run, those whose outcomes are packed: half of the bytes."""
    seen, kept = {0}, set()
    for at in sorted(rollouts):
        if at == 0 or at.bit_length() not in seen:
            kept.add(at)
            seen.add(at.bit_length())
    return kept | {max(rollouts)}


TIDY = pa.schema(
    [("run", pa.string()), ("arm", pa.string()), ("problems_per_batch", pa.int32()),
     ("rollouts_per_problem", pa.int32()), ("seed", pa.int32()), ("problems", pa.int32()),
     ("learning_rate", pa.float64()), ("state", pa.string()), ("cpu_s", pa.float32()),
     ("split", pa.string()), ("metric", pa.string()), ("score", pa.float64()),
     ("best", pa.float64()), ("worst", pa.float64()), *KEPT]
)  # fmt: skip


def measure() -> None:
    """Pass rates of the base model on every problem of the world."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lines = BUILD / "problems.jsonl"
    subprocess.run(
        [sys.executable, "-m", "isocompute", "difficulty", "world:verbs,size=51200,seed=1",
         "--model", "verbs", "-o", str(lines)], check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    columns = ("id", "prompt", "answer", "source", "pass_rate", "pass_rate_samples")
    table = pa.table({name: [row[name] for row in rows] for name in columns})
    pq.write_table(table, PROBLEMS, compression="zstd", compression_level=19)


if __name__ == "__main__":
    sys.exit(main())
