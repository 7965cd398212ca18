"""What the cells of a tidy table tell that their numbers do not: units, rounding, merged cells."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute.errors import InputError
from isocompute.importers.tables.table import (
    FloatArray,
    as_numpy,
    descriptions,
    lacking,
    rows_where,
)
from isocompute.importers.values.cells import ends_within_line, means_of, of_means
from isocompute.importers.values.imported import DESIGN, UnclearError
from isocompute.importers.values.reading import number
from isocompute.importers.words.called import LOG2, refuse_logarithm
from isocompute.importers.words.scale import MOST_ROLLOUTS

if TYPE_CHECKING:
    import pyarrow as pa

# Thousands and the like in the name of a column: "rollouts (k)", "Steps (x10)", "tokens [M]".
_UNIT = re.compile(
    r"thousand|million|billion|[(\[]\s*(?:[x\u00d7*]\s*)?(?:k|m|b|10+|1e[0-9]+)\s*[)\]]", re.I
)
# A number of three digits as spreadsheets show it: 1.02E+06.
_SHOWN = r"^\s*[0-9][.,][0-9]{2}[eE]\+[0-9]{1,3}\s*$"
_SIGNS = r"[\x{b1}+\\(\[]"  # of a width behind a mean
_OF_RUNS = ("run", "seed", "rollouts_per_problem", "problems_per_batch")
_OF_EVALUATION = ("steps", "rollouts", "tokens", "problem_set", "metric", "split", "measured_at",
                  "problems_drawn")  # fmt: skip
FILL = "fill empty cells down, as merged ones are saved"
NO_RUN = f"{FILL}; drop rows of no run (the base model's are kept if they say step 0)"


def check_units(goes_by: Mapping[str, str], path: Path) -> None:
    """Refuse counts in a column that is named for thousands or tens of them.

    Raises:
        InputError: names the column.
    """
    for name in ("rollouts", "steps", "tokens"):
        column = goes_by.get(name, "").strip()
        if _UNIT.search(column):
            raise InputError(
                f"{path}: {name} must be plain counts, but the column {column!r} names a unit; "
                "multiply it out under a name of its own, and map that."
            )


def check_rounded(table: pa.Table, numbers: Mapping[str, FloatArray], path: Path) -> None:
    """Refuse rollouts as a spreadsheet shows large numbers, where no whole batches make them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = numbers["problems_per_batch"] * numbers["rollouts_per_problem"]
    part = numbers["rollouts"] / batch
    broken = part % 1 != 0
    if not broken.any() or "rollouts" not in table.column_names or not pa.types.is_string(
        (cells := table.column("rollouts")).type
    ):
        return
    shown = as_numpy(pc.match_substring_regex(cells, _SHOWN), 0)
    if (rounded := shown & broken).any():
        row = int(rounded.argmax())
        raise InputError(
            f"{path}: rollouts must be exact, but row {row + 1} has {cells[row].as_py().strip()}, "
            f"as a spreadsheet shows it in three digits ({part[row]:.1f} batches of "
            f"{batch[row]:.0f}); show those cells as whole numbers and save the table again, or "
            "give a column of steps in place of rollouts."
        )


def from_logarithms(
    numbers: dict[str, FloatArray], goes_by: Mapping[str, str], path: Path
) -> None:
    """Take B_p and n from the logarithms that a map names; one under the name of a count stops it.

    Args:
        numbers: columns of the table, (rows,); changed in place.
        goes_by: name -> the file's own name of its column.
        path: of the table.

    Raises:
        UnclearError: a column that is mapped to a count seems to hold its logarithm.
    """
    told = descriptions(path)
    for log, name in LOG2.items():
        column = goes_by.get(name, name)
        if name in numbers and (column.strip() != name or column in told):
            values = np.unique(numbers[name]).tolist()
            refuse_logarithm(column.strip(), name, values, str(path), told.get(column, ""))
        if (power := numbers.pop(log, None)) is not None and name not in numbers:
            numbers[name] = np.exp2(np.where(power <= np.log2(MOST_ROLLOUTS), power, np.nan))


