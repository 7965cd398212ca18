"""Metrics: numbers worked out by hand, brute force over subsets, and planted truth."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute.errors import InputError
from isocompute.metrics import (
    Metric,
    metric_table,
    parse_metric,
    problem_scores,
    score_from_counts,
    score_from_histogram,
)
from isocompute.spread import landscape, loss_evidence, polarisation, progress


@pytest.mark.parametrize(
    ("metric", "by_hand"),
    [
        ("avg@4", [0, 1 / 4, 2 / 4, 3 / 4, 1]),
        ("avg@1", [0, 1 / 4, 2 / 4, 3 / 4, 1]),
        ("best@4", [0, 1, 1, 1, 1]),
        ("best@2", [0, 1 / 2, 5 / 6, 1, 1]),  # 1 - C(4-c,2)/6
        ("best@1", [0, 1 / 4, 2 / 4, 3 / 4, 1]),
        ("worst@4", [0, 0, 0, 0, 1]),
        ("worst@3", [0, 0, 0, 1 / 4, 1]),  # C(c,3)/4
        ("worst@2", [0, 0, 1 / 6, 1 / 2, 1]),
    ],
)
def test_tables_by_hand(metric: str, by_hand: list[float]) -> None:
    assert metric_table(4, metric) == pytest.approx(by_hand)


@given(st.integers(1, 7), st.data())
def test_tables_are_means_over_subsets(samples: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, samples))
    successes = data.draw(st.integers(0, samples))
    outcomes = [1] * successes + [0] * (samples - successes)
    subsets = list(combinations(outcomes, k))
    for kind, of in (("best", max), ("worst", min), ("avg", lambda s: sum(s) / k)):
        truth = sum(of(s) for s in subsets) / len(subsets)  # type: ignore[operator]
        assert metric_table(samples, f"{kind}@{k}")[successes] == pytest.approx(truth)


def test_unbiased_on_planted_rates() -> None:
    rng = np.random.default_rng(0)
    counts = rng.binomial(8, 0.3, size=200_000)
    for metric, truth in (("best@4", 1 - 0.7**4), ("worst@2", 0.3**2), ("avg@4", 0.3)):
        assert score_from_counts(counts, 8, metric) == pytest.approx(truth, abs=0.003)


@pytest.mark.heavy
def test_large_counts_do_not_overflow() -> None:
    table = metric_table(5000, "best@2500")
    assert table[0] == 0
    assert table[1] == pytest.approx(0.5)
    assert np.all(np.isfinite(table))
    assert np.all(np.diff(table) >= 0)


def test_score_of_a_set_by_hand() -> None:
    counts = [0, 1, 4]
    assert score_from_counts(counts, 4, "avg@4") == pytest.approx(5 / 12)
    assert score_from_counts(counts, 4, "best@4") == pytest.approx(2 / 3)
    assert score_from_counts(counts, 4, "worst@4") == pytest.approx(1 / 3)
    assert isinstance(score_from_counts(counts, 4, "avg@4"), float)


def test_several_sets_at_once_and_samples_per_problem() -> None:
    counts = np.array([[0, 1, 4], [4, 4, 4]])
    assert score_from_counts(counts, 4, "avg@4") == pytest.approx([5 / 12, 1])
    # 1 of 2 and 1 of 4 samples: best@2 is 1 and 1/2.
    assert problem_scores([1, 1], [2, 4], "best@2") == pytest.approx([1, 1 / 2])
    assert score_from_counts([1, 1], [2, 4], Metric("best", 2)) == pytest.approx(3 / 4)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(1, 6))
def test_histogram_and_order_do_not_matter(counts: list[int], k: int) -> None:
    histogram = np.bincount(counts, minlength=7)
    for kind in ("avg", "best", "worst"):
        score = score_from_counts(counts, 6, f"{kind}@{k}")
        assert score_from_histogram(histogram, f"{kind}@{k}") == pytest.approx(score)
        assert score_from_counts(counts[::-1], 6, f"{kind}@{k}") == pytest.approx(score)
    best, avg, worst = (score_from_counts(counts, 6, f"{m}@{k}") for m in ("best", "avg", "worst"))
    assert worst <= avg + 1e-12
    assert avg <= best + 1e-12


def test_names() -> None:
    assert parse_metric("avg@16") == Metric("avg", 16)
    assert parse_metric("mean@4") == parse_metric("avg@4")
    assert parse_metric("pass@4") == parse_metric("best@4")
    assert parse_metric("pass^4") == parse_metric("worst@4")
    assert str(parse_metric("worst@8")) == "worst@8"


@pytest.mark.parametrize("name", ["avg", "avg@", "avg@0", "avg@-1", "avg@4.0", "Best@4", "x@4", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(InputError, match="a metric must be avg@k, best@k or worst@k"):
        parse_metric(name)


@pytest.mark.parametrize(
    ("counts", "samples", "metric", "message"),
    [
        ([1], 4, "best@8", "`k <= samples` must hold for best@8, but got 4 samples"),
        ([1], 4, "avg@16", "ask for avg@4 at most"),
        ([5], 4, "avg@4", "`0 <= successes <= samples` must hold, but got 5 of 4"),
        ([0, -1], 4, "avg@4", "but got -1 of 4"),
        ([], 4, "avg@4", "at least 1 problem"),
        ([0.5], 4, "avg@4", "whole counts"),
        (["x"], 4, "avg@4", "must be integers"),
        ([0], 0, "avg@1", "got 0 samples"),
    ],
)
def test_bad_counts(counts: list[int], samples: int, metric: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_from_counts(counts, samples, metric)


@pytest.mark.parametrize("histogram", [[0, 0], [1], [[1, 2]], [1, -1, 2]])
def test_bad_histograms(histogram: list[int]) -> None:
    with pytest.raises(InputError, match="a histogram must hold numbers of problems >= 0"):
        score_from_histogram(histogram, "avg@1")


def test_landscape_by_hand() -> None:
    # of 10: never, never, 1, 3, 3, 9, always
    view = landscape([0, 0, 1, 3, 3, 9, 10], 10, bins=10)
    assert view.never == pytest.approx(2 / 7)
    assert view.always == pytest.approx(1 / 7)
    assert view.share_B[1:-1] * 7 == pytest.approx([0, 1, 0, 2, 0, 0, 0, 0, 0, 1])
    assert view.low_B[[0, 1, 4, -1]] == pytest.approx([0, 0, 0.3, 1])
    assert view.high_B[[0, 1, 4, -1]] == pytest.approx([0, 0.1, 0.4, 1])
    assert landscape([0, 0, 1, 3, 3, 9, 10], 10, bins=2).share_B * 7 == pytest.approx([2, 3, 1, 1])
    assert landscape([0, 4, 5, 10], 10, bins=1).share_B.tolist() == [0.25, 0.5, 0.25]
    with pytest.raises(InputError, match="`bins >= 1` must hold, but got bins=0"):
        landscape([0], 1, bins=0)


def test_polarisation_by_hand() -> None:
    # rates 0, 0, 1, 1: variance (ddof 1) 1/3, no noise; m(1-m) + var/P = 1/4 + 1/12 = 1/3.
    assert polarisation([0, 0, 4, 4], 4) == pytest.approx(1.0)
    # rates 1/2, 1/2: no variance, noise 0.25/3; largest 1/4.
    assert polarisation([2, 2], 4) == pytest.approx(-1 / 3)
    assert polarisation([0, 0], 4) is None
    for counts, samples in (([1], 4), ([1, 1], 1)):
        with pytest.raises(InputError, match="polarisation needs >= 2 problems with >= 2 samples"):
            polarisation(counts, samples)


@pytest.mark.parametrize("samples", [4, 64])
def test_polarisation_does_not_depend_on_the_number_of_samples(samples: int) -> None:
    rng = np.random.default_rng(1)
    rate = rng.beta(2, 3, size=20_000)  # var / (m (1-m)) = 1 / (a + b + 1) = 1/6
    assert polarisation(rng.binomial(samples, rate), samples) == pytest.approx(1 / 6, abs=0.01)


def test_progress_by_hand() -> None:
    # Large changes, far outside the noise: +1, +1/2 .. with 100 samples.
    result = progress([0, 0, 100, 50], [100, 0, 50, 50], 100, 100)
    # 1, 0, -1/2, 0; the problem at 50 of 100 in both may have moved a little either way.
    assert result.gained == pytest.approx(1 / 4, abs=0.01)
    assert result.lost == pytest.approx(1 / 8, abs=0.01)
    swapped = progress([100, 0, 50, 50], [0, 0, 100, 50], 100, 100)
    assert (swapped.gained, swapped.lost) == pytest.approx((result.lost, result.gained))


def planted(
    p0: np.ndarray, p1: np.ndarray, samples: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, int, int]:
    rng = np.random.default_rng(seed)
    return rng.binomial(samples, p0), rng.binomial(samples, p1), samples, samples


def test_interference_of_planted_changes() -> None:
    p0 = np.full(4000, 0.5)
    p1 = np.where(np.arange(4000) < 1000, 0.2, np.where(np.arange(4000) < 3000, 0.8, 0.5))
    # lost 1/4 x 0.3, gained 2/4 x 0.3: a third.
    result = progress(*planted(p0, p1, 64))
    assert result.interference == pytest.approx(1 / 3, abs=0.03)
    assert progress(*planted(p0, np.full(4000, 0.8), 64)).interference == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("samples", [4, 16])
@pytest.mark.parametrize("worse", [0.0, 0.1, 0.3])
def test_few_samples_hide_no_interference(samples: int, worse: float) -> None:
    """300 problems rise by 0.4 but for a share that falls by 0.2: 0, 1/19 and 3/17 of all."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(20):
        p0 = rng.uniform(0.3, 0.6, 300)
        p1 = p0 + np.where(rng.random(300) < worse, -0.2, 0.4)
        counts = [rng.binomial(samples, p) for p in (p0, p1)]
        found.append(progress(counts[0], counts[1], samples, samples).interference)
    truth = 0.2 * worse / (0.2 * worse + 0.4 * (1 - worse))
    assert np.mean(found) == pytest.approx(truth, abs=0.025 if samples == 4 else 0.01)


