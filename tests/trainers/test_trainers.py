"""Keys of every trainer say the allocation, and reading them back gives it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isocompute.allocation import Allocation
from isocompute.errors import InputError
from isocompute.importers.words.recorded import recorded_of
from isocompute.recipe import Recipe
from isocompute.trainers import (
    TRAINERS,
    Asked,
    Keys,
    key_lines,
    on_processes,
    read_allocation,
    trainer_settings,
    with_comments,
)
from isocompute.trainers.trl import trl_rows

PLAN = Allocation(problems_per_batch=32, rollouts_per_problem=256, steps=488)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(("b_p", "n", "m"), [(32, 256, 488), (1, 2, 1), (96, 12, 1000), (7, 3, 5)])
def test_keys_read_back_as_the_allocation(trainer: str, b_p: int, n: int, m: int) -> None:
    allocation = Allocation(problems_per_batch=b_p, rollouts_per_problem=n, steps=m)
    keys = trainer_settings(trainer, allocation, Recipe()).keys
    assert read_allocation(trainer, keys) == allocation


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_trainer_gets_the_scaled_learning_rate(trainer: str) -> None:
    values = trainer_settings(trainer, PLAN, Recipe()).keys.values()
    assert Recipe().learning_rate_at(8192) in values


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_trainer_says_what_its_batch_counts(trainer: str) -> None:
    units = trainer_settings(trainer, PLAN, Recipe()).units
    assert "prompts" in units or "completions" in units
    assert units.endswith(".")


def test_verl_counts_prompts() -> None:
    keys = trainer_settings("verl", PLAN, Recipe.for_difficulty("easy")).keys
    assert keys["data.train_batch_size"] == 32
    assert keys["actor_rollout_ref.rollout.n"] == 256
    assert keys["trainer.total_training_steps"] == 488
    assert keys["actor_rollout_ref.actor.ppo_mini_batch_size"] == 32
    assert keys["actor_rollout_ref.actor.use_kl_loss"] is True
    assert keys["actor_rollout_ref.actor.entropy_coeff"] == 1e-3
    hard = trainer_settings("verl", PLAN, Recipe.for_difficulty("hard")).keys
    assert hard["actor_rollout_ref.actor.use_kl_loss"] is False


def test_trl_counts_completions() -> None:
    keys = trainer_settings("trl", PLAN, Recipe()).keys
    assert keys["per_device_train_batch_size"] * keys["gradient_accumulation_steps"] == 8192
    assert keys["num_generations"] == 256
    assert keys["max_steps"] == 488
    four = {**keys, "gradient_accumulation_steps": keys["gradient_accumulation_steps"] // 4}
    assert read_allocation("trl", four, processes=4) == PLAN


def test_cispo_and_the_missing_std_are_said_where_there_is_a_word() -> None:
    recipe = Recipe(objective="cispo", advantage_std="none")
    assert trainer_settings("trl", PLAN, recipe).keys["loss_type"] == "cispo"
    assert trainer_settings("trl", PLAN, recipe).keys["scale_rewards"] == "none"
    verl = trainer_settings("verl", PLAN, recipe).keys
    assert verl["actor_rollout_ref.actor.policy_loss.loss_mode"] == "cispo"
    assert verl["algorithm.norm_adv_by_std_in_grpo"] is False
    ppo = trainer_settings("verl", PLAN, Recipe(objective="ppo")).keys
    assert ppo["algorithm.adv_estimator"] == "gae"


# Of every word of a recipe, a value that a trainer does not have by itself.
OTHER = Recipe(
    objective="cispo", advantage_std="none", aggregation="seq-mean-token-mean", kl_coef=0.5,
    entropy_coef=0.25, zero_variance_filter="loss", learning_rate=3e-5, warmup_steps=7,
    weight_decay=0.125, max_grad_norm=0.75, clip_low=0.15, clip_high=0.35, temperature=0.9,
    top_p=0.95, updates_per_batch=4, update_split="epoch", gradient_rollouts=8, importance_cap=3.0,
    importance_level="sequence",
)


def _differ(trainer: str, one: Recipe, other: Recipe) -> bool:
    a, b = (trainer_settings(trainer, PLAN, r, seed=1, response_tokens=9) for r in (one, other))
    return (a.keys, a.not_set) != (b.keys, b.not_set)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_no_word_of_a_recipe_is_dropped(trainer: str) -> None:
    """Whatever changes in a recipe changes a key, or what is listed as not set."""
    silent = {"base_batch_size", "learning_rate_scaling", "allow_entropy_without_kl"}  # in the rate
    for name, value in OTHER.to_dict().items():
        if name in silent or value == getattr(Recipe(), name):
            continue
        same = {name: getattr(Recipe(), name), "allow_entropy_without_kl": True}
        assert _differ(trainer, OTHER, OTHER.replace(**same)), name
    ppo = Recipe(objective="ppo")
    for name, value in (("gae_gamma", 0.9), ("gae_lambda", 0.9), ("value_learning_rate", 1e-4),
                        ("value_clip", 0.1)):  # fmt: skip
        assert _differ(trainer, ppo, ppo.replace(**{name: value})), name
    assert "seed" in trainer_settings(trainer, PLAN, Recipe()).not_set


def test_what_a_trainer_cannot_do_is_listed() -> None:
    trl = trainer_settings("trl", PLAN, OTHER, seed=1, response_tokens=9)
    assert trl.not_set == (
        "aggregation=seq-mean-token-mean", "zero_variance_filter=loss", "updates_per_batch=4",
        "gradient_rollouts=8", "update_split=epoch",
    )  # fmt: skip
    verl = trainer_settings("verl", PLAN, OTHER, seed=1, response_tokens=9)
    assert verl.not_set == ("zero_variance_filter=loss", "gradient_rollouts=8")
    assert trainer_settings("verl", PLAN, Recipe(advantage_std="population")).not_set == (
        "advantage_std=population", "seed", "response_tokens")  # fmt: skip


def test_importance_sampling_in_each_trainers_words() -> None:
    recipe = Recipe.for_difficulty("hard")
    trl = trainer_settings("trl", PLAN, recipe).keys
    assert trl["vllm_importance_sampling_mode"] == "token_truncate"
    assert trl["vllm_importance_sampling_clip_max"] == 2.0
    verl = trainer_settings("verl", PLAN, recipe).keys
    assert verl["algorithm.rollout_correction.rollout_is"] == "token"
    assert verl["algorithm.rollout_correction.rollout_is_threshold"] == 2.0
    assert verl["actor_rollout_ref.rollout.calculate_log_probs"] is True
    plain = trainer_settings("verl", PLAN, Recipe()).keys
    assert "algorithm.rollout_correction.rollout_is" not in plain


def test_trls_processes_share_the_batch() -> None:
    asked = Asked(allocation=PLAN, recipe=Recipe())
    keys = {row.key: row.value for row in trl_rows(asked, micro_batch=512, processes=4)}
    assert read_allocation("trl", keys, processes=4) == PLAN
    with pytest.raises(InputError, match="multiple of the processes, but got 8192 rollouts for 3"):
        list(trl_rows(asked, processes=3))


@pytest.mark.parametrize(
    ("trainer", "epochs"),
    [("verl", "trainer.total_epochs"), ("skyrl", "trainer.epochs"),
     ("nemo-rl", "grpo.max_num_epochs"), ("areal", "total_train_epochs")],
)  # fmt: skip
def test_the_steps_of_a_plan_end_a_run_not_a_pass_over_its_problems(
    trainer: str, epochs: str
) -> None:
    """Their own default is 1 pass (verl 30), whatever the steps: a set of 640 problems is 20."""
    assert trainer_settings(trainer, PLAN, Recipe()).keys[epochs] >= PLAN.steps


def test_areal_warms_up_over_a_share_of_all_epochs_which_is_put_to_0() -> None:
    """AReaL's default is 0.001 of them: of a million passes that is 1,000 passes."""
    settings = trainer_settings("areal", PLAN, Recipe(warmup_steps=10))
    share = settings.keys["actor.optimizer.warmup_steps_proportion"]
    assert int(share * settings.keys["total_train_epochs"] * 20) == 0
    assert "warmup_steps=10" in settings.not_set


