"""Importers against the real packages' files; the numbers were read off the runs' own output."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from isocompute.errors import InputError
from isocompute.importers import (
    ImportedRun,
    Settings,
    convert_runs,
    load_settings,
    read_log,
    settings_from,
    to_curves,
)
from isocompute.importers.runs.checks import refills
from isocompute.importers.runs.repetitions import require_one_arm
from isocompute.importers.values.imported import Metric, Series
from isocompute.importers.words.configuration import configuration
from isocompute.importers.words.settings import parse_metric
from isocompute.importers.words.vocabulary import RATE_KEYS, column_of

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
BP_N = {"problems_per_batch": 2, "rollouts_per_problem": 4}
# of one run of TRL that logged to five trackers at once
STEPS, SCORES = [0, 2, 4, 6], [0.375, 0.5625, 0.5, 0.4375]
TOKENS = [0.0, 63.0, 119.0, 174.0]
TRACKERS = ("trl-offline.wandb", "mlflow.db", "trackio.db", "events.out.tfevents.trl")


def only(runs: list[ImportedRun]) -> ImportedRun:
    assert len(runs) == 1
    return runs[0]


def series(run: ImportedRun, label: str, split: str = "validation") -> Series:
    found = [s for s in run.series if s.metric.label == label and s.split == split]
    assert len(found) == 1, [s.metric.label for s in run.series]
    return found[0]


def write_jsonl(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.heavy
@pytest.mark.parametrize("name", TRACKERS)
def test_every_tracker_gives_the_same_run(name: str) -> None:
    run = only(read_log(LOGS / name))
    assert (run.problems_per_batch, run.rollouts_per_problem, run.steps, run.seed) == (2, 4, 6, 3)
    s = series(run, "avg@4")
    assert s.step_K.tolist() == STEPS
    assert s.rollouts_K.tolist() == [0, 16, 32, 48]
    assert s.tokens_K.tolist() == pytest.approx(TOKENS)
    assert s.score_K.tolist() == pytest.approx(SCORES, abs=1e-7)
    assert (s.metric.estimator, s.metric.variable) == ("mean", "reward")
    train = series(run, "avg", "train")
    assert train.step_K.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.n_errors == 0


def test_trainer_state_asks_for_what_it_does_not_hold() -> None:
    path = LOGS / "trl" / "checkpoint-6" / "trainer_state.json"
    run = only(read_log(path))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (None, None)
    assert np.isnan(series(run, "avg").rollouts_K).all()
    with pytest.raises(InputError, match=r"problems_per_batch=B_P --set rollouts_per_problem=N"):
        to_curves([run])
    curve = to_curves(read_log(path, settings=BP_N | {"evaluation_samples": 4}))[0]
    assert curve.metric == "avg@4"
    assert curve.rollouts_K.tolist() == [0, 16, 32, 48]
    assert curve.tokens_K is not None
    assert curve.tokens_K.tolist() == pytest.approx(TOKENS)
    one = read_log(path, settings={"problems_per_batch": 2})
    with pytest.raises(InputError, match="`rollouts_per_problem` must be known.*does not log it"):
        to_curves(one)


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (["run_bp8_n4_seed0.jsonl"], "bp{problems_per_batch}_n{rollouts_per_problem}_seed{seed}"),
        (["bp8_n4_lr1_s0.jsonl"], "bp{problems_per_batch}_n{rollouts_per_problem}*s{seed}"),
        (["4b_2k_G4_B8.jsonl"], "G{rollouts_per_problem}_B{problems_per_batch}"),
        (["n4-rate0.1-batch8.jsonl"], "n{rollouts_per_problem}*batch{problems_per_batch}"),
        (["bs8_g4/a.jsonl", "bs8_g8/a.jsonl"], "bs{problems_per_batch}_g{rollouts_per_problem}"),
        (["bs8_g4/a.jsonl"], None),  # alone, a folder does not name its log
        (["g3b-n4-seed1.jsonl", "g3b-n8-seed1.jsonl"], "n{rollouts_per_problem}-seed{seed}"),
        (["n: 4.jsonl", "n: 8.jsonl"], "n: {rollouts_per_problem}"),
        (["bp8_seed4.jsonl"], "bp{problems_per_batch}_seed{seed}"),
        (["seed4.jsonl"], None),
    ],
)
def test_the_pattern_that_file_names_suggest_is_named_and_works(
    tmp_path: Path, paths: list[str], pattern: str | None
) -> None:
    for path in paths:
        file = tmp_path / "logs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"step": s, "val-core/x/reward/mean@4": 0.1 * s} for s in range(4)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="must be known") as caught:
        to_curves(read_log(tmp_path / "logs"))
    assert ("seem to" in str(caught.value)) == (pattern is not None)
    if pattern is not None:
        assert f"--set pattern='{pattern}'" in str(caught.value)
        given = {"problems_per_batch": 8, "rollouts_per_problem": 4}
        unsaid = {name: value for name, value in given.items() if name not in pattern}
        for name in given:
            asked = re.search(f"--set {name}=\\w+ with your own number", str(caught.value))
            assert bool(asked) == (name in unsaid)
        curves = to_curves(read_log(tmp_path / "logs", settings={"pattern": pattern, **unsaid}))
        assert len(curves) == len(paths)
        assert {(c.problems_per_batch, c.rollouts_per_problem) for c in curves} >= {(8, 4)}


def test_folder_of_checkpoints_is_one_run_named_after_it(tmp_path: Path) -> None:
    for step in (3, 10):
        folder = tmp_path / "bp2_n4" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [{"step": s, "eval_reward": 0.1} for s in range(step)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        (folder / "optimizer.pt").write_bytes(b"\x80never opened")
    pattern = {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}
    run = only(read_log(tmp_path, settings=pattern))
    assert run.name == "bp2_n4"
    assert (run.problems_per_batch, run.rollouts_per_problem) == (2, 4)
    assert series(run, "avg").step_K.size == 10


def test_verl_file_logger() -> None:
    run = only(read_log(LOGS / "verl" / "bp4_n8.jsonl",
                        settings={"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}))
    assert (run.problems_per_batch, run.rollouts_per_problem) == (4, 8)
    s = series(run, "avg@4")
    assert s.problem_set == "math"
    assert s.step_K.tolist() == [0, 2, 4]
    assert s.rollouts_K.tolist() == [0, 64, 128]
    # response lengths 101, 102, 103, 104 of 32 rollouts each
    assert s.tokens_K.tolist() == [0, 32 * 203, 32 * 410]
    assert s.score_K.tolist() == pytest.approx([10 / 24, 12 / 24, 17 / 24])
    assert series(run, "best@4:bootstrap").metric.estimator == "bootstrap"
    assert series(run, "avg@4:reward").metric.core is False


def test_verl_console_holds_the_configuration() -> None:
    run = only(read_log(LOGS / "verl" / "console.log"))
    assert (run.problems_per_batch, run.rollouts_per_problem, run.steps) == (4, 8, 4)
    file = only(read_log(LOGS / "verl" / "bp4_n8.jsonl"))
    for s in file.series:
        twin = series(run, s.metric.label, s.split)
        assert twin.score_K.tolist() == pytest.approx(s.score_K.tolist())


def test_verl_dumps_give_unbiased_metrics_where_verl_bootstraps() -> None:
    run = only(read_log(LOGS / "verl" / "dumps", settings=BP_N))
    assert series(run, "avg@4").score_K[0] == pytest.approx(10 / 24)
    first = run.outcomes[0]
    assert (first.step, first.samples) == (0, 4)
    successes = first.successes_P
    assert successes[:2].tolist() == [1, 3]
    # by hand: best@2 = mean of 1 - C(4-c, 2)/6
    expected = np.mean([1 - math.comb(4 - c, 2) / 6 for c in successes.tolist()])
    assert series(run, "best@2").score_K[0] == pytest.approx(expected)
    expected = np.mean([math.comb(c, 2) / 6 for c in successes.tolist()])
    assert series(run, "worst@2").score_K[0] == pytest.approx(expected)
    assert series(run, "best@4").score_K[0] == np.mean(successes > 0)
    assert series(run, "worst@4").score_K[0] == np.mean(successes == 4)
    assert to_curves([run], "best@4")[0].metric == "best@4"


def test_single_dump_file_has_its_step_and_training_split() -> None:
    run = only(read_log(LOGS / "verl" / "dumps" / "4.jsonl",
                        settings={"split": "train", "problem_set": "easy"}))
    s = series(run, "avg@4", "train")
    assert s.step_K.tolist() == [4]
    assert s.problem_set == "easy"
    assert (run.outcomes[0].split, run.outcomes[0].problem_set) == ("train", "easy")


def test_skyrl_dumps_and_aggregates(tmp_path: Path) -> None:
    for step, scores in ((0, [0, 1]), (5, [[0.0, 1.0], [0.0, 1.0]])):
        folder = tmp_path / "dumped_evals" / f"global_step_{step}_evals"
        folder.mkdir(parents=True)
        write_jsonl(folder / "gsm8k.jsonl", [
            {"input_prompt": "q", "output_response": "a", "score": score, "data_source": "gsm8k"}
            for score in scores
        ])
        write_jsonl(folder / "aggregated_results.jsonl", [
            {"eval/gsm8k/avg_score": 0.25, "eval/gsm8k/pass_at_2": 0.5}
        ])
    run = only(read_log(tmp_path))
    s = series(run, "avg@2")
    assert (s.problem_set, s.step_K.tolist(), s.score_K.tolist()) == ("gsm8k", [0, 5], [0.5, 1.0])
    path = tmp_path / "dumped_evals" / "global_step_5_evals" / "aggregated_results.jsonl"
    run = only(read_log(path))
    assert series(run, "best@2").step_K.tolist() == [5]
    assert series(run, "avg").score_K.tolist() == [0.25]


def test_prime_rl_metrics_use_the_samples_that_it_counts(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "metrics.jsonl", [
        {"step": 0, "time": 1.0, "eval/aime/avg@8": 0.25, "eval/aime/pass@4": 0.5,
         "eval/aime/pass^4": 0.125},
        {"step": 1, "time": 2.0, "progress/total_samples": 60, "progress/decode_tokens": 500,
         "reward/all/mean": 0.5, "eval/aime/avg@8": 0.375},
    ])
    run = only(read_log(path, settings={"problems_per_batch": 8, "rollouts_per_problem": 8}))
    s = series(run, "avg@8")
    assert s.problem_set == "aime"
    assert s.rollouts_K.tolist() == [0, 60]  # not 64: what was drawn counts
    assert s.tokens_K.tolist() == [0, 500]
    assert series(run, "best@4").metric.estimator == "unbiased"
    assert series(run, "worst@4").score_K.tolist() == [0.125]


def test_wandb_chart_export(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text(
        '"train/global_step","bp2_n4 - eval/reward","bp2_n4 - eval/reward__MIN",'
        '"bp2_n4 - eval/reward__MAX",'
        '"bp2_n8 - a - eval/reward","bp2_n8 - a - eval/reward__MIN"\n'
        '"0","0.25","0","1","0.5","0"\n"5","NaN","","","0.75",""\n"6","","","","",""\n'
    )
    runs = read_log(path, settings={"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"})
    assert [(r.name, r.problems_per_batch, r.rollouts_per_problem) for r in runs] == [
        ("bp2_n4", 2, 4), ("bp2_n8 - a", 2, 8)]
    assert series(runs[0], "avg").n_missing == 1
    assert series(runs[1], "avg").rollouts_K.tolist() == [0, 80]
    path.write_text(path.read_text().replace('"train/global_step"', '"Relative Time (Wall)"'))
    with pytest.raises(InputError, match="must have the step on its x axis"):
        read_log(path)


def test_two_estimators_never_meet_in_one_fit(tmp_path: Path) -> None:
    dumps = read_log(LOGS / "verl" / "dumps", settings=BP_N)
    file = read_log(LOGS / "verl" / "bp4_n8.jsonl", settings=BP_N)
    assert to_curves([*dumps, *file], "avg@4", problem_set=None)  # means of the same variable
    with_boot = convert_runs([*dumps, *file], "best@4")
    assert [c.run for c in with_boot.curves] == ["dumps"]
    assert with_boot.excluded == [("bp4_n8", "it has no best@4")]
    rewards = only(read_log(write_jsonl(tmp_path / "a.jsonl", [
        {"step": 0, "data": {"val-core/math/reward/mean@4": 0.5}}]), settings=BP_N))
    with pytest.raises(InputError, match="one estimator of one variable, but avg@4 is: mean"):
        to_curves([*file, rewards], "avg@4")


def test_metric_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    file = read_log(LOGS / "verl" / "bp4_n8.jsonl", settings=BP_N)
    assert to_curves(file)[0].metric == "avg@4"  # the only plain mean
    with pytest.raises(InputError, match="metric 'best@4' must be in the log"):
        to_curves(file, "best@4")
    with pytest.raises(InputError, match="must be one of 'math', but got 'aime'"):
        to_curves(file, problem_set="aime")
    two = read_log(write_jsonl(tmp_path / "a.jsonl", [
        {"step": 0, "eval/x/avg@8": 0.5, "eval/x/avg@4": 0.5}]), settings=BP_N)
    with pytest.raises(InputError, match="one metric must be chosen.*add --metric avg@4"):
        to_curves(two)
    state = read_log(LOGS / "trl", settings=BP_N)
    with pytest.raises(InputError, match="the log does not say k: add --set evaluation_samples=K"):
        to_curves(state, "avg@4")
    assert {c.split for c in to_curves(state, "avg", split=None)} == {"train", "validation"}
    with pytest.raises(InputError, match="at least 1 imported run"):
        to_curves([])


def test_settings_fill_and_never_override() -> None:
    run = only(read_log(LOGS / "mlflow.db", settings={"rollouts_per_problem": 64, "seed": 9}))
    assert run.rollouts_per_problem == 4
    assert "the log says rollouts_per_problem=4, the setting 64: the log's is used" in run.notes
    run = only(read_log(LOGS / "verl" / "bp4_n8.jsonl",
                        settings={"seed": 9, "steps": 100, "run": "renamed"}))
    assert (run.seed, run.steps, run.name) == (9, 100, "renamed")


def test_a_rate_that_no_log_holds_is_told_and_planned_with(tmp_path: Path) -> None:
    rows = [{"step": s, "val/acc": 0.3 + s / 1000} for s in range(0, 320, 40)]
    (tmp_path / "runs").mkdir()
    for n in (8, 16, 32):
        write_jsonl(tmp_path / "runs" / f"n{n}.jsonl", rows)
    write_jsonl(tmp_path / "runs" / "n64.jsonl", [{**row, "actor/lr": 3e-6} for row in rows])
    settings = {"problems_per_batch": 32, "pattern": "n{rollouts_per_problem}",
                "learning_rate": "2e-6", "columns": {"val/acc": "avg@4"}}  # fmt: skip
    curves = to_curves(read_log(tmp_path / "runs", settings=settings_from(settings)))
    assert {c.rollouts_per_problem: c.recorded["learning_rate"] for c in curves} == {
        8: 2e-6, 16: 2e-6, 32: 2e-6, 64: 3e-6}  # the log's own is used


def test_column_map_reads_keys_of_ones_own(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "log.jsonl", [{"it": 3, "my/val": 0.5, "my/train": 0.25}])
    settings = settings_from({
        **BP_N, "step": "it",
        "columns": {"my/val": "best@4", "my/train": {
            "metric": "avg@4", "split": "train", "problem_set": "easy"}},
    })
    run = only(read_log(path, settings=settings))
    assert series(run, "best@4").step_K.tolist() == [3]
    train = series(run, "avg@4", "train")
    assert (train.problem_set, train.score_K.tolist()) == ("easy", [0.25])
    with pytest.raises(InputError, match="must hold rows with a step"):
        read_log(path)


@pytest.mark.parametrize(("settings", "message"), [
    ({"rollout_per_problem": 4}, "did you mean rollouts_per_problem"),
    ({"rollouts_per_problem": 2.5}, "`rollouts_per_problem` must be an integer >= 1"),
    ({"learning_rate": "fast"}, "`learning_rate` must be a number > 0, but got 'fast'"),
    ({"learning_rate": "-1e-6"}, "`learning_rate` must be a number > 0, but got -1e-06"),
    ({"steps": 0}, "`steps` must be an integer >= 1"),
    ({"split": "test"}, "`split` must be train or validation"),
    ({"pattern": "x{budget}"}, "a placeholder of `pattern` must be one of"),
    ({"columns": 3}, "`columns` must map keys"),
    ({"columns": {"a": {"kind": "avg"}}}, "a column must be a metric or have the keys"),
    ({"columns": {"a": {"metric": "avg", "split": "x"}}}, "the split of a column must be"),
    ({"columns": {"a": "avg@@"}}, "a metric must look like"),
    ({"columns": {"a": "best@4:guess"}}, "an estimator must be one of"),
])
def test_settings_that_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings_from(settings)


def test_settings_from_the_command_line() -> None:
    assert load_settings(["rollouts_per_problem=16", "run=a=b"]) == Settings(
        rollouts_per_problem=16, run="a=b")
    with pytest.raises(InputError, match="must look like NAME=VALUE, but got 'steps'"):
        load_settings(["steps"])
    with pytest.raises(InputError, match="may stand once in `pattern`"):
        Settings(pattern="{seed}_{seed}").for_file("1_2")


@pytest.mark.parametrize(("key", "label", "problem_set"), [
    ("val-core/openai/gsm8k/acc/mean@8", "avg@8", "openai/gsm8k"),
    ("val-core/math/acc/best@4/mean", "best@4:bootstrap", "math"),
    ("val-core/math/acc/maj@4/mean", "maj@4:bootstrap", "math"),
    ("val-aux/math/acc/worst@4/mean", "worst@4:bootstrap", "math"),
    ("val-aux/math/acc/best@4/std", None, ""),
    ("val-aux/num_turns/mean", None, ""),
    ("val/test_score/math", "avg", "math"),
    ("eval_reward", "avg", ""),
    ("eval/rewards/f/mean", "avg:f", ""),
    ("eval/aime24/avg@16", "avg@16", "aime24"),
    ("eval/aime24/reward/pass@16", "best@16", "aime24"),
    ("eval/aime24/pass^16", "worst@16", "aime24"),
    ("eval/gsm8k/pass_at_5", "best@5", "gsm8k"),
    ("eval/aime24-pass@8", "best@8", "aime24"),  # slime
    ("val/math500/pass@8", "best@8", "math500"),  # rLLM
    ("val-core/math/acc/mean@8/std", None, ""),
    ("val-core/math/acc/best@4", None, ""),
    ("actor/entropy", None, ""),
    ("x" * 500, None, ""),
])
def test_words_of_the_trainers(key: str, label: str | None, problem_set: str) -> None:
    column = column_of(key)
    assert (column and column.metric.label) == label
    assert (column.problem_set if column else "") == problem_set


def test_configurations_of_the_trainers() -> None:
    assert configuration({"orchestrator.batch_size": 512, "orchestrator.group_size": "16",
                          "max_steps": 9})[:3] == (32, 16, 9)
    assert configuration({"batch_size": 512, "group_size": 16})[:2] == (None, 16)
    assert configuration({"trainer.train_batch_size": 8, "generator.n_samples_per_prompt": 4,
                          "seed": 1})[:4] == (8, 4, None, 1)
    trl = {"num_generations": 8, "gradient_accumulation_steps": 4, "generation_batch_size": 64}
    assert configuration(trl)[:2] == (8, 8)
    reused = configuration(trl | {"num_iterations": 2, "max_steps": 9})
    assert (reused.problems_per_batch, reused.ticks, reused.steps) == (8, 2, 5)
    assert "a batch of rollouts serves 2 steps" in reused.notes[0]
    assert refills({"algorithm.filter_groups.enable": True}) == "algorithm.filter_groups.enable"


@pytest.mark.parametrize(("per_generation", "iterations", "b_p", "ticks"), [
    (4, 1, 8, 1), (8, 1, 8, 2), (8, 3, 8, 6), (16, 2, 8, 8),  # a batch serves several steps
    (2, 1, 16, 1), (1, 2, 16, 1), (2, 2, 8, 1),  # a step takes several, or one twice
    (6, 1, 5, 1),  # one and a half steps: 5.33 problems in each are no batch
])  # fmt: skip
def test_a_batch_of_trl_is_what_is_drawn_at_once(
    per_generation: int, iterations: int, b_p: int, ticks: int
) -> None:
    said = {"num_generations": 8, "gradient_accumulation_steps": 4, "generation_batch_size": 64,
            "steps_per_generation": per_generation, "num_iterations": iterations}  # fmt: skip
    found = configuration(said)
    assert (found.problems_per_batch, found.ticks) == (None if b_p == 5 else b_p, ticks)


def test_a_batch_of_trl_by_its_processes() -> None:
    said = {"num_generations": 8, "gradient_accumulation_steps": 2, "generation_batch_size": 64,
            "per_device_train_batch_size": 4}  # fmt: skip
    (note,) = configuration(said).notes
    assert note.startswith("B_p is 8 (generation_batch_size / 8)")
    found = configuration(said | {"num_processes": 2})
    assert (found.problems_per_batch, found.ticks) == (8, 4)


def test_labels_keep_estimators_apart() -> None:
    assert Metric(kind="avg", samples=4).label == "avg@4"
    assert Metric(kind="best", samples=4).label == "best@4:mean"
    assert parse_metric("worst@2").label == "worst@2"
    assert parse_metric("avg").samples is None
    with pytest.raises(InputError, match="an estimator must be one of"):
        Metric(kind="avg", estimator="median")  # type: ignore[arg-type]


def test_provenance_and_scores() -> None:
    run = only(read_log(LOGS / "verl" / "bp4_n8.jsonl", settings=BP_N))
    import hashlib

    data = (LOGS / "verl" / "bp4_n8.jsonl").read_bytes()
    assert run.provenance.sha256 == hashlib.sha256(data).hexdigest()
    assert run.provenance.size_bytes == len(data)
    assert run.provenance.format == "verl-file"
    s = series(run, "avg@4")
    at = s.step_K.tolist().index(2)
    assert (s.rollouts_K[at], s.problem_set, s.score_K[at]) == (16, "math", 0.5)


def test_tokens_stop_where_a_step_is_missing(tmp_path: Path) -> None:
    rows: list[object] = [
        {"step": s, "data": {"response_length/mean": 10, "val-core/m/acc/mean@2": 0.5}}
        for s in (1, 2, 4)
    ]
    s = series(only(read_log(write_jsonl(tmp_path / "a.jsonl", rows), settings=BP_N)), "avg@2")
    assert s.tokens_K[:2].tolist() == [80, 160]
    assert math.isnan(s.tokens_K[2])


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.txt", b"hello\n", "must be one of verl, TRL"),
    ("a.jsonl", b"", "must be one of verl, TRL"),
    ("a.jsonl", b'{"a": 1}\n', "must hold rows with a step"),
    ("t.parquet", b"PAR1....", "is a table; give it as tidy curves"),
    ("other.db", None, "must be one of MLflow"),
    ("torn.db", b"SQLite format 3\0torn", "must be readable SQLite"),
    ("trainer_state.json", b'{"best": 1}', "must hold a list `log_history`"),
    ("trainer_state.json", b'{"log_history": [[', "must hold a list `log_history`"),
])
def test_files_that_are_no_logs(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is None:
        import sqlite3

        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE other (a)")
        connection.close()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_log(path)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file or a folder"):
        read_log(tmp_path / "none")
    with pytest.raises(InputError, match="must hold at least one log that is known"):
        read_log(tmp_path)


def test_folder_skips_what_is_no_log(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "bp2_n4.jsonl", [{"step": 0, "data": {"val-core/m/acc/mean@2": 0.5}}])
    (tmp_path / "notes.txt").write_text("nothing\n")
    (tmp_path / "model.safetensors").write_bytes(b"never opened")
    (tmp_path / ".hidden").mkdir()
    write_jsonl(tmp_path / ".hidden" / "x.jsonl", [{"step": 0, "data": {}}])
    run = only(read_log(tmp_path, settings={
        "pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}))
    assert (run.name, run.problems_per_batch) == ("bp2_n4", 2)


@pytest.mark.parametrize("key", RATE_KEYS)
def test_a_logged_learning_rate_is_that_of_the_run(tmp_path: Path, key: str) -> None:
    for seed, top in enumerate((1e-6, 1e-6, 5e-6)):
        rows = [{"step": step, "val-core/x/reward/mean@4": 0.1 * step + 0.01 * seed,
                 key: top * min(step / 2, 1)} for step in range(1, 9)]  # fmt: skip
        write_jsonl(tmp_path / f"bp2_n4_seed{seed}.jsonl", rows)
    given = {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}_seed{seed}"}
    runs = read_log(tmp_path, settings=given)
    assert [r.provenance.facts["learning_rate"] for r in runs] == ["1e-06", "1e-06", "5e-06"]
    assert to_curves(runs[:2])[0].recorded == {"learning_rate": 1e-6}
    with pytest.raises(InputError, match=r"share their learning rate.* 1e-06 \(2 runs\), 5e-06"):
        require_one_arm(runs)


def test_the_rate_that_a_configuration_says_is_the_nominal_one(tmp_path: Path) -> None:
    rows = [{"config": {"actor_rollout_ref": {"actor": {"optim": {"lr": 3e-6}}}}},
            *({"step": s, "critic/score/mean": 0.1 * s, "actor/lr": 1e-6} for s in range(4))]
    run = only(read_log(write_jsonl(tmp_path / "log.jsonl", rows)))
    assert run.provenance.facts["learning_rate"] == "3e-06"


def late_log(path: Path, first: int, every: int = 10, count: int = 8) -> Path:
    return write_jsonl(path, [
        {"step": first + k * every, "val-core/x/reward/mean@4": 0.3 + 0.005 * k,
         "response_length/mean": 7.0} for k in range(count)
    ])  # fmt: skip


def test_a_log_that_begins_far_beyond_step_0_is_asked_about(tmp_path: Path) -> None:
    path, told = late_log(tmp_path / "log.jsonl", 500), "the log begins at step 500"
    with pytest.raises(InputError, match="begins at step 500; add --set begins=0 if it did those "
                                         "before as well .570 in all., or --set begins=500 if "):
        to_curves(read_log(path, settings=BP_N))
    early = only(read_log(path, settings=BP_N | {"begins": 0}))
    assert any(told in line for line in early.provenance.inferred)
    assert to_curves([early])[0].rollouts_K.tolist()[:2] == [4000, 4080]
    run = only(read_log(path, settings=BP_N | {"begins": 490}))
    assert not any(told in line for line in run.provenance.inferred)
    assert to_curves([run])
    s = series(run, "avg@4")
    assert s.step_K.tolist() == [10, 20, 30, 40, 50, 60, 70, 80]
    assert s.rollouts_K.tolist() == [80, 160, 240, 320, 400, 480, 560, 640]
    assert s.score_K[0] == pytest.approx(0.3)
    later = only(read_log(path, settings=BP_N | {"begins": 520}))  # two scores are another run's
    assert series(later, "avg@4").step_K.tolist() == [0, 10, 20, 30, 40, 50]
    assert series(later, "avg@4").score_K[0] == pytest.approx(0.31)
    with pytest.raises(InputError, match="ends at step 570, before 571; correct --set begins"):
        read_log(path, settings=BP_N | {"begins": 571})
    planned = late_log(tmp_path / "planned.jsonl", 500, every=1, count=101)
    run = only(read_log(planned, settings=BP_N | {"begins": 500, "steps": 600}))
    assert run.steps == 100
    assert series(run, "avg@4").tokens_K.tolist()[1:3] == [56.0, 112.0]


@pytest.mark.parametrize(("first", "every"), [(0, 10), (10, 10), (30, 10)])
def test_a_log_that_begins_where_logs_do_is_not_doubted(
    tmp_path: Path, first: int, every: int
) -> None:
    run = only(read_log(late_log(tmp_path / "log.jsonl", first, every), settings=BP_N))
    assert to_curves([run])


def test_scores_at_growing_distances_may_begin_late(tmp_path: Path) -> None:
    rows = [{"step": round(100 * 1.1**k), "val-core/x/reward/mean@4": 0.3} for k in range(12)]
    run = only(read_log(write_jsonl(tmp_path / "log.jsonl", rows), settings=BP_N))
    assert to_curves([run])
