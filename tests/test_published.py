"""The digitised panels of arXiv 2603.12151 reproduce; bounds fixed before any rule was chosen."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.importers.tidy import load_published
from isocompute.laws import Fit, fit_sweep


@pytest.fixture(scope="module")
def easy() -> Fit:
    return fit_sweep(load_published("qwen2.5-7b-easy"), draws=400)


@pytest.fixture(scope="module")
def hard() -> Fit:
    return fit_sweep(load_published("qwen2.5-7b-hard"), draws=400)


@pytest.mark.long
def test_easy_begins_small_ends_at_512_and_changes_where_the_paper_does(easy: Fit) -> None:
    n = [part["rollouts_per_problem"] for part in easy.document["frontier"]]
    assert n[0] in (8, 16)
    assert n[-1] == 512
    at = {c["to_rollouts_per_problem"]: c["at"] for c in easy.document["crossovers"]}
    assert 1.0e6 <= at[256] <= 1.8e6
    assert 2.4e6 <= at[512] <= 3.2e6


def test_easy_law_is_the_published_one_within_its_interval(easy: Fit) -> None:
    x = np.geomspace(0.25e6, 4.0e6, 100)
    theirs = 6.09 / (1 + np.exp(-4.75 * (np.log10(x) - 5.84))) + 2.73
    points = [easy.at(float(c)) for c in x]
    ours = np.log2([p.rollouts_per_problem for p in points])
    assert np.abs(ours - theirs).mean() <= 0.4
    low, high = np.log2([p.interval for p in points]).T
    assert ((low <= theirs) & (theirs <= high)).mean() >= 0.95


@pytest.mark.long
def test_hard_ends_at_128_and_leaves_8_where_the_paper_does(hard: Fit) -> None:
    assert hard.document["frontier"][-1]["rollouts_per_problem"] == 128
    at = {c["from_rollouts_per_problem"]: c["at"] for c in hard.document["crossovers"]}
    assert 0.6e6 <= at[8] <= 1.3e6
