"""TensorBoard event files -> rows, every record's checksum verified.

TensorBoard's own reader stops, or drops points, without a word after one flipped byte; here
a broken record is counted and reading goes on at the next one.
Source: TFRecord: length (uint64), masked CRC-32C of it, data, masked CRC-32C of the data;
tensorflow/core/util/event.proto and framework/summary.proto for the field numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from isocompute.importers.collect import Collector
from isocompute.importers.ledger import Errors
from isocompute.importers.reading import parse_json
from isocompute.importers.runs import ImportedRun
from isocompute.importers.settings import Settings
from isocompute.importers.wire import (
    WireError,
    double,
    find_header,
    iter_fields,
    masked_crc32c,
    signed,
    text,
)

MAX_RECORD_BYTES = 1 << 20  # a scalar has some tens of bytes; larger ones are images, histograms
_CHUNK = 1 << 20
_FLOAT, _DOUBLE = 1, 2  # tensorflow DataType


def is_event_file(head: bytes) -> bool:
    """True if the file begins with a whole record header."""
    return len(head) >= 12 and find_header(head[:12], 0) == 0


def iter_records(handle: IO[bytes], errors: Errors) -> Iterator[tuple[int, bytes]]:
    """(number, data) of every record whose checksums hold."""
    buffer = b""
    at = 0
    record = 0
    lost = False
    while True:
        if at > _CHUNK:
            buffer, at = buffer[at:], 0
        if len(buffer) - at < 12 or lost:
            more = handle.read(_CHUNK)
            buffer += more
            if len(buffer) - at < 12:
                if len(buffer) > at and not lost:
                    errors.add(record + 1, "the last record is cut short")
                return
            if lost:
                found = find_header(buffer, at)
                if found is None:
                    at = len(buffer) - 11  # a header may straddle two chunks
                    if not more:
                        return
                    continue
                at, lost = found, False
        length = struct.unpack_from("<Q", buffer, at)[0]
        if struct.unpack_from("<I", buffer, at + 8)[0] != masked_crc32c(buffer[at : at + 8]):
            record += 1
            errors.add(record, "the checksum of a record's length does not hold; read on at the "
                               "next record")
            at, lost = at + 1, True
            continue
        record += 1
        need = 12 + length + 4
        if length > MAX_RECORD_BYTES:
            skip = need - (len(buffer) - at)
            if skip <= 0:
                at += need
                continue
            buffer, at = b"", 0
            while skip > 0 and (more := handle.read(min(_CHUNK, skip))):
                skip -= len(more)
            if skip > 0:
                errors.add(record, "the last record is cut short")
                return
            continue
        while len(buffer) - at < need and (more := handle.read(_CHUNK)):
            buffer += more
        if len(buffer) - at < need:
            errors.add(record, "the last record is cut short")
            return
        data = buffer[at + 12 : at + 12 + length]
        stored = struct.unpack_from("<I", buffer, at + 12 + length)[0]
        at += need
        if stored != masked_crc32c(data):
            errors.add(record, "the checksum of a record does not hold")
            continue
        yield record, data


def read_tensorboard(path: Path, settings: Settings) -> list[ImportedRun]:
    """One run per event file; its folder's name is the run's name."""
    errors = Errors(str(path))
    collector = Collector(path.parent.name or path.name, errors, settings)
    collector.configure_beside(path)
    with path.open("rb") as handle:
        for record, data in iter_records(handle, errors):
            try:
                _event(data, record, collector)
            except WireError as error:
                errors.add(record, str(error))
    if errors.count:
        collector.note(f"{errors.count} records were damaged or cut short and were not read")
    return [collector.finish(path, "tensorboard")]


def _event(data: bytes, record: int, collector: Collector) -> None:
    step = 0
    summaries: list[bytes] = []
    for number, value in iter_fields(data):
        if number == 2 and isinstance(value, int):
            step = signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in iter_fields(summary):
            if number == 1 and isinstance(value, bytes):
                _value(value, step, record, collector)


def _value(data: bytes, step: int, record: int, collector: Collector) -> None:
    tag = ""
    scalar: float | None = None
    tensor: bytes | None = None
    for number, value in iter_fields(data):
        if number == 1:
            tag = text(value)
        elif number == 2:
            scalar = double(value)
        elif number == 8 and isinstance(value, bytes):
            tensor = value
    if tensor is not None:
        scalar, words = _tensor(tensor)
        if words is not None and tag.startswith("args"):
            # transformers' callback writes the training arguments as text
            config, _ = parse_json(words.strip().strip("`").strip())
            if isinstance(config, dict):
                collector.configure(config, record)
    if scalar is not None and tag:
        collector.row(step, {tag: scalar}, record)


def _tensor(data: bytes) -> tuple[float | None, str | None]:
    """(scalar, None) or (None, text) of a TensorProto with one element."""
    dtype = 0
    content = b""
    floats: list[float] = []
    words: str | None = None
    for number, value in iter_fields(data):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6) and isinstance(value, bytes) and len(value) in (4, 8):
            floats.append(double(value))
        elif number == 8:
            words = text(value)
    if len(floats) == 1:
        return floats[0], None
    if dtype == _FLOAT and len(content) == 4:
        return float(np.frombuffer(content, "<f4")[0]), None
    if dtype == _DOUBLE and len(content) == 8:
        return float(np.frombuffer(content, "<f8")[0]), None
    return None, words
