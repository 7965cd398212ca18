"""What sampling and training need of a policy, whatever its architecture.

Shape legend: P prompts, S prompt tokens, N distinct prefixes or responses, T tokens, V words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from isocompute.engines.local.grouping import Grouping
from isocompute.engines.local.kernels import token_logprob, token_logprob_and_entropy


class PolicyConfig(Protocol):
    """Sizes that every policy has."""

    @property
    def vocab_size(self) -> int:
        """V, words that the policy may say."""

    @property
    def max_position_embeddings(self) -> int:
        """Tokens of prompt and response together, at most."""

    @property
    def pad_token_id(self) -> int:
        """Fills the tail of short rows."""

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Each ends a response; none where only the length limit does."""


def scaled(logits: Tensor, temperature: float) -> Tensor:
    """Logits at a temperature; the policy that is sampled and trained is their softmax."""
    return logits if temperature == 1.0 else logits / temperature


def as_tokens(eos_token_id: int | Sequence[int] | None) -> tuple[int, ...]:
    """What stands under `eos_token_id`: one token, several, or none.

    >>> as_tokens(2), as_tokens([2, 5]), as_tokens(None)
    ((2,), (2, 5), ())
    """
    if eos_token_id is None:
        return ()
    return (eos_token_id,) if isinstance(eos_token_id, int) else tuple(eos_token_id)


def is_end(token: Tensor, end_tokens: tuple[int, ...]) -> Tensor:
    """Which of the tokens end a response."""
    if not end_tokens:
        return torch.zeros_like(token, dtype=torch.bool)
    ended = token == end_tokens[0]
    for end in end_tokens[1:]:
        ended |= token == end
    return ended


class Decoder(ABC):
    """One sampling pass: prefixes grow by a token at a time.

    Attributes:
        first_PV: logits of the first token of each prompt's responses.
    """

    first_PV: Tensor

    @abstractmethod
    def advance(self, parent_N: Tensor | None, token_N: Tensor, prompt_N: Tensor) -> Tensor:
        """Logits (N, V) after prefixes were extended.

        Args:
            parent_N: which of the last prefixes each new one extends; None: one each, in order.
            token_N: the token that extends it.
            prompt_N: its prompt, ascending.
        """


class PolicyModel(nn.Module, ABC):
    """A distribution over responses to prompts."""

    @property
    @abstractmethod
    def sizes(self) -> PolicyConfig:
        """Sizes of the model."""

    @abstractmethod
    def decoder(self, prompt_PS: Tensor, length_P: Tensor, rows: int, limit: int) -> Decoder:
        """Begin to sample: at most `rows` prefixes and `limit` tokens."""

    @abstractmethod
    def response_logits(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping
    ) -> Tensor:
        """Logits (N, T, V) of every token of given responses, for a gradient."""

    def response_logprobs(
        self, prompt_PS: Tensor, length_P: Tensor, token_NT: Tensor, groups: Grouping,
        temperature: float = 1.0, *, entropies: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Log-probability (N, T) of every token of given responses, for a gradient.

        Also the entropies (N, T) of their distributions in nats, where they are wanted.
        """
        logits_NTV = scaled(
            self.response_logits(prompt_PS, length_P, token_NT, groups), temperature
        )
        if entropies:
            return token_logprob_and_entropy(logits_NTV, token_NT)
        return token_logprob(logits_NTV, token_NT), None

    @abstractmethod
    def floats_per_token(self, prompt_tokens: int, tokens: int) -> int:
        """Numbers that one token of a response keeps until the backward pass, about.

        Args:
            prompt_tokens, tokens: of a prompt and of a response, at most.
        """
