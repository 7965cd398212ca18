"""One property for every trap of other people's logs: right, or refused with what settles it."""

from __future__ import annotations

import csv
import json
import math
import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute.answers.confounds import confounds
from isocompute.cli import main
from isocompute.errors import InputError
from isocompute.importers import (
    convert_runs,
    load_settings,
    read_log,
    read_logs,
    settings_from,
    to_curves,
)
from isocompute.importers.runs.checks import rollouts_told
from isocompute.importers.values.imported import UnclearError
from isocompute.sources import load_curves
from layouts import mlflow_database, trl_params

GIVEN = {"problems_per_batch": 8, "rollouts_per_problem": 4}
KEY = "val-core/math/acc/mean@4"
several = settings(max_examples=20, deadline=None)
noisy = st.lists(st.floats(0.05, 0.95), min_size=6, max_size=12, unique=True)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, rows: list[dict[str, object]]) -> Path:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, keys)
        writer.writeheader()
        writer.writerows(rows)
    return path


def verl(scores: list[float], every: int = 1) -> list[dict[str, object]]:
    return [{"step": every * i, KEY: score} for i, score in enumerate(scores)]


# units of a step


@pytest.mark.heavy
@several
@given(scores=noisy, every=st.integers(1, 5), calls=st.integers(2, 7))
def test_a_counter_of_calls_is_never_the_step(
    scores: list[float], every: int, calls: int
) -> None:
    rows: list[dict[str, object]] = []
    for i, score in enumerate(scores):
        rows += [{"train/loss": 0.1, "train/global_step": every * i}] * (calls - 1)
        rows.append({"eval/reward": score, "train/global_step": every * i})
    with folder() as home:
        numbered = [{"_step": i, **row} for i, row in enumerate(rows)]
        curve = to_curves(read_log(table(home / "a.csv", numbered), settings=GIVEN))[0]
        assert curve.rollouts_K.tolist() == [32.0 * every * i for i in range(len(scores))]
        assert curve.score_K.tolist() == pytest.approx(scores)
        # without the counter beside it there is nothing to go by
        bare = [{k: v for k, v in row.items() if k != "train/global_step"} for row in numbered]
        path = table(home / "b.csv", bare)
        with pytest.raises(UnclearError, match="counts calls of log.*--set step=_step"):
            read_log(path, settings=GIVEN)
        taken = to_curves(read_log(path, settings={**GIVEN, "step": "_step"}))[0]
        assert taken.rollouts_K[-1] == 32 * (calls * len(scores) - 1)


@pytest.mark.heavy
@several
@given(scores=noisy, factor=st.integers(2, 100).filter(lambda f: f != 32))
def test_two_counters_in_one_row_must_agree(scores: list[float], factor: int) -> None:
    rows = [{"step": factor * i, "training/global_step": i, KEY: s} for i, s in enumerate(scores)]
    with folder() as home:
        path = lines(home / "a.jsonl", rows)
        with pytest.raises(UnclearError, match="step says .* where training/global_step says"):
            read_log(path, settings=GIVEN)
        for word, unit in (("training/global_step", 1), ("step", factor)):
            curve = to_curves(read_log(path, settings={**GIVEN, "step": word}))[0]
            assert curve.rollouts_K[-1] == 32 * unit * (len(scores) - 1)


@pytest.mark.heavy
@several
@given(scores=noisy, factor=st.integers(3, 1000))
def test_steps_beyond_the_plan_are_refused(scores: list[float], factor: int) -> None:
    config = {"config": {
        "data": {"train_batch_size": 8}, "actor_rollout_ref": {"rollout": {"n": 4}},
        "trainer": {"total_training_steps": len(scores)}}}
    with folder() as home:
        path = lines(home / "a.jsonl", [config, *verl(scores, factor)])
        last = factor * (len(scores) - 1)
        with pytest.raises(UnclearError, match=f"counts to {last} and {len(scores)} are planned"):
            read_log(path)
        run = read_log(path, settings={"steps": last})[0]
        assert run.series[0].step_K[-1] == last
        assert read_log(lines(home / "b.jsonl", [config, *verl(scores)]))[0].steps == len(scores)


