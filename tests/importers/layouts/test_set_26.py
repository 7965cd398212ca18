"""What the twenty-sixth blind set found in logs of trainers: by construction, with other names."""

from __future__ import annotations

import json
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

from isocompute.cli import main
from layout_helpers import drawn, load, refused, score, write
from test_set_23 import updates
from test_set_25_forms import RAY, command

STEPS = range(0, 41, 10)


def verl(path: Path, n: int, key: str, shift: float = 0.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"step": s, "data": {key: score(s, n, shift)}} for s in STEPS]
    rows += [{"step": s, "data": {"critic/score/mean": 0.2}} for s in range(1, 41)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


# A batch that shrinks as n grows, in scripts that name their runs by the seed of their caller.


def test_a_script_beside_each_n_says_a_batch_of_its_own(tmp_path: Path) -> None:
    for n in (2, 4):
        write(tmp_path / f"n{n}/go.sh", "S=$1\npython3 -m verl.trainer.main_ppo data.seed=$S "
              f"data.train_batch_size={64 // n} actor_rollout_ref.rollout.n={n} "
              f"trainer.experiment_name=n{n}_s$S\n")  # fmt: skip
        for seed in (5, 6):
            path = tmp_path / f"n{n}/logs/demo/n{n}_s{seed}.jsonl"
            verl(path, n, "val-core/kept/acc/mean@1", seed / 100)
    assert drawn(load(tmp_path)) == {
        (64 // n, n, seed): [64 * s for s in STEPS] for n in (2, 4) for seed in (5, 6)
    }


def test_a_key_that_an_upgrade_renamed_is_one_score(tmp_path: Path) -> None:
    keys = {4: "val/test_score/kept", 8: "val-core/kept/reward/mean@1"}
    for n, key in keys.items():
        verl(tmp_path / f"bp16_n{n}_s1.jsonl", n, key)
    said = ("pattern=bp{problems_per_batch}_n{rollouts_per_problem}_s{seed}",)
    assert {c.rollouts_per_problem: c.score_K[-1] for c in load(tmp_path, (), said)} == {
        n: score(40, n) for n in keys
    }


# A state that was saved before the only evaluation.


def state(folder: Path, n: int, *, device: int = 8, **more: object) -> None:
    folder.mkdir(parents=True)
    rows = [{"step": s, "epoch": s / 100, "reward": 0.25, "loss": 0.1} for s in (20, 40)]
    (folder / "trainer_state.json").write_text(json.dumps({
        "epoch": 0.4, "global_step": 40, "max_steps": 40, "logging_steps": 20,
        "best_model_checkpoint": None, "train_batch_size": device, "log_history": rows, **more,
    }))  # fmt: skip


def results(folder: Path, n: int, epoch: float = 0.4, name: str = "eval_results.json") -> None:
    told = {"epoch": epoch, "eval_reward": score(40, n), "eval_runtime": 9.0, "train_loss": 0.1}
    (folder / name).write_text(json.dumps(told))


def recipe(folder: Path, n: int) -> None:
    write(folder / "recipe.yaml", f"num_generations: {n}\nper_device_train_batch_size: 8\n"
          "gradient_accumulation_steps: 2\nnum_processes: 2\nseed: 7\n")  # fmt: skip


@pytest.mark.parametrize("name", ["eval_results.json", "all_results.json"])
def test_the_results_beside_a_state_are_of_its_end(tmp_path: Path, name: str) -> None:
    for n in (4, 8):
        state(tmp_path / f"n{n}", n)
        recipe(tmp_path / f"n{n}", n)
        results(tmp_path / f"n{n}", n, name=name)
    found = load(tmp_path)
    assert drawn(found) == {(32 // n, n, 7): [40 * 32] for n in (4, 8)}
    assert {c.rollouts_per_problem: c.score_K[0] for c in found} == {
        n: score(40, n) for n in (4, 8)
    }


@pytest.mark.parametrize("more", [
    {"best_model_checkpoint": "n4/checkpoint-20"},  # which may be what was evaluated
    {"epoch": 0.5},  # the results are of another training
])
def test_results_of_another_model_are_not_read(tmp_path: Path, more: dict[str, object]) -> None:
    for n in (4, 8):
        state(tmp_path / f"n{n}", n, **more)
        recipe(tmp_path / f"n{n}", n)
        results(tmp_path / f"n{n}", n)
    assert "must hold validation metrics" in refused(tmp_path)


# The batch of a device that Unsloth raises, in a script with a variable in the name of its outputs.

TRAIN = '''import sys
from trl import GRPOConfig
from unsloth import FastLanguageModel
count = int(sys.argv[1])
model = FastLanguageModel.get_peft_model(None, r = 8, random_state = 1)
settings = GRPOConfig(learning_rate = 5e-6, per_device_train_batch_size = 1, seed = 11,
    gradient_accumulation_steps = 4, num_generations = count, output_dir = f"out/n{count}")
'''


def test_the_batch_that_was_trained_with_counts(tmp_path: Path) -> None:
    write(tmp_path / "train.py", TRAIN)
    write(tmp_path / "plot.py", 'read(output_dir=f"out/n{n}", seed=1)\n# GRPOConfig(seed=2)\n')
    for n, device in ((4, 1), (8, 8)):
        rows = [{"step": s, "epoch": s * device * 4 / n / 100, "eval_reward": score(s, n)}
                for s in STEPS[1:]]  # fmt: skip
        state(tmp_path / f"out/n{n}/checkpoint-40", n, device=device, log_history=rows)
    assert "--set processes=P" in refused(tmp_path)
    assert drawn(load(tmp_path, (), ("processes=1",))) == {
        (b_p, n, 11): [b_p * n * s for s in STEPS[1:]] for n, b_p in ((4, 1), (8, 4))
    }


# OpenRLHF's asynchronous trainer: an evaluation is told of behind the next update.


def test_an_evaluation_keeps_the_step_that_it_is_said_to_be_of(tmp_path: Path) -> None:
    for n in (4, 8):
        lines = [command(n)]
        for s in range(1, 31):
            lines.append(f"{RAY}Global step {s}: { {'policy_loss': 0.1, 'reward': 0.3} }")
            if s % 10 == 1 and s > 1:
                shown = {"eval_kept_pass2": 0.9, "eval_kept_pass1": score(s - 1, n)}
                lines.insert(-1, f"{RAY}Async evaluation completed: {shown}")
                lines.append(f"{RAY}Eval at step {s - 1}: {shown}")
        write(tmp_path / f"a{n}.log", "\n".join(lines) + "\n")
    assert drawn(load(tmp_path)) == {(32, n, 9): [32 * n * s for s in (10, 20)] for n in (4, 8)}
    assert updates(tmp_path) == {"a4": 30, "a8": 30}


# SkyRL's console: a dictionary over several lines, behind its step.

LOGURU = "\x1b[36m(entry pid=7)\x1b[0m "


def skyrl(n: int) -> str:
    lines = ["+ python -m skyrl.train.entrypoints.main_base trainer.train_batch_size=16 "
             f"generator.n_samples_per_prompt={n} generator.eval_n_samples_per_prompt=2 "
             "trainer.max_training_steps=40 trainer.seed=3 trainer.logger=console"]  # fmt: skip
    for s in range(41):
        told = {"loss/avg_final_rewards": "0.2000", "reward/avg_raw_reward": "0.3000"} if s else {}
        if s % 10 == 0:
            told |= {f"eval/{of}/avg_score": f"{score(s, n):.4f}" for of in ("all", "kept")}
        shown = pformat(told, width=40).splitlines()
        lines.append(f"{LOGURU}2026-01-01 10:00:00.000 | INFO     | skyrl:log:189 - Step {s}: ")
        lines += [f"{LOGURU}{line}" for line in shown]
    return "\n".join(lines) + "\n"


def test_skyrl_s_console_is_read(tmp_path: Path) -> None:
    for n in (4, 8):
        write(tmp_path / f"a{n}.log", skyrl(n))
    found = load(tmp_path, problem_set="kept")
    assert drawn(found) == {(16, n, 3): [16 * n * s for s in STEPS] for n in (4, 8)}
    assert {c.metric for c in found} == {"avg@2"}
    assert updates(tmp_path) == {"a4": 40, "a8": 40}


def test_lines_of_others_within_a_dictionary_are_passed_over(tmp_path: Path) -> None:
    text = skyrl(4).replace(LOGURU + " 'eval", "\x1b[36m(worker pid=9)\x1b[0m {'a': 1}\n"
                            f"{LOGURU} 'eval")  # fmt: skip
    assert "{'a': 1}" in text
    write(tmp_path / "a4.log", text)
    (one,) = load(tmp_path, problem_set="kept")
    assert [*one.rollouts_K] == [64 * s for s in STEPS]


def test_a_step_within_an_epoch_is_none_of_a_training(tmp_path: Path) -> None:
    text = skyrl(4).replace("log:189 - Step ", "log:189 - Epoch 0, Step ")
    write(tmp_path / "a4.log", text)
    assert "must hold at least one log" in refused(tmp_path)


# A table of a job that evaluates checkpoints, beside logs of training.

HEADER = "when,run,checkpoint,set,problems,hits,accuracy\n"


def trained(folder: Path, key: str = "reward_mean") -> None:
    for n in (2, 4):
        rows = "".join(f"{s},0.1,{0.3 + s / 100}\n" for s in range(1, 41))
        write(folder / f"logs/job-{n}.csv", f"step,loss,{key}\n{rows}")
    write(folder / "jobs.csv", "run,rollouts_per_problem,problems_per_step,seed\n"
          + "".join(f"job-{n},{n},24,8\n" for n in (2, 4)))  # fmt: skip


def evaluated(folder: Path, steps: tuple[int, ...], runs: tuple[int, ...] = (2, 4)) -> None:
    rows = [f"d{i},job-{n},{s},held,100,7,{score(s, n)}\n" for n in runs
            for i, s in enumerate(steps)]  # fmt: skip
    write(folder / "scores.csv", HEADER + "".join(rows))


def test_a_table_with_the_scores_of_logs_beside_it_is_named(tmp_path: Path) -> None:
    trained(tmp_path)
    evaluated(tmp_path, (0, 10, 40, 30, 20))  # two of them came later
    said = refused(tmp_path)
    file = str(tmp_path / "scores.csv")
    assert f"isocompute fit {file} --map accuracy=score --map checkpoint=steps;" in said
    found = load(Path(file), ("accuracy=score", "checkpoint=steps"))
    assert drawn(found) == {(24, n, 8): [24 * n * s for s in STEPS] for n in (2, 4)}
    assert all([*c.score_K] == [score(s, c.rollouts_per_problem) for s in STEPS] for c in found)
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "st"), "--map",
                 "reward_mean=avg", "--set", "split=train"]) == 0  # fmt: skip


@pytest.mark.parametrize(("key", "more"), [
    ("eval/accuracy", {}),  # the logs may hold it themselves
    ("reward_mean", {"runs": (2,)}),  # the table is of other runs
    ("reward_mean", {"steps": (40,)}),  # it holds ends alone
])  # fmt: skip
def test_other_tables_beside_logs_are_not_meant(
    tmp_path: Path, key: str, more: dict[str, Any]
) -> None:
    trained(tmp_path, key)
    evaluated(tmp_path, **{"steps": (0, 20, 40), **more})
    assert "isocompute fit" not in refused(tmp_path)


# Sheets by hand: a page for each n, a column for each seed, counts of right answers.


def test_counts_by_seed_are_asked_about_once(tmp_path: Path) -> None:
    for n in (4, 8):
        rows = "".join(f"{s},{100 + s + n},{101 + s + n}\n" for s in STEPS)
        write(tmp_path / f"n={n}.csv", f"step,seed 3,seed 4\n{rows}")
    said = refused(tmp_path, (), ("problems_per_batch=24",))
    assert "--set pattern='n={rollouts_per_problem}'" in said
    assert said.count("--range LOW HIGH") == 1
    assert "HIGH is the number of problems" in said
    given = ("problems_per_batch=24", "pattern=n={rollouts_per_problem}")
    found = load(tmp_path, (), given, score_range=(0.0, 200.0))
    assert drawn(found) == {
        (24, n, seed): [24 * n * s for s in STEPS] for n in (4, 8) for seed in (3, 4)
    }
    assert {c.score_K[0] for c in found} == {104 / 200, 105 / 200, 108 / 200, 109 / 200}


def test_columns_of_seeds_beside_a_score_are_none(tmp_path: Path) -> None:
    rows = "".join(f"{s},{score(s, n)},{s},{s + 1},{n}\n" for n in (4, 8) for s in STEPS)
    path = write(tmp_path / "a.csv", f"step,score,seed 1,seed 2,rollouts_per_problem\n{rows}")
    found = load(path, (), ("problems_per_batch=24",))
    assert {(c.seed, c.score_K[-1]) for c in found} == {(None, score(40, n)) for n in (4, 8)}
