"""What the reward of a run did since its start, told from the noise of its batches.

A batch's reward lies between bounds, so its variance ends where its mean meets one: it is
phi (m - low) (high - m), phi m (1 - m) for a success rate. One phi for the whole run, from
neighbouring steps; ten rewards of a hard set, of which most are 0, know no variance of their own.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from isocompute.health.rules import DOUBT, LEAST_CHANGE, SURE


class Rewards:
    """The rewards of one run so far; a step costs one comparison by octave of its number.

    Args:
        window: steps of the shortest mean.

    >>> rewards = Rewards(10)
    >>> for reward in [0.5] * 20 + [0.1] * 20:
    ...     rewards.add(reward)
    >>> [round(mean, 3) for mean in rewards.lost(0.5)]
    [0.1, 0.5]
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._sum_K = [0.0]  # of the rewards up to each step
        self._best: list[float] = []  # best mean over window, 2 window, 4 window, ... steps
        self._low, self._high = 0.0, 1.0  # wider where a reward is no rate
        self._last = math.nan
        # Of neighbours a, b, summed: (a - b)^2 / 2, their number, (a + b) / 2 and a b.
        self._noise = self._pairs = self._mean = self._square = 0.0

    def add(self, reward: float) -> None:
        """Take the next step's reward."""
        window, steps, last = self._window, len(self._sum_K), self._last
        self._sum_K.append(self._sum_K[-1] + reward)
        self._low, self._high = min(self._low, reward), max(self._high, reward)
        if steps > 1:
            self._noise += (reward - last) ** 2 / 2
            self._pairs += 1
            self._mean += (reward + last) / 2
            self._square += reward * last
        if steps >= window << len(self._best):
            self._best.append(-math.inf)
        for octave, best in enumerate(self._best):
            self._best[octave] = max(best, self._latest(window << octave))
        self._last = reward

    def _latest(self, steps: int) -> float:
        return (self._sum_K[-1] - self._sum_K[-1 - steps]) / steps

    def _error(self, one: float, other: float, steps: int) -> float:
        """Standard error of the difference of two means over so many steps."""
        low, high = self._low, self._high
        room = (low + high) * self._mean - self._square - low * high * self._pairs
        phi = self._noise / room if room > 0 else 0.0
        both = sum(max((m - low) * (high - m), 0.0) for m in (one, other))
        return math.sqrt(phi * both / steps)

    @property
    def gain(self) -> tuple[float, bool]:
        """How far the last quarter of the run lies above the first, and whether it surely does.

        Surely is by 3 standard errors and 0.01.
        """
        steps = len(self._sum_K) - 1
        if steps < self._window:
            return 0.0, False
        part = max(self._window, steps // 4)
        first, last = self._sum_K[part] / part, self._latest(part)
        gain = last - first
        return gain, gain >= max(LEAST_CHANGE, SURE * self._error(first, last, part))

    def lost(self, share: float) -> tuple[float, float] | None:
        """The latest mean and the best before, where it surely is below `share` of that.

        Windows of every length are asked, so that small batches are judged by more steps. Best and
        latest are chosen from N windows, and each of the N new pairs that a window brings is a
        chance to be wrong: with 1 / N^3 of `DOUBT` for each, all together stay near it.
        """
        for octave, best in enumerate(self._best):
            steps = self._window << octave
            now, low = self._latest(steps), self._low
            if now - low < share * (best - low) - 1e-9:
                windows = 2 * len(self._sum_K) / self._window  # of all lengths: 1 + 1/2 + 1/4 ...
                sure = -NormalDist().inv_cdf(DOUBT / windows**3)
                if best - now > sure * self._error(best, now, steps):
                    return now, best
        return None
