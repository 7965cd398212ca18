"""What the twenty-second blind set found: by construction, with other names."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.cli.scores import metric_names
from isocompute.errors import InputError
from isocompute.importers import load_settings, read_log
from isocompute.importers.tables.columns import counts_up
from isocompute.sources import load_curves
from layout_helpers import AT, drawn, load, refused, score, write
from layouts import mlflow_database


def test_a_metric_may_hold_a_comma() -> None:
    assert metric_names("avg:exact_match,strict") == ["avg:exact_match,strict"]
    assert metric_names("avg:exact_match,strict,best@4") == ["avg:exact_match,strict", "best@4"]
    assert metric_names("avg@4,avg:b") == ["avg@4", "avg:b"]
    assert metric_names("avg@4,,best@4") == ["avg@4", "", "best@4"]  # refused where it is read


def test_a_table_that_says_seeds_alone_is_read(tmp_path: Path) -> None:
    for start, name in enumerate(("left_n4", "right_n4")):
        rows = [{"global_step": k, "eval/score": 0.1 * k + 0.03 * start} for k in range(5)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "runs.csv").write_text("run,seed\nleft_n4,7\nright_n4,8\n")
    settings = load_settings(
        ["problems_per_batch=8", "rollouts_per_problem=4", "step=global_step"],
        ["eval/score=avg"],
    )
    assert sorted(run.seed or 0 for run in read_log(tmp_path, settings=settings)) == [7, 8]


def test_the_command_to_paste_says_when_it_is_right(tmp_path: Path, capsys) -> None:
    rows = [{"tick": k, "acc": 0.1 * k, "reward": 0.2} for k in range(5)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "s")]) == 2
    said = capsys.readouterr().err
    assert "To paste, only if `tick` counts updates (not rollouts or micro-batches)" in said


# TRL: an update is a batch of fresh rollouts, whatever the optimizer's steps.


def trl_run(
    home: Path, n: int, ticks: int, last: int, logged: int, every: int, **more: int
) -> None:
    """A state whose steps are the optimizer's, `ticks` to a batch of 24 problems, and its YAML."""
    history = [{"step": s, "reward": score(s, 2), "completions/mean_length": 50.0,
                "step_time": 4.0} for s in range(logged, ticks * last + 1, logged)]  # fmt: skip
    history += [{"step": s, "eval_reward": score(s, n)} for s in range(0, ticks * last + 1, every)]
    state = {"logging_steps": logged, "max_steps": ticks * last,
             "log_history": sorted(history, key=lambda row: row["step"])}  # fmt: skip
    write(home / f"grpo-{n}/checkpoint-{ticks * last}/trainer_state.json", json.dumps(state))
    said = {"output_dir": f"out/grpo-{n}", "num_generations": n, "seed": 9,
            "max_steps": ticks * last, "per_device_train_batch_size": 2 * n,
            "logging_steps": logged, **more}  # fmt: skip
    write(home / f"configs/grpo-{n}.yaml", "".join(f"{k}: {v}\n" for k, v in said.items()))


@pytest.mark.parametrize(("ticks", "more"), [
    (3, {"steps_per_generation": 6, "gradient_accumulation_steps": 2}),
    (4, {"gradient_accumulation_steps": 6, "num_iterations": 4}),
    (6, {"steps_per_generation": 6, "gradient_accumulation_steps": 2, "num_iterations": 2}),
    (1, {"gradient_accumulation_steps": 6}),
    (1, {"steps_per_generation": 2, "gradient_accumulation_steps": 6}),  # three draws in a step
])  # fmt: skip
def test_an_update_of_trl_is_a_batch_of_fresh_rollouts(
    tmp_path: Path, ticks: int, more: dict[str, int]
) -> None:
    for n in (4, 8):
        trl_run(tmp_path, n, ticks, 20, ticks, 5 * ticks, **more)
    runs = read_log(tmp_path, settings=load_settings(["processes=2"]))
    assert [(r.problems_per_batch, r.rollouts_per_problem, r.steps, r.seed) for r in runs] == [
        (24, 4, 20, 9), (24, 8, 20, 9)
    ]  # fmt: skip
    for run in runs:
        n = run.rollouts_per_problem or 0
        s = next(s for s in run.series if s.split == "validation")
        assert s.step_K.tolist() == [0, 5, 10, 15, 20]
        assert s.rollouts_K.tolist() == [24 * n * k for k in (0, 5, 10, 15, 20)]
        assert s.tokens_K.tolist() == [50 * 24 * n * k for k in (0, 5, 10, 15, 20)]
        assert s.score_K.tolist() == [score(k * ticks, n) for k in (0, 5, 10, 15, 20)]
        assert run.provenance.s_per_step == 4.0 * ticks