def test_interference_of_problems_with_different_numbers_of_samples() -> None:
    sizes = np.tile([4, 16], 2000)
    rng = np.random.default_rng(6)
    p1 = np.where(np.arange(4000) % 4 < 2, 0.8, 0.2)  # half rise by 0.3, half fall by 0.3
    counts = [rng.binomial(sizes, p) for p in (np.full(4000, 0.5), p1)]
    assert progress(counts[0], counts[1], sizes, sizes).interference == pytest.approx(0.5, abs=0.02)
    ends = progress([0, 4] * 50, [4, 0] * 50, 4, 4)  # rates of exactly 0 and 1
    assert (ends.gained, ends.interference) == pytest.approx((0.5, 0.5), abs=0.1)


def test_evidence_of_loss() -> None:
    """Seldom above 3.84 where nobody loses, always where half do."""
    rng = np.random.default_rng(7)
    none, half = [], []
    for _ in range(25):
        p0 = rng.beta(0.3, 8, 300)
        up = 1 / (1 + (1 / np.maximum(p0, 1e-9) - 1) * math.exp(-1.5))
        none.append(loss_evidence(rng.binomial(4, p0), rng.binomial(4, up), 4, 4))
        p0 = rng.uniform(0.3, 0.6, 300)
        p1 = p0 + np.where(rng.random(300) < 0.5, -0.3, 0.3)
        half.append(loss_evidence(rng.binomial(4, p0), rng.binomial(4, p1), 4, 4))
    assert np.mean(np.array(none) > 3.84) <= 0.1
    assert min(half) > 3.84
    # 50 problems from 4 of 4 to 0 of 4: likelihood 1 for 1 to 0, 2^-8 for 1/2 to 1/2.
    fell = loss_evidence([4] * 50, [0] * 50, 4, 4)
    assert fell == pytest.approx(2 * 50 * 8 * math.log(2), rel=0.01)


