"""verl 0.9.1 trains, with vLLM sampling, on the CPU: studies through `isocompute run`.

Marker `verl`, `make test-verl`. Each launch of verl takes a minute or two, so there are as few as
can be, six for three runs and three kills, and every test checks all that its launches show.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.process_tree import end_tree, tree_of
from isocompute.store.pack import unpack
from isocompute.study.yaml12 import read_yaml

ROOT = Path(__file__).parents[2]
ON_CPU = ROOT / "tests" / "verl_cpu"
PYTHON = os.environ.get("ISOCOMPUTE_VERL_CPU_PYTHON",
                        str(ROOT / ".venv-verl-cpu/bin/python"))  # fmt: skip
pytestmark = [
    pytest.mark.verl,
    pytest.mark.skipif(not Path(PYTHON).is_file(), reason="no Python with verl and vLLM"),
]
FULL = 0.01  # learning rate after the warm-up
MEMORY = Path("/dev/shm")
_LAUNCH_S = 900.0  # of verl: minutes on busy cores, and half was too short through a Ray job

OPTIONS = read_yaml(ON_CPU / "engine_options.yaml")
ROOM = {"actor_rollout_ref.rollout.max_model_len": 16}  # vLLM's, of prompt and response
EXACT = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([PYTHON, str(ON_CPU / "make_model.py"), str(folder)], check=True,
                   capture_output=True)  # fmt: skip
    return folder


class World:
    """A study of problems whose answer is a digit that must stand in the response twice."""

    def __init__(self, folder: Path, model: Path, steps: int, **changes: Any) -> None:
        self.folder, self.study, self.out = folder, folder / "study.yaml", folder / "out"
        self.report = folder / "processes.jsonl"
        (folder / "twice.py").write_text(
            "def twice(response, answer):\n    return int(response.count(answer) >= 2)\n"
        )
        for name, first, last in (("train", 0, 64), ("easy", 64, 70), ("hard", 70, 76)):
            (folder / f"{name}.jsonl").write_text("".join(
                json.dumps({"id": f"{name}-{i}", "prompt": f"{i:02d}", "answer": str(i % 10)})
                + "\n" for i in range(first, last)))  # fmt: skip

        def problems(name: str) -> dict[str, str]:
            return {"path": f"{name}.jsonl", "verifier": "twice.py:twice"}

        content: dict[str, Any] = {
            "name": "verl-on-cpu", "engine": "verl",
            "engine_options": {
                **OPTIONS, "model": str(model), "python": PYTHON, "folder": str(folder / "runs"),
                "max_prompt_tokens": 4, "max_response_tokens": 8,
                "overrides": OPTIONS["overrides"] | ROOM,
                "environment": OPTIONS["environment"] | {
                    "PYTHONPATH": str(ON_CPU), "VERL_ON_CPU_REPORT": str(self.report),
                    "VERL_ON_CPU_PAUSE": str(folder / "pause"),
                },
            },
            "problems": {"train": problems("train"),
                         "validation": {"easy": problems("easy"), "hard": problems("hard")}},
            "recipe": {"learning_rate": FULL, "learning_rate_scaling": "constant",
                       "warmup_steps": 4, "kl_coef": 0.001, "entropy_coef": 0.001},
            "grid": {"problems_per_batch": 4, "rollouts_per_problem": 4, "seeds": 1},
            "budget": 16 * steps, "evaluation": {"samples": 4, "per_octave": 1, "first": 32},
        }  # fmt: skip
        self.study.write_text(json.dumps(content | changes))

    def start(self) -> subprocess.Popen[bytes]:
        # as a runner from a checkout has it: verl must see nothing of it
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with (self.folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "isocompute", "run", str(self.study), "-o", str(self.out)],
                env=environment, stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip

    def finish(self) -> None:
        process = self.start()
        try:
            code = process.wait(_LAUNCH_S * 2)
        finally:
            end(process)
        assert code == 0, self.words()

    def kill_when(self, holds: Callable[[], bool]) -> None:
        """SIGKILL to the runner and its workers once something is the case."""
        process = self.start()
        deadline = time.monotonic() + _LAUNCH_S
        try:
            while not holds():
                assert process.poll() is None, self.words()
                assert time.monotonic() < deadline, self.words()
                time.sleep(0.05)  # more often, and the look at the store would keep it from writing
        finally:
            end(process)
        wait_for_nothing(self.folder)

    def words(self) -> str:
        logs = [self.folder / "run.log", *sorted(self.folder.glob("runs/*/attempt-*/console.log"))]
        return "\n".join(f"{p}: {p.read_text(errors='replace')[-1500:]}" for p in logs)

    @property
    def attempts(self) -> list[Path]:
        found = list((self.folder / "runs").glob("*/attempt-*"))
        return sorted(found, key=lambda p: (p.parent.name, int(p.name.rpartition("-")[2])))

    def checkpoints(self, since: float = 0.0) -> list[int]:
        """Steps of verl's own whose last file was written since then."""
        found = (self.folder / "runs").glob("*/checkpoints/global_step_*/data.pt")
        return [int(p.parent.name.rpartition("_")[2]) for p in found if p.stat().st_mtime > since]

    def rows(self, last: int = 99) -> dict[int, dict[str, Any]]:
        """verl's own log of the last attempts: of a step that was trained twice, the later one."""
        found: dict[int, dict[str, Any]] = {}
        for attempt in self.attempts[-last:]:
            path = attempt / "metrics.jsonl"
            for line in path.read_text().splitlines() if path.is_file() else ():
                row = json.loads(line)
                found[row["step"]] = row["data"]
        return found

    def read(self, sql: str) -> list[sqlite3.Row]:
        with sqlite3.connect(f"file:{self.out / 'study.db'}?mode=ro", uri=True) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(sql).fetchall()


