"""Trainers in processes of their own: started, watched, stopped, and never left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute.engines import jobs
from isocompute.engines.jobs import LocalJob, RayJob, tail_of
from isocompute.errors import RunError

FOREVER = "import time; time.sleep(600)"
# A trainer that starts a process of its own; both would live for ten minutes.
TREE = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {FOREVER!r}])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def local(tmp_path: Path, code: str, **environment: str) -> LocalJob:
    return LocalJob([sys.executable, "-c", code], log=tmp_path / "log", environment=environment,
                    folder=tmp_path)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_a_job_runs_in_its_folder_with_its_environment(tmp_path: Path) -> None:
    job = local(tmp_path, "import os; print(os.environ['WORD'], os.getcwd()); raise SystemExit(3)",
                WORD="yes")
    assert wait_for(lambda: job.poll() is not None)
    assert job.poll() == 3
    assert job.tail() == f"yes {tmp_path}"


@needs_proc
def test_stop_ends_what_the_job_started(tmp_path: Path) -> None:
    job = local(tmp_path, TREE)
    assert wait_for(lambda: (tmp_path / "log").read_text().strip().isdecimal())
    child = int((tmp_path / "log").read_text())
    assert alive(child)
    job.stop()
    assert job.poll() == -signal.SIGTERM
    assert wait_for(lambda: not alive(child))


@needs_proc
def test_stop_is_obeyed_by_a_job_that_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_STOP_S", 0.3)
    job = local(tmp_path, "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                          "print('deaf', flush=True)\ntime.sleep(600)")
    assert wait_for(lambda: "deaf" in (tmp_path / "log").read_text())
    job.stop()
    assert job.poll() == -signal.SIGKILL


@needs_proc
def test_row_1_a_trainer_dies_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    runner = subprocess.Popen([sys.executable, "-c", (
        "import sys, time\nfrom pathlib import Path\n"
        "from isocompute.engines.jobs import LocalJob\n"
        f"job = LocalJob([sys.executable, '-c', {TREE!r}], log=Path({str(tmp_path / 'log')!r}), "
        f"environment={{}}, folder=Path({str(tmp_path)!r}))\n"
        "time.sleep(600)\n")], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    log = tmp_path / "log"
    assert wait_for(lambda: log.exists() and log.read_text().strip().isdecimal())
    child = int(log.read_text())
    time.sleep(0.3)  # the guard starts after the trainer
    assert alive(child)
    runner.kill()
    runner.wait()
    assert wait_for(lambda: not alive(child))


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="a trainer must start, but '/no/program' gives No such"):
        LocalJob(["/no/program"], log=tmp_path / "log", environment={}, folder=tmp_path)


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    assert tail_of(tmp_path / "none").startswith("no log (")
    log = tmp_path / "log"
    log.write_bytes(b"\n \n")
    assert tail_of(log) == "an empty log"
    log.write_bytes(b"\xff one\n\ntwo\n" + b"x" * 5000)
    assert tail_of(log) == "x" * 600
    log.write_text("1\n2\n\n3\n4\n5\n")
    assert tail_of(log) == "2 | 3 | 4 | 5"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `ray` that writes its arguments down and answers with what `answer` holds."""
    program = tmp_path / "bin" / "ray"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        f"home = pathlib.Path({str(tmp_path)!r})\n"
        "with (home / 'calls').open('a') as file:\n"
        "    print(json.dumps(sys.argv[1:]), file=file)\n"
        "answer = json.loads((home / 'answer').read_text())\n"
        "text, code = answer.get(sys.argv[2], ('', 0))\n"
        "print(text)\n"
        "sys.exit(code)\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "answer").write_text("{}")
    return tmp_path


def ray_job(home: Path, **changes: object) -> RayJob:
    return RayJob(["python", "-m", "verl"], address="http://head:8265", log=home / "log",
                  environment={"A": "b"}, **{"name": "run-1", **changes})  # type: ignore[arg-type]


def calls(home: Path) -> list[list[str]]:
    import json

    return [json.loads(line) for line in (home / "calls").read_text().splitlines()]


def test_a_job_is_submitted_to_a_cluster_and_those_of_lost_runners_are_stopped(
    cluster: Path,
) -> None:
    ray_job(cluster, earlier=["run-0"])
    at = "--address=http://head:8265"
    assert calls(cluster) == [
        ["job", "stop", at, "run-0"],
        ["job", "submit", at, "--no-wait", "--submission-id", "run-1", "--runtime-env-json",
         '{"env_vars": {"A": "b"}}', "--", "python", "-m", "verl"],
    ]


@pytest.mark.parametrize(("text", "code"), [
    ("Status for job 'run-1': RUNNING", None), ("Job 'run-1' succeeded\nSUCCEEDED", 0),
    ("Job 'run-1' FAILED", 1), ("STOPPED", 1), ("PENDING", None)])
