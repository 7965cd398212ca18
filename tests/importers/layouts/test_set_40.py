"""The 40th blind set: every layout as its truth has it, and what was wrong of their variants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import set_40_trackers
import set_40_trainers
from isocompute.importers import load_settings, read_log
from isocompute.importers.values.headers import head_of
from layout_helpers import load, refused
from set_40_truth import Layout, curve, put, put_lines, rollouts, score

STEPS = range(0, 121, 20)
BY_N = "pattern=n{rollouts_per_problem}"
BY_SEED = "pattern=n{rollouts_per_problem}_seed{seed}"
IN_COLUMNS = "pattern=n={rollouts_per_problem} seed {seed}"
QWEN = "Qwen/Qwen2.5-1.5B-Instruct"
# What the tool's own lines add: settings, maps, what else
SAID: Mapping[str, tuple[Sequence[str], Sequence[str], Mapping[str, Any]]] = {
    "openrlhf_two_batches": ([BY_N, "problems_per_batch=128"], [], {}),
    "slime_from_zero": ([BY_N, "problems_per_batch=32"], [], {}),
    "skyrl_other_model": (["resumed=apart"], [], {"where": [f"model={QWEN}"]}),
    "mlflow_deleted": ([], ["eval/accuracy=avg"], {}),
    "lm_eval_smoke": ([BY_SEED, "problems_per_batch=64"], [], {}),
    "sheet_two_heads": ([IN_COLUMNS, "problems_per_batch=64"], [], {}),
    "tinker_two_rates": ([], [], {"where": ["learning_rate=*"], "metric": "avg:correct"}),
    "own_micro_steps": (
        ["step=opt_step", "pattern=k{rollouts_per_problem}", "problems_per_batch=32"],
        ["math500_acc=avg"], {},
    ),
}  # fmt: skip
LAYOUTS = [*set_40_trainers.LAYOUTS, *set_40_trackers.LAYOUTS]
Points = tuple[int, int, tuple[tuple[int, float], ...]]


def points(b_p: int, n: int, held: Mapping[int, float]) -> Points:
    return b_p, n, tuple((at, round(value, 4)) for at, value in held.items())


def found(source: Path, sets: Sequence[str] = (), maps: Sequence[str] = (), **more: Any) -> object:
    return sorted(
        points(c.problems_per_batch, c.rollouts_per_problem, dict(zip(
            map(round, c.rollouts_K), c.score_K.tolist(), strict=True)))
        for c in load(source, maps, sets, **more)
    )  # fmt: skip


def made(sizes: Sequence[int], b_p: int = 64) -> list[Points]:
    return sorted(points(b_p, n, rollouts(b_p, n, curve(b_p, n, STEPS))) for n in sizes)


@pytest.mark.parametrize("layout", LAYOUTS, ids=[one.name for one in LAYOUTS])
def test_a_layout_holds_what_was_written_before_it_was_read(
    tmp_path: Path, layout: Layout
) -> None:
    truth = layout.write(tmp_path / "logs")
    sets, maps, more = SAID.get(layout.name, ([], [], {}))
    expected = sorted(points(b_p, n, held) for (b_p, n, _), held in truth.curves.items())
    assert found(tmp_path / "logs", sets, maps, **more) == expected


SEEDS = ["seed 0", "seed 1"] * 2
HEADS = {
    "merged": [["", "n=4", "", "n=16", ""], ["step", *SEEDS]],
    "repeated": [["", "n=4", "n=4", "n=16", "n=16"], ["step", *SEEDS]],
    "the step above": [["step", "n=4", "", "n=16", ""], ["", *SEEDS]],
    "a gap": [["", "n=4", "", "n=16", ""], ["", "", "", "", ""], ["step", *SEEDS],
              ["0", "", "", "", ""]],
    "a title": [["MATH-500", "", "", "", ""], ["", "n=4", "", "n=16", ""], ["step", *SEEDS]],
}


@pytest.mark.parametrize("mark", [",", ";"])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_columns_may_be_named_in_two_lines(
    tmp_path: Path, head: list[list[str]], mark: str
) -> None:
    held = [(n, curve(64, n, STEPS, seed)) for n in (4, 16) for seed in (0, 1)]
    rows = [[str(s), *(str(own[s]).replace(".", "," if mark == ";" else ".") for _, own in held)]
            for s in STEPS]  # fmt: skip
    put(tmp_path / "a.csv", "".join(mark.join(row) + "\n" for row in [*head, *rows]))
    told = refused(tmp_path / "a.csv")
    assert f"--set pattern='{IN_COLUMNS.partition('=')[2]}'" in told
    expected = sorted(points(64, n, rollouts(64, n, own)) for n, own in held)
    assert found(tmp_path / "a.csv", [IN_COLUMNS, "problems_per_batch=64"]) == expected


def test_a_line_of_units_or_of_words_is_no_second_line_of_names(tmp_path: Path) -> None:
    rows = "".join(f"8;32;{256 * s};0.{25 + s}\n" for s in range(1, 6))
    for second in ("-;-;count;-", "a;a;b;b", "-;-;count;-;;"):
        behind = second.removeprefix(second.rstrip(";"))
        head = f"n;problems_per_batch;rollouts;score{behind}\n{second}\n"
        put(tmp_path / "a.csv", head + rows.replace("\n", f"{behind}\n"))
        assert head_of(tmp_path / "a.csv").names[0] == "n"


def test_names_under_an_n_may_be_metrics_or_batches(tmp_path: Path) -> None:
    held = {n: curve(64, n, STEPS) for n in (4, 16)}
    rows = "".join(f"{s},{held[4][s]},0.1,{held[16][s]},0.1\n" for s in STEPS)
    put(tmp_path / "sets.csv", ",n=4,,n=16,\nstep,math500,aime24,math500,aime24\n" + rows)
    told = refused(tmp_path / "sets.csv", [], ["pattern=n={rollouts_per_problem}",
                                               "problems_per_batch=64"])  # fmt: skip
    own = "pattern=n={rollouts_per_problem} math500"
    assert f"as --set pattern='{own.partition('=')[2]}'" in told
    assert found(tmp_path / "sets.csv", [own, "problems_per_batch=64"]) == made([4, 16])
    put(tmp_path / "batches.csv", ",batch 32,,batch 64,\nstep,n=4,n=16,n=4,n=16\n" + rows)
    own = "batch {problems_per_batch} n={rollouts_per_problem}"
    assert f"--set pattern='{own}'" in refused(tmp_path / "batches.csv")


def history(folder: Path, n: int, column: str, at: int) -> None:
    """open-instruct's scores of a run under one counter; its configuration beside them."""
    rows = [f"{at * s},{score(64, n, 64 * n * s)}\n" for s in STEPS]
    put(folder / f"grpo_n{n}.csv", f"{column},eval/scores\n" + "".join(rows))
    put(folder / f"grpo_n{n}.config.json", json.dumps(
        {"num_unique_prompts_rollout": 64, "num_samples_per_prompt_rollout": n}))


