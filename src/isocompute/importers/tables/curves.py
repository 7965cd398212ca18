"""Rows of a table -> curves, one per configuration, run, seed, metric, problem set, split, arm."""

from __future__ import annotations

import contextlib
import datetime
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.runs.grids import Design, may_be_recipes, plain_value
from isocompute.importers.runs.placing import own_evaluations
from isocompute.importers.tables.checks import check_recorded
from isocompute.importers.tables.ranges import SCORES
from isocompute.importers.tables.table import FloatArray, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

Texts = Mapping[str, tuple[NDArray[np.int64], list[str]]]  # by column: codes of rows, their words

# Rows of a run on average, where a column may name runs: fewer and it counts or times rows. At half
# a clock is taken for names, at twice runs of five evaluations are not told apart.
_LEAST_ROWS = 3
_EPOCH = re.compile("(?:n_|num_)?epochs?(?:_(?:idx|index|num|number))?", re.I)
# Kinds of scores at one budget, and deviations of a sign that are no chance: at half, one table of
# draws in a dozen is asked about, at twice two kinds need 65 evaluations.
_MOST_KINDS, _ALL_ALONG = 8, 4.0
_SAMPLER = re.compile(r"temp(?:erature)?$|top_?[pk]$|greedy|decod", re.I)


def group(
    path: Path, numbers: dict[str, FloatArray], texts: Texts, recorded: Mapping[str, FloatArray],
    *, copies: bool, is_wide: bool, named: Mapping[str, Sequence[str]] = {},
) -> tuple[list[Curve], int]:  # fmt: skip
    """Curves by configuration and labels, and how many rows were copies of another.

    `named`: texts that `recorded` has by their numbers.
    """
    curves, n_copies = list[Curve](), 0
    for rows in _rows_of_runs(numbers, texts):
        text = {name: values[codes[rows[0]]] for name, (codes, values) in texts.items()}
        x = numbers["rollouts"][rows]
        for column in (c for c in SCORES if c in numbers):
            score = numbers[column][rows]
            if column != "score" and np.isnan(score).all():
                continue
            kept = ~np.isnan(score)
            n_missing = 0 if is_wide else int((~kept).sum())
            if not copies:
                first_K = _first_of_copies(x, score)
                n_copies += int((kept & ~first_K).sum())
                kept &= first_K
            if is_wide and not kept.any():
                continue
            every = {name: v[rows][kept] for name, v in recorded.items()}
            check_recorded(every, x[kept], path, named, has_runs="run" in texts)
            curves.append(_curve(numbers, text, column, rows, kept, n_missing=n_missing,
                                 recorded=_recorded(recorded, rows, named)))  # fmt: skip
    return curves, n_copies


def _rows_of_runs(numbers: Mapping[str, FloatArray], texts: Texts) -> list[NDArray[np.intp]]:
    """The rows of each run, by rollouts; runs by configuration, labels and seed."""
    keys: list[NDArray[Any]] = [numbers["problems_per_batch"], numbers["rollouts_per_problem"]]
    keys += [codes for codes, _ in texts.values()]
    if (seed := numbers.get("seed")) is not None:
        keys.append(np.where(np.isnan(seed), -(2.0**60), seed))  # below every seed
    order = np.lexsort((numbers["rollouts"], *reversed(keys)))
    changed = np.zeros(len(order) - 1, dtype=bool)
    for key in keys:
        changed |= np.diff(key[order]) != 0
    return np.split(order, np.flatnonzero(changed) + 1)


def _curve(
    numbers: Mapping[str, FloatArray], text: Mapping[str, str], column: str,
    rows: NDArray[np.intp], kept: NDArray[np.bool_], **more: Any,
) -> Curve:  # fmt: skip
    """One score of a run, of the rows that are kept."""
    first, at, seed = rows[0], rows[kept], numbers.get("seed")
    x = numbers["rollouts"][at]
    named = [name for name in ("tokens", "steps") if name in numbers]
    counted: dict[str, Any] = {f"{name}_K": numbers[name][at] for name in named}
    return Curve(
        problems_per_batch=int(numbers["problems_per_batch"][first]),
        rollouts_per_problem=int(numbers["rollouts_per_problem"][first]),
        run=text.get("run", ""),
        seed=None if seed is None or np.isnan(seed[first]) else int(seed[first]),
        rollouts_K=x,
        score_K=numbers[column][at],
        metric=text.get("metric", "") if column == "score" else column,
        problem_set=text.get("problem_set", ""),
        split=text.get("split", "") or "validation",
        arm=text.get("arm", ""),
        n_repeated=int((np.diff(x) == 0).sum()),
        **{name: values for name, values in counted.items() if not np.isnan(values).any()},
        **more,
    )


def _recorded(
    columns: Mapping[str, FloatArray], rows: NDArray[np.intp], named: Mapping[str, Sequence[str]]
) -> dict[str, float | str]:
    """What rows of one run say, where all of them say it; a rate's schedule by its largest."""
    said = {k: v[rows] for k, v in columns.items() if np.isfinite(v[rows]).all()}
    most = {k: float(v.max()) for k, v in said.items()
            if k == "learning_rate" or v.min() == v.max()}  # a coefficient that adapts is measured
    return {k: named[k][int(v)].strip() if k in named else v for k, v in most.items()}


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


def unread(
    others: pa.Table, runs: NDArray[np.int64], designs: Sequence[Design]
) -> dict[str, list[str]]:
    """Columns of which a run has one value, and that may divide the runs by recipe: these values.

    Args:
        others: the columns that were not read.
        runs: the run of each row: (rows,) numbers from 0.
        designs: of each run.
    """
    found = dict[str, list[str]]()
    first = np.unique(runs, return_index=True)[1]  # a row of each run
    for name in others.column_names if len(first) < len(runs) == others.num_rows else ():
        code, words = texts_of(others, name)
        if len(words) > len(first):
            continue  # it changes within a run
        plain = [plain_value(word.strip()) for word in words]
        _, at, back = np.unique(plain, return_index=True, return_inverse=True)
        own = at[back.reshape(-1)][code]
        of_runs = own[first]
        of = defaultdict[int, list[Design]](list)
        for one, design in zip(of_runs.tolist(), designs, strict=True):
            of[one].append(design)
        few = 1 < len(of) < len(first)  # another in every run: their name
        if few and (of_runs[runs] == own).all() and may_be_recipes(of.values()) and not all(
            _is_date(words[one].strip() or "2000-01-01") for one in of
        ):
            found[name.strip()] = sorted({words[one].strip() for one in of})
    return found


def _is_date(text: str) -> bool:
    """Whether it is a date or a time, which no recipe is."""
    with contextlib.suppress(ValueError):
        return bool(datetime.datetime.fromisoformat(text))
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
    there = np.ones(len(same), dtype=bool) if score is None else np.isfinite(score)
    for name in others.column_names:
        code, words = texts_of(others, name)
        pairs = np.stack([same, code])[:, there]
        of_epochs = _EPOCH.fullmatch(name.strip()) is not None
        few = of_epochs or len(words) <= len(same) / _LEAST_ROWS
        if not few or len(words) < 2 or len(np.unique(pairs, axis=1).T) < len(pairs.T):
            continue
        each = f"add --map {shlex.quote(f'{name}=run')} if each of its values is a run of its own"
        if of_epochs:
            raise InputError(
                f"{path}: steps must count on, but those of a run begin anew with every {name}; "
                "add the updates of the epochs before it to each, or give a column of rollouts. "
                f"If {name} counts passes over one batch, choose one with --where {name}=NUMBER.",
                trial=("--where", f"{name}={words[-1]}"),
            )
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