def test_a_score_without_the_counter_that_others_have_is_asked_for(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for i in range(5):
        rows.append({"_step": 2 * i, "train/reward": 0.1 + i / 50, "train/global_step": i})
        rows.append({"_step": 2 * i + 1, "my/val": 0.2 + i / 50})
    path = table(tmp_path / "a.csv", rows)
    asked = {**GIVEN, "columns": {"my/val": "avg@4"}}
    with pytest.raises(UnclearError, match="5 of my/val have no train/global_step"):
        read_log(path, settings=settings_from(asked))
    run = read_log(path, settings=settings_from({**asked, "step": "train/global_step"}))[0]
    curve = to_curves([run])[0]
    assert curve.steps_K is not None
    assert curve.steps_K.tolist() == [0, 1, 2, 3, 4]
    assert "take the one before them" in run.provenance.inferred[-1]


@pytest.mark.parametrize("first", [0, 1])
def test_verl_s_first_release_counted_its_first_update_as_0(tmp_path: Path, first: int) -> None:
    rows: list[dict[str, object]] = [
        {"step": s, "critic/score/mean": 0.1 + s / 50, "response_length/mean": 9.0,
         KEY: 0.2 + s / 50}
        for s in range(first, 6)
    ]
    run = read_log(lines(tmp_path / "a.jsonl", rows), settings=GIVEN)[0]
    s = next(s for s in run.series if s.split == "validation")
    assert s.step_K.tolist() == list(range(1, 7 - first))
    assert bool(run.provenance.inferred) == (first == 0)


@pytest.mark.parametrize(("logged", "updates"), [
    ([0, 1, 3, 5], [0, 2, 4, 6]),  # before training, then every second update
    ([1, 3, 5], [2, 4, 6]),
    ([0, 1, 2], [1, 2, 3]),  # every update, none before training
    ([0, 0, 1, 2], [0, 1, 2, 3]),
])
def test_slime_s_first_update_is_0_after_it_and_before_it(
    tmp_path: Path, logged: list[int], updates: list[int]
) -> None:
    rows = [{"_step": 9 * i, "eval/aime": 0.2 + i / 50, "eval/step": step}
            for i, step in enumerate(logged)]
    run = read_log(table(tmp_path / "a.csv", rows), settings=GIVEN)[0]
    assert run.series[0].step_K.tolist() == updates
    assert run.series[0].score_K.tolist() == pytest.approx([0.2 + i / 50 for i in range(len(rows))])


def test_a_chart_of_calls_is_refused_where_the_trainer_counts_apart(tmp_path: Path) -> None:
    body = "".join(f'"{3 * i}","0.{i + 2}"\n' for i in range(4))
    path = tmp_path / "chart.csv"
    path.write_text(f'"Step","n4 - eval/reward"\n{body}')
    with pytest.raises(UnclearError, match=r"tracker's own step \(to 9\) counts calls of log"):
        read_log(path, settings=GIVEN)
    path.write_text(f'"train/global_step","n4 - eval/reward"\n{body}')
    assert read_log(path, settings=GIVEN)[0].series[0].step_K[-1] == 9


def test_a_batch_without_n_is_kept_and_n_asked_for(tmp_path: Path) -> None:
    config = {"config": {"data": {"train_batch_size": 8}}}
    path = lines(tmp_path / "a.jsonl", [config, *verl([0.1, 0.2, 0.3])])
    run = read_log(path)[0]
    assert (run.problems_per_batch, run.rollouts_per_problem) == (8, None)
    with pytest.raises(InputError, match="`rollouts_per_problem` must be known"):
        to_curves([run])


# the tokens of a step know B_p * n


@pytest.mark.heavy
@several
@given(wrong=st.sampled_from([2, 8, 64, 256]), scores=noisy)
def test_a_given_batch_is_held_against_the_tokens(wrong: int, scores: list[float]) -> None:
    rows = [
        {**row, "prompt_length/mean": 20.0, "response_length/mean": 80.0,
         "perf/total_num_tokens": 32 * 100.0}
        for row in verl(scores)
    ]
    with folder() as home:
        path = lines(home / "a.jsonl", rows)
        assert read_log(path, settings=GIVEN)[0].rollouts_per_problem == 4
        with pytest.raises(UnclearError, match=f"B_p \\* n is {8 * wrong}, .* says 32 rollouts"):
            read_log(path, settings={**GIVEN, "rollouts_per_problem": wrong})


# double records


@pytest.mark.heavy
@several
@given(scores=noisy, rounding=st.booleans())
def test_a_run_in_two_trackers_is_one_run(scores: list[float], rounding: bool) -> None:
    with folder() as home:
        lines(home / "a.jsonl", verl(scores))
        other = [float(np.float32(s)) if rounding else s for s in scores]
        header = f'"Step","a (wandb) - {KEY}"'
        body = "".join(f'"{i}","{s!r}"\n' for i, s in enumerate(other))
        (home / "chart.csv").write_text(f"{header}\n{body}")
        runs = read_log(home, settings=GIVEN)
        assert len(runs) == 1
        assert "counted once" in runs[0].provenance.inferred[-1]
        said: list[str] = []
        both = load_curves([home / "a.jsonl", home / "chart.csv"], settings=settings_from(GIVEN),
                           say=said.append)
        assert len(both) == 1
        assert "counted once" in said[-1]
        # at other steps, one of the two counts something else
        body = "".join(f'"{7 * i}","{s!r}"\n' for i, s in enumerate(other))
        (home / "chart.csv").write_text(f"{header}\n{body}")
        with pytest.raises(UnclearError, match=r"at the same steps in every log.*--set step=KEY"):
            read_log(home, settings=GIVEN)


@pytest.mark.heavy
@several
@given(scores=noisy, seed=st.integers(0, 3), shift=st.floats(1e-3, 0.04))
def test_runs_of_different_scores_stay_apart(
    scores: list[float], seed: int, shift: float
) -> None:
    with folder() as home:
        lines(home / "seed0.jsonl", verl(scores))
        lines(home / f"seed{seed}b.jsonl", verl([scores[0], *(s + shift for s in scores[1:])]))
        assert len(read_log(home, settings=GIVEN)) == 2


def test_a_copied_file_is_no_second_run_however_short(tmp_path: Path) -> None:
    for name in ("a.jsonl", "backup/a (copy).jsonl"):
        lines(tmp_path / name, verl([0.1, 0.2, 0.3]))
    lines(tmp_path / "b.jsonl", [*verl([0.1, 0.2, 0.3]), {"epoch": 1}])  # two scores tell nothing
    assert len(read_log(tmp_path, settings=GIVEN)) == 2


def test_a_history_that_was_dumped_alone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "n4" / "metrics.json"
    path.parent.mkdir()
    path.write_text(json.dumps(verl([0.1, 0.2, 0.3])))
    assert to_curves(read_log(tmp_path, settings=GIVEN))[0].score_K.tolist() == [0.1, 0.2, 0.3]


def test_two_seeds_with_the_same_scores_are_refused(tmp_path: Path) -> None:
    for seed in (0, 1):
        lines(tmp_path / f"seed{seed}.jsonl", verl([0.1, 0.2, 0.35, 0.4]))
    with pytest.raises(UnclearError, match=r"\(seed 0\) and .* \(seed 1\) have the same 3 scores"):
        read_log(tmp_path, settings={**GIVEN, "pattern": "seed{seed}"})


# estimators


@pytest.mark.heavy
@several
@given(ks=st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=2, max_size=4, unique=True))
def test_means_over_different_samples_are_one_metric(ks: list[int]) -> None:
    with folder() as home:
        for i, k in enumerate(ks):
            rows = [{"step": s, f"val-core/math/acc/mean@{k}": 0.2 + 0.01 * s + 0.001 * i,
                     f"val-core/math/acc/best@{k}/mean": 0.5} for s in range(6)]
            lines(home / f"n{2 ** i}.jsonl", rows)
        asked = settings_from({
            "problems_per_batch": 8, "pattern": "n{rollouts_per_problem}",
            "evaluation_problems": 100})
        said: list[str] = []
        curves = load_curves(home, settings=asked, say=said.append)
        assert [c.metric for c in curves] == ["avg"] * len(ks)
        assert sorted(c.trials or 0 for c in curves) == sorted(100 * k for k in ks)
        assert any("are read as avg" in line for line in said)
        said.clear()
        assert len(load_curves(home, settings=asked, metric="avg", say=said.append)) == len(ks)
        assert not any("are read as avg" in line for line in said)
        with pytest.raises(InputError, match="must be in the log"):
            load_curves(home, settings=asked, metric="avg@3")
        assert len(load_curves(home, settings=asked, metric=f"avg@{ks[0]}")) == 1


