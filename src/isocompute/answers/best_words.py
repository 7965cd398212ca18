"""The best n in words: where it lies, and which of those tested does best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from isocompute.domain.text import compact


def trend_only(d: Mapping[str, Any]) -> bool:
    """Whether the choice stands out of the trend over n that the interval speaks of."""
    return any(row["code"] == "outside_interval" for row in d.get("notices") or ())


def best_n_words(d: Mapping[str, Any]) -> str:
    """Where the best n of a plan's budget lies, and which of those tested the plan takes."""
    best, wide = d["rollouts_per_problem_law"], d["rollouts_per_problem_interval"]
    first, last = d.get("law", {}).get("tested") or (0, math.inf)
    low, high = (f"{v:.0f}" for v in wide or (best, best))
    # Where the interval ends with those tested, the truth may lie beyond.
    ends = wide or (best, best)
    fewer, more = 1 < ends[0] < first * 1.01, ends[1] > last * 0.99
    beyond = " or beyond" if fewer and more else " or fewer" * fewer + " or more" * more
    where = low + beyond
    if low != high and more and not fewer:
        where = f"{low} or more"
    elif low != high and fewer and not more:
        where = f"{high} or fewer"
    elif low != high:
        where = f"between {low} and {high}" + ("," + beyond if beyond else "")
    capped = any(one["code"].startswith("capped_by_") and one["code"] != "capped_by_tested_n"
                 for one in d.get("notices") or ())  # fmt: skip
    of, n = "tested and allowed" if capped else "tested", d["rollouts_per_problem"]
    best_is = "is predicted to score best" if (d.get("extrapolation_log10") or 0) > 0 else (
        "scores best")  # fmt: skip
    if trend_only(d):
        return f"Of those {of}, n = {n} {best_is}; by the trend over n the best is {where}."
    if low == high:
        return f"The best n is {where}."
    return f"The best n is {where}; of those {of}, {n} {best_is}."


def n_words(best: Mapping[str, Any]) -> str:
    """The tested n that scores best, and where the best n lies: "64 (8 to 246)".

    The interval alone where it does not hold that n: the trend over n has its peak elsewhere.
    """
    low, high = best.get("interval") or (None, None)
    said = round(best.get("tested_rollouts_per_problem", best["rollouts_per_problem"]))
    if low is None or high is None:
        return compact(said)
    known = " to ".join(dict.fromkeys((compact(round(low)), compact(round(high)))))
    if known == compact(said) or not round(low) <= said <= round(high):
        return known
    return f"{compact(said)} ({known})"


def span_words(values: Sequence[int]) -> str:
    """The smallest and the largest of ascending values: "8 to 512"."""
    return " to ".join(map(str, dict.fromkeys((values[0], values[-1]))))
