"""What the twenty-ninth blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import import_logs, read_log
from layout_helpers import drawn, load, refused, score, write

STEPS = range(0, 41, 10)
MAP = ("dev/exact=avg",)


# A run of a sweep that others name as their parent, with their last scores over something else.


def swept(*, trains: bool) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Metrics of each run: key -> (step, value)."""
    last = [(n, score(40, n)) for n in (2, 4)]
    runs = {"all": {"dev/exact": last, "best": [(0, 0.5)]}}
    if trains:
        runs["all"]["train/reward"] = [(s, 0.4) for s in range(1, 41)]
    for n in (2, 4):
        runs[f"n{n}"] = {
            "dev/exact": [(s, score(s, n)) for s in STEPS],
            "train/loss": [(s, 0.1) for s in range(1, 41)],
        }
    return runs


def params(name: str) -> dict[str, object]:
    shared = {"prompts_per_step": 6, "seed": 3}
    return shared if name == "all" else {"rollouts_per_prompt": int(name[1:])}


def in_folders(folder: Path, *, trains: bool = False) -> None:
    for name, metrics in swept(trains=trains).items():
        home = folder / "mlruns" / "7" / name
        write(home / "meta.yaml", f"run_name: {name}\nstatus: 3\n")
        for key, rows in metrics.items():
            write(home / "metrics" / key, "".join(f"1 {v} {step}\n" for step, v in rows))
        for key, value in params(name).items():
            write(home / "params" / key, str(value))
        if name != "all":
            write(home / "tags" / "mlflow.parentRunId", "all")


def in_database(folder: Path, *, trains: bool = False) -> None:
    with sqlite3.connect(folder / "mlflow.db") as db:
        db.execute("CREATE TABLE runs (run_uuid, name, status, lifecycle_stage)")
        db.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        db.execute("CREATE TABLE params (key, value, run_uuid)")
        db.execute("CREATE TABLE tags (key, value, run_uuid)")
        for name, metrics in swept(trains=trains).items():
            db.execute("INSERT INTO runs VALUES (?, ?, 'FINISHED', 'active')", (name, name))
            db.executemany("INSERT INTO metrics VALUES (?, ?, 1, ?, ?, 0)",
                           [(k, v, name, s) for k, rows in metrics.items() for s, v in rows])
            db.executemany("INSERT INTO params VALUES (?, ?, ?)",
                           [(k, str(v), name) for k, v in params(name).items()])
            if name != "all":
                db.execute("INSERT INTO tags VALUES ('mlflow.parentRunId', 'all', ?)", (name,))
    db.close()


@pytest.mark.parametrize("store", [in_folders, in_database])
def test_a_parent_without_rows_of_training_is_no_run(tmp_path: Path, store) -> None:
    store(tmp_path)
    found = load(tmp_path, MAP)
    assert drawn(found) == {(6, n, 3): [6 * n * s for s in STEPS] for n in (2, 4)}
    notes = [note for run in read_log(tmp_path) for note in run.notes]
    assert any(n.startswith("all is the parent of other runs, has no rows of") for n in notes)


@pytest.mark.parametrize("store", [in_folders, in_database])
def test_a_parent_that_trains_is_a_run(tmp_path: Path, store) -> None:
    store(tmp_path, trains=True)
    assert len(read_log(tmp_path)) == 3


# Evaluations that a tracker numbers, since they were logged without a step.


