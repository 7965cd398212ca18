"""What the thirty-first blind set found in logs: by construction, with other names."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from isocompute.importers import import_logs, load_imported, read_log
from isocompute.importers.archive import complete_runs
from isocompute.importers.tables.workbooks import of_sheets
from layout_helpers import drawn, load, refused, score, write
from test_set_30 import lines, sweep

N = (4, 8)
AT = (0, 10, 20, 30)
TRAIN, VERL = "critic/score/mean", "val-core/held/acc/mean@2"


# slime's counters, which may be of the optimizer: k rollouts between evaluations, g steps in each.


def slime(folder: Path, n: int, g: int, k: int, *, rollouts: bool = True, thin: int = 1) -> Path:
    rows: list[dict[str, object]] = []
    for at in range(24):
        if at == 0 or (at + 1) % k == 0:
            rows.append({"eval/step": at * g, "eval/held": score(at, n)})
        if k == 1 and at == 0:
            rows.append({"eval/step": 0, "eval/held": score(1, n)})
        if rollouts and at % thin == 0:
            rows.append({"rollout/step": at * g, "rollout/raw_reward": 0.5})
    return lines(folder / f"n{n}.jsonl", [{"_step": i, **row} for i, row in enumerate(rows)])


def updates(k: int) -> list[int]:
    return [0, *(at + 1 for at in range(24) if (at + 1) % k == 0)]


@pytest.mark.parametrize(("g", "k", "more"), [
    (3, 6, {}), (4, 6, {"rollouts": False}), (5, 4, {"thin": 2}), (3, 1, {}),
    (1, 6, {}), (1, 6, {"thin": 5}), (1, 4, {"thin": 3}), (1, 6, {"rollouts": False}),
    (1, 1, {}), (1, 1, {"thin": 4}),
])  # fmt: skip
def test_slimes_steps_of_the_optimizer_are_batches(
    tmp_path: Path, g: int, k: int, more: dict[str, bool | int]
) -> None:
    for n in N:
        slime(tmp_path, n, g, k, **more)  # type: ignore[arg-type]
    found = load(tmp_path, sets=["pattern=n{rollouts_per_problem}", "problems_per_batch=12"])
    assert drawn(found) == {(12, n, None): [12 * n * at for at in updates(k)] for n in N}


@pytest.mark.parametrize("key", ["rollout/raw_reward", "perf/rollout_time"])
def test_slimes_steps_that_are_counted_from_one_stay(tmp_path: Path, key: str) -> None:
    for n in N:
        lines(tmp_path / f"n{n}.jsonl", [
            {"_step": s, "eval/step": s, "eval/held": score(s, n), "rollout/step": s, key: 0.5}
            for s in (6, 12, 18, 24)
        ])  # fmt: skip
    found = load(tmp_path, sets=["pattern=n{rollouts_per_problem}", "problems_per_batch=12"])
    assert drawn(found) == {(12, n, None): [12 * n * s for s in (6, 12, 18, 24)] for n in N}


def test_a_script_names_slimes_run_by_where_it_saves(tmp_path: Path) -> None:
    for n in N:
        slime(tmp_path / "hist", n, n // 4, 6)
    write(tmp_path / "go.sh", "N=${1}; SEED=${2}\nARGS=(\n  --rollout-batch-size 12\n  --save "
          "/ckpt/n${N} --save-interval 3\n  --n-samples-per-prompt ${N}\n)\n"
          "python3 train.py ${ARGS[@]}\n")  # fmt: skip
    assert drawn(load(tmp_path)) == {
        (12, n, None): [12 * n * at for at in updates(6)] for n in N
    }


# open-instruct: the page's `Step` beside its own counter, and rewards of ten.


def open_instruct(folder: Path, header: str = "Step", **config: object) -> Path:
    for n in N:
        rows = [f"{header},training_step,eval/scores,val/sequence_lengths"]
        rows += [f"{s - 1},{s},{10 * score(s, n):.4f},300" for s in (8, 16, 24, 32)]
        write(folder / f"g{n}.csv", "\n".join(rows) + "\n")
        write(folder / f"g{n}.json", json.dumps({
            "num_unique_prompts_rollout": 6, "num_samples_per_prompt_rollout": n, "seed": 5,
            "apply_verifiable_reward": True, "verification_reward": 10.0, **config,
        }))  # fmt: skip
    return folder


def test_the_reward_of_open_instruct_says_the_range(tmp_path: Path) -> None:
    found = load(open_instruct(tmp_path))
    assert drawn(found) == {(6, n, 5): [6 * n * s for s in (8, 16, 24, 32)] for n in N}
    assert {c.score_range for c in found} == {(0.0, 10.0)}
    assert found[0].score_K.tolist() == pytest.approx([score(s, 4) for s in (8, 16, 24, 32)])
    runs = read_log(tmp_path)
    assert "score: 0..10 is the range, by verification_reward" in runs[0].provenance.inferred
    wider = load(tmp_path, score_range=(0.0, 20.0))
    assert wider[0].score_K.tolist() == pytest.approx([score(s, 4) / 2 for s in (8, 16, 24, 32)])


@pytest.mark.parametrize("config", [
    {"apply_r1_style_format_reward": True}, {"non_stop_penalty": True},
    {"apply_verifiable_reward": False}, {"verification_reward": None},
])  # fmt: skip
def test_a_reward_of_several_parts_says_no_range(
    tmp_path: Path, config: dict[str, object]
) -> None:
    assert "--range LOW HIGH" in refused(open_instruct(tmp_path, **config))


def test_a_column_step_of_ones_own_is_held_against_the_counter(tmp_path: Path) -> None:
    text = refused(open_instruct(tmp_path, "step"))
    assert "step says 31 where training_step says 32" in text


# A notebook: cells run one after the other, and its lines count what was solved.


def notebook(path: Path, n: int, told: str = "{v:.4f}  ({k}/500)", seed: int = 7) -> None:
    said = "".join(f"[test] step {s} solved {told.format(v=k / 500, k=k, p=k / 5)}\n"
                   for s, k in zip(AT, (100, 150, 170 + n, 210), strict=True))  # fmt: skip
    cells: list[tuple[str, str]] = [
        ("N = 2\nR = 1", ""), (f"N = {n}\nR = {seed}", ""),
        ("a = GRPOConfig(per_device_train_batch_size = 16, num_generations = N, seed = R,\n"
         "  gradient_accumulation_steps = 2, output_dir = 'x')", ""),
        ("t = GRPOTrainer(args = a)\nt.train()", said), ("R = 99", ""),
    ]  # fmt: skip
    write(path, json.dumps({"cells": [
        {"cell_type": "code", "source": [code], "outputs": [
            {"output_type": "stream", "text": [out]}] * bool(out)} for code, out in cells
    ]}))  # fmt: skip


@pytest.mark.parametrize("told", ["{v:.4f}  ({k}/500)", "{v:.3f} = {k}/500", "{p:.1f}% ({k}/500)"])
def test_a_share_that_its_line_counts_is_the_score(tmp_path: Path, told: str) -> None:
    for n in N:
        notebook(tmp_path / f"run{n}.ipynb", n, told)
    sets = ["processes=1"]
    found = load(tmp_path, sets=sets)
    assert drawn(found) == {(32 // n, n, 7): [32 * s for s in AT] for n in N}
    assert found[0].score_K.tolist() == pytest.approx([0.2, 0.3, (170 + 4) / 500, 0.42])
    assert {c.trials for c in found} <= {500, None}
    named = load(tmp_path, maps=["solved=avg@3"], sets=sets)
    assert {c.metric for c in named} == {"avg@3"}


@pytest.mark.parametrize("told", ["{v:.4f}", "{v:.4f} ({k}/400)", "{v:.4f} f1 {v:.4f} ({k}/500)"])
def test_a_number_that_its_line_does_not_count_is_asked_about(tmp_path: Path, told: str) -> None:
    notebook(tmp_path / "run4.ipynb", 4, told)
    assert "name the score" in refused(tmp_path, sets=["processes=1"])


# Configurations that runs share but for their seed.


def shared(folder: Path, names: Sequence[str], inner: str = "", **more: object) -> Path:
    for name in names:
        n = 8 if "8" in name else 4
        rows = [{"step": s, "data": {VERL: score(s, n, ("s2" in name) / 90)}}
                for s in AT]  # fmt: skip
        lines(folder / "out" / name / "metrics.jsonl", rows)
    for n in N:
        said = {"data.train_batch_size": 64 // n, "actor_rollout_ref.rollout.n": n, **more}
        write(folder / "configs" / f"g{n}{inner}.json", json.dumps(said))
    return folder


@pytest.mark.parametrize("inner", ["", "/config"])
def test_runs_of_several_seeds_share_a_configuration(tmp_path: Path, inner: str) -> None:
    names = ["g4-s1", "g4-s2", "g8-s1", "g8-s2"]
    source = shared(tmp_path, names, inner, rollout_seed=0)
    assert drawn(load(source)) == {
        (64 // n, n, seed): [64 * s for s in AT] for n in N for seed in (1, 2)
    }
    run = next(one for one in read_log(source) if one.name == "g4-s2")
    assert f"configs/g4{inner}.json, with seed=2 of the run's name" in run.provenance.inferred[0]


def test_a_shared_configuration_of_another_n_is_none(tmp_path: Path) -> None:
    source = shared(tmp_path, ["g4-s1"], **{"actor_rollout_ref.rollout.n": 16})
    assert "must be known" in refused(source)


def test_a_shared_file_that_says_no_batch_is_none(tmp_path: Path) -> None:
    source = shared(tmp_path, ["g4-s1"])
    write(source / "configs" / "g4.json", '{"note": 3}')
    assert [run.seed for run in read_log(source)] == [None]


def test_a_try_without_scores_or_settings_stops_no_import(tmp_path: Path) -> None:
    source = shared(tmp_path / "in", ["g4-s1", "g8-s1"])
    lines(source / "out" / "odd" / "metrics.jsonl",
          [{"step": s, "data": {TRAIN: 0.5}} for s in range(4)])  # fmt: skip
    summary = import_logs([source], tmp_path / "study")
    assert any("left out: odd has no held-out score" in line for _, line in summary.notes)
    assert {run.name for run in load_imported(tmp_path / "study")} == {"g4-s1", "g8-s1"}
    alone = [run for run in read_log(source) if run.name == "odd"]
    with pytest.raises(Exception, match="must be known"):
        complete_runs(alone)


# A try that crashed before its first evaluation.


def test_what_was_not_evaluated_is_compared_to_none(tmp_path: Path) -> None:
    for name, limit, keys in (("a4", 512, (VERL,)), ("b4", 512, (VERL,)), ("c4", 2048, ())):
        rows = [{"step": s, "data": {key: score(s, ord(name[0])) for key in (TRAIN, *keys)}}
                for s in AT]  # fmt: skip
        lines(tmp_path / name / "metrics.jsonl", rows)
        write(tmp_path / name / "config.json", json.dumps({
            "data.train_batch_size": 6, "actor_rollout_ref.rollout.n": 4,
            "data.seed": ord(name[0]), "data.max_response_length": limit}))  # fmt: skip
    assert {c.run for c in load(tmp_path)} == {"a4", "b4"}
    assert "max response length" in refused(tmp_path, split="train")


# A trial by its name and by where it ends.


@pytest.mark.parametrize("name", ["smoke", "my-debug", "smoke_test", "n4_dbg", "tmp"])
def test_a_trial_that_says_so_is_left_out(tmp_path: Path, name: str) -> None:
    told: list[str] = []
    left = load(sweep(tmp_path, {name: {}}), say=told.append)
    assert {c.run for c in left} == {"real_n4", "real_n8", "real_n16"}
    assert any(f"run {name}: left out: it sounds like a trial" in line for line in told)
    assert len(load(tmp_path, where=["run=*"])) == 4


@pytest.mark.parametrize(("name", "config"), [
    ("smoke", {"trainer.total_training_steps": 60}), ("debugger", {}), ("smokey", {}),
])  # fmt: skip
def test_a_trial_needs_both(tmp_path: Path, name: str, config: dict[str, object]) -> None:
    source = sweep(tmp_path, {name: config})
    if config:  # it is under way
        assert len(load(source)) == 4
    else:
        assert "if it was a trial, leave it out" in refused(source)


# A tracker of one's own with MLflow's tables under other names.


def tracker(path: Path, rates: Iterable[float] = (1e-6,), state: str = "done") -> Path:
    with sqlite3.connect(path) as made:
        made.executescript("""
            CREATE TABLE runs(id INTEGER, name TEXT, status TEXT);
            CREATE TABLE params(run_id INTEGER, key TEXT, value TEXT);
            CREATE TABLE metrics(run_id INTEGER, key TEXT, step INTEGER, value REAL, ts TEXT);
        """)
        for at, (n, rate) in enumerate(((n, rate) for n in N for rate in rates), 11):
            made.execute("INSERT INTO runs VALUES (?, ?, ?)", (at, f"code_{n}_{at}", state))
            said = {"prompts_per_step": 9, "group_size": n, "lr": rate, "seed": 3}
            made.executemany("INSERT INTO params VALUES (?, ?, ?)",
                             [(at, key, str(value)) for key, value in said.items()])  # fmt: skip
            made.executemany("INSERT INTO metrics VALUES (?, 'eval/held/pass@1', ?, ?, '')",
                             [(at, s, score(s, n)) for s in AT])  # fmt: skip
    return path


def test_a_database_of_ones_own_is_read_as_mlflows(tmp_path: Path) -> None:
    source = tracker(tmp_path / "own.db")
    assert drawn(load(source)) == {(9, n, 3): [9 * n * s for s in AT] for n in N}
    assert [run.name for run in read_log(source)] == ["code_4_11", "code_8_12"]
    text = refused(tracker(tmp_path / "two.db", (1e-6, 3e-6)))
    assert "must share their learning rate" in text


def test_its_states_are_the_trackers(tmp_path: Path) -> None:
    run = read_log(tracker(tmp_path / "own.db", state="killed"))[0]
    assert "the tracker says that it was killed: it counts up to its last score" in run.notes


def test_a_database_of_other_tables_is_told_which(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "odd.db") as made:
        made.execute("CREATE TABLE metrics(name TEXT, payload TEXT)")
    assert "metrics: run_id, key, step, value" in refused(tmp_path / "odd.db")


# Two tables: a row for each run, and their courses by the problems that were drawn.


def courses(folder: Path, each: int = 7, of: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[list[object]]] = {
        "about": [["run", "group size", "tasks / iter", "iters", "final"]],
        "course": [["run", "samples", "hits"]],
    }
    for n in N:
        tables["about"].append([f"alf_n{n}", n, 7, 30, score(30, n)])
        tables["course"] += [[f"alf_n{n}", each * s, of * score(s, n)] for s in AT]
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return folder


def test_problems_that_were_drawn_make_updates(tmp_path: Path) -> None:
    source = courses(tmp_path)
    assert of_sheets([source / "about.csv", source / "course.csv"]) == [source / "course.csv"]
    text = refused(source / "course.csv", ["hits=score"])
    assert ("--map samples=steps if it counts updates, --map samples=problems_drawn if it counts "
            "problems, --map samples=rollouts if it counts rollouts, each so far") in text
    found = load(source / "course.csv", ["hits=score", "samples=problems_drawn"])
    assert drawn(found) == {(7, n, None): [7 * n * s for s in AT] for n in N}
    assert [c.steps_K.tolist() for c in found] == [[*AT]] * 2
    other = load(source / "course.csv", ["hits=score", "samples=steps"])
    assert drawn(other) == {(7, n, None): [7 * n * 7 * s for s in AT] for n in N}


def test_what_else_a_table_asks_for_is_asked_at_once(tmp_path: Path) -> None:
    source = courses(tmp_path, of=100) / "course.csv"
    text = refused(source, ["hits=score"])
    assert "--map samples=problems_drawn if it counts problems" in text
    assert "for percent --range 0 100" in text
    text = refused(source, ["samples=problems_drawn"])
    assert "but score is missing" in text
    assert "rollouts is" not in text


def test_problems_must_be_whole_batches(tmp_path: Path) -> None:
    source = courses(tmp_path, each=2) / "course.csv"
    text = refused(source, ["hits=score", "samples=problems_drawn"])
    assert "whole batch, but row 2 stands at 20 problems, 2.86 batches of 7; write" in text
    assert "--map samples=steps if it counts updates," in refused(source, ["hits=score"])


def test_a_choice_is_made_before_it_is_read(tmp_path: Path) -> None:
    source = courses(tmp_path) / "course.csv"
    text = refused(source, ["hits=score", "samples=STEPS_OR_PROBLEMS_DRAWN_OR_ROLLOUTS"])
    assert "choose one: --map samples=steps" in text
    told = refused(source, ["hits=score", "samples=problem_drawn"])
    assert "did you mean problems_drawn?" in told


# Attacks on these rules: what they took in silence, and is asked about now.


def forks(folder: Path, at: Sequence[int], every: int | None) -> Path:
    """slime's counters where a fork evaluates elsewhere, or few batches were logged."""
    for n in N:
        rows: list[dict[str, object]] = [{"eval/step": s, "eval/held": score(s, n)} for s in at]
        rows += [{"rollout/step": s, "rollout/raw_reward": 0.5}
                 for s in range(0, at[-1] + 1, every or 1) if every]  # fmt: skip
        lines(folder / f"n{n}.jsonl", [{"_step": i, **row} for i, row in enumerate(rows)])
    return folder


