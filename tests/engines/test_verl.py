"""The verl engine: what it renders, refuses and reads; against verl itself under `trainers`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import isocompute
from isocompute.allocation import Allocation
from isocompute.cli.tables import study_lines
from isocompute.engines import evaluations_drawn
from isocompute.engines.base import StopRequested
from isocompute.engines.verl import VerlEngine, VerlOptions, override_lines, render_keys
from isocompute.engines.verl.checkpoints import Checkpoints
from isocompute.engines.verl.engine import _Attempt
from isocompute.engines.verl.follow import Follower
from isocompute.engines.verl.installed import check_installed
from isocompute.engines.verl.leftovers import Leftovers
from isocompute.engines.verl.options import check_spec
from isocompute.engines.verl.render import hydra_text, validation_interval, write_files
from isocompute.errors import InputError, RunError
from isocompute.problems import Problem, ProblemSet
from isocompute.recipe import Recipe
from isocompute.runner import default_workers, open_study
from isocompute.study import RunSpec, Study, load_study
from isocompute.study.cost import study_cost
from isocompute.trainers import trainer_settings
from sinks import ListSink

ROOT = Path(__file__).parents[2]
HELPERS = ROOT / "tests" / "helpers"
VERL_PYTHON = os.environ.get("ISOCOMPUTE_VERL_PYTHON", str(ROOT / ".venv-verl/bin/python"))
needs_verl = pytest.mark.skipif(not Path(VERL_PYTHON).is_file(), reason="no Python with verl")


def problems(name: str, size: int, verifier: str = "integer") -> ProblemSet:
    return ProblemSet(name=name, verifier=verifier, problems=[
        Problem(id=f"{name}-{i}", prompt=f"{i} + 1 = ?", answer=str(i + 1)) for i in range(size)])


def make_spec(
    b_p: int = 4, n: int = 2, steps: int = 8, *, recipe: Recipe | None = None, train: int = 16,
    verifier: str = "integer", seed: int = 0, **options: Any,
) -> RunSpec:
    return RunSpec(
        engine="verl", allocation=Allocation(problems_per_batch=b_p, rollouts_per_problem=n,
                                             steps=steps),
        recipe=recipe or Recipe(), train=problems("train", train, verifier),
        validation={"val": problems("val", 3, verifier), "hard": problems("hard", 2, verifier)},
        seed=seed, evaluations_per_octave=1, first_evaluation=16,
        engine_options={"model": "org/model", "gpus_per_node": 2, **options},
    )


def keys_of(spec: RunSpec, folder: Path = Path("/runs/x"), **more: Any) -> dict[str, Any]:
    return render_keys(spec, VerlOptions.of(spec), folder, **more)


def test_the_allocation_and_recipe_reach_verls_keys() -> None:
    recipe = Recipe(objective="cispo", kl_coef=0.002, entropy_coef=0.003, temperature=0.7,
                    top_p=0.9, importance_cap=2.5, clip_low=0.1, clip_high=0.3, warmup_steps=7,
                    weight_decay=0.01, max_grad_norm=0.5, advantage_std="none",
                    aggregation="seq-mean-token-sum", learning_rate=3e-6)
    keys = keys_of(make_spec(8, 16, 40, recipe=recipe, seed=5))
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    expected = {
        "data.train_batch_size": 8, f"{actor}.ppo_mini_batch_size": 8, f"{rollout}.n": 16,
        "trainer.total_training_steps": 40, f"{actor}.ppo_epochs": 1,
        f"{actor}.policy_loss.loss_mode": "cispo", f"{actor}.use_kl_loss": True,
        f"{actor}.kl_loss_coef": 0.002, f"{actor}.kl_loss_type": "low_var_kl",
        f"{actor}.entropy_coeff": 0.003, f"{actor}.loss_agg_mode": "seq-mean-token-sum",
        f"{actor}.clip_ratio_low": 0.1, f"{actor}.clip_ratio_high": 0.3,
        f"{actor}.clip_ratio_c": 1e9,  # no second bound where the advantage is negative
        f"{actor}.grad_clip": 0.5,
        f"{actor}.optim.lr": 3e-6 * (128 / 1024) ** 0.5, f"{actor}.optim.lr_warmup_steps": 7,
        f"{actor}.optim.weight_decay": 0.01, f"{actor}.optim.zero_indexed_step": False,
        f"{actor}.optim.lr_scheduler_type": "cosine", f"{actor}.optim.min_lr_ratio": 1.0,
        "trainer.max_actor_ckpt_to_keep": None,  # the study says which of them may go
        "algorithm.norm_adv_by_std_in_grpo": False, "algorithm.adv_estimator": "grpo",
        f"{rollout}.temperature": 0.7, f"{rollout}.top_p": 0.9,
        f"{rollout}.val_kwargs.temperature": 0.7, f"{rollout}.val_kwargs.top_p": 0.9,
        f"{rollout}.val_kwargs.n": 4, f"{rollout}.val_kwargs.do_sample": True,
        f"{rollout}.calculate_log_probs": True,
        "algorithm.rollout_correction.rollout_is": "token",
        "algorithm.rollout_correction.rollout_is_threshold": 2.5,
        "data.seed": 5, f"{rollout}.seed": 5, f"{actor}.data_loader_seed": 5,
        "trainer.val_before_train": True, "trainer.resume_mode": "disable",
    }
    assert {key: keys[key] for key in expected} == expected
    plain = keys_of(make_spec())
    assert plain[f"{actor}.use_kl_loss"] is False
    assert plain[f"{actor}.policy_loss.loss_mode"] == "vanilla"
    assert "critic.model.path" not in plain
    ppo = keys_of(make_spec(recipe=Recipe(
        objective="ppo", value_learning_rate=2e-5, learning_rate_scaling="constant",
        gae_gamma=0.99, gae_lambda=0.95, value_clip=0.2, max_grad_norm=0.5)))
    expected = {"algorithm.adv_estimator": "gae", "critic.optim.lr": 2e-5,
                # the recipe's, as in the embedded engine; verl's own are 0.01 and 1
                "critic.optim.weight_decay": 0.0, "critic.grad_clip": 0.5,
                "critic.optim.clip_grad": 0.5,
                "critic.optim.lr_warmup_steps": 10, "critic.optim.zero_indexed_step": False,
                "trainer.max_critic_ckpt_to_keep": None,
                "algorithm.gamma": 0.99, "algorithm.lam": 0.95, "critic.cliprange_value": 0.2}
    assert {key: ppo[key] for key in expected} == expected
    sequence = keys_of(make_spec(recipe=Recipe(importance_cap=2.0, importance_level="sequence")))
    assert sequence["algorithm.rollout_correction.rollout_is"] == "sequence"


def test_several_updates_per_batch_are_mini_batches_or_epochs() -> None:
    mini, epochs = ("actor_rollout_ref.actor.ppo_mini_batch_size",
                    "actor_rollout_ref.actor.ppo_epochs")
    for objective in ("grpo", "ppo"):
        for split, expected in (("mini-batch", (4, 1)), ("epoch", (8, 2))):
            recipe = Recipe(objective=objective, updates_per_batch=2, update_split=split)
            spec = make_spec(8, 4, recipe=recipe)
            VerlEngine().check(spec)
            keys = keys_of(spec)
            assert (keys[mini], keys[epochs]) == expected
            if objective == "ppo":
                assert (keys["critic.ppo_mini_batch_size"], keys["critic.ppo_epochs"]) == expected
            planned = trainer_settings("verl", spec.allocation, recipe).keys
            assert (planned[mini], planned[epochs]) == expected
            # balanced, verl sorts the responses of a batch by length before it cuts it
            balanced = None if split == "epoch" else False
            for rendered in (keys, planned):
                assert rendered.get("trainer.balance_batch") is balanced


@pytest.mark.parametrize("override", [
    {"trainer.balance_batch": True}, {"++trainer.balance_batch": None},
])
def test_mini_batches_of_problems_are_not_balanced_by_length(override: dict[str, Any]) -> None:
    """Of four mini-batches the outer two would hold the short responses of all problems."""
    VerlEngine().check(make_spec(8, 4, overrides=override))
    mini = Recipe(updates_per_batch=2)
    with pytest.raises(InputError, match="balance_batch` must be false with mini-batches"):
        VerlEngine().check(make_spec(8, 4, recipe=mini, overrides=override))
    harmless = {"trainer.balance_batch": False}
    keys = keys_of(make_spec(8, 4, recipe=mini, overrides=harmless))
    assert keys["trainer.balance_batch"] is False


def test_plan_and_engine_speak_the_same_words() -> None:
    spec = make_spec(recipe=Recipe.for_difficulty("easy"))
    keys = keys_of(spec)
    planned = trainer_settings("verl", spec.allocation, spec.recipe).keys
    assert {key: keys.get(key) for key in planned} == dict(planned)


def test_keys_move_with_the_release() -> None:
    cap = Recipe(importance_cap=2.0, warmup_steps=0)
    by_version = {v: keys_of(make_spec(recipe=cap, version=v)) for v in
                  ("0.6.1", "0.7.0", "0.8.0", "0.9.1")}
    root, nested = "custom_reward_function.path", "reward.custom_reward_function.path"
    assert [root in k for k in by_version.values()] == [True, True, False, False]
    assert [nested in k for k in by_version.values()] == [False, False, True, True]
    old, new = "algorithm.rollout_is_threshold", "algorithm.rollout_correction.rollout_is_threshold"
    assert [old in k for k in by_version.values()] == [True, False, False, False]
    assert [new in k for k in by_version.values()] == [False, True, True, True]
    assert "data.seed" not in by_version["0.6.1"]
    schedule = "actor_rollout_ref.actor.optim.lr_scheduler_type"
    assert [k[schedule] for k in by_version.values()] == ["constant"] * 2 + ["cosine"] * 2
    manager = "reward.reward_manager.module.path"
    assert [manager in k for k in by_version.values()] == [False, False, False, True]


def test_every_attempt_has_logs_of_its_own_and_resumes_where_it_is_told() -> None:  # row 18
    first = keys_of(make_spec())
    second = keys_of(make_spec(), attempt=1, resume_from="/c/global_step_4")
    for key in ("trainer.validation_data_dir", "trainer.rollout_data_dir"):
        assert first[key] != second[key]
    assert (second["trainer.resume_mode"], second["trainer.resume_from_path"]) == (
        "resume_path", "/c/global_step_4")
    assert second["trainer.val_before_train"] is False


@pytest.mark.parametrize(("changes", "message"), [
    ({"recipe": Recipe(advantage_std="population")}, "`advantage_std` must be 'sample' or 'none'"),
    ({"recipe": Recipe(zero_variance_filter="loss")}, "`zero_variance_filter` must be 'none'"),
    ({"recipe": Recipe(gradient_rollouts=4)}, "`gradient_rollouts` must be None"),
    ({"b_p": 4, "recipe": Recipe(updates_per_batch=3)},
     "must be a multiple of updates_per_batch for mini-batches, but got 4 and 3"),
    ({"b_p": 2, "n": 3, "recipe": Recipe(updates_per_batch=2)},
     "must be a multiple of the GPUs, but got 2 / 2 \\* 3 on 2 GPUs"),
    ({"recipe": Recipe(objective="ppo", advantage_std="none")}, "which it cannot with ppo"),
    ({"recipe": Recipe(objective="cispo"), "version": "0.6.0"}, "needs verl >= 0.7"),
    ({"n": 1}, "`rollouts_per_problem >= 2` must hold"),
    ({"b_p": 3, "n": 3}, "must be a multiple of the GPUs, but got 3 \\* 3 = 9 on 2 .*; take 1, or"),
    ({"b_p": 32}, "must hold at least B_p problems, but got 16 for B_p=32"),
    ({"version": "0.5.0"}, "engine_options.version must be between 0.6 and 0.9"),
    ({"version": "1.0"}, "engine_options.version must be between"),
    ({"nodes": 0}, "engine_options.nodes must be an integer >= 1"),
    ({"model": ""}, "engine_options.model must name"),
    ({"gpu": 1}, "must be among model, python"),
    ({"rollout_engine": "hf"}, "engine_options.rollout_engine must be vllm or sglang"),
    ({"tensor_parallel": 3}, "must be a divisor of 2 GPUs"),
    ({"gpu_memory_utilization": 1.5}, "must be between 0 and 1"),
    ({"validation_share": 0}, "engine_options.validation_share must be > 0"),
    ({"poll_s": 0}, "engine_options.poll_s must be > 0"),
    ({"max_tokens_per_gpu": 100}, "must be at least max_prompt_tokens"),
    ({"version": "0.7.0"}, "`warmup_steps` must be 0 with verl < 0.8"),
    ({"environment": {"A B": "c"}}, "engine_options.environment must be names with texts"),
    ({"environment": {"A": 1}}, "engine_options.environment must be names with texts"),
    ({"overrides": {"trainer.project_name": "a\nb"}}, "a Hydra value must hold no"),
    ({"model": "${oc.env:HOME}"}, "a Hydra value must hold no"),
    ({"verifier": "none.py:f"}, "with a file that exists"),
])
def test_what_verl_cannot_do_is_refused_first(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VerlEngine().check(make_spec(**changes))


def test_options_change_what_is_rendered() -> None:
    spec = make_spec(nodes=2, max_prompt_tokens=10, max_response_tokens=20, tensor_parallel=2,
                     rollout_engine="sglang", gpu_memory_utilization=0.5, folder="there",
                     overrides={"trainer.balance_batch": False})
    keys = keys_of(spec)
    assert (keys["trainer.nnodes"], keys["trainer.n_gpus_per_node"]) == (2, 2)
    assert keys["data.max_prompt_length"] == 10
    assert keys["data.max_response_length"] == 20
    assert keys["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == 60
    assert keys["actor_rollout_ref.rollout.name"] == "sglang"
    assert keys["actor_rollout_ref.rollout.tensor_model_parallel_size"] == 2
    assert keys["actor_rollout_ref.rollout.gpu_memory_utilization"] == 0.5
    assert keys["trainer.balance_batch"] is False
    more = make_spec(max_tokens_per_gpu=30_000)
    assert keys_of(more)["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == 30_000


# Every one of these changes B_p, n, M, the schedule, how often or how late a batch is used, the
# reward or the problems in verl 0.9.1, or could not be told from one that does.
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
HARMFUL: list[dict[str, Any]] = [
    {"data.train_batch_size": 9}, {"+data.train_batch_size": 9}, {"++data.train_batch_size": 9},
    {"data": {"train_batch_size": 9}}, {"++data": {"train_batch_size": 9}},
    {"~data.train_batch_size": None}, {" data.train_batch_size": 9}, {"data.gen_batch_size": 2},
    {"data.train_files": ["other.parquet"]}, {"data.train_max_samples": 2}, {"data": "megatron"},
    {"data.sampler.class_path": "mine.py"}, {"data.custom_cls.path": "mine.py"},
    {"++data.filter_overlong_prompts": True}, {"data.reward_fn_key": "ability"},
    {f"{ROLLOUT}.n": 3}, {f"++{ROLLOUT}.n": 3}, {ROLLOUT: {"n": 3}},
    {"actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 9}}}},
    {f"{ROLLOUT}.over_sample_rate": 0.5}, {f"{ROLLOUT}.ignore_eos": True},
    {f"{ROLLOUT}.skip.enable": True}, {f"{ROLLOUT}.multi_turn.enable": True},
    {f"{ROLLOUT}.agent.default_agent_loop": "mine"}, {f"{ROLLOUT}.quantization": "fp8"},
    {f"{ROLLOUT}.engine_kwargs": {"vllm": {"seed": 1}}},
    {f"+{ROLLOUT}.engine_kwargs.vllm.override_generation_config": {"temperature": 0.1}},
    {f"{ACTOR}.ppo_epochs": 2}, {f"++{ACTOR}.ppo_mini_batch_size": 1}, {f"{ACTOR}.strategy": "x"},
    {f"{ACTOR}.optim.lr_scheduler_type": "constant"}, {ACTOR: {"optim": {"min_lr_ratio": 0.0}}},
    {"trainer.total_training_steps": 1}, {"trainer.total_epochs": 1}, {"trainer.val_only": True},
    {"trainer.v1.trainer_mode": "colocate_async"}, {"trainer.use_v1": False},
    {"trainer.v1.sampler.sync_refill_failed_groups": True}, {"trainer.resume_mode": "auto"},
    {"trainer.max_actor_ckpt_to_keep": 1}, {"trainer.logger": ["console"]},
    {"algorithm.filter_groups": {"enable": True}}, {"++algorithm.use_kl_in_reward": True},
    {"algorithm.rollout_correction.rollout_rs": "token"}, {"critic.ppo_epochs": 4},
    {"reward.reward_manager.name": "dapo"}, {"custom_reward_function.path": "mine.py"},
    {"reward": {"custom_reward_function": {"name": "other"}}}, {"reward_model.enable": True},
    {"actor_rollout_ref.model.path": "other"}, {"actor_rollout_ref.hybrid_engine": False},
    {"model_engine": "megatron"}, {"actor@actor_rollout_ref.actor": "megatron_actor"},
    {"hydra.searchpath": "[file://x]"}, {"hydra/launcher": "joblib"}, {"--config-name": "other"},
    {"trainer.project_name=x trainer.total_epochs": 1}, {"ray_kwargs": {"a:1,b": 2}},
    {"distillation.enabled": True}, {"transfer_queue.enable": False},
    # below sections that are harmless otherwise
    {f"{ROLLOUT}.max_model_len": 1025}, {ROLLOUT: {"max_model_len": 9215}},  # cuts responses short
    {f"{ROLLOUT}.max_model_len": None},
    {f"+{ROLLOUT}.engine_kwargs.vllm.override-generation-config": {"temperature": 0.1}},
    {f"{ROLLOUT}.engine_kwargs": {"vllm": {"hf-overrides": {"num_hidden_layers": 1}}}},
    {f"+{ROLLOUT}.engine_kwargs.vllm.max_model_len": 8}, {f"+{ROLLOUT}.engine_kwargs.x.seed": 1},
    {f"{ROLLOUT}.checkpoint_engine.custom_backend_module": "mine"},
    {f"{ACTOR}.fsdp_config.forward_only": True}, {f"{ACTOR}.fsdp_config": {"forward_only": True}},
    {f"++{ACTOR}.fsdp_config.qat.enable": True}, {f"{ACTOR}.fsdp_config._target_": "mine.Config"},
    {f"{ACTOR}.profiler._target_": "mine.Config"}, {"critic.fsdp.seed": 1},
    {"+actor_rollout_ref.model.override_config.num_hidden_layers": 1},
    {"actor_rollout_ref.model.override_config": {"attention_dropout": 0.5}},
    {"+data.apply_chat_template_kwargs.max_length": 2},
    {"data.apply_chat_template_kwargs": {"chat_template": "x"}},
    {"+ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH": "mine"},
    {"ray_kwargs": {"ray_init": {"runtime_env": {"py_modules": ["mine"]}}}}, {9: 9},
]  # fmt: skip
HARMLESS: list[dict[str, Any]] = [
    {"trainer.balance_batch": False}, {"trainer.log_val_generations": 5},
    {"trainer.logger": ["console", "file", "wandb"]}, {"trainer.project_name": "mine"},
    {"++trainer.experiment_name": "x"}, {"data.dataloader_num_workers": 2},
    {"+data.apply_chat_template_kwargs.enable_thinking": False},
    {f"{ACTOR}.fsdp_config": {"param_offload": True, "optimizer_offload": True}},
    {f"++{ACTOR}.fsdp_config.model_dtype": "bf16"}, {f"{ACTOR}.strategy": "fsdp2"},
    {f"{ACTOR}.ulysses_sequence_parallel_size": 2}, {"critic.fsdp.param_offload": True},
    {"actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 9000},
    {"actor_rollout_ref.model.enable_gradient_checkpointing": False},
    {"actor_rollout_ref.model.use_remove_padding": False},
    {"+actor_rollout_ref.model.override_config.attn_implementation": "sdpa"},
    {f"{ROLLOUT}.enforce_eager": True}, {f"{ROLLOUT}.max_num_seqs": 64},
    {f"{ROLLOUT}.max_model_len": 9216},
    {ROLLOUT: {"max_num_batched_tokens": 4096, "enable_prefix_caching": False}},
    {f"+{ROLLOUT}.engine_kwargs.vllm.disable_mm_preprocessor_cache": True},
    {f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 64},
    {f"{ACTOR}.fsdp_config.strategy": "fsdp2"},
    {"reward.num_workers": 2}, {"ray_kwargs.ray_init.num_cpus": 16},
    {"+ray_kwargs": {"ray_init": {"num_gpus": 1}}}, {"global_profiler.steps": [1, 2]},
]


def test_overrides_that_change_the_study_are_refused_in_every_spelling() -> None:
    assert len(HARMFUL) >= 40
    for overrides in HARMFUL:
        with pytest.raises(InputError, match="overrides? must|`[a-z_.]+` must"):
            VerlEngine().check(make_spec(overrides=overrides))


def test_weights_are_float32_and_fewer_bits_are_told_before_they_train() -> None:
    key = f"{ACTOR}.fsdp_config.model_dtype"
    assert keys_of(make_spec())[key] == "fp32"
    half: dict[str, dict[str, Any]] = {
        "verl": {f"++{ACTOR}": {"fsdp_config": {"model_dtype": "bf16"}}},
        "trl": {"model_init_kwargs": {"dtype": "bfloat16"}},
    }
    for engine, of in half.items():
        for overrides in ({}, of):
            spec = replace(
                make_spec(overrides=overrides), engine=engine, engine_options={
                    "model": "org/model", "overrides": overrides})  # fmt: skip
            study = Study(name="s", runs=(spec,))
            lines = study_lines(study, study_cost(study), "a-folder-of-some-length/sweep-7b")
            assert all(len(line) <= 80 for line in lines)
            found = "round small updates away" in " ".join(" ".join(lines).split())
            assert found == bool(overrides), lines


def test_overrides_must_be_keys_with_values() -> None:
    with pytest.raises(InputError, match="overrides must be a mapping, but got"):
        VerlEngine().check(make_spec(overrides=["trainer.balance_batch=false"]))


def test_sglang_keeps_a_token_of_its_context() -> None:
    for engine, least in (("vllm", 9216), ("sglang", 9217)):
        for size in (least - 1, least):
            spec = make_spec(rollout_engine=engine, overrides={f"{ROLLOUT}.max_model_len": size})
            if size < least:
                with pytest.raises(InputError, match=f"must be an integer >= {least}"):
                    keys_of(spec)
            else:
                assert keys_of(spec)[f"{ROLLOUT}.max_model_len"] == least


def test_harmless_overrides_are_accepted_and_stand_once() -> None:
    assert len(HARMLESS) >= 20
    for overrides in HARMLESS:
        keys = keys_of(make_spec(overrides=overrides))
        for key, value in overrides.items():
            assert keys[key] == value
            assert [k for k in keys if k.lstrip("+") == key.lstrip("+")] == [key]


@pytest.mark.trainers
@needs_verl
def test_harmless_overrides_change_nothing_else_in_verl() -> None:
    lines = [override_lines(keys_of(make_spec(overrides=one, model=MODEL))) for one in HARMLESS]
    lines.append(override_lines(keys_of(make_spec(model=MODEL))))
    results = call_verl("compose", text=json.dumps(lines))
    assert [(o, r["error"]) for o, r in zip(HARMLESS, results, strict=False) if "error" in r] == []
    plain = results.pop()["all"]
    decided = {key.lstrip("+") for key in keys_of(make_spec())}
    for overrides, result in zip(HARMLESS, results, strict=True):
        changed = {k for k in plain.keys() | result["all"].keys()
                   if plain.get(k) != result["all"].get(k)}  # fmt: skip
        named = tuple(key.lstrip("+") for key in overrides)
        assert any(k.startswith(named) for k in changed), overrides  # it reached verl
        others = {k for k in changed & decided if not k.startswith(named)}
        assert others <= {"trainer.experiment_name"}, overrides  # the run's hash


def test_validation_follows_the_grid_and_its_share() -> None:
    # 8 rollouts a step, first point at 16; 20 validation rollouts at a share of 5 cost 1 step
    spec = make_spec(steps=100, validation_share=5.0)
    assert validation_interval(spec, VerlOptions.of(spec)) == 2
    spec = make_spec(steps=100, validation_share=0.25)
    assert validation_interval(spec, VerlOptions.of(spec)) == 10  # 20 / (0.25 * 8)
    spec = make_spec(steps=5)
    assert validation_interval(spec, VerlOptions.of(spec)) == 5


@pytest.mark.parametrize(("value", "text"), [
    (3, "3"), (1e-06, "1e-06"), (True, "true"), (None, "null"), ("a/b.c", "a/b.c"),
    ("it's", "'it\\'s'"), ("true", "'true'"), ("12", "'12'"), ("1e5", "'1e5'"),
    (["console", "file"], "[console,file]"), ({"a": [1, "x y"]}, "{a:[1,'x y']}"), ("", "''"),
    ("a,b", "'a,b'"), ("k=v", "'k=v'"),
])
def test_values_in_hydras_grammar(value: object, text: str) -> None:
    assert hydra_text(value) == text


def test_data_and_rewards_stand_on_their_own(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    own = tmp_path / "mine.py"
    own.write_text("def right(response, answer):\n    return int(response == answer[::-1])\n")
    spec = make_spec(verifier=f"{own}:right")
    write_files(spec, tmp_path / "run")
    own.unlink()  # the run keeps a copy
    rows = pq.read_table(tmp_path / "run" / "validation.parquet").to_pylist()
    assert [r["data_source"] for r in rows] == ["hard"] * 2 + ["val"] * 3
    assert rows[0]["prompt"] == [{"role": "user", "content": "0 + 1 = ?"}]
    truth = json.loads(rows[0]["reward_model"]["ground_truth"])
    assert (truth["problem_set"], truth["problem_id"], truth["answer"]) == ("hard", "hard-0", "1")
    question = json.dumps(truth | {"answer": "12"})
    code = (
        "import json, reward, sys\n"
        "for text in ('21', '12'):\n"
        f"    print(json.dumps(reward.compute_score('x', text, {question!r})))\n"
        "assert reward.load_verifier.__module__ == 'isocompute.verifiers'\n"
        "assert 'bundle' in sys.modules['isocompute'].__file__\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "run" / "reward",
                          capture_output=True, text=True, check=True)
    judged = [json.loads(line) for line in done.stdout.splitlines()]
    assert [j["score"] for j in judged] == [1.0, 0.0]
    assert judged[0] == {"score": 1.0, "acc": 1.0, "verdict": "judged"}


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, Any]:
    package = tmp_path / "fake" / "verl" / "trainer"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "main_ppo.py").write_text((HELPERS / "fake_verl.py").read_text())
    return {"python": sys.executable, "folder": str(tmp_path / "runs"), "poll_s": 0.05,
            "validation_share": 5.0, "environment": {"PYTHONPATH": str(tmp_path / "fake")}}


@pytest.mark.heavy
def test_a_run_is_followed_into_the_sink(tmp_path: Path, fake: dict[str, Any]) -> None:
    sink = ListSink(tmp_path / "sink")
    spec = make_spec(**fake)
    VerlEngine().check(spec)
    VerlEngine().run(spec, None, sink)
    assert [s.step for s in sink.steps] == list(range(1, 9))
    assert [s.rollouts for s in sink.steps] == [8 * i for i in range(1, 9)]
    assert sink.steps[-1].tokens == 8 * 8 * 10
    first = sink.steps[0]
    assert first.problem_Q.size == 4
    assert first.samples == 2
    assert first.health["reward"] == first.successes_Q.sum() / 8
    assert first.health["grad_norm"] == 0.5
    assert "kl" not in first.health  # NaN is missing
    assert first.wall_s == 0.25
    # verl logs the rate of the next update; step i of the warm-up has i / 10
    assert [s.health["learning_rate"] for s in sink.steps] == pytest.approx(
        [spec.learning_rate * i / 10 for i in range(1, 9)])
    # the grid has points at 16, 32, 64 rollouts: steps 2, 4, 8; and step 0
    assert [(e.step, e.problem_set) for e in sink.evaluations] == [
        (s, name) for s in (0, 2, 4, 8) for name in ("hard", "val")]
    assert [e.successes_P.size for e in sink.evaluations[:2]] == [2, 3]
    # five seconds for both sets; what comes before training is timed by nobody
    assert [e.wall_s for e in sink.evaluations[:4]] == [0, 0, 2, 3]
    # step 6 was validated between two points of the grid: paid for, and booked with step 8
    assert [e.wall_s for e in sink.evaluations[-4:]] == [2, 3, 4, 6]
    assert [(e.sampled_rollouts, e.sampled_tokens) for e in sink.evaluations[-2:]] == [
        (16, 7 * 16), (24, 7 * 24)]
    assert [e.sampled_tokens for e in sink.evaluations[:-2]] == [7 * 8, 7 * 12] * 3
    logs = next(Path(fake["folder"]).glob("*/attempt-0"))
    assert list((logs / "rollouts").iterdir()) == []  # read and removed
    assert len(list((logs / "validation").iterdir())) == 5


def records(sink: ListSink) -> list[Any]:
    return [
        *((s.step, s.tokens, s.problem_Q.tolist(), s.successes_Q.tolist()) for s in sink.steps),
        *((e.step, e.problem_set, e.successes_P.tolist()) for e in sink.evaluations),
    ]


@pytest.mark.heavy
def test_a_stopped_run_resumes_as_if_uninterrupted(tmp_path: Path, fake: dict[str, Any]) -> None:
    whole = ListSink(tmp_path / "whole")
    VerlEngine().run(make_spec(**fake), None, whole)
    spec = make_spec(**fake | {"folder": str(tmp_path / "other")})
    sink = ListSink(tmp_path / "sink", stop_at=4)
    with pytest.raises(StopRequested):
        VerlEngine().run(spec, None, sink)
    assert [s.step for s in sink.steps] == [1, 2, 3, 4]
    sink.stop_at, sink.pending = None, []
    VerlEngine().run(spec, sink.last, sink)
    assert [s.step for s in sink.steps] == list(range(1, 9))
    assert sorted(map(str, records(sink))) == sorted(map(str, records(whole)))
    VerlEngine().run(spec, sink.last, sink)  # nothing left to do
    assert len(sink.steps) == 8


def test_a_resumed_run_is_launched_from_its_checkpoint(
    tmp_path: Path, fake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start its records would be the same, and every step paid for twice."""
    spec, launched = make_spec(**fake), list[list[str]]()
    monkeypatch.setattr(
        "isocompute.engines.verl.engine.LocalJob", lambda command, **_: launched.append(command)
    )
    saved = Path(fake["folder"]) / spec.hash / "checkpoints" / "global_step_4"
    at = {"step": 4, "tokens": 320, "grid": 1, "path": str(saved), "unkept": {}}
    (tmp_path / "verl.json").write_text(json.dumps(at))
    for resume in (None, tmp_path):
        attempt = _Attempt(spec, VerlOptions.of(spec), resume, ListSink(tmp_path / "sink"))
        attempt.logs.mkdir(parents=True)
        attempt._launch()
    first, second = launched
    assert "trainer.resume_mode=disable" in first
    assert {"trainer.resume_mode=resume_path", f"trainer.resume_from_path={saved}",
            "trainer.val_before_train=false"} <= {line.replace("'", "") for line in second}


