"""Plans on planted draws: every number below is worked out by hand from `planted`.

Shape legend: D draws, J configurations.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fake_posterior import FakePosterior, runs_of
from isocompute.allocation import Budget, Rates, parse_budget
from isocompute.answers import Plan, advice_lines, around, plan_budget, plan_fixed_batch, worth
from isocompute.answers.around import around_source
from isocompute.answers.backtest import Backtest
from isocompute.answers.beside import lead_words, less_words, overtakes, passes_words
from isocompute.answers.broke import fell_words, trained_words
from isocompute.answers.fit import Fit, fit_sweep
from isocompute.answers.logged import as_logged, in_logs
from isocompute.answers.plan import plan_from_source
from isocompute.answers.prescribe import Question, _edges, prescribe
from isocompute.answers.price import Price
from isocompute.answers.step_lines import (
    checks,
    share_paid,
    step_lines,
    too_dear,
    too_dear_lines,
    whole_steps,
    with_checks,
)
from isocompute.answers.steps import _STEPS, Runs, nearest, run_next
from isocompute.answers.verdict import untested
from isocompute.answers.weight import trust
from isocompute.answers.words import best_n_words, n_words
from isocompute.answers.worth import _told, among_tested, probe
from isocompute.domain import Configuration, Curve, Notice, Work, notice
from isocompute.domain.notices import NOTICES
from isocompute.domain.text import takes
from isocompute.errors import InputError, RefusalError
from isocompute.recipe import RECORDED, TRAINED, Recipe
from isocompute.report.facts import facts_of
from isocompute.sources.studies import NO_STUDY_YET, Extension
from isocompute.testing.planted import NOISE, WORLDS

Arms = Mapping[tuple[int, int], Sequence[float]]
SHAKEN = np.array([-1.0, 1.0])  # octaves
AT = 1e6  # the end of the data; every curve is at 0.4 there, plus what is planted

# Two draws. Means at AT: 0.41, 0.42, 0.4185, 0.40; the best of the draws: 0.43 and 0.427.
FOUR = {(32, 16): (0.01, 0.01), (32, 32): (0.03, 0.01), (32, 64): (0.01, 0.027), (32, 128): (0, 0)}


def line(log2_bp: Any, log2_n: Any, x: Any) -> Any:
    """0.1 at a thousand rollouts, 0.4 at a million, whatever n and B_p."""
    return 0.1 + 0.1 * (x - 3.0) + 0.0 * log2_n + 0.0 * log2_bp


def steeper(log2_bp: Any, log2_n: Any, x: Any) -> Any:
    """0.3 a decade beyond a million."""
    return line(log2_bp, log2_n, x) + 0.2 * np.maximum(x - 6, 0)


def planted(
    arms: Arms = FOUR,
    *,
    surface: Any = line,
    notices: Sequence[Notice] = (),
    widened_by: float = 1.0,
    rules: Mapping[str, float] | None = None,
    kind: tuple[str, int | None] = ("fixed_problems_per_batch", 32),
    tokens: Mapping[int, float] | None = None,
    unit: str = "rollouts",
    **planted: Any,
) -> Fit:
    """What is added to the line in each of the draws, by (B_p, n)."""
    shift_DJ = np.array([arms[key] for key in sorted(arms)], dtype=float).T
    fake = FakePosterior(list(arms), surface, shift_DJ=shift_DJ, unit=unit, **planted)
    curves = runs_of(fake, np.random.default_rng(0))
    if tokens:
        each = [tokens[c.rollouts_per_problem] for c in curves]
        if unit == "tokens":  # the curves stand at tokens
            curves = [
                c.replace(tokens_K=c.rollouts_K, rollouts_K=c.rollouts_K / t)
                for c, t in zip(curves, each, strict=True)
            ]
        else:
            curves = [
                c.replace(tokens_K=c.rollouts_K * t) for c, t in zip(curves, each, strict=True)
            ]
    fake.curves = tuple(curves)
    fit = Fit(
        posterior=fake,  # type: ignore[arg-type]
        setting=dict(zip(("kind", "value"), kind, strict=True)),
        metric="avg@4",
        level=0.9,
        draws=2,
    )
    fit.__dict__["backtest"] = Backtest(widened_by=widened_by, rules=dict(rules or {}))
    fit.__dict__["notices"] = list(notices)
    return fit


def failed(fit: Fit, which: tuple[int, int]) -> Fit:
    """With runs of a configuration that failed a health rule."""
    fake: Any = fit.posterior
    fake.curves = tuple(
        c.replace(failed_rules=("divergence",)) if c.configuration == which else c
        for c in fake.curves
    )
    fit.__dict__.pop("unhealthy", None)
    return fit


def codes(document: dict[str, Any]) -> list[str]:
    return [one["code"] for one in document["notices"]]


def text(document: dict[str, Any], code: str) -> str:
    return next(one["text"] for one in document["notices"] if one["code"] == code)


def arm(document: dict[str, Any]) -> tuple[int, int]:
    return document["problems_per_batch"], document["rollouts_per_problem"]


# The choice


def test_the_largest_expected_score_is_prescribed_and_steps_take_the_rest() -> None:
    plan = plan_budget(planted(), AT)
    d = plan.document
    assert (arm(d), d["steps"]) == ((32, 32), 976)  # floor(1e6 / 1024)
    assert (d["batch_size"], d["rollouts"]) == (1024, 976 * 1024)
    assert d["budget_rollouts"] == AT
    assert plan.allocation is not None
    assert plan.allocation.rollouts == d["rollouts"]
    assert d["chosen_by"] == "expected_score"
    assert d["predicted_score"] == pytest.approx(0.42)
    assert d["predicted_score_interval"] == pytest.approx([0.41, 0.43])


def test_expected_regret_and_what_does_as_well() -> None:
    d = plan_budget(planted(), AT).document
    assert d["expected_regret"] == pytest.approx(0.017 / 2)  # the second draw: 0.427 - 0.41
    assert d["as_good"] == [32, 64]  # 0.0015 below; n = 16 lies 0.01 below
    assert d["confidence_set"] == [32, 64]


def test_n_star_has_its_interval_and_a_choice_outside_says_so() -> None:
    def hill(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return line(log2_bp, log2_n, x) - 0.01 * (log2_n - 6.5) ** 2

    # n* is 90.5 in every draw; 128 stands out of its neighbours, 64 and 128 are equal without.
    arms = {(32, n): (0.0, 0.0) for n in (16, 32, 64)} | {(32, 128): (0.01, 0.01)}
    d = plan_budget(planted(arms, surface=hill), AT).document
    assert d["rollouts_per_problem"] == 128
    assert d["rollouts_per_problem_law"] == pytest.approx(2**6.5)
    assert d["rollouts_per_problem_interval"] == pytest.approx([2**6.5, 2**6.5])
    # The interval is not called that of the best n beside a choice that lies outside.
    shown = " ".join(said(plan_budget(planted(arms, surface=hill), AT), why=True))
    assert "tested, n = 128 scores best; by the trend over n the best is 91." in shown
    inside = planted({(32, n): (0.0, 0.0) for n in (16, 64, 128)}, surface=hill, move_D=SHAKEN)
    assert "by the trend" not in " ".join(said(plan_budget(inside, AT), why=True))


def test_a_non_monotone_n_star_is_planned_like_any_other() -> None:
    gone = [notice("non_monotone"), notice("falling", times="4-fold", n=8)]
    d = plan_budget(planted(notices=gone), AT).document
    assert arm(d) == (32, 32)
    assert d["refusal"] is None
    assert {"non_monotone", "falling"} <= set(codes(d))


def test_the_smallest_stable_problems_per_batch_at_the_chosen_n() -> None:
    arms = {(16, 64): (0.0179,) * 2, (32, 64): (0.0181,) * 2, (64, 64): (0.02,) * 2,
            (16, 8): (0.0, 0.0), (64, 8): (0.0, 0.0), (64, 16): (0.0, 0.0)}  # fmt: skip
    fit = planted(arms, kind=("joint", None))
    d = plan_budget(fit, AT).document
    assert arm(d) == (32, 64)  # within 0.002 of 0.42; B_p = 16 is not
    assert "bp_untested" not in codes(d)
    assert d["expected_regret"] == pytest.approx(0.0019)
    sick = plan_budget(failed(fit, (32, 64)), AT).document
    assert arm(sick) == (64, 64)
    assert text(sick, "bp_unhealthy") == (
        "B_p = 32 at n = 64 failed divergence, so the plan takes B_p = 64."
    )
    held = plan_budget(fit, AT, max_batch_size=2048).document
    assert arm(held) == (16, 64)  # of what is left it is within 0.002 of the best
    assert held["expected_regret"] == pytest.approx(0.0021)


def test_a_batch_that_a_limit_forbids_does_not_decide_which_is_stable() -> None:
    arms = {(32, 64): (0.01,) * 2, (64, 64): (0.03,) * 2, (32, 8): (0.0,) * 2, (32, 16): (0.0,) * 2}
    fit = planted(arms, kind=("joint", None))
    assert arm(plan_budget(fit, AT).document) == (64, 64)
    assert arm(plan_budget(fit, AT, max_batch_size=2048).document) == (32, 64)


def test_one_problems_per_batch_is_taken_and_named() -> None:
    d = plan_budget(planted(), AT).document
    assert text(d, "bp_untested") == "Only B_p = 32 was tested at n = 32; another may score higher."
    sick = plan_budget(failed(planted({**FOUR, (32, 64): (0.0, 0.0)}), (32, 32)), AT).document
    assert "no larger B_p was tested" in text(sick, "bp_unstable")


# Limits


def test_the_largest_batch_bites_and_says_what_it_costs() -> None:
    d = plan_budget(planted(), AT, max_batch_size=1023).document
    assert arm(d) == (32, 16)
    in_percent: Any = planted()
    in_percent.posterior.curves = tuple(
        c.replace(score_range=(0.0, 100.0)) for c in in_percent.curves)
    said = plan_budget(in_percent, AT, max_batch_size=1023).document
    assert "instead of 32: 1.0 lower." in text(said, "capped_by_max_batch")
    assert text(d, "capped_by_max_batch") == (
        "1,023 rollouts per batch limit n to 16 instead of 32: 0.010 lower."
    )
    assert d["as_good"] == [16]  # what the limit forbids is not named
    assert d["expected_regret"] == pytest.approx((0.02 + 0.017) / 2)
    free = plan_budget(planted(), AT, max_batch_size=1024).document
    assert arm(free) == (32, 32)
    assert "capped_by_max_batch" not in codes(free)


def test_a_limit_that_costs_less_than_anybody_pays_says_nothing() -> None:
    near = planted({**FOUR, (32, 16): (0.0181, 0.0181)})
    d = plan_budget(near, AT, max_batch_size=1023).document
    assert arm(d) == (32, 16)
    assert "capped_by_max_batch" not in codes(d)


def test_fewest_steps_hold_n() -> None:
    d = plan_budget(planted(), AT, min_steps=977).document
    assert (arm(d), d["steps"]) == ((32, 16), 1953)
    assert "At least 977 steps limit n to 16 instead of 32" in text(d, "capped_by_min_steps")
    assert arm(plan_budget(planted(), AT, min_steps=976).document) == (32, 32)


def test_n_that_are_asked_for_are_the_only_ones() -> None:
    plan = plan_budget(planted(), AT, only_n=[16, 128])
    d = plan.document
    assert (arm(d), d["as_good"]) == ((32, 16), [16])
    assert text(d, "capped_by_n") == "You asked for n = 16, 128: n = 32 would score 0.010 more."
    assert "limit      You asked for n = 16, 128" in " ".join(said(plan))
    assert d["runner_up"]["rollouts_per_problem"] == 128
    # No check asks for what may not be run.
    smallest = planted({**FOUR, (32, 16): (0.05, 0.05)})
    assert "n_at_smallest_tested" in codes(plan_budget(smallest, AT).document)
    held = plan_budget(smallest, AT, only_n=[16]).document
    assert not {"n_at_smallest_tested", "capped_by_n"} & set(codes(held))
    largest = planted({**FOUR, (32, 128): (0.05, 0.05)})
    assert "capped_by_tested_n" not in codes(plan_budget(largest, AT, only_n=[128]).document)
    both = plan_budget(largest, AT, only_n=[128, 256]).document
    assert (arm(both), "capped_by_tested_n" in codes(both)) == ((32, 128), True)


def test_an_untested_n_that_is_asked_for_is_a_guess_with_a_caution() -> None:
    plan = plan_budget(planted(), AT, only_n=[24])
    d = plan.document
    assert (arm(d), d["chosen_by"]) == ((32, 24), "neighbours")
    assert "never tested at n = 24" in text(d, "split_untested")
    assert "n = 24 was never tested." in " ".join(" ".join(said(plan, why=True)).split())
    assert arm(plan_budget(planted(), AT, only_n=[16, 24]).document) == (32, 16)  # tested
    # Limits speak of what was run, not of a guess: 32 x 8 is none of one n's.
    one = planted({(32, 16): (0.01, 0.01)})
    with pytest.raises(InputError, match="the smallest one tested .512 rollouts., but got 64"):
        plan_budget(one, AT, max_batch_size=64)
    # A fixed batch of 1,024: 42 problems of 24.
    split = plan_fixed_batch(planted(), 1024, 900, only_n=[24]).document
    assert arm(split) == (42, 24)
    # Of another model's sweep too, where a check of it would take all of the budget.
    other = notice("law_of_another_model", source="published:x", model="Q")
    d = plan_budget(planted(), AT, only_n=[24], notices=[other]).document
    assert arm(d) == (32, 24)
    assert {s["settles"]: s["gain"] for s in d["run_next"]}.get("split_untested", 0.0) == 0.0


def test_twenty_steps_are_the_fewest_by_default() -> None:
    # 20 steps of 32 x 32 take 20,480 rollouts
    assert arm(plan_budget(planted(), 20_480.0).document) == (32, 32)
    assert arm(plan_budget(planted(), 20_479.0).document) == (32, 16)
    assert arm(plan_budget(planted(), 20_479.0, min_steps=1).document) == (32, 32)


def test_problems_bound_the_batch_and_their_passes_are_counted() -> None:
    arms = {(32, 8): (0.0,) * 2, (32, 16): (0.01,) * 2, (64, 32): (0.02,) * 2, (32, 64): (0.0,) * 2}
    fit = planted(arms, kind=("joint", None))
    d = plan_budget(fit, AT, problems=64).document
    assert arm(d) == (64, 32)
    assert d["passes_over_data"] == 488  # steps x 64 / 64
    d = plan_budget(fit, AT, problems=63).document
    assert arm(d) == (32, 16)
    assert "63 problems limit n to 16 instead of 32: 0.010 lower" in text(d, "capped_by_problems")
    assert plan_budget(fit, AT).document["passes_over_data"] is None


def test_more_passes_than_the_sweep_saw_are_named() -> None:
    # The sweep drew at most 1e6 / 16 = 62,500 problems in a run; the plan draws 31,232.
    assert "passes_over_data" not in codes(plan_budget(planted(), AT, problems=1000).document)
    four_fold = plan_budget(planted(), 4 * AT, problems=1000).document
    assert four_fold["passes_over_data"] == pytest.approx(3906 * 32 / 1000)
    assert text(four_fold, "passes_over_data").startswith("This budget takes 125 passes")
    # Each problem at most once is no repetition, whatever the sweep did.
    once = plan_budget(planted(), 4 * AT, problems=125_000).document
    assert "passes_over_data" not in codes(once)


def test_the_ends_of_the_n_tested_are_named_where_more_could_be_run() -> None:
    largest = planted({**FOUR, (32, 128): (0.05, 0.05)})
    d = plan_budget(largest, AT).document
    assert "n = 128 is the largest tested" in text(d, "capped_by_tested_n")
    assert {"settles": "capped_by_tested_n", "do": "test n = 256",
            "command": "isocompute run study.yaml grid.problems_per_batch=32 "
            "grid.rollouts_per_problem=256 grid.seeds=1 budget=1000000",
            "rollouts": AT, "cost": {"tokens": None, "gpu_hours": None, "usd": None},
            "gain": 0.0, "lost": d["predicted_score"]} in d["run_next"]  # fmt: skip
    priced = plan_budget(largest, AT, rates=Rates(rollouts_per_gpu_hour=1000.0))
    assert "  1. test n = 256   (1M rollouts, 1,000 GPU-hours)" in said(priced)
    step = next(s for s in priced.document["run_next"] if s["settles"] == "capped_by_tested_n")
    assert step["cost"]["gpu_hours"] == pytest.approx(1000)
    remedy = next(n["remedy"] for n in priced.document["notices"] if n["code"] == step["settles"])
    assert remedy == "Train n = 256 once (1M rollouts, 1,000 GPU-hours)."
    held = plan_budget(largest, AT, max_batch_size=32 * 128).document
    assert (arm(held), "capped_by_tested_n" in codes(held)) == ((32, 128), False)
    smallest = plan_budget(planted({**FOUR, (32, 16): (0.05, 0.05)}), AT).document
    assert "n = 16 is the smallest tested" in text(smallest, "n_at_smallest_tested")
    assert "test n = 8" in [step["do"] for step in smallest["run_next"]]
    # The end of the n at another budget is no limit of this plan.
    edge = notice("optimum_at_edge", at=8e6, unit="rollouts", n=128, end="largest", beyond=256)
    none = {"capped_by_tested_n", "n_at_smallest_tested", "optimum_at_edge"}
    assert not none & set(codes(plan_budget(planted(notices=[edge]), AT).document))


@pytest.mark.parametrize(
    ("fit", "budget", "limits", "message"),
    [
        (planted(), AT, {"max_batch_size": 511}, "smallest one tested .512 rollouts., but got 511"),
        (planted(), AT, {"problems": 31}, r"B_p = 32 is the smallest one\), but got 31"),
        (planted(), 10_239.0, {}, "`steps >= 20` must hold, which takes 10.2k .* of 10.2k"),
        (planted(), 511.0, {"min_steps": 1}, "`steps >= 1` must hold"),
        (planted(), AT, {"max_batch_size": 0}, "`max_batch_size >= 1` must hold, but got 0"),
        (planted(), AT, {"min_steps": 0}, "`min_steps >= 1` must hold, but got 0"),
        (planted(), AT, {"problems": 0}, "`problems >= 1` must hold, but got 0"),
        (planted(), AT, {"only_n": [4]}, r"octave of those tested \(8 to 256\), but got 4; "),
        (planted(), AT, {"only_n": [16, 257, 300]}, "but got 257, 300; train"),
        (planted(), AT, {"only_n": [64], "max_batch_size": 2047}, "smallest one tested .2048 "),
        (planted(), AT, {"current": 0}, "`current n >= 1` must hold, but got 0"),
        (planted(), AT, {"current": (0, 8)}, "`current B_p >= 1` must hold, but got 0"),
        (planted(), AT, {"current": (16.5, 8)}, "`current B_p >= 1` must be whole, but got 16.5"),
        (planted(), AT, {"current": (2000, 1000)}, "current batch must fit into the budget"),
        (planted(), -1.0, {}, "`rollouts > 0` must hold for a budget"),
        (planted(), parse_budget("2e9tok"), {}, "needs `tokens_per_rollout`"),
        (planted(), parse_budget("5gpuh"), {}, "needs `rollouts_per_gpu_hour`"),
        (planted(), parse_budget("$5k"), {}, "none is known; .* add --usd-per-gpu-hour 2\\.$"),
    ],
)  # fmt: skip
def test_questions_without_an_answer_are_bad_input(
    fit: Fit, budget: Any, limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan_budget(fit, budget, **limits)


# A fixed batch


def test_a_fixed_batch_is_split_by_the_scores_of_its_splits() -> None:
    arms = {(8, 128): (0.03,) * 2, (16, 64): (0.04,) * 2, (32, 32): (0.02,) * 2}
    fit = planted(arms, kind=("fixed_batch_size", 1024))
    d = plan_fixed_batch(fit, 1024, 500).document
    assert (arm(d), d["steps"], d["rollouts"]) == ((16, 64), 500, 512_000)
    assert not {"fixed_batch_law_missing", "split_untested"} & set(codes(d))
    assert d["budget_rollouts"] == 512_000


@pytest.mark.parametrize(("best", "beyond"), [((32, 32), (64, 16)), ((8, 128), (4, 256))])
def test_the_n_beyond_an_end_of_a_fixed_batch_keeps_the_batch(best: Any, beyond: Any) -> None:
    arms = {(8, 128): (0.03,) * 2, (16, 64): (0.03,) * 2, (32, 32): (0.03,) * 2}
    fit = planted({**arms, best: (0.2, 0.2)}, kind=("fixed_batch_size", 1024))
    for q in (Question(fit=fit, x=AT, batch_size=1024), Question(fit=fit, x=AT)):
        (end,) = _edges(q, Configuration(*best))  # a batch was split, whatever is asked for
        assert [c for c, _ in end.trains] == [Configuration(*beyond)]
    assert fit.at_n(Configuration(*best), beyond[1]) == Configuration(*beyond)
    assert fit.at_n(Configuration(1, 1024), 2048) == Configuration(1, 2048)


def test_no_other_batch_is_a_check_of_a_fixed_one() -> None:
    """Another n takes another B_p, and another B_p of the same n is another question."""
    fit = planted({(16, 32): (0.03,) * 2, (8, 64): (0.03,) * 2}, kind=("fixed_batch_size", 512))
    lacks = {one.code: one for one in untested(fit)}
    assert [c for c, _ in lacks["one_or_two_n"].trains] == [Configuration(4, 128)]
    assert lacks["one_or_two_n"].text.startswith("Nothing but n = 32 and 64 at a batch of 512 was")
    d = plan_budget(fit, AT).document
    assert "bp_untested" not in codes(d)
    assert "bp_untested" in codes(plan_budget(planted(), AT).document)


def test_a_split_that_was_never_tested_is_named() -> None:
    def by_problems(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return line(log2_bp, log2_n, x) + 0.02 * (log2_bp - 5)

    # B = 2048: (32, 64) is tested at 0.4185; (64, 32) 0.42 and (128, 16) 0.44 are not.
    fit = planted({**FOUR, (32, 64): (0.0185, 0.0185)}, surface=by_problems)
    d = plan_fixed_batch(fit, 2048, 488).document
    assert (arm(d), d["batch_size"], d["chosen_by"]) == ((128, 16), 2048, "neighbours")
    assert text(d, "split_untested").startswith("B_p = 128 was never tested at n = 16")
    assert "No two n were tested at a batch of 2,048" in text(d, "fixed_batch_law_missing")
    assert d["rollouts_per_problem_law"] == pytest.approx(16)
    # Without a gain of more than 0.002 the tested one stands.
    close = planted({**FOUR, (32, 64): (0.0385, 0.0385)}, surface=by_problems)
    assert arm(plan_fixed_batch(close, 2048, 488).document) == (32, 64)


def test_a_fixed_batch_keeps_the_smallest_problems_per_batch_that_was_tested() -> None:
    # B = 1024: n = 64 and 128 would leave 16 and 8 problems; 32 is the smallest tested.
    fit = planted({**FOUR, (32, 128): (0.1, 0.1)})
    d = plan_fixed_batch(fit, 1024, 500).document
    assert arm(d)[0] >= 32


def test_a_batch_that_is_no_multiple_is_never_exceeded() -> None:
    d = plan_fixed_batch(planted(), 1055, 500).document
    assert (arm(d), d["batch_size"]) == ((32, 32), 1024)
    assert d["rollouts"] <= 1055 * 500


@pytest.mark.parametrize(
    ("batch", "steps", "more", "message"),
    [
        (0, 10, {}, "`batch_size >= 1` must hold, but got 0"),
        (1024, 0, {}, "`steps >= 1` must hold, but got 0"),
        (15, 10, {}, r"smallest n tested \(16 rollouts\), but got batch_size=15"),
        (1024, 10, {"problems": 20}, r"but got 20; add problems"),
    ],
)
def test_a_fixed_batch_that_holds_nothing_is_bad_input(
    batch: int, steps: int, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan_fixed_batch(planted(), batch, steps, **more)


# One or two n


def steep(log2_bp: Any, log2_n: Any, x: Any) -> Any:
    """0.01 more for every octave of n."""
    return line(log2_bp, log2_n, x) + 0.01 * (log2_n - 5)


ONE_SEED = notice(
    "seeds_missing", what="Every n has", spread="taken from other sweeps", which="n = 8",
    trains={Configuration(32, 8): 4e6},
)  # fmt: skip
FEW = notice("one_or_two_n", which=[32], wanted=64)


def test_with_one_n_its_neighbours_are_candidates_an_octave_away() -> None:
    d = plan_budget(planted({(32, 32): (0.0, 0.0)}, surface=steep, notices=[FEW]), AT).document
    assert (arm(d), d["chosen_by"]) == ((32, 64), "neighbours")
    assert "by what its neighbours say" in " ".join(advice_lines(d, why=True))
    assert d["predicted_score"] == pytest.approx(0.41)
    assert d["rollouts_per_problem_law"] == pytest.approx(64)
    assert (d["verdict"]["level"], d["verdict"]["reason"]) == ("caution", FEW.text)
    assert d["run_next"][0] == {
        "settles": "one_or_two_n", "do": "train n = 64",
        "command": "isocompute run study.yaml grid.problems_per_batch=32 "
        "grid.rollouts_per_problem=64 grid.seeds=1 budget=1000000",
        "rollouts": 1e6, "cost": {"tokens": None, "gpu_hours": None, "usd": None},
        "gain": 0.0, "lost": d["predicted_score"],  # nothing would be left to choose
    }  # fmt: skip


def one_n_of_two_minds(shows_from: float = 0.0, of: Sequence[float] = (-0.07, 0.06)) -> Fit:
    """n = 32 alone; by draw so much more for every octave of n, from some budget on."""
    slope_D = np.repeat(of, 2)[:, None, None]  # each with either luck of a run, 0.02

    def surface(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return line(log2_bp, log2_n, x) + slope_D * (log2_n - 5) * (x >= np.log10(shows_from + 1))

    few = FEW._replace(rollouts=1e6)
    return planted({(32, 32): (0.0,) * len(slope_D)}, surface=surface, notices=[few, ONE_SEED])


@pytest.mark.parametrize(
    ("times", "rollouts", "lost"), [(3, 5e5, 0.1 * math.log10(3 / 2.5)), (1.1, 1e6, None)]
)
def test_the_run_of_the_next_n_is_as_long_as_it_pays_and_comes_first(times, rollouts, lost) -> None:
    """n = 16 scores 0.07 more or 0.06 less: var 0.065^2, of which a run shows 0.9135 with its luck.

    So 0.005 + 0.9135 (0.065 +- 0.02) is expected of it in either half of the good cases. That does
    not show before 300k rollouts: half of what n = 32 went to tells as much as all of it.
    """
    fit = one_n_of_two_minds(shows_from=3e5)
    d = plan_budget(fit, times * AT, study=None).document
    step = d["run_next"][0]
    assert (step["settles"], step["do"]) == ("one_or_two_n", "train 32 problems x 16 rollouts")
    assert step["rollouts"] == rollouts
    (remedy,) = [one["remedy"] for one in d["notices"] if one["code"] == "one_or_two_n"]
    assert remedy == f"Train n = 16 once ({takes(rollouts)})."
    if lost is None:  # it would leave no run that scores more than what is trained
        assert step["gain"] == 0
        assert not checks(d)
        page = " ".join(" ".join(advice_lines(d, why=True)).split())
        assert "(1M rollouts; may gain nothing, costs most of the run)" in page
        assert "Before you spend: nothing: every check costs more than it can gain (--why)." in (
            advice_lines(d))  # fmt: skip
    else:
        shown = 0.065**2 / (0.065**2 + 0.02**2)
        assert step["gain"] == pytest.approx((2 * 0.005 + shown * 0.13) / 4)
        assert step["lost"] == pytest.approx(lost)
        assert checks(d)[0] == step


def test_what_is_asked_comes_before_what_trains() -> None:
    few, assumed = FEW._replace(rollouts=1e6), notice("steps_assumed")
    rate = notice("anchor_assumed", model="Q")
    found = steps_of([assumed, few, rate], Configuration(32, 32), 1e6, study=None)
    assert [one["settles"] for one in found] == ["steps_assumed", "anchor_assumed", "one_or_two_n"]
    assert (found[1]["rollouts"], found[1]["command"]) == (None, "")
    plan = plan_budget(one_n_of_two_minds(), 3 * AT, study=None, notices=[rate])
    assert "  1. say the learning rate of your runs: --set learning_rate=RATE" in said(plan)
    assert any(line.endswith("(Qwen2.5-7B-Instruct's; say yours)") for line in said(plan))
    # What is trained already needs no rate.
    assert all(one["settles"] != "anchor_assumed"
               for one in checks({**plan.document, "trained": {"runs": 1, "step": 1}}))  # fmt: skip


@pytest.mark.parametrize(("more", "n"), [(0.06, 16), (0.068, 64), (0.08, 64)])
def test_fit_and_plan_try_the_n_first_that_may_improve_most(more: float, n: int) -> None:
    """n = 16 gains 0.07 in half the draws: 0.035. Within 0.002 of that the larger n is tried."""
    fit = one_n_of_two_minds(of=(-0.07, more))
    assert [one.text for one in untested(fit) if one.code == "one_or_two_n"]
    (of_fit,) = [one for one in untested(fit) if one.code == "one_or_two_n"]
    d = plan_budget(fit, 3 * AT, study=None).document
    (of_plan,) = [one for one in d["notices"] if one["code"] == "one_or_two_n"]
    assert of_fit.remedy.startswith(f"Train n = {n} once (1M rollouts)")
    assert of_plan["remedy"].startswith(f"Train n = {n} once (")
    assert d["run_next"][0]["do"] == f"train 32 problems x {n} rollouts"
    assert d["neighbours"][0]["rollouts_per_problem"] == n


def test_a_check_is_paid_from_what_those_before_it_leave() -> None:
    """Each of three costs as far as the sweep went, of twenty times as much."""
    same = {(32, n): (0.0, 0.0) for n in (16, 32, 64, 128)}
    d = plan_budget(planted(same, surface=by_problems_too), 20 * AT).document
    lost = {one["settles"]: one["lost"] for one in d["run_next"]}
    assert lost["capped_by_tested_n"] == pytest.approx(0.1 * math.log10(20 / 19))
    assert lost["bp_untested"] == pytest.approx(0.1 * math.log10(19 / 18))


def by_problems_too(log2_bp: Any, log2_n: Any, x: Any) -> Any:
    """0.01 more for every octave of n, and of B_p."""
    return line(log2_bp, log2_n, x) + 0.01 * (log2_n + log2_bp - 12)


def test_with_two_n_those_between_and_an_octave_beyond() -> None:
    fit = planted({(32, 16): (0.0, 0.0), (32, 128): (0.0, 0.0)}, surface=steep, notices=[FEW])
    d = plan_budget(fit, AT).document
    assert arm(d) == (32, 256)
    held = plan_budget(fit, AT, max_batch_size=32 * 64).document
    assert arm(held) == (32, 64)
    assert held["confidence_set"] == [256]


def test_only_what_was_trained_is_trained_on() -> None:
    two = {(32, 16): (0.0, 0.0), (32, 128): (0.0, 0.0)}
    far = plan_budget(planted(two, surface=steep, notices=[FEW]), 100 * AT, study=None)
    assert far.document["confidence_set"] == [256]  # nobody ran it
    (step,) = [s for s in far.document["run_next"] if s["settles"] == "extrapolated"]
    assert step["do"].startswith("continue n = 16, 128 to ")


def test_a_guess_must_gain_more_than_what_nobody_pays_for() -> None:
    # The neighbours say 0.41 at n = 64; n = 32 itself scores 0.4079, or 0.4081.
    kept = planted({(32, 32): (0.0081,) * 2}, surface=steep, notices=[FEW])
    d = plan_budget(kept, AT).document
    assert (arm(d), d["chosen_by"]) == ((32, 32), "expected_score")
    assert d["as_good"] == [32]
    assert d["run_next"][0]["do"] == "train n = 64"  # what could be better is tried first
    left = planted({(32, 32): (0.0079,) * 2}, surface=steep, notices=[FEW])
    assert arm(plan_budget(left, AT).document) == (32, 64)


def test_a_guess_must_be_sure() -> None:
    # Twenty draws whose slope in n is 0.03, but in one (or two) it falls: 95% (or 90%).
    def fan(falling: int) -> Any:
        slope_D = np.where(np.arange(20) < falling, -0.01, 0.03)[:, None, None]
        return lambda bp, n, x: line(bp, n, x) + slope_D * (n - 5)

    some = {(32, 32): (0.0,) * 20}
    sure = plan_budget(planted(some, surface=fan(1), notices=[FEW]), AT).document
    assert arm(sure) == (32, 64)
    kept = plan_budget(planted(some, surface=fan(2), notices=[FEW]), AT)
    assert arm(kept.document) == (32, 32)
    twice, half = kept.document["neighbours"]  # it improves by 0.027 in the mean, or by 0.001
    assert (half["rollouts_per_problem"], twice["rollouts_per_problem"]) == (16, 64)
    assert kept.document["run_next"][0]["do"] == "train n = 64"
    assert twice["gain"] == pytest.approx(0.9 * 0.03 - 0.1 * 0.01)
    assert twice["gain_interval"] == pytest.approx([-0.01, 0.03])
    assert twice["score"] == pytest.approx(0.426)
    assert twice["interval"] == pytest.approx([0.39, 0.43])
    assert "  untested n 64: +0.026 (-0.010 to +0.030), 16: -0.026 (-0.030 to +0.010)" in said(kept)


def test_with_three_n_nothing_untested_is_prescribed() -> None:
    arms = {(32, n): (0.0, 0.0) for n in (16, 32, 64)}
    d = plan_budget(planted(arms, surface=steep), AT).document
    assert (arm(d), d["neighbours"]) == ((32, 64), [])


# Beyond the data


def test_beyond_the_data_the_distance_is_named_and_intervals_are_widened() -> None:
    inside = plan_budget(planted(), AT).document
    assert inside["extrapolation_log10"] == 0
    assert "extrapolated" not in codes(inside)
    d = plan_budget(planted(widened_by=3.0), 4 * AT).document
    assert d["extrapolation_log10"] == pytest.approx(math.log10(4))
    assert text(d, "extrapolated").startswith("All n were compared only up to ")
    assert text(d, "extrapolated").endswith(
        "This plan is 4 times that; its intervals assume that the trend continues."
    )
    low, high = d["predicted_score_interval"]
    assert high - low == pytest.approx(3 * 0.02)
    assert trust(31) == ", where intervals held in 4 of 5 simulated sweeps"
    assert trust(101) == "; intervals so far out were never checked"
    far = text(plan_budget(planted(), 12 * AT).document, "extrapolated")
    assert far.endswith(
        "This plan is 12 times that, where intervals held in 9 of 10 simulated sweeps."
    )
    # Where nobody ever checked, that weighs more than whose sweep it is.
    other = notice("law_of_another_model", source="published:x", model="Q")
    for times, reason in ((99, "Not your data"), (101, "All n were compared only up to")):
        d = plan_budget(planted(), times * AT, notices=[other]).document
        assert d["verdict"]["reason"].startswith(reason)


@pytest.mark.parametrize(("slope", "times"), [(0.3, 2), (0.1, 4), (0.002, None)])
def test_a_check_on_the_way_is_where_a_run_that_stalls_would_show(slope, times) -> None:
    """One evaluation lies within 0.02 of its mean, a draw of it within 0.01."""
    def surface(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return line(log2_bp, log2_n, x) + (slope - 0.1) * np.maximum(x - 6, 0)

    fit = planted(surface=surface)
    check = plan_budget(fit, 100 * AT).document["check"]
    if times is None:
        assert check is None
    else:
        assert check["x"] == pytest.approx(times * AT, rel=1e-6)


def test_on_its_way_a_plan_names_the_score_to_expect() -> None:
    fit = planted(surface=steeper)
    assert plan_budget(fit, 2 * AT).document["check"] is None  # its end
    assert plan_budget(fit, 3.9 * AT).document["check"] is None  # later than half of it
    d = plan_budget(fit, 4 * AT).document
    check, b = d["check"], d["batch_size"]
    known = max(float(c.rollouts_K[-1]) for c in fit.curves)
    assert check["x"] == pytest.approx(2 * known)
    assert check["step"] == int(2 * known / b)
    assert check["rollouts"] == check["step"] * b
    chosen = Configuration(d["problems_per_batch"], d["rollouts_per_problem"])
    own_D = fit.scores_of([chosen], check["x"])[:, 0]
    assert check["score"] == pytest.approx(own_D.mean())
    low, high = check["interval"]
    assert high - low > own_D.max() - own_D.min()  # a run's own luck
    said = f"below {low:.3f} at step {check['step']:,} (expected: {check['score']:.3f}); fit again"
    assert f"  stop if    {said}" in "\n".join(advice_lines(d))


def test_a_run_is_stopped_at_a_step_at_which_it_is_evaluated() -> None:
    fit = planted(surface=steeper)
    plain = plan_budget(fit, 4 * AT).document["check"]
    fake: Any = fit.posterior
    every = [11 * k for k in range(12)]

    def logged_at(steps: list[int]) -> dict[str, Any]:
        fake.curves = tuple(
            c.replace(steps_K=np.array(steps[: len(c.rollouts_K)], float)) for c in fake.curves)
        found: dict[str, Any] = plan_budget(fit, 4 * AT).document["check"]
        return found

    check = logged_at(every)
    assert plain["step"] % 11
    assert check["step"] == -(-plain["step"] // 11) * 11
    assert check["x"] == check["rollouts"] > plain["x"]
    assert check["score"] > plain["score"]  # that of the step named
    later = logged_at([0, *(11 * k + 3 for k in range(11))])
    assert later["step"] % 11 == 3
    assert logged_at([2**k for k in range(12)]) == plain  # of no interval


def test_a_plan_says_what_its_checks_leave_of_it() -> None:
    fit = planted(surface=steeper)
    asked = notice("difficulty_assumed")  # 16 answers to each problem
    rates = Rates(rollouts_per_gpu_hour=1e5)
    d = plan_budget(fit, 4 * AT, rates=rates, study=None, notices=[asked],
                    problems=62_500).document  # fmt: skip
    chosen = Configuration(d["problems_per_batch"], d["rollouts_per_problem"])
    assert d["after_checks"]
    for row in d["after_checks"]:
        assert row["rollouts"] == row["steps"] * chosen.batch_size < d["rollouts"]
        own_D = fit.scores_of([chosen], row["rollouts"])[:, 0]
        assert row["predicted_score"] == pytest.approx(own_D.mean())
    left = d["after_checks"][-1]
    score = f"{left['predicted_score']:.3f}"
    lines = advice_lines(d, why=True)
    head = next(line for line in lines if line.startswith("Before you spend"))
    assert head.endswith(f"; leaves a run of {left['steps']:,} steps, score {score}):")
    assert len(head) <= 80
    # Where it ends before the step at which it would be stopped, nothing is held against it.
    late = {**d, "check": {**d["check"], "step": left["steps"]}}
    said = next(line for line in advice_lines(late) if line.startswith("  stop if"))
    assert said.endswith(" (if you skip the checks)")
    assert "fit again" in next(line for line in lines if line.startswith("  stop if"))
    ranged = {**d, "logged": {"key": "", "range": [-1.0, 1.0]}}
    assert f"score {2 * left['predicted_score'] - 1:.3f}):" in "\n".join(advice_lines(ranged))


def test_a_plan_paid_in_tokens_says_its_tokens() -> None:
    """They gave way to the words on where its GPU-hours come from, on the page in any case."""
    rates = Rates(tokens_per_rollout=500, rollouts_per_gpu_hour=900)
    d = plan_budget(planted(), AT, rates=rates).document
    found = {"value": 900, "from": "sweep", "off": None, "beyond": "runs", "clocked": True}
    d["cost"]["source"]["rollouts_per_gpu_hour"] = found
    d |= {"wall": {"gpus": 4, "hours": 277.5}}
    (cost,) = (line for line in advice_lines(d) if line.startswith("  cost"))
    assert cost.startswith("  cost       1,110 GPU-hours, 500M tokens   (carried on")
    assert dict(facts_of(None, d))["Cost"].startswith("1,110 GPU-hours, 500M tokens, 12 days")
    d["cost"]["source"]["tokens_per_rollout"]["from"] = "sweep"
    assert "tokens" not in next(line for line in advice_lines(d) if line.startswith("  cost"))
    assert "tokens" not in dict(facts_of(None, d))["Cost"]


def test_a_check_that_costs_whole_steps_leaves_the_others() -> None:
    """131,072 of 499,712 rollouts were 256 steps of 976, and left 719."""
    step = {"settles": "capped_by_tested_n", "rollouts": 131_072.0, "cost": {}}
    d = {"law": {"unit": "rollouts"}, "cost": {}, "rollouts": 499_712, "steps": 976,
         "after_checks": []}  # fmt: skip
    assert whole_steps((1 - (share_paid(d, [step]) or 0.0)) * 976) == 720


def test_no_check_shortens_a_fixed_batch() -> None:
    """Its steps are said, and no budget pays for a check: none of them are taken away."""
    fit = planted(surface=steeper)
    asked = notice("difficulty_assumed")  # 16 answers to each problem
    d = plan_fixed_batch(fit, 2048, 700, study=None, notices=[asked],
                         problems=30_000).document  # fmt: skip
    (step, *_) = d["run_next"]
    assert step["rollouts"] > 0.2 * d["rollouts"]  # of a budget it would show
    assert d["after_checks"] is None
    # What other rules choose is a split of that batch, too.
    assert {r["problems_per_batch"] * r["rollouts_per_problem"] for r in d["rules"].values()} == {
        2048}  # fmt: skip
    said = "\n".join(advice_lines(d, why=True))
    assert "Before you spend (" in said
    assert "leaves" not in said
    assert "nothing is left" not in said


def test_a_budget_below_the_data_is_named_too() -> None:
    fit = planted(first=5.0)
    d = plan_budget(fit, 50_000.0).document
    said = text(d, "extrapolated_down")
    assert said == "All n were compared only from 100k rollouts on; this is 2 times less."
    assert d["check"] is None


def test_no_budget_is_too_far_to_be_planned() -> None:
    assert plan_budget(planted(), 1000 * AT).refusal is None


# What it gains


def test_the_gain_over_todays_n_is_the_difference_in_the_same_draws() -> None:
    gain = plan_budget(planted(), AT, current=128).document["gain"]
    assert (gain["problems_per_batch"], gain["rollouts_per_problem"]) == (32, 128)
    assert gain["score"] == pytest.approx(0.02)
    assert gain["interval"] == pytest.approx([0.01, 0.03], abs=1e-9)
    assert (gain["tested"], gain["steps"]) == (True, 244)
    assert plan_budget(planted(), AT).document["gain"] is None


def test_the_gain_over_the_choice_itself_is_nothing() -> None:
    gain = plan_budget(planted(), AT, current=Configuration(32, 32)).document["gain"]
    assert (gain["score"], gain["interval"]) == (0, [0, 0])


def test_todays_setting_need_not_have_been_tested() -> None:
    rates = Rates(rollouts_per_gpu_hour=1000.0)
    d = plan_budget(planted(surface=steep), AT, current=Configuration(64, 4), rates=rates).document
    gain = d["gain"]
    assert gain["tested"] is False
    # 128 scores 0.42 on its own line; n = 4 lies three octaves below 32
    assert gain["score"] == pytest.approx(d["predicted_score"] - 0.37)
    assert gain["cost"]["gpu_hours"] == pytest.approx(3906 * 256 / 1000)


def test_today_has_its_own_score_and_an_n_that_nothing_is_known_of_is_refused() -> None:
    d = plan_budget(planted(), AT, current=128).document
    assert d["gain"]["predicted_score"] == pytest.approx(d["predicted_score"] - d["gain"]["score"])
    assert plan_budget(planted(), AT, current=1024).document["gain"]["tested"] is False
    with pytest.raises(InputError, match="within a factor of 8 of a tested n, but got n = 2048"):
        plan_budget(planted(), AT, current=2048)


def test_todays_n_stands_at_a_problems_per_batch_that_was_tested() -> None:
    arms = {(16, 8): (0.0,) * 2, (32, 16): (0.01,) * 2, (32, 64): (0.03,) * 2, (32, 32): (0.0,) * 2}
    fit = planted(arms, kind=("joint", None))
    gain = plan_budget(fit, AT, current=8).document["gain"]
    assert (gain["problems_per_batch"], gain["score"]) == (16, pytest.approx(0.03))
    fixed = plan_fixed_batch(fit, 2048, 488, current=8).document["gain"]
    assert fixed["problems_per_batch"] == 256


# Rules


def test_simple_rules_stand_beside_the_choice_with_what_they_lost() -> None:
    lost = {"model": 0.001, "best_so_far": 0.03, "largest_n": 0.02, "next_n": 0.01}
    rules = plan_budget(planted(rules=lost), AT).document["rules"]
    n = {name: row["rollouts_per_problem"] for name, row in rules.items()}
    assert n == {"model": 32, "best_so_far": 32, "largest_n": 128, "next_n": 64, "paper": 64}
    assert {name: row["lost"] for name, row in rules.items()} == {**lost, "paper": None}
    assert rules["largest_n"]["score"] == pytest.approx(0.4)
    assert plan_budget(planted(), AT).document["rules"]["model"]["lost"] is None


def test_best_so_far_is_the_best_of_the_data_not_of_the_budget() -> None:
    def late(log2_bp: Any, log2_n: Any, x: Any) -> Any:  # n = 64 leads beyond the data only
        return line(log2_bp, log2_n, x) + 0.1 * (x - 6.2) * (log2_n - 5)

    arms = {(32, n): (0.0, 0.0) for n in (16, 32, 64)}
    d = plan_budget(planted(arms, surface=late), 10 * AT).document
    assert d["rollouts_per_problem"] == 64
    assert d["rules"]["best_so_far"]["rollouts_per_problem"] == 16


# Recipe, rates, cost


def test_the_learning_rate_follows_the_square_root_from_the_anchor() -> None:
    d = plan_budget(planted(), AT).document
    assert d["learning_rate"] == pytest.approx(1e-6)  # B = 1024, the anchor's
    assert d["learning_rate_from"] == "Qwen2.5-7B-Instruct"
    own = Recipe(learning_rate=3e-4, base_batch_size=512, learning_rate_scaling="linear")
    d = plan_budget(planted(), AT, recipe=own).document
    assert (d["learning_rate"], d["learning_rate_from"]) == (pytest.approx(6e-4), "study")


@pytest.mark.parametrize(("difficulty", "kl"), [("easy", 1e-3), ("hard", 0.0), ("mixed", 0.0)])
def test_the_recipe_is_that_of_the_difficulty(difficulty: Any, kl: float) -> None:
    d = plan_budget(planted(), AT, difficulty=difficulty).document
    assert (d["recipe"]["kl_coef"], d["recipe"]["entropy_coef"]) == (kl, kl)
    assert d["difficulty"] == difficulty


def test_cost_is_known_where_a_rate_is_and_says_where_it_came_from() -> None:
    rates = Rates(rollouts_per_gpu_hour=1024.0, usd_per_gpu_hour=2.0)
    known = {"rollouts_per_gpu_hour": "study"}
    d = plan_budget(planted(), AT, rates=rates, rates_from=known).document
    assert d["cost"] == {
        "tokens": None, "gpu_hours": 976.0, "usd": 1952.0,
        "at_least": {"tokens": None, "gpu_hours": 976.0, "usd": 1952.0},
        "source": {"rollouts_per_gpu_hour": {"value": 1024.0, "from": "study"},
                   "usd_per_gpu_hour": {"value": 2.0, "from": "given"}},
    }  # fmt: skip
    assert plan_budget(planted(), AT).document["cost"]["source"] == {}


def test_far_fewer_problems_than_the_sweep_had_are_said() -> None:
    fit = planted()
    few = plan_budget(fit, AT, problems=500, trained_on=2001).document
    assert "500 problems are far fewer than the sweep's 2,001" in text(few, "problems_fewer")
    for known in (2000, None):
        d = plan_budget(fit, AT, problems=500, trained_on=known).document
        assert "problems_fewer" not in codes(d)
    # Then passes are those of the n chosen: a smaller one made more of them over more problems.
    for known in (2001, 2000):
        d = plan_budget(fit, AT / 3, problems=500, trained_on=known).document
        assert d["passes_in_sweep"]["of_n"] < d["passes_over_data"] < d["passes_in_sweep"]["most"]
        assert ("passes_over_data" in codes(d)) == (known > 2000)


def test_the_published_sweep_had_6000_problems() -> None:
    for source in (None, "published:qwen2.5-7b-easy-bp64"):
        assert around_source(source, "easy", Rates())["trained_on"] == 6000


def test_a_recipe_of_its_own_says_nothing_of_the_difficulty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for recipes, given, said in (((Recipe(),), None, None), ((Recipe(),), "hard", "hard"),
                                 ((), None, "easy")):  # fmt: skip
        facts = SimpleNamespace(recipes=recipes, file=None, problems=None)
        monkeypatch.setattr(around, "study_facts", lambda source, facts=facts: facts)
        of = around_source("a.csv", given, Rates())
        assert of["difficulty"] == said
        assumed = [one.code for one in of["notices"]].count("difficulty_assumed")
        assert assumed == (not recipes)


def test_tokens_are_measured_on_the_sweep_unless_given() -> None:
    fit = planted(tokens={16: 500, 32: 500, 64: 500, 128: 900})
    d = plan_budget(fit, parse_budget("5e8tok")).document
    assert d["budget_rollouts"] == pytest.approx(AT)
    assert "500 per rollout" in text(d, "tokens_measured")
    known = {"value": pytest.approx(500), "from": "sweep", "beyond": "n"}
    assert d["cost"]["source"]["tokens_per_rollout"] == known
    given = plan_budget(fit, parse_budget("5e8tok"), rates=Rates(tokens_per_rollout=1000.0))
    assert given.document["budget_rollouts"] == pytest.approx(AT / 2)
    assert "tokens_measured" not in codes(given.document)


def test_a_fit_by_tokens_buys_rollouts_by_the_length_of_each_n() -> None:
    # Tokens stand where rollouts did: a million in all. n = 32 writes 10 a rollout.
    fit = planted(tokens={16: 20, 32: 10, 64: 20, 128: 20}, unit="tokens")
    d = plan_budget(fit, parse_budget("1e6tok")).document
    assert arm(d) == (32, 32)
    assert (d["steps"], d["budget_rollouts"]) == (97, pytest.approx(1e5))
    assert d["cost"]["tokens"] == pytest.approx(97 * 1024 * 10)
    assert d["predicted_score"] == pytest.approx(0.42)
    with pytest.raises(InputError, match="compares n at equal tokens, but the budget is 50k roll"):
        plan_budget(fit, 5e4)
    # Of one rate for all, equal rollouts are equal tokens.
    given = plan_budget(fit, 1e5, rates=Rates(tokens_per_rollout=10.0)).document
    assert given["predicted_score"] == pytest.approx(0.42)


# Verdict and refusal


def test_one_reason_is_named_the_weightiest_first() -> None:
    seeds = ONE_SEED
    d = plan_budget(planted(notices=[seeds]), AT).document
    assert d["verdict"] == {"level": "caution", "reason": seeds.text}  # before bp_untested
    assert d["notices"][0]["code"] == "seeds_missing"
    far = plan_budget(planted(notices=[seeds]), 4 * AT).document
    assert far["notices"][0]["code"] == "extrapolated"
    arms = {(16, 32): (0.02, 0.02), **FOUR}
    assert plan_budget(planted(arms), AT).document["verdict"] == {"level": "ok", "reason": ""}


def test_warnings_are_the_alias_of_notices() -> None:
    mine = notice("anchor_assumed", model="X")
    d = plan_budget(planted(), AT, notices=[mine, mine]).document
    assert [one["code"] for one in d["warnings"]] == codes(d)
    assert codes(d).count("anchor_assumed") == 1
    line = f"# The learning rate is {d['learning_rate_from']}'s: put yours."
    assert line in advice_lines(d, trainer="trl")
    told = advice_lines({**d, "notices": []}, trainer="trl")
    assert not any("put yours" in line for line in told)
    assert {"code": "anchor_assumed", "message": f"{mine.text} {mine.remedy}"} in d["warnings"]


STOP = notice("no_skill", skill=-0.5, which="n = 32", how="on to 2M rollouts",
              trains={Configuration(32, 32): 1e6})  # fmt: skip


def test_a_verdict_of_stop_is_a_refusal_that_says_what_is_known() -> None:
    mine = notice("anchor_assumed", model="X")
    plan = plan_budget(planted(notices=[STOP]), AT, source="s.csv", notices=[mine])
    assert plan.allocation is None
    assert isinstance(plan.refusal, RefusalError)
    assert plan.refusal.exit_code == 3
    d = plan.document
    assert d["verdict"]["level"] == "stop"
    assert d["refusal"]["reason"] == f"{STOP.text} {STOP.remedy}"
    assert d["refusal"]["run_next"] == [STOP.remedy]
    assert d["budget_rollouts"] == AT
    assert d["rollouts_per_problem"] is None
    assert codes(d) == ["no_skill", "anchor_assumed"]
    assert (d["law"]["source"], d["law"]["support"][1]) == ("s.csv", pytest.approx(AT))
    json.dumps(d, allow_nan=False)


@pytest.mark.parametrize(("apart", "refused"), [(0.199, False), (0.25, True)])
def test_a_score_that_is_not_known_is_no_plan(apart: float, refused: bool) -> None:
    # Two draws `apart` from each other: the interval between them.
    plan = plan_budget(planted({(32, 16): (0, 0), (32, 64): (0.05, 0.05 + apart)}), AT)
    assert (plan.allocation is None) == refused
    reason = "The score of n = 64 at 1M rollouts is not known: 0.45 to 0.70. Train one run of it"
    assert plan.document["verdict"]["reason"].startswith(reason) == refused
    assert codes(plan.document).count("score_unknown") == refused


def test_a_refused_budget_comes_with_one_that_would_do() -> None:
    """The draws fan out beyond the data: at 8 times they are too wide, at 4 times not."""

    def fan(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return 0.5 + 0.0194 * log2_n * np.maximum(x - 6.0, 0.0) + 0.0 * log2_bp

    moves = np.linspace(-8, 8, 200)  # octaves: 90% of them make 0.28 of score at ten times
    fit = planted({(32, n): np.zeros(200) for n in (16, 64, 256)}, surface=fan, move_D=moves)
    plan = plan_budget(fit, 8e6)
    assert plan.refusal is not None
    assert plan.refusal.run_next == (
        "Train one run of it to 2M rollouts first (1M rollouts), or plan for at most 4.7M rollouts "
        "and go on from there.",
    )
    assert plan_budget(fit, 4e6).allocation is not None
    # Where no half of a half is known either, none is named.
    early = planted({(32, 16): (0, 0), (32, 64): (0, 0.25)}, first=5.9)
    refused = plan_budget(early, AT).refusal
    assert refused is not None
    assert refused.run_next == (
        "Train one run of it to 1M rollouts first (1M rollouts), or plan for a smaller budget and "
        "go on from there.",
    )


def test_which_n_may_be_best_is_said_of_the_budget_of_the_plan() -> None:
    """Three n lead in a third of the draws each at the budget, whatever the fit said of its own."""
    of_the_fit = notice("n_not_told_apart", at=5e6, unit="rollouts", which=[16, 64], good="16",
                        all_of_them="both")  # fmt: skip
    luck = np.eye(3).repeat(20, axis=1) * 0.01
    fit = planted({(32, n): luck[i] for i, n in enumerate((16, 64, 256))}, notices=[of_the_fit])
    d = plan_budget(fit, AT).document
    assert text(d, "n_not_told_apart") == (
        "n = 16, 64, 256 are not told apart at 1M rollouts: any of them may be best.")
    assert codes(d).count("n_not_told_apart") == 1
    # The seeds that tell them apart are trained to the plan's budget, and no run beyond its end.
    found = {one["code"]: one["rollouts"] for one in d["notices"]}
    assert found["n_not_told_apart"] == pytest.approx(6 * 1e6)
    longest = max(float(c.rollouts_K[-1]) for c in fit.curves)
    far = plan_budget(fit, 2 * longest).document["notices"]
    (cost,) = [one["rollouts"] for one in far if one["code"] == "n_not_told_apart"]
    assert cost == pytest.approx(6 * longest)
    # Of those that the limits leave, one is open to nobody.
    held = plan_budget(fit, AT, max_batch_size=32 * 16).document
    assert "n_not_told_apart" not in codes(held)


@pytest.mark.parametrize(("fell", "times", "first"), [
    (2, 4, "falls_after_peak"), (1, 4, "n_not_told_apart"), (2, 1, "n_not_told_apart"),
])  # fmt: skip
def test_that_most_runs_fell_is_the_first_caution_of_a_plan_that_goes_on(
    fell: int, times: float, first: str
) -> None:
    luck = np.eye(3).repeat(20, axis=1) * 0.01
    late = notice("falls_after_peak", which=["n = 16"])
    fit = planted({(32, n): luck[i] for i, n in enumerate((16, 64, 256))}, notices=[late])
    fake: Any = fit.posterior
    those = sorted({c.rollouts_per_problem for c in fake.curves})[:fell]
    down = np.array([0.0, -0.1])
    fake.curves = tuple(
        c.replace(score_K=c.score_K + np.repeat(down, [len(c.score_K) - 8, 8]))
        if c.rollouts_per_problem in those else c for c in fake.curves)
    assert plan_budget(fit, times * AT).document["notices"][0]["code"] == first


def test_what_is_held_against_the_log_is_in_its_units() -> None:
    """A reward of -1 to 1 that is fitted as 0..1: twice the score, less one."""
    plain, read = planted(surface=steeper), planted(surface=steeper)
    key = "val-core/math500/reward/mean@4"
    fake: Any = read.posterior
    fake.curves = tuple(c.replace(score_range=(-1.0, 1.0), key=key) for c in fake.curves)
    d, of = (plan_budget(fit, 10 * AT, current=16).document for fit in (read, plain))
    assert d["predicted_score"] == of["predicted_score"]  # as ever
    low, high = d["check"]["interval"]
    assert d["logged"] == {
        "key": key, "range": [-1.0, 1.0],
        "predicted_score": pytest.approx(2 * d["predicted_score"] - 1),
        "predicted_score_interval": pytest.approx(
            [2 * end - 1 for end in d["predicted_score_interval"]]),
        "check_score": pytest.approx(2 * d["check"]["score"] - 1),
        "check_interval": pytest.approx([2 * low - 1, 2 * high - 1]),
    }  # fmt: skip
    rows = {line[2:13].strip(): line for line in advice_lines(d) if line.startswith("  ")}
    assert f"reward/mean@4 below {2 * low - 1:.3f} at step" in rows["stop if"]
    assert f"{2 * d['predicted_score'] - 1:.3f} (" in rows["score"]
    assert f" {2 * d['gain']['score']:+.3f} (" in rows["gain"]  # a difference: no less one
    assert f"{2 * d['half']['predicted_score'] - 1:.3f}" in rows["for less"]
    assert any(key in line for line in advice_lines(d, why=True))
    whole = "\n".join(advice_lines(of, why=True))
    assert "-1 to 1" not in whole
    percent = {**d, "logged": {"key": "", "range": [0.0, 100.0]}}
    assert f"  score      {100 * d['predicted_score']:.1f} (" in "\n".join(advice_lines(percent))


def test_a_score_is_carried_to_the_range_of_the_log() -> None:
    of: Any = SimpleNamespace(curves=[SimpleNamespace(score_range=(-1.0, 3.0))])
    assert [in_logs(of, score) for score in (0.0, 0.25, 1.0)] == [-1.0, 0.0, 3.0]


def test_of_many_n_that_are_not_told_apart_a_plan_asks_for_seeds_of_the_three_nearest() -> None:
    """In the caution as in the step: the one asked for all five, the other for three."""
    luck = np.eye(5).repeat(20, axis=1) * 0.01
    fit = planted({(32, n): luck[i] for i, n in enumerate((8, 16, 64, 256, 512))})
    d = plan_budget(fit, AT, current=64).document
    (open_,) = [one for one in d["notices"] if one["code"] == "n_not_told_apart"]
    seeds = "two more seeds of n = 16, 64, 256 (6M rollouts)."
    assert open_["remedy"] == f"Take n = 64, or train {seeds}"
    (step,) = [one for one in d["run_next"] if one["settles"] == "n_not_told_apart"]
    assert (step["do"], step["rollouts"]) == ("add two seeds of n = 16, 64, 256", open_["rollouts"])


def test_n_that_are_not_told_apart_are_said_first_and_which_to_take() -> None:
    luck = np.eye(3).repeat(20, axis=1) * 0.01
    fit = planted({(32, n): luck[i] for i, n in enumerate((16, 64, 256))})
    d = plan_budget(fit, AT).document
    assert d["not_told_apart"] == {
        "rollouts_per_problem": [16, 64, 256], "take": 16, "other": None, "why": "any",
        "cost_share": None,
    }  # fmt: skip
    (remedy,) = [one["remedy"] for one in d["notices"] if one["code"] == "n_not_told_apart"]
    assert remedy == "Take n = 16, or train two more seeds of all 3 n (6M rollouts)."
    lines = advice_lines(d)
    assert lines[1] == "  n          16, 64 and 256 are not told apart: any of them may be best"
    assert d["verdict"]["reason"] == text(d, "n_not_told_apart")
    # Today's n is taken where it is as good. Who follows JSON runs what the first line says.
    today = plan_budget(fit, AT, current=64).document
    assert today["rollouts_per_problem"] == today["not_told_apart"]["take"] == 64
    assert (today["not_told_apart"]["other"], today["chosen_by"]) == (None, "trained")
    less = planted({(32, n): luck[i] - 0.003 * (n == 64) for i, n in enumerate((16, 64, 256))})
    today = plan_budget(less, AT, current=64).document
    assert advice_lines(today)[1].endswith("are not told apart: today's 64 may be best, too")
    assert today["rollouts_per_problem"] == today["not_told_apart"]["take"] == 16
    assert today["not_told_apart"]["other"] == 64
    other = plan_budget(fit, AT, current=8).document["not_told_apart"]
    assert (other["take"], other["why"]) == (16, "any")  # today's n is none of them
    seeds = d["run_next"][0]  # they gain at most what not knowing loses
    assert (seeds["settles"], seeds["gain"]) == (
        "n_not_told_apart", pytest.approx(d["expected_regret"]))  # fmt: skip
    far = plan_budget(fit, 4 * AT).document  # beyond the data: it is still what decides
    assert far["verdict"]["reason"].startswith("n = 16, 64, 256 are not told apart")
    fake: Any = fit.posterior
    hours = {16: 4e-3, 64: 2e-3, 256: 1e-3}
    fake.curves = tuple(
        c.replace(gpu_hours_K=hours[c.rollouts_per_problem] * c.rollouts_K) for c in fake.curves)
    fast = plan_budget(fit, AT).document
    assert (fast["not_told_apart"]["take"], fast["not_told_apart"]["other"]) == (16, 256)
    assert fast["not_told_apart"]["cost_share"] == pytest.approx(0.25)
    assert advice_lines(fast)[1].endswith(": n = 256 costs 75% less")
    fake.curves = tuple(  # by a hundredth clocks differ anyway
        c.replace(gpu_hours_K=(1 + 0.01 * (c.rollouts_per_problem == 16)) * c.rollouts_K)
        for c in fake.curves)
    alike = plan_budget(fit, AT).document["not_told_apart"]
    assert (alike["other"], alike["why"], alike["cost_share"]) == (None, "any", None)
    hours = {16: 1.01, 64: 1.0, 256: 2.0}  # 16 is the cheapest as far as clocks tell
    fake.curves = tuple(
        c.replace(gpu_hours_K=hours[c.rollouts_per_problem] * c.rollouts_K) for c in fake.curves)
    cheap = plan_budget(fit, AT)
    found = cheap.document["not_told_apart"]
    assert (found["other"], found["why"], found["cost_share"]) == (None, "cheapest", None)
    assert advice_lines(cheap.document)[1].endswith(": n = 16 is the cheapest")
    assert plan_budget(planted(), AT).document["not_told_apart"] is None
    many = {**today["not_told_apart"], "rollouts_per_problem": [2**i for i in range(3, 12)]}
    assert advice_lines({**today, "not_told_apart": many})[1] == (
        "  n          9 n from 8 to 2048 are not told apart: today's 64 may be best, too")


def test_more_runs_of_what_was_tested_gain_as_far_as_they_tell_of_the_budget() -> None:
    """Of two n each is ahead by 0.06 in half the draws, but only beyond 300k rollouts."""

    def late(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        side = np.sign(np.rint(log2_n) - log2_n) * np.where(np.rint(log2_n) % 2 == 0, 1, -1)
        return line(log2_bp, log2_n, x) + 0.03 * side * (x > 5.48)

    # A run's own luck is 0.02 up, 0.02 down in turns: it goes with no shift.
    two = {(32, 16): (0.0,) * 4, (32, 32): (0.0,) * 4}
    fit = planted(two, surface=late, move_D=1e-3 * np.array([1, 1, -1, -1]))
    q = Question(fit=fit, x=AT)
    found = prescribe(q)
    two_seeds = [dict.fromkeys(fit.configurations, Work(2 * to, runs=2)) for to in (2e5, 5e5)]
    gain = [among_tested(q, found, trains) for trains in two_seeds]
    assert gain == pytest.approx([0.0, 0.03], abs=1e-9)
    # The three runs there are end at 1M: further on they are no nearer to a smaller budget.
    more = among_tested(
        q, found, dict.fromkeys(fit.configurations, Work(3e5, runs=3, after=1e6)))  # fmt: skip
    assert more == pytest.approx(0.03)


def test_every_run_of_a_check_has_its_own_luck_and_its_own_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit, seen = planted(), list[tuple[int, float, int]]()
    q = Question(fit=fit, x=4 * AT)
    found, draws = prescribe(q), worth.one_run

    def one_run(fit: Fit, c: Configuration, x: float, which: int = 0) -> Any:
        seen.append((c.rollouts_per_problem, x, which))
        return draws(fit, c, x, which)

    monkeypatch.setattr(worth, "one_run", one_run)
    n16, n64 = Configuration(32, 16), Configuration(32, 64)
    among_tested(q, found, {n16: Work(6e5, runs=2), n64: Work(3e5, runs=2)})
    assert seen == [(16, 3e5, 0), (16, 3e5, 1), (64, 1.5e5, 2), (64, 1.5e5, 3)]
    seen.clear()
    # One run goes on, and of two others one from further than the other.
    on = {n16: Work(2e5, after=1e6), n64: Work.between([(1e6, 1.1e6), (5e5, 1.1e6)])}
    among_tested(q, found, on)
    assert seen == [(16, pytest.approx(1.2e6), 0), (64, 1.1e6, 1), (64, 1.1e6, 2)]
    assert among_tested(q, found, {n16: Work.between([(1e6, 1e6)])}) == 0  # nothing goes on


def test_a_check_of_a_larger_batch_has_twenty_updates() -> None:
    """Before its twentieth update a run is compared with nothing."""
    fit, known = planted(), Configuration(32, 64)
    wide, narrow = Configuration(1024, 512), Configuration(32, 512)
    assert fit.check_of(narrow, known, 4 * AT) == {narrow: AT}  # as far as all were compared
    assert fit.check_of(narrow, known, AT / 2) == {narrow: AT / 2}
    assert fit.check_of(wide, known, 4 * AT) == {wide: 20 * 1024 * 512}


def test_a_probe_gains_only_what_would_change_the_plan() -> None:
    """The other n is 0.0015 ahead in half the draws, or 0.004: its run tells which."""
    for ahead, gains in ((0.0015, 0.0), (0.004, 0.002)):
        fit = planted({(32, 16): (0.001, 0.001), (32, 32): (0.001 + ahead, 0.001 - ahead)})
        q = Question(fit=fit, x=AT)
        found = prescribe(q)._replace(configuration=Configuration(32, 16))
        assert probe(q, found, Configuration(32, 32), AT) == pytest.approx(gains, abs=1e-9)


def test_what_is_seen_tells_of_values_by_the_plane_through_the_draws() -> None:
    a, b, c = np.array([[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], dtype=float)
    value_DF = np.column_stack([0.5 + 0.2 * a - 0.1 * b, 0.1 * c])
    told = _told(value_DF, np.column_stack([a + 3, 2 * b]))
    np.testing.assert_allclose(told, np.column_stack([value_DF[:, 0], 0 * c]), atol=1e-12)
    nothing = _told(value_DF, np.full((4, 1), 0.3))
    np.testing.assert_allclose(nothing, [[0.5, 0.0]] * 4, atol=1e-12)


def test_of_as_good_n_what_is_trained_or_run_today_is_kept() -> None:
    """n = 32 scores 0.0015 more than 64, 0.01 more than 16; 64 alone went twice as far."""
    last = [math.log10(AT), math.log10(AT), math.log10(2 * AT), math.log10(AT)]
    fit = planted(last=last)
    trained = plan_budget(fit, 1.5 * AT)
    d = trained.document
    assert (arm(d), d["chosen_by"], d["as_good"]) == ((32, 64), "trained", [32, 64])
    assert d["trained"]["runs"] == 3
    assert "  as good    n = 32   (n = 64 is trained already)" in said(trained)
    assert "Why n = 64: it is as good as the best, and is trained already." in " ".join(
        said(trained, why=True))  # fmt: skip
    far = plan_budget(fit, 3 * AT, current=64)  # nothing is trained so far
    assert (arm(far.document), far.document["chosen_by"]) == ((32, 64), "today")
    assert "  as good    n = 32   (n = 64 is what you run today)" in said(far)
    assert arm(plan_budget(fit, 3 * AT).document) == (32, 32)
    worse = plan_budget(fit, 3 * AT, current=16).document  # that is not as good
    assert (arm(worse), worse["chosen_by"]) == ((32, 32), "expected_score")
    # A run that failed is not kept, and of another model nothing is yours.
    assert arm(plan_budget(failed(planted(last=last), (32, 64)), 1.5 * AT).document) == (32, 32)
    other = notice("law_of_another_model", source="published:x", model="Q")
    assert arm(plan_budget(fit, 1.5 * AT, notices=[other]).document) == (32, 32)


@pytest.mark.parametrize(
    ("times", "do"),
    [(1.5, "Evaluate the run on its way"), (2.02, "Evaluate the run on its way"),
     (2.9, "Go to 2M rollouts first (1M rollouts)"),
     (30, "Go to 2M rollouts first (1M rollouts)")],
)  # fmt: skip
def test_beyond_the_data_a_run_goes_on_to_twice_of_it_first(times: float, do: str) -> None:
    def flat(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        return line(log2_bp, log2_n, np.minimum(x, 6.0))  # so that no stall would show

    d = plan_budget(planted(surface=flat), times * AT).document
    (remedy,) = [one["remedy"] for one in d["notices"] if one["code"] == "extrapolated"]
    assert (d["check"], remedy) == (None, f"{do}, and fit again.")


def test_what_costs_more_than_the_budget_is_said_so() -> None:
    luck = np.eye(3).repeat(20, axis=1) * 0.01
    fit = planted({(32, n): luck[i] for i, n in enumerate((16, 64, 256))})
    lines = " ".join(" ".join(said(plan_budget(fit, 4 * AT, study=None), why=True)).split())
    assert "(6M rollouts; may gain nothing, costs more than the budget)" in lines


def test_seeds_that_tell_n_apart_come_before_a_run_beyond_their_edge() -> None:
    luck = np.eye(3).repeat(20, axis=1) * 0.01
    fit = planted({(32, n): luck[i] for i, n in enumerate((16, 64, 256))})
    for study in (NO_STUDY_YET, None):
        steps = plan_budget(fit, 100 * AT, study=study).document["run_next"]
        where = [step["settles"] for step in steps]
        assert where.index("n_not_told_apart") < where.index("n_at_smallest_tested")
        assert where[0] == "n_not_told_apart"
    assert steps[0]["do"] == "train two more seeds of n = 16, 64, 256"


def test_a_check_is_worth_at_most_what_its_result_may_gain() -> None:
    """A run of n = 256 against 128, 0.01 an octave in both draws: the draws say so without it."""
    same = {(32, n): (0.0, 0.0) for n in (16, 32, 64, 128)}
    fit = planted(same, surface=steep)
    d = plan_budget(fit, 100 * AT).document
    (step,) = [one for one in d["run_next"] if one["settles"] == "capped_by_tested_n"]
    assert step["rollouts"] == AT  # as far as 128 went, not as the plan goes
    assert step["gain"] == pytest.approx(0.01)
    assert step["lost"] == pytest.approx(0.1 * math.log10(100 / 99))
    assert step in checks(d)
    near = plan_budget(fit, 3 * AT).document
    (dear,) = [one for one in near["run_next"] if one["settles"] == "capped_by_tested_n"]
    assert dear["lost"] == pytest.approx(0.1 * math.log10(3 / 2))  # a third of the budget
    assert dear not in checks(near)
    assert any("may gain 0.010, costs 0.018" in one for one in advice_lines(near, why=True))
    none = plan_budget(fit, 2 * AT)  # what it leaves is trained already
    assert any("may gain nothing, costs 0.030" in one for one in said(none, why=True))
    # A plan that is trained already is not shortened.
    assert dear in checks({**near, "trained": {"runs": 1, "step": 1}})


def test_checks_are_of_what_the_plan_may_choose() -> None:
    """Of 512 there would be 15 steps: no seeds of it, whatever led at the end of the sweep."""
    arms = {(32, n): (0.0, 0.0) for n in (16, 32, 512)}
    fit = planted(arms, runs=1, notices=[ONE_SEED])
    d = plan_budget(fit, 15 * 32 * 512, study=None).document
    seeds = next(one["remedy"] for one in d["notices"] if one["code"] == "seeds_missing")
    assert seeds.startswith("Train two more seeds of n = 16, 32 (")
    assert all("512" not in step["do"] for step in d["run_next"])


def test_a_plan_and_a_refusal_have_the_same_keys() -> None:
    stands = plan_budget(planted(), AT).document
    refused = plan_budget(planted(notices=[STOP]), AT).document
    assert set(stands) == set(refused)
    assert stands["refusal"] is None
    assert stands["version"] == refused["version"] == 2
    json.dumps(stands, allow_nan=False)


def test_every_key_is_in_the_contract() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text(encoding="utf-8")
    section = page.split("## `plan --json`")[1].split("\n## ")[0]
    d = plan_budget(planted(surface=steeper), 4 * AT, current=16).document
    missing = [k for k in (*d, *d["gain"], *d["cost"], *d["check"]) if f"`{k}`" not in section]
    assert not missing


def test_the_law_is_summarised_with_its_source() -> None:
    law = plan_budget(planted(), AT, source="sweep.csv").document["law"]
    assert (law["source"], law["metric"], law["level"]) == ("sweep.csv", "avg@4", 0.9)
    assert "L" in law
    assert "at" not in law


def test_the_law_that_a_study_printed_stands_beside() -> None:
    panel = "published:qwen2.5-7b-easy"
    printed = plan_budget(planted(), 2e6, source=panel).document["printed_law"]
    assert printed["plateau"] == 452
    assert printed["rollouts_per_problem"] == pytest.approx(295, abs=1)
    assert any("295" in sentence for sentence in printed["sentences"])
    assert plan_budget(planted(), 2e6, source="mine.csv").document["printed_law"] is None


# In words


def said(plan: Plan, **how: Any) -> list[str]:
    lines = advice_lines(plan.document, **how)
    assert max(map(len, lines)) <= 80
    return lines


def steps_of(
    notices: Sequence[Notice], chosen: Configuration, reach: float, **how: Any
) -> list[dict[str, Any]]:
    usual: dict[str, Any] = {
        "spend": 1e12, "study": NO_STUDY_YET, "contended": [chosen.rollouts_per_problem],
        "price": Price(), "instead": {}, "problems": None, "difficulty": None,
        "worth": lambda code, trains, before: {"gain": None, "lost": None},
    }  # fmt: skip
    return run_next(notices, chosen, reach, **usual | how)


FAR = {"do": "Stop it", "times": 4.0, "edge": 2.5e5, "trust": "", "unit": "rollouts"}


def test_steps_are_typed_as_a_study_file_has_them() -> None:
    far = notice("extrapolated", trains={Configuration(32, 8): 262_144.0}, **FAR)
    # Of one n the run of the plan tells as much.
    assert not steps_of([far], Configuration(32, 8), 262_144.0, contended=[8])
    (step,) = steps_of([far], Configuration(32, 8), 262_144.0, contended=[8, 16])
    assert step["do"] == "continue n = 8, 16"
    assert step["command"].endswith(" budget=262144")


def test_what_is_left_out_is_priced_beside_all_that_is_asked_for() -> None:
    c = Configuration(32, 8)
    asked = [notice("seeds_missing", what="Every n has", spread="unknown", which="n = 8",
                    trains={c: 6e5}),
             notice("bp_untested", bp=32, n=8, other=64, trains={c: 3e5})]  # fmt: skip
    steps = steps_of(asked, c, 1e6, spend=1e6, worth=lambda code, trains, before: {
        "gain": 0.0 if code == "seeds_missing" else 1.0, "lost": 0.1 * (1 + len(before))})
    assert [(one["settles"], one["lost"]) for one in steps] == [
        ("seeds_missing", 0.2), ("bp_untested", 0.1)]  # fmt: skip
    d = {**plan_budget(planted(), AT).document, "run_next": steps, "trained": None}
    lines = [" ".join(" ".join(too_dear_lines(d, first)).split()) for first in (steps[1:], [])]
    assert "may gain nothing, costs most of the run)" in lines[0]
    assert "may gain nothing, costs 0.200)" in lines[1]
    steps[1] |= {"rollouts": 5e5, "cost": {**steps[1]["cost"]}}
    assert "costs more than is left)" in " ".join(" ".join(too_dear_lines(d, steps[1:])).split())


def run_of(b_p: int, n: int, seed: int, rollouts: float) -> Curve:
    end = np.array([rollouts / 2, rollouts])
    return Curve(run=f"{b_p}-{n}-{seed}", problems_per_batch=b_p, rollouts_per_problem=n,
                 rollouts_K=end, score_K=end / 1e7, seed=seed)  # fmt: skip


def test_a_command_trains_what_its_step_is_priced_by_and_no_more() -> None:
    curves = [run_of(32, n, seed, 1e5) for n in (8, 16) for seed in (0, 1)]
    of = {c.configuration for c in curves}
    file = Extension("study.yaml", frozenset({32}), 2, 1e5)
    # two more seeds, as long as the sweep's runs
    more = Runs.beside(curves, of, [2, 3], 1e5)
    assert more.trains == {(32, 8): 2e5, (32, 16): 2e5}
    n = "'grid.rollouts_per_problem=[8,16]'"
    assert more.command(file) == f"isocompute run study.yaml {n} 'grid.seeds=[2,3]'"
    # on to twice as far: what is there goes on
    on = Runs.beside(curves, of, [0, 1], 2e5)
    assert on.trains == {(32, 8): 2e5, (32, 16): 2e5}
    assert on.command(file) == f"isocompute run study.yaml {n} budget=200000"
    # a lone run of an untested n; then of a B_p, where the grid adapts
    lone = Runs({Configuration(32, 32): 1e5})
    assert lone.command(file) == (
        "isocompute run study.yaml grid.rollouts_per_problem=32 grid.seeds=1")
    other = Runs({Configuration(64, 8): 5e4}).command(file._replace(is_adaptive=True))
    assert other == (
        "isocompute run study.yaml grid.problems_per_batch=64 grid.rollouts_per_problem=8 "
        "grid.seeds=1 budget=50000 adaptive=false"
    )
    batches = file._replace(of_batches=True, seeds=1)
    assert Runs({Configuration(4, 64): 1e5}).command(batches) == (
        "isocompute run study.yaml grid.batch_size=256 grid.rollouts_per_problem=64")
    # a grid trains every B_p with every n: what lies apart is paid for as a rectangle
    both = Runs.beside(curves, [Configuration(32, 8), Configuration(64, 16)], [0], 1e5)
    assert both.trains == {(32, 8): 0, (32, 16): 0, (64, 8): 1e5, (64, 16): 1e5}


def test_runs_of_another_trainer_are_added_to_in_words() -> None:
    far = notice("extrapolated", **FAR)
    hard = notice("difficulty_assumed")
    first, second = steps_of(
        [far, hard], Configuration(32, 128), 1.6e6, study=None, contended=[32, 64, 128]
    )
    assert first["do"] == "continue n = 32, 64, 128 to 1.6M rollouts each"
    assert (first["command"], second["command"][:21]) == ("", "isocompute difficulty")
    rate = notice("anchor_assumed", model="Q")
    (asked,) = steps_of([rate], Configuration(32, 8), 1.6e6, study=None)
    assert (asked["do"], asked["rollouts"]) == (
        "say the learning rate of your runs: --set learning_rate=RATE", None)  # fmt: skip
    # Of one n that may be best there is nothing to tell apart.
    assert not steps_of([far], Configuration(32, 8), 1.6e6, study=None)
    pair = {"study": None, "contended": [8, 16], "spend": 1e7}
    dear, fair = ({"instead": {"extrapolated": Runs({Configuration(32, 8): cost})}}
                  for cost in (1.6e6, 1.4e6))  # fmt: skip  # 15%: 1.5M
    assert not steps_of([far], Configuration(32, 8), 1.6e6, **pair, **dear)
    assert len(steps_of([far], Configuration(32, 8), 1.6e6, **pair, **fair)) == 1


def test_the_three_n_nearest_to_the_choice_are_named_at_its_b_p_or_their_best() -> None:
    fit = planted()
    b_p = {c.problems_per_batch for c in fit.configurations}.pop()
    known = [c.rollouts_per_problem for c in fit.configurations]
    chosen = Configuration(b_p, known[-1])
    assert nearest(fit, known, chosen, AT) == [Configuration(b_p, n) for n in known[-3:]]
    other = Configuration(2 * b_p, known[-1])  # which nobody trained
    assert nearest(fit, known[-1:], other, AT) == [chosen]


def test_a_shipped_sweep_leads_to_a_sweep_of_one_s_own() -> None:
    other = notice("law_of_another_model", source="published:x", model="Q")
    step = steps_of([other], Configuration(32, 8), 0.0, spend=4.1e6)[0]
    assert step["command"] == "isocompute design --budget 4.1e6 -o study.yaml"
    said = steps_of([other], Configuration(32, 8), 0.0, spend=4.1e6, problems=500,
                    difficulty="hard")[0]  # fmt: skip
    known = "--problems 500 --difficulty hard"
    assert said["command"] == f"isocompute design --budget 4.1e6 {known} -o study.yaml"
    # More n of that model tell nothing; seven rates share half of what the sweep may take, in whole
    # updates of 1,024 rollouts: 20 at least, which tell rates apart, and 50, as long as they need.
    # The study that `design` writes trains as much, where 15k was said of a budget of 200k.
    top = notice("capped_by_tested_n", n=8, other=16)
    about = [other, top, notice("anchor_assumed", model="Q")]
    for budget, updates in ((2e5, 20), (1e6, 20), (3e6, 31), (1e9, 50)):
        rates = 7 * updates * 1024
        steps = plan_budget(planted(), budget, notices=about).document["run_next"]
        assert [(s["settles"], s["rollouts"]) for s in steps] == [
            ("law_of_another_model", None), ("anchor_assumed", rates)]
    assert steps[1]["command"] == "isocompute lr-sweep study.yaml"
    # `design` pays 15% of a budget for them at most.
    first = [checks(plan_budget(planted(), x, notices=about).document) for x in (9e5, 1e6)]
    assert [[one["settles"] for one in steps] for steps in first] == [
        ["law_of_another_model"], ["law_of_another_model", "anchor_assumed"]]


_LARGER = notice("bp_untested", bp=32, n=8, other=64, trains={Configuration(64, 8): 0.0})


def test_a_long_command_stands_on_a_line_of_its_own() -> None:
    long = "a-folder/with-a-long-name/study.yaml"
    steps = steps_of([_LARGER], Configuration(32, 8), 0.0,
                     study=Extension(long))  # fmt: skip
    plan = plan_budget(planted(), AT)
    lines = advice_lines({**plan.document, "run_next": steps * 3, "trained": None})
    at = lines.index(f"     isocompute run {long} \\")
    assert lines[at + 1].startswith("       grid.problems_per_batch=64")
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) <= 15


def test_a_step_keeps_its_command_where_one_line_is_left() -> None:
    d = plan_budget(planted(), AT).document
    steps = [{**step, "do": do, "command": command, "cost": {}, "rollouts": None}
             for step, do, command in zip(
                 steps_of([_LARGER], Configuration(32, 8), 0.0) * 2,
                 ("see if a sweep of your own pays, and which n to take if not",
                  "tune the learning rate"),
                 ("isocompute design --budget 2e6 -o study.yaml", "isocompute lr-sweep s.yaml"),
                 strict=True)]  # fmt: skip
    assert step_lines(steps, d, 3)[1:] == [
        "  1. see if a sweep of your own pays, and which n to take if not",
        "     isocompute design --budget 2e6 -o study.yaml",
        "  2. tune the learning rate   isocompute lr-sweep s.yaml",
    ]


def test_a_long_reason_is_said_whole_where_a_step_finds_room() -> None:
    plan = plan_budget(planted(), AT)
    reason = "2 of 9 runs failed a health rule: " + ", ".join(
        f"n = {n} (entropy_collapse)" for n in (8, 16, 32, 64, 128, 256)) + "."  # fmt: skip
    steps = steps_of([_LARGER], Configuration(32, 8), 0.0)
    d = {**plan.document, "verdict": {"level": "caution", "reason": reason}, "run_next": steps}
    lines = advice_lines(d)
    assert reason in " ".join(" ".join(lines).split())
    assert any(line.startswith("  1. ") for line in lines)
    assert len(lines) <= 15


def test_steps_dearer_than_the_run_are_not_asked_for_first() -> None:
    plan = plan_budget(planted(), AT).document | {"trained": None}
    steps = steps_of([_LARGER,
                      notice("n_at_smallest_tested", n=8, other=4,
                             trains={Configuration(32, 4): 0.0})],
                     Configuration(32, 8), 0.0)  # fmt: skip
    for times, asked in ((1.0, True), (1.005, True), (1.02, False), (None, True)):
        spent = None if times is None else times * plan["rollouts"]
        priced = {**steps[0], "rollouts": spent, "cost": Rates().cost(spent or 1.0),
                  "command": ""}  # fmt: skip
        d = {**plan, "run_next": [priced]}
        lines = advice_lines(d)
        said = "Before you spend: nothing: every check costs more than it can gain (--why)."
        assert (said in lines) is not asked
        total = "" if spent is None else f" ({takes(spent)}; nothing is left for the run)"
        assert (f"Before you spend{total}:" in lines) is asked
        whole = advice_lines(d, why=True)
        assert (f"Before you spend{total}:" in whole) is asked
        assert ("Left out, too dear beside this run:" in whole) is not asked
        cheap = {**steps[1], "rollouts": 1.0, "cost": Rates().cost(1.0)}
        both = advice_lines({**plan, "run_next": [priced, cheap]})
        assert sum(line.startswith(("  1. ", "  2. ")) for line in both) == 1 + asked
        free = {**steps[1], "do": "say the rate", "rollouts": None, "cost": None}
        assert not any("say the rate" in str(one) for one in too_dear({"run_next": [free]}, []))
        assert too_dear({"run_next": [priced, free]}, []) == [priced]
    half = {**steps[0], "rollouts": 0.6 * plan["rollouts"], "cost": Rates().cost(1.0)}
    assert checks({**plan, "run_next": [half, half, cheap]}) == [half, cheap]  # together


def test_a_step_names_what_its_notice_trains() -> None:
    other = Configuration(4, 64)  # of a fixed batch: B_p halves as n doubles
    top = notice("capped_by_tested_n", n=32, other=64, trains={other: 1e4})
    few = notice("one_or_two_n", which=[16], wanted=64, trains={other: 1e4})
    for one in (top, few):
        (step,) = steps_of([one], Configuration(8, 32), 1e6, study=None)
        assert step["do"] == "train 4 problems x 64 rollouts"
        (step,) = steps_of([one], Configuration(8, 32), 1e6)
        assert " grid.problems_per_batch=4 grid.rollouts_per_problem=64 " in step["command"]


def test_one_of_a_thing_is_said_as_one() -> None:
    d = {**plan_budget(planted(), AT).document, "problems_per_batch": 1, "steps": 1, "gain": None}
    assert advice_lines(d)[0].startswith("Run: 1 problem x 32 rollouts x 1 step ")
    one = {"notices": [{"code": "passes_over_data"}], "passes_over_data": 1.0, "steps": 1,
           "problems_per_batch": 1}  # fmt: skip
    assert passes_words(one) == "1.0 passes over 1 problem"
    trains = {Configuration(1, 64): 1e4}
    (step,) = steps_of([notice("one_or_two_n", which=[16], wanted=64, trains=trains)],
                       Configuration(1, 32), 1e6, study=None)  # fmt: skip
    assert step["do"] == "train 1 problem x 64 rollouts"
    said = notice("passes_over_data", passes=21.0, problems=1).text
    assert said == "This budget takes 21 passes over 1 problem."


def test_every_step_fits_a_line() -> None:
    trains = {Configuration(2048, 2048): 0.0}
    every = [notice(code, trains=trains, **dict.fromkeys(NOTICES[code].fields, 1))
             for code in _STEPS]  # fmt: skip
    lasting = steps_of(every, Configuration(1024, 1024), 1e6, study=None,
                       contended=[1024, 2048, 4096])  # fmt: skip
    assert max(5 + len(step["do"]) for step in lasting if not step["command"]) <= 80
    own = [one for one in every if one.code != "law_of_another_model"]
    steps = steps_of(own, Configuration(1024, 1024), 1e6)
    # A command with overrides has a line of its own.
    short = [step for step in steps if "run" not in step["command"]]
    wide, longest = (max(len(step[key]) for step in short) for key in ("do", "command"))
    assert 5 + wide + 3 + longest <= 80


def left(checks: int, steps: int) -> dict[str, Any]:
    return {"checks": checks, "steps": steps, "predicted_score": 0.5}


def test_a_plan_says_what_run_and_checks_cost_together() -> None:
    plan: dict[str, Any] = {"rollouts": 1e6, "steps": 1000, "law": {"unit": "gpu-hours"},
                            "cost": {"gpu_hours": 10.0, "usd": 20.0, "tokens": 5},
                            "after_checks": [left(1, 500)]}  # fmt: skip
    step = {"settles": "bp_untested", "rollouts": 5e5,
            "cost": {"gpu_hours": 5.0, "usd": 10.0, "tokens": None}}  # fmt: skip
    half = "leaves a run of 500 steps, score 0.500"
    assert with_checks(plan, [step, step]) == "10 GPU-hours, $20; nothing is left for the run"
    assert with_checks(plan, [step]) == f"5 GPU-hours, $10; {half}"
    local = {**step, "cost": {**step["cost"], "device": "CPU"}}
    assert with_checks(plan, [local]) == f"5 CPU-hours, $10; {half}"
    assert with_checks(plan, []) == with_checks(plan, [{**step, "rollouts": None}]) == ""
    gauge = {"settles": "difficulty_assumed", "rollouts": None, "cost": None}
    of_two = {**plan, "after_checks": [left(1, 500), left(2, 500)]}
    assert with_checks(of_two, [step, gauge]) == f"at least 5 GPU-hours, $10; {half}"
    unpriced = {"gpu_hours": None, "usd": None, "tokens": None}
    both = {**plan, "cost": unpriced}, [{**step, "cost": unpriced}]
    assert with_checks(*both) == f"500k rollouts; {half}"
    # In the budget's own unit: as many hours for fewer rollouts, or as many rollouts.
    dense = {**step, "rollouts": 1e5}
    assert share_paid(plan, [dense]) == 0.5
    in_rollouts = {**plan, "law": {"unit": "rollouts"}}
    assert share_paid(in_rollouts, [dense]) == 0.1
    little = {**step, "cost": {"gpu_hours": 0.4, "usd": 0.8, "tokens": None}}
    assert with_checks(plan, [little]) == "0.4 GPU-hours, $0.8"  # no word of what does not show
    dear = {"gpu_hours": 12_300.0, "usd": None, "tokens": 1.23e9}
    assert with_checks({**plan, "cost": dear}, [{**step, "cost": dear}, gauge], 1) == (
        "at least 12.3k GPU-hours; nothing is left for the run")  # fmt: skip
    # Of steps that the screen has no room for nothing is counted.
    plan = plan_budget(planted(), AT, rates=Rates(rollouts_per_gpu_hour=1e5)).document
    plan |= {"trained": None, "after_checks": [left(k, 976 - 97 * k) for k in (1, 2, 3)]}
    many = [{**step, "do": f"do {i} " + "x" * 60, "command": "isocompute " + "y" * 60,
             "rollouts": 1e5, "cost": {**unpriced, "gpu_hours": 1.0}}
            for i in range(3)]  # fmt: skip
    lines = advice_lines({**plan, "run_next": many})
    shown = sum(line.startswith(("  1. ", "  2. ", "  3. ")) for line in lines)
    assert 0 < shown < 3
    said, unit = 976 - 97 * shown, "GPU-hour" if shown == 1 else "GPU-hours"
    run = f"leaves a run of {said} steps, score 0.500"
    assert f"Before you spend ({shown} {unit}; {run}):" in lines
    hours = {**plan["law"], "unit": "gpu-hours"}
    plan["after_checks"] = []
    wide = {**plan, "law": hours, "cost": {**dear, "source": {}}, "run_next": [
        {**step, "do": "do", "command": "", "cost": dear}, {**gauge, "do": "x", "command": ""}]}
    head = next(line for line in advice_lines(wide) if line.startswith("Before"))
    assert head.endswith("12.3k GPU-hours; nothing is left for the run):")
    assert len(head) <= 80


def test_the_n_that_is_named_is_a_tested_one() -> None:
    best = {"rollouts_per_problem": 143.2, "interval": [85.4, 227.1],
            "tested_rollouts_per_problem": 128}  # fmt: skip
    assert n_words(best) == "128 (85 to 227)"
    assert n_words({**best, "tested_rollouts_per_problem": 64}) == "85 to 227"
    assert n_words({**best, "interval": [128.0, 128.0]}) == "128"
    assert n_words({**best, "interval": [None, 227.1]}) == "128"
    assert n_words({"rollouts_per_problem": 40.3, "interval": [17.0, 64.0]}) == "40 (17 to 64)"


def test_where_the_best_n_lies_agrees_with_the_choice() -> None:
    d = {"rollouts_per_problem_law": 34.2, "notices": [], "rollouts_per_problem": 32}
    wide = {**d, "rollouts_per_problem_interval": [16.0, 60.0]}
    assert best_n_words(wide) == (
        "The best n is between 16 and 60; of those tested, 32 scores best."
    )
    # 600k where all n were compared to 599,936 is their last evaluation, and no prediction.
    assert best_n_words({**wide, "extrapolation_log10": 5e-5}) == best_n_words(wide)
    assert best_n_words({**wide, "extrapolation_log10": 0.1}).endswith("predicted to score best.")
    capped = [{"code": "capped_by_min_steps"}, {"code": "capped_by_tested_n"}]
    assert best_n_words({**wide, "notices": capped[1:]}) == best_n_words(wide)
    assert best_n_words({**wide, "notices": capped}) == (
        "The best n is between 16 and 60; of those tested and allowed, 32 scores best."
    )
    wide = {**d, "rollouts_per_problem_interval": [8.0, 64.0], "rollouts_per_problem": 128}
    held = best_n_words({**wide, "notices": capped})
    assert held.startswith("Of those tested and allowed, n = 128")
    off = "Of those tested, n = 128 scores best; by the trend over n the best is between 8 and 64."
    assert best_n_words(wide) == off


def test_a_gain_that_may_be_a_loss_says_so() -> None:
    document = plan_budget(planted(), AT, current=128).document
    assert document["gain"]["interval"][0] > 0
    assert "may be a loss" not in "\n".join(advice_lines(document))
    document["gain"]["interval"] = [-0.01, 0.05]
    line = next(line for line in advice_lines(document) if "gain" in line)
    assert line.endswith("over today's n = 128   (may be a loss)")
    # A doubt is never dropped: other words give way, or it has a line of its own.
    document["gain"] |= {"interval": [-0.043, 0.052], "rollouts_per_problem": 4096, "tested": False}
    lines = advice_lines(document)
    (line,) = [line for line in lines if line.startswith("  gain")]
    assert line.endswith(" over n = 4096   (untested, may be a loss)")
    assert len(line) <= 80
    document["gain"]["problems_per_batch"] = 512
    lines = advice_lines(document)
    at = [line.startswith("  gain") for line in lines].index(True)
    assert lines[at].endswith(" over today's n = 4096, B_p = 512")
    assert lines[at + 1] == " " * 13 + "(untested, may be a loss)"
    assert len(lines) <= 15


def test_a_plan_of_todays_setting_says_so_once() -> None:
    document = plan_budget(planted(), AT, current=32).document
    rows = [line.strip() for line in advice_lines(document)]
    assert "gain       none: this is what you run today" in rows
    assert not any(row.startswith("today") for row in rows)


@pytest.mark.heavy
def test_a_step_in_words_costs_what_its_words_say(tmp_path: Path) -> None:
    """Three n of one run to 1M rollouts each, a plan of twice that, another trainer's runs."""
    rows = [
        [32, n, k * 32 * n, 0.3 + 0.3 / (1 + math.exp(-1.5 * (math.log(k * 32 * n) - 12.5)))]
        for n in (16, 64, 256)
        for k in np.unique(np.geomspace(8, 1e6 / (32 * n), 14).astype(int)).tolist()
    ]
    source = tmp_path / "curves.csv"
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["problems_per_batch", "rollouts_per_problem", "rollouts", "score"])
        writer.writerows(rows)
    document = plan_from_source(source=str(source), budget=parse_budget("4e7")).document
    ends = {n: max(r[2] for r in rows if r[1] == n) for n in (16, 64, 256)}
    found = {step["settles"]: step for step in document["run_next"]}
    on = found["extrapolated"]
    named = [int(n) for n in on["do"].split(" to ")[0].removeprefix("continue n = ").split(", ")]
    assert on["rollouts"] == pytest.approx(sum(2 * max(ends.values()) - ends[n] for n in named),
                                           rel=0.02)  # fmt: skip
    more = found.get("seeds_missing")
    if more is not None:
        n = [int(one) for one in more["do"].split("n = ")[1].split(", ")]
        assert more["rollouts"] == pytest.approx(sum(2 * ends[one] for one in n))


