"""From an interval to a verdict, by rules that know no claim.

Every claim has a smallest effect of interest, in the unit of its statistic:

- `above`: the effect is there. Holds where the whole interval lies above 0 and reaches the smallest
  effect; does not where all of it lies below the smallest effect.
- `within`: no difference worth its name. Holds where the interval lies inside plus or minus the
  smallest effect; does not where it lies outside.
- `at_most`: not worse than that. Holds where the interval lies below it; does not where above.

Everything else is undecided.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

Kind = Literal["above", "within", "at_most"]
Verdict = Literal["holds", "does not", "undecided"]

MOST_SEEDS = 1000  # beyond this many the estimate lies on the line between two verdicts
LEAST_SEEDS = 3  # with fewer, how far seeds lie apart is hardly known


class Estimate(NamedTuple):
    """A number with its 95% interval; infinite where the data give a bound only."""

    value: float
    low: float
    high: float
    seeds: int  # runs of the configuration that has fewest
    rollouts: float = 0.0  # spent by all runs behind it
    note: str = ""
    add: tuple[int, ...] = ()  # n beyond those tested, without which n* is a bound


def verdict(found: Estimate, kind: Kind, smallest: float) -> Verdict:
    """What an interval says of a claim.

    >>> verdict(Estimate(3.0, 1.0, 5.0, 3), "above", 2.0)
    'holds'
    >>> verdict(Estimate(0.5, -0.5, 1.5, 3), "above", 2.0)
    'does not'
    """
    if math.isnan(found.value):
        return "undecided"
    if kind == "above":
        if found.low > 0 and found.high >= smallest:
            return "holds"
        return "does not" if found.high < smallest else "undecided"
    if kind == "within":
        if found.low >= -smallest and found.high <= smallest:
            return "holds"
        return "does not" if found.low > smallest or found.high < -smallest else "undecided"
    if found.high <= smallest:
        return "holds"
    return "does not" if found.low > smallest else "undecided"


def seeds_to_decide(found: Estimate, kind: Kind, smallest: float) -> int | None:
    """Seeds per configuration at which an interval that shrinks by their root would decide.

    None where seeds alone would not, or more than 1,000: the interval is a bound, or the estimate
    lies on the line between two verdicts.
    """
    half = (found.high - found.low) / 2
    if not math.isfinite(half) or not math.isfinite(found.value):
        return None
    if kind == "above":  # above 0, or below the smallest effect: whichever needs less
        distance = max(found.value, smallest - found.value)
    elif kind == "within":
        distance = abs(smallest - abs(found.value))
    else:
        distance = abs(smallest - found.value)
    if distance <= 0:
        return None
    seeds = math.ceil(found.seeds * (half / distance) ** 2)
    return max(seeds, found.seeds + 1, LEAST_SEEDS) if seeds <= MOST_SEEDS else None