def end(process: subprocess.Popen[bytes]) -> None:
    for pid in reversed([p for p in tree_of(process.pid) if b"isocompute" in command_of(p)]):
        kill(pid)
    process.wait()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def left_of(folder: Path) -> dict[int, bytes]:
    """Processes with the world's folder in their environment or command line: verl's, Ray's."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if state != "Z" and str(folder).encode() in text:
                found[int(entry.name)] = command_of(int(entry.name))[:80]
    return found


def wait_for_nothing(folder: Path, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while (found := left_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not found


@pytest.fixture
def memory() -> set[str]:
    """What lies in shared memory before."""
    return set(os.listdir(MEMORY))


def left_in_memory(before: set[str]) -> set[str]:
    """What has come since and no process has open: others may train on this machine too.

    A semaphore, 32 bytes, that is made between the last look before a kill and the kill is known
    to nobody: what is smaller than a page does not count.
    """
    maps = ""
    for path in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            maps += path.read_text()
    new = [name for name in set(os.listdir(MEMORY)) - before if f"{MEMORY}/{name}" not in maps]
    return {name for name in new if os.stat(f"{MEMORY}/{name}").st_size > 4096}


def test_grpo_killed_in_training_in_validation_and_in_saving(
    tmp_path: Path, model: Path, memory: set[str]
) -> None:
    world = World(tmp_path, model, 16)
    committed_by = [kill_in_training(world), kill_in_validation(world), kill_in_saving(world)]
    print("killed three times; committed by then:", committed_by)
    world.finish()
    wait_for_nothing(tmp_path)
    check_killed_run(world, committed_by)
    assert not left_in_memory(memory)


def kill_in_training(world: World) -> int:
    """A step after a checkpoint that is committed."""
    world.kill_when(lambda: max(world.rows(), default=0) > committed(world) >= 2)
    return committed(world)


def kill_in_validation(world: World) -> int:
    """The checkpoint is whole, its row is not in the log: verl validates between the two."""
    earlier = len(world.attempts)

    def holds() -> bool:
        begun = world.attempts[-1] / "command.json"
        if len(world.attempts) == earlier or not begun.is_file():
            return False
        newest = max(world.checkpoints(since=begun.stat().st_mtime), default=0)
        return newest > 0 and newest not in world.rows(last=1)

    world.kill_when(holds)
    return committed(world)


def kill_in_saving(world: World) -> int:
    """The folder is there, its end is not, or is an earlier attempt's: its step is saved again."""
    pause, reached = world.folder / "pause", world.folder / "pause.reached"
    pause.touch()
    world.kill_when(reached.exists)
    pause.unlink()
    saving = int(Path(reached.read_text()).parents[1].name.rpartition("_")[2])
    begun = (world.attempts[-1] / "command.json").stat().st_mtime
    assert saving > committed(world)
    assert saving not in world.checkpoints(since=begun)
    return committed(world)


