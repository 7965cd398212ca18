"""A fifth set of layouts: what was misread, or refused without a way on."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import load_settings, read_log
from isocompute.importers.tidy import load_tidy

PATTERN = ["problems_per_batch=32", "pattern=n{rollouts_per_problem}"]


def verl(path: Path) -> Path:
    rows = [{"step": s, "data": {"val-core/math/acc/mean@4": 0.3 + s / 1000}} for s in (0, 20, 40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_an_archive_beside_logs_is_named(tmp_path: Path) -> None:
    path = verl(tmp_path / "bp32_n8.jsonl")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as file:
        file.write(path, "bp32_n16.jsonl")
    (run,) = read_log(tmp_path, settings=load_settings(PATTERN))
    assert run.notes[-1] == "more.zip: archives of the folder were not opened; unpack them"
    path.unlink()
    with pytest.raises(InputError, match=r"holds archives \(more\.zip\); unpack them first"):
        read_log(tmp_path, settings=load_settings(PATTERN))


def batches(path: Path, times: Any) -> Path:
    rows = ["train_batch_size,n,step,accuracy"]
    rows += [f"{times(n)},{n},{s},{0.3 + s / 1000}" for n in (8, 16) for s in (0, 20, 40)]
    path.write_text("\n".join(rows))
    return path


def test_a_batch_of_responses_is_not_taken_for_problems(tmp_path: Path) -> None:
    mapped = tmp_path / "columns.yaml"
    words = "n: rollouts_per_problem, step: steps, accuracy: score"
    mapped.write_text(f"columns: {{train_batch_size: problems_per_batch, {words}}}")
    settings = load_settings([], mapped)
    table = batches(tmp_path / "of-responses.csv", lambda n: 32 * n)
    with pytest.raises(InputError, match=r"'train_batch_size' is 32 times every n.*batch=32 and"):
        load_tidy(table, settings=settings)
    curves = load_tidy(batches(tmp_path / "of-problems.csv", lambda _: 64), settings=settings)
    assert {(c.problems_per_batch, c.rollouts_per_problem) for c in curves} == {(64, 8), (64, 16)}
    mapped.write_text(f"columns: {{{words}}}")
    settings = load_settings(["problems_per_batch=32"], mapped)
    curves = load_tidy(table, settings=settings)
    assert {(c.problems_per_batch, c.rollouts_K[-1]) for c in curves} == {
        (32, 40 * 256), (32, 40 * 512)}  # fmt: skip
