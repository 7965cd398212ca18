"""What a log tells of how its run was trained: passes over the problems, the rate at its end."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

Side = Mapping[int, float]

EPOCH = "epoch"
EPOCH_KEYS = ("epoch", "train/epoch", "training/epoch")
# Trackers round an epoch to two digits: over so much of one that is 5% of it at most, as is a gap
# between rows at whole epochs. At half of it 10%; at twice of it runs that see a third of their
# problems would tell nothing.
_TOLD = 0.2
_EXACT = 0.05


def passes_per_step(epochs: Side) -> float | None:
    """Passes over the training problems in an update; None where the log does not say.

    Args:
        epochs: by update: a share of the problems, or the number of whole passes.

    >>> passes_per_step({10: 0.1, 20: 0.2, 30: 0.3, 40: 0.4})
    0.01
    >>> passes_per_step({1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2})  # two updates are a pass
    0.5
    """
    rows = sorted((s, e) for s, e in epochs.items() if s > 0 and e >= 0)
    if len(rows) < 2:
        return None
    if all(e == int(e) for _, e in rows):
        return _of_whole(rows)
    (first_step, first), (last_step, last) = rows[0], rows[-1]
    grown, steps = last - first, last_step - first_step
    if grown < _TOLD:
        return None
    share = grown / steps
    middle, e = rows[len(rows) // 2]
    # What does not grow with the steps counts another thing.
    even = abs(e - first - share * (middle - first_step)) <= _EXACT * grown + 0.01
    return round(share, 12) if even else None


def _of_whole(rows: list[tuple[int, float]]) -> float | None:
    """Of the number of whole passes: from where one begins to where another does.

    The first row stands for the beginning of its pass only where the run began there.
    """
    begins = {e: s for s, e in reversed(rows)}
    seen, gaps = sorted(begins), [b - a for (a, _), (b, _) in pairwise(rows)]
    if rows[0][0] > 1:
        seen = seen[1:]
    if len(seen) < 2:
        return None
    updates = begins[seen[-1]] - begins[seen[0]]
    known = max(gaps) - 1 <= _EXACT * updates and updates > seen[-1] - seen[0]
    return (seen[-1] - seen[0]) / updates if known else None


def rate_span(rates: Side) -> tuple[float, float] | None:
    """The learning rate of the last row, and the largest; None without one.

    >>> rate_span({1: 5e-7, 2: 1e-6, 3: 1e-6}), rate_span({1: 1e-6, 50: 5e-7, 100: 0.0})
    ((1e-06, 1e-06), (0.0, 1e-06))
    """
    top = max(rates.values(), default=0.0)
    return (rates[max(rates)], top) if top > 0 else None
