"""A run -> the Hydra overrides, the Parquet data and the reward module that verl needs.

Keys were read in the configuration that verl 0.6.0, 0.7.0, 0.8.0 and 0.9.1 ship
(`trainer/config/_generated_ppo_trainer.yaml`); the contract tests compose them with 0.9.1.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocompute.allocation import even_interval
from isocompute.engines.bundle import portable_name, write_bundle
from isocompute.engines.verl.options import VerlOptions
from isocompute.engines.verl.overrides import WEIGHTS, checked_overrides
from isocompute.errors import InputError
from isocompute.problems import ProblemSet
from isocompute.study.spec import RunSpec
from isocompute.trainers import Asked
from isocompute.trainers.verl import verl_rows

_PROGRAMS = Path(__file__).parent
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-]*[A-Za-z0-9_./]")
_NUMBER_OR_WORD = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?|(?i:true|false|null|nan|inf)")
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

Keys = dict[str, Any]


def render_keys(
    spec: RunSpec, options: VerlOptions, folder: Path, *, attempt: int = 0,
    resume_from: str | None = None,
) -> Keys:
    """Every key of a run; those that verl's defaults would cover are written out as well.

    Args:
        spec: the run, already checked.
        options: of the engine.
        folder: of this run, with `train.parquet`, `validation.parquet` and `reward/`.
        attempt: number of the attempt; logs and dumps have a folder each, because verl opens
            its file log anew and would truncate the last attempt's.
        resume_from: a `global_step_N` folder; None: from the start, whatever lies around.

    Raises:
        InputError: if an override touches a key that carries the allocation or the recipe.
    """
    recipe, allocation = spec.recipe, spec.allocation
    logs = folder / f"attempt-{attempt}"
    every = validation_interval(spec, options)
    asked = Asked(
        allocation=allocation, recipe=recipe, seed=spec.seed, learning_rate=spec.learning_rate,
        prompt_tokens=options.max_prompt_tokens, response_tokens=options.max_response_tokens,
    )  # fmt: skip
    sampling = {"temperature": recipe.temperature, "top_p": recipe.top_p, "top_k": -1}
    keys: Keys = {
        **{row.key: row.value for row in verl_rows(asked, options.release)},
        "data.train_files": [str(folder / "train.parquet")],
        "data.val_files": [str(folder / "validation.parquet")],
        "data.shuffle": True,
        "data.validation_shuffle": False,
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
        "actor_rollout_ref.model.path": options.model,
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        WEIGHTS: "fp32",  # products are bfloat16: verl's mixed precision
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": options.micro_batch_tokens,
        f"{_ROLLOUT}.name": options.rollout_engine,
        f"{_ROLLOUT}.tensor_model_parallel_size": options.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": options.gpu_memory_utilization,
        f"{_ROLLOUT}.val_kwargs.n": spec.evaluation_samples,
        f"{_ROLLOUT}.val_kwargs.do_sample": True,  # verl's default is greedy
        **{f"{_ROLLOUT}.val_kwargs.{key}": value for key, value in sampling.items()},
        "trainer.test_freq": every,
        "trainer.val_before_train": resume_from is None,
        "trainer.save_freq": every,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.resume_mode": "disable" if resume_from is None else "resume_path",
        # all: verl counts its own, and would empty one that the study still names
        "trainer.max_actor_ckpt_to_keep": None,
        "trainer.logger": ["console", "file"],
        "trainer.project_name": "isocompute",
        "trainer.experiment_name": spec.hash,
        "trainer.nnodes": options.nodes,
        "trainer.n_gpus_per_node": options.gpus_per_node,
        "trainer.validation_data_dir": str(logs / "validation"),
        "trainer.rollout_data_dir": str(logs / "rollouts"),
        "trainer.critic_warmup": 0,
    }
    if resume_from is not None:
        keys["trainer.resume_from_path"] = resume_from
    if recipe.objective == "ppo":
        keys |= {
            "critic.model.path": options.model,
            "trainer.max_critic_ckpt_to_keep": None,
        }
    keys |= _by_release(options, folder)
    added = checked_overrides(
        options.overrides, options.longest, by_problem="trainer.balance_batch" in keys
    )
    named = {key.lstrip("+") for key in added}
    return {**{key: value for key, value in keys.items() if key not in named}, **added}


def _by_release(options: VerlOptions, folder: Path) -> Keys:
    """Keys that moved, or came, between verl 0.6 and 0.9."""
    release = options.release
    reward = "reward.custom_reward_function" if release >= (0, 8) else "custom_reward_function"
    keys: Keys = {
        f"{reward}.path": str(folder / "reward" / "reward.py"),
        f"{reward}.name": "compute_score",
    }
    if release >= (0, 7):
        keys[f"{_ACTOR}.calculate_entropy"] = True
    if release >= (0, 9):
        # the manager counts the tokens of a response, which no dump of verl's holds
        manager = "reward.reward_manager"
        keys |= {f"{manager}.source": "importlib", f"{manager}.name": "CountingRewardManager",
                 f"{manager}.module.path": str(folder / "reward" / "manager.py")}  # fmt: skip
    return keys


def validation_interval(spec: RunSpec, options: VerlOptions) -> int:
    """Steps between two validations of verl; the reader keeps one per point of the grid."""
    return even_interval(
        spec.allocation.batch_size, spec.allocation.steps, draws=spec.evaluation_rollouts,
        per_octave=spec.evaluations_per_octave, first=spec.first_evaluation,
        share=options.validation_share,
    )  # fmt: skip


def hydra_text(value: Any) -> str:
    """One value in Hydra's override grammar.

    >>> hydra_text([1, True, "a b", None])
    "[1,true,'a b',null]"

    Raises:
        InputError: for text that OmegaConf would take for an interpolation, or a line break.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        inner = ",".join(f"{key}:{hydra_text(item)}" for key, item in value.items())
        return "{" + inner + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(hydra_text(item) for item in value) + "]"
    text = str(value)
    if "${" in text or "\n" in text or "\\" in text:
        raise InputError(
            f"a Hydra value must hold no '${{', backslash or line break, but got {text!r}; "
            "choose another path or name."
        )
    if _PLAIN.fullmatch(text) and not _NUMBER_OR_WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "\\'") + "'"


