"""The scale of scores: decided here, for tables and logs alike.

Scores lie in 0..1 unless a range is declared; percent they are where both their name and their
values say so. A declared range is mapped to 0..1, and a score outside it is refused with the range
that the data have.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.values.imported import ImportedRun, UnclearError, distinct

PLAIN = (0.0, 1.0)
MOST_ROLLOUTS = 1e15  # a float counts whole ones up to 9e15; no run draws a thousandth of it
PERCENT = re.compile(r"%|(?<![a-z])(?:percent(?:age)?|pct|prozent)(?![a-z])", re.I)
_SCORE = (r"\b(?:acc|accuracy|scores?|solved?|success|pass|correct|exact|genauigkeit|gel\w+st)"
          r"(?![a-z])")  # fmt: skip
# a title says it of its scores, not of what else has a percentage: accuracy in %, % correct
TITLED = re.compile(
    rf"(?:{_SCORE}[^;:]*)(?<![0-9])(?<![0-9] )(?:%|\b(?:percent|pct|prozent)\b)(?! ?of\b)|"
    rf"(?<![0-9])(?<![0-9] )(?:%|\bpercent) {_SCORE}", re.I,
)
_ROOM = 1e-9  # of the range: 1.0000000001 is a sum of floats
_ALIKE = 10.0  # times: percent are 100 times shares; scores before training differ by less


def check_range(score_range: tuple[float, float]) -> None:
    """Refuse a range that is none.

    Raises:
        InputError: unless low < high, both finite.
    """
    low, high = score_range
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(
            f"`low < high` must hold for the range of scores, but got {low:g} {high:g}; "
            "give --range LOW HIGH."
        )


def of_errors(errors: NDArray[np.float64], where: str) -> NDArray[np.float64]:
    """The scores that shares of errors stand for; InputError beyond 0..1, as percentages are."""
    if (outside := errors[(errors < 0) | (errors > 1)]).size:
        raise InputError(
            f"{where}: errors must be shares in 0..1, but one is {outside[0]:g}; write shares."
        )
    return 1 - errors


def are_percent(name: str, score: NDArray[np.float64], score_range: tuple[float, float]) -> bool:
    """Whether a name says percent, the scores under it cannot be shares, and no range is given.

    >>> are_percent("acc (%)", np.array([33.9, np.nan]), PLAIN)
    True
    """
    seen = score[np.isfinite(score)]
    said = score_range == PLAIN and PERCENT.search(name) is not None and seen.size > 0
    return bool(said and seen.min() >= 0 and 1 < seen.max() <= 100)


def require_range(
    name: str, score: NDArray[np.float64], score_range: tuple[float, float], path: str
) -> None:
    """Refuse scores whose name says percent and whose values could be shares as well.

    Args:
        name: of the column or key that holds them.
        score: as they stand there.

    Raises:
        InputError: unless a range was given.
    """
    seen = score[np.isfinite(score)]
    if score_range == PLAIN and PERCENT.search(name) and seen.size:
        raise InputError(
            f"{path}: {name!r} says percent, but the range of scores is 0..1 (they go from "
            f"{seen.min():.4g} to {seen.max():.4g}); add --range 0 100, or name it otherwise if "
            "they are shares.", options=("--range", "0", "100"), condition="its scores are percent",
        )


def rescaled(curves: Sequence[Curve], score_range: tuple[float, float], path: str) -> list[Curve]:
    """Curves of a log with their scores mapped from a range to 0..1.

    Raises:
        InputError: a score outside the range, or two units under one range.
    """
    check_range(score_range)
    low, high = score_range
    spans = [(float(c.score_K.min()), float(c.score_K.max())) for c in curves if c.score_K.size]
    if not spans:
        return list(curves)
    seen = min(s[0] for s in spans), max(s[1] for s in spans)
    room = _ROOM * (high - low)
    if seen[0] < low - room or seen[1] > high + room:
        bad = next(c for c in curves if c.score_K.size and not (
            c.score_K.min() >= low - room and c.score_K.max() <= high + room))
        percent = seen[0] >= 0 and 10 < seen[1] <= 100  # below, rewards of 10 are as likely
        every = np.concatenate([c.score_K for c in curves])
        odd = distinct(every[(every < low - room) | (every > high + room)])
        drop = ""
        if odd.size == 1 and np.mean(every == odd[0]) > 2 / len(every):  # a word for "none"
            drop = f"; if {odd[0]:g} stands for no score, drop those rows"
        raise InputError(
            f"{path}: scores must lie in {low:g}..{high:g}, but {bad.metric or 'score'} goes from "
            f"{seen[0]:.4g} to {seen[1]:.4g} (the first such run: {bad.run!r}); give the range "
            f"that they can have: --range LOW HIGH"
            f"{', for percent --range 0 100' if percent else ''}{drop}.",
            options=("--range", "0", "100") if percent else ("--range", "LOW", "HIGH"),
            condition="the scores are percent" if percent else "",
            trial=("--range", *(f"{v!r}" for v in (min(seen[0], low), max(seen[1], high)))),
        )
    if score_range == PLAIN:
        return [c.replace(score_K=np.clip(c.score_K, 0.0, 1.0)) for c in curves]
    # a score that is no share of successes has no binomial noise, unless it is one in percent
    scaled = [
        c.replace(
            score_K=np.clip((c.score_K - low) / (high - low), 0.0, 1.0),
            trials=c.trials if low == 0 else None, score_range=score_range,
        )
        for c in curves
    ]
    refuse_two_units(scaled, path)
    if low == 0 and high >= 100 and 0 < seen[1] <= 1:
        raise InputError(
            f"{path}: scores must be of the range that is given, but none exceeds {seen[1]:.4g} "
            f"under 0..{high:g}; drop --range if they are fractions."
        )
    return scaled


def refuse_two_units(curves: Sequence[Curve], path: str) -> None:
    """Fractions beside percent: one run lies below 1 where another goes far beyond it.

    Runs of a sweep begin with one model: those that begin alike have one unit.

    Args:
        curves: scaled to 0..1, each with the range that it was scaled from.
        path: for the message.

    Raises:
        InputError: names a run of each.
    """
    tops = [(c, c.score_range[1] * float(np.nanmax(c.score_K))) for c in curves
            if c.score_K.size and c.score_range[0] == 0 and c.score_range[1] >= 10]  # fmt: skip
    tops = [(c, top) for c, top in tops if top > 0]  # a run that never succeeds has either unit
    small = [(c, top) for c, top in tops if top <= 1 + _ROOM]
    large = [(c, top) for c, top in tops if top > c.score_range[1] / 10]
    begins = max((c.score_range[1] * float(c.score_K[0]) for c, _ in large), default=0.0)
    small = [(c, top) for c, top in small if _ALIKE * c.score_range[1] * c.score_K[0] < begins]
    if small and large:
        (one, low), (other, high) = small[0], large[0]
        raise InputError(
            f"{path}: one range must hold for all runs, but {_called(one)} stays below {low:.4g} "
            f"and {_called(other)} reaches {high:.4g} under 0..{other.score_range[1]:g}; multiply "
            "the one or divide the other, or write a percent sign into its cells."
        )


def refuse_percent(runs: Sequence[ImportedRun]) -> None:
    """Ask about held-out means of some runs that may be percent where the others' are shares.

    Raises:
        UnclearError: with the setting that divides those.
    """
    spans = defaultdict[str, dict[str, NDArray[np.float64]]](dict)
    for run in runs:
        for s in run.series:
            if s.split != "train" and s.metric.kind == "avg" and s.score_K.size > 2:
                spans[s.metric.label][run.name] = s.score_K
    for label, of in spans.items():
        ends = {name: (score_K.min(), score_K.max()) for name, score_K in of.items()}
        shares = [name for name, (low, high) in ends.items() if low >= 0 < high <= 1]
        large = [name for name, (low, high) in ends.items() if low > 1 and 10 < high <= 100]
        if shares and large and len(shares) + len(large) == len(of):
            first = of[large[0]]
            names = ",".join(large)
            raise UnclearError(
                f"scores of one metric must have one unit, but {label} of {large[0]!r} goes from "
                f"{first.min():.4g} to {first.max():.4g} where that of {shares[0]!r} stays in "
                f"0..1; add --set percent={names} if that is percent, else --range LOW HIGH.",
                options=("--set", f"percent={names}"),
                condition=f"the scores of {large[0]!r} are percent",
            )


def _called(c: Curve) -> str:
    return repr(c.run) if c.run else f"the run of n = {c.rollouts_per_problem}"