def check_killed_run(world: World, committed_by: list[int]) -> None:
    """Everything is there once, and each start went on where the study had been committed.

    On a machine that is very busy Ray gives up after 30 s, which no key of its own changes; such an
    attempt wrote no log, and the runner has tried again.
    """
    begun = [p for p in world.attempts if (p / "metrics.jsonl").is_file()]
    resumed = [[a for a in json.loads((p / "command.json").read_text())
                if a.startswith("trainer.resume_from_path=")] for p in begun]
    assert [r and r[0].rpartition("_")[2] for r in resumed] == [
        [], *map(str, committed_by)]
    check_steps(world, 16)
    steps = world.read("SELECT size, problems FROM steps ORDER BY step")
    seen = np.concatenate([unpack(s["problems"], s["size"]) for s in steps])
    # sixteen batches of four are one pass over the data: the order went on where it was
    assert sorted(seen.tolist()) == list(range(64))
    evaluations = world.read("SELECT * FROM evaluations ORDER BY step, problem_set")
    assert [(e["step"], e["problem_set"]) for e in evaluations] == [
        (step, name) for step in (0, 2, 4, 8, 16) for name in ("easy", "hard")]
    for e in evaluations:
        # with the validations of step 6, and of 10, 12 and 14: between two points
        drawn = 24 * {8: 2, 16: 4}.get(e["step"], 1)
        assert e["sampled_rollouts"] == drawn
        assert drawn < e["sampled_tokens"] <= 8 * drawn
        assert sum(json.loads(e["counts"])) == 6  # each problem's own outcome
    assert 16 in world.checkpoints()
    assert len(world.checkpoints()) <= 2  # the store keeps two
    check_processes(world)


def check_steps(world: World, steps: int) -> None:
    """verl's own log beside ours."""
    mine = world.read("SELECT * FROM steps ORDER BY run, step")
    theirs = world.rows()
    tokens = 0.0
    assert [s["step"] for s in mine] == list(range(1, steps + 1))
    print("step  reward verl's  tokens verl's  rate next verl's  KL verl's")
    for s in mine:
        row, health = theirs[s["step"]], json.loads(s["health"])
        reward = float(unpack(s["successes"], s["size"]).sum()) / 16
        tokens += row["response_length/mean"] * 16
        rate = [FULL * min(1.0, i / 4) for i in (s["step"], s["step"] + 1)]
        print(s["step"], reward, row["critic/score/mean"], s["tokens"], round(tokens),
              health["learning_rate"], rate[1], row["actor/lr"], health.get("kl"),
              row.get("actor/kl_loss"))  # fmt: skip
        assert (s["rollouts"], s["samples"], s["size"]) == (16 * s["step"], 4, 4)
        assert reward == pytest.approx(row["critic/score/mean"], abs=1e-6)
        assert s["tokens"] == round(tokens)
        assert health["learning_rate"] == pytest.approx(rate[0])
        assert row["actor/lr"] == pytest.approx(rate[1])  # logged after the schedule's step
        assert health["grad_norm"] == row["actor/grad_norm"]
        assert health.get("kl") == row.get("actor/kl_loss")
        assert health["length_tokens"] == row["response_length/mean"]
    assert any(json.loads(s["health"])["grad_norm"] > 0 for s in mine)


