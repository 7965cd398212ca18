"""Commands as processes of their own, and what is to be told of how each ended."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

BAD = ("silent", "raw", "hung", "stuck")
VERDICTS = ("right", "refused", *BAD)
LIMIT_S = 240.0  # of wall time for anything: the machine may be ten times overloaded
MOST_BYTES = 3 << 30  # a command that holds more is ended: the machine may be shared
MARK = "ISOCOMPUTE_ATTACK"  # an environment variable that all of a trial's processes inherit
SOURCE = Path(__file__).parents[2] / "src"
_LOOK_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How one trial ended: one of `VERDICTS`, and what was seen."""

    verdict: str
    seen: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """One command that has ended; `code` is None where it passed the limit of time."""

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str
    wall_s: float
    cpu_s: float
    peak_bytes: int

    def fault(self) -> Verdict | None:
        """What no command may do, whatever it was given."""
        if self.code is None:
            used = f"{self.wall_s:.0f} s with {self.peak_bytes / 1e9:.1f} GB"
            return Verdict(verdict="hung", seen=f"ended after {used}: {self.tail()}")
        text = self.out + self.err
        if "Traceback (most recent" in text or "this is a fault of isocompute" in text:
            return Verdict(verdict="raw", seen=self.tail())
        if self.code < 0:
            return Verdict(verdict="raw", seen=f"died with signal {-self.code}: {self.tail()}")
        return None

    def refusal(self) -> Verdict:
        """That it refused in one line; anything else is bad."""
        if fault := self.fault():
            return fault
        # Notes and progress may come before it, and failed runs say so in a line each.
        said = [line for line in self.err.splitlines()[-1:] if line.startswith("isocompute: ")]
        if self.code == 0:
            return Verdict(verdict="silent", seen=f"accepted: {self.tail()}")
        if not said:
            return Verdict(verdict="raw", seen=f"exit {self.code}, not one line: {self.tail()}")
        return Verdict(verdict="refused", seen=said[0][12:])

    def tail(self) -> str:
        """The end of what it wrote."""
        return " | ".join((self.out + self.err).splitlines()[-4:])[-500:]


def environment(mark: str = "", **more: str) -> dict[str, str]:
    """That of a trial."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", MARK: mark, **more}


def command(*words: str) -> list[str]:
    """An isocompute command as a list of words."""
    return [sys.executable, "-m", "isocompute", *words]


def call(
    *words: str, cwd: Path, mark: str = "", limit_s: float = LIMIT_S,
    during: Callable[[int], None] | None = None, **more: str,
) -> Call:
    """Run one isocompute command to its end; `during` is called with its number meanwhile."""
    return call_program(command(*words), cwd=cwd, mark=mark, limit_s=limit_s, during=during, **more)


def call_program(
    program: Sequence[str], *, cwd: Path, mark: str = "", limit_s: float = LIMIT_S,
    during: Callable[[int], None] | None = None, **more: str,
) -> Call:
    """Run any program to its end, or to the limit, at which all that it started is killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        process = subprocess.Popen(
            program, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True, env=environment(mark, **more),
        )  # fmt: skip
        code: int | None = None
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                process.returncode = code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() - began > limit_s or _resident(process.pid) > MOST_BYTES:
                kill_tree(process.pid)
                _, _, usage = os.wait4(process.pid, 0)
                process.returncode = -signal.SIGKILL
                break
            if during is not None:
                during(process.pid)
            else:
                time.sleep(_LOOK_S)
        wall_s = time.monotonic() - began
        texts = [(f.seek(0), f.read(1 << 20).decode("utf-8", "replace"))[1] for f in (out, err)]
    return Call(
        words=tuple(program), code=code, out=texts[0], err=texts[1], wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime, peak_bytes=usage.ru_maxrss * 1024,
    )  # fmt: skip


def _resident(process: int) -> int:
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def children(root: int) -> list[int]:
    """All descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_text("utf-8", "replace")
                parent = int(fields.rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry))
    found = list(parents.get(root, []))
    for process in found:
        found += parents.get(process, [])
    return found


def kill_tree(root: int) -> None:
    """SIGKILL for a process and all that it started."""
    for process in [root, *children(root)]:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def left_behind(mark: str, grace_s: float = 5.0) -> list[str]:
    """Processes of a trial that still live after a while; they are killed."""
    wanted = f"{MARK}={mark}".encode()
    until = time.monotonic() + grace_s
    while True:
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
                    found.append((int(entry), line.decode("utf-8", "replace")[:120]))
        if not found or time.monotonic() > until:
            break
        time.sleep(0.1)
    for process, _ in found:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    return [line for _, line in found]


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder (or one file), by name."""
    if folder.is_file():
        return {"": folder.read_bytes()}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def weights(study: Path) -> dict[str, str]:
    """The newest checkpoint of each run, as a hash of its files."""
    found = {}
    for run in sorted((study / "checkpoints").iterdir()):
        newest = max(run.iterdir(), key=lambda p: tuple(int(part) for part in p.name.split("-")))
        digest = hashlib.sha256()
        for name, data in content(newest).items():
            digest.update(name.encode() + b"\0" + data)
        found[run.name] = digest.hexdigest()
    return found


def difference(right: dict[str, bytes], got: dict[str, bytes]) -> str:
    """The first file and line in which two exports differ; empty if none."""
    if right.keys() != got.keys():
        return f"files {sorted(right)} but got {sorted(got)}"
    for name, data in right.items():
        if data != got[name]:
            pairs = zip(data.splitlines(), got[name].splitlines(), strict=False)
            unlike = next((pair for pair in pairs if pair[0] != pair[1]), (b"length", b"length"))
            return f"{name}: {unlike[0][:150]!r} became {unlike[1][:150]!r}"
    return ""