def test_advice_is_the_answer_what_to_do_then_silence() -> None:
    rates = Rates(rollouts_per_gpu_hour=900.0, usd_per_gpu_hour=2.5)
    seeds = ONE_SEED
    plan = plan_budget(
        planted(notices=[seeds]), AT, rates=rates, rates_from={"rollouts_per_gpu_hour": "study"},
        current=128, notices=[notice("difficulty_assumed"), notice("anchor_assumed", model="Q")],
    )  # fmt: skip
    assert said(plan) == [
        "Run: 32 problems x 32 rollouts x 976 steps   (999k rollouts)",
        "  score      0.420 (0.410 to 0.430)   (avg@4, best checkpoint)",
        "  gain       +0.020 (+0.010 to +0.030) over today's n = 128",
        "  as good    n = 64",
        "  trained    3 runs went this far: use 32 x 32 seed 0's checkpoint at step 977",
        "  for less   half the budget: 0.390, a tenth 0.320",
        "  lr         1e-6, 10 warm-up steps   (Qwen2.5-7B-Instruct's; say yours)",
        "  recipe     GRPO, KL 0.001, entropy 0.001   (easy set assumed)",
        "  cost       1,110 GPU-hours, $2,776   (your study: 900 rollouts per GPU-hour)",
        "",
        "Confidence: caution. Every n has one run: the spread from seed to seed is taken",
        "  from other sweeps.",
        "Nothing is left to train. To learn more:",
        "  1. gauge difficulty   isocompute difficulty problems.jsonl --model MODEL",
        "2 more cautions, 1 note: --why    Trainer settings: --for verl, --for trl",
    ]