def test_the_share_nearly_solved_is_not_that_of_all_samples_right() -> None:
    p1 = np.random.default_rng(8).uniform(0, 1, 20_000)  # a tenth lies above 0.9
    before, after = np.random.default_rng(9).binomial(4, [p1 / 2, p1])
    assert np.mean(after == 4) > 0.19
    assert progress(before, after, 4, 4).near_one == pytest.approx(0.1, abs=0.02)
    many = np.random.default_rng(9).binomial(256, p1)
    assert progress(many // 2, many, 256, 256).near_one == pytest.approx(0.1, abs=0.006)


@pytest.mark.parametrize("samples", [4, 16])
def test_no_change_is_no_progress(samples: int) -> None:
    p0 = np.random.default_rng(3).beta(1, 1, size=2000)
    result = progress(*planted(p0, p0, samples))
    assert result.interference is None
    assert result.gained == pytest.approx(result.lost, abs=0.01)
    assert result.rich_get_richer == pytest.approx(0, abs=0.03)


def test_uniform_progress_of_planted_changes() -> None:
    p0 = np.full(8000, 0.3)
    alike = progress(*planted(p0, np.full(8000, 0.6), 8)).uniform_progress
    quarter = np.where(np.arange(8000) < 2000, 0.9, 0.3)
    few = progress(*planted(p0, quarter, 8)).uniform_progress
    worse = progress(*planted(np.full(8000, 0.6), p0, 8)).uniform_progress
    assert alike == pytest.approx(1, abs=0.05)
    assert few == pytest.approx(0.25, abs=0.03)
    assert worse == pytest.approx(-1, abs=0.05)
    assert progress([2, 2], [2, 2], 4, 4).uniform_progress is None


def test_the_rich_get_richer() -> None:
    p0 = np.repeat([0.4, 0.6], 4000)
    apart = progress(*planted(p0, np.repeat([0.1, 0.9], 4000), 8)).rich_get_richer
    together = progress(*planted(p0, np.repeat([0.6, 0.6], 4000), 8)).rich_get_richer
    # 0.04 before (0.1^2 / 0.25), 0.64 after; and 0 after.
    assert apart == pytest.approx(0.6, abs=0.03)
    assert together == pytest.approx(-0.04, abs=0.02)
    assert progress([0, 0], [4, 4], 4, 4).rich_get_richer is None


def test_progress_of_different_sets() -> None:
    with pytest.raises(InputError, match=r"same problems twice, but got shapes \(2,\) and \(3,\)"):
        progress([1, 2], [1, 2, 3], 4, 4)
