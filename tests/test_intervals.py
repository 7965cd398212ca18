"""Binomial intervals against known values and planted rates."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.errors import InputError
from isocompute.intervals import binomial_interval, draw_interval


def test_jeffreys_known_values() -> None:
    # Rule of Brown, Cai, DasGupta: Beta(2.5, 6.5) quantiles at 0.025 and 0.975.
    low, high = binomial_interval(2, 8)
    from scipy.stats import beta

    assert beta.cdf([low, high], 2.5, 6.5) == pytest.approx([0.025, 0.975])
    low, high = binomial_interval([0, 8], [8, 8])
    assert low[0] == 0
    assert high[1] == 1
    assert high[0] == pytest.approx(1 - low[1])


def test_nothing_seen_says_nothing() -> None:
    low, high = binomial_interval(0, 0)
    assert (float(low), float(high)) == (0, 1)


def test_level_changes_the_interval() -> None:
    narrow = binomial_interval(3, 16, level=0.5)
    wide = binomial_interval(3, 16, level=0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_coverage_over_many_rates() -> None:
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.02, 0.98, size=20_000)
    low, high = binomial_interval(rng.binomial(64, rates), 64)
    assert np.mean((low <= rates) & (rates <= high)) == pytest.approx(0.95, abs=0.01)


def test_bad_intervals() -> None:
    with pytest.raises(InputError, match="`0 < level < 1` must hold, but got level=1"):
        binomial_interval(1, 2, level=1.0)
    with pytest.raises(InputError, match=r"successes in 3..3 and samples in 2..2"):
        binomial_interval(3, 2)


@pytest.mark.parametrize("level", [0.90, 0.95])
def test_interval_of_few_draws_holds_the_next_one_as_often_as_it_says(level: float) -> None:
    rng = np.random.default_rng(0)
    draws, new = rng.standard_normal((100, 20_000)), rng.standard_normal(20_000)
    low, high = draw_interval(draws, level)
    assert np.mean((low <= new) & (new <= high)) == pytest.approx(level, abs=0.005)
    # The plain quantiles of 100 draws hold a point and a half less.
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    assert np.mean((low <= new) & (new <= high)) < level - 0.01
