"""TensorBoard event files -> rows, every record's checksum verified.

TensorBoard's own reader stops, or drops points, without a word after one flipped byte; here
a broken record is counted and reading goes on at the next one.
Source: TFRecord: length (uint64), masked CRC-32C of it, data, masked CRC-32C of the data;
tensorflow/core/util/event.proto and framework/summary.proto for the field numbers.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import IO

from isocompute.importers.runs.collect import Collector
from isocompute.importers.values.imported import Errors, ImportedRun
from isocompute.importers.values.reading import parse_json, whole
from isocompute.importers.values.wire import (
    WireError,
    double,
    find_header,
    iter_fields,
    masked_crc32c,
    signed,
    text,
)
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.paths import folder_name
from isocompute.importers.words.settings import Settings
from isocompute.importers.words.splits import SPLITS
from isocompute.importers.words.vocabulary import EVALUATED_SET

MAX_RECORD_BYTES = 1 << 20  # a scalar has some tens of bytes; larger ones are images, histograms
_CHUNK = 1 << 20
# Scalars whose tags are known before the first is read: some words are a trainer's by what stands
# beside them. An update writes tens; at half nothing changes, at twice it takes 1 ms longer.
_FIRST = 500
_FLOAT, _DOUBLE = 1, 2  # tensorflow DataType
_HPARAMS = "_hparams_/session_start_info"  # tensorboard 2.20, plugins/hparams/metadata.py
# Folders that Keras and PyTorch's add_scalars make for a part of a run: train, accuracy_val.
_SPLIT_FOLDER = re.compile(rf"(?:^|[ _.-])({'|'.join(SPLITS)})$", re.I)
_TRAIN = re.compile("train", re.I)
_ROW = re.compile(r"^\|([A-Za-z_][\w.]*)\|(.*)\|$", re.M)  # of a table of arguments, as Markdown
# One process's files of a folder, by all but their time: PyTorch 2.13 and tensorboardX 2.6
_PROCESS = re.compile(r"events\.out\.tfevents\.[0-9]+\.(.+\.[0-9]+)\.[0-9]+")
_BEST = "load_best_model_at_end"
_DEEPEST = 6  # folders between a run and a line of a chart of it: its tag may have slashes
_ASIDE = 1 << 20  # bytes; a file of hparams alone has some thousands
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
            buffer, at = buffer[at + need :], 0
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


def lines_of(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Event files that belong to another of the files, by that one.

    A process may evaluate before or behind training in a file of its own (transformers 5.24,
    integration_utils.py, TensorBoardCallback). `add_scalars` writes each line of a chart below
    its run: to RUN/TAG/LINE (tensorboardX 2.6, writer.py) or RUN/TAG_LINE (PyTorch 2.13,
    utils/tensorboard/writer.py), all under TAG. Lines that are no splits may be runs, and stay
    apart. `add_hparams` writes the settings of a run, and its last scores, into a folder below it,
    or beside it (`run_name="."`).
    """
    written = defaultdict[tuple[Path, str], list[Path]](list)
    for path in files:
        written[path.parent, m[1] if (m := _PROCESS.fullmatch(path.name)) else path.name] += [path]
    found, homes = dict[Path, list[Path]](), defaultdict[Path, list[Path]](list)
    for several in written.values():
        long = [path for path in several if len(several) == 1 or not _is_of_one_step(path)]
        if len(long) == 1 < len(several):
            found[long[0]] = [path for path in several if path not in long]
        homes[several[0].parent] += long if len(long) == 1 else several
    for path in files:
        beside = [one for one in homes.get(path.parent, ()) if one != path]
        if (of := beside or homes.get(path.parent.parent)) and _hparams_of(path):
            found.setdefault(of[0], []).append(path)
            continue
        if _SPLIT_FOLDER.search(path.parent.name) is None:
            continue
        for home in list(path.parent.parents)[:_DEEPEST]:
            if len(homes.get(home, ())) == 1 and _line_of(path, home) is not None:
                found.setdefault(homes[home][0], []).append(path)
                break
    return found


def _is_of_one_step(path: Path) -> bool:
    """Whether all that an event file holds stands at one step."""
    nobody = Collector("", Errors(str(path)), Settings())
    return len({step for _, step, _, _ in _scalars(path, nobody)}) < 2


def _line_of(path: Path, home: Path) -> tuple[str, str] | None:
    """(tag, line) of an event file that holds one line of a chart of the run in `home`."""
    nobody = Collector("", Errors(str(path)), Settings())
    tag = next((tag for _, _, tag, _ in _scalars(path, nobody)), "")
    told = path.parent.relative_to(home).as_posix()
    for start in (f"{tag}/", f"{tag.replace('/', '_')}_"):
        if tag and told.startswith(start) and "/" not in (line := told[len(start) :]):
            return tag, line
    return None


def _with_lines(
    path: Path, lines: Sequence[Path], collector: Collector
) -> Iterator[tuple[int, int, str, float]]:
    """The scalars of a run, with those of its lines as TAG/LINE, or TAG where a map names that."""
    yield from _scalars(path, collector)
    best = [one for one in lines if one.parent == path.parent and one.name > path.name]
    if best and collector.configured.get(_BEST) is True:
        collector.note(f"{best[0].name} is not read: it evaluates the best checkpoint ({_BEST})")
        lines = [one for one in lines if one not in best]
    told = [(one, _line_of(one, path.parent)) for one in lines if not _hparams_of(one)]
    held_out = Counter(found[0] for _, found in told if found and not _TRAIN.match(found[1]))
    for one, found in told:
        tag, line = found or ("", "")
        mapped = tag in collector.settings.columns and not _TRAIN.match(line)
        name = tag if mapped and held_out[tag] == 1 else f"{tag}/{line}"
        for record, step, own, value in _scalars(one, collector):
            yield record, step, name if own == tag else own, value


