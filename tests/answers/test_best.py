"""What is best at a budget, where the lead changes, what may be claimed: by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fake_posterior import FakePosterior, rising
from isocompute.answers.best import (
    as_good,
    choice,
    confidence_set,
    continuous_best,
    expected_regret,
    log2_n_grid,
    probability_best,
    ridge,
)
from isocompute.answers.claims import best_n_rows, compare, compare_by, rise, smallest_stable
from isocompute.answers.frontier import (
    Frontier,
    best_path,
    budget_grid,
    fit_frontier,
    longest,
    overtakes,
)
from isocompute.domain import Configuration

SEVEN = [(32, 2**k) for k in range(3, 10)]


def frontier_of(
    x: np.ndarray,
    score: np.ndarray,
    first: float | list[float] = 4.0,
    last: float | list[float] = 6.0,
    level: float = 0.95,
) -> Frontier:
    """A frontier of so many n at B_p = 32, with data from 10^first to 10^last."""
    J = score.shape[1]
    first_J, last_J = (np.broadcast_to(np.asarray(v, dtype=float), J) for v in (first, last))
    arms = [Configuration(32, 2 ** (3 + j)) for j in range(J)]
    return fit_frontier(arms, first_J, last_J, x, score, level)


def test_chances_and_regrets_are_counted_draw_by_draw() -> None:
    score_DJX = np.array([[[0.5], [0.4], [0.5]], [[0.2], [0.6], [0.1]], [[0.3], [0.1], [0.2]]])
    # draw 0 is a tie of the first and the third, draw 1 goes to the second, draw 2 to the first
    assert probability_best(score_DJX)[:, 0] == pytest.approx([1.5 / 3, 1 / 3, 0.5 / 3])
    assert expected_regret(score_DJX)[:, 0] == pytest.approx([0.4 / 3, 0.3 / 3, 0.6 / 3])


def test_the_choice_is_the_largest_mean_and_of_equals_the_first() -> None:
    assert choice(np.array([0.1, 0.3, 0.2])) == 1
    assert choice(np.array([0.3, 0.3 + 1e-12, 0.2])) == 0
    assert as_good(np.array([0.2985, 0.3, 0.2979]), 1).tolist() == [0, 1]


def test_a_confidence_set_is_the_fewest_n_that_reach_the_level() -> None:
    probability, n = np.array([0.30, 0.25, 0.05, 0.40]), np.array([8, 16, 32, 8])
    assert confidence_set(probability, n, 0.9) == [8, 16]
    assert confidence_set(probability, n, 0.96) == [8, 16, 32]
    assert confidence_set(probability, n, 0.5) == [8]


def test_the_best_n_lies_between_those_of_the_grid_and_stops_at_its_ends() -> None:
    grid = log2_n_grid(np.array([8, 64, 512]))
    assert len(grid) == 25
    tops = np.array([4.44, 5.0, 8.97, 2.0, 11.0])
    score = 0.5 - 0.02 * (grid[None, :, None] - tops[:, None, None]) ** 2
    best = continuous_best(score, grid)
    assert best[:, 0] == pytest.approx([4.44, 5.0, 8.97, 3.0, 9.0])


def test_an_n_is_not_sought_where_that_b_p_was_not_tested() -> None:
    grid = np.linspace(3, 9, 49)
    surface = 0.5 - 0.02 * (grid[None, None, :, None] - 8.2) ** 2 * np.ones((2, 3, 1, 1))
    inside = np.array([grid <= 7, grid <= 9])
    found = ridge(surface, grid, np.array([16, 64]), inside, np.array([[16], [64], [16]]))
    assert found.log2_n_DX[:, 0] == pytest.approx([7.0, 8.2, 7.0])
    assert found.log2_n_PDX == pytest.approx(np.full((2, 3, 1), 8.2))
    assert not found.edge_PDX.any()
    for top, edge in ((11.0, 1), (1.0, -1)):
        beyond = -((grid[None, None, :, None] - top) ** 2) * np.ones((1, 1, 1, 1))
        found = ridge(beyond, grid, np.array([16]), inside[1:], np.array([[16]]))
        assert found.edge_PDX.item() == edge


def test_one_n_is_its_own_best() -> None:
    assert continuous_best(np.array([[[0.4]]]), np.array([4.0])).item() == 4.0
    assert continuous_best(np.array([[[0.4], [0.5]]]), np.array([4.0, 9.0])).item() == 9.0


def test_a_lead_changes_where_the_curves_cross() -> None:
    x = np.linspace(4, 6, 41)
    mean = np.stack([0.3 + 0 * x, 0.3 + 0.1 * (x - 4.97), 0.1 + 0 * x])
    found = frontier_of(x, mean[None].repeat(20, axis=0))
    assert [s["rollouts_per_problem"] for s in found.stretches] == [8, 16]
    (change,) = found.crossovers
    assert (change["from_rollouts_per_problem"], change["to_rollouts_per_problem"]) == (8, 16)
    assert np.log10(change["at"]) == pytest.approx(4.97)
    assert np.log10(change["interval"]) == pytest.approx([4.97, 4.97])
    assert found.stretches[0]["to"] == found.stretches[1]["from"] == change["at"]
    assert found.stretches[0]["score_to"] == pytest.approx(0.3)
    assert found.stretches[1]["score_to"] == pytest.approx(0.3 + 0.1 * 1.03)
    assert found.support == (4.0, 6.0)
    assert found.compared


def test_places_traded_for_nothing_are_no_change() -> None:
    x = np.linspace(4, 6, 41)
    weave = 0.0009 * np.sin(8 * x)
    assert set(best_path(x, np.stack([0.3 + weave, 0.3 - weave]))) == {0}
    real = 3 * weave  # 0.0054 apart: whoever leads is drawn where the curves cross
    path = best_path(x, np.stack([0.3 + real, 0.3 - real]))
    assert (np.diff(path) != 0).sum() == 5
    assert (path == (real < 0)).all()


def test_the_interval_of_a_crossover_is_where_the_draws_cross() -> None:
    x = np.linspace(4, 6, 41)
    at = np.linspace(4.61, 5.39, 79)
    lead = 0.1 * (x[None] - at[:, None])
    assert overtakes(x, lead) == pytest.approx(at)
    score = np.stack([np.zeros_like(lead), lead], axis=1)
    (change,) = frontier_of(x, score).crossovers
    assert np.log10(change["at"]) == pytest.approx(5.0)
    assert np.log10(change["interval"]) == pytest.approx([4.62, 5.38], abs=0.012)
    narrow = frontier_of(x, score, level=0.5).crossovers[0]["interval"]
    assert np.log10(narrow) == pytest.approx([4.8, 5.2], abs=0.012)


def test_a_crossover_that_draws_do_not_have_is_open() -> None:
    x = np.linspace(4, 6, 41)
    at = np.concatenate([np.full(30, 5.0), np.full(5, 7.0)])
    lead = 0.1 * (x[None] - at[:, None])
    assert overtakes(x, lead)[-1] == np.inf
    dip = np.where(np.abs(x - 5) < 0.1, -0.1, 1.0)[None]
    assert overtakes(x, dip)[0] == -np.inf  # a dip is contradicted by what came before it
    assert overtakes(x, np.abs(lead[:1]) + 0.1)[0] == -np.inf
    score = np.stack([np.zeros_like(lead), lead], axis=1)
    (change,) = frontier_of(x, score).crossovers
    assert change["interval"][1] is None
    assert change["interval"][0] == pytest.approx(1e5)


def test_the_support_ends_where_a_contender_has_no_data() -> None:
    x = np.linspace(4, 6, 41)
    score = np.stack([0.3 + 0 * x, 0.3 + 0.01 * (x - 5.02), 0.1 + 0 * x])
    draws = (
        score[None]
        + np.linspace(-0.004, 0.004, 81)[:, None, None] * np.array([0, 1, 0])[None, :, None]
    )
    found = frontier_of(x, draws, 4.0, [5.0, 6.0, 4.5])
    # the third never wins and ends nothing; the first may still lead up to 5.38 and ended at 5.0
    assert found.support == pytest.approx((4.0, 5.0))
    assert [s["extrapolated"] for s in found.stretches] == [False, True, True]
    late = frontier_of(x, draws, 4.0, [5.4, 6.0, 4.5])
    assert late.support == pytest.approx((4.0, 6.0))
    warm = frontier_of(x, draws, [4.3, 4.0, 4.0], [6.0, 6.0, 4.5])
    assert warm.support == pytest.approx((4.3, 6.0))


def test_where_nothing_was_compared_what_was_observed_is_shown() -> None:
    x = np.linspace(4, 6, 41)
    even = np.zeros((2, 2, 41)) + np.array([[[0.2], [0.3]], [[0.3], [0.2]]])
    found = frontier_of(x, even, [4.0, 5.5], [5.0, 6.0])
    assert not found.compared
    assert found.support == pytest.approx((4.0, 5.0))
    assert longest(np.array([False, True, True, False, True]), np.arange(5.0)) == (1.0, 2.0)


def test_the_grid_of_budgets_has_the_ends_of_every_configuration() -> None:
    grid = budget_grid(4.0, 6.0, np.array([4.0, 4.123, np.inf]), np.array([5.777, 6.0, -np.inf]))
    assert {4.0, 4.123, 5.777, 6.0} <= set(grid.tolist())
    assert len(grid) == 51
    assert (np.diff(grid) > 0).all()


def test_a_rise_is_judged_from_the_floor_on_with_a_one_sided_bound() -> None:
    x = np.linspace(4, 6, 5)
    two = np.array([[[0.1, 0.1, 0.2, 0.35, 0.4], [0.1, 0.1, 0.1, 0.4, 0.5]]])
    top = np.repeat(two, 99, axis=0)
    path = np.array([0.0, 9.0, 1.0, 2.0, 3.0])[None] + np.zeros((99, 1))
    path = path + np.linspace(0, 1, 99)[:, None] * np.array([0, 0, 0, 0, 1.0])
    found = rise(x, path, top, floor=0.1)
    # a fifth of the rise of 0.4 is made at the third budget; draws end 2 to 3 octaves higher
    assert found.start == 5.0
    assert found.octaves == pytest.approx(2.5)
    # 5% less 1.645 sqrt(0.05 x 0.95 / 99): 1.4% of the draws; of 9,900 draws 4.6%
    assert found.lower_bound == pytest.approx(2.009, abs=0.006)
    more = rise(x, np.repeat(path, 100, axis=0), np.repeat(two, 9900, axis=0), floor=0.1)
    assert more.lower_bound == pytest.approx(2.04, abs=0.011)
    assert found.claimed
    assert not found.falls
    assert rise(x, -path, top, 0.1).falls
    assert rise(x, path, top, floor=0.4).start == 6.0


def test_a_rise_that_one_draw_in_ten_denies_is_not_claimed() -> None:
    path = np.zeros((100, 3))
    path[:, -1] = np.where(np.arange(100) < 10, 0.0, 3.0)
    score = np.repeat(np.array([[[0.2, 0.3, 0.3], [0.1, 0.2, 0.4]]]), 100, axis=0)
    found = rise(np.arange(3.0), path, score, 0.1)
    assert found.octaves == 3.0
    assert not found.claimed


def test_a_rise_that_gains_no_score_is_none() -> None:
    path = np.tile([0.0, 1.0, 3.0], (100, 1))
    score = np.repeat(np.array([[[0.2, 0.3, 0.4], [0.1, 0.2, 0.4015]]]), 100, axis=0)
    assert rise(np.arange(3.0), path, score, 0.1).octaves == 0.0
    # one draw in ten in which the first n is as good at the end is enough to deny it
    score[10:, 1, 2] = 0.41
    found = rise(np.arange(3.0), path, score, 0.1)
    assert found.octaves == 3.0
    assert not found.claimed
    score[:, 1, 2] = 0.41
    assert rise(np.arange(3.0), path, score, 0.1).claimed


def test_the_smallest_b_p_within_two_thousandths_is_enough() -> None:
    arms = {(16, 8): 0.9, (16, 64): 0.49, (32, 64): 0.4985, (64, 64): 0.5, (128, 64): 0.499}
    scores = {Configuration(*c): score for c, score in arms.items()}
    assert smallest_stable(scores, {}, 64) == (32, 64)
    assert smallest_stable(scores, {}, 80) == (32, 64)
    assert smallest_stable(scores, {}, 9) == (16, 8)
    assert smallest_stable(scores, {(32, 64), (64, 64)}, 64) == (128, 64)
    assert smallest_stable(scores, set(scores), 64) == (32, 64)


def test_spread_along_both_axes_is_largest_minus_smallest() -> None:
    arms = [(16, 8), (16, 64), (128, 8), (128, 64)]
    rng = np.random.default_rng(0)
    shift = rng.normal(0, 0.003, (400, 4)) + np.array([0.0, 0.05, 0.02, 0.05])

    def flat(bp: np.ndarray, n: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 0.3 + 0 * bp + 0 * n + 0 * x

    fake = FakePosterior(arms, flat, shift_DJ=shift, last=[5.0, 6.0, 6.0, 6.0])
    x = budget_grid(3.0, 6.0, fake.first_J, fake.last_J)
    frontier = fit_frontier(fake.configurations, fake.first_J, fake.last_J, x, fake.scores(x), 0.95)
    (at_16, at_128) = compare_by(frontier, "problems_per_batch", 0.95)
    assert (at_16["problems_per_batch"], at_128["problems_per_batch"]) == (16, 128)
    assert at_16["at"] == pytest.approx(1e5)
    assert at_128["at"] == pytest.approx(1e6)
    assert at_16["spread"] == pytest.approx(0.05, abs=0.001)
    assert at_16["interval"][0] < 0.05 < at_16["interval"][1]
    assert at_16["interval"][1] - at_16["interval"][0] == pytest.approx(0.0166, abs=0.003)
    # Of two that are level at the means the spread lies in its interval, and so does none.
    equal = shift - shift.mean(axis=0) + np.array([0.0, 0.0002, 0.0, 0.0002])
    level = FakePosterior(arms, flat, shift_DJ=equal, last=[6.0] * 4)
    of = level.configurations, level.first_J, level.last_J
    (row, _) = compare_by(fit_frontier(*of, x, level.scores(x), 0.95), "problems_per_batch", 0.95)
    assert row["interval"][0] == 0.0
    assert row["spread"] <= row["interval"][1]
    assert [s["rollouts_per_problem"] for s in at_16["scores"]] == [8, 64]
    # of two equals with standard deviation 0.003 each: mean distance 2 / sqrt(pi) of it
    assert at_16["noise"] == pytest.approx(0.003 * 2 / np.sqrt(np.pi), rel=0.1)
    along_bp = compare_by(frontier, "rollouts_per_problem", 0.95)
    assert [r["rollouts_per_problem"] for r in along_bp] == [8, 64]
    assert along_bp[0]["spread"] == pytest.approx(0.02, abs=0.001)
    (same,) = compare_by(frontier, "batch_size", 0.95)
    assert same["batch_size"] == 16 * 64 == 128 * 8
    told, level_ = best_n_rows("avg@4", compare_by(frontier, "problems_per_batch", 0.95), 0.95)
    assert told["rollouts_per_problem"] == level_["rollouts_per_problem"] == 64
    assert told["confidence_set"] == [64]
    assert told["probability"] == 1.0
    assert told["metric"] == "avg@4"


def test_what_never_made_twenty_steps_is_not_compared() -> None:
    x = np.linspace(4, 6, 41)
    score = np.zeros((2, 4, 41)) + np.arange(4)[None, :, None]
    found = frontier_of(x, score, [4.0, 5.5, np.inf, 4.0], [5.0, 6.0, 6.0, 6.0])
    row = compare(found, np.ones(4, bool), 0.95)
    assert row is not None
    assert row["at"] == pytest.approx(1e5)
    assert [s["rollouts_per_problem"] for s in row["scores"]] == [8, 64]
    assert compare(found, np.array([True, True, False, False]), 0.95) is None


def test_the_planted_surface_has_the_ridge_that_it_says() -> None:
    fake = FakePosterior(SEVEN, rising, move_D=np.array([0.0, 1.0]))
    grid, x = log2_n_grid(np.array([c[1] for c in SEVEN])), np.array([4.5, 5.0, 6.0])
    best = continuous_best(fake.smooth_scores(32, grid, x), grid)
    assert best == pytest.approx(np.array([[4.0, 5.0, 7.0], [5.0, 6.0, 8.0]]))