def own_scores(
    numbers: dict[str, FloatArray], runs: Sequence[NDArray[Any]], at: FloatArray, step: str,
    key: str, path: Path,
) -> int:
    """Empty the scores that were measured at another row's update; how many there are.

    Args:
        numbers: columns of the table, (rows,); changed in place.
        runs: what tells its runs apart, (rows,) each.
        at: the update at which each score was measured, (rows,).
        step, key: the file's own names of its steps and of that column.
        path: of the table.

    Raises:
        UnclearError: a score stands at an update at which it was not measured, and not there.
    """
    score, steps = numbers["score"], numbers["steps"]
    other = ~np.isnan(score) & ~np.isnan(at) & (at != steps)
    if not other.any():
        return 0
    own = ~np.isnan(score) & (at == steps)
    keys = np.stack([*(np.nan_to_num(of, nan=-1) for of in runs), at, score], axis=1)
    measured = set(map(tuple, keys[own].tolist()))
    lost = [row for row in np.flatnonzero(other) if tuple(keys[row].tolist()) not in measured]
    if lost:
        row = lost[0]
        raise UnclearError(
            f"{path}: one column must count updates, but {step} says {steps[row]:g} where {key} "
            f"says {at[row]:g}; choose with --set {shlex.quote(f'step={key}')} or --set "
            f"{shlex.quote(f'step={step}')}."
        )
    numbers["score"] = np.where(other, np.nan, score)
    return int(other.sum())


def check_prompts(numbers: Mapping[str, FloatArray], path: Path, called: str) -> None:
    """Refuse a batch size that counts responses where B_p is asked for.

    Args:
        numbers: columns of the table, (rows,).
        path: of the table, for the message.
        called: the column's own name.

    Raises:
        InputError: if a column that is named for a batch is the same multiple of every n.
    """
    if "batch" not in called or called == "problems_per_batch":
        return
    n = numbers["rollouts_per_problem"]
    share = np.unique(numbers["problems_per_batch"] / n)
    if share.size == 1 and np.unique(n).size > 1:
        raise InputError(
            f"{path}: B_p must count problems, but {called!r} is {share[0]:g} times every n, as a "
            f"batch of responses is; if B_p is {share[0]:g}, give --set problems_per_batch="
            f"{share[0]:g} and do not map {called!r}, else map it to batch_size."
        )


def check_filled(
    numbers: Mapping[str, FloatArray],
    texts: Mapping[str, tuple[NDArray[np.int64], list[str]]],
    path: Path,
) -> None:
    """Refuse rows of one configuration of which some name their run or seed and others do not.

    Args:
        numbers: columns of the table, (rows,).
        texts: its columns of texts: codes (rows,) and words.
        path: of the table, for the message.

    Raises:
        InputError: names the first row without a name.
    """
    keys: list[NDArray[np.float64]] = [
        numbers["problems_per_batch"], numbers["rollouts_per_problem"]
    ]  # fmt: skip
    for name in ("run", "seed"):
        if name == "seed" and name in numbers:
            empty = np.isnan(numbers[name])
        elif name in texts and "" in texts[name][1]:
            empty = texts[name][0] == texts[name][1].index("")
        else:
            empty = np.zeros(len(keys[0]), dtype=bool)
        if empty.any() and not empty.all():
            group = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)
            lacking = empty & np.isin(group, group[~empty])
            if lacking.any():
                raise InputError(
                    f"{path}: every row of a configuration must have its {name}, or none, but row "
                    f"{int(lacking.argmax()) + 1} has none ({int(lacking.sum())} such rows) and "
                    f"others have; {FILL}."
                )
        if name in texts:
            keys.append(texts[name][0].astype(np.float64))


def check_end(numbers: Mapping[str, FloatArray], path: Path) -> None:
    """Refuse a file that breaks off within the rollouts of its last row.

    Args:
        numbers: columns of the table, (rows,), in the order of the file.
        path: of the table.

    Raises:
        InputError: where no line ends the file and its rollouts go back in the last row alone.
    """
    rollouts = numbers["rollouts"]
    if path.suffix not in (".csv", ".tsv") or len(rollouts) < 3 or not path.is_file():
        return
    same = np.ones(len(rollouts) - 1, dtype=bool)
    for name in DESIGN:
        if name in numbers:
            same &= ~(np.diff(numbers[name]) != 0) | np.isnan(np.diff(numbers[name]))
    back = same & (np.diff(rollouts) < 0)
    if not back[-1] or back[:-1].any():
        return
    if ends_within_line(path):
        raise InputError(
            f"{path}: a table must be whole, but it ends within a line, and rollouts go back from "
            f"{rollouts[-2]:,.0f} to {rollouts[-1]:,.0f} in it; complete or drop its last row."
        )


