"""What a log or a table holds that is no score of a step: passed over, told or asked about."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from isocompute.importers import import_logs, load_imported, load_settings, read_log
from isocompute.importers.values.wire import masked_crc32c
from layout_helpers import AT, MAP, drawn, events, lines, load, log, of, refused, score, write

SETS = ["problems_per_batch=6", "rollouts_per_problem=4"]


def table(path: Path, names: list[str], rows: list[list[object]]) -> Path:
    return write(path, "".join(",".join(map(str, row)) + "\n" for row in [names, *rows]))


def test_a_model_that_rows_name_by_checkpoint_tells_no_runs_apart(tmp_path: Path) -> None:
    for n in (4, 8):
        lines(tmp_path / f"g{n}.jsonl", [
            {"step": s, "loss": 0.1, "model": f"/ckpt/g{n}/step_{s}", "n": None,
             "val/accuracy": score(s, n)} for s in AT
        ])  # fmt: skip
    given = ["problems_per_batch=6", "pattern=g{rollouts_per_problem}"]
    assert drawn(load(tmp_path, MAP, given)) == {**of(6, 4, None), **of(6, 8, None)}


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    file = table(tmp_path / "g4.csv", ["_step", "val/accuracy", "loss", "loss"],
                 [[s, score(s, 4), 0.1, 0.2] for s in AT])  # fmt: skip
    assert "column names must be unique, but 'loss' occurs more than once" in refused(
        file, MAP, SETS)


def test_a_column_of_steps_that_is_not_there_is_missed(tmp_path: Path) -> None:
    file = table(tmp_path / "g4.csv", ["_step", "val/accuracy", "loss"],
                 [[s, score(s, 4), 0.1] for s in AT])  # fmt: skip
    assert "has none named 'iter'" in refused(file, MAP, [*SETS, "step=iter"])


def test_a_chart_over_an_axis_of_ones_own_is_taken_for_updates(tmp_path: Path) -> None:
    file = table(tmp_path / "chart.csv", ["my_updates", "g4 - val/accuracy"],
                 [[s, score(s, 4)] for s in AT])  # fmt: skip
    (curve,) = load(file, MAP, SETS)
    assert curve.rollouts_K.tolist() == [24 * s for s in AT]
    assert curve.steps_assumed


def test_a_reward_is_not_taken_where_a_share_of_successes_was_not_read(tmp_path: Path) -> None:
    lines(tmp_path / "g4.jsonl", [
        {"step": s, "eval/math/avg_score": 5 * score(s, 4), "held/solve_rate": score(s, 4)}
        for s in AT
    ])  # fmt: skip
    told = refused(tmp_path, (), SETS)
    assert "held/solve_rate was not read; add --map held/solve_rate=avg" in told


def test_a_step_of_a_long_table_that_is_no_count_is_an_error(tmp_path: Path) -> None:
    rows: list[list[object]] = [["val/accuracy", s, score(s, 4)] for s in AT]
    rows.append(["val/accuracy", 12.5, 1])
    file = table(tmp_path / "g4.csv", ["metric", "step", "value"], rows)
    (run,) = read_log(file, settings=load_settings(SETS, [*MAP]))
    assert run.series[0].step_K.tolist() == [*AT]
    assert run.n_errors == 1


def test_samples_without_a_step_are_told(tmp_path: Path) -> None:
    lines(tmp_path / "samples.jsonl", [
        {"input": "q", "output": "a", "gts": "1", "score": 1.0} for _ in range(4)])  # fmt: skip
    assert "a dumped sample must have a step" in refused(tmp_path / "samples.jsonl", (), SETS)


def test_numbers_of_runs_are_no_names(tmp_path: Path) -> None:
    lines(tmp_path / "g4.jsonl", [
        {"run": 3, "step": s, "loss": 0.1, "val/accuracy": score(s, 4)} for s in AT])  # fmt: skip
    assert drawn(load(tmp_path, MAP, SETS)) == of(6, 4, None)


def test_rows_of_a_named_run_may_stand_beside_some_of_no_name(tmp_path: Path) -> None:
    lines(tmp_path / "g4.jsonl", [
        {"run": "mine", "step": s, "loss": 0.1, "val/accuracy": score(s, 4)} for s in AT
    ] + [{"run": None, "step": 50, "done": True}])  # fmt: skip
    assert drawn(load(tmp_path, MAP, SETS)) == of(6, 4, None)


def test_an_event_that_is_no_message_is_passed_over(tmp_path: Path) -> None:
    file = events(tmp_path / "events.out.tfevents.1.host",
                  [(s, "val/accuracy", score(s, 4)) for s in AT])  # fmt: skip
    data, length = b"\x10\xff", b"\x02" + bytes(7)  # a number that never ends
    file.write_bytes(file.read_bytes() + length + masked_crc32c(length).to_bytes(4, "little")
                     + data + masked_crc32c(data).to_bytes(4, "little"))  # fmt: skip
    (run,) = read_log(file, settings=load_settings(SETS, [*MAP]))
    assert (run.n_errors, run.series[0].step_K.tolist()) == (1, [*AT])


def test_a_database_that_is_damaged_on_the_way_says_so(tmp_path: Path) -> None:
    file = tmp_path / "trackio.db"
    with sqlite3.connect(file) as c:
        c.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, "
                  "metrics TEXT)")  # fmt: skip
        c.executemany("INSERT INTO metrics (run_name, step, metrics) VALUES ('mine', ?, ?)", [
            (s, json.dumps({"val/accuracy": score(s, 4), "said": "x" * 900})) for s in range(60)
        ])  # fmt: skip
    c.close()
    whole = file.read_bytes()
    file.write_bytes(whole[:40_960] + b"\xff" * (len(whole) - 40_960))
    (run,) = read_log(file, settings=load_settings(SETS, [*MAP]))
    assert "the database is damaged: what follows the damage was not read" in run.notes
    read = run.series[0]
    assert 0 < read.step_K.size < 60
    assert read.score_K.tolist() == [score(s, 4) for s in read.step_K.tolist()]


def test_two_copies_of_dumps_are_one_run(tmp_path: Path) -> None:
    for i, s in enumerate(AT):
        lines(tmp_path / "a" / f"{s}.jsonl", [
            {"input": f"q{k // 4}", "output": "a", "gts": "1", "score": float(k < i), "step": s}
            for k in range(16)
        ])  # fmt: skip
    shutil.copytree(tmp_path / "a", tmp_path / "copy of a")
    (run,) = read_log(tmp_path, settings=load_settings(SETS))
    labels = sorted(s.metric.label for s in run.series)
    assert labels == ["avg@4", "best@2", "best@4", "worst@2", "worst@4"]


def test_a_log_read_again_under_another_rate_has_that_rate(tmp_path: Path) -> None:
    lines(tmp_path / "a" / "log.jsonl", [
        {"step": s, "val/accuracy": score(s, 4), "more/accuracy": score(s, 5)} for s in AT
    ])  # fmt: skip

    def again(rate: float, *maps: str) -> object:
        write(tmp_path / "a" / "config.json", json.dumps({"group_size": 4, "learning_rate": rate}))
        import_logs([tmp_path / "a"], tmp_path / "study", settings=load_settings(SETS, [*maps]))
        (run,) = load_imported(tmp_path / "study")
        return run.provenance.facts["learning_rate"]

    assert again(1e-6, *MAP, "more/accuracy=avg") == "1e-06"
    assert again(2e-6, *MAP) == "2e-06"


def test_a_score_of_which_nothing_is_there_is_missed(tmp_path: Path) -> None:
    names = ["problems_per_batch", "rollouts_per_problem", "rollouts", "score"]
    rows = [[6, n, 6 * n * s, score(s, n) if n == 4 else ""] for n in (4, 8) for s in AT]
    told = refused(table(tmp_path / "t.csv", names, rows))
    assert "problems_per_batch=6, rollouts_per_problem=8 has 0 of 6 rows with one" in told


@pytest.mark.parametrize("cell", ["1_0", "about 0.3"])
def test_a_cell_that_is_no_number_is_named(tmp_path: Path, cell: str) -> None:
    names = ["problems_per_batch", "rollouts_per_problem", "rollouts", "score"]
    rows: list[list[object]] = [[6, 4, 24 * s, score(s, 4)] for s in AT]
    rows[3][3] = cell
    assert f"column score must hold numbers, but row 4 has '{cell}'" in refused(
        table(tmp_path / "t.csv", names, rows))


def test_results_of_a_run_that_has_scores_of_its_own_are_told(tmp_path: Path) -> None:
    lines(tmp_path / "g4.jsonl", [
        {"step": s, "train/reward": 0.1, "val/accuracy": score(s, 4)} for s in AT])  # fmt: skip
    table(tmp_path / "results.csv", ["run", "checkpoint", "accuracy"],
          [["g4", f"step-{s}", score(s, 9)] for s in AT])  # fmt: skip
    (run,) = read_log(tmp_path, settings=load_settings(SETS, [*MAP]))
    assert run.notes == ("1 other file of the folder gave no run",)
    (held,) = (s for s in run.series if s.split == "validation")
    assert held.score_K.tolist() == [score(s, 4) for s in AT]


@pytest.mark.parametrize("text", [
    "runs:\n  g4: {seed: 3\n", "runs: [1, 2]\n", "runs:\n  g4: 3\n",
])  # fmt: skip
def test_a_list_of_runs_that_breaks_off_says_nothing(tmp_path: Path, text: str) -> None:
    log(tmp_path, "g4", 4)
    write(tmp_path / "runs.yaml", text)
    assert drawn(load(tmp_path, MAP, SETS)) == of(6, 4, None)


def test_a_whole_number_of_tensorboard_is_no_counter(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.host"
    events(file, [(s, tag, value) for s in AT for tag, value in (
        ("val/accuracy", score(s, 4)), ("longest", 512.0), ("training_step", float(s)))])
    assert drawn(load(file, MAP, SETS)) == of(6, 4, None)
    events(file, [(4 * s, tag, value) for s in AT for tag, value in (
        ("val/accuracy", score(s, 4)), ("longest", 512.0), ("training_step", float(s)))])
    assert "step says 200 where training_step says 50" in refused(file, MAP, SETS)


@pytest.mark.parametrize("names", ["step,answer", "run,answer", "run,step,accuracy,answer"])
def test_answers_beside_a_log_may_be_longer_than_a_cell_of_csv(
    tmp_path: Path, names: str
) -> None:
    log(tmp_path, "g4", 4)
    cells = {"run": "g4", "answer": "x" * 200_000}
    row = ",".join(cells.get(name, "1") for name in names.split(","))
    write(tmp_path / "answers.csv", f"{names}\n{row}\n{row}\n")
    write(tmp_path / "sub" / "more.csv", f"{names}\n{names}\n{row}\n" * 3)
    assert drawn(load(tmp_path, MAP, SETS)) == of(6, 4, None)


def test_a_script_that_is_no_python_says_nothing(tmp_path: Path) -> None:
    log(tmp_path, "g4", 4)
    write(tmp_path / "train.py", "GRPOConfig(output_dir=f'out/g{n}', num_generations=n, ((\n")
    assert drawn(load(tmp_path, MAP, SETS)) == of(6, 4, None)
