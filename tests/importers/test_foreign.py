"""Rules for logs of other trainers, one by one; whole layouts of theirs are in `test_layouts`."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.errors import InputError
from isocompute.importers import ImportedRun, read_log, settings_from, to_curves
from isocompute.sources import load_curves

KEY = "val-core/math/acc/mean@4"
NAMED = {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}
GIVEN = {"problems_per_batch": 8, "rollouts_per_problem": 4}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verl(*steps: int, **data: float) -> list[dict[str, Any]]:
    return [{"step": s, "data": {KEY: 0.2 + 0.01 * s, **data}} for s in steps]


def only(runs: list[ImportedRun]) -> ImportedRun:
    assert len(runs) == 1
    return runs[0]


def config(n: int) -> str:
    return json.dumps({"dataset_builder": {"batch_size": 8, "group_size": n}})


def test_a_configuration_beside_a_log_is_read_and_said(tmp_path: Path) -> None:
    write(tmp_path / "run" / "metrics.jsonl", verl(0, 2))
    (tmp_path / "run" / "config.json").write_text(config(4))
    run = only(read_log(tmp_path))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (8, 4)
    assert run.concluded == ("configuration: read from config.json beside the log",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "rollout_batch_size:\n  value: 8\nn_samples_per_prompt:\n  value: 4\n"),
        ("files/config.yaml", "rollout_batch_size:\n  desc: null\n  value: 8\n"
         "n_samples_per_prompt:\n  value: 4\n"),
        (".hydra/config.yaml", "data: {train_batch_size: 8}\n"
         "actor_rollout_ref: {rollout: {n: 4}}\n"),
        ("args.json", '{"num_generations": 4, "per_device_train_batch_size": 4, '
         '"gradient_accumulation_steps": 4, "global_world_size": 2}'),
        ("configs/orch.toml", "batch_size = 32\ngroup_size = 4\n"),
    ],
)
def test_every_trainer_s_configuration_file_gives_b_p_and_n(
    tmp_path: Path, name: str, text: str
) -> None:
    path = write(tmp_path / "run" / "metrics.jsonl", verl(0, 2))
    file = path.parent / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    run = only(read_log(tmp_path))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (8, 4)
    file.write_text("{")  # torn: nothing is taken, and B_p and n are asked for
    assert only(read_log(tmp_path)).problems_per_batch is None


def test_a_configuration_beside_several_logs_is_none_s(tmp_path: Path) -> None:
    for n in (4, 8):
        write(tmp_path / f"bp8_n{n}.jsonl", verl(0, 2 * n))
    (tmp_path / "config.json").write_text(config(4))
    runs = read_log(tmp_path, settings=NAMED)
    assert [run.rollouts_per_problem for run in runs] == [4, 8]


@pytest.mark.parametrize("ending", [".json", ".config.yaml", "_config.json"])
def test_a_configuration_named_for_a_log_is_of_that_log(tmp_path: Path, ending: str) -> None:
    for n in (4, 8):
        write(tmp_path / f"run-{n}.jsonl", verl(0, 2 * n))
        (tmp_path / f"run-{n}{ending}").write_text(config(n))  # JSON is YAML
    runs = read_log(tmp_path)
    assert [run.rollouts_per_problem for run in runs] == [4, 8]
    assert not any("gave no run" in note for run in runs for note in run.notes)


TABLE = (
    '"Name","State","data.train_batch_size","actor_rollout_ref.rollout.n","trainer.nnodes",'
    '"trainer.n_gpus_per_node"\n"a","finished","8","4","2","8"\n"b","finished","8","16","",""\n'
)


def history(last: float) -> str:
    return f"_step,_runtime,val-core/math/acc/mean@4\n0,0,0.1\n1,10,0.2\n2,20,{last}\n"


def test_a_table_of_runs_says_b_p_and_n_of_the_histories_beside_it(tmp_path: Path) -> None:
    for name, last in (("a", 0.3), ("b", 0.4)):
        (tmp_path / f"{name}.csv").write_text(history(last))
    table = tmp_path / "wandb_export.csv"
    table.write_text(TABLE)
    a, b = read_log(tmp_path)
    assert [(r.problems_per_batch, r.rollouts_per_problem) for r in (a, b)] == [(8, 4), (8, 16)]
    assert "configuration: read from wandb_export.csv beside the log" in a.concluded
    assert a.provenance.gpu_s_per_step == pytest.approx(160)  # 10 s on 2 x 8 GPUs
    assert b.provenance.gpu_s_per_step is None  # on how many GPUs is not said
    assert not any("gave no run" in note for note in a.notes)
    # Two rows of one name: which is meant is not known, unless they say the same.
    other, row = tmp_path / "other", TABLE.splitlines()[1]
    other.mkdir()
    (other / "a.csv").write_text(history(0.3))
    (other / "table.csv").write_text(f"{TABLE}{row}\n")
    assert only(read_log(other)).problems_per_batch == a.problems_per_batch
    (other / "table.csv").write_text(f"{TABLE}{row}7\n")
    assert only(read_log(other)).problems_per_batch is None


def test_a_table_of_runs_says_it_of_the_columns_of_a_chart(tmp_path: Path) -> None:
    key = "val-core/math/acc/mean@4"
    rows = "\n".join(f"{i},0.{i},0.{i + 1}" for i in range(3))
    (tmp_path / "chart.csv").write_text(f"trainer/global_step,a - {key},b - {key}\n{rows}\n")
    (tmp_path / "runs.csv").write_text(
        "run,problems_per_batch,rollouts_per_problem\na,8,4\nb,8,16\n"
    )
    assert [run.rollouts_per_problem for run in read_log(tmp_path)] == [4, 16]


def test_a_configuration_beside_a_log_must_agree_with_what_is_given(tmp_path: Path) -> None:
    write(tmp_path / "bp8_n16" / "metrics.jsonl", verl(0, 2))
    (tmp_path / "bp8_n16" / "config.json").write_text(config(4))
    with pytest.raises(InputError, match=r"config\.json .*says 4 and the setting or pattern 16"):
        read_log(tmp_path, settings=NAMED)


def test_a_wandb_file_without_a_record_is_said_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    rule = r"\(7 bytes\) holds no record yet; the run may still be writing or died before its first"
    with pytest.raises(InputError, match=rule):
        read_log(path)
    with pytest.raises(InputError, match=rule):
        read_log(tmp_path)
    write(tmp_path / "bp8_n4.jsonl", verl(0, 2))
    run = only(read_log(tmp_path, settings=NAMED))  # beside others it is passed over, and said
    assert re.search("1 other file of the folder gave no run .*" + rule, run.notes[0])


def test_dynamic_sampling_counts_every_batch_that_was_drawn(tmp_path: Path) -> None:
    drawn = {1: 2, 2: 1, 3: 3}
    rows = verl(0) + [
        {"step": step, "data": {"train/num_gen_batches": count, "response_length/mean": 10.0,
                                KEY: 0.3 + step}}
        for step, count in drawn.items()
    ]
    run = only(read_log(write(tmp_path / "a.jsonl", rows), settings=GIVEN))
    assert run.series[0].rollouts_K.tolist() == [0, 64, 96, 192]
    assert run.series[0].tokens_K.tolist() == [0, 640, 960, 1920]
    # verl's recipe generates batches of another size
    first = {"config": {"data": {"train_batch_size": 8, "gen_batch_size": 24},
                        "actor_rollout_ref": {"rollout": {"n": 4}}}}
    run = only(read_log(write(tmp_path / "b.jsonl", [first, *rows])))
    assert run.series[0].rollouts_K.tolist() == [0, 192, 288, 576]
    run = only(read_log(write(tmp_path / "c.jsonl", [*rows[:2], rows[3]]), settings=GIVEN))
    assert run.series[0].rollouts_K.tolist() == [0, 32, 96]
    assert "not every update says how often" in run.notes[0]


@pytest.mark.parametrize("first", [0, 1])
def test_prime_rl_evaluates_before_the_batch_of_the_same_step(tmp_path: Path, first: int) -> None:
    # before 2026-06 it counts from 0, since then from 1; either way, what was drawn up to the row
    # before an evaluation is behind its policy
    rows = []
    for step in range(first, first + 5):
        rows.append({"step": step, "eval/aime/avg@8": 0.1 * step, "progress/decode_tokens": 100,
                     "progress/total_samples": 30 * (step - first + 1)})
    run = only(read_log(write(tmp_path / "metrics.jsonl", rows), settings=GIVEN))
    s = run.series[0]
    assert s.step_K.tolist() == [0, 1, 2, 3, 4]
    assert s.rollouts_K.tolist() == [0, 30, 60, 90, 120]
    assert s.tokens_K.tolist() == [0, 100, 200, 300, 400]
    assert any("one update earlier" in line for line in run.concluded) == bool(first)


@pytest.mark.parametrize(("steps", "shifted"), [((0, 2, 4, 6), 0), ((0, 1, 3, 5), 1)])
def test_evaluations_on_multiples_are_counted_from_one(
    tmp_path: Path, steps: tuple[int, ...], shifted: int
) -> None:
    rows = [{"step": s, "data": {"response_length/mean": 5.0}} for s in range(7)]
    for s in steps:
        rows[s]["data"][KEY] = 0.1 * s
    run = only(read_log(write(tmp_path / "a.jsonl", rows[:]), settings=GIVEN))
    assert run.series[0].step_K[1:].tolist() == [s + shifted for s in steps[1:]]


def test_a_log_that_starts_over_counts_its_last_start(tmp_path: Path) -> None:
    again = [{"step": s, "data": {KEY: 0.5 + 0.01 * s}} for s in (0, 2, 4)]
    run = only(read_log(write(tmp_path / "a.jsonl", verl(0, 2) + again), settings=GIVEN))
    assert run.series[0].score_K.tolist() == [0.5, 0.52, 0.54]
    assert run.concluded[-1].startswith("rows: the log starts over at step 0; what stands before")
    # back to a checkpoint, and the same rows twice, are no new start
    for more in (again[1:], verl(0, 2)):
        run = only(read_log(write(tmp_path / "a.jsonl", verl(0, 2) + more), settings=GIVEN))
        assert run.series[0].score_K[:2].tolist() == [0.2, 0.22]


def test_a_reward_is_not_taken_for_the_accuracy_beside_it(tmp_path: Path) -> None:
    def rows(share: float) -> list[dict[str, Any]]:
        return [{"step": s, "eval_reward": share * (0.2 + s) + 1 - share,
                 "eval_rewards/accuracy/mean": 0.2 + s} for s in (0, 1, 2)]

    runs = read_log(write(tmp_path / "a.jsonl", rows(0.9)), settings=GIVEN)
    with pytest.raises(InputError, match=r"avg, the whole reward .* add --metric avg:accuracy or"):
        to_curves(runs)
    assert to_curves(runs, "avg:accuracy")[0].score_K.tolist() == [0.2, 1.2, 2.2]
    assert to_curves(runs, "avg")[0].score_K[0] == pytest.approx(0.28)
    same = read_log(write(tmp_path / "b.jsonl", rows(1.0)), settings=GIVEN)
    assert to_curves(same)[0].metric == "avg"  # one reward function: they are the same


def test_a_column_map_comes_before_the_built_in_reading(tmp_path: Path) -> None:
    rows = [{"step": s, "val/reward_score": 0.9, "val/mine": 0.1 * s} for s in (0, 1, 2)]
    settings = {**GIVEN, "columns": {"val/mine": "avg"}}
    runs = read_log(write(tmp_path / "a.jsonl", rows), settings=settings)
    assert to_curves(runs, "avg")[0].score_K.tolist() == [0.0, 0.1, 0.2]
    assert to_curves(runs, "avg:reward")[0].score_K.tolist() == [0.9] * 3


def test_decimal_commas_are_read_where_semicolons_part_the_cells(tmp_path: Path) -> None:
    path = tmp_path / "chart.csv"
    path.write_text('"Step";"bp8_n4 - validation/accuracy"\n0;0,250\n2;0,5\n4;1,000\n')
    run = only(read_log(path, settings=NAMED))
    assert run.series[0].score_K.tolist() == [0.25, 0.5]  # 1,000 may be thousands
    assert "'1,000'" in run.errors[0].reason
    table = tmp_path / "table.csv"
    table.write_text("problems_per_batch;rollouts_per_problem;rollouts;score\n8;4;0;0,25\n8;4;32;0,5\n")
    assert load_curves(table)[0].score_K.tolist() == [0.25, 0.5]


def test_runs_of_one_name_are_told_apart_by_their_id(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text(f"run_id,run_name,metric,step,value,is_nan\na,x,{KEY},0,0.5,0\na,x,{KEY},2,0,1\n"
                    f"b,x,{KEY},0,0.25,0\n")
    a, b = read_log(path, settings=GIVEN)
    assert (a.name, b.name) == ("x", "x (2)")
    assert (a.series[0].score_K.tolist(), a.series[0].n_missing) == ([0.5], 1)
    assert b.series[0].score_K.tolist() == [0.25]


def test_a_torn_parquet_log_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "bp8_n4" / "0000.parquet"  # W&B's history artifact
    path.parent.mkdir()
    rows = [{"step": s, KEY: 0.1 * s} for s in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    found = only(read_log(path, settings=NAMED))
    assert found.series[0].score_K.tolist() == pytest.approx([0.0, 0.1, 0.2])
    assert (found.name, found.provenance.format) == ("bp8_n4", "history-parquet")
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)  # the rows, not the footer
    path.write_bytes(data)
    with pytest.raises(InputError, match="is no whole Parquet file"):
        read_log(path, settings=NAMED)


def test_the_bars_around_a_row_must_show_one_step_or_the_epoch_decides(tmp_path: Path) -> None:
    def console(epoch: Any) -> Path:
        text = ""
        for step in range(1, 7):
            text += f"\r 10%|#  | {step}/6 [00:01<00:02]\n"
            text += f"{{'eval_reward': '0.{step}', 'epoch': '{epoch(step)}'}}\n"
        path = tmp_path / "bp8_n4.log"
        path.write_text(text)
        return path

    run = only(read_log(console(lambda s: s / 10), settings=NAMED))
    assert run.series[0].step_K.tolist() == [1, 2, 3, 4, 5, 6]
    run = only(read_log(console(lambda s: (s + 1) / 10), settings=NAMED))
    assert run.series[0].step_K.tolist() == [2, 3, 4, 5, 6]
    with pytest.raises(InputError, match="must show one step, but those of line 2 show 1 and 2"):
        read_log(console(lambda s: s**2), settings=NAMED)


def test_percent_signs_and_names_of_runs_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("run,steps,score\nbp8_n4,0,25%\nbp8_n4,2,50%\nbp8_n8,0,20%\nbp8_n8,2,\n")

    four, eight = load_curves(path, settings=settings_from(NAMED))
    assert (four.rollouts_K.tolist(), four.score_K.tolist()) == ([0, 64], [0.25, 0.5])
    assert (eight.rollouts_per_problem, eight.score_K.tolist()) == (8, [0.2])
    path.write_text(path.read_text().replace("50%", "0.5"))
    with pytest.raises(InputError, match="must hold numbers, but row 1 has '25%'"):
        load_curves(path, settings=settings_from(NAMED))
    assert np.isfinite(four.score_K).all()


def test_verl_0_2_validates_once_more_after_its_last_update(tmp_path: Path) -> None:
    # its loop ends at M - 1 updates, counts on, and logs a last validation at M
    rows = [{"step": s, "data": {"response_length/mean": 5.0}} for s in range(1, 6)]
    rows[3]["data"][KEY] = 0.4
    last = {"step": 6, "data": {KEY: 0.5}}
    run = only(read_log(write(tmp_path / "a.jsonl", [*rows, last]), settings=GIVEN))
    assert run.series[0].step_K.tolist() == [4, 5]
    assert run.series[0].rollouts_K.tolist() == [128, 160]
    assert run.concluded[0].startswith("step: the evaluation after the last update")
    rows.append({"step": 6, "data": {"response_length/mean": 5.0}})  # trained at 6 as well
    run = only(read_log(write(tmp_path / "a.jsonl", [*rows, last]), settings=GIVEN))
    assert run.series[0].step_K.tolist() == [4, 6]


def test_old_trl_says_what_is_missing_for_b_p(tmp_path: Path) -> None:
    first = {"config": {"num_generations": 8, "per_device_train_batch_size": 4,
                        "gradient_accumulation_steps": 16}}
    run = only(read_log(write(tmp_path / "a.jsonl", [first, {"step": 1, "eval_reward": 0.5}])))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (None, 8)
    assert run.notes[0].startswith("B_p is 4 (per device) * 16 (accumulation) * processes / 8")


def test_a_tracker_s_step_that_is_the_counter_everywhere_counts_updates(tmp_path: Path) -> None:
    def log(factor: int) -> Path:
        rows: list[dict[str, Any]] = [{"_step": 0, KEY: 0.2}]  # validated before training
        rows += [{"_step": factor * s, "training/global_step": s, KEY: 0.2 + 0.1 * s}
                 for s in range(1, 5)]
        return write(tmp_path / "history.jsonl", rows)

    run = only(read_log(log(1), settings=GIVEN))
    assert run.series[0].step_K.tolist() == [0, 1, 2, 3, 4]
    assert run.concluded[0].startswith("step: the tracker's own is training/global_step wherever")
    with pytest.raises(InputError, match="1 of val-core.* have no training/global_step"):
        read_log(log(2), settings=GIVEN)


def test_a_run_that_goes_on_in_the_folder_beside_is_one_run(tmp_path: Path) -> None:
    for folder, first, last in (("v0-monday", 1, 6), ("v1-tuesday", 5, 10)):
        write(tmp_path / folder / "logging.jsonl", [
            {"step": s, "reward": 0.1, "eval_reward": 0.02 * s} for s in range(first, last + 1)
        ])
    run = only(read_log(tmp_path, settings=GIVEN))
    found = next(s for s in run.series if s.split == "validation")
    assert found.step_K.tolist() == list(range(1, 11))
    assert "which goes on from step 5, 1 steps done twice count once" in run.concluded[-1]


def test_a_name_says_more_than_a_setting_that_fills_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "bp8_n4.jsonl", verl(0, 2))
    write(tmp_path / "other.jsonl", verl(0, 4))
    given = {**NAMED, "problems_per_batch": 2, "rollouts_per_problem": 16}
    found = {r.name: r for r in read_log(tmp_path, settings=given)}
    assert found["bp8_n4"].rollouts_per_problem == 4
    assert found["bp8_n4"].problems_per_batch == 8
    assert (found["other"].problems_per_batch, found["other"].rollouts_per_problem) == (2, 16)
    table = tmp_path / "n4.csv"  # the same for tables
    table.write_text("steps,score\n0,0.2\n2,0.3\n")
    settings = settings_from({**given, "pattern": "n{rollouts_per_problem}"})
    assert load_curves(table, settings=settings)[0].rollouts_K.tolist() == [0, 16]


@pytest.mark.parametrize("training", ["response_length/mean", "critic/score/mean"])
def test_what_a_log_goes_back_to_and_does_again_counts(tmp_path: Path, training: str) -> None:
    def rows(first: int, last: int, base: float) -> list[dict[str, Any]]:
        made = []
        for step in range(first, last + 1):
            made.append({"step": step, "data": {training: 0.5}})
            if step % 4 == 0:
                made.append({"step": step, "data": {KEY: base + 0.01 * step}})
        return made

    log = [*rows(1, 8, 0.2), *rows(7, 12, 0.4)]  # stopped at 8, and went on from 6
    run = only(read_log(write(tmp_path / "a.jsonl", log), settings=GIVEN))
    series = next(s for s in run.series if s.split == "validation")
    assert series.step_K.tolist() == [4, 8, 12]
    assert series.score_K.tolist() == pytest.approx([0.24, 0.48, 0.52])
    assert any("goes back to step 7 and does it again; 1 scores" in c for c in run.concluded)
    # evaluated again where it resumed: the same policy, and the first counts
    log = [*rows(1, 8, 0.2), {"step": 8, "data": {KEY: 0.9}}, *rows(9, 12, 0.2)]
    run = only(read_log(write(tmp_path / "b.jsonl", log), settings=GIVEN))
    assert next(s for s in run.series if s.split == "validation").score_K[1] == 0.28
    assert not any("goes back" in c for c in run.concluded)
    # evaluations alone say it, too: from 4 on it may be another policy
    log = [{"step": s, "data": {KEY: v}} for s, v in
           ((0, 0.1), (4, 0.2), (8, 0.3), (4, 0.8), (8, 0.4), (12, 0.5))]
    run = only(read_log(write(tmp_path / "c.jsonl", log), settings=GIVEN))
    assert run.series[0].score_K.tolist() == [0.1, 0.8, 0.4, 0.5]


def own_loop(path: Path, at: tuple[int, ...], last: int = 12) -> ImportedRun:
    rows: list[dict[str, Any]] = [{"step": s, "loss": 0.1} for s in range(last)]
    for s in at:
        rows[s]["acc"] = 0.2 + 0.01 * s
    return only(read_log(write(path, rows), settings={**GIVEN, "columns": {"acc": "avg"}}))


@pytest.mark.parametrize(
    ("at", "found"),
    [
        ((1, 3, 5, 7), [2, 4, 6, 8]), ((0, 3, 7, 11), [0, 4, 8, 12]),
        ((2, 4, 6), [2, 4, 6]), ((0, 1, 2, 3), [0, 1, 2, 3]), ((1, 3), [1, 3]),
        ((1, 4, 7), [1, 4, 7]),
    ],
)
def test_a_loop_that_counts_from_zero_is_told_by_its_evaluations(
    tmp_path: Path, at: tuple[int, ...], found: list[int]
) -> None:
    run = own_loop(tmp_path / "a.jsonl", at)
    assert run.series[0].step_K.tolist() == found
    said = any("first update as step 0" in line for line in run.concluded)
    assert said == (found != list(at))


def test_slime_s_optimizer_steps_are_updates_unless_its_configuration_says_otherwise(
    tmp_path: Path,
) -> None:
    config = {"rollout_batch_size": 8, "n_samples_per_prompt": 4, "global_batch_size": 16,
              "wandb_always_use_train_step": False}
    rows = [{"rollout/step": 2 * i, "eval/step": 2 * i, "step": 2 * i, "eval/math": 0.1 * i,
             "rollout/response_len/mean": 5.0} for i in range(1, 8, 2)]
    log = write(tmp_path / "metrics.jsonl", rows)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert only(read_log(log)).series[0].step_K.tolist() == [3, 7, 11, 15]
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "wandb_always_use_train_step": True}))
    run = only(read_log(log))
    assert run.series[0].step_K.tolist() == [2, 4, 6, 8]
    assert any("move by 2 in an update" in line for line in run.concluded)
    # every k batches slime evaluates at k-1, 2k-1, ...: 2, 6, 10, 14 are none of batches
    (tmp_path / "config.json").write_text(json.dumps(dict(list(config.items())[:3])))
    assert only(read_log(log)).series[0].step_K.tolist() == [2, 4, 6, 8]


def test_a_name_that_says_percent_asks_for_the_range(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    for name in ("score (%)", "Score percent", "pct"):
        table.write_text(f"problems_per_batch,rollouts_per_problem,rollouts,{name}\n"
                         "8,4,0,0.25\n8,4,32,0.5\n")
        settings = settings_from({"columns": {name: "score"}})
        with pytest.raises(InputError, match=r"says percent, .*0.25 to 0.5\); add --range 0 100"):
            load_curves(table, settings=settings)
        (curve,) = load_curves(table, settings=settings, score_range=(0.0, 100.0))
        assert curve.score_K.tolist() == [0.0025, 0.005]
    table.write_text(table.read_text().replace("0.25", "25%").replace("0.5\n", "50%\n"))
    (curve,) = load_curves(table, settings=settings)  # a sheet shows what it holds
    assert curve.score_K.tolist() == [0.25, 0.5]
    log = write(tmp_path / "a.jsonl", [{"step": s, "acc_pct": 0.1 * s} for s in range(4)])
    settings = settings_from({**GIVEN, "columns": {"acc_pct": "avg"}})
    with pytest.raises(InputError, match="'acc_pct' says percent"):
        load_curves(log, settings=settings)
    (curve,) = load_curves(log, settings=settings, score_range=(0.0, 1.5))
    assert curve.score_K[-1] == pytest.approx(0.2)


def test_a_column_of_updates_is_not_taken_for_rollouts(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    header = "problems_per_batch,rollouts_per_problem,M,score\n"
    settings = settings_from({"columns": {"M": "rollouts"}})
    table.write_text(header + "8,4,0,0.25\n8,4,10,0.3\n8,4,31,0.5\n")
    with pytest.raises(InputError, match="at least B_p .* row 2 has 10 .*'M' counts updates, map"):
        load_curves(table, settings=settings)
    table.write_text(header + "8,4,0,0.25\n8,4,10,0.3\n8,4,32,0.5\n")  # read off a figure
    assert load_curves(table, settings=settings)[0].rollouts_K.tolist() == [0, 10, 32]
    table.write_text(header.replace("M", "rollouts") + "8,4,0,0.25\n8,4,10,0.3\n")
    assert load_curves(table)[0].rollouts_K.tolist() == [0, 10]  # its own word is its own


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("problems_per_batch,rollouts_per_problem,step,score,seed_1\n8,4,2,0.2,0.3\n")
    with pytest.raises(InputError, match="score goes to 'score' and 'seed_1'; name one of them"):
        load_curves(table, settings=settings_from({"columns": {"seed_1": "score"}}))


def test_a_table_of_runs_and_a_history_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("Start Time,Duration,Run ID,Name,Status,eval/reward\nx,1h,a,b,FINISHED,0.5\n")
    with pytest.raises(InputError, match="is a table of runs with the last value of each"):
        read_log(path)
    path.write_text("Name,Step,eval/reward\nbp8_n4,0,0.1\nbp8_n4,2,0.2\nbp8_n8,2,0.3\n")
    four, eight = read_log(path, settings=NAMED)
    assert (four.series[0].score_K.tolist(), eight.rollouts_per_problem) == ([0.1, 0.2], 8)