def without_widths(table: pa.Table, scores: Collection[str], told: list[str]) -> pa.Table:
    """A table whose scores are the means of cells such as 64.2 \u00b1 0.8; `told` takes a line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    said = list[str]()
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if name not in scores or not pa.types.is_string(column.type) or not pc.any(
            pc.match_substring_regex(column, _SIGNS)
        ).as_py():
            continue
        cells = column.to_pylist()
        if means := means_of(cells):
            column = pa.chunked_array([pa.array([means.get(c, c) for c in cells], pa.string())])
            table = table.set_column(i, name, column)
            said = said or of_means(means)
    told += said
    return table


def with_base(table: pa.Table, scores: Collection[str], told: list[str]) -> pa.Table:
    """A table in which the base model's score, a row of step 0 without an n, is of every run.

    A run that has a row of step 0 keeps its own. Of another it is its first row, with the cells
    that the base's has in `scores` and where updates are counted; what else the base's row says,
    as its model, the run's must say. `told` takes a line of what was done.
    """
    import pyarrow as pa

    n = _OF_RUNS[2]
    at = next((name for name in ("steps", "rollouts") if name in table.column_names), None)
    if n not in table.column_names or at is None or not (none := lacking(table[n])).any():
        return table
    begins = np.array([number(cell) == 0 for cell in table[at].to_pylist()], dtype=bool)
    if not (of_base := none & begins).any() or none.all():
        return table
    runs = filled_down(rows_where(table, ~of_base), [])
    rows, its = runs.to_pylist(), {*scores, *_OF_EVALUATION}
    said = {*table.column_names} - its - {*_OF_RUNS}
    keys = [tuple(row.get(name) for name in _OF_RUNS) for row in rows]
    own = {key for key, row in zip(keys, rows, strict=True) if number(row[at]) == 0}
    of_runs = {key: row for key, row in zip(reversed(keys), reversed(rows), strict=True)
               if key not in own}  # fmt: skip
    bases = (there := rows_where(table, of_base)).to_pylist()
    blank = {name: lacking(there[name]) for name in said}
    added = [(i, {**row, **{name: base[name] for name in its & base.keys()}})
             for row in of_runs.values() for i, base in enumerate(bases)
             if all(base[k] == row[k] or blank[k][i] for k in said)]  # fmt: skip
    told_apart = {tuple(row.get(name) for name in (*_OF_RUNS, "problem_set", "metric", "split"))
                  for _, row in added}  # fmt: skip
    if len(told_apart) < len(added) or len({i for i, _ in added}) < len(bases) or (
        {row[: len(_OF_RUNS)] for row in told_apart} < of_runs.keys()
    ):
        return table  # of which runs each is, nothing says
    told.append(f"rows of step 0 without {n} are the base model's: {len(of_runs)} runs begin with "
                "its scores")  # fmt: skip
    return pa.concat_tables([pa.Table.from_pylist([row for _, row in added], runs.schema), runs])


def filled_down(table: pa.Table, told: list[str]) -> pa.Table:
    """A table in which the first row of a run alone names it, filled as its sheet shows it.

    What tells runs apart must be empty in the same rows, below a row that has it, and steps must
    rise within a run and go back where the next begins. Empty rows are no rows. `told` takes a
    line of what was done.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [name for name in table.column_names if pa.types.is_string(table[name].type)]
    if len(texts) < len(table.column_names) or _OF_RUNS[-1] not in texts:
        return table
    empty = dict[str, NDArray[Any]]()
    for name in (_OF_RUNS[-1], *texts):  # most tables have no gap in the first
        empty[name] = as_numpy(pc.utf8_length(pc.utf8_trim_whitespace(table[name])), 0) == 0
        if not (gaps := empty[_OF_RUNS[-1]]).any() or gaps.all():
            return table
    own = [name for name in _OF_RUNS if name in texts and not empty[name].all()]
    if (blank := np.all(list(empty.values()), axis=0)).any():
        filled = filled_down(rows_where(table, ~blank), told)
        return filled if told or all((empty[name] == blank).all() for name in own) else table
    at = next((table[name] for name in ("steps", "rollouts") if name in texts), None)
    if at is None or any((empty[name] != gaps).any() for name in own):
        return table
    steps = np.array([number(cell) for cell in at.to_pylist()], dtype=np.float64)
    if not ((np.diff(steps) > 0) == gaps[1:]).all():
        return table
    heads = pa.array(np.maximum.accumulate(np.where(gaps, 0, np.arange(len(gaps)))).tolist())
    for name in own:
        table = table.set_column(table.column_names.index(name), name, table[name].take(heads))
    told.append(f"{int(gaps.sum())} rows without {', '.join(own)} take those of the row above")
    return table
