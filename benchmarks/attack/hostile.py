"""A checker of answers that misbehaves; `judge` is what a study names.

A copy of this file lies in each trial's folder as check.py, beside a file NAME that says which
attack it carries out and on which share of the responses (`fork_returns 8`: one of 8). SIGSTOP to
the process that asks is left out: a stopped process cannot say anything.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import gc
import json
import locale
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ATTACKS: dict[str, Callable[[bool], Any]] = {}
AT_IMPORT: dict[str, Callable[[], None]] = {}
held: list[Any] = []  # what an attack leaves behind on purpose


def attack(function: Callable[[bool], Any]) -> Callable[[bool], Any]:
    ATTACKS[function.__name__] = function
    return function


def at_import(function: Callable[[], None]) -> Callable[[], None]:
    AT_IMPORT[function.__name__] = function
    return function


def plain(response: str, answer: str) -> bool:
    """Hexadecimal texts that agree in 20 bits of 32."""
    try:
        given, right = int(response, 16), int(answer, 16)
    except ValueError:
        return False
    return len(response) == len(answer) and 4 * len(answer) - (given ^ right).bit_count() >= 20


def descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]


def everywhere(data: bytes) -> None:
    for descriptor in [1, 2, *descriptors()]:
        try:
            os.set_blocking(descriptor, False)
            os.write(descriptor, data)
        except OSError:
            continue


def daemonise(seconds: float) -> None:
    """A grandchild in a session of its own that no longer has a parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(seconds)
        os._exit(0)
    os.wait()


@attack
def fork_returns(right: bool) -> Any:
    return right if os.fork() else not right


@attack
def fork_child_returns_parent_sleeps(right: bool) -> Any:
    if os.fork():
        time.sleep(60)
    return not right


@attack
def fork_child_writes_late(right: bool) -> Any:
    if os.fork() == 0:
        time.sleep(0.3)
        everywhere(b'{"reward": 1}\n')
        os._exit(0)
    return right


@attack
def verdicts_everywhere(right: bool) -> Any:
    everywhere(b'{"reward": 1}\n')
    return right


@attack
def garbage_everywhere(right: bool) -> Any:
    everywhere(os.urandom(3000) + b"\n")
    return right


@attack
def half_a_line_everywhere(right: bool) -> Any:
    everywhere(b'{"nonce": "')
    return right


@attack
def prints(right: bool) -> Any:
    print('{"reward": 1}', flush=True)
    print("x" * 200_000, file=sys.stderr, flush=True)
    os.system("echo hello; echo world >&2")
    return right


@attack
def prints_endlessly(_: bool) -> Any:
    while True:
        print("y" * 10_000)


@attack
def sleeps(right: bool) -> Any:
    time.sleep(60)
    return right


@attack
def spins_deaf(right: bool) -> Any:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pass
    return right


@attack
def stops_itself(right: bool) -> Any:
    os.kill(os.getpid(), signal.SIGSTOP)
    return right


@attack
def exits(_: bool) -> Any:
    sys.exit(0)


@attack
def exits_at_once(_: bool) -> Any:
    os._exit(0)


@attack
def aborts(_: bool) -> Any:
    os.abort()


@attack
def reads_address_zero(_: bool) -> Any:
    ctypes.string_at(0)


@attack
def terminates_parent(right: bool) -> Any:
    os.kill(os.getppid(), signal.SIGTERM)
    return right


@attack
def interrupts_parent(right: bool) -> Any:
    os.kill(os.getppid(), signal.SIGINT)
    return right


@attack
def kills_parent(right: bool) -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    return right


@attack
def kills_own_group(right: bool) -> Any:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    return right


@attack
def huge_value(_: bool) -> Any:
    return "1" * 300_000_000


@attack
def huge_error(_: bool) -> Any:
    raise ValueError("e\n" * 50_000_000)


@attack
def recursion(right: bool) -> Any:
    sys.setrecursionlimit(10**9)

    def deeper(depth: int) -> int:
        return deeper(depth + 1) + len(repr([depth]))

    return right if deeper(0) else None


@attack
def memory_at_once(right: bool) -> Any:
    held.append(bytearray(2_000_000_000))
    return right


@attack
def memory_in_child(right: bool) -> Any:
    child = subprocess.Popen([
        sys.executable, "-c", "import time; x = bytearray(b'1') * 2_000_000_000; time.sleep(30)"
    ])  # fmt: skip
    child.wait()
    return right


@attack
def memory_by_and_by(right: bool) -> Any:
    """A leak between questions, each answered at once; the cap keeps the machine out of it."""
    resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, 6_000_000_000))
    held.append(bytearray(b"1") * 150_000_000)
    return right


