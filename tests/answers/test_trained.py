"""What decides what was trained is read in full, kept, compared, and printed as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute.allocation import Allocation
from isocompute.answers import fit_sweep
from isocompute.answers.around import recorded_recipe
from isocompute.answers.assumed import assumptions, recipe_unsaid
from isocompute.answers.plan import plan_budget
from isocompute.cli.evidence import group_lines
from isocompute.domain import Curve
from isocompute.importers import read_log
from isocompute.importers.values.imported import Outcomes
from isocompute.importers.values.timing import groups_of
from isocompute.importers.words.configuration import facts_of
from isocompute.importers.words.recorded import recorded_said, trained_of
from isocompute.recipe import TRAINED, Recipe
from isocompute.trainers import read_allocation, trainer_settings
from isocompute.trainers.trl import divided
from test_plan import AT, planted
from test_recorded import LARGE, SMALL

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# As verl 0.9.1 prints it: GSPO, off-policy, refilled batches, a cosine to 0, an overlong penalty.
GSPO: dict[str, object] = {
    "data.train_batch_size": 128, f"{ROLLOUT}.n": 32, f"{ACTOR}.ppo_mini_batch_size": 16,
    f"{ACTOR}.ppo_epochs": 2, f"{ACTOR}.policy_loss.loss_mode": "gspo",
    f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm", f"{ACTOR}.clip_ratio_c": 10.0,
    f"{ACTOR}.shuffle": True, f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_coef": 0.002,
    f"{ACTOR}.kl_loss_type": "mse", f"{ACTOR}.optim.lr": 1e-6,
    f"{ACTOR}.optim.lr_warmup_steps": 10, f"{ACTOR}.optim.lr_scheduler_type": "cosine",
    f"{ACTOR}.optim.min_lr_ratio": 0.0, "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": False, "algorithm.filter_groups.enable": True,
    "algorithm.rollout_correction.rollout_is": None, "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.model.path": "Qwen/Qwen2.5-7B", "actor_rollout_ref.model.lora_rank": 32,
    "reward_model.overlong_buffer.enable": True, "reward_model.overlong_buffer.len": 2048,
    "reward_model.overlong_buffer.penalty_factor": 1.0, f"{ROLLOUT}.val_kwargs.do_sample": True,
    f"{ROLLOUT}.val_kwargs.temperature": 0.6, f"{ROLLOUT}.val_kwargs.top_p": 0.95,
    f"{ROLLOUT}.val_kwargs.n": 4, "async_training.staleness_threshold": 0.5,
}  # fmt: skip


def test_verl_says_all_that_decides() -> None:
    assert trained_of(GSPO) == {
        "objective": "gspo", "advantage_std": "none", "aggregation": "seq-mean-token-sum-norm",
        "kl_estimator": "mse", "kl_in_reward": "0", "zero_variance_filter": "refill",
        "updates_per_batch": "16", "passes_per_batch": "2", "shuffled": "yes", "clip_dual": "10",
        "lr_schedule": "cosine", "lr_least": "0", "importance_cap": "none", "lora_rank": "32",
        "length_penalty": "1 over 2048 tokens", "staleness": "0.5",
        "evaluation_temperature": "0.6", "evaluation_top_p": "0.95", "evaluation_samples": "4",
    }  # fmt: skip
    assert set(trained_of(GSPO)) <= set(TRAINED)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"algorithm.adv_estimator": "rloo", f"{ACTOR}.policy_loss.loss_mode": "gspo"},
         {"objective": "rloo/gspo"}),
        ({"algorithm.adv_estimator": "gae", f"{ACTOR}.x": 1, "critic.optim.lr": 1e-5},
         {"objective": "ppo", "value_learning_rate": "1e-05"}),
        ({f"{ROLLOUT}.val_kwargs.do_sample": False, f"{ROLLOUT}.val_kwargs.temperature": 1.0},
         {"evaluation_temperature": "0"}),  # greedy
        ({f"{ACTOR}.optim.lr_scheduler_type": "cosine", f"{ACTOR}.optim.min_lr_ratio": 1.0},
         {"lr_schedule": "constant"}),
        ({f"{ACTOR}.optim.warmup_style": "cosine"}, {"lr_schedule": "cosine"}),  # before 0.6
        ({f"{ACTOR}.tis_imp_ratio_cap": 2.0},
         {"importance_level": "token", "importance_cap": "2"}),
        ({"algorithm.rollout_correction.rollout_is": "sequence", f"{ACTOR}.x": 1,
          "algorithm.rollout_correction.rollout_is_threshold": 3},
         {"importance_level": "sequence", "importance_cap": "3"}),
        ({"actor_rollout_ref.model.path": "x"},  # releases before LoRA had no key for it
         {"lora_rank": "0", "length_penalty": "none"}),
        ({"num_generations": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 16,
          "num_iterations": 2, "lr_scheduler_type": "linear", "mask_truncated_completions": True,
          "loss_type": "grpo", "importance_sampling_level": "sequence"},
         {"objective": "gspo", "aggregation": "seq-mean-token-mean", "updates_per_batch": "8",
          "passes_per_batch": "2", "lr_schedule": "linear",
          "length_penalty": "truncated are masked"}),
        ({"rollout.n_samples_per_prompt": 8, "rollout.batch_size": 32, "train.batch_size": 64,
          "algo.advantage.estimator": "reinforce_baseline", "ds.lora.rank": 16,
          "reward.overlong_buffer_len": 512, "train.async_enable": True,
          "train.async_queue_size": 2, "actor.lr_scheduler": "cosine_with_min_lr",
          "actor.min_lr_ratio": 0.1},
         {"objective": "reinforce_baseline", "updates_per_batch": "4", "lora_rank": "16",
          "lr_schedule": "cosine_with_min_lr", "lr_least": "0.1",
          "length_penalty": "1 over 512 tokens", "staleness": "2"}),
        ({"orchestrator.max_off_policy_steps": 8}, {"staleness": "8"}),
        ({"model": "x", "learning_rate": 1e-6}, {}),
    ],
)  # fmt: skip
def test_words_of_trainers(config: dict[str, object], found: dict[str, str]) -> None:
    assert trained_of(config) == found


def test_warm_up_of_trl_is_counted_in_batches() -> None:
    config = {"num_generations": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 16}
    assert facts_of({**config, "warmup_steps": 8})["warmup_steps"] == "2"
    assert "warmup_steps" not in facts_of({**config, "warmup_steps": 7})


def curves(
    configs: dict[int, dict[str, object]], surface: list[Curve] | None = None
) -> list[Curve]:
    """Planted runs, of which those of n had a configuration."""
    surface = list(surface or planted().curves)
    return [c.replace(recorded=recorded_said(facts_of(configs[c.rollouts_per_problem])))
            for c in surface]  # fmt: skip


def same_but(**changes: Any) -> tuple[list[Curve], str]:
    """Runs whose largest n alone differs, and what the plan says of it."""
    runs = list(planted().curves)
    largest = max(c.rollouts_per_problem for c in runs)
    other = {**GSPO, **{k.replace("__", "."): v for k, v in changes.items()}}
    configs = {c.rollouts_per_problem: GSPO for c in runs} | {largest: other}
    made = curves(configs, runs)
    notices = recorded_recipe(made, Recipe(), made[0].configuration).notices
    said = [one for one in notices if one.code == "settings_differ"]
    return made, f"{said[0].text} {said[0].remedy}" if said else ""


@pytest.mark.parametrize(
    ("key", "value", "said", "where"),
    [
        (f"{ACTOR}.ppo_mini_batch_size", 128, "updates_per_batch (2, 16)", "updates_per_batch=16"),
        ("algorithm.adv_estimator", "rloo", "objective (gspo, rloo/gspo)", "objective=gspo"),
        ("actor_rollout_ref.model.lora_rank", 0, "lora_rank (0, 32)", "lora_rank=32"),
        ("reward_model.overlong_buffer.enable", False,
         "length_penalty (1 over 2048 tokens, none)", "'length_penalty=1 over 2048 tokens'"),
        (f"{ROLLOUT}.val_kwargs.temperature", 1.0, "evaluation_temperature (0.6, 1)",
         "evaluation_temperature=0.6"),
        (f"{ACTOR}.kl_loss_coef", 0.1, "kl_coef (0.002, 0.1)", "kl_coef=0.002"),
    ],
)  # fmt: skip
def test_what_differs_by_n_is_said_with_what_chooses(
    key: str, value: object, said: str, where: str
) -> None:
    _, text = same_but(**{key.replace(".", "__"): value})
    assert said in text
    assert text.endswith(f"Keep runs of one value: --where {where}.")


def test_how_often_problems_are_sampled_is_no_other_training() -> None:
    assert same_but(**{f"{ROLLOUT}.val_kwargs.n".replace(".", "__"): 16})[1] == ""


def test_one_selection_is_enough_where_settings_go_together() -> None:
    _, text = same_but(**{
        f"{ACTOR}.ppo_epochs".replace(".", "__"): 1, "algorithm__adv_estimator": "rloo"})
    assert "objective (gspo, rloo/gspo), updates_per_batch (8, 16), passes_per_batch" in text
    assert text.endswith(": --where objective=gspo.")


def plan_of(config: dict[str, object]) -> dict[str, Any]:
    runs = list(planted().curves)
    made = curves({c.rollouts_per_problem: config for c in runs}, runs)
    return plan_budget(fit_sweep(made, draws=20), AT).document


@pytest.mark.heavy
def test_a_plan_prints_the_recipe_of_its_runs() -> None:
    d = plan_of(GSPO)
    keys, b_p = d["trainer"]["verl"], d["problems_per_batch"]
    same = ("policy_loss.loss_mode", "loss_agg_mode", "clip_ratio_c", "ppo_epochs", "shuffle",
            "kl_loss_type", "kl_loss_coef", "use_kl_loss", "optim.lr_scheduler_type",
            "optim.min_lr_ratio", "optim.lr_warmup_steps")  # fmt: skip
    for key in (*(f"{ACTOR}.{name}" for name in same), f"{ROLLOUT}.val_kwargs.temperature",
                "algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo",
                "algorithm.filter_groups.enable", "algorithm.use_kl_in_reward",
                "actor_rollout_ref.model.lora_rank"):  # fmt: skip
        assert keys[key] == GSPO[key], key
    assert keys[f"{ACTOR}.ppo_mini_batch_size"] == b_p // 8  # as many updates of a batch
    assert keys["algorithm.rollout_correction.rollout_is"] == "null"
    assert f"{ROLLOUT}.calculate_log_probs" not in keys
    # nothing that the runs did not say
    assert not any("weight_decay" in key or "grad_clip" in key for key in keys)
    assert "length_penalty=1 over 2048 tokens" in d["trainer_not_set"]["verl"]
    assert "staleness=0.5" in d["trainer_not_set"]["verl"]
    assert set(trained_of(GSPO)) <= set(d["recorded"])
    assert d["recipe"]["objective"] == "gspo"
    assert d["recipe"]["gae_gamma"] is None
    assert recipe_unsaid(d, "verl").startswith("The recipe is that of your runs' logs;")


@pytest.mark.heavy
def test_what_another_trainer_has_no_word_for_is_named() -> None:
    d = plan_of(GSPO)
    keys, left = d["trainer"]["trl"], d["trainer_not_set"]["trl"]
    assert keys["importance_sampling_level"] == "sequence"
    assert (keys["num_iterations"], keys["scale_rewards"]) == (2, "none")
    assert keys["steps_per_generation"] == 8 * keys["gradient_accumulation_steps"]
    assert keys["max_steps"] == 16 * d["steps"]
    assert "loss_type" not in keys
    assert {"aggregation=seq-mean-token-sum-norm", "zero_variance_filter=refill", "lora_rank=32",
            "kl_estimator=mse"} <= set(left)  # fmt: skip
    told = recipe_unsaid(d, "trl").partition(" No key of trl says what they had: ")[2]
    assert {"lora_rank=32", "zero_variance_filter=refill"} <= set(told.rstrip(".").split(", "))
    made = read_allocation("trl", keys)
    assert (made.problems_per_batch, made.rollouts_per_problem, made.steps) == (
        d["problems_per_batch"], d["rollouts_per_problem"], d["steps"],
    )  # fmt: skip
    shared = {**keys, **divided(keys, 2)}
    assert read_allocation("trl", shared, processes=2) == made


@pytest.mark.parametrize(
    "trainer", ["skyrl", "openrlhf", "nemo-rl", "slime", "areal", "open-instruct", "prime-rl"]
)
def test_no_trainer_is_told_another_recipe(trainer: str) -> None:
    """What it is told is what the runs had, or it is not told."""
    plan = Allocation(problems_per_batch=32, rollouts_per_problem=8, steps=9)
    said = recorded_said(trained_of(GSPO))
    known, recipe = ["learning_rate", *said], Recipe(updates_per_batch=16)
    found = trainer_settings(trainer, plan, recipe, known=known, said=said)
    assert not any("sched" in key or "decay-style" in key for key in found.keys)  # a cosine
    two = {"skyrl": ("trainer.policy_mini_batch_size", 4), "openrlhf": ("--train.batch_size", 32),
           "open-instruct": ("--num_mini_batches", 8)}  # fmt: skip
    if trainer in two:
        key, value = two[trainer]
        assert found.keys[key] == value
    else:  # it has no passes over a batch
        assert "updates_per_batch=16" in found.not_set
        assert not any("minibatch" in k or "per-rollout" in k or "global_batch" in k
                       for k in found.keys)  # fmt: skip
    assert read_allocation(trainer, found.keys) == plan


@pytest.mark.heavy
def test_a_rate_that_fell_unsaid_is_left_to_its_owner() -> None:
    runs = [c.replace(recorded={"learning_rate": 2e-6}, rate_left=0.1) for c in planted().curves]
    d = plan_budget(fit_sweep(runs, draws=20), AT).document
    assert d["recipe"]["lr_schedule"] == "falling"
    assert "lr_scheduler_type" not in d["trainer"]["trl"]
    assert "lr_schedule=falling" in d["trainer_not_set"]["trl"]
    assert any("a falling rate over" in line for line in d["assumes"])


def test_what_is_not_plain_is_said_to_be_assumed() -> None:
    runs = [c.replace(steps_K=np.arange(1.0, c.rollouts_K.size + 1)) for c in planted().curves]
    said = {"updates_per_batch": 16.0, "passes_per_batch": 2.0, "lr_schedule": "cosine",
            "staleness": 2.0}  # fmt: skip
    off, schedule, old = assumptions(said, runs, 2425)
    assert off == "16 updates per batch, in 2 passes"
    assert schedule.startswith("cosine rate over 2,425 steps (runs: ")
    assert old == "asynchronous rollouts (staleness 2)"
    plain = {"updates_per_batch": 1.0, "lr_schedule": "constant", "staleness": 0.0}
    assert assumptions(plain, runs, 2425) == []
    assert assumptions({}, runs, 2425) == []


def test_groups_that_teach_are_told_by_n(tmp_path: Path) -> None:
    log = tmp_path / "a.csv"
    log.write_text("step,val-core/math/acc/mean@4\n0,0.3\n9,0.5\n")
    (run,) = read_log(log, settings={"problems_per_batch": 32, "rollouts_per_problem": 4})
    (series,) = run.series
    successes = np.array([8, 8, 7, 4, 0])
    ended = Outcomes(step=9, problem_set=series.problem_set, split=series.split, samples=8,
                     problem_P=tuple("abcde"), successes_P=successes)  # fmt: skip
    run = replace(run, outcomes=(replace(ended, step=1, successes_P=successes * 0), ended),
                  provenance=replace(run.provenance, alike=0.25))  # fmt: skip
    found = groups_of(run, series)
    assert found is not None
    assert found.teach == 0.75
    # 4 of 8 answers: 1 and 1, C(7,4)/C(8,4) = 35/70, 1/70, 0
    assert found.all_right == pytest.approx((1 + 1 + 0.5 + 1 / 70 + 0) / 5)
    assert found.all_wrong == pytest.approx((0 + 0 + 0 + 1 / 70 + 1) / 5)
    rows = [{"problems_per_batch": 32, "rollouts_per_problem": n, "groups": {"teach": share}}
            for n, share in ((8, 0.41), (32, 0.72))]  # fmt: skip
    assert group_lines(rows)[-1].endswith("by n: 8: 41%; 32: 72%.")
    assert group_lines([{**rows[0], "groups": None}]) == []


def test_small_and_large_batches_keep_their_updates() -> None:
    """Only the runs of the choice count where settings differ."""
    runs = [Curve(**c._asdict(), run="r", rollouts_K=np.array([1.0]), score_K=np.array([0.5]),
                  recorded={"updates_per_batch": u, "objective": o})
            for c, u, o in ((SMALL, 1.0, "grpo"), (LARGE, 4.0, "rloo"))]  # fmt: skip
    of = recorded_recipe(runs, Recipe(), LARGE)
    assert (of.recipe.updates_per_batch, of.recipe.objective) == (4, "grpo")
    assert of.said == {"objective": "rloo", "updates_per_batch": 4.0}
