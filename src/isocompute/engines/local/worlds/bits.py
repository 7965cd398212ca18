"""The bit-rule world: answers of many bits of which enough must agree with a hidden rule.

Shape legend: P problems, D prompt bits, T answer bits, H hidden units of the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.engines.local.worlds.base import PAD, Text, World
from isocompute.errors import InputError

HEX = "0123456789abcdef"
BITS_PER_LETTER = 2
_STREAM_RULE = 0


@dataclass(frozen=True, kw_only=True)
class BitRuleWorld(World):
    """Prompts of random bits; the right answer is a hidden function of them, bit by bit.

    The function is a random two-layer network, sign(tanh(x W1) W2). An answer counts if at
    least `agree` of its bits agree, so that very many answers are right and most of the noise
    of a policy gradient lies between the rollouts of one problem, as in language models with
    long answers.

    A prompt is one word per letter, `A3B0C1...`: letter i carries bits 2i and 2i+1. An answer
    is hexadecimal, four bits to a token.

    Args:
        prompt_bits: D, a multiple of 2 and at most 52 (26 letters).
        answer_bits: T, a multiple of 4.
        agree: K, bits that must agree for a reward of 1.
        hidden: H, hidden units of the rule.
        gain: standard deviation of a hidden unit's input; larger is less linear.
        rule_seed: of the hidden rule.

    Raises:
        InputError: if a size breaks these rules.
    """

    name: ClassVar[str] = "bits"
    prompt_bits: int = 32
    answer_bits: int = 32
    agree: int = 20
    hidden: int = 64
    gain: float = 1.5
    rule_seed: int = 0

    def __post_init__(self) -> None:
        if self.prompt_bits % BITS_PER_LETTER or not 2 <= self.prompt_bits <= 52:
            raise InputError(
                "`prompt_bits` must be a multiple of 2 from 2 to 52, but got "
                f"{self.prompt_bits}; choose such a number."
            )
        if self.answer_bits % 4 or self.answer_bits < 4:
            raise InputError(
                f"`answer_bits` must be a positive multiple of 4, but got {self.answer_bits}; "
                "choose such a number."
            )
        if not 1 <= self.agree <= self.answer_bits:
            raise InputError(
                f"`agree` must be between 1 and answer_bits={self.answer_bits}, but got "
                f"{self.agree}; choose such a number."
            )

    @property
    def max_new_tokens(self) -> int:
        """Tokens of an answer; nothing but the limit ends it."""
        return self.answer_bits // 4

    @property
    def verifier(self) -> str:
        """Specification of the reward, as `verifiers.load_verifier` reads it."""
        return f"hexbits>={self.agree}"

    def tokenizer(self) -> WordTokenizer:
        """Words: padding, 16 hexadecimal digits, then letter-and-value pairs."""
        letters = self.prompt_bits // BITS_PER_LETTER
        values = range(1 << BITS_PER_LETTER)
        words = [f"{chr(ord('A') + i)}{value}" for i in range(letters) for value in values]
        return WordTokenizer([PAD, *HEX, *words], r"[A-Z][0-3]|[0-9a-f]", [PAD])

    def answers(self, bit_PD: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Right answers: (P, D) prompt bits -> (P, T) answer bits."""
        rng = np.random.default_rng([self.rule_seed, _STREAM_RULE])
        first_DH = rng.normal(size=(self.prompt_bits, self.hidden))
        first_DH *= self.gain / math.sqrt(self.prompt_bits)
        second_HT = rng.normal(size=(self.hidden, self.answer_bits))
        return np.asarray(np.tanh((bit_PD * 2.0 - 1.0) @ first_DH) @ second_HT > 0)

    def prompt_bits_of(self, size: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Random prompts (P, D)."""
        return rng.integers(0, 2, size=(size, self.prompt_bits), dtype=np.int8) > 0

    def draw(self, size: int, rng: np.random.Generator) -> list[Text]:
        """Prompts and right answers. With 32 bits, 10,000 prompts repeat with probability 0.01."""
        bit_PD = self.prompt_bits_of(size, rng)
        return _texts(bit_PD, self.answers(bit_PD))

    def demonstrate(self, size: int, noise: float, rng: np.random.Generator) -> list[Text]:
        """Prompts and answers, a share `noise` of whose bits is flipped."""
        bit_PD = self.prompt_bits_of(size, rng)
        flipped_PT = rng.random((size, self.answer_bits)) < noise
        return _texts(bit_PD, self.answers(bit_PD) ^ flipped_PT)


def _texts(bit_PD: NDArray[np.bool_], bit_PT: NDArray[np.bool_]) -> list[Text]:
    return [Text(*pair) for pair in zip(prompt_texts(bit_PD), answer_texts(bit_PT), strict=True)]


def prompt_texts(bit_PD: NDArray[np.bool_]) -> list[str]:
    """Prompt bits -> texts such as `A3B0C1`.

    >>> prompt_texts(np.array([[True, True, False, True]]))
    ['A3B2']
    """
    value_PL = bit_PD[:, 0::2] + 2 * bit_PD[:, 1::2].astype(np.int64)
    names = [chr(ord("A") + i) for i in range(value_PL.shape[1])]
    return ["".join(f"{n}{v}" for n, v in zip(names, row, strict=True)) for row in value_PL]


def answer_texts(bit_PT: NDArray[np.bool_]) -> list[str]:
    """Answer bits -> hexadecimal texts, most significant bit first.

    >>> answer_texts(np.array([[True, False, True, False]]))
    ['a']
    """
    quad = bit_PT.reshape(len(bit_PT), -1, 4) @ np.array([8, 4, 2, 1])
    return ["".join(HEX[v] for v in row) for row in quad]
