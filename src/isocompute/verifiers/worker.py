"""Checkers that may crash or hang, in a process of their own that can be killed.

The parent writes one JSON line per question to the worker's standard input and reads one JSON
line back. The worker is this file run as a program: a fresh interpreter, so that a user's script
needs no main guard and no torch state is copied.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import IO, Any

from isocompute.errors import InputError
from isocompute.verifiers import Outcome


class WorkerVerifier:
    """A verifier whose rule runs in a killable process.

    Args:
        spec: what `load_verifier` was given.
        target: "math", or absolute path and name of a function, `FILE:FUNCTION`.
        timeout_s: seconds for one judgement; then the worker is killed and the outcome is an
            error. The next judgement starts a new worker.
        start_timeout_s: seconds for starting, which imports the checker.
    """

    def __init__(
        self, spec: str, *, target: str, timeout_s: float, start_timeout_s: float
    ) -> None:
        self.spec = spec
        self.timeout_s = timeout_s
        self._target = target
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._owner = 0
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
        if reply.get("reward") in (0, 1):
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
        if process is not None and self._owner == os.getpid() and process.poll() is None:
            return None
        # After a fork the pipes belong to the parent: leave them alone, start another worker.
        self._process, self._owner = None, os.getpid()
        self._replies = queue.SimpleQueue()
        # -P keeps the current folder off the module path: a file named `queue.py` in it would
        # otherwise stand in for the standard library's.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "isocompute.verifiers.worker", self._target],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, encoding="utf-8", start_new_session=True,
        )
        self._process = process
        weakref.finalize(self, _end, process, os.getpid())
        assert process.stdout is not None
        threading.Thread(
            target=_collect, args=(process.stdout, self._replies), daemon=True
        ).start()
        reply = self._receive(self._start_timeout_s)
        if reply.get("ready"):
            return None
        self._kill()
        return str(reply["error"])

    def _ask(self, question: dict[str, str], timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:
            self._kill()
            return {"error": "the verifier's process ended"}
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            self._kill()
            return {"error": f"no verdict within {timeout_s:g} s"}
        if line is None:
            self._kill()
            return {"error": "the verifier's process ended"}
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            _end(process, self._owner)


def _end(process: subprocess.Popen[str], owner: int) -> None:
    """Kill a worker and collect it; only the process that started it may do so."""
    if owner != os.getpid():
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _collect(pipe: IO[str], replies: queue.SimpleQueue[str | None]) -> None:
    """Move a worker's lines into a queue; None when it has ended."""
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            replies.put(line)
    replies.put(None)


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
    """One verdict: {"reward": 0 or 1}, or {"error": reason}."""
    question = json.loads(line)
    try:
        value = rule(question["response"], question["answer"])
        if value in (0, 1):  # True, 1.0 and NumPy's scalars included
            return {"reward": int(value)}
        return {"error": f"a verifier must return 0 or 1, but returned {value!r}"[:300]}
    except BaseException as error:  # noqa: BLE001 - the checker is foreign code: all of it counts
        return {"error": f"{type(error).__name__}: {error}".replace("\n", " ")[:300]}


def main() -> None:
    """Read questions until the parent closes the pipe."""
    # What the checker prints must not mix with the verdicts.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    source = os.fdopen(os.dup(0), "r", encoding="utf-8")
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    def read() -> None:
        for line in source:
            lines.put(line)
        os._exit(0)  # the parent is gone, even if a checker hangs

    try:
        rule = load_rule(sys.argv[1])
    except BaseException as error:  # noqa: BLE001 - importing a user's file may raise anything
        reply({"error": f"{type(error).__name__}: {error}".replace("\n", " ")[:300]})
        return
    threading.Thread(target=read, daemon=True).start()
    reply({"ready": True})
    while True:
        reply(answer_question(rule, lines.get()))


if __name__ == "__main__":
    main()
