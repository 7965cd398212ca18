"""MLflow and trackio databases -> rows."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Set
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.calls import Calls
from isocompute.importers.collect import Collector
from isocompute.importers.database import columns_of, opened
from isocompute.importers.described import CUT
from isocompute.importers.ledger import Errors, provenance_of
from isocompute.importers.mlflow_store import DELETED
from isocompute.importers.reading import OF_ONES_OWN, parse_json
from isocompute.importers.runs import STOPPED, ImportedRun
from isocompute.importers.settings import Settings
from isocompute.importers.several import one_of


def read_sqlite(path: Path, settings: Settings) -> list[ImportedRun]:
    """Every run of an MLflow (`mlflow.db`) or trackio (`PROJECT.db`) database.

    Raises:
        InputError: if the file is no whole SQLite database, or holds tables of neither.
    """
    errors = Errors(str(path))
    collectors: dict[str, Collector] = {}
    source = ""
    try:
        with opened(path) as connection:
            metrics = columns_of(connection, "metrics")
            if {"key", "value", "run_uuid", "step"} <= metrics:
                source = "mlflow"
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
            f"configs), but {str(path)!r} has other tables; give the tracker's own file, or "
            f"{OF_ONES_OWN}."
        )
    provenance = provenance_of(path, source)
    return [c.finish(path, source, provenance) for c in collectors.values()]


def _mlflow(
    connection: sqlite3.Connection, metrics: Set[str], collectors: dict[str, Collector],
    errors: Errors, settings: Settings,
) -> None:
    names: dict[str, str] = {}
    runs, deleted = columns_of(connection, "runs"), set[str]()
    if {"run_uuid", "lifecycle_stage"} <= runs:
        query = "SELECT run_uuid FROM runs WHERE lifecycle_stage = 'deleted' LIMIT 100000"
        deleted = {str(row[0]) for row in connection.execute(query)}
    if {"run_uuid", "name"} <= runs:
        for uuid, name in connection.execute("SELECT run_uuid, name FROM runs LIMIT 100000"):
            names[str(uuid)] = str(name or uuid)
    cut = dict[str, str]()
    if {"run_uuid", "status"} <= runs:
        query = "SELECT run_uuid, status FROM runs WHERE status IN ('FAILED', 'KILLED')"
        cut = {str(uuid): CUT[str(status).lower()] for uuid, status in connection.execute(query)}
    parents = dict[str, str]()
    if {"run_uuid", "key", "value"} <= columns_of(connection, "tags"):
        query = "SELECT run_uuid, value FROM tags WHERE key = 'mlflow.parentRunId' LIMIT 100000"
        parents = {str(uuid): str(parent) for uuid, parent in connection.execute(query)}
    # is_nan: MLflow stores NaN as the value 0 with this flag
    flag = "is_nan" if "is_nan" in metrics else "0"
    # in the order in which they were written: the clock of a machine may go back
    time = "timestamp" if "timestamp" in metrics else "rowid"
    still = {str(row[0]) for row in connection.execute(
        "SELECT run_uuid FROM metrics GROUP BY run_uuid "
        "HAVING min(step) = 0 AND max(step) = 0 AND count(*) > count(DISTINCT key)"
    )}  # fmt: skip
    calls = dict[str, Calls]()
    rows = connection.execute(
        f"SELECT rowid, run_uuid, step, key, value, {flag}, {time} FROM metrics ORDER BY rowid"
    )
    for rowid, uuid, step, key, value, is_nan, at in rows:
        if (uuid := str(uuid)) in deleted:
            continue
        collector = one_of(collectors, uuid, names.get(uuid, uuid), errors, settings)
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
    for one in calls.values():
        one.finish()
        one.check(errors.file)
    for uuid in cut.keys() & collectors.keys():
        collectors[uuid].note(f"MLflow says that it {cut[uuid]}{STOPPED}")
    if deleted and collectors:
        next(iter(collectors.values())).note(DELETED.format(len(deleted)))
    if {"run_uuid", "key", "value"} <= columns_of(connection, "params"):
        params = defaultdict[str, dict[str, object]](dict)
        for uuid, key, value in connection.execute("SELECT run_uuid, key, value FROM params"):
            # verl joins nested keys with "/", transformers does not nest
            params[str(uuid)][str(key).replace("/", ".")] = value
        for uuid, collector in collectors.items():
            own, parent = params[uuid], parents.get(uuid, "")
            collector.configure({**params[parent], **own})
            if params[parent].keys() - own:
                of = names.get(parent, parent)
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