def override_lines(keys: Mapping[str, Any]) -> list[str]:
    """`key=value` arguments for `python3 -m verl.trainer.main_ppo`."""
    return [f"{key}={hydra_text(value)}" for key, value in keys.items()]


def write_files(spec: RunSpec, folder: Path) -> None:
    """Data and rewards of a run, once; a later attempt uses the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    train = _rows(spec.train, "train")
    validation = [row for name, problems in sorted(spec.validation.items())
                  for row in _rows(problems, "validation", name)]  # fmt: skip
    for name, rows in (("train", train), ("validation", validation)):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    write_bundle((spec.train, *spec.validation.values()), folder / "reward")
    for name in ("reward", "manager"):
        shutil.copy(_PROGRAMS / f"program_{name}.py", folder / "reward" / f"{name}.py")
    (folder / "spec.json").write_text(json.dumps(spec.to_dict(), indent=1, sort_keys=True))


def _rows(problems: ProblemSet, split: str, name: str | None = None) -> list[dict[str, Any]]:
    return [
        {
            "data_source": name or problems.name,
            "prompt": [{"role": "user", "content": p.prompt}],
            "ability": "reasoning",
            # verl's training dumps repeat the ground truth and nothing else of the problem
            "reward_model": {"style": "rule", "ground_truth": json.dumps({
                "answer": p.answer, "problem_id": p.id, "problem_set": name or problems.name,
                "verifier": portable_name(problems.verifier),
            })},
            "extra_info": {"split": split, "index": i},
        }
        for i, p in enumerate(problems.problems)
    ]
