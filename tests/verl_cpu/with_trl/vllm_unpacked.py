"""A plugin of vLLM's, for TRL on a CPU, whose sampler lives in the trainer's process.

Found by its entry point where this folder is on PYTHONPATH.
"""

import torch
import vllm.model_executor.layers.utils as layers


def _unpacked(layer, remove_weight):
    """vLLM packs a layer's weight once for its CPU kernels: a new one would not reach them."""
    layer.cpu_linear = torch.nn.functional.linear


def register():
    """Called by vLLM before it makes a model."""
    layers.dispatch_cpu_unquantized_gemm = _unpacked
