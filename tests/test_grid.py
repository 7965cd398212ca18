"""The shipped grid as a SOURCE and as a table, and the command that makes it."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.metrics import score_from_counts
from isocompute.sources import grid as source
from isocompute.sources import load_curves, load_with_train

ROOT = Path(__file__).resolve().parents[1]


def head_of(file):
    return json.loads(pq.read_schema(file).metadata[b"isocompute"])


@pytest.mark.parametrize("name", sorted({"hard"} | source.grid_files().keys() & {"easy"}))
def test_the_core_is_shipped_with_every_column_of_its_card(name):
    file = source.grid_files()[name]
    table = pd.read_parquet(file)
    card = (ROOT / "grid" / "README.md").read_text()
    assert all(f"`{column}`" in card for column in table.columns)
    assert set(table.problem_set) == {"easy", "hard", "very_easy", "extremely_hard"}
    runs = table.drop_duplicates("run")
    assert len(runs) == head_of(file)["runs"] <= head_of(file)["of"] == 81
    keys = ["problems_per_batch", "rollouts_per_problem", "seed"]
    assert not runs.duplicated(keys).any()
    assert set(runs.rollouts_per_problem) <= {2**i for i in range(2, 11)}
    assert set(runs.problems_per_batch) <= {8, 32, 128}
    batch = runs.problems_per_batch * runs.rollouts_per_problem
    assert np.allclose(runs.learning_rate, 5e-4 * np.sqrt(batch / 1024))
    assert (table.rollouts == table.problems_per_batch * table.rollouts_per_problem
            * table.steps).all()  # fmt: skip
    ends = table.groupby("run").agg(
        rollouts=("rollouts", "max"), b_p=("problems_per_batch", "max"),
        n=("rollouts_per_problem", "max"),
    )  # fmt: skip
    whole = np.minimum(4_194_304, 20_000 * ends.b_p.astype(int) * ends.n)  # beyond 32 bits
    assert (ends.rollouts <= whole).all()
    assert (ends.rollouts * 2**0.5 > whole).all()  # two evaluations an octave, none at the end


def test_scores_are_those_of_the_outcomes_beside_them():
    table = pd.read_parquet(source.grid_files()["hard"])
    kept = table[table.successes.notna()]
    assert kept.groupby("run").rollouts.min().eq(0).all()
    assert (kept.groupby("run").rollouts.max() == table.groupby("run").rollouts.max()).all()
    for row in kept.sample(20, random_state=0).itertuples():
        assert len(row.successes) == (300 if row.problem_set in ("easy", "hard") else 150)
        for metric, value in (("avg", row.score), ("best", row.best), ("worst", row.worst)):
            scored = score_from_counts(row.successes, row.samples, f"{metric}@4")
            assert value == pytest.approx(scored)


def test_a_grid_is_a_source(capsys):
    curves = load_curves("grid:hard")
    assert {c.problem_set for c in curves} == {"hard"}
    assert {c.problems_per_batch for c in curves} == {32}
    assert {c.metric for c in curves} == {"avg@4"}
    assert {c.split for c in curves} == {"validation"}
    b_ps = set(pd.read_parquet(source.grid_files()["hard"]).problems_per_batch)
    assert {c.problems_per_batch for c in load_curves("grid:hard-joint")} == b_ps
    easy = load_curves("grid:hard", problem_set="easy", metric="best@4")
    assert {(c.problem_set, c.metric) for c in easy} == {("easy", "best")}
    both = load_with_train("grid:hard")
    assert {c.split for c in both.train} == {"train"}
    trained = load_curves("grid:hard", split="train")
    assert {c.split for c in trained} == {"train"}
    assert len(trained) == len(both.train) == len(both.curves)
    assert curves[0].tokens_K[-1] > curves[0].rollouts_K[-1]
    assert {c.trained_on for c in (*curves, *both.train)} == {500}
    assert main(["fit", "grid:hard"]) == 0
    assert "avg@4" in capsys.readouterr().out


def test_a_plan_from_a_grid_warns_of_few_problems_and_many_passes(capsys):
    assert main(["plan", "grid:hard", "--budget", "2e6", "--problems", "50", "--why"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "data 625 passes over 50 problems; so far n = 64 made 131 over 500" in said
    assert "50 problems are far fewer than the sweep's 500; smaller n may win." in said


def test_unknown_grids_are_told_the_known_ones(capsys):
    with pytest.raises(InputError, match="a grid must be one of .*grid:hard.*but got 'grid:hrad'"):
        load_curves("grid:hrad")
    with pytest.raises(InputError, match="'nothing'"):
        load_curves("grid:hard", problem_set="nothing")
    with pytest.raises(InputError, match="grid:hard, grid:hard-joint.*got 'grid:hard-jiont'"):
        load_curves("grid:hard-jiont")
    assert main(["fit", "grid:hard[seed=9]"]) == 2
    assert "seed" in capsys.readouterr().err


def test_a_partial_grid_says_so_and_an_empty_package_too(tmp_path, monkeypatch):
    table = pq.read_table(source.grid_files()["hard"])
    for runs, expected in ((7, ["grid:tiny: 7 of 9 runs are finished and included"]),
                           (9, [])):  # fmt: skip
        head = {"study": "tiny", "runs": runs, "of": 9, "problem_set": "hard", "main": None}
        named = table.replace_schema_metadata({b"isocompute": json.dumps(head).encode()})
        pq.write_table(named, tmp_path / "tiny.parquet")
        monkeypatch.setattr(source, "grid_files", lambda: {"tiny": tmp_path / "tiny.parquet"})
        said = []
        load_curves("grid:tiny", say=said.append)
        assert said == expected
    with pytest.raises(InputError, match="one of grid:tiny, but got 'grid:tiny-joint'"):
        load_curves("grid:tiny-joint")
    monkeypatch.setattr(source, "grid_files", dict)
    with pytest.raises(InputError, match="must be one of none in this installation"):
        load_curves("grid:hard")


def test_duckdb_opens_it():
    duckdb = pytest.importorskip("duckdb")
    file = source.grid_files()["hard"]
    rows = duckdb.sql(f"SELECT count(DISTINCT run) FROM '{file}'").fetchall()[0]
    assert rows[0] == head_of(file)["runs"]


@pytest.fixture
def make(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("grid_make", ROOT / "grid" / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("RUNS", "BUILD", "PACKED"):
        monkeypatch.setattr(module, name, tmp_path / name.lower())
    return module


TINY = """
engine: local
engine_options: {model: verbs}
problems:
  train: {generated: world, options: {world: verbs, part: train, size: 8}}
  validation:
    hard: {generated: world, options: {world: verbs, part: validation, size: 6}}
    trained: {generated: world, options: {world: verbs, part: train, size: 8}}