def test_the_step_of_a_history_is_its_trainers_counter_by_its_name(tmp_path: Path) -> None:
    for n in (4, 16):
        history(tmp_path / "rollouts", n, "global_step", 64 * n)  # open-instruct's counts these
        history(tmp_path / "updates", n, "training_step", 1)
    for how in ("rollouts", "updates"):
        assert found(tmp_path / how) == made([4, 16])


def test_steps_that_are_whole_batches_are_asked_about(tmp_path: Path) -> None:
    header = "problems_per_batch,rollouts_per_problem,step,score\n"
    rows = [(n, 64 * n * s, score(64, n, 64 * n * s)) for n in (4, 16) for s in STEPS]
    put(tmp_path / "a.csv", header + "".join(f"64,{n},{at},{value}\n" for n, at, value in rows))
    told = refused(tmp_path / "a.csv")
    assert "all of `step`, to 122880, are multiples of B_p * n, as a count of rollouts is" in told
    assert found(tmp_path / "a.csv", [], ["step=rollouts"]) == made([4, 16])
    (first, _) = load(tmp_path / "a.csv", ["step=steps"])
    assert first.rollouts_K[-1] == 256.0 * 256 * 120
    for n in (4, 16):  # under a trainer's name, in an export of its evaluations alone
        put_lines(tmp_path / "logs" / f"n{n}.jsonl", [
            {"step": at, "val-core/math/acc/mean@4": value} for of, at, value in rows if of == n])
    told = refused(tmp_path / "logs", [], [BY_N, "problems_per_batch=64"])
    assert "are multiples of B_p * n = 1024, as a count of responses is" in told
    of_run = [BY_N, "problems_per_batch=64", "step=step"]
    assert found(tmp_path / "logs", of_run, ["step=rollouts"]) == made([4, 16])


def test_a_counter_of_episodes_may_count_updates_problems_or_rollouts(tmp_path: Path) -> None:
    for n in (4, 16):
        history(tmp_path, n, "episode", 64 * n)
    told = refused(tmp_path, ["eval/scores=score"])
    for name, what in (("steps", "updates"), ("rollouts", "rollouts")):
        assert f"--map episode={name} if it counts {what}" in told
    assert found(tmp_path, [], ["eval/scores=score", "episode=rollouts"]) == made([4, 16])


