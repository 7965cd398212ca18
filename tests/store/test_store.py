"""The study folder: what is committed, what is refused, what is read back."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isocompute.engines.base import EvaluationRecord, StepRecord, StopRequested
from isocompute.errors import InputError
from isocompute.health import Monitor
from isocompute.runner import run_study
from isocompute.store import (
    Database,
    FencedError,
    StorageError,
    Store,
    leases,
    processes,
    schema,
)
from isocompute.store.doctor import examine
from isocompute.store.export import export_study
from isocompute.store.files import checkpoint_folder, fault, run_folder, seal
from isocompute.store.pack import count_text, pack, unpack
from isocompute.store.register import differences, register
from isocompute.store.status import study_status
from isocompute.store.writer import RunWriter
from study_helpers import FAST, digest, edit, small_study

DATA = Path(__file__).parents[1] / "data"


def first(free):
    return (free[0], free[0].target_steps) if free else None


def step_record(step, *, rollouts=None, successes=(1, 0), samples=2, **changes):
    values = {
        "step": step, "rollouts": 4 * step if rollouts is None else rollouts, "tokens": 8 * step,
        "problem_Q": np.array([3, 300]), "successes_Q": np.array(successes), "samples": samples,
        "health": {"entropy": 0.5, "kl": float("nan")}, "wall_s": 0.25,
    }  # fmt: skip
    return StepRecord(**{**values, **changes})


def evaluation_record(step, successes=(0, 0, 1, 4, 4, 2, 0, 3), **changes):
    values = {
        "step": step, "rollouts": 4 * step, "tokens": 8 * step, "problem_set": "val",
        "samples": 4, "successes_P": np.array(successes), "sampled_tokens": 64,
    }  # fmt: skip
    return EvaluationRecord(**{**values, **changes})


@pytest.fixture
def database(tmp_path):
    database = Database(tmp_path / "study", create=True)
    register(database, small_study(ns=(2,)))
    yield database
    database.close()


def writer_of(database, claim, **options):
    return RunWriter(database, claim, {"val": 8}, commit_share=float("inf"), **options)


def commit(writer, step, content=b"weights"):
    with writer.checkpoint(step) as folder:
        (folder / "model.safetensors").write_bytes(content)
    return folder


def test_what_is_committed_is_read_back(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.evaluation(evaluation_record(0))
    commit(writer, 0)
    writer.step(step_record(1))
    writer.step(step_record(2, successes=(2, 1)))
    writer.evaluation(evaluation_record(2, successes=(4,) * 8))
    commit(writer, 2)
    with Store(database.folder) as store:
        run = store.runs()[0]
        assert (run.steps_done, run.rollouts, run.tokens, run.state) == (2, 8, 16, "pending")
        assert (run.evaluation_rollouts, run.evaluation_tokens) == (64, 128)
        evaluations = store.evaluations(run.hash)
        assert evaluations.counts_KC.tolist() == [[3, 1, 1, 1, 2], [0, 0, 0, 0, 8]]
        assert evaluations.step_K.tolist() == [0, 2]
        steps = store.steps(run.hash)
        assert [p.tolist() for p in steps.problems] == [[3, 300], [3, 300]]
        assert [s.tolist() for s in steps.successes] == [[1, 0], [2, 1]]
        assert steps.health["entropy"].tolist() == [0.5, 0.5]
        assert steps.health["kl"].tolist() == [np.inf, np.inf]  # measured, and not finite
        assert steps.wall_s_K.tolist() == [0.25, 0.25]
        at, successes_KP = store.successes(run.hash, "val")
        assert at.tolist() == [0, 2]
        assert successes_KP[0].tolist() == [0, 0, 1, 4, 4, 2, 0, 3]
        assert len(store.evaluations(run.hash, problem_set="other")) == 0
        assert store.problem_set(run.spec["train"]["sha256"]).problems[3].id == "train-3"


def test_a_run_that_went_on_from_before_gives_way_from_there(database, monkeypatch):
    seen = []

    class Heard(Monitor):
        def update(self, step, values):
            seen[-1].append(step)
            return super().update(step, values)

        def __init__(self):
            seen.append([])
            super().__init__()

    monkeypatch.setattr("isocompute.store.findings.Monitor", Heard)
    writer = writer_of(database, leases.claim(database, "me", first))
    for step in (1, 2, 3, 4):
        writer.step(step_record(step))
        if step % 2 == 0:
            writer.evaluation(evaluation_record(step))
    commit(writer, 4)
    writer.rewind(2)
    assert (writer.position, seen[-1]) == (2, [1, 2])
    with Store(database.folder) as store:  # nothing is dropped before the next commit
        assert store.runs()[0].rollouts == 16
    writer.step(step_record(3, successes=(2, 2)))
    writer.evaluation(evaluation_record(3))
    commit(writer, 3)
    with Store(database.folder) as store:
        run = store.runs()[0]
        assert (run.steps_done, run.rollouts, run.tokens) == (3, 12, 24)
        assert (run.evaluation_rollouts, run.evaluation_tokens) == (64, 128)
        assert [s.tolist() for s in store.steps(run.hash).successes] == [[1, 0], [1, 0], [2, 2]]
        assert store.evaluations(run.hash).step_K.tolist() == [2, 3]
    writer.rewind(-1)
    assert (writer.position, seen[-1]) == (0, [])
    writer.evaluation(evaluation_record(0))
    with pytest.raises(InputError, match="taken back before its first record, but it is at step 0"):
        writer.rewind(-1)


def test_what_a_log_says_is_lost_by_no_kill(tmp_path):
    # The runner died, or the disk was full, before it was committed: it is read again.
    with contextlib.closing(Database(tmp_path, create=True)) as database:
        register(database, small_study(ns=(2,), engine="command"))
        for _ in (False, True):
            writer = writer_of(database, leases.claim(database, "me", first, dead={"me"}))
            writer.step(step_record(1))
            writer.evaluation(evaluation_record(1))
            assert writer.spent.rollouts == 0
        commit(writer, 1)
        assert writer.spent.rollouts == 4
        with Store(tmp_path) as store:
            spent = store.accounting()
    assert (spent.rollouts, spent.wasted_rollouts, spent.wasted_evaluation_rollouts) == (4, 0, 0)


def test_rows_without_a_checkpoint_are_not_kept(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))
    commit(writer, 1)
    writer.step(step_record(2))
    again = leases.claim(database, "you", first, dead={"me"})
    assert again.from_step == 1
    with Store(database.folder) as store:
        run = store.runs()[0]
        assert run.rollouts == 4
        assert run.wasted_rollouts == 4  # the progress file told what the lost attempt drew
        assert store.accounting().uncertain_steps == 1


def test_row_7_late_rows_of_a_fenced_runner_are_refused(database):
    claim = leases.claim(database, "slow", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))
    taken = leases.claim(database, "fast", first, dead={"slow"})
    assert taken.token == claim.token + 1
    with pytest.raises(FencedError, match="only the newest claim may write"):
        commit(writer, 1)
    assert not run_folder(database.folder, claim.hash).joinpath("1-1").exists()
    assert leases.settle(database, claim, "fenced", writer.spent) is False
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 0
        assert store.accounting().wasted_rollouts == 4


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "changed", "extra"])
def test_row_5_a_damaged_checkpoint_falls_back_to_the_one_before(database, damage):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    for step in (1, 2):
        writer.step(step_record(step))
        folder = commit(writer, step, b"weights of %d" % step)
    file = folder / "model.safetensors"
    if damage == "missing":
        shutil.rmtree(folder)
    elif damage == "empty":
        file.unlink()
    elif damage == "extra":
        (folder / "more").write_text("x")
    else:
        file.write_bytes(b"weigh" if damage == "torn" else b"Weights of 2")
    again = leases.claim(database, "you", first, dead={"me"})
    assert again.from_step == 1
    assert (again.resume / "model.safetensors").read_bytes() == b"weights of 1"
    assert "checkpoint of step 2" in again.notes[0]
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 1
        assert len(store.steps(again.hash)) == 1
        assert store.accounting().wasted_rollouts == 4


def test_row_5_with_no_usable_checkpoint_the_run_starts_over(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.evaluation(evaluation_record(0))
    writer.step(step_record(1))
    shutil.rmtree(commit(writer, 1))
    again = leases.claim(database, "you", first, dead={"me"})
    assert (again.from_step, again.resume) == (0, None)
    with Store(database.folder) as store:
        assert store.runs()[0].rollouts == store.runs()[0].evaluation_rollouts == 0
        assert store.accounting().wasted_evaluation_rollouts == 32


def test_only_two_checkpoints_are_kept_and_orphans_go(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    for step in (1, 2, 3, 4):
        writer.step(step_record(step))
        commit(writer, step)
    folder = run_folder(database.folder, claim.hash)
    assert sorted(p.name for p in folder.iterdir()) == ["1-3", "1-4"]
    (folder / "1-9").mkdir()
    leases.claim(database, "you", first, dead={"me"})
    assert sorted(p.name for p in folder.iterdir()) == ["1-3", "1-4"]


def test_a_second_checkpoint_of_the_same_step_with_an_evaluation_counts_once(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))
    commit(writer, 1, b"a")
    writer.evaluation(evaluation_record(1))
    torn = commit(writer, 1, b"b")
    (torn / "model.safetensors").write_bytes(b"")
    again = leases.claim(database, "you", first, dead={"me"})
    assert (again.resume / "model.safetensors").read_bytes() == b"a"
    writer = writer_of(database, again)
    writer.evaluation(evaluation_record(1))  # the engine repeats it; the first one is kept
    writer.step(step_record(2))
    commit(writer, 2)
    with Store(database.folder) as store:
        assert store.evaluations(claim.hash).step_K.tolist() == [1]
        run = store.runs()[0]
        assert (run.evaluation_rollouts, run.rollouts) == (32, 8)
        leases.settle(database, again, "stopped", writer.spent)
        assert store.accounting().wasted_evaluation_rollouts == 32


def test_stop_is_raised_after_the_commit(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim, stop=lambda: True)
    writer.step(step_record(1))
    assert writer.wants_checkpoint
    with pytest.raises(StopRequested):
        commit(writer, 1)
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 1


def test_an_error_inside_a_checkpoint_commits_nothing(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))
    with pytest.raises(KeyError), writer.checkpoint(1):
        raise KeyError("engine")
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 0


def test_checkpoints_wait_where_commits_would_take_too_much_time(database):
    claim = leases.claim(database, "me", first)
    writer = RunWriter(database, claim, {"val": 8}, commit_share=1e-6)
    writer.evaluation(evaluation_record(0))
    commit(writer, 0)
    writer.step(step_record(1))
    commit(writer, 1)
    assert list(run_folder(database.folder, claim.hash).iterdir()) == []
    writer = RunWriter(database, claim, {"val": 8}, commit_share=1e-6, checkpoint_every_s=1e-9)
    writer.step(step_record(1))
    commit(writer, 1)
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 1


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (step_record(2), "one step after the last"),
        (step_record(1, rollouts=-1), "do not fall"),
        (step_record(1, tokens=-1), "do not fall"),
        (step_record(1, successes=(1, 2, 1)), "one count of successes per problem"),
        (step_record(1, successes=(3, 0)), r"lie in 0\.\.2"),
        (step_record(1, successes=(-1, 0)), r"lie in 0\.\.2"),
        (step_record(1, problem_Q=np.array([-1, 2])), r"lie in 0\.\.,"),
    ],
)
def test_wrong_steps_are_refused(database, record, message):
    writer = writer_of(database, leases.claim(database, "me", first))
    with pytest.raises(InputError, match=message):
        writer.step(record)


@pytest.mark.parametrize(
    "record",
    [
        evaluation_record(1),
        evaluation_record(0, problem_set="other"),
        evaluation_record(0, successes=(1, 2)),
    ],
)
def test_wrong_evaluations_are_refused(database, record):
    writer = writer_of(database, leases.claim(database, "me", first))
    with pytest.raises(InputError, match="an evaluation must be of a validation set of the run"):
        writer.evaluation(record)


def test_a_checkpoint_of_another_step_is_refused(database):
    writer = writer_of(database, leases.claim(database, "me", first))
    with pytest.raises(InputError, match="a checkpoint must be of the last step recorded, 0"):
        commit(writer, 3)


def test_row_8_a_full_disk_while_a_checkpoint_is_written(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))
    with pytest.raises(StorageError, match=r"must be writable and have room.*No space"), (
        writer.checkpoint(1)
    ):
        raise OSError(28, os.strerror(28))
    commit(writer, 1)  # continues once there is room
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 1


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_row_9_a_failed_fsync_of_a_checkpoint_is_a_failed_commit(database, monkeypatch, call):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))

    def fail(descriptor):
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, call, fail)
    if call == "fsync":
        with pytest.raises(StorageError, match="Input/output error"):
            commit(writer, 1)
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 0


def test_row_11_a_newer_schema_is_refused_and_left_alone(database):
    database.connection.execute("PRAGMA user_version = 99")
    before = database.path.read_bytes()
    for create in (False, True):
        with pytest.raises(InputError, match=r"schema 99; upgrade isocompute"):
            Database(database.folder, create=create)
    assert database.path.read_bytes() == before


def test_row_7_a_runner_that_is_overtaken_before_it_began_is_fenced(database):
    slow = leases.claim(database, "slow", first)
    fast = leases.claim(database, "fast", first, dead={"slow"})
    writer = writer_of(database, fast)
    writer.step(step_record(1))
    done = commit(writer, 1)
    with pytest.raises(FencedError, match="only the newest claim may write"):
        writer_of(database, slow)
    with writer.checkpoint(1) as open_folder:
        (open_folder / "model.safetensors").write_bytes(b"half")
        leases._resume(database, slow)  # what a claim does last, and was paused before
        assert open_folder.is_dir()
    assert done.is_dir()
    assert fault(done, database.read("SELECT sha256 FROM checkpoints")[0][0]) == ""


def test_row_11_a_writer_stops_when_another_isocompute_changes_the_tables(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))
    other = sqlite3.connect(database.path)
    other.execute("PRAGMA user_version = 99")
    before = database.path.read_bytes()
    with pytest.raises(StorageError, match="another version upgraded it to 99; continue"):
        commit(writer, 1)
    assert database.path.read_bytes() == before


@pytest.mark.heavy
@pytest.mark.parametrize("workers", [0, 2])
def test_row_11_a_runner_ends_in_one_line_when_a_newer_one_changes_the_tables(tmp_path, workers):
    study, folder = small_study(rollouts=512), tmp_path / "study"

    def change(version):
        connection = sqlite3.connect(folder / "study.db", timeout=30)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()

    def upgrade(report):
        if report.rollouts_done > 0:
            change(99)

    with pytest.raises(StorageError, match="another version upgraded it to 99") as caught:
        run_study(study, folder, workers=workers, settings=FAST, progress=upgrade)
    assert "\n" not in str(caught.value)
    change(schema.SCHEMA_VERSION)  # as if the newer one went on
    assert run_study(study, folder, workers=0, settings=FAST).done == 2
    run_study(study, tmp_path / "whole", workers=0, settings=FAST)
    assert digest(folder, tmp_path / "a") == digest(tmp_path / "whole", tmp_path / "b")
    assert [f for f in examine(folder) if f.severity == "error"] == []


@pytest.mark.long
def test_row_11_tables_are_not_changed_under_an_older_runner(tmp_path, monkeypatch):
    shutil.copy(DATA / "store-v1" / "study.db", tmp_path)
    older = sqlite3.connect(tmp_path / "study.db", isolation_level=None, check_same_thread=False)
    older.execute("INSERT INTO runners VALUES ('elsewhere', '[\"host\", \"boot\"]', 1)")
    over = threading.Event()

    def beat():
        while not over.wait(0.05):
            older.execute("UPDATE runners SET beat = beat + 1")

    thread = threading.Thread(target=beat)
    thread.start()
    Database(tmp_path).close()  # who only reads does not ask
    with pytest.raises(InputError, match="but one of an older isocompute does; wait"):
        Database(tmp_path, create=True)
    over.set()
    thread.join()
    assert older.execute("PRAGMA user_version").fetchone() == (1,)
    monkeypatch.setattr(schema, "_WATCH_S", 0.6)  # one that has gone does not hold it up for ever
    Database(tmp_path, create=True).close()
    assert older.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_studies_of_older_schemas_still_open(tmp_path, version):
    """Files written by older versions are kept; they are read as they are, and extended."""
    shutil.copy(DATA / f"store-v{version}" / "study.db", tmp_path)
    before = (tmp_path / "study.db").read_bytes()
    with Store(tmp_path) as store:
        assert [(r.state, r.rollouts) for r in store.runs()] == [("done", 64), ("done", 64)]
        assert store.evaluations().rollouts_K.tolist() == [0, 32, 64] * 2
        assert store.steps(store.runs()[0].hash).step_K.tolist() == list(range(1, 9))
        assert schema.check(store.database.connection) == version
        assert [r.findings is None for r in store.runs()] == [version < 2] * 2
        assert store.unjudged() == []
    assert study_status(tmp_path).states["done"] == 2
    codes = {f.code for f in examine(tmp_path)}
    assert codes == {"checkpoint_unusable"} | ({"older_version"} if version < 4 else set())
    one = export_study(tmp_path, tmp_path / "a.csv")[0].read_bytes()
    assert (tmp_path / "study.db").read_bytes() == before
    # The checkpoints were not kept: the runs start over and say so.
    summary = run_study(small_study(rollouts=128), tmp_path, workers=0, settings=FAST)
    assert summary.done == 2
    copy = tmp_path / f"study.schema-{version}.db"
    assert any("its folder is missing" in line for line in summary.warnings)
    assert (str(copy) in summary.warnings[0]) == copy.exists() == (version < 5)
    if version < 5:  # the copy is what it was
        (tmp_path / "old").mkdir()
        shutil.copy(copy, tmp_path / "old" / "study.db")
        assert export_study(tmp_path / "old", tmp_path / "b.csv")[0].read_bytes() == one
        with Store(tmp_path / "old") as store:
            assert schema.check(store.database.connection) == version
    assert summary.accounting.wasted_rollouts == 128
    assert examine(tmp_path) == [] or {f.code for f in examine(tmp_path)} == {"mixed_versions"}


def test_another_programs_database_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / "study.db")
    connection.execute("CREATE TABLE notes (a)")
    connection.close()
    for create in (False, True):
        with pytest.raises(InputError, match="must be a study of isocompute"):
            Database(tmp_path, create=create)


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 300])
def test_a_file_that_is_no_study_is_refused(tmp_path, content):
    (tmp_path / "study.db").write_bytes(content)
    with pytest.raises(InputError, match="must hold a study|must be an intact SQLite file"):
        Store(tmp_path)
    with pytest.raises(InputError, match="must hold study.db"):
        Store(tmp_path / "nowhere")


def test_schema_is_the_documented_one(database):
    tables = {r[0] for r in database.read("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables >= {"study", "problems", "runs", "attempts", "steps", "evaluations",
                      "checkpoints"}  # fmt: skip
    assert database.read("PRAGMA journal_mode")[0][0] == "delete"
    assert database.read("PRAGMA synchronous")[0][0] == 2
    assert schema.check(database.connection) == schema.SCHEMA_VERSION


@pytest.mark.heavy
def test_extending_continues_and_edits_are_refused(tmp_path):
    run_study(small_study(ns=(2,)), tmp_path, workers=0, settings=FAST)
    longer = small_study(ns=(2, 4), seeds=(0, 1), rollouts=512)
    assert run_study(longer, tmp_path, workers=0, settings=FAST).done == 4
    run_study(longer, tmp_path / "fresh", workers=0, settings=FAST)
    assert digest(tmp_path, tmp_path / "a") == digest(tmp_path / "fresh", tmp_path / "b")
    with Store(tmp_path) as store:
        assert store.accounting().wasted_rollouts == 0
    edited = small_study(ns=(2, 4), rollouts=512, options={"interference": 0.1})
    with pytest.raises(InputError, match=r"engine_options\.interference: null -> 0\.1"):
        run_study(edited, tmp_path, workers=0, settings=FAST)
    both = replace(longer, runs=[*longer.runs, *edited.runs])
    assert run_study(both, tmp_path, workers=0, settings=FAST).done == 6


def test_a_study_whose_recipe_had_fewer_words_continues(tmp_path):
    """A run of an older version is known again although its hash has changed since."""
    study = small_study(ns=(2,), rollouts=64)
    run_study(study, tmp_path, workers=0, settings=FAST)
    with Store(tmp_path) as store:
        run = store.runs()[0]
        spec = {k: v for k, v in run.spec.items() if k != "steps"}
        other = "0123456789abcdef"
        older = {k: v for k, v in spec["recipe"].items() if k != "gae_gamma"} | {"gone": None}
    edit(tmp_path, "UPDATE runs SET hash = ?, spec = ?", other,
         json.dumps({**spec, "recipe": older}))  # fmt: skip
    run_folder(tmp_path, run.hash).rename(run_folder(tmp_path, other))
    summary = run_study(small_study(ns=(2,), rollouts=128), tmp_path, workers=0, settings=FAST)
    assert (summary.done, summary.warnings) == (1, ())
    assert (summary.accounting.rollouts, summary.accounting.wasted_rollouts) == (128, 0)
    with Store(tmp_path) as store:
        assert [r.hash for r in store.runs()] == [run.hash]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == [run.hash]


def test_a_smaller_budget_leaves_finished_runs_as_they_are(tmp_path):
    run_study(small_study(ns=(2,)), tmp_path, workers=0, settings=FAST)
    smaller = small_study(ns=(2,), rollouts=128)
    assert run_study(smaller, tmp_path, workers=0, settings=FAST).done == 1
    with Store(tmp_path) as store:
        assert store.runs()[0].rollouts == 256


def test_row_22_names_are_data(tmp_path):
    study = small_study(ns=(2,))
    spec = study.runs[0]
    names = ["../x", "/etc/passwd", "x" * 300, "Val", "val", "a\nb\x00\x1b", "<script>", "=1+1"]
    odd = replace(spec, validation=dict.fromkeys(names, spec.validation["val"]))
    study = replace(study, runs=[odd], name="../../name")
    run_study(study, tmp_path / "s", workers=0, settings=FAST)
    with Store(tmp_path / "s") as store:
        assert set(store.evaluations().problem_set_K) == set(names)
        assert store.name == "../../name"
    top = sorted(p.name for p in (tmp_path / "s").iterdir())
    assert top == ["checkpoints", "progress", "study.db"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


def test_row_24_text_that_begins_like_a_formula_is_quoted(tmp_path):
    study = small_study(ns=(2,))
    names = ["=1+1", "+1", "-1", "@x", "\tx", "plain"]
    odd = replace(study.runs[0], validation=dict.fromkeys(names, study.runs[0].validation["val"]))
    run_study(replace(study, runs=[odd]), tmp_path / "s", workers=0, settings=FAST)
    with export_study(tmp_path / "s", tmp_path / "t.csv")[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["problem_set"] for row in rows} == {
        "'=1+1", "'+1", "'-1", "'@x", "'\tx", "plain"}  # fmt: skip
    assert {row["rollouts"] for row in rows} == {"0", "32", "64", "128", "256"}  # untouched


@pytest.mark.heavy
@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_pandas_polars_and_duckdb_read_an_export(tmp_path, format):
    duckdb, pandas, polars = (pytest.importorskip(n) for n in ("duckdb", "pandas", "polars"))
    run_study(small_study(), tmp_path / "s", workers=0, settings=FAST)
    export_study(tmp_path / "s", tmp_path / "t", format=format)
    for name in ("runs", "evaluations", "steps", "problems", "attempts"):
        path = tmp_path / "t" / f"{name}.{format}"
        frames = getattr(pandas, f"read_{format}")(path), getattr(polars, f"read_{format}")(path)
        count, columns = duckdb.sql(f"SELECT * FROM '{path}'").shape
        assert {frame.shape for frame in frames} == {(count, columns)}
        assert count > 0
    tidy = export_study(tmp_path / "s", tmp_path / f"tidy.{format}")[0]
    best = duckdb.connect().execute(f"SELECT max(score), count(*) FROM '{tidy}'").fetchone()
    frame = getattr(pandas, f"read_{format}")(tidy)
    assert best == (frame["score"].max(), len(frame))
    assert getattr(polars, f"read_{format}")(tidy)["score"].max() == best[0]


def test_a_doctored_hash_builds_no_path(database):
    database.connection.execute("UPDATE runs SET hash = '../../../../tmp/x'")
    with pytest.raises(InputError, match="16 hexadecimal digits"):
        leases.claim(database, "me", first)


@pytest.mark.heavy
def test_export_formats_agree(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    run_study(small_study(), tmp_path / "s", workers=0, settings=FAST)
    export_study(tmp_path / "s", tmp_path / "p")
    export_study(tmp_path / "s", tmp_path / "c", format="csv")
    for name in ("runs", "evaluations", "steps", "problems", "attempts"):
        table = parquet.read_table(tmp_path / "p" / f"{name}.parquet").to_pylist()
        with (tmp_path / "c" / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(table) > 0
        for row, truth in zip(rows, table, strict=True):
            for key, value in truth.items():
                if isinstance(value, list):
                    assert json.loads(row[key]) == value
                else:
                    assert row[key] == ("" if value is None else str(value))
    tidy = parquet.read_table(export_study(tmp_path / "s", tmp_path / "t.parquet")[0]).to_pylist()
    assert [r["rollouts"] for r in tidy[:3]] == [0, 32, 64]
    with Store(tmp_path / "s") as store:
        counts_KC = store.evaluations().counts_KC
        truth = (counts_KC * np.arange(5)).sum(axis=1) / 4 / 8
        assert sorted(r["score"] for r in tidy) == pytest.approx(sorted(truth))
        assert sorted(r["worst"] for r in tidy) == pytest.approx(sorted(counts_KC[:, 4] / 8))


def test_what_only_later_runs_of_logs_have_is_exported(tmp_path):
    """1,200 rows without seed, tokens or a fraction of a batch, and then some with them."""
    parquet = pytest.importorskip("pyarrow.parquet")
    run_study(small_study(ns=(2,)), tmp_path / "s", workers=0, settings=FAST)
    row = {"problems_per_batch": 8, "rollouts_per_problem": 2, "rollouts": 16.0, "score": 0.5,
           "best": None, "worst": None, "tokens": None, "seed": None, "run": "a", "steps": 1,
           "metric": "avg", "problem_set": "", "split": "validation"}  # fmt: skip
    rows = [row] * 1_200 + [row | {"rollouts": 20.5, "tokens": 3.0, "seed": 7}]
    for target in (tmp_path / "t.parquet", tmp_path / "t"):
        files = {path.stem: path for path in export_study(tmp_path / "s", target, imported=rows)}
        table = parquet.read_table(files.get("imported", tmp_path / "t.parquet")).to_pylist()
        assert table[-1].items() >= rows[-1].items()
        assert (table[-2]["seed"], table[-2]["tokens"]) == (None, None)


@pytest.mark.parametrize(("target", "format"), [("x.csv", "parquet"), ("folder", "xlsx")])
def test_export_refuses_contradictions(database, tmp_path, target, format):
    with pytest.raises(InputError, match="the format must be one of parquet, csv"):
        export_study(database.folder, tmp_path / target, format=format)


def test_status_and_ledger(tmp_path):
    run_study(small_study(), tmp_path, workers=0, settings=FAST)
    with Store(tmp_path) as store:
        store.spend("difficulty", rollouts=160, tokens=320, wall_s=1.5)
        store.spend("difficulty", rollouts=40)
    status = study_status(tmp_path)
    assert status.states == {"done": 2, "running": 0, "waiting": 0, "failed": 0, "invalid": 0}
    assert (status.rollouts_done, status.rollouts_total, status.usable_fraction) == (512, 512, 1.0)
    assert status.accounting.other["difficulty"] == {"rollouts": 200, "tokens": 320, "wall_s": 1.5}
    assert "200 on difficulty" in "\n".join(status.lines())
    json.dumps(status.to_dict())


def test_a_budget_that_was_lowered_takes_nothing_back(tmp_path):
    run_study(small_study(), tmp_path, workers=0, settings=FAST)
    run_study(small_study(rollouts=128), tmp_path, workers=0, settings=FAST)
    assert study_status(tmp_path).lines()[1].startswith("rollouts: 512 of 512 (100%)")


def test_doctor_finds_nothing_in_a_sound_study(tmp_path):
    run_study(small_study(), tmp_path, workers=0, settings=FAST)
    assert examine(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "sql"),
    [
        ("steps_missing", "DELETE FROM steps WHERE step = 2"),
        ("totals_differ", "UPDATE runs SET tokens = tokens + 1"),
        ("evaluation_totals_differ", "UPDATE evaluations SET sampled_rollouts = 1"),
        ("overcounted", "DELETE FROM attempts"),
        ("evaluation_beyond_commit", "UPDATE evaluations SET step = 900 WHERE step = 0"),
        ("checkpoint_missing", "DELETE FROM checkpoints"),
        ("done_too_early", "UPDATE runs SET target_steps = 900"),
        ("counts_differ", "UPDATE evaluations SET counts = '[1,0,0,0,0]'"),
        ("checkpoint_unusable", "UPDATE checkpoints SET sha256 = 'x'"),
        ("orphan_folders", "DELETE FROM checkpoints WHERE serial = 1"),
        ("dead_runners", "INSERT INTO runners VALUES ('r', '{}', 3)"),
        ("mixed_versions", "UPDATE attempts SET versions = 'other' WHERE attempt = 1"),
    ],
)
def test_doctor_finds(tmp_path, code, sql):
    run_study(small_study(), tmp_path, workers=0, settings=FAST)
    process = json.loads(processes.this_process())
    dead = json.dumps([*process[:3], 1, "other start"])
    edit(tmp_path, sql.replace("{}", dead))
    assert code in {finding.code for finding in examine(tmp_path)}


@pytest.mark.heavy
def test_doctor_and_reader_survive_damage_at_every_page(tmp_path):
    run_study(small_study(ns=(2,)), tmp_path, workers=0, settings=FAST)
    whole = (tmp_path / "study.db").read_bytes()
    rng = np.random.default_rng(0)
    for page in range(0, len(whole), 4096):
        for damaged in (whole[:page], _flipped(whole, page + int(rng.integers(4096)))):
            (tmp_path / "study.db").write_bytes(damaged)
            try:
                examine(tmp_path)
                with Store(tmp_path) as store:
                    store.runs(), store.evaluations()
            except (InputError, ValueError):
                continue  # one line; anything else is an error of this test


def _flipped(data, at):
    return data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :]


def test_a_slow_reader_puts_a_commit_off_but_does_not_stall(database, monkeypatch):
    monkeypatch.setattr("isocompute.store.writer._PATIENCE_S", 0.05)
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    writer.step(step_record(1))
    reader = sqlite3.connect(database.path, isolation_level=None)
    reader.execute("BEGIN")
    cursor = reader.execute("SELECT * FROM problems")
    cursor.fetchone()  # holds the file's shared lock
    commit(writer, 1)
    writer.step(step_record(2))
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 0
    cursor.close()
    reader.close()
    commit(writer, 2)
    with Store(database.folder) as store:
        assert store.runs()[0].steps_done == 2
    folder = run_folder(database.folder, claim.hash)
    assert sorted(p.name for p in folder.iterdir()) == ["1-2"]


def test_packing():
    assert unpack(pack(np.array([0, 255])), 2).tolist() == [0, 255]
    assert len(pack(np.array([0, 255]))) == 2
    assert unpack(pack(np.array([70000])), 1).tolist() == [70000]
    assert unpack(b"", 0).tolist() == []
    assert count_text(np.array([0, 2, 2]), 3) == "[1,0,2,0]"
    with pytest.raises(InputError, match="1, 2, 4 or 8 bytes each"):
        unpack(b"abc", 2)
    with pytest.raises(InputError, match="must be 1-D"):
        pack(np.zeros((2, 2), dtype=int))


def test_seal_sees_names_and_contents(tmp_path):
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "a").write_bytes(b"bc")
    sha256, weights, size = seal(folder)
    assert (weights, size) == ("", 2)
    assert fault(folder, sha256) == ""
    (folder / "a").rename(folder / "ab")
    assert fault(folder, sha256) == "its hash differs from the committed one"
    expected = tmp_path / "checkpoints" / ("0" * 16) / "3-4"
    assert checkpoint_folder(tmp_path, "0" * 16, 3, 4) == expected


def test_differences_name_what_changed():
    old, new = {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "d": 2}}
    assert differences(old, new) == ["a.c: 2 -> null", "a.d: null -> 2"]


def test_import_of_the_reader_is_light():
    code = (
        "import sys, isocompute.store; "
        "print(sorted({'torch', 'scipy', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.heavy
def test_row_12_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(time, "time", lambda: float(rng.uniform(0, 4e9)))
    run_study(small_study(), tmp_path / "jump", workers=0, settings=FAST)
    monkeypatch.undo()
    run_study(small_study(), tmp_path / "calm", workers=0, settings=FAST)
    assert digest(tmp_path / "jump", tmp_path / "a") == digest(tmp_path / "calm", tmp_path / "b")


def _flips(folder, count, seed):
    """Single flipped bits of a study: (export or None where it is refused, doctor's codes)."""
    whole = (folder / "study.db").read_bytes()
    rng = np.random.default_rng(seed)
    for at in rng.choice(8 * len(whole), count, replace=False).tolist():
        data = bytearray(whole)
        data[at // 8] ^= 1 << (at % 8)
        for file in folder.glob("study.db*"):
            file.unlink()
        (folder / "study.db").write_bytes(data)
        try:
            read = digest(folder, folder / "export"), study_status(folder).lines()
        except InputError as error:
            read = None if "\n" not in str(error) else str(error)
        try:
            codes = {f.code for f in examine(folder) if f.severity == "error"}
        except InputError:
            codes = {"newer"}
        yield at, read, codes


@pytest.mark.heavy
@pytest.mark.parametrize(
    "count", [pytest.param(40, marks=pytest.mark.long), pytest.param(400, marks=pytest.mark.slow)]
)
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path, count):
    run_study(small_study(rollouts=512), tmp_path, workers=0, settings=FAST)
    truth = digest(tmp_path, tmp_path / "export"), study_status(tmp_path).lines()
    found = 0
    for at, read, codes in _flips(tmp_path, count, seed=count):
        assert read in (None, truth), f"bit {at} changed what is read"
        assert codes or read == truth, f"the doctor missed bit {at}"
        found += bool(codes)
    assert found > count // 10


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("UPDATE study SET value = '\"other\"' WHERE key = 'name'", "study (name)"),
        ("UPDATE runs SET tokens = tokens + 1", "runs (HASH)"),
        ("UPDATE runs SET lease_token = 9", "runs (HASH)"),
        ("UPDATE steps SET tokens = tokens + 1 WHERE step = 3", "steps (run 1, step 3)"),
        ("UPDATE steps SET wall_s = wall_s + 1e-9 WHERE step = 3", "steps (run 1, step 3)"),
        ("UPDATE steps SET seal = NULL WHERE step = 2", "steps (run 1, step 2)"),
        ("UPDATE evaluations SET counts = '[1]' WHERE step = 4",
         "evaluations (run 1, step 4)"),
        ("UPDATE problems SET answer = 'x' WHERE rowid = 2", "problems (row 2)"),
        ("UPDATE checkpoints SET bytes = bytes + 1", "checkpoints (row "),
        ("UPDATE attempts SET host = 'x' WHERE attempt = 1", "attempts (row 1)"),
        ("UPDATE problem_sets SET size = 3 WHERE rowid = 1", "problem_sets (row 1)"),
    ],
)  # fmt: skip
def test_a_record_that_another_program_changed_is_named(tmp_path, sql, where):
    study = small_study(ns=(2,), rollouts=64)
    run_study(study, tmp_path, workers=0, settings=FAST)
    other = sqlite3.connect(tmp_path / "study.db")
    other.execute(sql)
    other.commit()
    other.close()
    where = where.replace("HASH", study.runs[0].hash)
    (finding,) = [f for f in examine(tmp_path) if f.severity == "error"]
    assert (finding.code, where in finding.message) == ("damaged_records", True)
    with pytest.raises(InputError, match="damaged at") as caught:
        export_study(tmp_path, tmp_path / "x.csv")
    assert where in str(caught.value)
    longer = small_study(ns=(2,), rollouts=128)
    if where.startswith("problems "):  # a runner has its problems from the study file
        assert run_study(longer, tmp_path, workers=0, settings=FAST).done == 1
    else:
        with pytest.raises(InputError, match="damaged at"):
            run_study(longer, tmp_path, workers=0, settings=FAST)


