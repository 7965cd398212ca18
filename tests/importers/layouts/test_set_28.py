"""What the twenty-eighth blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import import_logs, read_log
from isocompute.importers.tables.workbooks import sheets_of
from isocompute.importers.words.settings import load_settings
from layout_helpers import drawn, load, refused, score, write

STEPS = range(0, 41, 10)
TURNS = "train/num_samples"
MAP = ("dev/exact=avg",)


def looped(folder: Path, n: int, trained: int, rows: range, **more: object) -> None:
    """A loop that evaluates at 1, 11, 21, ... and once more at the end."""
    said = {"problems_per_batch": 6, "rollouts_per_problem": n, **more}
    write(folder / f"own-n{n}.config.json", json.dumps(said))
    log = list[dict[str, object]]()
    for step in rows:
        row: dict[str, object] = {"step": step}
        if step <= trained:
            row |= {"loss": 0.1, "train/reward": 0.4}
        if step % 10 == 1:
            row["dev/exact"] = score(step, n)
        log.append(row)
    write(folder / f"own-n{n}.jsonl", "\n".join(map(json.dumps, log)))


# Evaluations in the row of the update that follows them.


@pytest.mark.parametrize(
    ("trained", "plan", "earlier"), [(40, 40, 1), (40, None, 1), (41, None, 0), (40, 41, 0)]
)
def test_an_evaluation_beyond_the_last_update_was_before_it(
    tmp_path: Path, trained: int, plan: int | None, earlier: int
) -> None:
    for n in (2, 4):
        looped(tmp_path, n, trained, range(1, 42), **({"num_updates": plan} if plan else {}))
    found = load(tmp_path, MAP)
    at = [step - earlier for step in range(1, 42, 10)]
    assert drawn(found) == {(6, n, None): [6 * n * s for s in at] for n in (2, 4)}
    assert found[0].score_K[0] == score(1, found[0].rollouts_per_problem)


# A score that was renamed between the runs of a sweep.


def cookbook(folder: Path, n: int, word: str) -> None:
    home = folder / f"{n}group"
    said = {"dataset_builder": {"batch_size": 8, "group_size": n, "seed": 3}}
    write(home / "config.json", json.dumps(said))
    rows = ({"step": step, "test/env/all/reward/total": score(step, n) - 0.1,
             f"test/env/all/{word}": score(step, n), "env/all/reward/total": 0.3}
            for step in STEPS)  # fmt: skip
    write(home / "metrics.jsonl", "\n".join(map(json.dumps, rows)))


def test_a_score_under_two_names_is_asked_for_and_read_as_one(tmp_path: Path) -> None:
    for n, word in ((4, "correct"), (8, "correct"), (16, "accuracy")):
        cookbook(tmp_path, n, word)
    both = ["test/env/all/correct=own", "test/env/all/accuracy=own"]
    told = refused(tmp_path, metric="avg:correct")
    assert "2 hold test/env/all/correct and 1 hold test/env/all/accuracy in its place" in told
    assert f"add --map {both[0]} --map {both[1]} (fit and plan take it with --metric own)" in told
    with pytest.raises(InputError) as caught:
        import_logs([tmp_path], tmp_path / "study")
    assert caught.value.options == ("--map", both[0], "--map", both[1])
    found = load(tmp_path, both, metric="own")
    assert drawn(found) == {(8, n, 3): [8 * n * s for s in STEPS] for n in (4, 8, 16)}
    assert {c.score_K[0] for c in found} == {score(0, n) for n in (4, 8, 16)}
    apart = load(tmp_path, ["test/env/all/accuracy=other"], metric="avg:correct")
    assert {c.rollouts_per_problem for c in apart} == {4, 8}


def test_another_rate_beside_the_score_of_all_runs_is_no_new_name_of_it(tmp_path: Path) -> None:
    for n in (4, 8):
        cookbook(tmp_path, n, "correct")
    text = (tmp_path / "8group" / "metrics.jsonl").read_text()
    write(tmp_path / "8group" / "metrics.jsonl", text.replace(
        '"env/all/reward', '"test/env/all/solved_once": 0.5, "env/all/reward'))  # fmt: skip
    assert len(load(tmp_path, metric="avg:correct")) == 2


# The line that an import offers.


def test_a_score_of_training_by_its_name_is_read_from_a_study_of_logs(tmp_path: Path) -> None:
    for n in (4, 8):
        rows = ({"step": step, "rewards/exact/mean": score(step, n), "reward": 1.4, "loss": 0.1,
                 "kl": 0.1, "problems_per_batch": 6, "rollouts_per_problem": n}
                for step in range(1, 41))  # fmt: skip
        write(tmp_path / "logs" / f"a{n}.jsonl", "\n".join(map(json.dumps, rows)))
    import_logs([tmp_path / "logs"], tmp_path / "study")
    found = load(tmp_path / "study", split="train", metric="avg:exact")
    assert {c.rollouts_per_problem: c.score_K[0] for c in found} == {
        n: score(1, n) for n in (4, 8)
    }


# NeMo-RL: each checkpoint keeps the configuration, and the scores that the log has.


def nemo(folder: Path, n: int, rate: float, name: str = "", kept: float = 0.0) -> None:
    name = name or f"grpo_n{n}"
    rows = ({"step": step, "data": {"validation/accuracy": score(step, n)}} for step in STEPS)
    log = folder / "logs" / name / "exp_001" / "metrics.jsonl"
    write(log, "\n".join(map(json.dumps, rows)))
    home = folder / "results" / name / "step_30"
    said = {"grpo": {"num_prompts_per_step": 4, "num_generations_per_prompt": n, "seed": 2},
            "policy": {"optimizer": {"kwargs": {"lr": rate}}},
            "checkpointing": {"checkpoint_dir": f"results/{name}"}}  # fmt: skip
    write(home / "config.yaml", json.dumps(said))
    info = {"current_step": 30, "consumed_samples": 120, "val:accuracy": score(30, n) + kept}
    write(home / "training_info.json", json.dumps(info))


def test_the_best_checkpoint_is_no_run_of_its_own(tmp_path: Path) -> None:
    for n in (4, 8, 16):
        nemo(tmp_path, n, 1e-6, kept=2e-5)  # the log is rounded
    found = load(tmp_path)
    assert drawn(found) == {(4, n, 2): [4 * n * s for s in STEPS] for n in (4, 8, 16)}
    assert len(found) == 3
    nemo(tmp_path, 16, 1e-6, kept=0.1)  # of another evaluation
    assert "'grpo_n16' is of n = 16 and seed 2, as 'grpo_n16/exp_001' is" in refused(tmp_path)
    assert len(load(tmp_path, where=["run=*"])) == 4


def test_the_learning_rate_of_most_runs_is_offered(tmp_path: Path) -> None:
    for n, rate, name in ((4, 1e-6, ""), (8, 1e-6, ""), (16, 5e-6, ""), (16, 1e-6, "grpo_n16_r2")):
        nemo(tmp_path, n, rate, name)
    told = refused(tmp_path)
    assert "1e-06 (3 runs), 5e-06 (1 run); choose with --where learning_rate=1e-06" in told
    assert {c.run.partition("/")[0] for c in load(tmp_path, where=["learning_rate=1e-06"])} == {
        "grpo_n4", "grpo_n8", "grpo_n16_r2"
    }


# TRL: how many processes there were stands in accelerate's own file alone.


@pytest.mark.parametrize("count", [2, -1])
def test_accelerate_s_file_completes_a_recipe_elsewhere(tmp_path: Path, count: int) -> None:
    for n in (4, 8):
        said = {"output_dir": f"runs/G{n}_s1", "num_generations": n, "seed": 1,
                "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}  # fmt: skip
        write(tmp_path / "recipes" / f"G{n}_s1.yaml", json.dumps(said))
        history = [{"step": s, "eval_reward": score(s, n), "loss": 0.1} for s in STEPS]
        state = {"log_history": history, "global_step": 40, "max_steps": 40}
        home = tmp_path / "runs" / f"G{n}_s1" / "checkpoint-40"
        write(home / "trainer_state.json", json.dumps(state))
    write(tmp_path / "zero2.yaml", f"distributed_type: DEEPSPEED\nnum_processes: {count}\n")
    if count < 0:
        assert "add --set processes=P with your own number" in refused(tmp_path)
    else:
        assert drawn(load(tmp_path)) == {(32 // n, n, 1): [32 * s for s in STEPS] for n in (4, 8)}


# A sweep of agents of a loop of one's own, packed.


def hydra(folder: Path) -> None:
    for job, n in enumerate((2, 4)):
        home = folder / "multirun" / str(job)
        said = {"train": {"tasks_per_iter": 6, "group_size": n}, "seed": 1}
        write(home / ".hydra" / "config.yaml", json.dumps(said))
        rows = "".join(f"{s},{6 * n * 11 + s},{6 * n},{score(s, n)}\n" for s in STEPS)
        write(home / "metrics.csv", f"iter,{TURNS},train/num_trajectories,eval/win_rate\n{rows}")


def test_an_archive_is_answered_with_the_command_that_unpacks_it(tmp_path: Path) -> None:
    hydra(tmp_path / "src")
    (tmp_path / "logs").mkdir()
    packed = tmp_path / "logs" / "sweep.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(tmp_path / "src", arcname="sweep")
    command = f"tar -xf {packed} -C {packed.parent}"
    for source in (packed, packed.parent):
        with pytest.raises(InputError, match=re.escape(command)):
            read_log(source)
    subprocess.run(shlex.split(command), check=True)
    with pytest.raises(InputError, match="holds 2 tables; give the folder to fit, with eval/win_"):
        read_log(packed.parent)
    # turns are samples of training, and the rollouts whole episodes: B_p * n * iter
    found = load(packed.parent, ["eval/win_rate=score"])
    assert drawn(found) == {(6, n, 1): [6 * n * s for s in STEPS] for n in (2, 4)}


def test_tables_that_ask_for_several_things_are_handed_on_as_they_are(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "iter,dev_acc\n0,0.5\n10,0.6\n")
    write(tmp_path / "b.csv", "iter,test_exact\n0,0.5\n10,0.6\n")
    with pytest.raises(InputError, match=r"2 tables; give the folder to fit as it is: .*\w$"):
        read_log(tmp_path)


# Tables of evaluations beside logs that hold scores of training alone.


def swift(folder: Path, n: int, **more: object) -> None:
    home = folder / "output" / f"g{n}" / "v0-20260811-093310"
    said = {"num_generations": n, "per_device_train_batch_size": 4, "seed": 7,
            "gradient_accumulation_steps": n, "global_world_size": 2, **more}  # fmt: skip
    write(home / "args.json", json.dumps(said))
    rows = ({"global_step/max_steps": f"{step}/40", "reward": 1.2, "loss": 0.1, "kl": 0.1}
            for step in range(5, 41, 5))  # fmt: skip
    write(home / "logging.jsonl", "\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("form", ["column", "name", "sets", "one"])
def test_a_table_of_checkpoints_gives_the_scores_of_its_runs(tmp_path: Path, form: str) -> None:
    text = "run,ckpt,task,exact,num_problems\n"
    for n in (4, 8):
        swift(tmp_path, n)
        header = "run,checkpoint,exact\n" if form == "column" else "step,exact\n"
        of = f"g{n}," if form == "column" else ""
        rows = [(f"checkpoint-{s}" if of else s, score(s, n)) for s in STEPS]
        text += "".join(f"g{n},out/checkpoint-{s},{t},{score(s, n)},500\n" for s in STEPS
                        for t in ("aime", "math")[: 1 + (form == "sets")])  # fmt: skip
        if form in ("column", "name"):
            body = "".join(f"{of}{a},{b}\n" for a, b in rows)
            write(tmp_path / "evals" / f"g{n}_exact.csv", header + body)
    if form in ("sets", "one"):
        write(tmp_path / "all.csv", text)
    told = refused(tmp_path)
    key = "aime/exact" if form == "sets" else "exact"
    assert f"(--map {key}=avg" in told
    found = load(tmp_path, [f"{key}=avg"])
    assert drawn(found) == {(8, n, 7): [8 * n * s for s in STEPS] for n in (4, 8)}
    assert {c.score_K[1] for c in found} == {score(10, n) for n in (4, 8)}


def test_percent_of_a_table_is_asked_for_run_by_run(tmp_path: Path) -> None:
    for n, unit in ((4, 1), (8, 100)):
        swift(tmp_path, n)
        rows = "".join(f"g{n},{s},{score(s, n) * unit}\n" for s in STEPS)
        write(tmp_path / f"g{n}.csv", f"run,step,test_acc\n{rows}")
    told = refused(tmp_path, ["test_acc=avg"])
    assert "add --set percent=g8/v0-20260811-093310 if that is percent" in told
    found = load(tmp_path, ["test_acc=avg"], ["percent=g8/v0-20260811-093310"])
    assert {round(c.score_K[0], 5) for c in found} == {score(0, n) for n in (4, 8)}


@pytest.mark.parametrize("rows", [
    "run,checkpoint,acc\ng4,checkpoint-10,0.5\ng4,checkpoint-10,0.6\n",  # twice
    "run,checkpoint,acc\ng4,final,0.5\n", "run,checkpoint,acc\nsomebody,checkpoint-10,0.5\n",
    "run,step,rollouts,acc\ng4,10,320,0.5\n",  # a table of curves
])  # fmt: skip
def test_a_table_that_is_no_result_of_checkpoints_is_left_alone(tmp_path: Path, rows: str) -> None:
    swift(tmp_path, 4)
    write(tmp_path / "t.csv", rows)
    (run,) = read_log(tmp_path)
    assert {s.split for s in run.series} == {"train"}
    assert "acc" not in run.provenance.unread
    assert run.notes[-1].startswith("1 other file of the folder gave no run")


def test_checkpoints_of_a_log_that_counts_otherwise_are_not_placed(tmp_path: Path) -> None:
    swift(tmp_path, 4, num_iterations=2)  # a step of the log is half of an update
    write(tmp_path / "t.csv", "run,checkpoint,acc\ng4,checkpoint-10,0.5\n")
    (run,) = read_log(tmp_path)
    assert any(line.startswith("step:") for line in run.concluded)
    assert "acc" not in run.provenance.unread


# A workbook with a sheet for each run, and one of their settings.


def test_a_column_of_a_sheet_of_settings_is_of_the_sheet_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from test_workbooks import book

    setup: list[list[object]] = [
        ["", "a", "b", "remark"], ["trainer", "TRL", "same", "1x A100"],
        ["training problems in the data set", 80, 80], ["num_generations", 2, 4],
        ["epochs", 2, 2], ["seed", 5, 6],
    ]  # fmt: skip
    runs: dict[str, list[list[object]]] = {
        name: [["epoch", "reward", "val_acc"], *([s / 20, 1.2, score(s, n)] for s in STEPS)]
        for name, n in (("a", 2), ("b", 4))
    }
    made = book(tmp_path / "all.xlsx", {"setup": setup, **runs})
    assert main(["import", str(tmp_path), "-o", str(tmp_path / "st")]) == 2
    told = capsys.readouterr().err.strip()
    line = f"isocompute fit {made} --map val_acc=score --set problems_per_batch=B_P"
    assert told.endswith(line)
    found = load(made, ["val_acc=score"], ["problems_per_batch=4"])
    assert drawn(found) == {(4, n, s): [4 * n * k for k in STEPS] for n, s in ((2, 5), (4, 6))}


def test_a_sheet_of_scores_with_the_names_of_sheets_stays_one(tmp_path: Path) -> None:
    from test_workbooks import book

    for first in (0.0, "step 0"):
        rows: list[list[object]] = [["at", "n2", "n4"]] + [
            [first if not s else s if first == 0.0 else f"step {s}", score(s, 2), score(s, 4)]
            for s in STEPS
        ]
        runs = {f"n{n}": [["step", "loss"], [0.0, 0.5], [1.0, 0.4]] for n in (2, 4)}
        assert len(sheets_of(book(tmp_path / "all.xlsx", {"scores": rows, **runs}))) == 3


# Dynamic sampling: what it dropped was drawn, and some count it not.


@pytest.mark.parametrize("drawn_as", [None, "all", "kept"])
def test_what_dynamic_sampling_dropped_is_counted_unless_it_is_told(
    tmp_path: Path, drawn_as: str | None
) -> None:
    said = ("problems_per_batch=8", *([f"drawn={drawn_as}"] if drawn_as else []))
    for n in (2, 4):
        rows = [{"step": 0, "data": {"val-core/m/acc/mean@4": score(0, n)}}]
        rows += [{"step": s, "data": {"train/num_gen_batches": 1 + s % 2,
                                      "val-core/m/acc/mean@4": score(s, n)}} for s in range(1, 5)]
        write(tmp_path / f"n{n}.jsonl", "\n".join(map(json.dumps, rows)))
    notes: list[str] = []
    found = load(tmp_path, (), (*said, "pattern=n{rollouts_per_problem}"), say=notes.append)
    batches = [0, 1, 2, 3, 4] if drawn_as == "kept" else [0, 2, 3, 5, 6]
    assert drawn(found) == {(8, n, None): [8 * n * k for k in batches] for n in (2, 4)}
    told = "dynamic sampling drew more" if drawn_as == "kept" else "--set drawn=kept counts"
    assert any(told in line for line in notes)


def test_a_word_that_is_none_of_a_setting_is_refused() -> None:
    with pytest.raises(InputError, match="`drawn` must be all or kept, but got 'some'"):
        load_settings(["drawn=some"])


# A console whose lines say the file and line of the code that wrote them.


@pytest.mark.parametrize("form", ["[loop.py ({})] [PID 51]", "[loop.py({})][PID 51]"])
def test_the_line_of_code_is_no_process(tmp_path: Path, form: str) -> None:
    for n in (2, 4):
        lines = list[str]()
        for s in STEPS:
            row = {"system/step": s, "val/win": score(s, n), "loss": 0.1}
            lines.append(f"{form.format(670)} val metrics: {{'val/win': {score(s, n)}}}")
            lines.append(f"{form.format(612)} {json.dumps({'step': s, **row})}")
        write(tmp_path / f"bp6_n{n}.log", "\n".join(lines))
    said = ("pattern=bp{problems_per_batch}_n{rollouts_per_problem}",)
    found = load(tmp_path, ["val/win=avg"], said)
    assert drawn(found) == {(6, n, None): [6 * n * s for s in STEPS] for n in (2, 4)}
    assert {c.run for c in found} == {"bp6_n2", "bp6_n4"}
