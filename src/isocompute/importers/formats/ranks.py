"""Evaluations that every process wrote of its own part of the problems: `heldout_rank0.jsonl`, ...

A part is no run, and parts differ in size and difficulty. Where each row of a score holds two
counts whose ratio it is (`correct` of `items`), the score of all parts is the ratio of their sums;
where no counts are there, nothing says how to weigh the parts, and `siblings` refuses them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

from isocompute.importers.formats.jsonl import RUN_KEYS, iter_objects
from isocompute.importers.runs.collect import Collector
from isocompute.importers.runs.siblings import RANK
from isocompute.importers.values.imported import Errors, ImportedRun, UnclearError
from isocompute.importers.values.reading import number, whole
from isocompute.importers.values.series import step_of
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import IN_ROWS
from isocompute.importers.words.settings import Settings

_ROUNDED = 6e-4  # of a ratio that is written with three digits

Row = dict[str, float]


def parts_in(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Files that differ in the number of a process alone, by what they would be called without."""
    found: dict[Path, dict[int, Path]] = defaultdict(dict)
    for file in files:
        if file.suffix == ".jsonl" and (match := RANK.search(file.name)) is not None:
            bare = file.name[: match.start()] + file.name[match.end() :]
            found[file.parent / bare][int(match["rank"])] = file
    return {
        whole_file: [parts[rank] for rank in sorted(parts)] for whole_file, parts in found.items()
        if len(parts) > 1 and sorted(parts) == list(range(min(parts), min(parts) + len(parts)))
        and min(parts) < 2
    }  # fmt: skip


def read_parts(parts: Sequence[Path], settings: Settings) -> list[ImportedRun] | None:
    """The run whose evaluations the parts hold; None where no counts say how to add them up.

    Raises:
        UnclearError: a part lacks an evaluation that the others have.
    """
    errors = Errors(str(parts[0]))
    read, said = [], []
    for file in parts:
        rows, own = _rows(file, errors, settings)
        read.append(rows)
        said.append(own)
    if any(own != said[0] for own in said):  # workers with a run each
        return None
    ratios = [_ratios([*rows.values()]) for rows in read]
    common = set.intersection(*map(set, ratios)) if all(ratios) else set()
    if not common:
        return None
    scores = {one[0] for one in common}
    held: dict[int, set[str]] = defaultdict(set)  # the scores that parts hold of a step
    for rows in read:
        for step in rows:
            held[step] |= scores & rows[step].keys()
    steps = sorted(held)
    for file, rows in zip(parts, read, strict=True):
        if lacking := [step for step in steps if held[step] - rows.get(step, {}).keys()]:
            raise UnclearError(
                f"every process must have written its part of an evaluation, but {file} has none "
                f"of step {lacking[0]} ({len(lacking)} such steps); complete it, or delete the "
                "rows of those steps in the other files."
            )
    collector = Collector(parts[0].parent.name, errors, settings)
    collector.configure(said[0])
    collector.configure_beside(parts[0].with_name("metrics.jsonl"))  # by its folder's name
    for line, step in enumerate(steps, start=1):
        row: dict[str, object] = {}
        for score, right, of in sorted(one for one in common if one[0] in held[step]):
            right_sum, of_sum = (sum(rows[step][key] for rows in read) for key in (right, of))
            row[score] = right_sum / of_sum
        collector.row(step, row, line)
    score, right, of = min(common)
    collector.counters.infer(
        f"score: {score} is the sum of {right} over that of {of} in the files of {len(parts)} "
        "processes"
    )
    return [collector.finish(parts[0], "jsonl")]


def _rows(
    file: Path, errors: Errors, settings: Settings
) -> tuple[dict[int, Row], dict[str, object]]:
    """Numbers of a file's rows, by step; what they say of their run."""
    found: dict[int, Row] = {}
    said: dict[str, object] = {}
    for _, row in iter_objects(file, errors):
        said |= {k: v for k, v in row.items() if k in RUN_KEYS or k in IN_ROWS or may_be_setting(k)}
        key = settings.step or step_of(row)
        if (step := whole(row.get(key))) is not None:
            found.setdefault(step, {}).update(
                (k, v) for k, value in row.items() if (v := number(value)) is not None and k != key
            )
    return found, said


def _ratios(rows: Sequence[Mapping[str, float]]) -> set[tuple[str, str, str]]:
    """(score, right, of): the first is the ratio of the other two, in all rows that hold it."""
    of_key: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for row in rows:
        for key in row:
            of_key[key].append(row)
    of_key = {key: there for key, there in of_key.items() if len(there) > 1 or len(rows) == 1}
    counts = [key for key, there in of_key.items() if all(r[key] >= 0 == r[key] % 1 for r in there)]
    varied = [key for key in counts if len({r[key] for r in of_key[key]}) > 1 or len(rows) == 1]
    return {
        (score, right, of)
        for right, of in permutations(counts, 2) if right in varied
        for score in of_key.keys() - counts if all(
            0 < row.get(of, 0) >= row.get(right, -1) >= 0
            and abs(row[right] / row[of] - row[score]) < _ROUNDED for row in of_key[score]
        )
    }  # fmt: skip
