"""A short measurement of a study's engine: a few updates of the smallest and largest batch."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from isocompute.engines import engine_target, load_engine
from isocompute.engines.base import EvaluationRecord, StepRecord, StopRequested
from isocompute.runner.execute import slice_of
from isocompute.store.database import Database
from isocompute.store.ledger import spend
from isocompute.study import Study
from isocompute.study.cost import Calibration

_ENOUGH = 20  # updates


@dataclass
class _Stopwatch:
    """A sink that keeps nothing and asks to stop when its time is up."""

    folder: Path
    until: float
    steps: list[float] = field(default_factory=list)
    evaluation_s: float = 0.0
    evaluation_tokens: int = 0
    evaluation_rollouts: int = 0
    rollouts: int = 0
    tokens: int = 0
    _last: float = field(default_factory=time.monotonic)

    @property
    def wants_checkpoint(self) -> bool:
        return len(self.steps) >= 2 and (
            time.monotonic() > self.until or len(self.steps) >= _ENOUGH
        )

    def step(self, record: StepRecord) -> None:
        now = time.monotonic()
        self.steps.append(now - self._last)
        self._last = now
        self.rollouts, self.tokens = record.rollouts, record.tokens

    def evaluation(self, record: EvaluationRecord) -> None:
        now = time.monotonic()
        if record.step == 0:
            self.evaluation_s += record.wall_s or now - self._last
        self._last = now
        self.evaluation_rollouts += record.samples * len(record.successes_P)
        self.evaluation_tokens += record.sampled_tokens

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:  # noqa: ARG002  # the sink's signature
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield Path(folder)
        self._last = time.monotonic()
        if self.wants_checkpoint:
            raise StopRequested


def calibrate(study: Study, *, seconds: float = 10.0) -> Calibration:
    """Measure seconds per update and tokens per rollout on the study's own engine.

    The smallest and the largest batch are each trained for about half of the time, at least
    two updates and at most 20; nothing is kept. What it draws is reported, so that `run_study`
    can book it.

    Raises:
        InputError: if the engine refuses the study.
    """
    by_batch = {spec.allocation.batch_size: spec for spec in study.runs}
    sizes = sorted({min(by_batch), max(by_batch)})
    began, step_s, watches = time.monotonic(), {}, []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            spec = by_batch[size]
            engine = load_engine(engine_target(spec.engine))
            engine.check(spec)
            # Enough evaluations would distort the measurement: the first one is enough.
            watch = _Stopwatch(Path(folder), time.monotonic() + seconds / len(sizes))
            with contextlib.suppress(StopRequested):
                engine.run(slice_of(spec, max(2, spec.allocation.steps)), None, watch)
            # The first update warms caches up.
            kept = watch.steps[1:] or watch.steps
            step_s[size] = sum(kept) / len(kept)
            watches.append(watch)
    rollouts = sum(w.rollouts + w.evaluation_rollouts for w in watches)
    tokens = sum(w.tokens + w.evaluation_tokens for w in watches)
    return Calibration(
        step_s=step_s, evaluation_s=sum(w.evaluation_s for w in watches) / len(watches),
        tokens_per_rollout=tokens / max(rollouts, 1), rollouts=rollouts, tokens=tokens,
        wall_s=time.monotonic() - began,
    )  # fmt: skip


def book_calibration(database: Database, calibration: Calibration) -> None:
    """Enter what a measurement drew into the study's books."""
    spend(database, "calibration", rollouts=calibration.rollouts, tokens=calibration.tokens,
          wall_s=calibration.wall_s)  # fmt: skip
