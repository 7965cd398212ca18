"""Which words of a recipe a trainer's logged configuration says, for a plan to go on with.

One key says most of them, as a number. What else decides what was trained, several say: the
algorithm, updates of a batch, filters, schedules, adapters, penalties, staleness, and how
evaluations sample. A word is taken only where the log says all that it depends on; KL that is part
of the reward is none of the loss, and has no word here.

Source: verl 0.9.1 (trainer/config, ppo/core_algos.py; of older releases their own keys), TRL 1.16
(grpo_config.py), OpenRLHF 0.11.2 (cli/train_ppo_ray.py), and the rest as in `docs/trainers.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from isocompute.importers.values.reading import number, whole
from isocompute.importers.words.fresh import updates_of_trl
from isocompute.recipe import ADVANTAGES, RECORDED, SHARED, TRAINED

Config = Mapping[str, object]
Words = Iterator[tuple[str, Any]]

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_CORRECTION = "algorithm.rollout_correction"
_KL = {"low_var_kl": "k3", "k3": "k3", "kl": "k1", "k1": "k1"}
_OFF = ("", "none", "null", "false", "0", "disable", "disabled")


class _Key(NamedTuple):
    """A key of a word; `switch` turns it on, a common one must have `beside`, too."""

    word: str
    key: str
    switch: str = ""
    beside: str = ""


_SKYRL, _NEMO, _AREAL = "trainer.algorithm", "loss_fn", "actor.kl_ctl"
_TRL, _OPEN_INSTRUCT = "num_generations", "num_unique_prompts_rollout"
_KEYS = (
    _Key("kl_coef", f"{_ACTOR}.kl_loss_coef", switch=f"{_ACTOR}.use_kl_loss"),
    _Key("kl_coef", f"{_SKYRL}.kl_loss_coef", switch=f"{_SKYRL}.use_kl_loss"),
    _Key("kl_coef", "kl_loss_coef", switch="use_kl_loss"),  # slime
    _Key("kl_coef", f"{_NEMO}.reference_policy_kl_penalty"),
    _Key("kl_coef", "beta", beside=_TRL),
    _Key("kl_coef", "beta", beside=_OPEN_INSTRUCT),
    _Key("kl_coef", "algo.kl.init_coef", switch="algo.kl.use_loss"),  # OpenRLHF
    _Key("entropy_coef", f"{_ACTOR}.entropy_coeff"),
    _Key("entropy_coef", "entropy_coef"),  # slime, TRL
    _Key("clip_low", f"{_ACTOR}.clip_ratio_low"),
    _Key("clip_low", f"{_SKYRL}.eps_clip_low"),
    _Key("clip_low", f"{_NEMO}.ratio_clip_min"),
    _Key("clip_low", "eps_clip"),
    _Key("clip_low", "epsilon", beside=_TRL),
    _Key("clip_low", "clip_lower", beside=_OPEN_INSTRUCT),
    _Key("clip_low", "actor.eps_clip"),
    _Key("clip_high", f"{_ACTOR}.clip_ratio_high"),
    _Key("clip_high", f"{_SKYRL}.eps_clip_high"),
    _Key("clip_high", f"{_NEMO}.ratio_clip_max"),
    _Key("clip_high", "eps_clip_high"),
    _Key("clip_high", "epsilon_high", beside=_TRL),
    _Key("clip_high", "clip_higher", beside=_OPEN_INSTRUCT),
    _Key("top_p", "actor_rollout_ref.rollout.top_p"),
    _Key("top_p", "top_p", beside=_TRL),
    _Key("weight_decay", f"{_ACTOR}.optim.weight_decay"),
    _Key("top_p", "rollout.top_p", beside="rollout.n_samples_per_prompt"),
    _Key("weight_decay", "weight_decay", beside=_TRL),
    _Key("weight_decay", "actor.adam.weight_decay"),
    _Key("max_grad_norm", f"{_ACTOR}.grad_clip"),
    _Key("max_grad_norm", "max_grad_norm", beside=_TRL),
    _Key("max_grad_norm", "actor.max_norm"),
    _Key("warmup_steps", f"{_ACTOR}.optim.lr_warmup_steps"),
    _Key("warmup_steps", "warmup_steps", beside=_TRL),
    *(_Key(word, key, beside="group_size") for word, key in (  # loops of one's own
        ("kl_coef", "beta"), ("clip_low", "epsilon"), ("clip_low", "clip_eps"))),
)
_ROUNDED = 1e-4  # trackers keep seven digits, exports of charts often five
_IN_REWARD = ("algorithm.use_kl_in_reward", f"{_SKYRL}.use_kl_in_reward")


def recorded_of(config: Config) -> dict[str, str]:
    """Words of a recipe in the flattened configuration of a trainer; unsaid ones are left out.

    >>> recorded_of({"num_generations": 8, "beta": 0.04, "epsilon": 0.2, "epsilon_high": None})
    {'kl_coef': '0.04', 'clip_low': '0.2', 'entropy_coef': '0'}
    """
    found: dict[str, str] = {}
    for one in _KEYS:
        value = number(config.get(one.key))
        if one.word in found or (one.beside and one.beside not in config):
            continue
        if one.switch:
            said = _truth(config.get(one.switch))
            value = None if said is None else value if said else 0.0
        if value is not None and not _is_elsewhere(one, config):
            found[one.word] = f"{value:.6g}"
    if _AREAL in config:  # in the reward of every token (areal/trainer/ppo/actor.py), not the loss
        found.setdefault("kl_coef", "0")
    if "kl_coef" in found:  # a trainer that writes the one has no other bonus than it writes
        found.setdefault("entropy_coef", "0")
    trained = trained_of(config)
    if _TRL in config and "warmup_steps" in found and (
        ticks := number(trained.get("updates_per_batch"))
    ):
        batches = float(found.pop("warmup_steps")) / ticks  # it counts steps of the optimizer
        found |= {"warmup_steps": f"{batches:.6g}"} if batches.is_integer() else {}
    return found | trained


def logged_rate(rate: Mapping[int, float]) -> dict[str, str]:
    """The learning rate of a log without a configuration, where most of its steps have the same.

    Warm-up steps may have less. Of a schedule that falls, no row says what it began with.

    Args:
        rate: as logged, by step.

    >>> logged_rate({1: 5e-7, 2: 1e-6, 3: 1e-6, 4: 1e-6})
    {'learning_rate': '1e-06'}
    >>> logged_rate({1: 1e-6, 2: 9e-7, 3: 8e-7, 4: 7e-7})
    {}
    """
    top = max(rate.values(), default=0.0)
    steady = sum(value >= top * (1 - _ROUNDED) for value in rate.values())
    return {"learning_rate": f"{top:.4g}"} if top > 0 and 2 * steady > len(rate) else {}


def recorded_said(facts: Mapping[str, str]) -> dict[str, float | str]:
    """What a run's facts say of how it was trained: numbers, and text where a word may be that.

    >>> recorded_said({"model": "Qwen", "learning_rate": "1e-06", "temperature": "low"})
    {'learning_rate': 1e-06, 'model': 'Qwen'}
    >>> recorded_said({"objective": "rloo", "lora_rank": "32"})
    {'lora_rank': 32.0, 'objective': 'rloo'}
    """
    said = {word: number(facts.get(word)) for word in (*SHARED, *RECORDED, *TRAINED)}
    known = {word: v for word, v in said.items() if v is not None and math.isfinite(v)}
    return {**known, **{word: facts[word] for word in (*SHARED, *TRAINED)
                        if word in facts and word not in known}}  # fmt: skip


def _truth(value: object) -> bool | None:
    text = str(value).lower()
    return {"true": True, "false": False, "1": True, "0": False}.get(text)


def _is_elsewhere(one: _Key, config: Config) -> bool:
    """Whether another key changes what this one means."""
    if one.word == "kl_coef":  # part of the reward instead
        return any(_truth(config.get(key)) for key in _IN_REWARD)
    if one.word == "clip_high" and one.beside == _TRL:  # caps the ratio, not its distance from 1
        return str(config.get("loss_type")) == "cispo"
    if one.word == "warmup_steps":  # a share of the steps goes before or instead
        shares = ("warmup_ratio", f"{_ACTOR}.optim.lr_warmup_steps_ratio")
        steps = number(config.get(one.key)) or 0.0
        return steps < 0 or (steps < 1 and any(number(config.get(key)) for key in shares))
    return False


def trained_of(config: Config) -> dict[str, str]:
    """Words of `recipe.TRAINED` in the flattened configuration of a trainer.

    >>> trained_of({"num_generations": 8, "loss_type": "dapo", "scale_rewards": "none"})
    {'objective': 'grpo', 'aggregation': 'token-mean', 'advantage_std': 'none'}
    """
    found: dict[str, str] = {}
    for is_its, words in _READERS:
        if is_its(config):
            for word, value in words(config):
                if value is not None and word not in found:
                    found[word] = f"{value:.6g}" if isinstance(value, float) else str(value)
            break
    return found


def _text(config: Config, *keys: str) -> str | None:
    """The first of several keys that says something, in lower case."""
    found = (str(config[key]) for key in keys if config.get(key) not in (None, ""))
    return next((text.lower() for text in found), None)


def _number(config: Config, *keys: str) -> float | None:
    return next((v for key in keys if (v := number(config.get(key))) is not None), None)


def _is(config: Config, *keys: str) -> bool | None:
    text = _text(config, *keys)
    return None if text is None else text not in _OFF


def _objective(advantage: str | None, loss: str | None) -> str | None:
    """One word for an estimator of advantages and a loss: "grpo", "ppo", "gspo", "rloo/gspo"."""
    if advantage is None and loss is None:
        return None
    of = {"gae": "ppo"}.get(advantage or "grpo", advantage or "grpo")
    if loss in (None, "vanilla", "ppo", "regular", "dual_clip"):
        return of
    return loss if of == "grpo" and loss not in ADVANTAGES else f"{of}/{loss}"


def _in_verl(config: Config) -> Words:
    advantage = _text(config, "algorithm.adv_estimator")
    yield "objective", _objective(advantage, _text(config, f"{_ACTOR}.policy_loss.loss_mode"))
    divides = _is(config, "algorithm.norm_adv_by_std_in_grpo")
    if divides is not None and "grpo" in (advantage or "grpo"):
        yield "advantage_std", "sample" if divides else "none"
    yield "aggregation", _text(config, f"{_ACTOR}.loss_agg_mode")
    if _is(config, f"{_ACTOR}.use_kl_loss") and (kind := _text(config, f"{_ACTOR}.kl_loss_type")):
        yield "kl_estimator", _KL.get(kind, kind)
    in_reward = _is(config, "algorithm.use_kl_in_reward")
    if in_reward is not None:
        yield "kl_in_reward", _number(config, "algorithm.kl_ctrl.kl_coef") if in_reward else 0.0
    if (fills := _is(config, "algorithm.filter_groups.enable")) is not None:
        yield "zero_variance_filter", "refill" if fills else "none"
    yield from _updates(_number(config, "data.train_batch_size"),
                        _number(config, f"{_ACTOR}.ppo_mini_batch_size"),
                        whole(config.get(f"{_ACTOR}.ppo_epochs")))  # fmt: skip
    if (shuffled := _is(config, f"{_ACTOR}.shuffle")) is not None:
        yield "shuffled", "yes" if shuffled else "no"
    yield "clip_dual", _number(config, f"{_ACTOR}.clip_ratio_c")
    yield from _schedule(
        _text(config, f"{_ACTOR}.optim.lr_scheduler_type", f"{_ACTOR}.optim.warmup_style"),
        _number(config, f"{_ACTOR}.optim.min_lr_ratio"))
    steps = _number(config, f"{_ACTOR}.optim.lr_warmup_steps")
    if steps is None or steps <= 0:
        yield "warmup_share", _number(config, f"{_ACTOR}.optim.lr_warmup_steps_ratio")
    yield "top_k", _number(config, f"{_ROLLOUT}.top_k")
    yield from _correction_in_verl(config)
    model = "actor_rollout_ref.model"
    if f"{model}.path" in config or f"{model}.lora_rank" in config:  # a key that releases add
        yield "lora_rank", _number(config, f"{model}.lora_rank", f"{model}.lora.rank") or 0.0
        buffers = ("reward_model.overlong_buffer",
                   "reward_model.reward_kwargs.overlong_buffer_cfg",
                   "reward.reward_kwargs.overlong_buffer_cfg")  # fmt: skip
        on = next((key for key in buffers if _is(config, f"{key}.enable")), None)
        yield "length_penalty", "none" if on is None else _penalty(
            _number(config, f"{on}.len"), _number(config, f"{on}.penalty_factor"))
    yield "staleness", _number(config, "async_training.staleness_threshold")
    drawn = f"{_ROLLOUT}.val_kwargs"
    if _is(config, f"{drawn}.do_sample") is False:
        yield "evaluation_temperature", 0.0
    else:
        yield "evaluation_temperature", _number(config, f"{drawn}.temperature")
        yield "evaluation_top_p", _number(config, f"{drawn}.top_p")
    yield "evaluation_samples", _number(config, f"{drawn}.n")
    if advantage == "gae":
        for word, key in (("gae_gamma", "algorithm.gamma"), ("gae_lambda", "algorithm.lam"),
                          ("value_learning_rate", "critic.optim.lr"),
                          ("value_clip", "critic.cliprange_value")):  # fmt: skip
            yield word, _number(config, key)


def _correction_in_verl(config: Config) -> Words:
    """Ratios of the sampler's probabilities: off, or of what and up to where."""
    capped = _number(config, f"{_ACTOR}.tis_imp_ratio_cap")  # verl 0.5
    if capped is not None and capped > 0:
        yield from (("importance_level", "token"), ("importance_cap", capped))
        return
    key = next((k for k in (f"{_CORRECTION}.rollout_is", "algorithm.rollout_is") if k in config),
               None)  # fmt: skip
    if key is None:
        return
    if not _is(config, key):  # null is written, and means none
        yield "importance_cap", "none"
    else:
        level = _text(config, key)
        level = _text(config, "algorithm.rollout_is_level") if level == "true" else level
        yield "importance_level", level
        yield "importance_cap", _number(config, f"{key}_threshold")
    yield "importance_rejection", _text(config, f"{_CORRECTION}.rollout_rs")


