"""run, status, watch, doctor, export on a small simulated study; hostile study files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from isocompute.cli import main
from isocompute.cli.tables import summary_lines
from isocompute.errors import RunError
from isocompute.runner import Summary, calibrate
from isocompute.store import Store
from isocompute.store.store import Accounting
from study_helpers import small_study

STUDY = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 8}}
  validation:
    main: {generated: simulated, options: {size: 6}}
recipe: {learning_rate: 0.5, base_batch_size: 16}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 8], seeds: [0, 1]}
budget: 640
evaluation: {samples: 4, per_octave: 2, first: 32}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    file = folder / "tiny.yaml"
    file.write_text(STUDY)
    assert main(["run", str(file), "--workers", "0"]) == 0
    return folder / "tiny"


def test_run_again_has_nothing_to_do(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = finished.parent / "tiny.yaml"
    assert main(["run", str(file), "--workers", "0", "--json", "-"]) == 0
    out, _ = capsys.readouterr()
    assert (json.loads(out)["version"], json.loads(out)["rollouts"]) == (1, 4 * 640)
    assert main(["run", str(file), "--workers", "0"]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith(f"{finished}: 4 of 4 runs done, 0 failed")
    assert f"Next: isocompute fit {finished}" in out


def test_a_dry_run_says_what_and_how_much_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY)
    assert main(["run", str(file), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tiny: 4 runs, 2,560 rollouts + ")
    assert [line.split() for line in lines[2:4]] == [
        ["4", "4", "40", "640", "2"], ["4", "8", "20", "640", "2"],
    ]  # fmt: skip
    assert main(["run", str(file), "--dry-run", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["rollouts"] == 2560
    file.write_text(STUDY.replace("problems_per_batch: 4", "batch_size: 32"))
    assert main(["run", str(file), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:4]] == [["4", "8", "20"], ["8", "4", "20"]]
    assert main(["lr-sweep", str(file), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tiny: learning rate: 14 runs, 8,960 rollouts + ")
    (rates,) = [line for line in lines if line.startswith("learning rates: ")]
    assert rates.count(",") == 6
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.yaml"]


def test_a_dry_run_of_a_folder_says_what_is_left_and_refuses_what_the_command_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: twice the budget leaves 640 rollouts of each of 4 runs; a third seed 1,280 each."""
    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY)
    run = ["run", str(file), "--workers", "0", "--calibrate", "0"]
    assert main(run) == 0
    kept = (tmp_path / "tiny" / "study.db").read_bytes()
    capsys.readouterr()

    def dry(*more: str) -> str:
        assert main([*run, "--dry-run", *more]) == 0
        return capsys.readouterr().out

    assert dry().startswith("tiny: nothing left to train; 2,560 rollouts are trained (4 done).")
    lines = dry("budget=1280").splitlines()
    assert lines[0].startswith("tiny: 4 runs, 2,560 rollouts + ")
    assert [line.split() for line in lines[3:5]] == [
        ["4", "4", "40", "80", "640", "2"], ["4", "8", "20", "40", "640", "2"]]  # fmt: skip
    (document,) = [json.loads(dry("grid.seeds=3", "budget=1280", "--json", "-"))]
    assert document["estimate"]["rollouts"] == 4 * 640 + 2 * 1280
    assert main([*run, "recipe.warmup_steps=3", "--dry-run"]) == 2
    refused = capsys.readouterr().err
    assert "seed=0 it changes recipe.warmup_steps: 10 -> 3; undo it" in refused
    assert main([*run, "recipe.warmup_steps=3"]) == 2
    assert capsys.readouterr().err == refused
    assert (tmp_path / "tiny" / "study.db").read_bytes() == kept
    # What is priced is what is drawn.
    more = json.loads(dry("budget=1280", "--json", "-"))["estimate"]
    with Store(tmp_path / "tiny") as store:
        before = store.accounting()
    assert main([*run, "budget=1280"]) == 0
    with Store(tmp_path / "tiny") as store:
        after = store.accounting()
    assert after.rollouts - before.rollouts == more["rollouts"]
    assert after.evaluation_rollouts - before.evaluation_rollouts == more["evaluation_rollouts"]
    shutil.rmtree(tmp_path / "tiny" / "checkpoints")  # a copy of a study that left them out
    capsys.readouterr()
    said = dry("budget=2560")
    assert said.startswith("tiny: 4 runs, 10,240 rollouts + ")
    assert "has gone: of 80 steps that are trained it goes on from step 0; put it back" in " ".join(
        said.split())
    assert "has gone" not in dry("budget=1280")  # nothing is left to go on with


