"""Layouts of the nineteenth blind set, after their principles: other names, other shapes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from isocompute.importers import read_log
from isocompute.importers.words.settings import load_settings
from layout_helpers import MAP, drawn, lines, load, of, refused, write
from test_set_17 import AT, N, score, store

# Dumps of rewards that are -1 and 1.


def dump(folder: Path, right: float, wrong: float, third: float | None = None) -> None:
    for step in (0, 10, 20):
        rows = [{"input_prompt": f"p{p}", "output_response": "x", "data_source": "m",
                 "score": right if (p + s) % 4 < step // 10 else wrong}
                for p in range(5) for s in range(4)]  # fmt: skip
        if third is not None and step == 20:
            rows[0]["score"] = third
        lines(folder / "dumped_evals" / f"global_step_{step}_evals" / "m.jsonl", rows)


def test_rewards_of_minus_1_and_1_are_failures_and_successes(tmp_path: Path) -> None:
    dump(tmp_path / "out" / "qwen_n8", 1.0, -1.0)
    write(tmp_path / "scripts" / "go.sh", "main trainer.train_batch_size=40 trainer.seed=3 \\\n"
          "  generator.n_samples_per_prompt=8 trainer.export_path=$HOME/out/qwen_n8\n")  # fmt: skip
    (curve,) = load(tmp_path / "out", metric="avg@4")
    assert (curve.run, curve.score_K.tolist()) == ("qwen_n8", [0.0, 0.25, 0.5])
    assert drawn([curve]) == {(40, 8, 3): [0, 3200, 6400]}
    (best,) = load(tmp_path / "out", metric="best@4")
    assert best.score_K.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(("third", "outside"), [(0.5, True), (0.0, True), (-1.0, False)])
def test_rewards_beside_minus_1_and_1_stay_rewards(
    tmp_path: Path, third: float, outside: bool
) -> None:
    dump(tmp_path, 1.0, -1.0, third)
    sets = ("problems_per_batch=40", "rollouts_per_problem=8")
    if outside:
        assert "--range LOW HIGH" in refused(tmp_path, (), sets)
    else:
        assert load(tmp_path, (), sets, metric="avg@4")[0].score_K.tolist()[:2] == [0.0, 0.25]


# Configurations: of each checkpoint, of an evaluation alone, in a folder of another name.


def test_each_checkpoint_keeps_the_configuration(tmp_path: Path) -> None:
    grpo = {"num_prompts_per_step": 40, "num_generations_per_prompt": 8, "seed": 3}
    for s in AT:
        home = tmp_path / "out" / "nano-g8" / f"step_{s}"
        info = {"consumed_samples": 40 * s, "current_step": s, "val:accuracy": score(s, 8)}
        write(home / "training_info.json", json.dumps(info))
        write(home / "config.yaml", json.dumps({"grpo": grpo}))
    (curve,) = load(tmp_path)
    assert drawn([curve]) == of(40, 8, 3)
    assert (curve.run, curve.score_K.tolist()) == ("nano-g8", [score(s, 8) for s in AT])


@pytest.mark.parametrize(("key", "value"), [
    ("trainer.val_only", True), ("eval_only", True), ("trainer.val_only", False),
])  # fmt: skip
def test_the_configuration_of_an_evaluation_alone_is_none(
    tmp_path: Path, key: str, value: bool
) -> None:
    home = tmp_path / "runs" / "q_n8"
    lines(home / "log.jsonl", ({"step": s, "val/accuracy": score(s, 8)} for s in AT))
    config = {"prompts_per_step": 64, "group_size": 1, key: value}
    write(home / "config.json", json.dumps(config))
    write(tmp_path / "examples" / "q_n8.sh", "x --prompts_per_step 40 --group_size 8 --seed 3")
    assert drawn(load(tmp_path, MAP)) == (of(40, 8, 3) if value else of(64, 1, None))


@pytest.mark.parametrize("folder", ["train_configs", "conf", "../configs"])
def test_a_folder_of_configurations_may_have_any_such_name(tmp_path: Path, folder: str) -> None:
    for n in (4, 8):
        lines(tmp_path / "logs" / f"a{n}.jsonl", (
            {"step": s, "val/accuracy": score(s, n)} for s in AT
        ))  # fmt: skip
        config = {"prompts_per_step": 40, "rollouts_per_example": n, "seed": 3}
        write(tmp_path / "logs" / folder / f"a{n}.json", json.dumps(config))
    assert drawn(load(tmp_path / "logs", MAP)) == {**of(40, 4, 3), **of(40, 8, 3)}
    # What lies in a folder that only has such a word in its name is somebody else's.
    write(tmp_path / "logs" / "conference_2026" / "a4.json", json.dumps({"group_size": 5}))
    write(tmp_path / "new_configurations_of_it" / "a8.yaml", "group_size: 5\n")
    assert drawn(load(tmp_path / "logs", MAP)) == {**of(40, 4, 3), **of(40, 8, 3)}


# MLflow: what all runs share stands with their parent.


@pytest.mark.parametrize("files", [False, True])
def test_a_child_has_the_parameters_of_its_parent(tmp_path: Path, files: bool) -> None:
    shared = {"prompts_per_step": "40", "seed": "1"}
    own = {"group_size": str(N), "seed": "3"}
    if files:
        runs = store(tmp_path, [(s, "val/accuracy", score(s, N)) for s in AT]).parent
        child, parent = runs / "mlruns" / "1" / "u", runs / "mlruns" / "1" / "p"
        write(child / "tags" / "mlflow.parentRunId", "p\n")
        write(parent / "meta.yaml", "run_name: sweep\nlifecycle_stage: active\n")
        (parent / "metrics").mkdir()
        for home, params in ((child, own), (parent, shared)):
            for file in (home / "params").glob("*"):
                file.unlink()
            for key, value in params.items():
                write(home / "params" / key, value)
        file = child / "metrics" / "val" / "accuracy"
        file.write_text("".join(f"1 {score(s, N)} {s}\n" for s in AT))
    else:
        with sqlite3.connect(tmp_path / "mlflow.db") as db:
            db.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
            db.execute("CREATE TABLE runs (run_uuid, name, lifecycle_stage)")
            db.execute("CREATE TABLE params (run_uuid, key, value)")
            db.execute("CREATE TABLE tags (key, value, run_uuid)")
            db.execute("INSERT INTO tags VALUES ('mlflow.parentRunId', 'p', 'u')")
            db.executemany("INSERT INTO runs VALUES (?, ?, 'active')",
                           [("u", "child"), ("p", "sweep")])  # fmt: skip
            for run, params in (("p", shared), ("u", own)):
                db.executemany("INSERT INTO params VALUES (?, ?, ?)",
                               [(run, *pair) for pair in params.items()])  # fmt: skip
            db.executemany("INSERT INTO metrics VALUES ('val/accuracy', ?, 1, 'u', ?, 0)",
                           [(score(s, N), s) for s in AT])  # fmt: skip
    assert "rollouts_per_problem" not in refused(tmp_path)  # the parent's is none of its
    assert drawn(load(tmp_path, MAP)) == of(40, N, 3)
    inferred = [line for run in read_log(tmp_path, settings=load_settings([], [*MAP]))
                for line in run.provenance.inferred]  # fmt: skip
    assert "configuration: of its parent run sweep, too" in inferred


# Names that end with a seed and a time; a loop whose evaluations come in late.


def test_a_seed_before_a_time_is_part_of_the_pattern(tmp_path: Path) -> None:
    for n, seed in ((4, 1), (8, 1), (8, 2)):
        run = f"math_n{n}__{seed}__174160000{n}"
        lines(tmp_path / f"{run}.jsonl", (
            {"step": s, "val/accuracy": score(s, n, seed / 100)} for s in AT
        ))  # fmt: skip
    pattern = "n{rollouts_per_problem}__{seed}__"
    assert f"--set pattern='{pattern}'" in refused(tmp_path, MAP)
    curves = load(tmp_path, MAP, (f"pattern={pattern}", "problems_per_batch=40"))
    assert drawn(curves) == {**of(40, 4, 1), **of(40, 8, 1), **of(40, 8, 2)}


@pytest.mark.parametrize("key", ["eval_of_iter", "val_of_step"])
def test_a_table_beside_its_arguments_is_a_log_whose_scores_may_be_late(
    tmp_path: Path, key: str
) -> None:
    head = f"iter,loss,trained,{key},heldout_acc\n"
    cells = [f"{i},0.1,{320 * i},,\n" for i in range(1, 61)]
    for s in AT:
        cells[s + 6] = f"{s + 7},0.1,{320 * (s + 7)},{s},{score(s, 8)}\n"
    write(tmp_path / "k8" / "log.csv", head + "".join(cells))
    config = {"problems_per_iter": 40, "samples_per_problem": 8, "seed": 3}
    write(tmp_path / "k8" / "args.json", json.dumps(config))
    told = refused(tmp_path)
    assert f"--set step={key}" in told
    assert "--map heldout_acc=avg" in told
    assert "must be known" not in told
    maps, sets = ("heldout_acc=avg",), (f"step={key}",)
    (curve,) = load(tmp_path, maps, sets)
    assert drawn([curve]) == of(40, 8, 3)
    assert curve.score_K.tolist() == [score(s, 8) for s in AT]
    (run,) = read_log(tmp_path, settings=load_settings([*sets], [*maps]))
    assert run.n_errors == 0


def test_a_named_column_of_steps_is_handed_over(tmp_path: Path) -> None:
    rows = "".join(f"{s},{s + 1000},{score(s, 8)}\n" for s in AT)
    write(tmp_path / "k8" / "log.csv", f"my_count,step,acc\n{rows}")
    write(tmp_path / "k8" / "args.json", '{"problems_per_iter": 40, "group_size": 8, "seed": 3}')
    assert drawn(load(tmp_path, ("acc=avg",), ("step=my_count",))) == of(40, 8, 3)


# Sheets: runs on one, their scores in columns of their names on another.


def sheets(folder: Path, names: str = "A,B,C") -> Path:
    write(folder / "Setup.csv", "My sweep,,,\n,,,\nRun,Prompts / batch,Rollouts / prompt,Seed\n"
          "A,40,4,1\nB,40,8,1\nC,40,8,2\n")  # fmt: skip
    cells = "".join(f"{s},{100 + s},{110 + s},{120 + s if s != 30 else ''},,\n" for s in AT)
    write(folder / "Eval.csv", f"Right of 400,,,,,\n,,,,,\nUpdate,{names},,\n{cells}")
    return folder


def test_columns_that_a_table_of_runs_names_are_its_runs(tmp_path: Path) -> None:
    sheets(tmp_path)
    assert "--range LOW HIGH" in refused(tmp_path)
    curves = load(tmp_path, score_range=(0.0, 400.0))
    steps = [s for s in AT if s != 30]
    assert drawn(curves) == {
        **of(40, 4, 1), **of(40, 8, 1), (40, 8, 2): [320 * s for s in steps]
    }  # fmt: skip
    by_run = {c.run: c.score_K.tolist() for c in curves}
    assert by_run["C"] == pytest.approx([(120 + s) / 400 for s in steps])
    assert by_run["A"][0] == pytest.approx(0.25)


def test_columns_that_it_does_not_all_name_are_asked_about(tmp_path: Path) -> None:
    sheets(tmp_path, "A,B,D")
    assert "--map KEY=score" in refused(tmp_path / "Eval.csv")