def test_what_is_asked_of_trl_names_the_parts_of_its_batch(tmp_path: Path) -> None:
    more = {"steps_per_generation": 6, "gradient_accumulation_steps": 2}
    for n in (4, 8):
        trl_run(tmp_path, n, 3, 20, 3, 15, **more)
    told = refused(tmp_path)
    assert "B_p is 8 (per device) * 6 (steps_per_generation) * processes / 4" in told
    assert "--set processes=P" in told


def test_scores_within_a_batch_of_trl_count_by_its_last(tmp_path: Path) -> None:
    trl_run(tmp_path, 4, 4, 10, 1, 2, gradient_accumulation_steps=6, num_iterations=4)
    (run,) = read_log(tmp_path, settings=load_settings(["processes=2"]))
    s = next(s for s in run.series if s.split == "validation")
    assert s.step_K.tolist() == [*range(11)]
    assert s.score_K.tolist() == [score(4 * k, 4) for k in range(11)]
    assert "score: 10 taken within an update are left out" in " ".join(run.provenance.inferred)
    assert run.provenance.s_per_step == 16.0


@pytest.mark.parametrize(("said", "ends"), [
    ({"grad_accum": 6, "batches": 40}, 240), ({"optim.gradient_accumulation_steps": 6,
                                              "num_updates": 40}, 240),
    ({"accumulate_grad_batches": 6, "eval_every_batches": 10}, 180),  # it stopped before its plan
])  # fmt: skip
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_loop_that_counts_micro_batches_is_read_in_updates(
    tmp_path: Path, said: dict[str, int], ends: int, ending: str
) -> None:
    for n in (4, 8):
        config = {"problems_per_batch": 24, "rollouts_per_problem": n, "seed": 6, **said}
        write(tmp_path / f"loop-{n}" / "args.json", json.dumps(config))
        rows = [{"tick": t, "reward": score(t, 1), "held": score(t, n) if t % 60 == 0 else None}
                for t in range(ends + 1)]  # fmt: skip
        text = "".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n"
                       for row in rows)  # fmt: skip
        if ending == "csv":
            text = "step,reward,eval/score\n" + "".join(
                f"{r['tick']},{r['reward']},{'' if r['held'] is None else r['held']}\n"
                for r in rows
            )
        write(tmp_path / f"loop-{n}" / f"log.{ending}", text)
    own = load_settings(["step=tick"] * (ending == "jsonl"), [
        "held=avg" if ending == "jsonl" else "eval/score=avg"])  # fmt: skip
    for run in read_log(tmp_path, settings=own):
        n = run.rollouts_per_problem or 0
        s, train = (next(s for s in run.series if s.split == split)
                    for split in ("validation", "train"))  # fmt: skip
        at = range(0, ends // 6 + 1, 10)
        assert (run.problems_per_batch, run.seed, s.step_K.tolist()) == (24, 6, [*at])
        assert s.rollouts_K.tolist() == [24 * n * k for k in at]
        assert s.score_K.tolist() == [score(6 * k, n) for k in at]
        whole = np.mean([score(t, 1) for t in range(7, 13)])  # all parts of the second batch
        assert np.isclose(train.score_K[train.step_K == 2][0], whole)
        assert "6 of the log's are an update" in " ".join(run.provenance.inferred)


@pytest.mark.parametrize("said", [
    {"grad_accum": 6}, {"grad_accum": 6, "batches": 240}, {"grad_accum": 7, "batches": 40},
])  # fmt: skip
def test_accumulation_alone_changes_no_step(tmp_path: Path, said: dict[str, int]) -> None:
    config = {"problems_per_batch": 24, "rollouts_per_problem": 4, "seed": 6, **said}
    write(tmp_path / "loop" / "args.json", json.dumps(config))
    write(tmp_path / "loop" / "log.jsonl", "".join(
        json.dumps({"step": t, "eval/score": score(t, 4)}) + "\n" for t in range(0, 241, 60)
    ))  # fmt: skip
    (run,) = read_log(tmp_path, settings=load_settings([], ["eval/score=avg"]))
    assert run.series[0].step_K.tolist() == [0, 60, 120, 180, 240]


# A script whose caller says n, and whose runs are named by it.

SCRIPT = """#!/bin/bash
# N=8 SEED=1 sbatch go.sh
G=${N:-4}
export TENSORBOARD_DIR=tb/proj/nano_n${G}_s${SEED}
python -m trainer data.train_batch_size=24 actor_rollout_ref.rollout.n=${G} \\
  data.seed=${SEED} trainer.experiment_name=nano_n${G}_s${SEED}"""


def launched(home: Path, script: str, name: str = "nano_n{n}_s7") -> None:
    write(home / "go.sh", script)
    for n in (4, 8):
        rows = [{"step": t, "val-core/gsm8k/acc/mean@1": score(t, n)} for t in AT]
        write(home / "tb" / "proj" / name.format(n=n) / "metrics.jsonl",
              "".join(json.dumps(row) + "\n" for row in rows))  # fmt: skip


@pytest.mark.parametrize("more", ["", ' "$@"'])
def test_a_script_of_a_caller_s_variables_is_of_the_runs_named_so(
    tmp_path: Path, more: str
) -> None:
    launched(tmp_path, SCRIPT + more)
    assert drawn(load(tmp_path)) == {(24, n, 7): [24 * n * s for s in AT] for n in (4, 8)}
    (line, *_) = read_log(tmp_path)[0].provenance.inferred
    assert ("whose caller may add settings" in line) == bool(more)


@pytest.mark.parametrize(("script", "name"), [
    (SCRIPT, "nano_g{n}_s7"), (SCRIPT, "nano_n{n}_s7_again"),  # of another form
    (SCRIPT.replace("nano_n${G}_s${SEED}", "${G}_${SEED}"), "{n}_7"),  # of any
    (SCRIPT.replace("_n${G}", "_n8"), "nano_n{n}_s7"),  # one n is written, another called
])  # fmt: skip
def test_a_script_of_other_runs_is_not_read(tmp_path: Path, script: str, name: str) -> None:
    launched(tmp_path, script, name)
    assert "must be known" in refused(tmp_path)


def test_of_two_scripts_of_one_form_none_is_read(tmp_path: Path) -> None:
    launched(tmp_path, SCRIPT)
    write(tmp_path / "old.sh", SCRIPT.replace("=24", "=32"))
    assert "must be known" in refused(tmp_path)


# Tables: epochs, settings beside, columns by what their cells can be.


def epochs(home: Path, config: str, at: Sequence[float] = (0, 1, 2, 3)) -> Path:
    rows = "".join(f"g{n}_s{s},{n},{s},{e},{score(int(10 * e), n, s / 100)}\n"
                   for n in (4, 8) for s in (0, 1) for e in at)  # fmt: skip
    if config:
        write(home / "params.yaml", config)
    return write(home / "all.csv", f"run,group_size,seed,epoch,score\n{rows}")


MAPS = ["group_size=rollouts_per_problem"]


@pytest.mark.parametrize("config", ["train_problems: 480\nproblems_per_batch: 24\n",
                                    "data:\n  num_train_examples: 480\nprompts_per_step: 24\n"])
@pytest.mark.parametrize("at", [(0, 1, 2, 3), (0, 0.5, 1, 1.25)])
def test_epochs_are_updates_where_their_problems_are_known(
    tmp_path: Path, config: str, at: Sequence[float]
) -> None:
    epochs(tmp_path, config, at)
    curves = load_curves(tmp_path / "all.csv", settings=load_settings([], MAPS))
    assert drawn(curves) == {
        (24, n, s): [24 * n * 20 * e for e in at] for n in (4, 8) for s in (0, 1)
    }
    assert curves[0].score_K.tolist() == [score(int(10 * e), 4) for e in at]


def test_epochs_ask_for_the_problems_of_one(tmp_path: Path, capsys) -> None:
    table = epochs(tmp_path, "")
    assert main(["import", str(table), "-o", str(tmp_path / "s")]) == 2
    told = capsys.readouterr().err
    assert "--set training_problems=PROBLEMS, those of one epoch, if `epoch` counts passes" in told
    assert "=rollouts --set" not in told
    own = load_settings(["problems_per_batch=24", "training_problems=480"], MAPS)
    assert len(load_curves(table, settings=own)) == 4
    with pytest.raises(InputError, match=r"stands at 1 epochs of 500 problems, 20.83 batches"):
        load_curves(table, settings=replace(own, training_problems=500))


def test_a_configuration_beside_several_tables_is_of_none(tmp_path: Path) -> None:
    table = epochs(tmp_path, "train_problems: 480\nproblems_per_batch: 24\n")
    write(tmp_path / "more.csv", table.read_text())
    with pytest.raises(InputError, match="problems_per_batch"):
        load_curves(table, settings=load_settings([], MAPS))


def sheets(home: Path, step: str = "batch", n: str = "n (rollouts/problem)") -> Path:
    """A sheet with a column for each run, and one of what they are."""
    said = "".join(f"{run},{n},24,{seed},1e-6\n"
                   for run, n, seed in (("A1", 4, 1), ("A2", 4, 2), ("B1", 8, 1)))  # fmt: skip
    write(home / "runs.csv", f"run,{n},problems per batch,seed,lr\n{said}")
    rows = "".join(f"{t},{score(t, 4)},{score(t, 4, 0.1)},{score(t, 8)},{'x' * (t == 20)}\n"
                   for t in AT)  # fmt: skip
    return write(home / "eval.csv", f"{step},A1,A2,B1,remarks\n{rows}")


@pytest.mark.parametrize("n", ["n (rollouts/problem)", "G [samples per prompt]", "group size"])
def test_columns_of_runs_take_the_settings_of_another_table(
    tmp_path: Path, capsys, n: str
) -> None:
    table = sheets(tmp_path, n=n)
    assert main(["import", str(table), "-o", str(tmp_path / "s")]) == 2
    told = capsys.readouterr().err
    assert "add --map batch=steps if it counts updates" in told
    assert "batch=problems_per_batch" not in told  # it holds 0
    assert "KEY" not in told.rpartition("isocompute fit")[2]
    curves = load_curves(table, settings=load_settings([], ["batch=steps"]))
    at = [24 * 4 * t for t in AT]
    assert drawn(curves) == {(24, 4, 1): at, (24, 4, 2): at, (24, 8, 1): [2 * x for x in at]}
    assert {c.run: c.score_K.tolist() for c in curves} == {
        "A1": [score(t, 4) for t in AT], "A2": [score(t, 4, 0.1) for t in AT],
        "B1": [score(t, 8) for t in AT],
    }  # fmt: skip


@pytest.mark.parametrize(("cells", "counts"), [
    ((0, 20, 40, 0, 20, 40), True), ((5, 10, 15, 20, 25), True), ((16, 16, 32, 32), False),
    ((4, 8, 16), False), ((0.0, 0.5, 1.0), False), ((8, 8, 8), False), ((0, 1), False),
])  # fmt: skip
def test_what_counts_up_is_no_batch(cells: Sequence[float], counts: bool) -> None:
    assert counts_up(np.array(cells, float)) == counts


# What is offered must be what the log can hold, and says when it is right.


def test_a_pattern_is_offered_with_what_it_says_of_a_run(tmp_path: Path, capsys) -> None:
    for n in (4, 8):
        rows = [{"step": t, "reward": 0.1, "held_acc": score(t, n)} for t in AT]
        write(tmp_path / f"nano_n{n}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "s")]) == 2
    told = capsys.readouterr().err
    assert ("To paste, only if 'nano_n4' had 4 rollouts per problem and `held_acc` is of held-out "
            "problems, with your own B_P:") in told  # fmt: skip


def test_one_seed_is_not_offered_to_runs_of_one_configuration(tmp_path: Path, capsys) -> None:
    for name in ("left", "right"):
        rows = [{"global_step": t, "eval/score": score(t, 4, 0.2 * (name == "left"))} for t in AT]
        write(tmp_path / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    words = ["--set", "problems_per_batch=24", "--set", "rollouts_per_problem=4",
             "--set", "step=global_step", "--map", "eval/score=avg"]  # fmt: skip
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "s"), *words]) == 0
    told = capsys.readouterr().out
    assert "--set seed" not in told
    assert "runs.csv beside the logs may say theirs (run,seed)" in told