def test_the_price_counts_the_validations_that_verl_will_make(
    tmp_path: Path, fake: dict[str, Any]
) -> None:
    # every second step of eight, and before the first; the grid alone asks for 0, 2, 4 and 8
    spec = make_spec(**fake)
    assert (evaluations_drawn(spec), spec.evaluations) == (5, 4)
    # five problems of four samples may be a quarter of the batches of eight: every tenth step
    few = make_spec(**fake | {"validation_share": 0.25}, steps=25)
    assert evaluations_drawn(few) == 1 + 2 + 1
    done = replace(few, allocation=replace(few.allocation, steps=10), end=25)
    assert evaluations_drawn(done) == 2
    study = Study(name="x", runs=[few], slices=(1.0,))
    cost = study_cost(study, evaluations=evaluations_drawn, steps={few.hash: 10})
    assert (cost.rollouts, cost.evaluation_rollouts) == (15 * 8, 2 * few.evaluation_rollouts)


@pytest.mark.heavy
@pytest.mark.parametrize("older", [False, True])
def test_a_validation_that_no_point_keeps_is_booked_after_a_resume(
    tmp_path: Path, fake: dict[str, Any], older: bool
) -> None:
    sink = ListSink(tmp_path / "sink", stop_at=6)
    with pytest.raises(StopRequested):
        VerlEngine().run(make_spec(**fake), None, sink)
    kept = sink.last / "verl.json"
    at = json.loads(kept.read_text())
    assert at["unkept"] == {"hard": [8, 56, 2.0], "val": [12, 84, 3.0]}
    if older:  # seconds were not kept
        kept.write_text(json.dumps(at | {"unkept": {"hard": [8, 56], "val": [12, 84]}}))
    sink.stop_at, sink.pending = None, []
    VerlEngine().run(make_spec(**fake), sink.last, sink)
    assert [(e.sampled_rollouts, e.sampled_tokens, e.wall_s) for e in sink.evaluations[-2:]] == [
        (16, 7 * 16, 2 if older else 4), (24, 7 * 24, 3 if older else 6)]


