"""What trainers print of an update in several lines: the step stands in another than the score.

Sources: NeMo-RL (2026-08), algorithms/grpo.py: `===== Epoch 2/3 =====`, `===== Step 12/58 =====`
of so many in an epoch, `Validation Results:` and `Training Results:` with a line for each number,
and before the former `Starting validation at step 0...`, of all updates;
prime-rl, orchestrator/orchestrator.py: `Evaluated math500 in 9.00s (Avg@8=0.5, ...)` before the
`Step 20 | ... | Reward: 0.4 |` of the next update, counted from 0 or, since 2026-06, from 1;
AReaL (0d57894), utils/stats_logger.py and printing.py: `Train step 12/80 done.`, of updates done,
above a grid of up to four keys and values in a line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEADLINE = re.compile(r"=+ (Epoch|Step) ([0-9]{1,9})/([0-9]{1,9}) =+\s*$")
_PART = re.compile(r"(Validation|Training) Results:\s*$")
_NUMBER = re.compile(r"\s*• ([A-Z][\w ]{2,40}): (\S{1,30})( tokens)?\s*$")
_VALIDATING = re.compile(r"▶ Starting validation at step ([0-9]{1,9})\.\.\.")
_MARKS = frozenset("=📊•│▶")
_AREAL = re.compile(r"Step [0-9]+/[0-9]+ Train step ([0-9]{1,9})/[0-9]{1,9} done\.")
_NONE: list[Block] = []
_PRIME = "prime-rl-console"
_KEYS = {
    ("Validation", "Accuracy"): "validation/accuracy",
    ("Training", "Avg Reward"): "train/reward",
}


_EVALUATED = re.compile(r"Evaluated (\S{1,100}) in [0-9.]+s \(Avg@([0-9]{1,6})=([0-9.]{1,20})[,)]")
_DONE = re.compile(r"Step ([0-9]{1,9}) \| Time: .*?\| Reward: (-?[0-9.]{1,20})")


class Block(NamedTuple):
    """A number of a block: its trainer, its update, its key in a tracker, its text."""

    source: str
    step: str
    key: str
    value: str


class Blocks:
    """The place in a console that is read line by line."""

    def __init__(self) -> None:
        self._epoch, self._step, self._each = 1, 0, 0
        self._at: int | None = None  # the update that a validation is said to be of
        self._part = ""
        self._first: int | None = None  # the number of the first update of prime-rl's log
        self._done = 0
        self._trained: int | None = None  # the update of AReaL's last grid
        self._held: list[tuple[str, str]] = []  # evaluations that no update has followed

    def _of_prime(self, text: str) -> list[Block]:
        """The numbers of prime-rl: evaluations stand behind the updates that are done."""
        if "Evaluated " in text and (match := _EVALUATED.search(text)):
            self._held.append((f"eval/{match[1]}/avg@{match[2]}", match[3]))
        elif " | Reward: " in text and (match := _DONE.search(text)):
            step = int(match[1])
            self._first = step if self._first is None else self._first
            self._done = step + (self._first != 1)
            found = self._evaluated(self._done - 1)
            return [*found, Block(_PRIME, str(self._done), "reward/all/mean", match[2])]
        return []

    def _evaluated(self, step: int) -> list[Block]:
        found = [Block(_PRIME, str(step), key, value) for key, value in self._held]
        self._held = []
        return found

    def end(self) -> list[Block]:
        """The evaluations behind the last update."""
        return self._evaluated(self._done) if self._first is not None else []

    def take(self, text: str) -> list[Block]:
        """Take a line; the numbers that are read with it."""
        if not (text.lstrip()[:1] in _MARKS or "Evaluated " in text or " Reward: " in text):
            if " Train step " in text and (match := _AREAL.search(text)):
                self._trained = int(match[1])
            return _NONE  # as nearly all lines of a console
        if self._trained is not None and "│" in text:
            cells = [cell.strip() for cell in text.split("│")[1:-1]]
            pairs = zip(cells[::2], cells[1::2], strict=False)
            return [Block("areal-console", str(self._trained), key, value)
                    for key, value in pairs if key]  # fmt: skip
        if "▶ Starting " in text and (match := _VALIDATING.search(text)):
            self._at = int(match[1])
        elif "=== " in text and (match := _HEADLINE.search(text)):
            self._at = None
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
            return self._of_prime(text)
        step = (self._epoch - 1) * self._each + self._step if self._at is None else self._at
        return [Block("nemo-rl-console", str(step), key, match[2])]
