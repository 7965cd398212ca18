"""Problem sets: what a model is asked, what counts as right, how hard it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """

    id: str
    prompt: str
    answer: str
    source: str = ""
    pass_rate: float | None = None


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
