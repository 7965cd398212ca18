"""Checkers that may crash or hang, in a process of their own that can be killed.

The parent writes one JSON line per question to the worker's standard input and reads one JSON
line back, which must bear the question's own nonce: a line that answers no question ends the
worker and counts as an error, so that no verdict is ever taken for another's. The worker is this
file run as a program: a fresh interpreter, so that a user's script needs no main guard and no
torch state is copied. What the checker started ends with it.

That is against accidents. A checker is trusted code: one that means harm reads its nonce.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from isocompute.credentials import without_secrets
from isocompute.errors import InputError
from isocompute.process_tree import end_marked, end_tree, has_ended, memory_bytes
from isocompute.verifiers import Outcome, failed_to_judge

MEMORY_GB = 4.0  # of a checker and what it starts; ISOCOMPUTE_VERIFIER_GB sets another limit
_LOOK_S = 0.1  # between two looks at memory and life, while a verdict is waited for
_BETWEEN_S = 1.0  # between two looks at a checker that answers at once: it costs a few ms
_MARK = "ISOCOMPUTE_CHECKER"  # in the environment of a worker and of all that it starts
_LONGEST = 100_000  # bytes of a reply: a worker's own are shorter than a thousand


class _NoVerdict(Exception):
    """Why a worker is ended without a verdict."""


class WorkerVerifier:
    """A verifier whose rule runs in a killable process.

    It gets this process's environment without what looks like a secret; the names in
    ISOCOMPUTE_VERIFIER_ENV (with commas between) are passed on all the same.

    Args:
        spec: what `load_verifier` was given.
        target: "math", or absolute path and name of a function, `FILE:FUNCTION`.
        timeout_s: seconds for one judgement; then the worker is killed with everything that it
            started, and the outcome is an error. The next judgement starts a new worker.
        start_timeout_s: seconds for starting, which imports the checker.
    """

    def __init__(
        self, spec: str, *, target: str, timeout_s: float, start_timeout_s: float
    ) -> None:
        self.spec = spec
        self.timeout_s = timeout_s
        self._target = target
        self._start_timeout_s = start_timeout_s
        self._memory_gb = _memory_limit()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._at_exit: weakref.finalize[..., Any]
        self._mark = ""
        self._looked = 0.0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the worker and wait until it has imported its checker.

        Raises:
            InputError: if the checker cannot be imported.
        """
        with self._lock:
            fault = self._ensure_started()
        if fault is not None:
            cure = (
                "install it with: pip install 'isocompute[math]'"
                if self._target == "math"
                else "correct the file; it is imported once and the function called per response"
            )
            raise InputError(f"verifier {self.spec!r} must load, but {fault}; {cure}.")

    def __call__(self, response: str, answer: str) -> Outcome:
        """Judge one response; a crash or a hang is an error, not a reward."""
        with self._lock:
            fault = self._ensure_started()
            if fault is not None:
                return Outcome(None, f"verifier {self.spec} did not start: {fault}")
            reply = self._ask({"response": response, "answer": answer}, self.timeout_s)
        if "reward" in reply:
            return Outcome(int(reply["reward"]))
        return Outcome(None, str(reply["error"]))

    def check_answer(self, answer: str) -> str | None:
        """Only emptiness can be told without running the checker."""
        return None if answer.strip() else "the answer must not be empty"

    def close(self) -> None:
        """Kill the worker if there is one."""
        with self._lock:
            self._kill()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "spec": self.spec, "target": self._target, "timeout_s": self.timeout_s,
            "start_timeout_s": self._start_timeout_s,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a copy starts a worker of its own

    def _ensure_started(self) -> str | None:
        """A reason why the worker cannot run, or None where it does."""
        process = self._process
        if process is not None and self._owner == os.getpid():
            if not has_ended(process.pid):
                return None
            self._kill()  # it died between two questions; what it started may live
        # After a fork the pipes belong to the parent: leave them alone, start another worker.
        self._owner = os.getpid()
        nonce = secrets.token_hex(8)
        allowed = os.environ.get("ISOCOMPUTE_VERIFIER_ENV", "").split(",")
        # -P keeps the current folder off the module path: a file named `queue.py` in it would
        # otherwise stand in for the standard library's.
        # The same Python finds the same modules, however this one was told where they are.
        path = {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
        self._mark, self._looked = f"{_MARK}={secrets.token_hex(8)}", time.monotonic()
        mark = dict([self._mark.split("=")])
        process = self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "isocompute.verifiers.worker", self._target, nonce],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            start_new_session=True, env=without_secrets(os.environ, allowed) | path | mark,
        )  # fmt: skip
        self._at_exit = weakref.finalize(self, _end, process, os.getpid(), self._mark)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        reply = self._exchange(b"", nonce, self._start_timeout_s)
        if reply.get("ready"):
            return None
        self._kill()
        return str(reply.get("error"))

    def _ask(self, question: dict[str, str], timeout_s: float) -> dict[str, Any]:
        nonce = secrets.token_hex(8)
        line = json.dumps({**question, "nonce": nonce}).encode() + b"\n"
        reply = self._exchange(line, nonce, timeout_s)
        if reply.get("reward") in (0, 1) or isinstance(reply.get("error"), str):
            return reply
        self._kill()
        return {"error": "the verifier's process wrote a line that is no verdict"}

    def _exchange(self, line: bytes, nonce: str, timeout_s: float) -> dict[str, Any]:
        """Write a line and read the one that answers it; after any fault the worker is gone."""
        try:
            return _reply(self._talk(line, timeout_s), nonce)
        except _NoVerdict as fault:
            self._kill()
            return {"error": str(fault)}

    def _talk(self, line: bytes, timeout_s: float) -> bytes:
        """Write all of a line, read until one has come back; neither waits beyond the limit."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        source, sink = process.stdout.fileno(), process.stdin.fileno()
        if line and _read(source):
            raise _NoVerdict("the verifier's process wrote a line that answers no question")
        if time.monotonic() - self._looked > _BETWEEN_S:
            self._look(process.pid)
        poll = select.poll()
        poll.register(source, select.POLLIN)
        if line:
            poll.register(sink, select.POLLOUT)
        received, deadline = b"", time.monotonic() + timeout_s
        while b"\n" not in received:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise _NoVerdict(f"no verdict within {timeout_s:g} s")
            ready = poll.poll(1000 * min(left_s, _LOOK_S))
            if not ready:
                self._look(process.pid)
            if line and any(descriptor == sink for descriptor, _ in ready):
                line = line[_write(sink, line) :]
                if not line:
                    poll.unregister(sink)
            if any(descriptor == source for descriptor, _ in ready):
                received += _read(source)
            if len(received) > _LONGEST:
                raise _NoVerdict("the verifier's process wrote more than a verdict")
        return received + _read(source, after=True)

    def _look(self, process: int) -> None:
        """While nothing comes, and now and then: is it alive, and how much does it hold?"""
        self._looked = time.monotonic()
        if has_ended(process):  # a process that it started may hold the pipe open
            raise _NoVerdict("the verifier's process ended")
        if (memory_bytes(process) or 0) > self._memory_gb * 1e9:
            raise _NoVerdict(f"the verifier's process held more than {self._memory_gb:g} GB")

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process, self._owner, self._mark)
            self._at_exit.detach()  # a checker that crashes at every response starts thousands


def _memory_limit() -> float:
    text = os.environ.get("ISOCOMPUTE_VERIFIER_GB", "")
    try:
        limit = float(text) if text else MEMORY_GB
    except ValueError:
        limit = 0.0
    if limit > 0:
        return limit
    raise InputError(
        f"ISOCOMPUTE_VERIFIER_GB must be a number > 0, but got {text!r}; correct or unset it."
    )


def _end(process: subprocess.Popen[bytes], owner: int, mark: str) -> None:
    """Kill a worker and what it started, and collect it; only who started it may do so."""
    if owner != os.getpid() or process.returncode is not None:
        return
    # The worker last: if this process is killed half-way, the worker ends what it started.
    end_marked(mark, but=process.pid)
    end_tree(process.pid)
    process.wait()
    end_marked(mark)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _write(descriptor: int, line: bytes) -> int:
    try:
        return os.write(descriptor, line)
    except BlockingIOError:
        return 0
    except OSError:
        raise _NoVerdict("the verifier's process ended") from None


def _read(descriptor: int, *, after: bool = False) -> bytes:
    """What is there now; after a whole line the end of the pipe is none of this question's."""
    try:
        found = os.read(descriptor, 65536)
    except BlockingIOError:
        return b""
    if not found and not after:
        raise _NoVerdict("the verifier's process ended")
    return found


