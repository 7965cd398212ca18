"""A study does not validate on what it trains on, unless it says so; shipped ones do not."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.engines import problem_generators
from isocompute.errors import InputError
from isocompute.problems import Problem, ProblemSet, load_problems
from isocompute.runner import open_study, planned_study, run_study
from isocompute.sources import load_curves
from isocompute.store import Store
from isocompute.store.status import study_status
from isocompute.study import load_study
from isocompute.study.held_out import shared_prompts
from isocompute.study.yaml12 import parse_yaml
from study_helpers import FAST

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [*sorted((ROOT / "studies").glob("*.yaml")), *sorted((ROOT / "grid").glob("*.yaml"))]
STUDY = """
engine: simulator
problems:
  train: {path: p.jsonl, size: 20}
  validation:
    all: {path: p.jsonl, size: 30}
recipe: {learning_rate: 0.5, base_batch_size: 16}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 8], seeds: 1}
budget: 64
evaluation: {samples: 4, per_octave: 2, first: 32}
"""
HELD_OUT = STUDY.replace("size: 20", "held_out: 10, part: train").replace(
    "size: 30", "held_out: 10, part: validation"
)
ALLOWED = STUDY + "allow: [shared_prompts]\n"


@pytest.fixture
def write(tmp_path):
    """Writes the study over 40 problems; all prompts differ."""
    rows = [{"prompt": f"{i} + 1 =", "answer": str(i + 1)} for i in range(40)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(text: str) -> Path:
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return path

    return write


def test_a_new_study_that_shares_prompts_is_refused_by_every_command(write, capsys):
    path = write(STUDY)  # with one seed the smaller set is part of the larger: all 20
    for words in (["run"], ["run", "--dry-run"], ["lr-sweep"], ["lr-sweep", "--dry-run"]):
        assert main([*words, str(path)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "20 of the 30 prompts of validation set 'all' are among the 20 to train on" in err
        for cure in ("the same `held_out`", "another file", "`allow: [shared_prompts]`"):
            assert cure in err
    assert {p.name for p in path.parent.iterdir()} == {"p.jsonl", "s.yaml"}
    assert main(["run", str(write(HELD_OUT)), "--dry-run"]) == 0
    # A second set on purpose: the problems that were trained on.
    assert main(["run", str(write(ALLOWED)), "--dry-run"]) == 0
    assert main(["run", str(write(STUDY)), "--dry-run", "allow=[shared_prompts]"]) == 0


def test_every_pair_of_an_arm_is_compared_by_the_text_alone(write):
    path = write(HELD_OUT.replace(
        "    all:", "    trained: {path: p.jsonl, held_out: 10, part: train, size: 5}\n    all:"
    ))  # fmt: skip
    with pytest.raises(InputError, match="5 of the 5 prompts of validation set 'trained' are amo"):
        planned_study(path)
    arms = HELD_OUT[HELD_OUT.index("  train:") : HELD_OUT.index("recipe:")].replace("\n", "\n  ")
    text = HELD_OUT.replace(arms.replace("\n  ", "\n"), f"  own:\n  {arms}\n" + (
        "  other:\n    train: {path: p.jsonl, size: 20}\n    validation: {all: {path: p.jsonl, "
        "held_out: 10, part: validation}}\n"))  # fmt: skip
    study = load_study(write(text))
    (one,) = shared_prompts(study)
    assert (one.problems, one.validation, one.validated, one.trained) == ("other", "all", 10, 20)
    (arm,) = {(s.train, s.validation["all"]) for s in study.runs if s.arm["problems"] == "other"}
    trained, validated = ({p.prompt for p in of.problems} for of in arm)
    assert one.shared == len(trained & validated) > 0


def test_each_part_is_of_its_own_set_and_as_large_as_it_says(write):
    path = write(HELD_OUT.replace(
        "    all:", "    few: {path: p.jsonl, held_out: 5, part: validation}\n    all:"
    ))  # fmt: skip
    sets = load_study(path).runs[0].validation
    assert {name: len(found) for name, found in sets.items()} == {"few": 5, "all": 10}
    generated = HELD_OUT.replace("path: p.jsonl", "generated: simulated, options: {size: 40}")
    run = load_study(write(generated), generators=problem_generators()).runs[0]
    for name, found in (("train", run.train), ("all", run.validation["all"])):
        assert found.problems[0].id.startswith(f"{name}-")


def test_other_ids_and_answers_are_the_same_prompt_still(write):
    path = write(STUDY.replace("all: {path: p.jsonl, size: 30}", "all: {path: q.jsonl}"))
    rows = [{"id": f"other-{i}", "prompt": f"{i} + 1 =", "answer": "0"} for i in range(38, 44)]
    (path.parent / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = load_study(path, overrides=["problems.train={path: p.jsonl}"])
    (one,) = shared_prompts(whole)
    assert (one.shared, one.validated, one.trained) == (2, 6, 40)  # 38 and 39


def test_simulated_problems_are_what_their_ids_say():
    sets = [ProblemSet(name=n, problems=[Problem(id=f"{n}-0", prompt="simulated 0", answer="")])
            for n in ("a", "b")]  # fmt: skip
    assert [s.problems[0].asked for s in sets] == ["a-0", "b-0"]
    assert Problem(id="a", prompt="1 + 1 =", answer="2").asked == "1 + 1 ="


@pytest.mark.heavy
def test_what_was_begun_goes_on_and_says_so(write, capsys):
    folder = write(STUDY).parent / "s"
    run_study(load_study(write(STUDY)), folder, workers=0, settings=FAST)  # as an older version did
    said = "20 of the 30 prompts of validation set 'all' are among the 20 to train on: scores are"
    more = ["run", str(write(STUDY)), "budget=128", "grid.seeds=2", "--workers", "0"]
    assert main([*more, "--dry-run"]) == 0
    assert main(more) == 0
    assert said in capsys.readouterr().err
    assert any(said in line for line in study_status(folder).lines())
    assert [one.shared for one in study_status(folder).shared] == [20]
    assert {c.seen for c in load_curves([folder])} == {20 / 30}
    # Another set in the same folder is new.
    with pytest.raises(InputError, match="of the 25 prompts of validation set 'all'"):
        open_study(write(STUDY.replace("size: 30", "size: 25")), (), folder)
    # Said to be meant: no caution any more.
    assert main(["run", str(write(ALLOWED)), "budget=128", "grid.seeds=2", "--workers", "0"]) == 0
    assert study_status(folder).shared == []
    assert {c.seen for c in load_curves([folder])} == {0.0}


def test_a_folder_whose_first_start_was_cut_short_has_begun_nothing(write):
    path = write(STUDY)
    folder = path.parent / "s"
    folder.mkdir()
    (folder / "study.db").touch()
    with pytest.raises(InputError, match="20 of the 30 prompts"):
        open_study(path, (), folder)


@cache
def _read_once(path: Path, options: str) -> ProblemSet:
    return load_problems(path, **json.loads(options))


@pytest.mark.heavy
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_shipped_studies_share_prompts_on_purpose_only(path, monkeypatch):
    # They are parts of the same few files.
    monkeypatch.setattr("isocompute.study.file.load_problems", lambda path, **options:
                        _read_once(path, json.dumps(options)))  # fmt: skip
    study = load_study(path, generators=problem_generators())
    meant = "shared_prompts" in study.source.get("allow", ())
    shared = {one.validation for one in shared_prompts(study)}
    assert shared == ({"trained"} if meant else set())


def studies_of_docs() -> list[tuple[str, str]]:
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for text in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            if re.search(r"^engine:", text, re.MULTILINE) and "\n  validation:" in text:
                found.append((f"{page.stem}-{len(found)}", text))
    return found


@pytest.mark.parametrize("text", [t for _, t in studies_of_docs()],
                         ids=[n for n, _ in studies_of_docs()])  # fmt: skip
def test_studies_of_the_docs_share_prompts_on_purpose_only(text, tmp_path):
    rows = [{"id": str(i), "prompt": f"{i} + 1 =", "answer": str(i + 1), "pass_rate": i % 17 / 16}
            for i in range(2000)]  # fmt: skip
    content = parse_yaml(text.replace("KNOB", "0.5"), where="docs")
    for path in re.findall(r"path: ([\w.-]+)", text):  # files of other names hold other problems
        (tmp_path / path).write_text("".join(
            json.dumps({**row, "prompt": f"{path} {row['prompt']}"}) + "\n" for row in rows
        ))  # fmt: skip
    file = tmp_path / "study.yaml"
    file.write_text(text.replace("KNOB", "0.5"))
    study = load_study(file, generators=problem_generators())
    assert bool(shared_prompts(study)) == ("shared_prompts" in content.get("allow", ()))


def test_the_pages_with_a_study_are_seen():
    names = " ".join(name for name, _ in studies_of_docs())
    for page in ("own-trainer", "trl", "verl", "sweep", "tutorial", "lab-log"):
        assert page in names


def test_a_store_says_nothing_of_sets_apart(write):
    folder = write(HELD_OUT).parent / "s"
    run_study(load_study(write(HELD_OUT)), folder, workers=0, settings=FAST)
    with Store(folder):
        assert study_status(folder).shared == []
