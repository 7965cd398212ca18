"""The runner: retries, signals, limits, several runners, and what it reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from isocompute.engines import engine_target, load_engine, register_engine
from isocompute.errors import InputError, RunError
from isocompute.runner import Progress, Settings, default_workers, run_study
from isocompute.runner.execute import Task, cut_off, execute
from isocompute.runner.pool import InlinePool, ProcessPool
from isocompute.runner.preflight import check_folder, file_system
from isocompute.runner.progress import Pace, Summary
from isocompute.runner.pulse import Pulse
from isocompute.runner.ray import RayPool, RemoteRun, _Running
from isocompute.runner.worker import READY
from isocompute.store import Database, FencedError, StorageError, Store, leases, processes
from isocompute.store.hours import is_on_cpu
from isocompute.store.leases import Spent, progress_file
from isocompute.store.register import register
from isocompute.store.status import study_status
from isocompute.study import Limits
from isocompute.study.spec import gpus_asked
from study_helpers import FAST, digest, small_study

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """Digest of the plain study, run in this process."""
    work = tmp_path_factory.mktemp("truth")
    run_study(small_study(), work / "s", workers=0, settings=FAST)
    return digest(work / "s", work / "x")


@pytest.mark.heavy
def test_processes_and_this_process_give_the_same_study(tmp_path, truth):
    seen: list[Progress] = []
    summary = run_study(small_study(), tmp_path / "s", workers=2, settings=FAST,
                        progress=seen.append)  # fmt: skip
    assert summary.exit_code == 0
    assert (summary.done, summary.pending, summary.warnings) == (2, 0, ())
    assert digest(tmp_path / "s", tmp_path / "x") == truth
    assert seen[-1].runs_done == 2
    assert seen[-1].rollouts_done == seen[-1].rollouts_total == 512
    assert seen[-1].left_s == 0.0
    assert seen[-1].line().startswith("runs 2/2, 100% of 512 rollouts")
    again = run_study(small_study(), tmp_path / "s", workers=2, settings=FAST)
    assert again.accounting == summary.accounting  # nothing was left to do


def test_commit_share_does_not_change_the_records(tmp_path, truth):
    settings = replace(FAST, commit_share=1e-4)
    run_study(small_study(), tmp_path / "s", workers=0, settings=settings)
    assert digest(tmp_path / "s", tmp_path / "x") == truth


@pytest.mark.parametrize("slices", [(1.0,), (0.1, 0.3, 1.0)])
def test_slices_do_not_change_the_records(tmp_path, truth, slices):
    run_study(small_study(slices=slices), tmp_path / "s", workers=0, settings=FAST)
    assert digest(tmp_path / "s", tmp_path / "x") == truth


@pytest.mark.parametrize(("engine", "options", "gpus", "on_cpu"), [
    ("local", {}, None, True),
    ("local", {"device": "cuda:1"}, 1, False),
    ("trl", {"device": "cpu", "processes": 2}, None, True),
    ("trl", {"device": "cuda"}, 1, False),
    ("trl", {"processes": 4}, 4, False),  # it takes the GPUs that are there
    ("simulator", {}, None, False),
])  # fmt: skip
def test_runs_on_gpus_train_one_at_a_time_and_are_priced_by_all(
    engine, options, gpus, on_cpu, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    study = small_study(engine=engine, options=options)
    assert default_workers(study) == (16 if gpus is None else 1)
    assert gpus_asked(engine, options) == gpus
    assert is_on_cpu(SimpleNamespace(spec=study.runs[0].to_dict())) is on_cpu


def test_a_run_is_evaluated_where_it_ends_and_no_slice_of_it(tmp_path):
    # 200 rollouts are no point of the grid 32, 64, 128: before, its last 72 were never scored.
    study = small_study(ns=(2,), rollouts=200, slices=(0.3, 1.0))
    run_study(study, tmp_path, workers=0, settings=FAST)

    def seen():
        with Store(tmp_path) as store:
            at = [int(x) for x in store.evaluations().rollouts_K]
            return at, store.accounting().evaluation_rollouts

    at, drawn = seen()
    assert at == [0, 32, 64, 128, 200]
    assert drawn == study.evaluation_rollouts  # what --dry-run said
    # A longer budget goes on with the run, and keeps what was seen.
    run_study(small_study(ns=(2,), rollouts=400), tmp_path, workers=0, settings=FAST)
    assert seen()[0] == [0, 32, 64, 128, 200, 256, 400]


def test_a_run_whose_budget_another_start_raises_is_scored_at_its_new_end(tmp_path):
    longer = small_study(ns=(2,), rollouts=400)

    def another(_):
        with contextlib.closing(Database(tmp_path, write=True)) as database:
            register(database, longer)

    run_study(small_study(ns=(2,), rollouts=200), tmp_path, workers=0, settings=FAST,
              progress=another)  # fmt: skip
    with Store(tmp_path) as store:
        assert store.runs()[0].steps_done == 50
        assert store.evaluations().rollouts_K[-1] == 400


def test_an_attempt_that_was_cut_off_took_all_of_its_time(tmp_path):
    claim = SimpleNamespace(attempt=1)
    task = SimpleNamespace(folder=tmp_path, claim=claim)
    began = time.monotonic() - 50
    assert cut_off(task, began).wall_s >= 50
    progress_file(tmp_path, 1).parent.mkdir()
    progress_file(tmp_path, 1).write_bytes(Spent(rollouts=8, wall_s=70.0).pack())
    assert cut_off(task, began) == Spent(rollouts=8, wall_s=70.0)


@pytest.mark.heavy
def test_every_run_finishes_a_slice_before_any_starts_the_next(tmp_path):
    study = small_study(ns=(2, 4, 8), seeds=(0, 1), slices=(0.25, 0.5, 1.0))
    run_study(study, tmp_path, workers=0, settings=FAST)
    with Store(tmp_path) as store:
        rows = store.database.read(
            "SELECT 1.0 * a.target_steps / r.target_steps FROM attempts a "
            "JOIN runs r ON r.run = a.run ORDER BY a.attempt"
        )
    assert [row[0] for row in rows] == [0.25] * 6 + [0.5] * 6 + [1.0] * 6


def odd(fault, **changes):
    options = {"fault": fault, **changes.pop("options", {})}
    return small_study(engine="odd", options=options, **changes)


@pytest.mark.heavy
def test_row_2_a_worker_that_dies_is_retried_and_its_cost_kept(tmp_path):
    study = odd("dies_once", ns=(2,), options={"flag": str(tmp_path / "flag")})
    summary = run_study(study, tmp_path / "s", workers=1, settings=FAST)
    assert (summary.done, summary.exit_code) == (1, 0)
    assert "its process died with signal 9" in summary.warnings[0]
    # Steps 17 to 20 were drawn after the checkpoint of step 16 (128 rollouts) and lost.
    assert summary.accounting.wasted_rollouts == 4 * 8
    assert summary.accounting.uncertain_steps == 1
    told = "32 lost to interruptions (updates that were cut off in 1 attempt are not counted)"
    assert told in study_status(tmp_path / "s").lines()[2]
    run_study(odd("plain", ns=(2,), options={"flag": str(tmp_path / "flag")}), tmp_path / "t",
              workers=0, settings=FAST)  # fmt: skip
    with Store(tmp_path / "s") as a, Store(tmp_path / "t") as b:
        one, other = a.evaluations(), b.evaluations()
    assert one.counts_KC.tolist() == other.counts_KC.tolist()
    assert one.step_K.tolist() == other.step_K.tolist()


@pytest.mark.long
@pytest.mark.parametrize(("workers", "retries"), [(0, 1), (1, 2)])
def test_row_2_retries_end(tmp_path, workers, retries):
    study = odd("raises", ns=(2,), limits=Limits(retries=retries))
    summary = run_study(study, tmp_path, workers=workers, settings=FAST)
    assert (summary.failed, summary.exit_code) == (1, 1)
    assert "RuntimeError: the trainer broke" in summary.problems[0][1]
    assert f"it was retried {retries} times" in summary.problems[0][1]
    with Store(tmp_path) as store:
        assert store.runs()[0].attempts == retries + 1
    again = run_study(study, tmp_path, workers=0, settings=FAST, retry_failed=True)
    assert again.accounting.attempts == 2 * (retries + 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("stops_short", "must train 16 steps, but it returned after 13"),
        ("frozen", "must change the weights"),
        ("dead_groups", "all 32 steps had zero variance"),
    ],
)
def test_row_19_a_run_that_did_not_train_is_invalid(tmp_path, fault, message):
    study = odd(fault, ns=(2,), slices=(1.0,) if fault != "stops_short" else (0.5, 1.0))
    summary = run_study(study, tmp_path, workers=0, settings=FAST)
    assert (summary.invalid, summary.done, summary.exit_code) == (1, 0, 1)
    assert message in summary.problems[0][1]


def test_a_refusal_of_the_engine_comes_before_anything_is_written(tmp_path):
    study = small_study(options={"answers": 1})
    with pytest.raises(InputError, match="simulator option `answers`"):
        run_study(study, tmp_path / "s", workers=0)
    for name in ("answers", "features"):  # memory that no machine has is known before, too
        with pytest.raises(InputError, match=f"`{name}` must be .* to 100,000, but got 100001"):
            run_study(small_study(options={name: 100_001}), tmp_path / "s", workers=0)
    with pytest.raises(InputError, match=r"did you mean 'simulator'\?"):
        run_study(small_study(engine="simulater"), tmp_path / "s", workers=0)
    with pytest.raises(InputError, match="`workers >= 0` must hold"):
        run_study(small_study(), tmp_path / "s", workers=-1)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_health_rules_speak_while_a_run_goes_on(tmp_path, workers):
    notes = []
    study = odd("diverges", ns=(2,), seeds=(0,))
    study = replace(study, runs=[replace(run, arm={"recipe": "hot"}) for run in study.runs])
    run_study(study, tmp_path, workers=workers, settings=FAST,
              progress=lambda p: notes.append(p.note))  # fmt: skip
    said = [note for note in notes if "divergence" in note]
    # Once, although the run goes on for two slices after it.
    assert len(said) == 1
    assert said[0].startswith(
        "problems_per_batch=4, rollouts_per_problem=2, seed=0, recipe=hot: failure"
    )
    assert "at step 3" in said[0]


@pytest.mark.long
def test_wall_limit(tmp_path):
    study = odd("slow", ns=(2,), rollouts=4096, limits=Limits(wall_s=0.3))
    for workers in (0, 1):
        summary = run_study(study, tmp_path / str(workers), workers=workers, settings=FAST)
        assert summary.failed == 1
        assert "it passed its limit wall_s=0.3" in summary.problems[0][1]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.slow
def test_memory_limit(tmp_path):
    study = odd("memory", ns=(2,), rollouts=4096, limits=Limits(memory_gb=0.4))
    summary = run_study(study, tmp_path, workers=1, settings=FAST)
    assert summary.failed == 1
    assert "it passed its limit memory_gb=0.4" in summary.problems[0][1]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.heavy
def test_memory_limit_counts_what_a_run_started(tmp_path, monkeypatch):
    monkeypatch.setenv("CHILD_FILE", str(tmp_path / "child"))
    study = odd("memory_of_a_child", ns=(2,), rollouts=4096, limits=Limits(memory_gb=0.4))
    try:
        summary = run_study(study, tmp_path / "s", workers=1, settings=FAST)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert summary.failed == 1
    assert "it passed its limit memory_gb=0.4" in summary.problems[0][1]


def test_a_memory_limit_that_cannot_be_enforced_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr("isocompute.runner.pool.memory_bytes", lambda _: None)
    monkeypatch.setattr("isocompute.runner.run._UNKNOWN_S", -1.0)
    study = small_study(ns=(2, 4), limits=Limits(memory_gb=4))
    summary = run_study(study, tmp_path, workers=0, settings=FAST)
    assert (summary.done, len(summary.warnings)) == (2, 1)
    assert summary.warnings[0].startswith("limits.memory_gb is not enforced")


def test_memory_of_a_run_on_ray_is_what_its_actor_says_last():
    """Asked for one answer at a time, and never waited for."""
    answers = {"first": 5, "second": 7}

    class FakeRay:
        class exceptions:  # ray's own name
            RayError = KeyError

        there: ClassVar[set[str]] = set()

        def wait(self, references, timeout):
            assert timeout == 0
            return [r for r in references if r in self.there], []

        get = staticmethod(answers.__getitem__)

    words = iter([*answers, "lost"])
    actor = SimpleNamespace(memory=SimpleNamespace(remote=lambda: next(words)))
    pool = RayPool.__new__(RayPool)
    task, pool._ray = object(), FakeRay()
    pool._running = [_Running(task=task, actor=actor, writer=None, message=None)]
    assert pool.memory_bytes(object()) is None
    assert pool.memory_bytes(task) is None
    FakeRay.there = {"first"}
    assert pool.memory_bytes(task) == 5
    assert pool.memory_bytes(task) == 5  # the second has been asked for
    FakeRay.there = {"first", "second", "lost"}
    assert [pool.memory_bytes(task) for _ in range(2)] == [7, 7]
    assert RemoteRun().memory() > 0


@pytest.mark.parametrize(
    "limits",
    [{"wall_s": 0.0}, {"memory_gb": float("nan")}, {"retries": -1}],
)
def test_limits_are_checked(limits):
    with pytest.raises(InputError, match="limit `"):
        Limits(**limits)


@pytest.mark.parametrize("settings", [{"beat_s": 0.0}, {"lease_beats": 1}, {"commit_share": 0.0}])
def test_settings_are_checked(settings):
    with pytest.raises(InputError, match="must be > 0 and `lease_beats` >= 2"):
        Settings(**settings)


# -- signals ---------------------------------------------------------------------------------

RUN = """
import sys
sys.path.insert(0, {here!r})
from dataclasses import replace
from study_helpers import FAST, small_study
from isocompute.runner import run_study
study = small_study(engine="odd", options={{"fault": "slow"}}, ns={ns}, seeds={seeds},
                    rollouts={rollouts})
