"""Small studies for the tests of store and runner, and engines that misbehave on purpose."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isocompute.allocation import Allocation
from isocompute.engines import register_engine
from isocompute.engines.base import EvaluationRecord, Sink, StepRecord
from isocompute.engines.simulator import SimulatorEngine, simulated_problems
from isocompute.recipe import Recipe
from isocompute.runner import Settings
from isocompute.store import Database
from isocompute.store.export import export_study
from isocompute.study import Limits, RunSpec, Study

FAST = Settings(beat_s=0.05, lease_beats=6, report_s=0.05, commit_share=math.inf, stop_grace_s=10)


def small_study(
    *,
    ns: tuple[int, ...] = (2, 4),
    seeds: tuple[int, ...] = (0,),
    rollouts: int = 256,
    engine: str = "simulator",
    options: dict[str, Any] | None = None,
    limits: Limits | None = None,
    slices: tuple[float, ...] = (0.5, 1.0),
    recipe: Recipe | None = None,
    first: int = 32,
) -> Study:
    """Runs of a few dozen updates, evaluated about once per octave."""
    train, validation = simulated_problems("train", 12), simulated_problems("val", 8)
    return Study(
        name="small", slices=slices, limits=limits or Limits(),
        runs=[
            RunSpec(
                engine=engine, engine_options=options or {},
                allocation=Allocation(
                    problems_per_batch=4, rollouts_per_problem=n, steps=rollouts // (4 * n)
                ),
                recipe=recipe or Recipe(learning_rate=5.0, temperature=1.0), train=train,
                validation={"val": validation}, seed=seed, evaluations_per_octave=1,
                first_evaluation=first,
            )
            for seed in seeds for n in ns
        ],
    )  # fmt: skip


def edit(study_folder: Path, sql: str, *values: Any) -> None:
    """Change records as isocompute itself would: the rows stay sealed."""
    database = Database(study_folder, write=True, verify=False)
    with database.write() as connection:
        connection.execute(sql, values)
    database.close()


def digest(study_folder: Path, work: Path) -> str:
    """Hash of the whole export (both formats) without times, and of the final weights."""
    total = hashlib.sha256()
    for format in ("csv", "parquet"):
        for path in sorted(export_study(study_folder, work / format, format=format, times=False)):
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest() + weights(study_folder)


def weights(study_folder: Path) -> str:
    """Hash of every run's last committed weights."""
    from isocompute.store import Store

    with Store(study_folder) as store:
        rows = store.database.read(
            "SELECT r.hash, c.weights_sha256 FROM runs r JOIN checkpoints c ON c.run = r.run "
            "ORDER BY r.hash, c.token DESC, c.serial DESC"
        )
    last: dict[str, str] = {}
    for run_hash, sha256 in rows:
        last.setdefault(run_hash, sha256)
    return hashlib.sha256(json.dumps(last, sort_keys=True).encode()).hexdigest()


class OddEngine(SimulatorEngine):
    """The simulator with a fault chosen by `engine_options["fault"]`.

    `flag` names a file: the fault happens only while it does not exist, and makes it.
    """

    name = "odd"

    def check(self, spec: RunSpec) -> None:
        """Accept the options of the fault besides the world's."""

    def run(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Train with the fault."""
        fault = spec.engine_options.get("fault", "")
        getattr(self, f"_{fault}")(spec, resume, sink)

    def _plain(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        super().run(replace(spec, engine_options={}), resume, sink)

    def _counted(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        """Notes every update outside the study, before the sink hears of it."""
        path, pause_s = os.environ["COUNT_FILE"], spec.engine_options.get("pause_s", 0.0)

        def count(step: int) -> None:
            with open(path, "ab") as file:
                file.write(b"x" * spec.allocation.batch_size)

        self._plain(spec, resume, _Hook(sink, lambda step: time.sleep(pause_s), before=count))

    def _slow(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        self._plain(spec, resume, _Hook(sink, lambda step: time.sleep(0.02)))

    def _dies_once(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        flag = Path(spec.engine_options["flag"] + str(spec.seed))

        def maybe(step: int) -> None:
            if step == 20 and not flag.exists():
                flag.write_text("died")
                os.kill(os.getpid(), signal.SIGKILL)

        self._plain(spec, resume, _Hook(sink, maybe))

    def _diverges(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        class Diverging(_Hook):
            def step(self, record: StepRecord) -> None:
                health = {"entropy": math.nan} if record.step >= 3 else {}
                self._sink.step(replace(record, health=health))

        self._plain(spec, resume, Diverging(sink, None))

    def _raises(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        def fail(step: int) -> None:
            raise RuntimeError("the trainer broke")

        self._plain(spec, resume, _Hook(sink, fail))

    def _stops_short(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        short = replace(spec.allocation, steps=max(1, spec.allocation.steps - 3))
        self._plain(replace(spec, allocation=short), resume, sink)

    def _frozen(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        self._synthetic(spec, sink, successes=1, weights=b"same")

    def _dead_groups(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        self._synthetic(spec, sink, successes=0, weights=None)

    def _synthetic(
        self, spec: RunSpec, sink: Sink, *, successes: int, weights: bytes | None
    ) -> None:
        n, q = spec.allocation.rollouts_per_problem, spec.allocation.problems_per_batch
        for step in range(spec.allocation.steps + 1):
            if step:
                sink.step(StepRecord(
                    step=step, rollouts=step * n * q, tokens=0, problem_Q=np.arange(q),
                    successes_Q=np.full(q, successes), samples=n,
                ))  # fmt: skip
            else:
                sink.evaluation(EvaluationRecord(
                    step=0, rollouts=0, tokens=0, problem_set="val", samples=4,
                    successes_P=np.zeros(8, dtype=int),
                ))  # fmt: skip
            with sink.checkpoint(step) as folder:
                (folder / "model.safetensors").write_bytes(weights or str(step).encode())

    def _memory(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        block = np.ones(60_000_000)  # 480 MB
        self._plain(spec, resume, _Hook(sink, lambda step: time.sleep(0.05 * block[0])))

    def _memory_of_a_child(self, spec: RunSpec, resume: Path | None, sink: Sink) -> None:
        code = "import time; block = bytearray(480_000_000); time.sleep(300)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        Path(os.environ["CHILD_FILE"]).write_text(str(child.pid))
        try:
            self._plain(spec, resume, _Hook(sink, lambda step: time.sleep(0.05)))
        finally:
            child.kill()


class _Hook:
    """A sink that does something after each step."""

    def __init__(self, sink: Sink, after: Any, before: Any = lambda step: None) -> None:
        self._sink, self._after, self._before = sink, after, before
        self.evaluation, self.checkpoint = sink.evaluation, sink.checkpoint
        self.reached, self.rewind = sink.reached, sink.rewind

    @property
    def wants_checkpoint(self) -> bool:
        return self._sink.wants_checkpoint

    def step(self, record: StepRecord) -> None:
        self._before(record.step)
        self._sink.step(record)
        self._after(record.step)


if str(Path(__file__).parent) not in sys.path:  # workers find this module too
    sys.path.insert(0, str(Path(__file__).parent))
register_engine("odd", "study_helpers:OddEngine")
