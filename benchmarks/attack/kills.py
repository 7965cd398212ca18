"""SIGKILL at times spread evenly over the life of a study, from the first millisecond on."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import shutil
import signal
import time
from pathlib import Path

from attack import ground
from attack.process import (
    Verdict,
    call,
    call_program,
    children,
    command,
    content,
    difference,
    left_behind,
    weights,
)  # fmt: skip

WHO = ("all", "all", "runner", "worker")


def life(folder: Path, kind: str) -> tuple[float, float]:
    """Seconds of run and export undisturbed, and after how many of them study.db appears."""
    work, seen = folder / "life", [0.0]
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder / "ground" / f"start-{kind}", work)
    began = time.monotonic()

    def look(_: int) -> None:
        if not seen[0] and (work / "study" / "study.db").exists():
            seen[0] = time.monotonic() - began
        time.sleep(0.005)

    ended = ground.expect(call_program(_whole(), cwd=work, during=look))
    shutil.rmtree(work)
    return ended.wall_s, seen[0]


def _whole() -> list[str]:
    run, export = (shlex.join(command(*words)) for words in (ground.RUN, ground.EXPORT))
    return ["sh", "-c", f"{run} && {export}"]


def trial(
    folder: Path, number: int, of: int, rng: random.Random, lives: dict[str, tuple[float, float]]
) -> tuple[str, Verdict]:
    """One life cut short, once or more often, and then lived to its end."""
    kind = "trained" if number % 16 == 5 else "simulated"  # torch alone takes seconds
    whole_s, begun_s = lives[kind]
    share = number / of
    # Half of the kills are timed from the start, half from the moment study.db appears.
    late = number % 2 == 1
    delay_s = 0.001 + share * (whole_s - begun_s if late else whole_s)
    who = WHO[number // 2 % 4]
    again = [rng.uniform(0, whole_s) for _ in range(rng.choice((0, 0, 0, 1)))]
    name = (f"{kind}, {who} killed {delay_s:.3f} s after {'study.db' if late else 'the start'}"
            + "".join(f", again after {s:.3f} s" for s in again))  # fmt: skip
    work, mark = folder / "kill", f"kill-{number}-{os.getpid()}"
    right, in_time = folder / "ground" / kind, False
    while not in_time:  # this life may be shorter than the one that was measured
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folder / "ground" / f"start-{kind}", work)
        in_time = _cut(work, mark, delay_s, who, late=late)
        delay_s *= 0.8
    for second_s in again:
        _cut(work, mark, second_s, "all", late=False)
    return name, _verdict(work, right, mark)


def _verdict(work: Path, right: Path, mark: str) -> Verdict:
    for words in (ground.RUN, ground.EXPORT, ("doctor", "study")):
        if words is ground.EXPORT and (work / "books").exists():
            early = content(work / "books")  # a killed export leaves whole files or none
            known = content(right / "books")
            torn = [name for name, data in early.items() if name in known and data != known[name]]
            if torn:
                return Verdict(verdict="silent", seen=f"torn export: {torn}")
        ended = call(*words, cwd=work, mark=mark)
        if fault := ended.fault():
            return fault
        if ended.code != 0:
            return Verdict(verdict="stuck", seen=f"{words[0]}: exit {ended.code}: {ended.tail()}")
    got, known = content(work / "books"), content(right / "books")
    if unlike := difference(known, {name: got[name] for name in got if name in known}):
        return Verdict(verdict="silent", seen=unlike)
    if strange := sorted(set(got) - set(known)):
        return Verdict(verdict="silent", seen=f"left in the export: {strange}")
    if weights(work / "study") != weights(right / "study"):
        return Verdict(verdict="silent", seen="other weights")
    if left := left_behind(mark):
        return Verdict(verdict="hung", seen=f"left behind: {left}")
    return Verdict(verdict="right", seen="")


def _cut(work: Path, mark: str, delay_s: float, who: str, *, late: bool) -> bool:
    """Run and export; after the delay kill all of it, its runner, or one of its workers.

    Returns:
        Whether it was in time.
    """
    began: list[float] = [] if late else [time.monotonic()]
    done: list[bool] = []

    def kill(process: int) -> None:
        if not began and (work / "study" / "study.db").exists():
            began.append(time.monotonic())
        if done or not began or time.monotonic() < began[0] + delay_s:
            time.sleep(0.0005)
            return
        done.append(True)
        below = children(process)
        if who == "all":
            targets = [process, *below]
        elif who == "runner":
            targets = below[:1]
        else:
            targets = below[1:2]
        if not targets:  # what was to be killed is not there yet
            targets = [process, *below]
        for target in targets:
            with contextlib.suppress(OSError):
                os.kill(target, signal.SIGKILL)

    call_program(_whole(), cwd=work, mark=mark, during=kill)
    return bool(done)
