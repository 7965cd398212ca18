"""What tests of `design` share: sweeps that are not simulated, a prior that is fitted once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from isocompute.answers.fit import Fit, fit_sweep
from isocompute.design import Sweep, Worlds, judge, shipped_worlds

_shipped = cache(shipped_worlds)
_fits: dict[str, Fit] = {}


def _fitted(curves: Any, **options: Any) -> Fit:
    """A fit of a published sweep is made once; of others anew."""
    if not options["sources"][0].startswith("published:"):
        return fit_sweep(curves, **options)
    key = repr(sorted((k, v) for k, v in options.items() if k != "train"))
    if key not in _fits:
        _fits[key] = fit_sweep(curves, **options)
    return _fits[key]


@pytest.fixture
def prior_once(monkeypatch: Any) -> None:
    """The shipped sweeps are fitted once, not in each test."""
    monkeypatch.setattr("isocompute.design.shipped_worlds", _shipped)
    monkeypatch.setattr("isocompute.answers.plan.fit_sweep", _fitted)


@pytest.fixture
def quick(monkeypatch: Any, prior_once: None) -> None:
    """Sweeps that are not simulated: they always find the middle n."""

    def found(worlds: Worlds, sweep: Sweep, *_: Any) -> np.ndarray:
        return np.full(len(worlds), worlds.n_F.index(sweep.rollouts_per_problem[1]))

    monkeypatch.setattr(judge, "planned", found)
    monkeypatch.setattr("isocompute.cli.designing._MEASURED_S", 0.01)