def test_the_cost_of_today_is_said_where_it_is_another() -> None:
    rates = Rates(rollouts_per_gpu_hour=900.0, tokens_per_rollout=100.0)
    d = plan_budget(planted(), AT, rates=rates, current=128).document
    for unit, factor, said_too in (("gpu_hours", 1.009, False), ("gpu_hours", 1.02, True),
                                   ("tokens", 1.02, False)):  # fmt: skip
        cost = {**d["cost"], unit: d["cost"][unit] * factor}
        lines = advice_lines({**d, "gain": {**d["gain"], "cost": cost}}, why=True)
        (today,) = [line for line in lines if line.startswith("  today")]
        assert ("GPU-hours" in today) is said_too
    by_tokens = {**d["cost"], "gpu_hours": None}
    twice = {**by_tokens, "tokens": 2 * by_tokens["tokens"]}
    lines = advice_lines({**d, "cost": by_tokens, "gain": {**d["gain"], "cost": twice}}, why=True)
    assert any(line.startswith("  today") and line.endswith("200M tokens") for line in lines)


def test_a_recipe_that_logs_do_not_hold_is_not_called_theirs() -> None:
    plan = plan_budget(planted(), AT)

    def rows(*recorded: str) -> list[str]:
        words = {"learning_rate_from": "runs", "recorded": ["learning_rate", *recorded]}
        same = {"recipe": {**plan.document["recipe"],
                           "base_batch_size": plan.document["batch_size"]}}  # fmt: skip
        lines = advice_lines({**plan.document, **words, **same})
        return [line.rpartition("(")[2] for line in lines if line[2:8] in ("lr    ", "recipe")]

    assert rows() == ["as in the runs)"]
    words = {"learning_rate_from": "runs", "recorded": ["learning_rate"]}
    assert "warm-up" not in "\n".join(advice_lines({**plan.document, **words}))
    assert rows("kl_coef", "warmup_steps") == ["as in the runs)"]
    asked = {"learning_rate_from": "runs", "recorded": ["learning_rate"], "difficulty": "hard",
             "asked": ["kl_coef", "entropy_coef"]}  # fmt: skip
    assert any(line.endswith("(of --difficulty hard)")
               for line in advice_lines({**plan.document, **asked}))  # fmt: skip


