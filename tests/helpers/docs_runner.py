"""Runs what README.md and docs/ show, as it is written, in an empty folder per page.

- Every line of a ```sh block is a command (a trailing backslash goes on); it must end with 0, or
  with N where `<!-- exit: N -->` stands above its block.
- Every ```python block is a program of its own.
- `<!-- save as: FILE -->` above a block writes the block there, as the page tells its reader.
- `<!-- output of: COMMAND -->` above a block: what the command printed last on this page; a
  command that the page has not run is run then.

Files that a page takes for granted are made when it names them, see `FIXTURES`. What takes
minutes or another machine is in `NOT_RUN` with its reason; its options are checked all the same.
`scripts/update_docs.py` renews the outputs by the same walk.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docs_fixtures

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TIMEOUT_S = 240
_END = re.compile(r"\([^()]*$|at least $")
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?%?)")

# A command begins with the words on the left.
NOT_RUN = {
    "make": "targets build environments; tests/test_shell.py holds that they exist, CI runs them",
    "bash .ci/run": "runs every target, this test among them",
    "python3 -m venv": "builds an environment",
    "pip install": "changes the environment",
    "isocompute quickstart": "minutes of training; engines/test_local_engine.py, the README",
    "isocompute design": "a minute of simulated sweeps; tests/design/test_design.py",
    "isocompute watch": "stays until nothing is at work; tests/cli/test_cli_study.py",
    "isocompute run trl.yaml": "needs TRL and a GPU; tests/engines/test_trl.py runs the engine",
    "isocompute run verl.yaml": "needs verl and GPUs; engines/test_verl_trained.py, on the CPU",
    "isocompute run sweep.yaml --ray-address": "starts Ray; tests/runner/test_ray.py",
    "sbatch": "needs a queue",
    "VERL_USE_EXTERNAL_MODULES": "needs verl; tests/hooks/test_hooks.py",
}


def agree(shown: str, printed: str) -> bool:
    """Whether two texts are one but for what the arithmetic of another processor changes.

    Processors round differently, and draws of a Markov chain then part. Let pass are two units of
    the last decimal, 5% of a whole number, a quarter of a fold (a third of an octave), a point of a
    percentage; and half of an end of an interval (in brackets, or after "at least"), which hangs on
    few draws.
    """
    ours, theirs = (_NUMBER.split(" ".join(text.split())) for text in (shown, printed))
    if len(ours) != len(theirs):
        return False
    before = ""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        free = 0.5 * (_END.search(before) is not None)
        if i % 2 and not _close(a, b, max(free, 0.25 * ours[i + 1].startswith("-fold"))):
            return False
        if not i % 2 and a != b:
            return False
        before += a
    return True


def _close(a: str, b: str, share: float) -> bool:
    if a.endswith("%") != b.endswith("%"):
        return False
    decimals = len(a.rstrip("%").partition(".")[2])
    x, y = (float(text.rstrip("%").replace(",", "")) for text in (a, b))
    free = 2 * 10.0**-decimals if decimals else max(0.05 * x, float(a.endswith("%")))
    return abs(x - y) <= max(free, share * x) + 1e-9


@dataclass(frozen=True)
class Block:
    """One fenced block: info string, text, the comment above it, its place."""

    language: str
    text: str
    comment: str
    line: int
    start: int  # of the text in the page
    end: int

    @property
    def commands(self) -> list[str]:
        if self.language != "sh":
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [" ".join(w.split()) for line in lines if (w := line.partition(" #")[0].strip())
                and not w.startswith("#")]  # fmt: skip


_FENCE = re.compile(
    r"(?:^<!-- (?P<comment>[^\n]*?) -->\n)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n"
    r"(?P<text>.*?)^ *```$",
    re.M | re.S,
)


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for match in _FENCE.finditer(page):
        found.append(
            Block(
                match["language"], match["text"], match["comment"] or "",
                page.count("\n", 0, match.start()) + 1, match.start("text"), match.end("text"),
            )
        )  # fmt: skip
    return found


def reason_not_run(command: str) -> str | None:
    """Why a command is left out, or None."""
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


# What a page shows must not hang on who made it: all processors of ten years compute alike with
# the instructions that they share. Names are NumPy's, before 2.4 and since.
ONE_PROCESSOR = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL "
                                "AVX512_SPR X86_V4",
}  # fmt: skip


def on_one_processor() -> None:
    """Begin this program anew, unless it computes so: NumPy asks once, when it is imported."""
    if not ONE_PROCESSOR.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_PROCESSOR})


class Walk:
    """One page in one folder: `outputs` are what its commands printed."""

    def __init__(self, folder: Path, page: str) -> None:
        self.folder, self.page, self.outputs = folder, page, dict[str, str]()
        bin_folder = folder.parent / f"{folder.name}-bin"
        bin_folder.mkdir(parents=True)
        for name, words in (("isocompute", "-m isocompute"), ("python", "")):
            shim = bin_folder / name
            shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            shim.chmod(0o755)
        path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, **ONE_PROCESSOR, "PATH": path, "COLUMNS": "100",
                            "MPLBACKEND": "agg"}  # fmt: skip
        folder.mkdir(parents=True)
        for name, make in FIXTURES.items():
            if name in page:
                make(folder / name)

    def steps(self) -> Iterator[tuple[Block, list[str]]]:
        """(block, complaints) of every block, run in order."""
        for block in blocks(self.page):
            key, _, value = block.comment.partition(": ")
            if key == "save as":
                target = self.folder / value
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, encoding="utf-8")
            expected = int(value) if key == "exit" else 0
            yield block, [
                *(c for command in block.commands for c in self.run(command, expected)),
                *(self.python(block) if block.language == "python" and key != "not run" else []),
            ]

    def run(self, command: str, expected: int = 0) -> list[str]:
        """Run one command line; complaints."""
        if reason_not_run(command) is not None:
            return []
        done = self._call(["bash", "-c", command])
        self.outputs[command] = done.stdout.rstrip("\n")
        if done.returncode == expected:
            return []
        said = (done.stderr or done.stdout)[-800:]
        return [f"`{command}` ended with {done.returncode}, not {expected}: {said}"]

    def python(self, block: Block) -> list[str]:
        """Run one program; complaints."""
        done = self._call([sys.executable, "-c", block.text])
        return [] if done.returncode == 0 else [f"line {block.line}: {done.stderr[-800:]}"]

    def output_of(self, command: str) -> str | None:
        """What it printed last; None if it cannot be run here."""
        if command not in self.outputs:
            self.run(command)
        return self.outputs.get(command)

    def _call(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True,
            check=False, timeout=TIMEOUT_S,
        )  # fmt: skip


FIXTURES: dict[str, Callable[[Path], None]] = docs_fixtures.FIXTURES
