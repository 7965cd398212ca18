"""The recorder inside TRL and verl themselves, in their own Pythons."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isocompute.importers import read_log
from isocompute.importers.values.imported import ImportedRun, Series

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"
SOURCE = str(ROOT / "src")
TRL_PYTHON = os.environ.get("ISOCOMPUTE_TRL_PYTHON", sys.executable)
VERL_PYTHON = os.environ.get("ISOCOMPUTE_VERL_PYTHON", str(ROOT / ".venv-verl/bin/python"))
needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None and "ISOCOMPUTE_TRL_PYTHON" not in os.environ,
    reason="no Python with trl",
)
needs_verl = pytest.mark.skipif(not Path(VERL_PYTHON).is_file(), reason="no Python with verl")
pytestmark = pytest.mark.trainers


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", **more}


def command(tmp_path: Path, steps: int, *more: str, processes: int = 1) -> list[str]:
    launch = [TRL_PYTHON]
    if processes > 1:
        launch += ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", str(processes),
                   "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
                   "--main_process_port", "0"]  # fmt: skip
    return [*launch, str(HELPERS / "trl_script.py"), "--record", str(tmp_path / "runs" / "a"),
            "--folder", str(tmp_path / "out"), "--steps", str(steps), *more]  # fmt: skip


def train(tmp_path: Path, steps: int, *more: str, processes: int = 1) -> str:
    done = subprocess.run(
        command(tmp_path, steps, *more, processes=processes), env=environment(), text=True,
        capture_output=True, timeout=300, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def run_of(tmp_path: Path) -> ImportedRun:
    (run,) = read_log(tmp_path / "runs")
    return run


def series_of(run: ImportedRun, label: str, split: str) -> Series:
    (series,) = [s for s in run.series if s.metric.label == label and s.split == split]
    return series


def logged(tmp_path: Path, key: str) -> dict[int, float]:
    """TRL's own log: the first row of a step, by step."""
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    found: dict[int, float] = {}
    for row in state["log_history"]:
        if key in row:
            found.setdefault(row["step"], row[key])
    return found


@needs_trl
@pytest.mark.parametrize("processes", [1, 2])
def test_what_trl_logged_is_what_is_recorded(tmp_path: Path, processes: int) -> None:
    said = train(tmp_path, 4, processes=processes)
    assert "isocompute:" not in said  # no rank but the first opened the file
    run = run_of(tmp_path)
    assert (run.problems_per_batch, run.rollouts_per_problem, run.seed) == (4, 8, 0)
    scores, batches = series_of(run, "avg@4", "validation"), series_of(run, "avg", "train")
    assert scores.step_K.tolist() == [0, 2, 4]
    assert dict(zip(scores.step_K.tolist(), scores.score_K.tolist(), strict=True)) == (
        pytest.approx(logged(tmp_path, "eval_reward")))  # fmt: skip
    assert batches.rollouts_K.tolist() == [32, 64, 96, 128]
    assert dict(zip(batches.step_K.tolist(), batches.score_K.tolist(), strict=True)) == (
        pytest.approx(logged(tmp_path, "reward")))  # fmt: skip
    assert scores.tokens_K.tolist() == [0, 2 * 32 * 8, 4 * 32 * 8]  # eight tokens in each
    assert not run.notes


@needs_trl
def test_a_killed_and_resumed_run_is_one_run(tmp_path: Path) -> None:
    record = tmp_path / "runs" / "a.jsonl"
    process = subprocess.Popen(
        command(tmp_path, 2000), env=environment(), cwd=tmp_path, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while '"step": 7,' not in (record.read_text() if record.is_file() else ""):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    before = run_of(tmp_path)
    train(tmp_path, 12, "--resume")
    run = run_of(tmp_path)
    batches = series_of(run, "avg", "train")
    last = max(12, int(series_of(before, "avg", "train").step_K[-1]))
    assert batches.step_K.tolist() == list(range(1, last + 1))
    assert batches.rollouts_K.tolist() == [32.0 * step for step in range(1, last + 1)]
    assert batches.tokens_K.tolist() == [256.0 * step for step in range(1, last + 1)]
    assert "steps done again after a resume" in run.notes[0]


VERL_SCRIPT = """
import json, sys
import verl
from verl.utils.tracking import Tracking
config = json.loads(sys.argv[1])
tracking = Tracking("project", "bp2_n4", ["console", "isocompute"], config)
for step, row in json.loads(sys.argv[2]):
    tracking.log(row, step)
"""


def verl_config(**algorithm: Any) -> dict[str, Any]:
    return {
        "data": {"train_batch_size": 2, "seed": 5},
        "actor_rollout_ref": {"rollout": {"n": 4}, "model": {"path": "m"},
                              "actor": {"optim": {"lr": 1e-6}}},
        "algorithm": {"filter_groups": algorithm},
    }  # fmt: skip


def track(tmp_path: Path, config: dict[str, Any], rows: list[tuple[int, dict[str, float]]]) -> str:
    done = subprocess.run(
        [VERL_PYTHON, "-c", VERL_SCRIPT, json.dumps(config), json.dumps(rows)], text=True,
        env=environment(VERL_USE_EXTERNAL_MODULES="isocompute.hooks.verl",
                        ISOCOMPUTE_RUNS=str(tmp_path / "runs")),
        capture_output=True, timeout=120, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def verl_row(step: int, score: float) -> tuple[int, dict[str, float]]:
    row = {"response_length/mean": 12.5, "critic/score/mean": 0.5, "actor/lr": 1e-6}
    if step % 2 == 0:
        row |= {"val-core/math/acc/mean@4": score, "val-aux/math/reward/mean@4": 9.0,
                "val-core/math/acc/best@4/mean": 1.0}  # fmt: skip
    return step, row


@needs_verl
def test_verls_own_tracking_records(tmp_path: Path) -> None:
    first = [(0, {"val-core/math/acc/mean@4": 0.1})] + [verl_row(s, s / 10) for s in (1, 2, 3, 4)]
    track(tmp_path, verl_config(), first)
    said = track(tmp_path, verl_config(), [verl_row(s, s / 10 + 0.05) for s in (3, 4, 5, 6)])
    assert "isocompute:" not in said
    run = run_of(tmp_path)
    assert (run.name, run.problems_per_batch, run.rollouts_per_problem, run.seed) == (
        "bp2_n4", 2, 4, 5)  # fmt: skip
    scores = series_of(run, "avg@4", "validation")
    assert scores.problem_set == "math"
    assert scores.step_K.tolist() == [0, 2, 4, 6]
    assert scores.score_K.tolist() == [0.1, 0.2, 0.45, 0.65]
    assert scores.rollouts_K.tolist() == [0, 16, 32, 48]
    assert scores.tokens_K.tolist() == [0, 200, 400, 600]
    assert series_of(run, "avg", "train").step_K.tolist() == [1, 2, 3, 4, 5, 6]


@needs_verl
def test_refilled_batches_are_said(tmp_path: Path) -> None:
    said = track(tmp_path, verl_config(enable=True), [verl_row(1, 0.5)])
    assert "algorithm.filter_groups refills batches" in said
    rows = [json.loads(line) for line in (tmp_path / "runs/bp2_n4.jsonl").read_text().splitlines()]
    assert [row.get("tokens") for row in rows] == [None, None]
