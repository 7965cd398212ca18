"""What an update asks of a device: kernels, and moments that wait for it."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402 (torch is optional)

from isocompute.allocation import Allocation  # noqa: E402
from isocompute.engines.local import engine, gradient  # noqa: E402
from isocompute.engines.local.worlds import WORLDS  # noqa: E402
from isocompute.recipe import Recipe  # noqa: E402
from isocompute.study.spec import RunSpec  # noqa: E402
from sinks import ListSink  # noqa: E402

# Each reads from the device before the host goes on.
WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2", "aten::equal"}


class Counting(TorchDispatchMode):
    """Counts what is computed; views cost a device nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returns = function._schema.returns
        alias = returns[0].alias_info if returns else None
        if alias is None or alias.is_write:
            self.seen[function._schema.name] += 1
        return function(*args, **(kwargs or {}))


def started(tmp_path, n, problems=32, recipe=None):
    asked = WORLDS["bits"]().problems("train", 40, seed=1)
    spec = RunSpec(
        engine="local", train=asked, validation={"none": asked}, seed=0,
        allocation=Allocation(problems_per_batch=problems, rollouts_per_problem=n, steps=9),
        recipe=recipe or Recipe.for_difficulty("easy", temperature=1.0, learning_rate=1e-9),
        engine_options={"model": "bits"},
    )  # fmt: skip
    return engine._Run(spec, ListSink(tmp_path))


@pytest.mark.heavy
def test_kernels_and_waits_of_an_update_do_not_grow_with_n(tmp_path, monkeypatch):
    kernels, waits = {}, {}
    for n in (4, 32, 128, 512):
        run = started(tmp_path, n)
        run.update()
        lists = []  # these wait, too, and dispatch nothing
        with monkeypatch.context() as patch, Counting() as counting:
            real = torch.Tensor.tolist
            patch.setattr(
                torch.Tensor, "tolist", lambda t, real=real, k=lists: k.append(1) or real(t)
            )
            run.update()
        kernels[n] = sum(counting.seen.values())
        waits[n] = sum(counting.seen[name] for name in WAITS) + len(lists)
    assert max(kernels.values()) < 1.05 * min(kernels.values()), kernels
    assert max(waits.values()) <= 1.05 * min(waits.values()), waits


def test_a_batch_beyond_the_memory_of_a_pass_takes_several(tmp_path, monkeypatch):
    found: dict[int, tuple[int, dict[str, float]]] = {}
    for floats in (1 << 28, 1 << 20):
        monkeypatch.setattr(gradient, "FLOATS_PER_CHUNK", floats)
        run, passes = started(tmp_path, 16, problems=8), []
        real = torch.Tensor.backward
        with monkeypatch.context() as patch:
            patch.setattr(
                torch.Tensor, "backward", lambda t, real=real, k=passes: k.append(1) or real(t)
            )
            run.update()
        found[floats] = (len(passes), run.sink.pending[0].health)
    (one, whole), (several, parts) = found.values()
    assert one == 1 < several
    assert whole == pytest.approx(parts, rel=1e-4)
