"""What NeMo-RL prints: an update is a block of lines, with a headline that says which it is.

Source: NeMo-RL (2026-08), algorithms/grpo.py: `===== Epoch 2/3 =====`, `===== Step 12/58 =====`
of so many in an epoch, `Validation Results:` and `Training Results:` with a line for each number.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEADLINE = re.compile(r"=+ (Epoch|Step) ([0-9]{1,9})/([0-9]{1,9}) =+\s*$")
_PART = re.compile(r"(Validation|Training) Results:\s*$")
_NUMBER = re.compile(r"\s*• ([A-Z][\w ]{2,40}): (\S{1,30})( tokens)?\s*$")
_KEYS = {
    ("Validation", "Accuracy"): "validation/accuracy",
    ("Training", "Avg Reward"): "train/reward",
}


class Block(NamedTuple):
    """A number of a block: its update, its key in a tracker, its text."""

    step: str
    key: str
    value: str


class Blocks:
    """The place in a console that is read line by line."""

    def __init__(self) -> None:
        self._epoch, self._step, self._each = 1, 0, 0
        self._part = ""

    def take(self, text: str) -> Block | None:
        """Take a line; the number in it, if it is one that is read."""
        if "=== " in text and (match := _HEADLINE.search(text)):
            number, of = int(match[2]), int(match[3])
            if match[1] == "Epoch":
                self._epoch = number
            else:
                self._step, self._each = number, of
            self._part = ""
        elif "Results:" in text and (match := _PART.search(text)):
            self._part = match[1]
        match = _NUMBER.match(text) if self._part and "•" in text else None
        key = match and _KEYS.get((self._part, match[1]))
        if match is None or key is None:
            return None
        return Block(str((self._epoch - 1) * self._each + self._step), key, match[2])
