"""Rows 1, 4, 8, 9 of the list of faults: a study killed anywhere ends as if it never was.

The fast suite samples the crash points; `-m slow` takes every one and 200 random instants.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crash_server import crash_study
from isocompute.store import Store
from isocompute.store.doctor import examine
from study_helpers import digest

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="counting system calls needs Linux and a C compiler",
)


class Server:
    """The crash server, and the truth of the uninterrupted study."""

    def __init__(self, work):
        self.work = work
        shim = work / "shim.so"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", shim, HERE / "crash_shim.c", "-ldl"], check=True
        )
        environment = {
            **os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1", "COUNT_FILE": str(work / "count"),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, HERE / "crash_server.py"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        whole = work / "whole"
        self.points = self.run(whole)["count"]
        self.truth = digest(whole, work / "truth")
        with Store(whole) as store:
            self.used = store.accounting()

    def run(self, folder, at=0, tear=0, error=0):
        command = {"folder": str(folder), "at": at, "tear": tear, "errno": error}
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def drawn(self):
        return (self.work / "count").stat().st_size

    def check(self, folder, label):
        """The resumed study equals the whole one, and what was drawn is accounted for."""
        assert digest(folder, self.work / "export") == self.truth, label
        with Store(folder) as store:
            a = store.accounting()
        assert (a.rollouts, a.evaluation_rollouts) == (
            self.used.rollouts, self.used.evaluation_rollouts), label  # fmt: skip
        booked = a.rollouts + a.wasted_rollouts
        # An update that had begun when its process died was drawn but could not be noted.
        assert booked <= self.drawn() <= booked + 16 * a.uncertain_steps, label
        assert [f for f in examine(folder) if f.severity == "error"] == [], label


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("crash"))
    yield server
    server.process.stdin.close()
    server.process.wait()


def crash_at(server, at, tear):
    folder = server.work / "study"
    shutil.rmtree(folder, ignore_errors=True)
    (server.work / "count").unlink(missing_ok=True)
    assert server.run(folder, at=at, tear=tear)["status"] == -signal.SIGKILL
    assert server.run(folder)["message"] == ""
    server.check(folder, f"call {at} of {server.points}, tear={tear}")


def test_rows_1_and_4_killed_at_some_system_calls(server):
    for at in random.Random(0).sample(range(1, server.points + 1), 6):
        crash_at(server, at, tear=at % 2)


def test_row_1_killed_again_and_again(server):
    folder = server.work / "study"
    shutil.rmtree(folder, ignore_errors=True)
    (server.work / "count").unlink(missing_ok=True)
    rng, deaths = random.Random(1), 0
    while server.run(folder, at=rng.randint(60, 250), tear=rng.randint(0, 1))["status"] != 0:
        deaths += 1
    assert deaths >= 2
    server.check(folder, f"{deaths} deaths")


@pytest.mark.slow
@pytest.mark.parametrize("tear", [0, 1])
def test_rows_1_and_4_killed_at_every_system_call(server, tear):
    for at in range(1, server.points + 1):
        crash_at(server, at, tear)


def fail_at(server, at, number):
    folder = server.work / "study"
    shutil.rmtree(folder, ignore_errors=True)
    (server.work / "count").unlink(missing_ok=True)
    answer = server.run(folder, at=at, error=number)
    assert answer["status"] == 0, f"call {at}"
    message = answer["message"]
    # A failed removal of an old file may be harmless; anything else stops with one line.
    assert message == "" or "must be writable and have room" in message, f"call {at}"
    assert "\n" not in message
    assert server.run(folder)["message"] == ""
    server.check(folder, f"call {at} fails with {errno.errorcode[number]}")


def test_rows_8_and_9_some_system_calls_fail(server):
    for at in random.Random(2).sample(range(1, server.points + 1), 4):
        fail_at(server, at, errno.ENOSPC if at % 2 else errno.EIO)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_rows_8_and_9_every_system_call_fails(server, number):
    for at in range(1, server.points + 1):
        fail_at(server, at, number)


RUN = """
import sys
sys.path.insert(0, sys.argv[2])
from study_helpers import FAST, small_study
from isocompute.runner import run_study
study = small_study(ns=(2, 4), seeds=(0, 1), rollouts=256, engine="odd",
                    options={"fault": "counted"})
sys.exit(run_study(study, sys.argv[1], workers=2, settings=FAST).exit_code)
"""


def start(folder, work, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1",
                   "COUNT_FILE": str(work / "count")}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", RUN, folder, HERE], env=environment, start_new_session=True,
        stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def random_kills(tmp_path, kills, seed):
    """SIGKILL of the whole process tree at random instants, then a run to the end."""
    began = time.monotonic()
    assert start(tmp_path / "whole", tmp_path).wait() == 0
    span = 1.2 * (time.monotonic() - began)  # so instants cover the whole life of a study
    truth = digest(tmp_path / "whole", tmp_path / "a")
    rng, folder, killed, studies = random.Random(seed), tmp_path / "study", 0, 0
    while killed < kills or not studies:
        process = start(folder, tmp_path)
        try:
            code = process.wait(rng.uniform(0.0, span) if killed < kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
            continue
        assert code == 0, process.stderr.read()
        assert digest(folder, tmp_path / "b") == truth
        studies += 1
        if killed < kills:
            shutil.rmtree(folder)
    with Store(folder) as store:
        accounting = store.accounting()
    assert accounting.rollouts == 4 * 256
    assert accounting.wasted_rollouts >= 0
    return killed, studies


@pytest.mark.slow
def test_row_1_sigkill_of_the_process_tree(tmp_path):
    assert random_kills(tmp_path, 2, seed=0)[0] == 2


@pytest.mark.slow
def test_row_1_sigkill_of_the_process_tree_200_times(tmp_path):
    killed, studies = random_kills(tmp_path, 200, seed=1)
    print(f"{killed} kills over {studies} studies")


@pytest.mark.slow
def test_row_8_a_file_size_limit_stops_cleanly_and_resumes(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (45_000, 45_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    process = start(tmp_path / "study", tmp_path, preexec_fn=limit)
    _, text = process.communicate()
    assert process.returncode != 0
    assert "must be writable and have room" in text.splitlines()[-1]
    assert start(tmp_path / "study", tmp_path).wait() == 0
    assert start(tmp_path / "whole", tmp_path).wait() == 0
    assert digest(tmp_path / "study", tmp_path / "a") == digest(tmp_path / "whole", tmp_path / "b")


def test_crash_study_is_small():
    assert sum(spec.allocation.steps for spec in crash_study().runs) == 18
