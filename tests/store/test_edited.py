"""A study file that is mended before its runs have results: the mended runs take their place."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isocompute.engines.base import StepRecord
from isocompute.errors import InputError
from isocompute.runner import run_study
from isocompute.sources import load_curves
from isocompute.store import Database, Store, leases
from isocompute.store.database import FencedError
from isocompute.store.doctor import examine
from isocompute.store.processes import this_process
from isocompute.store.register import register
from isocompute.store.status import study_status
from isocompute.store.writer import RunWriter
from isocompute.study import Limits
from study_helpers import FAST, edit, small_study

BROKEN = small_study(engine="odd", options={"fault": "raises"})
MENDED = small_study(engine="odd", options={"fault": "plain"})


def test_a_run_that_was_mended_before_its_first_update_replaces_the_broken_one(
    tmp_path: Path,
) -> None:
    assert run_study(BROKEN, tmp_path, workers=0, settings=FAST).failed == 2
    before = study_status(tmp_path)
    drawn = 2 * 4 * 8  # at step 0: two runs, four samples of eight problems
    assert before.accounting.evaluation_rollouts == drawn
    assert run_study(MENDED, tmp_path, workers=0, settings=FAST).done == 2
    now = study_status(tmp_path)
    assert now.states == {"done": 2, "running": 0, "waiting": 0, "failed": 0, "invalid": 0}
    assert (now.rollouts_done, now.rollouts_total) == (512, 512)
    # What the broken ones drew is still paid for.
    lost = now.accounting.wasted_evaluation_rollouts
    assert lost == before.accounting.wasted_evaluation_rollouts + drawn
    assert not examine(tmp_path)
    with Store(tmp_path) as store:
        assert {run.hash for run in store.runs()} == {spec.hash for spec in MENDED.runs}
        left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert left == {spec.hash for spec in MENDED.runs}
    # Two faults would be two arms, which no fit may mix.
    assert len(load_curves([str(tmp_path)])) == 2


def test_runs_that_nobody_began_are_replaced_unless_a_runner_is_at_work(tmp_path: Path) -> None:
    with contextlib.closing(Database(tmp_path, create=True)) as database:
        register(database, BROKEN)
        leases.beat(database, "another", this_process(), patience_s=1.0)
        register(database, MENDED)
        assert len(database.read("SELECT 1 FROM runs")) == 4
        leases.leave(database, "another", set())
        register(database, small_study(engine="odd", options={"fault": "slow"}))
        # One of the two that were left at each (B_p, n, seed).
        assert len(database.read("SELECT 1 FROM runs")) == 4
    other = tmp_path / "other"
    with contextlib.closing(Database(other, create=True)) as database:
        register(database, BROKEN)
        register(database, small_study(engine="odd", options={"fault": "plain"}, ns=(2, 8)))
        rows = database.read("SELECT json_extract(spec, '$.rollouts_per_problem') FROM runs")
        assert sorted(n for (n,) in rows) == [2, 4, 8]  # n = 4 is another run, not an edited one


def test_a_refused_edit_leaves_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_study(BROKEN, tmp_path, workers=0, settings=FAST).failed == 2

    def refuse(*_: object) -> None:
        raise InputError("a file that runs are made of was changed")

    with monkeypatch.context() as patched:
        patched.setattr("isocompute.store.register.refuse_changed", refuse)
        with pytest.raises(InputError):
            run_study(MENDED, tmp_path, workers=0, settings=FAST)
    assert not examine(tmp_path)
    assert study_status(tmp_path).accounting.wasted_evaluation_rollouts == 0


def test_folders_that_a_death_left_go_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_study(BROKEN, tmp_path, workers=0, settings=FAST).failed == 2
    with monkeypatch.context() as patched:
        patched.setattr("isocompute.store.register.remove_replaced", lambda _: None)
        assert run_study(MENDED, tmp_path, workers=0, settings=FAST).done == 2
    assert len(list((tmp_path / "checkpoints").iterdir())) == 4
    assert run_study(MENDED, tmp_path, workers=0, settings=FAST).done == 2
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    assert not examine(tmp_path)


def test_a_worker_of_before_the_edit_writes_nothing_into_the_edited_run(tmp_path: Path) -> None:
    """Its runner was killed, and it has not noticed yet."""
    with contextlib.closing(Database(tmp_path, create=True)) as database:
        register(database, small_study(engine="odd", options={"fault": "slow"}, ns=(2,)))
        claim = leases.claim(database, "killed", lambda free: (free[0], 32))
        assert claim is not None
        writer = RunWriter(database, claim, {"val": 8}, commit_share=math.inf)
        register(database, small_study(engine="odd", options={"fault": "plain"}, ns=(2,)))
        writer.step(StepRecord(step=1, rollouts=8, tokens=0, problem_Q=np.arange(4),
                               successes_Q=np.ones(4, int), samples=2))  # fmt: skip
        with pytest.raises(FencedError), writer.checkpoint(1) as folder:
            (folder / "model.safetensors").write_bytes(b"weights")
        writer.close()
        assert database.read("SELECT steps_done, rollouts FROM runs") == [(0, 0)]
    mended = small_study(engine="odd", options={"fault": "plain"}, ns=(2,))
    assert run_study(mended, tmp_path, workers=0, settings=FAST).done == 1
    assert study_status(tmp_path).accounting.wasted_rollouts == 8
    assert not examine(tmp_path)


def test_time_before_an_edit_is_not_that_of_the_edited_run(tmp_path: Path) -> None:
    limits = Limits(wall_s=600)
    run_study(replace(BROKEN, limits=limits), tmp_path, workers=0, settings=FAST)
    edit(tmp_path, "UPDATE attempts SET wall_s = 700")
    assert run_study(replace(MENDED, limits=limits), tmp_path, workers=0, settings=FAST).done == 2
    assert study_status(tmp_path).accounting.wall_s > 700


def test_a_smaller_grid_leaves_no_second_arm_for_a_fit(tmp_path: Path) -> None:
    broken = small_study(engine="odd", options={"fault": "raises"}, ns=(2, 4, 8))
    run_study(broken, tmp_path, workers=0, settings=FAST)
    assert run_study(MENDED, tmp_path, workers=0, settings=FAST).done == 2
    assert len(load_curves([str(tmp_path)])) == 2
