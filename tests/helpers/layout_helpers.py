"""Logs in small, and reading them as a user would: curves, or what is said instead."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.domain import Curve
from isocompute.errors import InputError
from isocompute.importers.values.wire import masked_crc32c
from isocompute.importers.words.settings import load_settings
from isocompute.sources import load_curves


def load(
    source: Path, maps: Sequence[str] = (), sets: Sequence[str] = (), **options: Any
) -> list[Curve]:
    return load_curves([str(source)], settings=load_settings([*sets], [*maps]), **options)


def refused(
    source: Path, maps: Sequence[str] = (), sets: Sequence[str] = (), **options: Any
) -> str:
    with pytest.raises(InputError) as caught:
        load(source, maps, sets, **options)
    return str(caught.value)


MAP = ("val/accuracy=avg",)


def lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def score(step: int, n: int, shift: float = 0.0) -> float:
    return round(0.2 + 0.002 * step + 0.001 * n + shift, 5)


def drawn(curves: Iterable[Curve]) -> dict[tuple[int, int, int | None], list[float]]:
    return {(c.problems_per_batch, c.rollouts_per_problem, c.seed): c.rollouts_K.tolist()
            for c in curves}  # fmt: skip


AT = range(0, 60, 10)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def log(folder: Path, run: str, n: int, key: str = "val/accuracy") -> Path:
    lines(folder / f"{run}.jsonl", ({"step": s, key: score(s, n)} for s in AT))
    return folder


def of(b_p: int, n: int, seed: int | None) -> dict[tuple[int, int, int | None], list[float]]:
    return {(b_p, n, seed): [b_p * n * s for s in AT]}


def events(path: Path, rows: Sequence[tuple[int, str, float]]) -> Path:
    """TensorBoard's records, one scalar in each."""
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    def varint(value: int) -> bytes:
        out = b""
        while value > 0x7F:
            out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
        return out + bytes([value])

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for step, tag, value in rows:
            scalar = field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
            data = b"\x10" + varint(step) + field(5, field(1, scalar))
            length = struct.pack("<Q", len(data))
            file.write(length + struct.pack("<I", masked_crc32c(length)) + data
                       + struct.pack("<I", masked_crc32c(data)))
    return path
