"""Stores of MLflow and trackio -> runs: their databases, and MLflow's folders.

MLflow 3 (store/tracking/file_store.py): `mlruns/EXPERIMENT/RUN/{metrics,params,tags}`, a file for
every key; a line of a metric is `timestamp value step`, the path below `metrics` is the key, a
parameter's file holds its value, `meta.yaml` the run's name. Metrics that were logged without
`step=` all lie at step 0: what one call of `log_metrics` logged has one time, so a counter among it
counts its updates.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections import defaultdict
from collections.abc import Sequence, Set
from pathlib import Path

from isocompute import __version__
from isocompute.errors import InputError
from isocompute.importers.beside.described import CUT
from isocompute.importers.formats.whose import one_of
from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.database import columns_of, opened
from isocompute.importers.values.imported import (
    STOPPED,
    Errors,
    ImportedRun,
    Provenance,
    UnclearError,
    provenance_of,
)
from isocompute.importers.values.reading import (
    OF_ONES_OWN,
    clean_text,
    iter_lines,
    open_log,
    parse_json,
)
from isocompute.importers.values.reading import number as number_of
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.meanings import tell_of_training
from isocompute.importers.words.settings import Settings

_CUT = ("FAILED", "KILLED")  # MLflow's words
_MOST_RUNS = 100_000
DELETED = "{} more runs were deleted in {} and are left out"
_GONE = ("deleted", "is_deleted", "deleted_at")  # columns of a tracker of one's own
_PARTS = ("split", "subset", "phase", "context", "dataset", "problem_set")  # what a value is of
ABOVE = "{} is the parent of other runs, has no rows of training and is left out"
MAX_KEYS = 20_000
_MOST_STILL = 1 << 28  # bytes of metrics that are held at once; at half nothing changes
_MAX_PARAM_BYTES = 8_000  # MLflow's own limit is 6,000 characters


class Calls:
    """The calls of one run, each with what it logged, in the order of the log."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._values: dict[str, object] = {}
        self._time: object = None
        self._line = 0
        self._count = 0

    def take(self, time: object, key: str, value: object, line: int) -> None:
        """Take one value and the time at which it was logged."""
        if time != self._time or key in self._values:
            self.finish()
        self._values[key] = value
        self._time, self._line = time, line

    def finish(self) -> None:
        """Hand over what the last call logged."""
        if self._values:
            self.collector.row(self._count, self._values, self._line, calls=True)
            self._count += 1
        self._values = {}

    def check(self, what: str) -> None:
        """Refuse a run of several calls without anything that counts updates.

        Raises:
            UnclearError: names what may count them.
        """
        counters = self.collector.counters
        if self._count > 1 and self.collector.scored and counters.wanted is None and (
            not counters.seen
        ):
            raise UnclearError(
                f"{what}: run {self.collector.name}: steps must count updates, but MLflow has all "
                f"{self._count} calls at step 0 (they were logged without step=) and no known key "
                "beside them counts updates; name it with --set step=KEY, or write a CSV of run, "
                "problems_per_batch, rollouts_per_problem, step, score."
            )


def is_mlflow_run(folder: Path, names: Sequence[str], folders: Sequence[str]) -> bool:
    """True for the folder of one run."""
    return "meta.yaml" in names and "metrics" in folders and (folder / "params").is_dir()


def is_deleted(folder: Path) -> bool:
    """Whether its owner has deleted a run: MLflow keeps the folder, and shows it no more."""
    return re.search(r"^lifecycle_stage: *'?deleted", _meta(folder), re.MULTILINE) is not None


def above_others(folders: Sequence[Path]) -> list[Path]:
    """Folders of runs that others name as their parent, and that train nothing themselves.

    A sweep's own run has what its runs share, and perhaps their last scores over something else.
    """
    parents = {_parent(folder) for folder in folders}
    return [one for one in folders if one in parents and not tell_of_training(_keys(one))]


def _parent(folder: Path) -> Path | None:
    """The folder of the run above one, as its tag names it."""
    tag = folder / "tags" / "mlflow.parentRunId"
    return folder.parent / tag.read_text("utf-8", "replace").strip() if tag.is_file() else None


