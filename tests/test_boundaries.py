"""Limits met exactly and just passed; small numbers by hand that a shifted rule would change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from isocompute.difficulty import measure_difficulty, recommend
from isocompute.health import Monitor, Thresholds, check_steps
from isocompute.health.shape import _ENOUGH, roughness
from isocompute.problems import Problem, ProblemSet
from isocompute.recipe import Recipe
from isocompute.spread import progress


def constant(steps=25, **values):
    return [(step, values) for step in range(1, steps + 1)]


@pytest.mark.parametrize(
    ("code", "at", "beyond"),
    [
        ("clipped_responses", {"clipped_share": 0.1}, {"clipped_share": 0.1001}),
        ("dead_batches", {"zero_variance_share": 0.8999}, {"zero_variance_share": 0.9001}),
        ("verifier_errors", {"verifier_error_share": 0.01}, {"verifier_error_share": 0.0101}),
        ("kl_drift", {"kl": 1.0}, {"kl": 1.001}),
    ],
)
def test_a_limit_may_be_met_but_not_passed(code, at, beyond):
    """Ten steps fill the window, ten windows in a row make a finding: at step 19."""
    assert check_steps(constant(**at)) == []
    assert [(f.code, f.step) for f in check_steps(constant(**beyond))] == [(code, 19)]
    assert check_steps(constant(steps=18, **beyond)) == []


def changed(before, after, **more):
    """Ten steps of the start, then forty of what came after."""
    return [(step, {**more, **(before if step <= 10 else after)}) for step in range(1, 51)]


@pytest.mark.parametrize(
    ("code", "before", "at", "beyond"),
    [
        ("entropy_collapse", {"entropy": 1.0}, {"entropy": 0.1001}, {"entropy": 0.0999}),
        ("entropy_explosion", {"entropy": 1.0}, {"entropy": 2.0}, {"entropy": 2.001}),
        ("entropy_explosion", {"entropy": 0.1}, {"entropy": 0.4}, {"entropy": 0.401}),
        ("length_explosion", {"length_tokens": 8.0}, {"length_tokens": 16.0},
         {"length_tokens": 16.01}),
        ("reward_collapse", {"reward": 0.5}, {"reward": 0.25}, {"reward": 0.2499}),
    ],
)  # fmt: skip
def test_a_limit_relative_to_the_start(code, before, at, beyond):
    assert check_steps(changed(before, at)) == []
    assert [(f.code, f.step) for f in check_steps(changed(before, beyond))] == [(code, 29)]


def test_limits_that_a_mean_meets_to_the_last_bit():
    limits = Thresholds(dead_batches=0.875, entropy_collapse=0.125)
    assert check_steps(constant(zero_variance_share=0.875), limits) == []
    assert check_steps(changed({"entropy": 1.0}, {"entropy": 0.125}), limits) == []


def test_a_solved_set_may_lose_entropy_and_gradients():
    low = changed({"entropy": 1.0}, {"entropy": 0.01})
    for reward, codes in ((0.9, []), (0.8999, ["entropy_collapse"])):
        steps = [(step, {**values, "reward": reward}) for step, values in low]
        assert [f.code for f in check_steps(steps)] == codes
    assert check_steps(constant(zero_variance_share=1.0, reward=0.9)) == []
    (dead,) = check_steps(constant(zero_variance_share=1.0, groups=64, reward=0.0))
    assert (dead.code, dead.severity) == ("dead_batches", "failure")
    (nearly,) = check_steps(constant(zero_variance_share=0.99, groups=64, reward=0.0))
    assert nearly.severity == "warning"


def test_a_streak_begins_anew():
    """Windows of 3; the mean of two of 0.2 and a 0 is too high, twice in a row, never thrice."""
    values = [0.2, 0.2, 0.0, 0.0, 0.0] * 10
    steps = [(i, {"clipped_share": v}) for i, v in enumerate(values, 1)]
    assert check_steps(steps, Thresholds(window=3)) == []
    monitor = Monitor(Thresholds(window=3))
    told = [monitor.update(i, {"clipped_share": v}) for i, v in enumerate([0.2] * 6, 1)]
    assert [len(found) for found in told] == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(("spikes", "codes"), [(2, []), (3, ["gradient_spikes"])])
def test_spikes_are_counted_beyond_ten_medians(spikes, codes):
    for factor, expected in ((10.0, []), (10.01, codes)):
        norms = [1.0] * 20 + [factor, 1.0] * spikes + [1.0] * 10
        found = check_steps([(i, {"grad_norm": v}) for i, v in enumerate(norms, 1)])
        assert [f.code for f in found] == expected


def test_many_checkpoints_are_judged_by_means_of_neighbours():
    """Twice as many of half the noise: the same as their means."""
    rng = np.random.default_rng(0)
    means = np.sort(rng.uniform(0.2, 0.8, _ENOUGH)) + 0.05 * rng.normal(size=_ENOUGH)
    off = 0.03 * rng.normal(size=_ENOUGH)
    both = np.stack([means + off, means - off], axis=1).ravel()
    assert roughness(both, 0.02) == pytest.approx(roughness(means, 0.01))
    assert roughness(both, 0.02) != pytest.approx(roughness(means, 0.02))


def test_the_interval_of_a_mean_pass_rate_by_hand():
    """Rates 1/4, 1/2, 3/4: standard deviation 1/4 with ddof 1, 1.96 of its third's root."""
    problems = ProblemSet(
        name="p", problems=[Problem(id=str(i), prompt=str(i), answer="1") for i in range(3)]
    )
    measured = measure_difficulty(
        lambda index_P, samples: np.array([4, 8, 12])[index_P], problems, second_stage=0
    )
    half = 1.959964 * 0.25 / math.sqrt(3)
    assert measured.mean_interval == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


