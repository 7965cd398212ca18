"""Of several notices of a fit or plan the one reason that is named, and the level it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from isocompute.domain import Notice, ordered

# Of several cautions the one reason that is named: these first, those only where there is none.
_WEIGHTIEST = {
    "steps_assumed": -2.0,  # of it hangs every number
    "settings_follow_n": -1.95,  # n is not what is compared
    "never_compared": -1.92,
    **dict.fromkeys(("one_or_two_n", "law_of_another_model", "split_untested"), -1.9),
    "n_not_told_apart": -1.75,  # then the answer itself is open
    **dict.fromkeys(("extrapolated", "extrapolated_down"), -1.0),
}
_LIGHTEST = ("bp_untested", "anchor_assumed", "one_rate")
# So many times beyond the budgets compared, and the share of plans of simulated sweeps whose 95%
# interval held there (`benchmarks/far_out.py`: 0.91 at 10 times, 0.90 at 30, 0.80 at 60 and 100).
HELD = ((10.0, ""), (30.0, "9 of 10"), (100.0, "4 of 5"))


def by_weight(
    notices: Sequence[Notice], times: float = 1.0, *, fell: bool = False
) -> list[Notice]:
    """By level, and within a level what bears most on the choice first.

    Args:
        times: how far it lies beyond the data; where nobody checked, that is the graver reason.
        fell: most of what was trained fell, and the plan goes on: then that is.
    """
    weight = {**_WEIGHTIEST, **dict.fromkeys(_LIGHTEST, 1)}
    if times > HELD[-1][0]:
        weight["extrapolated"] = -1.95
    if fell:
        weight["falls_after_peak"] = -1.8
    return ordered(sorted(notices, key=lambda one: weight.get(one.code, 0)))


def trust(times: float) -> str:
    """What intervals so far beyond the data are worth, to go on a sentence."""
    share = next((share for most, share in HELD if times <= most), None)
    if share is None:
        return "; intervals so far out were never checked"
    if not share:
        return "; its intervals assume that the trend continues"
    return f", where intervals held in {share} simulated sweeps"


class Verdict(NamedTuple):
    """How far a fit may be relied on, with the one reason that weighs most."""

    level: Literal["ok", "caution", "stop"]
    reason: str


def verdict_of(notices: Sequence[Notice]) -> Verdict:
    """The level of the gravest notice, and its text."""
    for one in ordered(notices):
        if one.level != "note":
            return Verdict(one.level, one.text)
    return Verdict("ok", "")
