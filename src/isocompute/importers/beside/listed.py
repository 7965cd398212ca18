"""A table of runs: what each was called, and its settings; their histories lie elsewhere.

| file | a run |
|---|---|
| CSV with a column `Name` or `run` | a row |
| YAML, runs by name under `runs` | what stands above them holds for all |
| JSON lines, as scripts of W&B's and Comet's API write them | `{id, name, config: {...}, ...}` |
| one JSON list of the same | |
| one JSON object of the same, by run | `{ID: {config: {...}, ...}}`, `{ID: {...}}` |

A list of rows with steps is a log, and one of runs with their histories is (`documents`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.beside.elsewhere import is_telling
from isocompute.importers.values.headers import SEPARATORS, head_of, rows_of, separator_of
from isocompute.importers.values.imported import DESIGN, UnclearError
from isocompute.importers.values.reading import (
    MAX_LINE_BYTES,
    encoding_of,
    flatten,
    parse_json,
    parse_python,
    until_it_changes,
)
from isocompute.importers.values.series import SETTINGS, STEPS, points_of, settings_of
from isocompute.importers.words.called import may_be_setting
from isocompute.importers.words.configuration import configuration, facts_of
from isocompute.importers.words.paths import run_name
from isocompute.importers.words.plain_words import explained
from isocompute.recipe import RECORDED, SHARED

NAMING = ("name", "run", "run_name", "experiment", "sys/id", "sys/name", "run_id", "run id", "id",
          "display_name", "displayname", "experiment_key", "uuid", "run_uuid")  # fmt: skip
_LOOKED_AT = 1 << 16  # bytes; of a list of rows the first row
HISTORY = re.compile(r"[-_. ]history$")  # what scripts add to the name of a run
_RUN = re.compile(r"^(?:run|experiment|exp)[ _-]+(?=\S)", re.I)  # before it
_HEAD = 1 << 14  # bytes of a table of runs that tell how it is written
_COUNTERS = {"step", "rollouts", "score", "metric"}
_SECTION = re.compile(r"^(?:params|parameters|config|hparams)[./]")  # Neptune, MLflow
_OF_RUNS = re.compile(rb'\s*\{\s*"[^"]*"\s*:\s*\{')  # an object of objects
_LISTS = (".jsonl", ".json", ".yaml", ".yml")
LOGS = (".jsonl", ".swanlab", ".csv", ".tsv", ".gz", ".json", ".log", ".out", ".stdout", ".txt")
_SEEN, _CSV = 1_000, (".csv", ".tsv")  # rows that tell whose a table is


def runs_listed(file: Path) -> dict[str, dict[str, object]]:
    """Settings by the names of runs; empty where a file is no table of runs."""
    if file.stat().st_size > MAX_LINE_BYTES:
        return {}
    found = _entries(file)
    if not found or not all(map(_is_entry, found)):
        return {}
    said = [{**settings_of(one), **_names(one)} for one in found]
    if not any(map(_tells, said)):
        return {}
    by_name: dict[str, dict[str, object]] = {}
    for word in reversed(NAMING):
        names = [str(one[word]) for one in said if one.get(word)]
        if len(names) == len(set(names)):  # one that repeats names what runs share
            by_name |= {str(one[word]): one for one in said if one.get(word)}
    return by_name


def _tells(said: Mapping[str, object]) -> bool:
    """Whether settings say B_p or n, in a trainer's words or in ones that may be."""
    return any(configuration(said).design[:2]) or any(
        may_be_setting(key.rpartition(".")[2]) for key in said
    )


def _entries(file: Path) -> list[dict[str, object]]:
    if file.suffix in (".yaml", ".yml"):
        return _in_yaml(file)
    with file.open("rb") as handle:
        head = handle.read(_LOOKED_AT)
        first, _ = parse_json(head.split(b"\n", 1)[0])
        if _is_entry(_opened(first)):  # JSON lines
            lines = [line for line in (head + handle.read()).splitlines() if line.strip()]
            return [_opened(parse_json(line)[0]) for line in lines]
        if file.suffix != ".json" or not (_OF_RUNS.match(head) or _names_first(head.lower())):
            return []
        value, _ = parse_json(head + handle.read())
    if isinstance(value, list):
        return [_opened(one) for one in value]
    if isinstance(value, dict):
        named = [_opened(one) for one in value.values()]
        if all(any(isinstance(one.get(key), dict) for key in SETTINGS) for one in named):
            return [{"id": key, **one} for key, one in zip(value, named, strict=True)]
        said = [configuration(flatten(one)).design[:2] for one in named]
        if any(all(words) for words in zip(*said, strict=True)):  # no sections of one run
            return [{"id": key, "config": one} for key, one in zip(value, named, strict=True)]
    return []


