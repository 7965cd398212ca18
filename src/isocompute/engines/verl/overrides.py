"""Which Hydra keys a study may add: those known not to change what is trained, however spelt.

A list of what is allowed, because verl has some 900 keys and new ones come with each release: a key
that nobody has looked at is refused rather than trained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from isocompute.errors import InputError

_SEGMENT = r"[A-Za-z_][A-Za-z0-9_\-]*"
_PATH = re.compile(rf"{_SEGMENT}(\.{_SEGMENT})*")
_ACTOR, _REF, _ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout"))

# Keys, and everything below them. Memory, speed, place, logs: none of them decides B_p, n, M, how
# often a batch is used, the reward, the problems or the learning rate.
_HARMLESS = (
    "data.dataloader_num_workers", "data.filter_overlong_prompts_workers",
    "data.apply_chat_template_kwargs", "data.trust_remote_code",
    "actor_rollout_ref.nccl_timeout",
    "actor_rollout_ref.model.override_config", "actor_rollout_ref.model.trust_remote_code",
    "actor_rollout_ref.model.use_remove_padding", "actor_rollout_ref.model.use_fused_kernels",
    "actor_rollout_ref.model.enable_gradient_checkpointing", "actor_rollout_ref.model.use_liger",
    "actor_rollout_ref.model.enable_activation_offload", "actor_rollout_ref.model.use_shm",
    "actor_rollout_ref.model.custom_chat_template", "actor_rollout_ref.model.lora_rank",
    "actor_rollout_ref.model.lora_alpha", "actor_rollout_ref.model.target_modules",
    *(f"{role}.{key}"
      for role in (_ACTOR, _REF, "critic")
      for key in ("fsdp_config", "strategy", "ulysses_sequence_parallel_size", "use_torch_compile",
                  "profiler", "entropy_from_logits_with_chunking", "entropy_checkpointing")),
    "critic.fsdp",
    *(f"{role}.{key}"
      for role in (_REF, _ROLLOUT)
      for key in ("log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz",
                  "log_prob_max_token_len_per_gpu")),
    "critic.model.override_config", "critic.model.enable_gradient_checkpointing",
    "critic.model.use_remove_padding", "critic.ppo_max_token_len_per_gpu",
    "critic.forward_max_token_len_per_gpu",
    *(f"{_ROLLOUT}.{key}" for key in (
        "dtype", "enforce_eager", "free_cache_engine", "enable_sleep_mode", "layered_summon",
        "enable_chunked_prefill", "enable_prefix_caching", "cudagraph_capture_sizes",
        "max_num_batched_tokens", "max_num_seqs", "max_model_len", "disable_log_stats",
        "engine_kwargs", "checkpoint_engine", "data_parallel_size", "expert_parallel_size",
        "pipeline_model_parallel_size", "agent.num_workers", "trace", "prometheus", "profiler",
    )),
    "reward.num_workers",
    "trainer.balance_batch", "trainer.log_val_generations", "trainer.device", "trainer.logger",
    "trainer.project_name", "trainer.experiment_name", "trainer.ray_wait_register_center_timeout",
    "ray_kwargs", "transfer_queue.backend", "transfer_queue.num_data_storage_units",
    "global_profiler",
)  # fmt: skip
# Below those, what an engine's own arguments could change after all.
_HARMFUL = re.compile(
    rf"{re.escape(_ROLLOUT)}\.engine_kwargs\.\w+\.("
    r"seed|model|tokenizer|revision|hf_overrides|quantization|kv_cache_dtype|load_format|"
    r"generation_config|override_generation_config|logits_processors|speculative_config|"
    r"sampling_\w*|temperature|top_\w|n)(\..*)?"
)
# Of a backend: to train nothing, or with rounded weights.
_IDLE = re.compile(r".*\.(fsdp_config|fsdp)\.(forward_only|qat)(\..*)?")
_STRATEGIES = ("fsdp", "fsdp2")  # the learning-rate schedule is theirs; other backends have others


def checked_overrides(overrides: Mapping[str, Any], *, longest: int) -> dict[str, Any]:
    """The overrides as they may stand on verl's command line.

    Keys are dotted paths with or without `+` or `++`; values may be mappings.

    Args:
        overrides: as the study has them.
        longest: tokens of the longest prompt and response together.

    Raises:
        InputError: for a key that carries the allocation, the recipe, the reward or the problems,
            that nobody has looked at, or that is no path.
    """
    if not isinstance(overrides, Mapping):
        raise InputError(
            f"engine_options.overrides must be Hydra keys with values, but got {overrides!r}; "
            "write them as KEY: VALUE."
        )
    for key, value in ((str(key), value) for key, value in overrides.items()):
        for path, leaf in _leaves(key.removeprefix("+").removeprefix("+"), value):
            if not _PATH.fullmatch(path):
                raise InputError(
                    "an override must be one dotted Hydra key, with + or ++ before it where it is "
                    f"new, but got {key!r}; write it as section.key."
                )
            _check(key, path, leaf, longest)
    return dict(overrides)


def _check(key: str, path: str, value: Any, longest: int) -> None:
    allowed = any(path == name or path.startswith(f"{name}.") for name in _HARMLESS)
    if not allowed or _HARMFUL.fullmatch(path) or _IDLE.fullmatch(path):
        raise InputError(
            "an override must not change what the study decides, so it must be among the keys "
            f"known not to (docs/engines-trainers.md), but got {key!r}, which sets {path}; change "
            "the study, or remove the override."
        )
    if path.endswith(".strategy") and value not in _STRATEGIES:
        raise InputError(
            f"`strategy` must be {' or '.join(_STRATEGIES)} with the engine 'verl', but got "
            f"{value!r} for {key!r}; the other backends have other learning-rate schedules."
        )
    if path.endswith(".max_model_len") and not (isinstance(value, int) and value >= longest):
        raise InputError(
            "`max_model_len` must be at least max_prompt_tokens + max_response_tokens = "
            f"{longest}, but got {value!r} for {key!r}, which would cut responses; raise it."
        )
    if path == "trainer.logger" and not (isinstance(value, list) and "file" in value):
        raise InputError(
            f"`trainer.logger` must be a list with 'file', which is what is read, but got "
            f"{value!r}; write for example [console, file, wandb]."
        )


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every key that a value sets; Hydra merges a mapping into what is there."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    else:
        yield path, value
