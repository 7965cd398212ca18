"""Scores from counts of successes: avg@k, best@k, worst@k.

Arrays in, arrays out. Engines record successes out of `samples` per problem; everything here is
computed from these counts, so a change of metric never needs a rerun.

Shape legend: P problems; C = samples + 1 possible numbers of successes; `...` any axes.

Source: arXiv 2603.12151, section 2. The unbiased form of best@k is that of arXiv 2107.03374,
equation 1. Estimators that resample the k samples with replacement, as some trainers log them, are
biased and must not be mixed with these.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Kind = Literal["avg", "best", "worst"]

_KINDS: dict[str, Kind] = {
    "avg": "avg", "mean": "avg",
    "best": "best", "pass": "best",
    "worst": "worst", "pass^": "worst",
}


class Metric(NamedTuple):
    """A metric by name: `kind`@`k`."""

    kind: Kind
    k: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.k}"


def parse_metric(name: str) -> Metric:
    """`avg@4`, `best@4`, `worst@4` -> Metric; `mean@4`, `pass@4` and `pass^4` are the same three.

    >>> str(parse_metric("pass@8"))
    'best@8'

    Raises:
        InputError: for anything else.
    """
    match = re.fullmatch(r"(avg|mean|best|pass|worst)@([1-9]\d{0,6})|(pass\^)([1-9]\d{0,6})", name)
    if match is None:
        raise InputError(
            "a metric must be avg@k, best@k or worst@k with an integer k >= 1, but got "
            f"{name!r}; write for example avg@4."
        )
    return Metric(_KINDS[match[1] or match[3]], int(match[2] or match[4]))


@lru_cache(maxsize=256)
def _table(kind: Kind, k: int, samples: int) -> FloatArray:
    if samples < 1 or k > samples:
        raise InputError(
            f"`k <= samples` must hold for {kind}@{k}, but got {samples} samples per problem; "
            f"evaluate more samples or ask for {kind}@{max(samples, 1)} at most."
        )
    if kind == "avg":
        table = np.arange(samples + 1) / samples
    else:
        # Exact integers: comb() overflows a float from samples of about 1,000.
        total = math.comb(samples, k)
        worst = [math.comb(c, k) / total for c in range(samples + 1)]
        table = np.array(worst) if kind == "worst" else 1.0 - np.array(worst[::-1])
    table.setflags(write=False)
    return table


def metric_table(samples: int, metric: str | Metric) -> FloatArray:
    """Unbiased estimate of a metric for 0, 1, ..., `samples` successes, shape (C,).

    With c successes of s samples: avg@k = c/s; worst@k = C(c, k) / C(s, k), the share of the
    k-subsets that succeed throughout; best@k = 1 - C(s-c, k) / C(s, k).

    >>> metric_table(4, "best@2").round(4).tolist()
    [0.0, 0.5, 0.8333, 1.0, 1.0]

    Raises:
        InputError: unknown metric, or k above the number of samples.
    """
    parsed = parse_metric(metric) if isinstance(metric, str) else metric
    return _table(parsed.kind, parsed.k, int(samples))


def checked_counts(successes: ArrayLike, samples: ArrayLike) -> tuple[IntArray, IntArray]:
    """Successes and samples as integer arrays of one shape (..., P)."""
    raw, size = np.asarray(successes), np.asarray(samples)
    try:
        counts, sizes = raw.astype(np.int64), size.astype(np.int64)
        whole = bool(np.all(counts == raw) and np.all(sizes == size))
    except (ValueError, TypeError):
        raise InputError(
            "successes and samples must be integers, but got arrays of type "
            f"{raw.dtype} and {size.dtype}; give counts."
        ) from None
    if not whole or counts.ndim == 0 or counts.shape[-1] == 0:
        raise InputError(
            "successes must be whole counts for at least 1 problem, but got "
            f"{raw.dtype} values of shape {raw.shape}; give one count per problem."
        )
    sizes = np.broadcast_to(sizes, counts.shape)
    if np.any(counts < 0) or np.any(counts > sizes):
        at = int(np.argmax((counts < 0) | (counts > sizes)))
        raise InputError(
            f"`0 <= successes <= samples` must hold, but got {counts.flat[at]} of "
            f"{sizes.flat[at]} samples; check the records."
        )
    return counts, sizes


def problem_scores(successes_P: ArrayLike, samples: ArrayLike, metric: str | Metric) -> FloatArray:
    """A metric per problem, shape of `successes_P`; arguments as in `score_from_counts`."""
    counts, sizes = checked_counts(successes_P, samples)
    score = np.empty(counts.shape)
    for size in np.unique(sizes):
        mask = sizes == size
        score[mask] = metric_table(int(size), metric)[counts[mask]]
    return score


@overload
def score_from_counts(successes_P: list[int], samples: int, metric: str | Metric) -> float: ...
@overload
def score_from_counts(
    successes_P: ArrayLike, samples: ArrayLike, metric: str | Metric
) -> float | FloatArray: ...
def score_from_counts(
    successes_P: ArrayLike, samples: ArrayLike, metric: str | Metric
) -> float | FloatArray:
    """Mean of a metric over problems.

    Args:
        successes_P: successes per problem, shape (P,) or (..., P).
        samples: samples per problem, one number or an array that broadcasts to `successes_P`.
        metric: `avg@k`, `best@k` or `worst@k`, k up to the number of samples.

    Returns:
        A float for one set of problems, an array of shape (...) for several.

    >>> score_from_counts([0, 1, 4], 4, "worst@4")
    0.3333333333333333

    Raises:
        InputError: unknown metric, k above the samples, or counts outside 0..samples.
    """
    score = problem_scores(successes_P, samples, metric).mean(axis=-1)
    return float(score) if score.ndim == 0 else score


def score_from_histogram(problems_C: ArrayLike, metric: str | Metric) -> float:
    """The same score from counts of problems by number of successes.

    Args:
        problems_C: number of problems with 0, 1, ..., samples successes; shape (samples + 1,).
        metric: as in `score_from_counts`.

    Raises:
        InputError: no problem, a negative number, or k above the samples.
    """
    problems = np.asarray(problems_C, dtype=np.float64)
    if problems.ndim != 1 or problems.size < 2 or not problems.sum() > 0 or np.any(problems < 0):
        raise InputError(
            "a histogram must hold numbers of problems >= 0 for 0..samples successes, but got "
            f"{problems.tolist()}; give samples + 1 numbers."
        )
    return float(problems @ metric_table(problems.size - 1, metric) / problems.sum())
