"""The base model's score, which stands once in a file: every run of it begins with that score.

In tables `tables.cells.with_base` reads it alike: rows of step 0 that say no n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isocompute.importers.values.imported import ImportedRun, Series

# Of a run that has such rows of no name among its own, too.
OF_BASE = "rows of step 0 without n are the base model's: its runs begin with those scores"


def with_base(runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    """The runs of one file, which begin with what a run of step 0 alone, without an n, scored.

    A run that has a score of step 0 keeps its own. Of which runs the base is, what it says of its
    model and B_p must leave no doubt; else all stay as they are.
    """
    marked = [run for run in runs if OF_BASE in run.provenance.inferred]
    bases = marked or [run for run in runs if _is_base(run)]
    if not bases:
        return list(runs)
    begun, used = list[ImportedRun](), set[int]()
    for run in runs:
        if run in marked or any(s.step_K[0] == 0 for s in run.series if s.step_K.size):
            begun += [run] if run in marked or run not in bases else []
            continue
        own = marked or [base for base in bases if _may_be_of(base, run)]
        one = _begun(run, own[0]) if len(own) == 1 else None
        if one is None or run.rollouts_per_problem is None:
            return [_without_base(run) for run in runs]
        begun.append(one)
        used.add(id(own[0]))
    return begun if len(used) == len(bases) else [_without_base(run) for run in runs]


def _without_base(run: ImportedRun) -> ImportedRun:
    told = tuple(line for line in run.provenance.inferred if line != OF_BASE)
    return replace(run, provenance=replace(run.provenance, inferred=told))


def _is_base(run: ImportedRun) -> bool:
    return run.rollouts_per_problem is None and bool(run.series) and not any(
        s.step_K.any() or not s.step_K.size for s in run.series
    )


def _may_be_of(base: ImportedRun, run: ImportedRun) -> bool:
    """Whether what a base model's row says of itself is what the run says."""
    b_p, facts = base.problems_per_batch, run.provenance.facts
    return b_p in (None, run.problems_per_batch) and all(
        facts.get(name) == value for name, value in base.provenance.facts.items()
    )


def _begun(run: ImportedRun, base: ImportedRun) -> ImportedRun | None:
    """The run with the scores of a base model before its first; None where it has none of them."""
    first = {s.of: float(s.score_K[0]) for s in base.series if s.step_K.size and not s.step_K[0]}
    series = tuple(
        s if s.of not in first or not s.step_K.size else _from(first[s.of], s) for s in run.series
    )
    same = all(a is b for a, b in zip(series, run.series, strict=True))
    return None if same else replace(run, series=series).inferring(OF_BASE)


def _from(score: float, s: Series) -> Series:
    before = {"step_K": 0, "rollouts_K": 0.0, "tokens_K": 0.0, "score_K": score}
    parts = {
        name: np.concatenate((np.array([value], own.dtype), own))
        for name, value in before.items() if (own := getattr(s, name)) is not None
    }  # fmt: skip
    return replace(s, **parts)  # type: ignore[arg-type]  # arrays by the fields' own names
