"""How many samples a problem had in an evaluation whose problems may not be known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def samples_of(spec: Mapping[str, Any], problem_set: str, samples: int, outcomes: int) -> int:
    """The k of its avg@k.

    A log's mean over P problems and k samples is stored as P k single outcomes.

    Args:
        spec: of the run.
        problem_set: that was evaluated.
        samples, outcomes: as stored, of each entry, and how many entries.

    >>> spec = {"validation": {"all": {"size": 300}}}
    >>> samples_of(spec, "all", 1, 2400), samples_of(spec, "all", 4, 300)
    (8, 4)
    """
    size = int(spec["validation"].get(problem_set, {}).get("size") or outcomes)
    return samples if samples > 1 else max(outcomes // size, 1)