@pytest.mark.parametrize(("at", "every"), [
    ((0, 8, 16, 24), 2), ((0, 10), 2), ((0, 5, 10, 15), 5), ((0, 27, 57, 78, 87, 117), None),
])  # fmt: skip
def test_steps_that_share_a_factor_otherwise_are_asked_about(
    tmp_path: Path, at: tuple[int, ...], every: int | None
) -> None:
    source, sets = forks(tmp_path, at, every), ["pattern=n{rollouts_per_problem}",
                                                "problems_per_batch=12"]  # fmt: skip
    g = every or 3
    text = refused(source, sets=sets)
    assert f"slime's steps are all multiples of {g} (evaluations at {at[1]}" in text
    assert f"--set num_iterations={g} if a batch serves {g} steps" in text
    for k in (1, g):
        told = drawn(load(source, sets=[*sets, f"num_iterations={k}"]))
        assert [x / 48 for x in told[12, 4, None]][-1] in (at[-1] // k, at[-1] // k + 1)


@pytest.mark.parametrize("at", [(6, 12, 18), (10, 20, 30, 40), (0, 10, 20, 40)])
def test_evaluations_at_multiples_count_batches(tmp_path: Path, at: tuple[int, ...]) -> None:
    found = load(forks(tmp_path, at, None),
                 sets=["pattern=n{rollouts_per_problem}", "problems_per_batch=12"])  # fmt: skip
    assert drawn(found)[12, 4, None] == [48 * s for s in at]


@pytest.mark.parametrize("name", ["dry-run", "sanity-check", "n4_debug", "debug_2"])
def test_a_trial_has_several_spellings(tmp_path: Path, name: str) -> None:
    assert len(load(sweep(tmp_path, {name: {}}))) == 3


def test_a_word_that_all_runs_have_makes_none_a_trial(tmp_path: Path) -> None:
    source = sweep(tmp_path, {"debug_n2": {}})
    for n in (4, 8, 16):
        (source / f"real_n{n}").rename(source / f"debug_n{n}")
    assert "'debug_n2' ends after 2 updates" in refused(source)


def test_runs_of_several_ranges_are_not_mixed(tmp_path: Path) -> None:
    source = open_instruct(tmp_path)
    said = json.loads((source / "g8.json").read_text())
    write(source / "g8.json", json.dumps({**said, "verification_reward": 5.0}))
    text = refused(source)
    assert "must share the range of their scores, but say 0..5 (the first such run: 'g8')" in text
    assert "0..10 (the first such run: 'g4')" in text
    assert len(load(source, score_range=(0.0, 10.0))) == 2
    write(source / "g8.json", json.dumps({**said, "reward_model_multiplier": 1.0}))
    assert "none (the first such run: 'g8')" in refused(source)


@pytest.mark.parametrize("change", [
    "ALTER TABLE runs ADD COLUMN deleted INTEGER; UPDATE runs SET deleted = (id = 13)",
    "ALTER TABLE runs ADD COLUMN deleted_at TEXT; UPDATE runs SET deleted_at = 'x' WHERE id = 13",
    "UPDATE runs SET status = 'deleted' WHERE id = 13",
])
def test_what_its_tracker_deleted_is_left_out(tmp_path: Path, change: str) -> None:
    source = tracker(tmp_path / "own.db", (1e-6, 1e-6))
    with sqlite3.connect(source) as made:
        made.executescript(change)
    runs = read_log(source)
    assert [run.name for run in runs] == ["code_4_11", "code_4_12", "code_8_14"]
    assert "1 more runs were deleted in the tracker and are left out" in runs[0].notes


def test_a_setting_of_two_values_is_asked_about(tmp_path: Path) -> None:
    source = tracker(tmp_path / "own.db")
    with sqlite3.connect(source) as made:
        made.execute("INSERT INTO params VALUES (12, 'note', 'a'), (12, 'note', 'b')")
    assert len(load(source)) == 2
    with sqlite3.connect(source) as made:
        made.execute("INSERT INTO params VALUES (12, 'group_size', '32')")
    assert "params has 8 and 32 of 'group_size'" in refused(source)


def test_a_column_that_says_what_a_value_is_of_is_of_its_key(tmp_path: Path) -> None:
    source = tracker(tmp_path / "own.db")
    with sqlite3.connect(source) as made:
        made.executescript("""
            ALTER TABLE metrics ADD COLUMN split TEXT;
            UPDATE metrics SET split = 'train', value = value + 0.3, key = 'pass@1';
        """)
        made.executemany("INSERT INTO metrics VALUES (?, 'pass@1', ?, ?, '', 'val')",
                         [(at, s, score(s, n)) for at, n in ((11, 4), (12, 8)) for s in AT])
    assert "val/pass@1" in refused(source)
    found = load(source, maps=["val/pass@1=avg"])
    assert found[0].score_K.tolist() == pytest.approx([score(s, 4) for s in AT])


@pytest.mark.parametrize("told", [
    "0.4110 truncated {v:.3f} ({k}/500)", "0.4110 format_ok {v:.3f} ({k}/500)",
    "0.4110 progress {v:.3f} ({k}/500 batches)", "0.4110 wrong {v:.3f} ({k}/500)",
    "0.4110 pass@8 {v:.3f} ({k}/500)", "0.4110 best_of_4 {v:.3f} ({k}/500)",
    "0.4110 acc {v:.3f} ({k}/500) f1 {v:.3f}",
])  # fmt: skip
def test_a_share_of_what_may_not_be_solved_is_asked_about(tmp_path: Path, told: str) -> None:
    for n in N:
        notebook(tmp_path / f"run{n}.ipynb", n, told)
    assert "must hold validation metrics that are known" in refused(tmp_path, sets=["processes=1"])


def test_a_share_of_responses_says_no_number_of_problems(tmp_path: Path) -> None:
    for n in N:
        notebook(tmp_path / f"run{n}.ipynb", n, "{v:.4f} ({k}/500 samples)")
    assert {c.trials for c in load(tmp_path, sets=["processes=1"])} == {None}
    assert {run.provenance.evaluation_problems for run in read_log(tmp_path)} == {None}


def test_a_shared_configuration_is_found_by_any_sign(tmp_path: Path) -> None:
    source = shared(tmp_path, ["q-s1-g4", "q-s2-g4", "q-s1-g8"])
    for n in N:
        (source / "configs" / f"g{n}.json").rename(source / "configs" / f"q-g{n}.json")
    assert {(n, seed) for _, n, seed in drawn(load(source))} == {(4, 1), (4, 2), (8, 1)}


def test_configurations_of_one_name_must_agree(tmp_path: Path) -> None:
    source = shared(tmp_path, ["g4-s1", "g4-s2", "g8-s1"])
    said = "data:\n  train_batch_size: {}\nactor_rollout_ref:\n  rollout:\n    n: 4\n"
    write(source / "configs" / "g4.yaml", said.format(16))
    assert len(load(source)) == 3
    write(source / "configs" / "g4.yaml", said.format(99))
    assert "must say the same B_p, n and seed, but g4.yaml and g4.json differ" in refused(source)


def test_a_shared_configuration_of_another_batch_is_none(tmp_path: Path) -> None:
    for named, known in ((16, True), (64, True), (12, False)):  # 64: B_p * n
        source = shared(tmp_path / f"{named}", [f"bs{named}_g4-s1"])
        (source / "configs" / "g4.json").rename(source / "configs" / f"bs{named}_g4.json")
        if known:
            assert drawn(load(source)) == {(16, 4, 1): [64 * s for s in AT]}
        else:
            assert "must be known" in refused(source)


@pytest.mark.parametrize("meaning", ["problems_drawn", "epochs"])
def test_a_log_has_no_counts_of_tables(tmp_path: Path, meaning: str) -> None:
    for n in N:
        lines(tmp_path / f"n{n}.jsonl", [
            {"step": s, "data": {VERL: score(s, n), "seen": 7 * s}} for s in AT
        ])  # fmt: skip
    sets = ["pattern=n{rollouts_per_problem}", "problems_per_batch=7"]
    text = refused(tmp_path, [f"{VERL}={meaning}"], sets)
    assert f"is to be {meaning}, which a table alone can have; drop that --map" in text
    assert "which a table alone can have" in refused(tmp_path, [f"seen={meaning}"], sets)


@pytest.mark.parametrize(("name", "value"), [("steps", 3), ("rollouts", 30)])
def test_problems_that_were_drawn_agree_with_the_other_counts(
    tmp_path: Path, name: str, value: int
) -> None:
    source = courses(tmp_path) / "course.csv"
    header, *rows = source.read_text().splitlines()
    more = [f"{row},{0 if row.split(',')[1] == '0' else value}" for row in rows]
    source.write_text("\n".join([f"{header},{name}", *more]) + "\n")
    text = refused(source, ["hits=score", "samples=problems_drawn"])
    assert f"{name} and problems_drawn must agree, but row 2 has {name}={value}" in text


def test_problems_of_one_batch_are_not_those_so_far(tmp_path: Path) -> None:
    source = courses(tmp_path, each=0) / "course.csv"
    source.write_text(source.read_text().replace(",0,", ",7,"))
    text = refused(source, ["hits=score", "samples=problems_drawn"])
    assert "must count the problems so far, but every row has those of one batch" in text


def test_tables_that_say_two_batches_of_a_run_are_asked_about(tmp_path: Path) -> None:
    source = courses(tmp_path)
    write(source / "old.csv", (source / "about.csv").read_text().replace(",7,", ",14,"))
    text = refused(source / "course.csv", ["hits=score", "samples=problems_drawn"])
    said = "one problems_per_batch of a run, but 'alf_n4' has 7 in about.csv and 14 in old.csv"
    assert said in text


def test_tables_of_other_scores_of_the_same_runs_are_no_repetitions(tmp_path: Path) -> None:
    source = courses(tmp_path)
    for at, name in enumerate(("math", "code")):
        text = (source / "course.csv").read_text().replace(",0.", f",0.{at}")
        write(source / f"{name}.csv", text)
    (source / "course.csv").unlink()
    maps = ["hits=score", "samples=problems_drawn"]
    assert "'code' (2 runs) and 'math' (2) have the same ones" in refused(source, maps)
    for at, name in enumerate(("math", "code")):
        (source / f"{name}.csv").rename(source / f"rep{at}.csv")
    assert len(load(source, maps)) == 4


def test_a_course_in_two_tables_is_one(tmp_path: Path) -> None:
    source = courses(tmp_path)
    header, *rows = (source / "course.csv").read_text().splitlines()
    for name, some in (("early", (0, 70)), ("late", (140, 210))):
        mine = [row for row in rows if int(row.split(",")[1]) in some]
        write(source / f"{name}.csv", "\n".join([header, *mine]) + "\n")
    (source / "course.csv").unlink()
    found = load(source, ["hits=score", "samples=problems_drawn"])
    assert drawn(found) == {(7, n, None): [7 * n * s for s in AT] for n in N}