def test_the_status_of_a_cluster_job(cluster: Path, text: str, code: int | None) -> None:
    import json

    job = ray_job(cluster)
    (cluster / "answer").write_text(json.dumps({"status": [text, 0], "logs": ["a\nlast words", 0]}))
    assert job.poll() == code
    assert job.tail() == "a | last words"
    job.stop()
    assert calls(cluster)[-1][1] == "stop"


def test_a_cluster_that_refuses_and_one_that_is_silent(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    (cluster / "answer").write_text(json.dumps({"submit": ["no such cluster", 2]}))
    with pytest.raises(RunError, match="`ray job submit` must succeed .* says: no such cluster"):
        ray_job(cluster)
    monkeypatch.setattr(jobs, "_RAY_S", 0.0)
    with pytest.raises(RunError, match="`ray job submit` must answer within 0 s"):
        ray_job(cluster)


def test_a_cluster_that_is_still_starting_is_asked_again(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    starting = json.dumps({"submit": ["Request failed: No agent yet, please try again later.", 1]})
    (cluster / "answer").write_text(starting)
    waited = list[float]()

    def wait(moment: float) -> None:
        waited.append(moment)
        if len(waited) == 3:  # now it has started
            (cluster / "answer").write_text(json.dumps({"submit": ["done", 0]}))

    monkeypatch.setattr(jobs, "wait_until", wait)
    ray_job(cluster)
    assert (len(waited), len(calls(cluster))) == (3, 4)
    monkeypatch.setattr(jobs, "_RAY_S", 1.9)  # it never does
    (cluster / "answer").write_text(starting)
    with pytest.raises(RunError, match="please try again later"):
        ray_job(cluster)


def test_what_ray_says_is_kept_with_its_cure(cluster: Path) -> None:
    import json

    says = "Token authentication is enabled but " + "no token was found. " * 20 + "\x1b[0mSet it."
    (cluster / "answer").write_text(json.dumps({"submit": [says, 1]}))
    with pytest.raises(RunError) as caught:
        ray_job(cluster)
    line = str(caught.value)
    assert "?[0mSet it; a cluster that was started with a token wants it" in line
    assert line.isprintable()


def no_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))


def a_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_token(home, monkeypatch)
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)


def test_a_token_is_shown_where_there_is_one_and_nothing_else_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_token(tmp_path, monkeypatch)
    assert jobs.ray_authentication() == {}
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    assert jobs.ray_authentication() == {"RAY_AUTH_MODE": "token"}
    a_token(tmp_path, monkeypatch)
    assert jobs.ray_authentication() == {"RAY_AUTH_MODE": "token"}
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert jobs.ray_authentication() == {}


@pytest.mark.ray
@pytest.mark.parametrize("home", [no_token, a_token])
def test_a_real_cluster_takes_a_job_and_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    home: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    pytest.importorskip("ray", reason="needs the extra [ray]")
    import socket

    home(tmp_path, monkeypatch)  # a token there makes `ray start` ask for it

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    short = tempfile.mkdtemp(prefix="ray")  # the path of a socket has 107 bytes at most
    ray = str(Path(sys.executable).with_name("ray"))
    monkeypatch.setenv("PATH", f"{Path(ray).parent}{os.pathsep}{os.environ['PATH']}")
    head = subprocess.Popen(
        [ray, "start", "--head", "--port=0", "--dashboard-host=127.0.0.1", "--num-cpus=1",
         f"--dashboard-port={port}", "--include-dashboard=true", "--disable-usage-stats",
         f"--temp-dir={short}", "--block"], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def listens() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        assert wait_for(listens, 60)

        def submit(name: str, code: str, **changes: object) -> RayJob:
            return RayJob([sys.executable, "-c", code], address=f"http://127.0.0.1:{port}",
                          name=name, log=tmp_path / name, environment={"WORD": "yes"},
                          **changes)  # type: ignore[arg-type]

        stuck = submit("run-0", FOREVER)
        good = submit("run-1", "import os; print(os.environ['WORD'])", earlier=["run-0"])
        bad = submit("run-2", "raise SystemExit('broken')")
        assert wait_for(lambda: good.poll() is not None, 60)
        assert wait_for(lambda: bad.poll() is not None, 60)
        assert wait_for(lambda: stuck.poll() is not None, 60)
        assert (good.poll(), bad.poll(), stuck.poll()) == (0, 1, 1)
        assert "yes" in good.tail()
        assert "broken" in bad.tail()
    finally:
        os.killpg(head.pid, signal.SIGKILL)
        head.wait()
        shutil.rmtree(short, ignore_errors=True)
