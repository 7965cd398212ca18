"""The recorder: exact in step, rollouts and tokens, whatever happens to the process or the disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isocompute
from isocompute import InputError, Recorder
from isocompute.importers import read_log
from isocompute.importers.values.imported import ImportedRun, Series
from isocompute.sources import load_curves


def recorder(path: Path, **changes: Any) -> Recorder:
    return Recorder(
        path, **{"problems_per_batch": 4, "rollouts_per_problem": 8, "seed": 3, **changes}
    )


def run_of(path: Path) -> ImportedRun:
    (run,) = read_log(path)
    return run


def series_of(run: ImportedRun, label: str = "avg", split: str = "validation") -> Series:
    (series,) = [s for s in run.series if s.metric.label == label and s.split == split]
    return series


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_is_a_source_exact_in_step_rollouts_and_tokens(tmp_path: Path) -> None:
    for n in (8, 16):
        rec = recorder(tmp_path / f"bp4_n{n}", rollouts_per_problem=n, samples=4)
        for step in (0, 5, 10, 20):
            rec.log(step, score=0.25 + step / 100, tokens=step * 1000)
        rec.close()
    curves = load_curves(str(tmp_path))
    assert [(c.problems_per_batch, c.rollouts_per_problem, c.seed) for c in curves] == [
        (4, 16, 3), (4, 8, 3)]  # fmt: skip
    small = curves[1]
    assert small.metric == "avg@4"
    assert small.rollouts_K.tolist() == [0, 160, 320, 640]
    assert small.score_K.tolist() == [0.25, 0.3, 0.35, 0.45]
    assert small.tokens_K is not None
    assert small.tokens_K.tolist() == [0, 5000, 10000, 20000]


def test_arrays_and_rollouts_of_ones_own_are_taken(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a.jsonl")
    rec.log(np.int64(2), score=np.float32(0.5), rollouts=100, tokens=np.int64(7))
    rec.log(3.0, score=np.array(0.75))
    rec.log(4, tokens=9)
    run = run_of(rec.path)
    assert series_of(run).rollouts_K.tolist() == [100, 132]  # a whole batch later
    assert series_of(run).score_K.tolist() == [0.5, 0.75]
    assert rec.tokens_before(5) == 9
    assert rec.tokens_before(1) == 0
    assert rec.tokens_before(9) is None


def test_outcomes_give_every_metric(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a")
    rec.log(0, outcomes={"p": [0, 0], "q": [1, 0], "r": [True, 1.0]}, problem_set="val")
    run = run_of(rec.path)
    assert {s.metric.label: s.score_K.tolist() for s in run.series} == {
        "avg@2": [0.5], "best@2": [2 / 3], "worst@2": [1 / 3]}  # fmt: skip
    (found,) = run.outcomes
    assert (found.problem_P, found.successes_P.tolist(), found.problem_set) == (
        ("p", "q", "r"), [0, 1, 2], "val")  # fmt: skip


def test_unequal_outcomes_are_refused_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = recorder(tmp_path / "a")
    rec.log(0, score=0.5)
    rec.log(1, outcomes={"p": [0, 0], "q": [1]})
    rec.log(2, outcomes={"p": [0.5]})
    said = capsys.readouterr().err
    assert said.count("0 or 1, as many for every problem, but got 2 problems with [1, 2]") == 1
    other = recorder(tmp_path / "b")
    other.log(2, outcomes={"p": [0, 1], "q": [1, 2]})
    assert "as many for every problem, but problem 'q' has 2;" in capsys.readouterr().err
    assert series_of(run_of(rec.path)).step_K.tolist() == [0]


def test_training_scores_are_a_split_of_their_own(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a", samples=4)
    for step in range(3):
        rec.log(step, score=0.5)
        rec.log(step, score=0.25, split="train")
    run = run_of(rec.path)
    assert series_of(run, "avg@4").score_K.tolist() == [0.5] * 3
    assert series_of(run, "avg", "train").score_K.tolist() == [0.25] * 3


def test_a_range_is_kept_and_rescaled(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a", score_range=(0, 100))
    rec.log(0, score=50)
    rec.log(1, outcomes={"p": [0, 1, 1, 1]})
    (curve,) = load_curves(str(rec.path), metric="avg@4")
    assert curve.score_K.tolist() == [0.75]
    (curve,) = load_curves(str(rec.path), metric="avg")
    assert curve.score_K.tolist() == [0.5]


def test_a_resume_goes_on_and_what_is_done_again_holds(tmp_path: Path) -> None:
    first = recorder(tmp_path / "a")
    for step in (0, 10, 20, 30):
        first.log(step, score=step / 100, tokens=step)
    first.close()
    again = recorder(tmp_path / "a")
    assert again.tokens_before(21) == 20
    for step in (20, 30, 40):
        again.log(step, score=0.5 + step / 100, tokens=step - 1)
    run = run_of(again.path)
    assert series_of(run).step_K.tolist() == [0, 10, 20, 30, 40]
    assert series_of(run).score_K.tolist() == [0, 0.1, 0.7, 0.8, 0.9]
    assert series_of(run).tokens_K.tolist() == [0, 10, 19, 29, 39]
    assert run.notes == ("2 scores of steps done again after a resume: the later ones hold",)
    assert [row["start"] for row in lines(again.path) if "recorder" in row] == [1, 2]


def test_tokens_after_a_resume_are_those_of_the_new_branch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = recorder(tmp_path / "a")
    for step in (10, 30):
        first.log(step, score=0.1, tokens=100 * step)
    first.close()
    again = recorder(tmp_path / "a")
    again.log(20, score=0.2, tokens=1900)
    again.log(35, score=0.3, tokens=2950)  # below step 30's of the branch that was given up
    assert capsys.readouterr().err == ""
    assert series_of(run_of(again.path)).tokens_K.tolist() == [1000, 1900, 3000, 2950]


def test_a_count_that_begins_again_at_a_resume_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = recorder(tmp_path / "a")
    first.log(100, score=0.1, rollouts=4000, tokens=9000)  # more than 100 batches of 32
    first.close()
    again = recorder(tmp_path / "a")
    again.log(110, score=0.2, rollouts=320, tokens=9900)
    again.log(300, score=0.3, rollouts=6400, tokens=27000)  # beyond 4000, and still too few
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "rollouts must count from the run's begin, but step 110 has 320 after 4000; add what was drawn before the resume" in said  # noqa: E501 (one message)
    series = series_of(run_of(again.path))
    assert series.rollouts_K.tolist() == [4000, 4000 + 10 * 32, 4000 + 200 * 32]
    assert series.tokens_K.tolist() == [9000, 9900, 27000]
    again.close()
    again.log(310, score=0.3, rollouts=11_000)  # the next start, of the same recorder
    assert series_of(run_of(again.path)).rollouts_K.tolist()[-1] == 11_000


def test_rollouts_between_two_counts_lie_between_them(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a")  # batches of 32, of which a filter kept fewer
    for step, rollouts in ((10, 200), (19, None), (20, 400), (21, None)):
        rec.log(step, score=0.3, rollouts=rollouts)
    assert series_of(run_of(rec.path)).rollouts_K.tolist() == [200, 380, 400, 432]


def test_rollouts_that_a_resume_drew_again_count_once(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a")
    for step, rollouts in ((80, 4000), (100, 9000)):
        rec.log(step, score=0.3, rollouts=rollouts)
    rec.close()
    again = recorder(tmp_path / "a")  # from 80 on
    for step, rollouts in ((90, 4400), (110, 5500)):
        again.log(step, score=0.4, rollouts=rollouts)
    assert series_of(run_of(again.path)).rollouts_K.tolist() == [4000, 4400, 4950, 5500]


def test_rollouts_of_each_step_alone_are_left_out(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a")
    for step in (0, 10, 20):
        rec.log(step, score=0.3, rollouts=32)
    run = run_of(rec.path)
    assert series_of(run).rollouts_K.tolist() == [0, 320, 640]
    assert any("are 32 at step 0 and 32 at step 10: all are left out" in one for one in run.notes)
    other = recorder(tmp_path / "b")  # four updates of one batch
    for step in range(1, 9):
        other.log(step, score=0.3, rollouts=32 * ((step + 3) // 4))
    assert series_of(run_of(other.path)).rollouts_K.tolist() == [32] * 4 + [64] * 4


def test_a_newer_recorder_of_the_process_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = recorder(tmp_path / "a")
    older.log(10, score=0.1)
    newer = recorder(tmp_path / "a")  # the older is still there, as in a notebook
    newer.log(20, score=0.2)
    assert "this process has made a newer one of a.jsonl; log to that" in capsys.readouterr().err
    older.log(15, score=0.9)
    newer.log(30, score=0.3)
    run = run_of(newer.path)
    assert series_of(run).step_K.tolist() == [10, 20, 30]
    other = recorder(tmp_path / "a", rollouts_per_problem=16)  # another run takes nothing over
    other.log(10, score=0.5)
    newer.log(40, score=0.4)
    assert series_of(run_of(newer.path)).step_K.tolist() == [10, 20, 30, 40]
    assert other.path.name == "a-2.jsonl"


def test_what_is_wrong_is_said_once_kept_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = recorder(tmp_path / "a")
    rec.log(10, score=0.5, tokens=100)
    faults: list[tuple[dict[str, Any], str]] = [
        ({"step": 5, "score": 0.4}, "steps must not go back within one start, but step 5"),
        ({"step": 10, "score": 0.6}, "step 10 has a second; name the sets"),
        ({"step": 11, "score": 41.0}, "a score must lie in 0..1, but got 41.0 at step 11"),
        ({"step": 11, "score": float("nan")}, ""),
        ({"step": 11, "score": "high"}, ""),
        ({"step": -1, "score": 0.4}, "a step must be a whole number >= 0, but got -1"),
        ({"step": 1.5, "score": 0.4}, ""),
        ({"step": None}, ""),
        ({"step": 11, "score": 0.4, "split": "test"}, "validation or train, but got 'test'"),
        ({"step": 12, "tokens": -4}, "tokens must be a whole number >= 0, but got -4"),
        ({"step": 13, "tokens": 99}, "must count from the run's begin, but step 13 has 99 after"),
        ({"step": 14, "samples": "k", "score": 0.7}, "samples must be a whole number"),
        ({"step": 15, "rollouts": 0.5, "score": 0.8}, "rollouts must be a whole number"),
    ]
    for arguments, message in faults:
        rec.log(**arguments)
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == bool(message), said  # each kind once, in one line
    run = run_of(rec.path)
    assert series_of(run).step_K.tolist() == [10, 14, 15]
    assert series_of(run).rollouts_K.tolist() == [320, 14 * 32, 15 * 32]
    assert run.notes[0].startswith("9 records were refused as the run was trained")
    assert len(lines(rec.path)) == 2 + len(faults)


def test_a_torn_line_is_dropped_and_counted(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a")
    rec.log(0, score=0.1)
    rec.log(1, score=0.2)
    rec.close()
    data = rec.path.read_bytes()
    rec.path.write_bytes(data[:-9])
    torn = run_of(rec.path)
    assert series_of(torn).step_K.tolist() == [0]
    assert "1 torn or broken lines were left out" in torn.notes[0]
    again = recorder(tmp_path / "a")
    again.log(1, score=0.3)
    run = run_of(rec.path)
    assert series_of(run).score_K.tolist() == [0.1, 0.3]
    assert run.n_errors == 1
    assert rec.path.read_bytes().startswith(data[:-9] + b"\n")  # nothing that was there changed


def test_a_first_line_that_was_torn_is_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"recorder": 1, "problems_per_')
    with pytest.raises(InputError, match="must begin with its configuration"):
        read_log(path)
    rec = recorder(path)
    rec.log(0, score=0.5)
    assert series_of(run_of(path)).score_K.tolist() == [0.5]
    path.write_bytes(path.read_bytes().replace(b'{"recorder": 1, ', b'{"recorder": 2, '))
    with pytest.raises(InputError, match=r"recordings of version 1, but .* has 2; upgrade"):
        read_log(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problems_per_batch": 0}, "`problems_per_batch` must be a whole number >= 1, but got 0"),
        ({"rollouts_per_problem": True}, "`rollouts_per_problem` must be .* but got True"),
        ({"samples": 2.5}, "`samples` must be a whole number >= 1, but got 2.5"),
        ({"score_range": (1, 1)}, r"`low < high` must hold for score_range, but got \(1, 1\)"),
        ({"score_range": (0,)}, r"`low < high` must hold for score_range, but got \(0,\)"),
        ({"score_range": ("a", 1)}, "`low < high` must hold for score_range, but got"),
        ({"seed": 1.5}, "`seed` must be a whole number, but got 1.5"),
    ],
)
def test_wrong_arguments_are_refused_before_training(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        recorder(tmp_path / "a", **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_record_needs_a_name() -> None:
    with pytest.raises(InputError, match=r"a record needs a file's name, but got '\.'; name one"):
        Recorder("", problems_per_batch=1, rollouts_per_problem=1)


@pytest.mark.parametrize(
    "changes", [{"seed": 4}, {"rollouts_per_problem": 16}, {"facts": {"learning_rate": 2e-6}}]
)
def test_another_run_gets_a_file_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    first = recorder(tmp_path / "a", facts={"learning_rate": 1e-6})
    first.log(0, score=0.1)
    first.close()
    other = recorder(tmp_path / "a", **{"facts": {"learning_rate": 1e-6}, **changes})
    other.log(0, score=0.9)
    other.close()
    assert other.path.name == "a-2.jsonl"
    said = capsys.readouterr().err
    assert f"a file must hold one run, but a.jsonl holds another ({next(iter(changes))}" in said
    assert series_of(run_of(first.path)).score_K.tolist() == [0.1]
    third = recorder(tmp_path / "a", seed=99)
    third.log(0, score=0.7)
    third.close()
    said = capsys.readouterr().err  # one line, of the file that it is
    assert said.count("\n") == 1
    assert said.endswith("This one is written to a-3.jsonl.\n")
    back = recorder(tmp_path / "a", **{"facts": {"learning_rate": 1e-6}, **changes})
    back.log(1, score=0.8)  # its resume finds the same file
    assert series_of(run_of(tmp_path / "a-2.jsonl")).score_K.tolist() == [0.9, 0.8]


def test_numbers_as_names_are_runs_too(tmp_path: Path) -> None:
    for name in ("8", "16"):
        rec = recorder(tmp_path / name, rollouts_per_problem=int(name))
        rec.log(0, score=0.5)
    assert len(read_log(tmp_path)) == 2


CHILD = """
import sys, time, isocompute
rec = isocompute.Recorder(sys.argv[1], problems_per_batch=4, rollouts_per_problem=8, seed=3)
step = int(sys.argv[2])
print("ready", flush=True)
while step < int(sys.argv[3]):
    rec.log(step, score=0.5, tokens=step, outcomes={str(i): [0, 1] for i in range(200)})
    step += 1