@pytest.mark.parametrize(
    ("rates", "name", "codes"),
    [
        ([0.0625] + [0.3] * 3, "mixed", []),  # a quarter on each side is enough
        ([0.3] + [0.0625] * 3, "mixed", []),
        ([0.0625] + [0.3] * 4, "hard", ["between_bands"]),  # a fifth is not; mean 0.2525
        ([0.0626] + [0.3] * 3, "hard", ["between_bands"]),
        ([0.3], "easy", []),
        ([0.2999], "hard", ["between_bands"]),
        ([0.0625], "hard", []),
        ([0.0626], "hard", ["between_bands"]),
    ],
)
def test_which_recipe_at_the_edges(rates, name, codes):
    advice = recommend(rates)
    assert (advice.name, [n.code for n in advice.notices]) == (name, codes)


def test_recipes_of_difficulties():
    """0.001, verl's weight of KL, for both terms of Easy; neither elsewhere; ratios up to 2."""
    easy = Recipe.for_difficulty("easy")
    assert (easy.kl_coef, easy.entropy_coef, easy.kl_estimator) == (1e-3, 1e-3, "k3")
    for name in ("hard", "mixed"):
        assert Recipe.for_difficulty(name) == Recipe(importance_cap=2.0)
    assert (Recipe().kl_coef, Recipe().entropy_coef) == (0.0, 0.0)


def test_uniform_progress_by_hand():
    """8 samples each, 20 problems 0 -> 6 and 20 stay at 4: gains 3/4 and 0.

    Variances of the gains 0.1875/7 and 0.5/7; mean square gain (0.5625 - 0.6875/7) / 2 = 0.2321429,
    square of the mean 0.140625 - 0.6875/7/80 = 0.1393973.
    """
    found = progress([0, 4] * 20, [6, 4] * 20, 8, 8)
    assert found.uniform_progress == pytest.approx(0.1393973 / 0.2321429, rel=1e-5)
    assert found.gained == pytest.approx(0.375, abs=0.02)
    back = progress([6, 4] * 20, [0, 4] * 20, 8, 8)
    assert back.uniform_progress == pytest.approx(-found.uniform_progress)
    two = progress([0, 4], [6, 4], 8, 8)  # within two standard errors of no change
    assert (two.uniform_progress, two.interference) == (None, None)
