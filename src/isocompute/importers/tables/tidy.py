"""Tidy curves: CSV or Parquet, one row per evaluation (the contract of the design page)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.beside.listed import tables_of
from isocompute.importers.runs.repetitions import Named, refuse_two_sweeps
from isocompute.importers.tables import beside, cells, checks
from isocompute.importers.tables.columns import (
    DRAWN,
    NUMBERS,
    REQUIRED,
    SETTINGS,
    TEXTS,
    UNIT,
    Scores,
    columns_meant,
    not_there,
    plain_name,
)
from isocompute.importers.tables.curves import group, of_evaluations, told_apart
from isocompute.importers.tables.table import (
    Naming,
    has_percent_signs,
    numbers_of,
    read_table,
    recorded_columns,
    rows_where,
    scores_of,
    table_in_memory,
    texts_of,
)
from isocompute.importers.tables.wide import turned, without_padding
from isocompute.importers.words.called import LOG2, counts_problems
from isocompute.importers.words.configuration import MODELS, configuration
from isocompute.importers.words.paths import Measured, measured
from isocompute.importers.words.plain_words import RESPONSES
from isocompute.importers.words.scale import PLAIN, are_percent, of_errors, require_range
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.vocabulary import MEASURED_AT
from isocompute.store.arms import matches, no_match

if TYPE_CHECKING:
    import pyarrow as pa

_MEASURED = "measured_at"  # what a column that says it goes by
IN_MEMORY = "the table"  # what messages call one that has no path


def load_tidy(
    path: str | Path,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Curve]:
    """Read tidy curves.

    Args:
        path: a .csv, .tsv (or packed, .gz) or .parquet file with the columns of the design page or
            `recipe.RECORDED`. Where `steps` (or `step`) is there and `rollouts` is not, the
            rollouts are B_p * n * steps.
        score_range: what scores may be; they are rescaled from it to 0..1.
        where: column -> value that its rows must have, see `store.arms.matches`.
        settings: what the table does not say: B_p, n and the seed that all its rows share (also
            found in the file's name by `pattern`); `columns` maps names of its own to those of
            the design page, or to a metric; where the names of columns match `pattern`, each of
            them holds the scores of one configuration.

    Returns:
        One Curve per (configuration, run, seed, metric, problem set, split, arm), rows in order of
        rollouts; of rows that are the same twice one counts. Columns `best` and `worst` become
        curves of the metrics "best" and "worst".

    Raises:
        InputError: names the row and the value that breaks the contract.
    """
    path = Path(path)
    settings = (settings or Settings()).for_path(path)
    of = measured(path) if path.is_file() else Measured()
    settings = replace(
        settings, split=settings.split or of.split or None,
        problem_set=settings.problem_set or of.problem_set or None,
    )
    if path.is_file() and ".parquet" not in path.name:
        settings = beside.with_block(path, settings)
    if path.is_file():
        settings = beside.with_configuration(path, settings, say)
    return curves_of(path, score_range, where or {}, settings, say=say)


def load_table(
    table: Any,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Curve]:
    """Tidy curves of a table in memory: of pandas, polars, Arrow, or what else Arrow reads.

    Args:
        table: has `__arrow_c_stream__`, and the columns that a file would have.
        score_range, where, settings, say: see `load_tidy`.

    Raises:
        InputError: as `load_tidy`; rows are counted from 1.
    """
    read = partial(table_in_memory, table)
    settings = settings or Settings()
    return curves_of(Path(IN_MEMORY), score_range, where or {}, settings, say=say, read=read)


def curves_of(
    path: Path,
    score_range: tuple[float, float],
    where: Mapping[str, str],
    settings: Settings,
    *,
    copies: bool = False,
    say: Callable[[str], None] | None = None,
    read: Callable[[Path, Naming], pa.Table] = read_table,
) -> list[Curve]:
    """Curves of a table; `copies` keeps rows that are the same twice."""
    header: list[str] = []
    scores: list[Scores] = []
    goes_by: dict[str, str] = {}

    def naming(columns: list[str]) -> dict[str, str]:
        header.extend(columns)
        names, found = columns_meant(path, columns, settings)
        scores.extend(found)
        names |= {c: c.strip() for c in columns if c.strip() in where and c not in names}
        if not names:
            unsaid = [name for name in REQUIRED if getattr(settings, name, None) is None]
            raise not_there(path, unsaid, header, settings)
        more = (c for c in columns if plain_name(c.strip()) in MODELS or counts_problems(c))
        names |= {c: c.strip() for c in more if c not in names}
        if "steps" in names.values() and settings.step is None:
            at = (c for c in columns if c not in names and MEASURED_AT.search(plain_name(c)))
            names |= dict.fromkeys([*at][:1], _MEASURED)
        goes_by.update({name: column for column, name in names.items()})
        checks.check_rivals(header, names, path)
        cells.check_units(goes_by, path)
        if not (scores or "score" in goes_by):  # before a cell is read: all that will be asked for
            raise not_there(path, _unsaid(goes_by, settings, path), header, settings)
        return names

    filled_by = list[str]()
    table = _select(cells.filled_down(read(path, naming), filled_by), where, path)
    if filled_by and say is not None:
        say(f"{path}: {filled_by[0]}")
    if table.num_rows == 0:
        raise InputError(f"{path}: a tidy file needs at least 1 row, but it has none; add rows.")
    there = set(table.column_names)
    models = [c for c in table.column_names if plain_name(c) in MODELS and c not in where]
    score_of = partial(scores_of, path=path, score_range=score_range)
    numbers = {name: numbers_of(table, name, path) for name in NUMBERS if name in there}
    numbers |= {name: score_of(table, name) for name in checks.SCORES if name in there}
    cells.from_logarithms(numbers, goes_by, path)
    units = texts_of(table, UNIT) if UNIT in there else None
    texts = {name: texts_of(table, name) for name in TEXTS if name in there}
    for name in models:
        at = next((numbers[key] for key in ("rollouts", "steps") if key in numbers), None)
        checks.check_one_model(name, *texts_of(table, name), at, path, "run" in there)
    recorded = recorded_columns(table, path)
    if (is_turned := any(one.step is not None for one in scores)):
        numbers, texts, recorded, told = turned(
            table, scores, numbers, texts, recorded, path, score_range
        )
        scores = []
        if told and say is not None:
            say(f"{path}: {told}")
    curves, n_copies = list[Curve](), 0
    for one in scores or [Scores("score", settings)]:
        mine, rows = dict(numbers), len(next(iter(numbers.values()), np.zeros(table.num_rows)))
        words = dict(texts)
        signs = has_percent_signs(table, one.column)
        if one.column in there:
            mine["score"] = score_of(table, one.column)
        called = goes_by.get(one.column, "").strip()
        if "score" in mine and not signs and are_percent(called, mine["score"], score_range):
            mine["score"], signs = mine["score"] / 100, True
        mapped = settings.columns.get(called)
        if mapped is not None and mapped.errors:
            mine["score"] = of_errors(mine["score"], f"{path}: {called}")
        for name in ("run", "problem_set", "split"):
            if name not in words and (word := getattr(one.settings, name)) is not None:
                words[name] = (np.zeros(rows, dtype=np.int64), [word])
        beside.from_names(mine, words, one.settings)
        first = one in scores[:1] or not one.is_wide
        beside.from_table_beside(mine, words, path, say if first else None)
        for name in SETTINGS:
            value = getattr(one.settings, name)
            if name not in mine and value is not None:
                mine[name] = np.full(rows, float(value))
        beside.from_responses(mine, path, None if is_turned else units)
        beside.from_problems(mine, one.settings, path)
        if "steps" in mine and "rollouts" not in mine and set(SETTINGS[:2]) <= set(mine):
            mine["rollouts"] = (
                mine["problems_per_batch"] * mine["rollouts_per_problem"] * mine["steps"]
            )
        for column in (c for c in table.column_names if counts_problems(c) and not is_turned):
            if column not in where and "score" in mine:
                checks.check_problems(column, numbers_of(table, column, path), mine, words, path)
        filled = 0
        if _MEASURED in goes_by and {"score", "steps"} <= set(mine) and not is_turned:
            at = numbers_of(table, _MEASURED, path)
            of_runs = [*(mine[name] for name in SETTINGS if name in mine),
                       *(codes.astype(np.float64) for codes, _ in words.values())]  # fmt: skip
            filled = cells.own_scores(mine, of_runs, at, goes_by["steps"], goes_by[_MEASURED], path)
            if filled and say is not None:
                say(f"{path}: {filled} rows repeat a score that {goes_by[_MEASURED]} says is of "
                    "another row, and are left out")  # fmt: skip
        if missing := [name for name in REQUIRED if name not in mine]:
            raise not_there(path, missing, header, settings)
        checks.check_numbers(mine, path, score_range, goes_by.get("rollouts", "rollouts").strip())
        cells.check_rounded(table, mine, path)
        cells.check_filled(mine, words, path)
        if not where:
            cells.check_end(mine, path)
        cells.check_prompts(mine, path, goes_by.get("problems_per_batch", "").strip())
        if not signs:
            require_range(called, mine["score"], score_range, str(path))
        low, high = score_range
        mine |= {name: (mine[name] - low) / (high - low) for name in set(checks.SCORES) & set(mine)}
        if one.metric is not None:
            words["metric"] = (np.zeros(rows, dtype=np.int64), [one.metric])
        is_wide = one.is_wide or filled > 0
        found, dropped = group(path, mine, words, recorded, copies=copies, is_wide=is_wide)
        said = (0.0, 100.0) if signs and score_range == PLAIN else score_range
        curves += [c.replace(score_range=said) for c in found]
        n_copies += dropped
    if n_copies and say is not None:
        say(f"{path}: {n_copies} rows are copies of another row of their run and count once")
    if repeated := sum(c.n_repeated for c in curves):
        others = {c: c for c in header if c.strip() and c not in goes_by.values()}
        chosen = {goes_by.get(name, name): name for name in where}
        told = told_apart(
            _select(read(path, lambda _: {**others, **chosen}), where, path).select([*others]),
            [*(v for k, v in numbers.items() if k not in checks.SCORES),
             *(c for c, _ in texts.values())],
            mine["score"] if len(scores) < 2 and "score" in mine else None, path,
        ) if others else ""  # fmt: skip
        if say is not None:
            say(
                f"{path}: {repeated} rows stand at rollouts for which their run has another score; "
                f"all count, as further evaluations of it{told}"
            )
    checks.check_configurations(curves, path)
    if (empty := sum(not c.score_K.size for c in curves)) and say is not None:
        say(f"{path}: {empty} run{'s hold' if empty > 1 else ' holds'} no score; left out")
    curves = without_padding([c for c in curves if c.score_K.size], settings, path, say, is_turned)
    if (rate := settings.learning_rate) is not None:
        curves = [c.replace(recorded={"learning_rate": rate, **c.recorded}) for c in curves]
    if "learning_rate" not in where:
        checks.check_one_rate(curves, path)
    if "run" not in where:
        of = [(c.metric, c.problem_set, f"{c.split} {c.arm}") for c in curves]
        refuse_two_sweeps(
            Named(c.run, (c.problems_per_batch, c.rollouts_per_problem, c.seed), frozenset([one]))
            for c, one in zip(curves, of, strict=True) if c.run
        )
    return of_evaluations(curves, path, say)


def _unsaid(there: Mapping[str, str], settings: Settings, path: Path) -> list[str]:
    """What a table must hold, and neither its columns nor the settings say."""
    if "run" in there and path.is_file():
        rows = [configuration(row) for file, table in tables_of(path.parent).items()
                for row in table.values() if file != path.name]  # fmt: skip
        said = [name for name in SETTINGS if rows and all(getattr(row, name) for row in rows)]
        there = {**there, **dict.fromkeys(said, "")}
    missing = [n for n in REQUIRED if n not in there and getattr(settings, n, None) is None]
    made = {"problems_per_batch": RESPONSES, **{name: log for log, name in LOG2.items()}}
    if settings.pattern is not None and "run" in there:
        made |= {n: "run" for n in SETTINGS if f"{{{n}}}" in settings.pattern}
    missing = [n for n in missing if made.get(n) not in there]
    epochs = "epochs" in there and settings.training_problems is not None
    counts = "steps" in there or DRAWN in there or epochs
    if "rollouts" in missing and counts and not set(SETTINGS) & set(missing):
        missing.remove("rollouts")
    return missing


def _select(table: pa.Table, where: Mapping[str, str], path: Path) -> pa.Table:
    """The rows that a selection leaves."""
    for name, wanted in where.items():
        if name not in table.column_names:
            raise InputError(
                f"{path}: a selection must name a column, but there is no {name!r}; add it, or "
                "choose another."
            )
        codes, texts = texts_of(table, name)
        fits = np.array([matches(text.strip(), wanted) for text in texts], dtype=bool)
        if not fits.any():
            raise no_match(str(path), name, wanted, sorted(texts))
        table = rows_where(table, fits[codes])
    return table