def test_a_measurement_draws_a_small_part_of_what_it_measures() -> None:
    """By hand: 5% of four runs of 64,000 are 12,800; without a bound it would draw them for 60 s.

    Evaluations come on top.
    """
    found = calibrate(small_study(ns=(2, 4), seeds=(0, 1), rollouts=64000), seconds=60.0)
    assert 0 < found.rollouts < 2 * 12800
    assert found.wall_s < 60


def test_a_file_of_stand_ins_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "toy.yaml"
    world = "{generated: world, options: {world: bits, size: 64, part: %s}}"
    file.write_text(
        "engine: local\nengine_options: {model: bits-mlp}\nbudget: 2e4\n"
        f"problems:\n  train: {world % 'train'}\n"
        f"  validation: {{all: {world % 'validation'}}}\n"
        "grid: {problems_per_batch: 8, rollouts_per_problem: [4, 8]}\n"
    )
    for command in ("run", "lr-sweep"):
        assert main([command, str(file), "--dry-run"]) == 0
        said = "Trains bits-mlp on generated problems: a rehearsal, not your model."
        assert said in capsys.readouterr().out


def test_what_fits_into_no_run_or_hardly_counts_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: of 640 rollouts at B_p = 4, n = 4 makes 40 steps, n = 16 10, and n = 256 none."""
    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY.replace("[4, 8]", "[4, 16, 256]"))
    out = "Left out, a batch being above the budget or max_batch: 4 x 256 (B_p x n)."
    short = "Fewer than 20 steps: 4 x 16 (10). Such runs hardly count: raise the budget, or leave"
    assert main(["run", str(file), "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert out in said
    assert short in said
    assert main(["run", str(file), "--workers", "0", "--calibrate", "0"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("tiny: 4 runs, ")
    assert (lines[1], lines[2][: len(short)]) == (out, short)
    file.write_text(STUDY.replace("problems_per_batch: 4", "batch_size: [32, 1024]"))
    assert main(["run", str(file), "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "max_batch: 256 x 4, 128 x 8 (B_p x n)." in said
    assert "Fewer than" not in said  # 20 steps each


@pytest.mark.parametrize("engine", ["trl", "verl"])
def test_a_study_whose_trainer_is_missing_leaves_nothing_behind(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tiny.yaml"
    options = f"engine: {engine}\nengine_options: {{model: bits, python: /no/python}}"
    text = STUDY.replace("engine: simulator", options)
    text = text.replace("simulated, options: {", "world, options: {world: machine, ")
    file.write_text(f"{text}allow: [shared_prompts]\n")
    assert main(["run", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"engine_options.python must be a Python that has {engine}" in err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_a_refused_edit_is_refused_before_its_cost_is_told(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = finished.parent / "tiny.yaml"
    argv = ["run", str(file), "recipe.learning_rate=0.6", "-o", str(finished), "--workers", "0"]
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert "an edit must not change runs that have results" in line


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("evaluation.samples=3", "it changes evaluation.samples: 4 -> 3; undo it"),
        ("problems.train.options.size=9", "it changes the problems of train; train.size: 8 -> 9"),
    ],
)
def test_a_refused_edit_is_told_in_words_of_the_study_file(
    finished: Path, capsys: pytest.CaptureFixture[str], edit: str, said: str
) -> None:
    file = finished.parent / "tiny.yaml"
    assert main(["run", str(file), edit, "-o", str(finished), "--workers", "0"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.long
def test_the_cost_is_shown_before_the_start_and_the_calibration_is_booked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY + "rates: {rollouts_per_gpu_hour: 1000, usd_per_gpu_hour: 3}\n")
    argv = ["run", str(file), "--workers", "0", "--json", "-"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    first, *rest = err.splitlines()
    assert first.startswith("tiny: 4 runs, 2,560 rollouts + ")
    assert re.search(r" [\d,.]+k? tokens, under a minute, ", first)
    assert " GPU-hours, " in first
    assert re.search(r" GPU-hours, \$[\d.]+$", first)
    assert rest
    document = json.loads(out)
    assert document["estimate"]["rollouts"] == document["rollouts"] == 2560
    drawn = document["other"]["calibration"]["rollouts"]
    assert 2 * (16 + 32) < drawn <= 2 * 640 + 4 * 24 * 8  # no more updates than a run has
    assert main(argv) == 0  # nothing is measured twice, and no time is made up
    out, err = capsys.readouterr()
    assert json.loads(out)["other"]["calibration"]["rollouts"] == drawn
    assert "minute" not in err.splitlines()[0]
    assert main([*argv, "-o", str(tmp_path / "b"), "--calibrate", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["other"] == {}


def test_output_folder_and_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY)
    argv = ["run", str(file), "-o", str(tmp_path / "elsewhere"), "--workers", "0"]
    assert main([*argv, "grid.seeds=[3]", "budget=320"]) == 0
    assert "2 of 2 runs done" in capsys.readouterr().out
    assert not (tmp_path / "tiny").exists()


def test_ray_options_reach_the_pool(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, object]] = []

    def no_cluster(**options: object) -> None:
        asked.append(options)
        raise RunError("no cluster here")

    monkeypatch.setattr("isocompute.runner.ray.ray_pool", no_cluster)
    file = str(finished.parent / "tiny.yaml")
    assert main(["run", file, "--ray-address", "auto", "--num-cpus", "2", "--num-gpus", "0.5"]) == 1
    assert main(["run", file, "--ray-address", "local"]) == 1
    assert asked == [
        {"address": "auto", "num_cpus": 2.0, "num_gpus": 0.5},
        {"address": None, "num_cpus": 1, "num_gpus": 0},
    ]
    assert "no cluster here" in capsys.readouterr().err
    assert main(["run", file, "--num-gpus", "-1"]) == 2
    assert "must not be below 0" in capsys.readouterr().err


def test_status(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(finished)]) == 0
    out = capsys.readouterr().out
    assert "4 runs: 4 done" in out
    assert "of 4 runs broke no rule" in out
    assert all(len(line) <= 80 for line in out.splitlines())  # `watch` would cut the rest off
    assert main(["status", str(finished), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["states"]["done"] == 4
    assert set(document["health"]) <= {run["hash"] for run in document["runs"]}


def test_what_failed_says_how_it_is_tried_again() -> None:
    nothing = SimpleNamespace(**dict.fromkeys((f.name for f in fields(Accounting)), 0))
    for failed, invalid in ((0, 0), (1, 0), (0, 1)):
        ended = Summary(done=1, failed=failed, invalid=invalid, pending=0, problems=[],
                        accounting=cast("Accounting", nothing), elapsed_s=1.0)  # fmt: skip
        lines = summary_lines(ended, "s")
        assert ("--retry-failed" in " ".join(lines)) == bool(failed + invalid)
        assert lines[-1] == "Next: isocompute fit s"


def test_watch_ends_where_nothing_is_at_work(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(finished), "--every", "0.01"]) == 0
    out = capsys.readouterr().out
    assert "4 runs: 4 done" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_doctor(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(finished)]) == 0
    assert "sound" in capsys.readouterr().out
    broken = tmp_path / "broken"
    shutil.copytree(finished, broken)
    for weights in broken.rglob("*.safetensors"):
        weights.write_bytes(b"torn")
    with (broken / "study.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    assert main(["doctor", str(broken), "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert found[0]["severity"] == "error"


def test_export(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves = tmp_path / "curves.csv"
    assert main(["export", str(finished), "-o", str(curves)]) == 0
    header = curves.read_text().splitlines()[0]
    assert "problems_per_batch" in header
    assert main(["export", str(finished), "--format", "parquet", "-o", str(tmp_path / "t")]) == 0
    assert (tmp_path / "t" / "runs.parquet").is_file()
    assert f"wrote {curves}" in capsys.readouterr().out
    timeless = ["export", str(finished), "--format", "csv", "--no-times"]
    assert main([*timeless, "-o", str(tmp_path / "u")]) == 0
    assert not (tmp_path / "u" / "attempts.csv").exists()
    assert "wall_s" not in (tmp_path / "u" / "steps.csv").read_text()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_run_says_where_it_keeps_an_older_file(
    version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands that read leave it as it is."""
    file = tmp_path / "s" / "study.db"
    file.parent.mkdir()
    shutil.copy(Path(__file__).parents[1] / "data" / f"store-v{version}" / "study.db", file)
    before = file.read_bytes()
    export = ["export", "-o", str(tmp_path / "x")]
    for word, *more in (["status"], ["doctor"], ["watch"], ["fit"], export):
        main([word, str(file.parent), *more])
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["study.db"]
    capsys.readouterr()
    monkeypatch.setattr("isocompute.runner.open_study", lambda *_: small_study(rollouts=128))
    command = ["run", "s.yaml", "-o", str(file.parent), "--workers", "0", "--calibrate", "0"]
    assert main(command) == 0
    copy = file.with_name(f"study.schema-{version}.db")
    assert copy.is_file()
    told = capsys.readouterr().err
    assert told.count(f"as it was it is kept in {copy}") == 1
    assert main(command) == 0
    assert "it is kept in" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "watch", "doctor", "export"])
