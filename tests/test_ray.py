"""Studies on Ray: several raylets on one machine, one of them killed in the middle."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from isocompute.errors import InputError
from isocompute.runner import run_study
from isocompute.runner.ray import _unpack, ray_pool
from isocompute.store import Store
from study_helpers import FAST, digest, small_study

pytestmark = pytest.mark.ray

ray = pytest.importorskip("ray", reason="needs the extra [ray]")


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
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


def test_row_2_a_lost_node_is_retried_from_the_last_commit(cluster, tmp_path):
    machine, nodes = cluster
    study = small_study(ns=(2,), seeds=tuple(range(8)), rollouts=640, engine="odd",
                        options={"fault": "slow"})  # fmt: skip
    killer = threading.Timer(6.0, lambda: machine.remove_node(nodes[0], allow_graceful=False))
    killer.start()
    began = time.monotonic()
    summary = run_study(study, tmp_path / "ray", settings=FAST, pool=ray_pool())
    killer.join()
    assert time.monotonic() - began > 6.0, "the node was killed after the study had ended"
    assert (summary.done, summary.exit_code) == (8, 0)
    with Store(tmp_path / "ray") as store:
        outcomes = [row[0] for row in store.database.read("SELECT outcome FROM attempts")]
        accounting = store.accounting()
    assert "crashed" in outcomes
    assert accounting.rollouts == 8 * 640
    assert accounting.wasted_rollouts >= 0
    run_study(study, tmp_path / "here", workers=2, settings=FAST)
    assert digest(tmp_path / "ray", tmp_path / "a") == digest(tmp_path / "here", tmp_path / "b")


def test_engine_errors_and_limits_come_back(cluster, tmp_path):
    study = small_study(ns=(2,), engine="odd", options={"fault": "raises"})
    summary = run_study(study, tmp_path, settings=FAST, pool=ray_pool(max_runs=1))
    assert "RuntimeError: the trainer broke" in summary.problems[0][1]


def test_resources_must_be_asked_for():
    with pytest.raises(InputError, match="some of them > 0"):
        ray_pool(num_cpus=0)


def test_files_stay_in_their_folder(tmp_path):
    with pytest.raises(InputError, match="must lie in its folder"):
        _unpack({"../x": b""}, tmp_path)