@pytest.mark.heavy
@pytest.mark.parametrize(("mode", "message"), [
    ("crash", "gave 1 after 2 of 8 steps: .*CUDA out of memory"),
    ("zero_gradient", "every gradient norm of 8 steps is 0"),
    ("wrong_group", "must hold 8 samples, but 2.jsonl in rollouts holds 12"),
])
def test_row_19_failures_of_the_trainer(
    tmp_path: Path, fake: dict[str, Any], monkeypatch: pytest.MonkeyPatch, mode: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_VERL", mode)
    with pytest.raises(RunError, match=message):
        VerlEngine().run(make_spec(**fake), None, ListSink(tmp_path / "sink"))


@pytest.mark.heavy
def test_a_learning_rate_that_is_not_the_recipes_ends_the_run(
    tmp_path: Path, fake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VERL", "constant")
    with pytest.raises(InputError, match="after step 1 must be the recipe's 1.76777e-08, but verl "
                                         "logs 8.83883e-09"):
        VerlEngine().run(make_spec(**fake), None, ListSink(tmp_path / "sink"))


@pytest.mark.heavy
def test_row_19_an_early_end_without_an_error_leaves_too_few_steps(
    tmp_path: Path, fake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VERL", "stop_early")
    sink = ListSink(tmp_path / "sink")
    VerlEngine().run(make_spec(**fake), None, sink)
    assert len(sink.steps) == 4  # of 8: the runner calls that invalid


@pytest.mark.heavy
def test_row_26_a_failed_verifier_leaves_the_evaluation_out(
    tmp_path: Path, fake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VERL", "verifier_error")
    sink = ListSink(tmp_path / "sink")
    VerlEngine().run(make_spec(**fake), None, sink)
    assert 2 not in [e.step for e in sink.evaluations]
    assert sink.steps[1].health["verifier_error_share"] == 0.5
    assert sink.steps[1].unjudged[0].message == "see the verifier's message in verl's console log"


def test_a_python_that_is_not_there(tmp_path: Path, fake: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="a trainer must start"):
        VerlEngine().run(make_spec(**fake | {"python": "/no/python"}), None, ListSink(tmp_path))


def test_a_checkpoint_goes_once_the_study_no_longer_names_it(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "verl", critic=False)

    def save(step: int) -> Path:
        kept.path(step).mkdir(parents=True)
        reference = tmp_path / f"study-{step}"
        reference.mkdir()
        kept.made(step, reference)
        return reference

    def there() -> list[int]:
        return sorted(int(p.name.rpartition("_")[2]) for p in kept.folder.iterdir())

    first = tmp_path / "study-2"
    kept.path(2).mkdir(parents=True)
    first.mkdir()
    kept.resumed_from(2, first)
    save(4).rmdir()  # the store did not commit this one
    kept.thin_out()
    assert there() == [2, 4]  # it may be in the hands of a store on another machine
    save(6)
    kept.thin_out()
    assert there() == [2, 6]  # the last commit that can be resumed from is still 2
    save(8)
    first.rmdir()  # what the store does when it has two newer ones
    kept.thin_out()
    assert there() == [6, 8]


@pytest.mark.heavy
def test_a_checkpoint_that_lost_a_part_is_not_resumed_from(
    tmp_path: Path, fake: dict[str, Any]
) -> None:
    sink = ListSink(tmp_path / "sink", stop_at=4)
    with pytest.raises(StopRequested):
        VerlEngine().run(make_spec(**fake), None, sink)
    saved = next(Path(fake["folder"]).glob("*/checkpoints/global_step_4"))
    (saved / "data.pt").unlink()
    for file in (saved / "actor").glob("optim*"):
        file.unlink()
    with pytest.raises(InputError, match="must be whole to go on from, .* lacks actor, data.pt"):
        VerlEngine().run(make_spec(**fake), sink.last, sink)
    with pytest.raises(InputError, match="lacks actor, critic, data.pt"):
        Checkpoints(saved.parent, critic=True).check_whole(saved)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory is no folder here")
def test_shared_memory_of_a_killed_process_is_removed_and_no_other(tmp_path: Path) -> None:
    code = (
        "import mmap, os, sys\n"
        "names = ['/dev/shm/isocompute-test-%d-%s' % (os.getpid(), x) for x in 'ab']\n"
        "held = []\n"
        "for name in names:\n"
        "    file = open(name, 'wb+'); file.truncate(4096)\n"
        "    held.append(mmap.mmap(file.fileno(), 4096)); file.close()\n"
        "print(*names, flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    names = [Path(name) for name in process.stdout.readline().split()]
    try:
        Leftovers(tmp_path / "names.txt").note(process.pid)
        Leftovers(tmp_path / "names.txt").remove()
        assert all(name.exists() for name in names)  # the process lives
        assert (tmp_path / "names.txt").read_text().split() == sorted(map(str, names))
        process.kill()
        process.communicate()
        other = names[1].with_name(f"{names[1].name}-other")
        other.touch()
        names[1].unlink()
        Leftovers(tmp_path / "names.txt").remove()  # as the next attempt does
        assert not names[0].exists()
        assert other.exists()
        assert not (tmp_path / "names.txt").exists()
    finally:
        process.kill()
        for name in Path("/dev/shm").glob(f"isocompute-test-{process.pid}-*"):
            name.unlink()


@pytest.mark.parametrize("given", [{}, {"PYTHONPATH": "its/own", "A": "b"}])
def test_verls_processes_see_no_module_path_but_their_own(
    tmp_path: Path, fake: dict[str, Any], monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", "of-the-runner")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\nexit 3\n")
    python.chmod(0o755)
    spec = make_spec(**fake | {"python": str(python), "environment": given})
    with pytest.raises(RunError, match="gave 3 after 0 of 8 steps"):
        VerlEngine().run(spec, None, ListSink(tmp_path / "sink"))
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert seen.get("PYTHONPATH") == given.get("PYTHONPATH")
    assert seen.get("A") == given.get("A")
    assert Path(seen["VERL_FILE_LOGGER_PATH"]).name == "metrics.jsonl"


def test_the_python_of_a_run_is_looked_at_first(tmp_path: Path) -> None:
    package = tmp_path / "path" / "verl-0.7.1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.7.1\n")
    options = VerlOptions.of(make_spec(python=sys.executable))
    with pytest.raises(InputError, match="but got '0.9.1' and .* has verl 0.7.1"):
        check_installed(options, {"PYTHONPATH": str(package.parent)}, tmp_path)
    found = json.loads((tmp_path / "installed.json").read_text())
    assert found["versions"]["verl"] == "0.7.1"
    assert str(package.parent) in found["path"]
    check_installed(options, {"PYTHONPATH": None}, tmp_path)
    assert json.loads((tmp_path / "installed.json").read_text())["versions"]["verl"] is None
    check_installed(VerlOptions.of(make_spec(python="/no/python")), {}, tmp_path)  # its start says


def test_verl_has_the_machine_for_itself_unless_asked(tmp_path: Path) -> None:
    for name, size in (("train", 16), ("val", 4)):
        rows = [{"id": f"{name}-{i}", "prompt": name, "answer": "1"} for i in range(size)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    study: dict[str, Any] = {
        "engine": "verl", "engine_options": {"model": "x", "gpus_per_node": 1},
        "problems": {"train": {"path": "train.jsonl"}, "validation": {"v": {"path": "val.jsonl"}}},
        "grid": {"problems_per_batch": 4, "rollouts_per_problem": 2}, "budget": 800,
    }  # fmt: skip
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study))
    opened = open_study(path)
    assert opened.slices == (1.0,)  # each slice would start verl anew
    assert default_workers(opened) == 1
    asked = open_study(path, ["slices=[0.5, 1]"])
    assert asked.slices == (0.5, 1.0)
    path.write_text(json.dumps(study | {"engine": "local", "engine_options": {"model": "bits"}}))
    assert len(load_study(path).slices) == 4


def test_dumps_that_are_not_of_this_run_are_refused(tmp_path: Path) -> None:
    spec = make_spec()
    for name in ("rollouts", "validation"):
        (tmp_path / name).mkdir()
    (tmp_path / "metrics.jsonl").write_text('torn\n{"step": 1, "data": {}}\n{"step": 2')

    def row(name: str, problem: str) -> dict[str, Any]:
        return {"score": 1.0, "gts": json.dumps({"problem_id": problem, "problem_set": name})}

    rows = [row("train", f"train-{i}") for i in range(4)] * 2
    path = tmp_path / "rollouts" / "1.jsonl"

    def poll(changed: list[dict[str, Any]]) -> list[Any]:
        path.write_text("".join(json.dumps(r) + "\n" for r in changed))
        return list(Follower(spec, tmp_path, started=True).poll())

    with pytest.raises(RunError, match="verl did not use the run's reward module"):
        poll([*rows[:-1], {"score": 1.0}])
    with pytest.raises(RunError, match="its dump names 'other'"):
        poll([*rows[:-1], row("train", "other")])
    with pytest.raises(RunError, match="has groups of \\[1, 2, 3\\]"):
        poll([*rows[:-1], rows[0]])
    assert poll(rows[:-1]) == []  # not whole yet
    progress = poll(rows)[0]
    assert progress.update is not None
    assert np.array_equal(progress.update.successes_Q, [2, 2, 2, 2])
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "data": {"val-core/a": 1}}\n')
    val = [row("val", "val-0")] * 20
    (tmp_path / "validation" / "0.jsonl").write_text("".join(json.dumps(r) + "\n" for r in val))
    with pytest.raises(RunError, match="must have 4 samples for each of 3 problems"):
        list(Follower(spec, tmp_path).poll())


# verl looks at a critic's model, so it has to be there
MODEL = str(Path(isocompute.__file__).parent / "data" / "base" / "bits")
RECIPES = st.builds(
    dict,
    objective=st.sampled_from(["grpo", "ppo", "cispo"]),
    advantage_std=st.sampled_from(["sample", "none", "population"]),
    aggregation=st.sampled_from(["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]),
    kl_coef=st.sampled_from([0.0, 1e-3, 0.5]),
    zero_variance_filter=st.sampled_from(["none", "none", "none", "loss", "regularizers"]),
    temperature=st.floats(0.1, 2.0),
    top_p=st.floats(0.1, 1.0),
    importance_cap=st.none() | st.floats(0.5, 10),
    updates_per_batch=st.sampled_from([1, 1, 2, 4]),
    update_split=st.sampled_from(["mini-batch", "epoch"]),
    importance_level=st.sampled_from(["token", "sequence"]),
    gae_gamma=st.floats(0.5, 1), gae_lambda=st.floats(0, 1),
    value_learning_rate=st.floats(1e-9, 1e-2), value_clip=st.floats(0.01, 2),
    gradient_rollouts=st.sampled_from([None, None, 8]),
    clip_low=st.floats(0, 1), clip_high=st.floats(0, 2), warmup_steps=st.integers(0, 50),
    weight_decay=st.floats(0, 1), learning_rate=st.floats(1e-9, 1e-2),
    max_grad_norm=st.floats(0.01, 10),
)
SPECS = st.builds(
    lambda b, n, m, recipe, gpus, seed: make_spec(
        b, n, m, recipe=Recipe(**recipe), train=64, gpus_per_node=gpus, seed=seed, model=MODEL),
    b=st.integers(1, 70), n=st.integers(1, 64), m=st.integers(1, 5000), recipe=RECIPES,
    gpus=st.sampled_from([1, 1, 2, 4, 8]), seed=st.integers(0, 2**31 - 1),
)


def call_verl(*arguments: str, text: str = "") -> list[dict[str, Any]]:
    done = subprocess.run(
        [VERL_PYTHON, str(HELPERS / "verl_contract.py"), *arguments], input=text,
        capture_output=True, text=True, check=False, timeout=1800)
    found = [json.loads(line[7:]) for line in done.stdout.splitlines()
             if line.startswith("RESULT ")]
    assert found, done.stderr[-2000:]
    return found


@pytest.mark.trainers
@needs_verl
def test_verl_accepts_200_random_allocations_and_recipes_that_pass_our_checks() -> None:
    accepted: list[RunSpec] = []

    @settings(max_examples=2500, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))
    @given(spec=SPECS)
    def collect(spec: RunSpec) -> None:
        if len(accepted) < 200:
            with contextlib.suppress(InputError):
                VerlEngine().check(spec)
                accepted.append(spec)

    collect()
    assert len(accepted) == 200
    lines = [override_lines(keys_of(spec, Path("/runs/it's a folder"))) for spec in accepted]
    results = call_verl("compose", text=json.dumps(lines))
    assert [r["error"] for r in results if "error" in r] == []
    for spec, found in zip(accepted, results, strict=True):
        a = spec.allocation
        assert found["data.train_batch_size"] == a.problems_per_batch
        assert found["actor_rollout_ref.rollout.n"] == a.rollouts_per_problem
        assert found["trainer.total_training_steps"] == a.steps
        assert found["actor_rollout_ref.actor.optim.lr"] == spec.learning_rate
        assert found["trainer.logger"] == ["console", "file"]
        assert found["reward.custom_reward_function.path"] == (
            "/runs/it's a folder/reward/reward.py")


@pytest.mark.trainers
@needs_verl
def test_what_verl_would_refuse_is_refused_before() -> None:
    """60 random runs that our checks refuse: each in one line, whatever verl says to its keys."""
    refused: list[tuple[RunSpec, str]] = []

    @settings(max_examples=2500, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))
    @given(spec=SPECS)
    def collect(spec: RunSpec) -> None:
        if len(refused) < 60:
            try:
                VerlEngine().check(spec)
            except InputError as error:
                refused.append((spec, str(error)))

    collect()
    assert len(refused) == 60
    assert all("but got" in message and "\n" not in message for _, message in refused)
    lines = [override_lines(keys_of(spec)) for spec, _ in refused]
    verdicts = ["error" in r for r in call_verl("compose", text=json.dumps(lines))]
    # the others verl would have trained otherwise than asked, without a word
    print(f"of 60 runs that are refused here, verl itself refuses {sum(verdicts)}")


@pytest.mark.trainers
@needs_verl
def test_verl_rejects_what_the_contract_would_notice() -> None:
    lines = override_lines(keys_of(make_spec()))
    wrong = [[*lines, "trainer.no_such_key=1"],
             [*lines, "actor_rollout_ref.actor.loss_agg_mode=other"]]
    assert all("error" in r for r in call_verl("compose", text=json.dumps(wrong)))


@pytest.mark.trainers
@needs_verl
def test_verls_own_loader_and_manager_call_the_rewards(tmp_path: Path) -> None:
    spec = make_spec()
    write_files(spec, tmp_path)
    right, wrong, managed = call_verl("reward", str(tmp_path))
    assert (right["score"], wrong["score"]) == (1.0, 0.0)
    assert managed["reward_score"] == 1.0
    assert managed["reward_extra_info"]["verdict"] == "judged"
    assert managed["reward_extra_info"]["response_tokens"] == 2  # of three, one is padding


def test_a_check_needs_no_file_on_disk(tmp_path: Path) -> None:
    spec = make_spec(folder=str(tmp_path / "none"))
    check_spec(spec, VerlOptions.of(spec))
    assert not (tmp_path / "none").exists()
