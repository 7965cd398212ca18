"""A problem, and an ordered set of them with the verifier that judges them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from isocompute.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One question.

    Args:
        id: unique in its set.
        prompt: text given to the model.
        answer: what the verifier compares with (text; the verifier decides its meaning).
        source: where it comes from.
        pass_rate: mean success of the base model, 0..1; None where it was not measured.
        pass_rate_samples: samples behind the pass rate; None where that is not known.

    Raises:
        InputError: if the pass rate lies outside 0..1 or its samples below 1.
    """

    id: str
    prompt: str
    answer: str
    source: str = ""
    pass_rate: float | None = None
    pass_rate_samples: int | None = None

    def __post_init__(self) -> None:
        rate = self.pass_rate
        if rate is not None and not (math.isfinite(rate) and 0 <= rate <= 1):
            raise InputError(
                f"`pass_rate` must lie in 0..1, but got {rate!r} for problem {self.id!r}; "
                "give successes divided by samples, or leave it out."
            )
        if self.pass_rate_samples is not None and self.pass_rate_samples < 1:
            raise InputError(
                f"`pass_rate_samples` must be >= 1, but got {self.pass_rate_samples!r} for problem "
                f"{self.id!r}; leave it out where it is not known."
            )

    @property
    def asked(self) -> str:
        """What a policy sees of it: its prompt. Simulated problems, without an answer, are ids."""
        return self.prompt if self.answer else self.id


@dataclass(frozen=True, kw_only=True)
class ProblemSet:
    """An ordered set of problems with the verifier that judges them.

    Args:
        name: what records and figures call it.
        problems: at least one, ids unique.
        verifier: a specification that `verifiers.load_verifier` understands ("exact",
            "integer", "math", "bits>=21", "path/to/file.py:function").

    Raises:
        InputError: if it is empty or an id occurs twice.
    """

    name: str
    problems: Sequence[Problem] = field(repr=False)
    verifier: str = "exact"

    def __post_init__(self) -> None:
        object.__setattr__(self, "problems", tuple(self.problems))
        if not self.problems:
            raise InputError(
                f"problem set {self.name!r} must hold at least 1 problem, but got 0; "
                "check the file or the selection."
            )
        ids = [p.id for p in self.problems]
        if len(set(ids)) != len(ids):
            twice = next(i for i in ids if ids.count(i) > 1)
            raise InputError(
                f"problem ids must be unique in set {self.name!r}, but {twice!r} occurs "
                f"{ids.count(twice)} times; rename or drop the repeats."
            )

    def __len__(self) -> int:
        return len(self.problems)

    @cached_property
    def sha256(self) -> str:
        """Hash of what training sees: ids, prompts, answers, verifier (not name or pass rate)."""
        rows = [[p.id, p.prompt, p.answer] for p in self.problems]
        text = json.dumps([self.verifier, rows], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def replace(self, *, name: str | None = None, problems: Sequence[Problem]) -> ProblemSet:
        """The same verifier over other problems, under a new name if one is given."""
        return replace(self, name=self.name if name is None else name, problems=problems)
