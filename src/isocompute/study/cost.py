"""What a study will cost, before its first rollout: nothing is guessed, unknown is None."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from isocompute.domain.text import compact
from isocompute.study.spec import RunSpec, on_cpu, shares_gpus
from isocompute.study.sweep import Study, configuration_of

NAMED = 0.1  # of a price, above which what starts take is told apart


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A short measurement of the study's own engine.

    Args:
        step_s: seconds per update by batch size, one worker.
        evaluation_s: seconds of one evaluation of all validation sets.
        start_s: seconds from the start of a slice to its first update or evaluation.
        tokens_per_rollout: mean over what was drawn.
        rollouts, tokens: drawn by the measurement itself.
        wall_s: seconds that it took.
    """

    step_s: Mapping[int, float]
    evaluation_s: float
    tokens_per_rollout: float
    rollouts: int
    tokens: int
    wall_s: float
    start_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of all runs of a study from the start.

    Args:
        runs: how many.
        rollouts, evaluation_rollouts: of training and of the evaluations.
        tokens: of both; None without a rate.
        worker_s: seconds of one worker, all runs one after the other; None if not calibrated.
        wall_s: with so many workers at once; None if not calibrated.
        gpu_hours, usd: None without rates.
        starts: of the trainer, at most: one for each slice that a run has left.
        start_gpu_hours: of the GPU-hours, what those starts take; None: not known.
        device: whose hours they are.
    """

    runs: int
    rollouts: int
    evaluation_rollouts: int
    tokens: float | None
    worker_s: float | None
    wall_s: float | None
    gpu_hours: float | None
    usd: float | None
    starts: int = 0
    start_gpu_hours: float | None = None
    device: str = "GPU"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def line(self) -> str:
        """`27 runs, 5,400,000 rollouts + 81,000 for evaluation, 43M tokens, about 3.8 min`."""
        parts = [f"{self.runs} run{'s' * (self.runs != 1)}", f"{self.rollouts:,} rollouts + "
                 f"{self.evaluation_rollouts:,} for evaluation"]  # fmt: skip
        if self.tokens is not None:
            parts.append(f"{compact(self.tokens)} tokens")
        if self.wall_s is not None:
            parts.append(time_words(self.wall_s))
        return ", ".join([*parts, *self.paid()])

    def paid(self, share: float = 1.0, starts: int | None = None) -> list[str]:
        """`12 GPU-hours (3.1 of them 28 starts)`, `$24`, as far as they are known.

        Args:
            share: of the rollouts.
            starts: that go with it; None: all.
        """
        if self.gpu_hours is None:
            return []
        begun = self.starts if starts is None else starts
        first = begun * (self.start_gpu_hours or 0.0) / max(self.starts, 1)
        hours = share * (self.gpu_hours - (self.start_gpu_hours or 0.0)) + first
        parts = [f"{compact(hours)} {self.device}-hours"]
        if first > NAMED * hours:
            parts[0] += f" ({compact(first)} of them {begun} start{'s' * (begun != 1)})"
        if self.usd is not None:
            parts.append(f"${compact(self.usd / self.gpu_hours * hours if hours else 0.0)}")
        return parts


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(45), duration(228), duration(9000)
    ('45 s', '3.8 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def time_words(wall_s: float) -> str:
    """A forecast of seconds: "about 3.8 min", "about 2.5 h".

    Processes that start and looks that are taken make up most of a sweep of seconds, and no
    calibration measures them.

    >>> time_words(1.0), time_words(228.0), time_words(9000.0)
    ('under a minute', 'about 3.8 min', 'about 2.5 h')
    """
    return "under a minute" if wall_s < 30 else f"about {duration(wall_s)}"


def hours_of(study: Study) -> str:
    """Whose hours a study takes: "CPU" of one that is known to train without a GPU."""
    alone = all(on_cpu(spec.engine, spec.engine_options) for spec in study.runs)
    return "CPU" if alone else "GPU"


def on_grid(spec: RunSpec) -> int:
    """Evaluations of a run by the grid of its study, which most engines keep to."""
    return spec.evaluations


def study_cost(
    study: Study, calibration: Calibration | None = None, *, workers: int = 1,
    runs: Sequence[RunSpec] | None = None, steps: Mapping[str, int] | None = None,
    evaluations: Callable[[RunSpec], int] = on_grid,
) -> Cost:  # fmt: skip
    """Cost of a study, from its rates and, where there is one, a calibration.

    A clock on the GPUs that train goes before rates of earlier runs. Seconds per update between and
    beyond the measured batch sizes lie on the line through the two nearest ones.

    Args:
        study: what would be run.
        calibration: measured seconds and tokens, of runs from their start; None leaves time out.
        workers: runs at once; those that share GPUs take the time of one after the other.
        runs: of the study, as far as each trains; None: all, to their end.
        steps: of each that are trained already, by hash.
        evaluations: how often the engine of a run evaluates up to its last step.
    """
    runs, steps = study.runs if runs is None else runs, steps or {}
    left = [_left(spec, steps, evaluations) for spec in runs]
    starts = len(_slices(study, runs, steps))
    known = _by_rates(study, runs, left, starts)
    each = study.rates_by_batch.gpu_hours_per_start
    rollouts, evaluation_rollouts = (sum(one[i] for one in left) for i in (0, 1))
    if known["tokens"] is None and calibration is not None:
        drawn = rollouts + evaluation_rollouts
        known["tokens"] = drawn * calibration.tokens_per_rollout
    worker_s = wall_s = None
    if calibration is not None:
        seconds = [run_seconds(study, spec, calibration, evaluations) for spec in runs]
        worker_s = sum(seconds)
        # GPUs that runs share are no faster for it, as far as one run alone can tell.
        at_once = 1 if any(shares_gpus(s.engine, s.engine_options) for s in runs) else workers
        wall_s = max(worker_s / max(at_once, 1), max(seconds))
        gpus = [spec.gpus or study.rates_by_batch.gpus for spec in runs]
        if all(gpus) and (study.rates_by_batch.known or known["gpu_hours"] is None):
            hours = sum(s * (n or 0) for s, n in zip(seconds, gpus, strict=True)) / 3600
            usd = study.rates.usd_per_gpu_hour
            known |= {"gpu_hours": hours, "usd": None if usd is None else usd * hours}
            each = calibration.start_s * max(n or 0 for n in gpus) / 3600
    return Cost(
        runs=len(runs), rollouts=rollouts, evaluation_rollouts=evaluation_rollouts,
        worker_s=worker_s, wall_s=wall_s, **known, starts=starts,
        start_gpu_hours=None if each is None or known["gpu_hours"] is None else each * starts,
        device=hours_of(study),
    )  # fmt: skip


def _left(
    spec: RunSpec, steps: Mapping[str, int], evaluations: Callable[[RunSpec], int]
) -> tuple[int, int]:
    """Rollouts of training and of evaluations that a run has not drawn yet."""
    done, a = steps.get(spec.hash, 0), spec.allocation
    seen = replace(spec, allocation=replace(a, steps=done), end=spec.last_step) if done else None
    to_come = evaluations(spec) - (0 if seen is None else evaluations(seen))
    return (max(a.steps - done, 0) * a.batch_size,
            max(to_come, 0) * spec.evaluation_rollouts)  # fmt: skip


def _by_rates(
    study: Study, runs: Sequence[RunSpec], left: Sequence[tuple[int, int]], starts: int
) -> dict[str, float | None]:
    """Tokens, GPU-hours and money of every run at its own rates, starts included where known."""
    by_batch, parts = study.rates_by_batch, list[dict[str, float | None]]()
    for spec, (trained, evaluated) in zip(runs, left, strict=True):
        rates = by_batch.at(spec.allocation, study.rates, spec.hash)
        drawn = trained + evaluated
        paid = rates.cost(trained if by_batch.evaluations_timed else drawn)
        parts.append({**paid, "tokens": rates.cost(drawn)["tokens"]})
    total = {
        name: None if any(one[name] is None for one in parts) else sum(one[name] or 0.0
                                                                      for one in parts)
        for name in study.rates.cost(0.0)
    }  # fmt: skip
    hours = starts * (by_batch.gpu_hours_per_start or 0.0)
    for name, each in (("gpu_hours", 1.0), ("usd", study.rates.usd_per_gpu_hour or 0.0)):
        total[name] = None if total[name] is None else (total[name] or 0.0) + hours * each
    return total


def most_starts(
    study: Study, rollouts: float, *, runs: Sequence[RunSpec] | None = None,
    steps: Mapping[str, int] | None = None,
) -> int:  # fmt: skip
    """How often the trainer starts at most while so many rollouts are trained.

    Each slice of a run starts it, and the first ones are the shortest: a sweep that trains a third
    of its grid may pay for most of the starts.
    """
    sizes = _slices(study, study.runs if runs is None else runs, steps or {})
    return sum(end <= rollouts for end in itertools.accumulate(sorted(sizes)))


def _slices(study: Study, runs: Sequence[RunSpec], steps: Mapping[str, int]) -> list[int]:
    """Rollouts of each slice that is left of a run; of one that is begun, what is left of it."""
    grid = None if study.adaptive is None else study.grid()
    sizes = list[int]()
    for spec in runs:
        a, done = spec.allocation, steps.get(spec.hash, 0)
        ends: Iterable[int] = study.slice_steps(a.steps)
        if grid is not None:
            ends = (level // a.batch_size for level in grid.levels(configuration_of(spec)))
        left = sorted({min(end, a.steps) for end in ends if end > done}) if done < a.steps else []
        sizes += [(end - begin) * a.batch_size for begin, end in itertools.pairwise([done, *left])]
    return sizes


def run_seconds(
    study: Study, spec: RunSpec, calibration: Calibration,
    evaluations: Callable[[RunSpec], int] = on_grid,
) -> float:  # fmt: skip
    """Seconds that one worker needs for a run, its starts and evaluations included."""
    steps, starts = spec.allocation.steps, len(study.slice_steps(spec.allocation.steps))
    step_s = _step_s(calibration.step_s, spec.allocation.batch_size)
    return (
        starts * calibration.start_s + steps * step_s
        + evaluations(spec) * calibration.evaluation_s
    )


def _step_s(measured: Mapping[int, float], batch_size: int) -> float:
    sizes = sorted(measured)
    if len(sizes) == 1:
        return measured[sizes[0]] * max(1.0, batch_size / sizes[0])
    above = next((i for i, s in enumerate(sizes) if s > batch_size), len(sizes) - 1)
    low, high = sizes[max(above - 1, 0)], sizes[max(above, 1)]
    slope = (measured[high] - measured[low]) / (high - low)
    return max(measured[low] + slope * (batch_size - low), 0.1 * min(measured.values()))