def _keys(folder: Path) -> list[str]:
    metrics = folder / "metrics"
    return [path.relative_to(metrics).as_posix() for path in _files(metrics)]


def read_mlflow_run(folder: Path, settings: Settings) -> list[ImportedRun]:
    """The run of a folder."""
    errors = Errors(str(folder))
    name = name_of(folder)
    settings = settings.for_path(folder)
    named = settings.for_file(name)
    collector = Collector(name, errors, named)
    digest = hashlib.sha256()
    size = 0
    own = _params(folder)
    for value in own.values():
        digest.update(value.encode())
    parent = _parent(folder)
    shared = _params(parent) if parent is not None else {}
    collector.configure({**shared, **own})
    if parent is not None and shared.keys() - own:
        collector.counters.infer(f"configuration: of its parent run {name_of(parent)}, too")
    files = _files(folder / "metrics")
    still = all(map(_is_still, files)) and sum(p.stat().st_size for p in files) < _MOST_STILL
    held = list[tuple[str, str, str, int]]()  # of a run whose step never moves: all lie at 0
    for path in files:
        key = path.relative_to(folder / "metrics").as_posix()
        errors.file = clean_text(path)
        with open_log(path) as handle:
            for number, data in iter_lines(handle, str(path)):
                words = (data or b"").decode("utf-8", "replace").split()
                digest.update(data or b"")
                size += len(data or b"")
                if len(words) != 3:  # since MLflow 1.0; a torn one must not stand at 0
                    errors.add(number, "a line of a metric must be `timestamp value step`")
                    continue
                if still:
                    held.append((words[0], key, words[1], number))
                else:
                    collector.row(words[2], {key: words[1]}, number)
    if len(held) > len(files):
        calls = Calls(collector)
        for time, key, text, at in sorted(held, key=lambda one: number_of(one[0]) or 0):
            calls.take(time, key, text, at)
        calls.finish()
        calls.check(clean_text(folder))
    else:
        for _, key, text, at in held:
            collector.row(0, {key: text}, at)
    if state := re.search(r"^status: *'?([45]|FAILED|KILLED)\b", _meta(folder), re.MULTILINE):
        word = CUT["failed" if state[1] in ("4", "FAILED") else "killed"]
        collector.note(f"MLflow says that it {word}{STOPPED}")
    if errors.count:
        collector.note(f"{errors.count} lines were not used")
    provenance = Provenance(
        path=clean_text(folder), sha256=digest.hexdigest(), size_bytes=size,
        format="mlflow-files", version=__version__,
    )
    return [collector.finish(folder, "mlflow-files", provenance)]


def _params(folder: Path) -> dict[str, str]:
    """Parameters of the run of a folder."""
    home = folder / "params"
    return {
        path.relative_to(home).as_posix().replace("/", "."): (
            path.read_bytes()[:_MAX_PARAM_BYTES].decode("utf-8", "replace").strip()
        ) for path in _files(home)
    }  # fmt: skip


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in sorted(folder.rglob("*"))[:MAX_KEYS] if p.is_file()]


def _is_still(path: Path) -> bool:
    """Whether the first and the last line of a metric's file stand at step 0."""
    with path.open("rb") as file:
        first = file.readline(300).split()
        file.seek(max(path.stat().st_size - 300, 0))
        last = file.read().splitlines()[-1:]
    return all(words[2:] in ([b"0"], []) for words in (first, *(line.split() for line in last)))


def name_of(folder: Path) -> str:
    """The name of the run of a folder."""
    tag = folder / "tags" / "mlflow.runName"
    if tag.is_file():
        return clean_text(tag.read_bytes()[:300].decode("utf-8", "replace").strip())
    found = re.search(r"^run_name: *'?([^'\n]+?)'? *$", _meta(folder), re.MULTILINE)
    return clean_text(found[1]) if found else folder.name


def _meta(folder: Path) -> str:
    return (folder / "meta.yaml").read_bytes()[:20_000].decode("utf-8", "replace")


