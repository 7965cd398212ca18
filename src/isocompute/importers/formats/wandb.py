"""W&B offline runs (`run-ID.wandb`).

The package ships no reader any more, and `wandb sync` needs its server; the file is a LevelDB
log of protobuf records.
Source: wandb 0.31 (core transaction log): 7-byte header ":W&B" + magic + version; blocks of
32 KiB; each chunk CRC-32 (zlib) of type and data, length (uint16), type FULL, FIRST, MIDDLE,
LAST; wandb/proto/wandb_internal.proto for the field numbers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from isocompute.errors import InputError
from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import Errors, ImportedRun
from isocompute.importers.values.reading import flatten, parse_json
from isocompute.importers.values.wire import WireError, iter_fields, text
from isocompute.importers.words.settings import Settings

_BLOCK = 32 * 1024
_HEADER = 7
MAX_RECORD_BYTES = 16 << 20

# Numbers of the fields in wandb_internal.proto (0.31; metric: MetricRecord).
_HISTORY, _CONFIG, _METRIC, _RUN = 2, 5, 13, 17


def iter_records(handle: IO[bytes], errors: Errors) -> Iterator[tuple[int, bytes]]:
    """(number, data) of every whole record whose checksums hold."""
    handle.seek(_HEADER)
    record = 0
    parts: list[bytes] = []
    size = 0
    room = _BLOCK - _HEADER  # of the first block, after the file's header
    while block := handle.read(room):
        room = _BLOCK
        at = 0
        while len(block) - at >= _HEADER:
            stored, length, kind = struct.unpack_from("<IHB", block, at)
            data = block[at + _HEADER : at + _HEADER + length]
            if len(data) < length:
                record += 1
                errors.add(record, "the last record is cut short")
                parts, size = [], 0
                break
            if kind not in (1, 2, 3, 4) or zlib.crc32(data, zlib.crc32(bytes([kind]))) != stored:
                record += 1
                errors.add(record, "the checksum of a record does not hold; read on at the next "
                                   "block")
                parts, size = [], 0
                break
            at += _HEADER + length
            if kind in (1, 2):
                parts, size = [], 0
            elif not parts:
                continue  # the beginning was lost and is reported already
            size += length
            if size <= MAX_RECORD_BYTES:
                parts.append(data)
            if kind in (1, 4):
                record += 1
                if size > MAX_RECORD_BYTES:
                    errors.add(record, "a record is larger than 16 MiB")
                else:
                    yield record, b"".join(parts)
                parts, size = [], 0
    if parts:
        errors.add(record + 1, "the last record is cut short")


def read_wandb(path: Path, settings: Settings) -> list[ImportedRun]:
    """The one run of an offline file.

    Raises:
        InputError: if it holds no record.
    """
    errors = Errors(str(path))
    collector = Collector(path.stem.removeprefix("run-"), errors, settings)
    records = 0
    with path.open("rb") as handle:
        for record, data in iter_records(handle, errors):
            records = record
            try:
                for number, value in iter_fields(data):
                    if not isinstance(value, bytes):
                        continue
                    if number == _HISTORY:
                        _history(value, record, collector)
                    elif number == _RUN:
                        _run(value, record, collector)
                    elif number == _CONFIG:
                        collector.configure(dict(_items(value)), record)
                    elif number == _METRIC:
                        _define(value, collector)
            except WireError as error:
                errors.add(record, str(error))
    if not records:
        raise InputError(
            f"a W&B file must hold records, but {str(path)!r} ({path.stat().st_size} bytes) holds "
            "no record yet; the run may still be writing or died before its first block: wait for "
            "it, or leave the file out."
        )
    if errors.count:
        collector.note(f"{errors.count} records or rows were damaged and were not read")
    return [collector.finish(path, "wandb")]


def _items(data: bytes) -> Iterator[tuple[str, object]]:
    """(key, value) of the `update` or `item` fields of a ConfigRecord or HistoryRecord."""
    for number, value in iter_fields(data):
        if number != 1 or not isinstance(value, bytes):
            continue
        keys: list[str] = []
        key = ""
        raw: str | None = None
        for inner, item in iter_fields(value):
            if inner == 1:
                key = text(item)
            elif inner == 2:
                keys.append(text(item))
            elif inner == 16:
                raw = text(item)
        if raw is not None:
            parsed, _ = parse_json(raw)
            yield ".".join(keys) or key, parsed


def _run(data: bytes, record: int, collector: Collector) -> None:
    for number, value in iter_fields(data):
        if number == 8 and text(value):
            collector.rename(text(value))
        elif number == 4 and isinstance(value, bytes):
            config = dict(_items(value))
            config.pop("_wandb", None)  # the package's own telemetry
            collector.configure(config, record)


def _history(data: bytes, record: int, collector: Collector) -> None:
    values: dict[str, object] = {}
    for key, value in _items(data):
        if isinstance(value, dict):
            values.update(flatten({key: value}, separator="/"))
        else:
            values[key] = value
    if "step" in values:
        values["step"] = collector.counters.in_epochs(values["step"], values)
    if "_step" in values:  # W&B writes it into every row
        collector.row(values["_step"], values, record, calls=True)


def _define(data: bytes, collector: Collector) -> None:
    """`define_metric`: name (1) or glob (2), and the metric that counts its steps (4)."""
    words = {number: text(value) for number, value in iter_fields(data) if number in (1, 2, 4)}
    collector.counters.define(words.get(1) or words.get(2, ""), words.get(4, ""))