@pytest.mark.heavy
def test_terms_that_a_difficulty_replaces_are_said_to_be_its_own(tmp_path: Path) -> None:
    source = tmp_path / "runs.csv"
    rows = ["problems_per_batch,rollouts_per_problem,rollouts,score,learning_rate,kl_coef"]
    rows += [
        f"32,{n},{32 * n * step},{0.3 + 0.3 * step / (step + 100) + n / 2000},2e-6,0.002"
        for n in (8, 16, 32) for step in range(0, 400, 20)
    ]  # fmt: skip
    source.write_text("\n".join(rows) + "\n")
    budget = parse_budget("1e5")
    kept = plan_from_source(source=str(source), budget=budget).document
    asked = plan_from_source(source=str(source), budget=budget, difficulty="hard").document
    assert (kept["asked"], kept["recipe"]["kl_coef"]) == ([], 0.002)
    assert (asked["asked"], asked["recipe"]["kl_coef"]) == (["kl_coef", "entropy_coef"], 0)


def test_settings_that_no_run_recorded_are_named_beside_the_keys() -> None:
    words = {"learning_rate_from": "runs", "recorded": ["learning_rate"]}
    plan = plan_budget(planted(), AT)
    lines = " ".join(advice_lines({**plan.document, **words}, trainer="trl"))
    assert "# Of the recipe your logs hold only: learning rate. Keep your own other" in lines
    more = {**words, "recorded": ["kl_coef", "entropy_coef", "clip_low"]}
    lines = " ".join(advice_lines({**plan.document, **more}, trainer="trl"))
    assert "# Of the recipe your logs hold only: KL, entropy bonus, clip low. Keep your" in lines
    whole = {**words, "recorded": [*RECORDED, *TRAINED]}
    assert "your logs hold only" not in " ".join(
        advice_lines({**plan.document, **whole}, trainer="trl")
    )
    keys = advice_lines({**plan.document, **words}, trainer="trl", quiet=True)
    assert not any(line.startswith("#") for line in keys)