settings = replace(FAST, commit_share=1e-6, checkpoint_every_s=1000, lease_beats={lease})
summary = run_study(study, sys.argv[1], workers={workers}, settings=settings,
                    progress=lambda p: print(p.rollouts_done, flush=True))
sys.exit(summary.exit_code)
"""


def start(folder, *, workers=1, rollouts=640, ns=(2,), seeds=(0,), lease=6):
    code = RUN.format(here=str(HELPERS), workers=workers, rollouts=rollouts, ns=ns, seeds=seeds,
                      lease=lease)  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code, folder], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True)  # fmt: skip


def wait_for_work(process):
    for line in process.stdout:
        if int(line) > 0:
            return
    pytest.fail(f"the runner ended early: {process.stderr.read()}")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [
        (signal.SIGTERM, 143, 1),
        (signal.SIGINT, 130, 0),
        pytest.param(signal.SIGTERM, 143, 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, 1, marks=pytest.mark.slow),
    ],
)
def test_row_3_a_signal_commits_and_can_be_resumed(tmp_path, number, code, workers):
    process = start(tmp_path, workers=workers)
    wait_for_work(process)
    os.killpg(process.pid, number)  # as a terminal and a scheduler do: workers get it too
    assert process.wait(30) == code, process.stderr.read()
    with Store(tmp_path) as store:
        run = store.runs()[0]
        assert 0 < run.steps_done < run.spec["steps"]
        assert (run.wasted_rollouts, run.leased, run.state) == (0, False, "pending")
        assert store.database.read("SELECT * FROM runners") == []


@pytest.mark.heavy
def test_the_module_path_of_a_worker_does_not_reach_what_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", "of-the-user")
    monkeypatch.syspath_prepend(str(tmp_path))  # as a script's folder, or another venv's packages
    pool = ProcessPool(1)
    try:
        worker = pool._workers[0]
        assert worker.connection.poll(30)
        assert worker.connection.recv() == READY  # it found isocompute without the variable
        environment = Path(f"/proc/{worker.process.pid}/environ").read_bytes().split(b"\0")
        assert [v for v in environment if v.startswith(b"PYTHONPATH=")] == [
            b"PYTHONPATH=of-the-user"]
    finally:
        pool.close()


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_row_3_workers_survive_a_signal_while_they_start(number):
    pool = ProcessPool(1)
    process = pool._workers[0].process
    for _ in range(5):
        process.send_signal(number)
        time.sleep(0.01)
    try:
        assert pool._workers[0].connection.recv() == "ready"
        process.send_signal(number)
        time.sleep(0.05)
        assert process.poll() is None
    finally:
        pool.close()


@pytest.mark.heavy
def test_row_3_a_second_ctrl_c_stops_at_once(tmp_path):
    process = start(tmp_path, workers=1)
    wait_for_work(process)
    worker = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(worker, signal.SIGSTOP)  # it will make no checkpoint
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_workers_end_when_their_runner_is_killed(tmp_path):
    process = start(tmp_path, workers=1)
    wait_for_work(process)
    worker = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_signal_handlers_are_given_back(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run_study(small_study(), tmp_path, workers=0, settings=FAST)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_row_3_signals_while_it_ends_change_nothing(tmp_path, monkeypatch, truth):
    def close(self):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(InlinePool, "close", close)
    assert run_study(small_study(), tmp_path / "s", workers=0, settings=FAST).done == 2
    assert digest(tmp_path / "s", tmp_path / "x") == truth


# -- several runners -------------------------------------------------------------------------


@pytest.mark.heavy
def test_row_6_four_runners_do_each_run_once(tmp_path):
    size = {"rollouts": 128, "ns": (2, 4), "seeds": (0, 1, 2, 3)}
    runners = [start(tmp_path / "s", workers=1, lease=100, **size) for _ in range(4)]
    for runner in runners:
        _, said = runner.communicate(timeout=120)
        assert runner.returncode == 0, said
    with Store(tmp_path / "s") as store:
        slices = store.database.read("SELECT run, target_steps FROM attempts")
        assert store.accounting().wasted_rollouts == 0
        who = {row[0] for row in store.database.read("SELECT runner FROM attempts")}
    assert set(Counter(slices).values()) == {1}
    assert len(who) >= 2
    assert len(slices) == 8 * 2


def pause_between_transactions(process, folder):
    """SIGSTOP; a process that is stopped inside a transaction keeps SQLite's lock, so try again."""
    for _ in range(100):
        os.killpg(process.pid, signal.SIGSTOP)
        connection = sqlite3.connect(folder / "study.db", timeout=0.2, isolation_level=None)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            return
        except sqlite3.OperationalError:
            os.killpg(process.pid, signal.SIGCONT)
            time.sleep(0.02)
        finally:
            connection.close()
    pytest.fail("the runner could not be stopped outside a transaction")