def numbered(folder: Path, first: int = 0, updates: int = 40, **said: object) -> None:
    """One before training, and one every 6 updates."""
    for n in (2, 4):
        rows: list[dict[str, object]] = [
            {"step": first + i, "train/reward": 0.4} for i in range(updates)
        ]
        rows += [{"step": i, "dev/exact": score(6 * i, n)} for i in range(updates // 6 + 1)]
        home = folder / f"g{n}"
        write(home / "log.jsonl", "\n".join(map(json.dumps, rows)))
        write(home / "config.json", json.dumps({"prompts_per_step": 5, "group_size": n, **said}))


def places(updates: int = 40) -> dict[tuple[int, int, int | None], list[float]]:
    return {(5, n, None): [5 * n * s for s in range(0, updates + 1, 6)] for n in (2, 4)}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("updates", [36, 40])
def test_numbered_evaluations_stand_at_their_updates(
    tmp_path: Path, first: int, updates: int
) -> None:
    numbered(tmp_path, first, updates, eval_every=6)
    assert drawn(load(tmp_path, MAP)) == places(updates)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("updates", [36, 40])
def test_numbered_evaluations_are_asked_about_where_nothing_says_how_often(
    tmp_path: Path, first: int, updates: int
) -> None:
    numbered(tmp_path, first, updates)
    told = refused(tmp_path, MAP)
    assert f"{updates // 6 + 1} evaluations stand one by one to step 6 of {updates}; if " in told
    assert "--set eval_every=6, say), else --set step=step" in told
    assert drawn(load(tmp_path, MAP, ["eval_every=6"])) == places(updates)
    beyond = refused(tmp_path, MAP, ["eval_every=9"])
    assert f"(eval_every), the last is at 54, and the training ends at {updates};" in beyond
    as_they_are = drawn(load(tmp_path, MAP, ["step=step"]))
    assert as_they_are[5, 2, None] == [10 * i for i in range(updates // 6 + 1)]


def test_a_run_under_way_that_is_evaluated_at_each_update_is_read(tmp_path: Path) -> None:
    for n in (2, 4):
        rows = [{"step": s, "dev/exact": score(s, n), "train/reward": 0.3} for s in range(7)]
        write(tmp_path / f"g{n}" / "log.jsonl", "\n".join(map(json.dumps, rows)))
        said = {"prompts_per_step": 5, "group_size": n, "num_updates": 40}
        write(tmp_path / f"g{n}" / "config.json", json.dumps(said))
    assert drawn(load(tmp_path, MAP))[5, 2, None] == [10 * s for s in range(7)]


# A log that goes on with the counter of what was before it.


def test_a_log_that_begins_late_began_before_its_first_update(tmp_path: Path) -> None:
    for n in (2, 4):
        rows = [{"step": s, "loss": 0.1, "grad_norm": 1.0}
                | ({"dev/exact": score(s, n)} if s % 10 == 0 else {})
                for s in range(81, 121)]  # fmt: skip
        write(tmp_path / f"g{n}" / "log.jsonl", "\n".join(map(json.dumps, rows)))
        said = {"prompts_per_step": 5, "group_size": n}
        write(tmp_path / f"g{n}" / "config.json", json.dumps(said))
    told = refused(tmp_path, MAP)
    assert "--set begins=80 if it went on from another run's checkpoint (40 in all)" in told
    found = drawn(load(tmp_path, MAP, ["begins=80"]))
    assert found[5, 4, None] == [20 * s for s in range(10, 41, 10)]


# Accelerate's file beside the configuration that says the batch of one device.


def test_accelerate_beside_the_configuration_says_the_processes(tmp_path: Path) -> None:
    for n in (4, 8):
        said = {"num_generations": n, "per_device_train_batch_size": 8, "output_dir": f"out/n{n}",
                "gradient_accumulation_steps": 2}  # fmt: skip
        write(tmp_path / "recipes" / f"n{n}.json", json.dumps(said))
        rows = [{"step": s, "epoch": s / 100, "eval_rewards/exact/mean": score(s, n),
                 "eval_reward": score(s, n)} for s in STEPS]  # fmt: skip
        state = {"global_step": 40, "log_history": rows, "max_steps": 40}
        write(tmp_path / "out" / f"n{n}" / "checkpoint-40" / "trainer_state.json",
              json.dumps(state))  # fmt: skip
    assert "processes=P" in refused(tmp_path, metric="avg:exact")
    write(tmp_path / "recipes" / "four.yaml", "distributed_type: FSDP\nnum_processes: 4\n")
    found = load(tmp_path, metric="avg:exact")
    assert {(c.problems_per_batch, c.rollouts_per_problem) for c in found} == {(16, 4), (8, 8)}
    write(tmp_path / "recipes" / "two.yaml", "distributed_type: FSDP\nnum_processes: 2\n")
    assert "processes=P" in refused(tmp_path, metric="avg:exact")


# A sheet in German, its settings above its curves.

SHEET = """Vergleich der Gruppen;;
Lauf;n2-s1;n4-s1
Aufgaben;20;20
Rollouts gesamt;1.600;3.200
Lernrate;1,0E-06;1,0E-06
;;
Schritt;n2-s1;n4-s1
"""
ROWS = [f"{s};{score(s, 2) * 100:.3f};{score(s, 4) * 100:.3f}".replace(".", ",") for s in STEPS]
HIGHEST = ROWS[-1].partition(";")[2]
READ = ["pattern=n{rollouts_per_problem}-s{seed}", "problems_per_batch=20"]


@pytest.mark.parametrize("foot", ["", f";;\nBestwert;{HIGHEST}\n"])
def test_settings_above_a_repeated_header_are_of_the_columns(tmp_path: Path, foot: str) -> None:
    table = write(tmp_path / "t.csv", SHEET + "\n".join(ROWS) + "\n" + foot)
    with pytest.raises(InputError) as caught:
        import_logs([table], tmp_path / "study")
    line = str(caught.value).rpartition(": ")[2]
    assert "--set problems_per_batch=B_P --map Schritt=steps --range 0 100" in line
    found = load(table, ["Schritt=steps"], READ, score_range=(0, 100))
    assert drawn(found) == {(20, n, 1): [20 * n * s for s in STEPS] for n in (2, 4)}
    assert found[0].score_K[1] == pytest.approx(score(10, found[0].rollouts_per_problem))
    told = load(table, ["Schritt=steps", "Aufgaben=problems_per_batch"], READ[:1],
                score_range=(0, 100))  # fmt: skip
    assert drawn(told) == drawn(found)


def test_a_last_row_that_is_no_highest_one_is_asked_about(tmp_path: Path) -> None:
    foot = f"Bestwert;{ROWS[0].partition(';')[2]}\n"
    table = write(tmp_path / "t.csv", SHEET + "\n".join(ROWS) + "\n" + foot)
    told = refused(table, ["Schritt=steps"], READ, score_range=(0, 100))
    assert "has 'Bestwert'; correct or empty that cell, or drop its row" in told


def test_three_digits_behind_a_comma_may_be_thousands_where_nothing_says(tmp_path: Path) -> None:
    text = SHEET.replace("Lernrate;1,0E-06;1,0E-06\n", "") + "\n".join(ROWS) + "\n"
    told = refused(write(tmp_path / "t.csv", text), ["Schritt=steps"], READ, score_range=(0, 100))
    assert "must hold numbers, but row 1 has '20,200'" in told
