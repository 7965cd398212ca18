"""Runs small studies by the command line in forked children that die at a chosen system call.

Started with the shim preloaded. Reads one JSON command per line ({"folder", "at", "tear",
"errno"}), answers one JSON line ({"status", "count", "message"}).

With --tree, a folder starts a runner with two worker processes in a process group of its own and
is answered with its number; "wait" is answered with its exit code, negative for a signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import sys
from dataclasses import replace

import isocompute.runner
import isocompute.runner.run
from isocompute.cli import main as command
from study_helpers import FAST, small_study


def crash_study():
    """Two runs, two slices, an evaluation per octave: some hundreds of system calls."""
    return small_study(ns=(2, 4), rollouts=96, engine="odd", options={"fault": "counted"}, first=32)


def tree_study():
    """Four runs on two workers."""
    return small_study(
        ns=(2, 4), seeds=(0, 1), rollouts=4096, engine="odd", options={"fault": "counted"}
    )


def run(study, folder, workers, settings):
    """`isocompute run` of a study and settings that no file holds; its exit code."""
    isocompute.runner.open_study = lambda *_: study
    isocompute.runner.run.Settings = lambda: settings
    words = ["--workers", str(workers), "--calibrate", "0"]
    with contextlib.redirect_stdout(io.StringIO()):
        return command(["run", "study.yaml", "-o", folder, *words])


def serve_trees():
    tree_study()
    process = 0
    for line in sys.stdin:
        word = line.strip()
        if word == "wait":
            print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
            continue
        process = os.fork()
        if process == 0:
            os.setpgid(0, 0)
            os._exit(run(tree_study(), word, 2, FAST))
        with contextlib.suppress(PermissionError):  # the child may have come first
            os.setpgid(process, process)
        print(process, flush=True)


def child(request, shim, answer):
    shim.crash_arm(os.fsencode(request["folder"]), request["at"], request["tear"], request["errno"])
    said = io.StringIO()
    # No heartbeat but the first: the number of system calls must not depend on time.
    with contextlib.redirect_stderr(said):
        code = run(crash_study(), request["folder"], 0, replace(FAST, beat_s=1e6))
    message = said.getvalue().splitlines()[-1] if code else ""
    os.write(answer, json.dumps({"count": shim.crash_count(), "message": message}).encode())
    os._exit(0)


def main():
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.crash_count.restype = ctypes.c_long
    shim.crash_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    crash_study()
    for line in sys.stdin:
        request = json.loads(line)
        ours, theirs = os.pipe()
        process = os.fork()
        if process == 0:
            child(request, shim, theirs)
        os.close(theirs)
        with os.fdopen(ours) as file:
            answer = json.loads(file.read() or '{"count": 0, "message": ""}')
        _, status = os.waitpid(process, 0)
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        print(json.dumps({"status": code, **answer}), flush=True)


if __name__ == "__main__":
    if "--tree" in sys.argv:
        serve_trees()
    else:
        main()
