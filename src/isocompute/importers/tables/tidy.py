"""Tidy curves: CSV or Parquet, one row per evaluation (the contract of the design page)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute.domain import Curve
from isocompute.domain.text import some_of
from isocompute.errors import InputError
from isocompute.importers.runs.repetitions import Named, along_with_seeds, refuse_two_sweeps
from isocompute.importers.tables import beside, cells, checks, ranges
from isocompute.importers.tables.columns import REQUIRED, Scores, not_there
from isocompute.importers.tables.curves import group, of_evaluations, told_apart, unread
from isocompute.importers.tables.table import (
    FloatArray,
    has_percent_signs,
    numbers_of,
    read_table,
    scores_of,
    table_in_memory,
)
from isocompute.importers.tables.taken import (
    MEASURED,
    Say,
    Taken,
    of_recipe,
    others_of,
    take_columns,
    take_rows,
    turn,
)
from isocompute.importers.tables.wide import Texts, without_padding
from isocompute.importers.values.headers import has_lines
from isocompute.importers.values.imported import DESIGN
from isocompute.importers.values.reading import anew
from isocompute.importers.words.called import counts_problems, counts_so_far, mapping
from isocompute.importers.words.names import recipe_in
from isocompute.importers.words.paths import Measured, measured
from isocompute.importers.words.plain_words import GROUPS, plain_name
from isocompute.importers.words.scale import PLAIN, are_percent, of_errors, require_range
from isocompute.importers.words.settings import Settings
from isocompute.recipe import RECORDED

if TYPE_CHECKING:
    from isocompute.importers.tables.taken import Read

_OF_N = ("num_generations", *GROUPS)  # columns that say n, and nothing else
IN_MEMORY = "the table"  # what messages call one that has no path


@anew
def load_tidy(
    path: str | Path,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    where: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    say: Say | None = None,
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
        settings, split=settings.split or (not of.beside and of.split) or None,
        problem_set=settings.problem_set or of.problem_set or None,
    )
    if has_lines(path):
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
    say: Say | None = None,
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
    path: Path, score_range: tuple[float, float], where: Mapping[str, str], settings: Settings,
    *, copies: bool = False, say: Say | None = None, read: Read = read_table,
) -> list[Curve]:
    """Curves of a table; `copies` keeps rows that are the same twice."""
    t = Taken(path=path, score_range=score_range, where=where, settings=settings,
              say=say or (lambda _: None))  # fmt: skip
    take_rows(t, read)
    take_columns(t)
    _refuse_another_n(t, read)
    turn(t)
    curves, n_copies, score = list[Curve](), 0, None
    for one in t.scores or [Scores("score", settings)]:
        found, dropped, score = _of_column(t, one, copies)
        curves += found
        n_copies += dropped
    if n_copies:
        t.say(f"{path}: {n_copies} rows are copies of another row of their run and count once")
    _tell_repeated(t, read, sum(c.n_repeated for c in curves), score)
    curves = _of_runs(t, curves)
    _tell_unread(t, read, curves)
    return of_evaluations(curves, path, say)


def _refuse_another_n(t: Taken, read: Read) -> None:
    """Refuse a table of one n, as its name or a file beside it says, whose rows say another, too.

    Raises:
        InputError: with the column, and what it has.
    """
    n = t.settings.rollouts_per_problem
    columns = [c for c in t.header if plain_name(c.strip()) in _OF_N
               and c not in t.goes_by.values()]  # fmt: skip
    for column in columns if n is not None and DESIGN[1] not in t.numbers else ():
        cells_R = numbers_of(read(t.path, partial(_alone, column)), column, t.path)
        said = np.unique(cells_R[np.isfinite(cells_R)]).tolist()
        if n in said and len(said) > 1:
            raise InputError(
                f"{t.path}: a run must have one n, but {column.strip()} is "
                f"{' and '.join(f'{one:g}' for one in said[:3])}: no curve holds both; leave the "
                f"table out, or add {mapping(column.strip(), DESIGN[1])} if its rows are of "
                "several runs."
            )


def _alone(column: str, _: Sequence[str]) -> dict[str, str]:
    """A column under its own name."""
    return {column: column}


def _of_column(t: Taken, one: Scores, copies: bool) -> tuple[list[Curve], int, FloatArray]:
    """Curves of one column of scores, how many rows were copies, and the scores in 0..1."""
    mine, words = dict(t.numbers), dict(t.texts)
    count = len(next(iter(mine.values()), np.zeros(t.rows.num_rows)))
    called = t.goes_by.get(one.column, "").strip()
    is_percent = _take_score(t, one, mine, called)
    _take_what_is_said(t, one, mine, words, count)
    _take_compute(t, one, mine)
    if not t.is_turned and "score" in mine:
        for name in t.rows.column_names:
            if counts_problems(name) and name not in t.chosen:
                checks.check_problems(name, numbers_of(t.rows, name, t.path), mine, words, t.path)
            if counts_so_far(name):
                checks.check_counted(name, numbers_of(t.rows, name, t.path), mine,
                                     t.goes_by.get(DESIGN[0], "").strip(), t.path)  # fmt: skip
    filled = _empty_repeats(t, mine, words)
    _check(t, mine, words)
    if not is_percent:
        require_range(called + t.above, mine["score"], t.score_range, str(t.path))
    low, high = t.score_range
    mine |= {name: (mine[name] - low) / (high - low) for name in {*ranges.SCORES} & mine.keys()}
    if one.metric is not None:
        words["metric"] = (np.zeros(count, dtype=np.int64), [one.metric])
    curves, dropped = group(t.path, mine, words, t.recorded, copies=copies,
                            is_wide=one.is_wide or filled > 0, named=t.values)  # fmt: skip
    said = (0.0, 100.0) if is_percent and t.score_range == PLAIN else t.score_range
    return [c.replace(score_range=said) for c in curves], dropped, mine["score"]


def _take_score(t: Taken, one: Scores, mine: dict[str, FloatArray], called: str) -> bool:
    """Take the scores of a column, as shares where it has percent; whether it has."""
    is_percent = has_percent_signs(t.rows, one.column)
    if one.column in t.rows.column_names:
        mine["score"] = scores_of(t.rows, one.column, t.path, t.score_range)
    named = called + t.above
    if "score" in mine and not is_percent and are_percent(named, mine["score"], t.score_range):
        mine["score"], is_percent = mine["score"] / 100, True
    mapped = t.settings.columns.get(called)
    if mapped is not None and mapped.errors:
        mine["score"] = of_errors(mine["score"], f"{t.path}: {called}")
    return is_percent


def _take_what_is_said(
    t: Taken, one: Scores, mine: dict[str, FloatArray], words: Texts, count: int
) -> None:
    """Take what settings, the names of runs and a table beside this one say of all rows."""
    for name in ("run", "problem_set", "split"):
        if name not in words and (word := getattr(one.settings, name)) is not None:
            words[name] = (np.zeros(count, dtype=np.int64), [word])
    beside.from_names(mine, words, one.settings)
    is_first = one in t.scores[:1] or not one.is_wide  # what is read beside is said once
    say = t.say if is_first else None
    beside.from_table_beside(mine, words, t.recorded, t.path, t.values, say)
    for name in DESIGN:
        value = getattr(one.settings, name)
        if name not in mine and value is not None:
            mine[name] = np.full(count, float(value))


def _take_compute(t: Taken, one: Scores, mine: dict[str, FloatArray]) -> None:
    """Make B_p of batches, updates of problems, and rollouts of updates, where it lacks them."""
    beside.from_responses(mine, t.path, t.units)
    beside.from_problems(mine, one.settings, t.path)
    if "steps" in mine and "rollouts" not in mine and set(DESIGN[:2]) <= set(mine):
        if (ticks := one.settings.num_iterations) is not None:  # the column counts the optimizer's
            mine["steps"] = np.ceil(mine["steps"] / ticks)
        elif t.settings.step is None:
            ranges.refuse_rollouts(mine, t.path, t.goes_by.get("steps", "steps").strip())
        mine["rollouts"] = ranges.batch_of(mine) * mine["steps"]


def _empty_repeats(t: Taken, mine: dict[str, FloatArray], words: Texts) -> int:
    """Empty scores that a column says are of another row; how many."""
    if t.is_turned or MEASURED not in t.goes_by or not {"score", "steps"} <= set(mine):
        return 0
    at, key = numbers_of(t.rows, MEASURED, t.path), t.goes_by[MEASURED]
    of_runs = [*(mine[name] for name in DESIGN if name in mine),
               *(codes.astype(np.float64) for codes, _ in words.values())]  # fmt: skip
    filled = cells.own_scores(mine, of_runs, at, t.goes_by["steps"], key, t.path)
    if filled:
        t.say(f"{t.path}: {filled} rows repeat a score that {key} says is of another row, and are "
              "left out")  # fmt: skip
    return filled


def _check(t: Taken, mine: dict[str, FloatArray], words: Texts) -> None:
    """Refuse what is not there, out of range, or filled in by whoever made the table."""
    if missing := [name for name in REQUIRED if name not in mine]:
        raise not_there(t.path, missing, t.header, t.settings)
    called = t.goes_by.get("rollouts", "rollouts").strip()
    ranges.check_numbers(mine, t.path, t.score_range, called)
    cells.check_rounded(t.rows, mine, t.path)
    cells.check_filled(mine, words, t.path)
    if not t.where:
        cells.check_end(mine, t.path)
    cells.check_prompts(mine, t.path, t.goes_by.get("problems_per_batch", "").strip())


def _tell_repeated(t: Taken, read: Read, repeated: int, score: FloatArray | None) -> None:
    """Say that runs have several scores at one budget, and what else tells them apart."""
    if not repeated:
        return
    told = ""
    if (others := others_of(t, read)) is not None:
        keys = [*(v for k, v in t.numbers.items() if k not in ranges.SCORES),
                *(codes for codes, _ in t.texts.values())]  # fmt: skip
        told = told_apart(others, keys, score if len(t.scores) < 2 else None, t.path)
    t.say(f"{t.path}: {repeated} rows stand at rollouts for which their run has another score; "
          f"all count, as further evaluations of it{told}")  # fmt: skip


def _tell_unread(t: Taken, read: Read, curves: list[Curve]) -> None:
    """Say which columns that were not read may tell recipes apart among repetitions."""
    of = Counter((c.configuration, c.metric, c.problem_set, c.split, c.arm) for c in curves)
    if t.is_turned or max(of.values(), default=0) < 2 or not {*DESIGN[:2]} <= t.numbers.keys():
        return
    if (others := others_of(t, read, len(curves))) is None:
        return
    runs, of_rows = np.zeros(others.num_rows, dtype=np.int64), dict[str, list[int | None]]()
    columns = {**t.numbers, **{name: codes for name, (codes, _) in t.texts.items()}}
    for name in (name for name in (*DESIGN, "run", "arm") if name in columns):
        if len(columns[name]) == len(runs):
            values, own = np.unique(columns[name], return_inverse=True)
            own = own.reshape(-1)
            runs = np.unique(runs * len(values) + own, return_inverse=True)[1].reshape(-1)
            codes = [i if known else None for i, known in enumerate(np.isfinite(values).tolist())]
            of_rows[name] = [codes[i] for i in own.tolist()]
    if not {*DESIGN[:2]} <= of_rows.keys():
        return
    seeds = of_rows.get(DESIGN[2], [None] * len(runs))
    first = np.unique(runs, return_index=True)[1].tolist()
    designs = [(*(of_rows[name][i] for name in DESIGN[:2]), seeds[i]) for i in first]
    others = others.select([c for c in others.column_names
                            if c.strip() not in t.chosen and "seed" not in c.lower()])  # fmt: skip
    if found := unread(others, runs, designs):
        listed = [f"{name} ({', '.join(value or 'none' for value in values[:3])})"
                  for name, values in found.items()]  # fmt: skip
        name, value = next(iter(found)), next(filter(None, next(iter(found.values()))))
        word = shlex.quote(f"{name}={value}")
        t.say(f"{t.path}: runs that differ in {some_of(listed, 3)} count as repetitions; if that "
              f"makes another recipe, choose with --where {word}")  # fmt: skip


def _of_runs(t: Taken, curves: list[Curve]) -> list[Curve]:
    """Curves that hold scores, each of one run of one sweep."""
    checks.check_configurations(curves, t.path)
    if empty := sum(not c.score_K.size for c in curves):
        t.say(f"{t.path}: {empty} run{'s hold' if empty > 1 else ' holds'} no score; left out")
    curves = [c for c in curves if c.score_K.size]
    curves = without_padding(curves, t.settings, t.path, t.say, t.is_turned)
    if (rate := t.settings.learning_rate) is not None:
        curves = [c.replace(recorded={"learning_rate": rate, **c.recorded}) for c in curves]
    curves = [c.replace(recorded={**_named_recipe(t.path, c.run), **c.recorded}) for c in curves]
    curves = of_recipe(curves, t.where, t.path, t.rows.column_names)
    checks.check_one_recipe(curves, t.path, t.chosen)
    if "run" not in t.chosen:
        of = [(c.metric, c.problem_set, f"{c.split} {c.arm}") for c in curves]
        named = [
            Named(c.run, (c.problems_per_batch, c.rollouts_per_problem, c.seed), frozenset([one]))
            for c, one in zip(curves, of, strict=True) if c.run
        ]
        refuse_two_sweeps(named)
        for line in along_with_seeds(named):
            t.say(f"{t.path}: {line}")
    return curves


def _named_recipe(path: Path, run: str) -> dict[str, float]:
    """Numbers of a recipe that the name of a run says, or of its table."""
    said = recipe_in(f"{path.name}/{run}")
    return {word: float(value) for word, value in said.items() if word in RECORDED}