def _updates(problems: float | None, mini_batch: float | None, passes: int | None) -> Words:
    if problems and mini_batch:
        yield "updates_per_batch", max(1.0, problems // mini_batch) * (passes or 1)
    yield "passes_per_batch", passes


def _schedule(kind: str | None, least: float | None) -> Words:
    """The learning rate after its warm-up: its form, and the share of its peak at the end."""
    if kind is None:
        return
    kind = {"constant_with_warmup": "constant"}.get(kind, kind)
    constant = kind == "constant" or least == 1
    yield "lr_schedule", "constant" if constant else kind
    if not constant:
        yield "lr_least", least


def _penalty(length: float | None, factor: float | None) -> str:
    """A penalty of long responses: on how many last tokens, and how much at most."""
    return f"{1.0 if factor is None else factor:g} over {length or 0:g} tokens"


_TRL_LOSS = {"grpo": ("grpo", "seq-mean-token-mean"), "dapo": ("grpo", "token-mean"),
             "cispo": ("cispo", "token-mean")}  # fmt: skip


def _in_trl(config: Config) -> Words:
    loss, level = _text(config, "loss_type"), _text(config, "importance_sampling_level")
    if loss is not None:
        of, aggregation = _TRL_LOSS.get(loss, (loss, None))
        yield "objective", "gspo" if of == "grpo" and level == "sequence" else of
        yield "aggregation", aggregation
    if scaled := _text(config, "scale_rewards"):
        yield "advantage_std", {"group": "sample", "true": "sample", "batch": "batch"}.get(
            scaled, "none")  # fmt: skip
    updates, passes = updates_of_trl(config)
    yield "updates_per_batch", updates
    yield "passes_per_batch", passes if passes is not None and passes > 1 else None
    yield "clip_dual", _number(config, "delta")
    yield from _schedule(_text(config, "lr_scheduler_type"), None)
    steps = _number(config, "warmup_steps")
    if steps is None or steps < 1:
        yield "warmup_share", _number(config, "warmup_ratio") or steps
    yield "top_k", _number(config, "top_k")
    if (corrected := _is(config, "vllm_importance_sampling_correction")) is not None and _is(
        config, "use_vllm"
    ):
        mode = _text(config, "vllm_importance_sampling_mode") or "sequence_mask"
        yield "importance_level", mode.removesuffix("_truncate") if corrected else None
        cap = ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")
        yield "importance_cap", _number(config, *cap) if corrected else "none"
    rank = _number(config, "lora_rank", "lora_r", "peft_config.r", "peft_config.default.r")
    kind = _text(config, "train_type", "tuner_type")  # ms-swift
    if _is(config, "use_peft") is False or kind == "full":
        rank = 0.0
    yield "lora_rank", rank
    if (masked := _is(config, "mask_truncated_completions")) is not None:
        yield "length_penalty", "truncated are masked" if masked else "none"
    yield "token_share", _number(config, "top_entropy_quantile")
    yield "staleness", _number(config, "max_staleness")


def _in_openrlhf(config: Config) -> Words:
    advantage = _text(config, "algo.advantage.estimator", "advantage_estimator")
    yield "objective", _objective(
        {"group_norm": "grpo", "reinforce": "reinforce_plus_plus"}.get(advantage or "", advantage),
        _text(config, "actor.policy_loss_type"))  # fmt: skip
    if (plain := _is(config, "algo.advantage.no_std_norm")) is not None:
        yield "advantage_std", "none" if plain else "sample"
    yield "aggregation", _text(config, "actor.loss_agg_mode")
    problems, n = (_number(config, f"rollout.{key}") for key in
                   ("batch_size", "n_samples_per_prompt"))  # fmt: skip
    passes = whole(config.get("train.max_epochs"))
    yield from _updates(problems * n if problems and n else None,
                        _number(config, "train.batch_size"), passes)
    if (filtered := _is(config, "algo.dynamic_filtering_enable")) is not None:
        yield "zero_variance_filter", "refill" if filtered else "none"
    yield "clip_dual", _number(config, "actor.dual_clip")
    yield from _schedule(_text(config, "actor.lr_scheduler"), _number(config, "actor.min_lr_ratio"))
    yield "warmup_share", _number(config, "actor.lr_warmup_ratio")
    yield "lora_rank", _number(config, "ds.lora.rank")
    if length := _number(config, "reward.overlong_buffer_len"):
        yield "length_penalty", _penalty(length, _number(config, "reward.overlong_penalty_factor"))
    elif "reward.overlong_buffer_len" in config:
        yield "length_penalty", "none"
    if (apart := _is(config, "train.async_enable")) is not None:
        yield "staleness", _number(config, "train.async_queue_size") if apart else 0.0
    yield "evaluation_temperature", _number(config, "eval.temperature")


def _in_others(config: Config) -> Words:
    """SkyRL, NeMo-RL, slime, AReaL, prime-rl, open-instruct: updates, schedule, staleness."""
    yield "kl_in_reward", _number(config, _AREAL)
    skyrl = "trainer.algorithm"
    yield "objective", _objective(
        _text(config, f"{skyrl}.advantage_estimator", "advantage_estimator", "algo", "algorithm"),
        _text(config, f"{skyrl}.policy_loss_type"))  # fmt: skip
    yield "aggregation", _text(config, f"{skyrl}.loss_reduction")
    yield from _updates(_number(config, "trainer.train_batch_size"),
                        _number(config, "trainer.policy_mini_batch_size"),
                        whole(config.get("trainer.update_epochs_per_batch")))  # fmt: skip
    prompts, n = (_number(config, f"grpo.num_{key}") for key in
                  ("prompts_per_step", "generations_per_prompt"))  # fmt: skip
    yield from _updates(prompts * n if prompts and n else None,
                        _number(config, "policy.train_global_batch_size"), None)
    yield "updates_per_batch", _number(
        config, "num_steps_per_rollout", "actor.ppo_n_minibatches", "num_mini_batches", "mu")
    yield from _schedule(_text(config, "lr_decay_style", "actor.optimizer.lr_scheduler_type",
                               "lr_scheduler_type"), None)  # fmt: skip
    own = "rank" * ("world_size" not in config and "local_rank" not in config)  # not a process
    yield "lora_rank", _number(
        config, "trainer.policy.model.lora.rank", "lora_rank", "lora_r", "lora.rank", "lora.r", own)
    runs_ahead = _is(config, "grpo.async_grpo.enabled")
    yield "staleness", 0.0 if runs_ahead is False else _number(
        config, "rollout.max_head_offpolicyness", "orchestrator.max_off_policy_steps",
        "max_off_policy_steps", "grpo.async_grpo.max_trajectory_age_steps",
        "async_config.max_steps_off_policy")  # fmt: skip
    yield "evaluation_temperature", _number(config, "eval_temperature")


_READERS: tuple[tuple[Callable[[Config], bool], Callable[[Config], Words]], ...] = (
    (lambda c: any(key.startswith("actor_rollout_ref.") for key in c), _in_verl),
    (lambda c: "num_generations" in c and "num_prompts_per_step" not in c, _in_trl),
    (lambda c: "rollout.n_samples_per_prompt" in c, _in_openrlhf),
    (lambda _: True, _in_others),
)
