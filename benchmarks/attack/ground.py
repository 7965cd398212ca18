"""The studies that are attacked, small enough to train in a second or two, and their books."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from attack import hostile
from attack.process import Call, call, children, content

SIMULATED = """
engine: simulator
problems:
  train: {path: train.jsonl}
  validation: {easy: {path: validation.jsonl}}
recipe: {learning_rate: 1e-1}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 16], seeds: 2}
budget: 2048
evaluation: {samples: 4, per_octave: 2, first: 64}
slices: [0.125, 0.25, 0.5, 1]
limits: {retries: 3}
"""
TRAINED = """
engine: local
engine_options: {model: bits}
problems:
  train: {path: train.jsonl}
  validation: {easy: {path: validation.jsonl}}
recipe: {difficulty: easy, learning_rate: 5e-4, temperature: 1.0}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 8], seeds: 1}
budget: 256
evaluation: {samples: 2, per_octave: 2, first: 32}
slices: [0.25, 1]
limits: {retries: 3}
"""
RUN = ("run", "study.yaml", "--workers", "2", "--calibrate", "0", "-o", "study")
EXPORT = ("export", "study", "--no-times", "--format", "csv", "-o", "books")


def expect(ended: Call, *codes: int) -> Call:
    """Preparations must work.

    Raises:
        RuntimeError: if one did not.
    """
    if ended.code not in (codes or (0,)):
        raise RuntimeError(f"{' '.join(ended.words)}: exit {ended.code}: {ended.tail()}")
    return ended


def books_of(folder: Path) -> dict[str, bytes]:
    """The export of the study in a folder, without times."""
    shutil.rmtree(folder / "books", ignore_errors=True)
    expect(call(*EXPORT, cwd=folder))
    return content(folder / "books")


def prepare(ground: Path) -> None:
    """Everything that is attacked, below one folder; what is there is kept.

    `start-*` hold a study file and its problems, the others a study beside them.
    """
    _build(ground, "start-simulated", lambda at: _start(at, SIMULATED, verifier="exact"))
    _build(ground, "start-trained", lambda at: _start(at, TRAINED, verifier="check.py:judge"))
    for kind in ("simulated", "trained"):
        _build(ground, kind, lambda at, kind=kind: _finish(ground / f"start-{kind}", at))
        _build(ground, f"{kind}-cut", lambda at, kind=kind: _cut(ground / f"start-{kind}", at))
    _build(ground, "unjudged", lambda at: _unjudged(ground / "start-trained", at))
    _build(ground, "imported", _imported)
    _build(ground, "journal", lambda at: _journal(ground / "start-simulated", at))


def _build(ground: Path, name: str, build: Callable[[Path], None]) -> None:
    if (ground / name).exists():
        return
    print(f"preparing {name}", flush=True)
    draft = ground / f"draft-{name}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    build(draft)
    draft.rename(ground / name)


def _start(at: Path, study: str, *, verifier: str) -> None:
    """A study file, problems of the world "bits", and the checker that judges them."""
    at.joinpath("study.yaml").write_text(study)
    shutil.copy(hostile.__file__, at / "check.py")
    for seed, name, size in ((1, "train", 40), (2, "validation", 12)):
        expect(call("difficulty", f"world:bits,size={size},seed={seed}", "--model", "bits",
                    "--samples", "2", "--second-stage", "0", "-o", "drawn.jsonl",
                    cwd=at))  # fmt: skip
        rows = [json.loads(line) for line in at.joinpath("drawn.jsonl").read_text().splitlines()]
        at.joinpath(f"{name}.jsonl").write_text("".join(
            json.dumps({"id": f"{name}-{i}", "prompt": row["prompt"], "answer": row["answer"],
                        "verifier": verifier}) + "\n" for i, row in enumerate(rows)
        ))  # fmt: skip
    at.joinpath("drawn.jsonl").unlink()


def longer(folder: Path) -> str:
    """The word that doubles the budget of a folder's study."""
    return "budget=4096" if "simulator" in (folder / "study.yaml").read_text() else "budget=512"


def _finish(start: Path, at: Path) -> None:
    shutil.copytree(start, at, dirs_exist_ok=True)
    expect(call(*RUN, cwd=at))
    books_of(at)
    # The same study with twice the budget: what resuming from its checkpoints must give.
    shutil.copytree(at, at / "longer")
    expect(call(*RUN, longer(at), cwd=at / "longer"))
    books_of(at / "longer")


def _cut(start: Path, at: Path) -> None:
    """A study stopped by SIGKILL in the middle of a slice when half of them are committed."""

    def kill_halfway(process: int) -> None:
        time.sleep(0.005)
        try:
            with sqlite3.connect(f"file:{at}/study/study.db?mode=ro", uri=True) as connection:
                done = connection.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
        except sqlite3.Error:
            return
        if done >= 2:
            for each in [process, *children(process)]:
                os.kill(each, signal.SIGKILL)

    for _ in range(40):  # between two slices nothing is under way
        shutil.rmtree(at)
        shutil.copytree(start, at)
        call(*RUN, cwd=at, during=kill_halfway)
        if any(path.stat().st_size for path in (at / "study").glob("progress/*")):
            return
    raise RuntimeError("no life was cut in the middle of a slice")


def _unjudged(start: Path, at: Path) -> None:
    """A study with some responses that its checker failed on."""
    shutil.copytree(start, at, dirs_exist_ok=True)
    at.joinpath("NAME").write_text("returns_half 24")
    expect(call(*RUN, cwd=at))
    books_of(at)


def _imported(at: Path) -> None:
    for n in (4, 16, 64):
        rows = [{"step": step, "data": {
            "val-core/easy/reward/mean@4": 0.3 + 0.02 * step * n**0.2, "training/global_step": step,
            "actor/entropy": 1 / (1 + step), "critic/score/mean": 0.2 + 0.01 * step,
        }} for step in range(0, 20, 2)]  # fmt: skip
        at.joinpath(f"bp32_n{n}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    pattern = "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"
    logs = sorted(path.name for path in at.glob("*.jsonl"))
    expect(call("import", *logs, "-o", "study", "--set", pattern, cwd=at))
    expect(call("export", "study", "-o", "books.csv", cwd=at))


def _journal(start: Path, at: Path) -> None:
    """Copies of a study at moments at which a commit was under way: study.db and its journal."""
    work, found = at / "work", 0
    journal = work / "study" / "study.db-journal"
    for life in range(40):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(start, work)
        to_pass = [3 * life]  # commits seen under way that are let pass

        def pause(process: int, life: int = life, to_pass: list[int] = to_pass) -> None:
            if to_pass[0] < 0 or not journal.exists():
                return
            to_pass[0] -= 1
            if to_pass[0] >= 0:
                return
            everyone = [process, *children(process)]
            for each in everyone:
                os.kill(each, signal.SIGSTOP)
            # A header of zeros is that of a journal which is not needed yet, or no longer.
            with contextlib.suppress(OSError):
                data = journal.read_bytes()
                if data[:8].strip(b"\0") and len(data) > 512:  # pages, not a header alone
                    shutil.copytree(work, at / f"moment-{life}")
            for each in everyone:
                os.kill(each, signal.SIGCONT)
            to_pass[0] = -1 if (at / f"moment-{life}").exists() else 2

        call(*RUN, cwd=work, during=pause)
        found += (at / f"moment-{life}").exists()
        if found == 6:
            break
    shutil.rmtree(work, ignore_errors=True)
    if not found:
        raise RuntimeError("no commit was caught under way")
