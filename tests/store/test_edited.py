"""A study file that is mended before its runs have results: the mended runs take their place."""

from __future__ import annotations

import contextlib
from pathlib import Path

from isocompute.runner import run_study
from isocompute.sources import load_curves
from isocompute.store import Database, Store, leases
from isocompute.store.doctor import examine
from isocompute.store.processes import this_process
from isocompute.store.register import register
from isocompute.store.status import study_status
from study_helpers import FAST, small_study

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
