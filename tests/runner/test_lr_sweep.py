"""The learning-rate sweep on planted runs: scores, noise and failures that are known by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from isocompute.allocation import Allocation
from isocompute.cli import main
from isocompute.engines import problem_generators, register_engine
from isocompute.engines.base import EvaluationRecord, StepRecord
from isocompute.engines.simulator import SimulatorEngine
from isocompute.errors import InputError
from isocompute.lr_scores import fell
from isocompute.lr_sweep import check_scores, find_anchor, lr_study, steps_meant
from isocompute.runner import run_study
from isocompute.study import load_study
from isocompute.study.adaptive import Bounds
from study_helpers import FAST, small_study

# By rate: successes (of 4) on each of 8 problems at the end, for seeds 0 and 1.
SCORES = {
    1e-3: ([1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]),
    2e-3: ([3, 3, 3, 3, 3, 3, 3, 3], [2, 2, 3, 3, 3, 3, 3, 3]),
    4e-3: ([3, 3, 3, 3, 3, 3, 3, 2], [3, 3, 3, 3, 3, 3, 2, 2]),
    8e-3: ([3, 3, 3, 3, 3, 3, 3, 3], [3, 3, 3, 3, 3, 3, 3, 3]),
    16e-3: ([0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0]),
}


class RatedEngine(SimulatorEngine):
    """Ends with the scores of its rate; `spiky`, `broken` and `raising` rates misbehave."""

    name = "rated"

    def check(self, spec):
        """Accept its own options."""

    def run(self, spec, resume, sink):
        """Synthetic steps, the planted score at the end."""
        options, rate = spec.engine_options, spec.recipe.learning_rate
        if rate >= options.get("raising", math.inf):
            raise InputError("the policy must stay finite, but it does not")
        for step in range(spec.allocation.steps + 1):
            rollouts = step * spec.allocation.batch_size
            if step:
                spiky = rate >= options.get("spiky", math.inf) and step in (12, 14, 16)
                norm = 100.0 if spiky else 1.0
                broken = rate >= options.get("broken", math.inf) and step > 5
                sink.step(StepRecord(
                    step=step, rollouts=rollouts, tokens=rollouts, problem_Q=np.arange(4),
                    successes_Q=np.array([0, 1, 1, 2]), samples=2,
                    health={"grad_norm": norm, "entropy": math.nan if broken else 1.0},
                ))  # fmt: skip
            last = step == spec.allocation.steps
            if step % 4 == 0 or last:
                start = [options.get("from", 0)] * 8
                successes = SCORES[rate][spec.seed] if last else start
                sink.evaluation(EvaluationRecord(
                    step=step, rollouts=rollouts, tokens=rollouts, problem_set="val", samples=4,
                    successes_P=np.array(successes),
                ))  # fmt: skip
            if 0 < step < spec.allocation.steps:
                continue
            with sink.checkpoint(step) as folder:
                (folder / "model.safetensors").write_bytes(str(step).encode())


register_engine("rated", "test_lr_sweep:RatedEngine")


def sweep(folder, rates=tuple(SCORES), seeds=(0, 1), **options):
    base = small_study(ns=(2,), seeds=seeds, rollouts=160, engine="rated",
                       options=options, slices=(1.0,))  # fmt: skip
    study = lr_study(base, rates, folder)
    run_study(study, folder, workers=0, settings=FAST)
    return find_anchor(folder, study, command="isocompute lr-sweep s.yaml")


def by_rate(document):
    return {row["learning_rate"]: row for row in document["rates"]}


@pytest.mark.heavy
def test_the_best_stable_rate_is_the_anchor(tmp_path):
    document = sweep(tmp_path / "s", broken=16e-3)
    rows = by_rate(document)
    assert document["anchor"] == {
        "learning_rate": 8e-3, "base_batch_size": 8, "learning_rate_scaling": "sqrt",
        "tried_rate": 8e-3, "run_steps": 20,
    }  # fmt: skip
    assert (document["edge"], document["run_next"]) == (None, [])
    # 8e-3: 0.75 twice; 2e-3: 24/32 and 22/32.
    assert rows[8e-3]["score"] == 0.75
    assert rows[2e-3]["score"] == pytest.approx((24 + 22) / 64)
    assert rows[2e-3]["behind_best"] == pytest.approx(1 / 32)
    # Pooled over the four healthy rates: 0, 2 * (1/32)^2, 2 * (1/64)^2, 0; one degree each.
    pooled = (2 * (1 / 32) ** 2 + 2 * (1 / 64) ** 2) / 4
    half = stats.t.ppf(0.975, 4) * math.sqrt(pooled / 2)
    assert rows[2e-3]["interval"] == pytest.approx([23 / 32 - half, 23 / 32 + half])
    # A rate that broke has its own seeds only, 1/32 and 0.
    own = stats.t.ppf(0.975, 1) * (1 / 32) / math.sqrt(2) / math.sqrt(2)
    assert rows[16e-3]["interval"] == pytest.approx([0.0, 1 / 64 + own])
    assert not rows[16e-3]["healthy"]
    assert rows[16e-3]["within_noise"] is None
    assert rows[16e-3]["findings"] == [
        {"severity": "failure", "code": "divergence", "n_runs": 2, "first_step": 6}
    ]
    assert rows[1e-3]["within_noise"] is False
    assert [rows[r]["within_noise"] for r in (2e-3, 4e-3, 8e-3)] == [True, True, True]
    assert "the first that is not healthy: 0.016" in document["reason"]
    assert rows[8e-3]["smoothness"] == 1.0


@pytest.mark.heavy
def test_a_longer_run_wants_a_lower_rate(tmp_path):
    folder = tmp_path / "s"
    sweep(folder, broken=16e-3)
    base = small_study(ns=(2,), seeds=(0, 1), rollouts=160, engine="rated",
                       options={"broken": 16e-3}, slices=(1.0,))  # fmt: skip
    study = lr_study(base, None, folder)
    long = find_anchor(folder, study, run_steps=20 * 16)["anchor"]
    assert (long["learning_rate"], long["tried_rate"], long["run_steps"]) == (2e-3, 8e-3, 320)
    said = find_anchor(folder, study, run_steps=320)["reason"]
    assert "0.008 did best in 20 steps, 320 steps need a lower" in said
    near = find_anchor(folder, study, run_steps=22)["anchor"]
    assert near["learning_rate"] == find_anchor(folder, study, run_steps=5)["anchor"][
        "learning_rate"] == 8e-3  # fmt: skip
    assert steps_meant(base) == 20


def test_a_rate_with_signs_of_instability_yields_to_a_calm_one(tmp_path):
    document = sweep(tmp_path / "s", spiky=8e-3, broken=16e-3)
    assert document["anchor"]["learning_rate"] == 2e-3
    assert "warnings of instability: 0.008" in document["reason"]


def test_the_anchor_keeps_a_factor_of_two_from_the_first_rate_that_breaks(tmp_path):
    SCORES[3e-3] = SCORES[1e-3]
    document = sweep(tmp_path / "s", rates=(1e-3, 2e-3, 3e-3), broken=3e-3)
    assert document["anchor"]["learning_rate"] == 1e-3
    SCORES.pop(3e-3)


def test_a_rate_above_one_that_broke_is_never_taken(tmp_path):
    document = sweep(tmp_path / "s", broken=8e-3)  # whose score is the best
    assert document["anchor"]["learning_rate"] == 2e-3
    rows = by_rate(document)
    # Seed 0 of 4e-3 ends at 23/32 and seed 1 at 22/32; 2e-3 at 24/32 and 22/32.
    assert rows[4e-3]["behind_best"] == pytest.approx(1 / 64)


@pytest.mark.heavy
def test_at_an_edge_it_says_how_to_go_on_and_old_rates_stay_in(tmp_path):
    folder = tmp_path / "s"
    high = sweep(folder, rates=(1e-3, 2e-3))  # 2e-3 is surely better, so more may be, too
    assert (high["anchor"], high["edge"]) == (None, "high")
    assert "of 2 the largest, 0.002, scores best, surely above 0.001; try higher" in high["reason"]
    assert high["run_next"] == ["isocompute lr-sweep s.yaml --rates 0.004,0.008,0.016"]
    level = sweep(tmp_path / "level", rates=(2e-3, 8e-3))
    assert (level["anchor"]["learning_rate"], level["edge"]) == (8e-3, "high")
    assert [w["code"] for w in level["warnings"]] == ["anchor_at_edge"]
    more = sweep(folder, rates=(8e-3, 16e-3))
    assert list(by_rate(more)) == [1e-3, 2e-3, 8e-3, 16e-3]
    assert "of 4 rates" in more["reason"]
    assert (more["anchor"]["learning_rate"], more["edge"]) == (8e-3, None)
    assert more["accounting"]["rollouts"] == 2 * high["accounting"]["rollouts"]
    assert more["run_next"] == []
    low = sweep(tmp_path / "low", rates=(8e-3, 16e-3))
    assert (low["anchor"], low["edge"], low["run_next"]) == (
        None, "low", ["isocompute lr-sweep s.yaml --rates 0.001,0.002,0.004"]
    )  # fmt: skip


def test_where_every_rate_breaks_there_is_no_anchor(tmp_path):
    document = sweep(tmp_path / "s", rates=(8e-3, 16e-3), raising=1e-3)
    assert document["anchor"] is None
    assert document["rates"][0]["score"] is None
    assert document["rates"][0]["failed"][0]["state"] == "failed"
    assert "none of 2 from 0.008 to 0.016 is" in document["reason"]
    assert document["run_next"] == ["isocompute lr-sweep s.yaml --rates 0.001,0.002,0.004"]


@pytest.mark.heavy
def test_no_anchor_is_named_from_noise(tmp_path, monkeypatch):
    """By hand: one problem of 8 gains 1 of 4: a change of 1/32, standard error 1/32."""
    start = [2] * 8
    for rate, end in ((1e-4, start), (2e-4, [3, *start[1:]]), (4e-4, [2] * 7 + [3])):
        monkeypatch.setitem(SCORES, rate, (end, end))
    still = sweep(tmp_path / "s", rates=(1e-4, 2e-4, 4e-4), **{"from": 2})
    assert (still["anchor"], still["edge"]) == (None, "high")
    assert {row["score_start"] for row in still["rates"]} == {0.5}
    assert still["reason"] == (
        "a rate must surely score above the start (0.500), but none of 3 from 0.0001 to 0.0004 "
        "does; try larger ones, then more updates, or easier problems."
    )
    assert still["run_next"] == ["isocompute lr-sweep s.yaml --rates 0.0016,0.0064,0.0256"]
    # The rate above breaks: larger ones cannot help. Runs of another length have another folder.
    stuck = sweep(tmp_path / "b", rates=(1e-4, 2e-4, 16e-3), broken=16e-3, **{"from": 2})
    assert (stuck["anchor"], stuck["edge"]) == (None, None)
    assert stuck["reason"].endswith("train for more than 20 updates, or on easier problems.")
    assert stuck["run_next"] == [
        f"isocompute lr-sweep s.yaml budget=640 -o {tmp_path / 'b'}-longer --rates 0.0001,0.0002"]
    taught = sweep(tmp_path / "t", rates=(2e-4, 2e-3, 8e-3), **{"from": 2})
    assert taught["anchor"]["learning_rate"] == 8e-3


def test_with_one_seed_noise_is_that_of_the_problems(tmp_path):
    document = sweep(tmp_path / "s", rates=(4e-3, 8e-3, 16e-3), seeds=(0,))
    assert [w["code"] for w in document["warnings"]] == ["seeds_missing"]
    row = by_rate(document)[4e-3]
    # 7 problems at 3/4 and one at 2/4, against 8 at 3/4: a difference of 1/4 on one of 8.
    assert row["behind_best"] == pytest.approx(1 / 32)
    half = stats.t.ppf(0.975, 7) * math.sqrt(np.var([0] * 7 + [0.25], ddof=1) / 8)
    assert row["behind_best_interval"] == pytest.approx([1 / 32 - half, 1 / 32 + half])
    # The score itself: same spread over problems.
    assert row["interval"] == pytest.approx([23 / 32 - half, 23 / 32 + half])


def test_the_batch_nearest_to_the_recipes_and_the_default_rates():
    base = small_study(ns=(2, 4, 16), seeds=(0, 1))  # batches of 8, 16, 64
    runs = [
        replace(s, recipe=s.recipe.replace(base_batch_size=32, learning_rate=1e-3))
        for s in base.runs
    ]
    study = lr_study(replace(base, runs=runs))
    assert {s.allocation.batch_size for s in study.runs} == {16}  # the smaller one of two
    own = 1e-3 / math.sqrt(2)
    rates = sorted({s.recipe.learning_rate for s in study.runs})
    assert rates == pytest.approx([own * f for f in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)], rel=5e-3)
    assert {s.recipe.base_batch_size for s in study.runs} == {16}
    assert all(s.learning_rate == s.recipe.learning_rate for s in study.runs)
    assert len(study.runs) == 7 * 2


def test_rates_of_an_adaptive_study_train_without_a_pause():
    base = small_study(ns=(2, 4), seeds=(0,), rollouts=160, engine="rated", slices=(0.5, 1.0))
    looked_at = replace(base, adaptive=Bounds(target=8000), source={})
    assert lr_study(looked_at, (1e-3,)).slices == (1.0,)
    asked = replace(looked_at, source={"slices": [0.5, 1]})
    assert lr_study(asked, (1e-3,)).slices == lr_study(base, (1e-3,)).slices == (0.5, 1.0)


def test_rates_spend_half_of_what_an_adaptive_sweep_may_and_are_evaluated_once_an_octave():
    base = small_study(ns=(2, 4), seeds=(0, 1), rollouts=8000)  # the batch of 16: 500 steps
    runs = [replace(s, recipe=s.recipe.replace(base_batch_size=32)) for s in base.runs]

    def steps(spend, **more):
        study = replace(base, runs=runs, adaptive=spend and Bounds(target=8000, spend=spend))
        found = lr_study(study, **more)
        assert {s.evaluations_per_octave for s in found.runs} == {1}
        (only,) = {s.allocation.steps for s in found.runs}
        return only

    assert steps(None) == 500
    # Half of 28,000 over seven rates and two seeds is 1,000 rollouts each: 62 batches of 16.
    assert steps(28000) == 62
    assert steps(28000, rates=[1e-3, 2e-3]) == 62  # a grid that is extended keeps its budget
    assert steps(28000, whole=True) == 500
    assert steps(8000) == 20  # twice the warm-up
    assert steps(1e9) == 500


def test_a_study_of_one_run_says_where_its_rates_are_tried(tmp_path):
    base = small_study(ns=(16,), seeds=(0, 1), rollouts=8000)  # a batch of 64, B_p = 4
    at = Allocation(problems_per_batch=4, rollouts_per_problem=2, steps=30)
    study = lr_study(replace(base, rates_at=at))
    assert {s.allocation for s in study.runs} == {at}
    assert {s.recipe.base_batch_size for s in study.runs} == {8}
    assert {(s.evaluations, s.first_evaluation) for s in study.runs} == {(2, 30 * 8)}  # both ends
    assert (len(study.runs), study.rates_at) == (7 * 2, None)
    (whole,) = {s.allocation.steps for s in lr_study(replace(base, rates_at=at), whole=True).runs}
    assert whole == base.runs[0].allocation.rollouts // 8
    file = tmp_path / "s.yaml"
    file.write_text(
        "engine: local\nengine_options: {model: bits-mlp}\n"
        "problems:\n  train: {generated: world, options: {world: bits, size: 64, part: train}}\n"
        "  validation:\n"
        "    all: {generated: world, options: {world: bits, size: 8, part: validation}}\n"
        "grid: {problems_per_batch: 8, rollouts_per_problem: 64}\nbudget: 2e4\n"
        "lr_sweep: {rollouts_per_problem: 16, steps: 25}\n"
    )
    found = load_study(file, generators=problem_generators())
    assert found.rates_at == Allocation(problems_per_batch=8, rollouts_per_problem=16, steps=25)
    assert {s.allocation.rollouts_per_problem for s in found.runs} == {64}
    with pytest.raises(InputError, match=r"must use known words only, but got 'lr_sweep.step'"):
        load_study(file, generators=problem_generators(), overrides=["lr_sweep.step=3"])


def test_a_folder_whose_first_start_was_cut_short_holds_no_rates(tmp_path):
    (tmp_path / "study.db").touch()
    study = small_study(ns=(2,), rollouts=160)
    rates = {spec.recipe.learning_rate for spec in lr_study(study, [1e-3], tmp_path).runs}
    assert rates == {1e-3}


def test_a_rate_that_ruins_the_scores_is_not_healthy(tmp_path):
    """By hand: 8 problems fall from 3 of 4 to 1 of 4, all alike; or by one of them alone."""
    start_P, low_P = np.full(8, 0.75), np.full(8, 0.25)
    assert fell(start_P, low_P)
    assert not fell(low_P, start_P)
    assert not fell(start_P, start_P - 0.005)  # less than 0.01 of score
    one_P = start_P.copy()
    one_P[0] = 0.0  # -0.094 on average, standard error 0.094
    assert not fell(start_P, one_P)
    base = small_study(ns=(4,), seeds=(0, 1), rollouts=160, engine="rated", slices=(1.0,))
    study = lr_study(base, [1e-3, 8e-3, 16e-3])
    runs = [replace(s, engine_options={"from": 2}) for s in study.runs]
    study = replace(study, runs=runs)
    run_study(study, tmp_path, workers=0, settings=FAST)
    document = find_anchor(tmp_path, study)
    rows = {row["learning_rate"]: row for row in document["rates"]}
    assert [rows[rate]["healthy"] for rate in (1e-3, 8e-3, 16e-3)] == [False, True, False]
    assert {"severity": "failure", "code": "score_fell", "n_runs": 2, "first_step": 10} in (
        rows[16e-3]["findings"]
    )
    (short,) = [w for w in document["notices"] if w["code"] == "probe_in_warm_up"]
    assert short["text"].startswith("Runs of 10 updates, 10 of them warm-up")
    assert "Try 20 updates or more: `budget=320`" in short["remedy"]


def test_a_shorter_budget_is_a_probe_of_the_files_own_runs(tmp_path, capsys):
    """By hand: 40 steps of the file at its batch of 16, probed for 20: the rate falls by 2**0.5."""
    file = tmp_path / "s.yaml"
    text = STUDY.replace("engine: simulator", "engine: rated").replace("size: 6", "size: 8")
    file.write_text(text.replace("main:", "val:"))
    argv = ["lr-sweep", str(file), "budget=320", "--workers", "0", "--rates", "1e-3,2e-3,8e-3",
            "--json", "-"]  # fmt: skip
    assert main(argv) == 0
    anchor = json.loads(capsys.readouterr().out)["anchor"]
    assert (anchor["tried_rate"], anchor["run_steps"]) == (8e-3, 40)
    assert anchor["learning_rate"] == pytest.approx(8e-3 / 2**0.5, rel=1e-3)
    file.write_text(file.read_text().replace("budget: 640\n", "budget: 640tok\n"))
    again = [*argv, "-o", str(tmp_path / "alone")]  # the file's own budget cannot be counted
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["anchor"]["run_steps"] == 20


def test_a_dry_run_needs_no_word_on_which_set_decides(tmp_path, capsys):
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.replace("size: 6}}}", "size: 6}}, b: {generated: simulated, options: "
                                                "{size: 6}}}"))  # fmt: skip
    assert main(["lr-sweep", str(file), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "To train it, say which validation set decides: --problem-set b|main" in said
    assert main(["lr-sweep", str(file)]) == 2
    assert "choose one with --problem-set" in capsys.readouterr().err


def test_bad_input_is_refused(tmp_path):
    base = small_study()
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="must be finite and > 0, but got"):
            lr_study(base, [bad])
    two = [replace(s, recipe=s.recipe.replace(kl_coef=0.1)) for s in base.runs]
    with pytest.raises(InputError, match="must have one recipe, but the study has several"):
        lr_study(replace(base, runs=[*base.runs, *two]))
    other = [replace(s, train=s.validation["val"]) for s in base.runs]
    with pytest.raises(InputError, match="must have one training set"):
        lr_study(replace(base, runs=[*base.runs, *other]))
    with pytest.raises(InputError, match="at most the 4 samples of an evaluation, but got best@8"):
        check_scores(base, metric="best@8")
    with pytest.raises(InputError, match="set of 'val' must decide, but got 'other'; choose one"):
        check_scores(base, problem_set="other")
    (spec,) = {s.seed: s for s in base.runs[:1]}.values()
    two_sets = replace(spec, validation={**spec.validation, "more": spec.validation["val"]})
    with pytest.raises(InputError, match="of 'more', 'val' must decide, but none was named;"):
        check_scores(replace(base, runs=[two_sets]))


STUDY = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 8}}
  validation: {main: {generated: simulated, options: {size: 6}}}
recipe: {learning_rate: 0.5, base_batch_size: 16}
grid: {problems_per_batch: 4, rollouts_per_problem: 4, seeds: 2}
budget: 640
slices: [1]
evaluation: {samples: 4, per_octave: 2, first: 32}
"""


