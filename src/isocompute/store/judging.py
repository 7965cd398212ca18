"""Whether the verifier of a run judges anything at all: training on nothing is stopped."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute.engines.base import EvaluationRecord, StepRecord, Unjudged
from isocompute.errors import InputError

NONE = 0.01  # a smaller share of the responses that are judged is as good as none
# Responses of training batches in a row. A batch of 8 may hit a time-out once; at 64 a verifier
# that judges a tenth is stopped once in a thousand times.
ENOUGH = 64


def is_nothing(judged: int, drawn: int) -> bool:
    """Whether (nearly) nothing of what was drawn was judged."""
    return judged < NONE * drawn


class Judging:
    """Follows one attempt, record by record."""

    def __init__(self) -> None:
        self._lost = 0  # responses of the last batches, since one was judged

    def step(self, record: StepRecord) -> None:
        """Take the record of an update.

        Raises:
            InputError: nothing of the last batches, 64 responses or more, was judged.
        """
        drawn = record.samples * len(record.problem_Q)
        if not is_nothing(drawn - _failed(record.unjudged), drawn):
            self._lost = 0
            return
        self._lost += drawn
        if self._lost >= ENOUGH:
            raise _unjudged(self._lost, f"to training problems, up to step {record.step}",
                            record.unjudged)  # fmt: skip

    def evaluation(self, record: EvaluationRecord, drawn: int) -> None:
        """Take the record of an evaluation that drew so many responses.

        Raises:
            InputError: nothing of it was judged.
        """
        if is_nothing(drawn - _failed(record.unjudged), drawn):
            raise _unjudged(drawn, f"to validation set {record.problem_set!r} at step "
                            f"{record.step}", record.unjudged)  # fmt: skip


def _failed(unjudged: Sequence[Unjudged]) -> int:
    return sum(one.rollouts for one in unjudged)


def _unjudged(drawn: int, where: str, unjudged: Sequence[Unjudged]) -> InputError:
    return InputError(
        f"the verifier must judge responses, but it failed on (nearly) all {drawn:,} {where} "
        f"({unjudged[0].message}); mend it, then run again with --retry-failed: what was trained "
        "is kept."
    )
