"""One JSON document whose rows name several runs: each is one, or nothing is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute.importers import read_log
from isocompute.importers.values.imported import UnclearError
from isocompute.importers.words.settings import load_settings
from layout_helpers import write

_RUNS = {"n8_s0": (0.30, 0.42, 0.48), "n16_s0": (0.30, 0.40, 0.49)}
_ROWS = [{"run": run, "step": step, "val/acc": score} for run, scores in _RUNS.items()
         for step, score in zip((0, 50, 100), scores, strict=True)]  # fmt: skip
_CONFIG = {"train_batch_size": 32, "learning_rate": 1e-6}


def _read(path: Path, document: object, *, key: str = "val/acc") -> dict[str, tuple[object, ...]]:
    write(path, json.dumps(document))
    settings = load_settings(["pattern=n{rollouts_per_problem}_s{seed}"], [f"{key}=avg"])
    return {
        run.name: (run.rollouts_per_problem, run.provenance.facts.get("learning_rate"),
                   *run.series[0].score_K.tolist())
        for run in read_log(path, settings=settings)
    }  # fmt: skip


_WANTED = {"n8_s0": (8, "1e-06", *_RUNS["n8_s0"]), "n16_s0": (16, "1e-06", *_RUNS["n16_s0"])}


def test_a_history_of_two_runs_is_two_runs_of_its_configuration(tmp_path: Path) -> None:
    assert _read(tmp_path / "h.json", {"config": _CONFIG, "history": _ROWS}) == _WANTED


def test_rows_of_another_list_are_too(tmp_path: Path) -> None:
    document = {"config": _CONFIG, "evals": _ROWS}
    assert _read(tmp_path / "h.json", document, key="evals/val/acc") == _WANTED


def test_one_of_several_documents_may_hold_two(tmp_path: Path) -> None:
    other = {"name": "n4_s0", "config": _CONFIG, "history": [
        {"step": row["step"], "val/acc": 0.2} for row in _ROWS[:3]]}  # fmt: skip
    document = [{"name": "both", "config": _CONFIG, "history": _ROWS}, other]
    assert _read(tmp_path / "h.json", document) == {**_WANTED, "n4_s0": (4, "1e-06", *[0.2] * 3)}


def test_rows_of_one_run_keep_the_name_of_their_document(tmp_path: Path) -> None:
    document = {"name": "n4_s0", "config": _CONFIG, "history": [
        {**row, "run": "x"} for row in _ROWS[:3]]}  # fmt: skip
    assert [*_read(tmp_path / "h.json", document)] == ["n4_s0"]


def test_columns_that_name_two_runs_are_refused(tmp_path: Path) -> None:
    columns = {key: [row[key] for row in _ROWS] for key in _ROWS[0]}
    with pytest.raises(UnclearError, match="every row must say its run"):
        _read(tmp_path / "h.json", {"config": _CONFIG, "history": columns})


def test_rows_without_a_run_among_those_of_two_are_refused(tmp_path: Path) -> None:
    rows = [*_ROWS, {"step": 150, "val/acc": 0.5}]
    with pytest.raises(UnclearError, match="row 7 names none"):
        _read(tmp_path / "h.json", {"config": _CONFIG, "history": rows})
