"""Runs that others trained: logs of trainers and trackers -> the records of a study.

`read_log` reads a file or a folder, `to_curves` makes learning curves of what it found.

Where a line belongs. A package imports from those above it alone, this folder from all of them:

- values: bytes to values (reading, containers, headers, cells, series, database, wire); what an
  import hands over (imported, spent, timing).
- words: what a key of a log says (vocabulary, meanings, splits, plain_words, called, scored,
  scale); a name or a path (names, paths); a configuration, whatever trainer wrote it
  (configuration, fresh, recorded); the user (settings), and what is asked where none of them does
  (asking).
- beside: where the configuration of a run is: in the folder of its log or above (beside), in a
  command (launched), a list of runs (listed), any file that names it (elsewhere), the log's own
  rows (described).
- runs: rows are taken (collect, collected, points); they become updates (updates, steps, counting,
  cadence, placing), B_p, n and compute (conclude, checks, changing, doubts); records and logs that
  are one run (identity, shared, sequels, siblings, begun), which runs are repetitions (repetitions,
  own_words, grids, starts), and which of them are meant (meant).
- tables: those that people made (tidy), from any file (table, workbooks, databases): what is taken
  of them (taken), their contract (columns, cells, ranges, checks), curves (curves, wide), what
  stands beside them (beside); one that was given to an import (handing).
- formats: a reader for every kind of log: JSON (jsonl, documents, dumps, recording),
  CSV and Parquet (csvlogs, csv_long, parquetlogs), what a console printed (console, progress,
  printed, exported) or people wrote (written, notebooks), trackers (tensorboard, wandb, swanlab,
  stores), checkpoints (checkpoints, harness, evaluated), parts of processes (ranks); whose a row
  is (whose).
- here: which reader reads which file (read), what lies in a folder (folder), what a source is
  (given), a study's records (archive, again), curves of them (convert), published ones (published).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute.importers.archive import (
        import_logs,
        imported_rows,
        load_imported,
        read_logs,
        store_runs,
    )
    from isocompute.importers.convert import convert_runs, note_lines, to_curves
    from isocompute.importers.published import load_published
    from isocompute.importers.read import read_log
    from isocompute.importers.tables.tidy import load_table, load_tidy
    from isocompute.importers.values.imported import ImportedRun
    from isocompute.importers.words.settings import (
        Settings,
        load_settings,
        settings_from,
    )

# Loaded on first use: a tidy file needs no log reader, and no log reader needs pyarrow.
_HOME = {
    "ImportedRun": "values.imported",
    "Settings": "words.settings",
    "convert_runs": "convert",
    "import_logs": "archive",
    "imported_rows": "archive",
    "load_imported": "archive",
    "load_published": "published",
    "load_settings": "words.settings",
    "load_table": "tables.tidy",
    "load_tidy": "tables.tidy",
    "note_lines": "convert",
    "read_log": "read",
    "read_logs": "archive",
    "settings_from": "words.settings",
    "store_runs": "archive",
    "to_curves": "convert",
}

__all__ = [
    "ImportedRun",
    "Settings",
    "convert_runs",
    "import_logs",
    "imported_rows",
    "load_imported",
    "load_published",
    "load_settings",
    "load_table",
    "load_tidy",
    "note_lines",
    "read_log",
    "read_logs",
    "settings_from",
    "store_runs",
    "to_curves",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'isocompute.importers' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"isocompute.importers.{_HOME[name]}"), name)
    globals()[name] = value
    return value