# A job's folder and its starts; settings under another folder.


@pytest.mark.parametrize("steps", [(60,), (20, 40, 60)])  # every checkpoint has a copy
def test_settings_of_a_job_lie_with_its_checkpoints(tmp_path: Path, steps: Sequence[int]) -> None:
    for n in (4, 8):
        log = tmp_path / "logs" / f"nano-g{n}" / "exp_001" / "metrics.jsonl"
        write(log, "".join(json.dumps({"step": t, "validation/accuracy": score(t, n)}) + "\n"
                           for t in AT))  # fmt: skip
        for s in steps:
            home = tmp_path / "results" / f"nano-g{n}" / f"step_{s}"
            grpo = {"num_prompts_per_step": 24, "num_generations_per_prompt": n, "seed": 3}
            said = {"grpo": grpo, "logger": {"log_dir": f"logs/nano-g{n}"}}
            write(home / "config.yaml", json.dumps(said))
            write(home / "training_info.json", json.dumps({"current_step": s, "total_steps": s}))
    runs = read_log(tmp_path)
    assert [run.name for run in runs] == ["nano-g4/exp_001", "nano-g8/exp_001"]
    assert drawn(load(tmp_path)) == {(24, n, 3): [24 * n * s for s in AT] for n in (4, 8)}
    assert not any("num_iterations" in line for run in runs for line in run.provenance.inferred)


