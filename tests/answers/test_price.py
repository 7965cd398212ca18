"""What rollouts cost: rates in the runs themselves, by configuration, worked out by hand."""

from __future__ import annotations

import json
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.allocation import Budget, Rates
from isocompute.answers import advice_lines, plan_budget, plan_from_source
from isocompute.answers.fit import fit_sweep
from isocompute.answers.machines import doubt_words
from isocompute.answers.metered import Meter
from isocompute.answers.prescribe import Question
from isocompute.answers.price import Price, counted_in, priced, timed, unit_paid_in
from isocompute.answers.spending import filled, within
from isocompute.answers.step_lines import checks, paid_words, rate_words, source_words, with_checks
from isocompute.answers.steps import (
    Runs,
    amounts,
    evaluated_as,
    first_to,
    only,
    priced_remedy,
    steps_take,
)
from isocompute.answers.verdict import seeds as more_runs
from isocompute.cli import main
from isocompute.design.candidates import Limits, candidates
from isocompute.design.simulate import Sweep
from isocompute.domain import Configuration, Curve, Work, notice
from isocompute.domain.text import compact
from isocompute.engines import problem_generators, register_engine
from isocompute.engines.local.engine import LocalEngine
from isocompute.errors import InputError
from isocompute.importers.values.timing import gpu_hours, gpus_by_throughput, said_of, times_of
from isocompute.report.facts import _cost as cost_words
from isocompute.runner import run_study
from isocompute.sources import load_curves
from isocompute.sources.studies import study_facts, with_own_start
from isocompute.store import Store
from isocompute.store.starts import Starts
from isocompute.store.status import study_status
from isocompute.study import load_study
from isocompute.study.evaluated import Evaluated
from isocompute.study.rates import RatesByBatch
from isocompute.testing.planted import NOISE, WORLDS
from study_helpers import edit

SIDE: dict[str, dict[int, float]] = {
    "seconds": {}, "runtime": {}, "train_runtime": {}, "throughput": {}, "total": {},
}  # fmt: skip


def speed_of(price: Price, c: Configuration) -> float | None:
    return price.of(c).rollouts_per_gpu_hour


def speeds_of(price: Price) -> dict[Configuration, float]:
    return {c: 1 / line.each() for c, line in price.hours.items()}


def curve(n: int, hours: float | None, rollouts: float = 1e5) -> Curve:
    x = rollouts * np.array([0.0, 0.01, 0.1, 0.5, 1.0])
    spent = None if hours is None else x / rollouts * hours
    return Curve(
        problems_per_batch=16, rollouts_per_problem=n, run=f"{n}-{hours}", rollouts_K=x,
        score_K=np.array([0.2, 0.3, 0.4, 0.45, 0.5]), gpu_hours_K=spent,
    )  # fmt: skip


# ---- rates by configuration ----


def test_rates_are_found_in_the_runs_and_lie_on_a_line_between_batches() -> None:
    runs = [curve(8, 100), curve(8, 90), curve(8, 120), curve(32, 62.5), curve(128, 25)]
    price = priced(runs, Rates(usd_per_gpu_hour=2.0))
    assert speeds_of(price) == {
        Configuration(16, 8): pytest.approx(1000), Configuration(16, 32): pytest.approx(1600),
        Configuration(16, 128): pytest.approx(4000),
    }  # fmt: skip
    assert price.rates.rollouts_per_gpu_hour == pytest.approx(1600)
    assert price.origin == {"rollouts_per_gpu_hour": "sweep"}
    # Updates of 128, 512 and 2,048 take 0.128, 0.32 and 0.512 hours: a third of the way, 0.384.
    assert speed_of(price, Configuration(32, 32)) == pytest.approx(1024 / 0.384)
    assert speed_of(price, Configuration(16, 512)) == pytest.approx(8192 / (0.512 + 4 * 0.192))
    assert speed_of(price, Configuration(8, 8)) == pytest.approx(64 / (0.128 - 64 * 0.0005))
    assert speed_of(price, Configuration(1, 1)) == pytest.approx(1 / (0.128 - 127 * 0.0005))
    one = priced(runs[-1:], Rates())
    assert [speed_of(one, Configuration(b, 8)) for b in (1, 64, 512)] == pytest.approx([4000] * 3)
    # An update that takes longer where its batch is smaller has no fixed part below zero.
    odd = priced([curve(8, 100), curve(32, 10)], Rates())
    assert speed_of(odd, Configuration(16, 128)) == pytest.approx(2048 / (512 / 1e4))
    cost = price.of(Configuration(16, 128)).cost(8000)
    assert cost == {"tokens": None, "gpu_hours": pytest.approx(2), "usd": pytest.approx(4)}


def test_others_are_priced_by_runs_that_cut_responses_where_most_do() -> None:
    short = [curve(8, 100), curve(32, 62.5), curve(64, 40)]
    runs = [c.replace(response_limit=1024, tokens_K=300 * c.rollouts_K) for c in short]
    long = curve(16, 200).replace(response_limit=2048)
    long = long.replace(tokens_K=900 * long.rollouts_K)
    alone, beside = priced(runs, Rates()), priced([*runs, long], Rates())
    for other in (Configuration(32, 16), Configuration(8, 8), Configuration(16, 128)):
        assert beside.of(other).rollouts_per_gpu_hour == alone.of(other).rollouts_per_gpu_hour
        assert beside.of(other).tokens_per_rollout == pytest.approx(300)
    itself = beside.of(long.configuration)
    assert (itself.rollouts_per_gpu_hour, itself.tokens_per_rollout) == pytest.approx((500, 900))


def test_an_n_that_nobody_ran_is_priced_by_the_tokens_that_its_score_takes() -> None:
    runs = [c.replace(tokens_K=each * c.rollouts_K)
            for c, each in ((curve(8, None), 400), (curve(128, None), 600))]  # fmt: skip
    price, meter = priced(runs, Rates()), Meter(runs, [c.configuration for c in runs], "tokens")
    for n in (32, 256):
        c, tokens = Configuration(16, n), 1e7
        (scored,) = 10 ** meter.rollouts_of(np.array([16.0 * n]), np.log10([tokens]))[:, 0]
        assert price.buys(Budget(amount=tokens, unit="tokens"), c) == pytest.approx(scored)
    # At another B_p responses are as long.
    assert price.of(Configuration(64, 8)).tokens_per_rollout == pytest.approx(400)


def test_a_rate_that_is_given_holds_for_all() -> None:
    price = priced([curve(8, 100), curve(32, 50)], Rates(rollouts_per_gpu_hour=700.0))
    assert speeds_of(price) == {}
    assert price.off(Configuration(16, 8)) is None
    assert speed_of(price, Configuration(16, 8)) == 700
    assert speed_of(Price(), Configuration(16, 8)) is None
    assert speeds_of(priced([curve(8, None)], Rates())) == {}


def test_curves_without_times_take_the_rate_for_all() -> None:
    known, unknown = timed([curve(8, 100), curve(8, None)], Rates(rollouts_per_gpu_hour=500.0))
    assert known.gpu_hours_K is not None
    assert unknown.gpu_hours_K is not None
    assert (known.gpu_hours_K[-1], unknown.gpu_hours_K[-1]) == (100, 200)
    assert timed([curve(8, None)], Rates())[0].gpu_hours_K is None


def test_the_middle_of_two_runs_is_between_them() -> None:
    # The larger one counted before: 300 for 100 and 300 GPU-hours.
    price = priced([curve(8, 100), curve(8, 300)], Rates())
    assert speed_of(price, Configuration(16, 8)) == pytest.approx(1e5 / np.sqrt(100 * 300))


def test_how_far_off_a_time_may_be_is_said_only_where_the_runs_tell() -> None:
    measured, between, larger = (Configuration(16, n) for n in (32, 48, 1024))
    three = priced([curve(8, 100), curve(32, 62.5), curve(128, 25)], Rates())
    assert three.off(measured) is None
    assert doubt_words(three.to_dict(measured, 1e5)["rollouts_per_gpu_hour"]) == "error unknown"
    # Three runs of one batch: logarithms 0 and +-0.1 have a variance of 0.01 with two degrees of
    # freedom (t = 2.92), and their median one of pi / 6 of it: 2.92 * 0.1 * sqrt(1 + 0.5236).
    alone = priced([curve(32, 100 * np.exp(x)) for x in (-0.1, 0.0, 0.1)], Rates())
    assert alone.off(measured) == pytest.approx(np.expm1(2.91999 * 0.1 * np.sqrt(1.5236)), rel=1e-4)
    assert alone.off(measured, 1.5e5) is None  # beyond the runs
    assert alone.off(larger) is None  # beyond the batches
    known = [curve(n, 100) for n in (8, 32, 128, 512)]
    line = priced(known, Rates())
    assert line.off(measured) == pytest.approx(0, abs=1e-9)
    assert line.off(between) is not None
    source = line.to_dict(larger, 1e5)["rollouts_per_gpu_hour"]
    assert (source["off"], doubt_words(source)) == (None, "at a batch not timed")


