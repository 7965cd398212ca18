"""Which GRPOConfig fields a study may add: those known not to change what is trained.

A list of what is allowed: GRPOConfig has some 190 fields, and a field that nobody has looked at is
refused rather than trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocompute.errors import InputError

# Memory, speed, place, precision, logs: none of them decides B_p, n, M, how often a batch is used,
# the reward, the problems, the loss or the learning rate.
HARMLESS = frozenset((
    "use_vllm", "vllm_mode", "vllm_model_impl", "vllm_enable_sleep_mode", "vllm_server_base_url",
    "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port",
    "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size",
    "model_init_kwargs", "trust_remote_code", "cast_lm_head_to_fp32", "chat_template_kwargs",
    "cache_implementation", "pad_to_multiple_of",
    "bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval", "use_cache",
    "gradient_checkpointing", "gradient_checkpointing_kwargs", "activation_checkpointing",
    "activation_checkpointing_kwargs", "torch_compile", "torch_compile_backend",
    "torch_compile_mode", "torch_empty_cache_steps",
    "log_completions", "num_completions_to_print", "log_unique_prompts", "log_level",
    "log_level_replica", "log_on_each_node", "disable_tqdm", "report_to", "run_name", "project",
    "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers",
    "dataloader_prefetch_factor", "ddp_find_unused_parameters", "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers", "ddp_timeout", "skip_memory_metrics",
))  # fmt: skip


def checked_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides as they may stand among GRPOConfig's arguments.

    Raises:
        InputError: if one carries the allocation, the recipe, the reward or the problems, or is a
            field that nobody has looked at.
    """
    for key in overrides:
        if key not in HARMLESS:
            raise InputError(
                "an override must not change what the study decides, so it must be among the "
                f"fields known not to (docs/engines-trainers.md), but got {key!r}; change the "
                "study, or remove the override."
            )
    return dict(overrides)
