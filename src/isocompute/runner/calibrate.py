"""A short measurement of a study's engine: updates of its smallest, middle and largest batch."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from isocompute.engines import engine_target, load_engine
from isocompute.engines.base import EvaluationRecord, StepRecord, StopRequested
from isocompute.runner.execute import slice_of
from isocompute.study import Study
from isocompute.study.cost import Calibration

_MOST = 0.05  # of what a study trains: a fast engine would draw a third of it in a few seconds


@dataclass
class _Stopwatch:
    """A sink that keeps nothing and asks to stop when its time is up."""

    folder: Path
    until: float
    most: float  # rollouts
    steps: list[float] = field(default_factory=list)
    start_s: float | None = None
    evaluation_s: float = 0.0
    evaluation_tokens: int = 0
    evaluation_rollouts: int = 0
    rollouts: int = 0
    tokens: int = 0
    _last: float = field(default_factory=time.monotonic)

    @property
    def wants_checkpoint(self) -> bool:
        return len(self.steps) >= 2 and (time.monotonic() > self.until or self.rollouts > self.most)

    def _lap(self, said: float) -> float:
        """Seconds since the last record; before the first one it is the start that takes time."""
        now = time.monotonic()
        lap, self._last = now - self._last, now
        if self.start_s is not None:
            return lap
        self.start_s = max(lap - said, 0.0) if said else 0.0
        return said or lap

    def step(self, record: StepRecord) -> None:
        self.steps.append(self._lap(record.wall_s))
        self.rollouts, self.tokens = record.rollouts, record.tokens

    def evaluation(self, record: EvaluationRecord) -> None:
        lap = self._lap(record.wall_s)
        if record.step == 0:
            self.evaluation_s += lap
        self.evaluation_rollouts += record.samples * len(record.successes_P)
        self.evaluation_tokens += record.sampled_tokens

    def reached(self, step: int) -> None:
        """Nothing is measured by it."""

    def rewind(self, step: int) -> None:
        """Nothing goes on from before."""

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:  # noqa: ARG002  # the sink's signature
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield Path(folder)
        self._last = time.monotonic()
        if self.wants_checkpoint:
            raise StopRequested


def calibrate(study: Study, *, seconds: float = 10.0) -> Calibration:
    """Measure seconds per update and tokens per rollout on the study's own engine.

    The smallest, the middle and the largest batch are each trained for about a third of the time,
    or of 5% of what the study trains: at least two updates, at most as many as a run has. Nothing
    is kept. What it draws is reported, so that `run_study` can book it. Two batches would not do:
    where responses repeat, time grows more slowly than the batch.

    Raises:
        InputError: if the engine refuses the study.
    """
    by_batch = {spec.allocation.batch_size: spec for spec in study.runs}
    trained = study.rollouts if study.adaptive is None else study.grid().limit
    least, most = min(by_batch), max(by_batch)
    middle = min(by_batch, key=lambda size: abs(math.log(size**2 / (least * most))))
    sizes = sorted({least, middle, most})
    began, step_s, watches = time.monotonic(), {}, []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            spec = by_batch[size]
            engine = load_engine(engine_target(spec.engine))
            engine.check(spec)
            # Enough evaluations would distort the measurement: the first one is enough.
            until, drawn = time.monotonic() + seconds / len(sizes), _MOST * trained / len(sizes)
            watch = _Stopwatch(Path(folder), until, drawn)
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
        start_s=sum(w.start_s or 0.0 for w in watches) / len(watches),
        tokens_per_rollout=tokens / max(rollouts, 1), rollouts=rollouts, tokens=tokens,
        wall_s=time.monotonic() - began,
    )  # fmt: skip
