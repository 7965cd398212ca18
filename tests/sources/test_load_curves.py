"""Every kind of source gives the same curves, and what is left open is asked for."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.engines import problem_generators
from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.metrics import score_from_counts
from isocompute.runner import run_study
from isocompute.sources import load_curves
from isocompute.store import Database, Store
from isocompute.store.export import export_study
from isocompute.store.health import study_health
from isocompute.store.register import register
from isocompute.study import load_study

STUDY = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 8}}
  validation:
    near: {generated: simulated, options: {size: 6}}
    far: {generated: simulated, options: {size: 5}}
RECIPES
grid: {problems_per_batch: 4, rollouts_per_problem: [4, 8], seeds: [0, 1]}
budget: 640
evaluation: {samples: 4, per_octave: 2, first: 32}
"""


def make(folder: Path, recipes: str = "recipe: {learning_rate: 0.5}") -> Path:
    file = folder / "s.yaml"
    file.write_text(STUDY.replace("RECIPES", recipes))
    run_study(load_study(file, generators=problem_generators()), folder / "s", workers=0)
    return folder / "s"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("study"))


def tidy(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


HEAD = "problems_per_batch,rollouts_per_problem,rollouts,score"


def test_a_study_gives_one_curve_per_run_from_its_counts(study: Path) -> None:
    curves = load_curves([study], problem_set="near", metric="best@2")
    assert len(curves) == 4
    with Store(study) as store:
        for curve in curves:
            _, successes_KP = store.successes(curve.run, "near")
            assert curve.score_K == pytest.approx(score_from_counts(successes_KP, 4, "best@2"))
            assert curve.rollouts_K[0] == 0
            assert curve.metric == "best@2"
            assert curve.tokens_K is not None
            assert curve.steps_K is not None
    assert {(c.rollouts_per_problem, c.seed) for c in curves} == {(4, 0), (4, 1), (8, 0), (8, 1)}


def test_avg_with_every_sample_is_the_default_of_a_study(study: Path) -> None:
    assert {c.metric for c in load_curves([study], problem_set="far")} == {"avg@4"}


def test_the_export_of_a_study_gives_the_same_curves(study: Path, tmp_path: Path) -> None:
    export_study(study, tmp_path / "curves.csv")
    ours = load_curves([study], problem_set="near", metric="avg@4")
    theirs = load_curves([tmp_path / "curves.csv"], problem_set="near", metric="avg@4")
    key = {(c.rollouts_per_problem, c.seed): c for c in theirs}
    for curve in ours:
        other = key[(curve.rollouts_per_problem, curve.seed)]
        np.testing.assert_allclose(curve.score_K, other.score_K)
        np.testing.assert_array_equal(curve.rollouts_K, other.rollouts_K)


def test_several_problem_sets_must_be_chosen_from(study: Path) -> None:
    with pytest.raises(InputError, match="hold 'far', 'near'; choose one with --problem-set"):
        load_curves([study])
    with pytest.raises(InputError, match="must be one of 'far', 'near', but got 'nowhere'"):
        load_curves([study], problem_set="nowhere")


def test_a_set_that_another_source_has_no_name_for_is_said_with_its_own(
    study: Path, tmp_path: Path
) -> None:
    """Compared with the study, which asks for it, the table refused it: neither way went on."""
    other = tidy(tmp_path / "t.csv", f"{HEAD},metric", *(f"4,8,{x},0.5,avg@4" for x in (32, 64)))
    with pytest.raises(InputError, match=r"say whose it is: SOURCE\[problem_set=near\]"):
        load_curves([other], problem_set="near", metric="avg@4")
    assert main(["compare", f"{study}[problem_set=near]", str(other), "--metric", "avg@4"]) == 0


def test_a_study_without_results_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.replace("RECIPES", "recipe: {learning_rate: 0.5}"))
    with contextlib.closing(Database(tmp_path / "s", create=True)) as database:
        register(database, load_study(file, generators=problem_generators()))
    with pytest.raises(InputError, match="an evaluation of a valid run, but none of 4 runs has"):
        load_curves([tmp_path / "s"], problem_set="near", metric="avg@2")
    with pytest.raises(InputError, match="an update of a valid run, .*isocompute run STUDY.yaml"):
        load_curves([tmp_path / "s"], split="train")
    with contextlib.closing(Database(tmp_path / "s", write=True)) as database, (
        database.write()
    ) as connection:
        connection.execute("UPDATE runs SET state = 'failed'")
    with pytest.raises(InputError, match=r"has one; mend it, then: .* --retry-failed \(what fail"):
        load_curves([tmp_path / "s"], problem_set="near", metric="avg@2")
    with pytest.raises(InputError, match="split 'train', but has none; choose another"):
        load_curves(["published:qwen2.5-7b-easy"], split="train")