def test_a_folder_without_a_study_is_bad_input(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["-o", str(tmp_path / "x.csv")] if command == "export" else []
    assert main([command, str(tmp_path), *extra]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


HOSTILE = {
    "python tag": "x: !!python/object/apply:os.system ['touch owned']",
    "alias bomb": "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
    "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
    "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
    "g: [*f,*f,*f,*f,*f,*f,*f,*f,*f]",
    "twice the same key": STUDY + "\nbudget: 1280\n",
    "unknown word": STUDY + "\nbudgett: 1280\n",
    "text in a number": STUDY.replace("per_octave: 2", "per_octave: often"),
    "deep nesting": "a: " + "[" * 5000 + "]" * 5000,
    "nothing": "",
    "a list": "- 1\n- 2\n",
    "not YAML": "a: [1, 2\nb: }",
    "binary": "\x00\x01\x02",
    "a budget of zero": STUDY.replace("budget: 640", "budget: 0"),
    "a budget below one batch": STUDY.replace("budget: 640", "budget: 3"),
    "an unknown engine": STUDY.replace("engine: simulator", "engine: nobody"),
    "an infinite rate": STUDY.replace("learning_rate: 0.5", "learning_rate: .inf"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_study_files_are_one_line_and_write_nothing(
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(HOSTILE[case])
    assert main(["run", "bad.yaml", "--workers", "0"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("isocompute: ")
    assert err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.yaml"]


def test_a_missing_study_file_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_run_says_so_and_resumes(number: int, code: int, tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY.replace("budget: 640", "budget: 400000"))
    process = subprocess.Popen(
        [sys.executable, "-m", "isocompute", "run", str(file), "--workers", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        # A shell hands on an ignored Ctrl-C to what it starts in the background: these tests, say.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(600):
        if (tmp_path / "tiny" / "study.db").exists():
            break
        time.sleep(0.05)
    time.sleep(3)  # of 24 s: the runner's own handlers stand, on a loaded machine, too
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err.decode()
    assert b"Traceback" not in err
    assert main(["doctor", str(tmp_path / "tiny")]) == 0


def test_a_stopped_quickstart_keeps_the_exit_code_of_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = SimpleNamespace(exit_code=143, stopped_by=15)
    study = SimpleNamespace(runs=[], rollouts=0)
    monkeypatch.setattr("isocompute.quickstart._difficulty", lambda *_: {"recipe": "easy"})
    monkeypatch.setattr("isocompute.quickstart._book_difficulty", lambda *_: None)
    monkeypatch.setattr("isocompute.runner.open_study", lambda *_: study)
    monkeypatch.setattr("isocompute.runner.run_study", lambda *_, **__: stopped)
    assert main(["quickstart", str(tmp_path)]) == 143
    _, err = capsys.readouterr()
    assert "it was stopped; run `isocompute quickstart" in err