def test_a_best_n_at_the_end_of_those_tested_may_lie_beyond() -> None:
    d = {"rollouts_per_problem_law": 128.0, "rollouts_per_problem_interval": [41.0, 128.0],
         "law": {"tested": [4, 128]}, "rollouts_per_problem": 64}  # fmt: skip

    def where(low: float, high: float) -> str:
        inside = {**d, "rollouts_per_problem": low, "rollouts_per_problem_interval": [low, high]}
        return best_n_words(inside).split(";")[0]

    assert where(41, 128) == "The best n is 41 or more"
    assert where(4, 9) == "The best n is 9 or fewer"
    assert where(4, 128) == "The best n is between 4 and 128, or beyond"
    assert where(10, 30) == "The best n is between 10 and 30"
    assert where(128, 128) == "The best n is 128 or more."
    assert where(4, 4) == "The best n is 4 or fewer."


def test_a_limit_that_costs_is_in_the_foreground_and_a_step_makes_room() -> None:
    seeds = ONE_SEED
    more = [seeds, notice("difficulty_assumed"), notice("anchor_assumed", model="Q")]
    arms = {**FOUR, (32, 8): (0.009, 0.009)}
    plan = plan_budget(planted(arms, notices=more), AT, max_batch_size=1023)
    lines = said(plan)
    cap = "1,023 rollouts per batch limit n to 16 instead of 32: 0.010 lower."
    assert f"  limit      {cap}" in lines
    assert "  as good    n = 8" in lines
    assert len(lines) == 15
    assert sum(line.startswith("  1. ") for line in lines) == 1
    assert not any(line.startswith("  2. ") for line in lines)


