"""Variations of the tenth set's traps, invented after the code that mends them was read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute.errors import InputError
from isocompute.importers import settings_from
from isocompute.sources import load_curves
from set_10 import Run, curve, write_csv, write_json

STEPS = range(0, 201, 25)
OWN = {"prompts_per_batch": 20, "seed": 1}
ACC = {"columns": {"val_acc": "avg"}}


def lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path, settings: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    """B_p, n, and every (rollouts, score) of each run."""
    curves = load_curves(path, settings=settings_from(settings or {}), **options)
    return sorted(
        (c.problems_per_batch, c.rollouts_per_problem,
         [(int(x), round(float(y), 6)) for x, y in zip(c.rollouts_K, c.score_K, strict=True)])
        for c in curves
    )  # fmt: skip


def truth(*runs: Run) -> list[Any]:
    return sorted((r.bp, r.n, r.points) for r in runs)


def counted(folder: Path, config: Mapping[str, object], extra: bool = False) -> list[Any]:
    """Runs whose rows of evaluation count evaluations; `extra`: beside rows of training."""
    runs = [Run(20, n, 1) for n in (4, 8)]
    for run in runs:
        scores = curve(run, STEPS)
        rows: list[dict[str, object]] = [{"step": 0, "val_acc": scores[0]}]
        for step in range(1, 201):
            if extra:
                rows.append({"step": step, "train_reward": 0.3})
            if step % 25 == 0:
                rows.append({"step": step // 25, "val_acc": scores[step // 25]})
        home = folder / f"g{run.n}"
        lines(home / "metrics.jsonl", rows)
        write_json(home / "config.json", {**OWN, "group_size": run.n, **config})
    return truth(*runs)


def test_evaluations_counted_beside_rows_of_training_stand_at_their_updates(tmp_path: Path) -> None:
    wanted = counted(tmp_path, {"trainer": {"eval_interval": 25}}, extra=True)
    assert read(tmp_path, ACC) == wanted


def test_evaluations_one_by_one_are_asked_about_where_no_plan_confirms(tmp_path: Path) -> None:
    wanted = counted(tmp_path, {"eval": {"every": 25}})
    with pytest.raises(InputError, match=r"eval.every says one in 25 .*--set steps=200\), else"):
        read(tmp_path, ACC)
    assert read(tmp_path, {**ACC, "steps": 200}) == wanted
    as_they_are = read(tmp_path, {**ACC, "step": "step"})
    assert [x for x, _ in as_they_are[0][2]] == [20 * 4 * i for i in range(9)]


def test_evaluations_one_by_one_over_a_part_of_the_plan_are_asked_about(tmp_path: Path) -> None:
    wanted = counted(tmp_path, {"num_updates": 200})
    with pytest.raises(InputError, match=r"step 8 of 200; if they are .*--set eval_every=25, say"):
        read(tmp_path, ACC)
    assert read(tmp_path, {**ACC, "eval_every": 25}) == wanted


def test_steps_of_a_short_run_are_updates(tmp_path: Path) -> None:
    counted(tmp_path, {"num_updates": 8})
    assert read(tmp_path, ACC)[0][2][-1][0] == 20 * 4 * 8


def test_a_loop_that_counts_beyond_its_own_plan_is_asked_about(tmp_path: Path) -> None:
    scores = curve(Run(20, 4, 1), range(0, 801, 100))
    lines(
        tmp_path / "g4" / "metrics.jsonl",
        [{"step": 100 * i, "val_acc": score} for i, score in enumerate(scores)],
    )
    write_json(tmp_path / "g4" / "config.json", {**OWN, "group_size": 4, "num_updates": 200})
    with pytest.raises(InputError, match="the log counts to 800 and 200 are planned"):
        read(tmp_path, ACC)


def test_a_table_named_like_its_configuration_is_a_log(tmp_path: Path) -> None:
    runs = [Run(32, n, 1) for n in (4, 8)]
    for run in runs:
        name = f"bp32_n{run.n}"
        write_csv(
            tmp_path / f"{name}.csv", ["step", "val_acc"],
            zip(STEPS, curve(run, STEPS), strict=True),
        )  # fmt: skip
        (tmp_path / f"{name}.yaml").write_text(f"prompts_per_batch: 32\ngroup_size: {run.n}\n")
    assert read(tmp_path, ACC) == truth(*runs)
    with pytest.raises(
        InputError, match=r"bp32_n4.yaml beside the log says 4 and the setting .*16"
    ):
        read(tmp_path, {**ACC, "rollouts_per_problem": 16})


def test_a_resumed_table_with_its_header_again_counts_what_was_done_later(tmp_path: Path) -> None:
    run = Run(32, 8, 1)
    scores = curve(run, range(0, 101, 10))
    rows = [f"{s};;{scores[s // 10] + 0.01 * (s == 60):.4f}\n{s + 1};0.2;" for s in
            range(0, 61, 10)]  # fmt: skip
    again = [f"{s - 9};0.2;\n{s};;{scores[s // 10]:.4f}" for s in range(60, 101, 10)]
    text = "\n".join(["step;train_loss;val_acc", *rows, "step;train_loss;val_acc", *again])
    (tmp_path / "config.yaml").write_text("prompts_per_batch: 32\ngroup_size: 8\n")
    (tmp_path / "metrics.csv").write_text(text.replace(".", ",") + "\n")
    assert read(tmp_path, ACC) == truth(run)


def test_a_log_of_training_beside_one_of_evaluation_is_no_run(tmp_path: Path) -> None:
    runs = [Run(32, n, 1) for n in (4, 8)]
    for run in runs:
        scores = curve(run, STEPS)
        evaluated = [{"step": s, "accuracy": v} for s, v in zip(STEPS, scores, strict=True)]
        trained = [{"step": s, "accuracy": 0.3 + s / 1000} for s in range(1, 201)]
        home = tmp_path / "folders" / f"job{run.n}"
        for name, rows in (("eval", evaluated), ("train", trained)):
            lines(home / f"{name}.jsonl", rows)
            lines(tmp_path / "files" / f"bp32_n{run.n}_{name}.jsonl", rows)
        (home / "config.yaml").write_text(f"prompts_per_batch: 32\ngroup_size: {run.n}\n")
    columns = {"columns": {"accuracy": "avg"}}
    assert read(tmp_path / "folders", columns) == truth(*runs)
    named = {**columns, "pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}
    assert read(tmp_path / "files", named) == truth(*runs)
    one = tmp_path / "files" / "bp32_n4_train.jsonl"
    with pytest.raises(InputError, match=r"holds avg \(train\).*add --split train"):
        read(one, named)
    (tmp_path / "lone").mkdir()  # alone it may hold everything
    assert len(read(one.rename(tmp_path / "lone" / one.name), named)[0][2]) == 200


def trl(home: Path, run: Run, **more: object) -> None:
    steps = range(0, 201, 20)
    scores = curve(run, steps)
    history = [{"step": 2 * s, "eval_reward": v} for s, v in zip(steps, scores, strict=True)]
    write_json(home / "trainer_state.json", {"global_step": 400, "log_history": history})
    arguments = {
        "num_generations": run.n, "gradient_accumulation_steps": 4, "steps_per_generation": 8,
        "generation_batch_size": run.bp * run.n, **more,
    }  # fmt: skip
    write_json(home / "training_args.json", arguments)


def test_what_transformers_leaves_beside_its_state_hides_no_arguments(tmp_path: Path) -> None:
    runs = [Run(32, n, 42) for n in (4, 8)]
    for run in runs:
        home = tmp_path / f"run{run.n}"
        trl(home, run)
        write_json(home / "all_results.json", {"eval_reward": 0.9, "epoch": 0.5})
        write_json(home / "config.json", {"model_type": "qwen2", "hidden_size": 896})
        write_json(home / "tokenizer.json", {"version": "1.0"})
        state = json.loads((home / "trainer_state.json").read_text())
        state["log_history"] = state["log_history"][:6]
        write_json(home / "checkpoint-100" / "trainer_state.json", state)
    assert read(tmp_path) == truth(*runs)


def test_a_batch_in_plain_words_that_trl_contradicts_is_not_known(tmp_path: Path) -> None:
    trl(tmp_path / "run", Run(32, 8, 1), prompts_per_batch=16)
    with pytest.raises(InputError, match="add --map prompts_per_batch=problems_per_batch if it"):
        read(tmp_path)
    assert read(tmp_path, {"columns": {"prompts_per_batch": "problems_per_batch"}})[0][0] == 16


def test_a_trainer_s_way_to_evaluate_does_not_hold_for_keys_of_one_s_own(tmp_path: Path) -> None:
    rows = [{"step": s, "val_acc": v} for s, v in zip(STEPS, curve(Run(8, 4), STEPS), strict=True)]
    lines(tmp_path / "metrics.jsonl", rows)
    write_json(tmp_path / "config.json", {"num_generations": 4, "problems_per_batch": 8})
    assert load_curves(tmp_path, settings=settings_from(ACC))[0].metric == "avg"
    trl(tmp_path / "trl", Run(8, 4))
    assert load_curves(tmp_path / "trl", settings=settings_from({}))[0].metric == "avg@4"


def test_a_batch_of_responses_gives_b_p(tmp_path: Path) -> None:
    runs = [Run(256 // n, n, 1) for n in (4, 8)]
    for run in runs:
        scores = zip(STEPS, curve(run, STEPS), strict=True)
        rows = [{"step": s, "val_acc": v} for s, v in scores]
        lines(tmp_path / "beside" / f"n{run.n}" / "metrics.jsonl", rows)
        write_json(tmp_path / "beside" / f"n{run.n}" / "config.json", {"batch_size": 256})
        told = [{**row, "bsz": 256, "n": run.n} for row in rows]
        lines(tmp_path / "rows" / f"n{run.n}" / "metrics.jsonl", told)
    named = {"pattern": "n{rollouts_per_problem}"}
    columns = {"val_acc": "avg", "batch_size": "batch_size"}
    assert read(tmp_path / "beside", {**named, "columns": columns}) == truth(*runs)
    with pytest.raises(InputError, match=r"--map bsz=batch_size if it counts responses"):
        read(tmp_path / "rows", ACC)
    columns = {"val_acc": "avg", "bsz": "batch_size", "n": "n"}
    assert read(tmp_path / "rows", {"columns": columns}) == truth(*runs)


@pytest.mark.parametrize("other", [48, 20])
def test_a_batch_of_responses_holds_whole_problems(tmp_path: Path, other: int) -> None:
    rows = [[f"r{n}", s, 96, n, 0.3 + s / 1000] for n in (other, 16) for s in range(0, 60, 10)]
    write_csv(tmp_path / "a.csv", ["run", "step", "bsz", "n", "acc"], rows)
    said = {"columns": {"bsz": "batch_size", "n": "n", "acc": "score"}}
    if other == 48:
        assert [(b_p, n) for b_p, n, _ in read(tmp_path, said)] == [(2, 48), (6, 16)]
        return
    with pytest.raises(InputError, match="must be a multiple of n, but batch_size is 96 and n 20"):
        read(tmp_path, said)


def series(folder: Path, words: Sequence[str], *, inside: bool = False) -> list[Any]:
    runs = [(Run(48, n, 0), f"RUN-{number}") for n, number in ((4, 1), (8, 12), (16, 123))]
    for run, key in runs:
        path = folder / key / "eval_acc.csv" if inside else folder / f"{key}_eval_acc.csv"
        rows = [[i, s, v] for i, (s, v) in enumerate(zip(STEPS, curve(run, STEPS), strict=True))]
        write_csv(path, ["", "step", "value"], rows)
    write_csv(folder / "runs.csv", ["sys/id", *words], [[key, 48, run.n] for run, key in runs])
    return truth(*(run for run, _ in runs))


@pytest.mark.parametrize("inside", [False, True])
def test_series_of_runs_whose_names_begin_alike_are_told_apart(
    tmp_path: Path, inside: bool
) -> None:
    words = ["parameters/prompts_per_batch", "parameters/group_size"]
    wanted = series(tmp_path, words, inside=inside)
    assert read(tmp_path, {"columns": {"eval_acc": "avg"}}) == wanted


def test_a_table_of_runs_in_words_of_others_is_mapped(tmp_path: Path) -> None:
    wanted = series(tmp_path, ["prompts", "n_gen"])
    with pytest.raises(InputError, match="`problems_per_batch` and `rollouts_per_problem` must"):
        read(tmp_path, {"columns": {"eval_acc": "avg"}})
    columns = {"eval_acc": "avg", "prompts": "bp", "n_gen": "n"}
    assert read(tmp_path, {"columns": columns}) == wanted


def test_documents_of_lists_keep_training_and_evaluation_apart(tmp_path: Path) -> None:
    runs = [Run(32, n, 0) for n in (4, 8)]
    for run in runs:
        scores = curve(run, STEPS)
        rows = [{"iteration": s, "reward": v} for s, v in zip(STEPS, scores, strict=True)]
        told = {"bp": 32, "n": run.n, "train": [{"step": s, "reward": 0.3} for s in STEPS]}
        write_json(tmp_path / "rows" / f"r{run.n}.json", {**told, "eval": rows})
        cfg = {"cfg": {"prompts_per_batch": 32, "group_size": run.n}}
        keys = {"steps": list(STEPS), "val_acc": scores}
        write_json(tmp_path / "keys" / f"r{run.n}.json", {**cfg, **keys})
    columns = {"eval/reward": "avg", "bp": "problems_per_batch", "n": "rollouts_per_problem"}
    assert read(tmp_path / "rows", {"columns": columns}) == truth(*runs)
    assert read(tmp_path / "keys", ACC) == truth(*runs)


def test_what_is_said_of_evaluations_is_never_offered_as_n(tmp_path: Path) -> None:
    for n in (4, 8):
        config = {"eval": {"num_samples": 16}, "algo": {"num_samples": n}, "val_batch_size": 99}
        home = tmp_path / f"run{n}x"
        lines(home / "metrics.jsonl", [{"step": s, "val_acc": 0.3 + s / 999} for s in STEPS])
        write_json(home / "config.json", {**config, "prompts_per_batch": 32})
    with pytest.raises(InputError, match=r"add --map algo.num_samples=rollouts_per_problem if it"):
        read(tmp_path, ACC)
