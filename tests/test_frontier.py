"""The frontier on planted truth: envelope, support, crossovers, ties, what must not move it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from isocompute.curves import fit_curves
from isocompute.errors import RefusalError
from isocompute.frontier import (
    _bridged,
    _longest_run,
    _resolve_ties,
    crossing_interval,
    crossings,
    fit_frontier,
)
from isocompute.testing.planted import NOISE, WORLDS, Arm, Noise, World, chained_arms

QUIET = Noise(problems=10_000, samples=1000, ceiling_sd=0.0, midpoint_sd=0.0)
N4 = np.array([8, 16, 32, 64])


def frontier_of(world: World, *, seed=0, seeds=2, noise=QUIET, draws=40, level=0.95, drop=()):
    curves = world.sample(noise, seeds, np.random.default_rng(seed))
    fits = fit_curves(
        [c for c in curves if c.rollouts_per_problem not in drop], draws=draws, seed=seed
    )
    return fits, fit_frontier(fits, level=level)


def path_of(fits, frontier) -> list[int]:
    path = [int(fits.rollouts_per_problem_J[s.configuration]) for s in frontier.segments]
    return [n for i, n in enumerate(path) if i == 0 or n != path[i - 1]]


@pytest.mark.parametrize("name", ["rising", "late_winner", "falling", "capped"])
def test_noiseless_crossovers_lie_where_the_true_curves_cross(name: str) -> None:
    _, frontier = frontier_of(WORLDS[name])
    truth = WORLDS[name].truth(QUIET)
    low, high = frontier.support
    expected = [(c.before, c.after, np.log10(c.at)) for c in truth.crossovers(max(low, 1e5), high)]
    found = [(c.before, c.after, np.log10(c.at)) for c in frontier.crossovers if c.at > 1e5]
    assert [f[:2] for f in found] == [e[:2] for e in expected]
    for (_, _, at), (_, _, true) in zip(found, expected, strict=True):
        assert at == pytest.approx(true, abs=0.06)


def test_the_frontier_is_the_envelope() -> None:
    _, frontier = frontier_of(WORLDS["capped"])
    inside = frontier.supported_V
    envelope = frontier.score_JV.max(axis=0)
    on = frontier.score_JV[frontier.best_V, np.arange(len(frontier.x_V))]
    assert np.abs(envelope - on)[inside].max() < 0.002
    assert np.allclose(frontier.probability_JV.sum(axis=0), 1.0)
    assert (frontier.regret_JV >= 0).all()


def test_drift_is_what_configurations_gain_under_twice_the_variance() -> None:
    fits, frontier = frontier_of(WORLDS["rising"], noise=NOISE["high"], draws=200)
    inside = frontier.supported_V
    x = frontier.x_V[inside]
    fit, draws = fits.value(x), fits.draw_value(x)
    noisier = fit + 2**0.5 * (draws - fit)
    for score in (draws, noisier):  # what has no data yet is no candidate
        score[:, (x < fits.start_J[:, None] - 1e-9) | (x > fits.end_J[:, None] + 1e-9)] = -np.inf
    for j in range(len(fit)):
        gain = (noisier.argmax(axis=1) == j).mean(axis=0) - (draws.argmax(axis=1) == j).mean(axis=0)
        assert np.array_equal(frontier.drift_JV[j, inside], gain)
    # More noise leaves less to the leader: at the end of a rising frontier to the largest n.
    last = np.flatnonzero(inside)[-1]
    assert frontier.drift_JV[int(frontier.probability_JV[:, last].argmax()), last] < 0


def test_segments_are_ordered_and_without_gaps() -> None:
    _, frontier = frontier_of(WORLDS["rising"], noise=NOISE["middle"])
    for left, right in pairwise(frontier.segments):
        assert left.start < left.end == right.start < right.end


def test_support_begins_at_20_steps_of_what_could_be_best_and_ends_with_the_data() -> None:
    world = WORLDS["constant_large"]  # n = 512 is best from the start: B = 8192
    _, frontier = frontier_of(world)
    low, high = frontier.support
    assert low >= 20 * 8192 * 0.999
    assert high == pytest.approx(world.max_rollouts, rel=1e-6)
    assert all(s.extrapolated for s in frontier.segments if s.end <= low)
    assert not any(s.extrapolated for s in frontier.segments if s.start >= low)


def test_a_configuration_that_cannot_win_does_not_hold_the_support_up() -> None:
    _, frontier = frontier_of(WORLDS["constant_small"])
    assert frontier.support[0] < 20 * 8192


def newcomer(midpoint: float) -> World:
    """n = 64 passes n = 8 and n = 4 about where it makes its 20th step, at 327,680 rollouts."""

    def arm(n: int, ceiling: float, slope: float, midpoint: float) -> Arm:
        return Arm(
            problems_per_batch=256, rollouts_per_problem=n, floor=0.3, ceiling=ceiling,
            slope=slope, midpoint=midpoint,
        )  # fmt: skip

    four = arm(4, 0.55, 3.0, 4.5)
    eight = arm(8, 0.58, 3.0, 4.7)
    late = arm(64, 0.8, 2.5, midpoint)
    return World(name="newcomer", arms=(four, eight, late))


def test_a_leader_that_comes_in_at_its_20th_step_does_not_cut_the_support() -> None:
    world = newcomer(5.5)
    fits, frontier = frontier_of(world, noise=NOISE["middle"], seeds=3, draws=200)
    start = 20 * 256 * 64
    low, high = frontier.support
    assert low < start / 2
    assert high == pytest.approx(world.max_rollouts, rel=1e-6)
    assert path_of(fits, frontier)[-1] == 64
    without = (frontier.probability_JV * (frontier.x_V < fits.start_J[:, None] - 1e-9)).sum(axis=0)
    assert without[frontier.supported_V].max() > 0.02  # in question just before its 20th step
    assert all(s.end <= low for s in frontier.segments if s.extrapolated)


def test_a_leader_that_was_due_long_before_its_20th_step_does() -> None:
    _, frontier = frontier_of(newcomer(4.8), noise=NOISE["middle"], seeds=3, draws=200)
    assert frontier.support[0] >= 20 * 256 * 64 * 0.999


def test_gaps_are_bridged_up_to_an_octave_and_only_before_a_20th_step() -> None:
    x = np.log10([1.0, 2.0, 2.5, 3.0, 6.0, 7.0])
    flag = np.array([False, True, False, True, False, True])
    everywhere = np.ones(6, dtype=bool)
    assert _bridged(flag, x, open_V=everywhere).tolist() == [False, True, True, True, False, True]
    assert _bridged(flag, x, open_V=~everywhere).tolist() == flag.tolist()


def test_no_ranked_budget_leaves_two_percent_to_a_configuration_without_data() -> None:
    fits, frontier = frontier_of(WORLDS["rising"], noise=NOISE["middle"], draws=200)
    without = (frontier.x_V < fits.start_J[:, None] - 1e-9) | (
        frontier.x_V > fits.end_J[:, None] + 1e-9
    )
    chance = (frontier.probability_JV * without).sum(axis=0)
    assert chance[frontier.supported_V].max() < 0.02
    assert chance.max() > 0.02  # the rule binds in this world


def test_a_dominated_run_never_moves_the_frontier() -> None:
    world = WORLDS["capped"]
    bad = replace(world.arms[2], rollouts_per_problem=4, ceiling=0.5, midpoint=5.0)
    with_bad = replace(world, arms=(*world.arms, bad))
    plain_fits, plain = frontier_of(with_bad, drop=(4,))
    fits, frontier = frontier_of(with_bad)
    assert path_of(fits, frontier) == path_of(plain_fits, plain)
    for a, b in zip(plain.crossovers, frontier.crossovers, strict=True):
        assert np.log10(a.at) == pytest.approx(np.log10(b.at), abs=0.02)


def test_order_of_runs_does_not_matter() -> None:
    curves = WORLDS["capped"].sample(NOISE["middle"], 2, np.random.default_rng(3))
    a, b = (fit_frontier(fit_curves(c, draws=20)) for c in (curves, curves[::-1]))
    assert np.array_equal(a.best_V, b.best_V)
    assert np.array_equal(a.draw_best_DV, b.draw_best_DV)


def test_a_reversal_that_draws_do_not_confirm_is_a_tie() -> None:
    x = np.linspace(5, 6, 6)
    score = np.array([[5, 5, 1, 5, 1, 1], [1, 1, 6, 1, 6, 6], [0] * 6, [0] * 6], dtype=float)
    sure = np.array([0, 0, 1, 1, 1, 1])
    draws = np.tile(sure, (20, 1))  # all draws: 8 then 16; the dip back at 3 is noise
    path, ties = _resolve_ties(score, draws, np.ones(6, dtype=bool), x, N4)
    assert path.tolist() == [0, 0, 1, 1, 1, 1]
    assert len(ties) == 1
    before, after, at, confidence = ties[0]
    assert (before, after, confidence) == (0, 1, 0.0)
    assert at == pytest.approx(10**5.6)


def test_a_change_that_four_in_five_draws_confirm_stands() -> None:
    x = np.linspace(5, 6, 4)
    score = np.array([[5, 5, 1, 1], [1, 1, 6, 6], [0] * 4, [0] * 4], dtype=float)
    change, stay = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0])
    every = np.ones(4, dtype=bool)
    for share, expected in ((17, [0, 0, 1, 1]), (15, [0, 0, 0, 0])):
        draws = np.array([change] * share + [stay] * (20 - share))
        path, ties = _resolve_ties(score, draws, every, x, N4)
        assert path.tolist() == expected
        assert len(ties) == (expected == [0, 0, 0, 0])


def test_the_lead_goes_part_of_the_way_where_the_draws_exclude_that_it_stays() -> None:
    x = np.linspace(5, 6, 6)
    score = np.array([[5.0] * 6, [0] * 6, [3, 4, 5.5, 7, 7, 7], [2, 3, 5, 7.5, 7.5, 7.5]])
    every = np.ones(6, dtype=bool)
    far, part, stay = (np.array([0, 0, j, j, j, j]) for j in (3, 2, 0))
    for counts, expected in (
        ((12, 8, 0), [0, 0, 2, 2, 2, 2]),  # 32 and 64 share the draws: not 64, yet more than 8
        ((17, 3, 0), [0, 0, 2, 3, 3, 3]),  # 64 is confirmed
        ((8, 10, 2), [0, 0, 2, 2, 2, 2]),  # 32 or more in 18 of 20: where its own curve leads
        ((8, 7, 5), [0, 0, 0, 0, 0, 0]),  # nothing is
    ):
        draws = np.array([far] * counts[0] + [part] * counts[1] + [stay] * counts[2])
        path, _ = _resolve_ties(score, draws, every, x, N4)
        assert path.tolist() == expected
    # Without a curve of its own that leads anywhere, only what 95% exclude gives way to it.
    score[2] = [1, 2, 4, 6, 6, 6]
    score[3] = [2, 3, 4.5, 7.5, 7.5, 7.5]
    for excluded, expected in ((20, [0, 0, 0, 2, 2, 2]), (18, [0] * 6)):
        draws = np.array([far] * 10 + [part] * (excluded - 10) + [stay] * (20 - excluded))
        path, _ = _resolve_ties(score, draws, every, x, N4)
        assert path.tolist() == expected


def test_no_turn_where_curves_begin_together() -> None:
    x = np.linspace(5, 6, 6)
    score = np.array([[1, 5, 5, 1, 1, 1], [2, 1, 1, 1, 1, 1], [0] * 6, [0, 0, 0, 6, 6, 6]])
    sure, other = np.array([1, 0, 0, 3, 3, 3]), np.array([0, 0, 0, 3, 3, 3])
    for share, expected in ((17, [1, 0, 0, 3, 3, 3]), (12, [0, 0, 0, 3, 3, 3])):
        draws = np.array([sure] * share + [other] * (20 - share))
        path, ties = _resolve_ties(score.astype(float), draws, np.ones(6, dtype=bool), x, N4)
        assert path.tolist() == expected
        assert [t[:2] for t in ties] == ([] if share == 17 else [(1, 0)])


def test_equal_curves_leave_ties_and_wide_probabilities() -> None:
    _, frontier = frontier_of(WORLDS["equal"], noise=NOISE["middle"], seeds=3, draws=100)
    inside = frontier.supported_V
    assert frontier.probability_JV[:, inside].max(axis=0).mean() < 0.9
    assert len(frontier.crossovers) <= 2


def test_crossover_intervals_widen_with_level_and_noise() -> None:
    world = World(name="two", arms=chained_arms((8, 64), (0.6, 0.7), (6.0,)))
    widths = []
    for noise, level in ((QUIET, 0.95), (NOISE["low"], 0.5), (NOISE["low"], 0.95)):
        _, frontier = frontier_of(world, noise=noise, seeds=3, draws=200, level=level)
        lo, hi = frontier.crossovers[-1].interval
        assert lo is not None
        assert hi is not None
        widths.append(np.log10(hi / lo))
    assert widths[0] < widths[1] < widths[2]


def test_an_interval_is_open_where_draws_cross_beyond_the_support() -> None:
    place = np.random.default_rng(0).normal(5.0, 0.1, 4000)
    x = np.linspace(4.0, 6.0, 97)
    lo, hi = crossing_interval(x[None] - place[:, None], x, 5.0, 0.90)
    assert lo is not None
    assert hi is not None
    assert np.log10([lo, hi]) == pytest.approx([5 - 0.1645, 5 + 0.1645], abs=0.01)
    x = np.linspace(4.0, 5.1, 54)  # 16% of the draws cross beyond it
    low, high = crossing_interval(x[None] - place[:, None], x, 5.0, 0.90)
    assert low == pytest.approx(lo, rel=0.01)
    assert high is None
    # The draw's crossing nearest to the one asked about: this lead turns positive twice.
    twice = np.sin(np.linspace(0, 4 * np.pi, 97) - 0.5)[None]
    x = np.linspace(4.0, 6.0, 97)
    assert crossings(twice, x, 4.0)[0] < 4.2 < 5.0 < crossings(twice, x, 5.2)[0] < 5.2


def test_longest_run() -> None:
    flag = np.array([True, False, True, True, False, True])
    assert _longest_run(flag).tolist() == [False, False, True, True, False, False]
    assert not _longest_run(np.zeros(3, dtype=bool)).any()


def test_refusals_name_the_rule_and_what_to_run() -> None:
    world = WORLDS["capped"]
    curves = world.sample(QUIET, 1, np.random.default_rng(0))
    with pytest.raises(RefusalError, match="at least 2 configurations") as info:
        fit_frontier(fit_curves([c for c in curves if c.rollouts_per_problem == 8], draws=5))
    assert info.value.run_next
    short = [c.replace(problems_per_batch=c.problems_per_batch * 10_000) for c in curves]
    with pytest.raises(RefusalError, match="beyond 20 steps"):
        fit_frontier(fit_curves(short, draws=5))
    early, late = ([c for c in curves if c.rollouts_per_problem == n] for n in (8, 128))
    early = [c.replace(rollouts_K=c.rollouts_K[:10], score_K=c.score_K[:10]) for c in early]
    late = [c.replace(problems_per_batch=200) for c in late]
    apart = fit_curves([*early, *late], draws=50)
    with pytest.raises(RefusalError, match="share none") as info:
        fit_frontier(apart)
    assert "same budget" in info.value.run_next[0]
