"""How far the time of a further run may lie from what the runs say, in nine of ten cases.

What runs of one configuration differ by, and the errors in predicting a batch from those around
it, tell one standard deviation; a t-quantile makes up for how few of both there are. Two errors
beside each other share a batch, which a scatter of their own covers (docs/lab-log.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from isocompute.domain import Configuration

SURE = 0.9
_FEWEST = 2  # degrees of freedom: with one, nine of ten lie within six standard deviations


def within(runs: Mapping[Configuration, Sequence[float]], c: Configuration) -> float | None:
    """The share by which GPU-hours of a run may be off; None where the runs cannot tell.

    Args:
        runs: by configuration, the GPU-hours of a rollout in each run.
        c: measured, or at a batch between those measured.
    """
    from scipy.special import stdtrit

    log = {one: np.log(each) for one, each in runs.items()}
    squares = [float(((each - each.mean()) ** 2).sum()) for each in log.values()]
    free = sum(len(each) - 1 for each in log.values())
    batches = defaultdict[int, list[float]](list)
    for one, each in log.items():
        batches[one.batch_size] += each.tolist()
    sizes = sorted(batches)
    for i, size in enumerate(sizes[1:-1], 1):
        own = float(np.median(batches[size]))
        told, noise = _between(batches, sizes[i - 1], sizes[i + 1], size)
        squares.append((own - told) ** 2 / (noise + _noise(len(batches[size]))))
        free += 1
    if free < _FEWEST:
        return None
    if c in log:
        more = _noise(len(log[c]))
    elif c.batch_size in batches:
        more = _noise(len(batches[c.batch_size]))
    else:
        smaller = [size for size in sizes if size < c.batch_size]
        larger = [size for size in sizes if size > c.batch_size]
        if not smaller or not larger:
            return None
        more = _between(batches, smaller[-1], larger[0], c.batch_size)[1]
    off = stdtrit(free, (1 + SURE) / 2) * math.sqrt(sum(squares) / free * (1 + more))
    return float(math.expm1(off)) if off < 1 else None


def _noise(runs: int) -> float:
    """Variance of the median of runs, in that of one of them."""
    return 1.0 / runs if runs < 3 else math.pi / 2 / runs


def _between(
    batches: Mapping[int, Sequence[float]], low: int, high: int, size: int
) -> tuple[float, float]:
    """Logarithm of what a rollout takes between two batches, and its variance."""
    share = (size - low) / (high - low)
    takes = [(1 - share) * low * math.exp(np.median(batches[low])),
             share * high * math.exp(np.median(batches[high]))]  # fmt: skip
    noise = [(part / sum(takes)) ** 2 * _noise(len(batches[one]))
             for part, one in zip(takes, (low, high), strict=True)]  # fmt: skip
    return math.log(sum(takes) / size), sum(noise)
