"""The shipped curves of a 7B model: what the study that published them found is found here.

The ranges are those within which other readings of the same figures agree (arXiv 2603.12151,
figures of the frontier at 32 problems per batch). None of the rules was chosen by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isocompute.laws import fit_sweep
from isocompute.sources import load_curves


@pytest.fixture(scope="module", params=["easy", "hard"])
def document(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    curves = load_curves([f"published:qwen2.5-7b-{request.param}"])
    return request.param, fit_sweep(curves, draws=100).document


def _change_to(document: dict[str, Any], n: int) -> float:
    return next(c["at"] for c in document["crossovers"] if c["to_rollouts_per_problem"] == n)


def test_frontier_and_crossovers(document: tuple[str, dict[str, Any]]) -> None:
    name, fit = document
    path = [s["rollouts_per_problem"] for s in fit["frontier"]]
    assert path == sorted(path)
    if name == "easy":
        assert path[0] in (8, 16)
        assert path[-1] == 512
        assert 1.0e6 <= _change_to(fit, 256) <= 1.8e6
        assert 2.4e6 <= _change_to(fit, 512) <= 3.2e6
    else:
        assert path[0] == 8
        assert path[-1] == 128
        assert 0.6e6 <= _change_to(fit, 128) <= 1.3e6


def test_the_frontier_has_no_gap(document: tuple[str, dict[str, Any]]) -> None:
    _, fit = document
    for left, right in zip(fit["frontier"][:-1], fit["frontier"][1:], strict=True):
        assert left["from"] <= left["to"] == pytest.approx(right["from"])


@pytest.mark.parametrize("document", ["easy"], indirect=True)
def test_the_law_lies_near_the_published_one(document: tuple[str, dict[str, Any]]) -> None:
    _, fit = document
    at = [row for row in fit["law"]["at"] if 0.25e6 <= row["x"] <= 4.0e6]
    x = np.array([row["x"] for row in at])
    n = np.array([row["rollouts_per_problem"] for row in at])
    published = 6.09 / (1 + np.exp(-4.75 * (np.log10(x) - 5.84))) + 2.73
    assert np.mean(np.abs(np.log2(n) - published)) < 0.4
    inside = [
        row["interval"][0] <= 2**p <= row["interval"][1]
        for row, p in zip(at, published, strict=True)
        if row["interval"] is not None and None not in row["interval"]
    ]
    assert len(inside) >= 10
    assert np.mean(inside) > 0.9


def test_the_document_keeps_its_contract(document: tuple[str, dict[str, Any]]) -> None:
    _, fit = document
    assert fit["version"] == 1
    assert fit["setting"] == {"kind": "fixed_problems_per_batch", "value": 32}
    x = np.array([row["x"] for row in fit["law"]["at"]])
    assert len(x) >= 20
    assert np.allclose(np.diff(np.log(x)), np.diff(np.log(x))[0])
    assert (x[0], x[-1]) == pytest.approx(tuple(fit["support"]))
    for key in ("curves", "frontier", "crossovers", "law", "backtest", "warnings"):
        assert key in fit
