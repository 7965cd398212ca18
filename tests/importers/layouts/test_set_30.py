"""What the thirtieth blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import import_logs, load_settings, read_log
from isocompute.importers.values.headers import head_of
from isocompute.importers.words.names import pattern_for
from isocompute.importers.words.scale import are_percent
from layout_helpers import drawn, load, refused, score, write

STEPS = range(0, 61, 12)
N = (4, 8, 16)
MAP = ("val/accuracy=avg",)


def lines(path: Path, rows: list[dict[str, object]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def verl(n: int, last: int = 60) -> list[dict[str, object]]:
    """Rows of verl's file logger."""
    return [{"step": s, "data": {"val-core/held/acc/mean@2": score(s, n)}} for s in STEPS
            if s <= last]  # fmt: skip


# A loop that counts problems and steps by the iteration, and accumulates gradients over several.


def loop(folder: Path, **config: object) -> Path:
    for n in N:
        rows = [{"iter": s, "val/accuracy": score(s, n)} for s in STEPS]
        lines(folder / f"r{n}" / "metrics.jsonl", rows)
        said = {"prompts_per_iter": 10, "group_size": n, "seed": 3, **config}
        write(folder / f"r{n}" / "config.json", json.dumps(said))
    return folder


@pytest.mark.parametrize(("more", "told"), [({}, 30), ({"max_iters": 60}, 30), ({}, 10)])
def test_accumulated_iterations_are_asked_about(
    tmp_path: Path, more: dict[str, object], told: int
) -> None:
    source = loop(tmp_path, optim={"grad_accum": 3}, **more)
    text = refused(source, MAP)
    assert "prompts_per_iter is 10 and gradients are accumulated over 3 (optim.grad_accum)" in text
    assert "--set problems_per_batch=30 if 3 steps of the log make an update" in text
    found = load(source, MAP, [f"problems_per_batch={told}"])
    assert drawn(found) == {(told, n, 3): [10 * n * s for s in STEPS] for n in N}
    each = told // 10
    assert [c.steps_K.tolist() for c in found] == [[s // each for s in STEPS]] * 3
    runs = read_log(source, settings=load_settings([f"problems_per_batch={told}"], [*MAP]))
    assert {run.steps for run in runs} == {60 // each if more else None}


@pytest.mark.parametrize("config", [
    {"grad_accum": 1}, {}, {"grad_accum": 3, "prompts_per_iter": None, "prompts_per_update": 10},
])  # fmt: skip
def test_updates_that_are_named_ask_nothing(tmp_path: Path, config: dict[str, object]) -> None:
    found = load(loop(tmp_path, **config), MAP)
    assert drawn(found) == {(10, n, 3): [10 * n * s for s in STEPS] for n in N}


# A trial of a few updates among the runs of a sweep.


def sweep(folder: Path, trials: dict[str, dict[str, object]]) -> Path:
    for n in N:
        lines(folder / f"real_n{n}" / "metrics.jsonl", verl(n))
        write(folder / f"real_n{n}" / "config.json", json.dumps(
            {"data.train_batch_size": 40, "actor_rollout_ref.rollout.n": n}))  # fmt: skip
    for name, config in trials.items():
        key = "val-core/held/acc/mean@2"
        rows = [{"step": s, "data": {key: score(s, len(name))}} for s in range(3)]
        lines(folder / name / "metrics.jsonl", rows)
        write(folder / name / "config.json", json.dumps(
            {"data.train_batch_size": 6, "actor_rollout_ref.rollout.n": 2, **config}))  # fmt: skip
    return folder


@pytest.mark.parametrize("names", [["try"], ["a_try", "try_again"]])
def test_a_trial_among_runs_is_asked_about(tmp_path: Path, names: list[str]) -> None:
    source = sweep(tmp_path, {name: {} for name in names})
    text = refused(source)
    assert f"{names[0]!r} ends after 2 updates, 24 rollouts, and no other has a score" in text
    these = "it" if len(names) == 1 else "the 2 like it"
    assert f"before 1,920; if it was a trial, leave {these} out with --where " in text
    which = "!try" if len(names) == 1 else "real_n*"
    assert f"leave {these} out with --where run='{which}', or keep all" in text
    left = load(source, where=[f"run={which}"])
    assert {c.rollouts_per_problem for c in left} == {*N}
    assert len(load(source, where=["run=*"])) == 3 + len(names)


@pytest.mark.parametrize("config", [
    {"trainer.total_training_steps": 60},  # it is under way
    {"data.train_batch_size": 4_000},  # its batches are larger: the others have its budget
])  # fmt: skip
def test_a_short_run_that_others_meet_is_none(
    tmp_path: Path, config: dict[str, object]
) -> None:
    assert len(load(sweep(tmp_path, {"try": config}))) == 4


# A script that keeps its options in arrays and computes others.

SCRIPT = """#!/bin/bash
BATCH=20
DRAWN=$((BATCH * 3))
DATA=(
   --x trainer   # of the loop
   data.train_batch_size=${BATCH}
   data.gen_batch_size=${DRAWN}
)
GROUP=(
   actor_rollout_ref.rollout.n=%d data.seed=7
   algorithm.filter_groups.enable=True
)
python3 -m verl.main ${DATA[@]} \\
   "${GROUP[@]}" 2>&1 | tee out/job-%d.jsonl
"""


def scripted(folder: Path, batches: int) -> Path:
    for n in N:
        rows = verl(n)
        for step in range(1, 61):
            count = batches if step % 2 else 1
            rows.append({"step": step, "data": {"train/num_gen_batches": count, "actor/lr": 1e-6}})
        lines(folder / "out" / f"job-{n}.jsonl", sorted(rows, key=lambda row: str(row["step"])))
        write(folder / f"start-{n}.sh", SCRIPT % (n, n))
    return folder


@pytest.mark.parametrize("batches", [1, 3])
def test_a_script_with_arrays_says_what_was_drawn(tmp_path: Path, batches: int) -> None:
    source = scripted(tmp_path, batches)
    mean = (batches + 1) / 2  # of every two updates
    assert drawn(load(source)) == {
        (20, n, 7): [60 * n * s * mean for s in STEPS] for n in N}  # fmt: skip
    kept = load(source, sets=["drawn=kept"])
    assert drawn(kept) == {(20, n, 7): [20 * n * s for s in STEPS] for n in N}


@pytest.mark.parametrize("batches", [1, 3])
def test_a_drawn_batch_that_a_caller_sets_is_asked_about(tmp_path: Path, batches: int) -> None:
    source = scripted(tmp_path / "a", batches)
    for n in N:
        text = (SCRIPT % (n, n)).replace("$((BATCH * 3))", "${DRAWN:-60}")
        write(source / f"start-{n}.sh", text)
    assert "data.gen_batch_size is a variable of its script" in refused(source)
    kept = drawn(load(source, sets=["drawn=kept"]))
    assert kept == {(20, n, 7): [20 * n * s for s in STEPS] for n in N}


def test_a_log_of_a_general_name_is_not_of_the_script_that_writes_one(tmp_path: Path) -> None:
    for n in (4, 8):
        lines(tmp_path / f"job-{n}" / "train.jsonl", verl(n))
    write(tmp_path / "start.sh", (SCRIPT % (4, 4)).replace("out/job-4.jsonl", "train.jsonl"))
    assert "`problems_per_batch` and `rollouts_per_problem` must be known" in refused(tmp_path)


# A command of TRL's that names its recipe, and what its epochs say of it.

COMMAND = """#!/bin/bash
G=$1
accelerate launch --config_file cfg/gpus.yaml --num_processes=2 run.py \\
  --config cfg/recipe.yaml --num_generations $G --output_dir out/small-G$G
"""
RECIPE = """per_device_train_batch_size: 8
gradient_accumulation_steps: 4
num_generations: 2
max_steps: 60
seed: 11
"""


def recipes(folder: Path, problems: dict[int, int]) -> Path:
    write(folder / "go.sh", COMMAND)
    write(folder / "cfg" / "recipe.yaml", RECIPE)
    write(folder / "cfg" / "gpus.yaml", "distributed_type: MULTI_GPU\nnum_processes: 4\n")
    for n in N:
        rows: list[dict[str, object]] = []
        for s in STEPS[1:]:
            epoch = s * 64 / n / problems[n]
            rows += [{"step": s, "epoch": epoch, "loss": 0.1, "reward": 0.3},
                     {"step": s, "epoch": epoch, "eval_reward": score(s, n)}]  # fmt: skip
        state = {"log_history": rows, "global_step": 60, "max_steps": 60}
        home = folder / "out" / f"small-G{n}" / "checkpoint-60"
        write(home / "trainer_state.json", json.dumps(state))
    return folder


def test_a_command_says_its_recipe(tmp_path: Path) -> None:
    source = recipes(tmp_path, dict.fromkeys(N, 400))
    found = drawn(load(source))
    assert found == {(64 // n, n, 11): [64 * s for s in STEPS[1:]] for n in N}
    (told, *_) = read_log(source)[0].provenance.inferred
    assert told.endswith("go.sh, with gpus.yaml, with recipe.yaml beside the log")


@pytest.mark.parametrize("size", [410, 800])
def test_a_recipe_that_changed_between_runs_is_refused(tmp_path: Path, size: int) -> None:
    source = recipes(tmp_path, {**dict.fromkeys(N, 400), 8: size})
    if size == 410:  # some prompts were too long
        assert len(load(source)) == 3
        return
    with pytest.raises(InputError) as caught:
        import_logs([source], tmp_path / "study")
    text = str(caught.value)
    assert "go.sh, with gpus.yaml, with recipe.yaml cannot hold for all runs" in text
    assert "'small-G8' 800" in text
    assert "run,problems_per_batch,rollouts_per_problem" in text
    write(source / "out" / "runs.csv", "run,problems_per_batch,rollouts_per_problem\n" + "".join(
        f"small-G{n},{(32 if n == 8 else 64) // n},{n}\n" for n in N))  # fmt: skip
    assert {c.problems_per_batch for c in load(source)} == {16, 4}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("n", ["4", "$COUNT"])
def test_what_a_caller_sets_is_not_the_recipes(tmp_path: Path, n: str, beside: bool) -> None:
    recipe = "prompts_per_step: 6\ngroup_size: 2\nseed: 11\n"
    write(tmp_path / ("runs/exp-1/base.yaml" if beside else "base.yaml"), recipe)
    write(tmp_path / "go.sh",
          f"python run.py --config base.yaml --group-size {n} --save-dir runs/exp-1\n")  # fmt: skip
    lines(tmp_path / "runs" / "exp-1" / "log.jsonl", verl(4))
    if n == "4":
        assert drawn(load(tmp_path)) == {(6, 4, 11): [24 * s for s in STEPS]}
    else:
        assert "`rollouts_per_problem` must be known" in refused(tmp_path)


# A table of held-out scores by a callback, beside the consoles of TRL.


def consoles(folder: Path, prefix: str) -> Path:
    table = "time,run,step,right,total,acc\n"
    for n in N:
        rows = [str({"loss": 0.1, "reward": 1.4, "learning_rate": 1e-6, "num_generations": n,
                     "epoch": round(s * 6 / 600, 4)}) for s in range(1, 61)]  # fmt: skip
        write(folder / f"{prefix}g{n}.txt", "\n".join(rows) + f"\n100%|##| 60/60 [{n}:00<00:00]\n")
        table += "".join(f"noon,g{n},{s},{round(500 * score(s, n))},500,{score(s, n)}\n"
                         for s in STEPS)  # fmt: skip
    write(folder / "dev.csv", table)
    return folder


@pytest.mark.parametrize("prefix", ["log_", "", "train-"])
def test_a_table_beside_consoles_holds_their_scores(tmp_path: Path, prefix: str) -> None:
    source = consoles(tmp_path, prefix)
    sets = ["pattern=g{rollouts_per_problem}", "problems_per_batch=6"]
    assert "name the score (--map acc=avg), or add --split train" in refused(source, sets=sets)
    found = load(source, ["acc=avg"], sets)
    assert drawn(found) == {(6, n, None): [6 * n * s for s in STEPS] for n in N}
    assert {c.score_K[-1] for c in found} == {score(60, n) for n in N}


# Configurations in folders that are named for the runs.


def test_a_folder_of_configurations_has_one_for_each_run(tmp_path: Path) -> None:
    for n in N:
        lines(tmp_path / "export" / f"math-r{n}.jsonl", verl(n))
        write(tmp_path / "configs" / f"math-r{n}" / "orch.toml",
              f"batch_size = 64\nrollouts_per_example = {n}\nseed = 5\n")  # fmt: skip
    assert drawn(load(tmp_path)) == {(64 // n, n, 5): [64 * s for s in STEPS] for n in N}


def test_a_number_that_is_n_is_no_hint_of_a_seed(tmp_path: Path) -> None:
    for n in N:
        lines(tmp_path / f"math-r{n}.jsonl", verl(n))
    told = load_settings(["pattern=r{rollouts_per_problem}", "problems_per_batch=6"], [])
    assert pattern_for(read_log(tmp_path, settings=told), seed_alone=True) is None
    told = load_settings(["rollouts_per_problem=2", "problems_per_batch=6"], [])
    assert pattern_for(read_log(tmp_path, settings=told), seed_alone=True) == "r{seed}"


# Sheets with several settings in a line above the table, of which one counts in percent.


def sheet(folder: Path, n: int, *, percent: bool) -> Path:
    named = "held acc (%)" if percent else "held acc"
    rows = [f"{s},5/{s % 7}/25,0.{s},{score(s, n) * (100 if percent else 1):.3f},41{s},"
            for s in STEPS]  # fmt: skip
    return write(folder / f"tab G{n}.csv", "\n".join([
        f"Run G{n},,,owner,Ann,", "model,tiny-1B,,loop,ours v2,",
        f"problems / update,20,,completions / problem,{n},", "seed,9,,GPUs,2xL4,", ",,,,,",
        f"update,date,train reward,{named},mean len,notes", *rows, "",
    ]))  # fmt: skip


def test_settings_in_pairs_above_a_table_are_read(tmp_path: Path) -> None:
    for n in N:
        sheet(tmp_path, n, percent=n != 8)
    said = head_of(tmp_path / "tab G4.csv").said
    assert said["completions / problem"] == "4"
    assert said["loop"] == "ours v2"
    text = refused(tmp_path)
    assert "score is missing" in text
    assert "--map 'held acc=score'" in text
    assert "problems_per_batch is" not in text
    found = load(tmp_path, ["held acc=score", "held acc (%)=score"])
    assert drawn(found) == {(20, n, 9): [20 * n * s for s in STEPS] for n in N}
    for c in found:
        assert c.score_K.tolist() == pytest.approx(
            [score(s, c.rollouts_per_problem) for s in STEPS])  # fmt: skip


@pytest.mark.parametrize(("name", "values", "percent"), [
    ("acc (%)", [0.5, 12.0], True), ("acc (%)", [0.1, 0.9], False), ("acc", [20.0, 30.0], False),
    ("pct", [-1.0, 40.0], False), ("pct", [20.0, 130.0], False),
])  # fmt: skip
def test_percent_is_what_name_and_values_say(
    name: str, values: list[float], percent: bool
) -> None:
    import numpy as np

    assert are_percent(name, np.array(values), (0.0, 1.0)) is percent
    assert not are_percent(name, np.array(values), (0.0, 100.0))