recipe: {difficulty: hard, temperature: 1.0, learning_rate: 1e-3}
grid: {problems_per_batch: 2, rollouts_per_problem: [4, 8], seeds: 2}
budget: 64
evaluation: {samples: 4, per_octave: 1, first: 16}
slices: [1]
"""


def test_runs_are_made_once_in_order_kept_and_packed(make, tmp_path, monkeypatch, capsys):
    from isocompute.runner import open_study

    file = tmp_path / "tiny.yaml"
    file.write_text(TINY)
    studies = {"hard": open_study(file, [])}
    monkeypatch.setattr(make, "ORDER", (("hard", (2,), (1,)), ("hard", (), ())))
    order = [(w.spec.seed, w.spec.allocation.rollouts_per_problem) for w in make.ordered(studies)]
    assert order == [(1, 4), (1, 8), (0, 4), (0, 8)]
    assert make.make(studies, 1)
    (first,) = make.RUNS.iterdir()
    head = head_of(first)
    assert (head["spec"]["seed"], head["spec"]["rollouts_per_problem"]) == (1, 4)
    assert (head["state"], head["steps"]) == ("done", 8)
    assert head["cpu_s"] > 0
    assert {f.suffix for f in make.BUILD.iterdir()} == {".lock"}  # nothing of the run stays here
    with make._claim(list(make.ordered(studies))[1]) as ours:  # as another process would have it
        assert ours
        assert make.make(studies, 2)
    assert [head_of(f)["spec"]["seed"] for f in sorted(make.RUNS.iterdir(), key=lambda f:
            f.stat().st_mtime_ns)] == [1, 0]  # fmt: skip
    before = first.read_bytes()
    assert make.make(studies, None)
    assert len(list(make.RUNS.iterdir())) == 4
    assert first.read_bytes() == before  # never made again
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 4
    assert " tiny 2 x 4 seed 1 done 8 steps " in told[0]
    # A study that asks for more makes the run again, to the end that is asked for.
    longer = {"hard": open_study(file, ["budget=128"])}
    assert not any(one.is_there for one in make.ordered(longer))

    make.pack(studies)
    packed = make.PACKED / "hard.parquet"
    assert head_of(packed) == {"study": "hard", "runs": 4, "of": 4, "problem_set": "hard",
                               "main": 32}  # fmt: skip
    table = pd.read_parquet(packed)
    assert sorted(set(table.rollouts)) == [0, 16, 32, 64]
    assert table.groupby("split").problem_set.unique().map(list).to_dict() == {
        "train": ["hard"], "validation": ["hard"]}  # fmt: skip
    assert pa.types.is_list(pq.read_schema(packed).field("successes").type)
    one = table[(table.run == head["run"]) & (table.split == "train")]
    assert len(one.successes.iloc[0]) == 8
    assert one.reward.isna().tolist() == [True, False, False, False]
    # Means over the updates between two evaluations, from the same run trained by itself.
    again = make.BUILD / "again"
    from isocompute.runner import run_study
    from isocompute.store import Store

    alone = [s for s in studies["hard"].runs if s.hash == head["run"]]
    run_study(make.Study(name="again", runs=alone, slices=(1.0,)), again, workers=0)
    with Store(again) as store:
        steps = store.steps(head["run"])
    entropy = steps.health["entropy"]
    assert one.entropy.tolist()[1:] == pytest.approx(
        [entropy[:2].mean(), entropy[2:4].mean(), entropy[4:8].mean()], rel=1e-5
    )


def test_outcomes_are_packed_at_the_start_at_whole_octaves_and_at_the_end(make):
    assert make._kept({0, 4096, 5888, 8192, 11648, 16384, 23168}) == {0, 4096, 8192, 16384, 23168}
