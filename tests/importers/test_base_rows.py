"""The base model's score in JSON lines: a row of step 0 without n, as tables may have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute.domain import Curve
from layout_helpers import lines, load, refused, write

_SCORES = {8: (0.42, 0.48, 0.51), 16: (0.40, 0.49, 0.53)}
_BASE = {"step": 0, "val/acc": 0.29}
_MAPS = ("val/acc=avg", "n=rollouts_per_problem", "bs=problems_per_batch")
Row = dict[str, object]


def _rows(named: str = "run", n: str = "n") -> list[Row]:
    return [
        {**({named: f"n{k}"} if named else {}), n: k, "bs": 32, "step": step, "val/acc": score}
        for k, scores in _SCORES.items() for step, score in zip((25, 50, 75), scores, strict=True)
    ]  # fmt: skip


def _read(curves: list[Curve]) -> dict[int, tuple[list[float], list[float]]]:
    return {c.rollouts_per_problem: (c.rollouts_K.tolist(), c.score_K.tolist()) for c in curves}


_WANTED = {n: ([0.0, *(32.0 * n * s for s in (25, 50, 75))], [0.29, *scores])
           for n, scores in _SCORES.items()}  # fmt: skip


@pytest.mark.parametrize(
    "base", [{"run": "base"}, {"run": "before training", "bs": 32}, {"run": "x", "n": None}, {}],
)
@pytest.mark.parametrize("last", [False, True])
def test_every_run_begins_with_it(tmp_path: Path, base: Row, last: bool) -> None:
    rows, own = _rows(), {**base, **_BASE}
    lines(tmp_path / "log.jsonl", [*rows, own] if last else [own, *rows])
    told = list[str]()
    assert _read(load(tmp_path / "log.jsonl", _MAPS, say=told.append)) == _WANTED
    assert any("are the base model's" in line for line in told)


def test_a_table_says_the_same(tmp_path: Path) -> None:
    rows = [{"run": "base", **_BASE}, *_rows()]
    keys = ("run", "n", "bs", "step", "val/acc")
    write(tmp_path / "t.csv", "\n".join([
        ",".join(keys), *(",".join(str(row.get(k, "")) for k in keys) for row in rows)]))
    maps = ("val/acc=score", *_MAPS[1:])
    assert _read(load(tmp_path / "t.csv", maps)) == _WANTED


def test_rows_that_name_no_run_begin_with_it_too(tmp_path: Path) -> None:
    lines(tmp_path / "log.jsonl", [_BASE, *_rows("", "rollouts_per_problem")])
    assert _read(load(tmp_path / "log.jsonl", ("val/acc=avg", _MAPS[2]))) == _WANTED


def test_a_run_keeps_its_own_score_of_step_0(tmp_path: Path) -> None:
    own = {**_rows()[0], "step": 0, "val/acc": 0.3}
    lines(tmp_path / "log.jsonl", [{"run": "base", **_BASE}, own, *_rows()])
    read = _read(load(tmp_path / "log.jsonl", _MAPS))
    assert (read[8][1][0], read[16][1][0]) == (0.3, 0.29)


@pytest.mark.parametrize(
    ("base", "also", "asked"),
    [
        ({"bs": 64}, {}, "`rollouts_per_problem` must be known"),  # of another batch
        ({"step": 25}, {}, "`rollouts_per_problem` must be known"),  # of training
        ({"model": "Qwen/Qwen2.5-7B"}, {"model": "Qwen/Qwen2.5-0.5B"}, "must share their model"),
    ],
)
def test_what_is_not_the_base_of_these_runs_is_asked_for(
    tmp_path: Path, base: Row, also: Row, asked: str
) -> None:
    rows = [{**row, **also} for row in _rows()]
    lines(tmp_path / "log.jsonl", [{"run": "base", **_BASE, **base}, *rows])
    assert asked in refused(tmp_path / "log.jsonl", _MAPS)


def test_a_row_of_no_run_beside_its_own_of_step_0_is_refused(tmp_path: Path) -> None:
    rows = _rows("", "rollouts_per_problem")
    lines(tmp_path / "log.jsonl", [_BASE, {**rows[0], "step": 0}, *rows])
    assert "must have one" in refused(tmp_path / "log.jsonl", ("val/acc=avg", _MAPS[2]))
