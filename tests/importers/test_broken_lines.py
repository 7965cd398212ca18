"""Lines that could be broken unnoticed: a log or a table, as it is written, for each of them."""

from __future__ import annotations

import csv
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from isocompute.importers import import_logs, load_settings, read_log
from isocompute.importers.values.wire import masked_crc32c
from isocompute.importers.words.vocabulary import column_of
from layout_helpers import AT, MAP, drawn, events, lines, load, log, of, refused, score, write

SETS = ["problems_per_batch=6", "rollouts_per_problem=4"]


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


# W&B's own file: LevelDB's blocks, a record for each call of log.


def blocks(records: list[bytes]) -> bytes:
    out = bytearray(b":W&B\x00\x00\x00")
    for data in records:
        first = True
        while first or data:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += bytes(room)
                continue
            part, data = data[: room - 7], data[room - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[
                first, not data]  # fmt: skip
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return bytes(out)


def wandb(
    path: Path, rows: list[dict[str, object]], defined: list[bytes], more: bytes = b""
) -> Path:
    records = [field(13, one) for one in defined]
    for i, row in enumerate(rows):
        items = b"".join(
            field(1, field(1, key.encode()) + field(16, json.dumps(value).encode()))
            for key, value in {**row, "_step": i}.items()
        )
        records.append(field(2, items))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(blocks([*records, *([more] if more else [])]))
    return path


@pytest.mark.parametrize("number", [1, 2])  # a name, a glob
def test_what_wandb_was_told_counts_a_score_counts_it(tmp_path: Path, number: int) -> None:
    rows: list[dict[str, object]] = []
    for s in AT:  # TRL's trainer counts its own; an evaluation of one's own has a counter beside it
        rows += [{"train/global_step": s, "train/reward": 0.2},
                 {"eval/step": s, "held/accuracy": score(s, 4)}]  # fmt: skip
    file, held = tmp_path / "run-a.wandb", ["held/accuracy=avg"]
    assert "have no train/global_step" in refused(wandb(file, rows, []), held, SETS)
    name = b"held/accuracy" if number == 1 else b"held/*"
    wandb(file, rows, [field(number, name) + field(4, b"eval/step")])
    assert drawn(load(file, held, SETS)) == of(6, 4, None)


def test_records_of_wandb_that_are_torn_nested_or_huge(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"train/global_step": s, "val": {"accuracy": score(s, 4)}, "said": "x" * 2000 * s}
        for s in AT
    ]  # fmt: skip
    file = wandb(tmp_path / "run-a.wandb", rows, [])
    assert drawn(load(file, MAP, SETS)) == of(6, 4, None)
    rows[2]["said"] = "x" * (17 << 20)  # more than a record may have
    wandb(file, rows, [])
    (curve,) = load(file, MAP, SETS)
    assert curve.rollouts_K.tolist() == [24 * s for s in AT if s != 20]
    wandb(file, rows[:2], [], field(2, b"\x0a\xff\xff\x01"))  # a field longer than its record
    (run,) = read_log(file)
    assert run.notes == ("1 records or rows were damaged and were not read",)
    rows[2]["said"] = "x" * 70_000
    torn = wandb(file, rows[:3], []).read_bytes()
    file.write_bytes(torn[: 2 * 32768])  # between two parts of one record
    (run,) = read_log(file)
    assert run.notes == ("1 records or rows were damaged and were not read",)


# TensorBoard's records.


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (length + struct.pack("<I", masked_crc32c(length)) + data
            + struct.pack("<I", masked_crc32c(data)))  # fmt: skip


def event(step: int, tag: str, value: bytes) -> bytes:
    return record(b"\x10" + varint(step) + field(5, field(1, field(1, tag.encode()) + value)))


def scalar(value: float) -> bytes:
    return b"\x15" + struct.pack("<f", value)


@pytest.mark.parametrize("size", [700_000, 3_000_000])
def test_images_between_scalars_of_tensorboard_are_passed_over(tmp_path: Path, size: int) -> None:
    image = event(0, "samples", field(4, b"x" * size))
    whole = b"".join(image * (s in (0, 30)) + event(s, "val/accuracy", scalar(score(s, 4)))
                     for s in AT)  # fmt: skip
    file = tmp_path / "events.out.tfevents.1.host"
    file.write_bytes(whole)
    assert drawn(load(file, MAP, SETS)) == of(6, 4, None)
    file.write_bytes(whole[:-900] + b"\x00" * 30 + whole)  # damaged: read on at the next record
    assert drawn(load(file, MAP, SETS)) == of(6, 4, None)
    file.write_bytes(whole + image[:-9])
    (run,) = read_log(file, settings=load_settings(SETS, [*MAP]))
    assert run.n_errors == 1
    assert len(run.series[0].step_K) == len(AT)


def test_tensors_of_one_number_are_scalars(tmp_path: Path) -> None:
    """TensorFlow 2 writes a scalar as a tensor: its number, or its bytes."""
    forms = (lambda v: b"\x08\x01" + b"\x2d" + struct.pack("<f", v),  # float_val
             lambda v: b"\x08\x01" + field(5, struct.pack("<f", v)),  # the same, packed
             lambda v: b"\x08\x02" + field(6, struct.pack("<d", v)),  # double_val
             lambda v: b"\x08\x01" + field(4, struct.pack("<f", v)),  # tensor_content
             lambda v: b"\x08\x02" + field(4, struct.pack("<d", v)))  # fmt: skip
    for form in forms:
        file = tmp_path / "events.out.tfevents.1.host"
        file.write_bytes(b"".join(
            event(s, "val/accuracy", field(8, form(score(s, 4)))) for s in AT))  # fmt: skip
        (curve,) = load(file, MAP, SETS)
        assert curve.score_K.tolist() == pytest.approx([score(s, 4) for s in AT], abs=1e-6)
        assert curve.rollouts_K.tolist() == [24 * s for s in AT]
