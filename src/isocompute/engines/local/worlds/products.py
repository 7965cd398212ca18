"""Products of two numbers, with or without the partial products on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.engines.local.worlds.base import END, PAD, Text, World, require

DIRECT = 0.3  # share of demonstrations that give the product without the way to it


@dataclass(frozen=True)
class ProductWorld(World):
    """Multiplication of numbers of two digits, one digit to a token.

    A prompt is `47*36`. A response gives the product at once, `=1692`, or its parts first,
    `:1410+282=1692`; numbers may have leading zeros, and the base model writes them. Hard to
    generalise from few problems: what is learned on one product helps others little.

    Args:
        largest: both factors lie between 2 and this, at most 99.
        rule_seed: of the problems; the rule is arithmetic's.

    Raises:
        InputError: if `largest` breaks this rule.
    """

    name: ClassVar[str] = "products"
    largest: int = 99
    rule_seed: int = 0

    def __post_init__(self) -> None:
        require(2 <= self.largest <= 99, "2 <= largest <= 99", self.largest)

    @property
    def verifier(self) -> str:
        """The last integer of the response."""
        return "integer"

    @property
    def max_new_tokens(self) -> int:
        """15 tokens with the parts and the end, and room to go astray."""
        return 18

    def tokenizer(self) -> WordTokenizer:
        """Digits and signs."""
        return WordTokenizer([PAD, END, *"0123456789*+=:"], r"[0-9*+=:]", [PAD, END])

    def _factors(self, size: int, rng: np.random.Generator) -> list[list[int]]:
        pairs: list[list[int]] = rng.integers(2, self.largest + 1, size=(size, 2)).tolist()
        return pairs

    def draw(self, size: int, rng: np.random.Generator) -> list[Text]:
        """Factors and products."""
        return [Text(f"{a:02d}*{b:02d}", str(a * b)) for a, b in self._factors(size, rng)]

    def demonstrate(self, size: int, noise: float, rng: np.random.Generator) -> list[Text]:
        """Factors and products, some with one digit of the product changed."""
        texts = []
        for a, b in self._factors(size, rng):
            tens, units = a * (b // 10) * 10, a * (b % 10)
            total = f"{a * b:04d}"
            if rng.random() < noise:
                place, more = int(rng.integers(4)), int(rng.integers(1, 10))
                digit = (int(total[place]) + more) % 10
                total = f"{total[:place]}{digit}{total[place + 1 :]}"
            way = "" if rng.random() < DIRECT else f":{tens:04d}+{units:03d}"
            texts.append(Text(f"{a:02d}*{b:02d}", f"{way}={total}"))
        return texts
