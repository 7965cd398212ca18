"""Tables of evaluations beside the logs of the runs: `run,checkpoint,accuracy`, from a script.

Each row is a result of a checkpoint, as `checkpoints` reads those that lie in files of their own.
The run is a column's word or the beginning of the file's name; its log holds no held-out score and
counts updates as it is, so that `checkpoint-40` stands at its step 40.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.beside.listed import NAMING
from isocompute.importers.formats.checkpoints import BEGUN, STEP, Place, Result, read_results
from isocompute.importers.formats.whose import STEP_COLUMNS
from isocompute.importers.runs.steps import BY_EPOCHS
from isocompute.importers.tables.handing import TableError
from isocompute.importers.values.headers import head_of, rows_of
from isocompute.importers.values.imported import ImportedRun
from isocompute.importers.values.reading import number, whole
from isocompute.importers.words.called import counts_problems, is_called
from isocompute.importers.words.settings import Settings

_MOST_BYTES = 16 << 20  # of a table
_CHECKPOINTS = ("checkpoint", "ckpt", "checkpoint_step", "ckpt_step", "model_step")
_SETS = ("task", "benchmark", "dataset", "data_set", "eval_set", "problem_set", "test_set")
_KIND = re.compile(r"^(?:log|train|run|console|out)[-_.]", re.I)  # of a file, before its run's name
_OURS = ("problems_per_batch", "rollouts_per_problem", "rollouts")


def evaluated_in_tables(
    runs: Sequence[ImportedRun], errors: dict[str, InputError], settings: Settings
) -> list[ImportedRun]:
    """The runs with the results that tables say of their checkpoints; without these tables' errors.

    Args:
        runs: of logs.
        errors: of files that are no logs, by their texts.
        settings: what logs do not say.
    """
    names: dict[str, list[ImportedRun]] = defaultdict(list)
    for run in runs:
        for name in {run.name, run.name.partition("/")[0], _KIND.sub("", run.name)}:
            names[name].append(run)
    whose = {name: of[0].name for name, of in names.items() if len(of) == 1 and _lacks(of[0])}
    found: dict[str, list[Result]] = defaultdict(list)
    for text, error in list(errors.items()):
        if isinstance(error, TableError) and (results := _results(error.path, whose)):
            del errors[text]
            for one in results:
                found[one.place.run].append(one)
    return [run for results in found.values() for run in read_results(results, settings)]


def _lacks(run: ImportedRun) -> bool:
    """Whether a run has no held-out score, and its log counts updates as it is."""
    return not any(s.split == "validation" for s in run.series) and not any(
        line.startswith("step:") and line != BY_EPOCHS for line in run.provenance.inferred
    )


def _results(path: Path, whose: Mapping[str, str]) -> list[Result]:
    """The results of a table, by the name of their run's log; none where it is of anything else.

    Args:
        path: of the table.
        whose: what runs may be called -> their name.
    """
    try:
        rows = list(_rows(path))
    except (InputError, OSError):
        return []
    columns = {key.lower(): key for key in (rows[0] if rows else ())}
    at = next((columns[c] for c in (*_CHECKPOINTS, *STEP_COLUMNS) if c in columns), None)
    if at is None or any(
        is_called(key, name) and not counts_problems(key) for key in columns for name in _OURS
    ):
        return []  # it says what a table of curves does
    naming = next((columns[c] for c in NAMING if c in columns), None)
    begins = (name for name in whose if re.match(rf"{re.escape(name)}(?![A-Za-z0-9])", path.stem))
    stem = max(begins, key=len, default="")
    of_set = next((columns[c] for c in _SETS if c in columns), None)
    several = of_set is not None and len({row[of_set] for row in rows}) > 1
    found = list[Result]()
    for row in rows:
        name, step = row[naming] if naming else stem, _step_of(row[at])
        if name not in whose or step is None:
            return []
        scores = {key: value for key, value in row.items()
                  if key not in (at, naming, of_set) and number(value) is not None}  # fmt: skip
        place = Place(path.parent, whose[name], step, row[of_set] if of_set and several else "")
        found.append(Result(place, path, scores))
    once = Counter((one.place.run, one.place.step, one.place.within) for one in found)
    return found if found and max(once.values()) == 1 and all(r.content for r in found) else []


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a small CSV, by the names of its columns."""
    if path.suffix not in (".csv", ".tsv") or path.stat().st_size > _MOST_BYTES:
        return
    names = head_of(path).names
    yield from (dict(zip(names, cells, strict=False)) for cells in rows_of(path) if any(cells))


def _step_of(cell: str) -> int | None:
    """The step of a checkpoint by its name, or its number; None for anything else.

    >>> _step_of("out/checkpoint-40"), _step_of("60"), _step_of("base"), _step_of("final")
    (40, 60, 0, None)
    """
    last = cell.strip().rstrip("/").rpartition("/")[2]
    if (step := whole(last)) is not None or BEGUN.fullmatch(last):
        return step or 0
    match = STEP.fullmatch(last)
    return None if match is None else int(match["step"])
