"""Consoles as they are kept: by a container, each line with its stream and its time; rotated.

Docker's `ID-json.log` has an object for each (moby, daemon/logger/jsonfilelog/jsonlog: log, stream,
attrs, time), in parts of 16 kB. Kubernetes' logs, as crictl and kubelet write them, have words in
front: TIME stdout F TEXT, P for a part. A last line that is torn is none of the console's.
"""

from __future__ import annotations

import contextlib
import io
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, cast

import orjson

_OF_POD = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T\S{8,30} (?:stdout|stderr) ([FP]) (.*\n)", re.S)
_STREAMS = ("stdout", "stderr")
_ROTATED = (".log", ".out", ".stdout", ".txt")  # of rows each part is a log, and they are joined
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # how a text in it begins
_CHUNK = 1 << 20


def unpacked(handle: IO[bytes]) -> IO[bytes]:
    """What a console wrote, of a file that stands at its beginning; of any other, its text."""
    first = b""
    with contextlib.suppress(OSError, EOFError, zlib.error):  # packed and torn: told line by line
        first = handle.readline(_CHUNK)
    handle.seek(0)
    if first.startswith(UTF16):
        return cast(IO[bytes], io.BufferedReader(Lines([Wide(handle)])))
    if not _text_of(first):
        return handle
    return cast(IO[bytes], io.BufferedReader(Lines([handle], _text_of), _CHUNK))


def _text_of(line: bytes) -> bytes:
    r"""What a console wrote, of a line of a container's log; of any other, nothing.

    >>> _text_of(b'{"log":"step:1\\n","stream":"stdout","time":"2026-03-11T09:00:00Z"}')
    b'step:1\n'
    >>> _text_of(b"2026-03-11T09:00:00.1Z stdout P step:1 - \n")
    b'step:1 - '
    >>> _text_of(b'{"log":"step:1'), _text_of(b'{"log":"a","step":1}')
    (b'', b'')
    """
    if match := _OF_POD.fullmatch(line):
        return match[2].removesuffix(b"\n") if match[1] == b"P" else match[2]
    if not line.startswith(b'{"log":'):
        return b""
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError:
        return b""
    is_line = said.get("stream") in _STREAMS and isinstance(said["log"], str)
    return said["log"].encode() if is_line else b""


def older_parts(path: Path) -> list[Path]:
    """The parts of a console that were rotated away, oldest first: run.log.2.gz, run.log.1."""
    found = list[Path]()
    while path.suffix in _ROTATED and (part := next((one for end in ("", ".gz") if (
        one := path.with_name(f"{path.name}.{len(found) + 1}{end}")
    ).is_file()), None)):  # fmt: skip
        found.append(part)
    return found[::-1]


class Wide:
    """Lines of a text in UTF-16, as PowerShell's `>` writes a console, in UTF-8."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._text = io.TextIOWrapper(handle, "utf-16", errors="replace", newline="\n")

    def readline(self, size: int) -> bytes:
        """The next line, or so much of it."""
        return self._text.readline(size).encode()

    def close(self) -> None:
        """Close the file."""
        self._text.close()


class Lines(io.RawIOBase):
    """Files as one, which follow each other; `text_of`: what is meant of a line."""

    def __init__(
        self, handles: Sequence[IO[bytes] | Wide], text_of: Callable[[bytes], bytes] = bytes
    ) -> None:
        self._handles, self._text_of = [*handles], text_of
        self._held = b""
        self.ends_whole = True  # what was read so far ends its line

    def readable(self) -> bool:
        """As of any file."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with what follows."""
        while not self._held and self._handles:
            if line := self._handles[0].readline(_CHUNK):
                self._held = self._text_of(line)
            else:
                self._handles.pop(0).close()
        part, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(part)] = part
        self.ends_whole = part.endswith(b"\n") if part else self.ends_whole
        return len(part)

    def close(self) -> None:
        """Close those that are still open."""
        for handle in self._handles:
            handle.close()
        super().close()