def _reply(received: bytes, nonce: str) -> dict[str, Any]:
    line, _, surplus = received.partition(b"\n")
    if surplus:
        raise _NoVerdict("the verifier's process wrote more than one line for one question")
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict) or reply.pop("nonce", None) != nonce:
        raise _NoVerdict("the verifier's process wrote a line that answers no question")
    return reply


# ---- the worker's side ----


def math_rule() -> Callable[[str, str], object]:
    """Equality by math-verify, with its own time-outs off: the parent's limit holds.

    An answer that cannot be parsed raises; a response that cannot be parsed is wrong.
    """
    import logging

    from math_verify import parse, verify

    logging.disable(logging.WARNING)  # it warns that its own time-out is off

    def rule(response: str, answer: str) -> bool:
        # Bare answers such as `\frac12` are found only inside mathematics delimiters.
        gold = parse(answer, parsing_timeout=0, raise_on_error=True)
        if not gold or all(isinstance(part, str) for part in gold):
            gold = parse(f"${answer}$", parsing_timeout=0, raise_on_error=True) or gold
        if not gold:
            raise ValueError(f"math-verify finds no mathematics in the answer {answer!r}")
        given = parse(response, parsing_timeout=0, raise_on_error=True)
        return bool(verify(gold, given, timeout_seconds=0, raise_on_error=True))

    return rule


