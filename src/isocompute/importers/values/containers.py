"""Consoles as Docker keeps them, `ID-json.log`: an object for each line, its stream and its time.

A line of more than 16 kB stands in several; a last one that is torn is none of the console's.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from typing import IO, Any, cast

import orjson

_BEGINS = b'{"log":'  # moby, daemon/logger/jsonfilelog/jsonlog: log, stream, attrs, time
_STREAMS = ("stdout", "stderr")
_CHUNK = 1 << 20


def unpacked(handle: IO[bytes]) -> IO[bytes]:
    """What a console wrote, of a file that stands at its beginning; of any other, the file."""
    first = b""
    with contextlib.suppress(OSError, EOFError, zlib.error):  # packed and torn: told line by line
        if handle.read(len(_BEGINS)) == _BEGINS:
            first = _BEGINS + handle.readline(_CHUNK)
    handle.seek(0)
    if not _text_of(first):
        return handle
    return cast(IO[bytes], io.BufferedReader(_Console(handle), _CHUNK))


def _text_of(line: bytes) -> bytes:
    r"""The part of a line that an object holds.

    >>> _text_of(b'{"log":"step:1\\n","stream":"stdout","time":"2026-03-11T09:00:00Z"}')
    b'step:1\n'
    >>> _text_of(b'{"log":"step:1'), _text_of(b'{"log":"a","step":1}')
    (b'', b'')
    """
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError:
        return b""
    is_line = isinstance(said, dict) and said.get("stream") in _STREAMS
    return said["log"].encode() if is_line and isinstance(said.get("log"), str) else b""


class _Console(io.RawIOBase):
    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            if not (line := self._handle.readline(_CHUNK)):
                return 0
            self._held = _text_of(line)
        part, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._handle.close()
        super().close()
