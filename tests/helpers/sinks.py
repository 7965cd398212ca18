"""A sink in memory, for tests of engines that run in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from isocompute.engines.base import EvaluationRecord, StepRecord, StopRequested


class ListSink:
    """Keeps records the way the store does: nothing before a checkpoint."""

    def __init__(self, folder: Path, stop_at: int | None = None) -> None:
        self.folder, self.stop_at = folder, stop_at
        self.wants_checkpoint = False
        self.steps: list[StepRecord] = []
        self.evaluations: list[EvaluationRecord] = []
        self.told: list[int] = []
        self.pending: list[StepRecord | EvaluationRecord] = []
        self.last: Path | None = None

    def step(self, record: StepRecord) -> None:
        self.pending.append(record)

    def evaluation(self, record: EvaluationRecord) -> None:
        self.pending.append(record)

    def reached(self, step: int) -> None:
        self.told.append(step)

    def rewind(self, step: int) -> None:
        self.steps = [record for record in self.steps if record.step <= step]
        self.evaluations = [record for record in self.evaluations if record.step <= step]

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        folder = self.folder / f"c{step}-{len(self.steps)}-{len(self.evaluations)}"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        for record in self.pending:
            if isinstance(record, StepRecord):
                self.steps.append(record)
            else:
                self.evaluations.append(record)
        self.pending, self.last = [], folder
        if self.stop_at is not None and step >= self.stop_at:
            raise StopRequested
