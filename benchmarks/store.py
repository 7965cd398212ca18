"""What store and runner cost: beside the engine alone, in a large study, under a slow reader.

`python benchmarks/store.py [validate] [large] [reader] [overhead] [ray]` prints one line per figure
with its target; without a word all but the last. Minutes; needs the extra [local], for the last
one [ray].
"""

from __future__ import annotations

import contextlib
import importlib
import json
import platform
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.runner import Settings, open_study, run_study
from isocompute.store import Database, Store, files, leases, seals
from isocompute.store.findings import dump_findings
from isocompute.store.pack import count_text, pack
from isocompute.store.register import register
from isocompute.store.writer import RunWriter
from isocompute.study import Study

# The quickstart's sweep with one seed, on sets that need no measuring.
QUICKSTART = """
engine: local
engine_options: {model: bits}
problems:
  train: {generated: world, options: {size: 100, seed: 11}}
  validation: {easy: {generated: world, options: {size: 300, seed: 12}}}
recipe: {difficulty: easy, learning_rate: 5e-4, temperature: 1.0}
grid: {problems_per_batch: 32, rollouts_per_problem: {low: 4, high: 128}, seeds: 1}
budget: 98304
evaluation: {samples: 4, per_octave: 3, first: 768}
slices: [0.25, 1]
"""
RAY_BUDGET = "budget=131072"  # rollouts of one run
LARGE_RUNS, LARGE_EVALUATIONS, LARGE_PROBLEMS, LARGE_BATCH = 1000, 1000, 300, 32


def say(what: str, figure: str, target: str = "-") -> None:
    print(f"{what}: {figure} (target {target})", flush=True)


def study_of(folder: Path, text: str, *overrides: str) -> Study:
    file = folder / "study.yaml"
    file.write_text(text)
    return open_study(file, overrides)


class Clock:
    """Seconds by part; a part that begins inside another one stops that one's clock."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = time.perf_counter()

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._open:
            part = self._open[-1]
            self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Charge what happens inside to `name`."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, charged to `name`."""

        def call(*args: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*args, **options)

        return call


def overhead() -> None:
    """Every second of a sweep in this process: the engine's, or whose instead."""
    clock = Clock()
    checkpoint = RunWriter.checkpoint

    @contextlib.contextmanager
    def timed(self: RunWriter, step: int) -> Iterator[Path]:
        with (
            clock.part("store"), checkpoint(self, step) as folder,
            clock.part("engine writes checkpoints"),
        ):  # fmt: skip
            yield folder

    writer: Any = RunWriter
    writer.checkpoint = timed
    for name in ("__init__", "step", "evaluation", "close"):
        setattr(writer, name, clock.wrapped("store", getattr(writer, name)))
    beats: Any = leases
    beats.beat = clock.wrapped("heartbeats (the driver's, where there are workers)", beats.beat)
    engine: Any = importlib.import_module("isocompute.engines.local.engine")
    engine.LocalEngine.run = clock.wrapped("engine loads and resumes", engine.LocalEngine.run)
    for name in ("update", "evaluate"):
        setattr(engine._Run, name, clock.wrapped("engine trains", getattr(engine._Run, name)))
    checkpoints: Any = files
    checkpoints._hash = clock.wrapped("hashes of checkpoints", files._hash)
    database: Any = Database
    database.refuse_damage = clock.wrapped("seals compared", Database.refuse_damage)
    with tempfile.TemporaryDirectory() as name:
        study = study_of(Path(name), QUICKSTART)
        with clock.part("runner"):
            run_study(study, Path(name) / "study", workers=0)
        with Store(Path(name) / "study") as store:
            attempts = store.accounting().attempts
            sealing = seconds_of_sealing(store.database, Path(name))
    total = sum(clock.seconds.values())
    say(f"the quickstart's sweep with one seed: {len(study.runs)} runs in {attempts} attempts",
        f"{total:.1f} s")  # fmt: skip
    for part, seconds in sorted(clock.seconds.items(), key=lambda item: -item[1]):
        say(f"  {part}", f"{seconds:.2f} s, {seconds / total:.2%}")
    ours = clock.seconds["runner"] + clock.seconds["store"]
    compared, hashed = clock.seconds["seals compared"], clock.seconds["hashes of checkpoints"]
    ours, hashes = ours + compared + hashed, sealing + compared + hashed
    say("runner and store, in a worker's time", f"{ours / total:.2%}", "<= 1%")
    say("of it all hashes, the sealing of rows included", f"{hashes:.2f} s, {hashes / total:.2%}",
        "< 1%")  # fmt: skip