def test_open_instruct_is_kept_as_close_to_on_policy_as_it_can_be() -> None:
    """Its own default trains on rollouts of up to 8 updates before, and it refuses 0."""
    def of(said: dict[str, Any] | None) -> Any:
        known = None if said is None else said.keys()
        return trainer_settings("open-instruct", PLAN, Recipe(), known=known, said=said)

    assert of(None).keys["--async_steps"] == 1
    assert of({}).keys["--async_steps"] == 1
    assert of({"staleness": 4}).keys["--async_steps"] == 4
    assert "staleness=4" not in of({"staleness": 4}).not_set
    assert "asynchronous" in of(None).units


def test_open_instruct_filters_groups_without_variance_only_where_the_recipe_does() -> None:
    """Its own default leaves them out of the batch."""
    for word, value in (("none", False), ("loss", True)):
        settings = trainer_settings("open-instruct", PLAN, Recipe(zero_variance_filter=word))
        assert settings.keys["--filter_zero_std_samples"] is value
        assert not [one for one in settings.not_set if one.startswith("zero_variance_filter")]
    only_in_terms = Recipe(zero_variance_filter="regularizers", kl_coef=0.1)
    settings = trainer_settings("open-instruct", PLAN, only_in_terms)
    assert "--filter_zero_std_samples" not in settings.keys
    assert "zero_variance_filter=regularizers" in settings.not_set