def test_settings_that_two_files_say_differently_are_not_read(tmp_path: Path) -> None:
    rows = [{"step": t, "validation/accuracy": score(t, 4)} for t in AT]
    write(tmp_path / "logs" / "nano-g4" / "exp_001" / "metrics.jsonl",
          "".join(json.dumps(row) + "\n" for row in rows))  # fmt: skip
    for i, b_p in enumerate((24, 32)):
        grpo = {"num_prompts_per_step": b_p, "num_generations_per_prompt": 4}
        said = {"grpo": grpo, "logger": {"log_dir": "logs/nano-g4"}}
        write(tmp_path / "results" / f"{i}" / "config.yaml", json.dumps(said))
    assert "must be known" in refused(tmp_path)


# Attempts that died, in a tracker: the same seed is no second one.


def tracked(path: Path, ends: Sequence[int], seed: int | None, states: Sequence[str] = ()) -> None:
    """Runs of one name in one database, each to its end of 50 updates."""
    said = {"data.train_batch_size": 48, "actor_rollout_ref.rollout.n": 6,
            "trainer.total_training_steps": 50, "data.seed": seed}  # fmt: skip
    said = {key: value for key, value in said.items() if value is not None}
    mlflow_database(path, {
        f"try{i}": (said, [("val-core/gsm8k/acc/mean@1", s, score(s, i), 1000 * i + s)
                           for s in range(0, end + 1, 5)])
        for i, end in enumerate(ends)
    })  # fmt: skip
    with sqlite3.connect(path) as c:
        c.execute("UPDATE runs SET name = 'qwen-n6'")
        c.execute("ALTER TABLE runs ADD COLUMN status TEXT")
        for i, state in enumerate(states):
            c.execute("UPDATE runs SET status = ? WHERE run_uuid = ?", (state, f"id-try{i}"))
    c.close()


