"""A state machine with a hidden table; answers may show every state on the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.engines.local.worlds.base import END, PAD, Text, World, require

STATES = 10  # one digit
DIRECT = 0.3  # share of demonstrations that give the last state without the way to it
_STREAM_TABLE, _STREAM_BELIEF = 0, 2


@dataclass(frozen=True)
class MachineWorld(World):
    """Which state a machine ends in after some moves; the table is hidden.

    A prompt `z7A2B5` starts in state 7, makes move 2, then move 5. A response lists the state
    after every move and then the last one, `a3b1=1`, or only the last one, `=1`. Each move
    permutes the states, so that a wrong state on the way stays wrong.

    What the base model is shown is wrong entry by entry: entry (state, move) leads to the same
    false state in a share of demonstrations between 0 and twice the noise. Where that share is
    above a half, the model is confidently wrong. More moves are harder.

    Args:
        moves: kinds of moves, at most 10.
        shortest, longest: moves of a problem, at most 25.
        rule_seed: of the table.

    Raises:
        InputError: if a size breaks these rules.
    """

    name: ClassVar[str] = "machine"
    moves: int = 6
    shortest: int = 2
    longest: int = 7
    rule_seed: int = 0

    def __post_init__(self) -> None:
        require(1 <= self.moves <= 10, "1 <= moves <= 10", self.moves)
        require(
            1 <= self.shortest <= self.longest <= 25,
            "1 <= shortest <= longest <= 25",
            (self.shortest, self.longest),
        )

    @property
    def verifier(self) -> str:
        """The last integer of the response."""
        return "integer"

    @property
    def max_new_tokens(self) -> int:
        """The states, `=`, the last state, the end, and room to go astray."""
        return self.longest + 5

    def tokenizer(self) -> WordTokenizer:
        """Moves and states carry their place, as `B5` and `b1`; the start is `z7`."""
        places = [chr(ord("A") + i) for i in range(self.longest)]
        moves = [f"{place}{move}" for place in places for move in range(self.moves)]
        states = [f"{place.lower()}{state}" for place in places for state in range(STATES)]
        digits = [str(state) for state in range(STATES)]
        start = [f"z{state}" for state in range(STATES)]
        words = [PAD, END, "=", *digits, *start, *moves, *states]
        return WordTokenizer(words, r"[A-Za-z][0-9]|[0-9]|=", [PAD, END])

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """Next state by (state, move)."""
        rng = np.random.default_rng([self.rule_seed, _STREAM_TABLE])
        return np.stack([rng.permutation(STATES) for _ in range(self.moves)], axis=1)

    def _belief(self, noise: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """How often an entry is shown wrong, and as what."""
        rng = np.random.default_rng([self.rule_seed, _STREAM_BELIEF])
        wrong = rng.uniform(0, min(2 * noise, 1.0), size=self.table.shape)
        return wrong, (self.table + rng.integers(1, STATES, size=self.table.shape)) % STATES

    def _moves(self, rng: np.random.Generator) -> tuple[int, list[int]]:
        length = int(rng.integers(self.shortest, self.longest + 1))
        return int(rng.integers(STATES)), rng.integers(self.moves, size=length).tolist()

    def draw(self, size: int, rng: np.random.Generator) -> list[Text]:
        """Prompts and last states."""
        texts = []
        for _ in range(size):
            start, moves = self._moves(rng)
            state = start
            for move in moves:
                state = int(self.table[state, move])
            texts.append(Text(_prompt(start, moves), str(state)))
        return texts

    def demonstrate(self, size: int, noise: float, rng: np.random.Generator) -> list[Text]:
        """Prompts and traces through a partly false table."""
        share, false = self._belief(noise)
        texts = []
        for _ in range(size):
            start, moves = self._moves(rng)
            state, trace = start, ""
            for place, move in enumerate(moves):
                wrong = rng.random() < share[state, move]
                state = int((false if wrong else self.table)[state, move])
                trace += f"{chr(ord('a') + place)}{state}"
            shown = "" if rng.random() < DIRECT else trace
            texts.append(Text(_prompt(start, moves), f"{shown}={state}"))
        return texts


def _prompt(start: int, moves: list[int]) -> str:
    return f"z{start}" + "".join(f"{chr(ord('A') + i)}{move}" for i, move in enumerate(moves))
