"""A small feed-forward policy: every bit of an answer drawn independently of the others.

Shape legend: P prompts, S prompt tokens, N distinct prefixes or responses, T answer tokens,
W width, V words. A token is a hexadecimal digit and carries four bits.

A fast companion of the transformer for the same problems: it reads a prompt as the sum of one
vector per word (words carry their position), and says one logit per bit. A digit's logit is
the sum of its bits' signed logits, so that the digit's distribution is the product of its bits'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.interface import Decoder, PolicyModel

BITS_PER_TOKEN = 4
_DIGITS = 1 << BITS_PER_TOKEN


@dataclass(frozen=True, kw_only=True)
class MlpConfig:
    """Sizes of the feed-forward policy.

    Args:
        prompt_words: words of the vocabulary, all of which may stand in a prompt.
        answer_tokens: digits of an answer.
        first_digit: number of the word "0"; the other fifteen digits follow it.
        width: units of both hidden layers.
        prompt_tokens: words of a prompt, at most; also scales the first layer.
    """

    prompt_words: int
    answer_tokens: int
    first_digit: int = 1
    width: int = 256
    prompt_tokens: int = 16
    pad_token_id: int = 0
    eos_token_id: int | None = None

    @property
    def vocab_size(self) -> int:
        """Words up to the last digit: no other can be said."""
        return self.first_digit + _DIGITS

    @property
    def max_position_embeddings(self) -> int:
        """Tokens of prompt and response together."""
        return self.prompt_tokens + self.answer_tokens


class BitMlp(PolicyModel):
    """See the module's docstring."""

    def __init__(self, config: MlpConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        bits = config.answer_tokens * BITS_PER_TOKEN

        def uniform(rows: int, columns: int, spread: float) -> nn.Parameter:
            value = torch.empty(rows, columns).uniform_(-spread, spread, generator=generator)
            return nn.Parameter(value)

        # Hidden units start with variance 1/3, as torch's own linear layers give it.
        hidden = 1 / math.sqrt(config.width)
        self.words = uniform(config.prompt_words, config.width, 1 / math.sqrt(config.prompt_tokens))
        self.words_bias = nn.Parameter(torch.zeros(config.width))
        self.middle = uniform(config.width, config.width, hidden)
        self.middle_bias = nn.Parameter(torch.zeros(config.width))
        self.bits = uniform(bits, config.width, hidden)
        self.bits_bias = nn.Parameter(torch.zeros(bits))
        digit = torch.arange(_DIGITS)[None, :]
        place = torch.arange(BITS_PER_TOKEN - 1, -1, -1)[:, None]  # most significant first
        self.signs: Tensor
        self.register_buffer("signs", ((digit >> place) & 1) - 0.5, persistent=False)

    @property
    def sizes(self) -> MlpConfig:
        """Sizes of the model."""
        return self.config

    def answer_logits(self, prompt_PS: Tensor, length_P: Tensor) -> Tensor:
        """Logits (P, T, V) of every answer token; they do not depend on earlier ones."""
        there = torch.arange(prompt_PS.shape[1], device=prompt_PS.device) < length_P[:, None]
        x = (F.embedding(prompt_PS, self.words) * there[..., None]).sum(1) + self.words_bias
        x = F.gelu(F.linear(F.gelu(x), self.middle, self.middle_bias))
        bit = F.linear(x, self.bits, self.bits_bias)
        logits = bit.view(len(prompt_PS), -1, BITS_PER_TOKEN) @ self.signs
        return F.pad(logits, (self.config.first_digit, 0), value=-math.inf)

    def decoder(self, prompt_PS: Tensor, length_P: Tensor, rows: int, limit: int) -> Decoder:
        """Begin to sample; the answer's distribution is known at once."""
        del rows, limit
        return _MlpDecoder(self.answer_logits(prompt_PS, length_P))

    def response_logits(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping
    ) -> Tensor:
        """Logits (N, T, V) of every token of given responses."""
        logits_PTV = self.answer_logits(prompt_PS, length_P)[:, : token_NT.shape[1]]
        return logits_PTV[groups.prompt_N]


class _MlpDecoder(Decoder):
    def __init__(self, logits_PTV: Tensor) -> None:
        self.logits_PTV = logits_PTV
        self.first_PV = logits_PTV[:, 0]
        self.place = 0

    def advance(self, parent_N: Tensor | None, token_N: Tensor, prompt_N: Tensor) -> Tensor:
        del parent_N, token_N
        self.place += 1
        return self.logits_PTV[prompt_N, self.place]
