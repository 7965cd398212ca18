"""What a log tells of how its run was trained: passes over the problems, the rate at its end."""

from __future__ import annotations

from collections.abc import Mapping

Side = Mapping[int, float]

EPOCH = "epoch"
EPOCH_KEYS = ("epoch", "train/epoch", "training/epoch")
# Trackers round an epoch to two digits: from here on that is 3% of it at most. At half of it 5%, at
# twice of it runs that see a third of their problems would tell nothing.
_TOLD = 0.2
# Epochs grow as the steps do, to this share; what does not is a counter of another thing.
_EVEN = 0.1


def passes_per_step(epochs: Side) -> float | None:
    """Passes over the training problems in an update; None where the log does not say.

    Args:
        epochs: by update: a share of the problems, or the number of whole passes before it.

    >>> passes_per_step({10: 0.1, 20: 0.2, 30: 0.3}), passes_per_step({1: 0, 50: 0, 51: 1, 80: 1})
    (0.01, 0.02)
    """
    rows = sorted((s, e) for s, e in epochs.items() if s > 0 and e >= 0)
    if len(rows) < 2 or rows[-1][1] < _TOLD:
        return None
    if all(e == int(e) for _, e in rows):
        # The first update of a pass tells where the one before it ended.
        last = rows[-1][1]
        before = next(s for s, e in rows if e == last) - 1
        return last / before if before > last else None
    last_step, last = rows[-1]
    share = last / last_step
    middle, e = rows[len(rows) // 2]
    return share if abs(e / middle - share) <= _EVEN * share + 0.01 / middle else None


def rate_left(rates: Side) -> float | None:
    """The learning rate of the last row over the largest; None without one.

    >>> rate_left({1: 5e-7, 2: 1e-6, 3: 1e-6}), rate_left({1: 1e-6, 50: 5e-7, 100: 0.0})
    (1.0, 0.0)
    """
    top = max(rates.values(), default=0.0)
    return rates[max(rates)] / top if top > 0 else None