def test_prime_rl_leaves_out_groups_without_variance_by_itself() -> None:
    """The key that says otherwise changed its name within 2026: it is listed, not written."""
    def left(word: str) -> tuple[str, ...]:
        return trainer_settings("prime-rl", PLAN, Recipe(zero_variance_filter=word)).not_set

    assert "zero_variance_filter=none" in left("none")
    assert not [word for word in left("loss") if word.startswith("zero_variance_filter")]
    assert "zero_variance_filter=none" not in trainer_settings("skyrl", PLAN, Recipe()).not_set


def test_slime_has_no_kl_options_without_kl() -> None:
    assert "--use-kl-loss" not in trainer_settings("slime", PLAN, Recipe()).keys
    assert "--use-kl-loss" in trainer_settings("slime", PLAN, Recipe(kl_coef=0.1)).keys


@pytest.mark.parametrize(
    ("trainer", "keys"),
    [("slime", {"--use-kl-loss": "", "--kl-loss-coef": 0.1, "--kl-loss-type": "low_var_kl"}),
     ("openrlhf", {"--algo.kl.use_loss": "", "--algo.kl.init_coef": 0.1,
                   "--algo.kl.estimator": "k3"})],
)  # fmt: skip
def test_kl_is_a_term_of_the_loss_whose_gradient_is_not_0(
    trainer: str, keys: dict[str, Any]
) -> None:
    """slime's own estimator is k1; OpenRLHF's own KL is taken from the reward, not a loss."""
    settings = trainer_settings(trainer, PLAN, Recipe(kl_coef=0.1))
    assert {key: settings.keys.get(key) for key in keys} == keys
    assert not [word for word in settings.not_set if word.startswith("kl_")]
    without = trainer_settings(trainer, PLAN, Recipe()).keys
    assert not {"--algo.kl.use_loss", "--algo.kl.estimator", "--kl-loss-type"} & without.keys()


def test_lines_can_be_pasted() -> None:
    assert key_lines({"a.b": True, "--lr": 2.8e-6, "--use-kl-loss": ""}) == [
        "a.b=true",
        "--lr 2.8e-06",
        "--use-kl-loss",
    ]


def document(b_p: int = 32, n: int = 256, m: int = 488) -> dict[str, Any]:
    """What `plan --json` has of trainers."""
    plan = Allocation(problems_per_batch=b_p, rollouts_per_problem=n, steps=m)
    said = {name: trainer_settings(name, plan, Recipe()) for name in TRAINERS}
    return {
        "batch_size": plan.batch_size,
        "trainer": {name: dict(one.keys) for name, one in said.items()},
        "trainer_units": {name: one.units for name, one in said.items()},
    }


def test_what_is_pasted_says_for_how_many_processes_it_is() -> None:
    whole = document()
    said = {name: key_lines(keys) for name, keys in with_comments(whole)["trainer"].items()}
    assert said["trl"][:3] == [
        "# for one process: on N processes divide gradient_accumulation_steps by N",
        "per_device_train_batch_size=16", "gradient_accumulation_steps=512",
    ]  # fmt: skip
    fresh = document()
    fresh["trainer"]["trl"]["steps_per_generation"] = 2048
    first = key_lines(with_comments(fresh)["trainer"]["trl"])[0]
    assert first.endswith("divide gradient_accumulation_steps and steps_per_generation by N")
    assert said["openrlhf"][0] == (
        "# the data must hold 15616 prompts (B_p x M): repeat the file where it does not"
    )
    commented = {name for name, lines in said.items() if lines[0].startswith("#")}
    assert commented == {"trl", "openrlhf"}
    assert with_comments(whole)["trainer"] == whole["trainer"]  # as a mapping: the keys alone
    assert with_comments({"version": 2}) == {"version": 2, "trainer": {}}
    keys = with_comments(whole)["trainer"]["trl"]
    assert str(keys) == "\n".join(said["trl"])
    assert "for one process" in keys._repr_html_()
    assert isinstance(keys, Keys)


