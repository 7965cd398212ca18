"""Studies on Ray: several raylets on one machine, one of them killed in the middle."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from isocompute.errors import InputError, RunError
from isocompute.runner import run_study
from isocompute.runner.ray import _unpack, ray_pool
from isocompute.store import Store
from isocompute.store.doctor import examine
from study_helpers import FAST, digest, small_study
from test_adaptive import SCRIPT, adaptive_study, looks_of, reached

pytestmark = pytest.mark.ray

ray = pytest.importorskip("ray", reason="needs the extra [ray]")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Three nodes: raylets of their own, a head with one CPU and two workers with two."""
    from ray.cluster_utils import Cluster

    # Raylets hand their environment on to what runs on them.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.setenv("COUNT_FILE", str(tmp_path / "count"))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else a token in the home folder decides
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def test_the_records_are_those_of_one_machine(cluster, tmp_path):
    study = small_study(ns=(2, 4), seeds=(0, 1))
    summary = run_study(study, tmp_path / "ray", settings=FAST, pool=ray_pool())
    assert (summary.done, summary.accounting.wasted_rollouts) == (4, 0)
    run_study(study, tmp_path / "here", workers=0, settings=FAST)
    assert digest(tmp_path / "ray", tmp_path / "a") == digest(tmp_path / "here", tmp_path / "b")


PAUSE_S = 0.02


def counted(runs, rollouts):
    return small_study(ns=(2,), seeds=tuple(range(runs)), rollouts=rollouts, engine="odd",
                       options={"fault": "counted", "pause_s": PAUSE_S})  # fmt: skip


def check_books(folder, work, study):
    """Everything is done, once; what was drawn is booked but for the lost actors' last moments."""
    with Store(folder) as store:
        rows = store.database.read("SELECT outcome, count(*) FROM attempts GROUP BY outcome")
        accounting = store.accounting()
    assert examine(folder) == []
    assert accounting.rollouts == study.rollouts
    booked = accounting.rollouts + accounting.wasted_rollouts
    drawn = (work / "count").stat().st_size
    batch = study.runs[0].allocation.batch_size
    unseen = batch * (1 + 1.0 / PAUSE_S)  # records are under way for well below a second
    assert booked <= drawn <= booked + unseen * accounting.uncertain_steps
    return dict(rows)


def test_an_adaptive_sweep_takes_the_same_decisions(cluster, tmp_path):
    study = adaptive_study()
    run_study(study, tmp_path / "ray", settings=FAST, decide=SCRIPT, pool=ray_pool())
    run_study(study, tmp_path / "here", workers=0, settings=FAST, decide=SCRIPT)
    assert looks_of(tmp_path / "ray") == looks_of(tmp_path / "here")
    assert reached(tmp_path / "ray") == reached(tmp_path / "here")
    assert digest(tmp_path / "ray", tmp_path / "a") == digest(tmp_path / "here", tmp_path / "b")


def test_row_2_three_nodes_sixty_runs_one_node_killed(cluster, tmp_path):
    machine, nodes = cluster
    study = counted(60, 320)
    killed = []

    def kill_in_the_middle(report):
        if not killed and report.rollouts_done > 0.4 * report.rollouts_total:
            killed.append(report)
            machine.remove_node(nodes[0], allow_graceful=False)

    folder = tmp_path / "ray"
    summary = run_study(study, folder, settings=FAST, pool=ray_pool(), progress=kill_in_the_middle)
    assert killed
    assert (summary.done, summary.exit_code) == (60, 0)
    outcomes = check_books(folder, tmp_path, study)
    assert outcomes["crashed"] >= 1
    run_study(study, tmp_path / "here", workers=2, settings=FAST)
    assert digest(folder, tmp_path / "a") == digest(tmp_path / "here", tmp_path / "b")


def test_row_6_a_second_driver_joins(cluster, tmp_path):
    study, folder = counted(12, 320), tmp_path / "ray"
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from test_ray import FAST, counted, ray_pool, run_study\n"
        "pool = ray_pool(address=sys.argv[3], max_runs=2)\n"
        "sys.exit(run_study(counted(12, 320), sys.argv[2], settings=FAST, pool=pool).exit_code)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, ":".join(sys.path), folder, cluster[0].address]
    )
    summary = run_study(study, folder, settings=FAST, pool=ray_pool(max_runs=2))
    assert other.wait() == 0
    assert (summary.done, summary.exit_code) == (12, 0)
    with Store(folder) as store:
        rows = store.database.read("SELECT DISTINCT runner FROM attempts")
        assert store.accounting().wasted_rollouts == 0
    assert len(rows) == 2
    assert check_books(folder, tmp_path, study) == {"done": 24}


def test_engine_errors_and_limits_come_back(cluster, tmp_path):
    study = small_study(ns=(2,), engine="odd", options={"fault": "raises"})
    summary = run_study(study, tmp_path, settings=FAST, pool=ray_pool(max_runs=1))
    assert "RuntimeError: the trainer broke" in summary.problems[0][1]


def test_a_cluster_with_a_token(tmp_path):
    """As `ray start --head` makes one where the home folder has a token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    homes = {name: tmp_path / name for name in ("with", "without")}
    for home in homes.values():
        (home / ".ray").mkdir(parents=True)
    (homes["with"] / ".ray" / "auth_token").write_text(secrets.token_hex(32))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    clean["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    short = tempfile.mkdtemp(prefix="ray")  # the path of a socket has 107 bytes at most
    head = subprocess.Popen(
        [Path(sys.executable).with_name("ray"), "start", "--head", f"--port={port}",
         "--num-cpus=1", "--include-dashboard=false", "--disable-usage-stats",
         f"--temp-dir={short}", "--block"], env={**clean, "HOME": str(homes["with"])},
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from isocompute.runner.ray import ray_pool\n"
        "pool = ray_pool(address=sys.argv[3])\n"
        "from isocompute.runner import run_study\n"
        "from study_helpers import FAST, small_study\n"
        "study = small_study(ns=(2,))\n"
        "sys.exit(run_study(study, sys.argv[2], settings=FAST, pool=pool).exit_code)\n"
    )
    try:
        assert any("block forever" in line for line in head.stdout), "Ray did not start"
        ends = {}
        for name, home in homes.items():
            ends[name] = subprocess.run(
                [sys.executable, "-c", code, ":".join(sys.path), tmp_path / f"{name} study",
                 f"127.0.0.1:{port}"], env={**clean, "HOME": str(home)},
                capture_output=True, text=True,
            )  # fmt: skip
    finally:
        os.killpg(head.pid, signal.SIGKILL)
        head.wait()
        shutil.rmtree(short, ignore_errors=True)
    assert ends["with"].returncode == 0, ends["with"].stderr
    line = ends["without"].stderr.splitlines()[-1]
    assert "a Ray cluster must be reachable at address" in line
    assert "set RAY_AUTH_MODE=token and put its token into" in line


def test_a_local_cluster_is_one_of_its_own(monkeypatch):
    asked = []

    def init(**options):
        asked.append(options["address"])
        raise ConnectionError("not here")

    monkeypatch.setattr(ray, "init", init)
    for address in (None, "auto"):
        with pytest.raises(RunError, match="Ray says: not here; start it"):
            ray_pool(address=address)
    assert asked == ["local", "auto"]


def test_resources_must_be_asked_for():
    with pytest.raises(InputError, match="some of them > 0"):
        ray_pool(num_cpus=0)


def test_files_stay_in_their_folder(tmp_path):
    with pytest.raises(InputError, match="must lie in its folder"):
        _unpack({"../x": b""}, tmp_path)
