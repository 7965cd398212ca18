"""What the twenty-fourth blind set found: by construction, with other names."""

from __future__ import annotations

import json
import random
import sqlite3
from itertools import zip_longest
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.importers import read_log
from layout_helpers import drawn, load, refused, score, write
from test_set_23 import updates

# Two statements of a log that disagree are asked about.


def axolotl(folder: Path, n: int, sharers: int) -> None:
    said = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 40,
            "steps_per_generation": 2, "generation_batch_size": 64, "num_generations": n,
            "context_parallel_size": sharers, "seed": 3}  # fmt: skip
    rows = [{"step": s, "eval_reward": score(s, n)} for s in range(0, 41, 10)]
    write(folder / f"n{n}/args.json", json.dumps(said))
    state = {"log_history": rows, "global_step": 40, "max_steps": 40}
    write(folder / f"n{n}/trainer_state.json", json.dumps(state))


@pytest.mark.parametrize(("processes", "batch"), [(4, 32), (8, 64)])
def test_processes_that_share_a_sequence_are_asked_about(
    tmp_path: Path, processes: int, batch: int
) -> None:
    for n in (4, 8):
        axolotl(tmp_path, n, 2)
    said = refused(tmp_path)
    assert "--set processes=4 if 2 processes share each sequence, or --set processes=8 if" in said
    assert "context_parallel_size 2 says that 2 of them share each sequence" in said
    found = load(tmp_path, (), (f"processes={processes}",))
    assert drawn(found) == {
        (batch // n, n, 3): [batch * s for s in range(0, 41, 10)] for n in (4, 8)
    }


def test_processes_that_share_nothing_are_as_logged(tmp_path: Path) -> None:
    for n in (4, 8):
        axolotl(tmp_path, n, 1)
    assert {(c.problems_per_batch, c.rollouts_per_problem) for c in load(tmp_path)} == {
        (16, 4), (8, 8)
    }  # fmt: skip


# One console of several runs.


def verl(n: int, last: int = 30) -> list[str]:
    ray = "\x1b[36m(TaskRunner pid=77)\x1b[0m "
    command = ("+ python3 -m verl.trainer.main_ppo data.train_batch_size=16 data.seed=4 "
               f"actor_rollout_ref.rollout.n={n} trainer.total_training_steps={last}")  # fmt: skip
    rows = [f"{ray}step:{s} - val-core/gsm8k/reward/mean@1:{score(s, n)} - actor/lr:1e-06"
            for s in range(0, last + 1, 5)]  # fmt: skip
    return [command, *rows]


def mixed(form: str) -> str:
    """What three runs write in turn, each line behind the name of who wrote it."""
    wrote = {f"job-{n}-x{n}k": verl(n) for n in (2, 4, 8)}
    late = (["" for _ in range(2 * at)] + lines for at, lines in enumerate(wrote.values()))
    return "".join(f"{form.format(name)}{line}\n" for turn in zip_longest(*late)
                   for name, line in zip(wrote, turn, strict=True) if line)  # fmt: skip


@pytest.mark.parametrize("form", ["[pod/{}/main] ", "{}  | "])
def test_a_name_before_every_line_tells_the_runs_of_a_console_apart(
    tmp_path: Path, form: str
) -> None:
    write(tmp_path / "all.log", mixed(form))
    found = load(tmp_path)
    assert drawn(found) == {(16, n, 4): [16 * n * s for s in range(0, 31, 5)] for n in (2, 4, 8)}
    assert {c.rollouts_per_problem: c.score_K[-1] for c in found} == {
        n: score(30, n) for n in (2, 4, 8)
    }
    assert {c.run for c in found} == {f"job-{n}-x{n}k" for n in (2, 4, 8)}


def test_runs_that_take_turns_behind_names_of_another_form_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "all.log", mixed("<{}> "))
    assert "go back 10 times, as where several runs write into one file" in refused(tmp_path)
    told = mixed("{}>> ")
    for n in (2, 4, 8):
        told = "\n".join(line.replace("pid=77", f"pid=7{n}") if f"job-{n}-" in line else line
                         for line in told.split("\n"))  # fmt: skip
    write(tmp_path / "all.log", told)
    assert "take turns; split it" in refused(tmp_path)


