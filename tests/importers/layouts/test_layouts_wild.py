"""Shapes of logs that strangers keep in their repositories, one trap each, in our own numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from isocompute.errors import InputError
from isocompute.importers import read_logs
from isocompute.importers.runs.repetitions import require_one_arm
from isocompute.importers.values.imported import ImportedRun
from isocompute.importers.words import paths
from isocompute.importers.words.names import recipe_in
from isocompute.importers.words.settings import load_settings
from isocompute.sources import load_curves

Rows = Iterable[Mapping[str, object]]


def read(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> list[ImportedRun]:
    return read_logs([source], settings=load_settings([*sets], [*maps]))


def refused(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = ()) -> str:
    with pytest.raises(InputError) as caught:
        require_one_arm(read(source, sets, maps))
    return str(caught.value)


def put(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def lines(path: Path, rows: Rows) -> Path:
    return put(path, "".join(json.dumps(row) + "\n" for row in rows))


# A batch of rollouts that serves several steps: TRL logs its reward where it was drawn.


def served(
    of: int, every: int = 1, last: int = 48, own: Mapping[str, object] | None = None
) -> list[dict[str, object]]:
    own = {"reward_std": 0.2, "completions/mean_length": 90.0} if own is None else own
    drawn = {s: {"reward": 0.2 + s / 100, **own} for s in range(1, last + 1, of)}
    return [{"step": s, "loss": 0.01, "learning_rate": 2e-6, **drawn.get(s, {})}
            for s in range(1, last + 1, every)]  # fmt: skip


SIZES = ("problems_per_batch=6", "rollouts_per_problem=4")


@pytest.mark.parametrize(("of", "updates"), [(1, 48), (3, 16), (8, 6)])
def test_a_reward_at_one_step_in_k_is_of_a_batch_that_serves_k(
    tmp_path: Path, of: int, updates: int
) -> None:
    state = {"log_history": served(of), "max_steps": 48, "logging_steps": 1}
    (run,) = read(put(tmp_path / "trainer_state.json", state), SIZES)
    (series,) = run.series
    assert series.step_K.tolist() == [*range(1, updates + 1)]
    assert series.rollouts_K.tolist() == [24 * k for k in range(1, updates + 1)]


def test_what_is_said_of_a_batch_goes_before_where_rewards_stand(tmp_path: Path) -> None:
    log = put(tmp_path / "trainer_state.json", {"log_history": served(4)})
    (run,) = read(log, [*SIZES, "num_iterations=1"])
    assert run.series[0].step_K.tolist() == [*range(1, 48, 4)]


def test_rewards_that_a_loop_may_log_now_and_then_are_asked_about(tmp_path: Path) -> None:
    log = lines(tmp_path / "a.jsonl", served(4, own={}))
    told = refused(log, SIZES)
    assert "rewards stand at one in 4 of its steps" in told
    assert "--set num_iterations=4" in told
    assert "--set num_iterations=1" in told
    for count, last in ((4, 12), (1, 45)):
        (run,) = read(log, [*SIZES, f"num_iterations={count}"])
        assert int(run.series[0].step_K[-1]) == last


def test_rows_without_rewards_at_uneven_distances_say_nothing(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if row["step"] in (1, 2, 5, 9, 11, 20) or k == "step"
             or k in ("loss", "learning_rate")} for row in served(1)]  # fmt: skip
    (run,) = read(put(tmp_path / "trainer_state.json", {"log_history": rows}), SIZES)
    assert run.series[0].step_K.tolist() == [1, 2, 5, 9, 11, 20]


def test_a_reward_that_rows_repeat_until_the_next_counts_once(tmp_path: Path) -> None:
    rows = [{"step": s, "loss": 0.1, "mean_reward": 0.3 + (s - 1) // 6 / 70} for s in range(1, 61)]
    (run,) = read(lines(tmp_path / "a.jsonl", rows), [*SIZES, "split=train"], ["mean_reward=avg"])
    assert run.series[0].step_K.tolist() == [*range(1, 61, 6)]


def test_batches_without_a_solved_problem_are_no_gaps(tmp_path: Path) -> None:
    rows = [{"step": s, "loss": 0.1, "mean_reward": 0.25 * (s % 9 == 1)} for s in range(1, 64)]
    (run,) = read(lines(tmp_path / "a.jsonl", rows), [*SIZES, "split=train"], ["mean_reward=avg"])
    assert run.series[0].step_K.size == 63


def test_a_batch_of_a_table_may_serve_several_steps_too(tmp_path: Path) -> None:
    from isocompute.sources.load import load_curves

    log = put(tmp_path / "g4.csv", "step,reward\n" + "".join(
        f"{s},{s / 90}\n" for s in range(1, 50, 6)))  # fmt: skip
    for sets, last in (([], 49 * 24), (["num_iterations=6"], 9 * 24)):
        settings = load_settings([*SIZES, *sets], ["reward=score"])
        (curve,) = load_curves(log, settings=settings)
        assert curve.rollouts_K[-1] == last


# Columns by key, and what was measured now and then under its steps.


def test_numbers_under_their_steps_stand_beside_columns(tmp_path: Path) -> None:
    log = put(tmp_path / "a.json", {
        "step": [*range(1, 25)], "loss": [0.1] * 24,
        "dev_exact": {"8": 0.25, "16": 0.5, "24": None},
        "by_level": {"1": 0.7, "2": 0.4, "99": 0.1},  # no step is 99
    })  # fmt: skip
    (run,) = read(log, SIZES, ["dev_exact=avg"])
    (series,) = run.series
    assert series.step_K.tolist() == [8, 16]
    assert series.score_K.tolist() == [0.25, 0.5]
    assert not any("by_level" in key for key in run.provenance.unread)


# What runs of one sweep share, in the words of a loop of one's own.


def trial(run_id: object, **config: object) -> dict[str, object]:
    rows = [{"step": s, "reward": 0.25 + s / 200 + len(str(run_id)) / 90, "loss": 0.1}
            for s in range(1, 13)]  # fmt: skip
    return {"run_id": run_id, "seed": 7, "lr": 2e-5, "steps": 12, "group_size": 4,
            "step_log": rows, **config}  # fmt: skip


def test_a_batch_that_each_run_says_is_offered_for_all(tmp_path: Path) -> None:
    from isocompute.importers.words.asking import require_configuration

    log = put(tmp_path / "a.json", {"runs": [
        trial("r" * batch, batch=batch) for batch in (2, 3, 6)]})  # fmt: skip
    runs = read(log, ["split=train"], ["step_log/reward=avg"])
    with pytest.raises(InputError) as caught:
        require_configuration(runs)
    assert "--map batch=problems_per_batch if it counts problems" in str(caught.value)
    runs = read(log, ["split=train"], ["step_log/reward=avg", "batch=problems_per_batch"])
    assert [run.problems_per_batch for run in runs] == [2, 3, 6]


@pytest.mark.parametrize("key", ["rank", "lora_r", "lora_rank"])
def test_runs_of_several_ranks_are_no_repetitions(tmp_path: Path, key: str) -> None:
    runs = [trial("r" * rank, problems_per_batch=2, **{key: rank}) for rank in (4, 8, 16)]
    log = put(tmp_path / "a.json", {"runs": runs})
    assert "share their lora rank" in refused(log, ["split=train"], ["step_log/reward=avg"])


def test_the_rank_of_a_process_is_no_setting(tmp_path: Path) -> None:
    log = put(tmp_path / "a.json", {"runs": [
        trial("r" * (rank + 1), problems_per_batch=2, rank=rank, world_size=3, seed=rank)
        for rank in (0, 1, 2)]})  # fmt: skip
    require_one_arm(read(log, ["split=train"], ["step_log/reward=avg"]))


@pytest.mark.parametrize(("key", "word"), [
    ("epsilon", "clip low"), ("beta", "kl coef"), ("mu", "updates per batch")])  # fmt: skip
def test_settings_of_a_loop_of_ones_own_divide_its_runs(
    tmp_path: Path, key: str, word: str
) -> None:
    runs = [trial("r" * i, problems_per_batch=2, **{key: value})
            for i, value in ((3, 1), (5, 2), (7, 2))]  # fmt: skip
    log = put(tmp_path / "a.json", {"runs": runs})
    assert f"share their {word}" in refused(log, ["split=train"], ["step_log/reward=avg"])


@pytest.mark.parametrize("told", [[], ["split=train"]])
def test_a_log_and_its_evaluations_have_a_split_each(tmp_path: Path, told: list[str]) -> None:
    for name, groups, n in (("small", 4, 8), ("large", 4, 16)):
        home = tmp_path / name
        put(home / "args.json", {"num_groups": groups, "group_size": n, "max_steps": 30})
        put(home / "step_history.json", [
            {"step": s, "loss": 0.1, "exact": n / 50 + s / 60, "fmt": 1} for s in range(1, 31)])
        put(home / "eval_history.json", [
            {"step": s, "exact": n / 90 + s / 80, "n_problems": 120} for s in (10, 20, 30)])
    runs = read(tmp_path, told, ["exact=avg"])
    assert {run.design[:2] for run in runs} == {(4, 8), (4, 16)}
    for n in (8, 16):
        of = [s for run in runs if run.rollouts_per_problem == n for s in run.series]
        by = {s.split: s for s in of}
        assert len(of) == len(by) == 2
        assert by["validation"].score_K.tolist() == [n / 90 + s / 80 for s in (10, 20, 30)]
        assert by["train"].score_K.size == 30


def test_a_history_without_evaluations_beside_it_keeps_its_held_out_score(tmp_path: Path) -> None:
    put(tmp_path / "step_history.json", [
        {"step": s, "loss": 0.1, "exact": 0.2 + s / 60} for s in range(1, 31)])
    (run,) = read(tmp_path, ["problems_per_batch=4", "rollouts_per_problem=8"], ["exact=avg"])
    assert [one.split for one in run.series] == ["validation"]


def test_a_batch_that_serves_several_rows_of_a_table_counts_once(tmp_path: Path) -> None:
    text = "problems_per_batch,rollouts_per_problem,steps,score\n"
    text += "".join(f"4,8,{s},{0.2 + s / 100}\n" for s in (0, 8, 16))
    path = put(tmp_path / "a.csv", text)
    for count, rollouts in (("1", [0, 256, 512]), ("4", [0, 64, 128])):
        (one,) = load_curves(path, settings=load_settings([f"num_iterations={count}"], []))
        assert one.rollouts_K.tolist() == rollouts


def counted(folder: Path, name: str, shift: float) -> Path:
    rows = [f"[{name}]  {s}/24 | loss={0.1 + shift:.2f} | hits={s + shift:.1f}%"
            for s in range(1, 25)]  # fmt: skip
    end = [f"[{name}] Steps: 24 | Group: 6 | LR: 1e-5", f"[{name}] Zero-loss steps: 2/24 (8%)",
           f"[{name}] Zero-reward steps: 1/24 (4%)"]  # fmt: skip
    return put(folder / f"{name}.log", "\n".join([f"[{name}] Loading ...", *rows, "", *end]) + "\n")


def test_a_summary_behind_rows_that_count_k_of_n_is_no_row(tmp_path: Path) -> None:
    (run,) = read(counted(tmp_path, "q_s7", 0.5), [*SIZES, "split=train"], ["hits=avg"])
    assert run.series[0].step_K.tolist() == [*range(1, 25)]
    assert run.series[0].score_K[:2].tolist() == pytest.approx([0.015, 0.025])


def test_ranks_of_a_lora_in_names_are_no_processes(tmp_path: Path) -> None:
    for i, rank in enumerate((8, 32, 128)):
        counted(tmp_path, f"q_rank{rank}", i / 10)
    assert len(read(tmp_path, [*SIZES, "split=train"], ["hits=avg"])) == 3
    assert recipe_in("q_rank32.log") == {"lora_rank": "32"}
    assert recipe_in("q_rank3.log") == {}


def test_evaluations_within_a_log_stay_held_out_beside_others(tmp_path: Path) -> None:
    rows = [{"step": s, **({"exact": s / 80} if not s % 8 else {"loss": 0.1, "hits": s / 50})}
            for s in range(1, 33)]  # fmt: skip
    log = lines(tmp_path / "metrics_log.jsonl", rows)
    put(tmp_path / "eval_results.json", [{"step": 32, "held": 0.5}])
    (run,) = read(log, SIZES, ["exact=avg"])
    assert [(s.split, s.step_K.tolist()) for s in run.series] == [("validation", [8, 16, 24, 32])]
    (run,) = read(log, SIZES, ["hits=avg"])
    assert {s.split for s in run.series} == {"train"}


def rewarded(*names: str, more: float = 0.0) -> dict[str, object]:
    rows = [{"step": s, "learning_rate": 1e-6, "loss": 0.1, "reward_std": 0.1,
             "reward": 0.1 * len(names) + s / 100 + more,
             **{f"rewards/{name}": 0.1 + s / 100 for name in names}}
            for s in range(1, 11)]  # fmt: skip
    return {"log_history": rows}


def test_rewards_of_other_functions_are_other_scores(tmp_path: Path) -> None:
    for i, of in enumerate((["exact"], ["exact", "brevity"], ["exact"])):
        put(tmp_path / "abc"[i] / "trainer_state.json", rewarded(*of, more=i / 50))
    told = refused(tmp_path, SIZES)
    assert "share their reward function" in told
    assert "exact (2 runs), brevity+exact (1 run)" in told
    put(tmp_path / "b" / "trainer_state.json", rewarded("exact", more=0.3))
    require_one_arm(read(tmp_path, SIZES))


# Words of names, where one n was trained.


def sweep(folder: Path, names: Iterable[str], last: int = 12) -> Path:
    for i, name in enumerate(names):
        lines(folder / f"{name}.jsonl", ({"step": s, "reward": 0.2 + 0.01 * i + s / 90}
                                         for s in range(1, last)))  # fmt: skip
    return folder


def test_a_key_that_the_user_names_goes_before_the_trainers(tmp_path: Path) -> None:
    rows = [{"step": s, "reward": 1 + s / 50, "reward_std": 0.1, "accuracy": s / 50}
            for s in range(1, 13)]  # fmt: skip
    (run,) = read(lines(tmp_path / "a.jsonl", rows), [*SIZES, "split=train"], ["accuracy=avg"])
    (series,) = run.series
    assert series.score_K.tolist() == [s / 50 for s in range(1, 13)]
    assert "avg: accuracy, as --map says, and not reward" in run.provenance.inferred


def test_rows_under_numbers_are_asked_what_these_count(tmp_path: Path) -> None:
    log = put(tmp_path / "curve.json", json.dumps({
        str(at): {"acc": at / 1000, "f1": 0.5} for at in (50, 150, 450)}, indent=1))  # fmt: skip
    told = refused(log, SIZES, ["acc=avg"])
    assert "stand under numbers (50, 150, 450); add --set step=keys" in told
    (run,) = read(log, [*SIZES, "step=keys"], ["acc=avg"])
    assert run.series[0].step_K.tolist() == [50, 150, 450]
    assert run.series[0].score_K.tolist() == [0.05, 0.15, 0.45]


def test_rows_of_two_algorithms_are_two_runs(tmp_path: Path) -> None:
    log = lines(tmp_path / "both.jsonl", (
        {"algo": algo, "step": s, "reward_mean": top * s / 12, "loss": 0.1}
        for algo, top in (("RLOO", 0.4), ("GRPO", 0.7)) for s in range(12)))  # fmt: skip
    first, other = read(log, [*SIZES, "split=train"], ["reward_mean=avg"])
    assert {"RLOO" in first.name, "RLOO" in other.name} == {True, False}
    told = refused(log, [*SIZES, "split=train"], ["reward_mean=avg"])
    assert "share their objective" in told


def test_rolls_own_step_counts_updates(tmp_path: Path) -> None:
    log = lines(tmp_path / "a.jsonl", (
        {"actor/pg_loss": 0.1, "actor/total_samples": 24, "critic/hits": s / 40, "system/step": s}
        for s in range(9)))  # fmt: skip
    (run,) = read(log, [*SIZES, "split=train"], ["critic/hits=avg"])
    assert run.series[0].rollouts_K[-1] in (24 * 8, 24 * 9)


def notebook(*tables: tuple[Sequence[str], Sequence[Sequence[object]]]) -> dict[str, object]:
    def drawn(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(f"<tr>{''.join(f'<td>{v}</td>' for v in row)}</tr>" for row in rows)
        return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"

    return {"cells": [
        {"cell_type": "code", "source": "trainer.train()", "execution_count": at, "outputs": [
            {"output_type": "display_data", "data": {"text/html": drawn(*table)}}]}
        for at, table in enumerate(tables, 1)], "nbformat": 4, "metadata": {}}  # fmt: skip


def test_a_notebook_that_shows_the_loss_alone_holds_no_run(tmp_path: Path) -> None:
    of_sft = ("Step", "Training Loss"), [(5, 1.25), (10, 1.0), (15, 0.75)]
    told = refused(put(tmp_path / "a.ipynb", notebook(of_sft, of_sft, of_sft)), SIZES)
    assert "must print a step and a score" in told
    of_rl = ("Step", "Training Loss", "reward"), [(s, 0.1, s / 20) for s in (1, 2, 3, 4)]
    (run,) = read(put(tmp_path / "b.ipynb", notebook(of_sft, of_rl)), SIZES)
    assert run.series[0].score_K.tolist() == [0.05, 0.1, 0.15, 0.2]


def test_a_notebook_that_prints_the_console_of_verl_is_read_as_one(tmp_path: Path) -> None:
    rows = [f"(main_task pid=7) step:{s} - critic/score/mean:{s / 50:.3f} - actor/lr:0.000"
            + f" - val/test_score/own:{s / 40:.3f}" * (not s % 5)
            for s in range(1, 16)]  # fmt: skip
    printed = {"output_type": "stream", "text": "\n".join(rows) + "\n"}
    log = put(tmp_path / "a.ipynb", {"nbformat": 4, "metadata": {}, "cells": [
        {"cell_type": "code", "source": "!python -m verl.trainer.main_ppo", "outputs": [printed],
         "execution_count": 1}]})  # fmt: skip
    (run,) = read(log, SIZES)
    (series,) = (s for s in run.series if s.split == "validation")
    assert series.step_K.tolist() == [5, 10, 15]
    assert series.score_K.tolist() == [0.125, 0.25, 0.375]


def test_rows_of_every_update_that_a_buffer_held_back_are_counted(tmp_path: Path) -> None:
    """Rows are written by the block, which ends short of the bar, and no epoch tells a step."""
    out, total = "", 60
    for k in range(1, total + 1):
        out += f"\r {100 * k // total}%|   | {k}/{total} [00:01<01:00, 1.0s/it]"
        if not k % 12 or k == total:
            done = out.count("'reward'")
            out += "\r" + "\n".join(
                str({"loss": 0.1, "learning_rate": 1e-6, "reward": s / 100, "epoch": 0.01})
                for s in range(done + 1, k if k < total else k + 1)) + "\n"  # fmt: skip
    out += str({"train_runtime": 9.5, "train_loss": 0.1, "epoch": 0.01}) + "\n"
    (run,) = read(put(tmp_path / "a.log", out), SIZES)
    assert run.series[0].step_K.tolist() == [*range(1, total + 1)]
    assert run.series[0].score_K.tolist() == [s / 100 for s in range(1, total + 1)]


def tokens(of_prompts: Sequence[int]) -> list[dict[str, object]]:
    """Four responses to each of six prompts an update; those of long prompts are longer."""
    rows, seen = list[dict[str, object]](), 0
    for s, prompt in enumerate(of_prompts, 1):
        length = 30 + prompt // 60 + 7 * (s * 37 % 11)
        seen += 24 * (prompt + length)
        rows.append({"step": s, "reward": s / 90, "reward_std": 0.1, "loss": 0.1,
                     "learning_rate": 1e-6, "num_tokens": seen, "completions/clipped_ratio": 0.0,
                     "completions/mean_length": length,
                     "completions/mean_terminated_length": length})  # fmt: skip
    return rows


@pytest.mark.parametrize(("prompts", "b_p", "told"), [
    ([100] * 300, 2, True), ([100 + 977 * s % 2000 for s in range(300)], 6, False),
])  # fmt: skip
def test_tokens_that_prompts_decide_say_nothing_of_the_batch(
    tmp_path: Path, prompts: Sequence[int], b_p: int, told: bool
) -> None:
    log = put(tmp_path / "trainer_state.json", {"log_history": tokens(prompts)})
    (run,) = read(log, [f"problems_per_batch={b_p}", "rollouts_per_problem=4"])
    assert any("were there more processes" in note for note in run.notes) == told


def test_shares_beside_their_counts_are_scores_of_notes(tmp_path: Path) -> None:
    notes = put(tmp_path / "NOTES.md", "## Runs\n\n| Step | GSM8K |\n|---|---|\n" + "".join(
        f"| {s} | **{s / 4:.2f}%** ({s * 2}/800) |\n" for s in (40, 80, 160)))  # fmt: skip
    (run,) = read(notes, [*SIZES, "begins=0"], ["GSM8K=avg"])
    assert run.series[0].step_K.tolist() == [40, 80, 160]
    assert run.series[0].score_K.tolist() == pytest.approx([0.1, 0.2, 0.4])


def test_a_word_of_names_divides_runs_of_one_n_and_the_same_seeds(tmp_path: Path) -> None:
    names = (f"{word}_seed{seed}" for word in ("plain", "shaped") for seed in (3, 4))
    told = refused(sweep(tmp_path, names), [*SIZES, "pattern=seed{seed}"])
    assert "must differ in B_p, n or seed" in told
    assert "'plain*' (2 runs)" in told
    assert "--where run='!plain*'" in told


def test_a_decimal_of_names_divides_runs_and_can_be_chosen(tmp_path: Path) -> None:
    names = (f"tau{tau}_seed{seed}" for tau in ("0.25", "1.50") for seed in (3, 4))
    told = refused(sweep(tmp_path, names), [*SIZES, "pattern=seed{seed}"])
    assert "share their tau to be compared or averaged, but have 0.25 (2 runs), 1.5" in told
    assert "--where tau=0.25" in told


def test_starts_of_other_decimals_are_no_attempts_of_one_job(tmp_path: Path) -> None:
    for tau, last in (("0.25", 3), ("1.50", 40)):
        rows = "".join(f"\r {s}%|   | {s}/40 [00:01<01:00, 1.0s/it]\n" + str(
            {"loss": 0.1, "reward": s / 50 + float(tau) / 9, "epoch": s / 10}
        ) + f"\r {s}%|   | {s}/40 [00:01<01:00, 1.0s/it]" for s in range(1, last))  # fmt: skip
        put(tmp_path / f"tau{tau}_seed3.log", rows + "\n")
    runs = read(tmp_path, [*SIZES, "pattern=seed{seed}"])
    assert len(runs) == 2


def test_names_that_the_seed_alone_tells_apart_are_repetitions(tmp_path: Path) -> None:
    require_one_arm(read(sweep(tmp_path, ("tau0.25_seed3", "tau0.25_seed4")),
                         [*SIZES, "pattern=seed{seed}"]))  # fmt: skip


def test_names_in_a_folder_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the logs in one folder are four times the work, not sixteen."""
    told, calls = paths._told, list[str]()
    monkeypatch.setattr(paths, "_told", lambda name: (calls.append(name), told(name))[1])

    def count(logs: int) -> int:
        calls.clear()
        for i in range(logs):
            lines(tmp_path / str(logs) / f"bp8_n4_seed{i}.jsonl", [
                {"step": s, "val-core/m/acc/mean@4": 0.2 + s / 100 + i / 1000} for s in (0, 2, 4)])
        assert len(read(tmp_path / str(logs))) == logs
        return len(calls)

    assert count(48) < 5 * count(12)
