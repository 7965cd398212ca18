"""Layouts of the seventeenth blind set, after their principles: other names, other shapes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_log
from isocompute.importers.words.settings import load_settings
from layout_helpers import drawn, events, lines, load, refused, score

N = 8
AT = range(0, 60, 10)
MAP = ("val/accuracy=avg",)
PARAMS = {"prompts_per_step": "40", "group_size": str(N), "seed": "3", "max_steps": "50"}
RIGHT = {(40, N, 3): [40 * N * s for s in AT]}


# MLflow without `step=`: what one call logged counts its update.


def calls(counter: str) -> list[tuple[int, str, float]]:
    """(time, key, value): a counter before or behind the score, rows of training between."""
    rows: list[tuple[int, str, float]] = []
    for s in range(1, 51):
        if s - 1 in AT:
            rows += [(100 * s, "val/accuracy", score(s - 1, N)), (100 * s, counter, s - 1)]
        rows += [(100 * s + 50, counter, s), (100 * s + 50, "train/loss", 1 / s)]
    return [*rows, (9_000, counter, 50), (9_000, "val/accuracy", score(50, N))]


def database(path: Path, rows: Sequence[tuple[int, str, float]], step: int = 0) -> Path:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        db.execute("CREATE TABLE runs (run_uuid, name, lifecycle_stage)")
        db.execute("CREATE TABLE params (run_uuid, key, value)")
        db.execute("INSERT INTO runs VALUES ('u', 'first', 'active')")
        db.executemany("INSERT INTO params VALUES ('u', ?, ?)", PARAMS.items())
        db.executemany("INSERT INTO metrics VALUES (?, ?, ?, 'u', ?, 0)", (
            (key, value, at, step) for at, key, value in rows
        ))  # fmt: skip
    return path


def store(folder: Path, rows: Sequence[tuple[int, str, float]]) -> Path:
    run = folder / "mlruns" / "1" / "u"
    for name in ("params", "metrics"):
        (run / name).mkdir(parents=True)
    (run / "meta.yaml").write_text("run_name: first\nlifecycle_stage: active\n")
    for key, value in PARAMS.items():
        (run / "params" / key).write_text(value)
    for at, key, number in rows:
        path = run / "metrics" / key
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f"{at} {number} 0\n")
    return folder / "mlruns"


@pytest.mark.parametrize("counter", ["train/global_step", "update"])
@pytest.mark.parametrize("files", [False, True])
def test_mlflow_without_steps_is_read_by_its_calls(
    tmp_path: Path, counter: str, files: bool
) -> None:
    rows = calls(counter)
    source = store(tmp_path, rows) if files else database(tmp_path / "mlflow.db", rows)
    (curve,) = load(source, MAP)
    assert drawn([curve]) == RIGHT
    assert curve.score_K.tolist() == [score(s, N) for s in AT]
    (run,) = read_log(source, settings=load_settings([], MAP))
    assert run.steps == 50


@pytest.mark.parametrize("files", [False, True])
def test_mlflow_without_steps_or_a_known_counter_asks_for_one(tmp_path: Path, files: bool) -> None:
    rows = calls("k")
    source = store(tmp_path, rows) if files else database(tmp_path / "mlflow.db", rows)
    assert "at step 0 (they were logged without step=)" in refused(source, MAP)
    assert drawn(load(source, MAP, ("step=k",))) == RIGHT


def test_a_run_without_scores_stops_no_other(tmp_path: Path) -> None:
    database(tmp_path / "mlflow.db", calls("update"))
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        db.execute("INSERT INTO runs VALUES ('v', 'died', 'active')")
        db.executemany("INSERT INTO metrics VALUES ('cpu', 0.5, ?, 'v', 0, 0)", [(1,), (2,)])
    assert drawn(load(tmp_path / "mlflow.db", MAP)) == RIGHT


def test_mlflow_with_one_call_is_left_alone(tmp_path: Path) -> None:
    (curve,) = load(database(tmp_path / "mlflow.db", [(1, "val/accuracy", 0.2)]), MAP)
    assert (curve.rollouts_K.tolist(), curve.score_K.tolist()) == ([0], [0.2])


def test_mlflow_with_steps_keeps_them(tmp_path: Path) -> None:
    rows = [(s, "val/accuracy", score(s, N)) for s in AT]
    with sqlite3.connect(database(tmp_path / "mlflow.db", rows)) as db:
        db.execute("UPDATE metrics SET step = timestamp")
    assert drawn(load(tmp_path / "mlflow.db", MAP)) == RIGHT


def test_many_scores_at_one_step_stop_whatever_the_log_is(tmp_path: Path) -> None:
    rows = [{"step": 7, "val/accuracy": score(s, N), **PARAMS} for s in AT]
    lines(tmp_path / "log.jsonl", rows)
    told = refused(tmp_path, MAP)
    assert "all 6 scores of val/accuracy stand at step 7; name what counts updates" in told
    lines(tmp_path / "log.jsonl", rows[:2])
    assert len(load(tmp_path, MAP)[0].score_K) == 1


# Scores that arrive late: their counter is of them alone.


def late_rows(key: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"step": s, "train/reward": 0.01 * s} for s in range(1, 51)]
    for s in (0, 10, 20, 30, 40):
        rows[s + 6] |= {"val/accuracy": score(s, N), key: s}
    return rows


@pytest.mark.parametrize("key", ["val/policy_version", "eval/weights_step"])
def test_the_counter_of_an_evaluated_policy_places_scores_alone(tmp_path: Path, key: str) -> None:
    lines(tmp_path / "a" / "log.jsonl", late_rows(key))
    (tmp_path / "a" / "config.json").write_text(json.dumps(PARAMS))
    assert f"--set step={key}" in refused(tmp_path, MAP)
    (run,) = read_log(tmp_path, settings=load_settings([f"step={key}"], MAP))
    by_split = {s.split: s for s in run.series}
    assert by_split["validation"].step_K.tolist() == [0, 10, 20, 30, 40]
    assert by_split["validation"].score_K.tolist() == [score(s, N) for s in (0, 10, 20, 30, 40)]
    assert by_split["train"].step_K.tolist() == [*range(1, 51)]
    assert run.steps == 50
    assert not any("not used" in note for note in run.notes)


def test_a_late_score_without_its_policy_takes_none_of_its_own_row(tmp_path: Path) -> None:
    rows = late_rows("val/policy_version")
    del rows[26]["val/policy_version"]
    lines(tmp_path / "a" / "log.jsonl", rows)
    (tmp_path / "a" / "config.json").write_text(json.dumps(PARAMS))
    (curve,) = load(tmp_path, MAP, ("step=val/policy_version",))
    assert 27 * 40 * N not in curve.rollouts_K.tolist()


# add_scalars: a folder for each line of a chart of one run.


def chart(folder: Path, n: int, seed: int, tag: str, names: Sequence[str]) -> None:
    home = folder / f"g{n}_s{seed}"
    events(home / "events.out.tfevents.1", [(s, "loss", 1.0) for s in range(51)])
    (home / "hparams.yaml").write_text(f"prompts_per_step: 40\ngroup_size: {n}\nseed: {seed}\n")
    for shift, name in enumerate(names):
        rows = [(s, tag, score(s, n, seed / 100 + shift / 10)) for s in AT]
        events(home / name / "events.out.tfevents.2", rows)


@pytest.mark.parametrize(("tag", "names", "key"), [
    ("acc", ("acc/dev", "acc/train"), "acc/dev"),
    ("acc", ("acc_test", "acc_training"), "acc/test"),
    ("score/math", ("score/math/held_out", "score/math/train"), "score/math/held_out"),
    ("score/math", ("score_math_eval", "score_math_train"), "score/math/eval"),
])  # fmt: skip
def test_lines_of_one_chart_are_of_their_run(
    tmp_path: Path, tag: str, names: Sequence[str], key: str
) -> None:
    for n, seed in ((4, 0), (4, 1), (16, 0)):
        chart(tmp_path, n, seed, tag, names)
    assert f"--map {key}=avg" in refused(tmp_path)
    for mapped in (key, tag):  # by the tag alone: what is not of training
        curves = load(tmp_path, (f"{mapped}=avg",))
        assert sorted(drawn(curves)) == [(40, 4, 0), (40, 4, 1), (40, 16, 0)]
        by_run = {c.run: c.score_K.round(5).tolist() for c in curves}
        assert by_run["g4_s1"] == [score(s, 4, 0.01) for s in AT]


def test_two_held_out_lines_are_not_mixed(tmp_path: Path) -> None:
    chart(tmp_path, 4, 0, "acc", ("acc/val", "acc/test"))
    assert "has none of acc; did you mean acc/val?" in refused(tmp_path, ("acc=avg",))


def test_lines_that_are_no_splits_stay_runs(tmp_path: Path) -> None:
    events(tmp_path / "all" / "events.out.tfevents.1", [(s, "loss", 1.0) for s in range(9)])
    for n in (4, 16):
        rows = [(s, "val/acc", score(s, n)) for s in AT]
        events(tmp_path / "all" / "val" / "acc" / f"g{n}" / "events.out.tfevents.2", rows)
    sets = ("pattern=g{rollouts_per_problem}", "problems_per_batch=40")
    assert {c.rollouts_per_problem for c in load(tmp_path, ("val/acc=avg",), sets)} == {4, 16}


def test_a_line_given_alone_is_read(tmp_path: Path) -> None:
    chart(tmp_path, 4, 0, "acc", ("acc/val", "acc/train"))
    sets = ("problems_per_batch=40", "rollouts_per_problem=4")
    (curve,) = load(tmp_path / "g4_s0" / "acc" / "val", ("acc=avg",), sets)
    assert curve.score_K.round(5).tolist() == [score(s, 4) for s in AT]


# Tables and consoles that are refused with what to do.


@pytest.mark.parametrize("sign", ["±", "+/-", "+-", ""])
@pytest.mark.parametrize("edge", ["|", ""])
def test_a_markdown_table_says_how_it_is_written_as_csv(
    tmp_path: Path, sign: str, edge: str
) -> None:
    file = tmp_path / "my table.csv"
    cells = [[str(s), *(f"{score(s, n)} {sign} 0.02" if sign else f"{score(s, n)}"
                        for n in (4, 16))] for s in AT]  # fmt: skip
    rows = [["step", "n4 seed 1", "n16 seed 2"], [":--", "---:", "---"], *cells]
    file.write_text("".join(f"{edge} {' | '.join(row)} {edge}\n" for row in rows), "utf-8")
    told = refused(file)
    assert ("hold two numbers" in told) is bool(sign)
    with pytest.raises(InputError, match="sed -E"):  # of an import, too
        read_log(file)
    command = told[told.index("sed ") : told.index(" && isocompute")]
    subprocess.run(["bash", "-c", command], check=True)
    made = tmp_path / "my table-plain.csv"
    assert "pattern='n{rollouts_per_problem} seed {seed}'" in refused(made)
    sets = ("pattern=n{rollouts_per_problem} seed {seed}", "problems_per_batch=40")
    curves = load(made, (), sets)
    assert sorted(drawn(curves)) == [(40, 4, 1), (40, 16, 2)]
    by_n = {c.rollouts_per_problem: c.score_K.tolist() for c in curves}
    assert by_n[16] == [score(s, 16) for s in AT]


@pytest.mark.parametrize(("word", "cure"), [
    ("base", "0 for the model before training, the last for a final one"),
    ("Final model", "0 for the model before training, the last for a final one"),
    ("mean", "drop its row if it sums up others"),
])
def test_a_word_for_a_step_is_told_apart_from_a_sum(tmp_path: Path, word: str, cure: str) -> None:
    file = tmp_path / "sheet.csv"
    file.write_text("problems_per_batch,rollouts_per_problem,steps,score\n"
                    f"40,8,{word},0.2\n40,8,50,0.4\n")  # fmt: skip
    assert cure in refused(file)


def test_a_console_with_scores_of_one_s_own_does_not_ask_for_the_trainer_s(tmp_path: Path) -> None:
    row = "{'loss': 0.1, 'reward': 0.3, 'epoch': 0.1}\n"
    file = tmp_path / "run.log"
    file.write_text(row + "eval at update 20: 31 / 62 -> 30/60 solved\n" + row)
    told = refused(file)
    assert "its line 'eval at update 20: 31 / 62 -> 30/60 solved' is no trainer's" in told
    assert "step, score (30/60 is 0.5)" in told
    file.write_text(row * 3)
    assert "give the trainer_state.json of the last checkpoint" in refused(file)