def test_a_run_that_ended_early_is_compared_where_it_ended() -> None:
    """A rollout takes r^0.25: of a tenth of a run half of what it does of the whole."""
    runs = [growing(n, 0.25) for n in (8, 8, 32, 32, 128, 128)]
    whole, measured = priced(runs, Rates()), Configuration(16, 8)
    with_early = priced([*runs, runs[0].until(1e4)], Rates())
    first = whole.hours[measured].runs[0]
    assert with_early.hours[measured].runs == pytest.approx((first, first, first))
    assert speeds_of(with_early) == pytest.approx(speeds_of(whole))
    assert with_early.off(measured) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("early", [500.0, 3e3, 3e4, 6e4])
@pytest.mark.parametrize("crashes", [1, 3])
def test_runs_that_crashed_do_not_change_what_a_whole_one_takes(early: float, crashes: int) -> None:
    """A rollout takes r^0.25; the first of a run that stopped are cheap, and say no more."""
    runs, c = [growing(8, 0.25), growing(32, 0.25)], Configuration(16, 8)
    whole = priced(runs, Rates())
    after = priced([*runs, *crashes * [runs[0].until(early)]], Rates())
    for rollouts in (1e4, 1e5, 4e5):
        one, other = whole.of(c, rollouts=rollouts), after.of(c, rollouts=rollouts)
        assert other.rollouts_per_gpu_hour == pytest.approx(one.rollouts_per_gpu_hour, rel=1e-6)
        assert other.tokens_per_rollout == pytest.approx(one.tokens_per_rollout, rel=1e-6)


def test_a_start_that_broke_off_while_it_warmed_up_is_no_price() -> None:
    """The first update takes ten more: of three updates most, of a whole run nothing."""
    def warming(updates: float) -> Curve:
        done_K = np.unique(np.r_[min(updates, 10.0), np.linspace(updates / 8, updates, 8)])
        return Curve(
            problems_per_batch=16, rollouts_per_problem=8, run=str(updates),
            rollouts_K=128 * done_K, score_K=np.full(len(done_K), 0.3),
            gpu_hours_K=(done_K + 10) / 100,
        )  # fmt: skip

    c = Configuration(16, 8)
    whole = priced([warming(800), warming(800)], Rates())
    after = priced([warming(800), warming(800), *3 * [warming(3)]], Rates())
    assert after.of(c, rollouts=1e5) == whole.of(c, rollouts=1e5)
    assert after.hours[c].runs == whole.hours[c].runs
    # Where nothing else was timed, it is all that is known.
    assert speeds_of(priced([warming(3)], Rates()))[c] == pytest.approx(3 * 128 / 0.13)


@pytest.mark.heavy
def test_in_nine_of_ten_cases_a_further_run_lies_as_near_as_is_said() -> None:
    rng, c = np.random.default_rng(0), Configuration(16, 64)
    for batches, seeds in (((32, 64, 128), 2), ((16, 32, 64, 128, 256), 1)):
        held = []
        for _ in range(400):
            runs = [curve(n, (60 / n + 1) * 100 * np.exp(rng.normal(0, 0.1)))
                    for n in batches for _ in range(seeds)]  # fmt: skip
            price = priced(runs, Rates())
            took = (60 / 64 + 1) * 1e-3 * np.exp(rng.normal(0, 0.1))
            held.append(abs(took * (speed_of(price, c) or 0) - 1) <= (price.off(c) or 0))
        assert 0.86 <= np.mean(held) <= 0.96


# ---- responses that grow longer ----


def growing(n: int, power: float, end: float = 1e5) -> Curve:
    """Rollout number x takes (1 + power) * x^power tokens, and a GPU-hour makes a million."""
    x = np.asarray(end * 2.0 ** np.arange(-8, 1), dtype=np.float64)
    return Curve(
        problems_per_batch=16, rollouts_per_problem=n, run=f"{n} {power}", rollouts_K=x,
        score_K=np.linspace(0.2, 0.5, 9), tokens_K=x ** (1 + power),
        gpu_hours_K=x ** (1 + power) / 1e6,
    )  # fmt: skip


def test_beyond_the_data_a_cost_lies_between_todays_and_its_growth_going_on() -> None:
    c = Configuration(16, 8)
    price = priced([growing(8, 0.25)], Rates(usd_per_gpu_hour=2.0))
    # 16 times the rollouts take 16^1.25 = 32 times the tokens; if each took 1.25 x^0.25 from now
    # on, 1 + 15 * 1.25 = 19.75 times.
    cost = price.cost({c: 16e5}, runs={c: 16e5})
    assert cost["tokens"] == pytest.approx(32 * 1e5**1.25)
    assert cost["at_least"]["tokens"] == pytest.approx(19.75 * 1e5**1.25)
    assert cost["usd"] == pytest.approx(2 * cost["gpu_hours"])
    assert price.trends(c, 16e5)["tokens_per_rollout"] == "responses grew longer"
    assert price.trends(c, 1e5) == {}
    # The budget holds the upper end, and buys as many back.
    assert price.buys(Budget(amount=cost["tokens"], unit="tokens"), c) == pytest.approx(16e5)
    assert price.buys(Budget(amount=cost["usd"], unit="usd"), c) == pytest.approx(16e5)
    # Inside the data it is what was logged: a quarter of the rollouts, 0.25^1.25 of the tokens.
    assert price.cost({c: 2.5e4}, runs={c: 2.5e4})["tokens"] == pytest.approx(2.5e4**1.25)
    # Of a batch that nobody timed both ends go by the line of the updates.
    other = Configuration(16, 16)
    two = priced([growing(8, 0.25), growing(32, 0.25)], Rates())
    known = two.cost({other: 16e5}, runs={other: 16e5})
    assert known["gpu_hours"] == pytest.approx(cost["gpu_hours"])
    assert two.buys(Budget(amount=known["gpu_hours"], unit="gpu_hours"), other) == (
        pytest.approx(16e5))  # fmt: skip


def test_what_runs_train_costs_what_lies_between_their_beginning_and_their_end() -> None:
    """One that goes on begins where rollouts are dear; a short one ends where they are cheap."""
    c, price = Configuration(16, 8), priced([growing(8, 0.25)], Rates(usd_per_gpu_hour=2.0))
    whole, half = 1e5**1.25, 5e4**1.25
    on = price.cost({c: Work(5e4, after=5e4)})
    assert on["tokens"] == pytest.approx(whole - half)
    assert on["usd"] == pytest.approx(2 * (whole - half) / 1e6)
    beyond = price.cost({c: Work(15e5, after=1e5)})["tokens"]
    assert beyond == pytest.approx((16**1.25 - 1) * whole)
    assert price.cost({c: Work(1e5, runs=2)})["tokens"] == pytest.approx(2 * half)
    assert price.cost({c: 5e4})["tokens"] == pytest.approx(half)
    each = priced([], Rates(tokens_per_rollout=3.0)).cost({c: Work(5e4, runs=2, after=1e4)})
    assert each == {"tokens": pytest.approx(15e4), "gpu_hours": None, "usd": None}


def test_each_run_of_a_check_is_priced_from_where_it_stands() -> None:
    """One that is done and one to begin were priced as two from half-way: 1.5 for 1 at power 2."""
    c, price = Configuration(16, 8), priced([growing(8, 0.25).replace(start_s=7200.0)], Rates())
    runs = [growing(8, 0.25).replace(seed=0), growing(8, 0.25, end=2e4).replace(seed=1)]
    trains = Runs.beside(runs, [c], [0, 1, 2], 1e5).trains
    assert trains == {c: 8e4 + 1e5}
    cost = price.cost(trains)
    tokens = 2 * 1e5**1.25 - 2e4**1.25
    assert cost["tokens"] == pytest.approx(tokens)
    # Two of them start a trainer, which takes two hours.
    assert cost["gpu_hours"] == pytest.approx(tokens / 1e6 + 4)
    assert price.cost(Runs.beside(runs, [c], [0], 1e5).trains)["gpu_hours"] == 0


def test_what_failed_is_trained_again_run_by_run_and_a_gauge_asks_an_untrained_model() -> None:
    """Two runs were priced as one of twice the length; answers of a gauge as those of its end."""
    runs = [growing(n, 0.25).replace(seed=s) for n in (8, 16, 32) for s in (0, 1)]
    ill = [r.replace(failed_rules=("dead_batches",)) if r.rollouts_per_problem == 8 else r
           for r in runs]  # fmt: skip
    fit, price = fit_sweep(ill, draws=20), priced(runs, Rates())
    (failed,) = (one for one in fit.notices if one.code == "failed_health")
    assert price.cost(dict(failed.trains))["tokens"] == pytest.approx(2 * 1e5**1.25)
    chosen = Configuration(16, 32)
    q = Question(fit=fit, x=4e5, price=price, problems=3200)
    gauge = steps_take(q, chosen, None, 4e5, [chosen], 512)["difficulty_assumed"].trains
    assert gauge == {chosen: 51_200}
    assert price.cost(gauge)["tokens"] == pytest.approx(100 * 512 * priced(
        runs, Rates()).of(chosen, rollouts=512).tokens_per_rollout)  # fmt: skip
    assert price.cost(gauge)["tokens"] < 0.5 * 51_200**1.25