RATED = "engine: rated\nengine_options: {raising: 0.001}"


@pytest.mark.heavy
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "s.yaml"
    text = STUDY.replace("engine: simulator", "engine: rated").replace("size: 6", "size: 8")
    text = text.replace("main:", "val:")
    file.write_text(text)
    argv = ["lr-sweep", str(file), "--workers", "0", "--rates", "2e-3,8e-3"]
    assert main([*argv, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["folder"] == str(tmp_path / "s-lr")
    assert [row["learning_rate"] for row in document["rates"]] == [2e-3, 8e-3]
    assert document["run_next"][0].startswith(f"isocompute lr-sweep {file} --rates ")
    assert main(["lr-sweep", str(file), "--workers", "0", "--rates", "4e-3"]) == 0
    out = capsys.readouterr().out
    assert "3 rates at B_p=4, n=4, 40 steps, 2 seeds" in out
    assert "in the study file: recipe: {learning_rate: " in out
    file.write_text(STUDY.replace("engine: simulator", RATED).replace("size: 6", "size: 8"))
    none = [*argv[:4], "-o", str(tmp_path / "none"), "--rates", "0.008,0.016"]
    assert main([*none, "--json", "-"]) == 3
    assert json.loads(capsys.readouterr().out)["anchor"] is None
    assert main(none) == 3
    assert f"Run next: isocompute lr-sweep {file} -o {tmp_path / 'none'} --rates 0.001," in (
        capsys.readouterr().err
    )
    file.write_text(text)
    assert main([*argv, "recipe.warmup_steps=3"]) == 2
    assert "seed=0 it changes recipe.warmup_steps: 10 -> 3; undo it" in capsys.readouterr().err
    assert main(["lr-sweep", str(file), "--rates", "1,x"]) == 2
    assert "must be a finite number, but got 'x'" in capsys.readouterr().err
    assert main(["lr-sweep", str(file), "--metric", "avg@9"]) == 2