def test_a_run_with_two_means_takes_the_one_of_more_samples_where_avg_is_asked(
    tmp_path: Path,
) -> None:
    path = lines(tmp_path / "a.jsonl", [
        {"step": s, "eval/x/avg@4": 0.1 + s / 50, "eval/x/avg@16": 0.3 + s / 50} for s in range(5)])
    runs = read_log(path, settings=GIVEN)
    with pytest.raises(InputError, match="one metric must be chosen"):
        to_curves(runs)
    assert convert_runs(runs, "avg").curves[0].score_K[0] == pytest.approx(0.3)
    plain = settings_from({**GIVEN, "columns": {"acc": "avg", "acc4": "avg@4"}})
    rows = [{"step": s, "acc": 0.1 + s / 50, "acc4": 0.3 + s / 50} for s in range(5)]
    runs = read_log(lines(path, rows), settings=plain)
    assert convert_runs(runs, "avg").curves[0].score_K[0] == pytest.approx(0.1)


def test_a_metric_may_be_named_by_its_key(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [{**row, "val-core/math/acc/best@4/mean": 0.9}
                                 for row in verl([0.1, 0.2, 0.3])])
    asked = settings_from(GIVEN)
    for key, label in ((KEY, "avg@4"), ("val-core/math/acc/best@4/mean", "best@4:bootstrap")):
        assert load_curves(tmp_path, settings=asked, metric=key)[0].metric == label


# scale


@pytest.mark.heavy
@several
@given(
    low=st.floats(-5, -0.1), width=st.floats(1.5, 90), scores=noisy,
    source=st.sampled_from(["logs", "study"]),
)
def test_scores_of_any_scale_are_mapped_by_the_range_that_is_given(
    low: float, width: float, scores: list[float], source: str
) -> None:
    high = low + width
    scores = [0.0, *scores, 1.0]
    raw = [low + width * s for s in scores]
    with folder() as home:
        lines(home / "logs" / "a.jsonl", verl(raw))
        asked: dict[str, Any] = {
            "settings": settings_from({**GIVEN, "evaluation_problems": 100})}
        if source == "study":
            pairs = [word for k, v in GIVEN.items() for word in ("--set", f"{k}={v}")]
            assert main(["import", str(home / "logs"), "-o", str(home / "study"), *pairs,
                         "--range", f"{low!r}", f"{high!r}"]) == 0
            curve = load_curves(home / "study")[0]
        else:
            with pytest.raises(InputError, match=r"scores must lie in 0\.\.1, but avg@4 goes from"):
                load_curves(home / "logs", **asked)
            curve = load_curves(home / "logs", **asked, score_range=(low, high))[0]
        assert curve.score_K.tolist() == pytest.approx(scores, abs=1e-9)
        assert curve.trials is None  # a reward of this scale is no share of successes
        with pytest.raises(InputError, match="goes from .*--range LOW HIGH"):
            load_curves(home / "logs", **asked, score_range=(low + width / 2, high))


@pytest.mark.heavy
@several
@given(scores=noisy)
def test_percent_is_never_guessed_and_never_mixed_with_fractions(scores: list[float]) -> None:
    scores = [*scores, 0.96]
    with folder() as home:
        lines(home / "n4.jsonl", verl([100 * s for s in scores]))
        asked = {"settings": settings_from({"problems_per_batch": 8,
                                            "pattern": "n{rollouts_per_problem}"})}
        with pytest.raises(InputError, match="for percent --range 0 100"):
            load_curves(home, **asked)
        said: list[str] = []
        curve = load_curves(home, **asked, score_range=(0, 100), say=said.append)[0]
        assert curve.score_K.tolist() == pytest.approx(scores)
        assert curve.key == KEY
        assert said[-1].endswith("scores of 0..100 are fitted in 0..1, which JSON holds; all "
                                 "else is as logged")
        lines(home / "n8.jsonl", verl([min(1.0, s + 0.02) for s in scores]))
        with pytest.raises(InputError, match="one range must hold for all runs"):
            load_curves(home, **asked, score_range=(0, 100))
        (home / "n4.jsonl").unlink()
        with pytest.raises(InputError, match="drop --range if they are fractions"):
            load_curves(home, **asked, score_range=(0, 100))