def check_processes(world: World) -> None:
    """Every Python of verl's had its own packages and nothing of the runner's module path."""
    reports = [json.loads(line) for line in world.report.read_text().splitlines()]
    assert len({r["pid"] for r in reports}) >= 4  # driver, trainer, sampler, rewards
    home = Path(PYTHON).parent.parent
    for report in reports:
        assert Path(report["torch"]).is_relative_to(home)
        assert not [p for p in report["path"] if p and Path(p).is_relative_to(ROOT / "src")]
    for attempt in world.attempts:
        found = json.loads((attempt / "installed.json").read_text())
        assert found["versions"]["verl"] == "0.9.1"
        assert Path(found["files"]["torch"]).is_relative_to(home)


def committed(world: World) -> int:
    try:
        return int(world.read("SELECT coalesce(max(steps_done), 0) AS s FROM runs")[0]["s"])
    except sqlite3.Error:
        return 0


def test_ppo_trains_its_value_model_too(tmp_path: Path, model: Path, memory: set[str]) -> None:
    world = World(tmp_path, model, 3, recipe={
        "learning_rate": FULL, "learning_rate_scaling": "constant", "warmup_steps": 4,
        "objective": "ppo", "value_learning_rate": 0.005,
    })  # fmt: skip
    study = json.loads(world.study.read_text())
    study["engine_options"]["overrides"] |= {
        "critic.strategy": "fsdp2", "+critic.fsdp.mixed_precision": EXACT,
        "+critic.model.override_config.attn_implementation": "sdpa",
    }  # fmt: skip
    world.study.write_text(json.dumps(study))
    world.finish()
    wait_for_nothing(tmp_path)
    assert not left_in_memory(memory)
    check_steps(world, 3)
    assert all("value_loss" in json.loads(s["health"]) for s in world.read("SELECT * FROM steps"))
    rates = [row["critic/lr"] for row in world.rows().values() if "critic/lr" in row]
    assert rates == pytest.approx([0.005 * i / 4 for i in (2, 3, 4)])  # of the next step


def test_cispo_trains_through_ray_job_submit(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else a token in the home folder decides
    world = World(tmp_path, model, 3, recipe={
        "learning_rate": FULL, "learning_rate_scaling": "constant", "warmup_steps": 4,
        "objective": "cispo", "importance_cap": 2.0,
    })  # fmt: skip
    ray = Path(PYTHON).with_name("ray")
    port, gcs = free_port(), free_port()
    address = f"http://127.0.0.1:{port}"
    study = json.loads(world.study.read_text())
    options = study["engine_options"]
    options |= {"ray_address": address, "poll_s": 5.0}  # each look is a process of Ray's
    options["overrides"] = {k: v for k, v in options["overrides"].items() if "ray_init" not in k}
    world.study.write_text(json.dumps(study))
    monkeypatch.setenv("PATH", f"{ray.parent}{os.pathsep}{os.environ['PATH']}")
    sockets = Path("/tmp") / f"isocompute-ray-{os.getpid()}"  # short enough for Ray's sockets
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    clean |= {"RAY_prestart_worker_first_driver": "0", "RAY_worker_niceness": "0"}
    head = subprocess.Popen(
        [str(ray), "start", "--head", "--block", "--num-gpus=1", "--num-cpus=32", f"--port={gcs}",
         f"--dashboard-port={port}", "--object-store-memory=200000000", "--disable-usage-stats",
         f"--temp-dir={sockets}"],
        env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        cwd=tmp_path,  # verl writes into the cluster's folder
    )  # fmt: skip
    try:
        deadline = time.monotonic() + _LAUNCH_S
        while subprocess.run([str(ray), "job", "list", f"--address={address}"], env=clean,
                             capture_output=True, check=False).returncode:  # fmt: skip
            assert time.monotonic() < deadline
            assert head.poll() is None
            time.sleep(2)
        world.finish()
        check_steps(world, 3)
        command = json.loads((world.attempts[0] / "command.json").read_text())
        assert "actor_rollout_ref.actor.policy_loss.loss_mode=cispo" in command
    finally:
        end_tree(head.pid)
        head.wait()
        shutil.rmtree(sockets, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
