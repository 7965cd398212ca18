"""Which files are tables: of a folder those beside no log, and the sheets of workbooks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.formats.csvlogs import is_csv_log
from isocompute.importers.formats.parquetlogs import columns_of, is_parquet_log
from isocompute.importers.tables.table import is_records
from isocompute.importers.tables.workbooks import LATEX, is_workbook, of_sheets, sheets_of
from isocompute.importers.values.containers import UTF16
from isocompute.importers.values.headers import COLUMNAR, RECORDS
from isocompute.importers.values.imported import ImportedRun, UnclearError
from isocompute.importers.values.reading import in_utf8
from isocompute.importers.words.settings import Settings

_TABLES = (".csv", ".tsv", *COLUMNAR)
# By `isocompute export`: the scores, and what stands beside them.
_EXPORTED, _BESIDE = ("evaluations", "imported"), {"runs", "steps", "problems"}


def is_table(path: Path) -> bool:
    """A file that is a CSV, Parquet or JSON table, unless its header is that of a log."""
    name = path.name.removesuffix(".gz")
    if path.is_file() and path.suffix in RECORDS:
        return is_records(path)
    if not (path.is_file() and name.endswith((*_TABLES, ".txt"))):
        return False
    if name.endswith(COLUMNAR):
        return not is_parquet_log(path)
    with path.open("rb") as file:
        data = file.read(1 << 16)
    header = in_utf8(data).split(b"\n", 1)[0].decode("utf-8", "replace")
    told = data.startswith(UTF16) and "\t" in header  # what Excel calls Unicode text
    return told if name.endswith(".txt") else not is_csv_log(header.rstrip("\r"), path)


def tables_or_runs(
    path: Path, settings: Settings | None, say: Callable[[str], None] | None
) -> tuple[list[Path], list[ImportedRun]]:
    """The tables of a file or folder, or the runs of its logs; one of the two is empty.

    Beside a log that is known a table may be anything. Where none is, the tables are meant.

    Raises:
        InputError: if there is neither.
    """
    from isocompute.importers.read import read_log

    if is_workbook(path):
        return of_sheets(sheets_of(path)), []
    if not path.is_dir():
        return ([path], []) if is_table(path) else ([], read_log(path, settings=settings))
    tables, logs = _tables_in(path)
    if tables and not logs:
        return tables, []
    try:
        return [], read_log(path, settings=settings)
    except UnclearError:
        raise
    except InputError:
        tables = tables or _tables_below(path)
        if not tables:
            raise
    if say is not None:
        say(f"{path}: its {len(tables)} tables are read; no other file in it is a known log")
    return tables, []


def _tables_in(folder: Path) -> tuple[list[Path], bool]:
    """The tables of a folder by name, as `FOLDER/*.csv` gives them, and whether it may hold logs.

    A log is what `importers.read` would open, in a folder below as well: such a folder may be one
    of runs that others trained, and a table in it may be anything.
    """
    from isocompute.importers.folder import is_candidate

    seen = [p for p in sorted(folder.iterdir()) if not p.name.startswith((".", "~$"))]
    of = {p.stem: p for p in seen if p.suffix in _TABLES}
    if of.keys() >= {_EXPORTED[0], *_BESIDE}:
        return [of[name] for name in _EXPORTED if name in of and _has_columns(of[name])], False
    books = [p for p in seen if is_workbook(p) and p.suffix != LATEX]  # a paper beside tables
    tables = [p for p in seen if is_table(p)]
    rest = [p for p in seen if p not in (*tables, *books)]
    logs = any(p.is_dir() or is_candidate(p) for p in rest)
    sheets = [sheet for book in books if not logs for sheet in sheets_of(book)]
    return of_sheets([*tables, *sheets]), logs


def _has_columns(table: Path) -> bool:
    """Whether an exported table has rows: one without them has no columns either."""
    return bool(columns_of(table)) if table.suffix == ".parquet" else table.stat().st_size > 0


def _tables_below(folder: Path) -> list[Path]:
    """The tables in the folders of a folder, as B=32/n=8/metrics.csv has them."""
    from isocompute.importers.folder import refuse_closed

    found = (Path(parent, name) for parent, _, names in os.walk(folder, onerror=refuse_closed)
             if not Path(parent).relative_to(folder).as_posix().startswith(("__MACOSX", ".git"))
             for name in names if not name.startswith("."))  # fmt: skip
    return sorted(path for path in found if is_table(path))
