"""The 37th blind set: what every folder must give, and what was wrong at the first try."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import set_37
from isocompute.cli import main
from isocompute.importers.words.vocabulary import column_of
from layout_helpers import load, refused, write

TOLD: dict[str, tuple[Sequence[str], Sequence[str], dict[str, object]]] = {
    "verl_file": (
        (), ("pattern=bs{problems_per_batch}-n{rollouts_per_problem}-seed{seed}",
             "resumed=apart"), {"problem_set": "HuggingFaceH4/MATH-500"},
    ),
    "trl_checkpoints": ((), (), {"metric": "avg@4:accuracy_reward"}),
    "wandb_history": ((), ("resumed=apart",), {"metric": "avg:accuracy_reward"}),
    "wandb_charts": (
        (), ("pattern=bp{problems_per_batch}_n{rollouts_per_problem}_s{seed}",), {}),
    "unsloth_notebooks": (
        (), (), {"split": "train", "metric": "avg:correctness_reward_func"}),
    "openrlhf_tb": ((), ("pattern=rbs{problems_per_batch}_nspp{rollouts_per_problem}",), {}),
    "own_loop": (("eval_acc=avg",), (), {"score_range": (0.0, 100.0)}),
    "team_table": (
        ("MATH500=score", "Prompts per batch=problems_per_batch",
         "Group size=rollouts_per_problem"), (), {"score_range": (0.0, 100.0)},
    ),
    "lighteval": ((), ("pattern=n{rollouts_per_problem}", "problems_per_batch=16"), {}),
    "nemo_console": ((), ("resumed=apart",), {}),
}  # fmt: skip


def mended(folder: Path) -> None:
    """Put right what set 37, written before its first try, has that no trainer writes.

    Epochs of runs of other B_p pass at one pace, and training scores of seeds are the same.
    """
    for file in folder.rglob("trainer_state.json"):
        n, state = int(file.parts[-3].partition("-G")[2]), json.loads(file.read_text())
        for row in state["log_history"]:
            row["epoch"] = round(row["step"] * (64 // n) / 4800, 4)
        file.write_text(json.dumps(state))
    for file in folder.glob("wandb_export_*.csv"):
        rows = list(csv.reader(file.open()))
        if "critic/score" in rows[0][1]:
            for row in rows[1:]:
                for i in range(1, len(row), 3):
                    if row[i]:
                        moved = float(row[i]) + random.Random(f"{rows[0][i]}{row[0]}").random() / 50
                        row[i : i + 3] = [repr(moved)] * 3
            with file.open("w", newline="") as handle:
                csv.writer(handle).writerows(rows)


@pytest.mark.parametrize("maker", set_37.MAKERS, ids=lambda maker: maker.__name__)
def test_what_was_planted_is_read(tmp_path: Path, maker: Callable[[Path], None]) -> None:
    set_37.TRUTH.clear()
    maker(tmp_path)
    (name,) = set_37.TRUTH
    mended(tmp_path / name)
    maps, sets, options = TOLD.get(name, ((), (), {}))
    curves = load(tmp_path / name, maps, sets, **options)
    wanted = []
    for one in set_37.TRUTH[name]:
        began = [one["optional"]] if "optional" in one else []
        points = [*began, *one["points"]]
        wanted.append((one["bp"], one["n"], one["seed"] or 0, [r for r, _ in points],
                       [s / one.get("scale", 1) for _, s in points]))  # fmt: skip
    read = [(c.problems_per_batch, c.rollouts_per_problem, c.seed or 0, c.rollouts_K.tolist(),
             c.score_K.tolist()) for c in curves]  # fmt: skip
    if not any(of[2] for of in wanted):  # the truth has none; the configuration may
        read = [(*of[:2], 0, *of[3:]) for of in read]
    assert [of[:4] for of in sorted(read)] == [of[:4] for of in sorted(wanted)]
    for one, other in zip(sorted(read), sorted(wanted), strict=True):
        assert one[4] == pytest.approx(other[4], abs=2e-6)


# Notebooks: the table that transformers draws in place of what a console prints


def score(step: int, n: int) -> float:
    return round(0.2 + 0.5 * step / (step + 20) + n / 400, 6)


def table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, object]:
    head = "".join(f"      <th>{name}</th>\n" for name in names)
    body = "".join(
        "    <tr>\n" + "".join(f"      <td>{cell}</td>\n" for cell in row) + "    </tr>\n"
        for row in rows
    )
    return {"output_type": "display_data", "data": {"text/plain": "<HTML object>", "text/html": (
        '<div>[60/60]</div><table border="1" class="dataframe">\n  <thead>\n'
        f' <tr style="text-align: left;">\n{head}    </tr>\n  </thead>\n  <tbody>\n{body}'
        "  </tbody>\n</table><p>"
    )}}  # fmt: skip


def notebook(path: Path, n: int, *outputs: dict[str, object], again: str = "") -> None:
    """A training of B_p = 4, and one cell for each further output."""
    setting = f"GRPOConfig(per_device_train_batch_size=8, gradient_accumulation_steps={n // 2}, " \
              f"num_generations={n}, max_steps=60)"  # fmt: skip
    banner = {"output_type": "stream", "name": "stdout", "text": (
        f"Num Epochs = 1 | Total steps = 60\nBatch size per device = 8 | Gradient accumulation "
        f"steps = {n // 2}\nData Parallel GPUs = 1 | Total batch size (8 x {n // 2} x 1) = {4 * n}"
    )}  # fmt: skip
    cells = [(setting, []), ("trainer.train()", [banner, outputs[0]]),
             *((f"trainer.train({again})", [banner, one]) for one in outputs[1:])]  # fmt: skip
    write(path, json.dumps({"nbformat": 4, "cells": [
        {"cell_type": "code", "execution_count": at, "source": [source], "outputs": shown}
        for at, (source, shown) in enumerate(cells, 1)]}))  # fmt: skip


def drawn_rows(n: int, at: range, shift: float = 0.0) -> list[list[object]]:
    return [[s, "0.1", f"{score(s, n) + shift:.6f}"] for s in at]


HEAD = ("Step", "Training Loss", "reward")
AT = range(5, 61, 5)


def test_an_evaluation_of_transformers_table_is_held_out(tmp_path: Path) -> None:
    names = ("Step", "Training Loss", "Validation Loss", "Reward", "Rewards/accuracy Reward/mean")
    for n in (4, 8):
        rows = [[s, "No log", "0.002", f"{score(s, n) + 1:.6f}", f"{score(s, n):.6f}"] for s in AT]
        notebook(tmp_path / f"run_{n}.ipynb", n, table(names, rows))
    for curve in load(tmp_path, metric="avg:accuracy_reward"):
        n = curve.rollouts_per_problem
        assert curve.rollouts_K.tolist() == [4 * n * s for s in AT]
        assert curve.score_K.tolist() == pytest.approx([score(s, n) for s in AT])


def test_a_training_that_went_on_in_the_next_cell_is_one(tmp_path: Path) -> None:
    for n in (4, 8):
        notebook(
            tmp_path / f"run_{n}.ipynb", n,
            table(HEAD, [*drawn_rows(n, range(5, 31, 5)),
                         *drawn_rows(n, range(35, 46, 5), shift=0.05)]),
            table(HEAD, drawn_rows(n, range(35, 61, 5))), again="resume_from_checkpoint = True",
        )  # fmt: skip
    for curve in load(tmp_path, split="train"):
        n = curve.rollouts_per_problem
        assert curve.rollouts_K.tolist() == [4 * n * s for s in AT]
        assert curve.score_K.tolist() == pytest.approx([score(s, n) for s in AT])


@pytest.mark.parametrize(
    ("again", "then"),
    [("", AT), ("", range(35, 61, 5)), ("resume_from_checkpoint=None", range(35, 61, 5))],
)
def test_two_trainings_of_one_design_in_a_notebook_are_refused(
    tmp_path: Path, again: str, then: range
) -> None:
    notebook(tmp_path / "run.ipynb", 4, table(HEAD, drawn_rows(4, AT)),
             table(HEAD, drawn_rows(4, then, shift=0.05)), again=again)  # fmt: skip
    assert "every row must say whose it is" in refused(tmp_path, split="train")


def test_a_frame_that_was_shown_is_no_training(tmp_path: Path) -> None:
    frame = table(("", "step", "reward"), [[i, i, 0.9] for i in range(5)])
    for n in (4, 8):
        notebook(tmp_path / f"run_{n}.ipynb", n, frame, table(HEAD, drawn_rows(n, AT)))
    assert {tuple(c.rollouts_K) for c in load(tmp_path, split="train")} == {
        tuple(4.0 * n * s for s in AT) for n in (4, 8)
    }


def test_the_format_is_not_offered_as_the_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_37.unsloth_notebooks(tmp_path)
    assert main(["fit", str(tmp_path / "unsloth_notebooks")]) != 0
    told = capsys.readouterr().err
    assert "--split train --metric avg:correctness_reward_func" in told
    assert "match_format_exactly (1.5" not in told


def test_rewards_of_older_trl_are_of_training() -> None:
    for key, split in (("rewards/xmlcount_reward_func", "train"),
                       ("eval_rewards/accuracy_reward", "validation")):  # fmt: skip
        found = column_of(key)
        assert found is not None
        assert (found.split, found.metric.label) == (split, f"avg:{key.rpartition('/')[2]}")
    assert column_of("rewards/chosen") is None  # of DPO
    assert column_of("rewards/accuracy_reward/std") is None


# Tables: the base model's row


def sheet(path: Path, base: Sequence[str], ns: Sequence[int] = (4, 8), more: str = "") -> Path:
    rows = [f"g{n},{n},32,{s},{score(s, n)}{more}" for n in ns for s in (20, 40, 60)]
    names = "run,n,prompts,step,acc" + (",model" if more else "")
    return write(path, "\n".join((names, *base, *rows)) + "\n")


NAMED = ["acc=score", "n=rollouts_per_problem", "prompts=problems_per_batch"]


@pytest.mark.parametrize("base", ["base,,,0,0.3", "base,-,-,0,0.3", "base,,32,0,0.3"])
def test_every_run_begins_with_the_base_models_row(tmp_path: Path, base: str) -> None:
    for curve in load(sheet(tmp_path / "a.csv", [base]), NAMED):
        n = curve.rollouts_per_problem
        assert curve.rollouts_K.tolist() == [32 * n * s for s in (0, 20, 40, 60)]
        assert curve.score_K[0] == 0.3


def test_a_run_with_its_own_step_0_keeps_it(tmp_path: Path) -> None:
    curves = load(sheet(tmp_path / "a.csv", ["base,,,0,0.3", "g4,4,32,0,0.31"]), NAMED)
    assert {c.rollouts_per_problem: c.score_K[0] for c in curves} == {4: 0.31, 8: 0.3}


def test_a_base_row_above_merged_cells(tmp_path: Path) -> None:
    rows = ["base,,,0,0.3"]
    for n in (4, 8):
        rows += [f"g{n},{n},32,20,{score(20, n)}", *(f",,,{s},{score(s, n)}" for s in (40, 60))]
    curves = load(write(tmp_path / "a.csv", "\n".join(("run,n,prompts,step,acc", *rows))), NAMED)
    assert [(c.rollouts_per_problem, *c.score_K) for c in curves] == [
        (n, 0.3, *(score(s, n) for s in (20, 40, 60))) for n in (4, 8)
    ]


@pytest.mark.parametrize(
    ("base", "more"),
    [
        (["base,,,,0.3"], ""),  # of no step
        (["base,,,0,0.3", "other,,,0,0.2"], ""),
        (["base,,,0,0.3,A", "other,,,0,0.2,B"], ",A"),
        (["other,,,0,0.2,B"], ",A"),
    ],
)  # fmt: skip
def test_a_base_row_of_which_runs_nothing_says_is_refused(
    tmp_path: Path, base: list[str], more: str
) -> None:
    told = refused(sheet(tmp_path / "a.csv", base, more=more), NAMED)
    assert "drop rows of no run (the base model's are kept if they say step 0)" in told


def test_the_base_models_row_of_each_benchmark(tmp_path: Path) -> None:
    rows = ["base,,,0,math,0.3", "base,,,0,gsm,0.6"]
    rows += [f"g{n},{n},32,{s},{b},{score(s, n) + (b == 'gsm') / 10}" for n in (4, 8)
             for s in (20, 40, 60) for b in ("math", "gsm")]  # fmt: skip
    path = write(tmp_path / "a.csv", "\n".join(("run,n,prompts,step,benchmark,acc", *rows)))
    for problem_set, first in (("math", 0.3), ("gsm", 0.6)):
        assert [c.score_K[0] for c in load(path, NAMED, problem_set=problem_set)] == [first] * 2


# Two columns of scores under one name were repetitions of each other


def test_two_benchmarks_are_not_mapped_to_one_metric(tmp_path: Path) -> None:
    rows = [f"{n},{s},{score(s, n)},{score(s, n) + 0.1}" for n in (4, 8) for s in (0, 20, 40)]
    path = write(tmp_path / "a.csv", "\n".join(("n,step,MATH,GSM", *rows)))
    maps = ["n=rollouts_per_problem", "MATH=avg", "GSM=avg"]
    told = refused(path, maps, ["problems_per_batch=32"])
    assert "a metric of one problem set must have one column, but 'MATH' and 'GSM' both" in told
    columns = write(tmp_path / "columns.yaml", (
        "problems_per_batch: 32\ncolumns:\n  n: rollouts_per_problem\n"
        "  MATH: {metric: avg, problem_set: math}\n  GSM: {metric: avg, problem_set: gsm}\n"
    ))  # fmt: skip
    for problem_set, more in (("math", 0.0), ("gsm", 0.1)):
        curves = load(path, [str(columns)], problem_set=problem_set)
        assert [c.score_K[1] for c in curves] == [score(20, n) + more for n in (4, 8)]


def test_columns_of_seeds_beside_a_mapped_setting(tmp_path: Path) -> None:
    rows = [f"{n},{s},{score(s, n)},{score(s, n) + 0.01}" for n in (4, 8) for s in (0, 20, 40)]
    path = write(tmp_path / "a.csv", "\n".join(("G,step,seed0,seed1", *rows)))
    curves = load(path, ["G=rollouts_per_problem"], ["problems_per_batch=32"])
    assert sorted((c.rollouts_per_problem, c.seed) for c in curves) == [
        (4, 0), (4, 1), (8, 0), (8, 1)]  # fmt: skip


# verl names a grader by the set: acc of one, reward of the other


def test_two_sets_with_a_grader_each_ask_for_the_set(tmp_path: Path) -> None:
    for n in (4, 8):
        write(tmp_path / f"n{n}.jsonl", "".join(json.dumps({"step": s, "data": {
            "val-core/openai/gsm8k/reward/mean@1": score(s, n),
            "val-core/math_dapo/acc/mean@4": score(s, n) / 2}}) + "\n" for s in range(0, 60, 10)
        ))  # fmt: skip
    design = ["pattern=n{rollouts_per_problem}", "problems_per_batch=4"]
    assert "must hold one problem set" in refused(tmp_path, (), design)
    assert len(load(tmp_path, (), design, problem_set="math_dapo")) == 2


# lighteval: its pass@1 is a mean of samples, and says of how many


@pytest.mark.parametrize("key", ["pass@k:k=1&n=4", "math_pass@1:4_samples", "avg@n:n=4"])
def test_means_of_lighteval_say_their_samples(tmp_path: Path, key: str) -> None:
    set_37.TRUTH.clear()
    set_37.lighteval(tmp_path)
    for file in tmp_path.rglob("results_*.json"):
        file.write_text(file.read_text().replace("extractive_match", key))
    curves = load(tmp_path / "lighteval", *TOLD["lighteval"][:2])
    assert {c.metric for c in curves} == {"avg@4"}
    assert len(curves) == len(set_37.TRUTH["lighteval"])


# One process reads a folder again and again: a file beside its logs may have changed since


def test_a_table_of_runs_beside_a_log_is_read_anew(tmp_path: Path) -> None:
    write(tmp_path / "r4.jsonl", "".join(
        json.dumps({"step": s, "val/acc": score(s, 4)}) + "\n" for s in range(0, 60, 10)
    ))  # fmt: skip
    for n in (4, 8):  # in place: the folder's own time stays
        write(tmp_path / "runs.csv",
              f"run,problems_per_batch,rollouts_per_problem\nr4,16,{n}\n")  # fmt: skip
        (curve,) = load(tmp_path, ["val/acc=avg"])
        assert curve.rollouts_per_problem == n


def test_a_table_of_runs_beside_a_table_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "curves.csv", "run,step,score\n" + "".join(
        f"r4,{s},{score(s, 4)}\n" for s in range(0, 60, 10)
    ))  # fmt: skip
    for n in (4, 8):
        write(tmp_path / "runs.csv",
              f"run,problems_per_batch,rollouts_per_problem\nr4,16,{n}\n")  # fmt: skip
        (curve,) = load(path)
        assert curve.rollouts_per_problem == n