def trl(n: int, *, ends: bool = True, command: bool = True, of: int = 24) -> str:
    """What TRL prints of a training: its command, a bar, rows without a step."""
    text = (f"+ accelerate launch --num_processes 2 t.py --num_generations {n} --seed 5 "
            "--per_device_train_batch_size 8 --gradient_accumulation_steps 2 "
            f"--max_steps {of}\n") if command else ""  # fmt: skip
    for s in range(of + 1):
        bar = f"\r{100 * s // of:3d}%|##| {s}/{of} [0:00:{s:02d}<0:09, 1.0s/it]"
        text += bar
        if s and s % 6 == 0:
            for row in ({"loss": "0.1", "reward": "0.4"}, {"eval_reward": f"{score(s, n)}"}):
                text += f"\n{ {**row, 'epoch': f'{s / 100:.4g}'} }\n{bar}"
    text += "\n"
    return text + ("{'train_runtime': '9', 'epoch': '0.24'}\n" if ends else "")


@pytest.mark.parametrize("ends", [True, False])
def test_trainings_one_after_the_other_in_a_console_are_runs(tmp_path: Path, ends: bool) -> None:
    write(tmp_path / "nohup.out", "".join(trl(n, ends=ends) for n in (2, 4, 8)))
    found = load(tmp_path)
    assert drawn(found) == {(32 // n, n, 5): [32 * s for s in range(6, 25, 6)] for n in (2, 4, 8)}
    assert {c.rollouts_per_problem: c.score_K[-1] for c in found} == {
        n: score(24, n) for n in (2, 4, 8)
    }


def test_trainings_that_say_nothing_of_themselves_are_described_beside(tmp_path: Path) -> None:
    write(tmp_path / "nohup.out", trl(2, command=False) + trl(4, command=False))
    assert "where they differ, write runs.csv beside the logs" in refused(tmp_path)
    rows = "nohup,16,2,5\nnohup-2,8,4,5\n"
    write(tmp_path / "runs.csv", f"run,problems_per_batch,rollouts_per_problem,seed\n{rows}")
    assert drawn(load(tmp_path)) == {
        (16, 2, 5): [32 * s for s in range(6, 25, 6)],
        (8, 4, 5): [32 * s for s in range(6, 25, 6)],
    }


# The last update.


@pytest.mark.parametrize(("last", "counted"), [(1195, 1200), (900, 900)])
def test_a_sampled_history_ends_with_its_plan_if_that_is_near(
    tmp_path: Path, last: int, counted: int
) -> None:
    for n in (4, 8):
        said = {"problems_per_batch": 8, "rollouts_per_problem": n, "seed": 2, "steps": 1200}
        write(tmp_path / f"a{n}.json", json.dumps(said))
        kept = [*sorted(random.Random(n).sample(range(1, last), 499)), last]
        scored = [k for k in kept if k % 50 < 2]
        rows = [f"{k + 20},{k},0.4,{score(k // 50, n) if k in scored else ''}" for k in kept]
        write(tmp_path / f"a{n}.csv", "_step,train/global_step,train/reward,eval/reward\n"
              + "\n".join(rows) + "\n")  # fmt: skip
    assert updates(tmp_path) == {"a4": counted, "a8": counted}


# Rows whose step another line says.


def pipeline(folder: Path, n: int, *, said_behind: bool = True) -> None:
    """ROLL's agentic pipeline: a line before and one behind a step, its numbers between."""
    lines = []
    for s in range(25):
        row = {"critic/score/mean": 0.3, "actor/lr": 1e-6} | (
            {} if s % 6 else {"val/score/mean": score(s, n), "val/score/max": 1.0}
        )
        lines += [f"[t] [p.py (10)] [INFO] [PID 7] rollout step {s} start...",
                  f"[t] [p.py (20)] [INFO] [PID 7] {json.dumps(row)}"]  # fmt: skip
        lines += [f"[t] [p.py (30)] [INFO] [PID 7] step {s} finished"] * said_behind
    write(folder / f"lake{n}/logs/log_rank_DRIVER_0_1.log", "\n".join(lines) + "\n")
    write(folder / f"lake{n}/agent.yaml", "rollout_batch_size: 96\nseed: 8\nmax_steps: 25\n"
          f"train_env_manager:\n  num_env_groups: 3\n  group_size: {n}\n")  # fmt: skip


def test_lines_around_a_row_say_its_step(tmp_path: Path) -> None:
    for n in (4, 8):
        pipeline(tmp_path, n)
    assert "--map val/score/mean=avg" in refused(tmp_path)
    found = load(tmp_path, ("val/score/mean=avg",))
    assert drawn(found) == {(96 // n, n, 8): [96 * s for s in range(0, 25, 6)] for n in (4, 8)}
    assert {c.run: c.score_K[-1] for c in found} == {f"lake{n}": score(24, n) for n in (4, 8)}
    assert updates(tmp_path, "--map", "val/score/mean=avg") == {"lake4": 25, "lake8": 25}


def test_a_step_that_one_side_alone_says_is_not_taken(tmp_path: Path) -> None:
    pipeline(tmp_path, 4, said_behind=False)
    assert "holds nothing of them" in refused(tmp_path)


# Evaluations of epochs' checkpoints.


def torchtune(folder: Path, n: int, *, first: int = 0, epochs: int = 5) -> None:
    home = folder / f"tt{n}"
    rows = [f"Step {s} | rewards:4.1 successes:0.3 loss:0.1 lr:1e-05 grad_norm:0.2 "
            for s in range(1, 31)]  # fmt: skip
    write(home / "logs/log_1793790000.txt", "\n".join(rows) + "\n")
    write(home / "tt.yaml", f"batch_size: 6\ngrpo_samples: {n}\nnum_steps: 30\nepochs: {epochs}\n"
          f"ppo_epochs: 1\nseed: {n}\n")  # fmt: skip
    for at in range(6):
        name = f"epoch_{at - 1 + first}" if at else "base"
        said = {"checkpoint": "sft/epoch_0", "num_problems": 64, "accuracy": score(at, n)}
        write(home / f"eval/{name}.json", json.dumps(said))


@pytest.mark.parametrize("first", [0, 1])
def test_results_of_epochs_stand_at_their_last_update(tmp_path: Path, first: int) -> None:
    for n in (4, 8):
        torchtune(tmp_path, n, first=first)
    said = refused(tmp_path)
    assert "--map accuracy=avg" in said
    assert "--set processes=P" in said
    assert "num_problems=" not in said
    found = load(tmp_path, ("accuracy=avg",), ("processes=2",))
    assert drawn(found) == {(12, n, n): [12 * n * s for s in range(0, 31, 6)] for n in (4, 8)}
    assert {c.run: list(c.score_K) for c in found} == {
        f"tt{n}": [score(at, n) for at in range(6)] for n in (4, 8)
    }


@pytest.mark.parametrize("epochs", [4, 7])
def test_epochs_that_do_not_fit_their_plan_have_no_update(tmp_path: Path, epochs: int) -> None:
    torchtune(tmp_path, 4, epochs=epochs)
    assert all("accuracy" not in run.provenance.unread and not run.series
               for run in read_log(tmp_path, settings={"processes": 2}))  # fmt: skip


# A database of one's own.


def database(path: Path, graders: tuple[str, ...]) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE trials (id, name, prompts_per_update, group_size, seed)")
        db.execute("CREATE TABLE loss_rows (trial_id, batch, reward, loss)")
        db.execute("CREATE TABLE tests (id, trial_id, after_batches, n_problems, grader, accuracy)")
        for i, n in enumerate((4, 8), 1):
            db.execute("INSERT INTO trials VALUES (?, ?, 12, ?, 6)", (i, f"t{n}", n))
            for s in range(41):
                db.execute("INSERT INTO loss_rows VALUES (?, ?, 0.4, 0.1)", (i, s))
            for s in range(0, 41, 8):
                for at, grader in enumerate(graders):
                    db.execute("INSERT INTO tests VALUES (NULL, ?, ?, 100, ?, ?)",
                               (i, s, grader, score(s, n) + at / 10))  # fmt: skip


MAPS = ("accuracy=score", "prompts_per_update=problems_per_batch",
        "group_size=rollouts_per_problem", "after_batches=steps")  # fmt: skip


def test_tables_of_a_database_are_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database(tmp_path / "rl.db", ("strict", "lenient"))
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "study")]) == 2
    said = capsys.readouterr().err
    assert said.rstrip().endswith(" ".join([*(f"--map {word}" for word in MAPS),
                                            "--where grader=KIND"]))  # fmt: skip
    assert "rl.db, sheet tests: " in said
    found = load(tmp_path / "rl.db", MAPS, where=["grader=lenient"])
    assert drawn(found) == {(12, n, 6): [12 * n * s for s in range(0, 41, 8)] for n in (4, 8)}
    assert {c.run: c.score_K[-1] for c in found} == {
        f"t{n}": pytest.approx(score(40, n) + 0.1) for n in (4, 8)
    }


def test_a_database_without_numbers_holds_no_table(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("CREATE TABLE words (a, b, c)")
    assert "must be one of MLflow" in refused(tmp_path / "a.db")
    with sqlite3.connect(tmp_path / "b.db") as db:
        db.execute("CREATE TABLE tests (step, accuracy)")
    assert "has a column of numbers" in refused(tmp_path / "b.db")


# A table of a paper.

PAPER = r"""\section{Groups} All runs use seed 5. % but not seed 9
\begin{tabular}{@{}r|cc@{}}
  \toprule
  Rollouts ($\times 10^{3}$) & $g=4$ & $g=8$ \\ \cmidrule(lr){2-3}
  ROWS  \bottomrule
\end{tabular}
"""


@pytest.mark.parametrize("said", ["seed 5", "three seeds"])
def test_a_table_in_latex_is_a_sheet(tmp_path: Path, said: str) -> None:
    rows = "".join(rf"{960 * s / 1000:g} & $\mathbf{{{score(s, 4)}}}$ & \textbf{{{score(s, 8)}}} \\"
                   for s in range(0, 41, 8))  # fmt: skip
    path = write(tmp_path / "app.tex", PAPER.replace("ROWS", rows).replace("seed 5", said))
    told = refused(tmp_path)
    assert told.endswith("--set 'pattern=g={rollouts_per_problem}' --set problems_per_batch=B_P")
    sets = ("pattern=g={rollouts_per_problem}", "problems_per_batch=12")
    found = load(path, (), sets)
    seed = 5 if said == "seed 5" else None
    assert drawn(found) == {(12, n, seed): [960 * s for s in range(0, 41, 8)] for n in (4, 8)}
    assert {c.rollouts_per_problem: list(c.score_K) for c in found} == {
        n: [score(s, n) for s in range(0, 41, 8)] for n in (4, 8)
    }


def test_a_paper_beside_tables_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "app.tex", PAPER.replace("ROWS", r"0 & 0.1 & 0.2 \\ 1 & 0.2 & 0.3 \\"))
    rows = "\n".join(f"8,4,{32 * s},{score(s, 4)},0" for s in range(0, 41, 8))
    names = "problems_per_batch,rollouts_per_problem,rollouts,score,seed"
    write(tmp_path / "t.csv", f"{names}\n{rows}")
    assert drawn(load(tmp_path)) == {(8, 4, 0): [32 * s for s in range(0, 41, 8)]}
    write(tmp_path / "empty/app.tex", "no table")
    assert "must hold at least one log" in refused(tmp_path / "empty")
