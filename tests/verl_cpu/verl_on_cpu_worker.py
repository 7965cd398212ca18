"""vLLM's worker on a CPU, whose weights verl replaces after every update.

engine_kwargs.vllm.worker_extension_cls=verl_on_cpu_worker.Worker
"""

import torch
import vllm.model_executor.layers.utils as layers
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def _unpacked(layer, remove_weight):
    """vLLM packs a layer's weight once for its CPU kernels: a new one would not reach them."""
    layer.cpu_linear = torch.nn.functional.linear


layers.dispatch_cpu_unquantized_gemm = _unpacked


class Worker(vLLMColocateWorkerExtension):
    """verl's own, in a module that is imported after the change above."""
