"""Several arms in one study: named, listed, chosen; never pooled."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.compare import compare_curves
from isocompute.engines import problem_generators
from isocompute.errors import InputError
from isocompute.report.study_data import study_view
from isocompute.runner import run_study
from isocompute.sources import load_curves
from isocompute.sources.studies import study_facts
from isocompute.store import Store
from isocompute.store.arms import arm_labels, parse_where, run_facts, split_source, with_where
from isocompute.store.export import export_study
from isocompute.study import load_study

STUDY = """
engine: simulator
problems:
  small:
    train: {generated: simulated, options: {size: 8}}
    validation: {near: {generated: simulated, options: {size: 6}}}
  large:
    train: {generated: simulated, options: {size: 16}}
    validation: {near: {generated: simulated, options: {size: 6}}}
recipes:
  fast: {learning_rate: 0.5}
  slow: {learning_rate: 0.25}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 8], seeds: [0, 1]}
budget: 1280
evaluation: {samples: 4, per_octave: 2, first: 32}
"""


def run(folder: Path, text: str, name: str = "s") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(text)
    run_study(load_study(file, generators=problem_generators()), folder / name, workers=0)
    return folder / name


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("arms"), STUDY)


def test_arms_are_listed_by_their_names_and_chosen(study: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_curves([study])
    assert "this holds 4: recipe=fast problems=large (4 runs); recipe=fast problems=small" in str(
        caught.value
    )
    assert "--where recipe=fast --where problems=large" in str(caught.value)
    curves = load_curves([study], where=["recipe=fast", "problems=small"])
    assert len(curves) == 4
    with Store(study) as store:
        wanted = {
            r.hash
            for r in store.runs()
            if r.spec["recipe"]["learning_rate"] == 0.5 and r.spec["train"]["size"] == 8
        }
    assert {c.run for c in curves} == wanted
    same = load_curves([f"{study}[learning_rate=5e-1, train.size=8]"])
    assert {c.run for c in same} == wanted
    with pytest.raises(InputError, match="this holds 2: problems=large"):
        load_curves([study], where=["recipe=fast"])


def test_a_study_of_before_the_names_is_told_apart_by_its_fields(study: Path) -> None:
    with Store(study) as store:
        runs = store.runs()
    for r in runs:
        del r.spec["arm"]
    assert set(arm_labels(runs)) == {
        f"recipe.learning_rate={rate} train.size={size}" for rate in (0.5, 0.25) for size in (8, 16)
    }
    assert "recipe" not in run_facts(runs[0])


def test_names_are_no_part_of_a_runs_identity(tmp_path: Path) -> None:
    one = load_study(_file(tmp_path, STUDY), generators=problem_generators())
    other = load_study(
        _file(tmp_path, STUDY.replace("fast:", "quick:")), generators=problem_generators()
    )
    assert [r.hash for r in one.runs] == [r.hash for r in other.runs]
    assert {r.arm["recipe"] for r in other.runs} == {"quick", "slow"}


@pytest.mark.heavy
def test_renaming_an_arm_renames_its_runs(tmp_path: Path) -> None:
    folder = run(tmp_path, STUDY)
    run(tmp_path, STUDY.replace("fast:", "quick:"))
    with Store(folder) as store:
        assert {r.spec["arm"]["recipe"] for r in store.runs()} == {"quick", "slow"}


def _file(folder: Path, text: str) -> Path:
    (folder / "x.yaml").write_text(text)
    return folder / "x.yaml"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("recipe=fats", "recipe must be one of 'fast', 'slow', but got 'fats'"),
        ("recip=fast", "got 'recip'; did you mean recipe"),
        ("recipe", "must read KEY=VALUE, each key once, but got 'recipe'"),
        ("=x", "must read KEY=VALUE"),
    ],
)
def test_a_selection_that_chooses_nothing_is_refused(study: Path, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_curves([study], where=[where])


def test_words_of_a_selection(tmp_path: Path) -> None:
    assert split_source("a[k=v]") == ("a", {"k": "v"})
    assert with_where("a[k=v]", ["l=w"]) == "a[k=v,l=w]"
    assert with_where("a", []) == "a"
    with pytest.raises(InputError, match="each key once"):
        parse_where(["k=1", "k=2"])
    (tmp_path / "b[k=v]").mkdir()  # a name that exists is a name
    assert split_source(str(tmp_path / "b[k=v]")) == (str(tmp_path / "b[k=v]"), {})


def test_two_sources_of_different_arms_are_no_one_sweep(study: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this holds 2: recipe=fast"):
        load_curves([f"{study}[recipe=fast,problems=small]", f"{study}[recipe=slow,train.size=8]"])
    curves = load_curves(
        [f"{study}[seed=0]", f"{study}[seed=1]"], where=["recipe=f*", "train.size=8"]
    )
    assert len(curves) == 4


def test_compare_sets_two_arms_of_one_study_side_by_side(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", str(study), "--where", "problems=small", "--json", "-"]
    assert main([*words, "--where-a", "recipe=slow", "--where-b", "recipe=fast"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["a"].endswith("[problems=small,recipe=slow]")
    assert all(c["paired_by_seed"] for c in document["configurations"])
    assert main(words) == 2
    assert "needs two sides" in capsys.readouterr().err


@pytest.mark.heavy
def test_fit_plan_and_report_take_one_arm(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = ["--where", "recipe=fast", "--where", "problems=small"]
    codes = {main(["fit", str(study), *arm, "--json", str(tmp_path / "a.json")])}
    codes.add(main(["plan", "--budget", "1280", "--law", str(study), *arm]))
    codes.add(main(["report", str(study), *arm, "-o", str(tmp_path / "r.html")]))
    assert codes <= {0, 3}, capsys.readouterr().err  # a law of two n may be refused, not misread
    assert main(["fit", str(study)]) == 2
    assert "this holds 4" in capsys.readouterr().err


def test_the_recipe_of_a_plan_is_the_chosen_arms(study: Path) -> None:
    (recipe,) = study_facts(f"{study}[recipe=slow,problems=large]").recipes
    assert recipe.learning_rate == 0.25
    assert sorted(r.learning_rate for r in study_facts(str(study)).recipes) == [0.25, 0.5]


@pytest.mark.heavy
def test_the_report_shows_the_chosen_runs(study: Path) -> None:
    assert len(study_view(study).runs) == 16
    assert len(study_view(f"{study}[recipe=slow,train.size=8]").runs) == 4


def test_an_export_keeps_the_arms_apart(study: Path, tmp_path: Path) -> None:
    table = tmp_path / "c.csv"
    export_study(study, table)
    with pytest.raises(
        InputError, match="must hold one arm, but hold 'recipe=fast problems=large'"
    ):
        load_curves([table])
    ours = load_curves([study], where=["recipe=fast", "problems=small"])
    theirs = load_curves([table], where=["arm=recipe=fast problems=small"])
    assert {c.run for c in ours} == {c.run for c in theirs}


def test_an_export_says_which_arm_a_run_is(study: Path, tmp_path: Path) -> None:
    (table, *_) = export_study(study, tmp_path / "all", format="csv")
    with table.open() as file:
        arms = {row["run"]: row["arm"] for row in csv.DictReader(file)}
    with Store(study) as store:
        facts = {run.hash: run_facts(run) for run in store.runs()}
    assert arms == {
        run: f"recipe={f['recipe']} problems={f['problems']}" for run, f in facts.items()
    }


ONE = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 8}}
  validation: {near: {generated: simulated, options: {size: 6}}}
recipe: {learning_rate: 0.5}
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 8], seeds: [0, 1]}
budget: 1280
evaluation: {samples: 4, per_octave: 2, first: 32}
"""


