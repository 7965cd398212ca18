"""What the rollouts of one configuration take, as its runs logged it, and how that may go on.

Responses grow while a policy learns, and a rollout gets dearer. So beyond the data what is spent
lies between two ends: a rollout goes on to take what it took at the end of the runs, or it goes on
to change as the same power of the rollouts.

How far a further run may lie from what the runs say, in nine of ten cases: what runs of one
configuration differ by, and the errors in predicting a batch from those around it, tell one
standard deviation; a t-quantile makes up for how few of both there are. Two errors beside each
other share a batch, which a scatter of their own covers (docs/lab-log.md).

Shape legend: K evaluations of a run, U places of a line.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocompute.domain import Configuration, Curve
from isocompute.intervals import FloatArray
from isocompute.model.data import MIN_STEPS

# The trend is that between the two halves, by their logarithm, of the last factor of so many: over
# two it is mostly noise, over sixteen it is that of long ago.
LAST = 4.0
_LEAST, _MOST = -0.75, 1.0  # a cost per rollout beyond these powers is a broken log, no trend
_SAME = 1e-6  # of a power: round-off of constant lengths
# Ends nearer than this are one figure; logs of one kind of machine differ by as much.
APART = 1.03
_WIDE, _HALVED = 4.0, 40  # decades, and how often they are: to a hundred-billionth
_FAR = 100.0  # decades, whose square a float holds
SURE = 0.9  # how often a further run takes what is said of it
_FEWEST = 2  # degrees of freedom: with one, nine of ten lie within six standard deviations


@dataclass(frozen=True)
class Spent:
    """A line of log10 of what is spent over log10 of rollouts."""

    at_U: FloatArray  # what was logged
    spent_U: FloatArray
    now: float = 1.0  # what a rollout takes at its end, in the mean of all
    growth: float = 0.0  # the power of the rollouts by which that changes
    level: float = 1.0  # `now` if it changes no more
    runs: tuple[float, ...] = ()  # what a rollout takes in each run, to the end of the longest

    @property
    def end(self) -> float:
        """Rollouts that were logged."""
        return float(10 ** self.at_U[-1])

    def of(self, at: FloatArray, *, low: bool = False) -> FloatArray:
        """What log10 rollouts take; beyond the data the upper end, or the lower one."""
        inside = np.clip(at, self.at_U[0], self.at_U[-1])
        times = 10 ** np.clip(at - self.at_U[-1], 0.0, _FAR)
        power = 1 + (min if low else max)(self.growth, 0.0)
        more = np.log10(1 + self.now * (times**power - 1) / power)
        before = np.minimum(at - self.at_U[0], 0.0)
        return np.asarray(np.interp(inside, self.at_U, self.spent_U) + before + more)

    def buys(self, spent: FloatArray) -> FloatArray:
        """Log10 of the rollouts that log10 of an amount pays for, at the upper end."""
        inside = np.clip(spent, self.spent_U[0], self.spent_U[-1])
        times = 10 ** np.clip(spent - self.spent_U[-1], 0.0, _FAR)
        power = 1 + max(self.growth, 0.0)
        more = np.log10(1 + (times - 1) * power / self.now) / power
        before = np.minimum(spent - self.spent_U[0], 0.0)
        return np.asarray(np.interp(inside, self.spent_U, self.at_U) + before + more)

    def each(self, rollouts: float | None = None, *, low: bool = False) -> float:
        """What one of so many rollouts takes on average; the same as `of`, of a number and fast.

        Args:
            rollouts: None: as many as were logged.
            low: as of `of`.
        """
        end = float(self.at_U[-1])
        at = end if rollouts is None else math.log10(max(rollouts, 1e-300))
        at = min(max(at, float(self.at_U[0])), end + _FAR)
        if at <= end:
            return float(10 ** (np.interp(at, self.at_U, self.spent_U) - at))
        times, power = 10 ** (at - end), 1 + (min if low else max)(self.growth, 0.0)
        more = 1 + self.now * (times**power - 1) / power
        return float(10 ** (self.spent_U[-1] - at) * more)


def lines(curves: Sequence[Curve], unit: str) -> dict[Configuration, Spent]:
    """The line of each configuration, in the middle of those of its runs that have the unit.

    Responses grow while a policy learns: a run that ended early is compared with the longest one
    where it ended, and goes on as that one does.

    Times drift with the load of a machine, too, and fall as runs that share it end: where tokens
    were counted, rollouts go on to get cheaper only as responses get shorter, and dearer only
    where they do not.
    """
    runs = defaultdict[Configuration, list[tuple[FloatArray, FloatArray]]](list)
    for c in telling(curves, unit):
        spent_K = c.position(unit)
        known = (spent_K > 0) & np.isfinite(spent_K) & (c.rollouts_K > 0)
        if known.any():
            at, spent = np.log10(c.rollouts_K[known]), np.log10(spent_K[known])
            runs[c.configuration].append((at, spent))
    found = {c: _middle(each) for c, each in runs.items()}
    # Fewer updates than count as a run say what a rollout takes, not where that goes.
    short = {c for c, line in found.items()
             if line.end * (1 - 1 / LAST) < MIN_STEPS * c.batch_size}  # fmt: skip
    if told := [line.growth for c, line in found.items() if c not in short]:
        usual = float(np.median(told))
        found |= {c: replace(found[c], now=found[c].level, growth=usual) for c in short}
    said = lines(curves, "tokens") if unit == "gpu-hours" else {}
    return {c: replace(line, now=line.level, growth=0.0)
            if c in said and (line.growth < 0) != (said[c].growth < 0) else line
            for c, line in found.items()}  # fmt: skip


def _middle(runs: Sequence[tuple[FloatArray, FloatArray]]) -> Spent:
    at_U = np.unique(np.concatenate([at for at, _ in runs]))
    longest = max(runs, key=lambda run: float(run[0][-1]))
    each_RU = [_as_the_longest(at_U, run, longest) for run in runs]
    # What a run says that ends early is of an earlier policy.
    ends = [_end(*run) for run in runs if run[0][-1] >= at_U[-1] - np.log10(2)]
    now, growth, level = np.median(ends, axis=0)
    return Spent(at_U, at_U + np.median(each_RU, axis=0), float(now), float(growth), float(level),
                 tuple(float(10 ** each_U[-1]) for each_U in each_RU))  # fmt: skip


def _as_the_longest(
    at_U: FloatArray, run: tuple[FloatArray, FloatArray], longest: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """What a rollout of a run takes; beyond its end it goes on as the longest run does."""
    (at, spent), (to, whole) = run, longest
    more = np.interp(at_U, to, whole - to) - np.interp(at[-1], to, whole - to)
    return np.asarray(np.interp(at_U, at, spent - at) + np.where(at_U > at[-1], more, 0.0))


def _end(at_K: FloatArray, spent_K: FloatArray) -> tuple[float, float, float]:
    """`now`, `growth` and `level` of a run; of a power, two parts of one ratio tell all exactly."""
    begins = max(at_K[-1] - np.log10(LAST), at_K[0])
    half = (at_K[-1] - begins) / 2
    if half < np.log10(LAST) / 4 or (at_K > begins).sum() < 2:
        return 1.0, 0.0, 1.0
    first, middle = 10 ** (np.interp([begins, begins + half], at_K, spent_K) - spent_K[-1])
    early, late = middle - first, 1 - middle
    if not early > 0 or not late > 0:
        return 1.0, 0.0, 1.0
    growth = float(np.clip(np.log10(late / early) / half - 1, _LEAST, _MOST))
    growth = 0.0 if abs(growth) < _SAME else growth
    level = late / (1 - 10**-half)
    return late * (1 + growth) / (1 - 10 ** (-half * (1 + growth))), growth, level


def filled(
    curves: Sequence[Curve], unit: str, by: Sequence[Curve] | None = None
) -> list[Curve]:
    """Curves of which a run that did not count a unit took what others of its (B_p, n) did.

    Args:
        curves: of a sweep.
        unit: rollouts, which all count, tokens or gpu-hours.
        by: whose lines tell; None: their own. What none of them counted stays unknown.
    """
    lacking = [c for c in curves if not counts(c, unit)]
    found = lines(curves if by is None else by, unit) if lacking else {}

    def took(c: Curve) -> FloatArray | None:
        if c.configuration not in found:
            return None
        at_K = np.log10(np.maximum(c.rollouts_K, 1e-300))
        return np.asarray(np.where(c.rollouts_K > 0, 10 ** found[c.configuration].of(at_K), 0.0))

    name = f"{unit.replace('-', '_')}_K"
    return [c if counts(c, unit) else c.replace(**{name: took(c)}) for c in curves]


def counts(c: Curve, unit: str) -> bool:
    """Whether a run counted a unit: zeros, and a count that breaks off, are none."""
    spent_K = c.spent(unit)
    if spent_K is None or unit == "rollouts" or not c.rollouts_K[-1] > 0:
        return spent_K is not None
    return bool(0 < spent_K[-1] < np.inf)


def telling(curves: Sequence[Curve], unit: str) -> list[Curve]:
    """Runs that say what a rollout takes of a unit.

    One that broke off before it counts as a run says it only where no other does: its first
    updates, in which a trainer warms up, are most of its time.
    """
    those = [(c, c.rollouts_K[-1] >= MIN_STEPS * c.configuration.batch_size)
             for c in curves if counts(c, unit) and c.rollouts_K[-1] > 0]  # fmt: skip
    known = {c.configuration for c, is_run in those if is_run}
    return [c for c, is_run in those if is_run or c.configuration not in known]


def solved(takes: Callable[[float], float], amount: float, near: float) -> float:
    """The rollouts that take an amount, where more of them take more, within `_WIDE` of some."""
    low, high = (math.log10(max(near, 1e-300)) + side for side in (-_WIDE, _WIDE))
    for _ in range(_HALVED):
        middle = (low + high) / 2
        low, high = (middle, high) if takes(10**middle) <= amount else (low, middle)
    return float(10**low)


def apart(low: float | None, high: float | None) -> bool:
    """Whether the two ends of a cost are worth telling apart."""
    return bool(low and high and high > APART * low)


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
