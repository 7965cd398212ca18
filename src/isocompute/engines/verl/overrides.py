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
_HYDRAS_OWN = re.compile(r"_[a-z]+_")  # `_target_` would put another class in a section's place
_ACTOR, _REF, _ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout"))
_CONTEXT = f"{_ROLLOUT}.max_model_len"
WEIGHTS, CRITIC_WEIGHTS = f"{_ACTOR}.fsdp_config.model_dtype", "critic.fsdp.model_dtype"


def _below(sections: tuple[str, ...], *keys: str) -> Iterator[str]:
    return (f"{section}.{key}" for section in sections for key in keys)


# Keys, and everything below them. Memory, speed, place, logs: none of them decides B_p, n, M, how
# often a batch is used, the reward, the problems or the learning rate.
_HARMLESS = (
    "data.dataloader_num_workers", "data.filter_overlong_prompts_workers",
    "data.trust_remote_code",
    # what templates of models ask for; the tokenizer's own words (max_length, tools) are no switch
    *_below(("data.apply_chat_template_kwargs",),
            "enable_thinking", "thinking", "reasoning_effort"),
    "actor_rollout_ref.nccl_timeout",
    *_below(("actor_rollout_ref.model", "critic.model"),
            "override_config.attn_implementation", "enable_gradient_checkpointing",
            "use_remove_padding", "trust_remote_code", "enable_activation_offload", "use_shm",
            "lora_rank", "lora_alpha", "target_modules"),
    *_below(("actor_rollout_ref.model",),
            "use_fused_kernels", "use_liger", "custom_chat_template"),
    *_below((_ACTOR, _REF, "critic"),
            "strategy", "ulysses_sequence_parallel_size", "use_torch_compile", "profiler",
            "entropy_from_logits_with_chunking", "entropy_checkpointing"),
    *_below((f"{_ACTOR}.fsdp_config", f"{_REF}.fsdp_config", "critic.fsdp"),
            "strategy", "wrap_policy", "param_offload", "optimizer_offload", "offload_policy",
            "reshard_after_forward", "fsdp_size", "forward_prefetch", "use_orig_params",
            "model_dtype", "dtype", "mixed_precision", "ulysses_sequence_parallel_size",
            "use_torch_compile", "entropy_from_logits_with_chunking",
            "entropy_from_logits_chunk_size", "entropy_checkpointing",
            "use_no_sync_for_gradient_accumulation", "pad_to_length", "pad_to_length_bucket"),
    *_below((_REF, _ROLLOUT),
            "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz",
            "log_prob_max_token_len_per_gpu"),
    "critic.ppo_max_token_len_per_gpu", "critic.forward_max_token_len_per_gpu",
    _CONTEXT,
    *_below((_ROLLOUT,),
            "dtype", "enforce_eager", "free_cache_engine", "enable_sleep_mode", "layered_summon",
            "enable_chunked_prefill", "enable_prefix_caching", "cudagraph_capture_sizes",
            "max_num_batched_tokens", "max_num_seqs", "disable_log_stats", "data_parallel_size",
            "expert_parallel_size", "pipeline_model_parallel_size", "agent.num_workers", "trace",
            "prometheus", "profiler", "checkpoint_engine.update_weights_bucket_megabytes"),
    # the sampler's own arguments by name: it takes hundreds, each also with dashes
    *_below((f"{_ROLLOUT}.engine_kwargs.vllm",),
            "worker_extension_cls", "attention_backend", "block_size", "compilation_config",
            "cpu_offload_gb", "swap_space", "disable_custom_all_reduce", "disable_cascade_attn",
            "disable_mm_preprocessor_cache", "mm_processor_cache_gb", "enable_expert_parallel",
            "num_gpu_blocks_override", "async_scheduling"),
    *_below((f"{_ROLLOUT}.engine_kwargs.sglang",),
            "attention_backend", "chunked_prefill_size", "cuda_graph_max_bs",
            "disable_cuda_graph", "disable_radix_cache", "enable_torch_compile",
            "max_running_requests", "mem_fraction_static"),
    "reward.num_workers",
    "trainer.balance_batch", "trainer.log_val_generations", "trainer.device", "trainer.logger",
    "trainer.project_name", "trainer.experiment_name", "trainer.ray_wait_register_center_timeout",
    # without its runtime_env, which can put other code in verl's place: `environment` is for that
    *_below(("ray_kwargs.ray_init",),
            "num_cpus", "num_gpus", "resources", "object_store_memory", "include_dashboard",
            "dashboard_host", "dashboard_port", "log_to_driver", "_temp_dir",
            "_plasma_directory"),
    "ray_kwargs.timeline_json_file", "transfer_queue.backend",
    "transfer_queue.num_data_storage_units", "global_profiler",
)  # fmt: skip
_STRATEGIES = ("fsdp", "fsdp2")  # the learning-rate schedule is theirs; other backends have others


def checked_overrides(
    overrides: Mapping[str, Any], longest: int, *, by_problem: bool = False
) -> dict[str, Any]:
    """The overrides as they may stand on verl's command line.

    Args:
        overrides: dotted paths with or without `+` or `++`; values may be mappings.
        longest: tokens of the longest prompt and response, which must fit the sampler.
        by_problem: whether a batch is several mini-batches, each of its share of the problems.

    Raises:
        InputError: for a key that carries the allocation, the recipe, the reward or the problems,
            that nobody has looked at, or that is no path.
    """
    for key, value in ((str(key), value) for key, value in overrides.items()):
        for path, leaf in _leaves(_plain(key), value):
            if not _PATH.fullmatch(path):
                raise InputError(
                    "an override must be one dotted Hydra key, with + or ++ before it where it is "
                    f"new, but got {key!r}; write it as section.key."
                )
            _check(key, path, leaf, longest)
            if by_problem and path == "trainer.balance_batch" and leaf is not False:
                raise InputError(
                    "`trainer.balance_batch` must be false with mini-batches, which it would fill "
                    f"by length instead of by problem, but got {leaf!r} for {key!r}; remove it."
                )
    return dict(overrides)


def override_leaves(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What each Hydra key is set to."""
    return {path: leaf for key, value in overrides.items()
            for path, leaf in _leaves(_plain(str(key)), value)}  # fmt: skip


def _plain(key: str) -> str:
    return key.removeprefix("+").removeprefix("+")


def _check(key: str, path: str, value: Any, longest: int) -> None:
    allowed = any(path == name or path.startswith(f"{name}.") for name in _HARMLESS)
    if not allowed or any(map(_HYDRAS_OWN.fullmatch, path.split("."))):
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
    # verl cuts each response to what is left of it, without a word
    if path == _CONTEXT and not (isinstance(value, int) and value >= longest):
        raise InputError(
            f"`max_model_len` must be an integer >= {longest}, the longest prompt and response "
            f"together, but got {value!r} for {key!r}; raise it, or lower max_response_tokens."
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
