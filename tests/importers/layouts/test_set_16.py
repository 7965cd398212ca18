"""Layouts of the sixteenth blind set, after their principles: other names, other shapes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocompute.errors import InputError
from isocompute.importers import read_log, read_logs
from isocompute.importers.words.settings import load_settings
from layout_helpers import MAP, drawn, lines, load, refused, score

Row = dict[str, object]


# Steps that count rollouts.


def counted(folder: Path, n: int, per_step: int, updates: int = 50) -> None:
    config = {"prompts_per_step": 40, "group_size": n, "max_steps": 50, "seed": 1}
    lines(folder / f"a{n}" / "log.jsonl", (
        {"step": per_step * t, "val/accuracy": score(t, n)} for t in range(10, updates + 1, 10)
    ))  # fmt: skip
    (folder / f"a{n}" / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("n", [4, 32])
def test_steps_that_end_at_the_plan_s_rollouts_count_rollouts(tmp_path: Path, n: int) -> None:
    counted(tmp_path, n, 40 * n)
    assert drawn(load(tmp_path, MAP)) == {(40, n, 1): [400 * n * k for k in range(1, 6)]}
    (run,) = read_log(tmp_path, settings=load_settings([], MAP))
    assert (run.steps, run.series[0].step_K.tolist()) == (50, [10, 20, 30, 40, 50])
    assert run.provenance.begins == 10


def test_a_run_that_stopped_is_asked_about_and_its_line_is_right(tmp_path: Path) -> None:
    counted(tmp_path, 4, 160)
    counted(tmp_path, 8, 320, updates=30)
    told = refused(tmp_path, MAP)
    assert "to 9600, are multiples of B_p * n = 320" in told
    assert "add --set step=step --map step=rollouts, else --set step=step." in told
    found = drawn(load(tmp_path, (*MAP, "step=rollouts"), ("step=step",)))
    assert found[40, 4, 1] == [1600, 3200, 4800, 6400, 8000]
    assert found[40, 8, 1] == [3200, 6400, 9600]


def test_a_count_of_problems_is_not_taken_for_rollouts(tmp_path: Path) -> None:
    counted(tmp_path, 8, 40)  # 400, 800, ...: 2000 of 50 * 320
    assert "counts to 2000 and 50 are planned" in refused(tmp_path, MAP)


@pytest.mark.parametrize("updates", [60, 40])
def test_open_instruct_s_history_counts_episodes(tmp_path: Path, updates: int) -> None:
    (tmp_path / "runs.csv").write_text(
        "Name,seed,num_unique_prompts_rollout,num_samples_per_prompt_rollout,num_training_steps\n"
        "x,3,16,8,60\n"
    )
    rows = [f"{5 * t},{128 * t},{score(t, 8)}" for t in range(20, updates + 1, 20)]
    home = tmp_path / "history"
    home.mkdir()
    (home / "x.csv").write_text("\n".join(["_step,global_step,eval/scores", *rows, ""]))
    assert drawn(load(tmp_path)) == {(16, 8, 3): [128 * t for t in range(20, updates + 1, 20)]}


# The configuration of a job, above its parts.


def part(folder: Path, first: int, last: int, n: int = 8, *, every: int = 1) -> None:
    rows: list[Row] = [{"step": t, "train/reward": score(t, n, 0.0001 * (t % 7))}
                       for t in range(first + every, last + 1, every)]  # fmt: skip
    rows += [{"step": t, "val/accuracy": score(t, n, first / 1e4)}
             for t in range(0, last + 1, 10) if t > first or not first]  # fmt: skip
    lines(folder / "metrics.jsonl", sorted(rows, key=lambda row: int(str(row["step"]))))


def configure(folder: Path, n: int, seed: int | None = 5, steps: int = 60) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"problems_per_batch": 16, "rollouts_per_problem": n, "steps": steps}
    config |= {} if seed is None else {"seed": seed}
    (folder / "config.yaml").write_text("".join(f"{k}: {v}\n" for k, v in config.items()))


@pytest.mark.parametrize("name", ["exp_00{}/log", "restart{}", "20251103_06112{}", "part-{}/a/b"])
def test_a_configuration_above_the_parts_of_a_run_is_theirs(tmp_path: Path, name: str) -> None:
    for n in (4, 16):
        configure(tmp_path / f"n{n}", n)
        for i, (first, last) in enumerate([(0, 25), (20, 47), (40, 60)], start=1):
            part(tmp_path / f"n{n}" / name.format(i), first, last, n)
    assert drawn(load(tmp_path, MAP)) == {
        (16, n, 5): [16 * n * t for t in range(0, 61, 10)] for n in (4, 16)
    }


@pytest.mark.parametrize("names", [("n4", "n16"), ("seed0", "seed1"), ("run_1", "run_2")])
def test_a_configuration_above_several_runs_is_of_none(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    configure(tmp_path, 8)
    for i, name in enumerate(names):
        part(tmp_path / name, 0, 60, 8 + i)
    runs = read_log(tmp_path, settings=load_settings([], MAP))
    assert [(run.problems_per_batch, run.seed) for run in runs] == [(None, None)] * 2


def test_experiments_that_do_not_go_on_with_each_other_have_no_common_one(tmp_path: Path) -> None:
    configure(tmp_path, 8, None)
    for i in (1, 2):
        part(tmp_path / f"exp_{i}", 0, 60, 8 + i)
    told = refused(tmp_path, MAP)
    assert f"{tmp_path}/config.yaml lies above {tmp_path}/exp_1/metrics.jsonl and" in told
    assert "lay its own configuration into the folder of each" in told


@pytest.mark.parametrize("within", [".", "checkpoints", "ckpts/eval"])
@pytest.mark.parametrize("base", [False, True])
def test_results_take_the_configuration_of_their_run(
    tmp_path: Path, within: str, base: bool
) -> None:
    if base:
        configure(tmp_path, 99, 99)
    for n in (4, 16):
        configure(tmp_path / f"run-n{n}", n)
        for t in (20, 40, 60):
            home = tmp_path / f"run-n{n}" / within / f"global_step_{t}" / "model"
            home.mkdir(parents=True)
            results = {"gsm8k": {"exact_match,none": score(t, n), "exact_match_stderr,none": 0.01}}
            (home / f"results_2025-10-02T11-22-{t}.1.json").write_text(
                json.dumps({"results": results, "n-samples": {"gsm8k": {"effective": 500}}})
            )
    assert drawn(load(tmp_path)) == {(16, n, 5): [320 * n, 640 * n, 960 * n] for n in (4, 16)}
    for n in (4, 16):
        (tmp_path / f"run-n{n}" / "config.yaml").unlink()
    assert "must be known" in refused(tmp_path)


def test_a_result_without_a_step_says_where_it_goes(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    result = {"results": {"gsm8k": {"exact_match,none": 0.2}}}
    (tmp_path / "base" / "results_1.json").write_text(json.dumps(result, indent=2))
    assert "lay a copy of it into step_0/ of every run" in refused(tmp_path)


# Starts of a run that died.


def starts(folder: Path, ends: Sequence[int], name: str, seeds: Sequence[int | None]) -> None:
    for i, (end, seed) in enumerate(zip(ends, seeds, strict=True)):
        home = folder / "model-n8" / name.format(i)
        configure(home, 8, seed)
        rows: list[Row] = [{"step": t, "train/loss": 1 / t, "train/reward": score(t, i)}
                           for t in range(1, end + 1)]  # fmt: skip
        rows += [{"step": t, "val/accuracy": score(t, 8 + i)} for t in range(20, end + 1, 20)]
        lines(home / "metrics.jsonl", sorted(rows, key=lambda row: int(str(row["step"]))))


@pytest.mark.parametrize("name", ["v{}-20250812-14120{}", "version_{}", "exp_{}/logs"])
@pytest.mark.parametrize("ends", [(23, 60), (41, 12, 60), (25, 30, 45)])
def test_starts_that_died_are_no_runs(tmp_path: Path, name: str, ends: Sequence[int]) -> None:
    starts(tmp_path, ends, name.replace("{}-", "{0}-").replace("0{}", "0{0}"), [5] * len(ends))
    (run,) = read_log(tmp_path, settings=load_settings([], MAP))
    held_out = next(s for s in run.series if s.split == "validation")
    assert held_out.step_K.tolist() == [*range(20, ends[-1] + 1, 20)]
    told = " ".join(run.provenance.inferred)
    assert f"ended at step {ends[0]} of 60 and was started again" in told
    apart = load_settings(["resumed=apart"], MAP)
    assert len(read_log(tmp_path, settings=apart)) == len(ends)


@pytest.mark.parametrize(("ends", "seeds"), [
    ((23, 60), (5, 6)), ((23, 60), (None, None)), ((60, 23), (5, 5)), ((60, 60), (5, 5)),
    ((40, 40), (5, 5)), ((45, 30), (5, 5)), ((59, 60), (5, 5)),
])  # fmt: skip
def test_other_runs_of_one_folder_are_kept(
    tmp_path: Path, ends: Sequence[int], seeds: Sequence[int | None]
) -> None:
    starts(tmp_path, ends, "version_{}", seeds)
    assert len(read_log(tmp_path, settings=load_settings([], MAP))) == 2


def test_a_log_with_training_rows_from_the_start_goes_on_with_none(tmp_path: Path) -> None:
    starts(tmp_path, (50, 12), "v{}", (None, None))  # the second has no evaluation
    for sets in ([], ["resumed=join"]):
        runs = read_log(tmp_path, settings=load_settings(sets, MAP))
        assert [run.n_rows for run in runs] == [52, 12]


# The batch of a process.


def trained(folder: Path, n: int, device: int, words: str) -> None:
    home = folder / f"grpo-k{n}"
    (home / "checkpoint-40").mkdir(parents=True)
    (home / "train.yml").write_text(
        words.format(n=n, device=device) + "gradient_accumulation_steps: 3\nseed: 9\n"
    )
    history = [{"step": s, "eval_reward": score(s, n), "loss": 0.1} for s in range(10, 41, 10)]
    state = {"log_history": history, "global_step": 40, "max_steps": 40}
    (home / "checkpoint-40" / "trainer_state.json").write_text(json.dumps(state))


@pytest.mark.parametrize("words", [
    "num_generations: {n}\nper_device_train_batch_size: {device}\n",
    "rl: grpo\ntrl:\n  num_generations: {n}\nmicro_batch_size: {device}\n",
])  # fmt: skip
@pytest.mark.parametrize("devices", [(8, 8), (8, 16)])
def test_processes_are_asked_for_and_give_each_run_its_batch(
    tmp_path: Path, words: str, devices: tuple[int, int]
) -> None:
    for n, device in zip((4, 8), devices, strict=True):
        trained(tmp_path, n, device, words)
    assert "add --set processes=P with your own number" in refused(tmp_path)
    assert "B_P" not in refused(tmp_path)
    found = drawn(load(tmp_path, (), ("processes=2",)))
    assert [*found] == [(12, 4, 9), (6 if devices[1] == 8 else 12, 8, 9)]
    told = refused(tmp_path, (), ("problems_per_batch=36",)) if devices == (8, 8) else "="
    assert devices != (8, 8) or "add --set processes=P in its place" in told


def test_processes_that_the_log_says_go_before_the_setting(tmp_path: Path) -> None:
    words = "num_generations: {n}\nper_device_train_batch_size: {device}\nworld_size: 4\n"
    trained(tmp_path, 4, 8, words)
    (run,) = read_log(tmp_path, settings=load_settings(["processes=2"]))
    assert run.problems_per_batch == 24
    assert "the log says processes=4, the setting 2: the log's is used" in run.notes


def test_a_batch_in_the_names_is_asked_for_before_processes(tmp_path: Path) -> None:
    trained(tmp_path, 4, 8, "num_generations: {n}\nper_device_train_batch_size: {device}\n")
    (tmp_path / "grpo-k4").rename(tmp_path / "grpo-bp24-k4")
    told = refused(tmp_path)
    assert "--set pattern='bp{problems_per_batch}'" in told
    assert "processes=P" not in told


# Parts of an evaluation.


@pytest.mark.parametrize("apart", [True, False])
def test_parts_of_an_evaluation_may_stand_between_rows_of_training(
    tmp_path: Path, apart: bool
) -> None:
    for n in (4, 8):
        configure(tmp_path / f"k{n}", n)
        for rank, size in enumerate((60, 140)):
            rows: list[Row] = []
            for t in range(0, 61, 5):
                trained: Row = {"step": t, "rank": rank, "loss": 0.1 + t / 1e4, "kl": t}
                right = 6 + t // 5 * (rank + 1) + n
                held = {"eval/right": right, "eval/of": size, "eval/acc": round(right / size, 4)}
                evaluated = held if t % 20 == 0 else {}
                rows += [{"step": t, **evaluated}, trained] if apart else [trained | evaluated]
            lines(tmp_path / f"k{n}" / f"log_rank{rank}.jsonl", rows)
    for c in load(tmp_path, ("eval/acc=avg",)):
        n = c.rollouts_per_problem
        assert c.score_K.tolist() == pytest.approx(
            [(12 + 2 * n + 3 * t // 5) / 200 for t in (0, 20, 40, 60)]
        )
    part_1 = tmp_path / "k8" / "log_rank1.jsonl"
    kept = [line for line in part_1.read_text().splitlines()
            if '"step": 40, "eval/right"' not in line and '"kl": 40, "eval/right"' not in line]
    lines(part_1, map(json.loads, kept))
    assert "log_rank1.jsonl has none of step 40 (1 such steps)" in refused(tmp_path / "k8")


# Two kinds of scores in the rows of one log.


@pytest.mark.parametrize(("doubled", "last", "gap", "asked"), [
    ((10, 20, 30, 40), 40, 0.1, True), ((0, 10, 30), 40, 0.1, True), ((0, 20), 20, 0.1, False),
    ((0, 10, 60), 60, 0.1, False), ((0, 10, 20, 30, 40), 40, 0.0, False),
])  # fmt: skip
def test_a_log_with_two_scores_at_most_steps_is_asked_about(
    tmp_path: Path, doubled: Sequence[int], last: int, gap: float, asked: bool
) -> None:
    configure(tmp_path, 8)
    lines(tmp_path / "metrics.jsonl", (
        {"step": t, "eval/temp": i, "val/accuracy": score(t, 8, gap * i)}
        for t in range(0, last + 1, 10) for i in range(2 if t in doubled else 1)
    ))  # fmt: skip
    if asked:
        told = refused(tmp_path, MAP)
        assert f"several in rows one after the other at {len(doubled)} of 5 steps" in told
        assert "(beside them: eval/temp)" in told
    else:
        (curve,) = load(tmp_path, MAP)
        assert curve.score_K.tolist() == [score(t, 8) for t in range(0, last + 1, 10)]


def test_a_run_that_goes_back_has_its_later_scores(tmp_path: Path) -> None:
    configure(tmp_path, 8)
    rows: list[Row] = [
        {"step": t, "val/accuracy": score(t, 8, shift)}
        for last, first, shift in ((40, 0, 0.0), (60, 10, 0.01)) for t in range(first, last + 1, 10)
    ]
    lines(tmp_path / "metrics.jsonl", rows)
    (curve,) = load(tmp_path, MAP)
    assert curve.rollouts_K.size == 7


# Tables.

HEADER = "run,problems_per_batch,rollouts_per_problem,seed,step"


def table(path: Path, column: str, kinds: Sequence[object], gap: float, steps: int = 24) -> Path:
    rnd, rows = random.Random(5), [f"{HEADER},{column},score"]
    for t in range(1, steps + 1):
        for i, kind in enumerate(kinds):
            noise = rnd.gauss(0, 0.01)
            rows.append(f"a,16,8,1,{10 * t},{kind},{0.3 + t / 100 + gap * i + noise:.5f}")
    path.write_text("\n".join([*rows, ""]))
    return path


@pytest.mark.parametrize(("column", "kinds", "steps"), [
    ("grader_version", (1, 2), 24), ("decoding_temperature", ("0.0", "0.7"), 4),
    ("eval_top_p", (0.9, 1), 4),
])  # fmt: skip
def test_numbers_that_tell_kinds_of_scores_apart_are_asked_about(
    tmp_path: Path, column: str, kinds: Sequence[object], steps: int
) -> None:
    path = table(tmp_path / "e.csv", column, kinds, 0.05, steps)
    assert f"must be of one kind, but column {column} has" in refused(path)
    for kind in kinds:
        (curve,) = load(path, where=[f"{column}={kind}"])
        assert curve.score_K.size == steps
    (both,) = load(path, where=[f"{column}=*"])
    assert both.score_K.size == 2 * steps


@pytest.mark.parametrize("kinds", [(0, 1), (0, 1, 2, 3)])
def test_draws_are_no_kinds(tmp_path: Path, kinds: Sequence[int]) -> None:
    (curve,) = load(table(tmp_path / "e.csv", "draw", kinds, 0.0))
    assert curve.score_K.size == 24 * len(kinds)


@pytest.mark.parametrize("word", ["test", "dev", "held_out"])
def test_another_word_for_held_out_problems_is_validation(tmp_path: Path, word: str) -> None:
    path = table(tmp_path / "e.csv", "split", ("train", word), 0.1)
    (curve,) = load(path)
    assert curve.score_K[-1] == pytest.approx(0.64, abs=0.03)
    (curve,) = load(path, split="train")
    assert curve.score_K[-1] == pytest.approx(0.54, abs=0.03)


def test_two_words_for_held_out_problems_are_asked_about(tmp_path: Path) -> None:
    path = table(tmp_path / "e.csv", "split", ("dev", "test"), 0.1)
    assert "choose with --where split=dev, or another" in refused(path)
    assert load(path, where=["split=test"])[0].score_K[-1] == pytest.approx(0.64, abs=0.03)
    path = table(tmp_path / "e.csv", "split", ("validation", "test"), 0.1)
    assert load(path)[0].score_K[-1] == pytest.approx(0.54, abs=0.03)


def test_a_table_in_parquet_is_handed_to_fit_with_its_score(tmp_path: Path) -> None:
    home = tmp_path / "evals"
    home.mkdir()
    (home / "notes.txt").write_text("the mean of 4 samples\n")
    cells = {"step": [5, 10], "eval_temperature": [1.0, 1.0], "peak_pass_rate": [0.3, 0.4],
             "pass_rate": [0.2, 0.3]}  # fmt: skip
    pq.write_table(pa.table(cells), home / "all.parquet")
    for source in (home, home / "all.parquet"):
        with pytest.raises(InputError) as caught:
            read_logs([source])
        told = str(caught.value)
        assert "fit, with pass_rate as the score if it holds that and what it will ask for" in told
        assert f"): isocompute fit {home}/all.parquet --map pass_rate=score" in told
        assert str(caught.value).endswith(
            "--map pass_rate=score --set problems_per_batch=B_P --set rollouts_per_problem=N"
        )
    pq.write_table(pa.table({"prompt": ["a"], "answer": ["b"]}), home / "all.parquet")
    with pytest.raises(InputError, match=r"notes.txt' holds nothing of them"):
        read_logs([home])
