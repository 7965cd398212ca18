"""The model's draws against full sampling (NUTS) of the same posterior, on sweeps of many kinds."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CASES = (
    "three seeds", "one seed", "three n", "two batches", "published", "before the midpoint",
    "one n", "declines",
)  # fmt: skip


@pytest.fixture(scope="module")
def against() -> Any:
    pytest.importorskip("numpyro", reason="needs the extra [nuts]")
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module("against_nuts")
    sys.path.remove(folder)


def test_no_case_is_forgotten(against: Any) -> None:
    assert set(CASES) == set(against.CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_draws_are_those_of_full_sampling(against: Any, name: str) -> None:
    posterior = against.fit(against.CASES[name], draws=against.OURS)
    sweep, full, _ = against.sampled(name, posterior, None)
    assert full.r_hat < 1.01
    found = against.ours(posterior).against(against.theirs(posterior, sweep, full))
    assert np.abs(found.shift).max() < 0.2
    assert np.abs(found.spread - 1).max() < 0.15
    assert np.abs(found.best).max() < 0.05
    if posterior.data.log2_n_J.size > 1:
        assert np.nanmax(np.abs(found.n_shift)) < 0.2
        wide = found.n_spread[np.isfinite(found.n_spread)]
        assert np.abs(wide - 1).max(initial=0.0) < 0.15
