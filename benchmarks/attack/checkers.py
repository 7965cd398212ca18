"""Checkers of answers that misbehave, in a measurement of difficulty and in a training run.

A measurement draws the same responses whatever the verdicts are: every problem's successes must be
those of the honest checker, but for responses that were counted as unjudged.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from attack import ground, hostile
from attack.process import BAD, Verdict, call, content, difference, left_behind

SLOW = ("sleep", "hang", "spins", "stops", "endless", "new_session", "pauses", "points_all",
        "steal", "reads_questions", "mess")  # fmt: skip
# In a training run, too: what concerns who asks, what stays, what grows, what comes late.
TRAINED = ("parent", "stays", "daemon", "by_and_by", "late", "fork_returns", "atexit", "pool",
           "session", "verdicts_everywhere", "elsewhere")  # fmt: skip
SAMPLES, CAP = 4, {"ISOCOMPUTE_VERIFIER_GB": "0.5"}
MEASURE = ("difficulty", "validation.jsonl", "--model", "bits", "--samples", str(SAMPLES),
           "--second-stage", "0", "-o", "measured.jsonl")  # fmt: skip


def names() -> list[str]:
    """All attacks, those at import last."""
    return [*hostile.ATTACKS, *hostile.AT_IMPORT]


def trial(folder: Path, number: int) -> tuple[str, Verdict]:
    """Measure, for some attacks train, and look for what was left behind."""
    name = names()[number]
    # How rarely: of the 48 responses of the measurement, of the hundreds of the run.
    every, in_run = (16, 200) if any(word in name for word in SLOW) else (8, 8)
    work = folder / "checker"
    honest = _honest(folder)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder / "ground" / "start-trained", work)
    verdict = Verdict(verdict="right", seen="")
    if name != "kills_parent":  # a measurement has no process above it that could say so
        (work / "NAME").write_text(f"{name} {every}")
        verdict = _measure(work, honest)
    if verdict.verdict in BAD or not any(word in name for word in TRAINED):
        return name, verdict
    (work / "NAME").write_text(f"{name} {in_run}")
    ran = _run(work, content(folder / "ground" / "trained" / "books"))
    if ran.verdict in BAD or verdict.verdict == "right":
        return name, ran
    return name, Verdict(verdict="refused", seen=f"{verdict.seen}; run: {ran.verdict} {ran.seen}")


def _measure(work: Path, honest: dict[str, tuple[int, int]]) -> Verdict:
    mark = f"measurement-{os.getpid()}"
    measured = call(*MEASURE, cwd=work, mark=mark, **CAP)
    if fault := measured.fault():
        return fault
    if left := left_behind(mark):
        return Verdict(verdict="hung", seen=f"left behind by the measurement: {left}")
    if measured.code != 0:
        return measured.refusal()
    unjudged = 0
    for key, (successes, judged) in _rates(work / "measured.jsonl").items():
        most, all_ = honest[key]
        unjudged += all_ - judged
        if not most - (all_ - judged) <= successes <= most:
            seen = f"{key}: {successes} of {judged}, but it is {most} of {all_}"
            return Verdict(verdict="silent", seen=seen)
    return Verdict(verdict="refused" if unjudged else "right", seen=f"{unjudged} unjudged")


def _run(work: Path, right: dict[str, bytes]) -> Verdict:
    mark = f"run-{os.getpid()}"
    ran = call(*ground.RUN, "--workers", "1", cwd=work, mark=mark, **CAP)
    if fault := ran.fault():
        return fault
    if left := left_behind(mark):
        return Verdict(verdict="hung", seen=f"left behind by the run: {left}")
    if ran.code != 0:
        return ran.refusal()
    exported = call(*ground.EXPORT, cwd=work, mark=mark)
    if exported.code != 0:
        return exported.refusal()
    if (work / "books" / "unjudged.csv").exists():
        rows = (work / "books" / "unjudged.csv").read_text().count("\n") - 1
        return Verdict(verdict="refused", seen=f"{rows} rows of unjudged")
    unlike = difference(right, content(work / "books"))
    return Verdict(verdict="silent" if unlike else "right", seen=unlike)


def _honest(folder: Path) -> dict[str, tuple[int, int]]:
    work = folder / "honest"
    if not (work / "measured.jsonl").exists():
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folder / "ground" / "start-trained", work)
        ground.expect(call(*MEASURE, cwd=work))
    return _rates(work / "measured.jsonl")


def _rates(path: Path) -> dict[str, tuple[int, int]]:
    """Successes and judged samples of each problem."""
    rows = map(json.loads, path.read_text().splitlines())
    return {
        row["id"]: (round((row.get("pass_rate") or 0) * (row.get("pass_rate_samples") or 0)),
                    row.get("pass_rate_samples") or 0)
        for row in rows
    }  # fmt: skip