def seconds_of_sealing(done: Database, folder: Path) -> float:
    """What the seals of all rows of a finished study cost: the rows written anew with and without.

    The least of five turns each, one transaction a turn, so that no disk is waited for.
    """
    took: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(5):
        for sealed in took:
            with contextlib.closing(Database(folder / f"{turn}{sealed}", create=True)) as copy:
                connection = copy.connection
                connection.execute("PRAGMA foreign_keys = OFF")
                if not sealed:
                    for row in connection.execute(
                        "SELECT name FROM temp.sqlite_schema WHERE type = 'trigger'"
                    ).fetchall():
                        connection.execute(f"DROP TRIGGER temp.{row[0]}")
                began = time.process_time()
                with copy.write():
                    for table in seals.TABLES:
                        rows = done.read(f"SELECT * FROM {table}", ())
                        if rows:
                            marks = ", ".join("?" * len(rows[0]))
                            connection.executemany(
                                f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows
                            )
                took[sealed].append(time.process_time() - began)
    return min(took[True]) - min(took[False])


def large() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "large"
        began = time.perf_counter()
        fill(folder)
        size = (folder / "study.db").stat().st_size
        took = time.perf_counter() - began
        say(f"{LARGE_RUNS} runs x {LARGE_EVALUATIONS} evaluations of {LARGE_PROBLEMS} problems and "
            f"as many updates of {LARGE_BATCH} problems", f"{size / 1e9:.2f} GB, filled in "
            f"{took:.0f} s", "< 1 GB")  # fmt: skip
        for turn in ("first", "second"):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", "isocompute", "status", folder], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
            say(f"isocompute status, {turn} time, process start included",
                f"{time.perf_counter() - began:.2f} s", "<= 1 s")  # fmt: skip
        from isocompute.sources import load_curves

        for turn in ("first", "second"):
            began, cpu = time.perf_counter(), time.process_time()
            curves = load_curves([str(folder)])
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            points = sum(len(c.score_K) for c in curves)
            say(f"the fit reads {len(curves)} curves of {points} points, {turn} time",
                f"{took:.2f} s, {cpu:.2f} s of a core", "<= 5 s")  # fmt: skip


def fill(folder: Path) -> None:
    """Rows as the writer makes them, in one transaction, of a few hundred distinct contents."""
    study = study_of(
        folder.parent,
        f"""
engine: simulator
problems:
  train: {{generated: simulated, options: {{size: 1000}}}}
  validation: {{main: {{generated: simulated, options: {{size: {LARGE_PROBLEMS}}}}}}}
recipe: {{learning_rate: 0.5}}
grid: {{problems_per_batch: {LARGE_BATCH}, rollouts_per_problem: [4, 8, 16, 32], seeds: 250}}
budget: {LARGE_BATCH * 32 * LARGE_EVALUATIONS}
""",
    )
    assert len(study.runs) == LARGE_RUNS
    database = Database(folder, create=True)
    register(database, study)
    rng = np.random.default_rng(0)
    health = json.dumps({k: float(rng.random()) for k in (
        "entropy", "kl", "grad_norm", "learning_rate", "length_tokens", "clipped_share",
        "zero_variance_share", "loss", "distinct_share")})  # fmt: skip
    evaluations, steps = [], []
    for _ in range(400):
        successes_P = rng.binomial(4, rng.random(), LARGE_PROBLEMS)
        evaluations.append((count_text(successes_P, 4), pack(successes_P)))
        drawn = rng.integers(0, 1000, LARGE_BATCH), rng.integers(0, 5, LARGE_BATCH)
        steps.append(tuple(pack(column) for column in drawn))
    database.connection.execute("PRAGMA cache_size = -1000000")
    with database.write() as connection:
        for run, spec in enumerate(study.runs, start=1):
            batch, k = spec.allocation.batch_size, LARGE_EVALUATIONS
            connection.execute(
                "INSERT INTO attempts (run, token, runner, from_step, target_steps, outcome, "
                "rollouts, wall_s, started_utc, host, versions) "
                "VALUES (?, 1, 'r', 0, ?, 'done', ?, 600, '', 'host', '{}')", (run, k, batch * k),
            )  # fmt: skip
            connection.executemany(
                "INSERT INTO steps (run, attempt, step, rollouts, tokens, samples, wall_s, health, "
                "size, problems, successes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((run, run, i, batch * i, 9 * batch * i, 4, 0.0123, health, LARGE_BATCH,
                  *steps[(run + i) % 400]) for i in range(1, k + 1)),
            )  # fmt: skip
            connection.executemany(
                "INSERT INTO evaluations (run, attempt, step, problem_set, rollouts, tokens, "
                "samples, sampled_rollouts, sampled_tokens, wall_s, counts, successes) "
                "VALUES (?, ?, ?, 'main', ?, ?, 4, 1200, 10800, 0.0456, ?, ?)",
                ((run, run, i, batch * i, 9 * batch * i, *evaluations[(run * 7 + i) % 400])
                 for i in range(k)),
            )  # fmt: skip
            connection.execute(
                "UPDATE runs SET state = 'done', steps_done = ?, target_steps = ?, rollouts = ?, "
                "findings = ? WHERE run = ?", (k, k, batch * k, dump_findings(k, []), run),
            )  # fmt: skip
    database.close()