def test_a_range_must_be_one(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", verl([0.1, 0.2, 0.3, 0.4]))
    with pytest.raises(InputError, match=r"`low < high` must hold for the range of scores"):
        read_logs([path], settings=settings_from(GIVEN), score_range=(1.0, 1.0))


@pytest.mark.parametrize("source", ["published:qwen2.5-7b-easy", "grid:ppo"])
def test_success_rates_that_are_shipped_have_no_other_range(source: str) -> None:
    with pytest.raises(InputError, match=r"success rates in 0\.\.1, .* 0 to 100; drop --range"):
        load_curves(source, score_range=(0, 100))


# logged every k steps, gradient accumulation, several updates of one batch


@several
@given(every=st.integers(1, 6), logged=st.integers(1, 6), windows=st.integers(4, 8))
def test_windows_of_logging_count_all_their_tokens(every: int, logged: int, windows: int) -> None:
    last = logged * every * windows
    with folder() as home:
        history: list[dict[str, object]] = []
        for step in range(last + 1):
            if step and step % logged == 0:
                history.append({"step": step, "reward": 0.1 + step / 1e4,
                                "completions/mean_length": 50.0})
            if step % (logged * every) == 0:
                history.append({"step": step, "eval_reward": 0.2 + step / 1e4})
        path = home / "run" / "trainer_state.json"
        path.parent.mkdir()
        path.write_text(json.dumps({
            "logging_steps": logged, "max_steps": last, "log_history": history}))
        curve = to_curves(read_log(path, settings=GIVEN))[0]
        assert curve.tokens_K is not None
        assert curve.tokens_K.tolist() == [32 * 50 * s for s in range(0, last + 1, logged * every)]
        assert curve.rollouts_K.tolist() == [32 * s for s in range(0, last + 1, logged * every)]


def trl_of_tokens(
    path: Path, batch: int, *, grows: float = 4.0, logged: int = 1, cut: float = 0.0
) -> None:
    """A run of TRL with the tokens that it had seen: 120 of a prompt, responses that grow.

    Those that are `cut` off, at 900 tokens, are masked: theirs do not count.
    """
    history: list[dict[str, object]] = [{"step": 0, "eval_reward": 0.2}]
    seen, rng, lengths = 0.0, np.random.default_rng(batch), list[float]()
    for step in range(1, 81):
        lengths.append(200 + grows * step + rng.normal(0, 5))
        seen += batch * (rng.normal(120, 8) + (1 - cut) * lengths[-1])
        if step % logged == 0:
            ended = float(np.mean(lengths[-logged:]))
            history.append({"step": step, "reward": 0.3, "num_tokens": seen,
                            "completions/mean_length": (1 - cut) * ended + cut * 900,
                            "completions/clipped_ratio": cut,
                            "completions/mean_terminated_length": ended})
        if step % 20 == 0:
            history.append({"step": step, "eval_reward": 0.2 + step / 400})
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"logging_steps": logged, "log_history": history}))


@several
@given(b_p=st.sampled_from([4, 8, 64]), n=st.sampled_from([4, 16]), logged=st.sampled_from([1, 5]))
def test_a_batch_is_held_against_the_tokens_that_trl_has_seen(
    b_p: int, n: int, logged: int
) -> None:
    with folder() as home:
        path = home / "run" / "trainer_state.json"
        trl_of_tokens(path, b_p * n, logged=logged)
        told = {"problems_per_batch": b_p, "rollouts_per_problem": n}
        assert to_curves(read_log(path, settings=told))[0].rollouts_K[-1] == b_p * n * 80
        with pytest.raises(UnclearError, match=r"num_tokens .* at most [\d,]+ rollouts per step"):
            read_log(path, settings={**told, "problems_per_batch": b_p * n})  # the whole batch
        [run] = read_log(path)
        hints = [line for line in run.provenance.inferred if line.startswith("B_p * n: about ")]
        [about] = [int(line.split()[4].replace(",", "")) for line in hints]
        assert about == pytest.approx(b_p * n, rel=0.1)
        trl_of_tokens(path, b_p * n, grows=1.0, logged=logged, cut=0.4)
        assert to_curves(read_log(path, settings=told))[0].rollouts_K[-1] == b_p * n * 80
        trl_of_tokens(path, 8 * b_p * n, logged=logged)  # one of eight processes
        [run] = read_log(path, settings=told)
        assert any("rollouts per step; were there more processes?" in note for note in run.notes)


def test_a_batch_that_tokens_refuse_may_serve_several_steps(tmp_path: Path) -> None:
    path = tmp_path / "run" / "trainer_state.json"
    trl_of_tokens(path, 32)
    with pytest.raises(UnclearError, match="or add --set num_iterations=K if one batch serves K"):
        read_log(path, settings={"problems_per_batch": 16, "rollouts_per_problem": 8})


