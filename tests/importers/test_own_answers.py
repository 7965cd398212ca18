"""Files that isocompute wrote beside a log say nothing of how its runs were trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from design_helpers import prior_once, quick  # noqa: F401  # fixtures
from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import read_log
from isocompute.importers.beside.elsewhere import is_answer

STATE = {
    "global_step": 40,
    "log_history": [{"step": step, "eval_reward": 0.3 + step / 400} for step in range(0, 41, 5)],
}
STUDY = """
engine: trl
problems: {train: t.jsonl, validation: {held-out: v.jsonl}}
grid: {problems_per_batch: 32, rollouts_per_problem: 256, seeds: 1}
budget: 1e6
"""
PLAN = "plan", "--budget", "2e6"
DESIGN = "design", "--budget", "2e5", "--draws", "4"
FIT = "fit", "published:qwen2.5-7b-easy"


def log(folder: Path) -> Path:
    folder.mkdir()
    (folder / "trainer_state.json").write_text(json.dumps(STATE))
    return folder


def n_of(folder: Path) -> int | None:
    return read_log(folder)[0].rollouts_per_problem


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "words", [PLAN, FIT, (*FIT, "--method", "paper"), DESIGN],
    ids=lambda w: " ".join(w[::3]),
)  # fmt: skip
def test_an_answer_beside_a_log_is_none_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    folder = log(tmp_path / "run")
    monkeypatch.chdir(folder)
    before = n_of(folder)
    assert main([*words, "--json", "answer.json"]) == 0
    assert is_answer(folder / "answer.json")
    assert n_of(folder) == before is None
    (found,) = read_log(folder)
    assert not [one for one in found.notes if "answer.json" in str(one)]
    with pytest.raises(InputError, match=r"is an answer of isocompute .* the logs that it was"):
        read_log("answer.json")


def test_other_answers_are_known_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = log(tmp_path / "run")
    said = ["--set", "problems_per_batch=4", "--set", "rollouts_per_problem=8"]
    assert main(["import", str(folder), *said, "-o", "study", "--json", "import.json"]) == 0
    assert main(["status", "study", "--json", "status.json"]) == 0
    assert main(["doctor", "study", "--json", "check.json"]) == 0
    for name in ("import", "status", "check"):
        assert is_answer(tmp_path / f"{name}.json"), name
    # Settings of somebody else may have a version, too.
    (tmp_path / "mine.json").write_text('{"version": 1, "num_generations": 8}')
    assert not is_answer(tmp_path / "mine.json")


def test_an_answer_is_no_second_log_of_its_folder(tmp_path: Path) -> None:
    """The configuration of a folder is that of its one log, whatever was planned from it."""
    folder = tmp_path / "run"
    folder.mkdir()
    rows = ({"step": s, "val/mean@4": 0.3 + s / 400} for s in range(0, 41, 5))
    (folder / "first.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = {"data": {"train_batch_size": 32}, "actor_rollout_ref": {"rollout": {"n": 8}}}
    (folder / "config.json").write_text(json.dumps(said))
    plan = {"version": 2, "budget_rollouts": 9, "rollouts_per_problem": 256}
    (folder / "next.json").write_text(json.dumps(plan))
    assert n_of(folder / "first.jsonl") == 8


def test_a_study_file_beside_a_log_is_none_of_its_settings(tmp_path: Path) -> None:
    folder = log(tmp_path / "run")
    (folder / "study.yaml").write_text(STUDY)
    assert n_of(folder) is None
    (folder / "study.yaml").write_text("per_device_train_batch_size: 32\nnum_generations: 8\n")
    assert n_of(folder) == 8


@pytest.mark.heavy
def test_a_table_is_read_as_before_when_its_plan_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{step},{0.3 + 0.2 * step / (step + 100):.4f},{seed}"
            for seed in (0, 1) for step in range(0, 401, 20)]  # fmt: skip
    Path("one.csv").write_text("\n".join(["step,score,seed", *rows]) + "\n")
    said = ["--set", "problems_per_batch=32", "--set", "rollouts_per_problem=8"]
    assert main(["plan", "one.csv", *said, "--budget", "1e5", "--json", "plan.json"]) == 0
    assert main(["fit", "one.csv", *said]) == 0
    assert "2 runs: 32 problems (B_p) x 8 rollouts (n)" in capsys.readouterr().out
