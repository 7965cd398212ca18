"""Designs whose truth is planted: worlds by closed form, losses that can be worked out by hand."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from design_helpers import prior_once, quick  # noqa: F401  # fixtures
from isocompute.allocation import Allocation, Rates
from isocompute.answers import plan_budget
from isocompute.answers.fit import fit_sweep
from isocompute.answers.price import Price
from isocompute.answers.spending import Spent
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
    shipped_worlds,
    study_content,
    with_recipe,
    worlds_needed,
    worlds_of,
)
from isocompute.design import candidates as sweeps
from isocompute.design.candidates import candidates, starting_bp
from isocompute.design.judge import (
    allowed,
    best_guess,
    guesses,
    lost_by,
    one_for_all,
    planned,
)
from isocompute.design.kept import Kept, kept_recipe
from isocompute.design.prior import _X, BUDGET_SD, _moved
from isocompute.design.simulate import evaluated_at, simulate
from isocompute.design.words import _recipe, _set
from isocompute.domain import Configuration, Curve, documented, notice
from isocompute.errors import InputError, RefusalError
from isocompute.recipe import Recipe
from isocompute.runner import planned_study
from isocompute.sources.studies import with_study_rates
from isocompute.store.database import Database
from isocompute.store.register import register
from isocompute.study.cost import study_cost
from isocompute.study.rates import RatesByBatch
from isocompute.testing.planted import NOISE, WORLDS
from isocompute.verifiers.worker import WorkerVerifier

N = (8, 16, 32, 64, 128, 256, 512)
X = np.arange(2.0, 10.0, 0.04)
DRAWS = 4


def planted(ceilings_WF: Any, midpoint: float = 4.5) -> Worlds:
    """Logistic curves of one slope and midpoint, so that the highest ceiling is always best."""
    ceiling = np.asarray(ceilings_WF, float)[:, :, None]
    score = 0.3 + (ceiling - 0.3) / (1 + np.exp(-3.0 * (X - midpoint)))
    return Worlds(
        problems_per_batch=16, n_F=N, x_X=X, score_WFX=score, metric="avg@4", sources=("planted",),
        longest=1e6,
    )  # fmt: skip


DOWN = [0.70, 0.68, 0.66, 0.64, 0.62, 0.60, 0.58]
SIZE = worlds_needed(DRAWS)
APART = planted([DOWN if w % 2 else DOWN[::-1] for w in range(SIZE)])
ALIKE = planted([DOWN] * SIZE)
LIMITS = Limits(budget=4e6, spend=0.15, n_F=N)


# ---- worth ----


@pytest.mark.heavy
def test_a_sweep_that_tells_the_worlds_apart_is_worth_its_rollouts(monkeypatch: Any) -> None:
    monkeypatch.setattr(sweeps, "SHAPES", ((3, 3, 1), (3, 1, 1)))  # the rest would take a minute

    def refused(_: float) -> Configuration:
        raise RefusalError("Its score is not known.")

    (sweep, *_), d = design_sweep(APART, Asked(limits=LIMITS, draws=DRAWS, plan=refused))
    assert (d["answer"], d["worth"]["simulated_sweeps"]) == ("sweep", DRAWS)
    # Where the sweep is the answer, nobody asked for a plan before it.
    assert "plan_refuses" not in [one["code"] for one in d["notices"]]
    # Half of the worlds have 0.70 where the guess has 0.64 at best: n = 64 in the middle scores
    # the mean 0.64, as every n does, so one guess loses 0.06 in every world on average.
    assert d["worth"]["without"]["loss"] == pytest.approx(0.06, abs=0.004)
    assert d["worth"]["after"]["loss"] < 0.035
    assert d["worth"]["after"]["loss"] == pytest.approx(
        d["worth"]["after"]["choice"] + d["worth"]["after"]["spending"]
    )
    assert d["worth"]["gain"]["loss"] == pytest.approx(
        d["worth"]["without"]["loss"] - d["worth"]["after"]["loss"]
    )
    assert d["sweep"]["rollouts"] == sweep.rollouts <= 0.15 * 4e6
    # What the sweep leaves, in whole updates, and evaluations of the final run's own.
    final, batch = d["final"], 16 * d["final"]["rollouts_per_problem"]
    left = 4e6 - sweep.rollouts - sweep.evaluations
    assert 0 <= left - final["rollouts"] - final["evaluation_rollouts"] < batch + 1200
    assert final["rollouts"] == final["steps"] * batch
    assert sweep.evaluations == d["sweep"]["evaluation_rollouts"] > 0
    assert d["worth"]["twice"]["rollouts"] > 1.9 * sweep.rollouts
    lines = design_lines(d)
    assert lines[0].startswith("Sweep   n = ")
    assert any(line.startswith("Worth   a plan after the sweep scores 0.0") for line in lines)
    assert "Time    an hour" in design_lines({**d, "time": "an hour"})


def test_no_sweep_is_the_answer_where_it_can_tell_nothing(monkeypatch: Any) -> None:
    # Choosing as well as without it, a sweep still loses what its rollouts would have scored.
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.zeros(len(worlds), int))
    _, d = design_sweep(ALIKE, Asked(limits=LIMITS, draws=DRAWS))
    assert d["answer"] == "no_sweep"
    assert d["worth"]["without"] == {
        "loss": 0.0, "standard_error": 0.0, "rollouts_per_problem": 8,
    }  # fmt: skip
    # From 1,024 rollouts on three evaluations an octave, 36 up to 4M, and one before the first
    # update and at the end: of 300 problems, 4 answers each, they are paid first. An update takes
    # 128.
    final = d["final"]
    assert (final["rollouts_per_problem"], final["evaluation_rollouts"]) == (8, 38 * 1200)
    assert final["rollouts"] == (4_000_000 - 38 * 1200) // 128 * 128
    assert [one["code"] for one in d["notices"]] == ["no_sweep"]
    first = "No sweep: run 16 problems x 8 rollouts x 30,893 steps   (3.95M rollouts)"
    assert design_lines(d)[0] == first
    assert "As good" not in " ".join(design_lines(d))
    evaluated = "Cost    45.6k rollouts more to evaluate; GPU-hours: give "
    assert design_lines(d)[1].startswith(evaluated)
    # The prior is of another model: what is lost if it is alike, and what was found if not.
    others = documented([notice("prior_of_others", model="Qwen2.5-7B-Instruct", lost=0.018)])
    across = {**d["worth"], "across_models": {"without": 0.018, "after": 0.018}}
    text = " ".join(" ".join(design_lines({**d, **others, "worth": across})).split())
    lost, swept = (d["worth"][k]["loss"] for k in ("without", "after"))
    assert f"Worth this run scores {lost:.3f} below the best n, on models like Qwen2.5-7B" in text
    assert f"which costs more than it finds, {swept:.3f}" in text
    assert "; on others 0.018 either way" in text
    assert "Note" not in text
    alone = {**across, "across_models": {"without": 0.018, "after": None}}
    text = " ".join(" ".join(design_lines({**d, **others, "worth": alone})).split())
    assert "; on others 0.018 guessed" in text
    pays = " ".join(" ".join(design_lines({**d, "answer": "sweep", "worth": across})).split())
    assert f"a plan after the sweep scores {swept:.3f} below the best n, on models like Q" in pays
    assert "which flatter both" in " ".join(design_lines({**d, "worth": across}, why=True))
    paid = {**d["sweep"], "cost": {**d["sweep"]["cost"], "gpu_hours": 700.0, "usd": 1400.0}}
    said = " ".join(" ".join(design_lines({**d, "sweep": paid})).split())
    assert "after a sweep of n = " in said
    assert " (700 GPU-hours, $1,400, 16%), which costs more than it finds, 0." in said
    seen = {**d["sweep"], "share": 0.15, "evaluation_share": 0.09}
    said = " ".join(" ".join(design_lines({**d, "sweep": seen})).split())
    assert " (15% + 9% for evaluation), which costs more than it finds, 0." in said
    tight = Limits(budget=4e5, spend=0.4, n_F=N)
    (sweep, *_), d = design_sweep(ALIKE, Asked(limits=tight, draws=DRAWS))
    kept = 4e5 - sweep.rollouts - sweep.evaluations
    full, left = (
        0.3 + 0.4 / (1 + np.exp(-3 * (np.log10(c - 1200 * (3 + int(3 * np.log2(c / 1024)))) - 4.5)))
        for c in (4e5, kept)
    )
    assert d["worth"]["after"]["loss"] == pytest.approx(full - left, abs=2e-4)
    assert d["worth"]["after"]["choice"] == 0


def test_losses_by_hand() -> None:
    worlds = planted([DOWN, DOWN[::-1], DOWN[::-1]])
    every = list(range(7))
    assert best_guess(worlds, 1e9, every) == 6  # two of three worlds want n = 512
    assert lost_by(worlds, 6, 1e9, 1e9, every) == pytest.approx([0.12, 0, 0], abs=1e-3)
    assert lost_by(worlds, np.array([0, 6, 5]), 1e9, 1e9, every) == pytest.approx(
        [0, 0, 0.02], abs=1e-3
    )
    assert one_for_all(worlds, 1e9, every) == 6
    assert one_for_all(worlds, 1e9, [0, 1]) == 1
    assert allowed(worlds, 16, 20 * 16 * 64, None) == [0, 1, 2, 3]
    assert allowed(worlds, 16, 1e9, 16 * 16) == [0, 1]


def test_one_n_for_all_budgets_is_not_the_best_at_the_last() -> None:
    early = np.log10(4e4) + 0.1 * np.arange(7)  # large n start later and end higher
    score = [0.3 + (0.3 + 0.005 * f) / (1 + np.exp(-3 * (X - m))) for f, m in enumerate(early)]
    worlds = replace(ALIKE, score_WFX=np.array([score]))
    assert best_guess(worlds, 1e7, range(7)) == 6
    assert one_for_all(worlds, 1e7, list(range(7))) < 6


@pytest.mark.heavy
def test_the_choice_in_a_simulated_sweep_is_that_of_plan() -> None:
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 64, 512), seeds=1,
                  rollouts_per_run=400_000)  # fmt: skip
    chosen = planned(APART.take(slice(0, 2)), sweep, 2e6, range(7), 0)
    assert [N[f] for f in chosen] == [512, 8]
    curves = simulate(APART, 0, sweep, 0)
    plan = plan_budget(fit_sweep(curves), 2e6)
    assert plan.allocation is not None
    assert plan.allocation.rollouts_per_problem == 512
    assert N[planned(APART.take(slice(0, 1)), sweep, 2e6, [0, 3], 0)[0]] == 64


# ---- simulated sweeps ----


def test_a_simulated_run_is_its_world_with_its_noise() -> None:
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 64), seeds=2,
                  rollouts_per_run=200_000)  # fmt: skip
    curves = simulate(ALIKE, 0, sweep, 1)
    assert [(c.rollouts_per_problem, c.seed) for c in curves] == [(8, 0), (8, 1), (64, 0), (64, 1)]
    every = np.array([simulate(ALIKE, 0, sweep, s)[0].score_K for s in range(300)])
    x = np.log10(curves[0].rollouts_K[1:])
    truth = 0.3 + 0.4 / (1 + np.exp(-3 * (x - 4.5)))
    assert every.mean(axis=0)[1:] == pytest.approx(truth, abs=0.003)
    gained = 0.4 / (1 + np.exp(-3 * (x[-1] - 4.5)))
    slope = 3 * gained * (1 - gained / 0.4)
    binomial = truth[-1] * (1 - truth[-1]) / 1200
    spread = np.sqrt((0.03 * gained) ** 2 + (0.04 * slope) ** 2 + binomial)
    assert every[:, -1].std() == pytest.approx(spread, rel=0.15)
    assert np.array_equal(simulate(ALIKE, 0, sweep, 1)[2].score_K, curves[2].score_K)
    assert not np.array_equal(curves[0].score_K, curves[1].score_K)
    for world, seed in ((1, 1), (0, 2)):
        other = simulate(ALIKE, world, sweep, seed)
        assert not np.array_equal(other[2].score_K, curves[2].score_K)
    # What is compared has its luck in common: run 0 of n = 64 is the same in a sweep without n = 8.
    alone = Sweep(problems_per_batch=16, rollouts_per_problem=(64,), seeds=1,
                  rollouts_per_run=200_000)  # fmt: skip
    assert np.array_equal(simulate(ALIKE, 0, alone, 1)[0].score_K, curves[2].score_K)


def test_evaluations_stand_at_whole_steps_and_at_the_end() -> None:
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 512), seeds=1,
                  rollouts_per_run=300_000)  # fmt: skip
    rollouts = evaluated_at(sweep, 512)
    assert rollouts[:3].tolist() == [0, 8192, 16384]
    assert rollouts[-1] == 36 * 8192  # 36 whole steps fit
    assert sweep.first_evaluation == 1024
    assert sweep.at(30_000_000).first_evaluation == 2**16
    assert sweep.rollouts == 36 * 8192 + 2343 * 128


# ---- prior ----


@pytest.mark.heavy
def test_shipped_worlds_differ_by_difficulty_and_are_moved_along_the_budget() -> None:
    easy, hard = (shipped_worlds(d, 12, 0) for d in ("easy", "hard"))
    assert easy.score_WFX[:, :, 0].mean() > 0.3 > hard.score_WFX[:, :, 0].mean()
    assert easy.n_F == N
    assert easy.sources == ("published:qwen2.5-7b-easy", "published:qwen2.5-7b-easy-bp64")
    assert (np.diff(easy.score_WFX, axis=2) >= 0).all()
    again = shipped_worlds("easy", 12, 0)
    assert np.array_equal(easy.score_WFX, again.score_WFX)
    assert not np.array_equal(easy.score_WFX, shipped_worlds("easy", 12, 1).score_WFX)
    best_F = easy.at(2e6).argmax(axis=1)
    assert len(set(best_F.tolist())) > 2  # moved along n, too
    half = np.array([
        np.interp(0.5 * (w[3, 0] + w[3, 150]), w[3], easy.x_X) for w in easy.score_WFX[::2]
    ])  # fmt: skip
    assert BUDGET_SD / 3 < half.std() < 3 * BUDGET_SD


def test_a_prior_of_two_neighbouring_n_is_refused_for_what_it_is() -> None:
    rolls = np.geomspace(1e3, 1e5, 12)
    curves = [Curve(problems_per_batch=32, rollouts_per_problem=n, run=f"{n}", seed=0,
                    metric="avg@4", rollouts_K=rolls, score_K=0.3 + 0.05 * np.log10(rolls / 1e3))
              for n in (8, 16)]  # fmt: skip
    with pytest.raises(InputError, match=r"mine has n = 8 to 16; train n = 32 once and give it"):
        worlds_of(curves, "mine", 4, 0)


@pytest.mark.heavy
def test_an_older_study_stays_where_it_is() -> None:
    world = WORLDS["rising"]
    noise = NOISE["low"]
    curves = world.sample(noise, 2, np.random.default_rng(0))
    worlds = worlds_of(curves, "older", 8, 0)
    truth = world.truth(noise).score([1e6])[:, 0]
    assert worlds.problems_per_batch == 16
    assert worlds.at(1e6).mean(axis=0) == pytest.approx(truth, abs=0.01)
    assert worlds.problems is None
    assert worlds_of([c.replace(trained_on=500) for c in curves], "older", 4, 0).problems == 500
    with pytest.raises(InputError, match="at least 2 n at one B_p, but older has 1"):
        worlds_of([c for c in curves if c.rollouts_per_problem == 8], "older", 4, 0)
    level = [c.replace(score_K=np.full(len(c.score_K), 0.4)) for c in curves]
    with pytest.raises(RefusalError, match=r"older cannot be a prior: No run learned"):
        worlds_of(level, "older", 4, 0)


# ---- limits ----


def test_candidates_keep_to_the_limits() -> None:
    every = candidates(LIMITS, 32, 64, fixed=False)
    assert len(every) > 5
    for sweep in every:
        assert sweep.rollouts <= 0.15 * 4e6
        assert sweep.steps(sweep.rollouts_per_problem[-1]) >= 20
    greedy = Limits(budget=8e5, spend=0.8, n_F=N)
    for sweep in candidates(greedy, 8, 64, fixed=True):  # evaluations are paid for, too
        n = sweep.rollouts_per_problem[-1]
        assert greedy.final(sweep, n, greedy.left(sweep)).steps(n) >= 20
    narrow = Limits(budget=4e6, spend=0.15, n_F=N, max_batch=1024)
    assert max(s.rollouts_per_problem[-1] for s in candidates(narrow, 32, 64, fixed=False)) == 32
    poor = Limits(budget=2e5, spend=0.15, n_F=N)
    assert {s.problems_per_batch for s in candidates(poor, 32, 8, fixed=False)} == {8}
    assert starting_bp(32, None) == 32
    assert starting_bp(32, 20) == 16
    assert (starting_bp(32, 1), starting_bp(4, 1)) == (8, 4)


def test_less_to_spend_means_fewer_rollouts() -> None:
    sizes = [
        max(s.rollouts for s in candidates(Limits(budget=4e6, spend=p, n_F=N), 16, 64, fixed=True))
        for p in (0.05, 0.15)
    ]
    assert sizes[0] < sizes[1] / 2.5


BAD = {
    "a sweep must take more than 0%": {"spend": 1.5},
    r"must fill a batch \(B_p = 16\), but got 10; add problems, or lower": {"problems": 10},
    r"must hold 16 problems with n = 8 \(128 rollouts\), but got --max-batch": {"max_batch": 100},
    r"a budget must be at most 1e\+15 rollouts, but got 1e\+30": {"budget": 1e30},
    r"one update of 16 problems with n = 8 \(128 rollouts\), but got 100": {"budget": 100.0},
    "the largest with a batch of 512 rollouts, but got --max-batch 200": {"max_batch": 200},
    r"3 n with 20 steps each \(at least 30.7k rollouts": {"budget": 2e4},
    r"leave a final run of 20 steps \(10.2k rollouts at B_p = 16\).*--spend 0.99 leaves too little "
    r"of 400k; lower --spend": {"budget": 4e5, "spend": 0.99},
}


@pytest.mark.parametrize("message", BAD)
def test_limits_that_hold_no_sweep_are_one_line_with_the_cure(message: str) -> None:
    limits = Limits(**{"budget": 4e6, "spend": 0.15, "n_F": N, **BAD[message]})
    with pytest.raises(InputError, match=message) as found:
        design_sweep(ALIKE, Asked(limits=limits, problems_per_batch=16, draws=DRAWS))
    assert "\n" not in str(found.value)


# ---- price, passes, notices ----


def test_the_price_is_that_of_every_configuration(monkeypatch: Any) -> None:
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.full(len(worlds), 6))
    rates = Rates(tokens_per_rollout=10, rollouts_per_gpu_hour=1000, usd_per_gpu_hour=2)
    priced = replace(LIMITS, price=Price(rates=rates))
    (sweep, *_), d = design_sweep(APART, Asked(limits=priced, draws=DRAWS))
    drawn = sweep.rollouts + d["sweep"]["evaluation_rollouts"]
    assert d["sweep"]["cost"]["gpu_hours"] == pytest.approx(drawn / 1000)
    assert d["sweep"]["cost"]["usd"] == pytest.approx(drawn / 500)
    drawn = d["final"]["rollouts"] + d["final"]["evaluation_rollouts"]
    assert d["final"]["cost"]["tokens"] == pytest.approx(10 * drawn)
    assert d["final"]["cost"]["source"]["rollouts_per_gpu_hour"] == {"value": 1000, "from": "given"}
    text = "\n".join(design_lines(d))
    assert "GPU-hours, $" in text
    assert "(your rate)" in text


def test_a_sweep_pays_for_every_start_of_its_trainer(monkeypatch: Any) -> None:
    # A sweep finds the best n.
    monkeypatch.setattr(judge, "planned", lambda worlds, _, final, *__: (
        worlds.at(final).argmax(axis=1)))  # fmt: skip
    rates = Rates(rollouts_per_gpu_hour=1000, usd_per_gpu_hour=2)
    limits = replace(LIMITS, price=Price(rates=rates), unit="gpu_hours", slices=4,
                     budget=LIMITS.budget / 1000)  # fmt: skip
    untold = design_sweep(APART, Asked(limits=limits, draws=DRAWS))[1] | {"engine": "verl"}
    assert untold["answer"] == "sweep"
    assert "(your rate, starts of verl apart)" in " ".join(
        "\n".join(design_lines(untold)).split())  # fmt: skip
    limits = replace(limits, price=replace(limits.price, start=5.0))
    (sweep, *_), d = design_sweep(APART, Asked(limits=limits, draws=DRAWS))
    runs = sweep.seeds * len(sweep.rollouts_per_problem)
    assert (d["sweep"]["starts"], d["final"]["starts"]) == (4 * runs, 1)
    drawn = sweep.rollouts + d["sweep"]["evaluation_rollouts"]
    assert d["sweep"]["cost"]["gpu_hours"] == pytest.approx(drawn / 1000 + 5 * 4 * runs)
    assert d["sweep"]["cost"]["usd"] == pytest.approx(2 * d["sweep"]["cost"]["gpu_hours"])
    assert d["sweep"]["start_share"] == pytest.approx(5 * 4 * runs / limits.budget)
    parts = d["sweep"]["cost"]["gpu_hours"] + d["final"]["cost"]["gpu_hours"]
    assert d["spent"]["amount"] == pytest.approx(parts)
    batch = d["final"]["problems_per_batch"] * d["final"]["rollouts_per_problem"]
    spare = (batch + 1200) / 1000  # less than an update and an evaluation
    assert limits.budget - spare < parts <= limits.budget
    assert "for starts)" in " ".join("\n".join(design_lines(d | {"engine": "verl"})).split())
    # What the times of runs tell is off by a tenth: all may take more than there is.
    source = d["final"]["cost"]["source"]
    source["rollouts_per_gpu_hour"] |= {"from": "sweep", "off": 0.1}
    text = " ".join("\n".join(design_lines(d | {"engine": "verl"})).split())
    low, high = (f"{times * d['spent']['amount']:,.0f}" for times in (0.9, 1.1))
    assert f"(the rate of its runs, within 10%); in all {low} to {high} of 4,000" in text
    # Rates are tried by runs that nobody looks at on the way: each starts once.
    tried = sweep.of_rates(Recipe.for_difficulty("easy"), N, 20)
    assert limits.starts(tried) == tried.runs
    # Starts that leave no final run leave no sweep.
    dear = replace(limits, price=replace(limits.price, start=limits.budget / 4))
    with pytest.raises(InputError, match="starts its trainer 12 times, .* takes 12k of 3,400"):
        design_sweep(APART, Asked(limits=dear, draws=DRAWS))


def test_a_sweep_of_verl_pays_for_the_validations_that_verl_makes() -> None:
    # 300 problems of 4 samples may be a quarter of the batches of 2,048, 4,096 and 8,192: every
    # third step of 122, every second of 61, each of 30; and at both ends.
    on_grid = Sweep(problems_per_batch=32, rollouts_per_problem=(64, 128, 256), seeds=1,
                    rollouts_per_run=250_000, first=1024)  # fmt: skip
    even = replace(on_grid, share=Trainer(engine="verl").share)
    assert (even.share, Trainer(engine="trl").share) == (0.25, None)
    drawn = [even.evaluation_rollouts(n) for n in (64, 128, 256)]
    assert drawn == [1200 * (1 + 40 + 1), 1200 * (1 + 30 + 1), 1200 * (1 + 30)]
    # On the grid alone, three an octave: 20, 17 and 14 of them.
    assert (on_grid.evaluations, even.evaluations) == (1200 * (20 + 17 + 14), 126_000)
    # Learning rates are evaluated at both ends alone, as they are elsewhere.
    tried = even.of_rates(Recipe.for_difficulty("easy"), (64,), 50)
    assert tried.evaluations == tried.runs * 2 * 1200


def always(each: float) -> Spent:
    """A line of which every rollout takes as much."""
    return Spent(np.zeros(1), np.log10([each]))


# Rollouts per GPU-hour grow eightfold from n = 8 to 512, tokens of a rollout fall by half.
DEAR = Price(
    rates=Rates(rollouts_per_gpu_hour=2000, usd_per_gpu_hour=2, tokens_per_rollout=150),
    spent={
        "gpu-hours": {Configuration(16, n): always(1e-3 / 2 ** (i / 2)) for i, n in enumerate(N)},
        "tokens": {Configuration(16, n): always(200.0 / 2 ** (i / 6)) for i, n in enumerate(N)},
    },
)


@pytest.mark.parametrize("unit", ["rollouts", "tokens", "gpu_hours", "usd"])
@pytest.mark.parametrize("sweeps", [True, False])
def test_a_budget_is_spent_whole_at_each_configurations_own_rate(
    monkeypatch: Any, unit: str, *, sweeps: bool
) -> None:
    # A sweep finds the best n: 512 in three worlds of four, or in all.
    monkeypatch.setattr(judge, "planned", lambda worlds, _, final, *__: (
        worlds.at(final).argmax(axis=1)))  # fmt: skip
    at_512 = {"rollouts": 1.0, "tokens": 100.0, "gpu_hours": 1 / 8000, "usd": 1 / 4000}[unit]
    limits = Limits(budget=4e6 * at_512, unit=unit, price=DEAR, spend=0.15, n_F=N,
                    recipe=Recipe())  # fmt: skip
    worlds = planted([DOWN if sweeps and w % 4 == 0 else DOWN[::-1] for w in range(SIZE)])
    _, d = design_sweep(worlds, Asked(limits=limits, draws=DRAWS))
    assert (d["answer"], d["final"]["rollouts_per_problem"]) == (
        "sweep" if sweeps else "no_sweep", 512)  # fmt: skip
    amounts = {
        part: d[part]["cost"][unit] if unit != "rollouts"
        else d[part]["rollouts"] + d[part]["evaluation_rollouts"]
        for part in ("sweep", "lr_sweep", "final")
    }  # fmt: skip
    before = amounts["lr_sweep"] + (amounts["sweep"] if sweeps else 0.0)
    spare = limits.budget - before - amounts["final"]
    assert 0 <= spare < (16 * 512 + 1200) * at_512  # less than an update and an evaluation
    for part, amount in amounts.items():
        shares = d[part]["share"] + d[part]["evaluation_share"]
        assert shares == pytest.approx(amount / limits.budget)
    # Training in the sweep takes its 15%, less what whole updates leave.
    assert 0.14 < d["sweep"]["share"] <= 0.15
    # At n = 8 a rollout takes eight times the hours, and 15% of hours buys fewer rollouts.
    each = {"rollouts": 1.0, "tokens": 2.0, "gpu_hours": 8.0, "usd": 8.0}[unit]
    assert limits.each(16, 8) == pytest.approx(each * at_512)


@pytest.mark.heavy
def test_a_guess_is_the_same_whatever_the_seed() -> None:
    # As a stranger asked: 32 GPUs for five days, a hard set. 56 worlds said 64, 128 and 256.
    found = [
        guesses(shipped_worlds("hard", choose.GUESSED, seed), 4.608e6, range(7))
        for seed in range(3)
    ]  # fmt: skip
    assert {one[0].rollouts_per_problem for one in found} == {128}
    for one in found:  # 512 is 0.002 behind, on the line
        near = {g.rollouts_per_problem for g in one if g.as_good}
        assert {64, 128, 256} <= near <= {64, 128, 256, 512}


def test_guesses_and_their_rivals_by_hand() -> None:
    # n = 512 wins two worlds of three by 0.12 and loses the third by 0.12.
    first, *rest = guesses(planted([DOWN, DOWN[::-1], DOWN[::-1]]), 1e9, [0, 5, 6])
    assert first[:4] == pytest.approx((512, 0.04, 0.04, 0.0), abs=1e-4)
    assert [one.rollouts_per_problem for one in rest] == [8, 256]
    # Against it n = 256 is 0.02 better once and 0.02 worse twice: 0.0067 +- 0.0133.
    assert rest[1][1:5] == pytest.approx((0.14 / 3, 0.08 / 3, 0.02 / 3, 0.04 / 3), abs=1e-4)
    assert rest[1].as_good  # within two standard errors
    many = guesses(planted([DOWN, DOWN[::-1], DOWN[::-1]] * 100), 1e9, [0, 5, 6])
    assert [one.as_good for one in many] == [True, False, False]
    # 0.002 and less is as good, however sure it is.
    level = planted([[0.7, 0.6985, 0.697, 0.6, 0.6, 0.6, 0.6]] * 50)
    assert [one.as_good for one in guesses(level, 1e9, [0, 1, 2])] == [True, True, False]


def test_a_loss_is_steadied_by_what_the_guess_loses_in_all_worlds() -> None:
    # The guess loses 0.12 in one world of four, and in three of these four: 0.06 too much. What
    # goes with it, a half, is taken off; a loss that has nothing to do with it stays.
    worlds = planted([DOWN[::-1], DOWN, DOWN, DOWN] * 25)
    judged = judge.Judge(worlds, LIMITS, 16, 0, np.full(7, 1e9))
    some = replace(worlds, score_WFX=worlds.score_WFX[[0, 0, 0, 1, *range(4, 100)]])
    judged = replace(judged, worlds=some)
    everywhere, here = judged.guesses()[0].loss, judged.without(slice(0, 4))[0]
    assert here == pytest.approx([0.12, 0.12, 0.12, 0.0], abs=1e-3)
    assert everywhere == pytest.approx((3 + 24) * 0.12 / 100, abs=1e-3)
    found = judged.steadied(0.01 + here / 2, slice(0, 4))
    assert found.loss == pytest.approx(0.01 + everywhere / 2)
    assert found.standard_error == pytest.approx(0.0, abs=1e-9)
    assert judged.steadied(np.array([0.01, 0.03, 0.02, 0.02]), slice(0, 4)).loss == 0.02


def test_passes_are_counted_and_warned_of(monkeypatch: Any) -> None:
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.full(len(worlds), 0))
    limits = Limits(budget=4e6, spend=0.15, n_F=N, problems=500)
    (sweep, *_), d = design_sweep(APART, Asked(limits=limits, draws=DRAWS))
    n = d["final"]["rollouts_per_problem"]
    assert d["passes_over_data"]["final"] == pytest.approx(d["final"]["rollouts"] / (n * 500))
    assert d["passes_over_data"]["sweep"] == pytest.approx(
        sweep.rollouts_per_run / (sweep.rollouts_per_problem[0] * 500)
    )
    assert "passes_over_data" in [one["code"] for one in d["notices"]]
    assert any(line.startswith("Passes") for line in design_lines(d))
    assert "problems_fewer" not in [one["code"] for one in d["notices"]]
    known = replace(APART, problems=2001)
    _, d = design_sweep(known, Asked(limits=limits, draws=DRAWS))
    assert "problems_fewer_than_prior" in [one["code"] for one in d["notices"]]


def test_what_the_prior_does_not_hold_is_said(monkeypatch: Any) -> None:
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.zeros(len(worlds), int))
    far = Limits(budget=4e8, spend=0.15, n_F=N)
    _, d = design_sweep(APART, Asked(limits=far, draws=DRAWS, problems_per_batch=8))
    assert {one["code"] for one in d["notices"]} >= {"beyond_prior", "bp_of_prior"}
    assert d["sweep"]["problems_per_batch"] == 8
    assert "Pass --problems-per-batch 16 for that B_p." in " ".join(map(str, d["notices"]))


def test_a_smaller_batch_of_few_problems_is_said_on_the_screen(monkeypatch: Any) -> None:
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.zeros(len(worlds), int))
    few = replace(LIMITS, problems=15)
    _, d = design_sweep(APART, Asked(limits=few, draws=DRAWS, notices=(notice("prior_alone"),)))
    assert "bp_of_prior" not in [one["code"] for one in d["notices"]]
    text = "\n".join(design_lines(d))
    batch = "Batch   B_p = 8, the most that 15 problems fill; losses are of B_p = 16."
    assert f"\n{batch}\n" in text
    assert "\nSet     --difficulty: it decides" in text
    poor = replace(LIMITS, budget=2e5)
    _, d = design_sweep(APART, Asked(limits=poor, draws=DRAWS, writes_sweep=True))
    assert "Raise --budget or --spend for that B_p." in " ".join(map(str, d["notices"]))
    assert "\nBatch   Nothing is known of B_p = 8: losses are those of B_p = 16." in "\n".join(
        design_lines(d))  # fmt: skip
    # A run without a sweep needs 20 steps of its own n alone: it keeps the B_p that is known.
    _, d = design_sweep(APART, Asked(limits=poor, draws=DRAWS))
    assert (d["answer"], d["sweep"]["problems_per_batch"]) == ("no_sweep", 8)
    assert d["final"]["problems_per_batch"] == 16
    assert "bp_of_prior" not in [one["code"] for one in d["notices"]]
    # It is the run of `plan`, where that n is as good as the guess, and no other.
    alike = planted([[0.7, 0.7, *DOWN[2:]]] * SIZE)
    for n, taken in ((16, 16), (512, 8)):
        _, d = design_sweep(alike, Asked(
            limits=poor, draws=DRAWS, plan=lambda _, n=n: Configuration(16, n)))  # fmt: skip
        assert d["final"]["rollouts_per_problem"] == taken
        assert d["worth"]["without"]["rollouts_per_problem"] == taken

    def refused(_: float) -> Configuration:
        raise RefusalError("Its score is not known.")

    _, d = design_sweep(alike, Asked(limits=poor, draws=DRAWS, plan=refused))
    text = " ".join(" ".join(design_lines(d)).split())
    assert "Caution No plan is made of this run: Its score is not known. Or take" in text


def test_rates_that_cost_more_than_a_sweep_may_are_refused_and_a_far_batch_is_said(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.zeros(len(worlds), int))
    # 20 steps of 1,024 rollouts at seven rates, and two evaluations of each: 160k of 400k.
    poor = replace(LIMITS, budget=4e5, recipe=Recipe())
    _, d = design_sweep(ALIKE, Asked(limits=poor, draws=DRAWS))
    assert d["lr_sweep"] is None
    said = "is Qwen2.5-7B's, 1e-6: to try seven would take 40% of the budget, more than a sweep"
    assert any(one["code"] == "rates_unpaid" and said in one["text"] for one in d["notices"])
    assert "Rate    The learning rate is Qwen2.5-7B's, 1e-6:" in "\n".join(design_lines(d))
    _, d = design_sweep(ALIKE, Asked(limits=replace(poor, budget=4e6), draws=DRAWS))
    assert d["lr_sweep"]["rollouts"] == 7 * 39 * 1024
    assert d["lr_sweep"]["evaluation_rollouts"] == 7 * 2 * 1200
    # A rate that was given is of some batch of theirs: of 64 rollouts it knows nothing.
    rated = replace(LIMITS, price=Price(rates=Rates(rollouts_per_gpu_hour=1000)))
    for low, far in ((256, False), (512, True)):
        known = replace(ALIKE, batches=(low, 10**6))
        _, d = design_sweep(known, Asked(limits=rated, draws=DRAWS))
        assert (d["final"]["problems_per_batch"], d["final"]["rollouts_per_problem"]) == (16, 8)
        codes = [one["code"] for one in d["notices"]]
        assert ("rate_of_another_batch" in codes) == far
    assert "batches of 128 rollouts, far smaller than the published runs' (512" in " ".join(
        " ".join(design_lines(d)).split())  # fmt: skip


@pytest.mark.heavy
def test_the_shipped_panels_of_other_batches_stand_for_them() -> None:
    for difficulty, b_p, most in (("easy", 256, 256), ("hard", 256, 64), ("easy", 64, 512)):
        worlds = shipped_worlds(difficulty, 4, 0, b_p)
        assert worlds.sources == (f"published:qwen2.5-7b-{difficulty}-bp{b_p}",)
        assert (worlds.problems_per_batch, worlds.n_F[-1]) == (b_p, most)
    assert shipped_worlds("easy", 4, 0, 16).problems_per_batch == 32


def test_the_recipe_of_the_priors_runs_goes_before_the_difficultys(tmp_path: Path) -> None:
    words = {"learning_rate": 2e-6, "kl_coef": 0.0, "entropy_coef": 0.0, "temperature": 1.0}
    curves = [
        Curve(problems_per_batch=128, rollouts_per_problem=n, run=f"{n}", recorded=words,
              rollouts_K=np.array([0.0, 1e5]), score_K=np.array([0.1, 0.2]), response_limit=4096)
        for n in (16, 32)
    ]  # fmt: skip
    at = Configuration(128, 32)
    kept = kept_recipe(curves, "runs", "easy", at, given=False)
    assert kept.has_rate
    assert kept.words["kl_coef"] == kept.words["entropy_coef"] == 0.0
    assert (kept.words["learning_rate"], kept.words["base_batch_size"]) == (2e-6, 4096)
    assert kept.unsaid == ("clip_low", "clip_high", "top_p", "weight_decay", "max_grad_norm",
                           "warmup_steps")  # fmt: skip
    assert kept_recipe(curves, "runs", "easy", at, given=True).words.get("kl_coef") is None
    assert kept_recipe(curves, "grid:hard", "hard", at, given=False) == Kept()
    trainer = Trainer(engine="verl", model="M", kept=kept)
    sweep = Sweep(problems_per_batch=128, rollouts_per_problem=(32,), seeds=1,
                  rollouts_per_run=409_600)  # fmt: skip
    content = study_content(tmp_path / "s.yaml", sweep, trainer, final=sweep, problems=None,
                            price=Price())  # fmt: skip
    assert content["recipe"] == {"difficulty": "easy", **kept.words}
    assert content["engine_options"]["max_response_tokens"] == 4096
    d = {"notices": documented([notice("difficulty_assumed")])["notices"], "warnings": []}
    assert with_recipe(d, kept)["notices"] == []
    line = _recipe(with_recipe(d, kept))
    assert line[0].startswith("Recipe  as in the runs (lr 2e-6, KL 0, entropy 0, responses to")
    assert "not logged, so default: clip low, clip high, top p" in " ".join(" ".join(line).split())
    assert len(_recipe(with_recipe(d, kept), brief=True)) <= len(line)
    assert _recipe({"recipe": None}) == []
    # The file of another model has that model's rate, which is not the runs'.
    toy = {**with_recipe(d, kept), "learning_rate": {"value": 1e-3, "of": "bits-mlp"}}
    assert _recipe(toy)[0].startswith("Recipe  as in the runs (KL 0, entropy 0, responses to")
    bare = Kept(words={"learning_rate": 1e-6}, recorded=("learning_rate",), unsaid=("kl_coef",))
    bare_lines = _recipe({**toy, **with_recipe(d, bare), "learning_rate": toy["learning_rate"]})
    assert bare_lines == ["Recipe  not logged, so default: KL"]


def test_a_file_says_the_rate_of_each_batch_and_runs_are_priced_by_it(tmp_path: Path) -> None:
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 512), seeds=1,
                  rollouts_per_run=163_840)  # fmt: skip
    price = replace(DEAR, start=2.0, clocked=True)
    content = study_content(tmp_path / "s.yaml", sweep, Trainer(), final=1e6, problems=None,
                            price=price)  # fmt: skip
    rates = content["rates"]
    by_batch = [one["rollouts_per_gpu_hour"] for one in rates["by_batch"]]
    assert by_batch == pytest.approx([1000, 8000])
    assert (rates["gpu_hours_per_start"], rates["evaluations_timed"]) == (2.0, True)
    path = tmp_path / "s.yaml"
    path.write_text("\n".join(f"{k}: {json.dumps(v)}" for k, v in content.items()))
    study = planned_study(path, ["adaptive=false", "slices=[1]"])[0]
    cost = study_cost(study)
    hours = 163_840 / 1000 + 163_840 / 8000
    assert cost.gpu_hours == pytest.approx(hours + 2 * 2.0)  # evaluations are in the rates
    assert cost.usd == pytest.approx(2 * (hours + 4.0))
    drawn = [163_840 + run.evaluations * run.evaluation_rollouts for run in study.runs]
    assert cost.tokens == pytest.approx(drawn[0] * 200 + drawn[1] * 100)
    # A batch that nobody timed has the rate of the nearest; an older file has one for all.
    other = Allocation(problems_per_batch=16, rollouts_per_problem=256, steps=9)
    nearest = study.rates_by_batch.at(other, study.rates)
    assert nearest.rollouts_per_gpu_hour == pytest.approx(8000)
    assert RatesByBatch().at(other, study.rates) is study.rates


@pytest.mark.parametrize("rate", [2e6, 3e6, 7e5])  # 1 / (1 / 3e6) is another number
def test_a_rate_that_was_given_holds_until_the_runs_tell_their_own(
    tmp_path: Path, rate: float
) -> None:
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 32), seeds=1,
                  rollouts_per_run=163_840)  # fmt: skip
    known = Rates(rollouts_per_gpu_hour=rate, usd_per_gpu_hour=2.0)
    for rates, held in ((known, True), (replace(known, rollouts_per_gpu_hour=None), False)):
        content = study_content(tmp_path / "s.yaml", sweep, Trainer(), final=1e6, problems=None,
                                price=Price(rates=rates))  # fmt: skip
        assert ("by_batch" in content["rates"]) is held
        path = tmp_path / f"{held}.yaml"
        path.write_text("\n".join(f"{k}: {json.dumps(v)}" for k, v in content.items()))
        study, _ = planned_study(path, ["adaptive=false", "slices=[1]"])
        cost = study_cost(study).gpu_hours
        drawn = sum(run.allocation.rollouts + run.evaluations * run.evaluation_rollouts
                    for run in study.runs)  # fmt: skip
        assert cost == (pytest.approx(drawn / rate) if held else None)
        with contextlib.closing(Database(tmp_path / str(held), create=True)) as database:
            register(database, study)
        assert with_study_rates(str(tmp_path / str(held)), Rates()) == Rates(usd_per_gpu_hour=2.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("gpus", [[], ["--gpus", "1xH100", "--hours", "9"]])
def test_machines_of_the_embedded_engine_are_not_used_unasked(
    gpus: list[str], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--engine", "local", "--rollouts-per-gpu-hour", "1e5", "--draws", "4"]
    budget = [] if gpus else ["--budget", "9gpuh"]
    assert main(["design", *budget, *gpus, *words, "-o", "s.yaml"]) == 0
    assert ("s.yaml (local, on the CPU, " in capsys.readouterr().out) is bool(gpus)
    assert ("# Trains on the CPU. On a GPU: engine_options: {device: cuda}"
            in Path("s.yaml").read_text()) is bool(gpus)  # fmt: skip


# ---- the command ----


def problems_file(tmp_path: Path, size: int) -> str:
    path = tmp_path / "problems.jsonl"
    rows = ({"id": f"q{i}", "prompt": f"{i} + 1", "answer": str(i + 1)} for i in range(size))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


SITUATIONS: dict[str, list[str]] = {
    "eight H100 for a week, verl": [
        "--gpus", "8xH100", "--hours", "168", "--rollouts-per-gpu-hour", "900", "--engine", "verl",
        "--difficulty", "easy", "--model", "Qwen/Qwen2.5-7B-Instruct",
    ],
    "a laptop": ["--budget", "4e5"],
    "2,000 dollars": [
        "--budget", "$2000", "--rollouts-per-gpu-hour", "900", "--usd-per-gpu-hour", "2",
        "--engine", "trl", "--difficulty", "hard", "--spend", "0.3",
    ],
    "difficulty unknown": ["--budget", "3M"],
    "500 problems": ["--budget", "3M", "--problems", "500", "--difficulty", "easy"],
    "an older study": ["--budget", "8M", "--prior", "published:qwen2.5-7b-hard-bp64"],
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", SITUATIONS)
def test_six_situations_and_the_study_is_taken_as_it_is(
    name: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names are as short as a person's, wherever the tests run
    study, document = Path("sweep.yaml"), Path("d.json")
    train = ["--train", problems_file(tmp_path, 2000)] if "verl" in name else []
    asked = ["design", *SITUATIONS[name], *train, "--draws", "4", "-o", str(study)]
    assert main([*asked, "--json", str(document)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12
    assert all(len(line) <= 80 or str(tmp_path) in line for line in lines)
    d = json.loads(document.read_text())
    assert d["study"] == str(study)
    assert (d["answer"], d["written"]) == ("no_sweep", "run")
    codes = [one["code"] for one in d["notices"]]
    assert ("stand_ins" in codes) == ("verl" not in name)
    told = " ".join(" ".join(lines).split())
    lacks = ["--engine"] * ("--engine" not in asked) + ["--train", "--model"]
    assert (f". Pass {', '.join(lacks)}, or edit it." in told) == (
        "stand_ins" in codes and "--model" not in asked
    )
    # A model of one's own needs a learning rate first: half of what the sweep may spend.
    first = f"First isocompute lr-sweep {study} ("
    assert (first in told) == (d["lr_sweep"] is not None) == bool(
        {"--model", "--train", "--engine"} & {*asked})  # fmt: skip

    def estimated(command: list[str]) -> dict[str, Any]:
        assert main([*command, "--dry-run", "--json", str(document)]) == 0
        found: dict[str, Any] = json.loads(document.read_text())["estimate"]
        return found

    def agrees(found: dict[str, Any], part: dict[str, Any]) -> bool:
        assert [found[k] for k in ("rollouts", "evaluation_rollouts")] == [
            part[k] for k in ("rollouts", "evaluation_rollouts")]  # fmt: skip
        return all(found[k] == pytest.approx(part["cost"][k]) for k in ("gpu_hours", "usd"))

    if d["lr_sweep"] is not None:
        assert 0.4 * d["sweep"]["rollouts"] < d["lr_sweep"]["rollouts"] <= d["sweep"]["rollouts"]
        rates = estimated(["lr-sweep", str(study)])
        assert agrees(rates, d["lr_sweep"])
        assert rates["runs"] == d["lr_sweep"]["runs"]
    # The command that starts the run is copied from the screen; it trains what was advised, and
    # with what is asked for first it keeps to the budget.
    aside = "" if "stand_ins" not in codes else "   (of placeholders: a rehearsal)"
    assert lines[-1] == f"Start   isocompute run {study}{aside}"
    run = estimated(["run", str(study)])
    assert run["runs"] == 1
    assert agrees(run, d["final"])
    drawn = [p["rollouts"] + p["evaluation_rollouts"] for p in (d["final"], d["lr_sweep"]) if p]
    assert sum(drawn) <= d["budget_rollouts"]
    assert d["spent"]["amount"] <= d["budget"]["amount"]
    # The sweep that was not advised is written where it is asked for, and nowhere else.
    capsys.readouterr()
    assert main([*asked, "--sweep", "--json", str(document)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12
    swept = json.loads(document.read_text())
    assert (swept["answer"], swept["written"]) == ("no_sweep", "sweep")
    assert lines[-1] == f"Run     isocompute run {study}   (it stops by itself)"
    assert agrees(estimated(["run", str(study)]), d["sweep"])
    if swept["lr_sweep"] is not None:
        assert agrees(estimated(["lr-sweep", str(study)]), swept["lr_sweep"])
    # Seconds of this machine stand beside no GPU-hours of others, nor beside a sweep not advised.
    assert ("cores of this machine" in str(d.get("time"))) == (d["engine"] == "local")
    assert ("cores of this machine" in told) == (d["engine"] == "local")
    assert "cores of this machine" not in " ".join(lines)
    if d["lr_sweep"] is not None and "--model" in asked:
        assert "(verl): the run, at Qwen2.5-7B's learning rate, 1e-6 First" in told
    assert d["engine"] != "local" or d["sweep"]["cost"]["gpu_hours"] is None
    assert ("prior_alone" in codes) == ("easy" not in " ".join(asked) and name not in
                                        ("2,000 dollars", "an older study"))  # fmt: skip
    assert ("prior_of_others" in codes) == (name != "an older study")


@pytest.mark.usefixtures("quick")
def test_a_rate_of_gpus_leaves_the_time_of_this_machine_out(tmp_path: Path, capsys: Any) -> None:
    asked = ["design", "--budget", "400k", "--draws", "4", "-o", str(tmp_path / "sweep.yaml")]
    assert main([*asked, "--rollouts-per-gpu-hour", "900"]) == 0
    out = capsys.readouterr().out
    assert "GPU-hours" in out
    assert "cores of this machine" not in out


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_of_money_and_a_deadline_the_smaller_one_binds(capsys: Any) -> None:
    asked = ["design", "--draws", "4", "--rollouts-per-gpu-hour", "900", "--json", "-"]
    money = ["--budget", "2000usd", "--usd-per-gpu-hour", "2.5"]  # 800 GPU-hours
    found = []
    for words in (money, [*money, "--gpus", "8xH100", "--hours", "100"],
                  [*money, "--gpus", "8xH100", "--hours", "50"],
                  ["--gpus", "8xH100", "--hours", "50", "--usd-per-gpu-hour", "2.5"]):  # fmt: skip
        assert main([*asked, *words]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [(d["lacks"], d["time"], d["wall_s"]) for d in found] == [(None, None, None)] * 4
    rollouts = [d["final"]["rollouts"] for d in found]
    assert rollouts[0] == rollouts[1] > rollouts[2] == rollouts[3]
    said = [[n["text"] for n in d["notices"] if n["code"] == "deadline_binds"] for d in found]
    assert said == [[], [], [
        "Time binds: in 50 hours 8 GPUs train 50% of --budget."], []]


COMPLAINTS = {
    "a design needs --budget, or --gpus and --hours, but got neither; add --budget.": [],
    "but got --gpus; add --hours.": ["--gpus", "8xH100"],
    "but got --hours; add --gpus.": ["--hours", "8"],
    "but got --hours without --gpus; add --gpus.": ["--budget", "1M", "--hours", "8"],
    "a budget in GPU-hours needs the rollouts that a GPU trains on in an hour, but": [
        "--budget", "1M", "--gpus", "8", "--hours", "8"],
    "none is known for H100; add --rollouts-per-gpu-hour": ["--gpus", "8xH100", "--hours", "72"],
    "a budget in GPU-hours needs the rollouts that a GPU trains on in an hour, but none is known; "
    "add --rollouts-per-gpu-hour": ["--budget", "100gpuh", "--prior", "published:qwen2.5-7b-easy"],
    "as 64xH100 or 64, but got 'H100'": ["--gpus", "H100"],
    "in an hour and the price of a GPU-hour, but neither": ["--budget", "$50"],
    "the shipped sweeps hold avg@4, but got --metric best@4": [
        "--budget", "1M", "--metric", "best@4"],
    "must be at least 4, but got '2'": ["--budget", "1M", "--draws", "2"],
    "must be at most 2,000, but got '2001'": ["--budget", "1M", "--draws", "2001"],
    "one update of 32 problems": ["--budget", "100"],
    "must fill a batch (B_p = 64), but got 40; add problems, or lower --problems-per-batch.": [
        "--budget", "1M", "--problems", "40", "--problems-per-batch", "64"],
    "must fill a batch (B_p = 8), but got 7; add problems.\n": [
        "--budget", "1M", "--problems", "7"],
    "must fill a batch (B_p = 8), but got 1; add problems.\n": [
        "--budget", "1M", "--problems", "1", "-o", "s.yaml"],
    "a sweep needs 3 n": ["--budget", "20k"],
    "--validation needs problems to train on": [
        "--budget", "3M", "--validation", "x.jsonl", "-o", "s.yaml"],
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("message", COMPLAINTS)
def test_bad_input_is_one_line_with_the_cure(
    message: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = COMPLAINTS[message]
    draws = [] if "--draws" in asked else ["--draws", "4"]
    assert main(["design", *asked, *draws]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_a_prior_of_another_metric_is_refused(tmp_path: Path, capsys: Any) -> None:
    rows = ["problems_per_batch,rollouts_per_problem,rollouts,score,metric"]
    rows += [f"16,{n},{c},{0.3 + 0.02 * i},best@4" for n in (8, 32, 128) for i, c in
             enumerate((4096, 16384, 65536, 262144))]  # fmt: skip
    older = tmp_path / "older.csv"
    older.write_text("\n".join(rows) + "\n")
    asked = ["design", "--budget", "3M", "--prior", str(older), "--draws", "4"]
    assert main(asked) == 2
    assert "must hold the metric to plan for, avg@k, but" in capsys.readouterr().err
    assert main([*asked, "--metric", "best@4"]) == 0


@pytest.mark.usefixtures("quick")
def test_a_file_that_run_would_refuse_is_not_left(tmp_path: Path, capsys: Any) -> None:
    study = tmp_path / "sweep.yaml"
    study.write_text("kept")
    train = problems_file(tmp_path, 2000)
    asked = ["design", "--budget", "3M", "--draws", "4", "--train", train, "-o", str(study)]
    # verl cannot spread 32 x 8 rollouts over 24 GPUs
    verl = ["--engine", "verl", "--model", "M", "--gpus", "24"]
    assert main([*asked, *verl]) == 2
    assert "must be a multiple of the GPUs" in capsys.readouterr().err
    assert study.read_text() == "kept"
    assert main([*asked, "--problems", "1900"]) == 2
    assert "at most what --train holds (1700), but got 1900" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_problems_held_out_are_not_trained_on(tmp_path: Path) -> None:
    from isocompute.runner import open_study

    study = tmp_path / "deep" / "sweep.yaml"
    study.parent.mkdir()
    train = problems_file(tmp_path, 1000)
    asked = ["design", "--budget", "3M", "--draws", "4", "--train", train]
    asked += ["--engine", "verl", "--model", "M"]
    assert main([*asked, "--problems", "600", "-o", str(study)]) == 0
    run = open_study(study).runs[0]
    assert (len(run.train), len(run.validation["all"])) == (600, 200)
    prompts = {p.prompt for p in run.train.problems}
    assert not prompts & {p.prompt for p in run.validation["all"].problems}


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_evaluations_cost_what_the_study_will_draw(tmp_path: Path, capsys: Any) -> None:
    from isocompute.engines import evaluations_drawn
    from isocompute.runner import open_study

    train, study = problems_file(tmp_path, 1000), tmp_path / "s.yaml"
    own = tmp_path / "val.jsonl"
    own.write_text("".join(f'{{"prompt": "v{i}", "answer": "{i}"}}\n' for i in range(50)))
    asked = ["design", "--budget", "3M", "--draws", "4", "--train", train, "--engine", "verl",
             "--model", "M", "-o", str(study), "--json", "-"]  # fmt: skip
    for more, evaluated in (([], 200), (["--validation", str(own)], 50)):
        assert main([*asked, *more]) == 0
        said = json.loads(capsys.readouterr().out)["final"]
        runs = open_study(study).runs
        assert {len(run.validation["all"]) for run in runs} == {evaluated}
        drawn = sum(evaluations_drawn(run) * evaluated * 4 for run in runs)
        assert said["evaluation_rollouts"] == drawn


def test_a_study_says_target_rates_and_machines(tmp_path: Path) -> None:
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 64), seeds=2,
                  rollouts_per_run=200_000)  # fmt: skip
    of = {"final": 2e6, "problems": 100, "price": Price(rates=Rates(usd_per_gpu_hour=2.0))}
    for gpus, machines in ((16, (2, 8)), (12, (2, 6)), (4, (1, 4)), (None, (None, None))):
        trainer = Trainer(engine="verl", model="M", gpus=gpus, difficulty="hard")
        content = study_content(tmp_path / "s.yaml", sweep, trainer, **of)
        options = content["engine_options"]
        assert (options.get("nodes"), options.get("gpus_per_node")) == machines
    assert content["recipe"] == {"difficulty": "hard"}
    assert content["adaptive"] == {"target": 2_000_000, "spend": sweep.rollouts}
    assert content["rates"] == {"usd_per_gpu_hour": 2.0}
    assert content["problems"]["train"]["options"]["size"] == 100
    assert content["grid"] == {
        "problems_per_batch": 16, "rollouts_per_problem": [8, 64], "seeds": 2,
    }  # fmt: skip
    with pytest.raises(InputError, match="GPUs must fill nodes of at most 8 evenly, but got 9"):
        study_content(tmp_path / "s.yaml", sweep, replace(trainer, gpus=9), **of)


def test_a_model_that_is_named_keeps_its_own_learning_rate(tmp_path: Path) -> None:
    sweep = Sweep(problems_per_batch=8, rollouts_per_problem=(4, 16), seeds=1,
                  rollouts_per_run=4096)  # fmt: skip
    of = {"final": 1e5, "problems": None, "price": Price()}
    shipped = study_content(tmp_path / "s.yaml", sweep, Trainer(engine="trl"), **of)
    assert "learning_rate" not in shipped["recipe"]  # it only stands in
    toy = study_content(tmp_path / "s.yaml", sweep, Trainer(engine="local"), **of)
    assert toy["recipe"]["learning_rate"] == 1e-3
    assert "max_new_tokens" not in shipped["engine_options"]  # its folder says it
    named = Trainer(engine="trl", model="Qwen/Qwen2.5-0.5B-Instruct")
    content = study_content(tmp_path / "s.yaml", sweep, named, **of)
    assert "learning_rate" not in content["recipe"]
    assert content["engine_options"]["max_new_tokens"] == 1024


NO_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
from isocompute.cli import main
from isocompute.design import judge

judge.planned = lambda worlds, *_: np.ones(len(worlds), int)  # not simulated, as in `quick`
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.heavy
@pytest.mark.parametrize("engine", ["local", "verl"])
def test_a_design_needs_no_torch(tmp_path: Path, engine: str) -> None:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", NO_TORCH, *words], cwd=tmp_path,
                              capture_output=True, text=True, check=False)  # fmt: skip

    asked = ["--budget", "5e6", "--draws", "4", "--engine", engine, "-o", "sweep.yaml"]
    done = call("design", *asked)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    lacks = "the engine local needs the package 'torch', which is not installed"
    assert (f"To train it here: {lacks}; pip install 'isocompute[local]'." in said) == (
        engine == "local"
    )
    for command in ("run", "lr-sweep"):
        dry = call(command, "sweep.yaml", "--dry-run")
        assert dry.returncode == 0, dry.stderr
        assert (lacks in " ".join(dry.stdout.split())) == (engine == "local")
        if engine == "local":
            real = call(command, "sweep.yaml")
            assert (real.returncode, lacks in real.stderr) == (2, True)


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_a_design_says_how_answers_are_checked(tmp_path: Path, capsys: Any) -> None:
    train, study = problems_file(tmp_path, 2000), tmp_path / "sweep.yaml"
    asked = ["design", "--budget", "3M", "--draws", "4", "--train", train, "-o", str(study),
             "--engine", "verl", "--model", "Qwen/Qwen2.5-7B-Instruct"]  # fmt: skip
    assert main(asked) == 0
    text = study.read_text()
    assert text.count('"verifier": "exact"') == 2
    assert "# Answers are checked by `verifier`: exact (the whole response is the answer)" in text
    assert main([*asked, "--verifier", "integer"]) == 0
    assert study.read_text().count('"verifier": "integer"') == 2
    capsys.readouterr()
    assert main(["run", str(study), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "\nTrains with verl in python3; set engine_options.python for another.\n" in said
    assert "\nGPU-hours: give rates.rollouts_per_gpu_hour.\n" in said
    more = ["engine_options.python=/opt/verl/bin/python", "rates.rollouts_per_gpu_hour=900"]
    assert main(["run", str(study), "--dry-run", *more]) == 0
    said = capsys.readouterr().out
    assert "\nTrains with verl in /opt/verl/bin/python.\n" in said
    assert "give rates" not in said
    assert main(["design", "--budget", "3M", "--for", "verl"]) == 2
    assert "unknown option --for, did you mean --engine?" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_a_plan_hands_difficulty_and_trainer_on_to_a_design_that_takes_them(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["plan", "published:qwen2.5-7b-hard", "--budget", "4.6e6", "--json", "plan.json"]
    for more, passed in (
        (["--difficulty", "hard", "--for", "verl"], "--difficulty hard --engine verl "),
        (["--for", "slime"], ""),  # for which no study is written
    ):
        assert main([*asked, *more]) == 0
        steps = json.loads(Path("plan.json").read_text())["run_next"]
        command = next(s["command"] for s in steps if s["settles"] == "law_of_another_model")
        assert command == f"isocompute design --budget 4.6e6 {passed}-o study.yaml"
        shown = " ".join(capsys.readouterr().out.replace("\\\n", "").split())
        assert command in shown
        assert main([*shlex.split(command)[1:], "--draws", "4"]) == 0


VERL = ["--engine", "verl", "--model", "Qwen/Qwen2.5-7B-Instruct"]


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_a_verl_sweep_that_is_adaptive_can_stop_its_runs(tmp_path: Path, capsys: Any) -> None:
    from isocompute.runner import open_study

    study = tmp_path / "sweep.yaml"
    asked = ["design", "--budget", "3M", "--draws", "4", "--sweep", "-o", str(study), *VERL]
    assert main(asked) == 0
    grid = open_study(study).grid()
    # An eighth, a quarter, a half, the whole of each run: it may be stopped at three places.
    for configuration, steps in grid.steps.items():
        batch = configuration.batch_size
        shares = (1 / 8, 1 / 4, 1 / 2, 1)
        assert grid.levels(configuration) == [int(steps * share) * batch for share in shares]
    assert open_study(study, ["adaptive=false"]).slices == (1.0,)
    assert open_study(study, ["slices=[0.5, 1]"]).slices == (0.5, 1.0)
    for more, says in (([], "It stops by itself"), (["slices=[1]"], "Every run trains to its end")):
        capsys.readouterr()
        assert main(["run", str(study), "--dry-run", *more]) == 0
        out = capsys.readouterr().out
        assert says in out
        assert ("It stops by itself" in out) == (not more)


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("engine", ["verl", "trl"])
def test_a_trainer_that_is_not_installed_is_one_line_before_any_attempt(
    engine: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bare = tmp_path / "python"  # has no package but its own
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    asked = ["design", "--budget", "3M", "--draws", "4", "-o", "s.yaml", "--engine", engine]
    assert main(asked) == 0
    said = f"{engine} must be installed in the Python that trains, but {bare} does not have it; set"
    capsys.readouterr()
    python = f"engine_options.python={bare}"
    assert main(["run", "s.yaml", "--dry-run", python]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    for command in ("run", "lr-sweep"):
        assert main([command, "s.yaml", python]) == 2
        found = capsys.readouterr().err
        assert found.count(said) == 1
        assert "attempt" not in found
        assert "Traceback" not in found
    gone = "engine_options.python=/no/python"
    assert main(["run", "s.yaml", gone]) == 2
    cure = f"must be a Python that has {engine}, but '/no/python' gives No such file or directory"
    assert cure in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"python", "s.yaml"}  # nothing is left


# ---- what a stranger missed ----


def test_the_file_of_a_run_holds_one_n_one_seed_its_budget_and_where_rates_are_tried(
    tmp_path: Path,
) -> None:
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 64), seeds=2,
                  rollouts_per_run=200_000)  # fmt: skip
    limits = replace(LIMITS, recipe=Recipe())
    final, tried = limits.final(sweep, 512, 3e6), limits.first(replace(sweep, seeds=1))
    assert tried is not None
    assert tried.runs == 7  # one seed, as the run has
    content = study_content(tmp_path / "s.yaml", sweep, Trainer(engine="verl", model="M"),
                            final=final, tried=tried, problems=None, price=Price())  # fmt: skip
    assert content["grid"] == {
        "problems_per_batch": 16, "rollouts_per_problem": [512], "seeds": 1,
    }  # fmt: skip
    assert content["budget"] == final.rollouts == final.steps(512) * 16 * 512
    assert "adaptive" not in content
    # The batch nearest to 1,024: 16 x 64. Half of the 600k that a sweep may take, less two
    # evaluations of each of seven rates, would pay for 39 steps.
    steps = int((300_000 - 7 * 2400) / 7 / 1024)
    assert content["lr_sweep"] == {"rollouts_per_problem": 64, "steps": steps}
    assert steps == 39
    swept = limits.first(sweep)
    assert swept is not None
    assert swept.runs == 14


def asked_for(*more: str) -> list[str]:
    return ["design", "--gpus", "16xH200", "--hours", "336", "--rollouts-per-gpu-hour", "1200",
            "--draws", "4", *VERL, *more]  # fmt: skip


@pytest.mark.usefixtures("quick")
def test_a_part_of_the_budget_that_was_not_tested_and_a_rate_to_give(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for spend, swept in (("0.15", 0.018), ("0.4", None)):
        asked = ["design", "--budget", "5e6", "--draws", "4", "--spend", spend, "--model", "m/7b"]
        assert main([*asked, "--engine", "verl", "-o", "s.yaml", "--json", "d.json"]) == 0
        across = json.loads(Path("d.json").read_text())["worth"]["across_models"]
        assert across == {"without": 0.018, "after": swept}
    text = " ".join(capsys.readouterr().out.split())
    assert " of 5M rollouts; GPU-hours: give --rollouts-per-gpu-hour Worth" in text


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_what_speaks_against_the_answer_stands_below_it_and_the_rest_under_why(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = asked_for("--difficulty", "easy", "--problems", "20", "--json", "d.json")
    assert main(asked) == 0
    short = capsys.readouterr().out
    d = json.loads(Path("d.json").read_text())
    # The longest published run at n = 512 has 4.06M rollouts, 1.3 passes over 6,000 problems.
    n, passes = d["final"]["rollouts_per_problem"], d["passes_over_data"]["final"]
    said = f"Caution {passes:.0f} passes over 20 problems; the published runs made"
    assert n == 512
    assert passes == d["final"]["rollouts"] / n / 20
    assert passes > 100  # so much speaks against it that it comes first
    assert " ".join(short.split()).startswith(f"{said} 1.3 at most at n = 512. Add")
    codes = [one["code"] for one in d["notices"]]
    assert codes[:2] == ["passes_beyond_prior", "problems_fewer_than_prior"]
    assert codes.index("problems_fewer_than_prior") < codes.index("prior_of_others")
    assert "Passes " not in short
    assert " more: --why" in " ".join(short.split())
    assert main([*asked, "--why"]) == 0
    out = capsys.readouterr().out
    long, after = " ".join(out.split()), d["worth"]["after"]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert " more: --why" not in long
    for one in d["notices"]:
        assert f"{one['level']}: {one['text']} {one['remedy']} [{one['code']}]" in long
        assert f"[{one['code']}]" not in short
    choice, best = (f"{after[k]:.3f}" for k in ("choice", "choice_at_best"))
    assert f"that loses {choice}, or {best} if it were sure which is best." in long
    hours = d["sweep"]["cost"]["gpu_hours"]
    assert f"Its cost ({hours:.0f} GPU-hours, {hours / 16 / 24:.1f} days) loses " in long
    lost = {g["rollouts_per_problem"]: g["loss"] for g in d["worth"]["guesses"]}
    assert f"Against n = 512: n = 256 loses {lost[256] - lost[512]:.3f} more." in long
    # As many problems as the prior's: nothing speaks against it.
    assert main([*asked, "--problems", "6000"]) == 0
    assert "Caution" not in capsys.readouterr().out


@pytest.mark.heavy
def test_a_prior_knows_the_passes_of_its_longest_run_of_the_nearest_n() -> None:
    worlds = replace(APART, problems=1000, longest_of={8: 8e5, 64: 3.2e6})
    assert [worlds.passes(n) for n in (8, 16, 128)] == [100.0, 100.0, 50.0]
    assert APART.passes(8) is None
    assert shipped_worlds("easy", 8, 0).passes(512) == pytest.approx(1.32, abs=0.01)


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_difficulty_is_taken_from_pass_rates_that_every_problem_has(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    length = 0

    def designed(rates: list[float | None], *more: str) -> tuple[dict[str, Any], str, str]:
        nonlocal length
        rows = [{"prompt": f"p{i}", "answer": "1"} for i in range(2000)]
        for i, row in enumerate(rows):
            if (rate := rates[i % len(rates)]) is not None:
                row["pass_rate"] = rate  # type: ignore[assignment]
        Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        more = ("--train", "train.jsonl", "-o", "s.yaml", "--json", "d.json", *more)
        assert main(asked_for(*more)) == 0
        text = capsys.readouterr().out
        out, length = " ".join(text.split()), len(text.splitlines())
        assert length <= 12
        return json.loads(Path("d.json").read_text()), out, Path("s.yaml").read_text()

    # The bounds are those of `isocompute difficulty`: 0.0625 and 0.3, a quarter on each side.
    for rates, found in (([0.5, 0.4], "easy"), ([0.0, 0.05], "hard"), ([0.0, 0.5], "mixed")):
        d, out, study = designed([*rates])
        assert d["difficulty"] == found
        # Where there is no room for both (12 lines), the n that are as good stay, and the worth.
        said = f"Set {found} by --train's pass rates, if at temperature 0.6; or --difficulty"
        assert said in out or "As good n = " in out or length > 10
        assert f'recipe: {{"difficulty": "{found}"}}' in study
        assert d["prior"]["sources"][0] == (
            "published:qwen2.5-7b-" + {"mixed": "hard"}.get(found, found))  # fmt: skip
    d, out, study = designed([0.0], "--difficulty", "easy")
    assert (d["difficulty"], "Pass rates in --train say hard" in out) == ("easy", True)
    assert 'recipe: {"difficulty": "easy"}' in study
    d, out, _ = designed([0.0, None])  # some are not measured
    assert d["difficulty"] is None
    assert "Set --difficulty" in out
    d, _, _ = designed([0.2])
    assert "between_bands" in [one["code"] for one in d["notices"]]


@pytest.mark.parametrize(("more", "message"), [
    (["--verifier", "math"], "verifier 'math' must load, but"),
    (["--verifier", "none.py:check"], "with a file that exists, but got 'none.py:check'"),
    (["--gpus", "24xH200"], "must be a multiple of the GPUs"),
    (["--gpus", "9xH200"], "GPUs must fill nodes of at most 8 evenly, but got 9"),
])  # fmt: skip
def test_what_needs_no_simulation_is_refused_before_it(
    more: list[str], message: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> Worlds:
        raise AssertionError("simulated")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("isocompute.design.shipped_worlds", never)
    lacks = "ModuleNotFoundError: No module named 'math_verify'"
    monkeypatch.setattr(WorkerVerifier, "_ensure_started", lambda _: lacks)
    train = problems_file(tmp_path, 2000)
    assert main(asked_for("--train", train, "-o", "s.yaml", *more)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("s.yaml").exists()


@pytest.mark.parametrize(("more", "message"), [
    (["--budget", "100"], "must hold one update of 32 problems with n = 8 (256 rollouts), but got"),
    (["--budget", "3M", "--max-batch", "16"], "but got --max-batch 16; raise it"),
    (["--budget", "3M", "--spend", "15"], "must be below 100%, but got '15'; write 15% for 0.15"),
    (["--budget", "3M", "--spend", "200%"], "must be below 100%, but got '200%'; see"),
])  # fmt: skip
def test_limits_that_hold_nothing_are_refused_before_the_worlds_are_made(
    more: list[str], message: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isocompute.design.shipped_worlds", None)
    assert main(["design", *more]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("engine", "tokens", "limit", "said"), [
    ("verl", "10000", 32768, True), ("verl", "4097", 16384, True), ("verl", "4096", 8192, False),
    ("trl", "600", 2048, True), ("trl", "300", 1024, False),
])  # fmt: skip
def test_responses_are_cut_at_twice_their_mean_or_later(
    engine: str, tokens: str, limit: int, *, said: bool, tmp_path: Path, capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    asked = asked_for("--engine", engine, "--tokens-per-rollout", tokens, "-o", "s.yaml", "--why")
    assert main(asked) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (f"Responses are cut at {limit:,} tokens" in out) == said
    study, word = Path("s.yaml").read_text(), {"trl": "max_new_tokens"}.get(
        engine, "max_response_tokens")  # fmt: skip
    assert f"Responses are cut at {word} ({limit})" in study
    assert (f'"{word}": {limit}' in study) == (said or engine == "trl")


@pytest.mark.usefixtures("quick")
def test_hours_on_a_clock_and_what_all_takes_of_the_budget(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = []
    rate = ["--rollouts-per-gpu-hour", "1200", "--difficulty", "easy", "--draws", "4", *VERL]
    for budget in (["--gpus", "16xH200", "--hours", "14d"], ["--budget", "16gpux14d"]):
        assert main(["design", *budget, *rate, "-o", "s.yaml", "--json", "d.json"]) == 0
        shown.append(capsys.readouterr().out)
        d = json.loads(Path("d.json").read_text())
        for part in ("final", "lr_sweep", "sweep"):
            assert d[part]["hours"] == pytest.approx(d[part]["cost"]["gpu_hours"] / 16)
        both = d["final"]["cost"]["gpu_hours"] + d["lr_sweep"]["cost"]["gpu_hours"]
        assert d["spent"] == {"amount": pytest.approx(both), "unit": "gpu_hours"}
        assert f"{both:,.0f} of 5,376" in shown[-1]
        assert '"nodes": 2, "gpus_per_node": 8' in Path("s.yaml").read_text()
    assert shown[0] == shown[1]
    words = " ".join(shown[0].split())
    assert " GPU-hours, 13 days (your rate, starts of verl apart); with the learning rate " in words
    assert f"{d['lr_sweep']['hours']:.0f} hours, " in shown[0]
    assert main(["design", "--budget", "5376gpuh", *rate]) == 0  # on how many is not known
    assert " days" not in capsys.readouterr().out


@pytest.mark.heavy
@pytest.mark.usefixtures("quick")
def test_an_arm_of_the_prior_is_chosen_with_where(capsys: Any) -> None:
    asked = ["design", "--budget", "3M", "--draws", "4", "--prior", "grid:anchor"]
    assert main(asked) == 2
    assert "choose one with --where arm=NAME" in capsys.readouterr().err
    found = []
    for arm in ("rate-1e-3", "rate-5e-4"):
        assert main([*asked, "--where", f"arm={arm}", "--json", "-"]) == 0
        found.append(json.loads(capsys.readouterr().out))
        assert found[-1]["prior"]["sources"] == [f"grid:anchor[arm={arm}]"]
    assert found[0]["worth"] != found[1]["worth"]
    assert main(["design", "--budget", "3M", "--where", "arm=x"]) == 2
    assert "--where chooses runs of --prior, but got --where arm=x" in capsys.readouterr().err
    assert main(["design", "--budget", "3M", "--sweep"]) == 2
    assert "--sweep needs a file to write, but there is no -o" in capsys.readouterr().err


def test_why_a_sweep_loses_more_is_said_in_a_clause(monkeypatch: Any) -> None:
    # n = 512 is best in every world by 0.02 for each octave; the sweep holds 256 at most.
    monkeypatch.setattr(sweeps, "SHAPES", ((3, 1, 1),))
    monkeypatch.setattr(judge, "planned", lambda worlds, *_: np.full(len(worlds), 4))
    worlds = planted([DOWN[::-1]] * SIZE)
    poor = Limits(budget=3e6, spend=0.15, n_F=N)
    (sweep, *_), d = design_sweep(worlds, Asked(limits=poor, draws=DRAWS, problems_per_batch=32))
    assert sweep.rollouts_per_problem[-1] < 512 == d["final"]["rollouts_per_problem"]
    octaves = np.log2(512 / sweep.rollouts_per_problem[-1])
    after = d["worth"]["after"]
    assert after["choice_at_best"] == pytest.approx(0.02 * octaves, abs=1e-3)
    assert after["choice"] == pytest.approx(0.04, abs=1e-3)
    assert "which cannot reach n = 512" in " ".join(" ".join(design_lines(d)).split())
    d["worth"]["after"]["largest_n"] = 512
    assert "which does not try n = 512" in " ".join(" ".join(design_lines(d)).split())
    d["sweep"]["rollouts_per_problem"].append(512)
    assert "whose runs are too short to tell" in " ".join(" ".join(design_lines(d)).split())


def test_which_difficulty_was_taken_is_said_by_the_notice_of_it_alone() -> None:
    of = {"difficulty": "easy", "learning_rate": {"temperature": 0.7}}
    few = {"code": "few_validation", "text": "few"}
    assert _set({**of, "notices": [few]}) == []
    taken = {"code": "difficulty_of_file", "text": "-"}
    assert " ".join(" ".join(_set({**of, "notices": [few, taken]})).split()) == (
        "Set easy by --train's pass rates, if at temperature 0.7; or --difficulty"
    )
    against = {"code": "difficulty_against_file", "text": "the file says hard"}
    (line,) = _set({**of, "notices": [against]})
    assert line.split() == ["Set", *against["text"].split()]
    alone = {"code": "prior_alone", "text": "-"}
    assert _set({**of, "notices": [few, alone]})[0].split()[:2] == ["Set", "--difficulty:"]


def test_worlds_are_moved_by_decades_and_octaves_and_never_fall() -> None:
    """Scores 0.02 log2 n + 0.05 x, seen s decades later and o octaves of n higher."""
    def scores(b_p: int, log2_n_N: Any, x_X: Any) -> Any:
        return 0.02 * log2_n_N[None, :, None] + 0.05 * x_X

    rising: Any = SimpleNamespace(seed=0, smooth_scores=lambda *at: scores(*at).repeat(2, axis=0))
    shift, octaves = np.array([0.0, 0.3]), np.array([0.0, -0.5])
    moved = _moved(rising, 16, [8, 16, 32], shift, octaves)
    x_X = _X
    assert moved[0] == pytest.approx(scores(16, np.array([3, 4, 5]), x_X)[0])
    assert moved[1] == pytest.approx(scores(16, np.array([3.5, 4.5, 5.5]), x_X - 0.3)[0])
    falling: Any = SimpleNamespace(seed=0, smooth_scores=lambda b, n, x: scores(b, n, -x))
    (best,) = _moved(falling, 16, [8, 16], shift[:1], octaves[:1])  # of the checkpoints so far
    assert best == pytest.approx(np.repeat(best[:, :1], len(x_X), axis=1))


@pytest.mark.parametrize("clocked", [True, False])
def test_hours_on_a_clock_hold_the_evaluations_and_tokens_never_do(clocked: bool) -> None:
    """Two runs of 1,280 rollouts and what their evaluations draw, at 10 tokens and 36 s each."""
    def cost(drawn: Any, *, starts: int, runs: Any) -> dict[str, Any]:
        total = sum(drawn.values())
        assert (starts, runs) == (6, {Configuration(16, 8): 1280})
        return {"tokens": 10 * total, "gpu_hours": total / 100,
                "at_least": {"tokens": 5 * total, "gpu_hours": total / 200}}  # fmt: skip

    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8,), seeds=2, rollouts_per_run=1280)
    limits: Any = SimpleNamespace(
        price=SimpleNamespace(clocked=clocked, cost=cost, to_dict=lambda *of: of),
        budget=1e4, starts=lambda _: 6, trained=lambda _: 2560.0,
        evaluated_for=lambda _: 500.0, started_for=lambda _: 100.0,
    )
    drawn = 2560 + sweep.evaluations
    timed = 2560 if clocked else drawn
    spent = choose._spent(limits, sweep)
    assert spent["cost"] == {
        "tokens": 10 * drawn, "gpu_hours": timed / 100,
        "at_least": {"tokens": 5 * drawn, "gpu_hours": timed / 200},
        "source": (Configuration(16, 8), 1280),
    }  # fmt: skip
    assert sweep.evaluations > 0
    shares = ("share", "evaluation_share", "start_share")
    assert [spent[name] for name in shares] == [0.256, 0.05, 0.01]