def _in_yaml(file: Path) -> list[dict[str, object]]:
    """Runs by name under `runs`, each with what stands above them all."""
    if not re.search(r"^runs\s*:", file.read_text("utf-8", "replace"), re.M):
        return []
    from isocompute.study.yaml12 import read_yaml

    try:
        said = read_yaml(file)
    except InputError:
        return []
    runs = said.get("runs") if isinstance(said, dict) else None
    if not isinstance(runs, dict) or not all(isinstance(one, dict) for one in runs.values()):
        return []
    shared = {key: value for key, value in said.items() if key != "runs"}
    return [{"name": str(name), "config": {**shared, **one}} for name, one in runs.items()]


def _names_first(head: bytes) -> bool:
    """Whether a document names a run before its first step: a list of rows is not parsed twice."""
    named, steps = ([at for word in words if (at := head.find(f'"{word}"'.encode())) >= 0]
                    for words in ((*NAMING, *SETTINGS), STEPS))  # fmt: skip
    return bool(named) and min(named) < min(steps, default=len(head))


def _opened(one: object) -> dict[str, object]:
    """An entry with settings that it holds as text, as W&B's own API does; {} for no object."""
    if not isinstance(one, dict):
        return {}
    texts = {k: v for k, v in one.items() if k in SETTINGS and isinstance(v, str) and v[:1] == "{"}
    return {**one, **{key: parse_json(text)[0] for key, text in texts.items()}}


def _is_entry(one: Mapping[str, object]) -> bool:
    """Whether an object says what a run was, and nothing of its course."""
    plain = {key.lower() for key in one}
    return (
        not plain.isdisjoint(NAMING) and plain.isdisjoint(STEPS)
        and (any(isinstance(one.get(key), dict) for key in SETTINGS)
             or any(map(may_be_setting, one)))
        and next(islice(points_of(one), 1), None) is None
    )  # fmt: skip


def _names(one: Mapping[str, object]) -> dict[str, str]:
    return {key.lower(): value for key, value in one.items()
            if key.lower() in NAMING and isinstance(value, str)}  # fmt: skip


def configuration_in_table(
    path: Path, run: str, within: Path | None = None, known: Collection[str] = ()
) -> tuple[str, dict[str, object]] | None:
    """The name of the table of runs beside or above a log, and its row of a run; None without one.

    Args:
        path: of the log.
        run: its name, as W&B has it.
        within: the folder that was given: up to it a table may lie.
        known: what of B_p, n and seed no table is asked for.

    Raises:
        UnclearError: two tables of a folder say another B_p, n or seed of the run.
    """
    there = [above for above in path.parents if within in (above, *above.parents)]
    for folder in dict.fromkeys((*path.parents[:2], *there)):
        found = list[tuple[str, dict[str, object]]]()
        for name, rows in tables_of(folder).items():
            if folder / name == path:
                continue
            called = (run, HISTORY.sub("", run), *_placed(path, folder, run))
            named = next((one for one in called if one in rows), None)
            row = rows.get(named or "")
            own = folder == path.parent or (
                folder in there and (is_telling(run) or named in called[2:]))
            if row is not None and (own or _names_all(rows, path)):
                found.append((name, row))
        if found:
            _refuse_two(path, run, found, known)
            return found[0]
    return None


def _placed(path: Path, folder: Path, run: str) -> list[str]:
    """What a table in a folder calls a log whose name others share: g4/seed0.

    >>> _placed(Path("runs/g4/seed0/metrics.jsonl"), Path("runs"), "seed0")[:2]
    ['g4/seed0', 'g4/seed0/metrics.jsonl']
    """
    if run != run_name(path) or folder == path.parent:
        return []
    below = path.relative_to(folder)
    return [below.parent.as_posix(), below.as_posix(), (below.parent / run).as_posix()]


def _refuse_two(
    path: Path, run: str, found: Sequence[tuple[str, dict[str, object]]], known: Collection[str]
) -> None:
    """Tables must say one thing of a run: an older one may lie beside that which holds."""
    name, first = found[0]
    own = configuration(first)
    for other, row in found[1:]:
        its = configuration(row)
        for field in (one for one in DESIGN if one not in known):
            if None not in (a := getattr(own, field), b := getattr(its, field)) and a != b:
                raise UnclearError(
                    f"{path}: tables beside it must say one {field} of a run, but {run!r} has {a} "
                    f"in {name} and {b} in {other}; move away the one that is not of these runs."
                )


def column_in_table(path: Path, column: str) -> tuple[str, dict[str, object]] | None:
    """As `configuration_in_table`, of a run that a column is named for: A or `run A`."""
    names = dict.fromkeys((column, _RUN.sub("", column)))
    return next((found for name in names if (
        found := configuration_in_table(path, name)) is not None), None)  # fmt: skip


def _names_all(rows: Mapping[str, object], path: Path) -> bool:
    """Whether a table of the folder above is of a log's folder: it names that, or its logs."""
    if path.parent.name in rows:
        return True
    logs = [p for p in path.parent.iterdir() if p.name.endswith(LOGS)]
    names = [run_name(log) for log in logs]
    return all(name in rows or HISTORY.sub("", name) in rows for name in names)


