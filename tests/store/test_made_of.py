"""A study never mixes two models, or two checkers, that stood at the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from isocompute.cli import main
from isocompute.engines.local.folders import load_model, save_model
from isocompute.problems import save_problems
from isocompute.store import Store
from isocompute.store.made_of import _WHOLE, _fingerprint
from local_tools import WORLD, tiny_folder

CHECKER = "def right(response, answer):\n    return int(response[:1] == answer[:1])\n"
STUDY = """
engine: local
engine_options: {model: base}
problems:
  train: {path: words.jsonl, verifier: "checker.py:right", held_out: 8, part: train}
  validation:
    all: {path: words.jsonl, verifier: "checker.py:right", held_out: 8, part: validation}
recipe: {learning_rate: 1e-2, temperature: 1.0}
grid: {problems_per_batch: 4, rollouts_per_problem: 4}
budget: 64
evaluation: {samples: 2, per_octave: 1, first: 32}
"""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study of one finished run."""
    monkeypatch.chdir(tmp_path)
    tiny_folder(tmp_path / "base")
    save_problems(WORLD.problems("words", 24, seed=0), tmp_path / "words.jsonl")
    (tmp_path / "checker.py").write_text(CHECKER)
    (tmp_path / "own.yaml").write_text(STUDY)
    assert run() == 0
    return tmp_path


def run(*words: str) -> int:
    return main(["run", "own.yaml", "--workers", "0", "--calibrate", "0", *words])


def other_weights(folder: Path) -> None:
    model = load_model(folder)
    for value in model.parameters():
        value.data.mul_(0.5)
    save_model(model, folder)


def other_checker(folder: Path) -> None:
    (folder / "checker.py").write_text(CHECKER.replace("int(", "1 - int("))


@pytest.mark.parametrize(
    ("change", "named"), [(other_weights, "model 'base'"), (other_checker, "checker 'checker.py'")]
)
def test_a_changed_file_is_refused_where_it_would_be_mixed(begun, capsys, change, named):
    change(begun / "base" if "model" in named else begun)
    assert run() == 0  # nothing is left to train
    for words in (["grid.seeds=2"], ["budget=128"], ["grid.seeds=2", "--dry-run"]):
        capsys.readouterr()
        assert run(*words) == 2
        said = capsys.readouterr().err
        assert f"{named} is not what it was when 1 of its runs were trained" in said
        assert "put it back" in said
        assert "allow: [changed_files]" in said
    with Store(begun / "own") as store:
        assert len(store.runs()) == 1
    assert run("grid.seeds=2", "allow=[changed_files]") == 0
    assert run("grid.seeds=3") == 0  # the new file is the study's own from then on


def test_the_file_put_back_goes_on(begun):
    other_checker(begun)
    assert run("grid.seeds=2") == 2
    (begun / "checker.py").write_text(CHECKER)
    assert run("grid.seeds=2") == 0


def test_what_has_no_results_yet_may_change(tmp_path, begun):
    (begun / "checker.py").write_text("def right(response, answer):\n    return 0.5\n")
    assert run("-o", "other") == 1  # it judges nothing
    (begun / "checker.py").write_text(CHECKER)
    assert run("-o", "other", "--retry-failed") == 0


def test_notes_beside_a_model_are_no_part_of_it(begun):
    (begun / "base" / "README.md").write_text("notes")
    assert run("grid.seeds=2") == 0


def test_ends_and_size_tell_large_files_apart(tmp_path):
    files = [tmp_path / str(i) / "model.safetensors" for i in range(3)]
    for number, file in enumerate(files):
        file.parent.mkdir()
        with file.open("wb") as stream:
            stream.truncate(_WHOLE + 1 + (number == 2))
            stream.seek(-1, 2)
            stream.write(bytes([number == 1]))
    assert len({_fingerprint(file.parent) for file in files}) == 3