def test_why_gives_the_reasoning_the_rules_the_printed_law_and_every_note() -> None:
    lost = {"model": 0.001, "best_so_far": 0.03, "largest_n": 0.02, "next_n": 0.01}
    plan = plan_budget(planted(rules=lost), AT, source="published:qwen2.5-7b-easy", problems=500)
    lines = said(plan, why=True)
    page = " ".join(" ".join(lines).split())
    assert "Why n = 32: of those tested it scores best." in page
    assert "Expected loss against the true best: 0.009." in page
    assert "Still in contention: n = 32, 64." in page
    assert "All n were compared from" in page
    assert "Passes over your problems: 62." in page
    assert "largest n 32 x 128, score 0.400; the rule lost 0.020" in page
    assert "The study's own law: log2 n* = 6.09" in page
    for one in plan.document["notices"]:
        assert f"{one['level']}: {one['text']} {one['remedy']} [{one['code']}]" in page
    assert "more note" not in page
    assert "Of those tested, n = 32 scores best; by the trend over n the best is 19." in page
    assert not any("The study's own" in line for line in said(plan))


def test_the_keys_of_a_trainer_follow_and_stand_alone_when_quiet() -> None:
    plan = plan_budget(planted(), AT)
    lines = said(plan, trainer="verl")
    assert "data.train_batch_size=32" in lines
    assert "actor_rollout_ref.rollout.n=32" in lines
    assert any(line.startswith("# ") for line in lines)
    assert lines[-1] == "# Tested by us with verl 0.9.1 (CPU, tiny model)."
    assert "not tested" in said(plan, trainer="skyrl")[-1]
    alone = advice_lines(plan.document, trainer="verl", quiet=True)
    assert alone[0] == "data.train_batch_size=32"
    assert all("=" in line for line in alone)
    assert said(plan, quiet=True) == said(plan)[:1]
    with pytest.raises(InputError, match="trainer must be one of verl, trl"):
        advice_lines(plan.document, trainer="nobody")