def read_sqlite(path: Path, settings: Settings) -> list[ImportedRun]:
    """Every run of an MLflow (`mlflow.db`) or trackio (`PROJECT.db`) database, or one like them.

    A tracker of one's own has MLflow's tables: metrics with a run, a key, a step and a value in
    each row; the names of runs, whose `id` that is; and params.

    Raises:
        InputError: if the file is no whole SQLite database, or holds tables of neither.
    """
    errors = Errors(str(path))
    collectors: dict[str, Collector] = {}
    source = ""
    try:
        with opened(path) as connection:
            metrics = columns_of(connection, "metrics")
            if (own := run_of(metrics)) and {"key", "value", "step"} <= metrics:
                source = "mlflow" if own == "run_uuid" else "database"
                _mlflow(connection, metrics, collectors, errors, settings)
            elif {"run_name", "step", "metrics"} <= metrics:
                source = "trackio"
                _trackio(connection, metrics, collectors, errors, settings)
    # A damaged schema gives messages that are no UTF-8, which Python raises as a decoding error.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if not collectors:
            raise InputError(
                f"a tracker's database must be readable SQLite, but {str(path)!r} gives: "
                f"{str(error)[:80]}; copy it again (with its -wal file, or after the run)."
            ) from error
        errors.add(0, f"the database ends early: {str(error)[:80]}")
        for collector in collectors.values():
            collector.note("the database is damaged: what follows the damage was not read")
    if not source:
        raise InputError(
            f"a database must be one of MLflow (metrics, params, runs) or trackio (metrics, "
            f"configs), or have tables like them (metrics: run_id, key, step, value; params: "
            f"run_id, key, value; runs: id, name), but {str(path)!r} has others; give it those, or "
            f"{OF_ONES_OWN}."
        )
    provenance = provenance_of(path, source)
    return [c.finish(path, source, provenance) for c in collectors.values()]


def _by_run(
    connection: sqlite3.Connection, table: str, column: str, only: str = ""
) -> dict[str, str]:
    """A column of one of MLflow's tables, by run; empty where it has none."""
    columns = columns_of(connection, table)
    own = run_of(columns) or ("id" if table == "runs" and "id" in columns else "")
    if not own or column not in columns:
        return {}
    rows = connection.execute(f"SELECT {own}, {column} FROM {table} {only} LIMIT {_MOST_RUNS}")
    return {str(uuid): str(value or "") for uuid, value in rows}


def run_of(columns: Set[str]) -> str:
    """The column of a tracker's table that says whose a row is; "" where none does."""
    return next((name for name in ("run_uuid", "run_id") if name in columns), "")


