"""Rows 1, 4, 8, 9 of the list of faults: a study killed anywhere ends as if it never was.

The fast suite samples the crash points; `-m slow` takes every one and 200 random instants.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from crash_server import crash_study
from isocompute.store import Store
from isocompute.store.doctor import examine
from study_helpers import digest

HELPERS = Path(__file__).parents[1] / "helpers"

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
            ["cc", "-O1", "-shared", "-fPIC", "-o", shim, HELPERS / "crash_shim.c", "-ldl"],
            check=True,
        )
        environment = {
            **os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1", "COUNT_FILE": str(work / "count"),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, HELPERS / "crash_server.py"], env=environment, text=True,
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


@contextlib.contextmanager
def scratch():
    """A folder in memory where there is one: what dies is a process, not the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def server():
    with scratch() as work:
        server = Server(work)
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


@pytest.mark.heavy
def test_rows_1_and_4_killed_at_some_system_calls(server):
    for at in random.Random(0).sample(range(1, server.points + 1), 6):
        crash_at(server, at, tear=at % 2)


@pytest.mark.heavy
def test_row_1_killed_from_the_first_instant_on(server):
    """The first calls make study.db: a death there must not leave a file that is refused."""
    for at in (1, 2, 3, 5, 8, 12, 16):
        crash_at(server, at, tear=at % 2)


@pytest.mark.heavy
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
        if at % 100 == 0:
            print(f"{at} of {server.points} calls", flush=True)


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


@pytest.mark.heavy
def test_rows_8_and_9_some_system_calls_fail(server):
    for at in random.Random(2).sample(range(1, server.points + 1), 4):
        fail_at(server, at, errno.ENOSPC if at % 2 else errno.EIO)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_rows_8_and_9_every_system_call_fails(server, number):
    for at in range(1, server.points + 1):
        fail_at(server, at, number)
        if at % 100 == 0:
            print(f"{at} of {server.points} calls", flush=True)


class Killer:
    """A fork server for whole runners with two workers, and the truth of their study."""

    def __init__(self, work):
        self.work = work
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1",
            "COUNT_FILE": str(work / "count"),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, HELPERS / "crash_server.py", "--tree"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.lives = []  # seconds of uninterrupted studies
        whole = work / "whole"
        assert self.run(whole, None) == 0
        self.truth = digest(whole, work / "truth")
        with Store(whole) as store:
            self.used = store.accounting()

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def run(self, folder, until_s):
        """Exit code; None where the whole process group was killed after `until_s`."""
        began = time.monotonic()
        pid = self.ask(str(folder))
        if until_s is None:
            code = self.ask("wait")
            self.lives.append(time.monotonic() - began)
            return code
        time.sleep(until_s)
        os.killpg(pid, signal.SIGKILL)
        code = self.ask("wait")
        if code == -signal.SIGKILL:
            return None
        self.lives.append(until_s)  # at most that long: under a load that falls, kills still hit
        return code

    def check(self, folder):
        """Export and weights are those of the uninterrupted study; the books balance."""
        assert digest(folder, self.work / "export") == self.truth
        assert [f for f in examine(folder) if f.severity == "error"] == []
        with Store(folder) as store:
            a = store.accounting()
        assert (a.rollouts, a.evaluation_rollouts) == (
            self.used.rollouts, self.used.evaluation_rollouts)  # fmt: skip
        booked = a.rollouts + a.wasted_rollouts
        drawn = (self.work / "count").stat().st_size
        assert booked <= drawn <= booked + 16 * a.uncertain_steps
        return a.wasted_rollouts


def random_kills(work, kills, seed):
    """SIGKILL of the whole process tree at random instants, then a run to the end."""
    killer = Killer(work)
    rng, folder = random.Random(seed), work / "study"
    killed = studies = wasted = 0
    try:
        while killed < kills:
            shutil.rmtree(folder, ignore_errors=True)
            (work / "count").unlink(missing_ok=True)
            code = None
            for _ in range(rng.randint(1, 4)):  # a study dies once to four times
                code = killer.run(folder, rng.uniform(0.0, statistics.median(killer.lives[-5:])))
                killed += code is None
                if code is not None:
                    break
            if code is None:
                code = killer.run(folder, None)
            assert code == 0
            wasted += killer.check(folder)
            studies += 1
            if studies % 10 == 0:
                print(f"{killed} of {kills} kills, {studies} studies", flush=True)
    finally:
        killer.process.stdin.close()
        killer.process.wait()
    return killed, studies, wasted


@pytest.mark.slow
def test_row_1_sigkill_of_the_process_tree_200_times():
    with scratch() as work:
        killed, studies, wasted = random_kills(work, 200, seed=1)
    print(f"{killed} kills over {studies} studies; {wasted} rollouts drawn again, all booked")


@pytest.mark.heavy
def test_row_1_sigkill_of_the_process_tree():
    with scratch() as work:
        assert random_kills(work, 1, seed=0)[0] >= 1


RUN = """
import sys
sys.path.insert(0, sys.argv[2])
from crash_server import tree_study
from isocompute.runner import run_study
from study_helpers import FAST
sys.exit(run_study(tree_study(), sys.argv[1], workers=2, settings=FAST).exit_code)
"""


def start(folder, work, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1",
                   "COUNT_FILE": str(work / "count")}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", RUN, folder, HELPERS], env=environment, start_new_session=True,
        stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


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
