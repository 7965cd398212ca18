"""Three Ray nodes in network namespaces of their own; one is killed, and loses its network with it.

Needs Linux, root and `ip` (Debian: iproute2); skipped elsewhere. Addresses are 10.77.0.1 to .3 on a
bridge that the test makes and removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isocompute.runner import run_study
from isocompute.store import Store
from study_helpers import FAST, digest
from test_ray import check_books, counted

pytest.importorskip("ray", reason="needs the extra [ray]")

pytestmark = [pytest.mark.ray, pytest.mark.slow]

RAY = Path(sys.executable).with_name("ray")
PORT = 6399
DRIVER = """
import sys
sys.path[:0] = sys.argv[1].split(':')
from test_ray import FAST, counted, ray_pool, run_study
pool = ray_pool(address=sys.argv[3])
import ray, time
while ray.cluster_resources().get("CPU", 0) < 5:  # all three nodes
    time.sleep(0.5)
sys.exit(run_study(counted(60, 320), sys.argv[2], settings=FAST, pool=pool).exit_code)
"""


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def kill_all_in(space):
    for pid in ip("netns", "pids", space).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def spaces():
    """Names of three connected namespaces; whatever runs in them is killed at the end."""
    mark = f"iso{os.getpid() % 10_000}"
    names = [f"{mark}n{i}" for i in (1, 2, 3)]
    try:
        ip("link", "add", mark, "type", "bridge")
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces need root and iproute2: {error}")
    try:
        ip("link", "set", mark, "up")
        for i, name in enumerate(names, start=1):
            ip("netns", "add", name)
            ip("link", "add", f"{mark}v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{mark}v{i}", "master", mark, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                kill_all_in(name)
                ip("netns", "del", name)
        ip("link", "del", mark)


def test_row_2_a_node_in_a_namespace_of_its_own_is_killed(spaces, tmp_path, monkeypatch):
    session = Path(f"/tmp/ray-{spaces[0]}")  # short: sockets lie in it
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "COUNT_FILE": str(tmp_path / "count"), "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # else a token in the home folder decides
    }  # fmt: skip

    log = (tmp_path / "log").open("w")

    def inside(space, *command):
        return subprocess.Popen(
            ["ip", "netns", "exec", space, *map(str, command)], env=environment,
            stdout=log, stderr=log,
        )  # fmt: skip

    address = f"10.77.0.1:{PORT}"
    try:
        inside(
            spaces[0], RAY, "start", "--head", "--node-ip-address=10.77.0.1", f"--port={PORT}",
            "--num-cpus=1", "--include-dashboard=false", f"--temp-dir={session}", "--block",
        )  # fmt: skip
        time.sleep(10)

        def worker(i):
            return inside(
                spaces[i - 1], RAY, "start", f"--address={address}",
                f"--node-ip-address=10.77.0.{i}", "--num-cpus=2", "--block",
            )  # fmt: skip

        workers = {i: worker(i) for i in (2, 3)}
        folder, study = tmp_path / "ray", counted(60, 320)
        here = ":".join(sys.path)
        driver = inside(spaces[0], sys.executable, "-c", DRIVER, here, folder, address)
        until = time.monotonic() + 400
        while rollouts_of(folder) < 0.4 * study.rollouts:
            assert driver.poll() is None, "the driver ended early"
            assert time.monotonic() < until, "the middle was not reached"
            for i, process in workers.items():
                if process.poll() is not None:  # Ray gives a node 30 s to start, busy or not
                    workers[i] = worker(i)
            time.sleep(0.2)
        kill_all_in(spaces[1])
        ip("-n", spaces[1], "link", "set", "eth0", "down")
        assert driver.wait(300) == 0
    finally:
        for name in spaces:
            kill_all_in(name)
        shutil.rmtree(session, ignore_errors=True)
    assert check_books(folder, tmp_path, study)["crashed"] >= 1
    with Store(folder) as store:
        assert [run.state for run in store.runs()] == ["done"] * 60
    monkeypatch.setenv("COUNT_FILE", str(tmp_path / "count here"))
    run_study(study, tmp_path / "here", workers=2, settings=FAST)
    assert digest(folder, tmp_path / "a") == digest(tmp_path / "here", tmp_path / "b")


def rollouts_of(folder):
    if not (folder / "study.db").is_file():
        return 0
    with contextlib.suppress(Exception), Store(folder) as store:
        return store.accounting().rollouts
    return 0
