"""What the thirty-second blind set found in logs: by construction, with other names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.importers import read_log
from layout_helpers import drawn, load, refused, score, write
from test_set_30 import lines, sweep

N = (4, 8)
HELD = "validation/accuracy"


# NeMo-RL: a checkpoint keeps its configuration and score, under a name of its own.


def nemo(folder: Path, kept: Mapping[str, object], seed: int = 3, log: str = HELD) -> Path:
    for at, n in enumerate(N, 1):
        said = {"grpo": {"num_prompts_per_step": 6, "num_generations_per_prompt": n,
                         "max_num_steps": 30, "seed": 3}}  # fmt: skip
        home = folder / "logs" / f"exp_{at:03}"
        lines(home / "metrics.jsonl", [{"step": s, log: score(s, n)} for s in (0, 10, 20, 30)])
        write(home / "config.json", json.dumps(said))
        said["grpo"]["seed"] = seed
        there = folder / "results" / f"mine-n{n}" / "step_30"
        write(there / "config.yaml", json.dumps(said))
        write(there / "training_info.json", json.dumps(
            {"consumed_samples": 180, "val:accuracy": score(30, n), **kept}))  # fmt: skip
    write(folder / "go.sh", "for n in 4 8; do\n  uv run run_grpo.py grpo.num_prompts_per_step=6 "
          "grpo.num_generations_per_prompt=$n checkpointing.checkpoint_dir=results/mine-n$n\n"
          "done\n")  # fmt: skip
    return folder


def test_the_score_that_a_checkpoint_keeps_is_no_further_run(tmp_path: Path) -> None:
    source = nemo(tmp_path, {})
    assert drawn(found := load(source)) == {
        (6, n, 3): [6 * n * s for s in (0, 10, 20, 30)] for n in N
    }
    assert len(found) == len(N)
    told = read_log(source)[0].provenance.inferred
    assert any("mine-n4/step_30/training_info.json" in line for line in told)


@pytest.mark.parametrize(("kept", "more"), [
    ({"val:accuracy": 0.91}, {}), ({}, {"seed": 4}),
    ({}, {"log": "val-core/held/acc/best@4/mean"}),  # the same number, of another metric
])  # fmt: skip
def test_a_checkpoint_of_another_run_stays(
    tmp_path: Path, kept: dict[str, object], more: dict[str, Any]
) -> None:
    assert len(read_log(nemo(tmp_path, kept, **more))) == 2 * len(N)


def test_the_configuration_of_a_model_in_a_checkpoint_hides_no_other(tmp_path: Path) -> None:
    source = nemo(tmp_path, {"val:accuracy": 0.91})
    for there in source.glob("results/*/*"):
        (there / "config.yaml").unlink()
        write(there / "config.json", json.dumps({"model_type": "qwen2", "num_hidden_layers": 4,
                                                 "num_samples": 1}))  # fmt: skip
    found = [run for run in read_log(source) if run.name.startswith("mine")]
    assert [(run.problems_per_batch, run.rollouts_per_problem) for run in found] == [(6, 4), (6, 8)]


def test_a_score_that_a_run_of_no_known_seed_shares_is_no_proof(tmp_path: Path) -> None:
    source = nemo(tmp_path, {})
    for there in (*source.glob("logs/*/config.json"), *source.glob("results/*/*/config.yaml")):
        said = json.loads(there.read_text())
        del said["grpo"]["seed"]
        there.write_text(json.dumps(said))
    assert len(read_log(source)) == 2 * len(N)


# A trial of a few updates: by its plan, or asked about with a line that can be pasted.


def test_a_run_that_was_planned_to_end_at_once_is_left_out(tmp_path: Path) -> None:
    source = sweep(tmp_path, {"real": {"trainer.total_training_steps": 2}})
    said = list[str]()
    assert {c.run for c in load(source, say=said.append)} == {f"real_n{n}" for n in (4, 8, 16)}
    assert any("run real: left out: 2 updates were all that was planned" in one for one in said)
    assert len(load(source, where=["run=*"])) == 4


def test_a_trial_of_a_like_name_can_be_left_out_by_the_line(tmp_path: Path) -> None:
    source = sweep(tmp_path, {"real_n2": {}})
    assert "--where run='!real_n2'" in refused(source)
    assert len(load(source, where=["run=!real_n2"])) == 3


# prime-rl: batches are drawn ahead of the checkpoint that is evaluated.


def prime(n: int, form: str, last: int = 30) -> str:
    text = ""
    for step in range(last + 1):
        ahead = step - 2 if step else 0
        if ahead >= 0 and ahead % 10 == 0:
            text += f"09:00:00    INFO {form.format(k=ahead)}\n" + evaluated(ahead, n)
        text += f"09:00:01 SUCCESS Step {step} | Time: 4.1s | Reward: 0.3 | Throughput: 2\n"
    return text + "09:00:02    INFO Running final evals\n" + evaluated(last + 1, n)


def evaluated(at: int, n: int) -> str:
    return (f"09:00:00 SUCCESS Evaluated Org/Model-1B on held in 9.1s (Avg@4={score(at, n)}, "
            "Pass@1: 0.5000, Truncated: 1.0%)\n")  # fmt: skip


@pytest.mark.parametrize("form", [
    "Running evals for checkpoint step {k} (blocking, subprocess)",
    "Eval subprocess started for checkpoint step {k}",
    "Running evals for interval step 999 (current ckpt_step={k})",
])  # fmt: skip
def test_an_evaluation_stands_at_its_checkpoint(tmp_path: Path, form: str) -> None:
    for n in N:
        write(tmp_path / f"a{n}" / "logs" / "orchestrator.log", prime(n, form))
        write(tmp_path / "configs" / f"a{n}.toml", "[orchestrator]\nbatch_size = 32\n"
              f"rollouts_per_example = {n}\nseed = 9\n")  # fmt: skip
    found = load(tmp_path)
    assert drawn(found) == {(32 // n, n, 9): [32 * s for s in (0, 10, 20, 31)] for n in N}
    assert found[0].score_K.tolist() == [score(s, 4) for s in (0, 10, 20, 31)]
    assert {(c.metric, c.problem_set) for c in found} == {("avg@4", "held")}


@pytest.mark.parametrize("policy", [True, False])
def test_the_weights_of_an_evaluation_are_those_of_its_policy(tmp_path: Path, policy: bool) -> None:
    for n in N:
        text = ""
        for step in range(32):
            at = max(0, step - 2) if policy else step
            text += (f"09:00:00 SUCCESS Evaluated held (Step {step}) | "
                     + f"Policy v{at} | " * policy + f"  1m 2s | Reward {score(at, n):.4f} | "
                     "Turns 1.0 | Error 0.0% | Truncation 1.0%\n") * (step % 10 == 0)  # fmt: skip
            text += f"09:00:01 SUCCESS Step {step} |   4.1s | Reward 0.3000 | Trainable 3/4 (75%)\n"
        write(tmp_path / f"a{n}" / "logs" / "orchestrator.log", text)
        write(tmp_path / "configs" / f"a{n}.toml", "[orchestrator]\nbatch_size = 32\n"
              f"group_size = {n}\nseed = 9\n")  # fmt: skip
    steps = (0, 8, 18, 28) if policy else (0, 10, 20, 30)
    found = load(tmp_path)
    assert drawn(found) == {(32 // n, n, 9): [32 * s for s in steps] for n in N}
    assert found[0].score_K.tolist() == pytest.approx([score(s, 4) for s in steps], abs=1e-4)
    assert {(c.metric, c.problem_set) for c in found} == {("avg", "held")}


# A notebook of several trainings, one after the other.


def notebook(path: Path, cells: list[tuple[str, list[str]]]) -> Path:
    return write(path, json.dumps({"cells": [
        {"cell_type": "code", "source": [code], "outputs": [
            {"output_type": "stream", "text": [line + "\n" for line in printed]}]}
        for code, printed in cells
    ]}))  # fmt: skip


PERCENT, AT = "{p:.1f}% ({k}/500)", (0, 20, 40)


def solved(n: int, form: str = PERCENT, steps: tuple[int, ...] = AT) -> list[str]:
    return [f"[val] step {s}: {form.format(k=(k := 150 + s + n), v=k / 500, p=k / 5)}"
            for s in steps]  # fmt: skip


def banner(n: int) -> list[str]:
    return [f"We will change the batch size of 2 to the `num_generations` of {n}",
            f"Data Parallel GPUs = 1 | Total batch size ({n} x 6 x 1) = {6 * n}"]  # fmt: skip


DEFINED = ("!pip install trl\ndef go(n, seed=5):\n  a = GRPOConfig(num_generations = n,\n"
           "    seed = seed, per_device_train_batch_size = {b}, gradient_accumulation_steps = 6)\n"
           "  t(a).train()")
BY_CALLS = [(DEFINED.format(b=16), list[str]()), *((f"go({n})", solved(n)) for n in N)]
BY_BANNERS = [(DEFINED.format(b=2), list[str]()),
              ("for n in ns: go(n)", [one for n in N for one in (*banner(n), *solved(n))])]
BY_CELLS = [(f"c = GRPOConfig(num_generations = {n}, seed = 5, per_device_train_batch_size = 16,\n"
             "  gradient_accumulation_steps = 6)\nT(c).train()", solved(n)) for n in N]  # fmt: skip


@pytest.mark.parametrize(("cells", "names", "batch"), [
    (BY_CALLS, ["go(4)", "go(8)"], lambda n: 96 // n),
    (BY_BANNERS, ["1", "2"], lambda n: 6),
    (BY_CELLS, ["1", "2"], lambda n: 96 // n),
])  # fmt: skip
def test_each_training_of_a_notebook_is_a_run(
    tmp_path: Path, cells: list[tuple[str, list[str]]], names: list[str],
    batch: Callable[[int], int],
) -> None:
    found = load(notebook(tmp_path / "nb.ipynb", cells), sets=["processes=1"])
    assert drawn(found) == {(batch(n), n, 5): [batch(n) * n * s for s in (0, 20, 40)] for n in N}
    assert sorted(c.run for c in found) == [f"nb {name}" for name in names]
    assert found[0].score_K.tolist() == pytest.approx([0.308, 0.348, 0.388])


def test_two_lines_of_one_step_begin_no_training(tmp_path: Path) -> None:
    def two(n: int) -> list[str]:
        return [f"[val] step {s} {key} 0.{s + n + 10}" for s in AT for key in ("easy", "hard")]

    cells = [(DEFINED.format(b=16), list[str]()), *((f"go({n})", two(n)) for n in N)]
    found = load(notebook(tmp_path / "nb.ipynb", cells), ["easy=avg"], ["processes=1"])
    assert drawn(found) == {(96 // n, n, 5): [96 * s for s in AT] for n in N}


def test_trainings_that_nothing_tells_apart_are_not_read(tmp_path: Path) -> None:
    cells = [(DEFINED.format(b=16), list[str]()), ("go(k)", solved(4)), ("go(k)", solved(8))]
    assert "every row must say whose it is" in refused(notebook(tmp_path / "nb.ipynb", cells))


def config(n: object, more: str = "") -> str:
    return (f"a = GRPOConfig(num_generations = {n}, seed = 5, {more}\n"
            "  per_device_train_batch_size = 16, gradient_accumulation_steps = 6)\n")  # fmt: skip


TRAIN = "T(a).train()"


@pytest.mark.parametrize("cells", [
    ["n = 2", "for n in (4, 8):\n  " + config("n").replace("\n", "\n  ") + TRAIN],  # stopped
    ["G = 4\nG = G * 2", config("G") + TRAIN],
    ["G = 4\nif large:\n  G = 8", config("G") + TRAIN],
    ["G = 4", "%%time\nG = int(x)", config("G") + TRAIN],
    [config(4) + "a.num_generations = 8\n" + TRAIN],
    [config(4), config("2 * G") + TRAIN],
    ["G = 4", "from conf import G", config("G") + TRAIN],
    [config(4).replace("GRPOConfig", "dict"), "a.update({'num_generations': 8})\n" + TRAIN],
    ["G = 4", "def f():\n  " + config("G").replace("\n", "\n  ") + TRAIN, "G = 8", "f()"],
])  # fmt: skip
def test_what_a_variable_of_a_notebook_may_be_is_asked(tmp_path: Path, cells: list[str]) -> None:
    printed = [(code, list[str]()) for code in cells[:-1]] + [(cells[-1], solved(8))]
    assert "`rollouts_per_problem` must be known" in refused(
        notebook(tmp_path / "nb.ipynb", printed), sets=["processes=1"])  # fmt: skip


@pytest.mark.parametrize("cells", [
    [("G, S = 8, 5", []), ("def f():\n  " + config("G").replace("\n", "\n  ") + TRAIN, []),
     ("f()", solved(8)), ("G = 4", [])],
    [(config(8) + TRAIN, solved(8)), (config(4) + TRAIN, [*banner(4), "KeyboardInterrupt"])],
])  # fmt: skip
def test_what_stands_below_a_training_says_nothing_of_it(
    tmp_path: Path, cells: list[tuple[str, list[str]]]
) -> None:
    found = load(notebook(tmp_path / "nb.ipynb", cells), sets=["processes=1"])
    assert drawn(found) == {(12, 8, 5): [96 * s for s in AT]}


@pytest.mark.parametrize(("runs", "asked"), [
    ((1, 2, None), False), ((7, 2, 9), True), ((1, 3, 2), True), ((None, None, None), False),
])  # fmt: skip
def test_cells_count_in_the_order_in_which_they_were_run(
    tmp_path: Path, runs: tuple[int | None, ...], asked: bool
) -> None:
    cells = [("G = 4", []), (config("G") + TRAIN, solved(4)), ("G = 8", [])]
    path = notebook(tmp_path / "nb.ipynb", cells)
    said = json.loads(path.read_text())
    for cell, run in zip(said["cells"], runs, strict=True):
        cell["execution_count"] = run
    path.write_text(json.dumps(said))
    if asked:
        assert "`rollouts_per_problem` must be known" in refused(path, sets=["processes=1"])
    else:
        assert drawn(load(path, sets=["processes=1"])) == {(24, 4, 5): [96 * s for s in AT]}


def test_a_configuration_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    cells = [(config(4) + TRAIN, solved(4)), ("a = GRPOConfig(num_generations = 8)\n" + TRAIN,
                                              solved(8))]  # fmt: skip
    assert "`problems_per_batch` must be known, but 'nb 2'" in refused(
        notebook(tmp_path / "nb.ipynb", cells), sets=["processes=1"])  # fmt: skip


@pytest.mark.parametrize("calls", [
    [("go(4)", solved(4, steps=(0, 20))), ("go(4)", solved(4)), ("go(8)", solved(8))],  # again
    [("go(4)", solved(4, steps=(20, 40))), ("go(8)", solved(8, steps=(25, 50, 75)))],
])  # fmt: skip
def test_steps_that_go_back_are_of_no_one_run(
    tmp_path: Path, calls: list[tuple[str, list[str]]]
) -> None:
    cells = [(DEFINED.format(b=16), list[str]()), *calls]
    text = refused(notebook(tmp_path / "nb.ipynb", cells), sets=["processes=1"])
    assert "every row must say whose it is" in text


@pytest.mark.parametrize("before", ["format ok", "errors", "truncated", "pass@8"])
def test_a_number_alone_goes_by_the_words_before_it(tmp_path: Path, before: str) -> None:
    cells = [(config(4) + TRAIN, [one.replace("] ", f"] {before} ") for one in solved(4)])]
    path = notebook(tmp_path / "nb.ipynb", cells)
    assert f"keys that were not read: {before.replace(' ', '_')})" in refused(path)


def test_a_count_of_steps_is_no_score(tmp_path: Path) -> None:
    lines = [f"eval step {s}: {s / 5:.1f}% ({s}/500)" for s in AT]
    path = notebook(tmp_path / "nb.ipynb", [(config(4) + TRAIN, lines)])
    assert "a notebook must print a step and a score" in refused(path)


@pytest.mark.parametrize("form", ["{p:.1f}% ({k}/500)", "{v:.3f} = {k}/500 correct"])
def test_a_number_alone_that_its_line_counts_is_the_score(tmp_path: Path, form: str) -> None:
    cells = [(DEFINED.format(b=16), list[str]()), ("go(4)", solved(4, form))]
    (run,) = read_log(notebook(tmp_path / "nb.ipynb", cells))
    assert run.series[0].score_K.tolist() == pytest.approx([0.308, 0.348, 0.388])
    assert run.provenance.evaluation_problems == 500


@pytest.mark.parametrize(("form", "steps"), [
    ("{p:.1f}% ({k}/500 truncated)", (0, 20, 40)), ("{p:.1f}%", (0, 20, 40)),
    ("{p:.1f}% ({k}/500)", (0, 20, 20, 40)),
])  # fmt: skip
def test_a_number_alone_that_may_be_another_is_none(
    tmp_path: Path, form: str, steps: tuple[int, ...]
) -> None:
    cells = [(DEFINED.format(b=16), list[str]()), ("go(4)", solved(4, form, steps))]
    text = refused(notebook(tmp_path / "nb.ipynb", cells), sets=["processes=1"])
    assert "a step and a score" in text or "every row must say whose it is" in text


# A workbook: scores by run, a sheet of settings in people's words, and one of what runs cost.

SETUP = ["run,n (gconfig.n_samples),prompts / batch (train_dataset.batch_size),seed,note",
         "P,4,24,1,", "Q,8,12,1,", "R,8,12,2,again"]  # fmt: skip
COST = ["run,h / 10 steps,GPUh total", "P,0.5,20", "Q,0.6,24", "R,0.6,24"]
SCORES = ["step,run P,run Q,run R", "0,0.3,0.31,0.32", "10,0.4,0.42,0.44", "20,0.5,0.52,"]


def sheets(folder: Path, *, scores: Sequence[str] = SCORES, cost: Sequence[str] = COST) -> Path:
    for name, rows in (("setup", SETUP), ("scores", scores), ("cost", cost)):
        write(folder / f"{name}.csv", "\n".join((*rows, "")))
    return folder


RUNS = {(24, 4, 1): [0, 960, 1920], (12, 8, 1): [0, 960, 1920], (12, 8, 2): [0, 960]}


@pytest.mark.parametrize("end", [[], ["best,,,"], ["max,0.5,0.52,0.44"]])
def test_columns_of_runs_take_what_a_sheet_says_of_them(tmp_path: Path, end: list[str]) -> None:
    found = load(sheets(tmp_path, scores=[*SCORES, *end]))
    assert drawn(found) == RUNS
    assert [c.score_K[1] for c in found] == [0.4, 0.42, 0.44]


def test_a_last_row_of_other_numbers_is_asked_about(tmp_path: Path) -> None:
    assert "'best'" in refused(sheets(tmp_path, scores=[*SCORES, "best,0.4,,"]))


@pytest.mark.parametrize("cost", [
    ["run,h / 10 steps,GPUh total", "P,0.5,20", "X,0.6,24"],  # of another run
    ["run,step,GPUh total", "P,10,20", "Q,10,24"],  # it counts
])  # fmt: skip
def test_a_table_that_may_hold_scores_is_asked_about(tmp_path: Path, cost: list[str]) -> None:
    assert "cost.csv: a table must have the columns" in refused(sheets(tmp_path, cost=cost))


def test_two_sheets_that_say_another_thing_of_a_run_are_asked_about(tmp_path: Path) -> None:
    source = sheets(tmp_path)
    write(source / "old.csv", "\n".join(SETUP).replace("P,4,24,1", "P,16,6,1") + "\n")
    text = refused(source)
    assert "one problems_per_batch of a run, but 'P' has 6 in old.csv and 24 in setup.csv" in text
    (source / "old.csv").unlink()
    write(source / "again.csv", "\n".join(SETUP[:3]) + "\n")
    assert drawn(load(source)) == RUNS


TITLES = ["Held out; accuracy %", "pass@1 (%)", "% correct, greedy",
          "Success rate [%], 500 problems"]
TITLE = '"Held out, greedy, accuracy in %",,,'
HUNDREDS = ["step,run P,run Q,run R", "0,30,31%,32", "10,40,42%,44", "20,50,52%,"]


def test_a_title_says_percent_of_scores_that_cannot_be_shares(tmp_path: Path) -> None:
    said = list[str]()
    found = load(sheets(tmp_path, scores=[TITLE, ",,,", *HUNDREDS]), say=said.append)
    assert drawn(found) == RUNS
    assert [c.score_K[1] for c in found] == pytest.approx([0.4, 0.42, 0.44])
    assert any("percent, as the line above its names says" in one for one in said)
    assert "--range 0 100" in refused(sheets(tmp_path, scores=HUNDREDS))
    assert drawn(load(sheets(tmp_path, scores=[TITLE, ",,,", *SCORES]))) == RUNS


def test_a_column_of_shares_below_a_title_of_percent_is_asked_about(tmp_path: Path) -> None:
    mixed = [TITLE, *(row.replace("31%", "0.31").replace("42%", "0.42").replace("52%", "0.52")
                      for row in HUNDREDS)]  # fmt: skip
    assert "'run Q (Held out" in (text := refused(sheets(tmp_path, scores=mixed)))
    assert "--range 0 100" in text
    assert "multiply the one" in refused(tmp_path, score_range=(0.0, 100.0))


@pytest.mark.parametrize("title", TITLES)
def test_a_title_says_percent_of_its_scores_in_many_ways(tmp_path: Path, title: str) -> None:
    assert drawn(load(sheets(tmp_path, scores=[f'"{title}",,,', ",,,", *PLAIN]))) == RUNS


@pytest.mark.parametrize("title", [
    "Percent of the baseline's accuracy", "Accuracy, warmup over 10% of steps", "KL (%)",
    "Share of failures in %", "pass@1, 95% intervals",
])  # fmt: skip
def test_a_title_that_says_percent_of_others_is_asked_about(tmp_path: Path, title: str) -> None:
    assert "--range LOW HIGH" in refused(sheets(tmp_path, scores=[f'"{title}",,,', ",,,", *PLAIN]))


PLAIN = [row.replace("31%", "31").replace("42%", "42").replace("52%", "52") for row in HUNDREDS]


@pytest.mark.parametrize(("name", "asked"), [
    ("prompts / batch (mini-batch)", True), ("prompts / batch (per worker)", True),
    ("prompts / batch (all GPUs)", False),
])  # fmt: skip
def test_brackets_that_say_another_batch_are_asked_about(
    tmp_path: Path, name: str, asked: bool
) -> None:
    source = sheets(tmp_path)
    setup = source / "setup.csv"
    said = setup.read_text().replace("prompts / batch (train_dataset.batch_size)", name)
    write(setup, said.replace("n (gconfig.n_samples)", "rollouts per problem"))
    if asked:
        assert "problems_per_batch is missing" in refused(source)
    else:
        assert drawn(load(source)) == RUNS
