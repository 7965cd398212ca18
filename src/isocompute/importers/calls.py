"""MLflow's metrics that were logged without `step=`: all of them lie at step 0.

What one call of `log_metrics` logged has one time, so a counter among it counts its updates.
"""

from __future__ import annotations

from isocompute.importers.collect import Collector
from isocompute.importers.runs import UnclearError


class Calls:
    """The calls of one run, each with what it logged, in the order of the log."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._values: dict[str, object] = {}
        self._time: object = None
        self._line = 0
        self._count = 0

    def take(self, time: object, key: str, value: object, line: int) -> None:
        """Take one value and the time at which it was logged."""
        if time != self._time or key in self._values:
            self.finish()
        self._values[key] = value
        self._time, self._line = time, line

    def finish(self) -> None:
        """Hand over what the last call logged."""
        if self._values:
            self.collector.row(self._count, self._values, self._line, calls=True)
            self._count += 1
        self._values = {}

    def check(self, what: str) -> None:
        """Refuse a run of several calls without anything that counts updates.

        Raises:
            UnclearError: names what may count them.
        """
        counters = self.collector.counters
        if self._count > 1 and self.collector.scored and counters.wanted is None and (
            not counters.seen
        ):
            raise UnclearError(
                f"{what}: run {self.collector.name}: steps must count updates, but MLflow has all "
                f"{self._count} calls at step 0 (they were logged without step=) and no known key "
                "beside them counts updates; name it with --set step=KEY, or write a CSV of run, "
                "problems_per_batch, rollouts_per_problem, step, score."
            )
