"""What people type by accident: one line that says what to do, before any work; no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.cli.values import gpus, positive_int, seed
from isocompute.quickstart import _difficulty

STUDY = """\
name: odd
engine: simulator
problems:
  train: {generated: simulated, options: {size: 16}}
  validation: {v: {generated: simulated, options: {size: 8}}}
grid: {problems_per_batch: 4, rollouts_per_problem: [2, 4], seeds: 1}
recipe: {learning_rate: 1.0, base_batch_size: 8}
budget: 64
evaluation: {first: 32}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a study file, a plain file and a problem file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.yaml").write_text(STUDY)
    (tmp_path / "plain").write_text("")
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "answer": "1"}\n')
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that is bad input prints: one line."""
    assert main(list(words)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize("command", ["run", "lr-sweep"])
@pytest.mark.parametrize("study", [".", "/", ".."])
def test_a_folder_in_a_study_files_place_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, study: str
) -> None:
    assert "a study file must be readable, but" in said(capsys, command, study)


def test_a_study_does_not_train_into_a_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = here / "odd"  # a study file without an ending is its own default folder
    own.write_text(STUDY)
    wrong = "'odd' must be a folder, but is a file; name another."
    assert wrong in said(capsys, "run", "odd")
    assert wrong in said(capsys, "run", "odd", "--dry-run")
    assert "'plain' must be a folder" in said(capsys, "run", "odd.yaml", "-o", "plain")
    assert "'plain' must be a folder" in said(capsys, "run", "odd.yaml", "-o", "plain/in")
    assert own.read_text() == STUDY


def test_an_export_does_not_go_into_a_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "odd.yaml", "-o", "a study", "--workers", "0", "--calibrate", "0"]) == 0
    assert "Next: isocompute fit 'a study'" in capsys.readouterr().out
    assert "'plain' must be a folder" in said(capsys, "export", "a study", "-o", "plain")
    assert "'plain' must be a folder" in said(capsys, "export", "a study", "-o", "plain/x.csv")


def test_figures_do_not_go_into_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "published:qwen2.5-7b-easy"
    line = said(capsys, "report", source, "-o", "r.html", "--figures", "plain")
    assert "'plain' must be a folder" in line
    assert not (here / "r.html").exists()


@pytest.mark.parametrize("target", ["no/such/x.jsonl", "x.txt", "."])
def test_difficulty_looks_at_its_output_before_it_samples(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    def sampled(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("isocompute.engines.embedded_success_counter", lambda: sampled)
    line = said(capsys, "difficulty", "p.jsonl", "--model", "bits", "-o", target)
    assert "must be a file in a folder" in line or "are saved as JSONL" in line


@pytest.mark.parametrize(
    "command",
    [["difficulty", "p.jsonl", "--model", "bits"], ["design", "--budget", "1e6"]],
)
def test_two_outputs_are_two_files(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    line = said(capsys, *command, "-o", "same.jsonl", "--json", "./same.jsonl")
    assert "two outputs must be two files, but both are 'same.jsonl'" in line


def test_a_number_that_no_computer_reads_is_a_row_error(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "big.jsonl").write_text('{"prompt": "a", "answer": ' + "9" * 5000 + "}\n")
    line = said(capsys, "difficulty", "big.jsonl", "--model", "bits")
    assert "big.jsonl, line 1 is not (Exceeds the limit" in line


@pytest.mark.parametrize("metric", [",", "avg@4,", ""])
def test_a_metric_without_a_name_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], metric: str
) -> None:
    line = said(capsys, "fit", "published:qwen2.5-7b-easy", "--metric", metric)
    assert "--metric must name scores" in line or "`metric` must not be empty" in line


def test_a_plan_file_without_trainers_is_none(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "p.json").write_text(json.dumps({"version": 2, "run_next": [], "verdict": None}))
    source = "published:qwen2.5-7b-easy"
    line = said(capsys, "report", source, "-o", "r.html", "--plan", "p.json", "--for", "trl")
    assert "--plan must name a file that `isocompute plan --json FILE` wrote" in line


@pytest.mark.parametrize(("metric", "why"), [("foo", "a metric must be"), ("avg@9", "at most the")])
def test_a_dry_run_asks_what_an_adaptive_study_decides_by(
    here: Path, capsys: pytest.CaptureFixture[str], metric: str, why: str
) -> None:
    assert why in said(capsys, "run", "odd.yaml", "--dry-run", f"adaptive.metric={metric}")


def test_problems_in_a_folder_named_generated_are_not_generated(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "generated.jsonl").write_text(
        "".join(f'{{"prompt": "a{i}", "answer": "1"}}\n' for i in range(4))
    )
    asked = ["engine=trl", "engine_options={model: m, max_new_tokens: 8}",
             "problems={train: generated.jsonl, validation: {v: generated.jsonl}}",
             "recipe={}", "allow=[shared_prompts]"]  # fmt: skip
    assert main(["run", "odd.yaml", "--dry-run", *asked]) == 0
    assert "generated problems" not in capsys.readouterr().out


def test_a_validation_set_alone_is_refused_without_a_file_to_write_too(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = said(capsys, "design", "--budget", "1e6", "--validation", "p.jsonl")
    assert "there is no --train; add it" in line


def test_thousands_are_whole() -> None:
    assert [positive_int(text) for text in ("16.1k", "32.7k", "1.001k", "12k")] == [
        16_100, 32_700, 1_001, 12_000,
    ]  # fmt: skip
    with pytest.raises(Exception, match="must be a whole number, but got '0.0001k'"):
        positive_int("0.0001k")


def test_numbers_beyond_what_is_drawn_from_or_counted() -> None:
    assert seed("0") == 0
    with pytest.raises(Exception, match=r"must be below 2\*\*63"):
        seed("9" * 20)
    for text in ("²", "8x8xH100", "8x8", "64x"):  # of 8 x 8 none knows which are in one machine
        with pytest.raises(Exception, match=f"as 64xH100 or 64, but got '{text}'"):
            gpus(text)
    assert gpus("64 x H100") == (64, "H100")


@pytest.mark.heavy
@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_closed_stream_is_no_fault(here: Path, closed: str) -> None:
    shell = f"exec {sys.executable} -m isocompute status nowhere {closed}>&-"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert "fault" not in done.stderr
    shell = f"exec {sys.executable} -m isocompute run odd.yaml --dry-run {closed}>&-"
    assert subprocess.run(["sh", "-c", shell], capture_output=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
                          ).returncode == 0  # fmt: skip


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_a_damaged_measurement_is_made_anew(
    here: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pytest.importorskip("torch")

    class Measured(Exception):
        pass

    def measure(*_: object, **__: object) -> None:
        raise Measured

    monkeypatch.setattr("isocompute.difficulty.measure_difficulty", measure)
    (here / "difficulty.json").write_text(text)
    with pytest.raises(Measured):
        _difficulty(here, print)
