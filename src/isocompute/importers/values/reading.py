"""Bytes of other people's files -> lines, JSON values, numbers, in bounded memory.

Nothing here raises on strange content: a bad line is a reason, never an exception, so that
one row never costs the rest of the file.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import gzip
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, wraps
from pathlib import Path
from typing import IO, Any, NamedTuple, ParamSpec, TypeVar, cast

import orjson

from isocompute.errors import InputError
from isocompute.importers.values import containers

MAX_LINE_BYTES = 4 << 20  # a validation sample of 100k tokens is far below; a parse stays < 200 MB
MAX_DECOMPRESSED_BYTES = 8 << 30  # gzip expands up to 1000 times
_CHUNK = 1 << 20
# what to do with a log that no reader knows
OF_ONES_OWN = (
    "write a CSV of its scores: run, problems_per_batch, rollouts_per_problem, step, score"
)

_NOT_NUMBERS = {"nan", "+nan", "-nan", "inf", "+inf", "-inf", "infinity", "+infinity",
                "-infinity", "none", "null", "", "-", "\u2013", "\u2014"}
# np.float64(0.5), and what json.dumps(default=str) makes of a tensor: tensor(0.5, device='cuda:0')
_NUMPY_REPR = re.compile(r"(?:np\.[a-z_]+[0-9]*|tensor)\(([^,]*?)(?:, [a-z_]+=.*)?\)")


def in_utf8(data: bytes) -> bytes:
    """The beginning of a text as UTF-8, without a mark of the order of bytes."""
    if data.startswith(containers.UTF16):
        return data[: len(data) // 2 * 2].decode("utf-16", "ignore").encode()
    encoding = encoding_of(data)
    return data.removeprefix(b"\xef\xbb\xbf") if encoding == "utf8" else (
        data.decode(encoding).encode()
    )


def encoding_of(data: bytes) -> str:
    """How a text is written that begins so: UTF-8 or 16, or as Excel does in the West.

    >>> encoding_of("gelöst;Epoche".encode("cp1252")), encoding_of("gelöst".encode())
    ('cp1252', 'utf8')
    """
    if data.startswith(containers.UTF16):
        return "utf-16"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:  # else a letter is cut in two
            return "latin-1" if re.search(rb"[\x81\x8d\x8f\x90\x9d]", data) else "cp1252"
    return "utf8"


class Line(NamedTuple):
    """One line: its number from 1, its bytes without the end, or None if it was over the cap."""

    number: int
    data: bytes | None


def open_log(path: Path) -> IO[bytes]:
    """Open a file behind its rotated parts, unpacking gzip, UTF-16 and containers on the fly.

    Raises:
        InputError: if it cannot be read, or is a zip archive.
    """
    if older := containers.older_parts(path):
        files = [*map(_open_part, older), _open_part(path)]
        return cast(IO[bytes], io.BufferedReader(containers.Lines(files)))
    return _open_part(path)


def _open_part(path: Path) -> IO[bytes]:
    try:
        handle = path.open("rb")
        magic = handle.read(4)
        handle.seek(0)
    except OSError as error:
        raise InputError(
            f"a log must be readable, but {str(path)!r} gives {error.strerror}; check the path."
        ) from error
    if magic[:2] == b"\x1f\x8b":
        return containers.unpacked(cast(IO[bytes], gzip.GzipFile(fileobj=handle, mode="rb")))
    if magic == b"PK\x03\x04":
        handle.close()
        raise InputError(
            f"a log must be a plain or gzip file, but {str(path)!r} is a zip archive (or a .pt "
            "file); unpack it first."
        )
    return containers.unpacked(handle)


def iter_lines(handle: IO[bytes], name: str) -> Iterator[Line]:
    """Lines of a file, holding at most one capped line in memory.

    Raises:
        InputError: if a compressed file unpacks to more than the cap.
    """
    packed = not isinstance(getattr(handle, "raw", None), io.FileIO)
    total = 0
    number = 0
    while True:
        try:
            data = handle.readline(MAX_LINE_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            yield Line(number + 1, None)  # torn or corrupt packing: the rest cannot be read
            return
        if not data:
            return
        number += 1
        if packed:
            total = _count(total, data, name)
        if len(data) > MAX_LINE_BYTES and not data.endswith(b"\n"):
            while data and not data.endswith(b"\n"):
                try:
                    data = handle.readline(_CHUNK)
                except (OSError, EOFError, zlib.error):
                    data = b""
                if packed:
                    total = _count(total, data, name)
            yield Line(number, None)
            continue
        if number == 1 and data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
        yield Line(number, data.rstrip(b"\r\n"))


def ends_whole(handle: IO[bytes]) -> bool:
    """Whether a file that was read to its end has an end of line there; a torn one counts so."""
    if isinstance(raw := getattr(handle, "raw", None), containers.Lines):
        return raw.ends_whole
    try:
        handle.seek(-1, 1)
        return handle.read(1) == b"\n"
    except (OSError, EOFError, zlib.error):
        return True


def _count(total: int, data: bytes, name: str) -> int:
    total += len(data)
    if total > MAX_DECOMPRESSED_BYTES:
        raise InputError(
            f"a compressed log must unpack to at most {MAX_DECOMPRESSED_BYTES} bytes, but "
            f"{name!r} holds more; unpack it yourself if you trust it."
        )
    return total


def parse_json(data: bytes | str) -> tuple[Any, str | None]:
    """(value, None), or (None, why not). NaN and Infinity are read as floats.

    orjson is three times as fast as the standard library's parser, and stricter; what it refuses
    gets a second look, for the words that trackers write and for the reason.
    """
    try:
        return orjson.loads(data), None
    except orjson.JSONDecodeError:
        pass
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return json.loads(text.removeprefix("\ufeff")), None  # as Windows begins a text
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except RecursionError:
        return None, "JSON nested too deep"
    except ValueError as error:  # JSONDecodeError; also an integer of more than 4300 digits
        return None, f"not JSON ({str(error)[:60]})"


_NOT_LITERALS = re.compile(r"(?<![\w'.])(?:nan|-?inf)(?![\w'])")


def parse_python(text: str) -> Any:
    """What Python printed of a value of plain types; None where it is none. NaN is read as None.

    >>> parse_python("{'acc': 0.5, 'loss': nan}"), parse_python("{'n': torch.half}")
    ({'acc': 0.5, 'loss': None}, None)
    """
    for written in (text, _NOT_LITERALS.sub("None", text)):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return ast.literal_eval(written)
    return None


def number(value: object) -> float | None:
    """A finite number, or None where it is missing: NaN, infinite, null, "NaN", text, bool.

    >>> number("NaN"), number(0), number("np.float64(0.5)"), number("tensor(1., device='cuda:0')")
    (None, 0.0, 0.5, 1.0)
    """
    if type(value) is float:  # nearly all
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip() if len(value) <= 64 else ""
        match = _NUMPY_REPR.fullmatch(text) if text[-1:] == ")" else None
        value = match.group(1) if match else text
        if "_" in value:
            return None
    elif not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):  # no number, or an integer beyond all floats
        return None
    return result if math.isfinite(result) else None


def is_missing_word(value: object) -> bool:
    """True for what trackers write in place of a number that was NaN, infinite or null."""
    if value is None:
        return True
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and value.strip().lower() in _NOT_NUMBERS


def whole(value: object) -> int | None:
    """A whole number >= 0 that a float carries exactly, or None."""
    if type(value) is int and 0 <= value <= 2**53:
        return value
    result = number(value)
    if result is None or result < 0 or result != int(result) or result > 2**53:
        return None
    return int(result)


_GROUPED = re.compile(
    r"[0-9]{1,3}(?:[,'\u2019 \u00a0\u202f][0-9]{3})+|[0-9]+(?:\.[0-9]+)?\s?[kKmM]"
)
_DOTTED = re.compile(r"\s*[1-9][0-9]{0,2}(?:\.[0-9]{3})+\s*")


def refuse_grouped(step: object, name: str) -> None:
    """Refuse a step that is written in thousands, or may be: 1.000, 1,000, 1.2k.

    Raises:
        InputError: names the log and the cell.
    """
    if not isinstance(step, str):
        return
    text = step.strip()
    if _DOTTED.fullmatch(text):
        raise InputError(
            f"a step must be a plain number, but {name!r} has {text!r}, a fraction or "
            f"thousands; write {text.replace('.', '')} or {text.split('.')[0]}."
        )
    if _GROUPED.fullmatch(text):
        raise InputError(
            f"a step must be a plain number, but {name!r} has {text!r}; write it out, as 1200 for "
            "1,200 or 1.2k."
        )


def clean_text(value: object, limit: int = 300) -> str:
    """A name as data: valid UTF-8, without control characters, at most `limit` characters."""
    if isinstance(value, str) and len(value) <= limit and value.isprintable() and value.isascii():
        return value  # the usual case
    text = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    text = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def flatten(value: object, *, separator: str = ".", limit: int = 20_000) -> dict[str, object]:
    """Nested mappings -> one level of dotted keys; the first `limit` leaves."""
    flat: dict[str, object] = {}
    stack: list[tuple[str, object]] = [("", value)]
    while stack and len(flat) < limit:
        prefix, item = stack.pop()
        if isinstance(item, dict):
            for key, inner in item.items():
                stack.append((f"{prefix}{separator}{key}" if prefix else str(key), inner))
        elif prefix:
            flat[prefix] = item
    return flat


_OF_A_VALUE = {"value", "desc", "description", "name", "section", "type", "sort"}


def unwrapped(value: object) -> object:
    """Settings without what a tracker says of each, as W&B's and ClearML's files do.

    >>> unwrapped({"lr": {"value": 1e-6, "desc": None}, "n": {"name": "n", "value": "8"}})
    {'lr': 1e-06, 'n': '8'}
    """
    if not isinstance(value, Mapping):
        return value
    if "value" in value and set(value) <= _OF_A_VALUE:
        return value["value"]
    return {key: unwrapped(inner) for key, inner in value.items()}


# Columns of a row per number: MLflow, Comet (metricName), Neptune (attribute_path), Aim
# (metric.name).
METRIC_WORDS = ("metric", "key", "tag", "metric_name", "metricname", "variable", "attribute_path",
                "metric.name")
VALUE_WORDS = ("value", "metric_value", "metricvalue", "float_value")


def unfolded(row: dict[str, object]) -> dict[str, object]:
    """A row that holds one number and its name, as one under that name; others as they are.

    >>> unfolded({"metricName": "eval/acc", "metricValue": "0.5", "step": 4})
    {'step': 4, 'eval/acc': '0.5'}
    """
    plain = {key.lower(): key for key in row if isinstance(key, str)}
    name = next((plain[w] for w in METRIC_WORDS if w in plain), None)
    value = next((plain[w] for w in VALUE_WORDS if w in plain), None)
    if name is None or value is None or not isinstance(row[name], str):
        return row
    rest = {key: kept for key, kept in row.items() if key not in (name, value)}
    return {**rest, str(row[name]): row[value]}


_DATE = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]")
_EPOCH = 1e9  # seconds from 1970 to 2001: less is no time of a log
CLOCKS = ("timestamp", "_timestamp", "time", "wall_time", "wall time", "created_at")


def clock_of(row: Mapping[str, object]) -> float | None:
    """When a row was logged, in seconds or their thousandths; None where it does not say.

    What is no date, such as the seconds that a step took, is not it.

    >>> clock_of({"step": 4, "Timestamp": "1757504800000"}), clock_of({"time": 12.5})
    (1757504800000.0, None)
    """
    for key in row:
        if isinstance(key, str) and key.lower() in CLOCKS:
            value = row[key]
            found = number(value)
            if found is None and isinstance(value, str) and _DATE.match(value):
                with contextlib.suppress(ValueError):
                    return datetime.datetime.fromisoformat(value.strip()).timestamp()
            return found if found is not None and found > _EPOCH else None
    return None


def in_time(rows: list[Any]) -> list[Any]:
    """Rows in the order of their clocks, where all have one; else as they are."""
    clocks = [clock for row in rows if isinstance(row, dict) and (clock := clock_of(row))]
    if len(clocks) < len(rows):
        return rows
    return [rows[i] for i in sorted(range(len(rows)), key=clocks.__getitem__)]


T = TypeVar("T")
P = ParamSpec("P")
_reads: list[int] = [0, 0]  # begun so far, and those that go on


def anew(read: Callable[P, T]) -> Callable[P, T]:
    """A function that reads sources as they are now: what was kept of their folders is not used."""
    @wraps(read)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        _reads[0] += not _reads[1]  # one within another reads as that does
        _reads[1] += 1
        try:
            return read(*args, **kwargs)
        finally:
            _reads[1] -= 1

    return call


def until_it_changes(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """A function that keeps what another reads of a folder, while one source or more are read.

    A file that is written anew leaves its folder's time as it is.
    """
    kept = lru_cache(maxsize=32)(lambda folder, _changed, _read: read(folder))
    return lambda folder: kept(folder, folder.stat().st_mtime_ns, _reads[0])


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
