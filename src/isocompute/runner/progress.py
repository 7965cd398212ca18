"""What a runner says while it works and when it ends, and how long it still needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from isocompute.store.store import Accounting
from isocompute.study.cost import duration
from isocompute.study.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Progress:
    """State of a study at one moment.

    Args:
        runs_done, runs_total: runs that reached their budget; in all, those that train now.
        runs_failed: failed or invalid.
        running: runs in progress here, as (problems_per_batch, rollouts_per_problem, seed,
            step, last step of the slice).
        rollouts_done, rollouts_total: training rollouts; of a sweep that decides, what it may.
        slice: smallest fraction of the budget that some run has not reached yet.
        elapsed_s: since this runner started, monotonic.
        left_s: estimated seconds to the end; None until updates have been timed.
        note: something that happened (a retry, an unusable checkpoint), or "".
        decides: more may be trained than is known now, or less; `left_s` is to the next look.
    """

    runs_done: int
    runs_total: int
    runs_failed: int
    running: Sequence[tuple[int, int, int, int, int]]
    rollouts_done: int
    rollouts_total: int
    slice: float
    elapsed_s: float
    left_s: float | None
    note: str = ""
    decides: bool = False

    def line(self) -> str:
        """One line for a log: `runs 3/27, 12% of rollouts, 1.2 min, 3.4 min left`."""
        share = self.rollouts_done / max(self.rollouts_total, 1)
        left = "time left unknown" if self.left_s is None else f"{duration(self.left_s)} left"
        left += " to the next look" if self.decides and self.left_s else ""
        most = "at most " if self.decides else ""
        failed = f", {self.runs_failed} failed" if self.runs_failed else ""
        text = (
            f"runs {self.runs_done}/{self.runs_total}{failed}, {share:.0%} of "
            f"{most}{self.rollouts_total:,} rollouts, {duration(self.elapsed_s)}, {left}"
        )
        return f"{text}; {self.note}" if self.note else text


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a call of `run_study` ended.

    Args:
        done, failed, invalid, pending: number of the study's runs in each state.
        resting: runs of an adaptive study that are not asked to train further, or at all.
        problems: (run hash, reason) of every failed or invalid run.
        accounting: of the whole store.
        elapsed_s: of this call.
        stopped_by: number of the signal that ended it, or None.
        warnings: one line each.
    """

    done: int
    failed: int
    invalid: int
    pending: int
    problems: Sequence[tuple[str, str]]
    accounting: Accounting
    elapsed_s: float
    resting: int = 0
    stopped_by: int | None = None
    warnings: Sequence[str] = field(default=())

    @property
    def exit_code(self) -> int:
        """0 all done; 1 a run failed; 130 after Ctrl-C, 143 after SIGTERM (resumable)."""
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        return 0 if self.failed == self.invalid == self.pending == 0 else 1


@dataclass
class Pace:
    """Seconds per update of each batch size, measured, and what that says about the rest.

    Args:
        steps, seconds: of attempts that ended, by batch size.
        going: of each that goes on its batch size, its first update seen and the last, with times.
    """

    steps: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    going: dict[int, tuple[int, int, float, int, float]] = field(default_factory=dict)

    def saw(self, attempt: int, spec: RunSpec, step: int, at: float) -> None:
        """An update of an attempt that goes on, at a monotonic time."""
        size, first, began, last, _ = self.going.get(
            attempt, (spec.allocation.batch_size, step, at, step - 1, at)
        )
        if step > last:
            self.going[attempt] = (size, first, began, step, at)

    def add(
        self, batch_size: int, steps: int, seconds: float, attempt: int | None = None
    ) -> None:
        """Updates of one batch size and the time that they took, evaluations included.

        Args:
            batch_size, steps, seconds: of an attempt that ended.
            attempt: under which its updates were seen.
        """
        self.going.pop(attempt or 0, None)
        if steps > 0 and seconds > 0:
            self.steps[batch_size] = self.steps.get(batch_size, 0.0) + steps
            self.seconds[batch_size] = self.seconds.get(batch_size, 0.0) + seconds

    def step_s(self, batch_size: int) -> float | None:
        """Seconds per update: measured, or on the line a + b * batch_size through the rest."""
        steps, seconds = self.steps.copy(), self.seconds.copy()
        for size, first, began, last, at in self.going.values():
            if last > first:
                steps[size] = steps.get(size, 0.0) + last - first
                seconds[size] = seconds.get(size, 0.0) + at - began
        if batch_size in steps:
            return seconds[batch_size] / steps[batch_size]
        if not steps:
            return None
        sizes = np.array(sorted(steps), dtype=np.float64)
        each = np.array([seconds[int(b)] / steps[int(b)] for b in sizes])
        if len(sizes) == 1:
            return float(each[0] * max(batch_size / sizes[0], 1.0))
        design = np.stack([np.ones_like(sizes), sizes], axis=1) / each[:, None]
        fixed, slope = np.linalg.lstsq(design, np.ones_like(each), rcond=None)[0]
        return float(np.maximum(fixed + slope * batch_size, each.min() * 0.1))

    def left_s(self, remaining: Iterable[tuple[int, int]], workers: int) -> float | None:
        """Seconds until all of (batch_size, updates) are done by so many workers."""
        total = longest = 0.0
        for batch_size, steps in remaining:
            each = self.step_s(batch_size)
            if each is None:
                return None
            total += each * steps
            longest = max(longest, each * steps)
        return max(total / max(workers, 1), longest)


def progress_of(
    specs: Mapping[str, RunSpec],
    states: Mapping[str, tuple[str, int]],
    live: Mapping[str, tuple[int, int]],
    pace: Pace,
    *,
    workers: int,
    elapsed_s: float,
    note: str = "",
    limit: float | None = None,
) -> Progress:
    """Put together what is known.

    Args:
        specs: the runs that train now by hash, with the budget to which they do.
        states: (state, committed steps) by hash.
        live: (step, last step of the slice) of what runs here, by hash.
        pace: measured seconds per update.
        workers: places.
        elapsed_s: since the start.
        note: what happened, if anything.
        limit: rollouts that a sweep which decides may train; None: it decides nothing more.
    """
    done = {h: max(states[h][1], live.get(h, (0, 0))[0]) for h in specs}
    open_runs = [h for h in specs if states[h][0] == "pending"]
    remaining = [
        (specs[h].allocation.batch_size, max(specs[h].allocation.steps - done[h], 0))
        for h in open_runs
    ]
    shares = [done[h] / specs[h].allocation.steps for h in open_runs]
    return Progress(
        runs_done=sum(states[h][0] == "done" for h in specs),
        runs_total=len(specs),
        runs_failed=sum(s[0] in ("failed", "invalid") for s in states.values()),
        running=[
            (specs[h].allocation.problems_per_batch, specs[h].allocation.rollouts_per_problem,
             specs[h].seed, *live[h]) for h in live
        ],
        rollouts_done=sum(
            min(done[h], specs[h].allocation.steps) * specs[h].allocation.batch_size for h in specs
        ),
        rollouts_total=max(int(limit or 0), sum(s.allocation.rollouts for s in specs.values())),
        slice=min(shares, default=1.0),
        elapsed_s=elapsed_s,
        left_s=pace.left_s(remaining, workers),
        note=note, decides=limit is not None,
    )  # fmt: skip
