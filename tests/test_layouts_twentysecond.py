"""What the twenty-second blind set found: by construction, with other names."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from isocompute.cli import main
from isocompute.cli.scores import metric_names
from isocompute.importers import load_settings, read_log
from layouts import mlflow_database
from test_layouts_eighteenth import AT, write
from test_layouts_sixteenth import drawn, load, refused, score


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