def test_a_first_start_that_was_cut_short_is_no_damage(tmp_path):
    (tmp_path / "study.db").touch()
    (finding,) = examine(tmp_path)
    assert (finding.code, finding.severity) == ("not_begun", "warning")
    assert "run the study file again, which starts it anew" in finding.message


def test_steps_that_are_missing_are_not_passed_over(tmp_path):
    study = small_study(ns=(2,), rollouts=64)
    run_study(study, tmp_path, workers=0, settings=FAST)
    edit(tmp_path, "DELETE FROM steps WHERE step = 8")
    with (
        Store(tmp_path) as store,
        pytest.raises(InputError, match=f"some of run {study.runs[0].hash} are missing"),
    ):
        store.steps(study.runs[0].hash)


@pytest.mark.heavy
def test_swapped_checkpoints_are_called_so_and_the_run_starts_anew(tmp_path):
    study = small_study(ns=(2,), rollouts=64)
    run_study(study, tmp_path, workers=0, settings=FAST)
    truth, name = digest(tmp_path, tmp_path / "x"), study.runs[0].hash
    one, two = sorted((tmp_path / "checkpoints" / name).iterdir())
    one.rename(tmp_path / "away")
    two.rename(one)
    (tmp_path / "away").rename(two)
    found = [f.message for f in examine(tmp_path)]
    assert any("its folder holds the checkpoint of step" in message for message in found)
    longer = small_study(ns=(2,), rollouts=128)
    summary = run_study(longer, tmp_path, workers=0, settings=FAST)
    assert "the folders were swapped or copied" in summary.warnings[0]
    assert summary.warnings[1].endswith("; it starts anew")
    run_study(longer, tmp_path / "whole", workers=0, settings=FAST)
    assert digest(tmp_path, tmp_path / "x") == digest(tmp_path / "whole", tmp_path / "y") != truth


