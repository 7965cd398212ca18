"""Files of `isocompute.Recorder`: one run each, exact in step, rollouts and tokens.

Shape legend: K points of one series; P problems of one evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.formats.dumps import outcome_scores
from isocompute.importers.formats.jsonl import iter_objects
from isocompute.importers.values.imported import (
    Errors,
    ImportedRun,
    Metric,
    Outcomes,
    Series,
    provenance_of,
)
from isocompute.importers.values.reading import clean_text, number, whole
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.scale import PLAIN
from isocompute.importers.words.settings import Settings
from isocompute.recorder import MARK, VERSION

FORMAT = "recorder"
_Place = tuple[int, str, str]  # step, problem set, split


@dataclass
class _Reading:
    """What the lines add up to: the later record of a step holds."""

    header: Mapping[str, Any] = field(default_factory=dict)
    starts: int = 0
    rows: int = 0
    scores: dict[_Place, dict[Metric, float]] = field(default_factory=dict)
    outcomes: dict[_Place, Outcomes] = field(default_factory=dict)
    recorded: dict[_Place, int] = field(default_factory=dict)  # in which start of the run
    tokens: dict[int, float] = field(default_factory=dict)
    rollouts: dict[int, float] = field(default_factory=dict)
    uncounted: str = ""
    refused: list[str] = field(default_factory=list)
    again: int = 0
    goes_on: bool = False  # a start has recorded a step


def read_recording(path: Path, settings: Settings) -> list[ImportedRun]:
    """The run of one file.

    Raises:
        InputError: a file of a later version, or one whose first record is not whole.
    """
    errors, found = Errors(str(path)), _Reading()
    for line, row in iter_objects(path, errors):
        if MARK in row:
            _begin(found, row, path)
        elif not found.header:
            errors.add(line, "a record must follow the one that names the configuration")
        else:
            _take(found, row)
    if not found.header:
        raise InputError(
            f"a recorder's file must begin with its configuration, but {str(path)!r} has none that "
            "is whole; a run that died in its first second left it: remove it."
        )
    return [_run(found, path, settings, errors)]


def _begin(found: _Reading, row: Mapping[str, Any], path: Path) -> None:
    version = whole(row[MARK])
    if version is None or version > VERSION:
        raise InputError(
            f"this isocompute reads recordings of version {VERSION}, but {str(path)!r} has "
            f"{row[MARK]!r:.40}; upgrade isocompute."
        )
    found.starts += 1
    if not found.header and all(
        whole(row.get(k)) for k in ("problems_per_batch", "rollouts_per_problem")
    ):
        found.header = row
    found.goes_on = False


def _take(found: _Reading, row: Mapping[str, Any]) -> None:
    found.rows += 1
    step = whole(row.get("step"))
    if step is None or "refused" in row:
        found.refused.append(clean_text(row.get("refused", "a step must be a whole number"), 150))
        return
    if not found.goes_on:  # what a resume does again may have drawn more or less
        found.rollouts = {at: count for at, count in found.rollouts.items() if at < step}
        found.goes_on = True
    for name in ("tokens", "rollouts"):
        if (value := number(row.get(name))) is not None:
            getattr(found, name)[step] = value
    score = number(row.get("score"))
    if score is None:
        return
    split = "train" if row.get("split") == "train" else "validation"
    place = step, clean_text(row.get("problem_set", "")), split
    found.again += found.recorded.get(place, found.starts) != found.starts
    found.recorded[place] = found.starts
    samples = whole(row.get("samples")) or whole(found.header.get("samples"))
    outcomes = _outcomes(row, place, samples)
    if outcomes is None:
        k = samples if split == "validation" else None  # a batch has no k samples
        found.outcomes.pop(place, None)
        found.scores[place] = {Metric(kind="avg", samples=k): score}
        return
    low, high = _range(found.header)
    found.outcomes[place] = outcomes
    scores = outcome_scores(outcomes.successes_P.astype(np.float64), outcomes.samples, "")
    found.scores[place] = {m: low + (high - low) * value for m, value in scores.items()}


def _outcomes(row: Mapping[str, Any], place: _Place, samples: int | None) -> Outcomes | None:
    """Successes per problem, where the record has them whole."""
    given = row.get("successes")
    if not isinstance(given, dict) or not given or not samples:
        return None
    counts = [whole(value) for value in given.values()]
    if any(c is None or c > samples for c in counts):
        return None
    step, problem_set, split = place
    return Outcomes(
        step=step, problem_set=problem_set, split=split, samples=samples,
        problem_P=tuple(clean_text(name) for name in given),
        successes_P=np.array(counts, np.int64),
    )


def _range(header: Mapping[str, Any]) -> tuple[float, float]:
    given = header.get("score_range")
    ends = [number(end) for end in given] if isinstance(given, list) else []
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0] >= ends[1]:
        return PLAIN
    return ends[0], ends[1]


def _run(found: _Reading, path: Path, settings: Settings, errors: Errors) -> ImportedRun:
    header = found.header
    found.uncounted = _without_counts(found)
    b_p, n = (whole(header[k]) or 0 for k in ("problems_per_batch", "rollouts_per_problem"))
    series: dict[tuple[Metric, str, str], dict[int, float]] = {}
    for (step, problem_set, split), scores in sorted(found.scores.items()):
        for metric, value in scores.items():
            series.setdefault((metric, problem_set, split), {})[step] = value
    facts = header.get("facts")
    score_range = _range(header)
    return ImportedRun(
        name=settings.run or run_name(path), problems_per_batch=b_p, rollouts_per_problem=n,
        steps=None, seed=whole(header.get("seed")), outcomes=tuple(found.outcomes.values()),
        series=tuple(
            Series(
                metric=metric, problem_set=problem_set, split=split,
                step_K=np.array(list(points), np.int64), score_K=np.array(list(points.values())),
                rollouts_K=_rollouts_at([*points], found.rollouts, b_p * n),
                tokens_K=np.array([
                    found.tokens.get(s, np.nan if s else 0.0) for s in points
                ]),
            )
            for (metric, problem_set, split), points in series.items()
        ),
        errors=tuple(errors.kept), n_errors=errors.count, n_rows=found.rows,
        notes=tuple(_notes(found, errors)),
        provenance=replace(
            provenance_of(path, FORMAT),
            facts={clean_text(k): clean_text(v) for k, v in facts.items()}
            if isinstance(facts, dict) else {},
            score_range=None if score_range == PLAIN else score_range,
        ),
    )  # fmt: skip


def _without_counts(found: _Reading) -> str:
    """Leave out rollouts that do not count from the run's begin; a line where it is so."""
    counted = sorted(found.rollouts.items())
    never = len(counted) > 1 and counted[0][1] == counted[-1][1] > 0
    for (step, count), (then, fewer) in pairwise(counted):
        if fewer < count or never:
            found.rollouts = {}
            return (f"rollouts must count from the run's begin, but are {count:,.0f} at step "
                    f"{step} and {fewer:,.0f} at step {then}: all are left out, and whole batches "
                    "count")  # fmt: skip
    return ""


