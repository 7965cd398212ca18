"""Whether a study validates on prompts that it trains on: then scores say little of new problems.

Shape legend: P validation problems.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from isocompute.errors import InputError
from isocompute.study.sweep import Study

ALLOWED = "shared_prompts"  # the word of `allow` that says that it is meant
Pair = tuple[str, str]  # hashes of a training set and of a validation set


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A training set and a validation set that have prompts in common.

    Args:
        pair: hashes of both.
        problems: name of the arm; "" where there is one.
        validation: name of the validation set.
        shared: of its problems, those whose prompt is trained on.
        validated, trained: sizes of both sets.
    """

    pair: Pair
    problems: str
    validation: str
    shared: int
    validated: int
    trained: int

    def text(self) -> str:
        """`43 of the 100 prompts of validation set 'all' are among the 200 to train on`."""
        arm = f" of problems {self.problems!r}" if self.problems else ""
        return (
            f"{self.shared:,} of the {self.validated:,} prompts of validation set "
            f"{self.validation!r}{arm} are among the {self.trained:,} to train on"
        )

    def line(self) -> str:
        """What it means, of a study that has trained."""
        return f"{self.text()}: scores are too high for new problems"


def shared_prompts(study: Study) -> list[Shared]:
    """Every pair of a training set and a validation set of a study that shares prompts."""
    found: dict[tuple[Pair, str], Shared | None] = {}
    for spec in study.runs:
        for name, validation in spec.validation.items():
            key = (spec.train.sha256, validation.sha256), name
            if key in found:
                continue
            trained = {problem.asked for problem in spec.train.problems}
            shared = sum(problem.asked in trained for problem in validation.problems)
            found[key] = None if not shared else Shared(
                pair=key[0], problems=spec.arm.get("problems", ""), validation=name,
                shared=shared, validated=len(validation), trained=len(spec.train),
            )  # fmt: skip
    return [one for one in found.values() if one is not None]


def refuse_shared_prompts(study: Study, begun: Collection[Pair] = ()) -> None:
    """Refuse a study that would validate on what it trains on, unless it says that it is meant.

    Args:
        study: to be trained.
        begun: pairs of sets that its folder has runs of already: these go on.

    Raises:
        InputError: how many prompts are shared, and the cure.
    """
    if ALLOWED in study.source.get("allow", ()):
        return
    for one in shared_prompts(study):
        if one.pair not in begun:
            raise InputError(
                f"a study must validate on problems that it does not train on, but {one.text()}; "
                "give both sets the same `held_out` (`part: train`, `part: validation`), name "
                f"another file, or, where it is meant, write `allow: [{ALLOWED}]`."
            )
