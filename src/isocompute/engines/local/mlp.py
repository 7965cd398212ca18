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
    eos_token_id: int | None = None  # of config.json; nothing says it

    @property
    def vocab_size(self) -> int:
        """Words up to the last digit: no other can be said."""
        return self.first_digit + _DIGITS

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """None: only the limit ends an answer."""
        return ()

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

    def first_hidden(self, prompt_PS: Tensor, length_P: Tensor) -> Tensor:
        """Input (P, W) of the first hidden layer."""
        there = torch.arange(prompt_PS.shape[1], device=prompt_PS.device) < length_P[:, None]
        return (F.embedding(prompt_PS, self.words) * there[..., None]).sum(1) + self.words_bias

    def second_hidden(self, x: Tensor) -> Tensor:
        """Output (..., W) of the second hidden layer."""
        return F.gelu(F.linear(F.gelu(x), self.middle, self.middle_bias))

    def answer_logits(self, prompt_PS: Tensor, length_P: Tensor) -> Tensor:
        """Logits (P, T, V) of every answer token; they do not depend on earlier ones."""
        x = self.second_hidden(self.first_hidden(prompt_PS, length_P))
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

    def floats_per_token(self, prompt_tokens: int, tokens: int) -> int:
        """The layers run once per prompt, or once per token where values are computed."""
        del prompt_tokens, tokens
        return 4 * self.config.width + 4 * self.config.vocab_size


class BitMlpValue(BitMlp):
    """A value of every state of an answer: what is expected of it before each of its tokens.

    The trunk of a policy, which reads the digits said so far as it reads the words of the prompt,
    and a head of one output in place of the bits. Both additions start at 0, and V = 0 everywhere.
    """

    def __init__(self, base: BitMlp) -> None:
        super().__init__(base.config)
        self.load_state_dict(base.state_dict())
        del self.bits, self.bits_bias
        # One vector per place and digit; the last digit is never read.
        rows = (base.config.answer_tokens - 1) * _DIGITS
        self.said = nn.Parameter(torch.zeros(rows, base.config.width))
        self.head = nn.Parameter(torch.zeros(1, base.config.width))

    def response_logits(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping
    ) -> Tensor:
        """Values (N, T, 1) of the states in which the tokens were chosen."""
        digit_NT = token_NT[:, :-1] - self.config.first_digit
        place_T = torch.arange(digit_NT.shape[1], device=token_NT.device)
        said_NTW = F.embedding(digit_NT + place_T * _DIGITS, self.said).cumsum(1)
        said_NTW = F.pad(said_NTW, (0, 0, 1, 0))
        x = self.first_hidden(prompt_PS, length_P)[groups.prompt_N, None] + said_NTW
        return F.linear(self.second_hidden(x), self.head)


class _MlpDecoder(Decoder):
    def __init__(self, logits_PTV: Tensor) -> None:
        self.logits_PTV = logits_PTV
        self.first_PV = logits_PTV[:, 0]
        self.place = 0

    def advance(self, parent_N: Tensor | None, token_N: Tensor, prompt_N: Tensor) -> Tensor:
        del parent_N, token_N
        self.place += 1
        return self.logits_PTV[prompt_N, self.place]
