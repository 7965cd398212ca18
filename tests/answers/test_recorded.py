"""What the logs of others record of their recipe, and how a plan goes on with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isocompute.allocation import Budget
from isocompute.answers import advice_lines, plan_from_source
from isocompute.answers.around import recorded_recipe, response_limit, scaling_of
from isocompute.answers.plan import plan_budget
from isocompute.domain import Configuration, Curve
from isocompute.importers import Settings, load_tidy
from isocompute.importers.words.configuration import facts_of
from isocompute.importers.words.recorded import recorded_of, recorded_said
from isocompute.recipe import TRAINED, Recipe
from test_plan import AT, planted

SMALL, LARGE = Configuration(32, 8), Configuration(32, 128)  # batches of 256 and 4,096


def run(c: Configuration, **recorded: float) -> Curve:
    return Curve(
        **c._asdict(), run="r", rollouts_K=np.array([1.0]), score_K=np.array([0.5]),
        recorded=recorded,
    )  # fmt: skip


def codes(document: dict[str, list[dict[str, str]]]) -> list[str]:
    return [one["code"] for one in document["notices"]]


def test_a_rate_stays_what_the_runs_of_that_batch_had() -> None:
    curves = [run(SMALL, learning_rate=1e-6), run(LARGE, learning_rate=4e-6)]
    of = recorded_recipe(curves, Recipe(), LARGE)
    assert of.recipe.learning_rate_at(4096) == pytest.approx(4e-6)
    assert (of.recipe.learning_rate_scaling, of.words, of.notices) == (
        "sqrt", ("learning_rate",), [],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "rule", "at_1024"),
    [((1e-6, 4e-6), "sqrt", 2e-6), ((1e-6, 1e-6), "constant", 1e-6),
     ((1e-6, 16e-6), "linear", 4e-6)],
)  # fmt: skip
def test_another_batch_follows_the_rule_of_the_sweep(
    rates: tuple[float, float], rule: str, at_1024: float
) -> None:
    curves = [run(SMALL, learning_rate=rates[0]), run(LARGE, learning_rate=rates[1])]
    of = recorded_recipe(curves, Recipe(), Configuration(32, 32))
    assert of.recipe.learning_rate_scaling == rule
    assert of.recipe.learning_rate_at(1024) == pytest.approx(at_1024)


def test_one_batch_is_scaled_by_the_square_root() -> None:
    of = recorded_recipe([run(SMALL, learning_rate=1e-6)], Recipe(), LARGE)
    assert of.recipe.learning_rate_at(4096) == pytest.approx(4e-6)


def test_rates_without_a_rule_are_said_and_the_chosen_ones_kept() -> None:
    curves = [run(SMALL, learning_rate=1e-6), run(LARGE, learning_rate=7e-6)]
    of = recorded_recipe(curves, Recipe(), LARGE)
    assert of.recipe.learning_rate_at(4096) == pytest.approx(7e-6)
    (said,) = of.notices
    assert said.code == "rates_without_a_rule"
    assert "1e-06 at 256, 7e-06 at 4,096 rollouts" in said.text
    rounded = {SMALL: 1.0e-6, LARGE: 4.15e-6}
    assert scaling_of(rounded) == "sqrt"
    assert scaling_of({**rounded, LARGE: 4.3e-6}) is None


def test_settings_that_differ_are_said_and_those_of_the_choice_are_taken() -> None:
    curves = [run(SMALL, kl_coef=0.0), run(LARGE, kl_coef=0.01), run(LARGE, kl_coef=0.01)]
    of = recorded_recipe(curves, Recipe.for_difficulty("easy"), LARGE)
    assert (of.recipe.kl_coef, of.recipe.entropy_coef) == (0.01, 0.0)
    (said,) = of.notices
    assert said.code == "settings_differ"
    assert "several values of kl_coef (0, 0.01); the plan takes those of 32 x 128." in said.text
    twice = [run(LARGE, learning_rate=r) for r in (2e-6, 1e-6, 1e-6)]
    of = recorded_recipe(twice, Recipe(), LARGE)
    assert of.recipe.learning_rate == 1e-6  # of most runs, where they score alike
    assert "learning_rate (1e-06, 2e-06)" in of.notices[0].text


def test_of_several_rates_that_of_the_runs_that_scored_best_is_taken() -> None:
    """At 256 rollouts, as far as all went: 0.4 and 0.5 at 1e-6, 0.47 and 0.48 at 3e-6."""
    def of_two(score: tuple[float, float], rate: float) -> Curve:
        return run(LARGE, learning_rate=rate).replace(
            rollouts_K=np.array([256.0, 512.0]), score_K=np.array(score))

    short = run(LARGE, learning_rate=1e-6).replace(
        rollouts_K=np.array([256.0]), score_K=np.array([0.4]))
    curves = [short, of_two((0.5, 0.9), 1e-6), of_two((0.47, 0.5), 3e-6), of_two((0.48, 0.5), 3e-6)]
    of = recorded_recipe(curves, Recipe(), LARGE)
    assert of.recipe.learning_rate == 3e-6
    (said,) = of.notices
    assert said.code == "settings_differ"
    assert "--where learning_rate=3e-06" in said.remedy


def test_a_plan_says_that_rates_differ() -> None:
    fit = planted({(32, 16): (0.0, 0.0)})
    fake = fit.posterior
    rates = zip(fake.curves, (1e-6, 3e-6, 3e-6), strict=True)
    fake.curves = tuple(  # type: ignore[misc]
        c.replace(recorded={"learning_rate": rate}, score_K=c.score_K * (1 if rate < 2e-6 else 0.9))
        for c, rate in rates)
    plan = plan_budget(fit, 2 * AT, study=None)
    assert plan.document["rates_tried"] == [1e-6, 3e-6]
    assert plan.document["learning_rate"] == 1e-6
    assert any(line == "  lr         1e-6   (as in the runs that scored best)"
               for line in advice_lines(plan.document))  # fmt: skip


def test_what_a_recipe_cannot_have_is_left_out() -> None:
    of = recorded_recipe([run(LARGE, learning_rate=0.0, temperature=1.0)], Recipe(), LARGE)
    assert (of.recipe.learning_rate, of.recipe.temperature, of.words) == (
        1e-6, 1.0, ("temperature",),
    )  # fmt: skip
    of = recorded_recipe([run(LARGE, kl_coef=0.0, entropy_coef=0.01)], Recipe(), LARGE)
    assert of.recipe.entropy_coef == 0.01  # an entropy bonus alone is what they had
    assert of.recipe.allow_entropy_without_kl
    kept = recorded_recipe([run(LARGE, kl_coef=0.5)], Recipe(), LARGE, keep=("kl_coef",))
    assert (kept.recipe, kept.words) == (Recipe(), ())


def test_a_plan_of_runs_that_record_their_recipe_assumes_nothing() -> None:
    own = {"learning_rate": 3e-6, "kl_coef": 0.0, "warmup_steps": 4.0}
    fit = planted()
    for c in fit.curves:
        vars(c)["recorded"] = own
    d = plan_budget(fit, AT).document
    assert (d["learning_rate"], d["learning_rate_from"]) == (3e-6, "runs")
    assert (d["recipe"]["kl_coef"], d["recipe"]["entropy_coef"]) == (0, None)  # nobody said that
    assert d["recorded"] == ["learning_rate", "kl_coef", "warmup_steps"]
    budget = Budget(amount=AT, unit="rollouts")
    d = plan_from_source("x.csv", budget=budget, fit=fit).document
    assert not {"anchor_assumed", "difficulty_assumed"} & {*codes(d)}
    assert d["difficulty"] is None  # nobody said it
    asked = plan_from_source("x.csv", budget=budget, difficulty="easy", fit=fit).document
    assert asked["recipe"]["kl_coef"] == 1e-3
    assert asked["learning_rate"] == 3e-6
    assert asked["recipe"]["objective"] is None  # what no log says has no name
    (row,) = (line for line in advice_lines(asked) if line.startswith("  recipe "))
    assert row.split(maxsplit=1)[1] == "KL 0.001, entropy 0.001   (of --difficulty easy)"
    added = [w for w in asked["recipe"] if w not in Recipe().to_dict()]
    assert added == [w for w in TRAINED if w in added]  # one order, whatever the hashes


def test_responses_are_cut_where_the_runs_of_this_n_were() -> None:
    fit = planted()
    for c in fit.curves:
        vars(c)["response_limit"] = 2048 if c.rollouts_per_problem == 16 else 1024
    keys = {"trl": "max_completion_length", "verl": "data.max_response_length"}
    for recorded in ({}, {"learning_rate": 3e-6}):
        for c in fit.curves:
            vars(c)["recorded"] = recorded
        d = plan_budget(fit, AT).document
        assert d["rollouts_per_problem"] != 16
        for trainer, key in keys.items():
            assert d["trainer"][trainer][key] == 1024
            assert "response_tokens" not in d["trainer_not_set"][trainer]
    assert response_limit(fit.curves, Configuration(64, 16)) == 2048
    assert response_limit(fit.curves, Configuration(64, 3)) == 1024
    assert response_limit([run(SMALL)], SMALL) is None


def test_the_shipped_grid_knows_its_difficulty_and_whose_it_is() -> None:
    for name, kl in (("hard", 0.0), ("easy", 1e-3), ("hard-joint", 0.0)):
        d = plan_from_source(
            f"grid:{name}", budget=Budget(amount=AT, unit="rollouts"), fit=planted()
        ).document
        assert d["recipe"]["kl_coef"] == kl
        assert "difficulty_assumed" not in codes(d)
        assert "law_of_another_model" in codes(d)


VERL = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({f"{VERL}.use_kl_loss": True, f"{VERL}.kl_loss_coef": 0.001},
         {"kl_coef": "0.001", "entropy_coef": "0"}),  # it would write that, too
        ({f"{VERL}.use_kl_loss": "False", f"{VERL}.kl_loss_coef": 0.001},
         {"kl_coef": "0", "entropy_coef": "0"}),
        ({f"{VERL}.kl_loss_coef": 0.001}, {}),  # on or off is not said
        ({f"{VERL}.use_kl_loss": False, f"{VERL}.kl_loss_coef": 0.001,
          "algorithm.use_kl_in_reward": True}, {}),
        ({"beta": 0.04}, {}),  # whose?
        ({"num_generations": 8, "beta": 0.04}, {"kl_coef": "0.04", "entropy_coef": "0"}),
        ({"num_generations": 8, "loss_type": "cispo", "epsilon_high": 5},
         {"objective": "cispo", "aggregation": "token-mean"}),
        ({"num_generations": 8, "epsilon_high": 0.28}, {"clip_high": "0.28"}),
        ({"num_generations": 8, "warmup_steps": 0, "warmup_ratio": 0.1}, {"warmup_share": "0.1"}),
        ({"num_generations": 8, "warmup_steps": 5}, {"warmup_steps": "5"}),
        # TRL 0.27, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
        ({"num_generations": 8, "use_vllm": True, "vllm_importance_sampling_correction": True,
          "vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_cap": 2.0,
          "use_peft": False},
         {"importance_level": "token", "importance_cap": "2", "lora_rank": "0"}),
        ({"num_generations": 8, "use_vllm": True, "vllm_importance_sampling_correction": False},
         {"importance_cap": "none"}),
        ({"num_generations": 8, "use_vllm": False, "vllm_importance_sampling_correction": True},
         {}),
        ({f"{VERL}.optim.lr_warmup_steps": -1}, {}),
    ],
)  # fmt: skip
def test_words_of_trainers(config: dict[str, object], found: dict[str, str]) -> None:
    assert recorded_of(config) == found
    assert facts_of(config) == found


def test_only_numbers_of_known_words_count() -> None:
    facts = {"learning_rate": "2e-06", "temperature": "low", "kl_coef": "nan", "colour": "7"}
    assert recorded_said(facts) == {"learning_rate": 2e-6}


def test_a_table_may_record_them_in_columns(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    head = "problems_per_batch,rollouts_per_problem,rollouts,score,learning_rate,top_p,kl_coef"
    file.write_text(f"{head}\n32,8,256,0.1,1e-6,high,0\n32,8,512,0.2,2e-6,high,\n")
    (curve,) = load_tidy(file)
    assert curve.recorded == {"learning_rate": 2e-6}  # after its warm-up; kl_coef has a gap
    (curve,) = load_tidy(file, settings=Settings(learning_rate=9e-6))
    assert curve.recorded == {"learning_rate": 2e-6}
    file.write_text("\n".join(",".join(row.split(",")[:4]) for row in file.read_text().split()))
    (curve,) = load_tidy(file, settings=Settings(learning_rate=9e-6))
    assert curve.recorded == {"learning_rate": 9e-6}  # as it was said
