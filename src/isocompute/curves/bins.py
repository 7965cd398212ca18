"""Learning curves -> best-so-far values per bin of log10 C -> monotone sigmoid fits.

Shape legend: R runs of one configuration, X bins of log10 x, K evaluations of one run.

A run's evaluations are averaged around evenly spaced points of log10 C before anything is
compared, each shared between its two nearest points, so that nothing hangs on where a bin
begins. Keeping
only the points that break a record, as the method says, keeps the maxima of noise: on a plateau
of ten evaluations with noise s the kept level is about 1.5 s too high, and the more often a
configuration was looked at, the higher. So a bin is dropped only where it lies below an earlier
one by more than noise can explain; the runs' best-so-far value stands in its place. The strict
records are found too, drawn and counted.
Source: arXiv 2603.12151, section 4 and appendix C (records, sigmoid); the rest is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Select = Literal["best", "final"]

# Eight per doubling of C: narrow, because the fit averages the noise and a bin only adds bias
# (a curve of slope 8 per decade bends by less than 0.1% of its rise inside one).
BIN_WIDTH = float(np.log10(2)) / 8
WINDOW = 0.25  # decades averaged before a drop is judged: one evaluation alone shows little
# A window below an earlier one by more than this many standard errors of the difference is
# dominated. The paper's rule is 0 on single evaluations, which keeps maxima of noise; 3 would
# average a slow decline in. At 1.25 the two biases balance on planted sweeps, see docs/laws.md.
DOMINATED_Z = 1.25
# ... and only in a configuration where some window lies below an earlier one by this many: among
# some sixty pairs of windows that noise alone parts, the largest difference often exceeds 1.25.
DECLINE_Z = 2.0
# A configuration whose score has fallen by this many to the end is fitted up to its peak
# and held there: a sigmoid through a rise and the level that stands in for a fall fits neither.
FALLEN_Z = 4.0
COLLAPSED_Z = 5.0  # a run is called broken on no less
MIN_POINTS = 5  # a 4-parameter curve and one degree of freedom
_ROUNDING = 1e-9  # scores that differ by less are equal: flat runs have no noise
_MIN_WEIGHT = 0.25  # of one evaluation: less is the tail of a neighbour


@dataclass(frozen=True, kw_only=True)
class BinnedRuns:
    """All runs of one configuration on the common bins.

    Args:
        problems_per_batch, rollouts_per_problem: the configuration.
        x_X: mean log10 x of the evaluations in each bin (the centre of an empty one).
        best_RX: best-so-far value per run and bin, NaN where the run has no data.
        mean_RX: mean score of the evaluations in the bin.
        variance_RX: variance of `best_RX` from evaluation noise alone.
        dominated_RX: bins whose own mean was dropped.
        collapsed_R: runs that broke for good while their siblings did not; their bins from
            there on are NaN.
        record_rollouts, record_score: the strict record-breaking bins, all runs together.
        held_from: log10 x of the last bin before scores fall to the end; infinity if they do not.
        n_points: evaluations.
    """

    problems_per_batch: int
    rollouts_per_problem: int
    runs: tuple[Curve, ...]
    x_X: FloatArray
    best_RX: FloatArray
    mean_RX: FloatArray
    variance_RX: FloatArray
    dominated_RX: BoolArray
    collapsed_R: BoolArray
    record_rollouts: FloatArray
    record_score: FloatArray
    held_from: float

    @property
    def n_points(self) -> int:
        """Evaluations of all runs."""
        return sum(len(c.score_K) for c in self.runs)

    @property
    def batch_size(self) -> int:
        """B = B_p * n."""
        return self.problems_per_batch * self.rollouts_per_problem


class Bins(NamedTuple):
    """Points of log10 x at whole multiples of the width, so that they never move."""

    first: int
    n: int
    width: float

    @property
    def centre_X(self) -> FloatArray:
        """log10 x at each point."""
        return np.asarray((self.first + np.arange(self.n)) * self.width, dtype=np.float64)

    def shares(self, x: FloatArray) -> tuple[tuple[NDArray[np.int64], FloatArray], ...]:
        """The two points that each log10 x is shared between, with the shares."""
        place = x / self.width - self.first
        left = np.floor(place + 1e-9).astype(np.int64)
        right_share = np.clip(place - left, 0.0, 1.0)
        return (left, 1.0 - right_share), (left + 1, right_share)


def position(curve: Curve, unit: str = "rollouts") -> FloatArray:
    """Compute on the horizontal axis: cumulative rollouts or tokens, shape (K,)."""
    if unit == "tokens":
        assert curve.tokens_K is not None  # the caller has refused curves without tokens
        return curve.tokens_K
    return curve.rollouts_K


def common_bins(
    curves: Sequence[Curve], *, width: float = BIN_WIDTH, unit: str = "rollouts"
) -> Bins:
    """Bins that hold every evaluation after step 0."""
    xs = [position(c, unit) for c in curves]
    low = min(float(x[x > 0].min()) for x in xs if (x > 0).any())
    high = max(float(x.max()) for x in xs if len(x))
    first = int(np.floor(np.log10(low) / width + 1e-9))
    last = int(np.floor(np.log10(high) / width + 1e-9))
    return Bins(first, last - first + 2, width)


def separate_points(one: BinnedRuns, bins: Bins, unit: str = "rollouts") -> int:
    """Budgets at which a configuration was evaluated, those within one bin counted once.

    Not the bins that hold data: an evaluation between two of them fills both.
    """
    x = np.concatenate([position(c, unit) for c in one.runs])
    nearest = np.rint(np.log10(x[x > 0]) / bins.width).astype(np.int64) - bins.first
    has_RN = np.isfinite(one.best_RX[:, np.unique(nearest)])
    return int(has_RN.any(axis=0).sum())


def noise_scale(curves: Sequence[Curve], *, unit: str = "rollouts") -> float:
    """Evaluation noise as phi, with variance phi * p (1 - p) for one evaluation of mean p.

    Each evaluation is compared with the line through its two neighbours in log C, which takes
    the trend out; the median keeps collapses and glitches from counting as noise. A binomial
    evaluation of m independent samples has phi = 1/m.
    Source: Gasser, Sroka and Jennen-Steinmetz, Biometrika 73 (1986), 625-633.

    Returns:
        phi >= 0; 0 when no run has three evaluations at different positions.
    """
    ratios = []
    for curve in curves:
        x = position(curve, unit)
        y = curve.score_K[x > 0]
        x = np.log10(x[x > 0])
        if len(x) < 3:
            continue
        gap = x[2:] - x[:-2]
        a = np.where(gap > 0, (x[2:] - x[1:-1]) / np.where(gap > 0, gap, 1.0), 0.5)
        residual = y[1:-1] - a * y[:-2] - (1 - a) * y[2:]
        p = np.clip((y[:-2] + y[1:-1] + y[2:]) / 3, 0.002, 0.998)
        ratios.append(np.abs(residual) / np.sqrt((1 + a**2 + (1 - a) ** 2) * p * (1 - p)))
    if not ratios:
        return 0.0
    return float((np.median(np.concatenate(ratios)) / 0.6745) ** 2)


def bin_runs(
    curves: Sequence[Curve],
    bins: Bins,
    phi: float,
    *,
    unit: str = "rollouts",
    strict_records: bool = False,
    select: Select = "best",
) -> BinnedRuns:
    """Bin the runs of one configuration and find what an earlier checkpoint dominates.

    Args:
        curves: runs of one (B_p, n).
        bins: the common bins.
        phi: evaluation noise (`noise_scale`).
        strict_records: the paper's rule to the letter: every bin that does not break the
            record is dominated. For the sensitivity table.
        select: which checkpoint of a run counts at a budget: the best so far, or the one there
            ("final": nothing is dominated, and no run is left out for having broken).
    """
    x_X, mean, count = _averages(curves, bins, unit)
    p = np.clip(np.where(count > 0, mean, 0.5), 0.002, 0.998)
    variance = np.where(count > 0, phi * p * (1 - p) / np.where(count > 0, count, 1.0), np.nan)
    half = round(WINDOW / 2 / bins.width)
    start = [c.score_K[position(c, unit) == 0] for c in curves]
    first = np.array([s.mean() if len(s) else np.nan for s in start])
    fault: BoolArray = np.zeros(mean.shape, dtype=np.bool_)
    if select == "best":
        fault = _collapses(mean, variance, count, half, first)
    mean, variance = np.where(fault, np.nan, mean), np.where(fault, np.nan, variance)
    count = np.where(fault, 0.0, count)
    peak: int | None = None  # no checkpoint stands in for a later one
    if select == "final":
        best, level_variance, dominated = mean.copy(), variance.copy(), np.zeros_like(fault)
    elif strict_records:
        best, level_variance, dominated = _strict_records(mean, variance)
    else:
        best, level_variance, dominated, peak = _best_so_far(mean, variance, count, half)
    with np.errstate(invalid="ignore"):
        before = np.concatenate([np.full((len(mean), 1), -np.inf), mean[:, :-1]], axis=1)
        record = (count > 0) & (mean > np.fmax.accumulate(before, axis=1))
    rows, columns = np.nonzero(record)
    return BinnedRuns(
        problems_per_batch=curves[0].problems_per_batch,
        rollouts_per_problem=curves[0].rollouts_per_problem,
        runs=tuple(curves),
        x_X=x_X,
        best_RX=best,
        mean_RX=mean,
        variance_RX=level_variance,
        dominated_RX=dominated,
        collapsed_R=np.asarray(fault.any(axis=1)),
        record_rollouts=10 ** x_X[columns],
        record_score=mean[rows, columns],
        held_from=np.inf if peak is None else float(x_X[peak]),
    )


def _averages(
    curves: Sequence[Curve], bins: Bins, unit: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Position of each bin (X,), and per run its mean score and number of evaluations (R, X).

    An evaluation is shared between two points, so the numbers add up to the evaluations: no
    score counts twice in a fit.
    """
    R, X = len(curves), bins.n
    total, weight, where = (np.zeros((R, X)) for _ in range(3))
    for r, curve in enumerate(curves):
        x = position(curve, unit)
        y, x = curve.score_K[x > 0], np.log10(x[x > 0])
        for index, share in bins.shares(x):
            total[r] += np.bincount(index, share * y, X)
            weight[r] += np.bincount(index, share, X)
            where[r] += np.bincount(index, share * x, X)
    has = weight >= _MIN_WEIGHT
    count = np.where(has, weight, 0.0)
    mean = np.where(has, total / np.where(has, weight, 1.0), np.nan)
    seen = count.sum(axis=0)
    x_X = np.where(has, where, 0.0).sum(axis=0) / np.where(seen > 0, seen, 1.0)
    return np.where(seen > 0, x_X, bins.centre_X), mean, count


