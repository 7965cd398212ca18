"""Where a rise is judged from, which n may be best at its end, and what that does to a claim."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute.curves.fits import fit_curves
from isocompute.frontier import fit_frontier
from isocompute.laws.estimate import estimate_law
from isocompute.laws.rise import not_excluded, off_the_floor
from isocompute.testing.planted import NOISE, WORLDS, Arm, World

N = np.array([8, 16, 32, 64])


def drawn(score: list[float], sd: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    noise = np.random.default_rng(seed).standard_normal((4000, len(score)))
    return np.array(score), np.array(score) + sd * noise


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ([0.5, 0.6, 0.7, 0.8], (64, 64)),
        ([0.8, 0.7, 0.6, 0.5], (8, 8)),
        ([0.5, 0.8, 0.8, 0.5], (16, 32)),
        ([0.8, 0.8, 0.8, 0.8], (8, 64)),
        # 16 is beaten by 64, but 8 is not: what may be best begins at 8.
        ([0.8, 0.5, 0.5, 0.8], (8, 64)),
    ],
)
def test_values_that_are_surely_beaten_are_excluded(
    score: list[float], expected: tuple[int, int]
) -> None:
    assert not_excluded(*drawn(score, 0.01), N, 0.95) == expected


def test_a_lead_counts_against_the_largest_of_many() -> None:
    """One rival needs 1.64 standard errors, the best of three equal ones more."""
    for lead, rivals, expected in ((1.75, 1, 16), (1.55, 1, 8), (1.75, 3, 8), (2.3, 3, 16)):
        score = [0.0] + [lead * np.sqrt(2) * 0.01] * rivals
        low, _ = not_excluded(*drawn(score, 0.01), N[: 1 + rivals], 0.95)
        assert low == expected, (lead, rivals)


def test_the_bound_errs_as_rarely_as_it_says_where_all_are_equal() -> None:
    rng = np.random.default_rng(1)
    wrong = []
    for _ in range(600):
        score = 0.01 * rng.standard_normal(7)
        draws = score + 0.01 * rng.standard_normal((400, 7))
        wrong.append(not_excluded(score, draws, 8 * 2 ** np.arange(7), 0.95)[0] > 8)
    assert 0.02 < np.mean(wrong) < 0.08


def test_configurations_of_one_n_are_beaten_together() -> None:
    """Two B_p: n = 8 is out only where both of its configurations are."""
    n = np.array([8, 64, 8, 64])
    assert not_excluded(*drawn([0.5, 0.7, 0.6, 0.6], 0.01), n, 0.95) == (64, 64)
    assert not_excluded(*drawn([0.5, 0.7, 0.7, 0.6], 0.01), n, 0.95) == (8, 64)


@pytest.mark.long
def test_no_rise_is_claimed_where_one_n_only_starts_sooner() -> None:
    """The draws alone claim one in a fifth of these sweeps."""
    claimed, by_draws = [], []
    for seed in range(700_000, 700_020):
        curves = WORLDS["meeting"].sample(NOISE["middle"], 3, np.random.default_rng(seed))
        fits = fit_curves(curves, draws=100, seed=seed)
        law = estimate_law(fit_frontier(fits), fits.rollouts_per_problem_J, variable="rollouts")
        change = law.draw_path_DV[:, -1] - law.draw_path_DV[:, 0]
        by_draws.append(law.octaves > 0 and (change > 0).mean() > 0.95)
        claimed.append(law.claimed)
        assert law.lower_bound is not None
        assert law.lower_bound <= np.quantile(change, 0.05, method="lower")
    assert sum(by_draws) >= 3
    assert sum(claimed) == 0


def test_a_rise_is_judged_from_a_fifth_of_the_way_up() -> None:
    top = np.array([0.40, 0.41, 0.43, 0.45, 0.55, 0.60])
    assert off_the_floor(top, floor=0.40) == 3  # 0.44 is a fifth of the way
    assert off_the_floor(top, floor=0.35) == 0  # the first point is that far up
    assert off_the_floor(np.full(4, 0.5), floor=0.5) == 0


def from_the_floor(ceilings: tuple[float, ...], midpoints: tuple[float, ...]) -> World:
    n = (8, 64, 512) if len(ceilings) == 3 else (8, 16, 32, 64, 128, 256, 512)
    arms = (
        Arm(problems_per_batch=4, rollouts_per_problem=a, floor=0.35, ceiling=c, slope=2.4,
            midpoint=m, shape="gompertz")
        for a, c, m in zip(n, ceilings, midpoints, strict=True)
    )  # fmt: skip
    return World(name="floor", arms=tuple(arms), max_rollouts=2.0**22, first=1024)


@pytest.mark.long
@pytest.mark.parametrize(
    ("ceilings", "midpoints", "fewest", "most"),
    [
        ((0.61, 0.62, 0.63, 0.64, 0.65, 0.66, 0.68), (5.3,) * 7, 0, 2),
        ((0.60, 0.66, 0.72), (5.0, 5.3, 5.6), 12, 12),
    ],
)
def test_who_leads_while_all_curves_lie_on_their_floor_is_no_start_of_a_rise(
    ceilings: tuple[float, ...], midpoints: tuple[float, ...], fewest: int, most: int
) -> None:
    """512 is best throughout: judged from the first budget a rise is claimed in every second."""
    claimed = 0
    for seed in range(731_000, 731_012):
        world = from_the_floor(ceilings, midpoints)
        curves = world.sample(NOISE["middle"], 3, np.random.default_rng(seed))
        fits = fit_curves(curves, draws=100, seed=seed)
        frontier = fit_frontier(fits)
        law = estimate_law(frontier, fits.rollouts_per_problem_J, variable="rollouts")
        assert law.judged_from > 1.5 * frontier.support[0]
        claimed += law.claimed
    assert fewest <= claimed <= most
