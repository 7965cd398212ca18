"""One broken line, and whether a test notices: in a copy of the repository, in a forked process.

Tools kept for this (mutmut, cosmic-ray) start a Python for every change, and torch takes longer
to load than most of these tests to run; none draws a sample by stratum. Here one process loads
the libraries once and forks; the child imports the package, one line of it broken, from a copy.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import py_compile
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from mutants.places import Place, broken

# A trial may take this many times what its tests took unbroken, and this many seconds more: at
# half of either a busy machine counts as a hang, at twice a real hang costs a minute.
SLACK, SPARE_S = 4.0, 15.0


class Copy:
    """A copy of the repository in which one line at a time is broken.

    Args:
        root: the repository.
        folder: where the copy goes; what is there is replaced.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        """Copy, and compile what stays as it is."""
        self.root, self.folder = root, folder
        shutil.rmtree(folder, ignore_errors=True)
        skip = shutil.ignore_patterns(".venv*", ".git", "build", "site", "__pycache__", ".*_cache")
        shutil.copytree(root, folder, ignore=skip)
        # Never looked at again, so that a file changed twice in one second is read anew.
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=mode)

    @contextlib.contextmanager
    def with_broken(self, place: Place) -> Iterator[bool]:
        """Break the line for a while; False where it is no longer there."""
        file = self.folder / place.path
        source = (self.root / place.path).read_text()
        text = broken(source, place)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
        try:
            if text is not None:
                file.write_text(text)
            yield text is not None
        finally:
            file.write_text(source)


def load_libraries() -> None:
    """What every trial needs and no trial breaks."""
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import orjson  # noqa: F401
    import pyarrow  # noqa: F401
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import ruamel.yaml  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch

    torch.set_num_threads(1)


def run_tests(folder: Path, tests: Sequence[str], expected_s: float) -> tuple[str, float]:
    """Run tests of the copy until one fails.

    Args:
        folder: the copy.
        tests: their names as pytest has them.
        expected_s: what they take unbroken.

    Returns:
        "survived", "caught" or "hung" (which counts as caught), and the seconds it took.
    """
    began, limit = time.monotonic(), SLACK * expected_s + SPARE_S
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _child(folder, tests)
    status = None
    while status is None and time.monotonic() - began < limit:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(code)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # and whatever the tests have started
    if status is None:
        os.waitpid(child, 0)
        return "hung", time.monotonic() - began
    return ("survived" if status == 0 else "caught"), time.monotonic() - began


def _child(folder: Path, tests: Sequence[str]) -> None:
    """Never returns."""
    code = 99
    try:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        sys.path[:0] = [str(folder / "src"), str(folder / "tests" / "helpers")]
        for name in [m for m in sys.modules if m.split(".")[0] == "isocompute"]:
            del sys.modules[name]  # the package as it is, which this process used
        os.environ["PYTHONPATH"] = str(folder / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        import pytest

        code = int(pytest.main(
            ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", *tests]
        ))  # fmt: skip
    finally:
        os._exit(code)
