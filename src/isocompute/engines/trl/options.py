"""What a study says to the TRL engine, what is refused, and the GRPOConfig it becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import isocompute
from isocompute.engines.options import read_options, require_batch, require_words
from isocompute.engines.streams import problem_order
from isocompute.engines.trl.overrides import checked_overrides
from isocompute.errors import InputError
from isocompute.recipe import check_idle_cap
from isocompute.study.spec import RunSpec
from isocompute.trainers import Asked
from isocompute.trainers.trl import LOSS, trl_rows

_MICRO_BATCH = 512  # completions; 0.66 GB at this size for the embedded model


@dataclass(frozen=True, kw_only=True)
class TrlOptions:
    """`engine_options` of the TRL engine.

    Args:
        model: Hugging Face id or folder, or the name of a base model shipped with isocompute.
        python: the Python that has TRL; None: this one.
        max_new_tokens: length limit; None: the model folder's generation_config.json.
        micro_batch: completions per forward pass; the largest divisor of B_p * n up to it is
            used, and gradients are accumulated.
        device: "cpu", "cuda", or "auto" (a GPU if there is one).
        threads: of each process, on a CPU.
        processes: data-parallel ones on this machine, which share every batch.
        chat: prompts as a user's message; None: where the tokenizer has a chat template.
        overrides: further GRPOConfig fields, of those known not to change what is trained; vLLM
            is asked for here: {use_vllm: true, vllm_mode: colocate}.
    """

    model: str
    python: str | None = None
    max_new_tokens: int | None = None
    micro_batch: int = _MICRO_BATCH
    device: str = "auto"
    threads: int = 1
    processes: int = 1
    chat: bool | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: RunSpec) -> TrlOptions:
        """Read the options of a run.

        Raises:
            InputError: for an unknown option, or a value outside its range.
        """
        if not spec.engine_options.get("model"):
            raise InputError(
                "engine_options.model must name a Hugging Face model or folder for the engine "
                "'trl', but got none; add it."
            )
        options = read_options(
            cls, "trl", spec.engine_options, ", or put a GRPOConfig field under overrides"
        )
        for name in ("micro_batch", "threads", "processes", "max_new_tokens"):
            value = getattr(options, name)
            if value is not None and value < 1:
                raise InputError(
                    f"engine_options.{name} must be an integer >= 1, but got {value}; raise it."
                )
        if options.device not in ("auto", "cpu", "cuda"):
            raise InputError(
                f"engine_options.device must be auto, cpu or cuda, but got {options.device!r}; "
                "choose one of them."
            )
        return options

    @property
    def model_path(self) -> str:
        """What TRL is given: a shipped base model is its folder."""
        shipped = Path(isocompute.__file__).parent / "data" / "base" / self.model
        plain = self.model not in ("", ".", "..") and Path(self.model).name == self.model
        return str(shipped) if plain and shipped.is_dir() else self.model

    @property
    def length_limit(self) -> int:
        """Tokens of a response at most.

        Raises:
            InputError: if neither the options nor the model's folder say it.
        """
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        path = Path(self.model_path) / "generation_config.json"
        limit = json.loads(path.read_text()).get("max_new_tokens") if path.is_file() else None
        if not isinstance(limit, int):
            raise InputError(
                f"the length limit must be known, but neither engine_options.max_new_tokens nor "
                f"{str(path)!r} says it; add max_new_tokens."
            )
        return limit


def check_spec(spec: RunSpec) -> None:
    """Refuse what TRL cannot train as asked, or would train otherwise without a word.

    Raises:
        InputError: names the knob, its value, and what TRL offers.
    """
    recipe, allocation = spec.recipe, spec.allocation
    supported: tuple[tuple[str, tuple[object, ...], str], ...] = (
        ("objective", ("grpo", "cispo"), "its PPO has another trainer"),
        ("advantage_std", ("sample", "none"), "it divides by the sample std or not at all"),
        ("aggregation", ("token-mean",) if recipe.objective == "cispo" or recipe.entropy_coef > 0
         else tuple(LOSS),
         "dr_grpo divides by the length limit; cispo and the entropy bonus are token-mean"),
        ("zero_variance_filter", ("none",), "it has no such filter"),
        ("updates_per_batch", (1,), "the engine keeps TRL on-policy"),
        ("update_split", ("mini-batch",), "the engine keeps TRL on-policy"),
        *((name, (value,), "it has no value model") for name, value in (
            ("gae_gamma", 1.0), ("gae_lambda", 1.0), ("value_learning_rate", 1e-5),
            ("value_clip", 0.5))),
        ("gradient_rollouts", (None,), "all rollouts of a group are in its gradient"),
    )  # fmt: skip
    require_words(recipe, "trl", supported)
    check_idle_cap(recipe, "trl")
    if allocation.rollouts_per_problem < 2:
        raise InputError(
            "`rollouts_per_problem >= 2` must hold for a group advantage, but got "
            f"{allocation.rollouts_per_problem}; raise it."
        )
    require_batch(spec)


def render_config(spec: RunSpec, options: TrlOptions) -> dict[str, Any]:
    """Arguments of GRPOConfig; where a model and its outputs lie is left to the program.

    TRL counts completions: B_p * n = per_device_train_batch_size * gradient accumulation *
    processes; `steps_per_generation` stays unset, which makes each batch one update.

    Raises:
        InputError: for an override that is not known to leave what is trained as it is.
    """
    k = spec.evaluation_samples
    evaluation = k * max(1, options.micro_batch // k)
    asked = Asked(
        allocation=spec.allocation, recipe=spec.recipe, seed=spec.seed,
        response_tokens=options.length_limit, learning_rate=spec.learning_rate,
    )  # fmt: skip
    config: dict[str, Any] = {
        **{row.key: row.value for row in trl_rows(
            asked, micro_batch=options.micro_batch, processes=options.processes)},
        "per_device_eval_batch_size": evaluation,
        "num_generations_eval": k,
        "shuffle_dataset": False,  # the program orders the problems itself
        "disable_dropout": True,
        "optim": "adamw_torch",
        "logging_steps": 1,
        "logging_strategy": "steps",
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
    }
    return config | checked_overrides(options.overrides)


def training_order(size: int, batch: int, steps: int, seed: int) -> NDArray[np.int64]:
    """Problems of all steps in a row: passes over the set in random order, batches unique.

    The embedded engine trains on the same problems in the same order, so that runs of one seed
    are pairs. What a pass leaves over when `size` is no multiple of `batch` is dropped. More steps
    only append, so that a study that is extended continues its runs.
    """
    per_pass = size // batch
    passes = -(-steps // per_pass)
    order = [
        problem_order(seed, number, size)[: per_pass * batch]
        for number in range(passes)
    ]
    return np.concatenate(order)[: steps * batch].astype(np.int64)
