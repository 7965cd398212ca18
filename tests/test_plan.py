"""Plans on a planted law: every number below is worked out by hand from `PlantedFit`."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from isocompute.allocation import Budget, Rates, parse_budget
from isocompute.errors import InputError, RefusalError
from isocompute.plan import advice_lines, plan_budget, plan_fixed_batch
from isocompute.recipe import Recipe
from planted_law import PlantedFit, Reading

# n*(C) = 3.6e6 / 16384 = 219.7 -> 128; with a budget of 256 * 16384 it is 256 exactly.
C_256 = 256 * 16384


def codes(document: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in document["warnings"]]


def message(document: dict[str, Any], code: str) -> str:
    return next(w["message"] for w in document["warnings"] if w["code"] == code)


def test_n_is_the_law_rounded_down_and_steps_take_the_rest() -> None:
    d = plan_budget(PlantedFit(), 3.6e6).document
    assert d["rollouts_per_problem"] == 128
    assert d["problems_per_batch"] == 32
    assert d["steps"] == 878  # floor(3.6e6 / 4096)
    assert d["batch_size"] == 4096
    assert d["rollouts"] == 878 * 4096 <= 3.6e6


def test_an_exact_power_is_not_rounded_down() -> None:
    assert plan_budget(PlantedFit(), C_256).document["rollouts_per_problem"] == 256


@pytest.mark.parametrize(("law", "n"), [(460, 256), (469, 256), (471, 512), (505, 512)])
def test_an_eighth_of_an_octave_below_a_power_counts_as_the_power(law: int, n: int) -> None:
    # 512 * 2**-0.125 = 469.5
    assert plan_budget(PlantedFit(), law * 16384.0).document["rollouts_per_problem"] == n


def test_learning_rate_follows_the_square_root_from_the_anchor() -> None:
    plan = plan_budget(PlantedFit(), C_256)
    assert plan.learning_rate == pytest.approx(1e-6 * math.sqrt(8192 / 1024))
    assert plan.document["learning_rate"] == plan.learning_rate


def test_the_anchor_is_the_recipes() -> None:
    recipe = Recipe(learning_rate=3e-4, base_batch_size=4096, learning_rate_scaling="linear")
    plan = plan_budget(PlantedFit(), C_256, recipe=recipe)
    assert plan.learning_rate == pytest.approx(6e-4)


@pytest.mark.parametrize(("difficulty", "kl"), [("easy", 1e-3), ("hard", 0.0), ("mixed", 0.0)])
def test_the_recipe_is_that_of_the_difficulty(difficulty: Any, kl: float) -> None:
    d = plan_budget(PlantedFit(), 4e6, difficulty=difficulty).document
    assert d["recipe"]["kl_coef"] == kl
    assert d["recipe"]["entropy_coef"] == kl


def test_the_batch_cap_bites_and_says_what_it_costs() -> None:
    # At C = 256 * 16384 n* = 256; a batch of 2048 holds n at 64: two octaves, 0.04 of score.
    d = plan_budget(PlantedFit(), C_256, max_batch_size=2048).document
    assert (d["rollouts_per_problem"], d["batch_size"]) == (64, 2048)
    text = message(d, "capped_by_max_batch")
    assert "holds n at 64 instead of 256" in text
    assert "0.660 [0.650, 0.670] instead of 0.700 [0.690, 0.710]" in text
    assert "a cost of 0.040" in text


def test_a_cap_that_does_not_bite_says_nothing() -> None:
    d = plan_budget(PlantedFit(), C_256, max_batch_size=8192).document
    assert "capped_by_max_batch" not in codes(d)
    assert d["rollouts_per_problem"] == 256


def test_min_steps_caps_n() -> None:
    d = plan_budget(PlantedFit(), C_256, min_steps=1000).document
    # 1000 steps of 32 * 128 = 4.10M <= 4.19M; 32 * 256 would take 8.19M.
    assert d["rollouts_per_problem"] == 128
    assert d["steps"] == 1024
    assert "at least 1000 steps holds n at 128 instead of 256" in message(d, "capped_by_min_steps")


def test_a_cap_below_an_untested_n_does_not_invent_a_cost() -> None:
    fit = PlantedFit(n_tested=(8, 16, 256))
    d = plan_budget(fit, C_256, max_batch_size=4096).document
    assert d["rollouts_per_problem"] == 128
    assert "is not known" in message(d, "capped_by_max_batch")
    assert d["predicted_score"] is None
    assert "score_unknown" in codes(d)


def test_n_stays_at_the_plateau() -> None:
    class Rising(PlantedFit):
        def star(self, rollouts: float) -> float:
            return rollouts / 16384

    d = plan_budget(Rising(plateau=64.0), 4e6).document
    assert d["rollouts_per_problem"] == 64
    assert "held at its plateau 64" in message(d, "capped_by_plateau")


def test_without_a_plateau_n_stays_at_the_largest_tested() -> None:
    fit = PlantedFit(plateau=None, n_tested=(8, 16, 32, 64))
    d = plan_budget(fit, 4e6).document
    assert d["rollouts_per_problem"] == 64
    assert "n=64, the largest tested" in message(d, "capped_by_tested_n")


def test_a_law_below_the_smallest_n_tested_is_a_bound() -> None:
    fit = PlantedFit(n_tested=(64, 128))
    d = plan_budget(fit, 250_000.0).document  # n* = 15.3
    assert d["rollouts_per_problem"] == 64
    assert "a bound, not an optimum" in message(d, "n_at_smallest_tested")


def test_interval_confidence_set_and_regret_are_the_laws() -> None:
    reading = Reading(
        rollouts_per_problem=0.0, interval=(90.0, 300.0), confidence_set=(64,), expected_regret=0.01
    )
    d = plan_budget(PlantedFit(confidence=reading), 1e6).document
    assert d["rollouts_per_problem_interval"] == [90.0, 300.0]
    assert d["confidence_set"] == [64]
    assert d["expected_regret"] == 0.01


def test_rounding_below_the_best_of_the_grid_says_what_it_costs() -> None:
    # n* = 219.7: 128 by rounding down, 256 by the grid: 0.7794 against 0.2206 octaves away.
    reading = Reading(rollouts_per_problem=0.0, confidence_set=(256,))
    d = plan_budget(PlantedFit(confidence=reading), 3.6e6).document
    assert "n=256 is ahead of it" in message(d, "rounded_below_the_best")
    assert "a cost of 0.011" in message(d, "rounded_below_the_best")
    assert "rounded_below_the_best" not in codes(plan_budget(PlantedFit(), 4e6).document)


def test_predicted_score_is_that_of_the_chosen_allocation() -> None:
    d = plan_budget(PlantedFit(), C_256).document
    assert d["predicted_score"] == pytest.approx(0.7)
    assert d["predicted_score_interval"] == pytest.approx([0.69, 0.71])


def test_extrapolation_is_counted_in_decades_beyond_the_support() -> None:
    d = plan_budget(PlantedFit(), 4e6).document
    assert d["extrapolation_log10"] == pytest.approx(math.log10(2))
    assert "0.30 decades above" in message(d, "extrapolated")
    inside = plan_budget(PlantedFit(), 1e6).document
    assert inside["extrapolation_log10"] == 0
    assert "extrapolated" not in codes(inside)


def test_a_back_test_without_skill_is_told_where_it_matters() -> None:
    doubt = "predicted worse than by 'it stays as it is'"
    assert doubt in message(plan_budget(PlantedFit(skill=-0.2), 4e6).document, "extrapolated")
    assert doubt not in message(plan_budget(PlantedFit(skill=0.2), 4e6).document, "extrapolated")


def test_advice_has_the_laws_warnings_by_code_unless_they_bear_on_n() -> None:
    fit = PlantedFit(
        warnings=(
            {"code": "tie", "message": "long words"},
            {"code": "rise_not_claimed", "message": "words that matter"},
        )
    )
    text = "\n".join(advice_lines(plan_budget(fit, 1e6, source="s.csv").document))
    assert "! of the law itself: tie; `isocompute fit s.csv` explains them." in text
    assert "! rise_not_claimed: words that matter" in text


def test_advice_names_a_plateau_only_where_it_is_identified() -> None:
    class Open(PlantedFit):
        @property
        def document(self) -> dict[str, Any]:
            document = super().document
            document["law"]["identified"] = {"plateau": False}
            return document

    assert "saturates near 512" in "\n".join(advice_lines(plan_budget(PlantedFit(), 1e6).document))
    assert "saturates" not in "\n".join(advice_lines(plan_budget(Open(), 1e6).document))


def test_a_budget_below_the_support_is_extrapolation_too() -> None:
    d = plan_budget(PlantedFit(), 100_000.0).document
    assert d["extrapolation_log10"] == pytest.approx(math.log10(2))
    assert "0.30 decades below" in message(d, "extrapolated")


def test_the_stable_problems_per_batch_is_taken_with_its_notices() -> None:
    one = plan_budget(PlantedFit(), 4e6).document
    assert "bp_untested" in codes(one)
    two = plan_budget(PlantedFit(problems_per_batch=(32, 64), stable=64), 4e6).document
    assert two["problems_per_batch"] == 64
    assert "bp_untested" not in codes(two)


def test_a_problems_per_batch_that_failed_is_not_stable() -> None:
    fit = PlantedFit(problems_per_batch=(16, 32, 64), stable=16)
    healthy = plan_budget(fit, 3.6e6).document
    assert (healthy["problems_per_batch"], healthy["rollouts_per_problem"]) == (16, 128)
    d = plan_budget(fit, 3.6e6, unhealthy={(16, 128): "dead_batches", (32, 64): "nothing"}).document
    assert d["problems_per_batch"] == 32
    assert message(d, "bp_unhealthy") == (
        "B_p=16 at n=128 ended in dead_batches; B_p=32 is the next that did not."
    )


def test_where_every_problems_per_batch_failed_the_plan_says_so() -> None:
    d = plan_budget(PlantedFit(), 3.6e6, unhealthy={(32, 128): "divergence"}).document
    assert d["problems_per_batch"] == 32
    assert "B_p=32 at n=128 ended in divergence, and no larger B_p" in message(d, "bp_unstable")


def test_warnings_of_the_caller_and_of_the_fit_are_carried_once() -> None:
    mine = {"code": "mine", "message": "m"}
    fits = {"code": "fits", "message": "f"}
    d = plan_budget(PlantedFit(warnings=(fits, fits)), 4e6, warnings=[mine]).document
    assert codes(d).count("fits") == 1
    assert codes(d)[0] == "mine"


def test_cost_is_known_where_a_rate_is() -> None:
    rates = Rates(rollouts_per_gpu_hour=4096.0, usd_per_gpu_hour=2.0)
    d = plan_budget(PlantedFit(), 4e6, rates=rates).document
    assert d["cost"] == {"tokens": None, "gpu_hours": 976.0, "usd": 1952.0}


def test_tokens_are_measured_on_the_sweep_unless_given() -> None:
    fit = PlantedFit(tokens_per_rollout=500.0)
    d = plan_budget(fit, parse_budget("2e9tok")).document
    assert d["budget_rollouts"] == pytest.approx(4e6)
    assert "500 per rollout" in message(d, "tokens_measured")
    given = plan_budget(fit, parse_budget("2e9tok"), rates=Rates(tokens_per_rollout=1000.0))
    assert given.document["budget_rollouts"] == pytest.approx(2e6)
    assert "tokens_measured" not in codes(given.document)


def test_a_budget_whose_rate_nobody_knows_is_bad_input() -> None:
    with pytest.raises(InputError, match="needs `tokens_per_rollout`"):
        plan_budget(PlantedFit(), parse_budget("2e9tok"))


def test_a_budget_below_one_batch_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"at least one batch, but got 255 .* has 256"):
        plan_budget(PlantedFit(), 255.0)


def test_a_largest_batch_below_the_smallest_tested_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"must hold the smallest one tested \(256 rollouts\)"):
        plan_budget(PlantedFit(), 4e6, max_batch_size=128)


@pytest.mark.parametrize("limit", [{"max_batch_size": 0}, {"min_steps": 0}])
def test_limits_below_one_are_bad_input(limit: dict[str, int]) -> None:
    with pytest.raises(InputError, match=">= 1` must hold, but got 0"):
        plan_budget(PlantedFit(), 4e6, **limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fit", "budget", "limits", "reason"),
    [
        (PlantedFit(form=None), 1e6, {}, "none could be identified"),
        (PlantedFit(support=None), 1e6, {}, "the curves share none"),
        (
            PlantedFit(warnings=({"code": "scores_fall", "message": "6 of 6 end lower."},)),
            1e6,
            {},
            "scores that training raises, but 6 of 6",
        ),
        (
            PlantedFit(warnings=({"code": "scores_flat", "message": "none ends higher."},)),
            1e6,
            {},
            "scores that training raises, but none ends higher",
        ),
        (PlantedFit(), 10_000.0, {}, "first score of the sweep is at 20k"),
        (PlantedFit(), 20_000_001.0, {}, "at most 1.00 decades"),
        (PlantedFit(support=(1e6, 2e6)), 9e6, {}, "at most 0.60 decades"),
        (PlantedFit(), 100_000.0, {"min_steps": 1000}, "at least 1000 steps"),
        (
            PlantedFit(problems_per_batch=(8, 32)),
            1e6,
            {"max_batch_size": 128},
            "must hold B_p=32 problems of at least n=8",
        ),
    ],
)
def test_what_the_sweep_cannot_carry_is_refused(
    fit: PlantedFit, budget: float, limits: dict[str, int], reason: str
) -> None:
    plan = plan_budget(fit, budget, **limits)  # type: ignore[arg-type]
    assert plan.allocation is None
    assert plan.learning_rate is None
    assert isinstance(plan.refusal, RefusalError)
    d = plan.document
    assert reason in d["refusal"]["reason"]
    assert d["refusal"]["run_next"]
    assert d["rollouts_per_problem"] is None
    assert d["budget_rollouts"] == budget
    json.dumps(d, allow_nan=False)


def test_the_limit_of_extrapolation_is_one_decade() -> None:
    assert plan_budget(PlantedFit(), 19_999_999.0).refusal is None


def test_a_plan_and_a_refusal_have_the_same_keys() -> None:
    stands = plan_budget(PlantedFit(), 4e6).document
    refused = plan_budget(PlantedFit(form=None), 4e6).document
    assert set(stands) == set(refused)
    assert stands["refusal"] is None


def test_the_law_is_summarised_with_its_source() -> None:
    law = plan_budget(PlantedFit(), 4e6, source="sweep.csv").document["law"]
    assert law["source"] == "sweep.csv"
    assert law["plateau"] == 512.0
    assert law["support"] == [200_000.0, 2_000_000.0]
    assert "at" not in law


def test_a_fixed_batch_without_its_own_law_is_split_by_the_budgets_n() -> None:
    # C = 8192 * 256 = 128 * 16384 -> n = 128, B_p = 64.
    d = plan_fixed_batch(PlantedFit(), 8192, 256).document
    assert (d["problems_per_batch"], d["rollouts_per_problem"], d["steps"]) == (64, 128, 256)
    assert d["batch_size"] == 8192
    assert "fixed_batch_law_missing" in codes(d)


def test_a_fixed_batch_keeps_the_smallest_stable_problems_per_batch() -> None:
    # n* = 244 -> 256, but B = 1024 leaves 32 problems only up to n = 32.
    d = plan_fixed_batch(PlantedFit(), 1024, 3900).document
    assert (d["problems_per_batch"], d["rollouts_per_problem"]) == (32, 32)
    assert "capped_by_max_batch" in codes(d)


def test_a_fixed_batch_with_its_own_law_follows_it() -> None:
    fit = PlantedFit(problems_per_batch=(8, 16, 32), setting=("fixed_batch_size", 1024), stable=32)
    d = plan_fixed_batch(fit, 1024, 1024).document  # n* = 64
    assert (d["problems_per_batch"], d["rollouts_per_problem"]) == (16, 64)
    assert "fixed_batch_law_missing" not in codes(d)


def test_a_batch_that_is_no_multiple_is_never_exceeded() -> None:
    d = plan_fixed_batch(PlantedFit(), 3000, 700).document  # n* = 128.2 -> 64 by B_p >= 32
    assert d["rollouts_per_problem"] == 64
    assert d["problems_per_batch"] == 46
    assert d["batch_size"] <= 3000


@pytest.mark.parametrize(("batch", "steps"), [(0, 10), (1024, 0)])
def test_a_fixed_batch_needs_positive_numbers(batch: int, steps: int) -> None:
    with pytest.raises(InputError, match=">= 1` must hold, but got 0"):
        plan_fixed_batch(PlantedFit(), batch, steps)


def test_advice_reads_in_about_fifteen_lines() -> None:
    d = plan_budget(PlantedFit(), 3.6e6, source="published:x").document
    lines = advice_lines(d)
    assert lines[0] == (
        "With 3.6M rollouts: 128 rollouts per problem, 32 problems per batch, 878 steps"
    )
    text = "\n".join(lines)
    assert "2e-06 after 10 warm-up steps (1e-06 at B=1024, sqrt scaling)" in text
    assert "GRPO, KL 0.001 + entropy 0.001" in text
    assert "avg@4 0.68" in text
    assert "gives 220 (between 128 and 512)" in text
    assert "0.26 decades outside" in text
    assert len(lines) <= 18
    assert max(map(len, lines)) <= 100


def test_advice_prints_the_keys_of_a_trainer() -> None:
    d = plan_budget(PlantedFit(), 3.6e6).document
    lines = advice_lines(d, trainer="verl")
    assert "  data.train_batch_size=32" in lines
    assert "  actor_rollout_ref.rollout.n=128" in lines
    with pytest.raises(InputError, match="trainer must be one of verl, trl"):
        advice_lines(d, trainer="nobody")


def test_advice_on_a_refusal_says_why_and_what_next() -> None:
    lines = advice_lines(plan_budget(PlantedFit(form=None), 4e6).document)
    assert lines[0].startswith("No plan: a plan needs a law")
    assert any(line.startswith("Run next: ") for line in lines)


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
