"""Layouts of the twentieth blind set, after their principles: other names, other shapes."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_log
from isocompute.importers.archive import import_logs
from isocompute.importers.values.wire import masked_crc32c
from isocompute.importers.words.settings import load_settings
from layout_helpers import AT, MAP, drawn, events, lines, load, log, of, refused, score, write

# A run's configuration lies in the folder of its name, elsewhere in the project.


def configure(home: Path, n: int, seed: int) -> None:
    config = {"prompts_per_step": 40, "group_size": n, "seed": seed}
    write(home / ".hydra" / "config.yaml", json.dumps(config))


@pytest.mark.parametrize("place", ["runs", "../outputs", ".", ".."])
def test_a_folder_of_the_run_s_name_holds_its_configuration(tmp_path: Path, place: str) -> None:
    for n, seed in ((4, 1), (8, 2)):
        log(tmp_path / "p" / "logs", f"q_n{n}", n)
        configure(tmp_path / "p" / "logs" / place / f"q_n{n}", n, seed)
    assert drawn(load(tmp_path / "p" / "logs", MAP)) == {**of(40, 4, 1), **of(40, 8, 2)}


@pytest.mark.parametrize(("run", "homes"), [
    ("q_n4", ["out", "runs"]), ("grpo", ["out"]), ("q_n4", ["../out"]), ("q_n4", ["other"]),
])  # fmt: skip
def test_several_far_or_others_folders_of_a_name_or_one_of_a_plain_word_hold_none(
    tmp_path: Path, run: str, homes: list[str]
) -> None:
    log(tmp_path / "p" / "logs", run, 4)
    log(tmp_path / "p" / "logs", "another_n4", 4)
    for home in homes:
        configure(tmp_path / "p" / home / run, 4, 1)
    assert "must be known" in refused(tmp_path / "p" / "logs", MAP)


# TensorBoard: arguments as a table of text, a step that counts rollouts.


def table_of(path: Path, arguments: dict[str, object]) -> None:
    """CleanRL's `hyperparameters`, before the scalars of an event file."""
    def field(number: int, data: bytes) -> bytes:
        size, out = len(data), b""
        while size > 0x7F:
            size, out = size >> 7, out + bytes([size & 0x7F | 0x80])
        return bytes([number << 3 | 2]) + out + bytes([size]) + data

    text = "|param|value|\n|-|-|\n" + "\n".join(f"|{k}|{v}|" for k, v in arguments.items())
    tensor = b"\x08\x07" + field(8, text.encode())
    data = field(5, field(1, field(1, b"hyperparameters/text_summary") + field(8, tensor)))
    length = struct.pack("<Q", len(data))
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)) + data
                     + struct.pack("<I", masked_crc32c(data)) + path.read_bytes())  # fmt: skip


@pytest.mark.parametrize("off", [0, 1])
def test_a_step_that_is_the_trainer_s_counter_times_b_p_n_counts_rollouts(
    tmp_path: Path, off: int
) -> None:
    rows = [row for s in AT if s for row in (
        (320 * s, "training_step", float(s)), (320 * s, "eval/scores", score(s, 8)))]
    path = events(tmp_path / "k8" / "events.out.tfevents.1", rows)
    arguments = {"num_unique_prompts_rollout": 40 + off, "num_samples_per_prompt_rollout": 8,
                 "seed": 3, "model_name_or_path": "a|b"}  # fmt: skip
    table_of(path, arguments)
    if off:
        assert "step says 16000 where training_step says 50" in refused(tmp_path)
    else:
        (curve,) = load(tmp_path)
        assert drawn([curve]) == {(40, 8, 3): [320 * s for s in AT if s]}
        (run,) = read_log(tmp_path)
        assert run.provenance.facts["model"] == "a|b"
        assert "step: step counts rollouts, B_p * n = 320 in an update" in run.provenance.inferred


