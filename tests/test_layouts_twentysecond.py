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
from test_layouts_eighteenth import write
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