def _windows(
    y: FloatArray, v: FloatArray, n: FloatArray, known: NDArray[np.int64], half: int
) -> tuple[FloatArray, FloatArray]:
    """Averages over `half` bins to either side, and their variances."""
    weight = (np.abs(known[:, None] - known[None]) <= half) * n
    weight = weight / weight.sum(axis=1, keepdims=True)
    return weight @ y, weight**2 @ v


def _collapses(
    mean_RX: FloatArray,
    variance_RX: FloatArray,
    count_RX: FloatArray,
    half: int,
    start_R: FloatArray,
) -> BoolArray:
    """Bins from which on a run has lost for good half of what it had gained, its siblings not.

    Such a run broke; what it scores afterwards says nothing about its configuration. Where all
    runs of a configuration do so (or the only one), it is the configuration's own doing, and
    the best checkpoint so far stands.
    """
    fault: BoolArray = np.zeros(mean_RX.shape, dtype=np.bool_)
    if len(mean_RX) == 1:
        return fault
    for r in range(len(mean_RX)):
        known = np.flatnonzero(count_RX[r] > 0)
        if len(known) < 2:
            continue
        y, spread = _windows(
            mean_RX[r, known], variance_RX[r, known], count_RX[r, known], known, half
        )
        peak = np.maximum.accumulate(y)
        first = start_R[r] if np.isfinite(start_R[r]) else y[0]
        limit = peak - np.maximum((peak - first) / 2, COLLAPSED_Z * np.sqrt(spread + spread.max()))
        lost = np.flatnonzero(y >= limit - _ROUNDING)[-1] + 1
        if lost < len(known):
            # The window sees the drop late: from the last bin that still holds the level on.
            holds = np.flatnonzero(mean_RX[r, known[: lost + half]] >= limit[min(lost, len(y) - 1)])
            fault[r, known[holds[-1] + 1 if len(holds) else lost :]] = True
    if fault.any(axis=1).all():
        fault[:] = False
    return fault