@pytest.mark.parametrize("fault", ["raises", "plain"])
def test_row_7_a_task_whose_run_was_taken_over_is_fenced_whatever_its_engine_says(tmp_path, fault):
    study = odd(fault, ns=(2,))
    database = Database(tmp_path, create=True)
    register(database, study)

    def first(free):
        return free[0], free[0].target_steps

    slow = leases.claim(database, "slow", first)
    overtaken = []

    def overtake(*_):
        if not overtaken:
            overtaken.append(leases.claim(database, "fast", first, dead={"slow"}))
        return False

    if fault == "plain":
        overtake()  # before it began
    task = Task(engine=engine_target("odd"), spec=study.runs[0], claim=slow, folder=tmp_path,
                checkpoint_every_s=30.0, commit_share=1.0)  # fmt: skip
    outcome = execute(task, database, stop=lambda: False, on_step=overtake)
    assert outcome.ending == "fenced"
    database.close()


def test_row_7_a_pool_that_finds_its_claim_overtaken_goes_on(tmp_path, monkeypatch, truth):
    start_task, refused = InlinePool.start, []

    def overtaken(self, task):
        if not refused:
            refused.append(task)
            raise FencedError("it has a newer token")
        start_task(self, task)

    monkeypatch.setattr(InlinePool, "start", overtaken)
    summary = run_study(small_study(), tmp_path / "s", workers=0, settings=FAST)
    assert (summary.done, summary.accounting.attempts) == (2, 5)
    assert digest(tmp_path / "s", tmp_path / "x") == truth