@pytest.mark.heavy
def test_runs_with_different_recipes_are_no_repetitions(tmp_path: Path) -> None:
    folder = make(tmp_path, "recipes: {a: {learning_rate: 0.5}, b: {learning_rate: 0.25}}")
    with pytest.raises(InputError, match=r"this holds 2: recipe=a \(4 runs\); recipe=b"):
        load_curves([folder], problem_set="near")


def test_a_metric_beyond_the_samples_is_refused(study: Path) -> None:
    with pytest.raises(InputError, match="best@8"):
        load_curves([study], problem_set="near", metric="best@8")


def test_training_scores_of_a_study_are_not_validation(study: Path) -> None:
    assert {c.problem_set for c in load_curves([study], split="train")} == {"train"}
    with pytest.raises(InputError, match="must be one of 'train', but got 'near'"):
        load_curves([study], split="train", problem_set="near")


def test_tidy_files_and_published_curves(tmp_path: Path) -> None:
    file = tidy(tmp_path / "a.csv", HEAD, "32,8,100,0.1", "32,8,200,0.2")
    (curve,) = load_curves([str(file)])
    assert curve.score_K.tolist() == [0.1, 0.2]
    assert {c.metric for c in load_curves(["published:qwen2.5-7b-easy"])} == {"avg@4"}


def test_the_split_of_a_tidy_file_is_kept_apart(tmp_path: Path) -> None:
    file = tidy(
        tmp_path / "a.csv", f"{HEAD},split", "32,8,100,0.1,validation", "32,8,100,0.9,train"
    )
    assert load_curves([file])[0].score_K.tolist() == [0.1]
    assert load_curves([file], split="train")[0].score_K.tolist() == [0.9]


def test_metrics_are_chosen_by_name_alias_or_as_the_only_mean(tmp_path: Path) -> None:
    file = tidy(tmp_path / "a.csv", f"{HEAD},metric", "32,8,100,0.1,avg@4", "32,8,100,0.9,best@4")
    assert load_curves([file])[0].metric == "avg@4"
    assert load_curves([file], metric="best@4")[0].score_K.tolist() == [0.9]
    assert load_curves([file], metric="pass@4")[0].score_K.tolist() == [0.9]
    with pytest.raises(InputError, match="must be one of 'avg@4', 'best@4', but got 'worst@4'"):
        load_curves([file], metric="worst@4")
    two = tidy(tmp_path / "b.csv", f"{HEAD},metric", "32,8,100,0.1,avg@4", "32,8,100,0.2,avg@8")
    with pytest.raises(InputError, match="choose one with --metric"):
        load_curves([two])


def test_the_columns_best_and_worst_answer_to_the_samples_of_the_mean(tmp_path: Path) -> None:
    file = tidy(tmp_path / "a.csv", f"{HEAD},metric,best,worst", "32,8,100,0.5,avg@4,0.9,0.1")
    for name, score in (("best@4", 0.9), ("pass@4", 0.9), ("worst@4", 0.1), ("best", 0.9)):
        assert load_curves([file], metric=name)[0].score_K.tolist() == [score]
    with pytest.raises(InputError, match="must be one of 'avg@4', 'best', 'worst', but got"):
        load_curves([file], metric="best@8")


