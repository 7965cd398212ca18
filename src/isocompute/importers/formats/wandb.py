"""W&B offline runs (`run-ID.wandb`).

The package ships no reader any more, and `wandb sync` needs its server; the file is a LevelDB
log of protobuf records.
Source: wandb 0.31 (core transaction log): 7-byte header ":W&B" + magic + version; blocks of
32 KiB; each chunk CRC-32 (zlib) of type and data, length (uint16), type FULL, FIRST, MIDDLE,
LAST; wandb/proto/wandb_internal.proto for the field numbers.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from isocompute.errors import InputError
from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import Errors, ImportedRun
from isocompute.importers.values.reading import flatten, parse_json, until_it_changes
from isocompute.importers.values.wire import WireError, iter_fields, text
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.settings import Settings

_BLOCK = 32 * 1024
_HEADER = 7
MAX_RECORD_BYTES = 16 << 20

# Numbers of the fields in wandb_internal.proto (0.31; metric: MetricRecord).
_HISTORY, _CONFIG, _METRIC, _RUN = 2, 5, 12, 17
_GROUP, _JOB, _NAME = 6, 7, 8  # of a RunRecord
_MOST_FILES = 1_000  # of one folder, among which the trainer of an evaluation is looked for
# What scores the checkpoints of another run in one of its own: `job_type`
_EVALUATES = re.compile(
    r"(?:.*[-_ /])?(?:eval\w*|val|validat\w*|test\w*|bench\w*)(?:[-_ /].*)?", re.I
)


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
    records, of = 0, _whose(path)
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
                        _run(value, record, collector, own=of is None)
                    elif number == _CONFIG and of is None:
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
    if of is not None:
        collector.configure(_configured(of.path) if of.path is not None else {})
        collector.counters.infer(of.told)
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


class _Trainer(NamedTuple):
    """The run whose checkpoints another one scores: its file, or None where several may be it."""

    path: Path | None
    told: str


class _Head(NamedTuple):
    """What a file says of its run at its beginning.

    `trains`: its configuration says a batch of training, or all of it may come later; `evaluates`:
    it is called so, and says no such batch.
    """

    path: Path
    name: str
    group: str
    job: str
    config: dict[str, object]
    trains: bool
    evaluates: bool

    @property
    def words(self) -> set[str]:
        """Names that it says, among them that of the run that it scores."""
        said = (value for value in self.config.values() if isinstance(value, str))
        return {word for text in (self.name, *said) for word in re.split(r"[/:\\]", text)}


def _whose(path: Path) -> _Trainer | None:
    """The run whose checkpoints this one scores; None where it is a run of its own.

    One of its group that is the only one to train there, or the one that it names.
    """
    heads = _heads(path.parent.parent) if len(path.parts) > 1 else []
    own = next((head for head in heads if head.path == path), None)
    trains = [head for head in heads if head.trains and not head.evaluates]
    if own is None or not (own.evaluates or (
        not own.trains and own.group and own.group in {head.group for head in trains}
    )):
        return None
    found = [head for head in trains if own.group and head.group == own.group]
    if len(found) != 1 and not own.evaluates:
        return None  # one of several in a sweep, as it may be
    if len(found) != 1:
        found = [head for head in found or trains if head.name in own.words]
    if len(found) != 1:
        return _Trainer(None, "configuration: its own is that of an evaluation "
                              f"(job_type {own.job}), and says no B_p or n of training")
    how = f"job_type {own.job}" if own.evaluates else f"group {own.group}"
    return _Trainer(found[0].path, f"configuration: that of {found[0].name}, whose checkpoints it "
                                   f"scores ({how})")


@until_it_changes
def _heads(folder: Path) -> list[_Head]:
    """What the runs in W&B's folder say of themselves."""
    files = sorted(folder.glob("*run-*/run-*.wandb"))[:_MOST_FILES]
    return [_head(file) for file in files if file.is_file()]


def _head(path: Path) -> _Head:
    said, config = dict[int, str](), dict[str, object]()
    with path.open("rb") as handle:
        for _, data in iter_records(handle, Errors(str(path))):
            try:
                run = next((value for number, value in iter_fields(data) if number == _RUN), None)
                for number, value in iter_fields(run) if isinstance(run, bytes) else ():
                    if number in (_GROUP, _JOB, _NAME):
                        said[number] = text(value)
                    elif number == 4 and isinstance(value, bytes):
                        config.update(_items(value))
            except WireError:
                break
            if run is not None:
                break
    name, group, job = (said.get(number, "") for number in (_NAME, _GROUP, _JOB))
    has_batch = configuration(config).problems_per_batch is not None
    evaluates = not has_batch and _EVALUATES.fullmatch(job) is not None
    return _Head(path, name, group, job, config, has_batch or not config, evaluates)


def _configured(path: Path) -> dict[str, object]:
    """All that a run says of its configuration; later words go before earlier ones."""
    config = _head(path).config
    with path.open("rb") as handle:
        for _, data in iter_records(handle, Errors(str(path))):
            try:
                for number, value in iter_fields(data):
                    if number == _CONFIG and isinstance(value, bytes):
                        config.update(_items(value))
            except WireError:
                continue
    config.pop("_wandb", None)
    return config


def _run(data: bytes, record: int, collector: Collector, *, own: bool) -> None:
    for number, value in iter_fields(data):
        if number == _NAME and text(value):
            collector.rename(text(value))
        elif number == 4 and isinstance(value, bytes) and own:
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