@pytest.mark.heavy
def test_rows_6_and_7_a_paused_runner_is_taken_over_and_fenced(tmp_path):
    slow = start(tmp_path, workers=1)
    wait_for_work(slow)
    pause_between_transactions(slow, tmp_path)
    study = odd("slow", ns=(2,), rollouts=640)
    began = time.monotonic()
    summary = run_study(study, tmp_path, workers=1, settings=FAST)
    assert summary.done == 1
    assert time.monotonic() - began > FAST.beat_s * FAST.lease_beats
    os.killpg(slow.pid, signal.SIGCONT)
    _, errors = slow.communicate(timeout=60)
    assert slow.returncode == 0, errors  # it finds everything done
    with Store(tmp_path) as store:
        assert store.runs()[0].rollouts == 640
        outcomes = [r[0] for r in store.database.read("SELECT outcome FROM attempts")]
        accounting = store.accounting()
    assert outcomes[0] == "fenced"
    assert accounting.wasted_rollouts > 0
    plain = odd("slow", ns=(2,), rollouts=640)
    run_study(plain, tmp_path / "whole", workers=1, settings=FAST)
    assert digest(tmp_path, tmp_path / "a") == digest(tmp_path / "whole", tmp_path / "b")


@pytest.mark.slow
def test_a_runner_that_died_here_is_taken_over_at_once(tmp_path):
    process = start(tmp_path, workers=1)
    wait_for_work(process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    settings = replace(FAST, lease_beats=10_000)
    summary = run_study(odd("slow", ns=(2,), rollouts=640), tmp_path, workers=1,
                        settings=settings)  # fmt: skip
    assert summary.done == 1


def test_a_file_that_nobody_can_write_expires_nobody(tmp_path):
    """A foreign reader blocks every heartbeat: leases must not run out meanwhile."""
    database = Database(tmp_path, create=True)
    pulse = Pulse(database, "me", beat_s=1e-9, lease_beats=6)
    leases.beat(database, "other", json.dumps(["elsewhere", "boot", "ns", 1, "0"]))
    pulse.beat()
    assert pulse.dead() == set()  # its counter is seen for the first time, after my first beat
    for _ in range(5):
        pulse.beat()
    assert pulse.dead() == set()
    blocked = Pulse(database, "me", beat_s=1e9, lease_beats=6)
    blocked.beat()
    for _ in range(50):  # time passes, but without beats of mine it proves nothing
        blocked.beat()
        assert blocked.dead() == set()
    pulse.beat()
    assert pulse.dead() == {"other"}
    leases.beat(database, "other", "{}")
    assert pulse.dead() == set()
    database.close()


def test_process_identity():
    me = processes.this_process()
    assert not processes.has_died(me)
    host, boot, namespace, pid, start_ticks = json.loads(me)
    assert processes.has_died(json.dumps([host, boot, namespace, pid, "1"]))
    for unknown in ([host, "another boot", namespace, pid, "1"], [host, "", "", pid, "1"]):
        assert not processes.has_died(json.dumps(unknown))
    assert not processes.has_died("text")
    child = subprocess.Popen(["true"])
    child_identity = json.dumps([host, boot, namespace, child.pid, start_ticks])
    assert processes.has_died(child_identity)
    child.wait()


def test_run_study_works_in_a_thread(tmp_path):
    """Signals belong to the main thread; elsewhere they are left alone."""
    found = []
    thread = threading.Thread(
        target=lambda: found.append(run_study(small_study(), tmp_path, workers=0, settings=FAST))
    )
    thread.start()
    thread.join()
    assert found[0].done == 2


# -- disk ------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes read-only folders")
def test_row_8_a_read_only_folder(tmp_path):
    (tmp_path / "s").mkdir(mode=0o555)
    with pytest.raises(StorageError, match="must be writable and have room"):
        run_study(small_study(), tmp_path / "s", workers=0)


def test_row_8_a_file_in_the_way_and_no_home(tmp_path, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file' must be a folder, but is a file; name another"):
        run_study(small_study(), tmp_path / "file" / "s", workers=0)
    assert run_study(small_study(), tmp_path / "s", workers=0, settings=FAST).done == 2


def test_row_8_room_is_checked_before_compute(tmp_path, monkeypatch):
    import shutil

    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StorageError, match="at least 16 MiB of room, but it has 1 MiB"):
        run_study(small_study(), tmp_path, workers=0)


def test_row_10_a_network_file_system_is_warned_of(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/x {tmp_path}/net nfs4 rw 0 0\nshort\n")
    assert file_system(tmp_path / "net" / "study", mounts) == "nfs4"
    assert file_system(tmp_path / "nets", mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "none") == ""
    monkeypatch.setattr("isocompute.runner.preflight.file_system", lambda folder: "nfs4")
    assert "network file system (nfs4)" in check_folder(tmp_path)[0]


# -- engines, progress -----------------------------------------------------------------------


def test_engines_are_found_by_name():
    assert engine_target("local") == "isocompute.engines.local:LocalEngine"
    register_engine("mine", "isocompute.engines.simulator:SimulatorEngine")
    assert load_engine(engine_target("mine")).name == "simulator"
    with pytest.raises(InputError, match='must read "package.module:Class"'):
        register_engine("mine", "no_colon")
    with pytest.raises(InputError, match="needs the package 'no_such_package'"):
        load_engine("no_such_package.engine:Engine")


def test_a_worker_that_cannot_start_is_not_the_runs_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RunError, match="a worker process must be able to start"):
        run_study(small_study(), tmp_path, workers=1, settings=FAST)
    with Store(tmp_path) as store:
        assert {run.state for run in store.runs()} == {"pending"}


def test_pace_follows_a_line_in_the_batch_size():
    pace = Pace()
    assert pace.left_s([(8, 10)], 1) is None
    for batch in (8, 64):
        pace.add(batch, 100, 100 * (0.01 + 0.001 * batch))
    assert pace.step_s(8) == pytest.approx(0.018)
    assert pace.step_s(1000) == pytest.approx(1.01)
    assert pace.left_s([(8, 100), (64, 100)], 2) == pytest.approx(7.4)  # the longest run
    assert pace.left_s([(8, 100)] * 4, 2) == pytest.approx(3.6)
    pace.add(8, 0, 5.0)
    assert pace.step_s(8) == pytest.approx(0.018)


def test_the_first_attempt_tells_the_time_left_while_it_goes_on():
    spec, pace = small_study(ns=(2,)).runs[0], Pace()
    pace.saw(1, spec, 3, 100.0)  # its start may have taken minutes
    assert pace.left_s([(8, 10)], 1) is None
    for step, at in ((4, 102.0), (4, 110.0), (7, 108.0)):
        pace.saw(1, spec, step, at)
    assert pace.left_s([(8, 10)], 1) == pytest.approx(20.0)
    pace.add(8, 10, 30.0, 1)  # as it was in all
    assert pace.left_s([(8, 10)], 1) == pytest.approx(30.0)


def test_exit_codes():
    def summary(**changes):
        values = {"done": 1, "failed": 0, "invalid": 0, "pending": 0, "problems": (),
                  "accounting": None, "elapsed_s": 1.0}  # fmt: skip
        return Summary(**{**values, **changes}).exit_code

    assert summary() == 0
    assert summary(failed=1) == summary(invalid=1) == summary(pending=1) == 1
    assert summary(stopped_by=signal.SIGINT) == 130
    assert summary(stopped_by=signal.SIGTERM) == 143
