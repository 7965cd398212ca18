"""Work that is captured once as a CUDA graph and replayed: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

_WARM_UPS = 3  # runs before the capture, in which libraries choose kernels and take their memory

Result = TypeVar("Result")


class Captured(Generic[Result]):
    """A function of tensors that stay where they are; with graphs, replayed after its first call.

    Its inputs are tensors that it holds and that the caller overwrites; what it returns is
    overwritten by the next call. Without graphs it is the function itself.

    Args:
        function: waits for nothing and has shapes that do not change.
        graphs: whether to capture it; only on a CUDA device.
        changed: tensors that it changes in place, restored after the runs before the capture.

    Source: the recipe for whole networks in torch's "CUDA semantics", section "CUDA Graphs".
    """

    def __init__(
        self, function: Callable[[], Result], *, graphs: bool, changed: Sequence[Tensor] = ()
    ) -> None:
        self.function, self.graphs, self.changed = function, graphs, changed
        self.replay: Callable[[], None] | None = None
        self.result: Result

    def __call__(self) -> Result:
        """Compute; the tensors that come back belong to the next call again."""
        if not self.graphs:
            return self.function()
        if self.replay is None:
            self.replay = self._capture()
        self.replay()
        return self.result

    def _capture(self) -> Callable[[], None]:
        """Record the function's kernels; recording computes nothing."""
        before = [tensor.clone() for tensor in self.changed]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self.function()
            for tensor, was in zip(self.changed, before, strict=True):
                tensor.copy_(was)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # The stream of the warm-up again: handles and workspaces of libraries belong to streams.
        with torch.cuda.graph(graph, stream=stream):
            self.result = self.function()
        return graph.replay