def test_advice_on_a_refusal_says_why_and_what_next() -> None:
    plan = plan_budget(planted(notices=[STOP]), AT)
    lines = said(plan)
    assert lines[0].startswith("No plan: The fit failed its own test")
    assert lines[-1] == f"Next: {STOP.remedy}"
    assert any("[no_skill]" in line for line in said(plan, why=True))
    assert not any(line.startswith("Next") for line in said(plan, quiet=True))


def test_advice_on_unknown_cost_and_on_todays_untested_setting() -> None:
    lines = said(plan_budget(planted(), AT, current=Configuration(64, 4)))
    assert any(line.endswith("over today's n = 4, B_p = 64   (untested)") for line in lines)
    assert "  cost       not known; give --rollouts-per-gpu-hour" in lines
    tokens = said(plan_budget(planted(), AT, rates=Rates(tokens_per_rollout=100.0)))
    assert "  cost       99.9M tokens" in tokens


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("2e6", 2e6, "rollouts"), ("2M", 2e6, "rollouts"), ("1.5k", 1500, "rollouts"),
        ("1,000,000", 1e6, "rollouts"), ("1_000", 1000, "rollouts"), ("5Gtok", 5e9, "tokens"),
        ("5Btokens", 5e9, "tokens"), ("5e9TOK", 5e9, "tokens"), ("400 GPUh", 400, "gpu_hours"),
        ("2kusd", 2000, "usd"), (".5M", 5e5, "rollouts"),
    ],
)  # fmt: skip
def test_budgets_as_people_write_them(text: str, amount: float, unit: str) -> None:
    assert parse_budget(text) == Budget(amount=pytest.approx(amount), unit=unit)