def _mlflow(
    connection: sqlite3.Connection, metrics: Set[str], collectors: dict[str, Collector],
    errors: Errors, settings: Settings,
) -> None:
    names, states = (_by_run(connection, "runs", column) for column in ("name", "status"))
    stages = _by_run(connection, "runs", "lifecycle_stage")
    stages |= {uuid: "deleted" for uuid, state in states.items() if state.lower() == "deleted"}
    for column in _GONE:
        stages |= {uuid: "deleted" for uuid, said in _by_run(connection, "runs", column).items()
                   if said.lower() not in ("", "0", "false", "no")}  # fmt: skip
    deleted = {uuid for uuid, stage in stages.items() if stage == "deleted"}
    cut = {uuid: CUT[state.lower()] for uuid, state in states.items() if state.upper() in _CUT}
    parents = _by_run(connection, "tags", "value", "WHERE key = 'mlflow.parentRunId'")
    # is_nan: MLflow stores NaN as the value 0 with this flag
    flag = "is_nan" if "is_nan" in metrics else "0"
    # in the order in which they were written: the clock of a machine may go back
    time = "timestamp" if "timestamp" in metrics else "rowid"
    by = run_of(metrics)
    whose = "MLflow" if by == "run_uuid" else "the tracker"
    part = next((name for name in _PARTS if name in metrics), "''")
    parts = connection.execute(f"SELECT count(DISTINCT {part}) FROM metrics").fetchone()[0]
    called = "key" if parts < 2 else f"CASE WHEN {part} > '' THEN {part} || '/' || key ELSE key END"
    still = {str(row[0]) for row in connection.execute(
        f"SELECT {by} FROM metrics GROUP BY {by} "
        f"HAVING min(step) = 0 AND max(step) = 0 AND count(*) > count(DISTINCT {called})"
    )}  # fmt: skip
    calls = dict[str, Calls]()
    rows = connection.execute(
        f"SELECT rowid, {by}, step, {called}, value, {flag}, {time} FROM metrics ORDER BY rowid"
    )
    trains, above = set[str](), {of for uuid, of in parents.items() if uuid not in deleted}
    for rowid, uuid, step, key, value, is_nan, at in rows:
        if (uuid := str(uuid)) in deleted:
            continue
        if uuid in above and uuid not in trains and tell_of_training([str(key)]):
            trains.add(uuid)
        collector = one_of(collectors, uuid, names.get(uuid) or uuid, errors, settings)
        if collector is not None:
            missing = is_nan not in (0, None, False)
            # an infinite value is stored as the largest double
            missing = missing or (isinstance(value, float) and abs(value) > 1e300)
            value = None if missing else value
            if uuid in still:
                one = calls.setdefault(uuid, Calls(collector))
                one.take(at, str(key), value, int(rowid))
            else:
                collector.row(step, {str(key): value}, int(rowid))
    for uuid in sorted((above - trains) & collectors.keys()):
        del collectors[uuid]
        calls.pop(uuid, None)
        for collector in list(collectors.values())[:1]:
            collector.note(ABOVE.format(names.get(uuid, uuid)))
    for one in calls.values():
        one.finish()
        one.check(errors.file)
    for uuid in cut.keys() & collectors.keys():
        collectors[uuid].note(f"{whose} says that it {cut[uuid]}{STOPPED}")
    if deleted and collectors:
        next(iter(collectors.values())).note(DELETED.format(len(deleted), whose))
    columns = columns_of(connection, "params")
    if run_of(columns) and {"key", "value"} <= columns:
        params = defaultdict[str, dict[str, object]](dict)
        said = connection.execute(f"SELECT {run_of(columns)}, key, value FROM params")
        for uuid, key, value in said:
            # verl joins nested keys with "/", transformers does not nest
            mine, key = params[str(uuid)], str(key).replace("/", ".")
            if mine.get(key, value) != value and str(uuid) in collectors and (
                configuration({**mine, key: value}).design != configuration(mine).design
            ):
                raise UnclearError(
                    f"run {names.get(str(uuid), uuid)}: a setting must have one value, but params "
                    f"has {mine[key]} and {value} of {key!r}; delete the row that does not hold."
                )
            mine[key] = value
        for uuid, collector in collectors.items():
            own, parent = params[uuid], parents.get(uuid, "")
            collector.configure({**params[parent], **own})
            if params[parent].keys() - own:
                of = names.get(parent) or parent
                collector.counters.infer(f"configuration: of its parent run {of}, too")


def _trackio(
    connection: sqlite3.Connection, metrics: Set[str], collectors: dict[str, Collector],
    errors: Errors, settings: Settings,
) -> None:
    identity = "run_id" if "run_id" in metrics else "run_name"
    for rowid, key, name, step, text in connection.execute(
        f"SELECT rowid, {identity}, run_name, step, metrics FROM metrics ORDER BY rowid"
    ):
        collector = one_of(collectors, str(key), str(name), errors, settings)
        if collector is None:
            continue
        values, reason = parse_json(text if isinstance(text, (str, bytes)) else str(text))
        if not isinstance(values, dict):
            errors.add(int(rowid), reason or "metrics must be a JSON object")
            continue
        collector.row(step, values, int(rowid), calls=True)
    columns = columns_of(connection, "configs")
    if {"run_name", "config"} <= columns:
        identity = "run_id" if "run_id" in columns else "run_name"
        for rowid, key, text in connection.execute(
            f"SELECT rowid, {identity}, config FROM configs"
        ):
            collector = collectors.get(str(key))
            config, _ = parse_json(text if isinstance(text, (str, bytes)) else str(text))
            if collector is not None and isinstance(config, dict):
                collector.configure(config, int(rowid))