@pytest.mark.parametrize("unit", ["tokens", "gpu-hours"])
def test_checks_and_the_run_that_they_leave_take_the_budget_where_responses_grow(unit: str) -> None:
    """A third of the price left 67% of the steps, which took 56% of it."""
    runs = [growing(n, 0.4).replace(seed=s, start_s=720.0) for n in (8, 16, 32) for s in (0, 1, 2)]
    fit, paid = fit_sweep(runs, unit=unit, draws=20), unit.replace("-", "_")
    price = priced(runs, Rates())
    amount = price.cost({Configuration(16, 32): 3e5})[paid]
    d = plan_budget(fit, Budget(amount=amount, unit=paid), study=None).document
    assert d["after_checks"]
    for row in d["after_checks"]:
        checks_cost = sum(s["cost"][paid] for s in checks(d)[: row["checks"]] if s["cost"])
        own = Configuration(d["problems_per_batch"], d["rollouts_per_problem"])
        step = d["cost"][paid] / d["steps"]
        left = price.cost({own: row["rollouts"]})[paid]
        assert d["cost"][paid] - 2 * step < checks_cost + left <= d["cost"][paid] * (1 + 1e-9)
        said = with_checks(d, checks(d)[: row["checks"]])
        assert f"leaves a run of {row['steps']:,} steps" in said


def test_a_run_that_a_plan_by_tokens_sends_on_takes_the_tokens_between() -> None:
    """They were priced as the first half of the run, at two thirds of what they took."""
    runs = [growing(n, 0.25, end=2e5).replace(seed=s) for n in (8, 16, 32) for s in (0, 1)]
    fit = fit_sweep(runs, unit="tokens", draws=20)
    c = Configuration(16, 16)
    first = first_to(Question(fit=fit, x=1e9, price=priced(runs, Rates())), c)
    (took,) = first["trains"].values()
    assert priced(runs, Rates()).cost({c: took})["tokens"] == pytest.approx(
        first["to"] - 2e5**1.25, rel=1e-6)  # fmt: skip
    # More seeds to a budget go as far as it takes them, no less.
    assert fit.trained(c, 1e5**1.25) == pytest.approx(1e5)
    more = more_runs(fit, [c], 2, 1e5**1.25)
    assert priced(runs, Rates()).cost(more)["tokens"] == pytest.approx(2 * 1e5**1.25)


def test_tokens_by_one_rate_leave_gpu_hours_to_each_n() -> None:
    """A budget of tokens at a given rate priced the hours of every n as those of the middle one."""
    runs = [growing(n, 0.0).replace(seed=s) for n in (8, 32, 128) for s in (0, 1)]
    runs = [r.replace(gpu_hours_K=r.rollouts_K / r.rollouts_per_problem) for r in runs]
    fit = fit_sweep(runs, draws=20)

    def planned(budget: Budget) -> dict[str, Any]:
        return plan_budget(fit, budget, rates=Rates(tokens_per_rollout=500.0), only_n=[8]).document

    tokens = planned(Budget(amount=5e7, unit="tokens"))
    same = planned(Budget(amount=1e5, unit="rollouts"))
    assert tokens["rollouts"] == same["rollouts"]
    assert tokens["cost"]["gpu_hours"] == same["cost"]["gpu_hours"]
    assert tokens["cost"]["gpu_hours"] == pytest.approx(tokens["rollouts"] / 8)


def test_a_few_updates_tell_no_trend_of_their_own() -> None:
    """16 updates of n = 64 say what its rollouts take; where that goes, the long runs say."""
    few, c = growing(64, -0.5, end=16 * 1024.0), Configuration(16, 64)
    # Its last half takes 1 - sqrt(1/2) of its tokens, for a half of its rollouts.
    each = 2 * (1 - 0.5**0.5) * float(few.tokens_K[-1]) / float(few.rollouts_K[-1])
    price = priced([growing(8, 0.25), growing(16, 0.25), few], Rates())
    more = few.rollouts_K[-1] * 15
    cost = price.cost({c: 16 * few.rollouts_K[-1]}, runs={c: 16 * few.rollouts_K[-1]})
    assert cost["at_least"]["tokens"] == pytest.approx(few.tokens_K[-1] + each * more)
    grows = (16**1.25 - 1) / 1.25 / 15
    assert cost["tokens"] == pytest.approx(few.tokens_K[-1] + each * grows * more)
    # Of 28 updates three quarters are 21: they tell their own.
    enough = priced([growing(8, 0.25), growing(64, -0.5, end=28 * 1024.0)], Rates())
    assert set(enough.trends(c, 1e6).values()) == {"responses grew shorter"}


def test_shorter_responses_may_stay_as_they_are() -> None:
    c, price = Configuration(16, 8), priced([growing(8, -0.25)], Rates())
    cost = price.cost({c: 16e5}, runs={c: 16e5})
    assert cost["at_least"]["tokens"] == pytest.approx(16**0.75 * 1e5**0.75)
    assert cost["tokens"] == pytest.approx((1 + 15 * 0.75) * 1e5**0.75)
    assert set(price.trends(c, 16e5).values()) == {"responses grew shorter"}
    assert price.buys(Budget(amount=cost["tokens"], unit="tokens"), c) == pytest.approx(16e5)


def test_times_that_fall_while_responses_grow_are_the_clock_s_and_no_trend() -> None:
    c = Configuration(16, 8)
    run = growing(8, 0.25)
    price = priced([run.replace(gpu_hours_K=run.rollouts_K**0.5)], Rates())
    cost = price.cost({c: 16e5}, runs={c: 16e5})
    # On as in the last half, which took 1 - 1/sqrt(2) of the hours for a half of the rollouts.
    took = (1 + 15 * 2 * (1 - 0.5**0.5)) * 1e5**0.5
    assert cost["gpu_hours"] == cost["at_least"]["gpu_hours"] == pytest.approx(took)
    assert cost["at_least"]["tokens"] < cost["tokens"]
    assert price.trends(c, 16e5) == {"tokens_per_rollout": "responses grew longer"}
    rows = price.to_dict(c, 16e5)
    assert "trend" not in rows["rollouts_per_gpu_hour"]
    # Of a constant length they are no reason, either: runs that shared the machine had ended.
    even = growing(8, 0.0)
    price = priced([even.replace(gpu_hours_K=even.rollouts_K**0.5)], Rates())
    assert price.trends(c, 16e5) == {}
    # Shorter responses are one for cheaper rollouts.
    both = growing(8, -0.25)
    price = priced([both.replace(gpu_hours_K=both.rollouts_K**0.75)], Rates())
    assert price.trends(c, 16e5)["rollouts_per_gpu_hour"] == "responses grew shorter"


def test_of_constant_lengths_the_ends_are_one() -> None:
    c, price = Configuration(16, 8), priced([growing(8, 0.0)], Rates())
    cost = price.cost({c: 16e5}, runs={c: 16e5})
    assert cost["tokens"] == pytest.approx(16e5)
    assert cost["at_least"]["tokens"] == pytest.approx(16e5)
    assert price.trends(c, 16e5) == {}


@pytest.mark.heavy
@pytest.mark.parametrize("unit", ["gpu_hours", "tokens"])
def test_a_plan_keeps_its_budget_if_responses_grow_on(unit: str) -> None:
    power, rng = 0.2, np.random.default_rng(0)
    runs = [
        c.replace(tokens_K=c.rollouts_K ** (1 + power), gpu_hours_K=c.rollouts_K ** (1 + power))
        for c in WORLDS["constant_small"].until(2.0**20).sample(NOISE["low"], 1, rng)
    ]
    amount = (10 * 2.0**20) ** (1 + power)  # of ten times the longest runs
    fit = fit_sweep(runs, unit=unit.replace("_", "-"), draws=50)
    d = plan_budget(fit, Budget(amount=amount, unit=unit)).document
    true = d["rollouts"] ** (1 + power)
    assert 0.99 * amount < true <= amount * (1 + 1e-9)
    assert d["cost"][unit] == pytest.approx(true)
    if unit == "gpu_hours":
        money = Budget(amount=2 * amount, unit="usd")
        paid = plan_budget(fit, money, rates=Rates(usd_per_gpu_hour=2.0)).document
        assert paid["rollouts"] == d["rollouts"]
    # 1 + 9 * 1.2 = 11.8 times the longest runs against 10^1.2 = 15.8.
    assert d["cost"]["at_least"][unit] == pytest.approx(true * 11.8 / 15.85, rel=0.01)
    lines = advice_lines(d)
    line = next(line for line in lines if line.startswith("  cost"))
    ends = [compact(d["cost"]["at_least"]["gpu_hours"]), compact(d["cost"]["gpu_hours"])]
    assert f"{ends[0]} to {ends[1]} GPU-hours" in line
    assert line.endswith("(responses grew longer in your runs)")
    assert not [line for line in lines if "within" in line and "cost" in line]
    assert len(lines) <= 15
    assert "cost_grows" in {one["code"] for one in d["notices"]}
    known = cost_words(d)
    assert known.startswith(f"{ends[0]} to {ends[1]} GPU-hours")
    assert "responses" not in known  # explained by the note
    # Of tokens alone, too.
    alone = {**d["cost"], "gpu_hours": None, "source": {
        "tokens_per_rollout": d["cost"]["source"]["tokens_per_rollout"]}}  # fmt: skip
    assert cost_words({**d, "cost": alone}).endswith(" tokens")