@pytest.mark.parametrize("masked", [True, False])
def test_lengths_that_rise_as_responses_are_cut_off_tell_the_batch_that_there_is(
    tmp_path: Path, masked: bool
) -> None:
    history, seen = list[dict[str, object]](), 0.0
    for step in range(1, 81):
        cut, ended = 0.002 * step, 200 + step + 7.0 * (step % 3)
        seen += 32 * (120 + (1 - cut) * ended + 2000 * cut * (not masked))
        history.append({"step": step, "reward": 0.3, "num_tokens": seen,
                        "completions/mean_length": (1 - cut) * ended + 2000 * cut,
                        "completions/clipped_ratio": cut,
                        "completions/mean_terminated_length": ended})
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"logging_steps": 1, "log_history": history}))
    [run] = read_log(path)
    told = [line for line in run.provenance.inferred if line.startswith("B_p * n: about ")]
    assert [line.split()[4] for line in told] == ["32"]  # whether those cut off count or not
    assert all("times num_iterations" in line for line in told)


def test_processes_are_held_against_the_tokens_that_trl_has_seen(tmp_path: Path) -> None:
    trl_of_tokens(tmp_path / "run" / "trainer_state.json", 32)
    (tmp_path / "run" / "args.json").write_text(json.dumps({
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 8,
        "steps_per_generation": 1, "num_iterations": 1,
    }))  # fmt: skip
    path = tmp_path / "run" / "trainer_state.json"
    assert read_log(path, settings={"processes": 4})[0].problems_per_batch == 4
    with pytest.raises(UnclearError, match="rollouts per step; correct --set processes=16"):
        read_log(path, settings={"processes": 16})


def test_tokens_seen_tell_the_rollouts_of_a_step() -> None:
    steps = range(1, 21)
    length = {s: 100.0 + 3 * s + 10 * (s % 2) for s in steps}
    each = {s: 64 * (50 + length[s]) for s in steps}
    seen = {s: sum(each[i] for i in range(1, s + 1)) for s in steps}
    none = dict.fromkeys(steps, 0.0)
    told = rollouts_told(seen, length, none, length)
    assert told == pytest.approx((64, 64, 64 * (1 + 50 / (133 + 90 / 19))))  # mean of steps 2 to 20
    few = {s: seen[s] for s in (4, 8, 12, 16, 20)}
    assert rollouts_told(few, length, none, length) is None
    assert rollouts_told(each, length, none, length) is None  # tokens of a step
    assert rollouts_told(seen, length, {}, {}) is None  # a count of one's own
    hundred = dict.fromkeys(steps, 100.0)
    flat = rollouts_told({s: 9600.0 * s for s in steps}, hundred, none, hundred)
    assert flat == (0, 0, 96)  # of lengths that stay: no more than that


