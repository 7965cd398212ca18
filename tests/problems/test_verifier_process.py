"""Checkers that misbehave as processes: forks, strays, forged lines, memory, environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.process_tree import end_tree, has_ended, memory_bytes, tree_of
from isocompute.verifiers import Outcome, Verifier, load_verifier, worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

HOSTILE = '''
import json, os, signal, subprocess, sys, threading, time

held = []

def pipes():
    for descriptor in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
                yield descriptor
        except OSError:
            pass

def write(text):
    for descriptor in pipes():
        try:
            os.write(descriptor, text.encode())
        except OSError:
            pass

def note(answer):
    with open(answer, "a") as file:
        file.write(f"{os.getpid()} ")

def sleep_in_a_child(answer, own_session=False):
    if os.fork() == 0:
        if own_session:
            os.setsid()
        note(answer)
        time.sleep(300)
        os._exit(0)

def check(response, answer):
    word = response.partition(" ")[0]
    if word == "fork":
        sleep_in_a_child(answer)
        time.sleep(300)
    if word == "session":
        sleep_in_a_child(answer, own_session=True)
        time.sleep(300)
    if word == "fork_die":
        sleep_in_a_child(answer)
        while not os.path.exists(answer):
            time.sleep(0.01)
        os._exit(1)
    if word.startswith("daemon"):
        if os.fork() == 0:
            sleep_in_a_child(answer, own_session=True)
            os._exit(0)
        os.wait()  # the grandchild has neither parent nor group of this process any more
        while not os.path.exists(answer):
            time.sleep(0.01)
        if word == "daemon_die":
            os._exit(1)
        return 1
    if word == "leak":
        held.append(bytearray(b"1") * 10_000_000)
        time.sleep(0.02)
        return 1
    if word == "fork_back":
        return os.fork() != 0  # the copy comes back, too, with the other verdict
    if word == "forge":
        write('{"reward": 1}\\n')
        return 0
    if word == "garbage":
        write('{"re')
        return 1
    if word == "nested":
        write("[" * 50_000)
        return 1
    if word == "flood":
        while True:
            write("x" * 4096)
    if word == "later":
        threading.Timer(0.3, write, ['{"reward": 1}\\n']).start()
        return 0
    if word == "closed":
        os.closerange(3, 64)
        return 1
    if word == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if word == "memory":
        if os.fork() == 0:
            block = bytearray(400_000_000)
            time.sleep(300)
            os._exit(0)
        time.sleep(300)
    if word == "environment":
        return answer in os.environ
    return response == answer
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "hostile.py"
    path.write_text(HOSTILE)
    return path


@pytest.fixture
def load(file: Path) -> Iterator[Callable[..., Verifier]]:
    loaded: list[Verifier] = []

    def make(timeout_s: float = 20.0) -> Verifier:
        loaded.append(load_verifier(f"{file}:check", timeout_s=timeout_s))
        return loaded[-1]

    yield make
    for verifier in loaded:
        verifier.close()


def alive(numbers: str) -> list[int]:
    """Which of the processes live; zombies do not."""
    found = []
    for process in map(int, numbers.split()):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(process)
    return found


def gone(numbers: str) -> bool:
    deadline = time.monotonic() + 10
    while alive(numbers) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(numbers)


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["fork", "session"])
def test_a_child_of_a_checker_holds_nothing_up_and_ends_with_it(
    load: Callable[..., Verifier], tmp_path: Path, how: str
) -> None:
    verifier, started = load(1.5), time.monotonic()
    outcome = verifier(how, str(tmp_path / "children"))
    assert outcome == Outcome(None, "no verdict within 1.5 s")
    assert time.monotonic() - started < 10  # its child sleeps for 300 s and holds the pipe
    assert gone((tmp_path / "children").read_text())
    assert verifier("a", "a") == Outcome(1)


def test_a_checker_that_dies_leaves_no_child(
    load: Callable[..., Verifier], tmp_path: Path
) -> None:
    verifier = load()
    started = time.monotonic()
    outcome = verifier("fork_die", str(tmp_path / "children"))
    assert outcome == Outcome(None, "the verifier's process ended")
    assert time.monotonic() - started < 10
    assert gone((tmp_path / "children").read_text())


@pytest.mark.parametrize("how", ["daemon", "daemon_die"])
def test_a_daemon_ends_with_its_checker(
    load: Callable[..., Verifier], tmp_path: Path, how: str
) -> None:
    verifier = load()
    outcome = verifier(how, str(tmp_path / "children"))
    assert outcome == (Outcome(1) if how == "daemon" else
                       Outcome(None, "the verifier's process ended"))  # fmt: skip
    verifier.close()
    assert not alive((tmp_path / "children").read_text())


def test_what_a_checker_started_ends_before_the_worker_that_could_end_it_too(
    load: Callable[..., Verifier], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A runner killed between the two would leave the daemon, for good.
    verifier, children, seen = load(), tmp_path / "children", []
    assert verifier("daemon", str(children)) == Outcome(1)
    assert alive(children.read_text())

    def end(leader: int) -> None:
        seen.append(alive(children.read_text()))
        end_tree(leader)

    monkeypatch.setattr(worker, "end_tree", end)
    verifier.close()
    assert seen == [[]]


@pytest.mark.parametrize("how", ["fork", "daemon"])
def test_a_checker_ends_with_a_runner_that_is_killed(
    file: Path, tmp_path: Path, how: str
) -> None:
    code = (
        "import sys, time; from isocompute.verifiers import load_verifier; "
        f"load_verifier(sys.argv[1], timeout_s=100)({how!r}, sys.argv[2]); time.sleep(100)"
    )
    children = tmp_path / "children"
    runner = subprocess.Popen([sys.executable, "-c", code, f"{file}:check", str(children)])
    deadline = time.monotonic() + 60
    while not children.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert gone(children.read_text())


SURPLUS = "the verifier's process wrote a line that answers no question"


@pytest.mark.parametrize(
    ("word", "errors"),
    [
        ("forge", {SURPLUS, "the verifier's process wrote more than one line for one question"}),
        ("garbage", {SURPLUS}),
        ("nested", {SURPLUS}),
        ("flood", {"the verifier's process wrote more than a verdict"}),
        ("closed", {"the verifier's process ended"}),
    ],
)
def test_a_line_that_answers_no_question_is_an_error(
    load: Callable[..., Verifier], word: str, errors: set[str]
) -> None:
    verifier = load()
    outcome = verifier(word, "1")
    assert outcome.reward is None
    assert outcome.error in errors
    for response, reward in (("a", 0), ("1", 1), ("b", 0), ("1", 1)):  # nothing is shifted
        assert verifier(response, "1") == Outcome(reward)


def test_a_line_that_comes_late_ends_the_worker(load: Callable[..., Verifier]) -> None:
    verifier = load()
    assert verifier("later", "1") == Outcome(0)
    time.sleep(0.8)
    assert verifier("0", "1") == Outcome(None, SURPLUS)
    assert verifier("0", "1") == Outcome(0)


def test_a_copy_that_comes_back_has_no_say(load: Callable[..., Verifier]) -> None:
    verifier = load()
    for _ in range(20):
        assert verifier("fork_back", "1") == Outcome(1)
        assert verifier("a", "b") == Outcome(0)


@pytest.mark.heavy
def test_a_checker_that_reads_nothing_does_not_block_a_long_question(
    load: Callable[..., Verifier],
) -> None:
    verifier = load(1.0)
    assert verifier("stop", "1").error == "no verdict within 1 s"
    verifier._ensure_started()  # type: ignore[attr-defined]
    os.kill(verifier._process.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
    started = time.monotonic()
    assert verifier("x" * 3_000_000, "1").error == "no verdict within 1 s"
    assert time.monotonic() - started < 10
    assert load()("y" * 3_000_000, "y" * 3_000_000) == Outcome(1)  # written in parts


def test_memory_of_what_a_checker_started_counts(
    load: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISOCOMPUTE_VERIFIER_GB", "0.3")
    verifier, started = load(), time.monotonic()
    assert verifier("memory", "") == Outcome(None, "the verifier's process held more than 0.3 GB")
    assert time.monotonic() - started < 15
    for wrong in ("0", "much", "nan"):
        monkeypatch.setenv("ISOCOMPUTE_VERIFIER_GB", wrong)
        with pytest.raises(InputError, match=f"must be a number > 0, but got '{wrong}'"):
            load()


@pytest.mark.heavy
def test_memory_that_grows_between_questions_counts(
    load: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISOCOMPUTE_VERIFIER_GB", "0.3")
    monkeypatch.setattr("isocompute.verifiers.worker._LOOK_S", 60.0)  # no answer takes so long
    verifier = load()
    full = Outcome(None, "the verifier's process held more than 0.3 GB")
    assert any(verifier("leak", "") == full for _ in range(300))  # each is answered in 0.02 s


def test_a_checker_gets_no_secret_of_the_environment(
    load: Callable[..., Verifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUDGE_API_KEY", "HF_TOKEN", "DATABASE_URL", "PLAIN_WORD"):
        monkeypatch.setenv(name, "postgres://me:hunter22@host/db")
    monkeypatch.setenv("PLAIN_WORD", "plain")
    verifier = load()
    seen = {n: verifier("environment", n).reward
            for n in ("JUDGE_API_KEY", "HF_TOKEN", "DATABASE_URL", "PLAIN_WORD")}  # fmt: skip
    assert seen == {"JUDGE_API_KEY": 0, "HF_TOKEN": 0, "DATABASE_URL": 0, "PLAIN_WORD": 1}
    monkeypatch.setenv("ISOCOMPUTE_VERIFIER_ENV", "JUDGE_API_KEY,DATABASE_URL")
    other = load()
    assert [other("environment", n).reward for n in seen] == [1, 0, 1, 1]


def test_a_tree_is_a_process_and_what_it_started() -> None:
    code = "import os, time; b = bytearray(50_000_000); os.fork(); os.fork(); time.sleep(300)"
    root = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 30
    while len(tree_of(root.pid)) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    tree = tree_of(root.pid)
    assert tree[0] == root.pid
    assert len(tree) == 4
    assert 50e6 < (memory_bytes(root.pid) or 0) < 120e6  # the shared block counts once
    assert not has_ended(root.pid)
    end_tree(root.pid)
    root.wait(timeout=30)
    assert has_ended(root.pid)
    assert gone(" ".join(map(str, tree)))
    assert memory_bytes(root.pid) is None