print("done", flush=True)
time.sleep(60 * (len(sys.argv) > 4))
"""


def child(path: Path, *arguments: object) -> subprocess.Popen[str]:
    source = str(Path(isocompute.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), *map(str, arguments)], text=True,
        env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_sigkill_loses_no_record_that_was_logged(tmp_path: Path) -> None:
    path, begin = tmp_path / "a", 0

    def size() -> int:
        written = tmp_path / "a.jsonl"
        return written.stat().st_size if written.exists() else 0

    for _ in range(3):
        process = child(path, begin, 10**9)
        assert process.stdout is not None
        process.stdout.readline()
        wanted = size() + 40_000  # a record has 2,000 bytes: past the steps that are done again
        try:
            while size() < wanted and process.poll() is None:
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        last = int(series_of(run_of(tmp_path / "a.jsonl"), "avg@2").step_K[-1])
        assert last > begin
        begin = last - 3  # as from a checkpoint
    run = run_of(tmp_path / "a.jsonl")
    step_K = series_of(run, "avg@2").step_K
    assert step_K.tolist() == list(range(int(step_K[-1]) + 1))
    assert series_of(run, "avg@2").rollouts_K.tolist() == (step_K * 32.0).tolist()
    assert run.notes[0].startswith("8 scores of steps done again after a resume")


def test_of_two_processes_one_records(tmp_path: Path) -> None:
    holder = child(tmp_path / "a", 0, 5, "stay")
    assert holder.stdout is not None
    assert [holder.stdout.readline() for _ in range(2)] == ["ready\n", "done\n"]
    other = child(tmp_path / "a", 0, 7)
    out, said = other.communicate(timeout=60)
    holder.kill()
    holder.communicate()
    assert out.endswith("done\n")  # it trained on
    assert said.count("\n") == 1
    assert "one process must record a run, but another holds a.jsonl" in said
    assert series_of(run_of(tmp_path / "a.jsonl"), "avg@2").step_K.tolist() == [0, 1, 2, 3, 4]


def test_a_fork_records_nothing(tmp_path: Path) -> None:
    rec = recorder(tmp_path / "a")
    rec.log(0, score=0.1)
    pid = os.fork()
    if pid == 0:
        rec.log(1, score=0.2)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    rec.log(2, score=0.3)
    assert series_of(run_of(rec.path)).step_K.tolist() == [0, 2]


def test_a_full_disk_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rec = recorder(tmp_path / "a")
    rec.log(0, score=0.1)
    size = rec.path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
        rec.log(1, score=0.2)
        rec.log(2, score=0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert capsys.readouterr().err.count("make room") == 1
    assert series_of(run_of(rec.path)).step_K.tolist() == [0]
    rec.log(3, score=0.4)
    assert series_of(run_of(rec.path)).step_K.tolist() == [0, 1, 2, 3]


def test_a_folder_that_cannot_be_made_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "runs"
    blocked.write_text("a file where the folder should be")
    rec = recorder(blocked / "a")
    rec.log(0, score=0.1)
    assert "must be writable, but gives" in capsys.readouterr().err
    blocked.unlink()
    rec.log(1, score=0.2)
    assert series_of(run_of(rec.path)).step_K.tolist() == [0, 1]


def test_nothing_but_the_standard_library_is_loaded() -> None:
    code = (
        "import sys; before = set(sys.modules); import isocompute; isocompute.Recorder; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['isocompute']"
