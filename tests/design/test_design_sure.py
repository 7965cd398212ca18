"""Designs whose answer does not depend on luck, and what speaks against them on the screen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from design_helpers import prior_once, quick  # noqa: F401  # fixtures
from isocompute.answers.fit import fit_sweep
from isocompute.answers.price import Price
from isocompute.cli import main
from isocompute.design import (
    Asked,
    Limits,
    Sweep,
    Trainer,
    Worlds,
    choose,
    design_lines,
    design_sweep,
    judge,
    worlds_of,
    write_study,
)
from isocompute.design.judge import Judge, Loss, Lost, most_judged, nothing_lost, pays
from isocompute.design.kept import Kept
from isocompute.design.words import why_lines
from isocompute.errors import InputError
from isocompute.lr_sweep import LEAST, STEPS
from isocompute.recipe import Recipe
from isocompute.runner import planned_study
from isocompute.study.schema import Powers
from isocompute.study.yaml12 import read_yaml
from isocompute.testing.families import of_surface
from isocompute.testing.forms import Surface
from isocompute.testing.planted import NOISE
from isocompute.testing.truth import World

N = (8, 16, 32, 64, 128, 256, 512)
X = np.arange(2.0, 10.0, 0.04)
LIMITS = Limits(budget=4e6, spend=0.15, n_F=N)
SWEEP = Sweep(problems_per_batch=16, rollouts_per_problem=(16, 64, 256), seeds=1,
              rollouts_per_run=200_000)  # fmt: skip


def level_worlds(size: int, ceilings: Any = (0.7,) * 7) -> Worlds:
    ceiling_WF = np.tile(np.asarray(ceilings, float), (size, 1))[:, :, None]
    score = 0.3 + (ceiling_WF - 0.3) / (1 + np.exp(-3.0 * (X - 4.5)))
    return Worlds(problems_per_batch=16, n_F=N, x_X=X, score_WFX=score, metric="avg@4",
                  sources=("planted",), longest=1e6)  # fmt: skip


# ---- the answer ----


def test_a_sweep_is_advised_where_it_surely_saves() -> None:
    for gain, error, sure, nothing in (
        (0.0021, 0.001, True, False), (0.002, 0.001, False, True), (0.0, 0.001, False, True),
        (-0.002, 0.001, False, True), (-0.0021, 0.001, False, False),
    ):  # fmt: skip
        assert (pays(Loss(gain, error)), nothing_lost(Loss(gain, error))) == (sure, nothing)


def decided(monkeypatch: Any, saved: float, spread: float, seed: int) -> tuple[Loss, int]:
    """What is said of a sweep that saves so much on average, and in how many worlds."""
    luck_W = np.random.default_rng(seed).normal(-saved, spread, 400)
    monkeypatch.setattr(Judge, "lost", lambda self, sweep, which: Lost(
        luck_W[which], np.zeros(which.stop - which.start, int)))  # fmt: skip
    of = Judge(level_worlds(400), LIMITS, 16, 0, np.full(7, 1e7))
    none = of.guesses()[0]
    assert none.loss == pytest.approx(0.0)
    lost, which = of.decided(SWEEP, none, 16, 40)
    assert (which.start, which.stop - 16) == (16, len(lost.total_W))
    return of.gain(none, lost.total_W, which), len(lost.total_W)


def test_a_gain_that_is_not_clear_is_judged_in_more_worlds(monkeypatch: Any) -> None:
    # As in the simulation: 0.007 between worlds, so that 40 of them know a mean to 0.0011.
    clear = [decided(monkeypatch, 0.01, 0.007, seed) for seed in range(20)]
    assert {(pays(gain), worlds) for gain, worlds in clear} == {(True, 40)}
    # By the sign of 40 worlds, half of these would be advised.
    alike = [decided(monkeypatch, 0.0, 0.007, seed) for seed in range(100, 140)]
    assert sum(pays(gain) for gain, _ in alike) <= 2
    assert {worlds for _, worlds in alike} <= {40, 80, 160, 320}
    assert max(worlds for _, worlds in alike) > 80
    worse = [decided(monkeypatch, -0.01, 0.007, seed) for seed in range(20)]
    assert {(pays(gain), worlds) for gain, worlds in worse} == {(False, 40)}
    # Known to 0.0005 it is known well enough; 0.05 between worlds never is, and there is an end.
    assert decided(monkeypatch, 0.0004, 0.002, 0)[1] == 40
    worlds = [decided(monkeypatch, 0.005, 0.05, seed)[1] for seed in range(5)]
    assert max(worlds) == most_judged(40) == 320
    assert (most_judged(4), most_judged(2000)) == (32, 2000)


def test_the_error_of_a_gain_is_not_that_of_luck_in_common() -> None:
    # A sweep that loses 0.003 more than the guess in every world: known exactly.
    up, down = np.linspace(0.7, 0.58, 7), np.linspace(0.58, 0.7, 7)
    worlds = level_worlds(100)
    score = 0.3 + (np.array([up if w % 4 else down for w in range(100)])[:, :, None] - 0.3) * (
        1 / (1 + np.exp(-3.0 * (X - 4.5))))  # fmt: skip
    of = Judge(replace(worlds, score_WFX=score), LIMITS, 16, 0, np.full(7, 1e9))
    none, which = of.guesses()[0], slice(0, 30)
    gain = of.gain(none, of.without(which)[0] + 0.003, which)
    assert gain == pytest.approx((-0.003, 0.0), abs=1e-9)
    assert none.standard_error > 0.004


def test_what_neither_gains_nor_loses_is_no_sweep_in_so_many_words(monkeypatch: Any) -> None:
    monkeypatch.setattr(choose, "GUESSED", 60)
    luck_W = np.random.default_rng(2).normal(0.0, 0.01, 400)
    monkeypatch.setattr(Judge, "lost", lambda self, sweep, which: Lost(
        luck_W[which], np.zeros(which.stop - which.start, int)))  # fmt: skip
    _, d = design_sweep(level_worlds(400), Asked(limits=replace(LIMITS, budget=3e7), draws=40))
    assert d["answer"] == "no_sweep"
    assert d["worth"]["gain"]["nothing"]
    assert d["worth"]["simulated_sweeps"] in (40, 80, 160, 320)
    text = " ".join(" ".join(design_lines(d)).split())
    assert "; a sweep of n = 128, 256, 512 (4.59M rollouts, 15%) would neither gain nor " in text
    across = {**d["worth"], "across_models": {"without": 0.018, "after": 0.018}}
    text = " ".join(" ".join(design_lines({**d, "worth": across})).split())
    assert " would neither gain nor lose (" in text
    assert " +- 0.0" in text
    # Half and twice as long, judged with the same luck, differ by nothing: no order is told.
    swept = " ".join(" ".join(design_lines({**d, "answer": "sweep"})).split())
    assert "(half as long: alike, twice as long: alike)" in swept
    far = {**d["worth"], "half": {**d["worth"]["half"], "loss": 0.02, "standard_error": 0.002,
                                  "behind": 0.01, "behind_error": 0.002}}  # fmt: skip
    swept = " ".join(" ".join(design_lines({**d, "answer": "sweep", "worth": far})).split())
    assert "(half as long: 0.020 +- 0.002, twice as long: alike)" in swept
    why = " ".join(" ".join(design_lines({**d, "worth": far}, why=True)).split())
    # It was "After the same sweep: twice: alike."
    assert "After a sweep with runs half as long: 0.020 +- 0.002, twice as long: alike." in why


# ---- an older study ----

RISING = of_surface(
    "rising", Surface(rise=(0.25, 0.02, 0.0), midpoint=4.6, per_octave=0.05, problems_per_batch=8),
    (4, 8, 16, 32, 64, 128),
)  # fmt: skip


def older() -> list[Any]:
    """Runs of n = 4 to 64 in a world where n = 128 is better still."""
    tried = World(name="tried", arms=RISING.arms[:-1], max_rollouts=2.0**18)
    return tried.sample(NOISE["low"], 2, np.random.default_rng(0))


@pytest.mark.heavy
def test_the_edge_of_an_older_study_is_a_caution_in_the_words_of_plan(monkeypatch: Any) -> None:
    curves = older()
    fit = fit_sweep(curves)
    worlds = replace(worlds_of(curves, "older", 200, 0), fit=fit)
    monkeypatch.setattr(choose, "GUESSED", 60)
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.zeros(len(worlds), int))

    def said(**more: Any) -> tuple[dict[str, str], str]:
        limits = Limits(**{"budget": 2e6, "spend": 0.15, "n_F": worlds.n_F, **more})
        _, d = design_sweep(worlds, Asked(limits=limits, draws=4))
        assert d["answer"] == "no_sweep"
        lines = design_lines(d)
        assert len(lines) <= 12
        return {one["code"]: one["text"] for one in d["notices"]}, " ".join(" ".join(lines).split())

    codes, text = said()
    caution = "Caution n = 64 is the largest tested and scores best: larger n may gain. Train n = "
    assert f"{caution}128 once (" in text
    edge = fit.support[1]
    assert "All n were compared only up to " in codes["extrapolated"]
    assert edge == pytest.approx(2.0**18, rel=0.01)
    assert "This plan is 7.5 times that" in codes["extrapolated"]
    assert "below the best n tested; " in text
    assert "All n were compared only up to " in text  # the second one: on the same screen
    assert "beyond_prior" not in codes
    codes, _ = said(max_batch=8 * 64)  # no larger n could be run
    assert "capped_by_tested_n" not in codes
    codes, _ = said(budget=2 * fit.support[1])
    assert "extrapolated" not in codes


# ---- the file ----


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("engine", ["trl", "verl", "local"])
def test_a_file_with_stand_ins_tries_rates_as_one_with_a_model(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["design", "--budget", "5e6", "--difficulty", "easy", "--engine", engine, "--draws",
             "4", "-o", "s.yaml", "--json", "d.json"]  # fmt: skip
    found = {}
    for model in ([], ["--model", "Qwen/Qwen2.5-7B-Instruct"])[: 1 if engine == "local" else 2]:
        assert main([*asked, *model]) == 0
        lines = Path("s.yaml").read_text().splitlines()
        words = {line.split(": ", 1)[0]: json.loads(line.split(": ", 1)[1])
                 for line in lines if not line.startswith("#")}  # fmt: skip
        found[bool(model)] = words, json.loads(Path("d.json").read_text())
    stands_in, d = found[False]
    assert LEAST <= stands_in["lr_sweep"]["steps"] <= STEPS
    # `lr-sweep` of the file is a part of the budget, whatever is edited in it.
    assert main(["lr-sweep", "s.yaml", "--dry-run", "--json", "e.json"]) == 0
    estimate = json.loads(Path("e.json").read_text())["estimate"]
    assert estimate["rollouts"] <= 0.15 * 5e6
    if engine == "local":  # the shipped model is what it trains, and its rate is known
        assert stands_in["recipe"]["learning_rate"] == 1e-3
        assert d["lr_sweep"] is None
        return
    named, of_named = found[True]
    assert stands_in["lr_sweep"] == named["lr_sweep"]
    assert stands_in["recipe"] == named["recipe"] == {"difficulty": "easy"}
    assert d["lr_sweep"] == of_named["lr_sweep"] is not None
    assert (d["spent"], d["final"]) == (of_named["spent"], of_named["final"])
    assert estimate["rollouts"] == d["lr_sweep"]["rollouts"]


def test_a_shipped_model_has_its_own_rate_and_no_other_model_has_it() -> None:
    other = "Qwen2.5-7B"
    for engine, model, train, known, rate, of in (
        ("local", None, None, True, 1e-3, "bits-mlp"), ("local", "M", None, False, 1e-6, other),
        ("local", None, "f", False, 1e-3, "bits-mlp"), ("local", "machine", "f", True, 1e-3,
                                                        "machine"),
        ("local", "verbs", None, True, 5e-4, "verbs"), ("trl", None, None, False, 1e-6, other),
        ("verl", None, None, False, 1e-6, other), ("verl", "machine", "f", False, 1e-6, other),
    ):  # fmt: skip
        trainer = Trainer(engine=engine, model=model, train=train)
        assert trainer.rate_known == known
        temperature = 0.6 if of == other else 1.0
        assert trainer.recipe.learning_rate == rate
        assert trainer.learning_rate == {"value": rate, "of": of, "temperature": temperature}
    kept = Kept(words={"learning_rate": 3e-4}, recorded=("learning_rate",))
    mine = Trainer(engine="local", model="machine", kept=kept)
    assert mine.learning_rate == {"value": 3e-4, "of": "runs", "temperature": 1.0}


@pytest.mark.parametrize(("model", "world"), [("machine", "machine"), ("verbs-long", "verbs"),
                                              ("mine", "bits")])  # fmt: skip
def test_problems_that_stand_in_are_of_the_models_own_world(
    tmp_path: Path, model: str, world: str
) -> None:
    sweep = Sweep(problems_per_batch=4, rollouts_per_problem=(4, 8), seeds=1, rollouts_per_run=64)
    trainer = Trainer(engine="local", model=model)
    path = tmp_path / "s.yaml"
    write_study(path, sweep, trainer, final=sweep, problems=None, price=Price())
    sets = read_yaml(path)["problems"]
    assert sets["train"]["options"]["world"] == world
    assert sets["validation"]["all"]["options"]["world"] == world


def test_an_n_as_good_as_the_one_to_run_is_not_said_to_lose_less() -> None:
    row = {"loss": 0.0, "choice": 0.0, "choice_at_best": 0.0, "spending": 0.0}
    guesses = [{"rollouts_per_problem": n, "loss": loss, "as_good": n < 256}
               for n, loss in ((128, 0.00958), (64, 0.00896), (256, 0.01194))]  # fmt: skip
    worth = {"after": row, "without": {"rollouts_per_problem": 128, "loss": 0.00958},
             "guesses": guesses, "half": None, "twice": None}  # fmt: skip
    said = " ".join(why_lines({"worth": worth, "sweep": {"rollouts_per_problem": [8]}}, "1"))
    assert "Against n = 128: n = 256 loses 0.002 more." in said
    assert "less" not in said


# ---- what was given ----


def training_file(size: int, rate: float | None = None) -> str:
    rows = ({"prompt": f"p{i}", "answer": "1"} | ({} if rate is None else {"pass_rate": rate})
            for i in range(size))  # fmt: skip
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "train.jsonl"


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_what_was_given_and_does_not_agree_is_said(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def screen(*more: str) -> str:
        assert main(["design", "--draws", "4", *more]) == 0
        out = capsys.readouterr().out
        assert len(out.splitlines()) <= 12
        return " ".join(out.split())

    easy = "--budget", "3e6", "--train", training_file(6000, 0.5)
    against = "Set Pass rates in --train say easy (mean 0.5); you said hard."
    assert against in screen(*easy, "--difficulty", "hard")
    assert "pass rates in --train" not in screen(*easy, "--difficulty", "easy")
    # 40 problems hold out 8, 32 outcomes an evaluation: 0.5 / sqrt(32) = 0.088.
    small = "--train", training_file(40), "--difficulty", "easy", "--problems-per-batch", "8"
    few = "Check Only 8 problems validate: an evaluation is off by 0.09 (1 sigma)."
    assert few in screen("--budget", "2e5", *small)
    # Ten thousand passes are no headline: what speaks against them stands above it.
    out = screen("--budget", "1e10", "--train", training_file(2000), "--difficulty", "easy")
    assert out.startswith("Caution ")
    assert " passes over 1,700 problems; the published runs made " in out


@pytest.mark.usefixtures("quick")
def test_all_rates_that_lack_are_named_at_once(capsys: Any) -> None:
    def refused(*asked: str) -> str:
        assert main(["design", "--draws", "4", *asked]) == 2
        return " ".join(capsys.readouterr().err.split())

    said = refused("--budget", "$20000")
    assert "--rollouts-per-gpu-hour" in said
    assert " and --usd-per-gpu-hour" in said
    said = refused("--budget", "400gpuh")
    assert "--rollouts-per-gpu-hour" in said
    assert "--usd-per-gpu-hour" not in said
    said = refused("--budget", "$20000", "--rollouts-per-gpu-hour", "900")
    assert "usd_per_gpu_hour" in said


def test_a_share_and_its_bound_are_told_apart(monkeypatch: Any) -> None:
    monkeypatch.setattr(choose, "GUESSED", 60)
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.zeros(len(worlds), int))
    # 20 steps of 1,024 rollouts at seven rates, and two evaluations of each: 160,160 rollouts.
    tight = replace(LIMITS, budget=160_160 / 0.1504, recipe=Recipe())
    _, d = design_sweep(level_worlds(60), Asked(limits=tight, draws=4))
    texts = {one["code"]: one["text"] for one in d["notices"]}
    assert "15.04% of the budget, more than a sweep may (15.00%)" in texts["rates_unpaid"]


# ---- the study file ----

STUDY = """
engine: simulator
problems:
  train: {generated: simulated, options: {size: 200}}
  validation:
    held-out: {generated: simulated, options: {size: 300}}