@pytest.mark.parametrize("processes", [1, 2, 8, 8192])
def test_a_plan_for_several_processes_has_the_batch_of_one(processes: int) -> None:
    divided = on_processes(document(), processes, "trl")
    keys = divided["trainer"]["trl"]
    assert read_allocation("trl", keys, processes=processes) == PLAN
    assert keys.items() >= {"num_generations": 256, "max_steps": 488}.items()
    first = key_lines(with_comments(divided)["trainer"]["trl"])[0]
    if processes > 1:
        micro, steps = keys["per_device_train_batch_size"], keys["gradient_accumulation_steps"]
        assert first == f"# for {processes} processes: {processes} x {micro} x {steps} " \
                        "completions per batch"  # fmt: skip
        assert f"for each of {processes} processes" in divided["trainer_units"]["trl"]
        assert "one process" not in divided["trainer_units"]["trl"]
    others = {name: keys for name, keys in document()["trainer"].items() if name != "trl"}
    assert {name: divided["trainer"][name] for name in others} == others


def test_processes_are_trls_and_share_the_batch_evenly() -> None:
    assert on_processes(document(), None, None) == document()
    assert on_processes({"trainer": {}}, 2, "trl") == {"trainer": {}}  # there is no plan
    for trainer, got in (("verl", "--for verl"), (None, "no --for")):
        with pytest.raises(InputError, match=f"--processes belongs to --for trl, .* got {got};"):
            on_processes(document(), 2, trainer)
    with pytest.raises(InputError, match=r"8192 completions .* --processes 3; give a divisor"):
        on_processes(document(), 3, "trl")


def test_trl_is_told_of_a_constant_rate() -> None:
    """transformers' own schedule falls linearly to 0."""
    warm, cold = (trainer_settings("trl", PLAN, Recipe(warmup_steps=w)) for w in (10, 0))
    assert warm.keys["lr_scheduler_type"] == "constant_with_warmup"
    assert cold.keys["lr_scheduler_type"] == "constant"
    assert "gives the first update a rate of 0" in warm.units
    one = trainer_settings("trl", replace(PLAN, rollouts_per_problem=1), Recipe()).units
    assert one.endswith("GRPOTrainer refuses n = 1: its advantage needs a group of 2 or more.")
    assert "refuses n = 1" not in warm.units
    assert "first update" not in cold.units
    own = trainer_settings("trl", PLAN, Recipe(), known=["learning_rate"])
    assert own.keys["lr_scheduler_type"] == "constant_with_warmup"  # whose warm-up is the user's
    assert "warmup_steps" not in own.keys
    assert "first update" not in own.units


def test_an_unknown_trainer_is_refused() -> None:
    with pytest.raises(InputError, match="trainer must be one of verl, trl"):
        trainer_settings("nobody", PLAN, Recipe())
    with pytest.raises(InputError, match="but got 'nobody'"):
        read_allocation("nobody", {})


def test_a_missing_key_is_named() -> None:
    with pytest.raises(InputError, match=r"verl needs the key `actor_rollout_ref.rollout.n`"):
        read_allocation("verl", {"data.train_batch_size": 32})


def test_a_fraction_is_refused() -> None:
    keys = {**trainer_settings("verl", PLAN, Recipe()).keys, "data.train_batch_size": 32.5}
    with pytest.raises(InputError, match=r"must be a whole number, but got 32\.5"):
        read_allocation("verl", keys)
    for value in ("many", None):
        with pytest.raises(InputError, match=f"must be a whole number, but got {value!r}"):
            read_allocation("verl", keys | {"data.train_batch_size": value})


def test_a_batch_of_completions_must_hold_whole_groups() -> None:
    keys = {**trainer_settings("prime-rl", PLAN, Recipe()).keys, "orchestrator.batch_size": 100}
    with pytest.raises(InputError, match="multiple of its group, but got 100 and 256"):
        read_allocation("prime-rl", keys)


ROOT = Path(__file__).resolve().parents[2]
TRL_PYTHON = os.environ.get("ISOCOMPUTE_TRL_PYTHON", sys.executable)
VERL_PYTHON = os.environ.get("ISOCOMPUTE_VERL_PYTHON", str(ROOT / ".venv-verl/bin/python"))
NO_TRL = importlib.util.find_spec("trl") is None and "ISOCOMPUTE_TRL_PYTHON" not in os.environ

