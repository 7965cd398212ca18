"""Logs as Parquet or Arrow (Feather): `csvlogs`' layouts, trackio's export, its settings beside.

Sources: trackio (2026-08), sqlite_storage.py, export_to_parquet: PROJECT.parquet has a column per
metric, PROJECT_configs.parquet one row per run. Neptune's exporter (2025-12): RUN_part_0.parquet
goes on in RUN_part_1.parquet.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from isocompute.errors import InputError
from isocompute.importers.formats.csvlogs import MAX_COLUMNS, layout_of, read_layout
from isocompute.importers.formats.whose import STEP_COLUMNS
from isocompute.importers.values.cells import Rows
from isocompute.importers.values.headers import ARROW, COLUMNAR, arrow_file
from isocompute.importers.values.imported import Errors, ImportedRun
from isocompute.importers.words.settings import Settings

_CONFIGS = "_configs.parquet"
_PART = re.compile(r"_part_([0-9]+)$")
_BATCH_ROWS = 10_000  # held as Python objects: 100 columns are 10 MB; half or twice: the same speed


def is_parquet_log(path: Path) -> bool:
    """True where a Parquet file has the columns of a log, or holds the configurations of one."""
    if path.suffix not in COLUMNAR or not path.is_file():
        return False
    return is_beside(path) or layout_of(header_of(path)) is not None


def is_beside(path: Path) -> bool:
    """True for what is read with its log: trackio's configurations, a further part of Neptune's."""
    if (part := _PART.search(path.stem)) is not None and int(part[1]):
        return _part(path, int(part[1]) - 1).is_file()
    log = path.with_name(path.name.removesuffix(_CONFIGS) + ".parquet")
    return path.name.endswith(_CONFIGS) and log.is_file()


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{_PART.sub('', path.stem)}_part_{number}.parquet")


def read_parquet_log(path: Path, settings: Settings) -> list[ImportedRun]:
    """The runs of a Parquet log.

    Raises:
        InputError: if the file cannot be read, or has no column that must be there.
    """
    errors = Errors(str(path))
    header = header_of(path)
    beside = path.with_name(path.stem + _CONFIGS)
    configs: dict[str, dict[str, object]] = {}
    if beside.is_file():
        names = header_of(beside)
        key = "run_id" if "run_id" in names else "run_name"
        for row in _values(beside, names):
            configs[str(row.get(key))] = {
                name: value for name, value in row.items()
                if value is not None and name not in ("id", "run_id", "run_name", "created_at")
            }
    return read_layout(path, header, _rows(path, header), settings, errors, configs)


def columns_of(path: Path) -> str:
    """The columns of a Parquet file that may be a table of curves; "" where it is a data set."""
    header = header_of(path)
    counts = {*STEP_COLUMNS, "rollouts"} & {name.lower() for name in header}
    return ",".join(header) if counts else ""


def header_of(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        if path.suffix in ARROW:
            with pa.ipc.open_file(arrow_file(path)) as file:
                return list(file.schema.names)[:MAX_COLUMNS]
        return list(pa.parquet.read_schema(arrow_file(path)).names)[:MAX_COLUMNS]
    except (pa.ArrowException, OSError):
        return []


def _values(path: Path, header: list[str]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        if path.suffix in ARROW:
            with pa.ipc.open_file(arrow_file(path)) as file:
                for i in range(file.num_record_batches):
                    for start in range(0, (whole := file.get_batch(i)).num_rows, _BATCH_ROWS):
                        yield from whole.slice(start, _BATCH_ROWS).select(header).to_pylist()
            return
        file = pa.parquet.ParquetFile(arrow_file(path))
        for batch in file.iter_batches(_BATCH_ROWS, columns=header):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"a log must be readable, but {str(path)!r} is no whole "
            f"{'Arrow' if path.suffix in ARROW else 'Parquet'} file "
            f"({ascii(str(error))[1:60]}); copy it again."
        ) from None


def _rows(path: Path, header: list[str]) -> Rows:
    """Cells as a CSV would have them, of the file and its further parts."""
    line, part = 0, _PART.search(path.stem)
    files = [path]
    while part is not None and (further := _part(path, int(part[1]) + len(files))).is_file():
        files.append(further)
    for file in files:
        for row in _values(file, header):
            line += 1
            yield line, [_cell(row[name]) for name in header]


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Decimal):  # Neptune's steps: 30.000000
        return str(int(value) if value == int(value) else value)
    return value.isoformat() if isinstance(value, datetime.date) else repr(value)