def test_a_console_may_end_in_stdout(tmp_path: Path) -> None:
    text = "".join(f"step:{s} - val/accuracy:{score(s, 8)}\n" for s in AT)
    write(tmp_path / "a_n8" / "logs" / "orchestrator.stdout", text)
    configure(tmp_path / "a_n8", 8, 3)
    assert drawn(load(tmp_path, MAP)) == of(40, 8, 3)


# Runs of two models are no parts of each other.


@pytest.mark.parametrize(("other", "asked"), [
    ("Qwen/Qwen2.5-7B", False), ("out/step_50", True), ("/data/Qwen/Qwen2.5-7B", True),
])  # fmt: skip
def test_runs_of_two_models_do_not_go_on_with_each_other(
    tmp_path: Path, other: str, asked: bool
) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        db.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        db.execute("CREATE TABLE runs (run_uuid, name, lifecycle_stage)")
        db.execute("CREATE TABLE params (run_uuid, key, value)")
        for run, model, shift in (("u", "Qwen/Qwen2.5-1.5B", 0.0), ("v", other, 0.09)):
            db.execute("INSERT INTO runs VALUES (?, 'grpo_n8', 'active')", (run,))
            params = {"prompts_per_step": 40, "group_size": 8, "seed": 3,
                      "model_name_or_path": model}  # fmt: skip
            db.executemany("INSERT INTO params VALUES (?, ?, ?)",
                           [(run, key, str(value)) for key, value in params.items()])  # fmt: skip
            db.executemany("INSERT INTO metrics VALUES ('val/accuracy', ?, 1, ?, ?, 0)",
                           [(score(s, 8, shift), run, s) for s in AT])  # fmt: skip
    if asked:
        assert "as if it went on from its checkpoint" in refused(tmp_path, MAP)
    else:
        runs = read_log(tmp_path, settings=load_settings([], [*MAP]))
        assert [run.series[0].step_K.tolist() for run in runs] == [[*AT]] * 2
        assert "choose with --where model=Qwen/Qwen2.5-1.5B" in refused(tmp_path, MAP)


# A sheet that names a run in its first row alone.


def sheet(path: Path, starts: tuple[int, ...] = (10, 10), gap: str = ",,,,,,\n") -> Path:
    text = f"My runs,,,,,,\n{gap}Run,Problems / batch,Rollouts / problem,Seed,Update,Acc,Note\n"
    for (run, n, seed), first in zip((("A", 4, 1), ("B", 8, 2)), starts, strict=True):
        cells = [f",,,,{s},{score(s, n)},\n" for s in range(first, first + 50, 10)]
        cells[0] = cells[0].replace(",,,,", f"{run},40,{n},{seed},")
        text += "".join(cells) + gap
    return write(path, text)


SHEET = ("Acc=score", "Update=steps")


@pytest.mark.parametrize("gap", [",,,,,,\n", " ,,,,,,\n", ""])
def test_a_sheet_that_names_a_run_once_is_filled_down(tmp_path: Path, gap: str) -> None:
    table = sheet(tmp_path / "t.csv", gap=gap or "")
    curves = load(table, SHEET)
    assert drawn(curves) == {(40, n, seed): [40 * n * s for s in range(10, 60, 10)]
                             for n, seed in ((4, 1), (8, 2))}  # fmt: skip
    assert [c.run for c in curves] == ["A", "B"]


@pytest.mark.parametrize(("old", "new"), [
    (",,,,20,", ",,,7,20,"),  # a seed that changes beneath
    ("B,40,8,2,10,", ",,,,10,"),  # the next run without a name
    ("B,40,8,2,10,", "B,40,8,2,60,"),  # steps that go on with it
    ("A,40,4,1,10,", ",,,,10,"),  # none at first
])  # fmt: skip
def test_a_sheet_that_may_mean_something_else_is_refused(
    tmp_path: Path, old: str, new: str
) -> None:
    table = sheet(tmp_path / "t.csv")
    table.write_text(table.read_text().replace(old, new, 1))
    assert "fill empty cells down" in refused(table, SHEET)