def _strict_records(
    mean_RX: FloatArray, variance_RX: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The paper's rule: a bin that does not break the run's record gives way to the record."""
    best, variance = mean_RX.copy(), variance_RX.copy()
    dominated = np.zeros(mean_RX.shape, dtype=bool)
    for r, y in enumerate(mean_RX):
        known = np.flatnonzero(np.isfinite(y))
        top = known[0] if len(known) else 0
        for i in known[1:]:
            if y[i] > y[top]:
                top = i
            else:
                dominated[r, i], best[r, i], variance[r, i] = True, y[top], variance[r, top]
    return best, variance, dominated


def _best_so_far(
    mean_RX: FloatArray, variance_RX: FloatArray, count_RX: FloatArray, half: int
) -> tuple[FloatArray, FloatArray, BoolArray, int | None]:
    """Replace dominated bins by the level that the runs had reached before.

    Also the last bin before a fall that lasts to the end and is beyond doubt, if there is one.

    Whether a bin is dominated is judged on all runs together (a decline that seeds share is
    seen sooner, and the maxima of one run's noise count for less), in windows.
    """
    best, variance = mean_RX.copy(), variance_RX.copy()
    dominated = np.zeros(mean_RX.shape, dtype=bool)
    n = count_RX.sum(axis=0)
    known = np.flatnonzero(n > 0)
    share = count_RX[:, known] / n[known]
    y = np.where(share > 0, share * mean_RX[:, known], 0.0).sum(axis=0)
    v = np.where(share > 0, share**2 * variance_RX[:, known], 0.0).sum(axis=0)
    smooth, spread = _windows(y, v, n[known], known, half)
    gap = smooth[None] - smooth[:, None] - _ROUNDING
    error = np.sqrt(spread[None] + spread[:, None])
    later = known[:, None] > known[None]
    if not np.any((gap > DECLINE_Z * error) & later):
        return best, variance, dominated, None
    dropped: NDArray[np.bool_] = np.any((gap > DOMINATED_Z * error) & later, axis=1)
    for i in np.flatnonzero(dropped):
        # The level: all earlier bins that noise cannot tell from the top one, averaged,
        # because the top one alone is a maximum of noise.
        before = np.flatnonzero(~dropped[:i])
        top = before[smooth[before].argmax()]
        within = DOMINATED_Z * np.sqrt(spread[before] + spread[top])
        level = known[before[smooth[before] >= smooth[top] - within]]
        for r in np.flatnonzero((count_RX[:, known[i]] > 0) & (count_RX[:, level] > 0).any(axis=1)):
            weight = count_RX[r, level] / count_RX[r, level].sum()
            use = level[weight > 0]
            best[r, known[i]] = weight[weight > 0] @ mean_RX[r, use]
            variance[r, known[i]] = weight[weight > 0] ** 2 @ variance_RX[r, use]
            dominated[r, known[i]] = True
    kept = np.flatnonzero(~dropped)
    fallen = np.any(((gap > FALLEN_Z * error) & later)[kept[-1] + 1 :])
    enough = len(kept) >= 2 * MIN_POINTS  # bins, to fit a curve up to there: a point may fill two
    return best, variance, dominated, int(known[kept[-1]]) if fallen and enough else None