# ---- GPU-hours as the unit ----


def test_gpu_hours_are_a_unit_of_a_curve() -> None:
    one = curve(8, 100)
    assert one.position("gpu-hours").tolist() == [0, 1, 10, 50, 100]
    with pytest.raises(InputError, match="a fit by GPU-hours needs the time of every run"):
        curve(8, None).position("gpu-hours")
    with pytest.raises(InputError, match="one of rollouts, tokens, gpu-hours, but got 'hours'"):
        one.position("hours")


def sweep_with_times(speed: dict[int, float]) -> list[Curve]:
    """A planted sweep in which rollouts of each n take their time."""
    curves = WORLDS["constant_small"].until(2**20).sample(NOISE["low"], 1, np.random.default_rng(0))
    return [c.replace(gpu_hours_K=c.rollouts_K / speed[c.rollouts_per_problem]) for c in curves]


N = (8, 16, 32, 64, 128, 256, 512)


@pytest.mark.heavy
def test_n_is_compared_by_what_it_costs() -> None:
    # By rollouts n = 8 is always best; where its rollouts take sixty times as long it is not.
    slow = {n: 100.0 if n == 8 else 6000.0 for n in N}
    fit = fit_sweep(sweep_with_times(slow), unit="gpu-hours")
    d = plan_budget(fit, Budget(amount=100.0, unit="gpu_hours")).document
    assert d["rollouts_per_problem"] == 16
    assert d["rollouts"] == pytest.approx(100 * 6000, rel=0.01)
    assert d["cost"]["gpu_hours"] == pytest.approx(100, rel=0.01)
    assert d["law"]["unit"] == "gpu-hours"
    by_rollouts = plan_budget(fit_sweep(sweep_with_times(slow)), 6e5).document
    assert by_rollouts["rollouts_per_problem"] == 8
    assert by_rollouts["cost"]["gpu_hours"] == pytest.approx(6000, rel=0.01)
    usd = plan_budget(fit, Budget(amount=200.0, unit="usd"), rates=Rates(usd_per_gpu_hour=2.0))
    assert usd.document["rollouts"] == d["rollouts"]
    with pytest.raises(InputError, match="compares n at equal GPU-hours, but the budget is 600k"):
        plan_budget(fit, 6e5)


def test_a_fixed_batch_has_a_law_in_steps_only() -> None:
    curves = sweep_with_times(dict.fromkeys(N, 1e3))
    with pytest.raises(InputError, match="unit must be rollouts, but got gpu-hours"):
        fit_sweep(curves, unit="gpu-hours", fix=("batch_size", 512))


STUDY = """
engine: local
engine_options: {model: bits-mlp}
problems:
  train: {generated: world, options: {world: bits, part: train, size: 64}}
  validation:
    main: {generated: world, options: {world: bits, part: validation, size: 16}}
recipe: {learning_rate: 1e-3, temperature: 1.0}
grid: {problems_per_batch: 4, rollouts_per_problem: [2, 4, 8]}
budget: 512
evaluation: {samples: 4, per_octave: 2, first: 32}
RATES
"""


def study(tmp_path: Path, rates: str = "") -> str:
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.replace("RATES", rates))
    run_study(load_study(file, generators=problem_generators()), tmp_path / "s", workers=0)
    return str(tmp_path / "s")


@pytest.mark.heavy
def test_a_study_is_priced_by_its_own_runs(tmp_path: Path, capsys: Any) -> None:
    source = study(tmp_path)
    curves = load_curves(source)
    assert len(curves) == 3
    with Store(source) as store:
        seconds = {run.hash: store.steps(run.hash).wall_s_K.sum() for run in store.runs()}
    for c in curves:
        assert c.gpu_hours_K is not None
        assert c.gpu_hours_K[-1] == pytest.approx(seconds[c.run] / 3600)
        assert c.gpu_hours_K[0] == 0
    assert main(["fit", source, "--unit", "gpu-hours", "--json", str(tmp_path / "f.json")]) == 0
    assert json.loads((tmp_path / "f.json").read_text())["unit"] == "gpu-hours"
    assert "GPU-hours" in capsys.readouterr().out


@pytest.mark.heavy
def test_a_check_costs_what_a_dry_run_of_its_command_says(tmp_path: Path, capsys: Any) -> None:
    # It was of training alone, and the dry run knew no price, or that of other runs.
    source = study(tmp_path)
    curves, file = load_curves(source), study_facts(source).file
    assert file is not None
    q = Question(fit=fit_sweep(curves), x=1e4, study=file)
    price = replace(priced(curves, Rates()), evaluated=evaluated_as(q))
    tested = [c.configuration for c in curves]
    for which, seeds, to in (
        (tested, [1, 2], 512.0), (tested[:1], [0], 1024.0), (tested[1:], [0, 1], 1024.0),
        ([Configuration(8, 8)], [0], 640.0),
    ):  # fmt: skip
        runs = Runs.beside(curves, which, seeds, to)
        cost = price.cost(runs.trains)
        words = shlex.split(runs.command(file))[1:]
        assert main([*words, "--dry-run", "--json", "-"]) == 0
        said = json.loads(capsys.readouterr().out)["estimate"]
        assert said["rollouts"] == sum(runs.trains.values())
        assert said["evaluation_rollouts"] > 0
        for unit in ("gpu_hours", "tokens"):
            assert said[unit] == pytest.approx(cost[unit], rel=1e-9), (unit, words)
        alone = replace(price, evaluated=None).cost(runs.trains)["tokens"]
        drawn = 1 + said["evaluation_rollouts"] / said["rollouts"]
        assert cost["tokens"] == pytest.approx(drawn * alone, rel=0.01)


def test_a_clock_has_counted_evaluations_and_tokens_have_not() -> None:
    rates = Rates(rollouts_per_gpu_hour=100.0, tokens_per_rollout=50.0)
    own = sweep_with_times(dict.fromkeys(N, 100.0))
    alone = priced([c.replace(gpu_hours_K=None) for c in own], rates)
    work = {own[0].configuration: Work(64_000.0)}
    drawn = Evaluated(100, 1, 1_000).drawn(own[0].configuration.batch_size, 0.0, 64_000.0)
    assert drawn > 500
    plain = alone.cost(work)
    for clocked in (False, True):
        cost = replace(alone, evaluated=Evaluated(100, 1, 1_000), clocked=clocked).cost(work)
        more = {name: cost[name] / plain[name] - 1 for name in ("gpu_hours", "tokens")}
        assert more["tokens"] == pytest.approx(drawn / 64_000)
        assert more["gpu_hours"] == pytest.approx(0.0 if clocked else drawn / 64_000)


def test_rates_that_are_tried_first_cost_what_their_study_says() -> None:
    rates = Rates(rollouts_per_gpu_hour=900.0)
    d = plan_from_source(budget=Budget(amount=2e6, unit="rollouts"), rates=rates,
                         difficulty="easy").document  # fmt: skip
    (step,) = (s for s in d["run_next"] if s["settles"] == "anchor_assumed")
    # Seven rates of 20 updates of 1,024; before and after each, 300 problems are asked four times.
    assert step["rollouts"] == 7 * 20 * 1024
    assert step["cost"]["gpu_hours"] == pytest.approx((7 * 20 * 1024 + 7 * 2 * 1200) / 900)


class Elsewhere(LocalEngine):
    """Takes a while to start; its very first start fails."""

    failed = False

    def run(self, *args: Any) -> None:
        time.sleep(0.2)
        if not Elsewhere.failed:
            Elsewhere.failed = True
            raise OSError("no GPU yet")
        super().run(*args)


register_engine("elsewhere", "test_price:Elsewhere")