grid:
  problems_per_batch: 8
  rollouts_per_problem: {low: 4, high: 128}
budget: 262144
evaluation: {samples: 4, per_octave: 3, first: 512}
rates: {rollouts_per_gpu_hour: 900, usd_per_gpu_hour: 2}
"""


def test_spend_is_a_bound_of_what_a_sweep_begins_with(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    # A 32nd of 262,144 rollouts for each of six n.
    least = 6 * 8192
    path.write_text(STUDY + "adaptive: {spend: 50usd}\n")
    with pytest.raises(InputError) as caught:
        planned_study(path)
    assert str(caught.value) == (
        "`adaptive.spend` must pay for the first slice of every n, 49,152 rollouts for 6 n, but "
        "got 22,500 (50usd); write spend: 49152 or more, or list fewer n."
    )
    with pytest.raises(InputError, match=r"but got 100; write spend: 49152 or more"):
        planned_study(path, ["adaptive={spend: 100}"])
    study, _ = planned_study(path, [f"adaptive={{spend: {least}}}"])
    grid = study.grid()
    start = grid.started(None)
    assert start is not None
    assert grid.spent(start.of_configurations) == least == grid.first_slices
    assert planned_study(path, ["adaptive=true"])[0].adaptive is not None


def test_ends_of_a_range_are_powers_of_two(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(STUDY.replace("high: 128", "high: 100"))
    with pytest.raises(InputError) as caught:
        planned_study(path)
    assert "`high` must be a power of two" in str(caught.value)
    assert "write 64 or 128, or list every value" in str(caught.value)
    assert Powers(low=1, high=64).high == 64