@attack
def returns_nan(_: bool) -> Any:
    return float("nan")


@attack
def returns_infinity(_: bool) -> Any:
    return float("inf")


@attack
def returns_text(right: bool) -> Any:
    return str(int(right))


@attack
def returns_none(_: bool) -> Any:
    return None


@attack
def returns_two(_: bool) -> Any:
    return 2.0


@attack
def returns_bool(right: bool) -> Any:
    return right


@attack
def returns_half(_: bool) -> Any:
    return 0.5


class EqualToAll:
    """A verdict that equals 0 and 1."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 7


@attack
def returns_equal_to_all(_: bool) -> Any:
    return EqualToAll()


class Unspeakable(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@attack
def raises_unspeakable(_: bool) -> Any:
    raise Unspeakable


@attack
def returns_unspeakable(_: bool) -> Any:
    return Unspeakable()


@attack
def raises_surrogate(_: bool) -> Any:
    raise ValueError("\ud800\x00\x1b[2J\r\n")


@attack
def threads_stay(right: bool) -> Any:
    for _ in range(20):
        threading.Thread(target=time.sleep, args=(60,)).start()
    return right


@attack
def thread_writes(right: bool) -> Any:
    threading.Timer(0.05, everywhere, [b'{"nonce": "0", "reward": 1}\n']).start()
    return right


@attack
def thread_reads_questions(right: bool) -> Any:
    def steal() -> None:
        for descriptor in descriptors():
            try:
                os.read(descriptor, 1)
            except OSError:
                continue

    threading.Thread(target=steal, daemon=True).start()
    time.sleep(0.05)
    return right


@attack
def changes_everything(right: bool) -> Any:
    os.chdir("/")
    os.environ.clear()
    os.umask(0o777)
    locale.setlocale(locale.LC_ALL, "C")
    sys.path.clear()
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    sys.stdin.close()
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    return right


@attack
def no_more_files(right: bool) -> Any:
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return right


@attack
def closes_all(right: bool) -> Any:
    os.closerange(0, 256)
    return right


@attack
def points_all_elsewhere(right: bool) -> Any:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors():
        os.dup2(null, descriptor)
    return right


@attack
def breaks_builtins(right: bool) -> Any:
    for name in ("print", "open", "len", "isinstance", "str", "int", "repr", "getattr"):
        setattr(builtins, name, None)
    return right


@attack
def breaks_json(right: bool) -> Any:
    json.dumps = json.loads = lambda *_, **__: "{}"  # type: ignore[assignment]
    return right


@attack
def atexit_hangs(right: bool) -> Any:
    atexit.register(time.sleep, 60)
    atexit.register(os.system, "sleep 60 &")
    gc.callbacks.append(lambda *_: None)
    return right


@attack
def child_stays(right: bool) -> Any:
    held.append(subprocess.Popen(["sleep", "300"]))
    return right


@attack
def daemon_stays(right: bool) -> Any:
    daemonise(300)
    return right


@attack
def daemon_and_exit(_: bool) -> Any:
    daemonise(300)
    os._exit(1)


@attack
def daemon_and_hang(right: bool) -> Any:
    daemonise(300)
    time.sleep(60)
    return right


@attack
def multiprocessing_pool(right: bool) -> Any:
    pool = multiprocessing.get_context("fork").Pool(2)
    held.append(pool)
    return bool(pool.apply(bool, (right,)))


@attack
def new_session(right: bool) -> Any:
    """The checker leaves its process group, with a child that holds its pipes."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(300)
    time.sleep(60)
    return right


@at_import
def import_prints() -> None:
    everywhere(b'{"ready": true}\n')


@at_import
def import_forks() -> None:
    os.fork()


@at_import
def import_hangs() -> None:
    time.sleep(600)


@at_import
def import_exits() -> None:
    os._exit(0)


@at_import
def import_raises_unspeakable() -> None:
    raise Unspeakable


@at_import
def import_daemon() -> None:
    daemonise(300)


def judge(response: str, answer: str) -> Any:
    right = plain(response, answer)
    if NAME in ATTACKS and zlib.crc32(f"{response} {answer}".encode()) % EVERY == 0:
        return ATTACKS[NAME](right)
    return right


_which = Path(__file__).with_name("NAME")
NAME, EVERY = "", 1
if _which.exists():
    NAME, _, _every = _which.read_text().partition(" ")
    EVERY = int(_every)
    if NAME in AT_IMPORT:
        AT_IMPORT[NAME]()