def test_scores_on_another_scale(tmp_path: Path) -> None:
    file = tidy(tmp_path / "a.csv", HEAD, "32,8,100,10", "32,8,200,20")
    (curve,) = load_curves([file], score_range=(0, 100))
    assert (curve.score_K.tolist(), curve.score_range) == ([0.1, 0.2], (0, 100))
    signs = tidy(tmp_path / "b.csv", HEAD, "32,8,100,10%", "32,8,200,20%")
    (curve,) = load_curves([signs])
    assert (curve.score_K.tolist(), curve.score_range) == ([0.1, 0.2], (0, 100))
    shares = tidy(tmp_path / "c.csv", HEAD, "32,8,100,0.1", "32,8,200,0.2")
    assert load_curves([shares])[0].score_range == (0, 1)


def test_several_sources_are_one_sweep(tmp_path: Path) -> None:
    a = tidy(tmp_path / "a.csv", HEAD, "32,8,100,0.1")
    b = tidy(tmp_path / "b.csv", HEAD, "32,16,100,0.2")
    assert [c.rollouts_per_problem for c in load_curves([a, b])] == [8, 16]


def test_a_folder_of_tables_is_its_tables(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    settings = settings_from({"pattern": "n{rollouts_per_problem}", "problems_per_batch": 32})
    files = [tidy(folder / f"n{n}.csv", "rollouts,score", f"100,0.{n}") for n in (1, 2)]
    (folder / "README.md").write_text("where these come from")
    (folder / ".DS_Store").write_bytes(b"\0")
    curves = load_curves(folder, settings=settings)
    assert [(c.rollouts_per_problem, *c.score_K) for c in curves] == [(1, 0.1), (2, 0.2)]
    apart = load_curves(files, settings=settings)
    assert [c.run for c in curves] == [c.run for c in apart]
    (folder / "run.log").write_text("a log that nobody knows")
    said: list[str] = []
    beside = load_curves(folder, settings=settings, say=said.append)
    assert [c.run for c in beside] == [c.run for c in apart]
    assert said == [f"{folder}: its 2 tables are read; no other file in it is a known log"]


def test_a_run_that_two_tables_hold_in_part_is_one_run(tmp_path: Path) -> None:
    """Cut within a run, a table of 21 runs was read as one of 22."""
    folder = tmp_path / "parts"
    folder.mkdir()
    head, rows = HEAD + ",run,tokens", [f"32,8,{100 * k},0.{k + 1},a,{900 * k}" for k in range(6)]
    files = [tidy(folder / f"{i}.csv", head, *part)
             for i, part in enumerate((rows[4:], rows[:2], rows[2:4]))]  # fmt: skip
    for source in (folder, files):
        (one,) = load_curves(source)
        assert one.rollouts_K.tolist() == [0, 100, 200, 300, 400, 500]
        assert one.score_K.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
        assert one.tokens_K is not None
        assert one.tokens_K.tolist() == [900 * k for k in range(6)]
    # One that begins before the other has ended, or counts anew, is another run of that name.
    for part in ("32,8,50,0.9,a,900", "32,8,250,0.9,a,300", "32,8,100,0.9,a,900"):
        tidy(files[0], head, part)
        assert len(load_curves(files[:2])) == 2


def test_a_run_in_two_sources_is_said_in_the_singular(tmp_path: Path) -> None:
    rows = [f"32,8,{100 * k},0.{k + 1}" for k in range(6)]
    files = [tidy(tmp_path / name, HEAD, *rows) for name in ("a.csv", "b.csv")]
    said: list[str] = []
    assert len(load_curves(files, say=said.append)) == 1
    assert said[0].startswith("a run stands in more than one source and is counted once ('")


def test_a_table_beside_a_log_that_is_known_is_left_alone(tmp_path: Path) -> None:
    tidy(tmp_path / "a.csv", HEAD, "32,8,100,0.1")
    rows = [{"step": s, "data": {"val-core/math/acc/mean@4": 0.1 * s}} for s in (0, 1, 2)]
    (tmp_path / "verl.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = settings_from({"problems_per_batch": 16, "rollouts_per_problem": 4})
    curves = load_curves(tmp_path, settings=settings)
    assert {(c.problems_per_batch, c.rollouts_per_problem) for c in curves} == {(16, 4)}


def test_what_is_no_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1 source"):
        load_curves([])
    with pytest.raises(InputError, match=r"^file not found: .*none.csv; check the name"):
        load_curves([tmp_path / "none.csv"])


@pytest.mark.parametrize("source", [3, [3], {"score": [0.5]}, [np.zeros(3)], np.zeros(3)])
def test_what_is_no_path_is_one_line(source: object) -> None:
    with pytest.raises(InputError, match="or a table .pandas, polars, Arrow., but got a "):
        load_curves(source)  # type: ignore[arg-type]


def test_one_source_needs_no_list(tmp_path: Path) -> None:
    file = tidy(tmp_path / "a.csv", HEAD, "32,8,100,0.1")
    assert len(load_curves(file)) == len(load_curves(str(file))) == 1


def test_curves_carry_the_health_rules_that_their_runs_failed(tmp_path: Path) -> None:
    """A step size that drives the policies into one answer: `fit` must not keep it to itself."""
    folder = make(tmp_path, "recipe: {learning_rate: 4000, warmup_steps: 0}")
    with Store(folder) as store:
        found = study_health(store)
    failed = {
        name: tuple(sorted({f.code for f in rules if f.severity == "failure"}))
        for name, rules in found.items()
    }
    curves = load_curves([folder], problem_set="near")
    assert {c.run: c.failed_rules for c in curves} == failed
    assert any(failed.values())


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_export_is_read_back_from_its_folder(study: Path, tmp_path: Path, format: str) -> None:
    pytest.importorskip("pyarrow")
    export_study(study, tmp_path / "out", format=format)
    truth = load_curves([study], problem_set="near", metric="avg@4")
    read = load_curves([tmp_path / "out"], problem_set="near")
    whose = [sorted(curves, key=lambda c: (c.configuration, c.seed)) for curves in (read, truth)]
    for one, other in zip(*whose, strict=True):
        assert (one.configuration, one.seed) == (other.configuration, other.seed)
        assert one.rollouts_K.tolist() == other.rollouts_K.tolist()
        assert one.score_K == pytest.approx(other.score_K)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_imported_runs_of_an_export_are_read_back_too(tmp_path: Path, format: str) -> None:
    pytest.importorskip("pyarrow")
    Database(tmp_path / "s", create=True).close()
    row = {"problems_per_batch": 8, "rollouts_per_problem": 2, "score": 0.5, "metric": "avg"}
    rows = [row | {"rollouts": 16 * k, "run": "a"} for k in range(1, 4)]
    export_study(tmp_path / "s", tmp_path / "out", format=format, imported=rows)
    (curve,) = load_curves([tmp_path / "out"])
    assert (curve.configuration, curve.rollouts_K.tolist()) == ((8, 2), [16, 32, 48])


def test_means_of_any_k_are_one_metric_beside_other_means(tmp_path: Path) -> None:
    said: list[str] = []
    rows = [f"8,{n},{16 * n},{score},{metric},{n}" for n, k in ((2, 4), (4, 8))
            for metric, score in ((f"avg@{k}", 0.5), (f"avg@{k}:tests", 0.25))]  # fmt: skip
    file = tidy(tmp_path / "t.csv", HEAD + ",metric,run", *rows)
    for metric, score in (("avg", 0.5), ("avg:tests", 0.25), (None, 0.5)):
        assert not said  # who names avg is told nothing of it
        read = load_curves([file], metric=metric, say=said.append)
        assert [(c.rollouts_per_problem, c.score_K[0]) for c in read] == [(2, score), (4, score)]
    assert any("avg@4, avg@8 are read as avg:" in line for line in said)
    (only,) = load_curves([file], metric="avg@4")
    assert only.metric == "avg@4"
    rows += ["8,2,32,0.75,avg@2,2"]  # a second mean of one run
    with pytest.raises(InputError, match="must hold one metric"):
        load_curves([tidy(tmp_path / "u.csv", HEAD + ",metric,run", *rows)])
