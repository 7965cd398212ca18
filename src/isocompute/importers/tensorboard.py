"""TensorBoard event files -> rows, every record's checksum verified.

TensorBoard's own reader stops, or drops points, without a word after one flipped byte; here
a broken record is counted and reading goes on at the next one.
Source: TFRecord: length (uint64), masked CRC-32C of it, data, masked CRC-32C of the data;
tensorflow/core/util/event.proto and framework/summary.proto for the field numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np

from isocompute.importers.collect import Collector
from isocompute.importers.ledger import Errors
from isocompute.importers.reading import folder_name, parse_json, whole
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
# Scalars whose tags are known before the first is read: some words are a trainer's by what stands
# beside them. An update writes tens; at half nothing changes, at twice it takes 1 ms longer.
_FIRST = 500
_FLOAT, _DOUBLE = 1, 2  # tensorflow DataType
# Counters of updates that a trainer writes as tags; where one is not the step, the step counts
# something else (open-instruct's older event files: episodes).
_UPDATES = ("training_step", "train/global_step", "trainer/global_step", "training/global_step")


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
    collector = Collector(folder_name(path.parent) or path.name, errors, settings)
    collector.configure_beside(path)
    wanted = settings.step if collector.counters.busy else None
    along = dict[int, dict[str, float]]()
    if wanted is not None:
        nobody = Collector("", Errors(str(path)), Settings())
        along = {
            step: {tag: value} for _, step, tag, value in _scalars(path, nobody) if tag == wanted
        }
    events = _scalars(path, collector)
    first = list(islice(events, _FIRST))
    collector.expect({tag: None for _, _, tag, _ in first})
    for record, step, tag, value in chain(first, events):
        if tag in _UPDATES and whole(value) not in (None, step):
            collector.counters.differ(tag, step, int(value))
        collector.row(step, {tag: value, **along.get(step, {})}, record)
    if errors.count:
        collector.note(f"{errors.count} records were damaged or cut short and were not read")
    return [collector.finish(path, "tensorboard")]


def _scalars(path: Path, collector: Collector) -> Iterator[tuple[int, int, str, float]]:
    """(record, step, tag, value) of every scalar; errors and configurations go to the collector."""
    with path.open("rb") as handle:
        for record, data in iter_records(handle, collector.errors):
            try:
                for step, tag, value in _event(data, record, collector):
                    yield record, step, tag, value
            except WireError as error:
                collector.errors.add(record, str(error))


def _event(data: bytes, record: int, collector: Collector) -> Iterator[tuple[int, str, float]]:
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
                found = _value(value, record, collector)
                if found is not None:
                    yield step, *found


def _value(data: bytes, record: int, collector: Collector) -> tuple[str, float] | None:
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
    return (tag, scalar) if scalar is not None and tag else None


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
