"""A study begun by a version whose `difficulty` meant no importance sampling, gone on with by this.

`data/begun-without-tis.tar.gz` was written by that version: sweep.yaml and its folder, 128 rollouts
a run.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.engines import problem_generators
from isocompute.errors import InputError
from isocompute.recipe import TIS_CAP, Recipe
from isocompute.runner import open_study, run_study
from isocompute.store import Store
from isocompute.study import load_study
from study_helpers import FAST


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parents[1] / "data" / "begun-without-tis.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def records(folder: Path) -> dict[str, Any]:
    with Store(folder) as store:
        runs = store.runs()
        return {
            run.hash: (run.spec["recipe"]["importance_cap"], run.steps_done,
                       store.evaluations(run.hash).counts_KC.tolist(),
                       [s.tolist() for s in store.steps(run.hash).successes])
            for run in runs
        }  # fmt: skip


def test_it_is_finished_under_its_own_recipe(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = records(begun / "begun")
    assert {cap for cap, *_ in before.values()} == {None}
    file, out = str(begun / "sweep.yaml"), str(begun / "begun")
    assert main(["run", file, "-o", out, "--workers", "0", "budget=256"]) == 0
    assert "continues as it began, without truncated importance" in capsys.readouterr().err
    after = records(begun / "begun")
    assert after.keys() == before.keys()  # none was begun anew
    for run, (_cap, steps, counts, successes) in before.items():
        assert after[run][:2] == (None, 2 * steps)
        assert after[run][2][: len(counts)] == counts
        assert after[run][3][: len(successes)] == successes
    whole = load_study(
        begun / "sweep.yaml", overrides=["budget=256", "recipe.importance_cap=null"],
        generators=problem_generators(),
    )  # fmt: skip
    run_study(whole, begun / "whole", workers=0, settings=FAST)
    assert records(begun / "whole") == after  # as that version itself would have ended


def test_new_configurations_of_it_are_not_mixed_in(begun: Path) -> None:
    study = open_study(begun / "sweep.yaml", ["grid.seeds=2"])
    assert {spec.recipe.importance_cap for spec in study.runs} == {TIS_CAP}
    run_study(study, begun / "begun", workers=0, settings=FAST)
    found = records(begun / "begun")
    assert len(found) == 4
    assert {cap for cap, *_ in found.values()} == {None}


def test_a_bound_that_is_named_is_another_recipe(begun: Path) -> None:
    study = open_study(begun / "sweep.yaml", [f"recipe.importance_cap={TIS_CAP}"])
    with pytest.raises(InputError, match=r"recipe.importance_cap: null -> 2.0; undo it"):
        run_study(study, begun / "begun", workers=0, settings=FAST)
    assert len(records(begun / "begun")) == 2


def test_a_new_study_has_it(begun: Path) -> None:
    study = open_study(begun / "sweep.yaml")
    run_study(study, begun / "new", workers=0, settings=FAST)
    assert {cap for cap, *_ in records(begun / "new").values()} == {TIS_CAP}
    again = open_study(begun / "sweep.yaml", ["budget=256"])
    run_study(again, begun / "new", workers=0, settings=FAST)
    assert {cap for cap, *_ in records(begun / "new").values()} == {TIS_CAP}


def test_where_the_trainer_samples_the_bound_changes_nothing(begun: Path) -> None:
    ends = []
    for name, cap in (("with", "2.0"), ("without", "null")):
        study = open_study(begun / "sweep.yaml", [f"recipe.importance_cap={cap}"])
        run_study(study, begun / name, workers=0, settings=FAST)
        ends.append([row[1:] for row in records(begun / name).values()])
    assert sorted(ends[0]) == sorted(ends[1])
    assert np.array(ends[0][0][1]).sum() > 0


def test_a_bound_below_the_ratio_is_refused(begun: Path) -> None:
    with pytest.raises(InputError, match=r"`importance_cap` must be >= 1 with the engine"):
        open_study(begun / "sweep.yaml", ["recipe.importance_cap=0.5"])


def test_every_set_has_truncated_importance_sampling() -> None:
    for name in ("easy", "hard", "mixed"):
        assert Recipe.for_difficulty(name).importance_cap == TIS_CAP
    assert Recipe.for_difficulty("easy", importance_cap=None).importance_cap is None
    assert Recipe().importance_cap is None
