"""Trainers in processes of their own: started, watched, stopped with everything they started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from isocompute.errors import NotInstalledError, RunError

_STOP_S = 30.0  # between SIGTERM and SIGKILL
_TAIL_BYTES = 4_000
_LOOK_S, _LACKS = 120.0, 77  # a cold network disk takes tens of seconds; an exit code of nobody's
_RAY_S = 120.0  # one call of the ray command line, and a cluster's start
_LATER, _PAUSE_S = "try again later", 2.0  # says a cluster without an agent yet
_RAY_WORDS = 1_000  # characters of what Ray says: its cure stands at the end
# Its standard input ends when whoever started it is gone, however that one died.
_GUARD = "import os, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), 9)"


RAY_TOKEN = (
    "a cluster that was started with a token wants it from whoever comes: set RAY_AUTH_MODE=token "
    "and put its token into RAY_AUTH_TOKEN or ~/.ray/auth_token"
)


def ray_authentication() -> dict[str, str]:
    """What a client of a Ray cluster adds to its environment: the token's use, if there is one.

    From Ray 2.60 on `ray start --head` asks for the token that it finds, but clients do not show
    it by themselves. A cluster without a token takes a client that has one.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return {}
    given = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    with contextlib.suppress(OSError, RuntimeError):  # a home folder that cannot be read, or none
        given = given or (Path.home() / ".ray" / "auth_token").is_file()
    return {"RAY_AUTH_MODE": "token"} if given else {}


def ray_words(text: str) -> str:
    """What Ray says, printable and in one line."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "?" for c in line)[:_RAY_WORDS].rstrip(" .;")


def check_module(
    name: str, python: str, environment: Mapping[str, str | None] | None = None
) -> None:
    """Ask a Python whether it has a trainer, without importing it.

    Raises:
        NotInstalledError: if that Python does not start, or lacks the module.
    """
    code = f"import importlib.util as u, sys; sys.exit({_LACKS} * (u.find_spec({name!r}) is None))"
    try:
        done = subprocess.run(
            [python, "-c", code], cwd=tempfile.gettempdir(), capture_output=True, check=False,
            timeout=_LOOK_S, stdin=subprocess.DEVNULL, env=changed_environment(environment or {}),
        )  # fmt: skip
    except OSError as error:
        raise NotInstalledError(
            f"engine_options.python must be a Python that has {name}, but {python!r} gives "
            f"{error.strerror}; correct it."
        ) from error
    except subprocess.TimeoutExpired:
        return  # whatever is wrong with that Python, its start will say
    if done.returncode == _LACKS:
        raise NotInstalledError(
            f"{name} must be installed in the Python that trains, but {python} does not have it; "
            "set engine_options.python=/path/to/bin/python, or install it there."
        )


class Job(Protocol):
    """A trainer at work."""

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""

    def stop(self) -> None:
        """End it and whatever it started."""

    def tail(self) -> str:
        """The end of what it printed, for a message."""


@contextlib.contextmanager
def guarded(group: int) -> Iterator[None]:
    """Within this context a process group dies with this process, be it by SIGKILL.

    A trainer whose runner is gone would go on, and hold the GPU that the next attempt needs.
    """
    guard = subprocess.Popen(
        [sys.executable, "-S", "-c", _GUARD, str(group)], stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        assert guard.stdin is not None
        guard.stdin.close()


def changed_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with changes; None takes a variable away."""
    return {k: v for k, v in {**os.environ, **changes}.items() if v is not None}


class LocalJob:
    """A command on this machine, in a process group of its own that dies with this process.

    Args:
        command: program and arguments.
        log: file that takes everything it prints.
        environment: added to this process's; None takes a variable away.
        folder: where it runs.

    Raises:
        RunError: if the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str | None],
        folder: Path,
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            try:
                self.process = subprocess.Popen(
                    list(command), stdout=output, stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True,
                    env=changed_environment(environment),
                )  # fmt: skip
            except OSError as error:
                raise RunError(
                    f"a trainer must start, but {command[0]!r} gives {error.strerror}; check "
                    "engine_options.python."
                ) from error
        self.guard = contextlib.ExitStack()
        self.guard.enter_context(guarded(self.process.pid))

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""
        code = self.process.poll()
        if code is not None:
            self.guard.close()
        return code

    def stop(self) -> None:
        """SIGTERM to the whole group, SIGKILL after half a minute."""
        for signum, wait_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
            if self.process.poll() is not None and signum == signal.SIGTERM:
                break
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(wait_s)
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # what the trainer left behind
        self.guard.close()

    def tail(self) -> str:
        """The last lines of the log."""
        return tail_of(self.log)


class RayJob:
    """A command submitted to a Ray cluster with `ray job submit`.

    Args:
        command: program and arguments, as the cluster sees them.
        address: of the cluster's dashboard, `http://HEAD:8265`.
        name: submission id; unique on the cluster.
        log: file that takes the job's log.
        environment: of the job.
        earlier: submission ids to stop first: of attempts whose runner is gone, with which the
            cluster would go on.

    Raises:
        RunError: if the cluster does not take it.
    """

    def __init__(
        self, command: Sequence[str], *, address: str, name: str, log: Path,
        environment: Mapping[str, str], earlier: Sequence[str] = (),
    ) -> None:
        self.address, self.name, self.log = address, name, log
        for old in earlier:
            with contextlib.suppress(RunError):  # it has ended, or the cluster forgot it
                self._call("stop", old)
        self._call(
            "submit", "--no-wait", "--submission-id", name,
            "--runtime-env-json", json.dumps({"env_vars": dict(environment)}), "--", *command,
        )

    def poll(self) -> int | None:
        """0 or 1 once the cluster says that it ended, None while it runs."""
        text = self._call("status", self.name).upper()
        if "SUCCEEDED" in text:
            return 0
        return 1 if "FAILED" in text or "STOPPED" in text else None

    def stop(self) -> None:
        """Ask the cluster to stop it."""
        with contextlib.suppress(RunError):
            self._call("stop", self.name)

    def tail(self) -> str:
        """The last lines of its log."""
        with contextlib.suppress(RunError):
            self.log.write_text(self._call("logs", self.name), encoding="utf-8")
        return tail_of(self.log)

    def _call(self, verb: str, *arguments: str) -> str:
        """What Ray answers; of a cluster that is still starting, once it has started."""
        until = time.monotonic() + _RAY_S
        while True:
            try:
                return self._ask(verb, *arguments)
            except RunError as error:
                again = time.monotonic() + _PAUSE_S
                if _LATER not in str(error).lower() or again > until:
                    raise
            wait_until(again)

    def _ask(self, verb: str, *arguments: str) -> str:
        command = ["ray", "job", verb, f"--address={self.address}", *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_RAY_S, check=False,
                env={**os.environ, **ray_authentication()},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunError(
                f"`ray job {verb}` must answer within {_RAY_S:g} s, but gives {error}; check the "
                "cluster's address and that ray is installed."
            ) from error
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
            words = ray_words(last[0])
            cure = RAY_TOKEN if "auth" in words.lower() else "check the cluster"
            raise RunError(
                f"`ray job {verb}` must succeed at {self.address}, but says: {words}; {cure}."
            )
        return done.stdout + done.stderr


def tail_of(log: Path) -> str:
    """The last lines of a file, printable, or why there are none."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = handle.read().decode("utf-8", "replace")
    except OSError as error:
        return f"no log ({error.strerror})"
    lines = [line for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-4:])[-600:] or "an empty log"


def wait_until(moment: float) -> None:
    """Sleep until a moment of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))
