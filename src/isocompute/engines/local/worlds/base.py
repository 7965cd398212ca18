"""What every generated world has: problems, a tokenizer, demonstrations for its base model."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from isocompute.engines.local.tokenizer import WordTokenizer
from isocompute.errors import InputError
from isocompute.problems import Problem, ProblemSet

PAD, END = "<pad>", "<end>"
Part = Literal["train", "validation"]
_STREAM_PROBLEMS = 1  # random numbers of problems, apart from those of the rule
_ROUNDS = 50  # draws of `size` problems before a world counts as used up


class Text(NamedTuple):
    """A prompt and what belongs to it: the right answer, or a response that is shown."""

    prompt: str
    response: str


class World(ABC):
    """A family of problems with a hidden rule; frozen dataclasses, so that equal means same.

    Attributes:
        name: the word in study files and `world.json`.
        rule_seed: of whatever is hidden.
    """

    name: ClassVar[str]
    rule_seed: int

    @property
    @abstractmethod
    def verifier(self) -> str:
        """Specification of the reward, as `verifiers.load_verifier` reads it."""

    @property
    @abstractmethod
    def max_new_tokens(self) -> int:
        """Length limit of a response, its end token included."""

    @abstractmethod
    def tokenizer(self) -> WordTokenizer:
        """Words of prompts and responses; padding first, then the end token if there is one."""

    @abstractmethod
    def draw(self, size: int, rng: np.random.Generator) -> list[Text]:
        """Random prompts with their right answers; prompts may repeat."""

    @abstractmethod
    def demonstrate(self, size: int, noise: float, rng: np.random.Generator) -> list[Text]:
        """Random prompts with responses that a base model learns from, `noise` of it wrong."""

    def problems(self, name: str, size: int, seed: int, part: Part | None = None) -> ProblemSet:
        """`size` different problems; the same name, seed and part give the same set.

        Args:
            name: of the set; ids begin with it.
            size: number of problems.
            seed: which problems of the rule.
            part: "train" or "validation": no prompt is in both, whatever the seeds. None: any.

        Raises:
            InputError: for another part, or if the world has too few different prompts.
        """
        if part is not None and part not in get_args(Part):
            raise InputError(
                f"`part` must be one of {', '.join(get_args(Part))}, but got {part!r}; choose one, "
                "or leave it out."
            )
        rng = np.random.default_rng([self.rule_seed, _STREAM_PROBLEMS, seed])
        found: dict[str, str] = {}
        for _ in range(_ROUNDS):
            for prompt, answer in self.draw(size, rng):
                if part is None or part == _part_of(prompt):
                    found.setdefault(prompt, answer)
            if len(found) >= size:
                break
        else:
            raise InputError(
                f"a set of world {self.name!r} must hold different prompts, but size={size} was "
                f"asked for and only {len(found)} were found; lower the size or change the world."
            )
        pairs = list(found.items())[:size]
        return ProblemSet(
            name=name,
            problems=[
                Problem(id=f"{name}-{i}", prompt=prompt, answer=answer, source=self.name)
                for i, (prompt, answer) in enumerate(pairs)
            ],
            verifier=self.verifier,
        )


def _part_of(prompt: str) -> Part:
    return "validation" if zlib.crc32(prompt.encode()) & 1 else "train"


def require(holds: bool, rule: str, got: object) -> None:
    """Refuse a size of a world.

    Raises:
        InputError: unless `holds`.
    """
    if not holds:
        raise InputError(f"a world needs {rule}, but got {got}; choose such a number.")