@pytest.mark.heavy
def test_slices_tell_what_a_start_of_the_trainer_takes(tmp_path: Path, capsys: Any) -> None:
    assert [c.start_s for c in load_curves(study(tmp_path))] == [None] * 3  # in this process
    file = tmp_path / "t.yaml"
    file.write_text(STUDY.replace("local", "elsewhere").replace("RATES", "slices: [0.5, 1]"))
    run_study(load_study(file, generators=problem_generators()), tmp_path / "t", workers=0)
    with Store(tmp_path / "t") as store:
        assert store.accounting().attempts == 7
        idle, failed = {run.hash: store.idle_s(run.hash) for run in store.runs()}, 0.0
        for run in store.runs():
            found = store.evaluations(run.hash), store.steps(run.hash)
            work = sum(float(one.wall_s_K.sum()) for one in found)
            more = run.wall_s - work - sum(idle[run.hash])  # what is left is the failed start
            assert len(idle[run.hash]) == 2
            assert min(idle[run.hash]) >= 0.2
            assert more >= 0.2 if run.attempts == 3 else abs(more) < 1e-6
            failed = max(failed, more)
    each = {name: sum(both) / 2 for name, both in idle.items()}
    for c in load_curves(str(tmp_path / "t")):
        assert c.start_s == pytest.approx(each[c.run])
    # One figure for the study, in `status` and in the price of what is left of it.
    now = study_status(tmp_path / "t")
    assert now.starts is not None
    middle = sorted(each.values())[1]
    # Six slices that ended, and the one that failed, which lasted as long as a start or less.
    took = sum(sum(both) for both in idle.values()) + min(failed, middle)
    assert now.starts == pytest.approx((middle, took))
    assert now.to_dict()["starts"] == {"each_s": now.starts.each_s, "all_s": now.starts.all_s}
    more = load_study(file, generators=problem_generators())
    own = with_own_start(more, tmp_path / "t").rates_by_batch.gpu_hours_per_start
    assert own == pytest.approx(middle / 3600)  # a worker without GPUs counts as one
    given = replace(more, rates_by_batch=RatesByBatch(gpu_hours_per_start=9.0))
    assert with_own_start(given, tmp_path / "t") is given
    words = ["budget=2048", "rates.rollouts_per_gpu_hour=1e9", "-o", str(tmp_path / "t")]
    assert main(["run", str(file), *words, "--dry-run"]) == 0
    # The first half of 2,048 ends at 1,024: two more starts of each run.
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"GPU-hours \([\d.]+ of them 6 starts\) to go; 1,536 rollouts are tr", said)


