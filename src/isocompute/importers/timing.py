"""How long the steps of a run took, by what trainers log, and on how many GPUs."""

from __future__ import annotations

from collections.abc import Mapping

Side = Mapping[int, float]

# Seconds of one update: verl 0.9 (`timing_s/step`, `perf/time_per_step`), TRL 1.x (`step_time`).
# Seconds since the start: TRL's last row, W&B. verl's throughput is tokens per second and GPU.
SECONDS, SINCE, WHOLE, THROUGHPUT = "seconds", "runtime", "train_runtime", "throughput"
TIMING_KEYS = {
    "timing_s/step": SECONDS,
    "perf/time_per_step": SECONDS,
    "step_time": SECONDS,
    "train/step_time": SECONDS,
    "_runtime": SINCE,
    "train_runtime": WHOLE,
    "train/train_runtime": WHOLE,
    "perf/throughput": THROUGHPUT,
}


def gpu_seconds_per_step(side: Mapping[str, Side], gpus: int | None) -> float | None:
    """Mean GPU-seconds of an update; None where the log does not say time and GPUs.

    Args:
        side: by kind ("seconds", "runtime", "train_runtime", "throughput", "total") the numbers
            by step.
        gpus: as the user says; None: what verl's throughput implies.
    """
    seconds = seconds_per_step(side)
    if seconds is None:
        return None
    count = gpus or _gpus(side)
    return None if count is None else seconds * count


def seconds_per_step(side: Mapping[str, Side]) -> float | None:
    """Mean seconds of an update; None where the log has no times."""
    steps = {s: v for s, v in side[SECONDS].items() if s > 0 and v > 0}
    if steps:
        return sum(steps.values()) / len(steps)
    whole = {s: v for s, v in side[WHOLE].items() if s > 0 and v > 0}
    if whole:
        last = max(whole)
        return whole[last] / last
    since = side[SINCE]
    if len(since) < 2 or (span := max(since) - min(since)) < 1:
        return None
    took = since[max(since)] - since[min(since)]
    return took / span if took > 0 else None  # a resumed run's clock begins anew


def _gpus(side: Mapping[str, Side]) -> int | None:
    """GPUs of a verl run: tokens of a step over its seconds and the throughput of one GPU."""
    seconds, throughput, total = side[SECONDS], side[THROUGHPUT], side["total"]
    steps = [s for s in total if seconds.get(s) and throughput.get(s)]
    if not steps:
        return None
    counts = sorted(total[s] / (seconds[s] * throughput[s]) for s in steps)
    found = counts[len(counts) // 2]
    whole = round(found)
    # What is not near a whole number counts other tokens than those.
    return whole if whole >= 1 and abs(found - whole) <= 0.03 * whole else None