def hold(path: Path, held: threading.Event, stop: threading.Event) -> None:
    """Keep a query open from the first update that is committed until `stop`."""
    found = 0
    while not found:
        time.sleep(0.1)
        with contextlib.suppress(sqlite3.Error):
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            found = connection.execute("SELECT count(*) FROM steps").fetchone()[0]
    rows = connection.execute("SELECT * FROM steps")
    rows.fetchone()  # the shared lock is held until the query ends
    held.set()
    stop.wait()
    rows.close()
    connection.close()


def reader() -> None:
    """Updates per second in the middle of a run, alone and while someone's query is held open."""
    rates = {}
    for with_reader in (False, True):
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            study = study_of(work, QUICKSTART, "grid.rollouts_per_problem=8", "slices=[1]")
            held, stop = threading.Event(), threading.Event()
            thread = threading.Thread(target=hold, args=(work / "study" / "study.db", held, stop))
            if with_reader:
                thread.start()
            seen: list[tuple[float, int, bool]] = []

            def watch(
                report: Any, seen: list[tuple[float, int, bool]] = seen,
                held: threading.Event = held, stop: threading.Event = stop,
            ) -> None:  # fmt: skip
                for *_, step, last in report.running:
                    seen.append((time.perf_counter(), step, held.is_set()))
                    if step > 0.8 * last:
                        stop.set()  # the last commit needs the file

            run_study(study, work / "study", workers=1, progress=watch)
            stop.set()
            steps = study.runs[0].allocation.steps
            middle = range(int(0.4 * steps), int(0.8 * steps))
            inner = [(t, s) for t, s, h in seen if s in middle and h is with_reader]
            (t0, s0), (t1, s1) = inner[0], inner[-1]
            rates[with_reader] = (s1 - s0) / (t1 - t0)
            with Store(work / "study") as store:
                assert store.runs()[0].state == "done"
    say("updates per second with a query held open, over alone",
        f"{rates[True]:.2f} / {rates[False]:.2f} = {rates[True] / rates[False]:.3f}",
        ">= 0.95")  # fmt: skip


def ray() -> None:
    """Two worker processes beside two places on Ray, in the order A B B A: the same runs.

    Rollouts per second from when both places train until one has nothing left to do: start-up and
    the last run's lonely end are left out, the change from one run to the next is not. Ray's own
    processes run only during its passes.
    """
    from isocompute.runner.ray import ray_pool

    rates: dict[str, list[float]] = {"local": [], "Ray": []}
    for way in ("local", "Ray", "Ray", "local"):
        with tempfile.TemporaryDirectory() as name:
            study = study_of(Path(name), QUICKSTART, "grid.rollouts_per_problem=8", RAY_BUDGET,
                             "grid.seeds=4", "slices=[1]")  # fmt: skip
            seen: list[tuple[float, float]] = []

            def watch(report: Any, seen: list[tuple[float, float]] = seen) -> None:
                if sum(step > 0 for *_, step, _ in report.running) == 2:
                    seen.append((time.perf_counter(), report.rollouts_done))

            began = time.perf_counter()
            pool = None if way == "local" else ray_pool(num_cpus=1, max_runs=2)
            run_study(study, Path(name) / "study", workers=2, progress=watch, pool=pool,
                      settings=Settings(report_s=0.1))  # fmt: skip
            if way == "Ray":
                importlib.import_module("ray").shutdown()
            with Store(Path(name) / "study") as store:
                each = [run.wall_s for run in store.runs()]
                reasons = {run.reason for run in store.runs() if run.state != "done"}
            if reasons:
                sys.exit(f"{way}: not every run is done: {'; '.join(sorted(reasons))}")
            (t0, first), (t1, last) = seen[0], seen[-1]
            rates[way].append((last - first) / (t1 - t0))
            say(f"{way}: {len(each)} runs of {min(each):.0f} to {max(each):.0f} s, two at once",
                f"{rates[way][-1]:,.0f} rollouts/s over {t1 - t0:.0f} s, after "
                f"{t0 - began:.1f} s of start-up",
                "runs of >= 20 s")  # fmt: skip
    pairs = [f"{b / a:.3f}" for a, b in zip(rates["local"], rates["Ray"], strict=True)]
    say("throughput on Ray over local",
        f"{sum(rates['Ray']) / sum(rates['local']):.3f} (pairs {', '.join(pairs)})",
        ">= 0.9")  # fmt: skip


def validate() -> None:
    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        study = study_of(Path(name), QUICKSTART, "grid.seeds=84", "budget=1e6")
        say(f"open and validate a study of {len(study.runs)} runs",
            f"{time.perf_counter() - began:.2f} s (imports included)", "<= 2 s")  # fmt: skip


def main() -> None:
    words = sys.argv[1:]
    print(f"{platform.machine()}, Python {platform.python_version()}, SQLite "
          f"{sqlite3.sqlite_version}")  # fmt: skip
    parts = {"validate": validate, "large": large, "reader": reader, "overhead": overhead,
             "ray": ray}  # fmt: skip
    for part in words or [name for name in parts if name != "ray"]:
        parts[part]()


if __name__ == "__main__":
    main()