@pytest.mark.heavy
def test_status_tells_the_starts_where_they_are_much(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(STUDY.replace("RATES", ""))
    run_study(load_study(file, generators=problem_generators()), tmp_path / "t", workers=0)
    now = study_status(tmp_path / "t")
    assert now.starts is None
    assert "start" not in "".join(now.lines())
    books = replace(now.accounting, wall_s=1500.0, attempts=7)
    begun = replace(now, accounting=books, starts=Starts(60.0, 400.0))
    line = "worker time 25.0 min in 7 attempts, 6.7 min of it to start the trainer, 60 s each; "
    assert line in begun.lines()[3]
    # A tenth is not told.
    assert "trainer" not in "".join(replace(begun, starts=Starts(21.0, 150.0)).lines())


@pytest.mark.heavy
def test_a_start_that_was_cut_off_took_no_longer_than_others(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(STUDY.replace("local", "elsewhere").replace("RATES", "slices: [1]"))
    Elsewhere.failed = True
    run_study(load_study(file, generators=problem_generators()), tmp_path / "t", workers=0)
    # Three runs of 140, 130 and 120 s, 40 of them updates; two were killed, after 5 s and 500 s.
    edit(tmp_path / "t", "UPDATE evaluations SET wall_s = 0")
    edit(tmp_path / "t", "UPDATE steps SET wall_s = iif(step = 1, 40, 0)")
    edit(tmp_path / "t", "UPDATE attempts SET wall_s = 150 - 10 * attempt")
    for took in (5.0, 500.0):
        edit(tmp_path / "t", "INSERT INTO attempts (run, token, runner, from_step, target_steps, "
             "outcome, wall_s, started_utc, host, versions) SELECT 1, token, runner, 0, "
             "target_steps, 'lost', ?, started_utc, host, versions FROM attempts LIMIT 1", took)
    now = study_status(tmp_path / "t")
    # (140 - 40) + (130 - 40) + (120 - 40), and 5, and no more than 90 of the 500
    assert now.starts == pytest.approx((90.0, 270.0 + 5.0 + 90.0))


@pytest.mark.heavy
def test_the_run_of_a_plan_starts_once_and_its_budget_pays_for_it() -> None:
    curves = sweep_with_times(dict.fromkeys(N, 1000.0))
    known = [c.replace(start_s=1800.0, gpus=8) for c in curves]  # four GPU-hours
    hours, money = Budget(amount=2000.0, unit="gpu_hours"), Budget(amount=6000.0, unit="usd")
    free = plan_budget(fit_sweep(curves, unit="gpu-hours", draws=50), hours).document
    fit = fit_sweep(known, unit="gpu-hours", draws=50)
    paid = plan_budget(fit, hours).document
    assert paid["budget_rollouts"] == pytest.approx(free["budget_rollouts"] - 4000)
    assert paid["cost"]["gpu_hours"] == pytest.approx(paid["rollouts"] / 1000 + 4)
    assert 1990 < paid["cost"]["gpu_hours"] <= 2000
    assert paid["cost"]["source"]["gpu_hours_per_start"] == {
        "value": pytest.approx(4), "from": "sweep",
    }  # fmt: skip
    assert "gpu_hours_per_start" not in free["cost"]["source"]
    assert paid_words(paid["cost"])[0] == "2,000 GPU-hours to train (4 to start)"
    assert paid_words({**paid["cost"], "gpu_hours": 2e6})[0].endswith("GPU-hours to train")
    usd = plan_budget(fit, money, rates=Rates(usd_per_gpu_hour=3.0), current=64).document
    assert usd["cost"]["usd"] == pytest.approx(3 * usd["cost"]["gpu_hours"])
    assert 5990 < usd["cost"]["usd"] <= 6000
    assert usd["gain"]["cost"]["gpu_hours"] > 4
    # Tokens and rollouts are not spent on a start.
    assert plan_budget(fit_sweep(known, draws=50), 2e6).document["rollouts"] > 1.9e6
    with pytest.raises(InputError, match=r"start of its run \(4 GPU-hours\), but got 3.5; raise"):
        plan_budget(fit, Budget(amount=3.5, unit="gpu_hours"))


@pytest.mark.heavy
def test_a_plan_says_its_price_and_how_far_it_may_be_off() -> None:
    # Updates take 0.1 hours and 0.001 for each rollout; those of n = 64 are faster by a tenth.
    speed = {n: 16 * n / (0.1 + 0.016 * n) * (1.1 if n == 64 else 1) for n in N}
    fit = fit_sweep(sweep_with_times(speed))
    d = plan_budget(fit, 1e6).document
    found = d["cost"]["source"]["rollouts_per_gpu_hour"]
    assert found == {
        "value": pytest.approx(speed[8]), "from": "sweep", "off": pytest.approx(0.1265, abs=1e-4),
        "timed_on": None, "clocked": False, "beyond": None,
    }  # fmt: skip
    assert d["cost"]["gpu_hours"] == pytest.approx(d["rollouts"] / speed[8])
    assert d["cost"]["at_least"]["gpu_hours"] == pytest.approx(d["cost"]["gpu_hours"])
    line = next(line for line in advice_lines(d) if line.startswith("  cost"))
    assert line.endswith("(your runs' times, within 13%)")
    assert " GPU-hours to train " in line  # no evaluations, which the clock of `clocked` runs holds
    whole = " ".join(advice_lines(d, why=True))
    assert "The cost is that of training: evaluations and checkpoints come on top." in whole
    clocked = {"value": 100.0, "from": "sweep", "clocked": True}
    cost = {"gpu_hours": 7.0, "usd": None, "tokens": None}
    for source in ({}, {"source": {"rollouts_per_gpu_hour": clocked}}):
        assert paid_words({**cost, **source}) == ["7 GPU-hours"]
    # Beyond the runs the same cost, but nothing that bounds it.
    later = plan_budget(fit, 2e6).document
    found = later["cost"]["source"]["rollouts_per_gpu_hour"]
    assert (found["off"], found["beyond"]) == (None, "runs")
    assert later["cost"]["gpu_hours"] == pytest.approx(later["rollouts"] / speed[8])
    line = next(line for line in advice_lines(later) if line.startswith("  cost"))
    assert line.endswith("(carried on, beyond your runs)")
    # Money and tokens leave no room for both: what a price rests on stays.
    dear = d | {"cost": d["cost"] | {"gpu_hours": 1364.0, "usd": 3000.0, "tokens": 48.7e9}}
    line = next(line for line in advice_lines(dear) if line.startswith("  cost"))
    assert line.endswith("1,364 GPU-hours to train, $3,000   (your runs' times, within 13%)")
    # Beyond the runs, too: how long it takes is worth more than what the hours leave out.
    beyond = {"rollouts_per_gpu_hour": dear["cost"]["source"]["rollouts_per_gpu_hour"] | {
        "off": None, "beyond": "runs"}}  # fmt: skip
    far = dear | {"wall": {"gpus": 64, "hours": 456.0}}
    far |= {"cost": dear["cost"] | {"source": beyond}}
    line = next(line for line in advice_lines(far) if line.startswith("  cost"))
    assert line.endswith("1,364 GPU-hours, $3,000, 19 days on 64 GPUs   (beyond your runs)")
    # With days and GPUs there is no room for whose times they are, but for how far off.
    days = dear | {"wall": {"gpus": 64, "hours": 456.0}}
    line = next(line for line in advice_lines(days) if line.startswith("  cost"))
    assert line.endswith("1,364 GPU-hours to train, $3,000, 19 days on 64 GPUs   (within 13%)")


@pytest.mark.heavy
def test_the_rate_of_the_study_file_comes_before_its_runs(tmp_path: Path) -> None:
    source = study(tmp_path, "rates: {rollouts_per_gpu_hour: 1000}")
    fit = fit_sweep(sweep_with_times(dict.fromkeys(N, 50.0)))
    d = plan_from_source(source, budget=Budget(amount=1000.0, unit="gpu_hours"), fit=fit).document
    assert d["cost"]["source"]["rollouts_per_gpu_hour"] == {"value": 1000, "from": "study"}
    assert d["budget_rollouts"] == pytest.approx(1e6)


@pytest.mark.heavy
def test_rates_by_batch_of_a_designed_study_give_way_to_its_own_runs(tmp_path: Path) -> None:
    source = study(tmp_path, """rates:
  rollouts_per_gpu_hour: 1000
  usd_per_gpu_hour: 3
  by_batch: [{problems_per_batch: 4, rollouts_per_problem: 4, rollouts_per_gpu_hour: 900}]""")
    fit = fit_sweep(sweep_with_times({n: 40.0 * n for n in N}))
    d = plan_from_source(source, budget=Budget(amount=3000.0, unit="usd"), fit=fit).document
    said = d["cost"]["source"]
    assert said["rollouts_per_gpu_hour"]["from"] == "sweep"
    own = 40.0 * d["rollouts_per_problem"]
    assert said["rollouts_per_gpu_hour"]["value"] == pytest.approx(own, rel=0.01)
    assert said["usd_per_gpu_hour"] == {"value": 3, "from": "study"}


def test_a_budget_that_is_paid_is_planned_by_what_is_paid() -> None:
    runs, hours = [curve(8, 100), curve(32, 50)], Budget(amount=10.0, unit="gpu_hours")
    assert unit_paid_in(hours, Rates(), runs) == "gpu-hours"
    assert unit_paid_in(Budget(amount=10.0, unit="usd"), Rates(), runs) == "gpu-hours"
    assert unit_paid_in(Budget(amount=10.0, unit="rollouts"), Rates(), runs) == "rollouts"
    assert unit_paid_in(None, Rates(), runs) == "rollouts"
    assert unit_paid_in(hours, Rates(rollouts_per_gpu_hour=10.0), runs) == "rollouts"
    assert unit_paid_in(hours, Rates(), [*runs, curve(64, None)]) == "rollouts"
    tokens = Budget(amount=1e8, unit="tokens")
    logged = [c.replace(tokens_K=500 * c.rollouts_K) for c in runs]
    assert unit_paid_in(tokens, Rates(), logged) == "tokens"
    assert unit_paid_in(tokens, Rates(tokens_per_rollout=500.0), logged) == "rollouts"
    assert unit_paid_in(tokens, Rates(), [*logged, curve(64, None)]) == "rollouts"


@pytest.mark.heavy
@pytest.mark.parametrize("unit", ["tokens", "gpu_hours"])
def test_a_plan_never_costs_more_than_a_budget_that_is_paid(unit: str) -> None:
    # A rollout costs five times as much at n = 512 as at the median n = 64.
    rng = np.random.default_rng(0)
    runs = [
        c.replace(**{f"{unit}_K": c.rollouts_K * (100 + 10 * c.rollouts_per_problem)})
        for c in WORLDS["constant_large"].until(2.0**21).sample(NOISE["low"], 1, rng)
    ]
    asked = Budget(amount=8e8, unit=unit)
    fit = fit_sweep(runs, draws=50)  # in rollouts, as a notebook and a report have it
    d = plan_from_source("runs.csv", budget=asked, fit=fit).document
    assert d["law"]["unit"] == unit.replace("_", "-")
    assert 0.9 * 8e8 < d["cost"][unit] <= 8e8
    # By rollouts one rate turns the budget into them, and prices them.
    kept = plan_from_source("runs.csv", budget=asked, fit=fit, unit="rollouts").document
    assert 0.9 * 8e8 < kept["cost"][unit] <= 8e8


@pytest.mark.heavy
def test_a_check_costs_what_its_own_batch_takes() -> None:
    """A GPU-hour makes 1,000 rollouts at n = 8 and twice as many at each next n."""
    speed = {n: 1000.0 * 2**i for i, n in enumerate(N)}
    price = priced(sweep_with_times(speed), Rates())
    n = {Configuration(16, m): s for m, s in speed.items()}
    assert {c: speed_of(price, c) for c in n} == pytest.approx(n)
    both = price.of(Configuration(16, N[0]), Configuration(16, N[1]))  # as many rollouts each
    assert both.rollouts_per_gpu_hour == pytest.approx(2 / (1 / 1000 + 1 / 2000))
    apart = {Configuration(16, N[0]): 3000.0, Configuration(16, N[1]): 1000.0}
    assert price.cost(apart)["gpu_hours"] == pytest.approx(3000 / 1000 + 1000 / 2000)
    assert price.cost(apart)["usd"] is None
    told = notice("few_seeds", which="n = 8, 16", trains=apart)
    assert "(4,000 rollouts, 3.5 GPU-hours" in priced_remedy(told, price).remedy
    d = plan_budget(fit_sweep(sweep_with_times(speed)), 2e6).document
    chosen, steps = d["rollouts_per_problem"], {s["settles"]: s for s in d["run_next"]}
    larger = speed_of(price, Configuration(32, chosen))  # of twice the batch
    step = steps["bp_untested"]
    assert step["cost"]["gpu_hours"] == pytest.approx(step["rollouts"] / larger)
    told = next(x["remedy"] for x in d["notices"] if x["code"] == "bp_untested")
    assert f"{compact(step['cost']['gpu_hours'])} GPU-hours" in told


@pytest.mark.heavy
def test_equal_rollouts_are_no_unit_of_a_budget_that_buys_more_of_some(tmp_path: Path) -> None:
    source = study(tmp_path)
    hours = Budget(amount=1.0, unit="gpu_hours")
    with pytest.raises(InputError, match=r"a budget of GPU-hours buys differs by n"):
        plan_from_source(source, budget=hours, unit="rollouts")
    whole = plan_from_source(source, budget=Budget(amount=1e5, unit="rollouts"), unit="rollouts")
    assert whole.document["law"]["unit"] == "rollouts"


@pytest.mark.heavy
def test_a_report_counts_what_the_budget_of_its_plan_is_paid_in(tmp_path: Path) -> None:
    source, out = study(tmp_path), tmp_path / "r.html"
    for budget, unit in (("1gpuh", "GPU-hours"), ("1e5", "rollouts")):
        assert main(["report", source, "--budget", budget, "-o", str(out)]) == 0
        assert f"budgets in {unit}" in out.read_text()


# ---- times in logs ----


def timed_log(side: Any, gpus: int | None) -> dict[str, Any]:
    return said_of(times_of(side), gpus or gpus_by_throughput(side))


def test_times_of_each_trainer_by_hand() -> None:
    verl = SIDE | {
        "seconds": {1: 30.0, 2: 10.0, 3: 20.0}, "throughput": {1: 500.0, 2: 1500.0, 3: 750.0},
        "total": {1: 120_000.0, 2: 120_000.0, 3: 120_000.0},
    }  # fmt: skip

    def gpu_seconds_per_step(side: Any, gpus: int | None) -> float | None:
        return timed_log(side, gpus).get("gpu_s_per_step")

    assert gpu_seconds_per_step(verl, None) == pytest.approx(20 * 8)  # 120,000 / (30 * 500) = 8
    assert gpu_seconds_per_step(verl, 2) == pytest.approx(40)
    odd = verl | {"throughput": dict.fromkeys((1, 2, 3), 900.0)}
    assert gpu_seconds_per_step(odd, None) is None  # 6.7 GPUs
    trl = SIDE | {"train_runtime": {200: 1000.0}}
    assert gpu_seconds_per_step(trl, 1) == pytest.approx(5)
    assert gpu_seconds_per_step(trl, None) is None
    wandb = SIDE | {"runtime": {1: 60.0, 11: 160.0}}
    assert gpu_seconds_per_step(wandb, 4) == pytest.approx(40)
    assert gpu_seconds_per_step(SIDE | {"runtime": {1: 60.0, 11: 20.0}}, 4) is None
    assert gpu_seconds_per_step(SIDE | {"runtime": {1: 60.0}}, 4) is None
    assert gpu_seconds_per_step(SIDE, 8) is None


@pytest.mark.parametrize("inside", [True, False])
def test_validation_and_checkpoints_come_as_often_as_the_runs_had_them(inside: bool) -> None:
    """Updates take 10 s; every fourth is followed by 60 s of validation, every eighth by 5 s."""
    testing = dict.fromkeys(range(4, 41, 4), 60.0)
    saving = dict.fromkeys(range(8, 41, 8), 5.0)
    took = {s: 10.0 + inside * (testing.get(s, 0.0) + saving.get(s, 0.0)) for s in range(1, 41)}
    side = SIDE | {"seconds": took, "testing": testing, "saving": saving}
    assert timed_log(side, 8) == {
        "s_per_step": 25.625, "gpu_s_per_step": 205, "clocked": True,
        "pace": tuple((s, 1.0) for s, _ in timed_log(side, 8)["pace"]),
    }  # fmt: skip
    alone = {k: v for k, v in side.items() if k != "testing" or inside}
    if not inside:  # nothing tells how long validation takes
        assert (timed_log(alone, 8)["clocked"], timed_log(alone, 8)["s_per_step"]) == (False, 10)
    # One before training, which verl does not time, takes what others do.
    first = said_of(times_of(side, {0, *testing}), 8)
    assert first["s_per_step"] == pytest.approx(25.625 + 60 / 40)
    # Where every step validates, its time is told apart only if it is longer than the step.
    every = side | {"testing": dict.fromkeys(took, 60.0)}
    assert timed_log(every, 8)["s_per_step"] == (86.25 if inside else 70.625)
    short = side | {"seconds": dict.fromkeys(took, 70.0), "testing": dict.fromkeys(took, 60.0)}
    assert (timed_log(short, 8)["clocked"], timed_log(short, 8)["s_per_step"]) == (True, 70)
    # Or by the parts of a step: 6 s of sampling, 3 s of an update.
    parts = {"part gen": dict.fromkeys(took, 6.0), "part update_actor": dict.fromkeys(took, 3.0)}
    told = timed_log(short | parts, 8)
    assert (told["clocked"], told["s_per_step"]) == (True, 70.625)
    beside = {"seconds": dict.fromkeys(took, 10.0), "testing": dict.fromkeys(took, 8.0)}
    told = timed_log(short | parts | beside, 8)
    assert (told["clocked"], told["s_per_step"]) == (True, 18.625)
    # A clock beside the updates' own time tells it, before the row of its step or after it.
    for late in (0, 1):
        clock, now = dict[int, float](), 100.0
        for s in range(1, 41):
            now += 11 + 60 * (s % 4 == late)  # and a second of something else
            clock[s] = now
        beside = SIDE | {"seconds": dict.fromkeys(took, 10.0), "runtime": clock}
        told = said_of(times_of(beside, testing.keys()), 8)
        assert (told["clocked"], told["s_per_step"]) == (True, 25)
        assert said_of(times_of(beside), 8)["clocked"] is False
    # slime's turns hold evaluations, and a run's own total does.
    assert timed_log(SIDE | {"turn": {1: 10.0, 2: 70.0}}, 1)["s_per_step"] == 40
    both = SIDE | {"train_runtime": {200: 1000.0}, "testing": {100: 50.0, 200: 50.0}}
    assert timed_log(both, 1)["s_per_step"] == 5
    assert timed_log(SIDE | {"train_runtime": {200: 1000.0}}, 1)["clocked"] is True


def test_a_log_keeps_how_its_updates_slowed_down() -> None:
    # Updates 1 to 10 take a second, 11 to 20 three: 10 and 40 seconds.
    took = {s: 1.0 if s <= 10 else 3.0 for s in range(1, 21)}
    found = timed_log(SIDE | {"seconds": took}, 1)
    assert found["s_per_step"] == 2
    hours = gpu_hours(np.array([0.0, 10.0, 20.0]), 2.0, found["pace"])
    np.testing.assert_allclose(hours * 3600, [0, 10, 40], rtol=0.03)
    assert gpu_hours(np.array([10.0]), 3600.0, ()).tolist() == [10]


def verl_log(path: Path, seconds: float) -> None:
    rows = [
        {"step": s, "data": {
            "val-core/main/acc/mean@4": 0.3 + 0.01 * s, "timing_s/step": seconds,
            "perf/total_num_tokens": 48_000, "perf/throughput": 48_000 / seconds / 8,
            "response_length/mean": 300.0, "prompt_length/mean": 75.0,
        }} for s in range(1, 9)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_verl_log_brings_its_price_through_the_archive(tmp_path: Path) -> None:
    for n, seconds in ((8, 36.0), (16, 18.0)):
        folder = tmp_path / "logs" / f"bp{128 // n}_n{n}"
        folder.mkdir(parents=True)
        verl_log(folder / "metrics.jsonl", seconds)
    pattern = "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"
    logs = str(tmp_path / "logs")
    assert main(["import", logs, "-o", str(tmp_path / "study"), "--set", pattern]) == 0
    curves = load_curves(str(tmp_path / "study"))
    price = priced(curves, Rates())
    # 128 rollouts in 36 s on 8 GPUs are 1,600 a GPU-hour.
    assert speeds_of(price) == {
        Configuration(16, 8): pytest.approx(1600), Configuration(8, 16): pytest.approx(3200),
    }  # fmt: skip
    assert main(["import", logs, "-o", str(tmp_path / "two"), "--set", pattern,
                 "--set", "gpus=4"]) == 0  # fmt: skip
    slow = priced(load_curves(str(tmp_path / "two")), Rates())
    assert speeds_of(slow)[Configuration(16, 8)] == pytest.approx(3200)


def test_verls_validation_is_in_the_rate_once_and_so_is_its_slowing_down(tmp_path: Path) -> None:
    """Step s takes s^0.25 seconds on 8 GPUs; every tenth validates for 60 s, in the step's time."""
    folder = tmp_path / "logs" / "bp16_n8"
    folder.mkdir(parents=True)
    rows = []
    for s in range(1, 401):
        seconds = s**0.25 + 60.0 * (s % 10 == 0)
        data = {"timing_s/step": seconds, "perf/total_num_tokens": 48_000,
                "perf/throughput": 48_000 / seconds / 8, "response_length/mean": 300.0,
                "prompt_length/mean": 75.0}  # fmt: skip
        if s % 10 == 0:
            data |= {"val-core/main/acc/mean@4": 0.3 + 0.0005 * s, "timing_s/testing": 60.0}
        rows.append(json.dumps({"step": s, "data": data}))
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    pattern = "pattern=bp{problems_per_batch}_n{rollouts_per_problem}"
    logs = str(tmp_path / "logs")
    assert main(["import", logs, "-o", str(tmp_path / "study"), "--set", pattern]) == 0
    (run,) = load_curves(str(tmp_path / "study"))
    price, c = priced([run], Rates()), Configuration(16, 8)
    each = (np.arange(1, 4001) ** 0.25 + 6) * 8 / 3600
    # The steps that validate are the last of their ten: 0.7% more than the others on average.
    assert speed_of(price, c) == pytest.approx(400 * 128 / each[:400].sum(), rel=0.01)
    assert run.gpu_hours_K is not None
    np.testing.assert_allclose(run.gpu_hours_K, each.cumsum()[9:400:10], rtol=0.05)
    cost = price.cost({c: 4000 * 128.0}, runs={c: 4000 * 128.0})
    assert cost["gpu_hours"] == pytest.approx(each.sum(), rel=0.05)
    assert cost["at_least"]["gpu_hours"] < 0.9 * each.sum()
    assert price.trends(c, 4000 * 128.0) == {"rollouts_per_gpu_hour": "rollouts grew dearer"}


@pytest.mark.heavy
@pytest.mark.parametrize("trainer", ["verl", "trl", "nemo", "openrlhf"])
def test_a_plan_holds_evaluations_as_often_as_its_runs_had_them(
    tmp_path: Path, trainer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An update of n takes 4 + n / 2 seconds, an evaluation 60, and there is one every ten."""
    for n in (8, 16, 32):
        folder, rows, now = tmp_path / "logs" / f"bp16_n{n}", [], 100.0
        folder.mkdir(parents=True)
        for s in range(1, 201):
            took, score = 4 + n / 2, 0.2 + 0.4 * (n * s) / (n * s + 2000)
            tests = s % 10 == 0
            now += took
            if trainer == "verl":
                of = {"val-core/m/acc/mean@4": score, "timing_s/testing": 60.0} if tests else {}
                rows.append({"step": s, "data": {"timing_s/step": took + 60 * tests, **of}})
            elif trainer == "nemo":
                of = {"validation/accuracy": score,
                      "timing/validation/total_validation_time": 60.0} if tests else {}
                rows.append({"step": s, "timing/train/total_step_time": took + 60 * tests, **of})
            elif trainer == "trl":
                rows.append({"step": s, "step_time": took, "loss": 0.1})
                of = {"eval_a_runtime": 40.0}, {"eval_b_runtime": 20.0}
                rows += [{"step": s, "eval_rewards/acc/mean": score, **one} for one in of if tests]
            else:
                rows.append({"_step": len(rows), "_runtime": now, "train/global_step": s,
                             "train/timing/step_total": took})
                now += 60 * tests
                if tests:
                    rows.append({"_step": len(rows), "_runtime": now, "eval/global_step": s,
                                 "eval/acc": score})
        if trainer == "trl":
            rows.append({"step": 200, "train_runtime": 200 * took + 20 * 60})
            state = {"global_step": 200, "max_steps": 200, "log_history": rows}
            (folder / "trainer_state.json").write_text(json.dumps(state))
        else:
            (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    say = ["--set", "pattern=bp{problems_per_batch}_n{rollouts_per_problem}", "--set", "gpus=8"]
    say += ["--map", "eval/acc=avg"] if trainer == "openrlhf" else []
    logs, study = str(tmp_path / "logs"), str(tmp_path / "study")
    assert main(["import", logs, "-o", study, *say]) == 0
    of_set = ["--problem-set", "a"] if trainer == "trl" else []
    for budget, hours in (("8gpux0.5h", 0.5), ("8gpux4h", 4)):
        asked = ["plan", study, "--budget", budget, "--json", str(tmp_path / "p.json"), *of_set]
        assert main([*asked, "--why"]) == 0
        whole = " ".join(capsys.readouterr().out.split())
        d = json.loads((tmp_path / "p.json").read_text())
        n, steps = d["rollouts_per_problem"], d["steps"]
        true = (steps * (4 + n / 2) + steps / 10 * 60) / 3600
        assert d["wall"]["hours"] == pytest.approx(true, rel=0.01)
        assert 0.9 < true / hours <= 1.01
        assert "The cost holds an evaluation every 10 updates, as in your runs." in whole


def test_times_by_a_clock_are_said_to_hold_evaluations_and_are_not_charged_twice() -> None:
    price = priced([curve(n, 100).replace(clocked=True) for n in (8, 32, 128, 512)], Rates())
    found = price.to_dict(Configuration(16, 32), 1e5)["rollouts_per_gpu_hour"]
    assert rate_words(found) == "your runs' clock, evaluations in it, within 1%"
    sweep = Sweep(problems_per_batch=16, rollouts_per_problem=(8, 32, 128), seeds=1,
                  rollouts_per_run=50_000)  # fmt: skip
    of = {"budget": 1e5, "spend": 0.5, "n_F": N, "unit": "gpu_hours"}
    assert Limits(price=price, **of).evaluated_for(sweep) == 0
    apart = Limits(price=replace(price, clocked=False), **of)
    drawn = sweep.evaluations / 1000
    assert apart.evaluated_for(sweep) == pytest.approx(drawn)
    final = apart.final(sweep, 8, 50.0), Limits(price=price, **of).final(sweep, 8, 50.0)
    assert final[0].rollouts < final[1].rollouts == 50_000 // 128 * 128


def test_a_design_pays_for_responses_that_grow_on() -> None:
    price = priced([growing(n, 0.25) for n in (8, 32, 128)], Rates())
    limits = Limits(budget=1e9, spend=0.15, n_F=(8, 32, 128), unit="tokens", price=price)
    for sweep in candidates(limits, 16, 32, fixed=True):
        runs = [16 * n * sweep.steps(n) for n in sweep.rollouts_per_problem]
        true = sweep.seeds * sum(r**1.25 for r in runs)
        assert limits.trained(sweep) == pytest.approx(true)
        assert 0.9 * 0.15e9 < true <= 0.15e9
        final = limits.final(sweep, 8, 5e8)
        assert 0.99 * 5e8 < limits.taken(final) <= 5e8
        assert limits.taken(final) >= final.rollouts**1.25


def test_one_difference_between_two_runs_tells_no_bound():
    c, other = Configuration(32, 8), Configuration(32, 16)
    assert within({c: [1.0, 1.1]}, c) is None
    assert within({c: [1.0, 1.1], other: [1.0, 0.9]}, c) is not None


def test_a_run_without_times_takes_what_others_of_its_n_take() -> None:
    runs = [growing(n, 0.25) for n in (8, 8, 32, 32, 128)]
    lacking = [c if i else c.replace(gpu_hours_K=None) for i, c in enumerate(runs)]
    assert "gpu-hours" in counted_in(lacking)
    for one, whole in zip(filled(lacking, "gpu-hours"), runs, strict=True):
        np.testing.assert_allclose(one.gpu_hours_K, whole.gpu_hours_K, rtol=1e-9)
    # It says nothing of how much runs differ by.
    assert len(priced(lacking, Rates()).hours[Configuration(16, 8)].runs) == 1
    none = [c.replace(gpu_hours_K=None) if c.rollouts_per_problem == 128 else c for c in runs]
    assert "gpu-hours" not in counted_in(none)
    assert filled(none, "gpu-hours")[-1].gpu_hours_K is None
    zero = curve(8, 100).replace(gpu_hours_K=None)
    assert filled([curve(8, 100), zero], "gpu-hours")[1].spent("gpu-hours") == pytest.approx(
        np.array([0, 1, 10, 50, 100]))  # fmt: skip


@pytest.mark.parametrize("count", [0.0, np.nan])
def test_a_column_of_zeros_counts_nothing(count: float) -> None:
    runs = [growing(n, 0.25) for n in (8, 8, 32)]
    empty = [c if i else c.replace(tokens_K=c.rollouts_K * count) for i, c in enumerate(runs)]
    assert "tokens" in counted_in(empty)
    np.testing.assert_allclose(filled(empty, "tokens")[0].tokens_K, runs[0].tokens_K, rtol=1e-9)
    none = [c.replace(tokens_K=c.rollouts_K * count) if c.rollouts_per_problem == 8 else c
            for c in runs]  # fmt: skip
    assert "tokens" not in counted_in(none)
    with pytest.raises(InputError, match="needs a `tokens` column on every row"):
        fit_sweep(none, unit="tokens", draws=20)


@pytest.mark.parametrize("unit", ["tokens", "gpu_hours"])
def test_one_rate_for_all_n_is_said_though_costs_grow(unit: str) -> None:
    name = f"{unit}_K"
    runs = [growing(n, 0.25).replace(seed=seed) for n in (8, 32, 128) for seed in (0, 1)]
    runs = [c.replace(**{name: None}) if c.rollouts_per_problem == 8 else c for c in runs]
    if unit == "tokens":
        runs = [c.replace(gpu_hours_K=None) for c in runs]
    budget = Budget(amount=1e6 if unit == "tokens" else 1.0, unit=unit)
    cost = plan_budget(fit_sweep(runs, draws=20), budget).document["cost"]
    words = "your runs' tokens" if unit == "tokens" else "your runs' times"
    assert source_words(cost) == source_words(cost, trend=False) == f"{words}, one rate for all n"


@pytest.mark.heavy
def test_a_plan_goes_by_hours_though_a_run_has_none() -> None:
    """A rollout of n = 8 takes eight times what one of n = 64 does, which lies in the middle."""
    world, rng = WORLDS["constant_small"].until(2**20), np.random.default_rng(0)
    runs = [c.replace(gpu_hours_K=c.rollouts_K / (125.0 * c.rollouts_per_problem))
            for c in world.sample(NOISE["low"], 2, rng)]  # fmt: skip

    def planned(curves: list[Curve]) -> dict[str, Any]:
        fit = fit_sweep(curves, draws=20)
        return plan_from_source("x", budget=Budget(amount=60.0, unit="gpu_hours"), fit=fit,
                                only_n=[8]).document  # fmt: skip

    lacking = [c.replace(gpu_hours_K=None) if c.seed == 0 else c for c in runs]
    whole, most = planned(runs), planned(lacking)
    assert (whole["law"]["unit"], most["law"]["unit"]) == ("gpu-hours", "gpu-hours")
    assert whole["rollouts"] == most["rollouts"] == pytest.approx(60_000, rel=0.02)
    assert whole["law"]["data_sha256"] == most["law"]["data_sha256"]
    # Where no run of some n was timed, all are priced as the middle one, and that is said.
    d = planned([c.replace(gpu_hours_K=None) if c.rollouts_per_problem == 512 else c for c in runs])
    row = d["cost"]["source"]["rollouts_per_gpu_hour"]
    assert (d["law"]["unit"], row["off"], row["beyond"]) == ("rollouts", None, "n")
    assert rate_words(row) == "your runs' times, one rate for all n"


def test_hours_of_processors_are_called_theirs() -> None:
    runs = [curve(n, 100) for n in (8, 32, 128)]
    c = Configuration(16, 32)
    for curves, word in ((runs, "GPU"), ([r.replace(device="CPU") for r in runs], "CPU")):
        cost = priced(curves, Rates()).cost({c: 1e5}, runs={c: 1e5})
        assert amounts(cost) == [f"100 {word}-hours"]
        assert amounts(only(cost, "gpu_hours")) == [f"100 {word}-hours"]
    mixed = priced([runs[0], *(r.replace(device="CPU") for r in runs[1:])], Rates())
    assert amounts(mixed.cost({c: 1e5})) == ["100 GPU-hours"]


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_a_rate_must_be_above_0(value: float) -> None:
    with pytest.raises(InputError, match="`usd_per_gpu_hour` must be a number above 0, but got"):
        Rates(usd_per_gpu_hour=value)
