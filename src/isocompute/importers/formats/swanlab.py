"""SwanLab's own file of a run (`swanlog/run-TIME-ID/run-ID.swanlab`).

It is kept as W&B's is, in blocks of records (`wandb`), under a header ":SWL"; the configuration
lies beside it (`files/config.yaml`).
Source: swanlab 0.10.3, proto/swanlab/record/v1 (start 10, scalar 13), run/v1, metric/data/v1.
"""

from __future__ import annotations

from pathlib import Path

from isocompute.errors import InputError
from isocompute.importers.formats.wandb import iter_records
from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import Errors, ImportedRun
from isocompute.importers.values.wire import WireError, double, iter_fields, signed, text
from isocompute.importers.words.settings import Settings

HEADER = b":SWL"
_START, _SCALAR = 10, 13


def read_swanlab(path: Path, settings: Settings) -> list[ImportedRun]:
    """The one run of a file.

    Raises:
        InputError: if it holds no record.
    """
    errors = Errors(str(path))
    collector = Collector(path.stem.removeprefix("run-"), errors, settings)
    records, step = 0, 0
    values: dict[str, object] = {}  # of one call, which has a record for each key
    with path.open("rb") as handle:
        for record, data in iter_records(handle, errors):
            records = record
            try:
                for number, inner in iter_fields(data):
                    if not isinstance(inner, bytes) or number not in (_START, _SCALAR):
                        continue
                    said = dict(iter_fields(inner))
                    if number == _START:
                        collector.rename(text(said.get(4, b"")) or collector.name)
                        continue
                    at, key = said.get(2, 0), text(said.get(1, b""))
                    at = signed(at) if isinstance(at, int) else 0
                    if values and (at != step or key in values):
                        collector.row(step, values, record, calls=True)
                        values = {}
                    value = said.get(5, b"")
                    scalar = dict(iter_fields(value)) if isinstance(value, bytes) else {}
                    step, values[key] = at, double(scalar.get(1, bytes(8)))
            except WireError as error:
                errors.add(record, str(error))
    if values:
        collector.row(step, values, records, calls=True)
    if not records:
        raise InputError(
            f"a SwanLab file must hold records, but {str(path)!r} ({path.stat().st_size} bytes) "
            "holds none yet; the run may still be writing: wait for it, or leave the file out."
        )
    if errors.count:
        collector.note(f"{errors.count} records or rows were damaged and were not read")
    collector.configure_beside(path)
    return [collector.finish(path, "swanlab")]