def test_scores_on_other_problems_are_no_further_seeds(tmp_path: Path) -> None:
    folder = run(tmp_path, ONE)
    others = ONE.replace("size: 6", "size: 9").replace("[0, 1]", "[2, 3]")
    apart = run(tmp_path, others, "t")
    run(tmp_path, others)  # into the folder of the first
    wanted = "validation set 'near' holds others in 4 of 8 runs"
    with pytest.raises(InputError, match=wanted):
        load_curves([folder], problem_set="near", metric="avg@4")
    with pytest.raises(InputError, match=wanted) as caught:
        load_curves([folder])
    (where,) = re.findall(r"--where '(\S+)'", str(caught.value))
    assert len(load_curves([folder], where=[where])) == 4
    with pytest.raises(InputError, match=wanted):
        load_curves([f"{folder}[validation.near.size=6]", apart])
    a = load_curves([folder], where=["validation.near.size=6"])
    b = load_curves([apart])
    codes = [one["code"] for one in compare_curves(a, b).document["notices"]]
    assert codes == ["problems_differ", "seeds_unpaired"]
    same = compare_curves(b, load_curves([folder], where=["validation.near.size=9"]))
    assert same.document["notices"] == []


def test_recipes_with_and_without_names_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    named = ONE.replace("recipe: {learning_rate: 0.5}", "recipes: {slow: {learning_rate: 0.25}}")
    sources = [run(tmp_path, ONE), run(tmp_path, named, "t")]
    with pytest.raises(InputError, match=r"recipe.learning_rate=0.25 \(4 runs\)"):
        load_curves(sources)
    one_each = [f"{source}[seed=0,rollouts_per_problem=4]" for source in sources]
    with pytest.raises(InputError, match=r"recipe.learning_rate=0.25 \(1 run\); "):
        load_curves(one_each)


