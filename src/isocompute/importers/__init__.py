"""Runs that others trained: logs of trainers and trackers -> the records of a study.

`read_log` reads a file or a folder, `to_curves` makes learning curves of what it found.

Where a line belongs, along the path of a log:

- Bytes to values: reading, ledger, torn, wire, headers, csv_cells, local_cells, workbooks,
  databases, latex.
- A reader for every format, chosen in `read`: jsonl, prefixed, console, streams, blocks, printed,
  progress, tensorboard, wandb, sqlite, mlflow_store, calls, trainer_state, recording, documents,
  series, dumps, checkpoints, evaluated, csvlogs, csv_runs, csv_long, csv_wide, events, notes,
  parquetlogs, unnamed_rows, several, published.
- Tables of curves: tables, table, tidy, tidy_columns, tidy_cells, tidy_checks, tidy_curves,
  tidy_beside, tidy_wide, unnamed, handing.
- Words, what a key or a name says: vocabulary, meanings, plain_words, called, names, patterns,
  powers, scored, settings, recorded, trained.
- The configuration of a run, beside its log or elsewhere: configuration, fresh, beside, launched,
  listed, elsewhere, accelerated, described.
- What counts updates, rollouts, tokens, seconds: steps, cadence, parts, placing, points, checks,
  schedule, timing, spent, taught, sides, scale.
- What is one run: identity, shared, merging, sequels, siblings, split_names, ranks, repetitions.
- A run is made: collect, conclude, runs, archive, again, convert.
- What is asked of the user: asking, questions, doubts, unopened.
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
    from isocompute.importers.runs import ImportedRun
    from isocompute.importers.settings import Settings, load_settings, parse_settings, settings_from
    from isocompute.importers.tidy import load_table, load_tidy

# Loaded on first use: a tidy file needs no log reader, and no log reader needs pyarrow.
_HOME = {
    "ImportedRun": "runs",
    "Settings": "settings",
    "convert_runs": "convert",
    "import_logs": "archive",
    "imported_rows": "archive",
    "load_imported": "archive",
    "load_published": "published",
    "load_settings": "settings",
    "load_table": "tidy",
    "load_tidy": "tidy",
    "note_lines": "convert",
    "parse_settings": "settings",
    "read_log": "read",
    "read_logs": "archive",
    "settings_from": "settings",
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
    "parse_settings",
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
