"""What the twenty-third blind set found: by construction, with other names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import load_settings, read_log, read_logs
from isocompute.sources import load_curves
from layout_helpers import MAP, drawn, lines, load, refused, score, write


def updates(folder: Path, *words: str) -> dict[str, int]:
    """Updates by run, as the import says them."""
    out = folder / "said.json"
    where = ["-o", str(folder / "study"), "--json", str(out)]
    assert main(["import", str(folder), *where, *words]) == 0
    return {run["name"]: run["steps"] for run in json.loads(out.read_text())["runs"]}


# M and B_p are those of training.


def prime(folder: Path, n: int, last: int, version: int = 1) -> None:
    """prime-rl: evaluations stand under the update that follows, and totals before their own."""
    rows: list[dict[str, Any]] = []
    for s in range(1, last + 1):
        if s == 1 or s % 12 == 0:
            rows.append({"step": s, "eval/aime/all/solver/avg@1": score(s - 1, n),
                         "eval/aime/policy_version": s - version})  # fmt: skip
        rows.append({"step": s, "train/agg/reward/mean": 0.4, "progress/rollouts": 24 * n,
                     "progress/total_rollouts": 24 * n * (s - 1)})  # fmt: skip
    lines(folder / f"aime-{n}/metrics.jsonl", rows)
    said = {"batch_size": 24 * n, "group_size": n, "max_steps": 40, "train": {"seed": 5}}
    write(folder / f"aime-{n}/configs/orchestrator.json", json.dumps(said))


@pytest.mark.parametrize("given", [(), ("step=eval/aime/policy_version",)])
def test_a_policy_version_and_the_step_of_prime_rl_agree(
    tmp_path: Path, given: tuple[str, ...]
) -> None:
    for n, last in ((4, 40), (16, 37)):
        prime(tmp_path, n, last)
    found = load(tmp_path, (), given)
    assert drawn(found) == {(24, n, 5): [24 * n * v for v in (0, 11, 23, 35)] for n in (4, 16)}
    assert [c.score_K[1] for c in found] == [score(11, c.rollouts_per_problem) for c in found]
    words = [word for one in given for word in ("--set", one)]
    assert updates(tmp_path, *words) == {"aime-4": 40, "aime-16": 37}


def test_a_policy_that_is_older_by_more_is_asked_about(tmp_path: Path) -> None:
    prime(tmp_path, 4, 40, version=0)
    prime(tmp_path, 8, 40)
    rows = (tmp_path / "aime-8/metrics.jsonl").read_text().replace("version\": 23", "version\": 22")
    write(tmp_path / "aime-8/metrics.jsonl", rows)
    said = refused(tmp_path, ())
    assert "aime-8: one key must count updates" in said


@pytest.mark.parametrize(("begins", "plan", "made"), [(0, 30, 30), (0, None, 30), (1, 30, 29)])
def test_updates_are_those_of_training_rows(
    tmp_path: Path, begins: int, plan: int | None, made: int
) -> None:
    for n in (4, 8):
        rows = [{"step": s, "val/accuracy": score(s, n)} for s in range(0, 30, 10)]
        rows += [{"step": s, "actor/kl": 0.1, "actor/lr": 1e-6} for s in range(begins, 30)]
        rows += [{"step": 44, "sys/gpu": 0.9}, {"step": 45, "time/eval": 3.0}]
        lines(tmp_path / f"n{n}.jsonl", rows)
        said = {"prompts_per_step": 16, "samples_per_prompt": n, "max_steps": plan}
        write(tmp_path / f"n{n}.json", json.dumps({k: v for k, v in said.items() if v}))
    assert updates(tmp_path, "--map", MAP[0]) == {"n4": made, "n8": made}


def test_a_count_beside_evaluations_is_no_batch(tmp_path: Path) -> None:
    for run in ("left", "right"):
        rows = [{"step": s, "kind": "update", "loss": 0.1} for s in range(1, 31)]
        rows += [{"step": s, "kind": "eval", "n_questions": 640, "acc": 0.01 * s}
                 for s in range(0, 31, 10)]  # fmt: skip
        lines(tmp_path / f"{run}.jsonl", sorted(rows, key=lambda row: int(str(row["step"]))))
    said = refused(tmp_path, ("acc=avg",))
    assert "n_questions" not in said
    assert "--set problems_per_batch=B_P" in said


# Settings in files beside a log.


def own_log(folder: Path, n: int) -> None:
    lines(folder / "log.jsonl", ({"step": s, "val/accuracy": score(s, n)} for s in (0, 20, 40)))


def test_a_json_of_settings_is_its_folder_s_whatever_it_is_called(tmp_path: Path) -> None:
    for n in (3, 9):
        own_log(tmp_path / f"k{n}", n)
        said = {"opts": {"questions_per_step": 20, "answers": n}, "seed": 4, "group_size": n}
        write(tmp_path / f"k{n}/hp_dump.json", json.dumps(said))
        write(tmp_path / f"k{n}/machine.json", json.dumps({"gpu": "A100", "n": 3}))
    assert drawn(load(tmp_path, MAP)) == {(20, n, 4): [0, 400 * n, 800 * n] for n in (3, 9)}
    (one, _) = read_log(tmp_path, settings=load_settings([], MAP))
    assert one.provenance.inferred[0] == "configuration: read from hp_dump.json beside the log"
    write(tmp_path / "k3/other.json", json.dumps({"questions_per_step": 40, "group_size": 3}))
    assert "`problems_per_batch` and `rollouts_per_problem` must be known" in refused(tmp_path, MAP)


def test_a_json_with_a_run_s_course_is_no_settings(tmp_path: Path) -> None:
    for n in (4, 8):
        course = [{"step": s, "val/accuracy": score(s, n)} for s in (0, 20, 40)]
        whole = {"config": {"prompts_per_step": 10, "group_size": n, "seed": 1}, "history": course}
        write(tmp_path / f"g{n}/run.json", json.dumps(whole))
        lines(tmp_path / f"g{n}/notes.jsonl", [{"text": "a"}])
    assert drawn(load(tmp_path, MAP)) == {(10, n, 1): [0, 200 * n, 400 * n] for n in (4, 8)}


@pytest.mark.parametrize("base", ["grpo_base.yaml", "other.yaml"])
def test_a_command_changes_the_file_that_it_names(tmp_path: Path, base: str) -> None:
    commands = ""
    for n in (6, 12):
        own_log(tmp_path / f"logs/try-n{n}", n)
        write(tmp_path / f"logs/try-n{n}/grpo_base.yaml",
              "seed: 8\ngconfig: {n_samples: 2}\ntrain_dataset: {batch_size: 99}\n")  # fmt: skip
        commands += (f"python go.py --config cfg/{base} trial_name=try-n{n} \\\n"
                     f"  gconfig.n_samples={n} train_dataset.batch_size=30\n")  # fmt: skip
    write(tmp_path / "start.sh", commands)
    if base == "grpo_base.yaml":
        assert drawn(load(tmp_path, MAP)) == {(30, n, 8): [0, 600 * n, 1200 * n] for n in (6, 12)}
    else:
        assert "names and configuration must agree" in refused(tmp_path, MAP)


@pytest.mark.parametrize("prompts", [12, 13])
def test_open_instruct_s_chart_over_rollouts_is_placed_by_the_script(
    tmp_path: Path, prompts: int
) -> None:
    names, script = {n: f"tulu_n{n}__7__17912300{n:02d}" for n in (5, 10)}, ""
    header = ["global_step", *(f"{name} - eval/pass_at_1" for name in names.values())]
    rows = [f"{12 * 5 * k},{score(k, 5)}," for k in (10, 20, 30)]
    rows += [f"{12 * 10 * k},,{score(k, 10)}" for k in (10, 20, 30)]
    write(tmp_path / "chart.csv", "\n".join([",".join(header), *rows]) + "\n")
    for n in names:
        script += (f"python grpo.py --exp_name tulu_n{n} --num_samples_per_prompt_rollout {n} \\\n"
                   f" --num_unique_prompts_rollout {prompts} --seed 7\n")  # fmt: skip
    write(tmp_path / "sweep.sh", script)
    if prompts == 13:
        assert "must be a multiple of B_p * n = 65, but is 600" in refused(tmp_path, ())
        return
    assert drawn(load(tmp_path, ())) == {
        (12, n, 7): [120 * n, 240 * n, 360 * n] for n in names
    }  # fmt: skip


def test_rllm_s_last_evaluation_stands_at_its_last_update(tmp_path: Path) -> None:
    for n in (4, 8):
        steps = [*range(0, 25, 8), 28]
        rows = [{"step": s, "data": {"val/unknown/pass@1": score(min(s, 27), n), "val/x": 0.9}}
                for s in steps]  # fmt: skip
        rows += [{"step": s, "data": {"train/entropy": 0.3}} for s in range(1, 28)]
        lines(tmp_path / f"run-g{n}.jsonl", sorted(rows, key=lambda row: int(str(row["step"]))))
    write(tmp_path / "go.sh", "python -m t training.group_size=$N validation.group_size=1 \\\n"
          ' data.train_batch_size=15 rllm.trainer.experiment_name="run-g$N"\n')  # fmt: skip
    found = load(tmp_path, ())
    assert drawn(found) == {
        (15, n, None): [15 * n * s for s in (0, 8, 16, 24, 27)] for n in (4, 8)
    }  # fmt: skip
    assert updates(tmp_path) == {"run-g4": 27, "run-g8": 27}


# What people write for people.


def notebook(path: Path, n: int) -> None:
    told = "".join(f"[dev] iter {s:3d} | exact {score(s, n):.4f} len 210\n" for s in (0, 25, 50))
    banner = ("We will change the batch size of 2 to the `num_generations` of "
              f"{n}\nBatch size per device = {n}\nTotal batch size ({n} x 6 x 1)\n")  # fmt: skip
    code = f"args = GRPOConfig(\n  num_generations = {n},\n  max_steps = 50,\n  seed = 3407,\n)"
    cells = [
        {"cell_type": "markdown", "source": ["step 1 acc 0.5"]},
        {"cell_type": "code", "source": code.splitlines(keepends=True), "outputs": []},
        {"cell_type": "code", "source": "trainer.train()", "outputs": [
            {"output_type": "stream", "text": banner.splitlines(keepends=True)},
            {"output_type": "stream", "text": told}, {"output_type": "display_data", "data": {}},
        ]},
    ]  # fmt: skip
    write(path, json.dumps({"cells": cells, "nbformat": 4}))


def test_a_notebook_is_read_by_what_it_printed(tmp_path: Path) -> None:
    for n in (4, 8):
        notebook(tmp_path / f"grpo_{n}.ipynb", n)
    assert "--map exact=avg" in refused(tmp_path, ())
    found = load(tmp_path, ("exact=avg",))
    assert drawn(found) == {(6, n, 3407): [0, 150 * n, 300 * n] for n in (4, 8)}
    assert [c.score_K[2] for c in found] == [score(50, c.rollouts_per_problem) for c in found]
    lines(tmp_path / "n2.jsonl", ({"step": s, "val-core/a/acc/mean@1": 0.1} for s in (0, 5)))
    assert [run.name for run in read_log(tmp_path)] == ["n2"]  # beside a log it is of no run


@pytest.mark.parametrize("form", [
    "eval @ update {s}: solved={v}", "(12:01:33) [held-out] step={s} solved: {p}%",
    "Test solved: {p}% at step {s}/30", "iter {s} | loss 0.2 | val solved {v} | len 3",
])  # fmt: skip
def test_lines_in_words_are_rows(tmp_path: Path, form: str) -> None:
    for n in (4, 8):
        text = "loading\nstep 3 of the recipe\n" + "".join(
            f"train step {s} loss 0.4\n" + form.format(s=s, v=0.25 + s / 1000, p=25 + s / 10) + "\n"
            for s in (0, 10, 20, 30)
        )
        write(tmp_path / f"n{n}.log", text)
    given = ("problems_per_batch=5", "pattern=n{rollouts_per_problem}")
    key = next(key for key in ("Test solved", "val solved", "solved") if key in form)
    found = load(tmp_path, (f"{key}=avg",), given)
    assert drawn(found) == {(5, n, None): [0, 50 * n, 100 * n, 150 * n] for n in (4, 8)}
    assert found[0].score_K.tolist() == pytest.approx([0.25, 0.26, 0.27, 0.28])


def test_lines_without_held_out_scores_are_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.log", "".join(f"step {s} loss 0.5\n" for s in range(9)))
    with pytest.raises(InputError, match="holds nothing of them"):
        read_log(tmp_path / "a.log")


def notes(path: Path, *, percent: bool = False) -> None:
    text = "# Sweep\n\nOne update a batch, seed 31 in all.\n\n"
    text += "| run | prompts per batch | samples per prompt | updates |\n|--|--|--|--|\n"
    text += "| **thin** | 48 | 2 | 24 |\n| thick | 12 | 8 | 30 |\n"
    for run, n in (("thin", 2), ("thick", 8)):
        unit = 100 if percent and n == 8 else 1
        text += f"\n## `{run}`\n\n| step | GSM8K | length |\n|---:|:--|--|\n"
        text += "".join(f"| {s} | {unit * score(s, n):.6g} | 400 |\n" for s in (0, 12, 24))
    write(path, text)


def test_notes_in_markdown_are_read_with_their_settings(tmp_path: Path) -> None:
    notes(tmp_path / "notes.md")
    assert "--map GSM8K=avg" in refused(tmp_path, ())
    found = load(tmp_path, ("GSM8K=avg",))
    assert drawn(found) == {(48, 2, 31): [0, 1152, 2304], (12, 8, 31): [0, 1152, 2304]}
    assert {c.run for c in found} == {"thin", "thick"}
    runs = read_log(tmp_path, settings=load_settings([], ("GSM8K=avg",)))
    assert {run.name: run.steps for run in runs} == {"thin": 24, "thick": 30}


def test_percent_of_one_run_is_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes(tmp_path / "notes.md", percent=True)
    words = ["import", str(tmp_path), "-o", str(tmp_path / "s"), "--map", "GSM8K=avg"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "avg of 'thick' goes from 20.8 to 25.6 where that of 'thin' stays in 0..1" in said
    assert main([*words, "--set", "percent=thick"]) == 0
    (thick,) = (c for c in load_curves([str(tmp_path / "s")]) if c.run == "thick")
    assert thick.score_K.tolist() == pytest.approx([score(s, 8) for s in (0, 12, 24)])
    settings = load_settings([], ("GSM8K=avg",))
    assert read_logs([tmp_path], settings=settings, score_range=(0.0, 100.0))


# A table of events.


def events(path: Path, **kinds: str) -> None:
    rows = []
    for n, every in ((4, 6), (8, 3)):
        clock = 50.0
        for s in range(4 * every + 1):
            if s:
                clock += 9
                rows.append((f"r{n}", n, clock, kinds.get("update", "optimizer_step"), 0.3))
            if s % every == 0:
                clock += 40
                rows.append((f"r{n}", n, clock, "heldout_acc", score(s, n)))
    rows = rows[::-1]  # the order of time counts
    names = ("run", "samples_per_prompt", "elapsed_s", "event", "value")
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), path)


def test_updates_are_the_events_before_an_evaluation(tmp_path: Path) -> None:
    events(tmp_path / "e.parquet")
    said = refused(tmp_path, ())
    assert "--map heldout_acc=avg" in said
    assert "--set problems_per_batch=B_P" in said
    found = load(tmp_path, ("heldout_acc=avg",), ("problems_per_batch=7",))
    assert drawn(found) == {
        (7, 4, None): [28 * s for s in (0, 6, 12, 18, 24)],
        (7, 8, None): [56 * s for s in (0, 3, 6, 9, 12)],
    }
    assert {c.score_K[-1] for c in found} == {score(24, 4), score(12, 8)}
    words = ("--map", "heldout_acc=avg", "--set", "problems_per_batch=7")
    assert updates(tmp_path, *words) == {"r4": 24, "r8": 12}


def test_events_without_an_update_are_refused(tmp_path: Path) -> None:
    events(tmp_path / "e.parquet", update="tick")
    with pytest.raises(InputError, match="must have one that is an update, .* heldout_acc, tick"):
        read_log(tmp_path / "e.parquet")


def test_columns_that_stay_within_a_run_are_named(tmp_path: Path) -> None:
    rows = [f"n{n};{n};20;{k};{score(k, n)}".replace(".", ",")
            for n in (4, 16) for k in range(0, 81, 10)]  # fmt: skip
    path = write(tmp_path / "t.csv", "Lauf;Antworten;Aufgaben;Batch;Test acc\n" + "\n".join(rows))
    with pytest.raises(InputError, match="it may be Antworten, Aufgaben"):
        load_curves([str(path)])


def test_the_last_update_is_the_largest_whatever_row_comes_last(tmp_path: Path) -> None:
    for n in (4, 16):
        rows = [{"step": 0, "val/acc": score(0, n)}, {"step": 8, "val/acc": score(8, n)}]
        rows += [{"step": s, "actor/kl": 0.1} for s in (*range(3, 11), 2)]
        lines(tmp_path / f"late_n{n}.jsonl", rows)
    words = ["--set", "pattern=n{rollouts_per_problem}", "--set", "problems_per_batch=8",
             "--set", "seed=1", "--map", "val/acc=avg"]  # fmt: skip
    assert updates(tmp_path, *words) == {"late_n4": 10, "late_n16": 10}