@several
@given(
    accumulation=st.integers(1, 8), processes=st.integers(1, 4), micro=st.sampled_from([4, 8, 16]),
    iterations=st.integers(1, 4),
)
def test_gradient_accumulation_and_reuse_are_in_the_rollouts(
    accumulation: int, processes: int, micro: int, iterations: int
) -> None:
    batch = micro * processes * accumulation
    params = trl_params(
        4, per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation,
        generation_batch_size=batch, steps_per_generation=accumulation,
        num_iterations=iterations,
    )  # fmt: skip
    with folder() as home:
        rows = [("eval_reward", step, 0.2 + step / 50, step) for step in range(0, 13, 3)]
        rows += [("train/completions/mean_length", step, 50.0, step) for step in range(1, 13)]
        mlflow_database(home / "mlflow.db", {"a": (params, rows)})
        run = read_log(home)[0]
        assert (run.problems_per_batch, run.rollouts_per_problem) == (batch // 4, 4)
        at = {math.ceil(step / iterations): 0.2 + step / 50 for step in range(0, 13, 3)}
        assert run.series[0].step_K.tolist() == [*at]  # the last score of an update
        assert run.series[0].score_K.tolist() == pytest.approx([*at.values()])
        assert run.series[0].rollouts_K.tolist() == [batch * step for step in at]
        assert run.series[0].tokens_K.tolist() == [50 * batch * step for step in at]


# resumed


@pytest.mark.heavy
@several
@given(scores=noisy, data=st.data())
def test_a_run_in_several_files_is_one_run(scores: list[float], data: st.DataObject) -> None:
    rows = verl(scores, every=5)
    cut = data.draw(st.integers(3, len(rows) - 2))
    back = data.draw(st.integers(0, min(1, cut - 3)))
    with folder() as home:
        tail = [{"step": 5 * cut + 5 * i, KEY: 0.99 - i / 1e3} for i in range(back)]
        lines(home / "a.jsonl", [*rows[:cut], *tail])
        lines(home / "a-resumed.jsonl", rows[cut:])
        (run,) = read_log(home, settings=GIVEN)
        assert run.series[0].step_K.tolist() == [5 * i for i in range(len(scores))]
        assert run.series[0].score_K.tolist() == scores
        assert f"goes on from step {5 * cut}" in run.provenance.inferred[0]
        assert len(read_log(home, settings={**GIVEN, "resumed": "apart"})) == 2
        lines(home / "b.jsonl", [{"step": row["step"], KEY: 0.5 + i / 99} for i, row in
                                 enumerate(rows[: cut + 1])])
        with pytest.raises(UnclearError, match="may go on with .* or .*--set resumed=apart"):
            read_log(home, settings=GIVEN)


def test_a_chain_of_files_is_one_run(tmp_path: Path) -> None:
    rows = verl([0.1 + i / 40 for i in range(20)], every=5)
    for i, name in enumerate(("c", "a", "d", "b")):  # not in the order of their names
        lines(tmp_path / f"{name}.jsonl", rows[5 * i : 5 * i + 5])
    lines(tmp_path / "other" / "e.jsonl", verl([0.7 + i / 40 for i in range(6)], every=5))
    long, other = sorted(read_log(tmp_path, settings=GIVEN), key=lambda r: -r.series[0].step_K.size)
    assert long.series[0].score_K.tolist() == [row[KEY] for row in rows]
    assert len(long.provenance.inferred) == 3
    assert other.series[0].step_K.size == 6


def test_a_log_of_another_model_is_no_sequel(tmp_path: Path) -> None:
    rows = verl([0.1 + i / 40 for i in range(8)], every=5)
    for name, model, part in (("a", "Qwen-1.5B", rows[:4]), ("b", "Qwen-7B", rows[4:])):
        config = {"config": {"actor_rollout_ref": {"model": {"path": model}}}}
        lines(tmp_path / f"{name}.jsonl", [config, *part])
    assert len(read_log(tmp_path, settings=GIVEN)) == 2


def test_a_log_that_begins_at_its_first_evaluation_is_asked_about(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", verl([0.1, 0.2, 0.3], every=5))
    lines(tmp_path / "b.jsonl", verl([0.0, 0.25, 0.35, 0.45, 0.5], every=5)[1:])
    with pytest.raises(UnclearError, match="add --set resumed=join, or resumed=apart"):
        read_log(tmp_path, settings=GIVEN)
    (joined,) = read_log(tmp_path, settings={**GIVEN, "resumed": "join"})
    assert joined.series[0].score_K.tolist() == [0.1, 0.25, 0.35, 0.45, 0.5]
    with pytest.raises(InputError, match="`resumed` must be join or apart"):
        settings_from({"resumed": "maybe"})


# clocks


@several
@given(offset=st.integers(-10_000, 10_000), at=st.integers(1, 5), scores=noisy)
def test_a_clock_that_jumps_changes_nothing(offset: int, at: int, scores: list[float]) -> None:
    def rows(jump: int) -> list[tuple[str, int, float, int]]:
        return [("eval_reward", 2 * i, s, 20_000 + 100 * i + (jump if i >= at else 0))
                for i, s in enumerate(scores)]

    twice = ("eval_reward", 2 * at, 0.99, 20_000 + 100 * at + offset)
    params = trl_params(4, max_steps=100)
    with folder() as home:
        mlflow_database(home / "mlflow.db", {
            "a": (params, rows(0)), "b": ({**params, "seed": 4}, [
                (k, s, v / 2, t) for k, s, v, t in [*rows(offset), twice]])})
        a, b = read_log(home)
        assert a.series[0].score_K.tolist() == scores
        assert b.series[0].score_K.tolist() == [s / 2 for s in scores]  # the first one counts
        assert "1 further rows of a step" in " ".join(b.notes)


# repetitions


@pytest.mark.parametrize(("name", "key", "values"), [
    ("model", "model_name_or_path", ("Qwen-1.5B", "Qwen-7B")),
    ("max_response_length", "max_completion_length", (512, 1024)),
    ("learning_rate", "learning_rate", (1e-6, 3e-6)),
    ("temperature", "temperature", (0.6, 1.0)),
])
def test_runs_that_differ_in_more_than_their_seed_are_not_averaged(
    tmp_path: Path, name: str, key: str, values: tuple[object, object]
) -> None:
    mlflow_database(tmp_path / "mlflow.db", {
        f"seed{seed}": (trl_params(4, seed=seed, **{key: values[seed]}), [
            ("eval_reward", step, 0.2 + step / 50 + seed / 100, step) for step in range(12)])
        for seed in (0, 1)
    })
    with pytest.raises(InputError, match=f"must share their .*--where {name}=") as caught:
        load_curves(tmp_path)
    chosen = str(caught.value).split(f"--where {name}=")[1].split(",")[0]
    assert len(load_curves(tmp_path, where=[f"{name}={chosen}"])) == 1
    assert len(load_curves(tmp_path, where=[f"{name}=*"])) == 2
    with pytest.raises(InputError, match="a selection of logs must name one of run, .*model"):
        load_curves(tmp_path, where=["colour=red"])


@pytest.mark.parametrize(("name", "key", "values"), [
    ("model", "model_name_or_path", ("Qwen-1.5B", "Qwen-7B")),
    ("max_response_length", "max_completion_length", (512, 1024)),
])
def test_what_was_kept_together_and_follows_n_is_said(
    tmp_path: Path, name: str, key: str, values: tuple[object, object]
) -> None:
    mlflow_database(tmp_path / "mlflow.db", {
        f"n{n}": (trl_params(n, **{key: values[n == 8]}), [
            ("eval_reward", step, 0.2 + step * n / 500, step) for step in range(12)])
        for n in (4, 8, 16)
    })
    (said,) = confounds(load_curves(tmp_path, where=[f"{name}=*"]))
    assert said.code == "settings_follow_n"
    assert f"{name} was {values[0]} at n = 4, 16 and {values[1]} at n = 8" in said.text
    assert not list(confounds(load_curves(tmp_path, where=[f"{name}={values[0]}"])))


def test_a_score_of_one_s_own_is_named_and_never_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mlflow_database(tmp_path / "mlflow.db", {
        f"n{n}": (trl_params(n), [
            row for step in range(12) for row in (
                ("eval_reward", step, 0.2 + step * n / 500, step),
                ("eval_holdout_acc", step, 0.1 + step * n / 500, step))])
        for n in (4, 8)
    })
    source = str(tmp_path)
    told: list[str] = []
    load_curves(source, say=told.append)
    assert any("not read: eval_holdout_acc" in line for line in told)
    assert main(["import", source, "--preview"]) == 0
    assert "Not read: eval_holdout_acc, which may be the score" in capsys.readouterr().out
    own = load_settings([], ["eval_holdout_acc=own"])
    with pytest.raises(InputError, match="one metric must be chosen.*own; add --metric own"):
        load_curves(source, settings=own)
    assert {c.score_K[0] for c in load_curves(source, settings=own, metric="own")} == {0.1}
    assert {c.score_K[0] for c in load_curves(source, settings=own, metric="avg")} == {0.2}
    assert main(["import", source, "-o", str(tmp_path / "kept"), "--map",
                 "eval_holdout_acc=own"]) == 0
    with pytest.raises(InputError, match="one metric must be chosen.*own; add --metric own"):
        load_curves(str(tmp_path / "kept"))
    tidy = table(tmp_path / "t.csv", [
        {"problems_per_batch": 8, "rollouts_per_problem": 4, "rollouts": 32 * k, "score": k / 99,
         "metric": metric} for k in range(1, 9) for metric in ("avg@4", "mine", "best@4")])
    with pytest.raises(InputError, match="must hold one metric, but hold"):
        load_curves(tidy)
    assert len(load_curves(tidy, metric="mine")) == 1


def test_a_learning_rate_may_follow_the_batch(tmp_path: Path) -> None:
    mlflow_database(tmp_path / "mlflow.db", {
        f"n{n}": (trl_params(n, learning_rate=1e-6 * n ** 0.5), [
            ("eval_reward", step, 0.2 + step * n / 500, step) for step in range(12)])
        for n in (4, 8)
    })
    assert len(load_curves(tmp_path)) == 2


# what is there is said


def test_errors_name_the_keys_and_a_slip_in_the_map(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [
        {"step": s, "my/accuracy": s / 9, "loss": 0.1} for s in range(5)])
    with pytest.raises(InputError, match=r"keys that were not read: my/accuracy, loss"):
        to_curves(read_log(path, settings=GIVEN))
    slip = settings_from({**GIVEN, "columns": {"my/acuracy": "avg@4"}})
    with pytest.raises(InputError, match="did you mean my/accuracy"):
        read_log(path, settings=slip)
    lines(path, [{"epoch": 1, "my/accuracy": 0.1}])
    with pytest.raises(InputError, match=r"its rows have epoch, my/accuracy.*--set step=KEY"):
        read_log(path, settings=GIVEN)
    tidy = table(tmp_path / "t.csv", [
        {"problems_per_batch": 8, "rollouts_per_problem": 4, "rollouts": 32, "acc": 0.5}])
    with pytest.raises(InputError, match="names 'ac', did you mean 'acc'"):
        load_curves(tidy, settings=settings_from({"columns": {"ac": "avg@4"}}))


def test_a_preview_writes_nothing_and_tells_what_an_import_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines(tmp_path / "logs" / "bp8_n4.jsonl", verl([20.0, 31.0, 42.0, 50.0]))
    source = str(tmp_path / "logs")
    before = sorted(tmp_path.rglob("*"))
    assert main(["import", source, "--preview"]) == 0
    out = capsys.readouterr().out
    assert "nothing was written" in out
    assert "`problems_per_batch` and `rollouts_per_problem` must be known" in out
    pattern = "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"
    assert main(["import", source, "--preview", "--set", pattern]) == 0
    out = capsys.readouterr().out
    assert "avg@4 (validation, math): 20 to 50 in 1 run" in out
    assert "of 1 run lie outside 0..1: add --range LOW HIGH" in out
    assert "rollouts_per_problem=4: from the name 'bp8_n4'" in out
    assert sorted(tmp_path.rglob("*")) == before
    study = str(tmp_path / "study")
    assert main(["import", source]) == 2
    assert "must have a study folder" in capsys.readouterr().err
    said = ["import", source, "-o", study, "--set", pattern, "--range", "0", "100"]
    assert main([*said, "--json", "-"]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert run["score_range"] == [0, 100]
    assert run["ranges"] == {"avg@4 validation": [20, 50]}
    assert "from the name" in run["inferred"][0]
    assert load_curves(study)[0].score_K.tolist() == [0.2, 0.31, 0.42, 0.5]


def test_the_line_of_a_preview_has_a_place_for_all_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (4, 8):
        lines(tmp_path / "named" / f"g{n}-s0.jsonl", verl([0.1, 0.2, 0.3, 0.4 + n / 100]))
    lines(tmp_path / "nameless" / "log.jsonl", verl([0.1, 0.2, 0.3, 0.4]))

    def line(source: str, *more: str) -> str:
        assert main(["import", str(tmp_path / source), "--preview", *more]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    named = line("named")
    said = "only if 'g4-s0' had 4 rollouts per problem and seed 0, with your own B_P"
    assert named.startswith(f"To import, {said}: isocompute import ")
    pattern = "pattern=g{rollouts_per_problem}-s{seed}"
    assert named.endswith(f" --set '{pattern}' --set problems_per_batch=B_P")
    argv = shlex.split(named.partition(": isocompute ")[2])
    argv[argv.index("study")] = str(tmp_path / "study")
    assert main(argv) == 2  # no number of ours is imported by accident
    assert "`problems_per_batch` must be an integer >= 1, but got 'B_P'" in capsys.readouterr().err
    assert main([word.replace("B_P", "16") for word in argv]) == 0
    capsys.readouterr()
    assert line("nameless").endswith(
        " --set problems_per_batch=B_P --set rollouts_per_problem=N"
    )
    told = line("named", "--set", pattern, "--set", "problems_per_batch=16")
    assert told.startswith("To import: ")
    assert told.endswith(f" --set '{pattern}' --set problems_per_batch=16")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", verl([0.1, 0.2, 0.3, 0.4]))
    os.mkfifo(tmp_path / "b.jsonl")
    os.mkfifo(tmp_path / "c.csv")
    (run,) = read_log(tmp_path, settings=GIVEN)
    assert "2 pipes, devices or broken links" in run.notes[-1]
    with pytest.raises(InputError, match="is neither"):
        read_log(tmp_path / "b.jsonl")


def test_copies_and_conflicts_in_a_table_are_said(tmp_path: Path) -> None:
    row = {"problems_per_batch": 8, "rollouts_per_problem": 4, "rollouts": 32, "score": 0.5}
    rows = [row, row, {**row, "score": 0.6}, {**row, "rollouts": 64}]
    said: list[str] = []
    curve = load_curves(table(tmp_path / "a.csv", rows), say=said.append)[0]
    assert curve.score_K.size == 3
    assert "1 rows are copies of another row of their run and count once" in said[0]
    assert "1 rows stand at rollouts for which their run has another score" in said[1]
    huge = table(tmp_path / "b.csv", [row, {**row, "rollouts": 1e308}])
    with pytest.raises(InputError, match=r"at most 1e\+15, but row 2 has 1e\+308"):
        load_curves(huge)
    steps = lines(tmp_path / "c.jsonl", [{"step": 2 ** 52, KEY: 0.5}])
    with pytest.raises(InputError, match=r"rollouts must be at most 1e\+15"):
        to_curves(read_log(steps, settings=GIVEN))


# layouts of tables


def test_a_long_table_is_read_with_what_its_columns_say(tmp_path: Path) -> None:
    rows = [
        {"run": f"{model}-{seed}", "seed": seed, "model": model, "metric": metric, "step": step,
         "split": split, "value": 0.2 + 0.01 * step + 0.001 * seed + (0.1 if model == "b" else 0)}
        for model in "ab" for seed in (0, 1) for step in range(6)
        for metric, split in (("avg@4", "validation"), ("avg@4", "train"), ("loss", "train"))
    ]
    path = table(tmp_path / "t.csv", rows)
    asked = settings_from(GIVEN)
    with pytest.raises(InputError, match="must share their model.*--where model=a"):
        load_curves(path, settings=asked)
    curves = load_curves(path, settings=asked, where=["model=b"])
    assert [(c.run, c.seed, c.metric) for c in curves] == [
        ("b-0", 0, "avg@4"), ("b-1", 1, "avg@4")]
    assert curves[1].score_K.tolist() == pytest.approx([0.301 + 0.01 * s for s in range(6)])
    one = load_curves(path, settings=asked, where=["model=a", "split=train", "seed=1"])
    assert [(c.split, c.run) for c in one] == [("train", "a-1")]
    bare = table(tmp_path / "u.csv", [{"metric": "avg@4", "value": 0.5}])
    with pytest.raises(InputError, match="must have a column of steps.*--set step=COLUMN"):
        read_log(bare, settings=GIVEN)


def test_tensorboard_s_download_has_run_and_tag_in_its_name(tmp_path: Path) -> None:
    body = "Wall time,Step,Value\n" + "".join(f"17{i}.5,{i},{0.2 + i / 50}\n" for i in range(4))
    (tmp_path / "run-bp8_n4-tag-val-core_math_acc_mean_4.csv").write_text(body)
    pattern = {"pattern": "bp{problems_per_batch}_n{rollouts_per_problem}"}
    (run,) = read_log(tmp_path, settings=pattern)
    assert (run.name, run.rollouts_per_problem) == ("bp8_n4", 4)
    assert to_curves([run])[0].metric == "avg@4"
    own = tmp_path / "run-bp8_n8-tag-eval_my_key.csv"  # the download writes / as _
    own.write_text(body)
    mapped = settings_from({**pattern, "columns": {"eval/my_key": "avg@4"}})
    assert to_curves(read_log(own, settings=mapped))[0].rollouts_per_problem == 8


def test_charts_of_wandb_with_means_of_several_say_so(tmp_path: Path) -> None:
    name = f"a - {KEY}"
    (tmp_path / "chart.csv").write_text(
        f'"Step","{name}","{name}__MIN","{name}__MAX"\n'
        + "".join(f'"{i}","0.{i + 2}","0.{i + 1}","0.{i + 3}"\n' for i in range(4)))
    (run,) = read_log(tmp_path / "chart.csv", settings=GIVEN)
    assert "4 points of the chart are means of several" in run.provenance.inferred[0]
    sampled = [{"_step": i, KEY: 0.1 + i / 1e3} for i in range(500)]
    (run,) = read_log(table(tmp_path / "h.csv", sampled), settings=GIVEN)
    assert "run.history() samples" in run.provenance.inferred[0]


def test_a_long_table_may_name_b_p_and_n_in_columns_of_ours(tmp_path: Path) -> None:
    """It has no column `score`, so it is no table of tidy curves."""
    rows = [
        f"r{n},32,{n},{step},{key},{0.2 + 0.001 * step}"
        for n in (8, 16) for step in range(1, 41)
        for key in ("critic/score/mean", "val-core/math/acc/mean@4")
    ]  # fmt: skip
    header = "run,problems_per_batch,rollouts_per_problem,step,metric,value"
    path = tmp_path / "long.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    runs = read_log(path)
    assert [(r.problems_per_batch, r.rollouts_per_problem) for r in runs] == [(32, 8), (32, 16)]