@pytest.mark.parametrize("text", ["1,5", "1,5e6", "1,0000", "m", "", "2m", "2 Mx", "-3", "0"])
def test_budgets_that_could_mean_two_things_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="a budget must be a finite amount"):
        parse_budget(text)


# Half the budget


def test_half_a_budget_that_does_as_well_is_said_from_the_same_draws() -> None:
    level = planted(surface=lambda log2_bp, log2_n, x: 0.5 - 0.01 * abs(log2_n - 5) + 0 * x)
    plan = plan_budget(level, AT)
    half = plan.document["half"]
    assert (half["rollouts_per_problem"], half["as_good"]) == (32, True)
    assert half["predicted_score"] == pytest.approx(plan.document["predicted_score"])
    assert half["lost"] == pytest.approx(0, abs=1e-9)  # though either score is unsure by itself
    line_of_it = next(line for line in said(plan) if line.startswith("  for less"))
    as_well = "half does as well: 0.520 (at most 0.000 less), a tenth 0.520"
    assert line_of_it == f"  for less   {as_well}"
    other = {**plan.document, "half": {**half, "rollouts_per_problem": 16}, "tenth": None}
    assert less_words(other) == "half does as well: 0.520 with n = 16 (at most 0.000 less)"
    both = {**other, "tenth": plan.document["tenth"]}  # no room for all: no figure is cut
    assert less_words(both) == "half does as well: 0.520 with n = 16, a tenth 0.520"
    rising = plan_budget(planted(), AT)
    assert rising.document["half"]["lost"] > 0.002
    assert not rising.document["half"]["as_good"]
    both = [rising.document[name]["predicted_score"] for name in ("half", "tenth")]
    assert both == pytest.approx([0.42 - 0.1 * math.log10(2), 0.32])
    assert "  for less   half the budget: 0.390, a tenth 0.320" in said(rising)
    early = plan_budget(planted(), 5e3, min_steps=1).document  # no tenth of it was compared
    assert (early["tenth"], less_words(early)) == (None, "half the budget: 0.160")
    assert plan_fixed_batch(planted(), 1024, 256).document["half"] is None


# What a choice has behind it


def test_a_choice_that_is_still_behind_says_from_where_it_leads() -> None:
    def crossing(log2_bp: Any, log2_n: Any, x: Any) -> Any:
        """n = 128 gains 0.06 a decade more than n = 16 and is 0.018 behind at a million."""
        return line(log2_bp, log2_n, x) + (log2_n - 4) / 3 * (0.06 * (x - 6) - 0.018)

    flat = dict.fromkeys(FOUR, (0.01, -0.01))
    d = plan_budget(planted(flat, surface=crossing), 10 * AT).document
    found = d["overtakes"]
    assert (arm(d), found["rollouts_per_problem"]) == ((32, 128), 16)
    assert found["behind"] == pytest.approx(0.018)
    assert found["x"] == pytest.approx(AT * 10**0.3, rel=0.05)  # where both are level
    (said_so,) = [one for one in said(plan_of(d)) if one.startswith("  best")]
    assert said_so == (
        "  best       n = 16 led at 1M rollouts, the last compared; n = 128 leads from 2M")
    assert lead_words(d, math.inf) == (
        "n = 16 led at 1M rollouts, where all were last compared; n = 128 leads from 2M")
    last = [math.log10(AT), math.log10(AT), math.log10(AT), math.log10(10 * AT)]
    seen = planted(flat, surface=crossing, last=last)  # n = 128 alone went on, past the change
    (change,) = (one["at"] for one in seen.frontier.crossovers if one["at"] > AT)
    at_it = plan_budget(seen, 10 * AT).document["overtakes"]
    assert at_it["x"] == pytest.approx(change)  # 75.3k stood on a page with 72.3k
    never = overtakes(
        Question(fit=planted(flat, surface=crossing), x=10 * AT), Configuration(32, 32)
    )
    assert never is not None
    assert never["x"] is None  # n = 128 leads at the end
    assert lead_words({**d, "overtakes": never}) == ""
    assert lead_words({**d, "confidence_set": [16, 128]}) == ""  # it may lead there, too
    others = {**d, "notices": [{"code": "law_of_another_model"}]}
    assert lead_words(others) == ""  # of another model's sweep there is more to doubt
    near = plan_budget(planted(flat, surface=crossing), AT).document
    assert near["overtakes"] is None  # inside the data
    assert plan_budget(planted(), 4 * AT).document["overtakes"] is None  # it leads there


def plan_of(document: dict[str, Any]) -> Plan:
    return Plan(allocation=None, document=document)


def test_what_was_trained_already_is_not_bought_again() -> None:
    d = plan_budget(planted(), AT / 2).document
    # They rise to their end, twice as far as the plan: nothing is gained by an earlier checkpoint.
    assert d["trained"] == {"runs": 3, "run": "32 x 32 seed 0", "step": 977}
    row = "  trained    3 runs went farther: use 32 x 32 seed 0's checkpoint at step 977"
    assert row in said(plan_of(d))
    assert plan_budget(planted(), 2 * AT).document["trained"] is None
    other = notice("law_of_another_model", source="published:x", model="Q")
    assert plan_budget(planted(), AT / 2, notices=[other]).document["trained"] is None
    one = {"trained": {"runs": 1, "run": "a", "step": 1009}}
    use = "1 run went this far already: use"
    assert trained_words(one) == f"{use} its best checkpoint, at step 1,009"
    assert trained_words({**one, "law": {"select": "final"}}) == f"{use} a checkpoint at step 1,009"
    two = {"trained": {"runs": 2, "run": "x" * 60, "step": 9}}
    assert trained_words(two) == "2 runs went this far: use the best checkpoint, at step 9"
    nameless = {"trained": {"runs": 2, "run": "", "step": 9}}
    assert trained_words(nameless) == "2 runs went this far: use the best checkpoint, at step 9"
    said_whole = f"2 runs went this far already: use {'x' * 60}'s checkpoint at step 9"
    assert trained_words(two, math.inf) == said_whole
    assert trained_words({"trained": None}) == ""
    # A study keeps the end of a run, and may have dropped what lies before it.
    ours = plan_budget(planted(), AT / 2, study=Extension()).document
    assert ours["trained"] == {**d["trained"], "kept": True}
    last = planted()
    last.posterior.select = "final"  # type: ignore[misc]
    ours = plan_budget(last, AT / 2, study=Extension()).document
    # Where the last one counts, and before the first evaluation, it is the plan's own step.
    assert ours["trained"] == {**d["trained"], "step": ours["steps"], "kept": None}
    kept = "  trained    3 runs went this far: best at step 488 (its checkpoint may be gone)"
    assert kept in said(plan_of(ours))


def cut_down(
    arms: Arms, which: tuple[int, int], seeds: Sequence[int], *, to: float = 0.02, at: float = 1e5,
    **planted_as: Any,
) -> Fit:  # fmt: skip
    """Some runs of a configuration score `to` beyond a budget."""
    fit = planted(arms, **planted_as)
    fake: Any = fit.posterior
    fake.curves = tuple(
        c.replace(score_K=np.where(c.rollouts_K > at, to, c.score_K))
        if c.configuration == which and c.seed in seeds else c
        for c in fake.curves
    )  # fmt: skip
    return fit


# Thirty evaluations of 1e3 to 1e6 are 1.27 apart: the last before 1e5 stands at 92,367 rollouts.
LAST = 10 ** (3 + 3 / 29 * 19)


@pytest.mark.parametrize("select", ["best", "final"])
def test_no_budget_is_given_to_what_no_run_came_to_unbroken(select: str) -> None:
    """n = 32 scores 0.42 at AT, 0.0015 above n = 64; with its three runs broken that is chosen."""
    arms = {**FOUR, (32, 64): (0.01, 0.02)}  # 0.415 on average: 0.005 less
    fit = cut_down(arms, (32, 32), (0, 1, 2))
    fit.posterior.select = select  # type: ignore[misc]
    plan = plan_budget(fit, AT)
    d = plan.document
    assert d["rollouts_per_problem"] == 64
    step = int(LAST // 1024)
    assert text(d, "capped_by_broken") == (
        f"n = 32 may score 0.005 more, but no run came past step {step}.")
    assert any(row == f"  limit      n = 32 may score 0.005 more, but no run came past step {step}."
               for row in said(plan))  # fmt: skip
    assert d["fell"] is None
    # Up to there it is the best, and trained: not at AT, where its checkpoints score 0.02.
    early = plan_budget(fit, LAST).document
    assert early["rollouts_per_problem"] == 32
    assert early["trained"]["runs"] == 3
    assert early["trained"]["step"] <= early["steps"] == step
    # Asked for alone, or with nothing else, there is no plan.
    none = plan_budget(fit, AT, only_n=(32,))
    assert none.allocation is None
    assert none.refusal is not None
    assert [one for one in codes(none.document) if one == "broke_before"]
    # Runs rise by 0.1 a decade from 0.1 at 1e3, noise on top.
    assert text(none.document, "broke_before") == (
        f"n = 32 rose to 0.30 and broke after step {step} (all 3 runs): nobody knows what a longer "
        "run scores.")  # fmt: skip
    assert "at most 92k rollouts" in none.refusal.run_next[0]
    assert plan_budget(fit, 92e3, only_n=(32,)).allocation is not None
    with pytest.raises(InputError, match="steps >= 20"):
        plan_budget(fit, 1e3)


def test_a_sound_seed_plans_and_the_broken_one_is_on_the_first_screen() -> None:
    plan = plan_budget(cut_down({**FOUR, (32, 64): (0.0, 0.0)}, (32, 32), (0,)), AT)
    d, step = plan.document, int(LAST // 1024)
    assert d["rollouts_per_problem"] == 32
    assert d["trained"]["runs"] == 2
    assert d["trained"]["run"] != "32 x 32 seed 0"
    assert d["fell"] == {"how": "broke", "runs": 1, "of": 3, "step": step,
                         "score": pytest.approx(0.29, abs=0.015)}  # fmt: skip
    score = f"{d['fell']['score']:.3f}"
    row = f"  broke      1 of 3 runs after step {step} ({score}): stop if yours falls"
    assert row in said(plan)
    percent = {**d, "logged": {"key": "", "range": [0, 100]}}
    assert as_logged(percent)["fell"]["score"] == pytest.approx(100 * d["fell"]["score"])
    whole = {"fell": {**d["fell"], "runs": 1, "of": 1}}
    assert fell_words(whole)[1].startswith("its only run after step")


def test_that_the_choice_fell_is_on_the_first_screen_and_what_less_reaches() -> None:
    """Every run of n = 32 ends 0.1 lower than before 1e5; the draws say 0.42 at AT, 0.31 there."""
    plan = plan_budget(cut_down(FOUR, (32, 32), (0, 1, 2), to=0.25), AT)
    d = plan.document
    fell, step = d["fell"], d["fell"]["step"]
    assert (fell["how"], fell["runs"], fell["of"]) == ("fell", 3, 3)
    assert step in {round(10 ** (3 + 3 / 29 * k) / 1024) for k in (18, 19)}
    # 0.1 a decade, in both draws alike.
    lost = 0.1 * math.log10(976 / step)
    assert fell["lost"] == pytest.approx(lost, abs=1e-3)
    assert fell["predicted_score"] == pytest.approx(d["predicted_score"] - lost, abs=1e-3)
    assert not fell["as_good"]
    rows = said(plan)
    text = f"after step {step} ({fell['score']:.3f}): keep the best checkpoint, stop there"
    assert f"  fell       {text}" in rows
    assert any(row.startswith(f"  for less   {step} steps, its peak: 0.3") for row in rows)
    less = {**d, "fell": {**fell, "as_good": True, "lost": 0.001, "interval": [-0.01, 0.004]}}
    score = f"{fell['predicted_score']:.3f}"
    assert less_words(less).startswith(f"{step} steps do as well: {score} (at most 0.004 less)")
    less["fell"]["lost"] = -0.01
    assert less_words(less).startswith(f"{step} steps do better: ")
    final = {**d, "law": {**d["law"], "select": "final"}}
    assert fell_words(final)[1].endswith("): stop there")
    # A plan that ends before the fall loses nothing by it.
    assert plan_budget(cut_down(FOUR, (32, 32), (0, 1, 2), to=0.25), 5e4).document["fell"] is None


def test_rows_that_can_wait_give_way_to_checks() -> None:
    d = plan_budget(planted(), 4 * AT, current=128).document
    step = {"settles": "bp_untested", "do": "train", "command": "isocompute run " + "x" * 40,
            "rollouts": None, "cost": None}  # fmt: skip
    rows = said(plan_of({**d, "run_next": [step] * 3, "as_good": [32, 64]}))
    assert len(rows) <= 15
    assert any(row.startswith("  1. ") for row in rows)
    assert any(row.startswith("  for less") for row in rows)
    guess = {"rollouts_per_problem": 256, "gain": 0.0, "gain_interval": [-0.1, 0.1]}
    limit = {"code": "capped_by_max_batch", "level": "note", "text": "A.", "remedy": "B."}
    many = {**d, "run_next": [step] * 3, "as_good": [32, 64], "neighbours": [guess] * 2,
            "trained": {"runs": 1, "run": "a", "step": 9},
            "notices": [limit, *d["notices"]]}  # fmt: skip
    assert not any(row.startswith("  untested n") for row in said(plan_of(many)))
    whole = said(plan_of({**d, "run_next": [step] * 3, "as_good": [32, 64]}), why=True)
    assert any(row.startswith("  for less") for row in whole)  # there it has room


@pytest.mark.heavy
def test_what_no_log_holds_of_a_recipe_is_null() -> None:
    runs = [c.replace(recorded={"learning_rate": 2e-6, "clip_low": 0.1}) for c in planted().curves]
    d = plan_budget(fit_sweep(runs, draws=20), AT).document
    assert d["learning_rate_from"] == "runs"
    assert d["recipe"]["clip_low"] == 0.1
    unsaid = ("kl_coef", "entropy_coef", "temperature", "warmup_steps")
    assert {d["recipe"][word] for word in unsaid} == {None}


def test_an_untested_n_of_today_has_one_figure() -> None:
    curves = [c for c in WORLDS["rising"].sample(NOISE["high"], 1, np.random.default_rng(0))
              if c.rollouts_per_problem == 32]  # fmt: skip
    d = plan_budget(fit_sweep(curves, draws=40), AT, current=64).document
    (row,) = [one for one in d["neighbours"] if one["rollouts_per_problem"] == 64]
    assert row["gain"] == pytest.approx(-d["gain"]["score"])
    assert row["gain_interval"] == pytest.approx([-end for end in d["gain"]["interval"][::-1]])
    (line_,) = [one for one in advice_lines(d, why=True) if one.startswith("  untested n")]
    assert "16: " in line_
    assert "64: " not in line_