def test_row_5_a_note_says_where_a_run_goes_on(database):
    claim = leases.claim(database, "me", first)
    writer = writer_of(database, claim)
    for step in (1, 2):
        writer.step(step_record(step))
        folder = commit(writer, step)
    shutil.rmtree(folder)
    again = leases.claim(database, "you", first, dead={"me"})
    assert again.notes[0].endswith("its folder is missing; it goes on from step 1")


def test_runners_that_died_are_forgotten(tmp_path):
    study = small_study(ns=(2,), rollouts=64)
    run_study(study, tmp_path, workers=0, settings=FAST)
    process = json.loads(processes.this_process())
    edit(tmp_path, "INSERT INTO runners VALUES ('r', ?, 3)",
         json.dumps([*process[:3], 1, "other start"]))  # fmt: skip
    edit(tmp_path, "INSERT INTO runners VALUES ('elsewhere', '[\"host\", \"boot\"]', 3)")
    (found,) = examine(tmp_path)
    assert (found.code, found.message[:22]) == ("dead_runners", "1 runner died without ")
    run_study(study, tmp_path, workers=0, settings=FAST)
    assert examine(tmp_path) == []
    with Store(tmp_path) as store:  # of another machine: not known to have died
        assert store.database.read("SELECT runner FROM runners") == [("elsewhere",)]