def load_rule(target: str) -> Callable[[str, str], object]:
    """The function behind "math" or `FILE:FUNCTION`."""
    if target == "math":
        return math_rule()
    path, _, name = target.rpartition(":")
    spec = importlib.util.spec_from_file_location("isocompute_user_verifier", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, os.path.dirname(path))  # so that it can import the files beside it
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise ImportError(f"{os.path.basename(path)} has no function {name!r}")
    rule: Callable[[str, str], object] = function
    return rule


def answer_question(rule: Callable[[str, str], object], line: str) -> dict[str, Any]:
    """One verdict: {"nonce", "reward": 0 or 1}, or {"nonce", "error": reason}."""
    question = json.loads(line)
    nonce = {"nonce": question.get("nonce", "")}
    try:
        value = rule(question["response"], question["answer"])
        if value in (0, 1):  # True, 1.0 and NumPy's scalars included
            return {**nonce, "reward": int(value)}
        return {**nonce, "error": f"a verifier must return 0 or 1, but returned {value!r}"[:300]}
    except BaseException as error:  # noqa: BLE001 - the checker is foreign code: all of it counts
        return {**nonce, "error": failed_to_judge(error).error}


def main() -> None:
    """Read questions until the parent closes the pipe."""
    own, mark = os.getpid(), f"{_MARK}={os.environ.get(_MARK)}"
    # What the checker prints must not mix with the verdicts.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    source = os.fdopen(os.dup(0), "r", encoding="utf-8")
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)

    def reply(message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: `read` sees it and ends all
            replies.write(json.dumps(message) + "\n")
            replies.flush()

    def read() -> None:
        for line in source:
            lines.put(line)
        end_marked(mark)
        if os.getpgrp() == own:  # the parent is gone: so must all be that a checker started
            os.killpg(own, signal.SIGKILL)
        os._exit(0)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    nonce = {"nonce": sys.argv[2]}
    try:
        rule = load_rule(sys.argv[1])
        ready = {**nonce, "ready": True}
    except BaseException as error:  # noqa: BLE001 - importing a user's file may raise anything
        ready = {**nonce, "error": failed_to_judge(error).error}
    if os.getpid() != own:  # importing has forked, and this is the copy
        os._exit(0)
    reply(ready)
    while "ready" in ready:
        verdict = answer_question(rule, lines.get())
        if os.getpid() != own:  # the checker has forked, and this is the copy that came back
            os._exit(0)
        reply(verdict)
    reader.join()  # whoever leaves first would leave the checker's daemons behind


if __name__ == "__main__":
    main()