@pytest.mark.parametrize("plain", ["update", "iteration"])
def test_a_counter_of_ones_own_is_held_against_the_one_that_is_taken(
    tmp_path: Path, plain: str
) -> None:
    for n in (4, 16):
        held = curve(64, n, STEPS)
        put_lines(tmp_path / "micro" / f"n{n}.jsonl", [
            {"global_step": 4 * s, plain: s, "eval/acc": held[s]} for s in STEPS])
        put_lines(tmp_path / "alike" / f"n{n}.jsonl", [
            {"global_step": s, plain: s, "eval/acc": held[s]} for s in STEPS])
    of_run = [BY_N, "problems_per_batch=64"]
    told = refused(tmp_path / "micro", ["eval/acc=avg"], of_run)
    assert f"one key must count updates, but step says 480 where {plain} says 120" in told
    assert found(tmp_path / "micro", [*of_run, f"step={plain}"], ["eval/acc=avg"]) == made([4, 16])
    assert found(tmp_path / "alike", of_run, ["eval/acc=avg"]) == made([4, 16])


@pytest.mark.parametrize("own", [False, True])
def test_a_run_that_its_document_says_crashed_is_no_repetition(tmp_path: Path, own: bool) -> None:
    runs = []
    for n, last, state in ((4, 120, "finished"), (16, 60, "crashed"), (16, 120, "finished")):
        held = curve(64, n, STEPS)
        off = 0.01 * (state == "crashed")
        runs.append({
            "name": f"n{n}", "id": f"a{len(runs)}", "state": state,
            "config": {"problems_per_batch": 64, "group_size": n, "seed": 42} if own else
                      {"trainer": {"train_batch_size": 64, "seed": 42},
                       "generator": {"n_samples_per_prompt": n}},
            "history": [{"_step": s, "trainer/global_step": s, "eval/all/avg_score": held[s] - off}
                        for s in STEPS if s <= last],
        })  # fmt: skip
    put(tmp_path / "runs.json", json.dumps(runs))
    assert found(tmp_path) == made([4, 16])
    told = [line for run in read_log(tmp_path) for line in run.provenance.inferred]
    assert any("failed at step 60" in line for line in told)
    assert len(load(tmp_path, [], ["resumed=apart"])) == 3


def test_a_checkpoint_that_was_evaluated_again_counts_once_and_that_is_said(
    tmp_path: Path,
) -> None:
    held = curve(64, 4, STEPS)
    for step, value in held.items():
        for hour, own in ((10, value - 0.01 * (step == 40)), (20, value))[step != 40 :]:
            put(tmp_path / f"evals/n4/global_step_{step}/results_2026-10-05T{hour}-00-09.json",
                json.dumps({"results": {"math500": {"exact_match,none": own}},
                            "n-samples": {"math500": {"original": 500, "effective": 500}}}))
    of_run = [BY_N, "problems_per_batch=64"]
    assert found(tmp_path, of_run) == made([4])
    (run,) = read_log(tmp_path, settings=load_settings(of_run, []))
    assert "score: where one was measured again (1), the last counts" in run.provenance.inferred


def test_two_columns_of_a_table_that_seem_to_count_updates_are_asked_about(tmp_path: Path) -> None:
    header = "problems_per_batch,rollouts_per_problem,step,update,score\n"
    for name, each in (("apart", 4), ("alike", 1)):
        put(tmp_path / f"{name}.csv", header + "".join(
            f"64,{n},{each * s},{s},{value}\n"
            for n in (4, 16) for s, value in curve(64, n, STEPS).items()))
    told = refused(tmp_path / "apart.csv")
    assert "row 14 has 480 in `step` and 120 in `update`; choose with --map step=steps" in told
    assert found(tmp_path / "apart.csv", [], ["update=steps"]) == made([4, 16])
    assert found(tmp_path / "alike.csv") == made([4, 16])


def test_a_log_of_samples_alone_may_count_rollouts(tmp_path: Path) -> None:
    for n in (4, 16):
        held = curve(64, n, STEPS)
        put_lines(tmp_path / f"n{n}.jsonl", [
            {"samples_seen": 64 * n * s, "eval/acc": held[s]} for s in STEPS])
    told = refused(tmp_path / "n4.jsonl")
    assert "--set step=samples_seen --map samples_seen=rollouts, if rollouts" in told
    maps = ["samples_seen=rollouts", "eval/acc=avg"]
    of_run = [BY_N, "problems_per_batch=64", "step=samples_seen"]
    assert found(tmp_path, of_run, maps) == made([4, 16])
