"""Row 1 with real training: a study killed anywhere ends as if it never was, weights included."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.store import Store
from study_helpers import digest

TRL_PYTHON = os.environ.get("ISOCOMPUTE_TRL_PYTHON", sys.executable)
needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None and "ISOCOMPUTE_TRL_PYTHON" not in os.environ,
    reason="no Python with trl",
)

STUDY = """\
engine: {engine}
engine_options: {{model: bits{options}}}
problems:
  train: {{generated: world, options: {{size: 24, seed: 1, agree: 17}}}}
  validation: {{val: {{generated: world, options: {{size: 20, seed: 2, agree: 17}}}}}}
recipe: {{learning_rate: 1e-3, temperature: 1.0, warmup_steps: 2, kl_coef: 1e-3}}
grid: {{problems_per_batch: 8, rollouts_per_problem: 8}}
budget: {budget}
evaluation: {{samples: 4, per_octave: 2, first: 64}}
"""


def command(tmp_path: Path, engine: str, steps: int, folder: Path) -> list[str]:
    options = f", python: '{TRL_PYTHON}', device: cpu, micro_batch: 64" if engine == "trl" else ""
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(engine=engine, options=options, budget=64 * steps))
    return [sys.executable, "-m", "isocompute", "run", str(study), "-o", str(folder)]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                   "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(arguments, start_new_session=True, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def steps_done(folder: Path) -> int:
    try:
        with Store(folder) as store:
            return max((run.steps_done for run in store.runs()), default=0)
    except InputError:  # not there yet, or its tables are being made at this moment
        return 0


def attempts_under_way(folder: Path) -> int:
    with Store(folder) as store:
        return int(store.database.read(
            "SELECT count(*) FROM attempts WHERE outcome = 'running'")[0][0])  # fmt: skip


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL of the runner and everything below it, also in other sessions, all at once."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    doomed, waiting = [], [process.pid]
    while waiting:
        doomed.append(waiting.pop())
        waiting += children.get(doomed[-1], [])
    for pid in doomed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def check_killed_and_resumed(tmp_path: Path, engine: str, steps: int, kills: list[int]) -> None:
    """SIGKILL once so many steps are committed, again and again, then a run to the end."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done = start(command(tmp_path, engine, steps, whole))
    assert done.wait(600) == 0, done.stdout.read() if done.stdout else ""
    assert steps_done(whole) == steps
    rng, died = random.Random(0), 0
    for after in kills:
        process = start(command(tmp_path, engine, steps, cut))
        end = time.monotonic() + 300
        while steps_done(cut) < after and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.1))
        assert process.poll() is None, "it must still run when it is killed"
        kill_tree(process)
        assert after <= steps_done(cut) < steps
        died += attempts_under_way(cut)  # none where it was killed between two slices of the run
    last = start(command(tmp_path, engine, steps, cut))
    assert last.wait(600) == 0, last.stdout.read() if last.stdout else ""
    # records of every table, in both formats, and the weights
    assert digest(cut, tmp_path / "a") == digest(whole, tmp_path / "b")
    with Store(cut) as store:
        counted = store.accounting()
    assert counted.rollouts == 64 * steps
    assert 1 <= counted.uncertain_steps == died <= len(kills)


@pytest.mark.trainers
@needs_trl
def test_row_1_a_study_on_trl_is_killed_twice_and_ends_the_same(tmp_path: Path) -> None:
    check_killed_and_resumed(tmp_path, "trl", 12, [1, 6])


@pytest.mark.slow
def test_row_1_a_study_on_the_embedded_engine_likewise(tmp_path: Path) -> None:
    check_killed_and_resumed(tmp_path, "local", 600, [10, 100, 300])