def of_columns(files: Sequence[Path]) -> set[Path]:
    """Tables of runs among the files that another one has a column of each for."""
    found = set[Path]()
    for file in (one for one in files if one.suffix in (".csv", ".tsv")):
        tables = tables_of(file.parent)
        others = {name: rows for name, rows in tables.items() if name != file.name}
        names = head_of(file).names if others else []
        found |= {file.parent / name for name, rows in others.items()
                  if sum(not rows.keys().isdisjoint((c.strip(), _RUN.sub("", c.strip())))
                         for c in names) > 1}  # fmt: skip
    return found


@until_it_changes
def tables_of(folder: Path) -> dict[str, dict[str, dict[str, object]]]:
    """Tables of runs in a folder: by file and run, what the row says."""
    files = [file for file in sorted(folder.iterdir())
             if file.name.endswith((".csv", *_LISTS)) and file.is_file()]  # fmt: skip
    found = {
        file.name: runs_listed(file) if file.name.endswith(_LISTS) else _table(file)
        for file in files
    }
    return {name: rows for name, rows in found.items() if rows}


def _table(file: Path) -> dict[str, dict[str, object]]:
    """Rows by the name of the run; empty where a file is no table of runs."""
    with file.open("rb") as handle:
        head = handle.read(_HEAD)
    encoding = encoding_of(head).replace("utf8", "utf-8-sig")
    titles = head.decode(encoding, "replace").splitlines()
    first = next((line for line in titles if any(s in line for s in SEPARATORS)), "")
    try:
        with file.open(encoding=encoding, errors="replace", newline="") as table:
            lines = csv.reader(table, delimiter=separator_of(first))
            header = next((row for row in lines if sum(map(bool, row)) > 1), [])  # below a title
            plain = [cell.strip().lower() for cell in header]
            naming = [i for i, cell in enumerate(plain) if cell in NAMING]
            # a history may name its run in every row
            if not naming or _COUNTERS & set(plain) or file.stat().st_size > MAX_LINE_BYTES:
                return {}
            header = [explained(_SECTION.sub("", cell)) for cell in header]
            cells = [*map(list, dict.fromkeys(tuple(row) for row in lines
                                              if len(row) > naming[-1]))]  # a row may stand twice
    except csv.Error:
        return {}
    rows = [_with_config(dict(zip(header, row, strict=False))) for row in cells]
    known = [configuration(row) for row in rows]
    asked = any(may_be_setting(key) for key in header)
    # a column that repeats names what runs share
    naming = [i for i in naming if len({row[i] for row in cells}) == len(cells)]
    if not asked and not all(
        one.problems_per_batch or one.rollouts_per_problem or one.seed is not None
        or not facts_of(row).keys().isdisjoint((*RECORDED, *SHARED))
        for one, row in zip(known, rows, strict=True)
    ):
        return {}
    return {
        row[i]: {key: value for key, value in told.items() if value}
        for i in reversed(naming) for row, told in zip(cells, rows, strict=True) if row[i]
    }


def _with_config(row: dict[str, str]) -> dict[str, object]:
    """A row with the configuration that one cell of it holds, as Python or JSON writes it."""
    whole = row.get("config", "")
    if not whole.startswith("{"):
        return dict(row)
    found = parse_python(whole) or parse_json(whole)[0]
    return {key: value for key, value in flatten(found).items() if value is not None}


def describing(tables: Sequence[Path]) -> set[Path]:
    """Tables that only say what the columns of another are, or its runs."""
    said = of_columns(tables)
    return said | {path for path in tables if path not in said and (
        _describes(path, tables) or any(_is_of_runs(path, one) for one in said))}  # fmt: skip


def _is_of_runs(path: Path, other: Path) -> bool:
    """Whether a table has one row for each of some runs of another and no step: what they cost."""
    rows = tables_of(path.parent).get(other.name, {})
    if path.suffix not in _CSV or path.parent != other.parent or not rows:
        return False
    plain = {name.strip().lower() for name in head_of(path).names}
    names = _names_in(path)
    once = len(names) > 1 and len({*names}) == len(names)
    return once and {*names} <= rows.keys() and {*STEPS, *_COUNTERS}.isdisjoint(plain)


def _describes(path: Path, tables: Sequence[Path]) -> bool:
    """Whether a table has a row for each run whose course another one holds."""
    about = tables_of(path.parent) if path.suffix in _CSV else {}
    rows = about.get(path.name, {})
    others = (one for one in tables if one.parent == path.parent and one.suffix in _CSV)
    for one in (one for one in others if rows and one.name not in about):
        if any(name in rows for name in _names_in(one)):
            return True
    return False


def _names_in(path: Path) -> list[str]:
    """What the first rows of a table call their runs; none without a column that names them."""
    plain = [name.strip().lower() for name in head_of(path).names]
    at = next((i for i, name in enumerate(plain) if name in NAMING), len(plain))
    return [row[at].strip() for row in rows_of(path, _SEEN) if at < len(row) and any(row)]