def test_a_long_list_of_arms_is_cut(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [f"32,8,{x},0.1,arm{i:02d}" for i in range(12) for x in (100, 200)]
    table.write_text("problems_per_batch,rollouts_per_problem,rollouts,score,arm\n"
                     + "\n".join(rows))  # fmt: skip
    with pytest.raises(InputError, match="'arm07' and 4 more; choose one with --where arm=NAME"):
        load_curves([table])


def test_columns_of_a_table_select_rows(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    head = "problems_per_batch,rollouts_per_problem,rollouts,score,kl"
    table.write_text(f"{head}\n32,8,100,0.1,0.001\n32,8,200,0.2,0\n")
    (curve,) = load_curves([f"{table}[kl=1e-3]"])
    assert curve.score_K.tolist() == [0.1]
    with pytest.raises(InputError, match="there is no 'ppo'"):
        load_curves([table], where=["ppo=1"])
    with pytest.raises(InputError, match=r"kl must be one of '0', '0.001', but got '3'"):
        load_curves([table], where=["kl=3"])
    with pytest.raises(InputError, match="must name one of run, seed"):
        load_curves(["published:qwen2.5-7b-easy[kl=1]"])
    few = load_curves(["published:qwen2.5-7b-easy[rollouts_per_problem=8]"])
    assert {c.rollouts_per_problem for c in few} == {8}


def test_training_scores_of_a_study(study: Path) -> None:
    """By hand: successes over samples of the batches in each window between two evaluations."""
    (curve, *_) = load_curves(
        [study], where=["recipe=fast", "problems=small", "rollouts_per_problem=8"], split="train"
    )
    with Store(study) as store:
        steps = store.steps(curve.run)
        due = sorted(set(store.evaluations(curve.run).step_K.tolist()))
    inside = [i for i, s in enumerate(steps.step_K) if due[1] < s <= due[2]]
    drawn = np.concatenate([steps.successes[i] for i in inside])
    assert curve.score_K[1] == pytest.approx(drawn.mean() / 8)
    assert curve.rollouts_K[1] == pytest.approx(
        np.mean([32 * (steps.step_K[i] - 1) for i in inside])
    )
    assert (curve.metric, curve.split) == ("avg@1", "train")
    (best, *_) = load_curves(
        [f"{study}[recipe=fast,problems=small,rollouts_per_problem=8,split=train]"], metric="best@8"
    )
    assert best.score_K[1] == pytest.approx((drawn > 0).mean())
