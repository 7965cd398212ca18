"""Protocol-buffer fields and record checksums, as far as event files need them.

A reader of its own: the trackers' generated classes come with their whole packages, and accept
a message that was cut short; here every length is checked against what is there.
Source: protobuf.dev encoding guide (wire types 0, 1, 2, 5); RFC 3720 (CRC-32C).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


class WireError(ValueError):
    """A message that does not follow the encoding; the record is reported, not the run."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, next position) of a base-128 number of at most 10 bytes."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1  # nearly all tags and lengths
    value = shift = 0
    for position in range(at, min(at + 10, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
        shift += 7
    raise WireError("a number is cut short")


def signed(value: int) -> int:
    """An int64 field's value (two's complement)."""
    return value - (1 << 64) if value >= 1 << 63 else value


def iter_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value): an int for varints, bytes for everything else.

    Raises:
        WireError: where the message is cut short or uses a wire type that is not known.
    """
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise WireError(f"wire type {kind} is not known")
        if at + size > len(data):
            raise WireError("a field is cut short")
        yield number, data[at : at + size]
        at += size


def text(value: int | bytes) -> str:
    """A string field."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def double(value: int | bytes) -> float:
    """A double or float field.

    Raises:
        WireError: for another size than 8 or 4 bytes.
    """
    if isinstance(value, bytes) and len(value) == 8:
        return float(struct.unpack("<d", value)[0])
    if isinstance(value, bytes) and len(value) == 4:
        return float(struct.unpack("<f", value)[0])
    raise WireError("a float must have 4 or 8 bytes")


def _table() -> NDArray[np.uint32]:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(0x82F63B78), crc >> 1)
    return crc


_TABLE = _table()
_TABLE_LIST = [int(v) for v in _TABLE]


def _mask(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """CRC-32C, rotated and offset as TFRecord files store it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE_LIST[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return _mask(crc ^ 0xFFFFFFFF)


def find_header(data: bytes, start: int) -> int | None:
    """First offset >= start at which 8 length bytes and their checksum agree, or None.

    All offsets at once: eight table look-ups over the whole buffer.
    """
    count = len(data) - start - 12 + 1
    if count <= 0:
        return None
    raw = np.frombuffer(data, np.uint8, offset=start)
    crc = np.full(count, 0xFFFFFFFF, np.uint32)
    for i in range(8):
        crc = _TABLE[(crc ^ raw[i : i + count]) & 0xFF] ^ (crc >> np.uint32(8))
    crc = crc ^ np.uint32(0xFFFFFFFF)
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
    stored = sum(
        raw[8 + i : 8 + i + count].astype(np.uint32) << np.uint32(8 * i) for i in range(4)
    )
    hits = np.flatnonzero(masked == stored)
    return start + int(hits[0]) if hits.size else None
