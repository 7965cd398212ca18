"""The committed studies: files that run, results that can be read, a summary that adds up."""

from __future__ import annotations

import csv
import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from isocompute.runner import run_study
from isocompute.sources import load_curves
from isocompute.study.file import _recipe
from isocompute.study.schema import parse_study
from isocompute.study.yaml12 import read_yaml
from study_helpers import small_study

STUDIES = Path(__file__).resolve().parents[2] / "studies"
RESULTS = STUDIES / "results"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, STUDIES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_study_file_can_be_read(path: Path) -> None:
    file = parse_study(read_yaml(path), where=path.name)
    assert file.name == path.stem
    for section in [file.recipe] if file.recipes is None else list(file.recipes.values()):
        assert _recipe(section).temperature == 1.0  # what the base models were trained for
    for arm in file.problems.values():
        for entry in arm.validation.values():  # training and validation never share a problem
            if entry.generated:
                assert entry.options["part"] == "validation"
                assert not arm.train.generated or arm.train.options["part"] == "train"
                continue
            assert (entry.path, entry.held_out) == (arm.train.path, arm.train.held_out)
            assert (arm.train.part, entry.part) == ("train", "validation")


CURVES = sorted(path for path in RESULTS.glob("*.csv") if path.stem != "runs")


@pytest.mark.heavy
@pytest.mark.parametrize("path", CURVES, ids=lambda p: p.stem)
def test_committed_curves_are_sources(path: Path) -> None:
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        arms = sorted({(row.get("arm", ""), row["problem_set"]) for row in rows})
    for arm, problem_set in arms:
        where = [f"arm={arm}"] if arm else []
        curves = load_curves([path], where=where, problem_set=problem_set)
        assert curves
        assert all(curve.seed is not None for curve in curves)


def test_the_results_are_small() -> None:
    assert sum(p.stat().st_size for p in RESULTS.glob("*")) < 3_500_000


def test_a_summary_of_a_planted_study(tmp_path: Path) -> None:
    summarise = script("summarise")
    study = small_study()
    run_study(study, tmp_path / "planted", workers=0)
    rows = summarise.read(tmp_path / "planted")
    assert len(rows) == len(study.runs)
    for row in rows:
        assert row.state == "done"
        assert row.best_so_far >= row.final >= 0
        assert row.gap == pytest.approx(row.train - row.final)
        assert row.final_worst4 <= row.final <= row.final_best4
        assert row.never == pytest.approx(1 - row.final_best4)
    assert "| --- |" in summarise.grid_table(rows)


def test_intervals_and_differences_by_hand() -> None:
    summarise = script("summarise")
    mean, half = summarise.interval([0.1, 0.2, 0.3])
    assert (mean, half) == (pytest.approx(0.2), pytest.approx(4.302653 * 0.1 / math.sqrt(3)))
    assert summarise.shown([0.5]) == "0.500"
    assert summarise.shown([math.nan]) == "-"

    class Row:
        def __init__(self, seed: int, final: float) -> None:
            self.seed, self.final = seed, final

    a, b = [Row(0, 0.1), Row(1, 0.4)], [Row(1, 0.5), Row(2, 0.9)]
    assert summarise.difference(a, b, lambda r: r.final) == [pytest.approx(0.1)]


def test_what_is_kept_stays_and_what_is_new_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarise = script("summarise")
    run_study(small_study(), tmp_path / "planted", workers=0)
    kept = tmp_path / "kept"
    words = ["summarise.py", str(tmp_path / "planted"), "-o", str(kept)]
    monkeypatch.setattr("sys.argv", words)
    summarise.main()
    files = {file.name: file.read_bytes() for file in kept.iterdir()}
    assert set(files) == {"planted.csv", "runs.csv", "tables.md"}
    summarise.main()
    assert {file.name: file.read_bytes() for file in kept.iterdir()} == files
    runs, curves = (summarise.lines_of(kept / name) for name in ("runs.csv", "planted.csv"))
    key = "rollouts_per_problem"
    last = runs[-1][key]
    known = [{**line, "wall_s": "7"} for line in runs if line[key] != last]
    assert known
    summarise.write_lines(kept / "runs.csv", known)
    summarise.write_lines(kept / "planted.csv", [x for x in curves if x[key] != last])
    summarise.main()  # one n is new again; the others are as they were kept
    found = summarise.lines_of(kept / "runs.csv")
    assert found == [*known, *(line for line in runs if line[key] == last)]
    back = summarise.lines_of(kept / "planted.csv")
    assert sorted(map(str, back)) == sorted(map(str, curves))
    assert (kept / "tables.md").read_bytes() == files["tables.md"]


def test_a_study_that_is_not_finished_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarise = script("summarise")
    run_study(small_study(), tmp_path / "planted", workers=0)
    rows = summarise.read(tmp_path / "planted")
    monkeypatch.setattr(summarise, "read", lambda _: [replace(rows[0], state="pending")])
    monkeypatch.setattr(
        "sys.argv", ["summarise.py", str(tmp_path / "planted"), "-o", str(tmp_path / "kept")]
    )
    with pytest.raises(SystemExit, match="must be finished"):
        summarise.main()
    assert not list((tmp_path / "kept").iterdir())


def test_arms_that_are_told_apart_otherwise_are_not_mixed() -> None:
    summarise = script("summarise")
    line = {"problems_per_batch": "8", "rollouts_per_problem": "4", "seed": "0"}
    both = [{**line, "arm": "recipe=a problems=easy"}, {**line, "arm": "recipe=b problems=easy"}]
    assert summarise.added(both, [{**line, "arm": "recipe=c problems=easy"}])[:2] == both
    with pytest.raises(SystemExit, match="train two arms at least"):
        summarise.added(both, [{**line, "arm": "problems=easy"}])
    with pytest.raises(SystemExit, match="columns"):
        summarise.added(both, [{**both[0], "host": "here"}])