def test_empty_rows_between_named_ones_are_none(tmp_path: Path) -> None:
    rows = "".join(f"40,8,{s},{score(s, 8)}\n" + ",,,\n" * (s == 20) for s in AT)
    head = "problems_per_batch,rollouts_per_problem,steps,score\n"
    table = write(tmp_path / "t.csv", head + rows)
    assert drawn(load(table)) == of(40, 8, None)


# Shares of errors.


def test_a_loop_that_logs_errors_is_read_as_one_minus_them(tmp_path: Path) -> None:
    head = {"ev": "go", "hp": {"queries_per_iter": 40, "attempts_per_task": 8, "rng": 3}}
    rows = [{"ev": "held", "t": s, "test_err": round(1 - score(s, 8), 5)} for s in AT]
    trained = [{"ev": "up", "t": s, "train_err": 0.5, "loss": 0.1} for s in AT]
    end = {"ev": "end", "t": 50, "best_test_err": 0.1}
    lines(tmp_path / "fox.jsonl", [head, *rows, *trained, end])
    told = refused(tmp_path, (), ("step=t",))
    assert "name the score (--map test_err=1-avg, which reads 1 minus it)" in told
    with pytest.raises(InputError, match=r"1 minus it\. 2\) `problems_per_batch` and"):
        import_logs([tmp_path / "fox.jsonl"], tmp_path / "st", settings=load_settings(["step=t"]))
    maps = ("queries_per_iter=problems_per_batch", "attempts_per_task=rollouts_per_problem")
    assert f"--map {maps[0]} --map {maps[1]} if they hold these" in told
    (curve,) = load(tmp_path, ("test_err=1-avg", *maps), ("step=t",))
    assert drawn([curve]) == of(40, 8, 3)
    assert curve.score_K.tolist() == pytest.approx([score(s, 8) for s in AT])


@pytest.mark.parametrize("name", ["1-score", "1-avg@4"])
def test_a_table_of_errors_is_read_as_one_minus_them(tmp_path: Path, name: str) -> None:
    rows = "".join(f"40,8,{s},{1 - score(s, 8)}\n" for s in AT)
    table = write(tmp_path / "t.csv", f"problems_per_batch,rollouts_per_problem,steps,err\n{rows}")
    (curve,) = load(table, (f"err={name}",))
    assert curve.score_K.tolist() == pytest.approx([score(s, 8) for s in AT])


def test_errors_in_percent_are_refused(tmp_path: Path) -> None:
    rows = ({"step": s, "val_err": 100 - 100 * score(s, 8)} for s in AT)
    lines(tmp_path / "a.jsonl", rows)
    sets = ("problems_per_batch=40", "rollouts_per_problem=8")
    assert "errors must be shares in 0..1, but one is 79.2" in refused(
        tmp_path, ("val_err=1-avg",), sets
    )


def test_a_count_has_no_one_minus() -> None:
    with pytest.raises(InputError, match="1-steps"):
        load_settings([], ["left=1-steps"])


# A chart of two runs of one name asks for all at once.


@pytest.mark.parametrize("known", [False, True])
def test_a_chart_with_a_name_twice_asks_for_what_is_missing_too(
    tmp_path: Path, known: bool
) -> None:
    name = '"q-bs40-n8 - val/accuracy"'
    write(tmp_path / "c.csv", f'"Step",{name},{name}\n' + "".join(
        f"{s},{'' if s == AT[-1] else s / 99},{s / 70}\n" for s in AT
    ))
    sets = ("pattern=bs{problems_per_batch}-n{rollouts_per_problem}",) if known else ()
    told = refused(tmp_path, MAP, sets)
    assert "columns of one name in a chart must be one run" in told
    assert ("--set pattern='bs{problems_per_batch}-n{rollouts_per_problem}'" in told) != known
