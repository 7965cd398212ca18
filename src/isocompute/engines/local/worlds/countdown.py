"""Make a target from given numbers: the verifier computes, and many answers are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.engines.local.worlds.base import END, PAD, Text, World, require
from isocompute.verifiers.countdown import value_of

SIGNS = "+-*"


@dataclass(frozen=True)
class CountdownWorld(World):
    """An expression of given digits, each used once, that has a given value.

    A prompt is `2357>22`, a right response `5*3+7` where that uses all digits and meets the
    target, with the usual precedence of signs. Problems are made from a random expression, so
    that each has a solution; most have several.

    Args:
        fewest, most: digits of a problem, 2 to 6.
        largest: target, at most 99.
        rule_seed: of the problems; the rule is arithmetic's.

    Raises:
        InputError: if a size breaks these rules.
    """

    name: ClassVar[str] = "countdown"
    fewest: int = 3
    most: int = 4
    largest: int = 60
    rule_seed: int = 0

    def __post_init__(self) -> None:
        require(
            2 <= self.fewest <= self.most <= 6, "2 <= fewest <= most <= 6", (self.fewest, self.most)
        )
        require(10 <= self.largest <= 99, "10 <= largest <= 99", self.largest)

    @property
    def verifier(self) -> str:
        """Computes the expression."""
        return "countdown"

    @property
    def max_new_tokens(self) -> int:
        """Digits, signs, the end, and room to go astray."""
        return 2 * self.most + 2

    def tokenizer(self) -> WordTokenizer:
        """Digits, signs, and one word per target."""
        targets = [f">{target}" for target in range(1, self.largest + 1)]
        return WordTokenizer(
            [PAD, END, *"123456789", *SIGNS, *targets], r">[0-9]+|[1-9*+-]", [PAD, END]
        )

    def _expression(self, rng: np.random.Generator) -> tuple[str, str, int]:
        """An expression with a target in range, and its digits in order."""
        while True:
            digits = rng.integers(1, 10, size=int(rng.integers(self.fewest, self.most + 1)))
            text = _joined(digits.tolist(), rng)
            value = value_of(text)
            if value is not None and 1 <= value <= self.largest:
                return text, "".join(map(str, sorted(digits.tolist()))), value

    def draw(self, size: int, rng: np.random.Generator) -> list[Text]:
        """Digits and targets; the answer that the verifier reads is the prompt."""
        texts = []
        for _ in range(size):
            _, digits, target = self._expression(rng)
            texts.append(Text(f"{digits}>{target}", f"{digits}>{target}"))
        return texts

    def demonstrate(self, size: int, noise: float, rng: np.random.Generator) -> list[Text]:
        """Solutions, some replaced by any expression of the same digits."""
        texts = []
        for _ in range(size):
            text, digits, target = self._expression(rng)
            if rng.random() < noise:
                text = _joined(rng.permutation([int(d) for d in digits]).tolist(), rng)
            texts.append(Text(f"{digits}>{target}", text))
        return texts


def _joined(digits: list[int], rng: np.random.Generator) -> str:
    signs = [SIGNS[i] for i in rng.integers(len(SIGNS), size=len(digits) - 1).tolist()]
    return str(digits[0]) + "".join(f"{s}{d}" for s, d in zip(signs, digits[1:], strict=True))
