"""Which words of a recipe a trainer's logged configuration says, for a plan to go on with.

Keys are those of each trainer's own sources, at the versions that `docs/trainers.md` lists. A word
is taken only where the log says all that it depends on; KL that is part of the reward is none of
the loss, and has no word here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from isocompute.importers.values.reading import number
from isocompute.importers.words.trained import trained_of
from isocompute.recipe import RECORDED, SHARED, TRAINED


class _Key(NamedTuple):
    """A key of a word; `switch` turns it on, a common one must have `beside`, too."""

    word: str
    key: str
    switch: str = ""
    beside: str = ""


_VERL, _SKYRL, _NEMO = "actor_rollout_ref.actor", "trainer.algorithm", "loss_fn"
_TRL, _OPEN_INSTRUCT = "num_generations", "num_unique_prompts_rollout"
_KEYS = (
    _Key("kl_coef", f"{_VERL}.kl_loss_coef", switch=f"{_VERL}.use_kl_loss"),
    _Key("kl_coef", f"{_SKYRL}.kl_loss_coef", switch=f"{_SKYRL}.use_kl_loss"),
    _Key("kl_coef", "kl_loss_coef", switch="use_kl_loss"),  # slime
    _Key("kl_coef", f"{_NEMO}.reference_policy_kl_penalty"),
    _Key("kl_coef", "actor.kl_ctl"),
    _Key("kl_coef", "beta", beside=_TRL),
    _Key("kl_coef", "beta", beside=_OPEN_INSTRUCT),
    _Key("kl_coef", "algo.kl.init_coef", switch="algo.kl.use_loss"),  # OpenRLHF
    _Key("entropy_coef", f"{_VERL}.entropy_coeff"),
    _Key("entropy_coef", "entropy_coef"),  # slime, TRL
    _Key("clip_low", f"{_VERL}.clip_ratio_low"),
    _Key("clip_low", f"{_SKYRL}.eps_clip_low"),
    _Key("clip_low", f"{_NEMO}.ratio_clip_min"),
    _Key("clip_low", "eps_clip"),
    _Key("clip_low", "epsilon", beside=_TRL),
    _Key("clip_low", "clip_lower", beside=_OPEN_INSTRUCT),
    _Key("clip_low", "actor.eps_clip"),
    _Key("clip_high", f"{_VERL}.clip_ratio_high"),
    _Key("clip_high", f"{_SKYRL}.eps_clip_high"),
    _Key("clip_high", f"{_NEMO}.ratio_clip_max"),
    _Key("clip_high", "eps_clip_high"),
    _Key("clip_high", "epsilon_high", beside=_TRL),
    _Key("clip_high", "clip_higher", beside=_OPEN_INSTRUCT),
    _Key("top_p", "actor_rollout_ref.rollout.top_p"),
    _Key("top_p", "top_p", beside=_TRL),
    _Key("weight_decay", f"{_VERL}.optim.weight_decay"),
    _Key("top_p", "rollout.top_p", beside="rollout.n_samples_per_prompt"),
    _Key("weight_decay", "weight_decay", beside=_TRL),
    _Key("weight_decay", "actor.adam.weight_decay"),
    _Key("max_grad_norm", f"{_VERL}.grad_clip"),
    _Key("max_grad_norm", "max_grad_norm", beside=_TRL),
    _Key("max_grad_norm", "actor.max_norm"),
    _Key("warmup_steps", f"{_VERL}.optim.lr_warmup_steps"),
    _Key("warmup_steps", "warmup_steps", beside=_TRL),
)
_ROUNDED = 1e-4  # trackers keep seven digits, exports of charts often five
_IN_REWARD = ("algorithm.use_kl_in_reward", f"{_SKYRL}.use_kl_in_reward")


def recorded_of(config: Mapping[str, object]) -> dict[str, str]:
    """Words of a recipe in the flattened configuration of a trainer; unsaid ones are left out.

    >>> recorded_of({"num_generations": 8, "beta": 0.04, "epsilon": 0.2, "epsilon_high": None})
    {'kl_coef': '0.04', 'clip_low': '0.2'}
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


def _is_elsewhere(one: _Key, config: Mapping[str, object]) -> bool:
    """Whether another key changes what this one means."""
    if one.word == "kl_coef":  # part of the reward instead
        return any(_truth(config.get(key)) for key in _IN_REWARD)
    if one.word == "clip_high" and one.beside == _TRL:  # caps the ratio, not its distance from 1
        return str(config.get("loss_type")) == "cispo"
    if one.word == "warmup_steps":  # a share of the steps goes before or instead
        shares = ("warmup_ratio", f"{_VERL}.optim.lr_warmup_steps_ratio")
        steps = number(config.get(one.key)) or 0.0
        return steps < 0 or (steps < 1 and any(number(config.get(key)) for key in shares))
    return False