TRL_SCRIPT = """
import json, sys
from trl import GRPOConfig
for keys in json.load(sys.stdin):
    config = GRPOConfig(output_dir="out", use_cpu=True, bf16=False, report_to="none", **keys)
    assert config.steps_per_generation == config.gradient_accumulation_steps, "off-policy"
    assert config.lr_scheduler_type == keys["lr_scheduler_type"]
    print(config.generation_batch_size // config.num_generations, config.num_generations,
          config.max_steps)
"""

VERL_SCRIPT = """
import json, os, sys
import verl
from hydra import compose, initialize_config_dir
folder = os.path.join(os.path.dirname(verl.__file__), "trainer/config")
for lines in json.load(sys.stdin):
    with initialize_config_dir(folder, version_base=None):
        config = compose("ppo_trainer", overrides=lines)
    print(config.data.train_batch_size, config.actor_rollout_ref.rollout.n,
          config.trainer.total_training_steps)
"""

RECIPES = (
    Recipe.for_difficulty("easy"),
    Recipe.for_difficulty("hard"),
    Recipe(objective="cispo", aggregation="seq-mean-token-mean", advantage_std="none"),
    Recipe(warmup_steps=0),
)


def accepted(python: str, script: str, payload: list[object], folder: Path) -> list[list[int]]:
    done = subprocess.run(
        [python, "-c", script],
        input=json.dumps(payload),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


@pytest.mark.trainers
@pytest.mark.skipif(NO_TRL, reason="no Python with trl")
def test_trl_itself_accepts_the_keys(tmp_path: Path) -> None:
    keys: list[object] = [dict(trainer_settings("trl", PLAN, r).keys) for r in RECIPES]
    assert accepted(TRL_PYTHON, TRL_SCRIPT, keys, tmp_path) == [[32, 256, 488]] * len(RECIPES)


@pytest.mark.trainers
@pytest.mark.skipif(not Path(VERL_PYTHON).is_file(), reason="no Python with verl")
def test_verl_itself_accepts_the_keys(tmp_path: Path) -> None:
    lines: list[object] = [key_lines(trainer_settings("verl", PLAN, r).keys) for r in RECIPES]
    assert accepted(VERL_PYTHON, VERL_SCRIPT, lines, tmp_path) == [[32, 256, 488]] * len(RECIPES)


def test_of_a_recipe_that_is_known_in_part_only_that_part_is_written() -> None:
    whole = trainer_settings("verl", PLAN, Recipe()).keys
    part = trainer_settings("verl", PLAN, Recipe(), known=["learning_rate"])
    lr, mini = (f"actor_rollout_ref.actor.{name}" for name in ("optim.lr", "ppo_mini_batch_size"))
    assert {lr, mini, "data.train_batch_size", "trainer.total_training_steps"} <= set(part.keys)
    assert not any("kl_" in key or "entropy" in key or "weight_decay" in key for key in part.keys)
    assert part.keys.items() < whole.items()
    assert part.not_set == trainer_settings("verl", PLAN, Recipe()).not_set


def test_areals_kl_is_part_of_the_reward() -> None:
    settings = trainer_settings("areal", PLAN, Recipe(kl_coef=1e-3))
    assert settings.keys["actor.kl_ctl"] == 0
    assert "kl_coef=0.001" in settings.not_set
    said = recorded_of({"actor.kl_ctl": 0.1, "gconfig.n_samples": 8})
    assert said == {"kl_coef": "0", "entropy_coef": "0", "kl_in_reward": "0.1"}
    its = trainer_settings("areal", PLAN, Recipe(), known=[*said], said={"kl_in_reward": 0.1})
    assert its.keys["actor.kl_ctl"] == 0.1


def test_an_entropy_bonus_of_trl_stands_beside_a_mean_over_tokens_alone() -> None:
    """As `engines.trl.options.check_spec` has it of a study."""
    means = {"token-mean": True, "seq-mean-token-mean": False}
    for mean, written in means.items():
        recipe = Recipe(kl_coef=1e-3, entropy_coef=1e-3, aggregation=mean)
        settings = trainer_settings("trl", PLAN, recipe)
        assert ("entropy_coef" in settings.keys) is written
        assert ("entropy_coef=0.001" in settings.not_set) is not written
