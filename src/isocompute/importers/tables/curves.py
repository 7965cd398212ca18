"""Rows of a table -> curves, one per configuration, run, seed, metric, problem set, split, arm."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.runs.placing import own_evaluations
from isocompute.importers.tables.checks import check_recorded
from isocompute.importers.tables.ranges import SCORES
from isocompute.importers.tables.table import FloatArray, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a run on average, where a column may name runs: fewer and it counts or times rows. At half
# a clock is taken for names, at twice runs of five evaluations are not told apart.
_LEAST_ROWS = 3
# Kinds of scores at one budget, and deviations of a sign that are no chance: at half, one table of
# draws in a dozen is asked about, at twice two kinds need 65 evaluations.
_MOST_KINDS, _ALL_ALONG = 8, 4.0
_SAMPLER = re.compile(r"temp(?:erature)?$|top_?[pk]$|greedy|decod", re.I)


def group(
    path: Path,
    numbers: dict[str, FloatArray],
    texts: dict[str, tuple[NDArray[np.int64], list[str]]],
    recorded: Mapping[str, FloatArray],
    *,
    copies: bool,
    is_wide: bool,
) -> tuple[list[Curve], int]:
    """Curves by configuration and labels, and how many rows were copies of another."""
    keys: list[NDArray[Any]] = [numbers["problems_per_batch"], numbers["rollouts_per_problem"]]
    keys += [codes for codes, _ in texts.values()]
    seed = numbers.get("seed")
    if seed is not None:
        keys.append(np.where(np.isnan(seed), -(2.0**60), seed))  # below every seed
    order = np.lexsort((numbers["rollouts"], *reversed(keys)))
    changed = np.zeros(len(order), dtype=bool)
    changed[0] = True
    for key in keys:
        changed[1:] |= np.diff(key[order]) != 0
    starts = np.flatnonzero(changed)
    curves, n_copies = list[Curve](), 0
    for rows in np.split(order, starts[1:]):
        first = rows[0]
        text = {name: values[codes[first]] for name, (codes, values) in texts.items()}
        this_seed = None if seed is None or np.isnan(seed[first]) else int(seed[first])
        for column in (c for c in SCORES if c in numbers):
            score = numbers[column][rows]
            if column != "score" and np.isnan(score).all():
                continue
            kept = ~np.isnan(score)
            n_missing = 0 if is_wide else int((~kept).sum())
            x = numbers["rollouts"][rows]
            if not copies:
                first_K = _first_of_copies(x, score)
                n_copies += int((kept & ~first_K).sum())
                kept &= first_K
            if is_wide and not kept.any():
                continue
            check_recorded({name: v[rows][kept] for name, v in recorded.items()}, x[kept], path)
            optional: dict[str, Any] = {
                f"{name}_K": numbers[name][rows][kept]
                for name in ("tokens", "steps")
                if name in numbers and not np.isnan(numbers[name][rows][kept]).any()
            }
            curves.append(
                Curve(
                    problems_per_batch=int(numbers["problems_per_batch"][first]),
                    rollouts_per_problem=int(numbers["rollouts_per_problem"][first]),
                    run=text.get("run", ""),
                    seed=this_seed,
                    rollouts_K=x[kept],
                    score_K=score[kept],
                    metric=text.get("metric", "") if column == "score" else column,
                    problem_set=text.get("problem_set", ""),
                    split=text.get("split", "") or "validation",
                    arm=text.get("arm", ""),
                    n_missing=n_missing,
                    n_repeated=int((np.diff(x[kept]) == 0).sum()),
                    recorded=_recorded(recorded, rows),
                    **optional,
                )
            )
    return curves, n_copies


def _recorded(columns: Mapping[str, FloatArray], rows: NDArray[np.intp]) -> dict[str, float]:
    """What rows of one run say, where all of them say it; a schedule counts by its largest."""
    return {k: float(v[rows].max()) for k, v in columns.items() if np.isfinite(v[rows]).all()}


def _first_of_copies(x: FloatArray, score: FloatArray) -> NDArray[np.bool_]:
    """False for a row whose rollouts and score another row of the run has had; x ascends.

    Where most budgets have the same number of rows, and scores that differ, each is an evaluation
    of its own: some of them have the same score by chance.

    >>> _first_of_copies(np.array([8.0, 8.0, 9.0]), np.array([0.5, 0.5, 0.6])).tolist()
    [True, False, True]
    """
    first = np.ones(len(x), dtype=bool)
    if (np.diff(x) > 0).all():
        return first
    there = ~np.isnan(score)
    at, rows = np.unique(x[there], return_counts=True)
    other = np.unique(np.unique(np.stack([x[there], score[there]]), axis=1)[0], return_counts=True)
    alike, differ = rows == np.median(rows), other[1] > 1
    if at.size > 1 and np.mean(alike & differ) > 0.5:
        return first
    order = np.lexsort((score, x))
    first[order[1:]] = (np.diff(x[order]) != 0) | (np.diff(score[order]) != 0)
    return first


def of_evaluations(
    curves: list[Curve], path: Path, say: Callable[[str], None] | None
) -> list[Curve]:
    """Curves without rows that hold no evaluation of their own."""
    out, lines = list[Curve](), dict[str, None]()
    for c in curves:
        kept, told = own_evaluations(c.score_K)
        if kept is not None:
            lines[told] = None
            arrays = {k: v[kept] for k, v in vars(c).items() if k.endswith("_K") and v is not None}
            c = c.replace(**arrays)
        out.append(c)
    if say is not None:
        for line in lines:
            say(f"{path}: {line}")
    return out


def _one_is_higher(
    same: NDArray[np.int64], code: NDArray[np.int64], score: FloatArray | None
) -> bool:
    """Whether of two values of a column one scores higher than the other nearly all along."""
    if score is None or len(score) != len(same) or code.max() >= _MOST_KINDS:
        return False
    at = np.full((same.max() + 1, code.max() + 1), np.nan)
    at[same, code] = score
    for a, b in combinations(at.T, 2):
        sign = np.sign(a - b)
        if abs(np.nansum(sign)) > _ALL_ALONG * np.nansum(sign**2) ** 0.5:
            return True
    return False


def told_apart(
    others: pa.Table, keys: Sequence[NDArray[Any]], score: FloatArray | None, path: Path
) -> str:
    """Words for a column that nobody read, where it tells all rows apart that stand at one budget.

    Args:
        others: the columns that were not read.
        keys: what was read, but for the scores: (rows,) each.
        score: (rows,); None where there are several.
        path: of the table, for the message.

    Raises:
        InputError: the column tells kinds of scores apart: by words (of a grader), as a setting of
            the sampler, or since one of its values scores higher all along.
    """
    told = ""
    same = np.zeros(others.num_rows, dtype=np.int64)
    for key in keys:
        if len(key) != len(same):
            return ""
        same = np.unique(np.stack([same, np.unique(key, return_inverse=True)[1]]), axis=1,
                         return_inverse=True)[1].reshape(-1)  # fmt: skip
    for name in others.column_names:
        code, words = texts_of(others, name)
        apart = len(np.unique(np.stack([same, code]), axis=1).T) == len(same)
        if not (apart and 1 < len(words) <= len(same) / _LEAST_ROWS):
            continue
        each = f"add --map {shlex.quote(f'{name}=run')} if each of its values is a run of its own"
        in_words = len({re.sub("[^a-z]", "", word.lower()) for word in words}) == len(words)
        if in_words or _SAMPLER.search(name) or _one_is_higher(same, code, score):
            kinds = sorted(word.strip() for word in words)
            raise InputError(
                f"{path}: scores of a run at one step must be of one kind, but column {name} has "
                f"{', '.join(kinds[:8])}; choose with "
                f"--where {shlex.quote(f'{name}=KIND')}, yours of them, or {each}, or "
                f"--where {shlex.quote(f'{name}=*')} if all may be averaged.",
                options=("--where", f"{name}=KIND"), trial=("--where", f"{name}=*"),
            )
        told = told or f"; they differ in column {name}: {each}"
    return told