@pytest.mark.parametrize(("seed", "states"), [
    (11, ()), (11, ("FAILED", "FINISHED")), (None, ("FAILED", "FINISHED")),
    (None, ("KILLED", "RUNNING")),
])  # fmt: skip
def test_an_attempt_that_died_is_no_second_seed(
    tmp_path: Path, seed: int | None, states: Sequence[str]
) -> None:
    tracked(tmp_path / "ml.db", (20, 50), seed, states)
    (run,) = read_log(tmp_path / "ml.db")
    assert (run.name, run.problems_per_batch, run.rollouts_per_problem) == ("qwen-n6", 48, 6)
    assert (run.steps, run.seed) == (50, seed)
    assert np.array_equal(run.series[0].step_K, range(0, 51, 5))
    assert run.series[0].score_K.tolist() == [score(s, 1) for s in range(0, 51, 5)]
    assert "'qwen-n6'" in " ".join(run.provenance.inferred)
    assert "ended at step 20 of 50 and was started again" in " ".join(run.provenance.inferred)
    both = read_log(tmp_path / "ml.db", settings=load_settings(["resumed=apart"]))
    assert [len(run.series[0].step_K) for run in both] == [5, 11]


def test_attempts_of_one_name_without_a_seed_are_asked_about(tmp_path: Path) -> None:
    tracked(tmp_path / "ml.db", (20, 50), None)
    told = refused(tmp_path / "ml.db")
    assert "runs of one name without a seed must be one run" in told
    assert "'qwen-n6' (to step 50) and 'qwen-n6' (to step 20)" in told
    (run,) = read_log(tmp_path / "ml.db", settings=load_settings(["resumed=join"]))
    assert int(run.series[0].step_K[-1]) == 50


@pytest.mark.parametrize(("ends", "states"), [
    ((50, 50), ()), ((50, 50), ("FINISHED", "FINISHED")), ((30, 20), ("FAILED", "FAILED")),
])  # fmt: skip
def test_what_went_as_far_stays(
    tmp_path: Path, ends: tuple[int, int], states: Sequence[str]
) -> None:
    tracked(tmp_path / "ml.db", ends, 11, states)
    runs = read_log(tmp_path / "ml.db")
    assert len(runs) == (1 if ends == (30, 20) else 2)
    assert drawn(load(tmp_path / "ml.db")) is not None
