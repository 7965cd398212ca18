"""Pairs that follow a rule and pairs that break it: skills that compete for the same weights.

Shape legend: U stems, V endings, W contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.engines.local.worlds.base import END, PAD, Text, World, require

# Share of demonstrations that show a way. At half of it exceptions are half as often right and few
# are easy; at one the model never errs by answering at once, and responses do not lengthen.
SHOWN = 0.6
# What each step of a way takes off the noise. At 1 half as much: little to gain by showing one.
CARE = 2.0
# Exceptions are shown in a share x**POWER of the ways, x uniform. At 1 half of them are easy and
# few are hard; at 6 two in three are all but never shown.
POWER = 2.0
_STREAM_RULE = 0


class Rule(NamedTuple):
    """What is hidden: digits by stem, ending and context, and the pairs that break the rule.

    Attributes:
        first_U, second_V, third_W: digits of the rule.
        own_UV: whether a pair has a form of its own.
        first_UV, second_UV: the digits of that form, both other than the rule's.
        shown_UV: share of the ways to an exception that end in its own form.
        care_U, care_V, care_W: noise of each digit, as a multiple of the average.
    """

    first_U: NDArray[np.int64]
    second_V: NDArray[np.int64]
    third_W: NDArray[np.int64]
    own_UV: NDArray[np.bool_]
    first_UV: NDArray[np.int64]
    second_UV: NDArray[np.int64]
    shown_UV: NDArray[np.float64]
    care_U: NDArray[np.float64]
    care_V: NDArray[np.float64]
    care_W: NDArray[np.float64]


@dataclass(frozen=True)
class VerbWorld(World):
    """Three digits for a stem, an ending and a context, as the forms of a verb.

    A prompt is `u07v12w034`. For a regular pair of stem and ending the answer is one digit of
    each. An exception has first and second digits of its own; the third follows the rule always.
    What is learned on the rule serves every regular pair and none of the exceptions, and what is
    learned on an exception serves it alone, in all contexts, and costs the rule.

    A response is `=493`, or first repeats the pair, `~u07v12=493`, up to `way` times. The base
    model is shown exceptions in their own form only after such a way, each in a share of its own
    between hardly ever and always, and with less noise the longer the way is. So answers grow
    longer as training goes on, and with `way` above 1 tokens and rollouts part.

    Args:
        stems, endings, contexts: how many there are, at most 100, 100 and 1,000.
        exceptions: share of the pairs that break the rule.
        way: how often a response may repeat the pair, at most 6.
        kind: problems of all pairs (0), of regular ones (1), of exceptions (2).
        rule_seed: of the rule.

    Raises:
        InputError: if a number breaks these rules.
    """

    name: ClassVar[str] = "verbs"
    stems: int = 16
    endings: int = 16
    contexts: int = 200
    exceptions: float = 0.6
    way: int = 1
    kind: int = 0
    rule_seed: int = 0

    def __post_init__(self) -> None:
        require(1 <= self.stems <= 100, "1 <= stems <= 100", self.stems)
        require(1 <= self.endings <= 100, "1 <= endings <= 100", self.endings)
        require(1 <= self.contexts <= 1000, "1 <= contexts <= 1000", self.contexts)
        require(0 <= self.exceptions <= 1, "0 <= exceptions <= 1", self.exceptions)
        require(1 <= self.way <= 6, "1 <= way <= 6", self.way)
        require(self.kind in (0, 1, 2), "kind 0 (all), 1 (regular) or 2 (exceptions)", self.kind)
        own = self.rule.own_UV
        require(
            self.kind == 0 or bool((own if self.kind == 2 else ~own).any()),
            "a pair of the kind asked for", f"kind={self.kind}, exceptions={self.exceptions}",
        )  # fmt: skip

    @property
    def verifier(self) -> str:
        """The last integer of the response."""
        return "integer"

    @property
    def max_new_tokens(self) -> int:
        """The way, `=`, three digits, the end, and room to go astray."""
        return 3 * self.way + 7

    def tokenizer(self) -> WordTokenizer:
        """Stems, endings and contexts are a word each."""
        parts = [f"u{i:02d}" for i in range(self.stems)]
        parts += [f"v{i:02d}" for i in range(self.endings)]
        parts += [f"w{i:03d}" for i in range(self.contexts)]
        words = [PAD, END, "=", "~", *"0123456789", *parts]
        return WordTokenizer(words, r"w[0-9]{3}|[uv][0-9]{2}|[0-9]|=|~", [PAD, END])

    @cached_property
    def rule(self) -> Rule:
        """What is hidden."""
        rng = np.random.default_rng([self.rule_seed, _STREAM_RULE])
        # No first digit is 0: the verifier reads numbers, and 093 is 93.
        first_U = rng.integers(1, 10, size=self.stems)
        second_V = rng.integers(10, size=self.endings)
        third_W = rng.integers(10, size=self.contexts)
        pairs = (self.stems, self.endings)
        own_UV = rng.random(pairs) < self.exceptions
        first_UV = 1 + (first_U[:, None] - 1 + rng.integers(1, 9, size=pairs)) % 9
        second_UV = (second_V[None] + rng.integers(1, 10, size=pairs)) % 10
        shown_UV = rng.random(pairs) ** POWER
        # Squares of uniform numbers, three times over: 1 on average, and a good many near 0.
        care = [3 * rng.random(size) ** 2 for size in (self.stems, self.endings, self.contexts)]
        return Rule(first_U, second_V, third_W, own_UV, first_UV, second_UV, shown_UV, *care)

    def _problems(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Stem, ending and context of `size` problems of this kind, (size, 3)."""
        own_UV = self.rule.own_UV
        taken = {0: np.ones_like(own_UV), 1: ~own_UV, 2: own_UV}[self.kind]
        pair_2 = np.argwhere(taken)[rng.integers(int(taken.sum()), size=size)]
        return np.column_stack([pair_2, rng.integers(self.contexts, size=size)])

    def draw(self, size: int, rng: np.random.Generator) -> list[Text]:
        """Prompts and their three digits."""
        rule, texts = self.rule, []
        for u, v, w in self._problems(size, rng).tolist():
            first, second = self._form(u, v, own=bool(rule.own_UV[u, v]))
            texts.append(Text(_prompt(u, v, w), f"{first}{second}{rule.third_W[w]}"))
        return texts

    def demonstrate(self, size: int, noise: float, rng: np.random.Generator) -> list[Text]:
        """Prompts and digits, each wrong in a share of its own, with and without ways."""
        rule, texts = self.rule, []
        for u, v, w in self._problems(size, rng).tolist():
            steps = int(rng.integers(1, self.way + 1)) if rng.random() < SHOWN else 0
            own = rng.random() < rule.shown_UV[u, v] * steps / self.way
            first, second = self._form(u, v, own=bool(own and rule.own_UV[u, v]))
            digits = [int(first), int(second), int(rule.third_W[w])]
            for place, care in enumerate((rule.care_U[u], rule.care_V[v], rule.care_W[w])):
                if rng.random() < noise * care / (1 + CARE * steps):
                    digits[place] = int(rng.integers(10))
            said = f"~u{u:02d}v{v:02d}" * steps + "=" + "".join(map(str, digits))
            texts.append(Text(_prompt(u, v, w), said))
        return texts

    def _form(self, u: int, v: int, *, own: bool) -> tuple[int, int]:
        rule = self.rule
        if own:
            return int(rule.first_UV[u, v]), int(rule.second_UV[u, v])
        return int(rule.first_U[u]), int(rule.second_V[v])


def _prompt(u: int, v: int, w: int) -> str:
    return f"u{u:02d}v{v:02d}w{w:03d}"