def test_a_reader_takes_back_a_commit_that_was_cut_off(tmp_path):
    run_study(small_study(ns=(2,), rollouts=64), tmp_path, workers=0, settings=FAST)
    truth = digest(tmp_path, tmp_path / "x")
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN'); "
        "c.execute('UPDATE steps SET tokens = 0'); c.execute('DELETE FROM evaluations'); "
        "c.execute('CREATE TABLE more AS SELECT zeroblob(300000)'); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "study.db"], check=False)
    assert (tmp_path / "study.db-journal").stat().st_size > 0
    assert digest(tmp_path, tmp_path / "x") == truth


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_an_export_follows_no_link(tmp_path, name):
    run_study(small_study(ns=(2,), rollouts=64), tmp_path / "s", workers=0, settings=FAST)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for link in (name, f".{name}.partial"):
        (tmp_path / link).symlink_to(victim)
    export_study(tmp_path / "s", tmp_path / name)
    assert victim.read_text() == "mine"
    assert not (tmp_path / name).is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f".{name}.partial", "s", "victim", name]


def test_row_6_a_file_that_another_process_is_making_is_no_other_programs(tmp_path):
    """Its parts are read at one moment: none of them is of the file before, another after."""
    made = threading.Thread(target=lambda: Database(tmp_path, create=True).close())
    (tmp_path / "study.db").touch()

    class Slow(sqlite3.Connection):
        def execute(self, sql, *args):
            found = super().execute(sql, *args)
            if sql == "PRAGMA user_version":
                made.start()
                made.join(0.5)  # it waits for the reader, or is done
            return found

    connection = sqlite3.connect(tmp_path / "study.db", factory=Slow, isolation_level=None)
    assert schema.check(connection) == 0
    connection.close()
    made.join()
    database = Database(tmp_path)
    assert database.version == schema.SCHEMA_VERSION
    database.close()
