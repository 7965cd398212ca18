"""How long no group of a run had anything to learn from, and how improbable that is."""

from __future__ import annotations

import math

from isocompute.health.rules import DOUBT


class Groups:
    """Counts the groups of one run, and those of them that taught.

    >>> groups = Groups()
    >>> for dead in [0.5] * 10 + [1.0] * 20:
    ...     groups.add(dead, 8)
    >>> groups.dead(0.1)
    True
    """

    def __init__(self) -> None:
        self._all = self._taught = 0.0  # before the stretch that lasts
        self._stretch = 0.0  # groups since the last that taught

    def add(self, dead: float | None, groups: float) -> None:
        """Take the next step: the share that taught nothing, and of how many groups."""
        if dead is None:
            return
        self._stretch += groups
        if dead < 1.0:
            self._all += self._stretch
            self._taught += (1 - dead) * groups
            self._stretch = 0.0

    def dead(self, least: float) -> bool:
        """Whether so long a stretch is improbable at the share of groups that taught before.

        That share is known as well as the groups before tell: its distribution is Beta, from one
        group that taught in 1 / `least` before anything was seen, and no share counts as more than
        `least`. Each group that taught began a stretch, which is a chance to be wrong: with 1 / k^2
        of `DOUBT` for the k-th, all together stay near it.

        Args:
            least: share of groups below which a run is warned of.
        """
        taught, other = self._taught + 1, self._all - self._taught + 1 / least - 1
        chance = (
            math.lgamma(other + self._stretch) - math.lgamma(other)
            + math.lgamma(taught + other) - math.lgamma(taught + other + self._stretch)
        )  # fmt: skip
        chance = max(chance, self._stretch * math.log1p(-least))
        return chance < math.log(DOUBT / taught**2)
