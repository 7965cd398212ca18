"""Generated problem worlds: a hidden rule, problems in plain text, a base model's tokenizer.

Shape legend: P problems, D prompt bits, T answer bits, H hidden units of the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.errors import InputError
from isocompute.problems import Problem, ProblemSet

PAD = "<pad>"
HEX = "0123456789abcdef"
BITS_PER_LETTER = 2
_STREAM_RULE, _STREAM_PROBLEMS = 0, 1


@dataclass(frozen=True, kw_only=True)
class BitRuleWorld:
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
    def answer_tokens(self) -> int:
        """Tokens of an answer."""
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

    def draw(self, size: int, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Random prompts and their answers, as bits (P, D) and (P, T)."""
        rng = np.random.default_rng([self.rule_seed, _STREAM_PROBLEMS, seed])
        bit_PD = rng.integers(0, 2, size=(size, self.prompt_bits), dtype=np.int8) > 0
        return bit_PD, self.answers(bit_PD)

    def problems(self, name: str, size: int, seed: int) -> ProblemSet:
        """A set of `size` problems; the same name and seed give the same set.

        Prompts are random: with 32 bits, two sets of 10,000 share none with probability 0.98.
        """
        bit_PD, bit_PT = self.draw(size, seed)
        prompts, answers = prompt_texts(bit_PD), answer_texts(bit_PT)
        return ProblemSet(
            name=name,
            problems=[
                Problem(id=f"{name}-{i}", prompt=prompt, answer=answer, source="bits")
                for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
            ],
            verifier=self.verifier,
        )


def world_problems(name: str, *, size: int, seed: int = 0, **rule: int | float) -> ProblemSet:
    """Problems of the bit-rule world, as a study file asks for them.

    Args:
        name: of the set; ids begin with it.
        size: number of problems.
        seed: which problems of the rule.
        rule: fields of `BitRuleWorld` that differ from the shipped base model's world.

    Raises:
        InputError: for an unknown field, or a size or seed that is not a whole number.
    """
    known = [field.name for field in fields(BitRuleWorld)]
    for option in rule:
        if option not in known:
            raise InputError(
                f"options of a generated world must be among size, seed, {', '.join(known)}, but "
                f"got {option!r}; remove it."
            )
    for option, value, least in (("size", size, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"`{option}` must be an integer >= {least}, but got {value!r}; correct the set."
            )
    return BitRuleWorld(**cast("dict[str, Any]", rule)).problems(name, size, seed)


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