def _rollouts_at(
    step_K: Sequence[int], counted: Mapping[int, float], batch: int
) -> NDArray[np.float64]:
    """Cumulative rollouts: even between those recorded, and whole batches since the last."""
    known = sorted({0: 0.0, **counted}.items())
    at = np.array([step for step, _ in known], np.int64)
    count = np.array([count for _, count in known], np.float64)
    since_K = np.maximum(np.array(step_K, np.int64) - at[-1], 0)
    out: NDArray[np.float64] = np.interp(step_K, at, count).round() + since_K * batch
    return out


def _notes(found: _Reading, errors: Errors) -> Iterator[str]:
    if found.again:
        yield f"{found.again} scores of steps done again after a resume: the later ones hold"
    if found.uncounted:
        yield found.uncounted
    if found.refused:
        yield (f"{len(found.refused)} records were refused as the run was trained and are left "
               f"out; the first: {found.refused[0]}")  # fmt: skip
    if errors.count:
        yield (f"{errors.count} torn or broken lines were left out; the first: line "
               f"{errors.kept[0].line}")  # fmt: skip


def is_recording(head: bytes) -> bool:
    """Whether a file begins as `isocompute.Recorder` begins one; its first line may be torn."""
    return any(line.startswith(b'{"recorder":') for line in head.split(b"\n", 3)[:3])
