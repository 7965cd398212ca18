"""What is taken of a table of curves: the rows that are chosen, and what their columns say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.beside.listed import tables_of
from isocompute.importers.tables import cells, checks
from isocompute.importers.tables.columns import (
    DRAWN,
    NUMBERS,
    REQUIRED,
    STEPS,
    TEXTS,
    UNIT,
    Scores,
    cells_seen,
    columns_meant,
    makes_a_recipe,
    not_there,
    texts_seen,
)
from isocompute.importers.tables.ranges import SCORES
from isocompute.importers.tables.table import (
    FloatArray,
    Naming,
    numbers_of,
    recorded_columns,
    rows_where,
    scores_of,
    texts_of,
)
from isocompute.importers.tables.wide import Texts, turned
from isocompute.importers.values.headers import has_lines, head_of
from isocompute.importers.values.imported import DESIGN
from isocompute.importers.words.called import LOG2, counts_problems, counts_so_far
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.plain_words import RESPONSES, plain_name
from isocompute.importers.words.scale import TITLED, are_percent
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.vocabulary import MEASURED_AT
from isocompute.recipe import RECORDED, SHARED
from isocompute.store.arms import chosen, idle, matches, no_match

if TYPE_CHECKING:
    import pyarrow as pa

    from isocompute.domain import Curve

    Read = Callable[[Path, Naming], pa.Table]

Say = Callable[[str], None]
_BESIDE = (*RECORDED, *SHARED)  # what a table beside may say
MEASURED = "measured_at"  # what a column that says it goes by


@dataclass(kw_only=True)
class Taken:
    """A table on its way to curves: what is asked of it, and what was taken of it."""

    path: Path
    score_range: tuple[float, float]
    where: Mapping[str, str]
    settings: Settings
    say: Say
    header: list[str] = field(default_factory=list)
    goes_by: dict[str, str] = field(default_factory=dict)  # a name of ours -> the table's own
    scores: list[Scores] = field(default_factory=list)  # columns of them with names of their own
    rows: pa.Table = field(init=False)
    numbers: dict[str, FloatArray] = field(init=False)
    texts: Texts = field(init=False)
    recorded: dict[str, FloatArray] = field(init=False)
    otherwise: list[str] = field(default_factory=list)  # columns that make another recipe
    values: dict[str, list[str]] = field(default_factory=dict)  # theirs, by number in `recorded`
    units: tuple[NDArray[np.int64], list[str]] | None = None  # of its batches
    above: str = ""  # a title that says percent of its scores, of which some cannot be shares
    is_turned: bool = False  # `rows` has one for every run, the columns here one for every score

    @property
    def chosen(self) -> set[str]:
        """Of which columns it is said what is meant."""
        return chosen(self.where)


def take_rows(t: Taken, read: Read) -> None:
    """Take the rows that are meant, of the columns that are."""
    filled = list[str]()
    table = read(t.path, partial(_named, t))
    scores = {*SCORES, *(one.column for one in t.scores)}
    table = cells.without_widths(table, scores, filled)
    table = cells.filled_down(cells.with_base(table, scores, filled), filled)
    t.rows = select(table, t.where, t.path, t.say)
    for line in filled:
        t.say(f"{t.path}: {line}")
    if t.rows.num_rows == 0:
        raise InputError(f"{t.path}: a tidy file needs at least 1 row, but it has none; add rows.")


def _named(t: Taken, columns: list[str]) -> dict[str, str]:
    """Column -> the name that it goes by; all that will be asked for, before a cell is read."""
    t.header.extend(columns)
    names, found = columns_meant(t.path, columns, t.settings)
    t.scores.extend(found)
    names |= {c: c.strip() for c in columns if c.strip() in t.where and c not in names}
    own = {c.strip(): name for c, name in names.items() if c.strip() not in names.values()}
    t.where = {own.get(word, word): wanted for word, wanted in t.where.items()}
    if not names:
        unsaid = [name for name in REQUIRED if getattr(t.settings, name, None) is None]
        raise not_there(t.path, unsaid, t.header, t.settings)
    more = (c for c in columns if counts_problems(c) or counts_so_far(c))
    names |= {c: c.strip() for c in more if c not in names}
    if "steps" in names.values() and t.settings.step is None:
        at = (c for c in columns if c not in names and MEASURED_AT.search(plain_name(c)))
        names |= dict.fromkeys([*at][:1], MEASURED)
    t.goes_by.update({name: column for column, name in names.items()})
    t.otherwise = [c.strip() for c in columns if c not in names and makes_a_recipe(c)]
    names |= {c: c.strip() for c in columns if c.strip() in t.otherwise}
    checks.check_rivals(t.header, names, t.path)
    if t.settings.step is None and "rollouts" not in names.values():
        counters = [c for c in columns if names.get(c, "steps") == "steps"
                    and plain_name(c.strip()) in ("steps", *STEPS)]  # fmt: skip
        seen = cells_seen(t.path, t.header) if len(counters) > 1 else {}
        checks.refuse_two_counters({c: seen[c.strip()] for c in counters if seen}, t.path)
    cells.check_units(t.goes_by, t.path)
    if not (t.scores or "score" in t.goes_by):
        raise not_there(t.path, _unsaid(t.goes_by, t.settings, t.path), t.header, t.settings)
    return names


def others_of(t: Taken, read: Read, most: int | None = None) -> pa.Table | None:
    """The plain columns of the rows that are meant that nobody read; None without any.

    `most`: different values that they may have.
    """
    import pyarrow as pa

    others = {c: c for c in t.header if c.strip() and c not in t.goes_by.values()}
    if most is not None and (seen := texts_seen(t.path, t.header)):
        # a million measurements are not read to see that they differ
        others = {c: c for c in others if 0 < len({*seen[c.strip()]}) <= most}
    if not others:
        return None
    chosen = {t.goes_by.get(name, name): name for name in t.where}
    rows = select(read(t.path, lambda _: {**others, **chosen}), t.where, t.path)
    return rows.select([c for c in others if not pa.types.is_nested(rows[c].type)])


def take_columns(t: Taken) -> None:
    """Take numbers and texts of the rows."""
    there = set(t.rows.column_names)
    t.numbers = {name: numbers_of(t.rows, name, t.path) for name in NUMBERS if name in there}
    t.numbers |= {name: scores_of(t.rows, name, t.path, t.score_range)
                  for name in SCORES if name in there}  # fmt: skip
    cells.from_logarithms(t.numbers, t.goes_by, t.path)
    t.units = texts_of(t.rows, UNIT) if UNIT in there else None
    t.texts = {name: texts_of(t.rows, name) for name in TEXTS if name in there}
    t.recorded = recorded_columns(t.rows, t.path)
    for name in (name for name in t.otherwise if name not in t.chosen):
        codes, t.values[name] = texts_of(t.rows, name)
        t.recorded[name] = codes.astype(np.float64)
    title = head_of(t.path).title if has_lines(t.path) else ""
    columns = [name for name in ([one.column for one in t.scores] or ["score"]) if name in there]
    if TITLED.search(title) and any(are_percent(title, scores_of(
        t.rows, name, t.path, t.score_range), t.score_range) for name in columns):  # fmt: skip
        t.above = f" ({title})"
        t.say(f"{t.path}: scores beyond 1 are percent, as the line above its names says")


def turn(t: Taken) -> None:
    """Give every score a row, where the table has a column for every update."""
    if all(one.step is None for one in t.scores):
        return
    t.numbers, t.texts, t.recorded, told = turned(
        t.rows, t.scores, t.numbers, t.texts, t.recorded, t.path, t.score_range
    )
    t.scores, t.units, t.is_turned = [], None, True
    if told:
        t.say(f"{t.path}: {told}")


def _unsaid(there: Mapping[str, str], settings: Settings, path: Path) -> list[str]:
    """What a table must hold, and neither its columns nor the settings say."""
    if "run" in there and path.is_file():
        rows = [configuration(row) for file, table in tables_of(path.parent).items()
                for row in table.values() if file != path.name]  # fmt: skip
        said = [name for name in DESIGN if rows and all(getattr(row, name) for row in rows)]
        there = {**there, **dict.fromkeys(said, "")}
    missing = [n for n in REQUIRED if n not in there and getattr(settings, n, None) is None]
    made = {"problems_per_batch": RESPONSES, **{name: log for log, name in LOG2.items()}}
    if settings.pattern is not None and "run" in there:
        made |= {n: "run" for n in DESIGN if f"{{{n}}}" in settings.pattern}
    missing = [n for n in missing if made.get(n) not in there]
    epochs = "epochs" in there and settings.training_problems is not None
    counts = "steps" in there or DRAWN in there or epochs
    if "rollouts" in missing and counts and not set(DESIGN) & set(missing):
        missing.remove("rollouts")
    return missing


def of_recipe(
    curves: list[Curve], where: Mapping[str, str], path: Path, columns: Collection[str]
) -> list[Curve]:
    """The curves that a selection by words of the recipe leaves that are no columns."""
    for word in where.keys() & {*_BESIDE} - {*columns}:
        values = [c.recorded.get(word, "") for c in curves]
        said = [one if isinstance(one, str) else f"{one:.6g}" for one in values]
        if not any(said):
            raise _no_column(path, word)
        kept = [c for c, value in zip(curves, said, strict=True) if matches(value, where[word])]
        if not kept:
            raise no_match(str(path), word, where[word], sorted({*said}))
        curves = kept
    return curves


def _no_column(path: Path, name: str) -> InputError:
    return InputError(f"{path}: a selection must name a column, but there is no {name!r}; add it, "
                      "or choose another.")  # fmt: skip


def select(
    table: pa.Table, where: Mapping[str, str], path: Path, say: Say | None = None
) -> pa.Table:
    """The rows that a selection leaves."""
    for name, wanted in where.items():
        if name not in table.column_names:
            if name in _BESIDE:
                continue  # a table beside it may say that: see `of_recipe`
            raise _no_column(path, name)
        codes, texts = texts_of(table, name)
        fits = np.array([matches(text.strip(), wanted) for text in texts], dtype=bool)
        if not fits.any():
            raise no_match(str(path), name, wanted, sorted(texts))
        if say is not None:
            for line in idle(str(path), name, wanted, texts):
                say(line)
        table = rows_where(table, fits[codes])
    return table