def read_tensorboard(
    path: Path, settings: Settings, lines: Sequence[Path] = ()
) -> list[ImportedRun]:
    """One run per event file; its folder's name is the run's name. `lines`: see `lines_of`."""
    errors = Errors(str(path))
    collector = Collector(folder_name(path.parent) or path.name, errors, settings)
    if (split := _SPLIT_FOLDER.search(path.parent.name)) is not None:
        collector.folder_split = SPLITS[split[1].lower()]
    collector.configure_beside(path)
    _configure_by_hparams(path, collector)
    wanted = settings.step if collector.counters.busy else None
    along = dict[int, dict[str, float]]()
    if wanted is not None:
        nobody = Collector("", Errors(str(path)), Settings())
        along = {
            step: {tag: value}
            for _, step, tag, value in _with_lines(path, lines, nobody) if tag == wanted
        }
    events = _with_lines(path, lines, collector)
    first = list(islice(events, _FIRST))
    collector.expect({tag: None for _, _, tag, _ in first})
    of_set, at = dict[str, float](), 0  # TRL's loss of an evaluation set stands before its scores
    for record, step, tag, value in chain(first, events):
        if _names_set(tag):
            of_set, at = {tag: value}, step
        elif of_set and step != at:
            of_set = {}
        if tag in _UPDATES and whole(value) not in (None, step):
            collector.counters.differ(tag, step, int(value))
        collector.row(step, {tag: value, **along.get(step, {}), **of_set}, record)
    if errors.count:
        collector.note(f"{errors.count} records were damaged or cut short and were not read")
    return [collector.finish(path, "tensorboard")]


@lru_cache(4096)
def _names_set(tag: str) -> bool:
    """Whether a tag is the loss or the runtime of one of several evaluation sets of TRL's."""
    return EVALUATED_SET.fullmatch(tag) is not None


def _configure_by_hparams(path: Path, collector: Collector) -> None:
    """Take the settings that `add_hparams` wrote beside the log, or into a folder below it.

    NeMo-RL writes its whole configuration so.
    """
    name = "events.out.tfevents.*"
    files = sorted([*path.parent.glob(name), *path.parent.glob(f"*/{name}")])
    found = [said for one in files if one != path and (said := _hparams_of(one))]
    if found and all(configuration(one) == configuration(found[0]) for one in found):
        collector.configure(found[-1])
        collector.counters.infer("configuration: read from the hparams beside the log")


def _hparams_of(path: Path) -> dict[str, object]:
    """What a file of `add_hparams` says, whose scalars stand at one step; {} for any other.

    PyTorch 2.13, utils/tensorboard/writer.py: a folder for each call, named by its time or its
    `run_name`.
    """
    if path.stat().st_size > _ASIDE or _HPARAMS.encode() not in path.read_bytes():
        return {}
    aside = Collector("", Errors(str(path)), Settings())
    several = len({step for _, step, *_ in _scalars(path, aside)}) > 1
    return {} if several else aside.configured


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
        elif number == 9 and isinstance(value, bytes) and tag == _HPARAMS:
            collector.configure(_hparams(value), record)
    if tensor is not None:
        scalar, words = _tensor(tensor)
        if words is not None and tag.startswith("args"):
            # transformers' callback writes the training arguments as text
            config, _ = parse_json(words.strip().strip("`").strip())
            if isinstance(config, dict):
                collector.configure(config, record)
        elif words is not None and words.startswith("|param|value|"):  # CleanRL, open-instruct
            collector.configure(dict(_ROW.findall(words)), record)
    return (tag, scalar) if scalar is not None and tag else None


def _inside(data: bytes, *path: int) -> Iterator[bytes]:
    """The messages at the end of a path of field numbers."""
    for number, value in iter_fields(data):
        if number == path[0] and isinstance(value, bytes):
            if len(path) == 1:
                yield value
            else:
                yield from _inside(value, *path[1:])


def _hparams(metadata: bytes) -> dict[str, object]:
    """Names and values of SummaryMetadata.plugin_data.content.session_start_info.hparams."""
    found: dict[str, object] = {}
    for entry in _inside(metadata, 1, 2, 3, 1):
        name, value = "", None
        for number, part in iter_fields(entry):
            if number == 1:
                name = text(part)
            elif number == 2 and isinstance(part, bytes):
                value = next(map(_plain_value, iter_fields(part)), None)
        if name and value is not None:
            found[name] = value
    return found


def _plain_value(field: tuple[int, int | bytes]) -> object:
    """A number, text or truth of a google.protobuf.Value; None for others."""
    kind, value = field
    if kind == 2:
        return double(value)
    return text(value) if kind == 3 else bool(value) if kind == 4 else None


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
    if (dtype, len(content)) in ((_FLOAT, 4), (_DOUBLE, 8)) and len(floats) != 1:
        floats = [double(content)]
    return (floats[0], None) if len(floats) == 1 else (None, words)
