"""A device that is not there: tensors that say they lie on it, and compute on the CPU.

Where one of them meets a tensor of the CPU in one operation, it raises as a GPU would. So code
that forgets to move a tensor is found without a GPU; what a GPU's kernels compute is not tested.

`lazy` is a device type of torch that every build lets one name, and that nothing here uses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "lazy"


class _Elsewhere(torch.Tensor):
    """A tensor of the device; `inner` holds its numbers."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> _Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=torch.device(NAME), requires_grad=inner.requires_grad,
        )  # fmt: skip
        made.inner = inner
        return made

    def __init__(self, inner: torch.Tensor) -> None:
        pass

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, value: _Elsewhere) -> None:
        self.inner = value.inner

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self) -> Any:
        raise TypeError("can't convert a tensor of another device to numpy; use cpu() first")

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        return _computed(function, args, kwargs or {})


def _computed(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = function._schema.name
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    there = [x for x in tensors if isinstance(x, _Elsewhere)]
    # A GPU, too, takes numbers of the CPU that are tensors without a dimension.
    here = [x for x in tensors if not isinstance(x, _Elsewhere) and x.dim()]
    if there and here and name not in ("aten::_to_copy", "aten::copy_"):
        raise RuntimeError(f"{name}: expected all tensors on one device, but found {NAME} and cpu")
    result_there = bool(there)
    if kwargs.get("device") is not None:
        result_there = torch.device(kwargs["device"]).type == NAME
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner_args, inner_kwargs = tree_map(
        lambda x: x.inner if isinstance(x, _Elsewhere) else x, (args, kwargs)
    )
    with torch.inference_mode(False), torch.no_grad():  # tensors of that mode cannot be wrapped
        out = function(*inner_args, **inner_kwargs)
        if name.endswith("_") and not name.endswith("__"):  # in place: the tensor that was given
            return args[0]
        return tree_map(
            lambda x: _Elsewhere(x) if result_there and isinstance(x, torch.Tensor) else x, out
        )


_tensor = torch.tensor


def _tensor_there(data: Any, *, device: Any = None, **kwargs: Any) -> torch.Tensor:
    """torch.tensor makes its numbers where no mode can see it; this moves them afterwards."""
    made = _tensor(data, **kwargs)
    return made if device is None else made.to(device)


class FakeDevice(TorchDispatchMode):
    """Inside it, `device="lazy"` can be used."""

    def __enter__(self) -> FakeDevice:
        torch.tensor = _tensor_there
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        torch.tensor = _tensor
        super().__exit__(*exception)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        return _computed(function, args, kwargs or {})
